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
from qmnode.shares.parties import Party
from qmnode.shares.resources import TRANSIT_QUEUES
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.names import FormatName

_FRESH: Final = 1.0
"""Seconds for which a new, empty queue counts as used."""


class _Made(NamedTuple):
    queue: OutgoingQueue
    at: float
    party: Party


class TransitQueues:
    """Charges neighbours for the transit queues that they have created since the start."""

    def __init__(self, manager: QueueManager) -> None:
        self._manager = manager
        self._loop = asyncio.get_running_loop()
        self._account = manager.context.shares.open(TRANSIT_QUEUES, manager.settings.quotas.outgoing_queues / 2)
        self._made: list[_Made] = []

    def find(self, name: FormatName, party: Party) -> Queue:
        """The outgoing queue of that name, created if allowed. Raises MQ_ERROR_INSUFFICIENT_RESOURCES if not."""
        queue = self._manager.names.outgoing(name)
        if queue is not None:
            return queue
        if self._account.room(party) < 1:
            self._release_unused()
        if not self._account.admits(party):
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES,
                f"{party.name} has its share of outgoing queues in use, of quotas.outgoing_queues",
            )
        queue = self._manager.opening.find(name, Access.SEND)
        if isinstance(queue, OutgoingQueue):
            self._account.charge(party)
            self._made.append(_Made(queue, self._loop.time(), party))
        return queue

    def _release_unused(self) -> None:
        """Charge no longer for queues that are empty or deleted, unless just created: those get their messages with
        the batch.
        """
        since, made, self._made = self._loop.time() - _FRESH, self._made, []
        for one in made:
            if one.at > since or not (one.queue.deleted or one.queue.is_unused()):
                self._made.append(one)
            else:
                self._account.give_back(one.party)
