"""The spans of messages: what this node did with a message, and the span before it, here or at another node.

A node never changes a message on its way, so the identifiers of spans are not carried: every node computes them from
the message and its hop count. The same computation gives the parent of a span, which another node exports.
"""

import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from zlib import crc32

from qmnode.bodies import trace_context
from qmnode.export.decoding import message_row
from qmnode.model.api import QueueType
from qmnode.model.stored_message import (
    BROKEN,
    IDENTIFIER,
    MOVES,
    SOURCE,
    read_arrival,
    read_properties_place,
    value_of_packet,
)
from qmnode.structures.message_classes import MessageClass
from qmnode.structures.packet_view import contents_of, read_extension_size

if TYPE_CHECKING:
    from qmnode.export.recorder import EventRecorder
    from qmnode.model.ports import Clock, Recorder
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


class Sink(Protocol):
    """A collector, or the exporters that lead to one."""

    def export(self, span: Span) -> None:
        """Export a span soon; it is dropped if too many wait."""


class _Message(NamedTuple):
    """A message whose spans are exported."""

    trace_id: int
    producer: int
    """The span of the program that sent it, or zero."""
    row: dict[str, Any]
    node: int
    """The number of this node on its way, zero at the source. Nodes count themselves in the message when they forward
    it (MS-MQMQ 2.2.19.2, RC); the last one does not.
    """

    def span_id(self, step: str, node: int | None = None) -> int:
        """The identifier of a step at a node, which all nodes compute alike."""
        row, number = self.row, self.node if node is None else node
        facts = (self.trace_id, row["source_id"], row["message_number"], row["destination"], number, step)
        digest = sha256("\\".join(map(str, facts)).encode())
        return int.from_bytes(digest.digest()[:8], "big") or 1

    @property
    def entry(self) -> int:
        """The span by which it came to this node."""
        return self.span_id(ARRIVE if self.node else SEND)

    @property
    def before(self) -> int:
        """The parent of that span: the program's, or the transfer from the previous node."""
        return self.span_id(TRANSFER, self.node - 1) if self.node else self.producer


class SpanRecorder:
    """Exports spans of sampled messages, and passes every event on to the recorder of events, if there is one."""

    def __init__(
        self, store: "Store", clock: "Clock", events: "EventRecorder | None", sink: Sink, sampling: float
    ) -> None:
        self._store = store
        self._clock = clock
        self._events: Recorder | None = events
        self._sink = sink
        self._limit = round(sampling * _CRC)
        self._may_have_spans = _first_look(self._limit)
        self._second = 0
        self._left = 0
        self.dropped = 0
        """Spans beyond ``MOST_A_SECOND``, since start."""

    # Called by the model and the transfer (qmnode.model.ports.Recorder)

    @property
    def writes(self) -> bool:
        """Whether events are recorded too."""
        return self._events is not None

    def inserted(self, queue: "Queue", value: bytes) -> None:
        """A message arrived in a queue."""
        if self._events is not None:
            self._events.inserted(queue, value)
        if not self._may_have_spans(value):
            return
        message = self._sampled(value, queue)
        if message is None or queue.is_dead_letter or queue.is_journal or value[MOVES] or queue.parent is not None:
            return
        begin = self._now()
        step = ARRIVE if message.node else SEND
        kind = "SERVER" if message.node else "PRODUCER"
        self._export(step, message, message.entry, message.before, kind, begin, begin, queue)
        if message.row["recoverable"]:
            stored = self._store.durable()
            stored.add_done_callback(
                lambda done: self._stored(message, queue, begin, done.cancelled() or done.exception() is not None)
            )

    def deleted(self, queue: "Queue", value: bytes, reason: int) -> None:
        """A message left its queue."""
        if self._events is not None:
            self._events.deleted(queue, value, reason)
        if not self._may_have_spans(value):
            return
        message = self._sampled(value, queue)
        if message is None or queue.is_dead_letter or queue.is_journal:
            return
        now, came = self._now(), int(read_arrival(value)[0]) * 1000
        waited = {"messaging.msmq.time_in_queue": max(now - came, 0) / 1e9}
        if reason == _RECEIVED:
            own = message.span_id(RECEIVE)
            self._export(RECEIVE, message, own, message.entry, "CONSUMER", now, now, queue, waited)
        else:
            own = message.span_id(DISCARD)
            error = _name_of(reason)
            self._export(DISCARD, message, own, message.entry, "INTERNAL", now, now, queue, waited, error)

    def transferred(self, queue: "Queue", value: bytes) -> None:
        """The next hop has a message: the span covers its wait for that."""
        if self._events is not None:
            self._events.transferred(queue, value)
        if not self._may_have_spans(value):
            return
        message = self._sampled(value, queue)
        if message is not None:
            peer = {"server.address": queue.peer.partition(" ")[0]}  # type: ignore[attr-defined]
            now, came = self._now(), int(read_arrival(value)[0]) * 1000
            own = message.span_id(TRANSFER)
            self._export(TRANSFER, message, own, message.entry, "CLIENT", min(came or now, now), now, queue, peer)

    def refused(self, packet: bytes, reason: int) -> None:
        """A packet that arrived was refused."""
        if self._events is not None:
            self._events.refused(packet, reason)
        value = value_of_packet(packet, 0.0)
        message = self._sampled(value, None) if self._may_have_spans(value) else None
        if message is not None:
            now = self._now()
            self._export(ARRIVE, message, message.entry, message.before, "SERVER", now, now, None, {}, _name_of(reason))

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

    def _sampled(self, value: bytes, queue: "Queue | None") -> _Message | None:
        """The message, if its spans are exported: the program decides that in its context, else every node alike."""
        try:
            begin, end, _ = contents_of(value, read_properties_place(value)[0])
            context = trace_context.find(value[begin:end]) if end > begin else None
            if not (crc32(value[IDENTIFIER]) < self._limit if context is None else context.is_sampled):
                return None
            row = message_row(value, labels=False)
        except BROKEN:
            return None
        if row["message_class"] != _NORMAL or not self._may():
            return None
        node = row["hop_count"]
        if queue is None or queue.queue_type is not _OUTGOING:
            is_source = queue is not None and not node and value[SOURCE] == queue.context.identifier
            node += not is_source
        if context is not None:
            return _Message(context.trace_id, context.span_id, row, node)
        digest = sha256(value[SOURCE] + value[IDENTIFIER]).digest()
        return _Message(int.from_bytes(digest[:16], "big") or 1, 0, row, node)

    def _may(self) -> bool:
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._left = second, MOST_A_SECOND
        if self._left <= 0:
            self.dropped += 1
            return False
        self._left -= 1
        return True

    def _now(self) -> int:
        return int(self._clock.time() * 1e6) * 1000

    # Spans

    def _stored(self, message: _Message, queue: "Queue", begin: int, failed: bool) -> None:
        own = message.span_id(STORE)
        error = "the store failed" if failed else ""
        self._export(STORE, message, own, message.entry, "INTERNAL", begin, max(self._now(), begin), queue, {}, error)

    def _export(
        self,
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
    ) -> None:
        row = message.row
        local = queue is not None and queue.queue_type is not _OUTGOING
        destination = queue.pathname if local and queue is not None else row["destination"]
        attributes = {
            "messaging.system": SYSTEM,
            "messaging.operation.name": step,
            "messaging.destination.name": destination,
            "messaging.message.id": f"{row['source_id']}\\{row['message_number']}",
            "messaging.message.body.size": row["body_size"],
            "messaging.message.envelope.size": row["size"],
            "messaging.msmq.hop_count": row["hop_count"],
            **more,
        }
        if step in (SEND, RECEIVE):
            attributes["messaging.operation.type"] = step
        self._sink.export(
            Span(f"{step} {destination}", message.trace_id, own, parent, kind, begin, end, attributes, error)
        )


def _first_look(limit: int) -> Callable[[bytes], bool]:
    """A function that runs for each event of each message, and says of nearly all of them that they have no spans.

    True for messages that every node alike samples, and for those whose Extension may have the context of a program.
    """

    def look(value: bytes) -> bool:
        try:
            return crc32(value[IDENTIFIER]) < limit or read_extension_size(value, read_place(value)[0])[0] > 0
        except BROKEN:
            return False

    read_place = read_properties_place
    return look


def _name_of(reason: int) -> str:
    try:
        return MessageClass(reason).name
    except ValueError:
        return f"{reason:#06x}"
