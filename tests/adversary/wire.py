"""Packets as MS-MQQB and MS-MQMQ describe them, byte by byte, without the code that they are to test.

Nothing of qmnode is imported here: what an attacker, or a queue manager of another make, puts on the wire does not
depend on what ours would write. All integers are little-endian.
"""

from __future__ import annotations

import struct
import time
import uuid
from dataclasses import dataclass

SIGNATURE = 0x524F494C
INFINITE = 0xFFFF_FFFF
NOBODY = bytes(16)
EXPRESS, RECOVERABLE = 0, 1
DEFAULT_PRIORITY = 3

# BaseHeader.Flags (MS-MQMQ 2.2.19.1)
INTERNAL, WITH_SESSION_HEADER, WITH_DEBUG_HEADER, TRACED = 0x08, 0x10, 0x20, 0x100

# InternalHeader.Flags.PT (2.2.1)
SESSION_ACK, ESTABLISH_CONNECTION, CONNECTION_PARAMETERS = 1, 2, 3
REFUSED = 0x10

# UserHeader.Flags (MS-MQMQ 2.2.19.2)
DEAD_LETTER, JOURNAL = 1 << 8, 1 << 9
WITH_SECURITY, WITH_TRANSACTION, WITH_PROPERTIES = 1 << 19, 1 << 20, 1 << 21
_DELIVERY, _DESTINATION, _ADMINISTRATION, _RESPONSE = 5, 10, 13, 16

# MessagePropertiesHeader.Flags (MS-MQMQ 2.2.19.3)
ACK_ARRIVAL, ACK_RECEIPT, NACK_ARRIVAL, NACK_RECEIPT = 1, 2, 4, 8

# Message classes (MS-MQMQ 2.2.18.1.6)
NORMAL, ORDER_ACK = 0x0000, 0x00FF
ACK_REACH_QUEUE, ACK_RECEIVE = 0x0002, 0x4000
BAD_DESTINATION, PURGED, REACH_QUEUE_TIMEOUT = 0x8000, 0x8001, 0x8002
HOP_COUNT_EXCEEDED, NOT_TRANSACTIONAL_QUEUE, ACCESS_DENIED = 0x8005, 0x8009, 0x8004
RECEIVE_TIMEOUT, QUEUE_DELETED = 0xC002, 0xC000


def identifier() -> bytes:
    """A GUID that nobody has."""
    return uuid.uuid4().bytes_le


@dataclass(frozen=True)
class Name:
    """A queue as a UserHeader names it: what Flags.DQ, AQ or RQ is, and the bytes."""

    kind: int
    data: bytes


def direct(name: str) -> Name:
    """DirectQueueFormatName (MS-MQMQ 2.2.18.1.5.2), without ``DIRECT=``; padded by the header's beginning, which is a
    multiple of four bytes away from each name."""
    text = f"{name}\0".encode("utf-16-le")
    data = struct.pack("<H", len(text)) + text
    return Name(7, data + bytes(-len(data) % 4))


def private(number: int, kind: int = 3) -> Name:
    """PrivateQueueFormatNameId (2.2.18.1.5.1): of the destination host, or for AQ and RQ 2 of the source host."""
    return Name(kind, struct.pack("<I", number))


def public(queue: bytes) -> Name:
    """PublicQueueFormatName (2.2.18.1.7.1)."""
    return Name(5, queue)


ORDER_QUEUE = private(4)


@dataclass(frozen=True)
class Place:
    """A transactional message's place: TransactionHeader (MS-MQMQ 2.2.20.5)."""

    sequence: int
    """Ordinal in the low half, TimeStamp in the high half."""
    number: int
    previous: int
    flags: int = 0

    def header(self) -> bytes:
        return struct.pack("<IQII", self.flags, self.sequence, self.number, self.previous)


FORGED = "forged"
"""The label of an attacker's messages where it has to be told which are his; as long as that of honest ones."""


@dataclass(frozen=True, kw_only=True)
class UserMessage:
    """A UserMessage packet (MS-MQMQ 2.2.20). Whatever a test does not say has a harmless value."""

    source: bytes
    message_id: int
    queue: Name
    address: bytes = NOBODY
    """QueueManagerAddress."""
    delivery: int = RECOVERABLE
    place: Place | None = None
    body: bytes = b"forged"
    label: str = ""
    message_class: int = NORMAL
    correlation: bytes = bytes(20)
    reach: int = INFINITE
    received: int = INFINITE
    sent: int | None = None
    """SentTime; now if it is None."""
    flags: int = 0
    """Further bits of UserHeader.Flags."""
    base_flags: int = 0
    """Further bits of BaseHeader.Flags."""
    priority: int = 0
    hops: int = 0
    asks: int = 0
    """MessagePropertiesHeader.Flags."""
    admin: Name | None = None
    response: Name | None = None
    security: bytes = b""
    """A complete SecurityHeader, if any."""
    privacy: int = 0
    hash_algorithm: int = 0x800E
    encryption_algorithm: int = 0x6610
    body_type: int = 0
    session_header: bytes = b""
    rest: bytes = b""
    """What stands behind the MessagePropertiesHeader."""

    def packet(self) -> bytes:
        """Its bytes."""
        parts = [self._user_header()]
        if self.place is not None:
            parts.append(self.place.header())
        parts += [self.security, self._properties_header(), self.rest]
        content = b"".join(parts)
        flags = self.priority | self.base_flags | (WITH_SESSION_HEADER if self.session_header else 0)
        header = base_header(flags, 16 + len(content), self.reach)
        return header + content[: len(content) - len(self.rest)] + self.session_header + self.rest

    def _user_header(self) -> bytes:
        flags = self.flags | self.hops | WITH_PROPERTIES | self.delivery << _DELIVERY | self.queue.kind << _DESTINATION
        flags |= WITH_TRANSACTION if self.place is not None else 0
        flags |= WITH_SECURITY if self.security else 0
        names = self.queue.data
        for name, shift in ((self.admin, _ADMINISTRATION), (self.response, _RESPONSE)):
            if name is not None:
                flags |= name.kind << shift
                names += name.data
        sent = int(time.time()) if self.sent is None else self.sent
        numbers = struct.pack("<IIII", self.received, sent, self.message_id, flags)
        header = self.source + self.address + numbers + names
        return header + bytes(-len(header) % 4)

    def _properties_header(self) -> bytes:
        label = f"{self.label}\0".encode("utf-16-le") if self.label else b""
        header = struct.pack("<BBH", self.asks, len(label) // 2, self.message_class) + self.correlation
        header += struct.pack("<IIII", self.body_type, 0, len(self.body), len(self.body))
        header += struct.pack("<IIII", self.privacy, self.hash_algorithm, self.encryption_algorithm, 0)
        header += label + self.body
        return header + bytes(-len(header) % 4)


def order_ack(author: bytes, message_id: int, target: bytes | str, sequence: int, number: int) -> bytes:
    """OrderAck (2.2.4). ``target``: a queue manager by its GUID, or the address of one behind a direct name."""
    body = struct.pack("<QII", sequence, number, number - 1) + bytes(20)
    return _acknowledgment(author, message_id, target, ORDER_ACK, body, EXPRESS)


def final_ack(
    author: bytes, message_id: int, target: bytes | str, message_class: int, place: Place, source: bytes, about: int
) -> bytes:
    """FinalAck (2.2.5) about the message ``about`` of the queue manager ``source``."""
    body = struct.pack("<QII", place.sequence, place.number, place.previous) + source + struct.pack("<I", about)
    return _acknowledgment(author, message_id, target, message_class, body, RECOVERABLE)


def _acknowledgment(
    author: bytes, message_id: int, target: bytes | str, message_class: int, body: bytes, delivery: int
) -> bytes:
    if isinstance(target, str):
        queue, address = direct(rf"TCP:{target}\PRIVATE$\order_queue$"), NOBODY
    else:
        queue, address = ORDER_QUEUE, target
    return UserMessage(
        source=author,
        address=address,
        message_id=message_id,
        queue=queue,
        delivery=delivery,
        message_class=message_class,
        label="QM Ordering Ack",
        body=body,
    ).packet()


def base_header(flags: int, size: int, reach: int = INFINITE) -> bytes:
    """BaseHeader (MS-MQMQ 2.2.19.1)."""
    return struct.pack("<BBHIII", 0x10, 0, flags, SIGNATURE, size, reach)


def internal(kind: int, content: bytes, *, refused: bool = False, flags: int = 0) -> bytes:
    """A packet of the protocol's own (2.2.1)."""
    header = base_header(INTERNAL | DEFAULT_PRIORITY | flags, 20 + len(content))
    return header + struct.pack("<HH", 0, kind | (REFUSED if refused else 0)) + content


def establish_connection(
    client: bytes, server: bytes = NOBODY, *, stamp: int = 0, refused: bool = False, system: int = 0x0310
) -> bytes:
    """EstablishConnection (2.2.3), a request or an answer."""
    content = client + server + struct.pack("<IHH", stamp, system, 0) + b"\x5a" * 512
    return internal(ESTABLISH_CONNECTION, content, refused=refused)


def connection_parameters(*, recoverable: int = 500, acknowledgment: int = 0x1D4C0, window: int = 64) -> bytes:
    """ConnectionParameters (2.2.2); times in milliseconds."""
    return internal(CONNECTION_PARAMETERS, struct.pack("<IIHH", recoverable, acknowledgment, 0, window))


def session_header(
    received: int, recoverable: int = 0, bits: int = 0, *, sent: int = 0, recoverable_sent: int = 0, window: int = 64
) -> bytes:
    """SessionHeader (MS-MQMQ 2.2.20.4)."""
    return struct.pack("<HHIHHHH", received, recoverable, bits, sent, recoverable_sent, window, 0)


def session_ack(received: int, recoverable: int = 0, bits: int = 0, **more: int) -> bytes:
    """SessionAck (2.2.6)."""
    return internal(SESSION_ACK, session_header(received, recoverable, bits, **more), flags=WITH_SESSION_HEADER)


@dataclass(frozen=True)
class Packet:
    """A packet that came, as far as a peer has to read it."""

    data: bytes

    @property
    def flags(self) -> int:
        """BaseHeader.Flags."""
        return int.from_bytes(self.data[2:4], "little")

    @property
    def kind(self) -> int:
        """InternalHeader.Flags.PT; 0 for a UserMessage."""
        return self.data[18] & 0xF if self.flags & INTERNAL else 0

    @property
    def is_refusal(self) -> bool:
        """InternalHeader.Flags.CS."""
        return bool(self.data[18] & REFUSED)

    @property
    def source(self) -> bytes:
        """UserHeader.SourceQueueManager."""
        return self.data[16:32]

    @property
    def address(self) -> bytes:
        """UserHeader.QueueManagerAddress."""
        return self.data[32:48]

    @property
    def message_id(self) -> int:
        """UserHeader.MessageID."""
        return self._number(56)

    @property
    def user_flags(self) -> int:
        """UserHeader.Flags."""
        return self._number(60)

    @property
    def place(self) -> Place:
        """TransactionHeader."""
        flags, sequence, number, previous = struct.unpack_from("<IQII", self.data, self._after_names())
        return Place(sequence, number, previous, flags)

    @property
    def message_class(self) -> int:
        """MessagePropertiesHeader.MessageClass."""
        return int(struct.unpack_from("<H", self.data, self._properties() + 2)[0])

    @property
    def correlation(self) -> bytes:
        """MessagePropertiesHeader.CorrelationID: of an acknowledgment, the source and the identifier of its message."""
        at = self._properties() + 4
        return self.data[at : at + 20]

    @property
    def body(self) -> bytes:
        """MessagePropertiesHeader.MessageBody."""
        at = self._properties()
        labels, size, extension = self.data[at + 1], self._number(at + 32), self._number(at + 52)
        begin = at + 56 + 2 * labels + extension
        return self.data[begin : begin + size]

    @property
    def label(self) -> str:
        """MessagePropertiesHeader.Label."""
        at = self._properties()
        return self.data[at + 56 : at + 56 + 2 * self.data[at + 1]].decode("utf-16-le").rstrip("\0")

    @property
    def session(self) -> tuple[int, int, int, int, int, int]:
        """SessionHeader of a SessionAck: received, recoverable, bits, sent, recoverable sent, window."""
        found: tuple[int, int, int, int, int, int] = struct.unpack_from("<HHIHHH", self.data, 20)
        return found

    def _number(self, at: int) -> int:
        return int.from_bytes(self.data[at : at + 4], "little")

    def _after_names(self) -> int:
        at = 64
        for shift in (_DESTINATION, _ADMINISTRATION, _RESPONSE):
            kind = self.user_flags >> shift & 7
            if kind in (2, 3, 4):
                at += 4
            elif kind == 5:
                at += 16
            elif kind == 6:
                at += 20
            elif kind == 7:
                size = 2 + int.from_bytes(self.data[at : at + 2], "little")
                at += size + -size % 4
        return at

    def _properties(self) -> int:
        """Where the MessagePropertiesHeader begins."""
        at = self._after_names() + (20 if self.user_flags & WITH_TRANSACTION else 0)
        if not self.user_flags & WITH_SECURITY:
            return at
        sizes = struct.unpack_from("<HHHII", self.data, at + 2)
        return at + 16 + sum(size + -size % 4 for size in sizes)


def next_packet(data: bytes) -> tuple[Packet, bytes] | None:
    """The first packet of a stream and what follows it; None while it is not complete. PacketSize of a UserMessage does
    not count its SessionHeader."""
    if len(data) < 16:
        return None
    flags, _, size = struct.unpack_from("<HII", data, 2)
    if flags & WITH_SESSION_HEADER and not flags & INTERNAL:
        size += 16
    return (Packet(data[:size]), data[size:]) if len(data) >= size else None
