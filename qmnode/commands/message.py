"""``qmnode message``: find, show, move, copy, delete, return, replay, export, import and edit messages."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO

import typer

from qmnode.administration.browsing import open_to_read
from qmnode.administration.queue_names import format_name, queue_name
from qmnode.administration.where import WHERE_HELP, parse_where
from qmnode.bodies.json_text import members_once
from qmnode.bodies.limits import BodyError
from qmnode.commands.completion import complete_queue
from qmnode.commands.job import print_entry, summary
from qmnode.commands.node_options import NODE, JsonOption, Node, QueueName, WideOption, YesOption, confirm
from qmnode.commands.option_groups import Commands
from qmnode.commands.output import counted, print_facts, print_json, progress, say, size_text, write_json
from qmnode.commands.receive import Show, ShowOption, at_output, lookup, print_messages
from qmnode.commands.send import headers_of
from qmnode.commands.table_writer import print_table
from qmnode.errors import MessageQueuingError
from qmnode.management.documents import lookup_text, time_or_none
from qmnode.management.message_documents import BodyForm, MessageDocument, exported
from qmnode.model.api import Access
from qmnode.structures.text import nearest

if TYPE_CHECKING:
    from datetime import datetime

    from qmnode.bodies.limits import Limits
    from qmnode.local.operations import FoundMessage
    from qmnode.local.remote import RemoteQueueManager
    from qmnode.model.message import Message

WhereOption = Annotated[list[str] | None, typer.Option("--where", "-w", metavar="NAME=VALUE", help=WHERE_HELP)]


def criteria(where: Sequence[str] | None) -> dict[str, Any]:
    """The criteria that ``--where`` means, as the node takes them."""
    try:
        return parse_where(where or (), time.time())
    except MessageQueuingError as error:
        raise typer.BadParameter(error.sentence, param_hint="--where") from None


app = Commands(
    no_args_is_help=True,
    help="Find messages, and move, copy, delete, return or replay them.",
)

_DELAYED: Final = "delayed$"
"""The queue whose messages are listed with their delivery times and destinations."""
Queues = Annotated[
    list[str],
    typer.Argument(
        metavar="QUEUE...",
        help="Names, or patterns with * and ?; 'orders' is .\\private$\\orders, '*;journal' all journals.",
        autocompletion=complete_queue,
    ),
]


@app.command(epilog="Example: qmnode message find 'orders*' --where 'value.Order.Customer=4711' --where older=1h")
def find(
    queues: Queues,
    where: WhereOption = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Most messages to take or show.")] = 100,
    cursor: Annotated[str, typer.Option(help="Continue where an earlier search stopped.")] = "",
    show: ShowOption = None,
    node: Node = NODE,
    as_json: JsonOption = False,
    wide: WideOption = False,
) -> None:
    """Find messages without removing them. They are shown as they are found; Ctrl-C ends the search.

    Exit code 1: nothing was found.
    """
    wanted, limits = criteria(where), node.body_limits()
    delayed = any(queue.lower().endswith(_DELAYED) for queue in queues)

    async def work(manager: RemoteQueueManager) -> int:
        found = scanned = total = 0
        place: str = cursor
        while True:
            page = await manager.operations.find_page(queues, wanted, place, count - found)
            scanned, total, place = scanned + page.scanned, max(total, page.total), page.next
            found += len(page.found)
            continued = found > len(page.found)
            _print(page.found, show, as_json, limits, wide=wide, delayed=delayed, continued=continued)
            if found >= count or not place:
                break
        for name in page.refused:
            say(f"{name} was left out: it may not be read")
        more = f"; go on with --cursor {place}" if place else ""
        say(f"{counted(found, 'message')} found among {scanned:,} of {total:,}{more}")
        return found

    if not node.run(work):
        raise typer.Exit(1)


def _print(
    found: tuple[FoundMessage, ...],
    show: Show | None,
    as_json: bool,
    limits: Limits,
    *,
    wide: bool,
    delayed: bool,
    continued: bool,
) -> None:
    if as_json:
        for one in found:
            print_json({"queue": one.queue} | _document(one.message, limits))
    elif show is None or show is Show.TABLE:
        if found:
            _print_table(found, wide=wide, delayed=delayed, continued=continued)
    else:
        for one in found:
            if show is Show.DECODED:
                print(f"{one.queue}")
            print_messages([one.message], show, as_json=False, limits=limits)


def _document(message: Message, limits: Limits) -> dict[str, Any]:
    return MessageDocument.of(message, BodyForm.DECODED, limits).model_dump(mode="json")


def _print_table(found: tuple[FoundMessage, ...], *, wide: bool, delayed: bool, continued: bool) -> None:
    documents = [(one.queue, MessageDocument.of(one.message)) for one in found]
    rows: list[tuple[object, ...]] = [
        (
            queue,
            document.lookup_identifier,
            f"(unreadable) {document.label}" if document.unreadable else document.label,
            size_text(document.body_size),
            _second(document.arrival_time),
            document.message_class.removeprefix("MQMSG_CLASS_"),
        )
        for queue, document in documents
    ]
    columns: tuple[str, ...] = ("queue", "lookup", "label", "body", "arrived", "class")
    if delayed:
        columns += ("delivery", "destination")
        rows = [
            (*row, _second(document.delivery_time), document.destination)
            for row, (_, document) in zip(rows, documents, strict=True)
        ]
    print_table(
        columns,
        rows,
        right=("body",),
        whole=("queue", "lookup", "arrived", "class", "delivery", "destination"),
        drop=("class", "body", "arrived", *(("queue",) if delayed else ())),
        wide=wide,
        continued=continued,
    )


def _second(time: datetime | None) -> str | None:
    return None if time is None else f"{time:%Y-%m-%d %H:%M:%S}"


@app.command("show", epilog="Example: qmnode message show orders 0x400000000000012")
def show_message(
    name: QueueName,
    place: Annotated[str, typer.Argument(metavar="LOOKUP", help="Lookup identifier.")],
    node: Node = NODE,
    as_json: JsonOption = False,
) -> None:
    """Show one message with all its properties, its headers and its body; it stays."""
    wanted, limits = lookup(place), node.body_limits()

    async def work(manager: RemoteQueueManager) -> Message:
        async with await open_to_read(manager, name, Access.PEEK) as queue:
            return await queue.peek_by_lookup_id(wanted)

    message = node.run(work)
    document = {"queue": format_name(name)} | _document(message, limits)
    if as_json:
        print_json(document)
        return
    print_facts({key: value for key, value in document.items() if key not in BODIES})
    print()
    print_messages([message], at_output(Show.DECODED), as_json=False, limits=limits)
    if message.unreadable:
        say(f"{lookup_text(message.lookup_identifier)}: --json has all its bytes")


BODIES: Final = (
    *("base64", "text", "decoded", "headers", "format", "headers_format"),
    *("extension", "packet", "sender_certificate"),
)
"""The properties of a message that are no facts of one line."""
_POLL = 0.1

Name = Annotated[
    str,
    typer.Argument(
        metavar="QUEUE",
        help="Name, or a pattern with * and ? for several queues.",
        autocompletion=complete_queue,
    ),
]
Lookups = Annotated[list[str] | None, typer.Argument(metavar="LOOKUP", help="Lookup identifiers of messages.")]
AllOption = Annotated[bool, typer.Option("--all", help="All messages that are there now.")]
TargetOption = Annotated[str, typer.Option("--to", metavar="QUEUE", help="Path name or format name of a queue.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be done with each message, and change nothing.")
]
WaitOption = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the end of the job.")]
TransactionalOption = Annotated[
    bool | None,
    typer.Option(
        "--transactional/--no-transactional",
        help="How to send to another machine. Default: as the message was sent.",
    ),
]


@dataclass(frozen=True, slots=True)
class Choice:
    """The options that choose messages, and how a job over them runs."""

    lookups: Lookups = None
    where: WhereOption = None
    take_all: AllOption = False
    dry_run: DryRunOption = False
    wait: WaitOption = True

    def run(
        self,
        kind: str,
        name: str,
        node: Node,
        as_json: bool,
        target: str = "",
        transactional: bool | None = None,
    ) -> None:
        """Begin a job of this kind, and show it to its end. Exit code 1 if a message failed."""
        if bool(self.lookups) + bool(self.where) + self.take_all != 1:
            raise typer.BadParameter("choose messages by LOOKUP or by --where, or say --all")
        places, wanted = [lookup(text) for text in self.lookups or ()], criteria(self.where)

        async def work(manager: RemoteQueueManager) -> dict[str, Any]:
            job = await manager.operations.start_job(
                kind, [name], wanted, lookups=places, target=target, transactional=transactional, dry_run=self.dry_run
            )
            return await _watch(manager, job) if self.wait else job

        job = node.run(work)
        if as_json:
            print_json(job)
        say(summary(job))
        if self.wait and (job["failed"] or job["state"] != "done"):
            raise typer.Exit(1)


NO_CHOICE: Final = Choice()


@app.command(epilog="Example: qmnode message move orders --to orders-later --where older=1d")
def move(
    name: Name,
    target: TargetOption,
    choice: Choice = NO_CHOICE,
    transactional: TransactionalOption = None,
    node: Node = NODE,
    as_json: JsonOption = False,
) -> None:
    """Move messages into another queue, here or on another machine. docs/reference/promises.md has the promises."""
    choice.run("move", name, node, as_json, target, transactional)


@app.command(epilog="Example: qmnode message copy orders --to orders-test --all")
def copy(
    name: Name,
    target: TargetOption,
    choice: Choice = NO_CHOICE,
    transactional: TransactionalOption = None,
    node: Node = NODE,
    as_json: JsonOption = False,
) -> None:
    """Send copies of messages to another queue; the messages stay."""
    choice.run("copy", name, node, as_json, target, transactional)


@app.command(epilog="Example: qmnode message delete orders --where 'label=test*'")
def delete(
    name: Name, choice: Choice = NO_CHOICE, yes: YesOption = False, node: Node = NODE, as_json: JsonOption = False
) -> None:
    """Delete messages, as a purge does: their senders learn of it if they asked for that. This cannot be undone."""
    if not choice.dry_run:
        confirm(f"Delete the chosen messages of {name}?", yes)
    choice.run("delete", name, node, as_json)


@app.command("return", epilog="Example: qmnode message return error --where 'header.NServiceBus.FailedQ=sales*'")
def return_to_source(
    name: Name,
    choice: Choice = NO_CHOICE,
    target: TargetOption = "",
    transactional: TransactionalOption = None,
    node: Node = NODE,
    as_json: JsonOption = False,
) -> None:
    """Return failed messages to where they failed: by the headers of NServiceBus and Rebus, dead letters to where they
    were sent, messages of a subqueue to its queue; or all to the queue of --to."""
    choice.run("return", name, node, as_json, target, transactional)


@app.command(epilog="Example: qmnode message replay 'orders;journal' --where after=2026-11-22T14:00")
def replay(
    name: Name,
    choice: Choice = NO_CHOICE,
    target: TargetOption = "",
    transactional: TransactionalOption = None,
    node: Node = NODE,
    as_json: JsonOption = False,
) -> None:
    """Send the messages of a journal once more, to where they were or to the queue of --to; the journal stays."""
    choice.run("replay", name, node, as_json, target, transactional)


async def _watch(manager: RemoteQueueManager, job: dict[str, Any]) -> dict[str, Any]:
    """Show how far a job is, until it ends or pauses; Ctrl-C stops only the watching."""
    number = job["job"]
    try:
        with progress(job["kind"]) as bar:
            while job["state"] == "running":
                bar(job["scanned"], max(job["total"], job["scanned"]))
                await asyncio.sleep(_POLL)
                job = await manager.operations.job(number)
    except asyncio.CancelledError:
        say(f"job {number} goes on: qmnode job show {number}, qmnode job cancel {number}")
        raise
    if job["failed"] or job["dry_run"]:
        async for entry in manager.operations.job_log(number):
            if job["dry_run"] or entry["result"] in ("failed", "gone"):
                print_entry(entry, error=True)
    return job


_LONGEST_LINE: Final = 32 * 1024 * 1024
_BATCH: Final = 200
_BATCH_BYTES: Final = 4 * 1024 * 1024
BodyOption = Annotated[Path | None, typer.Option("--body", help="File with the new body; - is standard input.")]
ValueOption = Annotated[
    str | None, typer.Option("--value", help="New value of the body, as JSON; written in the format of the old one.")
]
FormatOption = Annotated[
    str, typer.Option("--format", help="Format to write the new value in, if not the old one: xml, json, VT_BSTR ...")
]
HeaderOption = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="NAME=VALUE", help="Set a header; NAME alone removes it. May be given again."),
]
_DEAD: Final = (";DEADLETTER", ";DEADXACT")
_DECODED: Final = ("decoded", "format", "headers", "headers_format")
_PLACE: Final = {
    *("queue", "packet", "lookup_identifier", "arrival_time", "aborted_receives", "next_try", "moves"),
    "delivery_time",
    *("unreadable", "undecoded"),
    *("authenticated", "sender", "claimed_sender"),
}
"""Of an exported message: what its packet does not say."""
FAILURE_QUEUES: Final = ("system$;dead*", "*;poison", "error*", "*.error")
"""Where failures are looked for if no queue is named."""
OutputOption = Annotated[Path, typer.Option("--output", "-o", help="File; - is standard output.")]
ImportedFile = Annotated[Path, typer.Argument(metavar="FILE", help="An exported file; - is standard input.")]
ImportTarget = Annotated[
    str,
    typer.Option("--to", metavar="QUEUE", help="Queue to send to. Default: for each message the queue that it was in."),
]
AgainOption = Annotated[
    bool, typer.Option("--again", help="Also import messages that were imported into the same queue before.")
]
FailureQueues = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="QUEUE...", help="Queues to look in. Default: dead letters, poison subqueues, and queues named error."
    ),
]
GroupedBy = Annotated[
    list[str] | None,
    typer.Option("--by", help="Property to group by: reason, queue, sender or exception; may be given again."),
]


@app.command(epilog="Example: qmnode message export orders --where older=1d --output orders.ndjson")
def export(
    queues: Queues,
    where: WhereOption = None,
    output: OutputOption = Path("-"),
    node: Node = NODE,
) -> None:
    """Write messages as JSON lines: all properties, the decoded body, and the whole packet. They stay."""
    wanted, limits = criteria(where), node.body_limits()

    async def work(manager: RemoteQueueManager, target: TextIO) -> int:
        count, scanned, cursor = 0, 0, ""
        with progress("writing") as bar:
            while True:
                page = await manager.operations.find_page(queues, wanted, cursor, 200)
                for one in page.found:
                    write_json(exported(one.queue, one.message, limits), target)
                count, scanned, cursor = count + len(page.found), scanned + page.scanned, page.next
                bar(scanned, max(page.total, scanned))
                if not cursor:
                    break
        for name in page.refused:
            say(f"{name} was left out: it may not be read")
        return count

    with written(output) as target:
        count = node.run(lambda manager: work(manager, target))
    say(f"{counted(count, 'message')} written")


@contextmanager
def written(path: Path) -> Iterator[TextIO]:
    """The file of an export, open to write; exit code 1 if it cannot be."""
    if str(path) == "-":
        yield sys.stdout
        return
    try:
        with path.open("w", encoding="utf-8") as target:
            yield target
    except OSError as error:
        say(f"{path} cannot be written: {error.strerror or error}")
        raise typer.Exit(1) from error


@app.command("import", epilog="Example: qmnode message import orders.ndjson --to orders-test --dry-run")
def import_messages(
    source: ImportedFile,
    target: ImportTarget = "",
    transactional: TransactionalOption = None,
    again: AgainOption = False,
    dry_run: DryRunOption = False,
    node: Node = NODE,
    as_json: JsonOption = False,
) -> None:
    """Send exported messages, each once: what was imported into the same queue before is refused. Exit code 1: some
    lines were refused or known."""
    outcomes = ImportOutcomes(as_json)

    async def work(manager: RemoteQueueManager, lines: TextIO) -> None:
        for batch in batches(lines, target, outcomes.add):
            results = await manager.operations.import_messages(
                [item for _, item in batch], transactional=transactional, again=again, dry_run=dry_run
            )
            for (number, _), result in zip(batch, results, strict=True):
                outcomes.add(number, result)

    with opened_source(source) as lines:
        node.run(lambda manager: work(manager, lines))
    say(str(outcomes) or "there is nothing to import")
    outcomes.check()


class ImportOutcomes:
    """Outcomes of the lines of an exported file: shown as they come, and counted."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._counts: Counter[str] = Counter()

    def add(self, number: int, result: dict[str, Any]) -> None:
        """Count the outcome of a line, and show it if it is not imported or if all are asked for."""
        self._counts[result["result"]] += 1
        if self._as_json:
            print_json({"line": number} | result)
        elif result["result"] in ("refused", "known"):
            say(f"line {number}: {result['detail']}")

    def __str__(self) -> str:
        return ", ".join(f"{count:,} {result}" for result, count in sorted(self._counts.items()))

    def check(self) -> None:
        """Exit with code 1 if a line was refused or known."""
        if self._counts["refused"] or self._counts["known"]:
            raise typer.Exit(1)


@contextmanager
def opened_source(path: Path) -> Iterator[TextIO]:
    """The exported file, open; exit code 1 if it cannot be read."""
    try:
        with sys.stdin if str(path) == "-" else path.open(encoding="utf-8", errors="replace") as lines:
            yield lines
    except OSError as error:
        say(f"{path} cannot be read: {error.strerror or error}")
        raise typer.Exit(1) from error


def batches(
    lines: TextIO, target: str, refuse: Callable[[int, dict[str, Any]], None]
) -> Iterator[list[tuple[int, dict[str, Any]]]]:
    """Exported messages with their line numbers, as many as one request takes; ``refuse`` gets the other lines."""
    batch: list[tuple[int, dict[str, Any]]] = []
    size = 0
    for number, line in _lines(lines):
        item = _item(line, target)
        if isinstance(item, str):
            refuse(number, {"result": "refused", "detail": item})
            continue
        batch.append((number, item))
        size += len(item["packet"])
        if len(batch) >= _BATCH or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _lines(lines: TextIO) -> Iterator[tuple[int, str]]:
    number = 0
    while line := lines.readline(_LONGEST_LINE):
        number += 1
        if line.strip():
            yield number, line


def _item(line: str, target: str) -> dict[str, Any] | str:
    """A line as the node takes it, or the reason why it is none."""
    try:
        document = json.loads(line, object_pairs_hook=members_once)
        packet = base64.b64decode(document["packet"], validate=True)
        queue = str(document.get("queue", ""))
    except BodyError as error:
        return str(error)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, binascii.Error):
        return "it is no exported message: a JSON object with its packet"
    if edits := _edits(document, packet):
        return (
            f"its packet, of which the message is made, has another {', '.join(edits)}: undo the edit, import "
            "the message, and change it with 'qmnode message edit'"
        )
    if not target and "=" not in queue.partition("\\")[0]:
        queue = f".\\{queue.partition(chr(92))[2]}"  # the queue of the same name on this node
    if not target and not queue.strip(".\\"):
        return "it names no queue: say --to"
    name = queue_name(target or queue)
    return {"packet": packet, "target": name, "dead_letter": str(document.get("queue", "")).upper().endswith(_DEAD)}


def _edits(document: dict[str, Any], packet: bytes) -> list[str]:
    """The names of the properties of an exported message that somebody changed beside its packet."""
    from qmnode.model.stored_message import message_from_packet

    if document.keys() <= _PLACE:
        return []
    try:
        own = exported("", message_from_packet(packet))
    except ValueError:
        return []  # the node refuses the packet
    misspelt = [name for name in document if name not in own and nearest(name, own, 0.8)]
    there = [name for name in own if name in document and name not in _PLACE]
    changed = [name for name in there if json.dumps(document[name]) != json.dumps(own[name])]
    # Nodes have limits of their own for what they decode.
    return [*misspelt, *(name for name in changed if name not in _DECODED or None not in (document[name], own[name]))]


@dataclass(frozen=True, slots=True)
class Edit:
    """The options that change a message."""

    label: Annotated[str | None, typer.Option(help="New label.")] = None
    body: BodyOption = None
    value: ValueOption = None
    form: FormatOption = ""
    header: HeaderOption = None
    priority: Annotated[int | None, typer.Option(min=0, max=7, help="New priority.")] = None
    target: Annotated[
        str, typer.Option("--to", metavar="QUEUE", help="Queue to send to. Default: the queue of the message.")
    ] = ""
    keep: Annotated[bool, typer.Option("--keep", help="Keep the old message too.")] = False
    dry_run: DryRunOption = False

    def changes(self) -> dict[str, Any]:
        """The changes, as the engine takes them. Exit with usage for a file or a value that cannot be read."""
        changes: dict[str, Any] = {}
        if self.label is not None:
            changes["label"] = self.label
        if self.priority is not None:
            changes["priority"] = self.priority
        if self.body is not None:
            try:
                changes["body"] = sys.stdin.buffer.read() if str(self.body) == "-" else self.body.read_bytes()
            except OSError as error:
                raise typer.BadParameter(f"{self.body}: {error.strerror}", param_hint="--body") from None
        if self.value is not None:
            try:
                changes["value"] = json.loads(self.value, object_pairs_hook=members_once)
            except BodyError as error:
                raise typer.BadParameter(str(error), param_hint="--value") from None
            except (ValueError, RecursionError) as error:
                raise typer.BadParameter(f"not JSON: {error}", param_hint="--value") from None
            if self.form:
                changes["format"] = self.form
        if self.header:
            pairs = headers_of(self.header)
            changes["headers"] = {key: content if separator else None for key, separator, content in pairs}
        return changes


NO_EDIT: Final = Edit()


@app.command(
    "edit", epilog="Example: qmnode message edit error 0x400000000000012 --value '{\"Id\": 7}' --header Retries=0"
)
def edit_message(
    name: QueueName,
    place: Annotated[str, typer.Argument(metavar="LOOKUP", help="Lookup identifier.")],
    edit: Edit = NO_EDIT,
    node: Node = NODE,
    as_json: JsonOption = False,
) -> None:
    """Change a message and send it again: the changed one takes its place in one write. Says what cannot be kept."""
    changes, to = edit.changes(), queue_name(edit.target) if edit.target else ""
    wanted = lookup(place)
    result = node.run(
        lambda manager: manager.operations.edit(
            queue_name(name), wanted, changes, target=to, keep=edit.keep, dry_run=edit.dry_run
        ),
    )
    if as_json:
        print_json(result)
    for sentence in result["lost"]:
        say(f"not kept: {sentence}")
    say("nothing is changed: this was a dry run" if edit.dry_run else f"sent to {result['target']}")


@app.command(epilog="Example: qmnode message failures error 'system$;dead*' --by exception")
def failures(
    queues: FailureQueues = None,
    by: GroupedBy = None,
    where: WhereOption = None,
    node: Node = NODE,
    as_json: JsonOption = False,
    wide: WideOption = False,
) -> None:
    """Show failed messages in groups, the largest first, with the --where that returns or deletes each group."""
    names, wanted = queues or list(FAILURE_QUEUES), criteria(where)
    keys = by or ["reason", "queue"]
    result = node.run(lambda manager: manager.operations.failures(names, keys, wanted))
    for name in result["refused"]:
        say(f"{name} was left out: it may not be read")
    if as_json:
        for group in result["groups"]:
            print_json(group)
        return
    times = [{name: time_or_none(group[name]) for name in ("first", "last")} for group in result["groups"]]
    print_failures(keys, [group | one for group, one in zip(result["groups"], times, strict=True)], "in", wide=wide)
    if result["left_out"]:
        say(f"{counted(result['left_out'], 'message')} of further groups left out: search fewer queues")


def print_failures(keys: Sequence[str], groups: Sequence[Mapping[str, Any]], where: str, *, wide: bool) -> None:
    """Print groups of failures, with the options that choose the messages of the first ones. ``where`` is the name of
    the last column: ``in`` for their queues, ``at`` for their machines.
    """
    places = {"in": "queues", "at": "machines"}[where]
    print_table(
        ("count", *keys, "first", "last", "last hour", "hour before", where),
        [
            (
                group["count"],
                *(group[key] for key in keys),
                *(group[name] and f"{group[name]:%Y-%m-%d %H:%M}" for name in ("first", "last")),
                group["last_hour"],
                group["hour_before"],
                ", ".join(group[places]),
            )
            for group in groups
        ],
        right=("count", "last hour", "hour before"),
        whole=("first", "last"),
        drop=("hour before", "last hour", "first", "last", where),
        wide=wide,
    )
    for group in groups[:10]:
        say(f"{group['count']:,}: " + " ".join(f"--where '{text}'" for text in group["where"]))
