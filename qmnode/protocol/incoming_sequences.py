"""Incoming transactional sequences: exactly once and in order (3.1.1.5, 3.1.5.8.6, 3.1.6.9, 3.1.7.17).

A transactional sequence is kept per source queue manager and destination *as the sender named it*, without regard to
case: two names of one queue are two outgoing queues there, each with a sequence of its own. The specification keeps one
per session, which loses the state when the session closes and mixes the streams of a sender with two destinations.

Each neighbour that is not known to speak for the source has a branch of its own: a stranger that speaks in another's
name moves only its own position.

Only an accepted message advances its sequence. The specification (3.1.5.8.6, last paragraph) lets every message do so,
but then a message out of order would make the next duplicate look new. A message that is refused with a negative
acknowledgment in its turn advances the sequence too, or those behind it would wait for ever. The sequence's record is
in the batch of the message.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import Enum, auto, unique
from hashlib import blake2b
from heapq import heappop, heappush
from itertools import islice
from struct import Struct
from typing import Final, NamedTuple

from qmnode.protocol.commands import Family, Record
from qmnode.protocol.message_id_history import content_of
from qmnode.protocol.received import DestinationName, ReceivedMessage
from qmnode.protocol.states import Timer
from qmnode.settings.protocol import TransferSettings
from qmnode.shares import INCOMING_SEQUENCES, Accountant, Party, Peer, Table, declared, stranger
from qmnode.structures.guid import ZERO_GUID, Guid, guid_to_text

_VALUE: Final = Struct("<QIII")
GAPS: Final = 256
"""Sequences that wait at a gap, of which the gap is remembered."""
PASSING_LIMIT: Final = 1_024
"""Sequences remembered for queues that do not exist."""
_IN_USE: Final = 60
"""A sequence whose last record is at most this many seconds older than the newest was in use when the process ended."""


_PART_OF_MANY: Final = 16
_PART_OF_DELAY: Final = 0.1
"""The last messages of a fast burst wait for this part of the delay. A burst has at least a sixteenth of the number of
messages that are acknowledged at once.
"""


@unique
class Turn(Enum):
    """The relation of a transactional message to its sequence."""

    NEXT = auto()
    """Accepted: the next of its sequence, or the first of a newer one."""
    DUPLICATE = auto()
    """Accepted before. The acknowledgment was lost: it is sent again."""
    EARLY = auto()
    """A preceding message is missing. This one comes again after it."""
    OLD = auto()
    """Belongs to a sequence that a newer one has replaced."""
    ALREADY = auto()
    """Another neighbour delivered the same message: the number is taken, and nothing is delivered."""
    CONTESTED = auto()
    """From a neighbour that is not known to speak for the source, while a known one is speaking. It may come again."""
    FUTURE = auto()
    """Belongs to a sequence whose time stamp is in the future."""


_NEXT: Final = Turn.NEXT
_BRANCH: Final = b"\xff" * 16
"""Precedes the key of a branch's record, in place of the source."""
MOST_BRANCHES: Final = 16
"""Branches of one source and destination, beside the known one: a stranger with many addresses cannot open more, and
displaces no branch that was used lately.
"""
_LATELY: Final = 3600
"""Seconds without use after which a branch makes room for a new one: sources change their addresses more often than
operators check.
"""


_ACKNOWLEDGED_AT_ONCE: Final = 32
"""Sequences whose acknowledgments one turn of the event loop makes."""
_DISPLACED: Final = 16
"""The most sequences that one new sequence displaces."""


class Route(NamedTuple):
    """The destination of order and final acknowledgments for a sequence."""

    direct: bool
    """The sender used a direct format name (DirectFormatSession): acknowledgments go to ``address``."""
    address: str
    """RemoteQMAddress of the connection that delivered the last message."""
    payer: Peer | None = None
    """The payer of them, if it is a declared peer."""


class OrderAcknowledgment(NamedTuple):
    """An OrderAck packet to be sent (2.2.4, 3.1.7.17): to the source queue manager, not to the neighbour."""

    source: Guid
    """The queue manager that sent the messages first, and that receives this."""
    route: Route
    sequence_id: int
    """The *incoming* TxSequenceID; the table in 3.1.7.17 says Outgoing, which would mean nothing to the sender."""
    sequence_number: int


class IncomingSequence:
    """One sequence: the accepted messages, and those of them that are on disk."""

    __slots__ = (
        "accepted_at", "accepted_since_ack", "ack_sent_at", "armed", "base", "bringer", "deadline", "destination",
        "durable_id", "durable_number", "heard_at", "kept", "last_access", "over", "refused_count", "reject_count",
        "route", "sequence_id", "sequence_number", "source", "stream",
    )  # fmt: skip

    def __init__(self, source: Guid, destination: bytes, now: float, bringer: str = "") -> None:
        self.source = source
        self.destination = destination
        self.bringer = bringer
        """The address of the neighbour whose branch it is; empty for neighbours known to speak for the source."""
        self.stream: list[IncomingSequence] = []
        """All remembered branches of this source and destination."""
        self.base = (0, 0)
        """The position of the known branch when this one began there."""
        self.heard_at = float("-inf")
        """When the last message at or before its position came."""
        self.refused_count = 0
        """Refused messages of this branch since the process began."""
        self.sequence_id = 0
        """IncomingTxSequenceID as one number, Ordinal in the low half (MS-MQMQ 2.2.18.1.2)."""
        self.sequence_number = 0
        """IncomingTxSequenceNumber: the last accepted number."""
        self.durable_id = 0
        self.durable_number = 0
        self.reject_count = 0
        """TxMessageRejectCount: rejections since the last accepted message."""
        self.last_access = 0
        """IncomingTransactionalTransferInfo.LastAccessTime, seconds since 1970."""
        self.accepted_at = float("-inf")
        """When a message of it was last accepted; after a start, when one last arrived."""
        self.route = Route(False, "")
        self.deadline: float | None = None
        """Order Ack Send Timer, 3.1.2.7: its deadline."""
        self.armed: float | None = None
        """When the timers look at it next: at its deadline, or earlier."""
        self.ack_sent_at = now
        """LastOrderAckSendTime, on the monotonic clock."""
        self.accepted_since_ack = 0
        self.kept = False
        """Whether it has a record on disk, or in a batch being written."""
        self.over: dict[int, int] = {}
        """The sequence that was over and came again, with its last number that came: to be acknowledged once more."""

    @property
    def party(self) -> Party:
        """The party that pays for its place."""
        return stranger(self.bringer) if self.bringer else declared(guid_to_text(self.source))

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
        """The record of the state, for the batch of the message that changed it."""
        value = _VALUE.pack(self.sequence_id, self.sequence_number, self.reject_count, self.last_access)
        route = bytes([self.route.direct]) + self.route.address.encode()
        return Record(Family.INCOMING_SEQUENCE, self.key(), value + route)

    def key(self) -> bytes:
        """The key of its record. A branch's key begins with bytes that are no valid source."""
        place = self.source + self.destination
        if not self.bringer:
            return place
        return _BRANCH + blake2b(self.bringer.encode(), digest_size=16).digest() + place


class Gap(NamedTuple):
    """Messages that a source does not send again, though they are not here: they were received before the store was
    restored, or their sequence was lost.
    """

    sequence_id: int
    first: int
    last: int


class IncomingSequences:
    """All incoming sequences of a queue manager, and the order acknowledgments that they owe."""

    def __init__(self, parameters: TransferSettings, shares: Accountant) -> None:
        self._parameters = parameters
        limits = parameters.incoming_sequences, parameters.incoming_sequences_per_neighbour
        self._places = Table[IncomingSequence](shares.open(INCOMING_SEQUENCES, *limits))
        self._sequences: dict[tuple[Guid, bytes, str], IncomingSequence] = {}
        self._passing: dict[tuple[Guid, bytes, str], IncomingSequence] = {}
        self._streams: dict[tuple[Guid, bytes], list[IncomingSequence]] = {}
        self._timers: list[tuple[float, int, IncomingSequence]] = []
        """A heap of the times at which to look at sequences. A later deadline waits until its sequence is looked at."""
        self._timer_number = 0
        self._due: dict[IncomingSequence, None] = {}
        self._gaps: dict[tuple[Guid, bytes, str], tuple[IncomingSequence, Gap]] = {}

    def get(self, source: Guid, destination: bytes, now: float, bringer: str = "") -> IncomingSequence:
        """The sequence, new if there was none. A new one is remembered when a message of it is accepted."""
        key = (source, destination, bringer)
        sequence = self._sequences.get(key) or self._passing.get(key)
        if sequence is None:
            sequence = IncomingSequence(source, destination, now, bringer)
            sequence.stream = self._streams.get((source, destination), sequence.stream)
        return sequence

    def find(self, source: Guid, destination: bytes, sequence_id: int = 0, number: int = 0) -> IncomingSequence | None:
        """The sequence to which an accepted message belongs.

        If several branches have reached its number, this is the known one, or the one in which ``sequence_id`` is
        current. For a source that changed its address, it is the branch that delivered a message last.
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

    def find_place(self, sequence: IncomingSequence, time: int) -> tuple[bool, list[Record]]:
        """Find a place for a new sequence. Return whether there is one: its party may have its share, and the sequence
        its branches. Return also the records to delete: of unused branches of the same sequence, or unused sequences of
        strangers, which it displaces.
        """

        def is_unused(one: IncomingSequence) -> bool:
            return bool(one.bringer) and time - one.last_access > _LATELY

        branch = None
        if self._has_most_branches(sequence):
            unused = filter(is_unused, sequence.stream)
            branch = min(unused, key=lambda one: one.last_access, default=None)
            if branch is None:
                return False, []
        records: list[Record] = []
        while not self._places.has_room(sequence.party) and len(records) < _DISPLACED:
            victim = self._places.victim(sequence.party, is_unused)
            if victim is None:
                break
            records.append(self.forget(victim))
        if not self._places.admits(sequence.party):
            return False, records
        if branch is not None and branch.kept:
            records.append(self.forget(branch))
        return True, records

    @staticmethod
    def _has_most_branches(sequence: IncomingSequence) -> bool:
        return bool(sequence.bringer) and sum(bool(one.bringer) for one in sequence.stream) >= MOST_BRANCHES

    def accept(self, sequence: IncomingSequence, sequence_id: int, number: int, time: int, keep: bool = True) -> None:
        """Accept a message whose turn is NEXT, delivered or refused. Its record goes into the message's batch.

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
        self._places.enter(sequence, sequence.party)
        sequence.kept = True

    def forget(self, sequence: IncomingSequence) -> Record:
        """Forget the sequence, so that its next message may have any number. Return the record to delete."""
        sequence.stream.remove(sequence)
        if not sequence.stream:
            del self._streams[sequence.source, sequence.destination]
        del self._sequences[sequence.source, sequence.destination, sequence.bringer]
        self._places.leave(sequence, sequence.party)
        sequence.deadline = None
        self._due.pop(sequence, None)
        sequence.kept = False
        return Record(Family.INCOMING_SEQUENCE, sequence.key(), None)

    def reject(self, sequence: IncomingSequence, turn: Turn, time: int, now: float) -> None:
        """Count a message that was not accepted. A duplicate means that the sender waits for an acknowledgment."""
        sequence.reject_count = (sequence.reject_count + 1) & 0xFFFF_FFFF
        if turn is not Turn.OLD:
            sequence.last_access = time
        if turn is Turn.DUPLICATE or (turn is Turn.EARLY and sequence.durable_number):
            self._schedule(sequence, now)

    def came_again(self, sequence: IncomingSequence, sequence_id: int, number: int, sent: int, now: float) -> None:
        """An old message came: its sender was restored, and waits for an acknowledgment that its older copy lacks.

        It gets one if the newer sequence began with the same time stamp: there was no restore between the two, so the
        newer one began when all of the older one was acknowledged, or had left its queue (3.1.1.5). Across a restore
        this cannot be known. A message that was sent after the newest one came is new: its sender went back without
        noticing, as a virtual machine does with its snapshot, and counts again. It stays there, not acknowledged.
        """
        if sequence_id >> 32 == sequence.sequence_id >> 32 and sent <= sequence.last_access:
            sequence.over = {sequence_id: max(number, sequence.over.get(sequence_id, 0))}
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
        """The write failed: return to the state on disk. Everything admitted later must be abandoned too."""
        sequence.sequence_id, sequence.sequence_number = sequence.durable_id, sequence.durable_number

    def missed(self, sequence: IncomingSequence, sequence_id: int, previous: int) -> Gap:
        """A message came early. Return the gap before it, as far as the messages that came show its end."""
        place = sequence.source, sequence.destination, sequence.bringer
        _, known = self._gaps.pop(place, (sequence, None))
        if known is not None and known.sequence_id == sequence_id:
            previous = min(previous, known.last)
        gap = Gap(sequence_id, sequence.sequence_number + 1 if sequence_id == sequence.sequence_id else 1, previous)
        self._gaps[place] = sequence, gap
        if len(self._gaps) > GAPS:  # those that strangers show leave first
            del self._gaps[next((one for one in self._gaps if one[2]), next(iter(self._gaps)))]
        return gap

    def gaps(self) -> dict[IncomingSequence, Gap]:
        """The gaps at which sequences wait now, by sequence; one that has no place yet may be among them."""
        found = ((self._sequences.get(place, sequence), gap) for place, (sequence, gap) in self._gaps.items())
        return {
            sequence: gap
            for sequence, gap in found
            if (sequence.sequence_id, sequence.sequence_number) < (gap.sequence_id, gap.last)
        }

    def pass_gap(self, sequence: IncomingSequence, time: int) -> list[Record]:
        """Go on behind the gap at which a sequence waits. Return the records to write."""
        gap = self._gaps.pop((sequence.source, sequence.destination, sequence.bringer))[1]
        found, records = (True, []) if sequence.kept else self.find_place(sequence, time)
        if found:
            self.accept(sequence, gap.sequence_id, gap.last, time)
            sequence.durable_id, sequence.durable_number = gap.sequence_id, gap.last
            records.append(sequence.record())
        return records

    def next_timer(self) -> tuple[Timer, float] | None:
        """When the next order acknowledgment is due; a time in the past when one is due now."""
        if self._due:
            return Timer.ORDER_ACK_SEND, float("-inf")
        self._skip_moved()
        return (Timer.ORDER_ACK_SEND, self._timers[0][0]) if self._timers else None

    def _skip_moved(self) -> None:
        """Bring a sequence to the front whose deadline is the next one."""
        timers = self._timers
        while timers:
            when, _, sequence = timers[0]
            if sequence.armed == when and sequence.deadline == when:
                return
            heappop(timers)
            if sequence.armed == when:
                sequence.armed = None
                if sequence.deadline is not None:
                    self._arm(sequence, sequence.deadline)

    def _arm(self, sequence: IncomingSequence, deadline: float) -> None:
        if sequence.armed is None or deadline < sequence.armed:
            self._timer_number += 1
            heappush(self._timers, (deadline, self._timer_number, sequence))
            sequence.armed = deadline

    def take_order_acknowledgments(self, now: float) -> list[OrderAcknowledgment]:
        """Order Ack Send Timer Event, 3.1.6.9: acknowledgments to send now, of some sequences; the timer is due at once
        for others. Each covers only messages on disk.
        """
        due: dict[IncomingSequence, None] = {}
        self._take_due(due, _ACKNOWLEDGED_AT_ONCE // 2)  # many messages of some leave turns to the timers of others
        while len(due) < _ACKNOWLEDGED_AT_ONCE:
            self._skip_moved()
            if not self._timers or self._timers[0][0] > now:
                break
            sequence = heappop(self._timers)[2]
            sequence.armed = sequence.deadline = None
            due[sequence] = None
        self._take_due(due, _ACKNOWLEDGED_AT_ONCE)
        acknowledgments: list[OrderAcknowledgment] = []
        for sequence in due:
            sequence.deadline = None
            sequence.ack_sent_at = now
            sequence.accepted_since_ack = 0
            acknowledgments += (
                OrderAcknowledgment(sequence.source, sequence.route, *place) for place in sequence.over.items()
            )
            sequence.over = {}
            if not sequence.durable_number:  # a duplicate overtook the sync of its first copy
                continue
            acknowledgments.append(
                OrderAcknowledgment(sequence.source, sequence.route, sequence.durable_id, sequence.durable_number)
            )
        return list(dict.fromkeys(acknowledgments))

    def _take_due(self, due: dict[IncomingSequence, None], most: int) -> None:
        """Move sequences that had many messages to ``due``, until these are ``most``."""
        for sequence in list(islice(self._due, max(0, most - len(due)))):
            del self._due[sequence]
            due[sequence] = None

    def load(self, records: Iterable[tuple[bytes, bytes]], now: float) -> list[Record]:
        """Load the records of an opened store. Return changes of records that earlier versions kept by the destination
        as it was spelled.

        Messages that sequences in use at the end had accepted may be unacknowledged, so acknowledgments are sent once
        more. A sender requests one by sending again, but after a long silence it does that only every few hours.
        """
        newest = 0
        changes: list[Record] = []
        other_spellings: dict[IncomingSequence, None] = {}
        for stored, value in records:
            route, key = Route(bool(value[_VALUE.size]), value[_VALUE.size + 1 :].decode()), stored
            bringer = ""
            if key[:16] == _BRANCH:
                bringer, key = route.address, key[32:]
            source, destination = Guid(key[:16]), DestinationName(ZERO_GUID, key[16], key[17:]).key()
            sequence = self.get(source, destination, now, bringer)
            identifier, number, rejected, last_access = _VALUE.unpack_from(value)
            if stored != sequence.key():
                changes.append(Record(Family.INCOMING_SEQUENCE, stored, None))
                other_spellings[sequence] = None
            if (identifier, number) >= (sequence.sequence_id, sequence.sequence_number):
                sequence.sequence_id = sequence.durable_id = identifier
                sequence.sequence_number = sequence.durable_number = number
                sequence.reject_count, sequence.last_access, sequence.route = rejected, last_access, route
            if not sequence.kept:
                self._keep(sequence)
            newest = max(newest, last_access)
        for sequence in self._sequences.values():
            sequence.accepted_at = now - (newest - sequence.last_access)
            if sequence.last_access >= newest - _IN_USE:
                self._schedule(sequence, now)
        return [*changes, *(sequence.record() for sequence in other_spellings)]

    def __iter__(self) -> Iterator[IncomingSequence]:
        """Every sequence, for IncomingTransactionalTransferInfo (MS-MQDMPR 3.1.1.5)."""
        return iter(self._sequences.values())

    def _delay_of(self, sequence: IncomingSequence, now: float) -> float:
        """OrderAckTimeout, or a part of it after a burst of messages: if none follows now, their sender has no more,
        and waits.
        """
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
            self._arm(sequence, sequence.deadline)


# ----------------------------------------------------------------------------------------------------------------------
# Branches of an incoming sequence, for several neighbours that deliver messages of one source to one destination.
#
# Over plain connections a packet proves nothing, and its numbers can be guessed. So a sequence has one branch for all
# neighbours that are known to speak for the source (the source itself, at an address that the directory gives, and
# routing servers), and one for each other address. No neighbour can move the position of another's branch:
#
# - A stranger's first message begins at the position of the known branch, and begins there again when that has moved.
#   While known neighbours speak, strangers wait. A source that only its certificate made known has stopped speaking
#   when its last session ends: it may go back to plain connections.
#
# - A new stranger continues from another's position, since an honest source may have changing addresses. A message that
#   another one delivered word for word is not delivered again.
#
# One attack remains possible over plain connections: a stranger delivers messages of its own in another's name. It
# cannot block, delay permanently or acknowledge messages of a source that has a branch. A source without one, among
# strangers, can be blocked by as many addresses as there may be branches. Its first messages are lost where others took
# their numbers and the node no longer remembers the others' messages (after a restart).

SPEAKING: Final = 20.0
"""Seconds for which known neighbours are assumed to continue speaking. Less than the first interval after which senders
send again, so that an honest source at an unknown address waits for one such interval.
"""


def turn_among(
    sequence: IncomingSequence,
    received: ReceivedMessage,
    packet: bytes,
    now: float,
    left: float,
    of_others: Callable[[ReceivedMessage, str], list[Guid]],
) -> tuple[Turn, int]:
    """The turn of a message when there are other branches, and the resulting number of its branch.

    Only the position of ``sequence`` may change. ``packet`` is that of the message, decrypted. ``of_others`` gives the
    contents that other strangers delivered at that position. ``left`` is the end of the last session that proved the
    source by a certificate alone: nothing that was heard before counts as speaking.
    """
    others = [one for one in sequence.stream if one is not sequence]
    known = next((one for one in others if not one.bringer), None)
    if sequence.bringer and known is not None:
        if left < known.heard_at and now - known.heard_at < SPEAKING:
            return Turn.CONTESTED, 0
        base = known.sequence_id, known.sequence_number
        if sequence.base != base:
            sequence.base = base
            sequence.sequence_id, sequence.sequence_number = base
            # A source that resends messages that are on disk here gets their acknowledgment, whichever neighbour
            # delivered them.
            durable = known.durable_id, known.durable_number
            sequence.durable_id, sequence.durable_number = max((sequence.durable_id, sequence.durable_number), durable)
    number = received.tx_sequence_number
    place = received.headers.tx_sequence_id or 0, number, received.previous_tx_sequence_number
    own = sequence.turn(*place)
    if own not in (Turn.NEXT, Turn.EARLY):
        return own, number
    said = of_others(received, sequence.bringer)
    if said and content_of(packet) in said:
        return Turn.ALREADY, number
    is_new = not sequence.sequence_id
    if own is Turn.NEXT and not is_new:
        return own, number
    for one in others:
        if one.sequence_id == place[0] and one.turn(*place) is Turn.NEXT:
            return Turn.NEXT, number
    if not is_new:
        return own, number
    for one in others:
        if one.turn(*place) is Turn.DUPLICATE:
            if not sequence.bringer or said:
                return Turn.NEXT, number  # its content is different
            return Turn.ALREADY, one.sequence_number
    return own, number
