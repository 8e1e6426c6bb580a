"""Transactions: MS-MQDMPR 3.1.1.14 and 3.1.4.3 to 3.1.4.11. Units of work over any number of queues.

What an internal transaction sends is kept in memory until it commits; what it receives stays in its queue, locked.
Commit is one batch of the store, so that a crash leaves all of it or none. What a prepared external transaction will do
is in the store too: if the node stops then, it is *in doubt*, and its coordinator or an operator says how it ends.
"""

import json
from enum import Enum
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from qmnode.errors import MessageQueuingError
from qmnode.model.api import InTransaction, TransactionApi
from qmnode.model.packet import mark_last_in_transaction
from qmnode.model.ports import Entry
from qmnode.model.positions import PositionState
from qmnode.model.record import moved
from qmnode.model.serialization import TransactionFields
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import Guid, guid_to_text, new_guid
from qmnode.structures.message_classes import MessageClass

if TYPE_CHECKING:
    from qmnode.model.context import Context
    from qmnode.model.queue import Queue
    from qmnode.model.reading import WaitingMessageReadOperation


class OperationType(Enum):
    """OperationType of a TransactionalOperation (3.1.1.13)."""

    ENQUEUE = "enqueue"
    DEQUEUE = "dequeue"
    MOVE = "move"


class TransactionalOperation(NamedTuple):
    """What a transaction does to one position when it commits: 3.1.1.13."""

    operation_type: OperationType
    queue: "Queue"
    lookup_identifier: int
    value: bytes
    target: "Queue | None" = None
    reason: int = MessageClass.MQMSG_CLASS_ACK_RECEIVE


def unit_of_work(context: "Context", transaction: InTransaction) -> "Transaction":
    """The transaction that a call is part of."""
    if transaction == "single":
        return Transaction(context, new_guid())
    if not isinstance(transaction, Transaction) or transaction.context is not context:
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_TRANSACTION_ENLIST, "the transaction belongs to another queue manager"
        )
    transaction.check_active()
    return transaction


_KIND_AND_QUEUE: Final = itemgetter(0, 1)


class TransactionState(Enum):
    """How far a transaction is."""

    ACTIVE = "active"
    PREPARED = "prepared"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Transaction(TransactionApi):
    """An internal transaction. Ended by ``commit`` or ``abort``; whoever forgets it aborts it when the node stops."""

    def __init__(self, context: "Context", identifier: Guid, single_phase: bool = True) -> None:
        self.context = context
        self.identifier = identifier
        self.single_phase = single_phase
        self.state = TransactionState.ACTIVE
        self.operations: list[TransactionalOperation] = []
        self.fields = TransactionFields(context.next_transaction_number())
        self.readers: set[WaitingMessageReadOperation] = set()
        """Reads in it that wait for a message."""
        self._last_sent = -1
        context.transactions[identifier] = self

    @property
    def has_sent(self) -> bool:
        """Whether a message was sent in it: the next one is not its first."""
        return self._last_sent >= 0

    def check_active(self) -> None:
        """Raise if nothing can be done in it any more."""
        if self.state is not TransactionState.ACTIVE:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE, f"the transaction is {self.state.value}: begin a new one"
            )

    # What a transaction does

    def enqueue(self, queue: "Queue", lookup_identifier: int, value: bytes) -> None:
        """Enqueue Message in a transaction (3.1.7.1.9): the message comes when the transaction commits."""
        self._last_sent = len(self.operations)
        self.operations.append(TransactionalOperation(OperationType.ENQUEUE, queue, lookup_identifier, value))
        queue.reserve_bytes(len(value))

    def enqueue_many(self, queue: "Queue", entries: list[Entry]) -> None:
        """``enqueue`` for each."""
        if entries:
            kind, reason = OperationType.ENQUEUE, MessageClass.MQMSG_CLASS_ACK_RECEIVE
            self.operations += [
                tuple.__new__(TransactionalOperation, (kind, queue, lookup_identifier, value, None, reason))
                for lookup_identifier, value in entries
            ]
            self._last_sent = len(self.operations) - 1
            queue.reserve_bytes(sum(len(value) for _, value in entries))

    def dequeue(
        self, queue: "Queue", lookup_identifier: int, value: bytes, reason: int = MessageClass.MQMSG_CLASS_ACK_RECEIVE
    ) -> None:
        """Dequeue Message in a transaction (3.1.7.1.10): a taken message is locked, and deleted at commit."""
        queue.lock(lookup_identifier, value, self)
        self.operations.append(
            TransactionalOperation(OperationType.DEQUEUE, queue, lookup_identifier, value, None, reason)
        )

    def move(self, queue: "Queue", lookup_identifier: int, value: bytes, target: "Queue") -> None:
        """Move Message in a transaction (3.1.7.1.16): a taken message is locked, and in its new queue at commit."""
        queue.lock(lookup_identifier, value, self)
        self.operations.append(TransactionalOperation(OperationType.MOVE, queue, lookup_identifier, value, target))

    def give_back(self, queue: "Queue", lookup_identifier: int) -> None:
        """A receive in it was cancelled before its caller got the message."""
        for index in range(len(self.operations) - 1, -1, -1):
            operation = self.operations[index]
            if operation.queue is queue and operation.lookup_identifier == lookup_identifier:
                del self.operations[index]
                if index < self._last_sent:
                    self._last_sent -= 1
                self._return(operation, count=False)
                return

    def restore(self, operations: list[TransactionalOperation]) -> None:
        """Prepared before a restart: hold again what it held then."""
        for operation in operations:
            if operation.operation_type is OperationType.ENQUEUE:
                operation.queue.reserve_bytes(len(operation.value))
            else:
                operation.queue.take_this(operation.lookup_identifier)
                operation.queue.lock(operation.lookup_identifier, operation.value, self)
        self.operations = operations
        self.state = TransactionState.PREPARED

    # How it ends

    async def prepare(self) -> None:
        """Transaction Prepare (3.1.4.3)."""
        self.transaction_prepare()
        await self.context.store.durable()

    async def commit(self) -> None:
        """Transaction Commit (3.1.4.4)."""
        self.transaction_commit()
        await self.context.store.durable()

    async def abort(self) -> None:
        """Transaction Abort (3.1.4.5). Received messages remember on disk that they came back."""
        changes = any(one.operation_type is not OperationType.ENQUEUE for one in self.operations)
        self.transaction_abort()
        if changes:
            await self.context.store.durable()

    def transaction_prepare(self) -> None:
        """Put what the transaction will do in the store, so that it can be done after a crash too."""
        self.check_active()
        self.context.store.check()
        self._end_readers()
        self._mark_last()
        if not self.single_phase:
            self.context.store.put_transaction(self.identifier, ExternalTransactions.record(self))
        self.state = TransactionState.PREPARED

    def _end_readers(self) -> None:
        for reader in list(self.readers):
            reader.cancel(ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE, "the transaction ended while the read waited")

    def _mark_last(self) -> None:
        if self._last_sent >= 0:
            operation = self.operations[self._last_sent]
            self.operations[self._last_sent] = operation._replace(value=mark_last_in_transaction(operation.value))

    def transaction_commit(self) -> None:
        """Do all of it in this pass's batch."""
        if self.state is TransactionState.ACTIVE:
            self.context.store.check()
            self._end_readers()
            self._mark_last()
        elif self.state is not TransactionState.PREPARED:
            self.check_active()
        for (kind, queue), operations in groupby(self.operations, _KIND_AND_QUEUE):
            if kind is OperationType.ENQUEUE:
                self._arrive(queue, [(one.lookup_identifier, one.value) for one in operations])
            else:
                for operation in operations:
                    self._do(operation)
        self._end(TransactionState.COMMITTED)

    @staticmethod
    def _arrive(queue: "Queue", entries: list[Entry]) -> None:
        queue.reserve_bytes(-sum(len(value) for _, value in entries))
        if not queue.deleted:
            queue.arrive_committed(entries)

    def _do(self, operation: TransactionalOperation) -> None:
        kind, queue, lookup_identifier, value, target, reason = operation
        if queue.deleted:
            return
        position = queue.unlock(lookup_identifier)
        if kind is OperationType.DEQUEUE:
            queue.delete(lookup_identifier, value, reason)
        elif target is None or target.deleted:
            queue.make_available(lookup_identifier, position.value)
        else:
            queue.remove(lookup_identifier, position.value)
            target.insert(lookup_identifier, moved(value))

    def transaction_abort(self) -> None:
        """Do none of it."""
        if self.state not in (TransactionState.ACTIVE, TransactionState.PREPARED):
            self.check_active()
        self._end_readers()
        # Backwards, so that what returns to the front of a queue returns in its order.
        for operation in reversed(self.operations):
            if operation.operation_type is OperationType.ENQUEUE:
                operation.queue.reserve_bytes(-len(operation.value))
            else:
                self._return(operation, count=True)
        self._end(TransactionState.ABORTED)

    def _return(self, operation: TransactionalOperation, count: bool) -> None:
        queue, lookup_identifier = operation.queue, operation.lookup_identifier
        if queue.deleted:
            return
        position = queue.unlock(lookup_identifier)
        if position.state is PositionState.PURGE_PENDING:
            queue.delete(lookup_identifier, position.value, MessageClass.MQMSG_CLASS_NACK_Q_PURGED)
        elif count and operation.reason == MessageClass.MQMSG_CLASS_ACK_RECEIVE:
            self.context.outcomes.poison.aborted(queue, lookup_identifier, position.value)
        else:
            queue.make_available(lookup_identifier, position.value)

    def _end(self, state: TransactionState) -> None:
        if self.state is TransactionState.PREPARED and not self.single_phase:
            self.context.store.delete_transaction(self.identifier)
        self.state = state
        self.operations = []
        self._last_sent = -1
        self.context.transactions.pop(self.identifier, None)


_LENGTH: Final = 4


class ResourceManager(Protocol):
    """The coordinator's side, as MS-DTCO 3.5 has it: what the queue manager tells about its transactions."""

    def prepare_done(self, identifier: Guid) -> None:
        """TXUSER_ENLISTMENT_MTAG_PREPAREREQDONE: the transaction can be committed whatever happens."""

    def commit_done(self, identifier: Guid) -> None:
        """TXUSER_ENLISTMENT_MTAG_COMMITREQDONE."""

    def abort_done(self, identifier: Guid) -> None:
        """TXUSER_ENLISTMENT_MTAG_ABORTREQDONE."""

    def recover(self, identifiers: list[Guid]) -> None:
        """Recover Transaction (MS-DTCO 3.5.7.1): find out how these end, and raise the reenlistment events."""


class ExternalTransactions:
    """The transactions that a coordinator decides about."""

    def __init__(self, context: "Context", resource_manager: ResourceManager | None) -> None:
        self._context = context
        self.resource_manager = resource_manager

    def enlist(self, identifier: Guid) -> Transaction:
        """Create Transaction (3.1.7.1.8) for a coordinator's transaction."""
        if identifier in self._context.transactions:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_TRANSACTION_ENLIST, f"transaction {guid_to_text(identifier)} is enlisted already"
            )
        return Transaction(self._context, identifier, single_phase=False)

    @property
    def in_doubt(self) -> list[Guid]:
        """Transactions that are prepared and wait for their outcome."""
        return [
            one.identifier
            for one in self._context.transactions.values()
            if not one.single_phase and one.state is TransactionState.PREPARED
        ]

    # Events

    async def prepare(self, identifier: Guid, single_phase: bool = False) -> None:
        """DTC Transaction Prepare (3.1.4.6); ``single_phase`` is TXUSER_ENLISTMENT_MTAG_PREPAREREQ.fSinglePhase."""
        if single_phase:
            await self.commit(identifier)
            return
        try:
            await self._find(identifier).prepare()
        except MessageQueuingError:
            if identifier in self._context.transactions:
                await self.abort(identifier)
            raise
        if self.resource_manager is not None:
            self.resource_manager.prepare_done(identifier)

    async def commit(self, identifier: Guid) -> None:
        """DTC Transaction Commit (3.1.4.7)."""
        await self._find(identifier).commit()
        if self.resource_manager is not None:
            self.resource_manager.commit_done(identifier)

    async def abort(self, identifier: Guid) -> None:
        """DTC Transaction Abort (3.1.4.8)."""
        await self._find(identifier).abort()
        if self.resource_manager is not None:
            self.resource_manager.abort_done(identifier)

    async def reenlistment_commit(self, identifier: Guid) -> None:
        """DTC Reenlistment Commit (3.1.4.9): a transaction that was in doubt commits."""
        await self._find(identifier).commit()

    async def reenlistment_abort(self, identifier: Guid) -> None:
        """DTC Reenlistment Abort (3.1.4.10)."""
        await self._find(identifier).abort()

    def reenlistment_timeout(self) -> None:
        """DTC Reenlistment Timeout (3.1.4.11): the coordinator cannot be reached. The transactions stay in doubt."""
        waiting = ", ".join(guid_to_text(identifier) for identifier in self.in_doubt)
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE,
            f"the coordinator did not say how these transactions end: {waiting}. Resolve them by hand or start again",
        )

    def _find(self, identifier: Guid) -> Transaction:
        transaction = self._context.transactions.get(identifier)
        if transaction is None:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE, f"there is no transaction {guid_to_text(identifier)}"
            )
        return transaction

    # The store

    @staticmethod
    def record(transaction: Transaction) -> bytes:
        """What the transaction will do, as it is stored: a description, then the messages that it sends."""
        operations: list[dict[str, Any]] = []
        values: list[bytes] = []
        for kind, queue, lookup_identifier, value, target, reason in transaction.operations:
            sends = kind is OperationType.ENQUEUE
            operations.append(
                {
                    "kind": kind.value,
                    "queue": queue.queue_id,
                    "lookup": lookup_identifier,
                    "size": len(value) if sends else 0,
                    "target": target.queue_id if target is not None else 0,
                    "reason": int(reason),
                }
            )
            if sends:
                values.append(value)
        description = json.dumps(operations).encode()
        return b"".join((len(description).to_bytes(_LENGTH, "big"), description, *values))

    @staticmethod
    def check_record(record: bytes) -> None:
        """Raise ValueError or KeyError for what ``record`` did not write."""
        offset = _LENGTH + int.from_bytes(record[:_LENGTH], "big")
        size = sum(entry["size"] for entry in json.loads(record[_LENGTH:offset]))
        if offset + size != len(record):
            raise ValueError(f"{len(record)} bytes, and its description says {offset + size}")

    def recover(self) -> None:
        """Lock again what prepared transactions hold, and ask how they end (3.1.3)."""
        for identifier, record in self._context.store.read_transactions():
            transaction = Transaction(self._context, Guid(identifier), single_phase=False)
            transaction.restore(self._operations(record))
        if self.in_doubt and self.resource_manager is not None:
            self.resource_manager.recover(self.in_doubt)

    def _operations(self, record: bytes) -> list[TransactionalOperation]:
        offset = _LENGTH + int.from_bytes(record[:_LENGTH], "big")
        operations = []
        queues = self._context.queues
        for entry in json.loads(record[_LENGTH:offset]):
            queue = queues.get(entry["queue"])
            value = record[offset : offset + entry["size"]]
            offset += entry["size"]
            if queue is None:
                continue
            if entry["kind"] != OperationType.ENQUEUE.value:
                stored = queue.value_of(entry["lookup"])
                if stored is None:
                    continue  # an express message, which the restart has taken
                value = stored
            operations.append(
                TransactionalOperation(
                    OperationType(entry["kind"]),
                    queue,
                    entry["lookup"],
                    value,
                    queues.get(entry["target"]),
                    entry["reason"],
                )
            )
        return operations
