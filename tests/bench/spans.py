"""The processor time of a message where nodes export the spans of one message in a hundred, against none.

Of real traffic, it is that of all parties: two nodes, an application that sends and one that receives (``way.py``).
Both nodes export at the end of each round what they would export every five seconds, so that every round has its share.

The cheapest message that there is, sent to and received from a queue of the process itself, shows best what spans add;
both nodes of that are in this process. The collector is in another one, and what the exporters do is in the time.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import multiprocessing
import statistics
import tempfile
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Final

from qmnode import QueueManager
from qmnode.settings.node import TelemetrySettings
from tests.bench import Comparison, bench
from tests.bench.local import opened
from tests.bench.node import SETTINGS, outstanding
from tests.bench.transport import folder
from tests.bench.way import MIXED, Way, compared

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

ROUNDS: Final = 7
CALLS: Final = 32_000
"""Turns of about a second."""
WAY_COUNT: Final = 800
WAY_PARTS: Final = 24
"""Of a tenth of a second each: a slow moment of the machine is slow for both. A round has some seconds of them."""
WAY_ROUNDS: Final = 5
BAR: Final = 1.02


def collect(ends: Connection) -> None:
    """The other process: a collector, until the bench is over."""
    from tests.export.collector import collector

    with collector() as found:
        ends.send(found.url)
        ends.recv()
        ends.send(len(found.spans))


@contextlib.contextmanager
def collecting() -> Iterator[tuple[str, Connection]]:
    """The address of a collector in another process."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=collect, args=(there,))
    process.start()
    yield here.recv(), here
    process.join()


async def measure(directory: Path, endpoint: str) -> tuple[list[float], list[float]]:
    """Processor seconds of a message that is sent and received, in each turn: without spans, and with them."""
    telemetry = TelemetrySettings(endpoint=endpoint, sampling=0.01, metrics_seconds=0)
    kinds = (SETTINGS, SETTINGS.model_copy(update={"telemetry": telemetry}))
    taken: tuple[list[float], list[float]] = ([], [])
    async with contextlib.AsyncExitStack() as stack:
        managers = [
            await stack.enter_async_context(QueueManager.open(directory / str(number), settings=one))
            for number, one in enumerate(kinds)
        ]
        nodes = [(await opened(one), one.telemetry) for one in managers]
        gc.collect()
        gc.freeze()  # as a node does that is ready
        stack.callback(gc.unfreeze)
        for turn in range(ROUNDS + 1):
            for place in (0, 1) if turn % 2 else (1, 0):
                node, exporter = nodes[place]
                began = process_time()
                await outstanding(node.send, 64, CALLS)
                await outstanding(node.receive, 64, CALLS)
                if exporter is not None:
                    await exporter.send_spans()
                if turn:
                    taken[place].append((process_time() - began) / CALLS)
    return taken


def traffic(endpoint: str) -> list[Comparison]:
    """What spans cost all parties of messages that go from one node to another."""

    def run(one: Way) -> None:
        for how, kind in MIXED:
            one.run(how, kind, WAY_COUNT)

    with folder() as place, contextlib.ExitStack() as stack:
        tree = Path(__file__).parents[2]
        both = [Way(tree, place / name, stack, collector=one) for name, one in (("with", endpoint), ("without", ""))]
        return compared(
            "between nodes, sampling 1 %", both, run, WAY_COUNT * len(MIXED), WAY_ROUNDS, "no spans", BAR,
            parts=WAY_PARTS, end=Way.export,
        )  # fmt: skip


@bench("spans")
def spans() -> list[Comparison]:
    """What one message in a hundred with spans costs all of them."""
    with collecting() as (endpoint, ends), tempfile.TemporaryDirectory() as directory:
        lines = traffic(endpoint)
        without, with_spans = asyncio.run(measure(Path(directory), endpoint))
        ends.send(None)
        print(f"{ends.recv():,} spans exported")
    ratio = statistics.median(one / other for one, other in zip(with_spans, without, strict=True))
    base = statistics.median(without)
    return [*lines, Comparison("within a process, sampling 1 %", base * ratio, "no spans", base)]
