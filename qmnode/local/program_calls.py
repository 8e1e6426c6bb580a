"""The methods that an application calls, what it has open (queues, cursors and transactions), and marks of its calls.

A program that connects again does not know whether its last calls were done, since a lost connection may have lost the
answers. Each call that changes messages has a number and a *slot*, which no other call under way of that program has: a
call in a slot says that the answer to the one before has arrived. The mark of a call is written with the change, in one
batch.

The mark of a send or a commit replaces the mark of the send before in its slot. Receives that are done in one batch
share a record, their *group*. Its bytes are those of their answers, so that they are put together once for the disk and
for the program. A record is used again when all of its calls are answered. So marks do not grow with the calls, and
none is deleted one by one.
"""

import asyncio
import contextlib
import inspect
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog

from qmnode.administration.asker import Asker
from qmnode.administration.operation_rights import GuardedQueueManager
from qmnode.errors import MessageQueuingError
from qmnode.local import values
from qmnode.local.audited_calls import CHANGES, Auditor, LocalChange, properties_of, target_of
from qmnode.local.frames import (
    HEAD_SIZE,
    LOGIN,
    MOST_SLOTS,
    NO_TRANSACTION,
    PUBLISHING,
    RECEIVE_HEAD,
    REPEATED,
    REQUESTS,
    ROOM,
    SEND_HEAD,
    SINGLE_TRANSACTION,
    SLOT,
    SLOT_SHIFT,
    TOGETHER,
    Frame,
    FrameError,
    FrameKind,
    pack_received,
    unpack_sent,
)
from qmnode.model.api import (
    Access,
    CursorApi,
    DirectoryLogin,
    InTransaction,
    QueueApi,
    QueueInformation,
    QueueManagerApi,
    Share,
    TransactionApi,
)
from qmnode.model.message import DEFAULTS, Message
from qmnode.model.open_queue import Mark, OpenQueueDescriptor
from qmnode.model.opening import MultipleQueueDescriptor
from qmnode.model.ports import Entry
from qmnode.model.queue_manager import QueueManager
from qmnode.model.stored_message import Room, message_from_packet, whole_value
from qmnode.model.transaction import Transaction
from qmnode.security.principals import Principals
from qmnode.settings.node import LocalSettings
from qmnode.storage.layout import Family
from qmnode.storage.store import Store
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.errors import PacketError
from qmnode.structures.guid import GUID_SIZE, Guid
from qmnode.structures.packet_view import Packet

if TYPE_CHECKING:
    from qmnode.administration.operations import Operations


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


NOT_UNDERSTOOD: Final = (FrameError, TypeError, ValueError, KeyError, struct.error)
"""Exceptions for what an application asks that means nothing here."""

_RECEIVE_SIZE: Final = RECEIVE_HEAD.size
_RECEIVE_SIZES: Final = (_RECEIVE_SIZE, _RECEIVE_SIZE + ROOM.size, _RECEIVE_SIZE + SLOT.size)
MOST_KEPT: Final = 256 * 1024
"""Bytes of messages that the mark of a receive has at most: they are written once more with it."""
_unpack_receive: Final = RECEIVE_HEAD.unpack_from
_IDENTIFIER: Final = 20
"""Bytes of a message identifier in the mark of a send."""
_PAGE: Final = 200
"""Queues in one answer of a search."""
_SEARCHES: Final = 8
"""Searches that an application has open at most."""
CallOutcome = tuple[FrameKind, Sequence[Packet]]
"""The kind of an answer, and the parts of its body."""

log = structlog.get_logger(__name__)


class _Search:
    """Public queues that were found, on their way to an application."""

    def __init__(self, found: list[QueueInformation]) -> None:
        self.found = found

    async def close(self) -> None:
        self.found.clear()


class LocalNode:
    """The node as applications of this machine share it: the queue manager, and the marks of their calls."""

    def __init__(
        self,
        manager: QueueManager,
        settings: LocalSettings,
        audit: Auditor | None = None,
        complete: bool = True,
        principals: Principals | None = None,
    ) -> None:
        """While the queue manager is not ``complete``, all calls but those for its status wait.

        ``principals`` says who applications are; without it that is as in a workgroup.
        """
        self.manager = manager
        self.principals = principals or Principals(manager.settings.security)
        self.settings = settings
        self.audit = audit
        self.operations: Operations | None = None
        """Set when the queue manager is complete, if it has any."""
        store = manager.context.store
        self.marks = Marks(store) if isinstance(store, Store) else None
        self.completed = asyncio.Event()
        if complete:
            self.completed.set()

    def complete(self, operations: "Operations | None" = None) -> None:
        """The queue manager can do everything from now on; calls that wait for that go on, the oldest first."""
        self.operations = operations
        self.completed.set()


class ReceiveStarter(Protocol):
    """The receives outside of transactions, which answer by themselves."""

    def start(
        self, number: int, queue: OpenQueueDescriptor, limit: int, timeout: float | None, room: Room | None, slot: int,
        most: int, /,
    ) -> None:  # fmt: skip
        """Receive up to ``limit`` messages, or one that fits."""

    def hand_over(self, queue: OpenQueueDescriptor, entries: list[Entry], /) -> None:
        """Keep messages that are gone from the disk until they are sent, or put them back."""


class Methods:
    """The calls of one application."""

    def __init__(self, node: LocalNode, user_id: int, groups: frozenset[int], receives: ReceiveStarter) -> None:
        self.encode = values.encode_for_first_release
        self._node = node
        self.marks = node.marks
        self.program = b""
        """Identifier of a program that connects again, or nothing."""
        self.user_id = user_id
        self._groups = groups
        self._receives = receives
        self._guarded: GuardedQueueManager
        self._handles: dict[int, QueueApi | CursorApi | _Search] = {}
        self._transactions: dict[int, TransactionApi] = {}
        self._last_handle = 0
        self._searching = 0
        """Searches that the directory has not answered yet."""

    async def perform(self, call: Frame) -> CallOutcome | None:
        """Do what a call asks for. None: it is a receive that has been started, which answers by itself."""
        return await WORK[call.kind](self, call)

    async def run_down(self) -> None:
        """Close what the application left open, and abort what it did not commit."""
        try:
            for handle in list(self._handles.values()):
                await handle.close()
            for transaction in list(self._transactions.values()):
                await transaction.abort()
        except MessageQueuingError as error:
            log.warning("what an application left behind could not all be closed", error=str(error))
        finally:
            self._handles.clear()
            self._transactions.clear()

    def begin_receive(self, call: Frame) -> bool:
        """Begin a receive outside of transactions. False leaves it to a task."""
        body = call.data
        if len(body) not in _RECEIVE_SIZES or not self._node.completed.is_set():
            return False
        handle, transaction, limit, timeout = _unpack_receive(body)
        queue = self._handles.get(handle)
        if transaction not in _NO_UNIT or not limit or not isinstance(queue, OpenQueueDescriptor):
            return False
        slot = self._slot(body)
        if slot & REPEATED:
            return False
        most = MOST_KEPT if slot & TOGETHER else 0
        self._receives.start(call.number, queue, limit, _seconds(timeout), _room(body), slot >> SLOT_SHIFT, most)
        return True

    def _slot(self, receive: Packet) -> int:
        """The slot of a receive, and REPEATED."""
        if len(receive) != _RECEIVE_SIZE + SLOT.size:
            return 0
        slot: int = SLOT.unpack_from(receive, _RECEIVE_SIZE)[0]
        self._check_program(slot)
        return slot

    def _check_program(self, slot: int) -> None:
        if slot >> SLOT_SHIFT and not self.program:
            raise FrameError("a call with a slot, of a program that did not say how it is called")
        if slot >> SLOT_SHIFT > MOST_SLOTS:
            raise FrameError(f"slot {slot >> SLOT_SHIFT}: a program has {MOST_SLOTS}")

    def _done(self, slot: int, number: int) -> Mapping[int, bytes]:
        """Answers to a call over the connection before, by part; none if it was not done."""
        marks = self.marks
        if marks is None or not self.program:
            raise FrameError("a call that was made before, of a program that did not say how it is called")
        return marks.find(self.program, slot, number)

    def mark(self, slot: int, number: int, answer: bytes, part: int = WHOLE) -> None:
        """Write the mark of a call in the current batch."""
        assert self.marks is not None
        self.marks.put(self.program, slot, number, answer, part)

    def mark_later(self, write: Callable[[], None]) -> None:
        """Call ``write`` before the current batch is written."""
        assert self.marks is not None
        self.marks.due.append(write)

    def withdraw(self, group: MarkGroup, slots: "Sequence[int]") -> None:
        """Take receives out of the marks in the current batch: their messages are put back."""
        assert self.marks is not None
        self.marks.withdraw(self.program, group, slots)

    def error_value(self, error: Exception) -> Any:
        """An error as it goes to the application."""
        if isinstance(error, MessageQueuingError):
            return values.error_value(error)
        if isinstance(error, NOT_UNDERSTOOD):
            return _not_understood(error)
        # A mistake of ours must cost the application one call, not the connection.
        log.error("a call failed unexpectedly", user_id=self.user_id, exc_info=error)
        return [int(ErrorCode.MQ_ERROR), "the node failed at this call; its log says why"]

    # Calls

    def _queue(self, handle: int) -> QueueApi:
        queue = self._handles.get(handle)
        if not isinstance(queue, QueueApi):
            raise MessageQueuingError(ErrorCode.MQ_ERROR_INVALID_HANDLE, "the queue was closed: open it again")
        return queue

    def _cursor(self, handle: int) -> CursorApi:
        cursor = self._handles.get(handle)
        if not isinstance(cursor, CursorApi):
            raise MessageQueuingError(ErrorCode.MQ_ERROR_INVALID_HANDLE, "the cursor was closed: open it again")
        return cursor

    def _search(self, handle: int) -> _Search:
        search = self._handles.get(handle)
        if not isinstance(search, _Search):
            raise MessageQueuingError(ErrorCode.MQ_ERROR_INVALID_HANDLE, "the search has ended: begin another one")
        return search

    def _transaction(self, number: int) -> InTransaction:
        if number == NO_TRANSACTION:
            return None
        if number == SINGLE_TRANSACTION:
            return "single"
        transaction = self._transactions.get(number)
        if transaction is None:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE, "the transaction has ended: begin another one"
            )
        return transaction

    def _check_room(self) -> None:
        """Before anything is opened or begun."""
        limit = self._node.settings.handles
        if len(self._handles) + len(self._transactions) >= limit:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES,
                f"this application has {limit} queues, cursors and transactions open (local.handles): close some",
            )

    def _register(self, thing: QueueApi | CursorApi | _Search) -> int:
        self._last_handle += 1
        self._handles[self._last_handle] = thing
        return self._last_handle

    async def send(self, call: Frame) -> CallOutcome:
        """Send a batch: as one, or each for itself."""
        handle, transaction, how, count = SEND_HEAD.unpack_from(call.data)
        queue, unit, slot = self._queue(handle), self._transaction(transaction), how >> SLOT_SHIFT
        self._check_program(how)
        done: Mapping[int, bytes] = {}
        if how & REPEATED and (done := self._done(slot, call.number)) and WHOLE in done:
            return FrameKind.IDENTIFIERS, (done[WHOLE],)
        mark = partial(self._mark_sent, slot, call.number) if slot else None
        if slot and self.marks is not None and not self.marks.has_room(self.program, slot, count * _IDENTIFIER):
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES,
                "the outcomes of this program's calls, which the node keeps until it makes others, take too much: "
                "have fewer calls under way",
            )
        packets, besides = unpack_sent(call, count)
        # One alone is not tried again: its packet may have become the stored value.
        together = bool(how & TOGETHER) or unit is not None or count == 1
        try:
            # One write for all of them when nothing is wrong, which is how it nearly always is.
            if not done and not besides and isinstance(queue, OpenQueueDescriptor):
                return FrameKind.IDENTIFIERS, await queue.send_packets(packets, unit, mark)
            if not done:
                messages = [_message(packet, besides.get(number)) for number, packet in enumerate(packets)]
                return FrameKind.IDENTIFIERS, await _send_all(queue, messages, unit, mark)
        except PacketError as error:
            if together:
                raise _no_packet(error) from error
        except (MessageQueuingError, *NOT_UNDERSTOOD):
            if together:
                raise
        each = (
            self._send_alone(queue, packet, besides.get(at), slot, call.number, at + 1, done)
            for at, packet in enumerate(packets)
        )
        outcomes = await asyncio.gather(*each, return_exceptions=True)
        return FrameKind.MIXED, (values.encode([_outcome(outcome) for outcome in outcomes]),)

    def _mark_sent(self, slot: int, number: int, identifiers: list[bytes], part: int = WHOLE) -> None:
        self.mark(slot, number, b"".join(identifiers), part)

    async def _send_alone(
        self, queue: QueueApi, packet: Packet, more: bytes | None, slot: int, call: int, part: int,
        done: Mapping[int, bytes],
    ) -> bytes:  # fmt: skip
        if part in done:
            return done[part]
        mark = partial(self._mark_sent, slot, call, part=part) if slot else None
        return (await _send_all(queue, [_message(packet, more)], None, mark))[0]

    async def receive(self, call: Frame) -> CallOutcome | None:
        """Receive up to a number of messages."""
        if len(call.data) not in _RECEIVE_SIZES:
            raise FrameError(f"a receive of {len(call.data)} bytes")
        handle, transaction, limit, timeout = _unpack_receive(call.data)
        queue, unit, room = self._queue(handle), self._transaction(transaction), _room(call.data)
        slot = self._slot(call.data)
        if slot and transaction in _NO_UNIT and limit and isinstance(queue, OpenQueueDescriptor):
            if slot & REPEATED and (done := self._done(slot >> SLOT_SHIFT, call.number)):
                return FrameKind.MESSAGES, (_kept(done[WHOLE]),)
            most = MOST_KEPT if slot & TOGETHER else 0
            self._receives.start(call.number, queue, limit, _seconds(timeout), None, slot >> SLOT_SHIFT, most)
            return None
        if room is None:
            messages = await queue.receive_many(limit, _seconds(timeout), unit)
        elif isinstance(queue, OpenQueueDescriptor):
            messages = [await queue.receive_fitting(room, _seconds(timeout), unit)]
        else:  # of another queue manager: no message is known to fit before it is here
            raise MessageQueuingError(ErrorCode.MQ_ERROR_BUFFER_OVERFLOW)
        if transaction in _NO_UNIT and isinstance(queue, OpenQueueDescriptor):
            self._receives.hand_over(queue, [_entry(message) for message in messages])
        return FrameKind.MESSAGES, _pack_messages(messages)

    async def peek(self, call: Frame) -> CallOutcome:
        """Peek at the first message."""
        handle, _, _, timeout = RECEIVE_HEAD.unpack(call.data)
        return FrameKind.MESSAGES, _pack_messages([await self._queue(handle).peek(_seconds(timeout))])

    async def call(self, call: Frame) -> CallOutcome:
        """Any other method: ``[what, handle, method, arguments, keywords]``."""
        what, handle, method, arguments, keywords = values.decode(call.body)
        login = keywords.pop(LOGIN, None) if method in PUBLISHING else None
        # ``begin`` asks for no right, and a call with its transaction may come next.
        if what in ("manager", "operations") and method != "begin":
            await self._admit(None if login is None else _login(login))
        allowed, target = self._target(what, handle)
        if method not in allowed:
            raise FrameError(f"there is no call {what}.{method}")
        with self._audited(method, target, arguments, keywords):
            if "transaction" in keywords:
                keywords["transaction"] = self._transaction(keywords["transaction"])
            if what == "operations":
                result = await getattr(target, method)(self._asker(), *arguments, **keywords)
            elif method in _OWN:
                result = await _OWN[method](self, handle, *arguments, **keywords)
            else:
                result = await getattr(target, method)(*arguments, **keywords)
        if isinstance(result, Message):
            return FrameKind.MESSAGES, _pack_messages([result])
        return FrameKind.RESULT, (self.encode(result),)

    async def _admit(self, login: DirectoryLogin | None = None) -> None:
        """See who the application is, and what the queue manager is to it. It is remembered, by user and groups."""
        node = self._node
        if node.completed.is_set():
            principal = await node.principals.of_local_user(self.user_id, self._groups)
        else:  # asked for the status, while the directory may not be there yet
            principal = node.principals.of_unix_user(self.user_id, self._groups)
        self._guarded = GuardedQueueManager(node.manager, principal, self._repaired, login)

    def _repaired(self, operation: str, name: str) -> None:
        """Report an operation that only an administrator could do to the audit log."""
        if self._node.audit is not None:
            self._node.audit(LocalChange(self.user_id, "repair", name, (operation,), "done", None))

    @contextlib.contextmanager
    def _audited(self, method: str, target: object, arguments: list[Any], keywords: dict[str, Any]) -> Iterator[None]:
        """Report a change to the audit log, however it ends."""
        audit = self._node.audit
        if audit is None or method not in CHANGES:
            yield
            return
        name = target.format_name if isinstance(target, QueueApi) else target_of(arguments)
        outcome, problem = "aborted", None
        try:
            yield
            outcome = "done"
        except MessageQueuingError as error:
            outcome = "denied" if error.code == ErrorCode.MQ_ERROR_ACCESS_DENIED else "failed"
            problem = error.name
            raise
        finally:
            audit(LocalChange(self.user_id, method, name, properties_of(keywords), outcome, problem))

    def _target(self, what: str, handle: int) -> tuple[frozenset[str], object]:
        match what:
            case "manager":
                return _MANAGER_METHODS, getattr(self, "_guarded", None)
            case "queue":
                return _QUEUE_METHODS, self._queue(handle)
            case "cursor":
                return _CURSOR_METHODS, self._cursor(handle)
            case "search":
                return _SEARCH_METHODS, self._search(handle)
            case "transaction":
                return _TRANSACTION_METHODS, self._transaction(handle)
            case "operations":
                return _OPERATION_METHODS, self._operations()
            case _:
                raise FrameError(f"there are no calls on a {what}")

    def _operations(self) -> "Operations":
        if self._node.operations is None:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_UNSUPPORTED_OPERATION, "this queue manager has no operations on messages"
            )
        return self._node.operations

    def _asker(self) -> Asker:
        return Asker(f"uid:{self.user_id}", principal=self._guarded.principal)

    async def _open_queue(self, _: int, format_name: str, access: int, share: int) -> list[Any]:
        self._check_room()
        queue = await self._guarded.open_queue(format_name, Access(access), Share(share))
        queue.user_id = self.user_id
        return [self._register(queue), queue.format_name]

    async def _find_queues(
        self,
        _: int,
        label: str | None = None,
        type: bytes | None = None,
        computer: str | None = None,
        identifier: bytes | None = None,
    ) -> int:
        self._check_room()
        if self._searching + sum(isinstance(thing, _Search) for thing in self._handles.values()) >= _SEARCHES:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES,
                f"this application has {_SEARCHES} searches open: end some",
            )
        texts = {"label": label, "computer": computer}
        if wrong := [name for name, text in texts.items() if not isinstance(text, str | None)]:
            raise FrameError(f"{wrong[0]} of a queue is no text")
        for guid in (type, identifier):
            if guid is not None and (not isinstance(guid, bytes) or len(guid) != GUID_SIZE):
                raise FrameError("the type or the identifier of a queue is no GUID")
        service = None if type is None else Guid(type)
        known = None if identifier is None else Guid(identifier)
        self._searching += 1
        try:
            found = await self._guarded.find_queues(label=label, type=service, computer=computer, identifier=known)
        finally:
            self._searching -= 1
        return self._register(_Search(found))

    async def _next_found(self, handle: int) -> list[QueueInformation]:
        """Some more of the queues; none at the end, which ends the search."""
        found = self._search(handle).found
        page = found[:_PAGE]
        del found[:_PAGE]
        if not page:
            await self._close_handle(handle)
        return page

    async def _find_machine(self, _: int, wanted: str | bytes) -> dict[str, Any]:
        if not isinstance(wanted, str) and (not isinstance(wanted, bytes) or len(wanted) != GUID_SIZE):
            raise FrameError("a machine has a name, or a GUID")
        found = await self._guarded.find_machine(wanted if isinstance(wanted, str) else Guid(wanted))
        return {"computer_name": found.computer_name, "identifier": found.identifier}

    async def _register_certificate(self, _: int, certificate: bytes) -> None:
        if not isinstance(certificate, bytes):
            raise FrameError("a certificate is bytes")
        await self._guarded.register_certificate(certificate)

    async def _begin(self, _: int, number: int) -> bytes:
        if number in (NO_TRANSACTION, SINGLE_TRANSACTION) or number in self._transactions:
            raise FrameError(f"a transaction cannot have the number {number}")
        self._check_room()
        transaction = self._transactions[number] = self._node.manager.transaction()
        return bytes(transaction.identifier)

    async def _end_transaction(self, number: int, commit: bool, slot: int = 0, call: int = 0) -> None:
        transaction = self._transaction(number)
        if not isinstance(transaction, Transaction):
            raise FrameError(f"{number} is no transaction")
        mark = None
        if slot:
            self._check_program(slot << SLOT_SHIFT)
            mark = partial(self.mark, slot, call, b"")
        del self._transactions[number]
        await (transaction.commit(mark) if commit else transaction.abort())

    async def _is_done(self, _: int, slot: int, call: int) -> bool:
        """Whether a call of this program's connection before was done."""
        return bool(self._done(slot, call))

    async def _open_cursor(self, handle: int) -> int:
        self._check_room()
        return self._register(self._queue(handle).cursor())

    async def _close_handle(self, handle: int) -> None:
        await self._handles.pop(handle).close()

    async def _move(self, handle: int, lookup: int, target: int, transaction: InTransaction = None) -> None:
        await self._queue(handle).move(lookup, self._queue(target), transaction)


Work = Callable[[Methods, Frame], Awaitable[CallOutcome | None]]
_NO_UNIT: Final = (NO_TRANSACTION, SINGLE_TRANSACTION)
"""Numbers of receives that are outside of transactions, or are one themselves."""

WORK: Final[dict[int, Work]] = {
    FrameKind.SEND: Methods.send,
    FrameKind.RECEIVE: Methods.receive,
    FrameKind.PEEK: Methods.peek,
    FrameKind.CALL: Methods.call,
}

_OWN: Final[dict[str, Callable[..., Awaitable[Any]]]] = {
    "open_queue": Methods._open_queue,
    "find_machine": Methods._find_machine,
    "find_queues": Methods._find_queues,
    "next": Methods._next_found,
    "register_certificate": Methods._register_certificate,
    "begin": Methods._begin,
    "is_done": Methods._is_done,
    "end": Methods._end_transaction,
    "cursor": Methods._open_cursor,
    "close": Methods._close_handle,
    "move": Methods._move,
}
"""Methods in which handles stand for queues, cursors, searches and transactions."""


def _methods(interface: type, *more: str, without: frozenset[str] = frozenset()) -> frozenset[str]:
    """The coroutine methods of an interface: those that an application may call through the socket."""
    own = {
        name
        for name, member in inspect.getmembers(interface, inspect.iscoroutinefunction)
        if not name.startswith("_") and name not in without
    }
    return frozenset(own.union(more))


_MANAGER_METHODS: Final = _methods(
    QueueManagerApi, "begin", "is_done", "find_machine", "register_certificate", without=frozenset({"close"})
)
_QUEUE_METHODS: Final = _methods(QueueApi, "cursor")
_CURSOR_METHODS: Final = _methods(CursorApi)
_SEARCH_METHODS: Final = frozenset({"next", "close"})
_OPERATION_METHODS: Final = frozenset(
    {
        "find",
        "trace",
        "failures",
        "history",
        "edit",
        "import_messages",
        "start_job",
        "list_jobs",
        "show_job",
        "job_log",
        "control_job",
        "apply_document",
        "show_document",
    }
)
_TRANSACTION_METHODS: Final = frozenset({"prepare", "end"})


def _no_packet(error: PacketError) -> FrameError:
    return FrameError(f"a message that is no UserMessage packet: {error}")


def _login(given: Any) -> DirectoryLogin:
    match given:
        case [str() as account, str() as password] if account and password:
            return DirectoryLogin(account, password)
    raise FrameError("a login to the directory is an account and a password")


def _message(packet: Packet, more: bytes | None) -> Message:
    try:
        message = message_from_packet(packet)
    except PacketError as error:
        raise _no_packet(error) from error
    if more:
        properties = values.decode(more)
        if not isinstance(properties, dict) or not properties.keys() <= REQUESTS:
            raise FrameError("a message asks for what messages cannot ask for")
        for name, asked in properties.items():
            default = DEFAULTS[name]
            kinds = int if isinstance(default, int) else (int, float) if isinstance(default, float) else type(default)
            if not isinstance(asked, kinds):
                raise FrameError(f"{name} of a message cannot be {asked!r}")
        return message.copy(**properties)
    return message


async def _send_all(
    queue: QueueApi, messages: list[Message], transaction: InTransaction, mark: Mark | None
) -> list[bytes]:
    if isinstance(queue, OpenQueueDescriptor | MultipleQueueDescriptor):
        return await queue.send_many(messages, transaction, mark)
    return await queue.send_many(messages, transaction)


def _kept(mark: bytes) -> bytes:
    """The messages in the mark of a receive, which is its whole answer, or empty."""
    if not mark:
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_MESSAGE_ALREADY_RECEIVED,
            "large or many messages had left the queue when the connection was lost, and are gone: receive large "
            "messages in a transaction",
        )
    return mark[HEAD_SIZE:]


def _not_understood(error: BaseException) -> list[Any]:
    return [int(ErrorCode.MQ_ERROR_INVALID_PARAMETER), f"the call cannot be understood: {error}"]


def _entry(message: Message) -> Entry:
    return message.lookup_identifier, whole_value(message)


def _pack_messages(messages: list[Message]) -> Sequence[Packet]:
    return pack_received(map(_entry, messages))


def _outcome(outcome: bytes | BaseException) -> Any:
    if isinstance(outcome, MessageQueuingError):
        return values.error_value(outcome)
    if isinstance(outcome, NOT_UNDERSTOOD):
        return _not_understood(outcome)
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def _room(receive: Packet) -> Room | None:
    return Room(*ROOM.unpack_from(receive, _RECEIVE_SIZE)) if len(receive) == _RECEIVE_SIZE + ROOM.size else None


def _seconds(timeout: float) -> float | None:
    return None if timeout < 0 else timeout
