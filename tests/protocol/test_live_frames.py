"""MS-MQQB 4.1 as a live session without a socket: our acceptor answers the frames, our initiator produces them."""

from __future__ import annotations

from typing import Final

from qmnode.protocol.commands import MessagesReceived, Opened
from qmnode.protocol.ping import PingClient, ping_response
from qmnode.protocol.session import Session
from qmnode.protocol.states import Role, SessionState
from qmnode.settings.protocol import SessionSettings
from qmnode.structures.guid import Guid
from tests.conformance.frames import FRAMES

# The bytes hold the identifiers that frame 3 names; frame 4 was dumped from another session (see test_frames.py).
CLIENT: Final = Guid(FRAMES[2].data[20:36])
SERVER: Final = Guid(FRAMES[2].data[36:52])
STARTED: Final = int.from_bytes(FRAMES[2].data[52:56], "little")
"""The time stamp of frame 3 in milliseconds."""
EXAMPLE: Final = SessionSettings(ack_wait_timeout_ms=120_000)
"""Frame 5 waits two minutes for acknowledgments."""
GUIDS: Final = slice(20, 52)


def frame(number: int) -> bytes:
    return FRAMES[number - 1].data


def comparable(packet: bytes) -> bytes:
    """A packet without the byte that may have any value: BaseHeader.Reserved."""
    return packet[:1] + b"\0" + packet[2:]


def sent(session: Session) -> bytes:
    return b"".join(session.data_to_send())


def test_our_acceptor_answers_as_the_specification_shows() -> None:
    session = Session(Role.ACCEPTOR, SERVER, EXAMPLE, 0.0)

    session.receive_data(frame(3), 0.0)
    answer = sent(session)
    assert comparable(answer)[:20] == comparable(frame(4))[:20]
    assert answer[GUIDS] == CLIENT + SERVER
    assert answer[52:] == frame(4)[52:]

    session.receive_data(frame(5), 0.1)
    assert comparable(sent(session)) == comparable(frame(6))
    assert session.state is SessionState.OPEN

    session.receive_data(frame(7), 0.2)
    opened, _, received = session.commands()
    assert opened == Opened(CLIENT, 64)
    assert isinstance(received, MessagesReceived)
    (message,) = received.messages
    assert message.packet == frame(7)
    assert message.message.user_header.message_id == 2286

    session.messages_settled(message.ordinal, message.recoverable_ordinal, 0.2)
    timer = session.next_timer()
    assert timer is not None
    session.expire(timer[1])
    assert comparable(sent(session)) == comparable(frame(8))


def test_our_initiator_produces_frames_3_5_and_7() -> None:
    now = STARTED / 1000
    session = Session(Role.INITIATOR, CLIENT, EXAMPLE, now, remote=SERVER)

    session.connected(now)
    assert comparable(sent(session)) == comparable(frame(3))

    answer = frame(4)[: GUIDS.start] + CLIENT + SERVER + frame(4)[GUIDS.stop :]
    session.receive_data(answer, now + 0.187)  # the round trip of which frame 5 has eight: 1,496 milliseconds
    assert comparable(sent(session)) == comparable(frame(5))

    session.receive_data(frame(6), now + 0.2)
    assert session.state is SessionState.OPEN
    taken = session.send_messages(["m"], [frame(7)], now + 0.2, 1_141_966_310)
    assert taken == 1
    assert sent(session) == frame(7)

    session.commands()
    session.receive_data(frame(8), now + 0.3)
    (acknowledged, _) = session.commands()
    assert getattr(acknowledged, "released", None) == ["m"]


def test_our_ping_client_and_server_produce_frames_1_and_2() -> None:
    client_guid, server_guid = Guid(frame(1)[8:]), Guid(frame(2)[8:])
    client = PingClient(client_guid, server_class=False, cookie=3)

    cookie, request = client.request(0.0)
    answer = ping_response(frame(1), server_guid, refuse=False)

    assert request[2:] == frame(1)[2:]
    assert answer is not None
    assert answer[2:] == frame(2)[2:]
    assert answer[0] & 3 == frame(2)[0] & 3  # all but two bits of the flags are of any value
    assert client.receive(frame(2)) == (cookie, True)
