"""The age of a queue: when the message that has waited longest arrived, and what asking for it costs."""

import time

import pytest

from qmnode import Access, Message

ORDERS = r".\private$\orders"
TO_ORDERS = r"DIRECT=OS:.\private$\orders"
LARGE = 1024 * 1024


async def _oldest(qm) -> tuple[float | None, float | None]:
    queue = await qm.queue(ORDERS)
    return queue.oldest_arrival, queue.journal_oldest_arrival


async def test_the_oldest_message_of_a_queue_and_of_its_journal(qm, clock):
    await qm.create_queue(ORDERS, journaling=True)
    begin = clock.now
    assert await _oldest(qm) == (None, None)
    async with await qm.open_queue(TO_ORDERS, Access.SEND) as queue:
        for priority in (0, 7, 3):
            await queue.send(Message(b"x", priority=priority, recoverable=True))
            clock.advance(10)
    async with await qm.open_queue(TO_ORDERS, Access.RECEIVE) as queue:
        assert await _oldest(qm) == (begin, None)
        await queue.receive(timeout=0)
        assert await _oldest(qm) == (begin, begin + 10)
        await queue.receive_many(2)
    assert await _oldest(qm) == (None, begin)


async def test_what_a_transaction_has_taken_still_counts_and_comes_back(qm, clock):
    await qm.create_queue(ORDERS, transactional=True)
    begin = clock.now
    async with await qm.open_queue(TO_ORDERS, Access.SEND) as queue:
        for _ in range(3):
            await queue.send(Message(b"x"), transaction="single")
            clock.advance(10)
    async with await qm.open_queue(TO_ORDERS, Access.RECEIVE) as queue:
        transaction = qm.transaction()
        await queue.receive(timeout=0, transaction=transaction)
        assert await _oldest(qm) == (begin, None)
        await transaction.abort()
        assert await _oldest(qm) == (begin, None)
        async with qm.transaction() as transaction:
            await queue.receive(timeout=0, transaction=transaction)
        assert await _oldest(qm) == (begin + 10, None)


@pytest.mark.parametrize(("body", "recoverable"), [(b"x", True), (b"x", False), (bytes(LARGE), True)])
async def test_nobody_reads_the_queue_and_it_costs_no_memory(node, clock, body, recoverable):
    qm = node.qm
    await qm.create_queue(ORDERS)
    begin = clock.now
    async with await qm.open_queue(TO_ORDERS, Access.SEND) as queue:
        for _ in range(3):
            await queue.send(Message(body, recoverable=recoverable))
            clock.advance(10)
    if recoverable:
        qm = await node.restart()
    used = qm.context.read_ahead.used
    assert await _oldest(qm) == (begin, None)
    assert qm.context.read_ahead.used == used


@pytest.mark.soak
async def test_the_oldest_of_a_million_costs_less_than_a_millisecond(node):
    await node.qm.create_queue(ORDERS)
    async with await node.qm.open_queue(TO_ORDERS, Access.SEND) as queue:
        for _ in range(1000):
            await queue.send_many([Message(b"x" * 200, recoverable=True)] * 1000)
    async with await node.qm.open_queue(TO_ORDERS, Access.RECEIVE) as queue:
        for _ in range(100):
            await queue.receive_many(1000)
    for state in ("read from memory", "read from the store"):
        queue = node.qm.names.find(ORDERS)
        assert queue.message_count == 900_000
        begin = time.process_time()
        for _ in range(100):
            assert queue.oldest_arrival is not None
        each = (time.process_time() - begin) / 100
        print(f"oldest of 900,000, {state}: {each * 1e6:.0f} us of processor")
        assert each < 0.001
        await node.restart()
