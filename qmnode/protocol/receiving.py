"""The receiving half of the session message sequence: received, settled and acknowledged messages.

3.1.1.4, 3.1.5.8.2, 3.1.5.8.7, 3.1.6.4. A message is *settled* when all its effects are on disk, or when it was dropped.
Only settled messages are acknowledged, both in AckSequenceNumber and in the recoverable flags. So no acknowledgment
covers a write that was not synced, and the peer's window is the back-pressure of this side's disk.
"""

from typing import Final

from qmnode.protocol.errors import LocalProtocolError, RemoteProtocolError
from qmnode.protocol.received import MessageReader
from qmnode.protocol.serial import WORD

FLAG_COUNT: Final = 32
"""The number of bits of RecoverableMsgAckFlags."""


class ReceiveSequence(MessageReader):
    """Reads and counts received messages, and tracks which may be acknowledged. Counts never wrap here."""

    __slots__ = ("acknowledged", "recoverable_acknowledged", "recoverable_settled", "settled")

    def __init__(self) -> None:
        super().__init__()
        self.settled = 0
        self.recoverable_settled = 0
        self.acknowledged = 0
        """The count of settled messages in the last SessionHeader."""
        self.recoverable_acknowledged = 0
        """LastAckedRecoverableMsgSeqNumber without its wrap-around."""

    def unacknowledged(self) -> int:
        """UnackedReceivedMsgCount: received messages that no SessionHeader has acknowledged."""
        return self.received - self.acknowledged

    def due(self) -> int:
        """The number of settled messages that an acknowledgment sent now would cover."""
        return self.settled - self.acknowledged

    def settle(self, count: int, recoverable: int) -> None:
        """Everything up to message ``count`` and recoverable message ``recoverable`` is settled."""
        if not self.settled <= count <= self.received:
            raise LocalProtocolError(f"message {count} cannot be settled: {self.settled} are, {self.received} came")
        if not self.recoverable_settled <= recoverable <= self.recoverable_received:
            raise LocalProtocolError(
                f"recoverable message {recoverable} cannot be settled: {self.recoverable_settled} are, "
                f"{self.recoverable_received} came"
            )
        self.settled = count
        self.recoverable_settled = recoverable

    def check_counts(self, sent: int, recoverable_sent: int) -> None:
        """Compare the peer's counts (16 bits) with the messages received: 3.1.5.5.5."""
        if sent != self.received & WORD:
            raise RemoteProtocolError("3.1.5.5.5", f"the peer says that it sent {sent} messages, {self.received} came")
        if recoverable_sent != self.recoverable_received & WORD:
            raise RemoteProtocolError(
                "3.1.5.5.5",
                f"the peer says that it sent {recoverable_sent} recoverable messages, {self.recoverable_received} came",
            )

    def acknowledge(self) -> tuple[int, int, int]:
        """The acknowledging fields of the next SessionHeader: AckSequenceNumber, RecoverableMsgAckSeqNumber and -Flags.

        At most 32 recoverable messages go into one; while ``more`` is true another header is needed.
        """
        first = self.recoverable_acknowledged + 1
        count = min(self.recoverable_settled - self.recoverable_acknowledged, FLAG_COUNT)
        self.acknowledged = self.settled
        if not count:
            return self.settled & WORD, 0, 0
        self.recoverable_acknowledged += count
        return self.settled & WORD, first & WORD, (1 << count) - 1

    def more(self) -> bool:
        """Whether settled recoverable messages remain that no header has acknowledged."""
        return self.recoverable_settled > self.recoverable_acknowledged
