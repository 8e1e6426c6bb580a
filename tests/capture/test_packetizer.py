"""Packets cut from a stream of bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmnode.capture.packetizer import Damaged, Packetizer, Piece, Whole, packet_length
from tests.capture.builders import packet

PING = bytes.fromhex("017d485504000000d15873555091959549 97b6e611ea26c6".replace(" ", ""))


def cut(*parts: bytes, **options: bool) -> list[Piece]:
    packetizer = Packetizer(**options)
    pieces = [piece for part in parts for piece in packetizer.feed(part)]
    return pieces + list(packetizer.end())


def test_a_session_header_of_a_user_message_lies_beyond_packet_size() -> None:
    assert packet_length(packet(40, flags=0x0013)) == 56
    assert packet_length(packet(36, flags=0x001B)) == 36


@pytest.mark.parametrize("size", [0, 15, 0x00400001, 0xFFFFFFFF])
def test_sizes_that_no_packet_has(size: int) -> None:
    assert packet_length(packet(32)[:8] + size.to_bytes(4, "little")) is None


@given(st.lists(st.integers(20, 200), max_size=8), st.data())
def test_any_division_into_parts_gives_the_same_packets(sizes: list[int], data: st.DataObject) -> None:
    stream = b"".join(packet(size, 7) for size in sizes)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    parts = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    pieces = cut(*parts)
    assert b"".join(piece.data for piece in pieces) == stream
    assert [len(piece.data) for piece in pieces if isinstance(piece, Whole)] == sizes


@given(st.lists(st.binary(max_size=60) | st.sampled_from([packet(20), b"\x10\0\3\0LIOR", b"LIOR", PING]), max_size=12))
def test_no_byte_is_lost_or_given_twice(parts: list[bytes]) -> None:
    stream = b"".join(parts)
    for pings in (False, True):
        position = 0
        for piece in cut(*parts, pings=pings):
            assert piece.origin.offset == position
            position += piece.size if isinstance(piece, Damaged) else len(piece.data)
        assert position == len(stream)


def test_pings_between_packets_of_a_file() -> None:
    assert [piece.data for piece in cut(PING + packet(20) + PING, pings=True)] == [PING, packet(20), PING]


def test_a_signature_that_is_only_text_does_not_begin_a_packet() -> None:
    noise = b"LIOR" * 5 + b"\x10\0\0\0LIOR\xff\xff\xff\xff"
    first, second = cut(noise + packet(24))
    assert isinstance(first, Damaged)
    assert first.size == len(noise)
    assert second.data == packet(24)


def test_a_stretch_without_packets_is_searched_in_linear_time() -> None:
    stretch = b"\x10\0\0\0LIOR\0\0\0\0" * 50000
    (piece,) = cut(*(stretch[at : at + 1000] for at in range(0, len(stretch), 1000)))
    assert isinstance(piece, Damaged)
    assert piece.size == len(stretch)


def test_a_packet_sent_byte_by_byte_costs_no_more_memory_than_its_bytes() -> None:
    packetizer = Packetizer()
    data = packet(10000)
    pieces = [piece for number, byte in enumerate(data) for piece in packetizer.feed(bytes([byte]), number, number)]
    (whole,) = pieces
    assert whole.data == data
    assert len(whole.origin.frames) == 4096
    assert (whole.origin.frames[0], whole.origin.frames[-1], whole.origin.time) == (0, 9999, 9999)
