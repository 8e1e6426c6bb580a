"""Express messages in memory up to a limit; the store keeps the rest in files without a log.

Most are received, or sent on, before the store would have written them to a file.
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice

from qmnode.model.ports import Entry


class _Queue:
    """The messages of one queue. ``order`` may contain deleted ones; it is cleaned when they are the majority."""

    __slots__ = ("order", "values")

    def __init__(self) -> None:
        self.order: list[int] = []
        self.values: dict[int, bytes] = {}


_DEAD: int = 64
"""Deleted lookup identifiers in ``order`` that do not matter yet."""


class ExpressMemory:
    """The messages in memory by queue and lookup identifier, ``limit`` bytes at most."""

    __slots__ = ("_queues", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._queues: dict[int, _Queue] = {}

    def put(self, queue_id: int, lookup_identifier: int, value: bytes) -> bool:
        """Keep a message, or a new value of a kept one. Return False if there is no room."""
        if self.used + len(value) > self.limit:
            self.delete(queue_id, lookup_identifier)
            return False
        queue = self._queues.get(queue_id)
        if queue is None:
            queue = self._queues[queue_id] = _Queue()
        before = queue.values.get(lookup_identifier)
        if before is not None:
            self.used -= len(before)
        order = queue.order
        if not order or lookup_identifier > order[-1]:
            order.append(lookup_identifier)
        elif order[place := bisect_left(order, lookup_identifier)] != lookup_identifier:
            order.insert(place, lookup_identifier)
        queue.values[lookup_identifier] = value
        self.used += len(value)
        return True

    def delete(self, queue_id: int, lookup_identifier: int) -> bool:
        """Forget a message. Return False if it is not in memory."""
        queue = self._queues.get(queue_id)
        value = queue.values.pop(lookup_identifier, None) if queue is not None else None
        if queue is None or value is None:
            return False
        self.used -= len(value)
        if len(queue.order) > 2 * len(queue.values) + _DEAD:
            self._clean(queue_id, queue)
        return True

    def _clean(self, queue_id: int, queue: _Queue) -> None:
        queue.order = [one for one in queue.order if one in queue.values]
        if not queue.order:
            del self._queues[queue_id]

    def delete_range(self, queue_id: int, first: int, stop: int) -> None:
        """Forget messages from ``first`` up to, but not including, ``stop``."""
        queue = self._queues.get(queue_id)
        if queue is None:
            return
        order = queue.order
        for one in order[bisect_left(order, first) : bisect_left(order, stop)]:
            self.used -= len(queue.values.pop(one, b""))
        self._clean(queue_id, queue)

    def get(self, queue_id: int, lookup_identifier: int) -> bytes | None:
        """The value of a message, if it is in memory."""
        queue = self._queues.get(queue_id)
        return None if queue is None else queue.values.get(lookup_identifier)

    def read(self, queue_id: int, first: int, last: int, limit: int, size: int) -> list[Entry]:
        """Messages from ``first`` to ``last``, until ``limit`` messages or ``size`` bytes."""
        queue = self._queues.get(queue_id)
        if queue is None:
            return []
        order = queue.order
        entries: list[Entry] = []
        for entry in self._entries(queue, islice(order, bisect_left(order, first), bisect_left(order, last + 1))):
            entries.append(entry)
            size -= len(entry[1])
            if len(entries) >= limit or size <= 0:
                break
        return entries

    def read_backwards(self, queue_id: int, last: int, first: int, limit: int) -> list[Entry]:
        """Messages from ``last`` down to ``first``."""
        queue = self._queues.get(queue_id)
        if queue is None:
            return []
        order = queue.order
        places = range(bisect_left(order, last + 1) - 1, bisect_left(order, first) - 1, -1)
        return list(islice(self._entries(queue, map(order.__getitem__, places)), limit))

    @staticmethod
    def _entries(queue: _Queue, order: Iterator[int]) -> Iterator[Entry]:
        values = queue.values
        return ((one, values[one]) for one in order if one in values)
