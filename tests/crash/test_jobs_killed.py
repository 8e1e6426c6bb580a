"""Jobs of a node that is killed on their way: no message is lost, none doubles, the order is kept.

``JOBS_SEED`` kills at the same places again.
"""

import asyncio
import os
import random
from pathlib import Path

import pytest

import qmnode
from qmnode.local.remote import RemoteQueueManager
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
                    await asyncio.sleep(0)
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
