"""Purge Queue and Delete Queue, MS-MQDMPR 3.1.7.1.7 and 3.1.7.1.4.

Both delete ranges of keys, whatever the backlog, when no message needs a report. Otherwise messages are deleted one by
one, in steps, so that a large queue does not delay the others.
"""

from typing import TYPE_CHECKING, Final

from qmnode.model.positions import LANE_SHIFT, SEQUENCE_MASK, PositionState
from qmnode.model.stored_message import PREFIX_SIZE
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.error_codes import ErrorCode

if TYPE_CHECKING:
    from qmnode.model.queue import Queue
    from qmnode.model.shared_state import Context

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
    queue.context.retries.forget_all(queue)
