"""Outgoing queues: MS-MQDMPR 3.1.1.3."""

import asyncio
from pathlib import Path

import pytest

from qmnode import Access, Acknowledgment, Message, MessageQueuingError
from qmnode.model.api import QueueType
from qmnode.settings.node import QuotaSettings, Settings
from qmnode.shares import declared
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.error_codes import ErrorCode
from tests.model.conftest import FakeClock, Node

ELSEWHERE = r"DIRECT=OS:beta\private$\orders"
ACKS = r"DIRECT=OS:.\private$\acks"


async def contents(qm, name) -> list[Message]:
    async with await qm.open_queue(name) as queue:
        try:
            return await queue.receive_many(1000, timeout=0)
        except MessageQueuingError:
            return []


async def test_a_message_that_does_not_leave_in_time_is_a_dead_letter_and_refused(qm, clock):
    await qm.create_queue(r".\private$\acks")
    queue = await qm.open_queue(ELSEWHERE, Access.SEND)
    await queue.send(
        Message(
            b"1",
            recoverable=True,
            time_to_reach_queue=30,
            negative_journaling_requested=True,
            administration_queue_format_name=ACKS,
            acknowledgements_requested=Acknowledgment.FULL_REACH_QUEUE,
        )
    )
    clock.advance(31)
    await qm.store.durable()
    (refusal,) = await contents(qm, ACKS)
    (dead,) = await contents(qm, r"DIRECT=OS:.\system$;DEADLETTER")
    assert refusal.message_class == dead.message_class == MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT
    assert (await qm.queue(ELSEWHERE)).message_count == 0


async def test_transactional_messages_are_numbered_when_they_are_committed(node, qm):
    queue = await qm.open_queue(ELSEWHERE, Access.SEND)
    first, second = qm.transaction(), qm.transaction()
    await queue.send(Message(b"2"), transaction=first)
    await queue.send(Message(b"1"), transaction=second)
    await second.commit()
    await first.commit()
    qm = await node.crash()
    queue = await qm.open_queue(ELSEWHERE, Access.SEND)
    await queue.send(Message(b"3"), transaction="single")
    outgoing = qm.names.find(ELSEWHERE)
    from qmnode.model.stored_message import received_message

    messages = [received_message(*entry) for entry in outgoing.scan()]
    numbered = [
        (one.transaction_sequence_number, one.transaction_previous_sequence_number, one.body) for one in messages
    ]
    # What a power cut leaves is made here by copying the store, and a copy begins a newer sequence: the numbers that
    # the original gave out after the copy was made would be taken for duplicates.
    assert numbered == [(1, 0, b"1"), (2, 1, b"2"), (1, 0, b"3")]
    sequences = [int.from_bytes(one.transactional_message_sequence_identifier, "little") for one in messages]
    assert sequences[0] == sequences[1] < sequences[2]


async def test_what_the_other_side_has_goes_and_leaves_a_copy_if_it_asked_for_one(node, qm):
    queue = await qm.open_queue(ELSEWHERE, Access.SEND)
    await queue.send_many(
        [Message(b"1", recoverable=True, positive_journaling_requested=True), Message(b"2", recoverable=True)]
    )
    outgoing = qm.names.find(ELSEWHERE)
    for entry in list(outgoing.scan()):
        outgoing.lock(*entry, None)
        outgoing.transferred(*entry)
    await qm.store.durable()
    qm = await node.crash()
    assert (await qm.queue(ELSEWHERE)).message_count == 0
    assert [message.body for message in await contents(qm, r"DIRECT=OS:.\system$;JOURNAL")] == [b"1"]


async def test_who_transfers_messages_is_told_when_some_have_come(qm):
    queue = await qm.open_queue(ELSEWHERE, Access.SEND)
    told = []
    qm.names.find(ELSEWHERE).subscriber = lambda: told.append(1)
    await queue.send_many([Message(b"1"), Message(b"2")])
    assert told
    told.clear()
    await queue.send(Message(b"3"))
    assert told


async def test_going_offline_and_online(qm):
    assert qm.connection_active
    qm.take_offline()
    assert not qm.connection_active
    qm.bring_online()
    assert qm.connection_active
    await asyncio.sleep(0)


async def test_in_hardened_mode_what_goes_elsewhere_is_locked(tmp_path: Path, clock: FakeClock) -> None:
    async def state() -> str:
        return (await node.qm.queue(ELSEWHERE)).state

    node = Node(tmp_path / "node", clock, Settings(computer_name="ALPHA"))
    qm = await node.start()
    queue = await qm.open_queue(ELSEWHERE, Access.SEND)
    await queue.send(Message(b"waits", recoverable=True))
    assert await state() == "inactive"
    node.settings = Settings(computer_name="ALPHA", hardened_security=True)
    qm = await node.crash()
    assert await state() == "locked"
    queue = await qm.open_queue(r"DIRECT=OS:gamma\private$\q", Access.SEND)
    await queue.send(Message(b"too", recoverable=True))
    assert (await qm.queue(r"DIRECT=OS:gamma\private$\q")).state == "locked"
    await qm.pause_queue(ELSEWHERE)
    await qm.resume_queue(ELSEWHERE)
    assert await state() == "locked"
    with pytest.raises(MessageQueuingError, match="hardened_security") as refused:
        await qm.network.start()
    assert refused.value.code is ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE
    node.settings = Settings(computer_name="ALPHA")
    qm = await node.crash()
    assert await state() == "inactive"
    assert (await qm.queue(ELSEWHERE)).message_count == 1
    await qm.close()


async def test_at_the_limit_an_unused_outgoing_queue_makes_room(tmp_path: Path, clock: FakeClock) -> None:
    settings = Settings(computer_name="ALPHA", quotas=QuotaSettings(outgoing_queues=3))
    node = Node(tmp_path / "node", clock, settings)
    qm = await node.start()
    names = [rf"DIRECT=TCP:198.51.100.{number}\private$\q" for number in range(5)]
    full, held, unused = [await qm.open_queue(name, Access.SEND) for name in names[:3]]
    await full.send(Message(b"waits"))
    await unused.close()
    await full.close()
    another = await qm.open_queue(names[3], Access.SEND)
    with pytest.raises(MessageQueuingError, match="outgoing_queues") as refused:
        await qm.open_queue(names[4], Access.SEND)
    assert refused.value.code is ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES
    kept = [one.pathname for one in qm.queue_collection.values() if one.queue_type is QueueType.OUTGOING]
    assert kept == [names[0], names[1], names[3]]
    await held.close()
    await another.close()
    await qm.close()


async def test_an_outgoing_queue_that_makes_room_takes_no_queue_of_the_same_name_with_it(
    tmp_path: Path, clock: FakeClock
) -> None:
    settings = Settings(computer_name="ALPHA", quotas=QuotaSettings(outgoing_queues=1))
    node = Node(tmp_path / "node", clock, settings)
    qm = await node.start()
    await qm.create_queue(r".\private$\q")
    for number in range(2):
        await (await qm.open_queue(rf"DIRECT=TCP:198.51.100.{number}\private$\q", Access.SEND)).close()
    assert qm.names.find(r".\private$\q").pathname == r"ALPHA\private$\q"
    await qm.close()


async def test_acknowledgments_for_anybody_leave_half_of_the_outgoing_queues(tmp_path: Path, clock: FakeClock) -> None:
    """Messages from elsewhere say where their acknowledgments go: to as many computers as they like."""
    settings = Settings(computer_name="ALPHA", quotas=QuotaSettings(outgoing_queues=10))
    node = Node(tmp_path / "node", clock, settings)
    qm = await node.start()
    for number in range(100):
        name, party = rf"DIRECT=TCP:198.51.100.{number}\private$\q", declared(str(number))
        qm.outcomes.send_internally(name, Message(b"acknowledgment"), party)
    waiting = [one for one in qm.queue_collection.values() if one.queue_type is QueueType.OUTGOING]
    assert [queue.message_count for queue in waiting] == [1] * 5
    qm.outcomes.send_internally(waiting[0].pathname, Message(b"another"))
    assert waiting[0].message_count == 2
    own = [await qm.open_queue(rf"DIRECT=TCP:198.51.100.{number}\private$\q", Access.SEND) for number in range(5)]
    assert len(own) == 5
    await qm.close()


async def test_when_outgoing_queues_are_emptied_acknowledgments_find_one_again(
    tmp_path: Path, clock: FakeClock
) -> None:
    settings = Settings(computer_name="ALPHA", quotas=QuotaSettings(outgoing_queues=2))
    node = Node(tmp_path / "node", clock, settings)
    qm = await node.start()
    names = [rf"DIRECT=TCP:198.51.100.{number}\private$\q" for number in range(3)]
    for name in names:
        qm.outcomes.send_internally(name, Message(b"acknowledgment"), declared(name))
    (first,) = [one for one in qm.queue_collection.values() if one.queue_type is QueueType.OUTGOING]
    entry = first.take()
    assert entry is not None
    first.remove(*entry)
    clock.advance(2)
    qm.outcomes.send_internally(names[2], Message(b"acknowledgment"), declared(names[2]))
    waiting = [one for one in qm.queue_collection.values() if one.queue_type is QueueType.OUTGOING]
    assert [one.pathname for one in waiting if one.message_count] == [names[2]]
    assert len(waiting) <= 2
    await qm.close()
