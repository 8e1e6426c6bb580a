"""Cutting the stream: any cut gives the same packets, sizes are bounded, garbage is told at once."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmnode import allocator
from qmnode.allocator import lend
from qmnode.protocol.received import Framer, MessageReader
from qmnode.protocol.wire import RemoteProtocolError
from qmnode.structures.packet_view import with_session_header
from qmnode.structures.user_message import SecurityFlags, SecurityHeader, SessionHeader, TransactionHeader
from tests.conformance.frames import FRAMES
from tests.lab.cases import cases
from tests.protocol.machines import message

_HEADER = SessionHeader(ack_sequence_number=1, user_msg_sequence_number=1).write()
PACKETS = [
    *(frame.data for frame in FRAMES if frame.transport == "tcp"),
    message(1),
    b"".join(bytes(part) for part in with_session_header(message(2), _HEADER)),
    message(3, body=b"y" * 5000),
]


@given(st.lists(st.integers(1, 700), min_size=1, max_size=40))
def test_cut_anywhere_the_packets_are_the_same(sizes: list[int]) -> None:
    stream = b"".join(PACKETS)
    framer = Framer(1 << 20)
    packets: list[bytes] = []
    place = turn = 0
    while place < len(stream):
        size = sizes[turn % len(sizes)]
        packets += framer.feed(memoryview(stream)[place : place + size])
        place, turn = place + size, turn + 1
    assert packets == PACKETS
    assert framer.pending() == 0


@cases("seed", range(12))
def test_large_packets_are_the_same_cut_anywhere_in_a_buffer_that_is_used_again(seed: int) -> None:
    dice = random.Random(seed)
    sizes = [dice.choice([0, 10, 16_000, 16_400, 70_000, 300_000]) + dice.randrange(9) for _ in range(8)]
    expected = [bytes(message(number, body=dice.randbytes(size))) for number, size in enumerate(sizes, 1)]
    stream, framer, place = b"".join(expected), Framer(1 << 20), 0
    buffer, most = bytearray(262_144), dice.choice([5_000, 40_000, 262_144])
    packets: list[bytes] = []
    while place < len(stream):
        count = min(dice.randrange(1, most), len(stream) - place)
        buffer[:count] = stream[place : place + count]
        packets += framer.feed(memoryview(buffer)[:count])
        place += count
        assert framer.pending() + sum(map(len, packets)) == place
    assert packets == expected


@cases("lent", [0, allocator._LENDERS])
@cases("seed", range(8))
def test_large_packets_that_are_read_to_buffers_are_the_same(seed: int, lent: int) -> None:
    elsewhere = [lend(1) for _ in range(lent)]
    dice = random.Random(seed)
    sizes = [dice.choice([0, 10, 70_000, 300_000, 700_000, 900_000]) + dice.randrange(9) for _ in range(8)]
    expected = [bytes(message(number, body=dice.randbytes(size))) for number, size in enumerate(sizes, 1)]
    stream, framer, place, own = b"".join(expected), Framer(1 << 20), 0, 0
    shared, most = memoryview(bytearray(262_144)), dice.choice([5_000, 40_000, 1_000_000])
    packets: list[bytes] = []
    while place < len(stream):
        buffer = framer.buffer()
        target = shared if buffer is None else buffer
        count = min(dice.randrange(1, most), len(stream) - place, len(target))
        target[:count] = stream[place : place + count]
        packets += framer.feed(shared[:count]) if buffer is None else framer.filled(count)
        own += buffer is not None
        place += count
        assert framer.pending() + sum(map(len, packets)) == place
    assert packets == expected
    assert (own > 0) is (not lent)
    assert elsewhere.count(None) == 0


@pytest.mark.parametrize("kind", ["plain", "transactional", "signed"])
def test_a_large_packet_is_read_the_same_as_a_view(kind: str) -> None:
    """Only that of a plain message stays a view."""
    kinds: dict[str, dict[str, Any]] = {
        "plain": {},
        "transactional": {
            "transaction": TransactionHeader(tx_sequence_id=7, tx_sequence_number=1, previous_tx_sequence_number=0)
        },
        "signed": {"security_header": SecurityHeader(flags=SecurityFlags.of(AU=1), signature=bytes(64))},
    }
    whole, views = MessageReader(), MessageReader()
    for number in range(1, 4):
        packet = bytes(message(number, body=bytes([number]) * 300_000, **kinds[kind]))
        expected, found = whole.read(packet), views.read(memoryview(packet))
        assert repr(found.headers) == repr(expected.headers)
        assert found._replace(headers=expected.headers) == expected and found.in_bytes().packet == packet
        is_view = kind == "plain" and number > 1  # the first one is parsed
        assert isinstance(found.packet, memoryview) is is_view


def test_the_sizes_with_and_without_a_session_header_differ_as_the_packets_say() -> None:
    """A UserMessage leaves its SessionHeader out of PacketSize, a SessionAck does not (frame 8)."""
    framer = Framer(1 << 20)
    assert framer.feed(PACKETS[-2] + FRAMES[7].data) == [PACKETS[-2], FRAMES[7].data]


@pytest.mark.parametrize("place", [0, 4, 5, 6, 7])
def test_a_wrong_version_or_signature_is_told_before_the_packet_is_complete(place: int) -> None:
    data = bytearray(message(1)[:16])
    data[place] ^= 0xFF
    with pytest.raises(RemoteProtocolError):
        Framer(1 << 20).feed(bytes(data))


@pytest.mark.parametrize("size", [0, 15, 16, 0x0040_0001, 0x8000_0000, 0xFFFF_FFFF])
def test_sizes_out_of_range_are_told_at_once(size: int) -> None:
    data = message(1)[:8] + size.to_bytes(4, "little") + bytes(4)
    with pytest.raises(RemoteProtocolError):
        Framer(0x0040_0000).feed(data)


def test_no_more_is_kept_than_one_packet() -> None:
    framer = Framer(1 << 20)
    for _ in range(100):
        framer.feed(message(1) + message(2)[:50])
        framer.feed(message(2)[50:])
        assert framer.pending() == 0
