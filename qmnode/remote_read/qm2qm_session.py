"""One queue read over qm2qm: MS-MQQP 3.2.4. Its cursors are created through qmcomm."""

from __future__ import annotations

import asyncio
from typing import Any

from qmnode.dcerpc.ndr import NULL_CONTEXT_HANDLE
from qmnode.errors import MessageQueuingError
from qmnode.model.stored_message import TransferredMessage
from qmnode.remote_read import qm2qm, qmcomm
from qmnode.remote_read.message_packet import lookup_identifier
from qmnode.remote_read.qm2qm import QM2QM, Action, RemoteReadAck, RemoteReadDesc, RemoteReadDesc2
from qmnode.remote_read.qmcomm import QMCOMM
from qmnode.remote_read.read_session import Call, ReadPeer, ReadSession
from qmnode.remote_read.remote_errors import check_status, moves_unknown
from qmnode.remote_read.transfer_buffer import TransferBuffer
from qmnode.structures.error_codes import ErrorCode


class Qm2qmSession(ReadSession):
    """An open queue: its numbers and its PCTX_RRSESSION_HANDLE_TYPE."""

    def __init__(self, node: ReadPeer, handle: int, queue: int, context: bytes) -> None:
        self._node = node
        self.handle = handle
        """OpenQueueDescriptorHandle: hRemoteQueue and hQueue of every call."""
        self._queue = queue
        self._context = context

    @property
    def takes_lookup_ids(self) -> bool:  # type: ignore[override]
        """Whether the server has RemoteQMStartReceive2 and RemoteQMStartReceiveByLookupId."""
        return self._node.takes_lookup_ids

    def begin(self, call: Call) -> asyncio.Future[Any]:
        """Begin a call of this queue, and return the future of its response."""
        return self._node.reader.begin(QM2QM, *call)

    def start(self, request_id: int, action: Action, milliseconds: int = 0, cursor: int = 0) -> Call:
        """RemoteQMStartReceive2, or RemoteQMStartReceive with an old server."""
        desc = self._desc(request_id, action, milliseconds, cursor)
        if self.takes_lookup_ids:
            request = qm2qm.StartReceive2Request(desc2=RemoteReadDesc2(remote_read_desc=desc))
            return qm2qm.START_RECEIVE2, request
        return qm2qm.START_RECEIVE, qm2qm.StartReceiveRequest(desc=desc)

    def start_by_lookup_id(self, request_id: int, action: Action, lookup_id: int) -> Call:
        """RemoteQMStartReceiveByLookupId with a lookup identifier."""
        desc2 = RemoteReadDesc2(remote_read_desc=self._desc(request_id, action))
        request = qm2qm.StartReceiveByLookupIdRequest(lookup_id=lookup_id, desc2=desc2)
        return qm2qm.START_RECEIVE_BY_LOOKUP_ID, request

    def _desc(self, request_id: int, action: Action, milliseconds: int = 0, cursor: int = 0) -> RemoteReadDesc:
        return RemoteReadDesc(
            remote_queue=self.handle,
            queue=self._queue,
            cursor=cursor,
            action=action,
            timeout=milliseconds,
            request_id=request_id,
        )

    def transferred(self, response: Any) -> TransferredMessage:
        """The message of a successful response."""
        if isinstance(response, qm2qm.StartReceiveResponse):
            desc, sequential_id = response.desc, 0
        else:
            desc, sequential_id = response.desc2.remote_read_desc, response.desc2.sequential_id
        packet = (desc.buffer if desc is not None else None) or b""
        if desc is None or not packet:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR, f"{self._node.host} said that it sent a message, and sent none"
            )
        return TransferredMessage(lookup_identifier(packet, sequential_id), desc.arrive_time, 0, 0, packet)

    def key_of(self, request_id: int, action: Action, response: Any) -> bytes | None:
        """The context handle of the read."""
        context: bytes = response.context
        return None if context == NULL_CONTEXT_HANDLE else context

    def end(self, key: bytes, *, delete: bool) -> Call:
        """RemoteQMEndReceive for one read."""
        ack = RemoteReadAck.RR_ACK if delete else RemoteReadAck.RR_NACK
        return qm2qm.END_RECEIVE, qm2qm.EndReceiveRequest(context=key, ack=ack)

    def cancel(self, request_id: int) -> asyncio.Future[Any]:
        """Begin RemoteQMCancelReceive for one read."""
        request = qm2qm.CancelReceiveRequest(h_queue=self.handle, p_queue=self._queue, request_id=request_id)
        return self.begin((qm2qm.CANCEL_RECEIVE, request))

    async def create_cursor(self) -> int:
        """Create a cursor: R_QMCreateRemoteCursor, MS-MQMP 3.1.4.4."""
        request = qmcomm.CreateRemoteCursorRequest(buffer=TransferBuffer(), queue=self.handle)
        created = await self._node.call(QMCOMM, qmcomm.CREATE_REMOTE_CURSOR, request)
        check_status(created.status, self._node.host)
        cursor: int = created.cursor
        return cursor

    async def close_cursor(self, cursor: int) -> None:
        """Close a cursor: RemoteQMCloseCursor."""
        request = qm2qm.CloseCursorRequest(queue=self.handle, cursor=cursor)
        await self._node.call(QM2QM, qm2qm.CLOSE_CURSOR, request)

    async def move(self, lookup_id: int, target: ReadSession) -> int:
        """Refused: MS-MQQP has no moves."""
        raise moves_unknown(self._node.host)

    async def purge(self) -> int:
        """Delete all messages: RemoteQMPurgeQueue."""
        purged = await self._node.call(QM2QM, qm2qm.PURGE_QUEUE, qm2qm.PurgeQueueRequest(queue=self.handle))
        status: int = purged.status
        return status

    async def close(self) -> None:
        """Close the queue: RemoteQMCloseQueue."""
        await self._node.call(QM2QM, qm2qm.CLOSE_QUEUE, qm2qm.CloseQueueRequest(context=self._context))
