"""What a reader held or waited for when it went away: MS-MQDMPR 3.1.7.1.6, 3.1.7.1.11, 3.1.7.3.1."""

import asyncio

import pytest

from qmnode import Access, Message, MessageQueuingError
from qmnode.structures.error_codes import ErrorCode

ORDERS = r"DIRECT=OS:.\private$\orders"
LEDGER = r"DIRECT=OS:.\private$\ledger"


@pytest.fixture
async def orders(qm):
    await qm.create_queue(r".\private$\orders")
    async with await qm.open_queue(ORDERS, Access.SEND) as send:
        await send.send_many([Message(b"1", recoverable=True), Message(b"2", recoverable=True)])
    return await qm.open_queue(ORDERS)


@pytest.fixture
async def ledger(qm):
    await qm.create_queue(r".\private$\ledger", transactional=True)
    return await qm.open_queue(LEDGER)


async def passes() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_closing_a_queue_gives_back_what_a_two_phase_read_holds(qm, orders):
    reader = await qm.open_queue(ORDERS)
    assert (await reader.receive_begin()).body == b"1"
    await reader.close()
    assert [one.body for one in await orders.receive_many(9, timeout=0)] == [b"1", b"2"]


async def test_closing_a_queue_deletes_what_was_purged_while_a_two_phase_read_held_it(qm, orders):
    reader = await qm.open_queue(ORDERS)
    await reader.receive_begin()
    await orders.purge()
    await reader.close()
    assert (await qm.queue(ORDERS)).message_count == 0


async def test_closing_a_queue_leaves_alone_what_another_two_phase_read_holds(qm, orders):
    reader = await qm.open_queue(ORDERS)
    first = await orders.receive_begin()
    assert (await reader.receive_begin()).body == b"2"
    await reader.close()
    await orders.receive_end(first.lookup_identifier, delete=True)
    assert [one.body for one in await orders.receive_many(9, timeout=0)] == [b"2"]


@pytest.mark.parametrize("commit", [True, False])
async def test_a_read_that_waits_in_a_transaction_ends_with_it(qm, ledger, commit):
    transaction = qm.transaction()
    waiting = asyncio.create_task(ledger.receive(transaction=transaction))
    await passes()
    await (transaction.commit() if commit else transaction.abort())
    async with await qm.open_queue(LEDGER, Access.SEND) as send:
        await send.send(Message(b"1"), transaction="single")
    with pytest.raises(MessageQueuingError) as error:
        await asyncio.wait_for(waiting, 30)
    assert error.value.code is ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE
    assert (await ledger.receive(timeout=0)).body == b"1"


async def test_a_message_given_back_by_a_cancelled_read_is_on_disk_before_anyone_sees_it(node, qm, orders):
    reading = asyncio.create_task(orders.receive())
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert (await orders.peek()).body == b"1"
    qm = await node.crash()
    assert [one.body for one in await (await qm.open_queue(ORDERS)).receive_many(9)] == [b"1", b"2"]


async def test_a_move_to_a_subqueue_that_is_deleted_before_the_commit_leaves_the_message_where_it_was(qm, ledger):
    async with await qm.open_queue(LEDGER, Access.SEND) as send:
        await send.send(Message(b"1"), transaction="single")
    side = await qm.open_queue(LEDGER + ";side", Access.MOVE)
    transaction = qm.transaction()
    await ledger.move((await ledger.peek()).lookup_identifier, side, transaction=transaction)
    await qm.delete_queue(r".\private$\ledger;side")
    await transaction.commit()
    assert (await ledger.receive(timeout=0)).body == b"1"


async def test_what_an_aborted_transaction_gives_back_at_the_stop_is_not_received_any_more(node, qm, ledger):
    async with await qm.open_queue(LEDGER, Access.SEND) as send:
        await send.send(Message(b"1"), transaction="single")
    transaction = qm.transaction()
    await ledger.receive(transaction=transaction)
    waiting = asyncio.create_task(ledger.receive())
    await passes()
    qm = await node.restart()
    with pytest.raises(MessageQueuingError) as error:
        await waiting
    assert error.value.code is ErrorCode.MQ_ERROR_OPERATION_CANCELLED
    assert (await (await qm.open_queue(LEDGER)).receive(timeout=0)).body == b"1"


async def test_a_read_that_waits_at_a_journal_ends_with_the_queue_manager(node, qm):
    await qm.create_queue(r".\private$\kept", journaling=True)
    async with await qm.open_queue(r"DIRECT=OS:.\private$\kept", Access.SEND) as send:
        await send.send(Message(b"1"))
    async with await qm.open_queue(r"DIRECT=OS:.\private$\kept") as kept:
        await kept.receive()
    journal = await qm.open_queue(r"DIRECT=OS:.\private$\kept;JOURNAL")
    await journal.receive()
    waiting = asyncio.create_task(journal.receive())
    await passes()
    await node.restart()
    with pytest.raises(MessageQueuingError, match="closed"):
        await asyncio.wait_for(waiting, 30)
