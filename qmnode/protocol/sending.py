"""The sending half of the session message sequence: counts, the window, and unacknowledged messages.

3.1.1.4, 3.1.5.5, 3.1.7.1.3. Counts never wrap here; see :mod:`qmnode.protocol.serial`.
"""

from collections import deque
from enum import IntEnum
from typing import Final

from qmnode.protocol.commands import MessagesAcknowledged, Token
from qmnode.protocol.errors import RemoteProtocolError
from qmnode.protocol.serial import nearest

MAXIMUM_UNCONFIRMED: Final = 0x3FFF
"""The most recoverable messages that may wait for the peer's disk: less than half of the 16-bit numbers, which would be
ambiguous otherwise.
"""


class Disposition(IntEnum):
    """The effect of the session's acknowledgment on a message."""

    RELEASE = 0
    JOURNAL = 1
    """Positive source journaling, 3.1.5.5.4."""
    RETAIN = 2
    """Transactional and first sent here: the order acknowledgment decides, 3.1.1.6.2."""


class SendSequence:
    """Counts sent messages and matches the peer's acknowledgments with them."""

    __slots__ = ("_flight", "acknowledged", "confirmed", "recoverable_sent", "sent", "window")

    def __init__(self, window: int) -> None:
        self.window = window
        """The most messages that may be unacknowledged: the smaller of the two sides' windows."""
        self.sent = 0
        """MessageSentCount without its wrap-around."""
        self.recoverable_sent = 0
        """RecoverableMessageSentCount without its wrap-around."""
        self.acknowledged = 0
        """The highest AckSequenceNumber; ``sent - acknowledged`` is UnAckedMessageCount."""
        self.confirmed = 0
        """The highest recoverable sequence number acknowledged as on disk."""
        self._flight: deque[tuple[int, int, Token, Disposition]] = deque()

    def room(self) -> int:
        """The number of messages that may be sent now."""
        return min(self.window - self.sent + self.acknowledged, MAXIMUM_UNCONFIRMED - len(self._flight))

    def in_flight(self) -> int:
        """The number of sent messages that wait for an acknowledgment, of their arrival or of the peer's disk."""
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
        """Process the acknowledging fields of a SessionHeader (3.1.5.5.1 to 3.1.5.5.4). None if they say nothing new.

        ``base`` is the lowest acknowledged recoverable message; ``flags`` has a bit for it and each of those after it.
        Without a flag no recoverable message is acknowledged, whatever ``base`` says, and messages below ``base`` were
        acknowledged by an earlier header. (The specification deletes ``base`` itself unchecked, and everything when the
        numbers wrap.)
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
        """Remove acknowledged messages from flight; those in between keep their place."""
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
        """Tokens of the messages in flight, in the order in which they were sent."""
        return [entry[2] for entry in self._flight]
