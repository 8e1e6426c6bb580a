"""The dispatch collection: MS-MQDMPR 3.1.1.18 and 3.1.7.1.28, 29, 34 and 3.1.7.3.9. Which message is sent next.

Holds the messages that a transfer protocol has at hand, not the backlog of the outgoing queues.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qmnode.model.queue import Queue


@dataclass(slots=True, eq=False)
class DispatchEntry:
    """A message that waits to be sent: 3.1.1.18."""

    queue: "Queue"
    lookup_identifier: int
    protocol_data: object
    priority: int
    """BasePriority of the queue plus the message's priority; higher goes first."""
    send_in_progress: bool = False
    removed: bool = field(default=False, repr=False)


class DispatchCollection:
    """Sends one message at a time, the highest priority first and among equals the oldest."""

    def __init__(self, send: Callable[[DispatchEntry], None]) -> None:
        """``send`` is the protocol's Send User Message Wrapper (MS-MQQB 3.1.7.16): it removes the entry when done."""
        self._send = send
        self._heap: list[tuple[int, int, DispatchEntry]] = []
        self._entries: dict[tuple[int, int], DispatchEntry] = {}
        self._order = count()
        self._in_progress: DispatchEntry | None = None
        self._dispatching = False

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, queue: "Queue", lookup_identifier: int, priority: int, protocol_data: object) -> None:
        """Add Message To Dispatch Collection (3.1.7.1.28)."""
        entry = DispatchEntry(queue, lookup_identifier, protocol_data, queue.base_priority + priority)
        self._entries[queue.queue_id, lookup_identifier] = entry
        heapq.heappush(self._heap, (-entry.priority, next(self._order), entry))
        self.dispatch()

    def remove(self, queue: "Queue", lookup_identifier: int) -> None:
        """Remove Message From Dispatch Collection (3.1.7.1.29)."""
        self._drop(self._entries.get((queue.queue_id, lookup_identifier)))
        self.dispatch()

    def remove_queue(self, queue: "Queue") -> None:
        """Remove Messages From Dispatch Collection By Queue (3.1.7.1.34)."""
        for entry in [entry for entry in self._entries.values() if entry.queue is queue]:
            self._drop(entry)

    def _drop(self, entry: DispatchEntry | None) -> None:
        if entry is None:
            return
        entry.removed = True
        self._entries.pop((entry.queue.queue_id, entry.lookup_identifier), None)
        if self._in_progress is entry:
            self._in_progress = None

    def dispatch(self) -> None:
        """Dispatch Send Message (3.1.7.3.9). A loop rather than a recursion: sending removes, and that dispatches."""
        if self._dispatching:
            return
        self._dispatching = True
        try:
            while self._in_progress is None and self._heap:
                entry = heapq.heappop(self._heap)[2]
                if entry.removed:
                    continue
                entry.send_in_progress = True
                self._in_progress = entry
                self._send(entry)
        finally:
            self._dispatching = False
