"""``qmnode receive``, ``peek``, ``move`` and ``journal``."""

from __future__ import annotations

import sys
from contextlib import aclosing
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from qmnode.administration.browsing import browse, open_to_read, unit_for
from qmnode.administration.queue_names import MACHINE_JOURNAL, format_name, is_format_name, queue_name
from qmnode.bodies.choice import read_headers, undecoded
from qmnode.bodies.limits import DEFAULT_LIMITS, Limits
from qmnode.bodies.values_as_json import shown
from qmnode.commands.completion import complete_queue
from qmnode.commands.node_options import NODE, JsonOption, Node, QueueName, WideOption, run_async
from qmnode.commands.option_groups import Commands
from qmnode.commands.output import print_body, print_json, say, size_text
from qmnode.commands.remote import NodeOption, PasswordFileOption, RemoteTarget, UserOption
from qmnode.commands.table_writer import print_table
from qmnode.errors import MessageQueuingError
from qmnode.management.documents import lookup_from_text, lookup_text
from qmnode.management.message_documents import BodyForm, MessageDocument, body_text
from qmnode.model.api import Access, QueueApi
from qmnode.model.message import Message
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.text import printable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from qmnode.local.remote import RemoteQueueManager

receive_app = Commands()
peek_app = Commands()
move_app = Commands()
journal_app = Commands()

CountOption = Annotated[int, typer.Option("--count", "-n", min=1, help="Most messages to take or show.")]


class Show(StrEnum):
    """How messages are shown."""

    TABLE = "table"
    TEXT = "text"
    RAW = "raw"
    DECODED = "decoded"


ShowOption = Annotated[
    Show | None,
    typer.Option(
        "--show",
        help="table; text: each body on its line; raw: bytes and nothing else; decoded: format, headers and value. "
        "Default: decoded at a terminal; in a pipe table, or text for receive.",
    ),
]


@receive_app.command(
    epilog="Example: qmnode receive orders --timeout 30 --show raw > order.json   or: qmnode receive --node host orders"
)
def receive(
    name: QueueName,
    count: CountOption = 1,
    take_all: Annotated[bool, typer.Option("--all", help="All messages that are there.")] = False,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait for the first message.")] = 0,
    show: ShowOption = None,
    elsewhere: NodeOption = None,
    user: UserOption = "",
    password_file: PasswordFileOption = None,
    node: Node = NODE,
    as_json: JsonOption = False,
    wide: WideOption = False,
) -> None:
    """Take messages out of a queue. A message leaves the queue after it was printed. Exit code 4: there was none."""
    limits = node.body_limits()

    async def take(queue: QueueApi) -> int:
        shown, wait = 0, timeout
        while take_all or shown < count:
            try:
                message = await queue.receive_begin(wait)
            except MessageQueuingError as error:
                if error.code == ErrorCode.MQ_ERROR_IO_TIMEOUT and shown:
                    break
                raise
            print_messages([message], show or at_output(Show.TEXT), as_json, limits, wide=wide)
            sys.stdout.flush()
            await queue.receive_end(message.lookup_identifier, delete=True)
            shown, wait = shown + 1, 0
        return shown

    async def work(manager: RemoteQueueManager) -> int:
        async with await manager.open_queue(format_name(name), Access.RECEIVE) as queue:
            return await take(queue)

    async def work_elsewhere(target: RemoteTarget) -> int:
        async with target.open(name) as queue:
            return await take(queue)

    if elsewhere is None:
        taken = node.run(work)
    else:
        taken = run_async(work_elsewhere(RemoteTarget.parse(elsewhere, user, password_file)))
    say(f"{taken} received")


@peek_app.command(epilog="Example: qmnode peek orders --count 20   or: qmnode peek orders --after 0x400000000000012")
def peek(
    name: QueueName,
    count: CountOption = 20,
    after: Annotated[
        str | None, typer.Option(metavar="LOOKUP", help="Only messages after this lookup identifier.")
    ] = None,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait for the first message.")] = 0,
    show: ShowOption = None,
    node: Node = NODE,
    as_json: JsonOption = False,
    wide: WideOption = False,
) -> None:
    """Show messages without removing them. Exit code 4: there was none."""
    start = lookup(after) if after else None

    async def work(manager: RemoteQueueManager) -> tuple[list[Message], int]:
        async with await open_to_read(manager, name, Access.PEEK) as queue:
            if start is None:
                await queue.peek(timeout)
            return await _part(manager, name, browse(queue, start), count)

    found, total = node.run(work)
    print_messages(found, show or at_output(Show.TABLE), as_json, node.body_limits(), wide=wide)
    say_part(len(found), total)


async def first(messages: AsyncGenerator[Message, None], count: int) -> list[Message]:
    """The first messages of many."""
    found: list[Message] = []
    async with aclosing(messages):
        async for message in messages:
            found.append(message)
            if len(found) == count:
                break
    return found


async def _part(
    manager: RemoteQueueManager, name: str, messages: AsyncGenerator[Message, None], count: int
) -> tuple[list[Message], int]:
    """The first messages of a queue, and how many it has: at least one more if there are more."""
    found = await first(messages, count + 1)
    if len(found) <= count:
        return found, len(found)
    try:
        total = (await manager.queue(queue_name(name))).message_count
    except MessageQueuingError as error:
        if error.code != ErrorCode.MQ_ERROR_ACCESS_DENIED:  # somebody who may read it need not see the rest
            raise
        total = 0
    return found[:count], max(total, len(found))


def say_part(shown: int, total: int) -> None:
    """Say that a listing shows only a part."""
    if shown < total:
        say(f"{shown:,} of {total:,}; --count shows more")


def lookup(text: str) -> int:
    """A lookup identifier from the command line."""
    try:
        return lookup_from_text(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no lookup identifier, such as 0x400000000000012") from None


def at_output(piped: Show) -> Show:
    """How messages are shown if nobody says it: decoded at a terminal."""
    return Show.DECODED if sys.stdout.isatty() else piped


def print_messages(
    messages: list[Message], show: Show, as_json: bool, limits: Limits = DEFAULT_LIMITS, *, wide: bool = False
) -> None:
    """Messages in one of the forms; JSON has one document a line, with its body."""
    if as_json:
        for message in messages:
            print_json(MessageDocument.of(message, BodyForm.DECODED, limits))
    elif show is Show.TABLE:
        _print_heads(messages, wide=wide)
    elif show is Show.DECODED:
        for message in messages:
            _print_decoded(message, limits)
    else:
        for message in messages:
            if message.unreadable:
                say(f"{lookup_text(message.lookup_identifier)}: {unreadable_text(message)}")
            text = body_text(message)
            if show is Show.RAW and not sys.stdout.isatty():
                sys.stdout.buffer.write(message.body)
            else:
                print_body(text if text is not None else message.body.hex())


def _print_decoded(message: Message, limits: Limits) -> None:
    """One message: a line about it, its headers, and its body as a value; or its bytes, and why they are none."""
    if message.unreadable:
        say(f"{lookup_text(message.lookup_identifier)}: {unreadable_text(message)}")
    decoded, headers = message.decoded(limits=limits), read_headers(message.extension, limits=limits)
    kind = MessageDocument.of(message).message_class.removeprefix("MQMSG_CLASS_")
    form = decoded.format or "unknown format"
    facts = (message.label, kind if kind != "NORMAL" else None, form, headers.format, size_text(len(message.body)))
    print(printable(f"{lookup_text(message.lookup_identifier)}  {'  '.join(filter(None, facts))}"))
    for name, value in headers.values.items():
        print_body(f"  {name}: {'null' if value is None else value}")
    if reason := undecoded(decoded, headers):
        say(f"{lookup_text(message.lookup_identifier)}: not decoded: {reason}")
    if not decoded.reason:
        print_body(shown(decoded.value, indent=sys.stdout.isatty()))
    elif message.body:
        text = body_text(message)
        print_body(text if text is not None else message.body.hex())


def unreadable_text(message: Message) -> str:
    """The notes on a message that could not be read whole."""
    return f"unreadable ({message.unreadable}); --json has all its bytes, and it can be received or moved as others"


def _print_heads(messages: list[Message], *, wide: bool) -> None:
    documents = [MessageDocument.of(message) for message in messages]
    for message in messages:
        if message.unreadable:
            say(f"{lookup_text(message.lookup_identifier)}: {unreadable_text(message)}")
    print_table(
        ("lookup", "label", "body", "priority", "arrived", "failures", "class"),
        [
            (
                document.lookup_identifier,
                f"(unreadable) {document.label}" if document.unreadable else document.label,
                size_text(document.body_size),
                document.priority,
                f"{document.arrival_time:%Y-%m-%d %H:%M:%S}" if document.arrival_time else None,
                document.aborted_receives,
                document.message_class.removeprefix("MQMSG_CLASS_"),
            )
            for document in documents
        ],
        right=("body", "priority", "failures"),
        whole=("lookup", "arrived", "class"),
        drop=("failures", "priority", "class", "body", "arrived"),
        wide=wide,
    )


@move_app.command(epilog="Example: qmnode move orders 0x400000000000012 --to 'orders;later'")
def move(
    name: QueueName,
    lookups: Annotated[list[str], typer.Argument(metavar="LOOKUP", help="Lookup identifiers of messages.")],
    target: Annotated[str, typer.Option("--to", metavar="QUEUE", help="The queue, or another subqueue of it.")],
    node: Node = NODE,
) -> None:
    """Move messages between a queue and its subqueues, all or none if the queue is transactional."""
    chosen = [lookup(text) for text in lookups]

    async def work(manager: RemoteQueueManager) -> None:
        unit = await unit_for(manager, queue_name(name))
        async with (
            await manager.open_queue(format_name(name), Access.RECEIVE) as queue,
            await manager.open_queue(format_name(target), Access.MOVE) as into,
        ):
            if unit is None:
                for one in chosen:
                    await queue.move(one, into)
                return
            async with manager.transaction() as transaction:
                for one in chosen:
                    await queue.move(one, into, transaction)

    node.run(work)
    say(f"moved to {target}: {', '.join(map(lookup_text, chosen))}")


@journal_app.command(epilog="Example: qmnode journal orders --count 100")
def journal(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="QUEUE",
            help="Queue whose journal is shown. Default: the journal of messages that this node sent.",
            autocompletion=complete_queue,
        ),
    ] = None,
    count: CountOption = 20,
    show: ShowOption = None,
    node: Node = NODE,
    as_json: JsonOption = False,
    wide: WideOption = False,
) -> None:
    """Show a journal: copies of the messages that were received from a queue, or sent by this node.

    To empty it, use 'qmnode queue purge' with 'orders;journal' for the journal of orders.
    """
    journal_name = _journal_of(name) if name else MACHINE_JOURNAL

    async def work(manager: RemoteQueueManager) -> tuple[list[Message], int]:
        async with await manager.open_queue(format_name(journal_name), Access.PEEK) as queue:
            return await _part(manager, journal_name, browse(queue), count)

    found, total = node.run(work)
    print_messages(found, show or at_output(Show.TABLE), as_json, node.body_limits(), wide=wide)
    say_part(len(found), total)


def _journal_of(name: str) -> str:
    full = name if is_format_name(name) else queue_name(name)
    return full if full.upper().endswith(";JOURNAL") else f"{full};JOURNAL"
