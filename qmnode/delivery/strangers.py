"""Passing messages for machines that the directory does not show yet: they wait for a bounded time.

A change of the directory reaches one queue manager after the other. The source of a message may know a machine that
this node has never heard of, and the first messages for it would die here. So they wait in their outgoing queue. They
expire there when this node's waiting time ends, by an index that survives a restart; only then does the node check
whether the machine is known by now. Any host can name machines that will never exist, so the messages that one
neighbour may leave here are bounded, and so are those of all strangers together.
"""

from collections import Counter, deque
from collections.abc import Callable
from enum import StrEnum, unique
from functools import partial
from typing import Final, NamedTuple

import structlog

from qmnode.delivery.topology import Topology
from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access
from qmnode.model.ports import TransitEnd
from qmnode.model.queue import OutgoingQueue
from qmnode.model.queue_manager import QueueManager
from qmnode.model.stored_message import ADDRESS, NEVER, PREFIX_SIZE, arrival, expiry, value_of_packet
from qmnode.protocol.received import ReceivedMessage
from qmnode.protocol.reception import Destination, DestinationKind, Space
from qmnode.settings.protocol import TransferSettings
from qmnode.shares import UNKNOWN_MACHINE_BYTES, UNKNOWN_MACHINE_MESSAGES, Accountant, Party, block_of
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.guid import Guid, guid_to_text
from qmnode.structures.names import FormatName

log = structlog.get_logger(__name__)

_PARTS: Final = 8
"""The shares of one neighbour that make the total: all strangers together may leave half of it."""
_LOOK_AGAIN: Final = 60
"""Seconds until an overdue message is checked again if the directory has not answered yet."""


class _Charge(NamedTuple):
    until: int
    party: Party
    machine: Guid
    size: int


class Shares:
    """Messages and bytes that neighbours have left here lately."""

    def __init__(self, settings: TransferSettings, accountant: Accountant) -> None:
        self._charges: deque[_Charge] = deque()
        each, size = settings.unknown_machine_messages, settings.unknown_machine_bytes
        self._messages = accountant.open(UNKNOWN_MACHINE_MESSAGES, _PARTS * each)
        self._bytes = accountant.open(UNKNOWN_MACHINE_BYTES, _PARTS * size)

    def has_room(self, party: Party, size: int, now: float) -> bool:
        """Whether a neighbour may leave another message of ``size`` bytes."""
        while self._charges and self._charges[0].until <= now:
            self._give_back(self._charges.popleft())
        return self._messages.admits(party) and self._bytes.admits(party, size)

    def take(self, charge: _Charge) -> None:
        """Charge a neighbour for a message that it leaves. Later charges end later."""
        self._charges.append(charge)
        self._messages.charge(charge.party)
        self._bytes.charge(charge.party, charge.size)

    def forget(self, is_known: Callable[[Guid], bool]) -> None:
        """Return the charges for machines that are known now."""
        charges, self._charges = self._charges, deque()
        for charge in charges:
            if is_known(charge.machine):
                self._give_back(charge)
            else:
                self._charges.append(charge)

    def _give_back(self, charge: _Charge) -> None:
        self._messages.give_back(charge.party)
        self._bytes.give_back(charge.party, charge.size)


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
        self._shares = Shares(settings, manager.context.shares)
        self._repeats = repeats
        self._waits = waits
        self._since = int(manager.clock.time())

    def destination(self, name: FormatName, machine: Guid, party: Party) -> Destination:
        """The destination for messages to an unknown machine's queue, in one batch of a neighbour."""
        if not self.patience:
            return Destination(DestinationKind.UNKNOWN)
        until = min(int(self._manager.clock.time()) + self.patience, NEVER - 1)
        destination = Destination(DestinationKind.FORWARD, self._queue(name), until=until)
        destination.space = partial(self._space, _Batch(destination, name, machine, party))
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
        if not self._shares.has_room(batch.party, size, now):
            repeated = queue is not None and is_transactional and self._waits(queue, received, batch.taken)
            return Space.REPEATED if repeated else Space.NONE
        if queue is not None:
            queue.used_by(batch.party)
        else:
            queue = destination.queue = self._new_queue(batch)
        if queue is None:
            return Space.NONE
        if is_transactional and self._repeats(queue, received, batch.taken):
            return Space.REPEATED
        batch.taken += 1
        self._shares.take(_Charge(destination.until, batch.party, batch.machine, size))
        return Space.FREE

    def _new_queue(self, batch: "_Batch") -> OutgoingQueue | None:
        try:
            queue = self._manager.opening.find(batch.name, Access.SEND, party=batch.party)
        except MessageQueuingError as error:
            log.warning("a message for an unknown machine cannot wait", destination=str(batch.name), reason=str(error))
            return None
        if not isinstance(queue, OutgoingQueue):
            return None  # a public queue of this node that the sender believes to be elsewhere
        log.info(
            "messages wait for a machine that the directory does not show yet", destination=str(batch.name),
            machine=guid_to_text(batch.machine), neighbour=batch.party.name, seconds=self.patience,
        )  # fmt: skip
        return queue


class _Batch:
    """Messages of one neighbour to one destination that arrive together."""

    __slots__ = ("destination", "machine", "name", "party", "taken")

    def __init__(self, destination: Destination, name: FormatName, machine: Guid, party: Party) -> None:
        self.destination = destination
        self.name = name
        self.machine = machine
        self.party = party
        self.taken = 0


# ----------------------------------------------------------------------------------------------------------------------
# Counts packets that the node did not believe, and logs them without letting a peer fill the log.


_REPEAT: Final = 60.0
"""Seconds between two log lines of the same kind about one address."""
_SPOKEN_OF: Final = 256
"""Pairs of kind and address that are remembered."""
_MISSES: Final = 200
"""Acknowledgments from one block in one interval that match nothing, after which those of strangers are dropped."""


@unique
class Doubt(StrEnum):
    """The kinds of packet that were not believed."""

    OWN_NAME = "own_name"
    CONTESTED = "contested"
    ELSEWHERE = "elsewhere"
    FUTURE = "future_sequence"
    ORDER_ACK = "order_acknowledgment"
    FINAL_ACK = "final_acknowledgment"


_TEXTS: Final = {
    Doubt.OWN_NAME: "packets in this node's own name are dropped: a stranger sends them, or a copy of this node runs "
    "elsewhere; stop what is at that address",
    Doubt.CONTESTED: "two addresses send transactional messages as one queue manager: those of the address that the "
    "directory does not give it wait. If it is right, register it; see `qmnode sequence list`",
    Doubt.ELSEWHERE: "a session is closed that brought messages to be passed on, or encrypted and unsigned ones, of a "
    "queue manager which the directory has at other addresses. If they are right, register the name of that machine, "
    "or of the routing server there, at this address as well, or see transfer.only_registered_addresses",
    Doubt.FUTURE: "transactional messages of a sequence that begins in the future are dropped: set the clock of their "
    "source right, or raise transfer.sequence_clock_tolerance; setting the clock does not change sequences already "
    "begun",
    Doubt.ORDER_ACK: "order acknowledgments are not believed: they do not come from where the messages went. If they "
    "are the destination's, register its name at this address as well, or see transfer.only_registered_addresses",
    Doubt.FINAL_ACK: "final acknowledgments are not believed: they do not come from where the messages went. If they "
    "are the destination's, register its name at this address as well, or see transfer.only_registered_addresses",
}


class Distrust:
    """Counts disbelieved packets by kind."""

    def __init__(self, counts: Counter[str]) -> None:
        """``counts`` are the node's counters, for its metrics."""
        self._counts = counts
        self._logged: dict[tuple[Doubt, str], float] = {}
        self._misses: Counter[str] = Counter()
        self._misses_since = float("-inf")

    def note(self, kind: Doubt, address: str, now: float, source: Guid | None = None, count: int = 1) -> None:
        """Count packets from an address that were not believed, and log them if it is time."""
        self._counts[kind] += count
        if now < self._logged.get((kind, address), float("-inf")) + _REPEAT:
            return
        if len(self._logged) >= _SPOKEN_OF:
            self._logged = {key: logged for key, logged in self._logged.items() if now < logged + _REPEAT}
        if len(self._logged) < _SPOKEN_OF:
            self._logged[kind, address] = now
            named = {} if source is None else {"source": guid_to_text(source)}
            log.warning(_TEXTS[kind], address=address, **named)

    def missed(self, kind: Doubt, address: str, now: float) -> None:
        """Count an acknowledgment that was not believed."""
        self._misses[block_of(address)] += 1
        self.note(kind, address, now)

    def is_noisy(self, address: str, now: float) -> bool:
        """Whether so many packets from an address were not believed that this kind is ignored for a while."""
        if now >= self._misses_since + _REPEAT:
            self._misses.clear()
            self._misses_since = now
        return bool(self._misses) and self._misses[block_of(address)] >= _MISSES
