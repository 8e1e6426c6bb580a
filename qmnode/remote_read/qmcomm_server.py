"""The server side of qmcomm: the methods of MS-MQMP 3.1.4 that open a remote queue and its cursors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import structlog

from qmnode.dcerpc.ndr import NULL_CONTEXT_HANDLE
from qmnode.dcerpc.server import Caller, Service, service
from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access, Share
from qmnode.remote_read import qmcomm
from qmnode.remote_read.qm2qm import PortType, Status
from qmnode.remote_read.server_reads import RemoteOpenContext, RemoteQueue, RemoteQueues, RemoteReadState
from qmnode.structures.error_codes import ErrorCode

if TYPE_CHECKING:
    from qmnode.remote_read.server_reads import Identities, RemoteOpening

log = structlog.get_logger(__name__)

STATUS_SHARING_VIOLATION: Final = 0xC0000043
"""The status for MQ_ERROR_SHARING_VIOLATION in MS-MQMP 3.1.4.2."""
_ACCESS: Final = {int(one): one for one in (Access.RECEIVE, Access.PEEK)}


class QmcommServer:
    """Opens queues of this queue manager for remote readers."""

    def __init__(
        self, opening: RemoteOpening, queues: RemoteQueues, identities: Identities, port: Callable[[], int]
    ) -> None:
        self._opening = opening
        self._queues = queues
        self._identities = identities
        self._port = port

    def service(self) -> Service:
        """The interface with its handlers."""
        return service(
            qmcomm.QMCOMM,
            {
                qmcomm.OPEN_REMOTE_QUEUE: self.open_remote_queue,
                qmcomm.CLOSE_REMOTE_QUEUE_CONTEXT: self.close_remote_queue_context,
                qmcomm.CREATE_REMOTE_CURSOR: self.create_remote_cursor,
                qmcomm.GET_SERVER_PORT: self.get_server_port,
            },
            dict.fromkeys(qmcomm.SUPPORTING_SERVER_ONLY, ErrorCode.MQ_ERROR_ILLEGAL_OPERATION),
        )

    async def open_remote_queue(
        self, caller: Caller, request: qmcomm.OpenRemoteQueueRequest
    ) -> qmcomm.OpenRemoteQueueResponse:
        """Answer R_QMOpenRemoteQueue, 3.1.4.2, with the number of the queue."""
        try:
            queue = await self._open(caller, request)
        except MessageQueuingError as error:
            log.info("a remote queue was not opened", peer=caller.peer, who=caller.principal, reason=str(error))
            status = int(error.code)
            if error.code == ErrorCode.MQ_ERROR_SHARING_VIOLATION:
                status = STATUS_SHARING_VIOLATION
            return qmcomm.OpenRemoteQueueResponse(status=status)
        context = RemoteOpenContext(queue)
        try:
            handle = caller.association.handles.create(context, caller.principal, lambda: self._close_context(context))
        except BaseException:
            self._queues.close(queue)
            raise
        return qmcomm.OpenRemoteQueueResponse(
            handle=handle, context=queue.number, p_queue=queue.number, h_queue=queue.number, status=0
        )

    async def _open(self, caller: Caller, request: qmcomm.OpenRemoteQueueRequest) -> RemoteQueue:
        access = _ACCESS.get(request.desired_access)
        if access is None or request.share_mode not in (Share.DENY_NONE, Share.DENY_RECEIVE):
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_UNSUPPORTED_ACCESS_MODE,
                f"access {request.desired_access:#x} with share mode {request.share_mode}: a remote queue is only read",
            )
        return await self._opening.open(caller, request.queue_format, access, Share(request.share_mode))

    def _close_context(self, context: RemoteOpenContext) -> None:
        if context.queue.state is RemoteReadState.OPENED:
            self._queues.close(context.queue)

    async def close_remote_queue_context(
        self, caller: Caller, request: qmcomm.CloseRemoteQueueContext
    ) -> qmcomm.CloseRemoteQueueContext:
        """Answer R_QMCloseRemoteQueueContext, 3.1.4.3. A queue that is being read stays open."""
        context = caller.association.handles.get(request.handle, RemoteOpenContext, caller.principal)
        if context is not None:
            caller.association.handles.close(request.handle)
            self._close_context(context)
        return qmcomm.CloseRemoteQueueContext(handle=NULL_CONTEXT_HANDLE)

    async def create_remote_cursor(
        self, caller: Caller, request: qmcomm.CreateRemoteCursorRequest
    ) -> qmcomm.CreateRemoteCursorResponse:
        """Answer R_QMCreateRemoteCursor, 3.1.4.4, with the number of the cursor."""
        queue = self._queues.find(request.queue)
        try:
            if queue is None or not await self._identities.may_use(caller, queue):
                raise MessageQueuingError(ErrorCode.MQ_ERROR_INVALID_HANDLE, "no such open queue")
            return qmcomm.CreateRemoteCursorResponse(cursor=self._queues.add_cursor(queue), status=0)
        except MessageQueuingError as error:
            return qmcomm.CreateRemoteCursorResponse(status=int(error.code))

    async def get_server_port(self, caller: Caller, request: qmcomm.ServerPortRequest) -> Status:
        """Answer R_QMGetRTQMServerPort, 3.1.4.24: one port serves all interfaces; there is none over SPX."""
        return Status(status=self._port() if request.ip in (PortType.IP_HANDSHAKE, PortType.IP_READ) else 0)
