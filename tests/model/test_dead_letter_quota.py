"""The own quota of a dead-letter queue: beyond it messages are discarded (MS-MQDMPR 3.1.1.12)."""

from __future__ import annotations

from pathlib import Path

from qmnode import Message, QueueManager
from qmnode.model.api import Access
from tests.model.conftest import FakeClock

NAME = r".\private$\short"
LIFE = 10


async def test_a_full_dead_letter_queue_takes_no_more(tmp_path: Path, clock: FakeClock) -> None:
    async with QueueManager.open(tmp_path, clock=clock) as manager:
        await manager.create_queue(NAME)
        manager.queue_collection.dead_letter.quota = 4
        out = await manager.open_queue(f"DIRECT=OS:{NAME}", Access.SEND)
        asked = Message(bytes(1500), negative_journaling_requested=True, time_to_be_received=LIFE)
        await out.send_many([asked] * 5)
        clock.advance(LIFE + 2)
        assert manager.queue_collection.dead_letter.message_count == 2
        assert manager.outcomes.dead_letters_dropped == 3
