"""A copy elsewhere, under traffic with kills: ten random moments, each against the ledger."""

from __future__ import annotations

import asyncio
import os
import random
import time
from typing import TYPE_CHECKING, Any

import pytest

import qmnode
from tests.copies.ledger import Ledger, create_queues, hold_against, traffic
from tests.lab.nodes import NodeProcess
from tests.lab.waiting import holds

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = float(os.environ.get("QMNODE_COPY_SECONDS", "180"))
PAUSE = SECONDS / 720
"""Most seconds between two rounds of traffic: an hour has as many rounds as a minute."""
pytestmark = [pytest.mark.soak, pytest.mark.servers, pytest.mark.timeout(2 * SECONDS + 1200)]
MOMENTS = 10
LIVES = 4
"""Processes of the node, one after the other: killed, but for the last one."""


async def covers(qm: Any, moment: float, what: str) -> None:
    async def does() -> bool:
        return bool((await qm.status()).remote_copy["moment"] > moment)

    await holds(does, 60, what)


async def test_what_a_copy_of_any_moment_lacks_is_what_its_list_says(tmp_path: Path) -> None:
    seed = int(os.environ.get("QMNODE_SEED", "0")) or random.SystemRandom().randrange(1 << 31)
    print("QMNODE_SEED", seed)
    chance = random.Random(seed)
    key = tmp_path / "key"
    key.write_text("a passphrase\n")
    key.chmod(0o600)
    copy = {"to": str(tmp_path / "copy"), "key": str(key), "lag": 1, "base": max(5, SECONDS / 8)}
    node = NodeProcess(tmp_path / "node", computer_name="ALPHA", storage={"remote_copy": copy, "write_buffer": 1 << 20})
    ledger = Ledger()
    covered = last = 0.0
    try:
        for life in range(LIVES):
            await asyncio.to_thread(node.start)
            async with qmnode.connect(node.socket) as qm:
                if not life:
                    await create_queues(qm)
                await covers(qm, time.time(), "the copy begins, or goes on")
                covered = covered or time.time()
                end = time.time() + SECONDS / LIVES
                while time.time() < end:
                    seeds = (chance.randrange(1 << 31) for _ in range(3))
                    await asyncio.gather(*(traffic(qm, ledger, one, 5, chance.random() * PAUSE) for one in seeds))
                if life == LIVES - 1:
                    last = time.time()
                    await covers(qm, last, "the copy has all")
            if life < LIVES - 1:
                node.kill()
        assert node.stop() == 0
    finally:
        node.kill()
    print({name: (len(ledger.sent[name]), len(ledger.received[name])) for name in ledger.sent}, len(ledger.never))
    for number in range(MOMENTS):
        at = chance.uniform(covered, time.time() if number == 0 else last)
        data = tmp_path / f"restored{number}"
        counts = await hold_against(ledger, tmp_path / "copy", key, data, at)
        print(f"{at - covered:7.2f} s of {last - covered:.0f}: {counts}")
