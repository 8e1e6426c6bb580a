"""The server side of qm2qm: MS-MQQP 3.1.4. Every read is answered by a task of its own, so none delays another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from qmnode.dcerpc.ndr import NULL_CONTEXT_HANDLE
from qmnode.dcerpc.server import Caller, Service, service
from qmnode.errors import MessageQueuingError
from qmnode.model.stored_message import PREFIX_SIZE, without_dead_letter_header
from qmnode.remote_read import qm2qm
from qmnode.remote_read.message_packet import arrival_of
from qmnode.remote_read.qm2qm import (
    Action,
    PortType,
    RemoteReadAck,
    RemoteReadDesc,
    RemoteReadDesc2,
    StartReceive2Response,
    Status,
)
from qmnode.remote_read.server_reads import (
    MQ_OK,
    SEQUENTIAL_ID,
    OpenQueueEntry,
    Reads,
    RemoteQueue,
    RemoteQueues,
    RemoteReadEntry,
    RemoteReadState,
    by_lookup_id,
    by_position,
    locks,
)
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import Guid

if TYPE_CHECKING:
    from qmnode.model.message import Message
    from qmnode.remote_read.server_reads import Identities

log = structlog.get_logger(__name__)

STATUS_INVALID_PARAMETER: Final = 0xC000000D
CANCELED_BY_CLIENT: Final = 0x400E03E9
"""The status MQ_INFORMATION_REMOTE_CANCELED_BY_CLIENT, 3.1.4.6."""
VERSION: Final = (6, 1, 7601)
"""The version that RemoteQmGetVersion returns: 3.1.4.9 and its notes 22 to 24."""
_RETURNED_BY_SERVER: Final = 1
_SERVER_PORTS: Final = (PortType.IP_HANDSHAKE, PortType.IP_READ)


class _Read(NamedTuple):
    """The result of a read: the values that every StartReceive returns."""

    status: int
    context: bytes = NULL_CONTEXT_HANDLE
    lookup_identifier: int = 0
    value: bytes = b""
    """The stored value of the message; empty if there is none."""


class Qm2qmServer:
    """Lets other queue managers read the queues of this one."""

    def __init__(self, queues: RemoteQueues, identities: Identities, port: Callable[[], int], reads: Reads) -> None:
        self._reads = reads
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
            context=read.context, desc=_answered(request.desc, read.value), status=read.status
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
        work = by_position(queue, cursor, desc.action, desc.timeout)
        if work is None:
            return _Read(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        return await self._wait(caller, queue, desc, work)

    async def _read_by_lookup_id(self, caller: Caller, desc: RemoteReadDesc, lookup_id: int) -> _Read:
        if not desc.remote_queue or desc.timeout or desc.cursor:
            return _Read(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        queue = self._queues.of_owner(desc.remote_queue, caller)
        if queue is None or desc.request_id in queue.reads:
            return _Read(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        work = by_lookup_id(queue, lookup_id, desc.action)
        if work is None:
            return _Read(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        return await self._wait(caller, queue, desc, work)

    async def _wait(self, caller: Caller, queue: RemoteQueue, desc: RemoteReadDesc, work: Awaitable[Message]) -> _Read:
        read = await self._reads.read(
            caller, queue, desc.request_id, work, locks=locks(desc.action), cancelled=CANCELED_BY_CLIENT
        )
        entry = read.entry
        if entry is None:
            return _Read(read.status, NULL_CONTEXT_HANDLE, read.lookup_identifier, read.value)
        try:
            handle = caller.association.handles.create(entry, caller.principal, entry.give_back)
        except BaseException:
            entry.give_back()
            raise
        return _Read(MQ_OK, handle, read.lookup_identifier, read.value)

    async def end_receive(self, caller: Caller, request: qm2qm.EndReceiveRequest) -> qm2qm.ContextResponse:
        """Answer RemoteQMEndReceive, 3.1.4.2: delete or unlock the message."""
        handles = caller.association.handles
        entry = handles.get(request.context, RemoteReadEntry, caller.principal)
        if entry is None:
            return qm2qm.ContextResponse(status=ErrorCode.MQ_ERROR_INVALID_HANDLE)
        handles.close(request.context)
        return qm2qm.ContextResponse(status=await self._reads.end(entry, delete=request.ack == RemoteReadAck.RR_ACK))

    async def cancel_receive(self, caller: Caller, request: qm2qm.CancelReceiveRequest) -> Status:
        """Answer RemoteQMCancelReceive, 3.1.4.6: end a waiting read."""
        if not request.p_queue or request.p_queue != request.h_queue:
            return Status(status=ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        queue = self._queues.of_client(request.h_queue, caller)
        if queue is None or not queue.reads:
            return Status(status=ErrorCode.MQ_ERROR_INVALID_HANDLE)
        return Status(status=self._reads.cancel(queue, request.request_id))

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


def _answered(desc: RemoteReadDesc, value: bytes) -> RemoteReadDesc:
    """The description for the response: with the packet as stored, and its arrival time in the queue."""
    desc.reserved = _RETURNED_BY_SERVER
    desc.buffer = None
    if value:
        desc.buffer = without_dead_letter_header(value)[PREFIX_SIZE:]
        desc.arrive_time = arrival_of(value)
    return desc


def _response2(desc: RemoteReadDesc, read: _Read) -> StartReceive2Response:
    sequential_id = read.lookup_identifier & SEQUENTIAL_ID
    desc2 = RemoteReadDesc2(remote_read_desc=_answered(desc, read.value), sequential_id=sequential_id)
    return StartReceive2Response(context=read.context, desc2=desc2, status=read.status)
