"""A queue manager on a temporary store, with a clock that tests turn."""

import heapq
from collections.abc import AsyncIterator, Callable
from itertools import count
from pathlib import Path

import pytest

from qmnode.node import QueueManager
from qmnode.settings.node import Settings


class _Timer:
    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class FakeClock:
    """Time that stands still until a test advances it."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now
        self._timers: list[tuple[float, int, _Timer]] = []
        self._order = count()

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], object]) -> _Timer:
        timer = _Timer(callback)
        heapq.heappush(self._timers, (self.now + delay, next(self._order), timer))
        return timer

    def advance(self, seconds: float) -> None:
        """Fire what is due, each at its own time."""
        until = self.now + seconds
        while self._timers and self._timers[0][0] <= until:
            self.now, _, timer = heapq.heappop(self._timers)
            if timer.callback is not None:
                timer.callback()
        self.now = until


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


class Node:
    """A queue manager that can be restarted, with or without being closed first."""

    def __init__(self, path: Path, clock: FakeClock, settings: Settings) -> None:
        self.path, self.clock, self.settings = path, clock, settings
        self.qm: QueueManager

    async def start(self) -> QueueManager:
        self.qm = await QueueManager.open(self.path, settings=self.settings, clock=self.clock)
        return self.qm

    async def restart(self) -> QueueManager:
        await self.qm.close()
        return await self.start()

    async def crash(self) -> QueueManager:
        """What a power cut leaves: what was synced, and nothing that the process would have written when it closed."""
        copy = self.path.with_name(self.path.name + "x")
        copy.mkdir()
        for file in self.path.iterdir():
            if file.name != "LOCK":
                (copy / file.name).write_bytes(file.read_bytes())
        await self.qm.close()
        self.path = copy
        return await self.start()


@pytest.fixture
async def node(tmp_path: Path, clock: FakeClock) -> AsyncIterator[Node]:
    node = Node(tmp_path / "node", clock, Settings(computer_name="ALPHA"))
    await node.start()
    yield node
    await node.qm.close()


@pytest.fixture
def qm(node: Node) -> QueueManager:
    return node.qm
