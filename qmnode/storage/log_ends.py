"""The ends of write-ahead logs and of manifests, whose last record may be torn.

RocksDB takes a record that the file's end cuts for a write that never completed, and drops it without a word. A disk
that lost what it had confirmed leaves the same bytes. Only the framing is read here, which is enough to find such an
end; RocksDB compares the checksums of all records before it.
"""

import functools
import mmap
import struct
from pathlib import Path
from typing import Final

from qmnode.storage.errors import WHAT_TO_DO, StoreError

MAY_HAVE_HELD: Final = "may have held acknowledged messages"
BLOCK: Final = 32768
HEADER: Final = struct.Struct("<4xHB")
"""Checksum, length and type of a fragment of a record."""
_BEGINNINGS: Final = (2, 3)
"""Types of fragments that others follow: first and middle."""
_RECYCLED: Final = range(5, 9)
_LOG_NUMBER: Final = 4
"""Bytes behind the header of a recycled fragment."""


def damaged_end(file: Path) -> int:
    """Bytes behind the last complete record of a log or a manifest; 0 if it ends with one. Raises OSError."""
    with file.open("rb") as opened:
        size = file.stat().st_size
        if not size:
            return 0
        with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return size - _last_record(content, size)


def _last_record(content: mmap.mmap, size: int) -> int:
    """Where the last complete record ends."""
    place = complete = 0
    unpack, head = HEADER.unpack_from, HEADER.size
    while place + head <= size:
        room = BLOCK - place % BLOCK
        if room < head:
            place += room
            complete = min(place, size) if complete == place - room else complete
            continue
        length, kind = unpack(content, place)
        begin = place + head + (_LOG_NUMBER if kind in _RECYCLED else 0)
        if kind in _RECYCLED:  # the store has none; RocksDB would read this one again and again, for ever
            raise StoreError(f"the record at byte {place} of a log or manifest is damaged: {WHAT_TO_DO}", damaged=True)
        if not kind or begin + length > min(size, place + room):
            break
        place = begin + length
        if kind not in _BEGINNINGS and kind - 4 not in _BEGINNINGS:
            complete = place
    room = BLOCK - complete % BLOCK
    return size if room < head and size - complete <= room else complete


@functools.cache
def _table() -> list[int]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    return table


def checksum(content: bytes) -> int:
    """CRC-32C as RocksDB stores it: rotated, with a constant added."""
    table, crc = _table(), 0xFFFFFFFF
    for byte in content:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return (crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF


def damaged_record(file: Path) -> int | None:
    """Where the first record begins whose checksum is wrong or whose framing is; None if there is none. Slow, for files
    that RocksDB refuses. Raises OSError.
    """
    content = file.read_bytes()
    place, size = 0, len(content)
    while place + HEADER.size <= size:
        room = BLOCK - place % BLOCK
        if room < HEADER.size:
            place += room
            continue
        length, kind = HEADER.unpack_from(content, place)
        end = place + HEADER.size + length + (_LOG_NUMBER if kind in _RECYCLED else 0)
        if not kind or end > min(size, place + room):
            return place
        if checksum(content[place + HEADER.size - 1 : end]) != int.from_bytes(content[place : place + 4], "little"):
            return place
        place = end
    return None


def damaged_ends(path: Path) -> dict[str, int]:
    """The damaged ends of the logs, and of the manifest, of a store's directory, by the names of the files."""
    try:
        current = (path / "CURRENT").read_text("ascii").strip()
    except (OSError, ValueError):
        current = ""
    files = [*sorted(path.glob("*.log")), path / current]
    return {file.name: end for file in files if file.is_file() and (end := damaged_end(file))}
