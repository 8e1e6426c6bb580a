"""The document of the machine: the private queues, addresses and bridges that it should have."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Query, Request, Response
from pydantic import Field
from pydantic_core import to_json

from qmnode.administration.turns import Pace
from qmnode.management.documents import Document
from qmnode.management.large_requests import InSteps
from qmnode.management.message_documents import list_answer
from qmnode.management.operation_routes import asker_of, operations_of
from qmnode.management.problems import about
from qmnode.management.request_context import Node, note, require_administer

router = APIRouter(route_class=InSteps)

_WHAT = "the document of the machine"


class MachineDocument(Document):
    """The document of a machine."""

    addresses: list[str] = Field(default=[], description="Its IP addresses")
    bridges: dict[str, dict[str, Any]] = Field(default={}, description="Bridges to AMQP peers, by name")
    queues: list[dict[str, Any]] = Field(description="Its private queues, with the properties that are no defaults")


class DocumentStep(Document):
    """The change of one queue, of one bridge or of the addresses, done or planned."""

    action: Literal["create", "change", "delete", "keep"] = Field(description="`keep`: it holds messages")
    queue: str = Field(description="Its name; empty for a bridge and for the addresses")
    bridge: str = Field(default="", description="Its name; empty for a queue and for the addresses")
    changes: dict[str, dict[str, Any]] = Field(description="By property, the values `from` and `to`")
    messages: int = Field(description="Messages that the queue holds, where it is deleted or kept")
    reason: str | None = Field(description="Why it is kept")


class DocumentChanges(Document):
    """The changes that make a document true, done or planned."""

    steps: list[DocumentStep]
    unchanged: int = Field(description="Queues that are as declared")
    left_over: list[str] = Field(default=[], description="Queues that a document made and this one lacks: see `prune`")
    dry_run: bool


async def _answer(name: str, items: Iterable[Any], rest: Mapping[str, Any]) -> Response:
    """The answer that is an object of a list, made item by item: others work meanwhile."""
    pace, parts = Pace(), []
    for item in items:
        parts.append(to_json(item))
        await pace.rest()
    return list_answer(name, parts, dict(rest))


@router.get("/v1/document", response_model=MachineDocument, **about("queues", "Show the document of the machine"))
async def show_document(
    request: Request,
    node: Node,
    everything: Annotated[bool, Query(alias="all", description="Also what no document made")] = False,
) -> Response:
    """Show queues, addresses and bridges that documents made, as they are now. For the role `administer`."""
    require_administer(request, _WHAT)
    found = await operations_of(node).show_document(asker_of(request, node), everything=everything)
    return await _answer("queues", found.pop("queues"), found)


@router.put(
    "/v1/document",
    response_model=DocumentChanges,
    **about("queues", "Make the document of the machine true", 413),
)
async def apply_document(
    request: Request,
    node: Node,
    document: Annotated[dict[str, Any], Body(examples=[{"queues": [{"name": "orders", "transactional": True}]}])],
    prune: Annotated[bool, Query(description="Delete queues that a document made and this one lacks")] = False,
    with_messages: Annotated[bool, Query(description="With prune: also those that hold messages")] = False,
    dry_run: bool = False,
    declares: Annotated[bool, Query(description="Whether queues that it creates count as made by a document")] = True,
) -> Response:
    """Make private queues, addresses and bridges as declared. For the role `administer`."""
    note(request, dry_run=dry_run, prune=prune, with_messages=with_messages, declares=declares)
    require_administer(request, _WHAT)
    done = await operations_of(node).apply_document(
        asker_of(request, node),
        document,
        prune=prune,
        with_messages=with_messages,
        dry_run=dry_run,
        declares=declares,
    )
    return await _answer("steps", map(DocumentStep.model_validate, done.pop("steps")), done)
