"""Sending and receiving: MS-MQDMPR 3.1.7.1.9 to 3.1.7.1.15."""

import asyncio

import pytest

from qmnode import Access, Message, MessageQueuingError, QueueManager
from qmnode.structures.error_codes import ErrorCode

ORDERS = r"DIRECT=OS:.\private$\orders"


@pytest.fixture
async def orders(qm):
    await qm.create_queue(r".\private$\orders")
    return await qm.open_queue(ORDERS, Access.SEND), await qm.open_queue(ORDERS, Access.RECEIVE)


def code(error) -> ErrorCode:
    return error.value.code


async def test_a_message_comes_out_as_it_went_in(qm, orders, clock):
    send, receive = orders
    sent = await send.send(
        Message(
            b"body",
            label="étiquette",
            recoverable=True,
            app_specific=7,
            correlation_identifier=bytes(range(20)),
            extension=b"ext",
            body_type=8,
            response_queue_format_name=r"DIRECT=OS:beta\private$\answers",
            administration_queue_format_name=r"DIRECT=OS:.\private$\acks",
        )
    )
    message = await receive.receive(timeout=0)
    assert message.body == b"body"
    assert message.label == "étiquette"
    assert message.recoverable
    assert message.app_specific == 7
    assert message.correlation_identifier == bytes(range(20))
    assert message.extension == b"ext"
    assert message.body_type == 8
    assert message.response_queue_format_name == r"DIRECT=OS:beta\private$\answers"
    assert message.administration_queue_format_name == r"DIRECT=OS:ALPHA\private$\acks"
    assert message.identifier == sent == qm.identifier + sent[16:]
    assert message.arrival_time == clock.now
    assert message.sent_time == int(clock.now)


async def test_messages_come_out_by_priority_and_then_in_order(orders):
    send, receive = orders
    for priority, body in ((3, b"a"), (7, b"b"), (3, b"c"), (0, b"d"), (7, b"e")):
        await send.send(Message(body, priority=priority))
    assert [message.body for message in await receive.receive_many(10)] == [b"b", b"e", b"a", b"c", b"d"]


async def test_a_peek_leaves_the_message(orders):
    send, receive = orders
    await send.send(Message(b"x"))
    assert (await receive.peek(timeout=0)).body == b"x"
    assert (await receive.receive(timeout=0)).body == b"x"


async def test_an_empty_queue_times_out(orders, clock):
    _, receive = orders
    with pytest.raises(MessageQueuingError) as error:
        await receive.receive(timeout=0)
    assert code(error) is ErrorCode.MQ_ERROR_IO_TIMEOUT
    waiting = asyncio.create_task(receive.receive(timeout=5))
    await asyncio.sleep(0)
    clock.advance(5)
    with pytest.raises(MessageQueuingError) as error:
        await waiting
    assert code(error) is ErrorCode.MQ_ERROR_IO_TIMEOUT


async def test_waiting_readers_are_served_in_the_order_in_which_they_came(orders):
    send, receive = orders
    readers = [asyncio.create_task(receive.receive()) for _ in range(3)]
    await asyncio.sleep(0)
    await send.send_many([Message(b"1"), Message(b"2"), Message(b"3")])
    assert [(await reader).body for reader in readers] == [b"1", b"2", b"3"]


async def test_all_that_wait_to_peek_see_the_message_that_the_first_who_waits_to_receive_takes(orders):
    send, receive = orders
    first, second = asyncio.create_task(receive.peek()), asyncio.create_task(receive.peek())
    taker, later = asyncio.create_task(receive.receive()), asyncio.create_task(receive.peek())
    await asyncio.sleep(0)
    await send.send(Message(b"1"))
    assert [(await reader).body for reader in (first, second, taker)] == [b"1", b"1", b"1"]
    assert not later.done()
    await send.send(Message(b"2"))
    assert (await later).body == b"2"


async def test_a_cancelled_receive_loses_no_message(orders):
    send, receive = orders
    reader = asyncio.create_task(receive.receive())
    await asyncio.sleep(0)
    await send.send(Message(b"1", recoverable=True))
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert (await receive.receive(timeout=0)).body == b"1"


async def test_a_message_over_four_megabytes_is_refused(orders):
    send, _ = orders
    with pytest.raises(MessageQueuingError) as error:
        await send.send(Message(bytes(4 * 1024 * 1024)))
    assert code(error) is ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES
    assert "4 MB" in str(error.value)


async def test_recoverable_messages_survive_a_crash_and_express_ones_do_not(node, orders):
    send, _ = orders
    await send.send(Message(b"kept", recoverable=True))
    await send.send(Message(b"lost"))
    qm = await node.crash()
    receive = await qm.open_queue(ORDERS)
    assert [message.body for message in await receive.receive_many(10)] == [b"kept"]


async def test_a_received_message_does_not_come_back_after_a_crash(node, orders):
    send, receive = orders
    await send.send_many([Message(b"1", recoverable=True), Message(b"2", recoverable=True)])
    await receive.receive()
    qm = await node.crash()
    receive = await qm.open_queue(ORDERS)
    assert [message.body for message in await receive.receive_many(10)] == [b"2"]


async def test_a_backlog_larger_than_the_read_ahead_comes_out_whole_and_in_order(node, orders):
    send, _ = orders
    await send.send_many([Message(b"%d" % number, recoverable=number % 3 > 0) for number in range(1000)])
    receive = await node.qm.open_queue(ORDERS)
    received = []
    while len(received) < 1000:
        received += [int(message.body) for message in await receive.receive_many(70, timeout=0)]
    assert received == list(range(1000))


async def test_both_ways_of_opening_a_queue_manager(tmp_path):
    async with QueueManager.open(tmp_path / "one") as first, await QueueManager.open(tmp_path / "two") as second:
        assert first.identifier != second.identifier
    async with QueueManager.open(tmp_path / "one") as again:
        assert again.identifier == first.identifier


async def test_a_queue_that_was_read_to_its_end_takes_later_messages_from_memory(qm, orders, monkeypatch):
    send, receive = orders
    await send.send(Message(b"first", recoverable=True))
    assert (await receive.receive(timeout=0)).body == b"first"
    await receive.close()
    await send.send_many([Message(b"early", recoverable=True) for _ in range(3)])  # nobody reads: not kept in memory
    receive = await qm.open_queue(ORDERS, Access.RECEIVE)
    assert (await receive.receive(timeout=0)).body == b"early"

    def reads_no_more(*_arguments):
        raise AssertionError("the store was read for a message that was in memory")

    monkeypatch.setattr(qm.store, "read_messages", reads_no_more)
    await send.send(Message(b"late", recoverable=True))
    bodies = [message.body for message in await receive.receive_many(10)]
    assert bodies == [b"early", b"early", b"late"]
