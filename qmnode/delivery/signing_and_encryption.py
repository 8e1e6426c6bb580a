"""Encrypts outgoing messages once, at their source, for the destination queue manager.

They were signed when they were sent (:mod:`qmnode.delivery.signing_and_encryption`).
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from qmnode.administration.queue_names import queue_name
from qmnode.delivery.topology import DirectoryResolver
from qmnode.directory.port import Directory, DirectoryOperationError, WorkgroupDirectory
from qmnode.errors import ConfigurationError, MessageQueuingError
from qmnode.model.message import DEFAULTS
from qmnode.model.ports import Clock, Entry, PutSignature
from qmnode.model.queue import OutgoingQueue, Queue
from qmnode.model.stored_message import (
    PREFIX_SIZE,
    SOURCE,
    read_properties_place,
    with_properties_place,
    without_dead_letter_header,
)
from qmnode.model.traffic import Standing
from qmnode.protocol.received import DestinationName, ReceivedHeaders, ReceivedMessage
from qmnode.protocol.reception import Destination, DestinationKind
from qmnode.security.arrival_checks import asks_who_sends
from qmnode.security.caches import AgedCache
from qmnode.security.errors import KeyStoreError
from qmnode.security.key_stores import KeyStore
from qmnode.security.message_security import KeyStoreStatus
from qmnode.security.protector import (
    Deferred,
    OutgoingSecurity,
    Protected,
    ProtectionRequest,
    Signer,
    Unprotectable,
    level_for,
)
from qmnode.security.published_keys import publish_first_keys
from qmnode.security.sender_identity import Sender
from qmnode.security.signers import Signers
from qmnode.settings.security import SecuritySettings, UnsignedSenders
from qmnode.structures.enumerations import AuthenticationLevel, HashAlgorithm, MessageClass
from qmnode.structures.guid import ZERO_GUID, Guid
from qmnode.structures.names import PrivateFormatName, PublicFormatName, fold, parse_single_format_name
from qmnode.structures.packet_view import (
    ADDRESS,
    DIRECT,
    PRIVACY_LEVEL_AT,
    Sections,
    sent_time_of,
    times_to_live,
    with_time_to_reach,
)
from qmnode.structures.user_message import SecurityFlags
from qmnode.transport.connection import Connection

if TYPE_CHECKING:
    from qmnode.delivery.network import Network


log = structlog.get_logger(__name__)

_OWNERS_KEPT: Final = 4096


class _Owner(NamedTuple):
    """The queue manager that owns a queue; a public queue may be created anew on another computer."""

    identifier: Guid
    cached_time: float


class Protection:
    """Applies :mod:`qmnode.security` to outgoing messages."""

    def __init__(self, network: "Network") -> None:
        self._network = network
        settings = network.manager.settings.security
        self._owners: AgedCache[str, _Owner] = AgedCache(_OWNERS_KEPT, settings.public_key_lifetime)
        self._longest = settings.longest_time_to_reach_queue
        self.lifetime = settings.symmetric_key_short_lifetime / 1000
        """Seconds after which a message that is sent again is encrypted again."""

    def clean_up(self, now: float) -> None:
        """Forget owners and keys that have aged."""
        self._owners.clean_up(now)

    def is_needed(self, entry: Entry) -> bool:
        """Whether a message asks for encryption and its source has not encrypted it."""
        value = entry[1]
        place: int = read_properties_place(value)[0]
        return bool(value[place + PRIVACY_LEVEL_AT]) and value[SOURCE] == self._network.manager.identifier

    def is_any_needed(self, entries: Sequence[Entry]) -> bool:
        """Whether any of the entries needs encryption; usually none does."""
        return any(map(self.is_needed, entries))

    async def protect(
        self,
        queue: OutgoingQueue,
        entries: Sequence[Entry],
        owner: Guid,
        failed: Callable[[int, str], None],
        deferred: Callable[[str], None],
    ) -> list[Entry] | None:
        """Return the entries, encrypted where requested, without those that can never be encrypted, which end here.

        ``owner`` is the destination of the session, null if it is unknown. None means that the directory does not
        answer now. ``failed`` is called with the HRESULT and the sentence of each error (3.1.7.1.5.1), ``deferred``
        with the reason why that cannot be known now, or with none.
        """
        destination = await self.owner(queue.pathname) if owner == ZERO_GUID else owner
        if destination is None:
            deferred("the owner of the queue is not known")
            return None
        places = [place for place, entry in enumerate(entries) if self.is_needed(entry)]
        now = self._network.manager.clock.time()
        requests = [ProtectionRequest(self._packet(entries[place][1], destination, int(now))) for place in places]
        outcomes = await self._network.security.protect(requests, now)
        for outcome in outcomes:
            if isinstance(outcome, Deferred):
                deferred(outcome.sentence)
                return None
        deferred("")
        protected: dict[int, Entry] = {}
        ended: set[int] = set()
        for place, outcome in zip(places, outcomes, strict=True):
            lookup_identifier, value = entries[place]
            match outcome:
                case Protected(packet):
                    queue.accepted()
                    protected[place] = (lookup_identifier, value[:PREFIX_SIZE] + packet)
                case Unprotectable(error):
                    log.warning("a message cannot be protected", queue=queue.pathname, reason=str(error))
                    ended.add(place)
                    failed(int(error.code), error.sentence)
                    self._end(queue, lookup_identifier)
        return [protected.get(place, entry) for place, entry in enumerate(entries) if place not in ended]

    def _end(self, queue: OutgoingQueue, lookup_identifier: int) -> None:
        """End a message that must not leave unencrypted: 3.1.7.1.5.1."""
        if lookup_identifier in queue.locked:
            value = queue.unlock(lookup_identifier).value
            queue.delete(lookup_identifier, value, MessageClass.MQMSG_CLASS_NACK_COULD_NOT_ENCRYPT)
            self._network.state.write_lazily()

    def _packet(self, value: bytes, destination: Guid, now: int) -> bytes:
        """The packet of a stored value, addressed to its destination."""
        packet = without_dead_letter_header(value)[PREFIX_SIZE:]
        (reach, _), address = times_to_live(packet), Guid(packet[ADDRESS])
        # The time to live counts from sending, but the private key is kept from the encryption, which may be later.
        latest = now - sent_time_of(packet) + self._longest
        if destination == ZERO_GUID or address != ZERO_GUID:
            destination = address
        if reach <= latest and destination == address:
            return packet
        packet = with_time_to_reach(packet, min(reach, latest))
        return packet[: ADDRESS.start] + destination + packet[ADDRESS.stop :]

    async def owner(self, format_name: str, *, anew: bool = False) -> Guid | None:
        """The destination queue manager; the null GUID for a direct name. None if it cannot be determined now.

        ``anew``: ask the directory even if the owner is cached, as for a new connection: the queue may have moved. The
        cached one counts while the directory does not answer.
        """
        resolver = self._network.resolver
        if not isinstance(resolver, DirectoryResolver):
            return ZERO_GUID
        now = self._network.manager.clock.time()
        known = self._owners.get(format_name, now)
        if known is not None and not anew:
            return known.identifier
        name = parse_single_format_name(format_name)
        if not isinstance(name, PrivateFormatName | PublicFormatName):
            return ZERO_GUID
        try:
            owner = await resolver.owner(name)
        except DirectoryOperationError as error:
            if known is not None:
                return known.identifier
            log.warning("the destination cannot be looked up", queue=format_name, reason=error.sentence)
            return None
        self._owners.add(format_name, _Owner(owner, now))
        return owner


# ----------------------------------------------------------------------------------------------------------------------
# Signs messages that applications want authenticated: at sending, with their user's key (MS-MQQB 3.1.7.1.4).
#
# The specification signs when a message leaves. But then a queue would hold the request to sign for a user, and anyone
# able to write into the queue could get a signature. Here only messages sent by the user at the other end of the socket
# are signed.

_AT_ONCE: Final = 8
"""Signatures made before other tasks may run: each takes 0.1 to 0.3 ms and blocks the interpreter."""
_UNASKED: Final = HashAlgorithm(DEFAULTS["hash_algorithm"])
"""The value in messages that ask for no particular hash algorithm: the settings then choose it."""
"""The place in a stored value's prefix of the offset of the MessagePropertiesHeader."""


class MessageSigning:
    """A :class:`~qmnode.model.ports.Signing` with the settings of one node."""

    def __init__(self, settings: SecuritySettings, directory: Directory | None, clock: Clock) -> None:
        self.signers = Signers(settings, directory or WorkgroupDirectory())
        self._security = OutgoingSecurity(settings)
        self._hash = settings.hash_algorithm
        self._clock = clock
        self._turn = asyncio.Lock()

    async def sign(
        self, values: Sequence[tuple[bytes, int]], user_id: int | None, *, local: bool
    ) -> list[PutSignature | None]:
        """Sign the messages as the port describes."""
        async with self._turn:  # in the order of the calls, which is that of the messages in their queue
            signer = await self.signers.of(os.geteuid() if user_id is None else user_id, self._clock.time())
            signed: list[PutSignature | None] = []
            for number, (value, level) in enumerate(values, 1):
                signed.append(self._signature(value, level, signer, local) if level else None)
                if number % _AT_ONCE == 0:
                    await asyncio.sleep(0)
            return signed

    def _signature(self, value: bytes, number: int, signer: Signer, local: bool) -> PutSignature | None:
        level = AuthenticationLevel(number)
        sections = self._sections(value)
        if not local and sections.to == DIRECT:
            return None  # MS-MQQB 5.1: messages to a direct name leave unsigned
        signature = self._security.signature(sections, signer, level)
        # A message for a local queue has arrived, with a signature that this node knows to be right (3.1.5.8.3).
        flags = SecurityFlags.of(AU=1, AS=level_for(sections, level)) if local else 0
        return partial(self._with_signature, signer, signature, flags)

    def _sections(self, value: bytes) -> Sections:
        sections = Sections(value[PREFIX_SIZE:])
        if sections.hash_algorithm != _UNASKED or self._hash == _UNASKED:
            return sections
        return Sections(sections.with_hash_algorithm(self._hash))

    def _with_signature(self, signer: Signer, signature: bytes, flags: int, value: bytes) -> bytes:
        sections = self._sections(value)
        packet = self._security.with_signature(sections, signer, signature, flags)
        # Nothing behind the MessagePropertiesHeader grew, except in messages to several queues.
        grown = len(packet) - len(sections.packet)
        if sections.is_several:
            grown = Sections(packet).properties_at - sections.properties_at
        return with_properties_place(value, PREFIX_SIZE + sections.properties_at + grown) + packet


# ----------------------------------------------------------------------------------------------------------------------
# Reads the private keys of a running node: at the start, periodically, and on request.
#
# A rotation writes the key store and waits until every node has read it; the next reading removes a retired key from
# this process. An unavailable store does not prevent a node from starting: encrypted messages wait at their sender
# until it is back.


_AWAY: Final = 5.0
"""Seconds between two attempts to read an unavailable store, or to publish keys that could not be published."""
_AGAIN: Final = 5.0
"""Seconds between two readings that messages cause, so that a sender of garbage cannot keep the store busy."""
_PATIENCE: Final = 20.0
"""Seconds that the start of the node waits for its keys, which may have to be created."""
_TROUBLE: Final = "key store"


class KeyReading:
    """Keeps the key pairs of :class:`~qmnode.security.message_security.SecurityService` in step with the store."""

    def __init__(self, network: "Network", directory: Directory | None) -> None:
        self._network = network
        self._store: KeyStore
        self._directory = directory
        self._interval = network.manager.settings.security.key_reload_interval
        self._is_published = directory is None
        self._status = KeyStoreStatus()
        self._looked_at = 0.0
        self._asked = asyncio.Event()
        self._was_read = asyncio.Event()
        self._turn = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    @property
    def status(self) -> KeyStoreStatus:
        """The result of the last reading."""
        return self._status

    async def start(self, store: KeyStore) -> None:
        """Begin to read, and wait for the first reading, though not long for a store that does not answer."""
        self._store = store
        self._task = asyncio.create_task(self._run(), name="key reading")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await self._was_read.wait()

    async def stop(self) -> None:
        """Stop the periodic reading."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def know_more(self) -> bool:
        """Read the store again because a message cannot be decrypted. Return whether the keys changed, or the store did
        not answer.

        A rotation waits until every node has read its new key; this covers nodes whose reading times it knew wrongly.
        """
        now = self._network.manager.clock.time()
        if not 0 <= now - self._looked_at < _AGAIN:
            self._looked_at = now
            before = self._status
            return await self.read() != before
        return False

    def read_soon(self) -> None:
        """Start a reading without waiting for it."""
        self._asked.set()

    async def read(self) -> KeyStoreStatus:
        """Read the store now. Never raises: a failure is in the returned status, the log and the node's status."""
        if self._task is None:
            return self._status  # the node is not on the network yet
        async with self._turn:
            fault = None if self._is_published else await self._publish()
            status = await self._network.security.load_keys()
            self._tell(status, fault)
            self._was_read.set()
            return status

    async def _run(self) -> None:
        while True:
            await self.read()
            is_well = self._status.fault is None and self._is_published
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval if is_well else min(self._interval, _AWAY)):
                    await self._asked.wait()
            self._asked.clear()

    async def _publish(self) -> str | None:
        """Publish the first keys if there are none yet. Return the reason if that failed, else None."""
        assert self._directory is not None
        network = self._network
        settings, now = network.manager.settings.security, network.manager.clock.time()
        try:
            await publish_first_keys(self._store, self._directory, network.manager.identifier, settings, now)
        except (DirectoryOperationError, KeyStoreError) as error:
            return str(error)
        self._is_published = True
        return None

    def _tell(self, status: KeyStoreStatus, unpublished: str | None) -> None:
        before, self._status = self._status, status
        troubles = self._network.manager.troubles
        if self._directory is None and not status.version:
            return  # a workgroup has no published keys
        fault = status.fault or unpublished
        if fault is None:
            if troubles.pop(_TROUBLE, None) is not None:
                log.info("the key store is read again", version=status.version)
            elif status.fingerprints != before.fingerprints:
                log.info("the node's keys", version=status.version, keys=status.fingerprints)
        elif troubles.get(_TROUBLE) != fault:
            troubles[_TROUBLE] = fault
            if status.fault is not None and not status.fingerprints:
                log.error("the key store is away: encrypted messages wait until it is back", reason=fault)
            elif status.fault is not None:
                log.warning("the key store is away: the keys that were read go on serving", reason=fault)
            else:
                log.warning("the node's public keys are not published", reason=fault)


# ----------------------------------------------------------------------------------------------------------------------
# Decides for which unsigned messages the SID counts that they name (``security.unsigned_senders``).

_NEVER: Final = UnsignedSenders.NEVER
_LOCAL: Final = DestinationKind.LOCAL


class UnsignedSenderPolicy:
    """The settings of a node, applied to the messages that each connection brings."""

    def __init__(self, network: "Network", settings: SecuritySettings) -> None:
        """ConfigurationError for a queue name that is none."""
        self._network = network
        self._everywhere = settings.unsigned_senders
        self._by_queue = {self._place(name): value for name, value in settings.unsigned_senders_by_queue.items()}
        self.is_used = any(value is not _NEVER for value in (self._everywhere, *self._by_queue.values()))
        """Whether there is a queue for which such a SID may count."""

    def _place(self, name: str) -> str:
        try:
            return fold(self._network.manager.names.path(queue_name(name)).local_name)
        except MessageQueuingError as error:
            raise ConfigurationError(f"security.unsigned_senders_by_queue: {name!r}: {error.sentence}") from None

    def setting_of(self, queue: Queue) -> UnsignedSenders:
        """The setting for a queue; subqueues have that of their queue."""
        owner = queue if queue.parent is None else queue.parent
        return self._by_queue.get(fold(owner.pathname.partition("\\")[2]), self._everywhere)

    def way_of(self, connection: Connection, source: Guid) -> UnsignedSenders:
        """The least setting that counts messages of ``source``; ``never``: another queue manager passes them on."""
        network, session = self._network, connection.session
        if connection.encrypted:
            proven = session.certified == source and network.neighbours.is_declared(connection)
            return UnsignedSenders.NEIGHBOURS if proven else _NEVER
        if source != session.remote or not network.peer_tls.is_plain_peer_at(connection.address):
            return _NEVER
        is_at_home = network.identities.is_workgroup or connection.neighbour.speaks_for(source)
        return UnsignedSenders.PLAIN_PEERS if is_at_home else _NEVER

    def counts(self, connection: Connection, source: Guid, queue: Queue) -> bool:
        """Whether the SID in an unsigned message counts for a queue."""
        setting = self.setting_of(queue)
        if setting is _NEVER:
            return False
        way = self.way_of(connection, source)
        return way is UnsignedSenders.NEIGHBOURS or (way is not _NEVER and way is setting)

    def is_settled(
        self,
        connection: Connection,
        messages: Iterable[ReceivedMessage],
        destinations: Mapping[DestinationName, Destination],
    ) -> bool:
        """Whether every account is known whose rights decide about one of these messages."""
        return not self._unknown(connection, messages, destinations)

    async def settle(
        self,
        connection: Connection,
        messages: Iterable[ReceivedMessage],
        destinations: Mapping[DestinationName, Destination],
    ) -> None:
        """Look up the accounts. MessageDeferredError if the directory does not answer."""
        for identifier in self._unknown(connection, messages, destinations):
            await self._network.security.unsigned_senders.look_up(identifier)

    def _unknown(
        self,
        connection: Connection,
        messages: Iterable[ReceivedMessage],
        destinations: Mapping[DestinationName, Destination],
    ) -> list[bytes]:
        known, unknown, headers = self._network.security.unsigned_senders, dict[bytes, None](), None
        for received in messages:
            if received.headers is headers:
                continue
            headers = received.headers
            claimed = headers.claimed_sender
            if claimed and not known.is_known(claimed) and claimed not in unknown:
                queue = _decides(destinations[received.destination])
                if queue is not None and self.counts(connection, headers.source_queue_manager, queue):
                    unknown[claimed] = None
        return list(unknown)

    def sender_of(self, connection: Connection, headers: ReceivedHeaders, queue: Queue) -> Sender | None:
        """The sender that counts for a queue if the message is unsigned; None if it is anonymous."""
        claimed = headers.claimed_sender
        if not claimed or not self.counts(connection, headers.source_queue_manager, queue):
            return None
        return self._network.security.unsigned_senders.sender(claimed)

    def standing_of(self, connection: Connection, headers: ReceivedHeaders, queue: Queue) -> Standing:
        """The standing that the sender of a message had before a queue's access list."""
        if headers.is_signed:
            return Standing.SIGNED
        if not headers.claimed_sender:
            return Standing.NAMELESS
        setting = self.setting_of(queue)
        if setting is _NEVER:
            return Standing.NEVER
        way = self.way_of(connection, headers.source_queue_manager)
        if way is _NEVER:
            return Standing.UNPROVEN
        if way is UnsignedSenders.PLAIN_PEERS and setting is not way:
            return Standing.PLAIN
        found = self._network.security.unsigned_senders.sender(headers.claimed_sender)
        return Standing.UNKNOWN if found is None else Standing.COUNTED


def _decides(destination: Destination) -> Queue | None:
    """The queue of a destination whose access list depends on who sends."""
    queue = destination.queue
    if destination.kind is not _LOCAL or not isinstance(queue, Queue):
        return None
    owner = queue if queue.parent is None else queue.parent
    return queue if asks_who_sends(owner.security) else None
