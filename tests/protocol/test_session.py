"""The session: sending, acknowledging, the window, timers and the ways in which it closes (3.1.5.5, 3.1.5.9, 3.1.6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from qmnode.protocol.commands import CloseReason, MessagesAcknowledged, MessagesExpired, MessagesReceived, RoomAvailable
from qmnode.protocol.envelope import with_session_header
from qmnode.protocol.errors import LocalProtocolError
from qmnode.protocol.session import Session
from qmnode.protocol.states import Role, SessionState
from qmnode.protocol.timers import Timer
from qmnode.settings.protocol import SessionSettings
from qmnode.structures.guid import ZERO_GUID
from qmnode.structures.internal_packets import SessionAck
from qmnode.structures.session_header import SessionHeader
from qmnode.structures.user_header import UserFlags
from tests.protocol.machines import ALICE, BOB, CAROL, TIME, Link, closed, message, opened, transactional


def express(count: int, first: int = 1) -> list[bytes]:
    return [message(number) for number in range(first, first + count)]


def recoverable(count: int, first: int = 1, **more: Any) -> list[bytes]:
    return [message(number, recoverable=True, **more) for number in range(first, first + count)]


def released(link: Link) -> list[object]:
    return [token for command in link.alice.said(MessagesAcknowledged) for token in command.released]


def ack(count: int, base: int = 0, flags: int = 0, sent: int = 0, recoverable_sent: int = 0, window: int = 64) -> bytes:
    header = SessionHeader(
        ack_sequence_number=count & 0xFFFF,
        recoverable_msg_ack_seq_number=base & 0xFFFF,
        recoverable_msg_ack_flags=flags,
        user_msg_sequence_number=sent,
        recoverable_msg_seq_number=recoverable_sent,
        window_size=window,
    )
    return SessionAck(session_header=header).write()


# --- establishing ---
def test_both_sides_learn_who_the_other_is() -> None:
    link = Link().establish()
    assert opened(link.alice).remote == BOB
    assert opened(link.bob).remote == ALICE


def test_a_direct_session_learns_the_acceptor_from_its_answer() -> None:
    link = Link(direct=True, remote=ZERO_GUID).establish()
    assert link.alice.session.remote == BOB
    assert link.bob.session.direct


def test_the_window_is_the_smaller_of_both() -> None:
    link = Link(SessionSettings(window_size=50), bobs=SessionSettings(window_size=20)).establish()
    assert opened(link.alice).window == opened(link.bob).window == 20


def test_an_acceptor_that_is_not_the_one_meant_refuses() -> None:
    link = Link(remote=CAROL)
    link.alice.session.connected(link.now)
    link.run()
    assert closed(link.alice).reason is CloseReason.REFUSED
    assert closed(link.bob).reason is CloseReason.REFUSED_HERE


def test_an_acceptor_over_its_limits_refuses() -> None:
    link = Link(refuse=True)
    link.alice.session.connected(link.now)
    link.run()
    assert closed(link.alice).reason is CloseReason.REFUSED


def test_an_initiator_needs_a_name() -> None:
    with pytest.raises(LocalProtocolError):
        Session(Role.INITIATOR, ALICE, SessionSettings(), 0.0)


@pytest.mark.parametrize("side", ["alice", "bob"])
def test_a_peer_that_says_nothing_is_closed_when_the_initialization_timer_expires(side: str) -> None:
    link = Link()
    link.alice.session.connected(link.now)
    session = getattr(link, side).session
    session.expire(link.now + 59.9)
    assert not session.closed
    session.expire(link.now + 60)
    assert session.closed
    assert session.commands()[-1].reason is CloseReason.INITIALIZATION_TIMEOUT


# --- sending and acknowledging ---
def test_messages_arrive_in_order_and_unchanged() -> None:
    link = Link().establish()
    packets = express(5) + recoverable(5, 6)
    assert link.send(packets) == 10
    assert [received.packet for received in link.bob.received] == packets
    assert [received.ordinal for received in link.bob.received] == list(range(1, 11))
    assert link.bob.received[-1].recoverable_ordinal == 5


def test_messages_go_both_ways() -> None:
    link = Link().establish()
    link.send(express(40))
    link.send(express(40, 100), link.bob)
    assert len(link.alice.received) == len(link.bob.received) == 40


def test_one_read_makes_one_batch() -> None:
    link = Link().establish()
    link.send(express(10))
    assert len(link.bob.said(MessagesReceived)) == 1


def test_nothing_is_acknowledged_before_it_is_settled() -> None:
    link = Link().establish()
    link.bob.settle = False
    link.send(recoverable(40))
    link.advance(15.0)
    assert not link.alice.said(MessagesAcknowledged)

    link.bob.session.messages_settled(40, 40, link.now)
    link.run()
    assert released(link) == list(range(40))


def test_acknowledgments_come_by_count_so_the_window_does_not_starve() -> None:
    """3.1.5.8.7 acknowledges 32 recoverable messages at once, but express ones only after ten seconds or more."""
    link = Link().establish()
    for start in range(0, 640, 64):
        assert link.send(express(64, start + 1), first_token=start) == 64
    assert link.now == 1000.0
    assert released(link) == list(range(640))


def test_what_is_left_is_acknowledged_when_the_timer_expires() -> None:
    link = Link().establish()
    link.send(recoverable(3))
    assert not released(link)
    link.advance(0.5)  # RecoverableAckSendTimeout: eight round trips of no time, at least half a second
    assert released(link) == [0, 1, 2]


@pytest.mark.parametrize("make", [recoverable, express])
def test_the_last_messages_of_a_burst_do_not_wait_for_the_whole_timer(make: Callable[..., list[bytes]]) -> None:
    """Whoever was acknowledged by number a moment ago, and has no more, waits for what is left."""
    link = Link().establish()
    link.send(make(32))
    link.advance(0.02)
    link.send(make(3, 33), first_token=32)
    link.advance(0.04)
    assert released(link) == list(range(32))
    link.advance(0.01)
    assert released(link) == list(range(35))


def test_messages_that_come_slowly_wait_for_the_whole_timer_also_after_a_burst() -> None:
    link = Link().establish()
    link.send(recoverable(32))
    link.send(recoverable(3, 33), first_token=32)
    link.advance(0.06)
    link.send(recoverable(1, 36), first_token=35)
    link.advance(0.49)
    assert len(released(link)) == 35
    link.advance(0.01)
    assert len(released(link)) == 36


def test_express_messages_are_acknowledged_after_half_the_ack_wait_timeout() -> None:
    link = Link().establish()
    link.send(express(3))
    link.advance(9.9)
    assert not released(link)
    link.advance(0.1)
    assert released(link) == [0, 1, 2]


def test_a_recoverable_message_makes_the_timer_shorter() -> None:
    link = Link().establish()
    link.send(express(1))
    link.send(recoverable(1, 2), first_token=1)
    link.advance(0.5)
    assert released(link) == [0, 1]


def test_no_more_than_the_window_is_sent() -> None:
    link = Link().establish()
    link.bob.settle = False
    assert link.send(express(100)) == 64
    assert link.alice.session.room() == 0
    assert link.send(express(1)) == 0

    link.bob.session.messages_settled(20, 0, link.now)
    link.run()
    assert link.alice.said(RoomAvailable)[-1].count == 20
    assert link.send(express(100, 65), first_token=64) == 20


def test_a_peer_can_shrink_and_open_the_window() -> None:
    link = Link().establish()
    link.bob.session.announce_window(2, link.now)
    link.run()
    assert link.alice.session.room() == 2
    assert link.send(express(5)) == 2
    assert link.alice.session.room() == 2  # acknowledged one by one: with a window of 2 nothing may be held back
    link.bob.session.announce_window(64, link.now)
    link.run()
    assert link.alice.session.room() == 64


def test_a_window_of_zero_is_one() -> None:
    link = Link().establish()
    link.alice.session.receive_data(ack(0, window=0), link.now)
    assert link.alice.session.room() == 1


def test_200000_messages_in_one_session() -> None:
    """Session counters are 16 bits: in the literal reading message 65,536 has number 0, "not recoverable"
    (3.1.1.3.1.2)."""
    link = Link().establish()
    packets = recoverable(32) + express(32, 33)
    confirmed = 0
    for start in range(0, 200_000, 64):
        assert link.send(packets, first_token=start) == 64
        confirmed += sum(len(command.released) for command in link.alice.said(MessagesAcknowledged))
        link.alice.seen.clear()
        link.bob.seen.clear()
        link.bob.received.clear()
    link.advance(20)
    confirmed += sum(len(command.released) for command in link.alice.said(MessagesAcknowledged))
    assert confirmed == link.alice.session.sent_count == 200_000


def test_nothing_is_lost_when_the_numbers_wrap_and_no_flag_is_set() -> None:
    """ "Less than or equal to RecoverableMsgAckSeqNumber" with 0 for "none" would delete all up to the wrap."""
    link = Link().establish()
    packets = recoverable(64)
    for _ in range(1023):
        link.send(packets)
    link.advance(20)
    link.alice.seen.clear()
    link.bob.settle = False
    assert link.send(packets) == 64  # recoverable numbers 65,473 to 65,536, on the wire 0
    sent = 1024 * 64
    link.alice.session.receive_data(ack(sent), link.now)  # all received, none on disk yet
    link.run()
    assert not released(link)
    assert not link.alice.session.closed


def test_a_recoverable_message_is_released_only_by_its_own_flag() -> None:
    """3.1.5.5.3 read literally deletes the message that RecoverableMsgAckSeqNumber names even if its bit is clear."""
    link = Link().establish()
    link.bob.settle = False
    link.send(recoverable(4))
    link.alice.session.receive_data(ack(4, base=1, flags=0b1010), link.now)
    link.alice.collect(link.now)
    assert released(link) == [1, 3]
    link.alice.session.receive_data(ack(4, base=1, flags=0b0101), link.now)
    link.alice.collect(link.now)
    assert released(link) == [1, 3, 0, 2]


def test_positive_source_journaling_is_the_sources_alone() -> None:
    link = Link().establish()
    flags = UserFlags.of(JP=1)
    link.send([message(1, flags=flags), message(2, flags=flags, source=CAROL), message(3)])
    link.advance(20)
    (command,) = link.alice.said(MessagesAcknowledged)
    assert command.journaled == [0]
    assert command.released == [1, 2]


def test_transactional_messages_of_this_queue_manager_stay_after_the_session_acknowledgment() -> None:
    link = Link().establish()
    link.send([transactional(1, 7, 1, 0), transactional(2, 7, 1, 0, source=CAROL)])
    link.advance(20)
    (command,) = link.alice.said(MessagesAcknowledged)
    assert command.received == [0]
    assert command.released == [1]  # passing through: the next hop has it on disk


def test_expired_messages_are_not_sent() -> None:
    link = Link().establish()
    packets = [message(1, time_to_reach_queue=5, sent_time=TIME - 6), message(2, time_to_reach_queue=5)]
    assert link.send(packets) == 2
    assert len(link.bob.received) == 1
    (expired,) = link.alice.said(MessagesExpired)
    assert expired.tokens == [0]
    assert expired.packets == packets[:1]


def test_a_message_that_may_have_arrived_does_not_expire_here() -> None:
    link = Link().establish()
    packet = message(1, time_to_reach_queue=5, sent_time=TIME - 6)
    assert link.alice.session.send_messages([0], [packet], link.now, TIME, again=True) == 1
    assert not link.alice.session.commands()


# --- session headers on messages ---
def test_a_message_carries_the_acknowledgment_when_three_quarters_of_the_timer_are_over() -> None:
    link = Link().establish()
    link.send(express(2))
    link.advance(7.6)
    link.send(express(1, 10), link.bob)
    assert released(link) == [0, 1]
    assert link.bob.session.next_timer() != (Timer.SESSION_ACK_SEND, 1010.0)
    (received,) = link.alice.received
    assert received.packet == message(10)
    assert received.headers.session_header is not None


def test_a_session_header_counts_the_message_that_carries_it() -> None:
    """3.1.5.8.4 comes before 3.1.5.8.7 in the text, but the header was made after the sender counted the message."""
    link = Link().establish()
    header = SessionHeader(ack_sequence_number=0, user_msg_sequence_number=1, recoverable_msg_seq_number=1)
    packet = b"".join(bytes(part) for part in with_session_header(message(1, recoverable=True), header.write()))
    link.bob.session.receive_data(packet, link.now)
    link.bob.collect(link.now)
    assert not link.bob.session.closed
    assert link.bob.received[0].packet == message(1, recoverable=True)


def test_a_wrong_count_in_a_session_header_closes_after_its_message_was_taken() -> None:
    """MS-MQMQ 2.2.20.4 note 14: the message reaches its queue, and the session is closed."""
    link = Link().establish()
    header = SessionHeader(ack_sequence_number=0, user_msg_sequence_number=9)
    packet = b"".join(bytes(part) for part in with_session_header(message(1), header.write()))
    link.bob.session.receive_data(packet, link.now)
    link.bob.collect(link.now)
    assert len(link.bob.received) == 1
    assert closed(link.bob).reason is CloseReason.PROTOCOL_ERROR


# --- timers ---
def test_an_idle_session_closes_after_one_whole_cleanup_interval() -> None:
    link = Link().establish()
    link.send(express(1))
    link.advance(599)
    assert not link.alice.session.closed
    link.advance(1)
    assert closed(link.alice).reason is closed(link.bob).reason is CloseReason.IDLE


def test_a_session_whose_messages_nobody_acknowledges_closes_and_names_them() -> None:
    link = Link().establish()
    link.alice.session.send_messages(["a", "b"], [message(1), message(2)], link.now, TIME)
    link.alice.session.data_to_send()  # lost
    # The handshake was received since the timer's last event, so the first one only starts it again (3.1.6.3).
    link.alice.session.expire(link.now + 20)
    assert not link.alice.session.closed
    link.alice.session.expire(link.now + 40)
    link.alice.collect(link.now)
    assert closed(link.alice).reason is CloseReason.UNANSWERED
    assert closed(link.alice).unacknowledged == ["a", "b"]


def test_a_direct_session_waits_twice_as_long() -> None:
    link = Link(direct=True, remote=ZERO_GUID).establish()
    link.alice.session.send_messages(["a"], [message(1)], link.now, TIME)
    link.alice.session.expire(link.now + 40)
    link.alice.session.expire(link.now + 79)
    assert not link.alice.session.closed
    link.alice.session.expire(link.now + 80)
    assert link.alice.session.closed


def test_any_packet_keeps_the_ack_wait_timer_patient() -> None:
    link = Link().establish()
    link.bob.settle = False
    link.send(express(1))
    for _ in range(5):
        link.advance(20)
        link.send(express(1), link.bob)
    assert not link.alice.session.closed


def test_the_ack_wait_timer_stops_when_nothing_waits() -> None:
    link = Link().establish()
    link.send(express(64))
    link.advance(20)
    timers = {Timer.SESSION_CLEANUP}
    assert link.alice.session.next_timer() is not None
    assert link.alice.session.next_timer()[0] in timers  # type: ignore[index]


def test_only_a_sessions_own_timers_can_expire() -> None:
    link = Link().establish()
    with pytest.raises(LocalProtocolError):
        link.alice.session.timer_expired(Timer.PING_RESPONSE, link.now)


# --- pausing and closing ---
def test_pausing_acknowledges_and_makes_the_peers_window_one() -> None:
    link = Link().establish()
    link.send(express(3))
    link.bob.session.pause(link.now)
    link.run()
    assert released(link) == [0, 1, 2]
    assert link.alice.session.room() == 1
    link.bob.session.resume()
    for number in range(70):
        link.send(express(1), first_token=number)
    assert link.alice.session.room() > 1


@pytest.mark.parametrize(
    ("how", "reason"), [("close", CloseReason.STOPPED), ("disconnected", CloseReason.DISCONNECTED)]
)
def test_closing_names_what_is_not_acknowledged_in_order(how: str, reason: CloseReason) -> None:
    link = Link().establish()
    link.bob.settle = False
    link.send([message(1), message(2, recoverable=True), transactional(3, 7, 1, 0), message(4)])
    getattr(link.alice.session, how)(link.now)
    link.alice.collect(link.now)
    assert closed(link.alice).reason is reason
    assert closed(link.alice).unacknowledged == [0, 1, 2, 3]
    assert link.alice.session.next_timer() is None


def test_a_closed_session_takes_no_notice() -> None:
    link = Link().establish()
    link.bob.settle = False
    link.send(express(2))
    link.bob.session.close(link.now)
    link.bob.collect(link.now)
    link.bob.session.receive_data(message(3), link.now)
    link.bob.session.messages_settled(2, 0, link.now)
    link.bob.session.disconnected(link.now)
    link.bob.session.expire(link.now + 1e6)
    assert link.bob.session.send_messages([1], [message(9)], link.now, TIME) == 0
    assert link.bob.session.commands() == []
    assert link.bob.session.data_to_send() == []
    assert link.bob.session.state is SessionState.CLOSED


def test_settling_what_never_came_is_a_mistake_of_the_caller() -> None:
    link = Link().establish()
    with pytest.raises(LocalProtocolError):
        link.bob.session.messages_settled(1, 0, link.now)
