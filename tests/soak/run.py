"""Three nodes behind bad networks, killed with a power cut again and again, while forty streams go both ways."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import qmnode
from qmnode.settings.security import TlsMode
from qmnode.structures.guid import guid_to_text
from tests.adversary.besiegers import NOWHERE, PLAIN, SEQUENCED, SIEGES, Target, arguments
from tests.crash.disk import Disk
from tests.forwarding.enterprise import HURRIED, Directory, Machine, Node
from tests.lab.addresses import free_port
from tests.security.certificates import AUTHORITY, certificate, tls_of, write_key
from tests.soak.attacker import Attacker, is_forged
from tests.soak.proxy import Faults, Proxy
from tests.soak.returns import DEADLETTER, DEADXACT, Returns, Stop
from tests.soak.streams import End, Stream, named
from tests.transport.conftest import loopback_address

PORT = 1801
STREAMS = 10
"""Transactional ones, and as many recoverable ones, from SOURCE to TARGET and the same back: 40 in all."""
ENCRYPTED_EVERY = 10
"""Two of so many streams are encrypted, a transactional and a recoverable one."""
PAUSE = 0.04
"""Seconds between two batches of a sender."""
STANDSTILL = float(os.environ.get("SOAK_STANDSTILL", "120"))
"""Seconds without any progress, when nothing breaks any more, after which what is missing is taken for lost."""
STEADY = 0.2
"""Share of the time in which networks are bad and no node is killed, after that in which nodes are killed too."""
ENDS = (
    (End.UNKNOWN, True), (End.UNKNOWN, False), (End.FULL, True), (End.FULL, False), (End.UNREAD, True),
    (End.UNREAD, False),
)  # fmt: skip
"""Streams beside those, each way, that are not received, and whether they are transactional."""
SIEGE = (1.0, 4.0)
"""Seconds that one lasts."""
_SMALL = {"write_buffer": 4 << 20, "log_limit": 4 << 20, "identifier_block": 1024}


@dataclass
class Soak:
    """One run. ``findings`` says what was wrong."""

    folder: Path
    shim: Path
    seed: int
    seconds: float
    attacked: bool = False
    tls: bool = False
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
        self.attacker = Attacker(machines, self.random.getrandbits(32), _contexts(self.folder) if self.tls else ())
        shown = str(self.folder / "attacker-authority.pem") if self.tls else ""
        self.targets = {one.name: Target(one.listens, free_port(), free_port(), shown) for one in machines}
        self.besiegers = [loopback_address() for _ in range(10)]
        self.sieges: Counter[str] = Counter()
        self.removed = 0
        """Dead letters of besiegers."""
        self._looked: dict[str, int] = {}
        """The last dead letter of a node that was looked at."""
        self._strangers = [rf"{one}\private$" for one in (self.attacker.own, *self.besiegers)] + [NOWHERE]
        for one in machines:
            one.address = loopback_address()
        known_as = {one.listens: one.address for one in machines}
        for one in machines:
            seed = self.random.getrandbits(32)
            self.proxies.append(
                Proxy(one.address, one.listens, PORT, seed, self.faults, known_as, partial(self.attacker.tap, one.name))
            )
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
                transfer=HURRIED | {"send_insecure_nacks": True},
                **(self._doors_of(one) if self.attacked else {}),
                **({"security": {"tls": self._tls_of(one, number)}} if self.tls else {}),
            )
            for number, one in enumerate(machines)
        }
        self.source, self.target = self.nodes["SOURCE"], self.nodes["TARGET"]
        self.streams: dict[str, list[Stream]] = {}
        self.reports: dict[str, str] = {}
        names = {one.identifier: one.name for one in machines}
        self.returns = {
            one.name: Returns(one.name, one.identifier, names, _way(one.name, other.name))
            for one, other in ((machines[0], machines[2]), (machines[2], machines[0]))
        }
        self.steady = self.over = False

    def _tls_of(self, machine: Machine, number: int) -> dict[str, object]:
        """The settings of a machine that speaks nothing else."""
        settings = tls_of(
            self.folder, machine.address, machine.identifier, number=number, hours=48, mode=TlsMode.REQUIRE
        )  # fmt: skip
        return settings.model_dump(mode="json", exclude_defaults=True)

    def _doors_of(self, machine: Machine) -> dict[str, object]:
        """The doors that sieges come to, beside that of other nodes."""
        at = self.targets[machine.name]
        return {
            "amqp": {"enabled": True, "address": at.address, "port": at.amqp, "anonymous": True},
            "remote_read": {"enabled": True, "address": at.address, "port": at.rpc, "endpoint_mapper_port": 0},
        }

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
            f"({self.bytes_lost} bytes lost), {cuts} connections cut, {repeated} brought again, "
            f"{self.attacker.sent} packets forged in {self.attacker.opened} sessions, {self.attacker.seen} seen, "
            f"{self.sieges.total()} sieges, {self.removed} of their dead letters removed"
        )

    def _all(self) -> Iterator[Stream]:
        for streams in self.streams.values():
            yield from streams

    async def _create_queues(self) -> None:
        for node in self.nodes.values() if self.attacked else ():
            await node.create_queue(PLAIN)
            await node.create_queue(SEQUENCED, transactional=True)
        for source, target in ((self.source, self.target), (self.target, self.source)):
            admin, reports = await source.create_queue("admin"), await source.create_public_queue("reports")
            self.reports[f"PUBLIC={guid_to_text(reports)}"] = source.machine.name
            kinds = [(End.RECEIVED, number % 2 == 0) for number in range(2 * STREAMS)]
            self.streams[source.machine.name] = streams = []
            for number, (end, transactional) in enumerate([*kinds, *ENDS]):
                name = f"{source.machine.name.lower()}{number}"
                if end is End.UNKNOWN:
                    destination = target.private_name(0xFFFF00 + number)
                else:
                    more = {"quota": 0} if end is End.FULL else {}
                    destination = await target.create_queue(name, transactional=transactional, **more)
                encrypted = end is End.RECEIVED and number % ENCRYPTED_EVERY < 2
                streams.append(Stream(name, destination, transactional, admin, reports, end, encrypted))

    # While everything breaks

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for source in (self.source, self.target):
                tasks.create_task(self._send(source))
                tasks.create_task(self._read_reports(source))
            if self.attacked:
                tasks.create_task(self.attacker.run())
                tasks.create_task(self._besiege())
            if self.attacked and self.tls:
                for node in self.nodes.values():
                    tasks.create_task(self._betray(node))
            await self._break()
            for node in self.nodes.values():
                await node.ready()
            self.steady = True
            await asyncio.sleep(self.seconds * STEADY)
            self.over = True
            self.attacker.stop()
        self.faults.calm = True

    async def _besiege(self) -> None:
        """Strangers use up what a node has, one thing and one node after the other, from one address or from ten."""
        dice = random.Random(self.random.getrandbits(32))
        while not self.over:
            for name in dice.sample(list(SIEGES), len(SIEGES)):
                node = dice.choice(list(self.nodes.values()))
                strangers = self.besiegers[: dice.choice((1, len(self.besiegers)))]
                process = await asyncio.create_subprocess_exec(
                    *arguments(name, self.targets[node.machine.name], strangers), stdout=asyncio.subprocess.PIPE
                )
                try:
                    assert process.stdout is not None
                    assert await process.stdout.readline()
                    self.sieges[name] += 1
                    await asyncio.sleep(dice.uniform(*SIEGE))
                    assert process.returncode is None, f"the besiegers of {name} ended"
                finally:
                    process.kill()
                    await process.wait()
                await self._clear(node, buried=name == "quota")
                if self.over:
                    break

    async def _clear(self, node: Node, *, buried: bool) -> None:
        """Have an application receive what a siege left in open queues, and somebody remove its dead letters."""
        name = node.machine.name
        with contextlib.suppress(qmnode.MessageQueuingError, OSError):
            async with await node.connect() as qm:
                for open_queue in (PLAIN, SEQUENCED):
                    async with await qm.open_queue(rf"DIRECT=OS:.\private$\{open_queue}") as queue:
                        await queue.purge()
                async with await qm.open_queue(DEADLETTER) as queue:
                    while buried:
                        looked = self._looked.get(name)
                        found = await queue.peek_by_lookup_id(looked or 0, "next" if looked else "first")
                        self._looked[name] = found.lookup_identifier
                        if is_forged(found.label):
                            await queue.receive_by_lookup_id(found.lookup_identifier)
                            self.removed += 1

    async def _send(self, node: Node) -> None:
        """Until it is over, and then until every stream has sent what it is there for."""
        dice = random.Random(self.random.getrandbits(32))
        streams = self.streams[node.machine.name]
        while not (self.over and all(one.has_sent() for one in streams)):
            with contextlib.suppress(qmnode.MessageQueuingError, OSError):
                async with await node.connect() as qm:
                    queues: dict[str, qmnode.QueueApi] = {}
                    while wanted := [one for one in streams if not (self.over and one.has_sent())]:
                        stream = dice.choice(wanted)
                        if stream.name not in queues:
                            queues[stream.name] = await qm.open_queue(stream.destination, qmnode.Access.SEND)
                        batch, messages = stream.next_batch(dice.randint(1, 12), self.steady)
                        if stream.transactional:
                            async with qm.transaction() as transaction:
                                await queues[stream.name].send_many(messages, transaction=transaction)
                        else:
                            await queues[stream.name].send_many(messages)
                        batch.confirmed = True
                        await asyncio.sleep(PAUSE)
            await asyncio.sleep(0.1)  # until it is there again

    async def _read_reports(self, node: Node) -> None:
        """Trace reports, before a kill takes them out of their queue."""
        while not self.over:
            with contextlib.suppress(qmnode.MessageQueuingError, OSError):
                async with await node.connect() as qm:
                    self.returns[node.machine.name].take_reports(await _drain(qm, r"DIRECT=OS:.\reports"))
            await asyncio.sleep(0.5)

    async def _betray(self, node: Node) -> None:
        """Show the attacker what a node has to send, although it leaves over TLS."""
        while not self.over:
            with contextlib.suppress(qmnode.MessageQueuingError, OSError):
                async with await node.connect() as qm:
                    for one in await qm.queues([qmnode.QueueType.OUTGOING]):
                        if any(stranger in one.format_name for stranger in self._strangers):
                            continue  # it has answers to besiegers
                        with contextlib.suppress(qmnode.MessageQueuingError):
                            async with await qm.open_queue(one.format_name, qmnode.Access.PEEK_ADMIN) as queue:
                                packet = (await queue.peek(timeout=0)).packet
                            self.attacker.show(self._next_hop(node, one.format_name), packet)
            await asyncio.sleep(0.2)

    def _next_hop(self, node: Node, destination: str) -> str:
        if node.machine.name != "ROUTER":
            return "ROUTER"
        if destination in self.reports:
            return self.reports[destination]
        ends = [one.machine for one in (self.source, self.target)]
        return next(one.name for one in ends if guid_to_text(one.identifier) in destination)

    async def _break(self) -> None:
        dice = random.Random(self.random.getrandbits(32))
        time = asyncio.get_running_loop().time
        deadline = time() + self.seconds * (1 - STEADY)
        while (left := deadline - time()) > 0:
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
        await _while_it_goes_on(self._all_arrived, self._missing)  # what is missing then is in the findings
        wrong: list[str] = []

        async def right() -> bool:
            await self._all_arrived()  # what was not confirmed may come late
            await self._read_returns()
            wrong[:] = self._wrong()
            return not wrong

        await _while_it_goes_on(right, self._missing)
        self.findings += wrong or await self._nothing_left()

    def _wrong(self) -> list[str]:
        wrong = [finding for stream in self._all() for finding in stream.findings()]
        for name, returns in self.returns.items():
            wrong += returns.findings(self.streams[name])
        return wrong

    async def _all_arrived(self) -> bool:
        complete = True
        for node, sender in ((self.target, "SOURCE"), (self.source, "TARGET")):
            async with await node.connect() as qm:
                for stream in self.streams[sender]:
                    if stream.is_received:
                        stream.received += await _drain(qm, rf"DIRECT=OS:.\private$\{stream.name}")
                        complete = complete and stream.confirmed() <= set(stream.numbers())
        return complete

    async def _missing(self) -> int:
        """Less, the more came."""
        return -sum(one.count() for one in self.returns.values()) - sum(len(one.received) for one in self._all())

    async def _waiting(self) -> int:
        return sum([await node.outgoing(strangers=self._strangers) for node in self.nodes.values()])

    async def _read_returns(self) -> None:
        """What came back to sources, and what died anywhere."""
        for name, returns in self.returns.items():
            async with await self.nodes[name].connect() as qm:
                returns.journal += [one.identifier for one in await _drain(qm, r"DIRECT=OS:.\SYSTEM$;JOURNAL")]
                returns.take_answers(await _drain(qm, r"DIRECT=OS:.\private$\admin"))
                returns.take_reports(await _drain(qm, r"DIRECT=OS:.\reports"))
        for name, node in self.nodes.items():
            async with await node.connect() as qm:
                for queue in (DEADLETTER, DEADXACT):
                    for one in await _drain(qm, queue):
                        sender = "SOURCE" if named(one.body)[0].startswith("source") else "TARGET"
                        self.returns[sender].take_dead((name, queue), [one])

    async def _nothing_left(self) -> list[str]:
        """Outgoing queues become empty, and nothing more arrives while they do."""

        async def empty() -> bool:
            await self._all_arrived()
            return not await self._waiting()

        if not await _while_it_goes_on(empty, self._waiting):
            waiting = [one for node in self.nodes.values() for one in await node.waiting()]
            return [f"outgoing queues are not empty, and nothing has moved for {STANDSTILL:g} s", *waiting]
        await self._read_returns()
        return self._wrong()


def _way(source: str, target: str) -> tuple[Stop, ...]:
    """Over the router."""
    return (
        Stop(source, sent=True, hops=0),
        Stop("ROUTER", sent=False, hops=0),
        Stop("ROUTER", sent=True, hops=1),
        Stop(target, sent=False, hops=1),
    )


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
                found += [one for one in await queue.receive_many(200, timeout=0) if not is_forged(one.label)]
        except qmnode.MessageQueuingError as error:
            if error.name != "MQ_ERROR_IO_TIMEOUT":
                raise
    return found


def _contexts(folder: Path) -> list[ssl.SSLContext]:
    """How an attacker connects: without a certificate, with one of another authority, and with one of the enterprise
    that names no queue manager. It checks nothing."""
    names = [None, "stranger", "authority"]
    contexts = []
    for issuer in names:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if issuer is not None:
            file = folder / f"attacker-{issuer}.pem"
            file.write_bytes(certificate("host", 5, issuer, by=AUTHORITY if issuer == "authority" else 6, hours=48))
            context.load_cert_chain(file, write_key(file.with_suffix(".key"), 5))
        contexts.append(context)
    return contexts
