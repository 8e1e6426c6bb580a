"""OutgoingQueue, MS-MQDMPR 3.1.1.3: messages in transit to a queue on another machine."""

import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from qmnode.model.api import QueueInformation, QueueType
from qmnode.model.ports import Entry
from qmnode.model.positions import LANE_SHIFT, insert_many, remove_acknowledged
from qmnode.model.queue import Queue
from qmnode.model.stored_message import (
    FLAGS,
    NEVER,
    PEEK_WHEN_LOCKED,
    SOURCE,
    TRANSACTIONAL,
    RecordFlag,
    TransactionOffsets,
    expiry,
    with_prefix,
    without_claims,
)
from qmnode.model.waiting import Refusal
from qmnode.structures.acks import ORDER_QUEUE, ORDER_QUEUE_NAME
from qmnode.structures.guid import Guid
from qmnode.structures.message_classes import MessageClass
from qmnode.structures.packet_view import with_sequence_fields
from qmnode.structures.queue_attributes import ConnectionStatus, OutgoingQueueState

if TYPE_CHECKING:
    from qmnode.model.context import Context


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
        super().__init__(context, queue_id, pathname, QueueType.OUTGOING, **properties)
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
        """Only a pause survives a restart; the other states are derived anew."""
        paused = self.state is OutgoingQueueState.ON_HOLD
        return super().stored_attributes() | ({"state": self.state.value} if paused else {})

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
