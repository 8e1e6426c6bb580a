"""A node under attack in a process of its own, and honest traffic beside the attack: of a declared machine, of a peer
with a certificate, and of an application of this machine."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import qmnode
from qmnode import Access, Message
from qmnode.structures.security_header import SecurityHeader
from tests.adversary import wire
from tests.adversary.peer import PORT, Peer
from tests.certificates.enterprise import user_certificate
from tests.forwarding.enterprise import Directory, Machine, Node
from tests.lab.waiting import until
from tests.security.certificates import tls_of

KIB, MIB = 1 << 10, 1 << 20
HONEST, OPEN = "honest", "open"
"""Queues: of the honest parties, and one that anybody fills."""
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
    refused: int = 0
    """Messages, or sessions, that the node did not take at once."""
    slowest: float = 0.0

    def next_body(self) -> bytes:
        self.sent.append(f"{self.name} {len(self.sent)}".encode())
        return self.sent[-1]


class Besieged:
    """The node, its directory and its honest parties."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self.machines = {name: Machine(name, ["site"]) for name in ("VICTIM", "FRIEND", "TLS")}
        directory = Directory(folder / "directory.yaml", self.machines)
        directory.write()
        victim, known = self.machines["VICTIM"], self.machines["TLS"]
        tls = tls_of(folder, victim.listens, victim.identifier, number=1, mode="offer")
        self._files = tls_of(folder, known.listens, known.identifier, number=2, mode="offer")
        security = {"tls": tls.model_dump(mode="json", exclude_defaults=True)}
        merged: dict[str, Any] = {"security": security} | settings
        self.node = Node(folder / "victim", victim, directory.file, **merged)
        self.target = victim.listens
        self.parties = {name: Sender(name) for name in ("declared", "certified", "local")}
        self.peak = 0
        self._strangers: list[Peer] = []

    def queue(self, name: str) -> wire.Name:
        """A direct name of a queue of the node."""
        return wire.direct(rf"TCP:{self.target}\private$\{name}")

    def letter(self, source: bytes, number: int, queue: str = OPEN, **more: object) -> bytes:
        """A message for one of its queues."""
        return wire.UserMessage(source=source, message_id=number, queue=self.queue(queue), **more).packet()  # type: ignore[arg-type]

    @property
    def memory(self) -> int:
        assert self.node.process is not None
        return resident(self.node.process.pid)

    # Honest traffic

    async def _session(self, party: str) -> Peer:
        machine = self.machines["FRIEND" if party == "declared" else "TLS"]
        context = None
        if party == "certified":
            context = ssl.create_default_context(cafile=str(self._files.authorities))
            context.check_hostname = False
            assert self._files.certificate is not None
            context.load_cert_chain(self._files.certificate, self._files.private_key)
        opened = await asyncio.open_connection(self.target, PORT, local_addr=(machine.listens, 0), ssl=context)
        peer = Peer(*opened)
        await peer.establish(bytes(machine.identifier))
        return peer

    async def _over_sessions(self, party: str, stop: asyncio.Event) -> None:
        """Send one message after the other, each once more if its session ends without an answer."""
        sender = self.parties[party]
        source = bytes(self.machines["FRIEND" if party == "declared" else "TLS"].identifier)
        peer: Peer | None = None
        number = 0
        while not stop.is_set():
            body, began = sender.next_body(), time.monotonic()
            number += 1
            while True:
                try:
                    peer = peer or await self._session(party)
                    await peer.say(self.letter(source, number, HONEST, body=body))
                    break
                except OSError:
                    sender.refused += 1
                    peer = None
                    await asyncio.sleep(0.25)
                    if stop.is_set():
                        sender.sent.pop()
                        return
            sender.slowest = max(sender.slowest, time.monotonic() - began)
            await asyncio.sleep(0.02)
        if peer is not None:
            peer.close()

    async def _locally(self, stop: asyncio.Event) -> None:
        sender = self.parties["local"]
        async with (
            await self.node.connect() as manager,
            await manager.open_queue(rf"DIRECT=OS:.\private$\{HONEST}", Access.SEND) as out,
        ):
            while not stop.is_set():
                body, began = sender.next_body(), time.monotonic()
                try:
                    await out.send(Message(body, recoverable=True))
                except qmnode.MessageQueuingError:
                    sender.refused += 1
                    sender.sent.pop()
                    await asyncio.sleep(0.25)
                sender.slowest = max(sender.slowest, time.monotonic() - began)
                await asyncio.sleep(0.02)

    async def _watch(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            self.peak = max(self.peak, self.memory)
            await asyncio.sleep(0.05)

    @asynccontextmanager
    async def honest_traffic(self) -> AsyncIterator[None]:
        """All parties send while this is entered."""
        stop = asyncio.Event()
        self.peak = self.memory
        async with asyncio.TaskGroup() as parties:
            parties.create_task(self._over_sessions("declared", stop))
            parties.create_task(self._over_sessions("certified", stop))
            parties.create_task(self._locally(stop))
            parties.create_task(self._watch(stop))
            try:
                yield
            finally:
                stop.set()

    async def each_sends(self, count: int) -> None:
        """Wait until each party has sent so many messages more."""
        before = {name: len(one.sent) for name, one in self.parties.items()}

        async def has_sent() -> bool:
            return all(len(one.sent) > before[name] + count for name, one in self.parties.items())

        await until(has_sent, f"each party sends {count} messages: {self.report()}", 60.0)

    async def all_is_well(self) -> None:
        """Check that no honest message was lost, doubled or refused."""
        count = await self.node.count(rf".\private$\{HONEST}")
        found = Counter(await self.node.bodies(HONEST, count))
        sent = Counter(body for party in self.parties.values() for body in party.sent)
        assert found == sent, (sent - found, found - sent)
        assert not any(party.refused for party in self.parties.values()), self.report()

    def report(self) -> str:
        each = (
            f"{one.name}: {len(one.sent)} sent, {one.refused} refused, slowest {one.slowest:.2f} s"
            for one in self.parties.values()
        )
        return "; ".join((*each, f"peak {self.peak / MIB:.0f} MiB, now {self.memory / MIB:.0f} MiB"))

    # Attackers

    async def stranger(self, address: str, *, window: int = 64) -> tuple[Peer, bytes]:
        """A session of a machine that the directory does not have."""
        peer, source = await Peer.connect(address, self.target), wire.identifier()
        self._strangers.append(peer)
        await peer.establish(source, window=window)
        return peer, source

    @asynccontextmanager
    async def attacked(self, attackers: Iterable[Callable[[asyncio.Event], Awaitable[None]]]) -> AsyncIterator[None]:
        """All attackers are at work while this is entered; then their connections end."""
        stop = asyncio.Event()
        tasks = [asyncio.ensure_future(one(stop)) for one in attackers]
        try:
            yield
        finally:
            stop.set()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for peer in self._strangers:
                peer.abort()
            self._strangers.clear()


@asynccontextmanager
async def besieged(folder: Path, **settings: object) -> AsyncIterator[Besieged]:
    """The node, ready, with its queues."""
    lab = Besieged(folder, **settings)
    try:
        lab.node.start()
        await lab.node.ready()
        for name in (HONEST, OPEN):
            await lab.node.create_queue(name)
        yield lab
    finally:
        lab.node.kill()


def signed() -> bytes:
    """A SecurityHeader with a signature that has to be verified, by a certificate that anybody can make."""
    return SecurityHeader(signature=bytes(range(128)), sender_cert=user_certificate()).write()


async def drip(peer: Peer, data: bytes, stop: asyncio.Event) -> None:
    """Write the same again and again, as fast as the other side reads."""
    closed = asyncio.ensure_future(peer.is_closed())
    while not (stop.is_set() or closed.done()):
        peer.send(data)
        await asyncio.wait([closed, sent := asyncio.ensure_future(peer.flush())], return_when=asyncio.FIRST_COMPLETED)
        sent.cancel()
    closed.cancel()
