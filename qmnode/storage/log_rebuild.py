"""A write-ahead log without its damage: all whole records, and the whole part of a batch of which others are damaged.

RocksDB drops a whole batch for one wrong bit in it, and what follows in the same block. A batch may hold hundreds of
messages, in fragments that have a checksum each. Where a change of a batch begins only the changes before it say, and
the body of a message may look like changes, of other queues too. So whole changes behind damage are taken only if those
before them lead there through the damaged bytes, and on to the end, with the number that the batch has.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from qmnode.storage.log_records import (
    BATCH,
    BLOCK,
    FIRST,
    FULL,
    HEADER,
    LAST,
    MIDDLE,
    checksum,
    entry_at,
    fragment_at,
    is_whole,
)


class _Part(NamedTuple):
    """Bytes of a record; those of a damaged fragment have no kind."""

    kind: int | None
    content: bytes


def rebuild_log(source: Path, target: Path) -> int:
    """Write a log with what is whole of another. Return the number of batches whose changes behind damage are left out,
    as they may be the contents of a message. Raises OSError.
    """
    number = left_out = 0
    with target.open("wb") as file:
        place = 0
        for parts in _records(source.read_bytes()):
            batches, complete = _batches(parts, number)
            left_out += not complete
            for batch in batches:
                number = sum(BATCH.unpack_from(batch))
                for fragment in _framed(batch, place):
                    file.write(fragment)
                    place += len(fragment)
    return left_out


def _parts(content: bytes) -> Iterator[_Part]:
    """All fragments, and the bytes of each damaged place."""
    place = 0
    while place + HEADER.size <= len(content):
        room = BLOCK - place % BLOCK
        if room < HEADER.size:
            place += room
            continue
        found = fragment_at(content, place)
        if found is not None and is_whole(content, found):
            yield _Part(found.kind, content[found.begin : found.end])
            place = found.end
            continue
        # In the rest of the block may be a body that looks like fragments: no other place than the next is looked at.
        end = min(place + room, len(content))
        if found is not None and found.end + HEADER.size <= end:
            after = fragment_at(content, found.end)
            end = found.end if after is not None and is_whole(content, after) else end
        yield _Part(None, content[place + HEADER.size : end])
        place = end


def _records(content: bytes) -> Iterator[list[_Part]]:
    """The parts of each record, of which some may be damaged."""
    parts: list[_Part] = []
    for part in _parts(content):
        if part.kind in (FULL, FIRST) and parts:
            yield parts
            parts = []
        parts.append(part)
        if part.kind in (FULL, LAST):
            yield parts
            parts = []
    if parts:
        yield parts


def _batches(parts: list[_Part], number: int) -> tuple[list[bytes], bool]:
    """The whole changes of a batch, as batches, and whether these are all. ``number``: that of the change that may
    follow the batch before it.
    """
    record = b"".join(part.content for part in parts)
    damaged, place = [], 0
    for part in parts:
        if part.kind is None:
            damaged.append(range(place, place + len(part.content)))
        place += len(part.content)
    if len(record) <= BATCH.size:
        return [], True
    sound = damaged[0].start if damaged else len(record)
    begin, count = BATCH.unpack_from(record)
    begin = begin if sound >= BATCH.size else number
    entries, leads = _entries(record)
    complete = leads and parts[-1].kind in (FULL, LAST) and len(entries) == count
    runs: list[list[range]] = [[]]
    for entry in entries:
        hit = any(entry.start < one.stop and one.start < entry.stop for one in damaged)
        if entry.stop <= sound or (complete and not hit):
            runs[-1].append(entry)
        else:
            runs.append([])
    batches = []
    for run in filter(None, runs):
        batches.append(BATCH.pack(begin, len(run)) + record[run[0].start : run[-1].stop])
        begin += len(run)
    return batches, complete or not damaged or damaged[-1].stop == len(record)


def _entries(record: bytes) -> tuple[list[range], bool]:
    """The places of the changes of a batch, as far as they lead, and whether that is to its end."""
    place = BATCH.size
    found: list[range] = []
    while place < len(record):
        entry = entry_at(record, place)
        if entry is None:
            return found, False
        if entry[0] is not None:
            found.append(range(place, entry[1]))
        place = entry[1]
    return found, True


def _framed(record: bytes, place: int) -> Iterator[bytes]:
    """A record in the fragments of a log that has so many bytes."""
    begun = False
    while True:
        room = BLOCK - place % BLOCK
        if room < HEADER.size:
            yield bytes(room)
            place, room = place + room, BLOCK
        part, record = record[: room - HEADER.size], record[room - HEADER.size :]
        kind = (MIDDLE if record else LAST) if begun else (FIRST if record else FULL)
        typed = bytes([kind]) + part
        yield checksum(typed).to_bytes(4, "little") + len(part).to_bytes(2, "little") + typed
        place, begun = place + HEADER.size + len(part), True
        if not record:
            return
