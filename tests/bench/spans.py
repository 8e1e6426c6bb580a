"""The processor time of a message at a node that exports the spans of one message in a hundred, against none.

Both nodes are in this process and take turns; the collector is in another one. What the threads of the exporter do for
a turn is in its time.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import tempfile
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Final

from qmnode import QueueManager
from qmnode.settings.node import TelemetrySettings
from tests.bench import Comparison, bench
from tests.bench.local import opened
from tests.bench.node import SETTINGS, outstanding

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

ROUNDS: Final = 15
CALLS: Final = 6400
BAR: Final = 1.02


def collect(ends: Connection) -> None:
    """The other process: a collector, until the bench is over."""
    from tests.export.collector import collector

    with collector() as found:
        ends.send(found.url)
        ends.recv()
        ends.send(len(found.spans))


@contextmanager
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
    async with AsyncExitStack() as stack:
        managers = [
            await stack.enter_async_context(QueueManager.open(directory / str(number), settings=one))
            for number, one in enumerate(kinds)
        ]
        nodes = [(await opened(one), one.telemetry) for one in managers]
        for turn in range(ROUNDS + 1):
            for place in (0, 1) if turn % 2 else (1, 0):
                node, exporter = nodes[place]
                began = process_time()
                await outstanding(node.send, 64, CALLS)
                await outstanding(node.receive, 64, CALLS)
                if exporter is not None:
                    await asyncio.to_thread(exporter._spans.force_flush)
                if turn:
                    taken[place].append((process_time() - began) / CALLS)
    return taken


@bench("spans")
def spans() -> list[Comparison]:
    """What one message in a hundred with spans costs all of them."""
    with collecting() as (endpoint, ends), tempfile.TemporaryDirectory() as directory:
        without, with_spans = asyncio.run(measure(Path(directory), endpoint))
        ends.send(None)
        print(f"{ends.recv():,} spans exported")
    ratios = [one / other for one, other in zip(with_spans, without, strict=True)]
    base = statistics.median(without)
    return [Comparison("send and receive, sampling 1 %", base * statistics.median(ratios), "no spans", base, BAR)]
