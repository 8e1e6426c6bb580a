"""Messages, dead letters among them: for administrators and tests. Applications use ``qmnode.connect()``."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, SkipValidation

from qmnode.administration.browsing import browse, unit_for
from qmnode.administration.dead_letters import chosen, dead_letters, retry
from qmnode.administration.queue_names import format_name, queue_name
from qmnode.administration.turns import Pace
from qmnode.bodies.limits import Limits
from qmnode.errors import MessageQueuingError
from qmnode.management.documents import LOOKUP_PATTERN, LookupText, identifier_text, lookup_from_text, lookup_text
from qmnode.management.large_requests import MOST_ITEMS, InSteps, each
from qmnode.management.message_documents import BodyForm, MessageDocument, MessageList, NewMessage, document_of
from qmnode.management.problems import about
from qmnode.management.queue_routes import QueueName
from qmnode.management.request_context import BodyForms, Context, Node, note, require_bodies
from qmnode.model.api import Access, QueueApi
from qmnode.model.message import Message
from qmnode.model.open_queue import OpenQueueDescriptor
from qmnode.structures.error_codes import ErrorCode

router = APIRouter(route_class=InSteps)

_MESSAGES_AT_ONCE: Final = 16
"""Messages received at a time, so that what a request holds in memory has a limit in bytes too."""


class Sending(BaseModel):
    """Messages to send: all of them or none."""

    model_config = ConfigDict(extra="forbid")

    messages: list[SkipValidation[NewMessage]] = Field(min_length=1, max_length=MOST_ITEMS)
    """Validated one by one by ``each``."""
    transactional: bool | None = Field(
        default=None,
        description="Send in a transaction of its own. Null does what the queue needs, if it is on this node",
    )


class Sent(BaseModel):
    """The messages that were sent, in the same order."""

    identifiers: list[str] = Field(examples=[["7d3f1c52-9c2e-4b53-8a0f-0d6f3c1a2b4e\\65537"]])


class Receiving(BaseModel):
    """The selection of messages to receive."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"limit": 10, "timeout": 5, "body": "text"}}
    )

    limit: int = Field(default=1, ge=1, le=100_000, description="At most; the node may give fewer")
    timeout: float = Field(
        default=0, ge=0, le=86_400, allow_inf_nan=False, description="Seconds to wait for the first message"
    )
    body: BodyForm = BodyForm.BASE64


class Moving(BaseModel):
    """Where a message goes."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"target": "orders;later"}})

    target: str = Field(min_length=1, max_length=512, description="The queue, or another subqueue of it")


Lookup = Annotated[str, Path(pattern=LOOKUP_PATTERN, description="Lookup identifier", examples=["0x400000000000012"])]


def lookup_of(text: str) -> int:
    """A lookup identifier that a caller wrote. MQ_ERROR_INVALID_PARAMETER if it is none."""
    try:
        return lookup_from_text(text)
    except ValueError as error:
        raise MessageQueuingError(ErrorCode.MQ_ERROR_INVALID_PARAMETER, str(error)) from None


@router.post("/v1/queues/{name}/messages", status_code=201, **about("messages", "Send messages", 404, 409, 413))
async def send_messages(name: QueueName, sending: Sending, request: Request, node: Node) -> Sent:
    """To a queue of this node, or by its format name of another: one message or a batch, on disk if recoverable."""
    note(request, messages=len(sending.messages))
    if len(sending.messages) > node.settings.batch:
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES,
            f"{len(sending.messages)} messages in a request: at most {node.settings.batch} are taken",
        )
    messages = await each(sending.messages, _message, "messages")
    unit = await unit_for(node.manager, queue_name(name), sending.transactional)
    async with await node.open(name, Access.SEND) as queue:
        identifiers = await queue.send_many(messages, unit)
    return Sent(identifiers=[identifier_text(identifier) for identifier in identifiers])


@router.post(
    "/v1/queues/{name}/receive", response_model=MessageList, **about("messages", "Receive messages", 404, 409, 429)
)
async def receive_messages(name: QueueName, receiving: Receiving, request: Request, node: Node) -> Response:
    """Take the first messages out of a queue, waiting for one if there is none; an empty list when time is over.

    Received messages are gone when this answers: if the answer gets lost, so do the messages.
    """
    limit = min(receiving.limit, node.settings.batch)
    async with await node.open(name, Access.RECEIVE) as queue:
        messages = await _receive(node, request, queue, limit, receiving.timeout)
    note(request, messages=len(messages))
    return await MessageList.answer(messages, receiving.body, node.body_limits)


def _message(given: Any) -> Message:
    return NewMessage.model_validate(given).message()


async def _receive(node: Context, request: Request, queue: QueueApi, limit: int, wait: float) -> list[Message]:
    messages: list[Message] = []
    size = 0
    try:
        while len(messages) < limit and size < node.settings.request_size:
            count = min(_MESSAGES_AT_ONCE, limit - len(messages))
            if messages or not wait:
                taken = await queue.receive_many(count, 0)
            else:
                taken = (
                    await node.wait_for(request, queue.receive_many(count, min(wait, node.settings.longest_wait))) or []
                )
            if not taken:
                break
            messages += taken
            size += sum(len(message.body) for message in taken)
    except MessageQueuingError as error:
        if error.code != ErrorCode.MQ_ERROR_IO_TIMEOUT:
            raise
    return messages


@router.get("/v1/queues/{name}/messages", response_model=MessageList, **about("messages", "Peek at messages", 404))
async def peek_messages(
    name: QueueName,
    request: Request,
    node: Node,
    body: BodyForms,
    after: Annotated[LookupText | None, Query(description="`next` of the list before")] = None,
    limit: Annotated[int, Query(ge=1, le=100_000, description="At most; the node may give fewer")] = 100,
) -> Response:
    """Without taking them, in the order of delivery."""
    limit = min(limit, node.settings.batch)
    size, messages, more = 0, [], False
    async with (
        await node.open(name, Access.PEEK) as queue,
        aclosing(browse(queue, lookup_of(after) if after else None)) as found,
    ):
        async for message in found:
            messages.append(message)
            size += len(message.body)
            if more := len(messages) >= limit or size > node.settings.request_size:
                break
    return await MessageList.answer(messages, body, node.body_limits, more=more)


@router.get("/v1/queues/{name}/messages/{lookup}", **about("messages", "Peek at one message", 404))
async def peek_message(
    name: QueueName,
    lookup: Lookup,
    request: Request,
    node: Node,
    body: BodyForms,
) -> MessageDocument:
    """By its lookup identifier."""
    async with await node.open(name, Access.PEEK) as queue:
        return await document_of(await queue.peek_by_lookup_id(lookup_of(lookup)), body, node.body_limits)


@router.delete(
    "/v1/queues/{name}/messages/{lookup}", status_code=204, **about("messages", "Delete one message", 404, 409)
)
async def delete_message(name: QueueName, lookup: Lookup, node: Node) -> None:
    """As if it were received, also from a paused queue: a copy goes to the journal, and who asked for it gets an
    acknowledgment.
    """
    async with await node.open(name, Access.RECEIVE) as queue:
        if isinstance(queue, OpenQueueDescriptor):
            await queue.receive_by_lookup_id(lookup_of(lookup), held=True)
        else:
            await queue.receive_by_lookup_id(lookup_of(lookup))


@router.post(
    "/v1/queues/{name}/messages/{lookup}/move",
    status_code=204,
    **about("messages", "Move a message to a subqueue or back", 404, 409),
)
async def move_message(name: QueueName, lookup: Lookup, moving: Moving, request: Request, node: Node) -> None:
    """Messages move between a queue and its subqueues, which are made when they are first needed."""
    note(request, move_to=moving.target)
    async with (
        await node.open(name, Access.RECEIVE) as queue,
        await node.manager.open_queue(format_name(moving.target), Access.MOVE) as target,
    ):
        await queue.move(lookup_of(lookup), target)


LINES: Final = "application/x-ndjson"


class Retrying(BaseModel):
    """The dead letters to send again, and their destination."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"messages": ["0x400000000000012"]}})

    messages: list[LookupText] | None = Field(default=None, max_length=100_000, description="Null: all that there are")
    destination: str | None = Field(default=None, max_length=512, description="Null: where each was sent first")


class Retried(BaseModel):
    """The outcome for one dead letter."""

    lookup_identifier: str
    identifier: str | None = Field(default=None, description="Of the message that was sent; null if it was not")
    name: str | None = Field(default=None, description="MQ_ERROR code's name, if it was not sent: it is still there")
    detail: str | None = None


class RetriedList(BaseModel):
    """The outcome for each dead letter."""

    results: list[Retried]


@router.get("/v1/dead-letters", response_model=MessageList, **about("dead letters", "List dead letters"))
async def list_dead_letters(
    request: Request,
    node: Node,
    body: BodyForms,
    limit: Annotated[int, Query(ge=1, le=100_000, description="At most; the node may give fewer")] = 100,
) -> Response:
    """Of both dead-letter queues. `message_class` says why each is one."""
    limit = min(limit, node.settings.batch)
    size, found = 0, []
    async with aclosing(dead_letters(node.manager)) as messages:
        async for message in messages:
            found.append(message)
            size += len(message.body)
            if len(found) >= limit or size > node.settings.request_size:
                break
    return await MessageList.answer(found, body, node.body_limits)


@router.post("/v1/dead-letters/retry", **about("dead letters", "Send dead letters again"))
async def retry_dead_letters(retrying: Retrying, request: Request, node: Node) -> RetriedList:
    """Each to the queue that it was sent to, or all to another one. One that cannot be sent stays a dead letter."""
    wanted = None if retrying.messages is None else [lookup_of(text) for text in retrying.messages]
    results, pace = [], Pace()
    for lookup in await chosen(node.manager, wanted, node.settings.batch):
        results.append(await _retry(node, lookup, retrying.destination))
        await pace.rest()
    note(request, retried=sum(one.identifier is not None for one in results), of=len(results))
    return RetriedList(results=results)


async def _retry(node: Context, lookup_identifier: int, destination: str | None) -> Retried:
    result = Retried(lookup_identifier=lookup_text(lookup_identifier))
    try:
        result.identifier = identifier_text(await retry(node.manager, lookup_identifier, destination))
    except MessageQueuingError as error:
        result.name, result.detail = error.name, error.sentence
    return result


@router.get(
    "/v1/dead-letters/export",
    response_class=StreamingResponse,
    **about("dead letters", "Write out dead letters", answer={"content": {LINES: {"schema": {"type": "string"}}}}),
)
async def export_dead_letters(request: Request, node: Node) -> StreamingResponse:
    """All of them with their bodies (base64), one JSON document a line. For the role bodies."""
    require_bodies(request, "the body of a message")
    messages = dead_letters(node.manager)
    first = await anext(messages, None)  # a refusal comes before the answer begins
    return StreamingResponse(in_chunks(_lines(first, messages, node.body_limits)), media_type=LINES)


async def _lines(
    first: Message | None, others: AsyncGenerator[Message, None], limits: Limits
) -> AsyncGenerator[str, None]:
    async with aclosing(others):
        if first is None:
            return
        yield await _line(first, limits)
        async for message in others:
            yield await _line(message, limits)


async def _line(message: Message, limits: Limits) -> str:
    return (await document_of(message, BodyForm.BASE64, limits)).model_dump_json() + "\n"


_BYTES_AT_ONCE: Final = 64 * 1024


async def in_chunks(lines: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
    """The same text in larger parts, since sending each takes a while; others work while it is made."""
    pace, parts, size = Pace(), [], 0
    async with aclosing(lines):
        async for line in lines:
            parts.append(line)
            size += len(line)
            if size >= _BYTES_AT_ONCE:
                yield "".join(parts)
                parts, size = [], 0
            await pace.rest()
        yield "".join(parts)
