"""Order and final acknowledgments that arrive: the check of their origin, their effects (MS-MQQB 3.1.5.6, 3.1.5.7); and
the transactional messages that wait for them.

Messages that arrived and wait for their final acknowledgment (AwaitingFinalACKTable) are kept in an internal queue,
indexed by message identifier; none of them is held in memory.
"""

import asyncio
from collections.abc import Callable, Iterable
from enum import Enum, auto, unique
from functools import partial
from itertools import chain, islice, takewhile
from struct import Struct
from typing import TYPE_CHECKING, Final

from qmnode.delivery.arrivals import AWAITING_FINAL_ACK, ProtocolState
from qmnode.delivery.strangers import Doubt
from qmnode.model.ports import Entry
from qmnode.model.positions import remove_acknowledged
from qmnode.model.queue import OutgoingQueue
from qmnode.model.stored_message import (
    FLAGS,
    NEVER,
    PREFIX_SIZE,
    TRANSACTIONAL,
    RecordFlag,
    packet_of,
    transaction_offset,
    user_flags,
    with_prefix,
)
from qmnode.protocol.acknowledgments import Fate, FinalAcknowledgment, after_final_ack, after_order_ack
from qmnode.protocol.incoming_sequences import OrderAcknowledgment
from qmnode.protocol.outgoing_sequences import AckResult, OutgoingSequence
from qmnode.protocol.reception import FinalAckReceived, OrderAckReceived
from qmnode.storage.layout import Family
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.guid import ZERO_GUID, Guid
from qmnode.structures.packet_view import SOURCE, places_of, read_sending_fields, read_sequence_fields
from qmnode.structures.user_message import TransactionFlags, UserFlags, UserHeader
from qmnode.transport.connection import Connection

if TYPE_CHECKING:
    from qmnode.delivery.network import Network
    from qmnode.delivery.queue_sender import QueueSender
    from qmnode.model.queue_manager import QueueManager


_REACHED_FOR: Final = 1.0
"""Seconds for which the set of addresses that messages go to is cached."""


class Acknowledgments:
    """Processes the order and final acknowledgments that sessions receive."""

    def __init__(self, network: "Network") -> None:
        self._network = network
        self._outgoing = network.state.outgoing
        self._loop = asyncio.get_running_loop()
        self._reached: set[str] = set()
        self._reached_at = float("-inf")
        self.final_acks = FinalAcks(
            network.manager, network.state, self._queue_sender_of, self._answers_for, network.queue_sender
        )

    def take_order_ack(self, connection: Connection, received: OrderAckReceived) -> None:
        """Receive an OrderAck packet, 3.1.5.6."""
        body, now, distrust = received.body, self._loop.time(), self._network.distrust
        sequence = self._outgoing.of(body.tx_sequence_id)
        number = body.tx_sequence_number
        author = received.author if sequence is None else self._answers_for(received.author, sequence.destination)
        is_for_author = sequence is not None and sequence.destination in (ZERO_GUID, author)
        if (
            sequence is not None
            and is_for_author
            and not self._comes_from_there(connection, received.author, sequence.queue)
        ):
            if received.author in connection.neighbour.unanswered:
                return  # it comes again: the destination repeats it
            if received.author in connection.neighbour.elsewhere:
                # A stored message can still end at the next hop: the destination would wait for it for ever.
                distrust.missed(Doubt.ORDER_ACK, connection.address, now)
                return
            number = self._believed(sequence, received, connection.address)
            if number < body.tx_sequence_number and not self._waits(sequence, received):
                distrust.missed(Doubt.ORDER_ACK, connection.address, now)
            if not number:
                return
        if sequence is not None and author == sequence.destination and self._outgoing.is_older(sequence.active_id):
            queue_sender = self._network.queue_sender(sequence.queue)
            name = "" if queue_sender is None else queue_sender.queue.pathname
            self._network.after_restore.acknowledged(sequence, name, number)
        result, sequence = self._outgoing.take_order_ack(author, body.tx_sequence_id, number, now, self._network.time())
        if result is AckResult.FORGED:
            distrust.missed(Doubt.ORDER_ACK, connection.address, now)
            if received.author == connection.session.remote:
                self._loop.call_soon(connection.close)
        if result is AckResult.PROGRESS and sequence is not None:
            self._progress(sequence, connection.address)

    def take_final_ack(self, connection: Connection, received: FinalAckReceived) -> None:
        """Receive a FinalAck packet, 3.1.5.7."""
        address, now, distrust = connection.address, self._loop.time(), self._network.distrust
        neighbour = connection.neighbour
        if (
            not neighbour.speaks_for(received.author)
            and distrust.is_noisy(address, now)
            and not self._is_reached(address, now)
        ):
            distrust.note(Doubt.FINAL_ACK, address, now)
        elif (received.author in neighbour.elsewhere and not neighbour.is_unsettled) or not self.final_acks.take(
            received, partial(self._belief, connection, received)
        ):
            distrust.missed(Doubt.FINAL_ACK, address, now)

    def take_own(self, acknowledgment: OrderAcknowledgment | FinalAcknowledgment) -> None:
        """Process an acknowledgment that would go to this node's own order queue."""
        own = self._network.manager.identifier
        if isinstance(acknowledgment, FinalAcknowledgment):
            final = FinalAckReceived(own, acknowledgment.message_class, acknowledgment.body)
            self.final_acks.take(final, lambda *_: Belief.WHOLE)
            return
        result, sequence = self._outgoing.take_order_ack(
            own, acknowledgment.sequence_id, acknowledgment.sequence_number, self._loop.time(), self._network.time()
        )
        if result is AckResult.PROGRESS and sequence is not None:
            self._progress(sequence, "")

    def stored(self, queue_sender: "QueueSender") -> None:
        """The next hop has stored more messages of a queue: process the acknowledgments that waited for that."""
        credibility = queue_sender.credibility
        waiting, credibility.final_acks = credibility.final_acks, {}
        for acknowledgment in waiting.values():
            self.final_acks.take(acknowledgment, lambda *_: Belief.IF_ARRIVED)
        order, credibility.order_ack = credibility.order_ack, None
        sequence = None if order is None else self._outgoing.of(order.body.tx_sequence_id)
        if order is None or sequence is None:
            return
        address = credibility.order_ack_from
        number = self._believed(sequence, order, address)
        if number:
            now, time = self._loop.time(), self._network.time()
            author = self._answers_for(order.author, sequence.destination)
            result, _ = self._outgoing.take_order_ack(author, order.body.tx_sequence_id, number, now, time)
            if result is AckResult.PROGRESS:
                self._progress(sequence, address)

    def _progress(self, sequence: OutgoingSequence, address: str) -> None:
        """Record that messages of a sequence were acknowledged."""
        self._network.state.changed(sequence)
        queue_sender = self._network.queue_sender(sequence.queue)
        if queue_sender is not None:
            queue_sender.credibility.answers_from = address
            queue_sender.unacknowledged.order_acknowledged(sequence.acknowledged)
            queue_sender.queue.accepted((sequence.active_id, sequence.acknowledged))
            queue_sender.schedule()
        self._network.timers_changed()

    def _believed(self, sequence: OutgoingSequence, received: OrderAckReceived, address: str) -> int:
        """The number up to which an order acknowledgment from another address is accepted."""
        queue_sender = self._network.queue_sender(sequence.queue)
        if queue_sender is None or self._answers_for(received.author, sequence.destination) != sequence.destination:
            return 0
        return queue_sender.unacknowledged.stored_up_to(received, address)

    def _waits(self, sequence: OutgoingSequence, received: OrderAckReceived) -> bool:
        """Whether an order acknowledgment is kept until the next hop has stored more messages."""
        queue_sender = self._network.queue_sender(sequence.queue)
        return queue_sender is not None and queue_sender.credibility.order_ack is received

    def _answers_for(self, author: Guid, destination: Guid) -> Guid:
        return self._network.identities.answers_for(author, destination)

    def _is_reached(self, address: str, now: float) -> bool:
        """Whether messages of this node go to an address, or did so a moment ago."""
        if now >= self._reached_at + _REACHED_FOR:
            self._reached = self._network.addresses_reached()
            self._reached_at = now
        return address in self._reached

    def _belief(
        self, connection: Connection, received: FinalAckReceived, queue: bytes, destination: Guid, has_arrived: bool
    ) -> "Belief":
        """The extent to which a final acknowledgment for a message of an outgoing queue is believed. ``destination`` is
        null for a message to an address at which nobody has answered since the start. ``has_arrived``: the message has
        its order acknowledgment.
        """
        author = received.author
        if connection.neighbour.speaks_for(author):
            if received.message_class not in ON_THE_WAY and destination != ZERO_GUID:
                return Belief.WHOLE  # it is compared with the author
            if received.message_class not in ON_THE_WAY:
                self._loop.call_soon(connection.close)
                return Belief.NOT_YET
            queue_sender = self._network.queue_sender(queue)
            is_destination = queue_sender is not None and queue_sender.unacknowledged.destination == author
            own = self._network.manager.identifier
            if is_destination or self._network.identities.may_pass_on(author, own):
                return Belief.WHOLE
            has_it = queue_sender is not None and queue_sender.credibility.comes_from(connection.address)
            return Belief.IF_STORED if has_it else Belief.NEVER
        if self._comes_from_there(connection, author, queue):
            return Belief.WHOLE
        if author in connection.neighbour.unanswered or connection.neighbour.is_unsettled:
            self._loop.call_soon(connection.close)
            return Belief.NOT_YET
        if received.message_class in ON_THE_WAY and self._network.identities.only_registered:
            return Belief.NEVER
        queue_sender = self._network.queue_sender(queue)
        if queue_sender is not None and not has_arrived and queue_sender.credibility.is_too_early(self._loop.time()):
            self._loop.call_soon(connection.close)
            return Belief.NOT_YET
        if queue_sender is None or not queue_sender.credibility.address:
            return Belief.IF_ARRIVED if self._network.identities.is_workgroup else Belief.IF_STORED
        if queue_sender.credibility.answers_from == connection.address:
            return Belief.IF_ARRIVED
        return Belief.IF_STORED

    def _comes_from_there(self, connection: Connection, author: Guid, queue: bytes) -> bool:
        """Whether acknowledgments for an outgoing queue are expected from this connection."""
        if connection.neighbour.speaks_for(author):
            return True
        queue_sender = self._network.queue_sender(queue)
        return queue_sender is not None and queue_sender.credibility.comes_from(connection.address)

    def _queue_sender_of(self, sequence_id: int) -> "QueueSender | None":
        sequence = self._outgoing.of(sequence_id)
        return None if sequence is None else self._network.queue_sender(sequence.queue)


# ----------------------------------------------------------------------------------------------------------------------
# Final acknowledgments at the sender: finding the message and deciding its fate (3.1.5.7).
#
# The store holds AwaitingFinalACKTable, by message identifier. A FinalAck is believed only if it fits the message that
# it names, so that an attacker who guesses an identifier cannot delete other queue managers' messages.

_USER_AT: Final = 16
ON_THE_WAY: Final = frozenset(
    {MessageClass.MQMSG_CLASS_NACK_HOP_COUNT_EXCEEDED, MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT}
)
"""Classes that a queue manager on the way may send; all others come from the destination."""


def final_ack_fate(packet: bytes, acknowledgment: FinalAckReceived, destination: Guid = ZERO_GUID) -> Fate:
    """The fate of the message ``packet`` that has the identifier of the FinalAck. KEEP if the FinalAck does not fit it.

    The message is in the outgoing queue or in AwaitingFinalACKTable. ``destination`` is the queue manager whose order
    acknowledgments count (``OutgoingSequence.destination``), if known.
    """
    header = _user_header(packet)
    body = acknowledgment.body
    if not header.flags & UserFlags.TH.mask or header.message_id != body.message_id:
        return Fate.KEEP
    fields = read_sequence_fields(packet, places_of(packet).transaction_header)
    if fields[:2] != (body.tx_sequence_id, body.tx_sequence_number):
        return Fate.KEEP
    expected = destination_of(packet, destination)
    if acknowledgment.message_class not in ON_THE_WAY and expected not in (ZERO_GUID, acknowledgment.author):
        return Fate.KEEP
    return after_final_ack(header.flags, acknowledgment.message_class)


def destination_of(packet: bytes, known: Guid = ZERO_GUID) -> Guid:
    """The queue manager that a message names as its destination; ``known`` if it has an address alone."""
    named = _user_header(packet).queue_manager_address
    return known if named == ZERO_GUID else named


def _user_header(packet: bytes) -> UserHeader:
    return UserHeader.parse_from(packet, _USER_AT)[0]


_NEGATIVE: Final = 0x8000
"""The bit of a class that makes it a negative acknowledgment (MS-MQMQ 2.2.18.1.6)."""
_LOOKUP: Final = Struct(">Q")
_NUMBER: Final = Struct(">I")
_DESTINATION: Final = slice(_LOOKUP.size, _LOOKUP.size + len(ZERO_GUID))


@unique
class Belief(Enum):
    """The extent to which a final acknowledgment is believed, depending on its sender."""

    WHOLE = auto()
    IF_ARRIVED = auto()
    """Believed if the message has its order acknowledgment."""
    IF_STORED = auto()
    """Believed if the next hop has stored the message, which has no order acknowledgment yet."""
    NEVER = auto()
    """Its author is no machine that such a word can come from."""
    NOT_YET = auto()
    """Its author's place, or who is at the message's address, is unknown: it comes again in another session."""


COUNTED: Final = 10_000
"""The most waiting messages that are scanned to count those of one outgoing queue."""


class FinalAcks:
    """Waits for final acknowledgments and applies them."""

    def __init__(
        self,
        manager: "QueueManager",
        state: "ProtocolState",
        queue_sender: "Callable[[int], QueueSender | None]",
        answers_for: Callable[[Guid, Guid], Guid],
        sender_of: "Callable[[bytes], QueueSender | None]",
    ) -> None:
        """``queue_sender`` finds the sender of an outgoing queue by the identifier of an unacknowledged sequence,
        ``sender_of`` by the key of the queue.
        ``answers_for`` is that of :class:`qmnode.delivery.neighbours.Identities`.
        """
        self._manager = manager
        self._state = state
        self._queue_sender = queue_sender
        self._answers_for = answers_for
        self._sender_of = sender_of

    def wait_for(self, entries: Iterable[Entry], destination: Guid, outgoing: bytes) -> None:
        """Keep messages that arrived at ``destination`` until their final acknowledgment comes.

        They enter the table in the batch that removes them from their outgoing queue, which ``outgoing`` names. They do
        not expire here: their end is known at their destination.
        """
        queue = self._manager.queue_collection.awaiting_final_ack
        for lookup_identifier, value in entries:
            queue.insert(lookup_identifier, with_prefix(value, expires=NEVER))
            number = read_sending_fields(memoryview(value)[PREFIX_SIZE:])[2]
            self._state.store.put(
                Family.OUTGOING, _key(number), _LOOKUP.pack(lookup_identifier) + destination + outgoing
            )

    def take(self, acknowledgment: FinalAckReceived, belief: "Callable[[bytes, Guid, bool], Belief]") -> bool:
        """Apply a FinalAck. ``belief`` returns how far it is believed, by its message's outgoing queue and destination,
        null if that is unknown, and by whether the message has its order acknowledgment. Return whether it matches a
        message, or waits until the next hop has stored that message.
        """
        store, manager = self._state.store, self._manager
        key = _key(acknowledgment.body.message_id)
        store.make_visible()
        record = store.get(Family.OUTGOING, key)
        if record is None:
            return self._take_early(acknowledgment, belief)
        lookup_identifier = _LOOKUP.unpack_from(record)[0]
        queue = manager.queue_collection.awaiting_final_ack
        value = queue.value_of(lookup_identifier)
        if value is None:
            store.delete(Family.OUTGOING, key)
            return True
        packet = packet_of(value)
        destination = destination_of(packet, Guid(record[_DESTINATION] or ZERO_GUID))
        fate = self._fate(packet, acknowledgment, destination)
        if fate is Fate.KEEP:
            return False
        if belief(record[_DESTINATION.stop :], destination, True) not in (Belief.WHOLE, Belief.IF_ARRIVED):
            return False
        store.delete(Family.OUTGOING, key)
        queue.take_this(lookup_identifier)
        queue.remove(lookup_identifier, value)
        self._end((lookup_identifier, value), fate, acknowledgment, self._sender_of(record[_DESTINATION.stop :]))
        return True

    def waiting_of(self, outgoing: bytes) -> int:
        """The number of messages of an outgoing queue that wait, among the first ``COUNTED`` of all."""
        store = self._state.store
        store.make_visible()
        count = 0
        for key, record in islice(store.scan(Family.OUTGOING, AWAITING_FINAL_ACK), COUNTED):
            if not key.startswith(AWAITING_FINAL_ACK):
                break
            count += record[_DESTINATION.stop :] == outgoing
        return count

    def _take_early(self, acknowledgment: FinalAckReceived, belief: "Callable[[bytes, Guid, bool], Belief]") -> bool:
        """Apply a FinalAck that came before the order acknowledgment: its message is still in its outgoing queue."""
        body = acknowledgment.body
        queue_sender = self._queue_sender(body.tx_sequence_id)
        if queue_sender is None:
            return False
        entry = queue_sender.unacknowledged.find(body.tx_sequence_id, body.tx_sequence_number)
        if entry is None:
            return False
        destination = destination_of(packet_of(entry[1]), queue_sender.unacknowledged.destination)
        fate = self._fate(packet_of(entry[1]), acknowledgment, destination)
        if fate is Fate.KEEP:
            return False
        believed = belief(queue_sender.key, destination, False)
        if believed in (Belief.NEVER, Belief.NOT_YET):
            return False
        if believed is not Belief.WHOLE and not queue_sender.unacknowledged.is_stored(acknowledgment):
            return queue_sender.unacknowledged.wait_for(acknowledgment)
        queue_sender.unacknowledged.remove(entry, body.tx_sequence_number, acknowledgment.message_class in ON_THE_WAY)
        self._end(entry, fate, acknowledgment, queue_sender)
        return True

    def _fate(self, packet: bytes, acknowledgment: FinalAckReceived, destination: Guid) -> Fate:
        author = self._answers_for(acknowledgment.author, destination)
        return final_ack_fate(packet, acknowledgment._replace(author=author), destination)

    def _end(
        self, entry: Entry, fate: Fate, acknowledgment: FinalAckReceived, queue_sender: "QueueSender | None"
    ) -> None:
        outcomes = self._manager.outcomes
        if queue_sender is not None and acknowledgment.message_class & _NEGATIVE:
            place = acknowledgment.body.tx_sequence_id, acknowledgment.body.tx_sequence_number
            queue_sender.queue.refused(acknowledgment.message_class, acknowledgment.author, place)
        if fate is Fate.JOURNAL:
            outcomes.add_to_journal(self._manager.journal_queue, *entry)
        elif fate is Fate.TRANSACTIONAL_DEAD_LETTER:
            outcomes.add_to_dead_letters(*entry, acknowledgment.message_class)


def _key(message_id: int) -> bytes:
    return AWAITING_FINAL_ACK + _NUMBER.pack(message_id)


# ----------------------------------------------------------------------------------------------------------------------
# The acknowledgments that a sender of messages believes (MS-MQQB 3.1.5.6, 3.1.5.7).
#
# An acknowledgment is believed if it comes from a neighbour known to speak for the destination, or from the address to
# which the messages were sent. Any other one is believed only for messages that the next hop has stored, as the
# session's acknowledgments show; the specification requires those as well (ReceivedSessionAck). This serves a
# destination whose own sessions come from another address than the one at which it is reached. An attacker that guesses
# numbers can remove only messages that are already safe on another machine.

_PENDING: Final = 256
"""The most final acknowledgments of one outgoing queue that wait for those of the session."""
_EXPECTED: Final = 600.0
"""Seconds for which final acknowledgments come again because nobody has answered yet where their messages go."""


class Credibility:
    """For one outgoing queue: the addresses that its messages went to, and those that the next hop has stored."""

    def __init__(self) -> None:
        self.address = ""
        """The peer address of the last session."""
        self.answers_from = ""
        """The address from which the last correct acknowledgment came."""
        self.order_ack: OrderAckReceived | None = None
        """An order acknowledgment that waits for acknowledgments of the session."""
        self.order_ack_from = ""
        self.final_acks: dict[int, FinalAckReceived] = {}
        """Final acknowledgments that wait for those of the session, by the number of their message."""
        self._stored: set[int] = set()
        self._early_since: float | None = None
        """The time at which the first final acknowledgment came before any session."""

    def comes_from(self, address: str) -> bool:
        """Whether messages were sent to this address."""
        return bool(address) and address == self.address

    def is_too_early(self, now: float) -> bool:
        """Whether a final acknowledgment has to come again, because nobody has answered yet where its message goes.

        That ends: other acknowledgments come behind it, and perhaps nobody will ever answer there.
        """
        if self._early_since is None:
            self._early_since = now
        return not self.address and now < self._early_since + _EXPECTED

    def stored(self, lookup_identifiers: Iterable[int]) -> bool:
        """Record that the next hop has stored these messages. Return whether an acknowledgment waits for that."""
        self._stored.update(lookup_identifiers)
        return self.order_ack is not None or bool(self.final_acks)

    def arrived(self, lookup_identifiers: Iterable[int]) -> None:
        """Forget these messages: they are acknowledged."""
        self._stored.difference_update(lookup_identifiers)

    def is_stored(self, lookup_identifier: int | None) -> bool:
        """Whether the next hop has stored a message."""
        return lookup_identifier in self._stored

    def up_to(self, sent: dict[int, int], number: int) -> int:
        """The last number up to ``number`` of which the next hop has stored every message of ``sent``; 0 for none."""
        last = 0
        for one, lookup_identifier in sent.items():
            if one > number or lookup_identifier not in self._stored:
                break
            last = one
        return last

    def wait_for(self, acknowledgment: FinalAckReceived) -> bool:
        """Keep a final acknowledgment until the next hop has stored its message. Return whether it is newly waiting."""
        number = acknowledgment.body.tx_sequence_number
        if len(self.final_acks) >= _PENDING or self.final_acks.get(number) == acknowledgment:
            return False
        self.final_acks[number] = acknowledgment
        return True


UNACKNOWLEDGED_LIMIT: Final = 4096
"""The most transactional messages that may wait for their order acknowledgment: bounds memory, and the next resending.
"""
_FINAL_ACK: Final = TransactionFlags.FA.mask
_FOLLOWED: Final = (RecordFlag.REPORT | RecordFlag.NEGATIVE_JOURNAL | RecordFlag.POSITIVE_JOURNAL).value
"""Prefix flags of messages that matter after their arrival; the others are simply deleted."""


class Unacknowledged(dict[int, int]):
    """The waiting messages of one outgoing queue, in order: number in the sequence to lookup identifier."""

    def __init__(self, network: "Network", queue: OutgoingQueue, key: bytes) -> None:
        super().__init__()
        self.credibility = Credibility()
        self._network = network
        self._state = network.state
        self._queue = queue
        self._key = key

    @property
    def destination(self) -> Guid:
        """The queue manager whose acknowledgments count; null while it is unknown."""
        return self._state.outgoing.get(self._key).destination

    def order_acknowledged(self, number: int) -> None:
        """Messages of the sequence up to this number arrived (3.1.5.6). The batch with their sequence removes them."""
        arrived = [self.pop(one) for one in list(takewhile(lambda one: one <= number, self))]
        self.credibility.arrived(arrived)
        self.release(arrived)

    def release(self, lookup_identifiers: Iterable[int]) -> None:
        """Delete messages that arrived, or keep them until their final acknowledgment comes."""
        released: list[int] = []
        locked = self._queue.locked
        for lookup_identifier in lookup_identifiers:
            position = locked.get(lookup_identifier)
            if position is None:
                continue
            value = position.value
            if value[FLAGS] & _FOLLOWED and _fate_of(value) is Fate.AWAIT_FINAL_ACK:
                arrived = self._queue.release([lookup_identifier])
                self._network.acknowledgments.final_acks.wait_for(arrived, self.destination, self._key)
            else:
                released.append(lookup_identifier)
        self._queue.release(released)

    def find(self, sequence_id: int, number: int) -> Entry | None:
        """Find a message by its place in the sequence, also one sent before this process began, or to be sent again."""
        queue, own = self._queue, self._network.manager.identifier
        lookup_identifier = self.get(number)
        if lookup_identifier is not None and lookup_identifier in queue.locked:
            entries: Iterable[Entry] = [(lookup_identifier, queue.locked[lookup_identifier].value)]
        else:
            taken = [(one, position.value) for one, position in queue.locked.items()]
            entries = chain(taken, islice(queue.scan(), UNACKNOWLEDGED_LIMIT))
        for entry in entries:
            packet = memoryview(entry[1])[PREFIX_SIZE:]
            if entry[1][FLAGS] & TRANSACTIONAL and bytes(packet[SOURCE]) == own:
                place = places_of(packet).transaction_header
                if read_sequence_fields(packet, place)[:2] == (sequence_id, number):
                    return entry
        return None

    def stored_up_to(self, acknowledgment: OrderAckReceived, address: str) -> int:
        """The number up to which the next hop has stored all that an OrderAck covers, or 0. With more, it waits."""
        number = acknowledgment.body.tx_sequence_number
        known = self.credibility.up_to(self, number)
        if known < number <= self._state.outgoing.get(self._key).sent:
            self.credibility.order_ack, self.credibility.order_ack_from = acknowledgment, address
        return known

    def is_stored(self, acknowledgment: FinalAckReceived) -> bool:
        """Whether the next hop has stored the message of a final acknowledgment."""
        return self.credibility.is_stored(self.get(acknowledgment.body.tx_sequence_number))

    def wait_for(self, acknowledgment: FinalAckReceived) -> bool:
        """Keep a final acknowledgment until the next hop has its message. False if that message was not sent."""
        return acknowledgment.body.tx_sequence_number in self and self.credibility.wait_for(acknowledgment)

    def remove(self, entry: Entry, number: int, on_the_way: bool) -> None:
        """Remove a message that ``find`` returned. ``on_the_way``: it did not arrive, so that none waits for it."""
        queue = self._queue
        self.credibility.arrived([entry[0]])
        if self.get(number) == entry[0]:
            del self[number]
        if entry[0] not in queue.locked:
            queue.take_this(entry[0])
            remove_acknowledged(queue, [entry])
            if queue.recorder is not None:
                queue.recorder.transferred(queue, (entry,))
        else:
            queue.release([entry[0]])
        if on_the_way:
            outgoing = self._state.outgoing
            outgoing.take_refusal(outgoing.get(self._key), number)
        self._state.write_lazily()
        self._network.timers_changed()


def _fate_of(value: bytes) -> Fate:
    """The outcome of an arrived message that has a ``_FOLLOWED`` flag."""
    return after_order_ack(user_flags(value), bool(value[transaction_offset(value)] & _FINAL_ACK))
