"""Large messages whose receivers are about to ask for them: a message that is handed on at once is never written."""

import asyncio
from typing import Final
from weakref import WeakSet

from qmnode.model.queue import Queue

_PATIENCE: Final = 0.02
"""Seconds that a large message waits for a receiver, and those behind it in its session. To write it takes as long."""


class SoonReceived:
    """The queues whose receivers come back for each large message."""

    def __init__(self) -> None:
        self._drained: WeakSet[Queue] = WeakSet()
        """Those whose last large message found a receiver waiting."""

    def is_expected(self, queue: Queue | None) -> bool:
        """Note that a large message has come for a queue. Return whether it should ``wait`` before it is stored."""
        if queue is None:
            return False
        if not queue.waiting:
            return queue in self._drained
        self._drained.add(queue)
        return False

    async def wait(self, queue: Queue) -> None:
        """Wait until a receiver waits at the queue, but not long."""
        if queue.awaited is None:
            queue.awaited = asyncio.get_running_loop().create_future()
        done, _ = await asyncio.wait((queue.awaited,), timeout=_PATIENCE)
        if not done:
            self.forget(queue)

    def forget(self, queue: Queue) -> None:
        """Let no message wait until another one has found a receiver waiting."""
        self._drained.discard(queue)
