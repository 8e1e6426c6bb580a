"""Messages for others: into the outgoing queue of their destination, or into a connector queue."""

from collections.abc import Iterable

import structlog

from qmnode.delivery.neighbours import Neighbours
from qmnode.delivery.strangers import Strangers
from qmnode.delivery.topology import Topology
from qmnode.delivery.transit_queues import TransitQueues
from qmnode.directory.port import DirectoryOperationError
from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access
from qmnode.model.context import Context
from qmnode.model.outgoing import OutgoingQueue
from qmnode.model.packet import value_of_packet
from qmnode.model.packet_parts import SOURCE
from qmnode.model.queue import Queue
from qmnode.model.queue_manager import QueueManager
from qmnode.model.record import FLAGS, PREFIX_SIZE, TRANSACTIONAL, expiry, with_prefix
from qmnode.protocol.received import ReceivedMessage
from qmnode.protocol.reception import Destination, DestinationKind
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import ZERO_GUID, Guid
from qmnode.structures.names import ConnectorFormatName, FormatName
from qmnode.transport.blocks import block_of
from qmnode.transport.connection import Connection

log = structlog.get_logger(__name__)

_UNKNOWN = Destination(DestinationKind.UNKNOWN)
_OF_A_MACHINE = (3, 5)
"""UserHeader.Flags.DQ of private and public names: only they lead where UserHeader.QueueManagerAddress says."""


class Forwarding:
    """Decides about messages whose destination is another queue manager (MS-MQQB 3.1.5.8.5).

    Only those for queue managers of the enterprise are passed on: a node is no open relay. Whether this one is a
    routing server does not matter: who sent it here knows the enterprise as it was, or as it will be. Those for queue
    managers that it does not have yet wait, see ``Strangers``.
    """

    def __init__(
        self, manager: QueueManager, topology: Topology | None, strangers: Strangers, neighbours: Neighbours
    ) -> None:
        self._manager = manager
        self._topology = topology
        self._strangers = strangers
        self._neighbours = neighbours
        self._made = TransitQueues(manager)

    def is_news(self, messages: Iterable[ReceivedMessage]) -> bool:
        """Whether the directory is to be read before a message is refused: its queue manager may have joined since."""
        topology = self._topology
        if topology is None or self._strangers.patience or not topology.is_due:
            return False
        last = None
        for received in messages:
            name = received.destination
            if name is last:
                continue
            last = name
            if name.kind not in _OF_A_MACHINE or name.address in (self._manager.identifier, ZERO_GUID):
                continue
            if not topology.knows(name.address):
                return True
        return False

    def waits_for_neighbour(self, connection: Connection, messages: Iterable[ReceivedMessage]) -> bool:
        """Whether messages pass whose room here depends on who brings them, and that is not known yet."""
        own = (self._manager.identifier, ZERO_GUID)
        return self._neighbours.is_pending(connection) and any(
            one.destination.kind in _OF_A_MACHINE and one.destination.address not in own for one in messages
        )

    async def learn(self) -> None:
        """Read the topology now. What it does not have after that is refused."""
        assert self._topology is not None
        try:
            await self._topology.read()
        except DirectoryOperationError as error:
            log.warning("the topology is not read: the last known serves", reason=error.sentence)

    def destination(self, name: FormatName, machine: Guid, connection: Connection | None) -> Destination:
        """Where a message for a queue of ``machine`` goes that a connection brought. Without a connection the question
        is only what is known of it, and no queue is made."""
        topology = self._topology
        if topology is None:
            return _UNKNOWN
        is_known = topology.knows(machine)
        if connection is None:
            return Destination(DestinationKind.FORWARD, self._manager.names.outgoing(name)) if is_known else _UNKNOWN
        block, is_declared = block_of(connection.address), self._neighbours.is_declared(connection)
        if not is_known:
            return self._strangers.destination(name, machine, block, is_declared)
        site = topology.connector_site(machine)
        try:
            if site is not None:
                plain, transactional = (connector_queue(self._manager.context, site, kind) for kind in (False, True))
                return Destination(DestinationKind.CONNECTOR, plain, transactional_queue=transactional)
            queue = self._made.find(name, block, is_declared)
        except MessageQueuingError as error:
            log.warning("a message cannot be forwarded", destination=str(name), reason=str(error))
            full = error.code == ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES
            return Destination(DestinationKind.FULL) if full else _UNKNOWN
        if isinstance(queue, OutgoingQueue):
            return Destination(DestinationKind.FORWARD, queue)
        return _UNKNOWN  # a public queue that is here, and which the sender believes to be elsewhere


def connector_queue(context: Context, site: Guid, transactional: bool) -> Queue:
    """The connector queue of a foreign site (MS-MQMQ 2.1.6), new when it is first needed."""
    return context.opening.find(ConnectorFormatName(site, transactional), Access.RECEIVE)


def move_to_connector(queue: OutgoingQueue, site: Guid) -> None:
    """What was sent here to a foreign queue manager is for the connector: all of it, in one batch."""
    context = queue.context
    while (entry := queue.take()) is not None:
        lookup_identifier, value = entry
        queue.remove(lookup_identifier, value)
        if value[SOURCE] != context.identifier:  # it waited for its machine, which has a time of its own
            value = with_prefix(value, expires=expiry(value_of_packet(value[PREFIX_SIZE:], 0, transit=True)))
        connector_queue(context, site, bool(value[FLAGS] & TRANSACTIONAL)).insert(lookup_identifier, value)
    context.store.durable()
