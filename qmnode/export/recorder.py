"""Records a node's events in the same batch of the store as the changes that they describe.

Events of work that a crash rolled back are never exported; events of durable work always are. Events of express
messages and of sessions, which a crash erases anyway, wait a moment for another batch: recording never causes a sync.
"""

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any, Final

import structlog

from qmnode.export.events import EventKind
from qmnode.export.log import PLACES, SENT_AND_REACHED, count_of, write_block
from qmnode.model.api import QueueType
from qmnode.model.stored_message import (
    EXPRESS,
    FLAGS,
    MOVES,
    NAMED_DEAD_LETTER,
    SOURCE,
    read_properties_place,
    value_of_packet,
)
from qmnode.storage.layout import EVENTS_KEY, Family
from qmnode.storage.origin import EVENTS_EXPORTED
from qmnode.storage.store import Store
from qmnode.structures.enumerations import MessageClass, is_negative_acknowledgment
from qmnode.structures.guid import guid_to_text
from qmnode.structures.packet_view import LABEL_LENGTH_AT, PROPERTIES_SIZE, message_class_of, read_message_class

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qmnode.model.ports import Arrived, Clock, Entry
    from qmnode.model.queue import Queue
    from qmnode.model.queue_manager import QueueManager

log = structlog.get_logger(__name__)

_LAZY: Final = 0.5
"""Seconds for which such events may wait in memory."""
_IN_MEMORY: Final = 4096
"""The most such events in memory."""
_LONGEST: Final = 200
"""Characters of a sentence in an event."""
_DROPPED: Final = "events_dropped"
_REPORT: Final = MessageClass.MQMSG_CLASS_REPORT.value
_RECEIVED: Final = MessageClass.MQMSG_CLASS_ACK_RECEIVE.value
_OUTGOING: Final = QueueType.OUTGOING
_SENT, _ACCEPTED, _TRANSFERRED, _REACHED, _KIND_RECEIVED, _MOVED, _DIED, _DEAD, _JOURNALED, _REMOVED = (
    PLACES[kind]
    for kind in (
        EventKind.SENT, EventKind.ACCEPTED, EventKind.TRANSFERRED, EventKind.REACHED, EventKind.RECEIVED,
        EventKind.MOVED, EventKind.DIED, EventKind.DEAD_LETTER, EventKind.JOURNALED, EventKind.REMOVED,
    )
)  # fmt: skip


class EventRecorder:
    """The events of one node, in its store."""

    def __init__(self, store: Store, clock: "Clock", backlog_limit: int) -> None:
        self._store = store
        self._clock = clock
        self._limit = backlog_limit
        self._manager: QueueManager | None = None
        self._events: list[tuple[int, str, str, int, int, bytes]] = []
        """Tuples with the fields of :class:`~qmnode.export.log.Event`, which is slower to create."""
        self._must = False
        """Whether events are waiting that belong to the next batch."""
        self._timer: asyncio.TimerHandle | None = None
        self._before_write = store.before_write
        self.exported = int.from_bytes(store.get_meta(EVENTS_EXPORTED) or b"", "big")
        """Sequential identifier of the last exported event."""
        self._next = self.exported + 1
        self.backlog = 0
        """Bytes of events in the store."""
        self.oldest: float | None = None
        """When the oldest of them was written, by the loop's clock; None when there is none."""
        self.dropped = int.from_bytes(store.get_meta(_DROPPED) or b"", "big")
        """Discarded events that no ``dropped`` event has reported yet."""
        for key, block in store.scan(Family.EVENTS, b""):
            self._next = EVENTS_KEY.unpack(key)[0] + count_of(block)
            self.backlog += len(block)
            self.oldest = 0.0

    def attach(self, manager: "QueueManager") -> None:
        """Record the events of this queue manager from now on."""
        self._manager = manager
        self._before_write = self._store.before_write
        self._store.before_write = self._write
        self.node_event(EventKind.STARTED)

    # Called by the model and the transfer (qmnode.model.shared_state.Recorder)

    writes = True

    def inserted(self, queue: "Queue", entries: "Sequence[Entry]") -> None:
        """Messages arrived in a queue: the event depends on the kind of queue."""
        for _, value in entries:
            self._inserted(queue, value)

    def _inserted(self, queue: "Queue", value: bytes) -> None:
        if queue.is_dead_letter or queue.is_journal:
            assert self._manager is not None
            dead = queue.is_dead_letter and queue is not self._manager.journal_queue
            self._record(_DEAD if dead else _JOURNALED, queue, value, _class_of(value))
            return
        assert self._manager is not None
        own = value[SOURCE] == self._manager.identifier
        if _is_dead_letter(value):
            self._record(_DEAD, queue, value, _class_of(value))
        elif queue.queue_type is _OUTGOING:
            self._record(_SENT if own else _ACCEPTED, queue, value)
        elif value[MOVES] or queue.parent is not None:
            self._record(_MOVED, queue, value)
        else:
            self._record(SENT_AND_REACHED if own else _REACHED, queue, value)

    def deleted(self, queue: "Queue", entries: "Sequence[Entry]", reason: int) -> None:
        """Messages left their queue."""
        for _, value in entries:
            if queue.is_dead_letter or queue.is_journal or _is_dead_letter(value):
                self._record(_REMOVED, queue, value, reason)
            elif reason == _RECEIVED:
                self._record(_KIND_RECEIVED, queue, value)
            else:
                self._record(_DIED, queue, value, reason)

    def handed_on(self, queue: "Queue", entries: "Sequence[Arrived]") -> None:
        """Never: messages go through the store with their events."""
        raise AssertionError(queue.pathname)

    def transferred(self, queue: "Queue", entries: "Sequence[Entry]") -> None:
        """The next hop has messages."""
        for _, value in entries:
            self._record(_TRANSFERRED, queue, value, peer=queue.peer)  # type: ignore[attr-defined]

    def refused(self, packet: bytes, reason: int) -> None:
        """A packet that arrived was refused."""
        self._record_packet(EventKind.REFUSED, packet, "", reason)

    def key_used(self, packet: bytes, fingerprint: str) -> None:
        """A packet that arrived was decrypted with this key of the node."""
        self._record_packet(EventKind.KEY_USED, packet, fingerprint, 0)

    def session(self, opened: bool, *, peer: str, peer_identifier: bytes, incoming: bool, state: str = "") -> None:
        """A session was opened or closed."""
        kind = EventKind.SESSION_OPENED if opened else EventKind.SESSION_CLOSED
        self.node_event(kind, peer=f"{peer} {guid_to_text(peer_identifier)}", incoming=incoming, state=state or None)

    def queue_state(self, queue: "Queue", state: str, peer: str, cause: str = "", detail: str = "") -> None:
        """The state of an outgoing queue changed."""
        why = {"cause": cause or None, "detail": detail[:_LONGEST] or None}
        self.node_event(EventKind.QUEUE_STATE, queue=queue.pathname, peer=peer, state=state, **why)

    def heartbeat(self, probe: str, queue: str, sent: float, reason: str, sentence: str) -> None:
        """A heartbeat came through, or was missed for a reason."""
        self.node_event(
            EventKind.HEARTBEAT, queue=queue, label=probe, sent_time=int(sent * 1e6), cause=reason or None,
            detail=sentence[:_LONGEST] or None,
        )  # fmt: skip

    def node_event(self, kind: EventKind, queue: str = "", peer: str = "", **facts: Any) -> None:
        """Record an event that is not about a message."""
        self._events.append((PLACES[kind], queue, peer, 0, self._time(), json.dumps(facts).encode()))
        self._soon()

    def _time(self) -> int:
        return int(self._clock.time() * 1e6)

    def _record(self, kind: int, queue: "Queue", value: bytes, reason: int = 0, peer: str = "") -> None:
        # Runs once or more for each message: only the necessary work here.
        told = _told(value)
        self._events.append((kind, queue.pathname, peer, reason, int(self._clock.time() * 1e6), told))
        if value[FLAGS] & EXPRESS:
            self._soon()
        else:
            self._must = True

    def _record_packet(self, kind: EventKind, packet: bytes, peer: str, reason: int) -> None:
        self._events.append((PLACES[kind], "", peer, reason, self._time(), _told(value_of_packet(packet, 0.0))))
        self._soon()

    # The store

    def _soon(self) -> None:
        if len(self._events) >= _IN_MEMORY:
            self._must = True
            self._store.durable()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LAZY, self._now)

    def _now(self) -> None:
        self._timer = None
        if self._events:
            self._must = True
            self._store.durable()

    def _write(self) -> None:
        """Put waiting events into the batch, before the store writes it."""
        self._before_write()
        if self._must:
            self._must = False
            events, self._events = self._events, []
            self._put(events)

    def _put(self, events: list[tuple[int, str, str, int, int, bytes]]) -> None:
        if self.backlog >= self._limit:
            if not self.dropped:
                log.warning("events are not kept any more: their limit is reached", bytes=self.backlog)
            self._set_dropped(self.dropped + sum(2 if event[0] == SENT_AND_REACHED else 1 for event in events))
            return
        if self.dropped:
            told = json.dumps({"count": self.dropped}).encode()
            events.insert(0, (PLACES[EventKind.DROPPED], "", "", 0, self._time(), told))
            log.warning("events were not kept", count=self.dropped)
            self._set_dropped(0)
        block = write_block(events)
        self._store.put(Family.EVENTS, EVENTS_KEY.pack(self._next), block)
        self._next += count_of(block)
        self.backlog += len(block)
        if self.oldest is None:
            self.oldest = time.monotonic()

    def _set_dropped(self, count: int) -> None:
        self.dropped = count
        self._store.put_meta(_DROPPED, count.to_bytes(8, "big"))

    def flush(self) -> None:
        """Write all recorded events to the store."""
        self._must = True
        self._store.flush()

    def blocks(self, size: int) -> list[tuple[int, bytes]]:
        """The oldest blocks, with the sequential identifiers of their first events, up to about ``size`` bytes."""
        found: list[tuple[int, bytes]] = []
        for key, block in self._store.scan(Family.EVENTS, EVENTS_KEY.pack(self.exported + 1)):
            found.append((EVENTS_KEY.unpack(key)[0], block))
            size -= len(block)
            if size <= 0:
                break
        return found

    def forget(self, blocks: list[tuple[int, bytes]]) -> None:
        """Remove exported blocks from the store, in the next batch."""
        first, (last, block) = blocks[0][0], blocks[-1]
        end = last + count_of(block)
        self._store.delete_range(Family.EVENTS, EVENTS_KEY.pack(first), EVENTS_KEY.pack(end))
        self.exported = end - 1
        self._store.put_meta(EVENTS_EXPORTED, self.exported.to_bytes(8, "big"))
        self.backlog -= sum(len(one) for _, one in blocks)
        self.oldest = time.monotonic() if self.backlog > 0 else None

    def stop(self) -> None:
        """Stop recording; earlier events are in the store's last batch."""
        self.node_event(EventKind.STOPPED)
        self._must = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _told(value: bytes) -> bytes:
    """The exported part of a stored message: without its body, except for a trace report."""
    start = read_properties_place(value)[0]
    if start + PROPERTIES_SIZE > len(value):
        return value  # a damaged record
    if read_message_class(value, start)[0] == _REPORT:
        return value
    end: int = start + PROPERTIES_SIZE + 2 * value[start + LABEL_LENGTH_AT]
    return value[:end]


def _is_dead_letter(value: bytes) -> bool:
    """Whether a message is in the dead-letter queue that its application named."""
    return bool(value[FLAGS] & NAMED_DEAD_LETTER) and is_negative_acknowledgment(_class_of(value))


def _class_of(value: bytes) -> int:
    return message_class_of(value, read_properties_place(value)[0])
