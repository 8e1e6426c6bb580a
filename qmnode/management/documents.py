"""What travels as JSON: requests and answers of the management API, and the ``--json`` of the command line.

Names are those of the data model. Quotas are in KB and null is none; times are UTC; lookup identifiers are
hexadecimal text, since their 64 bits do not fit the numbers of every JSON reader. Keys are added, never changed.
"""

import base64
import binascii
from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Self, cast

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from qmnode.administration.dead_letters import reason
from qmnode.administration.names import queue_name
from qmnode.bodies.choice import encode, read_headers
from qmnode.bodies.limits import DEFAULT_LIMITS, Limits
from qmnode.bodies.plain import plain
from qmnode.bodies.typed_text import value_of_json
from qmnode.model.administration import ConnectionInformation, NodeStatus, TransactionInformation
from qmnode.model.api import QueueInformation, QueueProperties, QueueType
from qmnode.model.message import INFINITE, Message
from qmnode.model.outgoing import ConnectionAttempt
from qmnode.structures.errors import PacketError
from qmnode.structures.guid import ZERO_GUID, Guid, guid_from_text, guid_to_text
from qmnode.structures.message_security import SenderIdentifierType
from qmnode.structures.queue_attributes import QueuePrivacyLevel
from qmnode.structures.sid import Sid

_GUID: Final = r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
GUID_PATTERN: Final = rf"^({_GUID}|\{{{_GUID}\}})$"
LOOKUP_PATTERN: Final = r"^(0x[0-9A-Fa-f]{1,16}|[0-9]{1,19})$"
ORDERS: Final = r".\private$\orders"

GuidText = Annotated[str, Field(pattern=GUID_PATTERN, examples=["7d3f1c52-9c2e-4b53-8a0f-0d6f3c1a2b4e"])]
LookupText = Annotated[
    str,
    Field(
        pattern=LOOKUP_PATTERN,
        description="Lookup identifier: hexadecimal with 0x, or decimal",
        examples=["0x400000000000012"],
    ),
]
Quota = Annotated[int, Field(ge=0, lt=INFINITE, description="KB; null: no limit", examples=[1024])]


def lookup_text(lookup_identifier: int) -> str:
    """A lookup identifier as text."""
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


def _guid_or_none(value: bytes) -> str | None:
    return guid_to_text(Guid(value)) if value and value != ZERO_GUID else None


def _quota(value: int) -> int | None:
    return None if value == INFINITE else value


def _time(seconds: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, UTC) if seconds else None
    except (ValueError, OverflowError, OSError):  # beyond the year 9999: of a damaged message
        return None


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Privacy(StrEnum):
    """PrivacyLevel of a queue: whether bodies must, may or must not be encrypted on their way."""

    NONE = "none"
    OPTIONAL = "optional"
    BODY = "body"


class QueueSettings(_Document):
    """What may be changed of a queue. What is left out stays as it is; a quota of null is no limit."""

    label: str = Field(default="", max_length=124)
    type: GuidText | None = Field(default=None, description="Type of service; Message Queuing gives it no meaning")
    journaling: bool = Field(default=False, description="Copies of received messages go to the queue's journal")
    quota: Quota | None = None
    journal_quota: Quota | None = None
    authentication: bool = Field(default=False, description="Only messages with a signature are taken")
    privacy_level: Privacy = Privacy.OPTIONAL
    multicast_address: str = Field(default="", max_length=64)
    base_priority: int = Field(default=0, ge=-0x8000, le=0x7FFF)

    def properties(self) -> QueueProperties:
        """What was set, as the model takes it."""
        values: dict[str, Any] = self.model_dump(exclude_unset=True, exclude={"name"})
        for name in ("quota", "journal_quota"):
            if name in values and values[name] is None:
                values[name] = INFINITE
        if "type" in values:
            values["type"] = guid_from_text(values["type"]) if values["type"] else ZERO_GUID
        if "privacy_level" in values:
            values["privacy_level"] = QueuePrivacyLevel[self.privacy_level.name]
        return cast("QueueProperties", values)


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
    transactional: bool = False


class QueueDocument(_Document):
    """A queue as it is now."""

    pathname: str = Field(examples=[r"ALPHA\private$\orders"])
    format_name: str = Field(examples=[r"DIRECT=OS:ALPHA\private$\orders"])
    queue_type: QueueType
    identifier: str | None
    label: str
    type: str | None
    transactional: bool
    journaling: bool
    quota: int | None
    journal_quota: int | None
    authentication: bool
    privacy_level: Privacy
    multicast_address: str
    base_priority: int
    create_time: datetime | None
    modify_time: datetime | None
    message_count: int
    total_bytes: int
    journal_message_count: int
    journal_total_bytes: int
    active: bool = Field(description="Whether somebody has it open")
    subqueues: list[str]
    state: str | None = Field(description="Of an outgoing queue (MS-MQDMPR 3.1.1.3)")
    next_hops: list[str]

    @classmethod
    def of(cls, queue: QueueInformation) -> Self:
        """From the model."""
        return cls(
            pathname=queue.pathname,
            format_name=queue.format_name,
            queue_type=queue.queue_type,
            identifier=_guid_or_none(queue.identifier),
            label=queue.label,
            type=_guid_or_none(queue.type),
            transactional=queue.transactional,
            journaling=queue.journaling,
            quota=_quota(queue.quota),
            journal_quota=_quota(queue.journal_quota),
            authentication=queue.authentication,
            privacy_level=Privacy[QueuePrivacyLevel(queue.privacy_level).name],
            multicast_address=queue.multicast_address,
            base_priority=queue.base_priority,
            create_time=_time(queue.create_time),
            modify_time=_time(queue.modify_time),
            message_count=queue.message_count,
            total_bytes=queue.total_bytes,
            journal_message_count=queue.journal_message_count,
            journal_total_bytes=queue.journal_total_bytes,
            active=queue.active,
            subqueues=list(queue.subqueues),
            state=queue.state or None,
            next_hops=list(queue.next_hops),
        )


class QueueList(_Document):
    """Some queues, in the order of their path names."""

    queues: list[QueueDocument]
    next: str | None = Field(default=None, description="If there are more: 'after' of the next request")


class BodyForm(StrEnum):
    """How bodies are shown."""

    NONE = "none"
    BASE64 = "base64"
    TEXT = "text"
    DECODED = "decoded"
    """As text, if it is; and as the value that it has in its format, with the headers in the extension."""


class TextEncoding(StrEnum):
    """How text becomes bytes. Applications on Windows that send strings use UTF-16."""

    UTF8 = "utf-8"
    UTF16 = "utf-16-le"


VT_BSTR: Final = 8
VT_LPWSTR: Final = 31
_UTF16_BODY_TYPES: Final = frozenset({VT_BSTR, VT_LPWSTR})


def is_utf16(body_type: int) -> bool:
    """Whether bodies of this type are text in UTF-16."""
    return body_type in _UTF16_BODY_TYPES


class NewMessage(_Document):
    """A message to send: with its body as base64 or as text, or with none."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"text": '{"order": 7}', "label": "order 7", "recoverable": True}}
    )

    base64: str | None = Field(default=None, description="Body, as base64", examples=["b3JkZXIgNw=="])
    text: str | None = Field(default=None, description="Body, as text")
    encoding: TextEncoding = TextEncoding.UTF8
    value: Any = Field(
        default=None, description="Body, as a value that `format` writes", examples=[{"Order": {"Id": 7}}]
    )
    format: str | None = Field(
        default=None,
        max_length=40,
        description="How `value` is written: xml, activex, wcf, json, text, nservicebus, rebus, or a body type",
        examples=["xml", "VT_BSTR"],
    )
    headers: dict[str, str] | None = Field(default=None, description="Headers of the formats nservicebus and rebus")
    label: str = Field(default="", max_length=249)
    recoverable: bool = Field(default=True, description="Survives a restart. Transactional messages always do")
    priority: int = Field(default=3, ge=0, le=7, description="Messages of transactions all have 0")
    body_type: int = Field(default=0, ge=0, le=0xFFFFFFFF, description="VARENUM constant (MS-MQMQ 2.2.12)")
    app_specific: int = Field(default=0, ge=0, le=0xFFFFFFFF)
    correlation_identifier: str | None = Field(
        default=None, pattern=r"^[0-9A-Fa-f]{40}$", description="20 bytes, hexadecimal"
    )
    extension: str | None = Field(default=None, description="Bytes beside the body, as base64", examples=["AAEC"])
    acknowledgements_requested: int = Field(
        default=0, ge=0, le=0x0F, description="Bits: 1 arrival, 2 receipt, 4 no arrival, 8 no receipt"
    )
    administration_queue: str | None = Field(default=None, max_length=512, description="Format name")
    response_queue: str | None = Field(default=None, max_length=512, description="Format name")
    journal: bool = Field(default=False, description="Keep a copy in this node's journal when it has been sent")
    dead_letter: bool = Field(default=False, description="Keep it as a dead letter if it does not arrive")
    dead_letter_queue: str | None = Field(
        default=None, max_length=256, description="Queue of this node that keeps it then", examples=["undelivered"]
    )
    time_to_reach_queue: int | None = Field(default=None, ge=0, lt=INFINITE, description="Seconds")
    time_to_be_received: int | None = Field(default=None, ge=0, lt=INFINITE, description="Seconds")

    @field_validator("base64", "extension")
    @classmethod
    def _is_base64(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                base64.b64decode(value, validate=True)
            except (binascii.Error, ValueError) as error:
                raise ValueError(f"not base64: {error}") from None
        return value

    @model_validator(mode="after")
    def _has_one_body(self) -> Self:
        if self.base64 is not None and self.text is not None:
            raise ValueError("a body is base64 or text, not both")
        if self.format is None and (self.headers or self.value is not None):
            raise ValueError("value and headers need a format")
        if self.format is not None:
            self._check_format(self.format)
        return self

    def _check_format(self, name: str) -> None:
        if self.base64 is not None or self.text is not None or self.body_type:
            raise ValueError(
                "a format writes the value, and chooses the body type: leave out base64, text and body_type"
            )
        made = encode(value_of_json(self.value, name), name, headers=self.headers)
        if made.extension and self.extension:
            raise ValueError(f"the format {name} puts headers into the extension: leave it out")

    def body(self) -> bytes:
        """The body's bytes."""
        if self.base64 is not None:
            return base64.b64decode(self.base64)
        return (self.text or "").encode(self.encoding, "surrogatepass")

    def message(self) -> Message:
        """As the model takes it."""
        message = Message(self.body(), body_type=self.body_type)
        if self.format is not None:
            value = value_of_json(self.value, self.format)
            message = Message.from_value(value, format=self.format, headers=self.headers)
        message = message.copy(
            label=self.label,
            recoverable=self.recoverable,
            priority=self.priority,
            app_specific=self.app_specific,
            acknowledgements_requested=self.acknowledgements_requested,
            administration_queue_format_name=self.administration_queue or "",
            response_queue_format_name=self.response_queue or "",
            positive_journaling_requested=self.journal,
            negative_journaling_requested=self.dead_letter,
        )
        if self.dead_letter_queue:
            message.application_dead_letter_queue = queue_name(self.dead_letter_queue)
        if self.extension:
            message.extension = base64.b64decode(self.extension)
        if self.correlation_identifier:
            message.correlation_identifier = bytes.fromhex(self.correlation_identifier)
        if self.time_to_reach_queue is not None:
            message.time_to_reach_queue = self.time_to_reach_queue
        if self.time_to_be_received is not None:
            message.time_to_be_received = self.time_to_be_received
        return message


class MessageDocument(_Document):
    """A message in a queue, or received from one."""

    lookup_identifier: str = Field(examples=["0x400000000000012"])
    identifier: str = Field(examples=[r"7d3f1c52-9c2e-4b53-8a0f-0d6f3c1a2b4e\65537"])
    label: str
    body_size: int
    base64: str | None = Field(default=None, description="Body, if it was asked for and is not shown as text")
    text: str | None = Field(default=None, description="Body, if text was asked for and it is text")
    body_type: int
    priority: int
    recoverable: bool
    transactional: bool
    message_class: str = Field(description="Of a dead letter, the reason why it is one")
    app_specific: int
    correlation_identifier: str | None
    sent_time: datetime | None
    arrival_time: datetime | None
    destination: str = Field(description="Format name of the queue that it was sent to")
    administration_queue: str | None
    response_queue: str | None
    time_to_reach_queue: int | None
    time_to_be_received: int | None
    dead_letter_queue: str | None = Field(default=None, description="Path name, if its sender named one")
    aborted_receives: int
    extension_size: int = Field(default=0, description="Bytes beside the body")
    extension: str | None = Field(default=None, description="Those bytes as base64, if the body was asked for")
    authenticated: bool = Field(default=False, description="Whether its signature proved who sent it")
    sender: str | None = Field(default=None, description="SID of who is proved to have sent it")
    claimed_sender: str | None = Field(default=None, description="SID that it names as its sender without any proof")
    unreadable: str | None = Field(
        default=None, description="Why the packet could not be read whole; what could not be read has its default"
    )
    packet: str | None = Field(
        default=None, description="All of an unreadable message, as base64, if its body was asked for"
    )

    format: str | None = Field(
        default=None, description="Format of the body, if decoded was asked for: xml, binary, wcf, VT_BSTR ..."
    )
    decoded: Any = Field(default=None, description="The body as a value, if decoded was asked for and it has one")
    undecoded: str | None = Field(default=None, description="Why it has none, though decoded was asked for")
    headers: dict[str, str] | None = Field(default=None, description="Those in the extension, if decoded was asked for")
    headers_format: str | None = Field(default=None, description="Whose headers they are", examples=["nservicebus"])

    @classmethod
    def of(cls, message: Message, body: BodyForm = BodyForm.NONE, limits: Limits = DEFAULT_LIMITS) -> Self:
        """From the model."""
        correlation = message.correlation_identifier
        document = cls(
            lookup_identifier=lookup_text(message.lookup_identifier),
            identifier=identifier_text(message.identifier),
            label=message.label,
            body_size=len(message.body),
            body_type=message.body_type,
            priority=message.priority,
            recoverable=message.recoverable,
            transactional=message.transactional,
            message_class=reason(message),
            app_specific=message.app_specific,
            correlation_identifier=correlation.hex() if any(correlation) else None,
            sent_time=_time(message.sent_time),
            arrival_time=_time(message.arrival_time),
            destination=message.destination_queue_format_name,
            administration_queue=message.administration_queue_format_name or None,
            response_queue=message.response_queue_format_name or None,
            time_to_reach_queue=_quota(message.time_to_reach_queue),
            time_to_be_received=_quota(message.time_to_be_received),
            dead_letter_queue=message.application_dead_letter_queue or None,
            aborted_receives=message.aborted_receives,
            extension_size=len(message.extension),
            authenticated=bool(message.authentication_level),
            sender=_sender(message),
            claimed_sender=_sid(message.claimed_sender),
            unreadable=message.unreadable or None,
        )
        if message.unreadable and body is not BodyForm.NONE:
            document.packet = base64.b64encode(message.packet).decode()
        if body is BodyForm.DECODED:
            document._decode(message, limits)
        if body in (BodyForm.TEXT, BodyForm.DECODED):
            document.text = body_text(message)
        if body is not BodyForm.NONE and document.text is None:
            document.base64 = base64.b64encode(message.body).decode()
        if body is not BodyForm.NONE and message.extension:
            document.extension = base64.b64encode(message.extension).decode()
        return document

    def _decode(self, message: Message, limits: Limits) -> None:
        decoded, headers = message.decoded(limits=limits), read_headers(message.extension, limits=limits)
        self.format = decoded.format or None
        self.decoded = plain(decoded.value)
        self.undecoded = "; ".join(filter(None, (decoded.reason, headers.reason))) or None
        if headers.format:
            self.headers, self.headers_format = dict(plain(headers.values)), headers.format


def _sender(message: Message) -> str | None:
    if not message.authentication_level or message.sender_identifier_type != SenderIdentifierType.SID:
        return None
    return _sid(message.sender_identifier)


def _sid(encoded: bytes) -> str | None:
    try:
        return str(Sid.parse(encoded))
    except PacketError:
        return None


def body_text(message: Message) -> str | None:
    """The body as text, if it is."""
    encoding = "utf-16-le" if is_utf16(message.body_type) else "utf-8"
    try:
        return message.body.decode(encoding)
    except UnicodeDecodeError:
        return None


class MessageList(_Document):
    """Messages in the order of delivery."""

    messages: list[MessageDocument]
    next: str | None = Field(default=None, description="If there may be more: 'after' of the next request")

    @classmethod
    def of(
        cls,
        messages: Iterable[Message],
        body: BodyForm,
        limit: int | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> Self:
        """From the model; ``limit`` is how many were asked for, ``limits`` what decoding each may cost."""
        documents = [MessageDocument.of(message, body, limits) for message in messages]
        more = limit is not None and len(documents) == limit and limit > 0
        return cls(messages=documents, next=documents[-1].lookup_identifier if more else None)


class NodeDocument(_Document):
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

    @classmethod
    def of(cls, status: NodeStatus, version: str) -> Self:
        """From the model."""
        names = cls.model_fields.keys() - {"identifier", "version", "storage_failure"}
        values: dict[str, Any] = {name: getattr(status, name) for name in names}
        failure = status.storage_failure or None
        return cls(identifier=guid_to_text(status.identifier), version=version, storage_failure=failure, **values)


class QuotaDocument(_Document):
    """How much is stored, and how much may be: limits in KB, use in bytes."""

    quota: int | None = Field(description="KB, of all queues together; null: no limit")
    quota_used: int = Field(description="Bytes")
    journal_quota: int | None
    journal_quota_used: int
    throttled: bool
    journal_copies_dropped: int = Field(description="Since start, for want of room in a journal")

    @classmethod
    def of(cls, status: NodeStatus) -> Self:
        """From the model."""
        return cls(
            quota=_quota(status.quota),
            quota_used=status.quota_used,
            journal_quota=_quota(status.journal_quota),
            journal_quota_used=status.journal_quota_used,
            throttled=status.throttled,
            journal_copies_dropped=status.journal_copies_dropped,
        )


class AttemptDocument(_Document):
    """One attempt to connect to the next hop of an outgoing queue."""

    status: str = Field(examples=["established", "connection_refused"])
    time: datetime | None
    error: str | None = Field(description="The HRESULT", examples=["0xC00E0090"])
    addresses: list[str]

    @classmethod
    def of(cls, attempt: ConnectionAttempt) -> Self:
        """From the model."""
        return cls(
            status=attempt.status.name.lower(),
            time=_time(attempt.time),
            error=f"0x{attempt.error:08X}" if attempt.error else None,
            addresses=list(attempt.addresses),
        )


class ConnectionHistory(_Document):
    """Attempts to connect, the last one last (ConnectionHistory, MS-MQDMPR 3.1.1.3)."""

    attempts: list[AttemptDocument]


class TransactionDocument(_Document):
    """A transaction that has not ended."""

    identifier: str
    state: str = Field(examples=["active", "prepared"])
    in_doubt: bool
    operation_count: int
    queues: list[str]

    @classmethod
    def of(cls, transaction: TransactionInformation) -> Self:
        """From the model."""
        return cls(
            identifier=guid_to_text(transaction.identifier),
            state=transaction.state,
            in_doubt=transaction.in_doubt,
            operation_count=transaction.operation_count,
            queues=list(transaction.queues),
        )


class ConnectionDocument(_Document):
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

    @classmethod
    def of(cls, connection: ConnectionInformation) -> Self:
        """From whoever keeps them."""
        names = cls.model_fields.keys() - {"queue_manager_identifier", "established"}
        values: dict[str, Any] = {name: getattr(connection, name) for name in names}
        return cls(
            queue_manager_identifier=_guid_or_none(connection.queue_manager_identifier),
            established=_time(connection.established),
            **values,
        )
