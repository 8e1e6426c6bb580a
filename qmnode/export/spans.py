"""The spans of messages: what this node did with a message, and the span before it, here or at another node.

A node never changes a message on its way, so the identifiers of spans are not carried: every node computes them from
the message and its hop count. The same computation gives the parent of a span, which another node exports.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from zlib import crc32

from qmnode.bodies import trace_context
from qmnode.bodies.trace_context import TraceContext
from qmnode.export.decoding import guid_text
from qmnode.model.api import QueueType
from qmnode.model.stored_message import (
    BROKEN,
    DESTINATION_SHIFT,
    EXPRESS,
    FLAGS,
    HEAD,
    IDENTIFIER,
    MOVES,
    Names,
    extension_reader,
    read_arrival,
    read_properties_place,
    value_of_packet,
)
from qmnode.structures.message_classes import MessageClass
from qmnode.structures.packet_view import contents_of, message_class_of, read_properties
from qmnode.structures.user_header import UserFlags

if TYPE_CHECKING:
    from asyncio import Future

    from qmnode.export.recorder import EventRecorder
    from qmnode.model.ports import Arrived, Clock, Entry, Recorder
    from qmnode.model.queue import Queue
    from qmnode.storage.store import Store

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
_REMEMBERED: Final = 512
"""Messages of which several spans are made from one reading."""
_WAITING: Final = 4096
"""Sampled messages in queues that are known, beyond which they are found by a look at each again."""
_LARGEST_HEAD: Final = 16 * 1024
"""Bytes of headers above which a message has no spans: they are kept in memory, and may have megabytes."""

Attributes = tuple[tuple[str, str | int | float], ...]


class Span(NamedTuple):
    """A span, with the identifiers that it must have."""

    name: str
    trace_id: int
    span_id: int
    parent_id: int
    """Zero for the first span of a trace."""
    kind: str
    """A member of OpenTelemetry's SpanKind."""
    begin: int
    """Nanoseconds since 1970 (UTC)."""
    end: int
    attributes: Mapping[str, Any]
    error: str = ""
    """Why it failed; empty if it did not."""
    shared: tuple[Attributes, ...] = ()
    """More attributes, in parts that other spans have too."""


class Sink(Protocol):
    """A collector, or the exporters that lead to one."""

    def export(self, make: Callable[[], Span | None]) -> None:
        """Export soon the span that this makes, if any; it is dropped if too many wait."""


class _Message:
    """A message whose spans are exported."""

    def __init__(self, head: bytes, context: TraceContext | None) -> None:
        _, _, _, _, place, *_, size, _, self.source, address, _, _, number, flags = HEAD.unpack_from(head)
        source = guid_text(self.source)
        self.arrived = int(read_arrival(head)[0]) * 1000
        """When it came to this node, in nanoseconds since 1970."""
        self.is_normal = message_class_of(head, place) == _NORMAL
        self.destination = Names(head, self.source, address).take(flags >> DESTINATION_SHIFT & 7)
        self.hops = UserFlags.RC.get(flags)
        """Nodes count themselves in the message when they forward it (MS-MQMQ 2.2.19.2, RC); the last one does not."""
        if context is None:
            self.trace_id = int.from_bytes(sha256(self.source + head[IDENTIFIER]).digest()[:16], "big") or 1
        else:
            self.trace_id = context.trace_id
        self.producer = 0 if context is None else context.span_id
        """The span of the program that sent it, or zero."""
        self._facts = sha256(f"{self.trace_id}\\{source}\\{number}\\{self.destination}\\".encode())
        self._entries: dict[int, int] = {}
        self.attributes: Attributes = (
            ("messaging.message.id", f"{source}\\{number}"),
            ("messaging.message.body.size", read_properties(head, place)[6]),
            ("messaging.message.envelope.size", size),
            ("messaging.msmq.hop_count", self.hops),
        )

    def span_id(self, step: str, node: int) -> int:
        """The identifier of a step at a node, which all nodes compute alike."""
        digest = self._facts.copy()
        digest.update(f"{node}\\{step}".encode())
        return int.from_bytes(digest.digest()[:8], "big") or 1

    def entry(self, node: int) -> int:
        """The span by which it came to a node, which others have as their parent."""
        if node not in self._entries:
            self._entries[node] = self.span_id(ARRIVE if node else SEND, node)
        return self._entries[node]

    def before(self, node: int) -> int:
        """The parent of that span: the program's, or the transfer from the previous node."""
        return self.span_id(TRANSFER, node - 1) if node else self.producer


_message: Final = lru_cache(_REMEMBERED)(_Message)


class _Sampled(NamedTuple):
    """A message that has spans, as an event finds it."""

    head: bytes
    """Its value up to the label."""
    context: TraceContext | None


class SpanRecorder:
    """Exports spans of sampled messages, and passes every event on to the recorder of events, if there is one.

    Nearly all messages are not sampled: of those only a few bytes are read. Of a sampled one its headers are kept, and
    spans are made of many at a time: code that runs for one message in a hundred takes ten times as long each time.
    """

    def __init__(
        self, store: "Store", clock: "Clock", events: "EventRecorder | None", sink: Sink, sampling: float
    ) -> None:
        self._store = store
        self._clock = clock
        self._events: Recorder | None = events
        self._sink = sink
        self._limit = round(sampling * _CRC)
        self._waiting: dict[int, _Sampled] = {}
        """Sampled messages in queues, by their lookup identifiers."""
        self._known: set[int] = set()
        """Numbers of the queues of which it has all: they were empty when a message came, later than it began."""
        self._second = 0
        self._left = 0
        self.dropped = 0
        """Spans beyond ``MOST_A_SECOND``, since start."""

    # Called by the model and the transfer (qmnode.model.ports.Recorder)

    @property
    def writes(self) -> bool:
        """Whether events are recorded too."""
        return self._events is not None

    def inserted(self, queue: "Queue", entries: "Sequence[Entry]") -> None:
        """Messages arrived in a queue."""
        if self._events is not None:
            self._events.inserted(queue, entries)
        if not entries or queue.is_dead_letter or queue.is_journal:
            return
        if len(self._waiting) >= _WAITING:
            self._waiting.clear()
            self._known.clear()
        if queue.queue_id not in self._known and queue.message_count == len(entries):
            self._known.add(queue.queue_id)
        if found := _first_look(self._limit, entries):
            sampled = self._sampled(found)
            self._waiting |= sampled
            self._inserted(queue, sampled.values())

    def deleted(self, queue: "Queue", entries: "Sequence[Entry]", reason: int) -> None:
        """Messages left their queue."""
        if self._events is not None:
            self._events.deleted(queue, entries, reason)
        if leaving := self._leaving(queue, entries):
            self._deleted(queue, leaving, reason)

    def handed_on(self, queue: "Queue", entries: "Sequence[Arrived]") -> None:
        """Messages arrived that waiting readers took at once."""
        if found := _first_look(self._limit, entries):
            sampled = self._sampled(found).values()
            self._inserted(queue, sampled)
            self._deleted(queue, sampled, _RECEIVED)

    def transferred(self, queue: "Queue", entries: "Sequence[Entry]") -> None:
        """The next hop has messages: the spans cover their wait for that."""
        if self._events is not None:
            self._events.transferred(queue, entries)
        if leaving := self._leaving(queue, entries):
            peer, now = queue.peer.partition(" ")[0], self._now()  # type: ignore[attr-defined]
            for one in leaving:
                self._export(_transferred, one, queue, now, peer)

    def refused(self, packet: bytes, reason: int) -> None:
        """A packet that arrived was refused."""
        if self._events is not None:
            self._events.refused(packet, reason)
        for one in self._sampled(_first_look(self._limit, [(0, value_of_packet(packet, 0.0))])).values():
            self._export(_refused, one, None, self._now(), reason)

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

    def _sampled(self, entries: "Sequence[Arrived]") -> dict[int, _Sampled]:
        """Those whose spans are exported: the program decides that in its context, else every node alike."""
        sampled = {}
        for lookup_identifier, value in entries:
            try:
                begin, end, _ = contents_of(value, read_properties_place(value)[0])
                if begin > _LARGEST_HEAD:
                    continue
                context = trace_context.find(bytes(value[begin:end])) if end > begin else None
                if crc32(value[IDENTIFIER]) < self._limit if context is None else context.is_sampled:
                    sampled[lookup_identifier] = _Sampled(bytes(value[:begin]), context)
            except BROKEN:
                continue
        return sampled

    def _leaving(self, queue: "Queue", entries: "Sequence[Entry]") -> Collection[_Sampled]:
        """The sampled ones of messages that leave a queue."""
        if queue.is_dead_letter or queue.is_journal:
            return ()
        waiting = self._waiting
        if queue.queue_id in self._known:
            return [waiting.pop(one) for one, _ in entries if one in waiting] if waiting else ()
        sampled = self._sampled(_first_look(self._limit, entries))
        for one in sampled:
            waiting.pop(one, None)
        return sampled.values()

    def _export(self, make: Callable[..., Span], sampled: _Sampled, queue: "Queue | None", *facts: float | str) -> None:
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._left = second, MOST_A_SECOND
        if self._left > 0:
            self._left -= 1
            self._sink.export(partial(_made, make, sampled, queue, *facts))
        else:
            self.dropped += 1

    def _now(self) -> int:
        return int(self._clock.time() * 1e6) * 1000

    # Events of sampled messages

    def _inserted(self, queue: "Queue", sampled: Collection[_Sampled]) -> None:
        if queue.parent is not None:
            return
        came, begin = [one for one in sampled if not one.head[MOVES]], self._now()
        for one in came:
            self._export(_inserted, one, queue, begin)
        if stored := [one for one in came if not one.head[FLAGS] & EXPRESS]:
            self._store.durable().add_done_callback(partial(self._stored, queue, stored, begin))

    def _stored(self, queue: "Queue", stored: list[_Sampled], begin: int, done: "Future[None]") -> None:
        now, failed = self._now(), done.cancelled() or done.exception() is not None
        for one in stored:
            self._export(_stored, one, queue, begin, max(now, begin), failed)

    def _deleted(self, queue: "Queue", sampled: Collection[_Sampled], reason: int) -> None:
        now = self._now()
        for one in sampled:
            self._export(_deleted, one, queue, now, reason)


def _first_look(limit: int, entries: "Sequence[Arrived]") -> "Sequence[Arrived]":
    """Of all messages of an event, those that every node alike samples, and those whose Extension may have the context
    of a program: nearly none.

    They are of one queue, so that most have headers of the same size.
    """
    crc = crc32
    if not entries:
        return ()
    try:
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


# Spans


def _made(make: Callable[..., Span], sampled: _Sampled, queue: "Queue | None", *facts: float | str) -> Span | None:
    """Make a span of a sampled message, unless it is an acknowledgment or a report, or broken."""
    try:
        message = _message(*sampled)
    except BROKEN:
        return None
    node = message.hops
    """The number of this node on the way of the message, zero at the source."""
    if queue is None or queue.queue_type is not _OUTGOING:
        is_source = queue is not None and not node and message.source == queue.context.identifier
        node += not is_source
    return make(message, node, queue, *facts) if message.is_normal else None


def _inserted(message: _Message, node: int, queue: "Queue", now: int) -> Span:
    step, kind = (ARRIVE, "SERVER") if node else (SEND, "PRODUCER")
    return _span(step, message, message.entry(node), message.before(node), kind, now, now, queue)


def _stored(message: _Message, node: int, queue: "Queue", begin: int, end: int, failed: bool) -> Span:
    error = "the store failed" if failed else ""
    own, parent = message.span_id(STORE, node), message.entry(node)
    return _span(STORE, message, own, parent, "INTERNAL", begin, end, queue, {}, error)


def _transferred(message: _Message, node: int, queue: "Queue", now: int, peer: str) -> Span:
    own, parent = message.span_id(TRANSFER, node), message.entry(node)
    begin = min(message.arrived or now, now)
    span = _span(TRANSFER, message, own, parent, "CLIENT", begin, now, queue)
    return span._replace(shared=(*span.shared, (("server.address", peer),)))


def _deleted(message: _Message, node: int, queue: "Queue", now: int, reason: int) -> Span:
    waited = {"messaging.msmq.time_in_queue": max(now - message.arrived, 0) / 1e9}
    received = reason == _RECEIVED
    step, kind, error = (RECEIVE, "CONSUMER", "") if received else (DISCARD, "INTERNAL", _name_of(reason))
    own, parent = message.span_id(step, node), message.entry(node)
    return _span(step, message, own, parent, kind, now, now, queue, waited, error)


def _refused(message: _Message, node: int, queue: None, now: int, reason: int) -> Span:
    own, parent = message.entry(node), message.before(node)
    return _span(ARRIVE, message, own, parent, "SERVER", now, now, queue, {}, _name_of(reason))


def _span(
    step: str,
    message: _Message,
    own: int,
    parent: int,
    kind: str,
    begin: int,
    end: int,
    queue: "Queue | None",
    more: Mapping[str, Any] = {},
    error: str = "",
) -> Span:
    local = queue is not None and queue.queue_type is not _OUTGOING
    destination = queue.pathname if local and queue is not None else message.destination
    shared = (_of_step(step, destination), message.attributes)
    return Span(f"{step} {destination}", message.trace_id, own, parent, kind, begin, end, more, error, shared)


@lru_cache(_REMEMBERED)
def _of_step(step: str, destination: str) -> Attributes:
    attributes = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": step,
        "messaging.destination.name": destination,
    }
    if step in (SEND, RECEIVE):
        attributes["messaging.operation.type"] = step
    return tuple(attributes.items())


def _name_of(reason: int) -> str:
    try:
        return MessageClass(reason).name
    except ValueError:
        return f"{reason:#06x}"
