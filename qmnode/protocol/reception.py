"""The decision about each received message, and its effects: one object per queue manager (3.1.5.8).

The session counts and acknowledges packets; here they become messages. ``admit`` goes through a batch in order and
returns one Admission: the messages to store, the answers, and the records for the same write. It changes only memory,
tentatively: ``persisted`` makes it final, ``abandon`` undoes it.
"""

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto, unique
from hashlib import blake2b
from typing import Final, NamedTuple

from qmnode.protocol.acknowledgments import (
    AdministrationAcknowledgment,
    Fate,
    FinalAcknowledgment,
    TraceReport,
    administration_acknowledgment,
    final_acknowledgment,
    has_expired,
    received_report,
    refused_here,
)
from qmnode.protocol.commands import Record
from qmnode.protocol.incoming_sequences import Gap, IncomingSequence, IncomingSequences, Route, Turn, turn_among
from qmnode.protocol.message_id_history import Latest, MessageIdHistory, content_of
from qmnode.protocol.received import DIRECT, DestinationName, ReceivedHeaders, ReceivedMessage
from qmnode.protocol.wire import MAXIMUM_HOPS
from qmnode.settings.protocol import TransferSettings
from qmnode.shares import Peer, declared, stranger
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.errors import PacketError
from qmnode.structures.guid import ZERO_GUID, Guid, guid_to_text
from qmnode.structures.packet_view import IDENTIFIER, NAMES_AT, Packet, with_user_flags
from qmnode.structures.packets import FinalAckBody, MessageKind, OrderAckBody, message_kind
from qmnode.structures.user_message import INFINITE, BaseFlags, PropertyFlags, SecurityFlags, UserFlags

# ----------------------------------------------------------------------------------------------------------------------
# The peer of a session, and the trust in messages that it delivers.

_SOURCES: Final = 4_096
"""Sources remembered for one session."""
_SPEAKERS: Final = 4_096
"""Remembered pairs of a source and an address."""
_NOBODY: Final[set[str]] = set()
_PASSING: Final = b"passing"


class Brought:
    """Messages of one source that one neighbour delivers."""

    __slots__ = ("bringer", "history_source", "is_own", "party", "speakers")

    def __init__(self, source: Guid, bringer: str, is_own: bool) -> None:
        self.bringer = bringer
        """Empty if the neighbour is known to speak for the source; else its address."""
        self.is_own = is_own
        """Whether the messages claim this queue manager as their source."""
        self.party = stranger(bringer) if bringer else declared(guid_to_text(source))
        """The party that pays for what is remembered of them."""
        self.history_source = source
        """The source under which their identifiers are remembered: a stranger's claims get a source of their own."""
        if bringer:
            self.history_source = Guid(blake2b(source + bringer.encode(), digest_size=16).digest())
        self.speakers: set[str] = set()
        """The addresses of the strangers that speak for the source."""


class Neighbour:
    """The peer of one session. The delivery room fills in ``known``."""

    __slots__ = (
        "_brought", "address", "ask_again", "elsewhere", "is_unsettled", "itself", "known", "payer", "unanswered",
    )  # fmt: skip

    def __init__(self, address: str) -> None:
        self.address = address
        self.known: dict[Guid, bool] = {}
        """By source: whether this neighbour is known to speak for it."""
        self.elsewhere: set[Guid] = set()
        """Sources known to be elsewhere: not forwarded for this neighbour, whom the next hop would believe."""
        self.unanswered: set[Guid] = set()
        """Sources whose addresses were not found in time. Their messages wait there: this neighbour may not be them."""
        self.is_unsettled = False
        """Whether the directory or the name service could not tell in time who it is."""
        self.ask_again = float("inf")
        """The time at which to check again."""
        self.itself: Guid | None = None
        """This queue manager, if it opened the session to itself, by one of its own names that it did not recognise."""
        self.payer: Peer | None = None
        """The payer of consequences of its input, if it is declared. Set by its connection."""
        self._brought: dict[Guid, Brought] = {}

    @property
    def is_known(self) -> bool:
        """Whether it is known to speak for every source whose messages it delivered."""
        return bool(self.known) and all(self.known.values())

    def forget(self) -> None:
        """Check again, because the topology has changed."""
        self.known.clear()
        self.elsewhere.clear()
        self.unanswered.clear()
        self.is_unsettled = False
        self._brought.clear()
        self.ask_again = float("inf")

    def speaks_for(self, source: Guid) -> bool:
        """Whether it is known to speak for a queue manager."""
        return source == self.itself or self.known.get(source, False)

    def is_doubted(self, source: Guid) -> bool:
        """Whether it may be speaking for a queue manager that is elsewhere."""
        return source in self.elsewhere or source in self.unanswered

    def brought(self, source: Guid, own: Guid, speakers: "Speakers") -> Brought:
        """The trust in messages of ``source`` that it delivers to the queue manager ``own``."""
        found = self._brought.get(source)
        if found is None:
            if len(self._brought) >= _SOURCES:
                self._brought.clear()
            bringer = "" if self.speaks_for(source) else self.address
            found = self._brought[source] = Brought(source, bringer, source == own and self.itself is None)
            if bringer:
                speakers.join(source, bringer)
        found.speakers = speakers.of(source)
        return found


class Speakers:
    """The strangers that deliver messages of each source."""

    def __init__(self) -> None:
        self._latest: OrderedDict[tuple[Guid, str], None] = OrderedDict()
        self._of_source: dict[Guid, set[str]] = {}

    def of(self, source: Guid) -> set[str]:
        """The addresses of a source's strangers."""
        return self._of_source.get(source, _NOBODY)

    def join(self, source: Guid, address: str) -> None:
        """Record a stranger that delivers messages of a source."""
        self._latest[source, address] = None
        self._latest.move_to_end((source, address))
        self._of_source.setdefault(source, set()).add(address)
        if len(self._latest) > _SPEAKERS:
            self._drop(next(iter(self._latest)))

    def _drop(self, key: tuple[Guid, str]) -> None:
        del self._latest[key]
        source, address = key
        others = self._of_source[source]
        others.discard(address)
        if not others:
            del self._of_source[source]


def passing(source: bytes, packet: bytes) -> tuple[Guid, int]:
    """The source and identifier under which to remember a forwarded message that ended here.

    The identifier depends on the content, because any peer may send a message with another's identifier through here.
    """
    content = blake2b(packet[IDENTIFIER] + packet[NAMES_AT:], digest_size=4).digest()
    return Guid(blake2b(source + _PASSING, digest_size=16).digest()), int.from_bytes(content, "little")


# ----------------------------------------------------------------------------------------------------------------------
# Where a received message goes, and the outcome for a batch of them: the types around ``reception``.


@unique
class DestinationKind(Enum):
    """The kind of place that a destination name resolves to."""

    LOCAL = auto()
    """A queue of this queue manager."""
    FORWARD = auto()
    """An outgoing queue: the message is forwarded."""
    CONNECTOR = auto()
    """A connector queue: for the protocol the message ends here, and continues to a foreign system unchanged."""
    ORDER_QUEUE = auto()
    """This queue manager's order queue: order and final acknowledgments, for the protocol itself."""
    FULL = auto()
    """There is no room for an outgoing queue now: the message must come again."""
    UNKNOWN = auto()
    """This queue manager has no such queue."""


@unique
class Space(Enum):
    """Whether there is room for a message that has to wait."""

    FREE = auto()
    REPEATED = auto()
    """It is already waiting."""
    NONE = auto()


@dataclass(slots=True)
class Destination:
    """The caller's knowledge of a destination, one for each name and batch; ``room`` falls with accepted messages."""

    kind: DestinationKind
    queue: object = None
    """The caller's handle for the queue."""
    transactional: bool = False
    transactional_queue: object = None
    """The second queue of a connector, for transactional messages."""
    room: int | None = None
    """Bytes left under the queue's quota; None for no limit."""
    space: Callable[[ReceivedMessage], Space] | None = None
    """Called for each message to be forwarded without other objection; sets ``queue``. None: all are accepted."""
    until: int = INFINITE
    """The time, in seconds since 1970, until which forwarded messages may wait."""


class Verdict(NamedTuple):
    """The security verdict on one message (3.1.5.8.3)."""

    refused: MessageClass | None = None
    """The class of its negative acknowledgment."""
    packet: bytes | None = None
    """The packet to store instead: decrypted, with verified authentication bits."""
    silent: bool = False
    """Whether the refusal must not be acknowledged: that would show a stranger whether the body was decrypted."""


class Taken(NamedTuple):
    """An accepted message to store."""

    packet: Packet
    """As it is to be stored. A view only if ``received.packet`` is one."""
    destination: Destination
    received: ReceivedMessage


class OrderAckReceived(NamedTuple):
    """For ``OutgoingSequences.take_order_ack``. ``author`` is the queue manager that claims to have sent it."""

    author: Guid
    body: OrderAckBody


class FinalAckReceived(NamedTuple):
    """For ``OutgoingSequences`` and AwaitingFinalACKTable, see ``final_acks``."""

    author: Guid
    message_class: int
    body: FinalAckBody


@dataclass(slots=True)
class Admission:
    """The outcome for a batch. Everything in it goes into one write, in this order; then ``Reception.persisted``."""

    taken: list[Taken] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    dead_letters: list[tuple[bytes, MessageClass]] = field(default_factory=list)
    """Refused messages for the system dead-letter queue of this queue manager, with the reason."""
    administration: list[AdministrationAcknowledgment] = field(default_factory=list)
    final_acks: list[FinalAcknowledgment] = field(default_factory=list)
    traces: list[TraceReport] = field(default_factory=list)
    order_acks_received: list[OrderAckReceived] = field(default_factory=list)
    final_acks_received: list[FinalAckReceived] = field(default_factory=list)
    refused: list[tuple[ReceivedMessage, MessageClass]] = field(default_factory=list)
    """For the log: every refused message, with the reason."""
    failed: list[tuple[ReceivedMessage, Exception]] = field(default_factory=list)
    """For the log: refused messages that caused an unexpected error in this code."""
    duplicates: int = 0
    out_of_order: int = 0
    gaps: dict[IncomingSequence, Gap] = field(default_factory=dict)
    """Sequences whose messages came early, with the gap before them."""
    disowned: int = 0
    """Packets that claim to be from this queue manager, and are not believed."""
    contested: dict[Guid, int] = field(default_factory=dict)
    """By source: transactional messages that were not accepted because another neighbour is known to speak for it."""
    future: dict[Guid, int] = field(default_factory=dict)
    """By source: transactional messages of sequences whose time stamps are in the future."""
    elsewhere: Guid | None = None
    """A source known to be elsewhere, whose messages come to be forwarded, or unsigned. None is taken from here on."""
    unanswered: Guid | None = None
    """The same for a source whose addresses could not be found in time."""
    neighbour: Neighbour | None = None
    without_place: int = 0
    """The number of refused messages that begin a sequence for which there is no place: they wait at their source."""
    ordinal: int = 0
    recoverable_ordinal: int = 0
    """For ``Session.messages_settled``, once this and every earlier admission is synced."""
    stopped: bool = False
    """The queue manager is full (rStatus 2 of 3.1.5.8.8): settle, then close. The messages from here on come again."""
    sequences: dict[IncomingSequence, tuple[int, int]] = field(default_factory=dict)


class Target(NamedTuple):
    """The destination of the current message."""

    name: DestinationName
    destination: Destination


class Pass(NamedTuple):
    """Values that are the same for all messages of a batch."""

    admission: Admission
    now: float
    time: int
    neighbour: Neighbour
    verdicts: Mapping[int, Verdict]


_DM: Final = UserFlags.DM.mask
_TR: Final = BaseFlags.TR.mask
_PA: Final = PropertyFlags.PA.mask
_HOPS: Final = UserFlags.RC
_CLAIMS: Final = SecurityFlags.AU.mask | SecurityFlags.AS.mask
_NEVER: Final = float("-inf")
_RUN: Final = 8
"""Messages that are worth to be decided together."""
_LEFT: Final = 4_096
"""Sources remembered whose last session ended."""
_NO_VERDICT: Final = Verdict()
# Each access to a member of an enumeration costs a descriptor call: once for all messages is enough.
_LOCAL: Final = DestinationKind.LOCAL
_FORWARD: Final = DestinationKind.FORWARD
_CONNECTOR: Final = DestinationKind.CONNECTOR
_ORDER_QUEUE: Final = DestinationKind.ORDER_QUEUE
_UNKNOWN: Final = DestinationKind.UNKNOWN
_NEXT: Final = Turn.NEXT
_ALREADY: Final = Turn.ALREADY
_ACCEPTED: Final = (_NEXT, _ALREADY)
_LATE: Final = MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT
_new = tuple.__new__
_NOTHING: Final = Brought(ZERO_GUID, "", is_own=False)
_NOWHERE: Final = Target(DestinationName(ZERO_GUID, 0, b""), Destination(DestinationKind.UNKNOWN))


class Reception:
    """Processes the messages that sessions receive. ``identifier`` is this queue manager."""

    def __init__(
        self,
        identifier: Guid,
        parameters: TransferSettings,
        history: MessageIdHistory,
        incoming: IncomingSequences,
    ) -> None:
        self._identifier = identifier
        self._parameters = parameters
        self._history = history
        self._incoming = incoming
        self._speakers = Speakers()
        self._latest = Latest()
        self._left: dict[Guid, float] = {}
        self._brought = _NOTHING
        self._other_ways = False
        """Whether messages like the current one may have come another way than from this neighbour."""
        self._sequence: IncomingSequence | None = None
        """The sequence of the transactional messages with the current headers."""

    def unresolved(
        self, messages: Iterable[ReceivedMessage], known: Mapping[DestinationName, object]
    ) -> list[DestinationName]:
        """Destinations of the batch that ``known`` lacks, each once."""
        missing: dict[DestinationName, None] = {}
        last = None
        for received in messages:
            name = received.destination
            if name is not last and name not in known:
                missing[name] = None
            last = name
        return list(missing)

    def admit(
        self,
        messages: Sequence[ReceivedMessage],
        destinations: Mapping[DestinationName, Destination],
        *,
        now: float,
        time: int,
        neighbour: Neighbour,
        verdicts: Mapping[int, Verdict] | None = None,
        room: int | None = None,
    ) -> Admission:
        """Decide about a batch of a session.

        ``destinations`` has every name of the batch. ``neighbour`` is the session's peer. ``verdicts`` are by
        ``ReceivedMessage.ordinal``, for messages that security checked. ``room``: bytes left under the queue manager's
        quota; None for no limit.

        The admission is settled when its write *and that of every earlier admission, of any session* is synced: a
        duplicate implies that its first copy is safe, and that may still be on its way to the disk.
        """
        admission = Admission(neighbour=neighbour)
        step = Pass(admission, now, time, neighbour, verdicts or {})
        target, headers, plain = _NOWHERE, None, False
        # The same for all messages with the current headers. ``alone``: only the history decides about them.
        alone, durable, lifetime, source = False, False, INFINITE, self._identifier
        add, take = self._history.add, admission.taken.append
        last = None
        for received in messages:
            name = received.destination
            if name is not target.name:
                target, headers = Target(name, destinations[name]), None
                if target.destination.kind is DestinationKind.FULL:
                    admission.stopped = True
                    break
            if room is not None:
                room -= len(received.packet)
                if room < 0:
                    admission.stopped = True
                    break
            if received.headers is not headers:
                headers = received.headers
                if target.destination.kind is _FORWARD and _is_doubtful(headers.source_queue_manager, admission):
                    break
                self._brought = neighbour.brought(headers.source_queue_manager, self._identifier, self._speakers)
                self._history.party = self._brought.party
                self._other_ways = self._has_other_ways(headers.source_queue_manager)
                self._sequence = None
                plain = _is_plain(headers, target.destination, step) and not self._brought.is_own
                alone = plain and headers.tx_sequence_id is None and not self._other_ways
                durable, lifetime = headers.user_flags & _DM > 0, headers.time_to_reach_queue
                source = self._brought.history_source
                if (
                    alone
                    and last is None
                    and not verdicts
                    and (room is None or sum([len(one.packet) for one in messages]) <= room)
                    and self._are_new(messages, durable, lifetime, step)
                ):
                    admission.taken += [_new(Taken, (one.packet, target.destination, one)) for one in messages]
                    last = messages[-1]
                    break
            if not alone:
                received = received.in_bytes()
            # A silent one would be stored without its requests for acknowledgments: its source is to deliver it.
            if verdicts and _is_silent(received, step) and _is_doubtful(headers.source_queue_manager, admission):
                break
            try:
                if alone:
                    if not add(source, received.message_id, durable, time):
                        admission.duplicates += 1
                    elif time - received.sent_time > lifetime != INFINITE:
                        self._refuse(received, target.name, _LATE, step, told=False)
                    else:
                        take(_new(Taken, (received.packet, target.destination, received)))
                elif plain:
                    self._admit_plain(received, target, step)
                else:
                    self._admit_one(received, target, step)
            except Exception as error:
                self._refuse_failed(received, target.name, step, error)
            last = received
        if last is not None:
            admission.ordinal = last.ordinal
            admission.recoverable_ordinal = last.recoverable_ordinal
        if admission.taken and not neighbour.is_known:
            self._latest.add(neighbour.address, admission.taken)
            if neighbour.elsewhere:
                self._remember_contents(admission, step.time)
        admission.records += self._history.take_records()
        admission.records += (sequence.record() for sequence in admission.sequences if sequence.kept)
        return admission

    def _are_new(self, messages: Sequence[ReceivedMessage], durable: bool, lifetime: int, step: Pass) -> bool:
        """Whether messages are alike, numbered one after the other by their source, in time, and here for the first
        time. They are then entered in the history, and otherwise decided one by one.
        """
        first = messages[0]
        headers, name, number = first.headers, first.destination, first.message_id
        count = len(messages)
        if count < _RUN or messages[-1].headers is not headers:
            return False
        numbers = [one.message_id for one in messages if one.headers is headers and one.destination is name]
        if numbers != list(range(number, number + count)):
            return False
        if lifetime != INFINITE and step.time - min([one.sent_time for one in messages]) > lifetime:
            return False
        return self._history.add_run(self._brought.history_source, number, count, durable, step.time)

    def _remember_contents(self, admission: Admission, time: int) -> None:
        """Enter what a stranger delivered here in the name of a machine of the directory, for when that delivers it."""
        for taken in admission.taken:
            received = taken.received
            if taken.destination.kind is not _FORWARD and self._is_claimed(admission, received):
                durable = received.headers.tx_sequence_id is not None or bool(received.headers.user_flags & _DM)
                self._history.add_content(content_of(bytes(taken.packet)), durable, time)

    @staticmethod
    def _is_claimed(admission: Admission, received: ReceivedMessage) -> bool:
        """Whether a stranger delivered a message of a machine that the directory has elsewhere."""
        neighbour = admission.neighbour
        return neighbour is not None and received.headers.source_queue_manager in neighbour.elsewhere

    def left(self, source: Guid, now: float) -> None:
        """The last session ended that proved a source by its certificate, where nothing else makes it known."""
        self._left.pop(source, None)
        self._left[source] = now
        if len(self._left) > _LEFT:
            del self._left[next(iter(self._left))]

    def persisted(self, admission: Admission, now: float) -> None:
        """The admission's write is synced: release its order acknowledgments."""
        for sequence, (sequence_id, number) in admission.sequences.items():
            self._incoming.persisted(sequence, sequence_id, number, now)

    def abandon(self, admission: Admission) -> None:
        """The write failed. Abandon every later admission too, newest first, and close their sessions."""
        for sequence in admission.sequences:
            self._incoming.abandon(sequence)
        for received in (*(taken.received for taken in admission.taken), *(item[0] for item in admission.refused)):
            if received.headers.tx_sequence_id is None and admission.neighbour is not None:
                source = received.headers.source_queue_manager
                brought = admission.neighbour.brought(source, self._identifier, self._speakers)
                self._history.remove(brought.history_source, received.message_id)
        for taken in admission.taken:
            if self._is_claimed(admission, taken.received):
                self._history.remove_content(content_of(bytes(taken.packet)))

    # --- one message ---
    def _admit_plain(self, received: ReceivedMessage, target: Target, step: Pass) -> None:
        """``_admit_one`` without the steps that ``_is_plain`` has ruled out."""
        headers = received.headers
        if headers.tx_sequence_id is None:
            durable = headers.user_flags & _DM > 0
            if not self._history.add(self._brought.history_source, received.message_id, durable, step.time) or (
                self._other_ways and self._came_another_way(received, step)
            ):
                step.admission.duplicates += 1
                return
        elif not self._take_turn(received, headers.tx_sequence_id, target, step):
            return
        lifetime = headers.time_to_reach_queue
        if step.time - received.sent_time > lifetime != INFINITE:
            self._refuse(received, target.name, _LATE, step, told=False)
            return
        step.admission.taken.append(_new(Taken, (received.packet, target.destination, received)))

    def _admit_one(self, received: ReceivedMessage, target: Target, step: Pass) -> None:
        """The steps of 3.1.5.8 for one message, in an order in which none is lost."""
        destination = target.destination
        kind = destination.kind
        if self._brought.is_own and not self._may_come_back(received, kind):
            step.admission.disowned += 1
            return
        if kind is _ORDER_QUEUE:
            self._take_acknowledgment(received, step)
            return
        here = kind is not _FORWARD
        headers = received.headers
        # Forwarded messages have no history here (3.1.5.8.1 keeps one): a message that passes again, because the route
        # changed or loops, would be acknowledged and lost. Its destination removes duplicates.
        if not here:
            pass
        elif headers.tx_sequence_id is None:
            if not self._is_first(received, step):
                step.admission.duplicates += 1
                return
        elif not self._take_turn(received, headers.tx_sequence_id, target, step):
            return
        refused = self._refusal(received, destination, step)
        if refused is None and destination.space is not None:
            space = destination.space(received)
            if space is Space.REPEATED:
                step.admission.duplicates += 1
                return
            refused = MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q if space is Space.NONE else None
        if refused is not None:
            durable = bool(headers.user_flags & _DM)
            # It can come again where no sequence is kept for it: in transit, and for a queue that does not exist.
            again = not here or (kind is _UNKNOWN and headers.tx_sequence_id is not None)
            remembered = self._brought.history_source, received.message_id
            if not here:
                remembered = passing(headers.source_queue_manager, bytes(received.packet))
            told = again and not self._history.add(*remembered, durable, step.time)
            self._refuse(received, target.name, refused, step, told)
            return
        packet = bytes(received.packet)
        verdict = step.verdicts.get(received.ordinal) if step.verdicts else None
        if verdict is not None and verdict.packet is not None:
            packet = verdict.packet
        elif headers.has_protection and here and kind is not _CONNECTOR:
            packet = without_claims(received)
        if not here:
            packet = with_user_flags(packet, headers.user_flags + (1 << _HOPS.shift))
        step.admission.taken.append(_new(Taken, (packet, destination, received)))
        if verdict is not None and verdict.silent:
            return
        if headers.property_flags & _PA and here and kind is not _CONNECTOR:
            self._answer(received, MessageClass.MQMSG_CLASS_ACK_REACH_QUEUE, step)
        _report(received, step)

    def _may_come_back(self, received: ReceivedMessage, kind: DestinationKind) -> bool:
        """Whether a packet of this queue manager may be one that looped: a known neighbour delivers it while the
        topology changes. The original of a transactional one waits here, and is sent again.
        """
        if self._brought.bringer or kind is _ORDER_QUEUE:
            return False
        return received.headers.tx_sequence_id is None or kind is not _FORWARD

    def _is_first(self, received: ReceivedMessage, step: Pass) -> bool:
        """Whether a message that is not transactional comes for the first time (3.1.5.8.1)."""
        durable = bool(received.headers.user_flags & _DM)
        first = self._history.add(self._brought.history_source, received.message_id, durable, step.time)
        if first and self._other_ways and self._came_another_way(received, step):
            self._report_again(received, step)
            return False
        return first

    def _report_again(self, received: ReceivedMessage, step: Pass) -> None:
        """Report the arrival of a message whose copy a stranger delivered before: the copy may not ask for it."""
        if not self._brought.bringer:
            _report(received, step)

    def _has_other_ways(self, source: Guid) -> bool:
        """Whether messages of a source may have come another way than from this neighbour. The answer stays the same
        for all messages of the source that follow each other in a batch: only other batches change it.
        """
        brought = self._brought
        return (
            (bool(brought.bringer) and self._history.knows(source))
            or self._history.has_contents
            or len(brought.speakers) > bool(brought.bringer)
        )

    def _came_another_way(self, received: ReceivedMessage, step: Pass) -> bool:
        """Whether a message that is not transactional came another way than from this neighbour."""
        brought = self._brought
        if brought.bringer and self._history.seen(received.headers.source_queue_manager, received.message_id):
            return True
        packet = _as_stored(received, step)
        if self._history.has_contents and self._history.seen_content(content_of(packet)):
            return True
        if len(brought.speakers) <= bool(brought.bringer):
            return False
        others = self._latest.of_others(received, brought.bringer)
        return bool(others) and content_of(packet) in others

    def _take_turn(self, received: ReceivedMessage, sequence_id: int, target: Target, step: Pass) -> bool:
        """Transactional Message Processing, 3.1.5.8.6: whether it is this message's turn. If so, record it as
        accepted.
        """
        incoming, headers = self._incoming, received.headers
        sequence = self._sequence
        if sequence is None or not sequence.kept:
            key = target.name.key()
            sequence = incoming.get(headers.source_queue_manager, key, step.now, self._brought.bringer)
            self._sequence = sequence
        if sequence.route.address != step.neighbour.address or sequence.bringer:
            # Strangers get these order acknowledgments: the source would take them for those of its own messages.
            is_doubted = step.neighbour.is_doubted(sequence.source)
            is_direct = is_doubted or target.name.kind == DIRECT
            sequence.route = Route(is_direct, step.neighbour.address, step.neighbour.payer)
        number = received.tx_sequence_number
        keep = target.destination.kind is not _UNKNOWN
        before = sequence.sequence_id
        if len(sequence.stream) > sequence.kept:
            packet = _as_stored(received, step)
            turn, number = turn_among(
                sequence, received, packet, step.now, self._left.get(sequence.source, _NEVER), self._latest.of_others
            )
        else:
            turn = sequence.turn(sequence_id, number, received.previous_tx_sequence_number)
        if turn is not _NEXT or sequence_id != before or not sequence.kept or self._history.has_contents:
            if (
                turn is _NEXT
                and self._history.has_contents
                and self._history.seen_content(content_of(_as_stored(received, step)))
            ):
                turn = _ALREADY
            if not keep and not sequence.sequence_id:
                number = received.tx_sequence_number
                turn = Turn.NEXT  # no order to keep for a missing queue: refused at any number
            if sequence_id != before and turn is _NEXT and self._is_future(sequence_id, step.time):
                turn = Turn.FUTURE
            full = False
            if not sequence.kept and turn in _ACCEPTED and keep:
                found, displaced = incoming.find_place(sequence, step.time)
                full = not found
                step.admission.records += displaced
            if turn not in _ACCEPTED or full:
                self._reject(sequence, turn, received, step)
                step.admission.without_place += full
                return False
        incoming.accept(sequence, sequence_id, number, step.time, keep)
        sequence.heard_at = step.now
        step.admission.sequences[sequence] = (sequence_id, number)
        if turn is _ALREADY:
            self._report_again(received, step)
            step.admission.duplicates += 1
            return False
        sequence.accepted_at = step.now
        return True

    def _is_future(self, sequence_id: int, time: int) -> bool:
        """Whether a sequence's time stamp (MS-MQMQ 2.2.18.1.2) is later than any clock may be."""
        return sequence_id >> 32 > time + self._parameters.sequence_clock_tolerance

    def _reject(self, sequence: IncomingSequence, turn: Turn, received: ReceivedMessage, step: Pass) -> None:
        self._incoming.reject(sequence, turn, step.time, step.now)
        sequence.refused_count += 1
        admission = step.admission
        if turn is Turn.DUPLICATE:
            sequence.heard_at = step.now
            admission.duplicates += 1
            return
        admission.out_of_order += 1
        if turn is Turn.EARLY:
            identifier, previous = received.headers.tx_sequence_id or 0, received.previous_tx_sequence_number
            admission.gaps[sequence] = self._incoming.missed(sequence, identifier, previous)
        if turn is Turn.OLD:
            identifier = received.headers.tx_sequence_id or 0
            number, sent = received.tx_sequence_number, received.sent_time
            self._incoming.came_again(sequence, identifier, number, sent, step.now)
        if turn is Turn.CONTESTED or turn is Turn.FUTURE:
            counts = admission.contested if turn is Turn.CONTESTED else admission.future
            counts[sequence.source] = counts.get(sequence.source, 0) + 1

    def _refusal(self, received: ReceivedMessage, destination: Destination, step: Pass) -> MessageClass | None:
        """The reason to refuse a message, or None: General Processing, Security and the queue's quota (3.1.5.8.2,
        3.1.5.8.3, 3.1.5.8.8).
        """
        headers = received.headers
        lifetime = headers.time_to_reach_queue
        if lifetime != INFINITE and has_expired(lifetime, received.sent_time, step.time):
            return MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT
        kind = destination.kind
        if kind is _FORWARD:
            exceeded = headers.user_flags & _HOPS.mask >= MAXIMUM_HOPS
            return MessageClass.MQMSG_CLASS_NACK_HOP_COUNT_EXCEEDED if exceeded else None
        if kind is _UNKNOWN:
            return MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q
        if (headers.tx_sequence_id is not None) is not destination.transactional and kind is not _CONNECTOR:
            if destination.transactional:
                return MessageClass.MQMSG_CLASS_NACK_NOT_TRANSACTIONAL_MSG
            return MessageClass.MQMSG_CLASS_NACK_NOT_TRANSACTIONAL_Q
        if step.verdicts:
            verdict = step.verdicts.get(received.ordinal, _NO_VERDICT)
            if verdict.refused is not None:
                return verdict.refused
        if destination.room is not None:
            if len(received.packet) > destination.room:
                return MessageClass.MQMSG_CLASS_NACK_Q_EXCEED_QUOTA
            destination.room -= len(received.packet)
        return None

    def _refuse(
        self, received: ReceivedMessage, name: DestinationName, message_class: MessageClass, step: Pass, told: bool
    ) -> None:
        """Send negative acknowledgments for a refused message. Its turn counts, so those behind it proceed.

        ``told``: it ended here before. Only the FinalAck, which may have been lost, is sent once more.
        """
        admission, received = step.admission, received.in_bytes()
        admission.refused.append((received, message_class))
        if _is_silent(received, step):
            return
        if received.headers.source_queue_manager in step.neighbour.elsewhere:
            return  # a copy of a message that its source sends itself: that would end twice
        final = final_acknowledgment(
            received.message, message_class, Route(name.kind == DIRECT, step.neighbour.address)
        )
        if final is not None:
            admission.final_acks.append(final)
        if told:
            return
        self._answer(received, message_class, step)
        if refused_here(received.headers.user_flags, message_class) is Fate.DEAD_LETTER:
            admission.dead_letters.append((without_claims(received), message_class))

    def _refuse_failed(self, received: ReceivedMessage, name: DestinationName, step: Pass, error: Exception) -> None:
        """Refuse a message that causes an internal error, so that those behind it do not have to come again with it for
        ever.
        """
        step.admission.failed.append((received, error))
        if step.admission.taken and step.admission.taken[-1].received is received:
            return
        with contextlib.suppress(Exception):  # it may fail again
            self._refuse(received, name, MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q, step, told=False)

    def _answer(self, received: ReceivedMessage, message_class: MessageClass, step: Pass) -> None:
        is_told = self._parameters.send_insecure_nacks or (
            message_class is MessageClass.MQMSG_CLASS_NACK_ACCESS_DENIED
            and self._parameters.tell_enterprise_of_denied_access
            and step.neighbour.speaks_for(received.headers.source_queue_manager)
        )
        acknowledgment = administration_acknowledgment(received.message, message_class, is_told)
        if acknowledgment is not None:
            step.admission.administration.append(acknowledgment)

    def _take_acknowledgment(self, received: ReceivedMessage, step: Pass) -> None:
        """Process an OrderAck or FinalAck packet (3.1.5.6, 3.1.5.7). Other messages to the order queue are dropped."""
        message = received.message
        author = received.headers.source_queue_manager
        properties = message.message_properties_header
        try:
            match message_kind(message):
                case MessageKind.ORDER_ACK:
                    order = OrderAckBody.parse(properties.message_body)
                    step.admission.order_acks_received.append(OrderAckReceived(author, order))
                case MessageKind.FINAL_ACK:
                    final = FinalAckBody.parse(properties.message_body)
                    if final.source_guid == self._identifier:
                        taken = FinalAckReceived(author, properties.message_class, final)
                        step.admission.final_acks_received.append(taken)
                case MessageKind.USER_MESSAGE:
                    step.admission.refused.append((received, MessageClass.MQMSG_CLASS_NACK_ACCESS_DENIED))
        except PacketError:
            step.admission.refused.append((received, MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q))


def _report(received: ReceivedMessage, step: Pass) -> None:
    """Send a trace report of the arrival, if the message asks for it."""
    if received.headers.base_flags & _TR:
        report = received_report(received.message, step.time)
        if report is not None:
            step.admission.traces.append(report)


def _is_doubtful(source: Guid, admission: Admission) -> bool:
    """Whether a neighbour may be speaking for a machine that is elsewhere. If so, the admission ends here."""
    neighbour = admission.neighbour
    assert neighbour is not None
    if source in neighbour.elsewhere:
        admission.elsewhere = source
    elif source in neighbour.unanswered:
        admission.unanswered = source
    else:
        return False
    admission.stopped = True
    return True


def _is_silent(received: ReceivedMessage, step: Pass) -> bool:
    """Whether the message must not be answered: that would show a stranger whether its body was decrypted."""
    return bool(step.verdicts) and step.verdicts.get(received.ordinal, _NO_VERDICT).silent


def _as_stored(received: ReceivedMessage, step: Pass) -> bytes:
    """The packet of a message at its destination: decrypted if it was encrypted and could be, without claims."""
    verdict = step.verdicts.get(received.ordinal) if step.verdicts else None
    if verdict is not None and verdict.packet is not None:
        return verdict.packet
    return without_claims(received) if received.headers.has_protection else bytes(received.packet)


def _is_plain(headers: ReceivedHeaders, destination: Destination, step: Pass) -> bool:
    """Whether such messages can only be refused as repeated, early or late, and have no request for a report. The
    answer is the same for all messages with these headers and destination.
    """
    return (
        destination.kind is _LOCAL
        and destination.room is None
        and (headers.tx_sequence_id is not None) is destination.transactional
        and not headers.has_protection
        and not headers.property_flags & _PA
        and not headers.base_flags & _TR
        and not step.verdicts
    )


def without_claims(received: ReceivedMessage) -> bytes:
    """The packet with the authentication bits of its SecurityHeader cleared: a peer must not set them (3.1.5.8.3)."""
    message = received.message
    security = message.security_header
    if security is None or not security.flags & _CLAIMS:
        return bytes(received.packet)
    cleared = security.replace(flags=security.flags & ~_CLAIMS)
    return message.replace(session_header=None, security_header=cleared).write()
