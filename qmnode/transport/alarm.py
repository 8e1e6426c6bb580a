"""One timer of the event loop for an object that always knows its next deadline."""

import asyncio
from collections.abc import Callable


class Alarm:
    """Calls back at a deadline that is set again and again, mostly to later ones.

    A later deadline does not touch the loop's timer: when that fires, the alarm sleeps on. So moving a deadline with
    every message costs a comparison.
    """

    __slots__ = ("_armed", "_callback", "_deadline", "_handle", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
        self._loop = loop
        self._callback = callback
        self._deadline: float | None = None
        self._armed = 0.0
        self._handle: asyncio.TimerHandle | None = None

    def set(self, deadline: float | None) -> None:
        """Call back at this time of the loop's clock; None for never."""
        self._deadline = deadline
        if deadline is None or (self._handle is not None and self._armed <= deadline):
            return
        if self._handle is not None:
            self._handle.cancel()
        self._armed = max(deadline, self._loop.time())
        self._handle = self._loop.call_at(self._armed, self._fire)

    def stop(self) -> None:
        """Never call back again, unless it is set again."""
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
