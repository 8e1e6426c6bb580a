"""Dead letters: list them, send them again, write them out."""

from collections.abc import AsyncIterator
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from qmnode.administration.dead_letters import chosen, dead_letters, retry
from qmnode.errors import MessageQueuingError
from qmnode.management.context import BodyForms, Context, Node, note, require_bodies
from qmnode.management.documents import LookupText, identifier_text, lookup_text
from qmnode.management.message_documents import BodyForm, MessageDocument, MessageList
from qmnode.management.message_routes import lookup_of
from qmnode.management.problems import about
from qmnode.model.message import Message

router = APIRouter()

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


@router.get("/v1/dead-letters", **about("dead letters", "List dead letters"))
async def list_dead_letters(
    request: Request,
    node: Node,
    body: BodyForms,
    limit: Annotated[int, Query(ge=1, le=100_000, description="At most; the node may give fewer")] = 100,
) -> MessageList:
    """Of both dead-letter queues. `message_class` says why each is one."""
    limit = min(limit, node.settings.batch)
    size, found = 0, []
    async for message in dead_letters(node.manager):
        found.append(message)
        size += len(message.body)
        if len(found) >= limit or size > node.settings.request_size:
            break
    return MessageList.of(found, body, limits=node.body_limits)


@router.post("/v1/dead-letters/retry", **about("dead letters", "Send dead letters again"))
async def retry_dead_letters(retrying: Retrying, request: Request, node: Node) -> RetriedList:
    """Each to the queue that it was sent to, or all to another one. One that cannot be sent stays a dead letter."""
    wanted = None if retrying.messages is None else [lookup_of(text) for text in retrying.messages]
    lookups = (await chosen(node.manager, wanted))[: node.settings.batch]
    results = [await _retry(node, lookup, retrying.destination) for lookup in lookups]
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
    return StreamingResponse(_lines(first, messages), media_type=LINES)


async def _lines(first: Message | None, others: AsyncIterator[Message]) -> AsyncIterator[str]:
    if first is None:
        return
    yield _line(first)
    async for message in others:
        yield _line(message)


def _line(message: Message) -> str:
    return MessageDocument.of(message, BodyForm.BASE64).model_dump_json() + "\n"
