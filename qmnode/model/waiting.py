"""Reads that wait for a message: MS-MQDMPR 3.1.1.10 and 3.1.7.3.1 to 3.1.7.3.7."""

import asyncio
import math
from typing import TYPE_CHECKING

from qmnode.errors import MessageQueuingError
from qmnode.model.ports import Entry, TimerHandle
from qmnode.structures.error_codes import ErrorCode

if TYPE_CHECKING:
    from qmnode.model.claims import Claim
    from qmnode.model.cursor import Cursor
    from qmnode.model.open_queue import OpenQueueDescriptor


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
            self._timer = self._descriptor.manager.clock.call_later(timeout, self._expired)
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
                self._descriptor.manager.store.durable()
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
