"""From a stored packet to its message: MS-MQDMPR 3.1.7.1.31, MS-MQMQ 2.2.20. Changes the few mutable facts of a
packet.

Every received message passes through here, so a packet is parsed only as far as its properties are read.

Packets get a new destination in place: their properties, label and body are not taken apart. A message from an
application that runs beside the node comes as a packet, and a received message may be sent on. Only the BaseHeader and
the UserHeader change (MS-MQMQ 2.2.19); most of that is worked out once for all packets of one shape.
"""

import struct
from codecs import utf_16_le_decode
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from qmnode.allocator import with_other_head
from qmnode.errors import MessageQueuingError
from qmnode.model.message import Message
from qmnode.model.packet_parts import (
    ADMINISTRATION_SHIFT,
    DESTINATION_SHIFT,
    FINAL_ACK_FLAG,
    FIRST_FLAG,
    HAS_CONNECTOR,
    HAS_SECURITY,
    HAS_TRANSACTION,
    KEEP_ON_DELIVERY,
    KEEP_ON_LOSS,
    LAST_FLAG,
    MAXIMUM_PACKET_SIZE,
    NEGATIVE_JOURNAL_FLAG,
    POSITIVE_JOURNAL_FLAG,
    RARE_FLAGS,
    RECOVERABLE_FLAG,
    RESPONSE_SHIFT,
    TO_MASK,
    TRACED,
    TRANSACTIONAL,
    Names,
    load_rare_headers,
)
from qmnode.model.record import (
    ADDRESSED_HEAD,
    DELAYED,
    EXPIRY,
    EXPRESS,
    FLAGS,
    HEAD,
    HELD,
    NAMED_DEAD_LETTER,
    NEVER,
    PEEK_WHEN_LOCKED,
    PREFIX,
    PREFIX_SIZE,
    REPORT,
    VERSION,
    dead_letter_queue_of,
    delay_of,
    packet_of,
    read_properties_place,
    without_dead_letter_header,
)
from qmnode.structures.base_header import BaseFlags
from qmnode.structures.envelope import LARGE, Packet, read_transaction_header
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.errors import PacketError
from qmnode.structures.guid import ZERO_GUID, Guid
from qmnode.structures.message_classes import is_permitted
from qmnode.structures.message_properties_header import MAX_LABEL, PropertyFlags
from qmnode.structures.message_security import PRIVACY_LEVELS
from qmnode.structures.packet_view import (
    ADDRESS,
    FLAGS_AT,
    NAMES_AT,
    NULL_SIZE,
    PRIVACY_LEVEL_AT,
    PROPERTIES_SIZE,
    SECURITY_SIZE,
    SENT_TIME_AT,
    SIZE_AT,
    SIZE_END,
    SOURCE,
    TRANSACTION_HEADER_SIZE,
    UNUSUAL_BASE,
    Places,
    Shape,
    Shapes,
    base_flags_of,
    label_length,
    message_class_of,
    places_of,
    privacy_level_of,
    read_content_sizes,
    read_properties,
    read_security,
    sent_time_of,
    times_to_live,
    user_flags_of,
    with_base_flags,
    with_message_class,
    with_transaction_flag,
)
from qmnode.structures.security_header import SecurityFlags
from qmnode.structures.user_header import UserFlags
from qmnode.structures.user_message import UserMessage

if TYPE_CHECKING:
    from qmnode.model.serialization import Destination

_CLAIMS: Final = SecurityFlags.AU.mask | SecurityFlags.AS.mask
BROKEN: Final = (PacketError, struct.error, ValueError, IndexError)
"""Exceptions when reading a stored message whose bytes are not a sound packet."""


def received_message(lookup_identifier: int, value: Packet) -> Message:
    """A message from a queue; its packet is parsed when a property is first read. Of a value that is a view, only the
    body is copied as long as only body and label are read.
    """
    message = Message.__new__(Message)
    attributes = message.__dict__
    attributes["lookup_identifier"] = lookup_identifier
    attributes["_load"] = load
    attributes["_value"] = value
    if value[FLAGS] & NAMED_DEAD_LETTER:
        with suppress(*BROKEN):
            whole = _whole(attributes)
            attributes["application_dead_letter_queue"] = dead_letter_queue_of(whole)
            if whole[0] == DELAYED:
                attributes["delivery_time"] = delay_of(whole).due / 1000
    return message


def _whole(attributes: dict[str, Any]) -> bytes:
    """The stored value of an unparsed message, no longer as a view."""
    value = attributes["_value"] = bytes(attributes["_value"])
    return value


def value_of_any_packet(packet: bytes, arrival: float) -> bytes:
    """The stored value of a packet that may be broken: its message then says why it is unreadable."""
    try:
        return value_of_packet(packet, arrival)
    except BROKEN:
        # A MessagePropertiesHeader behind the end, so that no bytes of the packet are taken for one.
        return PREFIX.pack(VERSION, 0, 0, 0, PREFIX_SIZE + len(packet), NEVER, int(arrival * 1e6)) + packet


def stored_value(message: Message) -> bytes:
    """The prefix and packet of a received message that has not been parsed."""
    return without_dead_letter_header(whole_value(message))


def whole_value(message: Message) -> bytes:
    """The same, with the data that follows the packet."""
    return _whole(message.__dict__)


_SHAPES: Final = Shapes()


def message_from_packet(packet: Packet) -> Message:
    """A message from another sender's packet, which is only checked. Raises PacketError if the packet is malformed."""
    _SHAPES.validate(packet)
    return received_message(0, value_of_packet(bytes(packet), 0.0))


def shapes_of(packets: Iterable[Packet]) -> list[Shape | None]:
    """The shapes of packets, None for those with rare headers. Raises PacketError if one is malformed."""
    shapes: list[Shape | None] = []
    shape = None
    for packet in packets:
        if shape is None or not shape.fits(packet):
            shape = _SHAPES.validate(packet)
        shapes.append(shape)
    return shapes


def packed(message: Message) -> bytes:
    """The packet of a message that has not been parsed."""
    return packet_of(_whole(message.__dict__))


def load(message: Message, name: str) -> None:
    """Deserialize Message From Buffer (3.1.7.1.31), as far as the property ``name`` needs it.

    Never raises: unreadable properties keep their defaults, and ``unreadable`` gives the reason.
    """
    attributes = message.__dict__
    if name == "body" or name == "label":
        try:
            _load_content(attributes, attributes["_value"])
        except BROKEN:
            pass  # said below, with the other properties
        else:
            return
    value = _whole(attributes)
    own = dict(attributes)  # keeps what the application has set
    if name in _PROPERTIES:
        try:
            _load_properties(attributes, value)
        except BROKEN:
            pass
        else:
            attributes.update(own)
            return
    del attributes["_load"], attributes["_value"], own["_load"], own["_value"]
    problems: list[str] = []
    try:
        _load_properties(attributes, value)
    except BROKEN as error:
        problems.append(f"MessagePropertiesHeader: {error}")
    try:
        problems += _load_headers(attributes, value)
    except BROKEN as error:
        problems.append(str(error))
    attributes.setdefault("packet", value[PREFIX_SIZE:])
    attributes["unreadable"] = "; ".join(problems)
    attributes.update(own)


_PROPERTIES: Final = frozenset((
    "acknowledgements_requested", "app_specific", "body_type", "correlation_identifier", "encryption_algorithm",
    "extension", "hash_algorithm", "message_class", "privacy_level",
))  # fmt: skip


class Room(NamedTuple):
    """The bytes that a receiver has room for: of a body, and of all else that is stored with it."""

    body: int
    rest: int

    def holds(self, value: Packet) -> bool:
        """Whether a stored message is no larger."""
        try:
            size = read_content_sizes(value, read_properties_place(value)[0])[1]
        except struct.error:  # a broken packet: looked at, and left
            size = len(value)
        return bool(size <= self.body and len(value) - size <= self.rest)

    def check(self, value: Packet) -> None:
        """MQ_ERROR_BUFFER_OVERFLOW for a stored message that is larger."""
        if not self.holds(value):
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_BUFFER_OVERFLOW, "the message is larger than the receiver's room: it stays"
            )


def _load_content(attributes: dict[str, Any], value: Packet) -> None:
    """Load the body and the label, all that most applications read."""
    start = read_properties_place(value)[0]
    label_length, body_size, extension_size = read_content_sizes(value, start)
    start += PROPERTIES_SIZE
    label_end = start + 2 * label_length
    body_start = label_end + extension_size
    if "body" not in attributes:
        attributes["body"] = bytes(value[body_start : body_start + body_size])
    # Packets from elsewhere may contain half of a surrogate pair: that must not make the message unreadable.
    if "label" not in attributes:
        attributes["label"] = utf_16_le_decode(value[start : label_end - NULL_SIZE], "replace", True)[0]


def _load_properties(attributes: dict[str, Any], value: bytes) -> None:
    """Load the fields of the MessagePropertiesHeader, which fewer applications read."""
    start = read_properties_place(value)[0]
    (
        attributes["acknowledgements_requested"],
        label_length,
        attributes["message_class"],
        attributes["correlation_identifier"],
        attributes["body_type"],
        attributes["app_specific"],
        _,
        _,
        attributes["privacy_level"],
        attributes["hash_algorithm"],
        attributes["encryption_algorithm"],
        extension_size,
    ) = read_properties(value, start)
    start += PROPERTIES_SIZE
    label_end = start + 2 * label_length
    body_start = label_end + extension_size
    _load_content(attributes, value)
    attributes["extension"] = value[label_end:body_start]


def _load_headers(attributes: dict[str, Any], value: bytes) -> list[str]:
    """Load the preceding data (prefix, BaseHeader, UserHeader and TransactionHeader) and the rare headers.

    Return the reason why rare headers cannot be read.
    """
    problems: list[str] = []
    (
        version,
        record_flags,
        aborts,
        moves,
        _,
        second,
        arrival,
        _,
        _,
        base_flags,
        _,
        _,
        reach,
        source,
        address,
        lifetime,
        sent,
        identifier,
        flags,
    ) = HEAD.unpack_from(value)
    rare = flags & RARE_FLAGS or base_flags & TRACED
    names = Names(value, source, address)
    attributes["destination_queue_format_name"] = names.take(flags >> DESTINATION_SHIFT & 7)
    attributes["administration_queue_format_name"] = administration = names.take(flags >> ADMINISTRATION_SHIFT & 7)
    attributes["response_queue_format_name"] = names.take(flags >> RESPONSE_SHIFT & 7, administration)
    if flags & HAS_CONNECTOR:
        attributes["connector_type_identifier"] = Guid(names.bytes(16))
    if flags & HAS_TRANSACTION:
        _load_transaction(attributes, names.bytes(TRANSACTION_HEADER_SIZE))
    if rare and (rare != HAS_SECURITY or base_flags & TRACED or not _load_named_sender(attributes, value, names)):
        problems = load_rare_headers(attributes, packet_of(value))
    attributes.update(
        packet=packet_of(value),
        recoverable=bool(flags & RECOVERABLE_FLAG),
        transactional=bool(flags & HAS_TRANSACTION),
        priority=base_flags & 7,
        allow_peek_when_locked=bool(record_flags & PEEK_WHEN_LOCKED),
        aborted_receives=aborts,
        next_try=second if version == HELD else 0,
        move_count=moves,
        arrival_time=arrival / 1e6,
        sent_time=sent,
        time_to_reach_queue=reach,
        time_to_be_received=lifetime,
        identifier=source + identifier.to_bytes(4, "little"),
        source_machine_identifier=Guid(source),
        destination_queue_manager_identifier=Guid(address),
        negative_journaling_requested=bool(flags & NEGATIVE_JOURNAL_FLAG),
        positive_journaling_requested=bool(flags & POSITIVE_JOURNAL_FLAG),
    )
    return problems


def _load_named_sender(attributes: dict[str, Any], value: bytes, names: Names) -> bool:
    """Load a SecurityHeader that names the sender and has no other part. Return whether it is such a one."""
    flags, size, *others = read_security(value, names.offset)
    names.offset += SECURITY_SIZE
    properties_at = read_properties_place(value)[0]
    if flags & _CLAIMS or any(others) or names.offset + (size + 3 & ~3) != properties_at:
        return False
    attributes["claimed_sender"] = names.bytes(size)
    return True


def _load_transaction(attributes: dict[str, Any], header: bytes) -> None:
    flags, sequence, number, previous = read_transaction_header(header)
    attributes.update(
        first_in_transaction=bool(flags & FIRST_FLAG),
        last_in_transaction=bool(flags & LAST_FLAG),
        final_ack_required=bool(flags & FINAL_ACK_FLAG),
        transaction_identifier=flags >> 4 & 0xFFFFF,
        transactional_message_sequence_identifier=sequence.to_bytes(8, "little"),
        transaction_sequence_number=number,
        transaction_previous_sequence_number=previous,
    )


def mark_last_in_transaction(value: bytes) -> bytes:
    """The same message, marked as the last of its transaction (3.1.4.3)."""
    return with_transaction_flag(value, transaction_offset(value), LAST_FLAG)


def with_class(value: bytes, message_class: int) -> bytes:
    """The same message with another class: the class of a dead letter gives its reason."""
    return with_message_class(value, read_properties_place(value)[0], message_class)


class RecordFacts(NamedTuple):
    """Facts in the prefix of a stored packet that follow from its headers, and so are equal for packets with equal
    headers.
    """

    flags: int
    properties_offset: int
    lifetime: int
    """Seconds from its SentTime."""


def record_facts(packet: Packet, *, transit: bool = False) -> RecordFacts:
    """The facts of a sound, parsed UserMessage packet from another machine.

    ``transit``: it has not reached its queue yet, and must do so within its time.
    """
    flags, places = user_flags_of(packet), places_of(packet)
    reach, lifetime = times_to_live(packet)
    record_flags = 0 if flags & RECOVERABLE_FLAG else EXPRESS
    if flags & HAS_TRANSACTION:
        record_flags |= TRANSACTIONAL | (REPORT if packet[places.transaction_header] & FINAL_ACK_FLAG else 0)
    if packet[places.properties] & 0x0F:
        record_flags |= REPORT
    if flags & NEGATIVE_JOURNAL_FLAG:
        record_flags |= KEEP_ON_LOSS
    if flags & POSITIVE_JOURNAL_FLAG:
        record_flags |= KEEP_ON_DELIVERY
    if transit:
        lifetime = min(lifetime, reach)
    return RecordFacts(record_flags, PREFIX_SIZE + places.properties, lifetime)


def stored_prefix(facts: RecordFacts, sent: int, arrival: float, until: int = NEVER) -> bytes:
    """The prefix of a packet's stored value. ``sent`` is its SentTime, ``arrival`` the current time, both in seconds
    since 1970. The message expires at ``until`` at the latest.
    """
    flags, offset, lifetime = facts
    expires = min(NEVER if lifetime == NEVER else min(sent + lifetime, NEVER - 1), until)
    return PREFIX.pack(VERSION, flags, 0, 0, offset, expires, int(arrival * 1e6))


def value_of_packet(packet: bytes, arrival: float, *, transit: bool = False) -> bytes:
    """The stored value of a sound, parsed UserMessage packet from another machine.

    A SessionHeader must have been removed (MS-MQMQ 2.2.20.4). ``arrival`` is in seconds since 1970. ``transit``: the
    message has not reached its queue yet, and must do so within its time.
    """
    return stored_prefix(record_facts(packet, transit=transit), sent_time_of(packet), arrival) + packet


def is_any_private(entries: Iterable[tuple[int, bytes]]) -> bool:
    """Whether any of these stored messages has a privacy level: it is encrypted, or to be encrypted. Usually none."""
    return any(value[read_properties_place(value)[0] + PRIVACY_LEVEL_AT] for _, value in entries)


def without_claims(value: bytes) -> bytes:
    """A stored value whose SecurityHeader, if any, does not claim that the message was authenticated: its destination
    queue manager must determine that.
    """
    if not user_flags(value) & HAS_SECURITY:
        return value
    try:
        message = UserMessage.parse(value[PREFIX_SIZE:])
    except PacketError:  # from an old or damaged store
        return value
    security = message.security_header
    if security is None or not security.flags & _CLAIMS:
        return value
    return (
        value[:PREFIX_SIZE] + message.replace(security_header=security.replace(flags=security.flags & ~_CLAIMS)).write()
    )


_FLAGS_AT: Final = PREFIX_SIZE + FLAGS_AT
_MORE_NAMES: Final = 7 << ADMINISTRATION_SHIFT | 7 << RESPONSE_SHIFT | HAS_CONNECTOR


def user_flags(value: bytes) -> int:
    """UserHeader.Flags of a stored message."""
    return user_flags_of(value, PREFIX_SIZE)


def transaction_offset(value: bytes) -> int:
    """The offset of the TransactionHeader in a value: after the queue names."""
    return places_of(value, PREFIX_SIZE).transaction_header


class TransactionOffsets:
    """``transaction_offset`` for a series of values: messages from one sender to one queue usually share it."""

    __slots__ = ("_last", "_offset")

    def __init__(self) -> None:
        self._last = b""
        self._offset = 0

    def of(self, value: bytes) -> int:
        """The offset of the TransactionHeader in this value."""
        decides = value[_FLAGS_AT:_NAME_BEGUN]
        if decides != self._last:
            self._offset = transaction_offset(value)
            # With more than one name it depends on more.
            self._last = b"" if user_flags(value) & _MORE_NAMES else decides
        return self._offset


_NAME_BEGUN: Final = HEAD.size + NULL_SIZE


_NOT_KEPT: Final = TO_MASK | UserFlags.RC.mask | UserFlags.AH.mask
"""The destination and the record of past hops, which a message loses when it is sent anew."""
_REPORTS: Final = PropertyFlags.PA.mask | PropertyFlags.PR.mask | PropertyFlags.NA.mask | PropertyFlags.NR.mask
_ABSOLUTE: Final = frozenset((0, 1, 5, 7))
_NAMES_ALIKE: Final = tuple(kinds & 7 in _ABSOLUTE and kinds >> 3 in _ABSOLUTE for kinds in range(64))
"""Whether, by Flags.AQ and Flags.RQ, the names of the administration and response queues are equal in all packets.
Private queues are named relative to the message's source and destination (2.2.19.2).
"""


_OTHER_QUEUES: Final = UserFlags.AQ.mask | UserFlags.RQ.mask


def names_queues(packet: Packet) -> bool:
    """Whether a packet names an administration queue or a response queue."""
    return bool(user_flags_of(packet) & _OTHER_QUEUES)


def other_queues_of(packet: Packet, places: Places) -> tuple[str, str]:
    """The format names of the administration queue and the response queue of a packet, empty for none."""
    flags = user_flags_of(packet)
    names = Names(bytes(PREFIX_SIZE) + bytes(packet[: places.properties]), ZERO_GUID, ZERO_GUID)
    names.offset = PREFIX_SIZE + places.admin_queue
    administration = names.take(flags >> ADMINISTRATION_SHIFT & 7)
    return administration, names.take(flags >> RESPONSE_SHIFT & 7, administration)


_NOT_ADDRESSABLE: Final = RARE_FLAGS | HAS_TRANSACTION | UserFlags.DM.mask & ~RECOVERABLE_FLAG


def is_addressable(packet: Packet, places: Places) -> bool:
    """Whether a parsed packet can get another destination in place: not one with headers that few have, and not one
    that a receiver would refuse.
    """
    flags = user_flags_of(packet)
    return (
        not flags & _NOT_ADDRESSABLE
        and not base_flags_of(packet) & UNUSUAL_BASE
        and _NAMES_ALIKE[flags >> ADMINISTRATION_SHIFT & 63]
        and label_length(packet, places.properties) <= MAX_LABEL
        and is_permitted(message_class_of(packet, places.properties))
        and privacy_level_of(packet, places.properties) in PRIVACY_LEVELS
    )


class Addressing:
    """The bytes that packets of one shape share once they are addressed to one destination."""

    __slots__ = ("_begin", "_behind_size", "_flags", "_lifetime", "_names", "_prefix", "_rest_at", "_security", "_size")

    def __init__(
        self,
        packet: Packet,
        places: Places,
        destination: "Destination",
        transactional: bool,
        names: tuple[int, bytes] | None = None,
    ) -> None:
        """``names``: other names of the administration and response queues, with their flags."""
        packet = bytes(packet[: places.properties + PROPERTIES_SIZE])
        flags = user_flags_of(packet) & ~_NOT_KEPT | destination.flags
        tail = packet[places.admin_queue : places.properties]
        if names is not None:
            flags, tail = (
                flags & ~_OTHER_QUEUES | names[0],
                names[1] + packet[places.connector_type : places.properties],
            )
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
        self._names = destination.name + tail
        self._security = destination.security
        self._rest_at = places.properties
        before = len(self._names) + len(self._security) + (TRANSACTION_HEADER_SIZE if transactional else 0)
        properties_at = PREFIX_SIZE + NAMES_AT + before
        self._size = NAMES_AT + before - self._rest_at
        """Bytes that a packet grows by."""
        self._prefix = PREFIX.pack(VERSION, record_flags, 0, 0, properties_at, 0, 0)[: EXPIRY.start]

    def address(
        self,
        packets: Iterable[Packet],
        identifiers: Iterable[int],
        sent: int,
        arrival: int,
        transaction: bytes = b"",
    ) -> list[bytes] | None:
        """The stored values of messages; None if one would be too large. ``sent`` is in seconds, ``arrival`` in
        microseconds since 1970; ``transaction`` is their TransactionHeader. A large packet may become part of its value
        (``with_other_head``).
        """
        grown, lifetime, prefix, begin, behind_size, flags, rest_at = (
            self._size, self._lifetime, self._prefix, self._begin, self._behind_size, self._flags, self._rest_at
        )  # fmt: skip
        expires = NEVER if lifetime == NEVER else min(sent + lifetime, NEVER - 1)
        names = b"".join((self._names, transaction, self._security))
        join = b"".join
        values: list[bytes] = []
        for packet, identifier in zip(packets, identifiers, strict=True):
            size = grown + len(packet)
            if size > MAXIMUM_PACKET_SIZE:
                return None
            head = _pack_head(prefix, expires, arrival, begin, size, behind_size, sent, identifier, flags)
            if size < LARGE:
                values.append(join((head, names, packet[rest_at:])))
            else:
                values.append(with_other_head(head + names, packet, rest_at))
        return values


_pack_head: Final = ADDRESSED_HEAD.pack
