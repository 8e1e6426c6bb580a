"""Queues, their access lists, outgoing queues and journals."""

from fnmatch import fnmatch
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel

from qmnode.administration.access_control import change_access, show_access
from qmnode.administration.queue_names import queue_name
from qmnode.management.documents import (
    ORDERS,
    AttemptDocument,
    ConnectionHistory,
    NewQueue,
    QueueDocument,
    QueueList,
    QueueSettings,
)
from qmnode.management.large_requests import InSteps
from qmnode.management.problems import about
from qmnode.management.queue_documents import (
    AccessChange,
    AccessDocument,
    IncomingSequenceDocument,
    IncomingSequences,
    RefusedMessagesDocument,
    RefusedMessagesList,
    TransferDocument,
)
from qmnode.management.request_context import Node, note, note_target
from qmnode.model.administration import SequencePlace, TransferInformation
from qmnode.model.api import Access, QueueType

router = APIRouter(route_class=InSteps)

QueueName = Annotated[
    str,
    Path(
        min_length=1,
        max_length=512,
        description=r"Path name, or format name, percent-encoded. `orders` is short for `.\private$\orders`; "
        "`orders;journal` is its journal, `orders;later` a subqueue.",
        examples=["orders", ORDERS],
    ),
]


class Journal(BaseModel):
    """A journal: copies of messages that were received from a queue, or sent by this node."""

    pathname: str
    queue: str | None
    journaling: bool
    message_count: int
    total_bytes: int


class Journals(BaseModel):
    """The journals that have messages or get some."""

    journals: list[Journal]


@router.get("/v1/queues", **about("queues", "List queues"))
async def list_queues(
    node: Node,
    kind: Annotated[list[QueueType] | None, Query(description="Only of these types; may be given again")] = None,
    name: Annotated[
        str | None, Query(max_length=512, description="Pattern for path names, with * and ?", examples=["*orders*"])
    ] = None,
    after: Annotated[str | None, Query(max_length=1024, description="`next` of the list before")] = None,
    limit: Annotated[int, Query(ge=1, le=100_000, description="At most; the node may give fewer")] = 100,
) -> QueueList:
    """In the order of their path names, system queues and outgoing queues among them."""
    limit = min(limit, node.settings.batch)
    pattern = name.upper() if name else None
    chosen = sorted(
        (
            (key, queue)
            for queue in node.manager.queue_collection.values()
            if (not kind or queue.queue_type in kind)
            and ((key := queue.pathname.upper()) > (after or "").upper())
            and (pattern is None or fnmatch(key, pattern))
        ),
        key=lambda pair: pair[0],
    )
    page = [QueueDocument.of(queue.information()) for _, queue in chosen[:limit]]
    return QueueList(queues=page, next=page[-1].pathname if len(chosen) > limit else None)


@router.post("/v1/queues", status_code=201, **about("queues", "Create a queue", 409))
async def create_queue(queue: NewQueue, request: Request, response: Response, node: Node) -> QueueDocument:
    """A private queue. 409 (MQ_ERROR_QUEUE_EXISTS) if there is one of this name."""
    note_target(request, queue.name)
    note(request, queue=queue.name, properties=sorted(queue.model_fields_set - {"name"}))
    created = await node.manager.create_queue(queue_name(queue.name), **queue.properties())
    return QueueDocument.of(created)


@router.get("/v1/queues/{name}", **about("queues", "Show a queue", 404))
async def show_queue(name: QueueName, node: Node) -> QueueDocument:
    """Its properties, and how much is in it."""
    return QueueDocument.of(await node.manager.queue(queue_name(name)))


@router.get(
    "/v1/queues/{name}/incoming-sequences",
    **about("queues", "Show how far the transactional messages that come to a queue are", 404),
)
async def show_incoming_sequences(name: QueueName, node: Node) -> IncomingSequences:
    """By the queue manager that sends them: what was accepted last, when, and how many were not since then."""
    found = await node.manager.incoming_sequences(queue_name(name))
    return IncomingSequences(incoming_sequences=[IncomingSequenceDocument.of(one) for one in found])


@router.get(
    "/v1/queues/{name}/refused-messages",
    **about("queues", "Show which messages of other machines a queue refused", 404),
)
async def show_refused_messages(name: QueueName, node: Node) -> RefusedMessagesList:
    """Since the node started, by sender and reason. The messages themselves are not kept."""
    found = await node.manager.refused_messages(queue_name(name))
    return RefusedMessagesList(refused_messages=[RefusedMessagesDocument.of(one) for one in found])


@router.patch("/v1/queues/{name}", **about("queues", "Change a queue", 404))
async def set_queue(name: QueueName, settings: QueueSettings, request: Request, node: Node) -> QueueDocument:
    """Only what is given changes. Whether a queue is transactional never does."""
    note(request, properties=sorted(settings.model_fields_set))
    return QueueDocument.of(await node.manager.set_queue(queue_name(name), **settings.properties()))


@router.delete("/v1/queues/{name}", status_code=204, **about("queues", "Delete a queue", 404, 409))
async def delete_queue(name: QueueName, node: Node) -> None:
    """With its messages, its journal and its subqueues."""
    await node.manager.delete_queue(queue_name(name))


@router.delete("/v1/queues/{name}/messages", status_code=204, **about("queues", "Purge a queue", 404, 409))
async def purge_queue(name: QueueName, request: Request, node: Node) -> None:
    """Delete every message. Those that asked for it become dead letters; those in a transaction go when it aborts."""
    async with await node.open(name, Access.RECEIVE) as queue:
        note(request, messages=node.manager.context.names.find(queue_name(name)).message_count)
        await queue.purge()


@router.get("/v1/outgoing-queues", **about("outgoing queues", "List outgoing queues"))
async def list_outgoing_queues(node: Node) -> QueueList:
    """Queues of messages on their way to other machines, with their states; all of them, up to `management.batch`."""
    found = await node.manager.queues([QueueType.OUTGOING])
    page = [QueueDocument.of(queue) for queue in found[: node.settings.batch]]
    return QueueList(queues=page, next=page[-1].pathname if len(found) > len(page) else None)


@router.get(
    "/v1/outgoing-queues/{name}/connection-history",
    **about("outgoing queues", "Show how an outgoing queue got on with its next hops", 404),
)
async def show_connection_history(name: QueueName, node: Node) -> ConnectionHistory:
    """The last ten attempts to connect, and what became of each."""
    attempts = node.manager.outgoing_queue(queue_name(name)).connection_history
    return ConnectionHistory(attempts=[AttemptDocument.of(attempt) for attempt in attempts])


@router.get(
    "/v1/outgoing-queues/{name}/transfer",
    **about("outgoing queues", "Show how far the transactional messages of an outgoing queue are", 404),
)
async def show_transfer(name: QueueName, node: Node) -> TransferDocument:
    """Messages that were acknowledged, those that wait for it, and when they are sent again."""
    queue, network = node.manager.outgoing_queue(queue_name(name)), node.manager.context.network
    if network is None:
        return TransferDocument.of(TransferInformation(SequencePlace(0, 0, 0)))
    return TransferDocument.of(network.transfer_information(queue))


@router.post(
    "/v1/queues/{name}/pause", status_code=204, operation_id="pause_any_queue", **about("queues", "Pause a queue", 404)
)
@router.post(
    "/v1/outgoing-queues/{name}/pause", status_code=204, **about("outgoing queues", "Pause an outgoing queue", 404)
)
async def pause_queue(name: QueueName, node: Node) -> None:
    """No message leaves it, and no receiver gets one, until it is resumed. Messages still come in and can be peeked."""
    await node.manager.pause_queue(queue_name(name))


@router.post(
    "/v1/queues/{name}/resume", status_code=204, operation_id="resume_any_queue",
    **about("queues", "Resume a queue", 404),
)  # fmt: skip
@router.post(
    "/v1/outgoing-queues/{name}/resume", status_code=204, **about("outgoing queues", "Resume an outgoing queue", 404)
)
async def resume_queue(name: QueueName, node: Node) -> None:
    """Its messages leave again, and receivers get them."""
    await node.manager.resume_queue(queue_name(name))


@router.get("/v1/journals", **about("journals", "List journals"))
async def list_journals(node: Node) -> Journals:
    """Their messages are those of the queue `NAME;journal`, and of `system$;journal` for what this node sent."""
    machine = node.manager.journal_queue
    found = []
    if node.may_see(machine):
        found.append(
            Journal(
                pathname=machine.pathname,
                queue=None,
                journaling=True,
                message_count=machine.message_count,
                total_bytes=machine.total_bytes,
            )
        )
    for queue in sorted(node.manager.queue_collection.values(), key=lambda queue: queue.pathname.upper()):
        count = queue.journal_queue.message_count if queue.journal_queue is not None else 0
        if queue.journaling or count:
            size = queue.journal_queue.total_bytes if queue.journal_queue is not None else 0
            found.append(
                Journal(
                    pathname=f"{queue.pathname};JOURNAL",
                    queue=queue.pathname,
                    journaling=queue.journaling,
                    message_count=count,
                    total_bytes=size,
                )
            )
    return Journals(journals=found[: node.settings.batch])


@router.get("/v1/queues/{name}/access", **about("queues", "Who may use a queue", 404))
async def show_queue_access(name: QueueName, node: Node) -> AccessDocument:
    """Its owner and its access control list, in the order in which entries count."""
    return AccessDocument.of(await show_access(node.manager, queue_name(name)))


@router.post("/v1/queues/{name}/access", **about("queues", "Change who may use a queue", 404))
async def change_queue_access(name: QueueName, change: AccessChange, request: Request, node: Node) -> AccessDocument:
    """Allow or deny rights to somebody, or remove them from his entries. Other entries stay as they are."""
    note(request, change=change.change, trustee=change.trustee, rights=change.rights)
    access = await change_access(node.manager, queue_name(name), change.change, change.trustee, change.rights)
    return AccessDocument.of(access)
