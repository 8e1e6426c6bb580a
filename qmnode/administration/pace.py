"""The pace of administrative work in the event loop of a node, which serves applications as well."""

import asyncio
import threading
from time import perf_counter, thread_time
from typing import Final

_SLICE: Final = 0.002
"""Seconds of work between two passes of the loop."""
_RUN: Final = 0.03
"""Seconds of work between two looks at whether the loop works for others."""
_LOOK: Final = 0.002
"""Seconds that such a look takes."""
_OWN: Final = 0.0001
"""Seconds of processor time that a look may take itself. On a fast machine it takes a third of that."""
_BUSY: Final = 0.03
"""The part of its time from which the loop counts as working for others."""
_SHARE: Final = 0.05
"""The part of the loop's time that all administrative work takes together while others need the loop."""


class _Loop(threading.local):
    """State that all administrative work of one thread, and so of one event loop, shares."""

    processor = 0.0
    """Seconds of processor time that administrative work has used."""
    run = 0.0
    """Seconds of such work since the last look."""
    busy = False
    """Whether the loop worked for others when it was last looked at."""
    free_at = 0.0
    """The moment from which such work may go on while others need the loop."""


_loop: Final = _Loop()


class Pace:
    """Lets others go first: full speed while the loop is idle, a twentieth of its time while it is not.

    A single pass of the loop cannot tell which of the two holds: it is short while applications wait for the disk. So
    the processor time that the loop uses in a while without administrative work decides.
    """

    __slots__ = ("_began", "_used")

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """The work goes on after it has waited for something of its own, such as the disk."""
        self._began, self._used = perf_counter(), thread_time()

    async def rest(self) -> None:
        """Call often, wherever the work can be interrupted. Waits when it has gone on for long enough."""
        now = perf_counter()
        worked = now - self._began
        if worked < _SLICE:
            return
        _loop.processor += thread_time() - self._used
        _loop.run += worked
        if _loop.busy:
            _loop.free_at = max(_loop.free_at, now) + worked * (1 / _SHARE - 1)
            await _look(_loop.free_at - now)
        elif _loop.run >= _RUN:
            await _look(_LOOK)
        else:
            await asyncio.sleep(0)
        self.begin()


async def _look(seconds: float) -> None:
    """Sleep, and see how much of that time the loop works for others."""
    began, used = perf_counter(), thread_time() - _loop.processor
    await asyncio.sleep(seconds)
    others = thread_time() - _loop.processor - used
    _loop.busy, _loop.run = others > _OWN + _BUSY * (perf_counter() - began), 0.0
