"""Queues open to remote readers: the data models of MS-MQQP 3.1.1, MS-MQRR 3.1.1 and qmcomm (MS-MQMP 3.1.1.7).

A queue is opened through qmcomm, which issues a number for it; the caller that then opens that number through qm2qm
owns the queue. The numbers are random, so that no client finds another's by counting.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from qmnode.errors import MessageQueuingError
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import ZERO_GUID, Guid

if TYPE_CHECKING:
    from qmnode.dcerpc.contexts import Association
    from qmnode.dcerpc.server import Caller
    from qmnode.model.open_queue import OpenQueueDescriptor
    from qmnode.model.reading import Cursor


class RemoteReadState(Enum):
    """RemoteReadState of an OpenQueueDescriptor: MS-MQDMPR 3.1.1.16. Other descriptors have none."""

    OPENED = "opened"
    READY_FOR_READ = "ready for read"


@dataclass(eq=False, slots=True)
class RemoteQueue:
    """An OpenQueueDescriptor that was opened for remote reading."""

    number: int
    """Its Handle, as clients know it."""
    descriptor: OpenQueueDescriptor
    opener: Caller
    state: RemoteReadState = RemoteReadState.OPENED
    owner: Association | None = None
    """The association that opened it through qm2qm."""
    principal: str = ""
    """The principal of that association."""
    cursors: dict[int, Cursor] = field(default_factory=dict)
    """CursorCollection, by the handles that clients know."""
    reads: dict[int, RemoteReadEntry] = field(default_factory=dict)
    """RemoteReadEntryCollection, by RequestId: unanswered reads."""
    begun: set[RemoteReadEntry] = field(default_factory=set)
    """Reads whose messages are locked."""


@dataclass(eq=False, slots=True)
class RemoteOpenContext:
    """RemoteQueueOpenContextHandle: the object behind a PCTX_OPENREMOTE_HANDLE_TYPE (MS-MQMP 3.1.1.8)."""

    queue: RemoteQueue


@dataclass(eq=False, slots=True)
class OpenQueueEntry:
    """OpenQueueEntry: the object behind a PCTX_RRSESSION_HANDLE_TYPE (MS-MQQP 3.1.1.4)."""

    queue: RemoteQueue
    client_id: Guid = ZERO_GUID


@dataclass(eq=False, slots=True)
class QueueContext:
    """The object behind a QUEUE_CONTEXT_HANDLE_SERIALIZE of RemoteRead (MS-MQRR 2.2.4)."""

    queue: RemoteQueue
    pending: dict[int, RemoteReadEntry] = field(default_factory=dict)
    """Entries of the PendingRequestTable (3.1.1.3) whose messages were sent, by RequestId; the oldest first."""
    timer: asyncio.TimerHandle | None = None
    """Pending Request Cleanup Timer (3.1.2.2): one for all entries, which all have the same time."""
    move_context: int = field(default_factory=lambda: secrets.randbits(64) | 1)
    """Its pMoveContext (3.1.4.11), a random number."""


@dataclass(eq=False, slots=True)
class RemoteReadEntry:
    """A read: RemoteReadEntry, PCTX_REMOTEREAD_HANDLE_TYPE (MS-MQQP 3.1.1.2), PendingRequestEntry (MS-MQRR 3.1.1.2)."""

    queue: RemoteQueue
    request_id: int
    task: asyncio.Task[object] | None = None
    """The task of the waiting call."""
    cancelled: bool = False
    lookup_identifier: int = 0
    """The lookup identifier of the locked message, once there is one."""
    held: int = 0
    """Bytes of that message, charged to the association until the read has ended."""
    deadline: float = 0.0
    """The loop's time by which the reader must end the read, once the message was sent."""

    def cancel(self) -> None:
        """End the wait: the call returns MQ_INFORMATION_REMOTE_CANCELED_BY_CLIENT."""
        self.cancelled = True
        if self.task is not None:
            self.task.cancel()

    def hold(self, association: Association, size: int) -> None:
        """Charge the association for the message that is locked for this client."""
        self.held = size
        association.held += size
        self.queue.begun.add(self)

    def release(self) -> None:
        """Release the charge after the read has ended."""
        if self.queue.owner is not None:
            self.queue.owner.held -= self.held
        self.held = 0
        self.queue.begun.discard(self)

    def give_back(self) -> None:
        """End the read with RR_NACK (3.1.6.2)."""
        self.release()
        self.queue.descriptor.abandon(self.lookup_identifier)


CURSORS: Final = 1_024
"""The most cursors of one open queue."""


class RemoteQueues:
    """All queues that are open to remote readers, by number."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_number: dict[int, RemoteQueue] = {}

    def __len__(self) -> int:
        return len(self._by_number)

    def check_room(self) -> None:
        """Raise MQ_ERROR_INSUFFICIENT_RESOURCES if no more queues may be opened."""
        if len(self._by_number) >= self._limit:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES, f"{self._limit} queues are open to remote readers"
            )

    def add(self, descriptor: OpenQueueDescriptor, opener: Caller) -> RemoteQueue:
        queue = RemoteQueue(_free_number(self._by_number), descriptor, opener)
        self._by_number[queue.number] = queue
        return queue

    def find(self, number: int) -> RemoteQueue | None:
        """Any open queue, by its number."""
        return self._by_number.get(number)

    def of_owner(self, number: int, caller: Caller) -> RemoteQueue | None:
        """A queue that the caller's own association opened through qm2qm, as the same principal."""
        queue = self._by_number.get(number)
        if queue is None or queue.owner is not caller.association or queue.principal != caller.principal:
            return None
        return queue

    def of_client(self, number: int, caller: Caller) -> RemoteQueue | None:
        """A queue that the caller opened, as the same principal, possibly in another association from its machine.

        Clients that make one call at a time on a connection cancel a waiting read over another connection.
        """
        queue = self._by_number.get(number)
        if queue is None or queue.owner is None or queue.principal != caller.principal:
            return None
        return queue if queue.owner is caller.association or queue.owner.peer == caller.peer else None

    def close(self, queue: RemoteQueue) -> None:
        """Close Queue (MS-MQDMPR 3.1.7.1.6): end its waiting reads and return messages whose reads have not ended."""
        if self._by_number.pop(queue.number, None) is None:
            return
        for entry in list(queue.reads.values()):
            entry.cancel()
        for entry in list(queue.begun):
            entry.release()
        queue.descriptor.closed()
        queue.cursors.clear()

    def add_cursor(self, queue: RemoteQueue) -> int:
        """Open Cursor (MS-MQDMPR 3.1.7.1.1) and return its number."""
        if len(queue.cursors) >= CURSORS:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES, f"the queue has {CURSORS} cursors: close some"
            )
        number = _free_number(queue.cursors)
        queue.cursors[number] = queue.descriptor.cursor()
        return number

    def close_all(self) -> None:
        """Close all queues, because the server stops."""
        for queue in list(self._by_number.values()):
            self.close(queue)


def _free_number(taken: dict[int, RemoteQueue] | dict[int, Cursor]) -> int:
    while True:
        number = secrets.randbits(32)
        if number and number not in taken:
            return number
