"""Cuts a stream of bytes into packets by their BaseHeader (MS-MQMQ 2.2.19.1), and resynchronises after damage."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from qmnode.structures.errors import PacketError
from qmnode.structures.packets import BASE_HEADER_SIZE, PING_SIGNATURE, packet_size
from qmnode.structures.user_message import SIGNATURE, VERSION

PING_SIZE: Final = 24

_SIGNATURE: Final = SIGNATURE.to_bytes(4, "little")
_PING_SIGNATURE: Final = PING_SIGNATURE.to_bytes(2, "little")
_SHOWN: Final = 256
"""Bytes of a stretch without packets that are kept for display."""
_MOST_MARKS: Final = 4096
"""Frames that are remembered for held bytes."""
_MOST_FRAMES: Final = 64
"""Frames that are named for a stretch without packets."""


class Origin(NamedTuple):
    """The origin of bytes in the capture."""

    offset: int
    """Offset in the stream, or in the file."""
    frames: tuple[int, ...]
    """Numbers of the frames that carried them."""
    time: int | None
    """Time of the last of these frames, in nanoseconds since 1970 UTC."""


class Whole(NamedTuple):
    """A packet with all of its bytes."""

    origin: Origin
    data: bytes


class Damaged(NamedTuple):
    """Bytes that are no complete packet: truncated, with a part lost, or without a packet's beginning."""

    origin: Origin
    data: bytes
    """The bytes; of a stretch without packets, only the beginning."""
    size: int
    """Bytes of the stretch, or bytes present of the packet."""
    reason: str
    lost: bool
    """Whether the capture lacks bytes, so that the sender may not be at fault."""


Piece = Whole | Damaged


class _Mark(NamedTuple):
    """The end of one frame's bytes in the stream."""

    end: int
    frame: int | None
    time: int | None


@dataclass(slots=True)
class _Stray:
    """Bytes skipped in search of a packet."""

    origin: Origin
    data: bytes
    size: int


def packet_length(start: bytes | bytearray) -> int | None:
    """The length in bytes of the packet with this BaseHeader, or None if it is not one."""
    try:
        return packet_size(bytes(start[:BASE_HEADER_SIZE]))
    except PacketError:
        return None


def is_ping(start: bytes | bytearray) -> bool:
    """Whether bytes begin like a Ping packet (MS-MQQB 2.2.7) and unlike any other."""
    return start[2:4] == _PING_SIGNATURE and start[4:8] != _SIGNATURE


class Packetizer:
    """Cuts one stream. Feed it bytes, gaps and the end; each call yields the pieces that are then complete.

    It holds at most one packet. ``from_start`` means that the stream's first byte is a packet's first; ``pings`` that
    Ping packets, which have no BaseHeader, may stand between the others (in a file of bytes, never in a TCP stream).
    """

    def __init__(self, *, from_start: bool = True, pings: bool = False) -> None:
        self._pings = pings
        self._buffer = bytearray()
        self._position = 0
        self._marks: deque[_Mark] = deque()
        self._stray: _Stray | None = None
        self._missing = 0
        """Bytes still to come of a packet that has lost a part: they are skipped."""
        self._before = "" if from_start else "the capture begins in the middle of a stream"
        self._lost = not from_start
        """Whether bytes that begin no packet may be the rest of one that the capture does not have."""

    @property
    def held(self) -> int:
        """The number of bytes held now."""
        return len(self._buffer)

    def feed(self, data: bytes, frame: int | None = None, time: int | None = None) -> Iterator[Piece]:
        """The next bytes of the stream."""
        passed = min(self._missing, len(data))
        self._missing -= passed
        self._position += passed
        if passed < len(data):
            self._buffer += memoryview(data)[passed:]
            if len(self._marks) >= _MOST_MARKS:
                self._marks.pop()  # a packet sent byte by byte: forget the frames in its middle
            self._marks.append(_Mark(self._position + len(self._buffer), frame, time))
            yield from self._cut()

    def gap(self, size: int) -> Iterator[Piece]:
        """``size`` bytes of the stream are missing."""
        expected, held = self._expected(), len(self._buffer)
        if expected:
            yield from self._give_stray()
            yield self._damaged(
                f"{held} of its {expected} bytes are there, then {size} bytes are missing from the capture"
            )
            self._missing = expected - held
        else:
            self._pass_over(held)
            yield from self._give_stray()
        self._position += size
        self._missing = max(0, self._missing - size)
        self._before = f"{size} bytes before it are missing from the capture"
        self._lost = True

    def end(self) -> Iterator[Piece]:
        """End the stream: no more bytes will come."""
        expected, held = self._expected(), len(self._buffer)
        if not expected:
            self._pass_over(held)
        yield from self._give_stray()
        if expected:
            yield self._damaged(f"{held} of its {expected} bytes are there, then the stream ends")
        self._missing = 0

    def _expected(self) -> int | None:
        """Length of the packet whose beginning is held; 0 if the held bytes begin none; None if that is undecided."""
        if self._pings and len(self._buffer) >= 8 and is_ping(self._buffer):
            return PING_SIZE
        return packet_length(self._buffer) or 0 if len(self._buffer) >= BASE_HEADER_SIZE else None

    def _cut(self) -> Iterator[Piece]:
        while (expected := self._expected()) is not None:
            if not expected:
                self._pass_over(self._next_start())
            elif len(self._buffer) < expected:
                return
            else:
                yield from self._give_stray()
                yield Whole(*self._take(expected))
                self._before = "it follows a packet that was whole"
                self._lost = False

    def _next_start(self) -> int:
        """The number of bytes to skip to a possible packet, or to one that may become possible with more bytes."""
        found = self._buffer.find(_SIGNATURE, 5)
        while found >= 0:
            start = found - 4
            if self._buffer[start] == VERSION and (
                len(self._buffer) < start + BASE_HEADER_SIZE
                or packet_length(self._buffer[start : start + BASE_HEADER_SIZE])
            ):
                return start
            found = self._buffer.find(_SIGNATURE, found + 1)
        return max(1, len(self._buffer) - BASE_HEADER_SIZE + 1)

    def _take(self, size: int) -> tuple[Origin, bytes]:
        """Remove ``size`` bytes from the beginning."""
        data, end = bytes(memoryview(self._buffer)[:size]), self._position + size
        frames: list[int] = []
        time = None
        while self._marks:
            _, frame, time = mark = self._marks[0]
            if frame is not None and frame not in frames[-1:]:
                frames.append(frame)
            if mark.end > end:
                break
            self._marks.popleft()
            if mark.end == end:
                break
        origin = Origin(self._position, tuple(frames), time)
        del self._buffer[:size]
        self._position = end
        return origin, data

    def _pass_over(self, size: int) -> None:
        """Add ``size`` bytes to the stretch without packets."""
        if not size:
            return
        origin, data = self._take(size)
        if self._stray is None:
            self._stray = _Stray(origin, data[:_SHOWN], size)
            return
        stray = self._stray
        frames = tuple(dict.fromkeys(stray.origin.frames + origin.frames))[:_MOST_FRAMES]
        stray.origin = Origin(stray.origin.offset, frames, origin.time)
        stray.data += data[: max(0, _SHOWN - len(stray.data))]
        stray.size += size

    def _give_stray(self) -> Iterator[Piece]:
        stray, self._stray = self._stray, None
        if stray:
            because = f" ({self._before})" if self._before else ""
            yield Damaged(
                stray.origin, stray.data, stray.size, f"{stray.size} bytes that begin no packet{because}", self._lost
            )

    def _damaged(self, reason: str) -> Damaged:
        held = len(self._buffer)
        return Damaged(*self._take(held), held, reason, lost=True)
