"""Messages that come and go together are counted, ordered and indexed as those that do so one by one."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from qmnode import Access, Message, MessageQueuingError
from qmnode.model.open_queue import OpenQueueDescriptor
from qmnode.model.ports import Arrived, Entry
from qmnode.model.positions import Lane, ReadAhead, WaitingRead, insert_lent, insert_many, take_received
from qmnode.model.stored_message import PREFIX_SIZE, Room
from qmnode.settings.node import ReadAheadSettings
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.names import parse_single_format_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from qmnode.model.queue import Queue
    from qmnode.node import QueueManager
    from tests.model.conftest import FakeClock

NAMES = (r".\private$\many", r".\private$\each")  # of one length, as packets contain them
COUNT = 120


def some_message(dice: random.Random, number: int, *, alike: bool) -> Message:
    if alike:
        return Message(bytes(10), recoverable=True, app_specific=number)
    return Message(
        bytes(dice.choice([0, 5, 3000])),
        recoverable=dice.random() < 0.6,
        app_specific=number,
        priority=dice.choice([0, 3, 3, 3, 7]),
        negative_journaling_requested=dice.random() < 0.3,
        time_to_be_received=dice.choice([0xFFFFFFFF, 0xFFFFFFFF, 20, 90_000]),
    )


def counted(queue: Queue) -> list[object]:
    tally = queue.tally
    lanes = [(lane.index, lane.count, lane.express_count) for lane in queue.lanes if lane is not None]
    return [
        queue.message_count, queue.total_bytes, queue.express_bytes, queue.loss_reports, lanes, tally.arrived,
        tally.arrived_bytes, tally.received + len(tally.gone_since), tally.received_bytes,
    ]  # fmt: skip


def indexed(qm: QueueManager, queue: Queue) -> int:
    """Entries of messages of their own in the index of what expires."""
    qm.store.make_visible()
    return sum(number == queue.queue_id for _, number, _ in qm.store.read_expiry((0, 0, 0), 0xFFFFFFFF, 1000))


@pytest.mark.parametrize("alike", [True, False], ids=["alike", "varied"])
@pytest.mark.parametrize("seed", range(4))
async def test_messages_count_together_as_they_do_alone(
    qm: QueueManager, clock: FakeClock, seed: int, alike: bool
) -> None:
    dice = random.Random(seed)
    messages = [some_message(dice, number, alike=alike) for number in range(COUNT)]
    for name in NAMES:
        await qm.create_queue(name)
    formats = [f"DIRECT=OS:{name}" for name in NAMES]
    together, alone = [qm.names.local(parse_single_format_name(name)) for name in formats]
    assert together is not None
    assert alone is not None
    senders = [await qm.open_queue(name, Access.SEND) for name in formats]
    readers = [await qm.open_queue(name, Access.RECEIVE) for name in formats]

    async def receive(most: int) -> None:
        most = min(most, together.message_count)
        taken = await readers[0].receive_many(most) if most else []
        single = [await readers[1].receive() for _ in taken]
        assert [one.app_specific for one in taken] == [one.app_specific for one in single]
        assert counted(together) == counted(alone)

    place = 0
    while place < COUNT:
        some = messages[place : place + dice.randrange(1, 40)]
        place += len(some)
        await senders[0].send_many(some)
        for message in some:
            await senders[1].send(message)
        assert counted(together) == counted(alone)
        await receive(dice.randrange(0, 25))
    assert indexed(qm, together) == indexed(qm, alone)
    clock.advance(30)
    assert counted(together) == counted(alone)
    while together.message_count:
        await receive(7)
    assert counted(together)[:4] == [0, 0, 0, 0]
    assert indexed(qm, together) == indexed(qm, alone) == 0


def test_a_queue_keeps_more_than_its_part_while_half_of_the_memory_is_free() -> None:
    settings = ReadAheadSettings(messages=10, queue_bytes=1000, total_bytes=10_000)
    budget = ReadAhead(settings)
    lane, other = (Lane(None, budget, number, 0, 0) for number in (64, 66))
    lane.insert(1, bytes(2000), True)
    lane.insert(2, bytes(1300), True)
    assert lane.complete and lane.size == 3300
    lane.insert(3, bytes(200), True)
    assert not lane.complete and lane.size == 3300  # it is read from the store
    other.insert_many([(number, bytes(600)) for number in range(4, 10)], True)
    assert other.size == 2400 and not other.complete
    assert lane.take(()) == (1, bytes(2000)) and lane.take(()) == (2, bytes(1300))
    lane.complete = True
    lane.insert(10, bytes(6000), True)
    assert lane.size == 0  # half of the memory is for other queues
    lane.complete = True
    lane.insert(10, bytes(3500), True)
    assert lane.size == 3500


class Several(WaitingRead):
    """A receive of several messages."""

    __slots__ = ("limit", "taken")
    only_takes = True

    def __init__(self, descriptor: OpenQueueDescriptor, limit: int) -> None:
        super().__init__(descriptor, descriptor.claim(None))
        self.limit = limit
        self.taken: list[Arrived] = []
        self.begin(None)

    def satisfied(self, lookup_identifier: int, value: bytes) -> None:
        super().leave()
        self._descriptor.queue.delete(lookup_identifier, value)
        self.taken.append((lookup_identifier, value))

    def satisfied_by(self, entries: Sequence[Arrived]) -> None:
        self.leave()
        self.taken.extend(entries)


class Watched(list[Entry]):
    """A batch that counts how many of its messages are looked at."""

    looked = 0

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        self.looked += len(found) if isinstance(place, slice) else 1
        return found

    def __iter__(self) -> Iterator[Entry]:
        self.looked += len(self)
        return super().__iter__()


async def batch(qm: QueueManager, messages: list[Message]) -> list[Entry]:
    """Messages as they come from elsewhere, not yet in the queue."""
    await qm.create_queue(NAMES[1])
    out = await qm.open_queue(f"DIRECT=OS:{NAMES[1]}", Access.SEND)
    await out.send_many(messages)
    other = qm.names.local(parse_single_format_name(f"DIRECT=OS:{NAMES[1]}"))
    assert other is not None
    return take_received(other, len(messages), 1 << 30)


async def waited(qm: QueueManager, limits: list[int]) -> tuple[Queue, list[Several]]:
    await qm.create_queue(NAMES[0])
    descriptor = await qm.open_queue(f"DIRECT=OS:{NAMES[0]}", Access.RECEIVE)
    assert isinstance(descriptor, OpenQueueDescriptor)
    return descriptor.queue, [Several(descriptor, limit) for limit in limits]


@pytest.mark.parametrize("alike", [True, False], ids=["alike", "varied"])
@pytest.mark.parametrize("seed", range(4))
async def test_waiting_receives_take_all_that_came_in_their_order(qm: QueueManager, seed: int, alike: bool) -> None:
    dice = random.Random(seed)
    came = await batch(qm, [some_message(dice, number, alike=alike) for number in range(COUNT)])
    limits = [dice.choice([1, 2, 7, 20]) for _ in range(6)]
    queue, receives = await waited(qm, limits)
    before = counted(queue)
    insert_many(queue, came)
    taken = [entry for one in receives for entry in one.taken]
    assert taken == came[: len(taken)]
    assert all(one.taken for one in receives)
    if alike:
        assert [len(one.taken) for one in receives] == limits
    left = take_received(queue, COUNT, 1 << 30)
    assert sorted([*taken, *left]) == sorted(came)
    after = counted(queue)
    assert after[:4] == before[:4]
    assert after[5:] == [COUNT, after[6], COUNT, after[6]]
    assert indexed(qm, queue) == 0


async def test_receivers_with_room_take_messages_together_up_to_a_larger_one(qm: QueueManager) -> None:
    queue, _ = await waited(qm, [])
    insert_many(queue, await batch(qm, [Message(bytes(size)) for size in (5, 9, 0, 3000, 5)]))
    descriptor = await qm.open_queue(f"DIRECT=OS:{NAMES[0]}", Access.RECEIVE)
    assert isinstance(descriptor, OpenQueueDescriptor)
    room, claim = Room(body=9, rest=5000), descriptor.claim(None)
    assert len(descriptor.take_fitting(2, room, claim)) == 2
    assert len(descriptor.take_fitting(8, room, claim)) == 1
    with pytest.raises(MessageQueuingError) as larger:
        descriptor.take_fitting(8, room, claim)
    assert larger.value.code is ErrorCode.MQ_ERROR_BUFFER_OVERFLOW
    assert queue.message_count == 2
    assert len(descriptor.take_fitting(8, Room(body=3000, rest=5000), claim)) == 2
    assert descriptor.take_fitting(8, room, claim) == []


def lent(value: bytes) -> memoryview:
    """A view of memory that others will use again."""
    return memoryview(bytearray(value)).toreadonly()


async def test_a_message_in_lent_memory_goes_to_a_waiting_receive_as_it_is(qm: QueueManager) -> None:
    ((place, value),) = await batch(qm, [Message(bytes(400_000), recoverable=True, time_to_be_received=20)])
    queue, (receive,) = await waited(qm, [1])
    view = lent(value)
    assert insert_lent(queue, place, view) is view
    ((_, taken),) = receive.taken
    assert taken is view
    assert counted(queue)[:4] == [0, 0, 0, 0]
    assert counted(queue)[5:] == [1, len(value) - PREFIX_SIZE] * 2
    assert indexed(qm, queue) == 0


@pytest.mark.parametrize("why", ["nobody waits", "a report is asked for", "the queue has a journal"])
async def test_a_message_in_lent_memory_is_copied_into_the_queue(qm: QueueManager, why: str) -> None:
    asked = {"acknowledgements_requested": 2} if why == "a report is asked for" else {}
    ((place, value),) = await batch(qm, [Message(bytes(400_000), recoverable=True, **asked)])
    queue, receives = await waited(qm, [] if why == "nobody waits" else [1])
    queue.journaling = why == "the queue has a journal"
    kept = insert_lent(queue, place, lent(value))
    assert type(kept) is bytes and kept == value
    if receives:
        assert receives[0].taken == [(place, value)] and type(receives[0].taken[0][1]) is bytes
    else:
        assert take_received(queue, 1, 1 << 30) == [(place, value)]


async def test_many_receives_that_wait_look_at_a_batch_once(qm: QueueManager) -> None:
    came = Watched(await batch(qm, [Message(b"x", recoverable=True) for _ in range(3000)]))
    queue, receives = await waited(qm, [2] * 500)
    came.looked = 0
    insert_many(queue, came)
    assert [len(one.taken) for one in receives] == [2] * 500
    assert came.looked < 6 * len(came)


async def test_a_receive_takes_no_more_bytes_than_one_answer_has(qm: QueueManager) -> None:
    size = 4_000_000
    came = await batch(qm, [Message(bytes(size), recoverable=True) for _ in range(7)])
    queue, (first, second) = await waited(qm, [100, 100])
    insert_many(queue, came)
    assert [len(one.taken) for one in (first, second)] == [5, 2]
    assert queue.message_count == 0
