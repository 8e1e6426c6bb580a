"""Delayed messages of nodes that are killed on their way: none is early, none is lost, none doubles.

``DELAYED_SEED`` kills at the same places again; ``DELAYED`` and ``DELAYED_KILLS`` are the numbers of messages and kills
of the long run, and ``DELAYED_OPENED`` the number of waiting messages of the store that is opened.
"""

import asyncio
import os
import random
import statistics
import time
from pathlib import Path

import pytest

import qmnode
from qmnode.errors import MessageQueuingError
from qmnode.local.remote import RemoteQueueManager
from qmnode.model.positions import LANE_SHIFT
from qmnode.model.stored_message import delay_of, with_delay, without_delay
from tests.lab.nodes import NodeProcess

pytestmark = [pytest.mark.servers]
ORDERS = r"DIRECT=OS:.\private$\orders"
_AT_ONCE = 500


class Sender:
    """Sends numbered messages. A batch whose outcome a kill hides is looked for, as an application would."""

    def __init__(self, node: NodeProcess, chance: random.Random, spread: float) -> None:
        self._node, self._chance, self._spread = node, chance, spread
        self.due: dict[int, float] = {}
        """Delivery times of messages that the node has accepted."""
        self.unknown: dict[int, float] = {}
        """Those of messages in calls that a kill has cut off: each is there once, or not at all."""

    async def send(self, count: int) -> None:
        for first in range(0, count, _AT_ONCE):
            numbers = range(first, min(first + _AT_ONCE, count))
            while not await self._sent(numbers):
                await asyncio.sleep(0.1)
            await asyncio.sleep(self._spread / 2 * len(numbers) / count)

    async def _sent(self, numbers: range) -> bool:
        """Whether the messages are on their way; false while the node is down."""
        begun = False
        try:
            async with await self._node.connect() as qm, await qm.open_queue(ORDERS, qmnode.Access.SEND) as queue:
                # Every other one is due in a whole second, with many others.
                times = {one: time.time() + self._chance.uniform(0, self._spread / 2) for one in numbers}
                times = {one: float(int(at) + 1) if one % 2 else at for one, at in times.items()}
                self.unknown |= times
                begun = True
                await queue.send_many(
                    [
                        qmnode.Message(b"%d %f" % (one, at), recoverable=True, deliver_at=at)
                        for one, at in times.items()
                    ],
                    "single",
                )
        except (OSError, MessageQueuingError):
            return begun
        for one, at in times.items():
            self.due[one] = at
            del self.unknown[one]
        return True


class Receiver:
    """Receives until it is ended. A message comes again, with the same arrival, if a kill has undone its receipt."""

    def __init__(self, node: NodeProcess) -> None:
        self._node = node
        self.found: dict[int, list[tuple[bytes, float, float]]] = {}
        """Identifier, arrival and delivery time of each."""
        self.ended = False

    async def receive(self, qm: RemoteQueueManager) -> None:
        async with await qm.open_queue(ORDERS) as queue:
            while not self.ended:
                async with qm.transaction() as unit:
                    messages = await queue.receive_many(_AT_ONCE, 1.0, unit)
                    for message in messages:
                        number, _, at = message.body.partition(b" ")
                        self.found.setdefault(int(number), []).append(
                            (message.identifier, message.arrival_time, float(at))
                        )

    async def run(self) -> None:
        while not self.ended:
            try:
                async with await self._node.connect() as qm:
                    await self.receive(qm)
            except (OSError, MessageQueuingError):
                await asyncio.sleep(0.05)


async def delivered_with_kills(folder: Path, count: int, kills: int, spread: float) -> list[float]:
    """How late each message was, in seconds."""
    seed = int(os.environ.get("DELAYED_SEED") or random.SystemRandom().getrandbits(32))
    print(f"DELAYED_SEED={seed}")
    chance = random.Random(seed)
    node = NodeProcess(folder)
    node.start()
    try:
        async with await node.connect() as qm:
            await qm.create_queue(r".\private$\orders", transactional=True)
        sender, receiver = Sender(node, chance, spread), Receiver(node)
        receiving = asyncio.create_task(receiver.run())
        sending = asyncio.create_task(sender.send(count))
        for _ in range(kills):
            await asyncio.sleep(chance.uniform(0, spread / kills))
            node.kill()
            await node.start_again()
        await sending
        async with await node.connect() as qm:
            while (await qm.queue(r".\private$\delayed$")).message_count or (
                await qm.queue(r".\private$\orders")
            ).message_count:
                await asyncio.sleep(0.1)
            assert (await qm.status()).dead_letter_count == 0
        receiver.ended = True
        await receiving
    finally:
        node.stop()
    deliveries = {number: set(found) for number, found in receiver.found.items()}
    lost = sender.due.keys() - deliveries.keys()
    doubled = {number: found for number, found in deliveries.items() if len(found) > 1}
    late = [found[0][1] - found[0][2] for found in receiver.found.values()]
    assert len(sender.due) >= count / 2
    assert (lost, doubled) == (set(), {})
    assert deliveries.keys() <= sender.due.keys() | sender.unknown.keys()
    assert min(late) >= -0.000001
    return late


async def test_delayed_messages_survive_kills_and_are_never_early(tmp_path: Path) -> None:
    await delivered_with_kills(tmp_path / "node", 3000, 3, 4.0)


async def fill(store: Path, count: int) -> None:
    """Let so many messages wait in a store, each for a time of its own, as sends would."""
    async with qmnode.QueueManager.open(store) as qm:
        await qm.create_queue(r".\private$\orders")
        delayed, take = qm.context.queues.delayed, qm.context.sequence.next
        async with await qm.open_queue(ORDERS, qmnode.Access.SEND) as queue:
            lookup, value, _ = queue.accept(qmnode.Message(bytes(100), deliver_in=86400), None)
            plain, delay = without_delay(value), delay_of(value)
            for number in range(count):
                lane = lookup >> LANE_SHIFT << LANE_SHIFT
                delayed.arrive(lane | take(), with_delay(plain, delay._replace(due=delay.due + number)))
                if number % 1000 == 999:
                    await qm.store.durable()


@pytest.mark.soak
@pytest.mark.slow
async def test_a_hundred_thousand_delayed_messages_and_thirty_kills(tmp_path: Path) -> None:
    count, kills = int(os.environ.get("DELAYED", "100000")), int(os.environ.get("DELAYED_KILLS", "30"))
    late = await delivered_with_kills(tmp_path / "node", count, kills, 180.0)
    print(f"{len(late)} delivered; late by {statistics.median(late):.3f} s at the median, {max(late):.1f} s at most")


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timed
async def test_a_quiet_node_is_late_by_less_than_a_second(tmp_path: Path) -> None:
    late = await delivered_with_kills(tmp_path / "node", int(os.environ.get("DELAYED", "100000")), 0, 120.0)
    print(f"{len(late)} delivered; late by {statistics.median(late):.3f} s at the median, {max(late):.1f} s at most")
    assert statistics.median(late) < 1
    assert max(late) < 5


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timed
async def test_a_store_with_a_million_waiting_messages_opens_in_ten_seconds(tmp_path: Path) -> None:
    count = int(os.environ.get("DELAYED_OPENED", "1000000"))
    node = NodeProcess(tmp_path / "node")
    await fill(node.folder / "store", count)
    try:
        begun = time.monotonic()
        await node.start_again()
        async with await node.connect() as qm:
            assert (await qm.queue(r".\private$\delayed$")).message_count == count
            took = time.monotonic() - begun
            async with await qm.open_queue(ORDERS, qmnode.Access.SEND) as queue:
                await queue.send(qmnode.Message(b"m", deliver_in=0.5))
            async with await qm.open_queue(ORDERS) as queue:
                assert (await queue.receive(30)).body == b"m"
        resident = next(
            int(line.split()[1]) for line in Path(f"/proc/{node.process.pid}/status").read_text().splitlines()
            if line.startswith("VmRSS:")
        )  # fmt: skip
    finally:
        node.stop()
    print(f"{count} waiting messages: opened in {took:.1f} s, {resident / 1024:.0f} MiB resident")
    assert took < 10
