"""OpenQueueDescriptor, MS-MQDMPR 3.1.1.16: an open queue and its operations."""

import asyncio
from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access, InTransaction, QueueApi, Seek, Share
from qmnode.model.message import Message
from qmnode.model.ports import Arrived, Entry
from qmnode.model.positions import RECEIVED_AT_ONCE, PositionState, count_first, take_received
from qmnode.model.purging import purge_queue
from qmnode.model.queue import Queue
from qmnode.model.reading import (
    END,
    START,
    Claim,
    Cursor,
    Delete,
    Lock,
    ReadOutcome,
    TransactionClaim,
    WaitingMessageReadOperation,
    WaitingRead,
    timed_out,
)
from qmnode.model.retries import peeked_message
from qmnode.model.sending import SendingDescriptor
from qmnode.model.stored_message import Room, moved, received_message, whole_value
from qmnode.model.transaction import unit_of_work
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.names import FormatName

if TYPE_CHECKING:
    from qmnode.model.context import Context

_RECEIVE: Final = Access.RECEIVE.value
_READ: Final = (Access.RECEIVE | Access.PEEK).value
_DELETE: Final = Delete()
_LOCK: Final = Lock()


class OpenQueueDescriptor(SendingDescriptor):
    """One queue, opened for receiving, sending or both."""

    def __init__(
        self, context: "Context", handle: int, queue: Queue, name: FormatName, access: Access, share: Share
    ) -> None:
        super().__init__(context, queue, name, access)
        self.handle = handle
        self.share = share
        self.cursors: dict[int, Cursor] = {}
        self.waiting: set[WaitingRead] = set()
        self.begun: set[int] = set()
        """Messages that two-phase reads of this descriptor hold."""

    # Receiving

    async def receive(self, timeout: float | None = None, transaction: InTransaction = None) -> Message:
        """Dequeue Message (3.1.7.1.10), waiting for one if necessary."""
        claim = self.claim(transaction)
        entry = self.queue.take() if not self.queue.paused else None
        if entry is None:
            if timeout is not None and timeout <= 0:
                raise timed_out()
            entry = await WaitingMessageReadOperation(self, claim).wait(timeout)
        else:
            claim.take(self.queue, *entry)
        await self.settle(claim, (entry,))
        return received_message(*entry)

    async def receive_many(
        self, limit: int, timeout: float | None = None, transaction: InTransaction = None
    ) -> list[Message]:
        """Dequeue Message, up to ``limit`` times; all share one write."""
        if limit < 1:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_INVALID_PARAMETER, "receive_many: the limit is at least 1")
        return await self._dequeue(limit, timeout, self.claim(transaction))

    async def receive_begin(self, timeout: float | None = None) -> Message:
        """Dequeue Message Begin (3.1.7.1.11)."""
        self.check_read(timeout, _RECEIVE)
        return self.begin((await self._dequeue(1, timeout, _LOCK))[0])

    def begin_available(self) -> tuple[int, bytes, asyncio.Future[None] | None] | None:
        """``receive_begin`` of a message that is available now: its lookup identifier, its stored value, and the write
        that must be on disk before anybody may see it; None if none is available.
        """
        self.check_read(None, _RECEIVE)
        self._store.check()
        queue = self.queue
        entry = None if queue.paused else queue.take()
        if entry is None:
            return None
        lookup_identifier, value = entry
        queue.lock(lookup_identifier, value, None)
        self.begun.add(lookup_identifier)
        return lookup_identifier, value, self._store.pending()

    async def receive_begin_by_lookup_id(self, lookup_identifier: int = 0, seek: Seek = "current") -> Message:
        """Read Message By Lookup Identifier (3.1.7.1.13), first phase only: the message is locked.

        Finish with ``receive_end``.
        """
        self.check_read(None, _RECEIVE)
        entry = self._seek(lookup_identifier, seek, peek=False)
        if entry is None:
            raise _no_message(lookup_identifier, seek)
        self.queue.take_this(entry[0])
        _LOCK.take(self.queue, *entry)
        await self.settle(_LOCK, [entry])
        return self.begin(received_message(*entry))

    def begin(self, message: Message) -> Message:
        """Record a locked message as held by this descriptor, which ends the read, or returns the message on
        closing.
        """
        self.begun.add(message.lookup_identifier)
        if not self._open:  # closed while the call waited for the disk
            self._give_back()
            self._refuse(_RECEIVE)
        return message

    async def receive_begin_many(self, limit: int, timeout: float | None = None) -> list[Message]:
        """Dequeue Message Begin, up to ``limit`` times. Finish each with ``end_read``, or hand it to a transaction."""
        self.check_read(timeout, _RECEIVE)
        messages = await self._dequeue(limit, timeout, _LOCK)
        self.begun.update(message.lookup_identifier for message in messages)
        if not self._open:
            self._give_back()
            self._refuse(_RECEIVE)
        return messages

    def end_read(self, lookup_identifier: int, outcome: ReadOutcome) -> None:
        """Finish a two-phase read in this pass's batch. Nothing happens if the queue was deleted meanwhile."""
        queue = self.queue
        self.begun.discard(lookup_identifier)
        position = queue.locked.get(lookup_identifier)
        if position is None or position.transaction is not None:
            return
        if outcome is ReadOutcome.ABANDONED:
            counts = queue.max_deliveries or queue.retry_pause
            outcome = ReadOutcome.FAILED if counts else ReadOutcome.RETURNED
        if position.state is PositionState.PURGE_PENDING or outcome in (ReadOutcome.TAKEN, ReadOutcome.RETURNED):
            self._end_read(lookup_identifier, delete=outcome is ReadOutcome.TAKEN)
            return
        value = queue.unlock(lookup_identifier).value
        if outcome is ReadOutcome.REJECTED:
            self.context.outcomes.rejected(queue, lookup_identifier, value)
        else:
            self.context.retries.failed(queue, lookup_identifier, value)

    def end_read_in(self, lookup_identifier: int, transaction: InTransaction, *, hold: bool = False) -> None:
        """Hand a message that is locked to a transaction: received if it commits, in its old place if it aborts.

        With ``hold``, an abort leaves it locked for this descriptor, as before, while that is open.
        MQ_ERROR_TRANSACTION_USAGE if the queue is not transactional.
        """
        if transaction is None or not self.queue.transactional:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_TRANSACTION_USAGE,
                f"{self.queue.pathname} is not transactional: receive without a transaction",
            )
        unit = unit_of_work(self.context, transaction)
        position = self.queue.locked.get(lookup_identifier)
        if position is None or position.transaction is not None:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND, f"message {lookup_identifier:#x} is no longer locked"
            )
        self.begun.discard(lookup_identifier)
        unit.adopt(self.queue, lookup_identifier, position, self if hold else None)

    def hold(self, lookup_identifier: int) -> bool:
        """Lock a message again whose transaction aborts; False if this descriptor is closed, or the message purged."""
        position = self.queue.locked[lookup_identifier]
        if not self._open or position.state is PositionState.PURGE_PENDING:
            return False
        position.transaction = None
        self.begun.add(lookup_identifier)
        return True

    async def receive_end(self, lookup_identifier: int, delete: bool) -> None:
        """Dequeue Message End (3.1.7.1.12)."""
        await self.end_begun(lookup_identifier, delete)

    def end_begun(self, lookup_identifier: int, delete: bool) -> asyncio.Future[None]:
        """``receive_end``, which has happened when the returned write is on disk."""
        self.check_read(None, _RECEIVE)
        queue = self.queue
        position = queue.locked.get(lookup_identifier)
        if position is None or position.transaction is not None:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE, f"no receive_begin holds message {lookup_identifier:#x}"
            )
        self.end_read(lookup_identifier, ReadOutcome.TAKEN if delete else ReadOutcome.ABANDONED)
        return self._store.durable()

    def _end_read(self, lookup_identifier: int, delete: bool) -> None:
        queue = self.queue
        position = queue.unlock(lookup_identifier)
        if position.state is PositionState.PURGE_PENDING:
            queue.delete(lookup_identifier, position.value, MessageClass.MQMSG_CLASS_NACK_Q_PURGED)
        elif delete:
            queue.delete(lookup_identifier, position.value)
        else:
            queue.make_available(lookup_identifier, position.value)

    def _give_back(self) -> None:
        """End unfinished two-phase reads whose messages the receiver may have seen."""
        for lookup_identifier in sorted(self.begun):  # others may wait: they get them in the queue's order
            self.abandon(lookup_identifier)

    def abandon(self, lookup_identifier: int) -> None:
        """End an unfinished two-phase read whose message the receiver may have seen."""
        if lookup_identifier in self.begun:
            self.end_read(lookup_identifier, ReadOutcome.ABANDONED)
            self._store.durable()

    def give_back(self, lookup_identifier: int) -> None:
        """Make the message of an unfinished two-phase read, which no receiver has seen, available again."""
        if lookup_identifier not in self.begun:
            return
        self.begun.discard(lookup_identifier)
        position = self.queue.locked.get(lookup_identifier)
        if position is not None and position.transaction is None:
            self._end_read(lookup_identifier, delete=False)
            self._store.durable()

    async def _dequeue(self, limit: int, timeout: float | None, claim: Claim) -> list[Message]:
        entries = self.take_available(limit, claim)
        if not entries:
            if timeout is not None and timeout <= 0:
                raise timed_out()
            entries.append(await WaitingMessageReadOperation(self, claim).wait(timeout))
            if claim is _DELETE and self._open and not self.queue.deleted:
                # Those that came with it. Not for a transaction: it may have ended meanwhile.
                entries += self.take_available(limit - 1, claim, len(entries[0][1]))
        await self.settle(claim, entries)
        return [received_message(*entry) for entry in entries]

    def take_available(self, limit: int, claim: Claim, size: int = 0) -> list[Entry]:
        """Take and claim up to ``limit`` messages that are available now, in one call that has ``size`` bytes
        already.
        """
        queue = self.queue
        if queue.paused:
            return []
        if claim is _DELETE:
            return take_received(queue, limit, RECEIVED_AT_ONCE - size)
        entries: list[Entry] = []
        while len(entries) < limit and size < RECEIVED_AT_ONCE:
            entry = queue.take()
            if entry is None:
                break
            claim.take(queue, *entry)
            entries.append(entry)
            size += len(entry[1])
        return entries

    def take_fitting(self, limit: int, room: Room, claim: Claim) -> list[Entry]:
        """Take and claim up to ``limit`` available messages, up to one that is larger than the room of each of their
        receivers. MQ_ERROR_BUFFER_OVERFLOW if that is the first.
        """
        if self.queue.paused:
            return []
        count = count_first(self.queue, limit, room.holds)
        if not count and (entry := self.queue.first()) is not None:
            room.check(entry[1])
        return self.take_available(count, claim)

    async def receive_fitting(self, room: Room, timeout: float | None, transaction: InTransaction) -> Message:
        """Dequeue Message (3.1.7.1.10) unless it is larger than the room of the receiver."""
        self.claim(transaction)
        message = await self.receive_begin(timeout)
        entry = message.lookup_identifier, whole_value(message)
        try:
            room.check(entry[1])
            if transaction is not None and transaction != "single":
                self.end_read_in(entry[0], transaction)
                return message
            self.end_read(entry[0], ReadOutcome.TAKEN)
        finally:
            self.give_back(entry[0])
        await self.settle(_DELETE, [entry])
        return message

    def put_back(self, entries: Sequence[Arrived]) -> None:
        """Make messages available again, in their old places, that were received outside of a transaction and whose
        receiver did not get them.
        """
        # Others may wait: they get them in the queue's order.
        for lookup_identifier, value in sorted(entries, key=itemgetter(0)):
            _DELETE.undo(self.queue, lookup_identifier, bytes(value))
        self._store.durable()

    def claim(self, transaction: InTransaction) -> Claim:
        """Check that this descriptor may receive, and return the effect of a receive on its message."""
        if not self._open or not self._access & _RECEIVE or self.queue.deleted:
            self._refuse(_RECEIVE)
        if transaction is None or transaction == "single":
            return _DELETE
        if not self.queue.transactional:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_TRANSACTION_USAGE,
                f"{self.queue.pathname} is not transactional: receive without a transaction",
            )
        return TransactionClaim(unit_of_work(self.context, transaction))

    async def settle(self, claim: Claim, entries: Sequence[Entry]) -> None:
        """Wait until the removal of received messages is on disk. If the caller is cancelled meanwhile, all are
        returned.
        """
        future = self._store.durable() if claim is _DELETE else self._store.pending()
        if future is None:
            self._store.check()
            return
        try:
            await future
        except asyncio.CancelledError:
            for entry in reversed(entries):
                claim.undo(self.queue, *entry)
            self._store.durable()
            raise

    # Peeking

    async def peek(self, timeout: float | None = None) -> Message:
        """Peek Message (3.1.7.1.15), waiting for one if necessary."""
        self.check_read(timeout)
        entry = self.queue.first(peek=True)
        if entry is None:
            if timeout is not None and timeout <= 0:
                raise timed_out()
            entry = await WaitingMessageReadOperation(self, None).wait(timeout)
        await self.settle_peek()
        return peeked_message(self.queue, *entry)

    async def settle_peek(self) -> None:
        """Wait until the write that a peeked message may be part of is on disk, so that the message cannot vanish."""
        future = self._store.pending()
        if future is None:
            self._store.check()  # a message whose write failed is still in memory
        else:
            await future

    def cursor(self) -> Cursor:
        """Open Cursor (3.1.7.1.1) on this queue."""
        self.check_read(None)
        cursor = Cursor(self, self.context.next_handle())
        self.cursors[cursor.handle] = cursor
        return cursor

    # By lookup identifier

    async def receive_by_lookup_id(
        self, lookup_identifier: int, transaction: InTransaction = None, *, held: bool = False
    ) -> Message:
        """Read Message By Lookup Identifier (3.1.7.1.13), destructive. With ``held``, also one that is held back, since
        its receiver has it already.
        """
        claim = self.claim(transaction)
        entry = (lookup_identifier, self._value_by_lookup_id(lookup_identifier, held=held))
        self.queue.take_this(lookup_identifier)
        claim.take(self.queue, *entry)
        await self.settle(claim, [entry])
        return received_message(*entry)

    async def peek_by_lookup_id(self, lookup_identifier: int = 0, seek: Seek = "current") -> Message:
        """Read Message By Lookup Identifier (3.1.7.1.13), with Seek Available Message Position With Id (3.1.7.3.3)."""
        self.check_read(None)
        entry = self._seek(lookup_identifier, seek)
        if entry is None:
            raise _no_message(lookup_identifier, seek)
        await self.settle_peek()
        return peeked_message(self.queue, *entry)

    def _seek(self, lookup_identifier: int, seek: Seek, *, peek: bool = True) -> Entry | None:
        queue = self.queue
        if not peek:
            queue.check_resumed()
        match seek:
            case "first":
                return queue.after(START, peek=peek)
            case "last":
                return queue.before(END, peek=peek)
            case "next":
                return queue.after(lookup_identifier, peek=peek)
            case "prev":
                return queue.before(lookup_identifier, peek=peek)
            case "current":
                return lookup_identifier, self._value_by_lookup_id(lookup_identifier, peek=peek)

    def _value_by_lookup_id(self, lookup_identifier: int, peek: bool = False, *, held: bool = False) -> bytes:
        queue = self.queue
        position = queue.locked.get(lookup_identifier)
        if position is not None:
            if peek and queue.is_peekable(position):
                return position.value
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_TRANSACTION_USAGE if peek else ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND,
                f"message {lookup_identifier:#x} is locked: it is being received",
            )
        if not peek and not held:
            queue.check_resumed()
            self.context.retries.check_due(queue, lookup_identifier)
        value = queue.value_of(lookup_identifier)
        if value is None:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND, f"there is no message {lookup_identifier:#x} in {queue.pathname}"
            )
        return value

    # Moving and deleting

    async def move(self, lookup_identifier: int, target: QueueApi, transaction: InTransaction = None) -> None:
        """Move Message (3.1.7.1.16) between a queue and its subqueues."""
        self.check_read(None, _RECEIVE)
        into = self._move_target(target)
        unit = None
        if transaction is not None and transaction != "single":
            unit = unit_of_work(self.context, transaction)
        value = self._value_by_lookup_id(lookup_identifier, held=True)
        self.queue.take_this(lookup_identifier)
        if unit is not None:
            unit.move(self.queue, lookup_identifier, value, into)
            return
        self.queue.remove(lookup_identifier, value)
        into.insert(lookup_identifier, moved(value))
        await self._store.durable()

    def _move_target(self, target: QueueApi) -> Queue:
        if not isinstance(target, OpenQueueDescriptor) or target.context is not self.context or not target._open:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INVALID_HANDLE, "the target of a move is an open queue of the same queue manager"
            )
        if not target._access & Access.MOVE:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_ACCESS_DENIED, "the target of a move is open for Access.MOVE")
        target.queue.check_open()
        family = {id(queue.parent or queue) for queue in (self.queue, target.queue)}
        if len(family) > 1 or target.queue is self.queue:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INVALID_PARAMETER, "a message moves only between a queue and its subqueues"
            )
        return target.queue

    async def purge(self) -> None:
        """Purge Queue (3.1.7.1.7): delete all its messages."""
        self.check_read(None, _RECEIVE)
        await purge_queue(self.context, self.queue)

    # The descriptor

    def check_read(self, timeout: float | None, access: int = _READ) -> None:
        """Raise unless this descriptor may read."""
        if not self._open or not self._access & access or self.queue.deleted:
            self._refuse(access)

    async def close(self) -> None:
        """Close Queue (3.1.7.1.6) and everything opened through it."""
        self.closed()

    def closed(self) -> None:
        """Cancel the waiting reads, close the cursors, leave the queue."""
        if not self._open:
            return
        self._open = False
        for operation in list(self.waiting):
            operation.cancel(sentence="the queue was closed while the call waited")
        for cursor in list(self.cursors.values()):
            cursor.closed()
        self._give_back()
        queue, mode = self.queue, (self.access, self.share)
        del queue.descriptors[self.handle]
        queue.open_modes[mode] -= 1
        if not queue.open_modes[mode]:
            del queue.open_modes[mode]
        if self._access & _READ:
            queue.readers -= 1
            if not queue.readers:
                queue.forget_window()


def _no_message(lookup_identifier: int, seek: Seek) -> MessageQueuingError:
    return MessageQueuingError(
        ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND, f"there is no {seek} message for {lookup_identifier:#x}"
    )
