"""Queue, MS-MQDMPR 3.1.1.2: its attributes, its messages, and the life of a message position."""

import json
import re
import struct
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Unpack, cast

from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access, QueueAttributes, QueueInformation, QueueProperties, QueueType, Share
from qmnode.model.ports import Entry
from qmnode.model.positions import (
    LANE_SHIFT,
    LANES,
    SEQUENCE_MASK,
    Lane,
    LockedPosition,
    PositionState,
    insert_many,
    remove_acknowledged,
)
from qmnode.model.stored_message import (
    DEPARTURE,
    EXPIRY,
    EXPRESS,
    FLAGS,
    NEVER,
    NO_EXPIRY,
    NOTICE,
    ON_ARRIVAL,
    ON_LOSS,
    PEEK_WHEN_LOCKED,
    PREFIX_SIZE,
    REPORT,
    SOURCE,
    TRANSACTIONAL,
    RecordFlag,
    TransactionOffsets,
    expiry,
    with_prefix,
    without_claims,
)
from qmnode.model.traffic import RECEIVED
from qmnode.model.waiting_reasons import Refusal, Waiting
from qmnode.objects.rows import Door
from qmnode.objects.table import QUEUE as ROWS
from qmnode.shares import OWN, Kind, Party
from qmnode.structures.enumerations import ConnectionStatus, MessageClass, OutgoingQueueState
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import ZERO_GUID, Guid, guid_from_text
from qmnode.structures.packet_view import with_sequence_fields
from qmnode.structures.packets import ORDER_QUEUE, ORDER_QUEUE_NAME

if TYPE_CHECKING:
    import asyncio

    from qmnode.model.positions import WaitingRead
    from qmnode.model.shared_state import Context
    from qmnode.model.transaction import Transaction


_COUNTERS: Final = struct.Struct(">QQ")
_LANE_COUNTERS: Final = struct.Struct(">BQQ")


class Counters(NamedTuple):
    """Stored counters of a queue's contents, so that opening it reads no message."""

    size: int
    loss_reports: int
    lanes: tuple[tuple[int, int, int], ...]
    """(lane, count, head) of the lanes that have messages."""

    @classmethod
    def unpack(cls, record: bytes) -> "Counters":
        """Decode from the store."""
        size, loss_reports = _COUNTERS.unpack_from(record)
        return cls(size, loss_reports, tuple(_LANE_COUNTERS.iter_unpack(record[_COUNTERS.size :])))


TEMPORARY: Final = guid_from_text("6f2b1a0e-5d0c-4f43-9a55-7a0f3a1f6e54")
"""The type of queues that end with the connection of a client. A node that was killed knows them by it."""
DEFAULT_PROPERTIES: Final = ROWS.defaults(Door.NODE)
"""Set Queue Defaults, 3.1.7.1.33."""
_BYTES: Final = ("identifier", *(name for name, default in DEFAULT_PROPERTIES.items() if isinstance(default, bytes)))


class Descriptor(Protocol):
    """An open queue, as the queue knows it (:class:`qmnode.model.open_queue.OpenQueueDescriptor`)."""

    def closed(self) -> None:
        """Cancel the waiting reads, close the cursors, leave the queue."""


class Queue(QueueAttributes):
    """A queue and its messages. Everything here is synchronous; callers wait for the store's future themselves."""

    is_delayed = False
    """Whether messages wait here for their delivery time (:mod:`qmnode.model.delayed_delivery`): nobody sends to it by
    name.
    """

    def __init__(
        self, context: "Context", queue_id: int, pathname: str, queue_type: QueueType, **properties: Any
    ) -> None:
        self.context = context
        self.store = context.store
        self.queue_id = queue_id
        self.pathname = pathname
        self.queue_type = queue_type
        self.identifier: Guid = properties.pop("identifier", ZERO_GUID)
        self.private_queue_number: int = properties.pop("private_queue_number", 0)
        self.create_time: int = properties.pop("create_time", 0)
        self.modify_time: int = properties.pop("modify_time", 0)
        self.parent: Queue | None = properties.pop("parent", None)
        self.paused: int = properties.pop("paused", 0)
        """Since when receivers get no messages of it, in seconds since 1970 (UTC); 0 if they do. An outgoing queue that
        is paused has the state ON_HOLD instead.
        """
        self.__dict__.update(DEFAULT_PROPERTIES | properties)
        self.recorder = context.recorder
        """Notified of arriving and departing messages; None if there is no recorder."""
        self.tally = context.traffic.tally_of(queue_type)
        self.is_journal = False
        self.is_dead_letter = False
        self.is_internal = False
        """For the queue manager only (3.1.3): applications cannot open it."""
        self.takes_notifications = False
        """Whether it is the notification queue, and open (MS-MQCN 3.2.3): other queue managers send to it."""
        self.deleted = False
        self.journal_queue: Queue | None = None
        self.subqueues: dict[str, Queue] = {}
        self.descriptors: dict[int, Descriptor] = {}
        self.open_modes: Counter[tuple[Access, Share]] = Counter()
        """The number of descriptors with each access and share mode."""
        self.readers = 0
        """Open descriptors that may read: only then is it worth keeping messages in memory."""
        self.waiting: OrderedDict[WaitingRead, None] = OrderedDict()
        """Waiting reads in the order of their arrival."""
        self.awaited: asyncio.Future[None] | None = None
        """Done when a read begins to wait."""
        self.locked: dict[int, LockedPosition] = {}
        self.tries: dict[int, int] = {}
        """Messages whose failed deliveries count: the second of the next try, or 0 during a delivery
        (qmnode.model.retries).
        """
        self.hidden: Collection[int] = self.locked
        """The messages that receivers do not find: locked ones, and those that wait for their next try."""
        self.peekable_locked = 0
        """Locked positions that may be peeked."""
        self.lanes: list[Lane | None] = [None] * LANES
        self.used_lanes: tuple[Lane, ...] = ()
        """Those of ``lanes`` that exist, in the order of their first use."""
        self.total_bytes = 0
        self.express_bytes = 0
        self.reserved_bytes = 0
        """Bytes of messages that open transactions have sent here: they count for the quotas."""
        self.loss_reports = 0
        """Messages whose loss requires an action (ON_LOSS). May be too high after a restart, which is only slower."""
        self.touched = False
        self.subscriber: Callable[[], None] | None = None
        """Message Position Available (3.1.7.2.2), for the sender that transfers messages from here."""

    # Attributes

    @property
    def message_count(self) -> int:
        """The number of messages in the queue, locked ones included."""
        count = 0
        for lane in self.used_lanes:
            count += lane.count
        return count

    @property
    def oldest_arrival(self) -> float | None:
        """When the message that has waited longest arrived at this queue manager, in seconds since 1970 (UTC); None if
        the queue is empty, or that message is damaged. Of each priority the first by order of delivery is considered.
        """
        lanes = self.used_lanes
        if not lanes:  # a console asks for this again and again, of all queues
            return None
        try:
            if len(lanes) == 1:
                return lanes[0].oldest_arrival()
            return min([at for lane in lanes if (at := lane.oldest_arrival())], default=None)
        except MessageQueuingError:
            return None

    @property
    def is_temporary(self) -> bool:
        """Whether it ends with the connection of a client, and is in no document or export."""
        return self.type == TEMPORARY

    @property
    def is_published(self) -> bool:
        """Whether the directory has the queue."""
        return self.queue_type is QueueType.PUBLIC and self.parent is None

    @property
    def state_name(self) -> str:
        """The state as it is shown: that of an outgoing queue, or ``on hold``, or empty."""
        return OutgoingQueueState.ON_HOLD.value if self.paused else ""

    @property
    def has_journal(self) -> bool:
        """Whether a journal has been created."""
        return self.journal_queue is not None

    @property
    def journal(self) -> "Queue":
        """JournalQueueReference: the queue for copies of received messages."""
        if self.journal_queue is None:
            journal = self.journal_queue = Queue(
                self.context, self.queue_id | 1, f"{self.pathname};JOURNAL", QueueType.SYSTEM, quota=self.journal_quota
            )
            journal.is_journal = True
            journal.parent = self
        return self.journal_queue

    def stored_attributes(self) -> dict[str, Any]:
        """The attributes that survive a restart."""
        return (
            {name: getattr(self, name) for name in DEFAULT_PROPERTIES}
            | {
                "pathname": self.pathname,
                "queue_type": self.queue_type.value,
                "identifier": self.identifier,
                "private_queue_number": self.private_queue_number,
                "create_time": self.create_time,
                "modify_time": self.modify_time,
                "parent": self.parent.queue_id if self.parent is not None else 0,
            }
            | ({"paused": self.paused} if self.paused else {})
        )

    def definition(self) -> bytes:
        """The stored form of the attributes."""
        return json.dumps(self.stored_attributes(), default=bytes.hex).encode()

    @staticmethod
    def read_definition(record: bytes) -> dict[str, Any]:
        """Decode the attributes of a stored definition."""
        attributes: dict[str, Any] = json.loads(record)
        for name in attributes.keys() & _BYTES:
            attributes[name] = bytes.fromhex(attributes[name])
        return attributes

    def differing(self, properties: QueueProperties) -> QueueProperties:
        """Those of the properties that have another value here."""
        given = cast("dict[str, Any]", properties)
        return cast("QueueProperties", {name: value for name, value in given.items() if value != getattr(self, name)})

    def set_properties(self, **properties: Unpack[QueueProperties]) -> None:
        """Change attributes, which the caller has checked."""
        self.__dict__.update(cast("dict[str, Any]", properties))
        self.modify_time = int(self.context.clock.time())
        if self.journal_queue is not None:
            self.journal_queue.quota = self.journal_quota

    # Pause

    def pause(self) -> None:
        """Keep the messages from receivers until ``resume``, also after a restart. Messages arrive, expire and can be
        peeked, deleted and moved as before. MQ_ERROR_INVALID_PARAMETER for a queue that no application creates.
        """
        if self.queue_type not in (QueueType.PRIVATE, QueueType.PUBLIC):
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INVALID_PARAMETER,
                f"{self.pathname} cannot be paused: only public, private and outgoing queues can",
            )
        if not self.paused:
            self.paused = int(self.context.clock.time())
            self.store.put_queue(self.queue_id, self.definition())

    def resume(self) -> None:
        """Give messages to receivers again, first to those that wait."""
        if not self.paused:
            return
        self.paused = 0
        self.store.put_queue(self.queue_id, self.definition())
        while self.waiting and (entry := self.first()) is not None:
            self.serve_waiting(*entry)

    def check_resumed(self) -> None:
        """Raise if a receiver names a message while the queue is paused."""
        if self.paused:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND,
                f"{self.pathname} is paused and gives out no message: `qmnode queue resume` ends that",
            )

    # Counters

    def restore(self, record: bytes) -> None:
        """Restore the counters of the contents from the store."""
        counters = Counters.unpack(record)
        self.count_bytes(counters.size)
        self.loss_reports = counters.loss_reports
        for index, count, head in counters.lanes:
            self.lane_of(index).restore(count, head)

    def counters(self) -> bytes:
        """The counters that survive a restart, without express messages."""
        lanes = [
            _LANE_COUNTERS.pack(lane.index, lane.count - lane.express_count, lane.head)
            for lane in self.lanes
            if lane is not None and lane.count > lane.express_count
        ]
        return _COUNTERS.pack(self.total_bytes - self.express_bytes, self.loss_reports) + b"".join(lanes)

    def lane_of(self, index: int) -> Lane:
        """The lane for messages of one priority, created on first use."""
        lane = self.lanes[index]
        if lane is None:
            context = self.context
            lane = self.lanes[index] = Lane(
                self.store, context.read_ahead, self.queue_id, index, context.sequence.value & SEQUENCE_MASK
            )
            self.used_lanes += (lane,)
        return lane

    def count_bytes(self, size: int) -> None:
        """Add to the byte counts; negative for bytes that left."""
        self.total_bytes += size
        if self.is_journal:
            self.context.quotas.journal_used += size
        else:
            self.context.quotas.used += size

    def reserve_bytes(self, size: int) -> None:
        """Count bytes that an open transaction sends here; negative when it no longer does."""
        self.reserved_bytes += size
        self.context.quotas.used += size

    def touch(self) -> None:
        """Put the counters into the next batch."""
        self.touched = True
        self.context.touched.append(self)

    # Arriving messages

    def arrive(self, lookup_identifier: int, value: bytes) -> None:
        """Insert a message that has reached this queue, its destination."""
        self.insert(lookup_identifier, value)
        if value[FLAGS] & ON_ARRIVAL:
            self.context.outcomes.arrived(lookup_identifier, value)

    def insert(self, lookup_identifier: int, value: bytes) -> None:
        """Message Position Available (3.1.7.2.2) for a new message: store it, count it, wake waiting readers."""
        lane = self.lanes[lookup_identifier >> LANE_SHIFT]
        if lane is None:
            lane = self.lane_of(lookup_identifier >> LANE_SHIFT)
        size = len(value) - PREFIX_SIZE
        if value[FLAGS] & EXPRESS:
            self.store.put_express(self.queue_id, lookup_identifier, value)
            lane.express_count += 1
            self.express_bytes += size
        else:
            self.store.put_message(self.queue_id, lookup_identifier, value)
            if not self.touched:
                self.touch()
        lane.count += 1
        self.count_bytes(size)
        tally = self.tally
        tally.arrived += 1
        tally.arrived_bytes += size
        if self.recorder is not None:
            self.recorder.inserted(self, ((lookup_identifier, value),))
        if value[FLAGS] & ON_LOSS:
            self.loss_reports += 1
        if value[EXPIRY] != NO_EXPIRY:
            self.context.expiry.add(expiry(value), self.queue_id, lookup_identifier)
        lane.insert(lookup_identifier, value, self.readers > 0)
        if self.waiting:
            self.serve_waiting(lookup_identifier, value)
        if self.subscriber is not None:
            self.subscriber()

    def arrive_many(self, entries: Sequence[Entry]) -> None:
        """``arrive`` for messages that arrive together, in their order."""
        insert_many(self, entries)
        for lookup_identifier, value in entries:
            if value[FLAGS] & ON_ARRIVAL:
                self.context.outcomes.arrived(lookup_identifier, value)

    def arrive_committed(self, entries: Sequence[Entry]) -> None:
        """Insert the messages of a transaction that has committed."""
        self.arrive_many(entries)

    # Finding messages

    def first(self, peek: bool = False) -> Entry | None:
        """Seek Available Message Position (3.1.7.3.2) from the start of the queue."""
        if peek and self.tries:
            return self.after(-1, peek)
        hidden = self.hidden
        for lane in self.lanes:
            if lane is not None and lane.count and (entry := lane.first(hidden)) is not None:
                if peek and self.peekable_locked:
                    return self._earlier_peekable(entry, -1)
                return entry
        return self._earlier_peekable(None, -1) if peek and self.peekable_locked else None

    def after(self, lookup_identifier: int, peek: bool) -> Entry | None:
        """Seek Available Message Position, forward from a position."""
        found: Entry | None = None
        for index in range(max(lookup_identifier, 0) >> LANE_SHIFT, LANES):
            lane = self.lanes[index]
            if lane is None or not lane.count:
                continue
            if peek and self.tries:  # the window has no held messages
                found = next(lane.scan(max(lookup_identifier + 1, lane.head), self.locked), None)
            else:
                found = lane.after(lookup_identifier, self.hidden)
            if found is not None:
                break
        return self._earlier_peekable(found, lookup_identifier) if peek and self.peekable_locked else found

    def before(self, lookup_identifier: int, peek: bool) -> Entry | None:
        """Seek Available Message Position, backward from a position."""
        found: Entry | None = None
        for index in range(min(lookup_identifier - 1 >> LANE_SHIFT, LANES - 1), -1, -1):
            lane = self.lanes[index]
            if lane is not None and lane.count:
                out_of_sight = self.locked if peek else self.hidden
                found = next(lane.scan_backwards(min(lookup_identifier - 1, lane.last), out_of_sight), None)
                if found is not None:
                    break
        if peek and self.peekable_locked:
            candidates = [entry for entry in self._peekable() if entry[0] < lookup_identifier]
            return max([*candidates, *([found] if found is not None else [])], default=None)
        return found

    @staticmethod
    def is_peekable(position: LockedPosition) -> bool:
        """Whether a locked message may still be peeked (AllowPeekWhenLocked)."""
        return bool(position.value[FLAGS] & PEEK_WHEN_LOCKED) and position.state is PositionState.LOCKED

    def _peekable(self) -> Iterator[Entry]:
        for lookup_identifier, position in self.locked.items():
            if self.is_peekable(position):
                yield lookup_identifier, position.value

    def _earlier_peekable(self, found: Entry | None, after: int) -> Entry | None:
        candidates = [entry for entry in self._peekable() if entry[0] > after]
        return min([*candidates, *([found] if found is not None else [])], default=None)

    def value_of(self, lookup_identifier: int) -> bytes | None:
        """The value of an available message."""
        if lookup_identifier in self.locked or not 0 <= lookup_identifier >> LANE_SHIFT < LANES:
            return None
        lane = self.lanes[lookup_identifier >> LANE_SHIFT]
        if lane is None or not lane.count:
            return None
        value = lane.find(lookup_identifier)
        if value is None:
            self.store.make_visible()
            value = self.store.get_message(self.queue_id, lookup_identifier)
        return value

    def scan(self, first: int = 0) -> Iterator[Entry]:
        """All available messages from a lookup identifier on, from the store."""
        for index in range(first >> LANE_SHIFT, LANES):
            lane = self.lanes[index]
            if lane is not None and lane.count:
                yield from lane.scan(max(first, lane.head), self.locked)

    # Departing messages

    def take(self) -> Entry | None:
        """Take the first available message: delete or lock it next."""
        hidden = self.hidden
        for lane in self.lanes:
            if lane is not None and lane.count and (entry := lane.take(hidden)) is not None:
                return entry
        return None

    def take_this(self, lookup_identifier: int) -> None:
        """Take this available message: delete or lock it next."""
        lane = self.lanes[lookup_identifier >> LANE_SHIFT]
        if lane is not None:
            lane.discard(lookup_identifier)

    def lock(self, lookup_identifier: int, value: bytes, transaction: "Transaction | None") -> None:
        """Available to Locked, for a message that has been taken."""
        self.locked[lookup_identifier] = LockedPosition(value, transaction)
        if value[FLAGS] & PEEK_WHEN_LOCKED:
            self.peekable_locked += 1
        self.lane_of(lookup_identifier >> LANE_SHIFT).lock(lookup_identifier)
        if self.max_deliveries:
            self.context.retries.begin(self, lookup_identifier, value)

    def unlock(self, lookup_identifier: int) -> LockedPosition:
        """End the Locked state: the caller decides what follows."""
        position = self.locked.pop(lookup_identifier)
        if position.value[FLAGS] & PEEK_WHEN_LOCKED:
            self.peekable_locked -= 1
        lane = self.lane_of(lookup_identifier >> LANE_SHIFT)
        if lookup_identifier == lane.locked_floor:
            lane.raise_floor(self.hidden)
        return position

    def make_available(self, lookup_identifier: int, value: bytes) -> None:
        """Locked to Available (3.1.7.2.2): the message is back in its old place, unless it has expired."""
        if lookup_identifier in self.tries:
            self.context.retries.withdraw(self, lookup_identifier, value)
        if expiry(value) <= self.context.clock.time():
            self.expire(lookup_identifier, value)
            return
        self.lane_of(lookup_identifier >> LANE_SHIFT).insert(lookup_identifier, value, True)
        if self.waiting:
            self.serve_waiting(lookup_identifier, value)
        if self.subscriber is not None:
            self.subscriber()

    def replace(self, lookup_identifier: int, value: bytes) -> None:
        """Store the same message with a changed prefix."""
        if value[FLAGS] & EXPRESS:
            self.store.put_express(self.queue_id, lookup_identifier, value)
        else:
            self.store.replace_message(self.queue_id, lookup_identifier, value)

    def delete(self, lookup_identifier: int, value: bytes, reason: int = MessageClass.MQMSG_CLASS_ACK_RECEIVE) -> None:
        """Message Position Deleted (3.1.7.2.1), for a message that has been taken or unlocked."""
        received = reason == RECEIVED
        self.remove(lookup_identifier, value, received=received)
        if not received:
            self.tally.die(value, reason)
        if self.recorder is not None:
            self.recorder.deleted(self, ((lookup_identifier, value),), reason)
        if value[FLAGS] & REPORT or self.journaling or not received:
            self.context.outcomes.message_position_deleted(self, lookup_identifier, value, reason)

    def expire(self, lookup_identifier: int, value: bytes) -> None:
        """Delete a message that has been taken or unlocked because it has expired."""
        self.delete(lookup_identifier, value, self.expiry_reason)

    def remove(self, lookup_identifier: int, value: bytes, *, received: bool = False) -> None:
        """Remove a taken or unlocked message from store and counters, unreported. ``received``: traffic counts it."""
        lane = self.lanes[lookup_identifier >> LANE_SHIFT]
        if lane is None:
            raise ValueError(f"no message {lookup_identifier:#x} in {self.pathname}")
        size = len(value) - PREFIX_SIZE
        flags, second, arrived = DEPARTURE.unpack_from(value)
        if flags & EXPRESS:
            self.store.delete_express(self.queue_id, lookup_identifier)
            lane.express_count -= 1
            self.express_bytes -= size
        else:
            self.store.delete_message(self.queue_id, lookup_identifier, value)
            if not self.touched:
                self.touch()
        lane.count -= 1
        lane.oldest = None
        self.count_bytes(-size)
        if flags & ON_LOSS and self.loss_reports:
            self.loss_reports -= 1
        if flags & NOTICE:
            self.context.notices.left(self.queue_id, size)
        if second != NEVER:
            self.context.expiry.remove(second, self.queue_id, lookup_identifier)
        if lookup_identifier in self.tries:
            self.context.retries.forget(self, lookup_identifier)
        if received:
            tally = self.tally
            if not tally.gone_since:
                self.context.traffic.departures.append(tally)
            tally.gone_since.append(arrived)
            tally.received_bytes += size

    # Readers

    def serve_waiting(self, lookup_identifier: int, value: bytes) -> None:
        """Waiting Message Read Satisfied (3.1.7.3.6): a position is available for the waiting readers."""
        if self.paused:
            for peeking in [one for one in self.waiting if not (one.destructive_read or one.closed)]:
                peeking.satisfied(lookup_identifier, value)
            return
        while self.waiting:
            reader, _ = self.waiting.popitem(last=False)
            if reader.closed:
                continue
            if reader.destructive_read:
                self.take_this(lookup_identifier)
            reader.satisfied(lookup_identifier, value)
            if reader.destructive_read:
                return

    def forget_window(self) -> None:
        """Free the window's memory: there are no more readers."""
        for lane in self.lanes:
            if lane is not None:
                lane.forget()

    @property
    def expiry_reason(self) -> int:
        """Why a message that expires here was not received."""
        return MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT

    def recount_locked(self) -> None:
        """Recompute the counters when only locked messages are left."""
        left = [(one, len(position.value) - PREFIX_SIZE) for one, position in self.locked.items()]
        express = [(one, size) for one, size in left if self.locked[one].value[FLAGS] & EXPRESS]
        for lane in self.lanes:
            if lane is not None:
                lane.clear(self.context.sequence.value & SEQUENCE_MASK)
                lane.count = sum(one >> LANE_SHIFT == lane.index for one, _ in left)
                lane.express_count = sum(one >> LANE_SHIFT == lane.index for one, _ in express)
        self.count_bytes(sum(size for _, size in left) - self.total_bytes)
        self.express_bytes = sum(size for _, size in express)
        self.loss_reports = sum(bool(position.value[FLAGS] & ON_LOSS) for position in self.locked.values())
        if not self.touched:
            self.touch()

    def check_open(self) -> None:
        """Raise if the queue was deleted under its descriptors."""
        if self.deleted:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_QUEUE_NOT_AVAILABLE, f"the queue {self.pathname} was deleted while it was open"
            )

    @property
    def waits_for(self) -> Waiting | None:
        """The reason why its messages wait, or why it refuses messages; None if nothing keeps them."""
        network = self.context.network
        return network.waiting_of(self) if network is not None else None

    def information(self, **more: Any) -> QueueInformation:
        """The current attributes of the queue."""
        journal, waiting = self.journal_queue, self.waits_for
        facts: dict[str, Any] = {name: getattr(self, name) for name in DEFAULT_PROPERTIES if name != "security"}
        facts |= {
            "pathname": self.pathname,
            "format_name": self.context.names.format_name_of(self),
            "queue_type": self.queue_type,
            "identifier": self.identifier,
            "private_queue_number": self.private_queue_number,
            "create_time": self.create_time,
            "modify_time": self.modify_time,
            "message_count": self.message_count,
            "total_bytes": self.total_bytes,
            "journal_message_count": journal.message_count if journal else 0,
            "journal_total_bytes": journal.total_bytes if journal else 0,
            "oldest_arrival": self.oldest_arrival,
            "journal_oldest_arrival": journal.oldest_arrival if journal else None,
            "active": bool(self.descriptors),
            "state": self.state_name,
            "reason": waiting.sentence if waiting is not None else "",
            "waiting": waiting,
            "subqueues": tuple(sorted(queue.pathname.rpartition(";")[2] for queue in self.subqueues.values())),
        }
        return QueueInformation(**(facts | more))


def write_counters(context: "Context") -> None:
    """Put the counters of the queues that have changed into the current batch."""
    context.traffic.settle()
    touched, context.touched = context.touched, []
    for queue in touched:
        queue.touched = False
        if not queue.deleted:
            context.store.put_counters(queue.queue_id, queue.counters())


# ----------------------------------------------------------------------------------------------------------------------
# OutgoingQueue, MS-MQDMPR 3.1.1.3: messages in transit to a queue on another machine.


@dataclass(frozen=True, slots=True)
class ConnectionAttempt:
    """An entry of ConnectionHistory."""

    status: ConnectionStatus
    time: int
    """Seconds since 1970 (UTC)."""
    error: int = 0
    """The HRESULT of the attempt, or zero."""
    addresses: tuple[str, ...] = ()


_ORDER_QUEUE: Final = re.compile(
    rf"{re.escape(ORDER_QUEUE_NAME)}$|^PRIVATE=.*\\0*{ORDER_QUEUE.private_queue_identifier:x}$", re.IGNORECASE
)
_TRANSFER_INFO: Final = struct.Struct(">QI")


@dataclass(frozen=True, slots=True)
class OutgoingTransferInfo:
    """The queue's place in its outgoing sequence (3.1.1.4, EodNextSeq). The protocol keeps the acknowledged places."""

    sequence_identifier: int
    """TxSequenceID (MS-MQMQ 2.2.18.1.2): the time stamp in the high half."""
    last_number: int
    """TxSequenceNumber of the last message that was given a place."""

    def pack(self) -> bytes:
        """Encode for the store."""
        return _TRANSFER_INFO.pack(self.sequence_identifier, self.last_number)

    @classmethod
    def unpack(cls, record: bytes) -> "OutgoingTransferInfo":
        """Decode from the store."""
        return cls(*_TRANSFER_INFO.unpack(record))


class OutgoingQueue(Queue):
    """A queue from which messages are transferred. Its path name is the destination's format name."""

    def __init__(self, context: "Context", queue_id: int, pathname: str, **properties: Any) -> None:
        state = properties.pop("state", None)
        payer = properties.pop("payer", OWN)
        super().__init__(context, queue_id, pathname, QueueType.OUTGOING, **properties)
        self.payer = Party(Kind(payer[0]), payer[1])
        """The party for which it connects: that of a peer only while no application and no other declared peer has used
        it.
        """
        self.state = self._resting if state is None else OutgoingQueueState(state)
        self.next_hops: tuple[str, ...] = ()
        self.peer = ""
        """Address, and text of the GUID, of the queue manager at the other end of the session."""
        self.for_acknowledgments = _ORDER_QUEUE.search(pathname) is not None
        if self.for_acknowledgments:
            self.recorder = None  # the protocol's own messages are not recorded
        self.multicast = pathname.upper().startswith("MULTICAST=")
        self._transfer_info: OutgoingTransferInfo | None = None
        self.connection_history: list[ConnectionAttempt] = []
        self.refusal: Refusal | None = None
        """The last answer of the destination, if it refused messages and has accepted none for sure since."""

    @property
    def _resting(self) -> OutgoingQueueState:
        """The state while there is no session. In hardened mode nothing is transferred: locked (3.1.3, 3.1.7.1.5)."""
        return OutgoingQueueState.LOCKED if self.context.settings.hardened_security else OutgoingQueueState.INACTIVE

    @property
    def state_name(self) -> str:
        """The state as it is shown."""
        return self.state.value

    def stored_attributes(self) -> dict[str, Any]:
        """Of the states only a pause survives a restart; the others are derived anew."""
        paused = self.state is OutgoingQueueState.ON_HOLD
        return (
            super().stored_attributes()
            | ({"state": self.state.value} if paused else {})
            | ({"payer": self.payer} if self.payer != OWN else {})
        )

    def used_by(self, party: Party) -> None:
        """Note that a party has messages put here."""
        if party != self.payer != OWN and party.kind is not Kind.STRANGER:
            self.payer = party if self.payer.kind is Kind.STRANGER else OWN
            self.store.put_queue(self.queue_id, self.definition())

    def is_unused(self) -> bool:
        """Whether the queue can be deleted, because it would be created again with the same state."""
        return (
            not self.message_count
            and not self.reserved_bytes
            and not self.descriptors
            and self.state is not OutgoingQueueState.ON_HOLD
            and (self.context.network is None or not self.context.network.is_awaited(self))
        )

    def refused(self, message_class: int, author: Guid, place: tuple[int, int] = (0, 0), detail: str = "") -> None:
        """Note that the destination refused the message at this place of a sequence, or that it cannot be encrypted."""
        before, since = self.refusal, self.context.clock.time()
        if before is not None and before.message_class == message_class and not before.is_over(since):
            since = before.since
        self.refusal = Refusal(message_class, author, since, place, detail)

    def accepted(self, place: tuple[int, int] = (0, 0)) -> None:
        """Note that the destination took the messages up to a place of a sequence, or that one was encrypted again.

        A refusal of the last of them may still be on its way.
        """
        refusal = self.refusal
        if refusal is None or refusal.accepted_at:
            return
        if place > refusal.place > (0, 0) or place == refusal.place == (0, 0):
            refusal.accepted_at = self.context.clock.time()

    # Messages

    def arrive(self, lookup_identifier: int, value: bytes) -> None:
        """Insert a message that has left its sender and not yet reached its destination."""
        self.insert(lookup_identifier, value)

    def arrive_many(self, entries: Sequence[Entry]) -> None:
        """``arrive`` for messages that arrive together, in their order."""
        insert_many(self, entries)

    def arrive_committed(self, entries: Sequence[Entry]) -> None:
        """Assign the next places in the sequence to this destination, in the batch of the commit.

        Messages leave in the order of their numbers, which is the order of commits. So they are inserted last: their
        places from sending time could precede a message with a lower number.
        """
        sequence_identifier, first = self._assign_numbers(len(entries))
        next_place = self.context.sequence.next
        offset_of = TransactionOffsets().of
        insert_many(
            self,
            [
                (
                    lookup_identifier >> LANE_SHIFT << LANE_SHIFT | next_place(),
                    with_sequence_fields(value, offset_of(value), sequence_identifier, number, number - 1),
                )
                for number, (lookup_identifier, value) in enumerate(entries, first)
            ],
        )

    def _assign_numbers(self, count: int) -> tuple[int, int]:
        network = self.context.network
        if network is not None:
            return network.next_numbers(self, count)
        info = self.transfer_info
        self.transfer_info = replace(info, last_number=info.last_number + count)
        self.store.put_outgoing(self.queue_id, self.transfer_info.pack())
        return info.sequence_identifier, info.last_number + 1

    @property
    def transfer_info(self) -> OutgoingTransferInfo:
        """The part of OutgoingTransferInfoReference that survives a restart."""
        if self._transfer_info is None:
            record = self.store.get_outgoing(self.queue_id)
            oldest = self.store.sequence_time_stamp
            found = OutgoingTransferInfo.unpack(record) if record else None
            if found is None or found.sequence_identifier >> 32 < oldest:
                # New, or from before the store was restored or copied: its numbers may have been used.
                stamp = max(int(self.context.clock.time()), oldest) & 0xFFFFFFFF
                found = OutgoingTransferInfo(stamp << 32 | self.queue_id, 0)
            self._transfer_info = found
        return self._transfer_info

    @transfer_info.setter
    def transfer_info(self, info: OutgoingTransferInfo) -> None:
        self._transfer_info = info

    @property
    def expiry_reason(self) -> int:
        """A message that expires here did not reach its queue."""
        return MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT

    def expire(self, lookup_identifier: int, value: bytes) -> None:
        """Expire a message, unless another queue manager's message has more time left (``Network.transit_end``)."""
        network, now = self.context.network, int(self.context.clock.time())
        if network is None or value[SOURCE] == self.context.identifier:
            super().expire(lookup_identifier, value)
            return
        end = network.transit_end(value)
        if end.second <= now:
            self.delete(lookup_identifier, value, end.reason)
            return
        expires = self.context.expiry
        expires.remove(expiry(value), self.queue_id, lookup_identifier)
        value = with_prefix(value, expires=end.second)
        self.replace(lookup_identifier, value)
        if end.second != NEVER:
            expires.add(end.second, self.queue_id, lookup_identifier)
        self.make_available(lookup_identifier, value)

    def delete(self, lookup_identifier: int, value: bytes, reason: int = MessageClass.MQMSG_CLASS_ACK_RECEIVE) -> None:
        """Message Position Deleted: the message goes no further."""
        network = self.context.network
        passing = value[SOURCE] != self.context.identifier
        if passing:
            value = without_claims(value)  # nobody checked them, and it may become a dead letter
        if passing and network is not None and not network.gave_up(self, value):
            self.remove(lookup_identifier, value)
            if value[FLAGS] & TRANSACTIONAL:
                network.message_left(value, reason)  # the notification may be lost: the source resends
            return
        super().delete(lookup_identifier, value, reason)

    def transferred(self, lookup_identifier: int, value: bytes) -> None:
        """Delete a message that the other side has received, with a copy for the journal if requested."""
        if lookup_identifier in self.locked:
            self.unlock(lookup_identifier)
        else:
            self.take_this(lookup_identifier)
        self.remove(lookup_identifier, value)
        if self.recorder is not None:
            self.recorder.transferred(self, ((lookup_identifier, value),))
        if value[FLAGS] & RecordFlag.POSITIVE_JOURNAL:
            self.context.outcomes.add_to_journal(self.context.queues.journal, lookup_identifier, value)

    def release(self, lookup_identifiers: Iterable[int]) -> list[Entry]:
        """Delete locked messages that were transferred, and return their values; those deleted earlier are skipped."""
        locked, pop = self.locked, self.locked.pop
        gone: list[Entry] = [
            (one, position.value) for one in lookup_identifiers if (position := pop(one, None)) is not None
        ]
        if self.peekable_locked:
            self.peekable_locked -= sum(value[FLAGS] & PEEK_WHEN_LOCKED != 0 for _, value in gone)
        if gone:
            remove_acknowledged(self, gone)
        if self.recorder is not None:
            self.recorder.transferred(self, gone)
        for lane in self.lanes:
            if lane is not None and lane.locked_floor not in locked:
                lane.raise_floor(locked)
        return gone

    # State

    def pause(self) -> None:
        """Pause Queue (3.1.7.2.3): stop sending."""
        self._set_state(OutgoingQueueState.ON_HOLD)
        if self.context.network is not None:
            self.context.network.paused(self)

    def resume(self) -> None:
        """Resume Queue (3.1.7.2.4): send again."""
        self._set_state(self._resting)
        if self.context.network is not None:
            self.context.network.resumed(self)

    def _set_state(self, state: OutgoingQueueState) -> None:
        self.state = state
        self.store.put_queue(self.queue_id, self.definition())

    def information(self, **more: Any) -> QueueInformation:
        """The attributes as they stand now."""
        active = self.message_count > 0 or bool(self.descriptors)
        return super().information(next_hops=self.next_hops, active=active, **more)
