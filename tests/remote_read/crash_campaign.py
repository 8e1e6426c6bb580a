"""A node and a remote reader that are killed at random, and what the reader's ledgers say afterwards.

A kill of the node is a power cut: what was not synced is gone.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import qmnode
from qmnode import Access, Message, MessageQueuingError
from tests.crash.disk import Disk
from tests.lab.nodes import PROJECT
from tests.lab.waiting import wait_until
from tests.remote_read.conftest import OPEN
from tests.remote_read.test_command import Served

if TYPE_CHECKING:
    from pathlib import Path

MESSAGES = 3_000
"""Sent at a time, when so many are not left."""
RECEIVED = 40
"""Bytes of a ledger: a handful of messages was received."""
PATH = r".\private$\orders"


def lines(ledger: Path) -> list[tuple[str, int]]:
    """The whole lines of a ledger: a killed reader may have left half of one."""
    text = ledger.read_text() if ledger.exists() else ""
    return [(line[0], int(line[2:])) for line in text[: text.rfind("\n") + 1].splitlines()]


class Campaign:
    """Run it, then ``findings`` are what must not be."""

    def __init__(self, folder: Path, shim: Path, seed: int) -> None:
        self.seed = seed
        self.kills = self.sent = self.lost = 0
        self.acknowledged: set[int] = set()
        self.remaining: list[int] = []
        self.findings: list[str] = []
        self._chance = random.Random(seed)
        self._folder = folder
        self._disk = Disk(folder / "disk", shim)
        self._served = Served(folder, disk=self._disk)
        self._reader: subprocess.Popen[bytes]
        self._ledgers: list[Path] = []

    def run(self, kills: int, seconds: float = 0) -> None:
        """So many kills, and on until so many seconds are over."""
        until = time.monotonic() + seconds
        try:
            asyncio.run(self._create())
            self._start_reader()
            while self.kills < kills or time.monotonic() < until:
                asyncio.run(self._top_up())
                self._kill()
            self._kill_reader()
            self._cut_power()
            self.remaining = asyncio.run(self._left())
        finally:
            for process in (self._reader, self._served.process):
                process.kill()
                process.wait()
        self._judge()

    def told(self) -> str:
        """In a line."""
        return (
            f"seed {self.seed}: {self.sent} messages, {self.kills} kills, {len(self.acknowledged)} acknowledged, "
            f"{len(self.remaining)} left, {self.lost} bytes written and not synced, {len(self.findings)} findings"
        )

    def _kill(self) -> None:
        before = self._written()
        wait_until(lambda: self._written() > before + RECEIVED, 60, "messages are received")
        time.sleep(self._chance.choice((0, 0.1, 1)) * self._chance.random())
        victim = self._chance.choice(["server", "client", "client", "both"])
        self.kills += 1
        if victim != "server":
            self._kill_reader()
        if victim != "client":
            self._cut_power()
        if victim != "server":
            self._start_reader()

    def _start_reader(self) -> None:
        self._ledgers.append(self._folder / f"ledger-{len(self._ledgers)}")
        command = [
            sys.executable,
            "-m",
            "tests.remote_read.crash_reader",
            self._served.address,
            str(self._served.mapper),
        ]
        self._reader = subprocess.Popen([*command, str(self._ledgers[-1]), str(self._chance.random())], cwd=PROJECT)

    def _kill_reader(self) -> None:
        self._reader.kill()
        self._reader.wait()

    def _cut_power(self) -> None:
        self._served.process.kill()
        self._served.process.wait()
        self.lost += self._disk.cut(self._chance)
        self._served.start()

    def _written(self) -> int:
        return self._ledgers[-1].stat().st_size if self._ledgers[-1].exists() else 0

    async def _create(self) -> None:
        async with qmnode.connect(self._served.socket) as manager:
            await manager.create_queue(PATH, security=OPEN)

    async def _top_up(self) -> None:
        async with qmnode.connect(self._served.socket) as manager:
            if (await manager.queue(PATH)).message_count >= MESSAGES:
                return
            queue = await manager.open_queue(f"DIRECT=OS:{PATH}", Access.SEND)
            for _ in range(0, MESSAGES, 500):
                numbers = range(self.sent, self.sent + 500)
                await queue.send_many([Message(b"%d" % number, recoverable=True) for number in numbers])
                self.sent += 500

    async def _left(self) -> list[int]:
        """What is in the queue, in order."""
        async with qmnode.connect(self._served.socket) as manager:
            queue = await manager.open_queue(f"DIRECT=OS:{PATH}")
            found = []
            try:
                while True:
                    found += [int(message.body) for message in await queue.receive_many(500, timeout=0)]
            except MessageQueuingError:
                return found

    def _judge(self) -> None:
        attempted = set()
        for what, number in (event for ledger in self._ledgers for event in lines(ledger)):
            if number in self.acknowledged:
                self.findings.append(f"message {number} came back after it was acknowledged: {what}")
            if what == "A":
                self.acknowledged.add(number)
            elif what == "E":
                attempted.add(number)
        if there := self.acknowledged & set(self.remaining):
            self.findings.append(f"acknowledged messages are in the queue: {sorted(there)[:10]}")
        if self.remaining != sorted(set(self.remaining)):
            self.findings.append(f"messages are not in their places: {self.remaining[:10]}")
        if gone := set(range(self.sent)) - set(self.remaining) - attempted:
            self.findings.append(f"messages that nobody acknowledged are gone: {sorted(gone)[:10]}")
