"""State that the parts of a queue manager share: its store, clock, identity, quotas, names and numbers.

Every part gets this object instead of the queue manager, which limits and documents the state that it can reach.
"""

import json
from typing import TYPE_CHECKING, Final

from qmnode.model.ports import AccessPolicy, Clock, MessageStore, Network, Recorder, Signing
from qmnode.model.positions import LANE_SHIFT, Expiry, Ordinal, ReadAhead
from qmnode.model.quotas import NoticeBudget, Quotas
from qmnode.model.traced import Traced
from qmnode.model.traffic import Traffic
from qmnode.settings.node import Settings
from qmnode.shares import Accountant
from qmnode.structures.guid import Guid, new_guid

if TYPE_CHECKING:
    from qmnode.model.duplicates import Duplicates
    from qmnode.model.opening import Opening
    from qmnode.model.outcomes import Outcomes
    from qmnode.model.queue import Queue
    from qmnode.model.queue_collection import Names, QueueCollection
    from qmnode.model.retries import Retries
    from qmnode.model.transaction import Transaction

_NODE: Final = "queue_manager"
MESSAGE_IDENTIFIER: Final = "message_identifier"
SEQUENTIAL_IDENTIFIER: Final = "sequential_identifier"


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
    opening: "Opening"
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
        self.traffic = Traffic(clock)
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
