"""Turns at work that only a few may do at a time: owners take turns, and each owner's waiters in their order."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """Places for workers. A free place goes to the owner who has waited longest since the last turn."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @property
    def wanted(self) -> bool:
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
