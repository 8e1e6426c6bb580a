"""The index of expiry: messages with much time are in it in groups. MS-MQDMPR 3.1.2.4, 3.1.7.2.7."""

import pytest

from qmnode import Access, Message
from qmnode.model.message import INFINITE
from qmnode.model.positions import FAR, SECONDS
from qmnode.storage.layout import EXPIRY_KEY, Family

ORDERS = r"DIRECT=OS:.\private$\orders"
LONG = FAR + 10 * SECONDS


@pytest.fixture
async def orders(qm):
    await qm.create_queue(r".\private$\orders")
    return await qm.open_queue(ORDERS, Access.SEND)


async def left(qm) -> list[bytes]:
    await qm.store.durable()
    async with await qm.open_queue(ORDERS, Access.PEEK) as queue:
        return [value[-4:].strip(b"\0") for _, value in queue.queue.scan()]


def index(qm) -> list[tuple[int, int, int]]:
    qm.store.make_visible()
    return [EXPIRY_KEY.unpack(key) for key, _ in qm.store.scan(Family.EXPIRY, b"")]


async def test_messages_with_much_time_share_an_entry_which_outlives_them(qm, orders):
    await orders.send_many(Message(b"m", recoverable=True, time_to_be_received=LONG) for _ in range(500))
    assert len(index(qm)) <= 2
    async with await qm.open_queue(ORDERS) as queue:
        await queue.receive_many(500)
    assert len(index(qm)) <= 2


async def test_they_expire_in_their_second(qm, orders, clock):
    await orders.send(Message(b"1", recoverable=True, time_to_be_received=LONG))
    await orders.send(Message(b"2", time_to_be_received=LONG + 1))
    await orders.send(Message(b"3", recoverable=True, time_to_be_received=LONG + SECONDS))
    clock.advance(LONG - 1)
    assert await left(qm) == [b"1", b"2", b"3"]
    clock.advance(1)
    assert await left(qm) == [b"2", b"3"]
    clock.advance(1)
    assert await left(qm) == [b"3"]
    clock.advance(SECONDS)
    assert await left(qm) == []
    assert index(qm) == []


@pytest.mark.public_report("Particular/NServiceBus#2886")
async def test_messages_of_one_transaction_have_times_of_their_own(qm, clock):
    """Another queue manager gives all of them the time of the first: messages were lost (NServiceBus issue 2886)."""
    await qm.create_queue(r".\private$\orders", transactional=True)
    async with await qm.open_queue(ORDERS, Access.SEND) as queue, qm.transaction() as transaction:
        for body, lifetime in ((b"1", 2), (b"2", INFINITE), (b"3", 600), (b"4", 3)):
            await queue.send(Message(body, time_to_be_received=lifetime), transaction)
    assert await left(qm) == [b"1", b"2", b"3", b"4"]
    clock.advance(2)
    assert await left(qm) == [b"2", b"3", b"4"]
    clock.advance(1)
    assert await left(qm) == [b"2", b"3"]
    clock.advance(600)
    assert await left(qm) == [b"2"]


async def test_a_group_larger_than_a_chunk_expires_whole(qm, orders, clock):
    await orders.send_many(Message(b"m", recoverable=True, time_to_be_received=LONG) for _ in range(700))
    clock.advance(LONG)
    while index(qm):
        clock.advance(0)
        await qm.store.durable()
    assert await left(qm) == []


async def test_they_expire_after_a_restart(node, orders, clock):
    await orders.send(Message(b"1", recoverable=True, time_to_be_received=LONG))
    await orders.send(Message(b"2", recoverable=True, time_to_be_received=LONG))
    qm = await node.crash()
    async with await qm.open_queue(ORDERS) as queue:
        await queue.receive()
    clock.advance(LONG - 1)
    assert await left(qm) == [b"2"]
    clock.advance(1)
    assert await left(qm) == []


async def test_a_message_that_a_transaction_holds_when_its_group_is_split_expires_when_it_is_back(node, clock):
    qm = node.qm
    await qm.create_queue(r".\private$\orders", transactional=True)
    async with await qm.open_queue(ORDERS, Access.SEND) as orders:
        await orders.send(Message(b"1", time_to_be_received=LONG), transaction="single")
    async with await qm.open_queue(ORDERS) as queue:
        transaction = qm.transaction()
        await queue.receive(transaction=transaction)
        clock.advance(LONG - SECONDS)
        await transaction.abort()
    assert await left(qm) == [b"1"]
    clock.advance(SECONDS)
    assert await left(qm) == []


async def test_messages_of_a_queue_with_an_odd_number_expire(node, qm, clock):
    """Early versions gave such numbers after a journal was changed."""
    qm.queue_collection._next_queue_id += 3
    await qm.create_queue(r".\private$\orders")
    async with await qm.open_queue(ORDERS, Access.SEND) as orders:
        await orders.send(Message(b"1", recoverable=True, time_to_be_received=10))
        await orders.send(Message(b"2", recoverable=True, time_to_be_received=LONG))
    qm = await node.restart()
    (number,) = {queue.queue_id for queue in qm.queue_collection.values() if queue.pathname.endswith("orders")}
    assert number & 1
    clock.advance(10)
    assert await left(qm) == [b"2"]
    clock.advance(LONG)
    assert await left(qm) == []
    assert (await qm.queue(r".\private$\orders")).message_count == 0
    assert index(qm) == []
