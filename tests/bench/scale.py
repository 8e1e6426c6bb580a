"""A queue with a million messages, and ten thousand queues: what opening the node costs, in a process of its own.

Each step is a process (``python -m tests.bench.scale STEP DIRECTORY``) that prints what it measured as JSON. Those that
write end without closing the node, as a crash does, so that the next start has a log to replay.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any, Final

from qmnode import Access, Message, QueueManager, Settings
from tests.bench import Comparison, bench

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

MESSAGES: Final = 1_000_000
SHARE_RECEIVED: Final = 5
"""One message in so many is received before the last start."""
QUEUES: Final = 10_000
BATCH: Final = 1_000
OPEN_SECONDS: Final = 3.0
QUEUES_OPEN_SECONDS: Final = 5.0
FIRST_RECEIVE_SECONDS: Final = 0.05
MEMORY: Final = 300 * 1024 * 1024
_NAME: Final = r".\private$\large"
_FORMAT: Final = rf"DIRECT=OS:{_NAME}"
_SETTINGS: Final = Settings(quotas={"queue_manager_quota": 0xFFFFFFFF})  # type: ignore[arg-type]
_PROJECT: Final = Path(__file__).resolve().parents[2]


def _memory() -> dict[str, int]:
    """Bytes of this process now, and at most so far."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {name: int(status[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM")}


async def fill(path: Path, messages: int) -> dict[str, float]:
    """Send all messages."""
    body = os.urandom(1024)
    qm = await QueueManager.open(path, settings=_SETTINGS)
    await qm.create_queue(_NAME)
    queue = await qm.open_queue(_FORMAT, Access.SEND)
    start = perf_counter()
    for _ in range(messages // BATCH):
        await queue.send_many([Message(body, recoverable=True) for _ in range(BATCH)])
    return {"seconds": perf_counter() - start, **_memory()}


async def _opened(path: Path) -> tuple[QueueManager, dict[str, float]]:
    start, worked = perf_counter(), process_time()
    qm = await QueueManager.open(path, settings=_SETTINGS)
    opened, opening = perf_counter(), process_time()
    queue = await qm.open_queue(_FORMAT)
    await queue.receive(timeout=0)
    received, receiving = perf_counter(), process_time()
    processor = {"open_processor": opening - worked, "first_receive_processor": receiving - opening}
    return qm, {"open": opened - start, "first_receive": received - opened, **processor, **_memory()}


async def first(path: Path, _: int) -> dict[str, float]:
    """Open, and receive one."""
    qm, measured = await _opened(path)
    await qm.close()
    return measured


async def receive(path: Path, messages: int) -> dict[str, float]:
    """Open, and receive many: what they were is deleted keys now."""
    qm, measured = await _opened(path)
    queue = await qm.open_queue(_FORMAT)
    start = perf_counter()
    for _ in range(messages // SHARE_RECEIVED // BATCH):
        await queue.receive_many(BATCH, timeout=0)
    return {**measured, "seconds": perf_counter() - start, **_memory()}


async def create(path: Path, _: int) -> dict[str, float]:
    """Create many queues, one message in each hundredth."""
    qm = await QueueManager.open(path, settings=_SETTINGS)
    start = perf_counter()
    for begin in range(0, QUEUES, BATCH):
        names = [rf".\private$\queue{number}" for number in range(begin, begin + BATCH)]
        await asyncio.gather(*(qm.create_queue(name) for name in names))
        async with await qm.open_queue(f"DIRECT=OS:{names[0]}", Access.SEND) as queue:
            await queue.send(Message(b"one", recoverable=True))
    return {"seconds": perf_counter() - start, **_memory()}


async def queues(path: Path, _: int) -> dict[str, float]:
    """Open the node with many queues, and each of them."""
    start, worked = perf_counter(), process_time()
    async with QueueManager.open(path, settings=_SETTINGS) as qm:
        opened, processor = perf_counter() - start, process_time() - worked
        handles = [await qm.open_queue(rf"DIRECT=OS:.\private$\queue{number}") for number in range(QUEUES)]
        return {
            "open": opened,
            "open_processor": processor,
            "open_all": perf_counter() - start,
            "queues": len(handles),
            **_memory(),
        }


STEPS: Final[dict[str, Callable[[Path, int], Awaitable[dict[str, float]]]]] = {
    step.__name__: step for step in (fill, first, receive, create, queues)
}


def run_step(step: str, path: Path, messages: int) -> dict[str, float]:
    """Run a step in a process of its own."""
    command = [sys.executable, "-m", "tests.bench.scale", step, str(path), str(messages)]
    environment = {**os.environ, "PYTHONPATH": str(_PROJECT)}
    answer = subprocess.run(command, cwd=_PROJECT, env=environment, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise RuntimeError(f"{step}: {answer.stderr}")
    measured: dict[str, float] = json.loads(answer.stdout.splitlines()[-1])
    return measured


def measure(directory: Path, messages: int = MESSAGES) -> dict[str, dict[str, float]]:
    """All steps, by name: ``again`` is the start after many receives. ``messages`` are in the large queue."""
    large, many = directory / "large", directory / "many"
    measured: dict[str, Any] = {step: run_step(step, large, messages) for step in ("fill", "first", "receive")}
    measured["again"] = run_step("first", large, messages)
    measured |= {step: run_step(step, many, messages) for step in ("create", "queues")}
    return measured


@bench("scale")
def scale() -> list[Comparison]:
    """Seconds with their bars, and memory as if bytes were microseconds."""
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path.cwd()) as directory:
        measured = measure(Path(directory))
    bars = [
        ("open, 1,000,000 messages", measured["first"]["open"], OPEN_SECONDS),
        ("first receive after it", measured["first"]["first_receive"], FIRST_RECEIVE_SECONDS),
        ("open, 200,000 received", measured["again"]["open"], OPEN_SECONDS),
        ("first receive after it, behind deleted keys", measured["again"]["first_receive"], FIRST_RECEIVE_SECONDS),
        ("open, 10,000 queues", measured["queues"]["open"], QUEUES_OPEN_SECONDS),
    ]
    lines = [Comparison(name, seconds, "the bar", bar, 1.0) for name, seconds, bar in bars]
    for step in ("fill", "first", "receive", "again", "queues"):
        memory = measured[step]["VmHWM"]
        lines.append(Comparison(f"{step}: memory, bytes", memory / 1e6, "the bar", MEMORY / 1e6, 1.0))
    for step, count in (("fill", MESSAGES), ("receive", MESSAGES // SHARE_RECEIVED), ("create", QUEUES)):
        lines.append(Comparison(f"{step}, each", measured[step]["seconds"] / count, "30,000 a second", 1 / 30_000))
    return lines


if __name__ == "__main__":
    print(json.dumps(asyncio.run(STEPS[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3])))), flush=True)
    os._exit(0)
