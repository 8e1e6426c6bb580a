"""MessagePositionList, MS-MQDMPR 3.1.1.2: the messages of a queue in the order of delivery.

The list itself is in the store. Memory holds a window for each priority (a *lane*): the next messages to be received,
read ahead together. So a queue costs memory for the next receives, not for its backlog, and finding the first message
never means searching through deleted ones:

    head            window                       window_end
      |  locked?  | available, in memory          | on disk, not yet read ... |

Everything from the head to ``window_end`` is in the window or locked by a transaction; ``complete`` says that there is
nothing after it.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Container, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Final

from qmnode.model.ports import Entry, MessageStore
from qmnode.settings.node import ReadAheadSettings

if TYPE_CHECKING:
    from qmnode.model.transaction import Transaction

LANES: Final = 8
LANE_SHIFT: Final = 56
SEQUENCE_MASK: Final = (1 << LANE_SHIFT) - 1
NOWHERE: Final = 1 << 64
"""Greater than every lookup identifier."""


_FLOOR_SEARCH: Final = 64
"""With more locked messages than this, the floor stays where it is: one that is too low is only slower."""


class PositionState(Enum):
    """State of a MessagePosition (3.1.1.11) that is not Available. Deleted ones are gone."""

    LOCKED = "locked"
    PURGE_PENDING = "purge pending"


class LockedPosition:
    """A position that a transaction or a two-phase read holds."""

    __slots__ = ("state", "transaction", "value")

    def __init__(self, value: bytes, transaction: "Transaction | None") -> None:
        self.value = value
        self.transaction = transaction
        self.state = PositionState.LOCKED


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

    def insert(self, lookup_identifier: int, value: bytes, keep: bool) -> None:
        """Insert an available message. ``keep`` it in the window, if it belongs there, because the queue has a
        reader.
        """
        if lookup_identifier > self.window_end:
            if self.complete:
                if keep and self._has_room(len(value)):
                    self.window.append((lookup_identifier, value))
                    self.window_end = lookup_identifier
                    self._grow(len(value))
                else:
                    self.complete = False
        elif len(self.window) < self.read_ahead.messages:
            window = self.window
            window.insert(bisect_left(window, (lookup_identifier,)), (lookup_identifier, value))
            self._grow(len(value))
        else:
            self.rewind(lookup_identifier)

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
        self._grow(-sum(len(value) for _, value in entries))
        return entries

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

    def raise_floor(self, locked: dict[int, LockedPosition]) -> None:
        """Recompute the floor after the lowest locked message was unlocked."""
        if not locked:
            self.locked_floor = NOWHERE
        elif len(locked) <= _FLOOR_SEARCH:
            index = self.index
            self.locked_floor = min((one for one in locked if one >> LANE_SHIFT == index), default=NOWHERE)

    def rewind(self, lookup_identifier: int) -> None:
        """Read messages from here on again when needed: they are available again, or new ones came in between."""
        if lookup_identifier <= self.window_end:
            self.forget()
            self.window_end = min(self.window_end, lookup_identifier - 1)
            self.complete = False

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
        self.complete = True
        self.window_end = self.index << LANE_SHIFT | sequence

    def _grow(self, size: int) -> None:
        self.size += size
        self.read_ahead.used += size

    def _has_room(self, size: int) -> bool:
        budget = self.read_ahead
        return self.size + size <= budget.queue_bytes and budget.used + size <= budget.limit

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
            self.window.extend(entry for entry in entries if entry[0] not in locked)
            if self.window:
                self._grow(sum(len(entry[1]) for entry in self.window))
                return True
