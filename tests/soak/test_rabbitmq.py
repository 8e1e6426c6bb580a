"""From a node through RabbitMQ and back to it, at least once, by bridges of the node and by shovels of RabbitMQ, while
both are killed: nothing is lost, and duplicates are counted.

Each duplicate of a bridge has the message-id of the message that came before. It is explained (docs/bridges.md) if the
bridge from the peer named it, as the peer had delivered it before or it came first after a cut; or if it is one of
the messages that were under way to the peer at a kill. RabbitMQ writes acceptances to disk later: when it is killed,
it delivers again what was accepted shortly before, and says so. The shovel names nothing. Of either there are at most
as many duplicates as were under way at the kills, each way, and as RabbitMQ forgets.

``SOAK_SEED`` chooses the same moments again. The node is not killed during a commit of the sending application, which
would not know its outcome.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter, defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

import qmnode
from qmnode.bodies.choice import read_headers
from qmnode.structures.security_descriptor import ANONYMOUS, EVERYONE, Acl, QueueAccess, SecurityDescriptor, allow
from tests.amqp.rabbitmq import queue_address, rabbitmq, shovel_in, shovel_out
from tests.lab.addresses import free_port
from tests.lab.nodes import NodeProcess

if TYPE_CHECKING:
    from pathlib import Path

    from tests.amqp.foreign import Broker

pytestmark = [pytest.mark.servers, pytest.mark.soak, pytest.mark.timeout(0)]

COUNT, KILLS = 100_000, 20
"""Messages, and kills of each side."""
AT_ONCE = 250
WINDOW = 100
"""Messages under way in each direction."""
FORGOTTEN = 4096
"""Acceptances that RabbitMQ may not have on disk when it is killed: a thousand were seen."""
VICTIMS = ("node", "broker")
STANDSTILL = float(os.environ.get("SOAK_STANDSTILL", "240"))
QUIET = 15.0
"""Seconds without a new message after which no more duplicates are expected."""
FROM, TO = r".\private$\from", r".\private$\to"


class Soak:
    """A node, the broker, and the messages."""

    def __init__(self, node: NodeProcess, broker: Broker, seed: int) -> None:
        self.node, self.broker, self.random = node, broker, random.Random(seed)
        self.killed: Counter[str] = Counter()
        self._sending = asyncio.Lock()

    async def run(self) -> list[qmnode.Message]:
        """Send all and kill; what arrived."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._send())
            group.create_task(self._kill())
        await self._reaches(COUNT)
        last, since = -1, time.monotonic()
        while time.monotonic() - since < QUIET or await self._count(FROM):
            if (count := await self._count(TO)) != last:
                last, since = count, time.monotonic()
            await asyncio.sleep(0.5)
        return await self._arrived()

    async def _send(self) -> None:
        for first in range(0, COUNT, AT_ONCE):
            messages = [qmnode.Message(b"%d" % number) for number in range(first, first + AT_ONCE)]
            async with (
                self._sending,
                await self.node.connect() as manager,
                await manager.open_queue(f"DIRECT=OS:{FROM}", qmnode.Access.SEND) as queue,
                manager.transaction() as transaction,
            ):
                await queue.send_many(messages, transaction=transaction)

    async def _kill(self) -> None:
        for number in range(2 * KILLS):
            await self._reaches(number * COUNT // (2 * KILLS))
            await asyncio.sleep(self.random.uniform(0, 0.5))
            self.killed[VICTIMS[number % 2]] += 1
            if number % 2:
                await self.broker.kill()
                await self.broker.start()
            else:
                async with self._sending:
                    self.node.kill()
                    await asyncio.sleep(self.random.uniform(0, 0.5))
                    await self.node.start_again()

    async def _reaches(self, count: int) -> None:
        last, since = -1, time.monotonic()
        while (done := await self._count(TO)) < count:
            if done != last:
                last, since = done, time.monotonic()
            assert time.monotonic() - since < STANDSTILL, f"{done} of {COUNT} messages arrived: {await self._state()}"
            await asyncio.sleep(0.1)

    async def _state(self) -> str:
        async with await self.node.connect() as manager:
            status = await manager.status()
        left = await self._count(FROM)
        return f"{self.killed}, {left} are left, {status.amqp_connections} connections, {status.amqp_links} links"

    async def _count(self, queue: str) -> int:
        with suppress(OSError, qmnode.MessageQueuingError):
            async with await self.node.connect() as manager:
                return (await manager.queue(queue)).message_count
        return -1

    async def _arrived(self) -> list[qmnode.Message]:
        found: list[qmnode.Message] = []
        async with await self.node.connect() as manager:
            assert (await manager.status()).dead_letter_count == 0
            async with await manager.open_queue(f"DIRECT=OS:{TO}") as queue:
                with suppress(qmnode.MessageQueuingError):
                    while messages := await queue.receive_many(1000, timeout=0):
                        found += messages
        return found


@pytest.mark.parametrize("carrier", ["bridges", "shovels"])
async def test_a_hundred_thousand_messages_with_twenty_kills_of_each_side(
    tmp_path: Path, carrier: str, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("SOAK_SEED") or random.SystemRandom().getrandbits(32))
    with capsys.disabled():  # at once, for a run that does not end
        print(f"\n{carrier}: seed {seed}")
    begun, port = time.monotonic(), free_port()
    url = f"amqp://127.0.0.1:{port}"
    (tmp_path / "broker").mkdir()
    shovels = {"fetches": shovel_in(url, "from", "between"), "brings": shovel_out(url, "between", "to")}
    async with rabbitmq(tmp_path / "broker", "between", shovels=shovels if carrier == "shovels" else {}) as broker:
        node = NodeProcess(tmp_path / "node")
        door = {"enabled": True, "address": "127.0.0.1", "port": port, "anonymous": True}
        node.configure(amqp=door, bridges=bridges_to(broker) if carrier == "bridges" else {})
        await node.start_again()
        try:
            await create_queues(node)
            soak = Soak(node, broker, seed)
            found = await soak.run()
        finally:
            node.kill()
    copies: dict[int, list[bool]] = defaultdict(list)
    identifiers: dict[int, set[str]] = defaultdict(set)
    for message in found:
        headers = read_headers(message.extension).values
        copies[int(message.body)].append("qmnode-redelivered" in headers)
        identifiers[int(message.body)].add(headers.get("AMQP.message-id", ""))
    more = len(found) - len(copies)
    unnamed = sum(max(0, one.count(False) - 1) for one in copies.values())
    told = (
        f"{carrier}: {COUNT} messages, {dict(soak.killed)} killed, {COUNT - len(copies)} lost, {more} duplicates, "
        f"{unnamed} of them not named, {time.monotonic() - begun:.0f} s, seed {seed}"
    )
    print(f"\n{told}")
    assert soak.killed == dict.fromkeys(VICTIMS, KILLS), told
    assert sorted(copies) == list(range(COUNT)), told
    assert more <= 2 * WINDOW * (2 * KILLS + 1) + FORGOTTEN * KILLS, told
    if carrier == "bridges":
        assert all(len(one) == 1 and "" not in one for one in identifiers.values()), told
        assert unnamed <= WINDOW * (2 * KILLS + 1), told


def bridges_to(broker: Broker) -> dict[str, dict[str, Any]]:
    """A bridge each way."""
    peer = {
        "peer": broker.url, "address": queue_address("between"), "window": WINDOW, "retry": 0.2, "longest_retry": 1,
    }  # fmt: skip
    return {"out": {"direction": "out", "queue": "from", **peer}, "back": {"direction": "in", "queue": "to", **peer}}


async def create_queues(node: NodeProcess) -> None:
    """Both, transactional and open to all."""
    everybody = [allow(who, QueueAccess.MQSEC_QUEUE_GENERIC_ALL) for who in (EVERYONE, ANONYMOUS)]
    security = SecurityDescriptor(owner=EVERYONE, group=EVERYONE, dacl=Acl.of(*everybody)).write()
    async with await node.connect() as manager:
        for name in (FROM, TO):
            await manager.create_queue(name, transactional=True, security=security)
