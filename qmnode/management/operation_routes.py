"""Operations on messages: find them, in one queue or many."""

import time
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import quote

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Base64Bytes, ConfigDict, Field, SkipValidation
from pydantic_core import to_json

from qmnode.administration.asker import Asker
from qmnode.administration.operations import Operations
from qmnode.administration.queue_names import queue_name
from qmnode.administration.turns import Pace
from qmnode.administration.where import WHERE_HELP, parse_where
from qmnode.errors import MessageQueuingError
from qmnode.management.documents import (
    Document,
    LookupText,
    MessageLabel,
    WaitingDocument,
    identifier_text,
    lookup_text,
    time_or_none,
)
from qmnode.management.large_requests import InSteps, each
from qmnode.management.message_documents import MessageDocument, document_of, export_line, list_answer
from qmnode.management.message_routes import LINES, Lookup, in_chunks, lookup_of
from qmnode.management.problems import about
from qmnode.management.queue_routes import QueueName
from qmnode.management.request_context import BodyForms, Context, Node, note, require_bodies
from qmnode.management.tokens import Caller
from qmnode.model.stored_message import received_message
from qmnode.model.waiting_reasons import REFUSED, Waiting
from qmnode.structures.error_codes import ErrorCode

router = APIRouter(route_class=InSteps)

_EXPORT_PAGE: Final = 100
_LONGEST_HEADER: Final = 4096


class FoundDocument(Document):
    """A message that was found."""

    queue: str = Field(description="Path name, or format name of an outgoing queue")
    message: MessageDocument
    cursor: str = Field(default="", description="`cursor` of a search that goes on after this message")


class FoundList(Document):
    """Some of the messages that a search finds."""

    found: list[FoundDocument]
    scanned: int = Field(description="Messages that were looked at for this page")
    total: int = Field(description="Messages in all queues that are searched")
    next: str | None = Field(default=None, description="`cursor` of the next page; null at the end")
    refused: list[str] = Field(default=[], description="Queues that were left out, since the caller may not read them")


def asker_of(request: Request, node: Context) -> Asker:
    """Return the caller, as the engine of operations knows it."""
    caller: Caller = request.scope["state"]["caller"]
    return Asker(caller.name, caller.channel, node.principal, caller.role.sees_bodies)


def operations_of(node: Context) -> Operations:
    """The engine. MQ_ERROR_UNSUPPORTED_OPERATION if the queue manager has none."""
    if node.operations is None:
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_UNSUPPORTED_OPERATION, "this queue manager has no operations on messages"
        )
    return node.operations


_ROLES: Final = {
    "outgoing": "on its way in",
    "queue": "arrived in",
    "arrived": "acknowledged by its destination, kept until it says how it ended, in",
    "delayed": "waits for its delivery time in",
    "journal": "copied to",
    "dead_letter": "dead (%) in",
}
_REFUSED: Final = {message_class.name: reason for message_class, (reason, _) in REFUSED.items()}


class TracePlaceDocument(Document):
    """A place where a traced message is, on its way or at an end of it."""

    queue: str = Field(description="Path name, or the format name of an outgoing queue")
    role: Literal["outgoing", "queue", "arrived", "delayed", "journal", "dead_letter"] = Field(
        description="`outgoing`: on its way; `queue`: at its end; `arrived`: sent from here and acknowledged by its "
        "destination, which has not said how it ended"
    )
    lookup: LookupText
    identifier: str
    correlation: str
    label: str
    source: str = Field(description="The machine that sent it")
    sent: datetime | None
    arrived: datetime | None = Field(description="When it came to this node")
    message_class: str = Field(description="Of a dead letter, the reason why it is one")
    waiting: WaitingDocument | None = Field(description="Why it is still here; null: nothing keeps it, or it is a copy")

    @property
    def reason(self) -> str:
        """The reason why it is still there, or why it is a dead letter; empty if nothing keeps it."""
        if self.waiting is not None:
            return self.waiting.reason.value
        refused = _REFUSED.get(self.message_class) if self.role == "dead_letter" else None
        return refused.value if refused is not None else ""

    def text(self) -> str:
        """The place in words, with the reason why the message is still there, or why it is a dead letter."""
        waits = f" ({self.reason})" if self.reason else ""
        if self.waiting is not None:
            waits = f"; waits{waits}: {self.waiting.sentence}; {self.waiting.step}"
        return f"{_ROLES[self.role]} {self.queue}{waits}".replace("%", self.message_class)


class TraceReportDocument(Document):
    """A report of a queue manager on a traced message (MS-MQQB 3.1.5.8.9), from a queue of this node."""

    queue: str
    machine: str = Field(description="The machine that reports")
    time: datetime | None
    next_hop: str = Field(description="Address that the message was sent to; empty: it arrived")
    hops: int
    message: str = Field(description="First digits of the source's identifier, and the message's number")


class TraceDocument(Document):
    """The way of a message as one node knows it now."""

    machine: str
    places: list[TracePlaceDocument] = Field(description="A hundred at most")
    reports: list[TraceReportDocument]
    passed: bool | None = Field(description="Whether it came here within half an hour; null without an identifier")
    began: bool | None = Field(description="Whether this node sent it; null without an identifier")
    scanned: int = Field(description="Messages that were looked at")
    complete: bool = Field(description="Whether all were looked at within the time for it")
    refused: int = Field(description="Queues that were left out, since the caller may not peek at them")

    @classmethod
    def of(cls, found: dict[str, Any]) -> Self:
        """Make the document from the answer of the engine."""
        places = [
            one
            | {
                "lookup": lookup_text(one["lookup"]),
                "identifier": identifier_text(one["identifier"]),
                "correlation": identifier_text(one["correlation"]),
                "sent": time_or_none(one["sent"]),
                "arrived": time_or_none(one["arrived"]),
                "waiting": one["waiting"] and WaitingDocument.of(Waiting(**one["waiting"])),
            }
            for one in found["places"]
        ]
        reports = [one | {"time": time_or_none(one["time"])} for one in found["reports"]]
        return cls(**found | {"places": places, "reports": reports})


@router.get("/v1/trace", **about("messages", "Trace a message"))
async def trace_message(
    request: Request,
    node: Node,
    message: Annotated[str, Query(max_length=80, description="Identifier of the message")] = "",
    label: Annotated[str, Query(max_length=512, description="Label, or a pattern with * and ?")] = "",
    correlation: Annotated[str, Query(max_length=80, description="Correlation identifier")] = "",
) -> TraceDocument:
    """Where it is on this node, why it waits, and whether it came or began here. The answer comes within a third of a
    second; `complete` says whether all queues were searched. Ask every node on the way."""
    asked = {"identifier": message, "label": label, "correlation": correlation}
    criteria = {name: value for name, value in asked.items() if value}
    return TraceDocument.of(await operations_of(node).trace(asker_of(request, node), criteria))


@router.get("/v1/messages", response_model=FoundList, **about("messages", "Find messages", 404))
async def find_messages(
    request: Request,
    node: Node,
    body: BodyForms,
    queue: Annotated[
        list[str], Query(description="Names, or patterns with * and ?; may be given again", examples=[["orders*"]])
    ],
    where: Annotated[list[str] | None, Query(description=WHERE_HELP, examples=[["label=order*"]])] = None,
    cursor: Annotated[
        str, Query(max_length=40, description="`next` of the page before; `-` begins at the end, backwards")
    ] = "",
    limit: Annotated[int, Query(ge=1, le=1000, description="At most; the node may give fewer")] = 100,
) -> Response:
    """In one queue or many, without taking them. A page comes after half a second at the latest, also when it is empty:
    ask again with `next` until that is null. Criteria that read bodies are for the role `bodies`."""
    criteria = parse_where(where or (), time.time())
    page = await operations_of(node).find(asker_of(request, node), queue, criteria, cursor, limit)
    pace, parts = Pace(), []
    for one in page["found"]:
        message = await document_of(received_message(one["lookup"], one["value"]), body, node.body_limits)
        parts.append(to_json(FoundDocument(queue=one["queue"], message=message, cursor=one["after"])))
        await pace.rest()
    rest = {"scanned": page["scanned"], "total": page["total"], "next": page["next"] or None}
    rest |= {"refused": page["refused"]}
    return list_answer("found", parts, rest)


@router.get(
    "/v1/messages/export",
    response_class=StreamingResponse,
    **about("messages", "Export messages", 404, answer={"content": {LINES: {}}, "description": "A JSON object a line"}),
)
async def export_messages(
    request: Request,
    node: Node,
    queue: Annotated[
        list[str], Query(description="Names, or patterns with * and ?; may be given again", examples=[["orders*"]])
    ],
    where: Annotated[list[str] | None, Query(description=WHERE_HELP, examples=[["label=order*"]])] = None,
) -> StreamingResponse:
    """All properties, the decoded body and the packet of each, which `POST /v1/messages/import` takes; they stay.
    The stream is cut off, and not ended, when the node stops. The header `Left-Out` has the queues that the caller
    may not read, percent-encoded and separated by spaces. For the role `bodies`."""
    require_bodies(request, "the packet of a message")
    operations, asker, criteria = operations_of(node), asker_of(request, node), parse_where(where or (), time.time())
    first = await operations.find(asker, queue, criteria, "", _EXPORT_PAGE)  # a mistake is a problem, and no stream

    async def lines() -> AsyncGenerator[str, None]:
        page = first
        while True:
            for one in page["found"]:
                message = received_message(one["lookup"], one["value"])
                yield await export_line(one["queue"], message, node.body_limits)
            if not page["next"]:
                return
            if node.stopping.is_set():
                raise MessageQueuingError(ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE, "the node stops")
            page = await operations.find(asker, queue, criteria, page["next"], _EXPORT_PAGE)

    left_out = {"Left-Out": " ".join(map(quote, first["refused"]))[:_LONGEST_HEADER]} if first["refused"] else {}
    return StreamingResponse(in_chunks(lines()), media_type=LINES, headers=left_out)


Number = Annotated[int, Path(ge=1, le=1 << 53, description="Number of the job")]


class NewJob(Document):
    """An operation on many messages."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"kind": "move", "queues": ["orders"], "where": ["older=1d"], "target": "later"}},
    )

    kind: Literal["move", "copy", "delete", "return", "replay"]
    queues: list[str] = Field(min_length=1, max_length=1000, description="Names, or patterns with * and ?")
    where: list[str] = Field(default=[], max_length=50, description=WHERE_HELP)
    messages: list[LookupText] = Field(default=[], max_length=10_000, description="Only these; of one queue")
    target: str = Field(default="", max_length=512, description="Path name or format name of a queue")
    transactional: bool | None = Field(
        default=None, description="How to send to another machine; null: as the message was sent"
    )
    dry_run: bool = Field(default=False, description="Only find out what would be done with which message")


class JobDocument(Document):
    """A job, and how far it is."""

    job: int = Field(description="Its number")
    kind: str = Field(description="move, copy, delete, return, replay or undo")
    queues: list[str]
    criteria: dict[str, Any] = Field(description="What the messages have to be; times are seconds since 1970")
    selected: int = Field(description="Messages that were chosen one by one")
    target: str
    transactional: bool | None
    dry_run: bool
    undoes: int = Field(description="Number of the job that it takes back; 0 for none")
    undone_by: int = Field(description="Number of the job that takes it back; 0 for none")
    undoable: bool
    asker: str
    channel: str
    state: str = Field(description="running, paused, cancelled or done")
    reason: str = Field(description="Why it is paused or cancelled")
    created: datetime | None
    ended: datetime | None
    seconds: float = Field(description="The time that it has worked")
    place: str
    total: int = Field(description="Messages to look at, as counted at the start")
    scanned: int
    done: int
    failed: int
    rate: float = Field(description="Messages a second")
    seconds_left: float | None = Field(description="An estimate; null when there is none")

    @classmethod
    def of(cls, job: dict[str, Any]) -> "JobDocument":
        """Return the document of the form that the engine has."""
        return cls(**job | {name: time_or_none(job[name]) for name in ("created", "ended")})


class JobList(Document):
    """Jobs, the latest first."""

    jobs: list[JobDocument]


class LogEntry(Document):
    """The outcome of a job for one message."""

    queue: str
    lookup_identifier: str
    result: str = Field(description="moved, copied, deleted, undone, would be done, gone or failed")
    way: str = Field(default="", description="as it is, or sent anew")
    target: str = ""
    to_lookup_identifier: str | None = Field(default=None, description="In the target, if that is on this node")
    identifier: str | None = Field(default=None, description="Of the message that was sent anew; hexadecimal")
    name: str | None = Field(default=None, description="MQ_ERROR code's name, if it failed")
    detail: str | None = Field(default=None, description="Why it failed, or where to look for it if it does not arrive")

    @classmethod
    def of(cls, entry: dict[str, Any]) -> "LogEntry":
        """Return the document of the form that the engine has."""
        lookup, place = entry["lookup"], entry.get("to_lookup")
        rest = {name: value for name, value in entry.items() if name not in ("lookup", "to_lookup")}
        return cls(
            lookup_identifier=lookup_text(lookup),
            to_lookup_identifier=None if place is None else lookup_text(place),
            **rest,
        )


class JobLog(Document):
    """A page of the log of a job."""

    entries: list[LogEntry]
    next: int | None = Field(default=None, description="`after` of the next page; null at the end")


class JobAction(Document):
    """The action that a job is to take."""

    action: Literal["pause", "resume", "cancel", "undo"]


@router.post("/v1/jobs", status_code=201, **about("jobs", "Begin a job", 404, 409))
async def start_job(new: NewJob, request: Request, node: Node) -> JobDocument:
    """Move, copy, delete, return or replay messages. The job goes on in the node, also after a restart."""
    note(request, kind=new.kind, queues=new.queues, target=new.target, where=len(new.where), dry_run=new.dry_run)
    job = await operations_of(node).start_job(
        asker_of(request, node),
        new.kind,
        new.queues,
        parse_where(new.where, time.time()),
        lookups=[lookup_of(text) for text in new.messages],
        target=new.target,
        transactional=new.transactional,
        dry_run=new.dry_run,
    )
    note(request, job=job["job"])
    return JobDocument.of(job)


@router.get("/v1/jobs", **about("jobs", "List jobs"))
async def list_jobs(request: Request, node: Node) -> JobList:
    """The latest first; jobs that ended long ago are forgotten."""
    jobs = await operations_of(node).list_jobs(asker_of(request, node))
    return JobList(jobs=[JobDocument.of(job) for job in jobs])


@router.get("/v1/jobs/{number}", **about("jobs", "Show a job"))
async def show_job(number: Number, request: Request, node: Node) -> JobDocument:
    """With its progress, its rate and an estimate."""
    return JobDocument.of(await operations_of(node).show_job(asker_of(request, node), number))


@router.get("/v1/jobs/{number}/log", response_model=JobLog, **about("jobs", "Show what a job did to each message"))
async def show_job_log(
    number: Number,
    request: Request,
    node: Node,
    after: Annotated[int, Query(ge=0, le=1 << 53, description="`next` of the page before")] = 0,
) -> Response:
    """In the order in which it worked."""
    page = await operations_of(node).job_log(asker_of(request, node), number, after)
    pace, parts = Pace(), []
    for entry in page["entries"]:
        parts.append(to_json(LogEntry.of(entry)))
        await pace.rest()
    return list_answer("entries", parts, {"next": page["next"]})


@router.post("/v1/jobs/{number}", **about("jobs", "Pause, resume, cancel or undo a job"))
async def control_job(number: Number, wanted: JobAction, request: Request, node: Node) -> JobDocument:
    """Undo begins another job, which is returned."""
    note(request, action=wanted.action)
    return JobDocument.of(await operations_of(node).control_job(asker_of(request, node), number, wanted.action))


class FailureGroup(Document):
    """Failed messages that have the same reason, queue, sender or exception."""

    reason: str | None = None
    queue: str | None = None
    sender: str | None = None
    exception: str | None = None
    queues: list[str] = Field(description="The queues that they are in, at most ten")
    count: int
    first: datetime | None
    last: datetime | None
    last_hour: int = Field(description="How many came in the last hour")
    hour_before: int = Field(description="How many came in the hour before")
    where: list[str] = Field(description="Criteria that find the messages of the group, for a search or a job")


class FailureGroups(Document):
    """Failed messages in groups, the largest first."""

    groups: list[FailureGroup]
    scanned: int
    left_out: int = Field(description="Messages of further groups, when there are very many")
    refused: list[str] = Field(description="Queues that were left out, since the caller may not read them")


@router.get("/v1/failures", **about("messages", "Show failed messages in groups", 404))
async def list_failures(
    request: Request,
    node: Node,
    queue: Annotated[list[str], Query(description="Names, or patterns with * and ?", examples=[["error*"]])],
    by: Annotated[
        list[Literal["reason", "queue", "sender", "exception"]] | None, Query(description="Default: reason and queue")
    ] = None,
    where: Annotated[list[str] | None, Query(description=WHERE_HELP)] = None,
) -> FailureGroups:
    """Headers of NServiceBus and Rebus give the reason, and the class of a dead letter. For the role bodies."""
    criteria = parse_where(where or (), time.time())
    found = await operations_of(node).failures(asker_of(request, node), queue, by or ["reason", "queue"], criteria)
    groups = [
        FailureGroup(**group | {name: time_or_none(group[name]) for name in ("first", "last")})
        for group in found.pop("groups")
    ]
    return FailureGroups(groups=groups, **found)


class QueueHistory(Document):
    """The counters of a queue, a number for each step; the last of each list is that of the last step."""

    queue: str
    arrived: list[int] = Field(description="Messages that were put into the queue in the step")
    left: list[int] = Field(description="Messages that were received, or acknowledged by the next hop")
    died: list[int] = Field(description="Messages that ended otherwise, or were rejected")
    messages: list[int] = Field(description="Messages in the queue at the end of the step")
    bytes: list[int]


class HistoryDocument(Document):
    """Counters over time, of the busiest queues that have moved messages since the node started."""

    step: float = Field(description="Seconds")
    times: list[datetime] = Field(description="Ends of the steps, of which a queue may lack the first")
    queues: list[QueueHistory]


@router.get("/v1/history", **about("messages", "Show counters over time", 404))
async def show_history(
    request: Request,
    node: Node,
    queue: Annotated[list[str] | None, Query(description="Names, or patterns with * and ?; default: all")] = None,
    span: Annotated[Literal["hour", "day"], Query(description="10 seconds for an hour, a minute for a day")] = "hour",
) -> HistoryDocument:
    """Arrivals, departures, deaths and backlog, kept by the node itself."""
    found = await operations_of(node).history(asker_of(request, node), queue or ["*"], span)
    return HistoryDocument(
        step=found["step"],
        times=[datetime.fromtimestamp(time, UTC) for time in found["times"]],
        queues=[QueueHistory(**one) for one in found["queues"]],
    )


class Editing(Document):
    """The changes of a message; what is null stays."""

    label: MessageLabel | None = None
    priority: int | None = Field(default=None, ge=0, le=7)
    base64: Base64Bytes | None = Field(default=None, description="Another body")
    value: Any = Field(default=None, description="Another value of the body, written in its format")
    format: str | None = Field(default=None, max_length=40, description="Format of the value, if another")
    headers: dict[str, str | None] | None = Field(default=None, description="Headers to set; null removes one")
    target: str = Field(default="", max_length=512, description="Another queue")
    keep: bool = Field(default=False, description="Leave the message as well")
    dry_run: bool = Field(default=False, description="Only say what cannot be kept")

    def changes(self) -> dict[str, Any]:
        """Return the changes in the form that the engine takes."""
        given = self.model_dump(exclude_none=True, exclude={"target", "keep", "dry_run", "base64"})
        return given | ({} if self.base64 is None else {"body": self.base64})


class Edited(Document):
    """The message that was sent in the place of another."""

    lost: list[str] = Field(description="What could not be kept, in sentences")
    target: str
    identifier: str
    to_lookup_identifier: str | None = Field(description="In the target, if that is on this node")


@router.post(
    "/v1/queues/{name}/messages/{lookup}/edit", **about("messages", "Change a message and send it again", 404, 409)
)
async def edit_message(name: QueueName, lookup: Lookup, editing: Editing, request: Request, node: Node) -> Edited:
    """The changed message takes the place of the old one in one write."""
    changes = editing.changes()
    note(request, changed=sorted(changes), target=editing.target, dry_run=editing.dry_run)
    answer = await operations_of(node).edit(
        asker_of(request, node),
        queue_name(name),
        lookup_of(lookup),
        changes,
        target=queue_name(editing.target) if editing.target else "",
        keep=editing.keep,
        dry_run=editing.dry_run,
    )
    place = answer.pop("to_lookup")
    return Edited(**answer, to_lookup_identifier=lookup_text(place) if place else None)


class ImportedMessage(Document):
    """An exported message that is to be sent to a queue."""

    packet: Base64Bytes
    target: str = Field(min_length=1, max_length=512, description="Path name or format name of a queue")
    dead_letter: bool = Field(default=False, description="It was exported from a dead-letter queue")


class Importing(Document):
    """Exported messages, to be sent once each."""

    messages: list[SkipValidation[ImportedMessage]] = Field(min_length=1, max_length=500)
    """Validated one by one by ``each``."""
    transactional: bool | None = None
    again: bool = Field(default=False, description="Also those that were imported into the same queue before")
    dry_run: bool = False


class ImportResult(Document):
    """The outcome for one message."""

    result: str = Field(description="sent, would be sent, known or refused")
    detail: str | None = None
    target: str | None = None
    identifier: str | None = None


class ImportResults(Document):
    """The outcome for each, in the same order."""

    results: list[ImportResult]


@router.post("/v1/messages/import", **about("messages", "Import messages", 413))
async def import_messages(importing: Importing, request: Request, node: Node) -> ImportResults:
    """Each is sent anew, once: a message that was imported into the same queue before is known, and not sent."""
    note(request, messages=len(importing.messages), dry_run=importing.dry_run)
    results = await operations_of(node).import_messages(
        asker_of(request, node),
        [
            {"packet": one.packet, "target": queue_name(one.target), "dead_letter": one.dead_letter}
            for one in await each(importing.messages, ImportedMessage.model_validate, "messages")
        ],
        transactional=importing.transactional,
        again=importing.again,
        dry_run=importing.dry_run,
    )
    return ImportResults(results=[ImportResult(**one) for one in results])
