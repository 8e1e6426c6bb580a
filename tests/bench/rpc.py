"""Remote reads on loopback, from other processes: one after the other, and 8 clients with receives in a row.

Over RemoteRead (MS-MQRR), and over MS-MQQP from a server that has only that, in turns.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from qmnode import Access, Message, MessageQueuingError, QueueManager
from qmnode.directory.port import WorkgroupDirectory
from qmnode.remote_read.client_interfaces import RemoteNode, RemoteReadOptions
from qmnode.remote_read.server import RemoteReadServer
from qmnode.settings.node import Settings
from qmnode.settings.remote_read import RemoteReadSettings
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.names import parse_single_format_name
from tests.bench import Comparison, bench
from tests.bench.bare_calls import bare_calls
from tests.bench.node import in_directory
from tests.lab.addresses import free_port
from tests.remote_read.conftest import OPEN, without_remote_read

if TYPE_CHECKING:
    from pathlib import Path

ADDRESS: Final = "127.0.0.1"
QUEUE: Final = r".\private$\bench"
NAME: Final = parse_single_format_name(rf"DIRECT=TCP:{ADDRESS}\private$\bench")
CLIENTS: Final = 8
WINDOW: Final = 32
"""Receives that each client has under way."""
MESSAGES: Final = 6_000
ROUND_TRIPS: Final = 500
CALLS: Final = 64_000
OUTSTANDING: Final = 32
ROUNDS: Final = 3
BODY: Final = bytes(1024)
ROUND_TRIP_BAR: Final = 0.002
RECEIVES_BAR: Final = 5_000
BARE_CALL: Final = 11_900
BARE_CALLS: Final = 109_000
"""What a bare server did on the machine that these bars are for: calls a second one at a time, and 32 at a time."""


def read(mapper: int, clients: int, window: int, pipe: Any) -> None:
    """The other process: ``clients`` connections with ``window`` receives each, until nothing is left."""

    async def receive(queue: Any, times: list[float]) -> int:
        taken = 0
        while True:
            begin = perf_counter()
            try:
                await queue.receive(0)
            except MessageQueuingError as error:
                if error.code is not ErrorCode.MQ_ERROR_IO_TIMEOUT:
                    raise
                return taken
            times.append(perf_counter() - begin)
            taken += 1

    async def run() -> None:
        options = RemoteReadOptions(endpoint_mapper_port=mapper)
        nodes = [await RemoteNode.connect(ADDRESS, options) for _ in range(clients)]
        queues = [await node.open_queue(NAME) for node in nodes]
        pipe.send("ready")
        pipe.recv()
        times: list[float] = []
        begin = perf_counter()
        taken = await asyncio.gather(*(receive(queue, times) for queue in queues for _ in range(window)))
        pipe.send((sum(taken), perf_counter() - begin, median(times)))
        for node in nodes:
            await node.close()

    asyncio.run(run())


async def measure(
    directory: Path, clients: int, window: int, messages: int, *, older: bool = False
) -> tuple[int, float, float]:
    """Messages, seconds, and the median of a receive; ``older``: over MS-MQQP."""
    mapper = free_port()
    settings = RemoteReadSettings(enabled=True, address=ADDRESS, port=0, endpoint_mapper_port=mapper)
    async with QueueManager.open(directory / f"node-{clients}", Settings(remote_read=settings)) as manager:
        await manager.create_queue(QUEUE, security=OPEN)
        server = RemoteReadServer(manager, settings, WorkgroupDirectory())
        if older:
            without_remote_read(server)
        await server.start()
        sender = await manager.open_queue(rf"DIRECT=OS:{QUEUE}", Access.SEND)
        for _ in range(0, messages, 500):
            await sender.send_many([Message(BODY, recoverable=True) for _ in range(500)])
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=read, args=(mapper, clients, window, there))
        process.start()
        try:
            await asyncio.to_thread(here.recv)
            here.send("go")
            result: tuple[int, float, float] = await asyncio.to_thread(here.recv)
        finally:
            await asyncio.to_thread(process.join, 30)
            await server.stop()
        return result


@bench("rpc")
def rpc() -> list[Comparison]:
    """A receive is two calls: the message is locked and comes, then it is acknowledged and off the disk.

    The bars of a machine of its own, and as many times a small call of a bare server, measured in turns.
    """
    one, many = "receive, one at a time", f"receive, {CLIENTS} clients"
    older = ", MS-MQQP"
    times: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        times.setdefault("call", []).append(asyncio.run(bare_calls(1, CALLS // 10)))
        for name in ("", older):
            _, _, each = _measured(1, 1, ROUND_TRIPS, name == older)
            times.setdefault(one + name, []).append(each)
        times.setdefault("calls", []).append(asyncio.run(bare_calls(OUTSTANDING, CALLS)))
        for name in ("", older):
            taken, seconds, _ = _measured(CLIENTS, WINDOW, MESSAGES, name == older)
            times.setdefault(many + name, []).append(seconds / taken)
    found = {name: median(each) for name, each in times.items()}
    calls, ratio = f"bare call, {OUTSTANDING} at a time", BARE_CALLS / RECEIVES_BAR
    return [
        Comparison(one, found[one], "2 ms", ROUND_TRIP_BAR, 1.0),
        Comparison(many, found[many], f"{RECEIVES_BAR:,} a second", 1 / RECEIVES_BAR, 1.0),
        Comparison(one, found[one], "bare call", found["call"], ROUND_TRIP_BAR * BARE_CALL),
        Comparison(many, found[many], calls, found["calls"], ratio),
        Comparison(one, found[one], one + older, found[one + older], None),
        Comparison(many, found[many], many + older, found[many + older], None),
        Comparison(many + older, found[many + older], calls, found["calls"], None),
    ]


def _measured(clients: int, window: int, messages: int, older: bool) -> tuple[int, float, float]:
    return in_directory(lambda directory: asyncio.run(measure(directory, clients, window, messages, older=older)))
