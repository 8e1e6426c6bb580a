"""Identifies packets (MS-MQQB 3.1.5.1.1), and finds the end of one in a stream."""

from typing import Final

from qmnode.structures.base_header import MAX_PACKET_SIZE, SIGNATURE, VERSION, BaseFlags, BaseHeader
from qmnode.structures.errors import PacketError
from qmnode.structures.internal_packets import (
    ConnectionParameters,
    EstablishConnection,
    InternalFlags,
    InternalHeader,
    InternalPacketType,
    SessionAck,
)
from qmnode.structures.layout import Buffer, size_of
from qmnode.structures.session_header import SessionHeader
from qmnode.structures.user_message import UserMessage

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


__all__ = ["BASE_HEADER_SIZE", "SESSION_HEADER_SIZE", "Packet", "packet_size", "read_packet"]
