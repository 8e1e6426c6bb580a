"""Counts of messages by queue: the busiest by name, the others as one, and none counted twice or forgotten."""

from __future__ import annotations

import asyncio

import pytest

from qmnode import Access, Message, QueueManager
from qmnode.model.traffic import OTHERS, Histogram


async def send(qm: QueueManager, name: str, count: int) -> None:
    async with await qm.open_queue(rf"DIRECT=OS:.\private$\{name}", Access.SEND) as queue:
        await queue.send_many([Message(b"body")] * count)


def arrived(qm: QueueManager, limit: int) -> dict[str, int]:
    """By the last part of a queue's name, without queues of the system."""
    found = qm.traffic.collect(qm.queue_collection.values(), limit)
    return {name.rpartition("\\")[2]: tally.arrived for (name, kind), tally in found if kind in ("private", OTHERS)}


async def made(qm: QueueManager, *names: str) -> None:
    for name in names:
        await qm.create_queue(rf".\private$\{name}")


async def test_the_busiest_queues_have_names_and_the_others_are_one(qm: QueueManager) -> None:
    await made(qm, "a", "b", "c", "d")
    for name, count in (("a", 1), ("b", 20), ("c", 3), ("d", 30)):
        await send(qm, name, count)
    assert arrived(qm, 2) == {"b": 20, "d": 30, OTHERS: 4}


async def test_counters_only_go_up_whoever_has_a_name(qm: QueueManager) -> None:
    await made(qm, "a", "b")
    await send(qm, "a", 10)
    assert arrived(qm, 1) == {"a": 10, OTHERS: 0}
    await send(qm, "b", 15)
    assert arrived(qm, 1) == {"a": 10, OTHERS: 15}, "not twice as busy: the name stays"
    await send(qm, "b", 50)
    assert arrived(qm, 1) == {"b": 50, OTHERS: 15}, "it does not take along what the others have counted"
    await send(qm, "a", 2)
    assert arrived(qm, 1) == {"b": 50, OTHERS: 17}


async def test_quiet_queues_are_there_with_zero_and_no_name_is_a_choice(qm: QueueManager) -> None:
    await made(qm, "a", "b")
    assert arrived(qm, 100) == {"a": 0, "b": 0, OTHERS: 0}
    await send(qm, "a", 1)
    assert arrived(qm, 0) == {OTHERS: 1}


async def test_what_a_deleted_queue_did_stays_counted(qm: QueueManager) -> None:
    await made(qm, "a", "b")
    assert arrived(qm, 100)["a"] == 0
    await send(qm, "a", 3)
    await qm.delete_queue(r".\private$\a")
    assert arrived(qm, 100) == {"a": 3, "b": 0, OTHERS: 0}
    await made(qm, "c", "d")
    await send(qm, "c", 1)
    await send(qm, "c", 1)
    names = arrived(qm, 10)
    assert (names["c"], names["a"]) == (2, 3)
    assert "a" not in arrived(qm, 6), "who is gone gives up the name first"


async def test_how_messages_leave_is_told_apart(qm: QueueManager) -> None:
    await made(qm, "a")
    await send(qm, "a", 7)
    async with await qm.open_queue(r"DIRECT=OS:.\private$\a") as queue:
        await queue.receive_many(2)
        await queue.purge()
    (tally,) = (tally for (name, _), tally in qm.traffic.collect(qm.queue_collection.values(), 100) if name[-1] == "a")
    size = tally.arrived_bytes // 7
    assert (tally.received, tally.received_bytes) == (2, 2 * size)
    assert (dict(tally.died), dict(tally.died_bytes)) == ({0xC001: 5}, {0xC001: 5 * size})
    assert tally.expired == (0, 0)


async def test_received_messages_are_counted_before_they_are_written(qm: QueueManager) -> None:
    await made(qm, "a")
    await send(qm, "a", 3)
    queue = qm.names.find(r".\private$\a")
    for _ in range(2):
        entry = queue.take()
        assert entry is not None
        queue.delete(*entry)
    assert queue.tally.totals == (3, 2, 0), "in the history"
    (tally,) = (tally for (name, _), tally in qm.traffic.collect([queue], 100) if name != OTHERS)
    assert (tally.received, tally.received_bytes * 3) == (2, tally.arrived_bytes * 2)
    assert sum(qm.traffic.waits[queue.queue_type].counts) == 2
    assert queue.tally.totals == (3, 2, 0), "collecting counts nothing twice"


async def test_what_a_queue_did_in_the_pass_that_deletes_it_stays_counted(qm: QueueManager) -> None:
    await made(qm, "a")
    await send(qm, "a", 1)
    queue = qm.names.find(r".\private$\a")
    entry = queue.take()
    assert entry is not None
    queue.delete(*entry)
    await qm.delete_queue(r".\private$\a")
    (others,) = (tally for _, tally in qm.traffic.collect(qm.queue_collection.values(), 0))
    assert (others.arrived, others.received) == (1, 1)


async def test_counts_are_exact_whoever_reads_them_meanwhile(qm: QueueManager) -> None:
    names, each = ("a", "b"), 60
    await made(qm, *names)
    seen: list[int] = []

    def look() -> None:
        tallies = [tally for _, tally in qm.traffic.collect(qm.queue_collection.values(), 100)]
        received = sum(tally.received for tally in tallies)
        assert sum(sum(histogram.counts) for histogram in qm.traffic.waits.values()) == received
        seen.append(received)

    async def receive(name: str) -> None:
        async with await qm.open_queue(rf"DIRECT=OS:.\private$\{name}") as queue:
            for _ in range(each // 4):
                await asyncio.gather(*(queue.receive(timeout=0) for _ in range(3)))
                await queue.receive_many(1)
                look()

    for name in names:
        await send(qm, name, each)
    await asyncio.gather(*map(receive, names))
    assert (seen[-1], seen) == (len(names) * each, sorted(seen))


async def test_a_purged_dead_letter_does_not_die_again(qm: QueueManager) -> None:
    await made(qm, "a")
    async with await qm.open_queue(r"DIRECT=OS:.\private$\a", Access.SEND) as queue:
        await queue.send(Message(b"x", negative_journaling_requested=True))
    for name in (r"DIRECT=OS:.\private$\a", r"DIRECT=OS:.\system$;DEADLETTER"):
        async with await qm.open_queue(name) as queue:
            await queue.purge()
    tallies = [tally for _, tally in qm.traffic.collect(qm.queue_collection.values(), 100)]
    assert sum(tally.died.total() for tally in tallies) == 1


def test_a_histogram_counts_what_is_at_most_a_bound() -> None:
    histogram = Histogram((1, 5))
    for seconds, count in ((-3.0, 1), (1.0, 2), (1.1, 1), (5.0, 1), (99.0, 2)):
        histogram.observe(seconds, count)
    assert (histogram.counts, histogram.total) == ([3, 2, 2], 2 + 1.1 + 5 + 198)


def test_durations_since_many_beginnings_are_those_of_each() -> None:
    bounds, now = (0.001, 0.5, 60), 1_800_000_000.25
    ages = [0, 0.001, 0.0011, 0.4, 0.5, 0.6, 60, 61, 3600, 0.001]
    one_by_one, together = Histogram(bounds), Histogram(bounds)
    for age in ages:
        one_by_one.observe(age)
    together.observe_since([int(now * 1_000_000) - round(age * 1_000_000) for age in ages], now)
    assert together.counts == one_by_one.counts == [3, 3, 2, 2]
    assert together.total == pytest.approx(one_by_one.total)
    together.observe_since([int((now + 5) * 1_000_000)], now)  # the clock was set back
    assert (together.counts[0], together.total) == (4, pytest.approx(one_by_one.total))
