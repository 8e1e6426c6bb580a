"""Distribution lists and queue aliases of a real directory, between nodes that are killed and cut off: exactly once.

``LIST_SECONDS`` is how long everything breaks, ``SOAK_SEED`` does again what failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

import qmnode
from mqenterprise.directory.admission import SETTINGS_FILE, admit
from mqenterprise.directory.entries import Change, ChangeKind
from mqenterprise.directory.ldap_names import child
from mqenterprise.directory.open_directory import EnterpriseDirectory
from qmnode.directory.port import Queue, QueueManager
from qmnode.structures.guid import guid_from_bytes, guid_to_text
from tests.forwarding.enterprise import HURRIED
from tests.lab.nodes import NodeProcess
from tests.lab.waiting import holds
from tests.soak.proxy import Faults, Proxy
from tests.transport.conftest import loopback_address

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from mqenterprise.directory.private_slapd import EmbeddedDirectory

    Named = Callable[[str], str]

pytestmark = [pytest.mark.servers, pytest.mark.soak, pytest.mark.timed, pytest.mark.timeout(0)]
NODES, QUEUES = 10, 40
PORT = 1801
SETTLED = 600.0
"""Seconds in which all arrives after the last fault."""
MOVED = 5.0
"""Seconds after which new messages go where an alias leads now."""


@dataclass
class Enterprise:
    """Nodes behind proxies, and their public queues in the directory."""

    directory: EnterpriseDirectory
    folder: Path
    named: Named
    seed: int
    nodes: list[NodeProcess] = field(default_factory=list)
    proxies: list[Proxy] = field(default_factory=list)
    queues: dict[str, tuple[NodeProcess, Queue]] = field(default_factory=dict)
    """By name, which no other queue of the enterprise has."""
    faults: Faults = field(default_factory=Faults)
    kills: int = 0

    async def start(self, nodes: int, queues: int) -> None:
        dice = random.Random(self.seed)
        known_as: dict[str, str] = {}
        for number in range(nodes):
            name, own, shown = self.named(f"LN{number}").upper()[:15], loopback_address(), loopback_address()
            known_as[own] = shown
            self.directory.queue_managers.add(QueueManager(computer_name=name, qualified_computer_name=shown))
            admit(self.directory, name, self.folder / name / "directory")
            made_here: dict[str, Queue] = {}
            for place in range(number, queues, nodes):
                made = self.directory.queues.add(Queue(pathname=f"{name}\\list{place}", transactional=True))
                made_here[f"list{place}"] = made
            settings = {"file": str(self.folder / name / "directory" / SETTINGS_FILE)}
            node = NodeProcess(
                self.folder / name,
                computer_name=name,
                transport={"address": own},
                transfer=HURRIED,
                directory={"name": "ldap", "settings": settings},
            )
            self.nodes.append(node)
            self.queues |= {place: (node, made) for place, made in made_here.items()}
            self.proxies.append(Proxy(shown, own, PORT, dice.getrandbits(32), self.faults, known_as))
        for proxy in self.proxies:
            await proxy.start()
        for node in self.nodes:
            await node.start_again()
        for name, (node, _) in self.queues.items():
            await holds(lambda node=node, name=name: self._has(node, name), 120, f"{name} is there")

    async def _has(self, node: NodeProcess, name: str) -> bool:
        async with await node.connect() as qm:
            return any(queue.pathname.endswith(f"\\{name}") for queue in await qm.queues([qmnode.QueueType.PUBLIC]))

    async def stop(self) -> None:
        for node in self.nodes:
            node.kill()
        for proxy in self.proxies:
            await proxy.stop()

    def add_list(self, *members: str) -> str:
        """A distribution list of these objects; its format name."""
        name, dialect = self.named("all"), self.directory.connection.dialect
        named = {"member": tuple(member.encode() for member in members), "groupType": (b"2",)}
        made = self.directory.connection.add(
            child(name, dialect.contexts.users), ("top", "group"), named | dialect.account("group", name)
        )
        return f"DL={guid_to_text(guid_from_bytes(made.attributes['objectguid'][0]))}"

    async def break_all(self, seconds: float) -> None:
        """Kill nodes and cut connections, and let both be at the end."""
        dice, until = random.Random(self.seed + 1), time.monotonic() + seconds
        while time.monotonic() < until:
            await asyncio.sleep(dice.uniform(0.5, 3.0))
            for node in dice.sample(self.nodes, dice.choice((1, 1, 2))):
                node.kill()
                self.kills += 1
                await node.start_again()
        self.faults.calm = True

    async def received(self, name: str) -> list[str]:
        """All that is in a queue now, in its order."""
        node, _ = self.queues[name]
        found: list[str] = []
        async with await node.connect() as qm, await qm.open_queue(rf"DIRECT=OS:.\{name}") as queue:
            with contextlib.suppress(qmnode.MessageQueuingError):
                while True:
                    found += [one.body.decode() for one in await queue.receive_many(200, timeout=0)]
        return found

    def told(self) -> str:
        cuts, repeated = (sum(getattr(proxy, name) for proxy in self.proxies) for name in ("cuts", "repeated"))
        return f"seed {self.seed}: {self.kills} kills, {cuts} connections cut, {repeated} brought again"


@pytest.fixture
async def enterprise(slapd: EmbeddedDirectory, tmp_path: Path, fresh_name: Named) -> AsyncIterator[Enterprise]:
    seed = int(os.environ.get("SOAK_SEED") or random.SystemRandom().getrandbits(31))
    with EnterpriseDirectory(slapd.client_settings()) as directory:
        opened = Enterprise(directory, tmp_path, fresh_name, seed)
        try:
            yield opened
        finally:
            await opened.stop()


class Sender:
    """Sends numbered messages in transactions, each attempt with a name of its own."""

    def __init__(self, node: NodeProcess, destination: str) -> None:
        self._node, self._destination = node, destination
        self.confirmed: list[str] = []
        self.attempted: list[str] = []
        self.opened: dict[str, float] = {}
        """When the destination of each attempt had been looked up, by the monotonic clock."""

    async def send(self) -> None:
        """One message. It may have been sent if that is not confirmed."""
        name = f"message {len(self.attempted)}"
        try:
            async with (
                await self._node.connect() as qm,
                await qm.open_queue(self._destination, qmnode.Access.SEND) as queue,
            ):
                self.opened[name] = time.monotonic()
                self.attempted.append(name)
                async with qm.transaction() as transaction:
                    await queue.send(qmnode.Message(name.encode(), recoverable=True), transaction=transaction)
            self.confirmed.append(name)
        except (OSError, qmnode.MessageQueuingError):
            await asyncio.sleep(0.2)  # until the node is there again


async def test_each_of_forty_queues_of_a_list_on_ten_nodes_gets_each_message_once(enterprise: Enterprise) -> None:
    await enterprise.start(NODES, QUEUES)
    destination = enterprise.add_list(*(str(queue.full_path) for _, queue in enterprise.queues.values()))
    sender = Sender(enterprise.nodes[0], destination)
    breaking = asyncio.create_task(enterprise.break_all(float(os.environ.get("LIST_SECONDS", "60"))))
    while not breaking.done():
        await sender.send()
        await asyncio.sleep(0.1)
    await breaking
    for _ in range(5):
        await sender.send()
    arrived: dict[str, list[str]] = {name: [] for name in enterprise.queues}

    async def complete() -> bool:
        for name in arrived:
            arrived[name] += await enterprise.received(name)
        return all(set(sender.confirmed) <= set(found) for found in arrived.values())

    began = time.monotonic()
    await holds(complete, SETTLED, "each queue has each message", 1.0)
    await asyncio.sleep(10)  # what comes twice comes late
    assert await complete()
    count = sum(map(len, arrived.values()))
    print(
        f"{enterprise.told()}: {len(sender.confirmed)} of {len(sender.attempted)} transactions confirmed, "
        f"{count} messages in {len(arrived)} queues, settled in {time.monotonic() - began:.0f} s"
    )
    first = next(iter(arrived.values()))
    for name, found in arrived.items():
        assert max(Counter(found).values()) == 1, name
        assert found == first, "all or none, in the order of sending"
    assert enterprise.kills and any(proxy.cuts for proxy in enterprise.proxies)


async def test_an_alias_moves_under_traffic_and_each_message_arrives_once(enterprise: Enterprise) -> None:
    await enterprise.start(3, 3)
    users = enterprise.directory.connection.dialect.contexts.users
    old, new = (queue for _, queue in list(enterprise.queues.values())[1:])
    alias = child(enterprise.named("alias"), users)
    leads = [(f"PUBLIC={guid_to_text(queue.identifier)}".encode(),) for queue in (old, new) if queue.identifier]
    enterprise.directory.connection.add(
        alias, ("top", "msMQ-Custom-Recipient"), {"msMQ-Recipient-FormatName": leads[0]}
    )
    sender = Sender(enterprise.nodes[0], enterprise.add_list(alias))
    began, moved = time.monotonic(), 0.0
    while (now := time.monotonic()) < began + 30:
        await sender.send()
        if not moved and now > began + 10:
            change = Change(ChangeKind.REPLACE, "msMQ-Recipient-FormatName", leads[1])
            await asyncio.to_thread(enterprise.directory.connection.modify, alias, (change,))
            moved = time.monotonic()
    enterprise.faults.calm = True
    names = list(enterprise.queues)[1:]
    arrived: dict[str, list[str]] = {name: [] for name in names}

    async def complete() -> bool:
        for name in names:
            arrived[name] += await enterprise.received(name)
        return set(sender.confirmed) <= {one for found in arrived.values() for one in found}

    await holds(complete, SETTLED, "each message has arrived", 1.0)
    at_old, at_new = arrived.values()
    latest = max((sender.opened[one] - moved for one in at_old), default=0.0)
    print(
        f"{enterprise.told()}: {len(sender.confirmed)} messages, {len(at_old)} at the old queue, {len(at_new)} at "
        f"the new one; the last for the old one was sent {latest:.2f} s after the move"
    )
    assert max(Counter(at_old + at_new).values()) == 1
    assert at_old and at_new and latest < MOVED
