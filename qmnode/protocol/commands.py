"""Commands of a session to its caller, and the messages it hands over: frozen, and one object per batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum, unique
from typing import TYPE_CHECKING, NamedTuple

from qmnode.protocol.wire import RemoteProtocolError
from qmnode.structures.enumerations import ConnectionStatus

if TYPE_CHECKING:
    from qmnode.protocol.received import ReceivedMessage
    from qmnode.structures.guid import Guid


Token = object
"""The caller's handle for an outgoing message; the session returns it and never inspects it."""


@unique
class CloseReason(Enum):
    """The reason why a session ended."""

    PROTOCOL_ERROR = "the peer broke the protocol"
    REFUSED = "the peer refused the session"
    REFUSED_HERE = "this side refused the session"
    INITIALIZATION_TIMEOUT = "the session was not established in time"
    IDLE = "nothing was sent or received for a whole cleanup interval"
    UNANSWERED = "sent messages were not acknowledged in time"
    DISCONNECTED = "the transport connection broke"
    STOPPED = "closed from this side"


@dataclass(frozen=True, slots=True)
class StatusChanged:
    """A line for the connection history of the outgoing queue: 3.1.5.2.3, 3.1.5.3.2, 3.1.5.4.2."""

    status: ConnectionStatus


@dataclass(frozen=True, slots=True)
class Opened:
    """The session is established; messages may go both ways. ``remote`` is the peer's claimed identifier."""

    remote: "Guid"
    window: int


@dataclass(frozen=True, slots=True)
class Closed:
    """The session is over: send the rest of ``data_to_send``, then close the transport connection.

    ``unacknowledged``: tokens of messages whose outcome is unknown, in the order in which they were sent. Send them
    again in the next session: the receiver removes duplicates.
    """

    reason: CloseReason
    unacknowledged: Sequence[Token] = ()
    error: RemoteProtocolError | None = None


@dataclass(frozen=True, slots=True)
class MessagesReceived:
    """UserMessage packets in order: give them to ``Reception.admit``, store, sync, ``messages_settled``, in turn."""

    messages: Sequence["ReceivedMessage"]


@dataclass(frozen=True, slots=True)
class MessagesAcknowledged:
    """The peer has these messages, and has the recoverable ones on disk (3.1.5.5).

    ``released``: delete. ``journaled``: move to the system journal queue (3.1.5.5.4). Transactional messages that this
    queue manager sent first are in ``received`` only: they stay until their order acknowledgment (3.1.5.6).
    """

    released: list[Token]
    journaled: list[Token]
    received: list[Token]


@dataclass(frozen=True, slots=True)
class MessagesExpired:
    """The time to reach the queue ended before these were sent (3.1.7.1.2): tokens and their packets."""

    tokens: Sequence[Token]
    packets: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class RoomAvailable:
    """The window opened: this many more messages may be handed to ``send_messages``."""

    count: int


Command = StatusChanged | Opened | Closed | MessagesReceived | MessagesAcknowledged | MessagesExpired | RoomAvailable


# ----------------------------------------------------------------------------------------------------------------------
# Records of the queue manager's transfer state on disk: bytes, written in the batch that they belong to.
#
# A record whose value is None is to be deleted. Keys are unique within their family; the store may prefix them.


@unique
class Family(IntEnum):
    """Kinds of records; a column family each, or a prefix."""

    INCOMING_SEQUENCE = 1
    """IncomingTxSequenceID, IncomingTxSequenceNumber and TxMessageRejectCount, 3.1.1.3.1."""
    OUTGOING_SEQUENCE = 2
    """OutgoingTxSequenceID and OutgoingTxSequenceNumber, 3.1.1.3.1."""
    SEQUENCE_IDENTIFIERS = 3
    """The last assigned TxSequenceID, one record."""
    MESSAGE_ID_HISTORY = 4
    """The pages of MessageIDHistoryTable, 3.1.1.3."""
    SEQUENCE_OWNER = 6
    """The queue manager that an outgoing sequence leads to: not of the specification."""
    PEER_TLS = 5
    """Peers that have shown that they speak TLS: not of the specification."""


class Record(NamedTuple):
    """Put (or with a value of None delete) ``key`` in ``family``."""

    family: Family
    key: bytes
    value: bytes | None
