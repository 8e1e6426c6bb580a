"""Callers that receive at the same time share a call, and each gets a message of its own."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

import qmnode
from qmnode import Access, Message, MessageQueuingError
from qmnode.local.program_calls import Methods
from qmnode.local.server import LocalConnection
from qmnode.structures.error_codes import ErrorCode
from tests.lab.waiting import eventually
from tests.local.conftest import FORMAT, NAME, Service

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from qmnode.local.frames import Frame
    from qmnode.local.remote import RemoteQueueManager
    from qmnode.model.api import QueueApi


@pytest.fixture
async def queues(remote: RemoteQueueManager) -> AsyncIterator[tuple[QueueApi, QueueApi]]:
    """One to send, one to receive."""
    await remote.create_queue(NAME)
    yield await remote.open_queue(FORMAT, Access.SEND), await remote.open_queue(FORMAT)


def waiting(service: Service) -> int:
    """Receives that wait in the queue."""
    return sum(len(connection._receives._waiting) for connection in service.server.connections)


async def bodies(calls: list[asyncio.Task[Message]]) -> list[bytes]:
    return [message.body for message in await asyncio.gather(*calls)]


async def test_messages_are_shared_out_in_order_with_few_calls(
    queues: tuple[QueueApi, QueueApi], monkeypatch: pytest.MonkeyPatch
) -> None:
    sender, receiver = queues
    begun: list[Frame] = []
    begin = Methods.begin_receive
    monkeypatch.setattr(Methods, "begin_receive", lambda self, call: begun.append(call) or begin(self, call))
    await sender.send_many([Message(b"%d" % number) for number in range(50)])
    received = await asyncio.gather(*(receiver.receive() for _ in range(50)))
    assert [message.body for message in received] == [b"%d" % number for number in range(50)]
    assert len(begun) == 1


async def test_callers_without_a_message_go_on_waiting(service: Service, queues: tuple[QueueApi, QueueApi]) -> None:
    sender, receiver = queues
    calls = [asyncio.create_task(receiver.receive()) for _ in range(5)]
    await eventually(lambda: waiting(service) == 1, "they wait")
    await sender.send_many([Message(b"1"), Message(b"2"), Message(b"3")])
    assert await bodies(calls[:3]) == [b"1", b"2", b"3"]
    await sender.send_many([Message(b"4"), Message(b"5"), Message(b"6")])
    assert await bodies(calls[3:]) == [b"4", b"5"]
    assert (await receiver.receive()).body == b"6"


async def test_who_is_cancelled_takes_no_message_from_the_others(
    service: Service, queues: tuple[QueueApi, QueueApi]
) -> None:
    sender, receiver = queues
    calls = [asyncio.create_task(receiver.receive()) for _ in range(4)]
    await eventually(lambda: waiting(service) == 1, "they wait")
    calls[0].cancel()
    calls[2].cancel()
    for cancelled in (calls[0], calls[2]):
        with pytest.raises(asyncio.CancelledError):
            await cancelled
    await sender.send_many([Message(b"1"), Message(b"2")])
    assert await bodies([calls[1], calls[3]]) == [b"1", b"2"]
    assert waiting(service) == 0
    late = asyncio.create_task(receiver.receive())
    await asyncio.sleep(0)
    late.cancel()  # before the call is made
    with pytest.raises(asyncio.CancelledError):
        await late


async def test_a_message_on_its_way_to_who_is_cancelled_is_not_lost(
    service: Service, queues: tuple[QueueApi, QueueApi], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, receiver = queues
    calls = [asyncio.create_task(receiver.receive()) for _ in range(2)]
    await eventually(lambda: waiting(service) == 1, "they wait")
    answer = LocalConnection._flush

    def cancel_one(connection: LocalConnection) -> None:
        monkeypatch.undo()
        calls[0].cancel()
        answer(connection)

    monkeypatch.setattr(LocalConnection, "_flush", cancel_one)
    async with await service.manager.open_queue(FORMAT, Access.SEND) as here:
        await here.send_many([Message(b"1"), Message(b"2")])
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert sorted(one.body for one in found if isinstance(one, Message)) == [b"1", b"2"]


async def test_a_call_takes_no_more_messages_than_its_mark_can_keep(
    service: Service, queues: tuple[QueueApi, QueueApi], monkeypatch: pytest.MonkeyPatch
) -> None:
    sender, receiver = queues
    sizes = [100_000, 200_000, 10, 150_000, 90_000, 20]
    await sender.send_many([Message(bytes(size)) for size in sizes])

    def lose(connection: LocalConnection) -> None:
        monkeypatch.undo()
        connection._receives.sent()
        connection._transport.abort()

    monkeypatch.setattr(LocalConnection, "_flush", lose)
    received = await asyncio.gather(*(receiver.receive() for _ in sizes))
    assert sorted(len(message.body) for message in received) == sorted(sizes), "a lost answer comes again"


async def test_messages_beyond_what_a_mark_keeps_reach_others_in_their_order(
    service: Service, queues: tuple[QueueApi, QueueApi]
) -> None:
    sender, receiver = queues
    calls = [asyncio.create_task(receiver.receive()) for _ in range(3)]
    await eventually(lambda: waiting(service) == 1, "they wait")
    async with qmnode.connect(service.socket) as others, await others.open_queue(FORMAT) as other:
        for number in (2, 3):
            calls.append(asyncio.create_task(other.receive(600)))
            await eventually(lambda number=number: waiting(service) == number, "one more waits")
        await sender.send_many([Message(b"1" * 200_000), Message(b"2" * 200_000), Message(b"3")])
        assert [body[:1] for body in await bodies([calls[0], *calls[3:]])] == [b"1", b"2", b"3"]
    await cancel(calls[1:3])


async def test_callers_end_with_their_program_after_a_lost_connection(
    service: Service, queues: tuple[QueueApi, QueueApi]
) -> None:
    _, receiver = queues
    calls = [asyncio.create_task(receiver.receive()) for _ in range(3)]
    await eventually(lambda: waiting(service) == 1, "they wait")
    (before,) = service.server.connections
    before._transport.abort()
    await eventually(lambda: before.gone.is_set() and waiting(service) == 1, "they wait over the next connection")
    own = asyncio.current_task()
    await cancel([task for task in asyncio.all_tasks() if task is not own and "receive" in repr(task.get_coro())])
    assert all(call.cancelled() for call in calls)


async def cancel(tasks: list[asyncio.Task[Message]]) -> None:
    """Cancel them as the end of a program does, once each."""
    for task in tasks:
        task.cancel()
    _, left = await asyncio.wait(tasks, timeout=60)
    assert not left


async def test_a_receive_that_is_cancelled_at_once_ends(service: Service, queues: tuple[QueueApi, QueueApi]) -> None:
    sender, receiver = queues
    peek = asyncio.create_task(receiver.peek())  # begins before the receive, in the same pass at the node
    calls = [asyncio.create_task(receiver.receive(timeout)) for timeout in (None, 600)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await cancel(calls)
    await sender.send(Message(b"1"))
    assert (await peek).body == (await receiver.receive()).body == b"1"


async def test_callers_that_wait_get_the_message_of_one_that_gave_up(
    service: Service, remote: RemoteQueueManager, queues: tuple[QueueApi, QueueApi], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, receiver = queues
    first = asyncio.create_task(receiver.receive())
    await eventually(lambda: waiting(service) == 1, "it waits")
    second = asyncio.create_task(receiver.receive())
    await eventually(lambda: waiting(service) == 2, "both wait")

    def lose(connection: LocalConnection) -> None:
        monkeypatch.undo()
        connection._receives.sent()
        connection._transport.abort()

    monkeypatch.setattr(LocalConnection, "_flush", lose)
    before = remote.connection
    async with await service.manager.open_queue(FORMAT, Access.SEND) as here:
        await here.send(Message(b"1"))
    while not before.is_lost:
        await asyncio.sleep(0)
    first.cancel()
    assert (await asyncio.wait_for(second, 60)).body == b"1"
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_one_caller_learns_that_a_large_message_was_lost(
    service: Service, queues: tuple[QueueApi, QueueApi], monkeypatch: pytest.MonkeyPatch
) -> None:
    sender, receiver = queues
    calls = [asyncio.create_task(receiver.receive()) for _ in range(3)]
    await eventually(lambda: waiting(service) == 1, "they wait")

    def lose(connection: LocalConnection) -> None:
        monkeypatch.undo()
        connection._receives.sent()
        connection._transport.abort()

    monkeypatch.setattr(LocalConnection, "_flush", lose)
    async with await service.manager.open_queue(FORMAT, Access.SEND) as here:
        await here.send(Message(bytes(300_000)))
    with pytest.raises(MessageQueuingError) as caught:
        await calls[0]
    assert caught.value.code == ErrorCode.MQ_ERROR_MESSAGE_ALREADY_RECEIVED
    await sender.send_many([Message(b"1"), Message(b"2")])
    assert await bodies(calls[1:]) == [b"1", b"2"]


async def test_an_error_reaches_all(service: Service, queues: tuple[QueueApi, QueueApi]) -> None:
    _, receiver = queues
    calls = [asyncio.create_task(receiver.receive()) for _ in range(3)]
    await eventually(lambda: waiting(service) == 1, "they wait")
    await receiver.close()
    for call in calls:
        with pytest.raises(MessageQueuingError) as caught:
            await call
        assert caught.value.code != ErrorCode.MQ_ERROR_OPERATION_CANCELLED


async def test_lost_connections_and_cancelled_callers_lose_and_double_nothing(
    service: Service, queues: tuple[QueueApi, QueueApi]
) -> None:
    sender, receiver = queues
    received: list[int] = []
    ended = asyncio.Event()

    async def receive() -> None:
        while True:
            received.append(int((await receiver.receive()).body))

    async def give_up_often() -> None:
        while not ended.is_set():
            call = asyncio.ensure_future(receiver.receive())
            await asyncio.wait([call], timeout=0.002)
            call.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                received.append(int((await call).body))

    hasty = [asyncio.create_task(give_up_often()) for _ in range(5)]
    patient = [asyncio.create_task(receive()) for _ in range(20)]
    for number in range(60):
        await sender.send_many([Message(b"%d" % (20 * number + one)) for one in range(20)])
        if number % 3 == 2:
            for connection in list(service.server.connections):
                connection._transport.abort()
    await eventually(lambda: len(received) >= 1200, "all are received")
    ended.set()
    await asyncio.gather(*hasty)
    for task in patient:
        task.cancel()
    await asyncio.gather(*patient, return_exceptions=True)
    assert sorted(received) == list(range(1200))
    assert (await service.manager.queue(NAME)).message_count == 0
