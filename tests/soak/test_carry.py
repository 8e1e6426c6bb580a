"""A carry under traffic, while either side and the carrier are killed and their connections are cut."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import random
import statistics
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import qmnode
from qmnode import Access, Message, MessageQueuingError
from tests.lab.addresses import free_alias
from tests.lab.nodes import PROJECT
from tests.operations.carried import Estate, create, messages_of, send
from tests.soak.proxy import Faults, Proxy

if TYPE_CHECKING:
    from tests.lab.nodes import NodeProcess

KILLS = int(os.environ.get("QMNODE_CARRY_KILLS", "50"))
CUTS = int(os.environ.get("QMNODE_CARRY_CUTS", "200"))
RATE_MESSAGES = int(os.environ.get("QMNODE_CARRY_RATE", "20000"))
SOURCE = r"DIRECT=OS:OLD\private$\orders"


class Traffic:
    """A sender that never stops: it knows which messages the old node has, and of which it cannot know."""

    def __init__(self, node: NodeProcess) -> None:
        self.node = node
        self.sure: list[int] = []
        self.unsure: set[int] = set()
        self.digests: dict[int, str] = {}
        self.ends = asyncio.Event()

    async def run(self) -> None:
        number = 0
        while not self.ends.is_set():
            with contextlib.suppress(OSError, MessageQueuingError):
                async with (
                    qmnode.connect(self.node.socket) as manager,
                    await manager.open_queue(r"DIRECT=OS:.\private$\orders", Access.SEND) as queue,
                ):
                    while not self.ends.is_set():
                        batch = range(number, number + 20)
                        number += 20
                        self.unsure.update(batch)
                        await queue.send_many([Message(b"%d" % one, label=f"order {one}") for one in batch], "single")
                        self.unsure.difference_update(batch)
                        self.sure += batch
                        await asyncio.sleep(0.02)
            await asyncio.sleep(0.05)


async def goes_on(new: NodeProcess, running: subprocess.Popen[bytes]) -> None:
    """Wait until the carrier has carried something more, or has ended."""
    async with qmnode.connect(new.socket) as manager:
        before = (await manager.queue(r".\private$\orders")).message_count
        while (await manager.queue(r".\private$\orders")).message_count == before and running.poll() is None:
            await asyncio.sleep(0.1)


@pytest.mark.soak
@pytest.mark.timed
@pytest.mark.servers
@pytest.mark.timeout(0)
async def test_a_carry_loses_and_doubles_nothing_whatever_is_killed_or_cut(tmp_path: Path) -> None:
    estate, dice = Estate(tmp_path, proxied=True), random.Random(7)
    entrance = free_alias([estate.mapper, estate.port], [estate.old_address, estate.new_address])
    faults = Faults(cut=0.004, delay=0.0, again=0.0)
    proxies = [
        Proxy(entrance, estate.old_address, estate.mapper, 1, Faults(calm=True)),
        Proxy(entrance, estate.old_address, estate.port, 2, faults),
        Proxy("127.0.0.1", estate.new_address, estate.management_port, 3, faults),
    ]
    words = estate.words(
        SOURCE, "--into", "orders", "--sole-reader", "--follow", "2", "--patience", "600", host=entrance
    )
    carriers = 0
    log = (tmp_path / "carrier.log").open("ab")

    def carrier() -> subprocess.Popen[bytes]:
        nonlocal carriers
        carriers += 1
        return subprocess.Popen(words, cwd=PROJECT, stdout=subprocess.DEVNULL, stderr=log)

    await asyncio.to_thread(estate.start)
    traffic = Traffic(estate.old)
    try:
        for node in (estate.old, estate.new):
            await create(node, "orders", transactional=True)
        for proxy in proxies:
            await proxy.start()
        sending = asyncio.ensure_future(traffic.run())
        running = carrier()
        kills = {"old": 0, "new": 0, "carrier": 0}
        while sum(kills.values()) < KILLS or sum(proxy.cuts for proxy in proxies) < CUTS:
            if running.poll() is not None:
                running = carrier()
            faults.cut = 0.004 if sum(kills.values()) < KILLS else 0.03  # alone, cuts may come more often
            await goes_on(estate.new, running)
            await asyncio.sleep(dice.uniform(0.0, 0.5))
            victim = list(kills)[sum(kills.values()) % 3] if sum(kills.values()) < KILLS else ""
            if victim == "carrier":
                running.kill()
                await asyncio.to_thread(running.wait)
            elif victim:
                node = estate.old if victim == "old" else estate.new
                node.kill()
                await asyncio.to_thread(node.start)
            if victim:
                kills[victim] += 1
            print(f"{kills}, cuts {[proxy.cuts for proxy in proxies]}, {len(traffic.sure)} sent", flush=True)
        faults.calm = True
        traffic.ends.set()
        await sending
        while await asyncio.to_thread(running.wait):
            running = carrier()
        ledger = tmp_path / "ledger"
        for _ in range(2):
            last = subprocess.Popen(
                [*words, "--ledger", str(ledger)], cwd=PROJECT, stdout=subprocess.DEVNULL, stderr=log
            )
            assert not await asyncio.to_thread(last.wait)
        found = await messages_of(estate.new, "orders")
        left = await messages_of(estate.old, "orders")
    finally:
        for proxy in proxies:
            await proxy.stop()
        await asyncio.to_thread(estate.stop)
    numbers = [int(message.body) for message in found]
    entries = [json.loads(line) for line in ledger.read_text().splitlines()]
    lost, doubled = set(traffic.sure) - set(numbers), len(numbers) - len(set(numbers))
    print(f"{len(numbers)} carried, {kills}, cuts {[proxy.cuts for proxy in proxies]}, {carriers} carriers, "
          f"{len(lost)} lost, {doubled} doubled, {len(traffic.unsure)} unsure, {len(left)} left")  # fmt: skip
    assert (lost, doubled, left) == (set(), 0, [])
    assert set(numbers) <= set(traffic.sure) | traffic.unsure
    assert numbers == sorted(numbers), "order"
    assert [one["digest"] for one in entries] == [hashlib.sha256(one.packet).hexdigest() for one in found]
    assert {one["state"] for one in entries} == {"carried"}


def processor(node: NodeProcess) -> float:
    """The seconds of the processor that a node has used."""
    fields = Path(f"/proc/{node.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.soak
@pytest.mark.timed
@pytest.mark.servers
@pytest.mark.timeout(0)
async def test_a_carry_has_half_the_rate_of_a_local_move(tmp_path: Path) -> None:
    """In turns, so that both meet the same machine. The start of the tool does not count. On a shared machine look at
    the processor time.
    """
    estate, ratios = Estate(tmp_path), list[float]()
    await asyncio.to_thread(estate.start)
    messages = [Message(b"x" * 100, label=f"order {number}", recoverable=True) for number in range(RATE_MESSAGES)]
    try:
        for turn in range(5):
            source, target = f"a{turn}", rf".\private$\b{turn}"
            for node, name in ((estate.old, source), (estate.new, source), (estate.new, f"b{turn}")):
                await create(node, name, transactional=True)
            await send(estate.old, source, messages)
            before = time.process_time(), processor(estate.old), processor(estate.new)
            carried = await asyncio.to_thread(estate.carry, source)
            used = time.process_time() - before[0], processor(estate.old) - before[1], processor(estate.new) - before[2]
            words = ("message", "move", rf".\private$\{source}", "--to", target, "--all", "--json")
            moved = json.loads((await asyncio.to_thread(estate.new.command, *words, limit=600)).stdout)
            of_move = processor(estate.new) - before[2] - used[2]
            assert carried["messages"] == moved["done"] == RATE_MESSAGES
            ratios.append(moved["seconds"] / carried["seconds"])
            print(f"carried {RATE_MESSAGES / carried['seconds']:.0f}, moved {RATE_MESSAGES / moved['seconds']:.0f} "
                  f"a second: {ratios[-1]:.2f}; seconds of the processor: carrier {used[0]:.2f}, source {used[1]:.2f}, "
                  f"target {used[2]:.2f}, move {of_move:.2f}", flush=True)  # fmt: skip
    finally:
        await asyncio.to_thread(estate.stop)
    assert statistics.median(ratios) >= 0.5
