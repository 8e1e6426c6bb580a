"""Neighbours: the identity of a session's peer, the sources that it may speak for, and messages to forward for it."""

import asyncio
import ipaddress
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from qmnode.delivery.strangers import Strangers
from qmnode.delivery.topology import MachineAddresses, Topology
from qmnode.directory.port import DirectoryOperationError
from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access
from qmnode.model.queue import OutgoingQueue, Queue
from qmnode.model.queue_manager import QueueManager
from qmnode.model.shared_state import Context
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
from qmnode.protocol.received import ReceivedMessage
from qmnode.protocol.reception import Destination, DestinationKind, Neighbour
from qmnode.security.protector import Deliverer
from qmnode.shares import OWN, UNKNOWN, Kind, Party, block_of, declared, stranger
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import ZERO_GUID, Guid, guid_to_text
from qmnode.structures.names import ConnectorFormatName, FormatName
from qmnode.transport.connection import Connection

if TYPE_CHECKING:
    from qmnode.delivery.network import Network


# ----------------------------------------------------------------------------------------------------------------------
# Verifies that the peer of a session is the queue manager that it claims to be, and for whom it may speak; and detects
# two machines that run with one identity, such as a cloned machine beside its original.
#
# A TLS certificate that names a queue manager proves it. Over a plain connection a peer is believed at an address that
# its machine's name in the directory resolves to, and in sessions that this node opened by such a name. Then it speaks
# for itself and, as a routing server or a connector, for the sources whose messages it forwards. A peer that is not
# known to speak for a source is still served, but its packets change only state of their own
# (:mod:`qmnode.protocol.incoming_sequences`). Without a directory, only certificates identify peers.
#
# A copy and its original use the same QueueManager.Identifier, so receivers take messages of one for duplicates of the
# other's, and answers for one reach the other. A peer can notice it: sessions opened to one of its addresses come from
# two hosts in turn. Legitimate changes look different. A machine that moved does not move back and forth, a machine
# with several networks uses one of its addresses for each of ours, and an IPv6 machine changes its address only within
# its /64.

log = structlog.get_logger(__name__)

_PATIENCE: Final = 5.0
"""Seconds that messages wait for the directory and for name resolution."""
_ASK_AGAIN: Final = 60.0
"""Seconds after which the identity of a continuing session's peer is checked again."""
_AT_ONCE: Final = 2
"""Machines that are looked up at the same time for one session."""
_KNOWN: Final = 4_096


class Identities:
    """The sources that each peer may speak for, as far as the directory shows."""

    def __init__(
        self,
        own: Guid,
        topology: Topology | None = None,
        addresses: MachineAddresses | None = None,
        *,
        only_registered: bool = True,
    ) -> None:
        """Without a topology only certificates identify peers. ``only_registered`` is a setting of ``transfer``."""
        self._own = own
        self._topology = topology
        self._addresses = addresses
        self._only_registered = only_registered
        self._loop = asyncio.get_running_loop()

    @property
    def is_workgroup(self) -> bool:
        """Whether there is no directory to identify peers."""
        return self._topology is None

    @property
    def only_registered(self) -> bool:
        """Whether there is a directory, and machines are believed only from the addresses that it has."""
        return self._topology is not None and self._only_registered

    def is_settled(self, connection: Connection, messages: Iterable[ReceivedMessage]) -> bool:
        """Whether it is known which of these messages' sources the peer may speak for."""
        if self._topology is None and connection.session.certified is None:
            return True
        neighbour = connection.neighbour
        if self._loop.time() >= neighbour.ask_again:
            return False
        known, headers = neighbour.known, None
        for received in messages:
            if received.headers is not headers:
                headers = received.headers
                if headers.source_queue_manager not in known:
                    return False
        return True

    async def settle(self, connection: Connection, messages: Iterable[ReceivedMessage]) -> None:
        """Find out which sources the peer may speak for."""
        neighbour, remote = connection.neighbour, connection.session.remote
        if self._loop.time() >= neighbour.ask_again or len(neighbour.known) >= _KNOWN:
            neighbour.forget()
        is_itself = await self._is_itself(connection, remote)
        sources = {received.headers.source_queue_manager for received in messages} | {remote}
        known = self._may_speak_for(remote, sources, is_itself)
        is_stale = False
        if is_itself and not all(known.values()) and self._topology is not None:
            is_stale = not await self._has_learned(self._topology)  # it may have become a routing server
            known = self._may_speak_for(remote, sources, is_itself)
        if self._only_registered:
            strangers = [source for source, speaks in known.items() if not speaks and source != self._own]
            await self._find_addresses(neighbour, strangers)
            if not is_itself and self._is_at_home(connection, remote):
                is_itself = is_stale = True  # its addresses came only now, and the topology was not read for it
            known = self._may_speak_for(remote, sources, is_itself)  # the topology may have changed meanwhile
            neighbour.elsewhere.difference_update(source for source, speaks in known.items() if speaks)
        neighbour.is_unsettled = is_stale or self._is_unsettled(remote)
        neighbour.known.update(known)
        if neighbour.ask_again == float("inf") and not all(known.values()):
            neighbour.ask_again = self._loop.time() + _ASK_AGAIN

    def _may_speak_for(self, remote: Guid, sources: Iterable[Guid], is_itself: bool) -> dict[Guid, bool]:
        """By source: whether a peer may speak for it."""
        return {source: is_itself and (source == remote or self.may_pass_on(remote, source)) for source in sources}

    @staticmethod
    async def _has_learned(topology: Topology) -> bool:
        """Read the topology, unless it was read a moment ago. Return whether that was possible now."""
        if not topology.is_due:
            return False
        try:
            await topology.read()
        except DirectoryOperationError as error:
            log.warning("the topology is not read: the last known serves", reason=error.sentence)
            return False
        return True

    def _is_unsettled(self, remote: Guid) -> bool:
        """Whether a stranger may turn out to be a routing server: directory or name service has yet to answer."""
        if self._topology is None or self._addresses is None:
            return False
        if not self._topology.has_been_read:
            self._topology.read_soon()
            return True
        return self._topology.has(remote) and self._addresses.is_unanswered(remote)

    def may_pass_on(self, neighbour: Guid, source: Guid) -> bool:
        """Whether the topology lets a queue manager forward messages of ``source``."""
        return self._topology is not None and self._topology.may_pass_on(neighbour, source)

    def answers_for(self, author: Guid, destination: Guid) -> Guid:
        """The queue manager for which the author of an acknowledgment answers: itself, or the ``destination`` whose
        connector it is. A foreign system acknowledges nothing: its messages end at a connector queue.
        """
        if author != destination and self._topology is not None and self._topology.is_connector(author, destination):
            return destination
        return author

    async def _find_addresses(self, neighbour: Neighbour, machines: list[Guid]) -> None:
        """Note which machines have known addresses in the directory, and which could not be looked up in time.

        A peer may name so many machines that time runs out before the last ones: it must not be believed for those.
        """
        directory = self._addresses
        if directory is None:
            return
        places = asyncio.Semaphore(_AT_ONCE)

        async def ask(machine: Guid) -> None:
            async with places:
                await directory.of(machine)

        try:
            async with asyncio.timeout(_PATIENCE):
                await asyncio.gather(*map(ask, machines))
        except TimeoutError:
            log.info("the directory did not tell in time where sources are", count=len(machines))
        neighbour.elsewhere.update(filter(directory.last, machines))
        neighbour.unanswered.update(filter(directory.is_unanswered, machines))

    async def _is_itself(self, connection: Connection, remote: Guid) -> bool:
        """Whether a certificate or its address shows that the peer is the queue manager that it claims to be."""
        if remote in (ZERO_GUID, self._own):
            return False
        if connection.session.certified == remote:
            return True
        if connection.initiator and not connection.session.direct:
            return True  # opened to an address of that name, and that queue manager answered
        if self._addresses is not None:
            await self._addresses.of(remote, connection.address)
        return self._is_at_home(connection, remote)

    def _is_at_home(self, connection: Connection, remote: Guid) -> bool:
        """Whether a peer has an address that was found for the queue manager that it claims to be."""
        return (
            remote not in (ZERO_GUID, self._own)
            and self._topology is not None
            and self._topology.knows(remote)
            and self._addresses is not None
            and connection.address in self._addresses.last(remote)
        )


_TURNS: Final = 3
"""Changes of the speaking host that make a conflict: the other host, the first one again, and the other again."""
_WITHIN: Final = 600.0
"""Seconds within which that many changes are not a coincidence."""
_QUIET: Final = 300.0
"""Seconds without a change after which one of the two is considered gone."""
_REMEMBERED: Final = 512
"""Queue managers remembered: those that changed their host or spoke most recently."""
_NAMED: Final = 3
"""The most queue managers that a warning names."""
_NETWORK: Final = 64
_TROUBLE: Final = "identity"


class Conflict(NamedTuple):
    """One queue manager that speaks from two hosts."""

    identifier: Guid
    addresses: tuple[str, str]


class _Speaker:
    __slots__ = ("address", "before", "changes", "reported")

    def __init__(self, address: str) -> None:
        self.address = address
        self.before = ""
        self.changes: deque[float] = deque(maxlen=_TURNS)
        self.reported = False


class Speakers:
    """The host from which each queue manager spoke last."""

    def __init__(self) -> None:
        self._speakers: dict[tuple[Guid, str], _Speaker] = {}

    def heard(self, identifier: Guid, address: str, local_address: str, now: float) -> bool:
        """Record that a queue manager spoke in a session that it opened to us. Return whether a conflict begins."""
        key = identifier, local_address
        speaker = self._speakers.get(key)
        if speaker is not None and speaker.address == address:
            return False
        if speaker is None:
            speaker = _Speaker(address)
        elif _is_one_host(speaker.address, address):
            speaker.address = address
            return False
        else:
            del self._speakers[key]  # moved to the end of the order
            speaker.before, speaker.address = speaker.address, address
            speaker.changes.append(now)
        self._speakers[key] = speaker
        if len(self._speakers) > _REMEMBERED:
            del self._speakers[next(iter(self._speakers))]
        changes = speaker.changes
        begins = not speaker.reported and len(changes) == _TURNS and now - changes[0] <= _WITHIN
        speaker.reported = speaker.reported or begins
        return begins

    def conflicts(self, now: float) -> list[Conflict]:
        """Current conflicts, the latest first. A conflict ends when the hosts no longer take turns."""
        found: dict[Guid, Conflict] = {}
        for (identifier, _), speaker in reversed(self._speakers.items()):
            if speaker.reported and now - speaker.changes[-1] >= _QUIET:
                speaker.reported = False
                speaker.changes.clear()
            if speaker.reported:
                first, second = sorted((speaker.before, speaker.address))
                found.setdefault(identifier, Conflict(identifier, (first, second)))
        return list(found.values())


def _is_one_host(one: str, other: str) -> bool:
    if ":" not in one or ":" not in other:
        return False
    return ipaddress.ip_address(other) in ipaddress.ip_network((one, _NETWORK), strict=False)


class CopyWatch:
    """Reports conflicts of :class:`Speakers` to operators: in the log, and in the troubles of the node."""

    def __init__(self, troubles: dict[str, str]) -> None:
        """``troubles`` are those of the queue manager."""
        self._troubles = troubles
        self._speakers = Speakers()

    def heard(self, identifier: Guid, address: str, local_address: str, now: float) -> None:
        """Record that a queue manager spoke in a session that it opened."""
        if self._speakers.heard(identifier, address, local_address, now):
            conflicts = self._speakers.conflicts(now)
            log.warning(
                "two machines have one identity: a copy runs beside its original, and messages of both get lost. Stop "
                "one of them",
                queue_manager=guid_to_text(identifier),
                addresses=next(one.addresses for one in conflicts if one.identifier == identifier),
            )
            self._tell(conflicts)

    def look(self, now: float) -> None:
        """Clear the trouble when all conflicts have ended. Called from time to time."""
        if _TROUBLE in self._troubles:
            self._tell(self._speakers.conflicts(now))

    def _tell(self, conflicts: list[Conflict]) -> None:
        if not conflicts:
            del self._troubles[_TROUBLE]
            log.info("no two machines have one identity any more")
            return
        named = "; ".join(
            f"{guid_to_text(one.identifier)} at {' and '.join(one.addresses)}" for one in conflicts[:_NAMED]
        )
        more = f" and {len(conflicts) - _NAMED} more" if len(conflicts) > _NAMED else ""
        self._troubles[_TROUBLE] = (
            f"two machines run as one queue manager ({named}{more}), and messages of both get lost: "
            "stop the copy, or give it an identity of its own with `qmnode init`"
        )


# ----------------------------------------------------------------------------------------------------------------------
# Messages for other queue managers: into the outgoing queue of their destination, or into a connector queue; and the
# peers that are declared: queue managers of the directory that speak from their own addresses, and TLS peers.
#
# A session names the queue manager that opened it, but any host can claim any name. The evidence is the address of the
# connection: the queue manager's name must resolve to it. Any other peer is a stranger; it is served, but gets less
# information.

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

    def of(self, connection: "Connection") -> Deliverer:
        """The peer in the form that security uses."""
        return Deliverer(block_of(connection.address), self.is_declared(connection))

    async def settle(self, connection: "Connection") -> None:
        """Wait until it is known whether the peer is declared."""
        addresses = self._addresses_for(connection)
        if addresses is not None:
            await addresses.of(connection.session.remote)

    def _addresses_for(self, connection: "Connection") -> MachineAddresses | None:
        """The machine addresses to check the peer against, if they decide whether it is declared."""
        if self.addresses is None or connection.encrypted:
            return None
        return self.addresses if self._network.is_in_directory(connection.session.remote) else None


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
            queue = self._manager.opening.find(name, Access.SEND, party=party)
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
