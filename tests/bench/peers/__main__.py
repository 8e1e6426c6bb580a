"""Prints how many durable messages a second go from an application over two brokers to another application.

Our nodes with Python applications beside RabbitMQ's shovel and NATS JetStream's source, in turns, with the peers'
clients in Python and in Go. Bodies have 512 to 1,535 bytes. What a node accepted is synced to disk; RabbitMQ confirms
what it has written and syncs it later, NATS syncs every two minutes. Exits 1 when the bar does not hold.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from rich.console import Console
from rich.table import Table

from tests.bench._processor import processor_seconds
from tests.bench.peers.brokers import QUEUES, Pair, go_client, python_client, shovelled, sourced
from tests.bench.transport import folder
from tests.bench.way import HOW, Party, Way

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROUNDS: Final = 5
COUNT: Final = 6_400
OURS: Final = "two nodes"
SHOVEL: Final = "RabbitMQ, shovel"
LANGUAGES: Final = ("Python", "Go")
BAR: Final = 2.0
"""Our rate in batches, at least, in that of the shovel with its fastest client."""


class Figures(NamedTuple):
    """One message: seconds, and seconds of processor of the brokers and of both clients."""

    seconds: float
    brokers: float
    clients: float


class Contestant(Protocol):
    """A way from one application to another."""

    def measure(self, how: str) -> Figures:
        """Send and receive ``COUNT`` messages in batches or singly."""


class OwnWay:
    """Two nodes of this project."""

    def __init__(self, way: Way) -> None:
        self._way = way

    def measure(self, how: str) -> Figures:
        taken = self._way.run(how, "varied", COUNT)
        sending, *nodes, receiving = taken.processor
        return Figures(taken.seconds, sum(nodes), sending + receiving)


class OtherWay:
    """Two brokers with a client at each."""

    def __init__(self, pair: Pair, queue: str, client: list[str], stack: ExitStack) -> None:
        self._pids = pair.pids
        self._parties = []
        for role, url in (("receiver", pair.target), ("sender", pair.source)):
            party = Party([*client, pair.kind, role, url, queue])
            stack.callback(party.stop)
            self._parties.append(party)

    def _processor(self) -> tuple[float, float]:
        return sum(map(processor_seconds, self._pids)), sum(party.processor() for party in self._parties)

    def measure(self, how: str) -> Figures:
        before = self._processor()
        start = perf_counter()
        for party in self._parties:
            party.ask(f"{how} {COUNT}")
        for party in self._parties:
            if not party.line():
                raise RuntimeError("a client of a peer has ended")
        seconds = perf_counter() - start
        after = self._processor()
        return Figures(seconds / COUNT, *((b - a) / COUNT for a, b in zip(before, after, strict=True)))


@asynccontextmanager
async def contestants(place: Path) -> AsyncIterator[dict[tuple[str, str], Contestant]]:
    """All of them by name and language of the clients, started."""
    async with AsyncExitStack() as brokers:
        with ExitStack() as clients:  # they end before the brokers, which they would miss
            found: dict[tuple[str, str], Contestant] = {
                (OURS, "Python"): OwnWay(Way(Path(__file__).parents[3], place / "ours", clients))
            }
            for pairs, name in ((shovelled, "rabbitmq"), (sourced, "nats")):
                pair = await brokers.enter_async_context(pairs(place / name))
                for language, queue, client in zip(LANGUAGES, QUEUES, (python_client, go_client), strict=True):
                    found[pair.name, language] = OtherWay(pair, queue, client(), clients)
            yield found


async def measured() -> dict[tuple[str, str, str], Figures]:
    """The medians, by name, language and how messages are sent."""
    rounds: dict[tuple[str, str, str], list[Figures]] = {}
    with folder() as place:
        async with contestants(place) as found:
            for number in range(-1, ROUNDS):
                for how in HOW:
                    for (name, language), contestant in found.items():
                        taken = await asyncio.to_thread(contestant.measure, how)
                        if number >= 0:  # the first round only warms up
                            rounds.setdefault((name, language, how), []).append(taken)
    return {key: Figures(*map(statistics.median, zip(*taken, strict=True))) for key, taken in rounds.items()}


def main() -> int:
    """Measure and print; 1 when our rate is below the bar."""
    load = os.getloadavg()[0]
    found = asyncio.run(measured())
    table = Table("sent", "brokers", "clients", "a second", "ours is", "brokers, µs", "clients, µs")
    for how, words in HOW.items():
        ours = found[OURS, "Python", how]
        for (name, language, other), taken in found.items():
            if other == how:
                ratio = "" if name == OURS else f"{taken.seconds / ours.seconds:.2f} times"
                processor = f"{taken.brokers * 1e6:.0f}", f"{taken.clients * 1e6:.0f}"
                table.add_row(words, name, language, f"{1 / taken.seconds:,.0f}", ratio, *processor)
    Console().print(table)
    best = min(found[SHOVEL, language, "batches"].seconds for language in LANGUAGES)
    times = best / found[OURS, "Python", "batches"].seconds
    holds = times >= BAR
    print(
        f"load {load:.1f}; batches: {times:.2f} times the shovel's rate, bar {BAR:.1f} {'holds' if holds else 'BROKEN'}"
    )
    return int(not holds)


if __name__ == "__main__":
    sys.exit(main())
