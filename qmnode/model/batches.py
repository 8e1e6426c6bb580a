"""Operations on many messages of a queue at once: insert, lock, remove, purge, and delete with the queue.

Work that the messages share is done once; that is most of the cost of one message. Purge Queue and Delete Queue
(MS-MQDMPR 3.1.7.1.7 and 3.1.7.1.4) delete ranges of keys, whatever the backlog, when no message needs a report.
Otherwise messages are deleted one by one, in steps, so that a large queue does not delay the others.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from qmnode.model.expiry import GROUP_SHIFT
from qmnode.model.ports import Entry
from qmnode.model.positions import LANE_SHIFT, SEQUENCE_MASK, LockedPosition, PositionState
from qmnode.model.record import DEPARTURE, EXPRESS, FACTS, FLAGS, NEVER, NOTICE, ON_LOSS, PEEK_WHEN_LOCKED, PREFIX_SIZE
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.message_classes import MessageClass

if TYPE_CHECKING:
    from qmnode.model.context import Context
    from qmnode.model.queue import Queue


def insert_many(queue: "Queue", entries: Sequence[Entry]) -> None:
    """``insert`` for messages that arrive together, in their order."""
    if queue.waiting:  # readers are served one message at a time
        for lookup_identifier, value in entries:
            queue.insert(lookup_identifier, value)
        return
    queue_id, lanes, keep = queue.queue_id, queue.lanes, queue.readers > 0
    put, put_express, expires = queue.store.put_message, queue.store.put_express, queue.context.expiry.add
    total = express = 0
    grouped_second = group = -1
    for lookup_identifier, value in entries:
        lane = lanes[lookup_identifier >> LANE_SHIFT] or queue.lane_of(lookup_identifier >> LANE_SHIFT)
        flags, second = FACTS.unpack_from(value)
        total += len(value) - PREFIX_SIZE
        if flags & EXPRESS:
            put_express(queue_id, lookup_identifier, value)
            lane.express_count += 1
            express += len(value) - PREFIX_SIZE
        else:
            put(queue_id, lookup_identifier, value)
        lane.count += 1
        if flags & ON_LOSS:
            queue.loss_reports += 1
        if (
            second != NEVER
            and (second != grouped_second or lookup_identifier >> GROUP_SHIFT != group)
            and expires(second, queue_id, lookup_identifier)
        ):
            grouped_second, group = second, lookup_identifier >> GROUP_SHIFT
        lane.insert(lookup_identifier, value, keep)
    queue.express_bytes += express
    queue.count_bytes(total)
    queue.tally.arrived += len(entries)
    queue.tally.arrived_bytes += total
    if queue.recorder is not None:
        for _, value in entries:
            queue.recorder.inserted(queue, value)
    if express < total and not queue.touched:
        queue.touch()
    if queue.subscriber is not None:
        for lookup_identifier, value in entries:
            queue.subscriber(queue, lookup_identifier, value)


def lock_first(queue: "Queue", limit: int) -> list[Entry]:
    """``take`` and ``lock`` for up to ``limit`` messages from the start of the queue."""
    taken: list[Entry] = []
    locked = queue.locked
    for lane in queue.lanes:
        while (
            lane is not None
            and lane.count
            and len(taken) < limit
            and (entries := lane.take_many(locked, limit - len(taken)))
        ):
            for lookup_identifier, value in entries:
                locked[lookup_identifier] = LockedPosition(value, None)
                if value[FLAGS] & PEEK_WHEN_LOCKED:
                    queue.peekable_locked += 1
            lane.lock(entries[0][0])
            taken += entries
    return taken


def remove_acknowledged(queue: "Queue", entries: Sequence[Entry]) -> None:
    """``remove`` for messages that the other side has, which are counted as acknowledged."""
    queue_id, lanes = queue.queue_id, queue.lanes
    delete, delete_express = queue.store.delete_message, queue.store.delete_express
    expires = queue.context.expiry.remove
    total = express = 0
    grouped_second = group = -1
    since: list[int] = []
    for lookup_identifier, value in entries:
        lane = lanes[lookup_identifier >> LANE_SHIFT]
        if lane is None:
            raise ValueError(f"no message {lookup_identifier:#x} in {queue.pathname}")
        flags, second, arrived = DEPARTURE.unpack_from(value)
        since.append(arrived)
        total += len(value) - PREFIX_SIZE
        if flags & EXPRESS:
            delete_express(queue_id, lookup_identifier)
            lane.express_count -= 1
            express += len(value) - PREFIX_SIZE
        else:
            delete(queue_id, lookup_identifier)
        lane.count -= 1
        if flags & ON_LOSS and queue.loss_reports:
            queue.loss_reports -= 1
        if flags & NOTICE:
            queue.context.notices.left(queue_id, len(value) - PREFIX_SIZE)
        if (
            second != NEVER
            and (second != grouped_second or lookup_identifier >> GROUP_SHIFT != group)
            and expires(second, queue_id, lookup_identifier)
        ):
            grouped_second, group = second, lookup_identifier >> GROUP_SHIFT
    queue.express_bytes -= express
    queue.count_bytes(-total)
    queue.tally.count_acknowledged(since, total, queue.context.clock.time())
    if express < total and not queue.touched:
        queue.touch()


_STEP: Final = 500


async def purge_queue(context: "Context", queue: "Queue") -> None:
    """Purge Queue (3.1.7.1.7): available messages are deleted now, locked ones when their transaction aborts."""
    for position in queue.locked.values():
        position.state = PositionState.PURGE_PENDING
    await _delete_messages(context, queue, MessageClass.MQMSG_CLASS_NACK_Q_PURGED)
    await context.store.durable()


async def delete_queue(context: "Context", queue: "Queue") -> None:
    """Delete Queue (3.1.7.1.4), with its subqueues and its journal. Open handles to it become invalid."""
    for subqueue in list(queue.subqueues.values()):
        await delete_queue(context, subqueue)
    parts = [queue, queue.journal] if queue.has_journal else [queue]
    for part in parts:
        for reader in list(part.waiting):
            reader.cancel(ErrorCode.MQ_ERROR_QUEUE_NOT_AVAILABLE, f"the queue {queue.pathname} was deleted")
        await _delete_messages(context, part, MessageClass.MQMSG_CLASS_NACK_Q_DELETED)
    if queue.deleted:
        return  # another caller deleted it meanwhile
    for part in parts:
        for lookup_identifier in list(part.locked):
            part.delete(
                lookup_identifier,
                part.unlock(lookup_identifier).value,
                MessageClass.MQMSG_CLASS_NACK_Q_DELETED,
            )
        _delete_ranges(part)
        context.notices.forget(part.queue_id)
        part.deleted = True
    context.queues.forget(queue)
    await context.store.durable()


async def _delete_messages(context: "Context", queue: "Queue", reason: int) -> None:
    until = context.sequence.value & SEQUENCE_MASK
    if not queue.loss_reports and queue.subscriber is None and queue.recorder is None:
        queue.context.notices.forget(queue.queue_id)
        gone = queue.message_count - len(queue.locked)
        size = queue.total_bytes - sum(len(position.value) - PREFIX_SIZE for position in queue.locked.values())
        queue.tally.died[reason] += gone
        queue.tally.died_bytes[reason] += size
        _delete_ranges(queue)
        return
    for lane in [lane for lane in queue.lanes if lane is not None]:
        last = lane.index << LANE_SHIFT | until
        first = lane.head
        while first <= last:
            step = [
                entry
                for entry, _ in zip(lane.scan(first, queue.locked), range(_STEP), strict=False)
                if entry[0] <= last
            ]
            if not step:
                break
            for lookup_identifier, value in step:
                queue.take_this(lookup_identifier)
                queue.delete(lookup_identifier, value, reason)
            first = step[-1][0] + 1
            await context.store.durable()


def _delete_ranges(queue: "Queue") -> None:
    """Delete the ranges between locked messages."""
    for lane in [lane for lane in queue.lanes if lane is not None and lane.count]:
        locked = sorted(one for one in queue.locked if one >> LANE_SHIFT == lane.index)
        first = lane.index << LANE_SHIFT
        for stop in (*locked, lane.last + 1):
            queue.store.delete_messages(queue.queue_id, first, stop)
            first = stop + 1
    queue.recount_locked()
