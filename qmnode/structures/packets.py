"""Every kind of packet (MS-MQQB 2.2): identified, its end in a stream found, and those beside UserMessage declared."""

from enum import Enum, IntEnum
from struct import Struct
from typing import Final

from qmnode.structures.enumerations import MessageClass, is_receive_acknowledgment
from qmnode.structures.errors import PacketError
from qmnode.structures.fields import Flags, bits, const16, guid, nested, raw, u16, u32, u64
from qmnode.structures.guid import Guid
from qmnode.structures.layout import Buffer, Structure, codes_of, size_of
from qmnode.structures.user_message import (
    MAX_PACKET_SIZE,
    SIGNATURE,
    VERSION,
    BaseFlags,
    BaseHeader,
    DirectQueueFormatName,
    MessagePropertiesHeader,
    PrivateQueueFormatNameId,
    SessionHeader,
    UserFlags,
    UserHeader,
    UserMessage,
)

# ----------------------------------------------------------------------------------------------------------------------
# Packets that open a session and acknowledge on it (MS-MQQB 2.2.1 to 2.2.3, 2.2.6).


class InternalPacketType(IntEnum):
    """The type of an internal packet: InternalHeader.Flags.PT."""

    SESSION_ACK = 1
    ESTABLISH_CONNECTION = 2
    CONNECTION_PARAMETERS = 3


RESPONSE_PADDING: Final = b"\x5a" * 512
"""The content of the padding in an EstablishConnection response."""

_BASE = BaseHeader(flags=BaseFlags.of(PR=3, IN=1))


# fmt: off
class InternalFlags(Flags, width=16):
    """Type of packet and state of the connection. X bits are reserved: kept as they are, ignored."""

    PT = bits(0, 4, "Type of packet", values={kind.value: kind.name for kind in InternalPacketType})
    CS = bits(4, 1, "The connection is refused")
    X  = bits(5, 11, "Reserved (X5 to X15)")


class InternalHeader(Structure, section="MS-MQQB 2.2.1"):
    """The kind of an internal packet. The packet that contains it sets the type."""

    reserved: int = u16(0, "Reserved", "0, ignored", default=0)
    flags: int    = u16(2, "Flags", "Type of packet, state of the connection", bits=InternalFlags, default=0)


class OperatingSystemFlags(Flags, width=16):
    """Flags of EstablishConnectionHeader. X bits are unused: kept as they are, ignored."""

    RE  = bits(0, 8, "Reserved, 0x10", allowed=(0x10,))
    SE  = bits(8, 1, "No ping was sent before the session")
    OS  = bits(9, 1, "The initiator's operating system is of the server class")
    QS  = bits(10, 1, "The transport has guaranteed quality of service")
    X11 = bits(11, 5, "Unused (X11 to X15)")


class EstablishConnectionHeader(Structure, section="MS-MQQB 2.2.3.1"):
    """The two queue managers of a session, and its options."""

    client_guid: Guid     = guid(0, "ClientGuid", "The initiator's queue manager")
    server_guid: Guid     = guid(16, "ServerGuid", "The acceptor's; zero in a request by direct name")
    time_stamp: int       = u32(32, "TimeStamp", "Milliseconds since the initiator started; sent back as it is")
    operating_system: int = u16(36, "OperatingSystem", "Options", bits=OperatingSystemFlags,
                                default=OperatingSystemFlags.of(RE=0x10, SE=1))
    reserved: int         = u16(38, "Reserved", "0, ignored", default=0)
    padding: bytes        = raw(40, 512, "Padding", "0x5A in a response, anything in a request",
                                default=RESPONSE_PADDING)


class ConnectionParametersHeader(Structure, section="MS-MQQB 2.2.2.1"):
    """Acknowledgment timeouts and window of a session."""

    recoverable_ack_timeout: int = u32(0, "RecoverableAckTimeout", "Milliseconds before recoverable messages are "
                                       "acknowledged", allowed=range(0x1F4, 0x1D4C1))
    ack_timeout: int             = u32(4, "AckTimeout", "Milliseconds to wait for a SessionAck",
                                       allowed=range(0x4E20, 0x1D4C1))
    reserved: int                = u16(8, "Reserved", "0, ignored", default=0)
    window_size: int             = u16(10, "WindowSize", "Messages that may wait for acknowledgment")


class EstablishConnection(
    Structure, section="MS-MQQB 2.2.3", title="EstablishConnection Packet", total="base_header.packet_size",
    requires={"base_header.flags.IN": 1, "internal_header.flags.PT": InternalPacketType.ESTABLISH_CONNECTION},
):
    """Requests a session, or answers the request."""

    base_header: BaseHeader         = nested(0, BaseHeader, "Size and options of the packet", default=_BASE)
    internal_header: InternalHeader = nested(16, InternalHeader, "PT is 2", default=InternalHeader())
    establish_connection_header: EstablishConnectionHeader = nested(
        20, EstablishConnectionHeader, "Who wants to speak with whom")


class ConnectionParameters(
    Structure, section="MS-MQQB 2.2.2", title="ConnectionParameters Packet", total="base_header.packet_size",
    requires={"base_header.flags.IN": 1, "internal_header.flags.PT": InternalPacketType.CONNECTION_PARAMETERS},
):
    """Agrees on acknowledgment timeouts and window."""

    base_header: BaseHeader         = nested(0, BaseHeader, "Size and options of the packet", default=_BASE)
    internal_header: InternalHeader = nested(16, InternalHeader, "PT is 3", default=InternalHeader())
    connection_parameters_header: ConnectionParametersHeader = nested(
        20, ConnectionParametersHeader, "Acknowledgment timeouts and window")


class SessionAck(
    Structure, section="MS-MQQB 2.2.6", title="SessionAck Packet", total="base_header.packet_size",
    requires={"base_header.flags.IN": 1, "base_header.flags.SH": 1,
              "internal_header.flags.PT": InternalPacketType.SESSION_ACK},
):
    """Acknowledges messages of a session. PacketSize counts its SessionHeader (frame 8 of MS-MQQB 4.1.8)."""

    base_header: BaseHeader         = nested(0, BaseHeader, "Size and options of the packet", default=_BASE)
    internal_header: InternalHeader = nested(16, InternalHeader, "PT is 1", default=InternalHeader())
    session_header: SessionHeader   = nested(20, SessionHeader, "What is acknowledged")
# fmt: on


Packet = UserMessage | EstablishConnection | ConnectionParameters | SessionAck

BASE_HEADER_SIZE: Final = size_of(BaseHeader)
SESSION_HEADER_SIZE: Final = size_of(SessionHeader)
_LEAST: Final = BASE_HEADER_SIZE + 4

_INTERNAL: Final[dict[int, type[EstablishConnection | ConnectionParameters | SessionAck]]] = {
    InternalPacketType.SESSION_ACK: SessionAck,
    InternalPacketType.ESTABLISH_CONNECTION: EstablishConnection,
    InternalPacketType.CONNECTION_PARAMETERS: ConnectionParameters,
}
_INTERNAL_BIT: Final = BaseFlags.IN.mask
_SESSION_BIT: Final = BaseFlags.SH.mask


def packet_size(buffer: Buffer, offset: int = 0, limit: int = MAX_PACKET_SIZE) -> int | None:
    """The size in bytes of the packet at ``offset`` of a stream, or None while its BaseHeader is incomplete.

    A UserMessage with a SessionHeader takes 16 bytes more than PacketSize (MS-MQMQ 2.2.19.1), an internal packet does
    not (frame 8 of MS-MQQB 4.1.8). Raises PacketError if this is no packet, or one of more than ``limit`` bytes.
    """
    if len(buffer) - offset < BASE_HEADER_SIZE:
        _reject_early(buffer, offset)
        return None
    header, _ = BaseHeader.parse_from(buffer, offset)
    size = header.packet_size
    if not _LEAST <= size <= limit:
        sentence = f"a packet of {size} bytes; from {_LEAST} to {limit} are accepted"
        raise PacketError("BaseHeader", "PacketSize", offset + 8, sentence)
    with_session = header.flags & (_INTERNAL_BIT | _SESSION_BIT) == _SESSION_BIT
    return size + SESSION_HEADER_SIZE if with_session else size


def _reject_early(buffer: Buffer, offset: int) -> None:
    """Raise if the bytes so far already show that this is no packet: do not wait for the rest."""
    there = bytes(buffer[offset : offset + 8])
    if there[:1] not in (b"", bytes([VERSION])):
        raise PacketError("BaseHeader", "VersionNumber", offset, f"must be 0x{VERSION:02X}, is 0x{there[0]:02X}")
    expected = SIGNATURE.to_bytes(4, "little")
    if not expected.startswith(there[4:]):
        raise PacketError("BaseHeader", "Signature", offset + 4, f"must be LIOR, is {there[4:].hex()}")


def read_packet(buffer: Buffer) -> Packet:
    """Parse ``buffer`` as one packet. OrderAck and FinalAck packets are UserMessages: see ``acks.py``.

    Raises PacketError for anything else, also when PacketSize differs from the number of bytes.
    """
    if len(buffer) > 2 and not buffer[2] & _INTERNAL_BIT:
        return UserMessage.parse(buffer)
    _, end = BaseHeader.parse_from(buffer)
    internal, _ = InternalHeader.parse_from(buffer, end)
    kind = _INTERNAL.get(InternalFlags.PT.get(internal.flags))
    if kind is None:
        sentence = f"PT is {InternalFlags.PT.get(internal.flags)}, which is no type of packet"
        raise PacketError("InternalHeader", "Flags", end + 2, sentence)
    return kind.parse(buffer)


# ----------------------------------------------------------------------------------------------------------------------
# OrderAck and FinalAck packets (MS-MQQB 2.2.4, 2.2.5): UserMessages to the order queue.

ORDER_ACK_LABEL: Final = "QM Ordering Ack"
ORDER_QUEUE_NAME: Final = r"\PRIVATE$\order_queue$"
ORDER_QUEUE: Final = PrivateQueueFormatNameId(private_queue_identifier=4)
ACK_BODY_SIZE: Final = 0x24
_NEGATIVE: Final = 0x8000


class MessageKind(Enum):
    """The kind of a UserMessage for the protocol (MS-MQQB 3.1.5.1.1)."""

    USER_MESSAGE = "UserMessage Packet"
    ORDER_ACK = "OrderAck Packet"
    FINAL_ACK = "FinalAck Packet"


# fmt: off
class OrderAckBody(Structure, section="MS-MQQB 2.2.4.1", title="OrderAck Body"):
    """The last transactional message received in order. ``tx_sequence_id`` is a TxSequenceID as one integer."""

    tx_sequence_id: int              = u64(0, "TxSequenceID", "The sequence")
    tx_sequence_number: int          = u32(8, "TxSequenceNumber", "The message's place in it, from 1",
                                           allowed=range(1, 1 << 32))
    tx_previous_sequence_number: int = u32(12, "TxPreviousSequenceNumber", "TxSequenceNumber - 1",
                                           allowed=range((1 << 32) - 1))
    reserved: bytes                  = raw(16, 20, "Reserved", "0, ignored", default=bytes(20))


class FinalAckBody(Structure, section="MS-MQQB 2.2.5.1", title="FinalAck Body"):
    """The outcome of a transactional message. ``tx_sequence_id`` is a TxSequenceID as one integer."""

    tx_sequence_id: int              = u64(0, "TxSequenceID", "The sequence")
    tx_sequence_number: int          = u32(8, "TxSequenceNumber", "The message's place in it, from 1",
                                           allowed=range(1, 1 << 32))
    tx_previous_sequence_number: int = u32(12, "TxPreviousSequenceNumber", "That of the message before",
                                           allowed=range((1 << 32) - 1))
    source_guid: Guid                = guid(16, "SourceGUID", "The queue manager that sent the message")
    message_id: int                  = u32(32, "MessageID", "The message's identifier there")
# fmt: on


def is_order_queue(queue: object) -> bool:
    """Whether a destination is the order queue of its host: by number, or by direct name."""
    if isinstance(queue, DirectQueueFormatName):
        return queue.direct_format_name.casefold().endswith(ORDER_QUEUE_NAME.casefold())
    return queue == ORDER_QUEUE


def message_kind(message: UserMessage) -> MessageKind:
    """OrderAck, FinalAck or user message, by section 3.1.5.1.1. Administration acknowledgments are user messages."""
    properties = message.message_properties_header
    message_class = properties.message_class
    final = is_receive_acknowledgment(message_class) or bool(message_class & _NEGATIVE)
    if message_class != MessageClass.MQMSG_CLASS_ORDER_ACK and not final:
        return MessageKind.USER_MESSAGE
    if message.base_header.flags or properties.label != ORDER_ACK_LABEL:
        return MessageKind.USER_MESSAGE
    if properties.message_size != ACK_BODY_SIZE or not is_order_queue(message.user_header.destination_queue):
        return MessageKind.USER_MESSAGE
    return MessageKind.FINAL_ACK if final else MessageKind.ORDER_ACK


pack_order_ack_body_into: Final = Struct("<" + codes_of(OrderAckBody)).pack_into
"""The fields of an OrderAckBody at an offset."""


def order_ack(user_header: UserHeader, body: OrderAckBody) -> UserMessage:
    """The OrderAck packet with this body. ``user_header`` has its source and destination; its flags are set here."""
    return _ack(user_header, MessageClass.MQMSG_CLASS_ORDER_ACK, body, delivery_mode=0)


def final_ack(user_header: UserHeader, message_class: MessageClass, body: FinalAckBody) -> UserMessage:
    """The FinalAck packet of this class with this body: recoverable, otherwise like ``order_ack``."""
    return _ack(user_header, message_class, body, delivery_mode=1)


def _ack(
    user_header: UserHeader, message_class: MessageClass, body: OrderAckBody | FinalAckBody, delivery_mode: int
) -> UserMessage:
    content = body.write()
    return UserMessage(
        base_header=BaseHeader(flags=0),
        user_header=user_header.replace(flags=UserFlags.of(MP=1, DM=delivery_mode)),
        message_properties_header=MessagePropertiesHeader(
            label=ORDER_ACK_LABEL,
            message_class=message_class,
            message_body=content,
            allocation_body_size=len(content),
        ),
    )


# ----------------------------------------------------------------------------------------------------------------------
# Ping packet (MS-MQQB 2.2.7): asks over UDP whether a queue manager would accept a session.

PING_SIGNATURE: Final = 0x5548


# fmt: off
class PingFlags(Flags, width=16):
    """Whether it is a request, and the answer. X bits are unused and have any value: kept as they are, ignored."""

    RC = bits(0, 1, "The initiator is not a server; sent back as it is")
    RF = bits(1, 1, "A session would be refused")
    X  = bits(2, 14, "Unused")


class Ping(Structure, section="MS-MQQB 2.2.7", title="Ping Packet"):
    """A Ping Request or a Ping Response."""

    flags: int     = u16(0, "Flags", "Who asks, and the answer", bits=PingFlags, default=0)
    signature: int = const16(2, "Signature", PING_SIGNATURE, "The letters HU")
    cookie: int    = u32(4, "Cookie", "Correlates request and response")
    qm_guid: Guid  = guid(8, "QMGuid", "The queue manager that made the packet")
# fmt: on
