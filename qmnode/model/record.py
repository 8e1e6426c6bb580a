"""The stored value of a message: a prefix of twenty bytes, the UserMessage packet as transmitted, and local requests
(qmnode.model.record).

The node never changes the packet in place, so signed bytes stay as they were; the prefix holds the node's own facts
about a message. The part behind the packet holds requests of the application that are not transmitted.
"""

import struct
from enum import IntFlag
from typing import Final, NamedTuple

from qmnode.objects.message_table import FOUR_DAYS
from qmnode.structures import packet_view
from qmnode.structures.packet_view import HEAD_CODES, HEADERS_CODES, packet_size_of

PREFIX: Final = struct.Struct("<BBBBIIQ")
"""Version, flags, aborted receives, moves, offset of the MessagePropertiesHeader in the value, second of expiry,
arrival in microseconds since 1970.
"""
PREFIX_FIELDS: Final = ("version", "record_flags", "aborts", "moves", "place", "expires", "arrival")
PREFIX_SIZE: Final = PREFIX.size
VERSION: Final = 1
DELAYED: Final = 3
"""The version of a message that waits for its delivery time, with a :class:`Delay` behind its other local requests. The
store has 2 for references to files.
"""
COUNT_LIMIT: Final = 0xFF
"""The highest count of aborted receives and moves."""
NEVER: Final = 0xFFFFFFFF
"""Second of expiry of a message that does not expire."""


class RecordFlag(IntFlag):
    """Facts about a message that are known without parsing its packet."""

    EXPRESS = 0x01
    """Kept outside the log."""
    TRANSACTIONAL = 0x02
    PEEK_WHEN_LOCKED = 0x04
    """AllowPeekWhenLocked (MS-MQDMPR 3.1.1.12): peeks find the message while it is locked."""
    REPORT = 0x08
    """A report on the message's outcome is requested: an acknowledgment or a FinalAck."""
    NEGATIVE_JOURNAL = 0x10
    """NegativeJournalingRequested: a copy goes to a dead-letter queue if it is not delivered or received."""
    POSITIVE_JOURNAL = 0x20
    """PositiveJournalingRequested: a copy goes to the sender's journal when it is delivered."""
    NAMED_DEAD_LETTER = 0x40
    """ApplicationDeadletterQueue is behind the packet (qmnode.model.record)."""
    NOTICE = 0x80
    """Created by the queue manager about another message, and counted in the budget of notices."""


EXPRESS: Final = RecordFlag.EXPRESS.value
REPORT: Final = RecordFlag.REPORT.value
TRANSACTIONAL: Final = RecordFlag.TRANSACTIONAL.value
PEEK_WHEN_LOCKED: Final = RecordFlag.PEEK_WHEN_LOCKED.value
NEGATIVE_JOURNAL: Final = RecordFlag.NEGATIVE_JOURNAL.value
NAMED_DEAD_LETTER: Final = RecordFlag.NAMED_DEAD_LETTER.value
NOTICE: Final = RecordFlag.NOTICE.value
"""The flags as plain integers, for code that runs once for each message: operations on enumerations are slow."""

ON_ARRIVAL: Final = (RecordFlag.REPORT | RecordFlag.POSITIVE_JOURNAL).value
ON_LOSS: Final = (RecordFlag.REPORT | RecordFlag.NEGATIVE_JOURNAL).value
"""An action is due when such a message arrives, or when it leaves without being received."""

FLAGS: Final = 1
"""The offset of the flags in a value."""

EXPIRY: Final = slice(8, 12)
NO_EXPIRY: Final = b"\xff\xff\xff\xff"
"""The second of expiry as stored for NEVER, to recognise most messages without unpacking."""

FACTS: Final = struct.Struct("<xB6xI")
"""Flags and second of expiry, in one step."""
DEPARTURE: Final = struct.Struct("<xB6xIQ")
"""Flags, second of expiry, and arrival: what counts when a message leaves."""

read_arrival: Final = struct.Struct("<12xQ").unpack_from
"""The arrival of a value, as a tuple of one number."""
read_properties_place: Final = struct.Struct("<4xI").unpack_from
"""The offset of the MessagePropertiesHeader in the value."""
HEAD: Final = struct.Struct(PREFIX.format + HEADERS_CODES)
"""The prefix, and the packet up to the queue names."""
ADDRESSED_HEAD: Final = struct.Struct(f"<{EXPIRY.start}sIQ{HEAD_CODES}")
"""The prefix up to the second of expiry, that second, the arrival, and the head of the packet."""


def head_with(codes: str) -> struct.Struct:
    """The same and what follows, by its ``struct`` codes."""
    return struct.Struct(HEAD.format + codes)


SOURCE: Final = slice(PREFIX_SIZE + packet_view.SOURCE.start, PREFIX_SIZE + packet_view.SOURCE.stop)
"""UserHeader.SourceQueueManager in a value."""
ADDRESS: Final = slice(PREFIX_SIZE + packet_view.ADDRESS.start, PREFIX_SIZE + packet_view.ADDRESS.stop)
"""UserHeader.QueueManagerAddress in a value."""
IDENTIFIER: Final = slice(PREFIX_SIZE + packet_view.IDENTIFIER.start, PREFIX_SIZE + packet_view.IDENTIFIER.stop)
"""UserHeader.MessageID in a value."""
PRIORITY: Final = PREFIX_SIZE + packet_view.PRIORITY_AT
"""The offset in a value of the priority, in the low three bits."""

_LONG: Final = struct.Struct("<I")
_REACH: Final = slice(PREFIX_SIZE + packet_view.REACH_AT, PREFIX_SIZE + packet_view.REACH_AT + _LONG.size)
"""BaseHeader.TimeToReachQueue in a value (MS-MQMQ 2.2.19.1)."""
DEFAULT_TIME_TO_REACH_QUEUE: Final = FOUR_DAYS
"""Four days (MS-MQDMPR 3.1.1.12), the time of messages that name none."""
ABORTS: Final = 2
"""The offset of the number of failed deliveries in a value."""
MOVES: Final = 3
"""The offset of the number of moves in a value."""


def expiry(value: bytes) -> int:
    """The second in which the message expires, or NEVER."""
    return int(_LONG.unpack_from(value, EXPIRY.start)[0])


def arrival(value: bytes) -> float:
    """When the message arrived at this queue manager, in seconds since 1970 (UTC)."""
    return int(PREFIX.unpack_from(value)[-1]) / 1e6


def with_prefix(
    value: bytes,
    *,
    version: int | None = None,
    flags: int | None = None,
    aborts: int | None = None,
    moves: int | None = None,
    expires: int | None = None,
    arrived: int | None = None,
) -> bytes:
    """The same message with a changed prefix."""
    old_version, old_flags, old_aborts, old_moves, properties, old_expires, old_arrived = PREFIX.unpack_from(value)
    prefix = PREFIX.pack(
        old_version if version is None else version,
        old_flags if flags is None else flags,
        old_aborts if aborts is None else min(aborts, COUNT_LIMIT),
        old_moves if moves is None else min(moves, COUNT_LIMIT),
        properties,
        old_expires if expires is None else expires,
        old_arrived if arrived is None else arrived,
    )
    return prefix + value[PREFIX_SIZE:]


def with_time_to_reach_queue(value: bytes, seconds: int, *, transit: bool) -> bytes:
    """A new message with this time to reach its queue in place of the default; unchanged if it names a time of its own.

    ``transit``: it has not reached its queue yet, and expires if it does not within that time.
    """
    *_, reach, _, _, lifetime, sent, _, _ = HEAD.unpack_from(value)
    if reach != DEFAULT_TIME_TO_REACH_QUEUE:
        return value
    expires = value[EXPIRY]
    if transit:
        until = min(lifetime, seconds)
        expires = NO_EXPIRY if until == NEVER else _LONG.pack(min(sent + until, NEVER - 1))
    return b"".join(
        (value[: EXPIRY.start], expires, value[EXPIRY.stop : _REACH.start], _LONG.pack(seconds), value[_REACH.stop :])
    )


def with_properties_place(value: bytes, place: int) -> bytes:
    """The prefix of a value, for a packet with its MessagePropertiesHeader at another offset of the value."""
    return value[: _PLACE.start] + _LONG.pack(place) + value[_PLACE.stop : PREFIX_SIZE]


_PLACE: Final = slice(4, 8)


HELD: Final = 2
"""The version of a held message as peeks show it, never stored: the second of expiry is that of the next try."""


def held_until(value: bytes, second: int) -> bytes:
    """The value with which a peek shows a message that is held until this second."""
    return bytes((HELD,)) + value[1 : EXPIRY.start] + _LONG.pack(second) + value[EXPIRY.stop :]


def moved(value: bytes) -> bytes:
    """The same message with one more move counted."""
    return value[:MOVES] + bytes((min(value[MOVES] + 1, COUNT_LIMIT),)) + value[MOVES + 1 :]


def _packet_end(value: bytes) -> int:
    return PREFIX_SIZE + packet_size_of(value, PREFIX_SIZE)


def packet_of(value: bytes) -> bytes:
    """The packet of a stored value, as transmitted."""
    return value[PREFIX_SIZE : _packet_end(value)] if value[FLAGS] & NAMED_DEAD_LETTER else value[PREFIX_SIZE:]


def without_dead_letter_header(value: bytes) -> bytes:
    """A stored value without its local requests: prefix and packet."""
    return value[: _packet_end(value)] if value[FLAGS] & NAMED_DEAD_LETTER else value


def with_dead_letter_queue(value: bytes, pathname: str) -> bytes:
    """A stored value with the path name of its dead-letter queue added."""
    name = f"{pathname}\0".encode("utf-16-le")
    name += bytes(-len(name) % _LONG.size)
    header = _LONG.pack(_LONG.size + len(name)) + name
    return with_prefix(value, flags=value[FLAGS] | NAMED_DEAD_LETTER) + header


def dead_letter_queue_of(value: bytes) -> str:
    """The path name of the dead-letter queue in a stored value that has the flag."""
    name = value[_packet_end(value) + _LONG.size :].decode("utf-16-le", "replace")
    return name.partition("\0")[0]


class Delay(NamedTuple):
    """The facts that a message which waits for its delivery time has besides its own."""

    due: int
    """Delivery time, in milliseconds since 1970 (UTC)."""
    delay: int
    """Milliseconds from the send, or from the commit, if the sender gave a delay; else 0."""
    destination: str
    """Format name of the queue that it was sent to."""
    sender: bytes
    """Rights of the sender (``AccessPolicy.rights_of``); empty for the process that embeds the node."""


_DELAY: Final = struct.Struct("<QQHH")


def with_delay(value: bytes, delay: Delay) -> bytes:
    """A stored value as it waits for its delivery time: recoverable, and without an expiry."""
    if not value[FLAGS] & NAMED_DEAD_LETTER:
        value = with_dead_letter_queue(value, "")
    name = delay.destination.encode()
    value = with_prefix(value, version=DELAYED, flags=value[FLAGS] & ~EXPRESS, expires=NEVER)
    return b"".join((value, _DELAY.pack(delay.due, delay.delay, len(name), len(delay.sender)), name, delay.sender))


def _delay_at(value: bytes) -> int:
    end = _packet_end(value)
    return end + int(_LONG.unpack_from(value, end)[0])


def delay_of(value: bytes) -> Delay:
    """The delay of a value that waits for its delivery time."""
    at = _delay_at(value)
    due, delay, size, more = _DELAY.unpack_from(value, at)
    name = at + _DELAY.size
    return Delay(due, delay, value[name : name + size].decode(), value[name + size : name + size + more])


def without_delay(value: bytes) -> bytes:
    """A value that has waited, without its delay: still recoverable, and without an expiry."""
    value = with_prefix(value[: _delay_at(value)], version=VERSION)
    if dead_letter_queue_of(value):
        return value
    return with_prefix(without_dead_letter_header(value), flags=value[FLAGS] & ~NAMED_DEAD_LETTER)


def with_sent_time(value: bytes, now: float, *, transit: bool) -> bytes:
    """A value as if it were sent at ``now``, in seconds since 1970: its lifetimes and its arrival begin there.

    ``transit``: as for :func:`with_time_to_reach_queue`.
    """
    *_, reach, _, _, lifetime, _, _, _ = HEAD.unpack_from(value)
    until, sent = min(lifetime, reach) if transit else lifetime, int(now)
    expires = NEVER if until == NEVER else min(sent + until, NEVER - 1)
    value = with_prefix(value, expires=expires, arrived=int(now * 1e6))
    return value[: _SENT_TIME.start] + _LONG.pack(sent) + value[_SENT_TIME.stop :]


_SENT_TIME: Final = slice(PREFIX_SIZE + packet_view.SENT_TIME_AT, PREFIX_SIZE + packet_view.SENT_TIME_AT + _LONG.size)
