"""The AMQP 1.0 door, durable messages of 1 KiB in and out, against a bare server over the same engine."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.bench import Comparison, bench
from tests.bench.amqp_engine import Client
from tests.bench.rpc import free_port
from tests.lab.nodes import NodeProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

MESSAGES: Final = 4_000
ROUNDS: Final = 5
MOST: Final = 2.0
"""How many times as long as the bare server the door may take."""
QUEUE: Final = r".\private$\bench"


@contextlib.contextmanager
def door(folder: Path) -> Iterator[int]:
    """A node with a queue that is open to all; its port for AMQP."""
    port = free_port()
    node = NodeProcess(folder)
    node.configure(amqp={"enabled": True, "address": "127.0.0.1", "port": port, "anonymous": True})
    node.start()

    async def create() -> None:
        async with await node.connect() as qm:
            await qm.create_queue(QUEUE)

    try:
        asyncio.run(create())
        node.command("queue", "acl", "allow", "bench", "anonymous", "full-control").check_returncode()
        yield port
    finally:
        node.stop()


@contextlib.contextmanager
def bare(folder: Path) -> Iterator[int]:
    """The bare server; its port."""
    command = [sys.executable, "-m", "tests.bench.amqp_engine", str(folder)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield int(server.stdout.readline())
    finally:
        server.kill()
        server.wait()


def seconds(port: int, *, sends: bool, sasl: bool) -> float:
    """For one message, on a connection of its own."""
    client = Client(port, "bench", sends=sends, sasl=sasl)
    try:
        return (client.send(MESSAGES) if sends else client.receive(MESSAGES)) / MESSAGES
    finally:
        client.close()


@bench("amqp")
def amqp() -> list[Comparison]:
    """A message sent to the door, and one received from it."""
    ours: tuple[list[float], list[float]] = ([], [])
    plain: tuple[list[float], list[float]] = ([], [])
    with tempfile.TemporaryDirectory() as folder, door(Path(folder) / "node") as port:
        for turn in range(ROUNDS):
            with bare(Path(folder) / f"bare{turn}") as other:
                for found, where, sasl in ((ours, port, True), (plain, other, False)):
                    for times, sends in zip(found, (True, False), strict=True):
                        times.append(seconds(where, sends=sends, sasl=sasl))
    return [
        Comparison(name, statistics.median(here), "bare server", statistics.median(there), MOST)
        for name, here, there in zip(("in", "out"), ours, plain, strict=True)
    ]
