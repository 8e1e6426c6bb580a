"""One question to the directory for all who wait for its answer."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Generic, TypeVar

Place = TypeVar("Place")
Answer = TypeVar("Answer")


class SharedReads(Generic[Place, Answer]):
    """Questions that are under way, by what they ask for. One who stops waiting takes nothing from the others."""

    def __init__(self) -> None:
        self._running: dict[Place, asyncio.Task[Answer]] = {}

    async def share(self, place: Place, ask: Callable[[], Coroutine[None, None, Answer]]) -> Answer:
        """The answer to the question at ``place``, which ``ask`` puts unless someone has put it already."""
        task = self._running.get(place)
        if task is None:
            task = asyncio.create_task(ask())
            self._running[place] = task
            task.add_done_callback(lambda done: self._finished(place, done))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """End the questions that still run; those who wait are cancelled."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _finished(self, place: Place, task: asyncio.Task[Answer]) -> None:
        del self._running[place]
        if not task.cancelled():
            task.exception()  # the waiters have it; if all of them left, nobody needs it
