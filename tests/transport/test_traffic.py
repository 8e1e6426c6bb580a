"""What two nodes count of the messages between them, and how long each step took."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from qmnode import Access, Message, QueueManager
from qmnode.structures.enumerations import MessageClass
from tests.lab.waiting import eventually
from tests.transport.conftest import PLAIN, TRANSACTIONAL, Pair, loopback_address
from tests.transport.test_transfer import nothing_outgoing

if TYPE_CHECKING:
    from qmnode.model.traffic import Tally

COUNT = 300


def tally(node: QueueManager, pathname: str) -> Tally:
    queue = node.names.find(pathname)
    return dict(node.traffic.collect(node.queue_collection.values(), 100))[queue.pathname, queue.queue_type.value]


@pytest.mark.parametrize("transactional", [False, True])
async def test_both_sides_count_the_same_messages(pair: Pair, transactional: bool) -> None:
    name = TRANSACTIONAL if transactional else PLAIN
    out = await pair.alice.open_queue(pair.direct("BOB", name), Access.SEND)
    async with pair.alice.transaction() as transaction:
        await out.send_many(
            [Message(b"x" * 100, recoverable=True)] * COUNT, transaction=transaction if transactional else None
        )
    async with await pair.bob.open_queue(f"DIRECT=OS:{name}") as queue:
        for _ in range(COUNT):
            await queue.receive(timeout=60)
    await eventually(lambda: nothing_outgoing(pair.alice))

    sent, there = tally(pair.alice, pair.direct("BOB", name)), tally(pair.bob, name)
    assert (sent.arrived, sent.sent, sent.resent, sent.acknowledged, sent.received) == (COUNT, COUNT, 0, COUNT, 0)
    assert sent.arrived_bytes == sent.sent_bytes == sent.acknowledged_bytes == there.arrived_bytes
    assert (there.arrived, there.received, there.sent) == (COUNT, COUNT, 0)
    assert there.received_bytes == there.arrived_bytes > 100 * COUNT
    trips, waits = pair.alice.traffic.round_trips, pair.alice.traffic.waits
    assert sum(trips.counts) == COUNT
    assert 0 < trips.total < 60 * COUNT
    (outgoing,) = (histogram for histogram in waits.values() if sum(histogram.counts))
    assert (sum(outgoing.counts), sum(outgoing.counts[-4:])) == (COUNT, 0)
    assert outgoing.total > trips.total / 2
    assert sum(pair.bob.traffic.waits[pair.bob.names.find(name).queue_type].counts) == COUNT
    assert sum(pair.bob.store.write_durations.counts) > 0


async def test_what_is_refused_and_what_dies_is_counted_by_its_reason(pair: Pair) -> None:
    for queue, transaction in ((r".\private$\none", None), (PLAIN, "single")):
        out = await pair.alice.open_queue(pair.direct("BOB", queue), Access.SEND)
        await out.send(Message(b"nobody takes it", recoverable=True), transaction=transaction)
        await eventually(lambda: nothing_outgoing(pair.alice))
    nobody = rf"DIRECT=TCP:{loopback_address()}\private$\away"
    out = await pair.alice.open_queue(nobody, Access.SEND)
    await out.send(Message(b"late", time_to_reach_queue=1))
    await eventually(lambda: nothing_outgoing(pair.alice))

    found = dict(pair.bob.traffic.collect(pair.bob.queue_collection.values(), 100))
    others, plain = found["others", "others"], tally(pair.bob, PLAIN)
    assert dict(others.rejected) == {MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q: 1}
    assert dict(plain.rejected) == {MessageClass.MQMSG_CLASS_NACK_NOT_TRANSACTIONAL_Q: 1}
    away = tally(pair.alice, nobody)
    assert dict(away.died) == {MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT: 1}
    assert (away.expired[0], away.acknowledged, plain.arrived) == (1, 0, 0)


async def test_what_a_broken_connection_makes_it_send_again_is_counted(pair: Pair) -> None:
    name = pair.direct("BOB", PLAIN)
    out = await pair.alice.open_queue(name, Access.SEND)
    await out.send_many([Message(b"express: acknowledged only after seconds")] * 10)
    await eventually(lambda: tally(pair.alice, name).sent == 10)
    for connection in list(pair.bob.network.accepted):
        connection.close()
    await eventually(lambda: tally(pair.alice, name).resent == 10)
    counted = tally(pair.alice, name)
    assert (counted.sent, counted.resent_bytes) == (10, counted.sent_bytes)
    await eventually(lambda: tally(pair.bob, PLAIN).arrived == 10)
