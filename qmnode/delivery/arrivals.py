"""Sessions that peers open, and the batches of messages that sessions receive: judged by the protocol, stored in their
queues, acknowledged after the sync. And the protocol's state outside the sessions, in memory and in the store.
"""

import asyncio
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, cast
from weakref import WeakSet

import structlog

from qmnode.allocator import LEFT_TO_LEND, lendable, with_head
from qmnode.delivery.neighbours import CopyWatch
from qmnode.delivery.notices import next_position
from qmnode.delivery.strangers import Doubt
from qmnode.model.ports import Entry
from qmnode.model.positions import insert_lent, insert_many, lookup_identifier_of
from qmnode.model.queue import OutgoingQueue, Queue
from qmnode.model.stored_message import (
    PREFIX_SIZE,
    REPORT,
    RecordFacts,
    RecordFlag,
    record_facts,
    stored_prefix,
    value_of_packet,
)
from qmnode.model.traffic import RefusedSender
from qmnode.protocol.commands import Closed, Command, Family, MessagesReceived, Opened, Record
from qmnode.protocol.incoming_sequences import IncomingSequences
from qmnode.protocol.message_id_history import MessageIdHistory
from qmnode.protocol.outgoing_sequences import OutgoingSequence, OutgoingSequences
from qmnode.protocol.received import DIRECT, LONGEST_NAME, DestinationName, ReceivedHeaders, ReceivedMessage
from qmnode.protocol.reception import Admission, Destination, DestinationKind, Reception, Taken, Verdict
from qmnode.protocol.session import Session
from qmnode.protocol.states import Role
from qmnode.security.arrival_checks import Arrival, QueueRules
from qmnode.security.errors import MessageDeferredError
from qmnode.security.protector import Admitted, Deferred, Refused
from qmnode.security.protector import Verdict as SecurityVerdict
from qmnode.settings.protocol import TransferSettings
from qmnode.shares import Accountant
from qmnode.shares import Kind as PartyKind
from qmnode.storage.errors import StoreError
from qmnode.storage.large_messages import SMALLEST
from qmnode.storage.layout import QUEUE_KEY
from qmnode.storage.layout import Family as StoreFamily
from qmnode.storage.store import Store
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.guid import ZERO_GUID, Guid, guid_to_text
from qmnode.structures.names import FormatName, PublicFormatName
from qmnode.structures.packet_view import PRIORITY_AT, Packet, without_answers
from qmnode.structures.user_message import UserFlags
from qmnode.transport.connection import Connection
from qmnode.transport.listener import Slot

if TYPE_CHECKING:
    from qmnode.delivery.network import Network


_PLACES: Final = {
    Family.INCOMING_SEQUENCE: (StoreFamily.INCOMING, b""),
    Family.OUTGOING_SEQUENCE: (StoreFamily.OUTGOING, b"s"),
    Family.SEQUENCE_IDENTIFIERS: (StoreFamily.OUTGOING, b"i"),
    Family.MESSAGE_ID_HISTORY: (StoreFamily.HISTORY, b""),
    Family.SEQUENCE_OWNER: (StoreFamily.OUTGOING, b"o"),
    Family.PEER_TLS: (StoreFamily.OUTGOING, b"t"),
}
"""The location of each kind of record: its column family and key prefix."""
AWAITING_FINAL_ACK: Final = b"f"
"""The prefix in the outgoing family of AwaitingFinalACKTable: message identifier to lookup identifier."""
_LAZY: Final = 0.02
"""Seconds for which a deletion may wait to share another write. If a crash loses it, the message is sent again and the
receiver recognises it.
"""


class ProtocolState:
    """Sequences, history and reception of one queue manager. Created before the store is written to."""

    def __init__(self, store: Store, settings: TransferSettings, shares: Accountant) -> None:
        self.store = store
        self.parameters = settings
        self.history = MessageIdHistory(self.parameters, shares)
        self.incoming = IncomingSequences(self.parameters, shares)
        self.outgoing = OutgoingSequences(self.parameters, store.sequence_time_stamp)
        self.reception: Reception
        self._changed: dict[OutgoingSequence, None] = {}
        self._lazy: asyncio.TimerHandle | None = None
        self._load()
        self._before_write = store.before_write
        store.before_write = self._write_changed

    def _load(self) -> None:
        now = asyncio.get_running_loop().time()
        self.history.load(self.records(Family.MESSAGE_ID_HISTORY))
        self.write(self.incoming.load(list(self.records(Family.INCOMING_SEQUENCE)), now))
        identifiers = [value for _, value in self.records(Family.SEQUENCE_IDENTIFIERS)]
        owners = list(self.records(Family.SEQUENCE_OWNER))
        self.outgoing.load(self.records(Family.OUTGOING_SEQUENCE), identifiers[0] if identifiers else None, owners)

    def begin(self, identifier: Guid) -> None:
        """Begin to receive as this queue manager, whose identifier may only be settled now."""
        self.reception = Reception(identifier, self.parameters, self.history, self.incoming)

    def records(self, family: Family) -> Iterator[tuple[bytes, bytes]]:
        """The records of a kind that are in the store: keys and values."""
        place, prefix = _PLACES[family]
        for key, value in self.store.scan(place, prefix):
            if not key.startswith(prefix):
                return
            yield key[len(prefix) :], value

    def write(self, records: Iterable[Record]) -> None:
        """Put records into the current batch."""
        store = self.store
        for family, key, value in records:
            place, prefix = _PLACES[family]
            if value is None:
                store.delete(place, prefix + key)
            else:
                store.put(place, prefix + key, value)

    def write_lazily(self) -> None:
        """Write the current batch soon, together with whatever else is written meanwhile."""
        if self._lazy is None:
            self._lazy = asyncio.get_running_loop().call_later(_LAZY, self._write_now)

    def _write_now(self) -> None:
        self._lazy = None
        self.store.durable()

    def stop(self) -> None:
        """Stop lazy writes: closing the store writes the rest."""
        if self._lazy is not None:
            self._lazy.cancel()
            self._lazy = None

    # Outgoing sequences: their records are written once for each batch, whatever the number of messages in it.

    @staticmethod
    def key_of(queue: OutgoingQueue) -> bytes:
        """The key of an outgoing queue in the protocol's records."""
        return QUEUE_KEY.pack(queue.queue_id)

    def next_numbers(self, queue: OutgoingQueue, count: int) -> tuple[int, int]:
        """TxSequenceID and first TxSequenceNumber for messages that are being committed."""
        key = self.key_of(queue)
        assignment = self.outgoing.assign(key, count)
        self.write(record for record in assignment.records if record.family is Family.SEQUENCE_IDENTIFIERS)
        self.changed(self.outgoing.get(key))
        return assignment.sequence_id, assignment.first_number

    def changed(self, sequence: OutgoingSequence) -> None:
        """Put the sequence's record into the next batch."""
        self._changed[sequence] = None

    def _write_changed(self) -> None:
        self._before_write()
        if self._changed:
            changed, self._changed = self._changed, {}
            self.write(sequence.record() for sequence in changed)


# ----------------------------------------------------------------------------------------------------------------------
# Internal errors while processing a received message: each place in the code is logged once, with its traceback.
#
# The sender of such a message can repeat it at will, and must not fill the log.

log = structlog.get_logger(__name__)

_MOST: Final = 1000


class Faults:
    """The places in the code that were logged."""

    def __init__(self) -> None:
        self._places: set[tuple[str, int | None]] = set()

    def log(self, error: BaseException, address: str, message_id: object = None) -> None:
        """Log an unexpected error unless one from the same place was logged before."""
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = (last.filename, last.lineno)
        if place in self._places or len(self._places) >= _MOST:
            return
        self._places.add(place)
        log.error(
            "a received message is refused, since the node fails at it unexpectedly: please report this",
            address=address, message_id=message_id, exc_info=error,
        )  # fmt: skip


# ----------------------------------------------------------------------------------------------------------------------
# Large messages, and many at once, whose receivers are about to ask for them: what is handed on at once is never
# written.

_PATIENCE: Final = 0.02
"""Seconds that a large message waits for a receiver, and those behind it in its session. To write it takes as long."""
_PATIENCE_OF_MANY: Final = 0.002
"""The same for many small messages at once."""
MANY: Final = 32
"""Messages that are worth the wait together."""


class AwaitedMessages:
    """The queues whose receivers come back for each large message, or for many."""

    def __init__(self) -> None:
        self._drained: WeakSet[Queue] = WeakSet()
        """Those whose last such messages found a receiver waiting."""

    def is_expected(self, queue: Queue | None) -> bool:
        """Note that a large message has come for a queue, or many. Return whether they should ``wait`` before they are
        stored.
        """
        if queue is None:
            return False
        if not queue.waiting:
            return queue in self._drained
        self._drained.add(queue)
        return False

    async def wait(self, queue: Queue, size: int) -> None:
        """Wait until a receiver waits at the queue, but not long. ``size`` is that of the last message."""
        if queue.awaited is None:
            queue.awaited = asyncio.get_running_loop().create_future()
        done, _ = await asyncio.wait((queue.awaited,), timeout=_PATIENCE if size >= SMALLEST else _PATIENCE_OF_MANY)
        if not done:
            self.forget(queue)

    def forget(self, queue: Queue) -> None:
        """Let no message wait until another one has found a receiver waiting."""
        self._drained.discard(queue)


Item = TypeVar("Item")


_KB: Final = 1024
_FORWARD: Final = DestinationKind.FORWARD
_PASSING: Final = (DestinationKind.FORWARD, DestinationKind.CONNECTOR)
_INFINITE: Final = 0xFFFF_FFFF
_TRANSACTIONAL: Final = RecordFlag.TRANSACTIONAL.value
_JOURNALING: Final = (RecordFlag.NEGATIVE_JOURNAL | RecordFlag.POSITIVE_JOURNAL).value
_TIGHT: Final = 16 * 1024 * 1024
"""Bytes that arrive at once at most: with fewer left for strangers, a new peer is looked up before it is refused."""
_NAMES_KEPT: Final = 4096
_HOPS: Final = UserFlags.RC.mask
_NOT_JUDGED: Final = Refused(
    MessageClass.MQMSG_CLASS_NACK_BAD_SIGNATURE, "the node failed when it looked at the security header", silent=True
)
"""Results that are not acknowledged: the answer could show a stranger whether the body was decrypted."""


class Arrivals:
    """Processes the messages that sessions receive, in the order of each session."""

    def __init__(self, network: "Network") -> None:
        self._network = network
        self._manager = network.manager
        self._state = network.state
        self._loop = asyncio.get_running_loop()
        self._written: asyncio.Future[None] | None = None
        self._batch: list[tuple[Connection, Admission]] = []
        self._names: dict[DestinationName, _Named] = {}
        self._names_version = -1
        """The version of the names of queues that ``_names`` is true for."""
        self._objections: dict[tuple[bool, int, bytes], Verdict | None] = {}
        """By authentication, privacy level and access list of a queue."""
        self._judging: dict[Connection, deque[Sequence[ReceivedMessage]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._faults = Faults()
        self._awaited = AwaitedMessages()

    def take(self, connection: Connection, messages: Sequence[ReceivedMessage]) -> None:
        """Take a batch from a session. Messages that are signed or encrypted are judged first; later messages wait
        for them. So do those behind large or many messages whose receiver is about to come back.
        """
        queue = self._judging.get(connection)
        if queue is not None:
            queue.append(messages)
        elif self._has_questions(connection, messages) or self._is_awaited(messages):
            self._judging[connection] = deque([messages])
            connection.judging(ends=False)
            task = self._loop.create_task(connection.steps(self._judge(connection)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self.admit(connection, messages, {})

    async def _judge(self, connection: Connection) -> None:
        """Judge the batches of a session one after the other (3.1.5.8.3)."""
        queue = self._judging[connection]
        try:
            while queue and not connection.session.closed:
                messages = queue[0]
                if self._is_awaited(messages):
                    await self._wait_for_receiver(queue)
                if not self._has_questions(connection, messages):
                    if connection.session.closed:
                        return
                    self.admit(connection, messages, {})
                    queue.popleft()
                    continue
                for place, batch in enumerate(queue):  # they may wait long, and memory is lent for short
                    queue[place] = [one.in_bytes() for one in batch]
                messages = queue[0]
                if not self._network.identities.is_settled(connection, messages):
                    await self._network.identities.settle(connection, messages)
                if self._network.forwarding.is_news(messages):
                    await self._network.forwarding.learn()
                await self._network.neighbours.settle(connection)
                verdicts, deferred = await self._settled_verdicts(connection, messages)
                while not self._network.identities.is_settled(connection, messages):
                    await self._network.identities.settle(connection, messages)  # the topology changed meanwhile
                if connection.session.closed:
                    return
                if deferred is None:
                    self.admit(connection, messages, verdicts)
                else:
                    # These messages are neither acknowledged nor refused: the session ends and the sender sends them
                    # again.
                    self.admit(connection, messages[:deferred], verdicts)
                    written = self._written
                    if written is not None:
                        await asyncio.wait([written])
                    connection.close()
                queue.popleft()
        except Exception as error:
            # Later messages must not be acknowledged: that would acknowledge these as well.
            self._faults.log(error, connection.address)
            connection.close()
        finally:
            del self._judging[connection]
            connection.judging(ends=True)

    def _has_questions(self, connection: Connection, messages: Sequence[ReceivedMessage]) -> bool:
        """Whether messages need more than a look before they are stored."""
        forwarding = self._network.forwarding
        return (
            _is_protected(messages)
            or not self._network.identities.is_settled(connection, messages)
            or not self._are_senders_settled(connection, messages)
            or forwarding.is_news(messages)
            or forwarding.waits_for_neighbour(connection, messages)
            or self._waits_for_party(connection)
        )

    async def _wait_for_receiver(self, batches: deque[Sequence[ReceivedMessage]]) -> None:
        """Wait for the receiver of the first batch. If others than its messages come meanwhile, they do not wait a
        second time.
        """
        queue = self._named(batches[0][-1].destination).queue
        if queue is None:
            return
        await self._awaited.wait(queue, len(batches[0][-1].packet))
        if any(self._named(batch[-1].destination).queue is not queue for batch in batches):
            self._awaited.forget(queue)

    def _is_awaited(self, messages: Sequence[ReceivedMessage]) -> bool:
        """Whether a receiver is about to come back for these messages: the last is large, or they are many."""
        last = messages[-1]
        is_worth_it = len(messages) >= MANY or len(last.packet) >= SMALLEST
        return is_worth_it and self._awaited.is_expected(self._named(last.destination).queue)

    def _are_senders_settled(self, connection: Connection, messages: Sequence[ReceivedMessage]) -> bool:
        unsigned = self._network.unsigned_senders
        return not unsigned.is_used or unsigned.is_settled(connection, messages, self._destinations(messages))

    def _destinations(self, messages: Sequence[ReceivedMessage]) -> dict[DestinationName, Destination]:
        return {name: self._destination(name) for name in self._state.reception.unresolved(messages, {})}

    async def _settled_verdicts(
        self, connection: Connection, messages: Sequence[ReceivedMessage]
    ) -> tuple[dict[int, Verdict], int | None]:
        """The verdicts once the senders are known that unsigned messages name."""
        if self._network.unsigned_senders.is_used:
            try:
                await self._network.unsigned_senders.settle(connection, messages, self._destinations(messages))
            except MessageDeferredError as error:
                log.warning("messages cannot be judged now", reason=error.sentence)
                return {}, 0
        return await self._verdicts(connection, messages)

    async def _verdicts(
        self, connection: Connection, messages: Sequence[ReceivedMessage]
    ) -> tuple[dict[int, Verdict], int | None]:
        """The verdicts by ordinal, and the position of the first message that cannot be judged now."""
        neighbour, unsigned = self._network.neighbours.of(connection), self._network.unsigned_senders
        arrivals: list[Arrival] = []
        places: list[int] = []
        queues: dict[DestinationName, Queue | None] = {}
        for place, received in enumerate(messages):
            headers = received.headers
            if not headers.has_protection:
                continue
            name = received.destination
            if name not in queues:
                destination = self._destination(name)
                is_here = isinstance(destination.queue, Queue) and destination.kind is DestinationKind.LOCAL
                queues[name] = cast("Queue", destination.queue) if is_here else None
            queue = queues[name]
            if queue is not None:
                believed = unsigned.sender_of(connection, headers, queue) if unsigned.is_used else None
                arrivals.append(Arrival(bytes(received.packet), _rules(queue), neighbour, believed))
                places.append(place)
        now = self._manager.clock.time()
        judged = await self._judged(arrivals, now)
        if any(map(_is_undecipherable, judged)) and await self._network.keys.know_more():
            judged = await self._judged(arrivals, now)
        verdicts: dict[int, Verdict] = {}
        for place, verdict in zip(places, judged, strict=True):
            match verdict:
                case Admitted(written, _, _, fingerprint, silent):
                    packet = without_answers(written) if silent else written
                    verdicts[messages[place].ordinal] = Verdict(packet=packet, silent=silent)
                    if fingerprint is not None and self._manager.recorder is not None:
                        self._manager.recorder.key_used(written, fingerprint)
                case Refused(message_class, sentence, silent):
                    log.info("a message failed its checks", reason=sentence)
                    verdicts[messages[place].ordinal] = Verdict(refused=message_class, silent=silent)
                case Deferred(sentence):
                    log.warning("a message cannot be judged now", reason=sentence)
                    return verdicts, place
        return verdicts, None

    async def _judged(self, arrivals: Sequence[Arrival], now: float) -> list[SecurityVerdict]:
        """The security verdict for each message. An unexpected failure refuses that message only, not its
        neighbours.
        """
        judge = self._network.security.admission.judge
        try:
            return await judge(arrivals, now)
        except Exception as failed:
            if len(arrivals) == 1:
                self._faults.log(failed, arrivals[0].neighbour.block)
                return [_NOT_JUDGED]
        return [verdict for arrival in arrivals for verdict in await self._judged([arrival], now)]

    def _plain_verdicts(
        self,
        connection: Connection,
        messages: Sequence[ReceivedMessage],
        destinations: Mapping[DestinationName, Destination],
        verdicts: Mapping[int, Verdict],
    ) -> Mapping[int, Verdict]:
        """The queues' objections to messages that are neither signed nor encrypted. Usually there are none, and then no
        message is inspected.
        """
        if self._network.unsigned_senders.is_used:
            return {**verdicts, **self._verdicts_by_sender(connection, messages, destinations)}
        against: dict[DestinationName, Verdict] = {}
        for name, destination in destinations.items():
            if destination.kind is DestinationKind.LOCAL and isinstance(destination.queue, Queue):
                objection = self._objection_to_plain(destination.queue)
                if objection is not None:
                    against[name] = objection
        if not against:
            return verdicts
        refused = {
            received.ordinal: against[received.destination]
            for received in messages
            if received.destination in against and not received.headers.has_protection
        }
        return {**verdicts, **refused}

    def _objection_to_plain(self, queue: Queue) -> Verdict | None:
        """The objection of a queue to all messages that are neither signed nor encrypted, remembered by its rules."""
        owner = queue.parent if queue.parent is not None else queue
        rules = owner.authentication, owner.privacy_level, owner.security
        if rules not in self._objections:
            if len(self._objections) >= _NAMES_KEPT:
                self._objections.clear()
            refusal = self._network.security.admission.refusal_of_plain(QueueRules(*rules))
            self._objections[rules] = None if refusal is None else Verdict(refused=refusal.message_class)
        return self._objections[rules]

    def _verdicts_by_sender(
        self,
        connection: Connection,
        messages: Sequence[ReceivedMessage],
        destinations: Mapping[DestinationName, Destination],
    ) -> dict[int, Verdict]:
        """The same where the SID in an unsigned message may count: once for all messages with the same headers."""
        refused: dict[int, Verdict] = {}
        headers = name = objection = None
        for received in messages:
            if received.headers is not headers or received.destination is not name:
                headers, name = received.headers, received.destination
                objection = self._objection(connection, headers, destinations[name])
            if objection is not None:
                refused[received.ordinal] = objection
        return refused

    def _objection(self, connection: Connection, headers: ReceivedHeaders, destination: Destination) -> Verdict | None:
        queue = destination.queue
        if headers.has_protection or destination.kind is not DestinationKind.LOCAL or not isinstance(queue, Queue):
            return None
        believed = self._network.unsigned_senders.sender_of(connection, headers, queue)
        refusal = self._network.security.admission.refusal_of_plain(_rules(queue), believed)
        return None if refusal is None else Verdict(refused=refusal.message_class)

    def admit(
        self, connection: Connection, messages: Sequence[ReceivedMessage], verdicts: Mapping[int, Verdict]
    ) -> None:
        """Decide, store, and acknowledge when the batch is on disk: one step, without waiting in between."""
        manager, state = self._manager, self._state
        now = manager.clock.time()
        reception = state.reception
        destinations = {name: self._destination(name, connection) for name in reception.unresolved(messages, {})}
        admission = reception.admit(
            messages,
            destinations,
            now=self._loop.time(),
            time=int(now),
            neighbour=connection.neighbour,
            verdicts=self._plain_verdicts(connection, messages, destinations, verdicts),
            room=self._room(connection, destinations.values()),
        )
        for failed, error in admission.failed:
            self._faults.log(error, connection.address, failed.message_id)
        # A reader may be waiting: the acknowledgment of the arrival precedes that of the receive.
        try:
            self._consequences(connection, admission)
            self._store(connection, admission, now)
        except Exception as error:
            # Memory has the decisions but the batch has only half of them: nothing more may be acknowledged.
            state.store.fail(error)
            raise
        written = state.store.durable()
        if written is not self._written:
            self._written, self._batch = written, []
            written.add_done_callback(partial(self._persisted, self._batch))
        self._batch.append((connection, admission))

    def _store(self, connection: Connection, admission: Admission, now: float) -> None:
        manager = self._manager
        headers, here, facts = None, None, RecordFacts(0, 0, 0)
        sent_time, prefix = -1, b""
        queue: Queue | None = None
        lane, passes = 0, False
        places = iter(manager.sequence.take(len(admission.taken)))
        arrived: list[Entry] = []
        forwarded: dict[OutgoingQueue, int] = {}
        for number, (packet, destination, received) in enumerate(admission.taken):
            if received.headers is not headers or destination is not here or packet is not received.packet:
                headers, here, facts = received.headers, destination, _facts(packet, destination)
                sent_time, lane = -1, lookup_identifier_of(packet[PRIORITY_AT], 0)
                before, queue = queue, _queue_of(destination, facts)
                # The check whether a passing message is already queued must see the messages before it.
                if before is not None and (before is not queue or isinstance(queue, OutgoingQueue)):
                    insert_many(before, arrived)
                    arrived = []
                passes = False
                if isinstance(queue, OutgoingQueue):
                    passes = bool(facts.flags & _TRANSACTIONAL and not destination.space)
                    forwarded[queue] = max(forwarded.get(queue, 0), headers.user_flags & _HOPS)
            if passes and self._network.is_repeated(cast("OutgoingQueue", queue), received):
                continue
            if received.sent_time != sent_time:
                sent_time = received.sent_time
                prefix = stored_prefix(facts, sent_time, now, destination.until)
            value = prefix + packet if type(packet) is bytes else with_head(prefix, packet)
            if not isinstance(value, memoryview):
                arrived.append((lane | next(places), value))
                continue
            assert queue is not None
            insert_many(queue, arrived)
            arrived = []
            kept = memoryview(insert_lent(queue, lane | next(places), value))[PREFIX_SIZE:]
            admission.taken[number] = Taken(kept, destination, received._replace(packet=kept))
        if queue is not None:
            insert_many(queue, arrived)
        for outgoing, hops in forwarded.items():
            self._network.forwarded(outgoing, connection, hops)
        for packet, reason in admission.dead_letters:
            position = next_position(manager, packet)
            limit = self._quota_limit(connection, is_left_here=True)
            manager.outcomes.add_to_dead_letters(position, value_of_packet(packet, now), reason, limit)
        self._state.write(admission.records)

    def _consequences(self, connection: Connection, admission: Admission) -> None:
        network, notices = self._network, self._network.notices
        # First the acknowledgments that read the store, since reading writes the pending part of the batch.
        each = partial(self._each, connection)
        if admission.order_acks_received:
            each(admission.order_acks_received, partial(network.acknowledgments.take_order_ack, connection))
        if admission.final_acks_received:
            each(admission.final_acks_received, partial(network.acknowledgments.take_final_ack, connection))
        if admission.administration:
            payer = partial(network.neighbours.payer, connection)
            each(
                admission.administration,
                lambda one: notices.administration(one, payer(Guid(one.correlation_id[:16]))),
            )
        if admission.final_acks:
            each(admission.final_acks, notices.final)
        if admission.traces:
            each(admission.traces, lambda one: notices.trace(one, network.neighbours.payer(connection, one.source)))
        if admission.gaps:
            network.after_restore.missed(admission.gaps)
        if admission.stopped or admission.disowned or admission.contested or admission.future:
            each((admission,), partial(self._report_distrust, connection))
        recorder = self._manager.recorder
        if recorder is not None:
            each(admission.refused, lambda refused: recorder.refused(bytes(refused[0].packet), refused[1]))
        if admission.refused:
            each(admission.refused, partial(self._count_refusal, connection))
            _log_refusals(connection, admission.refused)
        if admission.without_place:
            log.warning(
                "transactional messages wait at their source: too many sequences, see transfer.incoming_sequences and "
                "transfer.incoming_sequences_per_neighbour",
                address=connection.address, count=admission.without_place,
            )  # fmt: skip

    def _report_distrust(self, connection: Connection, admission: Admission) -> None:
        distrust, address, now = self._network.distrust, connection.address, self._loop.time()
        if admission.elsewhere is not None:
            distrust.note(Doubt.ELSEWHERE, address, now, admission.elsewhere)
            self._network.read_topology_soon()  # the neighbour may have become a routing server
        if admission.unanswered is not None:
            log.warning(
                "a session is closed: the name service or the directory did not answer in time where the source of its "
                "messages is; they wait there",
                address=address, source=guid_to_text(admission.unanswered),
            )  # fmt: skip
        if admission.disowned:
            distrust.note(Doubt.OWN_NAME, address, now, count=admission.disowned)
        for source, count in admission.contested.items():
            distrust.note(Doubt.CONTESTED, address, now, source, count)
        for source, count in admission.future.items():
            distrust.note(Doubt.FUTURE, address, now, source, count)

    def _each(self, connection: Connection, items: Iterable[Item], act: Callable[[Item], object]) -> None:
        """Call ``act`` for each item. A failure is logged: messages are stored even if other work fails."""
        for item in items:
            try:
                act(item)
            except StoreError:
                raise
            except Exception as error:
                self._faults.log(error, connection.address)

    def _count_refusal(self, connection: Connection, refused: tuple[ReceivedMessage, MessageClass]) -> None:
        received, reason = refused
        queue = self._destination(received.destination).queue
        tally = queue.tally if isinstance(queue, Queue) else self._manager.traffic.nowhere
        tally.reject(bytes(received.packet), reason)
        if not isinstance(queue, Queue) or isinstance(queue, OutgoingQueue):
            return
        headers, standing = received.headers, ""
        if reason is MessageClass.MQMSG_CLASS_NACK_ACCESS_DENIED:
            standing = self._network.unsigned_senders.standing_of(connection, headers, queue)
        sender = RefusedSender(int(reason), standing, headers.source_queue_manager, headers.claimed_sender)
        now = self._manager.clock.time()
        size, arrived = len(received.packet), tally.arrived
        self._manager.traffic.refusals.note(queue.pathname, sender, connection.address, size, now, arrived)

    def _persisted(self, batch: list[tuple[Connection, Admission]], written: "asyncio.Future[None]") -> None:
        """The batch is on disk: only now may acknowledgments be sent."""
        if written.exception() is not None:
            log.error("received messages could not be stored", reason=str(written.exception()))
            for connection, _ in batch:
                connection.close()
            return
        now = self._loop.time()
        for connection, admission in batch:
            connection.follow(partial(self._settle, connection, admission, now))
        batch.clear()

    def _settle(self, connection: Connection, admission: Admission, now: float) -> None:
        self._state.reception.persisted(admission, now)
        if admission.sequences or admission.duplicates or admission.out_of_order:  # an order acknowledgment may be due
            self._network.timers_changed()
        if admission.ordinal:  # no message of a batch was taken when the first found no room
            connection.settled(admission.ordinal, admission.recoverable_ordinal)
        if admission.stopped:
            if admission.elsewhere is None and admission.unanswered is None:
                log.warning("a session is closed: the queue manager is full", address=connection.address)
            connection.close()
        _let_go(admission)

    # Destinations

    def _room(self, connection: Connection, destinations: Iterable[Destination]) -> int | None:
        """Bytes left for a batch; None if there is room for any peer's."""
        quotas = self._manager.quotas
        if self._has_ample_room():
            return None
        limit = self._quota_limit(connection, is_left_here=any(one.kind in _PASSING for one in destinations))
        return max(0, int(limit) - quotas.used)

    def _has_ample_room(self) -> bool:
        """Whether there is room for a whole batch whatever the party of its peer is, which need not be found then."""
        quotas = self._manager.quotas
        return quotas.used < quotas.limit / 2 - 2 * _TIGHT

    def _quota_limit(self, connection: Connection, *, is_left_here: bool) -> float:
        """The bytes up to which the node stores messages of a peer. Those that nobody here may ever receive, because
        they pass or are dead letters, may use half of the node's space at most if a stranger brings them.
        """
        quotas, kind = self._manager.quotas, self._network.neighbours.party(connection).kind
        return quotas.limit / 2 if is_left_here and kind is PartyKind.STRANGER else quotas.limit_of(kind)

    def _waits_for_party(self, connection: Connection) -> bool:
        """Whether there is no room for strangers, and it is not known yet whether the peer is one."""
        if self._has_ample_room():
            return False
        quotas = self._manager.quotas
        is_tight = quotas.used > quotas.limit_of(PartyKind.STRANGER) - _TIGHT
        return is_tight and self._network.neighbours.is_pending(connection)

    def _destination(self, name: DestinationName, connection: Connection | None = None) -> Destination:
        """The current destination of a name, for messages that a connection delivered."""
        parsed, is_order_queue, found = self._named(name)
        if parsed is None:
            return Destination(DestinationKind.UNKNOWN)
        manager = self._manager
        if is_order_queue:
            return Destination(DestinationKind.ORDER_QUEUE)
        # A public queue may have moved here since its sender, or a routing server, looked its owner up.
        is_ours = isinstance(parsed, PublicFormatName) and found is not None
        if name.kind != DIRECT and not is_ours and name.address not in (manager.identifier, bytes(16)):
            return self._network.forwarding.destination(parsed, name.address, connection)
        if found is None:
            return Destination(DestinationKind.UNKNOWN)
        if found.is_delayed or (found.is_internal and not found.takes_notifications):
            return Destination(DestinationKind.UNKNOWN)
        room = None
        if found.quota != _INFINITE:
            room = max(0, found.quota * _KB - found.total_bytes - found.reserved_bytes)
        return Destination(DestinationKind.LOCAL, found, found.transactional, room=room)

    def _named(self, name: DestinationName) -> "_Named":
        """Resolve the name of a destination. The result is remembered while no queue is created or deleted."""
        names = self._manager.names
        if names.version != self._names_version or len(self._names) >= _NAMES_KEPT:
            self._names.clear()
            self._names_version = names.version
        known = self._names.get(name)
        if known is None:
            parsed, queue = name.format_name(), None
            if parsed is not None and not parsed.is_read_only:
                queue = names.local(parsed)
            if isinstance(queue, OutgoingQueue):
                queue = None
            known = _Named(parsed, name.is_order_queue(self._manager.identifier), queue)
            if len(name.name) <= LONGEST_NAME:
                self._names[name] = known
        return known


class IncomingSessions:
    """The sessions that peers open. Arrivals take their messages."""

    def __init__(self, network: "Network", arrivals: Arrivals) -> None:
        self._network = network
        self._manager = network.manager
        self._arrivals = arrivals
        self._loop = asyncio.get_running_loop()
        self.copies = CopyWatch(network.manager.troubles)
        self.accepted: dict[Connection, None] = {}
        """Their connections, the oldest first."""

    def accept(self, slot: Slot) -> Connection:
        """The connection of a peer that has come."""
        network, manager = self._network, self._manager
        session = Session(
            Role.ACCEPTOR,
            manager.identifier,
            network.session_settings,
            self._loop.time(),
            refuse=not manager.connection_active,
        )
        connection = network.new_connection(session, self._handle, initiator=False, on_lost=slot.release)
        slot.connection = connection
        session.admit_only(lambda machine: self._network.peer_tls.admits(connection, machine))
        self.accepted[connection] = None
        return connection

    def _handle(self, connection: Connection, commands: Sequence[Command]) -> None:
        for command in commands:
            match command:
                case MessagesReceived(messages):
                    self._heard(connection)
                    self._arrivals.take(connection, messages)
                case Opened():
                    self._heard(connection)
                    if connection.session.remote == self._manager.identifier and self._is_ours(connection):
                        connection.neighbour.itself = self._manager.identifier
                        self._network.notices.reaches_itself = True
                    self._network.neighbours.opened(connection)
                    self._network.peer_tls.taken(connection)
                    connection.established = self._manager.clock.time()
                    self._network.record_session(connection, opened=True)
                case Closed():
                    self.accepted.pop(connection, None)
                    self._left(connection.session.certified)
                    if connection.established:
                        self._network.record_session(connection, opened=False, state=command.reason.name.lower())
                    if command.error is not None:
                        log.warning(
                            "a peer broke the protocol", address=connection.address,
                            section=command.error.section, reason=str(command.error),
                        )  # fmt: skip
                case _:
                    pass

    def _heard(self, connection: Connection) -> None:
        remote = connection.session.remote
        if remote != ZERO_GUID:  # otherwise it has not identified itself
            self.copies.heard(remote, connection.address, connection.local_address, self._loop.time())

    def _left(self, certified: Guid | None) -> None:
        """A session ended. In a workgroup a peer known only by its certificate may go back to plain connections now."""
        if certified is None or not self._network.identities.is_workgroup:
            return
        if not any(connection.session.certified == certified for connection in self.accepted):
            self._network.state.reception.left(certified, self._loop.time())

    def _is_ours(self, connection: Connection) -> bool:
        """Whether this node itself opened a connection that it accepted: no other process has that port."""
        place = connection.address, connection.port
        return any((one.local_address, one.local_port) == place for one in self._network.outgoing())


class _Named(NamedTuple):
    """The name of a destination, resolved."""

    format_name: FormatName | None
    """None if the name is invalid."""
    is_order_queue: bool
    """Whether it is this node's order queue."""
    queue: Queue | None
    """The local queue that takes messages under this name."""


def _is_protected(messages: Iterable[ReceivedMessage]) -> bool:
    """Whether one of the messages is signed or encrypted, or claims to be checked."""
    headers = None
    for received in messages:
        if received.headers is not headers:
            headers = received.headers
            if headers.has_protection:
                return True
    return False


def _let_go(admission: Admission) -> None:
    """Keep a copy of a message that was handed on in lent memory, if much is lent: the latest messages of strangers
    are remembered for long.
    """
    taken, neighbour = admission.taken, admission.neighbour
    if len(taken) != 1 or neighbour is None or neighbour.is_known or type(taken[0].packet) is bytes:
        return
    if lendable() <= LEFT_TO_LEND:
        packet, destination, received = taken[0]
        packet = bytes(packet)
        taken[0] = Taken(packet, destination, received._replace(packet=packet))


def _log_refusals(connection: Connection, refused: Sequence[tuple[ReceivedMessage, MessageClass]]) -> None:
    """Log one line per reason instead of one per message, so that a sender of bad messages cannot fill the disk."""
    reasons: dict[MessageClass, list[ReceivedMessage]] = {}
    for received, message_class in refused:
        reasons.setdefault(message_class, []).append(received)
    for message_class, messages in reasons.items():
        headers = messages[0].headers
        log.info(
            "messages were refused", reason=message_class.name, count=len(messages), address=connection.address,
            first_message_id=messages[0].message_id, source=headers.source_queue_manager.hex(),
        )  # fmt: skip


def _queue_of(destination: Destination, facts: RecordFacts) -> Queue:
    queue = destination.queue
    if destination.transactional_queue is not None and facts.flags & _TRANSACTIONAL:
        queue = destination.transactional_queue
    assert isinstance(queue, Queue)
    return queue


def _facts(packet: Packet, destination: Destination) -> RecordFacts:
    facts = record_facts(packet, transit=destination.kind is _FORWARD)
    if facts.flags & _TRANSACTIONAL and facts.flags & _JOURNALING:
        return facts._replace(flags=facts.flags | REPORT)  # its source waits for a FinalAck
    return facts


def _is_undecipherable(verdict: object) -> bool:
    return isinstance(verdict, Refused) and verdict.key_missing


def _rules(queue: Queue) -> QueueRules:
    owner = queue.parent if queue.parent is not None else queue
    return QueueRules(owner.authentication, owner.privacy_level, owner.security)
