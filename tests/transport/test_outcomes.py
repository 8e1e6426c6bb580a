"""How a message can end at its destination, and what is left of it: acknowledgments, journals and dead letters, each
once and no other (MS-MQQB 3.1.5.5.4, 3.1.5.7, 3.1.5.8, 3.1.7.2, 3.1.7.15)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import pytest

from qmnode import Access, Message
from qmnode.model.stored_message import received_message
from qmnode.structures.enumerations import MessageClass
from tests.lab.waiting import eventually
from tests.transport.conftest import PLAIN, TRANSACTIONAL, Pair
from tests.transport.test_transfer import nothing_outgoing, send_in_transaction

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from qmnode.model.queue_manager import QueueManager

pytestmark = pytest.mark.slow
ADMIN: Final = r".\private$\admin"
NOWHERE: Final = r".\private$\none"
C = MessageClass
REACHED: Final = C.MQMSG_CLASS_ACK_REACH_QUEUE


async def received(bob: QueueManager, queue: str) -> None:
    async with await bob.open_queue(f"DIRECT=OS:{queue}") as source:
        await source.receive(timeout=60)


async def received_again_after_an_abort(bob: QueueManager, queue: str) -> None:
    async with await bob.open_queue(f"DIRECT=OS:{queue}") as source:
        for end in ("abort", "commit"):
            transaction = bob.transaction()
            await source.receive(timeout=60, transaction=transaction)
            await getattr(transaction, end)()


async def purged(bob: QueueManager, queue: str) -> None:
    async with await bob.open_queue(f"DIRECT=OS:{queue}") as source:
        await source.peek(timeout=60)
        await source.purge()


async def deleted(bob: QueueManager, queue: str) -> None:
    async with await bob.open_queue(f"DIRECT=OS:{queue}") as source:
        await source.peek(timeout=60)
    await bob.delete_queue(queue)


async def left_alone(bob: QueueManager, queue: str) -> None:
    """It ends by itself."""


def left(pair: Pair) -> dict[str, list[MessageClass]]:
    """The classes of what lies in each queue that keeps something of the message."""
    alice, bob = pair.alice, pair.bob
    queues = {
        "told": alice.names.find(ADMIN),
        "journal": alice.journal_queue,
        "dead": alice.queue_collection.dead_letter,
        "dead in a transaction": alice.queue_collection.transactional_dead_letter,
        "waiting": alice.queue_collection.awaiting_final_ack,
        "dead there": bob.queue_collection.dead_letter,
        "dead there in a transaction": bob.queue_collection.transactional_dead_letter,
    }
    found = {
        name: [MessageClass(received_message(*entry).message_class) for entry in queue.scan()]
        for name, queue in queues.items()
    }
    return {name: classes for name, classes in found.items() if classes}


ENDS: Final[list[tuple[Callable[[QueueManager, str], Awaitable[None]], list[MessageClass]]]] = [
    (received, [REACHED, C.MQMSG_CLASS_ACK_RECEIVE]),
    (received_again_after_an_abort, [REACHED, C.MQMSG_CLASS_ACK_RECEIVE]),
    (purged, [REACHED, C.MQMSG_CLASS_NACK_Q_PURGED]),
    (deleted, [REACHED, C.MQMSG_CLASS_NACK_Q_DELETED]),
    (left_alone, [REACHED, C.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT]),
]


async def send(pair: Pair, queue: str, *, transactional: bool, lifetime: int = 0xFFFF_FFFF) -> None:
    """A message that wants everything to be known of it."""
    message = Message(
        b"watched", recoverable=True, acknowledgements_requested=0x0F, time_to_be_received=lifetime,
        administration_queue_format_name=pair.direct("ALICE", ADMIN),
        positive_journaling_requested=True, negative_journaling_requested=True,
    )  # fmt: skip
    if transactional:
        await send_in_transaction(pair.alice, pair.direct("BOB", queue), [message])
    else:
        async with await pair.alice.open_queue(pair.direct("BOB", queue), Access.SEND) as out:
            await out.send(message)


async def ends_with(pair: Pair, expected: dict[str, list[MessageClass]]) -> None:
    """Wait until that is left, and for whatever else may be on its way."""
    await eventually(lambda: left(pair) == expected and nothing_outgoing(pair.alice) and nothing_outgoing(pair.bob))


@pytest.mark.parametrize(
    ("end", "told", "transactional"),
    [
        pytest.param(end, told, transactional, id=f"{end.__name__}-{transactional}")
        for end, told in ENDS
        for transactional in (False, True)
        if transactional or end is not received_again_after_an_abort  # which takes a transaction
    ],
)
async def test_a_message_that_arrived_is_known_to_have_ended_as_it_did(
    pair: Pair, end: Callable[[QueueManager, str], Awaitable[None]], told: list[MessageClass], transactional: bool
) -> None:
    """The source of a transactional message has it in a journal or a dead-letter queue, as it ended. That of another
    message only knows that it arrived: its dead letter is where it was."""
    queue = TRANSACTIONAL if transactional else PLAIN
    await send(pair, queue, transactional=transactional, lifetime=6 if end is left_alone else 0xFFFF_FFFF)
    await end(pair.bob, queue)
    was_read = told[-1] is C.MQMSG_CLASS_ACK_RECEIVE
    expected: dict[str, list[MessageClass]] = {"told": told}
    if transactional:
        expected |= {"journal": [C.MQMSG_CLASS_NORMAL]} if was_read else {"dead in a transaction": told[-1:]}
    else:
        expected |= {"journal": [C.MQMSG_CLASS_NORMAL]} | ({} if was_read else {"dead there": told[-1:]})
    await ends_with(pair, expected)


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("wrong", ["no queue", "another kind"])
async def test_a_message_that_no_queue_takes_is_kept_and_told_of(pair: Pair, wrong: str, transactional: bool) -> None:
    """That there is no queue is told to nobody by default (5.1)."""
    told: list[MessageClass] = []
    reason, queue = C.MQMSG_CLASS_NACK_BAD_DST_Q, NOWHERE
    if wrong == "another kind":
        queue = PLAIN if transactional else TRANSACTIONAL
        reason = C.MQMSG_CLASS_NACK_NOT_TRANSACTIONAL_Q if transactional else C.MQMSG_CLASS_NACK_NOT_TRANSACTIONAL_MSG
        told = [reason]
    await send(pair, queue, transactional=transactional)
    expected = {"told": told} if told else {}
    if transactional:
        expected |= {"dead in a transaction": [reason]}
    else:
        expected |= {"journal": [C.MQMSG_CLASS_NORMAL], "dead there": [reason]}
    await ends_with(pair, expected)


@pytest.mark.parametrize("size", [10, 5_000, 300_000])
async def test_each_destination_of_one_message_has_an_end_of_its_own_at_the_sender(pair: Pair, size: int) -> None:
    """One destination takes it, one is of another kind, and one is not there: nothing of them stays on its way."""
    names = ",".join(pair.direct("BOB", queue) for queue in (TRANSACTIONAL, PLAIN, NOWHERE))
    message = Message(bytes(size), positive_journaling_requested=True, negative_journaling_requested=True)
    await send_in_transaction(pair.alice, names, [message])
    await received(pair.bob, TRANSACTIONAL)
    expected = {
        "journal": {C.MQMSG_CLASS_NORMAL: 1},
        "dead in a transaction": {C.MQMSG_CLASS_NACK_BAD_DST_Q: 1, C.MQMSG_CLASS_NACK_NOT_TRANSACTIONAL_Q: 1},
    }
    await eventually(
        lambda: (
            {name: Counter(classes) for name, classes in left(pair).items()} == expected
            and nothing_outgoing(pair.alice)
        )
    )
    kept = pair.alice.journal_queue, pair.alice.queue_collection.transactional_dead_letter
    for queue in kept:
        async with await pair.alice.open_queue(f"DIRECT=OS:{queue.pathname}") as opened:
            await opened.purge()
    await eventually(lambda: not pair.alice.quotas.used)


async def test_each_message_meets_the_queues_and_rules_of_its_time(pair: Pair) -> None:
    """The destination of the same name is created, made to demand signatures, and deleted between messages."""
    bob = pair.bob

    async def is_dead(count: int) -> None:
        await send(pair, NOWHERE, transactional=False)
        await eventually(lambda: left(pair).get("dead there") == [C.MQMSG_CLASS_NACK_BAD_DST_Q] * count)

    async def arrives() -> None:
        await send(pair, NOWHERE, transactional=False)
        await received(bob, NOWHERE)

    await is_dead(1)
    await bob.create_queue(NOWHERE)
    await arrives()
    await bob.set_queue(NOWHERE, authentication=True)
    await send(pair, NOWHERE, transactional=False)
    await eventually(lambda: bob.names.find(NOWHERE).tally.rejected[C.MQMSG_CLASS_NACK_BAD_SIGNATURE] == 1)
    await bob.set_queue(NOWHERE, authentication=False)
    await arrives()
    await bob.delete_queue(NOWHERE)
    await is_dead(2)
