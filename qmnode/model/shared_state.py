"""State that the parts of a queue manager share: its store, clock, identity, quotas, names and numbers.

Every part gets this object instead of the queue manager, which limits and documents the state that it can reach.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from qmnode.model.ports import AccessPolicy, Arrived, Clock, Entry, MessageStore, Signing, TransitEnd
from qmnode.model.positions import LANE_SHIFT, Expiry, Ordinal, ReadAhead
from qmnode.model.quotas import NoticeBudget, Quotas
from qmnode.model.traced_messages import Traced
from qmnode.model.traffic import Traffic
from qmnode.settings.node import Settings
from qmnode.shares import OWN, Accountant, Party
from qmnode.structures.guid import Guid, new_guid

if TYPE_CHECKING:
    from qmnode.model.administration import IncomingSequenceInformation, TransferInformation
    from qmnode.model.api import Access
    from qmnode.model.duplicates import Duplicates
    from qmnode.model.leaving_queue import Outcomes
    from qmnode.model.queue import OutgoingQueue, Queue
    from qmnode.model.queue_collection import Names, QueueCollection
    from qmnode.model.retries import Retries
    from qmnode.model.transaction import Transaction
    from qmnode.model.waiting_reasons import Waiting
    from qmnode.structures.names import FormatName

_NODE: Final = "queue_manager"
MESSAGE_IDENTIFIER: Final = "message_identifier"
SEQUENTIAL_IDENTIFIER: Final = "sequential_identifier"


class Recorder(Protocol):
    """Records the events of messages. Each record is written in the batch of its event."""

    @property
    def writes(self) -> bool:
        """Whether there are such records: then a message that a reader waits for is stored as well."""

    def inserted(self, queue: "Queue", entries: Sequence[Entry]) -> None:
        """Messages arrived in a queue."""

    def deleted(self, queue: "Queue", entries: Sequence[Entry], reason: int) -> None:
        """Messages left their queue for this reason (a class of MS-MQMQ 2.2.20.1)."""

    def handed_on(self, queue: "Queue", entries: Sequence[Arrived]) -> None:
        """Messages arrived that waiting readers took at once. Only a recorder that does not write sees such ones."""

    def transferred(self, queue: "Queue", entries: Sequence[Entry]) -> None:
        """The next hop has messages: they left their outgoing queue."""

    def refused(self, packet: bytes, reason: int) -> None:
        """A packet that arrived was refused."""

    def key_used(self, packet: bytes, fingerprint: str) -> None:
        """A packet that arrived was decrypted with this key of the node."""

    def session(self, opened: bool, *, peer: str, peer_identifier: bytes, incoming: bool, state: str = "") -> None:
        """A session was opened or closed."""

    def queue_state(self, queue: "Queue", state: str, peer: str, cause: str = "", detail: str = "") -> None:
        """The state of an outgoing queue changed; ``cause`` and ``detail`` say why it has no session."""

    def heartbeat(self, probe: str, queue: str, sent: float, reason: str, sentence: str) -> None:
        """A heartbeat that a probe sent to a queue came through, or was missed for a reason."""


class Network(Protocol):
    """Sessions with other queue managers (MS-MQQB)."""

    def next_numbers(self, queue: "OutgoingQueue", count: int) -> tuple[int, int]:
        """TxSequenceID and TxSequenceNumber of the next transactional message of an outgoing queue (3.1.7.1.3);
        ``count`` messages have the numbers from that one on.

        The record is in the current batch.
        """

    def waiting_of(self, queue: "Queue") -> "Waiting | None":
        """The reason why the messages of a queue wait, or why it refuses messages; None if nothing keeps them."""

    def came(self, source: "Guid", number: int) -> bool:
        """Whether the message with this identifier came here from elsewhere lately."""

    def sites_of(self, machine: "Guid") -> set[str]:
        """The sites of a queue manager, in lower case; none if the directory does not say it."""

    def name_of(self, machine: "Guid") -> str:
        """The computer name of a queue manager; empty if the directory does not say it."""

    def waiting(self, machine: str = "", link: str = "") -> "list[Waiting]":
        """The same of all queues, of those that lead to or over a machine, or over a routing link."""

    def is_awaited(self, queue: "OutgoingQueue") -> bool:
        """Whether an order acknowledgment for messages of this queue is pending (MS-MQQB 3.1.5.6)."""

    def transfer_information(self, queue: "OutgoingQueue") -> "TransferInformation":
        """The progress of its transactional messages (OutgoingTransferInfo, 3.1.1.4)."""

    def incoming_sequences(self, queue: "Queue | None") -> "list[IncomingSequenceInformation]":
        """The incoming sequences of a queue, or of any, the most recently used first
        (IncomingTransactionalTransferInfo, 3.1.1.5).
        """

    def reset_incoming_sequences(self, source: "Guid", queue: "Queue | None", address: str) -> int:
        """Forget the incoming sequences of a queue manager, to one queue or any, through one neighbour or any. Return
        how many there were.
        """

    def queue_added(self, queue: "OutgoingQueue") -> None:
        """Begin to send for a new outgoing queue."""

    def queue_removed(self, queue: "OutgoingQueue") -> None:
        """Stop sending for an outgoing queue that was deleted with its messages."""

    def paused(self, queue: "OutgoingQueue") -> None:
        """Pause Queue (MS-MQQB 3.1.7.13)."""

    def resumed(self, queue: "OutgoingQueue") -> None:
        """Resume Queue (MS-MQQB 3.1.7.14)."""

    def resend(self, queue: "OutgoingQueue") -> None:
        """Send transactional messages again that wait for their order acknowledgment (MS-MQMR 3.1.4.2, EOD_RESEND)."""

    def disconnect(self) -> None:
        """Take Offline (MS-MQDMPR 3.1.4.12): close every session, and open none."""

    def connect(self) -> None:
        """Bring Online (3.1.4.13): allow sessions again."""

    def transit_end(self, value: bytes) -> TransitEnd:
        """When another queue manager's message expires in transit here, as far as is known now: at its time to reach
        its queue, or before that when the wait for a machine unknown to the directory ends.
        """

    def gave_up(self, queue: "OutgoingQueue", value: bytes) -> bool:
        """Report that another queue manager's message ends here in transit. Return whether it is the first copy to end:
        a message that was sent again may be here several times, and must be reported once.
        """

    def message_left(self, value: bytes, reason: int) -> None:
        """Message Position Deleted (MS-MQQB 3.1.7.2), for another queue manager's transactional message: it left its
        queue for this reason (a class of MS-MQMQ 2.2.20.1), and its source may wait for the notification.
        """


class QueueOpening(Protocol):
    """Finds the queues of names, and checks who may open them (:class:`qmnode.model.opening.Opening`)."""

    def find(self, name: "FormatName", access: "Access", *, party: Party = OWN, caller: object = None) -> "Queue":
        """The queue of a name: an outgoing one is created if need be."""

    def may_open(self, queue: "Queue", access: "Access", caller: object) -> bool:
        """Whether the security descriptor of a queue lets the caller open it."""


class Context:
    """The queue manager as its parts see it."""

    __slots__ = (
        "_handle", "_transaction_number", "access_policy", "clock", "computer_name", "duplicates", "expiry",
        "identifier", "is_new", "machine_security", "names", "network", "notices", "opening", "ordinal", "outcomes",
        "queues", "quotas", "read_ahead", "recorder", "retries", "sequence", "settings", "shares", "signing", "store",
        "time_to_reach_queue", "touched", "traced", "traffic", "transactions",
    )  # fmt: skip

    names: "Names"
    queues: "QueueCollection"
    """QueueCollection, 3.1.1.1: all queues."""
    opening: QueueOpening
    is_new: bool
    """Whether the store was made just now."""
    duplicates: "Duplicates"
    expiry: "Expiry"
    outcomes: "Outcomes"
    retries: "Retries"

    def __init__(
        self,
        store: MessageStore,
        settings: Settings,
        clock: Clock,
        computer_name: str,
        access_policy: AccessPolicy | None,
        recorder: Recorder | None,
    ) -> None:
        """The queue manager sets the parts that need the context themselves (names to outcomes)."""
        self.store = store
        self.settings = settings
        self.clock = clock
        self.computer_name = computer_name
        self.access_policy = access_policy
        """The access policy; None allows every operation to every user."""
        self.machine_security = b""
        """The queue manager's own descriptor, also for outgoing queues."""
        self.recorder = recorder
        self.network: Network | None = None
        """Sessions with other queue managers; None in a queue manager that only keeps messages."""
        self.signing: Signing | None = None
        """Signs the messages of applications; None in a queue manager that has no keys."""
        self.traced = Traced(settings.tracing)
        """The rules by which messages of applications are traced."""
        self.shares = Accountant()
        """The accounts of all bounded resources."""
        self.quotas = Quotas(settings.quotas)
        self.time_to_reach_queue: int | None = None
        """Seconds that the directory gives to messages which name none (DefaultTimeToLive, 3.1.1.6); None: the default.
        """
        self.notices = NoticeBudget(settings.quotas, self.shares)
        self.traffic = Traffic(clock.time)
        self.read_ahead = ReadAhead(settings.read_ahead)
        self.ordinal = Ordinal(store, MESSAGE_IDENTIFIER, 32, settings.storage.identifier_block)
        self.sequence = Ordinal(store, SEQUENTIAL_IDENTIFIER, LANE_SHIFT, settings.storage.identifier_block)
        self.identifier = self._load_identifier()
        self.transactions: dict[Guid, Transaction] = {}
        """Transactions that have not ended, the oldest first."""
        self.touched: list[Queue] = []
        """Queues whose counters go into the next batch."""
        self._handle = 0
        self._transaction_number = 0

    def _load_identifier(self) -> Guid:
        record = self.store.get_meta(_NODE)
        self.is_new = record is None
        if record is not None:
            return Guid(bytes.fromhex(json.loads(record)["identifier"]))
        identifier = new_guid()
        self.adopt_identifier(identifier)
        return identifier

    def adopt_identifier(self, identifier: Guid) -> None:
        """Use another identifier from now on, and after a restart."""
        self.identifier = identifier
        self.store.put_meta(_NODE, json.dumps({"identifier": identifier.hex()}).encode())
        self.store.flush()

    def next_handle(self) -> int:
        """A number that no other open queue, cursor or transaction of this queue manager has."""
        self._handle += 1
        return self._handle

    def next_transaction_number(self) -> int:
        """Identifies a transaction in its messages (TransactionHeader.Flags.ID, 20 bits)."""
        self._transaction_number = self._transaction_number + 1 & 0xFFFFF or 1
        return self._transaction_number
