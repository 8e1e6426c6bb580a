"""Where a received message goes, and the outcome for a batch of them: the types around ``reception``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto, unique
from typing import NamedTuple

from qmnode.protocol.acknowledgments import AdministrationAcknowledgment, FinalAcknowledgment
from qmnode.protocol.incoming_sequences import Gap, IncomingSequence
from qmnode.protocol.neighbour import Neighbour
from qmnode.protocol.received import DestinationName, ReceivedMessage
from qmnode.protocol.records import Record
from qmnode.protocol.tracing import TraceReport
from qmnode.structures.acks import FinalAckBody, OrderAckBody
from qmnode.structures.base_header import INFINITE
from qmnode.structures.guid import Guid
from qmnode.structures.message_classes import MessageClass
from qmnode.structures.packet_view import Packet


@unique
class DestinationKind(Enum):
    """The kind of place that a destination name resolves to."""

    LOCAL = auto()
    """A queue of this queue manager."""
    FORWARD = auto()
    """An outgoing queue: the message is forwarded."""
    CONNECTOR = auto()
    """A connector queue: for the protocol the message ends here, and continues to a foreign system unchanged."""
    ORDER_QUEUE = auto()
    """This queue manager's order queue: order and final acknowledgments, for the protocol itself."""
    FULL = auto()
    """There is no room for an outgoing queue now: the message must come again."""
    UNKNOWN = auto()
    """This queue manager has no such queue."""


@unique
class Space(Enum):
    """Whether there is room for a message that has to wait."""

    FREE = auto()
    REPEATED = auto()
    """It is already waiting."""
    NONE = auto()


@dataclass(slots=True)
class Destination:
    """The caller's knowledge of a destination, one for each name and batch; ``room`` falls with accepted messages."""

    kind: DestinationKind
    queue: object = None
    """The caller's handle for the queue."""
    transactional: bool = False
    transactional_queue: object = None
    """The second queue of a connector, for transactional messages."""
    room: int | None = None
    """Bytes left under the queue's quota; None for no limit."""
    space: Callable[[ReceivedMessage], Space] | None = None
    """Called for each message to be forwarded without other objection; sets ``queue``. None: all are accepted."""
    until: int = INFINITE
    """The time, in seconds since 1970, until which forwarded messages may wait."""


class Verdict(NamedTuple):
    """The security verdict on one message (3.1.5.8.3)."""

    refused: MessageClass | None = None
    """The class of its negative acknowledgment."""
    packet: bytes | None = None
    """The packet to store instead: decrypted, with verified authentication bits."""
    silent: bool = False
    """Whether the refusal must not be acknowledged: that would show a stranger whether the body was decrypted."""


class Taken(NamedTuple):
    """An accepted message to store."""

    packet: Packet
    """As it is to be stored. A view only if ``received.packet`` is one."""
    destination: Destination
    received: ReceivedMessage


class OrderAckReceived(NamedTuple):
    """For ``OutgoingSequences.take_order_ack``. ``author`` is the queue manager that claims to have sent it."""

    author: Guid
    body: OrderAckBody


class FinalAckReceived(NamedTuple):
    """For ``OutgoingSequences`` and AwaitingFinalACKTable, see ``final_acks``."""

    author: Guid
    message_class: int
    body: FinalAckBody


@dataclass(slots=True)
class Admission:
    """The outcome for a batch. Everything in it goes into one write, in this order; then ``Reception.persisted``."""

    taken: list[Taken] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    dead_letters: list[tuple[bytes, MessageClass]] = field(default_factory=list)
    """Refused messages for the system dead-letter queue of this queue manager, with the reason."""
    administration: list[AdministrationAcknowledgment] = field(default_factory=list)
    final_acks: list[FinalAcknowledgment] = field(default_factory=list)
    traces: list[TraceReport] = field(default_factory=list)
    order_acks_received: list[OrderAckReceived] = field(default_factory=list)
    final_acks_received: list[FinalAckReceived] = field(default_factory=list)
    refused: list[tuple[ReceivedMessage, MessageClass]] = field(default_factory=list)
    """For the log: every refused message, with the reason."""
    failed: list[tuple[ReceivedMessage, Exception]] = field(default_factory=list)
    """For the log: refused messages that caused an unexpected error in this code."""
    duplicates: int = 0
    out_of_order: int = 0
    gaps: dict[IncomingSequence, Gap] = field(default_factory=dict)
    """Sequences whose messages came early, with the gap before them."""
    disowned: int = 0
    """Packets that claim to be from this queue manager, and are not believed."""
    contested: dict[Guid, int] = field(default_factory=dict)
    """By source: transactional messages that were not accepted because another neighbour is known to speak for it."""
    future: dict[Guid, int] = field(default_factory=dict)
    """By source: transactional messages of sequences whose time stamps are in the future."""
    elsewhere: Guid | None = None
    """A source known to be elsewhere, whose messages come to be forwarded, or unsigned. None is taken from here on."""
    unanswered: Guid | None = None
    """The same for a source whose addresses could not be found in time."""
    neighbour: Neighbour | None = None
    without_place: int = 0
    """The number of refused messages that begin a sequence for which there is no place: they wait at their source."""
    ordinal: int = 0
    recoverable_ordinal: int = 0
    """For ``Session.messages_settled``, once this and every earlier admission is synced."""
    stopped: bool = False
    """The queue manager is full (rStatus 2 of 3.1.5.8.8): settle, then close. The messages from here on come again."""
    sequences: dict[IncomingSequence, tuple[int, int]] = field(default_factory=dict)


class Target(NamedTuple):
    """The destination of the current message."""

    name: DestinationName
    destination: Destination


class Pass(NamedTuple):
    """Values that are the same for all messages of a batch."""

    admission: Admission
    now: float
    time: int
    neighbour: Neighbour
    verdicts: Mapping[int, Verdict]
