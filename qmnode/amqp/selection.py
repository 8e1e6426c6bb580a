"""The messages of a queue that a selector selects, for one link, in the queue's order."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

from qmnode.administration.messages import browse
from qmnode.errors import MessageQueuingError
from qmnode.model.message import Message
from qmnode.model.open_queue import OpenQueueDescriptor
from qmnode.model.reading import WaitingMessageReadOperation
from qmnode.structures.error_codes import ErrorCode

_SHARE: Final = 20
"""Looks at the whole queue take one part in so many of the loop's time."""
_SHORTEST: Final = 1.0
_LONGEST_UNCHANGED: Final = 60.0
"""Seconds between looks at the whole queue, if it has changed since, and if its numbers are the same."""


class Selection:
    """A place in a queue, before which it has nothing that the selector selects.

    Messages that return, and those of a higher priority, appear before that place. The link learns of most when they
    come, and finds the rest when it looks at the whole queue again.
    """

    def __init__(self, queue: OpenQueueDescriptor, selects: Callable[[Message], bool]) -> None:
        self._queue = queue
        self._selects = selects
        self._place: int | None = None
        self._numbers: tuple[int, ...] = ()
        """Counts of the queue, from when the last look at all of it began."""
        self._began = self._cost = 0.0
        """The moment of that, and the time of the loop that it took."""

    async def look(self) -> AsyncGenerator[Message, None]:
        """Those that are available now, from the place on."""
        paused = self._queue.queue.paused
        if paused:
            self._place = None
        if self._place is None:
            self._numbers, self._began, self._cost = self._of_now(), time.monotonic(), 0.0
        if paused:
            return
        async with aclosing(browse(self._queue, self._place)) as messages:
            started = time.thread_time()
            async for message in messages:
                self._place = message.lookup_identifier
                if self._selects(message):
                    self._cost += time.thread_time() - started
                    yield message
                    started = time.thread_time()
            self._cost += time.thread_time() - started

    async def change(self) -> None:
        """Wait until there may be more of them."""
        wait = max(_SHORTEST, self._cost * _SHARE)
        if self._numbers == self._of_now():
            wait = max(wait, _LONGEST_UNCHANGED)
        found = await self._next_available(self._began + wait - time.monotonic())
        if found is None:
            self._place = None
        elif self._place is not None:
            self._place = min(self._place, found - 1)

    async def _next_available(self, seconds: float) -> int | None:
        """The lookup identifier of the next message that appears; None after some seconds."""
        if seconds <= 0:
            return None
        try:
            return (await WaitingMessageReadOperation(self._queue, None).wait(seconds))[0]
        except MessageQueuingError as error:
            if error.code == ErrorCode.MQ_ERROR_IO_TIMEOUT:
                return None
            raise

    def _of_now(self) -> tuple[int, ...]:
        queue = self._queue.queue
        return queue.tally.arrived, queue.message_count, len(queue.locked), len(queue.tries)
