"""Node to node, two processes on one machine: rates from the first send to the last acknowledgment, and latency.

Between the rounds bare frames go from process to process: a machine's own speed is in both.

``python -m tests.bench.transport receive FOLDER ADDRESS`` is the other process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from time import monotonic, perf_counter, process_time
from typing import TYPE_CHECKING, Any, Final

from qmnode import Access, Message, QueueManager, Settings
from qmnode.settings.security import SecuritySettings
from tests.bench import Comparison, absolute, bare, bench
from tests.bench.peer import Peer, loopback_address, say_processor_time, tls_in
from tests.security.certificates import tls_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterator

    from qmnode.model.api import QueueApi
    from qmnode.settings.security import TlsSettings

BODY: Final = os.urandom(1024)
TOTAL: Final = 38_400
"""Enough that the last half second, in which the timers wait for more to acknowledge, does not say it all."""
BATCH: Final = 100
SENDERS: Final = 4
"""Tasks of the application that send at the same time, each a batch after the other: they share their syncs."""
ROUNDS: Final = 5
PINGS: Final = 200
PLAIN: Final = r"private$\plain"
TRANSACTIONAL: Final = r"private$\tx"
ECHO: Final = r"private$\echo"
PROCESSOR: Final = 40e-6
"""Seconds of processor for a message on each side: what two cores need for 25,000 a second."""
RATES: Final = {"recoverable": 20_000, "transactional": 15_000, "express": 40_000}
SHARES: Final = {"recoverable": 20 / 52, "transactional": 15 / 52}
"""Of the rate of bare frames, which was 52,000 a second on the machine of the rates; for express none is given."""
LATENCY: Final = 3e-3
TLS: Final = "tls"
"""As the kind of connections; an empty one is in clear."""
OVER: Final = ("", " over TLS")
TLS_ROUNDS: Final = 3
TLS_BUDGET: Final = 8e-6
"""Seconds of processor that TLS may add to a message on each side."""
SIDES: Final = {"recoverable": (2.0, 1.7)}
"""The most processor that a message may take of the sender and of the receiver, in bare frames."""
Taken = tuple[float, float, float]


def settings(name: str, address: str, tls: TlsSettings | None = None) -> Settings:
    return Settings(
        computer_name=name,
        quotas={"queue_manager_quota": 0xFFFFFFFF},  # type: ignore[arg-type]
        transport={"address": address},  # type: ignore[arg-type]
        transfer={"retry_interval": 0.1},  # type: ignore[arg-type]
        security=SecuritySettings(tls=tls),
    )


async def receive(folder: Path, address: str, kind: str = "") -> None:
    """The other node: says its processor time for every line that it gets, and when a message of ECHO came."""
    tls = tls_in(folder, address) if kind == TLS else None
    async with QueueManager.open(folder / "receiver", settings("RECEIVER", address, tls)) as qm:
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


async def latency(out: QueueApi, peer: Peer, sender: bare.Sender) -> tuple[float, float]:
    """Median seconds from the call of send to the message's being received on the other node; and of a bare
    frame to its acknowledgment, in turns."""
    times, bared = [], []
    for _ in range(PINGS):
        start = monotonic()
        await out.send(Message(BODY, recoverable=True))
        times.append(float(await asyncio.to_thread(peer.line)) - start)
        start = monotonic()
        await sender.transfer(1, recoverable=True)
        bared.append(monotonic() - start)
    return statistics.median(times), statistics.median(bared)


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """On the disk of the working directory: memory file systems sync nothing."""
    made = Path(tempfile.mkdtemp(prefix=".bench-", dir=Path.cwd()))
    try:
        yield made
    finally:
        shutil.rmtree(made)


@contextlib.asynccontextmanager
async def nodes(place: Path, kind: str = "") -> AsyncIterator[tuple[QueueManager, Peer, str]]:
    """Over TLS if ``kind`` says so."""
    address, own = loopback_address(), loopback_address()
    place.mkdir(exist_ok=True)
    tls = None
    if kind == TLS:
        tls_of(place, address)  # for the other process
        tls = tls_of(place, own, number=1)
    peer = Peer("tests.bench.transport", place, address, kind)
    try:
        async with QueueManager.open(place / "sender", settings("SENDER", own, tls)) as qm:
            await qm.network.start()
            yield qm, peer, address
    finally:
        peer.stop()


@contextlib.asynccontextmanager
async def frames(place: Path, kind: str = "") -> AsyncIterator[tuple[bare.Sender, Peer]]:
    """Over TLS if ``kind`` says so."""
    address = loopback_address()
    place.mkdir(exist_ok=True)
    tls = None
    if kind == TLS:
        tls_of(place, address)  # for the other process
        tls = tls_of(place, loopback_address(), number=1)
    peer = Peer("tests.bench.bare", place, address, kind)
    try:
        async with bare.connect(place, address, tls) as sender:
            yield sender, peer
    finally:
        peer.stop()


async def timed(transferring: Awaitable[None], peer: Peer) -> Taken:
    """For a message: seconds, and of processor on each side."""
    there, here, start = peer.processor(), process_time(), perf_counter()
    await transferring
    taken = perf_counter() - start, process_time() - here, peer.processor() - there
    return taken[0] / TOTAL, taken[1] / TOTAL, taken[2] / TOTAL


async def measure(place: Path) -> tuple[dict[str, list[Taken]], dict[bool, list[Taken]], tuple[float, float]]:
    """Every round of each kind, and of bare frames by whether they are synced; and the latency of both."""
    measured: dict[str, list[Taken]] = {kind: [] for kind in RATES}
    bared: dict[bool, list[Taken]] = {True: [], False: []}
    async with nodes(place) as (qm, peer, address), frames(place) as (sender, bare_peer):
        opened = {}
        for queue in (PLAIN, TRANSACTIONAL, ECHO):
            name = rf"DIRECT=TCP:{address}\{queue}"
            opened[queue] = name, await qm.open_queue(name, Access.SEND)
        await latency(opened[ECHO][1], peer, sender)
        for _ in range(ROUNDS):
            for kind in RATES:
                name, out = opened[TRANSACTIONAL if kind == "transactional" else PLAIN]
                measured[kind].append(await timed(transfer(qm, out, kind, name), peer))
                if kind != "transactional":
                    synced = kind == "recoverable"
                    bared[synced].append(await timed(sender.transfer(TOTAL, recoverable=synced), bare_peer))
        return measured, bared, await latency(opened[ECHO][1], peer, sender)


def medians_of(rounds: list[Taken]) -> Taken:
    seconds, here, there = map(statistics.median, zip(*rounds, strict=True))
    return seconds, here, there


@bench("transport")
def transport() -> list[Comparison]:
    """Rates and their shares of bare frames', processor of both sides, latency."""
    with folder() as place:
        measured, bared, (delay, bare_delay) = asyncio.run(measure(place))
    lines = []
    for kind, rate in RATES.items():
        seconds, here, there = medians_of(measured[kind])
        baseline, bare_here, bare_there = medians_of(bared[kind != "express"])
        share = SHARES.get(kind)
        named = "bare frames" if share is None else f"bare frames (at least {share:.0%} of their rate)"
        sender, receiver = SIDES.get(kind, (None, None))
        lines += [
            Comparison(kind, seconds, named, baseline, None if share is None else 1 / share),
            absolute(kind, seconds, f"{rate:,} a second", 1 / rate, baseline / (share or 1)),
            Comparison(f"{kind}: processor of the sender", here, "bare frames", bare_here, sender),
            Comparison(f"{kind}: processor of the receiver", there, "bare frames", bare_there, receiver),
            Comparison(f"{kind}: processor of both", here + there, "budget", 2 * PROCESSOR),
        ]
    lines += [
        Comparison("one message, median", delay, "a bare frame, until it is acknowledged", bare_delay),
        Comparison("one message, median", delay, "latency", LATENCY, 1.0),
    ]
    return lines


async def measure_tls(place: Path) -> dict[str, list[Taken]]:
    """Every round of nodes and of bare frames, in clear and over TLS: "nodes", "nodes over TLS" and so on."""
    measured: dict[str, list[Taken]] = {}
    async with contextlib.AsyncExitStack() as stack:
        opened = []
        for kind in ("", TLS):
            qm, peer, address = await stack.enter_async_context(nodes(place / f"nodes{kind}", kind))
            name = rf"DIRECT=TCP:{address}\{PLAIN}"
            opened.append((qm, await qm.open_queue(name, Access.SEND), name, peer))
        senders = [await stack.enter_async_context(frames(place / f"frames{kind}", kind)) for kind in ("", TLS)]
        for number in range(TLS_ROUNDS + 1):
            for over, (qm, out, name, peer), (sender, bare_peer) in zip(OVER, opened, senders, strict=True):
                taken = await timed(transfer(qm, out, "recoverable", name), peer)
                bared = await timed(sender.transfer(TOTAL, recoverable=True), bare_peer)
                if number:  # sessions are open, and caches are warm
                    measured.setdefault(f"nodes{over}", []).append(taken)
                    measured.setdefault(f"frames{over}", []).append(bared)
    return measured


@bench("transport over TLS")
def transport_over_tls() -> list[Comparison]:
    """Processor that TLS adds to a recoverable message on each side, and what it adds to bare frames."""
    with folder() as place:
        measured = {name: medians_of(rounds) for name, rounds in asyncio.run(measure_tls(place)).items()}
    lines = []
    for side, at in (("sender", 1), ("receiver", 2)):
        more, bare_more = (measured[f"{kind} over TLS"][at] - measured[kind][at] for kind in ("nodes", "frames"))
        whole, bare_whole = (measured[f"{kind} over TLS"][at] for kind in ("nodes", "frames"))
        lines += [
            Comparison(f"processor of the {side} over TLS", whole, "bare frames over TLS", bare_whole),
            Comparison(f"processor of the {side}, more over TLS", more, "budget", TLS_BUDGET, 1.0),
            Comparison(f"processor of the {side}, more over TLS", more, "bare frames, more over TLS", bare_more),
        ]
    return lines


if __name__ == "__main__":
    asyncio.run(receive(Path(sys.argv[2]), *sys.argv[3:]))
