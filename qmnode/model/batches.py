"""Many messages of a queue in one go: what they share is done once, which is most of what one message costs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from qmnode.model.expiry import GROUP_SHIFT
from qmnode.model.ports import Entry
from qmnode.model.positions import LANE_SHIFT, LockedPosition
from qmnode.model.record import EXPRESS, FACTS, FLAGS, NEVER, ON_LOSS, PEEK_WHEN_LOCKED, PREFIX_SIZE

if TYPE_CHECKING:
    from qmnode.model.queue import Queue


def insert_many(queue: "Queue", entries: Sequence[Entry]) -> None:
    """``insert`` for messages that come together, in their order."""
    if queue.waiting:  # readers are served one message after the other
        for lookup_identifier, value in entries:
            queue.insert(lookup_identifier, value)
        return
    queue_id, lanes, keep = queue.queue_id, queue.lanes, queue.readers > 0
    put, put_express, expires = queue.store.put_message, queue.store.put_express, queue.manager.expiry.add
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


def remove_many(queue: "Queue", entries: Sequence[Entry]) -> None:
    """``remove`` for each."""
    queue_id, lanes = queue.queue_id, queue.lanes
    delete, delete_express = queue.store.delete_message, queue.store.delete_express
    expires = queue.manager.expiry.remove
    total = express = 0
    grouped_second = group = -1
    for lookup_identifier, value in entries:
        lane = lanes[lookup_identifier >> LANE_SHIFT]
        if lane is None:
            raise ValueError(f"no message {lookup_identifier:#x} in {queue.pathname}")
        flags, second = FACTS.unpack_from(value)
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
        if (
            second != NEVER
            and (second != grouped_second or lookup_identifier >> GROUP_SHIFT != group)
            and expires(second, queue_id, lookup_identifier)
        ):
            grouped_second, group = second, lookup_identifier >> GROUP_SHIFT
    queue.express_bytes -= express
    queue.count_bytes(-total)
    if express < total and not queue.touched:
        queue.touch()
