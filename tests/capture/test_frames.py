"""Link, IP, TCP and UDP headers."""

from __future__ import annotations

import struct

import pytest

from qmnode.capture.frames import Datagram, Endpoint, Fragment, Segment, knows_link, read_frame
from tests.capture.builders import (
    ACK,
    CLIENT,
    CLIENT_PORT,
    SERVER,
    SERVER_PORT,
    ipv6,
    on_ethernet,
    tcp_segment,
    udp_datagram,
)
from tests.lab.cases import cases

SEGMENT = Segment(Endpoint(CLIENT, CLIENT_PORT), Endpoint(SERVER, SERVER_PORT), 7, ACK, b"payload")
IPV4 = tcp_segment(b"payload", 7)
TCP = IPV4[20:]
NULL = bytes(16)
SEGMENT_6 = Segment(Endpoint(NULL, CLIENT_PORT), Endpoint(NULL, SERVER_PORT), 7, ACK, b"payload")


@cases(
    ("link", "frame"),
    [
        (1, on_ethernet(IPV4)),
        (1, on_ethernet(IPV4, tags=(0x8100,))),
        (1, on_ethernet(IPV4, tags=(0x88A8, 0x8100))),
        (1, on_ethernet(IPV4) + b"padding of a short frame"),
        (101, IPV4),
        (228, IPV4),
        (12, IPV4),
        (0, struct.pack("<I", 2) + IPV4),
        (0, struct.pack(">I", 2) + IPV4),
        (108, struct.pack(">I", 2) + IPV4),
        (113, struct.pack("!HHH8sH", 0, 1, 6, b"", 0x0800) + IPV4),
        (113, struct.pack("!HHH8sHHH", 0, 1, 6, b"", 0x8100, 7, 0x0800) + IPV4),
        (276, struct.pack("!HHIHBB8s", 0x0800, 0, 1, 1, 0, 6, b"") + IPV4),
        (276, struct.pack("!HHIHBB8sHH", 0x8100, 0, 1, 1, 0, 6, b"", 7, 0x0800) + IPV4),
    ],
)
def test_links(link: int, frame: bytes) -> None:
    assert knows_link(link)
    assert read_frame(link, frame) == SEGMENT


def extension(following: int, size: int = 8) -> bytes:
    return bytes([following, size // 8 - 1]) + bytes(size - 2)


@pytest.mark.parametrize(
    "packet",
    [
        ipv6(TCP, 6),
        ipv6(TCP, 0, extensions=extension(6)),
        ipv6(TCP, 0, extensions=extension(43) + extension(60, 24) + extension(6)),
        ipv6(TCP, 51, extensions=bytes([6, 4]) + bytes(22)),
        ipv6(TCP, 44, extensions=bytes([6, 0, 0, 0, 1, 2, 3, 4])),
        # Where dpkt 1.9.8 ends with an AttributeError:
        ipv6(TCP, 44, extensions=bytes([60, 0, 0, 0, 1, 2, 3, 4]) + extension(6)),
    ],
)
def test_ipv6_with_extension_headers(packet: bytes) -> None:
    assert read_frame(229, packet) == SEGMENT_6
    assert read_frame(101, packet) == SEGMENT_6
    assert read_frame(1, on_ethernet(packet, kind=0x86DD)) == SEGMENT_6
    assert read_frame(0, struct.pack("<I", 30) + packet) == SEGMENT_6


def test_a_datagram() -> None:
    frame = udp_datagram(b"ping") + b"padding"
    assert read_frame(101, frame) == Datagram(Endpoint(CLIENT, 4057), Endpoint(SERVER, 3527), b"ping")


def test_a_length_of_zero_is_that_of_a_segment_the_card_was_to_cut() -> None:
    frame = IPV4[:2] + b"\0\0" + IPV4[4:]
    assert read_frame(101, frame) == SEGMENT


@pytest.mark.parametrize("field", [0x2000, 0x0001, 0x3FFF])
def test_fragments_are_told(field: int) -> None:
    frame = IPV4[:6] + struct.pack("!H", field) + IPV4[8:]
    assert read_frame(101, frame) == Fragment(CLIENT, SERVER)


def test_do_not_fragment_is_no_fragment() -> None:
    assert read_frame(101, IPV4[:6] + b"\x40\0" + IPV4[8:]) == SEGMENT


def test_fragments_of_ipv6_are_told() -> None:
    assert read_frame(101, ipv6(TCP, 44, extensions=bytes([6, 0, 0, 1, 1, 2, 3, 4]))) == Fragment(NULL, NULL)


def test_endpoints_print_as_addresses() -> None:
    assert str(Endpoint(CLIENT, 1801)) == "10.0.0.1:1801"
    assert str(Endpoint(bytes(15) + b"\1", 1801)) == "[::1]:1801"


def test_what_is_cut_gives_nothing_or_less_and_never_fails() -> None:
    frames = [
        (1, on_ethernet(IPV4, tags=(0x8100,))),
        (101, ipv6(TCP, 0, extensions=extension(6))),
        (0, bytes(4) + IPV4),
    ]
    for link, frame in frames:
        for cut in range(len(frame)):
            found = read_frame(link, frame[:cut])
            assert found is None or (isinstance(found, Segment) and b"payload".startswith(found.payload))


def test_unknown_links_and_protocols_give_nothing() -> None:
    assert not knows_link(105)
    assert read_frame(105, IPV4) is None
    assert read_frame(1, on_ethernet(b"who has", kind=0x0806)) is None
    assert read_frame(101, IPV4[:9] + b"\1" + IPV4[10:]) is None
    assert read_frame(101, ipv6(TCP, 58)) is None
