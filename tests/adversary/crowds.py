"""A node that strangers crowd, with honest parties beside them: a declared machine, a TLS peer and an application.

The same attack comes from one stranger, from ten of different address blocks, and from ten addresses of one /64.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

from qmnode import Access, Message, QueueManager
from qmnode.directory.file import FileDirectory
from qmnode.settings.security import SecuritySettings, TlsMode
from qmnode.structures.guid import guid_to_text
from tests.adversary import wire
from tests.adversary.lab import waiting
from tests.adversary.peer import Peer
from tests.forwarding.enterprise import Directory, Machine
from tests.lab.waiting import eventually
from tests.security.certificates import tls_of
from tests.transport.conftest import PLAIN, TRANSACTIONAL, loopback_address, settings_of

CROWDS = ("one", "ten", "network")
ADMIN = r".\private$\admin"
COUNT = 10
"""Messages of each honest party."""
PROMPT = 20.0
"""Seconds for a new session, on a machine that is much slower than any of ours. It is printed what it took."""


@contextmanager
def addresses_of(crowd: str) -> Iterator[Callable[[], str]]:
    """What gives each machine another address block. For a crowd of one /64 all speak IPv6."""
    if crowd != "network":
        yield loopback_address
        return
    octets = random.SystemRandom()
    prefix = f"fd{octets.randrange(256):02x}:{octets.randrange(1 << 16):x}:{octets.randrange(1 << 16):x}"
    addresses = [f"{prefix}:{network:x}::{last:x}" for network in range(1, 8) for last in range(1, 11)]
    _on_loopback("add", addresses)
    free = iter(addresses[::10])
    try:
        yield lambda: next(free)
    finally:
        _on_loopback("del", addresses)


def _on_loopback(change: str, addresses: list[str]) -> None:
    lines = "".join(f"addr {change} {address}/128 dev lo\n" for address in addresses)
    subprocess.run(["ip", "-6", "-batch", "-"], input=lines, text=True, check=True)


def strangers_of(crowd: str, address: Callable[[], str]) -> list[str]:
    """The addresses of a crowd's strangers."""
    first = address()
    more = [address() for _ in range(9)] if crowd == "ten" else []
    if crowd == "network":
        more = [f"{first.removesuffix('1')}{last:x}" for last in range(2, 11)]
    return [first, *more]


class Crowded:
    """TARGET, which is attacked, and FRIEND and SEALED, which the directory has. SEALED speaks TLS."""

    def __init__(self, folder: Path, stack: AsyncExitStack, crowd: str, address: Callable[[], str]) -> None:
        self.folder, self._stack = folder, stack
        names = ("TARGET", "FRIEND", "SEALED")
        self.machines = {name: Machine(name, ["north"], listens=address()) for name in names}
        self.directory = Directory(folder / "directory.yaml", self.machines)
        self.directory.write()
        self.strangers = strangers_of(crowd, address)
        self.bystander = address()
        """A stranger who is honest."""
        self.nodes: dict[str, QueueManager] = {}

    @property
    def target(self) -> QueueManager:
        return self.nodes["TARGET"]

    @property
    def address(self) -> str:
        return self.machines["TARGET"].listens

    @property
    def direct(self) -> str:
        """TARGET, as a direct format name names it."""
        return f"TCP:{self.address}"

    async def start(self, name: str, **parts: dict[str, object]) -> QueueManager:
        """Start a node, with other settings in some parts."""
        machine = self.machines[name]
        settings = settings_of(name, machine.listens)
        changed = {part: getattr(settings, part).model_copy(update=values) for part, values in parts.items()}
        if name != "FRIEND":
            number = list(self.machines).index(name)
            mode = TlsMode("prefer" if name == "SEALED" else "offer")
            tls = tls_of(self.folder, machine.listens, machine.identifier, number=number, mode=mode)
            changed["security"] = SecuritySettings(tls=tls)
        settings = settings.model_copy(update=changed)
        node = await QueueManager.open(self.folder / name, settings, directory=FileDirectory(self.directory.file))
        self.nodes[name] = node
        self._stack.push_async_callback(self.stop, name)
        if node.identifier != machine.identifier:
            node.adopt_identifier(machine.identifier)
        await node.network.start()
        return node

    async def stop(self, name: str) -> None:
        node = self.nodes.pop(name, None)
        if node is not None:
            await node.close()

    async def honest(self) -> None:
        """New transactional messages of each honest party, in new sessions: each arrives once, in order."""
        target = self.target
        queue = await target.queue(TRANSACTIONAL)
        name = f"PRIVATE={guid_to_text(target.identifier)}\\{queue.private_queue_number:08x}"
        senders = {"FRIEND": self.nodes["FRIEND"], "SEALED": self.nodes["SEALED"], "OWN": target}
        before = queue.message_count
        for sender, node in senders.items():
            async with await node.open_queue(name, Access.SEND) as out:
                for number in range(COUNT):
                    await out.send(Message(b"%s %d" % (sender.encode(), number)), transaction="single")
        others = [node for node in senders.values() if node is not target]
        await eventually(lambda: not any(map(waiting, others)), "all is acknowledged")
        found: list[bytes] = []
        async with await target.open_queue(f"DIRECT=OS:{TRANSACTIONAL}", Access.RECEIVE) as inward:
            count = (await target.queue(TRANSACTIONAL)).message_count
            found += [(await inward.receive(timeout=60)).body for _ in range(count)]
        assert len(found) >= before + len(senders) * COUNT
        for sender in senders:
            own = [body for body in found if body.startswith(sender.encode())]
            assert own == [b"%s %d" % (sender.encode(), number) for number in range(COUNT)]
        assert all(one.encrypted for one in self.nodes["SEALED"].network.connections() if not one.incoming)

    async def acknowledged(self, name: str) -> int:
        """The acknowledgments that come for messages of an honest machine, each with a new administration queue."""
        node, plain = self.nodes[name], await self.target.queue(PLAIN)
        await node.create_queue(ADMIN)
        admin = rf"DIRECT=TCP:{self.machines[name].listens}\private$\admin"
        async with await node.open_queue(
            f"PRIVATE={guid_to_text(self.target.identifier)}\\{plain.private_queue_number:08x}", Access.SEND
        ) as out:
            for _ in range(COUNT):
                message = Message(b"answer me", acknowledgements_requested=0x01, administration_queue_format_name=admin)
                await out.send(message)
        answers = node.names.find(ADMIN)
        await eventually(lambda: answers.message_count == COUNT, "all acknowledgments are here")
        return answers.message_count

    async def new_session(self) -> float:
        """How long a new session takes."""
        began = time.monotonic()
        peer = await Peer.connect(self.bystander, self.address)
        await peer.establish(wire.identifier())
        peer.close()
        took = time.monotonic() - began
        assert took < PROMPT
        return took

    async def attack(self, say: Callable[[Peer, int], Awaitable[None]]) -> float:
        """Have each stranger speak in a session of its own, one after the other; the longest wait of others."""
        longest = 0.0
        for number, address in enumerate(self.strangers):
            peer = await Peer.connect(address, self.address)
            await peer.establish(wire.identifier())
            try:
                await asyncio.gather(say(peer, number), return_exceptions=True)
            finally:
                peer.close()
            longest = max(longest, await self.new_session())
        return longest


@asynccontextmanager
async def crowded(folder: Path, crowd: str, **parts: dict[str, object]) -> AsyncIterator[Crowded]:
    """The three nodes, and strangers of one kind. ``parts`` are settings of TARGET."""
    async with AsyncExitStack() as stack:
        lab = Crowded(folder, stack, crowd, stack.enter_context(addresses_of(crowd)))
        target = await lab.start("TARGET", **parts)
        await target.create_queue(PLAIN)
        await target.create_queue(TRANSACTIONAL, transactional=True)
        for name in ("FRIEND", "SEALED"):
            await lab.start(name)
        yield lab
