"""The sending half of the session message sequence: counts, the window, and what is not yet acknowledged.

3.1.1.4, 3.1.5.5, 3.1.7.1.3. Counts never wrap here; see :mod:`qmnode.protocol.serial`.
"""

from collections import deque
from enum import IntEnum
from typing import Final

from qmnode.protocol.commands import MessagesAcknowledged, Token
from qmnode.protocol.errors import RemoteProtocolError
from qmnode.protocol.serial import nearest

MAXIMUM_UNCONFIRMED: Final = 0x3FFF
"""Recoverable messages that may wait for the peer's disk: within half of the 16-bit numbers, or they are ambiguous."""


class Disposition(IntEnum):
    """What becomes of a message when the session acknowledges it."""

    RELEASE = 0
    JOURNAL = 1
    """Positive source journaling, 3.1.5.5.4."""
    RETAIN = 2
    """Transactional and first sent here: the order acknowledgment decides, 3.1.1.6.2."""


class SendSequence:
    """Counts what is sent and matches the peer's acknowledgments with it."""

    __slots__ = ("_flight", "acknowledged", "confirmed", "recoverable_sent", "sent", "window")

    def __init__(self, window: int) -> None:
        self.window = window
        """How many messages may be unacknowledged: the smaller of the two sides' windows."""
        self.sent = 0
        """MessageSentCount."""
        self.recoverable_sent = 0
        """RecoverableMessageSentCount."""
        self.acknowledged = 0
        """The highest AckSequenceNumber; ``sent - acknowledged`` is UnAckedMessageCount."""
        self.confirmed = 0
        """The highest recoverable sequence number that was acknowledged as on disk."""
        self._flight: deque[tuple[int, int, Token, Disposition]] = deque()

    def room(self) -> int:
        """How many messages more may be sent now."""
        return min(self.window - self.sent + self.acknowledged, MAXIMUM_UNCONFIRMED - len(self._flight))

    def in_flight(self) -> int:
        """How many sent messages wait for their acknowledgment: of their arrival, or of the peer's disk."""
        return len(self._flight)

    def awaiting(self) -> bool:
        """Whether a sent message is not acknowledged yet."""
        return self.sent > self.acknowledged or bool(self._flight)

    def add(self, token: Token, recoverable: int, disposition: Disposition) -> None:
        """Count a message that is being sent."""
        self.sent += 1
        number = 0
        if recoverable:
            self.recoverable_sent += 1
            number = self.recoverable_sent
        self._flight.append((self.sent, number, token, disposition))

    def take_acknowledgment(self, count: int, base: int, flags: int) -> MessagesAcknowledged | None:
        """Process the acknowledging fields of a SessionHeader (3.1.5.5.1 to 3.1.5.5.4). None when nothing is new.

        ``base`` is the lowest recoverable message that is acknowledged and ``flags`` names it and those after it.
        Without a flag nothing recoverable is acknowledged, whatever ``base`` says, and below ``base`` is what an
        earlier header acknowledged: the text deletes ``base`` itself unseen, and everything when the numbers wrap.
        """
        acknowledged = nearest(count, self.acknowledged)
        if acknowledged > self.sent:
            raise RemoteProtocolError("3.1.5.5.1", f"message {acknowledged} was acknowledged, {self.sent} were sent")
        self.acknowledged = max(acknowledged, self.acknowledged)
        first = last = 0
        if flags:
            first = nearest(base, self.confirmed)
            last = first + flags.bit_length() - 1
            if last > self.recoverable_sent:
                raise RemoteProtocolError(
                    "3.1.5.5.3", f"recoverable message {last} was acknowledged, {self.recoverable_sent} were sent"
                )
            self.confirmed = max(self.confirmed, last)
        return self._release(first, last, flags)

    def _release(self, first: int, last: int, flags: int) -> MessagesAcknowledged | None:
        """Take out of flight what is acknowledged; what lies between keeps its place."""
        flight = self._flight
        kept: list[tuple[int, int, Token, Disposition]] = []
        lists: tuple[list[Token], list[Token], list[Token]] = ([], [], [])
        while flight:
            entry = flight.popleft()
            ordinal, number, token, disposition = entry
            if number:
                done = number < first or (number <= last and flags >> (number - first) & 1)
            else:
                done = ordinal <= self.acknowledged
            if done:
                lists[disposition].append(token)
                continue
            kept.append(entry)
            if ordinal > self.acknowledged and (number > last or not flags):
                break
        flight.extendleft(reversed(kept))
        if not any(lists):
            return None
        return MessagesAcknowledged(*lists)

    def unacknowledged(self) -> list[Token]:
        """Tokens of what is in flight, in the order in which it was sent."""
        return [entry[2] for entry in self._flight]
