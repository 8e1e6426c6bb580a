"""Transactions: MS-MQDMPR 3.1.1.14 and 3.1.4.3 to 3.1.4.5. Units of work over any number of queues.

A transaction keeps its sent messages in memory until it commits; its received messages stay in their queue, locked.
Commit is one batch of the store, so that a crash leaves all of it or none. There are no transactions of a distributed
transaction coordinator (3.1.4.6 to 3.1.4.11): none can be enlisted.
"""

from collections.abc import Callable
from enum import Enum
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from qmnode.errors import MessageQueuingError
from qmnode.model.api import InTransaction, TransactionApi
from qmnode.model.ports import Entry
from qmnode.model.positions import LockedPosition, PositionState
from qmnode.model.serialization import TransactionFields
from qmnode.model.stored_message import mark_last_in_transaction, moved
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import Guid, new_guid

if TYPE_CHECKING:
    from qmnode.model.positions import WaitingRead
    from qmnode.model.queue import Queue
    from qmnode.model.shared_state import Context


class OperationType(Enum):
    """OperationType of a TransactionalOperation (3.1.1.13)."""

    ENQUEUE = "enqueue"
    DEQUEUE = "dequeue"
    MOVE = "move"


class MessageHolder(Protocol):
    """An open queue, which holds a message again whose transaction aborts."""

    def hold(self, lookup_identifier: int) -> bool:
        """Lock the message; False if it is closed, or the message purged."""


class TransactionalOperation(NamedTuple):
    """The change of one position when a transaction commits: 3.1.1.13."""

    operation_type: OperationType
    queue: "Queue"
    lookup_identifier: int
    value: bytes
    target: "Queue | None" = None
    reason: int = MessageClass.MQMSG_CLASS_ACK_RECEIVE
    reader: MessageHolder | None = None
    """The reader that holds the message again if the transaction aborts."""


def unit_of_work(context: "Context", transaction: InTransaction) -> "Transaction":
    """The transaction that a call is part of."""
    if transaction == "single":
        return Transaction(context, new_guid(), single=True)
    if not isinstance(transaction, Transaction) or transaction.context is not context:
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_TRANSACTION_ENLIST, "the transaction belongs to another queue manager"
        )
    transaction.check_active()
    return transaction


_KIND_AND_QUEUE: Final = itemgetter(0, 1)


class TransactionState(Enum):
    """The states of a transaction."""

    ACTIVE = "active"
    PREPARED = "prepared"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Transaction(TransactionApi):
    """An internal transaction, ended by ``commit`` or ``abort``; one that is never ended aborts when the node stops."""

    def __init__(self, context: "Context", identifier: Guid, *, single: bool = False) -> None:
        """``single``: of one call, which commits it at once. It is not listed, and a failed commit aborts it."""
        self.context = context
        self._single = single
        self.identifier = identifier
        self.state = TransactionState.ACTIVE
        self.operations: list[TransactionalOperation] = []
        self.fields = TransactionFields(context.next_transaction_number())
        self.readers: set[WaitingRead] = set()
        """Reads in the transaction that wait for a message."""
        self._last_sent = -1
        self._identities: dict[int, bytes] = {}
        """Of sent messages that may be duplicates: their message ids, by lookup identifier."""
        if not single:
            context.transactions[identifier] = self

    @property
    def has_sent(self) -> bool:
        """Whether a message was sent in it: the next one is not its first."""
        return self._last_sent >= 0

    def check_active(self) -> None:
        """Raise if the transaction accepts no more operations."""
        if self.state is not TransactionState.ACTIVE:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE, f"the transaction is {self.state.value}: begin a new one"
            )

    # Operations

    def enqueue(self, queue: "Queue", lookup_identifier: int, value: bytes, identity: bytes = b"") -> None:
        """Enqueue Message in a transaction (3.1.7.1.9): the message arrives when the transaction commits.

        ``identity`` is that of its message id, if it is dropped as a duplicate.
        """
        if identity:
            self._identities[lookup_identifier] = identity
        self._last_sent = len(self.operations)
        self.operations.append(TransactionalOperation(OperationType.ENQUEUE, queue, lookup_identifier, value))
        queue.reserve_bytes(len(value))

    def delay(
        self, delayed: "Queue", lookup_identifier: int, value: bytes, queue: "Queue", identity: bytes = b""
    ) -> None:
        """``enqueue`` for a message to ``queue`` that waits among the delayed ones when the transaction commits. It is
        neither the first nor the last of the transaction, as it leaves later, in one of its own.
        """
        if identity:
            self._identities[lookup_identifier] = identity
        self.operations.append(TransactionalOperation(OperationType.ENQUEUE, delayed, lookup_identifier, value, queue))
        delayed.reserve_bytes(len(value))

    def enqueue_many(self, queue: "Queue", entries: list[Entry]) -> None:
        """``enqueue`` for each of the entries."""
        if entries:
            kind, reason = OperationType.ENQUEUE, MessageClass.MQMSG_CLASS_ACK_RECEIVE
            self.operations += [
                tuple.__new__(TransactionalOperation, (kind, queue, lookup_identifier, value, None, reason, None))
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

    def adopt(
        self,
        queue: "Queue",
        lookup_identifier: int,
        position: LockedPosition,
        reader: MessageHolder | None = None,
    ) -> None:
        """A message that a two-phase read has locked is received in this transaction."""
        position.transaction = self
        self.operations.append(
            TransactionalOperation(OperationType.DEQUEUE, queue, lookup_identifier, position.value, None, reader=reader)
        )

    def move(self, queue: "Queue", lookup_identifier: int, value: bytes, target: "Queue") -> None:
        """Move Message in a transaction (3.1.7.1.16): a taken message is locked, and in its new queue at commit."""
        queue.lock(lookup_identifier, value, self)
        self.operations.append(TransactionalOperation(OperationType.MOVE, queue, lookup_identifier, value, target))

    def give_back(self, queue: "Queue", lookup_identifier: int) -> None:
        """Return a message whose receive was cancelled before its caller got it."""
        for index in range(len(self.operations) - 1, -1, -1):
            operation = self.operations[index]
            if operation.queue is queue and operation.lookup_identifier == lookup_identifier:
                del self.operations[index]
                if index < self._last_sent:
                    self._last_sent -= 1
                self._return(operation, count=False)
                return

    # End of the transaction

    async def prepare(self) -> None:
        """Prepare the transaction (Transaction Prepare, 3.1.4.3)."""
        self.transaction_prepare()
        await self.context.store.durable()

    async def commit(self, mark: Callable[[], None] | None = None) -> None:
        """Commit the transaction (Transaction Commit, 3.1.4.4). ``mark`` writes something into the same batch."""
        try:
            self.transaction_commit()
        except MessageQueuingError:
            if self._single and self.state is TransactionState.ACTIVE:
                self.transaction_abort()
            raise
        if mark is not None:
            mark()
        await self.context.store.durable()

    async def abort(self) -> None:
        """Transaction Abort (3.1.4.5). Received messages record on disk that they came back."""
        changes = any(one.operation_type is not OperationType.ENQUEUE for one in self.operations)
        self.transaction_abort()
        if changes:
            await self.context.store.durable()

    def transaction_prepare(self) -> None:
        """Accept no more operations; committing the existing ones will not fail."""
        self.check_active()
        self.context.store.check()
        self._end_readers()
        self._mark_last()
        self.state = TransactionState.PREPARED

    def _end_readers(self) -> None:
        for reader in list(self.readers):
            reader.cancel(ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE, "the transaction ended while the read waited")

    def _mark_last(self) -> None:
        if self._last_sent >= 0:
            operation = self.operations[self._last_sent]
            self.operations[self._last_sent] = operation._replace(value=mark_last_in_transaction(operation.value))

    def transaction_commit(self) -> None:
        """Apply all operations in the current batch."""
        if self.state is TransactionState.ACTIVE:
            self.context.store.check()
            self._end_readers()
            self._mark_last()
        elif self.state is not TransactionState.PREPARED:
            self.check_active()
        for (kind, queue), operations in groupby(self.operations, _KIND_AND_QUEUE):
            if kind is OperationType.ENQUEUE:
                self._arrive(queue, list(operations))
            else:
                for operation in operations:
                    self._do(operation)
        self._end(TransactionState.COMMITTED)

    def _arrive(self, queue: "Queue", operations: list[TransactionalOperation]) -> None:
        entries: list[Entry] = [(one.lookup_identifier, one.value) for one in operations]
        queue.reserve_bytes(-sum(len(value) for _, value in entries))
        if queue.deleted:
            return
        if self._identities:
            new_of = self.context.duplicates.new_of
            if queue.is_delayed:  # duplicates are those of the queue that each was sent to
                known = [(one.target or queue, entry) for one, entry in zip(operations, entries, strict=True)]
                entries = [new for target, entry in known for new in new_of(target, [entry], self._identities)]
            else:
                entries = new_of(queue, entries, self._identities)
        queue.arrive_committed(entries)

    def _do(self, operation: TransactionalOperation) -> None:
        kind, queue, lookup_identifier, value, target, reason, _ = operation
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
        """Undo all operations of the transaction."""
        if self.state not in (TransactionState.ACTIVE, TransactionState.PREPARED):
            self.check_active()
        self._end_readers()
        # Backwards, so that messages returning to the front of a queue keep their order.
        for operation in reversed(self.operations):
            if operation.operation_type is OperationType.ENQUEUE:
                operation.queue.reserve_bytes(-len(operation.value))
            else:
                self._return(operation, count=True)
        self._end(TransactionState.ABORTED)

    def _return(self, operation: TransactionalOperation, count: bool) -> None:
        queue, lookup_identifier = operation.queue, operation.lookup_identifier
        if queue.deleted or (operation.reader is not None and operation.reader.hold(lookup_identifier)):
            return
        position = queue.unlock(lookup_identifier)
        if position.state is PositionState.PURGE_PENDING:
            queue.delete(lookup_identifier, position.value, MessageClass.MQMSG_CLASS_NACK_Q_PURGED)
        elif count and operation.reason == MessageClass.MQMSG_CLASS_ACK_RECEIVE:
            self.context.retries.failed(queue, lookup_identifier, position.value)
        else:
            queue.make_available(lookup_identifier, position.value)

    def _end(self, state: TransactionState) -> None:
        self.state = state
        self.operations = []
        self._last_sent = -1
        self.context.transactions.pop(self.identifier, None)
