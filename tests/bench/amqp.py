"""The AMQP 1.0 door, durable messages in and out, against a bare server over the same engine, and beside RabbitMQ's
plugin for AMQP 1.0, with the same client. Bodies have 512 to 1,536 bytes, 1 KiB on average.

The clock has the bar. The processor time is that of the server alone: on a busy machine it says more. RabbitMQ writes
what a client accepted to disk later; the bare server and the door do so before they settle.

With ``QMNODE_BASELINE``, another tree of the sources, the doors of both trees serve the same client in turns, and the
processor time of a message has the bar.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.amqp.rabbitmq import queue_address, rabbitmq
from tests.bench import Comparison, bench
from tests.bench._processor import processor_seconds
from tests.bench.amqp_engine import Client
from tests.bench.turns import BAR
from tests.bench.way import BASELINE
from tests.lab.addresses import free_port
from tests.lab.nodes import PROJECT, NodeProcess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

MESSAGES: Final = 4_000
ROUNDS: Final = 5
MOST: Final = 2.0
"""How many times as long as the bare server the door may take."""


WAYS: Final = ("in", "out")
TURNS: Final = 15
"""Of two trees, after one that only warms up."""


@dataclass(slots=True)
class Server:
    """A server, and what a message of each way costs there."""

    name: str
    port: int
    process: int
    """It and its children spend the processor time."""
    address: str
    sasl: bool
    clock: dict[str, list[float]] = field(default_factory=lambda: {way: [] for way in WAYS})
    processor: dict[str, list[float]] = field(default_factory=lambda: {way: [] for way in WAYS})

    def measure(self) -> None:
        """Send and receive, each on a connection of its own; seconds for one message."""
        for way in WAYS:
            client = Client(self.port, self.address, sends=way == "in", sasl=self.sasl)
            before = processor_seconds(self.process)
            try:
                spent = client.send(MESSAGES) if way == "in" else client.receive(MESSAGES)
            finally:
                client.close()
            self.clock[way].append(spent / MESSAGES)
            self.processor[way].append((processor_seconds(self.process) - before) / MESSAGES)

    def against(self, other: Server, bar: float | None = None) -> list[Comparison]:
        """The clock of both, with the bar, and their processor time."""
        median = statistics.median
        lines = []
        for way in WAYS:
            ours, theirs = median(self.clock[way]), median(other.clock[way])
            lines.append(Comparison(way, ours, other.name, theirs, bar))
            ours, theirs = median(self.processor[way]), median(other.processor[way])
            lines.append(Comparison(f"{way}, processor", ours, other.name, theirs))
        return lines


@contextlib.contextmanager
def door(folder: Path, tree: Path | None = None) -> Iterator[Server]:
    """A node with a queue that is open to all; of another tree if one is given."""
    port = free_port()
    node = NodeProcess(folder, tree=tree)
    node.configure(amqp={"enabled": True, "address": "127.0.0.1", "port": port, "anonymous": True})
    node.start()

    try:
        node.command("queue", "create", "bench").check_returncode()
        node.command("queue", "acl", "allow", "bench", "anonymous", "full-control").check_returncode()
        yield Server("door", port, node.process.pid, "bench", sasl=True)
    finally:
        node.stop()


@contextlib.contextmanager
def bare(folder: Path) -> Iterator[Server]:
    """The bare server."""
    command = [sys.executable, "-m", "tests.bench.amqp_engine", str(folder)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield Server("bare server", int(server.stdout.readline()), server.pid, "bench", sasl=False)
    finally:
        server.kill()
        server.wait()


@contextlib.asynccontextmanager
async def neighbour(folder: Path) -> AsyncIterator[Server]:
    """RabbitMQ with a durable queue."""
    folder.mkdir()
    async with rabbitmq(folder, "bench") as broker:
        yield Server("RabbitMQ", broker.port, broker.pid, queue_address("bench"), sasl=True)


async def _measure(folder: Path) -> list[Comparison]:
    with door(folder / "node") as ours:
        async with neighbour(folder / "rabbitmq") as other:
            plain: Server | None = None
            for turn in range(ROUNDS):
                with bare(folder / f"bare{turn}") as fresh:
                    if plain is not None:  # its figures, with this process
                        fresh.clock, fresh.processor = plain.clock, plain.processor
                    plain = fresh
                    for server in (ours, plain, other):
                        await asyncio.to_thread(server.measure)
    assert plain is not None
    return ours.against(plain, MOST) + ours.against(other)


def _against(folder: Path, baseline: Path) -> list[Comparison]:
    """The processor time of this tree's door in that of the other's, each ratio the median of the turns."""
    with door(folder / "here", PROJECT) as ours, door(folder / "there", baseline) as theirs:
        for turn in range(TURNS + 1):
            for server in (ours, theirs) if turn % 2 else (theirs, ours):
                server.measure()
    lines = []
    for way in WAYS:
        here, there = ours.processor[way][1:], theirs.processor[way][1:]
        before = statistics.median(there)
        ratio = statistics.median(mine / other for mine, other in zip(here, there, strict=True))
        lines.append(Comparison(f"{way}, processor", ratio * before, "the other tree", before, BAR))
    return lines


@bench("amqp")
def amqp() -> list[Comparison]:
    """A message sent to the door, and one received from it."""
    with tempfile.TemporaryDirectory() as folder:
        if baseline := os.environ.get(BASELINE):
            return _against(Path(folder), Path(baseline).absolute())
        return asyncio.run(_measure(Path(folder)))
