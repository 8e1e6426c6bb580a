"""Routes for the console: the caller, all queues with their counters at little cost, and the audit log."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import Field
from pydantic_core import to_json

from qmnode.errors import MessageQueuingError
from qmnode.management.documents import Document, NodeDocument
from qmnode.management.large_requests import InSteps
from qmnode.management.problems import about
from qmnode.management.request_context import Node, caller_of, require_administer
from qmnode.management.tokens import Role
from qmnode.model.queue import Queue
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import guid_to_text
from qmnode.version import program_version

router = APIRouter(route_class=InSteps)

_QUEUES_AT_ONCE: Final = 1000
_NAMES: Final = ("pathname", "queue_type", "label", "transactional")
_COUNTS: Final = ("message_count", "total_bytes", "oldest_arrival", "arrived", "left", "state")
_HASH: Final = (1 << 64) - 1
_READ_AT_ONCE: Final = 1 << 20
"""Bytes of the audit log that are looked at, from its end."""


class CallerDocument(Document):
    """The caller, as the node knows it."""

    name: str = Field(examples=["alice"])
    role: Role
    machine: str = Field(description="Computer name of the node", examples=["ALPHA"])


class JournalSummary(Document):
    """The messages in the journal of a queue, in short."""

    queue: int = Field(description="The place of the queue in the columns")
    message_count: int
    total_bytes: int
    oldest_arrival: float | None


class QueueSummary(Document):
    """All queues that the caller may see, in columns: each list has one value for each queue.

    The columns up to ``transactional`` are empty for a caller that has them already.
    """

    names: str = Field(description="The state of those columns: another text whenever one of their values changed")
    identifier: str = Field(default="", description="Of the queue manager")
    node: NodeDocument | None = Field(description="As `/v1/node`, if it was asked for and the caller may see it")
    pathname: list[str]
    queue_type: list[str]
    label: list[str]
    transactional: list[bool]
    message_count: list[int]
    total_bytes: list[int]
    oldest_arrival: list[float | None] = Field(
        description="When the message that has waited longest arrived: seconds since 1970 (UTC)"
    )
    arrived: list[int] = Field(description="Messages that arrived since the node started")
    left: list[int] = Field(description="Messages that were received or acknowledged since the node started")
    state: list[str | None] = Field(description="Of outgoing queues (MS-MQDMPR 3.1.1.3)")
    journals: list[JournalSummary] = Field(default=[], description="Journals with messages")


class AuditEntries(Document):
    """The last entries of the audit log, the newest first."""

    entries: list[dict[str, Any]]


@router.get("/v1/caller", **about("node", "Who the caller is"))
async def show_caller(request: Request, node: Node) -> CallerDocument:
    """The name and the role of the token, or of the user on the Unix socket."""
    caller = caller_of(request)
    return CallerDocument(name=caller.name, role=caller.role, machine=node.manager.computer_name)


@router.get("/v1/queue-summary", response_model=QueueSummary, **about("queues", "Show all queues in short"))
async def summarize_queues(
    node: Node,
    known: Annotated[
        str, Query(max_length=64, description="`names` of the summary before: its columns are not sent again")
    ] = "",
    with_node: Annotated[bool, Query(alias="node", description="Together with the document of the node")] = False,
) -> Response:
    """Names, what is in them and their counters: what a console asks for again and again."""
    node.manager.traffic.settle()
    columns: dict[str, list[Any]] = {name: [] for name in (*_NAMES, *_COUNTS)}
    queues = list(node.manager.queue_collection.values())
    for first in range(0, len(queues), _QUEUES_AT_ONCE):
        if first:
            await asyncio.sleep(0)  # applications go on
        for name, values in _columns(queues[first : first + _QUEUES_AT_ONCE]):
            columns[name] += values
    # Hashes of texts have a key of this process: nobody can name a queue so that a change is not seen.
    names = f"{hash(tuple(tuple(columns[name]) for name in _NAMES)) & _HASH:016x}"
    if names == known:
        columns |= {name: [] for name in _NAMES}
    document = await _node_document(node) if with_node else None
    # Written by pydantic's core, which takes a fraction of the time of json.
    found = {"names": names, "identifier": guid_to_text(node.manager.identifier), "node": document, **columns}
    return Response(to_json(found | {"journals": _journals(queues)}), media_type="application/json")


def _journals(queues: Sequence[Queue]) -> list[dict[str, Any]]:
    return [
        {
            "queue": number,
            "message_count": journal.message_count,
            "total_bytes": journal.total_bytes,
            "oldest_arrival": journal.oldest_arrival,
        }
        for number, queue in enumerate(queues)
        if (journal := queue.journal_queue) is not None and journal.message_count
    ]


async def _node_document(node: Node) -> NodeDocument | None:
    try:
        return NodeDocument.of(await node.manager.status(), program_version())
    except MessageQueuingError as error:
        if error.code is ErrorCode.MQ_ERROR_ACCESS_DENIED:  # the caller still sees their queues
            return None
        raise


def _columns(queues: Sequence[Queue]) -> Iterator[tuple[str, list[Any]]]:
    """The columns of a part of a :class:`QueueSummary`: by column, since a row of its own costs each queue more."""
    yield "pathname", [queue.pathname for queue in queues]
    yield "queue_type", [str(queue.queue_type) for queue in queues]
    yield "label", [queue.label for queue in queues]
    yield "transactional", [queue.transactional for queue in queues]
    yield "message_count", [queue.message_count for queue in queues]
    yield "total_bytes", [queue.total_bytes for queue in queues]
    yield "oldest_arrival", [queue.oldest_arrival for queue in queues]
    moved = [queue.tally.moved for queue in queues]
    yield "arrived", [arrived for arrived, _ in moved]
    yield "left", [left for _, left in moved]
    yield "state", [queue.state_name or None for queue in queues]


@router.get("/v1/audit", **about("node", "Read the audit log", 404))
async def read_audit(
    request: Request,
    node: Node,
    limit: Annotated[int, Query(ge=1, le=1000, description="At most; the node may give fewer")] = 100,
) -> AuditEntries:
    """The last entries of the file ``management.audit_log``, the newest first. For the role `administer`."""
    node.require("audit")
    require_administer(request, "the audit log")
    path = node.settings.audit_log
    if path is None:
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_UNSUPPORTED_OPERATION,
            "this node writes its audit entries to its log: set management.audit_log to a file to read them here",
        )
    return AuditEntries(entries=await asyncio.to_thread(_last_entries, path, limit))


def _last_entries(path: Path, limit: int) -> list[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _READ_AT_ONCE))
            lines = file.read(_READ_AT_ONCE).splitlines()
    except OSError as error:
        raise MessageQueuingError(ErrorCode.MQ_ERROR, f"{path} cannot be read: {error.strerror}") from None
    if size > _READ_AT_ONCE:
        del lines[:1]
    found: list[dict[str, Any]] = []
    for line in reversed(lines):
        try:
            entry = json.loads(line)
        except ValueError:  # the last line may be under way
            continue
        if isinstance(entry, dict):
            found.append(entry)
        if len(found) == limit:
            break
    return found
