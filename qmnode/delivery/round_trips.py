"""Counts the messages that one outgoing queue sends, and measures how long the next hop takes to acknowledge them."""

from collections import deque
from collections.abc import Sequence

from qmnode.model.traffic import Histogram, Tally
from qmnode.protocol.envelope import Packet


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

    def sent(self, packets: Sequence[Packet], now: float, again: bool) -> None:
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
