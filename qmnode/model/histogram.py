"""Durations, counted by how long they are: what Prometheus calls a histogram."""

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """How many durations are at most each bound, in seconds; the last count is of those above all bounds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0
        """The sum of all durations."""

    def observe(self, seconds: float, count: int = 1) -> None:
        """Add a duration that ``count`` messages share. A clock that was set back makes none negative."""
        seconds = max(0.0, seconds)
        self.counts[bisect_left(self.bounds, seconds)] += count
        self.total += seconds * count
