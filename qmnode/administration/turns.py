"""Turns of administrative work: applications go before it, and the owners of its jobs take turns."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from time import perf_counter, thread_time
from typing import Final

_SLICE: Final = 0.002
"""Seconds of work before other tasks of the loop get a turn."""
_RUN: Final = 0.03
"""Seconds of work between two measurements of how busy the loop is with other work."""
_LOOK: Final = 0.004
"""Seconds of a measurement."""
_OWN_MOST: Final = 0.0003
"""Upper bound for the processor time of a measurement itself, in seconds. A fast machine needs a tenth of that."""
_OWN_LEAST: Final = 0.00002
"""Lower bound for it. Work that waits outside of ``Pace.waiting`` hides the cost."""
_FORGET: Final = 1.02
"""Factor by which the least known cost grows with each measurement, for machines that become slower."""
_BUSY: Final = 0.03
"""The share of its time from which the loop counts as busy with other work."""
_SHARE: Final = 0.05
"""The share of the loop's time that all administrative work gets together while the loop is busy."""
_PAUSE: Final = 0.04
"""The shortest pause of administrative work while the loop is busy, in seconds."""


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


class JobTurns:
    """Places for workers. A free place goes to the owner who has waited longest since the last turn."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @property
    def anyone_waits(self) -> bool:
        """Whether somebody waits for a place."""
        return bool(self._waiting)

    @asynccontextmanager
    async def turn(self, owner: str) -> AsyncIterator[None]:
        """Wait for a place, and give it on at the end of the block."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(owner)
        try:
            yield
        finally:
            self._give_on()

    async def _wait(self, owner: str) -> None:
        place = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(place)
        try:
            await place
        except BaseException:
            if not place.cancelled():  # it was given just before the waiter was cancelled
                self._give_on()
            raise

    def _give_on(self) -> None:
        while self._waiting:
            owner = next(iter(self._waiting))
            waiters = self._waiting.pop(owner)
            place = waiters.popleft()
            if waiters:
                self._waiting[owner] = waiters
            if not place.cancelled():
                place.set_result(None)
                return
        self._free += 1
