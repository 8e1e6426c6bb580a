"""From MSMQ to a JMS program and on, exactly once: messages of a node pass two routing servers to a queue. A program
with Qpid JMS moves them in transactions to another queue, while nodes and the program are killed.

``SOAK_SEED`` chooses the same victims again. The source is not killed during a commit of the sending application, which
would not know its outcome: ``tests/crash`` does that.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

import qmnode
from qmnode.structures.security_descriptor import ANONYMOUS, EVERYONE, Acl, QueueAccess, SecurityDescriptor, allow
from tests.amqp.foreign import jms
from tests.forwarding.enterprise import Directory, Machine, Node
from tests.lab.addresses import free_port
from tests.lab.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.servers, pytest.mark.slow]

AT_ONCE = 250
"""Messages of one transaction of the sender."""
STANDSTILL = float(os.environ.get("SOAK_STANDSTILL", "240"))
"""Seconds without any progress after which what is missing is taken for lost."""


class Program:
    """The JMS program, in a process of its own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._process: asyncio.subprocess.Process | None = None

    async def start_again(self) -> None:
        place = jms()
        self._process = await asyncio.create_subprocess_exec(
            *("java", "-Xmx128m", "-cp", "lib/*", "Mover.java", self._url, "in", "done"), cwd=place,
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip

    async def end(self) -> None:
        """SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            await process.wait()


class Way:
    """SOURCE in the south, a routing server in the south and one in the north, TARGET in the north."""

    def __init__(self, folder: Path, seed: int, count: int, kills: int) -> None:
        self.random, self.count, self.kills = random.Random(seed), count, kills
        machines = [
            Machine("SOURCE", ["south"]),
            Machine("SOUTH", ["south"], routing_server=True),
            Machine("NORTH", ["north"], routing_server=True),
            Machine("TARGET", ["north"]),
        ]
        directory = Directory(
            folder / "directory.yaml", {one.name: one for one in machines}, [("south", "north", 1, ["SOUTH", "NORTH"])]
        )
        directory.write()
        port = free_port()
        door = {"enabled": True, "address": machines[-1].listens, "port": port, "anonymous": True}
        more: dict[str, dict[str, object]] = {"TARGET": {"amqp": door}}
        self.nodes = {
            one.name: Node(folder / one.name, one, directory.file, **more.get(one.name, {})) for one in machines
        }
        self.source, self.target = self.nodes["SOURCE"], self.nodes["TARGET"]
        self.program = Program(f"amqp://{machines[-1].listens}:{port}")
        self.killed: Counter[str] = Counter()
        self._sending = asyncio.Lock()

    async def run(self) -> list[int]:
        """Start all, send and kill; the numbers that arrived."""
        await asyncio.gather(*(node.start_again() for node in self.nodes.values()))
        everybody = [allow(who, QueueAccess.MQSEC_QUEUE_GENERIC_ALL) for who in (EVERYONE, ANONYMOUS)]
        security = SecurityDescriptor(owner=EVERYONE, group=EVERYONE, dacl=Acl.of(*everybody)).write()
        name = await self.target.create_queue("in", transactional=True, security=security)
        await self.target.create_queue("done", transactional=True, security=security)
        await self.program.start_again()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._send(name))
            group.create_task(self._kill())
            for router in ("SOUTH", "NORTH"):
                group.create_task(self._passes(router, name))
        await self._reaches(self.count)
        return await self._numbers()

    async def end(self) -> None:
        await self.program.end()
        for node in self.nodes.values():
            node.kill()

    async def _send(self, name: str) -> None:
        for first in range(0, self.count, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, self.count))
            async with self._sending:
                await self.source.send(name, [b"%d" % number for number in numbers], transactional=True)
            await asyncio.sleep(0)

    async def _kill(self) -> None:
        """Each time that another part of the messages has arrived."""
        victims = [*self.nodes, "program"]
        for number in range(self.kills):
            await self._reaches(number * self.count // self.kills)
            victim = victims[number] if number < len(victims) else self.random.choice(victims)
            self.killed[victim] += 1
            await asyncio.sleep(self.random.uniform(0, 0.5))
            if victim == "program":
                await self.program.end()
                await self.program.start_again()
                continue
            async with self._sending if victim == "SOURCE" else asyncio.Lock():
                self.nodes[victim].kill()
                await asyncio.sleep(self.random.uniform(0, 1))
                await self.nodes[victim].start_again()

    async def _reaches(self, count: int) -> None:
        """Wait until so many messages are at their end; fail if nothing moves any more."""
        last, since = -1, time.monotonic()
        while True:
            done = await self._done()
            if done >= count:
                return
            if done != last:
                last, since = done, time.monotonic()
            assert time.monotonic() - since < STANDSTILL, f"{done} of {self.count} messages arrived: {self.killed}"
            await asyncio.sleep(0.2)

    async def _done(self) -> int:
        with suppress(OSError, qmnode.MessageQueuingError):
            async with await self.target.connect() as manager:
                return (await manager.queue(r".\private$\done")).message_count
        return -1

    async def _numbers(self) -> list[int]:
        """What arrived; nothing is left anywhere else."""
        found: list[int] = []
        async with await self.target.connect() as manager:
            assert (await manager.queue(r".\private$\in")).message_count == 0
            async with await manager.open_queue(r"DIRECT=OS:.\private$\done") as queue:
                with suppress(qmnode.MessageQueuingError):
                    while messages := await queue.receive_many(1000, timeout=0):
                        found += [int(message.body) for message in messages]
            assert (await manager.status()).dead_letter_count == 0
        return found

    async def _passes(self, router: str, name: str) -> None:
        """Wait until a routing server has had messages for the queue."""

        async def has() -> bool:
            with suppress(OSError, qmnode.MessageQueuingError):
                async with await self.nodes[router].connect() as manager:
                    found = await manager.queues([qmnode.QueueType.OUTGOING])
                    return any(queue.pathname.casefold() == name.casefold() for queue in found)
            return False

        await until(has, f"messages pass {router}", STANDSTILL)


async def soak(folder: Path, count: int, kills: int) -> None:
    seed = int(os.environ.get("SOAK_SEED") or random.SystemRandom().getrandbits(32))
    print(f"\nseed {seed}")
    way, begun = Way(folder, seed, count, kills), time.monotonic()
    try:
        numbers = await way.run()
    finally:
        await way.end()
    told = f"{count} messages, {dict(way.killed)} killed, {time.monotonic() - begun:.0f} s, seed {seed}"
    print(f"\n{told}")
    assert way.killed.total() == kills
    assert sorted(numbers) == list(range(count)), told


@pytest.mark.timeout(900)
async def test_a_thousand_messages_with_a_kill_of_each(tmp_path: Path) -> None:
    await soak(tmp_path, 1000, 5)


@pytest.mark.soak
@pytest.mark.timeout(0)
async def test_a_hundred_thousand_messages_with_thirty_kills(tmp_path: Path) -> None:
    await soak(tmp_path, 100_000, 30)
