"""Subqueues, moving, poison messages, quotas: MS-MQDMPR 3.1.7.1.16 and 3.1.7.1.9."""

from pathlib import Path

import pytest

from qmnode import Access, Message, MessageQueuingError, Settings
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.error_codes import ErrorCode
from tests.model.conftest import Node

LEDGER = r"DIRECT=OS:.\private$\ledger"
DONE = LEDGER + ";done"


async def failure(awaitable) -> MessageQueuingError:
    with pytest.raises(MessageQueuingError) as error:
        await awaitable
    return error.value


@pytest.fixture
async def ledger(qm):
    await qm.create_queue(r".\private$\ledger", transactional=True)
    async with await qm.open_queue(LEDGER, Access.SEND) as send:
        await send.send_many([Message(b"1"), Message(b"2"), Message(b"3")], transaction="single")
    return await qm.open_queue(LEDGER)


async def test_a_moved_message_keeps_its_place_and_counts_its_moves(node, qm, ledger):
    done = await qm.open_queue(DONE, Access.MOVE)
    messages = [await ledger.peek_by_lookup_id(seek=seek) for seek in ("last", "first")]
    for message in messages:
        await ledger.move(message.lookup_identifier, done)
    qm = await node.crash()
    moved = await (await qm.open_queue(DONE)).receive_many(9)
    assert [(message.body, message.move_count) for message in moved] == [(b"1", 1), (b"3", 1)]
    assert [message.lookup_identifier for message in moved] == [one.lookup_identifier for one in messages[::-1]]
    assert (await qm.queue(LEDGER)).message_count == 1
    assert (await qm.queue(LEDGER)).subqueues == ("done",)


async def test_a_move_in_a_transaction_happens_when_it_commits(qm, ledger):
    done = await qm.open_queue(DONE, Access.MOVE)
    first = await ledger.peek()
    aborted = qm.transaction()
    await ledger.move(first.lookup_identifier, done, transaction=aborted)
    assert (await ledger.peek()).body == b"2"
    await aborted.abort()
    assert (await ledger.peek()).body == b"1"
    async with qm.transaction() as tx:
        await ledger.move(first.lookup_identifier, done, transaction=tx)
        assert (await qm.queue(DONE[10:])).message_count == 0
    assert (await qm.queue(DONE[10:])).message_count == 1


async def test_messages_move_only_within_their_queue(qm, ledger):
    await qm.create_queue(r".\private$\other")
    other = await qm.open_queue(r"DIRECT=OS:.\private$\other", Access.MOVE)
    first = await ledger.peek()
    assert (await failure(ledger.move(first.lookup_identifier, other))).code is ErrorCode.MQ_ERROR_INVALID_PARAMETER
    assert (await failure(ledger.move(first.lookup_identifier, ledger))).code is ErrorCode.MQ_ERROR_ACCESS_DENIED
    done = await qm.open_queue(DONE, Access.MOVE)
    assert (await failure(ledger.move(1, done))).code is ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND


async def _abort_receives(qm, queue, times):
    for _ in range(times):
        tx = qm.transaction()
        await queue.receive(transaction=tx)
        await tx.abort()


async def test_by_default_a_message_that_is_never_accepted_stays_first(qm, ledger):
    await _abort_receives(qm, ledger, 300)
    assert (await ledger.peek()).body == b"1"
    assert (await ledger.peek()).aborted_receives == 255


@pytest.mark.parametrize(
    ("target", "place"), [("subqueue", LEDGER + ";poison"), ("dead-letter", r"DIRECT=OS:.\system$;DEADXACT")]
)
async def test_a_poison_message_is_moved_away(tmp_path: Path, clock, target, place):
    node = Node(tmp_path / "p", clock, Settings(computer_name="ALPHA", poison={"aborts": 3, "target": target}))
    qm = await node.start()
    await qm.create_queue(r".\private$\ledger", transactional=True)
    async with await qm.open_queue(LEDGER, Access.SEND) as send:
        await send.send_many([Message(b"1"), Message(b"2")], transaction="single")
    queue = await qm.open_queue(LEDGER)
    await _abort_receives(qm, queue, 2)
    qm = await node.crash()
    queue = await qm.open_queue(LEDGER)
    await _abort_receives(qm, queue, 1)
    assert (await queue.peek()).body == b"2"
    poison = await (await qm.open_queue(place)).peek(timeout=0)
    assert (poison.body, poison.aborted_receives) == (b"1", 3)
    if target == "dead-letter":
        assert poison.message_class == MessageClass.MQMSG_CLASS_NACK_RECEIVE_REJECTED
    await qm.close()


async def test_a_queue_takes_no_more_than_its_quota_and_says_so(qm):
    await qm.create_queue(r".\private$\small", quota=3, transactional=True)
    name = r"DIRECT=OS:.\private$\small"
    send = await qm.open_queue(name, Access.SEND)
    tx = qm.transaction()
    await send.send(Message(bytes(1024)), transaction=tx)
    await send.send(Message(bytes(1024)), transaction="single")
    error = await failure(send.send(Message(bytes(1024)), transaction="single"))
    assert error.code is ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES
    assert r"private$\small, 3 KB" in error.sentence
    await tx.abort()
    await send.send(Message(bytes(1024)), transaction="single")
    async with await qm.open_queue(name) as receive:
        await receive.receive_many(2)
    await send.send(Message(bytes(1024)), transaction="single")


async def test_a_batch_over_the_quota_is_refused_as_a_whole(qm):
    await qm.create_queue(r".\private$\small", quota=3)
    send = await qm.open_queue(r"DIRECT=OS:.\private$\small", Access.SEND)
    await failure(send.send_many([Message(bytes(1024)) for _ in range(3)]))
    assert (await qm.queue(r".\private$\small")).message_count == 0


async def test_the_quota_of_the_queue_manager_is_in_kilobytes(tmp_path: Path, clock):
    node = Node(tmp_path / "q", clock, Settings(computer_name="ALPHA", quotas={"queue_manager_quota": 8}))
    qm = await node.start()
    await qm.create_queue(r".\private$\a")
    send = await qm.open_queue(r"DIRECT=OS:.\private$\a", Access.SEND)
    await send.send_many([Message(bytes(1024), recoverable=True) for _ in range(6)])
    error = await failure(send.send(Message(bytes(1024))))
    assert "8 KB" in error.sentence
    qm = await node.crash()
    send = await qm.open_queue(r"DIRECT=OS:.\private$\a", Access.SEND)
    await failure(send.send(Message(bytes(1024))))
    async with await qm.open_queue(r"DIRECT=OS:.\private$\a") as receive:
        await receive.purge()
    await send.send(Message(bytes(1024)))
    await qm.close()
