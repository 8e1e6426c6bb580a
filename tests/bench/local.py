"""Sending and receiving through ``qmnode.connect()`` from this process to a node in another, against an embedded one.

Both do the same in turns in one run, each on a store of its own.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import qmnode
from qmnode import Access, QueueManager
from qmnode.local.server import LocalServer
from qmnode.settings.node import LocalSettings
from tests.bench import Comparison, bench
from tests.bench.node import NAME, ROUNDS, SETTINGS, Measured, Node, in_directory, outstanding

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from multiprocessing.synchronize import Event
    from pathlib import Path

    from qmnode.model.api import QueueManagerApi

CASES: Final = (
    # what, calls at a time, calls, messages of a call
    ("send, 64 outstanding", "send", 64, 6400, 1),
    ("send, 1,024 outstanding", "send", 1024, 10240, 1),
    ("send, batches of 100", "send_hundred", 1, 100, 100),
    ("receive, 64 outstanding", "receive", 64, 6400, 1),
    ("receive, 1,024 outstanding", "receive", 1024, 10240, 1),
    ("receive, batches of 100", "receive_hundred", 1, 100, 100),
)
EMBEDDED_BARS: Final = {"send, 64 outstanding": 2.0, "send, batches of 100": 2.4}
BARS: Final = {
    # Half of what the embedded queue manager must reach.
    "send, 64 outstanding": 15_000,
    "send, 1,024 outstanding": 22_500,
    "send, batches of 100": 22_500,
    "receive, 64 outstanding": 15_000,
    "receive, 1,024 outstanding": 15_000,
    "receive, batches of 100": 15_000,
}


def serve(directory: Path, ready: Event, over: Event) -> None:
    """The other process: a node, until the bench is over."""

    async def run() -> None:
        async with QueueManager.open(directory / "service", settings=SETTINGS) as manager:
            server = LocalServer(manager, LocalSettings(socket=directory / "node.sock"))
            await server.start()
            ready.set()
            await asyncio.to_thread(over.wait)
            await server.stop()

    asyncio.run(run())


@asynccontextmanager
async def service(directory: Path) -> AsyncIterator[QueueManagerApi]:
    """A connection to a node in another process."""
    context = multiprocessing.get_context("spawn")
    ready, over = context.Event(), context.Event()
    process = context.Process(target=serve, args=(directory, ready, over))
    process.start()
    try:
        if not await asyncio.to_thread(ready.wait, 60):
            raise RuntimeError("the node of the bench did not start")
        async with qmnode.connect(directory / "node.sock") as manager:
            yield manager
    finally:
        over.set()
        await asyncio.to_thread(process.join)


async def opened(manager: QueueManagerApi) -> Node:
    """A queue, open both ways."""
    await manager.create_queue(r".\private$\bench")
    return Node(await manager.open_queue(NAME, Access.SEND), await manager.open_queue(NAME))


async def measure(directory: Path) -> Measured:
    """All cases in turns: through the socket, and the same embedded as the baseline."""
    measured = Measured()
    async with service(directory) as remote, QueueManager.open(directory / "node", settings=SETTINGS) as embedded:
        there, here = await opened(remote), await opened(embedded)
        for _ in range(ROUNDS):
            for name, call, window, calls, per_call in CASES:
                baseline, _ = await outstanding(getattr(here, call), window, calls)
                times = await outstanding(getattr(there, call), window, calls)
                measured.add(name, times, per_call, baseline / per_call)
    return measured


@bench("local")
def local() -> list[Comparison]:
    """Rates through the socket with their bars, against the embedded queue manager and against what must be reached."""
    measured = in_directory(lambda directory: asyncio.run(measure(directory)))
    lines = []
    for name, *_ in CASES:
        seconds, processor, embedded = measured[name]
        lines.append(Comparison(name, seconds, "embedded", embedded, EMBEDDED_BARS.get(name)))
        lines.append(Comparison(name, seconds, f"{BARS[name]:,} a second", 1 / BARS[name], 1.0))
        lines.append(Comparison(f"{name}: processor of the application", processor, "embedded", embedded))
    return lines
