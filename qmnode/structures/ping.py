"""Ping packet (MS-MQQB 2.2.7): asks over UDP whether a queue manager would accept a session."""

from typing import Final

from qmnode.structures.fields import Flags, bits, const16, guid, u16, u32
from qmnode.structures.guid import Guid
from qmnode.structures.layout import Structure

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
