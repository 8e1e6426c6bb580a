"""The connection of an outgoing queue: resolving, pinging, trying hops, pausing (3.1.5.2, 3.1.6.1, 3.1.7.13)."""

from __future__ import annotations

import pytest

from qmnode.protocol.commands import CloseReason
from qmnode.protocol.connection import (
    HISTORY_LENGTH,
    NextHop,
    OpenConnection,
    OutgoingConnection,
    ResolveDestination,
    SendPing,
)
from qmnode.protocol.states import CONNECTION, ConnectionInput, ConnectionState, Timer
from qmnode.settings.protocol import TransferSettings
from qmnode.structures.enumerations import ConnectionStatus, OutgoingQueueState
from tests.lab.cases import cases
from tests.protocol.machines import TIME

NAME = "PRIVATE=42424242-4242-4242-4242-424242424242\\00000009"
ONE, TWO = NextHop("10.0.0.1", "one"), NextHop("10.0.0.2", "two")


def connection(*, ping: bool = False) -> OutgoingConnection:
    return OutgoingConnection(NAME, TransferSettings(), ping=ping)


def connected(hops: tuple[NextHop, ...] = (ONE, TWO)) -> OutgoingConnection:
    pair = connection()
    pair.messages_available(0.0, TIME)
    pair.destination_resolved(hops, 0.0, TIME)
    pair.session_opened(0.0, TIME)
    pair.commands()
    return pair


def fail(pair: OutgoingConnection, now: float, *, left: bool = True) -> float:
    """The attempt fails; when the next one comes, seconds from ``now``."""
    pair.session_closed(ConnectionStatus.SOCKET_CONNECT_FAILURE, left, now, TIME)
    timer = pair.next_timer()
    assert timer is not None
    assert timer[0] is Timer.SESSION_RETRY_CONNECT
    return timer[1] - now


def statuses(pair: OutgoingConnection) -> list[ConnectionStatus]:
    return [entry.status for entry in pair.history]


def test_messages_make_it_resolve_and_connect() -> None:
    pair = connection()
    assert pair.queue_state is OutgoingQueueState.INACTIVE
    pair.messages_available(0.0, TIME)
    assert pair.commands() == [ResolveDestination(NAME)]
    assert pair.queue_state is OutgoingQueueState.NEED_VALIDATION
    pair.destination_resolved([ONE, TWO], 0.0, TIME)
    assert pair.commands() == [OpenConnection(ONE, pinged=False)]
    assert pair.queue_state is OutgoingQueueState.WAITING
    pair.session_opened(0.0, TIME)
    assert pair.queue_state is OutgoingQueueState.CONNECTED


def test_more_messages_change_nothing_while_it_is_at_it() -> None:
    pair = connection()
    pair.messages_available(0.0, TIME)
    pair.messages_available(0.0, TIME)
    assert len(pair.commands()) == 1


def test_a_ping_precedes_the_first_attempt_and_no_retry() -> None:
    pair = connection(ping=True)
    pair.messages_available(0.0, TIME)
    pair.destination_resolved([ONE], 0.0, TIME)
    assert pair.commands()[-1] == SendPing(ONE)
    pair.ping_ended(True, 0.1, TIME)
    assert pair.commands() == [OpenConnection(ONE, pinged=True)]
    fail(pair, 0.2)
    pair.expire(10.0, TIME)
    pair.destination_resolved([ONE], 10.0, TIME)
    assert pair.commands() == [ResolveDestination(NAME), OpenConnection(ONE, pinged=False)]


def test_a_ping_that_fails_is_written_down_and_tried_again_later() -> None:
    pair = connection(ping=True)
    pair.messages_available(0.0, TIME)
    pair.destination_resolved([ONE], 0.0, TIME)
    pair.ping_ended(False, 1.0, TIME)
    assert statuses(pair) == [ConnectionStatus.PING_FAILURE]
    assert pair.next_timer() == (Timer.SESSION_RETRY_CONNECT, 6.0)


def test_it_goes_through_the_next_hops_and_then_resolves_anew() -> None:
    pair = connection()
    pair.messages_available(0.0, TIME)
    pair.destination_resolved([ONE, TWO], 0.0, TIME)
    pair.commands()
    now = fail(pair, 0.0)
    pair.expire(now, TIME)
    assert pair.commands() == [OpenConnection(TWO, pinged=False)]
    now += fail(pair, now)
    pair.expire(now, TIME)
    assert pair.commands() == [ResolveDestination(NAME)]


def test_the_retry_interval_doubles_with_every_round_up_to_a_limit() -> None:
    pair = connection()
    pair.messages_available(0.0, TIME)
    now, intervals = 0.0, []
    for _ in range(7):
        pair.destination_resolved([ONE], now, TIME)
        interval = fail(pair, now)
        intervals.append(interval)
        now += interval
        pair.expire(now, TIME)
    assert intervals == [5, 10, 20, 40, 60, 60, 60]


def test_success_makes_the_interval_short_again() -> None:
    pair = connected((ONE,))
    assert fail(pair, 0.0) == 5
    pair.expire(5.0, TIME)
    pair.destination_resolved([ONE], 5.0, TIME)
    pair.session_opened(5.0, TIME)
    assert fail(pair, 6.0) == 5


def test_a_link_that_went_idle_connects_again_for_the_next_message() -> None:
    """3.1.7.12 connects only when the connection history is empty: never again after the first session."""
    pair = connected()
    pair.status_changed(ConnectionStatus.ESTABLISHED, TIME)
    pair.session_closed(CloseReason.IDLE, False, 300.0, TIME)
    assert pair.queue_state is OutgoingQueueState.INACTIVE
    assert pair.next_timer() is None
    pair.messages_available(400.0, TIME)
    assert pair.commands() == [ResolveDestination(NAME)]


@pytest.mark.parametrize("reason", list(CloseReason))
def test_whatever_ends_a_session_it_is_tried_again_while_messages_are_left(reason: CloseReason) -> None:
    pair = connected()
    pair.session_closed(reason, True, 0.0, TIME)
    assert pair.next_timer() is not None


@pytest.mark.parametrize("status", [ConnectionStatus.DNS_FAILURE, ConnectionStatus.ROUTING_DATA_NOT_AVAILABLE])
def test_a_destination_that_cannot_be_resolved_is_tried_again(status: ConnectionStatus) -> None:
    pair = connection()
    pair.messages_available(0.0, TIME)
    pair.resolution_failed(status, 0x80040000, 0.0, TIME)
    assert [(entry.status, entry.error) for entry in pair.history] == [(status, 0x80040000)]
    pair.commands()
    pair.expire(5.0, TIME)
    assert pair.commands() == [ResolveDestination(NAME)]


def test_no_next_hop_at_all_is_a_failure() -> None:
    pair = connection()
    pair.messages_available(0.0, TIME)
    pair.destination_resolved([], 0.0, TIME)
    assert statuses(pair) == [ConnectionStatus.ROUTING_DATA_NOT_AVAILABLE]
    assert pair.next_timer() is not None


def test_the_history_says_what_happened_where_and_keeps_its_length() -> None:
    pair = connected()
    for _ in range(100):
        pair.status_changed(ConnectionStatus.IN_PROCESS, TIME)
    assert len(pair.history) == HISTORY_LENGTH
    assert pair.history[-1] == (ConnectionStatus.IN_PROCESS, TIME, 0, "10.0.0.1")
    pair.session_closed(CloseReason.REFUSED, True, 0.0, TIME)
    assert pair.history[-1].status is ConnectionStatus.CONNECTION_REFUSED


# --- pausing ---
def test_a_paused_queue_stays_put_until_it_is_resumed() -> None:
    pair = connected()
    fail(pair, 0.0)
    pair.pause(1.0, TIME)
    assert pair.queue_state is OutgoingQueueState.ON_HOLD
    assert pair.next_timer() is None
    pair.messages_available(2.0, TIME)
    pair.expire(1e9, TIME)
    assert pair.commands() == []
    pair.resume(True, 3.0, TIME)
    assert pair.commands() == [ResolveDestination(NAME)]


def test_resuming_uses_a_session_that_stayed_open() -> None:
    pair = connected()
    pair.pause(1.0, TIME)
    pair.resume(True, 2.0, TIME)
    assert pair.commands() == []
    assert pair.queue_state is OutgoingQueueState.CONNECTED


def test_resuming_an_empty_queue_waits_for_messages() -> None:
    pair = connected()
    pair.pause(1.0, TIME)
    pair.session_closed(CloseReason.IDLE, False, 2.0, TIME)
    pair.resume(False, 3.0, TIME)
    assert pair.queue_state is OutgoingQueueState.INACTIVE
    pair.messages_available(4.0, TIME)
    assert pair.commands() == [ResolveDestination(NAME)]


def test_every_state_that_waits_for_something_can_be_left() -> None:
    """No state swallows a message for ever: each has a way on by something that is sure to come."""
    sure = {
        ConnectionState.INACTIVE: ConnectionInput.MESSAGES_AVAILABLE,
        ConnectionState.RESOLVING: ConnectionInput.RESOLUTION_FAILED,
        ConnectionState.PINGING: ConnectionInput.PING_FAILED,
        ConnectionState.CONNECTING: ConnectionInput.SESSION_CLOSED,
        ConnectionState.CONNECTED: ConnectionInput.SESSION_CLOSED,
        ConnectionState.WAITING_RECONNECT: ConnectionInput.RETRY,
        ConnectionState.ON_HOLD: ConnectionInput.RESUME,
    }
    assert set(sure) == set(CONNECTION)
    for state, way_out in sure.items():
        assert CONNECTION[state][way_out][1] is not state


@cases("state", list(ConnectionState))
@cases("late", list(ConnectionInput))
def test_late_inputs_change_nothing(state: ConnectionState, late: ConnectionInput) -> None:
    if late in CONNECTION[state]:
        return
    pair = connected()
    pair.state = state
    pair._take(late, 0.0, TIME)
    assert pair.state is state
    assert pair.commands() == []


def test_a_change_of_the_route_ends_the_waiting_for_the_next_attempt() -> None:
    pair = connected()
    fail(pair, 0.0)
    pair.reroute(1.0, TIME)
    assert pair.commands() == [ResolveDestination(NAME)]
    assert pair.next_timer() is None


@pytest.mark.parametrize("left", [True, False])
def test_a_change_of_the_route_does_not_touch_a_session_or_an_empty_queue(left: bool) -> None:
    pair = connected()
    if not left:
        pair.session_closed(CloseReason.IDLE, False, 0.0, TIME)
    before = pair.queue_state
    pair.reroute(1.0, TIME)
    assert pair.commands() == []
    assert pair.queue_state is before


def test_hops_that_are_forgotten_are_looked_up_before_the_next_attempt() -> None:
    pair = connected()
    pair.session_closed(CloseReason.STOPPED, True, 0.0, TIME)
    pair.forget_hops()
    assert pair.commands() == []
    timer = pair.next_timer()
    assert timer is not None
    pair.expire(timer[1], TIME)
    assert pair.commands() == [ResolveDestination(NAME)]


def test_a_way_that_ends_at_a_connector_queue_is_looked_up_again_for_the_next_message() -> None:
    pair = connection()
    pair.messages_available(0.0, TIME)
    pair.commands()
    pair.ends_here(0.0, TIME)
    assert (pair.queue_state, pair.commands(), pair.next_timer()) == (OutgoingQueueState.INACTIVE, [], None)
    pair.messages_available(1.0, TIME)
    assert pair.commands() == [ResolveDestination(NAME)]
