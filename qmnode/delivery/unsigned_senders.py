"""Decides for which unsigned messages the SID counts that they name (``security.unsigned_senders``)."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from qmnode.administration.names import queue_name
from qmnode.errors import ConfigurationError, MessageQueuingError
from qmnode.model.queue import Queue
from qmnode.model.traffic import Standing
from qmnode.protocol.admission import Destination, DestinationKind
from qmnode.protocol.received import DestinationName, ReceivedHeaders, ReceivedMessage
from qmnode.security.identity import Sender
from qmnode.security.service import asks_who_sends
from qmnode.settings.security import SecuritySettings, UnsignedSenders
from qmnode.structures.guid import Guid
from qmnode.structures.names import fold
from qmnode.transport.connection import Connection

if TYPE_CHECKING:
    from qmnode.delivery.network import Network

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
