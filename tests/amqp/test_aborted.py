"""A message that its sender aborts is not stored; its credit comes back, and the link goes on."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, Any

import pytest

from qmnode.amqp.bridges import Bridges
from qmnode.amqp.codec import Described, Symbol, UByte, ULong, UShort, encode
from qmnode.amqp.principals import AMQP_HEADER, SASL_HEADER
from tests.adversary.test_amqp_door import FLOW, attach, transfer
from tests.amqp.bridging import bridge_settings
from tests.amqp.conftest import amqp_message, connected, in_thread, open_door
from tests.amqp.raw import BEGIN, CLOSE, OPEN, frame, opened, performative, read_all, read_frames, read_until, values

if TYPE_CHECKING:
    from pathlib import Path

    from tests.amqp.conftest import Door

pytestmark = pytest.mark.servers

MANY = 130
"""More than a link has credit for."""
PART = encode(Described(ULong(0x75), b"x" * 3000))[:2000]
WHOLE = encode(Described(ULong(0x75), b"whole"))
DISPOSITION = 0x15


def abort(handle: int, number: int, payload: bytes = b"") -> bytes:
    fields = [handle, number, struct.pack(">I", number), 0, False, False, None, None, False, True]
    return frame(performative(0x14, fields) + payload)


@pytest.mark.parametrize("queue", ["orders", "exact"])
async def test_aborted_messages_of_proton_use_up_no_credit(door: Door, queue: str) -> None:
    def work() -> None:
        with connected(door.url) as client:
            sender = client.create_sender(queue)
            for number in range(MANY):
                client.wait(lambda: sender.link.credit > 0)
                delivery = sender.link.delivery(f"aborted {number}")
                sender.link.stream(PART)
                client.container.process()  # the part is on its way
                delivery.abort()
            sender.send(amqp_message(b"whole"))

    await in_thread(work)
    assert await door.bodies(queue) == [b"whole"]
    assert door.door.counts.rejected == 0
    assert not any(door.door.partial.used.values())


@pytest.mark.parametrize("parts", [0, 1, 3])
async def test_an_aborted_message_is_settled_by_that(door: Door, parts: int) -> None:
    def answers() -> list[Any]:
        with opened(door.door.port, BEGIN, attach("out", 0, "orders", receives=False)) as connection:
            data = read_until(connection, FLOW)
            connection.sendall(transfer(0, 0, PART, more=True) * parts + abort(0, 0, PART) + transfer(0, 1, WHOLE))
            data += read_until(connection, b"\x53\x15")
            connection.sendall(CLOSE)
            return values(data + read_all(connection))

    found = [one for one in await in_thread(answers) if one is not None]
    assert [one.value[1] for one in found if one.descriptor == DISPOSITION] == [1]
    assert found[-1].value == []  # closed without an error
    assert await door.bodies("orders") == [b"whole"]


async def test_a_message_may_be_aborted_on_a_link_that_is_refused_meanwhile(tmp_path: Path) -> None:
    async with open_door(tmp_path, anonymous=True, message_size="8KiB") as door:
        too_much = b"".join(transfer(0, 0, PART, more=True) for _ in range(6))

        def answers() -> list[Any]:
            with opened(door.door.port, BEGIN, attach("out", 0, "orders", receives=False)) as connection:
                data = read_until(connection, FLOW)
                connection.sendall(too_much)
                data += read_until(connection, b"\x53\x16")
                connection.sendall(abort(0, 0) + CLOSE)
                return values(data + read_all(connection))

        found = [one for one in await in_thread(answers) if one is not None]
        (detach,) = [one for one in found if one.descriptor == 0x16]
        assert detach.value[2].value[0] == "amqp:link:message-size-exceeded"
        assert found[-1].value == []


def peer_that_aborts(listener: socket.socket, count: int) -> None:
    """A peer of one connection that aborts so many messages as its link has credit for them, and then sends one."""
    connection, _ = listener.accept()
    with connection:
        connection.settimeout(60)
        connection.sendall(SASL_HEADER + frame(performative(0x40, [Symbol("ANONYMOUS")]), kind=1))
        data = read_frames(connection, b"\x53\x41")
        connection.sendall(frame(performative(0x44, [UByte(0)]), kind=1) + AMQP_HEADER + frame(OPEN))
        data = read_frames(connection, b"\x53\x11", data)
        connection.sendall(frame(performative(0x11, [UShort(0), 0, 1000, 1000])))
        found = values(read_frames(connection, b"\x53\x12", data))
        name = next(one.value[0] for one in found if one is not None and one.descriptor == 0x12)
        source = Described(ULong(0x28), ["orders"])
        connection.sendall(frame(performative(0x12, [name, 0, False, None, None, source, None, None, None, 0])))
        sent = 0
        while sent <= count:
            flow = values(read_frames(connection, FLOW))[-1].value
            for number in range(sent, min(flow[5] + flow[6], count + 1)):
                aborted = transfer(0, number, PART, more=True) + abort(0, number)
                connection.sendall(aborted if number < count else transfer(0, number, WHOLE))
                sent = number + 1
        read_frames(connection, b"\x53\x15")


async def test_a_bridge_goes_on_after_messages_that_its_peer_aborts(door: Door) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = asyncio.create_task(asyncio.to_thread(peer_that_aborts, listener, 12))
        url = f"amqp://127.0.0.1:{listener.getsockname()[1]}"
        settings = bridge_settings(direction="in", peer=url, window=5, connect_timeout=60)
        bridges = Bridges(door.manager)
        await bridges.apply({"aborted": settings})
        await peer
        await bridges.stop()
    assert await door.bodies("orders") == [b"whole"]
