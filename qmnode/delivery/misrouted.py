"""Sends on messages that wait in a connector queue although their destination is not a foreign system.

The directory may have called a machine foreign by mistake, and early versions kept messages for connectors of other
sites. Whenever the topology changes, connector queues are scanned, some messages at a time.
"""

import asyncio
from itertools import islice
from typing import Final

import structlog

from qmnode.delivery.topology import Topology
from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access, QueueType
from qmnode.model.ports import Entry
from qmnode.model.positions import LANE_SHIFT
from qmnode.model.queue import Queue
from qmnode.model.queue_manager import QueueManager
from qmnode.model.stored_message import (
    ADDRESS,
    BROKEN,
    FLAGS,
    PREFIX_SIZE,
    SOURCE,
    TRANSACTIONAL,
    arrival,
    received_message,
    value_of_packet,
)
from qmnode.structures.guid import Guid
from qmnode.structures.names import parse_single_format_name

log = structlog.get_logger(__name__)

_CHUNK: Final = 100
"""Messages examined in one pass of the event loop."""


class MisroutedMessages:
    """Scans the connector queues of a node."""

    def __init__(self, manager: QueueManager, topology: Topology) -> None:
        self._manager = manager
        self._topology = topology
        self._task: asyncio.Task[None] | None = None

    def topology_changed(self) -> None:
        """Begin a scan unless one is running; a running scan uses the current topology anyway."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._look(), name="connector queues")

    async def stop(self) -> None:
        """Stop scanning the connector queues."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _look(self) -> None:
        for queue in list(self._manager.queue_collection.values()):
            if queue.queue_type is QueueType.CONNECTOR and queue.message_count:
                count = await self._look_through(queue)
                if count:
                    log.warning("messages in a connector queue go on", queue=queue.pathname, count=count)

    async def _look_through(self, queue: Queue) -> int:
        place = count = 0
        while entries := list(islice(queue.scan(place), _CHUNK)):
            place = entries[-1][0] + 1
            moved = sum(self._send_on(queue, entry) for entry in entries)
            if moved:
                count += moved
                self._manager.store.durable()
            await asyncio.sleep(0)
        return count

    def _send_on(self, queue: Queue, entry: Entry) -> bool:
        """Move a message into the outgoing queue of its destination if that is an ordinary machine."""
        lookup_identifier, value = entry
        manager = self._manager
        try:
            if not self._topology.is_ordinary(Guid(value[ADDRESS])):
                return False
            message = received_message(lookup_identifier, value)
            name = parse_single_format_name(message.destination_queue_format_name)
            onward = value
            if value[SOURCE] != manager.identifier:  # its time to reach its queue counts again
                onward = value_of_packet(value[PREFIX_SIZE:], arrival(value), transit=True)
            outgoing = manager.opening.find(name, Access.SEND)
        except (MessageQueuingError, *BROKEN) as error:
            log.warning("a message stays in a connector queue", queue=queue.pathname, reason=str(error))
            return False
        queue.take_this(lookup_identifier)
        queue.remove(lookup_identifier, value)
        if value[SOURCE] == manager.identifier and value[FLAGS] & TRANSACTIONAL:
            # Its old number may have been acknowledged or skipped in the sequence since: it gets the next number.
            outgoing.arrive_committed([(lookup_identifier, onward)])
        else:
            outgoing.insert(lookup_identifier >> LANE_SHIFT << LANE_SHIFT | manager.sequence.next(), onward)
        return True
