"""Both sides are killed at random: what was acknowledged never comes back, what was not ended stays in its place."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

import qmnode
from qmnode import Access, Message, MessageQueuingError
from tests.lab.waiting import wait_until
from tests.rpc.test_command import PROJECT, Served

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.servers, pytest.mark.slow]
MESSAGES = 3_000
KILLS = 8
PATH = r".\private$\orders"


async def fill(served: Served) -> None:
    async with qmnode.connect(served.socket) as manager:
        await manager.create_queue(PATH)
        queue = await manager.open_queue(f"DIRECT=OS:{PATH}", Access.SEND)
        for start in range(0, MESSAGES, 500):
            await queue.send_many([Message(b"%d" % number, recoverable=True) for number in range(start, start + 500)])


async def left(served: Served) -> list[int]:
    """What is in the queue, in order."""
    async with qmnode.connect(served.socket) as manager:
        queue = await manager.open_queue(f"DIRECT=OS:{PATH}")
        found = []
        try:
            while True:
                found += [int(message.body) for message in await queue.receive_many(500, timeout=0)]
        except MessageQueuingError:
            return found


def lines(ledger: Path) -> list[tuple[str, int]]:
    """The whole lines of a ledger: a killed reader may have left half of one."""
    text = ledger.read_text() if ledger.exists() else ""
    return [(line[0], int(line[2:])) for line in text[: text.rfind("\n") + 1].splitlines()]


@pytest.mark.parametrize("seed", [1])
def test_nothing_is_lost_and_nothing_acknowledged_comes_back(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    served = Served(tmp_path)
    readers: list[subprocess.Popen[bytes]] = []
    ledgers: list[Path] = []

    def start_reader() -> None:
        ledgers.append(tmp_path / f"ledger-{len(ledgers)}")
        command = [sys.executable, "-m", "tests.rpc.crash_reader", served.address, str(served.mapper)]
        readers.append(subprocess.Popen([*command, str(ledgers[-1]), str(len(ledgers))], cwd=PROJECT))

    def written() -> int:
        return sum(len(lines(ledger)) for ledger in ledgers)

    try:
        asyncio.run(fill(served))
        start_reader()
        for _ in range(KILLS):
            before = written()
            wait_until(lambda before=before: written() > before + 5, 60, "messages are received")
            time.sleep(chance.random() * 0.1)
            victim = chance.choice(["server", "client", "client", "both"])
            if victim != "server":
                readers[-1].kill()
                readers[-1].wait()
            if victim != "client":
                served.process.kill()
                served.process.wait()
                served.start()
            if victim != "server":
                start_reader()
        readers[-1].kill()
        readers[-1].wait()
        served.process.kill()
        served.process.wait()
        served.start()
        remaining = asyncio.run(left(served))
    finally:
        for process in (*readers, served.process):
            process.kill()
            process.wait()

    events = [event for ledger in ledgers for event in lines(ledger)]
    acknowledged = [number for what, number in events if what == "A"]
    attempted = {number for what, number in events if what == "E"}
    assert len(acknowledged) == len(set(acknowledged)), "an acknowledged message came back"
    assert not set(acknowledged) & set(remaining), "an acknowledged message is in the queue"
    seen_after: set[int] = set()
    for what, number in events:
        assert not (what == "G" and number in seen_after), "an acknowledged message was received once more"
        if what == "A":
            seen_after.add(number)
    assert remaining == sorted(remaining), "a message is not in its place"
    assert set(range(MESSAGES)) - set(remaining) <= attempted, "a message that nobody acknowledged is gone"
    assert acknowledged, "nothing was received"
