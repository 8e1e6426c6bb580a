"""A protocol session: one transport connection, from its first byte to its close (3.1.5, 3.1.6, 3.1.7).

Bytes, timer expirations and completions go in through methods; bytes come out of ``data_to_send``, requests out of
``commands`` and deadlines out of ``next_timer``. The allowed inputs and their effects are in
:mod:`qmnode.protocol.states`. A peer that breaks the protocol closes its own session: the methods do not raise for
that.
"""

from collections import deque
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeVar

from qmnode.protocol.commands import (
    Closed,
    CloseReason,
    Command,
    MessagesAcknowledged,
    MessagesExpired,
    MessagesReceived,
    Opened,
    RoomAvailable,
    StatusChanged,
    Token,
)
from qmnode.protocol.received import Framer, ReceivedMessage, ReceiveSequence
from qmnode.protocol.states import SESSION, Action, Input, Role, SessionState, Timer, Timers
from qmnode.protocol.wire import ACK_TIMEOUT, RECOVERABLE_ACK_TIMEOUT, LocalProtocolError, RemoteProtocolError, nearest
from qmnode.settings.protocol import SessionSettings
from qmnode.structures.enumerations import ConnectionStatus
from qmnode.structures.errors import PacketError
from qmnode.structures.guid import ZERO_GUID, Guid, guid_to_text
from qmnode.structures.packet_view import (
    SOURCE,
    Packet,
    read_sending_fields,
    session_ack,
    session_header,
    with_session_header,
)
from qmnode.structures.packets import (
    ConnectionParameters,
    ConnectionParametersHeader,
    EstablishConnection,
    EstablishConnectionHeader,
    InternalFlags,
    InternalHeader,
    InternalPacketType,
    OperatingSystemFlags,
    SessionAck,
)
from qmnode.structures.user_message import INFINITE, BaseFlags, SessionHeader, UserFlags

# ----------------------------------------------------------------------------------------------------------------------
# Establishing a session: the two packets of each side, their negotiated values, and the reasons to refuse them.
#
# 3.1.5.2.3, 3.1.5.3, 3.1.5.4. The packets are built and checked here; the table of states decides when they are due.

ESTABLISHMENT_LIMIT: Final = 572
"""Size limit in bytes of packets before the session is open."""
_REFUSED: Final = InternalHeader(flags=InternalFlags.of(CS=1))
_ACCEPTED: Final = InternalHeader(flags=InternalFlags.of(CS=0))
_MILLISECONDS: Final = 0xFFFF_FFFF


class Establishment:
    """The values that the two sides of a session agree on."""

    __slots__ = (
        "ack_wait_timeout_ms", "admits", "certified", "direct", "identifier", "parameters", "pinged", "received_window",
        "recoverable_ack_timeout_ms", "refuse", "remote",
    )  # fmt: skip

    def __init__(
        self, identifier: Guid, parameters: SessionSettings, remote: Guid, direct: bool, pinged: bool, refuse: bool
    ) -> None:
        self.identifier = identifier
        """QueueManager.Identifier of this side."""
        self.parameters = parameters
        self.remote = remote
        """RemoteQMGuid: null at an initiator that has only a direct format name, until the answer gives it."""
        self.certified: Guid | None = None
        """The queue manager that the peer's certificate names; ZERO_GUID: it names none; None: no certificate."""
        self.admits: Callable[[Guid], bool] | None = None
        """Whether an initiator may speak as it does in the name of a queue manager; None: any may."""
        self.direct = direct
        self.pinged = pinged
        self.refuse = refuse
        self.received_window = parameters.window_size
        """ReceivedWindowSize, the peer's window in messages."""
        self.ack_wait_timeout_ms = parameters.ack_wait_timeout_ms
        """The agreed AckWaitTimeout in milliseconds."""
        self.recoverable_ack_timeout_ms = _MILLISECONDS
        """The agreed RecoverableAckSendTimeout in milliseconds."""

    def request(self, now: float) -> bytes:
        """Build the EstablishConnection request, 3.1.5.2.3."""
        flags = OperatingSystemFlags.of(RE=0x10, SE=not self.pinged, OS=True)
        header = EstablishConnectionHeader(
            client_guid=self.identifier,
            server_guid=ZERO_GUID if self.direct else self.remote,
            time_stamp=_milliseconds(now),
            operating_system=flags,
        )
        return EstablishConnection(establish_connection_header=header).write()

    def answer(self, packet: EstablishConnection) -> tuple[bytes, bool]:
        """Build the EstablishConnection response, and return whether it accepts, 3.1.5.3.1.

        A null ServerGuid is valid: with a direct format name the initiator does not know which queue manager it
        reaches, and 3.1.5.2.3 makes it send null. (2.2.1 asks the acceptor to refuse it.) The ClientGuid is not
        checked: an initiator with a null one is answered too, as a peer that the node does not know.
        """
        request = packet.establish_connection_header
        if packet.internal_header.flags & InternalFlags.CS.mask:
            raise RemoteProtocolError("3.1.5.2.3", "a request cannot refuse the connection")
        self._check_certified("3.1.5.3.1", request.client_guid)
        if self.admits is not None and not self.admits(request.client_guid):
            raise RemoteProtocolError(
                "3.1.5.3.1", f"queue manager {guid_to_text(request.client_guid)} has to speak TLS here (security.tls)"
            )
        self.remote = request.client_guid
        self.direct = request.server_guid == ZERO_GUID
        accepted = not self.refuse and request.server_guid in (ZERO_GUID, self.identifier)
        header = EstablishConnectionHeader(
            client_guid=request.client_guid,
            server_guid=self.identifier,
            time_stamp=request.time_stamp,
            operating_system=request.operating_system,
        )
        answer = EstablishConnection(
            internal_header=_ACCEPTED if accepted else _REFUSED, establish_connection_header=header
        )
        return answer.write(), accepted

    def take_answer(self, packet: EstablishConnection, now: float) -> bool:
        """Check the EstablishConnection response, 3.1.5.3.2. False: refused. Raises RemoteProtocolError."""
        answer = packet.establish_connection_header
        if packet.internal_header.flags & InternalFlags.CS.mask:
            return False
        if answer.client_guid != self.identifier:
            raise RemoteProtocolError("3.1.5.3.2", "the answer is for another queue manager")
        if answer.server_guid == ZERO_GUID or (not self.direct and answer.server_guid != self.remote):
            raise RemoteProtocolError("3.1.5.3.2", "another queue manager answered")
        self._check_certified("3.1.5.3.2", answer.server_guid)
        self.remote = answer.server_guid
        round_trip = (_milliseconds(now) - answer.time_stamp) & _MILLISECONDS
        self.recoverable_ack_timeout_ms = _clamp(round_trip * 8, RECOVERABLE_ACK_TIMEOUT)
        return True

    def parameters_request(self) -> bytes:
        """Build the ConnectionParameters request, 3.1.5.3.2."""
        return self._parameters(self.recoverable_ack_timeout_ms)

    def take_parameters(self, packet: ConnectionParameters) -> bytes:
        """Accept the initiator's parameters and build the response, 3.1.5.4.1."""
        header = packet.connection_parameters_header
        if packet.internal_header.flags & InternalFlags.CS.mask:
            raise RemoteProtocolError("3.1.5.4.1", "the connection is refused after it was accepted")
        if header.recoverable_ack_timeout not in RECOVERABLE_ACK_TIMEOUT or header.ack_timeout not in ACK_TIMEOUT:
            raise RemoteProtocolError("2.2.2.1", "an acknowledgment time-out is out of its range")
        self.received_window = max(1, header.window_size)
        self.ack_wait_timeout_ms = header.ack_timeout
        self.recoverable_ack_timeout_ms = header.recoverable_ack_timeout
        return self._parameters(header.recoverable_ack_timeout)

    def take_parameters_answer(self, packet: ConnectionParameters) -> None:
        """Record the acceptor's window, 3.1.5.4.2."""
        if packet.internal_header.flags & InternalFlags.CS.mask:
            raise RemoteProtocolError("2.2.1", "the connection is refused after it was accepted")
        self.received_window = max(1, packet.connection_parameters_header.window_size)

    def _check_certified(self, section: str, claimed: Guid) -> None:
        """Check that the peer's claimed identifier is the one in its certificate."""
        if self.certified is None or self.certified == claimed:
            return
        whose = "no queue manager" if self.certified == ZERO_GUID else f"queue manager {guid_to_text(self.certified)}"
        raise RemoteProtocolError(
            section, f"the peer says that it is {guid_to_text(claimed)}, and its certificate names {whose}"
        )

    def _parameters(self, recoverable_ack_timeout: int) -> bytes:
        header = ConnectionParametersHeader(
            recoverable_ack_timeout=recoverable_ack_timeout,
            ack_timeout=self.ack_wait_timeout_ms,
            window_size=self.parameters.window_size,
        )
        return ConnectionParameters(internal_header=_ACCEPTED, connection_parameters_header=header).write()


def _milliseconds(now: float) -> int:
    """TimeStamp: milliseconds of the monotonic clock, which on Linux counts from the start of the system."""
    return round(now * 1000) & _MILLISECONDS


def _clamp(value: int, limits: range) -> int:
    return min(max(value, limits.start), limits.stop - 1)


# ----------------------------------------------------------------------------------------------------------------------
# The sending half: counts sent messages, with a window, until the peer acknowledges them (3.1.1.4, 3.1.5.5, 3.1.7.1.3).
# Counts never wrap here; see qmnode.protocol.wire.

_new: Final = tuple.__new__
MAXIMUM_UNCONFIRMED: Final = 0x3FFF
"""The most recoverable messages that may wait for the peer's disk: less than half of the 16-bit numbers, which would be
ambiguous otherwise.
"""

QUICKLY: Final = 0.1
"""Seconds in which a whole window is acknowledged before it grows."""
SLOWLY: Final = 0.4
"""Seconds after which it shrinks again: over a narrow link, a message of high priority waits for those before it."""


def largest_window(settings: SessionSettings) -> int:
    """The most messages that a window grows to."""
    return min(settings.window_size * settings.window_growth, MAXIMUM_UNCONFIRMED)


class Disposition(IntEnum):
    """The effect of the session's acknowledgment on a message."""

    RELEASE = 0
    JOURNAL = 1
    """Positive source journaling, 3.1.5.5.4."""
    RETAIN = 2
    """Transactional and first sent here: the order acknowledgment decides, 3.1.1.6.2."""


class SendSequence:
    """Counts sent messages and matches the peer's acknowledgments with them."""

    __slots__ = (
        "_count", "_flight", "_grown", "_largest", "_least", "_round", "acknowledged", "confirmed", "recoverable_sent",
        "sent", "window",
    )  # fmt: skip

    def __init__(self, window: int, largest: int) -> None:
        self.window = window
        """The most messages that may be unacknowledged. It grows from ``window`` to ``largest``, but not above what the
        peer has announced.
        """
        self._least = self._grown = window
        self._largest = largest
        self._round = (0, float("-inf"))
        """With the acknowledgment of this message, a whole window is acknowledged; when that began."""
        self.sent = 0
        """MessageSentCount without its wrap-around."""
        self.recoverable_sent = 0
        """RecoverableMessageSentCount without its wrap-around."""
        self.acknowledged = 0
        """The highest AckSequenceNumber; ``sent - acknowledged`` is UnAckedMessageCount."""
        self.confirmed = 0
        """The highest recoverable sequence number acknowledged as on disk."""
        self._flight: deque[_Flight] = deque()
        self._count = 0
        """The messages in flight."""

    def limit(self, received: int) -> None:
        """Apply the peer's window."""
        self.window = min(self._grown, received)

    def measure(self, received: int, now: float) -> None:
        """After an acknowledgment: let the window grow or shrink by the time that a whole one took."""
        end, start = self._round
        if self.acknowledged >= end:
            if now - start <= QUICKLY:
                self._grown = min(2 * self._grown, self._largest)
            elif now - start > SLOWLY:
                self._grown = max(self._grown // 2, self._least)
            self._round = (self.acknowledged + self._grown, now)
        self.limit(received)

    def room(self) -> int:
        """The number of messages that may be sent now."""
        return min(self.window - self.sent + self.acknowledged, MAXIMUM_UNCONFIRMED - self._count)

    def in_flight(self) -> int:
        """The number of sent messages that wait for an acknowledgment, of their arrival or of the peer's disk."""
        return self._count

    def awaiting(self) -> bool:
        """Whether a sent message is not acknowledged yet."""
        return self.sent > self.acknowledged or bool(self._flight)

    def add(self, tokens: list[Token], recoverable: int, disposition: Disposition) -> None:
        """Count messages that are being sent together and are alike."""
        number = self.recoverable_sent + 1 if recoverable else 0
        self._flight.append(_new(_Flight, (self.sent + 1, number, tokens, disposition)))
        self.sent += len(tokens)
        self._count += len(tokens)
        if recoverable:
            self.recoverable_sent += len(tokens)

    def take_acknowledgment(self, count: int, base: int, flags: int) -> MessagesAcknowledged | None:
        """Process the acknowledging fields of a SessionHeader (3.1.5.5.1 to 3.1.5.5.4). None if they say nothing new.

        ``base`` is the lowest acknowledged recoverable message; ``flags`` has a bit for it and each of those after it.
        Without a flag no recoverable message is acknowledged, whatever ``base`` says, and messages below ``base`` were
        acknowledged by an earlier header. (The specification deletes ``base`` itself unchecked, and everything when the
        numbers wrap.)
        """
        acknowledged = nearest(count, self.acknowledged)
        if acknowledged > self.sent:
            raise RemoteProtocolError("3.1.5.5.1", f"message {acknowledged} was acknowledged, {self.sent} were sent")
        self.acknowledged = max(acknowledged, self.acknowledged)
        first = last = 0
        if flags:
            first = nearest(base, self.confirmed)
            last = first + flags.bit_length() - 1
            if last > self.recoverable_sent:
                raise RemoteProtocolError(
                    "3.1.5.5.3", f"recoverable message {last} was acknowledged, {self.recoverable_sent} were sent"
                )
            self.confirmed = max(self.confirmed, last)
        return self._release(first, last, flags)

    def _release(self, first: int, last: int, flags: int) -> MessagesAcknowledged | None:
        """Remove acknowledged messages from flight; those in between keep their place."""
        flight, has_gaps = self._flight, flags & flags + 1
        kept: list[_Flight] = []
        lists: tuple[list[Token], list[Token], list[Token]] = ([], [], [])
        while flight:
            together = flight.popleft()
            ordinal, number, tokens, disposition = together
            if has_gaps and len(tokens) > 1 and 0 < number <= last and number + len(tokens) > first:
                flight.extendleft(reversed(together.apart()))  # some of them may not be on the peer's disk yet
                continue
            if not number:
                done = self.acknowledged - ordinal + 1
            elif number > last or number < first or flags >> (number - first) & 1:
                done = last - number + 1
            else:
                done = 0
            if done >= len(tokens):
                lists[disposition].extend(tokens)
                continue
            if done > 0:
                lists[disposition].extend(tokens[:done])
                together = _Flight(ordinal + done, number and number + done, tokens[done:], disposition)
            kept.append(together)
            if together.ordinal > self.acknowledged and (together.number > last or not flags):
                break
        flight.extendleft(reversed(kept))
        if not any(lists):
            return None
        self._count -= sum(map(len, lists))
        return MessagesAcknowledged(*lists)

    def unacknowledged(self) -> list[Token]:
        """Tokens of the messages in flight, in the order in which they were sent."""
        return [token for together in self._flight for token in together.tokens]


class _Flight(NamedTuple):
    """Messages that were sent together, one after the other."""

    ordinal: int
    """The first one's place among all messages of the session."""
    number: int
    """The first one's place among the recoverable ones; 0 for express messages."""
    tokens: list[Token]
    disposition: Disposition

    def apart(self) -> "list[_Flight]":
        """The same messages, each sent for itself."""
        return [
            _Flight(self.ordinal + at, self.number and self.number + at, [token], self.disposition)
            for at, token in enumerate(self.tokens)
        ]


# ----------------------------------------------------------------------------------------------------------------------
# The session.

_INTERNAL: Final = BaseFlags.IN.mask
_TYPE_AT: Final = 18
_TYPE_MASK: Final = 0xF
_FLAGS_AT: Final = 2
_DM: Final = UserFlags.DM.mask
_TH: Final = UserFlags.TH.mask
_JP: Final = UserFlags.JP.mask
_OPEN: Final = SessionState.OPEN
_RELEASE: Final = Disposition.RELEASE
Bytes = TypeVar("Bytes")
MAXIMUM_PACKET_SIZE: Final = 0x0040_0000
"""Larger packets close the session: MS-MQMQ 2.2.19.1."""
INITIALIZATION_TIMEOUT: Final = 60.0
"""Seconds of the Session Initialization Timer, 3.1.2.1 note 43."""
_DIRECT_ACK_WAIT_FACTOR: Final = 2
"""The AckWaitTimeouts that a session for a direct format name waits, 3.1.2.4 note 46."""
_ACKNOWLEDGE_EVERY: Final = 16
"""The most settled messages without a SessionAck; fewer with a small window. The timers alone would let the sender's
window starve for half an AckWaitTimeout."""
PIGGYBACK_AFTER: Final = 0.75
"""The part of the Session Ack Send Timer after which an acknowledgment is carried by a UserMessage, 3.1.7.11."""
AFTER_A_BURST: Final = 0.1
"""The part of RecoverableAckSendTimeout after which the last messages of a burst are acknowledged. Earlier ones were
acknowledged by their number, within less time. If none follows now, their sender has no more, and waits.
"""
ACKNOWLEDGE_BYTES: Final = 1 << 20
"""After so many bytes messages are acknowledged although they are few: their sender keeps them meanwhile."""

_PACKETS: Final[dict[int, tuple[Input, type[SessionAck | EstablishConnection | ConnectionParameters]]]] = {
    InternalPacketType.SESSION_ACK: (Input.SESSION_ACK, SessionAck),
    InternalPacketType.ESTABLISH_CONNECTION: (Input.ESTABLISH_CONNECTION, EstablishConnection),
    InternalPacketType.CONNECTION_PARAMETERS: (Input.CONNECTION_PARAMETERS, ConnectionParameters),
}

_REASONS: Final = {
    Input.INITIALIZATION_TIMEOUT: CloseReason.INITIALIZATION_TIMEOUT,
    Input.IDLE: CloseReason.IDLE,
    Input.UNANSWERED: CloseReason.UNANSWERED,
    Input.DISCONNECTED: CloseReason.DISCONNECTED,
    Input.STOPPED: CloseReason.STOPPED,
}


class Session:
    """One session. After ``Closed`` it does nothing more; make a new one for the next connection.

    ``identifier`` is this queue manager. An initiator names the expected peer (``remote``), or sets ``direct`` if it
    has only a direct format name, and ``pinged`` if a ping preceded. An acceptor may ``refuse`` every peer (limits,
    3.1.5.3.1).
    """

    def __init__(
        self,
        role: Role,
        identifier: Guid,
        parameters: SessionSettings,
        now: float,
        *,
        remote: Guid = ZERO_GUID,
        direct: bool = False,
        pinged: bool = False,
        refuse: bool = False,
    ) -> None:
        if role is Role.INITIATOR and not direct and remote == ZERO_GUID:
            raise LocalProtocolError("an initiator names the queue manager that it expects, or uses a direct name")
        self.role = role
        self.state = SessionState.WAITING_EC_MSG
        self._agreed = Establishment(identifier, parameters, remote, direct, pinged, refuse)
        self._parameters = parameters
        self._identifier = identifier
        self._framer = Framer(ESTABLISHMENT_LIMIT)
        self._largest_window = largest_window(parameters)
        self._send = SendSequence(parameters.window_size, self._largest_window)
        self._receive = ReceiveSequence()
        self._acknowledge_every = 1
        self._first_window = parameters.window_size
        """The peer's window may be as small for as long as it does not grow it, whatever is announced."""
        self._unacknowledged_bytes = 0
        """Received since the last acknowledgment."""
        self._timers = Timers()
        self._active = False
        self._received_any = False
        self._ack_timer = (now, now)
        self._counted_at = float("-inf")
        """When messages were last acknowledged by their number, unless the timer has expired since."""
        self._out: list[Packet] = []
        self._commands: list[Command] = []
        self._timers.start(Timer.SESSION_CLEANUP, now + parameters.cleanup_interval)
        if role is Role.ACCEPTOR:  # 3.1.5.10
            self._timers.start(Timer.SESSION_INITIALIZATION, now + INITIALIZATION_TIMEOUT)

    # --- what comes out ---
    @property
    def closed(self) -> bool:
        """Whether the session is over."""
        return self.state is SessionState.CLOSED

    @property
    def remote(self) -> Guid:
        """RemoteQMGuid: the peer's claimed identifier; null while unknown."""
        return self._agreed.remote

    @property
    def certified(self) -> Guid | None:
        """The queue manager that the peer's TLS certificate proves; any other claim is refused. ZERO_GUID if the
        certificate proves none, None without a certificate.
        """
        return self._agreed.certified

    @certified.setter
    def certified(self, identifier: Guid | None) -> None:
        self._agreed.certified = identifier

    def admit_only(self, admits: Callable[[Guid], bool]) -> None:
        """Take an initiator only if it is admitted in the name of the queue manager that it says it is."""
        self._agreed.admits = admits

    @property
    def direct(self) -> bool:
        """Whether the session was opened by a direct format name."""
        return self._agreed.direct

    @property
    def sent_count(self) -> int:
        """MessageSentCount without its wrap-around."""
        return self._send.sent

    @property
    def received_count(self) -> int:
        """MessageReceivedCount without its wrap-around."""
        return self._receive.received

    def unsettled(self) -> int:
        """The number of received messages that are not settled. When there are too many, stop reading from the
        connection.
        """
        return self._receive.received - self._receive.settled

    def incomplete(self) -> int:
        """Bytes of an incomplete packet."""
        return self._framer.pending()

    def in_flight(self) -> int:
        """The number of sent messages whose outcome the peer has not reported."""
        return self._send.in_flight()

    def room(self) -> int:
        """The number of messages that ``send_messages`` would send now: the free window, 0 while the session is not
        open.
        """
        return max(0, self._send.room()) if self.state is SessionState.OPEN else 0

    def data_to_send(self) -> list[Packet]:
        """Buffers for the transport connection, in order. They are handed over: call this once and send all of them."""
        out, self._out = self._out, []
        return out

    def commands(self) -> list[Command]:
        """The commands to execute, in order. They are handed over: call this once and execute all of them."""
        commands, self._commands = self._commands, []
        return commands

    def next_timer(self) -> tuple[Timer, float] | None:
        """The timer that expires first, and when."""
        return self._timers.next

    # --- what goes in ---
    def connected(self, now: float) -> None:
        """The initiator's transport connection is open: 3.1.5.2.3."""
        self._take(Input.CONNECTED, now)

    def disconnected(self, now: float) -> None:
        """The transport connection broke: 3.1.7.3."""
        self._take(Input.DISCONNECTED, now)

    def close(self, now: float) -> None:
        """Close from this side: the queue manager stops (3.1.4.2), or the caller has another reason."""
        self._take(Input.STOPPED, now)

    def expire(self, now: float) -> None:
        """Process every timer whose deadline has passed (3.1.6)."""
        while (timer := self._timers.take_due(now)) is not None:
            self._expired(timer, now)

    def buffer(self, spared: int = 0) -> memoryview | None:
        """Where to read the next bytes to: then call ``receive_filled``. None if any buffer will do. ``spared`` buffers
        for large packets are left to other sessions.
        """
        return None if self.closed else self._framer.buffer(spared)

    def receive_filled(self, count: int, now: float) -> None:
        """Process so many bytes from the transport connection that were read to ``buffer``."""
        if not self.closed:
            self._unacknowledged_bytes += count
            self._receive_packets(self._framer.filled, count, now)

    def receive_data(self, data: bytes | bytearray | memoryview, now: float) -> None:
        """Process bytes from the transport connection, cut anywhere."""
        if not self.closed:
            self._unacknowledged_bytes += len(data)
            self._receive_packets(self._framer.feed, data, now)

    def _receive_packets(self, cut: Callable[[Bytes], list[Packet]], received: Bytes, now: float) -> None:
        """Process the packets that are whole with what was received."""
        batch: list[ReceivedMessage] = []
        owed = self._receive.recoverable_received > self._receive.recoverable_acknowledged
        read = self._receive.read
        try:
            for packet in cut(received):
                self._received_any = True  # ReceivedAck, 3.1.5.1
                if packet[_FLAGS_AT] & _INTERNAL:
                    self._take_internal(bytes(packet), now)
                    if self.closed:
                        break
                    continue
                if self.state is not _OPEN:
                    self._take(Input.USER_MESSAGE, now)  # raises: the table has it in _OPEN only
                message = read(packet)
                batch.append(message)
                header = message.session_header
                if header is not None:
                    self._take_session_header(header, now)
        except RemoteProtocolError as error:
            self._hand_over(batch, owed, now)
            self._close(CloseReason.PROTOCOL_ERROR, error)
            return
        self._hand_over(batch, owed, now)

    def messages_settled(self, ordinal: int, recoverable_ordinal: int, now: float) -> None:
        """Everything up to this ReceivedMessage, with all its effects, is on disk or was dropped (3.1.5.8.7).

        ``ordinal`` and ``recoverable_ordinal`` are that message's. Only now may the messages be acknowledged; that
        happens here when there are enough of them or of their bytes, or when the timer expires. A closed session
        ignores the call.
        """
        if self.state is not SessionState.OPEN:
            return
        self._receive.settle(ordinal, recoverable_ordinal)
        due = self._receive.due()
        if due >= self._acknowledge_every or (due and self._unacknowledged_bytes >= ACKNOWLEDGE_BYTES):
            self._counted_at = now
            self._send_acknowledgments(now)

    def send_messages(
        self, tokens: Sequence[Token], packets: Sequence[Packet], now: float, time: int, *, again: bool = False
    ) -> int:
        """Send messages, as many as the window has room for, and return how many were taken from the front: 3.1.7.1.

        ``again``: these were sent before and their outcome is unknown. They are not checked for expiry here, or a
        message that did arrive would also be reported as expired; the receiver refuses it if it did not arrive in time.

        A token comes back in MessagesAcknowledged, in MessagesExpired or in Closed. A packet is a complete UserMessage
        without SessionHeader. Transactional ones of this queue manager went through ``OutgoingSequence.prepare`` first.
        """
        room = self.room()
        if room <= 0:
            return 0
        out, kind = self._out, -1
        together: list[Token] = []
        expired: list[int] = []
        taken, disposition = 0, _RELEASE
        for token, packet in zip(tokens, packets, strict=True):
            if taken - len(expired) >= room:
                break
            lifetime, sent_time, _, flags = read_sending_fields(packet)
            taken += 1
            if time - sent_time > lifetime != INFINITE and not again:
                expired.append(taken - 1)
                continue
            effect = self._disposition(packet, flags) if flags & (_TH | _JP) else _RELEASE
            flags &= _DM
            if flags != kind or effect is not disposition:
                if together:
                    self._send.add(together, kind, disposition)
                kind, together, disposition = flags, [], effect
            together.append(token)
            out.append(packet)
        if together:
            self._send.add(together, kind, disposition)
        if len(expired) < taken:
            self._sent(now)
        if expired:
            self._commands.append(
                MessagesExpired([tokens[at] for at in expired], [bytes(packets[at]) for at in expired])
            )
        return taken

    def pause(self, now: float) -> None:
        """Pause Queue event, 3.1.7.13: acknowledge settled messages and set the peer's window to 1."""
        if self.state is SessionState.OPEN:
            self._send_acknowledgments(now, window=1)
            self._timers.stop(Timer.SESSION_ACK_SEND)
            self._active = False

    def resume(self) -> None:
        """Resume Queue event, 3.1.7.14."""
        self._active = True

    # --- the table ---
    def _take(self, what: Input, now: float, packet: object = None) -> None:
        """Look the input up, act, and enter the next state."""
        if self.closed:
            return
        transition = SESSION[self.role][self.state].get(what)
        if transition is None:
            if what is Input.CONNECTED:
                raise LocalProtocolError(f"{what.name} in state {self.state.name} as {self.role.name}")
            raise RemoteProtocolError("3.1.5", f"a packet of kind {what.name} in state {self.state.name}")
        if transition.action is Action.CLOSE:
            self._close(_REASONS[what])
            return
        ACTIONS[transition.action](self, packet, now)
        if not self.closed:
            self.state = transition.state
            if transition.state is SessionState.OPEN and what is Input.CONNECTION_PARAMETERS:
                self._open()

    def _close(self, reason: CloseReason, error: RemoteProtocolError | None = None) -> None:
        """Close the session, 3.1.5.9. No packet announces it; the caller closes the transport connection on reading
        Closed.
        """
        self._timers.stop_all()
        self._framer.clear()
        self.state = SessionState.CLOSED
        self._commands.append(Closed(reason, self._send.unacknowledged(), error))

    # --- packets ---
    def _take_internal(self, packet: bytes, now: float) -> None:
        kind = _PACKETS.get(packet[_TYPE_AT] & _TYPE_MASK) if len(packet) > _TYPE_AT else None
        if kind is None:
            raise RemoteProtocolError("2.2.1", "an internal packet of unknown type")
        what, structure = kind
        try:
            parsed = structure.parse(packet)
        except PacketError as error:
            raise RemoteProtocolError("3.1.5.1.3", str(error)) from error
        self._take(what, now, parsed)

    def _hand_over(self, batch: list[ReceivedMessage], owed: bool, now: float) -> None:
        """Hand over the messages of one read, and make sure that they will be acknowledged (3.1.5.8.2, 3.1.5.8.7).

        ``owed``: an acknowledgment of recoverable messages was due before, so its timer runs already.
        """
        if not batch:
            return
        self._commands.append(MessagesReceived(batch))
        self._active = True
        if not owed and self._receive.recoverable_received > self._receive.recoverable_acknowledged:
            self._start_ack_timer(now, self._agreed.recoverable_ack_timeout_ms)
        elif Timer.SESSION_ACK_SEND not in self._timers.deadlines:
            self._start_ack_timer(now, self._agreed.ack_wait_timeout_ms // 2)

    def _send_establish_request(self, _: None, now: float) -> None:
        self._out.append(self._agreed.request(now))
        self._commands.append(StatusChanged(ConnectionStatus.IN_PROCESS))
        self._timers.start(Timer.SESSION_INITIALIZATION, now + INITIALIZATION_TIMEOUT)

    def _answer_establish_request(self, packet: EstablishConnection, now: float) -> None:
        answer, accepted = self._agreed.answer(packet)
        self._out.append(answer)
        if not accepted:
            self._close(CloseReason.REFUSED_HERE)

    def _take_establish_response(self, packet: EstablishConnection, now: float) -> None:
        if not self._agreed.take_answer(packet, now):
            self._commands.append(StatusChanged(ConnectionStatus.CONNECTION_REFUSED))
            self._close(CloseReason.REFUSED)
            return
        self._out.append(self._agreed.parameters_request())
        self._commands.append(StatusChanged(ConnectionStatus.ESTABLISH_PACKET_RECEIVED))
        self._framer.limit = MAXIMUM_PACKET_SIZE  # messages may follow the answer in the same read

    def _answer_parameters(self, packet: ConnectionParameters, now: float) -> None:
        self._out.append(self._agreed.take_parameters(packet))

    def _take_parameters_response(self, packet: ConnectionParameters, now: float) -> None:
        self._agreed.take_parameters_answer(packet)
        self._commands.append(StatusChanged(ConnectionStatus.ESTABLISHED))

    def _open(self) -> None:
        self._timers.stop(Timer.SESSION_INITIALIZATION)
        self._framer.limit = MAXIMUM_PACKET_SIZE
        self._send.limit(self._agreed.received_window)
        self._first_window = min(self._parameters.window_size, self._agreed.received_window)
        self._set_acknowledge_every(self._parameters.window_size)
        self._commands.append(Opened(self.remote, self._send.window))
        self._commands.append(RoomAvailable(self.room()))

    def _take_session_ack(self, packet: SessionAck, now: float) -> None:
        self._take_session_header(packet.session_header, now)

    def _take_session_header(self, header: SessionHeader, now: float) -> None:
        """Receiving a SessionAck packet, 3.1.5.5; the same for a SessionHeader on a message, 3.1.5.8.4."""
        send = self._send
        before = send.room()
        acknowledged = send.take_acknowledgment(
            header.ack_sequence_number, header.recoverable_msg_ack_seq_number, header.recoverable_msg_ack_flags
        )
        if acknowledged is not None:
            self._report(acknowledged)
        # 0 would stop the session for ever.
        self._agreed.received_window = received = max(1, header.window_size)
        send.measure(received, now)
        self._receive.check_counts(header.user_msg_sequence_number, header.recoverable_msg_seq_number)
        if send.awaiting():
            self._start_ack_wait(now)
        if send.room() > max(0, before):
            self._commands.append(RoomAvailable(send.room()))

    def _report(self, acknowledged: MessagesAcknowledged) -> None:
        """Report acknowledged messages together with those that have just been: one SessionAck names only 32."""
        for command in self._commands[-2:]:
            if type(command) is MessagesAcknowledged:
                command.released.extend(acknowledged.released)
                command.journaled.extend(acknowledged.journaled)
                command.received.extend(acknowledged.received)
                return
        self._commands.append(acknowledged)

    # --- acknowledgments and windows ---
    def _announced(self) -> int:
        """WindowSize for the peer: the largest one once the peer has used the first."""
        first = self._parameters.window_size
        return first if self._receive.received < first else self._largest_window

    def _set_acknowledge_every(self, announced: int) -> None:
        window = min(announced, self._first_window, self._agreed.received_window)
        self._acknowledge_every = max(1, min(_ACKNOWLEDGE_EVERY, window // 4))

    def _session_header(self, window: int) -> bytes:
        self._set_acknowledge_every(window)
        self._unacknowledged_bytes = 0
        send = self._send
        return session_header(*self._receive.acknowledge(), send.sent, send.recoverable_sent, window)

    def _send_acknowledgments(self, now: float, window: int = 0) -> None:
        """Send SessionAck packets for all settled messages (3.1.6.4); one acknowledges at most 32 recoverable
        messages.
        """
        while True:
            self._out.append(session_ack(self._session_header(window or self._announced())))
            if not self._receive.more():
                break
        self._restart_ack_timer(now)

    def _restart_ack_timer(self, now: float) -> None:
        if self._receive.unacknowledged():
            self._start_ack_timer(now, self._agreed.recoverable_ack_timeout_ms)
        else:
            self._timers.stop(Timer.SESSION_ACK_SEND)

    def _start_ack_timer(self, now: float, milliseconds: int) -> None:
        soon = AFTER_A_BURST * self._agreed.recoverable_ack_timeout_ms / 1000
        deadline = now + (soon if now - self._counted_at < soon else milliseconds / 1000)
        self._ack_timer = (now, deadline)
        self._timers.start(Timer.SESSION_ACK_SEND, deadline)

    def _start_ack_wait(self, now: float) -> None:
        factor = _DIRECT_ACK_WAIT_FACTOR if self.direct else 1
        self._timers.start(Timer.SESSION_ACK_WAIT, now + factor * self._agreed.ack_wait_timeout_ms / 1000)

    # --- sending ---
    def _disposition(self, packet: Packet, flags: int) -> Disposition:
        """The effect of the session's acknowledgment on this message. Only its source journals or retains it."""
        if packet[SOURCE] != self._identifier:
            return _RELEASE
        return Disposition.RETAIN if flags & _TH else Disposition.JOURNAL

    def _sent(self, now: float) -> None:
        """Start the timers for messages queued for sending: 3.1.7.1.3, last paragraphs."""
        self._active = True
        if Timer.SESSION_ACK_WAIT not in self._timers.deadlines:
            self._start_ack_wait(now)
        self._piggyback(now)

    def _piggyback(self, now: float) -> None:
        """Let the last message carry an acknowledgment when one is due soon anyway (3.1.7.11)."""
        if not self._receive.due() or Timer.SESSION_ACK_SEND not in self._timers.deadlines:
            return
        started, deadline = self._ack_timer
        if now < started + PIGGYBACK_AFTER * (deadline - started):
            return
        self._out[-1:] = with_session_header(self._out[-1], self._session_header(self._announced()))
        if self._receive.more():
            self._send_acknowledgments(now)
        else:
            self._restart_ack_timer(now)

    # --- timers ---
    def _expired(self, timer: Timer, now: float) -> None:
        match timer:
            case Timer.SESSION_INITIALIZATION:
                self._take(Input.INITIALIZATION_TIMEOUT, now)
            case Timer.SESSION_CLEANUP:
                self._cleanup_expired(now)
            case Timer.SESSION_ACK_WAIT:
                self._ack_wait_expired(now)
            case Timer.SESSION_ACK_SEND:
                self._ack_send_expired(now)
            case _:
                raise LocalProtocolError(f"{timer.name} is not a timer of a session")

    def _cleanup_expired(self, now: float) -> None:
        """Session Cleanup Timer Event, 3.1.6.2."""
        if not self._active:
            self._take(Input.IDLE, now)
            return
        self._active = False
        self._timers.start(Timer.SESSION_CLEANUP, now + self._parameters.cleanup_interval)

    def _ack_wait_expired(self, now: float) -> None:
        """Session Ack Wait Timer Event, 3.1.6.3."""
        received, self._received_any = self._received_any, False
        if not self._send.awaiting():
            return
        if not received:
            self._take(Input.UNANSWERED, now)
            return
        self._start_ack_wait(now)

    def _ack_send_expired(self, now: float) -> None:
        """Session Ack Send Timer Event, 3.1.6.4. If nothing is settled yet, the disk is behind: check again later."""
        if self._receive.due():
            self._counted_at = float("-inf")
            self._send_acknowledgments(now)
        else:
            self._restart_ack_timer(now)


ACTIONS: Final[dict[Action, Callable[[Session, Any, float], None]]] = {
    Action.SEND_ESTABLISH_REQUEST: Session._send_establish_request,
    Action.ANSWER_ESTABLISH_REQUEST: Session._answer_establish_request,
    Action.TAKE_ESTABLISH_RESPONSE: Session._take_establish_response,
    Action.ANSWER_PARAMETERS: Session._answer_parameters,
    Action.TAKE_PARAMETERS_RESPONSE: Session._take_parameters_response,
    Action.TAKE_SESSION_ACK: Session._take_session_ack,
}
"""The method of each action of the table in ``states.py`` but two: CLOSE has a reason and is done by ``_take``, and
messages are taken without a look-up for each."""
