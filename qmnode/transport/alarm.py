"""One event-loop timer for an object whose next deadline moves often."""

import asyncio
from collections.abc import Callable


class Alarm:
    """Calls back at a deadline that is set again and again, mostly to a later time.

    A later deadline does not touch the loop's timer: when the timer fires early, the alarm sets it again. So moving a
    deadline with every message costs only a comparison.
    """

    __slots__ = ("_armed", "_callback", "_deadline", "_handle", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
        self._loop = loop
        self._callback = callback
        self._deadline: float | None = None
        self._armed = 0.0
        self._handle: asyncio.TimerHandle | None = None

    def set(self, deadline: float | None) -> None:
        """Set the deadline, by the loop's clock; None for never."""
        self._deadline = deadline
        if deadline is None or (self._handle is not None and self._armed <= deadline):
            return
        if self._handle is not None:
            self._handle.cancel()
        self._armed = max(deadline, self._loop.time())
        self._handle = self._loop.call_at(self._armed, self._fire)

    def stop(self) -> None:
        """Cancel the deadline until it is set again."""
        self._deadline = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self._handle = None
        deadline = self._deadline
        if deadline is None:
            return
        if deadline > self._loop.time():
            self.set(deadline)
            return
        self._deadline = None
        self._callback()
