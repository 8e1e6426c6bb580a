"""The processes of an end-to-end bench: two nodes, an application that sends and one that receives.

``way_parties.py node FOLDER NAME ADDRESS [TLS [COPY [COLLECTOR]]]``, ``way_parties.py sender SOCKET QUEUE`` and
``way_parties.py receiver SOCKET QUEUE`` each print ``ready``. For every line of standard input they do what it asks and
print their seconds of processor so far. The module imports only the package, so that it can run on another tree of
sources. Nodes have the event loop that ``qmnode run`` would give them, and applications the same.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import random
import struct
import sys
from itertools import islice
from pathlib import Path
from time import monotonic, process_time
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

import qmnode
from qmnode import Access, Message, QueueManager, Settings
from qmnode.local.server import LocalServer, LocalSettings

try:
    from qmnode.event_loop import loop_factory
except ModuleNotFoundError:  # a tree that knows no other loops

    def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
        return None


try:
    from qmnode.allocator import keep_freed_memory
except ModuleNotFoundError:  # a tree whose nodes leave the allocator as it is

    def keep_freed_memory() -> None:
        pass


if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from qmnode.model.api import QueueApi

BATCH: Final = 100
PIPELINED: Final = 10
"""Batches that are sent or received side by side."""
OUTSTANDING: Final = 64
SIZE: Final = 1024
LARGEST: Final = 4_190_000
"""A message of 4 MB: with its headers it has at most 4 MiB."""
BODY: Final = random.Random(18).randbytes(LARGEST)
EXPRESS: Final = "express-"
FEW: Final = 4
"""Large messages that are sent or received side by side."""


STAMP: Final = struct.Struct("<d")
"""The monotonic clock, which all processes of a machine share."""


async def answer(ask: Callable[[list[str]], Awaitable[object]]) -> None:
    """Do what each line asks; then print the seconds of processor so far, and behind them what came of it, if anything
    did.
    """
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    print("ready", flush=True)
    while line := await lines.readline():
        result = await ask(line.decode().split())
        print(process_time(), *(() if result is None else (result,)), flush=True)


def security(folder: str) -> dict[str, object]:
    """With a folder of certificates, TLS with all nodes."""
    if not folder:
        return {}
    files = {
        name: f"{folder}/{name.removeprefix('private_')}" for name in ("certificate", "private_key", "authorities")
    }
    return {"tls": {**files, "peers": ["*"]}}


def storage(copy: str) -> dict[str, object]:
    """With a folder for it, a copy elsewhere; the passphrase is in the file ``copy.key`` beside that folder."""
    return {"remote_copy": {"to": copy, "key": str(Path(copy).with_name("copy.key"))}} if copy else {}


def telemetry(collector: str) -> dict[str, object]:
    """With the address of a collector, spans of one message in a hundred."""
    spans = {"endpoint": collector, "sampling": 0.01, "metrics_seconds": 0}
    return {"telemetry": spans} if collector else {}  # earlier trees have no such setting


async def node(folder: str, name: str, address: str, tls: str = "", copy: str = "", collector: str = "") -> None:
    """A node with a queue, a socket for applications and connections to other nodes."""
    keep_freed_memory()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))  # answers are on standard output
    place = Path(folder)
    settings = Settings(
        computer_name=name,
        quotas={"queue_manager_quota": 0xFFFFFFFF},  # type: ignore[arg-type]
        transport={"address": address},  # type: ignore[arg-type]
        transfer={"retry_interval": 0.1},  # type: ignore[arg-type]
        security=security(tls),  # type: ignore[arg-type]
        storage=storage(copy),  # type: ignore[arg-type]
        **telemetry(collector),  # type: ignore[arg-type]
    )
    async with QueueManager.open(place / "store", settings) as manager:
        await manager.create_queue(r".\private$\way")
        await manager.network.start()
        server = LocalServer(manager, LocalSettings(socket=place / "node.sock"))
        await server.start()
        gc.collect()
        gc.freeze()  # as a node does that is ready (qmnode/service.py)

        async def export(words: list[str]) -> None:
            if words and manager.telemetry is not None:
                await manager.telemetry.send_spans()

        await answer(export)
        await server.stop()


class Content(NamedTuple):
    """What an application has before it makes a message of it."""

    body: bytes
    label: str
    app_specific: int
    recoverable: bool = True

    def message(self) -> Message:
        """A message of it."""
        return Message(self.body, recoverable=self.recoverable, label=self.label, app_specific=self.app_specific)


@functools.cache
def contents(kind: str, count: int) -> list[Content]:
    """What is sent, made before it is measured: bodies of 1 KiB that are all ``alike``, or ``varied`` in the sizes of
    their labels and bodies. Or, with a number as the kind, of so many bytes, recoverable or ``express-`` and a number.
    """
    if (size := kind.removeprefix(EXPRESS)).isdigit():
        return [Content(BODY[: int(size)], "large", 0, recoverable=size == kind)] * count
    if kind == "alike":
        return [Content(BODY[:SIZE], "order", 0)] * count
    dice = random.Random(count)
    sizes = [dice.randrange(SIZE // 2, SIZE * 3 // 2) for _ in range(count)]
    return [Content(BODY[:size], f"order {size:0{size % 40 + 1}}", number) for number, size in enumerate(sizes)]


async def side_by_side(call: Callable[[], Awaitable[object]], count: int, outstanding: int) -> None:
    """So many calls, several at a time."""
    left = iter(range(count))

    async def worker() -> None:
        for _ in left:
            await call()

    await asyncio.gather(*(worker() for _ in range(outstanding)))


async def send(queue: QueueApi, how: str, kind: str, count: int) -> None:
    """Send messages, in batches or one by one."""
    if how == "paced":
        await send_paced(queue, float(kind), count)
        return
    left = iter(contents(kind, count))
    if how in ("singly", "large"):
        await side_by_side(lambda: queue.send(next(left).message()), count, OUTSTANDING if how == "singly" else FEW)
        return
    outstanding = PIPELINED if how == "pipelined" else 1
    await side_by_side(
        lambda: queue.send_many([one.message() for one in islice(left, BATCH)]), count // BATCH, outstanding
    )


async def send_paced(queue: QueueApi, rate: float, count: int) -> None:
    """Send so many messages a second, evenly; each body begins with the time at which it was to be sent, so that
    a sender that is late counts.
    """
    start = monotonic()
    sending = []
    for number in range(count):
        due = start + number / rate
        if (wait := due - monotonic()) > 0:
            await asyncio.sleep(wait)
        body = STAMP.pack(due) + BODY[: SIZE - STAMP.size]
        sending.append(asyncio.ensure_future(queue.send(Message(body, recoverable=True, label="paced"))))
    await asyncio.gather(*sending)


async def receive(queue: QueueApi, how: str, count: int) -> str | None:
    """Receive messages and read the body and the label of each. Of paced ones, return the seconds from sending to
    receiving that half of them and 99 of 100 kept within.
    """
    taken: list[float] = []

    def read(message: Message) -> None:
        if not message.body or not message.label:
            raise ValueError(f"a message came without its content: {message!r}")
        if how == "paced":
            taken.append(monotonic() - STAMP.unpack_from(message.body)[0])

    left = count

    async def one() -> None:
        read(await queue.receive())

    async def some() -> None:
        nonlocal left
        while left > 0:
            asked = min(BATCH, left)
            left -= asked
            taken = await queue.receive_many(asked)
            left += asked - len(taken)
            for message in taken:
                read(message)

    if how in ("singly", "paced", "large"):
        await side_by_side(one, count, FEW if how == "large" else OUTSTANDING)
    else:
        await asyncio.gather(*(some() for _ in range(PIPELINED if how == "pipelined" else 1)))
    if not taken:
        return None
    taken.sort()
    return f"{taken[len(taken) // 2]} {taken[len(taken) * 99 // 100]}"


async def application(role: str, socket: str, name: str) -> None:
    """An application: its lines are HOW KIND COUNT, or empty for its processor time only."""
    async with qmnode.connect(socket) as manager:
        queue = await manager.open_queue(name, Access.SEND if role == "sender" else Access.RECEIVE)

        async def ask(words: list[str]) -> str | None:
            match words:
                case [how, kind, count] if role == "sender":
                    await send(queue, how, kind, int(count))
                case [how, _, count]:
                    return await receive(queue, how, int(count))
            return None

        await answer(ask)


if __name__ == "__main__":
    role, *rest = sys.argv[1:]
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(node(*rest) if role == "node" else application(role, *rest))
