"""The timers of 3.1.2, as names and deadlines. The caller, which has the clock, asks for the next one and reports its
expiry.
"""

from enum import Enum, unique


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

    __slots__ = ("_deadlines",)

    def __init__(self) -> None:
        self._deadlines: dict[Timer, float] = {}

    def start(self, timer: Timer, deadline: float) -> None:
        """Start, or restart, a timer."""
        self._deadlines[timer] = deadline

    def stop(self, timer: Timer) -> None:
        """Stop a timer; no effect if it is not running."""
        self._deadlines.pop(timer, None)

    def stop_all(self) -> None:
        """Stop every running timer."""
        self._deadlines.clear()

    def deadline(self, timer: Timer) -> float | None:
        """The time at which the timer expires; None if it is not running."""
        return self._deadlines.get(timer)

    def running(self, timer: Timer) -> bool:
        """Whether the timer is running."""
        return timer in self._deadlines

    def next(self) -> tuple[Timer, float] | None:
        """The timer that expires first, with its deadline."""
        if not self._deadlines:
            return None
        timer = min(self._deadlines, key=self._deadlines.__getitem__)
        return timer, self._deadlines[timer]

    def take_due(self, now: float) -> Timer | None:
        """Stop and return the earliest timer whose deadline has passed; None when there is none."""
        first = self.next()
        if first is None or first[1] > now:
            return None
        del self._deadlines[first[0]]
        return first[0]
