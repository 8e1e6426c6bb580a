"""Rotation loses nothing: two ``qmnode run`` exchange encrypted messages while keys rotate, ten times in the soak."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

import qmnode
from mqenterprise.keys.life_cycle import Waiting
from mqenterprise.keys.rotation import Rotation
from mqenterprise.keys.settings import KeySettings
from qmnode import Access, Message, MessageQueuingError
from qmnode.security.key_stores import KeyPurpose, KeyState
from qmnode.settings.security import SecuritySettings
from qmnode.structures.enumerations import PrivacyLevel
from tests.keys.processes import QUEUE, NodeProcess, ReplicatedDirectory

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.timeout(300)]

LAG = 0.6
"""Seconds between two replications."""
LIMIT = 90.0
NODES = SecuritySettings(
    public_key_lifetime=200,
    symmetric_key_short_lifetime=200,
    clock_skew=0,
    superseded_key_grace=5,
    key_reload_interval=0.2,
)
WAITING = Waiting(
    KeySettings(
        security=NODES,
        modulus_length=1024,
        reload_interval=1.0,
        replication_delay=1.5,
        offline_cache_age=0,
        longest_time_to_reach_queue=1.0,
        destroy_after=0,
        maximum_age=10_000,
    ),
    1.0,
)
MARK = b"nobody on the way may read this "
PAUSE = 0.02
ENOUGH = 100
"""Messages that each side sends at least."""


class Exchange:
    """Encrypted messages from one node to another without pause, and what came of them."""

    def __init__(self, source: NodeProcess, target: NodeProcess, name: str) -> None:
        self.source, self.target, self.name = source, target, name
        self.sent = 0
        self.received: list[int] = []
        self.going = True
        self.is_over = False

    async def send(self) -> None:
        async with qmnode.connect(self.source.socket) as qm, await qm.open_queue(self.name, Access.SEND) as queue:
            while self.going or self.sent <= ENOUGH:  # a slow disk takes few while keys rotate
                body = MARK + b"%d" % self.sent
                await queue.send(Message(body, recoverable=True, privacy_level=PrivacyLevel.ADVANCED))
                self.sent += 1
                await asyncio.sleep(PAUSE)

    async def receive(self) -> None:
        async with qmnode.connect(self.target.socket) as qm, await qm.open_queue(f"DIRECT=OS:{QUEUE}") as queue:
            while not self.is_over:
                with suppress(MessageQueuingError):  # nothing came for a while
                    message = await queue.receive(timeout=0.5)
                    assert message.body.startswith(MARK)
                    self.received.append(int(message.body.removeprefix(MARK)))

    async def arrived_so_far(self) -> None:
        """Until everything that was sent before this moment has arrived."""
        wanted = self.sent
        async with asyncio.timeout(LIMIT):
            while len(self.received) < wanted:
                await asyncio.sleep(0.02)


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[ReplicatedDirectory, NodeProcess, NodeProcess]]:
    directory = ReplicatedDirectory(tmp_path)
    security = NODES.model_dump(mode="json", exclude_defaults=True)
    nodes = NodeProcess(tmp_path / "A", directory, **security), NodeProcess(tmp_path / "B", directory, **security)
    for node, peer in zip(nodes, reversed(nodes), strict=True):
        node.proxy.connects_from = peer.proxy.address  # where the directory has the peer
    directory.write({"queue_managers": [node.entry for node in nodes]})
    directory.replicate()
    async with AsyncExitStack() as stack:
        for node in nodes:
            await node.proxy.start()
            stack.push_async_callback(node.proxy.stop)
            stack.callback(node.stop)
            await node.start()
        await directory.take_over()
        yield directory, *nodes


async def replicate(directory: ReplicatedDirectory) -> None:
    while True:
        await asyncio.sleep(LAG)
        directory.replicate()


async def wait_until(moment: float) -> None:
    await asyncio.sleep(max(moment - time.time(), 0.0))


async def rotate(rotation: Rotation) -> None:
    """A new key, published when the node has read it."""
    await rotation.prepare(time.time())
    while (later := await rotation.publish()) is not None:
        await wait_until(later)


async def put_away(rotation: Rotation, exchanges: list[Exchange]) -> None:
    """Retire and destroy all old keys, when they are due and what was encrypted to them has arrived."""
    while True:
        pairs = [pair for pair in (await rotation.look()).pairs if pair.state in (KeyState.PREVIOUS, KeyState.RETIRED)]
        if not pairs:
            return
        for pair in pairs:
            await wait_until(WAITING.destroyed_from(pair) or 0.0)
        # A machine that stands still does not keep to the times above: the condition they stand for is looked at.
        for exchange in exchanges:
            await exchange.arrived_so_far()
        await rotation.retire()


async def secrets_of(node: NodeProcess) -> dict[str, bytes]:
    return {
        pair.fingerprint: pair.private_key.to_der()
        for pair in (await node.store.read()).pairs
        if pair.private_key is not None and pair.purpose is KeyPurpose.ENCRYPTION
    }


@pytest.mark.parametrize("count", [3, pytest.param(10, marks=pytest.mark.soak)])
async def test_rotations_on_both_sides_lose_no_message(
    pair: tuple[ReplicatedDirectory, NodeProcess, NodeProcess], tmp_path: Path, count: int
) -> None:
    directory, *nodes = pair
    one, two = nodes
    names = {node.name: await node.create_queue() for node in nodes}
    exchanges = [Exchange(one, two, names["B"]), Exchange(two, one, names["A"])]
    rotations = [Rotation(node.node, node.store, directory, WAITING) for node in nodes]
    secrets = {node.name: await secrets_of(node) for node in nodes}

    async with asyncio.TaskGroup() as group:
        for exchange in exchanges:
            group.create_task(exchange.receive())
        senders = [group.create_task(exchange.send()) for exchange in exchanges]
        replication = group.create_task(replicate(directory))
        for number in range(count):
            if number == count // 2:
                directory.go_down()
            await asyncio.gather(*map(rotate, rotations))
            for node in nodes:
                secrets[node.name] |= await secrets_of(node)
            if number == count // 2:
                directory.come_back()
                directory.replicate()
            if number % 3 == 2:  # old keys go while others are still in use
                for exchange in exchanges:  # a machine that stands still does not keep to the longest time of a message
                    await exchange.arrived_so_far()
                await asyncio.gather(*(rotation.retire() for rotation in rotations))
        await asyncio.gather(*(put_away(rotation, exchanges) for rotation in rotations))
        for exchange in exchanges:
            exchange.going = False
        await asyncio.gather(*senders)
        for exchange in exchanges:
            await exchange.arrived_so_far()
            exchange.is_over = True
        replication.cancel()

    for exchange in exchanges:
        assert exchange.sent > ENOUGH
        assert sorted(exchange.received) == list(range(exchange.sent)), exchange.target.log
    for node in nodes:
        assert len(secrets[node.name]) == 1 + count
        (current,) = (
            p for p in (await node.store.read()).pairs if p.private_key and p.purpose is KeyPurpose.ENCRYPTION
        )
        assert current.state is KeyState.CURRENT
        destroyed = [der for name, der in secrets[node.name].items() if name != current.fingerprint]
        assert len(destroyed) == count
        assert_no_trace(tmp_path, destroyed)
        assert len(node.proxy.carried) > ENOUGH * 300
        assert MARK not in node.proxy.carried
        for line in ("does not decrypt", "cannot be protected"):
            assert line not in node.log


def assert_no_trace(folder: Path, destroyed: list[bytes]) -> None:
    """No file holds a destroyed key, in any of the forms that one is written in."""
    contents = [file.read_bytes() for file in folder.rglob("*") if file.is_file()]
    for der in destroyed:
        middle = len(der) // 2
        for form in (der[-128:], base64.b64encode(der)[40:200], der[middle : middle + 64].hex().encode()):
            assert not any(form in content for content in contents)
