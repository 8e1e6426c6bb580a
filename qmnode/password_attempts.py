"""Limits on passwords that are tried: of one user and from one address, within a minute, without I/O."""

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

_MINUTE: Final = 60.0
_REMEMBERED: Final = 10_000
"""Users and addresses; at the limit, those whose last attempt is oldest are forgotten."""


class Attempts:
    """Failed and undecided attempts of the last minute."""

    def __init__(self, limit: int, clock: Callable[[], float]) -> None:
        """``limit``: attempts of one key, beyond which more are refused. ``clock`` is monotonic."""
        self._limit = limit
        self._clock = clock
        self._made: OrderedDict[str, deque[float]] = OrderedDict()

    def begin(self, *keys: str) -> bool:
        """Count an attempt for each key before it is decided; False if one has made too many.

        Attempts that run at the same time count like failed ones, so the limit holds for them as well.
        """
        since = self._clock() - _MINUTE
        for key in keys:
            made = self._made.get(key)
            while made and made[0] <= since:
                made.popleft()
            if made is not None and len(made) >= self._limit:
                return False
        for key in keys:
            self._made.setdefault(key, deque()).append(self._clock())
            self._made.move_to_end(key)
        while len(self._made) > _REMEMBERED:
            self._made.popitem(last=False)
        return True

    def take_back(self, *keys: str) -> None:
        """Take back the last attempt of each key, which does not count."""
        for key in keys:
            made = self._made.get(key)
            if made:
                made.pop()
            if not made:
                self._made.pop(key, None)
