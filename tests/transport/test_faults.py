"""A fault of the node itself at one received message: it costs this message, is logged once, and hides no other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from qmnode.protocol.message_id_history import MessageIdHistory
from qmnode.protocol.received import ReceivedMessage
from qmnode.security.arrival_checks import Arrival
from qmnode.structures.guid import Guid, new_guid
from qmnode.structures.user_message import DirectQueueFormatName, SecurityFlags, SecurityHeader
from tests.lab.waiting import eventually
from tests.protocol.machines import message
from tests.transport.conftest import PLAIN, Pair
from tests.transport.hostile import HostilePeer

POISON = b"poison" * 100


class UnknownFault(RuntimeError):
    """Nobody has found it yet."""


def break_security(monkeypatch: pytest.MonkeyPatch, pair: Pair) -> None:
    security = pair.bob.network.security
    judge = security.admission.judge

    async def fails(arrivals: Sequence[Arrival], now: float) -> Any:
        if any(POISON in arrival.packet for arrival in arrivals):
            raise UnknownFault
        return await judge(arrivals, now)

    monkeypatch.setattr(security.admission, "judge", fails)


def break_reception(monkeypatch: pytest.MonkeyPatch, pair: Pair) -> None:
    reception = pair.bob.network.state.reception

    def failing(method: Callable[..., Any]) -> Callable[..., Any]:
        def fails(received: ReceivedMessage, *more: Any) -> Any:
            if POISON in received.packet:
                raise UnknownFault
            return method(received, *more)

        return fails

    for name in ("_admit_plain", "_admit_one"):
        monkeypatch.setattr(reception, name, failing(getattr(reception, name)))
    add = MessageIdHistory.add

    def fails_for_poison(history: MessageIdHistory, source: Guid, message_id: int, durable: bool, time: int) -> bool:
        if message_id in (2, 4):
            raise UnknownFault
        return add(history, source, message_id, durable, time)

    monkeypatch.setattr(MessageIdHistory, "add", fails_for_poison)


@pytest.mark.parametrize(
    ("fault", "secured"), [(break_security, True), (break_reception, True), (break_reception, False)]
)
async def test_others_arrive_on_the_same_connection(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, fault: Callable[..., None], secured: bool
) -> None:
    fault(monkeypatch, pair)
    more = {"security_header": SecurityHeader(flags=SecurityFlags.of(AU=1))} if secured else {}
    name = DirectQueueFormatName(direct_format_name=rf"TCP:{pair.addresses['BOB']}\private$\plain")
    bodies = [b"1", POISON, b"2", POISON, b"3"]
    queue = await pair.bob.open_queue(f"DIRECT=OS:{PLAIN}")
    with capture_logs() as lines:
        async with HostilePeer("127.9.8.1", pair.addresses["BOB"]) as peer:
            await peer.establish(new_guid())
            for number, body in enumerate(bodies, 1):
                peer.send(message(number, queue=name, body=body, **more))
            received = [(await queue.receive(timeout=60)).body for _ in range(3)]
            (connection,) = pair.bob.network.accepted
            await eventually(lambda: connection.session.unsettled() == 0)
    assert received == [b"1", b"2", b"3"]
    faults = [line for line in lines if "exc_info" in line]
    assert len(faults) == 1
    assert isinstance(faults[0]["exc_info"], UnknownFault)


async def test_a_fault_beside_the_messages_closes_the_session_and_they_come_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes later on the connection must not be acknowledged: that would acknowledge what was not stored."""
    name = DirectQueueFormatName(direct_format_name=rf"TCP:{pair.addresses['BOB']}\private$\plain")
    secured = message(1, queue=name, body=b"1", security_header=SecurityHeader(flags=SecurityFlags.of(AU=1)))
    source = new_guid()
    with monkeypatch.context() as broken:
        broken.setattr(pair.bob.network.arrivals, "_judged", None)
        async with HostilePeer("127.9.8.2", pair.addresses["BOB"]) as peer:
            await peer.establish(source)
            peer.send(secured)
            peer.send(message(2, queue=name, body=b"2"))
            assert await peer.is_closed()
    assert pair.bob.names.find(PLAIN).message_count == 0
    async with HostilePeer("127.9.8.2", pair.addresses["BOB"]) as peer:
        await peer.establish(source)
        peer.send(secured)
        await eventually(lambda: pair.bob.names.find(PLAIN).message_count == 1)


async def test_a_fault_at_what_follows_from_messages_does_not_keep_them_from_being_stored(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: object) -> None:
        raise UnknownFault

    monkeypatch.setattr(pair.bob.network.notices, "administration", fails)
    name = DirectQueueFormatName(direct_format_name=rf"TCP:{pair.addresses['BOB']}\private$\plain")
    nowhere = DirectQueueFormatName(direct_format_name=rf"TCP:{pair.addresses['BOB']}\private$\nowhere")
    asking = {"properties": 0x0F, "admin_queue": name}
    queue = await pair.bob.open_queue(f"DIRECT=OS:{PLAIN}")
    with capture_logs() as lines:
        async with HostilePeer("127.9.8.3", pair.addresses["BOB"]) as peer:
            await peer.establish(new_guid())
            peer.send(message(1, queue=name, body=b"1", **asking))
            peer.send(message(2, queue=nowhere, body=b"refused", **asking))
            peer.send(message(3, queue=name, body=b"3"))
            received = [(await queue.receive(timeout=60)).body for _ in range(2)]
            (connection,) = pair.bob.network.accepted
            await eventually(lambda: connection.session.unsettled() == 0)
    assert received == [b"1", b"3"]
    assert any(isinstance(line.get("exc_info"), UnknownFault) for line in lines)


async def test_a_fault_while_messages_are_stored_acknowledges_none_of_them(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is ahead of the disk then: the store has to be opened again, and what comes again is taken."""
    name = DirectQueueFormatName(direct_format_name=rf"TCP:{pair.addresses['BOB']}\private$\plain")
    source = new_guid()

    def fails(*arguments: object) -> None:
        raise UnknownFault

    with monkeypatch.context() as broken:
        broken.setattr(pair.bob.network.arrivals, "_store", fails)
        async with HostilePeer("127.9.8.4", pair.addresses["BOB"]) as peer:
            await peer.establish(source)
            peer.send(message(1, queue=name, body=b"1"))
            await eventually(lambda: pair.bob.store.failure is not None)
    await pair.stop("BOB")
    await pair.start("BOB")
    async with HostilePeer("127.9.8.4", pair.addresses["BOB"]) as peer:
        await peer.establish(source)
        peer.send(message(1, queue=name, body=b"1"))
        await eventually(lambda: pair.bob.names.find(PLAIN).message_count == 1)


async def test_a_lost_connection_is_not_written_to(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    """Answers that are due when the peer has just gone are dropped without a line each in the log."""
    async with HostilePeer("127.9.8.1", pair.addresses["BOB"]) as peer:
        await peer.establish(new_guid())
        (connection,) = pair.bob.network.accepted
        connection._transport.abort()
        for ordinal in range(20):
            connection.session._out.append(b"an answer %d" % ordinal)
            connection.process()
    assert "socket.send()" not in caplog.text
