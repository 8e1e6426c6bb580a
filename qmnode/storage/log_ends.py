"""The ends of write-ahead logs and of manifests, whose last record may be torn.

RocksDB takes a record that the file's end cuts for a write that never completed, and drops it without a word. A disk
that lost what it had confirmed leaves the same bytes. Only the framing is read here, which is enough to find such an
end; RocksDB compares the checksums of all records before it.
"""

import mmap
from pathlib import Path
from typing import Final

from qmnode.storage.errors import WHAT_TO_DO, StoreError
from qmnode.storage.log_records import BLOCK, FULL, HEADER, LAST, fragment_at, is_whole

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
