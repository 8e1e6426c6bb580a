"""Messages that queues refused when they arrived: by queue, sender and reason, in bounded memory."""

from collections import Counter, OrderedDict
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Final, NamedTuple

from qmnode.structures.guid import Guid
from qmnode.structures.message_classes import MessageClass

QUEUES_KEPT: Final = 256
SENDERS_KEPT: Final = 64
"""Rows of one queue: those that were refused last."""


@unique
class Standing(StrEnum):
    """The standing of a message's sender before an access list."""

    SIGNED = "signed"
    NAMELESS = "nameless"
    NEVER = "never"
    UNPROVEN = "unproven"
    PLAIN = "plain"
    UNKNOWN = "unknown"
    COUNTED = "counted"

    @property
    def meaning(self) -> str:
        """A sentence for the operator."""
        return _MEANINGS[self]


_MEANINGS: Final = {
    Standing.SIGNED: "The message is signed.",
    Standing.NAMELESS: "The message is unsigned and names no sender: it is anonymous.",
    Standing.NEVER: "The message is unsigned, and security.unsigned_senders is never for this queue: it is anonymous.",
    Standing.UNPROVEN: "The message is unsigned, and its own queue manager did not bring it over TLS or as a declared "
    "plain peer: it is anonymous.",
    Standing.PLAIN: "The message is unsigned and came from a plain peer, and security.unsigned_senders is neighbours "
    "for this queue: it is anonymous.",
    Standing.UNKNOWN: "The message is unsigned and names no account that the directory knows: it is anonymous.",
    Standing.COUNTED: "The message is unsigned, and its sender counts: the access list does not let that account send.",
}


@dataclass(frozen=True, slots=True)
class RefusedMessages:
    """Messages of one sender that a queue refused for one reason, since the node started."""

    reason: int
    """A class of MS-MQMQ 2.2.20.1."""
    standing: str
    """Of the sender, for NACK_ACCESS_DENIED: a :class:`Standing`; else empty."""
    source: Guid
    """The queue manager that sent them, as the packets say."""
    address: str
    """The address of the neighbour that brought the last one."""
    claimed_sender: bytes
    """The SID that the packets name, or empty."""
    count: int
    size: int
    """Bytes of the packets."""
    first_time: float
    """Seconds since 1970 (UTC)."""
    last_time: float


class RefusedSender(NamedTuple):
    """A sender and the reason for which its messages are refused."""

    reason: int
    standing: str
    source: Guid
    claimed_sender: bytes


class _Row:
    __slots__ = ("address", "count", "first", "last", "size")

    def __init__(self, now: float) -> None:
        self.address = ""
        self.count = self.size = 0
        self.first = self.last = now


class Refusals:
    """The refused messages of one queue manager."""

    def __init__(self) -> None:
        self.denied: Counter[str] = Counter()
        """Messages to which an access list denied a queue, by :class:`Standing`."""
        self._queues: OrderedDict[str, OrderedDict[RefusedSender, _Row]] = OrderedDict()

    def note(self, pathname: str, sender: RefusedSender, address: str, size: int, now: float) -> None:
        """Count a message that a queue refused."""
        if sender.reason == MessageClass.MQMSG_CLASS_NACK_ACCESS_DENIED:
            self.denied[sender.standing] += 1
        rows = self._queues.setdefault(pathname, OrderedDict())
        self._queues.move_to_end(pathname)
        if len(self._queues) > QUEUES_KEPT:
            self._queues.popitem(last=False)
        row = rows.get(sender)
        if row is None:
            row = rows[sender] = _Row(now)
            if len(rows) > SENDERS_KEPT:
                rows.popitem(last=False)
        rows.move_to_end(sender)
        row.address, row.last = address, now
        row.count += 1
        row.size += size

    def of(self, pathname: str) -> list[RefusedMessages]:
        """The rows of a queue, the last refused first."""
        return [
            RefusedMessages(
                sender.reason,
                sender.standing,
                sender.source,
                row.address,
                sender.claimed_sender,
                row.count,
                row.size,
                row.first,
                row.last,
            )
            for sender, row in reversed(self._queues.get(pathname, OrderedDict()).items())
        ]
