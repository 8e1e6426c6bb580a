"""A program whose connection to its node is lost: what it sent or received is neither lost nor doubled."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Any

import pytest

import qmnode
from qmnode import Access, Message, MessageQueuingError
from qmnode.local import server as server_module
from qmnode.local.program_calls import Marks
from qmnode.local.server import LocalConnection, LocalServer
from qmnode.settings.node import LocalSettings
from qmnode.storage.layout import Family
from qmnode.storage.store import Store
from qmnode.structures.error_codes import ErrorCode
from tests.lab.nodes import NodeProcess
from tests.lab.waiting import eventually
from tests.local.conftest import FORMAT, NAME, Service

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from qmnode.local.remote import RemoteQueue, RemoteQueueManager
    from qmnode.model.api import QueueApi

KINDS = pytest.mark.parametrize("transactional", [False, True], ids=["plain", "transactional"], indirect=True)
TRANSACTIONAL = pytest.mark.parametrize("transactional", [True], ids=["transactional"], indirect=True)
CUTS = pytest.mark.parametrize("cut", ["asked", "answered", "sent"])
"""When the connection is lost: before the node has seen the call, before it has sent the answer, or before the program
has seen that.
"""


@pytest.fixture
def transactional(request: pytest.FixtureRequest) -> bool:
    """Whether the queue is."""
    return bool(getattr(request, "param", False))


@pytest.fixture
async def program(service: Service, transactional: bool) -> AsyncIterator[RemoteQueueManager]:
    async with qmnode.connect(service.socket, reconnect=60) as manager:
        await manager.create_queue(NAME, transactional=transactional)
        yield manager


def lose(service: Service, monkeypatch: pytest.MonkeyPatch, cut: str) -> None:
    """Lose the connection once, over the next call."""

    def end(connection: LocalConnection, *_: object) -> None:
        monkeypatch.undo()
        if cut == "sent":
            connection._receives.sent()
        connection._transport.abort()

    monkeypatch.setattr(LocalConnection, "_take" if cut == "asked" else "_flush", end)


async def bodies(service: Service) -> list[bytes]:
    """What is in the queue."""
    async with await service.manager.open_queue(FORMAT) as queue:
        found = []
        with contextlib.suppress(MessageQueuingError):
            while True:
                found.append((await queue.receive(timeout=0)).body)
        return found


async def both(program: RemoteQueueManager) -> tuple[QueueApi, QueueApi]:
    return await program.open_queue(FORMAT, Access.SEND), await program.open_queue(FORMAT)


@KINDS
@CUTS
async def test_what_is_sent_is_there_once(
    service: Service, program: RemoteQueueManager, monkeypatch: pytest.MonkeyPatch, transactional: bool, cut: str
) -> None:
    sender, _ = await both(program)
    unit: Any = "single" if transactional else None
    lose(service, monkeypatch, cut)
    first = await sender.send(Message(b"1"), unit)
    lose(service, monkeypatch, cut)
    two = await sender.send_many([Message(b"2"), Message(b"3")], unit)
    lose(service, monkeypatch, cut)
    together = await asyncio.gather(*(sender.send(Message(b"%d" % number), unit) for number in range(4, 9)))
    assert len({first, *two, *together}) == 8
    assert await bodies(service) == [b"%d" % number for number in range(1, 9)]


@CUTS
async def test_of_messages_that_travel_together_only_the_bad_one_is_refused(
    service: Service, program: RemoteQueueManager, monkeypatch: pytest.MonkeyPatch, cut: str
) -> None:
    sender, _ = await both(program)
    messages = [Message(b"1"), Message(b"2", deliver_in=-1.0), Message(b"3")]
    lose(service, monkeypatch, cut)
    sent = await asyncio.gather(*map(sender.send, messages), return_exceptions=True)
    assert [isinstance(one, MessageQueuingError) for one in sent] == [False, True, False]
    assert await bodies(service) == [b"1", b"3"]


@KINDS
@CUTS
async def test_what_is_received_comes_once(
    service: Service, program: RemoteQueueManager, monkeypatch: pytest.MonkeyPatch, transactional: bool, cut: str
) -> None:
    sender, receiver = await both(program)
    await sender.send_many([Message(b"%d" % number) for number in range(9)], "single" if transactional else None)
    lose(service, monkeypatch, cut)
    found = [(await receiver.receive(timeout=60)).body]
    lose(service, monkeypatch, cut)
    found += [message.body for message in await receiver.receive_many(3, timeout=60)]
    lose(service, monkeypatch, cut)
    together = await asyncio.gather(*(receiver.receive(timeout=60) for _ in range(3)))
    found += sorted(message.body for message in together)
    assert found + await bodies(service) == [b"%d" % number for number in range(9)]


async def test_a_receive_that_waits_goes_on_waiting(service: Service, program: RemoteQueueManager) -> None:
    sender, receiver = await both(program)
    waiting = asyncio.create_task(receiver.receive())
    await program.queues()
    for connection in list(service.server.connections):
        connection._transport.abort()
    await sender.send(Message(b"1"))
    assert (await waiting).body == b"1"


async def test_a_large_message_that_is_lost_is_said(
    service: Service, program: RemoteQueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender, receiver = await both(program)
    await sender.send_many([Message(bytes(500_000)), Message(b"2")])
    lose(service, monkeypatch, "answered")
    assert (await receiver.receive(timeout=60)).body == bytes(500_000)
    await sender.send(Message(bytes(500_000)))
    assert (await receiver.receive(timeout=60)).body == b"2"
    lose(service, monkeypatch, "sent")
    with pytest.raises(MessageQueuingError, match="receive large messages in a transaction"):
        await receiver.receive(timeout=60)


@TRANSACTIONAL
@CUTS
async def test_a_commit_under_way_is_decided(
    service: Service, program: RemoteQueueManager, monkeypatch: pytest.MonkeyPatch, cut: str
) -> None:
    sender, _ = await both(program)
    unit = program.transaction()
    await sender.send(Message(b"1"), transaction=unit)
    lose(service, monkeypatch, cut)
    if cut == "asked":
        with pytest.raises(MessageQueuingError, match="aborted with it") as caught:
            await unit.commit()
        assert caught.value.code == ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE
    else:
        await unit.commit()
    assert await bodies(service) == ([] if cut == "asked" else [b"1"])


@TRANSACTIONAL
async def test_a_transaction_ends_with_its_connection(service: Service, program: RemoteQueueManager) -> None:
    sender, receiver = await both(program)
    await sender.send(Message(b"1"), transaction="single")
    unit = program.transaction()
    assert (await receiver.receive(timeout=0, transaction=unit)).body == b"1"
    for connection in list(service.server.connections):
        connection._transport.abort()
    with pytest.raises(MessageQueuingError, match="begin another one"):
        await sender.send(Message(b"2"), transaction=unit)
    await unit.abort()
    async with program.transaction() as another:
        assert (await receiver.receive(timeout=60, transaction=another)).body == b"1"
        await sender.send(Message(b"3"), transaction=another)
    assert await bodies(service) == [b"3"]


async def test_what_may_have_been_done_is_not_done_again(
    service: Service, program: RemoteQueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(service, monkeypatch, "answered")
    with pytest.raises(MessageQueuingError, match="'create_queue', and whether it was done is not known"):
        await program.create_queue(r".\private$\other")
    assert (await program.queue(r".\private$\other")).message_count == 0


async def test_a_cursor_is_lost(service: Service, program: RemoteQueueManager) -> None:
    sender, receiver = await both(program)
    await sender.send(Message(b"1"))
    cursor = receiver.cursor()
    assert (await cursor.peek(timeout=0)).body == b"1"
    for connection in list(service.server.connections):
        connection._transport.abort()
    await program.status()
    with pytest.raises(MessageQueuingError, match="lost with the connection"):
        await cursor.peek_next(timeout=0)


async def test_the_next_address_is_tried_within_a_second(service: Service, tmp_path: Path) -> None:
    hung = tmp_path / "hung.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(hung))
        listener.listen()
        async with asyncio.timeout(60), qmnode.connect([tmp_path / "none.sock", hung, service.socket]) as manager:
            assert manager.identifier == service.manager.identifier
    with pytest.raises(MessageQueuingError, match=r"none\.sock.*other\.sock"):
        await qmnode.connect([tmp_path / "none.sock", tmp_path / "other.sock"])


async def test_a_program_follows_its_node_to_another_address(service: Service, tmp_path: Path) -> None:
    moved = tmp_path / "moved.sock"
    async with qmnode.connect([service.socket, moved]) as manager:
        await manager.create_queue(NAME)
        sender = await manager.open_queue(FORMAT, Access.SEND)
        await service.server.stop()
        sending = asyncio.create_task(sender.send(Message(b"1")))
        other = LocalServer(service.manager, LocalSettings(socket=moved))
        await other.start()
        await sending
        assert await bodies(service) == [b"1"]
    await other.stop()


async def test_another_queue_manager_gets_nothing(service: Service, tmp_path: Path) -> None:
    async with qmnode.connect(service.socket, reconnect=0.3) as manager:
        await manager.create_queue(NAME)
        sender = await manager.open_queue(FORMAT, Access.SEND)
        await service.server.stop()
        async with qmnode.QueueManager.open(tmp_path / "other") as another:
            await another.create_queue(NAME)
            other = LocalServer(another, LocalSettings(socket=service.socket))
            await other.start()
            with pytest.raises(MessageQueuingError, match="another queue manager"):
                await sender.send(Message(b"1"))
            assert (await another.queue(NAME)).message_count == 0
            await other.stop()


@pytest.mark.parametrize("reconnect", [-1, 301, float("nan")])
async def test_how_long_it_connects_again_has_bounds(service: Service, reconnect: float) -> None:
    with pytest.raises(MessageQueuingError, match="0 to 300 seconds"):
        await qmnode.connect(service.socket, reconnect=reconnect)


async def test_marks_do_not_grow_and_are_forgotten(
    service: Service, program: RemoteQueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "FORGOTTEN", 0.0)
    marks = service.server.marks
    assert marks is not None
    sender, receiver = await both(program)
    for number in range(20):
        await sender.send(Message(b"%d" % number))
        await receiver.receive(timeout=0)
    (name,) = marks.programs()
    found = sum(len(marks.find(name, slot, number)) for slot in range(9) for number in range(200))
    assert found == 2, "that of the last send, and that of the last receive"
    await program.close()

    def is_forgotten() -> bool:
        service.manager.context.store.durable()
        return not marks.programs()

    await eventually(is_forgotten, "the program is forgotten")


async def test_a_program_goes_on_over_kills_of_its_node(tmp_path: Path) -> None:
    """Four tasks send numbers and four receive them, while the node is killed."""
    node = NodeProcess(tmp_path, computer_name="ALPHA")
    await node.start_again()
    sent: list[int] = []
    received: list[int] = []
    ended = asyncio.Event()

    async def send(first: int) -> None:
        number = first
        while not ended.is_set():
            await sender.send(Message(b"%d" % number, recoverable=True))
            sent.append(number)
            number += 4

    async def receive() -> None:
        with contextlib.suppress(MessageQueuingError):
            while True:
                received.append(int((await receiver.receive(timeout=None if not ended.is_set() else 1)).body))

    async with qmnode.connect(node.socket) as manager:
        await manager.create_queue(NAME)
        sender, receiver = await both(manager)
        tasks = [asyncio.create_task(send(first)) for first in range(4)]
        readers = [asyncio.create_task(receive()) for _ in range(4)]
        await eventually(lambda: len(received) >= 50, "messages go on")
        await asyncio.to_thread(node.kill)
        await node.start_again()
        enough = len(received) + 50
        await eventually(lambda: len(received) >= enough, "messages go on")
        ended.set()
        await asyncio.gather(*tasks)
        await eventually(lambda: len(received) >= len(sent), "all are received")
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        assert (await manager.queue(NAME)).message_count == 0
    node.stop()
    assert sorted(received) == sorted(sent)


async def test_a_node_keeps_no_more_marks_than_it_says(
    service: Service, program: RemoteQueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qmnode.local.connection.MOST_SLOTS", 1)
    taken = program.line.take_slot()
    assert program.line.take_slot() == 0, "calls go on without a mark"
    program.line.free_slot(taken)
    async with await program.open_queue(FORMAT, Access.SEND) as queue:
        await queue.send(Message(b"1"))
        monkeypatch.setattr(program.line, "take_slot", lambda: 2_049)
        with pytest.raises(MessageQueuingError, match="2048"):
            await queue.send_many([Message(b"2")])


async def test_of_many_programs_that_are_gone_the_oldest_are_forgotten(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "MOST_GONE", 2)
    await service.manager.create_queue(NAME)
    for _ in range(4):
        async with qmnode.connect(service.socket) as one, await one.open_queue(FORMAT, Access.SEND) as queue:
            await queue.send(Message(b"x"))
    marks = service.server.marks
    assert marks is not None
    await eventually(lambda: not service.server.connections, "all are gone")
    await service.manager.context.store.durable()  # type: ignore[attr-defined]
    assert len(marks.programs()) == 2


async def test_marks_take_no_more_than_their_bytes(
    service: Service, program: RemoteQueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages in marks are outside of the quota of their queue."""
    monkeypatch.setattr("qmnode.local.program_calls.MOST_OF_PROGRAM", 5_000)
    sender, receiver = await both(program)
    await sender.send_many([Message(bytes(2_000)) for _ in range(6)])
    slots = iter(range(1, 7))
    taken = [await taken_with(program, monkeypatch, receiver, next(slots)) for _ in range(6)]
    assert len(taken) == 6, "receives go on"
    assert kept(service) < 5_000
    store = service.manager.context.store
    assert isinstance(store, Store)
    assert kept(service) == sum(len(key) + len(value) for key, value in store.scan(Family.META, b"mark", b"marl"))
    assert Marks(store).programs() == {program.line._program}


async def test_programs_of_another_account_leave_room_for_messages(
    service: Service, program: RemoteQueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qmnode.local.program_calls.MOST_OF_ALL", 40_000)
    marks, greedy = service.server.marks, [bytes([number]) * 16 for number in range(9)]
    assert marks is not None
    for one in greedy:
        marks.belong(one, 4711)
    for number in range(90):
        marks.put_received(greedy[number % 9], [(number, 1, 950)], [bytes(950)])
    marks.put(greedy[0], 99, 1, bytes(30_000))  # identifiers of a large send count for its program alone
    assert 45_000 < kept(service) <= 55_000
    marks.put(greedy[0], 99, 1, b"")
    assert 15_000 < kept(service) <= 25_000, "half of all, and what says that no messages are kept"
    before = kept(service)
    sender, receiver = await both(program)
    await sender.send(Message(bytes(2_000)))
    await taken_with(program, monkeypatch, receiver, 1)
    assert kept(service) > before + 2_000, "the message is kept, in case that its receiver asks again"
    for one in greedy:
        marks.forget(one)
    assert kept(service) < before


async def taken_with(
    program: RemoteQueueManager, monkeypatch: pytest.MonkeyPatch, receiver: RemoteQueue, slot: int
) -> Message:
    monkeypatch.setattr(program.line, "take_slot", lambda: slot)
    return await receiver.receive(timeout=60)


def kept(service: Service) -> int:
    marks = service.server.marks
    assert marks is not None
    return marks._size


async def test_parts_of_a_call_go_with_the_next_call_of_its_slot(
    service: Service, program: RemoteQueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender, _ = await both(program)
    monkeypatch.setattr(program.line, "take_slot", lambda: 1)
    outcomes = await asyncio.gather(
        *(sender.send(Message(bytes(10), label="x" * size)) for size in (1, 300, 1)), return_exceptions=True
    )
    assert [isinstance(outcome, MessageQueuingError) for outcome in outcomes] == [False, True, False]
    several = kept(service)
    await sender.send(Message(b"x"))
    assert kept(service) < several
    store = service.manager.context.store
    assert isinstance(store, Store)
    assert len(list(store.scan(Family.META, b"mark", b"marl"))) == 1


async def test_a_program_whose_calls_take_too_much_is_told(
    service: Service, program: RemoteQueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qmnode.local.program_calls.MOST_OF_PROGRAM", 30)
    sender, _ = await both(program)
    slot = 1
    monkeypatch.setattr(program.line, "take_slot", lambda: slot)
    await sender.send(Message(b"1"))
    slot = 2
    with pytest.raises(MessageQueuingError, match="have fewer calls under way"):
        await sender.send(Message(b"2"))
    slot = 1
    await sender.send(Message(b"3"))
