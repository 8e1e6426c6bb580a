"""A search over a million messages: how soon it shows something, what it takes of memory and from honest traffic.

``SEARCHED`` is the number of messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final

import pytest

import qmnode
from tests.lab.nodes import NodeProcess

if TYPE_CHECKING:
    from qmnode.local.remote import RemoteQueueManager

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.timed]
ORDERS: Final = r".\private$\orders"
COUNT: Final = int(os.environ.get("SEARCHED", "1000000"))
FIRST_PAGE, FIRST_HIT = 0.3, 1.0
"""Seconds."""
MEMORY: Final = 100_000_000
SHARE: Final = 0.85
"""The part of its rate that traffic keeps at least."""
RISE: Final = 0.020
"""Seconds by which the 99th percentile of latency may rise."""
_AT_ONCE: Final = 1000
_TURNS: Final = 8
_TURN_SECONDS: Final = 4.0
_WORKERS: Final = 8


async def fill(qm: RemoteQueueManager) -> None:
    await qm.create_queue(ORDERS)
    async with await qm.open_queue(f"DIRECT=OS:{ORDERS}", qmnode.Access.SEND) as queue:
        for first in range(0, COUNT, _AT_ONCE):
            numbers = range(first, min(first + _AT_ONCE, COUNT))
            await queue.send_many(
                [
                    qmnode.Message(b'{"Id": %d, "Customer": "customer %d"}' % (n, n % 1000), label=f"order {n}",
                                   recoverable=True)
                    for n in numbers
                ]
            )  # fmt: skip


def kilobytes(node: NodeProcess, name: str) -> int:
    status = Path(f"/proc/{node.process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(f"{name}:"))


async def hits(
    qm: RemoteQueueManager, criteria: dict[str, object], *, first_only: bool = False
) -> tuple[float, float, int]:
    """Seconds until the first hit and until the end, and the number of hits."""
    began, first, found, cursor = perf_counter(), 0.0, 0, ""
    while True:
        page = await qm.operations.find_page(["orders"], criteria, cursor, 100)
        found += len(page.found)
        if page.found and not first:
            first = perf_counter() - began
        cursor = page.next
        if not cursor or (first and first_only):
            return first, perf_counter() - began, found


async def search_for_ever(qm: RemoteQueueManager) -> None:
    while True:
        await hits(qm, {"body": "nothing like this"})


async def traffic(node: NodeProcess, name: str, seconds: float) -> tuple[float, list[float]]:
    """Messages a second, and the latency of each: sent and received one by one by some workers."""
    latencies: list[float] = []
    until = perf_counter() + seconds

    async def worker() -> None:
        async with (
            await node.connect() as qm,
            await qm.open_queue(f"DIRECT=OS:{name}", qmnode.Access.SEND) as into,
            await qm.open_queue(f"DIRECT=OS:{name}") as out,
        ):
            while (began := perf_counter()) < until:
                await into.send(qmnode.Message(b"x" * 200, recoverable=True))
                await out.receive(timeout=30)
                latencies.append(perf_counter() - began)

    await asyncio.gather(*(worker() for _ in range(_WORKERS)))
    return len(latencies) / seconds, latencies


def percentile(latencies: list[float]) -> float:
    return sorted(latencies)[len(latencies) * 99 // 100]


@pytest.mark.soak
async def test_a_search_of_a_million_messages(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "node")
    node.start()
    try:
        async with await node.connect() as qm:
            await fill(qm)
            await qm.create_queue(r".\private$\traffic")
            began = perf_counter()
            page = await qm.operations.find_page(["orders"], limit=100)
            first_page = perf_counter() - began
            before = kilobytes(node, "VmRSS")
            Path(f"/proc/{node.process.pid}/clear_refs").write_text("5")
            by_label, label_ended, labels = await hits(qm, {"label": "order 7*7"})
            by_body, body_ended, bodies = await hits(qm, {"body": '"customer 999"'})
            by_value, _, _ = await hits(qm, {"values": ["Customer=customer 998"]}, first_only=True)
            extra = (kilobytes(node, "VmHWM") - before) * 1024
        alone, searched = [], []
        for turn in range(_TURNS):
            async with await node.connect() as qm:
                search = asyncio.create_task(search_for_ever(qm)) if turn % 2 else None
                (searched if turn % 2 else alone).append(await traffic(node, r".\private$\traffic", _TURN_SECONDS))
                if search is not None:
                    search.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await search
    finally:
        node.stop()
    share = statistics.median(rate for rate, _ in searched) / statistics.median(rate for rate, _ in alone)
    quiet, busy = (statistics.median(percentile(one) for _, one in turns) for turns in (alone, searched))

    print(
        f"\n{COUNT:,} messages: first page {first_page * 1000:.0f} ms; first hit by label {by_label * 1000:.0f} ms, by "
        f"body {by_body * 1000:.0f} ms, by value {by_value * 1000:.0f} ms; all of it in {label_ended:.1f} and "
        f"{body_ended:.1f} s; {extra / 1e6:.0f} MB more; traffic keeps {share:.2f} of "
        f"{statistics.median(rate for rate, _ in alone):.0f}/s; p99 {quiet * 1000:.1f} and {busy * 1000:.1f} ms"
    )
    assert len(page.found) == 100 and labels and bodies == COUNT // 1000
    assert first_page < FIRST_PAGE and max(by_label, by_body, by_value) < FIRST_HIT
    assert extra < MEMORY
    assert share > SHARE and busy - quiet < RISE
