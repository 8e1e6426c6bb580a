"""A write-ahead log without its damage: all whole records, and the whole part of a batch of which others are damaged.

RocksDB drops a whole batch for one wrong bit in it, and what follows in the same block. A batch may hold hundreds of
messages, in fragments that have a checksum each.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from qmnode.storage.log_ends import BLOCK, HEADER, checksum

_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_BATCH: Final = struct.Struct("<QI")
"""Sequence number of the first entry, and number of entries."""
_STRINGS: Final = {0x4: 1, 0x5: 2, 0xE: 2}
"""Strings of an entry by its tag: deletion, value, and deletion of a range, each in a column family."""


def rebuild_log(source: Path, target: Path) -> None:
    """Write a log with what is whole of another. Raises OSError."""
    with target.open("wb") as file:
        place = 0
        for record in _records(source.read_bytes()):
            for fragment in _framed(record, place):
                file.write(fragment)
                place += len(fragment)


def _fragment(content: bytes, place: int) -> tuple[int, bytes] | None:
    """Type and content of the fragment at this place; None if it is none, or damaged."""
    room = min(len(content), place + BLOCK - place % BLOCK) - place
    if room < HEADER.size:
        return None
    length, kind = HEADER.unpack_from(content, place)
    end = place + HEADER.size + length
    if not _FULL <= kind <= _LAST or HEADER.size + length > room:
        return None
    stored = int.from_bytes(content[place : place + 4], "little")
    if checksum(content[place + HEADER.size - 1 : end]) != stored:
        return None
    return kind, content[place + HEADER.size : end]


def _fragments(content: bytes) -> Iterator[tuple[int, bytes] | None]:
    """All whole fragments, and None for each damaged place."""
    place = 0
    while place + HEADER.size <= len(content):
        room = BLOCK - place % BLOCK
        if room < HEADER.size:
            place += room
            continue
        found = _fragment(content, place)
        if found is None:
            yield None
            length, _ = HEADER.unpack_from(content, place)
            end = min(place + room, len(content))
            after = place + HEADER.size + length  # where the next one is, if the length is sound
            if 0 <= end - after < HEADER.size:  # it fills its block; in it may be a body that looks like fragments
                place = end
                continue
            candidates = ([after] if after < end else []) + list(range(place + 1, end))
            place = next((one for one in candidates if _fragment(content, one) is not None), end)
            continue
        yield found
        place += HEADER.size + len(found[1])


def _records(content: bytes) -> Iterator[bytes]:
    parts: list[bytes] = []
    headless = False
    number = 0
    for found in _fragments(content):
        if found is None or found[0] in (_FULL, _FIRST):
            if parts and not headless and (record := _beginning(b"".join(parts))):
                number = sum(_BATCH.unpack_from(record))
                yield record
            parts, headless = [], found is None
        if found is None:
            continue
        kind, payload = found
        parts.append(payload)
        if kind in (_FULL, _LAST):
            whole = b"".join(parts)
            record = _ending(whole, number) if headless else whole
            parts, headless = [], False
            if len(record) >= _BATCH.size:
                number = sum(_BATCH.unpack_from(record))
                yield record
    if parts and not headless and (record := _beginning(b"".join(parts))):
        yield record


def _beginning(batch: bytes) -> bytes:
    """The whole entries at the beginning of a batch, as a batch; b"" if there are none."""
    if len(batch) <= _BATCH.size:
        return b""
    number, _ = _BATCH.unpack_from(batch)
    place, count = _BATCH.size, 0
    while (end := _entry(batch, place)) is not None:
        place, count = end, count + 1
    return _BATCH.pack(number, count) + batch[_BATCH.size : place] if count else b""


def _ending(rest: bytes, number: int) -> bytes:
    """The whole entries at the end of a batch whose beginning is damaged, as a batch; b"" if there are none."""
    leads = bytearray(len(rest) + 1)  # whether whole entries lead from a place to the end; each place is looked at once
    leads[-1] = 1
    first = len(rest)
    for place in range(len(rest) - 1, -1, -1):
        if (end := _entry(rest, place)) is not None and leads[end]:
            leads[place], first = 1, place
    place, count = first, 0
    while (end := _entry(rest, place)) is not None:
        place, count = end, count + 1
    return _BATCH.pack(number, count) + rest[first:] if count else b""


def _entry(batch: bytes, place: int) -> int | None:
    """Where the entry ends that begins at this place; None if none does."""
    strings = _STRINGS.get(batch[place]) if place < len(batch) else None
    if strings is None:
        return None
    _, place = _number(batch, place + 1)
    for _ in range(strings):
        length, place = _number(batch, place)
        place += length
    return place if place <= len(batch) else None


def _number(batch: bytes, place: int) -> tuple[int, int]:
    """A number of seven bits a byte, and where it ends; beyond the batch if it does not."""
    number = shift = 0
    while place < len(batch) and shift < 35:
        byte = batch[place]
        number, place, shift = number | (byte & 0x7F) << shift, place + 1, shift + 7
        if byte < 0x80:
            return number, place
    return 0, len(batch) + 1


def _framed(record: bytes, place: int) -> Iterator[bytes]:
    """A record in the fragments of a log that has so many bytes."""
    begun = False
    while True:
        room = BLOCK - place % BLOCK
        if room < HEADER.size:
            yield bytes(room)
            place, room = place + room, BLOCK
        part, record = record[: room - HEADER.size], record[room - HEADER.size :]
        kind = (_MIDDLE if record else _LAST) if begun else (_FIRST if record else _FULL)
        typed = bytes([kind]) + part
        yield checksum(typed).to_bytes(4, "little") + len(part).to_bytes(2, "little") + typed
        place, begun = place + HEADER.size + len(part), True
        if not record:
            return
