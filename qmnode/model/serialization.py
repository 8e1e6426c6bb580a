"""From a message to its UserMessage packet: MS-MQDMPR 3.1.7.1.30 and 3.1.7.1.32, MS-MQMQ 2.2.20.

Sending runs this once for each message, so headers that every packet has are packed in one call each, and parts that
depend only on the destination are prepared when the queue is opened.
"""

import functools
from codecs import utf_16_le_encode
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from qmnode.allocator import with_other_head
from qmnode.errors import MessageQueuingError, MessageTooLargeError
from qmnode.model.message import DEFAULT_PRIORITY, DEFAULTS, PERMITTED, Message, check_values
from qmnode.model.ports import OwnQueueNames
from qmnode.model.stored_message import (
    ADDRESSED_HEAD,
    ADMINISTRATION_SHIFT,
    DESTINATION_SHIFT,
    EXPIRY,
    EXPRESS,
    FIRST_FLAG,
    FLAGS,
    HAS_CONNECTOR,
    HAS_SECURITY,
    HAS_TRANSACTION,
    HEAD,
    IDENTIFIER,
    LAST_FLAG,
    MAXIMUM_PACKET_SIZE,
    NAMED_DEAD_LETTER,
    NEGATIVE_JOURNAL,
    NEGATIVE_JOURNAL_FLAG,
    NEVER,
    PEEK_WHEN_LOCKED,
    POSITIVE_JOURNAL,
    POSITIVE_JOURNAL_FLAG,
    PREFIX,
    PREFIX_SIZE,
    RARE_FLAGS,
    RECOVERABLE_FLAG,
    REPORT,
    RESPONSE_SHIFT,
    TRANSACTIONAL,
    VERSION,
    Names,
    head_with,
    packed,
    read_properties_place,
)
from qmnode.structures import user_message
from qmnode.structures.conformance import violations
from qmnode.structures.enumerations import PRIVACY_LEVELS, EncryptionAlgorithm, HashAlgorithm, is_permitted
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import ZERO_GUID, Guid
from qmnode.structures.names import (
    DirectFormatName,
    DistributionListFormatName,
    FormatName,
    PrivateFormatName,
    PublicFormatName,
    QueueNameError,
    parse_single_format_name,
)
from qmnode.structures.packet_view import (
    ADDRESS,
    BODY_SIZES,
    LARGE,
    NAMES_AT,
    PROPERTIES_SIZE,
    SENT_TIME_AT,
    SIZE_AT,
    SIZE_END,
    SOURCE,
    TRANSACTION_HEADER_SIZE,
    UNUSUAL_BASE,
    Packet,
    Places,
    Shape,
    base_flags_of,
    codes_to_body,
    direct_name,
    label_length,
    message_class_of,
    pack_identifier,
    pack_properties,
    pack_transaction_header,
    packs_headers,
    places_of,
    privacy_level_of,
    times_to_live,
    user_flags_of,
    with_base_flags,
)
from qmnode.structures.user_message import (
    ADMIN,
    MAX_LABEL,
    RESPONSE,
    BaseFlags,
    DebugHeader,
    MQFAddressHeader,
    MQFDirectQueueFormatName,
    MQFDistributionQueueFormatName,
    MQFFormatNameElement,
    MQFPrivateQueueFormatName,
    MQFPublicQueueFormatName,
    MultiQueueFormatHeader,
    PropertyFlags,
    ProviderInfo,
    SecurityFlags,
    SecurityHeader,
    SoapHeader,
    UserFlags,
    UserHeader,
    UserMessage,
)

MAXIMUM_LABEL: Final = 249
_FIXED_SIZE: Final = HEAD.size - PREFIX_SIZE + PROPERTIES_SIZE
_TIME_TO_REACH_QUEUE: Final[int] = DEFAULTS["time_to_reach_queue"]
_PADDING: Final = (b"", b"\0\0\0", b"\0\0", b"\0")
_HAS_PROPERTIES: Final = UserFlags.MP.mask
_NO_CORRELATION: Final = bytes(20)


def format_name_of_property(text: str) -> FormatName:
    """A format name of one queue. Raises MQ_ERROR_ILLEGAL_FORMATNAME for other text: the message is not sent."""
    try:
        return parse_single_format_name(text)
    except QueueNameError as error:
        raise MessageQueuingError(error.code, error.sentence) from None


_NAMES_KEPT: Final = 64
_UNPARSED: Final = frozenset(("lookup_identifier", "_load", "_value"))
"""All that a received message has of which no property was read or set."""


_pack_head: Final = ADDRESSED_HEAD.pack
_NOT_KEPT: Final = UserFlags.DQ.mask | UserFlags.RC.mask | UserFlags.AH.mask
"""The destination and the record of past hops, which a message loses when it is sent anew."""
_REPORTS: Final = PropertyFlags.PA.mask | PropertyFlags.PR.mask | PropertyFlags.NA.mask | PropertyFlags.NR.mask
_ABSOLUTE: Final = frozenset((0, 1, 5, 7))
_NAMES_ALIKE: Final = tuple(kinds & 7 in _ABSOLUTE and kinds >> 3 in _ABSOLUTE for kinds in range(64))
"""Whether, by Flags.AQ and Flags.RQ, the names of the administration and response queues are equal in all packets.
Private queues are named relative to the message's source and destination (2.2.19.2).
"""


_OTHER_NAMES: Final = UserFlags.AQ.mask | UserFlags.RQ.mask


def names_queues(packet: Packet) -> bool:
    """Whether a packet names an administration queue or a response queue."""
    return bool(user_flags_of(packet) & _OTHER_NAMES)


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
                flags & ~_OTHER_NAMES | names[0],
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
            record_flags |= NEGATIVE_JOURNAL
        if flags & POSITIVE_JOURNAL_FLAG:
            record_flags |= POSITIVE_JOURNAL
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


class Destination:
    """The destination of messages: the parts that are equal in all packets sent through an open queue."""

    __slots__ = (
        "_addressings", "_names", "_own", "_version", "address", "flags", "is_direct", "name", "security", "sender",
        "source", "transit",
    )  # fmt: skip

    def __init__(
        self,
        source: Guid,
        format_name: FormatName,
        destination: Guid = ZERO_GUID,
        transit: bool = False,
        own: OwnQueueNames | None = None,
    ) -> None:
        """``transit``: the queue is elsewhere, and its messages have a time to reach it. ``own`` gives own queues that
        messages name the names that other machines can use; without it, names stay as they are.
        """
        self.transit = transit
        self.is_direct = isinstance(format_name, DirectFormatName)
        self._own = own
        self._version = 0
        self.source = source
        # 2.2.19.2: the NULL GUID when the destination is a direct format name.
        self.address = ZERO_GUID if isinstance(format_name, DirectFormatName) else destination
        if isinstance(format_name, PrivateFormatName):
            self.address = format_name.computer
        kind, self.name = _name_bytes(format_name, source, self.address, is_destination=True)
        self.flags = kind << DESTINATION_SHIFT | _HAS_PROPERTIES
        self.sender: bytes | None = None
        """The SID that unsigned messages name, or empty; None lets the application say what it likes."""
        self.security = b""
        """The SecurityHeader with that SID."""
        self._names: dict[str, tuple[int, bytes]] = {}
        self._addressings: dict[tuple[Shape, bool], Addressing | None] = {}

    @property
    def is_unencryptable(self) -> bool:
        """Whether no message to here can be encrypted: a direct name of another machine names no queue manager."""
        return self.transit and self.is_direct

    def name_sender(self, identifier: bytes) -> None:
        """Have unsigned messages name this SID as their sender, and no other (MS-MQDMPR 3.1.1.12)."""
        self.sender = identifier
        if identifier:
            self.security = header_naming(identifier)
            self.flags |= HAS_SECURITY
        self._addressings.clear()

    @property
    def most_added(self) -> int:
        """Bytes that a packet of an application grows by at most when it becomes a stored value to here."""
        return PREFIX_SIZE + len(self.name) + len(self.security) + TRANSACTION_HEADER_SIZE

    def addressing_of(self, message: Message, transactional: bool) -> Addressing | None:
        """The way to address the packet of an unparsed message to here; None if it must be serialized in full."""
        if not message.__dict__.keys() <= _UNPARSED or message.__dict__["_value"][FLAGS] & NAMED_DEAD_LETTER:
            return None
        packet = packed(message)
        return self._addressing(packet, places_of(packet), transactional)

    def addressing_by_shape(self, shape: Shape, packet: Packet, transactional: bool) -> Addressing | None:
        """The same for a packet of this shape."""
        self._forget_old_names()
        known = shape, transactional
        if known not in self._addressings:
            if len(self._addressings) >= _NAMES_KEPT:
                self._addressings.clear()
            self._addressings[known] = self._addressing(packet, shape.places, transactional)
        return self._addressings[known]

    def _addressing(self, packet: Packet, places: Places, transactional: bool) -> Addressing | None:
        if not is_addressable(packet, places):
            return None
        if self.is_unencryptable and privacy_level_of(packet, places.properties):
            return None  # it is refused with the reason
        return Addressing(packet, places, self, transactional, self._renamed(packet, places))

    def _renamed(self, packet: Packet, places: Places) -> tuple[int, bytes] | None:
        """The names in a packet and their flags, if others cannot use those that it has."""
        if self._own is None or not names_queues(packet):
            return None
        administration, response = other_queues_of(packet, places)
        if all(self.name_for_others(text)[1] for text in (administration, response) if text):
            return None
        names = Message(administration_queue_format_name=administration, response_queue_format_name=response)
        return _other_names(names, self)

    def name_for_others(self, text: str) -> tuple[FormatName, bool]:
        """The name of a queue as other machines can use it, and whether it was so already. Raises
        MQ_ERROR_ILLEGAL_FORMATNAME.
        """
        name = format_name_of_property(text)
        other = name if self._own is None else self._own.for_others(name)
        return other, other == name

    def _forget_old_names(self) -> None:
        if self._own is not None and self._version != self._own.version:
            self._version = self._own.version
            self._names.clear()
            self._addressings.clear()

    def name_bytes(self, text: str) -> tuple[int, bytes]:
        """The type and bytes of another queue's name in a packet to here. The messages of an application name few."""
        self._forget_old_names()
        known = self._names.get(text)
        if known is None:
            if len(self._names) >= _NAMES_KEPT:
                self._names.clear()
            known = _name_bytes(self.name_for_others(text)[0], self.source, self.address)
            self._names[text] = known
        return known


class Travelling:
    """Packs messages of applications for their way to the node, which fills in addresses and numbers."""

    __slots__ = ("_destination", "_heads")

    def __init__(self, destination: Destination) -> None:
        self._destination = destination
        self._heads: dict[bool, tuple[bytes, bytes, Callable[..., bytes]]] = {}
        """By whether messages are recoverable: the bytes before PacketSize, those from there to the properties, and
        what packs both with the numbers.
        """

    def pack(self, message: Message) -> tuple[int, tuple[bytes, ...]]:
        """The packet of a message: its size, and its parts. Raises MessageQueuingError if it cannot be sent."""
        attributes = message.__dict__
        get = attributes.get
        body, label, extension = get("body", b""), get("label"), get("extension", b"")
        if not attributes.keys() <= _CONTENT or type(body) is not bytes or type(extension) is not bytes:
            packet = serialize(message, self._destination, 0, 0.0)[PREFIX_SIZE:]
            return len(packet), (packet,)
        app_specific = get("app_specific", 0)
        if type(app_specific) is not int or app_specific >> 32 or not attributes.keys().isdisjoint(_LIMITED):
            check_values(attributes)
        recoverable = bool(get("recoverable"))
        begin, names, pack = self._heads.get(recoverable) or self._head(recoverable)
        label_bytes = _label_bytes(label) if label else b""
        length = len(body)
        size = len(begin) + _SIZE_FIELD + len(names) + PROPERTIES_SIZE + len(label_bytes) + len(extension) + length
        padding = _PADDING[size & 3]
        size += len(padding)
        if size > MAXIMUM_PACKET_SIZE:
            raise _too_large(size)
        head = pack(
            begin, size, names,
            0, len(label_bytes) >> 1, 0, get("correlation_identifier", _NO_CORRELATION), get("body_type", 0),
            app_specific, length, length, 0, _SHA_512, _AES_256, len(extension),
        )  # fmt: skip
        return size, (head, label_bytes, extension, body, padding)

    def _head(self, recoverable: bool) -> tuple[bytes, bytes, Callable[..., bytes]]:
        packet = serialize(Message(recoverable=recoverable), self._destination, 0, 0.0)[PREFIX_SIZE:]
        begin, names = packet[:SIZE_AT], packet[SIZE_END : places_of(packet).properties]
        self._heads[recoverable] = begin, names, packs_headers(len(names))
        return self._heads[recoverable]


class TransactionFields:
    """The fields of a TransactionHeader (2.2.20.5), shared by all messages of a transaction."""

    __slots__ = ("identifier", "number", "previous", "sequence")

    def __init__(self, identifier: int, sequence: int = 0, number: int = 1, previous: int = 0) -> None:
        self.identifier = identifier & 0xFFFFF
        self.sequence = sequence
        self.number = number
        self.previous = previous


def serialize(
    message: Message,
    destination: Destination,
    identifier: int,
    now: float,
    transaction: TransactionFields | None = None,
    first: bool = False,
    last: bool = False,
) -> bytes:
    """The stored value of a message: prefix and UserMessage packet. Raises MessageQueuingError if it cannot be sent."""
    if "lookup_identifier" in message.__dict__:
        # A packet that is sent on: unchanged if it has not been parsed, otherwise piece by piece.
        addressing = destination.addressing_of(message, transaction is not None)
        if addressing is not None:
            header = b"" if transaction is None else _transaction_header(transaction, first, last)
            values = addressing.address([packed(message)], [identifier], int(now), int(now * 1e6), header)
            if values is not None:
                return values[0]
        message = message.copy()
    get = message.__dict__.get
    body = get("body", b"")
    if type(body) is not bytes and not isinstance(body, bytes | bytearray | memoryview):
        raise TypeError(f"the body of a message is bytes, and this is {type(body).__name__}: encode a text first")
    if message.__dict__.keys() <= _PLAIN:
        return _plain_value(body, get("recoverable"), destination, identifier, now, transaction, first, last)
    if message.__dict__.keys() <= _NEARLY_PLAIN:
        check_values(message.__dict__)
        names = _other_names(message, destination)
        return _plain_value(body, get("recoverable"), destination, identifier, now, transaction, first, last, names)
    check_values(message.__dict__)
    label = get("label")
    extension = get("extension", b"")
    acknowledge = get("acknowledgements_requested", 0)
    lifetime = get("time_to_be_received", NEVER)
    reach = get("time_to_reach_queue", _TIME_TO_REACH_QUEUE)
    deadline = min(lifetime, reach) if destination.transit else lifetime
    sent = int(now)
    flags = destination.flags
    record_flags = 0
    name = destination.name
    if transaction is not None:
        flags |= RECOVERABLE_FLAG | HAS_TRANSACTION
        priority = 0
        record_flags = TRANSACTIONAL
    else:
        priority = get("priority", DEFAULT_PRIORITY)
        if get("recoverable"):
            flags |= RECOVERABLE_FLAG
        else:
            record_flags = EXPRESS
    if get("negative_journaling_requested"):
        flags |= NEGATIVE_JOURNAL_FLAG
        record_flags |= NEGATIVE_JOURNAL
    if get("positive_journaling_requested"):
        flags |= POSITIVE_JOURNAL_FLAG
        record_flags |= POSITIVE_JOURNAL
    if acknowledge:
        record_flags |= REPORT
    if get("allow_peek_when_locked"):
        record_flags |= PEEK_WHEN_LOCKED
    if not message.__dict__.keys().isdisjoint(_NAMES):
        more, tail = _other_names(message, destination)
        flags |= more
        name += tail
    if transaction is not None:
        name += _transaction_header(transaction, first, last)
    name += destination.security
    label_bytes = _label_bytes(label) if label else b""
    size = _FIXED_SIZE + len(name) + len(label_bytes) + len(extension) + len(body)
    padding = _PADDING[size & 3]
    size += len(padding)
    if size > MAXIMUM_PACKET_SIZE:
        raise _too_large(size)
    value = b"".join(
        (
            HEAD.pack(
                VERSION,
                record_flags,
                0,
                0,
                HEAD.size + len(name),
                NEVER if deadline == NEVER else min(sent + deadline, NEVER - 1),
                int(now * 1e6),
                user_message.VERSION,
                0,
                priority,
                user_message.SIGNATURE,
                size,
                reach,
                destination.source,
                destination.address,
                lifetime,
                sent,
                identifier,
                flags,
            ),
            name,
            pack_properties(
                acknowledge,
                len(label_bytes) >> 1,
                get("message_class", 0),
                get("correlation_identifier", _NO_CORRELATION),
                get("body_type", 0),
                get("app_specific", 0),
                len(body),
                len(body),
                get("privacy_level", 0),
                get("hash_algorithm", _SHA_512),
                get("encryption_algorithm", _AES_256),
                len(extension),
            ),
            label_bytes,
            extension,
            body,
            padding,
        )
    )
    if message.__dict__.keys().isdisjoint(RARE_PROPERTIES):
        return value
    return with_rare_headers(value, message, destination.sender, lambda text: destination.name_for_others(text)[0])


_PLAIN: Final = frozenset(("body", "recoverable"))
"""The properties of most messages, whose headers are packed in one call."""
_OTHER_QUEUES: Final = (
    ("administration_queue_format_name", "administration_multi_queue_format_name", ADMINISTRATION_SHIFT),
    ("response_queue_format_name", "response_multi_queue_format_name", RESPONSE_SHIFT),
)
"""Properties with the name of a queue, or with those of several, and where the UserHeader has its type."""
_NAMES: Final = frozenset((*(name for item in _OTHER_QUEUES for name in item[:2]), "connector_type_identifier"))
_NEARLY_PLAIN: Final = _PLAIN | {item[0] for item in _OTHER_QUEUES}
_CONTENT: Final = _PLAIN | {"app_specific", "body_type", "correlation_identifier", "extension", "label"}
"""Properties that are in the MessagePropertiesHeader or behind it, except for the one flag."""
_LIMITED: Final = _CONTENT & PERMITTED.keys() - {"app_specific"}
"""Those of them, beside the number for applications, whose values have limits."""
_SIZE_FIELD: Final = SIZE_END - SIZE_AT
_NO_NAMES: Final = (0, b"")
_SHA_512: Final = int(HashAlgorithm.SHA_512)
_AES_256: Final = int(EncryptionAlgorithm.AES256)
_DEFAULT_PROPERTIES: Final = pack_properties(0, 0, 0, _NO_CORRELATION, 0, 0, 0, 0, 0, _SHA_512, _AES_256, 0)
_BEFORE_SIZES: Final = _DEFAULT_PROPERTIES[: BODY_SIZES.start]
_AFTER_SIZES: Final = _DEFAULT_PROPERTIES[BODY_SIZES.stop :]
"""MessagePropertiesHeader around the size of the body and its allocated size."""


@functools.lru_cache(256)
def _plain_pack(between: int) -> Callable[..., bytes]:
    """Packs the headers of a message that has only a body and names; ``between`` are the bytes from the UserHeader's
    last number to the MessagePropertiesHeader.
    """
    return head_with(codes_to_body(between + len(_BEFORE_SIZES))).pack


def _plain_value(
    body: bytes | bytearray | memoryview,
    recoverable: object,
    destination: Destination,
    identifier: int,
    now: float,
    transaction: TransactionFields | None,
    first: bool,
    last: bool,
    names: tuple[int, bytes] = _NO_NAMES,
) -> bytes:
    more, tail = names
    name, flags = destination.name + tail, destination.flags | more
    record_flags, priority = 0, DEFAULT_PRIORITY
    if transaction is not None:
        name += _transaction_header(transaction, first, last)
        flags |= RECOVERABLE_FLAG | HAS_TRANSACTION
        record_flags, priority = TRANSACTIONAL, 0
    elif recoverable:
        flags |= RECOVERABLE_FLAG
    else:
        record_flags = EXPRESS
    name += destination.security
    sent, length = int(now), len(body)
    size = _FIXED_SIZE + len(name) + length
    padding = _PADDING[size & 3]
    size += len(padding)
    if size > MAXIMUM_PACKET_SIZE:
        raise _too_large(size)
    head = _plain_pack(len(name))(
        VERSION,
        record_flags,
        0,
        0,
        HEAD.size + len(name),
        min(sent + _TIME_TO_REACH_QUEUE, NEVER - 1) if destination.transit else NEVER,
        int(now * 1e6),
        user_message.VERSION,
        0,
        priority,
        user_message.SIGNATURE,
        size,
        _TIME_TO_REACH_QUEUE,
        destination.source,
        destination.address,
        NEVER,
        sent,
        identifier,
        flags,
        name + _BEFORE_SIZES,
        length,
        length,
        _AFTER_SIZES,
    )
    return head + body + padding if padding else head + body


def address_packets(
    packets: Sequence[Packet],
    shapes: Sequence[Shape | None],
    destination: Destination,
    identifiers: Sequence[int],
    now: float,
    transaction: TransactionFields | None = None,
    first: bool = False,
) -> list[bytes] | None:
    """``serialize`` for packets of applications with these shapes; None if one must be serialized in full.

    ``first``: the first message begins its transaction.
    """
    header = b"" if transaction is None else _transaction_header(transaction, first, False)
    sent, arrival = int(now), int(now * 1e6)
    values: list[bytes] = []
    start, count = 0, len(packets)
    while start < count:
        shape = shapes[start]
        addressing = None
        if shape is not None:
            addressing = destination.addressing_by_shape(shape, packets[start], transaction is not None)
        if addressing is None:
            return None
        stop = start + 1
        if first and transaction is not None:
            rest, first = _transaction_header(transaction, False, False), False
        else:
            rest = header
            while stop < count and shapes[stop] is shape:
                stop += 1
        addressed = addressing.address(packets[start:stop], identifiers[start:stop], sent, arrival, header)
        if addressed is None:
            return None
        values += addressed
        start, header = stop, rest
    return values


def serialize_plain(
    messages: Iterable[Message],
    destination: Destination,
    take_identifiers: Callable[[int], Sequence[int]],
    now: float,
    transaction: TransactionFields | None = None,
    first: bool = False,
) -> list[tuple[int, bytes]] | None:
    """``serialize`` for many messages that have only a body, with their identifiers; None if one has more.

    ``first``: the first message begins its transaction. Headers of messages with equally long bodies differ only in the
    identifier.
    """
    bodies: list[tuple[bytes, object]] = []
    for message in messages:
        asked = message.__dict__
        body = asked.get("body", b"")
        if not asked.keys() <= _PLAIN or type(body) is not bytes or len(body) > _LARGEST_PLAIN:
            return None
        bodies.append((body, asked.get("recoverable")))
    values: list[tuple[int, bytes]] = []
    before = after = padding = b""
    alike = None
    for (body, recoverable), identifier in zip(bodies, take_identifiers(len(bodies)), strict=True):
        if alike != (len(body), recoverable):
            value = _plain_value(body, recoverable, destination, 0, now, transaction, first, False)
            body_at = read_properties_place(value)[0] + PROPERTIES_SIZE
            before, after = value[: IDENTIFIER.start], value[IDENTIFIER.stop : body_at]
            padding = value[body_at + len(body) :]
            alike, first = None if first else (len(body), recoverable), False
        values.append((identifier, b"".join((before, pack_identifier(identifier), after, body, padding))))
    return values


_LARGEST_PLAIN: Final = 0x10000


def _transaction_header(transaction: TransactionFields, first: bool, last: bool) -> bytes:
    flags = (FIRST_FLAG if first else 0) | (LAST_FLAG if last else 0) | transaction.identifier << 4
    return pack_transaction_header(flags, transaction.sequence, transaction.number, transaction.previous)


def _other_names(message: Message, destination: Destination) -> tuple[int, bytes]:
    """Flags and bytes of the administration queue, the response queue and the connector type."""
    flags, tail = 0, b""
    get = message.__dict__.get
    for one, several, shift in _OTHER_QUEUES:
        if text := get(one) or get(several, "").partition(",")[0]:
            kind, name = destination.name_bytes(text)
            flags |= kind << shift
            tail += name
    connector = get("connector_type_identifier", ZERO_GUID)
    if connector != ZERO_GUID:
        flags |= HAS_CONNECTOR
        tail += connector
    return flags, tail


def _label_bytes(label: str) -> bytes:
    try:
        encoded: bytes = utf_16_le_encode(label)[0] + b"\0\0"
    except UnicodeEncodeError:
        raise _bad_value("the label has half of a surrogate pair, which is no text") from None
    except TypeError:
        raise TypeError(f"label={label!r:.80}: expected a text, not {type(label).__name__}") from None
    if len(encoded) > 2 * (MAXIMUM_LABEL + 1):
        raise _bad_value(f"a label of {len(encoded) // 2 - 1}: a label has at most {MAXIMUM_LABEL} UTF-16 units")
    return encoded


def _name_bytes(name: FormatName, source: Guid, destination: Guid, is_destination: bool = False) -> tuple[int, bytes]:
    """The bytes of a queue's name in a UserHeader, and its type there (2.2.19.2)."""
    match name:
        case DirectFormatName():
            return 7, direct_name(name.without_prefix)
        case PublicFormatName():
            return 5, name.queue
        case PrivateFormatName():
            number = name.queue.to_bytes(4, "little")
            if is_destination or name.computer == destination:
                return 3, number
            return (2, number) if name.computer == source else (6, name.computer + number)
        case _:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION, f"no packet can carry the queue name {name}"
            )


def _too_large(size: int) -> MessageQueuingError:
    return MessageTooLargeError(
        ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES,
        f"a message of {size} bytes with its headers: a message has at most {MAXIMUM_PACKET_SIZE} bytes (4 MB)",
    )


def _bad_value(sentence: str) -> MessageQueuingError:
    return MessageQueuingError(ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE, sentence)


_SECURITY: Final = frozenset(
    (
        "sender_identifier_type",
        "sender_identifier",
        "sender_certificate",
        "signature",
        "symmetric_key",
        "authentication_provider_name",
    )
)
_MULTIPLE: Final = frozenset(
    (
        "destination_multi_queue_format_name",
        "administration_multi_queue_format_name",
        "response_multi_queue_format_name",
    )
)
_TRACING: Final = "tracing_requested"
_SOAP: Final = frozenset(("soap_header", "soap_body"))
RARE_PROPERTIES: Final = _SECURITY | _SOAP | _MULTIPLE | {_TRACING}
"""Properties that need one of these headers."""


def header_naming(sender: bytes) -> bytes:
    """The SecurityHeader of an unsigned message that names the SID of its sender."""
    return SecurityHeader(flags=SecurityFlags.of(ST=1, DE=1, AI=1), security_id=sender).write()


def with_rare_headers(
    value: bytes,
    message: Message,
    sender: bytes | None = None,
    named: Callable[[str], FormatName] = format_name_of_property,
) -> bytes:
    """The stored value of a message with the headers that its rare properties need.

    ``sender`` is the SID that the message names if it is unsigned, or empty; None lets the message say it. ``named``
    gives the queue of a format name the name that the message has for it.
    """
    packet = UserMessage.parse(value[PREFIX_SIZE:])
    changes: dict[str, Any] = {}
    if not message.__dict__.keys().isdisjoint(_SECURITY):
        changes["security_header"] = _security_header(message, sender)
    if any(getattr(message, name) for name in _MULTIPLE):
        changes["multi_queue_format_header"] = _multi_queue_format_header(message, packet.user_header, value, named)
    if message.tracing_requested:
        flags = BaseFlags.TR.put(packet.base_header.flags, 1)
        changes["base_header"] = packet.base_header.replace(flags=flags)
        changes["debug_header"] = DebugHeader(queue_identifier=_or_none(message.tracing_queue_identifier))
    if message.soap_header or message.soap_body:
        changes["soap_header"] = SoapHeader(header=message.soap_header, body=message.soap_body)
    packet = packet.replace(**{name: header for name, header in changes.items() if header is not None})
    for found in violations(packet):
        if found.structure == "SecurityHeader":  # the rest is complete only when the message leaves
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE, f"{found.structure}.{found.field} {found.sentence}"
            )
    version, flags, aborts, moves, _, expires, arrival = PREFIX.unpack_from(value)
    before = [packet.base_header, packet.user_header, packet.transaction_header, packet.security_header]
    offset = PREFIX_SIZE + sum(header.size for header in before if header is not None)
    return PREFIX.pack(version, flags, aborts, moves, offset, expires, arrival) + packet.write()


def _multi_queue_format_header(
    message: Message, header: UserHeader, value: bytes, named: Callable[[str], FormatName]
) -> MultiQueueFormatHeader:
    """The MultiQueueFormatHeader, 2.2.20.1. A message for one queue lists that one."""
    destinations = message.destination_multi_queue_format_name
    if not destinations:
        names = Names(value, header.source_queue_manager, header.queue_manager_address)
        destinations = names.take(UserFlags.DQ.get(header.flags))
    administration = message.administration_multi_queue_format_name or message.administration_queue_format_name
    response = message.response_multi_queue_format_name or message.response_queue_format_name
    return MultiQueueFormatHeader(
        destination=MQFAddressHeader(format_name_list=_elements(destinations, named)),
        administration=MQFAddressHeader(header_id=ADMIN, format_name_list=_elements(administration, named)),
        response=MQFAddressHeader(header_id=RESPONSE, format_name_list=_elements(response, named)),
    )


def _or_none(identifier: Guid) -> Guid | None:
    return None if identifier == ZERO_GUID else identifier


def _security_header(message: Message, sender: bytes | None) -> SecurityHeader | None:
    provider = b""
    if message.authentication_provider_name:
        provider = ProviderInfo(
            provider_type=message.authentication_provider_type, provider_name=message.authentication_provider_name
        ).write()
    kind, identifier = int(message.sender_identifier_type), message.sender_identifier
    if sender is not None and not message.signature:
        kind, identifier = int(bool(sender)), sender
    parts = {
        "security_id": identifier,
        "encryption_key": message.symmetric_key,
        "signature": message.signature,
        "sender_cert": message.sender_certificate,
        "provider_info": provider,
    }
    if not any(parts.values()):
        return None
    flags = SecurityFlags.of(ST=kind, EB=int(bool(message.symmetric_key)), DE=int(not provider), AI=1)
    return SecurityHeader(flags=flags, **parts)


def _elements(names: str, named: Callable[[str], FormatName]) -> tuple[MQFFormatNameElement, ...]:
    if not names:
        return ()
    return tuple(MQFFormatNameElement(format_name=_element(named(name))) for name in names.split(","))


def _element(name: FormatName) -> Any:
    match name:
        case PublicFormatName():
            return MQFPublicQueueFormatName(public_queue_identifier=name.queue)
        case PrivateFormatName():
            return MQFPrivateQueueFormatName(source_queue_manager=name.computer, private_queue_identifier=name.queue)
        case DirectFormatName():
            return MQFDirectQueueFormatName(direct_format_name=name.without_prefix)
        case DistributionListFormatName():
            return MQFDistributionQueueFormatName(distribution_list_identifier=name.group)
        case _:
            raise ValueError(f"no packet can list the queue name {name}")
