"""Sends the messages of one outgoing queue and processes their outcomes.

A message under way is *locked* in its queue: it cannot expire, be purged or be read by another caller until its outcome
is known. Messages that a broken session leaves without an outcome stay locked and go first in the next session.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from qmnode.delivery.acknowledgments import UNACKNOWLEDGED_LIMIT, Unacknowledged
from qmnode.delivery.queue_connection import Precedence, QueueConnection, Undecided, report_failure
from qmnode.model.leaving_queue import kept
from qmnode.model.ports import Entry
from qmnode.model.positions import PositionState, lock_first
from qmnode.model.queue import OutgoingQueue
from qmnode.model.queue_manager import QueueManager
from qmnode.model.stored_message import (
    FACTS,
    FLAGS,
    NAMED_DEAD_LETTER,
    NEGATIVE_JOURNAL,
    PREFIX_SIZE,
    TRANSACTIONAL,
    TransactionOffsets,
    is_any_private,
    packet_of,
    with_class,
)
from qmnode.model.stored_message import SOURCE as STORED_SOURCE
from qmnode.model.traffic import RoundTrips
from qmnode.protocol.acknowledgments import has_expired
from qmnode.protocol.commands import (
    Closed,
    CloseReason,
    Command,
    MessagesAcknowledged,
    MessagesExpired,
    MessagesReceived,
    Opened,
    RoomAvailable,
    StatusChanged,
)
from qmnode.protocol.received import ReceivedMessage
from qmnode.structures.conformance import violation
from qmnode.structures.enumerations import MessageClass, OutgoingQueueState
from qmnode.structures.errors import PacketError
from qmnode.structures.guid import ZERO_GUID, Guid, guid_to_text
from qmnode.structures.packet_view import (
    ADDRESS,
    LARGE,
    SOURCE,
    TRACED,
    TRACED_AT,
    Packet,
    read_sending_fields,
    read_sequence_fields,
    with_sequence_fields,
)
from qmnode.structures.user_message import UserMessage
from qmnode.transport.connection import Connection

if TYPE_CHECKING:
    from qmnode.delivery.network import Network


# ----------------------------------------------------------------------------------------------------------------------
# Detects transactional messages that another queue manager sends again while they wait here for their next hop.


class Repeats:
    """The messages of other queue managers that wait in an outgoing queue, as ranges of their sequences.

    A source sends transactional messages until their order acknowledgment comes, and none comes while their destination
    is down. Without this, a routing server would store thousands of them again each time. Ranges are kept only while
    nothing leaves the queue, and only where one message names the other as its predecessor. So a message that is called
    repeated is really there, on disk or in the same batch, and will be sent.
    """

    def __init__(self, queue: OutgoingQueue) -> None:
        self.is_sending = False
        """Whether the queue has a session: messages leave it."""
        self._queue = queue
        self._ranges: dict[Guid, tuple[int, int, int]] = {}

    def is_repeated(self, received: ReceivedMessage, arriving: int) -> bool:
        """Whether this transactional message already waits here. If not, it is recorded as waiting.

        ``arriving`` is the number of messages that are accepted but not yet in the queue.
        """
        if self.is_sending:
            return False
        if not self._are_waiting(arriving):  # also after a purge
            self.forget()
        if self._has(received):
            return True
        headers, number = received.headers, received.tx_sequence_number
        source, sequence = headers.source_queue_manager, headers.tx_sequence_id or 0
        known, first, last = self._ranges.get(source, (0, 0, 0))
        if known != sequence or received.previous_tx_sequence_number != last:
            first = number
        self._ranges[source] = (sequence, first, number)
        return False

    def waits(self, received: ReceivedMessage, arriving: int) -> bool:
        """``is_repeated`` for a message that will not be accepted."""
        return not self.is_sending and self._are_waiting(arriving) and self._has(received)

    def _are_waiting(self, arriving: int) -> bool:
        return self._queue.message_count + arriving > len(self._queue.locked)

    def _has(self, received: ReceivedMessage) -> bool:
        headers = received.headers
        known, first, last = self._ranges.get(headers.source_queue_manager, (0, 0, 0))
        return (
            known == (headers.tx_sequence_id or 0)
            and received.previous_tx_sequence_number != last
            and first <= received.tx_sequence_number <= last
        )

    def sending(self) -> None:
        """The queue has a session now."""
        self.is_sending = True
        self.forget()

    def forget(self) -> None:
        """Forget all ranges: messages leave the queue, or have left it."""
        self._ranges.clear()


# ----------------------------------------------------------------------------------------------------------------------
# Malformed messages in transit that a neighbour would refuse: early versions accepted and stored such packets.

log = structlog.get_logger(__name__)

_REASON: Final = MessageClass.MQMSG_CLASS_NACK_DELETED


def set_aside(manager: QueueManager, queue: OutgoingQueue, lookup_identifiers: Iterable[int]) -> None:
    """Move malformed messages of other queue managers from an outgoing queue, where they are locked, to the dead-letter
    queue.

    Called when a session broke with these under way. The neighbour closes every session that brings such a packet
    (MS-MQQB 3.1.5.1.3), so all messages behind it would wait for ever.
    """
    for lookup_identifier in lookup_identifiers:
        value = queue.locked[lookup_identifier].value
        if value[STORED_SOURCE] == manager.identifier or (problem := _problem(value[PREFIX_SIZE:])) is None:
            continue
        log.warning(
            "a malformed message goes to the dead-letter queue: the next hop would refuse it, and those behind it",
            queue=queue.pathname, lookup_identifier=lookup_identifier, reason=problem,
        )  # fmt: skip
        queue.unlock(lookup_identifier)
        if value[FLAGS] & TRANSACTIONAL or not value[FLAGS] & NEGATIVE_JOURNAL:  # else deletion makes it
            manager.queue_collection.dead_letter.insert(lookup_identifier, with_class(kept(value), _REASON))
        queue.delete(lookup_identifier, value, _REASON)


def _problem(packet: bytes) -> str | None:
    try:
        found = violation(UserMessage.parse(packet))
    except PacketError as error:
        return str(error)
    return f"{found.structure}.{found.field}: {found.sentence}" if found is not None else None


_PROTECTED_AT_ONCE: Final = 32
"""Messages encrypted at a time."""
_TAKEN_BYTES: Final = 1024 * 1024
"""Bytes of messages that are taken from the queue at a time; one message can be larger."""
_SPECIAL: Final = NAMED_DEAD_LETTER | TRANSACTIONAL
"""Flags of messages that are not sent as they are stored."""


class QueueSender:
    """Empties one outgoing queue over its connection to the next hop."""

    def __init__(self, network: "Network", queue: OutgoingQueue) -> None:
        self.queue = queue
        self._network = network
        self._state = network.state
        self._loop = asyncio.get_running_loop()
        self.key = self._state.key_of(queue)
        self.queue_connection = QueueConnection(network, queue, self.handle, self.schedule, self._undecided)
        self._reading = False
        self._again: deque[int] = deque()
        self.unacknowledged = Unacknowledged(network, queue, self.key)
        self.credibility = self.unacknowledged.credibility
        self._held = 0
        """Messages taken for the session that wait for the disk or for encryption."""
        self._written_last: asyncio.Future[None] | None = None
        """The write that the last held message waits for: no message taken later is sent before it."""
        self._returning = False
        """Whether held messages are to be returned to the queue; nothing is taken before that. In a sequence, the
        receiver would take an overtaken place for a gap, and its message for a duplicate.
        """
        self._protecting: asyncio.Task[None] | None = None
        self._protected: dict[int, tuple[bytes, float]] = {}
        """Messages under way in encrypted form."""
        self.repeats = Repeats(queue)
        self._round_trips = RoundTrips(queue.tally, network.manager.traffic.round_trips)
        self._offsets = TransactionOffsets()
        self._unsynced = False
        self._is_large = False
        """Whether the messages that were taken last reached ``_TAKEN_BYTES``."""
        self._scheduled = False
        self._precedence: Precedence | None = None
        """Shared with the other queues of the next hop while there is a session."""
        queue.subscriber = self._message_available
        if queue.message_count and queue.state is not OutgoingQueueState.ON_HOLD:
            self.schedule()

    # Events of the queue

    def _message_available(self) -> None:
        self._unsynced = True
        self.schedule()

    def level(self) -> int | None:
        """BasePriority plus the priority of the first message that can be sent (MS-MQDMPR 3.1.7.1.28)."""
        queue = self.queue
        if queue.message_count > len(queue.locked):
            for lane in queue.lanes:
                if lane is not None and lane.count and lane.first(queue.locked) is not None:
                    return queue.base_priority + lane.priority
        return None

    def schedule(self) -> None:
        """Process the queue once after the current step, however many messages came."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        """Take as many messages as the window has room for."""
        self._scheduled = False
        connection = self.queue_connection.connection
        if connection is None or not self._reading:
            if connection is None and (self.queue.message_count or self._again) and self._network.running:
                self.queue_connection.messages_available()
            return
        if (
            self.queue.state is OutgoingQueueState.ON_HOLD
            or self._protecting is not None
            or self.queue_connection.draining
        ):
            if self._precedence is not None and self._protecting is None:
                self._precedence.step_aside(self)
            return
        if self._again:
            self._send_again(connection)
        if self._again or self._returning or self._protecting is not None:
            return
        unacknowledged = UNACKNOWLEDGED_LIMIT - len(self.unacknowledged)
        if unacknowledged <= 0 and self._precedence is not None:
            self._precedence.step_aside(self)  # until its destination acknowledges, however long that is down
            return
        if self._held and self._is_large:
            return  # they are written first
        room = min(connection.room() - self._held, unacknowledged)
        entries = self._take(room)
        if not entries:
            return
        self._is_large = len(entries) < room and sum([len(value) for _, value in entries]) >= _TAKEN_BYTES
        # The sender's own copy is synced before the message leaves.
        store = self._state.store
        written = store.durable() if self._unsynced else store.pending()
        self._unsynced = False
        if written is None and self._held:
            written = self._written_last
        if written is None:
            self._send_written(connection, entries)
            if self._is_large:
                self.schedule()
        else:
            self._held += len(entries)
            self._written_last = written
            written.add_done_callback(partial(self._written, connection, entries))

    def _take(self, room: int) -> list[Entry]:
        """The next messages to send, if no other queue goes first."""
        precedence = self._precedence
        if precedence is None or not precedence.is_shared:
            return lock_first(self.queue, room, _TAKEN_BYTES) if room > 0 else []
        room = precedence.room(self, room)
        if room <= 0:
            return []
        entries = lock_first(self.queue, room, _TAKEN_BYTES)
        precedence.sent(self, len(entries))
        return entries

    def _written(self, connection: Connection, entries: list[Entry], written: "asyncio.Future[None]") -> None:
        if written.exception() is not None:
            return  # the store has failed, and every caller was notified
        self._send_written(connection, entries)
        self._let_go(len(entries))
        self.schedule()

    def _let_go(self, count: int) -> None:
        """Count held messages that were sent or returned."""
        self._held -= count
        if not self._held:
            self._returning = False

    def _send_written(self, connection: Connection, entries: list[Entry]) -> None:
        if self._is_overtaking(connection, again=False):
            self._give_back(entries)
        elif self._protecting is None and not (
            is_any_private(entries) and self._network.protection.is_any_needed(entries)
        ):
            self._send(connection, entries)
        else:
            self._held += len(entries)
            before = self._protecting
            self._protecting = task = self._loop.create_task(self._protect(connection, entries, before))
            task.add_done_callback(report_failure)

    def _is_overtaking(self, connection: Connection, again: bool) -> bool:
        """Whether held messages cannot be sent now: others go before them, or their session has closed."""
        if connection is not self.queue_connection.connection or connection.session.closed:
            return True
        return not again and (bool(self._again) or self._returning)

    async def _protect(
        self, connection: Connection, entries: list[Entry], before: "asyncio.Task[None] | None", again: bool = False
    ) -> None:
        """Encrypt for the destination (3.1.7.1.5), then send in the same order.

        Messages are encrypted a few at a time: the receiver decrypts and verifies the first while the others are on
        their way.
        """
        if before is not None:
            await asyncio.wait([before])
        sent = 0
        try:
            while sent < len(entries):
                some = entries[sent : sent + _PROTECTED_AT_ONCE]
                if not await self._protect_some(connection, some, again):
                    break
                sent += len(some)
            if again:
                self._again = deque(sorted({*self._again, *(one for one, _ in entries[sent:])}))
            else:
                self._give_back(entries[sent:])
        finally:
            self._let_go(len(entries))
            if self._protecting is asyncio.current_task():
                self._protecting = None
        self.schedule()

    async def _protect_some(self, connection: Connection, entries: list[Entry], again: bool) -> bool:
        """Encrypt and send these messages. Return whether that was possible now."""
        protected = await self._network.protection.protect(
            self.queue,
            entries,
            self.queue_connection.owner,
            self.queue_connection.message_failed,
            self.queue_connection.defer,
        )
        if self._is_overtaking(connection, again):
            return False
        if protected is None:
            connection.close()  # the directory is down: try later
            return False
        if len(self._protected) > 2 * UNACKNOWLEDGED_LIMIT:
            self._protected = {one: value for one, value in self._protected.items() if one in self.queue.locked}
        now = self._loop.time()
        self._protected.update((one, (value, now)) for one, value in protected)
        self._send(connection, protected, again)
        return True

    def _protect_again(self, connection: Connection) -> bool:
        """Encrypt the next messages again if that was long ago: the private key for them may be destroyed by now.
        Return whether there were any.

        The receiver recognises a duplicate by its identifiers, however it was encrypted.
        """
        old = self._loop.time() - self._network.protection.lifetime
        stale: list[Entry] = []
        while self._again and len(stale) < connection.room() - self._held:
            one = self._again[0]
            position = self.queue.locked.get(one)
            if position is not None:
                if one not in self._protected or self._protected[one][1] > old:
                    break
                stale.append((one, position.value))
            self._again.popleft()
        if stale:
            self._held += len(stale)
            self._protecting = task = self._loop.create_task(self._protect(connection, stale, None, again=True))
            task.add_done_callback(report_failure)
        return bool(stale)

    def _give_back(self, entries: Sequence[Entry]) -> None:
        """Return messages that were taken and not sent to the queue; those taken later will follow."""
        queue = self.queue
        self._returning = self._held > 0 and (self._returning or bool(entries))
        for lookup_identifier, _ in reversed(entries):
            if lookup_identifier not in queue.locked:
                continue
            position = queue.unlock(lookup_identifier)
            if position.state is PositionState.PURGE_PENDING:
                queue.delete(lookup_identifier, position.value, MessageClass.MQMSG_CLASS_NACK_Q_PURGED)
            else:
                queue.make_available(lookup_identifier, position.value)

    # Sending

    def _send(self, connection: Connection, entries: list[Entry], again: bool = False) -> None:
        room = connection.session.room()
        if len(entries) > room:  # the peer reduced its window: a message with a place in the sequence is sent anyway
            self._put_back(entries[room:], again)
            entries = entries[:room]
        tokens: list[int] = []
        packets: list[Packet] = []
        sent: dict[int, int] = {}
        own, address, time = (
            self._network.manager.identifier,
            self.queue_connection.owner,
            int(self._network.manager.clock.time()),
        )
        addressed, offset_of = address != ZERO_GUID, self._offsets.of
        if not addressed and not any(value[FLAGS] & _SPECIAL for _, value in entries):
            tokens = [lookup_identifier for lookup_identifier, _ in entries]
            packets = [
                value[PREFIX_SIZE:] if len(value) < LARGE else memoryview(value)[PREFIX_SIZE:] for _, value in entries
            ]
        else:
            sequence = self._state.outgoing.get(self.key)
        for index, (lookup_identifier, value) in enumerate(() if tokens else entries):
            flags, expires = FACTS.unpack_from(value)
            packet: Packet = packet_of(value) if flags & NAMED_DEAD_LETTER else value[PREFIX_SIZE:]
            if addressed and packet[ADDRESS] == ZERO_GUID:
                packet = b"".join((packet[: ADDRESS.start], address, packet[ADDRESS.stop :]))
            if flags & TRANSACTIONAL and packet[SOURCE] == own:
                if expires <= time and not again and self._expires_now(lookup_identifier, value, packet):
                    continue
                offset = offset_of(value)
                identifier, number, previous = read_sequence_fields(value, offset)
                bridge = sequence.prepare(identifier, number)  # 3.1.7.1.3
                if bridge is None and sequence.is_acknowledged(identifier, number):
                    # The destination no longer accepts a message in this place.
                    self.unacknowledged.release([lookup_identifier])
                    self._state.write_lazily()
                    continue
                if bridge is None:  # not before the messages ahead are acknowledged
                    self._put_back(entries[index:], again=True)
                    break
                sent[number] = lookup_identifier
                if bridge != previous:
                    packet = with_sequence_fields(packet, offset - PREFIX_SIZE, identifier, number, bridge)
            tokens.append(lookup_identifier)
            packets.append(packet)
        if not packets:
            return
        if sent:
            self.unacknowledged.update(sent)
            if sequence.resend_at is None:
                self._state.outgoing.sent(sequence, self._loop.time())
                self._network.timers_changed()
        before = connection.session.sent_count
        connection.send(tokens, packets, time, again=again)
        self._round_trips.sent(packets[: connection.session.sent_count - before], self._loop.time(), again)
        if not again:
            for packet in packets:
                if packet[TRACED_AT] & TRACED:
                    self._network.notices.sent(packet, connection.address)

    def _put_back(self, entries: list[Entry], again: bool) -> None:
        """Put entries back at the front of the queue."""
        if again:
            self._again.extendleft(lookup_identifier for lookup_identifier, _ in reversed(entries))
        else:
            self._give_back(entries)

    def _expires_now(self, lookup_identifier: int, value: bytes, packet: Packet) -> bool:
        """Expire a transactional message before it gets a number in the sequence, or those behind it would wait."""
        lifetime, sent_time, _, _ = read_sending_fields(packet)
        if not has_expired(lifetime, sent_time, self._network.time()):
            return False
        self._expire(lookup_identifier)
        return True

    def _expire(self, lookup_identifier: int) -> None:
        queue = self.queue
        if lookup_identifier in queue.locked:
            value = queue.unlock(lookup_identifier).value
            queue.delete(lookup_identifier, value, queue.expiry_reason)
            self._state.write_lazily()

    def _send_again(self, connection: Connection) -> None:
        """Send messages that were sent before and have no outcome yet."""
        queue = self.queue
        while self._again and connection.room() > 0:
            if self._protected and self._protect_again(connection):
                return
            if not self._again:
                return
            lookup_identifier = self._again.popleft()
            position = queue.locked.get(lookup_identifier)
            if position is None:
                continue
            before = len(self._again)
            value = position.value
            if lookup_identifier in self._protected:
                value = self._protected[lookup_identifier][0]  # never send unencrypted a message that was encrypted
            self._send(connection, [(lookup_identifier, value)], again=True)
            if len(self._again) > before:
                return

    def resend(self) -> None:
        """Transactional Ack Wait Timer Event, 3.1.6.5: the sequence was rewound; begin at its first message."""
        first = sorted(self.unacknowledged.values())
        waiting = set(first)
        self._again = deque([*first, *(one for one in self._again if one not in waiting)])
        self.schedule()

    # Events of the session

    def handle(self, connection: Connection, commands: Sequence[Command]) -> None:
        """Process the commands of the session."""
        for command in commands:
            match command:
                case MessagesAcknowledged():
                    self._acknowledged(command)
                case RoomAvailable():
                    self.schedule()
                case MessagesReceived(messages):
                    self._network.arrivals.take(connection, messages)
                case MessagesExpired(tokens, _):
                    for token in tokens:
                        assert isinstance(token, int)
                        self._expire(token)
                case StatusChanged(status):
                    self.queue_connection.status_changed(status)
                case Opened():
                    self._opened(connection)
                case Closed():
                    self._closed(connection, command)

    def _opened(self, connection: Connection) -> None:
        connection.established = self._network.manager.clock.time()
        self.credibility.address = connection.address
        # The acknowledgments that count: for a direct name, those of the peer; for other names, those of the named
        # owner.
        sequence = self._state.outgoing.get(self.key)
        before = sequence.destination
        if sequence.leads_to(connection.session.remote if connection.session.direct else self.queue_connection.owner):
            self._state.write([sequence.owner_record()])
            self._state.write_lazily()
            self._unsynced = True  # or a restarted node would look for its messages at the owner before
        if before not in (ZERO_GUID, sequence.destination):  # the new one cannot decrypt them: encrypt them again
            self._protected = {one: (value, float("-inf")) for one, (value, _) in self._protected.items()}
        self._reading = True
        self.repeats.sending()
        self.queue.readers += 1
        self.queue.peer = f"{connection.address} {guid_to_text(connection.session.remote)}"
        self._network.record_session(connection, opened=True)
        self.queue_connection.opened()
        if not self.queue.for_acknowledgments:  # acknowledgments hold no queue back, and no queue holds them back
            self._precedence = self._network.precedence_of(connection.session.remote)
            self._precedence.join(self)
        self.schedule()

    def _undecided(self) -> Undecided:
        sequence = self._state.outgoing.get(self.key)
        again = sum(one in self.queue.locked for one in self._again)
        is_any = again > 0 or sequence.may_have_arrived()
        progress = sequence.active_id, sequence.acknowledged, sequence.sent, again
        is_unsent = again > 0 or sequence.waits_for_earlier()
        return Undecided(sequence.destination if is_any else ZERO_GUID, is_unsent, progress)

    def _acknowledged(self, command: MessagesAcknowledged) -> None:
        """Delete or journal acknowledged messages, 3.1.5.5. Transactional ones wait for their order acknowledgment."""
        queue = self.queue
        count = len(command.released) + len(command.journaled) + len(command.received)
        self._round_trips.acknowledged(count, self._loop.time())
        if command.released:
            queue.release(command.released)  # type: ignore[arg-type]
        if command.journaled:
            manager = self._network.manager
            for entry in queue.release(command.journaled):  # type: ignore[arg-type]
                manager.outcomes.add_to_journal(manager.journal_queue, *entry)
        if command.received and self.credibility.stored(command.received):  # type: ignore[arg-type]
            self._network.acknowledgments.stored(self)
        if command.released or command.journaled:
            self._state.write_lazily()
        self.queue_connection.acknowledged()

    def _closed(self, connection: Connection, command: Closed) -> None:
        if connection is not self.queue_connection.connection:
            return
        if self._reading:
            self._network.record_session(connection, opened=False, state=command.reason.name.lower())
        if command.error is not None:
            log.warning(
                "a peer broke the protocol", queue=self.queue.pathname, address=connection.address,
                section=command.error.section, reason=str(command.error),
            )  # fmt: skip
        queue = self.queue
        if self._reading:
            self._reading = self.repeats.is_sending = False
            queue.readers -= 1
            if not queue.readers:
                queue.forget_window()
        self._state.outgoing.disconnected(self._state.outgoing.get(self.key))
        fateless = {
            one for one in (*command.unacknowledged, *self.unacknowledged.values(), *self._again) if one in queue.locked
        }
        if command.reason is CloseReason.DISCONNECTED:
            set_aside(self._network.manager, queue, fateless)
        self._again = deque(sorted(fateless & queue.locked.keys()))
        self._returning = self._held > 0
        self._round_trips.forget()
        self._leave_precedence()
        self.queue_connection.closed(command.reason)

    def _leave_precedence(self) -> None:
        if self._precedence is not None and self._precedence.leave(self):
            self._network.precedence_ends(self._precedence)
        self._precedence = None

    def stop(self) -> None:
        """Close everything: the node stops, or the queue was deleted."""
        self.queue.subscriber = None
        self._leave_precedence()
        self.queue_connection.stop()
