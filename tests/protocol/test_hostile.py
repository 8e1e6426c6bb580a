"""A hostile peer costs itself its session and the others nothing: no exception, no other session touched."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmnode.protocol.commands import Closed, CloseReason
from qmnode.protocol.incoming_sequences import IncomingSequences
from qmnode.protocol.outgoing_sequences import AckResult, OutgoingSequences
from qmnode.protocol.received import MessageReader, ReceivedMessage
from qmnode.protocol.session import ESTABLISHMENT_LIMIT, Session
from qmnode.protocol.states import Role, SessionState
from qmnode.settings.protocol import SessionSettings, TransferSettings
from qmnode.shares import Accountant
from qmnode.structures.guid import ZERO_GUID
from qmnode.structures.packet_view import session_ack, session_header
from qmnode.structures.packets import (
    ConnectionParameters,
    ConnectionParametersHeader,
    EstablishConnection,
    EstablishConnectionHeader,
    InternalFlags,
)
from tests.conformance.frames import FRAMES
from tests.protocol.machines import ALICE, BOB, CAROL, TIME, SessionPair, closed, message, transactional

NOW = 1000.0
GOOD = [frame.data for frame in FRAMES if frame.transport == "tcp"] + [message(1), transactional(2, 7, 1, 0)]


def the_peer_sends(data: bytes) -> SessionPair:
    """An open session whose initiator sends this."""
    pair = SessionPair().establish()
    pair.bob.session.receive_data(data, pair.now)
    pair.bob.collect(pair.now)
    return pair


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_broken_packets_never_raise_and_never_leave_a_session_half_closed(data: st.DataObject) -> None:
    pair = SessionPair().establish()
    for _ in range(data.draw(st.integers(1, 4))):
        packet = bytearray(data.draw(st.sampled_from(GOOD)))
        for _ in range(data.draw(st.integers(0, 6))):
            packet[data.draw(st.integers(0, min(len(packet) - 1, 150)))] = data.draw(st.integers(0, 255))
        pair.bob.session.receive_data(bytes(packet), pair.now)
    commands = pair.bob.session.commands()
    assert pair.bob.session.closed is any(isinstance(command, Closed) for command in commands)
    assert not pair.alice.session.closed


@given(st.binary(min_size=16, max_size=600), st.sampled_from(["acceptor", "open"]))
def test_garbage_closes_the_session(data: bytes, where: str) -> None:
    pair = SessionPair()
    if where == "open":
        pair.establish()
    pair.bob.session.receive_data(data, pair.now)
    pair.bob.collect(pair.now)
    assert closed(pair.bob).reason is CloseReason.PROTOCOL_ERROR
    assert pair.bob.session.data_to_send() == []


@pytest.mark.parametrize(
    "forged",
    [
        session_header(1, 0, 0, 0, 0, 64),
        session_header(0xFFFF, 0, 0, 0, 0, 64)[:2] + session_header(5, 1, 1, 0, 0, 64)[2:],
        session_header(0, 1, 1, 0, 0, 64),
        session_header(0, 0xFFF0, 0xFFFF_FFFF, 0, 0, 64),
        session_header(0, 0, 0, 1, 0, 64),
        session_header(0, 0, 0, 0, 1, 64),
    ],
    ids=["count", "both", "recoverable", "wrapped", "sent", "recoverable sent"],
)
def test_acknowledgments_of_what_was_not_sent_close_the_session(forged: bytes) -> None:
    pair = the_peer_sends(session_ack(forged))
    assert closed(pair.bob).reason is CloseReason.PROTOCOL_ERROR


@pytest.mark.parametrize("kind", [0, 4, 15])
def test_internal_packets_of_unknown_type_close_the_session(kind: int) -> None:
    packet = bytearray(session_ack(session_header(0, 0, 0, 0, 0, 64)))
    packet[18] = kind
    assert closed(the_peer_sends(bytes(packet)).bob).reason is CloseReason.PROTOCOL_ERROR


def test_an_internal_packet_too_short_for_its_type_closes_the_session() -> None:
    packet = bytearray(session_ack(session_header(0, 0, 0, 0, 0, 64)))
    packet[8] = 18
    assert closed(the_peer_sends(bytes(packet[:18])).bob).reason is CloseReason.PROTOCOL_ERROR


@pytest.mark.parametrize(("recoverable", "wait"), [(499, 20_000), (120_001, 20_000), (500, 0), (500, 120_001)])
def test_parameters_out_of_range_close_the_session(recoverable: int, wait: int) -> None:
    session = Session(Role.ACCEPTOR, BOB, SessionSettings(), NOW)
    header = EstablishConnectionHeader(client_guid=ALICE, server_guid=BOB, time_stamp=0)
    session.receive_data(EstablishConnection(establish_connection_header=header).write(), NOW)
    assert session.state is SessionState.WAITING_CP_MSG
    parameters = ConnectionParametersHeader(recoverable_ack_timeout=recoverable, ack_timeout=wait, window_size=64)
    session.receive_data(ConnectionParameters(connection_parameters_header=parameters).write(), NOW)
    assert session.closed


def test_an_initiator_without_an_identifier_is_answered_like_any_other() -> None:
    """3.1.5.3.1 judges the ServerGuid alone."""
    session = Session(Role.ACCEPTOR, BOB, SessionSettings(), NOW)
    header = EstablishConnectionHeader(client_guid=ZERO_GUID, server_guid=BOB, time_stamp=0)
    session.receive_data(EstablishConnection(establish_connection_header=header).write(), NOW)
    assert session.state is SessionState.WAITING_CP_MSG
    (answer,) = session.data_to_send()
    parsed = EstablishConnection.parse(bytes(answer))
    assert parsed.establish_connection_header.client_guid == ZERO_GUID
    assert not parsed.internal_header.flags & InternalFlags.CS.mask


@pytest.mark.parametrize(("client", "server"), [(CAROL, BOB), (ALICE, CAROL), (ALICE, ZERO_GUID)])
def test_an_answer_for_or_from_somebody_else_closes_the_session(client: bytes, server: bytes) -> None:
    session = Session(Role.INITIATOR, ALICE, SessionSettings(), NOW, remote=BOB)
    session.connected(NOW)
    header = EstablishConnectionHeader(client_guid=client, server_guid=server, time_stamp=0)  # type: ignore[arg-type]
    session.receive_data(EstablishConnection(establish_connection_header=header).write(), NOW)
    assert session.closed


def test_somebody_who_uses_anothers_identifier_does_not_touch_its_session() -> None:
    """Sessions have no state in common: two of one ClientGuid live side by side, whoever lies."""
    pair = SessionPair().establish()
    liar = Session(Role.ACCEPTOR, BOB, SessionSettings(), NOW)
    header = EstablishConnectionHeader(client_guid=ALICE, server_guid=BOB, time_stamp=0)
    liar.receive_data(EstablishConnection(establish_connection_header=header).write(), NOW)
    liar.receive_data(b"\xff" * 64, NOW)
    assert liar.closed
    assert pair.send([message(1)]) == 1
    assert len(pair.bob.received) == 1


def test_nobody_unknown_makes_this_side_keep_much() -> None:
    session = Session(Role.ACCEPTOR, BOB, SessionSettings(), NOW)
    session.receive_data(message(1, body=bytes(4_000_000))[:100], NOW)
    assert session.closed

    slow = Session(Role.ACCEPTOR, BOB, SessionSettings(), NOW)
    for byte in FRAMES[2].data[:-1]:
        slow.receive_data(bytes([byte]), NOW)
    assert slow._framer.pending() < ESTABLISHMENT_LIMIT
    slow.expire(NOW + 60)
    assert slow.closed


def test_a_packet_of_four_megabytes_in_small_pieces_is_put_together_once() -> None:
    pair = SessionPair().establish()
    packet = message(1, body=bytes(4_000_000))
    for place in range(0, len(packet), 1000):
        pair.bob.session.receive_data(packet[place : place + 1000], pair.now)
    pair.bob.collect(pair.now)
    assert [received.packet for received in pair.bob.received] == [packet]
    assert pair.bob.session._framer.pending() == 0


def test_a_forged_order_acknowledgment_changes_nothing_of_anybodys_sequence() -> None:
    outgoing = OutgoingSequences(TransferSettings(), 1)
    assignment = outgoing.assign(b"q", 3)
    sequence = outgoing.get(b"q")
    sequence.destination = BOB
    for number in (1, 2, 3):
        sequence.prepare(assignment.sequence_id, number)
    outgoing.sent(sequence, 0.0)
    before = sequence.record(), outgoing.next_timer()
    for author, identifier, number in [
        (CAROL, assignment.sequence_id, 3),
        (BOB, assignment.sequence_id, 4),
        (BOB, assignment.sequence_id, 0xFFFF_FFFF),
        (BOB, assignment.sequence_id + 1, 1),
        (BOB, 0, 1),
    ]:
        result, _ = outgoing.take_order_ack(author, identifier, number, 0.0, TIME)
        assert result is not AckResult.PROGRESS
        assert (sequence.record(), outgoing.next_timer()) == before


def test_sequences_of_strangers_are_limited_in_number() -> None:
    incoming = IncomingSequences(TransferSettings(incoming_sequences=100), Accountant())
    for number in range(5000):
        sequence = incoming.get(ALICE, number.to_bytes(4, "big"), 0.0, f"10.0.0.{number % 250}")
        if incoming.find_place(sequence, TIME)[0]:
            incoming.accept(sequence, 7, 1, TIME)
    assert len(list(incoming)) == 50  # half of them: nobody is declared


def test_reading_keeps_nothing_of_what_it_refused() -> None:
    reader = MessageReader()
    refused: list[ReceivedMessage] = []
    for data in (b"", b"\x10", bytes(64), message(1)[:-1], message(1) + b"\0"):
        try:
            refused.append(reader.read(data))
        except Exception as error:
            assert type(error).__name__ == "RemoteProtocolError"
    assert refused == []
    assert (reader.received, reader.recoverable_received) == (0, 0)
