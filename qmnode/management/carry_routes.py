"""Carries: messages of another queue manager that are taken over, each once."""

from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field

from qmnode.management.documents import Document, lookup_text
from qmnode.management.large_requests import InSteps
from qmnode.management.operation_routes import asker_of, operations_of
from qmnode.management.problems import about
from qmnode.management.request_context import Node, note, require_administer

router = APIRouter(route_class=InSteps)

Number = Annotated[int, Path(ge=1, le=1 << 53, description="Number of the carry")]
_KEY: Final = 64
_MEDIA_TYPE: Final = "application/octet-stream"
_WHAT: Final = "a carry, whose messages may claim any sender"


class CarryDocument(Document):
    """A carry from one queue of another queue manager into one of this node."""

    carry: int = Field(description="Its number")
    source: str = Field(description="Format name of the queue at its source, as the carrier names it")
    target: str
    created: float = Field(default=0.0, description="Seconds since 1970")
    epoch: int = Field(default=0, description="Number of its last carrier; an earlier one may do nothing more")
    carried: int = 0
    carried_bytes: int = 0
    dropped: int = 0
    held: int = Field(default=0, description="Messages that wait until their source has let go of them")


class Unconfirmed(Document):
    """A message that is held, in no queue."""

    key: str = Field(description="Lookup identifier at the source, source machine and number of the message")
    digest: str = Field(description="SHA-256 of the packet")
    expires: int | None = Field(description="Second of its expiry")


class BegunCarry(CarryDocument):
    """A carry, and what its carrier has to know."""

    transactional: bool
    plain: bool = Field(description="Whether the target is a queue of applications, and no journal or dead letters")
    now: float = Field(description="The clock of the node")
    room: int = Field(description="Bytes for which the target has room")
    unconfirmed: list[Unconfirmed]


class CarryList(Document):
    """The carries into this node, the latest first."""

    carries: list[CarryDocument]


class NewCarry(Document):
    """A carry to begin, or to go on with."""

    source: str = Field(min_length=1, max_length=512, description="Format name of the queue at its source")
    target: str = Field(min_length=1, max_length=512, description="Path name of the queue here")
    dry_run: bool = Field(default=False, description="Only say what is known")


class Exchanged(Document):
    """The state of each message to hold, in the same order."""

    states: list[str] = Field(description="held; carried, if it was carried before")
    carried: int
    carried_bytes: int
    held: int


class LedgerEntry(Document):
    """A message in the ledger of a carry."""

    key: str
    state: str = Field(description="held, carried or dropped")
    source_lookup: str
    identifier: str = Field(description="Source machine and number; hexadecimal")
    digest: str = Field(description="SHA-256 of the packet")
    size: int
    lookup: str = Field(description="In the queue here, once it is carried")
    time: float = Field(description="Seconds since 1970")


class CarryLedger(Document):
    """A page of a ledger, in the order of the source."""

    entries: list[LedgerEntry]
    next: str = Field(description="`after` of the next page; empty at the end")


@router.post("/v1/carries", **about("carries", "Begin a carry, or go on with it", 404, 409))
async def begin_carry(new: NewCarry, request: Request, node: Node) -> BegunCarry:
    """`unconfirmed` are messages that an earlier carrier left: look at the source whether their reads were ended.
    For the role `administer`."""
    require_administer(request, _WHAT)
    note(request, source=new.source, target=new.target, dry_run=new.dry_run)
    found = await operations_of(node).begin_carry(asker_of(request, node), new.source, new.target, dry_run=new.dry_run)
    return BegunCarry(**found)


@router.get("/v1/carries", **about("carries", "List carries"))
async def list_carries(request: Request, node: Node) -> CarryList:
    """The latest first, also those that have ended. For the role `administer`."""
    require_administer(request, _WHAT)
    found = await operations_of(node).list_carries(asker_of(request, node))
    return CarryList(carries=[CarryDocument(**one) for one in found])


@router.delete("/v1/carries/{number}", status_code=204, **about("carries", "Delete a carry and its ledger", 409))
async def delete_carry(number: Number, request: Request, node: Node) -> None:
    """When its move is finished: a message that comes from its source again is then carried again. For the role
    `administer`."""
    require_administer(request, _WHAT)
    note(request, carry=number)
    await operations_of(node).delete_carry(asker_of(request, node), number)


@router.put(
    "/v1/carries/{number}/messages",
    **about("carries", "Hold and confirm messages", 404, 409, 413),
    openapi_extra={"requestBody": {"required": True, "content": {_MEDIA_TYPE: {}}}},
)
async def carry_messages(number: Number, request: Request, node: Node) -> Exchanged:
    """Safe to repeat. A held message is on disk, in no queue, until it is confirmed. The content is that of
    `qmnode.administration.carries`. For the role `administer`."""
    require_administer(request, _WHAT)
    content = await request.body()
    note(request, carry=number, bytes=len(content))
    return Exchanged(**await operations_of(node).carry_messages(asker_of(request, node), number, content))


@router.get("/v1/carries/{number}/ledger", **about("carries", "Show the ledger of a carry"))
async def carry_ledger(
    number: Number,
    request: Request,
    node: Node,
    after: Annotated[str, Query(max_length=_KEY, description="`next` of the page before")] = "",
) -> CarryLedger:
    """Identifiers, lookup identifiers and digests of messages that were carried, dropped or are held. For the role
    `administer`."""
    require_administer(request, _WHAT)
    page = await operations_of(node).carry_ledger(asker_of(request, node), number, after)
    entries = [
        LedgerEntry(**one | {"source_lookup": lookup_text(one["source_lookup"]), "lookup": lookup_text(one["lookup"])})
        for one in page["entries"]
    ]
    return CarryLedger(entries=entries, next=page["next"])
