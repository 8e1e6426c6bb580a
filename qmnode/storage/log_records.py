"""RocksDB's write-ahead log, read from bytes: fragments, the records that they make, and the changes in these.

A log is divided into blocks of 32 KiB. Each fragment of a record has a masked CRC-32C, a size and a kind; a record is a
batch: sequence number, count, changes. A manifest has the same fragments.
"""

import functools
import mmap
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

BLOCK: Final = 32768
HEADER: Final = struct.Struct("<IHB")
"""Checksum, length and kind of a fragment."""
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
BATCH: Final = struct.Struct("<QI")
"""Sequence number of the first change, and number of changes."""
_STRINGS: Final = {0x0: 1, 0x1: 2, 0x3: 1, 0x4: 1, 0x5: 2, 0x7: 1, 0x8: 1, 0xD: 0, 0xE: 2, 0xF: 2}
"""Strings of an entry by its tag: deletions, values, deletions of ranges, and remarks."""
_OF_FAMILIES: Final = (0x4, 0x5, 0x8, 0xE)
"""Tags with the number of a column family."""
_VALUES: Final = (0x1, 0x5)
_RANGES: Final = (0xE, 0xF)
_REMARKS: Final = (0x3, 0xD)

Bytes = bytes | bytearray | memoryview | mmap.mmap


class LogError(Exception):
    """The log is damaged, or another program's; the sentence says where."""


class Fragment(NamedTuple):
    """A part of a record: its kind, and where its content begins and ends."""

    kind: int
    begin: int
    end: int


class Change(NamedTuple):
    """A record that is put or deleted."""

    family: int
    key: bytes
    value: bytes | None
    """None: it is deleted."""
    until: bytes = b""
    """The key before which a deletion ends, if it is one of a range."""


def fragment_at(content: Bytes, place: int, offset: int = 0) -> Fragment | None:
    """The fragment with its header at this place, which has room for one; None if it is none. It may end behind the
    content. ``offset``: where the content begins in its log.
    """
    _, length, kind = HEADER.unpack_from(content, place)
    if not FULL <= kind <= LAST or HEADER.size + length > BLOCK - (offset + place) % BLOCK:
        return None
    return Fragment(kind, place + HEADER.size, place + HEADER.size + length)


def is_whole(content: Bytes, fragment: Fragment) -> bool:
    """Whether the fragment ends in the content, and has the checksum of its header."""
    header = fragment.begin - HEADER.size
    stored: int = HEADER.unpack_from(content, header)[0]
    return fragment.end <= len(content) and checksum(content[fragment.begin - 1 : fragment.end]) == stored


@functools.cache
def _table() -> list[int]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    return table


def checksum(content: Bytes) -> int:
    """CRC-32C as RocksDB stores it: rotated, with a constant added."""
    table, crc = _table(), 0xFFFFFFFF
    for byte in bytes(content):
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return (crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF


class LogReader:
    """Reads the records of one log, whose bytes come in pieces. Their checksums are not compared."""

    def __init__(self, offset: int = 0) -> None:
        """``offset``: where the first bytes are in the log. Records that begin before it are left out."""
        self._at = offset
        self._buffer = bytearray()
        self._record = bytearray()
        self._whole = not offset
        self._skip = -offset % BLOCK
        """Bytes up to the first block that is whole."""
        self.end = -1 if offset else 0
        """Where the last whole record ends; -1 if there is none yet."""

    def feed(self, data: bytes | memoryview) -> Iterator[bytes]:
        """Further bytes; yields the records that they complete. Raises LogError."""
        self._buffer += data
        if self._skip:
            skipped = min(self._skip, len(self._buffer))
            del self._buffer[:skipped]
            self._at, self._skip = self._at + skipped, self._skip - skipped
        start = 0
        while True:
            left = BLOCK - (self._at + start) % BLOCK
            have = len(self._buffer) - start
            if left < HEADER.size:
                if have < left:
                    break
                start += left
                continue
            if have < HEADER.size:
                break
            found = fragment_at(self._buffer, start, self._at)
            if found is None:
                raise LogError(f"the log is damaged at {self._at + start}")
            if found.end > len(self._buffer):
                break
            start = found.end
            if (record := self._joined(found.kind, self._buffer[found.begin : found.end])) is not None:
                self.end = self._at + start
                yield record
        del self._buffer[:start]
        self._at += start

    def _joined(self, kind: int, part: bytearray) -> bytes | None:
        if kind in (FULL, FIRST):
            self._record = part
            self._whole = True
        elif self._whole:
            self._record += part
        if kind in (FULL, LAST) and self._whole:
            return bytes(self._record)
        return None


def entry_at(batch: bytes, place: int) -> tuple[Change | None, int] | None:
    """The change that begins at this place of a batch, or None in its stead for a remark, and where it ends. None if no
    whole entry begins there.
    """
    strings = _STRINGS.get(tag := batch[place]) if place < len(batch) else None
    if strings is None:
        return None
    family, place = _number(batch, place + 1) if tag in _OF_FAMILIES else (0, place + 1)
    texts = []
    for _ in range(strings):
        length, begin = _number(batch, place)
        place = begin + length
        texts.append(batch[begin:place])
    if place > len(batch):
        return None
    if tag in _REMARKS:
        return None, place
    value = texts[1] if tag in _VALUES else None
    return Change(family, texts[0], value, texts[1] if tag in _RANGES else b""), place


def _number(batch: bytes, place: int) -> tuple[int, int]:
    """A number of seven bits a byte, and where it ends; beyond the batch if it does not."""
    number = shift = 0
    while place < len(batch) and shift < 35:
        byte = batch[place]
        number, place, shift = number | (byte & 0x7F) << shift, place + 1, shift + 7
        if byte < 0x80:
            return number, place
    return 0, len(batch) + 1


def changes(record: bytes) -> Iterator[Change]:
    """The changes of a batch. Raises LogError if it has others than a store of ours makes."""
    place = BATCH.size
    while place < len(record):
        entry = entry_at(record, place)
        if entry is None:
            raise LogError(f"the log has a damaged batch, or a change of the unknown kind {record[place]:#x}")
        change, place = entry
        if change is not None:
            yield change
