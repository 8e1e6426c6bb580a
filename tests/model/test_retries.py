"""A queue limits the deliveries of a message, and holds it for a while after each that failed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from qmnode import Access, Message, MessageQueuingError, QueueManager
from qmnode.administration.browsing import browse
from qmnode.model.open_queue import OpenQueueDescriptor
from qmnode.model.reading import ReadOutcome
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.model.conftest import FakeClock, Node

NAME = r".\private$\jobs"
JOBS = r"DIRECT=OS:.\private$\jobs"
DEAD = r"DIRECT=OS:.\system$;DEADXACT"


async def with_jobs(qm: QueueManager, *texts: str, **properties: int) -> None:
    await qm.create_queue(NAME, transactional=True, **properties)
    async with await qm.open_queue(JOBS, Access.SEND) as queue:
        await queue.send_many([Message(text.encode(), label=text[:100]) for text in texts], transaction="single")


async def opened(qm: QueueManager, access: Access = Access.RECEIVE) -> OpenQueueDescriptor:
    queue = await qm.open_queue(JOBS, access)
    assert isinstance(queue, OpenQueueDescriptor)
    return queue


async def fail(qm: QueueManager) -> tuple[bytes, int]:
    """One delivery whose transaction aborts: the message, and how often it had failed before."""
    async with await opened(qm) as queue:
        unit = qm.transaction()
        message = await queue.receive(timeout=0, transaction=unit)
        await unit.abort()
        return message.body, message.aborted_receives


async def shown(qm: QueueManager, name: str = JOBS) -> list[tuple[bytes, int, int]]:
    """What peeks show: body, failures, next try."""
    async with await qm.open_queue(name, Access.PEEK) as queue:
        return [(one.body, one.aborted_receives, one.next_try) async for one in browse(queue)]


async def is_empty(qm: QueueManager) -> bool:
    async with await opened(qm) as queue:
        try:
            await queue.receive(timeout=0, transaction=(unit := qm.transaction()))
        except MessageQueuingError as error:
            return error.code is ErrorCode.MQ_ERROR_IO_TIMEOUT
        finally:
            await unit.abort()
    return False


async def test_pauses_grow_to_the_longest(qm: QueueManager, clock: FakeClock) -> None:
    await with_jobs(qm, "1", retry_pause=10, retry_factor=3, retry_longest_pause=60)
    for failures, pause in enumerate((10, 30, 60, 60)):
        assert await fail(qm) == (b"1", failures)
        assert await shown(qm) == [(b"1", failures + 1, int(clock.time()) + pause)]
        clock.advance(pause - 1)
        assert await is_empty(qm)
        clock.advance(1)
    assert await shown(qm) == [(b"1", 4, 0)]


async def test_the_log_says_where_a_message_that_failed_too_often_is(qm: QueueManager) -> None:
    await with_jobs(qm, "1", max_deliveries=1)
    with capture_logs() as logs:
        await fail(qm)
    (entry,) = [entry for entry in logs if entry["log_level"] == "warning"]
    assert entry["queue"].endswith("jobs") and entry["kept_in"].endswith("DEADXACT"), entry


async def test_a_message_that_waits_keeps_its_place_and_lets_others_pass(qm: QueueManager, clock: FakeClock) -> None:
    await with_jobs(qm, "1", "2", "3", retry_pause=10)
    assert await fail(qm) == (b"1", 0)
    assert await fail(qm) == (b"2", 0)
    assert [body for body, *_ in await shown(qm)] == [b"1", b"2", b"3"]
    clock.advance(10)
    async with await opened(qm) as queue:
        assert [one.body for one in await queue.receive_many(9)] == [b"1", b"2", b"3"]


async def test_a_waiting_receiver_gets_the_message_after_its_pause(qm: QueueManager, clock: FakeClock) -> None:
    await with_jobs(qm, "1", retry_pause=10)
    await fail(qm)
    async with await opened(qm) as queue:
        waiting = asyncio.create_task(queue.receive())
        await asyncio.sleep(0)
        clock.advance(10)
        assert (await waiting).body == b"1"


async def test_the_last_failure_makes_a_dead_letter_with_count_and_reason(qm: QueueManager, clock: FakeClock) -> None:
    await with_jobs(qm, "1", "2", max_deliveries=3, retry_pause=10)
    for _ in range(3):
        await fail(qm)
        clock.advance(100)
        async with await opened(qm) as queue:
            pass
    assert await shown(qm) == [(b"2", 0, 0)]
    async with await qm.open_queue(DEAD, Access.PEEK) as queue:
        letter = await queue.peek(timeout=0)
    assert (letter.body, letter.aborted_receives) == (b"1", 3)
    assert letter.message_class == MessageClass.MQMSG_CLASS_NACK_RECEIVE_REJECTED


async def test_the_sender_is_told_of_the_last_failure(qm: QueueManager) -> None:
    await qm.create_queue(r".\private$\answers")
    await qm.create_queue(NAME, max_deliveries=1)
    async with await qm.open_queue(JOBS, Access.SEND) as queue:
        await queue.send(
            Message(
                b"1",
                acknowledgements_requested=8,  # negative receive
                administration_queue_format_name=r"DIRECT=OS:.\private$\answers",
            )
        )
    async with await opened(qm) as queue:
        message = await queue.receive_begin(timeout=0)
        await queue.receive_end(message.lookup_identifier, delete=False)
    async with await qm.open_queue(r"DIRECT=OS:.\private$\answers") as queue:
        answer = await queue.receive(timeout=0)
    assert answer.message_class == MessageClass.MQMSG_CLASS_NACK_RECEIVE_REJECTED
    assert answer.correlation_identifier == message.identifier
    assert [one[:2] for one in await shown(qm, r"DIRECT=OS:.\system$;DEADLETTER")] == [(b"1", 1)]


async def test_a_delivery_counts_before_its_receiver_has_the_message(node: Node) -> None:
    await with_jobs(node.qm, "1", max_deliveries=2)
    for failures in range(2):
        queue = await opened(node.qm)
        message = await queue.receive(timeout=0, transaction=node.qm.transaction())
        assert message.aborted_receives == failures
        await node.crash()
    node.clock.advance(1)
    assert await shown(node.qm) == []
    assert [one[:2] for one in await shown(node.qm, DEAD)] == [(b"1", 2)]


async def test_pauses_go_on_after_a_crash(node: Node, clock: FakeClock) -> None:
    await with_jobs(node.qm, "1", "2", max_deliveries=9, retry_pause=10)
    await fail(node.qm)
    (_, _, until), other = await shown(node.qm)
    queue = await opened(node.qm)
    await queue.receive(timeout=0, transaction=node.qm.transaction())
    clock.advance(5)
    await node.crash()
    assert await shown(node.qm) == [(b"1", 1, until), (b"2", 1, until + 5)]
    clock.advance(5)
    assert await fail(node.qm) == (b"1", 1)
    assert other == (b"2", 0, 0)


async def test_a_delivery_that_is_returned_without_a_failure_does_not_count(node: Node) -> None:
    await with_jobs(node.qm, "1", max_deliveries=1, retry_pause=10)
    queue = await opened(node.qm)
    for _ in range(2):
        message = await queue.receive_begin(timeout=0)
        queue.end_read(message.lookup_identifier, ReadOutcome.RETURNED)
    await node.restart()
    assert await shown(node.qm) == [(b"1", 0, 0)]


@pytest.mark.parametrize("outcome", [ReadOutcome.FAILED, ReadOutcome.ABANDONED, None])
async def test_a_two_phase_read_without_success_counts(qm: QueueManager, outcome: ReadOutcome | None) -> None:
    await with_jobs(qm, "1", max_deliveries=5)
    queue = await opened(qm)
    message = await queue.receive_begin(timeout=0)
    if outcome is not None:
        queue.end_read(message.lookup_identifier, outcome)
    await queue.close()  # without an outcome, as after a lost connection
    assert await shown(qm) == [(b"1", 1, 0)]


async def test_a_message_that_waits_cannot_be_received_by_its_identifier(qm: QueueManager) -> None:
    await with_jobs(qm, "1", retry_pause=10)
    await fail(qm)
    async with await opened(qm) as queue:
        message = await queue.peek(timeout=0)
        cursor = queue.cursor()
        await cursor.peek(timeout=0)
        for receive in (queue.receive_by_lookup_id(message.lookup_identifier), cursor.receive(timeout=0)):
            with pytest.raises(MessageQueuingError, match="held until its next try"):
                await receive


async def test_a_queue_without_pauses_holds_nothing_any_more(qm: QueueManager, clock: FakeClock) -> None:
    await with_jobs(qm, "1", retry_pause=1000, retry_longest_pause=1000)
    await fail(qm)
    await qm.set_queue(NAME, retry_pause=0)
    clock.advance(0)
    assert await fail(qm) == (b"1", 1)


async def test_messages_that_wait_are_purged_expire_and_are_deleted_with_their_queue(
    node: Node, clock: FakeClock
) -> None:
    qm = node.qm
    await with_jobs(qm, "1", retry_pause=100)
    async with await opened(qm, Access.SEND) as queue:
        await queue.send(Message(b"2", time_to_be_received=50), transaction="single")
    await fail(qm)
    await fail(qm)
    clock.advance(60)
    assert [body for body, *_ in await shown(qm)] == [b"1"]
    async with await opened(qm) as queue:
        await queue.purge()
    assert await shown(qm) == []
    async with await opened(qm, Access.SEND) as queue:
        await queue.send(Message(b"3"), transaction="single")
    await fail(qm)
    await qm.delete_queue(NAME)
    qm = await node.restart()
    assert qm.store.read_tries() == []


async def test_a_purge_forgets_all_messages_that_wait_at_once(
    qm: QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_jobs(qm, *(str(number) for number in range(301)), max_deliveries=3, retry_pause=1000)
    async with await opened(qm) as queue:
        await queue.receive_many(300, transaction=(failing := qm.transaction()))
        await failing.abort()
        last = await queue.receive(timeout=0, transaction=(open_ := qm.transaction()))
        monkeypatch.setattr(qm.store, "delete_try", None)
        await queue.purge()
        monkeypatch.undo()
        qm.store.make_visible()
        assert qm.store.read_tries() == [(queue.queue.queue_id, last.lookup_identifier, 0)]
        await open_.abort()
    qm.store.make_visible()
    assert qm.store.read_tries() == []
    async with await opened(qm, Access.SEND) as queue:
        await queue.send(Message(b"new"), transaction="single")
    assert await fail(qm) == (b"new", 0)


async def test_a_dead_letter_without_room_is_kept_and_tried_later(qm: QueueManager, clock: FakeClock) -> None:
    await with_jobs(qm, "1", max_deliveries=1)
    await qm.set_queue(r".\system$;DEADXACT", quota=0)
    await fail(qm)
    assert [one[:2] for one in await shown(qm)] == [(b"1", 1)]
    assert await is_empty(qm)
    await qm.set_queue(r".\system$;DEADXACT", quota=1000)
    clock.advance(61)
    assert await shown(qm) == []
    assert [one[:2] for one in await shown(qm, DEAD)] == [(b"1", 1)]


async def test_many_messages_whose_pauses_end_together_keep_their_order(qm: QueueManager, clock: FakeClock) -> None:
    texts = [f"{number:04}" for number in range(700)]
    await with_jobs(qm, *texts, retry_pause=10)
    unit = qm.transaction()
    async with await opened(qm) as queue:
        first = await queue.receive_many(600, transaction=unit)
    await unit.abort()
    assert len(first) == 600
    async with await opened(qm) as queue:
        unit = qm.transaction()
        assert [one.body.decode() for one in await queue.receive_many(9, transaction=unit)] == texts[600:609]
        await unit.commit()
        for _ in range(9):
            clock.advance(10)
        left = await queue.receive_many(1000)
    assert [one.body.decode() for one in left] == texts[:600] + texts[609:]


@pytest.mark.parametrize("seed", range(3))
async def test_receivers_that_fail_at_random_and_crashes_deliver_no_message_too_often(node: Node, seed: int) -> None:
    most, drawn, seen = 3, random.Random(seed), Counter[bytes]()
    await with_jobs(
        node.qm, *(str(number) for number in range(60)), max_deliveries=most, retry_pause=1, retry_longest_pause=2
    )
    done: set[bytes] = set()
    for turn in range(400):
        if turn % 100 == 99:
            await node.crash()
        node.clock.advance(0.2)
        queue, unit = await opened(node.qm), node.qm.transaction()
        fate = drawn.choice(("commit", "abort", "abandon", "return", "forget"))
        try:
            if fate in ("commit", "abort", "forget"):
                messages = await queue.receive_many(drawn.randint(1, 3), 0, unit)
            else:
                messages = [await queue.receive_begin(timeout=0)]
        except MessageQueuingError:
            if not (await node.qm.queue(NAME)).message_count:
                break
            continue
        if fate == "return":  # its receiver has not looked at it
            queue.end_read(messages[0].lookup_identifier, ReadOutcome.RETURNED)
            continue
        for message in messages:
            assert message.aborted_receives == seen[message.body]
            seen[message.body] += 1
        if fate == "commit":
            await unit.commit()
            done.update(message.body for message in messages)
        elif fate == "abort":
            await unit.abort()
        elif fate == "abandon":
            await queue.close()
        elif drawn.random() < 0.1:
            await node.crash()
        else:
            await unit.abort()
    node.clock.advance(5)
    letters = {body: failures for body, failures, _ in await shown(node.qm, DEAD)}
    left = await shown(node.qm)
    assert max(seen.values()) == most
    assert letters
    assert set(letters.values()) == {most}
    assert not letters.keys() & done
    assert letters.keys() | done | {body for body, *_ in left} == {b"%d" % number for number in range(60)}


async def test_a_receive_after_a_restart_reads_few_of_the_messages_that_wait(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_jobs(node.qm, *(str(number) for number in range(2000)), retry_pause=1000)
    async with await opened(node.qm) as queue:
        await queue.receive_many(1999, transaction=(unit := node.qm.transaction()))
        await unit.abort()
    store = (await node.restart()).context.store
    read: list[int] = []
    read_messages = store.read_messages

    def counted(*words: int | bool) -> list[tuple[int, bytes]]:
        entries = read_messages(*words)  # type: ignore[arg-type]
        read.append(len(entries))
        return entries

    monkeypatch.setattr(store, "read_messages", counted)
    async with await opened(node.qm) as queue:
        assert (await queue.receive(timeout=0)).body == b"1999"
    assert sum(read) < 600


async def test_pauses_of_large_messages_that_end_together_end_a_few_at_a_time(
    qm: QueueManager, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_jobs(qm, *(character * 600_000 for character in "abcdef"), max_deliveries=5, retry_pause=10)
    async with await opened(qm) as queue:
        tries, held, call_later = queue.queue.tries, [6], clock.call_later

        def noted(delay: float, callback: Callable[[], object]) -> object:
            def called() -> None:
                callback()
                held.append(len(tries))

            return call_later(delay, called)

        monkeypatch.setattr(clock, "call_later", noted)
        for message in await queue.receive_begin_many(6, timeout=0):
            queue.end_read(message.lookup_identifier, ReadOutcome.FAILED)
    clock.advance(12)
    assert held[-1] == 0
    assert max(before - after for before, after in pairwise(held)) <= 2
