"""Clients of the AMQP door that mean no good: broken frames, too much of everything, and too little."""

from __future__ import annotations

import asyncio
import contextlib
import random
import resource
import socket
import struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from qmnode.amqp.codec import Described, ULong, encode
from qmnode.amqp.principals import AMQP_HEADER, SASL_HEADER, SaslServer, SaslState
from tests.adversary.attacks import Area, attack
from tests.amqp.raw import BEGIN, CLOSE, OPEN, frame, init, opened, performative, read_all, read_until
from tests.lab.waiting import holds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.amqp.conftest import Door

pytestmark = pytest.mark.servers

HONEST_ATTACH = frame(
    performative(
        0x12,
        ["out", 0, False, 0, 0, Described(ULong(0x28), []), Described(ULong(0x29), ["orders"]), None, None, 0],
    )
)
BEGUN = SASL_HEADER + init("ANONYMOUS") + AMQP_HEADER + frame(OPEN) + BEGIN
HONEST = BEGUN + HONEST_ATTACH
FLOW = b"\x00\x53\x13"
MESSAGE = encode(Described(ULong(0x75), b"x"))


def attach(name: str, handle: int, address: str, *, receives: bool) -> bytes:
    here, there = (
        Described(ULong(0x28), [address if receives else None]),
        Described(ULong(0x29), [None if receives else address]),
    )
    return frame(performative(0x12, [name, handle, receives, None, None, here, there, None, None, 0]))


def transfer(handle: int, number: int, payload: bytes, *, more: bool = False) -> bytes:
    return frame(performative(0x14, [handle, number, struct.pack(">I", number), 0, False, more]) + payload)


def flow(handle: int, credit: int) -> bytes:
    return frame(performative(0x13, [0, 2000, 0, 2000, handle, 0, credit]))


@pytest.fixture
async def amqp(tmp_path: Path) -> AsyncIterator[Door]:
    from tests.amqp.conftest import open_door

    async with open_door(
        tmp_path, anonymous=True, links=20, partial_bytes=1 << 20, message_size=1 << 20, prefetch=50
    ) as door:
        yield door


async def assault(door: Door, work: Any) -> Any:
    """Attack from a thread; afterwards an honest client is served as ever, and nothing is left of the attacker."""
    found = await asyncio.to_thread(work)
    await still_serves(door)

    async def all_gone() -> bool:
        return (
            door.door.counts.connections == 0
            and door.door.counts.links == 0
            and not any(door.door.partial.used.values())
        )

    await holds(all_gone, 20, "nothing is left of the attacker's connections")
    return found


async def still_serves(door: Door) -> None:
    from tests.amqp.conftest import amqp_message, connected

    def work() -> None:
        with connected(door.url) as client:
            client.create_sender("done").send(amqp_message(b"served"))

    await asyncio.to_thread(work)


def say(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        return read_all(connection)


@attack(
    Area.AMQP,
    can="cut the attacker's connection at any byte of a correct beginning",
    promised="the node keeps nothing of the connection, and serves others",
)
async def test_a_beginning_is_cut_anywhere(amqp: Door) -> None:
    await assault(amqp, lambda: [say(amqp.door.port, HONEST[:cut]) for cut in range(0, len(HONEST), 3)])


@attack(
    Area.AMQP,
    can="change any bytes in the frames of a session",
    promised="the connection goes on or closes; the node does not fail",
)
async def test_frames_are_altered(amqp: Door) -> None:
    seed = random.Random(24)
    whole = HONEST + transfer(0, 0, MESSAGE) + flow(0, 10) + attach("in", 1, "orders", receives=True) + CLOSE

    def altered() -> bytes:
        data = bytearray(whole)
        for _ in range(seed.randint(1, 6)):
            data[seed.randrange(len(SASL_HEADER + init("ANONYMOUS")), len(data))] = seed.choice(
                (0, 1, 0x7F, 0x80, 0xD0, 0xFF)
            )
        return bytes(data)

    await assault(amqp, lambda: [say(amqp.door.port, altered()) for _ in range(150)])


@attack(
    Area.AMQP,
    can="name links, queues and containers in bytes that are no text",
    promised="the node refuses the link; its log has no traceback",
)
async def test_names_are_no_text(amqp: Door) -> None:
    bad = b"\xff\xfe"
    addresses = [
        frame(HONEST_ATTACH[8:].replace(b"orders", bad * 3)),
        frame(HONEST_ATTACH[8:].replace(b"out", bad + b"x")),
    ]
    with capture_logs() as logs:
        answers = [await assault(amqp, lambda one=one: say(amqp.door.port, BEGUN + one)) for one in addresses]
    assert b"decode-error" in answers[0]
    assert not [line for line in logs if line["log_level"] == "error"]


@attack(
    Area.AMQP,
    can="announce frames of two gigabytes, or send frames that are larger than agreed",
    promised="the node closes the connection, and sets no memory aside",
)
async def test_frames_are_too_large(amqp: Door) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for head in (struct.pack(">IBBH", 0x7FFFFFFF, 2, 0, 0), struct.pack(">IBBH", 70_000, 2, 0, 0) + b"\0" * 70_000):
        answer = await assault(amqp, lambda head=head: say(amqp.door.port, HONEST + head))
        assert b"framing-error" in answer
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


@attack(
    Area.AMQP,
    can="nest values a hundred thousand deep in performatives, terminus filters, dispositions and messages",
    promised="the node refuses or skips the value; its stack does not grow with the depth",
)
@pytest.mark.parametrize(
    "inner", [b"\x00" * 60_000, b"\xc0\xff\x01" * 20_000, b"\xd0\0\0\xff\xff\0\0\0\x01" * 6_000], ids=["d", "l", "L"]
)
async def test_values_are_nested(amqp: Door, inner: bytes) -> None:
    size = struct.pack(">II", len(inner) + 40, 8)
    many = [
        frame(inner),
        frame(b"\x00\x53\x11\xd0" + size + b"\x40" * 7 + inner),
        frame(b"\x00\x53\x12\xd0" + size + b"\xa1\x01l\x43\x41\x40\x40\x00\x53\x28\xd0" + size + b"\x40" * 7 + inner),
        frame(b"\x00\x53\x15\xd0" + size + b"\x41\x43\x43\x41" + inner),
        transfer(0, 0, b"\x00\x53\x77" + inner),
        frame(b"\x00\x53\x18\xd0" + size + inner),
    ]
    await assault(amqp, lambda: [say(amqp.door.port, HONEST + one) for one in many])


@attack(
    Area.AMQP,
    can="attach ten thousand links on one connection",
    promised="the node refuses links over the limit; after as many refusals again, it closes the connection",
)
async def test_ten_thousand_links(amqp: Door) -> None:
    many = b"".join(attach(f"l{number}", number, "orders", receives=True) for number in range(10_000))
    answer = await assault(
        amqp, lambda: say(amqp.door.port, SASL_HEADER + init("ANONYMOUS") + AMQP_HEADER + frame(OPEN) + BEGIN + many)
    )
    assert b"resource-limit-exceeded" in answer
    assert answer.count(b"\x00\x53\x12") <= 41


@attack(
    Area.AMQP,
    can="send messages without credit",
    promised="the node closes the connection, or the messages count for the quota like all others",
)
async def test_messages_without_credit(amqp: Door) -> None:
    await amqp.manager.set_queue(r".\private$\orders", quota=64)
    payload = encode(Described(ULong(0x75), b"x" * 1000))
    many = b"".join(transfer(0, number, payload) for number in range(2_000))

    def work() -> bytes:
        with socket.create_connection(("127.0.0.1", amqp.door.port), timeout=60) as connection:
            connection.sendall(HONEST)
            read_until(connection, FLOW)
            with contextlib.suppress(OSError):
                connection.sendall(many)
                connection.shutdown(socket.SHUT_WR)
            return read_all(connection)

    await assault(amqp, work)
    assert (await amqp.manager.queue(r".\private$\orders")).total_bytes <= 64 * 1024


@attack(
    Area.AMQP,
    can="begin large messages on many connections, and never complete them",
    promised="all incomplete messages together have a limit; the node closes the connection that exceeds it",
)
async def test_messages_that_never_end(amqp: Door) -> None:
    part = encode(Described(ULong(0x75), b"x" * 60_000))

    def work() -> bytes:
        connections = [
            opened(amqp.door.port, HONEST[len(SASL_HEADER + init("ANONYMOUS") + AMQP_HEADER + frame(OPEN)) :])
            for _ in range(8)
        ]
        for one in connections:
            read_until(one, FLOW)
        answers = b""
        for _ in range(6):
            for one in connections:
                with contextlib.suppress(OSError):
                    one.sendall(transfer(0, 0, part, more=True))
        for one in connections:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_WR)
            answers += read_all(one)
            one.close()
        return answers

    assert b"resource-limit-exceeded" in await assault(amqp, work)


@attack(
    Area.AMQP,
    can="give credit for all messages of a queue, and read nothing",
    promised="a link locks a limited number of messages; others receive the rest, and all locked messages return when "
    "the link is gone",
)
async def test_a_receiver_that_reads_nothing(amqp: Door) -> None:
    await amqp.send("orders", *(b"x" * 10_000 for _ in range(120)))
    queue = next(one for one in amqp.manager.queue_collection.values() if one.pathname.endswith("orders"))

    def begin() -> socket.socket:
        return opened(amqp.door.port, BEGIN, attach("in", 0, "orders", receives=True), flow(0, 100_000))

    connection = await asyncio.to_thread(begin)

    async def locked() -> bool:
        return len(queue.locked) > 0

    await holds(locked, 10, "messages are locked")
    for _ in range(20):
        await asyncio.sleep(0)
        assert len(queue.locked) <= 64 + 50
    await still_serves(amqp)
    await assault(amqp, connection.close)
    assert len(await amqp.bodies("orders")) == 120


@attack(
    Area.AMQP,
    can="send any bytes in the place of SASL",
    promised="the node closes the connection; nobody gets in without a correct authentication",
)
@given(st.lists(st.binary(max_size=40), max_size=8), st.sampled_from([b"", SASL_HEADER, SASL_HEADER + init("PLAIN")]))
def test_anything_in_the_place_of_sasl(parts: list[bytes], begun: bytes) -> None:
    server = SaslServer(["PLAIN", "EXTERNAL"])
    for part in (begun, *parts):
        attempt = server.feed(part)
        assert attempt is None or attempt.mechanism in ("PLAIN", "EXTERNAL")
    assert server.state is not SaslState.DONE
