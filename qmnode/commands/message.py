"""``qmnode message``: find messages in one queue or many, and look at one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from qmnode.administration.messages import open_to_read
from qmnode.administration.names import format_name
from qmnode.administration.where import WHERE_HELP, parse_where
from qmnode.commands.completion import complete_queue
from qmnode.commands.groups import Commands
from qmnode.commands.messages import (
    Show,
    ShowOption,
    at_output,
    lookup,
    print_messages,
)
from qmnode.commands.output import counted, print_facts, print_json, say, size_text
from qmnode.commands.tables import print_table
from qmnode.commands.target import NODE, JsonOption, Node, QueueName, WideOption
from qmnode.errors import MessageQueuingError
from qmnode.management.documents import lookup_text
from qmnode.management.message_documents import BodyForm, MessageDocument
from qmnode.model.api import Access

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
    bodies = (
        "base64",
        "text",
        "decoded",
        "headers",
        "format",
        "headers_format",
        "extension",
        "packet",
        "sender_certificate",
    )
    print_facts({key: value for key, value in document.items() if key not in bodies})
    print()
    print_messages([message], at_output(Show.DECODED), as_json=False, limits=limits)
    if message.unreadable:
        say(f"{lookup_text(message.lookup_identifier)}: --json has all its bytes")
