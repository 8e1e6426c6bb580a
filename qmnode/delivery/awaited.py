"""Large messages, and many at once, whose receivers are about to ask for them: what is handed on at once is never
written.
"""

import asyncio
from typing import Final
from weakref import WeakSet

from qmnode.model.queue import Queue
from qmnode.storage.large import SMALLEST

_PATIENCE: Final = 0.02
"""Seconds that a large message waits for a receiver, and those behind it in its session. To write it takes as long."""
_PATIENCE_OF_MANY: Final = 0.002
"""The same for many small messages at once."""
MANY: Final = 32
"""Messages that are worth the wait together."""


class AwaitedMessages:
    """The queues whose receivers come back for each large message, or for many."""

    def __init__(self) -> None:
        self._drained: WeakSet[Queue] = WeakSet()
        """Those whose last such messages found a receiver waiting."""

    def is_expected(self, queue: Queue | None) -> bool:
        """Note that a large message has come for a queue, or many. Return whether they should ``wait`` before they are
        stored.
        """
        if queue is None:
            return False
        if not queue.waiting:
            return queue in self._drained
        self._drained.add(queue)
        return False

    async def wait(self, queue: Queue, size: int) -> None:
        """Wait until a receiver waits at the queue, but not long. ``size`` is that of the last message."""
        if queue.awaited is None:
            queue.awaited = asyncio.get_running_loop().create_future()
        done, _ = await asyncio.wait((queue.awaited,), timeout=_PATIENCE if size >= SMALLEST else _PATIENCE_OF_MANY)
        if not done:
            self.forget(queue)

    def forget(self, queue: Queue) -> None:
        """Let no message wait until another one has found a receiver waiting."""
        self._drained.discard(queue)
