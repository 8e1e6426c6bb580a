"""Messages for other queue managers: into the outgoing queue of their destination, or into a connector queue; and the
peers that are declared: queue managers of the directory that speak from their own addresses, and TLS peers.

A session names the queue manager that opened it, but any host can claim any name. The evidence is the address of the
connection: the queue manager's name must resolve to it. Any other peer is a stranger; it is served, but gets less
information.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import structlog

from qmnode.delivery.machine_addresses import MachineAddresses
from qmnode.delivery.strangers import Strangers
from qmnode.delivery.topology import Topology
from qmnode.directory.port import DirectoryOperationError
from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access
from qmnode.model.context import Context
from qmnode.model.outgoing import OutgoingQueue
from qmnode.model.queue import Queue
from qmnode.model.queue_manager import QueueManager
from qmnode.model.stored_message import (
    FLAGS,
    PREFIX_SIZE,
    SOURCE,
    TRANSACTIONAL,
    RecordFlag,
    expiry,
    value_of_packet,
    with_prefix,
)
from qmnode.protocol.admission import Destination, DestinationKind
from qmnode.protocol.received import ReceivedMessage
from qmnode.security.outcomes import Neighbour
from qmnode.shares.blocks import block_of
from qmnode.shares.parties import OWN, UNKNOWN, Kind, Party, declared, stranger
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import ZERO_GUID, Guid, guid_to_text
from qmnode.structures.names import ConnectorFormatName, FormatName
from qmnode.transport.connection import Connection

if TYPE_CHECKING:
    from qmnode.delivery.network import Network

_STRANGERS: Final = 4096
"""Queue managers whose speaking address block is remembered."""


class Neighbours:
    """Determines which peers are declared."""

    def __init__(self, network: "Network") -> None:
        self._network = network
        self.addresses: MachineAddresses | None = None
        """None if there is no directory."""
        self._parties: dict[Guid, Party] = {}
        """The party of each queue manager that opened a session: a declared one, or else the first."""

    def opened(self, connection: "Connection") -> None:
        """A session has opened: find out whether its peer is declared."""
        machine = connection.session.remote
        party = self.party(connection)
        before = self._parties.pop(machine, party)
        self._parties[machine] = before if party.kind is Kind.STRANGER else party  # moved to the end of the order
        if party.kind is not Kind.STRANGER:
            self._network.manager.context.shares.turns.knows_peers = True
        if len(self._parties) > _STRANGERS:
            del self._parties[next(iter(self._parties))]
        addresses = self._addresses_for(connection)
        if addresses is not None and not addresses.is_fresh(machine):
            addresses.look_up(machine)

    def is_declared(self, connection: "Connection") -> bool:
        """Whether the peer is declared, as far as is known now: the last answer holds during a new look-up."""
        if connection.encrypted:
            # It presented a certificate; one that outlived its machine in the directory declares nobody.
            certified, topology = connection.session.certified, self._network.topology
            return certified is None or topology is None or topology.knows(certified)
        return self._is_registered(connection) or self._network.peer_tls.is_plain_peer_at(connection.address)

    def _is_registered(self, connection: "Connection") -> bool:
        """Whether the directory has the queue manager that a plain session names at the address of the connection."""
        machine, addresses = connection.session.remote, self._addresses_for(connection)
        if addresses is None:
            return False
        if not addresses.is_fresh(machine):
            addresses.look_up(machine)
        return connection.address in addresses.last(machine)

    def party(self, connection: "Connection") -> Party:
        """The party that pays for what the peer uses: by what proves it, not by what it names."""
        if not self.is_declared(connection):
            return stranger(connection.address)
        session, identifier = connection.session, None
        if connection.encrypted:
            identifier = session.certified
        elif self._is_registered(connection):
            identifier = session.remote
        return declared(block_of(connection.address) if identifier is None else guid_to_text(identifier))

    def is_pending(self, connection: "Connection") -> bool:
        """Whether the addresses of the peer's machine were never looked up, or the first answer is pending."""
        addresses = self._addresses_for(connection)
        return addresses is not None and not addresses.was_asked(connection.session.remote)

    def party_of(self, source: Guid) -> Party:
        """The party that pays for notices about a stored message of a queue manager."""
        network = self._network
        if source == network.manager.identifier:
            return OWN
        if network.is_in_directory(source):
            return declared(guid_to_text(source))
        return self._parties.get(source, UNKNOWN)

    def party_at(self, source: Guid, address: str) -> Party:
        """The party that pays for acknowledgments to a queue manager, at an address if they go to one."""
        found = self.party_of(source)
        if not address or found is OWN:
            return found
        addresses = () if self.addresses is None else self.addresses.last(source)
        is_elsewhere = bool(addresses) and address not in addresses
        if found.kind is Kind.STRANGER or (is_elsewhere and not self._network.peer_tls.is_plain_peer_at(address)):
            return stranger(address)
        return found

    def payer(self, connection: "Connection", source: Guid) -> Party:
        """The party that pays for notices about messages of ``source`` that a connection has just delivered."""
        if connection.neighbour.speaks_for(source):
            return OWN if source == self._network.manager.identifier else declared(guid_to_text(source))
        return self.party(connection)

    def is_address_of_one(self, block: str) -> bool:
        """Whether a declared peer that connected recently has an address in this block."""
        return self.addresses is not None and any(block_of(address) == block for address in self.addresses.fresh())

    def of(self, connection: "Connection") -> Neighbour:
        """The peer in the form that security uses."""
        return Neighbour(block_of(connection.address), self.is_declared(connection))

    async def settle(self, connection: "Connection") -> None:
        """Wait until it is known whether the peer is declared."""
        addresses = self._addresses_for(connection)
        if addresses is not None:
            await addresses.of(connection.session.remote)

    def _addresses_for(self, connection: "Connection") -> MachineAddresses | None:
        """The machine addresses to check the peer against, if they decide whether it is declared."""
        is_asked = not connection.encrypted and self._network.is_in_directory(connection.session.remote)
        return self.addresses if is_asked else None


log = structlog.get_logger(__name__)

_UNKNOWN = Destination(DestinationKind.UNKNOWN)
_OF_A_MACHINE = (3, 5)
"""UserHeader.Flags.DQ of private and public names: only these go where UserHeader.QueueManagerAddress points."""


class Forwarding:
    """Decides about messages whose destination is another queue manager (MS-MQQB 3.1.5.8.5).

    Only messages for queue managers of the enterprise are forwarded: a node is not an open relay. This node need not be
    a routing server, because the previous hop may have routed by an older or a newer topology. Messages for queue
    managers that the directory does not show yet wait, see ``Strangers``.
    """

    def __init__(
        self, manager: QueueManager, topology: Topology | None, strangers: Strangers, neighbours: Neighbours
    ) -> None:
        self._manager = manager
        self._topology = topology
        self._strangers = strangers
        self._neighbours = neighbours

    def is_news(self, messages: Iterable[ReceivedMessage]) -> bool:
        """Whether to read the directory before refusing a message: its queue manager may have joined since."""
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
        """Whether there are passing messages whose space depends on who the neighbour is, which is not known yet."""
        own = (self._manager.identifier, ZERO_GUID)
        return self._neighbours.is_pending(connection) and any(
            one.destination.kind in _OF_A_MACHINE and one.destination.address not in own for one in messages
        )

    async def learn(self) -> None:
        """Read the topology now. Destinations still missing from it are refused."""
        assert self._topology is not None
        try:
            await self._topology.read()
        except DirectoryOperationError as error:
            log.warning("the topology is not read: the last known serves", reason=error.sentence)

    def destination(self, name: FormatName, machine: Guid, connection: Connection | None) -> Destination:
        """The destination of a message for a queue of ``machine``; without a connection, no queue is created for it."""
        topology = self._topology
        if topology is None:
            return _UNKNOWN
        is_known = topology.knows(machine)
        if connection is None:
            return Destination(DestinationKind.FORWARD, self._manager.names.outgoing(name)) if is_known else _UNKNOWN
        party = self._neighbours.party(connection)
        if not is_known:
            return self._strangers.destination(name, machine, party)
        site = topology.connector_site(machine)
        try:
            if site is not None:
                plain, transactional = (connector_queue(self._manager.context, site, kind) for kind in (False, True))
                return Destination(DestinationKind.CONNECTOR, plain, transactional_queue=transactional)
            found = self._manager.names.outgoing(name)
            queue = found or self._manager.opening.find(name, Access.SEND, party=party)
        except MessageQueuingError as error:
            log.warning("a message cannot be forwarded", destination=str(name), reason=str(error))
            full = error.code == ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES
            return Destination(DestinationKind.FULL) if full else _UNKNOWN
        if isinstance(queue, OutgoingQueue):
            return Destination(DestinationKind.FORWARD, queue)
        return _UNKNOWN  # a public queue of this node that the sender believes to be elsewhere


def connector_queue(context: Context, site: Guid, transactional: bool) -> Queue:
    """The connector queue of a foreign site (MS-MQMQ 2.1.6), created on first use."""
    return context.opening.find(ConnectorFormatName(site, transactional), Access.RECEIVE)


def move_to_connector(queue: OutgoingQueue, site: Guid) -> None:
    """Move all messages sent here to a foreign queue manager into the connector queue, in one batch."""
    context = queue.context
    while (entry := queue.take()) is not None:
        lookup_identifier, value = entry
        queue.remove(lookup_identifier, value)
        if value[SOURCE] == context.identifier:
            if (
                value[FLAGS] & RecordFlag.POSITIVE_JOURNAL
            ):  # nobody acknowledges it: it has reached the end of its way here
                context.outcomes.add_to_journal(context.queues.journal, lookup_identifier, value)
        else:  # it waited for its machine, which has a timeout of its own
            value = with_prefix(value, expires=expiry(value_of_packet(value[PREFIX_SIZE:], 0, transit=True)))
        connector_queue(context, site, bool(value[FLAGS] & TRANSACTIONAL)).insert(lookup_identifier, value)
    context.store.durable()
