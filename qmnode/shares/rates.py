"""Use over time: how fast a party may go on, by what it has cost."""

from typing import Final

_REMEMBERED: Final = 4096
"""Names above which those are forgotten that may use a whole second again."""


class Rate:
    """Allows ``limit`` units per second on average, with bursts of one second's worth."""

    __slots__ = ("_last", "_limit", "_tokens")

    def __init__(self, limit: float, now: float) -> None:
        self._limit = limit
        self._tokens = limit
        self._last = now

    def take(self, count: float, now: float) -> float:
        """Charge units that were used. Return the seconds for which to take nothing more; 0 for none."""
        self._tokens = min(self._limit, self._tokens + (now - self._last) * self._limit) - count
        self._last = now
        return max(0.0, -self._tokens / self._limit)

    def is_rested(self, now: float) -> bool:
        """Whether nothing of the last second's use is left to remember."""
        return self._tokens + (now - self._last) * self._limit >= self._limit


class Rates:
    """One rate for each name, such as an address block. A debt outlives the connections that made it."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._rates: dict[str, Rate] = {}
        self._cleaned_at = _REMEMBERED

    def of(self, name: str, now: float) -> Rate:
        """The rate of one name."""
        rate = self._rates.get(name)
        if rate is None:
            if len(self._rates) >= self._cleaned_at:
                self._rates = {one: known for one, known in self._rates.items() if not known.is_rested(now)}
                self._cleaned_at = max(_REMEMBERED, 2 * len(self._rates))
            rate = self._rates[name] = Rate(self._limit, now)
        return rate
