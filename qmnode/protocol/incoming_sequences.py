"""Incoming transactional sequences: exactly once and in order, end to end (3.1.1.5, 3.1.5.8.6, 3.1.6.9, 3.1.7.17).

A sequence is kept per source queue manager and destination *as the sender named it*: two names of one queue are two
outgoing queues there, each with a sequence of its own. The text keeps one per session, which loses the state when the
session closes and mixes the streams of a sender with two destinations.

Each neighbour that is not known to speak for the source has a branch of its own (:mod:`qmnode.protocol.branches`): what
a stranger says in another's name moves nobody's place but its own.

Only an accepted message advances its sequence; the text (3.1.5.8.6, last paragraph) does it for every message, so that
one out of order would make the next duplicate look new. A message that is refused with a negative acknowledgment in its
turn advances it too, or those behind it would wait for ever. The record that says so is in the batch of the message.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import Enum, auto, unique
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple

from qmnode.protocol.records import Family, Record
from qmnode.protocol.timers import Timer
from qmnode.settings.protocol import TransferSettings
from qmnode.structures.guid import Guid

_VALUE: Final = Struct("<QIII")
PASSING_LIMIT: Final = 1_024
"""Sequences remembered for queues that do not exist."""
_IN_USE: Final = 60
"""Seconds before the last record within which a sequence was in use when the process ended."""


_PART_OF_MANY: Final = 16
_PART_OF_DELAY: Final = 0.1
"""A sixteenth of so many messages as are acknowledged without waiting, when they came quickly, wait for a tenth of the
delay."""


@unique
class Turn(Enum):
    """How a transactional message stands to its sequence."""

    NEXT = auto()
    """Accepted: the next of its sequence, or the first of a newer one."""
    DUPLICATE = auto()
    """Accepted before. The acknowledgment was lost: it is sent again."""
    EARLY = auto()
    """One before it is missing. It comes again after that one."""
    OLD = auto()
    """Of a sequence that a newer one has replaced."""
    ALREADY = auto()
    """Another neighbour brought the very same message: the place is taken, and nothing is delivered."""
    CONTESTED = auto()
    """From a neighbour that is not known to speak for the source, while one that is does so. It may come again."""
    FUTURE = auto()
    """Of a sequence whose time stamp is yet to come."""


_NEXT: Final = Turn.NEXT
_BRANCH: Final = b"\xff" * 16
"""Stands before the key of a branch's record, in place of the source."""
MOST_BRANCHES: Final = 16
"""Branches of one source and destination, beside that of those that are known: a stranger with many addresses begins no
more, and pushes nobody out that was heard of lately."""
_LATELY: Final = 3600
"""Seconds after which a branch makes room for a new one: sources change their addresses more often than operators
look."""


class Route(NamedTuple):
    """Where order and final acknowledgments for a sequence go."""

    direct: bool
    """The sender used a direct format name (DirectFormatSession): acknowledgments go to ``address``."""
    address: str
    """RemoteQMAddress of the connection on which the last message came."""


class OrderAcknowledgment(NamedTuple):
    """An OrderAck packet that is to be sent (2.2.4, 3.1.7.17): to the source queue manager, not to the neighbour."""

    source: Guid
    """The queue manager that sent the messages first, and that gets this."""
    route: Route
    sequence_id: int
    """The *incoming* TxSequenceID; the table in 3.1.7.17 says Outgoing, with which the sender could do nothing."""
    sequence_number: int


class IncomingSequence:
    """One sequence: what was accepted, and what of that is on disk."""

    __slots__ = (
        "accepted_at", "accepted_since_ack", "ack_sent_at", "base", "bringer", "counted_for", "deadline", "destination",
        "durable_id", "durable_number", "heard_at", "kept", "last_access", "refused_count", "reject_count", "route",
        "sequence_id", "sequence_number", "source", "stream",
    )  # fmt: skip

    def __init__(self, source: Guid, destination: bytes, now: float, bringer: str = "") -> None:
        self.source = source
        self.destination = destination
        self.bringer = bringer
        """The address of the neighbour whose branch it is; empty for those that are known to speak for the source."""
        self.stream: list[IncomingSequence] = []
        """All branches of this source and destination that are remembered."""
        self.base = (0, 0)
        """What the branch of those that are known had taken when this one began there."""
        self.heard_at = float("-inf")
        """When the last message came that stood in its place or before."""
        self.refused_count = 0
        """Messages of this branch that were not taken since the process began."""
        self.sequence_id = 0
        """IncomingTxSequenceID as one number, Ordinal in the low half (MS-MQMQ 2.2.18.1.2)."""
        self.sequence_number = 0
        """IncomingTxSequenceNumber."""
        self.durable_id = 0
        self.durable_number = 0
        self.reject_count = 0
        """TxMessageRejectCount."""
        self.last_access = 0
        """IncomingTransactionalTransferInfo.LastAccessTime, seconds since 1970."""
        self.accepted_at = float("-inf")
        """When a message of it was taken last; after a start, when one came last."""
        self.route = Route(False, "")
        self.counted_for = ""
        """The address for which it counts among those that a neighbour brings."""
        self.deadline: float | None = None
        """Order Ack Send Timer, 3.1.2.7."""
        self.ack_sent_at = now
        """LastOrderAckSendTime."""
        self.accepted_since_ack = 0
        self.kept = False
        """Whether it has a record on disk, or in a batch that is on its way there."""

    def turn(self, sequence_id: int, number: int, previous: int) -> Turn:
        """Where a message stands, 3.1.5.8.6. Changes nothing."""
        if sequence_id == self.sequence_id:
            if number <= self.sequence_number:
                return Turn.DUPLICATE
            return _NEXT if previous <= self.sequence_number else Turn.EARLY
        if sequence_id > self.sequence_id:
            return Turn.NEXT if previous == 0 else Turn.EARLY
        return Turn.OLD

    def record(self) -> Record:
        """The state that goes into the batch of the message that changed it."""
        value = _VALUE.pack(self.sequence_id, self.sequence_number, self.reject_count, self.last_access)
        route = bytes([self.route.direct]) + self.route.address.encode()
        return Record(Family.INCOMING_SEQUENCE, self.key(), value + route)

    def key(self) -> bytes:
        """The key of its record. That of a branch begins as no source does."""
        place = self.source + self.destination
        if not self.bringer:
            return place
        return _BRANCH + blake2b(self.bringer.encode(), digest_size=16).digest() + place


class IncomingSequences:
    """All incoming sequences of a queue manager, and the order acknowledgments that they owe."""

    def __init__(self, parameters: TransferSettings) -> None:
        self._parameters = parameters
        self._sequences: dict[tuple[Guid, bytes, str], IncomingSequence] = {}
        self._passing: dict[tuple[Guid, bytes, str], IncomingSequence] = {}
        self._streams: dict[tuple[Guid, bytes], list[IncomingSequence]] = {}
        self._armed: dict[IncomingSequence, None] = {}
        self._due: dict[IncomingSequence, None] = {}
        self._brought: Counter[str] = Counter()
        """Sequences that are kept, by the address from which they came first (after a start: last)."""

    def get(self, source: Guid, destination: bytes, now: float, bringer: str = "") -> IncomingSequence:
        """The sequence, new if there was none. A new one is remembered when a message of it is accepted."""
        key = (source, destination, bringer)
        sequence = self._sequences.get(key) or self._passing.get(key)
        if sequence is None:
            sequence = IncomingSequence(source, destination, now, bringer)
            sequence.stream = self._streams.get((source, destination), sequence.stream)
        return sequence

    def find(self, source: Guid, destination: bytes, sequence_id: int = 0, number: int = 0) -> IncomingSequence | None:
        """The sequence to which a message belongs that was taken.

        Of several branches that went so far it is the one that is known to speak for the source, or the one in which
        ``sequence_id`` is under way. A source that changed its address is where it brought a message last.
        """
        stream = self._streams.get((source, destination), ())
        place = sequence_id, number
        return min(
            stream,
            key=lambda one: (
                (one.sequence_id, one.sequence_number) < place,
                bool(one.bringer),
                one.sequence_id != sequence_id,
                -one.accepted_at,
            ),
            default=None,
        )

    def make_room(self, sequence: IncomingSequence, time: int) -> list[Record]:
        """Forget the branch that was not heard of for longest, if a new one finds all places taken: the record to
        delete, if any."""
        if not self._has_most_branches(sequence) or self._brings_most(sequence.route.address):
            return []
        idle = [one for one in sequence.stream if one.bringer and time - one.last_access > _LATELY]
        return [self.forget(min(idle, key=lambda one: one.last_access))] if idle else []

    def full(self, sequence: IncomingSequence) -> bool:
        """Whether there is no place for this sequence because it is new and a limit is reached: that of all, or that of
        the neighbour who brings it, so that one who invents sources leaves places for the others."""
        if sequence.kept:
            return False
        limits = self._parameters
        return (
            len(self._sequences) >= limits.incoming_sequences
            or self._has_most_branches(sequence)
            or self._brings_most(sequence.route.address)
        )

    def _has_most_branches(self, sequence: IncomingSequence) -> bool:
        return bool(sequence.bringer) and sum(bool(one.bringer) for one in sequence.stream) >= MOST_BRANCHES

    def _brings_most(self, address: str) -> bool:
        return self._brought[address] >= self._parameters.incoming_sequences_per_neighbour

    def accept(self, sequence: IncomingSequence, sequence_id: int, number: int, time: int, keep: bool = True) -> None:
        """Take a message whose turn is NEXT, delivered or refused. Its record goes into the message's batch.

        ``keep`` is false for a queue that does not exist: a stranger could name any number of those, so only the last
        few are remembered, and in memory only.
        """
        sequence.sequence_id = sequence_id
        sequence.sequence_number = number
        sequence.reject_count = 0
        sequence.last_access = time
        sequence.accepted_since_ack += 1
        if sequence.kept:
            return
        key = (sequence.source, sequence.destination, sequence.bringer)
        if keep:
            self._passing.pop(key, None)
            self._keep(sequence)
        else:
            self._passing[key] = sequence
            if len(self._passing) > PASSING_LIMIT:
                del self._passing[next(iter(self._passing))]

    def _keep(self, sequence: IncomingSequence) -> None:
        place = sequence.source, sequence.destination
        sequence.stream = self._streams.setdefault(place, [])
        sequence.stream.append(sequence)
        self._sequences[(*place, sequence.bringer)] = sequence
        sequence.counted_for = sequence.route.address
        self._brought[sequence.counted_for] += 1
        sequence.kept = True

    def forget(self, sequence: IncomingSequence) -> Record:
        """Begin anew with whatever comes next of it: the record to delete."""
        sequence.stream.remove(sequence)
        if not sequence.stream:
            del self._streams[sequence.source, sequence.destination]
        del self._sequences[sequence.source, sequence.destination, sequence.bringer]
        self._brought[sequence.counted_for] -= 1
        self._armed.pop(sequence, None)
        self._due.pop(sequence, None)
        sequence.kept = False
        return Record(Family.INCOMING_SEQUENCE, sequence.key(), None)

    def reject(self, sequence: IncomingSequence, turn: Turn, time: int, now: float) -> None:
        """Count a message that was not accepted. A duplicate means that the sender waits for an acknowledgment."""
        sequence.reject_count = (sequence.reject_count + 1) & 0xFFFF_FFFF
        sequence.last_access = time
        if turn is Turn.DUPLICATE or (turn is Turn.EARLY and sequence.durable_number):
            self._schedule(sequence, now)

    def persisted(self, sequence: IncomingSequence, sequence_id: int, number: int, now: float) -> None:
        """The record with this number is synced: it may be acknowledged."""
        if (sequence_id, number) > (sequence.durable_id, sequence.durable_number):
            sequence.durable_id, sequence.durable_number = sequence_id, number
        if sequence.accepted_since_ack >= self._parameters.order_ack_every:
            self._due[sequence] = None
        else:
            self._schedule(sequence, now)

    def abandon(self, sequence: IncomingSequence) -> None:
        """The write failed: back to what is on disk. Everything admitted later must be abandoned too."""
        sequence.sequence_id, sequence.sequence_number = sequence.durable_id, sequence.durable_number

    def next_timer(self) -> tuple[Timer, float] | None:
        """When the next order acknowledgment is due; a time in the past when one is due now."""
        if self._due:
            return Timer.ORDER_ACK_SEND, float("-inf")
        deadlines = [sequence.deadline for sequence in self._armed if sequence.deadline is not None]
        return (Timer.ORDER_ACK_SEND, min(deadlines)) if deadlines else None

    def take_order_acknowledgments(self, now: float) -> list[OrderAcknowledgment]:
        """Order Ack Send Timer Event, 3.1.6.9: what is to be sent now. Each speaks only of what is on disk."""
        due = [sequence for sequence in self._armed if sequence.deadline is not None and sequence.deadline <= now]
        due += (sequence for sequence in self._due if sequence not in due)
        self._due.clear()
        acknowledgments = []
        for sequence in due:
            self._armed.pop(sequence, None)
            sequence.deadline = None
            sequence.ack_sent_at = now
            sequence.accepted_since_ack = 0
            if not sequence.durable_number:  # a duplicate overtook the sync of its first copy
                continue
            acknowledgments.append(
                OrderAcknowledgment(sequence.source, sequence.route, sequence.durable_id, sequence.durable_number)
            )
        return list(dict.fromkeys(acknowledgments))

    def load(self, records: Iterable[tuple[bytes, bytes]], now: float) -> None:
        """Take the records of a store that was opened.

        What sequences in use at the end had accepted may not have been acknowledged: it is said once more. A sender
        asks by sending again, but after a long time without an answer it asks every few hours only.
        """
        newest = 0
        for key, value in records:
            route = Route(bool(value[_VALUE.size]), value[_VALUE.size + 1 :].decode())
            bringer = ""
            if key[:16] == _BRANCH:
                bringer, key = route.address, key[32:]
            sequence = IncomingSequence(Guid(key[:16]), key[16:], now, bringer)
            identifier, number, sequence.reject_count, sequence.last_access = _VALUE.unpack_from(value)
            sequence.sequence_id = sequence.durable_id = identifier
            sequence.sequence_number = sequence.durable_number = number
            sequence.route = route
            self._keep(sequence)
            newest = max(newest, sequence.last_access)
        for sequence in self._sequences.values():
            sequence.accepted_at = now - (newest - sequence.last_access)
            if sequence.last_access >= newest - _IN_USE:
                self._schedule(sequence, now)

    def __iter__(self) -> Iterator[IncomingSequence]:
        """Every sequence, for IncomingTransactionalTransferInfo (MS-MQDMPR 3.1.1.5)."""
        return iter(self._sequences.values())

    def _delay_of(self, sequence: IncomingSequence, now: float) -> float:
        """OrderAckTimeout; a part of it when many messages came faster than that: if none follows now, their sender
        has no more, and waits."""
        delay, count = self._parameters.order_ack_timeout, sequence.accepted_since_ack
        if count * _PART_OF_MANY < self._parameters.order_ack_every:
            return delay
        short = delay * _PART_OF_DELAY
        return short if now - sequence.ack_sent_at < count * short else delay

    def _schedule(self, sequence: IncomingSequence, now: float) -> None:
        """Start the Order Ack Send Timer, or restart it while the last acknowledgment is recent (3.1.1.6.2)."""
        fresh = now - sequence.ack_sent_at < self._parameters.maximum_order_ack_delay
        if sequence.deadline is None or fresh:
            sequence.deadline = now + self._delay_of(sequence, now)
            self._armed[sequence] = None
