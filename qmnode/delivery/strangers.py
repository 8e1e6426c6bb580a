"""Passing messages for machines that the directory does not show yet: they wait for a bounded time.

A change of the directory reaches one queue manager after the other. The source of a message may know a machine that
this node has never heard of, and the first messages for it would die here. So they wait in their outgoing queue. They
expire there when this node's waiting time ends, by an index that survives a restart; only then does the node check
whether the machine is known by now. Any host can name machines that will never exist, so the messages that one
neighbour may leave here are bounded, and so are those of all strangers together.
"""

from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import structlog

from qmnode.delivery.topology import Topology
from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access
from qmnode.model.outgoing import OutgoingQueue
from qmnode.model.packet import value_of_packet
from qmnode.model.ports import TransitEnd
from qmnode.model.queue_manager import QueueManager
from qmnode.model.record import ADDRESS, NEVER, PREFIX_SIZE, arrival, expiry
from qmnode.protocol.admission import Destination, DestinationKind, Space
from qmnode.protocol.received import ReceivedMessage
from qmnode.settings.protocol import TransferSettings
from qmnode.structures.guid import Guid, guid_to_text
from qmnode.structures.message_classes import MessageClass
from qmnode.structures.names import FormatName

log = structlog.get_logger(__name__)

_TOGETHER: Final = 4
"""All strangers together may leave this many times as much as one neighbour."""
_STRANGERS: Final = ""
"""The account of all strangers; other accounts are address blocks."""
_LOOK_AGAIN: Final = 60
"""Seconds until an overdue message is checked again if the directory has not answered yet."""


class _Neighbour(NamedTuple):
    block: str
    is_declared: bool


class _Charge(NamedTuple):
    until: int
    neighbour: _Neighbour
    machine: Guid
    size: int


class Shares:
    """Messages and bytes that neighbours have left here lately, by address block."""

    def __init__(self, settings: TransferSettings) -> None:
        self._settings = settings
        self._charges: deque[_Charge] = deque()
        self._messages: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    def has_room(self, neighbour: _Neighbour, size: int, now: float) -> bool:
        """Whether a neighbour may leave another message of ``size`` bytes."""
        while self._charges and self._charges[0].until <= now:
            self._give_back(self._charges.popleft())
        if not self._fits(neighbour.block, size, 1):
            return False
        return neighbour.is_declared or self._fits(_STRANGERS, size, _TOGETHER)

    def take(self, charge: _Charge) -> None:
        """Charge a neighbour for a message that it leaves. Later charges end later."""
        self._charges.append(charge)
        for account in _accounts(charge.neighbour):
            self._messages[account] += 1
            self._bytes[account] += charge.size

    def forget(self, is_known: Callable[[Guid], bool]) -> None:
        """Return the charges for machines that are known now."""
        charges, self._charges = self._charges, deque()
        for charge in charges:
            if is_known(charge.machine):
                self._give_back(charge)
            else:
                self._charges.append(charge)

    def _fits(self, account: str, size: int, shares: int) -> bool:
        settings = self._settings
        return (
            self._messages[account] < shares * settings.unknown_machine_messages
            and self._bytes[account] + size <= shares * settings.unknown_machine_bytes
        )

    def _give_back(self, charge: _Charge) -> None:
        for account in _accounts(charge.neighbour):
            self._messages[account] -= 1
            self._bytes[account] -= charge.size
            if not self._messages[account]:
                del self._messages[account], self._bytes[account]


def _accounts(neighbour: _Neighbour) -> tuple[str, ...]:
    return (neighbour.block,) if neighbour.is_declared else (neighbour.block, _STRANGERS)


class Strangers:
    """Decides about messages for machines that the directory does not show, on arrival and when their wait ends."""

    def __init__(
        self,
        manager: QueueManager,
        topology: Topology | None,
        settings: TransferSettings,
        repeats: Callable[[OutgoingQueue, ReceivedMessage, int], bool],
        waits: Callable[[OutgoingQueue, ReceivedMessage, int], bool],
    ) -> None:
        """``repeats`` and ``waits`` return whether a message is in its outgoing queue already, see ``QueueSender``."""
        self._manager = manager
        self._topology = topology
        self.patience = settings.unknown_machine_patience
        self._shares = Shares(settings)
        self._repeats = repeats
        self._waits = waits
        self._since = int(manager.clock.time())

    def destination(self, name: FormatName, machine: Guid, block: str, is_declared: bool) -> Destination:
        """The destination for messages to an unknown machine's queue, in one batch from this address block."""
        if not self.patience:
            return Destination(DestinationKind.UNKNOWN)
        neighbour = _Neighbour(block, is_declared)
        until = min(int(self._manager.clock.time()) + self.patience, NEVER - 1)
        destination = Destination(DestinationKind.FORWARD, self._queue(name), until=until)
        destination.space = partial(self._space, _Batch(destination, name, machine, neighbour))
        return destination

    def topology_changed(self) -> None:
        """Return charges for machines that the changed topology now shows."""
        if self._topology is not None:
            self._shares.forget(self._topology.knows)

    def end_of(self, value: bytes) -> TransitEnd:
        """The time at which the wait of a message for another machine ends, as far as is known now."""
        packet, now = value[PREFIX_SIZE:], int(self._manager.clock.time())
        own = expiry(value_of_packet(packet, 0, transit=True))
        late, refused = MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT, MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q
        topology = self._topology
        if own <= now or (topology is not None and topology.has(Guid(value[ADDRESS]))):
            return TransitEnd(own, late)
        end = max(int(arrival(value)), self._since) + self.patience
        if end <= now and (topology is None or not topology.has_been_read):
            end = now + _LOOK_AGAIN
        return TransitEnd(own, late) if own <= end else TransitEnd(end, refused)

    def _queue(self, name: FormatName) -> OutgoingQueue | None:
        queue = self._manager.names.outgoing(name)
        return queue if isinstance(queue, OutgoingQueue) else None

    def _space(self, batch: "_Batch", received: ReceivedMessage) -> Space:
        """Whether there is room for a message. Only an accepted one creates the outgoing queue."""
        destination, now = batch.destination, self._manager.clock.time()
        size, is_transactional = len(received.packet), received.headers.tx_sequence_id is not None
        queue = destination.queue
        assert queue is None or isinstance(queue, OutgoingQueue)
        if self._topology is not None:
            self._topology.read_soon()
        if not self._shares.has_room(batch.neighbour, size, now):
            repeated = queue is not None and is_transactional and self._waits(queue, received, batch.taken)
            return Space.REPEATED if repeated else Space.NONE
        if queue is None:
            queue = destination.queue = self._new_queue(batch)
        if queue is None:
            return Space.NONE
        if is_transactional and self._repeats(queue, received, batch.taken):
            return Space.REPEATED
        batch.taken += 1
        self._shares.take(_Charge(destination.until, batch.neighbour, batch.machine, size))
        return Space.FREE

    def _new_queue(self, batch: "_Batch") -> OutgoingQueue | None:
        try:
            queue = self._manager.opening.find(batch.name, Access.SEND, for_strangers=True)
        except MessageQueuingError as error:
            log.warning("a message for an unknown machine cannot wait", destination=str(batch.name), reason=str(error))
            return None
        if not isinstance(queue, OutgoingQueue):
            return None  # a public queue of this node that the sender believes to be elsewhere
        log.info(
            "messages wait for a machine that the directory does not show yet", destination=str(batch.name),
            machine=guid_to_text(batch.machine), neighbour=batch.neighbour.block, seconds=self.patience,
        )  # fmt: skip
        return queue


class _Batch:
    """Messages of one neighbour to one destination that arrive together."""

    __slots__ = ("destination", "machine", "name", "neighbour", "taken")

    def __init__(self, destination: Destination, name: FormatName, machine: Guid, neighbour: _Neighbour) -> None:
        self.destination = destination
        self.name = name
        self.machine = machine
        self.neighbour = neighbour
        self.taken = 0
