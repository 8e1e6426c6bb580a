"""Transactional messages that flow from one node to another until they are told to end, each with its number."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import qmnode
from qmnode import Access, Message, MessageQueuingError
from qmnode.structures.error_codes import ErrorCode

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from qmnode.model.api import TransactionApi

BATCH = 10
INTERVAL = 0.05
"""Ten messages in each transaction, twenty transactions a second."""
ONCE_MORE = 1.0
"""Seconds for which a message is waited for that must not come."""


class Flow:
    """In its block it flows: ``source`` and ``target`` are the nodes' sockets."""

    def __init__(self, source: Path, target: Path, format_name: str, queue: str, **properties: int) -> None:
        self._source, self._target = source, target
        self._format_name, self._queue = format_name, queue
        self._properties = properties
        self._ending = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.sent = self.arrived = 0
        self.longest_pause = 0.0
        """Seconds in which nothing arrived."""
        self.longest_commit = 0.0
        """Seconds for which the sender waited for a commit."""
        self.mistakes: list[str] = []

    async def __aenter__(self) -> Flow:
        self._tasks = [asyncio.create_task(self._send()), asyncio.create_task(self._receive())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def more(self, count: int, limit: float) -> None:
        """Go on until so many more have arrived."""
        goal = self.arrived + count
        async with asyncio.timeout(limit):
            while self.arrived < goal:
                for task in self._tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(0.05)

    async def end(self, limit: float) -> None:
        """Send no more, and wait until all have arrived."""
        self._ending.set()
        async with asyncio.timeout(limit):
            await asyncio.gather(*self._tasks)

    async def _send(self) -> None:
        clock = asyncio.get_running_loop().time
        async with qmnode.connect(self._source) as node, await node.open_queue(self._format_name, Access.SEND) as out:
            while not self._ending.is_set():
                began = clock()
                numbers = range(self.sent, self.sent + BATCH)
                async with node.transaction() as unit:
                    await out.send_many(
                        [Message(b"%d" % number, **self._properties) for number in numbers],  # type: ignore[arg-type]
                        transaction=unit,
                    )
                self.sent += BATCH
                self.longest_commit = max(self.longest_commit, clock() - began)
                await asyncio.sleep(INTERVAL)

    async def _receive(self) -> None:
        clock = asyncio.get_running_loop().time
        last = clock()
        async with qmnode.connect(self._target) as node, await node.open_queue(self._queue) as queue:
            while True:
                async with node.transaction() as unit:
                    messages = await _some(queue, unit)
                for message in messages:
                    if message.body != b"%d" % self.arrived:
                        self.mistakes.append(f"{message.body.decode()} came where {self.arrived} was due")
                    self.arrived += 1
                if messages:
                    self.longest_pause = max(self.longest_pause, clock() - last)
                    last = clock()
                elif self._ending.is_set() and self.arrived >= self.sent:
                    return


async def _some(queue: qmnode.QueueApi, unit: TransactionApi) -> list[Message]:
    try:
        return await queue.receive_many(500, timeout=ONCE_MORE, transaction=unit)
    except MessageQueuingError as error:
        if error.code != ErrorCode.MQ_ERROR_IO_TIMEOUT:
            raise
        return []
