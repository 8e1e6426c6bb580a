"""``qmnode run`` twice on one machine, and killed: transactional messages come once and in order, whatever breaks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import qmnode
from tests.lab.nodes import NodeProcess
from tests.transport.conftest import PLAIN, TRANSACTIONAL, loopback_address

pytestmark = pytest.mark.servers


class Node(NodeProcess):
    """A node on an address of its own."""

    def __init__(self, folder: Path) -> None:
        self.address = loopback_address()
        super().__init__(
            folder,
            computer_name=folder.name,
            transport={"address": self.address},
            transfer={"retry_interval": 0.1, "retry_maximum": 0.3, "resend_timeouts": (2, 300, 1800, 21600)},
        )

    def direct(self, queue: str) -> str:
        return rf"DIRECT=TCP:{self.address}\{queue[2:]}"


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[tuple[Node, Node]]:
    pair = Node(tmp_path / "ALICE"), Node(tmp_path / "BOB")
    try:
        for node in pair:
            node.launch()
        yield pair
    finally:
        for node in pair:
            node.kill()


async def create_queues(*nodes: Node) -> None:
    for node in nodes:
        await node.ready()
        async with qmnode.connect(node.socket) as qm:
            await qm.create_queue(PLAIN)
            await qm.create_queue(TRANSACTIONAL, transactional=True)


async def send(node: Node, name: str, numbers: range, transactional: bool) -> None:
    """Numbers as messages; what was not confirmed because the node was killed is not sent again."""
    async with qmnode.connect(node.socket) as qm:
        queue = await qm.open_queue(name, qmnode.Access.SEND)
        for number in numbers:
            message = qmnode.Message(b"%d" % number, recoverable=True)
            await queue.send(message, transaction="single" if transactional else None)


async def received(node: Node, queue: str, last: int) -> list[int]:
    """What is in a queue, until the number ``last``."""
    numbers: list[int] = []
    async with qmnode.connect(node.socket) as qm, await qm.open_queue(f"DIRECT=OS:{queue}") as source:
        while not numbers or numbers[-1] != last:
            numbers.append(int((await source.receive(timeout=60)).body))
    return numbers


@pytest.mark.parametrize("direction", [1, -1])
@pytest.mark.parametrize(("queue", "transactional"), [(PLAIN, False), (TRANSACTIONAL, True)])
async def test_messages_go_both_ways(nodes: tuple[Node, Node], direction: int, queue: str, transactional: bool) -> None:
    sender, receiver = nodes[::direction]
    await create_queues(*nodes)
    await send(sender, receiver.direct(queue), range(200), transactional)
    assert await received(receiver, queue, 199) == list(range(200))


@pytest.mark.slow
@pytest.mark.parametrize(
    "victims",
    [pytest.param("receiver", marks=pytest.mark.soak), pytest.param("sender", marks=pytest.mark.soak), "both"],
)
async def test_killed_in_the_middle_transactions_come_once_and_in_order(nodes: tuple[Node, Node], victims: str) -> None:
    sender, receiver = nodes
    await create_queues(*nodes)
    dice = random.Random(victims)  # a seed, so that it is the same in every run
    count = 0
    for _ in range(4):
        await send(sender, receiver.direct(TRANSACTIONAL), range(count, count + 300), True)
        count += 300
        await asyncio.sleep(dice.random() * 0.3)  # anywhere in the transfer: there is nothing to wait for
        for node in nodes:
            if victims == "both" or node is nodes[victims == "receiver"]:
                node.kill()
                node.launch()
        for node in nodes:
            await node.ready()
    assert await received(receiver, TRANSACTIONAL, count - 1) == list(range(count))


@pytest.mark.slow
async def test_recoverable_messages_survive_a_killed_receiver(nodes: tuple[Node, Node]) -> None:
    sender, receiver = nodes
    await create_queues(*nodes)
    await send(sender, receiver.direct(PLAIN), range(500), False)
    receiver.kill()
    await send(sender, receiver.direct(PLAIN), range(500, 1000), False)
    receiver.launch()
    await receiver.ready()
    assert sorted(set(await received(receiver, PLAIN, 999))) == list(range(1000))
