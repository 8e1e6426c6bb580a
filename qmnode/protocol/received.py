"""Received packets: cut from the stream of a connection (2.1.1, 3.1.5.1.2); UserMessage packets are validated
completely and parsed as far as the protocol acts on them.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from qmnode.allocator import LENT_FROM, filled, lend
from qmnode.protocol.errors import RemoteProtocolError
from qmnode.structures.acks import is_order_queue
from qmnode.structures.base_header import SIGNATURE, VERSION, BaseFlags
from qmnode.structures.conformance import violation
from qmnode.structures.envelope import (
    Packet,
    read_base_header,
    read_own_fields,
    read_transaction_header,
    without_session_header,
)
from qmnode.structures.errors import PacketError
from qmnode.structures.flat import Flat, at, bytes_at
from qmnode.structures.guid import ZERO_GUID, Guid
from qmnode.structures.message_classes import MessageClass
from qmnode.structures.names import DirectFormatName, FormatName, PrivateFormatName, PublicFormatName, fold
from qmnode.structures.packet_view import (
    FLAGS_AT,
    LABEL_AT,
    SENT_TIME_AT,
    TRANSACTION_HEADER_SIZE,
    Places,
    Shape,
    direct_name_in,
    label_length,
    places_of,
    security_parts,
)
from qmnode.structures.packets import BASE_HEADER_SIZE, SESSION_HEADER_SIZE
from qmnode.structures.queue_formats import DirectQueueFormatName, PrivateQueueFormatNameId
from qmnode.structures.security_header import SecurityFlags
from qmnode.structures.session_header import SessionHeader
from qmnode.structures.transaction_header import TransactionFlags
from qmnode.structures.user_header import UserFlags
from qmnode.structures.user_message import UserMessage

_INTERNAL_OR_SESSION: Final = BaseFlags.IN.mask | BaseFlags.SH.mask
_SESSION: Final = BaseFlags.SH.mask


_SMALL: Final = 16 * 1024
"""Fewer bytes that come together are added to those before them; more are kept apart, and joined once."""


class Framer:
    """Collects bytes until they form packets. Memory is bounded by one packet of ``limit`` bytes and one read."""

    __slots__ = ("_kept", "_lent", "_needed", "_parts", "_pending", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        """The largest accepted packet. Small until the session is open, so that an unknown peer cannot make this side
        buffer megabytes.
        """
        self._parts: list[bytes | bytearray | memoryview] = []
        """The beginning of an incomplete packet, before the bytes that are kept."""
        self._kept = bytearray()
        self._lent: memoryview | None = None
        """Where a large packet is read to instead."""
        self._pending = 0
        self._needed = BASE_HEADER_SIZE
        """The bytes of the incomplete packet, or of its first header while that is incomplete."""

    def pending(self) -> int:
        """Bytes of an incomplete packet."""
        return self._pending

    def clear(self) -> None:
        """Discard an incomplete packet: no more bytes will come."""
        self._parts, self._kept, self._lent, self._pending = [], bytearray(), None, 0

    def buffer(self, spared: int = 0) -> memoryview | None:
        """Where to read the next bytes to, all of them bytes of one packet; then call ``filled``. None if any buffer
        will do, whose bytes are then fed. ``spared`` is for ``lend``.
        """
        if self._lent is None:
            if self._needed - self._pending < LENT_FROM:
                return None
            self._lent = lend(self._needed, spared)
            if self._lent is None:
                return None
            place = 0
            for part in (*self._parts, self._kept):
                self._lent[place : place + len(part)] = part
                place += len(part)
            self._parts, self._kept = [], bytearray()
        return self._lent[self._pending :]

    def filled(self, count: int) -> list[Packet]:
        """The packet that is whole when so many bytes have been read to ``buffer``, if it is: a view of memory that is
        used again once there is none.
        """
        self._pending += count
        filled(count)
        if self._pending < self._needed:
            return []
        assert self._lent is not None
        packet = self._lent.toreadonly()
        self.clear()
        self._needed = BASE_HEADER_SIZE
        return [packet]

    def _keep(self, data: memoryview, end: int) -> None:
        """Keep bytes of an incomplete packet, which came among so many: most of them as a view."""
        self._pending += len(data)
        if len(data) < max(_SMALL, end // 4):
            self._kept += data
        else:
            self._parts += (self._kept, data)
            self._kept = bytearray()

    def _take(self) -> bytes:
        taken = b"".join((*self._parts, self._kept))
        self.clear()
        return taken

    def feed(self, data: bytes | bytearray | memoryview) -> list[Packet]:
        """Return the packets that ``data`` completes, each a copy of its own, and keep the rest.

        A UserMessage packet with a SessionHeader is 16 bytes longer than its PacketSize (MS-MQMQ 2.2.19.1); the size of
        a SessionAck packet includes it (frame 8 of 4.1). Raises RemoteProtocolError.
        """
        packets: list[Packet] = []
        if not self._pending:
            source = data if isinstance(data, bytes) else bytes(data)
        else:
            missing = self._needed - self._pending
            begin = memoryview(data)[:missing]
            self._keep(begin if len(begin) < _SMALL else memoryview(bytes(begin)), len(begin))
            if len(data) < missing:
                return packets
            source = bytes(data[missing:])
            if self._needed > BASE_HEADER_SIZE:  # a large packet is put together once
                packets.append(self._take())
            else:
                source = self._take() + source
        place, end = 0, len(source)
        needed = BASE_HEADER_SIZE
        while end - place >= BASE_HEADER_SIZE:
            version, _, flags, signature, size, _ = read_base_header(source, place)
            if version != VERSION or signature != SIGNATURE:
                raise RemoteProtocolError("3.1.5.1.2", "the version or the signature of a packet is wrong")
            if flags & _INTERNAL_OR_SESSION == _SESSION:
                size += SESSION_HEADER_SIZE
            if not BASE_HEADER_SIZE < size <= self.limit:
                raise RemoteProtocolError("MS-MQMQ 2.2.19.1", f"a packet of {size} bytes; {self.limit} are allowed")
            if size > end - place:
                needed = size
                break
            packets.append(source[place : place + size])
            place += size
        self._needed = needed
        self._keep(memoryview(source)[place:], end)
        return packets


_DM: Final = UserFlags.DM.mask
_PROTECTED: Final = SecurityFlags.EB.mask | SecurityFlags.AU.mask | SecurityFlags.AS.mask
_SENDER_TYPE: Final = SecurityFlags.ST.mask
_SID: Final = SecurityFlags.of(ST=1)
_SEVERAL: Final = UserFlags.MQ.mask
_RECOVERABLE: Final = 1 << UserFlags.DM.shift
_DQ: Final = UserFlags.DQ.shift
_PRIVATE: Final = 3
_PUBLIC: Final = 5
DIRECT: Final = 7
"""UserHeader.Flags.DQ of private, public and direct format names."""


class ReceivedHeaders(Flat, of=UserMessage):
    """The header fields that the protocol decides by. Fields that differ from message to message are in
    ReceivedMessage, so that consecutive messages usually share these.
    """

    base_flags: int = at("base_header.flags")
    time_to_reach_queue: int = at("base_header.time_to_reach_queue")
    source_queue_manager: Guid = at("user_header.source_queue_manager")
    queue_manager_address: Guid = at("user_header.queue_manager_address")
    user_flags: int = at("user_header.flags")
    destination_queue: bytes = bytes_at("user_header.destination_queue")
    tx_sequence_id: int | None = at("transaction_header.tx_sequence_id")
    property_flags: int = at("message_properties_header.flags")
    message_class: int = at("message_properties_header.message_class")
    privacy_level: int = at("message_properties_header.privacy_level")
    session_header: SessionHeader | None = at("session_header")
    security_flags: int | None = at("security_header.flags")
    security_id: bytes | None = at("security_header.security_id")
    encryption_key_size: int | None = at("security_header.encryption_key_size")
    signature_size: int | None = at("security_header.signature_size")
    sender_cert_size: int | None = at("security_header.sender_cert_size")
    provider_info_size: int | None = at("security_header.provider_info_size")

    @property
    def has_protection(self) -> bool:
        """Whether something is to be decrypted, verified or cleared. A SecurityHeader that only names the sender, as
        Windows writes it for unsigned messages, needs none of that.
        """
        flags = self.security_flags
        if flags is None:
            return False
        parts = self.encryption_key_size or self.signature_size or self.sender_cert_size or self.provider_info_size
        return bool(flags & _PROTECTED or parts or self.user_flags & _SEVERAL)

    @property
    def claimed_sender(self) -> bytes:
        """The SID that the packet names as its sender; empty if it names none."""
        flags = self.security_flags
        return self.security_id or b"" if flags is not None and flags & _SENDER_TYPE == _SID else b""


class DestinationName(NamedTuple):
    """A destination as the sender named it: the basis of its incoming sequence and its resolution."""

    address: Guid
    """UserHeader.QueueManagerAddress; null for a direct format name."""
    kind: int
    """UserHeader.Flags.DQ: 3 private, 5 public, 7 direct, 0 none."""
    name: bytes
    """Private: the number, little-endian. Public: the GUID. Direct: UTF-16-LE with its null, without ``DIRECT=``."""

    def key(self) -> bytes:
        """The bytes that identify it in records: the same for all spellings that are one outgoing queue at a sender."""
        name = self.name
        if self.kind == DIRECT:
            name = fold(name.decode("utf-16-le", "surrogatepass")).encode("utf-16-le", "surrogatepass")
        return bytes((self.kind,)) + name

    def format_name(self) -> FormatName | None:
        """Its format name; None if it has none."""
        try:
            if self.kind == _PRIVATE:
                return PrivateFormatName(self.address, int.from_bytes(self.name, "little"))
            if self.kind == _PUBLIC:
                return PublicFormatName(Guid(self.name))
            if self.kind == DIRECT:
                return DirectFormatName.parse(self.name.decode("utf-16-le").removesuffix("\0"))
        except ValueError:
            return None
        return None

    def is_order_queue(self, own: Guid) -> bool:
        """Whether it is the order queue of the queue manager with this identifier."""
        if self.kind == _PRIVATE:
            number = int.from_bytes(self.name, "little")
            return self.address == own and is_order_queue(PrivateQueueFormatNameId(private_queue_identifier=number))
        if self.kind != DIRECT:
            return False
        text = self.name.decode("utf-16-le", "replace").removesuffix("\0")
        return is_order_queue(DirectQueueFormatName(direct_format_name=text))


class ReceivedMessage(NamedTuple):
    """A UserMessage packet (or OrderAck, or FinalAck) that a session received."""

    packet: Packet
    """The packet to store or forward: without its SessionHeader, which concerned this session only. A view only if it
    is large and plain; ``in_bytes`` copies it.
    """
    ordinal: int
    """MessageReceivedCount with this message, not wrapped."""
    recoverable_ordinal: int
    """RecoverableMessageReceivedCount with this message, not wrapped."""
    headers: ReceivedHeaders
    """Shared by consecutive messages with equal headers."""
    destination: DestinationName
    """Shared by consecutive messages to the same destination."""
    sent_time: int
    """SentTime of the packet in seconds since 1970."""
    message_id: int
    tx_sequence_number: int = 0
    previous_tx_sequence_number: int = 0

    @property
    def message(self) -> UserMessage:
        """The whole packet, parsed on first use."""
        return UserMessage.parse(self.packet)

    def in_bytes(self) -> "ReceivedMessage":
        """The same with its packet as bytes."""
        return self if type(self.packet) is bytes else self._replace(packet=bytes(self.packet))

    @property
    def recoverable(self) -> bool:
        """Whether it is to be kept on disk; transactional messages are."""
        return bool(self.headers.user_flags & _RECOVERABLE)


_parse = ReceivedHeaders.parse
_new = tuple.__new__
_NORMAL: Final = MessageClass.MQMSG_CLASS_NORMAL.value
_OPTIONS: Final = TransactionFlags.CG.mask | TransactionFlags.FA.mask
_PRIORITY: Final = BaseFlags.PR.mask
_SECURED: Final = UserFlags.SH.mask
_UNUSUAL: Final = UserFlags.CQ.mask | UserFlags.MQ.mask | UserFlags.HH.mask | UserFlags.AH.mask
_RARE: Final = UserFlags.MQ.mask | UserFlags.HH.mask
_DEBUG: Final = BaseFlags.DH.mask
_WITHOUT_SESSION: Final = ~BaseFlags.SH.mask
_KINDS_KEPT: Final = 256


class _Shape:
    """The form of a valid packet, to recognise others that differ from it only in what cannot make them invalid.

    Applications send many similar messages. The BaseHeader and UserHeader are compared but for PacketSize, SentTime and
    MessageID, and the values of a TransactionHeader are checked; what is behind them is up to the kind of shape. A
    packet with other headers has no shape: it is fully parsed each time.
    """

    __slots__ = (
        "_between", "_options", "_place_at", "_rest_at", "destination", "fits", "headers", "is_plain", "recoverable",
    )  # fmt: skip
    fits: Callable[[Packet], bool]
    """Whether a packet is valid because this one was, except for its TransactionHeader."""

    def __init__(self, packet: bytes, headers: ReceivedHeaders, destination: DestinationName, places: Places) -> None:
        self.headers = headers
        self.destination = destination
        self.recoverable = int(headers.user_flags & _DM > 0)
        transactional = headers.tx_sequence_id is not None
        self.is_plain = False
        """Whether it is neither signed nor encrypted, and not in a sequence."""
        self._place_at = places.transaction_header
        self._rest_at = self._place_at + (TRANSACTION_HEADER_SIZE if transactional else 0)
        self._between = packet[FLAGS_AT : self._place_at]
        self._options = read_transaction_header(packet, self._place_at)[0] & _OPTIONS if transactional else 0

    @property
    def has_connector(self) -> bool:
        """Whether its TransactionHeader is longer than usual: then it is no example for other packets."""
        return bool(self._options & TransactionFlags.CG.mask)

    def place(self, packet: bytes) -> tuple[int, int] | None:
        """TxSequenceNumber and PreviousTxSequenceNumber of a transactional packet; None if they are not in order."""
        flags, identifier, number, previous = read_transaction_header(packet, self._place_at)
        if identifier != self.headers.tx_sequence_id or flags & _OPTIONS != self._options:
            return None
        if previous >= number:
            return None
        return number, previous


class _PlainShape(_Shape):
    """The shape of an application's message that is neither signed nor encrypted. Labels, bodies and extensions have
    any size: their sizes are read and must fill the packet.
    """

    __slots__ = ()

    def __init__(self, packet: bytes, headers: ReceivedHeaders, destination: DestinationName, places: Places) -> None:
        super().__init__(packet, headers, destination, places)
        self.fits = Shape(packet, places).fits
        self.is_plain = headers.tx_sequence_id is None


class _ExactShape(_Shape):
    """The shape of any other message: all bytes up to the end of the label are the same, except for the data of a
    SecurityHeader between SecurityID and ProviderInfo (key, signature, certificate). Later bytes have the same size and
    any content.
    """

    __slots__ = ("_begin", "_behind", "_behind_at", "_behind_end", "_sender", "_sender_end", "_size")

    def __init__(self, packet: bytes, headers: ReceivedHeaders, destination: DestinationName, places: Places) -> None:
        super().__init__(packet, headers, destination, places)
        self._size = len(packet)
        self._begin = packet[:SENT_TIME_AT]
        self._sender_end = self._behind_at = self._rest_at
        if headers.user_flags & _SECURED:
            self._sender_end, *_, self._behind_at, _ = security_parts(packet, self._rest_at)
        self._sender = packet[self._rest_at : self._sender_end]
        self._behind_end = places.properties + LABEL_AT + 2 * label_length(packet, places.properties)
        self._behind = packet[self._behind_at : self._behind_end]
        self.fits = self._is_alike

    def _is_alike(self, packet: Packet) -> bool:
        return (
            len(packet) == self._size
            and packet[:SENT_TIME_AT] == self._begin
            and packet[FLAGS_AT : self._place_at] == self._between
            and packet[self._behind_at : self._behind_end] == self._behind
            and packet[self._rest_at : self._sender_end] == self._sender
        )


class MessageReader:
    """Turns packets into received messages, and counts them."""

    __slots__ = ("_destination", "_queue", "_shape", "_sound", "received", "recoverable_received")

    def __init__(self) -> None:
        self.received = 0
        """MessageReceivedCount without its wrap-around."""
        self.recoverable_received = 0
        """RecoverableMessageReceivedCount without its wrap-around."""
        """The cost of lists of names and of signatures, beyond one unit for each message."""
        self._destination = DestinationName(Guid(b""), 0, b"")
        self._queue = b""
        self._shape: _Shape | None = None
        self._sound: set[tuple[object, ...]] = set()
        """The fields that the rules check, of valid messages without rare headers."""

    def read(self, packet: Packet) -> ReceivedMessage:
        """Read a message. Raises RemoteProtocolError for anything that does not conform (3.1.5.1.3)."""
        shape = self._shape
        if shape is None or not shape.fits(packet):
            return self._read_whole(bytes(packet))
        if not shape.is_plain:
            packet = bytes(packet)
        headers = shape.headers
        number = previous = 0
        if headers.tx_sequence_id is not None:
            place = shape.place(bytes(packet))
            if place is None:
                return self._read_whole(bytes(packet))
            number, previous = place
        self.received += 1
        self.recoverable_received += shape.recoverable
        sent_time, message_id = read_own_fields(packet)
        return _new(
            ReceivedMessage,
            (
                packet,
                self.received,
                self.recoverable_received,
                headers,
                shape.destination,
                sent_time,
                message_id,
                number,
                previous,
            ),
        )

    def _read_whole(self, packet: bytes) -> ReceivedMessage:
        try:
            headers = _parse(packet)
        except PacketError as error:
            raise RemoteProtocolError("3.1.5.1.3", str(error)) from error
        flags = headers.user_flags
        mode = flags & _DM
        if mode > _RECOVERABLE or (not mode and headers.tx_sequence_id is not None):
            raise RemoteProtocolError("MS-MQMQ 2.2.19.2", "no known delivery mode, or transactional and express")
        number = previous = 0
        if headers.tx_sequence_id is not None:
            _, _, number, previous = read_transaction_header(packet, places_of(packet).transaction_header)
        self._check(packet, headers, number, previous)
        if headers.session_header is not None:
            packet = without_session_header(packet)
        self.received += 1
        if mode:
            self.recoverable_received += 1
        queue, address, kind = headers.destination_queue, headers.queue_manager_address, flags >> _DQ & 7
        destination = self._destination
        if queue != self._queue or address != destination.address or kind != destination.kind:
            destination = self._destination = DestinationName(address, kind, _name(kind, queue))
            self._queue = queue
        sent_time, message_id = read_own_fields(packet)
        if not headers.base_flags & ~_PRIORITY and not headers.user_flags & _UNUSUAL:
            plain = headers.message_class == _NORMAL and not headers.has_protection
            shape = (_PlainShape if plain else _ExactShape)(packet, headers, destination, places_of(packet))
            self._shape = None if shape.has_connector else shape
        return ReceivedMessage(
            packet,
            self.received,
            self.recoverable_received,
            headers,
            destination,
            sent_time,
            message_id,
            number,
            previous,
        )

    def _check(self, packet: bytes, headers: ReceivedHeaders, number: int, previous: int) -> None:
        """Refuse a packet that breaks a rule, even in a part that is not needed now: 3.1.5.1.3."""
        traits = None
        unusual = headers.user_flags & _RARE or headers.base_flags & _DEBUG or headers.has_protection
        if not unusual and previous <= number:
            traits = (
                headers.base_flags & _WITHOUT_SESSION,
                headers.user_flags,
                headers.message_class,
                headers.privacy_level,
                label_length(packet, places_of(packet).properties),
                headers.source_queue_manager == ZERO_GUID,
                previous == number,
                headers.security_flags,
                headers.security_id,
            )
            if traits in self._sound:
                return
        message = UserMessage.parse(packet)
        found = violation(message)
        if found is not None:
            raise RemoteProtocolError(found.section, f"{found.structure}.{found.field}: {found.sentence}")
        if traits is not None:
            if len(self._sound) >= _KINDS_KEPT:
                self._sound.clear()
            self._sound.add(traits)


def destination_of(packet: bytes) -> DestinationName:
    """The destination of a stored packet. Rules are not checked: an earlier release, or decryption, may break one.

    Raises PacketError for a packet whose headers cannot be parsed.
    """
    headers = _parse(packet)
    kind = headers.user_flags >> _DQ & 7
    return DestinationName(headers.queue_manager_address, kind, _name(kind, headers.destination_queue))


def _name(kind: int, queue: bytes) -> bytes:
    """A queue name from its bytes. The padding of a direct name may have any content and is not part of the name."""
    if kind != DIRECT:
        return queue
    return direct_name_in(queue)
