"""What follows a message: expiry, journals, dead letters, acknowledgments. MS-MQDMPR 3.1.7.2, MS-MQQB 3.1.7.2."""

import asyncio

import pytest

from qmnode import Access, Acknowledgment, Message, MessageQueuingError
from qmnode.structures.enumerations import MessageClass

ORDERS = r"DIRECT=OS:.\private$\orders"
ACKS = r"DIRECT=OS:.\private$\acks"
DEAD = r"DIRECT=OS:.\system$;DEADLETTER"
DEAD_TRANSACTIONAL = r"DIRECT=OS:.\system$;DEADXACT"
JOURNAL = r"DIRECT=OS:.\system$;JOURNAL"


@pytest.fixture
async def orders(qm):
    await qm.create_queue(r".\private$\orders")
    await qm.create_queue(r".\private$\acks")
    return await qm.open_queue(ORDERS, Access.SEND)


async def contents(qm, name) -> list[Message]:
    async with await qm.open_queue(name) as queue:
        try:
            return await queue.receive_many(1000, timeout=0)
        except MessageQueuingError:
            return []


async def settle(qm):
    """Let what a timer wrote go to disk."""
    await qm.store.durable()
    await asyncio.sleep(0)


async def test_a_message_that_was_not_received_in_time_goes(qm, orders, clock):
    await orders.send_many(
        [
            Message(b"1", recoverable=True, time_to_be_received=10),
            Message(b"2", time_to_be_received=10),
            Message(b"3", recoverable=True),
        ]
    )
    clock.advance(9)
    assert (await qm.queue(ORDERS)).message_count == 3
    clock.advance(2)
    await settle(qm)
    assert (await qm.queue(ORDERS)).message_count == 1
    assert [message.body for message in await contents(qm, ORDERS)] == [b"3"]


async def test_an_expired_message_that_asked_for_it_is_a_dead_letter_with_the_reason(qm, orders, clock):
    await orders.send(
        Message(b"1", label="l", recoverable=True, time_to_be_received=5, negative_journaling_requested=True)
    )
    clock.advance(6)
    await settle(qm)
    (dead,) = await contents(qm, DEAD)
    assert (dead.body, dead.label) == (b"1", "l")
    assert dead.message_class == MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT


async def test_messages_expire_that_were_due_while_the_node_was_down(node, orders, clock):
    await orders.send(Message(b"1", recoverable=True, time_to_be_received=5, negative_journaling_requested=True))
    await node.qm.close()
    clock.advance(60)
    qm = await node.start()
    clock.advance(0)
    await settle(qm)
    assert await contents(qm, ORDERS) == []
    assert len(await contents(qm, DEAD)) == 1


async def test_a_transactional_dead_letter_goes_to_its_own_queue(qm, clock):
    await qm.create_queue(r".\private$\ledger", transactional=True)
    ledger = await qm.open_queue(r"DIRECT=OS:.\private$\ledger", Access.SEND)
    await ledger.send(Message(b"1", time_to_be_received=5, negative_journaling_requested=True), transaction="single")
    clock.advance(6)
    await settle(qm)
    assert len(await contents(qm, DEAD_TRANSACTIONAL)) == 1
    assert await contents(qm, DEAD) == []


async def test_a_message_that_a_transaction_holds_expires_when_it_aborts(qm, clock):
    await qm.create_queue(r".\private$\ledger", transactional=True)
    name = r"DIRECT=OS:.\private$\ledger"
    async with await qm.open_queue(name, Access.SEND) as ledger:
        await ledger.send_many(
            [Message(b"1", time_to_be_received=5), Message(b"2", time_to_be_received=5)], transaction="single"
        )
    receive = await qm.open_queue(name)
    kept, lost = qm.transaction(), qm.transaction()
    assert (await receive.receive(transaction=kept)).body == b"1"
    assert (await receive.receive(transaction=lost)).body == b"2"
    clock.advance(6)
    await settle(qm)
    await kept.commit()
    await lost.abort()
    assert await contents(qm, name) == []


async def test_a_received_message_is_copied_to_the_journal_of_its_queue(node, qm, orders):
    await qm.set_queue(ORDERS, journaling=True)
    await orders.send(Message(b"1", recoverable=True, time_to_be_received=100))
    await contents(qm, ORDERS)
    qm = await node.crash()
    assert (await qm.queue(ORDERS)).journal_message_count == 1
    (copy,) = await contents(qm, ORDERS + ";JOURNAL")
    assert copy.body == b"1"


async def test_a_journal_keeps_to_its_quota(qm, orders):
    await qm.set_queue(ORDERS, journaling=True, journal_quota=3)
    await orders.send_many([Message(bytes(1024)) for _ in range(5)])
    assert len(await contents(qm, ORDERS)) == 5
    assert len(await contents(qm, ORDERS + ";JOURNAL")) == 2
    assert qm.outcomes.journal_copies_dropped == 3


async def test_a_delivered_message_that_asks_for_it_is_in_the_senders_journal(qm, orders):
    await orders.send(Message(b"1", positive_journaling_requested=True))
    assert [message.body for message in await contents(qm, JOURNAL)] == [b"1"]


async def test_acknowledgments_say_that_a_message_arrived_and_was_received(qm, orders):
    sent = await orders.send(
        Message(
            b"1",
            label="l",
            recoverable=True,
            administration_queue_format_name=ACKS,
            acknowledgements_requested=Acknowledgment.POSITIVE_ARRIVAL | Acknowledgment.POSITIVE_RECEIVE,
        )
    )
    await contents(qm, ORDERS)
    arrived, received = await contents(qm, ACKS)
    assert arrived.message_class == MessageClass.MQMSG_CLASS_ACK_REACH_QUEUE
    assert received.message_class == MessageClass.MQMSG_CLASS_ACK_RECEIVE
    for acknowledgment in (arrived, received):
        assert acknowledgment.correlation_identifier == sent
        assert acknowledgment.body == b""
        assert acknowledgment.label == "l"
        assert acknowledgment.recoverable


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("expire", MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT),
        ("purge", MessageClass.MQMSG_CLASS_NACK_Q_PURGED),
        ("delete", MessageClass.MQMSG_CLASS_NACK_Q_DELETED),
    ],
)
async def test_a_refusal_says_why_a_message_was_not_received(qm, orders, clock, how, reason):
    await orders.send(
        Message(
            b"1",
            time_to_be_received=5,
            administration_queue_format_name=ACKS,
            acknowledgements_requested=Acknowledgment.FULL_RECEIVE,
        )
    )
    match how:
        case "expire":
            clock.advance(6)
            await settle(qm)
        case "purge":
            async with await qm.open_queue(ORDERS) as queue:
                await queue.purge()
        case "delete":
            await qm.delete_queue(ORDERS)
    (refusal,) = await contents(qm, ACKS)
    assert refusal.message_class == reason
    assert refusal.body == b"1"


async def test_nothing_is_acknowledged_that_was_not_asked_for(qm, orders):
    await orders.send(Message(b"1", administration_queue_format_name=ACKS))
    await contents(qm, ORDERS)
    assert await contents(qm, ACKS) == []
