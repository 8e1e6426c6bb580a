"""From an application's ``send`` to another application's ``receive``, over two nodes: processor of the four processes.

``QMNODE_BASELINE`` names another tree of the sources, such as a worktree of an earlier commit. Both trees do the same
in turns, and the table has their ratios; its bars are for commit 338d108.

Without another tree the table compares varied messages with alike ones.

All four processes of this tree use uvloop if it is installed, and the table says so. ``QMNODE_EVENT_LOOP=asyncio``
keeps them from it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple

from qmnode.event_loop import loop_factory
from tests.bench import Comparison, bench
from tests.bench.bare_way import bare_way
from tests.bench.peer import loopback_address
from tests.bench.transport import folder
from tests.security.certificates import tls_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROUNDS: Final = 5
PROCESSOR_ROUNDS: Final = 15
"""Of small messages: a round takes half a second, and the speed of a shared machine changes from one to the next."""
COUNT: Final = 6_400
PARTY: Final = Path(__file__).parent / "way_parties.py"
PARTIES: Final = ("application, sending", "node, sending", "node, receiving", "application, receiving")
CASES: Final = (
    ("batches", "alike"),
    ("batches", "varied"),
    ("singly", "alike"),
    ("singly", "varied"),
    ("pipelined", "alike"),
    ("pipelined", "varied"),
)
HOW: Final = {"batches": "batches of 100", "singly": "64 outstanding", "pipelined": "10 batches outstanding"}
BASELINE: Final = "QMNODE_BASELINE"
"""Environment variable with another tree of the sources."""
BARS: Final = {"batches": 0.55, "singly": 0.6}
"""The processor of all parties, in that of commit 338d108."""
TLS_BAR: Final = 0.65
LARGE: Final = {"64 KiB": 65_536, "1 MB": 1_000_000, "4 MB": 4_190_000}
ROUND_BYTES: Final = 200_000_000
LARGE_ROUNDS: Final = 9
WARMING_ROUNDS: Final = 2
"""Of large messages: a machine that was idle takes some hundred megabytes to give its memory back."""
LARGE_BAR: Final = 2.0
"""Half the bytes a second of bare synced writes."""
MIXED: Final = (("batches", "varied"), ("singly", "varied"), ("pipelined", "varied"))
"""What a turn sends with and without copies, beside some large messages."""
COPY_ROUNDS: Final = 9
COPY: Final = 1.15
"""The most that a message may cost with copies of both stores, in one without: 1.08. Two fifths of it are the
kernel's, which writes the bytes of the log a second time.
"""
VARIED: Final = 1.5
"""The most that a varied message may cost, in alike ones."""


class Party:
    """One process that does what a line asks and prints its seconds of processor so far."""

    def __init__(self, command: list[str], **environment: str) -> None:
        self._process = subprocess.Popen(
            command,
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        while (line := self.line()) != "ready":
            if not line and self._process.poll() is not None:
                raise RuntimeError(f"a process of the bench did not start: {command}")

    def line(self) -> str:
        """Its next line."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def ask(self, words: str = "") -> None:
        """Let it begin some work; its next line comes when that is done."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{words}\n")
        self._process.stdin.flush()

    def processor(self) -> float:
        """Its seconds of processor so far."""
        self.ask()
        return float(self.line())

    def stop(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        finally:
            self._process.kill()


class Taken(NamedTuple):
    """What a message took in one round: seconds, and seconds of processor of each party."""

    seconds: float
    processor: tuple[float, ...]


class Way:
    """Two nodes and two applications, the order of ``PARTIES``."""

    def __init__(
        self,
        tree: Path,
        place: Path,
        stack: contextlib.ExitStack,
        *,
        tls: bool = False,
        copied: bool = False,
        collector: str = "",
        environment: Callable[[str], dict[str, str]] = lambda _: {},
    ) -> None:
        def party(name: str, *arguments: str) -> Party:
            command = [sys.executable, "-P", str(PARTY), *arguments]
            started = Party(command, PYTHONPATH=str(tree), **environment(name))
            stack.callback(started.stop)
            return started

        nodes = []
        for number, (name, role) in enumerate((("here", PARTIES[1]), ("there", PARTIES[2]))):
            there = loopback_address()
            (place / name).mkdir(parents=True)
            if tls:
                tls_of(place, there, number=number)
            options = [str(place / f"tls-{there}") if tls else "", "", collector]
            if copied:
                key = place / name / "copy.key"
                key.touch(mode=0o600)
                key.write_text("the passphrase of the copy")
                options[1] = str(key.with_name("copy"))
            nodes.append(party(role, "node", str(place / name), name.upper(), there, *options))
        self._sender = party(
            PARTIES[0], "sender", str(place / "here" / "node.sock"), rf"DIRECT=TCP:{there}\private$\way"
        )
        self._receiver = party(PARTIES[3], "receiver", str(place / "there" / "node.sock"), r"DIRECT=OS:.\private$\way")
        self._parties = [self._sender, *nodes, self._receiver]

    def processor(self) -> list[float]:
        """Seconds of processor of each party so far."""
        return [party.processor() for party in self._parties]

    def export(self) -> None:
        """Let the nodes export the spans that wait, as they do every few seconds."""
        for node in self._parties[1:3]:
            node.ask("export")
            node.line()

    def latencies(self, rate: float, count: int) -> tuple[float, float]:
        """Seconds from ``send`` to ``receive`` at so many messages a second: the median, and what 99 of 100 keep to."""
        for party in (self._receiver, self._sender):
            party.ask(f"paced {rate} {count}")
        self._sender.line()
        _, half, most = self._receiver.line().split()
        return float(half), float(most)

    def run(self, how: str, kind: str, count: int = COUNT) -> Taken:
        """Send and receive so many messages."""
        before = self.processor()
        start = perf_counter()
        for party in (self._receiver, self._sender):
            party.ask(f"{how} {kind} {count}")
        for party in (self._receiver, self._sender):
            party.line()
        seconds = perf_counter() - start
        after = self.processor()
        return Taken(seconds / count, tuple((b - a) / count for a, b in zip(before, after, strict=True)))


@contextlib.contextmanager
def ways(*, tls: bool = False) -> Iterator[list[Way]]:
    """The way over this tree, and the one over the baseline if there is any."""
    trees = [Path(__file__).parents[2]]
    if baseline := os.environ.get(BASELINE):
        trees.append(Path(baseline).absolute())
    with folder() as place, contextlib.ExitStack() as stack:
        yield [Way(tree, place / str(number), stack, tls=tls) for number, tree in enumerate(trees)]


def median(rounds: list[Taken]) -> Taken:
    """The median of each figure."""
    return Taken(
        statistics.median(one.seconds for one in rounds),
        tuple(map(statistics.median, zip(*(one.processor for one in rounds), strict=True))),
    )


def _measure(cases: tuple[tuple[str, str], ...], *, tls: bool) -> dict[tuple[int, str, str], Taken]:
    """The medians of each tree, in turns."""
    taken: dict[tuple[int, str, str], list[Taken]] = {}
    with ways(tls=tls) as compared:
        for number in range(-1, PROCESSOR_ROUNDS):
            for how, kind in cases:
                for tree, one in enumerate(compared):
                    found = one.run(how, kind)
                    if number >= 0:  # the first round only warms up
                        taken.setdefault((tree, how, kind), []).append(found)
    return {key: median(rounds) for key, rounds in taken.items()}


def _lines(name: str, here: Taken, against: str, other: Taken, bar: float | None = None) -> list[Comparison]:
    """The processor of all parties and of each, and the seconds."""
    if loop_factory() is not None:
        name += ", uvloop"
    return [
        Comparison(f"{name}: processor", sum(here.processor), against, sum(other.processor), bar),
        *(
            Comparison(f"{name}: {party}", mine, against, others)
            for party, mine, others in zip(PARTIES, here.processor, other.processor, strict=True)
        ),
        Comparison(f"{name}: seconds", here.seconds, against, other.seconds),
    ]


def synced_writes(place: Path, size: int, count: int, name: str = "bare") -> list[float]:
    """Seconds of each of so many writes of so many bytes to the end of a file, with a sync of its own."""
    body, taken = os.urandom(size), []
    with (place / name).open("wb", buffering=0) as file:
        for _ in range(count):
            start = perf_counter()
            file.write(body)
            os.fdatasync(file.fileno())
            taken.append(perf_counter() - start)
    return taken


@bench("way-large")
def large_messages() -> list[Comparison]:
    """Seconds of a large message from ``send`` to ``receive``, four at a time, against one bare write of its bytes with
    a sync, one after the other. Also against bare processes that hand such blocks on and write them once, which is what
    this machine allows at most, and against two such writers at once: each node writes a message that its receiver does
    not wait for, on the same disk here.
    """
    baselines = {
        "one bare synced write": lambda place, size, count: synced_writes(place, size, count),
        "one of two at once": two_at_once,
        "a bare way with one synced write": bare_way,
    }
    taken: dict[int, list[list[float]]] = {}
    with folder() as place, ways() as (one, *_):
        for size in LARGE.values():  # one after the other: a store goes on writing what 64 KiB messages left
            count = ROUND_BYTES // size
            for number in range(-WARMING_ROUNDS, LARGE_ROUNDS):
                os.sync()  # nobody pays for what another one left to the disk
                found = [one.run("large", str(size), count).seconds]
                for write in baselines.values():
                    os.sync()
                    found.append(statistics.fmean(write(place, size, count)))
                if number >= 0:
                    taken.setdefault(size, []).append(found)
    lines = []
    for name, size in LARGE.items():
        way, *bare = map(statistics.median, zip(*taken[size], strict=True))
        bars = (LARGE_BAR if size >= 1_000_000 else None, None, None)
        lines += [Comparison(name, way, *line) for line in zip(baselines, bare, bars, strict=True)]
    return lines


def two_at_once(place: Path, size: int, count: int) -> list[float]:
    """``synced_writes`` of two writers, each to a file of its own."""
    with ThreadPoolExecutor() as both:
        return [one for each in both.map(lambda name: synced_writes(place, size, count, name), "ab") for one in each]


@bench("way-latency")
def latency() -> list[Comparison]:
    """Seconds from ``send`` to ``receive``, of messages that come alone and at half the rate that the way reaches in
    the same run, against two bare synced writes of as many bytes: each node needs one before it hands a message on.
    """
    taken: dict[str, list[tuple[float, ...]]] = {}
    with folder() as place, ways() as (one, *_):
        full = 1 / statistics.median(one.run("singly", "varied").seconds for _ in range(3))
        for number in range(-1, ROUNDS):
            writes = sorted(synced_writes(place, 1024, 400))
            bare = 2 * writes[len(writes) // 2], 2 * writes[len(writes) * 99 // 100]
            for name, rate, count in (("alone", 50.0, 200), ("half load", full / 2, COUNT)):
                found = one.latencies(rate, count)
                if number >= 0:
                    taken.setdefault(name, []).append((*found, *bare))
    return [
        Comparison(
            f"{name}{f' ({full / 2:.0f} a second)' if name != 'alone' else ''}, {which}",
            statistics.median(one[at] for one in rounds),
            f"two bare synced writes, {which}",
            statistics.median(one[at + 2] for one in rounds),
        )
        for name, rounds in taken.items()
        for at, which in enumerate(("median", "99 of 100"))
    ]


@bench("way")
def way() -> list[Comparison]:
    """Processor of all parties and of each, and seconds, of a message."""
    taken = _measure(CASES, tls=False)
    lines = []
    for how, kind in CASES:
        here, name = taken[0, how, kind], f"{kind}, {HOW[how]}"
        if (1, how, kind) in taken:
            lines += _lines(name, here, "the other tree", taken[1, how, kind], BARS.get(how))
        elif kind == "varied":
            lines += _lines(name, here, "alike", taken[0, how, "alike"], VARIED)
    return lines


def compared(
    name: str,
    both: list[Way],
    run: Callable[[Way], object],
    count: int,
    rounds: int,
    without: str,
    bar: float,
    *,
    parts: int = 1,
    end: Callable[[Way], object] = lambda _: None,
) -> list[Comparison]:
    """The processor of a message over the first of two ways, at all parties and at each, in that over the second.

    Both take turns of so many messages, ``parts`` times before a ratio is taken, after what is done once at the ``end``
    of those. What a turn costs is counted until the next one, because nodes do some work behind the messages.
    """
    sums: list[tuple[list[float], list[float]]] = []
    for number in range(rounds + 2):
        sums.append((both[0].processor(), both[1].processor()))
        if number <= rounds:
            for part in range(parts):
                for one in both if (number + part) % 2 else both[::-1]:
                    run(one)
            for one in both:
                end(one)
    turns = [
        [[(b - a) / (count * parts) for a, b in zip(*pair, strict=True)] for pair in zip(before, after, strict=True)]
        for before, after in itertools.pairwise(sums[1:])  # the first turn only warms up, and makes the base
    ]
    lines: list[Comparison] = []
    for at, party in [(slice(None), "all parties"), *((slice(one, one + 1), PARTIES[one]) for one in range(4))]:
        base = statistics.median(sum(turn[1][at]) for turn in turns)
        ratio = statistics.median(sum(turn[0][at]) / sum(turn[1][at]) for turn in turns)
        lines.append(Comparison(f"{name}, {party}", ratio * base, without, base, None if lines else bar))
    return lines


@bench("way-copy")
def way_with_copies() -> list[Comparison]:
    """The same with a copy of both stores elsewhere, against without."""

    def run(one: Way) -> None:
        for how, kind in MIXED:
            one.run(how, kind)
        one.run("large", str(LARGE["64 KiB"]), COUNT // 50)
        one.run("large", str(LARGE["1 MB"]), COUNT // 800)

    count = COUNT * len(MIXED) + COUNT // 50 + COUNT // 800
    with folder() as place, contextlib.ExitStack() as stack:
        tree = Path(__file__).parents[2]
        both = [Way(tree, place / str(number), stack, copied=not number) for number in range(2)]
        return compared("mixed", both, run, count, COPY_ROUNDS, "without a copy", COPY)


@bench("way-tls")
def way_over_tls() -> list[Comparison]:
    """The same over TLS between the nodes; without another tree, against plain connections."""
    case = ("batches", "varied")
    taken = _measure((case,), tls=True)
    name = f"{case[1]}, {HOW[case[0]]}, TLS"
    if (1, *case) in taken:
        return _lines(name, taken[0, *case], "the other tree", taken[1, *case], TLS_BAR)
    return _lines(name, taken[0, *case], "plain", _measure((case,), tls=False)[0, *case])
