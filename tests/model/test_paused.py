"""A queue that is paused gives out no message: receives wait, peeks go on, messages arrive."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from qmnode import Access, Message, MessageQueuingError, QueueManager
from qmnode.model.open_queue import OpenQueueDescriptor
from qmnode.structures.error_codes import ErrorCode
from tests.lab.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from tests.model.conftest import FakeClock, Node

NAME = r".\private$\orders"
QUEUE = rf"DIRECT=OS:{NAME}"


@pytest.fixture(params=[False, True], ids=["plain", "transactional"])
async def queue(qm: QueueManager, request: pytest.FixtureRequest) -> OpenQueueDescriptor:
    """A paused queue with three messages."""
    await qm.create_queue(NAME, transactional=request.param)
    await send(qm, b"1", b"2", b"3")
    await qm.pause_queue(NAME)
    opened = await qm.open_queue(QUEUE)
    assert isinstance(opened, OpenQueueDescriptor)
    return opened


async def send(qm: QueueManager, *bodies: bytes) -> None:
    async with await qm.open_queue(QUEUE, Access.SEND) as queue:
        unit = "single" if (await qm.queue(NAME)).transactional else None
        await queue.send_many([Message(body, recoverable=True) for body in bodies], transaction=unit)


async def error(call: Awaitable[object]) -> ErrorCode:
    with pytest.raises(MessageQueuingError) as caught:
        await call
    return ErrorCode(caught.value.code)


async def test_no_receive_finds_a_message_and_every_peek_does(queue: OpenQueueDescriptor) -> None:
    for call in (
        queue.receive(0), queue.receive_many(9, 0), queue.receive_begin(0), queue.receive_begin_many(9, 0),
    ):  # fmt: skip
        assert await error(call) is ErrorCode.MQ_ERROR_IO_TIMEOUT
    first = await queue.peek(0)
    assert first.body == b"1"
    assert (await queue.peek_by_lookup_id(0, "last")).body == b"3"
    for call in (
        queue.receive_by_lookup_id(first.lookup_identifier),
        queue.receive_begin_by_lookup_id(first.lookup_identifier),
        queue.receive_begin_by_lookup_id(0, "first"),
    ):
        assert await error(call) is ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND
    cursor = queue.cursor()
    assert await error(cursor.receive(0)) is ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND
    assert [(await cursor.peek(0)).body, (await cursor.peek_next(0)).body] == [b"1", b"2"]
    assert await error(cursor.receive(0)) is ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND
    assert queue.queue.message_count == 3


async def test_receives_wait_for_the_end_of_the_pause_in_their_order(
    qm: QueueManager, queue: OpenQueueDescriptor
) -> None:
    waiting = [asyncio.ensure_future(queue.receive()) for _ in range(2)]
    many = asyncio.ensure_future(queue.receive_many(9))
    await eventually(lambda: len(queue.queue.waiting) == 3)
    await send(qm, b"4")
    assert not any(one.done() for one in (*waiting, many))
    await qm.resume_queue(NAME)
    assert [(await one).body for one in waiting] == [b"1", b"2"]
    assert [one.body for one in await many] == [b"3", b"4"]


async def test_a_waiting_peek_sees_what_arrives_and_a_receive_before_it_gets_nothing(qm: QueueManager) -> None:
    await qm.create_queue(NAME)
    await qm.pause_queue(NAME)
    async with await qm.open_queue(QUEUE) as reading:
        assert isinstance(reading, OpenQueueDescriptor)
        receive = asyncio.ensure_future(reading.receive())
        await eventually(lambda: len(reading.queue.waiting) == 1)
        peek = asyncio.ensure_future(reading.peek())
        await eventually(lambda: len(reading.queue.waiting) == 2)
        await send(qm, b"1", b"2")
        assert (await peek).body == b"1"
        assert not receive.done()
        await qm.resume_queue(NAME)
        assert (await receive).body == b"1"
        assert (await qm.queue(NAME)).message_count == 1


async def test_a_message_that_is_being_received_returns_or_goes(qm: QueueManager, queue: OpenQueueDescriptor) -> None:
    await qm.resume_queue(NAME)
    returned, taken = await queue.receive_begin(0), await queue.receive_begin(0)
    await qm.pause_queue(NAME)
    await queue.receive_end(taken.lookup_identifier, delete=True)
    await queue.receive_end(returned.lookup_identifier, delete=False)
    assert await error(queue.receive(0)) is ErrorCode.MQ_ERROR_IO_TIMEOUT
    await qm.resume_queue(NAME)
    assert [one.body for one in await queue.receive_many(9, 0)] == [b"1", b"3"]


async def test_a_pause_outlives_a_restart_and_a_change_of_the_queue(node: Node, clock: FakeClock) -> None:
    await node.qm.create_queue(NAME)
    await send(node.qm, b"1")
    await node.qm.pause_queue(NAME)
    await node.qm.set_queue(NAME, label="changed")
    clock.advance(100)
    await node.qm.pause_queue(NAME)
    qm = await node.restart()
    await send(qm, b"2")
    found = await qm.queue(NAME)
    assert (found.state, found.message_count, found.label) == ("on hold", 2, "changed")
    assert found.waiting is not None
    assert (found.waiting.reason, found.waiting.since, found.waiting.messages) == ("paused", clock.now - 100, 2)
    assert found.waiting.step == r"`qmnode queue resume 'ALPHA\private$\orders'`"
    assert [one.queue for one in await qm.waiting()] == [r"ALPHA\private$\orders"]
    async with await qm.open_queue(QUEUE) as queue:
        assert await error(queue.receive(0)) is ErrorCode.MQ_ERROR_IO_TIMEOUT
        await qm.resume_queue(NAME)
        assert [one.body for one in await queue.receive_many(9, 0)] == [b"1", b"2"]
    qm = await node.restart()
    assert ((await qm.queue(NAME)).state, await qm.waiting()) == ("", [])


async def test_messages_of_a_paused_queue_can_be_purged_and_the_queue_deleted(qm: QueueManager) -> None:
    await qm.create_queue(NAME)
    await qm.pause_queue(NAME)
    await send(qm, b"1")
    async with await qm.open_queue(QUEUE) as queue:
        await queue.purge()
    assert (await qm.queue(NAME)).message_count == 0
    await qm.delete_queue(NAME)


@pytest.mark.parametrize("name", [r".\system$;deadletter", r".\system$;journal", NAME + ";journal"])
async def test_no_queue_that_the_node_makes_is_paused(qm: QueueManager, name: str) -> None:
    await qm.create_queue(NAME)
    assert await error(qm.pause_queue(name)) is ErrorCode.MQ_ERROR_INVALID_PARAMETER
