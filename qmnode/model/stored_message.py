"""A message as it is stored: a prefix of twenty bytes, the UserMessage packet as transmitted, and local requests; and
from it to its message (MS-MQDMPR 3.1.7.1.31, MS-MQMQ 2.2.20).

The node never changes the packet in place, so signed bytes stay as they were; the prefix holds the node's own facts
about a message. The part behind the packet holds requests of the application that are not transmitted. Every received
message passes through here, so a packet is parsed only as far as its properties are read.
"""

import struct
from codecs import utf_16_le_decode
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import IntFlag
from functools import lru_cache
from typing import Any, Final, NamedTuple

from qmnode.errors import MessageQueuingError
from qmnode.model.message import Message
from qmnode.objects.message_table import FOUR_DAYS
from qmnode.structures import packet_view
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.errors import PacketError
from qmnode.structures.guid import ZERO_GUID, Guid, guid_from_text, guid_to_text
from qmnode.structures.packet_view import (
    EXTENSION_SIZE_AT,
    FLAGS_AT,
    HEAD_CODES,
    HEADERS_CODES,
    NULL_SIZE,
    PRIVACY_LEVEL_AT,
    PROPERTIES_SIZE,
    SECURITY_SIZE,
    TRANSACTION_HEADER_SIZE,
    Packet,
    Shape,
    Shapes,
    packet_size_of,
    places_of,
    read_content_sizes,
    read_properties,
    read_security,
    read_transaction_header,
    sent_time_of,
    times_to_live,
    user_flags_of,
    with_message_class,
    with_transaction_flag,
)
from qmnode.structures.user_message import (
    MAX_PACKET_SIZE,
    BaseFlags,
    ProviderInfo,
    SecurityFlags,
    SecurityHeader,
    TransactionFlags,
    UserFlags,
    UserMessage,
    format_names,
)

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
    """ApplicationDeadletterQueue is behind the packet (:func:`with_dead_letter_queue`)."""
    NOTICE = 0x80
    """Created by the queue manager about another message, and counted in the budget of notices."""


EXPRESS: Final = RecordFlag.EXPRESS.value
REPORT: Final = RecordFlag.REPORT.value
TRANSACTIONAL: Final = RecordFlag.TRANSACTIONAL.value
PEEK_WHEN_LOCKED: Final = RecordFlag.PEEK_WHEN_LOCKED.value
NEGATIVE_JOURNAL: Final = RecordFlag.NEGATIVE_JOURNAL.value
POSITIVE_JOURNAL: Final = RecordFlag.POSITIVE_JOURNAL.value
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


@lru_cache(64)
def extension_reader(place: int) -> Callable[..., tuple[Any, ...]]:
    """A reader of the properties' place, the MessageID, and the ExtensionSize if that place is ``place``."""
    between = place + EXTENSION_SIZE_AT - IDENTIFIER.stop
    return struct.Struct(f"<4xI{IDENTIFIER.start - 8}x4s{between}xI").unpack_from


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


MAXIMUM_PACKET_SIZE: Final = MAX_PACKET_SIZE
"""The limit of BaseHeader.PacketSize, MS-MQMQ 2.2.19.1."""
RECOVERABLE_FLAG: Final = UserFlags.of(DM=1)
NEGATIVE_JOURNAL_FLAG: Final = UserFlags.JN.mask
POSITIVE_JOURNAL_FLAG: Final = UserFlags.JP.mask
DESTINATION_SHIFT: Final = UserFlags.DQ.shift
ADMINISTRATION_SHIFT: Final = UserFlags.AQ.shift
RESPONSE_SHIFT: Final = UserFlags.RQ.shift
HAS_SECURITY: Final = UserFlags.SH.mask
HAS_TRANSACTION: Final = UserFlags.TH.mask
HAS_CONNECTOR: Final = UserFlags.CQ.mask
FIRST_FLAG: Final = TransactionFlags.FM.mask
LAST_FLAG: Final = TransactionFlags.LM.mask
RARE_FLAGS: Final = UserFlags.SH.mask | UserFlags.MQ.mask | UserFlags.HH.mask
_FINAL_ACK_FLAG: Final = TransactionFlags.FA.mask
_TRACED: Final = BaseFlags.DH.mask


class Names:
    """Reads the queue names of a UserHeader, one after the other."""

    __slots__ = ("address", "offset", "source", "value")

    def __init__(self, value: bytes, source: bytes, address: bytes) -> None:
        self.value = value
        self.source = source
        self.address = address
        self.offset = HEAD.size

    def bytes(self, count: int) -> bytes:
        start = self.offset
        self.offset += count
        return self.value[start : self.offset]

    def take(self, kind: int, administration: str = "") -> str:
        match kind:
            case 0:
                return ""
            case 1:
                return administration
            case 5:
                return f"PUBLIC={guid_to_text(self.bytes(16))}"
            case 7:
                size = int.from_bytes(self.bytes(2), "little")
                text = self.bytes(size)[:-2].decode("utf-16-le", "replace")
                self.offset += -(size + 2) & 3
                return f"DIRECT={text}"
            case 6:
                computer = self.bytes(16)
            case 4:
                # On the computer of the administration queue.
                computer = (
                    guid_from_text(administration[8:44]) if administration.startswith("PRIVATE=") else self.source
                )
            case _:
                computer = self.source if kind == 2 else self.address
        return f"PRIVATE={guid_to_text(computer)}\\{int.from_bytes(self.bytes(4), 'little'):08x}"


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


class TransferredMessage(NamedTuple):
    """A message as another queue manager has it, before it is in a queue here."""

    lookup_identifier: int
    """In its queue there."""
    arrival: int
    """Second of its arrival there, since 1970 (UTC)."""
    aborts: int
    """The count of aborted receives there."""
    moves: int
    packet: bytes
    """Its UserMessage packet, which may be broken."""

    def value(self) -> bytes:
        """The message as it is stored here: prefix and packet."""
        _, arrival, aborts, moves, packet = self
        value = value_of_any_packet(packet, arrival)
        return with_prefix(value, aborts=aborts, moves=moves) if aborts or moves else value


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
    rare = flags & RARE_FLAGS or base_flags & _TRACED
    names = Names(value, source, address)
    attributes["destination_queue_format_name"] = names.take(flags >> DESTINATION_SHIFT & 7)
    attributes["administration_queue_format_name"] = administration = names.take(flags >> ADMINISTRATION_SHIFT & 7)
    attributes["response_queue_format_name"] = names.take(flags >> RESPONSE_SHIFT & 7, administration)
    if flags & HAS_CONNECTOR:
        attributes["connector_type_identifier"] = Guid(names.bytes(16))
    if flags & HAS_TRANSACTION:
        _load_transaction(attributes, names.bytes(TRANSACTION_HEADER_SIZE))
    if rare and (rare != HAS_SECURITY or base_flags & _TRACED or not _load_named_sender(attributes, value, names)):
        problems = _load_rare_headers(attributes, packet_of(value))
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
        final_ack_required=bool(flags & _FINAL_ACK_FLAG),
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
        record_flags |= TRANSACTIONAL | (REPORT if packet[places.transaction_header] & _FINAL_ACK_FLAG else 0)
    if packet[places.properties] & 0x0F:
        record_flags |= REPORT
    if flags & NEGATIVE_JOURNAL_FLAG:
        record_flags |= NEGATIVE_JOURNAL
    if flags & POSITIVE_JOURNAL_FLAG:
        record_flags |= POSITIVE_JOURNAL
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


def _sender(security: SecurityHeader) -> dict[str, Any]:
    """The sender of a message, as proven on its arrival; else its claimed sender."""
    flags, identifier = security.flags, bytes(security.security_id)
    kind = SecurityFlags.ST.get(flags)
    if SecurityFlags.AU.get(flags) and kind:
        return {
            "authentication_level": SecurityFlags.AS.get(flags),
            "sender_identifier_type": kind,
            "sender_identifier": identifier,
        }
    return {"claimed_sender": identifier}


def _load_rare_headers(attributes: dict[str, Any], packet_bytes: bytes) -> list[str]:
    """Set the properties that come from the rare headers. Return what cannot be read, and why."""
    try:
        packet = UserMessage.parse(packet_bytes)
    except (PacketError, ValueError) as error:
        return [str(error)]
    problems: list[str] = []
    if (security := packet.security_header) is not None:
        attributes.update(_sender(security))
        attributes.update(
            symmetric_key=bytes(security.encryption_key),
            signature=bytes(security.signature),
            sender_certificate=bytes(security.sender_cert),
        )
        several = packet.multi_queue_format_header
        if several is not None and not security.signature:
            attributes["signature"] = bytes(several.signature.signature)
        if security.provider_info:
            try:
                provider = ProviderInfo.parse(bytes(security.provider_info))
            except (PacketError, ValueError) as error:
                problems.append(f"SecurityHeader.ProviderInfo: {error}")
            else:
                attributes["authentication_provider_type"] = provider.provider_type
                attributes["authentication_provider_name"] = provider.provider_name
    if (several := packet.multi_queue_format_header) is not None:
        # A peer may have written an invalid name: that must not make the message unreadable.
        with suppress(ValueError):
            attributes["destination_multi_queue_format_name"] = format_names(several.destination)
        # A single administration or response queue is in the UserHeader too.
        for name, addresses in (("administration", several.administration), ("response", several.response)):
            if len(addresses.format_name_list) > 1:
                with suppress(ValueError):
                    attributes[f"{name}_multi_queue_format_name"] = format_names(addresses)
    if (soap := packet.soap_header) is not None:
        attributes["soap_header"] = soap.header
        attributes["soap_body"] = soap.body
    if (debug := packet.debug_header) is not None:
        attributes["tracing_requested"] = bool(BaseFlags.TR.get(packet.base_header.flags))
        attributes["tracing_queue_identifier"] = debug.queue_identifier or ZERO_GUID
    return problems
