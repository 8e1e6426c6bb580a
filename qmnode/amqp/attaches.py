"""The sizes of the frames with which a peer opens its connection and attaches links.

The engine keeps their names, addresses and properties until both sides have detached, however a link ends. So they are
counted before the engine sees them.
"""

import struct
from typing import Final

_HEAD: Final = struct.Struct(">IB")
_SHORTEST: Final = 8
_SEEN: Final = 16
"""Bytes of a frame that show its performative."""
_KEPT_NOWHERE: Final = frozenset(
    b"\x00\x53" + bytes((number,)) for number in (0x11, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18)
)
"""The beginnings of the frames that nothing keeps: begin, flow, transfer, disposition, detach, end, close."""
_END: Final = b"\x00\x53\x17"


class Attaches:
    """Follows the frames of a peer behind its protocol header."""

    def __init__(self) -> None:
        self._ahead = 8
        """Bytes until the next frame begins."""
        self._start = b""
        self.ends: list[int] = []
        """The places where sessions end in the bytes that were looked at last."""

    def sizes(self, data: bytes) -> list[int]:
        """The sizes of those that begin in the next bytes of the peer."""
        found: list[int] = []
        self.ends, before = [], len(self._start)
        if self._start:
            data, self._start = self._start + data, b""
        at, end = self._ahead, len(data)
        while at < end:
            left = end - at
            if left < _SEEN and (left < _SHORTEST or left < _HEAD.unpack_from(data, at)[0]):
                self._start = data[at:]
                at = end
                break
            size, offset = _HEAD.unpack_from(data, at)
            kind = data[at + 4 * offset : at + 4 * offset + 3]
            if size > _SHORTEST and kind not in _KEPT_NOWHERE:
                found.append(size)
            elif kind == _END and at > before:
                self.ends.append(at - before)
            at += max(size, _SHORTEST)
        self._ahead = at - end
        return found
