"""Cursors and lookup identifiers: MS-MQDMPR 3.2 and 3.1.7.1.13."""

import asyncio

import pytest

from qmnode import Access, Message, MessageQueuingError
from qmnode.model.reading import TRANSITIONS, CursorEvent, CursorState
from qmnode.structures.error_codes import ErrorCode

ORDERS = r"DIRECT=OS:.\private$\orders"


@pytest.fixture
async def queue(qm):
    await qm.create_queue(r".\private$\orders")
    async with await qm.open_queue(ORDERS, Access.SEND) as send:
        await send.send_many([Message(body, recoverable=True) for body in (b"1", b"2", b"3")])
    return await qm.open_queue(ORDERS)


@pytest.fixture
async def send(qm, queue):
    return await qm.open_queue(ORDERS, Access.SEND)


async def failure(awaitable) -> ErrorCode:
    with pytest.raises(MessageQueuingError) as error:
        await awaitable
    return error.value.code


async def test_a_cursor_walks_through_the_queue(queue):
    cursor = queue.cursor()
    assert (await cursor.peek(timeout=0)).body == b"1"
    assert (await cursor.peek(timeout=0)).body == b"1"
    assert (await cursor.peek_next(timeout=0)).body == b"2"
    assert (await cursor.receive(timeout=0)).body == b"2"
    assert (await cursor.peek(timeout=0)).body == b"3"
    assert await failure(cursor.peek_next(timeout=0)) is ErrorCode.MQ_ERROR_IO_TIMEOUT
    assert (await queue.receive(timeout=0)).body == b"1"


async def test_a_cursor_that_was_not_used_has_no_next(queue):
    assert await failure(queue.cursor().peek_next(timeout=0)) is ErrorCode.MQ_ERROR_ILLEGAL_CURSOR_ACTION


async def test_a_message_that_someone_else_took_is_gone_for_the_cursor(queue):
    cursor = queue.cursor()
    await cursor.peek(timeout=0)
    await queue.receive(timeout=0)
    assert await failure(cursor.peek(timeout=0)) is ErrorCode.MQ_ERROR_MESSAGE_ALREADY_RECEIVED
    assert await failure(cursor.receive(timeout=0)) is ErrorCode.MQ_ERROR_MESSAGE_ALREADY_RECEIVED
    assert (await cursor.peek_next(timeout=0)).body == b"2"


async def test_a_cursor_behind_the_last_message_waits_for_the_next(queue, send):
    cursor = queue.cursor()
    for _ in range(3):
        await cursor.receive(timeout=0)
    assert await failure(cursor.receive(timeout=0)) is ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND
    peek = asyncio.create_task(cursor.peek())
    await asyncio.sleep(0)
    await send.send(Message(b"4"))
    assert (await peek).body == b"4"
    assert (await cursor.receive(timeout=0)).body == b"4"


async def test_a_second_read_on_a_waiting_cursor_is_refused(queue):
    cursor = queue.cursor()
    for _ in range(3):
        await cursor.receive(timeout=0)
    waiting = asyncio.create_task(cursor.peek())
    await asyncio.sleep(0)
    assert await failure(cursor.peek(timeout=1)) is ErrorCode.MQ_ERROR_ILLEGAL_CURSOR_ACTION
    await cursor.close()
    assert await failure(waiting) is ErrorCode.MQ_ERROR_OPERATION_CANCELLED
    assert await failure(cursor.peek()) is ErrorCode.MQ_ERROR_INVALID_HANDLE


async def test_a_cursor_finds_messages_that_came_after_its_wait_expired(queue, send, clock):
    cursor = queue.cursor()
    for _ in range(3):
        await cursor.receive(timeout=0)
    waiting = asyncio.create_task(cursor.receive(timeout=5))
    await asyncio.sleep(0)
    clock.advance(5)
    assert await failure(waiting) is ErrorCode.MQ_ERROR_IO_TIMEOUT
    await send.send(Message(b"4"))
    assert (await cursor.receive(timeout=0)).body == b"4"


async def test_a_cursor_takes_part_in_a_transaction(qm):
    await qm.create_queue(r".\private$\ledger", transactional=True)
    name = r"DIRECT=OS:.\private$\ledger"
    async with await qm.open_queue(name, Access.SEND) as send:
        await send.send_many([Message(b"1"), Message(b"2")], transaction="single")
    queue = await qm.open_queue(name)
    cursor, tx = queue.cursor(), qm.transaction()
    await cursor.peek()
    assert (await cursor.receive(transaction=tx)).body == b"1"
    assert (await queue.peek()).body == b"2"
    await tx.abort()
    assert (await queue.peek()).body == b"1"


def test_every_state_that_waits_is_left_by_a_message_and_by_time():
    for state in (CursorState.WAIT_PEEK, CursorState.WAIT_RECEIVE):
        for event in CursorEvent:
            left = event in (CursorEvent.MESSAGE_AVAILABLE, CursorEvent.WAIT_TIME_EXPIRED)
            assert ((state, event) in TRANSITIONS) is left


async def test_messages_by_lookup_identifier(queue):
    first = await queue.peek_by_lookup_id(seek="first")
    second = await queue.peek_by_lookup_id(first.lookup_identifier, "next")
    last = await queue.peek_by_lookup_id(seek="last")
    assert [message.body for message in (first, second, last)] == [b"1", b"2", b"3"]
    assert (await queue.peek_by_lookup_id(last.lookup_identifier, "prev")).body == b"2"
    assert (await queue.receive_by_lookup_id(second.lookup_identifier)).body == b"2"
    for again in (
        queue.receive_by_lookup_id(second.lookup_identifier),
        queue.peek_by_lookup_id(second.lookup_identifier),
        queue.peek_by_lookup_id(last.lookup_identifier, "next"),
        queue.peek_by_lookup_id(first.lookup_identifier, "prev"),
    ):
        assert await failure(again) is ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND
    assert (await queue.peek_by_lookup_id(last.lookup_identifier, "prev")).body == b"1"


async def test_lookups_see_priorities_and_both_kinds_of_messages(qm, send, queue):
    await send.send_many(
        [
            Message(b"%d%d" % (priority, express), priority=priority, recoverable=not express)
            for priority in (0, 7, 4)
            for express in (0, 1)
        ]
    )
    found, message = [], await queue.peek_by_lookup_id(seek="first")
    while message:
        found.append(message.body)
        try:
            message = await queue.peek_by_lookup_id(message.lookup_identifier, "next")
        except MessageQueuingError:
            break
    assert found == [b"70", b"71", b"40", b"41", b"1", b"2", b"3", b"00", b"01"]
    backwards, message = [], await queue.peek_by_lookup_id(seek="last")
    while message:
        backwards.append(message.body)
        try:
            message = await queue.peek_by_lookup_id(message.lookup_identifier, "prev")
        except MessageQueuingError:
            break
    assert backwards == found[::-1]


async def test_a_locked_message_can_be_peeked_only_if_it_allows_that(qm):
    await qm.create_queue(r".\private$\ledger", transactional=True)
    name = r"DIRECT=OS:.\private$\ledger"
    async with await qm.open_queue(name, Access.SEND) as send:
        await send.send_many([Message(b"1"), Message(b"2", allow_peek_when_locked=True)], transaction="single")
    queue = await qm.open_queue(name)
    tx = qm.transaction()
    locked = await queue.receive_many(2, transaction=tx)
    assert (await queue.peek(timeout=0)).body == b"2"
    assert (await queue.cursor().peek(timeout=0)).body == b"2"
    assert (await queue.peek_by_lookup_id(seek="last")).body == b"2"
    assert (await queue.peek_by_lookup_id(locked[1].lookup_identifier)).body == b"2"
    assert await failure(queue.peek_by_lookup_id(locked[0].lookup_identifier)) is ErrorCode.MQ_ERROR_TRANSACTION_USAGE
    assert await failure(queue.receive(timeout=0)) is ErrorCode.MQ_ERROR_IO_TIMEOUT
    await tx.commit()
    assert await failure(queue.peek(timeout=0)) is ErrorCode.MQ_ERROR_IO_TIMEOUT


async def test_a_two_phase_read_ends_with_or_without_the_message(queue):
    first, second = await queue.receive_begin(), await queue.receive_begin()
    assert (await queue.peek()).body == b"3"
    await queue.receive_end(second.lookup_identifier, delete=True)
    await queue.receive_end(first.lookup_identifier, delete=False)
    assert [message.body for message in await queue.receive_many(9)] == [b"1", b"3"]
    assert await failure(queue.receive_end(first.lookup_identifier, delete=True)) is (
        ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE
    )


async def test_a_purge_takes_locked_messages_when_they_come_back(node, queue):
    kept, gone = await queue.receive_begin(), await queue.receive_begin()
    await queue.purge()
    await queue.receive_end(kept.lookup_identifier, delete=True)
    await queue.receive_end(gone.lookup_identifier, delete=False)
    assert (await node.qm.queue(ORDERS)).message_count == 0
    assert (await node.qm.queue(ORDERS)).total_bytes == 0
    qm = await node.crash()
    assert await failure((await qm.open_queue(ORDERS)).peek(timeout=0)) is ErrorCode.MQ_ERROR_IO_TIMEOUT


async def test_a_purge_leaves_what_comes_after_it(qm, queue, send):
    await queue.purge()
    await send.send(Message(b"4"))
    assert (await queue.receive(timeout=0)).body == b"4"
