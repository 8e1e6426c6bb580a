"""A disk that lies, tears, reorders, fails, fills and waits: what was acknowledged is there, or a loss is reported.

Each seed starts with an empty store on the disk of ``tests/crash``, sends under the fault, then kills the process and
cuts the power, or lets the disk work again. ``FAULT_SEEDS=3`` has fewer seeds.
"""

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import structlog

from qmnode import QueueManager
from qmnode.errors import MessageQueuingError
from qmnode.storage.verification import verify
from tests.crash.conftest import shim
from tests.crash.disk import Disk
from tests.faults.worker import FORMAT, body, settings
from tests.lab.nodes import PROJECT
from tests.lab.waiting import wait_until

__all__ = ["shim"]
pytestmark = pytest.mark.timeout(3600)
SEEDS = int(os.environ.get("FAULT_SEEDS", "50"))


@dataclass
class Bench:
    """A disk, and the process that forks others on it."""

    disk: Disk
    process: subprocess.Popen[str]
    folder: Path
    outcomes: Counter[str] = field(default_factory=Counter)
    messages: int = 0

    def begin(self, **task: Any) -> int:
        """Start a process with this task; its number."""
        self._log.unlink(missing_ok=True)
        self._log.touch()
        self.stop.unlink(missing_ok=True)
        whole = {"store": str(self.disk.store), "acknowledged": str(self._log), "stop": str(self.stop), "same": False}
        whole |= task
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(whole) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    @property
    def _log(self) -> Path:
        return self.folder / "acknowledged"

    @property
    def stop(self) -> Path:
        """The file that ends the process."""
        return self.folder / "stop"

    def lines(self) -> list[str]:
        """What the process has written."""
        return self._log.read_text().splitlines()

    def acknowledged(self) -> set[int]:
        """The numbers of the acknowledged messages."""
        return {int(line) for line in self.lines() if line.isdigit()}

    def wait(self, ready: Callable[[], object]) -> None:
        """Until something is so. AssertionError if it never is."""
        wait_until(ready, 120, "the process works")

    def kill(self, child: int) -> None:
        """End a process, and return when it is gone."""
        os.killpg(child, 9)
        self.wait(lambda: not Path(f"/proc/{child}").exists())

    async def judge(self, *, lies: bool = False) -> None:
        """Start a node on the store and compare. ``lies``: a message may be missing if the node reports it."""
        acknowledged = self.acknowledged()
        self.messages += len(acknowledged)
        words, found = [], []
        try:
            words += [f"verify: {one.sentence}" for one in verify(self.disk.store).findings]
        except MessageQueuingError as error:
            words.append(str(error))
        with structlog.testing.capture_logs() as logs:
            try:
                async with QueueManager.open(self.disk.store, settings("inline")) as qm:
                    words += [warning for warning in (await qm.status()).warnings if "disk" not in warning[:5]]
                    async with await qm.open_queue(FORMAT) as queue:
                        while some := await queue.receive_many(100, timeout=0):
                            found += [message.body for message in some]
            except MessageQueuingError as error:
                if "TIMEOUT" not in str(error):
                    words.append(str(error))
        words += [str(one) for one in logs if one["log_level"] in ("warning", "error")]
        numbers = [int(one.partition(b" ")[0]) for one in found]
        assert found == [body(number) for number in numbers], "a message is wrong"
        assert len(set(numbers)) == len(numbers), "a message is there twice"
        missing = acknowledged - set(numbers)
        if missing:
            assert lies, f"{len(missing)} of {len(acknowledged)} are missing on an honest disk: {words}"
            assert words, f"{len(missing)} of {len(acknowledged)} are missing without a word"
            self.outcomes["missing and reported" if numbers else "nothing there and reported"] += 1
            told = [
                word for word in words if "acknowledged messages" in word or "are gone" in word or "no longer" in word
            ]
            self.outcomes["only the log says that the node was not stopped"] += not told
        else:
            self.outcomes["all there"] += 1
        self.outcomes["end of the log reported as one that may have held messages"] += any(
            "may have held" in one for one in words
        )


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, shim: Path) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("bench")
    disk = Disk(folder / "disk", shim)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.worker"],
        env={**os.environ, **disk.environment, "PYTHONPATH": str(PROJECT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield Bench(disk, process, folder)
    assert process.stdin is not None
    process.stdin.close()
    process.wait(60)


@pytest.fixture(params=["few", pytest.param("many", marks=pytest.mark.soak)])
def seeds(request: pytest.FixtureRequest, bench: Bench) -> Iterator[list[int]]:
    """Numbers from which everything follows but the speed of the machine; what came of them is printed."""
    base = random.SystemRandom().getrandbits(31)
    bench.outcomes.clear()
    bench.messages = 0
    yield list(range(base, base + (2 if request.param == "few" else SEEDS)))
    print(f"{request.node.name}: seeds from {base}, {bench.messages} acknowledged messages")
    for outcome, number in sorted(bench.outcomes.items()):
        print(f"  {number:4} {outcome}")


def _sync(chance: random.Random) -> str:
    return chance.choice(("inline", "thread"))


async def cut(bench: Bench, seed: int, *, reorder: bool = False, lost_syncs: int = 0) -> None:
    """Send, kill, cut the power, compare."""
    chance = random.Random(seed)
    bench.disk.clear()
    child = bench.begin(seed=seed, sync=_sync(chance))
    mark = bench.disk.store / "SYNCED"
    bench.wait(lambda: "open" in bench.lines())
    old = mark.read_bytes()
    until = chance.randint(1, 150)
    if lost_syncs:
        bench.wait(lambda: len(bench.acknowledged()) >= until // 3)
        bench.disk.fail(lost_syncs=lost_syncs)
    bench.wait(lambda: len(bench.acknowledged()) >= until)
    bench.kill(child)
    bench.disk.cut(chance, reorder=reorder)
    if chance.random() < 0.5 and mark.exists():
        mark.write_bytes(old)  # it is not synced: the page that the disk has may be the first
    await bench.judge(lies=bool(lost_syncs))


async def test_torn_writes(bench: Bench, seeds: list[int]) -> None:
    for seed in seeds:
        await cut(bench, seed)


async def test_reordered_writes(bench: Bench, seeds: list[int]) -> None:
    for seed in seeds:
        await cut(bench, seed, reorder=True)


async def test_lost_syncs(bench: Bench, seeds: list[int]) -> None:
    for seed in seeds:
        await cut(bench, seed, lost_syncs=random.Random(seed).choice((1_000_000, 300_000)))


async def errors(bench: Bench, seed: int, rounds: int = 1, turn: int | None = None, **faults: int) -> None:
    """Send while calls fail, until some have; then the disk works again, and the messages are compared."""
    chance = random.Random(seed)
    bench.disk.clear()
    more = {} if turn is None else {"turn": turn}
    child = bench.begin(seed=seed, sync=_sync(chance), same=chance.random() < 0.5, **more)
    bench.wait(lambda: len(bench.acknowledged()) >= 2 * (turn or 0) and "open" in bench.lines())
    failed, lines = bench.disk.failed, len(bench.lines())
    bench.disk.fail(**faults)
    bench.wait(lambda: bench.disk.failed > failed and len(bench.lines()) > lines + rounds)
    bench.disk.fail()
    bench.outcomes["calls failed"] += bench.disk.failed - failed
    count = len(bench.acknowledged())
    bench.wait(lambda: len(bench.acknowledged()) > count)  # it goes on by itself
    bench.stop.touch()
    bench.wait(lambda: bench.lines()[-1:] == ["end"])
    bench.wait(lambda: not Path(f"/proc/{child}").exists())
    problems = [line for line in bench.lines() if line.startswith(("error", "wrong"))]
    assert not [line for line in problems if line.startswith("wrong") or "is in use" in line], problems[:5]
    bench.outcomes["errors answered"] += sum(line.startswith("error") for line in bench.lines())
    await bench.judge()


@pytest.mark.soak
async def test_errors_of_writes(bench: Bench, seeds: list[int]) -> None:
    for seed in seeds:
        await errors(bench, seed, 100, write_errors=random.Random(-seed).choice((3_000, 30_000)))


@pytest.mark.soak
async def test_errors_of_reads(bench: Bench, seeds: list[int]) -> None:
    """The store is opened every 40 messages, and all messages in it are peeked at."""
    for seed in seeds:
        await errors(bench, seed, 20, 40, read_errors=random.Random(-seed).choice((3_000, 20_000, 200_000)))


@pytest.mark.soak
async def test_a_disk_that_is_full_at_every_write(bench: Bench, seeds: list[int]) -> None:
    for place, seed in enumerate(seeds):
        await errors(bench, seed, until_full=place + 1)


@pytest.mark.soak
async def test_syncs_of_ten_seconds(bench: Bench) -> None:
    bench.outcomes.clear()
    bench.messages = 0
    for seed in range(10):
        chance = random.Random(seed)
        bench.disk.clear()
        child = bench.begin(seed=seed, sync=_sync(chance))
        bench.wait(lambda: "open" in bench.lines())
        bench.disk.fail(slow_syncs=10_000)
        count = len(bench.acknowledged())
        bench.wait(lambda: len(bench.acknowledged()) > count + 1)  # noqa: B023
        bench.kill(child)
        bench.disk.fail()
        bench.disk.cut(chance)
        await bench.judge()
    print(f"syncs of ten seconds: {dict(bench.outcomes)}, {bench.messages} acknowledged messages")
