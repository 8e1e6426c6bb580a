"""Counts of messages, by queue and for all queues together, with their durations; and messages that queues refused.

Counters are plain attributes, increased once per batch where there is one: a message costs no look-up of a label.
Received messages are only noted when they leave. They are counted together when the store writes their removal, or
before anything reads the counts. Metrics show the busiest queues by name, and all others as one. Prometheus counters
only go up, so when a queue gets or loses a label of its own, its earlier counts stay under the old label.

Refused messages are counted by queue, sender and reason, in bounded memory.
"""

import heapq
from bisect import bisect_left
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, KeysView, Sequence
from enum import StrEnum, unique
from typing import Final, NamedTuple, Protocol

from qmnode.model.administration import RefusedMessages
from qmnode.model.api import QueueType
from qmnode.model.stored_message import PREFIX_SIZE
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.guid import Guid


class Counted(Protocol):
    """A queue whose messages are counted."""

    pathname: str
    queue_type: QueueType
    is_internal: bool
    is_dead_letter: bool
    tally: "Tally"


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
        """Add the durations from each beginning, in microseconds since 1970, until ``now``, in seconds. The list must
        not be empty, and is sorted.

        This is cheap: bounds are looked up among the beginnings, not durations among the bounds.
        """
        begun.sort()
        bounds, counts, end, left = self._microseconds, self.counts, int(now * 1_000_000), len(begun)
        self.total += max(0, left * end - sum(begun)) / 1_000_000
        for index in range(bisect_left(bounds, end - begun[-1]), len(bounds)):
            since = end - bounds[index]
            if begun[0] >= since:
                counts[index] += left
                return
            place = bisect_left(begun, since, 0, left)
            counts[index] += left - place
            left = place
        counts[-1] += left


RECEIVED: Final = MessageClass.MQMSG_CLASS_ACK_RECEIVE.value
"""The reason of messages that an application received."""
_EXPIRIES: Final = (
    MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT.value,
    MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT.value,
)
Amount = tuple[int, int]
"""Messages, and their bytes."""
Totals = tuple[int, int, int]
"""Messages that arrived, left and died."""


class Tally:
    """Messages and bytes of a queue. Bytes are those of packets: headers and body."""

    __slots__ = (
        "acknowledged", "acknowledged_bytes", "arrived", "arrived_bytes", "died", "died_bytes", "earlier",
        "gone_since", "received", "received_bytes", "recent", "rejected", "rejected_bytes", "resent",
        "resent_bytes", "sampled", "sent", "sent_bytes", "waits",
    )  # fmt: skip

    def __init__(self, waits: Histogram | None = None) -> None:
        self.waits = waits
        """The waits in all queues of the same kind; None if no queue has this tally."""
        self.gone_since: list[int] = []
        """When messages arrived that were received just now. Their bytes are counted, the rest by ``settle``."""
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
        self.earlier: Totals = (0, 0, 0)
        """The totals of the counts that another tally took."""
        self.sampled: Totals = (0, 0, 0)
        """The totals at the last sample of the history."""

    @property
    def totals(self) -> "Totals":
        """Messages that arrived, that left as they should, and that died or were rejected. Never reset."""
        died = self.earlier[2]
        if self.died or self.rejected:
            died += self.died.total() + self.rejected.total()
        return *self.moved, died

    @property
    def moved(self) -> tuple[int, int]:
        """Messages that arrived, and that left as they should. Never reset."""
        arrived, left, _ = self.earlier
        return arrived + self.arrived, left + self.received + len(self.gone_since) + self.acknowledged

    def count_received(self, now: float) -> None:
        """Count the messages that are gone, and their waits: together, since they share their end."""
        self.received += len(self.gone_since)
        if self.waits is not None:
            self.waits.observe_since(self.gone_since, now)
        self.gone_since.clear()

    def count_acknowledged(self, since: list[int], size: int, now: float) -> None:
        """Count messages that the other side has, and their waits since they arrived. The list must not be empty."""
        self.acknowledged += len(since)
        self.acknowledged_bytes += size
        if self.waits is not None:
            self.waits.observe_since(since, now)

    def die(self, value: bytes, reason: int) -> None:
        """Count a message that left its queue for this reason, and was not received."""
        self.died[reason] += 1
        self.died_bytes[reason] += len(value) - PREFIX_SIZE

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
        other.earlier = other.totals
        for name in _NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
            setattr(other, name, 0)
        for name in _BY_REASON:
            counts: Counter[int] = getattr(other, name)
            if counts:
                getattr(self, name).update(counts)
                counts.clear()


class RoundTrips:
    """Pairs acknowledgments with messages sent, the oldest first.

    A session may acknowledge an express message before a recoverable one that was sent earlier. The two then swap their
    times, which leaves the sum right.
    """

    def __init__(self, tally: Tally, histogram: Histogram) -> None:
        self._tally = tally
        self._histogram = histogram
        self._sent: deque[tuple[int, float]] = deque()
        """Counts of messages that were sent together, and when."""

    def sent(self, packets: Sequence[bytes | bytearray | memoryview], now: float, again: bool) -> None:
        """Messages are under way, for the first time or ``again``."""
        count = len(packets)
        if not count:
            return
        tally, size = self._tally, sum(map(len, packets))
        if again:
            tally.resent += count
            tally.resent_bytes += size
        else:
            tally.sent += count
            tally.sent_bytes += size
        self._sent.append((count, now))

    def acknowledged(self, count: int, now: float) -> None:
        """Record the round-trip times of ``count`` acknowledged messages."""
        while count and self._sent:
            sent, at = self._sent.popleft()
            if sent > count:
                self._sent.appendleft((sent - count, at))
            self._histogram.observe(now - at, min(sent, count))
            count -= min(sent, count)

    def forget(self) -> None:
        """Forget messages under way: the session has closed, so they will not be acknowledged in it."""
        self._sent.clear()


_BY_REASON: Final = ("died", "died_bytes", "rejected", "rejected_bytes")
_MOVES: Final = ("acknowledged", "arrived", "received", "resent", "sent")
_NUMBERS: Final = (*_MOVES, *(f"{name}_bytes" for name in _MOVES))


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

    def __init__(self, time: Callable[[], float]) -> None:
        """``time``: seconds since 1970 (UTC)."""
        self._time = time
        self.waits = {kind: Histogram(_WAITS) for kind in QueueType}
        """By kind of queue: the time from a message's arrival here until it was received or acknowledged."""
        self.round_trips = Histogram(_ROUND_TRIPS)
        """The time from sending a message to the next hop until the session acknowledged it."""
        self.nowhere = Tally()
        """Messages that were rejected for queues that do not exist here."""
        self.distrusted: Counter[str] = Counter()
        """Packets of peers that were not believed, by kind."""
        self.refusals = Refusals()
        """Messages that queues refused when they arrived, by sender."""
        self._named: dict[Label, Tally] = {}
        self._others = Tally()
        self.departures: list[Tally] = []
        """Tallies of queues with messages that are received and not counted yet."""

    def tally_of(self, kind: QueueType) -> Tally:
        return Tally(self.waits[kind])

    def settle(self) -> None:
        """Count the messages that were received just now. Every write of the store does so first."""
        if self.departures:
            departures, self.departures = self.departures, []
            now = self._time()
            for tally in departures:
                tally.count_received(now)

    def collect(self, queues: Iterable[Counted], limit: int) -> Iterator[tuple[Label, Tally]]:
        """The counts of up to ``limit`` queues, and of all others together.

        A free label goes to the busiest queue without one. When none is free, a queue takes the label of the least busy
        one if it is twice as busy, so that labels do not change at every collection.
        """
        self.settle()
        counted = {(queue.pathname, queue.queue_type.value): queue for queue in queues if not queue.is_internal}
        for queue in counted.values():
            if queue.is_dead_letter:  # messages removed from there died before
                arrived, left, died = queue.tally.earlier
                queue.tally.earlier = arrived, left, died + queue.tally.died.total()
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

    def retire(self, queue: Counted) -> None:
        """Keep the counts of a deleted queue."""
        self.settle()
        self._named.get((queue.pathname, queue.queue_type.value), self._others).take(queue.tally)


QUEUES_KEPT: Final = 256
SENDERS_KEPT: Final = 64
"""Rows of one queue: those that were refused last."""


@unique
class Standing(StrEnum):
    """The standing of a message's sender before an access list."""

    SIGNED = "signed"
    NAMELESS = "nameless"
    NEVER = "never"
    UNPROVEN = "unproven"
    PLAIN = "plain"
    UNKNOWN = "unknown"
    COUNTED = "counted"

    @property
    def meaning(self) -> str:
        """A sentence for the operator."""
        return _MEANINGS[self]


_MEANINGS: Final = {
    Standing.SIGNED: "The message is signed.",
    Standing.NAMELESS: "The message is unsigned and names no sender: it is anonymous.",
    Standing.NEVER: "The message is unsigned, and security.unsigned_senders is never for this queue: it is anonymous.",
    Standing.UNPROVEN: "The message is unsigned, and its own queue manager did not bring it over TLS or as a declared "
    "plain peer: it is anonymous.",
    Standing.PLAIN: "The message is unsigned and came from a plain peer, and security.unsigned_senders is neighbours "
    "for this queue: it is anonymous.",
    Standing.UNKNOWN: "The message is unsigned and names no account that the directory knows: it is anonymous.",
    Standing.COUNTED: "The message is unsigned, and its sender counts: the access list does not let that account send.",
}


class RefusedSender(NamedTuple):
    """A sender and the reason for which its messages are refused."""

    reason: int
    standing: str
    source: Guid
    claimed_sender: bytes


class LastRefusal(NamedTuple):
    """The last message that a queue refused."""

    reason: int
    source: Guid
    address: str
    since: float
    """When it refused the first for this reason since it took one, in seconds since 1970 (UTC)."""
    arrived: int
    """Messages that had arrived in the queue by then."""


class _Row:
    __slots__ = ("address", "count", "first", "last", "size")

    def __init__(self, now: float) -> None:
        self.address = ""
        self.count = self.size = 0
        self.first = self.last = now


class Refusals:
    """The refused messages of one queue manager."""

    def __init__(self) -> None:
        self.denied: Counter[str] = Counter()
        """Messages to which an access list denied a queue, by :class:`Standing`."""
        self._queues: OrderedDict[str, OrderedDict[RefusedSender, _Row]] = OrderedDict()
        self._last: dict[str, LastRefusal] = {}

    def note(self, pathname: str, sender: RefusedSender, address: str, size: int, now: float, arrived: int = 0) -> None:
        """Count a message that a queue refused after ``arrived`` messages had arrived in it."""
        last = self.last(pathname)
        goes_on = last is not None and (last.reason, last.arrived) == (sender.reason, arrived)
        since = last.since if last is not None and goes_on else now
        self._last[pathname] = LastRefusal(sender.reason, sender.source, address, since, arrived)
        if sender.reason == MessageClass.MQMSG_CLASS_NACK_ACCESS_DENIED:
            self.denied[sender.standing] += 1
        rows = self._queues.setdefault(pathname, OrderedDict())
        self._queues.move_to_end(pathname)
        if len(self._queues) > QUEUES_KEPT:
            del self._last[self._queues.popitem(last=False)[0]]
        row = rows.get(sender)
        if row is None:
            row = rows[sender] = _Row(now)
            if len(rows) > SENDERS_KEPT:
                rows.popitem(last=False)
        rows.move_to_end(sender)
        row.address, row.last = address, now
        row.count += 1
        row.size += size

    @property
    def refusing(self) -> KeysView[str]:
        """The path names of the queues that have refused messages lately."""
        return self._last.keys()

    def last(self, pathname: str) -> LastRefusal | None:
        """The last refusal of a queue; None if it has refused nothing lately."""
        return self._last.get(pathname)

    def of(self, pathname: str) -> list[RefusedMessages]:
        """The rows of a queue, the last refused first."""
        return [
            RefusedMessages(
                sender.reason,
                sender.standing,
                sender.source,
                row.address,
                sender.claimed_sender,
                row.count,
                row.size,
                row.first,
                row.last,
            )
            for sender, row in reversed(self._queues.get(pathname, OrderedDict()).items())
        ]
