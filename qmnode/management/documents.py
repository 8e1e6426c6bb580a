"""JSON documents: requests and answers of the management API, and the ``--json`` of the command line.

Names are those of the data model. Quotas are in KB and null is none; times are UTC; lookup identifiers are
hexadecimal text, since their 64 bits do not fit the numbers of every JSON reader. Keys are added, never changed.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Self, TypeVar, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, create_model

from qmnode.model.administration import ConnectionInformation, NodeStatus, TransactionInformation
from qmnode.model.api import QueueInformation, QueueProperties, QueueType
from qmnode.model.message import INFINITE
from qmnode.model.waiting_reasons import Waiting, WaitReason
from qmnode.objects.message_table import LONGEST_MESSAGE_LABEL
from qmnode.objects.rows import Changes, Door, Property, is_none
from qmnode.objects.table import QUEUE
from qmnode.structures.guid import ZERO_GUID, Guid, guid_from_text, guid_to_text
from qmnode.structures.names import utf16_length

if TYPE_CHECKING:
    from qmnode.model.queue import ConnectionAttempt

Model = TypeVar("Model", bound=BaseModel)

_GUID: Final = r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
GUID_PATTERN: Final = rf"^({_GUID}|\{{{_GUID}\}})$"
GUID_EXAMPLE: Final = "7d3f1c52-9c2e-4b53-8a0f-0d6f3c1a2b4e"


def shown(row: Property, value: Any) -> Any:
    """A value as documents have it. Texts without a value are empty, as in the first release."""
    written = row.form.write(value)
    return "" if written is None and row.default == "" else written


def _taken(row: Property, value: Any) -> Any:
    if isinstance(value, bool) and row.form.type is int:
        raise ValueError("a number is wanted, not true or false")
    if not row.form.nullable or not is_none(value):
        if row.form.unit == "KB" and isinstance(value, str) and not value.strip().isdecimal():
            raise ValueError(f"{value!r:.80} is no number of KB: write one, or null for none")
        return value
    return "" if row.default == "" else None


def _checked(row: Property, written: Any) -> Any:
    form, fault = row.form, None
    try:
        if form.nullable and form.type is int and written is not None and written > form.most:
            raise ValueError(f"the most is {form.most}, and null is none")
        fault = row.fault(form.read(written))
    except ValueError as error:
        fault = f"{written!r:.80}: {error}"
    if fault:
        raise ValueError(fault)
    return written


def _schema(row: Property) -> dict[str, Any]:
    """The limits of a value for its schema."""
    form = row.form
    if form.type is int:
        return {"minimum": form.least, "maximum": form.most}
    if isinstance(row.default, bytes):
        return {"pattern": GUID_PATTERN, "examples": [GUID_EXAMPLE]}
    return {} if form.type is not str or form.most is None else {"maxLength": form.most}


def _kind(row: Property) -> Any:
    kind = row.form.names or row.form.type
    return kind if not row.form.nullable or row.default == "" else kind | None


def settings(rows: Iterable[Property]) -> dict[str, Any]:
    """Fields of a request that sets these properties: a value that a property cannot have is refused with its words."""
    return {
        row.name: (
            Annotated[_kind(row), BeforeValidator(partial(_taken, row)), AfterValidator(partial(_checked, row))],
            Field(default=shown(row, row.default), description=row.description, json_schema_extra=_schema(row)),
        )
        for row in rows
    }


def answers(rows: Iterable[Property]) -> dict[str, Any]:
    """Fields of an answer that shows these properties, with whatever value they have."""
    return {
        row.name: (
            _kind(row),
            Field(default=shown(row, row.default) if row.added else ..., description=row.description),
        )
        for row in rows
    }


def described(rows: Iterable[Property], **example: Any) -> Callable[[dict[str, Any]], None]:
    """Extend the schema of a document about messages: sentences and ranges of the fields that are properties."""
    by_key = {row.key or row.name: row for row in rows}

    def extend(schema: dict[str, Any]) -> None:
        for key, field in schema["properties"].items():
            row = by_key.get(key)
            if row is not None:
                field.setdefault("description", row.sentence)
                if example and field.get("type") == "integer":
                    field |= {"minimum": row.form.least, "maximum": row.form.most}
        if example:
            schema["example"] = example

    return extend


def with_fields(fields: Mapping[str, Any]) -> Callable[[type[Model]], type[Model]]:
    """Decorate a document: these fields come after its own."""

    def extended(document: type[Model]) -> type[Model]:
        return create_model(
            document.__name__, __base__=document, __module__=document.__module__, __doc__=document.__doc__, **fields
        )

    return extended


LOOKUP_PATTERN: Final = r"^(0x[0-9A-Fa-f]{1,16}|[0-9]{1,19})$"
ORDERS: Final = r".\private$\orders"

LookupText = Annotated[
    str,
    Field(
        pattern=LOOKUP_PATTERN,
        description="Lookup identifier: hexadecimal with 0x, or decimal",
        examples=["0x400000000000012"],
    ),
]


def lookup_text(lookup_identifier: int) -> str:
    return f"{lookup_identifier:#x}"


def lookup_from_text(text: str) -> int:
    """The other way round, for what LOOKUP_PATTERN takes. ValueError for numbers of more than 64 bits."""
    number = int(text, 16) if text.startswith("0x") else int(text)
    if number >= 1 << 64:
        raise ValueError("a lookup identifier has 64 bits")
    return number


def identifier_text(identifier: bytes) -> str:
    r"""A message identifier (OBJECTID, MS-MQMQ 2.2.8) as Message Queuing writes it: ``GUID\number``."""
    return f"{guid_to_text(Guid(identifier[:16]))}\\{int.from_bytes(identifier[16:20], 'little')}" if identifier else ""


def identifier_from_text(text: str) -> bytes:
    """The other way round; also from 40 hexadecimal digits. ValueError for anything else."""
    guid, separator, number = text.partition("\\")
    try:
        if separator:
            return guid_from_text(guid) + int(number).to_bytes(4, "little")
        content = bytes.fromhex(text)
    except (ValueError, OverflowError):
        content = b""
    if len(content) != 20:
        raise ValueError(
            f"{text!r} is no message identifier, such as 7d3f1c52-9c2e-4b53-8a0f-0d6f3c1a2b4e\\65537, "
            "and has not 40 hexadecimal digits"
        )
    return content


def guid_or_none(value: bytes) -> str | None:
    return guid_to_text(Guid(value)) if value and value != ZERO_GUID else None


def quota_or_none(value: int) -> int | None:
    """A quota in KB, or seconds; None for infinite."""
    return None if value == INFINITE else value


def time_or_none(seconds: float) -> datetime | None:
    """A time from seconds since 1970 (UTC); None for 0 and for what is no time."""
    try:
        return datetime.fromtimestamp(seconds, UTC) if seconds else None
    except (ValueError, OverflowError, OSError):  # beyond the year 9999: of a damaged message
        return None


def _label(text: str) -> str:
    if (length := utf16_length(text)) > LONGEST_MESSAGE_LABEL:
        raise ValueError(f"at most {LONGEST_MESSAGE_LABEL} UTF-16 units, and this has {length}")
    return text


MessageLabel = Annotated[str, AfterValidator(_label), Field(json_schema_extra={"maxLength": LONGEST_MESSAGE_LABEL})]


class Document(BaseModel):
    """The base of all documents: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid")

    @classmethod
    def from_attributes(cls, source: object, /, **others: Any) -> Self:
        """Make the document from the attributes of the same names, and from these values of other fields."""
        return cls(**{name: getattr(source, name) for name in cls.model_fields if name not in others}, **others)


_ROWS: Final = [row for row in QUEUE.at(Door.NODE) if row.is_written]


@with_fields(settings(row for row in _ROWS if row.changes is Changes.ALWAYS))
class QueueSettings(Document):
    """The properties of a queue that may be changed. Omitted ones stay as they are; a quota of null is no limit."""

    def properties(self) -> QueueProperties:
        """The values that were set, as the model takes them."""
        given = self.model_dump(exclude_unset=True, exclude={"name"})
        return cast("QueueProperties", {name: QUEUE[name].form.read(value) for name, value in given.items()})


@with_fields(settings(row for row in _ROWS if row.changes is Changes.ONCE))
class NewQueue(QueueSettings):
    """A queue to be created."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"name": "orders", "label": "Orders", "transactional": True, "journaling": True, "quota": 102400}
        }
    )

    name: str = Field(
        min_length=1,
        max_length=512,
        description=r"Path name; without computer and backslash it is a private queue",
        examples=["orders", ORDERS],
    )


@with_fields(answers(_ROWS))
class NamedQueue(Document):
    """The names of a queue, and its properties."""

    pathname: str = Field(examples=[r"ALPHA\private$\orders"])
    format_name: str = Field(examples=[r"DIRECT=OS:ALPHA\private$\orders"])
    queue_type: QueueType
    identifier: str | None


class WaitingDocument(Document):
    """The reason why messages wait, or why a queue refused the last ones."""

    reason: WaitReason
    sentence: str = Field(
        description="The same in words, with the names of machines",
        examples=["BETA, 10.0.0.2: Connection refused"],
    )
    queue: str = Field(description="Path name of the queue that holds or refused them; empty for the whole node")
    machine: str = Field(description="The machine that is waited for, or that refuses", examples=["BETA"])
    since: datetime | None = Field(description="When the first attempt failed, or the state began")
    next_try: datetime | None = Field(description="When the node tries again by itself; null: not, or not known")
    messages: int = Field(description="In the queue")
    step: str = Field(description="What to do", examples=["start the node of BETA"])

    @classmethod
    def of(cls, waiting: Waiting) -> Self:
        """Make the document from the object of the model."""
        return cls.from_attributes(waiting, since=time_or_none(waiting.since), next_try=time_or_none(waiting.next_try))


class ProbeDocument(Document):
    """The result of a probe: a heartbeat that the node sends to a queue, and expects to come through."""

    name: str
    queue: str
    expects: str = Field(description="`received` or `answered`")
    healthy: bool | None = Field(description="Whether the last one came through; null before the first has ended")
    reason: str = Field(description="A reason for waiting, or `link`: it went over others; empty if it came through")
    sentence: str
    step: str = Field(description="What to do")
    since: datetime | None = Field(description="When that began")
    last_success: datetime | None
    seconds: float = Field(description="From the sending of the last that came through to its acknowledgment or answer")
    sent: int
    missed: int

    @classmethod
    def of(cls, state: dict[str, Any]) -> Self:
        """Make the document from the result."""
        times = {name: time_or_none(state[name]) for name in ("since", "last_success")}
        return cls(**{name: state[name] for name in cls.model_fields} | times)


class WaitingList(Document):
    """The reasons why messages wait on this node, by queue."""

    waiting: list[WaitingDocument] = Field(description="A thousand at most")


class QueueDocument(NamedQueue):
    """A queue as it is now."""

    create_time: datetime | None
    modify_time: datetime | None
    message_count: int
    total_bytes: int
    journal_message_count: int
    journal_total_bytes: int
    active: bool = Field(description="Whether somebody has it open")
    subqueues: list[str]
    state: str | None = Field(description="Of an outgoing queue (MS-MQDMPR 3.1.1.3); `on hold` of any that is paused")
    next_hops: list[str]
    reason: str | None = Field(default=None, description="The sentence of `waiting`")
    waiting: WaitingDocument | None = Field(
        default=None,
        description="What the messages of an outgoing queue wait for, or why a queue refused the last message from "
        "elsewhere; null: nothing keeps them",
    )
    oldest_arrival: datetime | None = Field(
        default=None, description="When the message that has waited longest arrived at the node"
    )
    journal_oldest_arrival: datetime | None = Field(default=None, description="The same of its journal")

    @classmethod
    def of(cls, queue: QueueInformation) -> Self:
        """Make the document from the object of the model."""
        return cls.from_attributes(
            queue,
            identifier=guid_or_none(queue.identifier),
            create_time=time_or_none(queue.create_time),
            modify_time=time_or_none(queue.modify_time),
            oldest_arrival=time_or_none(queue.oldest_arrival or 0),
            journal_oldest_arrival=time_or_none(queue.journal_oldest_arrival or 0),
            state=queue.state or None,
            reason=queue.reason or None,
            waiting=WaitingDocument.of(queue.waiting) if queue.waiting is not None else None,
            **{row.name: shown(row, getattr(queue, row.name)) for row in _ROWS},
        )


class QueueList(Document):
    """Some queues, in the order of their path names."""

    queues: list[QueueDocument]
    next: str | None = Field(default=None, description="If there are more: 'after' of the next request")


class BridgeDocument(Document):
    """A bridge to an AMQP peer. Counts are since the start of the node."""

    name: str
    direction: str = Field(examples=["out"])
    queue: str
    peer: str = Field(examples=["amqps://broker.example:5671"])
    address: str
    connected: bool
    since: float = Field(description="When it was connected, or lost the connection: seconds since 1970 (UTC)")
    reason: str = Field(description="Why it is not connected; empty while it is")
    carried: int = Field(description="Messages that arrived and are gone from where they came from")
    repeated: int = Field(description="Copies that may be duplicates, since a connection was lost before")
    rejected: int = Field(description="Messages that the receiving side refused for good")
    failures: int


class RangeDocument(Document):
    """A range of messages that a restored copy of a store does not have, or has again."""

    peer: str = Field(description="Identifier of the queue manager that showed it; empty for this node's own")
    queue: str = Field(description="Format name of the queue")
    sequence: str = Field(description="Identifier of the transactional sequence, hexadecimal")
    first: int
    last: int
    state: str = Field(description="lost, unknown, or again")


class RemoteCopyDocument(Document):
    """The copy of the store elsewhere. Times are in seconds since 1970 (UTC)."""

    to: str = Field(description="Folder, or bucket with prefix")
    lag_seconds: float = Field(description="Seconds of accepted work that the copy does not give back")
    lag_bytes: int = Field(description="Bytes of the log that are not shipped")
    moment: float = Field(description="The last moment that can be restored; 0: none")
    base: float = Field(description="When its last base was made; 0: none")
    failure: str = Field(description="Why the last attempt to write it failed; empty if it succeeded")


class FailoverDocument(Document):
    """A queue manager that one of several hosts runs at a time."""

    host: str = Field(description="The host that is active: this one")
    hosts: list[str] = Field(description="The hosts that may be active")
    since: float = Field(description="When it took over, in seconds since 1970 (UTC)")
    token: int = Field(description="Number of the take-over")
    before: str = Field(description="The host that was active before; empty: none")
    lease: float = Field(description="Seconds that a renewal lasts")
    lease_left: float = Field(description="Seconds until the kernel kills the node unless its lease is renewed")
    renewed_by: str = Field(description="The file of the cluster manager; empty: the node renews its lease itself")
    standbys: list[str] = Field(description="A line of the cluster manager about each other host")
    violations: list[str] = Field(description="Signs that two hosts were active at once")


class WaitingSummary(Document):
    """The reason why messages of several queues wait. Times are in seconds since 1970 (UTC), 0: not known."""

    reason: WaitReason
    machine: str
    sentence: str = Field(description="Of one of the queues")
    since: float
    next_try: float
    step: str
    queues: int
    messages: int


class ShareDocument(Document):
    """The use of one bounded resource. Kinds of party: own, declared, stranger."""

    unit: str = Field(description="bytes or places")
    total: int
    reserve: int = Field(description="Units of the total that strangers cannot take")
    used: dict[str, int] = Field(description="Units in use, by kind of party")
    refused: dict[str, int] = Field(description="Refusals since start, by kind of party")


class NodeDocument(Document):
    """The queue manager as a whole."""

    computer_name: str = Field(examples=["ALPHA"])
    identifier: str
    version: str
    online: bool
    queue_count: int
    outgoing_queue_count: int
    message_count: int
    total_bytes: int
    dead_letter_count: int
    transaction_count: int
    in_doubt_count: int
    warnings: list[str] = Field(default=[], description="What does not work now; the node does the rest")
    storage_failure: str | None = Field(
        default=None, description="Why nothing can be stored now; null: the disk takes writes"
    )
    disk_free_bytes: int = 0
    disk_bytes: int = Field(default=0, description="Size of the file system of the store")
    lost_writes: int = Field(
        default=0, description="Records that were synced and were gone at a start of the last days"
    )
    tls_mode: str | None = Field(
        default=None, description="How the node speaks with others: offer, prefer or require; null: without TLS"
    )
    settings_read: float = Field(
        default=0.0,
        description="When a reload read the settings that are in effect, in seconds since 1970; 0: none did",
    )
    plain_peers: list[str] = Field(default=[], description="Machines that are declared to speak in clear")
    amqp_port: int = Field(default=0, description="Port of the AMQP door; 0: it is closed")
    amqp_connections: int = 0
    amqp_links: int = Field(default=0, description="Links of programs to queues over AMQP")
    bridges: list[BridgeDocument] = Field(default=[], description="Bridges to AMQP peers, by name")
    event_loop: str = Field(default="", description="What the node runs on: asyncio or uvloop")
    ready: bool = Field(default=True, description="Whether every door that the settings open answers")
    directory: str = Field(
        default="", description="joined; not joined; not confirmed: it does not answer; empty without one"
    )
    routing: dict[str, Any] = Field(
        default={},
        description="The properties of the node in the directory that routing uses, as declarations name them: "
        "`sites`, `routing_server` and so on; empty without a directory, and until it was read",
    )
    local_settings: dict[str, Any] = Field(
        default={},
        description="`addresses` with `addresses_source`, and `bridges` by name with the source of each: document, "
        "settings or default; `addresses_settings` and `bridges_settings`: those of node.yaml, even if they lose",
    )
    shares: dict[str, ShareDocument] = Field(
        default={}, description="Bounded resources by name, as docs/reference/shares.md lists them"
    )
    weakened_security: bool = Field(
        default=False,
        description="Whether public queues are written to the directory with the node's own credentials, even where a "
        "caller has some",
    )
    weakened_security_source: str = Field(default="", description="directory or default")
    remote_copy: RemoteCopyDocument | None = Field(
        default=None, description="The copy of the store elsewhere; null without one"
    )
    failover: FailoverDocument | None = Field(
        default=None, description="For a queue manager that one of several hosts runs at a time; null for others"
    )
    waiting: list[WaitingSummary] = Field(
        default=[], description="What messages wait for, by reason and machine; `/v1/waiting` has it by queue"
    )
    probes: list[ProbeDocument] = Field(default=[], description="The heartbeats that this node sends")
    after_restore: dict[str, list[RangeDocument]] = Field(
        default={},
        description="For a week after the first start on a restored copy: ranges of messages by kind. `identifiers` of "
        "this node that may exist elsewhere, `received` from peers and lost here, `sent` that peers have already",
    )

    @classmethod
    def of(cls, status: NodeStatus, version: str) -> Self:
        """Make the document from the object of the model."""
        return cls.from_attributes(
            status,
            identifier=guid_to_text(status.identifier),
            version=version,
            storage_failure=status.storage_failure or None,
            tls_mode=status.tls_mode or None,
            bridges=[BridgeDocument.from_attributes(bridge) for bridge in status.bridges],
            remote_copy=RemoteCopyDocument(**status.remote_copy) if status.remote_copy else None,
            failover=FailoverDocument(**status.failover) if status.failover else None,
            waiting=[WaitingSummary(**one) for one in status.waiting],
            probes=[ProbeDocument.of(one) for one in status.probes],
        )


class QuotaDocument(Document):
    """Quotas and their use: limits in KB, use in bytes."""

    quota: int | None = Field(description="KB, of all queues together; null: no limit")
    quota_used: int = Field(description="Bytes")
    journal_quota: int | None
    journal_quota_used: int
    throttled: bool
    journal_copies_dropped: int = Field(description="Since start, for want of room in a journal")
    quota_source: str = Field(default="", description="Where it comes from: directory, settings or default")
    journal_quota_source: str = ""
    default_time_to_live: int = Field(default=0, description="Seconds to reach a queue, of messages that name no other")
    default_time_to_live_source: str = Field(default="", description="directory or default")
    quota_settings: dict[str, int | None] = Field(
        default={}, description="The quotas that node.yaml sets, whether they hold or not: quota, journal_quota"
    )

    @classmethod
    def of(cls, status: NodeStatus) -> Self:
        """Make the document from the object of the model."""
        quota, journal_quota = quota_or_none(status.quota), quota_or_none(status.journal_quota)
        own = {name: quota_or_none(value) for name, value in status.quota_settings.items()}
        return cls.from_attributes(status, quota=quota, journal_quota=journal_quota, quota_settings=own)


class AttemptDocument(Document):
    """One attempt to connect to the next hop of an outgoing queue."""

    status: str = Field(examples=["established", "connection_refused"])
    time: datetime | None
    error: str | None = Field(description="The HRESULT", examples=["0xC00E0090"])
    addresses: list[str]

    @classmethod
    def of(cls, attempt: "ConnectionAttempt") -> Self:
        """Make the document from the object of the model."""
        error = f"0x{attempt.error:08X}" if attempt.error else None
        name, time = attempt.status.name.lower(), time_or_none(attempt.time)
        return cls.from_attributes(attempt, status=name, time=time, error=error)


class ConnectionHistory(Document):
    """Attempts to connect, the last one last (ConnectionHistory, MS-MQDMPR 3.1.1.3)."""

    attempts: list[AttemptDocument]


class TransactionDocument(Document):
    """A transaction that has not ended."""

    identifier: str
    state: str = Field(examples=["active", "prepared"])
    in_doubt: bool
    operation_count: int
    queues: list[str]

    @classmethod
    def of(cls, transaction: TransactionInformation) -> Self:
        """Make the document from the object of the model."""
        return cls.from_attributes(transaction, identifier=guid_to_text(transaction.identifier))


class ConnectionDocument(Document):
    """A connection to another queue manager."""

    address: str
    state: str
    incoming: bool
    queue_manager_identifier: str | None
    established: datetime | None
    sent_messages: int
    received_messages: int
    sent_bytes: int
    received_bytes: int
    unacknowledged_messages: int
    encrypted: bool = Field(default=False, description="Whether it is TLS")

    @classmethod
    def of(cls, connection: ConnectionInformation) -> Self:
        """Make the document from the list of connections."""
        return cls.from_attributes(
            connection,
            queue_manager_identifier=guid_or_none(connection.queue_manager_identifier),
            established=time_or_none(connection.established),
        )
