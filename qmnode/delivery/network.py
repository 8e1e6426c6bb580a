"""Transfers messages between queue managers: listener, sessions and timers, started and stopped as one."""

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import structlog

from qmnode.delivery.acknowledgments import Acknowledgments
from qmnode.delivery.after_restore import AfterRestore, sequences_of
from qmnode.delivery.arrivals import Arrivals, IncomingSessions, ProtocolState
from qmnode.delivery.misrouted import MisroutedMessages
from qmnode.delivery.neighbours import Forwarding, Identities, Neighbours
from qmnode.delivery.notices import Notices
from qmnode.delivery.peer_tls import PeerTls
from qmnode.delivery.queue_connection import PacedAttempts, Precedence
from qmnode.delivery.queue_sender import QueueSender
from qmnode.delivery.signing_and_encryption import KeyReading, Protection, UnsignedSenderPolicy
from qmnode.delivery.strangers import Distrust, Strangers
from qmnode.delivery.topology import DirectoryResolver, MachineAddresses, Resolver, Topology
from qmnode.delivery.waiting import (
    connection_information,
    incoming_sequences,
    machine_name,
    transfer_information,
    why,
)
from qmnode.directory.port import Directory, WorkgroupDirectory
from qmnode.errors import ConfigurationError, MessageQueuingError
from qmnode.model.administration import ConnectionInformation, IncomingSequenceInformation, TransferInformation
from qmnode.model.ports import TransitEnd
from qmnode.model.queue import OutgoingQueue, Queue
from qmnode.model.queue_manager import QueueManager
from qmnode.model.stored_message import EXPRESS, FLAGS, PREFIX_SIZE, SOURCE
from qmnode.model.waiting_reasons import Waiting
from qmnode.protocol.commands import Family, Record
from qmnode.protocol.connection import NextHop
from qmnode.protocol.received import ReceivedMessage
from qmnode.protocol.reception import passing
from qmnode.protocol.session import Session, largest_window
from qmnode.security.errors import KeyStoreError
from qmnode.security.key_stores import KeyStore, KeyStoreOptions, open_key_store
from qmnode.security.message_security import SecurityService
from qmnode.settings.node import Settings
from qmnode.shares import HELD_BYTES, UNKNOWN, Kind
from qmnode.storage.origin import copied
from qmnode.storage.store import Store
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import Guid
from qmnode.structures.names import PublicFormatName
from qmnode.transport.connection import Alarm, Connection, Handler, HeldBytes
from qmnode.transport.listener import Listener, Slots
from qmnode.transport.ping import PingServer

log = structlog.get_logger(__name__)

Result = TypeVar("Result")

_CLEANUP_INTERVAL: Final = 60.0
"""Seconds between clean-ups of the message-id history, whose entries live for 30 minutes at least (3.1.2.8)."""
_WORKERS: Final = 4
"""The most threads that verify and decrypt: each has a few copies of the largest messages."""
_UNSETTLED_WINDOWS: Final = 4
"""A session is not read while this many windows of its messages wait for the disk."""


class Network:
    """Sessions for the outgoing queues of a queue manager, and incoming sessions.

    Created before anything is sent, so that transactional messages get their numbers; ``start`` opens the network.
    """

    def __init__(
        self, manager: QueueManager, store: Store, settings: Settings, directory: Directory | None, path: Path
    ) -> None:
        """``path`` is the node's directory, where a file key store is."""
        self.manager = manager
        self.security: SecurityService
        """Set at the start, when the identifier of the node is settled."""
        self._directory = directory
        self._topology: Topology | None = None
        self._machine_addresses: MachineAddresses | None = None
        self._security_settings = settings.security
        self._path = path
        self.keys = KeyReading(self, directory)
        self.settings = settings.transport
        self.session_settings = self._session_settings = settings.session
        self.state = ProtocolState(store, settings.transfer, manager.context.shares)
        self.next_numbers = self.state.next_numbers
        self.notices = Notices(manager, self.state.incoming)
        self.message_left = self.notices.message_left
        self.identities = Identities(manager.identifier)
        self.distrust = Distrust(manager.traffic.distrusted)
        self.after_restore = AfterRestore(manager)
        self.acknowledgments = Acknowledgments(self)
        self.notices.take_own = self.acknowledgments.take_own
        self.arrivals = Arrivals(self)
        self.incoming = IncomingSessions(self, self.arrivals)
        self.accepted = self.incoming.accepted
        self.protection = Protection(self)
        self.resolver = Resolver()
        self.neighbours = Neighbours(self)
        self.notices.party_at = self.neighbours.party_at
        manager.context.notices.party_of = self.neighbours.party_of
        manager.context.notices.has_directory = lambda: self.has_read_directory
        self.strangers = self._strangers(None)
        self.forwarding = Forwarding(manager, None, self.strangers, self.neighbours)
        self._misrouted: MisroutedMessages | None = None
        self.running = False
        self._loop = asyncio.get_running_loop()
        self._resting: set[asyncio.Task[None]] = set()
        self._precedence: dict[Guid, Precedence] = {}
        self.attempts = PacedAttempts(manager.context.shares.turns)
        self._queue_senders: dict[bytes, QueueSender] = {}
        self._held = HeldBytes(
            manager.context.shares.open(HELD_BYTES, self.settings.incomplete_bytes), self.neighbours.party
        )
        self._workers = ThreadPoolExecutor(min(os.cpu_count() or 1, _WORKERS), "security")
        self._alarm = Alarm(self._loop, self._timer_expired)
        self._cleanup_at = 0.0
        slots = Slots(
            self.settings.sessions,
            self.settings.sessions_per_peer,
            self.neighbours.is_declared,
            self.neighbours.is_address_of_one,
        )
        self.listener = Listener(self.incoming.accept, slots)
        self.peer_tls = PeerTls(self)
        self.unsigned_senders = UnsignedSenderPolicy(self, settings.security)
        self._ping_server: PingServer

    # Start and stop

    async def start(self) -> None:
        """Listen, and connect for every outgoing queue that has messages. Raises OSError if the address is in use, and
        MQ_ERROR_SERVICE_NOT_AVAILABLE if the node is in hardened mode.
        """
        if self.manager.settings.hardened_security:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE,
                "a node in hardened mode has no sessions: unset hardened_security to have them",
            )
        settings, identifier = self.settings, self.manager.identifier
        store = self._open_key_store(identifier)
        self.state.begin(identifier)
        if self._directory is not None:
            await self._join(self._directory, identifier)
        directory = self._directory or WorkgroupDirectory()
        self.security = SecurityService(identifier, self._security_settings, directory, store, self._with_worker)
        await self.keys.start(store)
        await self.peer_tls.start(self._security_settings.tls)
        self._ping_server = PingServer(self.manager.identifier, self._is_full)
        self.listener.start(settings.address, settings.port)
        try:
            await self._ping_server.start(settings.address, settings.ping_port)
        except OSError:
            await self.listener.stop()
            raise
        self.running = True
        self._cleanup_at = self._loop.time() + _CLEANUP_INTERVAL
        for queue in list(self.manager.queue_collection.values()):
            if isinstance(queue, OutgoingQueue):
                self.queue_added(queue)
        self.timers_changed()
        log.info("connected to the network", address=settings.address or "*", port=settings.port)

    async def _with_worker(self, work: Callable[[], Result]) -> Result:
        return await self._loop.run_in_executor(self._workers, work)

    async def _join(self, directory: Directory, identifier: Guid) -> None:
        """Read the topology, keep it up to date, and register this node in the directory."""
        self._topology = Topology(directory, identifier, self.state.parameters.routing_refresh, self._rerouted)
        self.manager.routing = self._topology.declared
        self.manager.context.shares.turns.knows_peers = True
        self.resolver = DirectoryResolver(directory, self._topology)
        self._machine_addresses = addresses = MachineAddresses(self.resolver, self._topology)
        self.neighbours.addresses = addresses
        self.strangers = self._strangers(self._topology)
        self.forwarding = Forwarding(self.manager, self._topology, self.strangers, self.neighbours)
        only_registered = self.manager.settings.transfer.only_registered_addresses
        self.identities = Identities(identifier, self._topology, addresses, only_registered=only_registered)
        self._misrouted = MisroutedMessages(self.manager, self._topology)
        await self._topology.start()
        directory.watch(self._object_changed)

    def _object_changed(self, identifier: Guid | None) -> None:
        """Something has changed in the directory: a user, perhaps, or the queue of an outgoing queue; None: any."""
        # Active Directory reports no user that loses the last certificate; it is believed for user_cert_lifetime.
        self.security.senders.forget_users(identifier)
        if identifier is None:
            queue_senders = list(self._queue_senders.values())
        else:
            queue = self.manager.names.outgoing(PublicFormatName(identifier))
            known = self._queue_senders.get(self.state.key_of(queue)) if isinstance(queue, OutgoingQueue) else None
            queue_senders = [] if known is None else [known]
        for queue_sender in queue_senders:
            queue_sender.queue_connection.destination_changed()

    def _strangers(self, topology: Topology | None) -> Strangers:
        return Strangers(self.manager, topology, self.state.parameters, self.is_repeated, self._waits)

    def _open_key_store(self, identifier: Guid) -> KeyStore:
        settings = self._security_settings
        options = KeyStoreOptions(settings=settings.key_store_settings, directory=self._path, identifier=identifier)
        try:
            return open_key_store(settings.key_store, options)
        except KeyStoreError as error:
            raise ConfigurationError(f"security.key_store: {error}") from error

    def forwarded(self, queue: OutgoingQueue, connection: Connection, hops: int) -> None:
        """A neighbour's messages were put into an outgoing queue, after ``hops`` hops at most."""
        queue_sender = self._queue_senders.get(self.state.key_of(queue))
        if queue_sender is not None and queue_sender.queue_connection.is_circle(connection.session.remote, hops):
            task = self._loop.create_task(self._let_rest(queue_sender, connection, hops))
            self._resting.add(task)
            task.add_done_callback(self._resting.discard)

    async def _let_rest(self, queue_sender: QueueSender, connection: Connection, hops: int) -> None:
        """Pause a queue whose messages seem to loop. A stranger cannot cause that: any host can write a hop count."""
        await self.neighbours.settle(connection)
        if self.neighbours.is_declared(connection):
            queue_sender.queue_connection.rest(hops)

    def is_repeated(self, queue: OutgoingQueue, received: ReceivedMessage, arriving: int = 0) -> bool:
        """Whether a passing transactional message already waits in its outgoing queue, counting ``arriving`` ones."""
        queue_sender = self._queue_senders.get(self.state.key_of(queue))
        return queue_sender is not None and queue_sender.repeats.is_repeated(received, arriving)

    def _waits(self, queue: OutgoingQueue, received: ReceivedMessage, arriving: int) -> bool:
        queue_sender = self._queue_senders.get(self.state.key_of(queue))
        return queue_sender is not None and queue_sender.repeats.waits(received, arriving)

    @property
    def topology(self) -> Topology | None:
        """The enterprise; None in workgroup mode."""
        return self._topology

    @property
    def has_directory(self) -> bool:
        """Whether the node belongs to an enterprise; otherwise it runs in workgroup mode."""
        return self._topology is not None

    @property
    def has_read_directory(self) -> bool:
        """Whether the node belongs to an enterprise, and its directory has answered since the start."""
        return self._topology is not None and self._topology.has_been_read

    def is_in_directory(self, machine: Guid) -> bool:
        """Whether the directory has a queue manager, as far as it was read."""
        return self._topology is not None and self._topology.has(machine)

    def queue_sender(self, queue: bytes) -> QueueSender | None:
        """The sender of the outgoing queue with that key."""
        return self._queue_senders.get(queue)

    def addresses_reached(self) -> set[str]:
        """The peer address of the last session of each outgoing queue."""
        return {queue_sender.credibility.address for queue_sender in self._queue_senders.values()}

    def read_topology_soon(self) -> None:
        """Read the topology soon, because other queue managers seem to have newer data."""
        if self._topology is not None:
            self._topology.read_soon()

    def _rerouted(self) -> None:
        """Apply a changed topology: next hops and the role of this node may have changed."""
        if self.is_in_directory(self.manager.identifier):
            self.manager.names.enter_directory()
        self.strangers.topology_changed()
        self.peer_tls.topology_changed()
        session = self._session_settings
        is_routing_server = self._topology is not None and self._topology.is_routing_server()
        self.session_settings = session.of_routing_server() if is_routing_server else session
        for connection in self.accepted:
            connection.neighbour.forget()
        for queue_sender in self._queue_senders.values():
            if queue_sender.queue_connection.connection is not None:
                queue_sender.queue_connection.connection.neighbour.forget()
            queue_sender.queue_connection.reroute()
        if self._misrouted is not None:
            self._misrouted.topology_changed()

    async def stop(self) -> None:
        """Close every session and socket."""
        if not self.running:
            return
        self.running = False
        if self._topology is not None:
            await self._topology.stop()
        if self._misrouted is not None:
            await self._misrouted.stop()
        await self.peer_tls.stop()
        await self.listener.stop()
        await self._ping_server.stop()
        self._alarm.stop()
        for queue_sender in self._queue_senders.values():
            queue_sender.stop()
        for connection in list(self.accepted):
            connection.close()
        self.state.stop()
        if self._machine_addresses is not None:
            await self._machine_addresses.stop()
        await self.keys.stop()
        await self.security.close()
        self._workers.shutdown(wait=False)

    def time(self) -> int:
        """Wall time in seconds since 1970 (UTC)."""
        return int(self.manager.clock.time())

    # Called by the model (qmnode.model.shared_state.Network)

    def is_awaited(self, queue: OutgoingQueue) -> bool:
        """Whether an order acknowledgment for messages of this queue is still pending."""
        return self.state.outgoing.is_awaited(self.state.key_of(queue))

    def sequence_ended(self, queue: OutgoingQueue) -> None:
        """All messages of an outgoing queue are in a connector queue of this node: nobody acknowledges their order."""
        sequence = None if queue.message_count else self.state.outgoing.end(self.state.key_of(queue))
        if sequence is not None:
            self.state.changed(sequence)

    def waiting_of(self, queue: Queue) -> Waiting | None:
        """The reason why the messages of a queue wait, or why it refuses messages; None if nothing keeps them."""
        return next(why(self, queue), None)

    def came(self, source: Guid, number: int) -> bool:
        """Whether the message with this identifier came here from elsewhere lately."""
        return self.state.history.seen(source, number)

    def sites_of(self, machine: Guid) -> set[str]:
        """The sites of a queue manager, in lower case; none if the directory does not say it."""
        return self.topology.sites_of([machine]) if self.topology is not None else set()

    def name_of(self, machine: Guid) -> str:
        """The computer name of a queue manager; empty if the directory does not say it."""
        return machine_name(self, machine)

    def waiting(self, machine: str = "", link: str = "") -> list[Waiting]:
        """The same of all queues, of those that lead to or over a machine, or over a routing link."""
        return list(why(self, machine=machine, link=link))

    def transfer_information(self, queue: OutgoingQueue) -> TransferInformation:
        """The state of the queue's outgoing sequence."""
        unread = self.acknowledgments.final_acks.waiting_of(self.state.key_of(queue))
        return transfer_information(self.state, queue, self.manager.clock.time(), unread)

    def resend(self, queue: OutgoingQueue) -> None:
        """Send unacknowledged transactional messages of a queue again at once."""
        self.state.outgoing.resend_now(self.state.key_of(queue))
        self.timers_changed()

    def incoming_sequences(self, queue: Queue | None) -> list[IncomingSequenceInformation]:
        """The incoming sequences of transactional messages for this queue, or for any queue."""
        return incoming_sequences(queue, self.manager, self.state.incoming)

    def reset_incoming_sequences(self, source: Guid, queue: Queue | None, address: str) -> int:
        """Delete the incoming sequences of a queue manager.

        In a store that was restored lately, those that wait at a gap go on behind it instead.
        """
        incoming = self.state.incoming
        gaps = {} if copied(self.manager.store) is None else incoming.gaps()
        found = [
            sequence
            for sequence, _ in sequences_of(queue, self.manager, dict.fromkeys([*incoming, *gaps]))
            if sequence.source == source and (not address or sequence.bringer == address)
        ]
        for sequence in found:
            passed = incoming.pass_gap(sequence, self.time()) if sequence in gaps else [incoming.forget(sequence)]
            self.state.write(passed)
        return len(found)

    def precedence_of(self, neighbour: Guid) -> Precedence:
        """The precedence shared by queues whose next hop is ``neighbour``."""
        return self._precedence.setdefault(neighbour, Precedence())

    def precedence_ends(self, precedence: Precedence) -> None:
        """Forget a precedence: no queue has a session to that neighbour any longer."""
        for neighbour in [one for one, known in self._precedence.items() if known is precedence]:
            del self._precedence[neighbour]

    def queue_added(self, queue: OutgoingQueue) -> None:
        """Begin to send for a new outgoing queue."""
        if self.running:
            self._queue_senders[self.state.key_of(queue)] = QueueSender(self, queue)

    def queue_removed(self, queue: OutgoingQueue) -> None:
        """Stop sending for a deleted outgoing queue."""
        key = self.state.key_of(queue)
        queue_sender = self._queue_senders.pop(key, None)
        if queue_sender is not None:
            queue_sender.stop()
        record = self.state.outgoing.forget(key)
        if record is not None:
            self.state.write([record, Record(Family.SEQUENCE_OWNER, key, None)])

    def paused(self, queue: OutgoingQueue) -> None:
        """Pause Queue: stop sending its messages."""
        queue_sender = self._queue_senders.get(self.state.key_of(queue))
        if queue_sender is not None:
            queue_sender.queue_connection.pause()

    def resumed(self, queue: OutgoingQueue) -> None:
        """Resume Queue: send its messages again."""
        queue_sender = self._queue_senders.get(self.state.key_of(queue))
        if queue_sender is not None:
            queue_sender.queue_connection.resume()

    def disconnect(self) -> None:
        """Take Offline: close every session. Messages in outgoing queues wait."""
        for queue_sender in self._queue_senders.values():
            queue_sender.queue_connection.disconnect()
        for connection in list(self.accepted):
            connection.close()

    def connect(self) -> None:
        """Bring Online: connect again for waiting messages."""
        for queue_sender in self._queue_senders.values():
            queue_sender.queue_connection.connect()

    def transit_end(self, value: bytes) -> TransitEnd:
        """The time at which another queue manager's message expires in transit here."""
        return self.strangers.end_of(value)

    def gave_up(self, queue: OutgoingQueue, value: bytes) -> bool:
        """Report a passing message that ends here: once, no matter how many copies of it exist."""
        history = self.state.history
        history.party = UNKNOWN
        remembered = passing(value[SOURCE], value[PREFIX_SIZE:])
        first = history.add(*remembered, not value[FLAGS] & EXPRESS, self.time())
        self.state.write(history.take_records())
        queue_sender = self._queue_senders.get(self.state.key_of(queue))
        if queue_sender is not None:
            queue_sender.repeats.forget()
        return first

    # Sessions

    def new_connection(
        self, session: Session, handler: Handler, *, initiator: bool, on_lost: Callable[[], object] | None = None
    ) -> Connection:
        """Create a connection with this node's limits."""
        connection = Connection(
            session,
            handler,
            initiator=initiator,
            unsettled_limit=_UNSETTLED_WINDOWS * largest_window(self.session_settings),
            turns=self.manager.context.shares.turns,
            held=self._held,
            party=self.neighbours.party,
            identify=self.peer_tls.identify,
        )
        connection.on_lost = on_lost
        return connection

    def record_session(self, connection: Connection, *, opened: bool, state: str = "") -> None:
        """Report an opened or closed session to the configured recorder."""
        if self.manager.recorder is not None:
            self.manager.recorder.session(
                opened,
                peer=connection.address,
                peer_identifier=connection.session.remote,
                incoming=not connection.initiator,
                state=state,
            )

    def outgoing(self) -> list[Connection]:
        """The connections of outgoing queues."""
        found = (queue_sender.queue_connection.connection for queue_sender in self._queue_senders.values())
        return [one for one in found if one is not None]

    def outgoing_connections(self) -> "list[tuple[Connection, NextHop, Callable[[], object]]]":
        """The sessions of outgoing queues that are open, each with its next hop and what opens another in its place."""
        found = (queue_sender.queue_connection.way_out() for queue_sender in self._queue_senders.values())
        return [one for one in found if one is not None]

    def _is_full(self) -> bool:
        return self.listener.sessions >= self.settings.sessions or not self.manager.connection_active

    # Timers

    def timers_changed(self) -> None:
        """Set the alarm for the next timer of the state."""
        if not self.running:
            return
        state = self.state
        deadline = self._cleanup_at
        for timer in (state.incoming.next_timer(), state.outgoing.next_timer()):
            if timer is not None and timer[1] < deadline:
                deadline = timer[1]
        self._alarm.set(deadline)

    def _timer_expired(self) -> None:
        now = self._loop.time()
        state = self.state
        turns = self.manager.context.shares.turns
        for acknowledgment in state.incoming.take_order_acknowledgments(now):
            source, (is_direct, address, peer) = acknowledgment.source, acknowledgment.route
            if is_direct and self.neighbours.party_at(source, address).kind is Kind.STRANGER:
                turns.follow(peer or address, partial(self.notices.order, acknowledgment))
            else:
                self.notices.order(acknowledgment)
        for sequence in state.outgoing.take_resends(now):
            queue_sender = self._queue_senders.get(sequence.queue)
            if queue_sender is not None:
                queue_sender.resend()
        if now >= self._cleanup_at:
            self._cleanup_at = now + _CLEANUP_INTERVAL
            self.incoming.copies.look(now)
            state.history.clean(self.time())
            self.security.clean_up(self.manager.clock.time())
            self.protection.clean_up(self.manager.clock.time())
            state.write(state.history.take_records())
            state.store.durable()
        self.timers_changed()

    # For the management API

    def connections(self) -> Sequence[ConnectionInformation]:
        """All connections that are open now."""
        return [connection_information(one) for one in (*self.outgoing(), *self.accepted)]


# ----------------------------------------------------------------------------------------------------------------------
# The end of a node: messages that are on their way leave first.

_LOOK: Final = 0.02
"""Seconds between two checks for remaining messages."""
_STANDSTILL: Final = 0.5
"""Seconds without a departing message after which draining stops."""


async def drain(network: "Network", limit: float) -> int:
    """Accept nothing new, and wait up to ``limit`` seconds until messages on their way have left.

    Return the number of messages left. Recoverable ones stay on disk; express ones are lost when the node ends.
    Draining stops early when no message moves, because the destination is down.
    """
    if not network.running:
        return 0
    time = asyncio.get_running_loop().time
    await network.listener.stop()
    for connection in list(network.accepted):
        connection.close()
    left = fewest = _on_their_way(network.manager)
    now = time()
    until, moved = now + limit, now
    while left and now < until and now < moved + _STANDSTILL:
        await asyncio.sleep(_LOOK)
        left, now = _on_their_way(network.manager), time()
        if left < fewest:
            fewest, moved = left, now
    return left


def _on_their_way(manager: QueueManager) -> int:
    return sum(queue.message_count for queue in manager.queue_collection.values() if isinstance(queue, OutgoingQueue))
