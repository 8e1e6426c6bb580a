"""The session: sending, acknowledging, the window, timers and the ways in which it closes (3.1.5.5, 3.1.5.9, 3.1.6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from qmnode.protocol.commands import CloseReason, MessagesAcknowledged, MessagesExpired, MessagesReceived, RoomAvailable
from qmnode.protocol.session import Session
from qmnode.protocol.states import Role, SessionState, Timer
from qmnode.protocol.wire import LocalProtocolError
from qmnode.settings.protocol import SessionSettings
from qmnode.structures.guid import ZERO_GUID
from qmnode.structures.packet_view import with_session_header
from qmnode.structures.packets import SessionAck
from qmnode.structures.user_message import SessionHeader, UserFlags
from tests.protocol.machines import ALICE, BOB, CAROL, TIME, SessionPair, closed, message, opened, transactional


def express(count: int, first: int = 1) -> list[bytes]:
    return [message(number) for number in range(first, first + count)]


def recoverable(count: int, first: int = 1, **more: Any) -> list[bytes]:
    return [message(number, recoverable=True, **more) for number in range(first, first + count)]


def released(pair: SessionPair) -> list[object]:
    return [token for command in pair.alice.said(MessagesAcknowledged) for token in command.released]


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
    pair = SessionPair().establish()
    assert opened(pair.alice).remote == BOB
    assert opened(pair.bob).remote == ALICE


def test_a_direct_session_learns_the_acceptor_from_its_answer() -> None:
    pair = SessionPair(direct=True, remote=ZERO_GUID).establish()
    assert pair.alice.session.remote == BOB
    assert pair.bob.session.direct


def test_the_window_is_the_smaller_of_both() -> None:
    pair = SessionPair(SessionSettings(window_size=50), bobs=SessionSettings(window_size=20)).establish()
    assert opened(pair.alice).window == opened(pair.bob).window == 20


def test_an_acceptor_that_is_not_the_one_meant_refuses() -> None:
    pair = SessionPair(remote=CAROL)
    pair.alice.session.connected(pair.now)
    pair.run()
    assert closed(pair.alice).reason is CloseReason.REFUSED
    assert closed(pair.bob).reason is CloseReason.REFUSED_HERE


def test_an_acceptor_over_its_limits_refuses() -> None:
    pair = SessionPair(refuse=True)
    pair.alice.session.connected(pair.now)
    pair.run()
    assert closed(pair.alice).reason is CloseReason.REFUSED


def test_an_initiator_needs_a_name() -> None:
    with pytest.raises(LocalProtocolError):
        Session(Role.INITIATOR, ALICE, SessionSettings(), 0.0)


@pytest.mark.parametrize("side", ["alice", "bob"])
def test_a_peer_that_says_nothing_is_closed_when_the_initialization_timer_expires(side: str) -> None:
    pair = SessionPair()
    pair.alice.session.connected(pair.now)
    session = getattr(pair, side).session
    session.expire(pair.now + 59.9)
    assert not session.closed
    session.expire(pair.now + 60)
    assert session.closed
    assert session.commands()[-1].reason is CloseReason.INITIALIZATION_TIMEOUT


# --- sending and acknowledging ---
def test_messages_arrive_in_order_and_unchanged() -> None:
    pair = SessionPair().establish()
    packets = express(5) + recoverable(5, 6)
    assert pair.send(packets) == 10
    assert [received.packet for received in pair.bob.received] == packets
    assert [received.ordinal for received in pair.bob.received] == list(range(1, 11))
    assert pair.bob.received[-1].recoverable_ordinal == 5


def test_messages_go_both_ways() -> None:
    pair = SessionPair().establish()
    pair.send(express(40))
    pair.send(express(40, 100), pair.bob)
    assert len(pair.alice.received) == len(pair.bob.received) == 40


def test_one_read_makes_one_batch() -> None:
    pair = SessionPair().establish()
    pair.send(express(10))
    assert len(pair.bob.said(MessagesReceived)) == 1


def test_nothing_is_acknowledged_before_it_is_settled() -> None:
    pair = SessionPair().establish()
    pair.bob.settle = False
    pair.send(recoverable(40))
    pair.advance(15.0)
    assert not pair.alice.said(MessagesAcknowledged)

    pair.bob.session.messages_settled(40, 40, pair.now)
    pair.run()
    assert released(pair) == list(range(40))


def test_acknowledgments_come_by_count_so_the_window_does_not_starve() -> None:
    """3.1.5.8.7 acknowledges 32 recoverable messages at once, but express ones only after ten seconds or more."""
    pair = SessionPair().establish()
    for start in range(0, 640, 64):
        assert pair.send(express(64, start + 1), first_token=start) == 64
    assert pair.now == 1000.0
    assert released(pair) == list(range(640))


@pytest.mark.parametrize("narrow", ["alice", "bob", "both"])
def test_a_small_window_that_grows_does_not_starve(narrow: str) -> None:
    """It is announced as larger than the sender makes it."""
    small, usual = SessionSettings(window_size=8), SessionSettings()
    pair = SessionPair(usual if narrow == "bob" else small, bobs=usual if narrow == "alice" else small).establish()
    sent = 0
    while sent < 200:
        count = pair.send(express(8, sent + 1), first_token=sent)
        assert count
        sent += count
        pair.now += 5  # too slowly for the window to grow
        assert len(released(pair)) > sent - 8


def test_what_is_left_is_acknowledged_when_the_timer_expires() -> None:
    pair = SessionPair().establish()
    pair.send(recoverable(3))
    assert not released(pair)
    pair.advance(0.5)  # RecoverableAckSendTimeout: eight round trips of no time, at least half a second
    assert released(pair) == [0, 1, 2]


@pytest.mark.parametrize("make", [recoverable, express])
def test_the_last_messages_of_a_burst_do_not_wait_for_the_whole_timer(make: Callable[..., list[bytes]]) -> None:
    """Whoever was acknowledged by number a moment ago, and has no more, waits for what is left."""
    pair = SessionPair().establish()
    pair.send(make(32))
    pair.advance(0.02)
    pair.send(make(3, 33), first_token=32)
    pair.advance(0.04)
    assert released(pair) == list(range(32))
    pair.advance(0.01)
    assert released(pair) == list(range(35))


def test_messages_that_come_slowly_wait_for_the_whole_timer_also_after_a_burst() -> None:
    pair = SessionPair().establish()
    pair.send(recoverable(32))
    pair.send(recoverable(3, 33), first_token=32)
    pair.advance(0.06)
    pair.send(recoverable(1, 36), first_token=35)
    pair.advance(0.49)
    assert len(released(pair)) == 35
    pair.advance(0.01)
    assert len(released(pair)) == 36


def test_express_messages_are_acknowledged_after_half_the_ack_wait_timeout() -> None:
    pair = SessionPair().establish()
    pair.send(express(3))
    pair.advance(9.9)
    assert not released(pair)
    pair.advance(0.1)
    assert released(pair) == [0, 1, 2]


def test_a_recoverable_message_makes_the_timer_shorter() -> None:
    pair = SessionPair().establish()
    pair.send(express(1))
    pair.send(recoverable(1, 2), first_token=1)
    pair.advance(0.5)
    assert released(pair) == [0, 1]


def test_no_more_than_the_window_is_sent() -> None:
    pair = SessionPair().establish()
    pair.bob.settle = False
    assert pair.send(express(100)) == 64
    assert pair.alice.session.room() == 0
    assert pair.send(express(1)) == 0

    pair.bob.session.messages_settled(20, 0, pair.now)
    pair.run()
    assert pair.alice.said(RoomAvailable)[-1].count == 20
    assert pair.send(express(100, 65), first_token=64) == 20


def windows(pair: SessionPair, rounds: int, seconds: float) -> list[int]:
    """The window after each round that sends as much as it takes, and takes so many seconds."""
    found = []
    for _ in range(rounds):
        room = pair.alice.session.room()
        assert pair.send(express(room)) == room
        pair.now += seconds
        pair.send(express(64))  # brings the last acknowledgment
        found.append(pair.alice.session.room())
    return found


def test_the_window_grows_while_acknowledgments_come_quickly() -> None:
    pair = SessionPair().establish()
    assert pair.alice.session.room() == 64
    found = windows(pair, 12, 0.02)
    assert found[-1] == 512
    assert found == sorted(found)
    assert pair.bob.session.room() == 64
    assert windows(pair, 12, 0.3)[-1] == 512
    assert windows(pair, 12, 1)[-1] == 64


def test_the_window_of_a_peer_that_announces_no_more_does_not_grow() -> None:
    pair = SessionPair(bobs=SessionSettings(window_growth=1)).establish()
    assert windows(pair, 12, 0.02) == [64] * 12
    narrow = SessionPair(bobs=SessionSettings(window_size=5, window_growth=3)).establish()
    assert windows(narrow, 12, 0.02)[-1] == 15


def test_a_window_of_zero_is_one() -> None:
    pair = SessionPair().establish()
    pair.alice.session.receive_data(ack(0, window=0), pair.now)
    assert pair.alice.session.room() == 1


def test_200000_messages_in_one_session() -> None:
    """Session counters are 16 bits: in the literal reading message 65,536 has number 0, "not recoverable"
    (3.1.1.3.1.2)."""
    pair = SessionPair().establish()
    packets = recoverable(32) + express(32, 33)
    confirmed = 0
    for start in range(0, 200_000, 64):
        assert pair.send(packets, first_token=start) == 64
        confirmed += sum(len(command.released) for command in pair.alice.said(MessagesAcknowledged))
        pair.alice.seen.clear()
        pair.bob.seen.clear()
        pair.bob.received.clear()
    pair.advance(20)
    confirmed += sum(len(command.released) for command in pair.alice.said(MessagesAcknowledged))
    assert confirmed == pair.alice.session.sent_count == 200_000


def test_nothing_is_lost_when_the_numbers_wrap_and_no_flag_is_set() -> None:
    """ "Less than or equal to RecoverableMsgAckSeqNumber" with 0 for "none" would delete all up to the wrap."""
    pair = SessionPair().establish()
    packets = recoverable(64)
    for _ in range(1023):
        pair.send(packets)
    pair.advance(20)
    pair.alice.seen.clear()
    pair.bob.settle = False
    assert pair.send(packets) == 64  # recoverable numbers 65,473 to 65,536, on the wire 0
    sent = 1024 * 64
    pair.alice.session.receive_data(ack(sent), pair.now)  # all received, none on disk yet
    pair.run()
    assert not released(pair)
    assert not pair.alice.session.closed


def test_a_recoverable_message_is_released_only_by_its_own_flag() -> None:
    """3.1.5.5.3 read literally deletes the message that RecoverableMsgAckSeqNumber names even if its bit is clear."""
    pair = SessionPair().establish()
    pair.bob.settle = False
    pair.send(recoverable(4))
    pair.alice.session.receive_data(ack(4, base=1, flags=0b1010), pair.now)
    pair.alice.collect(pair.now)
    assert released(pair) == [1, 3]
    pair.alice.session.receive_data(ack(4, base=1, flags=0b0101), pair.now)
    pair.alice.collect(pair.now)
    assert released(pair) == [1, 3, 0, 2]


def test_positive_source_journaling_is_the_sources_alone() -> None:
    pair = SessionPair().establish()
    flags = UserFlags.of(JP=1)
    pair.send([message(1, flags=flags), message(2, flags=flags, source=CAROL), message(3)])
    pair.advance(20)
    (command,) = pair.alice.said(MessagesAcknowledged)
    assert command.journaled == [0]
    assert command.released == [1, 2]


def test_transactional_messages_of_this_queue_manager_stay_after_the_session_acknowledgment() -> None:
    pair = SessionPair().establish()
    pair.send([transactional(1, 7, 1, 0), transactional(2, 7, 1, 0, source=CAROL)])
    pair.advance(20)
    (command,) = pair.alice.said(MessagesAcknowledged)
    assert command.received == [0]
    assert command.released == [1]  # passing through: the next hop has it on disk


def test_expired_messages_are_not_sent() -> None:
    pair = SessionPair().establish()
    packets = [message(1, time_to_reach_queue=5, sent_time=TIME - 6), message(2, time_to_reach_queue=5)]
    assert pair.send(packets) == 2
    assert len(pair.bob.received) == 1
    (expired,) = pair.alice.said(MessagesExpired)
    assert expired.tokens == [0]
    assert expired.packets == packets[:1]


def test_a_message_that_may_have_arrived_does_not_expire_here() -> None:
    pair = SessionPair().establish()
    packet = message(1, time_to_reach_queue=5, sent_time=TIME - 6)
    assert pair.alice.session.send_messages([0], [packet], pair.now, TIME, again=True) == 1
    assert not pair.alice.session.commands()


# --- session headers on messages ---
def test_a_message_carries_the_acknowledgment_when_three_quarters_of_the_timer_are_over() -> None:
    pair = SessionPair().establish()
    pair.send(express(2))
    pair.advance(7.6)
    pair.send(express(1, 10), pair.bob)
    assert released(pair) == [0, 1]
    assert pair.bob.session.next_timer() != (Timer.SESSION_ACK_SEND, 1010.0)
    (received,) = pair.alice.received
    assert received.packet == message(10)
    assert received.session_header is not None


def test_a_session_header_counts_the_message_that_carries_it() -> None:
    """3.1.5.8.4 comes before 3.1.5.8.7 in the text, but the header was made after the sender counted the message."""
    pair = SessionPair().establish()
    header = SessionHeader(ack_sequence_number=0, user_msg_sequence_number=1, recoverable_msg_seq_number=1)
    packet = b"".join(bytes(part) for part in with_session_header(message(1, recoverable=True), header.write()))
    pair.bob.session.receive_data(packet, pair.now)
    pair.bob.collect(pair.now)
    assert not pair.bob.session.closed
    assert pair.bob.received[0].packet == message(1, recoverable=True)


def test_a_wrong_count_in_a_session_header_closes_after_its_message_was_taken() -> None:
    """MS-MQMQ 2.2.20.4 note 14: the message reaches its queue, and the session is closed."""
    pair = SessionPair().establish()
    header = SessionHeader(ack_sequence_number=0, user_msg_sequence_number=9)
    packet = b"".join(bytes(part) for part in with_session_header(message(1), header.write()))
    pair.bob.session.receive_data(packet, pair.now)
    pair.bob.collect(pair.now)
    assert len(pair.bob.received) == 1
    assert closed(pair.bob).reason is CloseReason.PROTOCOL_ERROR


# --- timers ---
def test_an_idle_session_closes_after_one_whole_cleanup_interval() -> None:
    pair = SessionPair().establish()
    pair.send(express(1))
    pair.advance(599)
    assert not pair.alice.session.closed
    pair.advance(1)
    assert closed(pair.alice).reason is closed(pair.bob).reason is CloseReason.IDLE


def test_a_session_whose_messages_nobody_acknowledges_closes_and_names_them() -> None:
    pair = SessionPair().establish()
    pair.alice.session.send_messages(["a", "b"], [message(1), message(2)], pair.now, TIME)
    pair.alice.session.data_to_send()  # lost
    # The handshake was received since the timer's last event, so the first one only starts it again (3.1.6.3).
    pair.alice.session.expire(pair.now + 20)
    assert not pair.alice.session.closed
    pair.alice.session.expire(pair.now + 40)
    pair.alice.collect(pair.now)
    assert closed(pair.alice).reason is CloseReason.UNANSWERED
    assert closed(pair.alice).unacknowledged == ["a", "b"]


def test_a_direct_session_waits_twice_as_long() -> None:
    pair = SessionPair(direct=True, remote=ZERO_GUID).establish()
    pair.alice.session.send_messages(["a"], [message(1)], pair.now, TIME)
    pair.alice.session.expire(pair.now + 40)
    pair.alice.session.expire(pair.now + 79)
    assert not pair.alice.session.closed
    pair.alice.session.expire(pair.now + 80)
    assert pair.alice.session.closed


def test_any_packet_keeps_the_ack_wait_timer_patient() -> None:
    pair = SessionPair().establish()
    pair.bob.settle = False
    pair.send(express(1))
    for _ in range(5):
        pair.advance(20)
        pair.send(express(1), pair.bob)
    assert not pair.alice.session.closed


def test_the_ack_wait_timer_stops_when_nothing_waits() -> None:
    pair = SessionPair().establish()
    pair.send(express(64))
    pair.advance(20)
    timers = {Timer.SESSION_CLEANUP}
    assert pair.alice.session.next_timer() is not None
    assert pair.alice.session.next_timer()[0] in timers  # type: ignore[index]


# --- pausing and closing ---
def test_pausing_acknowledges_and_makes_the_peers_window_one() -> None:
    pair = SessionPair().establish()
    pair.send(express(3))
    pair.bob.session.pause(pair.now)
    pair.run()
    assert released(pair) == [0, 1, 2]
    assert pair.alice.session.room() == 1
    pair.bob.session.resume()
    for number in range(70):
        pair.send(express(1), first_token=number)
    assert pair.alice.session.room() > 1


@pytest.mark.parametrize(
    ("how", "reason"), [("close", CloseReason.STOPPED), ("disconnected", CloseReason.DISCONNECTED)]
)
def test_closing_names_what_is_not_acknowledged_in_order(how: str, reason: CloseReason) -> None:
    pair = SessionPair().establish()
    pair.bob.settle = False
    pair.send([message(1), message(2, recoverable=True), transactional(3, 7, 1, 0), message(4)])
    getattr(pair.alice.session, how)(pair.now)
    pair.alice.collect(pair.now)
    assert closed(pair.alice).reason is reason
    assert closed(pair.alice).unacknowledged == [0, 1, 2, 3]
    assert pair.alice.session.next_timer() is None


def test_a_closed_session_takes_no_notice() -> None:
    pair = SessionPair().establish()
    pair.bob.settle = False
    pair.send(express(2))
    pair.bob.session.close(pair.now)
    pair.bob.collect(pair.now)
    pair.bob.session.receive_data(message(3), pair.now)
    pair.bob.session.messages_settled(2, 0, pair.now)
    pair.bob.session.disconnected(pair.now)
    pair.bob.session.expire(pair.now + 1e6)
    assert pair.bob.session.send_messages([1], [message(9)], pair.now, TIME) == 0
    assert pair.bob.session.commands() == []
    assert pair.bob.session.data_to_send() == []
    assert pair.bob.session.state is SessionState.CLOSED


def test_settling_what_never_came_is_a_mistake_of_the_caller() -> None:
    pair = SessionPair().establish()
    with pytest.raises(LocalProtocolError):
        pair.bob.session.messages_settled(1, 0, pair.now)
