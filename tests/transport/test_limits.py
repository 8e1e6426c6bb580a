"""Hostile and broken peers cost the others nothing; TLS where both announce it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from qmnode import Access, Message, QueueManager
from qmnode.protocol.connection import NextHop
from qmnode.security_settings import SecuritySettings
from qmnode.transfer.next_hops import Resolver
from tests.conformance.frames import FRAMES
from tests.security.test_tls import node as tls_settings
from tests.transport.conftest import PLAIN, Pair, eventually, loopback_address, settings_of


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Whether the other side closes, without an answer."""
    try:
        async with asyncio.timeout(10):
            return await reader.read() == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n" * 4,
        bytes(64),
        FRAMES[6].data,
        FRAMES[4].data,
        b"\x10\0\x08\0LIOR\xff\xff\xff\x7f" + bytes(64),
    ],
    ids=["http", "zeros", "a message first", "parameters first", "an oversized length"],
)
async def test_garbage_closes_its_own_session_only(pair: Pair, data: bytes) -> None:
    out = await pair.alice.open_queue(pair.direct("BOB", PLAIN), Access.SEND)
    reader, writer = await asyncio.open_connection(pair.addresses["BOB"], 1801)
    writer.write(data)
    assert await is_closed(reader)
    writer.close()
    await out.send(Message(b"unharmed"))
    queue = await pair.bob.open_queue(f"DIRECT=OS:{PLAIN}")
    assert (await queue.receive(timeout=60)).body == b"unharmed"


async def test_a_peer_has_a_limit_of_sessions_and_others_have_theirs(tmp_path: Path) -> None:
    address = loopback_address()
    async with QueueManager.open(tmp_path, settings_of("BOB", address, sessions=8, sessions_per_peer=3)) as node:
        await node.network.start()
        opened = [await asyncio.open_connection(address, 1801, local_addr=("127.9.9.9", 0)) for _ in range(5)]
        await eventually(lambda: len(node.network.accepted) == 3)
        assert [await is_closed(reader) for reader, _ in opened[3:]] == [True, True]
        other = await asyncio.open_connection(address, 1801, local_addr=("127.9.9.8", 0))
        await eventually(lambda: len(node.network.accepted) == 4)
        for _, writer in (*opened, other):
            writer.close()
        await eventually(lambda: not node.network.accepted)
        opened = [await asyncio.open_connection(address, 1801, local_addr=("127.9.9.9", 0)) for _ in range(3)]
        await eventually(lambda: len(node.network.accepted) == 3)
        for _, writer in opened:
            writer.close()


class Named(Resolver):
    """Says what a name server would."""

    def __init__(self, address: str) -> None:
        self.address = address

    async def next_hops(self, format_name: str) -> list[NextHop]:
        return [NextHop(self.address, "bob.example")]


async def test_nodes_that_both_announce_tls_speak_it_and_nothing_else_is_taken(tmp_path: Path) -> None:
    addresses = {"alice.example": loopback_address(), "bob.example": loopback_address()}
    nodes = {}
    for number, (name, address) in enumerate(addresses.items()):
        (tmp_path / name).mkdir()
        tls = tls_settings(tmp_path / name, name, number)
        settings = settings_of(name[:3].upper(), address).model_copy(update={"security": SecuritySettings(tls=tls)})
        nodes[name] = await QueueManager.open(tmp_path / name / "store", settings)
        await nodes[name].network.start()
    alice, bob = nodes.values()
    try:
        alice.network.resolver = Named(addresses["bob.example"])
        await bob.create_queue(PLAIN)
        out = await alice.open_queue(rf"DIRECT=TCP:{addresses['bob.example']}\private$\plain", Access.SEND)
        await out.send(Message(b"through TLS" * 100))
        queue = await bob.open_queue(f"DIRECT=OS:{PLAIN}")
        assert (await queue.receive(timeout=60)).body == b"through TLS" * 100
        reader, writer = await asyncio.open_connection(addresses["bob.example"], 1801)
        writer.write(FRAMES[2].data)
        assert await is_closed(reader)
        writer.close()
    finally:
        for node in nodes.values():
            await node.close()
