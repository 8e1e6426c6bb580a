"""Limits on the outgoing queues that passing messages create, so that no neighbour uses them all up.

A sender may name any number of queues of a machine, and each gets an outgoing queue. While the machine is down these
stay, and at ``quotas.outgoing_queues`` no application could send to a new destination.
"""

import asyncio
from typing import Final, NamedTuple

from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access
from qmnode.model.outgoing import OutgoingQueue
from qmnode.model.queue import Queue
from qmnode.model.queue_manager import QueueManager
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.names import FormatName

_DECLARED: Final = 2
"""A declared neighbour creates at most one in this many outgoing queues,"""
_STRANGER: Final = 16
"""a stranger one in this many,"""
_STRANGERS: Final = 4
"""and all strangers together one in this many."""


_FRESH: Final = 1.0
"""Seconds for which a new, empty queue counts as used."""


class _Made(NamedTuple):
    queue: OutgoingQueue
    at: float


class TransitQueues:
    """Tracks which address block created each transit queue since the start."""

    def __init__(self, manager: QueueManager) -> None:
        self._manager = manager
        self._loop = asyncio.get_running_loop()
        self._declared: dict[str, list[_Made]] = {}
        self._strangers: dict[str, list[_Made]] = {}

    def find(self, name: FormatName, block: str, is_declared: bool) -> Queue:
        """The outgoing queue of that name, created if allowed. Raises MQ_ERROR_INSUFFICIENT_RESOURCES if not."""
        queue = self._manager.names.outgoing(name)
        if queue is not None:
            return queue
        made = self._declared if is_declared else self._strangers
        limit = self._manager.settings.quotas.outgoing_queues
        share = max(1, limit // (_DECLARED if is_declared else _STRANGER))
        if len(made.get(block, ())) >= share or self._are_too_many(limit):
            _keep_used(made, self._loop.time() - _FRESH)
        if len(made.get(block, ())) >= share or (not is_declared and self._are_too_many(limit)):
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES,
                f"{block} has its share of outgoing queues in use, {share} of quotas.outgoing_queues",
            )
        queue = self._manager.opening.find(name, Access.SEND)
        if isinstance(queue, OutgoingQueue):
            made.setdefault(block, []).append(_Made(queue, self._loop.time()))
        return queue

    def _are_too_many(self, limit: int) -> bool:
        return sum(map(len, self._strangers.values())) >= max(1, limit // _STRANGERS)


def _keep_used(made: dict[str, list[_Made]], since: float) -> None:
    """Forget queues that are empty or deleted, unless just created: those get their messages with the batch."""
    for block, queues in list(made.items()):
        made[block] = [one for one in queues if one.at > since or not (one.queue.deleted or one.queue.is_unused())]
        if not made[block]:
            del made[block]
