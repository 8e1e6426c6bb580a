"""Nodes under attack in processes of their own, and honest traffic beside the attack: of a declared machine, of a peer
with a certificate, and of an application of this machine."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

import qmnode
from qmnode import Access, Message
from qmnode.local.remote import RemoteQueue
from tests.adversary import wire
from tests.adversary.besiegers import PLAIN, SEQUENCED, Target, arguments
from tests.adversary.peer import PORT, Peer
from tests.forwarding.enterprise import Directory, Machine, Node
from tests.lab.addresses import free_port
from tests.lab.waiting import until
from tests.security.certificates import tls_of
from tests.transport.conftest import loopback_address

KIB, MIB = 1 << 10, 1 << 20
HONEST = "honest"
"""The queue of the honest parties."""
MOST = 150 * MIB
"""Memory that an attack may cost the node."""


def resident(process: int) -> int:
    """Bytes of memory that a process has."""
    status = Path(f"/proc/{process}/status").read_text()
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))


@dataclass
class Sender:
    """An honest party: what it sent, and what happened to it."""

    name: str
    sent: list[bytes] = field(default_factory=list)
    number: int = 0
    """Messages since its beginning."""
    refused: int = 0
    """Messages, or sessions, that the node did not take at once."""
    slowest: float = 0.0

    def next_body(self) -> bytes:
        self.number += 1
        self.sent.append(f"{self.name} {self.number}".encode())
        return self.sent[-1]


class Besieged:
    """The node, its directory and its honest parties. OTHER is a node of the same machine, if it is started.

    If the certificate of a host is stolen, all peers have to use TLS, and the attackers are the queue manager in it.
    """

    def __init__(
        self,
        folder: Path,
        address: Callable[[], str] = loopback_address,
        *,
        is_stolen: bool = False,
        **settings: object,
    ) -> None:
        names = ("VICTIM", "OTHER", "FRIEND", "TLS", "STOLEN")
        self.machines = {name: Machine(name, ["site"], listens=address()) for name in names}
        directory = Directory(folder / "directory.yaml", self.machines)
        directory.write()
        mode, self._is_stolen = "require" if is_stolen else "offer", is_stolen
        self._files = {
            name: tls_of(folder, machine.listens, machine.identifier, number=2, mode=mode)
            for name, machine in self.machines.items()
            if name in ("FRIEND", "TLS", "STOLEN")
        }
        certificate, stolen = "", ""
        if is_stolen:
            files = self._files["STOLEN"]
            assert files.certificate is not None and files.private_key is not None
            certificate, stolen = str(files.certificate), bytes(self.machines["STOLEN"].identifier).hex()
            shutil.copy(files.private_key, files.certificate.with_suffix(".key"))
        self.at: dict[str, Target] = {}
        self.nodes: dict[str, Node] = {}
        for name in ("VICTIM", "OTHER"):
            machine = self.machines[name]
            tls = tls_of(folder, machine.listens, machine.identifier, number=1, mode=mode)
            at = self.at[name] = Target(machine.listens, free_port(), free_port(), certificate, stolen)
            merged: dict[str, Any] = {
                "transport": {"address": at.address},
                "management": {"socket": str(folder / name.lower() / "management.sock")},
                "security": {"tls": tls.model_dump(mode="json", exclude_defaults=True)},
                "amqp": {"enabled": True, "address": at.address, "port": at.amqp, "anonymous": True},
                "remote_read": {"enabled": True, "address": at.address, "port": at.rpc, "endpoint_mapper_port": 0},
            }
            for part, values in settings.items():
                merged[part] = merged.get(part, {}) | values  # type: ignore[operator]
            self.nodes[name] = Node(folder / name.lower(), machine, directory.file, **merged)
        self.node = self.nodes["VICTIM"]
        self.target = self.at["VICTIM"]
        self.parties = {name: Sender(name) for name in ("declared", "certified", "local")}
        self.bystander = address()
        """A stranger who is honest."""
        self.longest = 0.0
        """Seconds that a new session took the bystander at most."""
        self.peak = 0
        self.arrived: Counter[bytes] = Counter()
        """Bodies that an application has received."""

    @property
    def memory(self) -> int:
        assert self.node.process is not None
        return resident(self.node.process.pid)

    @property
    def loop(self) -> tuple[float, float]:
        """Seconds that VICTIM's event loop has run, and that it has waited for a processor."""
        assert self.node.process is not None
        process = self.node.process.pid
        ran, waited, _ = Path(f"/proc/{process}/task/{process}/schedstat").read_text().split()
        return int(ran) * 1e-9, int(waited) * 1e-9

    @property
    def own_queue(self) -> str:
        """The queue of the honest parties, as an application of the node names it."""
        return rf"DIRECT=OS:.\private$\{HONEST}"

    async def start(self, name: str) -> None:
        """Start a node, with its queues."""
        node = self.nodes[name]
        node.start()
        await node.ready()
        for queue in (HONEST, PLAIN):
            await node.create_queue(queue)
        await node.create_queue(SEQUENCED, transactional=True)

    def close(self) -> None:
        for node in self.nodes.values():
            node.kill()

    async def shares(self, party: str = "stranger", name: str = "VICTIM") -> dict[str, tuple[float, float]]:
        """What a kind of party uses of each bounded resource, and how often it was refused more."""
        transport = httpx.AsyncHTTPTransport(uds=str(self.nodes[name].folder / "management.sock"))
        async with httpx.AsyncClient(transport=transport, base_url="http://node", timeout=60, verify=False) as client:
            text = (await client.get("/metrics")).text
        found: dict[str, dict[str, float]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name.startswith("qmnode_share_") and sample.labels["party"] == party:
                    found.setdefault(sample.labels["resource"], {})[sample.name] = sample.value
        return {
            resource: (values["qmnode_share_used"], values["qmnode_share_refused_total"])
            for resource, values in found.items()
        }

    # Honest traffic

    async def _session(self, name: str) -> Peer:
        machine = self.machines[name]
        context = None
        if name == "TLS" or self._is_stolen:
            files = self._files[name]
            context = ssl.create_default_context(cafile=str(files.authorities))
            context.check_hostname = False
            assert files.certificate is not None
            context.load_cert_chain(files.certificate, files.private_key)
        opened = await asyncio.open_connection(self.target.address, PORT, local_addr=(machine.listens, 0), ssl=context)
        peer = Peer(*opened)
        await peer.establish(bytes(machine.identifier))
        return peer

    async def _over_sessions(self, party: str, stop: asyncio.Event, at_once: int) -> None:
        """Send some messages after others, each once more if its session ends without an answer."""
        sender, name = self.parties[party], "FRIEND" if party == "declared" else "TLS"
        source = bytes(self.machines[name].identifier)
        peer: Peer | None = None
        while not stop.is_set():
            began, first = time.monotonic(), sender.number
            bodies = [sender.next_body() for _ in range(at_once)]
            letters = [
                self.target.letter(source, first + one, HONEST, label=HONEST, body=body)
                for one, body in enumerate(bodies, 1)
            ]
            while True:
                try:
                    peer = peer or await self._session(name)
                    await peer.say(*letters)
                    break
                except OSError:
                    sender.refused += 1
                    peer = None
                    await asyncio.sleep(0.25)
                    if stop.is_set():
                        del sender.sent[-at_once:]
                        return
            sender.slowest = max(sender.slowest, time.monotonic() - began)
            await asyncio.sleep(0.02 if at_once == 1 else 0)
        if peer is not None:
            peer.close()

    async def _locally(self, stop: asyncio.Event, at_once: int) -> None:
        sender = self.parties["local"]
        async with (
            await self.node.connect() as manager,
            await manager.open_queue(self.own_queue, Access.SEND) as out,
        ):
            while not stop.is_set():
                began = time.monotonic()
                bodies = [sender.next_body() for _ in range(at_once)]
                try:
                    await out.send_many([Message(body, recoverable=True) for body in bodies])
                except qmnode.MessageQueuingError:
                    sender.refused += 1
                    del sender.sent[-at_once:]
                    await asyncio.sleep(0.25)
                sender.slowest = max(sender.slowest, time.monotonic() - began)
                await asyncio.sleep(0.02 if at_once == 1 else 0)

    async def _receive(self, stop: asyncio.Event) -> None:
        """Receive what has arrived: what nobody receives fills the node's quota."""
        async with await self.node.connect() as manager, await manager.open_queue(self.own_queue) as queue:
            while not stop.is_set():
                self.arrived.update(await received(queue, 0.1))

    async def _visit(self, stop: asyncio.Event) -> None:
        """Open a new session again and again."""
        while not stop.is_set():
            began = time.monotonic()
            with suppress(OSError):
                if self._is_stolen:
                    (await self._session("TLS")).close()
                else:
                    (await self.target.session(self.bystander, wire.identifier())).close()
            self.longest = max(self.longest, time.monotonic() - began)
            await asyncio.sleep(0.2)

    async def _watch(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            self.peak = max(self.peak, self.memory)
            await asyncio.sleep(0.05)

    @asynccontextmanager
    async def honest_traffic(self, at_once: int = 1) -> AsyncIterator[None]:
        """All parties send while this is entered, so many messages at once, or one and then a pause."""
        stop = asyncio.Event()
        self.peak = self.memory
        async with asyncio.TaskGroup() as parties:
            parties.create_task(self._over_sessions("declared", stop, at_once))
            parties.create_task(self._over_sessions("certified", stop, at_once))
            parties.create_task(self._locally(stop, at_once))
            parties.create_task(self._receive(stop))
            parties.create_task(self._visit(stop))
            parties.create_task(self._watch(stop))
            try:
                yield
            finally:
                stop.set()

    async def each_sends(self, count: int) -> None:
        """Wait until each party has sent so many messages more."""
        before = {name: one.number for name, one in self.parties.items()}

        async def has_sent() -> bool:
            return all(one.number > before[name] + count for name, one in self.parties.items())

        await until(has_sent, f"each party sends {count} messages: {self.report()}", 60.0)

    async def all_is_well(self) -> None:
        """Check that no honest message was lost, doubled or refused."""
        found = self.arrived
        async with await self.node.connect() as manager, await manager.open_queue(self.own_queue) as queue:
            while some := await received(queue):
                found.update(some)
        sent = Counter(body for party in self.parties.values() for body in party.sent)
        assert found == sent, (sent - found, found - sent)
        assert not any(party.refused for party in self.parties.values()), self.report()
        for party in self.parties.values():
            party.sent.clear()
        found.clear()

    def report(self) -> str:
        each = (
            f"{one.name}: {len(one.sent)} sent, {one.refused} refused, slowest {one.slowest:.2f} s"
            for one in self.parties.values()
        )
        return "; ".join((*each, f"peak {self.peak / MIB:.0f} MiB, now {self.memory / MIB:.0f} MiB"))

    # Attackers

    @asynccontextmanager
    async def attacked(self, attackers: Iterable[Callable[[], Awaitable[None]]]) -> AsyncIterator[None]:
        """All attackers are at work while this is entered."""
        tasks = [asyncio.ensure_future(one()) for one in attackers]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @asynccontextmanager
    async def besieged_by(self, name: str, strangers: Sequence[str], at: str) -> AsyncIterator[None]:
        """The same, in a process of their own, at one of the nodes."""
        process = await asyncio.create_subprocess_exec(
            *arguments(name, self.at[at], strangers), stdout=asyncio.subprocess.PIPE
        )
        try:
            assert process.stdout is not None
            assert await process.stdout.readline()
            yield
            assert process.returncode is None, "the attackers ended"
        finally:
            process.kill()
            await process.wait()


async def received(queue: RemoteQueue, timeout: float = 0) -> list[bytes]:
    """The bodies of the next messages of a queue; none if it is empty for so many seconds."""
    with suppress(qmnode.MessageQueuingError):
        return [message.body for message in await queue.receive_many(500, timeout=timeout)]
    return []


@asynccontextmanager
async def besieged(folder: Path, **settings: object) -> AsyncIterator[Besieged]:
    """The node, ready, with its queues."""
    lab = Besieged(folder, **settings)  # type: ignore[arg-type]
    try:
        await lab.start("VICTIM")
        yield lab
    finally:
        lab.close()
