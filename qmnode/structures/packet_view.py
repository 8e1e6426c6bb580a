"""One view of a UserMessage packet (MS-MQMQ 2.2.20): where each field is, without parsing the packet.

Taking a packet apart into structures and putting it together again takes several times as long as what is done with it.
All places come from the declarations of the structures. ``places_of`` walks the tables below. ``Shape`` recognises
packets that differ from a parsed one only in what cannot make them invalid, so that most messages need no other
parsing. ``Sections`` cuts a packet at the borders of its headers, for signing and encrypting.
"""

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from qmnode.structures.enumerations import AuthenticationLevel
from qmnode.structures.fields import Choice, Nested, Scalar
from qmnode.structures.guid import Guid
from qmnode.structures.layout import Buffer, codes_of, codes_of_some, names_of, offset_of, size_of
from qmnode.structures.packets import SESSION_HEADER_SIZE, SessionAck
from qmnode.structures.signature_properties import FLAGS_COVERED, signed_bytes
from qmnode.structures.user_message import (
    MAX_LABEL,
    MAX_PACKET_SIZE,
    BaseFlags,
    BaseHeader,
    MessagePropertiesHeader,
    MultiQueueFormatHeader,
    SecurityHeader,
    SessionHeader,
    TransactionFlags,
    TransactionHeader,
    UserFlags,
    UserHeader,
    UserMessage,
)

_UINT16: Final = Struct("<H")
_UINT32: Final = Struct("<I")
Packet = bytes | bytearray | memoryview
"""The bytes of a packet; they are not changed."""
LARGE: Final = 64 * 1024
"""The size from which on a packet is not copied where a view of it does."""

NULL_SIZE: Final = 2
"""Bytes of the null character that ends a text."""
LABEL_LENGTH_AT: Final = offset_of(MessagePropertiesHeader, "label_length")
EXTENSION_SIZE_AT: Final = offset_of(MessagePropertiesHeader, "extension_size")
PRIVACY_LEVEL_AT: Final = offset_of(MessagePropertiesHeader, "privacy_level")
GUID_SIZE: Final = 16
SIZE_AT: Final = offset_of(BaseHeader, "packet_size")
SIZE_END: Final = SIZE_AT + _UINT32.size
_USER_AT: Final = size_of(BaseHeader)
SENT_TIME_AT: Final = _USER_AT + offset_of(UserHeader, "sent_time")
MESSAGE_ID_AT: Final = _USER_AT + offset_of(UserHeader, "message_id")
FLAGS_AT: Final = _USER_AT + offset_of(UserHeader, "flags")
NAMES_AT: Final = _USER_AT + offset_of(UserHeader, "destination_queue")
IDENTIFIER: Final = slice(MESSAGE_ID_AT, MESSAGE_ID_AT + _UINT32.size)
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

HEADERS_CODES: Final = codes_of(BaseHeader) + codes_of(UserHeader)
"""BaseHeader and UserHeader up to the names, field by field."""
HEADERS_FIELDS: Final = (*(f"base_{name}" for name in names_of(BaseHeader)), *names_of(UserHeader))
"""The names of these fields."""
PROPERTIES_CODES: Final = codes_of(MessagePropertiesHeader)
PROPERTIES_FIELDS: Final = names_of(MessagePropertiesHeader)
"""The same of the MessagePropertiesHeader up to the label."""

_SECURITY: Final = Struct("<" + codes_of(SecurityHeader))
_PROPERTIES: Final = Struct("<" + PROPERTIES_CODES)
_TRANSACTION: Final = Struct("<" + codes_of(TransactionHeader))
SECURITY_SIZE: Final = _SECURITY.size
"""Bytes of a SecurityHeader before its first part."""
read_security: Final = _SECURITY.unpack_from
"""Flags of the SecurityHeader at an offset, and the sizes of its parts."""
pack_security: Final = _SECURITY.pack
PROPERTIES_SIZE: Final = _PROPERTIES.size
"""Bytes of a MessagePropertiesHeader before its label."""
read_properties: Final = _PROPERTIES.unpack_from
"""The numbers of the MessagePropertiesHeader at an offset."""
pack_properties: Final = _PROPERTIES.pack
BODY_SIZES: Final = slice(offset_of(MessagePropertiesHeader, "message_size"), PRIVACY_LEVEL_AT)
"""MessageSize and AllocationBodySize in a MessagePropertiesHeader."""
pack_transaction_header: Final = _TRANSACTION.pack
pack_identifier: Final = _UINT32.pack
"""MessageID as it is at ``IDENTIFIER``."""
pack_sent_into: Final = Struct("<II").pack_into
"""SentTime and MessageID, which are neighbours, at ``SENT_TIME_AT``."""
TRACED_AT: Final = offset_of(BaseHeader, "flags") + 1
TRACED: Final = BaseFlags.TR.mask >> 8
"""The mask for the byte at ``TRACED_AT`` that shows whether a message is traced."""
TRANSACTION_HEADER_SIZE: Final = offset_of(TransactionHeader, "previous_tx_sequence_number") + _UINT32.size
_HAS_TRANSACTION: Final = UserFlags.TH.mask
_HAS_SECURITY: Final = UserFlags.SH.mask
_HAS_CONNECTOR: Final = UserFlags.CQ.mask
_HAS_CONNECTOR_QM: Final = TransactionFlags.CG.mask
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
            structure = case.structure
            is_fixed = all(isinstance(item, Scalar) for item in structure.PLAN.fields)
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
        place += TRANSACTION_HEADER_SIZE + (GUID_SIZE if buffer[place] & _HAS_CONNECTOR_QM else 0)
    security_header = place
    if flags & _HAS_SECURITY:
        place = security_parts(buffer, place)[-1]
    return Places(admin_queue, response_queue, connector_type, transaction_header, security_header, place)


def _after(name: _Name, flags: int, buffer: Buffer, place: int) -> int:
    """The offset after a queue name."""
    size = name.sizes[flags >> name.shift & 7]
    if size is None:  # a direct name: a count of two bytes, the name, and padding to four
        size = _UINT16.unpack_from(buffer, place)[0] + _UINT16.size + 3 & ~3
    return place + size


def direct_name_in(queue: bytes) -> bytes:
    """A direct format name, in UTF-16 with its null, from its bytes in a UserHeader. Any padding is left out."""
    return queue[_UINT16.size : _UINT16.size + _UINT16.unpack_from(queue)[0]]


def direct_name(text: str) -> bytes:
    """The bytes of a direct format name in a UserHeader, its padding included."""
    written = text.encode("utf-16-le") + bytes(NULL_SIZE)
    return _UINT16.pack(len(written)) + written + bytes(-(_UINT16.size + len(written)) & 3)


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
    return buffer[properties + LABEL_LENGTH_AT]


read_message_class: Final = Struct("<" + codes_of_some(MessagePropertiesHeader, "message_class")).unpack_from
_read_privacy: Final = Struct("<" + codes_of_some(MessagePropertiesHeader, "privacy_level")).unpack_from
_BASE_FLAGS_AT: Final = offset_of(BaseHeader, "flags")
REACH_AT: Final = offset_of(BaseHeader, "time_to_reach_queue")
_read_times: Final = Struct(
    f"<{offset_of(BaseHeader, 'time_to_reach_queue')}xI{_USER_AT - SIZE_END - _UINT32.size}x{2 * GUID_SIZE}xI"
).unpack_from


def label_of(buffer: Buffer, properties: int) -> str:
    """The label in the MessagePropertiesHeader at ``properties``."""
    begin = properties + LABEL_AT
    text = bytes(buffer[begin : begin + 2 * label_length(buffer, properties)])
    return text[:-NULL_SIZE].decode("utf-16-le", "replace")


def contents_of(buffer: Buffer, properties: int) -> tuple[int, int, int]:
    """The offsets of ExtensionData and MessageBody, and of the end of the body."""
    _, label, _, _, _, _, body, _, _, _, _, extension = read_properties(buffer, properties)
    extension_at = properties + LABEL_AT + 2 * label
    return extension_at, extension_at + extension, extension_at + extension + body


def with_message_class(packet: bytes, properties: int, message_class: int) -> bytes:
    """The packet, or stored value, with another MessageClass in the MessagePropertiesHeader at ``properties``."""
    begin = properties + offset_of(MessagePropertiesHeader, "message_class")
    return packet[:begin] + _UINT16.pack(message_class) + packet[begin + _UINT16.size :]


def with_transaction_flag(packet: bytes, header_at: int, mask: int) -> bytes:
    """The packet, or stored value, with a flag set that the first byte of the TransactionHeader at an offset has."""
    return packet[:header_at] + bytes((packet[header_at] | mask,)) + packet[header_at + 1 :]


def with_time_to_reach(packet: bytes, seconds: int) -> bytes:
    """The packet with another TimeToReachQueue."""
    return packet[:REACH_AT] + _UINT32.pack(seconds) + packet[REACH_AT + _UINT32.size :]


def packet_size_of(buffer: Buffer, start: int = 0) -> int:
    """PacketSize of the packet at ``start``."""
    size: int = _UINT32.unpack_from(buffer, start + SIZE_AT)[0]
    return size


def codes_to_body(before: int) -> str:
    """The ``struct`` codes of so many bytes, which end with a MessagePropertiesHeader up to MessageSize, of the two
    sizes of its body, and of its rest.
    """
    return f"{before}sII{PROPERTIES_SIZE - BODY_SIZES.stop}s"


def packs_headers(names: int) -> Callable[..., bytes]:
    """A function that packs the bytes before PacketSize, PacketSize, so many bytes from there to the
    MessagePropertiesHeader, and the numbers of that.
    """
    return Struct(f"<{SIZE_AT}sI{names}s{PROPERTIES_CODES}").pack


def message_class_of(buffer: Buffer, properties: int) -> int:
    """MessageClass in the MessagePropertiesHeader at ``properties``."""
    message_class: int = read_message_class(buffer, properties)[0]
    return message_class


def privacy_level_of(buffer: Buffer, properties: int) -> int:
    """PrivacyLevel in the MessagePropertiesHeader at ``properties``."""
    level: int = _read_privacy(buffer, properties)[0]
    return level


def base_flags_of(packet: Buffer) -> int:
    """Read BaseHeader.Flags without parsing the packet."""
    flags: int = _UINT16.unpack_from(packet, _BASE_FLAGS_AT)[0]
    return flags


def with_base_flags(packet: bytes, flags: int) -> bytes:
    """The packet, or its first bytes, with other BaseHeader.Flags."""
    return packet[:_BASE_FLAGS_AT] + _UINT16.pack(flags) + packet[_BASE_FLAGS_AT + _UINT16.size :]


def user_flags_of(buffer: Buffer, start: int = 0) -> int:
    """Read UserHeader.Flags of the packet at ``start`` without parsing it."""
    flags: int = _UINT32.unpack_from(buffer, start + FLAGS_AT)[0]
    return flags


def sent_time_of(packet: Buffer) -> int:
    """SentTime in seconds since 1970."""
    sent: int = _UINT32.unpack_from(packet, SENT_TIME_AT)[0]
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
    types and numbers of the application may have any value. A TransactionHeader is skipped: its reader checks it. The
    sizes need not be read of a packet that has the headers, sizes and label of an earlier one.

    ``exact``: a packet that fits has the same bytes up to the end of the label, but for the key, signature and
    certificate in a SecurityHeader, and the same size. For messages whose rules look at more than the fields above.
    """

    __slots__ = (
        "_begin", "_fixed", "_label_at", "_label_end", "_names", "_names_end", "_other_size", "_rest",
        "_rest_at", "_sender", "_sender_end", "_size", "_unpack", "exact", "places",
    )  # fmt: skip

    def __init__(self, packet: Buffer, places: Places, *, exact: bool = False) -> None:
        self.places = places
        self.exact = exact
        self._rest_at = self._sender_end = places.security_header
        if exact and places.security_header != places.properties:
            self._sender_end, *_, self._rest_at, _ = security_parts(packet, places.security_header)
        self._sender = bytes(packet[places.security_header : self._sender_end])
        self._unpack = _decisive_fields(
            places.transaction_header - FLAGS_AT,
            places.security_header - places.transaction_header,
            places.properties - places.security_header,
        ).unpack_from
        self._label_at = places.properties + LABEL_AT
        begin, _, behind_size, names, sender, flags, _, message_class, _, privacy, _ = self._unpack(packet)
        self._fixed = begin, behind_size, names, sender, flags, message_class, privacy
        self._size = self._other_size = -1
        """The sizes of the earlier packet, and of the last one with another size."""
        self._names_end, self._label_end = places.transaction_header, 0
        self._begin = self._names = self._rest = b""
        if exact:
            self._compare_with(packet, self._label_at + 2 * label_length(packet, places.properties))

    def _compare_with(self, packet: Buffer, label_end: int) -> None:
        self._size, self._label_end = len(packet), label_end
        self._begin, self._names = bytes(packet[:SENT_TIME_AT]), bytes(packet[FLAGS_AT : self._names_end])
        self._rest = bytes(packet[self._rest_at : label_end])

    def fits(self, packet: Buffer) -> bool:
        """Whether a packet has this shape."""
        size, place = len(packet), self._label_at
        if size == self._size:
            if (
                packet[:SENT_TIME_AT] == self._begin
                and packet[self._rest_at : self._label_end] == self._rest
                and packet[FLAGS_AT : self._names_end] == self._names
            ):
                return not self._sender or packet[self.places.security_header : self._sender_end] == self._sender
        elif size < place:
            return False
        if self.exact:
            return False
        begin, stated, behind_size, names, sender, flags, label, message_class, body, privacy, extension = self._unpack(
            packet
        )
        place += 2 * label
        if (
            size != stated
            or size != place + extension + body + 3 & ~3
            or (begin, behind_size, names, sender, flags, message_class, privacy) != self._fixed
            or (label and (label > MAX_LABEL or packet[place - 1] | packet[place - 2]))
            or size > MAX_PACKET_SIZE
        ):
            return False
        if size == self._other_size != self._size:
            self._compare_with(packet, place)
        self._other_size = size
        return True


_UNUSUAL_USER: Final = UserFlags.TH.mask | UserFlags.SH.mask | UserFlags.MQ.mask | UserFlags.HH.mask
_SHAPES_KEPT: Final = 8


class Shapes:
    """The shapes of the last packets of applications: messages without a place in a sequence or a SecurityHeader."""

    __slots__ = ("_recent",)

    def __init__(self) -> None:
        self._recent: list[Shape] = []
        """The last one used is the first."""

    def validate(self, packet: Buffer) -> Shape | None:
        """The shape of a packet, or None if it has one of the headers that few have. Raises PacketError for a packet
        that ``UserMessage.parse`` refuses.
        """
        recent = self._recent
        for place, shape in enumerate(recent):
            if shape.fits(packet):
                if place:
                    recent.insert(0, recent.pop(place))
                return shape
        UserMessage.parse(packet)
        if base_flags_of(packet) & UNUSUAL_BASE or user_flags_of(packet) & _UNUSUAL_USER:
            return None
        shape = Shape(packet, places_of(packet))
        if not shape.fits(packet):  # such as a label longer than allowed
            return None
        recent.insert(0, shape)
        del recent[_SHAPES_KEPT:]
        return shape


# Fields that the protocol reads and changes

_WORD: Final = 0xFFFF
_BASE_FLAGS_END: Final = offset_of(BaseHeader, "signature")
_SEQUENCE_AT: Final = offset_of(TransactionHeader, "tx_sequence_id")
_SEQUENCE: Final = Struct("<" + codes_of(TransactionHeader)[1:])

read_sending_fields: Final[Callable[[Packet], tuple[int, int, int, int]]] = Struct(
    f"<{REACH_AT}xI{SENT_TIME_AT - REACH_AT - 4}xIII"
).unpack_from
"""TimeToReachQueue, SentTime, MessageID and UserHeader.Flags of a packet, in one step."""
read_own_fields: Final[Callable[[Packet], tuple[int, int]]] = Struct(f"<{SENT_TIME_AT}xII").unpack_from
"""SentTime and MessageID, which differ in all packets of one application."""
read_base_header: Final = Struct("<" + codes_of(BaseHeader)).unpack_from
"""VersionNumber, Reserved, Flags, Signature, PacketSize and TimeToReachQueue at an offset of a buffer."""
read_transaction_header: Final = _TRANSACTION.unpack_from
"""Flags, TxSequenceID, TxSequenceNumber and PreviousTxSequenceNumber of the TransactionHeader at an offset."""
read_sequence_fields: Final[Callable[[Packet, int], tuple[int, int, int]]] = Struct(
    f"<{_SEQUENCE_AT}x{codes_of(TransactionHeader)[1:]}"
).unpack_from
"""The same without the flags."""

_SESSION: Final = BaseFlags.SH.mask

_HEADER_FIELDS: Final = Struct("<" + codes_of(SessionHeader))
_EMPTY_HEADER: Final = SessionHeader(ack_sequence_number=0, user_msg_sequence_number=0)
_ACK_PREFIX: Final = SessionAck(session_header=_EMPTY_HEADER).write()[:-SESSION_HEADER_SIZE]


def session_header(count: int, base: int, flags: int, sent: int, recoverable_sent: int, window: int) -> bytes:
    """A SessionHeader, packed in one step: there is one for every few messages, and building a structure is slow."""
    return _HEADER_FIELDS.pack(count, base, flags, sent & _WORD, recoverable_sent & _WORD, window, 0)


def session_ack(header: bytes) -> bytes:
    """The SessionAck packet with this SessionHeader."""
    return _ACK_PREFIX + header


def without_session_header(packet: bytes) -> bytes:
    """The packet without its SessionHeader."""
    return with_base_flags(packet, base_flags_of(packet) & ~_SESSION)[:-SESSION_HEADER_SIZE]


def with_session_header(packet: Packet, header: bytes) -> list[Packet]:
    """Buffers of the packet with a SessionHeader (3.1.7.11); its body is not copied. PacketSize stays as it is."""
    head = with_base_flags(bytes(packet[:_BASE_FLAGS_END]), base_flags_of(packet) | _SESSION)
    return [head, memoryview(packet)[_BASE_FLAGS_END:], header]


def with_user_flags(packet: bytes, flags: int) -> bytes:
    """The packet with other UserHeader.Flags, such as one more hop (3.1.5.8.2)."""
    return packet[:FLAGS_AT] + _UINT32.pack(flags) + packet[FLAGS_AT + _UINT32.size :]


def with_sequence_fields(packet: Packet, header_at: int, identifier: int, number: int, previous: int) -> bytes:
    """The packet, or stored value, with these fields in the TransactionHeader at an offset (3.1.7.1.3)."""
    place = header_at + _SEQUENCE_AT
    fields = _SEQUENCE.pack(identifier, number, previous)
    return b"".join((packet[:place], fields, packet[place + len(fields) :]))


# Sections that signing and encrypting read and change

_MESSAGE_SIZE_AT: Final = BODY_SIZES.start
_SIZES_AND_PRIVACY: Final = Struct("<III")
"""MessageSize, AllocationBodySize and PrivacyLevel."""
_HASH_AT: Final = offset_of(MessagePropertiesHeader, "hash_algorithm")
_ALGORITHM_AT: Final = offset_of(MessagePropertiesHeader, "encryption_algorithm")
_OPTIONS: Final = Struct("<BBBBHI")
"""Of a signature: Flags.DM, Flags.PR, source journaling, the acknowledgments asked for, MessageClass, BodyType."""
DIRECT: Final = 7
_PADDING: Final = (b"", b"\0\0\0", b"\0\0", b"\0")
_SEVERAL: Final = UserFlags.MQ.mask
_DM, _JP, _JN = UserFlags.DM, UserFlags.JP.shift, UserFlags.JN.shift
_DM_SHIFT, _DM_MASK = _DM.shift, _DM.mask >> _DM.shift
_DQ, _AQ, _RQ = UserFlags.DQ.shift, UserFlags.AQ.shift, UserFlags.RQ.shift
_PR: Final = BaseFlags.PR.mask


class Sections:
    """The sections of a sound packet: one that was made here, or checked when it was received."""

    __slots__ = (
        "_body_at", "_body_end", "_connector", "_end", "_key_at", "_names", "_numbers", "_properties", "_signature_at",
        "address", "encryption_algorithm", "encryption_key", "flags", "has_security",
        "hash_algorithm", "is_several", "packet", "privacy_level", "properties_at", "security_at", "security_flags",
        "security_id", "sender_cert", "sent_time", "signature", "to", "transaction_at",
    )  # fmt: skip

    def __init__(self, packet: bytes) -> None:
        self.packet = packet
        self.sent_time = sent_time_of(packet)
        self.flags = flags = user_flags_of(packet)
        self.address = packet[ADDRESS]
        """The destination queue manager: UserHeader.QueueManagerAddress."""
        self.to = flags >> _DQ & 7
        """UserHeader.Flags.DQ: what kind of name the destination has."""
        places = places_of(packet)
        ends = places.admin_queue, places.response_queue, places.connector_type
        self._names = [
            _unpadded(packet[begin:end], flags >> shift & 7)
            for begin, end, shift in zip((NAMES_AT, *ends), ends, (_DQ, _AQ, _RQ), strict=False)
        ]
        self._connector = packet[ends[-1] : ends[-1] + GUID_SIZE] if flags & _HAS_CONNECTOR else b""
        self.transaction_at = places.transaction_header
        """Where the TransactionHeader is, if there is one."""
        self.security_at = place = places.security_header
        """Where the SecurityHeader is, if there is one."""
        self.has_security = bool(flags & _HAS_SECURITY)
        self.security_flags = 0
        self.security_id = self.encryption_key = self.signature = self.sender_cert = b""
        self._key_at = self._signature_at = place
        if self.has_security:
            self._cut_security(place)
        self.properties_at = place = places.properties
        """Where the MessagePropertiesHeader is."""
        self._numbers = numbers = read_properties(packet, place)
        _, label, _, _, _, _, size, _, privacy_level, hash_algorithm, encryption_algorithm, extension = numbers
        self.privacy_level, self.hash_algorithm = privacy_level, hash_algorithm
        self.encryption_algorithm = encryption_algorithm
        self._body_at = place + PROPERTIES_SIZE + 2 * label + extension
        self._body_end = self._body_at + size
        self._end = self._body_end + (place - self._body_end & 3)
        self.is_several = bool(flags & _SEVERAL)
        """Whether it goes to several destinations, and is signed as such (SIG30)."""

    def _cut_security(self, place: int) -> None:
        packet = self.packet
        self.security_flags, sid, key, signature, certificate, _ = read_security(packet, place)
        self._key_at, self._signature_at, certificate_at, _, _ = security_parts(packet, place)
        place += SECURITY_SIZE
        self.security_id = packet[place : place + sid]
        self.encryption_key = packet[self._key_at : self._key_at + key]
        self.signature = packet[self._signature_at : self._signature_at + signature]
        self.sender_cert = packet[certificate_at : certificate_at + certificate]

    @property
    def source(self) -> Guid:
        """The queue manager that sent it: UserHeader.SourceQueueManager."""
        return Guid(self.packet[SOURCE])

    @property
    def body(self) -> bytes:
        """The bytes of the body: MessagePropertiesHeader.MessageBody."""
        return self.packet[self._body_at : self._body_end]

    @property
    def several(self) -> MultiQueueFormatHeader | None:
        """The MultiQueueFormatHeader: of a message to several destinations, which is rare."""
        return UserMessage.parse(self.packet).multi_queue_format_header if self.is_several else None

    def signed(self, level: AuthenticationLevel, body: bytes) -> bytes:
        """The bytes that a signature of this kind covers, for the packet with this body (MS-MQMQ 2.5)."""
        if self.is_several or level is AuthenticationLevel.SIG30:
            return signed_bytes(UserMessage.parse(self.with_body(self.security_flags, body)), level)
        packet, at, flags = self.packet, self.properties_at, self.flags
        asked, label, message_class, correlation, body_type, tag, _, _, _, _, _, _ = self._numbers
        to, administration, response = self._names
        label_at = at + PROPERTIES_SIZE
        parts = [
            correlation,
            _UINT32.pack(tag),
            body,
            packet[label_at : label_at + 2 * label] if label > 1 else b"",
            response,
            administration,
        ]
        if level is AuthenticationLevel.SIG20:
            options = _OPTIONS.pack(
                flags >> _DM_SHIFT & _DM_MASK,
                packet[2] & _PR,
                (flags >> _JP & 1) << 1 | flags >> _JN & 1,
                asked & FLAGS_COVERED,
                message_class,
                body_type,
            )
            parts += (packet[SOURCE], options, self._connector, to)
        return b"".join(parts)

    # The packet changed

    def with_hash_algorithm(self, algorithm: int) -> bytes:
        """The packet that says that its signature is made with another hash."""
        at = self.properties_at + _HASH_AT
        return self.packet[:at] + _UINT32.pack(algorithm) + self.packet[at + 4 :]

    def with_security(self, header: bytes) -> bytes:
        """The packet with this SecurityHeader."""
        return self._joined(self._head(header), self.packet[self.properties_at :])

    def with_body(self, security_flags: int, body: bytes | None) -> bytes:
        """The packet with these flags in its SecurityHeader, if it has one, and with another body."""
        packet, at = self.packet, self.security_at
        flags = b""
        if self.has_security:
            flags = _UINT16.pack(security_flags)
        if body is None:
            return b"".join((packet[:at], flags, packet[at + len(flags) :]))
        head = (packet[SIZE_END:at], flags, packet[at + len(flags) : self.properties_at])
        sizes = self.properties_at + _MESSAGE_SIZE_AT
        numbers = packet[self.properties_at : sizes] + _UINT32.pack(len(body)) + packet[sizes + 4 : self._body_at]
        return self._joined(*head, *self._with_rest(numbers, body))

    def encrypted(self, flags: int, key: bytes, provider: bytes, body: bytes, privacy: int, algorithm: int) -> bytes:
        """The packet with an encrypted body, the key to it and the provider of that in its SecurityHeader."""
        packet, at = self.packet, self.properties_at
        header = b"".join(
            (
                pack_security(
                    flags,
                    len(self.security_id),
                    len(key),
                    len(self.signature),
                    len(self.sender_cert),
                    len(provider),
                ),
                packet[self.security_at + SECURITY_SIZE : self._key_at],
                key,
                _PADDING[len(key) & 3],
                packet[self._signature_at : self._provider_at],
                provider,
                _PADDING[len(provider) & 3],
            )
        )
        numbers = b"".join(
            (
                packet[at : at + _MESSAGE_SIZE_AT],
                _SIZES_AND_PRIVACY.pack(len(body), len(body), privacy),
                packet[at + _HASH_AT : at + _ALGORITHM_AT],
                _UINT32.pack(algorithm),
                packet[at + _ALGORITHM_AT + 4 : self._body_at],
            )
        )
        return self._joined(self._head(header), *self._with_rest(numbers, body))

    @property
    def _provider_at(self) -> int:
        return self._signature_at + (len(self.signature) + 3 & ~3) + (len(self.sender_cert) + 3 & ~3)

    def _head(self, header: bytes) -> bytes:
        """From behind BaseHeader.PacketSize to the MessagePropertiesHeader, with this SecurityHeader."""
        packet = self.packet
        flags = _UINT32.pack(self.flags | _HAS_SECURITY)
        return b"".join((packet[SIZE_END:FLAGS_AT], flags, packet[NAMES_AT : self.security_at], header))

    def _with_rest(self, numbers: bytes, body: bytes) -> tuple[bytes, bytes, bytes, bytes]:
        """The MessagePropertiesHeader up to its body, the body, its padding, and the headers behind it."""
        return numbers, body, _PADDING[len(numbers) + len(body) & 3], self.packet[self._end :]

    def _joined(self, *parts: bytes) -> bytes:
        """The packet of these parts, which begin behind BaseHeader.PacketSize: that leaves out a SessionHeader, and so
        changes with them."""
        packet = self.packet
        size = _UINT32.unpack_from(packet, SIZE_AT)[0] + SIZE_END + sum(map(len, parts)) - len(packet)
        return b"".join((packet[:SIZE_AT], _UINT32.pack(size), *parts))


def _unpadded(name: bytes, kind: int) -> bytes:
    """A queue name in a packet without its padding: only a direct name has some, behind as many bytes as it states."""
    return name[: _UINT16.size + _UINT16.unpack_from(name)[0]] if kind == DIRECT else name


def without_answers(packet: bytes) -> bytes:
    """The packet that asks for nothing to be sent when its message is received or dies: neither administration
    acknowledgments nor, if it is transactional, a FinalAck."""
    sections = Sections(packet)
    flags, asked = sections.flags, sections.properties_at
    if flags & _HAS_TRANSACTION:
        flags &= ~(UserFlags.JP.mask | UserFlags.JN.mask)
    changed = bytearray(packet)
    _UINT32.pack_into(changed, FLAGS_AT, flags)
    changed[asked] = 0
    if flags & _HAS_TRANSACTION:
        transaction = sections.transaction_at
        _UINT32.pack_into(changed, transaction, _UINT32.unpack_from(packet, transaction)[0] & ~TransactionFlags.FA.mask)
    return bytes(changed)


def has_security(packet: bytes) -> bool:
    """Whether a packet has a SecurityHeader."""
    return bool(user_flags_of(packet) & _HAS_SECURITY)
