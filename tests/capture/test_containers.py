"""pcap and pcapng files: frames, times, link types, and files that are broken."""

from __future__ import annotations

import struct
from io import BytesIO

import dpkt
import pytest

from qmnode.capture.containers import LARGEST_RECORD, Frame, frames
from qmnode.capture.errors import CaptureError
from tests.capture.builders import TIME, block, enhanced, interface, pcap, section
from tests.lab.cases import cases


def read(data: bytes) -> list[Frame]:
    return list(frames(BytesIO(data)))


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("nano", [False, True])
def test_pcap_in_both_byte_orders_and_resolutions(order: str, nano: bool) -> None:
    start = TIME + (123456789 if nano else 123456000)
    assert read(pcap([b"one", b"three"], link=1, order=order, nano=nano, start=start)) == [
        Frame(1, start, 1, b"one"),
        Frame(2, start + 10**6, 1, b"three"),
    ]


def test_pcap_as_dpkt_writes_it() -> None:
    file = BytesIO()
    writer = dpkt.pcap.Writer(file, linktype=101, nano=True)
    writer.writepkt(b"frame", 1.5)
    assert read(file.getvalue()) == [Frame(1, 1500000000, 101, b"frame")]


def test_modified_pcap_has_longer_records() -> None:
    head = struct.pack("<IHHIIII", 0xA1B2CD34, 2, 4, 0, 0, 65535, 1)
    record = struct.pack("<IIIIIHBB", 2, 3, 4, 4, 1, 0, 0, 0)
    assert read(head + record + b"data") == [Frame(1, 2000003000, 1, b"data")]


def test_the_upper_half_of_the_link_type_is_not_the_link_type() -> None:
    head = struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 0x24000001)
    assert read(head + struct.pack("<IIII", 0, 0, 0, 0)) == [Frame(1, 0, 1, b"")]


@pytest.mark.parametrize("order", "<>")
def test_pcapng_interfaces_have_their_own_links_and_clocks(order: str) -> None:
    nanoseconds = struct.pack(order + "HHB3x", 9, 1, 9)
    binary = struct.pack(order + "HHB3x", 9, 1, 0x80 | 10)
    offset = struct.pack(order + "HHq", 14, 8, 100) + struct.pack(order + "HH", 0, 0)
    data = (
        section(order)
        + interface(order, 1)
        + interface(order, 101, nanoseconds)
        + interface(order, 113, binary + offset)
        + block(order, 4, b"names, to be skipped")
        + enhanced(order, 0, 7_000_000, b"a")
        + enhanced(order, 1, TIME + 1, b"bc")
        + enhanced(order, 2, 2048, b"def")
    )
    assert read(data) == [
        Frame(1, 7 * 10**9, 1, b"a"),
        Frame(2, TIME + 1, 101, b"bc"),
        Frame(3, 102 * 10**9, 113, b"def"),
    ]


def test_a_second_section_may_turn_the_byte_order_and_begins_its_own_interfaces() -> None:
    data = section("<") + interface("<", 1) + enhanced("<", 0, 5, b"a")
    data += section(">") + interface(">", 101) + enhanced(">", 0, 6, b"b")
    assert read(data) == [Frame(1, 5000, 1, b"a"), Frame(2, 6000, 101, b"b")]


def test_pcapng_as_dpkt_writes_it() -> None:
    file = BytesIO()
    dpkt.pcapng.Writer(file, linktype=1).writepkt(b"frame", 3.25)
    assert read(file.getvalue()) == [Frame(1, 3250000000, 1, b"frame")]


def test_simple_and_old_packet_blocks() -> None:
    old = struct.pack("<HHIIII", 0, 9, 0, 8, 3, 3) + b"old"
    data = section("<") + interface("<", 1) + block("<", 3, struct.pack("<I", 5) + b"three") + block("<", 2, old)
    assert read(data) == [Frame(1, None, 1, b"three"), Frame(2, 8000, 1, b"old")]


def reads_before_failing(data: bytes) -> tuple[int, CaptureError]:
    count = 0
    with pytest.raises(CaptureError) as caught:
        for _ in frames(BytesIO(data)):
            count += 1
    return count, caught.value


def test_a_cut_file_gives_the_frames_before_the_cut_and_says_where_it_ends() -> None:
    whole = pcap([b"first", b"second"])
    count, error = reads_before_failing(whole[:-2])
    assert count == 1
    assert error.sentence == "the file ends inside record 2: 4 of 6 bytes are there"
    assert error.offset == len(whole) - 6


@cases("cut", range(5, 24))
def test_a_file_cut_inside_its_header(cut: int) -> None:
    count, error = reads_before_failing(pcap([])[:cut])
    assert count == 0
    assert "header" in error.sentence


def test_every_cut_of_a_pcapng_file_is_an_error_or_an_end_between_blocks() -> None:
    pieces = [section("<"), interface("<", 1), enhanced("<", 0, 1, b"frame")]
    data = b"".join(pieces)
    ends = {sum(len(piece) for piece in pieces[: index + 1]) for index in range(3)}
    for cut in range(4, len(data) + 1):
        if cut in ends:
            read(data[:cut])
        else:
            reads_before_failing(data[:cut])


@cases(
    ("data", "sentence"),
    [
        (b"", "the file ends before the file's signature"),
        (b"GIF89a", "neither a pcap nor a pcapng file"),
        (pcap([]) + struct.pack("<IIII", 0, 0, LARGEST_RECORD + 1, 1), "claims 16777217 bytes"),
        (section("<") + struct.pack("<II", 6, 0xFFFFFFFC), "claims 4294967280 bytes"),
        (section("<") + struct.pack("<II", 6, 8), "a block claims 8 bytes"),
        (section("<") + struct.pack("<II", 6, 33), "a block claims 33 bytes"),
        (section("<") + enhanced("<", 0, 1, b"x"), "of interface 0, which the file does not describe"),
        (section("<")[:-4] + b"\0\0\0\0", "at its start and 0 at its end"),
        (section("<")[:8] + b"\0" * 20, "no byte-order magic"),
        (section("<")[:12] + b"\2\0" + section("<")[14:], "version 2"),
        (section("<") + interface("<", 1) + block("<", 6, b"short"), "too short"),
        (
            section("<") + interface("<", 1) + block("<", 6, struct.pack("<IIIII", 0, 0, 0, 99, 99)),
            "claims 99 bytes and its block has room for 0",
        ),
        (section("<") + interface("<", 1) + block("<", 3, b""), "too short"),
        (section("<") + interface("<", 1) + block("<", 2, b""), "too short"),
        (section("<") + block("<", 1, b""), "too short"),
    ],
)
def test_broken_files_say_what_is_wrong(data: bytes, sentence: str) -> None:
    _, error = reads_before_failing(data)
    assert sentence in error.sentence


def test_a_block_that_is_skipped_may_be_large_and_costs_no_memory() -> None:
    class Endless:
        """A file with one block of a kind that is not read, of nearly 4 GiB."""

        def __init__(self) -> None:
            self.start = BytesIO(section("<") + struct.pack("<II", 0xBAD, 0x7FFFFFFC))
            self.largest = 0
            self.left = 8 << 20

        def read(self, size: int, /) -> bytes:
            self.largest = max(self.largest, size)
            if data := self.start.read(size):
                return data
            self.left -= size
            return bytes(size) if self.left > 0 else b""

    file = Endless()
    with pytest.raises(CaptureError):
        list(frames(file))
    assert file.largest <= 1 << 16
