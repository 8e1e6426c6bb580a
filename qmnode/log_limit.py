"""A limit on log lines of one kind: a sender of malformed packets cannot fill the disk with lines about them."""

import time
from collections.abc import Callable, MutableMapping
from typing import Any, Final

import structlog

LINES: Final = 50
"""Lines of one event about one address, and four times as many of one event, in each interval."""
INTERVAL: Final = 10.0
"""The length of an interval in seconds."""
_ALL: Final = 4
_KEPT: Final = 4096


class LogLimit:
    """A processor of structlog. Drops lines over the limit; the first one after that says how many there were.

    Errors always come through, and so does the audit: what is changed, with who changed it.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, lines: int = LINES, interval: float = INTERVAL
    ) -> None:
        """``lines`` of one event about one address, and four times as many of one event, in each ``interval``."""
        self._clock = clock
        self._lines = lines
        self._interval = interval
        self._began = clock()
        self._counts: dict[tuple[str, str], int] = {}
        self._left_out: dict[str, int] = {}

    def __call__(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """The line, or DropEvent."""
        if method in ("error", "critical", "exception") or "who" in event:
            return event
        now = self._clock()
        if now - self._began >= self._interval:
            self._began = now
            self._counts.clear()
        kind = str(event.get("event", ""))
        about = kind, str(event.get("address", ""))
        if self._is_over(about, self._lines) or (about[1] and self._is_over((kind, ""), self._lines * _ALL)):
            if kind in self._left_out or len(self._left_out) < _KEPT:
                self._left_out[kind] = self._left_out.get(kind, 0) + 1
            raise structlog.DropEvent
        if kind in self._left_out:
            event["left_out_before"] = self._left_out.pop(kind)
        return event

    def _is_over(self, about: tuple[str, str], limit: int) -> bool:
        count = self._counts.get(about, 0) + 1
        if about in self._counts or len(self._counts) < _KEPT:
            self._counts[about] = count
        return count > limit
