"""Transactional messages that were sent and wait for their order acknowledgment (MS-MQQB 3.1.5.6)."""

from collections.abc import Iterable
from itertools import chain, islice
from typing import Final

from qmnode.model.outgoing import OutgoingQueue
from qmnode.model.packet import transaction_offset, user_flags
from qmnode.model.ports import Entry
from qmnode.model.record import FLAGS, PREFIX_SIZE, TRANSACTIONAL, RecordFlag
from qmnode.protocol.disposition import Fate, after_order_ack
from qmnode.protocol.envelope import read_sequence_fields
from qmnode.structures.guid import Guid
from qmnode.structures.packet_view import SOURCE, places_of
from qmnode.structures.transaction_header import TransactionFlags

UNACKNOWLEDGED_LIMIT: Final = 4096
"""The most transactional messages that may wait for their order acknowledgment: bounds memory, and the next resending.
"""
_FINAL_ACK: Final = TransactionFlags.FA.mask
FOLLOWED: Final = (RecordFlag.REPORT | RecordFlag.NEGATIVE_JOURNAL | RecordFlag.POSITIVE_JOURNAL).value
"""Prefix flags of messages that matter after their arrival; the others are simply deleted."""


class Unacknowledged(dict[int, int]):
    """The waiting messages of one outgoing queue, in order: number in the sequence to lookup identifier."""

    def __init__(self, queue: OutgoingQueue, own: Guid) -> None:
        """``own`` is this queue manager: passing messages belong to sequences of others."""
        super().__init__()
        self._queue = queue
        self._own = own

    def take(self, number: int) -> list[int]:
        """Remove the messages up to this number, which are acknowledged, and return their lookup identifiers."""
        arrived = []
        for one in self:
            if one > number:
                break
            arrived.append(one)
        return [self.pop(one) for one in arrived]

    def find(self, sequence_id: int, number: int) -> Entry | None:
        """Find a message by its place in the sequence, even if it was sent before this process began, or is about to be
        sent again.
        """
        queue = self._queue
        lookup_identifier = self.get(number)
        if lookup_identifier is not None and lookup_identifier in queue.locked:
            entries: Iterable[Entry] = [(lookup_identifier, queue.locked[lookup_identifier].value)]
        else:
            taken = [(one, position.value) for one, position in queue.locked.items()]
            entries = chain(taken, islice(queue.scan(), UNACKNOWLEDGED_LIMIT))
        for entry in entries:
            packet = memoryview(entry[1])[PREFIX_SIZE:]
            if entry[1][FLAGS] & TRANSACTIONAL and bytes(packet[SOURCE]) == self._own:
                place = places_of(packet).transaction_header
                if read_sequence_fields(packet, place)[:2] == (sequence_id, number):
                    return entry
        return None


def fate_of(value: bytes) -> Fate:
    """The outcome of an arrived message that has a ``FOLLOWED`` flag."""
    return after_order_ack(user_flags(value), bool(value[transaction_offset(value)] & _FINAL_ACK))
