"""Duplicate detection: a queue accepts messages with the same message id once within its window.

AMQP senders choose the ids. A queue whose ``duplicate_window`` is above 0 remembers the id of each arriving message, in
the batch that stores the message: after a crash both are there, or neither. An extension of MS-MQDMPR.

An id has two records: one by its digest, to find it, and one by its number, to forget the oldest ids first. Memory has
the first and last number only. Express messages are lost in a restart, so their ids count until the next restart.
"""

import asyncio
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple, Protocol, Self

from qmnode.model.ports import Clock, Entry, MessageStore, TimerHandle
from qmnode.model.stored_message import EXPRESS, FLAGS

DIGEST_SIZE: Final = 16
_RECORD: Final = struct.Struct(">QI4s")
_AGED: Final = struct.Struct(f">I{DIGEST_SIZE}s")
_DURABLE: Final = bytes(4)
_CHUNK: Final = 250
"""Ids that are forgotten in one pass of the event loop."""


def identity_of(kind: str, text: str) -> bytes:
    """The identity of a message with this id, which is a value of this type."""
    return blake2b(f"{kind}:{text}".encode("utf-8", "surrogatepass"), digest_size=DIGEST_SIZE).digest()


class _Remembered(NamedTuple):
    """The record of an id."""

    number: int
    second: int
    """When it arrived, in seconds since 1970 (UTC)."""
    run: bytes
    """The run of the node in which an express message arrived; zeros for a recoverable message."""

    @classmethod
    def unpack(cls, record: bytes) -> Self:
        """Decode from the store."""
        return cls(*_RECORD.unpack(record))


class _Aged(NamedTuple):
    """When an id arrived, in seconds since 1970 (UTC), and the id's digest."""

    second: int
    identity: bytes


class _Window:
    """The numbers of the ids that a queue remembers."""

    __slots__ = ("first", "next")

    def __init__(self, first: int, after: int) -> None:
        self.first = first
        self.next = after


class Remembering(Protocol):
    """A queue that may remember the ids of its messages."""

    queue_id: int
    duplicate_window: int


class Duplicates:
    """The message ids that queues remember."""

    def __init__(
        self,
        store: MessageStore,
        clock: Clock,
        queues: Mapping[int, Remembering],
        most: Callable[[], int],
    ) -> None:
        """``most``: the ids that a queue remembers at most."""
        self._store = store
        self._clock = clock
        self._queues = queues
        self._most = most
        self.dropped = 0
        """Messages that were accepted and dropped as duplicates, since the start."""
        self._run = os.urandom(len(_DURABLE))
        self._windows: dict[int, _Window] = {}
        self._fresh: dict[tuple[int, bytes], _Remembered] = {}
        """Ids in batches that are not written yet, which reads of the store do not find."""
        self._batch: asyncio.Future[None] | None = None
        self._batch_keys: list[tuple[int, bytes]] = []
        self._timer: TimerHandle | None = None

    def start(self) -> None:
        """Begin to forget the ids that earlier runs have remembered."""
        for queue in self._queues.values():
            if queue.duplicate_window:
                self._window(queue)
        self._arm()

    def stop(self) -> None:
        """Stop forgetting, because the queue manager closes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def is_known(self, queue: Remembering, identity: bytes) -> bool:
        """Whether a message with this id arrived within the window of the queue."""
        found = self._find(queue.queue_id, identity)
        return (
            found is not None
            and found.run in (_DURABLE, self._run)
            and self._clock.time() - found.second < queue.duplicate_window
        )

    def new_of(self, queue: Remembering, entries: Sequence[Entry], identities: dict[int, bytes]) -> list[Entry]:
        """Those of the arriving messages that are no duplicates, whose ids are remembered from now on.

        ``identities`` has the ids by lookup identifier; a message may have none.
        """
        if not queue.duplicate_window:
            return list(entries)
        new = []
        for entry in entries:
            identity = identities.get(entry[0])
            if identity is not None:
                if self.is_known(queue, identity):
                    self.dropped += 1
                    continue
                self.remember(queue, identity, express=bool(entry[1][FLAGS] & EXPRESS))
            new.append(entry)
        return new

    def remember(self, queue: Remembering, identity: bytes, *, express: bool) -> None:
        """Remember the id of a message that arrives in this batch."""
        store, window, queue_id = self._store, self._window(queue), queue.queue_id
        found = _Remembered(window.next, int(self._clock.time()), self._run if express else _DURABLE)
        window.next += 1
        store.put_identity(queue_id, identity, _RECORD.pack(*found))
        store.put_identity_age(queue_id, found.number, _AGED.pack(found.second, identity))
        self._keep_until_written((queue_id, identity), found)
        # Two for each new one, so that a lowered limit takes effect. No flush: a message and its id stay in one batch.
        for _ in range(2):
            if window.next - window.first > self._most():
                self._forget_first(queue_id, window, flush=False)
        if self._timer is None:
            self._timer = self._clock.call_later(queue.duplicate_window, self._sweep)

    def changed(self, queue: Remembering) -> None:
        """Apply another window of a queue."""
        if queue.duplicate_window:
            self._window(queue)
            self._arm()
        else:
            self.forget(queue)

    def forget(self, queue: Remembering) -> None:
        """Forget all ids of a queue, which is deleted or no longer has a window."""
        self._windows.pop(queue.queue_id, None)
        for key in [key for key in self._fresh if key[0] == queue.queue_id]:
            del self._fresh[key]
        self._store.delete_identities(queue.queue_id)

    def _find(self, queue_id: int, identity: bytes) -> _Remembered | None:
        found = self._fresh.get((queue_id, identity))
        if found is None and (record := self._store.get_identity(queue_id, identity)) is not None:
            found = _Remembered.unpack(record)
        return found

    def _window(self, queue: Remembering) -> _Window:
        window = self._windows.get(queue.queue_id)
        if window is None:
            first, last = self._store.identity_ages(queue.queue_id)
            window = self._windows[queue.queue_id] = _Window(first, last + 1)
        return window

    def _keep_until_written(self, key: tuple[int, bytes], found: _Remembered) -> None:
        self._fresh[key] = found
        batch = self._store.durable()
        if batch is not self._batch:
            self._batch, self._batch_keys = batch, []
            batch.add_done_callback(lambda _, keys=self._batch_keys: self._written(keys))  # type: ignore[misc]
        self._batch_keys.append(key)

    def _written(self, keys: list[tuple[int, bytes]]) -> None:
        later = set(self._batch_keys) if keys is not self._batch_keys else ()
        for key in keys:
            if key not in later:
                self._fresh.pop(key, None)

    # Forgetting

    def _arm(self) -> None:
        """Set the timer to the end of the oldest id's window."""
        self.stop()
        clock, due = self._clock, []
        for queue_id, window in self._windows.items():
            queue = self._queues.get(queue_id)
            if queue is not None and window.first < window.next and (aged := self._first(queue_id, window)) is not None:
                due.append(aged.second + queue.duplicate_window)
        if due:
            self._timer = clock.call_later(max(1.0, min(due) - clock.time()), self._sweep)

    def _sweep(self) -> None:
        """Forget ids whose window is over."""
        self._timer = None
        left = _CHUNK
        now = self._clock.time()
        for queue_id, window in self._windows.items():
            queue = self._queues.get(queue_id)
            while queue is not None and left and window.first < window.next:
                aged = self._first(queue_id, window)
                if aged is not None and now - aged.second < queue.duplicate_window:
                    break
                self._forget_first(queue_id, window)
                left -= 1
        if left < _CHUNK:
            self._store.durable()
        if left:
            self._arm()
        else:
            self._timer = self._clock.call_later(0.01, self._sweep)

    def _first(self, queue_id: int, window: _Window, *, flush: bool = True) -> _Aged | None:
        """The oldest id of a queue; None if it is not there. Without ``flush`` also if it is in the current batch."""
        store = self._store
        record = store.get_identity_age(queue_id, window.first)
        if record is None and flush:
            store.make_visible()
            record = store.get_identity_age(queue_id, window.first)
        return None if record is None else _Aged(*_AGED.unpack(record))

    def _forget_first(self, queue_id: int, window: _Window, *, flush: bool = True) -> None:
        store, aged = self._store, self._first(queue_id, window, flush=flush)
        if aged is not None:
            found = self._find(queue_id, aged.identity)
            if found is not None and found.number == window.first:  # otherwise the id came again after its window
                self._fresh.pop((queue_id, aged.identity), None)
                store.delete_identity(queue_id, aged.identity)
            store.delete_identity_age(queue_id, window.first)
        elif not flush:
            return
        window.first += 1
