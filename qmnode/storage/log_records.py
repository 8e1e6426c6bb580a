"""RocksDB's write-ahead log, read from bytes: fragments, the records that they make, and the changes in these.

A log is divided into blocks of 32 KiB. Each fragment of a record has a masked CRC-32C, a size and a kind; a record is a
batch: sequence number, count, changes. A manifest has the same fragments.
"""

import functools
import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from qmnode.storage.errors import WHAT_TO_DO, StoreError

# ----------------------------------------------------------------------------------------------------------------------
# The ends of write-ahead logs and of manifests, whose last record may be torn.
#
# RocksDB takes a record that the file's end cuts for a write that never completed, and drops it without a word. A disk
# that lost what it had confirmed leaves the same bytes. Only the framing is read here, which is enough to find such an
# end; RocksDB compares the checksums of all records before it.

MAY_HAVE_HELD: Final = "may have held acknowledged messages"
_RECYCLED: Final = range(5, 9)
"""Kinds of fragments that a store of ours has none of; RocksDB may read one again and again, for ever."""


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
    while place + HEADER.size <= size:
        room = BLOCK - place % BLOCK
        if room < HEADER.size:
            place += room
            complete = min(place, size) if complete == place - room else complete
            continue
        found = fragment_at(content, place)
        if found is None and content[place + HEADER.size - 1] in _RECYCLED:
            raise StoreError(f"the record at byte {place} of a log or manifest is damaged: {WHAT_TO_DO}", damaged=True)
        if found is None or found.end > size:
            break
        place = found.end
        if found.kind in (FULL, LAST):
            complete = place
    room = BLOCK - complete % BLOCK
    return size if room < HEADER.size and size - complete <= room else complete


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
        found = fragment_at(content, place)
        if found is None or not is_whole(content, found):
            return place
        place = found.end
    return None


def damaged_ends(path: Path) -> dict[str, int]:
    """The damaged ends of the logs, and of the manifest, of a store's directory, by the names of the files."""
    try:
        current = (path / "CURRENT").read_text("ascii").strip()
    except (OSError, ValueError):
        current = ""
    files = [*sorted(path.glob("*.log")), path / current]
    return {file.name: end for file in files if file.is_file() and (end := damaged_end(file))}


# ----------------------------------------------------------------------------------------------------------------------
# A write-ahead log without its damage: all whole records, and the whole part of a batch of which others are damaged.
#
# RocksDB drops a whole batch for one wrong bit in it, and what follows in the same block. A batch may hold hundreds of
# messages, in fragments that have a checksum each. Where a change of a batch begins only the changes before it say, and
# the body of a message may look like changes, of other queues too. So whole changes behind damage are taken only if
# those before them lead there through the damaged bytes, and on to the end, with the number that the batch has.


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
