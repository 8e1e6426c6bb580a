"""Received packets: cut from the stream of a connection (2.1.1, 3.1.5.1.2); UserMessage packets are validated
completely and parsed as far as the protocol acts on them, and acknowledged (3.1.1.4, 3.1.5.8.2, 3.1.5.8.7, 3.1.6.4).

A message is *settled* when all its effects are on disk, or when it was dropped. Only settled messages are acknowledged,
both in AckSequenceNumber and in the recoverable flags. So no acknowledgment covers a write that was not synced, and the
peer's window is the back-pressure of this side's disk.
"""

from hashlib import sha256
from typing import Final, NamedTuple

from qmnode.allocator import LENT_FROM, filled, lend
from qmnode.protocol.wire import WORD, LocalProtocolError, RemoteProtocolError
from qmnode.structures.conformance import violation
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.errors import PacketError
from qmnode.structures.guid import ZERO_GUID, Guid
from qmnode.structures.names import DirectFormatName, FormatName, PrivateFormatName, PublicFormatName, fold
from qmnode.structures.packet_view import (
    ADDRESS,
    NAMES_AT,
    Packet,
    Places,
    Shape,
    direct_name_in,
    places_of,
    read_base_header,
    read_own_fields,
    read_transaction_header,
    user_flags_of,
    without_session_header,
)
from qmnode.structures.packets import BASE_HEADER_SIZE, SESSION_HEADER_SIZE, is_order_queue
from qmnode.structures.user_message import (
    SIGNATURE,
    VERSION,
    BaseFlags,
    DirectQueueFormatName,
    PrivateQueueFormatNameId,
    SecurityFlags,
    SessionHeader,
    TransactionFlags,
    UserFlags,
    UserMessage,
)

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
_DIGEST: Final = 0x80 | DIRECT
"""In its place, where a digest stands for a direct format name."""
LONGEST_NAME: Final = 2048
"""Bytes of a name, more than any queue's: a stranger may send 64 KB of them with each message."""


class ReceivedHeaders(NamedTuple):
    """The header fields that the protocol decides by. Fields that differ from message to message are in
    ReceivedMessage, so that consecutive messages usually share these.
    """

    base_flags: int
    time_to_reach_queue: int
    source_queue_manager: Guid
    user_flags: int
    tx_sequence_id: int | None
    """None if the message is not transactional."""
    property_flags: int
    message_class: int
    has_protection: bool
    """Whether something is to be decrypted, verified or cleared. A SecurityHeader that only names the sender, as
    Windows writes it for unsigned messages, needs none of that.
    """
    is_signed: bool
    claimed_sender: bytes
    """The SID that the packet names as its sender; empty if it names none."""


def _headers_of(message: UserMessage) -> ReceivedHeaders:
    base, user, properties = message.base_header, message.user_header, message.message_properties_header
    transaction, security = message.transaction_header, message.security_header
    protected, signed, sender = False, False, b""
    if security is not None:
        signed = bool(security.signature)
        parts = signed or security.encryption_key or security.sender_cert or security.provider_info
        protected = bool(security.flags & _PROTECTED or parts or user.flags & _SEVERAL)
        if security.flags & _SENDER_TYPE == _SID:
            sender = security.security_id
    return ReceivedHeaders(
        base.flags,
        base.time_to_reach_queue,
        user.source_queue_manager,
        user.flags,
        None if transaction is None else transaction.tx_sequence_id,
        properties.flags,
        properties.message_class,
        protected,
        signed,
        sender,
    )


class DestinationName(NamedTuple):
    """A destination as the sender named it: the basis of its incoming sequence and its resolution."""

    address: Guid
    """UserHeader.QueueManagerAddress; null for a direct format name."""
    kind: int
    """UserHeader.Flags.DQ: 3 private, 5 public, 7 direct, 0 none."""
    name: bytes
    """Private: the number, little-endian. Public: the GUID. Direct: UTF-16-LE with its null, without ``DIRECT=``."""

    def key(self) -> bytes:
        """The bytes that identify it in records: the same for all spellings that are one outgoing queue at a sender.
        Of a name that is longer than any queue's, a digest.
        """
        name = self.name
        if self.kind == DIRECT:
            name = fold(name.decode("utf-16-le", "surrogatepass")).encode("utf-16-le", "surrogatepass")
            if len(name) > LONGEST_NAME:
                return bytes((_DIGEST,)) + sha256(name).digest()
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
    session_header: SessionHeader | None = None

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


_new = tuple.__new__
_NORMAL: Final = MessageClass.MQMSG_CLASS_NORMAL.value
_CG: Final = TransactionFlags.CG.mask
_OPTIONS: Final = _CG | TransactionFlags.FA.mask
_PRIORITY: Final = BaseFlags.PR.mask
_UNUSUAL: Final = UserFlags.CQ.mask | UserFlags.MQ.mask | UserFlags.HH.mask | UserFlags.AH.mask
_RARE: Final = UserFlags.MQ.mask | UserFlags.HH.mask
_DEBUG: Final = BaseFlags.DH.mask
_WITHOUT_SESSION: Final = ~BaseFlags.SH.mask
_KINDS_KEPT: Final = 256
_LARGEST_EXAMPLE: Final = 16 * 1024
"""Bytes of headers above which a packet is no example: a session keeps those of its example, and may have megabytes."""


class MessageReader:
    """Turns packets into received messages, and counts them."""

    __slots__ = ("_destination", "_shape", "_shared", "_sound", "received", "recoverable_received")

    def __init__(self) -> None:
        self.received = 0
        """MessageReceivedCount without its wrap-around."""
        self.recoverable_received = 0
        """RecoverableMessageReceivedCount without its wrap-around."""
        self._destination: DestinationName | None = None
        """Of the last message that was read whole, unless its headers are large."""
        self._shape: Shape | None = None
        """Applications send many similar messages: those like the last one with a shape are not parsed."""
        self._shared: tuple[ReceivedHeaders, DestinationName, int, int]
        """The fields that messages of this shape share. The last two: 1 if they are recoverable, and the flags of their
        TransactionHeaders that must be the same.
        """
        self._sound: set[tuple[object, ...]] = set()
        """The fields that the rules check, of valid messages without rare headers."""

    def read(self, packet: Packet) -> ReceivedMessage:
        """Read a message. Raises RemoteProtocolError for anything that does not conform (3.1.5.1.3)."""
        shape = self._shape
        if shape is None or not shape.fits(packet):
            return self._read_whole(bytes(packet))
        headers, destination, recoverable, options = self._shared
        number = previous = 0
        if headers.tx_sequence_id is not None:
            packet = bytes(packet)
            flags, identifier, number, previous = read_transaction_header(packet, shape.places.transaction_header)
            if identifier != headers.tx_sequence_id or flags & _OPTIONS != options or previous >= number:
                return self._read_whole(packet)
        elif shape.exact:
            packet = bytes(packet)
        self.received += 1
        self.recoverable_received += recoverable
        sent_time, message_id = read_own_fields(packet)
        return _new(
            ReceivedMessage,
            (
                packet,
                self.received,
                self.recoverable_received,
                headers,
                destination,
                sent_time,
                message_id,
                number,
                previous,
                None,
            ),
        )

    def _read_whole(self, packet: bytes) -> ReceivedMessage:
        try:
            message = UserMessage.parse(packet)
        except PacketError as error:
            raise RemoteProtocolError("3.1.5.1.3", str(error)) from error
        flags, transaction = message.user_header.flags, message.transaction_header
        mode = flags & _DM
        if mode > _RECOVERABLE or (not mode and transaction is not None):
            raise RemoteProtocolError("MS-MQMQ 2.2.19.2", "no known delivery mode, or transactional and express")
        headers = _headers_of(message)
        number = previous = options = 0
        if transaction is not None:
            number, previous = transaction.tx_sequence_number, transaction.previous_tx_sequence_number
            options = transaction.flags & _OPTIONS
        self._check(message, headers, number, previous)
        places = places_of(packet)
        destination = _destination(packet, places)
        if destination == self._destination:
            destination = self._destination
        self._destination = destination if places.properties <= _LARGEST_EXAMPLE else None
        if message.session_header is not None:
            packet = without_session_header(packet)
        recoverable = int(mode > 0)
        self.received += 1
        self.recoverable_received += recoverable
        if not headers.base_flags & ~_PRIORITY and not flags & _UNUSUAL:
            exact = headers.message_class != _NORMAL or headers.has_protection
            # A longer TransactionHeader is no example for other packets.
            is_example = not options & _CG and places.properties <= _LARGEST_EXAMPLE
            self._shape = Shape(packet, places, exact=exact) if is_example else None
            self._shared = headers, destination, recoverable, options
        return ReceivedMessage(
            packet,
            self.received,
            self.recoverable_received,
            headers,
            destination,
            message.user_header.sent_time,
            message.user_header.message_id,
            number,
            previous,
            message.session_header,
        )

    def _check(self, message: UserMessage, headers: ReceivedHeaders, number: int, previous: int) -> None:
        """Refuse a packet that breaks a rule, even in a part that is not needed now: 3.1.5.1.3."""
        traits, security, properties = None, message.security_header, message.message_properties_header
        unusual = headers.user_flags & _RARE or headers.base_flags & _DEBUG or headers.has_protection
        if not unusual and previous <= number:
            traits = (
                headers.base_flags & _WITHOUT_SESSION,
                headers.user_flags,
                headers.message_class,
                properties.privacy_level,
                properties.label_length,
                headers.source_queue_manager == ZERO_GUID,
                previous == number,
                None if security is None else (security.flags, security.security_id),
            )
            if traits in self._sound:
                return
        found = violation(message)
        if found is not None:
            raise RemoteProtocolError(found.section, f"{found.structure}.{found.field}: {found.sentence}")
        if traits is not None:
            if len(self._sound) >= _KINDS_KEPT:
                self._sound.clear()
            self._sound.add(traits)


FLAG_COUNT: Final = 32
"""The number of bits of RecoverableMsgAckFlags."""


class ReceiveSequence(MessageReader):
    """Reads and counts received messages, and tracks which may be acknowledged. Counts never wrap here."""

    __slots__ = ("acknowledged", "recoverable_acknowledged", "recoverable_settled", "settled")

    def __init__(self) -> None:
        super().__init__()
        self.settled = 0
        self.recoverable_settled = 0
        self.acknowledged = 0
        """The count of settled messages in the last SessionHeader."""
        self.recoverable_acknowledged = 0
        """LastAckedRecoverableMsgSeqNumber without its wrap-around."""

    def unacknowledged(self) -> int:
        """UnackedReceivedMsgCount: received messages that no SessionHeader has acknowledged."""
        return self.received - self.acknowledged

    def due(self) -> int:
        """The number of settled messages that an acknowledgment sent now would cover."""
        return self.settled - self.acknowledged

    def settle(self, count: int, recoverable: int) -> None:
        """Everything up to message ``count`` and recoverable message ``recoverable`` is settled."""
        if not self.settled <= count <= self.received:
            raise LocalProtocolError(f"message {count} cannot be settled: {self.settled} are, {self.received} came")
        if not self.recoverable_settled <= recoverable <= self.recoverable_received:
            raise LocalProtocolError(
                f"recoverable message {recoverable} cannot be settled: {self.recoverable_settled} are, "
                f"{self.recoverable_received} came"
            )
        self.settled = count
        self.recoverable_settled = recoverable

    def check_counts(self, sent: int, recoverable_sent: int) -> None:
        """Compare the peer's counts (16 bits) with the messages received: 3.1.5.5.5."""
        if sent != self.received & WORD:
            raise RemoteProtocolError("3.1.5.5.5", f"the peer says that it sent {sent} messages, {self.received} came")
        if recoverable_sent != self.recoverable_received & WORD:
            raise RemoteProtocolError(
                "3.1.5.5.5",
                f"the peer says that it sent {recoverable_sent} recoverable messages, {self.recoverable_received} came",
            )

    def acknowledge(self) -> tuple[int, int, int]:
        """The acknowledging fields of the next SessionHeader: AckSequenceNumber, RecoverableMsgAckSeqNumber and -Flags.

        At most 32 recoverable messages go into one; while ``more`` is true another header is needed.
        """
        first = self.recoverable_acknowledged + 1
        count = min(self.recoverable_settled - self.recoverable_acknowledged, FLAG_COUNT)
        self.acknowledged = self.settled
        if not count:
            return self.settled & WORD, 0, 0
        self.recoverable_acknowledged += count
        return self.settled & WORD, first & WORD, (1 << count) - 1

    def more(self) -> bool:
        """Whether settled recoverable messages remain that no header has acknowledged."""
        return self.recoverable_settled > self.recoverable_acknowledged


def destination_of(packet: bytes) -> DestinationName:
    """The destination of a stored packet. Rules are not checked: an earlier release, or decryption, may break one.

    Raises PacketError for a packet whose headers cannot be parsed.
    """
    UserMessage.parse(packet)
    return _destination(packet, places_of(packet))


def _destination(packet: bytes, places: Places) -> DestinationName:
    """The destination of a sound packet. The padding of a direct name may have any content and is not part of it."""
    kind, queue = user_flags_of(packet) >> _DQ & 7, packet[NAMES_AT : places.admin_queue]
    return DestinationName(Guid(packet[ADDRESS]), kind, direct_name_in(queue) if kind == DIRECT else queue)
