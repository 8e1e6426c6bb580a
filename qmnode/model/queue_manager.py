"""QueueManager, MS-MQDMPR 3.1.1.1: the queues, the transactions, and opening, creating and deleting.

Everything runs in one event loop. A change of a message is made in memory and in the store's current batch in the same
step, without waiting in between; only then does the caller wait for the batch.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Final, Unpack, cast

import structlog

from qmnode.directory.port import Directory
from qmnode.errors import MessageQueuingError
from qmnode.event_loop import loop_name
from qmnode.model.administration import (
    AmqpCounts,
    IncomingSequenceInformation,
    NodeStatus,
    RefusedMessages,
    TransactionInformation,
)
from qmnode.model.api import (
    Access,
    DirectoryLogin,
    QueueApi,
    QueueInformation,
    QueueManagerApi,
    QueueProperties,
    QueueType,
    Share,
    TransportSecurity,
)
from qmnode.model.duplicates import Duplicates
from qmnode.model.leaving_queue import Outcomes
from qmnode.model.opening import Opening, ResolveDistributionList
from qmnode.model.ports import AccessPolicy, Clock, MessageStore
from qmnode.model.positions import Expiry
from qmnode.model.public_queues import PublishedQueues, information_of
from qmnode.model.purging import delete_queue
from qmnode.model.queue import OutgoingQueue, Queue
from qmnode.model.queue_collection import Names, QueueCollection, check_properties
from qmnode.model.quotas import Declared, Source
from qmnode.model.retries import Retries
from qmnode.model.shared_state import Context, Recorder
from qmnode.model.stored_message import DEFAULT_TIME_TO_REACH_QUEUE
from qmnode.model.transaction import Transaction
from qmnode.model.waiting_reasons import Waiting, summary
from qmnode.settings.node import Settings
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import ZERO_GUID, Guid, guid_to_text, new_guid
from qmnode.structures.names import LOCAL_COMPUTER, NO_QUEUE, QueueKind

_MADE_BY_USERS: Final = (QueueType.PRIVATE, QueueType.PUBLIC)

log = structlog.get_logger(__name__)


class QueueManager(QueueManagerApi):
    """A queue manager over a store. ``start`` it in the event loop that will use it."""

    def __init__(
        self,
        store: MessageStore,
        settings: Settings,
        clock: Clock,
        computer_name: str,
        *,
        access_policy: AccessPolicy | None = None,
        resolve_distribution_list: ResolveDistributionList | None = None,
        directory: Directory | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        """Without an access policy every operation is allowed: right for a process that embeds the node."""
        context = self.context = Context(store, settings, clock, computer_name, access_policy, recorder)
        self.names = context.names = Names(context)
        self.queue_collection = context.queues = QueueCollection(context)
        context.duplicates = Duplicates(store, clock, context.queues, lambda: context.quotas.settings.message_ids)
        context.expiry = Expiry(context)
        context.retries = Retries(context)
        self.outcomes = context.outcomes = Outcomes(context)
        self.published = PublishedQueues(context, directory)
        self.opening = Opening(context, lambda name: self.published.of_outgoing(name), resolve_distribution_list)
        context.opening = self.opening
        self.names_of_accounts: Callable[[Sequence[str]], Awaitable[dict[str, str | None]]] | None = None
        """The look-up of users and groups by their SIDs."""
        self.identifier = context.identifier
        self.store = store
        self.settings = settings
        self.clock = clock
        self.computer_name = computer_name
        self.recorder = recorder
        self.quotas = context.quotas
        self.traffic = context.traffic
        self.ordinal = context.ordinal
        self.sequence = context.sequence
        self.transactions = context.transactions
        self.troubles: dict[str, str] = {}
        self.copy_state: Callable[[], dict[str, Any]] = dict
        """The copy of the store elsewhere: see ``NodeStatus.remote_copy``."""
        self.failover: Callable[[], dict[str, Any]] = dict
        """The take-over by this process: see ``NodeStatus.failover``."""
        self.after_restore: dict[str, list[dict[str, Any]]] = {}
        """The ranges of messages that a restored store lacks: see ``NodeStatus.after_restore``."""
        self.ready = True
        """Whether every door that the settings open answers."""
        self.directory_state = ""
        """``joined``, ``not joined``, or ``not confirmed`` while it is down, for a node with a directory."""
        """Current faults that leave the rest of the node working, by subject: sentences for people."""
        self.routing: Callable[[], dict[str, Any]] = dict
        """The properties that routing uses: see ``NodeStatus.routing``."""
        self.local_settings: Callable[[], dict[str, Any]] = dict
        """Addresses and bridges, with their sources: see ``NodeStatus.local_settings``."""
        self.probes: Callable[[], tuple[dict[str, Any], ...]] = tuple
        """The results of probes: see ``NodeStatus.probes``."""
        self.settings_read = 0.0
        """When a reload read the settings that are in effect, in seconds since 1970; 0 if none did."""
        self.transport_security = TransportSecurity()
        """Whether sessions with other queue managers are TLS."""
        self.amqp = AmqpCounts()
        self.site_name = ""
        """The computer's first site in the directory; empty without a directory."""
        self.connection_active = True
        self.offline_since = 0.0
        """When the queue manager was taken offline, in seconds since 1970 (UTC)."""
        """ConnectionActive, 3.1.1.1: Take Offline (3.1.4.12) and Bring Online (3.1.4.13)."""
        self._open = True
        self.queue_collection.load()
        self.queue_collection.settle_access()
        self.journal_queue = self.queue_collection.journal

    def apply_settings(self, settings: Settings) -> None:
        """Apply settings that may change while the queue manager runs: the quotas and the poison policy."""
        self.quotas.apply(settings.quotas)
        self.context.notices.apply(self.quotas.settings)
        self.context.retries.settings = settings.poison

    def declare(self, declared: Declared) -> bool:
        """Obey what the directory declares for this queue manager from now on. Return whether that is new."""
        if not self.quotas.declare(declared):
            return False
        self.context.notices.apply(self.quotas.settings)
        self.context.time_to_reach_queue = declared.time_to_reach_queue
        self.published.weakened_security = bool(declared.weakened_security)
        return True

    # Initialization, 3.1.3

    @property
    def is_drained(self) -> bool:
        """Whether all queues are empty: only then may the identifier change, as messages contain it."""
        return all(queue.message_count == 0 for queue in self.queue_collection.values())

    def adopt_identifier(self, identifier: Guid) -> None:
        """Adopt the identifier that the directory assigned: while :attr:`is_drained`, before the first session."""
        self.identifier = identifier
        self.context.adopt_identifier(identifier)

    async def start(self) -> None:
        """Begin: messages that expired while the node was down expire now."""
        self._forget_prepared_transactions()
        self.context.expiry.start()
        self.context.duplicates.start()
        self.context.retries.start()
        self.queue_collection.delayed.start()

    def _forget_prepared_transactions(self) -> None:
        """Abort transactions that releases up to 0.1 could prepare: no coordinator will ever end them."""
        for identifier, _ in self.store.read_transactions():
            log.warning(
                "a prepared transaction is aborted: what it received is in its queues, what it sent is not sent",
                transaction=guid_to_text(Guid(identifier)),
            )
            self.store.delete_transaction(identifier)

    async def close(self) -> None:
        """Cancel waiting reads, abort open transactions, write pending changes, close the store."""
        if not self._open:
            return
        self._open = False
        try:
            self._end()
        finally:  # a store that has failed lets nothing end well, and its directory must not stay locked
            self.store.close()

    def _end(self) -> None:
        self.context.expiry.stop()
        self.context.duplicates.stop()
        self.context.retries.stop()
        self.queue_collection.delayed.stop()
        queues = list(self.queue_collection.values())
        queues += [queue.journal for queue in queues if queue.has_journal]
        # Before messages are returned to their queues: their waiters can no longer be notified.
        for queue in queues:
            for reader in list(queue.waiting):
                reader.cancel(sentence="the queue manager was closed while the call waited")
        for transaction in list(self.transactions.values()):
            transaction.transaction_abort()
        for queue in queues:
            for descriptor in list(queue.descriptors.values()):
                descriptor.closed()

    # State, 3.1.4.12, 3.1.4.13, 3.1.7.2.5, 3.1.7.2.6

    def take_offline(self) -> None:
        """Take Offline: no messages are exchanged with other queue managers."""
        if self.connection_active:
            self.offline_since = self.clock.time()
        self.connection_active = False
        if self.context.network is not None:
            self.context.network.disconnect()

    def bring_online(self) -> None:
        """Bring Online: exchange messages with other queue managers again."""
        self.connection_active = True
        if self.context.network is not None:
            self.context.network.connect()

    # Queues

    async def create_queue(
        self,
        pathname: str,
        *,
        caller: object = None,
        login: DirectoryLogin | None = None,
        **properties: Unpack[QueueProperties],
    ) -> QueueInformation:
        """Create Queue (3.1.7.1.3). ``caller`` will own it; None is the process that embeds the node.

        ``login`` has the caller's credentials for the directory. Without them the node uses its own.
        """
        name = self.names.path(pathname)
        if name.kind is QueueKind.SYSTEM or name.journal:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME, f"{pathname}: system queues and journals are not created"
            )
        if name.queue == LOCAL_COMPUTER:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME, f"{pathname}: {NO_QUEUE}")
        if self.names.by_path(name) is not None:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_QUEUE_EXISTS, f"there is a queue {pathname} already")
        check_properties(properties, name.kind is QueueKind.PUBLIC)
        given = cast("dict[str, Any]", properties)
        identifier = new_guid()
        if name.kind is QueueKind.PUBLIC and not name.subqueue:
            if self.context.access_policy is not None:
                # The directory gets the access rights as well, or it would use its own defaults.
                given["security"] = self.context.access_policy.default_queue_security(
                    given.get("security", b""), caller
                )
            identifier = await self.published.publish(str(name), given, login)
        queue = self.queue_collection.create(name, given, identifier, caller)
        await self.store.durable()
        return queue.information()

    async def delete_queue(self, name: str, *, login: DirectoryLogin | None = None) -> None:
        """Delete Queue (3.1.7.1.4) with its messages."""
        queue = self.names.find(name)
        if queue.queue_type is QueueType.SYSTEM:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_ACCESS_DENIED, f"{name}: system queues cannot be deleted")
        if queue.is_published:
            await self.published.withdraw(queue, login)
        await delete_queue(self.context, queue)

    async def set_queue(
        self, name: str, *, login: DirectoryLogin | None = None, **properties: Unpack[QueueProperties]
    ) -> QueueInformation:
        queue = self.names.find(name)
        if "transactional" in properties and properties["transactional"] != queue.transactional:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_PROPERTY_NOTALLOWED, "a queue is transactional, or not, from its creation on"
            )
        if queue.is_journal or (queue.parent is not None and "security" in properties):
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_PROPERTY_NOTALLOWED,
                f"{name} has what {cast('Queue', queue.parent).pathname} has: change that queue",
            )
        check_properties(properties, queue.queue_type is QueueType.PUBLIC)
        if self.context.access_policy is not None and "security" in properties:
            properties["security"] = self.context.access_policy.changed_queue_security(
                queue.security, properties["security"]
            )
        if queue.is_published:  # first, so that a refused change is made nowhere
            await self.published.update(queue, cast("dict[str, Any]", properties), login)
            queue.check_open()
        queue.set_properties(**properties)
        if "duplicate_window" in properties:
            self.context.duplicates.changed(queue)
        if "retry_pause" in properties:
            self.context.retries.changed(queue)
        self.store.put_queue(queue.queue_id, queue.definition())
        await self.store.durable()
        return queue.information()

    async def queue(self, name: str) -> QueueInformation:
        return self.names.find(name).information()

    async def queues(self, kinds: Sequence[QueueType] | None = None) -> list[QueueInformation]:
        chosen = [queue for queue in self.queue_collection.values() if kinds is None or queue.queue_type in kinds]
        return [queue.information() for queue in sorted(chosen, key=lambda queue: queue.pathname.upper())]

    async def find_queues(
        self, *, label: str | None = None, type: Guid | None = None, computer: str | None = None
    ) -> list[QueueInformation]:
        return [information_of(queue) for queue in await self.published.find(label, type, computer)]

    async def pause_queue(self, name: str) -> None:
        self.names.find(name).pause()
        await self.store.durable()

    async def resume_queue(self, name: str) -> None:
        self.names.find(name).resume()
        await self.store.durable()

    def outgoing_queue(self, name: str) -> OutgoingQueue:
        """The outgoing queue of that name. Raises MQ_ERROR_QUEUE_NOT_FOUND if there is none."""
        queue = self.names.find(name)
        if not isinstance(queue, OutgoingQueue):
            raise MessageQueuingError(ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND, f"{name} is no outgoing queue")
        return queue

    # Open Queue, 3.1.7.1.5

    async def open_queue(
        self,
        format_name: str,
        access: Access = Access.RECEIVE,
        share: Share = Share.DENY_NONE,
        *,
        caller: object = None,
    ) -> QueueApi:
        """Open Queue (3.1.7.1.5). ``caller`` is for the access check; None is the process that embeds the node."""
        self._check_open()
        return await self.opening.open_queue(format_name, access, share, caller)

    def _check_open(self) -> None:
        if not self._open:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE, "the queue manager is closed")

    # Transactions

    def transaction(self) -> Transaction:
        """Create Transaction (3.1.7.1.8): an internal one."""
        self._check_open()
        return Transaction(self.context, new_guid())

    # For administrators

    async def status(self) -> NodeStatus:
        storage = self.store.condition()
        reach = self.context.time_to_reach_queue
        found = self.queue_collection
        queues = list(found.values())
        outgoing = [queue for queue in queues if queue.queue_type is QueueType.OUTGOING]
        journals = [journal for queue in queues if (journal := queue.journal_queue) is not None]
        cut_off = self._cut_off(_messages_in(outgoing))
        reports = self.context.traced.report_queue
        failover = self.failover()
        unfit = [f"failover: {line}" for line in failover.get("standbys", ()) if " unfit: " in line]
        return NodeStatus(
            computer_name=self.computer_name,
            identifier=self.identifier,
            online=self.connection_active,
            queue_count=sum([queue.parent is None and queue.queue_type in _MADE_BY_USERS for queue in queues]),
            outgoing_queue_count=len(outgoing),
            message_count=_messages_in(queues) + _messages_in(journals),
            total_bytes=sum([queue.total_bytes for queue in queues]) + sum([one.total_bytes for one in journals]),
            dead_letter_count=found.dead_letter.message_count + found.transactional_dead_letter.message_count,
            quota=self.quotas.settings.queue_manager_quota,
            quota_used=self.quotas.used,
            journal_quota=self.quotas.settings.journal_quota,
            journal_quota_used=self.quotas.journal_used,
            throttled=bool(storage.failure),
            transaction_count=len(self.transactions),
            in_doubt_count=0,
            journal_copies_dropped=self.outcomes.journal_copies_dropped,
            warnings=(*(f"{what}: {sentence}" for what, sentence in self.troubles.items()), *unfit, *cut_off),
            storage_failure=storage.failure,
            disk_free_bytes=storage.free_bytes,
            disk_bytes=storage.total_bytes,
            lost_writes=storage.lost_writes,
            tls_mode=self.transport_security.mode,
            settings_read=self.settings_read,
            plain_peers=self.transport_security.plain_peers,
            amqp_port=self.amqp.port,
            amqp_connections=self.amqp.connections,
            amqp_links=self.amqp.links,
            bridges=tuple(replace(bridge) for _, bridge in sorted(self.amqp.bridges.items())),
            event_loop=loop_name(),
            ready=self.ready,
            directory=self.directory_state,
            after_restore=self.after_restore,
            remote_copy=self.copy_state(),
            failover=failover,
            waiting=summary(self.context.network.waiting()) if self.context.network is not None else (),
            quota_source=self.quotas.sources["queue_manager_quota"],
            journal_quota_source=self.quotas.sources["journal_quota"],
            quota_settings=self.quotas.own,
            default_time_to_live=DEFAULT_TIME_TO_REACH_QUEUE if reach is None else reach,
            routing=self.routing(),
            report_queue="" if reports == ZERO_GUID else f"PUBLIC={guid_to_text(reports)}",
            local_settings=self.local_settings(),
            probes=self.probes(),
            shares=self.context.shares.summary(),
            default_time_to_live_source=Source.DEFAULT if reach is None else Source.DIRECTORY,
            weakened_security=self.published.weakened_security,
            weakened_security_source=Source.DIRECTORY if self.published.weakened_security else Source.DEFAULT,
        )

    def _cut_off(self, count: int) -> list[str]:
        """A warning if this many messages wait for other machines with which the settings allow no sessions."""
        if not count or (self.settings.transport.enabled and not self.settings.hardened_security):
            return []
        reason = "hardened_security is true" if self.settings.hardened_security else "transport.enabled is false"
        waits = "1 message waits" if count == 1 else f"{count} messages wait"
        return [f"network: {waits} for other machines, but {reason}"]

    async def set_online(self, online: bool) -> None:
        if online:
            self.bring_online()
        else:
            self.take_offline()

    async def list_transactions(self) -> list[TransactionInformation]:
        return [_describe(transaction) for transaction in self.transactions.values()]

    async def queue_security(self, name: str) -> bytes:
        return self.opening.security_of(self.names.find(name))

    async def account_names(self, security_identifiers: Sequence[str]) -> dict[str, str | None]:
        return {} if self.names_of_accounts is None else await self.names_of_accounts(security_identifiers)

    async def queue_manager_security(self) -> bytes:
        return self.context.machine_security

    async def set_queue_manager_security(self, security: bytes) -> None:
        self.queue_collection.set_machine_security(security)
        await self.store.durable()

    async def incoming_sequences(self, name: str = "") -> list[IncomingSequenceInformation]:
        queue, network = self.names.find(name) if name else None, self.context.network
        return [] if network is None else network.incoming_sequences(queue)

    def machine_name(self, identifier: Guid) -> str:
        """The computer name of a queue manager, or its identifier where the directory does not say it."""
        network = self.context.network
        known = network.name_of(identifier) if network is not None else ""
        return self.computer_name if identifier == self.identifier else known or guid_to_text(identifier)

    async def waiting(self, machine: str = "", link: str = "") -> list[Waiting]:
        network = self.context.network
        return [] if network is None else network.waiting(machine, link)

    async def refused_messages(self, name: str) -> list[RefusedMessages]:
        return self.traffic.refusals.of(self.names.find(name).pathname)

    async def reset_incoming_sequences(self, source: bytes, name: str = "", address: str = "") -> int:
        queue, network = self.names.find(name) if name else None, self.context.network
        if network is None:
            return 0
        count = network.reset_incoming_sequences(Guid(source), queue, address)
        await self.store.durable()
        return count


def _messages_in(queues: Sequence[Queue]) -> int:
    return sum([queue.message_count for queue in queues])


def _describe(transaction: Transaction) -> TransactionInformation:
    queues = [operation.queue for operation in transaction.operations]
    queues += [operation.target for operation in transaction.operations if operation.target is not None]
    return TransactionInformation(
        identifier=transaction.identifier,
        state=transaction.state.value,
        in_doubt=False,
        operation_count=len(transaction.operations),
        queues=tuple(dict.fromkeys(queue.pathname for queue in queues)),
    )
