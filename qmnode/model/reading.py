"""Reads of a queue: the ways to claim a message, reads of tasks, and cursors.

MS-MQDMPR 3.1.1.10, 3.1.7.3.1 to 3.1.7.3.7 and 3.2. The state machine of a cursor is the table below, which contains
every change of a cursor's state.
"""

import asyncio
from collections.abc import Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Protocol

from qmnode.errors import MessageQueuingError
from qmnode.model.api import CursorApi, InTransaction
from qmnode.model.message import Message
from qmnode.model.ports import Entry
from qmnode.model.positions import Claim, OpenForReading, WaitingRead
from qmnode.model.retries import peeked_message
from qmnode.model.stored_message import received_message
from qmnode.structures.error_codes import ErrorCode

if TYPE_CHECKING:
    from qmnode.model.queue import Queue
    from qmnode.model.transaction import Transaction


class Delete:
    """A plain receive: the message is deleted."""

    transaction = None

    @staticmethod
    def take(queue: "Queue", lookup_identifier: int, value: bytes) -> None:
        """Delete the message: Message Position Deleted."""
        queue.delete(lookup_identifier, value)

    @staticmethod
    def undo(queue: "Queue", lookup_identifier: int, value: bytes) -> None:
        """Put the message back under its old lookup identifier, and remove its copy from the journal."""
        if queue.deleted:
            return
        if queue.journaling and queue.journal.value_of(lookup_identifier) is not None:
            queue.journal.take_this(lookup_identifier)
            queue.journal.remove(lookup_identifier, value)
        queue.insert(lookup_identifier, value)


class Lock:
    """The first phase of a two-phase read (3.1.7.1.11): the message is locked until the second."""

    transaction = None

    @staticmethod
    def take(queue: "Queue", lookup_identifier: int, value: bytes) -> None:
        """Lock the message: Available to Locked."""
        queue.lock(lookup_identifier, value, None)

    @staticmethod
    def undo(queue: "Queue", lookup_identifier: int, value: bytes) -> None:
        """Unlock the message: Locked to Available."""
        if not queue.deleted:
            queue.unlock(lookup_identifier)
            queue.make_available(lookup_identifier, value)


class ReadOutcome(Enum):
    """How a two-phase read ends."""

    TAKEN = auto()
    """The message is gone: its receiver has it."""
    RETURNED = auto()
    """It is available again, in its old place."""
    FAILED = auto()
    """The same, and counted as an aborted receive."""
    REJECTED = auto()
    """It is a dead letter: nobody could do anything with it."""
    ABANDONED = auto()
    """Its receiver went away, or does not say: failed in a queue whose messages have retries, returned in others."""


class TransactionClaim:
    """A receive in a transaction: the message is locked until the transaction ends."""

    __slots__ = ("transaction",)

    def __init__(self, transaction: "Transaction") -> None:
        self.transaction = transaction

    def take(self, queue: "Queue", lookup_identifier: int, value: bytes) -> None:
        """Lock the message; the commit deletes it."""
        self.transaction.dequeue(queue, lookup_identifier, value)

    def undo(self, queue: "Queue", lookup_identifier: int, value: bytes) -> None:
        """Remove the message from the transaction."""
        self.transaction.give_back(queue, lookup_identifier)


class WaitingMessageReadOperation(WaitingRead):
    """The waiting read of a task."""

    __slots__ = ("_future",)

    def __init__(
        self,
        descriptor: OpenForReading,
        claim: "Claim | None",
        cursor: "Cursor | None" = None,
    ) -> None:
        super().__init__(descriptor, claim, cursor)
        self._future: asyncio.Future[Entry] = asyncio.get_running_loop().create_future()

    @property
    def closed(self) -> bool:
        """Whether the task no longer waits: it may have been cancelled, and not have run since."""
        return self._future.done()

    async def wait(self, timeout: float | None) -> Entry:
        """Return the message, which a destructive read then owns. Raises MQ_ERROR_IO_TIMEOUT."""
        self.begin(timeout)
        try:
            return await self._future
        except asyncio.CancelledError:
            done = self._future.done() and not self._future.cancelled() and self._future.exception() is None
            if done and self._claim is not None:
                # A message came in the same moment: it must not be lost with the caller.
                self._claim.undo(self._descriptor.queue, *self._future.result())
                self._descriptor.context.store.durable()
            raise
        finally:
            self._future.cancel()
            self.leave()

    def found(self, entry: Entry) -> None:
        """Wake the task, which owns the message of a destructive read."""
        self._future.set_result(entry)

    def failed(self, error: MessageQueuingError) -> None:
        """Wake the task, which raises the error."""
        self._future.set_exception(error)


class OpenForReads(OpenForReading, Protocol):
    """The open queue of reads and cursors, as they need it."""

    cursors: "dict[int, Cursor]"

    def claim(self, transaction: InTransaction) -> Claim:
        """Check that it may receive, and return the effect of a receive on its message."""

    def begin(self, message: Message) -> Message:
        """Record a locked message as held by it."""

    async def settle(self, claim: Claim, entries: Sequence[Entry]) -> None:
        """Wait until the removal of received messages is on disk."""

    async def settle_peek(self) -> None:
        """Wait until the write that a peeked message may be part of is on disk."""

    def check_read(self, timeout: float | None) -> None:
        """Raise unless it may read."""


class CursorState(Enum):
    """The states of a cursor: CursorState, 3.2.1.2."""

    UNREAD = auto()
    WAIT_RECEIVE = auto()
    WAIT_PEEK = auto()
    READ = auto()


class CursorEvent(Enum):
    """Causes of a state change: the events of 3.2.7, with the result of the seek."""

    PEEK_FOUND = auto()
    PEEK_NOTHING = auto()
    PEEK_NEXT_FOUND = auto()
    PEEK_NEXT_NOTHING = auto()
    RECEIVE_FOUND = auto()
    RECEIVE_NOTHING = auto()
    MESSAGE_AVAILABLE = auto()
    WAIT_TIME_EXPIRED = auto()


TRANSITIONS: Final[dict[tuple[CursorState, CursorEvent], CursorState]] = {
    (CursorState.UNREAD, CursorEvent.PEEK_FOUND): CursorState.READ,
    (CursorState.UNREAD, CursorEvent.PEEK_NOTHING): CursorState.WAIT_PEEK,
    (CursorState.UNREAD, CursorEvent.RECEIVE_FOUND): CursorState.UNREAD,
    (CursorState.UNREAD, CursorEvent.RECEIVE_NOTHING): CursorState.WAIT_RECEIVE,
    (CursorState.READ, CursorEvent.PEEK_NEXT_FOUND): CursorState.READ,
    (CursorState.READ, CursorEvent.PEEK_NEXT_NOTHING): CursorState.WAIT_PEEK,
    (CursorState.READ, CursorEvent.RECEIVE_FOUND): CursorState.UNREAD,
    (CursorState.WAIT_PEEK, CursorEvent.MESSAGE_AVAILABLE): CursorState.READ,
    (CursorState.WAIT_PEEK, CursorEvent.WAIT_TIME_EXPIRED): CursorState.UNREAD,
    (CursorState.WAIT_RECEIVE, CursorEvent.MESSAGE_AVAILABLE): CursorState.UNREAD,
    (CursorState.WAIT_RECEIVE, CursorEvent.WAIT_TIME_EXPIRED): CursorState.UNREAD,
}

_LOCK: Final = Lock()
START: Final = -1
END: Final = 1 << 64


class Cursor(CursorApi):
    """A cursor over an open queue."""

    def __init__(self, descriptor: OpenForReads, handle: int) -> None:
        """Initialize the cursor (3.2.7.1)."""
        self.handle = handle
        self.descriptor = descriptor
        self.position = START
        """MessagePositionReference: a lookup identifier, START or END."""
        self.state = CursorState.UNREAD
        self._closed = False

    def _step(self, event: CursorEvent) -> None:
        try:
            self.state = TRANSITIONS[self.state, event]
        except KeyError:
            raise _illegal("another read waits on the cursor") from None

    # Reads

    async def peek(self, timeout: float | None = None) -> Message:
        """Get Message For Peek (3.2.7.2)."""
        self._check(timeout)
        if self.state is CursorState.READ:
            return await self._read_again()
        entry = self.descriptor.queue.after(self.position, peek=True)
        return await self._peeked(entry, CursorEvent.PEEK_FOUND, CursorEvent.PEEK_NOTHING, timeout)

    async def peek_next(self, timeout: float | None = None) -> Message:
        """Get Next Message For Peek (3.2.7.3)."""
        self._check(timeout)
        if self.state is not CursorState.READ:
            raise _illegal("peek at a message before peeking at the next")
        entry = self.descriptor.queue.after(self.position, peek=True)
        return await self._peeked(entry, CursorEvent.PEEK_NEXT_FOUND, CursorEvent.PEEK_NEXT_NOTHING, timeout)

    async def receive(self, timeout: float | None = None, transaction: InTransaction = None) -> Message:
        """Get Next Message For Dequeue (3.2.7.4)."""
        self._check(timeout)
        return await self._receive(self.descriptor.claim(transaction), timeout)

    async def receive_begin(self, timeout: float | None = None) -> Message:
        """Dequeue Message Begin (3.1.7.1.11) with this cursor: finish with the open queue's ``receive_end``."""
        self._check(timeout)
        self.descriptor.claim(None)
        return self.descriptor.begin(await self._receive(_LOCK, timeout))

    async def _receive(self, claim: "Claim", timeout: float | None) -> Message:
        descriptor = self.descriptor
        queue = descriptor.queue
        if self.state is CursorState.READ:
            queue.check_resumed()
            value = queue.value_of(self.position)
            if value is None:
                raise _already_received()
            queue.context.retries.check_due(queue, self.position)
            entry: Entry | None = (self.position, value)
        else:
            entry = queue.after(self.position, peek=False) if not queue.paused else None
        if entry is not None:
            self._step(CursorEvent.RECEIVE_FOUND)
            self.position = entry[0]
            queue.take_this(entry[0])
            claim.take(queue, *entry)
        elif timeout == 0:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND, "there is no message at or after the cursor"
            )
        else:
            self._step(CursorEvent.RECEIVE_NOTHING)
            entry = await self._wait(WaitingMessageReadOperation(descriptor, claim, self), timeout)
        await descriptor.settle(claim, [entry])
        return received_message(*entry)

    async def _read_again(self) -> Message:
        value = self.descriptor.queue.value_of(self.position)
        if value is None:
            raise _already_received()
        await self.descriptor.settle_peek()
        return peeked_message(self.descriptor.queue, self.position, value)

    async def _peeked(
        self, entry: Entry | None, found: CursorEvent, nothing: CursorEvent, timeout: float | None
    ) -> Message:
        if entry is None:
            self._step(nothing)
            entry = await self._wait(WaitingMessageReadOperation(self.descriptor, None, self), timeout)
        else:
            self._step(found)
            self.position = entry[0]
        await self.descriptor.settle_peek()
        return peeked_message(self.descriptor.queue, *entry)

    async def _wait(self, operation: WaitingMessageReadOperation, timeout: float | None) -> Entry:
        try:
            entry = await operation.wait(timeout)
        except BaseException:
            # Wait Time Expired (3.2.7.6), also for a cancelled wait.
            if self.state is CursorState.WAIT_RECEIVE:
                self.position = self._end()
            self._step(CursorEvent.WAIT_TIME_EXPIRED)
            raise
        self._step(CursorEvent.MESSAGE_AVAILABLE)
        self.position = entry[0]
        return entry

    def _end(self) -> int:
        """The position behind all current messages and before future ones.

        The specification's End is behind future messages too, which would blind the cursor for ever; Windows finds
        them.
        """
        return self.position

    def _check(self, timeout: float | None) -> None:
        self.descriptor.check_read(timeout)
        if self._closed:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_INVALID_HANDLE, "the cursor is closed")

    async def close(self) -> None:
        """Close Cursor (3.1.7.1.2), cancelling its reads."""
        self.closed()

    def closed(self) -> None:
        """Cancel the reads that wait on it, and leave the open queue."""
        if self._closed:
            return
        self._closed = True
        for operation in [waiting for waiting in self.descriptor.waiting if waiting.cursor is self]:
            operation.cancel(sentence="the cursor was closed")
        self.descriptor.cursors.pop(self.handle, None)


def _illegal(sentence: str) -> MessageQueuingError:
    return MessageQueuingError(ErrorCode.MQ_ERROR_ILLEGAL_CURSOR_ACTION, sentence)


def _already_received() -> MessageQueuingError:
    return MessageQueuingError(
        ErrorCode.MQ_ERROR_MESSAGE_ALREADY_RECEIVED, "the message at the cursor was received by someone else"
    )
