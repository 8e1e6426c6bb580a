"""TCP streams reassembled from captured segments.

``StreamFollower`` takes segments in the order of the capture and returns events: bytes in the order of the stream, gaps
where the capture has lost segments, and ends. It holds early segments until the ones before them come, up to a limit,
and then treats those before them as lost. Retransmitted and overlapping bytes are returned once; the first copy counts.
"""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from qmnode.capture.frames import FIN, RST, SYN, Endpoint, Segment

if TYPE_CHECKING:
    from qmnode.capture.containers import Frame

_MASK = 0xFFFFFFFF
_HALF = 1 << 31


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Memory limits for following streams."""

    early_bytes: int = 4 << 20
    """Bytes that one direction may hold while it waits for an earlier segment."""
    early_segments: int = 4096
    all_bytes: int = 64 << 20
    """Bytes that all connections may hold; the one that has been quiet longest is given up first."""
    connections: int = 4096
    """Connections that are remembered."""


class Direction(NamedTuple):
    """One direction of one connection."""

    connection: int
    """Counted from 1 in the order in which connections appear; a connection that reuses its ports is a new one."""
    from_client: bool
    source: Endpoint
    destination: Endpoint
    from_start: bool
    """Whether the capture has the connection's beginning."""


class Data(NamedTuple):
    """The next bytes of a stream."""

    direction: Direction
    frame: int
    time: int | None
    data: bytes


class Gap(NamedTuple):
    """Bytes of a stream that the capture lacks."""

    direction: Direction
    size: int


class End(NamedTuple):
    """The end of a stream: it was closed, its connection was reset or forgotten, or the capture ends."""

    direction: Direction


Event = Data | Gap | End


class _Early(NamedTuple):
    start: int
    frame: int
    time: int | None
    data: bytes


@dataclass(slots=True)
class _Half:
    """One direction: its position, from the first byte of the stream that was seen, and segments that came early."""

    direction: Direction | None = None
    first_sequence: int | None = None
    """Sequence number of the SYN, if the capture has it."""
    sequence: int | None = None
    """Sequence number of the byte at ``position``."""
    position: int = 0
    end: int | None = None
    """Position of the FIN."""
    ended: bool = False
    early: list[_Early] = field(default_factory=list)
    early_bytes: int = 0

    def begin(self, segment: Segment) -> None:
        if segment.flags & SYN:
            self.first_sequence = segment.sequence
            self.sequence = (segment.sequence + 1) & _MASK
        else:
            self.sequence = segment.sequence

    def place(self, segment: Segment) -> int:
        """Position of the segment's first byte of data. Sequence numbers wrap: the nearer interpretation is right."""
        assert self.sequence is not None
        sequence = segment.sequence + bool(segment.flags & SYN)
        return self.position + ((sequence - self.sequence + _HALF) & _MASK) - _HALF

    def move_to(self, position: int) -> None:
        assert self.sequence is not None
        self.sequence = (self.sequence + position - self.position) & _MASK
        self.position = position

    def keep_early(self, early: _Early) -> None:
        if early not in self.early:
            insort(self.early, early, key=lambda kept: kept.start)
            self.early_bytes += len(early.data)

    def next_early(self) -> _Early:
        early = self.early.pop(0)
        self.early_bytes -= len(early.data)
        return early


@dataclass(slots=True)
class _Connection:
    number: int
    client: Endpoint
    server: Endpoint
    from_start: bool
    halves: tuple[_Half, _Half] = field(default_factory=lambda: (_Half(), _Half()))

    def half(self, source: Endpoint) -> _Half:
        """The direction that comes from ``source``."""
        from_client = source == self.client
        half = self.halves[0 if from_client else 1]
        if half.direction is None:
            ends = (self.client, self.server) if from_client else (self.server, self.client)
            half.direction = Direction(self.number, from_client, *ends, self.from_start)
        return half

    @property
    def early_bytes(self) -> int:
        return sum(half.early_bytes for half in self.halves)


class StreamFollower:
    """Follows the TCP connections that have one of ``ports`` on one side."""

    def __init__(self, ports: Collection[int], limits: StreamLimits | None = None) -> None:
        self._ports = frozenset(ports)
        self._limits = limits or StreamLimits()
        self._connections: OrderedDict[frozenset[Endpoint], _Connection] = OrderedDict()
        self._count = 0
        self.early_bytes = 0
        """The number of bytes held now."""

    def segment(self, frame: Frame, segment: Segment) -> Iterator[Event]:
        """Take a segment of ``frame``; yield the events that follow from it."""
        if self._ports.isdisjoint((segment.source.port, segment.destination.port)):
            return
        key = frozenset((segment.source, segment.destination))
        connection = self._connections.get(key)
        if connection is not None and _begins_another(connection, segment):
            yield from self._close(connection)
            connection = None
        if connection is None:
            if not segment.payload and not segment.flags & SYN:
                return  # the last segments of a connection that the capture lacks
            connection = self._open(segment)
            self._connections[key] = connection
        self._connections.move_to_end(key)
        before = connection.early_bytes
        yield from self._take(connection, frame, segment)
        self.early_bytes += connection.early_bytes - before
        if segment.flags & RST:
            yield from self._close(connection)
        yield from self._forget()

    def finish(self) -> Iterator[Event]:
        """The capture has ended: yield everything that is still held."""
        while self._connections:
            yield from self.forget_oldest()

    def forget_oldest(self) -> Iterator[Event]:
        """Give up on the connection that has been quiet longest."""
        if self._connections:
            _, connection = self._connections.popitem(last=False)
            yield from self._close(connection)

    def _forget(self) -> Iterator[Event]:
        while len(self._connections) > self._limits.connections or self.early_bytes > self._limits.all_bytes:
            yield from self.forget_oldest()

    def _open(self, segment: Segment) -> _Connection:
        self._count += 1
        to_port, from_port = segment.destination.port in self._ports, segment.source.port in self._ports
        # If both ports are ours, the answer to a SYN decides; without one, the first sender is taken for the client.
        answers = segment.flags & SYN and segment.flags & 0x10
        client_speaks = to_port and not (from_port and answers)
        ends = (segment.source, segment.destination)
        return _Connection(self._count, *(ends if client_speaks else ends[::-1]), from_start=bool(segment.flags & SYN))

    def _take(self, connection: _Connection, frame: Frame, segment: Segment) -> Iterator[Event]:
        half = connection.half(segment.source)
        if half.sequence is None:
            half.begin(segment)
        start = half.place(segment)
        if segment.flags & FIN:
            half.end = start + len(segment.payload)
        if segment.payload:
            yield from _add(half, _Early(start, frame.number, frame.time, segment.payload))
        while half.early_bytes > self._limits.early_bytes or len(half.early) > self._limits.early_segments:
            yield from _skip_gap(half)
        yield from _end_if_complete(half)

    def _close(self, connection: _Connection) -> Iterator[Event]:
        self.early_bytes -= connection.early_bytes
        for half in connection.halves:
            if half.direction is None:
                continue
            while half.early:
                yield from _skip_gap(half)
            if not half.ended:
                half.ended = True
                yield End(half.direction)


def _begins_another(connection: _Connection, segment: Segment) -> bool:
    """Whether a segment on the ports of ``connection`` opens a new one: a SYN that is no retransmission."""
    if not segment.flags & SYN:
        return False
    half = connection.half(segment.source)
    return half.sequence is not None and half.first_sequence != segment.sequence


def _add(half: _Half, arrived: _Early) -> Iterator[Event]:
    if arrived.start > half.position:
        half.keep_early(arrived)
        return
    yield from _give(half, arrived)
    yield from _give_early(half)


def _give_early(half: _Half) -> Iterator[Event]:
    while half.early and half.early[0].start <= half.position:
        yield from _give(half, half.next_early())


def _give(half: _Half, piece: _Early) -> Iterator[Event]:
    """The part of ``piece`` that has not been returned yet."""
    assert half.direction is not None
    fresh = piece.data[half.position - piece.start :]
    if fresh:
        half.ended = False  # data after an end: the end was only guessed
        half.move_to(half.position + len(fresh))
        yield Data(half.direction, piece.frame, piece.time, fresh)


def _skip_gap(half: _Half) -> Iterator[Event]:
    """Treat the bytes before the first early segment as lost."""
    assert half.direction is not None
    size = half.early[0].start - half.position
    half.move_to(half.early[0].start)
    yield Gap(half.direction, size)
    yield from _give_early(half)


def _end_if_complete(half: _Half) -> Iterator[Event]:
    if half.end is not None and half.position >= half.end and not half.ended:
        assert half.direction is not None
        half.ended = True
        yield End(half.direction)
