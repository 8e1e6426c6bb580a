"""The dead-letter queue that an application names for a message: MS-MQDMPR 3.1.1.12, ApplicationDeadletterQueue."""

import asyncio

import pytest
from structlog.testing import capture_logs

from qmnode import Access, Message, MessageQueuingError
from qmnode.model.stored_message import PREFIX_SIZE, packet_of, received_message, stored_value
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.user_message import UserMessage

ORDERS = r"DIRECT=OS:.\private$\orders"
ELSEWHERE = r"DIRECT=TCP:127.9.9.9\private$\orders"
GRAVE = r".\private$\undelivered"
DEAD = r"DIRECT=OS:.\system$;DEADLETTER"
DEAD_TRANSACTIONAL = r"DIRECT=OS:.\system$;DEADXACT"


@pytest.fixture
async def orders(qm):
    await qm.create_queue(r".\private$\orders")
    return await qm.open_queue(ORDERS, Access.SEND)


async def bodies(qm, name) -> list[bytes]:
    async with await qm.open_queue(name if "=" in name else f"DIRECT=OS:{name}") as queue:
        try:
            return [message.body for message in await queue.receive_many(1000, timeout=0)]
        except MessageQueuingError:
            return []


async def expire(qm, clock):
    clock.advance(6)
    await qm.store.durable()
    await asyncio.sleep(0)


def dying(body: bytes = b"1", queue: str = GRAVE, **more) -> Message:
    message = Message(body, recoverable=True, time_to_be_received=5, negative_journaling_requested=True, **more)
    return message.copy(application_dead_letter_queue=queue)


async def test_what_dies_goes_to_the_queue_that_it_names_and_says_why(qm, orders, clock):
    await qm.create_queue(GRAVE)
    await orders.send(dying(label="order 7"))
    await expire(qm, clock)
    async with await qm.open_queue(f"DIRECT=OS:{GRAVE}") as grave:
        dead = await grave.receive(timeout=0)
    assert (dead.body, dead.label) == (b"1", "order 7")
    assert dead.message_class == MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT
    assert dead.application_dead_letter_queue == GRAVE
    assert await bodies(qm, DEAD) == []


async def test_it_waits_in_vain_for_another_computer_and_goes_there(qm, clock):
    await qm.create_queue(GRAVE)
    out = await qm.open_queue(ELSEWHERE, Access.SEND)
    await out.send_many([dying(b"recoverable"), dying(b"express").copy(recoverable=False)])
    await expire(qm, clock)
    assert await bodies(qm, GRAVE) == [b"recoverable", b"express"]


async def test_a_transactional_message_goes_to_a_transactional_queue(qm, clock):
    await qm.create_queue(GRAVE, transactional=True)
    await qm.create_queue(r".\private$\ledger", transactional=True)
    ledger = await qm.open_queue(r"DIRECT=OS:.\private$\ledger", Access.SEND)
    await ledger.send(dying(), transaction="single")
    await expire(qm, clock)
    assert await bodies(qm, GRAVE) == [b"1"]
    assert await bodies(qm, DEAD_TRANSACTIONAL) == []


async def test_it_does_not_go_there_unless_it_asks_for_negative_journaling(qm, orders, clock):
    await qm.create_queue(GRAVE)
    await orders.send(
        Message(b"1", recoverable=True, time_to_be_received=5, application_dead_letter_queue=GRAVE),
    )
    await expire(qm, clock)
    assert await bodies(qm, GRAVE) == await bodies(qm, DEAD) == []


async def missing(qm):
    return GRAVE


async def away(qm):
    return r"elsewhere\private$\undelivered"


async def full(qm):
    await qm.create_queue(GRAVE, quota=0)
    return GRAVE


async def of_another_kind(qm):
    await qm.create_queue(GRAVE, transactional=True)
    return GRAVE


async def journal(qm):
    await qm.create_queue(GRAVE, journaling=True)
    return rf"{GRAVE};journal"


async def demanding(qm):
    await qm.create_queue(GRAVE, authentication=True)
    return GRAVE


@pytest.mark.parametrize("make", [missing, away, full, of_another_kind, journal, demanding])
async def test_when_that_queue_cannot_keep_it_the_systems_does_and_the_log_says_why(qm, orders, clock, make):
    await orders.send(dying(queue=await make(qm)))
    with capture_logs() as logs:
        await expire(qm, clock)
    assert await bodies(qm, DEAD) == [b"1"]
    (line,) = (line for line in logs if line["event"] == "a dead letter goes to the queue of the system")
    assert line["reason"]


async def test_a_queue_that_was_made_later_does_not_count(qm, orders, clock):
    """Whether the sender may use a queue is found out when it sends."""
    await orders.send(dying())
    clock.advance(2)
    await qm.create_queue(GRAVE)
    await expire(qm, clock)
    assert (await bodies(qm, GRAVE), await bodies(qm, DEAD)) == ([], [b"1"])


class Nobody:
    def check(self, security, rights, caller):
        return caller == "owner"


async def test_a_sender_who_may_not_send_there_is_refused(qm, orders):
    await qm.create_queue(GRAVE)
    qm.context.access_policy = Nobody()
    for caller, may in (("owner", True), ("other", False)):
        orders.caller = caller
        try:
            await orders.send(dying())
        except MessageQueuingError as error:
            assert (error.code, may) == (ErrorCode.MQ_ERROR_ACCESS_DENIED, False)
        else:
            assert may


async def test_what_is_no_path_name_is_refused(qm, orders):
    with pytest.raises(MessageQueuingError) as caught:
        await orders.send(dying(queue="undelivered"))
    assert caught.value.code == ErrorCode.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME
    assert (await qm.queue(ORDERS)).message_count == 0


async def test_the_name_is_stored_and_the_packet_does_not_have_it(node, orders, clock):
    await node.qm.create_queue(GRAVE)
    await orders.send(dying())
    await node.qm.close()
    qm = await node.start()
    async with await qm.open_queue(ORDERS, Access.PEEK) as queue:
        message = await queue.peek(timeout=0)
        assert message.application_dead_letter_queue == GRAVE
        packet = UserMessage.parse(message.packet)
    assert len(message.packet) == packet.base_header.packet_size
    ((_, value),) = qm.names.find(ORDERS).scan()
    assert packet_of(value) == message.packet
    assert stored_value(received_message(1, value))[PREFIX_SIZE:] == message.packet
    await expire(qm, clock)
    assert await bodies(qm, GRAVE) == [b"1"]


async def test_a_store_is_for_newer_programs_only_from_when_it_has_such_a_message(qm, orders):
    await orders.send(Message(b"1", recoverable=True))
    assert int.from_bytes(qm.store.get_meta("format_version"), "big") == 1
    await orders.send(dying())
    assert int.from_bytes(qm.store.get_meta("format_version"), "big") == 2


async def test_a_received_message_that_is_sent_on_keeps_it(qm, orders, clock):
    await qm.create_queue(GRAVE)
    await qm.create_queue(r".\private$\later")
    await orders.send(dying())
    async with await qm.open_queue(ORDERS) as queue:
        message = await queue.receive(timeout=0)
    later = await qm.open_queue(r"DIRECT=OS:.\private$\later", Access.SEND)
    await later.send(message)
    await expire(qm, clock)
    assert await bodies(qm, GRAVE) == [b"1"]


async def test_a_dead_letter_that_is_purged_there_is_gone(qm, orders, clock):
    await qm.create_queue(GRAVE)
    await orders.send(dying())
    await expire(qm, clock)
    async with await qm.open_queue(f"DIRECT=OS:{GRAVE}") as grave:
        await grave.purge()
    assert await bodies(qm, GRAVE) == await bodies(qm, DEAD) == []
