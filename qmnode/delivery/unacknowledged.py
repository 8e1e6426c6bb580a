"""Transactional messages that were sent and wait for their order acknowledgment, and what it does (MS-MQQB 3.1.5.6)."""

from collections.abc import Iterable
from itertools import chain, islice, takewhile
from typing import TYPE_CHECKING, Final

from qmnode.model.ports import Entry
from qmnode.model.positions import remove_acknowledged
from qmnode.model.queue import OutgoingQueue
from qmnode.model.stored_message import FLAGS, PREFIX_SIZE, TRANSACTIONAL, RecordFlag, transaction_offset, user_flags
from qmnode.protocol.acknowledgments import Fate, after_order_ack
from qmnode.protocol.reception import FinalAckReceived, OrderAckReceived
from qmnode.structures.guid import Guid
from qmnode.structures.packet_view import SOURCE, places_of, read_sequence_fields
from qmnode.structures.user_message import TransactionFlags

if TYPE_CHECKING:
    from qmnode.delivery.network import Network


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
