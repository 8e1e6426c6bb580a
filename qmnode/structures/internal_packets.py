"""Packets that open a session and acknowledge on it (MS-MQQB 2.2.1 to 2.2.3, 2.2.6)."""

from enum import IntEnum
from typing import Final

from qmnode.structures.base_header import BaseFlags, BaseHeader
from qmnode.structures.fields import Flags, bits, guid, nested, raw, u16, u32
from qmnode.structures.guid import Guid
from qmnode.structures.layout import Structure
from qmnode.structures.session_header import SessionHeader


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
