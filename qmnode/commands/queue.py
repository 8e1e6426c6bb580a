"""``qmnode queue``: create, find, change and delete queues."""

from __future__ import annotations

from fnmatch import fnmatch
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from qmnode.administration.access_control import owned_by, owner_of
from qmnode.administration.browsing import open_to_read
from qmnode.administration.queue_names import queue_name
from qmnode.commands import queue_acl
from qmnode.commands.node_options import (
    NOBODY,
    NODE,
    JsonOption,
    Login,
    Node,
    QueueName,
    WideOption,
    YesOption,
    confirm,
)
from qmnode.commands.option_groups import Commands
from qmnode.commands.output import age_text, print_facts, print_json, say, size_text
from qmnode.commands.row_options import options
from qmnode.commands.table_writer import print_table
from qmnode.errors import MessageQueuingError
from qmnode.management.documents import NewQueue, QueueDocument, QueueList, QueueSettings, WaitingDocument
from qmnode.management.queue_documents import IncomingSequenceDocument, RefusedMessagesDocument, RefusedMessagesList
from qmnode.model.api import Access, QueueInformation, QueueType
from qmnode.objects.rows import QUOTA, Changes, Door
from qmnode.objects.table import QUEUE
from qmnode.settings.sizes import quota_text
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.names import PathName, QueueKind, QueueNameError

if TYPE_CHECKING:
    from qmnode.local.remote import RemoteQueueManager
    from qmnode.model.administration import IncomingSequenceInformation
    from qmnode.model.waiting_reasons import Waiting

app = Commands(
    no_args_is_help=True,
    help="Create, find, change and delete queues.",
)
app.add_typer(queue_acl.app, name="acl")

_ROWS: Final = [row for row in QUEUE.at(Door.NODE) if row.is_written]
if TYPE_CHECKING:
    from qmnode.commands.row_options import RowOptions as Fixed
    from qmnode.commands.row_options import RowOptions as Properties
else:
    Fixed = options(row for row in _ROWS if row.changes is Changes.ONCE)
    Properties = options(row for row in _ROWS if row.changes is Changes.ALWAYS)
UNCHANGED: Final = Properties()
ORDINARY: Final = Fixed()


def _checked(kind: type[QueueSettings], values: dict[str, Any]) -> Any:
    from pydantic import ValidationError

    try:
        return kind(**values)
    except ValidationError as error:
        mistake = error.errors()[0]
        row = QUEUE.get(str(mistake["loc"][0]))
        hint = row.option if row else str(mistake["loc"][0])
        raise typer.BadParameter(mistake["msg"].removeprefix("Value error, "), param_hint=hint) from None


@app.command(epilog="Example: qmnode queue create orders --transactional --journaling --quota 100MB")
def create(
    name: QueueName,
    public: Annotated[bool, typer.Option("--public", help="Also publish the queue in the node's directory.")] = False,
    fixed: Fixed = ORDINARY,
    properties: Properties = UNCHANGED,
    for_: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="UID|ACCOUNT|SID",
            help="Owner of the queue. Default: you. Only administrators may name someone else.",
        ),
    ] = None,
    login: Login = NOBODY,
    node: Node = NODE,
    as_json: JsonOption = False,
) -> None:
    """Create a queue on the node; with --public also publish it in the directory."""
    values = fixed.given() | properties.given()
    if public and "\\" not in name:
        name = f".\\{name}"
    elif public and not _is_public(name):
        raise typer.BadParameter(f"{name} is not the name of a public queue, such as {name.rpartition(chr(92))[2]}")
    if login.user is not None and not (public or _is_public(name)):
        raise typer.BadParameter("only a public queue is in the directory: give --public as well", param_hint="--user")
    queue: NewQueue = _checked(NewQueue, values | {"name": name})
    attributes = queue.properties() | ({} if for_ is None else {"security": owned_by(owner_of(for_))})
    created = node.run(lambda qm: qm.create_queue(queue_name(name), **attributes), login.given())
    _show(created, as_json)


def _is_public(name: str) -> bool:
    try:
        return PathName.parse(name).kind is QueueKind.PUBLIC
    except QueueNameError:
        return False


def _check_login(login: Login, name: str) -> None:
    """Refuse a login that would not be used; format names may name a public queue."""
    try:
        is_private = PathName.parse(queue_name(name)).kind is QueueKind.PRIVATE
    except QueueNameError:
        is_private = False
    if login.user is not None and is_private:
        public = f".\\{name.rpartition(chr(92))[2]}"
        raise typer.BadParameter(f"{name} is a private queue, and the public one is {public}", param_hint="--user")


@app.command("set", epilog="Example: qmnode queue set orders --quota none --label 'All orders'")
def set_queue(
    name: QueueName,
    properties: Properties = UNCHANGED,
    login: Login = NOBODY,
    node: Node = NODE,
    as_json: JsonOption = False,
) -> None:
    """Change the given properties of a queue."""
    values = properties.given()
    if not values:
        raise typer.BadParameter("say what to change, such as --label or --quota")
    settings: QueueSettings = _checked(QueueSettings, values)
    _check_login(login, name)
    changed = node.run(lambda qm: qm.set_queue(queue_name(name), **settings.properties()), login.given())
    _show(changed, as_json)


@app.command("list", epilog="Example: qmnode queue list '*orders*' --kind private --json")
def list_queues(
    pattern: Annotated[str, typer.Argument(help="Pattern of path names, with * and ?.")] = "*",
    kind: Annotated[list[QueueType] | None, typer.Option(help="Only queues of this type; may be given again.")] = None,
    node: Node = NODE,
    as_json: JsonOption = False,
    wide: WideOption = False,
) -> None:
    """List queues with the number and size of their messages."""
    found = node.run(lambda qm: qm.queues(kind or None))
    queues = [queue for queue in found if fnmatch(queue.pathname.upper(), pattern.upper())]
    if as_json:
        print_json(QueueList(queues=[QueueDocument.of(queue) for queue in queues]))
        return
    print_table(
        ("queue", "type", "messages", "oldest", "size", "journal", "transactional", "label", "waits for"),
        [
            (
                queue.pathname,
                f"{queue.queue_type} ({queue.state})" if queue.state else queue.queue_type,
                queue.message_count,
                age_text(queue.oldest_arrival),
                size_text(queue.total_bytes),
                queue.journal_message_count,
                _transactional(queue),
                queue.label,
                waiting_text(queue.waiting),
            )
            for queue in queues
        ],
        right=("messages", "oldest", "size", "journal"),
        whole=("queue",),
        drop=("transactional", "label", "type", "journal", "size", "oldest"),
        wide=wide,
    )


@app.command(epilog="Example: qmnode queue show orders")
def show(name: QueueName, node: Node = NODE, as_json: JsonOption = False, wide: WideOption = False) -> None:
    """Show one queue, and the transactional messages that come to it from other nodes."""

    async def work(manager: RemoteQueueManager) -> tuple[QueueInformation, list[IncomingSequenceInformation]]:
        queue = await manager.queue(queue_name(name))
        try:
            return queue, await manager.incoming_sequences(queue_name(name))
        except MessageQueuingError as error:
            if error.code is not ErrorCode.MQ_ERROR_INVALID_PARAMETER:
                raise
            return queue, []  # a node of an earlier release, which was not restarted yet

    information, found = node.run(work)
    sequences = [IncomingSequenceDocument.of(one) for one in found]
    if as_json:
        shown = [one.model_dump(mode="json") for one in sequences]
        print_json(QueueDocument.of(information).model_dump(mode="json") | {"incoming_sequences": shown})
        return
    _show(information, as_json)
    if sequences:
        print()
        print_table(
            ("incoming from", "address", "as", "sequence", "number", "rejected", "last access"),
            [
                (
                    one.source,
                    one.address,
                    one.destination,
                    one.sequence,
                    one.number,
                    one.reject_count,
                    one.last_access_time,
                )
                for one in sequences
            ],
            right=("number", "rejected"),
            whole=("incoming from", "address"),
            drop=("as", "last access", "sequence", "rejected"),
            wide=wide,
        )


@app.command(epilog="Example: qmnode queue refused orders")
def refused(name: QueueName, node: Node = NODE, as_json: JsonOption = False, wide: WideOption = False) -> None:
    """Show which messages of other machines a queue refused since the node started: whose, why, and how many."""
    found = node.run(lambda qm: qm.refused_messages(queue_name(name)))
    rows = [RefusedMessagesDocument.of(one) for one in found]
    if as_json:
        print_json(RefusedMessagesList(refused_messages=rows))
        return
    print_table(
        ("reason", "sender", "taken as", "from", "address", "messages", "size", "last"),
        [
            (
                one.reason,
                one.sender,
                one.standing,
                one.source,
                one.address,
                one.count,
                size_text(one.total_bytes),
                one.last_time,
            )
            for one in rows
        ],
        right=("messages", "size"),
        whole=("sender", "from", "address"),
        drop=("size", "last", "taken as", "from", "address"),
        wide=wide,
    )
    for standing, explanation in dict.fromkeys((one.standing, one.explanation) for one in rows):
        if explanation:
            say(f"{standing}: {explanation}")


def _show(queue: QueueInformation, as_json: bool) -> None:
    document = QueueDocument.of(queue)
    if as_json:
        print_json(document)
        return
    facts: dict[str, Any] = dict(document)
    quotas = {row.name: quota_text(facts[row.name]) for row in _ROWS if row.form is QUOTA}
    sizes = {name: size_text(facts[name]) for name in ("total_bytes", "journal_total_bytes")}
    waiting = facts.pop("waiting")
    del facts["reason"]
    waits = {} if queue.waiting is None else {
        "waits_for": waiting_text(queue.waiting), "waits_since": waiting.since, "next_try": waiting.next_try,
        "what_to_do": waiting.step,
    }  # fmt: skip
    print_facts(facts | quotas | sizes | {"transactional": _transactional(queue)} | waits)


def waiting_text(waiting: Waiting | WaitingDocument | None) -> str:
    """The reason and the sentence; empty without a reason."""
    return "" if waiting is None else f"{waiting.reason}: {waiting.sentence}"


def _transactional(queue: QueueInformation) -> bool | None:
    """Whether the queue accepts messages in transactions only. An outgoing queue accepts both kinds: it has the default
    of the attribute (MS-MQDMPR 3.1.7.1.5, 3.1.7.1.33), which says nothing about its destination.
    """
    return None if queue.queue_type is QueueType.OUTGOING else queue.transactional


@app.command(epilog="Example: qmnode queue delete orders --yes")
def delete(name: QueueName, yes: YesOption = False, login: Login = NOBODY, node: Node = NODE) -> None:
    """Delete a queue with its messages, its journal and its subqueues."""
    _check_login(login, name)
    confirm(f"Delete {name} with all its messages?", yes)
    node.run(lambda qm: qm.delete_queue(queue_name(name)), login.given())
    say(f"{name} is deleted")


@app.command(epilog="Example: qmnode queue purge 'orders;journal' --yes")
def purge(name: QueueName, yes: YesOption = False, node: Node = NODE) -> None:
    """Delete all messages of a queue, a journal, a subqueue or an outgoing queue."""
    confirm(f"Delete all messages of {name}?", yes)

    async def work(manager: RemoteQueueManager) -> None:
        async with await open_to_read(manager, name, Access.RECEIVE) as queue:
            await queue.purge()

    node.run(work)
    say(f"{name} is empty")


@app.command(epilog="Example: qmnode queue pause orders")
def pause(name: QueueName, node: Node = NODE) -> None:
    """Keep all messages in a queue until 'resume': an outgoing queue sends none, and receives from others wait."""
    node.run(lambda qm: qm.pause_queue(queue_name(name)))
    say(f"{name} is paused")


@app.command(epilog="Example: qmnode queue resume orders")
def resume(name: QueueName, node: Node = NODE) -> None:
    """Let the messages of a paused queue leave again, and receivers have them."""
    node.run(lambda qm: qm.resume_queue(queue_name(name)))
    say(f"{name} is resumed")
