"""Gives existing packets a new destination in place: their properties, label and body are not taken apart.

A message from an application that runs beside the node comes as a packet, and a received message may be sent on. Only
the BaseHeader and the UserHeader change (MS-MQMQ 2.2.19); most of that is worked out once for all packets of one shape.
"""

from struct import Struct
from typing import TYPE_CHECKING, Final

from qmnode.model.packet_parts import (
    ADMINISTRATION_SHIFT,
    HAS_TRANSACTION,
    KEEP_ON_DELIVERY,
    KEEP_ON_LOSS,
    MAXIMUM_PACKET_SIZE,
    NEGATIVE_JOURNAL_FLAG,
    POSITIVE_JOURNAL_FLAG,
    RARE_FLAGS,
    RECOVERABLE_FLAG,
    TO_MASK,
    TRACED,
    TRANSACTION,
    TRANSACTIONAL,
)
from qmnode.model.record import EXPIRY, EXPRESS, NEVER, PREFIX, PREFIX_SIZE, REPORT, VERSION
from qmnode.structures.base_header import BaseFlags
from qmnode.structures.message_classes import is_permitted
from qmnode.structures.message_properties_header import MAX_LABEL, PropertyFlags
from qmnode.structures.packet_view import (
    ADDRESS,
    HEAD_CODES,
    NAMES_AT,
    SENT_TIME_AT,
    SIZE_AT,
    SIZE_END,
    SOURCE,
    Places,
    base_flags_of,
    label_length,
    message_class_of,
    times_to_live,
    user_flags_of,
    with_base_flags,
)
from qmnode.structures.user_header import UserFlags

if TYPE_CHECKING:
    from qmnode.model.serialization import Destination

_HEAD: Final = Struct(f"<{EXPIRY.start}sIQ{HEAD_CODES}")
"""The prefix of a stored value up to its second of expiry, that second, the arrival, and the head of the packet."""
_NOT_KEPT: Final = TO_MASK | UserFlags.RC.mask | UserFlags.AH.mask
"""The destination and the record of past hops, which a message loses when it is sent anew."""
_REPORTS: Final = PropertyFlags.PA.mask | PropertyFlags.PR.mask | PropertyFlags.NA.mask | PropertyFlags.NR.mask
_ABSOLUTE: Final = frozenset((0, 1, 5, 7))
_NAMES_ALIKE: Final = tuple(kinds & 7 in _ABSOLUTE and kinds >> 3 in _ABSOLUTE for kinds in range(64))
"""Whether, by Flags.AQ and Flags.RQ, the names of the administration and response queues are equal in all packets.
Private queues are named relative to the message's source and destination (2.2.19.2).
"""


def is_addressable(packet: bytes, places: Places) -> bool:
    """Whether a parsed packet can get another destination in place: not one with headers that few have, and not one
    that a receiver would refuse.
    """
    flags = user_flags_of(packet)
    return (
        not flags & (RARE_FLAGS | HAS_TRANSACTION)
        and not base_flags_of(packet) & TRACED
        and _NAMES_ALIKE[flags >> ADMINISTRATION_SHIFT & 63]
        and label_length(packet, places.properties) <= MAX_LABEL
        and is_permitted(message_class_of(packet, places.properties))
    )


class Addressing:
    """The bytes that packets of one shape share once they are addressed to one destination."""

    __slots__ = ("_begin", "_behind_size", "_flags", "_lifetime", "_names", "_prefix", "_rest_at", "_security", "_size")

    def __init__(self, packet: bytes, places: Places, destination: "Destination", transactional: bool) -> None:
        flags = user_flags_of(packet) & ~_NOT_KEPT | destination.flags
        begin = packet[:SIZE_AT]
        record_flags = 0
        if transactional:
            flags |= RECOVERABLE_FLAG | HAS_TRANSACTION
            record_flags = TRANSACTIONAL
            begin = with_base_flags(begin, base_flags_of(packet) & ~BaseFlags.PR.mask)
        elif not flags & RECOVERABLE_FLAG:
            record_flags = EXPRESS
        if packet[places.properties] & _REPORTS:
            record_flags |= REPORT
        if flags & NEGATIVE_JOURNAL_FLAG:
            record_flags |= KEEP_ON_LOSS
        if flags & POSITIVE_JOURNAL_FLAG:
            record_flags |= KEEP_ON_DELIVERY
        reach, lifetime = times_to_live(packet)
        self._lifetime = min(lifetime, reach) if destination.transit else lifetime
        self._begin = begin
        self._behind_size = b"".join(
            (
                packet[SIZE_END : SOURCE.start],
                destination.source,
                destination.address,
                packet[ADDRESS.stop : SENT_TIME_AT],
            )
        )
        self._flags = flags
        self._names = destination.name + packet[places.admin_queue : places.properties]
        self._security = destination.security
        self._rest_at = places.properties
        before = len(self._names) + len(self._security) + (TRANSACTION.size if transactional else 0)
        properties_at = PREFIX_SIZE + NAMES_AT + before
        self._size = NAMES_AT + before - self._rest_at
        """Bytes that a packet grows by."""
        self._prefix = PREFIX.pack(VERSION, record_flags, 0, 0, properties_at, 0, 0)[: EXPIRY.start]

    def address(
        self, packet: bytes, identifier: int, sent: int, arrival: int, transaction: bytes = b""
    ) -> bytes | None:
        """The stored value of a message; None if it would be too large. ``sent`` is in seconds, ``arrival`` in
        microseconds since 1970; ``transaction`` is its TransactionHeader.
        """
        size, lifetime = self._size + len(packet), self._lifetime
        if size > MAXIMUM_PACKET_SIZE:
            return None
        expires = NEVER if lifetime == NEVER else min(sent + lifetime, NEVER - 1)
        head = _pack_head(
            self._prefix, expires, arrival, self._begin, size, self._behind_size, sent, identifier, self._flags
        )
        return b"".join((head, self._names, transaction, self._security, packet[self._rest_at :]))


_pack_head: Final = _HEAD.pack
