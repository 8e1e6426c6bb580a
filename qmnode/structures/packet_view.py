"""One view of a UserMessage packet (MS-MQMQ 2.2.20): the place of each field, for names, label and body of any size.

``places_of`` walks the tables below, which come from the declarations. ``Shape`` recognises packets that differ from a
parsed one only in what cannot make them invalid, so that most messages need no other parsing.
"""

from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from qmnode.structures.base_header import MAX_PACKET_SIZE, BaseFlags, BaseHeader
from qmnode.structures.fields import Choice, Nested, Scalar
from qmnode.structures.layout import Buffer
from qmnode.structures.message_headers import MessageHeaders
from qmnode.structures.message_properties_header import MAX_LABEL, MessagePropertiesHeader
from qmnode.structures.places import codes_of, codes_of_some, offset_of, size_of
from qmnode.structures.plan import structure_of
from qmnode.structures.security_header import SecurityHeader
from qmnode.structures.transaction_header import TransactionFlags, TransactionHeader
from qmnode.structures.user_header import UserFlags, UserHeader

_LONG: Final = 4
GUID_SIZE: Final = 16
SIZE_AT: Final = offset_of(BaseHeader, "packet_size")
SIZE_END: Final = SIZE_AT + _LONG
_USER_AT: Final = size_of(BaseHeader)
SENT_TIME_AT: Final = _USER_AT + offset_of(UserHeader, "sent_time")
MESSAGE_ID_AT: Final = _USER_AT + offset_of(UserHeader, "message_id")
FLAGS_AT: Final = _USER_AT + offset_of(UserHeader, "flags")
NAMES_AT: Final = _USER_AT + offset_of(UserHeader, "destination_queue")
IDENTIFIER: Final = slice(MESSAGE_ID_AT, MESSAGE_ID_AT + _LONG)
PRIORITY_AT: Final = offset_of(BaseHeader, "flags")
"""The priority is in the low three bits of this byte."""
SOURCE: Final = slice(_USER_AT + offset_of(UserHeader, "source_queue_manager"), _USER_AT + GUID_SIZE)
ADDRESS: Final = slice(SOURCE.stop, SOURCE.stop + GUID_SIZE)
"""SourceQueueManager and QueueManagerAddress. All of these have the same place in every packet."""

UNUSUAL_BASE: Final = BaseFlags.IN.mask | BaseFlags.SH.mask | BaseFlags.DH.mask | BaseFlags.TR.mask
"""BaseHeader.Flags of packets that no application's message becomes unchanged."""

HEAD_CODES: Final = f"{SIZE_AT}sI{SENT_TIME_AT - SIZE_END}sIII"
"""BaseHeader and UserHeader up to the names: PacketSize, SentTime, MessageID and Flags, and the bytes before and
between them, which the messages of one application share.
"""

_COUNT: Final = Struct("<H")
_FLAGS: Final = Struct("<I")
_SECURITY: Final = Struct("<" + codes_of(SecurityHeader))
_TRANSACTION_SIZE: Final = offset_of(TransactionHeader, "previous_tx_sequence_number") + _LONG
_HAS_TRANSACTION: Final = UserFlags.TH.mask
_HAS_SECURITY: Final = UserFlags.SH.mask
_HAS_CONNECTOR: Final = UserFlags.CQ.mask
_HAS_CONNECTOR_QM: Final = TransactionFlags.CG.mask
_LABEL_LENGTH_AT: Final = offset_of(MessagePropertiesHeader, "label_length")
PRIVACY_LEVEL_AT: Final = offset_of(MessagePropertiesHeader, "privacy_level")
LABEL_AT: Final = offset_of(MessagePropertiesHeader, "label")
"""The label in a MessagePropertiesHeader."""


class _Name(NamedTuple):
    """A queue name in the UserHeader."""

    shift: int
    """Of its type in UserHeader.Flags."""
    sizes: tuple[int | None, ...]
    """Its bytes by type; None if it states them itself."""


def _name(attribute: str) -> _Name:
    field = UserHeader.PLAN.field(attribute)
    assert isinstance(field, Choice)
    sizes: list[int | None] = [0] * 8
    for kind, case in field.cases.items():
        if isinstance(case, Nested):
            structure = structure_of(case.structure, UserHeader)
            is_fixed = all(isinstance(item, Scalar) for item in structure.fields())
            sizes[kind] = size_of(structure) if is_fixed else None
    bits: str = field.on.rpartition(".")[2]
    return _Name(UserFlags.FIELDS[bits].shift, tuple(sizes))


_DESTINATION: Final = _name("destination_queue")
_ADMIN: Final = _name("admin_queue")
_RESPONSE: Final = _name("response_queue")
_MORE_NAMES: Final = UserFlags.AQ.mask | UserFlags.RQ.mask


class Places(NamedTuple):
    """Offsets in a buffer: where the variable parts of a packet begin. A part that is absent begins where the next
    does.
    """

    admin_queue: int
    response_queue: int
    connector_type: int
    transaction_header: int
    security_header: int
    properties: int
    """Where the MessagePropertiesHeader begins, which every message has."""


def places_of(buffer: Buffer, start: int = 0) -> Places:
    """The places in the packet at ``start``, which was parsed before. Raises struct.error or IndexError for others."""
    flags = user_flags_of(buffer, start)
    admin_queue = _after(_DESTINATION, flags, buffer, start + NAMES_AT)
    response_queue = connector_type = admin_queue
    if flags & _MORE_NAMES:
        response_queue = _after(_ADMIN, flags, buffer, admin_queue)
        connector_type = _after(_RESPONSE, flags, buffer, response_queue)
    place = connector_type
    if flags & _HAS_CONNECTOR:
        place += GUID_SIZE
    transaction_header = place
    if flags & _HAS_TRANSACTION:
        place += _TRANSACTION_SIZE + (GUID_SIZE if buffer[place] & _HAS_CONNECTOR_QM else 0)
    security_header = place
    if flags & _HAS_SECURITY:
        place = security_parts(buffer, place)[-1]
    return Places(admin_queue, response_queue, connector_type, transaction_header, security_header, place)


def _after(name: _Name, flags: int, buffer: Buffer, place: int) -> int:
    """The offset after a queue name."""
    size = name.sizes[flags >> name.shift & 7]
    if size is None:  # a direct name: a count of two bytes, the name, and padding to four
        size = _COUNT.unpack_from(buffer, place)[0] + _COUNT.size + 3 & ~3
    return place + size


def security_parts(buffer: Buffer, place: int) -> tuple[int, int, int, int, int]:
    """The ends, with their padding, of the five parts of the SecurityHeader at ``place``: SecurityID, EncryptionKey,
    Signature, SenderCert and ProviderInfo.
    """
    _, sender, key, signature, certificate, provider = _SECURITY.unpack_from(buffer, place)
    sender_end = place + _SECURITY.size + (sender + 3 & ~3)
    key_end = sender_end + (key + 3 & ~3)
    signature_end = key_end + (signature + 3 & ~3)
    certificate_end = signature_end + (certificate + 3 & ~3)
    return sender_end, key_end, signature_end, certificate_end, certificate_end + (provider + 3 & ~3)


def label_length(buffer: Buffer, properties: int) -> int:
    """The characters of the label, its null included, in the MessagePropertiesHeader at ``properties``."""
    return buffer[properties + _LABEL_LENGTH_AT]


_read_class: Final = Struct("<" + codes_of_some(MessagePropertiesHeader, "message_class")).unpack_from
_read_privacy: Final = Struct("<" + codes_of_some(MessagePropertiesHeader, "privacy_level")).unpack_from
_BASE_FLAGS_AT: Final = offset_of(BaseHeader, "flags")
_REACH_AT: Final = offset_of(BaseHeader, "time_to_reach_queue")
_LIFETIME_AT: Final = _USER_AT + offset_of(UserHeader, "time_to_be_received")
_read_times: Final = Struct(
    f"<{offset_of(BaseHeader, 'time_to_reach_queue')}xI{_USER_AT - SIZE_END - _LONG}x{2 * GUID_SIZE}xI"
).unpack_from


def message_class_of(buffer: Buffer, properties: int) -> int:
    """MessageClass in the MessagePropertiesHeader at ``properties``."""
    message_class: int = _read_class(buffer, properties)[0]
    return message_class


def privacy_level_of(buffer: Buffer, properties: int) -> int:
    """PrivacyLevel in the MessagePropertiesHeader at ``properties``."""
    level: int = _read_privacy(buffer, properties)[0]
    return level


def base_flags_of(packet: Buffer) -> int:
    """Read BaseHeader.Flags without parsing the packet."""
    flags: int = _COUNT.unpack_from(packet, _BASE_FLAGS_AT)[0]
    return flags


def with_base_flags(packet: bytes, flags: int) -> bytes:
    """The packet, or its first bytes, with other BaseHeader.Flags."""
    return packet[:_BASE_FLAGS_AT] + _COUNT.pack(flags) + packet[_BASE_FLAGS_AT + _COUNT.size :]


def user_flags_of(buffer: Buffer, start: int = 0) -> int:
    """Read UserHeader.Flags of the packet at ``start`` without parsing it."""
    flags: int = _FLAGS.unpack_from(buffer, start + FLAGS_AT)[0]
    return flags


def sent_time_of(packet: Buffer) -> int:
    """SentTime in seconds since 1970."""
    sent: int = _FLAGS.unpack_from(packet, SENT_TIME_AT)[0]
    return sent


def times_to_live(packet: Buffer) -> tuple[int, int]:
    """TimeToReachQueue and TimeToBeReceived, in seconds."""
    reach, lifetime = _read_times(packet)
    return reach, lifetime


read_content_sizes: Final = Struct(
    "<" + codes_of_some(MessagePropertiesHeader, "label_length", "message_size", "extension_size")
).unpack_from
"""LabelLength, MessageSize and ExtensionSize of a MessagePropertiesHeader."""

_DECISIVE: Final = ("flags", "label_length", "message_class", "message_size", "privacy_level", "extension_size")
_KINDS_KEPT: Final = 256


@lru_cache(maxsize=_KINDS_KEPT)
def _decisive_fields(names: int, skipped: int, sender: int) -> Struct:
    """The fields that decide whether a packet is like another, with so many bytes of flags and names, of a
    TransactionHeader that is skipped, and of a SecurityHeader.
    """
    return Struct(
        f"<{SIZE_AT}sI{SENT_TIME_AT - SIZE_END}s{FLAGS_AT - SENT_TIME_AT}x{names}s{skipped}x{sender}s"
        + codes_of_some(MessagePropertiesHeader, *_DECISIVE)
    )


class Shape:
    """The form of a parsed packet without the headers that few messages have (several queues, SOAP, tracing, session).

    A packet that fits has the same flags, queues, times to live, sender, acknowledgments and privacy, and label,
    extension and body fill it, whatever their sizes. So the parser accepts it too. MessageID, SentTime, correlation,
    types and numbers of the application may have any value. A TransactionHeader is skipped: its reader checks it.
    """

    __slots__ = ("_fixed", "_label_at", "_unpack", "places")

    def __init__(self, packet: bytes, places: Places) -> None:
        self.places = places
        self._unpack = _decisive_fields(
            places.transaction_header - FLAGS_AT,
            places.security_header - places.transaction_header,
            places.properties - places.security_header,
        ).unpack_from
        self._label_at = places.properties + LABEL_AT
        begin, _, behind_size, names, sender, flags, _, message_class, _, privacy, _ = self._unpack(packet)
        self._fixed = begin, behind_size, names, sender, flags, message_class, privacy

    def fits(self, packet: bytes) -> bool:
        """Whether a packet has this shape."""
        size, place = len(packet), self._label_at
        if size < place:
            return False
        begin, stated, behind_size, names, sender, flags, label, message_class, body, privacy, extension = self._unpack(
            packet
        )
        place += 2 * label
        return (
            size == stated
            and size == place + extension + body + 3 & ~3
            and (begin, behind_size, names, sender, flags, message_class, privacy) == self._fixed
            and (not label or (label <= MAX_LABEL and not packet[place - 1] | packet[place - 2]))
            and size <= MAX_PACKET_SIZE
        )


_UNUSUAL_USER: Final = UserFlags.TH.mask | UserFlags.SH.mask | UserFlags.MQ.mask | UserFlags.HH.mask
_SHAPES_KEPT: Final = 8


class Shapes:
    """The shapes of the last packets of applications: messages without a place in a sequence or a SecurityHeader."""

    __slots__ = ("_recent",)

    def __init__(self) -> None:
        self._recent: list[Shape] = []
        """The last one used is the first."""

    def validate(self, packet: bytes) -> Shape | None:
        """The shape of a packet, or None if it has one of the headers that few have. Raises PacketError for a packet
        that ``UserMessage.parse`` refuses.
        """
        recent = self._recent
        for place, shape in enumerate(recent):
            if shape.fits(packet):
                if place:
                    recent.insert(0, recent.pop(place))
                return shape
        headers = MessageHeaders.parse(packet)
        if headers.base_flags & UNUSUAL_BASE or headers.user_flags & _UNUSUAL_USER:
            return None
        shape = Shape(packet, places_of(packet))
        if not shape.fits(packet):  # such as a label longer than allowed
            return None
        recent.insert(0, shape)
        del recent[_SHAPES_KEPT:]
        return shape
