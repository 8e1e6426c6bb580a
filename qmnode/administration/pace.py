"""The pace of administrative work in the event loop of a node, which serves applications as well."""

import asyncio
from time import perf_counter
from typing import Final

_SLICE: Final = 0.002
"""Seconds of work between two looks at who else wants the loop."""
_SHARE: Final = 0.05
"""Part of the loop's time that the work takes while others want it as well."""
_IDLE: Final = 0.0005
"""Seconds that a pass of the loop takes when nobody else has work for it."""


class Pace:
    """Lets others go first: full speed while the loop is idle, a twentieth of its time while it is not."""

    __slots__ = ("_began",)

    def __init__(self) -> None:
        self._began = perf_counter()

    async def rest(self) -> None:
        """Call often, wherever the work can be interrupted. Waits when it has gone on for long enough."""
        stopped = perf_counter()
        worked = stopped - self._began
        if worked < _SLICE:
            return
        await asyncio.sleep(0)
        waited = perf_counter() - stopped
        if waited > _IDLE:
            await asyncio.sleep(worked * (1 / _SHARE - 1) - waited)
        self._began = perf_counter()

    def begin(self) -> None:
        """The work goes on after it has waited for something of its own, such as the disk."""
        self._began = perf_counter()
