"""Encrypts outgoing messages once, at their source, for the destination queue manager.

They were signed when they were sent (:mod:`qmnode.delivery.signing`).
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from qmnode.delivery.routes import DirectoryResolver
from qmnode.directory.port import DirectoryOperationError
from qmnode.model.outgoing import OutgoingQueue
from qmnode.model.ports import Entry
from qmnode.model.stored_message import PREFIX_SIZE, SOURCE, read_properties_place, without_dead_letter_header
from qmnode.security.caches import AgedCache
from qmnode.security.outcomes import Deferred, Protected, ProtectionRequest, Unprotectable
from qmnode.structures.guid import ZERO_GUID, Guid
from qmnode.structures.message_classes import MessageClass
from qmnode.structures.names import PrivateFormatName, PublicFormatName, parse_single_format_name
from qmnode.structures.packet_view import ADDRESS, PRIVACY_LEVEL_AT, sent_time_of, times_to_live, with_time_to_reach

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
        now = self._network.manager.clock.time()
        known = self._owners.get(format_name, now)
        if known is not None and not anew:
            return known.identifier
        name = parse_single_format_name(format_name)
        resolver = self._network.resolver
        if not isinstance(name, PrivateFormatName | PublicFormatName) or not isinstance(resolver, DirectoryResolver):
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
