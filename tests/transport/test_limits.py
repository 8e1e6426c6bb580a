"""Hostile and broken peers cost the others nothing; TLS where both announce it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from qmnode import Access, Message, QueueManager
from qmnode.delivery.topology import Resolver
from qmnode.protocol.connection import NextHop
from qmnode.settings.security import SecuritySettings
from qmnode.shares import HELD_BYTES
from qmnode.structures.guid import new_guid
from qmnode.structures.user_message import DirectQueueFormatName, SecurityHeader
from qmnode.transport.connection import BUFFER_SIZE
from tests.conformance.frames import FRAMES
from tests.lab.waiting import eventually
from tests.protocol.machines import message
from tests.security.test_tls import node as tls_settings
from tests.transport.conftest import PLAIN, Pair, loopback_address, settings_of
from tests.transport.hostile import HostilePeer


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Whether the other side closes, without an answer."""
    try:
        async with asyncio.timeout(60):
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


async def test_connections_that_say_nothing_keep_nobody_out(tmp_path: Path) -> None:
    """Not even when they come from many addresses; and no session at work makes room for them."""
    addresses = {"ALICE": loopback_address(), "BOB": loopback_address()}
    bobs = settings_of("BOB", addresses["BOB"], sessions=6, sessions_per_peer=3)
    async with (
        QueueManager.open(tmp_path / "a", settings_of("ALICE", addresses["ALICE"])) as alice,
        QueueManager.open(tmp_path / "b", bobs) as bob,
    ):
        for node in (alice, bob):
            await node.network.start()
        await bob.create_queue(PLAIN)
        await bob.create_queue(r".\private$\more")
        queue = await bob.open_queue(f"DIRECT=OS:{PLAIN}")
        out = await alice.open_queue(rf"DIRECT=TCP:{addresses['BOB']}\private$\plain", Access.SEND)
        await out.send(Message(b"1"))
        assert (await queue.receive(timeout=60)).body == b"1"
        async with AsyncExitStack() as stack:
            for last in range(1, 21):
                peer = await stack.enter_async_context(HostilePeer(f"127.9.8.{last}", addresses["BOB"]))
                if last % 2:
                    await peer.establish(new_guid())
            await eventually(lambda: len(bob.network.accepted) == 6)
            await out.send(Message(b"2"))
            assert (await queue.receive(timeout=60)).body == b"2"
            more = await alice.open_queue(rf"DIRECT=TCP:{addresses['BOB']}\private$\more", Access.SEND)
            await more.send(Message(b"3"))
            queue = await bob.open_queue(r"DIRECT=OS:.\private$\more")
            assert (await queue.receive(timeout=60)).body == b"3"
            assert sum(one.received_messages for one in bob.network.connections()) == 3


async def test_half_packets_of_all_connections_have_one_limit(tmp_path: Path) -> None:
    """An address over its share is not read, and gives up packets that come no further while others of it wait."""
    address = loopback_address()
    settings = settings_of("BOB", address, incomplete_bytes=32 * 1024 * 1024)
    large = message(1, body=bytes(4_000_000))
    async with QueueManager.open(tmp_path, settings) as node, AsyncExitStack() as stack:
        await node.network.start()
        await node.create_queue(PLAIN)
        patient = await stack.enter_async_context(HostilePeer("127.9.7.1", address))
        await patient.establish(new_guid())
        slow = message(
            2, queue=DirectQueueFormatName(direct_format_name=rf"TCP:{address}\private$\plain"), body=bytes(90_000)
        )
        patient.send(slow[:50_000])
        await patient.flush()
        peers = []
        for _ in range(12):
            peer = await stack.enter_async_context(HostilePeer("127.9.7.2", address))
            await peer.establish(new_guid())
            peer.send(large[:900_000])
            await peer.flush()
            peers.append(peer)
        assert await peers[0].is_closed()
        held = [one.session.incomplete() for one in node.network.accepted]
        assert sum(held) <= 12 * 1024 * 1024
        patient.send(slow[50_000:])
        queue = await node.open_queue(f"DIRECT=OS:{PLAIN}")
        assert len((await queue.receive(timeout=60)).body) == 90_000
        for peer in peers:
            await peer.__aexit__()
        await eventually(lambda: len(node.network.accepted) == 1)
        (account,) = [one for one in node.context.shares if one.resource is HELD_BYTES]
        assert sum(account.used.values()) == 0


async def test_large_messages_that_wait_for_the_directory_are_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window of the largest messages is 256 MiB: the socket is no longer read long before."""
    address, answered = loopback_address(), asyncio.Event()
    name = DirectQueueFormatName(direct_format_name=rf"TCP:{address}\private$\plain")
    signed = SecurityHeader(signature=bytes(64), sender_cert=b"certificate")
    async with QueueManager.open(tmp_path, settings_of("BOB", address)) as node:
        await node.network.start()
        await node.create_queue(PLAIN)
        judge = node.network.security.admission.judge

        async def slowly(arrivals: Any, now: float) -> Any:
            await answered.wait()
            return await judge(arrivals, now)

        monkeypatch.setattr(node.network.security.admission, "judge", slowly)
        async with HostilePeer("127.9.7.3", address) as peer:
            await peer.establish(new_guid())
            for number in range(1, 13):
                peer.send(message(number, queue=name, body=bytes(4_000_000), security_header=signed))
            total, times = node.network.settings.incomplete_bytes, HELD_BYTES.times_free
            share = min(HELD_BYTES.block, (1 - HELD_BYTES.reserve) * times / (1 + times)) * total
            await eventually(lambda: any(one.charged >= share for one in node.network.accepted))
            (connection,) = node.network.accepted
            before = connection.received_bytes
            await asyncio.sleep(0.2)  # nothing comes: there is nothing to wait for
            assert connection.received_bytes == before < 4_100_000 + share + 2 * BUFFER_SIZE
            answered.set()
            queue = await node.open_queue(f"DIRECT=OS:{PLAIN}")
            for _ in range(12):
                assert len((await queue.receive(timeout=60)).body) == 4_000_000


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
