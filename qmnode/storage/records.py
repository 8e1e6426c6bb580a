"""Reads of a family's records, which tell an unreadable record from the end."""

from collections.abc import Iterator

from rocksdict import Rdict, RdictIter

from qmnode.storage.errors import StoreError


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


def check_end(iterator: RdictIter) -> None:
    """Raise if an iterator stopped at an unreadable record, which must not look like the end of a queue."""
    if not iterator.valid():
        try:
            iterator.status()
        except Exception as error:  # RocksDB's exceptions have no common class
            raise unreadable(error) from error


def unreadable(error: object) -> StoreError:
    """The error for a record that cannot be read."""
    return StoreError(f"the message store cannot be read: {error}. Stop the node and check the store (qmnode verify)")
