"""The timers of 3.1.2, as names and deadlines. The caller has the clock, asks for the next, reports its expiry."""

from enum import Enum, unique
from operator import itemgetter
from typing import Final


@unique
class Timer(Enum):
    """The timers that the protocol maintains; the value is the section."""

    SESSION_INITIALIZATION = "3.1.2.1"
    SESSION_CLEANUP = "3.1.2.2"
    SESSION_RETRY_CONNECT = "3.1.2.3"
    SESSION_ACK_WAIT = "3.1.2.4"
    SESSION_ACK_SEND = "3.1.2.5"
    TRANSACTIONAL_ACK_WAIT = "3.1.2.6"
    ORDER_ACK_SEND = "3.1.2.7"
    MESSAGE_ID_HISTORY_CLEANUP = "3.1.2.8"
    PING_RESPONSE = "3.1.2.9"


class Timers:
    """The running timers of one object."""

    __slots__ = ("deadlines", "next")

    def __init__(self) -> None:
        self.deadlines: dict[Timer, float] = {}
        """The running timers, and when they expire."""
        self.next: tuple[Timer, float] | None = None
        """The timer that expires first, with its deadline. Asked for with each packet, so it is kept."""

    def start(self, timer: Timer, deadline: float) -> None:
        self.deadlines[timer] = deadline
        self._find_next()

    def stop(self, timer: Timer) -> None:
        """Stop a timer; no effect if it is not running."""
        if self.deadlines.pop(timer, None) is not None:
            self._find_next()

    def stop_all(self) -> None:
        self.deadlines.clear()
        self.next = None

    def take_due(self, now: float) -> Timer | None:
        """Stop and return the earliest timer whose deadline has passed; None when there is none."""
        first = self.next
        if first is None or first[1] > now:
            return None
        self.stop(first[0])
        return first[0]

    def _find_next(self) -> None:
        self.next = min(self.deadlines.items(), key=_DEADLINE, default=None)


_DEADLINE: Final = itemgetter(1)
