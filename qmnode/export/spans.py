"""The spans of messages: what this node did with a message, and the span before it, here or at another node.

A node never changes a message on its way, so the identifiers of spans are not carried: every node computes them from
the message and its hop count. The same computation gives the parent of a span, which another node exports.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Protocol
from zlib import crc32

from qmnode.bodies.trace_context import Contexts, is_sampled, parse
from qmnode.export import otlp
from qmnode.export.decoding import guid_text
from qmnode.model.api import QueueType
from qmnode.model.stored_message import (
    BROKEN,
    DESTINATION_SHIFT,
    EXPRESS,
    FLAGS,
    HEAD,
    IDENTIFIER,
    Names,
    extension_reader,
    read_arrival,
    read_properties_place,
    value_of_packet,
)
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.packet_view import (
    LABEL_AT,
    LABEL_LENGTH_AT,
    PROPERTIES_SIZE,
    message_class_of,
    read_properties,
)
from qmnode.structures.user_message import UserFlags

if TYPE_CHECKING:
    from qmnode.export.recorder import EventRecorder
    from qmnode.model.ports import Arrived, Clock, Entry
    from qmnode.model.queue import Queue
    from qmnode.model.shared_state import Recorder
    from qmnode.storage.store import Store
    from qmnode.storage.writer import Written

SEND: Final = "send"
STORE: Final = "store"
TRANSFER: Final = "transfer"
ARRIVE: Final = "arrive"
RECEIVE: Final = "receive"
DISCARD: Final = "discard"
"""The steps of a message at a node. The last one ends it without a receiver."""
SYSTEM: Final = "msmq"
_NORMAL: Final = MessageClass.MQMSG_CLASS_NORMAL.value
_RECEIVED: Final = MessageClass.MQMSG_CLASS_ACK_RECEIVE.value
_OUTGOING: Final = QueueType.OUTGOING
_CRC: Final = 1 << 32
MOST_A_SECOND: Final = 500
"""Spans of messages in a second: the sender of a message decides whether it is sampled, and this bounds its cost."""
_TOGETHER: Final = 256
"""Spans that are made together: a millisecond."""
_REMEMBERED: Final = 512
"""Messages of which several spans are made from one reading; steps at queues whose part of a span is kept encoded."""
_WAITING: Final = 4096
"""Sampled messages in queues that are known, beyond which they are found by a look at each again."""
_LARGEST_HEAD: Final = 16 * 1024
"""Bytes of headers above which a message has no spans: they are kept in memory, and may have megabytes."""

_Note = tuple[Callable[..., bytes], "Sequence[tuple[int, bytes]]", "Queue | None", float, Any]
"""An event: what makes a span of it, the sampled messages, their queue, the time in seconds since 1970, and a fact."""


class Sink(Protocol):
    """A collector, or the exporters that lead to one."""

    def export(self, make: Callable[[], Iterable[bytes]]) -> None:
        """Export soon the spans that this makes, in the form of ``otlp.span``; some are dropped if too many wait."""

    def export_always(self, make: Callable[[], Iterable[bytes]]) -> None:
        """Do so before each export from now on."""


class _Message:
    """The part of a message that spans tell: its value up to the label, and behind that the traceparent, if the program
    that sent it wrote one. ``here`` is the node that it came to; None if it is about to leave. Raises one of BROKEN.
    """

    __slots__ = (
        "_facts", "attributes", "before", "destination", "entry", "is_normal", "moves", "node", "received", "trace_id",
    )  # fmt: skip

    def __init__(self, head: bytes, here: bytes | None) -> None:
        _, _, _, moves, place, *_, size, _, source, address, _, _, number, flags = HEAD.unpack_from(head)
        self.is_normal = message_class_of(head, place) == _NORMAL
        """Whether an application sent it."""
        self.moves = moves
        self.received = int(read_arrival(head)[0]) * 1000
        """When it came to this node, in nanoseconds since 1970; 0 if that is not known."""
        self.destination = _destination(source, address, flags >> DESTINATION_SHIFT & 7, head[HEAD.size : place])
        hops = UserFlags.RC.get(flags)
        """Nodes count themselves in the message when they forward it (MS-MQMQ 2.2.19.2, RC); the last one does not."""
        self.node = node = hops + (here is not None and (hops > 0 or source != here))
        """The number of this node on the way of the message, zero at the source."""
        context = parse(head[place + PROPERTIES_SIZE :].decode())
        own = sha256(source + head[IDENTIFIER]).digest()[:16]
        trace = (int.from_bytes(own, "big") or 1) if context is None else context.trace_id
        self.trace_id = trace.to_bytes(16, "big")
        self._facts = f"{trace}\\{guid_text(source)}\\{number}\\{self.destination}\\".encode()
        self.entry = self.span_id(ARRIVE if node else SEND, node)
        """The span by which it came to this node, which others have as their parent."""
        program = b"" if context is None else context.span_id.to_bytes(8, "big")
        self.before = self.span_id(TRANSFER, node - 1) if node else program
        """The parent of that span: the transfer from the previous node, or the span of the program, if any."""
        attribute = otlp.attribute
        self.attributes = b"".join(
            (
                attribute("messaging.message.id", f"{guid_text(source)}\\{number}"),
                attribute("messaging.message.body.size", read_properties(head, place)[6]),
                attribute("messaging.message.envelope.size", size),
                _hop_count(hops),
            )
        )

    def arrived(self, now: int) -> int:
        """When it came to this node; ``now`` if that is not known, or later."""
        return min(self.received or now, now)

    def span_id(self, step: str, node: int) -> bytes:
        """The identifier of a step at a node, which all nodes compute alike."""
        return sha256(self._facts + f"{node}\\{step}".encode()).digest()[:8]


_message: Final = lru_cache(_REMEMBERED)(_Message)


@lru_cache(_REMEMBERED)
def _destination(source: bytes, address: bytes, kind: int, names: bytes) -> str:
    return Names(bytes(HEAD.size) + names, source, address).take(kind)


@lru_cache
def _hop_count(hops: int) -> bytes:
    return otlp.attribute("messaging.msmq.hop_count", hops)


class SpanRecorder:
    """Exports spans of sampled messages, and passes every event on to the recorder of events, if there is one.

    Nearly all messages are not sampled: of those only a few bytes are read. Events of a sampled one are noted, and
    spans are made of many notes at a time: code that runs for one message in a hundred takes ten times as long each
    time.
    """

    def __init__(
        self, store: "Store", clock: "Clock", events: "EventRecorder | None", sink: Sink, sampling: float
    ) -> None:
        self._store = store
        self._clock = clock
        self._events: Recorder | None = events
        self._sink = sink
        self._limit = round(sampling * _CRC)
        self._place = IDENTIFIER.stop
        self._read = extension_reader(self._place)
        """A reader for headers of the size that the last message had."""
        self._contexts = Contexts()
        self._waiting: dict[int, bytes] = {}
        """The heads of sampled messages in queues, by their lookup identifiers."""
        self._known: set[int] = set()
        """Numbers of the queues of which it has all: they were empty when a message came, later than it began."""
        self._noted: list[_Note] = []
        self._to_make = 0
        """Spans that the notes stand for."""
        self._second = 0
        self._left = 0
        self.dropped = 0
        """Spans beyond ``MOST_A_SECOND``, since start."""
        sink.export_always(self._make)

    # Called by the model and the transfer (qmnode.model.shared_state.Recorder)

    @property
    def writes(self) -> bool:
        """Whether events are recorded too."""
        return self._events is not None

    def inserted(self, queue: "Queue", entries: "Sequence[Entry]") -> None:
        """Messages arrived in a queue."""
        if self._events is not None:
            self._events.inserted(queue, entries)
        if queue.queue_id not in self._known:
            if not entries or queue.is_dead_letter or queue.is_journal:
                return
            if queue.message_count == len(entries):
                self._known.add(queue.queue_id)
        if (found := self._first_look(entries)) and (sampled := self._sampled(found)):
            if len(self._waiting) >= _WAITING:
                self._waiting.clear()
                self._known.clear()
            self._waiting.update(sampled)
            self._note_arrivals(queue, sampled)

    def deleted(self, queue: "Queue", entries: "Sequence[Entry]", reason: int) -> None:
        """Messages left their queue."""
        if self._events is not None:
            self._events.deleted(queue, entries, reason)
        if leaving := self._leaving(queue, entries):
            self._note((_ended, leaving, queue, self._clock.time(), reason))

    def handed_on(self, queue: "Queue", entries: "Sequence[Arrived]") -> None:
        """Messages arrived that waiting readers took at once."""
        if (found := self._first_look(entries)) and (sampled := self._sampled(found)):
            self._note_arrivals(queue, sampled)
            self._note((_ended, sampled, queue, self._clock.time(), _RECEIVED))

    def transferred(self, queue: "Queue", entries: "Sequence[Entry]") -> None:
        """The next hop has messages: the spans cover their wait for that."""
        if self._events is not None:
            self._events.transferred(queue, entries)
        if leaving := self._leaving(queue, entries):
            self._note((_transferred, leaving, queue, self._clock.time(), queue.peer))  # type: ignore[attr-defined]

    def refused(self, packet: bytes, reason: int) -> None:
        """A packet that arrived was refused."""
        if self._events is not None:
            self._events.refused(packet, reason)
        if sampled := self._sampled(self._first_look([(0, value_of_packet(packet, 0.0))])):
            self._note((_refused, sampled, None, self._clock.time(), reason))

    def key_used(self, packet: bytes, fingerprint: str) -> None:
        """A packet that arrived was decrypted with this key of the node."""
        if self._events is not None:
            self._events.key_used(packet, fingerprint)

    def session(self, opened: bool, *, peer: str, peer_identifier: bytes, incoming: bool, state: str = "") -> None:
        """A session was opened or closed."""
        if self._events is not None:
            self._events.session(opened, peer=peer, peer_identifier=peer_identifier, incoming=incoming, state=state)

    def queue_state(self, queue: "Queue", state: str, peer: str, cause: str = "", detail: str = "") -> None:
        """The state of an outgoing queue changed."""
        if self._events is not None:
            self._events.queue_state(queue, state, peer, cause, detail)

    def heartbeat(self, probe: str, queue: str, sent: float, reason: str, sentence: str) -> None:
        """A heartbeat came through, or was missed for a reason."""
        if self._events is not None:
            self._events.heartbeat(probe, queue, sent, reason, sentence)

    # Sampling

    def _first_look(self, entries: "Sequence[Arrived]") -> "Sequence[Arrived]":
        """Of all messages of an event, those that every node alike samples, and those whose Extension may have the
        context of a program: nearly none.

        Most messages of a node have headers of the same size, and those of an event are of one queue.
        """
        read, limit, crc = self._read, self._limit, crc32
        try:
            if len(entries) == 1:
                own, identifier, extension = read(entries[0][1])
                if own != self._place:
                    self._place, self._read = own, extension_reader(own)
                    _, identifier, extension = self._read(entries[0][1])
                return entries if extension or crc(identifier) < limit else ()
            if not entries:
                return ()
            place = read_properties_place(entries[0][1])[0]
            read = extension_reader(place)
            return [
                entry
                for entry in entries
                for own, identifier, extension in (read(entry[1]),)
                if extension or own != place or crc(identifier) < limit
            ]
        except BROKEN:
            return entries

    def _sampled(self, entries: "Sequence[Arrived]") -> list[tuple[int, bytes]]:
        """The heads of those whose spans are exported: the program decides in its context, else every node alike."""
        sampled, limit = [], self._limit
        for lookup_identifier, value in entries:
            try:
                place = read_properties_place(value)[0]
                _, identifier, size = extension_reader(place)(value)
                context = b""
                if size:
                    begin = place + LABEL_AT + 2 * value[place + LABEL_LENGTH_AT]
                    context = self._contexts.find(bytes(value[begin : begin + size]))
                if (is_sampled(context) if context else crc32(identifier) < limit) and place <= _LARGEST_HEAD:
                    sampled.append((lookup_identifier, bytes(value[: place + PROPERTIES_SIZE]) + context))
            except BROKEN:
                continue
        return sampled

    def _leaving(self, queue: "Queue", entries: "Sequence[Entry]") -> "Sequence[tuple[int, bytes]]":
        """The sampled ones of messages that leave a queue."""
        waiting = self._waiting
        if queue.queue_id in self._known:
            if len(entries) == 1 and entries[0][0] not in waiting:
                return ()
            return [(one, waiting.pop(one)) for one, _ in entries if one in waiting] if waiting else []
        if queue.is_dead_letter or queue.is_journal:
            return []
        sampled = self._sampled(self._first_look(entries))
        for one, _ in sampled:
            waiting.pop(one, None)
        return sampled

    # Events of sampled messages

    def _note_arrivals(self, queue: "Queue", sampled: list[tuple[int, bytes]]) -> None:
        if queue.parent is not None:
            return
        now = self._clock.time()
        self._note((_arrived, sampled, queue, now, None))
        for _, head in sampled:
            if not head[FLAGS] & EXPRESS:
                self._note((_stored, sampled, queue, now, self._store.durable()))
                break

    def _note(self, note: "_Note") -> None:
        self._noted.append(note)
        self._to_make += len(note[1])
        if self._to_make >= _TOGETHER:
            self._sink.export(self._make)

    def _make(self) -> list[bytes]:
        """Make the spans of the notes."""
        noted, self._noted, self._to_make = self._noted, [], 0
        monotonic, spans = time.monotonic(), []
        if int(monotonic) != self._second:
            self._second, self._left = int(monotonic), MOST_A_SECOND
        ahead = self._clock.time() - monotonic
        for note in noted:
            make, sampled, queue, time_of, fact = note
            if make is _stored:
                if not fact.done():
                    fact.add_done_callback(partial(self._stored_later, note))
                    continue
                fact = 0 if fact.exception() is not None else _nanoseconds(ahead + fact.ended)
                sampled = [one for one in sampled if not one[1][FLAGS] & EXPRESS]
            now, here = _nanoseconds(time_of), _place_of(queue)
            for _, head in sampled[: self._left]:
                try:
                    message = _message(head, here)
                except BROKEN:
                    continue
                if message.is_normal and not (message.moves and make in _ARRIVALS):
                    spans.append(make(message, queue, now, fact))
            self.dropped += max(len(sampled) - self._left, 0)
            self._left = max(self._left - len(sampled), 0)
        return spans

    def _stored_later(self, note: "_Note", _: "Written") -> None:
        self._note(note)


def _place_of(queue: "Queue | None") -> bytes | None:
    """The node that messages in this queue came to, or nothing for one that it refused; None if they are to leave."""
    if queue is None:
        return b""
    return None if queue.queue_type is _OUTGOING else queue.context.identifier


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e6) * 1000


# Spans: of a message in a queue, an event at a time, and what is known of it


def _arrived(message: _Message, queue: "Queue", now: int, _: None) -> bytes:
    step, kind = (ARRIVE, "SERVER") if message.node else (SEND, "PRODUCER")
    return _span(step, kind, message, queue, message.entry, message.before, now, now)


def _stored(message: _Message, queue: "Queue", now: int, stored: int) -> bytes:
    own, failed = message.span_id(STORE, message.node), b"" if stored else otlp.failed("the store failed")
    return _span(STORE, "INTERNAL", message, queue, own, message.entry, now, max(now, stored), failed)


def _transferred(message: _Message, queue: "Queue", now: int, peer: str) -> bytes:
    own, begin = message.span_id(TRANSFER, message.node), message.arrived(now)
    server = otlp.attribute("server.address", peer.partition(" ")[0])
    return _span(TRANSFER, "CLIENT", message, queue, own, message.entry, begin, now, server)


def _ended(message: _Message, queue: "Queue", now: int, reason: int) -> bytes:
    received = reason == _RECEIVED
    step, kind, error = (RECEIVE, "CONSUMER", "") if received else (DISCARD, "INTERNAL", _name_of(reason))
    waited = otlp.attribute("messaging.msmq.time_in_queue", (now - message.arrived(now)) / 1e9)
    own = message.span_id(step, message.node)
    return _span(step, kind, message, queue, own, message.entry, now, now, waited, otlp.failed(error))


def _refused(message: _Message, queue: None, now: int, reason: int) -> bytes:
    error = otlp.failed(_name_of(reason))
    return _span(ARRIVE, "SERVER", message, queue, message.entry, message.before, now, now, error)


def _span(
    step: str,
    kind: str,
    message: _Message,
    queue: "Queue | None",
    own: bytes,
    parent: bytes,
    begin: int,
    end: int,
    *more: bytes,
) -> bytes:
    local = queue is not None and queue.queue_type is not _OUTGOING
    destination = queue.pathname if local and queue is not None else message.destination
    step_of = _of_step(step, kind, destination, bool(parent))
    return otlp.span(message.trace_id, own, parent, begin, end, step_of, message.attributes, *more)


_ARRIVALS: Final = (_arrived, _stored)
"""Events that a message has only once at a node: not where it was moved to."""


@lru_cache(_REMEMBERED)
def _of_step(step: str, kind: str, destination: str, is_child: bool) -> bytes:
    attributes: dict[str, str | float] = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": step,
        "messaging.destination.name": destination,
    }
    if step in (SEND, RECEIVE):
        attributes["messaging.operation.type"] = step
    return otlp.named(f"{step} {destination}", kind, is_child, attributes)


def _name_of(reason: int) -> str:
    try:
        return MessageClass(reason).name
    except ValueError:
        return f"{reason:#06x}"
