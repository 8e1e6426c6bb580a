"""Two nodes, and the dead-letter queue that an application names: MS-MQQB 3.1.5.7, 3.1.7.1.2; it does not travel."""

from __future__ import annotations

from qmnode import Access, Message
from qmnode.structures.enumerations import MessageClass
from tests.lab.waiting import eventually
from tests.transport.conftest import PLAIN, TRANSACTIONAL, Pair

GRAVE = r".\private$\undelivered"
TRANSACTIONAL_GRAVE = r".\private$\undelivered in order"


def named(body: bytes, **more: object) -> Message:
    return Message(body, recoverable=True, negative_journaling_requested=True, **more)  # type: ignore[arg-type]


async def test_it_keeps_what_the_other_node_refuses_and_what_does_not_reach_it(pair: Pair) -> None:
    await pair.alice.create_queue(GRAVE)
    await pair.alice.create_queue(TRANSACTIONAL_GRAVE, transactional=True)

    async with await pair.alice.open_queue(pair.direct("BOB", r".\private$\none"), Access.SEND) as nowhere:
        refused = named(b"refused", application_dead_letter_queue=TRANSACTIONAL_GRAVE)
        await nowhere.send(refused, transaction="single")
    grave = await pair.alice.open_queue(f"DIRECT=OS:{TRANSACTIONAL_GRAVE}")
    dead = await grave.receive(timeout=60)
    assert (dead.body, dead.message_class) == (b"refused", MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q)

    await pair.stop("BOB")
    async with await pair.alice.open_queue(pair.direct("BOB", PLAIN), Access.SEND) as out:
        await out.send(named(b"late", application_dead_letter_queue=GRAVE, time_to_reach_queue=1))
    dead = await (await pair.alice.open_queue(f"DIRECT=OS:{GRAVE}")).receive(timeout=60)
    assert (dead.body, dead.message_class) == (b"late", MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT)
    assert not pair.alice.queue_collection.dead_letter.message_count
    assert not pair.alice.queue_collection.transactional_dead_letter.message_count


async def test_the_other_node_gets_the_message_and_not_the_name(pair: Pair) -> None:
    async with await pair.alice.open_queue(pair.direct("BOB", PLAIN), Access.SEND) as out:
        await out.send_many([named(b"%d" % one, application_dead_letter_queue=GRAVE) for one in range(100)])
    async with await pair.alice.open_queue(pair.direct("BOB", TRANSACTIONAL), Access.SEND) as out:
        await out.send_many(
            [named(b"%d" % one, application_dead_letter_queue=GRAVE) for one in range(100)], transaction="single"
        )
    for name in (PLAIN, TRANSACTIONAL):
        queue = await pair.bob.open_queue(f"DIRECT=OS:{name}")
        received = [await queue.receive(timeout=60) for _ in range(100)]
        assert [message.body for message in received] == [b"%d" % one for one in range(100)]
        assert not any(message.application_dead_letter_queue for message in received)
    await eventually(lambda: not pair.alice.queue_collection.awaiting_final_ack.message_count)
