"""Marks of calls that were done for programs that may ask again, since a lost connection may have lost the answer.

A program that connects again does not know whether its last calls were done. Each call that changes messages has a
number and a *slot*, which no other call under way of that program has. Its mark is written with the change, in one
batch, and replaces the mark of the call that had the slot before: marks do not grow with the calls.
"""

import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from qmnode.storage.layout import Family
from qmnode.storage.store import Store
from qmnode.structures.packet_view import Packet

_META: Final = Family.META
_PREFIX: Final = b"mark\0"
_KEY: Final = struct.Struct(">5s16sII")
_NUMBER: Final = struct.Struct(">I")
PROGRAM_SIZE: Final = 16
"""Bytes of a program's identifier."""
MOST_OF_PROGRAM: Final = 16 * 1024 * 1024
"""Bytes of one program's marks. Over half of them none is kept with messages; over all of them it may not send."""
MOST_OF_ALL: Final = 64 * 1024 * 1024
"""Bytes of all marks with messages. One account gets no more of them than it leaves to others: half if it is the only
one.
"""
NOBODY: Final = -1
"""The account of programs that have not come back since the start."""
_LARGE: Final = 1024
"""Bytes of a mark from which it counts as one with messages when the store is opened."""
WHOLE: Final = 0
"""The part of a call that is done as one; its messages that are sent each for itself count from 1."""


class _Held:
    """The marks of one program: of each slot the number of its call, their bytes, their last part, and the bytes that
    count as messages.
    """

    __slots__ = ("account", "messages", "size", "slots")

    def __init__(self, account: int = NOBODY) -> None:
        self.account = account
        self.size = self.messages = 0
        self.slots: dict[int, tuple[int, int, int, int]] = {}


class Marks:
    """The marks of a store, which take at most so many bytes, whatever a program does."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._size = 0
        self._messages = 0
        self._held: dict[bytes, _Held] = {}
        self._of_accounts: Counter[int] = Counter()
        """Bytes of marks with messages, by account."""
        for key, value in store.scan(_META, _PREFIX, _PREFIX[:-1] + b"\1"):
            _, program, slot, part = _KEY.unpack(key)
            size = len(key) + len(value)
            self._count(program, slot, _NUMBER.unpack_from(value)[0], part, size, size if size > _LARGE else 0)

    def _count(self, program: bytes, slot: int, number: int, part: int, size: int, messages: int) -> int:
        """Count a mark; return the last part of the call that had the slot before, which counts no more, or -1."""
        held = self._held.get(program) or self._held.setdefault(program, _Held())
        before, last = held.slots.get(slot), -1
        if before is None:
            held.slots[slot] = number, size, part, messages
        elif before[0] == number and part:
            held.slots[slot] = number, before[1] + size, max(part, before[2]), before[3] + messages
        else:
            held.slots[slot], last = (number, size, part, messages), before[2]
            self._grow(held, -before[1], -before[3])
        self._grow(held, size, messages)
        return last

    def _grow(self, held: _Held, size: int, messages: int) -> None:
        held.size += size
        self._size += size
        held.messages += messages
        self._messages += messages
        self._of_accounts[held.account] += messages

    def belong(self, program: bytes, account: int) -> None:
        """Count the marks of a program, which has come, for the account that it runs as."""
        held = self._held.get(program) or self._held.setdefault(program, _Held())
        size, messages = held.size, held.messages
        self._grow(held, -size, -messages)
        held.account = account
        self._grow(held, size, messages)

    def has_room(self, program: bytes, slot: int, size: int, most: int | None = None) -> bool:
        """Whether a mark of that size may be kept. One in the place of another that is as large always may."""
        held = self._held.get(program)
        if held is None or (before := held.slots.get(slot)) is None:
            more = size
        elif (more := size - before[1]) <= 0:
            return True
        return (0 if held is None else held.size) + more <= (MOST_OF_PROGRAM if most is None else most)

    def has_room_for_messages(self, program: bytes, slot: int, size: int) -> bool:
        """The same for the messages of a receive, which leave room for the identifiers of sends."""
        held = self._held.get(program)
        account = self._of_accounts[NOBODY if held is None else held.account]
        if account + size > MOST_OF_ALL - self._messages:
            return False
        return self.has_room(program, slot, size, MOST_OF_PROGRAM // 2)

    def put(
        self, program: bytes, slot: int, number: int, answer: Iterable[Packet], part: int = WHOLE, *,
        with_messages: bool = False,
    ) -> None:  # fmt: skip
        """Write the mark of a call, with its answer in parts, in the current batch."""
        value = b"".join((_NUMBER.pack(number), *answer))
        size = _KEY.size + len(value)
        last = self._count(program, slot, number, part, size, size if with_messages else 0)
        if last > 0 or (last == 0 and part):
            first, end = _KEY.pack(_PREFIX, program, slot, 0), _KEY.pack(_PREFIX, program, slot, last + 1)
            self._store.delete_range(_META, first, end)
        self._store.put(_META, _KEY.pack(_PREFIX, program, slot, part), value)

    def find(self, program: bytes, slot: int, number: int) -> Mapping[int, bytes]:
        """The answers of a call, by part; of none that is not done. The batch must have been written."""
        first, end = _KEY.pack(_PREFIX, program, slot, 0), _KEY.pack(_PREFIX, program, slot, 0xFFFFFFFF)
        return {
            _KEY.unpack(key)[3]: value[_NUMBER.size :]
            for key, value in self._store.scan(_META, first, end)
            if _NUMBER.unpack_from(value)[0] == number
        }

    def programs(self) -> set[bytes]:
        """The programs that have marks."""
        return set(self._held)

    def forget(self, program: bytes) -> None:
        """Delete the marks of a program with the next batch."""
        if (held := self._held.pop(program, None)) is not None:
            self._grow(held, -held.size, -held.messages)
            if not self._of_accounts[held.account]:
                del self._of_accounts[held.account]
        first, end = _KEY.pack(_PREFIX, program, 0, 0), _KEY.pack(_PREFIX, program, 0xFFFFFFFF, 0xFFFFFFFF)
        self._store.delete_range(_META, first, end + b"\0")
