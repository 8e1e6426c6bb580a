"""The server side of qm2qm: MS-MQQP 3.1.4. Every read is answered by a task of its own, so none delays another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from qmnode.dcerpc.ndr import NULL_CONTEXT_HANDLE
from qmnode.dcerpc.server import Service, service
from qmnode.errors import MessageQueuingError
from qmnode.model.packet import stored_value
from qmnode.model.record import PREFIX, PREFIX_SIZE
from qmnode.remote_read import qm2qm
from qmnode.remote_read.opened import OpenQueueEntry, RemoteQueue, RemoteReadEntry, RemoteReadState
from qmnode.remote_read.qm2qm import (
    INFINITE,
    MAXIMUM_BUFFER,
    Action,
    PortType,
    RemoteReadAck,
    RemoteReadDesc,
    RemoteReadDesc2,
    StartReceive2Response,
    Status,
)
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import Guid

if TYPE_CHECKING:
    from collections.abc import Callable

    from qmnode.dcerpc.server import Caller
    from qmnode.model.api import Seek
    from qmnode.model.message import Message
    from qmnode.model.reading import Cursor
    from qmnode.remote_read.identities import Identities
    from qmnode.remote_read.opened import RemoteQueues

log = structlog.get_logger(__name__)

MQ_OK: Final = 0
STATUS_INVALID_PARAMETER: Final = 0xC000000D
STATUS_NOT_FOUND: Final = 0xC0000225
CANCELED_BY_CLIENT: Final = 0x400E03E9
"""The status MQ_INFORMATION_REMOTE_CANCELED_BY_CLIENT, 3.1.4.6."""
VERSION: Final = (6, 1, 7601)
"""The version that RemoteQmGetVersion returns: 3.1.4.9 and its notes 22 to 24."""
_SEQUENTIAL_ID: Final = (1 << 56) - 1
_RETURNED_BY_SERVER: Final = 1
_SERVER_PORTS: Final = (PortType.IP_HANDSHAKE, PortType.IP_READ)
_LOOKUPS: Final[dict[int, tuple[bool, Seek]]] = {
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


class _Read(NamedTuple):
    """The result of a read: the three values that every StartReceive returns."""

    status: int
    context: bytes = NULL_CONTEXT_HANDLE
    message: Message | None = None


class Qm2qmServer:
    """Lets other queue managers read the queues of this one."""

    def __init__(self, queues: RemoteQueues, identities: Identities, port: Callable[[], int], held_bytes: int) -> None:
        """``held_bytes`` limits the messages that may be locked for one client at a time; one message always may."""
        self._held_bytes = held_bytes
        self._queues = queues
        self._identities = identities
        self._port = port

    def service(self) -> Service:
        """The interface with its handlers."""
        return service(
            qm2qm.QM2QM,
            {
                qm2qm.START_RECEIVE: self.start_receive,
                qm2qm.END_RECEIVE: self.end_receive,
                qm2qm.OPEN_QUEUE: self.open_queue,
                qm2qm.CLOSE_QUEUE: self.close_queue,
                qm2qm.CLOSE_CURSOR: self.close_cursor,
                qm2qm.CANCEL_RECEIVE: self.cancel_receive,
                qm2qm.PURGE_QUEUE: self.purge_queue,
                qm2qm.GET_SERVER_PORT: self.get_server_port,
                qm2qm.GET_VERSION: self.get_version,
                qm2qm.START_RECEIVE2: self.start_receive2,
                qm2qm.START_RECEIVE_BY_LOOKUP_ID: self.start_receive_by_lookup_id,
            },
        )

    # Reads

    async def start_receive(self, caller: Caller, request: qm2qm.StartReceiveRequest) -> qm2qm.StartReceiveResponse:
        """Answer RemoteQMStartReceive, 3.1.4.1: peek, or lock for a receive."""
        read = await self._read(caller, request.desc)
        return qm2qm.StartReceiveResponse(
            context=read.context, desc=_answered(request.desc, read.message), status=read.status
        )

    async def start_receive2(self, caller: Caller, request: qm2qm.StartReceive2Request) -> StartReceive2Response:
        """Answer RemoteQMStartReceive2, 3.1.4.10, which also returns the SequentialId."""
        desc = request.desc2.remote_read_desc
        if desc is None:
            return StartReceive2Response(desc2=request.desc2, status=ErrorCode.MQ_ERROR_INVALID_HANDLE)
        return _response2(desc, await self._read(caller, desc))

    async def start_receive_by_lookup_id(
        self, caller: Caller, request: qm2qm.StartReceiveByLookupIdRequest
    ) -> StartReceive2Response:
        """Answer RemoteQMStartReceiveByLookupId, 3.1.4.11: read the named message."""
        desc = request.desc2.remote_read_desc
        if desc is None:
            return StartReceive2Response(desc2=request.desc2, status=ErrorCode.MQ_ERROR_INVALID_HANDLE)
        return _response2(desc, await self._read_by_lookup_id(caller, desc, request.lookup_id))

    async def _read(self, caller: Caller, desc: RemoteReadDesc) -> _Read:
        if not desc.queue or desc.queue != desc.remote_queue:
            return _Read(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        queue = self._queues.of_owner(desc.remote_queue, caller)
        if queue is not None and desc.request_id in queue.reads:
            return _Read(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        if not desc.cursor and desc.action == Action.MQ_ACTION_PEEK_NEXT:
            return _Read(STATUS_INVALID_PARAMETER)
        if queue is None:
            return _Read(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        cursor = queue.cursors.get(desc.cursor) if desc.cursor else None
        if desc.cursor and cursor is None:
            return _Read(STATUS_INVALID_PARAMETER)
        work = _work_of(queue, cursor, desc)
        if work is None:
            return _Read(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        return await self._wait(caller, queue, desc, work, locks=desc.action == Action.MQ_ACTION_RECEIVE)

    async def _read_by_lookup_id(self, caller: Caller, desc: RemoteReadDesc, lookup_id: int) -> _Read:
        found = _LOOKUPS.get(desc.action)
        if not desc.remote_queue or desc.timeout or desc.cursor or found is None:
            return _Read(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        locks, seek = found
        if seek != "next" and lookup_id == 0:
            return _Read(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        queue = self._queues.of_owner(desc.remote_queue, caller)
        if queue is None or desc.request_id in queue.reads:
            return _Read(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        if seek == "next" and lookup_id == _FIRST:
            seek = "first"
        elif seek == "prev" and lookup_id == _LAST:
            seek = "last"
        # The section removes the message at once, even if it is lost on its way: here it is locked first, too.
        descriptor = queue.descriptor
        read = descriptor.receive_begin_by_lookup_id if locks else descriptor.peek_by_lookup_id
        return await self._wait(caller, queue, desc, read(lookup_id, seek), locks=locks)

    async def _wait(
        self, caller: Caller, queue: RemoteQueue, desc: RemoteReadDesc, work: Awaitable[Message], *, locks: bool
    ) -> _Read:
        task = asyncio.current_task()
        assert task is not None
        entry = RemoteReadEntry(queue, desc.request_id, task)
        queue.reads[entry.request_id] = entry
        try:
            message = await work
        except MessageQueuingError as error:
            return _Read(int(error.code))
        except asyncio.CancelledError:
            if not entry.cancelled:
                raise
            task.uncancel()
            return _Read(CANCELED_BY_CLIENT)
        finally:
            if queue.reads.get(entry.request_id) is entry:
                del queue.reads[entry.request_id]
        entry.lookup_identifier = message.lookup_identifier
        size = len(stored_value(message)) - PREFIX_SIZE
        full = locks and caller.association.held and caller.association.held + size > self._held_bytes
        if size > MAXIMUM_BUFFER or full:
            if locks:
                entry.give_back()
            return _Read(ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES if full else ErrorCode.MQ_ERROR_BUFFER_OVERFLOW)
        if not locks:
            return _Read(MQ_OK, NULL_CONTEXT_HANDLE, message)
        entry.hold(caller.association, size)
        try:
            handle = caller.association.handles.create(entry, caller.principal, entry.give_back)
        except BaseException:
            entry.give_back()
            raise
        return _Read(MQ_OK, handle, message)

    async def end_receive(self, caller: Caller, request: qm2qm.EndReceiveRequest) -> qm2qm.ContextResponse:
        """Answer RemoteQMEndReceive, 3.1.4.2: delete or unlock the message."""
        handles = caller.association.handles
        entry = handles.get(request.context, RemoteReadEntry, caller.principal)
        if entry is None:
            return qm2qm.ContextResponse(status=ErrorCode.MQ_ERROR_INVALID_HANDLE)
        handles.close(request.context)
        entry.release()
        delete = request.ack == RemoteReadAck.RR_ACK
        try:
            await entry.queue.descriptor.receive_end(entry.lookup_identifier, delete)
        except MessageQueuingError as error:
            return qm2qm.ContextResponse(status=int(error.code))
        return qm2qm.ContextResponse(status=MQ_OK)

    async def cancel_receive(self, caller: Caller, request: qm2qm.CancelReceiveRequest) -> Status:
        """Answer RemoteQMCancelReceive, 3.1.4.6: end a waiting read."""
        if not request.p_queue or request.p_queue != request.h_queue:
            return Status(status=ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        queue = self._queues.of_client(request.h_queue, caller)
        if queue is None or not queue.reads:
            return Status(status=ErrorCode.MQ_ERROR_INVALID_HANDLE)
        entry = queue.reads.get(request.request_id)
        if entry is None:
            return Status(status=ErrorCode.MQ_ERROR)
        if entry.cancelled:
            return Status(status=STATUS_NOT_FOUND)
        entry.cancel()
        return Status(status=MQ_OK)

    # Queues and cursors

    async def open_queue(self, caller: Caller, request: qm2qm.OpenQueueRequest) -> qm2qm.ContextResponse:
        """Answer RemoteQMOpenQueue, 3.1.4.3.

        The section accepts any caller that knows the number. Here the caller must have opened the queue, or be allowed
        to read it itself; and a queue has one owner.
        """
        if not request.p_queue or request.p_queue != request.context:
            return qm2qm.ContextResponse(status=ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        queue = self._queues.find(request.context)
        if queue is None or not await self._identities.may_use(caller, queue):
            return qm2qm.ContextResponse(status=ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        if queue.state is not RemoteReadState.OPENED or self._queues.find(request.context) is not queue:
            return qm2qm.ContextResponse(status=ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        entry = OpenQueueEntry(queue, Guid(request.license_guid))
        handle = caller.association.handles.create(entry, caller.principal, lambda: self._queues.close(queue))
        queue.state, queue.owner, queue.principal = RemoteReadState.READY_FOR_READ, caller.association, caller.principal
        return qm2qm.ContextResponse(context=handle, status=MQ_OK)

    async def close_queue(self, caller: Caller, request: qm2qm.CloseQueueRequest) -> qm2qm.ContextResponse:
        """Answer RemoteQMCloseQueue, 3.1.4.4: close the caller's queue."""
        handles = caller.association.handles
        entry = handles.get(request.context, OpenQueueEntry, caller.principal)
        if entry is None:
            return qm2qm.ContextResponse(status=ErrorCode.MQ_ERROR_INVALID_HANDLE)
        handles.close(request.context)
        self._queues.close(entry.queue)
        return qm2qm.ContextResponse(status=MQ_OK)

    async def close_cursor(self, caller: Caller, request: qm2qm.CloseCursorRequest) -> Status:
        """Answer RemoteQMCloseCursor, 3.1.4.5: close one cursor."""
        queue = self._queues.of_owner(request.queue, caller)
        cursor = queue.cursors.pop(request.cursor, None) if queue is not None else None
        if cursor is None:
            return Status(status=ErrorCode.MQ_ERROR_INVALID_HANDLE)
        await cursor.close()
        return Status(status=MQ_OK)

    async def purge_queue(self, caller: Caller, request: qm2qm.PurgeQueueRequest) -> Status:
        """Answer RemoteQMPurgeQueue, 3.1.4.7: delete all messages."""
        queue = self._queues.of_owner(request.queue, caller)
        if queue is None:
            return Status(status=ErrorCode.MQ_ERROR_INVALID_HANDLE)
        try:
            await queue.descriptor.purge()
        except MessageQueuingError as error:
            return Status(status=int(error.code))
        log.info("a queue was purged remotely", queue=queue.descriptor.queue.pathname, peer=caller.peer,
                 who=caller.principal)  # fmt: skip
        return Status(status=MQ_OK)

    # The server

    async def get_server_port(self, caller: Caller, request: qm2qm.ServerPortRequest) -> Status:
        """Answer RemoteQMGetQMQMServerPort, 3.1.4.8: one port serves all interfaces; there is none over SPX."""
        return Status(status=self._port() if request.port_type in _SERVER_PORTS else 0)

    async def get_version(self, caller: Caller, request: qm2qm.GetVersionRequest) -> qm2qm.GetVersionResponse:
        """Answer RemoteQmGetVersion, 3.1.4.9, with ``VERSION``."""
        major, minor, build_number = VERSION
        return qm2qm.GetVersionResponse(major=major, minor=minor, build_number=build_number)


def _work_of(queue: RemoteQueue, cursor: Cursor | None, desc: RemoteReadDesc) -> Awaitable[Message] | None:
    """The data model's event for an action; None if the action is none of these."""
    timeout = None if desc.timeout == INFINITE else desc.timeout / 1000
    match desc.action:
        case Action.MQ_ACTION_RECEIVE:
            return (cursor or queue.descriptor).receive_begin(timeout)
        case Action.MQ_ACTION_PEEK_CURRENT:
            return (cursor or queue.descriptor).peek(timeout)
        case Action.MQ_ACTION_PEEK_NEXT if cursor is not None:
            return cursor.peek_next(timeout)
        case _:
            return None


def _answered(desc: RemoteReadDesc, message: Message | None) -> RemoteReadDesc:
    """The description for the response: with the packet as stored, and its arrival time in the queue."""
    desc.reserved = _RETURNED_BY_SERVER
    desc.buffer = None
    if message is not None:
        value = stored_value(message)
        desc.buffer = value[PREFIX_SIZE:]
        desc.arrive_time = PREFIX.unpack_from(value)[-1] // 1_000_000 & 0xFFFFFFFF
    return desc


def _response2(desc: RemoteReadDesc, read: _Read) -> StartReceive2Response:
    sequential_id = read.message.lookup_identifier & _SEQUENTIAL_ID if read.message is not None else 0
    desc2 = RemoteReadDesc2(remote_read_desc=_answered(desc, read.message), sequential_id=sequential_id)
    return StartReceive2Response(context=read.context, desc2=desc2, status=read.status)
