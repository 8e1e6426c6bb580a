"""What jobs send to another node that has no such queue: it is where the log of the job says."""

from __future__ import annotations

import asyncio

import pytest

from qmnode import Access, Message
from qmnode.administration.asker import Asker
from qmnode.administration.queue_names import DEAD_LETTERS, TRANSACTIONAL_DEAD_LETTERS
from tests.transport.conftest import PLAIN, TRANSACTIONAL, Pair, pair

__all__ = ["pair"]

ASKER = Asker("uid:1000")


@pytest.mark.parametrize(("source", "place"), [(PLAIN, "that machine"), (TRANSACTIONAL, "this node")])
async def test_a_message_to_a_queue_that_does_not_exist_is_in_the_dead_letters_that_the_log_names(
    pair: Pair, source: str, place: str
) -> None:
    async with await pair.alice.open_queue(f"DIRECT=OS:{source}", Access.SEND) as queue:
        await queue.send(Message(b"moved", recoverable=True), "single" if source == TRANSACTIONAL else None)

    target = pair.direct("BOB", r".\private$\mistyped")
    job = await pair.alice.operations.start_job(ASKER, "move", [source], target=target)

    async with asyncio.timeout(60):
        while not (log := await pair.alice.operations.job_log(ASKER, job["job"]))["entries"]:
            await asyncio.sleep(0.01)
    (entry,) = log["entries"]
    assert entry["result"] == "moved" and entry["detail"].endswith(f"look in the dead letters of {place}")
    keeper, grave = (pair.bob, DEAD_LETTERS) if place == "that machine" else (pair.alice, TRANSACTIONAL_DEAD_LETTERS)
    async with await keeper.open_queue(f"DIRECT=OS:{grave}") as dead:
        assert (await dead.receive(timeout=60)).body == b"moved"
