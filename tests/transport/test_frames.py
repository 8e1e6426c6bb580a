"""MS-MQQB 4.1 over sockets: our node answers the example's frames, and produces frames 3, 5 and 7."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from qmnode import Access, QueueManager
from qmnode.delivery.notices import next_position
from qmnode.delivery.topology import Resolver
from qmnode.model.positions import SystemClock
from qmnode.model.stored_message import value_of_packet
from qmnode.protocol.connection import NextHop
from qmnode.settings.node import Settings, TransportSettings
from qmnode.settings.protocol import SessionSettings
from qmnode.structures.guid import Guid
from qmnode.structures.names import parse_single_format_name
from tests.conformance.frames import FRAMES
from tests.transport.conftest import loopback_address

CLIENT: Final = Guid(FRAMES[2].data[20:36])
SERVER: Final = Guid(FRAMES[2].data[36:52])
SENT: Final = 1_141_966_310
TIME_STAMP: Final = slice(52, 56)
RECOVERABLE_ACK_TIMEOUT: Final = slice(20, 24)
"""In frame 5: eight measured round trips."""


def frame(number: int) -> bytes:
    return FRAMES[number - 1].data


def without(packet: bytes, *places: slice) -> bytes:
    """A packet without what may differ: BaseHeader.Reserved, and these places."""
    masked = bytearray(packet)
    for place in (slice(1, 2), *places):
        masked[place] = bytes(len(masked[place]))
    return bytes(masked)


class ClockOfTheExample(SystemClock):
    def time(self) -> float:
        return float(SENT)


class Answers(Resolver):
    """What a directory would say of the example's server."""

    def __init__(self, address: str) -> None:
        self.address = address

    async def next_hops(self, format_name: str) -> list[NextHop]:
        return [NextHop(self.address, "SERVER", SERVER)]


@pytest.fixture
async def address() -> str:
    return loopback_address()


async def node_of(folder: Path, address: str, identifier: Guid) -> QueueManager:
    settings = Settings(
        transport=TransportSettings(address=address), session=SessionSettings(ack_wait_timeout_ms=120_000)
    )
    node = await QueueManager.open(folder / "store", settings, ClockOfTheExample())
    node.adopt_identifier(identifier)
    await node.network.start()
    return node


@pytest.fixture
async def server(tmp_path: Path, address: str) -> AsyncIterator[QueueManager]:
    node = await node_of(tmp_path, address, SERVER)
    yield node
    await node.close()


async def test_our_acceptor_answers_as_the_specification_shows(server: QueueManager, address: str) -> None:
    reader, writer = await asyncio.open_connection(address, 1801)
    async with asyncio.timeout(60):
        writer.write(frame(3))
        answer = await reader.readexactly(len(frame(4)))
        assert without(answer)[:20] == without(frame(4))[:20]
        assert answer[20:52] == CLIENT + SERVER  # frame 4 was dumped from another session
        assert answer[52:] == frame(4)[52:]
        writer.write(frame(5))
        assert without(await reader.readexactly(len(frame(6)))) == without(frame(6))
        writer.write(frame(7))
        (connection,) = server.network.accepted
        while connection.session.received_count == 0 or connection.session.unsettled():
            await asyncio.sleep(0.01)
        timer = connection.session.next_timer()
        assert timer is not None
        connection.session.expire(timer[1])  # the express message is acknowledged after a minute: now
        connection.process()
        assert without(await reader.readexactly(len(frame(8)))) == without(frame(8))
    writer.close()


async def test_our_initiator_produces_frames_3_5_and_7(tmp_path: Path, address: str) -> None:
    got: list[bytes] = []
    done = asyncio.Event()

    async def play_the_server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.append(await reader.readexactly(len(frame(3))))
        answer = frame(4)[:20] + CLIENT + SERVER + got[0][TIME_STAMP] + frame(4)[56:]
        writer.write(answer)
        got.append(await reader.readexactly(len(frame(5))))
        writer.write(frame(6))
        got.append(await reader.readexactly(len(frame(7))))
        writer.write(frame(8))
        done.set()
        await reader.read()
        writer.close()

    there = loopback_address()
    listening = await asyncio.start_server(play_the_server, there, 1801)
    node = await node_of(tmp_path, address, CLIENT)
    try:
        node.network.resolver = Answers(there)
        name = parse_single_format_name(f"PRIVATE={'00' * 4}-0000-0000-0000-000000000001\\00000001")
        queue = node.opening.find(name, Access.SEND)
        queue.insert(next_position(node, frame(7)), value_of_packet(frame(7), SENT))
        async with asyncio.timeout(60):
            await done.wait()
            while queue.message_count:
                await asyncio.sleep(0.01)
    finally:
        await node.close()
        listening.close()
    assert without(got[0], TIME_STAMP) == without(frame(3), TIME_STAMP)
    assert without(got[1], RECOVERABLE_ACK_TIMEOUT) == without(frame(5), RECOVERABLE_ACK_TIMEOUT)
    assert got[2] == frame(7)
