"""``qmnode run`` twice on one machine, and killed: transactional messages come once and in order, whatever breaks."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import qmnode
from tests.forwarding.enterprise import START
from tests.transport.conftest import PLAIN, TRANSACTIONAL, loopback_address

pytestmark = pytest.mark.servers

PROJECT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-c", "from qmnode.cli import main; main()", "run", "--config"]


class Node:
    """A node in a process of its own, on an address of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = loopback_address()
        self.process: subprocess.Popen[str] | None = None
        folder.mkdir()
        settings = {
            "computer_name": folder.name,
            "data": str(folder / "store"),
            "local": {"socket": str(self.socket)},
            "management": {"socket": str(folder / "management.sock")},
            "transport": {"address": self.address},
            "transfer": {"retry_interval": 0.1, "retry_maximum": 0.3, "resend_short": 2},
        }
        (folder / "node.yaml").write_text(json.dumps(settings))

    @property
    def socket(self) -> Path:
        return self.folder / "node.sock"

    def start(self) -> None:
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(
                [*COMMAND, str(self.folder / "node.yaml")],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "PYTHONPATH": str(PROJECT)},
            )

    async def ready(self) -> None:
        """Until applications are served."""
        async with asyncio.timeout(START):
            while True:
                try:
                    async with qmnode.connect(self.socket):
                        return
                except (OSError, qmnode.MessageQueuingError):
                    assert self.process is not None
                    assert self.process.poll() is None, (self.folder / "log").read_text()
                    await asyncio.sleep(0.05)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def direct(self, queue: str) -> str:
        return rf"DIRECT=TCP:{self.address}\{queue[2:]}"


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[tuple[Node, Node]]:
    pair = Node(tmp_path / "ALICE"), Node(tmp_path / "BOB")
    try:
        for node in pair:
            node.start()
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
@pytest.mark.parametrize("victims", ["receiver", "sender", "both"])
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
                node.start()
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
    receiver.start()
    await receiver.ready()
    assert sorted(set(await received(receiver, PLAIN, 999))) == list(range(1000))
