"""What a declared peer stores while little room is left is charged to it until it has left the node."""

from __future__ import annotations

from pathlib import Path

import pytest

from qmnode import Message, QueueManager
from qmnode.model import quotas
from qmnode.model.api import Access
from qmnode.shares import declared
from tests.model.conftest import FakeClock

MALLORY, ALICE = declared("MALLORY"), declared("ALICE")
NAME = r".\private$\filled"
LIFE = 10


async def test_what_leaves_is_of_who_came_first_and_a_dead_letter_keeps_its_payer(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas, "_RUNS", 8)
    async with QueueManager.open(tmp_path, clock=clock) as manager:
        await manager.create_queue(NAME)
        queue, shared = manager.names.find(NAME), manager.quotas
        out = await manager.open_queue(f"DIRECT=OS:{NAME}", Access.SEND)

        async def store(*payers: object, **more: object) -> None:
            for payer in payers:
                shared.payer = payer
                await out.send(Message(bytes(1000), **more))
                shared.payer = None

        def held() -> list[int]:
            return [round(shared._account.held(one) / size) for one in (MALLORY, ALICE)]

        await store(None)
        size = shared.used
        assert shared.runs == {}
        await store(MALLORY, None, ALICE, MALLORY)
        assert held() == [2, 1]
        assert shared.limit_for(MALLORY) < shared.limit_for(ALICE) < shared.limit_of(ALICE.kind)
        into = await manager.open_queue(f"DIRECT=OS:{NAME}", Access.RECEIVE)
        expected = [[2, 1], [1, 1], [1, 1], [1, 0], [0, 0]]
        for left in expected:
            await into.receive()
            assert held() == left
        assert shared.runs == {}
        await store(*[MALLORY, ALICE] * 8, negative_journaling_requested=True, time_to_be_received=LIFE)
        assert len(shared.runs[queue]) <= 8
        clock.advance(LIFE + 2)
        assert manager.queue_collection.dead_letter.message_count == 16
        assert queue not in shared.runs
        assert held() == [8, 8]
        await (await manager.open_queue(r"DIRECT=OS:.\SYSTEM$;DEADLETTER")).purge()
        assert held() == [0, 0]
        assert (shared.runs, shared.used) == ({}, 0)
