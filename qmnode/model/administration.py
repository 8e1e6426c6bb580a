"""Administration of a queue manager as a whole: its status, its transactions, a backup of its store."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from qmnode.structures.guid import ZERO_GUID, Guid

if TYPE_CHECKING:
    from qmnode.model.waiting_reasons import Waiting


@dataclass(frozen=True, slots=True)
class RefusedMessages:
    """Messages of one sender that a queue refused for one reason, since the node started."""

    reason: int
    """A class of MS-MQMQ 2.2.20.1."""
    standing: str
    """Of the sender, for NACK_ACCESS_DENIED: a :class:`~qmnode.model.traffic.Standing`; else empty."""
    source: Guid
    """The queue manager that sent them, as the packets say."""
    address: str
    """The address of the neighbour that brought the last one."""
    claimed_sender: bytes
    """The SID that the packets name, or empty."""
    count: int
    size: int
    """Bytes of the packets."""
    first_time: float
    """Seconds since 1970 (UTC)."""
    last_time: float


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """The status of the queue manager (MS-MQDMPR 3.1.1.1). Quotas are in KB, 0xFFFFFFFF means none; use is in bytes."""

    computer_name: str
    identifier: Guid
    online: bool
    """ConnectionActive: whether the node exchanges messages with other machines."""
    queue_count: int
    """Queues that users created: private and public ones, without subqueues."""
    outgoing_queue_count: int
    message_count: int
    """Messages in all queues, including journals and dead-letter queues."""
    total_bytes: int
    dead_letter_count: int
    """Messages in the two dead-letter queues together."""
    quota: int
    quota_used: int
    journal_quota: int
    journal_quota_used: int
    throttled: bool
    """Whether all queues refuse messages because the store has failed."""
    transaction_count: int
    in_doubt_count: int
    """Always 0: there are no transactions of coordinators. Kept for programs that read it."""
    journal_copies_dropped: int
    """Copies that were not added to a journal, since start, because its quota had no room."""
    warnings: tuple[str, ...] = ()
    """Current faults, in sentences; everything else works."""
    storage_failure: str = ""
    """Why nothing can be stored, or received, now: the disk is full or fails."""
    disk_free_bytes: int = 0
    disk_bytes: int = 0
    """Size of the file system that holds the store; 0 if unknown."""
    lost_writes: int = 0
    """Synced records that were found missing at a start in the last days: see the warnings."""
    tls_mode: str = ""
    """``security.tls.mode``: how the node speaks with others; empty without TLS."""
    plain_peers: tuple[str, ...] = ()
    """Machines that are declared to speak in clear (``security.tls.plain_peers``)."""
    amqp_port: int = 0
    """Port of the AMQP door; 0 if it is closed."""
    amqp_connections: int = 0
    amqp_links: int = 0
    """Links of programs to queues, over all connections."""
    settings_read: float = 0.0
    """When a reload read the settings that are in effect, in seconds since 1970; 0 if none did. A reload that leaves
    settings for a restart does not count."""
    bridges: tuple["BridgeInformation", ...] = ()
    """The bridges to AMQP peers, by name."""
    event_loop: str = ""
    """The event loop that the node runs on: ``asyncio`` or ``uvloop``."""
    ready: bool = True
    """Whether every door that the settings open answers; a node that starts answers for its status before that."""
    directory: str = ""
    """``joined``, ``not joined``, or ``not confirmed`` while it is down, for a node with a directory."""
    after_restore: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """For a week after the first start on a restored copy: the ranges of messages that are lost, unknown, or come
    again, by kind (``identifiers``, ``received``, ``sent``) and peer."""
    quota_source: str = ""
    """Where the quota comes from: ``directory``, ``settings`` or ``default``."""
    journal_quota_source: str = ""
    default_time_to_live: int = 0
    """Seconds that a message which names no other time has to reach its queue."""
    default_time_to_live_source: str = ""
    quota_settings: dict[str, int] = field(default_factory=dict)
    """The quotas that the settings of the node set, whether they hold or not: ``quota``, ``journal_quota``; KB."""
    routing: dict[str, Any] = field(default_factory=dict)
    """The properties of the node in the directory that routing uses, as declarations name them: ``sites``,
    ``routing_server`` and so on; empty without a directory, and until it was read."""
    shares: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The bounded resources: :meth:`qmnode.shares.Accountant.summary`."""
    weakened_security: bool = False
    """Whether public queues are written to the directory with the node's own credentials, even where a caller has some
    (MS-MQDMPR 3.1.1.6)."""
    weakened_security_source: str = ""
    local_settings: dict[str, Any] = field(default_factory=dict)
    """Addresses and bridges in effect: ``addresses`` with ``addresses_source``, and ``bridges`` by name with the source
    of each: ``document``, ``settings`` or ``default``. ``addresses_settings`` and ``bridges_settings`` are those of
    ``node.yaml``, whether they hold or not."""
    remote_copy: dict[str, Any] = field(default_factory=dict)
    """The copy of the store elsewhere: ``to``, ``lag_seconds`` and ``lag_bytes`` behind the store, the last ``moment``
    that can be restored and the last ``base`` (seconds since 1970, 0: none), ``failure``. Empty without one."""
    failover: dict[str, Any] = field(default_factory=dict)
    """Of a queue manager that several hosts can run, else empty: see FailoverDocument of the management API."""
    waiting: tuple[dict[str, Any], ...] = ()
    """The reasons why messages wait, by reason and machine: :func:`qmnode.model.waiting_reasons.summary`."""
    report_queue: str = ""
    """``tracing.report_queue``: the public queue for reports on traced messages that name none."""
    probes: tuple[dict[str, Any], ...] = ()
    """The results of probes: :class:`qmnode.administration.probes.State`."""


@dataclass(slots=True)
class BridgeInformation:
    """A bridge to an AMQP peer as it is now. Counts are since the start of the node."""

    name: str
    direction: str
    """``out`` to the peer, or ``in`` from it."""
    queue: str
    peer: str
    address: str
    connected: bool = False
    since: float = 0.0
    """When it was connected, or lost the connection: seconds since 1970 (UTC)."""
    reason: str = ""
    """Why it is not connected; empty while it is."""
    carried: int = 0
    """Messages that have arrived and are gone from where they came from."""
    repeated: int = 0
    """Messages carried that may have been carried before: duplicates, or not."""
    rejected: int = 0
    """Messages that the receiving side refused for good: dead letters."""
    failures: int = 0
    """Connections and attempts that failed."""


@dataclass(slots=True)
class AmqpCounts:
    """The AMQP door in numbers: connections and links as they are now, all else since its start."""

    port: int = 0
    connections: int = 0
    links: int = 0
    accepted: int = 0
    """Messages that programs sent and the queues took."""
    rejected: int = 0
    delivered: int = 0
    """Messages sent to programs; one that was returned and sent again counts twice."""
    taken: int = 0
    """Messages that programs accepted outside transactions."""
    refused_connections: int = 0
    """Connections closed at once: too many, or without proof of identity."""
    bridges: dict[str, BridgeInformation] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StorageCondition:
    """The condition of the store, as :class:`NodeStatus` shows it."""

    failure: str = ""
    free_bytes: int = 0
    total_bytes: int = 0
    lost_writes: int = 0
    failed_since: float = 0.0
    """Seconds since 1970 (UTC)."""


@dataclass(frozen=True, slots=True)
class TransactionInformation:
    """A transaction that has not ended (3.1.1.14)."""

    identifier: Guid
    state: str
    """Either ``active`` or ``prepared``."""
    in_doubt: bool
    """Prepared, and waiting for its coordinator's decision: it keeps its messages until then, across restarts."""
    operation_count: int
    queues: tuple[str, ...]
    """Path names of the queues that it sends to, receives from or moves between."""


class SequencePlace(NamedTuple):
    """A place in a sequence: SEQUENCE_INFO, MS-MQMQ 2.2.5."""

    sequence_identifier: int
    number: int
    previous: int


@dataclass(frozen=True, slots=True)
class TransferInformation:
    """Progress of an outgoing queue's transactional messages: OutgoingTransferInfo, 3.1.1.4."""

    next: SequencePlace
    """EodNextSeq: the place of the next message that is sent to the queue."""
    last_acknowledged: SequencePlace | None = None
    """EodLastAck: the place of the last acknowledged message."""
    last_acknowledged_time: float = 0
    """EodLastAckTime: seconds since 1970, 0 for never."""
    acknowledgment_count: int = 0
    """EodLastAckCount: order acknowledgments since the start of the node."""
    unacknowledged_count: int = 0
    """EodNoAckCount: messages that were sent and wait for their order acknowledgment."""
    first_unacknowledged: SequencePlace | None = None
    """EodFirstNonAck: the place of the first message without an order acknowledgment."""
    last_unacknowledged: SequencePlace | None = None
    """EodLastNonAck: the place of the last message without an order acknowledgment."""
    unread_count: int = 0
    """EodNoReadCount: messages that arrived and wait for their final acknowledgment."""
    resend_count: int = 0
    """EodResendCount: consecutive resends without progress."""
    resend_interval: int = 0
    """EodResendInterval: seconds between resends."""
    resend_time: float = 0
    """EodResendTime: seconds since 1970, 0 while nothing waits for an acknowledgment."""


@dataclass(frozen=True, slots=True)
class IncomingSequenceInformation:
    """An incoming sequence of transactional messages for a queue (IncomingTransactionalTransferInfo, 3.1.1.5)."""

    source: Guid
    """The queue manager that sends the messages."""
    destination: str
    """The format name by which the source addresses the queue: each name has a sequence of its own."""
    address: str
    """The address of the neighbour that delivered the last message."""
    sequence_identifier: int
    """IncomingTxSequenceID: the identifier of the sequence."""
    number: int
    """IncomingTxSequenceNumber: of the last message that was accepted."""
    reject_count: int
    """RejectCount: messages refused since then, because they were repeated or came too early."""
    last_access_time: int
    """LastAccessTime: when the last message arrived, seconds since 1970."""
    is_known: bool = True
    """Whether the delivering neighbours speak for the source; if not, the sequence has a state of its own."""
    refused_count: int = 0
    """Messages refused since the start: repeated, too early, or from a neighbour while another one was active."""
    waiting: "Waiting | None" = None
    """The reason why the queue refused the last message from elsewhere."""


@dataclass(frozen=True, slots=True)
class ConnectionInformation:
    """A connection to another queue manager: a session of MS-MQQB."""

    address: str
    """Host and port of the peer."""
    state: str
    incoming: bool
    """Whether the peer opened the connection."""
    queue_manager_identifier: Guid = ZERO_GUID
    established: float = 0.0
    """Seconds since 1970 (UTC); 0 while it is not established."""
    sent_messages: int = 0
    received_messages: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    unacknowledged_messages: int = 0
    encrypted: bool = False
    """Whether it is TLS."""


class ConnectionList(Protocol):
    """The port through which the network shows its connections."""

    def connections(self) -> Sequence[ConnectionInformation]:
        """All connections that are open now."""


class AdministrationApi(ABC):
    """The administrative operations of a queue manager. Part of :class:`qmnode.model.api.QueueManagerApi`."""

    @abstractmethod
    async def status(self) -> NodeStatus:
        """The current status of the queue manager."""

    @abstractmethod
    async def set_online(self, online: bool) -> None:
        """Bring Online or Take Offline (3.1.4.12, 3.1.4.13): start or stop exchanging messages with other machines.

        While offline, messages for other machines wait in outgoing queues. The choice holds until it is changed or the
        node stops.
        """

    @abstractmethod
    async def list_transactions(self) -> list[TransactionInformation]:
        """The transactions that have not ended, oldest first."""

    @abstractmethod
    async def queue_security(self, name: str) -> bytes:
        """The self-relative security descriptor of a queue, by path name or format name; empty if it has none."""

    @abstractmethod
    async def account_names(self, security_identifiers: Sequence[str]) -> dict[str, str | None]:
        """The names of users and groups by their SIDs (``S-1-...``).

        An empty name is for a SID that nobody has here: an entry of an access list for it lets nobody in. None is for
        one that the directory cannot look up now.
        """

    @abstractmethod
    async def queue_manager_security(self) -> bytes:
        """The self-relative security descriptor of the queue manager itself, with rights of MS-MQMQ 2.2.23."""

    @abstractmethod
    async def set_queue_manager_security(self, security: bytes) -> None:
        """Give the queue manager itself another security descriptor, for administrators."""

    @abstractmethod
    async def incoming_sequences(self, name: str = "") -> list[IncomingSequenceInformation]:
        """The incoming sequences of transactional messages from other queue managers to a queue, or to all queues
        without a name: a thousand at most, the most recently used first.
        """

    @abstractmethod
    async def refused_messages(self, name: str) -> list[RefusedMessages]:
        """The messages from other queue managers that a queue refused since the node started, by sender and reason:
        the 64 refused last, those first. 256 queues are remembered.
        """

    @abstractmethod
    async def waiting(self, machine: str = "", link: str = "") -> "list[Waiting]":
        """The reasons why messages wait on this node, by queue; empty if nothing keeps any. At most 1,000.

        ``machine``: only of messages that go to or through the machine of this computer name; the node's own name for
        all of them. ``link``: only of messages that go over the routing link to the site of this name.
        """

    @abstractmethod
    async def reset_incoming_sequences(self, source: bytes, name: str = "", address: str = "") -> int:
        """Forget the position of a queue manager's incoming sequences and return how many there were.

        The next message of each is accepted at any number, as long as it begins a sequence. ``name`` is a queue,
        ``address`` that of a neighbour not known to speak for the source; omit them to reset all. Messages whose
        acknowledgment the source has not seen will be delivered twice.
        """

    @abstractmethod
    async def backup(self, path: str | Path) -> None:
        """Write a consistent copy of the store to a new directory that only the node's user can read.

        The copy can be opened as a node: it knows that it is a copy, and skips message identifiers that the original
        may have used since. Raises MQ_ERROR_MESSAGE_STORAGE_FAILED if it cannot be written.
        """
