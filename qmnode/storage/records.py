"""Reads of a family's records, which tell an unreadable record from the end."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from rocksdict import Rdict, RdictIter

from qmnode.storage.errors import WHAT_TO_DO, StoreError


def scan(family: Rdict, first: bytes, end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
    """Records from ``first`` up to, but not including, ``end``, in the order of their keys."""
    iterator = family.iter()
    iterator.seek(first)
    while iterator.valid():
        key: bytes = iterator.key()
        if end is not None and key >= end:
            return
        yield key, iterator.value()
        iterator.next()
    check_end(iterator)


_STEPS: Final = 4096
"""Keys that are tried one by one behind a damaged record, before the steps grow."""


class Gap(NamedTuple):
    """Records that cannot be read: behind one key, and before another; b"" is the end of the family."""

    after: bytes
    before: bytes
    reason: str


def readable(family: Rdict, width: int) -> Iterator[tuple[bytes, bytes] | Gap]:
    """All records of a family that can be read, and the gaps between them. Keys have ``width`` bytes."""
    last, start = b"", b""
    while True:
        iterator = family.iter()
        iterator.seek(start)
        while iterator.valid():
            last = iterator.key()
            yield last, iterator.value()
            iterator.next()
        try:
            iterator.status()
        except Exception as error:  # RocksDB's exceptions have no common class
            start = _readable_from(family, max(last, start), width)
            yield Gap(last, start, str(error))
            if not start:
                return
        else:
            return


def _readable_from(family: Rdict, last: bytes, width: int) -> bytes:
    """The next key behind ``last`` that can be read; b"" if none can."""
    damaged = int.from_bytes(last[:width].ljust(width, b"\0"), "big")
    end, step = (1 << 8 * width) - 1, 1
    sound = min(damaged + step, end)
    while (found := _first_from(family, sound, width)) is None:
        if sound == end:
            return b""
        damaged, step = sound, 1 if step == 1 and sound - int.from_bytes(last[:width], "big") < _STEPS else step * 2
        sound = min(damaged + step, end)
    while sound - damaged > 1:
        middle = (damaged + sound) // 2
        if (nearer := _first_from(family, middle, width)) is None:
            damaged = middle
        else:
            sound, found = middle, nearer
    return found


def _first_from(family: Rdict, number: int, width: int) -> bytes | None:
    """The first key from this one on; b"" if there is none; None if it cannot be read."""
    iterator = family.iter()
    iterator.seek(number.to_bytes(width, "big"))
    if iterator.valid():
        found: bytes = iterator.key()
        return found
    try:
        iterator.status()
    except Exception:  # as above
        return None
    return b""


def check_end(iterator: RdictIter) -> None:
    """Raise if an iterator stopped at an unreadable record, which must not look like the end of a queue."""
    if not iterator.valid():
        try:
            iterator.status()
        except Exception as error:  # RocksDB's exceptions have no common class
            raise unreadable(error) from error


def unreadable(error: object) -> StoreError:
    """The error for a record that cannot be read."""
    return StoreError(f"the message store cannot be read: {error}: {WHAT_TO_DO}")
