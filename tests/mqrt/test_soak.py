"""The C library under valgrind and the sanitizers, with a node that is killed, and its speed beside Python's."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import time
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

import qmnode
from qmnode.local.frames import HEAD_SIZE, SIZE_FIELD, FrameKind
from qmnode.model.api import Access
from qmnode.model.message import Message
from tests.lab.nodes import NodeProcess, running_node
from tests.mqrt.conftest import LIBRARY, OWN, Library, at, build
from tests.mqrt.test_scenarios import NAMES, compiled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

pytestmark = [pytest.mark.soak, pytest.mark.servers]

THREADS: Final = 8
EACH: Final = 10_000
KILLS: Final = 20
SENT: Final = "DIRECT=OS:.\\private$\\sent"
MOVED: Final = "DIRECT=OS:.\\private$\\moved"
PLAIN: Final = "DIRECT=OS:.\\private$\\plain"
SANITIZERS: Final = {
    "addresses": ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    "threads": ("-O1", "-g", "-fsanitize=thread"),
}
QUIET: Final = (0.1, 0.5, 0.1, 0.02)
"""Seconds until a connection ends on which nothing comes, in turns: a call whose answer was damaged would wait for
ever.
"""
PATIENCE: Final = 90.0
"""Seconds that a run of the scenarios with damaged answers may take."""
HOUR: Final = int(os.environ.get("MQRT_FUZZ_SECONDS", "120"))
"""Seconds of fuzzing; an hour is MQRT_FUZZ_SECONDS=3600."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("node")) as process:
        with qmnode.sync.connect(process.socket) as manager:
            for name, transactional in ((SENT, True), (MOVED, True), (PLAIN, False)):
                manager.create_queue(name.partition(":")[2], transactional=transactional)
        yield process


def run(node: NodeProcess, *words: object, **environment: str) -> str:
    """Run a program beside the node; what it prints."""
    done = subprocess.run(
        list(map(str, words)), env=at(node.socket) | environment, capture_output=True, text=True, timeout=3600
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_valgrind_finds_no_error_and_no_leak(library: Library, node: NodeProcess) -> None:
    run(
        node, "valgrind", "-q", "--leak-check=full", "--show-leak-kinds=all", "--errors-for-leak-kinds=all",
        "--child-silent-after-fork=yes", "--error-exitcode=9", compiled(library), "valgrind",
    )  # fmt: skip


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_sanitizers_find_nothing(sanitizer: str, tmp_path: Path, node: NodeProcess) -> None:
    sanitized = build(tmp_path, *SANITIZERS[sanitizer])
    run(node, compiled(sanitized), f"under-{sanitizer}")
    traffic = sanitized.program(OWN / "traffic.c")
    run(node, traffic, "send", PLAIN, EACH, 100, THREADS)
    run(node, traffic, "receive", PLAIN, EACH, 100, THREADS)  # each gets as many as were sent
    with qmnode.sync.connect(node.socket) as manager:
        assert manager.queue(PLAIN).message_count == 0


@pytest.mark.parametrize("seed", range(2))
def test_damaged_messages_are_read_without_a_fault(seed: int, tmp_path: Path) -> None:
    program = tmp_path / "fuzz"
    words = ["gcc", "-std=c11", "-D_GNU_SOURCE", "-pthread", *SANITIZERS["addresses"]]
    words += [f"-I{LIBRARY / 'include'}", f"-I{LIBRARY / 'src'}", OWN / "fuzz.c"]
    words += [*sorted((LIBRARY / "src").glob("*.c")), "-ljansson", "-o", program]
    subprocess.run(list(map(str, words)), check=True)
    fuzzed = subprocess.run([program, str(HOUR // 2), str(seed + 1)], capture_output=True, text=True)
    assert fuzzed.returncode == 0, fuzzed.stderr
    assert int(fuzzed.stdout) > 1000


def test_damaged_answers_are_read_without_a_fault(tmp_path: Path, node: NodeProcess) -> None:
    """Between the library and the node stands a program that damages every few answers."""
    sanitized = build(tmp_path, *SANITIZERS["addresses"])
    program, between = compiled(sanitized), tmp_path / "between.sock"
    # Leaks are not looked for, as a scenario that fails leaves what it has. One that fails while a receive is under way
    # takes the buffers away from it.
    environment = at(between) | {"ASAN_OPTIONS": "detect_leaks=0"}
    names = [name for name in NAMES if not re.search("callback|event|many_receives", name)]
    seed, answers, changed, ended, stopped = 0, 0, 0, 0, 0
    until = time.monotonic() + HOUR
    while time.monotonic() < until:
        seed += 1
        damage = Damage(seed)
        words = [program, f"d{seed}-", *Random(seed).sample(names, len(names))]
        outcome = asyncio.run(_run_between(words, environment, node.socket, between, damage))
        assert outcome.code in (None, 0, 1), f"seed {seed}: {outcome.errors}"
        assert "Sanitizer" not in outcome.errors and "runtime error" not in outcome.errors, f"{seed}: {outcome.errors}"
        assert outcome.spent < 0.5, f"seed {seed} runs on and on"
        answers, changed = answers + damage.answers, changed + damage.changed
        ended, stopped = ended + (outcome.code is not None), stopped + (outcome.code is None)
        with qmnode.sync.connect(node.socket) as manager:
            for queue in manager.queues():
                if f"\\d{seed}-" in queue.pathname.lower():  # with its subqueues
                    with contextlib.suppress(qmnode.MessageQueuingError):
                        manager.delete_queue(queue.pathname)
        print(f"seed {seed}: {answers} answers, {changed} damaged, {ended} runs ended, {stopped} stopped", flush=True)
    assert changed > HOUR // 10  # many more on a quiet machine


class Damage:
    """Damages some of the answers that pass, as its seed has it."""

    def __init__(self, seed: int) -> None:
        self.random, self.answers, self.changed = Random(seed), 0, 0
        self.quiet = QUIET[seed % len(QUIET)]

    def applied(self, frame: bytes) -> bytes:
        """The frame, damaged or not; nothing for the end of the connection."""
        head, body = bytearray(frame[:HEAD_SIZE]), bytearray(frame[HEAD_SIZE:])
        match self.random.randrange(40):
            case 0:
                head, body = bytearray(), bytearray()
            case 1:
                head[:SIZE_FIELD] = self.random.randbytes(SIZE_FIELD)
            case 2:
                head[SIZE_FIELD] = self.random.choice([*FrameKind])
            case 3 | 4 | 5 | 6 if body:
                for _ in range(self.random.randrange(1, 4)):
                    body[self.random.randrange(len(body))] = self.random.randrange(256)
            case 7:
                body = body[: self.random.randrange(len(body) + 1)]
                head[:SIZE_FIELD] = (HEAD_SIZE - SIZE_FIELD + len(body)).to_bytes(SIZE_FIELD, "little")
            case _:
                pass
        self.answers += 1
        self.changed += (sent := bytes(head + body)) != frame
        return sent


class Outcome(NamedTuple):
    """How a program ended; no code if it was stopped. ``spent``: seconds of the processor in its last second."""

    code: int | None
    errors: str
    spent: float


async def _run_between(
    words: list[str], environment: dict[str, str], socket: Path, between: Path, damage: Damage
) -> Outcome:
    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, change: bool) -> None:
        try:
            while True:
                size = await asyncio.wait_for(reader.readexactly(SIZE_FIELD), damage.quiet)
                frame = size + await reader.readexactly(int.from_bytes(size, "little"))
                if not (sent := damage.applied(frame) if change else frame):
                    break
                writer.write(sent)
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):  # a TimeoutError is one
            pass
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        own_reader, own_writer = await asyncio.open_unix_connection(socket)
        await asyncio.gather(pass_on(reader, own_writer, False), pass_on(own_reader, writer, True))

    between.unlink(missing_ok=True)
    async with await asyncio.start_unix_server(serve, between):
        started = await asyncio.create_subprocess_exec(
            *words, env=environment, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
        try:
            async with asyncio.timeout(PATIENCE):
                _, errors = await started.communicate()
        except TimeoutError:
            before = _processor_seconds(started.pid)
            await asyncio.sleep(1)
            spent = _processor_seconds(started.pid) - before
            started.kill()
            await started.wait()
            return Outcome(None, "", spent)
        return Outcome(started.returncode, errors.decode(), 0)


def _processor_seconds(process: int) -> float:
    times = Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")


def test_a_killed_node_loses_and_doubles_nothing_in_transactions(library: Library, node: NodeProcess) -> None:
    count = 2000
    with qmnode.sync.connect(node.socket) as manager, manager.open_queue(SENT, Access.SEND) as queue:
        for first in range(0, count, 500):
            queue.send_many([Message(b"%d" % number) for number in range(first, first + 500)], "single")
    words = [library.program(OWN / "traffic.c"), "move", SENT, 0, 100, 4, MOVED]
    with subprocess.Popen(list(map(str, words)), env=at(node.socket), stdout=subprocess.DEVNULL) as mover:
        for _ in range(KILLS):
            time.sleep(0.5)
            node.kill()
            node.start()
        assert mover.wait(900) == 0
    with qmnode.sync.connect(node.socket) as manager, manager.open_queue(MOVED) as queue:
        assert manager.queue(SENT).message_count == 0
        found = [int(queue.receive(0).body) for _ in range(manager.queue(MOVED).message_count)]
    assert sorted(found) == list(range(count))


@pytest.mark.timed
def test_it_is_nearly_as_fast_as_python_for_less_of_the_processor(tmp_path: Path, node: NodeProcess) -> None:
    """With buffers that hold any message ("large"), and with those that hold no larger one than there is."""
    traffic = build(tmp_path, "-O2").program(OWN / "traffic.c")
    count = 16000
    for tasks in (1, 8):
        rates: dict[str, list[float]] = {"large": [], "send": [], "receive": []}
        costs: dict[str, list[float]] = {"large": [], "send": [], "receive": []}
        for _ in range(3):
            measured = asyncio.run(_of_python(node.socket, count, tasks))
            for mode in rates:  # the queue is full at first
                seconds, processor = measured["send" if mode == "send" else "receive"]
                own_seconds, own_processor = map(
                    float, run(node, traffic, mode, PLAIN, count // tasks, 1000, tasks).split()
                )
                rates[mode].append(seconds / own_seconds)
                costs[mode].append(own_processor / processor)
        print(f"{tasks} at a time: rates {rates}, processor {costs}")
        assert all(max(found) >= 0.8 for found in rates.values()), rates
        assert all(min(found) <= 1.2 for found in costs.values()), costs


async def _of_python(socket: Path, count: int, tasks: int) -> dict[str, tuple[float, float]]:
    """The seconds, and those of the processor, that ``qmnode.connect()`` takes to send and to receive. It leaves the
    queue full for the other to receive."""
    async with qmnode.connect(socket) as manager:
        out, back = await manager.open_queue(PLAIN, Access.SEND), await manager.open_queue(PLAIN)

        async def send() -> None:
            await out.send(Message(bytes(1000)))

        async def receive() -> None:
            await back.receive()

        async def measure(work: Callable[[], Awaitable[None]]) -> tuple[float, float]:
            async def some() -> None:
                for _ in range(count // tasks):
                    await work()

            looked = [(time.perf_counter(), time.process_time())]
            await asyncio.gather(*(some() for _ in range(tasks)))
            looked.append((time.perf_counter(), time.process_time()))
            (((began, used), (ended, used_then)),) = pairwise(looked)
            return ended - began, used_then - used

        found = {"send": await measure(send)}
        found["receive"] = await measure(receive)
        await measure(send)
        return found
