"""Large messages are handed on in the memory that they were read into; neither strangers nor an application that does
not read keep all of it.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

import qmnode
from qmnode import Access, Message
from qmnode.allocator import LEFT_TO_LEND, lendable
from qmnode.local import values
from qmnode.local.frames import FOR_EVER, GREETING, RECEIVE_HEAD, FrameKind, frame
from qmnode.local.server import LocalServer
from qmnode.settings.node import LocalSettings
from tests.lab.waiting import eventually
from tests.transport.conftest import PLAIN, Pair, loopback_address

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

LARGE = 400_000
HERE = f"DIRECT=OS:{PLAIN}"


@pytest.fixture
async def door(own_memory: None, pair: Pair, tmp_path: Path) -> AsyncIterator[Path]:
    """The socket of BOB, for applications in threads of their own: they have other memory to lend."""
    path = tmp_path / "bob.sock"
    server = LocalServer(pair.bob, LocalSettings(socket=path))
    await server.start()
    yield path
    await server.stop()


async def send(pair: Pair, name: str, body: bytes) -> None:
    """Send a message to BOB once somebody waits for it."""
    queue = (await pair.bob.open_queue(HERE)).queue  # type: ignore[attr-defined]
    await eventually(lambda: queue.waiting, "somebody waits")
    before = queue.tally.arrived
    out = await pair.nodes[name].open_queue(pair.direct("BOB", PLAIN), Access.SEND)
    await out.send(Message(body, recoverable=True))
    await eventually(lambda: queue.tally.arrived > before and not queue.message_count, "it is handed on")


def received(path: Path, count: int) -> list[bytes]:
    """The bodies that an application receives, one by one."""

    async def receive() -> list[bytes]:
        async with qmnode.connect(path) as manager:
            queue = await manager.open_queue(HERE)
            return [(await queue.receive(60)).body for _ in range(count)]

    return asyncio.run(receive())


async def test_the_latest_messages_of_many_strangers_leave_memory_to_others(pair: Pair, door: Path) -> None:
    strangers = [f"P{number}" for number in range(6)]
    for name in strangers:
        pair.addresses[name] = loopback_address()
        await pair.start(name)
    bodies = [bytes([number]) * LARGE for number in range(3 * len(strangers))]
    receiving = asyncio.ensure_future(asyncio.to_thread(received, door, len(bodies)))
    for number, body in enumerate(bodies):
        await send(pair, strangers[number // 3], body)
    assert await receiving == bodies
    await eventually(lambda: lendable() > LEFT_TO_LEND, "others can be lent memory")


async def test_an_application_that_does_not_read_leaves_memory_to_others(pair: Pair, door: Path) -> None:
    count = 12
    with socket.socket(socket.AF_UNIX) as slow:
        slow.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(slow, str(door))
        opened = values.encode(["manager", 0, "open_queue", [HERE, int(Access.RECEIVE), 0], {}])
        for call in (frame(FrameKind.HELLO, 1, values.encode(GREETING)), frame(FrameKind.CALL, 2, opened)):
            await loop.sock_sendall(slow, call)
            assert await loop.sock_recv(slow, 1000)
        for number in range(count):
            head = RECEIVE_HEAD.pack(1, 0, 1, FOR_EVER)
            await loop.sock_sendall(slow, frame(FrameKind.RECEIVE, 10 + number, head))
        for number in range(count):
            await send(pair, "ALICE", bytes([number]) * LARGE)
        assert lendable() >= LEFT_TO_LEND

        took = bytearray()
        while len(took) < count * LARGE:
            part = await asyncio.wait_for(loop.sock_recv(slow, 1 << 20), 60)
            assert part, "the node closed the connection"
            took += part
        assert all(bytes([number]) * LARGE in took for number in range(count))
    await eventually(lambda: lendable() > LEFT_TO_LEND, "it has let go of its memory")
