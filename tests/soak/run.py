"""Three nodes behind bad networks, killed with a power cut again and again, while forty streams go both ways."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import qmnode
from qmnode.structures.message_classes import MessageClass
from tests.crash.disk import Disk
from tests.forwarding.enterprise import Directory, Machine, Node
from tests.soak.proxy import Faults, Proxy
from tests.soak.streams import Stream, copies
from tests.transport.conftest import loopback_address

PORT = 1801
STREAMS = 10
"""Transactional ones, and as many recoverable ones, from SOURCE to TARGET and the same back: 40 in all."""
PAUSE = 0.04
"""Seconds between two batches of a sender."""
STANDSTILL = float(os.environ.get("SOAK_STANDSTILL", "120"))
"""Seconds without any progress, when nothing breaks any more, after which what is missing is taken for lost."""
ASKED = (MessageClass.MQMSG_CLASS_ACK_REACH_QUEUE, MessageClass.MQMSG_CLASS_ACK_RECEIVE)
_SMALL = {"write_buffer": 4 << 20, "log_limit": 4 << 20, "identifier_block": 1024}


@dataclass
class Found:
    """What came back to a source: identifiers of messages."""

    journal: list[bytes] = field(default_factory=list)
    answers: dict[MessageClass, list[bytes]] = field(default_factory=lambda: defaultdict(list))


@dataclass
class Soak:
    """One run. ``findings`` says what was wrong."""

    folder: Path
    shim: Path
    seed: int
    seconds: float
    findings: list[str] = field(default_factory=list)
    kills: int = 0
    bytes_lost: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        machines = [
            Machine("SOURCE", ["south"]),
            Machine("ROUTER", ["south", "north"], routing_server=True),
            Machine("TARGET", ["north"]),
        ]
        self.faults = Faults()
        self.disks = {one.name: Disk(self.folder / "disks" / one.name, self.shim) for one in machines}
        self.proxies = []
        for one in machines:
            one.address = loopback_address()
            self.proxies.append(Proxy(one.address, one.listens, PORT, self.random.getrandbits(32), self.faults))
        directory = Directory(self.folder / "directory.yaml", {one.name: one for one in machines})
        directory.write()
        self.nodes = {
            one.name: Node(
                self.folder / one.name,
                one,
                directory.file,
                environment=self.disks[one.name].environment,
                data=self.disks[one.name].store,
                storage=_SMALL,
                quotas={"queue_manager_quota": 0xFFFFFFFF},
            )
            for one in machines
        }
        self.source, self.target = self.nodes["SOURCE"], self.nodes["TARGET"]
        self.streams: dict[str, list[Stream]] = {}
        self.found = {"SOURCE": Found(), "TARGET": Found()}

    async def run(self) -> None:
        """All of it."""
        try:
            for proxy in self.proxies:
                await proxy.start()
            for node in self.nodes.values():
                node.start()
            for node in self.nodes.values():
                await node.ready()
            await self._create_queues()
            await self._work()
            await self._settle()
        finally:
            for node in self.nodes.values():
                node.kill()
            for proxy in self.proxies:
                await proxy.stop()

    def told(self) -> str:
        """What happened, in a line."""
        sent = sum(stream.batches[-1].numbers.stop for stream in self._all() if stream.batches)
        cuts, repeated = (sum(getattr(proxy, name) for proxy in self.proxies) for name in ("cuts", "repeated"))
        return (
            f"seed {self.seed}: {sent} messages in {len(list(self._all()))} streams, {self.kills} kills "
            f"({self.bytes_lost} bytes lost), {cuts} connections cut, {repeated} brought again"
        )

    def _all(self) -> Iterator[Stream]:
        for streams in self.streams.values():
            yield from streams

    async def _create_queues(self) -> None:
        for source, target in ((self.source, self.target), (self.target, self.source)):
            admin = await source.create_queue("admin")
            self.streams[source.machine.name] = streams = []
            for number in range(2 * STREAMS):
                transactional = number % 2 == 0
                name = f"{source.machine.name.lower()}{number}"
                destination = await target.create_queue(name, transactional=transactional)
                streams.append(Stream(name, destination, transactional, admin))

    # While everything breaks

    async def _work(self) -> None:
        deadline = asyncio.get_running_loop().time() + self.seconds
        async with asyncio.TaskGroup() as tasks:
            for source in (self.source, self.target):
                tasks.create_task(self._send(source, deadline))
            tasks.create_task(self._break(deadline))
        self.faults.calm = True

    async def _send(self, node: Node, deadline: float) -> None:
        dice = random.Random(self.random.getrandbits(32))
        time = asyncio.get_running_loop().time
        while time() < deadline:
            with contextlib.suppress(qmnode.MessageQueuingError, OSError):
                async with await node.connect() as qm:
                    queues = {}
                    while time() < deadline:
                        stream = dice.choice(self.streams[node.machine.name])
                        if stream.name not in queues:
                            queues[stream.name] = await qm.open_queue(stream.destination, qmnode.Access.SEND)
                        batch, messages = stream.next_batch(dice.randint(1, 12))
                        if stream.transactional:
                            async with qm.transaction() as transaction:
                                await queues[stream.name].send_many(messages, transaction=transaction)
                        else:
                            await queues[stream.name].send_many(messages)
                        batch.confirmed = True
                        await asyncio.sleep(PAUSE)
            await asyncio.sleep(0.1)  # until it is there again

    async def _break(self, deadline: float) -> None:
        dice = random.Random(self.random.getrandbits(32))
        while True:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return
            await asyncio.sleep(min(left, dice.uniform(0.5, 5.0)))
            victims = dice.sample(list(self.nodes.values()), dice.choice((1, 1, 1, 2)))
            for node in victims:
                node.kill()
                self.kills += 1
                self.bytes_lost += self.disks[node.machine.name].cut(dice)
            for node in victims:
                node.start()
            if dice.random() < 0.7:  # or it is killed again while it starts
                for node in victims:
                    await node.ready()

    # When nothing breaks any more

    async def _settle(self) -> None:
        for node in self.nodes.values():
            await node.ready()
        await _while_it_goes_on(self._all_arrived, self._missing)  # what is missing then is in the findings
        for stream in self._all():
            self.findings += stream.findings()
        for node in (self.source, self.target):
            self.findings += await self._copies(node)
        if not self.findings:
            self.findings += await self._nothing_left()

    async def _all_arrived(self) -> bool:
        complete = True
        for node, sender in ((self.target, "SOURCE"), (self.source, "TARGET")):
            async with await node.connect() as qm:
                for stream in self.streams[sender]:
                    stream.received += await _drain(qm, rf"DIRECT=OS:.\private$\{stream.name}")
                    confirmed = {one for batch in stream.batches if batch.confirmed for one in batch.numbers}
                    complete = complete and confirmed <= set(stream.numbers())
        return complete

    async def _missing(self) -> int:
        """Less, the more came."""
        answers = (found for one in self.found.values() for found in (one.journal, *one.answers.values()))
        return -sum(map(len, answers)) - sum(len(stream.received) for stream in self._all())

    async def _waiting(self) -> int:
        return sum([await node.outgoing() for node in self.nodes.values()])

    async def _copies(self, node: Node) -> list[str]:
        """Administration acknowledgments and journal copies at a source: wait for them, then look at all of them."""
        name, streams, found = node.machine.name, self.streams[node.machine.name], self.found[node.machine.name]
        wrong: list[str] = []

        async def right() -> bool:
            await self._all_arrived()  # what was not confirmed may come late
            async with await node.connect() as qm:
                found.journal += [one.identifier for one in await _drain(qm, r"DIRECT=OS:.\SYSTEM$;JOURNAL")]
                for one in await _drain(qm, r"DIRECT=OS:.\private$\admin"):
                    found.answers[MessageClass(one.message_class)].append(one.correlation_identifier)
            wanted = [pair for stream in streams for pair in stream.wanted()]
            asked = {identifier for identifier, number in wanted if Stream.asks(number)}
            journaled = {identifier for identifier, number in wanted if Stream.is_journaled(number)}
            wrong[:] = copies(f"{name}: journal", journaled, found.journal)
            for message_class in {*ASKED, *found.answers}:
                of_class = asked if message_class in ASKED else set()
                wrong.extend(copies(f"{name}: {message_class.name}", of_class, found.answers[message_class]))
            return not wrong

        await _while_it_goes_on(right, self._missing)
        return wrong

    async def _nothing_left(self) -> list[str]:
        """Outgoing queues become empty, and nothing more arrives while they do."""

        async def empty() -> bool:
            await self._all_arrived()
            return not await self._waiting()

        if not await _while_it_goes_on(empty, self._waiting):
            waiting = [one for node in self.nodes.values() for one in await node.waiting()]
            return [f"outgoing queues are not empty, and nothing has moved for {STANDSTILL:g} s", *waiting]
        findings = [finding for stream in self._all() for finding in stream.findings()]
        for node in (self.source, self.target):
            findings += await self._copies(node)
            for queue in ("DEADLETTER", "DEADXACT"):
                async with await node.connect() as qm:
                    if dead := await _drain(qm, rf"DIRECT=OS:.\SYSTEM$;{queue}"):
                        findings.append(f"{node.machine.name}: {len(dead)} in {queue}")
        return findings


async def _while_it_goes_on(holds: Callable[[], Awaitable[bool]], left: Callable[[], Awaitable[int]]) -> bool:
    """Wait until something holds; whether it does. It is given up when no less is left for ``STANDSTILL``."""
    time = asyncio.get_running_loop().time
    fewest, moved = await left(), time()
    while not await holds():
        now = await left()
        if now < fewest:
            fewest, moved = now, time()
        elif time() > moved + STANDSTILL:
            return False
        await asyncio.sleep(0.1)
    return True


async def _drain(qm: qmnode.QueueManagerApi, name: str) -> list[qmnode.Message]:
    """All that is in a queue now."""
    found: list[qmnode.Message] = []
    async with await qm.open_queue(name) as queue:
        try:
            while True:
                found += await queue.receive_many(200, timeout=0)
        except qmnode.MessageQueuingError as error:
            if error.name != "MQ_ERROR_IO_TIMEOUT":
                raise
    return found
