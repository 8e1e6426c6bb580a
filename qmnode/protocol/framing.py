"""Cuts the stream of a transport connection into packets (2.1.1, 3.1.5.1.2). Reads only the base header."""

from struct import Struct
from typing import Final

from qmnode.protocol.errors import RemoteProtocolError
from qmnode.structures.base_header import SIGNATURE, VERSION, BaseFlags, BaseHeader
from qmnode.structures.places import codes_of

BASE_SIZE: Final = 16
SESSION_HEADER_SIZE: Final = 16
_INTERNAL_OR_SESSION: Final = BaseFlags.IN.mask | BaseFlags.SH.mask
_SESSION: Final = BaseFlags.SH.mask
_BASE: Final = Struct("<" + codes_of(BaseHeader))


class Framer:
    """Collects bytes until they form packets. Memory is bounded by one packet of ``limit`` bytes and one read."""

    __slots__ = ("_kept", "_needed", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        """The largest accepted packet. Small until the session is open, so that an unknown peer cannot make this side
        buffer megabytes.
        """
        self._kept = bytearray()
        self._needed = BASE_SIZE

    def pending(self) -> int:
        """Bytes of an incomplete packet."""
        return len(self._kept)

    def clear(self) -> None:
        """Discard an incomplete packet: no more bytes will come."""
        self._kept = bytearray()

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """Return the packets that ``data`` completes, each a copy of its own, and keep the rest.

        A UserMessage packet with a SessionHeader is 16 bytes longer than its PacketSize (MS-MQMQ 2.2.19.1); the size of
        a SessionAck packet includes it (frame 8 of 4.1). Raises RemoteProtocolError.
        """
        kept = self._kept
        if kept:
            kept += data
            if len(kept) < self._needed:
                return []
            source: bytes = bytes(kept)
        else:
            source = data if isinstance(data, bytes) else bytes(data)
        packets: list[bytes] = []
        place, end = 0, len(source)
        needed = BASE_SIZE
        while end - place >= BASE_SIZE:
            version, _, flags, signature, size, _ = _BASE.unpack_from(source, place)
            if version != VERSION or signature != SIGNATURE:
                raise RemoteProtocolError("3.1.5.1.2", "the version or the signature of a packet is wrong")
            if flags & _INTERNAL_OR_SESSION == _SESSION:
                size += SESSION_HEADER_SIZE
            if not BASE_SIZE < size <= self.limit:
                raise RemoteProtocolError("MS-MQMQ 2.2.19.1", f"a packet of {size} bytes; {self.limit} are allowed")
            if size > end - place:
                needed = size
                break
            packets.append(source[place : place + size])
            place += size
        self._needed = needed
        if place or not kept:
            self._kept = bytearray(memoryview(source)[place:])
        return packets
