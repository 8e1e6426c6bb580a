"""Delayed delivery: never early, at its source until then, and an ordinary message afterwards."""

from itertools import pairwise

import pytest

from qmnode import Access, Message
from qmnode.errors import MessageQueuingError
from qmnode.model.message import Acknowledgment
from qmnode.security.access_check import Token
from qmnode.security.principals import QueueAccessPolicy
from qmnode.shares import Kind
from qmnode.storage.verification import verify
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.security_descriptor import (
    ANONYMOUS,
    EVERYONE,
    LOCAL,
    NETWORK,
    Acl,
    QueueAccess,
    SecurityDescriptor,
    allow,
)

ORDERS = r"DIRECT=OS:.\private$\orders"
DELAYED = r"DIRECT=OS:.\private$\delayed$"
DEAD = r"DIRECT=OS:.\SYSTEM$;DEADLETTER"
FAR_AWAY = r"DIRECT=TCP:127.9.9.9\private$\orders"


@pytest.fixture
async def orders(qm):
    await qm.create_queue(r".\private$\orders")
    return await qm.open_queue(ORDERS, Access.SEND)


async def bodies(qm, name: str = ORDERS) -> list[bytes]:
    return [message.body for message in await messages(qm, name)]


async def messages(qm, name: str = ORDERS) -> list[Message]:
    await qm.store.durable()
    access = Access.PEEK_ADMIN if name == FAR_AWAY else Access.PEEK
    async with await qm.open_queue(name, access) as queue:
        found, lookup = [], 0
        while True:
            try:
                found.append(await queue.peek_by_lookup_id(lookup, "next" if lookup else "first"))
            except MessageQueuingError:
                return found
            lookup = found[-1].lookup_identifier


async def test_a_delayed_message_waits_at_its_source_until_its_time(qm, orders, clock):
    identifier = await orders.send(Message(b"later", deliver_at=clock.now + 60))
    clock.advance(59.998)
    assert await bodies(qm) == []
    (waiting,) = await messages(qm, DELAYED)
    assert (waiting.body, waiting.identifier, waiting.delivery_time) == (b"later", identifier, clock.now + 0.002)
    clock.advance(0.002)
    (delivered,) = await messages(qm)
    assert (delivered.body, delivered.identifier, delivered.delivery_time) == (b"later", identifier, 0)
    assert await bodies(qm, DELAYED) == []


async def test_a_delay_counts_from_the_send(qm, orders, clock):
    await orders.send_many([Message(b"second", deliver_in=20), Message(b"now"), Message(b"first", deliver_in=10.5)])
    assert await bodies(qm) == [b"now"]
    clock.advance(10.499)
    assert await bodies(qm) == [b"now"]
    clock.advance(0.001)
    assert await bodies(qm) == [b"now", b"first"]
    clock.advance(10)
    assert await bodies(qm) == [b"now", b"first", b"second"]


async def test_a_time_that_has_passed_is_at_once(qm, orders, clock):
    await orders.send(Message(b"1", deliver_at=clock.now - 5))
    await orders.send(Message(b"2", deliver_at=0, deliver_in=0))
    assert await bodies(qm) == [b"1", b"2"]


@pytest.mark.parametrize(
    "wrong", [{"deliver_at": -1}, {"deliver_in": -1}, {"deliver_in": float("nan")}, {"deliver_in": True},
              {"deliver_at": "noon"}, {"deliver_at": 4e9, "deliver_in": 1}],
)  # fmt: skip
async def test_wrong_times_are_refused(orders, wrong):
    with pytest.raises(MessageQueuingError) as caught:
        await orders.send(Message(b"m", **wrong))
    assert caught.value.code is ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE


async def test_a_clock_that_is_set_back_delivers_nothing_early(qm, orders, clock):
    at = clock.now + 60
    await orders.send(Message(b"m", deliver_at=at))
    clock.advance(30)
    clock.now -= 600
    clock.advance(629)
    assert (clock.now, await bodies(qm)) == (at - 1, [])
    clock.advance(1)
    assert await bodies(qm) == [b"m"]


async def test_express_messages_wait_on_disk_and_what_became_due_meanwhile_is_delivered_after_a_crash(node, clock):
    await node.qm.create_queue(r".\private$\orders")
    async with await node.qm.open_queue(ORDERS, Access.SEND) as queue:
        await queue.send(Message(b"1", deliver_in=60))
        await queue.send(Message(b"2", deliver_in=120))
    await node.crash()
    assert await bodies(node.qm, DELAYED) == [b"1", b"2"]
    clock.now += 61
    qm = await node.restart()
    clock.advance(0)
    (delivered,) = await messages(qm)
    assert (delivered.body, delivered.recoverable) == (b"1", False)
    clock.advance(60)
    assert await bodies(qm) == [b"1", b"2"]


async def test_lifetimes_run_from_the_delivery(qm, orders, clock):
    await orders.send(Message(b"m", recoverable=True, deliver_in=600, time_to_be_received=30))
    clock.advance(600)
    (delivered,) = await messages(qm)
    assert (delivered.sent_time, delivered.arrival_time) == (clock.now, clock.now)
    clock.advance(29)
    assert await bodies(qm) == [b"m"]
    clock.advance(1)
    assert await bodies(qm) == []


async def test_a_message_to_another_machine_waits_here_and_leaves_as_an_ordinary_one(qm, clock):
    async with await qm.open_queue(FAR_AWAY, Access.SEND) as queue, qm.transaction() as transaction:
        await queue.send(Message(b"later", deliver_in=60, time_to_reach_queue=5), transaction)
        await queue.send(Message(b"now", time_to_reach_queue=5), transaction)
    (now,) = await messages(qm, FAR_AWAY)
    assert (now.body, now.first_in_transaction, now.last_in_transaction) == (b"now", True, True)
    clock.advance(60)
    (later,) = await messages(qm, FAR_AWAY)
    assert (later.body, later.first_in_transaction, later.last_in_transaction) == (b"later", True, True)
    assert (later.transaction_sequence_number, later.sent_time) == (2, clock.now)
    assert later.packet.rstrip(b"\0").endswith(b"later")
    clock.advance(5)
    assert await bodies(qm, FAR_AWAY) == []


async def test_the_delay_of_a_transaction_begins_with_its_commit(qm, clock):
    await qm.create_queue(r".\private$\orders", transactional=True)
    async with await qm.open_queue(ORDERS, Access.SEND) as queue:
        transaction = qm.transaction()
        await queue.send(Message(b"30 s", deliver_in=30), transaction)
        await queue.send(Message(b"at 45 s", deliver_at=clock.now + 45), transaction)
        await queue.send(Message(b"now"), transaction)
        await queue.send(Message(b"also 45 s", deliver_at=clock.now + 45), transaction)
        clock.advance(20)
        assert await bodies(qm, DELAYED) == []
        await transaction.commit()
        aborted = qm.transaction()
        await queue.send(Message(b"never", deliver_in=1), aborted)
        await aborted.abort()
    assert await bodies(qm) == [b"now"]
    clock.advance(24.999)
    assert await bodies(qm) == [b"now"]
    clock.advance(0.001)
    assert await bodies(qm) == [b"now", b"at 45 s", b"also 45 s"]
    clock.advance(5)
    assert await bodies(qm) == [b"now", b"at 45 s", b"also 45 s", b"30 s"]
    assert qm.context.queues.delayed.reserved_bytes == 0


async def test_each_queue_of_several_gets_its_copy(qm, clock):
    for name in ("a", "b"):
        await qm.create_queue(rf".\private$\{name}")
    several = r"DIRECT=OS:.\private$\a,DIRECT=OS:.\private$\b"
    async with await qm.open_queue(several, Access.SEND) as queue:
        await queue.send(Message(b"m", deliver_in=5))
    clock.advance(5)
    (one,) = await messages(qm, r"DIRECT=OS:.\private$\a")
    (other,) = await messages(qm, r"DIRECT=OS:.\private$\b")
    assert one.identifier == other.identifier
    assert one.destination_multi_queue_format_name == other.destination_multi_queue_format_name != ""


async def test_what_an_ordinary_send_refuses_is_refused_at_once(qm, orders):
    await qm.set_queue(r".\private$\orders", authentication=True)
    with pytest.raises(MessageQueuingError, match="authenticated"):
        await orders.send(Message(b"m", deliver_in=5))
    with pytest.raises(MessageQueuingError, match="deliver_at or deliver_in"):
        await qm.open_queue(DELAYED, Access.SEND)


@pytest.mark.parametrize("asked", [False, True])
async def test_a_destination_that_is_gone_makes_a_dead_letter_asked_for_or_not(qm, orders, clock, asked):
    await qm.create_queue(r".\private$\answers")
    await orders.send(
        Message(
            b"m", label="x", deliver_in=5, negative_journaling_requested=asked,
            acknowledgements_requested=Acknowledgment.FULL_REACH_QUEUE,
            administration_queue_format_name=r"DIRECT=OS:.\private$\answers",
        )
    )  # fmt: skip
    await qm.delete_queue(r".\private$\orders")
    clock.advance(5)
    (dead,) = await messages(qm, DEAD)
    assert (dead.body, dead.label, dead.message_class) == (b"m", "x", MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q)
    (answer,) = await messages(qm, r"DIRECT=OS:.\private$\answers")
    assert answer.message_class == MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q
    assert await bodies(qm, DELAYED) == []


async def test_a_full_destination_makes_a_dead_letter_which_waits_while_that_queue_is_full_too(qm, orders, clock):
    await orders.send(Message(b"m" * 2000, recoverable=True, deliver_in=5))
    await qm.set_queue(r".\private$\orders", quota=1)
    await qm.set_queue(r".\SYSTEM$;DEADLETTER", quota=1)
    clock.advance(10)
    assert len(await bodies(qm, DELAYED)) == 1
    await qm.set_queue(r".\SYSTEM$;DEADLETTER", quota=100)
    clock.advance(30)
    (dead,) = await messages(qm, DEAD)
    assert dead.message_class == MessageClass.MQMSG_CLASS_NACK_Q_EXCEED_QUOTA
    assert await bodies(qm, DELAYED) == []


async def test_waiting_messages_can_be_cancelled_one_by_one_and_all_together(qm, orders, clock):
    for body in (b"1", b"2", b"3"):
        await orders.send(Message(body, recoverable=True, deliver_in=5, negative_journaling_requested=body == b"3"))
    async with await qm.open_queue(DELAYED) as queue:
        assert (await queue.receive(0)).body == b"1"
        await queue.purge()
    clock.advance(5)
    assert await bodies(qm) == []
    assert qm.store.read_delayed((0, 0), 1 << 62, 10) == []
    (dead,) = await messages(qm, DEAD)
    assert (dead.body, dead.message_class) == (b"3", MessageClass.MQMSG_CLASS_NACK_Q_PURGED)


async def test_a_message_that_somebody_holds_is_delivered_when_it_comes_back(qm, orders, clock):
    await orders.send(Message(b"m", deliver_in=5))
    async with await qm.open_queue(DELAYED) as queue:
        held = await queue.receive_begin(0)
        clock.advance(10)
        assert await bodies(qm) == []
        await queue.receive_end(held.lookup_identifier, delete=False)
    clock.advance(0)
    assert await bodies(qm) == [b"m"]


async def test_many_that_are_due_together_are_delivered_in_their_order(qm, clock):
    await qm.create_queue(r".\private$\orders", transactional=True)
    sent = [b"%d" % number for number in range(450)]
    async with await qm.open_queue(ORDERS, Access.SEND) as queue:
        await queue.send_many([Message(body, deliver_in=5) for body in sent], "single")
    clock.advance(5)
    while qm.context.queues.delayed.message_count:
        await qm.store.durable()
        clock.advance(0)
    assert await bodies(qm) == sent


async def test_a_duplicate_of_a_delayed_message_is_dropped(qm, orders, clock):
    await qm.set_queue(r".\private$\orders", duplicate_window=600)
    for _ in range(2):
        await orders.send_once(Message(b"m", recoverable=True, deliver_in=5), b"i" * 16)
    clock.advance(5)
    assert await bodies(qm) == [b"m"]


async def test_they_have_a_part_of_the_quota(node):
    node.qm.quotas.limit = 4 * 1024 * 1024
    await node.qm.create_queue(r".\private$\orders")
    async with await node.qm.open_queue(ORDERS, Access.SEND) as queue:
        await queue.send(Message(bytes(1_500_000), deliver_in=60))
        with pytest.raises(MessageQueuingError) as caught:
            await queue.send(Message(bytes(1_500_000), deliver_in=60))
        assert caught.value.code is ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES
        await queue.send(Message(bytes(1_500_000)))


def security_for(*who) -> bytes:
    entries = [allow(one, QueueAccess.MQSEC_QUEUE_GENERIC_ALL) for one in who]
    return SecurityDescriptor(owner=LOCAL, group=LOCAL, dacl=Acl.of(*entries)).write()


async def test_a_right_that_is_withdrawn_meanwhile_makes_a_dead_letter(qm, orders, clock):
    qm.context.access_policy = QueueAccessPolicy()
    for name in ("kept", "withdrawn"):
        await qm.create_queue(rf".\private$\{name}", security=security_for(LOCAL))
        async with await qm.open_queue(
            rf"DIRECT=OS:.\private$\{name}", Access.SEND, caller=Token(frozenset({EVERYONE, LOCAL}))
        ) as queue:
            await queue.send(Message(name.encode(), deliver_in=5))
    await qm.set_queue(r".\private$\withdrawn", security=security_for(NETWORK))
    clock.advance(5)
    assert await bodies(qm, r"DIRECT=OS:.\private$\kept") == [b"kept"]
    (dead,) = await messages(qm, DEAD)
    assert (dead.body, dead.message_class) == (b"withdrawn", MessageClass.MQMSG_CLASS_NACK_ACCESS_DENIED)


async def test_strangers_leave_a_reserve_to_others(qm, clock):
    qm.context.access_policy = policy = QueueAccessPolicy()
    qm.quotas.limit = 4 * 1024 * 1024
    await qm.create_queue(r".\private$\orders", security=security_for(EVERYONE, ANONYMOUS))
    sent = {}
    for who in (ANONYMOUS, NETWORK, LOCAL):
        caller = Token(frozenset({who, EVERYONE}))
        sent[policy.kind_of(caller)] = 0
        async with await qm.open_queue(ORDERS, Access.SEND, caller=caller) as queue:
            with pytest.raises(MessageQueuingError, match="delayed messages have used"):
                for _ in range(100):
                    await queue.send(Message(bytes(100_000), deliver_in=60))
                    sent[policy.kind_of(caller)] += 1
    assert sent == {Kind.STRANGER: 10, Kind.DECLARED: 5, Kind.OWN: 5}


async def test_dead_letters_of_strangers_leave_the_reserve_of_the_quota_to_others(qm, clock):
    qm.context.access_policy = QueueAccessPolicy()
    qm.quotas.limit = 4 * 1024 * 1024
    stranger, user = (Token(frozenset({who, EVERYONE})) for who in (ANONYMOUS, LOCAL))
    for _ in range(5):
        await qm.create_queue(r".\private$\orders", security=security_for(EVERYONE, ANONYMOUS))
        async with await qm.open_queue(ORDERS, Access.SEND, caller=stranger) as queue:
            with pytest.raises(MessageQueuingError, match=r"purge|cancel some"):
                while True:
                    await queue.send(Message(bytes(100_000), deliver_in=60))
        await qm.delete_queue(r".\private$\orders")
        clock.advance(60)
    assert 2 / 3 < qm.quotas.used / qm.quotas.limit < 3 / 4
    await qm.create_queue(r".\private$\orders", security=security_for(EVERYONE))
    async with await qm.open_queue(ORDERS, Access.SEND, caller=user) as queue:
        await queue.send(Message(bytes(100_000), deliver_in=60))


async def test_its_packet_on_the_way_is_that_of_an_ordinary_message(qm, clock):
    more = {"label": "order", "acknowledgements_requested": 1, "administration_queue_format_name": ORDERS}
    async with await qm.open_queue(FAR_AWAY, Access.SEND) as queue:
        await queue.send(Message(b"m", application_dead_letter_queue=r".\private$\dead", deliver_in=5, **more))
        clock.advance(5)
        await queue.send(Message(b"m", application_dead_letter_queue=r".\private$\dead", **more))
    delayed, ordinary = await messages(qm, FAR_AWAY)
    number = delayed.packet.index(delayed.identifier[16:])
    assert delayed.packet[:number] + ordinary.identifier[16:] + delayed.packet[number + 4 :] == ordinary.packet
    assert delayed.application_dead_letter_queue == ordinary.application_dead_letter_queue == r".\private$\dead"


async def test_a_duplicate_in_a_transaction_is_dropped_at_the_commit(qm, clock):
    await qm.create_queue(r".\private$\orders", transactional=True, duplicate_window=600)
    async with await qm.open_queue(ORDERS, Access.SEND) as queue, qm.transaction() as transaction:
        for _ in range(2):
            await queue.send_once(Message(b"m", deliver_in=5), b"i" * 16, transaction)
    clock.advance(5)
    assert await bodies(qm) == [b"m"]


async def test_a_backup_of_waiting_messages_is_sound_and_delivers_them(node, clock, tmp_path):
    await node.qm.create_queue(r".\private$\orders")
    async with await node.qm.open_queue(ORDERS, Access.SEND) as queue:
        await queue.send(Message(b"m", deliver_in=5))
        await queue.send(Message(bytes(300_000) + b"large", deliver_in=6))
    node.qm.store.write_checkpoint(tmp_path / "copy")
    assert verify(tmp_path / "copy").findings == []
    await node.qm.close()
    node.path = tmp_path / "copy"
    qm = await node.start()
    clock.advance(6)
    assert [body[-5:] for body in await bodies(qm)] == [b"m", b"large"]


async def test_large_messages_that_are_due_together_are_delivered_a_few_at_a_time(qm, orders, clock, monkeypatch):
    for _ in range(6):
        await orders.send(Message(bytes(600_000), recoverable=True, deliver_in=10))
    waiting, call_later = [6], clock.call_later

    def noted(delay, callback):
        def called():
            callback()
            waiting.append(qm.queue_collection.delayed.message_count)

        return call_later(delay, called)

    monkeypatch.setattr(clock, "call_later", noted)
    clock.advance(11)
    assert waiting[-1] == 0
    assert max(before - after for before, after in pairwise(waiting)) <= 2
    assert len(await bodies(qm)) == 6


async def test_a_dead_letter_queue_made_anew_while_a_message_waits_gets_no_dead_letter_of_it(qm, clock):
    qm.context.access_policy = QueueAccessPolicy()
    caller, letters = Token(frozenset({EVERYONE, LOCAL})), r".\private$\letters"
    await qm.create_queue(r".\private$\orders", security=security_for(EVERYONE))
    await qm.create_queue(letters, security=security_for(EVERYONE))
    async with await qm.open_queue(ORDERS, Access.SEND, caller=caller) as queue:
        await queue.send(
            Message(
                b"m", deliver_in=60, time_to_be_received=1, negative_journaling_requested=True,
                application_dead_letter_queue=letters,
            )
        )  # fmt: skip
    await qm.delete_queue(letters)
    await qm.create_queue(letters, security=security_for(NETWORK))
    clock.advance(60)
    assert await bodies(qm) == [b"m"]
    clock.advance(5)
    assert await bodies(qm, rf"DIRECT=OS:{letters}") == []
    assert await bodies(qm, DEAD) == [b"m"]
