"""A stream of transactional messages that nothing may lose, double or put out of order, whatever is stopped meanwhile.

The sender keeps the number of the next message in a queue of its own node and replaces it in the transaction in which
it sends, so that it can always be told whether a transaction whose end nobody heard of was committed. The receiver
tells it by what it receives next.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import qmnode
from qmnode import Access, Message, MessageQueuingError
from qmnode.structures.enumerations import PrivacyLevel
from qmnode.structures.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from qmnode.local.remote import RemoteQueueManager

COUNTER = r".\private$\traffic-counter"
BATCH = 1000
PADDING = b" " + b"x" * 200
AGAIN = 0.2
"""Seconds before a node that is away is asked again."""


@dataclass
class Report:
    """What became of a stream."""

    expected: int
    received: int = 0
    longest_send_pause: float = 0.0
    """Seconds between two commits of the sender."""
    longest_receive_pause: float = 0.0
    duration: float = 0.0
    """Seconds from the first message sent to the last one received."""
    mistakes: list[str] = field(default_factory=list)
    """Numbers that came twice, or out of order."""

    @property
    def is_perfect(self) -> bool:
        """None lost, none twice, all in order."""
        return self.received == self.expected and not self.mistakes

    @property
    def rate(self) -> float:
        """Messages a second that were truly reached."""
        return self.received / self.duration if self.duration else 0.0


class Stream:
    """At most ``count`` messages at ``rate`` a second, from the node behind one socket to a queue of another node.

    The sockets are asked for anew at each connection: a node that is started again may have them elsewhere.
    The sender collects messages for ``pause`` seconds before it sends them in one transaction.
    """

    def __init__(
        self,
        source: Callable[[], Path],
        target: Callable[[], Path],
        format_name: str,
        queue: str,
        *,
        count: int,
        rate: float,
        encrypted: bool = False,
        pause: float = 0.02,
    ) -> None:
        self._source, self._target = source, target
        self.format_name, self._queue = format_name, queue
        self._count, self._rate, self._pause = count, rate, pause
        self._privacy = PrivacyLevel.ADVANCED if encrypted else PrivacyLevel.NONE
        self.sent = 0
        self._enough = False
        self._given_up = False
        self._began = 0.0
        self._last = 0.0
        self.report = Report(count)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin."""
        async with qmnode.connect(self._source()) as node:
            with contextlib.suppress(MessageQueuingError):
                await node.delete_queue(COUNTER)
            await node.create_queue(COUNTER, transactional=True)
            async with await node.open_queue(f"DIRECT=OS:{COUNTER}", Access.SEND) as counter:
                await counter.send(Message(b"0"), transaction="single")
        self._tasks = [asyncio.create_task(self._send()), asyncio.create_task(self._receive())]

    async def finish(self, limit: float, *, enough: bool = False) -> Report:
        """Wait until all have arrived, or for so many seconds. ``enough``: only those that are sent by now."""
        self._enough = enough
        try:
            async with asyncio.timeout(limit):
                await asyncio.gather(*self._tasks)
        except TimeoutError:
            self.report.mistakes.append(f"{self.report.received} of {self.report.expected} after {limit:g} s")
        finally:
            # A receive that is cancelled when messages have come already returns them, and the task goes on.
            self._given_up = True
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        return self.report

    async def _send(self) -> None:
        while not self._given_up:
            try:
                async with qmnode.connect(self._source()) as node:
                    counter = await node.open_queue(f"DIRECT=OS:{COUNTER}")
                    count = await node.open_queue(f"DIRECT=OS:{COUNTER}", Access.SEND)
                    out = await node.open_queue(self.format_name, Access.SEND)
                    while self.sent < self._count and not self._given_up:
                        if self._enough:
                            # Whatever became of the last transaction: the counter says what was sent.
                            self.sent = self.report.expected = _number(await counter.peek(timeout=15))
                            return
                        await self._send_some(node, counter, count, out)
                    return
            except (MessageQueuingError, OSError):
                await asyncio.sleep(AGAIN)

    async def _send_some(
        self, node: RemoteQueueManager, counter: qmnode.QueueApi, count: qmnode.QueueApi, out: qmnode.QueueApi
    ) -> None:
        """What is due, in one transaction with the number of the next."""
        now = asyncio.get_running_loop().time()
        self._began = self._began or now
        due = min(int((now - self._began) * self._rate), self._count) - self.sent
        if due < 1:
            await asyncio.sleep(self._pause)
            return
        async with node.transaction() as unit:
            first = _number(await counter.receive(timeout=15, transaction=unit))
            after = first + min(due, BATCH)
            messages = [
                Message(b"%d" % number + PADDING, privacy_level=self._privacy, recoverable=True)
                for number in range(first, after)
            ]
            await out.send_many(messages, transaction=unit)
            await count.send(Message(b"%d" % after), transaction=unit)
        now = asyncio.get_running_loop().time()
        self.report.longest_send_pause = max(self.report.longest_send_pause, now - (self._last or now))
        self._last = now
        self.sent = after

    async def _receive(self) -> None:
        loop = asyncio.get_running_loop()
        last = loop.time()
        unsure: list[int] = []
        while self._goes_on():
            try:
                async with qmnode.connect(self._target()) as node:
                    queue = await node.open_queue(f"DIRECT=OS:{self._queue}")
                    while self._goes_on():
                        unsure = await self._take(node, queue, unsure)
                        now = loop.time()
                        self.report.longest_receive_pause = max(self.report.longest_receive_pause, now - last)
                        last = now
            except (MessageQueuingError, OSError):
                await asyncio.sleep(AGAIN)

    def _goes_on(self) -> bool:
        return self.report.received < self.report.expected and not self._given_up

    async def _take(self, node: RemoteQueueManager, queue: qmnode.QueueApi, unsure: list[int]) -> list[int]:
        """Receive some. ``unsure`` are those of a transaction whose end nobody heard of."""
        if unsure:
            try:
                head = _number(await queue.peek(timeout=15))
            except MessageQueuingError as error:
                if error.code != ErrorCode.MQ_ERROR_IO_TIMEOUT:
                    raise
                head = None
            if head != unsure[0]:
                self._count_in(unsure)
            unsure.clear()
            if not self._goes_on():
                return unsure
        async with node.transaction() as unit:
            try:
                messages = await queue.receive_many(500, timeout=2, transaction=unit)
            except MessageQueuingError as error:
                if error.code != ErrorCode.MQ_ERROR_IO_TIMEOUT:
                    raise
                return unsure
            unsure.extend(map(_number, messages))
        self._count_in(unsure)
        unsure.clear()
        return unsure

    def _count_in(self, numbers: list[int]) -> None:
        for number in numbers:
            if number != self.report.received:
                self.report.mistakes.append(f"{number} came where {self.report.received} was due")
            self.report.received += 1
        self.report.duration = asyncio.get_running_loop().time() - self._began


def _number(message: Message) -> int:
    return int(message.body.split()[0])
