"""BaseHeader (MS-MQMQ 2.2.19.1): the first 16 bytes of every packet but pings."""

from typing import Final

from qmnode.structures.fields import Flags, bits, const8, const32, u8, u16, u32
from qmnode.structures.layout import Structure

VERSION: Final = 0x10
SIGNATURE: Final = 0x524F494C
MAX_PACKET_SIZE: Final = 0x00400000
INFINITE: Final = 0xFFFFFFFF


# fmt: off
class BaseFlags(Flags, width=16):
    """Options of the packet. X bits are reserved: kept as they are, ignored."""

    PR = bits(0, 3, "Priority, 0 to 7, default 3; 0 in a transactional message")
    IN = bits(3, 1, "Internal packet: EstablishConnection, ConnectionParameters or SessionAck")
    SH = bits(4, 1, "A SessionHeader is present")
    DH = bits(5, 1, "A DebugHeader is present")
    X9 = bits(6, 1, "Reserved")
    X8 = bits(7, 1, "Reserved")
    TR = bits(8, 1, "Message tracing is on; DH is set too")
    X6 = bits(9, 1, "Reserved")
    X5 = bits(10, 1, "Reserved")
    X4 = bits(11, 1, "Reserved")
    X3 = bits(12, 1, "Reserved")
    X2 = bits(13, 1, "Reserved")
    X1 = bits(14, 1, "Reserved")
    X0 = bits(15, 1, "Reserved")


class BaseHeader(Structure, section="MS-MQMQ 2.2.19.1"):
    """Identifies a packet and gives its size, ``packet_size``, without the SessionHeader of a UserMessage."""

    version_number: int      = const8(0, "VersionNumber", VERSION, "Version of the packet format, 0x10")
    reserved: int            = u8(1, "Reserved", "Any value, ignored", default=0)
    flags: int               = u16(2, "Flags", "Options", bits=BaseFlags, default=BaseFlags.of(PR=3))
    signature: int           = const32(4, "Signature", SIGNATURE, "The letters LIOR")
    packet_size: int         = u32(8, "PacketSize", "Bytes of the whole packet, at most 4 MiB", default=0,
                                   allowed=range(MAX_PACKET_SIZE + 1), strict=True)
    time_to_reach_queue: int = u32(12, "TimeToReachQueue", "Seconds; 0xFFFFFFFF is for ever", default=INFINITE,
                                   values={INFINITE: "for ever"}, allowed=range(INFINITE + 1))
# fmt: on
