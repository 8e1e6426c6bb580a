"""The protocol's state outside the sessions, in memory and in the store."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final

from qmnode.model.queue import OutgoingQueue
from qmnode.protocol.commands import Family, Record
from qmnode.protocol.incoming_sequences import IncomingSequences
from qmnode.protocol.message_id_history import MessageIdHistory
from qmnode.protocol.outgoing_sequences import OutgoingSequence, OutgoingSequences
from qmnode.protocol.reception import Reception
from qmnode.settings.protocol import TransferSettings
from qmnode.shares import Accountant
from qmnode.storage.layout import QUEUE_KEY
from qmnode.storage.layout import Family as StoreFamily
from qmnode.storage.store import Store
from qmnode.structures.guid import Guid

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
