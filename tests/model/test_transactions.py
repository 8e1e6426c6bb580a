"""Internal transactions: MS-MQDMPR 3.1.4.3 to 3.1.4.5."""

import pytest

from qmnode import Access, Message, MessageQueuingError, QueueManager
from qmnode.structures.error_codes import ErrorCode

LEDGER = r"DIRECT=OS:.\private$\ledger"


@pytest.fixture
async def ledger(qm):
    await qm.create_queue(r".\private$\ledger", transactional=True)
    return await qm.open_queue(LEDGER, Access.SEND), await qm.open_queue(LEDGER, Access.RECEIVE)


async def bodies(queue):
    found = []
    while True:
        try:
            found.append((await queue.receive(timeout=0)).body)
        except MessageQueuingError as error:
            assert error.code is ErrorCode.MQ_ERROR_IO_TIMEOUT
            return found


async def test_what_is_sent_is_there_when_the_transaction_commits(qm, ledger):
    send, receive = ledger
    async with qm.transaction() as tx:
        await send.send(Message(b"1"), transaction=tx)
        await send.send(Message(b"2"), transaction=tx)
        with pytest.raises(MessageQueuingError):
            await receive.peek(timeout=0)
    messages = await receive.receive_many(10)
    assert [message.body for message in messages] == [b"1", b"2"]
    assert [(message.first_in_transaction, message.last_in_transaction) for message in messages] == [
        (True, False),
        (False, True),
    ]
    assert all(message.transactional and message.recoverable and message.priority == 0 for message in messages)


async def test_an_aborted_transaction_did_nothing(qm, ledger):
    send, receive = ledger
    await send.send_many([Message(b"1"), Message(b"2")], transaction="single")
    tx = qm.transaction()
    await send.send(Message(b"3"), transaction=tx)
    assert (await receive.receive(transaction=tx)).body == b"1"
    assert (await receive.peek()).body == b"2"
    await tx.abort()
    assert await bodies(receive) == [b"1", b"2"]


async def test_a_block_that_raises_aborts(qm, ledger):
    send, receive = ledger
    with pytest.raises(ZeroDivisionError):
        async with qm.transaction() as tx:
            await send.send(Message(b"1"), transaction=tx)
            1 / 0  # noqa: B018
    assert await bodies(receive) == []


async def test_an_ended_transaction_takes_no_more(qm, ledger):
    send, _ = ledger
    tx = qm.transaction()
    await tx.commit()
    for again in (tx.commit(), tx.abort(), send.send(Message(), transaction=tx)):
        with pytest.raises(MessageQueuingError) as error:
            await again
        assert error.value.code is ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE


async def test_uncommitted_work_is_gone_after_a_crash_and_committed_work_stays(node, ledger):
    send, receive = ledger
    await send.send_many([Message(b"1"), Message(b"2"), Message(b"3")], transaction="single")
    done, undone = node.qm.transaction(), node.qm.transaction()
    await receive.receive(transaction=done)
    await receive.receive(transaction=undone)
    await send.send(Message(b"4"), transaction=undone)
    await send.send(Message(b"5"), transaction=done)
    await done.commit()
    qm = await node.crash()
    assert await bodies(await qm.open_queue(LEDGER)) == [b"2", b"3", b"5"]


async def test_a_transactional_queue_takes_only_transactions_and_others_none(qm, ledger):
    send, _ = ledger
    with pytest.raises(MessageQueuingError) as error:
        await send.send(Message())
    assert error.value.code is ErrorCode.MQ_ERROR_TRANSACTION_USAGE
    await qm.create_queue(r".\private$\plain")
    plain = await qm.open_queue(r"DIRECT=OS:.\private$\plain", Access.SEND)
    with pytest.raises(MessageQueuingError) as error:
        await plain.send(Message(), transaction=qm.transaction())
    assert error.value.code is ErrorCode.MQ_ERROR_TRANSACTION_USAGE


async def test_when_one_message_of_several_is_refused_the_transaction_has_none_of_them(qm: QueueManager) -> None:
    await qm.create_queue(r".\private$\t", transactional=True)
    queue = await qm.open_queue(r"DIRECT=OS:.\private$\t", Access.SEND)
    async with qm.transaction() as tx:
        with pytest.raises(MessageQueuingError, match="4 MB"):
            await queue.send_many([Message(b"1"), Message(bytes(5_000_000))], transaction=tx)
        await queue.send_many([Message(b"2"), Message(b"3")], transaction=tx)
    received = await (await qm.open_queue(r"DIRECT=OS:.\private$\t")).receive_many(5, timeout=0)
    assert [(m.body, m.first_in_transaction, m.last_in_transaction) for m in received] == [
        (b"2", True, False),
        (b"3", False, True),
    ]


async def test_a_single_message_that_is_refused_leaves_nothing_behind(qm: QueueManager) -> None:
    names = [f"DIRECT=OS:.\\private$\\{name}" for name in ("small", "large")]
    await qm.create_queue(r".\private$\small", transactional=True, quota=1)
    await qm.create_queue(r".\private$\large", transactional=True)
    for name in (names[0], ",".join(names)):
        async with await qm.open_queue(name, Access.SEND) as queue:
            for messages in ([Message(bytes(4000))], [Message(b"fits"), Message(bytes(4000))]):
                with pytest.raises(MessageQueuingError, match="quota"):
                    await queue.send_many(messages, "single")
    assert qm.transactions == {}
    assert qm.quotas.used == 0


async def test_a_single_message_to_several_queues_leaves_no_transaction_open(qm: QueueManager) -> None:
    for name in ("one", "other"):
        await qm.create_queue(f".\\private$\\{name}", transactional=True)
    both = r"DIRECT=OS:.\private$\one,DIRECT=OS:.\private$\other"
    async with await qm.open_queue(both, Access.SEND) as queue:
        await queue.send(Message(b"1"), "single")
    assert qm.transactions == {}
