"""MessagePositionList, MS-MQDMPR 3.1.1.2: the messages of a queue in the order of delivery.

The list itself is in the store. Memory holds a window for each priority (a *lane*): the next messages to be received,
read ahead together. So a queue costs memory for the next receives, not for its backlog, and finding the first message
never means searching through deleted ones:

    head            window                       window_end
      |  locked?  | available, in memory          | on disk, not yet read ... |

Everything from the head to ``window_end`` is in the window or locked by a transaction; ``complete`` says that there is
nothing after it.

Below the lanes are the operations on many messages of a queue at once: insert, hand on, lock and remove. Work that the
messages share is done once; that is most of the cost of one message.
"""

import asyncio
import math
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from enum import Enum
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from qmnode.allocator import LEFT_TO_LEND, lendable
from qmnode.errors import MessageQueuingError
from qmnode.model.ports import Arrived, Entry, MessageStore, TimerHandle
from qmnode.model.stored_message import (
    EXPIRY,
    EXPRESS,
    FACTS,
    FLAGS,
    NEVER,
    NOTICE,
    ON_LOSS,
    PEEK_WHEN_LOCKED,
    PREFIX_SIZE,
    REPORT,
    arrival,
    expiry,
    read_arrival,
)
from qmnode.model.traffic import RECEIVED
from qmnode.settings.node import ReadAheadSettings
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.packet_view import Packet

if TYPE_CHECKING:
    from qmnode.model.queue import Queue
    from qmnode.model.shared_state import Context
    from qmnode.model.transaction import Transaction


# ----------------------------------------------------------------------------------------------------------------------
# Time To Be Received Timer: MS-MQDMPR 3.1.2.4 and 3.1.7.2.7. One timer for all messages, and an index on disk.
#
# The index is by second, so no timer per message is needed and a restart finds due messages without reading them. An
# expired message is deleted in one batch with its copy for the dead-letter queue and its acknowledgment.
#
# Most messages in transit have four days and need a second, so an entry for each would be written only to be deleted.
# Messages with a long time are indexed in groups. One entry covers about 4,096 messages of a queue, of which some may
# expire in the four minutes from its second on. When that time comes, messages that still exist get entries of their
# own.

log = structlog.get_logger(__name__)

_BEGINNING: Final = (0, 0, 0)
_CHUNK: Final = 200
"""Messages that expire in one pass of the event loop; the rest wait for the next."""
FAR: Final = 3600
"""Seconds from which on the time of a message counts as long."""
SECONDS: Final = 256
"""The range of a group, in seconds and in lookup identifiers, from a multiple of each on."""
GROUP_SHIFT: Final = 12
IDENTIFIERS: Final = 1 << GROUP_SHIFT
_SECOND_MASK: Final = ~(SECONDS - 1)
_IDENTIFIER_MASK: Final = ~(IDENTIFIERS - 1)
GROUP: Final = 0x8000_0000
"""Marks the queue number of a group's entry, whose range begins at its lookup identifier."""
_REMEMBERED: Final = 65_536
_GROUP_CHUNK: Final = 256
_GROUP_BYTES: Final = 1024 * 1024

ExpiryKey = tuple[int, int, int]
"""Second, queue number and lookup identifier."""


def group_of(when: int, queue_id: int, lookup_identifier: int) -> ExpiryKey:
    """The entry of the group that a message belongs to."""
    return when & _SECOND_MASK, queue_id | GROUP, lookup_identifier & _IDENTIFIER_MASK


class Expiry:
    """Knows when the next message expires."""

    def __init__(self, context: "Context") -> None:
        self._context = context
        self._next = NEVER
        self._searched = _BEGINNING
        """The index before this entry has been processed, so that the search does not begin among deleted keys."""
        self._timer: TimerHandle | None = None
        self._groups: set[ExpiryKey] = set()
        """Some of the groups that are in the index."""

    def start(self) -> None:
        """Find due messages in the index and set the timer."""
        self._arm_for_next()

    def stop(self) -> None:
        """Stop the expiry timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def add(self, when: int, queue_id: int, lookup_identifier: int) -> bool:
        """Add a message that expires at ``when``. Return whether the rest of its group needs no action."""
        group = group_of(when, queue_id, lookup_identifier)
        if group in self._groups:
            return True
        if group[0] > self._context.clock.time() + FAR:
            if len(self._groups) >= _REMEMBERED:
                self._groups.clear()
            self._groups.add(group)
            self._put(group)
            return True
        self._put((when, queue_id, lookup_identifier))
        return False

    def remove(self, when: int, queue_id: int, lookup_identifier: int) -> bool:
        """Remove a message. Its group stays: others may need it, else it is harmless. Returns as ``add``."""
        group = group_of(when, queue_id, lookup_identifier)
        if group in self._groups or group[0] > self._context.clock.time() + FAR:
            return True
        self._context.store.delete_expiry(when, queue_id, lookup_identifier)
        return False

    def _put(self, entry: ExpiryKey) -> None:
        self._context.store.put_expiry(*entry)
        if entry < self._searched:
            self._searched = entry
        if entry[0] < self._next:
            self._arm(entry[0])

    def _arm(self, when: int) -> None:
        self.stop()
        self._next = when
        clock = self._context.clock
        self._timer = clock.call_later(max(0.0, when - clock.time()), self._due)

    def _arm_for_next(self) -> None:
        self.stop()
        self._next = NEVER
        self._context.store.make_visible()
        for entry in self._context.store.read_expiry(self._searched, NEVER - 1, 1):
            self._searched = entry
            self._arm(entry[0])

    def _due(self) -> None:
        self._timer = None
        context = self._context
        now = int(context.clock.time())
        context.store.make_visible()
        due = context.store.read_expiry(self._searched, now, _CHUNK)
        # Messages added meanwhile, even in these seconds, bring the search back.
        self._searched = max(self._searched, due[-1] if len(due) == _CHUNK else (now + 1, 0, 0))
        for entry in due:
            try:
                self._handle(*entry)
            except MessageQueuingError as error:
                context.store.check()
                # It stays in the index for the next start, and keeps no other message from expiring.
                log.error("an expired message cannot be read", queue=entry[1] & ~GROUP, reason=error.sentence)
        context.store.durable()
        self._arm_for_next()

    def _handle(self, when: int, queue_id: int, lookup_identifier: int) -> None:
        """An entry is due."""
        if queue_id & GROUP:
            self._split(when, queue_id, lookup_identifier)
        # The index keeps the second of a locked message: after a power cut it is no longer locked, and due.
        elif not self._expired(queue_id, lookup_identifier):
            return
        self._context.store.delete_expiry(when, queue_id, lookup_identifier)

    def _expired(self, queue_id: int, lookup_identifier: int) -> bool:
        """Time To Be Received Timer Expired (3.1.7.2.7). False if a reader holds the message: it expires on release."""
        queue = self._context.queues.numbered(queue_id)
        if queue is None:
            return True
        if lookup_identifier in queue.locked:
            return False
        value = queue.value_of(lookup_identifier)
        if value is not None:
            queue.take_this(lookup_identifier)
            queue.expire(lookup_identifier, value)
        return True

    def _split(self, when: int, queue_id: int, first: int) -> None:
        """Add entries for the messages of a group; few are left by now, so they are read at once."""
        self._groups.discard((when, queue_id, first))
        last = first | ~_IDENTIFIER_MASK
        entries = self._context.store.read_messages(
            queue_id & ~GROUP, first, last, _GROUP_CHUNK, _GROUP_BYTES, express=True
        )
        for lookup_identifier, value in entries:
            if (second := expiry(value)) & _SECOND_MASK == when:
                self._put((second, queue_id & ~GROUP, lookup_identifier))
        if entries and entries[-1][0] < last:
            self._put((when, queue_id, entries[-1][0] + 1))


class SystemClock:
    """Wall time and the timers of the running event loop."""

    def time(self) -> float:
        """Seconds since 1970 (UTC)."""
        return time.time()

    def call_later(self, delay: float, callback: Callable[[], object]) -> TimerHandle:
        """Call ``callback`` after ``delay`` seconds."""
        return asyncio.get_running_loop().call_later(delay, callback)


# ----------------------------------------------------------------------------------------------------------------------
# Numbers are never used twice, even after a crash: SequentialID (MS-MQDMPR 3.1.1.1) and MessageID come from blocks. The
# end of a block is on disk before its first number is used, and a restarted node begins after it. So most numbers cost
# an addition, and a crash skips the rest of a block.


class Ordinal:
    """A number that only grows, or wraps around at ``2 ** bits``."""

    __slots__ = ("_block", "_end", "_look", "_mask", "_name", "_reserving", "_store", "value")

    def __init__(self, store: MessageStore, name: str, bits: int, block: int) -> None:
        self._store = store
        self._name = name
        self._block = block
        self._mask = (1 << bits) - 1
        self.value = int.from_bytes(store.get_meta(name) or b"", "big")
        """The last number that was issued."""
        self._end = self._look = self.value
        self._reserving: asyncio.Future[None] | None = None

    def next(self) -> int:
        """Issue the next number."""
        if self.value >= self._look:
            self._look_ahead()
        self.value += 1
        return self.value & self._mask

    def take(self, count: int) -> Sequence[int]:
        """Issue the next ``count`` numbers, in their order."""
        first = (self.value & self._mask) + 1
        if self.value + count > self._look or first + count > self._mask:
            return [self.next() for _ in range(count)]
        self.value += count
        return range(first, first + count)

    def reserve(self, count: int) -> int:
        """Set ``count`` numbers aside, below all that are issued later, and return the first."""
        first = (self.value & self._mask) + 1
        self.value += count
        self._look_ahead()
        return first

    def _look_ahead(self) -> None:
        """Reserve the next block ahead of need, along with other writes.

        If a number is needed before the reservation is on disk, as after a start, the reservation is written
        separately: the current batch is often half complete, and must reach the disk as a whole or not at all.
        """
        reserving = self._reserving
        if reserving is not None and reserving.done() and reserving.exception() is None:
            self._end += self._block
            self._reserving = None
        if self.value >= self._end:
            self._end = self.value + self._block
            self._store.put_meta_apart(self._name, self._end.to_bytes(8, "big"))
            self._reserving = None
        half = self._end - self._block // 2
        if self._reserving is None and self.value >= half:
            self._store.put_meta(self._name, (self._end + self._block).to_bytes(8, "big"))
            self._reserving = self._store.durable()
        self._look = half if self._reserving is None else self._end


LANES: Final = 8
LANE_SHIFT: Final = 56
SEQUENCE_MASK: Final = (1 << LANE_SHIFT) - 1


def lookup_identifier_of(priority: int, place: int) -> int:
    """The lookup identifier of the message at a place of its priority's lane (MS-MQDMPR 3.1.7.1.9).

    ``priority``: a byte with the priority in its low three bits, as BaseHeader.Flags has it.
    """
    return 7 - (priority & 7) << LANE_SHIFT | place


NOWHERE: Final = 1 << 64
"""Greater than every lookup identifier."""
RECEIVED_AT_ONCE: Final = 16 * 1024 * 1024
"""Bytes after which ``receive_many`` takes no more messages. This limits the memory of one call, and the size of its
answer in one frame (:data:`qmnode.local.frames.MAXIMUM_FRAME`), whatever number it asks for.
"""
_FLOOR_SEARCH: Final = 64
"""With more locked messages than this, the floor stays where it is: one that is too low is only slower."""


class Claim(Protocol):
    """The effect of a destructive read on its message."""

    @property
    def transaction(self) -> "Transaction | None":
        """The transaction that the read is part of."""

    def take(self, queue: "Queue", lookup_identifier: int, value: bytes) -> None:
        """Claim a message that has been taken (``Queue.take`` or ``take_this``) for the reader."""

    def undo(self, queue: "Queue", lookup_identifier: int, value: bytes) -> None:
        """Undo the claim of a cancelled reader: the message is available again, in its old place."""


class OpenForReading(Protocol):
    """The open queue of a waiting read, as the read needs it."""

    context: "Context"
    queue: "Queue"
    waiting: "set[WaitingRead]"


class WaitingRead:
    """A read that waits for a message to become available in a queue, first come, first served."""

    __slots__ = ("_claim", "_closed", "_descriptor", "_timer", "cursor", "destructive_read")
    limit = 1
    """The messages that it takes at most, outside of transactions."""
    only_takes = False
    """Whether it takes messages outside of transactions, and they need not have been in the queue."""

    def __init__(
        self,
        descriptor: OpenForReading,
        claim: "Claim | None",
        cursor: object = None,
    ) -> None:
        self._descriptor = descriptor
        self._claim = claim
        self._timer: TimerHandle | None = None
        self._closed = False
        self.destructive_read = claim is not None
        self.cursor = cursor

    @property
    def closed(self) -> bool:
        """Whether the caller no longer waits."""
        return self._closed

    def begin(self, timeout: float | None) -> None:
        """Wait For New Message (3.1.7.3.1), for ``timeout`` seconds: ``found`` or ``failed`` is called once, unless
        ``leave`` is called before. Raises MQ_ERROR_IO_TIMEOUT if there is no time to wait.
        """
        if timeout is not None:
            if timeout <= 0:
                raise timed_out()
            if math.isnan(timeout):  # one NaN would disorder all timers of the event loop
                raise MessageQueuingError(
                    ErrorCode.MQ_ERROR_INVALID_PARAMETER, "the timeout is not a number: seconds, or None for ever"
                )
            self._timer = self._descriptor.context.clock.call_later(timeout, self._expired)
        queue = self._descriptor.queue
        queue.waiting[self] = None
        if queue.awaited is not None:
            queue.awaited.set_result(None)
            queue.awaited = None
        self._descriptor.waiting.add(self)
        if self._claim is not None and self._claim.transaction is not None:
            self._claim.transaction.readers.add(self)

    def leave(self) -> None:
        """End the wait, whatever came of it. Has no effect the second time."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._descriptor.queue.waiting.pop(self, None)
        self._descriptor.waiting.discard(self)
        if self._claim is not None and self._claim.transaction is not None:
            self._claim.transaction.readers.discard(self)

    def found(self, entry: Entry) -> None:
        """Take the message, which a destructive read owns now."""
        raise NotImplementedError

    def failed(self, error: MessageQueuingError) -> None:
        """Learn why there is no message."""
        raise NotImplementedError

    def satisfied(self, lookup_identifier: int, value: bytes) -> None:
        """Waiting Message Read Satisfied (3.1.7.3.6)."""
        if self._claim is not None:
            self._claim.take(self._descriptor.queue, lookup_identifier, value)
        self.leave()
        self.found((lookup_identifier, value))

    def satisfied_by(self, entries: Sequence[Arrived]) -> None:
        """The same for messages that came together, up to ``limit``, and that nobody has to remove."""
        raise NotImplementedError

    def _expired(self) -> None:
        """Waiting Message Read Timer Expired (3.1.6.3)."""
        if not self.closed:
            self.leave()
            self.failed(timed_out())

    def cancel(self, code: ErrorCode = ErrorCode.MQ_ERROR_OPERATION_CANCELLED, sentence: str | None = None) -> None:
        """Cancel Waiting Message Read Request (3.1.7.1.17)."""
        if not self.closed:
            self.leave()
            self.failed(MessageQueuingError(code, sentence))


def timed_out() -> MessageQueuingError:
    """The error of a read that found no message within its timeout."""
    return MessageQueuingError(
        ErrorCode.MQ_ERROR_IO_TIMEOUT,
        "no message came in time: the queue is empty or paused, or its messages are locked or wait to be tried again",
    )


class PositionState(Enum):
    """State of a MessagePosition (3.1.1.11) that is not Available. Deleted ones are gone."""

    LOCKED = "locked"
    PURGE_PENDING = "purge pending"


_LOCKED: Final = PositionState.LOCKED


class LockedPosition:
    """A position that a transaction or a two-phase read holds."""

    __slots__ = ("state", "transaction", "value")

    def __init__(self, value: bytes, transaction: "Transaction | None" = None) -> None:
        self.value = value
        self.transaction = transaction
        self.state = _LOCKED


class ReadAhead:
    """The bytes that all windows hold together."""

    __slots__ = ("limit", "messages", "queue_bytes", "used")

    def __init__(self, settings: ReadAheadSettings) -> None:
        self.messages = settings.messages
        self.queue_bytes = settings.queue_bytes
        self.limit = settings.total_bytes
        self.used = 0


class Lane:
    """The messages of one priority in one queue. Lookup identifiers in it have ``index`` as their top byte."""

    __slots__ = (
        "complete",
        "count",
        "express_count",
        "index",
        "last",
        "locked_floor",
        "oldest",
        "queue_id",
        "read_ahead",
        "size",
        "store",
        "window",
        "window_end",
    )

    def __init__(self, store: MessageStore, read_ahead: ReadAhead, queue_id: int, index: int, sequence: int) -> None:
        """An empty lane, in which new messages come after ``sequence``."""
        self.store = store
        self.read_ahead = read_ahead
        self.queue_id = queue_id
        self.index = index
        self.last = index << LANE_SHIFT | SEQUENCE_MASK
        self.count = 0
        self.express_count = 0
        self.window: deque[Entry] = deque()
        self.window_end = index << LANE_SHIFT | sequence
        self.complete = True
        self.size = 0
        self.locked_floor = NOWHERE
        """At most the lowest locked lookup identifier; NOWHERE when none is locked."""
        self.oldest: float | None = None
        """The time that ``oldest_arrival`` read from the store, until a message goes or comes before others."""

    def restore(self, count: int, head: int) -> None:
        """Begin at the head that the store has recorded."""
        self.count = count
        if count:
            self.window_end = head - 1
            self.complete = False

    @property
    def priority(self) -> int:
        """The priority of its messages: the lane with the highest comes first."""
        return LANES - 1 - self.index

    @property
    def head(self) -> int:
        """A lower bound of the lane's lookup identifiers."""
        first = self.window[0][0] if self.window else self.window_end + 1
        return min(first, self.locked_floor)

    def oldest_arrival(self) -> float | None:
        """When its first message arrived, in seconds since 1970 (UTC), locked ones included; None if it is empty.

        It is found in the window or with one read, and the window stays as it is.
        """
        if not self.count:
            return None
        if self.window and self.window[0][0] < self.locked_floor:
            return arrival(self.window[0][1])
        if self.oldest is None:
            value = self.store.first_beginning(self.queue_id, self.head, self.last, PREFIX_SIZE, self.express_count > 0)
            self.oldest = None if value is None else arrival(value)
        return self.oldest

    def insert(self, lookup_identifier: int, value: bytes, keep: bool) -> None:
        """Insert an available message. ``keep`` it in the window, if it belongs there, as the queue has a reader."""
        if lookup_identifier > self.window_end:
            if self.complete:
                if keep and self._has_room(len(value)):
                    self.window.append((lookup_identifier, value))
                    self.window_end = lookup_identifier
                    self._grow(len(value))
                else:
                    self.complete = False
        elif len(self.window) < self.read_ahead.messages:
            self.oldest = None
            window = self.window
            window.insert(bisect_left(window, (lookup_identifier,)), (lookup_identifier, value))
            self._grow(len(value))
        else:  # the last one of the window makes room: it is read again when its turn comes
            self.oldest = None
            window = self.window
            window.insert(bisect_left(window, (lookup_identifier,)), (lookup_identifier, value))
            self._grow(len(value) - len(window.pop()[1]))
            self.window_end = window[-1][0] if window else lookup_identifier - 1
            self.complete = False

    def insert_many(self, entries: Sequence[Entry], keep: bool) -> None:
        """``insert`` for messages that arrive together, in ascending order."""
        if entries[0][0] > self.window_end:
            if not self.complete:
                return
            size = sum([len(value) for _, value in entries])
            if keep and self.size + size <= self.read_ahead.queue_bytes and self._has_room(size):
                self.window.extend(entries)
                self.window_end = entries[-1][0]
                self._grow(size)
                return
        for lookup_identifier, value in entries:
            self.insert(lookup_identifier, value, keep)

    def first(self, locked: Container[int]) -> Entry | None:
        """The first available message; ``locked`` messages are not available."""
        if not self.window and (self.complete or not self._read(locked)):
            return None
        return self.window[0]

    def take(self, locked: Container[int]) -> Entry | None:
        """The first available message, which leaves the window."""
        if not self.window and (self.complete or not self._read(locked)):
            return None
        entry = self.window.popleft()
        self._grow(-len(entry[1]))
        return entry

    def take_many(self, locked: Container[int], limit: int) -> list[Entry]:
        """Some of the first available messages, which leave the window; none if there are none."""
        window = self.window
        if not window and (self.complete or not self._read(locked)):
            return []
        if len(window) <= limit:
            entries = list(window)
            window.clear()
        else:
            entries = [window.popleft() for _ in range(limit)]
        self._grow(-sum([len(value) for _, value in entries]))
        return entries

    def take_some(self, locked: Container[int], limit: int, size: int) -> list[Entry]:
        """``take_many``, but only as many as reach ``size`` bytes."""
        if self.first(locked) is None:
            return []
        if self.size <= size:
            return self.take_many(locked, limit)
        entry = self.take(locked)
        return [] if entry is None else [entry]

    def after(self, lookup_identifier: int, locked: Container[int]) -> Entry | None:
        """The first available message after ``lookup_identifier``."""
        window = self.window
        if window and lookup_identifier < window[-1][0]:
            return window[bisect_left(window, (lookup_identifier + 1,))]
        if self.complete:
            return None
        return next(self.scan(max(lookup_identifier, self.window_end) + 1, locked), None)

    def scan(self, first: int, locked: Container[int]) -> Iterator[Entry]:
        """Available messages from ``first`` on, from the store, without touching the window."""
        store, chunk = self.store, 1
        store.make_visible()
        while True:
            entries = store.read_messages(
                self.queue_id, first, self.last, chunk, self.read_ahead.queue_bytes, self.express_count > 0
            )
            for entry in entries:
                if entry[0] not in locked:
                    yield entry
            if not entries:
                return
            first, chunk = entries[-1][0] + 1, min(chunk * 8, self.read_ahead.messages)

    def scan_backwards(self, last: int, locked: Container[int]) -> Iterator[Entry]:
        """Available messages from ``last`` down, from the store."""
        store, chunk, head = self.store, 1, self.head
        store.make_visible()
        while last >= head:
            entries = store.read_backwards(self.queue_id, last, head, chunk, self.express_count > 0)
            for entry in entries:
                if entry[0] not in locked:
                    yield entry
            if not entries:
                return
            last, chunk = entries[-1][0] - 1, min(chunk * 8, self.read_ahead.messages)

    def find(self, lookup_identifier: int) -> bytes | None:
        """The value of a message in the window."""
        window = self.window
        index = bisect_left(window, (lookup_identifier,))
        if index < len(window) and window[index][0] == lookup_identifier:
            return window[index][1]
        return None

    def discard(self, lookup_identifier: int) -> None:
        """Take a message that is no longer available out of the window, if it is there."""
        window = self.window
        index = bisect_left(window, (lookup_identifier,))
        if index < len(window) and window[index][0] == lookup_identifier:
            self._grow(-len(window[index][1]))
            del window[index]

    def lock(self, lookup_identifier: int) -> None:
        """Record that the lane begins no later than here, although the message is not available."""
        if lookup_identifier < self.locked_floor:
            self.locked_floor = lookup_identifier

    def raise_floor(self, locked: Collection[int]) -> None:
        """Recompute the floor after the lowest locked message was unlocked."""
        if not locked:
            self.locked_floor = NOWHERE
        elif len(locked) <= _FLOOR_SEARCH:
            index = self.index
            self.locked_floor = min((one for one in locked if one >> LANE_SHIFT == index), default=NOWHERE)

    def forget(self) -> None:
        """Free the window's memory."""
        if self.window:
            self.window_end = self.window[0][0] - 1
            self.complete = False
            self.window.clear()
        self._grow(-self.size)

    def clear(self, sequence: int) -> None:
        """Mark all messages up to ``sequence`` as unavailable."""
        self.forget()
        self.oldest = None
        self.complete = True
        self.window_end = self.index << LANE_SHIFT | sequence

    def _grow(self, size: int) -> None:
        self.size += size
        self.read_ahead.used += size

    def _has_room(self, size: int) -> bool:
        """Whether the window can keep another message. It may grow to half of the free memory."""
        budget = self.read_ahead
        if self.size + size <= budget.queue_bytes:
            return budget.used + size <= budget.limit
        return self.size + size <= (budget.limit - budget.used) // 2

    def _read(self, locked: Container[int]) -> bool:
        """Fill the empty window. Return False if there were no messages."""
        store, budget = self.store, self.read_ahead
        store.make_visible()
        size = max(1, min(budget.queue_bytes, budget.limit - budget.used))
        while True:
            entries = store.read_messages(
                self.queue_id, self.window_end + 1, self.last, budget.messages, size, self.express_count > 0
            )
            if not entries:
                self.complete = True
                return False
            self.window_end = entries[-1][0]
            read = sum([len(value) for _, value in entries])
            # Then later messages go from memory to memory, until there is no room.
            self.complete = len(entries) < budget.messages and read < size
            self.window.extend(entry for entry in entries if entry[0] not in locked)
            if self.window:
                self._grow(sum([len(entry[1]) for entry in self.window]))
                return True
            if self.complete:
                return False
            if not self.express_count:  # many may wait for their next try
                self.window_end = store.end_of_run(self.queue_id, self.window_end + 1, self.last, locked)


def insert_many(queue: "Queue", entries: Sequence[Entry]) -> None:
    """``insert`` for messages that arrive together, in their order."""
    if queue.waiting:
        entries = _serve_waiting(queue, entries)
    store, queue_id, keep = queue.store, queue.queue_id, queue.readers > 0
    total = express = 0
    for lane_index, flags, second, run in _runs(entries):
        lane = queue.lanes[lane_index] or queue.lane_of(lane_index)
        size = sum([len(value) for _, value in run]) - len(run) * PREFIX_SIZE
        total += size
        if flags & EXPRESS:
            for lookup_identifier, value in run:
                store.put_express(queue_id, lookup_identifier, value)
            lane.express_count += len(run)
            express += size
        else:
            store.put_messages(queue_id, run)
        lane.count += len(run)
        if flags & ON_LOSS:
            queue.loss_reports += len(run)
        if second != NEVER:
            _index(queue_id, run, second, queue.context.expiry.add)
        lane.insert_many(run, keep)
    queue.express_bytes += express
    queue.count_bytes(total)
    queue.tally.arrived += len(entries)
    queue.tally.arrived_bytes += total
    if queue.recorder is not None:
        queue.recorder.inserted(queue, entries)
    if express < total and not queue.touched:
        queue.touch()
    if queue.subscriber is not None and entries:
        queue.subscriber()


def insert_lent(queue: "Queue", lookup_identifier: int, value: memoryview) -> bytes | memoryview:
    """``insert`` for a message that was read into memory that is lent. It goes to a waiting reader as it is, unless
    little else is left to lend, or a copy of it to the queue. Return what is kept of it.
    """
    reader = next(iter(queue.waiting), None)
    if (
        reader is not None
        and reader.only_takes
        and not reader.closed
        and _can_be_handed_on(queue, value)
        and lendable() >= LEFT_TO_LEND
    ):
        _hand_on(queue, reader, [(lookup_identifier, value)], len(value) - PREFIX_SIZE)
        return value
    copy = bytes(value)
    insert_many(queue, [(lookup_identifier, copy)])
    return copy


def _serve_waiting(queue: "Queue", entries: Sequence[Entry]) -> Sequence[Entry]:
    """``insert`` for the messages that waiting readers take. Return the others."""
    at, count = 0, len(entries)
    together: bool | None = None
    while at < count and queue.waiting:
        reader = next(iter(queue.waiting))
        if reader.only_takes and together is None:
            together = _can_be_handed_on(queue, entries[0][1]) and len(next(_runs(entries))[-1]) == count
        if not reader.only_takes or not together or reader.closed:
            queue.insert(*entries[at])
            at += 1
            continue
        begin, end, size = at, min(count, at + reader.limit), 0
        while at < end and size < RECEIVED_AT_ONCE:
            size += len(entries[at][1])
            at += 1
        _hand_on(queue, reader, entries[begin:at], size - (at - begin) * PREFIX_SIZE)
    return entries[at:]


def _can_be_handed_on(queue: "Queue", value: Packet) -> bool:
    """Whether the message may skip the queue: no journal, report, trace or subscriber would see it there."""
    recorder = queue.recorder
    if (recorder is not None and recorder.writes) or queue.subscriber is not None or queue.journaling or queue.paused:
        return False
    return not value[FLAGS] & (REPORT | NOTICE)


def _hand_on(queue: "Queue", reader: "WaitingRead", entries: Sequence[Arrived], size: int) -> None:
    """``insert`` and ``remove`` for messages of so many bytes that a waiting receive takes: they count as traffic."""
    tally = queue.tally
    tally.arrived += len(entries)
    tally.arrived_bytes += size
    _count_received(queue, [read_arrival(value)[0] for _, value in entries], size)
    if queue.recorder is not None:
        queue.recorder.handed_on(queue, entries)
    reader.satisfied_by(entries)


def lock_first(queue: "Queue", limit: int, size: int) -> list[Entry]:
    """``take`` and ``lock`` for up to ``limit`` messages from the start, ending when they reach ``size`` bytes."""
    taken: list[Entry] = []
    locked = queue.locked
    for lane, entries in _take_first(queue, limit, size, lambda lane, left, _: lane.take_some(locked, left, size)):
        for lookup_identifier, value in entries:
            locked[lookup_identifier] = LockedPosition(value)
            if value[FLAGS] & PEEK_WHEN_LOCKED:
                queue.peekable_locked += 1
        lane.lock(entries[0][0])
        taken += entries
    return taken


def _take_first(
    queue: "Queue", limit: int, size: int, take: Callable[[Lane, int, int], list[Entry]]
) -> Iterator[tuple[Lane, list[Entry]]]:
    """Take up to ``limit`` messages from the start of a queue, lane by lane, until they have ``size`` bytes. ``take``
    gets a lane, and how many messages and bytes are left.
    """
    for lane in queue.lanes:
        while lane is not None and lane.count and limit > 0 and size > 0 and (entries := take(lane, limit, size)):
            limit -= len(entries)
            size -= sum([len(value) for _, value in entries])
            yield lane, entries


def count_first(queue: "Queue", limit: int, fits: Callable[[Packet], bool]) -> int:
    """Count the messages that fit, from the first available one on: up to ``limit``, and of those in memory."""
    for lane in queue.lanes:
        if lane is not None and lane.count and lane.first(queue.hidden) is not None:
            return sum(1 for _ in takewhile(lambda entry: fits(entry[1]), islice(lane.window, limit)))
    return 0


def take_received(queue: "Queue", limit: int, size: int) -> list[Entry]:
    """``take`` and ``delete`` for up to ``limit`` messages from the start, to the one that reaches ``size`` bytes."""
    locked = queue.hidden
    parts = _take_first(queue, limit, size, lambda lane, *left: lane.take_some(locked, *left))
    taken = [entry for _, entries in parts for entry in entries]
    if len(taken) > 1 and not queue.journaling:
        plain = [entry for entry in taken if not entry[1][FLAGS] & REPORT]
        remove_received(queue, plain)
        if queue.recorder is not None:
            queue.recorder.deleted(queue, plain, RECEIVED)
        reported = [entry for entry in taken if entry[1][FLAGS] & REPORT]
    else:
        reported = taken
    for lookup_identifier, value in reported:
        queue.delete(lookup_identifier, value)
    return taken


def remove_received(queue: "Queue", entries: Sequence[Entry]) -> None:
    """``remove`` for received messages whose receipt nobody asked about."""
    if not entries:
        return
    _count_received(queue, *_remove_many(queue, entries))


def _count_received(queue: "Queue", since: list[int], total: int) -> None:
    tally = queue.tally
    if not tally.gone_since:
        queue.context.traffic.departures.append(tally)
    tally.gone_since += since
    tally.received_bytes += total


def remove_acknowledged(queue: "Queue", entries: Sequence[Entry]) -> None:
    """``remove`` for messages that the other side has, which are counted as acknowledged."""
    since, total = _remove_many(queue, entries)
    queue.tally.count_acknowledged(since, total, queue.context.clock.time())


def _runs(entries: Sequence[Entry]) -> Iterator[tuple[int, int, int, Sequence[Entry]]]:
    """The parts of a batch that follow each other in one lane with the same facts: the lane's index, the flags, the
    second of expiry, and the entries. Most batches are one part.
    """
    start, count = 0, len(entries)
    while start < count:
        lookup_identifier, value = entries[start]
        lane, facts = lookup_identifier >> LANE_SHIFT, value[: EXPIRY.stop]
        stop = start
        for one, other in entries if start == 0 else entries[start:]:
            if one >> LANE_SHIFT != lane or not other.startswith(facts):
                break
            stop += 1
        flags, second = FACTS.unpack_from(value)
        yield lane, flags, second, entries if stop - start == count else entries[start:stop]
        start = stop


def _index(queue_id: int, run: Sequence[Entry], second: int, change: Callable[[int, int, int], bool]) -> None:
    """Add messages that expire in the same second to the index, or remove them."""
    group = -1
    for lookup_identifier, _ in run:
        if lookup_identifier >> GROUP_SHIFT != group and change(second, queue_id, lookup_identifier):
            group = lookup_identifier >> GROUP_SHIFT


def _remove_many(queue: "Queue", entries: Sequence[Entry]) -> tuple[list[int], int]:
    """``remove`` for many messages. Return when they arrived, and their bytes."""
    store, queue_id = queue.store, queue.queue_id
    total = express = 0
    for lane_index, flags, second, run in _runs(entries):
        lane = queue.lanes[lane_index]
        if lane is None:
            raise ValueError(f"no message {run[0][0]:#x} in {queue.pathname}")
        size = sum([len(value) for _, value in run]) - len(run) * PREFIX_SIZE
        total += size
        lane.count -= len(run)
        lane.oldest = None
        if flags & EXPRESS:
            for lookup_identifier, _ in run:
                store.delete_express(queue_id, lookup_identifier)
            lane.express_count -= len(run)
            express += size
        else:
            store.delete_each(queue_id, run)
        if flags & ON_LOSS:
            queue.loss_reports -= min(len(run), queue.loss_reports)
        if flags & NOTICE:
            for _, value in run:
                queue.context.notices.left(queue_id, len(value) - PREFIX_SIZE)
        if second != NEVER:
            _index(queue_id, run, second, queue.context.expiry.remove)
    queue.express_bytes -= express
    queue.count_bytes(-total)
    if express < total and not queue.touched:
        queue.touch()
    return [read_arrival(value)[0] for _, value in entries], total
