"""Dead letters: list them, send them again, write them out."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from qmnode.administration.dead_letters import chosen, dead_letters, retry
from qmnode.administration.pace import Pace
from qmnode.bodies.limits import Limits
from qmnode.errors import MessageQueuingError
from qmnode.management.context import BodyForms, Context, Node, note, require_bodies
from qmnode.management.documents import LookupText, identifier_text, lookup_text
from qmnode.management.large_requests import InSteps
from qmnode.management.message_documents import BodyForm, MessageList, document_of
from qmnode.management.message_routes import lookup_of
from qmnode.management.problems import about
from qmnode.model.message import Message

router = APIRouter(route_class=InSteps)

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


_CHUNK: Final = 64 * 1024


async def in_chunks(lines: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
    """The same text in larger parts, since sending each takes a while; others work while it is made."""
    pace, parts, size = Pace(), [], 0
    async with aclosing(lines):
        async for line in lines:
            parts.append(line)
            size += len(line)
            if size >= _CHUNK:
                yield "".join(parts)
                parts, size = [], 0
            await pace.rest()
        yield "".join(parts)
