"""Retries: what follows when a delivery of a message fails.

A delivery fails when its transaction aborts, its receiver says so, or its receiver goes away. The message counts its
failures, in its prefix. By the properties of its queue it then waits in its place, hidden from receivers, and becomes a
dead letter after the last delivery. An extension of MS-MQDMPR.

In a queue with ``max_deliveries``, a delivery counts as failed from its beginning, on disk, before its receiver has the
message. So no crash hides one. A message that is returned without a failure gets its old count back.

Each message with a delivery that counts, or that waits, has a record in the store, and a number in ``Queue.tries``. One
timer serves all that wait.
"""

import heapq
import math
from array import array
from collections import deque
from collections.abc import Collection, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Final

import structlog

from qmnode.errors import MessageQueuingError
from qmnode.model.leaving_queue import kept
from qmnode.model.positions import LANE_SHIFT
from qmnode.model.stored_message import (
    ABORTS,
    COUNT_LIMIT,
    PREFIX_SIZE,
    held_until,
    received_message,
    with_class,
    with_prefix,
)
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.error_codes import ErrorCode

if TYPE_CHECKING:
    from qmnode.model.message import Message
    from qmnode.model.ports import TimerHandle
    from qmnode.model.queue import Queue
    from qmnode.model.shared_state import Context

log = structlog.get_logger(__name__)

POISON_SUBQUEUE: Final = "poison"
_CHUNK: Final = 200
"""Messages whose pause ends in one pass of the event loop; the rest wait for the next."""
_CHUNK_BYTES: Final = 1024 * 1024
"""Bytes of them after which no further one is read in this pass."""
_NO_ROOM: Final = 60
"""Seconds until another attempt to make a message a dead letter that the dead-letter queue has no room for."""


class _Hidden(Collection[int]):
    """The messages of a queue that receivers do not find."""

    __slots__ = ("_locked", "_tries")

    def __init__(self, queue: "Queue") -> None:
        self._locked = queue.locked
        self._tries = queue.tries

    def __contains__(self, lookup_identifier: object) -> bool:
        return lookup_identifier in self._locked or lookup_identifier in self._tries

    def __iter__(self) -> Iterator[int]:
        return chain(self._locked, self._tries)

    def __len__(self) -> int:
        return len(self._locked) + len(self._tries)


def pause_after(queue: "Queue", failures: int) -> int:
    """Seconds until the next delivery of a message that has failed so often."""
    if not queue.retry_pause:
        return 0
    return int(min(queue.retry_pause * queue.retry_factor ** (failures - 1), queue.retry_longest_pause))


def peeked_message(queue: "Queue", lookup_identifier: int, value: bytes) -> "Message":
    """The message that a peek finds, with the time of its next try."""
    second = queue.tries.get(lookup_identifier)
    return received_message(lookup_identifier, held_until(value, second) if second else value)


class Retries:
    """Counts failed deliveries, and ends the pauses between them."""

    def __init__(self, context: "Context") -> None:
        self._context = context
        self.settings = context.settings.poison
        self._waiting: dict[tuple[int, int], array[int]] = {}
        """Lookup identifiers by second and queue number. Those that have left their queue stay until then."""
        self._order: list[tuple[int, int]] = []
        """The keys of these, as a heap."""
        self._ready: deque[tuple[int, int, int]] = deque()
        """Messages whose pause has ended: queue number, lookup identifier, second."""
        self._timer: TimerHandle | None = None
        self._stopped = False

    def start(self) -> None:
        """Continue the pauses of earlier runs. Deliveries that a crash ended have failed."""
        context, now = self._context, math.ceil(self._context.clock.time())
        records = context.store.read_tries()
        for queue_id, lookup_identifier, second in records:
            queue, is_stored = context.queues.get(queue_id), bool(second)
            if queue is not None and not second:
                value = context.store.get_message(queue_id, lookup_identifier)
                if value is not None:
                    pause = pause_after(queue, value[ABORTS])
                    second = now + pause if pause or self._is_last(queue, value) else 0
            if queue is None or not second:
                context.store.delete_try(queue_id, lookup_identifier)
            else:
                self._hold(queue, lookup_identifier, second, is_stored=is_stored)
        if records:
            context.store.durable()

    def stop(self) -> None:
        """Stop the timer, because the queue manager closes."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Deliveries

    def begin(self, queue: "Queue", lookup_identifier: int, value: bytes) -> None:
        """Count the delivery of a message that is locked now. The reader waits for the write before it has the
        message.
        """
        queue.replace(lookup_identifier, _counted(value))
        self._note(queue, lookup_identifier, 0)
        self._context.store.durable()

    def withdraw(self, queue: "Queue", lookup_identifier: int, value: bytes) -> None:
        """End a delivery that did not fail: the message has its old count again."""
        self.forget(queue, lookup_identifier)
        queue.replace(lookup_identifier, value)

    def failed(self, queue: "Queue", lookup_identifier: int, value: bytes) -> None:
        """A delivery of this message, which is unlocked, has failed. ``value`` has the count before it."""
        counted = _counted(value)
        if self._is_last(queue, counted):
            self._give_up(queue, lookup_identifier, counted)
            return
        limit = self.settings.aborts
        is_poison = limit and not queue.max_deliveries and counted[ABORTS] >= limit
        if is_poison and self._move_away(queue, lookup_identifier, value, counted):
            return
        if lookup_identifier not in queue.tries:
            queue.replace(lookup_identifier, counted)
        pause = pause_after(queue, counted[ABORTS])
        if pause:
            self._hold(queue, lookup_identifier, math.ceil(self._context.clock.time()) + pause)
            return
        if lookup_identifier in queue.tries:
            self.forget(queue, lookup_identifier)
        queue.make_available(lookup_identifier, counted)

    @staticmethod
    def _is_last(queue: "Queue", counted: bytes) -> bool:
        """Whether the message has had all its deliveries."""
        return 0 < queue.max_deliveries <= counted[ABORTS] and not queue.is_dead_letter

    def _give_up(self, queue: "Queue", lookup_identifier: int, counted: bytes) -> None:
        if self._context.outcomes.gave_up(queue, lookup_identifier, counted):
            return
        log.warning(
            "a message that failed too often stays in its queue: the dead-letter queue has no room. Receive or purge "
            "dead letters, or raise its quota", queue=queue.pathname, lookup_identifier=lookup_identifier,
        )  # fmt: skip
        if lookup_identifier not in queue.tries:
            queue.replace(lookup_identifier, counted)
        self._hold(queue, lookup_identifier, math.ceil(self._context.clock.time()) + _NO_ROOM)

    def _move_away(self, queue: "Queue", lookup_identifier: int, value: bytes, counted: bytes) -> bool:
        """Move a poison message away by the node's settings; False if it stays."""
        if self.settings.target == "dead-letter":
            target = self._context.queues.transactional_dead_letter
            if self._context.quotas.is_over_its_own(target, len(value) - PREFIX_SIZE):
                return False  # rather at the head of its queue than lost
            queue.remove(lookup_identifier, value)
            reason = MessageClass.MQMSG_CLASS_NACK_RECEIVE_REJECTED
            queue.tally.die(value, reason)
            if queue.recorder is not None:
                queue.recorder.deleted(queue, ((lookup_identifier, value),), reason)
            target.insert(lookup_identifier, with_class(kept(counted), reason))
            return True
        if queue.parent is not None:
            return False  # a subqueue has no subqueues: messages that fail there stay there
        subqueue = self._context.queues.subqueue(queue, POISON_SUBQUEUE)
        queue.remove(lookup_identifier, value)
        subqueue.insert(lookup_identifier, counted)
        return True

    # Pauses

    def check_due(self, queue: "Queue", lookup_identifier: int) -> None:
        """Raise if a receiver asks for a message that waits for its next try."""
        if queue.tries.get(lookup_identifier):
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND,
                f"message {lookup_identifier:#x} is held until its next try, as its last delivery failed: receive it "
                "later, or set retry_pause of the queue to 0",
            )

    def changed(self, queue: "Queue") -> None:
        """End all pauses of a queue that no longer has any."""
        if not queue.retry_pause:
            second = int(self._context.clock.time())
            for lookup_identifier in [one for one, until in queue.tries.items() if until]:
                queue.tries[lookup_identifier] = second
                self._schedule(queue, lookup_identifier, second)

    def forget(self, queue: "Queue", lookup_identifier: int) -> None:
        """Forget the delivery or the pause of a message: it left its queue, or is available."""
        del queue.tries[lookup_identifier]
        self._context.store.delete_try(queue.queue_id, lookup_identifier)
        lane = queue.lane_of(lookup_identifier >> LANE_SHIFT)
        if not queue.tries:
            _settle(queue)
        elif lookup_identifier == lane.locked_floor:
            lane.raise_floor(queue.hidden)

    def forget_all(self, queue: "Queue") -> None:
        """Forget the pauses of a queue that was purged or deleted."""
        if not queue.tries:
            return
        kept = {one: second for one, second in queue.tries.items() if one in queue.locked}
        queue.tries.clear()
        self._context.store.delete_tries(queue.queue_id)
        for lookup_identifier, second in kept.items():
            self._note(queue, lookup_identifier, second)
        _settle(queue)

    def _note(self, queue: "Queue", lookup_identifier: int, second: int, *, is_stored: bool = False) -> None:
        if not queue.tries:
            queue.hidden = _Hidden(queue)
        queue.tries[lookup_identifier] = second
        if not is_stored:
            self._context.store.put_try(queue.queue_id, lookup_identifier, second)

    def _hold(self, queue: "Queue", lookup_identifier: int, second: int, *, is_stored: bool = False) -> None:
        """Hide an unlocked message until a second."""
        self._note(queue, lookup_identifier, second, is_stored=is_stored)
        queue.lane_of(lookup_identifier >> LANE_SHIFT).lock(lookup_identifier)
        self._schedule(queue, lookup_identifier, second)

    def _schedule(self, queue: "Queue", lookup_identifier: int, second: int) -> None:
        key = second, queue.queue_id
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = array("Q")
            heapq.heappush(self._order, key)
            if self._order[0] == key:
                self._arm()
        waiting.append(lookup_identifier)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        clock = self._context.clock
        if self._ready:
            self._timer = clock.call_later(0.0, self._due)
        elif self._order and not self._stopped:
            self._timer = clock.call_later(max(0.0, self._order[0][0] - clock.time()), self._due)

    def _due(self) -> None:
        """End the pauses that are over, in the order of their queues."""
        self._timer = None
        if self._stopped:
            return
        context, now = self._context, self._context.clock.time()
        while self._order and self._order[0][0] <= now:
            key = heapq.heappop(self._order)
            self._ready.extend((key[1], one, key[0]) for one in sorted(self._waiting.pop(key)))
        context.store.make_visible()
        size = 0
        for _ in range(min(_CHUNK, len(self._ready))):
            if size >= _CHUNK_BYTES:
                break
            queue_id, lookup_identifier, second = self._ready.popleft()
            queue = context.queues.get(queue_id)
            if queue is None or queue.tries.get(lookup_identifier) != second:
                continue  # it left its queue meanwhile
            try:
                size += self._try_again(queue, lookup_identifier)
            except MessageQueuingError as error:
                context.store.check()
                log.error("a message that waits for its next try cannot be read", queue=queue.pathname,
                          lookup_identifier=lookup_identifier, reason=error.sentence)  # fmt: skip
        context.store.durable()
        self._arm()

    def _try_again(self, queue: "Queue", lookup_identifier: int) -> int:
        """End a pause. Return the bytes that were read."""
        value = self._context.store.get_message(queue.queue_id, lookup_identifier)
        if value is None:  # an express message of an earlier run
            self.forget(queue, lookup_identifier)
        elif self._is_last(queue, value):
            self._give_up(queue, lookup_identifier, value)
        else:
            self.forget(queue, lookup_identifier)
            queue.make_available(lookup_identifier, value)
        return 0 if value is None else len(value)


def _settle(queue: "Queue") -> None:
    """Hide what is still hidden after messages with a delivery or a pause are gone."""
    if not queue.tries:
        queue.hidden = queue.locked
    for lane in queue.lanes:
        if lane is not None:
            lane.raise_floor(queue.hidden)


def _counted(value: bytes) -> bytes:
    return with_prefix(value, aborts=min(value[ABORTS] + 1, COUNT_LIMIT))
