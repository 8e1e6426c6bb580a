"""Any file in, captured packets out."""

from __future__ import annotations

import os
from io import BytesIO

import pytest

from qmnode.capture.errors import CaptureError
from qmnode.capture.read_files import Captured, Carrier, Format, Item, SourceOptions, detect, read_packets
from tests.capture.builders import (
    TIME,
    enhanced,
    interface,
    notices_of,
    on_ethernet,
    packet,
    packets_of,
    pcap,
    read,
    section,
    tcp_segment,
    udp_datagram,
)

ONE = packet(40)
PING = bytes.fromhex("017d485504000000d158735550919595 4997b6e611ea26c6".replace(" ", ""))


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (pcap([]), Format.CAPTURE),
        (pcap([], order=">", nano=True), Format.CAPTURE),
        (section(">"), Format.CAPTURE),
        (ONE, Format.RAW),
        (PING, Format.RAW),
        (ONE.hex().encode(), Format.HEX),
        (b"Hex Dump:\n 10 C0\n", Format.HEX),
        (b"\x00\x01\x02", Format.RAW),
        (b"", Format.RAW),
    ],
)
def test_files_are_told_apart(data: bytes, kind: Format) -> None:
    assert detect(data) == kind


@pytest.mark.parametrize(
    "data",
    [ONE + PING, (ONE + PING).hex().encode(), ONE.hex(" ").encode() + b"\n\n" + PING.hex(" ").encode()],
)
def test_packets_of_plain_bytes_and_hex(data: bytes) -> None:
    found = packets_of(read(data))
    assert [item.data for item in found] == [ONE, PING]
    assert {item.carrier for item in found} == {Carrier.FILE}


def test_a_format_can_be_forced() -> None:
    text = b"10 20 30 40"
    assert packets_of(read(text))[0].data == b"\x10\x20\x30\x40"
    assert packets_of(read(text, SourceOptions(format=Format.RAW)))[0].data == text
    with pytest.raises(CaptureError, match="neither a pcap nor a pcapng"):
        read(text, SourceOptions(format=Format.CAPTURE))
    with pytest.raises(CaptureError, match="no line of a hex dump"):
        read(b"\x01\x02", SourceOptions(format=Format.HEX))


def test_pings_both_ways_with_time_and_frame() -> None:
    first, second = packets_of(read(pcap([udp_datagram(PING), udp_datagram(PING, reverse=True)])))
    assert (first.carrier, first.data, first.origin.time, first.origin.frames) == (Carrier.UDP, PING, TIME, (1,))
    assert first.route is not None
    assert second.route is not None
    assert (first.route.from_client, second.route.from_client) == (True, False)
    assert (first.route.source, second.route.source) == ("10.0.0.1:4057", "10.0.0.2:3527")


def test_a_ping_that_the_capture_cut_is_told() -> None:
    (found,) = packets_of(read(pcap([udp_datagram(PING)[:-4]])))
    assert (found.damage, found.lost) == ("4 bytes are missing from the capture", True)


def test_a_capture_from_a_running_tool_is_read_frame_by_frame() -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as file, os.fdopen(write_end, "wb", buffering=0) as tool:
        tool.write(pcap([udp_datagram(PING)]))
        packets = read_packets(file)
        found = next(packets)
        assert isinstance(found, Captured)
        assert found.data == PING


def test_other_ping_ports_when_asked_for() -> None:
    data = pcap([udp_datagram(PING, port=13527)])
    assert read(data) == []
    assert len(read(data, SourceOptions(ping_ports=frozenset({13527})))) == 1


def test_the_time_of_a_packet_is_that_of_its_last_frame() -> None:
    (found,) = packets_of(read(pcap([tcp_segment(ONE[:20], 1), tcp_segment(ONE[20:], 21)])))
    assert found.origin.time == TIME + 10**6


def test_a_frame_that_the_capture_cut_is_a_gap_in_the_stream() -> None:
    segments = [tcp_segment(ONE, 1)[:-15], tcp_segment(ONE, 41)]
    found = packets_of(read(pcap(segments)))
    assert found[0].damage == "25 of its 40 bytes are there, then 15 bytes are missing from the capture"
    assert found[1].data == ONE


def test_fragments_and_unknown_links_are_told() -> None:
    fragment = tcp_segment(ONE, 1)
    fragment = fragment[:6] + b"\x20\0" + fragment[8:]
    assert notices_of(read(pcap([fragment, fragment]))) == [
        (1, "IP fragments are left out: they are not put together"),
    ]
    strange = section("<") + interface("<", 105) + enhanced("<", 0, 1, b"beacon") * 3
    assert notices_of(read(strange)) == [(1, "frames of link type 105 are not understood and left out")]


def test_what_a_cut_file_has_is_given_before_the_error() -> None:
    data = pcap([on_ethernet(tcp_segment(ONE + ONE[:9], 1)), b"cut"], link=1)[:-1]
    items: list[Item] = []
    reading = read_packets(BytesIO(data))
    with pytest.raises(CaptureError, match="inside record 2"):
        while True:
            items.append(next(reading))
    assert [item.size for item in packets_of(items)] == [40, 9]


def test_a_dump_that_contradicts_itself_says_where() -> None:
    with pytest.raises(CaptureError, match="line 2") as caught:
        read(b"0000  10 20\n0020  30\n")
    assert caught.value.offset == 12


def test_empty_files_hold_nothing() -> None:
    assert read(pcap([])) == []
    assert read(b"") == []
