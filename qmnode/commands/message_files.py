"""``qmnode message export``, ``import``, ``edit`` and ``failures``."""

from __future__ import annotations

import base64
import binascii
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO

import typer

from qmnode.administration.names import queue_name
from qmnode.bodies.json_text import members_once
from qmnode.bodies.limits import BodyError
from qmnode.commands.message import Queues, WhereOption, app, criteria
from qmnode.commands.message_operations import DryRunOption, TransactionalOption
from qmnode.commands.messages import lookup
from qmnode.commands.output import counted, print_json, progress, say, write_json
from qmnode.commands.send import headers_of
from qmnode.commands.tables import print_table
from qmnode.commands.target import NODE, JsonOption, Node, QueueName, WideOption
from qmnode.management.documents import time_or_none
from qmnode.management.message_documents import exported
from qmnode.structures.text import nearest

if TYPE_CHECKING:
    from qmnode.local.remote import RemoteQueueManager

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


@app.command(epilog="Example: qmnode message export orders --where older=1d --output orders.ndjson")
def export(
    queues: Queues,
    where: WhereOption = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="File; - is standard output.")] = Path("-"),
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
    source: Annotated[Path, typer.Argument(metavar="FILE", help="An exported file; - is standard input.")],
    target: Annotated[
        str,
        typer.Option(
            "--to", metavar="QUEUE", help="Queue to send to. Default: for each message the queue that it was in."
        ),
    ] = "",
    transactional: TransactionalOption = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also import messages that were imported into the same queue before.")
    ] = False,
    dry_run: DryRunOption = False,
    node: Node = NODE,
    as_json: JsonOption = False,
) -> None:
    """Send exported messages, each once: what was imported into the same queue before is refused. Exit code 1: some
    lines were refused or known."""
    outcomes: Counter[str] = Counter()

    async def work(manager: RemoteQueueManager, lines: TextIO) -> None:
        for batch in batches(lines, target, tell):
            results = await manager.operations.import_messages(
                [item for _, item in batch], transactional=transactional, again=again, dry_run=dry_run
            )
            for (number, _), result in zip(batch, results, strict=True):
                tell(number, result)

    def tell(number: int, result: dict[str, Any]) -> None:
        outcomes[result["result"]] += 1
        if as_json:
            print_json({"line": number} | result)
        elif result["result"] in ("refused", "known"):
            say(f"line {number}: {result['detail']}")

    with opened_source(source) as lines:
        node.run(lambda manager: work(manager, lines))
    say(", ".join(f"{count:,} {result}" for result, count in sorted(outcomes.items())) or "there is nothing to import")
    if outcomes["refused"] or outcomes["known"]:
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
    queues: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="QUEUE...",
            help="Queues to look in. Default: dead letters, poison subqueues, and queues named error.",
        ),
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option("--by", help="Property to group by: reason, queue, sender or exception; may be given again."),
    ] = None,
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
    print_table(
        ("count", *keys, "first", "last", "last hour", "hour before", "in"),
        [
            (
                group["count"],
                *(group[key] for key in keys),
                f"{time_or_none(group['first']):%Y-%m-%d %H:%M}",
                f"{time_or_none(group['last']):%Y-%m-%d %H:%M}",
                group["last_hour"],
                group["hour_before"],
                ", ".join(group["queues"]),
            )
            for group in result["groups"]
        ],
        right=("count", "last hour", "hour before"),
        whole=("first", "last"),
        drop=("hour before", "last hour", "first", "last", "in"),
        wide=wide,
    )
    for group in result["groups"][:10]:
        say(f"{group['count']:,}: " + " ".join(f"--where '{text}'" for text in group["where"]))
    if result["left_out"]:
        say(f"{counted(result['left_out'], 'message')} of further groups left out: search fewer queues")
