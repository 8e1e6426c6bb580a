"""RocksDB's write-ahead log, read from bytes: records, and the changes in them.

A log is divided into blocks of 32 KiB. Each part of a record has a masked CRC-32C, a size and a kind; a record is a
batch: sequence number, count, changes. Only changes that a store of ours makes are read.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from qmnode.copies.target import CopyError

FAMILIES: Final = b"copied_families"
"""The key of the record that names the families; deletions of the same key follow, one in each of them."""
_BLOCK: Final = 32 * 1024
_HEADER: Final = struct.Struct("<IHB")
_RECYCLED: Final = 4
"""Further bytes in the headers of kinds 5 to 8."""
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_BATCH: Final = 12


class Change(NamedTuple):
    """A record that is put or deleted."""

    family: int
    key: bytes
    value: bytes | None
    """None: it is deleted."""
    until: bytes = b""
    """The key before which a deletion ends, if it is one of a range."""


class LogReader:
    """Reads the records of one log, whose bytes come in pieces."""

    def __init__(self, offset: int = 0) -> None:
        """``offset``: where the first bytes are in the log. Records that begin before it are left out."""
        self._at = offset
        self._buffer = bytearray()
        self._record = bytearray()
        self._whole = not offset
        self._skip = -offset % _BLOCK
        """Bytes up to the first block that is whole."""
        self.end = offset if not offset else -1
        """Where the last whole record ends; -1 if there is none yet."""

    def feed(self, data: bytes | memoryview) -> Iterator[bytes]:
        """Further bytes; yields the records that they complete."""
        self._buffer += data
        if self._skip:
            skipped = min(self._skip, len(self._buffer))
            del self._buffer[:skipped]
            self._at, self._skip = self._at + skipped, self._skip - skipped
        start = 0
        while True:
            left = _BLOCK - (self._at + start) % _BLOCK
            have = len(self._buffer) - start
            if left < _HEADER.size:
                if have < left:
                    break
                start += left
                continue
            if have < _HEADER.size:
                break
            _, size, kind = _HEADER.unpack_from(self._buffer, start)
            header = _HEADER.size + (_RECYCLED if 5 <= kind <= 8 else 0)
            if header + size > left:
                raise CopyError(f"the log is damaged at {self._at + start}")
            if have < header + size:
                break
            part = self._buffer[start + header : start + header + size]
            start += header + size
            if (record := self._joined(kind - 4 if 5 <= kind <= 8 else kind, part)) is not None:
                self.end = self._at + start
                yield record
        del self._buffer[:start]
        self._at += start

    def _joined(self, kind: int, part: bytearray) -> bytes | None:
        if kind in (_FULL, _FIRST):
            self._record = part
            self._whole = True
        elif kind in (_MIDDLE, _LAST) and self._whole:
            self._record += part
        if kind in (_FULL, _LAST) and self._whole:
            return bytes(self._record)
        return None


def changes(record: bytes) -> Iterator[Change]:
    """The changes of a batch. Raises CopyError if it has others than a store of ours makes."""
    at, end = _BATCH, len(record)

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = record[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def text() -> bytes:
        nonlocal at
        size = number()
        at += size
        return record[at - size : at]

    try:
        while at < end:
            kind = record[at]
            at += 1
            family = number() if kind in (0x4, 0x5, 0x8, 0xE) else 0
            match kind:
                case 0x1 | 0x5:
                    yield Change(family, text(), text())
                case 0x0 | 0x4 | 0x7 | 0x8:
                    yield Change(family, text(), None)
                case 0xE | 0xF:
                    yield Change(family, text(), None, text())
                case 0x3:
                    text()
                case 0xD:
                    pass
                case _:
                    raise CopyError(f"the log has a change of kind {kind:#x}, which this program does not know")
    except IndexError:
        raise CopyError("the log has a damaged batch") from None
