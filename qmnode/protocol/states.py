"""Everything that affects the state machines lives here: states, inputs, and the tables of transitions.

Two machines. A session lives as long as its transport connection (3.1.1.1.1.1 and 3.1.1.1.1.2, figures 3 and 4). An
outgoing connection lives as long as its outgoing queue and makes one session after the other (3.1.5.2, 3.1.6.1,
MS-MQDMPR 3.1.1.3). An input that a state does not list is a protocol error in a session; in an outgoing connection it
comes too late and changes nothing.
"""

from collections.abc import Mapping
from enum import Enum, auto, unique
from operator import itemgetter
from typing import Final, NamedTuple


@unique
class Role(Enum):
    """The side that opened the transport connection (section 3)."""

    INITIATOR = auto()
    ACCEPTOR = auto()


@unique
class SessionState(Enum):
    """SessionState, 3.1.1.3.1. WAITING_RECONNECT belongs to the outgoing connection, see below."""

    WAITING_EC_MSG = auto()
    WAITING_ECR_MSG = auto()
    WAITING_CP_MSG = auto()
    WAITING_CPR_MSG = auto()
    OPEN = auto()
    CLOSED = auto()


@unique
class Input(Enum):
    """The inputs of a session."""

    CONNECTED = auto()
    """The transport connection that the initiator requested is open."""
    ESTABLISH_CONNECTION = auto()
    CONNECTION_PARAMETERS = auto()
    SESSION_ACK = auto()
    USER_MESSAGE = auto()
    """A UserMessage, OrderAck or FinalAck packet: the session treats the three alike."""
    INITIALIZATION_TIMEOUT = auto()
    IDLE = auto()
    """Session Cleanup Timer without activity, 3.1.6.2."""
    UNANSWERED = auto()
    """Session Ack Wait Timer with messages unacknowledged and nothing received, 3.1.6.3."""
    DISCONNECTED = auto()
    """The transport connection broke, 3.1.7.3."""
    STOPPED = auto()
    """The queue manager stops, 3.1.4.2, or the caller closes the session."""


@unique
class Action(Enum):
    """The actions of a session on a transition, by section; ``ACTIONS`` in ``session.py`` has the method of each."""

    SEND_ESTABLISH_REQUEST = "3.1.5.2.3"
    ANSWER_ESTABLISH_REQUEST = "3.1.5.3.1"
    TAKE_ESTABLISH_RESPONSE = "3.1.5.3.2"
    ANSWER_PARAMETERS = "3.1.5.4.1"
    TAKE_PARAMETERS_RESPONSE = "3.1.5.4.2"
    TAKE_SESSION_ACK = "3.1.5.5"
    TAKE_USER_MESSAGE = "3.1.5.8"
    CLOSE = "3.1.5.9"


class Transition(NamedTuple):
    """An action, and the state after its success. An action that fails closes the session."""

    action: Action
    state: SessionState


_S = SessionState
_CLOSE: Final = Transition(Action.CLOSE, _S.CLOSED)

_ALWAYS: Final[Mapping[Input, Transition]] = {Input.DISCONNECTED: _CLOSE, Input.STOPPED: _CLOSE}
_WAITING: Final[Mapping[Input, Transition]] = {**_ALWAYS, Input.INITIALIZATION_TIMEOUT: _CLOSE, Input.IDLE: _CLOSE}
_OPEN: Final[Mapping[Input, Transition]] = {
    **_ALWAYS,
    Input.SESSION_ACK: Transition(Action.TAKE_SESSION_ACK, _S.OPEN),
    Input.USER_MESSAGE: Transition(Action.TAKE_USER_MESSAGE, _S.OPEN),
    Input.IDLE: _CLOSE,
    Input.UNANSWERED: _CLOSE,
}

SESSION: Final[Mapping[Role, Mapping[SessionState, Mapping[Input, Transition]]]] = {
    Role.INITIATOR: {
        _S.WAITING_EC_MSG: {
            **_WAITING,
            Input.CONNECTED: Transition(Action.SEND_ESTABLISH_REQUEST, _S.WAITING_ECR_MSG),
        },
        _S.WAITING_ECR_MSG: {
            **_WAITING,
            Input.ESTABLISH_CONNECTION: Transition(Action.TAKE_ESTABLISH_RESPONSE, _S.WAITING_CPR_MSG),
        },
        _S.WAITING_CPR_MSG: {
            **_WAITING,
            Input.CONNECTION_PARAMETERS: Transition(Action.TAKE_PARAMETERS_RESPONSE, _S.OPEN),
        },
        _S.OPEN: _OPEN,
        _S.CLOSED: {},
    },
    Role.ACCEPTOR: {
        _S.WAITING_EC_MSG: {
            **_WAITING,
            Input.ESTABLISH_CONNECTION: Transition(Action.ANSWER_ESTABLISH_REQUEST, _S.WAITING_CP_MSG),
        },
        _S.WAITING_CP_MSG: {
            **_WAITING,
            Input.CONNECTION_PARAMETERS: Transition(Action.ANSWER_PARAMETERS, _S.OPEN),
        },
        _S.OPEN: _OPEN,
        _S.CLOSED: {},
    },
}
"""The transition for each (role, state, input)."""


@unique
class ConnectionState(Enum):
    """The state of the outgoing connection between sessions."""

    INACTIVE = auto()
    """There are no messages to send."""
    RESOLVING = auto()
    """Looking up the destination and its next hops, 3.1.5.2.1."""
    PINGING = auto()
    """Pinging the next hop, 3.1.5.2.2."""
    CONNECTING = auto()
    """Opening the transport connection and establishing the session, 3.1.5.2.3."""
    CONNECTED = auto()
    WAITING_RECONNECT = auto()
    """The session is closed and the Session Retry Connect Timer runs, 3.1.5.9."""
    ON_HOLD = auto()
    """Paused by Pause Queue, 3.1.7.13."""


@unique
class ConnectionInput(Enum):
    """The inputs of an outgoing connection."""

    MESSAGES_AVAILABLE = auto()
    """The queue has messages, 3.1.7.12."""
    DESTINATION_RESOLVED = auto()
    RESOLUTION_FAILED = auto()
    PING_ANSWERED = auto()
    PING_FAILED = auto()
    SESSION_OPENED = auto()
    SESSION_CLOSED = auto()
    """Also: the transport connection could not be opened."""
    ENDS_HERE = auto()
    """The path ends here, at a connector queue: there is no next hop to connect to."""
    REROUTE = auto()
    """The next hops may have changed."""
    RETRY = auto()
    """Session Retry Connect Timer, 3.1.6.1."""
    PAUSE = auto()
    RESUME = auto()


@unique
class ConnectionAction(Enum):
    """The actions of an outgoing connection on a transition (``OutgoingConnection._take``)."""

    RESOLVE = auto()
    TRY_HOP = auto()
    OPEN = auto()
    ESTABLISHED = auto()
    RETRY_LATER = auto()
    NEXT_HOP = auto()
    REROUTE = auto()
    HOLD = auto()
    NOTHING = auto()


_C = ConnectionState
_I = ConnectionInput
_A = ConnectionAction

CONNECTION: Final[Mapping[ConnectionState, Mapping[ConnectionInput, tuple[ConnectionAction, ConnectionState]]]] = {
    _C.INACTIVE: {
        _I.MESSAGES_AVAILABLE: (_A.RESOLVE, _C.RESOLVING),
        _I.PAUSE: (_A.HOLD, _C.ON_HOLD),
    },
    _C.RESOLVING: {
        _I.MESSAGES_AVAILABLE: (_A.NOTHING, _C.RESOLVING),
        _I.DESTINATION_RESOLVED: (_A.TRY_HOP, _C.CONNECTING),
        _I.RESOLUTION_FAILED: (_A.RETRY_LATER, _C.WAITING_RECONNECT),
        _I.ENDS_HERE: (_A.NOTHING, _C.INACTIVE),
        _I.PAUSE: (_A.HOLD, _C.ON_HOLD),
    },
    _C.PINGING: {
        _I.MESSAGES_AVAILABLE: (_A.NOTHING, _C.PINGING),
        _I.PING_ANSWERED: (_A.OPEN, _C.CONNECTING),
        _I.PING_FAILED: (_A.RETRY_LATER, _C.WAITING_RECONNECT),
        _I.PAUSE: (_A.HOLD, _C.ON_HOLD),
    },
    _C.CONNECTING: {
        _I.MESSAGES_AVAILABLE: (_A.NOTHING, _C.CONNECTING),
        _I.SESSION_OPENED: (_A.ESTABLISHED, _C.CONNECTED),
        _I.SESSION_CLOSED: (_A.RETRY_LATER, _C.WAITING_RECONNECT),
        _I.PAUSE: (_A.HOLD, _C.ON_HOLD),
    },
    _C.CONNECTED: {
        _I.MESSAGES_AVAILABLE: (_A.NOTHING, _C.CONNECTED),
        _I.SESSION_CLOSED: (_A.RETRY_LATER, _C.WAITING_RECONNECT),
        _I.PAUSE: (_A.HOLD, _C.ON_HOLD),
    },
    _C.WAITING_RECONNECT: {
        _I.MESSAGES_AVAILABLE: (_A.NOTHING, _C.WAITING_RECONNECT),
        _I.RETRY: (_A.NEXT_HOP, _C.CONNECTING),
        _I.REROUTE: (_A.REROUTE, _C.RESOLVING),
        _I.PAUSE: (_A.HOLD, _C.ON_HOLD),
    },
    _C.ON_HOLD: {
        _I.MESSAGES_AVAILABLE: (_A.NOTHING, _C.ON_HOLD),
        _I.SESSION_OPENED: (_A.NOTHING, _C.ON_HOLD),
        _I.SESSION_CLOSED: (_A.NOTHING, _C.ON_HOLD),
        _I.PAUSE: (_A.NOTHING, _C.ON_HOLD),
        _I.RESUME: (_A.RESOLVE, _C.RESOLVING),
    },
}
"""(state, input) to (action, state). Some actions may choose another state, see ``CHOSEN``."""
_RESOLVED: Final = (_C.CONNECTED, _C.INACTIVE)
CHOSEN: Final[Mapping[ConnectionAction, tuple[ConnectionState, ...]]] = {
    _A.RESOLVE: _RESOLVED,
    _A.REROUTE: _RESOLVED,
    _A.TRY_HOP: (_C.PINGING,),
    _A.NEXT_HOP: (_C.RESOLVING, *_RESOLVED),
    _A.RETRY_LATER: (_C.INACTIVE,),
}
"""The states that an action may choose in place of the table's. A ping comes before an attempt, and the list of hops
begins again at its end; an open session needs no hop, and without messages there is none to try.
"""


# ----------------------------------------------------------------------------------------------------------------------
# The timers of 3.1.2, as names and deadlines. The caller has the clock, asks for the next, reports its expiry.


@unique
class Timer(Enum):
    """The timers that the protocol maintains; the value is the section."""

    SESSION_INITIALIZATION = "3.1.2.1"
    SESSION_CLEANUP = "3.1.2.2"
    SESSION_RETRY_CONNECT = "3.1.2.3"
    SESSION_ACK_WAIT = "3.1.2.4"
    SESSION_ACK_SEND = "3.1.2.5"
    TRANSACTIONAL_ACK_WAIT = "3.1.2.6"
    ORDER_ACK_SEND = "3.1.2.7"
    MESSAGE_ID_HISTORY_CLEANUP = "3.1.2.8"
    PING_RESPONSE = "3.1.2.9"


class Timers:
    """The running timers of one object."""

    __slots__ = ("deadlines", "next")

    def __init__(self) -> None:
        self.deadlines: dict[Timer, float] = {}
        """The running timers, and when they expire."""
        self.next: tuple[Timer, float] | None = None
        """The timer that expires first, with its deadline. Asked for with each packet, so it is kept."""

    def start(self, timer: Timer, deadline: float) -> None:
        self.deadlines[timer] = deadline
        self._find_next()

    def stop(self, timer: Timer) -> None:
        """Stop a timer; no effect if it is not running."""
        if self.deadlines.pop(timer, None) is not None:
            self._find_next()

    def stop_all(self) -> None:
        self.deadlines.clear()
        self.next = None

    def take_due(self, now: float) -> Timer | None:
        """Stop and return the earliest timer whose deadline has passed; None when there is none."""
        first = self.next
        if first is None or first[1] > now:
            return None
        self.stop(first[0])
        return first[0]

    def _find_next(self) -> None:
        self.next = min(self.deadlines.items(), key=_DEADLINE, default=None)


_DEADLINE: Final = itemgetter(1)
