"""Sending to and receiving from an embedded queue manager, against what RocksDB does with the same bytes.

The ceiling is the same number of records of the same size through a WriteBatch, one synced write for each batch; it is
measured in turns with the node. ``python -m tests.bench.node`` prints the profile's top ten instead.
"""

from __future__ import annotations

import asyncio
import cProfile
import os
import pstats
import shutil
import statistics
import struct
import tempfile
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Final, TypeVar

from rocksdict import Options, Rdict, WriteBatch, WriteOptions

from qmnode import Access, Message, QueueManager, Settings
from tests.bench import Comparison, bench

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from qmnode.model.api import QueueApi

T = TypeVar("T")
BODY: Final = os.urandom(1024)
HEADERS: Final = 200
"""Bytes of prefix and headers that the node stores with a body."""
NAME: Final = r"DIRECT=OS:.\private$\bench"
ROUNDS: Final = 5
SETTINGS: Final = Settings(quotas={"queue_manager_quota": 0xFFFFFFFF})  # type: ignore[arg-type]
BUDGET: Final = 30e-6
"""Seconds of processor that a message may cost."""


class Ceiling:
    """RocksDB alone."""

    def __init__(self, path: Path) -> None:
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        self.database = Rdict(str(path), options=options)
        self._options = WriteOptions()
        self._options.sync = True
        self._key = 0
        self._value = os.urandom(len(BODY) + HEADERS)

    def seconds(self, batch: int, total: int) -> float:
        """Seconds per record in batches of this size."""
        pack = struct.Struct(">IQ").pack
        start = perf_counter()
        for _ in range(total // batch):
            records = WriteBatch(raw_mode=True)
            for _ in range(batch):
                self._key += 1
                records.put(pack(64, self._key), self._value)
            self.database.write(records, self._options)
        return (perf_counter() - start) / (total // batch * batch)


async def outstanding(call: Callable[[], Awaitable[object]], window: int, total: int) -> tuple[float, float]:
    """Seconds per call, and of processor, with this many calls at a time."""

    async def worker() -> None:
        for _ in range(total // window):
            await call()

    start, processor = perf_counter(), process_time()
    await asyncio.gather(*(worker() for _ in range(window)))
    calls = total // window * window
    return (perf_counter() - start) / calls, (process_time() - processor) / calls


class Node:
    """A queue manager with one queue, open both ways."""

    def __init__(self, send: QueueApi, receive: QueueApi) -> None:
        self._send, self._receive = send, receive

    async def send(self) -> None:
        """One recoverable message."""
        await self._send.send(Message(BODY, recoverable=True))

    async def send_hundred(self) -> None:
        """A hundred in one call."""
        await self._send.send_many([Message(BODY, recoverable=True) for _ in range(100)])

    async def receive(self) -> None:
        """One message, and its body."""
        message = await self._receive.receive(timeout=0)
        assert len(message.body) == len(BODY)

    async def receive_hundred(self) -> None:
        """A hundred in one call."""
        for message in await self._receive.receive_many(100, timeout=0):
            assert len(message.body) == len(BODY)


class Measured:
    """Medians over the rounds, by name: seconds, seconds of processor, seconds of the ceiling."""

    def __init__(self) -> None:
        self._taken: dict[str, list[tuple[float, float, float]]] = {}

    def add(self, name: str, times: tuple[float, float], per_call: int, ceiling: float) -> None:
        """One round."""
        self._taken.setdefault(name, []).append((times[0] / per_call, times[1] / per_call, ceiling))

    @property
    def names(self) -> list[str]:
        """All cases."""
        return list(self._taken)

    def __getitem__(self, name: str) -> tuple[float, float, float]:
        seconds, processor, ceiling = zip(*self._taken[name], strict=True)
        return statistics.median(seconds), statistics.median(processor), statistics.median(ceiling)


async def measure(directory: Path) -> Measured:
    """All cases, in turns."""
    measured = Measured()
    ceiling = Ceiling(directory / "ceiling")
    async with QueueManager.open(directory / "node", settings=SETTINGS) as qm:
        await qm.create_queue(r".\private$\bench")
        node = Node(await qm.open_queue(NAME, Access.SEND), await qm.open_queue(NAME))
        for _ in range(ROUNDS):
            for name, call, window, calls, per_call in (
                ("send, 1 outstanding", node.send, 1, 300, 1),
                ("send, 64 outstanding", node.send, 64, 6400, 1),
                ("send, 1,024 outstanding", node.send, 1024, 10240, 1),
                ("send, batches of 100", node.send_hundred, 1, 100, 100),
                ("receive, 1 outstanding", node.receive, 1, 300, 1),
                ("receive, 64 outstanding", node.receive, 64, 6400, 1),
                ("receive, 1,024 outstanding", node.receive, 1024, 10240, 1),
                ("receive, batches of 100", node.receive_hundred, 1, 100, 100),
            ):
                raw = ceiling.seconds(window * per_call, calls * per_call) if name.startswith("send") else 0.0
                measured.add(name, await outstanding(call, window, calls), per_call, raw)
    ceiling.database.close()
    return measured


def in_directory(work: Callable[[Path], T]) -> T:
    """Work in a directory on the disk of the working directory: memory file systems sync nothing."""
    directory = Path(tempfile.mkdtemp(prefix=".bench-", dir=Path.cwd()))
    try:
        return work(directory)
    finally:
        shutil.rmtree(directory)


@bench("node")
def node() -> list[Comparison]:
    """Rates with their bars."""
    measured = in_directory(lambda directory: asyncio.run(measure(directory)))
    lines = []
    for name, share in (("send, 1 outstanding", 0.6), ("send, 64 outstanding", 0.35)):
        seconds, _, ceiling = measured[name]
        lines.append(Comparison(name, seconds, f"ceiling (at least {share:.0%} of it)", ceiling, 1 / share))
    for name, rate in (
        ("send, 64 outstanding", 30_000),
        ("send, 1,024 outstanding", 45_000),
        ("send, batches of 100", 45_000),
        ("receive, 64 outstanding", 30_000),
        ("receive, 1,024 outstanding", 30_000),
        ("receive, batches of 100", 30_000),
    ):
        lines.append(Comparison(name, measured[name][0], f"{rate:,} a second", 1 / rate, 1.0))
    lines += [
        Comparison(f"{name}: processor", measured[name][1], "budget", BUDGET)
        for name in measured.names
        if not name.endswith(", 1 outstanding")
    ]
    return lines


async def profile(directory: Path) -> None:
    """The ten functions that cost most, sending and receiving with 64 outstanding."""
    async with QueueManager.open(directory / "node", settings=SETTINGS) as qm:
        await qm.create_queue(r".\private$\bench")
        node = Node(await qm.open_queue(NAME, Access.SEND), await qm.open_queue(NAME))
        for call in (node.send, node.receive):
            profiler = cProfile.Profile()
            profiler.enable()
            await outstanding(call, 64, 32000)
            profiler.disable()
            pstats.Stats(profiler).strip_dirs().sort_stats("tottime").print_stats(10)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path.cwd()) as place:
        asyncio.run(profile(Path(place)))
