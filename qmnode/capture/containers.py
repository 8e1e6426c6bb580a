"""Frames of pcap and pcapng files.

pcap: https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-04.html
pcapng: https://www.ietf.org/archive/id/draft-ietf-opsawg-pcapng-02.html

A file is read as a stream, one record at a time. Every length in it is checked before it is used.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from qmnode.capture.errors import CaptureError

LARGEST_RECORD = 16 << 20
"""Bytes of the largest accepted record or block; capture tools stop at 256 KiB per frame."""

SKIP_STEP = 1 << 16


class Readable(Protocol):
    """The operation that a file must support."""

    def read(self, size: int, /) -> bytes:
        """The next ``size`` bytes, or fewer at the end."""


class Frame(NamedTuple):
    """One captured frame with its time."""

    number: int
    """Counted from 1, as Wireshark does."""
    time: int | None
    """Nanoseconds since 1970 UTC; None if the file has no time for it (a Simple Packet Block)."""
    link: int
    """The LINKTYPE_ value of the interface."""
    data: bytes
    """The captured bytes, possibly fewer than were on the wire."""


class _Pcap(NamedTuple):
    order: str
    nanoseconds_per_tick: int
    record: str
    """struct format of a record's header, the first four fields being seconds, ticks, captured and original length."""


_PCAP_MAGICS = {
    magic.to_bytes(4, "big" if order == ">" else "little"): _Pcap(order, tick, record)
    for order in "<>"
    for magic, tick, record in (
        (0xA1B2C3D4, 1000, "IIII"),
        (0xA1B23C4D, 1, "IIII"),
        (0xA1B2CD34, 1000, "IIIIIHBB"),  # "modified" pcap of some old Linux systems
    )
}

_SECTION = b"\x0a\x0d\x0d\x0a"
_BYTE_ORDERS = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}
_INTERFACE_BLOCK, _OLD_PACKET_BLOCK, _SIMPLE_PACKET_BLOCK, _PACKET_BLOCK = 1, 2, 3, 6
_OPTION_TIME_RESOLUTION, _OPTION_TIME_OFFSET = 9, 14
_SMALLEST_BLOCK = 12


def is_capture(start: bytes) -> bool:
    """Whether a file that begins with these bytes (at least four) is a pcap or pcapng file."""
    return start[:4] in _PCAP_MAGICS or start[:4] == _SECTION


def frames(file: Readable) -> Iterator[Frame]:
    """Yield the frames of a pcap or pcapng file. Raises CaptureError at a broken place, after those before it."""
    reader = _Reader(file)
    magic = reader.take(4, "the file's signature")
    if magic == _SECTION:
        yield from _pcapng(reader)
    elif layout := _PCAP_MAGICS.get(magic):
        yield from _pcap(reader, layout)
    else:
        raise CaptureError(0, f"this is neither a pcap nor a pcapng file: it begins with {magic.hex(' ')}")


class _Reader:
    """Reads a file forward, tracks the position, and never reads more than LARGEST_RECORD at once."""

    def __init__(self, file: Readable) -> None:
        self._file = file
        self.offset = 0

    def take(self, size: int, what: str) -> bytes:
        """Read exactly ``size`` bytes of ``what``."""
        data = self.take_or_end(size, what)
        if data is None:
            raise CaptureError(self.offset, f"the file ends before {what}")
        return data

    def take_or_end(self, size: int, what: str) -> bytes | None:
        """Like ``take``, but returns None if the file ends exactly here."""
        if size > LARGEST_RECORD:
            raise CaptureError(self.offset, f"{what} claims {size} bytes, more than {LARGEST_RECORD}")
        data = self._file.read(size)
        if not data and size:
            return None
        if len(data) < size:
            raise CaptureError(self.offset, f"the file ends inside {what}: {len(data)} of {size} bytes are there")
        self.offset += size
        return data

    def skip(self, size: int, what: str) -> None:
        while size:
            size -= len(self.take(min(size, SKIP_STEP), what))


def _pcap(reader: _Reader, layout: _Pcap) -> Iterator[Frame]:
    header = reader.take(20, "the file's header")
    link = struct.unpack_from(layout.order + "I", header, 16)[0] & 0xFFFF  # the upper half is about check sequences
    record = struct.Struct(layout.order + layout.record)
    number = 0
    while True:
        number += 1
        start = reader.take_or_end(record.size, f"the header of record {number}")
        if start is None:
            return
        seconds, ticks, captured = record.unpack(start)[:3]
        data = reader.take(captured, f"record {number}") if captured else b""
        yield Frame(number, seconds * 10**9 + ticks * layout.nanoseconds_per_tick, link, data)


@dataclass(slots=True)
class _Interface:
    link: int
    snap_length: int
    ticks_per_second: int = 10**6
    offset_seconds: int = 0

    def time(self, high: int, low: int) -> int:
        return self.offset_seconds * 10**9 + ((high << 32) | low) * 10**9 // self.ticks_per_second


@dataclass(slots=True)
class _Section:
    order: str
    interfaces: list[_Interface] = field(default_factory=list)


def _pcapng(reader: _Reader) -> Iterator[Frame]:
    section = _begin_section(reader)
    number = 0
    while (kind_bytes := reader.take_or_end(4, "the type of a block")) is not None:
        if kind_bytes == _SECTION:
            section = _begin_section(reader)
            continue
        start = reader.offset - 4
        (kind,) = struct.unpack(section.order + "I", kind_bytes)
        (length,) = struct.unpack(section.order + "I", reader.take(4, "the length of a block"))
        _check_length(start, length)
        if kind not in _BODIES:
            reader.skip(length - _SMALLEST_BLOCK, f"a block of type {kind}")
            body = b""
        else:
            body = reader.take(length - _SMALLEST_BLOCK, f"a block of type {kind}")
        _check_trailer(reader, section, start, length)
        if kind == _INTERFACE_BLOCK:
            section.interfaces.append(_interface(section.order, start, body))
        elif kind in _BODIES:
            number += 1
            yield _BODIES_OF_PACKETS[kind](section, start, number, body)


def _begin_section(reader: _Reader) -> _Section:
    start = reader.offset - 4
    length_bytes = reader.take(4, "the length of a section header")
    order = _BYTE_ORDERS.get(reader.take(4, "the byte order of a section"))
    if order is None:
        raise CaptureError(start, "a section header has no byte-order magic")
    (length,) = struct.unpack(order + "I", length_bytes)
    _check_length(start, length)
    if length < 28:
        raise CaptureError(start, f"a section header of {length} bytes is shorter than 28")
    major = struct.unpack(order + "H", reader.take(2, "the version of a section"))[0]
    if major != 1:
        raise CaptureError(start, f"pcapng version {major} is not known")
    reader.skip(length - 18, "a section header")
    section = _Section(order)
    _check_trailer(reader, section, start, length)
    return section


def _check_length(start: int, length: int) -> None:
    if length < _SMALLEST_BLOCK or length % 4:
        raise CaptureError(start, f"a block claims {length} bytes: not a multiple of 4 of at least {_SMALLEST_BLOCK}")


def _check_trailer(reader: _Reader, section: _Section, start: int, length: int) -> None:
    (again,) = struct.unpack(section.order + "I", reader.take(4, "the end of a block"))
    if again != length:
        raise CaptureError(start, f"a block gives its length as {length} at its start and {again} at its end")


def _interface(order: str, start: int, body: bytes) -> _Interface:
    if len(body) < 8:
        raise CaptureError(start, "an interface description block is too short")
    link, _, snap_length = struct.unpack_from(order + "HHI", body)
    interface = _Interface(link, snap_length)
    position = 8
    while position + 4 <= len(body):
        code, size = struct.unpack_from(order + "HH", body, position)
        value = body[position + 4 : position + 4 + size]
        if code == _OPTION_TIME_RESOLUTION and len(value) == 1:
            interface.ticks_per_second = (2 if value[0] & 0x80 else 10) ** (value[0] & 0x7F)
        elif code == _OPTION_TIME_OFFSET and len(value) == 8:
            (interface.offset_seconds,) = struct.unpack(order + "q", value)
        elif code == 0:
            break
        position += 4 + (size + 3) // 4 * 4
    return interface


def _packet(section: _Section, start: int, number: int, body: bytes, layout: str) -> Frame:
    header = struct.Struct(section.order + layout)
    if len(body) < header.size:
        raise CaptureError(start, f"the block of frame {number} is too short")
    interface, high, low, captured = header.unpack_from(body)[-5:-1]
    known = _interface_of(section, start, number, interface)
    if captured > len(body) - header.size:
        raise CaptureError(
            start, f"frame {number} claims {captured} bytes and its block has room for {len(body) - header.size}"
        )
    return Frame(number, known.time(high, low), known.link, body[header.size : header.size + captured])


def _enhanced(section: _Section, start: int, number: int, body: bytes) -> Frame:
    return _packet(section, start, number, body, "IIIII")


def _old(section: _Section, start: int, number: int, body: bytes) -> Frame:
    """The obsolete packet block of pcapng: 16 bits of interface and 16 of lost frames, otherwise like the new one."""
    if len(body) < 20:
        raise CaptureError(start, f"the block of frame {number} is too short")
    (interface,) = struct.unpack_from(section.order + "H", body)
    return _enhanced(section, start, number, struct.pack(section.order + "I", interface) + body[4:])


def _simple(section: _Section, start: int, number: int, body: bytes) -> Frame:
    if len(body) < 4:
        raise CaptureError(start, f"the block of frame {number} is too short")
    (original,) = struct.unpack_from(section.order + "I", body)
    known = _interface_of(section, start, number, 0)
    captured = min(original, known.snap_length or original, len(body) - 4)
    return Frame(number, None, known.link, body[4 : 4 + captured])


def _interface_of(section: _Section, start: int, number: int, interface: int) -> _Interface:
    if interface >= len(section.interfaces):
        raise CaptureError(start, f"frame {number} is of interface {interface}, which the file does not describe")
    return section.interfaces[interface]


_BODIES_OF_PACKETS = {_PACKET_BLOCK: _enhanced, _OLD_PACKET_BLOCK: _old, _SIMPLE_PACKET_BLOCK: _simple}
_BODIES = {_INTERFACE_BLOCK, *_BODIES_OF_PACKETS}
