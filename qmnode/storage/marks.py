"""Marks of calls that were done for programs that may ask again, since a lost connection may have lost the answer.

A program that connects again does not know whether its last calls were done. Each call that changes messages has a
number and a *slot*, which no other call under way of that program has. Its mark is written with the change, in one
batch, and replaces the mark of the call that had the slot before: marks do not grow with the calls.
"""

import struct
from collections.abc import Iterable, Mapping
from typing import Final

from qmnode.storage.layout import Family
from qmnode.storage.store import Store
from qmnode.structures.envelope import Packet

_META: Final = Family.META
_PREFIX: Final = b"mark\0"
_KEY: Final = struct.Struct(">5s16sII")
_NUMBER: Final = struct.Struct(">I")
PROGRAM_SIZE: Final = 16
"""Bytes of a program's identifier."""
WHOLE: Final = 0
"""The part of a call that is done as one; its messages that are sent each for itself count from 1."""


class Marks:
    """The marks of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def put(self, program: bytes, slot: int, number: int, answer: Iterable[Packet], part: int = WHOLE) -> None:
        """Write the mark of a call, with its answer in parts, in the current batch."""
        key = _KEY.pack(_PREFIX, program, slot, part)
        self._store.put(_META, key, b"".join((_NUMBER.pack(number), *answer)))

    def find(self, program: bytes, slot: int, number: int) -> Mapping[int, bytes]:
        """The answers of a call, by part; of none that is not done. The batch must have been written."""
        first, end = _KEY.pack(_PREFIX, program, slot, 0), _KEY.pack(_PREFIX, program, slot, 0xFFFFFFFF)
        return {
            _KEY.unpack(key)[3]: value[_NUMBER.size :]
            for key, value in self._store.scan(Family.META, first, end)
            if _NUMBER.unpack_from(value)[0] == number
        }

    def programs(self) -> set[bytes]:
        """The programs that have marks."""
        return {_KEY.unpack(key)[1] for key, _ in self._store.scan(Family.META, _PREFIX, _PREFIX[:-1] + b"\1")}

    def forget(self, program: bytes) -> None:
        """Delete the marks of a program with the next batch."""
        first, end = _KEY.pack(_PREFIX, program, 0, 0), _KEY.pack(_PREFIX, program, 0xFFFFFFFF, 0xFFFFFFFF)
        for key, _ in self._store.scan(Family.META, first, end):
            self._store.delete(Family.META, key)
