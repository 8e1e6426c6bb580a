"""What remote readers have open: the abstract data model of MS-MQQP 3.1.1 and of qmcomm (MS-MQMP 3.1.1.7).

A queue is opened through qmcomm, which gives out a number for it; whoever opens it through qm2qm with that number owns
it from then on. The numbers are random: nobody finds another client's by counting.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from qmnode.errors import MessageQueuingError
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import ZERO_GUID, Guid

if TYPE_CHECKING:
    from qmnode.dcerpc.contexts import Association
    from qmnode.dcerpc.server import Caller
    from qmnode.model.open_queue import OpenQueueDescriptor
    from qmnode.model.reading import Cursor


class RemoteReadState(Enum):
    """RemoteReadState of an OpenQueueDescriptor: MS-MQDMPR 3.1.1.16. There is none for other descriptors."""

    OPENED = "opened"
    READY_FOR_READ = "ready for read"


@dataclass(eq=False, slots=True)
class RemoteQueue:
    """An OpenQueueDescriptor that was opened to be read remotely."""

    number: int
    """Its Handle, as clients know it."""
    descriptor: OpenQueueDescriptor
    opener: Caller
    state: RemoteReadState = RemoteReadState.OPENED
    owner: Association | None = None
    """The association that opened it through qm2qm."""
    principal: str = ""
    """Who that is."""
    cursors: dict[int, Cursor] = field(default_factory=dict)
    """CursorCollection, by the handles that clients know."""
    reads: dict[int, RemoteReadEntry] = field(default_factory=dict)
    """RemoteReadEntryCollection, by RequestId: reads that have not been answered."""
    begun: set[RemoteReadEntry] = field(default_factory=set)
    """Reads whose messages are locked."""


@dataclass(eq=False, slots=True)
class RemoteOpenContext:
    """RemoteQueueOpenContextHandle: what a PCTX_OPENREMOTE_HANDLE_TYPE stands for (MS-MQMP 3.1.1.8)."""

    queue: RemoteQueue


@dataclass(eq=False, slots=True)
class OpenQueueEntry:
    """OpenQueueEntry: what a PCTX_RRSESSION_HANDLE_TYPE stands for (MS-MQQP 3.1.1.4)."""

    queue: RemoteQueue
    client_id: Guid = ZERO_GUID


@dataclass(eq=False, slots=True)
class RemoteReadEntry:
    """RemoteReadEntry: what a PCTX_REMOTEREAD_HANDLE_TYPE stands for (MS-MQQP 3.1.1.2)."""

    queue: RemoteQueue
    request_id: int
    task: asyncio.Task[object]
    """The call that waits."""
    cancelled: bool = False
    lookup_identifier: int = 0
    """Of the message that is locked, once there is one."""
    held: int = 0
    """Its bytes, which count for the association until the read has ended."""

    def cancel(self) -> None:
        """End the wait: the call returns MQ_INFORMATION_REMOTE_CANCELED_BY_CLIENT."""
        self.cancelled = True
        self.task.cancel()

    def hold(self, association: Association, size: int) -> None:
        """The message is locked for this client."""
        self.held = size
        association.held += size
        self.queue.begun.add(self)

    def release(self) -> None:
        """The read has ended."""
        if self.queue.owner is not None:
            self.queue.owner.held -= self.held
        self.held = 0
        self.queue.begun.discard(self)

    def give_back(self) -> None:
        """End the read with RR_NACK (3.1.6.2)."""
        self.release()
        self.queue.descriptor.give_back(self.lookup_identifier)


class RemoteQueues:
    """All queues that are open to remote readers, by number."""

    def __init__(self, limit: int, cursors: int) -> None:
        self._limit = limit
        self._cursors = cursors
        self._by_number: dict[int, RemoteQueue] = {}

    def __len__(self) -> int:
        return len(self._by_number)

    def check_room(self) -> None:
        """Raise MQ_ERROR_INSUFFICIENT_RESOURCES when no more may be opened."""
        if len(self._by_number) >= self._limit:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES, f"{self._limit} queues are open to remote readers"
            )

    def add(self, descriptor: OpenQueueDescriptor, opener: Caller) -> RemoteQueue:
        """A queue has been opened."""
        queue = RemoteQueue(_free_number(self._by_number), descriptor, opener)
        self._by_number[queue.number] = queue
        return queue

    def find(self, number: int) -> RemoteQueue | None:
        """Any queue."""
        return self._by_number.get(number)

    def of_owner(self, number: int, caller: Caller) -> RemoteQueue | None:
        """A queue that the caller's own association has opened through qm2qm, as the same principal."""
        queue = self._by_number.get(number)
        if queue is None or queue.owner is not caller.association or queue.principal != caller.principal:
            return None
        return queue

    def of_client(self, number: int, caller: Caller) -> RemoteQueue | None:
        """A queue that the caller has opened, as the same principal, perhaps in another association from its machine.

        Clients that make one call at a time on a connection cancel a read that waits over another one.
        """
        queue = self._by_number.get(number)
        if queue is None or queue.owner is None or queue.principal != caller.principal:
            return None
        return queue if queue.owner is caller.association or queue.owner.peer == caller.peer else None

    def close(self, queue: RemoteQueue) -> None:
        """Close Queue (MS-MQDMPR 3.1.7.1.6): its waiting reads end, messages that were not ended are given back."""
        if self._by_number.pop(queue.number, None) is None:
            return
        for entry in list(queue.reads.values()):
            entry.cancel()
        for entry in list(queue.begun):
            entry.release()
        queue.descriptor.closed()
        queue.cursors.clear()

    def add_cursor(self, queue: RemoteQueue) -> int:
        """Open Cursor (MS-MQDMPR 3.1.7.1.1): its number."""
        if len(queue.cursors) >= self._cursors:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES, f"the queue has {self._cursors} cursors: close some"
            )
        number = _free_number(queue.cursors)
        queue.cursors[number] = queue.descriptor.cursor()
        return number

    def close_all(self) -> None:
        """The server stops."""
        for queue in list(self._by_number.values()):
            self.close(queue)


def _free_number(taken: dict[int, RemoteQueue] | dict[int, Cursor]) -> int:
    while True:
        number = secrets.randbits(32)
        if number and number not in taken:
            return number
