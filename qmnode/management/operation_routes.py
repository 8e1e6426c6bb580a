"""Operations on messages: find them, in one queue or many."""

import time
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from pydantic import Field

from qmnode.administration.asker import Asker
from qmnode.administration.operations import Operations
from qmnode.administration.where import WHERE_HELP, parse_where
from qmnode.errors import MessageQueuingError
from qmnode.management.context import Context, Node, require_operate
from qmnode.management.documents import Document
from qmnode.management.message_documents import BodyForm, MessageDocument
from qmnode.management.problems import responses
from qmnode.management.tokens import Caller, Role
from qmnode.model.packet import received_message
from qmnode.structures.error_codes import ErrorCode

router = APIRouter()

_PLACES: Final[dict[str, Any]] = {"tags": ["messages"]}


class FoundDocument(Document):
    """A message that was found."""

    queue: str = Field(description="Path name, or format name of an outgoing queue")
    message: MessageDocument


class FoundList(Document):
    """Some of the messages that a search finds."""

    found: list[FoundDocument]
    scanned: int = Field(description="Messages that were looked at for this page")
    total: int = Field(description="Messages in all queues that are searched")
    next: str | None = Field(default=None, description="`cursor` of the next page; null at the end")
    refused: list[str] = Field(default=[], description="Queues that were left out, since the caller may not read them")


def asker_of(request: Request) -> Asker:
    """Return the caller, as the engine of operations knows it."""
    caller: Caller = request.scope["state"]["caller"]
    return Asker(caller.name, caller.channel, None, caller.role is Role.OPERATE)


def operations_of(node: Context) -> Operations:
    """The engine. MQ_ERROR_UNSUPPORTED_OPERATION if the queue manager has none."""
    if node.operations is None:
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_UNSUPPORTED_OPERATION, "this queue manager has no operations on messages"
        )
    return node.operations


@router.get("/v1/messages", **_PLACES, summary="Find messages", responses=responses(404))
async def find_messages(
    request: Request,
    node: Node,
    queue: Annotated[
        list[str], Query(description="Names, or patterns with * and ?; may be given again", examples=[["orders*"]])
    ],
    where: Annotated[list[str] | None, Query(description=WHERE_HELP, examples=[["label=order*"]])] = None,
    cursor: Annotated[str, Query(max_length=40, description="`next` of the page before")] = "",
    limit: Annotated[int, Query(ge=1, le=1000, description="At most; the node may give fewer")] = 100,
    body: Annotated[BodyForm, Query(description="Bodies are for the role operate")] = BodyForm.NONE,
) -> FoundList:
    """In one queue or many, without taking them. A page comes after half a second at the latest, also when it is empty:
    ask again with `next` until that is null. Criteria that read bodies are for the role `operate`."""
    if body is not BodyForm.NONE:
        require_operate(request, "the body of a message")
    criteria = parse_where(where or (), time.time())
    page = await operations_of(node).find(asker_of(request), queue, criteria, cursor, limit)
    return FoundList(
        found=[
            FoundDocument(
                queue=one["queue"],
                message=MessageDocument.of(received_message(one["lookup"], one["value"]), body, node.body_limits),
            )
            for one in page["found"]
        ],
        scanned=page["scanned"],
        total=page["total"],
        next=page["next"] or None,
        refused=page["refused"],
    )
