"""Message rate limits for strangers: a bucket that refills, for each address block."""

from weakref import WeakValueDictionary


class Rate:
    """Allows ``limit`` messages per second on average, with bursts of one second's worth."""

    __slots__ = ("__weakref__", "_last", "_limit", "_tokens")

    def __init__(self, limit: float, now: float) -> None:
        self._limit = limit
        self._tokens = limit
        self._last = now

    def take(self, count: int, now: float) -> float:
        """Count messages that arrived. Return the seconds for which reading should pause; 0 for none."""
        self._tokens = min(self._limit, self._tokens + (now - self._last) * self._limit) - count
        self._last = now
        return max(0.0, -self._tokens / self._limit)


class Rates:
    """One rate for all connections of an address block, kept while there is one of them."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._rates: WeakValueDictionary[str, Rate] = WeakValueDictionary()

    def of(self, block: str, now: float) -> Rate:
        """The rate of an address block."""
        rate = self._rates.get(block)
        if rate is None:
            rate = self._rates[block] = Rate(self._limit, now)
        return rate
