"""The connection of an outgoing queue: finding next hops, trying them, and trying again (3.1.5.2, 3.1.6.1, 3.1.5.9).

One object per outgoing queue. It requests look-ups, pings and transport connections, receives their results, and keeps
what operators see: the queue's state, its next hops and its connection history (MS-MQDMPR 3.1.1.3). The transitions are
in :mod:`qmnode.protocol.states`.

It keeps trying as long as there are messages: every input that ends an attempt leads to the next one. (3.1.7.12
establishes a connection only when the connection history is empty. By that, a queue whose session had gone idle would
stay down.)
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from qmnode.protocol.commands import CloseReason
from qmnode.protocol.states import CHOSEN, CONNECTION, ConnectionAction, ConnectionInput, ConnectionState, Timer, Timers
from qmnode.settings.protocol import TransferSettings
from qmnode.structures.enumerations import ConnectionStatus, OutgoingQueueState
from qmnode.structures.error_codes import hresult_of_failure
from qmnode.structures.guid import ZERO_GUID, Guid

HISTORY_LENGTH: Final = 32
"""Entries of the connection history that are kept; the newest is the last."""


class NextHop(NamedTuple):
    """One path towards the destination, 3.1.1.3.1.3."""

    address: str
    """Textual IPv4 or IPv6 address."""
    host_name: str = ""
    identifier: Guid = ZERO_GUID
    """The queue manager there; null for a direct format name."""


class HistoryEntry(NamedTuple):
    """An entry of ConnectionHistory."""

    status: ConnectionStatus
    time: int
    """Wall time in seconds since 1970."""
    error: int
    """HRESULT, 0 for none."""
    address: str


@dataclass(frozen=True, slots=True)
class ResolveDestination:
    """Find the next hops (3.1.5.2.1, 3.1.7.4, 3.1.7.5), then call ``destination_resolved`` or ``resolution_failed``."""

    format_name: str


@dataclass(frozen=True, slots=True)
class SendPing:
    """Ping this hop (3.1.7.6), then call ``ping_ended``."""

    hop: NextHop


@dataclass(frozen=True, slots=True)
class OpenConnection:
    """Connect to this hop, open an initiator session with ``pinged``; ``session_opened`` or ``session_closed``."""

    hop: NextHop
    pinged: bool


ConnectionCommand = ResolveDestination | SendPing | OpenConnection

_STATUS_OF: Final = {
    CloseReason.REFUSED: ConnectionStatus.CONNECTION_REFUSED,
    CloseReason.INITIALIZATION_TIMEOUT: ConnectionStatus.CONNECTION_NOT_READY,
    CloseReason.DISCONNECTED: ConnectionStatus.SOCKET_SEND_FAILURE,
    CloseReason.PROTOCOL_ERROR: ConnectionStatus.UNKNOWN_FAILURE,
    CloseReason.UNANSWERED: ConnectionStatus.UNKNOWN_FAILURE,
}
"""Reasons for closing that are failures; the others leave no entry."""

_QUEUE_STATE: Final = {
    ConnectionState.INACTIVE: OutgoingQueueState.INACTIVE,
    ConnectionState.RESOLVING: OutgoingQueueState.NEED_VALIDATION,
    ConnectionState.PINGING: OutgoingQueueState.WAITING,
    ConnectionState.CONNECTING: OutgoingQueueState.WAITING,
    ConnectionState.CONNECTED: OutgoingQueueState.CONNECTED,
    ConnectionState.WAITING_RECONNECT: OutgoingQueueState.DISCONNECTED,
    ConnectionState.ON_HOLD: OutgoingQueueState.ON_HOLD,
}


class OutgoingConnection:
    """Keeps one outgoing queue connected while it has messages."""

    def __init__(self, format_name: str, parameters: TransferSettings, *, ping: bool = False) -> None:
        self.format_name = format_name
        self.state = ConnectionState.INACTIVE
        self.next_hops: tuple[NextHop, ...] = ()
        """NextHopCollection, and OutgoingQueue.NextHops for operators."""
        self.history: deque[HistoryEntry] = deque(maxlen=HISTORY_LENGTH)
        """ConnectionHistory, the oldest entry first."""
        self._parameters = parameters
        self._ping = ping
        self._hop = 0
        self._retrying = False
        self._failures = 0
        self._messages = False
        self._session = False
        self._timers = Timers()
        self._commands: list[ConnectionCommand] = []

    # --- what comes out ---
    @property
    def queue_state(self) -> OutgoingQueueState:
        """OutgoingQueue.State as operators see it."""
        if self.state is ConnectionState.RESOLVING and self._session:
            return OutgoingQueueState.DISCONNECTING
        return _QUEUE_STATE[self.state]

    @property
    def hop(self) -> NextHop | None:
        """The hop in use, or being tried (NextHopIndexer)."""
        return self.next_hops[self._hop] if self._hop < len(self.next_hops) else None

    def commands(self) -> list[ConnectionCommand]:
        """The commands to execute, in order. They are handed over: call this once and execute all of them."""
        commands, self._commands = self._commands, []
        return commands

    def next_timer(self) -> tuple[Timer, float] | None:
        """When the Session Retry Connect Timer expires."""
        return self._timers.next

    # --- what goes in ---
    def messages_available(self, now: float, time: int) -> None:
        """The queue has messages (3.1.7.12), or had some when the queue manager started (3.1.4.1)."""
        self._messages = True
        self._take(ConnectionInput.MESSAGES_AVAILABLE, now, time)

    def destination_resolved(self, hops: Sequence[NextHop], now: float, time: int) -> None:
        """The destination was resolved to these next hops, best first. An empty list is a failure to resolve."""
        if not hops:
            self.resolution_failed(ConnectionStatus.ROUTING_DATA_NOT_AVAILABLE, 0, now, time)
            return
        if self.state is ConnectionState.RESOLVING:
            self.next_hops, self._hop = tuple(hops), 0
        self._take(ConnectionInput.DESTINATION_RESOLVED, now, time)

    def resolution_failed(self, status: ConnectionStatus, error: int, now: float, time: int) -> None:
        """The directory, the routing table or the DNS gave no answer (3.1.5.2.1)."""
        if self.state is ConnectionState.RESOLVING:
            self.next_hops = ()
            self._record(status, time, error)
        self._take(ConnectionInput.RESOLUTION_FAILED, now, time)

    def ends_here(self, now: float, time: int) -> None:
        """The messages were put into a connector queue: their path ends here."""
        self._messages = False
        self.next_hops = ()
        self._take(ConnectionInput.ENDS_HERE, now, time)

    def reroute(self, now: float, time: int) -> None:
        """Look up the next hops now: they may have changed. An open session is not touched."""
        self._take(ConnectionInput.REROUTE, now, time)

    def forget_hops(self) -> None:
        """Make the next attempt look the destination up again instead of trying the next hop of the list."""
        self.next_hops, self._hop = (), 0

    def ping_ended(self, accepted: bool, now: float, time: int) -> None:
        """A ping ended (3.1.5.2.2). ``accepted``: it was answered, and the queue manager would accept a session."""
        if not accepted and self.state is ConnectionState.PINGING:
            self._record(ConnectionStatus.PING_FAILURE, time, 0)
        self._take(ConnectionInput.PING_ANSWERED if accepted else ConnectionInput.PING_FAILED, now, time)

    def status_changed(self, status: ConnectionStatus, time: int, error: int = 0) -> None:
        """Record the status of a session or an attempt (``StatusChanged``), or a failed message (3.1.7.1.5.1)."""
        self._record(status, time, error)

    def session_opened(self, now: float, time: int) -> None:
        """The session is established (``Opened``)."""
        self._session = True
        self._take(ConnectionInput.SESSION_OPENED, now, time)

    def session_closed(
        self,
        reason: CloseReason | ConnectionStatus,
        messages_left: bool,
        now: float,
        time: int,
        error: int = 0,
    ) -> None:
        """The session closed, or could not be connected, for that status. ``messages_left``: the queue has some."""
        self._session = False
        self._messages = messages_left
        status = reason if isinstance(reason, ConnectionStatus) else _STATUS_OF.get(reason)
        if status is not None:
            self._record(status, time, error)
        self._take(ConnectionInput.SESSION_CLOSED, now, time)

    def expire(self, now: float, time: int) -> None:
        """Process the Session Retry Connect Timer Event, 3.1.6.1, if it is due."""
        if self._timers.take_due(now) is not None:
            self._take(ConnectionInput.RETRY, now, time)

    def pause(self, now: float, time: int) -> None:
        """Pause Queue event, 3.1.7.13. The session itself notifies the peer (``Session.pause``)."""
        self._take(ConnectionInput.PAUSE, now, time)

    def resume(self, messages_left: bool, now: float, time: int) -> None:
        """Resume Queue event, 3.1.7.14."""
        self._messages = messages_left
        self._take(ConnectionInput.RESUME, now, time)

    # --- the table ---
    def _take(self, what: ConnectionInput, now: float, time: int) -> None:
        transition = CONNECTION[self.state].get(what)
        if transition is None:
            return
        action, self.state = transition
        self._do(action, now)
        assert self.state is transition[1] or self.state in CHOSEN.get(action, ())

    def _do(self, action: ConnectionAction, now: float) -> None:
        match action:
            case ConnectionAction.RESOLVE:
                self._resolve()
            case ConnectionAction.TRY_HOP:
                self._try_hop()
            case ConnectionAction.OPEN:
                self._open(pinged=True)
            case ConnectionAction.ESTABLISHED:
                self._failures = 0
            case ConnectionAction.RETRY_LATER:
                self._retry_later(now)
            case ConnectionAction.NEXT_HOP:
                self._next_hop()
            case ConnectionAction.REROUTE:
                self._timers.stop_all()
                self._failures = 0
                self._resolve()
            case ConnectionAction.HOLD:
                self._timers.stop_all()
            case ConnectionAction.NOTHING:
                pass

    def _resolve(self) -> None:
        if self._session:  # resumed while the session stayed open
            self.state = ConnectionState.CONNECTED
        elif self._messages:
            self._commands.append(ResolveDestination(self.format_name))
        else:
            self.state = ConnectionState.INACTIVE

    def _try_hop(self) -> None:
        """Try a hop. A ping may precede the first attempt, but not a retry by the timer (3.1.5.2.2)."""
        hop = self.hop
        if self._ping and not self._retrying and hop is not None:
            self.state = ConnectionState.PINGING
            self._commands.append(SendPing(hop))
        else:
            self._open(pinged=False)

    def _open(self, pinged: bool) -> None:
        hop = self.hop
        if hop is not None:
            self._commands.append(OpenConnection(hop, pinged))

    def _next_hop(self) -> None:
        """Try the next hop of the list, or at its end resolve the list again (3.1.6.1)."""
        self._retrying = True
        self._hop += 1
        if self.hop is None:
            self.state = ConnectionState.RESOLVING
            self._resolve()
        else:
            self._open(pinged=False)

    def _retry_later(self, now: float) -> None:
        """Start the Session Retry Connect Timer if there are messages to send (3.1.5.9)."""
        if not self._messages:
            self.state = ConnectionState.INACTIVE
            self._retrying = False
            self._failures = 0
            return
        # The next hop of a list is tried after the plain interval; each full round without success doubles it
        # (3.1.2.3).
        rounds = self._failures // max(1, len(self.next_hops))
        self._failures += 1
        interval = min(self._parameters.retry_interval * 2 ** min(rounds, 16), self._parameters.retry_maximum)
        self._timers.start(Timer.SESSION_RETRY_CONNECT, now + interval)

    def _record(self, status: ConnectionStatus, time: int, error: int) -> None:
        hop = self.hop
        if status >= ConnectionStatus.UNKNOWN_FAILURE:
            error = error or hresult_of_failure(status)
        self.history.append(HistoryEntry(status, time, error, hop.address if hop is not None else ""))
