"""What happens to the messages of one queue, counted.

Counters are plain attributes, increased once for a batch where there is one: a message costs no look-up of a label.
:mod:`qmnode.model.traffic` adds them up when somebody asks.
"""

from collections import Counter
from typing import Final

from qmnode.model.record import ARRIVAL, PREFIX_SIZE
from qmnode.structures.message_classes import MessageClass

_RECEIVED: Final = MessageClass.MQMSG_CLASS_ACK_RECEIVE.value
_EXPIRIES: Final = (
    MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT.value,
    MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT.value,
)
Amount = tuple[int, int]
"""Messages, and their bytes."""


class Tally:
    """Messages and bytes of a queue. Bytes are those of packets: headers and body."""

    __slots__ = (
        "acknowledged", "acknowledged_bytes", "arrived", "arrived_bytes", "died", "died_bytes", "left", "received",
        "received_bytes", "recent", "rejected", "rejected_bytes", "resent", "resent_bytes", "sent", "sent_bytes",
    )  # fmt: skip

    def __init__(self, left: list[bytes] | None = None) -> None:
        self.left = [] if left is None else left
        """When those arrived that were received just now, of all queues of a kind: see ``Traffic.settle``."""
        self.arrived = self.arrived_bytes = 0
        """Put into the queue: sent by an application here, or received from another queue manager."""
        self.received = self.received_bytes = 0
        """Received by applications."""
        self.sent = self.sent_bytes = 0
        """Sent to the next hop for the first time."""
        self.resent = self.resent_bytes = 0
        """Sent to the next hop again."""
        self.acknowledged = self.acknowledged_bytes = 0
        """Left their outgoing queue: the next hop, or the destination of transactional ones, has them."""
        self.died: Counter[int] = Counter()
        """Ended in the queue without being received or acknowledged, by reason: a class of MS-MQMQ 2.2.20.1."""
        self.died_bytes: Counter[int] = Counter()
        self.rejected: Counter[int] = Counter()
        """Refused when they arrived, by reason."""
        self.rejected_bytes: Counter[int] = Counter()
        self.recent = 0.0
        """How busy the queue was lately."""

    def ended(self, value: bytes, reason: int) -> None:
        """A message left its queue for this reason."""
        size = len(value) - PREFIX_SIZE
        if reason == _RECEIVED:
            self.received += 1
            self.received_bytes += size
            self.left.append(value[ARRIVAL])
        else:
            self.died[reason] += 1
            self.died_bytes[reason] += size

    def reject(self, packet: bytes, reason: int) -> None:
        """A message was refused when it arrived."""
        self.rejected[reason] += 1
        self.rejected_bytes[reason] += len(packet)

    @property
    def expired(self) -> Amount:
        """The dead whose time had passed."""
        return sum(self.died[one] for one in _EXPIRIES), sum(self.died_bytes[one] for one in _EXPIRIES)

    @property
    def moves(self) -> int:
        """How often a message came or went."""
        return self.arrived + self.received + self.sent + self.acknowledged + self.died.total() + self.rejected.total()

    def take(self, other: "Tally") -> None:
        """Add the counts of another tally, which begins anew."""
        for name in _NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
            setattr(other, name, 0)
        for name in _BY_REASON:
            counts: Counter[int] = getattr(other, name)
            if counts:
                getattr(self, name).update(counts)
                counts.clear()


_BY_REASON: Final = ("died", "died_bytes", "rejected", "rejected_bytes")
_NUMBERS: Final = tuple(name for name in Tally.__slots__ if name not in (*_BY_REASON, "left", "recent"))
