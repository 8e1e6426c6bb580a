"""Queues open to remote readers: the data models of MS-MQQP 3.1.1, MS-MQRR 3.1.1 and qmcomm (MS-MQMP 3.1.1.7), how
they are opened, and reads: waiting, cancelling, locking, ending, and the time in which a client must confirm them.

A queue is opened through qmcomm, which issues a number for it; the caller that then opens that number through qm2qm
owns the queue. The numbers are random, so that no client finds another's by counting.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from qmnode.errors import MessageQueuingError
from qmnode.model.open_queue import OpenQueueDescriptor
from qmnode.model.stored_message import PREFIX_SIZE, whole_value, without_dead_letter_header
from qmnode.remote_read.qm2qm import INFINITE, MAXIMUM_BUFFER, Action
from qmnode.remote_read.queue_format import QueueFormatValue, to_format_name
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.errors import PacketError
from qmnode.structures.guid import ZERO_GUID, Guid
from qmnode.structures.names import (
    DirectFormatName,
    DirectProtocol,
    FormatName,
    MachineFormatName,
    PrivateFormatName,
    PublicFormatName,
    QueueNameError,
)

if TYPE_CHECKING:
    from qmnode.dcerpc.context_handles import Association
    from qmnode.dcerpc.server import Caller
    from qmnode.model.api import Access, Seek, Share
    from qmnode.model.message import Message
    from qmnode.model.open_queue import OpenQueueDescriptor
    from qmnode.model.queue_manager import QueueManager
    from qmnode.model.reading import Cursor
    from qmnode.security.principals import Principal, Principals

log = structlog.get_logger(__name__)


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

    def expect_end(self, entry: RemoteReadEntry, patience: float) -> None:
        """Give a client so many seconds to confirm a message that was sent: start the Pending Request Cleanup Timer
        (3.1.2.2), unless it runs for an older entry.
        """
        loop = asyncio.get_running_loop()
        entry.deadline = loop.time() + patience
        self.pending[entry.request_id] = entry
        if self.timer is None:
            self.timer = loop.call_at(entry.deadline, self._expire)

    def _expire(self) -> None:
        """Pending Request Cleanup Timer Event, 3.1.5.1: messages return to their places."""
        loop = asyncio.get_running_loop()
        self.timer = None
        for entry in list(self.pending.values()):
            if entry.deadline > loop.time():
                self.timer = loop.call_at(entry.deadline, self._expire)
                return
            del self.pending[entry.request_id]
            entry.give_back()
            log.info("a message returns to its queue: its remote reader did not end the read in time",
                     queue=self.queue.descriptor.queue.pathname)  # fmt: skip

    def forget_pending(self) -> None:
        """Expect no end of any read: the queue is closed, which returns their messages."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self.pending.clear()


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


class Identities:
    """The principals of remote callers."""

    def __init__(self, manager: QueueManager, principals: Principals) -> None:
        self._manager = manager
        self._principals = principals

    async def principal(self, account: str) -> Principal:
        """The principal of ``DOMAIN\\user`` or ``user@REALM``; the anonymous one without a name. MQ_ERROR_NO_DS."""
        return await self._principals.of_remote_user(account)

    async def may_use(self, caller: Caller, queue: RemoteQueue) -> bool:
        """Whether a caller may use a queue whose number it knows: one of its own, or one that it could open itself."""
        opener = queue.opener
        if caller.principal == opener.principal and (
            caller.principal or caller.association in (opener.association, queue.owner)
        ):
            return True
        principal = await self.principal(caller.principal)
        return self._manager.opening.may_open(queue.descriptor.queue, queue.descriptor.access, principal)


_READABLE: Final = (DirectFormatName, PublicFormatName, PrivateFormatName, MachineFormatName)


class RemoteOpening:
    """Opens local queues for callers of other machines, with their own rights."""

    def __init__(self, manager: QueueManager, queues: RemoteQueues, identities: Identities) -> None:
        self._manager = manager
        self._queues = queues
        self._identities = identities

    async def open(
        self, caller: Caller, queue_format: QueueFormatValue | None, access: Access, share: Share
    ) -> RemoteQueue:
        """Open a queue of this queue manager. Raises the MQ_ERROR code of the reason if it cannot be opened."""
        self._queues.check_room()
        name = self._at_home(_name_of(queue_format), caller)
        if not self._manager.names.is_local(name):
            raise MessageQueuingError(ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND, f"{name} is not a queue of this computer")
        principal = await self._identities.principal(caller.principal)
        opened = await self._manager.open_queue(str(name), access, share, caller=principal)
        assert isinstance(opened, OpenQueueDescriptor)
        return self._queues.add(opened, caller)

    def _at_home(self, name: FormatName, caller: Caller) -> FormatName:
        """The name with a local address: the one that the caller connected to is ours, whatever the settings know."""
        if not isinstance(name, DirectFormatName) or name.protocol not in (DirectProtocol.TCP, DirectProtocol.OS):
            return name
        if name.path.computer != caller.local_address:
            return name
        return DirectFormatName(DirectProtocol.OS, replace(name.path, computer=self._manager.computer_name))


def _name_of(value: QueueFormatValue | None) -> FormatName:
    if value is None:
        raise MessageQueuingError(ErrorCode.MQ_ERROR_INVALID_PARAMETER, "no QUEUE_FORMAT")
    try:
        name = to_format_name(value)
    except (QueueNameError, PacketError, ValueError) as error:
        raise MessageQueuingError(ErrorCode.MQ_ERROR_ILLEGAL_FORMATNAME, str(error)) from None
    if not isinstance(name, _READABLE):
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION, f"{name} cannot be read remotely"
        )
    return name


MQ_OK: Final = 0
STATUS_NOT_FOUND: Final = 0xC0000225
SEQUENTIAL_ID: Final = (1 << 56) - 1
"""The bytes of a lookup identifier that remote readers learn: the least significant seven."""
LOOKUPS: Final[dict[int, tuple[bool, Seek]]] = {
    # Whether the message is removed, and its position relative to the lookup identifier.
    Action.MQ_LOOKUP_PEEK_CURRENT: (False, "current"),
    Action.MQ_LOOKUP_PEEK_NEXT: (False, "next"),
    Action.MQ_LOOKUP_PEEK_PREV: (False, "prev"),
    Action.MQ_LOOKUP_RECEIVE_CURRENT: (True, "current"),
    Action.MQ_LOOKUP_RECEIVE_NEXT: (True, "next"),
    Action.MQ_LOOKUP_RECEIVE_PREV: (True, "prev"),
}
_FIRST: Final = 0
_LAST: Final = 0xFFFFFFFFFFFFFFFF


class Read(NamedTuple):
    """The outcome of a read: a status, and the message if that is MQ_OK."""

    status: int
    lookup_identifier: int = 0
    value: bytes = b""
    """The stored value of the message; empty if there is none."""
    entry: RemoteReadEntry | None = None
    """The locked message, which the caller has to end; None for a peek."""


def by_position(queue: RemoteQueue, cursor: Cursor | None, action: int, milliseconds: int) -> Awaitable[Message] | None:
    """The data model's event for a read at the front or at a cursor; None if the action is none of these."""
    timeout = None if milliseconds == INFINITE else milliseconds / 1000
    match action:
        case Action.MQ_ACTION_RECEIVE:
            return (cursor or queue.descriptor).receive_begin(timeout)
        case Action.MQ_ACTION_PEEK_CURRENT:
            return (cursor or queue.descriptor).peek(timeout)
        case Action.MQ_ACTION_PEEK_NEXT if cursor is not None:
            return cursor.peek_next(timeout)
        case _:
            return None


def by_lookup_id(queue: RemoteQueue, lookup_id: int, action: int) -> Awaitable[Message] | None:
    """Read Message By Lookup Identifier; None for values that name no message.

    The text removes the message at once, even if it is lost on its way: here it is locked first, too.
    """
    found = LOOKUPS.get(action)
    if found is None:
        return None
    locks, seek = found
    if seek != "next" and lookup_id == _FIRST:
        return None
    if seek == "next" and lookup_id == _FIRST:
        seek = "first"
    elif seek == "prev" and lookup_id == _LAST:
        seek = "last"
    descriptor = queue.descriptor
    read = descriptor.receive_begin_by_lookup_id if locks else descriptor.peek_by_lookup_id
    return read(lookup_id, seek)


def locks(action: int) -> bool:
    """Whether an action removes its message, which is locked until the reader has it."""
    return action == Action.MQ_ACTION_RECEIVE or LOOKUPS.get(action, (False,))[0]


class Reads:
    """Performs reads, and limits the messages that are locked for one client."""

    def __init__(self, held_bytes: int) -> None:
        """``held_bytes`` limits the messages that may be locked for one client at a time; one message always may."""
        self._held_bytes = held_bytes

    async def read(
        self,
        caller: Caller,
        queue: RemoteQueue,
        request_id: int,
        work: Awaitable[Message],
        *,
        locks: bool,
        cancelled: int = ErrorCode.MQ_ERROR_OPERATION_CANCELLED,
    ) -> Read:
        """Wait for a message. ``cancelled`` is the status of a read that its client cancels."""
        task = asyncio.current_task()
        assert task is not None
        entry = RemoteReadEntry(queue, request_id, task)
        queue.reads[entry.request_id] = entry
        try:
            message = await work
        except MessageQueuingError as error:
            return Read(int(error.code))
        except asyncio.CancelledError:
            if not entry.cancelled:
                raise
            task.uncancel()
            return Read(cancelled)
        finally:
            if queue.reads.get(entry.request_id) is entry:
                del queue.reads[entry.request_id]
        entry.lookup_identifier = message.lookup_identifier
        return self._result(caller, entry, whole_value(message), locks=locks)

    def read_at_once(
        self, caller: Caller, queue: RemoteQueue, request_id: int
    ) -> tuple[Read, asyncio.Future[None] | None] | None:
        """Receive a message that is available now, and return the write that must be on disk before it may be sent;
        None if none is available. Raises MessageQueuingError.
        """
        begun = queue.descriptor.begin_available()
        if begun is None:
            return None
        lookup_identifier, value, write = begun
        entry = RemoteReadEntry(queue, request_id, lookup_identifier=lookup_identifier)
        return self._result(caller, entry, value, locks=True), write

    def _result(self, caller: Caller, entry: RemoteReadEntry, value: bytes, *, locks: bool) -> Read:
        size = len(without_dead_letter_header(value)) - PREFIX_SIZE
        full = locks and caller.association.held and caller.association.held + size > self._held_bytes
        if size > MAXIMUM_BUFFER or full:
            if locks:
                entry.queue.descriptor.give_back(entry.lookup_identifier)
            return Read(ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES if full else ErrorCode.MQ_ERROR_BUFFER_OVERFLOW)
        if locks:
            entry.hold(caller.association, size)
        return Read(MQ_OK, entry.lookup_identifier, value, entry if locks else None)

    def begin_end(self, entry: RemoteReadEntry, *, delete: bool) -> asyncio.Future[None]:
        """Dequeue Message End: delete the locked message or put it back, and return the write of that. Raises
        MessageQueuingError.
        """
        entry.release()
        return entry.queue.descriptor.end_begun(entry.lookup_identifier, delete)

    async def end(self, entry: RemoteReadEntry, *, delete: bool) -> int:
        """The same; return the status, when it is on disk."""
        try:
            await self.begin_end(entry, delete=delete)
        except MessageQueuingError as error:
            return int(error.code)
        return MQ_OK

    def cancel(self, queue: RemoteQueue, request_id: int) -> int:
        """Cancel Waiting Message Read Request (MS-MQDMPR 3.1.7.1.17), and return the status."""
        entry = queue.reads.get(request_id)
        if entry is None:
            return ErrorCode.MQ_ERROR
        if entry.cancelled:
            return STATUS_NOT_FOUND
        entry.cancel()
        return MQ_OK
