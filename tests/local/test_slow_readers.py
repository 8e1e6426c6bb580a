"""An application that receives much and does not read it: the node takes what it can keep from the queue, others get
the rest, and the application gets what it asked for when it reads.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from qmnode import Access, Message, QueueApi
from qmnode.local import server, values
from qmnode.local.frames import RECEIVE_HEAD, Frame, FrameKind, frame, unpack_received
from qmnode.model.stored_message import received_message
from qmnode.structures.error_codes import ErrorCode
from tests.lab.waiting import eventually
from tests.local.conftest import FORMAT, NAME, Service
from tests.local.test_receives import CALL, Application, left_in, passes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MIB = 1 << 20
SIZE = 300_000
COUNT = 60
"""Messages of 18 MB, far more than the node keeps for an application here."""
KEPT = server._WRITE_LIMIT + 2 * MIB
"""The most that it keeps: what waits to be written, what is held, and a message or two."""
BODIES = [number.to_bytes(4, "big") * (SIZE // 4) for number in range(COUNT)]


@pytest.fixture
async def sender(service: Service, monkeypatch: pytest.MonkeyPatch) -> QueueApi:
    monkeypatch.setattr(server, "_MOST_BEHIND", MIB)
    monkeypatch.setattr("qmnode.model.open_queue.RECEIVED_AT_ONCE", MIB)
    await service.manager.create_queue(NAME)
    return await service.manager.open_queue(FORMAT, Access.SEND)


@pytest.fixture
async def slow(service: Service, sender: QueueApi) -> AsyncIterator[Application]:
    """An application that reads its answers only when its transport resumes reading."""
    application = await Application(service).connect()
    application.writer.pause_reading()
    yield application
    application.writer.close()


def kept(application: Application) -> int:
    """The bytes that the node keeps for an application."""
    connection = application.connection
    return connection._receives.held + connection._transport.get_write_buffer_size()


async def send(sender: QueueApi, bodies: list[bytes] = BODIES) -> None:
    for body in bodies:
        await sender.send(Message(body))


def body(answer: Frame) -> bytes:
    assert answer.kind == FrameKind.MESSAGES, values.decode(answer.body)
    ((lookup, value),) = unpack_received(answer.body)
    return received_message(lookup, value).body


async def all_read(application: Application) -> list[bytes]:
    """What the application gets when it reads."""
    application.writer.resume_reading()
    return [body(await application.answer(CALL + number)) for number in range(COUNT)]


def is_full(application: Application) -> bool:
    """Whether the node can do nothing more for an application before it reads."""
    connection, receives = application.connection, application.connection._receives
    under_way = receives._found or receives._taken or connection._answers
    return receives.are_asked and not under_way and not connection._has_room()


async def quiet(application: Application) -> None:
    """Wait until the node has no more room for an application, for which it keeps little at every moment."""
    async with asyncio.timeout(60):
        while not is_full(application):
            assert kept(application) < KEPT
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("waits", [False, True], ids=["there", "waits"])
@pytest.mark.parametrize("limit", [1, 2])
async def test_receives_are_answered_as_they_are_read(
    service: Service, sender: QueueApi, slow: Application, waits: bool, limit: int
) -> None:
    if not waits:
        await send(sender)
    for number in range(COUNT):
        slow.receive(CALL + number, limit=limit)
    if waits:
        stored = (await service.manager.open_queue(FORMAT)).queue  # type: ignore[attr-defined]
        await eventually(lambda: len(stored.waiting) == COUNT, "all of them wait")
        await send(sender)
    await quiet(slow)
    others = await left_in(service)
    assert len(others) > COUNT // 2
    taken = COUNT - len(others)
    assert others == BODIES[taken:]
    slow.writer.resume_reading()
    found: list[bytes] = []
    for number in range(COUNT):
        if len(found) == taken:
            break
        answer = await slow.answer(CALL + number)
        found += [received_message(*entry).body for entry in unpack_received(answer.body)]
    assert found == BODIES[:taken]


async def test_an_application_that_reads_at_last_gets_all_in_order(sender: QueueApi, slow: Application) -> None:
    for number in range(COUNT):
        slow.receive(CALL + number, limit=1)
    await send(sender)
    await quiet(slow)
    assert await all_read(slow) == BODIES


async def test_receives_that_step_back_end_in_time_or_when_cancelled(
    service: Service, sender: QueueApi, slow: Application
) -> None:
    for number in range(COUNT):
        slow.receive(CALL + number, limit=1, timeout=0.3 if number == COUNT - 1 else 600.0)
    loop = asyncio.get_running_loop()
    asked = loop.time()
    stored = (await service.manager.open_queue(FORMAT)).queue  # type: ignore[attr-defined]
    await eventually(lambda: len(stored.waiting) >= COUNT - 1, "they wait")
    wait = loop.time()
    await send(sender, BODIES[:-10])
    await quiet(slow)
    until = slow.connection._receives._asked[CALL + COUNT - 3][2]
    assert until is not None and asked + 600 - 0.001 <= until <= wait + 600 + 0.001  # its time goes on
    taken = COUNT - 10 - len(await left_in(service))
    slow.write(FrameKind.CANCEL, CALL + COUNT - 2)
    slow.writer.resume_reading()
    for number, code in ((1, ErrorCode.MQ_ERROR_IO_TIMEOUT), (2, ErrorCode.MQ_ERROR_OPERATION_CANCELLED)):
        answer = await slow.answer(CALL + COUNT - number)
        assert values.decode(answer.body)[0] == code
    assert [body(await slow.answer(CALL + number)) for number in range(taken)] == BODIES[:taken]
    await sender.send(Message(b"later"))
    assert body(await slow.answer(CALL + taken)) == b"later"


async def test_what_an_application_that_goes_away_was_not_given_is_there_in_order(
    service: Service, sender: QueueApi, slow: Application
) -> None:
    for number in range(COUNT):
        slow.receive(CALL + number, limit=1)
    await send(sender)
    await quiet(slow)
    slow.writer.abort()
    await slow.connection.gone.wait()
    await passes(5)
    left = await left_in(service)
    assert left and left == BODIES[COUNT - len(left) :]


async def test_receives_that_step_back_go_before_those_that_came_later(
    service: Service, sender: QueueApi, slow: Application
) -> None:
    other = rf"{NAME}2"
    await service.manager.create_queue(other)
    slow.writer.resume_reading()
    opened = await slow.call(3, "manager", 0, "open_queue", f"DIRECT=OS:{other}", int(Access.RECEIVE), 0)
    more = await service.manager.open_queue(f"DIRECT=OS:{other}", Access.SEND)
    await more.send(Message(bytes(2 * MIB)))
    slow.receive(CALL, limit=1)
    slow.receive(CALL + 1, limit=1)
    stored = (await service.manager.open_queue(FORMAT)).queue  # type: ignore[attr-defined]
    await eventually(lambda: len(stored.waiting) == 2, "both wait")
    large = frame(FrameKind.RECEIVE, CALL + 10, RECEIVE_HEAD.pack(opened[0], 0, 1, 60.0))
    slow.writer.write(large + frame(FrameKind.RECEIVE, CALL + 2, RECEIVE_HEAD.pack(slow.handle, 0, 1, 60.0)))
    async with asyncio.timeout(60):
        while not slow.connection._receives.held:
            await asyncio.sleep(0)
    await sender.send_many([Message(b"0"), Message(b"1"), Message(b"2")])
    assert [body(await slow.answer(CALL + number)) for number in range(3)] == [b"0", b"1", b"2"]


async def test_a_receive_that_may_not_wait_ends_at_once(sender: QueueApi, slow: Application) -> None:
    slow.writer.resume_reading()
    for timeout, code in ((0.0, ErrorCode.MQ_ERROR_IO_TIMEOUT), (float("nan"), ErrorCode.MQ_ERROR_INVALID_PARAMETER)):
        slow.receive(timeout=timeout)
        assert values.decode((await slow.answer(CALL)).body)[0] == code
