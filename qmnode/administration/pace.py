"""The pace of administrative work in the event loop of a node, which serves applications as well."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter, thread_time
from typing import Final

_SLICE: Final = 0.002
"""Seconds of work between two passes of the loop."""
_RUN: Final = 0.03
"""Seconds of work between two looks at whether the loop works for others."""
_LOOK: Final = 0.004
"""Seconds that such a look takes."""
_OWN_MOST: Final = 0.0003
"""The most seconds of processor time that a look itself is taken to cost. A fast machine needs a tenth of that."""
_OWN_LEAST: Final = 0.00002
"""The least that a look is taken to cost. Work that waits outside of ``Pace.waiting`` hides the cost."""
_FORGET: Final = 1.02
"""Growth of the least cost of a look with each look, for machines that become slower."""
_BUSY: Final = 0.03
"""The part of its time from which the loop counts as working for others."""
_SHARE: Final = 0.05
"""The part of the loop's time that all administrative work takes together while others need the loop."""
_PAUSE: Final = 0.04
"""Seconds that such work at least stays away from a loop that others need, before it looks again."""


class _Loop(threading.local):
    """State that all administrative work of one thread, and so of one event loop, shares."""

    processor = 0.0
    """Seconds of processor time that administrative work has used."""
    run = 0.0
    """Seconds of such work since the last look."""
    own = _OWN_MOST
    """Seconds of processor time that a look itself costs: the least that was seen lately."""
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

    __slots__ = ("_began", "_used", "_worked")

    def __init__(self) -> None:
        self._begin()

    def _begin(self, worked: float = 0.0) -> None:
        self._worked, self._began, self._used = worked, perf_counter(), thread_time()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Wait for the disk inside of this. It is no work, and all that the loop does meanwhile is that of others."""
        worked = self._worked + perf_counter() - self._began
        _loop.processor += thread_time() - self._used
        try:
            yield
        finally:
            self._begin(worked)

    async def rest(self) -> None:
        """Call often, wherever the work can be interrupted. Waits when it has gone on for long enough."""
        now = perf_counter()
        worked = self._worked + now - self._began
        if worked < _SLICE:
            return
        _loop.processor += thread_time() - self._used
        _loop.run += worked
        if _loop.busy:
            _loop.free_at = max(_loop.free_at, now) + worked * (1 / _SHARE - 1)
            await _stay_away()
        elif _loop.run >= _RUN and await _look(_LOOK):
            await _look(3 * _LOOK)  # One look is wrong when the machine stumbles.
        else:
            await asyncio.sleep(0)
        self._begin()


async def _stay_away() -> None:
    """Wait until administrative work may go on, or until nobody else needs the loop any more."""
    while _loop.busy and (left := _loop.free_at - perf_counter()) > 0:
        if not await _look(max(left, _PAUSE) if left < 2 * _PAUSE else _PAUSE):
            _loop.free_at = 0.0


async def _look(seconds: float) -> bool:
    """Sleep, and see whether the loop works for others in that time."""
    began, used = perf_counter(), thread_time() - _loop.processor
    await asyncio.sleep(seconds)
    others = thread_time() - _loop.processor - used
    _loop.own = max(_OWN_LEAST, min(_loop.own * _FORGET, others, _OWN_MOST))
    _loop.busy, _loop.run = others > 2 * _loop.own + _BUSY * (perf_counter() - began), 0.0
    return _loop.busy
