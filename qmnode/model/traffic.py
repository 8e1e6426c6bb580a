"""Counts of messages, by queue and for all queues together, and their durations.

Counters are plain attributes, increased once per batch where there is one: a message costs no look-up of a label.
Metrics show the busiest queues by name, and all others as one. Prometheus counters only go up, so when a queue gets or
loses a label of its own, its earlier counts stay under the old label.
"""

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from struct import unpack
from typing import TYPE_CHECKING, Final

from qmnode.model.api import QueueType
from qmnode.model.record import ARRIVAL, PREFIX_SIZE
from qmnode.structures.message_classes import MessageClass

if TYPE_CHECKING:
    from qmnode.model.ports import Clock
    from qmnode.model.queue import Queue


class Histogram:
    """Counts of durations up to each bound, in seconds; the last count is for those above all bounds."""

    __slots__ = ("_microseconds", "bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self._microseconds = [int(bound * 1_000_000) for bound in self.bounds]
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0
        """The sum of all durations."""

    def observe(self, seconds: float, count: int = 1) -> None:
        """Add a duration that ``count`` messages share. A clock that was set back never makes one negative."""
        seconds = max(0.0, seconds)
        self.counts[bisect_left(self.bounds, seconds)] += count
        self.total += seconds * count

    def observe_since(self, begun: list[int], now: float) -> None:
        """Add the durations from each beginning, in microseconds since 1970, until ``now``, in seconds.

        This is cheap: bounds are looked up among the beginnings, not durations among the bounds.
        """
        begun.sort()
        end, left = int(now * 1_000_000), len(begun)
        self.total += max(0, left * end - sum(begun)) / 1_000_000
        for index, bound in enumerate(self._microseconds):
            place = bisect_left(begun, end - bound, 0, left)
            self.counts[index] += left - place
            left = place
            if not left:
                return
        self.counts[-1] += left


_RECEIVED: Final = MessageClass.MQMSG_CLASS_ACK_RECEIVE.value
_EXPIRIES: Final = (
    MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT.value,
    MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT.value,
)
Amount = tuple[int, int]
"""Messages, and their bytes."""


class Tally:
    """Messages and bytes of a queue. Bytes are those of packets: headers and body."""

    __slots__ = (
        "acknowledged", "acknowledged_bytes", "arrived", "arrived_bytes", "died", "died_bytes", "left", "received",
        "received_bytes", "recent", "rejected", "rejected_bytes", "resent", "resent_bytes", "sent", "sent_bytes",
    )  # fmt: skip

    def __init__(self, left: list[bytes] | None = None) -> None:
        self.left = [] if left is None else left
        """Arrival times of messages received just now, for all queues of a kind: see ``Traffic.settle``."""
        self.arrived = self.arrived_bytes = 0
        """Put into the queue: sent by a local application, or received from another queue manager."""
        self.received = self.received_bytes = 0
        """Received by local or remote applications."""
        self.sent = self.sent_bytes = 0
        """Sent to the next hop for the first time."""
        self.resent = self.resent_bytes = 0
        """Sent to the next hop again."""
        self.acknowledged = self.acknowledged_bytes = 0
        """Left their outgoing queue: the next hop, or the destination of transactional ones, has them."""
        self.died: Counter[int] = Counter()
        """Ended in the queue without being received or acknowledged, by reason: a class of MS-MQMQ 2.2.20.1."""
        self.died_bytes: Counter[int] = Counter()
        self.rejected: Counter[int] = Counter()
        """Refused on arrival, by reason."""
        self.rejected_bytes: Counter[int] = Counter()
        self.recent = 0.0
        """The recent activity of the queue."""

    def ended(self, value: bytes, reason: int) -> None:
        """Count a message that left its queue for this reason."""
        size = len(value) - PREFIX_SIZE
        if reason == _RECEIVED:
            self.received += 1
            self.received_bytes += size
            self.left.append(value[ARRIVAL])
        else:
            self.died[reason] += 1
            self.died_bytes[reason] += size

    def reject(self, packet: bytes, reason: int) -> None:
        """Count a message that was refused on arrival."""
        self.rejected[reason] += 1
        self.rejected_bytes[reason] += len(packet)

    @property
    def expired(self) -> Amount:
        """Dead messages whose time had passed."""
        return sum(self.died[one] for one in _EXPIRIES), sum(self.died_bytes[one] for one in _EXPIRIES)

    @property
    def moves(self) -> int:
        """The number of arrivals and departures."""
        return self.arrived + self.received + self.sent + self.acknowledged + self.died.total() + self.rejected.total()

    def take(self, other: "Tally") -> None:
        """Add the counts of another tally, which is reset."""
        for name in _NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
            setattr(other, name, 0)
        for name in _BY_REASON:
            counts: Counter[int] = getattr(other, name)
            if counts:
                getattr(self, name).update(counts)
                counts.clear()


_BY_REASON: Final = ("died", "died_bytes", "rejected", "rejected_bytes")
_NUMBERS: Final = tuple(name for name in Tally.__slots__ if name not in (*_BY_REASON, "left", "recent"))


OTHERS: Final = "others"
"""The label for all queues without one of their own; no path name or format name looks like that."""
_KEPT: Final = 0.95
"""The part of a queue's activity that the next collection still counts: half remains after fourteen."""
_BUSIER: Final = 2
"""A queue this many times as busy as another takes over its label."""
_WAITS: Final = (0.001, 0.005, 0.025, 0.1, 0.5, 1, 5, 15, 60, 300, 1800, 7200, 43200, 259200)
_ROUND_TRIPS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60)
Label = tuple[str, str]
"""Name and kind of a queue."""


class Traffic:
    """Counts of one queue manager since it started."""

    def __init__(self) -> None:
        self.waits = {kind: Histogram(_WAITS) for kind in QueueType}
        """By kind of queue: the time from a message's arrival here until it was received or acknowledged."""
        self.round_trips = Histogram(_ROUND_TRIPS)
        """The time from sending a message to the next hop until the session acknowledged it."""
        self.nowhere = Tally()
        """Messages that were rejected for queues that do not exist here."""
        self.distrusted: Counter[str] = Counter()
        """Packets of peers that were not believed, by kind."""
        self._named: dict[Label, Tally] = {}
        self._others = Tally()
        self._left: dict[QueueType, list[bytes]] = {kind: [] for kind in QueueType}

    def tally_of(self, kind: QueueType) -> Tally:
        """A tally for a new queue."""
        return Tally(self._left[kind])

    def settle(self, clock: "Clock") -> None:
        """Count the waits of messages that just left their queues: together, since they share their times."""
        for kind, left in self._left.items():
            if left:
                self.waits[kind].observe_since(list(unpack(f"<{len(left)}Q", b"".join(left))), clock.time())
                left.clear()

    def collect(self, queues: Iterable["Queue"], limit: int) -> Iterator[tuple[Label, Tally]]:
        """The counts of up to ``limit`` queues, and of all others together.

        A free label goes to the busiest queue without one. When none is free, a queue takes the label of the least busy
        one if it is twice as busy, so that labels do not change at every collection.
        """
        counted = {(queue.pathname, queue.queue_type.value): queue for queue in queues if not queue.is_internal}
        for queue in counted.values():
            if queue.is_dead_letter:  # messages removed from there died before
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
                least = min(named, key=lambda one: recent.get(one, -1.0))  # a deleted queue comes first
                if recent[label] <= _BUSIER * recent.get(least, -1.0):
                    break
                del named[least]
            named[label] = Tally()
        while len(named) > limit:
            del named[min(named, key=lambda one: recent.get(one, -1.0))]

    def retire(self, queue: "Queue") -> None:
        """Keep the counts of a deleted queue."""
        self._named.get((queue.pathname, queue.queue_type.value), self._others).take(queue.tally)
