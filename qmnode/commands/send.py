"""``qmnode send``: messages from the command line, a file or lines of standard input."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final

import typer

from qmnode.administration.browsing import unit_for
from qmnode.administration.queue_names import format_name, queue_name
from qmnode.administration.where import seconds_of, time_of
from qmnode.bodies.activex import BYTE_ARRAY, Vt
from qmnode.bodies.choice import Encoded
from qmnode.commands.node_options import NODE, JsonOption, Node, QueueName
from qmnode.commands.option_groups import Commands
from qmnode.commands.output import print_json, progress, say
from qmnode.commands.row_options import number_option
from qmnode.errors import MessageQueuingError
from qmnode.management.documents import identifier_from_text, identifier_text
from qmnode.management.message_documents import is_utf16, named_queues
from qmnode.model.api import Access
from qmnode.model.message import DEFAULT_PRIORITY, Message, fault
from qmnode.objects.message_table import MESSAGE
from qmnode.structures.enumerations import AuthenticationLevel, HashAlgorithm, PrivacyLevel
from qmnode.structures.guid import ZERO_GUID, Guid, guid_from_text

if TYPE_CHECKING:
    from qmnode.local.remote import RemoteQueueManager

app = Commands()

_BATCH: Final = 500
_LARGEST: Final = 4 * 1024 * 1024
"""Bytes of a whole message (MS-MQMQ 2.2.19.1), so that none with a longer body is worth reading to its end."""


class Hash(StrEnum):
    """Hash algorithms; the weak ones only if the node's settings allow them."""

    SHA512 = "sha512"
    SHA256 = "sha256"
    SHA1 = "sha1"
    MD5 = "md5"


_HASHES: Final = {
    Hash.SHA512: HashAlgorithm.SHA_512,
    Hash.SHA256: HashAlgorithm.SHA_256,
    Hash.SHA1: HashAlgorithm.SHA1,
    Hash.MD5: HashAlgorithm.MD5,
}
BODY_TYPES: Final = {kind.name.removeprefix("VT_").lower(): int(kind) for kind in Vt} | {"array": BYTE_ARRAY}
"""The constants of VARENUM that say what a body is (MS-MQMQ 2.2.12); ``array`` is VT_ARRAY of VT_UI1."""


NumberOption = Annotated[int, number_option(MESSAGE["app_specific"])]
PriorityOption = Annotated[int, number_option(MESSAGE["priority"])]
ReachOption = Annotated[int | None, number_option(MESSAGE["time_to_reach_queue"])]
ReceivedOption = Annotated[int | None, number_option(MESSAGE["time_to_be_received"])]


def _deliver_at(text: str) -> float:
    return _allowed("deliver_at", "--at", lambda: time_of("--at", text))


def _deliver_in(text: str) -> float:
    return _allowed("deliver_in", "--in", lambda: seconds_of("--in", text))


def _allowed(name: str, option: str, read: Callable[[], float]) -> float:
    try:
        value = read()
    except MessageQueuingError as error:
        raise typer.BadParameter(error.sentence) from None
    if sentence := fault(name, value):
        raise typer.BadParameter(f"{option}: {sentence}")
    return value


def _body_type(text: str) -> int:
    name = text.lower().removeprefix("vt_").replace("-", "_")
    try:
        number = BODY_TYPES[name] if name in BODY_TYPES else int(text, 0)
    except ValueError:
        number = -1
    if not 0 <= number <= 0xFFFFFFFF:
        raise typer.BadParameter(f"{text!r} is no number of 32 bits and none of {', '.join(BODY_TYPES)}")
    return number


_NEEDS: Final = {
    "acknowledge": "admin_queue",
    "admin_queue": "acknowledge",
    "dead_letter_queue": "dead_letter",
    "report_queue": "trace",
    "signed_with": "authenticated",
}
"""Options that need another one to have an effect."""
_PUBLIC: Final = re.compile(r"PUBLIC=([0-9A-Fa-f-]{36})", re.IGNORECASE)
_OPTIONS: Final = {"signed_with": "--hash"}
_OF_TRANSACTIONS: Final = {
    "priority": "arrive in the order in which they were sent",
    "express": "are always kept on disk",
}
"""Why options have no effect on transactional messages (MS-MQMQ 2.2.19.1)."""


def _acknowledgments(asked: int) -> int:
    if sentence := fault("acknowledgements_requested", asked):
        raise typer.BadParameter(sentence)
    return asked


def _format_names(text: str) -> list[str]:
    """The format names of queues with commas between them."""
    return [format_name(name.strip()) for name in text.split(",")] if text else [""]


def _correlation(text: str) -> bytes:
    try:
        return identifier_from_text(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _extension(text: str) -> bytes:
    return _file_content(Path(text[1:])) if text.startswith("@") else text.encode("utf-8", "surrogateescape")


@app.command(epilog="Example: qmnode send orders 'order 7' --label first   or: qmnode send orders --lines < orders.txt")
def send(
    context: typer.Context,
    name: QueueName,
    body: Annotated[
        str | None,
        typer.Argument(
            help="Text of the body; - reads standard input, as does omitting it, unless standard input is a terminal."
        ),
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="File with the body; - is standard input.")] = None,
    lines: Annotated[bool, typer.Option("--lines", help="A message for each line of standard input.")] = False,
    utf16: Annotated[
        bool, typer.Option("--utf16", help="Send the text in UTF-16 with the body type VT_LPWSTR, as Windows does.")
    ] = False,
    body_type: Annotated[
        int | None,
        typer.Option(
            parser=_body_type,
            metavar="TYPE",
            help="Type of the body, a constant of VARENUM: a number or a name such as bstr. Texts of the types bstr "
            "and lpwstr are written in UTF-16.",
        ),
    ] = None,
    body_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="Write the body in a format that programs of .NET read: xml, activex, wcf, json, text, nservicebus, "
            "rebus, or a body type such as VT_BSTR. xml and activex take JSON as a value, and other text as text.",
        ),
    ] = None,
    headers: Annotated[
        list[str] | None,
        typer.Option(
            "--header", metavar="NAME=VALUE", help="Header of NServiceBus or Rebus, with --format; may be given again."
        ),
    ] = None,
    label: Annotated[str, typer.Option(help="Label of the message, at most 249 UTF-16 units.")] = "",
    extension: Annotated[
        bytes | None, typer.Option(parser=_extension, metavar="TEXT|@FILE", help="Bytes of the property Extension.")
    ] = None,
    correlation: Annotated[
        bytes | None,
        typer.Option(
            parser=_correlation,
            metavar="IDENTIFIER",
            help="Identifier of the message that this one answers, or 40 hex digits.",
        ),
    ] = None,
    app_specific: NumberOption = 0,
    priority: PriorityOption = DEFAULT_PRIORITY,
    express: Annotated[
        bool, typer.Option("--express", help="Keep the message in memory only: faster, but lost when the node stops.")
    ] = False,
    transactional: Annotated[
        bool | None,
        typer.Option(
            "--transactional/--no-transactional",
            help="Send in a transaction. Default: only if the queue is a transactional one of this node.",
        ),
    ] = None,
    response_queue: Annotated[
        str, typer.Option(help="Queue to which the receiver should reply; several with commas between them.")
    ] = "",
    admin_queue: Annotated[
        str, typer.Option(help="Queue for acknowledgments; several with commas between them, each gets them.")
    ] = "",
    acknowledge: Annotated[
        int,
        typer.Option(
            callback=_acknowledgments,
            help="Acknowledgments to ask for, as a sum: 1 arrived, 2 received, 4 did not arrive, 8 was not received.",
        ),
    ] = 0,
    journal: Annotated[
        bool, typer.Option("--journal", help="Keep a copy of the message in this node's journal.")
    ] = False,
    dead_letter: Annotated[
        bool, typer.Option("--dead-letter", help="Keep the message in a dead-letter queue if it is not delivered.")
    ] = False,
    dead_letter_queue: Annotated[
        str, typer.Option(metavar="QUEUE", help="With --dead-letter: the queue of this node that keeps it.")
    ] = "",
    time_to_reach_queue: ReachOption = None,
    time_to_be_received: ReceivedOption = None,
    deliver_at: Annotated[
        float | None,
        typer.Option(
            "--at",
            parser=_deliver_at,
            metavar="TIME",
            help="Deliver the message at this time, such as 2026-12-24T18:00:00+01:00; UTC if it names no zone. It "
            "waits in this node's queue delayed$, and its time limits count from then.",
        ),
    ] = None,
    deliver_in: Annotated[
        float | None,
        typer.Option("--in", parser=_deliver_in, metavar="DURATION", help="The same after 90s, 15m, 2h or 3d."),
    ] = None,
    trace: Annotated[
        bool,
        typer.Option(
            "--trace",
            help="Have every queue manager on the way report the message to --report-queue, else to the setting "
            "tracing.report_queue. `mqenterprise trace` reads the reports.",
        ),
    ] = False,
    report_queue: Annotated[
        str,
        typer.Option(metavar="QUEUE", help="With --trace: a public queue of this node, or PUBLIC= and its GUID."),
    ] = "",
    authenticated: Annotated[
        bool,
        typer.Option("--authenticated", help="Sign the message as you, with the key that the node's settings name."),
    ] = False,
    signed_with: Annotated[Hash, typer.Option("--hash", help="Hash algorithm of the signature.")] = Hash.SHA512,
    encrypted: Annotated[
        bool, typer.Option("--encrypted", help="Encrypt the body for the destination computer.")
    ] = False,
    node: Node = NODE,
    as_json: JsonOption = False,
) -> None:
    """Send a message, or one for each line. When this ends, recoverable messages are on the node's disk.

    Without a body, --file or --lines, the body is read from standard input, unless that is a terminal. Standard input
    and files are sent byte for byte, with the newline that echo adds; --lines sends lines without their newlines.

    In a loop such as "while read line", give a body, or </dev/null for an empty one: otherwise the first send reads all
    the lines. '' is an empty body.
    """
    if sum((body is not None, file is not None, lines)) > 1:
        raise typer.BadParameter("the body is an argument, --file or --lines: only one of them")
    if deliver_at is not None and deliver_in is not None:
        raise typer.BadParameter("--at and --in say when to deliver the message: only one of them")
    named = _headers(headers)
    _check_format(body_format, named, plain=not utf16 and body_type is None, extension=extension)
    if body_type is None:
        body_type = int(Vt.VT_LPWSTR) if utf16 else 0
    as_utf16 = utf16 or is_utf16(body_type)

    chosen = {
        "extension": extension,
        "correlation_identifier": correlation,
        "application_dead_letter_queue": queue_name(dead_letter_queue) if dead_letter_queue else None,
        "time_to_reach_queue": time_to_reach_queue,
        "time_to_be_received": time_to_be_received,
        "deliver_at": deliver_at,
        "deliver_in": deliver_in,
    }
    chosen = {property: value for property, value in chosen.items() if value is not None}

    def message(content: bytes) -> Message:
        made = Message(
            content,
            label=label,
            priority=priority,
            recoverable=not express,
            body_type=body_type,
            app_specific=app_specific,
            **named_queues("response", _format_names(response_queue)),
            **named_queues("administration", _format_names(admin_queue)),
            acknowledgements_requested=acknowledge,
            positive_journaling_requested=journal,
            negative_journaling_requested=dead_letter,
            authentication_level=AuthenticationLevel.SIG20 if authenticated else AuthenticationLevel.NONE,
            hash_algorithm=_HASHES[signed_with],
            privacy_level=PrivacyLevel.ADVANCED if encrypted else PrivacyLevel.NONE,
        )
        if trace:
            made.tracing_requested, made.tracing_queue_identifier = True, reports
        if body_format is not None:
            made.body, made.body_type, made.extension = _formatted(content, body_format, named)
        return made.copy(**chosen)

    given = _given(context)
    contents = _lines(as_utf16) if lines else iter([_content(body, file, as_utf16)])

    reports = ZERO_GUID

    async def work(manager: RemoteQueueManager) -> int:
        nonlocal reports
        if trace and report_queue:
            reports = await _public_queue(manager, report_queue)
        elif trace and not (await manager.status()).report_queue:
            raise typer.BadParameter(
                "no queue would get the reports: give --report-queue, or set tracing.report_queue in node.yaml",
                param_hint="--trace",
            )
        unit = await unit_for(manager, queue_name(name), transactional)
        count = 0
        for sentence in _without_effect(given, transactional=unit is not None):
            say(sentence)
        try:
            async with await manager.open_queue(format_name(name), Access.SEND) as queue:
                with progress(f"sending to {name}") as bar:
                    for batch in _batches(contents):
                        made = _of_lines(batch, message, count) if lines else map(message, batch)
                        identifiers = await queue.send_many(made, unit)
                        count += len(identifiers)
                        bar(count, None)
                        _print_identifiers(identifiers, as_json)
        except typer.BadParameter as error:
            if not count:
                raise
            say(f"{error.message}; {count} sent, of the rest nothing")
            raise typer.Exit(1) from None
        return count

    say(f"{node.run(work)} sent")


async def _public_queue(manager: RemoteQueueManager, name: str) -> Guid:
    """The identifier of the public queue that gets reports."""
    known = _PUBLIC.fullmatch(name)
    found = Guid(guid_from_text(known[1])) if known is not None else (await manager.queue(queue_name(name))).identifier
    if found == ZERO_GUID:
        raise typer.BadParameter(f"{name} is no public queue: reports go to one, such as .\\reports")
    return found


def _given(context: typer.Context) -> set[str]:
    """The names of the parameters of the command line."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}


def _without_effect(given: set[str], *, transactional: bool) -> Iterator[str]:
    """Yield a sentence for each option that changes nothing about the messages."""
    for name, needed in _NEEDS.items():
        if name in given and needed not in given:
            yield f"{_OPTIONS.get(name, _option(name))} has no effect without {_option(needed)}"
    for name, why in _OF_TRANSACTIONS.items() if transactional else ():
        if name in given:
            yield f"{_option(name)} has no effect: transactional messages {why}"


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _headers(texts: list[str] | None) -> dict[str, str]:
    found = {}
    for name, separator, value in headers_of(texts):
        if not name or not separator:
            raise typer.BadParameter(f"{name + separator + value!r} is no NAME=VALUE", param_hint="--header")
        found[name] = value
    return found


def headers_of(texts: list[str] | None) -> list[tuple[str, str, str]]:
    """Headers as name, ``=`` and value, the last two of which may be empty. BadParameter for a name that is twice."""
    found = [text.partition("=") for text in texts or ()]
    names = [name for name, _, _ in found]
    for name in names:
        if names.count(name) > 1:
            raise typer.BadParameter(f"the header {name!r} is given more than once", param_hint="--header")
    return found


def _check_format(name: str | None, headers: dict[str, str], *, plain: bool, extension: bytes | None) -> None:
    from qmnode.bodies.choice import HEADER_FORMATS

    if headers and name not in HEADER_FORMATS:
        raise typer.BadParameter(f"--header needs --format {' or '.join(HEADER_FORMATS)}")
    if name is not None and not plain:
        raise typer.BadParameter("--format chooses the body type: leave out --utf16 and --body-type")
    if name in HEADER_FORMATS and extension is not None:
        raise typer.BadParameter(f"--format {name} puts headers into the extension: leave out --extension")


def _formatted(content: bytes, name: str, headers: dict[str, str]) -> Encoded:
    from qmnode.bodies.choice import encode
    from qmnode.bodies.typed_text import value_of_text

    try:
        made = encode(value_of_text(content.decode("utf-8"), name), name, headers=headers)
    except UnicodeDecodeError:
        raise typer.BadParameter("the body is no UTF-8", param_hint="--format") from None
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--format") from None
    _check_size(made.body, f"the body as {name}")
    return made


def _content(body: str | None, file: Path | None, utf16: bool) -> bytes:
    if file is not None and str(file) != "-":
        return _file_content(file)
    if body is not None and body != "-":
        return body.encode("utf-16-le", "surrogatepass") if utf16 else body.encode("utf-8", "surrogateescape")
    if body is None and file is None and (sys.stdin is None or sys.stdin.isatty()):
        return b""
    content = _all_of(_standard_input(), "standard input")
    return _to_utf16(content) if utf16 and file is None else content


def _file_content(file: Path) -> bytes:
    try:
        with file.open("rb") as source:
            return _all_of(source, str(file))
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be read: {error.strerror or error}") from error


def _standard_input() -> BinaryIO:
    if sys.stdin is None:
        raise typer.BadParameter("standard input is closed: give the body as an argument or with --file")
    return sys.stdin.buffer


def _all_of(source: BinaryIO, name: str) -> bytes:
    try:
        content = source.read(_LARGEST + 1)
    except OSError as error:
        raise typer.BadParameter(f"{name} cannot be read: {error.strerror or error}") from error
    _check_size(content, name)
    return content


def _check_size(content: bytes, name: str) -> None:
    if len(content) > _LARGEST:
        raise typer.BadParameter(
            f"{name} has more than {_LARGEST} bytes (4 MiB), and no message can: send it in parts, or a reference to it"
        )


def _lines(utf16: bool) -> Iterator[bytes]:
    source = _standard_input()
    number = 0
    while line := source.readline(_LARGEST + 2):
        number += 1
        content = line.removesuffix(b"\n").removesuffix(b"\r")
        _check_size(content, f"line {number} of standard input")
        yield _to_utf16(content) if utf16 else content


def _of_lines(lines: Iterable[bytes], message: Callable[[bytes], Message], before: int) -> Iterator[Message]:
    """Messages of lines, of which so many came before. BadParameter names the line that cannot be one."""
    for number, line in enumerate(lines, before + 1):
        try:
            yield message(line)
        except typer.BadParameter as error:
            raise typer.BadParameter(f"line {number}: {error.message}", param_hint=error.param_hint) from None


def _to_utf16(content: bytes) -> bytes:
    return content.decode("utf-8", "replace").encode("utf-16-le")


def _batches(contents: Iterator[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for content in contents:
        batch.append(content)
        size += len(content)
        if len(batch) == _BATCH or size >= _LARGEST:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _print_identifiers(identifiers: Iterable[bytes], as_json: bool) -> None:
    for identifier in identifiers:
        text = identifier_text(identifier)
        print_json({"identifier": text}) if as_json else print(text)
