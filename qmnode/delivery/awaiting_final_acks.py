"""AwaitingFinalACKTable: transactional messages that arrived and wait for their final acknowledgment (3.1.5.7).

They are kept in an internal queue, indexed by message identifier; none of them is held in memory.
"""

from collections.abc import Callable, Iterable
from enum import Enum, auto, unique
from itertools import islice
from struct import Struct
from typing import TYPE_CHECKING, Final

from qmnode.delivery.state import AWAITING_FINAL_ACK, ProtocolState
from qmnode.model.ports import Entry
from qmnode.model.stored_message import NEVER, PREFIX_SIZE, packet_of, with_prefix
from qmnode.protocol.acknowledgments import Fate, after_final_ack
from qmnode.protocol.reception import FinalAckReceived
from qmnode.storage.layout import Family
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.guid import ZERO_GUID, Guid
from qmnode.structures.packet_view import places_of, read_sending_fields, read_sequence_fields
from qmnode.structures.user_message import UserFlags, UserHeader

if TYPE_CHECKING:
    from qmnode.delivery.queue_sender import QueueSender
    from qmnode.model.queue_manager import QueueManager


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
