"""Outgoing transactional sequences: order acknowledgments and resending (3.1.1.5, 3.1.5.6, 3.1.6.5).

One sequence per outgoing queue, not per session. Numbers are assigned when a transaction commits and stored in the same
batch as the messages, so that sending costs no second write. Only PreviousTxSequenceNumber is set at sending: it names
the message sent before in this pass, which bridges the gaps that expired messages leave.

A pass goes through the queue's transactional messages in order, from its head. It ends when the connection is made anew
or the Transactional Ack Wait Timer expires, and the next pass begins at the head.
"""

from collections.abc import Iterable, Iterator
from enum import Enum, auto, unique
from struct import Struct
from typing import Final, NamedTuple

from qmnode.protocol.commands import Family, Record
from qmnode.protocol.states import Timer
from qmnode.protocol.wire import LocalProtocolError
from qmnode.settings.protocol import TransferSettings
from qmnode.structures.guid import ZERO_GUID, Guid

_VALUE: Final = Struct("<QIQI")
_OWNER: Final = Struct("<16sQI")
"""The destination, ``active_id``, and the number with which the destination before was left."""
_IDENTIFIER: Final = Struct("<Q")
_IDENTIFIER_KEY: Final = b"last"
ROLL_OVER: Final = 0x8000_0000
"""A sequence that has assigned this many numbers is followed by a new one, well before the 32 bits end."""


@unique
class AckResult(Enum):
    """The result of an order acknowledgment."""

    PROGRESS = auto()
    """Messages up to its number are acknowledged: delete them, or keep them until the final acknowledgment."""
    NOTHING_NEW = auto()
    """Late, or repeated, or of a sequence that is over. Nothing changes."""
    FORGED = auto()
    """It acknowledges a number that was never assigned, or comes from a queue manager that cannot know. Nothing
    changes; if the session's peer is its author, close the session.
    """


class SequenceInfo(NamedTuple):
    """A place in a sequence: SEQUENCE_INFO, MS-MQMQ 2.2.5."""

    sequence_id: int
    number: int
    previous: int


class OutgoingSequence:
    """The sequence of one outgoing queue.

    ``queue`` names it in records and stays the same across restarts. It has two identifiers: newly committed messages
    get ``next_id``; messages being sent belong to ``active_id``. They differ only while a sequence that was followed by
    a newer one still has unacknowledged messages: two are never active at a time (3.1.1.5).
    """

    __slots__ = (
        "acknowledged", "active_id", "destination", "last_ack_count", "last_ack_time", "left_at", "next_id",
        "next_number", "previous_sent", "queue", "resend_at", "resend_index", "sent", "sent_before",
    )  # fmt: skip

    def __init__(self, queue: bytes) -> None:
        self.queue = queue
        self.next_id = 0
        """OutgoingTxSequenceID as one number; 0 before the first message."""
        self.next_number = 1
        """OutgoingTxSequenceNumber: the next number to assign."""
        self.active_id = 0
        self.acknowledged = 0
        """LastAck.SeqNo: the last acknowledged number of ``active_id``."""
        self.sent = 0
        """The highest number of ``active_id`` that was sent since the process started."""
        self.previous_sent = 0
        """The number sent last in this pass; 0 at its beginning."""
        self.destination = ZERO_GUID
        """The queue manager whose acknowledgments count; null while unknown (a direct name not yet connected)."""
        self.left_at = 0
        """The last number of ``active_id`` that an earlier destination had acknowledged when its queue moved: the
        present one knows nothing of those messages.
        """
        self.sent_before = (0, 0)
        """The identifier and the last number that were assigned when the process started: messages up to there may
        have been sent, and have arrived.
        """
        self.resend_index = 0
        """ResendIntervalIndex: consecutive resends without progress."""
        self.resend_at: float | None = None
        """ResendTime: the Transactional Ack Wait Timer, 3.1.2.6."""
        self.last_ack_time = 0
        """TimeOfLastAck, seconds since 1970."""
        self.last_ack_count = 0
        """LastAckCount: order acknowledgments since the start."""

    def idle(self) -> bool:
        """Whether every assigned number is acknowledged."""
        return self.active_id == self.next_id and self.acknowledged >= self.next_number - 1

    def prepare(self, sequence_id: int, number: int) -> int | None:
        """Return the PreviousTxSequenceNumber of a message to be sent, or None if it must not be sent now.

        None means that the message begins a new sequence, and the messages ahead must be acknowledged first, or that it
        has been acknowledged meanwhile. Messages of a pass are prepared in their order.
        """
        if sequence_id != self.active_id:
            if sequence_id < self.active_id or self.previous_sent > self.acknowledged:
                return None
            self.active_id = sequence_id
            self.acknowledged = self.sent = self.previous_sent = self.left_at = 0
        elif number <= self.acknowledged:
            return None
        previous = self.previous_sent or (self.acknowledged if self.acknowledged > self.left_at else 0)
        self.previous_sent = number
        if number > self.sent:
            self.sent = number
        return previous

    def leads_to(self, destination: Guid) -> bool:
        """Set the queue manager whose acknowledgments count. Return whether that changed ``owner_record``.

        A new owner knows nothing of the sequence, and would wait for what the old one has acknowledged: for it, the
        sequence begins with the first message that is not acknowledged. An owner that gets its queue back recognises
        by their numbers the messages that it has. One that is unknown for the moment changes nothing.
        """
        if destination in (ZERO_GUID, self.destination):
            return False
        if self.destination != ZERO_GUID:
            self.left_at, self.previous_sent = self.acknowledged, 0
        self.destination = destination
        return self.next_id > 0

    def may_have_arrived(self) -> bool:
        """Whether a message may have reached the destination that has not acknowledged it, before a restart too."""
        return self.acknowledged < self.sent or self.waits_for_earlier()

    def waits_for_earlier(self) -> bool:
        """Whether messages that may have been sent before the process started are to be sent again."""
        return (self.active_id, max(self.sent, self.acknowledged)) < self.sent_before

    def is_acknowledged(self, sequence_id: int, number: int) -> bool:
        """Whether the destination has acknowledged this message or a later one."""
        return sequence_id < self.active_id or (sequence_id == self.active_id and number <= self.acknowledged)

    def rewind(self) -> None:
        """Begin the next pass: the connection is new, or messages are sent again."""
        self.previous_sent = 0

    def record(self) -> Record:
        """The record of the state, for the batch of the messages that changed it."""
        value = _VALUE.pack(self.next_id, self.next_number, self.active_id, self.acknowledged)
        return Record(Family.OUTGOING_SEQUENCE, self.queue, value)

    def owner_record(self) -> Record:
        """The record of the destination. It is apart because earlier versions read the other one."""
        value = _OWNER.pack(self.destination, self.active_id, self.left_at)
        return Record(Family.SEQUENCE_OWNER, self.queue, value)


class Assignment(NamedTuple):
    """Numbers for messages of a transaction, and the records for its batch."""

    sequence_id: int
    first_number: int
    records: tuple[Record, ...]


class OutgoingSequences:
    """All outgoing sequences of a queue manager.

    ``timestamp`` becomes the upper half of new identifiers: the time of installation, or of the last restore of the
    store (3.1.1.3.1 note 35), so that a store that was copied or restored never repeats an identifier.
    """

    def __init__(self, parameters: TransferSettings, timestamp: int) -> None:
        self._parameters = parameters
        self._resend_table = parameters.resend_table()
        self._sequences: dict[bytes, OutgoingSequence] = {}
        self._by_id: dict[int, OutgoingSequence] = {}
        self._waiting: dict[OutgoingSequence, None] = {}
        self._broken: dict[OutgoingSequence, None] = {}
        self._last_id = self._oldest = timestamp << 32

    def get(self, queue: bytes) -> OutgoingSequence:
        """The sequence of an outgoing queue, new if there was none."""
        sequence = self._sequences.get(queue)
        if sequence is None:
            sequence = self._sequences[queue] = OutgoingSequence(queue)
        return sequence

    def __iter__(self) -> Iterator[OutgoingSequence]:
        """Every sequence, for OutgoingTransferInfo (MS-MQDMPR 3.1.1.4)."""
        return iter(self._sequences.values())

    def assign(self, queue: bytes, count: int) -> Assignment:
        """Assign numbers to ``count`` messages that are being committed to ``queue``, in their order.

        A new sequence begins when all of the last one is acknowledged (3.1.1.5), and in a restored or copied store,
        where the numbers after the last one may have been assigned since. Its identifier is greater than any that this
        queue manager assigned for any queue, so that an acknowledgment identifies one queue.
        """
        if count < 1:
            raise LocalProtocolError("numbers are assigned to at least one message")
        sequence = self.get(queue)
        records: tuple[Record, ...] = ()
        if sequence.idle() or sequence.next_number >= ROLL_OVER or sequence.next_id < self._oldest:
            self._last_id += 1
            sequence.next_id, sequence.next_number = self._last_id, 1
            self._by_id[self._last_id] = sequence
            records = (Record(Family.SEQUENCE_IDENTIFIERS, _IDENTIFIER_KEY, _IDENTIFIER.pack(self._last_id)),)
        first = sequence.next_number
        sequence.next_number += count
        return Assignment(sequence.next_id, first, (*records, sequence.record()))

    def sent(self, sequence: OutgoingSequence, now: float) -> None:
        """Messages of the sequence were sent: start its Transactional Ack Wait Timer if it is stopped (3.1.7.1.3)."""
        if sequence.resend_at is None:
            sequence.resend_at = now + self.resend_interval(sequence)
            self._waiting[sequence] = None

    def disconnected(self, sequence: OutgoingSequence) -> None:
        """The session closed: its timers stop (3.1.5.9), and the next session begins at the head of the queue."""
        self._stop(sequence)
        self._broken.pop(sequence, None)
        sequence.rewind()

    def resend_interval(self, sequence: OutgoingSequence) -> int:
        """ResendInterval in seconds, by the resend count."""
        return self._resend_table[sequence.resend_index]

    def next_timer(self) -> tuple[Timer, float] | None:
        """When the first Transactional Ack Wait Timer expires; a time in the past when a queue is due now."""
        if self._broken:
            return Timer.TRANSACTIONAL_ACK_WAIT, float("-inf")
        deadlines = [sequence.resend_at for sequence in self._waiting if sequence.resend_at is not None]
        return (Timer.TRANSACTIONAL_ACK_WAIT, min(deadlines)) if deadlines else None

    def resend_now(self, queue: bytes) -> None:
        """Resend Transactional Sequence (MS-MQMR 3.1.4.2): the timer of a queue expires at once, if it runs."""
        sequence = self._sequences.get(queue)
        if sequence is not None and sequence.resend_at is not None:
            sequence.resend_at = float("-inf")

    def take_resends(self, now: float) -> list[OutgoingSequence]:
        """Transactional Ack Wait Timer Event, 3.1.6.5: queues whose unacknowledged messages must be sent again.

        Their pass is rewound: begin again at the head of the queue. The interval grows here, on a time-out; the
        specification grows it on every acknowledgment.
        """
        due = [sequence for sequence in self._waiting if sequence.resend_at is not None and sequence.resend_at <= now]
        for sequence in due:
            sequence.resend_index = min(sequence.resend_index + 1, len(self._resend_table) - 1)
            sequence.resend_at = None
            del self._waiting[sequence]
            sequence.rewind()
        for sequence in self._broken:
            if sequence not in due:
                self._stop(sequence)
                sequence.rewind()
                due.append(sequence)
        self._broken.clear()
        return due

    def of(self, sequence_id: int) -> OutgoingSequence | None:
        """The sequence with unacknowledged numbers of this identifier."""
        return self._by_id.get(sequence_id)

    def take_order_ack(
        self, author: Guid, sequence_id: int, number: int, now: float, time: int
    ) -> tuple[AckResult, OutgoingSequence | None]:
        """Receiving an OrderAck packet, 3.1.5.6.

        It counts only for the active identifier, for a number that was sent, and from the destination. On PROGRESS
        write ``sequence.record()`` in the batch that deletes the messages up to ``sequence.acknowledged``.

        In a restored store, the destination may have received more of a sequence than this store knows of: then it has
        all that was sent again.
        """
        sequence = self._by_id.get(sequence_id)
        if sequence is None:
            return AckResult.NOTHING_NEW, None
        if self.is_older(sequence_id) and sequence.destination == author and sequence_id == sequence.active_id:
            number = min(number, max(sequence.sent, sequence.acknowledged))
        last = sequence.next_number - 1 if sequence_id == sequence.next_id else ROLL_OVER * 2
        if number > last or (sequence.destination not in (ZERO_GUID, author)):
            return AckResult.FORGED, sequence
        if sequence_id != sequence.active_id or not sequence.acknowledged < number <= sequence.sent:
            return AckResult.NOTHING_NEW, sequence
        sequence.last_ack_time = time
        sequence.last_ack_count += 1
        sequence.acknowledged = number
        sequence.resend_index = 0
        if number >= sequence.sent:
            self._stop(sequence)
        elif sequence.resend_at is not None:
            sequence.resend_at = now + self.resend_interval(sequence)
        if sequence.idle():
            self._by_id.pop(sequence_id)
        return AckResult.PROGRESS, sequence

    def is_older(self, sequence_id: int) -> bool:
        """Whether a sequence began before the store was restored or copied."""
        return sequence_id < self._oldest

    def take_refusal(self, sequence: OutgoingSequence, number: int) -> None:
        """A sent message was refused on its way and removed from the queue. Those behind it name it as their
        predecessor and would wait for it, so ``take_resends`` sends them again at once, with the gap bridged.
        """
        if sequence.acknowledged < number <= sequence.previous_sent:
            self._broken[sequence] = None

    def end(self, queue: bytes) -> OutgoingSequence | None:
        """End a sequence whose messages have all left without being sent: nothing acknowledges its numbers. Return it
        if it changed.
        """
        sequence = self._sequences.get(queue)
        if sequence is None or sequence.idle():
            return None
        self.disconnected(sequence)
        self._by_id = {key: value for key, value in self._by_id.items() if value is not sequence}
        sequence.active_id, sequence.acknowledged = sequence.next_id, sequence.next_number - 1
        return sequence

    def is_awaited(self, queue: bytes) -> bool:
        """Whether an order acknowledgment for messages of the queue is pending."""
        sequence = self._sequences.get(queue)
        return sequence is not None and not sequence.idle()

    def forget(self, queue: bytes) -> Record | None:
        """Forget a deleted outgoing queue and return the record to delete. None if the sequence still has messages."""
        sequence = self._sequences.get(queue)
        if sequence is None or not sequence.idle():
            return None
        del self._sequences[queue]
        self._by_id = {key: value for key, value in self._by_id.items() if value is not sequence}
        return Record(Family.OUTGOING_SEQUENCE, queue, None)

    def load(
        self,
        records: Iterable[tuple[bytes, bytes]],
        last_identifier: bytes | None,
        owners: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        """Load the records of an opened store. ``owners`` are those of the destinations."""
        if last_identifier is not None:
            self._last_id = max(self._last_id, *_IDENTIFIER.unpack(last_identifier))
        for queue, value in records:
            sequence = self.get(queue)
            fields = _VALUE.unpack(value)
            sequence.next_id, sequence.next_number, sequence.active_id, sequence.acknowledged = fields
            sequence.sent_before = (sequence.next_id, sequence.next_number - 1)
            self._by_id[sequence.next_id] = self._by_id[sequence.active_id] = sequence
            self._last_id = max(self._last_id, sequence.next_id)
        for queue, value in owners:
            destination, active_id, left_at = _OWNER.unpack(value)
            sequence = self.get(queue)
            sequence.destination = Guid(destination)
            sequence.left_at = left_at if active_id == sequence.active_id else 0

    def _stop(self, sequence: OutgoingSequence) -> None:
        sequence.resend_at = None
        self._waiting.pop(sequence, None)


class TransferInfo(NamedTuple):
    """OutgoingTransferInfo, MS-MQDMPR 3.1.1.4, as far as the sequence knows it; 3.1.5.6 and 3.1.5.8.8 set it."""

    last_ack_time: int
    """EodLastAckTime: seconds since 1970, 0 for never."""
    last_ack_count: int
    """EodLastAckCount: order acknowledgments since the start."""
    no_ack_count: int
    """EodNoAckCount: messages sent and not acknowledged."""
    first_non_ack: SequenceInfo | None
    """EodFirstNonAck: the first message sent and not acknowledged."""
    last_non_ack: SequenceInfo | None
    """EodLastNonAck: the last message sent and not acknowledged."""
    last_ack: SequenceInfo | None
    """EodLastAck: the last acknowledged message."""
    next_seq: SequenceInfo
    """EodNextSeq: the place of the next message."""
    resend_count: int
    """EodResendCount: consecutive resends without progress."""
    resend_interval: int
    """EodResendInterval: seconds between resends."""
    resend_time: float | None
    """EodResendTime, on the monotonic clock; None while nothing waits for an acknowledgment."""


def transfer_info(sequence: OutgoingSequence, table: tuple[int, ...]) -> TransferInfo:
    """The information about a sequence for operators. ``table`` is the ResendTimerTable."""
    unacknowledged = max(0, sequence.sent - sequence.acknowledged)

    def info(number: int) -> SequenceInfo:
        return SequenceInfo(sequence.active_id, number, number - 1)

    return TransferInfo(
        last_ack_time=sequence.last_ack_time,
        last_ack_count=sequence.last_ack_count,
        no_ack_count=unacknowledged,
        first_non_ack=info(sequence.acknowledged + 1) if unacknowledged else None,
        last_non_ack=info(sequence.sent) if unacknowledged else None,
        last_ack=info(sequence.acknowledged) if sequence.acknowledged else None,
        next_seq=SequenceInfo(sequence.next_id, sequence.next_number, sequence.next_number - 1),
        resend_count=sequence.resend_index,
        resend_interval=table[sequence.resend_index],
        resend_time=sequence.resend_at,
    )
