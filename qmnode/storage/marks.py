"""Marks of calls that were done for programs that may ask again, since a lost connection may have lost the answer.

A program that connects again does not know whether its last calls were done. Each call that changes messages has a
number and a *slot*, which no other call under way of that program has: a call in a slot says that the answer to the
one before has arrived. The mark of a call is written with the change, in one batch.

The mark of a send or a commit replaces the mark of the send before in its slot. Receives that are done in one batch
share a record, their *group*. Its bytes are those of their answers, so that they are put together once for the disk and
for the program. A record is used again when all of its calls are answered. So marks do not grow with the calls, and
none is deleted one by one.
"""

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from qmnode.storage.layout import Family
from qmnode.storage.store import Store
from qmnode.structures.packet_view import Packet

_META: Final = Family.META
_PREFIX: Final = b"mark\0"
_KEY: Final = struct.Struct(">5s16sII")
_NUMBER: Final = struct.Struct(">I")
_CALL: Final = struct.Struct(">III")
"""In the record of a group: slot and number of a call, and where its answer ends; it begins where the one before does.
"""
PROGRAM_SIZE: Final = 16
"""Bytes of a program's identifier."""
MOST_OF_PROGRAM: Final = 16 * 1024 * 1024
"""Bytes of one program's marks. Over half of them none is kept with messages; over all of them it may not send."""
MOST_OF_ALL: Final = 64 * 1024 * 1024
"""Bytes of all marks with messages. One account gets no more of them than it leaves to others: half if it is the only
one.
"""
MOST_OF_GROUP: Final = 64 * 1024
"""Bytes of the answers in a group, unless one is larger: it stays as long as one of them is not confirmed."""
NOBODY: Final = -1
"""The account of programs that have not come back since the start."""
_GROUPS: Final = 1 << 31
"""Groups have the slots from this one on in the keys."""
_NUMBERS: Final = 0xFFFFFFFF
WHOLE: Final = 0
"""The part of a call that is done as one; its messages that are sent each for itself count from 1."""


class MarkGroup:
    """The record of several receives: its slot in the key, the slot, the number and the end of each, and its bytes in
    the store. ``value`` is the record until the answers have been handed over, and ``start`` where they begin in it.
    """

    __slots__ = ("calls", "left", "size", "slot", "start", "value")

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.calls: Sequence[tuple[int, int, int]] = ()
        self.left = 0
        """The calls without a known answer."""
        self.size = self.start = 0
        self.value = b""


class _Held:
    """The marks of one program, their bytes, and how many of those are of groups."""

    __slots__ = ("account", "free", "messages", "next_group", "received", "size", "slots")

    def __init__(self, account: int = NOBODY) -> None:
        self.account = account
        self.size = self.messages = 0
        self.slots: dict[int, tuple[int, int, int]] = {}
        """Of each slot with a send or a commit: the number of its call, the bytes of its marks, and their last part."""
        self.received: dict[int, MarkGroup] = {}
        """The groups of the last receives, by slot."""
        self.next_group = _GROUPS
        self.free: list[MarkGroup] = []
        """Groups whose calls are all answered."""


class Marks:
    """The marks of a store, which take at most so many bytes, whatever a program does."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._size = 0
        self._messages = 0
        self._held: dict[bytes, _Held] = {}
        self._of_accounts: Counter[int] = Counter()
        """Bytes of marks with messages, by account."""
        self.due: list[Callable[[], None]] = []
        """Called before the current batch is written: they write marks in it."""
        groups: list[tuple[_Held, MarkGroup]] = []
        for key, value in store.scan(_META, _PREFIX, _PREFIX[:-1] + b"\1"):
            _, program, slot, part = _KEY.unpack(key)
            held = self._held_of(program)
            if slot < _GROUPS:
                self._count(held, slot, _NUMBER.unpack_from(value)[0], part, len(key) + len(value))
            else:
                groups.append((held, self._load(held, slot, value)))
        for held, group in groups:
            if not group.left:
                held.free.append(group)
        self._before_write = store.before_write
        store.before_write = self._write_due

    def _load(self, held: _Held, slot: int, value: bytes) -> MarkGroup:
        """Enter a group. Of each slot only the newest call can be asked for again."""
        group = MarkGroup(slot)
        group.calls = list(_CALL.iter_unpack(value[_NUMBER.size : _start(*_NUMBER.unpack_from(value))]))
        held.next_group = slot + 1
        self._resize(held, group, _KEY.size + len(value))
        for one, number, _ in group.calls:
            if not one:
                continue
            before = held.received.get(one)
            if before is not None:
                if number - _number(before, one) & _NUMBERS >= _GROUPS:
                    continue
                before.left -= 1
            held.received[one] = group
            group.left += 1
        return group

    def _held_of(self, program: bytes) -> _Held:
        return self._held.get(program) or self._held.setdefault(program, _Held())

    def _write_due(self) -> None:
        self._before_write()
        if self.due:
            due, self.due = self.due, []
            for write in due:
                write()

    def _count(self, held: _Held, slot: int, number: int, part: int, size: int) -> int:
        """Count a mark; return the last part of the call that had the slot before, which counts no more, or -1."""
        before, last = held.slots.get(slot), -1
        if before is None:
            held.slots[slot] = number, size, part
        elif before[0] == number and part:
            held.slots[slot] = number, before[1] + size, max(part, before[2])
        else:
            held.slots[slot], last = (number, size, part), before[2]
            self._grow(held, -before[1])
        self._grow(held, size)
        return last

    def _grow(self, held: _Held, size: int, messages: int = 0) -> None:
        held.size += size
        self._size += size
        if messages:
            held.messages += messages
            self._messages += messages
            self._of_accounts[held.account] += messages

    def _resize(self, held: _Held, group: MarkGroup, size: int) -> None:
        self._grow(held, size - group.size, size - group.size)
        group.size = size

    def belong(self, program: bytes, account: int) -> None:
        """Count the marks of a program, which has come, for the account that it runs as."""
        held = self._held_of(program)
        size, messages = held.size, held.messages
        self._grow(held, -size, -messages)
        held.account = account
        self._grow(held, size, messages)

    def has_room(self, program: bytes, slot: int, size: int) -> bool:
        """Whether a mark of that size may be kept. One in the place of another that is as large always may."""
        held = self._held.get(program)
        if held is None:
            return size <= MOST_OF_PROGRAM
        more = size - (held.slots[slot][1] if slot in held.slots else 0)
        return more <= 0 or held.size + more <= MOST_OF_PROGRAM

    def put(self, program: bytes, slot: int, number: int, answer: bytes, part: int = WHOLE) -> None:
        """Write the mark of a send or a commit, with its answer, in the current batch."""
        held = self._held_of(program)
        value = _NUMBER.pack(number) + answer
        last = self._count(held, slot, number, part, _KEY.size + len(value))
        if last > 0 or (last == 0 and part):
            first, end = _KEY.pack(_PREFIX, program, slot, 0), _KEY.pack(_PREFIX, program, slot, last + 1)
            self._store.delete_range(_META, first, end)
        self._store.put(_META, _KEY.pack(_PREFIX, program, slot, part), value)
        self._confirm(held, slot)

    # Receives

    def put_received(
        self, program: bytes, calls: Sequence[tuple[int, int, int]], answers: Sequence[Packet]
    ) -> MarkGroup:
        """Write the marks of receives in the current batch: slot, number and size of the answer of each, and the parts
        of the answers. If there is no room for those, the group has no ``value``.
        """
        held = self._held_of(program)
        for slot, _, _ in calls:
            self._confirm(held, slot)
        if held.free:
            before = held.free.pop()
            group = MarkGroup(before.slot)
            group.size = before.size
        else:
            group = MarkGroup(held.next_group)
            held.next_group += 1
        start, end, ends = _start(len(calls)), 0, []
        if answers:
            size = start + sum([size for _, _, size in calls])
            if not self._has_room_for(held, group, size):
                for unused in held.free:
                    self._delete(program, held, unused)
                if not self._has_room_for(held, group, size):
                    answers = ()
        for slot, number, size in calls:
            end += size if answers else 0
            ends.append((slot, number, end))
            held.received[slot] = group
        # A program may give one slot to several calls: it counts once, as it is confirmed once.
        group.calls, group.left, group.start = ends, len({slot for slot, _, _ in ends}), start
        value = self._write(program, held, group, answers)
        if answers:
            group.value = value
        return group

    def _write(self, program: bytes, held: _Held, group: MarkGroup, answers: Sequence[Packet]) -> bytes:
        heads = [number for call in group.calls for number in call]
        value = b"".join((struct.pack(f">{1 + len(heads)}I", len(group.calls), *heads), *answers))
        self._resize(held, group, _KEY.size + len(value))
        self._store.put(_META, _KEY.pack(_PREFIX, program, group.slot, WHOLE), value)
        return value

    def _has_room_for(self, held: _Held, group: MarkGroup, size: int) -> bool:
        """Whether a group may have that size. It leaves room for the identifiers of sends."""
        more = _KEY.size + size - group.size
        if more <= 0:
            return True
        has_share = self._of_accounts[held.account] + more <= MOST_OF_ALL - self._messages
        return has_share and held.size + more <= MOST_OF_PROGRAM // 2

    def _confirm(self, held: _Held, slot: int) -> None:
        """Note that the receive before in this slot is answered."""
        group = held.received.pop(slot, None)
        if group is not None:
            group.left -= 1
            if not group.left:
                held.free.append(group)

    def _delete(self, program: bytes, held: _Held, group: MarkGroup) -> None:
        if group.size:
            self._resize(held, group, 0)
            self._store.delete(_META, _KEY.pack(_PREFIX, program, group.slot, WHOLE))

    def withdraw(self, program: bytes, group: MarkGroup, slots: Iterable[int]) -> None:
        """Take receives out of a group in the current batch: their messages are put back."""
        held = self._held.get(program)
        withdrawn = set() if held is None else {slot for slot in slots if held.received.get(slot) is group}
        if held is None or not withdrawn:
            return
        for slot in withdrawn:
            self._confirm(held, slot)
        group.calls = [(0, 0, end) if slot in withdrawn else (slot, number, end) for slot, number, end in group.calls]
        if group.left:
            value = group.value or self._store.get(_META, _KEY.pack(_PREFIX, program, group.slot, WHOLE)) or b""
            self._write(program, held, group, [memoryview(value)[group.start :]])
        else:
            self._delete(program, held, group)

    def find(self, program: bytes, slot: int, number: int) -> Mapping[int, bytes]:
        """The answers of a call, by part; of none that is not done. The batch must have been written."""
        held = self._held.get(program)
        group = None if held is None else held.received.get(slot)
        if group is not None and _number(group, slot) == number:
            value = self._store.get(_META, _KEY.pack(_PREFIX, program, group.slot, WHOLE)) or b""
            place = [one for one, _, _ in group.calls].index(slot)
            start = _start(len(group.calls))
            begin, end = group.calls[place - 1][2] if place else 0, group.calls[place][2]
            return {WHOLE: value[start + begin : start + end]}
        first, end_key = _KEY.pack(_PREFIX, program, slot, 0), _KEY.pack(_PREFIX, program, slot, 0xFFFFFFFF)
        return {
            _KEY.unpack(key)[3]: value[_NUMBER.size :]
            for key, value in self._store.scan(_META, first, end_key)
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


def _start(count: int) -> int:
    """Where the answers begin in the record of a group."""
    return _NUMBER.size + count * _CALL.size


def _number(group: MarkGroup, slot: int) -> int:
    return next(number for one, number, _ in group.calls if one == slot)
