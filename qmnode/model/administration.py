"""What administrators ask of a queue manager, beside its queues: its state, its transactions, a copy of its store."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from qmnode.structures.guid import ZERO_GUID, Guid


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """The queue manager as a whole (MS-MQDMPR 3.1.1.1). Quotas are in KB, 0xFFFFFFFF is none; use is in bytes."""

    computer_name: str
    identifier: Guid
    online: bool
    """ConnectionActive: whether messages go to and come from other machines."""
    queue_count: int
    """Queues that somebody created: private and public ones, without subqueues."""
    outgoing_queue_count: int
    message_count: int
    """Messages of all queues, journals and dead-letter queues among them."""
    total_bytes: int
    dead_letter_count: int
    """Messages in both dead-letter queues."""
    quota: int
    quota_used: int
    journal_quota: int
    journal_quota_used: int
    throttled: bool
    """Whether no queue takes messages, since the store has failed."""
    transaction_count: int
    in_doubt_count: int
    """Always 0: there are no transactions of coordinators. Kept for programs that read it."""
    journal_copies_dropped: int
    """Copies that did not go to a journal, since start, because its quota had no room."""
    warnings: tuple[str, ...] = ()
    """What does not work now, in sentences; the node does the rest."""
    storage_failure: str = ""
    """Why nothing can be stored now: the disk is full or fails. The node takes and gives nothing until it works."""
    disk_free_bytes: int = 0
    disk_bytes: int = 0
    """Size of the file system that the store is on; 0 if it does not say."""
    lost_writes: int = 0
    """Records that were synced and were gone at a start of the last days: see the warnings."""


@dataclass(frozen=True, slots=True)
class StorageCondition:
    """How the store is: what :class:`NodeStatus` says of it."""

    failure: str = ""
    free_bytes: int = 0
    total_bytes: int = 0
    lost_writes: int = 0


@dataclass(frozen=True, slots=True)
class TransactionInformation:
    """A transaction that has not ended (3.1.1.14)."""

    identifier: Guid
    state: str
    """``active`` or ``prepared``."""
    in_doubt: bool
    """Prepared, and its outcome is a coordinator's to say: it holds what it holds, across restarts, until then."""
    operation_count: int
    queues: tuple[str, ...]
    """Path names of the queues that it sends to, receives from or moves between."""


class SequencePlace(NamedTuple):
    """SEQUENCE_INFO, MS-MQMQ 2.2.5."""

    sequence_identifier: int
    number: int
    previous: int


@dataclass(frozen=True, slots=True)
class TransferInformation:
    """How far the transactional messages of an outgoing queue are: OutgoingTransferInfo, 3.1.1.4."""

    next: SequencePlace
    """EodNextSeq: the place of the next message that is sent to the queue."""
    last_acknowledged: SequencePlace | None = None
    """EodLastAck."""
    last_acknowledged_time: float = 0
    """EodLastAckTime: seconds since 1970, 0 for never."""
    acknowledgment_count: int = 0
    """EodLastAckCount: order acknowledgments since the start of the node."""
    unacknowledged_count: int = 0
    """EodNoAckCount: messages that were sent and wait for their order acknowledgment."""
    first_unacknowledged: SequencePlace | None = None
    """EodFirstNonAck."""
    last_unacknowledged: SequencePlace | None = None
    """EodLastNonAck."""
    unread_count: int = 0
    """EodNoReadCount: messages that arrived and wait for their final acknowledgment."""
    resend_count: int = 0
    """EodResendCount: how often in a row they were sent again without progress."""
    resend_interval: int = 0
    """EodResendInterval: seconds."""
    resend_time: float = 0
    """EodResendTime: seconds since 1970, 0 while nothing waits for an acknowledgment."""


@dataclass(frozen=True, slots=True)
class IncomingSequenceInformation:
    """A sequence of transactional messages that come to a queue (IncomingTransactionalTransferInfo, 3.1.1.5)."""

    source: Guid
    """The queue manager that sends them."""
    destination: str
    """The format name by which it knows the queue: each has a sequence of its own."""
    address: str
    """Of the neighbour that brought the last one."""
    sequence_identifier: int
    """IncomingTxSequenceID."""
    number: int
    """IncomingTxSequenceNumber: of the last message that was accepted."""
    reject_count: int
    """RejectCount: how many came since then, and were not accepted because they came again, or too early."""
    last_access_time: int
    """LastAccessTime: when the last one came, seconds since 1970."""
    is_known: bool = True
    """Whether the neighbours that brought them are known to speak for the source; if not, it has a place of its own."""
    refused_count: int = 0
    """How many were not taken since the node started: they came again, too early, or while others spoke."""


@dataclass(frozen=True, slots=True)
class ConnectionInformation:
    """A connection to another queue manager: a session of MS-MQQB."""

    address: str
    """Of the other side: host and port."""
    state: str
    incoming: bool
    """Whether the other side began it."""
    queue_manager_identifier: Guid = ZERO_GUID
    established: float = 0.0
    """Seconds since 1970 (UTC); 0 while it is not."""
    sent_messages: int = 0
    received_messages: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    unacknowledged_messages: int = 0


class ConnectionList(Protocol):
    """The port through which whoever keeps connections shows them."""

    def connections(self) -> Sequence[ConnectionInformation]:
        """Those that there are now."""


class AdministrationApi(ABC):
    """What an administrator does with a queue manager. Part of :class:`qmnode.model.api.QueueManagerApi`."""

    @abstractmethod
    async def status(self) -> NodeStatus:
        """How the queue manager is now."""

    @abstractmethod
    async def set_online(self, online: bool) -> None:
        """Bring Online or Take Offline (3.1.4.12, 3.1.4.13): whether messages go to and come from other machines.

        Messages for others wait in outgoing queues meanwhile. It lasts until it is said again, or the node stops.
        """

    @abstractmethod
    async def list_transactions(self) -> list[TransactionInformation]:
        """The transactions that have not ended, oldest first."""

    @abstractmethod
    async def queue_security(self, name: str) -> bytes:
        """The self-relative security descriptor of a queue, by path name or format name; empty when it has none."""

    @abstractmethod
    async def incoming_sequences(self, name: str = "") -> list[IncomingSequenceInformation]:
        """The sequences of transactional messages that come to a queue from other queue managers: those that were used
        last first, a thousand at most. Without a name, those of all queues."""

    @abstractmethod
    async def reset_incoming_sequences(self, source: bytes, name: str = "", address: str = "") -> int:
        """Forget how far the sequences of a queue manager are: the next message of each is taken from wherever it
        stands, as long as it begins a sequence. ``name`` is a queue, ``address`` that of a neighbour that is not known
        to speak for the source; without them all. How many there were.

        Messages that the source has not seen acknowledged will be delivered twice.
        """

    @abstractmethod
    async def backup(self, path: str | Path) -> None:
        """Write a consistent copy of the store to a new directory, which only the node's user can read.

        The copy can be opened as a node: it knows that it is a copy, and skips message identifiers that the original
        may have given out since. MQ_ERROR_MESSAGE_STORAGE_FAILED if it cannot be written.
        """
