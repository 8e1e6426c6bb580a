"""Every cell of the session's table: the transitions of figures 3 and 4, and nothing else (3.1.1.1.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from qmnode.protocol.commands import Closed, CloseReason
from qmnode.protocol.session import Session
from qmnode.protocol.states import SESSION, Action, Input, Role, SessionState, Timer
from qmnode.protocol.wire import LocalProtocolError
from qmnode.settings.protocol import SessionSettings
from qmnode.structures.guid import Guid
from qmnode.structures.packet_view import session_ack, session_header
from qmnode.structures.packets import (
    ConnectionParameters,
    ConnectionParametersHeader,
    EstablishConnection,
    EstablishConnectionHeader,
)
from tests.lab.cases import cases
from tests.protocol.machines import ALICE, BOB, TIME, message

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = 1000.0


def establish(client: Guid, server: Guid) -> bytes:
    header = EstablishConnectionHeader(client_guid=client, server_guid=server, time_stamp=round(NOW * 1000))
    return EstablishConnection(establish_connection_header=header).write()


def parameters() -> bytes:
    header = ConnectionParametersHeader(recoverable_ack_timeout=500, ack_timeout=20_000, window_size=64)
    return ConnectionParameters(connection_parameters_header=header).write()


def initiator(state: SessionState) -> Session:
    session = Session(Role.INITIATOR, ALICE, SessionSettings(), NOW, remote=BOB)
    if state is SessionState.WAITING_EC_MSG:
        return session
    session.connected(NOW)
    if state is SessionState.WAITING_ECR_MSG:
        return session
    session.receive_data(establish(ALICE, BOB), NOW)
    if state is SessionState.WAITING_CPR_MSG:
        return session
    session.receive_data(parameters(), NOW)
    if state is SessionState.CLOSED:
        session.close(NOW)
    return session


def acceptor(state: SessionState) -> Session:
    session = Session(Role.ACCEPTOR, BOB, SessionSettings(), NOW)
    if state is SessionState.WAITING_EC_MSG:
        return session
    session.receive_data(establish(ALICE, BOB), NOW)
    if state is SessionState.WAITING_CP_MSG:
        return session
    session.receive_data(parameters(), NOW)
    if state is SessionState.CLOSED:
        session.close(NOW)
    return session


def in_state(role: Role, state: SessionState) -> Session:
    session = initiator(state) if role is Role.INITIATOR else acceptor(state)
    assert session.state is state
    session.commands()
    session.data_to_send()
    return session


def expire(session: Session, timer: Timer) -> None:
    """Let this timer expire, running or not: the table has a cell for either."""
    session._timers.stop(timer)
    session._expired(timer, NOW)


def unanswered(session: Session) -> None:
    session.send_messages([1], [message(1)], NOW, TIME)
    expire(session, Timer.SESSION_ACK_WAIT)
    expire(session, Timer.SESSION_ACK_WAIT)


INPUTS: dict[Input, Callable[[Session], None]] = {
    Input.CONNECTED: lambda session: session.connected(NOW),
    Input.ESTABLISH_CONNECTION: lambda session: session.receive_data(establish(ALICE, BOB), NOW),
    Input.CONNECTION_PARAMETERS: lambda session: session.receive_data(parameters(), NOW),
    Input.SESSION_ACK: lambda session: session.receive_data(session_ack(session_header(0, 0, 0, 0, 0, 64)), NOW),
    Input.USER_MESSAGE: lambda session: session.receive_data(message(1), NOW),
    Input.INITIALIZATION_TIMEOUT: lambda session: expire(session, Timer.SESSION_INITIALIZATION),
    Input.IDLE: lambda session: expire(session, Timer.SESSION_CLEANUP),
    Input.UNANSWERED: unanswered,
    Input.DISCONNECTED: lambda session: session.disconnected(NOW),
    Input.STOPPED: lambda session: session.close(NOW),
}
PACKETS = {Input.ESTABLISH_CONNECTION, Input.CONNECTION_PARAMETERS, Input.SESSION_ACK, Input.USER_MESSAGE}
CELLS = [(role, state, what) for role in Role for state in SESSION[role] for what in Input]


@cases(("role", "state", "what"), CELLS, ids=lambda part: part.name)
def test_every_cell(role: Role, state: SessionState, what: Input) -> None:
    session = in_state(role, state)
    transition = SESSION[role][state].get(what)

    if transition is None and what is Input.CONNECTED and state is not SessionState.CLOSED:
        with pytest.raises(LocalProtocolError):
            INPUTS[what](session)
        return
    if transition is None and what not in PACKETS and state is not SessionState.CLOSED:
        return  # its timer does not run in this state
    INPUTS[what](session)

    ended = [command for command in session.commands() if isinstance(command, Closed)]
    if state is SessionState.CLOSED:
        assert ended == []
    elif transition is None:  # a packet out of place closes the session, as the sections of 3.1.5 say one by one
        assert [command.reason for command in ended] == [CloseReason.PROTOCOL_ERROR]
    elif transition.action is Action.CLOSE:
        assert len(ended) == 1
        assert ended[0].reason is not CloseReason.PROTOCOL_ERROR
    else:
        assert ended == []
    assert session.state is (SessionState.CLOSED if ended else transition.state if transition else state)


def test_the_tables_list_the_states_of_the_figures() -> None:
    drawn = {
        Role.INITIATOR: {"WAITING_EC_MSG", "WAITING_ECR_MSG", "WAITING_CPR_MSG", "OPEN", "CLOSED"},
        Role.ACCEPTOR: {"WAITING_EC_MSG", "WAITING_CP_MSG", "OPEN", "CLOSED"},
    }
    assert {role: {state.name for state in SESSION[role]} for role in Role} == drawn


def test_no_timer_runs_in_a_closed_session() -> None:
    for role in Role:
        assert in_state(role, SessionState.CLOSED).next_timer() is None
