"""Messages between two queue managers over sockets: every kind, and what follows them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from qmnode import Access, Message, QueueManager
from qmnode.model.api import QueueApi
from qmnode.model.queue import OutgoingQueue
from qmnode.model.stored_message import NEVER, expiry
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.names import parse_single_format_name
from qmnode.transport.connection import UNSETTLED_BYTES
from tests.lab.waiting import eventually
from tests.transport.conftest import PLAIN, TRANSACTIONAL, Pair

if TYPE_CHECKING:
    from collections.abc import Sequence

JOURNAL = "DIRECT=OS:.\\SYSTEM$;JOURNAL"
DEAD_LETTERS = "DIRECT=OS:.\\SYSTEM$;DEADLETTER"
ADMIN = ".\\private$\\admin"
TRANSACTIONAL_DEAD_LETTERS = "DIRECT=OS:.\\SYSTEM$;DEADXACT"


async def reader(node: QueueManager, queue: str) -> QueueApi:
    return await node.open_queue(queue if queue.startswith("DIRECT") else f"DIRECT=OS:{queue}")


async def bodies(node: QueueManager, queue: str, count: int) -> list[bytes]:
    source = await reader(node, queue)
    return [(await source.receive(timeout=60)).body for _ in range(count)]


def nothing_outgoing(node: QueueManager) -> bool:
    return not any(
        queue.message_count for queue in node.queue_collection.values() if queue.queue_type.value == "outgoing"
    )


async def send_in_transaction(node: QueueManager, name: str, messages: list[Message]) -> None:
    queue = await node.open_queue(name, Access.SEND)
    transaction = node.transaction()
    for message in messages:
        await queue.send(message, transaction=transaction)
    await transaction.commit()


@pytest.mark.parametrize(("sender", "receiver"), [("ALICE", "BOB"), ("BOB", "ALICE")])
@pytest.mark.parametrize("recoverable", [False, True])
async def test_messages_arrive_in_order(pair: Pair, sender: str, receiver: str, recoverable: bool) -> None:
    out = await pair.nodes[sender].open_queue(pair.direct(receiver, PLAIN), Access.SEND)
    sent = [b"%d" % number for number in range(200)]
    for body in sent:
        await out.send(Message(body, recoverable=recoverable))
    assert await bodies(pair.nodes[receiver], PLAIN, 200) == sent
    if recoverable:  # the last few express ones are acknowledged after ten seconds only (3.1.5.8.7)
        await eventually(lambda: nothing_outgoing(pair.nodes[sender]))


@pytest.mark.parametrize(("sender", "receiver"), [("ALICE", "BOB"), ("BOB", "ALICE")])
async def test_transactions_arrive_whole_and_in_order(pair: Pair, sender: str, receiver: str) -> None:
    sent = [b"%d" % number for number in range(100)]
    for start in range(0, 100, 10):
        batch = [Message(body) for body in sent[start : start + 10]]
        await send_in_transaction(pair.nodes[sender], pair.direct(receiver, TRANSACTIONAL), batch)
    assert await bodies(pair.nodes[receiver], TRANSACTIONAL, 100) == sent
    await eventually(lambda: nothing_outgoing(pair.nodes[sender]))


async def test_messages_wait_for_a_target_that_is_away(pair: Pair) -> None:
    await pair.stop("BOB")
    out = await pair.alice.open_queue(pair.direct("BOB", PLAIN), Access.SEND)
    for number in range(300):
        await out.send(Message(b"%d" % number, recoverable=True))
    await send_in_transaction(pair.alice, pair.direct("BOB", TRANSACTIONAL), [Message(b"a"), Message(b"b")])
    await pair.start("BOB")
    assert await bodies(pair.bob, PLAIN, 300) == [b"%d" % number for number in range(300)]
    assert await bodies(pair.bob, TRANSACTIONAL, 2) == [b"a", b"b"]
    await eventually(lambda: nothing_outgoing(pair.alice))


async def test_large_messages_are_in_memory_a_few_at_a_time(pair: Pair) -> None:
    await pair.stop("BOB")
    out = await pair.alice.open_queue(pair.direct("BOB", PLAIN), Access.SEND)
    body, count = bytes(1 << 20), 48
    for _ in range(count):
        await out.send(Message(body, recoverable=True))
    waiting = next(queue for queue in pair.alice.queue_collection.values() if queue.message_count)
    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, sum(len(position.value) for position in waiting.locked.values()))
            await asyncio.sleep(0)

    watching = asyncio.create_task(watch())
    await pair.start("BOB")
    await eventually(lambda: nothing_outgoing(pair.alice))
    watching.cancel()
    assert len(await bodies(pair.bob, PLAIN, count)) == count
    assert 0 < most < 2 * UNSETTLED_BYTES  # what the receiver has not written, and a few


async def test_higher_priorities_go_first(pair: Pair) -> None:
    await pair.stop("BOB")
    out = await pair.alice.open_queue(pair.direct("BOB", PLAIN), Access.SEND)
    for priority in (1, 7, 3):
        await out.send(Message(b"%d" % priority, priority=priority, recoverable=True))
    await pair.start("BOB")
    assert await bodies(pair.bob, PLAIN, 3) == [b"7", b"3", b"1"]


async def read_and_acknowledged(pair: Pair, asked: Message, queues: Sequence[str]) -> None:
    """A message from Alice is read by Bob, and each of these queues of hers is told both."""
    out = await pair.alice.open_queue(pair.direct("BOB", PLAIN), Access.SEND)
    await out.send(asked)
    assert await bodies(pair.bob, PLAIN, 1) == [asked.body]
    for name in queues:
        admin = await reader(pair.alice, name)
        classes = [(await admin.receive(timeout=60)).message_class for _ in range(2)]
        assert classes == [MessageClass.MQMSG_CLASS_ACK_REACH_QUEUE, MessageClass.MQMSG_CLASS_ACK_RECEIVE]


async def test_both_administration_acknowledgments_come_and_no_other(pair: Pair) -> None:
    name = pair.direct("ALICE", ADMIN)
    asked = Message(b"asked", recoverable=True, acknowledgements_requested=0x0F, administration_queue_format_name=name)
    await read_and_acknowledged(pair, asked, [ADMIN])
    await eventually(lambda: nothing_outgoing(pair.bob))
    assert (await pair.alice.queue(r".\private$\admin")).message_count == 0


async def test_every_administration_queue_of_a_list_gets_every_acknowledgment(pair: Pair) -> None:
    await pair.alice.create_queue(r".\private$\more")
    queues = (ADMIN, r".\private$\more")
    names = ",".join(pair.direct("ALICE", name) for name in queues)
    asked = Message(
        b"asked", recoverable=True, acknowledgements_requested=0x0F, administration_multi_queue_format_name=names
    )
    await read_and_acknowledged(pair, asked, queues)


async def test_positive_source_journaling(pair: Pair) -> None:
    out = await pair.alice.open_queue(pair.direct("BOB", PLAIN), Access.SEND)
    await out.send(Message(b"plain", recoverable=True, positive_journaling_requested=True))
    assert await bodies(pair.alice, JOURNAL, 1) == [b"plain"]

    name = pair.direct("BOB", TRANSACTIONAL)
    await send_in_transaction(pair.alice, name, [Message(b"tx", positive_journaling_requested=True)])
    assert await bodies(pair.bob, TRANSACTIONAL, 1) == [b"tx"]
    assert await bodies(pair.alice, JOURNAL, 1) == [b"tx"]
    assert not pair.alice.queue_collection.awaiting_final_ack.message_count


async def test_operators_see_how_far_transactional_messages_are(pair: Pair) -> None:
    """What waits for its order acknowledgment, and what arrived and was not read yet."""
    name = pair.direct("BOB", TRANSACTIONAL)
    out = pair.alice.opening.find(parse_single_format_name(name), Access.SEND)
    assert isinstance(out, OutgoingQueue)
    watched = [Message(b"%d" % number, positive_journaling_requested=True) for number in range(3)]
    await send_in_transaction(pair.alice, name, [*watched, Message(b"unwatched")])
    transfer = pair.alice.network.transfer_information
    await eventually(lambda: transfer(out).unread_count == 3)
    told = transfer(out)
    assert told.last_acknowledged is not None
    assert (told.last_acknowledged.number, told.next.number, told.unacknowledged_count) == (4, 5, 0)
    assert (told.resend_time, told.resend_count) == (0, 0)
    assert told.acknowledgment_count > 0
    assert abs(told.last_acknowledged_time - pair.alice.clock.time()) < 60
    await bodies(pair.bob, TRANSACTIONAL, 2)
    await eventually(lambda: transfer(out).unread_count == 1)
    await pair.stop("ALICE")
    await pair.start("ALICE")
    out = pair.alice.opening.find(parse_single_format_name(name), Access.SEND)
    assert isinstance(out, OutgoingQueue)
    assert pair.alice.network.transfer_information(out).unread_count == 1
    await bodies(pair.bob, TRANSACTIONAL, 2)
    await eventually(lambda: pair.alice.network.transfer_information(out).unread_count == 0)


async def test_operators_see_when_transactional_messages_are_sent_again(pair: Pair) -> None:
    name = pair.direct("BOB", TRANSACTIONAL)
    pair.bob.network.notices.order = lambda acknowledgment: None  # lost on its way
    await send_in_transaction(pair.alice, name, [Message(b"1"), Message(b"2")])
    out = pair.alice.opening.find(parse_single_format_name(name), Access.SEND)
    assert isinstance(out, OutgoingQueue)
    await bodies(pair.bob, TRANSACTIONAL, 2)
    told = pair.alice.network.transfer_information(out)
    assert told.first_unacknowledged is not None and told.last_unacknowledged is not None
    places = told.first_unacknowledged.number, told.last_unacknowledged.number, told.unacknowledged_count
    assert (*places, told.last_acknowledged) == (1, 2, 2, None)
    assert told.resend_interval == 30
    assert 0 < told.resend_time - pair.alice.clock.time() <= 30


async def test_a_transactional_message_is_in_the_journal_only_after_it_was_received(pair: Pair) -> None:
    name = pair.direct("BOB", TRANSACTIONAL)
    await send_in_transaction(pair.alice, name, [Message(b"tx", positive_journaling_requested=True)])
    await eventually(lambda: pair.alice.queue_collection.awaiting_final_ack.message_count == 1)
    assert not pair.alice.journal_queue.message_count
    assert await bodies(pair.bob, TRANSACTIONAL, 1) == [b"tx"]
    assert await bodies(pair.alice, JOURNAL, 1) == [b"tx"]


@pytest.mark.parametrize("lifetime", ["time_to_reach_queue", "time_to_be_received"])
async def test_a_message_that_arrived_does_not_expire_at_its_source(pair: Pair, lifetime: str) -> None:
    """It would be a dead letter there, and be read at its destination."""
    sent = Message(b"tx", positive_journaling_requested=True, negative_journaling_requested=True, **{lifetime: 600})
    await send_in_transaction(pair.alice, pair.direct("BOB", TRANSACTIONAL), [sent])
    waiting = pair.alice.queue_collection.awaiting_final_ack
    await eventually(lambda: waiting.message_count == 1)
    assert [expiry(value) for _, value in waiting.scan()] == [NEVER]
    there = [expiry(value) for _, value in pair.bob.names.find(TRANSACTIONAL).scan()]
    assert (there == [NEVER]) is (lifetime == "time_to_reach_queue")
    assert await bodies(pair.bob, TRANSACTIONAL, 1) == [b"tx"]
    assert await bodies(pair.alice, JOURNAL, 1) == [b"tx"]


async def test_a_transactional_message_to_no_queue_is_a_dead_letter_of_its_source(pair: Pair) -> None:
    name = pair.direct("BOB", r".\private$\none")
    await send_in_transaction(pair.alice, name, [Message(b"tx", negative_journaling_requested=True)])
    dead = await reader(pair.alice, TRANSACTIONAL_DEAD_LETTERS)
    message = await dead.receive(timeout=60)
    assert (message.body, message.message_class) == (b"tx", MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q)
    await eventually(lambda: nothing_outgoing(pair.alice))
    assert not pair.alice.queue_collection.awaiting_final_ack.message_count


async def test_a_message_that_expires_on_its_way_is_a_dead_letter_and_is_acknowledged(pair: Pair) -> None:
    await pair.stop("BOB")
    out = await pair.alice.open_queue(pair.direct("BOB", PLAIN), Access.SEND)
    await out.send(
        Message(
            b"late",
            recoverable=True,
            time_to_reach_queue=1,
            negative_journaling_requested=True,
            acknowledgements_requested=0x0F,
            administration_queue_format_name=r"DIRECT=OS:.\private$\admin",
        )
    )
    assert await bodies(pair.alice, DEAD_LETTERS, 1) == [b"late"]
    admin = await reader(pair.alice, r".\private$\admin")
    acknowledgment = await admin.receive(timeout=60)
    assert acknowledgment.message_class == MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT
    await pair.start("BOB")
    assert (await pair.bob.queue(PLAIN)).message_count == 0


async def test_a_paused_queue_holds_its_messages(pair: Pair) -> None:
    name = pair.direct("BOB", PLAIN)
    out = await pair.alice.open_queue(name, Access.SEND)
    await out.send(Message(b"before", recoverable=True))
    await eventually(lambda: nothing_outgoing(pair.alice))
    await pair.alice.pause_queue(name)
    await out.send(Message(b"held", recoverable=True))
    await pair.stop("ALICE")
    await pair.start("ALICE")
    information = await pair.alice.queue(name)
    assert (information.state, information.message_count) == ("on hold", 1)
    await pair.alice.resume_queue(name)
    assert await bodies(pair.bob, PLAIN, 2) == [b"before", b"held"]


async def test_operators_see_state_next_hop_history_and_connections(pair: Pair) -> None:
    name = pair.direct("BOB", PLAIN)
    out = await pair.alice.open_queue(name, Access.SEND)
    await out.send(Message(b"seen", recoverable=True))
    assert await bodies(pair.bob, PLAIN, 1) == [b"seen"]
    information = await pair.alice.queue(name)
    assert (information.state, information.next_hops) == ("connected", (pair.addresses["BOB"],))
    (outgoing,) = pair.alice.network.connections()
    (incoming,) = pair.bob.network.connections()
    assert (outgoing.incoming, incoming.incoming) == (False, True)
    assert outgoing.queue_manager_identifier == pair.bob.identifier
    assert (outgoing.sent_messages, incoming.received_messages) == (1, 1)
    assert incoming.address.rpartition(":")[0] == pair.addresses["ALICE"]


@pytest.mark.parametrize("transactional", [False, True])
async def test_a_queue_that_is_full_refuses_and_what_comes_behind_fits_again(pair: Pair, transactional: bool) -> None:
    await pair.bob.create_queue(r".\private$\small", transactional=transactional, quota=4)
    name, admin = pair.direct("BOB", r".\private$\small"), pair.direct("ALICE", r".\private$\admin")

    async def send(body: bytes) -> None:
        message = Message(
            body, recoverable=True, negative_journaling_requested=True, acknowledgements_requested=0x04,
            administration_queue_format_name=admin, time_to_be_received=600,
        )  # fmt: skip
        if transactional:
            await send_in_transaction(pair.alice, name, [message])
        else:
            out = await pair.alice.open_queue(name, Access.SEND)
            await out.send(message)

    for body in (b"1" * 2500, b"2" * 2500, b"3"):
        await send(body)
    keeper, grave = (pair.alice, TRANSACTIONAL_DEAD_LETTERS) if transactional else (pair.bob, DEAD_LETTERS)
    queues = keeper.queue_collection
    graveyard = queues.transactional_dead_letter if transactional else queues.dead_letter
    await eventually(lambda: graveyard.message_count == 1)
    assert [expiry(value) for _, value in graveyard.scan()] == [NEVER]
    dead = await (await reader(keeper, grave)).receive(timeout=60)
    assert (dead.body, dead.message_class) == (b"2" * 2500, MessageClass.MQMSG_CLASS_NACK_Q_EXCEED_QUOTA)
    told = await (await reader(pair.alice, r".\private$\admin")).receive(timeout=60)
    assert told.message_class == MessageClass.MQMSG_CLASS_NACK_Q_EXCEED_QUOTA
    assert await bodies(pair.bob, r".\private$\small", 2) == [b"1" * 2500, b"3"]
    await send(b"4" * 2500)
    assert await bodies(pair.bob, r".\private$\small", 1) == [b"4" * 2500]
