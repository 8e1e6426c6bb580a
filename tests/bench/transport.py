"""Node to node, two processes on one machine: rates from the first send to the last acknowledgment, and latency.

``python -m tests.bench.transport receive FOLDER ADDRESS`` is the other process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic, perf_counter, process_time
from typing import TYPE_CHECKING, Any, Final

from qmnode import Access, Message, QueueManager, Settings
from tests.bench import Comparison, bench

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from qmnode.model.api import QueueApi

BODY: Final = os.urandom(1024)
TOTAL: Final = 38_400
"""Enough that the last half second, in which the timers wait for more to acknowledge, does not say it all."""
BATCH: Final = 100
SENDERS: Final = 4
"""Tasks of the application that send at the same time, each a batch after the other: they share their syncs."""
ROUNDS: Final = 3
PINGS: Final = 200
PLAIN: Final = r"private$\plain"
TRANSACTIONAL: Final = r"private$\tx"
ECHO: Final = r"private$\echo"
PROCESSOR: Final = 40e-6
"""Seconds of processor for a message on each side: what two cores need for 25,000 a second."""
RATES: Final = {"recoverable": 20_000, "transactional": 15_000, "express": 40_000}
LATENCY: Final = 3e-3


def settings(name: str, address: str) -> Settings:
    return Settings(
        computer_name=name,
        quotas={"queue_manager_quota": 0xFFFFFFFF},  # type: ignore[arg-type]
        transport={"address": address},  # type: ignore[arg-type]
        transfer={"retry_interval": 0.1},  # type: ignore[arg-type]
    )


def loopback_address() -> str:
    dice = random.SystemRandom()
    return f"127.{dice.randrange(1, 255)}.{dice.randrange(1, 255)}.{dice.randrange(2, 255)}"


async def receive(folder: Path, address: str) -> None:
    """The other node: says its processor time for every line that it gets, and when a message of ECHO came."""
    async with QueueManager.open(folder / "receiver", settings("RECEIVER", address)) as qm:
        await qm.create_queue(rf".\{PLAIN}")
        await qm.create_queue(rf".\{ECHO}")
        await qm.create_queue(rf".\{TRANSACTIONAL}", transactional=True)
        await qm.network.start()
        echo = await qm.open_queue(rf"DIRECT=OS:.\{ECHO}")

        async def stamp() -> None:
            while True:
                await echo.receive()
                print(monotonic(), flush=True)

        stamping = asyncio.create_task(stamp())
        await say_processor_time()
        stamping.cancel()


async def say_processor_time() -> None:
    """Say "ready", and then the processor time for every line that comes."""
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    print("ready", flush=True)
    while await lines.readline():
        print(process_time(), flush=True)


class Peer:
    """The other process: a module of the benches that receives."""

    def __init__(self, module: str, folder: Path, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, "receive", str(folder), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        while self.line() != "ready":
            pass

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def processor(self) -> float:
        """Its seconds of processor so far."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self.line())

    def stop(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        finally:
            self._process.kill()


async def send(qm: QueueManager, out: QueueApi, kind: str, count: int) -> None:
    """So many messages, a batch after the other."""
    for _ in range(count // BATCH):
        messages = [Message(BODY, recoverable=kind == "recoverable") for _ in range(BATCH)]
        if kind == "transactional":
            transaction = qm.transaction()
            await out.send_many(messages, transaction=transaction)
            await transaction.commit()
        else:
            await out.send_many(messages)


async def transfer(qm: QueueManager, out: QueueApi, kind: str, name: str) -> None:
    """TOTAL messages from the first send to the last acknowledgment. Of express ones the last few are acknowledged
    after seconds only, so a window less has to be."""
    queue: Any = qm.names.find(name)
    await asyncio.gather(*(send(qm, out, kind, TOTAL // SENDERS) for _ in range(SENDERS)))
    while queue.message_count > (64 if kind == "express" else 0):
        await asyncio.sleep(0.001)


async def latency(out: QueueApi, peer: Peer) -> float:
    """Median seconds from the call of send to the message's being received on the other node."""
    times = []
    for _ in range(PINGS):
        start = monotonic()
        await out.send(Message(BODY, recoverable=True))
        times.append(float(await asyncio.to_thread(peer.line)) - start)
    return statistics.median(times)


@contextlib.asynccontextmanager
async def nodes() -> AsyncIterator[tuple[QueueManager, Peer, str]]:
    folder = Path(tempfile.mkdtemp(prefix=".bench-", dir=Path.cwd()))
    address = loopback_address()
    peer = Peer("tests.bench.transport", folder, address)
    try:
        async with QueueManager.open(folder / "sender", settings("SENDER", loopback_address())) as qm:
            await qm.network.start()
            yield qm, peer, address
    finally:
        peer.stop()
        shutil.rmtree(folder)


async def measure() -> tuple[dict[str, list[tuple[float, float, float]]], float]:
    """By kind, for every round: seconds, and of processor on each side, for a message; and the latency."""
    measured: dict[str, list[tuple[float, float, float]]] = {kind: [] for kind in RATES}
    async with nodes() as (qm, peer, address):
        opened = {}
        for queue in (PLAIN, TRANSACTIONAL, ECHO):
            name = rf"DIRECT=TCP:{address}\{queue}"
            opened[queue] = name, await qm.open_queue(name, Access.SEND)
        await latency(opened[ECHO][1], peer)
        for _ in range(ROUNDS):
            for kind in RATES:
                name, out = opened[TRANSACTIONAL if kind == "transactional" else PLAIN]
                there, here, start = peer.processor(), process_time(), perf_counter()
                await transfer(qm, out, kind, name)
                taken = perf_counter() - start, process_time() - here, peer.processor() - there
                measured[kind].append((taken[0] / TOTAL, taken[1] / TOTAL, taken[2] / TOTAL))
        return measured, await latency(opened[ECHO][1], peer)


@bench("transport")
def transport() -> list[Comparison]:
    """Rates, processor of both sides, latency."""
    measured, delay = asyncio.run(measure())
    lines = []
    for kind, rate in RATES.items():
        seconds, here, there = map(statistics.median, zip(*measured[kind], strict=True))
        lines.append(Comparison(kind, seconds, f"{rate:,} a second", 1 / rate, 1.0))
        lines.append(Comparison(f"{kind}: processor of the sender", here, "budget", PROCESSOR))
        lines.append(Comparison(f"{kind}: processor of the receiver", there, "budget", PROCESSOR))
    lines.append(Comparison("one message, median", delay, "latency", LATENCY, 1.0))
    return lines


if __name__ == "__main__":
    asyncio.run(receive(Path(sys.argv[2]), sys.argv[3]))
