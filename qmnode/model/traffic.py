"""The traffic of all queues, as metrics show it: the busiest queues by name, all others as one.

Counters of Prometheus only go up, so a queue does not take its past along when it gets or loses a name of its own: what
it did before stays where it was counted.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from qmnode.model.api import QueueType
from qmnode.model.histogram import Histogram
from qmnode.model.tally import Tally

if TYPE_CHECKING:
    from qmnode.model.ports import Clock
    from qmnode.model.queue import Queue

OTHERS: Final = "others"
"""The label of all queues that have none of their own; no path name or format name is like that."""
_KEPT: Final = 0.95
"""The part of a queue's business that the next collection still counts: half of it is gone after fourteen."""
_BUSIER: Final = 2
"""So many times as busy as another is a queue that takes the other's name away."""
_WAITS: Final = (0.001, 0.005, 0.025, 0.1, 0.5, 1, 5, 15, 60, 300, 1800, 7200, 43200, 259200)
_ROUND_TRIPS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60)
Label = tuple[str, str]
"""Name and kind of a queue."""


class Traffic:
    """Counts of one queue manager since it started."""

    def __init__(self) -> None:
        self.waits = {kind: Histogram(_WAITS) for kind in QueueType}
        """By kind of queue: from a message's arrival here until it was received or acknowledged."""
        self.round_trips = Histogram(_ROUND_TRIPS)
        """From when a message was sent to the next hop until the session acknowledged it."""
        self.nowhere = Tally()
        """Messages that were rejected for queues that are not here."""
        self._named: dict[Label, Tally] = {}
        self._others = Tally()
        self._left: dict[QueueType, list[bytes]] = {kind: [] for kind in QueueType}

    def tally_of(self, kind: QueueType) -> Tally:
        """For a new queue."""
        return Tally(self._left[kind])

    def settle(self, clock: "Clock") -> None:
        """Count the waits of messages that just left their queues: together, since they share their times."""
        for kind, left in self._left.items():
            if left:
                waits, now = self.waits[kind], clock.time()
                for stamp, count in Counter(left).items():
                    waits.observe(now - int.from_bytes(stamp, "little") / 1e6, count)
                left.clear()

    def collect(self, queues: Iterable["Queue"], limit: int) -> Iterator[tuple[Label, Tally]]:
        """The counts of up to ``limit`` queues, and of all others together.

        A free name goes to the busiest queue without one. When none is free, a queue takes the name of the least busy
        one if it is twice as busy: so names do not change hands at every collection.
        """
        counted = {(queue.pathname, queue.queue_type.value): queue for queue in queues if not queue.is_internal}
        for queue in counted.values():
            if queue.is_dead_letter:  # what is removed from there died before
                queue.tally.died.clear()
                queue.tally.died_bytes.clear()
            queue.tally.recent = queue.tally.recent * _KEPT + queue.tally.moves
        self._name_busiest({label: queue.tally.recent for label, queue in counted.items()}, limit)
        self._others.take(self.nowhere)
        for label, queue in counted.items():
            self._named.get(label, self._others).take(queue.tally)
        yield from self._named.items()
        yield (OTHERS, OTHERS), self._others

    def _name_busiest(self, recent: dict[Label, float], limit: int) -> None:
        named = self._named
        unnamed = (label for label in recent if label not in named)
        for label in heapq.nlargest(limit, unnamed, key=recent.__getitem__):
            if len(named) >= limit:
                least = min(named, key=lambda one: recent.get(one, -1.0))  # a queue that is gone before all others
                if recent[label] <= _BUSIER * recent.get(least, -1.0):
                    break
                del named[least]
            named[label] = Tally()
        while len(named) > limit:
            del named[min(named, key=lambda one: recent.get(one, -1.0))]

    def retire(self, queue: "Queue") -> None:
        """A queue is deleted: what it did stays counted."""
        self._named.get((queue.pathname, queue.queue_type.value), self._others).take(queue.tally)
