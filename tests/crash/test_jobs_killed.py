"""Jobs of nodes that are killed on their way, within a node and to another: no message is lost, none doubles, the order
is kept.

``JOBS_SEED`` kills at the same places again.
"""

import asyncio
import os
import random
from pathlib import Path

import pytest

import qmnode
from qmnode.local.remote import RemoteQueueManager
from tests.lab.addresses import free_alias
from tests.lab.nodes import NodeProcess

pytestmark = [pytest.mark.servers]
ORDERS, LATER = r".\private$\orders", r".\private$\later"
_AT_ONCE = 1000


async def send(qm: RemoteQueueManager, count: int) -> None:
    async with await qm.open_queue(f"DIRECT=OS:{ORDERS}", qmnode.Access.SEND) as queue:
        for first in range(0, count, _AT_ONCE):
            numbers = range(first, min(first + _AT_ONCE, count))
            await queue.send_many([qmnode.Message(b"%d" % number, recoverable=True) for number in numbers], "single")


async def receive_all(qm: RemoteQueueManager, name: str) -> list[int]:
    found: list[int] = []
    async with await qm.open_queue(f"DIRECT=OS:{name}") as queue:
        while True:
            try:
                found += [int(message.body) for message in await queue.receive_many(_AT_ONCE, 0)]
            except qmnode.MessageQueuingError:
                return found


async def watched(node: NodeProcess, number: int, places: list[int]) -> dict[str, object]:
    """Watch a job to its end, and kill the node whenever it has passed one of the places."""
    killed_at = iter([*places, None])
    place = next(killed_at)
    while True:
        try:
            async with await node.connect() as qm:
                while True:
                    job = await qm.operations.job(number)
                    if job["state"] != "running":
                        return job
                    if place is not None and job["done"] >= place:
                        break
                    await asyncio.sleep(0.01)  # a look without a rest is traffic, which jobs give way to
        except qmnode.MessageQueuingError:
            pass
        node.kill()
        place = next(killed_at)
        await node.start_again()


async def moved_with_kills(folder: Path, count: int, kills: int) -> None:
    seed = int(os.environ.get("JOBS_SEED") or random.SystemRandom().getrandbits(32))
    print(f"JOBS_SEED={seed}")
    chance = random.Random(seed)
    node = NodeProcess(folder)
    node.start()
    try:
        async with await node.connect() as qm:
            await qm.create_queue(ORDERS, transactional=True)
            await qm.create_queue(LATER, transactional=True)
            await send(qm, count)
            job = await qm.operations.start_job("move", ["orders"], target="later")
        places = sorted(chance.sample(range(count * 9 // 10), kills))
        ended = await watched(node, job["job"], places)
        assert (ended["state"], ended["done"], ended["failed"]) == ("done", count, 0)
        async with await node.connect() as qm:
            log = [entry["lookup"] async for entry in qm.operations.job_log(job["job"])]
            assert len(log) == len(set(log)) == count
            undo = await qm.operations.control_job(job["job"], "undo")
        undone = await watched(node, undo["job"], [count // 3])
        assert (undone["done"], undone["failed"]) == (count, 0)
        async with await node.connect() as qm:
            assert await receive_all(qm, LATER) == []
            assert await receive_all(qm, ORDERS) == [*range(count)]
    finally:
        node.stop()


async def test_a_job_survives_kills(tmp_path: Path) -> None:
    await moved_with_kills(tmp_path / "node", 2_000, 1)


@pytest.mark.soak
@pytest.mark.slow
async def test_a_hundred_thousand_messages_survive_thirty_kills(tmp_path: Path) -> None:
    await moved_with_kills(tmp_path / "node", 100_000, 30)


HURRIED = {"retry_interval": 0.1, "retry_maximum": 0.3, "resend_timeouts": (1, 2, 1800, 21600)}
"""Instead of seconds and minutes between two tries to connect."""


async def number_in(node: NodeProcess, name: str) -> int:
    async with await node.connect() as qm:
        return (await qm.queue(name)).message_count


async def moved_between_two_with_kills(folder: Path, count: int, kills: int) -> None:
    """Move to another node: kills of the first while the job runs, and of either while messages are on their way."""
    seed = int(os.environ.get("JOBS_SEED") or random.SystemRandom().getrandbits(32))
    print(f"JOBS_SEED={seed}")
    chance = random.Random(seed)
    nodes = []
    for name in ("ALPHA", "BETA"):
        address = free_alias((1801, 3527))
        nodes.append(NodeProcess(folder / name, computer_name=name, transport={"address": address}, transfer=HURRIED))
        nodes[-1].start()
    source, target = nodes
    try:
        async with await source.connect() as qm:
            await qm.create_queue(ORDERS, transactional=True)
            await send(qm, count)
        async with await target.connect() as qm:
            await qm.create_queue(LATER, transactional=True)
        async with await source.connect() as qm:
            job = await qm.operations.start_job("move", ["orders"], target=rf"DIRECT=TCP:{address}\private$\later")
        working = sorted(chance.sample(range(count * 9 // 10), kills // 3))
        delivering = sorted(chance.sample(range(count * 9 // 10), kills - kills // 3))
        killed = 0
        async with asyncio.timeout(3000):
            while True:
                async with await source.connect() as qm:
                    now = await qm.operations.job(job["job"])
                delivered = await number_in(target, LATER)
                if working and now["done"] >= working[0]:
                    victim = source
                    working.pop(0)
                elif delivering and delivered >= delivering[0]:
                    victim = chance.choice(nodes)
                    delivering.pop(0)
                elif now["state"] != "running" and delivered >= count:
                    break
                else:
                    await asyncio.sleep(0.002)
                    continue
                victim.kill()
                killed += 1
                await victim.start_again()
        assert (now["state"], now["done"], now["failed"], killed) == ("done", count, 0, kills)
        assert await number_in(source, ORDERS) == 0
        async with await target.connect() as qm:
            assert await receive_all(qm, LATER) == [*range(count)]
    finally:
        for node in nodes:
            node.stop()


async def test_a_job_to_another_node_survives_kills_of_both(tmp_path: Path) -> None:
    await moved_between_two_with_kills(tmp_path, 1_000, 3)


@pytest.mark.soak
@pytest.mark.slow
async def test_twenty_thousand_messages_to_another_node_survive_thirty_kills(tmp_path: Path) -> None:
    await moved_between_two_with_kills(tmp_path, 20_000, 30)


async def test_a_job_that_was_cancelled_leaves_the_rest_and_undo_brings_all_back(tmp_path: Path) -> None:
    count, node = 10_000, NodeProcess(tmp_path / "node")
    node.start()
    try:
        async with await node.connect() as qm:
            await qm.create_queue(ORDERS, transactional=True)
            await qm.create_queue(LATER, transactional=True)
            await send(qm, count)
            job = await qm.operations.start_job("move", ["orders"], target="later")
            while (await qm.operations.job(job["job"]))["done"] < 500:
                await asyncio.sleep(0)
            cancelled = await qm.operations.control_job(job["job"], "cancel")
            moved, left = await number_in(node, LATER), await number_in(node, ORDERS)
        node.kill()
        await node.start_again()
        async with await node.connect() as qm:
            after = await qm.operations.job(job["job"])
            undo = await qm.operations.control_job(job["job"], "undo")
        undone = await watched(node, undo["job"], [])
        async with await node.connect() as qm:
            brought_back = await receive_all(qm, ORDERS)
            nothing = await receive_all(qm, LATER)
    finally:
        node.stop()

    assert (cancelled["state"], after["state"], after["done"]) == ("cancelled", "cancelled", moved)
    assert 500 <= moved < count and moved + left == count
    assert (undone["done"], undone["failed"]) == (moved, 0)
    assert brought_back == [*range(count)] and nothing == []
