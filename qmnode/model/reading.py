"""Reads of a queue: how one waits for a message, and how it makes the message its own.

MS-MQDMPR 3.1.1.10 and 3.1.7.3.1 to 3.1.7.3.7.
"""

import asyncio
import math
from typing import TYPE_CHECKING, Protocol

from qmnode.errors import MessageQueuingError
from qmnode.model.ports import Entry, TimerHandle
from qmnode.structures.error_codes import ErrorCode

if TYPE_CHECKING:
    from qmnode.model.cursor import Cursor
    from qmnode.model.open_queue import OpenQueueDescriptor
    from qmnode.model.queue import Queue
    from qmnode.model.transaction import Transaction


class Claim(Protocol):
    """What a destructive read does to the message that it found."""

    @property
    def transaction(self) -> "Transaction | None":
        """The transaction that the read is part of."""

    def take(self, queue: "Queue", lookup_identifier: int, value: bytes) -> None:
        """The message, which has been taken (``Queue.take`` or ``take_this``), is the reader's."""

    def undo(self, queue: "Queue", lookup_identifier: int, value: bytes) -> None:
        """The reader was cancelled: the message is available again, in its old place."""


class Delete:
    """A plain receive: the message is gone."""

    transaction = None

    @staticmethod
    def take(queue: "Queue", lookup_identifier: int, value: bytes) -> None:
        """Message Position Deleted."""
        queue.delete(lookup_identifier, value)

    @staticmethod
    def undo(queue: "Queue", lookup_identifier: int, value: bytes) -> None:
        """Put it back under its old lookup identifier, and take its copy out of the journal."""
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
        """Available to Locked."""
        queue.lock(lookup_identifier, value, None)

    @staticmethod
    def undo(queue: "Queue", lookup_identifier: int, value: bytes) -> None:
        """Locked to Available."""
        if not queue.deleted:
            queue.unlock(lookup_identifier)
            queue.make_available(lookup_identifier, value)


class InTransaction:
    """A receive in a transaction: the message is locked until the transaction ends."""

    __slots__ = ("transaction",)

    def __init__(self, transaction: "Transaction") -> None:
        self.transaction = transaction

    def take(self, queue: "Queue", lookup_identifier: int, value: bytes) -> None:
        """Available to Locked, deleted at commit."""
        self.transaction.dequeue(queue, lookup_identifier, value)

    def undo(self, queue: "Queue", lookup_identifier: int, value: bytes) -> None:
        """Not part of the transaction any more."""
        self.transaction.give_back(queue, lookup_identifier)


class WaitingMessageReadOperation:
    """One caller that waits for a message to become available in a queue, first come, first served."""

    __slots__ = ("_claim", "_descriptor", "_future", "_timer", "cursor", "destructive_read", "tag")

    def __init__(
        self,
        descriptor: "OpenQueueDescriptor",
        claim: "Claim | None",
        cursor: "Cursor | None" = None,
        tag: object = None,
    ) -> None:
        self._descriptor = descriptor
        self._claim = claim
        self._future: asyncio.Future[Entry] = asyncio.get_running_loop().create_future()
        self._timer: TimerHandle | None = None
        self.destructive_read = claim is not None
        self.cursor = cursor
        self.tag = tag

    @property
    def closed(self) -> bool:
        """Whether the caller no longer waits."""
        return self._future.done()

    async def wait(self, timeout: float | None) -> Entry:
        """Wait For New Message (3.1.7.3.1): the message, which a destructive read then owns; or MQ_ERROR_IO_TIMEOUT."""
        if timeout is not None:
            if timeout <= 0:
                raise timed_out()
            if math.isnan(timeout):  # one such timer puts all timers of the event loop out of order
                raise MessageQueuingError(
                    ErrorCode.MQ_ERROR_INVALID_PARAMETER, "the timeout is not a number: seconds, or None for ever"
                )
            self._timer = self._descriptor.context.clock.call_later(timeout, self._expired)
        self._descriptor.queue.waiting[self] = None
        self._descriptor.waiting.add(self)
        transaction = self._claim.transaction if self._claim is not None else None
        if transaction is not None:
            transaction.readers.add(self)
        try:
            return await self._future
        except asyncio.CancelledError:
            if self._future.done() and not self._future.cancelled() and self._claim is not None:
                # A message came in the same moment: it must not be lost with the caller.
                self._claim.undo(self._descriptor.queue, *self._future.result())
                self._descriptor.context.store.durable()
            raise
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._descriptor.waiting.discard(self)
            if transaction is not None:
                transaction.readers.discard(self)
            if not self._future.done() or self._future.cancelled() or self._future.exception() is not None:
                self._leave()

    def _leave(self) -> None:
        self._future.cancel()
        self._descriptor.queue.waiting.pop(self, None)

    def satisfied(self, lookup_identifier: int, value: bytes) -> None:
        """Waiting Message Read Satisfied (3.1.7.3.6)."""
        if self._claim is not None:
            self._claim.take(self._descriptor.queue, lookup_identifier, value)
        self._future.set_result((lookup_identifier, value))

    def _expired(self) -> None:
        """Waiting Message Read Timer Expired (3.1.6.3)."""
        if not self._future.done():
            self._future.set_exception(timed_out())

    def cancel(self, code: ErrorCode = ErrorCode.MQ_ERROR_OPERATION_CANCELLED, sentence: str | None = None) -> None:
        """Cancel Waiting Message Read Request (3.1.7.1.17)."""
        if not self._future.done():
            self._future.set_exception(MessageQueuingError(code, sentence))


def timed_out() -> MessageQueuingError:
    """The error of a read that found nothing in its time."""
    return MessageQueuingError(ErrorCode.MQ_ERROR_IO_TIMEOUT, "no message came in the time that the call was to wait")
