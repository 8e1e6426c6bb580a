"""Messages, receivers that fail at random, and kills of the node: who saw what how often, and what died."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import qmnode
from qmnode import Access, Message
from qmnode.administration.dead_letters import dead_letters
from qmnode.structures.enumerations import MessageClass
from tests.lab.addresses import free_port
from tests.lab.nodes import PROJECT, NodeProcess

if TYPE_CHECKING:
    from pathlib import Path

MOST: Final = 4
QUEUE: Final = r".\private$\jobs"
_AT_ONCE: Final = 500
_LIMIT: Final = 1500.0
"""Seconds until all messages have succeeded or died."""


@dataclass
class Campaign:
    """``failures`` says what was wrong; the other figures are what was seen."""

    folder: Path
    messages: int
    kills: int
    seed: int
    pause: float
    """Seconds between two kills."""
    receivers: int
    """Of each kind."""
    longest: int
    """The longest pause of a message, in seconds."""
    seen: Counter[str] = field(default_factory=Counter)
    dead: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    receivers_lost: int = 0
    killed: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.log = self.folder / "deliveries"
        port = free_port()
        self.node = NodeProcess(
            self.folder / "node",
            computer_name="ALPHA",
            amqp={"enabled": True, "address": "127.0.0.1", "port": port, "anonymous": True},
        )
        places = [str(self.node.socket), f"amqp://127.0.0.1:{port}"]
        self._places = places * self.receivers
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    async def run(self) -> None:
        """All of it."""
        await self.node.start_again()
        try:
            await self._fill()
            began = time.monotonic()
            await asyncio.wait_for(self._work(), _LIMIT)
            self.seconds = time.monotonic() - began
            await self._compare()
        finally:
            for one in self._running.values():
                one.kill()
                one.wait()
            self.node.kill()

    async def _fill(self) -> None:
        async with qmnode.connect(self.node.socket) as qm:
            await qm.create_queue(
                QUEUE, transactional=True, max_deliveries=MOST, retry_pause=1, retry_longest_pause=self.longest
            )
            everybody = await asyncio.to_thread(
                self.node.command, "queue", "acl", "allow", "jobs", "anonymous", "receive-message"
            )
            assert everybody.returncode == 0, everybody.stderr
            async with await qm.open_queue(f"DIRECT=OS:{QUEUE}", Access.SEND) as queue:
                for first in range(0, self.messages, _AT_ONCE):
                    numbers = range(first, min(first + _AT_ONCE, self.messages))
                    await queue.send_many([Message(b"job", label=str(number)) for number in numbers], "single")

    async def _work(self) -> None:
        next_kill = time.monotonic() + self.pause
        while True:
            self._attend()
            if self.killed < self.kills and time.monotonic() >= next_kill:
                self.node.kill()
                self.killed += 1
                await self.node.start_again()
                next_kill = time.monotonic() + self.pause * (0.5 + self.random.random())
            async with qmnode.connect(self.node.socket) as qm:
                if not (await qm.queue(QUEUE)).message_count and self.killed == self.kills:
                    return
            await asyncio.sleep(0.2)

    def _attend(self) -> None:
        """Start the receivers that do not run."""
        for number, place in enumerate(self._places):
            running = self._running.get(number)
            if running is None or running.poll() is not None:
                self.receivers_lost += running is not None
                words = (place, str(self.random.getrandbits(32)), str(self.log))
                with (self.folder / "receivers.log").open("ab") as output:
                    self._running[number] = subprocess.Popen(
                        [sys.executable, "-m", "tests.soak.retry_receiver", *words], cwd=PROJECT, stderr=output
                    )

    async def _compare(self) -> None:
        for line in self.log.read_text().splitlines():
            label, shown = line.split()
            if int(shown) < self.seen[label]:
                self.failures.append(f"{label}: delivery {self.seen[label] + 1} shows {shown} failures")
            self.seen[label] += 1
        self.failures += [f"{label}: {count} deliveries" for label, count in self.seen.items() if count > MOST]
        async with qmnode.connect(self.node.socket) as qm:
            async for letter in dead_letters(qm):
                if letter.label in self.dead:
                    self.failures.append(f"{letter.label}: two dead letters")
                self.dead[letter.label] = letter.aborted_receives
                if letter.message_class != MessageClass.MQMSG_CLASS_NACK_RECEIVE_REJECTED:
                    self.failures.append(f"{letter.label}: {letter.message_class:#x}")
        self.failures += [f"{label}: died after {count}" for label, count in self.dead.items() if count != MOST]
        never = self.messages - len(self.seen.keys() | self.dead.keys())
        if never:
            self.failures.append(f"{never} messages were neither seen nor died")

    def figures(self) -> str:
        """For people."""
        times = Counter(self.seen.values())
        return (
            f"{self.messages} messages, {self.killed} kills of the node, {self.receivers_lost} receivers lost: "
            f"{sum(self.seen.values())} deliveries ({', '.join(f'{n} times {times[n]}' for n in sorted(times))}), "
            f"{len(self.dead)} dead letters, in {self.seconds:.0f} s, seed {self.seed}"
        )
