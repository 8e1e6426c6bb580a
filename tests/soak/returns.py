"""What comes back of messages: acknowledgments, journal and dead-letter copies, trace reports. Each that was asked for
must be there once, and no other.

Trace reports are express (3.1.5.8.9), so those that a node had in memory when it was killed are gone: until the last
kill no report comes that nobody asked for, and after it every one comes.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import qmnode
from qmnode.structures.enumerations import MessageClass, is_negative_acknowledgment
from qmnode.structures.guid import Guid, guid_to_text
from tests.soak.streams import End, Stream, named

POSITIVE = (MessageClass.MQMSG_CLASS_ACK_REACH_QUEUE, MessageClass.MQMSG_CLASS_ACK_RECEIVE)
EXPIRED = {MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT, MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT}
CAUSES = {
    End.UNKNOWN: {MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q},
    End.FULL: {MessageClass.MQMSG_CLASS_NACK_Q_EXCEED_QUOTA},
    End.UNREAD: EXPIRED,
}
DEADLETTER, DEADXACT = r"DIRECT=OS:.\SYSTEM$;DEADLETTER", r"DIRECT=OS:.\SYSTEM$;DEADXACT"
_LABEL = re.compile(r"([0-9A-F]{4}):([0-9A-F]{8}):([0-9A-F]{2}) received by ([0-9A-F-]{36}) at \d\d:\d\d:\d\d [AP]M ")
_BODY = re.compile(
    r"<MESSAGE ID>([0-9A-F]{8})</MESSAGE ID>\r\n<TARGET QUEUE>(.+)</TARGET QUEUE>\r\n"
    r"(<NEXT HOP>[0-9.]+</NEXT HOP>\r\n<HOP COUNT>([0-9A-F]{2}) </HOP COUNT>\r\n)?"
)


@dataclass(frozen=True)
class Stop:
    """What a queue manager can have to report of a message."""

    node: str
    sent: bool
    hops: int


class Report(NamedTuple):
    """A trace report."""

    identifier: bytes
    """Its own."""
    number: int
    """Of the message that it is about."""
    destination: str
    stop: Stop


@dataclass(frozen=True)
class Copy:
    """A message in a dead-letter queue."""

    place: tuple[str, str]
    """Node and queue."""
    number: int
    message_class: MessageClass


@dataclass
class Returns:
    """All that came back to one source, whose streams' names begin with its name."""

    node: str
    source: Guid
    names: Mapping[Guid, str]
    """Of all nodes."""
    way: Sequence[Stop]
    """Where a message that arrives is reported from, its destination last."""
    journal: list[bytes] = field(default_factory=list)
    """Identifiers."""
    positive: dict[MessageClass, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    """Identifiers."""
    negative: dict[str, list[tuple[int, MessageClass]]] = field(default_factory=lambda: defaultdict(list))
    """By stream: numbers."""
    dead: dict[str, list[Copy]] = field(default_factory=lambda: defaultdict(list))
    """By stream."""
    reports: list[Report] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)

    def count(self) -> int:
        """How many came."""
        several = (*self.positive.values(), *self.negative.values(), *self.dead.values())
        return len(self.journal) + len(self.reports) + sum(map(len, several))

    def take_answers(self, messages: Iterable[qmnode.Message]) -> None:
        """Administration acknowledgments."""
        for one in messages:
            message_class = MessageClass(one.message_class)
            if is_negative_acknowledgment(message_class) and not one.body:
                self.unreadable.append(
                    f"{self.node}: {message_class.name} of {one.correlation_identifier.hex()}, no body"
                )
            elif is_negative_acknowledgment(message_class):
                name, number = named(one.body)
                self.negative[name].append((number, message_class))
            else:
                self.positive[message_class].append(one.correlation_identifier)

    def take_dead(self, place: tuple[str, str], messages: Iterable[qmnode.Message]) -> None:
        """Dead-letter copies of this source's messages."""
        for one in messages:
            name, number = named(one.body)
            self.dead[name].append(Copy(place, number, MessageClass(one.message_class)))

    def take_reports(self, messages: Iterable[qmnode.Message]) -> None:
        """Trace reports."""
        for one in messages:
            text = one.body.decode("utf-16-le")
            label, body = _LABEL.match(one.label), _BODY.fullmatch(text)
            source = guid_to_text(self.source).upper()
            if (
                label is None
                or body is None
                or one.message_class != MessageClass.MQMSG_CLASS_REPORT
                or (label[1], label[2], label[4]) != (source[:4], body[1], source)
                or body[4] not in (None, label[3])
            ):
                self.unreadable.append(f"{self.node}: the report {one.label!r} {text!r}")
                continue
            stop = Stop(self.names[one.source_machine_identifier], body[3] is not None, int(label[3], 16))
            self.reports.append(Report(one.identifier, int(label[2], 16), body[2], stop))

    # What is wrong with them

    def findings(self, streams: Sequence[Stream]) -> Iterator[str]:
        """All of it."""
        yield from self.unreadable
        arrived = [
            (stream, identifier, number)
            for stream in streams
            if stream.is_received
            for identifier, number in stream.arrived()
        ]
        journaled = {identifier for _, identifier, number in arrived if Stream.is_journaled(number)}
        yield from copies(f"{self.node}: journal", journaled, self.journal)
        asked = {identifier for _, identifier, number in arrived if Stream.asks(number)}
        for message_class in {*POSITIVE, *self.positive}:
            wanted = asked if message_class in POSITIVE else set()
            yield from copies(f"{self.node}: {message_class.name}", wanted, self.positive[message_class])
        yield from self._traces(arrived)
        for stream in streams:
            yield from self._ends(stream)

    def _ends(self, stream: Stream) -> Iterator[str]:
        """Negative acknowledgments and dead-letter copies."""
        nacks, dead = self.negative[stream.name], self.dead[stream.name]
        causes = CAUSES.get(stream.end, set())
        if wrong := {found for _, found in nacks} - causes | {one.message_class for one in dead} - causes:
            yield f"{stream.name}: died of {sorted(one.name for one in wrong)}"
        if stream.is_received:
            yield from copies(f"{stream.name}: dead letters", set(), [one.number for one in dead])
            return
        seen = {number for number, _ in nacks} | {one.number for one in dead}
        ended = stream.begun(seen)
        asked = {number for number in ended if Stream.asks(number)}
        buried = {number for number in ended if Stream.is_buried(number)}
        if stream.end is End.UNREAD:
            # What was sent again, as its acknowledgment was lost or late, can expire on its way while the first of it
            # expires where it had come to. Each says so.
            nacks = [*dict(nacks).items()]
        if stream.end is End.UNREAD and not stream.transactional:
            if twice := [one for one, count in Counter((one.number, one.place) for one in dead).items() if count > 1]:
                yield f"{stream.name}: {len(twice)} dead letters twice in one place"
            dead = [*{one.number: one for one in dead}.values()]
        elif wrong_places := {one.place for one in dead} - {self._grave(stream)}:
            yield f"{stream.name}: dead letters in {sorted(wrong_places)}"
        yield from copies(f"{stream.name}: negative acknowledgments", asked, [number for number, _ in nacks])
        yield from copies(f"{stream.name}: dead letters", buried, [one.number for one in dead])

    def _grave(self, stream: Stream) -> tuple[str, str]:
        """Where its dead letters are: a transactional message stays its source's until its end."""
        return (self.node, DEADXACT) if stream.transactional else (self.way[-1].node, DEADLETTER)

    def _traces(self, arrived: Sequence[tuple[Stream, bytes, int]]) -> Iterator[str]:
        known = {int.from_bytes(identifier[-4:], "little"): (stream, number) for stream, identifier, number in arrived}
        found: dict[Stop, list[tuple[tuple[str, int], bytes]]] = defaultdict(list)
        for identifier, about, destination, stop in self.reports:
            stream, number = known.get(about, (None, 0))
            if stream is None or not stream.is_traced(number) or stop not in self.way:
                yield f"{self.node}: a report from {stop} that nobody asked for"
            elif destination.upper() != stream.destination.upper():
                yield f"{stream.name} {number}: a report from {stop} about {destination}"
            else:
                found[stop].append(((stream.name, number), identifier))
        steady = {
            (stream.name, number)
            for stream in {stream.name: stream for stream, _, _ in arrived}.values()
            for number in stream.steady() & set(stream.numbers())
            if stream.is_traced(number)
        }
        for stop in self.way:
            required = [about for about, _ in found[stop] if about in steady]
            if stop != self.way[-1]:  # on its way a message can come by more than once
                yield from copies(f"{self.node}: reports from {stop}", steady, [*set(required)])
                continue
            yield from copies(f"{self.node}: reports from {stop}", steady, required)
            # A report that was read before a kill, and was not acknowledged, comes again itself.
            if twice := [one for one, count in Counter(one for one, _ in set(found[stop])).items() if count > 1]:
                yield f"{self.node}: {len(twice)} were reported from {stop} more than once"


Item = TypeVar("Item", bytes, int, tuple[str, int])


def copies(kind: str, wanted: set[Item], found: Sequence[Item]) -> Iterator[str]:
    """What is wrong with copies and acknowledgments: exactly one for each message that asked, and no other."""
    counts = Counter(found)
    if missing := wanted - set(counts):
        yield f"{kind}: {len(missing)} of {len(wanted)} missing"
    if unasked := set(counts) - wanted:
        yield f"{kind}: {len(unasked)} that nobody asked for"
    if twice := [one for one, count in counts.items() if count > 1]:
        yield f"{kind}: {len(twice)} twice"
