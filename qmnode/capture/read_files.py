"""Any file in, captured packets out: capture files, hex dumps and plain bytes.

``read_packets`` yields packets in the order in which they become complete, with damaged bytes in between, and notices
of omissions. It raises CaptureError where a file cannot be read any further, after yielding everything before that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import BinaryIO, NamedTuple

from qmnode.capture import containers, hexdump
from qmnode.capture.errors import CaptureError
from qmnode.capture.frames import Datagram, Fragment, Segment, knows_link, read_frame
from qmnode.capture.packetizer import Damaged, Origin, Packetizer, Piece, is_ping, packet_length
from qmnode.capture.streams import Data, Direction, End, Event, Gap, StreamFollower, StreamLimits
from qmnode.structures.packets import BASE_HEADER_SIZE

SESSION_PORT = 1801
"""TCP port of protocol sessions (MS-MQQB 2.1.1)."""
PING_PORT = 3527
"""UDP port of Ping messages (MS-MQQB 2.1.2)."""
LARGEST_TEXT = 256 << 20
"""Bytes of the largest hex dump that is read."""

_CHUNK = 1 << 16
_MAGIC = 4
_START = 1 << 12
_MOST_NOTICES = 64


class Format(StrEnum):
    """The kind of a file."""

    AUTO = "auto"
    CAPTURE = "capture"
    HEX = "hex"
    RAW = "raw"


class Carrier(StrEnum):
    """The transport that carried a packet."""

    TCP = "tcp"
    UDP = "udp"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Options for reading a file."""

    format: Format = Format.AUTO
    session_ports: frozenset[int] = frozenset({SESSION_PORT})
    ping_ports: frozenset[int] = frozenset({PING_PORT})
    limits: StreamLimits = field(default_factory=StreamLimits)


class Route(NamedTuple):
    """The endpoints and direction of a packet."""

    connection: int | None
    """Number of the TCP connection, from 1."""
    from_client: bool
    """Whether it came from the side that connects (TCP) or asks (UDP)."""
    source: str
    destination: str
    from_start: bool
    """Whether the capture has the beginning of the connection."""


class Captured(NamedTuple):
    """A packet, or bytes in place of one."""

    carrier: Carrier
    route: Route | None
    """None in a file without addresses."""
    origin: Origin
    data: bytes
    damage: str | None
    """Why these bytes are not a complete packet; None if they are."""
    size: int
    """The number of bytes; ``data`` may be only the beginning if they are damaged."""
    lost: bool = False
    """Whether the capture lacks bytes of it."""


class Notice(NamedTuple):
    """An omission and its reason."""

    frame: int | None
    sentence: str


Item = Captured | Notice


def read_packets(file: BinaryIO, options: SourceOptions | None = None) -> Iterator[Item]:
    """Yield the contents of a file. Raises CaptureError where it cannot be read any further."""
    options = options or SourceOptions()
    reader = _Ahead(file)
    match options.format if options.format != Format.AUTO else detect(reader.start):
        case Format.CAPTURE:
            yield from _from_capture(reader, options)
        case Format.HEX:
            yield from _from_text(reader)
        case _:
            yield from _from_bytes(reader)


def detect(start: bytes) -> Format:
    """The kind of file with this beginning."""
    if containers.is_capture(start):
        return Format.CAPTURE
    if len(start) >= BASE_HEADER_SIZE and (packet_length(start) or is_ping(start)):
        return Format.RAW
    return Format.HEX if hexdump.looks_like_dump(start) else Format.RAW


class _Ahead(containers.Readable):
    """A file whose beginning has been read already: a pipe cannot go back."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.start = file.read(_MAGIC)
        if not containers.is_capture(self.start):  # a capture may come from a running tool: do not wait for more
            self.start += file.read(_START)
        self._rest = self.start

    def read(self, size: int, /) -> bytes:
        data, self._rest = self._rest[:size], self._rest[size:]
        return data + self._file.read(size - len(data)) if len(data) < size else data


def _from_bytes(reader: _Ahead) -> Iterator[Item]:
    packetizer = Packetizer(pings=True)
    while data := reader.read(_CHUNK):
        yield from _pieces(packetizer.feed(data), Carrier.FILE, None)
    yield from _pieces(packetizer.end(), Carrier.FILE, None)


def _from_text(reader: _Ahead) -> Iterator[Item]:
    data = reader.read(LARGEST_TEXT + 1)
    if len(data) > LARGEST_TEXT:
        raise CaptureError(LARGEST_TEXT, f"a hex dump of more than {LARGEST_TEXT} bytes is not read")
    try:
        dumps = hexdump.parse_hex_dump(hexdump.text_of(data))
    except hexdump.DumpError as error:
        raise CaptureError(_line_start(data, error.line), f"the hex dump contradicts itself: {error}") from error
    if not dumps:
        raise CaptureError(0, "there is no line of a hex dump in this text")
    for dump in dumps:
        packetizer = Packetizer(pings=True)
        yield from _pieces(packetizer.feed(dump.data), Carrier.FILE, None)
        yield from _pieces(packetizer.end(), Carrier.FILE, None)


def _line_start(data: bytes, line: int) -> int:
    return sum(len(text) for text in data.splitlines(keepends=True)[: line - 1])


def _from_capture(reader: _Ahead, options: SourceOptions) -> Iterator[Item]:
    sessions = _Sessions(options)
    failure: CaptureError | None = None
    try:
        yield from _from_frames(containers.frames(reader), sessions, options)
    except CaptureError as error:
        failure = error
    # The packets so far are worth showing even if the file turns out to be truncated.
    yield from sessions.finish()
    if failure:
        raise failure


def _from_frames(frames: Iterator[containers.Frame], sessions: _Sessions, options: SourceOptions) -> Iterator[Item]:
    told: set[str] = set()
    for frame in frames:
        if not knows_link(frame.link):
            yield from _once(told, frame, f"frames of link type {frame.link} are not understood and left out")
            continue
        match read_frame(frame.link, frame.data):
            case Segment() as segment:
                yield from sessions.take(frame, segment)
            case Datagram() as datagram:
                yield from _ping(frame, datagram, options)
            case Fragment():
                yield from _once(told, frame, "IP fragments are left out: they are not put together")
            case None:
                pass


def _once(told: set[str], frame: containers.Frame, sentence: str) -> Iterator[Notice]:
    """A notice for the first frame that it applies to: captures may have millions of them."""
    if sentence not in told and len(told) < _MOST_NOTICES:
        told.add(sentence)
        yield Notice(frame.number, sentence)


def _ping(frame: containers.Frame, datagram: Datagram, options: SourceOptions) -> Iterator[Item]:
    to_server = datagram.destination.port in options.ping_ports
    if to_server or datagram.source.port in options.ping_ports:
        route = Route(None, to_server, str(datagram.source), str(datagram.destination), True)
        origin = Origin(0, (frame.number,), frame.time)
        cut = f"{datagram.missing} bytes are missing from the capture" if datagram.missing else None
        yield Captured(Carrier.UDP, route, origin, datagram.payload, cut, len(datagram.payload), bool(cut))


class _Sessions:
    """The TCP streams of a capture, each with its packetizer, and together within a limit of memory."""

    def __init__(self, options: SourceOptions) -> None:
        self._follower = StreamFollower(options.session_ports, options.limits)
        self._limit = options.limits.all_bytes
        self._streams: dict[tuple[int, bool], tuple[Route, Packetizer]] = {}
        self._held = 0

    def take(self, frame: containers.Frame, segment: Segment) -> Iterator[Item]:
        yield from self._events(self._follower.segment(frame, segment))
        while self._held > self._limit:
            yield from self._events(self._follower.forget_oldest())

    def finish(self) -> Iterator[Item]:
        yield from self._events(self._follower.finish())

    def _events(self, events: Iterator[Event]) -> Iterator[Item]:
        for event in events:
            key = event.direction.connection, event.direction.from_client
            route, packetizer = self._streams.get(key) or self._begin(event.direction)
            before = packetizer.held
            match event:
                case Data():
                    pieces = packetizer.feed(event.data, event.frame, event.time)
                case Gap():
                    pieces = packetizer.gap(event.size)
                case End():
                    pieces = packetizer.end()
            yield from _pieces(pieces, Carrier.TCP, route)
            self._held += packetizer.held - before
            if isinstance(event, End):
                self._streams.pop(key, None)

    def _begin(self, direction: Direction) -> tuple[Route, Packetizer]:
        number, from_client, source, destination, from_start = direction
        route = Route(number, from_client, str(source), str(destination), from_start)
        stream = self._streams[number, from_client] = route, Packetizer(from_start=from_start)
        return stream


def _pieces(pieces: Iterator[Piece], carrier: Carrier, route: Route | None) -> Iterator[Item]:
    for piece in pieces:
        if isinstance(piece, Damaged):
            lost = piece.lost and carrier is not Carrier.FILE  # a file has all of its bytes
            yield Captured(carrier, route, piece.origin, piece.data, piece.reason, piece.size, lost)
        else:
            yield Captured(carrier, route, piece.origin, piece.data, None, len(piece.data))
