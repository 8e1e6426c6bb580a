"""The rules between packets: answers must echo requests, and counts must be right.

Rules that need the beginning of a connection are not applied if the capture does not have it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from qmnode.structures.conformance import Finding, Kind, Seen
from qmnode.structures.guid import ZERO_GUID
from qmnode.structures.packets import OperatingSystemFlags, PingFlags
from qmnode.structures.user_message import UserFlags

if TYPE_CHECKING:
    from qmnode.capture.read_files import Route

_ESTABLISHING, _RESPONDING = "MS-MQQB 2.2.3.1", "MS-MQQB 3.1.5.3.1"
_PARAMETERS = "MS-MQQB 3.1.5.4.1"
_SESSION = "MS-MQMQ 2.2.20.4"
_PING = "MS-MQQB 2.2.7"
_COUNT = 0xFFFF
_HALF = 0x8000
_SESSION_BIT = OperatingSystemFlags.FIELDS["SE"].mask
_CLIENT_BIT = PingFlags.FIELDS["RC"].mask


@dataclass(slots=True)
class _Sent:
    """The packets that one side has sent on a connection."""

    messages: int = 0
    recoverable: int = 0


@dataclass(slots=True)
class _Session:
    """The state of a connection that the rules need. Sent[True] is the client's side."""

    from_start: bool
    whole: bool = True
    """Whether the capture has all of it, so that its messages can be counted."""
    establish: Any = None
    parameters: Any = None
    sent: dict[bool, _Sent] = field(default_factory=lambda: {True: _Sent(), False: _Sent()})


class Conversations:
    """Follows the connections and pings of a capture. Feed it each packet in order."""

    LIMIT: Final = 4096
    """The most connections, and unanswered pings, that are remembered."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[int, _Session] = OrderedDict()
        self._pings: OrderedDict[tuple[str, str], Any] = OrderedDict()

    def damaged(self, route: Route | None) -> None:
        """A packet of this connection was lost or unreadable: its messages can no longer be counted."""
        if route is not None and route.connection is not None:
            self._session(route).whole = False

    def check(self, seen: Seen, route: Route | None) -> Iterator[Finding]:
        """Yield the broken rules of a packet, and remember the packet."""
        if route is None or seen.from_client is None:
            return
        if seen.kind == Kind.PING:
            yield from self._ping(seen, route)
        elif route.connection is not None:
            yield from _CHECKS[seen.kind](self._session(route), seen)

    def _session(self, route: Route) -> _Session:
        assert route.connection is not None
        session = self._sessions.get(route.connection)
        if session is None:
            session = self._sessions[route.connection] = _Session(route.from_start)
            if len(self._sessions) > self.LIMIT:
                self._sessions.popitem(last=False)
        return session

    def _ping(self, seen: Seen, route: Route) -> Iterator[Finding]:
        if seen.from_client:
            self._pings[route.source, route.destination] = seen.packet
            if len(self._pings) > self.LIMIT:
                self._pings.popitem(last=False)
            return
        request = self._pings.get((route.destination, route.source))
        if request is None:
            return
        if seen.packet.cookie != request.cookie:
            yield Finding("Ping Packet", "Cookie", 4, f"must be that of the request, {request.cookie}", _PING)
        if (seen.packet.flags ^ request.flags) & _CLIENT_BIT:
            yield Finding("Ping Packet", "Flags", 0, "RC must be that of the request", _PING)


def _establish(session: _Session, seen: Seen) -> Iterator[Finding]:
    header = seen.packet.establish_connection_header
    if seen.from_client:
        # A session begins here, even if the capture began earlier.
        session.establish, session.from_start = header, True
        return
    request = session.establish
    if request is None:
        return
    name = "EstablishConnectionHeader"
    if header.client_guid != request.client_guid:
        yield Finding(name, "ClientGuid", 20, "must be that of the request", _RESPONDING)
    if request.server_guid not in (ZERO_GUID, header.server_guid):
        yield Finding(name, "ServerGuid", 36, "must be that of the request", _ESTABLISHING)
    if header.time_stamp != request.time_stamp:
        yield Finding(name, "TimeStamp", 52, f"must be that of the request, {request.time_stamp}", _RESPONDING)
    if (header.operating_system ^ request.operating_system) & _SESSION_BIT:
        yield Finding(name, "OperatingSystem", 56, "SE must be that of the request", _RESPONDING)


def _parameters(session: _Session, seen: Seen) -> Iterator[Finding]:
    header = seen.packet.connection_parameters_header
    if seen.from_client:
        session.parameters = header
        return
    request = session.parameters
    if request is None:
        return
    name = "ConnectionParametersHeader"
    if header.recoverable_ack_timeout != request.recoverable_ack_timeout:
        sentence = f"must be that of the request, {request.recoverable_ack_timeout}"
        yield Finding(name, "RecoverableAckTimeout", 20, sentence, _PARAMETERS)
    if header.ack_timeout != request.ack_timeout:
        yield Finding(name, "AckTimeout", 24, f"must be that of the request, {request.ack_timeout}", _PARAMETERS)


def _message(session: _Session, seen: Seen) -> Iterator[Finding]:
    sent = session.sent[bool(seen.from_client)]
    before = sent.recoverable
    sent.messages += 1
    sent.recoverable += bool(UserFlags.FIELDS["DM"].get(seen.user.flags))
    if seen.packet.session_header is not None:
        yield from _acknowledges(session, seen, {before, sent.recoverable})


def _session_ack(session: _Session, seen: Seen) -> Iterator[Finding]:
    yield from _acknowledges(session, seen, {session.sent[bool(seen.from_client)].recoverable})


def _acknowledges(session: _Session, seen: Seen, recoverable: set[int]) -> Iterator[Finding]:
    """Check an acknowledgment. ``recoverable`` is the number sent; a header inside a message may count it or not."""
    if not (session.from_start and session.whole):
        return
    header = seen.packet.session_header
    name, start = "SessionHeader", seen.packet.size - header.size
    theirs = session.sent[not seen.from_client]
    if _ahead(header.ack_sequence_number, theirs.messages):
        sentence = f"must count the messages received, and only {theirs.messages} were sent"
        yield Finding(name, "AckSequenceNumber", start, sentence, _SESSION)
    highest = header.recoverable_msg_ack_seq_number + max(header.recoverable_msg_ack_flags.bit_length() - 1, 0)
    if header.recoverable_msg_ack_seq_number and _ahead(highest, theirs.recoverable):
        sentence = f"must be of messages received, and only {theirs.recoverable} recoverable ones were sent"
        yield Finding(name, "RecoverableMsgAckSeqNumber", start + 2, sentence, _SESSION)
    if header.recoverable_msg_seq_number not in {count & _COUNT for count in recoverable}:
        sentence = f"must count the recoverable messages sent, {max(recoverable) & _COUNT}"
        yield Finding(name, "RecoverableMsgSeqNumber", start + 10, sentence, _SESSION)


def _ahead(number: int, count: int) -> bool:
    """Whether a 16-bit number that wraps is beyond ``count``."""
    return 0 < (number - count) & _COUNT < _HALF


_CHECKS: Final[dict[Kind, Callable[[_Session, Seen], Iterator[Finding]]]] = {
    Kind.ESTABLISH_CONNECTION: _establish,
    Kind.CONNECTION_PARAMETERS: _parameters,
    Kind.SESSION_ACK: _session_ack,
    Kind.USER_MESSAGE: _message,
    Kind.ORDER_ACK: _message,
    Kind.FINAL_ACK: _message,
}
