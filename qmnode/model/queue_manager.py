"""QueueManager: MS-MQDMPR 3.1.1.1. The queues, the transactions, and opening, creating and deleting.

Everything runs in one event loop. What changes a message changes it in memory and in the store's current batch in the
same step, without waiting in between; only then does the caller wait for the batch.
"""

import json
from collections.abc import Sequence
from typing import Any, Final, Unpack, cast

from qmnode.directory.port import Directory
from qmnode.errors import MessageQueuingError
from qmnode.model.administrator import Administrator
from qmnode.model.api import (
    Access,
    InTransaction,
    QueueApi,
    QueueInformation,
    QueueManagerApi,
    QueueProperties,
    QueueType,
    Share,
)
from qmnode.model.batches import delete_queue
from qmnode.model.expiry import Expiry
from qmnode.model.message import Message
from qmnode.model.naming import Names
from qmnode.model.open_queue import OpenQueueDescriptor
from qmnode.model.opening import Opening, ResolveDistributionList
from qmnode.model.ordinals import MESSAGE_IDENTIFIER, SEQUENTIAL_IDENTIFIER, Ordinal
from qmnode.model.outcomes import Outcomes, PoisonPolicy, send_internally
from qmnode.model.outgoing import OutgoingQueue
from qmnode.model.ports import AccessPolicy, Clock, MessageStore, Network, Recorder, RemoteReader, Signing
from qmnode.model.positions import LANE_SHIFT, ReadAhead
from qmnode.model.published import PublishedQueues
from qmnode.model.queue import DEFAULT_PROPERTIES, Queue
from qmnode.model.queue_properties import check_properties
from qmnode.model.quotas import Quotas
from qmnode.model.traffic import Traffic
from qmnode.model.transaction import ExternalTransactions, ResourceManager, Transaction
from qmnode.settings.node import Settings
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import Guid, new_guid
from qmnode.structures.names import PathName, QueueKind

_NODE: Final = "queue_manager"
_FIRST_QUEUE_ID: Final = 64
_SYSTEM_QUEUES: Final = {
    # 3.1.3, created at initialization: number of the queue, local name, transactional.
    "dead_letter": (2, "SYSTEM$;DEADLETTER", False),
    "transactional_dead_letter": (4, "SYSTEM$;DEADXACT", True),
    "journal": (6, "SYSTEM$;JOURNAL", False),
    "order": (8, "PRIVATE$\\order_queue$", False),
    "notify": (10, "PRIVATE$\\notify_queue$", False),
    # AwaitingFinalACKTable of MS-MQQB 3.1.1.3: delivered, and their FinalAck has not come.
    "awaiting_final_ack": (12, "PRIVATE$\\awaiting_final_ack$", True),
}
_KINDS: Final = {
    QueueKind.PRIVATE: QueueType.PRIVATE,
    QueueKind.PUBLIC: QueueType.PUBLIC,
    QueueKind.SYSTEM: QueueType.SYSTEM,
}


class QueueManager(Administrator, QueueManagerApi):
    """A queue manager over a store. ``start`` it in the event loop that will use it."""

    def __init__(
        self,
        store: MessageStore,
        settings: Settings,
        clock: Clock,
        computer_name: str,
        *,
        access_policy: AccessPolicy | None = None,
        resource_manager: ResourceManager | None = None,
        resolve_distribution_list: ResolveDistributionList | None = None,
        directory: Directory | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        """Without an access policy everybody may do everything: right for the process that embeds the node."""
        self.access_policy = access_policy
        self.resolve_distribution_list = resolve_distribution_list
        self.network: Network | None = None
        """Sessions with other queue managers; None in a queue manager that only keeps messages."""
        self.troubles: dict[str, str] = {}
        """What does not work now and keeps the node from nothing else, by what it is: sentences for people."""
        self.signing: Signing | None = None
        """Whoever signs what applications send; None in a queue manager that has no keys."""
        self.remote_reader: RemoteReader | None = None
        """Whoever opens queues of other queue managers to be read; None in a queue manager that reads only its own."""
        self.recorder = recorder
        self.store = store
        self.settings = settings
        self.clock = clock
        self.computer_name = computer_name
        self.traffic = Traffic()
        self.quotas = Quotas(settings.quotas)
        self.read_ahead = ReadAhead(settings.read_ahead)
        self.expiry = Expiry(self)
        self.outcomes = Outcomes(self)
        self.poison = PoisonPolicy(self, settings.poison)
        self.names = Names(
            self, (computer_name, *settings.other_names), (*settings.addresses, settings.transport.address)
        )
        self.opening = Opening(self)
        self.published = PublishedQueues(self, directory)
        self.ordinal = Ordinal(store, MESSAGE_IDENTIFIER, 32, settings.storage.identifier_block)
        self.sequence = Ordinal(store, SEQUENTIAL_IDENTIFIER, LANE_SHIFT, settings.storage.identifier_block)
        self.identifier = self._load_identity()
        self.queue_collection: dict[int, Queue] = {}
        self.transactions: dict[Guid, Transaction] = {}
        self.touched: list[Queue] = []
        """Queues whose counters go into the next batch."""
        self.site_name = ""
        """Of the first site that the directory says the computer is in; empty without a directory."""
        self.connection_active = True
        """ConnectionActive, 3.1.1.1: Take Offline (3.1.4.12) and Bring Online (3.1.4.13)."""
        self.external = ExternalTransactions(self, resource_manager)
        self._next_queue_id = _FIRST_QUEUE_ID
        self._handle = 0
        self._transaction_number = 0
        self._open = True
        store.before_write = self._write_counters
        self._load_queues()

    def apply_settings(self, settings: Settings) -> None:
        """Take over what may change while the queue manager runs: the quotas and the poison policy."""
        self.quotas.apply(settings.quotas)
        self.poison.settings = settings.poison

    # Initialization, 3.1.3

    @property
    def is_drained(self) -> bool:
        """Whether no queue has a message: only then may the identifier change, which messages are known by."""
        return all(queue.message_count == 0 for queue in self.queue_collection.values())

    def adopt_identifier(self, identifier: Guid) -> None:
        """Be known as what the directory assigned. Only while :attr:`is_drained`, and before the first session."""
        self.identifier = identifier
        self.store.put_meta(_NODE, json.dumps({"identifier": identifier.hex()}).encode())
        self.store.flush()

    def _load_identity(self) -> Guid:
        record = self.store.get_meta(_NODE)
        if record is not None:
            return Guid(bytes.fromhex(json.loads(record)["identifier"]))
        identifier = new_guid()
        self.store.put_meta(_NODE, json.dumps({"identifier": identifier.hex()}).encode())
        self.store.flush()
        return identifier

    def _load_queues(self) -> None:
        for queue_id, local_name, transactional in _SYSTEM_QUEUES.values():
            queue = Queue(
                self, queue_id, f"{self.computer_name}\\{local_name}", QueueType.SYSTEM, transactional=transactional
            )
            self.add_queue(queue)
        self.dead_letter_queue = self.queue_collection[_SYSTEM_QUEUES["dead_letter"][0]]
        self.transactional_dead_letter_queue = self.queue_collection[_SYSTEM_QUEUES["transactional_dead_letter"][0]]
        self.journal_queue = self.queue_collection[_SYSTEM_QUEUES["journal"][0]]
        for queue in (self.dead_letter_queue, self.transactional_dead_letter_queue, self.journal_queue):
            queue.is_dead_letter = True
        self.order_queue = self.queue_collection[_SYSTEM_QUEUES["order"][0]]
        self.notify_queue = self.queue_collection[_SYSTEM_QUEUES["notify"][0]]
        self.awaiting_final_ack_queue = self.queue_collection[_SYSTEM_QUEUES["awaiting_final_ack"][0]]
        for queue in (self.order_queue, self.notify_queue, self.awaiting_final_ack_queue):
            queue.is_internal = True
            queue.recorder = None
        for queue_id, record in self.store.read_queues():
            self._load_queue(queue_id, Queue.read_definition(record))
        for queue_id, counters in self.store.read_counters().items():
            owner = self.queue_collection.get(queue_id & ~1)
            if owner is not None:
                (owner.journal if queue_id & 1 else owner).restore(counters)

    def _load_queue(self, queue_id: int, attributes: dict[str, Any]) -> None:
        if queue_id < _FIRST_QUEUE_ID:
            # A system queue: only what an administrator has set.
            system = self.queue_collection[queue_id]
            system.__dict__.update({name: attributes[name] for name in DEFAULT_PROPERTIES})
            return
        pathname: str = attributes.pop("pathname")
        queue_type = QueueType(attributes.pop("queue_type"))
        # Definitions are in the order of their numbers, and a subqueue is younger than its queue.
        parent = self.queue_collection.get(attributes.pop("parent"))
        self._next_queue_id = max(self._next_queue_id, queue_id + 2)
        if queue_type is QueueType.OUTGOING:
            self.add_queue(OutgoingQueue(self, queue_id, pathname, **attributes))
            return
        if queue_type is not QueueType.CONNECTOR:
            # The computer may have another name by now.
            pathname = self.computer_name + pathname[pathname.index("\\") :]
        queue = Queue(self, queue_id, pathname, queue_type, parent=parent, **attributes)
        self.add_queue(queue)

    def add_queue(self, queue: Queue) -> None:
        self.queue_collection[queue.queue_id] = queue
        self.names.add(queue)
        if queue.parent is not None:
            queue.parent.subqueues[queue.pathname.rpartition(";")[2].upper()] = queue
        if self.network is not None and isinstance(queue, OutgoingQueue):
            self.network.queue_added(queue)

    async def start(self) -> None:
        """Begin: what has expired while the node was down expires now."""
        self.external.recover()
        self.expiry.start()

    async def close(self) -> None:
        """Cancel waiting reads, abort open transactions, write what is pending, close the store."""
        if not self._open:
            return
        self._open = False
        self.expiry.stop()
        queues = list(self.queue_collection.values())
        queues += [queue.journal for queue in queues if queue.has_journal]
        # Before anything is given back: who waited for it could not be told any more that it has it.
        for queue in queues:
            for reader in list(queue.waiting):
                reader.cancel(sentence="the queue manager was closed while the call waited")
        for transaction in [one for one in self.transactions.values() if one.single_phase]:
            transaction.transaction_abort()
        for queue in queues:
            for descriptor in list(queue.descriptors.values()):
                descriptor.closed()
        self.store.close()

    def _write_counters(self) -> None:
        self.traffic.settle(self.clock)
        touched, self.touched = self.touched, []
        for queue in touched:
            queue.touched = False
            if not queue.deleted:
                self.store.put_counters(queue.queue_id, queue.counters())

    def next_handle(self) -> int:
        """A number that no other open queue, cursor or transaction of this queue manager has."""
        self._handle += 1
        return self._handle

    def next_transaction_number(self) -> int:
        """Identifies a transaction in its messages (TransactionHeader.Flags.ID, 20 bits)."""
        self._transaction_number = self._transaction_number + 1 & 0xFFFFF or 1
        return self._transaction_number

    # State, 3.1.4.12, 3.1.4.13, 3.1.7.2.5, 3.1.7.2.6

    def take_offline(self) -> None:
        """Take Offline: no messages are exchanged with other queue managers."""
        self.connection_active = False
        if self.network is not None:
            self.network.disconnect()

    def bring_online(self) -> None:
        """Bring Online."""
        self.connection_active = True
        if self.network is not None:
            self.network.connect()

    def begin_flow_control(self) -> None:
        """Begin Flow Control: no queue takes messages."""
        self.quotas.throttled = True

    def end_flow_control(self) -> None:
        """End Flow Control."""
        self.quotas.throttled = False

    # Queues

    async def create_queue(self, pathname: str, **properties: Unpack[QueueProperties]) -> QueueInformation:
        """Create Queue (3.1.7.1.3)."""
        name = self.names.path(pathname)
        if name.kind is QueueKind.SYSTEM or name.journal:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME, f"{pathname}: system queues and journals are not created"
            )
        if self.names.by_path(name) is not None:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_QUEUE_EXISTS, f"there is a queue {pathname} already")
        check_properties(properties)
        given = cast("dict[str, Any]", properties)
        identifier = new_guid()
        if name.kind is QueueKind.PUBLIC and not name.subqueue:
            if self.access_policy is not None:
                # The directory is told who may do what as well, or it would say that by its own defaults.
                given["security"] = self.access_policy.default_queue_security(given.get("security", b""))
            identifier = await self.published.publish(str(name), given)
        queue = self._create(name, given, identifier)
        await self.store.durable()
        return queue.information()

    def _create(self, name: PathName, properties: dict[str, Any], identifier: Guid) -> Queue:
        queue_type = _KINDS[name.kind]
        parent = None
        if self.access_policy is not None and not name.subqueue:
            security = self.access_policy.default_queue_security(properties.get("security", b""))
            properties = properties | {"security": security}
        if name.subqueue:
            parent = self.names.by_path(PathName(name.computer, name.queue, name.kind))
            if parent is None:
                raise MessageQueuingError(
                    ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND, f"there is no queue for the subqueue {name}"
                )
            properties = {key: getattr(parent, key) for key in DEFAULT_PROPERTIES} | {"journaling": False}
        now = int(self.clock.time())
        queue = Queue(
            self,
            self.take_queue_id(),
            str(name),
            queue_type,
            identifier=identifier,
            private_queue_number=self.names.free_number() if name.kind is QueueKind.PRIVATE and not parent else 0,
            create_time=now,
            modify_time=now,
            parent=parent,
            **properties,
        )
        self.add_queue(queue)
        self.store.put_queue(queue.queue_id, queue.definition())
        return queue

    def adopt_queue(self, name: PathName, properties: dict[str, Any], identifier: Guid) -> None:
        """Create a public queue that is in the directory already."""
        kind = type(DEFAULT_PROPERTIES["privacy_level"])
        self._create(name, properties | {"privacy_level": kind(properties["privacy_level"])}, identifier)

    def take_queue_id(self) -> int:
        queue_id = self._next_queue_id
        self._next_queue_id += 2
        return queue_id

    def subqueue(self, queue: Queue, name: str) -> Queue:
        """A subqueue, which is created when it is first needed."""
        found = queue.subqueues.get(name.upper())
        if found is None:
            path = self.names.path(queue.pathname)
            found = self._create(PathName(path.computer, path.queue, path.kind, name), {}, new_guid())
        return found

    async def delete_queue(self, name: str) -> None:
        """Delete Queue (3.1.7.1.4)."""
        queue = self.names.find(name)
        if queue.queue_type is QueueType.SYSTEM:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_ACCESS_DENIED, f"{name}: system queues cannot be deleted")
        if queue.is_published:
            await self.published.withdraw(queue)
        await delete_queue(self, queue)

    def forget_queue(self, queue: Queue) -> None:
        """A queue without messages leaves the collection."""
        if self.network is not None and isinstance(queue, OutgoingQueue):
            self.network.queue_removed(queue)
        self.names.remove(queue)
        self.queue_collection.pop(queue.queue_id, None)
        self.traffic.retire(queue)
        if queue.parent is not None:
            queue.parent.subqueues.pop(queue.pathname.rpartition(";")[2].upper(), None)
        self.store.delete_queue(queue.queue_id)
        if queue.has_journal:
            self.store.delete_queue(queue.journal.queue_id)

    async def set_queue(self, name: str, **properties: Unpack[QueueProperties]) -> QueueInformation:
        """Change properties of a queue."""
        queue = self.names.find(name)
        if "transactional" in properties and properties["transactional"] != queue.transactional:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_PROPERTY_NOTALLOWED, "a queue is transactional, or not, from its creation on"
            )
        check_properties(properties)
        if self.access_policy is not None and "security" in properties:
            properties["security"] = self.access_policy.default_queue_security(properties["security"])
        queue.set_properties(**properties)
        self.store.put_queue(queue.queue_id, queue.definition())
        await self.store.durable()
        if queue.is_published:
            await self.published.update(queue)
        return queue.information()

    async def queue(self, name: str) -> QueueInformation:
        """One queue."""
        return self.names.find(name).information()

    async def queues(self, kinds: Sequence[QueueType] | None = None) -> list[QueueInformation]:
        """All queues, or those of these types."""
        chosen = [queue for queue in self.queue_collection.values() if kinds is None or queue.queue_type in kinds]
        return [queue.information() for queue in sorted(chosen, key=lambda queue: queue.pathname.upper())]

    async def pause_queue(self, name: str) -> None:
        """Pause Queue (3.1.4.14)."""
        self.outgoing_queue(name).pause()
        await self.store.durable()

    async def resume_queue(self, name: str) -> None:
        """Resume Queue (3.1.4.15)."""
        self.outgoing_queue(name).resume()
        await self.store.durable()

    def outgoing_queue(self, name: str) -> OutgoingQueue:
        """The queue of messages for another machine; MQ_ERROR_QUEUE_NOT_FOUND if there is none of the name."""
        queue = self.names.find(name)
        if not isinstance(queue, OutgoingQueue):
            raise MessageQueuingError(ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND, f"{name} is no outgoing queue")
        return queue

    # Open Queue, 3.1.7.1.5

    async def open_queue(
        self,
        format_name: str,
        access: Access = Access.RECEIVE,
        share: Share = Share.DENY_NONE,
        *,
        caller: object = None,
    ) -> QueueApi:
        """Open Queue (3.1.7.1.5). ``caller`` is for the access check; None is the process that embeds the node."""
        self._check_open()
        return await self.opening.open_queue(format_name, access, share, caller)

    def descriptor_closed(self, descriptor: OpenQueueDescriptor) -> None:
        """A descriptor leaves its queue."""
        queue = descriptor.queue
        del queue.descriptors[descriptor.handle]
        mode = descriptor.access, descriptor.share
        queue.open_modes[mode] -= 1
        if not queue.open_modes[mode]:
            del queue.open_modes[mode]
        if descriptor.access & (Access.RECEIVE | Access.PEEK):
            queue.readers -= 1
            if not queue.readers:
                queue.forget_window()

    def _check_open(self) -> None:
        if not self._open:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE, "the queue manager is closed")

    # Transactions

    def transaction(self) -> Transaction:
        """Create Transaction (3.1.7.1.8): an internal one."""
        self._check_open()
        return Transaction(self, new_guid())

    def unit_of_work(self, transaction: InTransaction) -> Transaction:
        """The transaction that a call is part of."""
        if transaction == "single":
            return Transaction(self, new_guid())
        if not isinstance(transaction, Transaction) or transaction.manager is not self:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_TRANSACTION_ENLIST, "the transaction belongs to another queue manager"
            )
        transaction.check_active()
        return transaction

    # Time and reports

    def message_expired(self, queue_id: int, lookup_identifier: int) -> bool:
        """Time To Be Received Timer Expired (3.1.7.2.7). False: a reader holds it; it goes when it is released."""
        owner = self.queue_collection.get(queue_id & ~1)
        queue = owner.journal if owner is not None and queue_id & 1 else owner
        if queue is None:
            return True
        if lookup_identifier in queue.locked:
            return False
        value = queue.value_of(lookup_identifier)
        if value is not None:
            queue.take_this(lookup_identifier)
            queue.delete(lookup_identifier, value, queue.expiry_reason)
        return True

    def send_internally(self, format_name: str, message: Message) -> None:
        """Send a message of the queue manager's own, which is dropped if that cannot be done (MS-MQQB 3.1.7.15)."""
        send_internally(self, format_name, message)
