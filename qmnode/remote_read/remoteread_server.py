"""The server side of RemoteRead: MS-MQRR 3.1.4. Every read is answered by a task of its own, so none delays another.

Transactions of other machines need MS-DTCO, which a node does not speak: enlistment is refused, and so no other
operation finds a transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import structlog

from qmnode.dcerpc.errors import RpcFault
from qmnode.dcerpc.server import Answer, Caller, Service, service
from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access, Share
from qmnode.remote_read import remoteread
from qmnode.remote_read.message_packet import arrival_of, message_packet, sections_of
from qmnode.remote_read.qm2qm import Action, ContextResponse, RemoteReadAck, Status
from qmnode.remote_read.remoteread import NO_TRANSACTION, StartReceiveResponse
from qmnode.remote_read.server_reads import (
    LOOKUPS,
    MQ_OK,
    SEQUENTIAL_ID,
    QueueContext,
    Read,
    Reads,
    RemoteQueue,
    RemoteQueues,
    RemoteReadState,
    by_lookup_id,
    by_position,
    locks,
)
from qmnode.structures.error_codes import ErrorCode

if TYPE_CHECKING:
    from qmnode.dcerpc.acceptor import Called
    from qmnode.remote_read.server_reads import RemoteOpening

log = structlog.get_logger(__name__)

STATUS_INVALID_HANDLE: Final = 0xC0000008
STATUS_INVALID_PARAMETER: Final = 0xC000000D
STATUS_ACCESS_DENIED: Final = 0xC0000022
_ACCESS: Final = {int(one): one for one in (Access.RECEIVE, Access.PEEK)}
_NOTHING: Final = StartReceiveResponse(status=ErrorCode.MQ_ERROR_IO_TIMEOUT)
_RECEIVE: Final = Action.MQ_ACTION_RECEIVE.value
_ACK: Final = RemoteReadAck.RR_ACK.value
_ACKS: Final = (_ACK, RemoteReadAck.RR_NACK.value)
_PEEKS: Final = {
    Action.MQ_ACTION_PEEK_CURRENT,
    Action.MQ_ACTION_PEEK_NEXT,
    *(action for action, (removes, _) in LOOKUPS.items() if not removes),
}


class RemoteReadInterface:
    """Lets other queue managers read the queues of this one, in one interface."""

    def __init__(
        self, opening: RemoteOpening, queues: RemoteQueues, port: Callable[[], int], reads: Reads, patience: float
    ) -> None:
        """``patience``: seconds in which a client must end the read of a message that it was sent."""
        self._opening = opening
        self._queues = queues
        self._port = port
        self._reads = reads
        self._patience = patience

    def service(self) -> Service:
        return service(
            remoteread.REMOTE_READ,
            {
                remoteread.GET_SERVER_PORT: self.get_server_port,
                remoteread.OPEN_QUEUE: self.open_queue,
                remoteread.CLOSE_QUEUE: self.close_queue,
                remoteread.CREATE_CURSOR: self.create_cursor,
                remoteread.CLOSE_CURSOR: self.close_cursor,
                remoteread.PURGE_QUEUE: self.purge_queue,
                remoteread.START_RECEIVE: self.start_receive,
                remoteread.CANCEL_RECEIVE: self.cancel_receive,
                remoteread.END_RECEIVE: self.end_receive,
                remoteread.MOVE_MESSAGE: self.move_message,
                remoteread.OPEN_QUEUE_FOR_MOVE: self.open_queue_for_move,
                remoteread.ENLIST_REMOTE_TRANSACTION: self.enlist_remote_transaction,
                remoteread.START_TRANSACTIONAL_RECEIVE: self.start_transactional_receive,
                remoteread.SET_USER_ACKNOWLEDGEMENT_CLASS: self.set_user_acknowledgement_class,
                remoteread.END_TRANSACTIONAL_RECEIVE: self.end_receive,
            },
            at_once={
                remoteread.START_RECEIVE: self.receive_at_once,
                remoteread.END_RECEIVE: self.end_at_once,
                remoteread.END_TRANSACTIONAL_RECEIVE: self.end_at_once,
            },
        )

    async def get_server_port(self, caller: Caller, request: remoteread.GetServerPortRequest) -> Status:
        """Answer R_GetServerPort, 3.1.4.1: one port serves all interfaces."""
        return Status(status=self._port())

    # Queues and cursors

    async def open_queue(self, caller: Caller, request: remoteread.OpenQueueRequest) -> remoteread.OpenQueueResponse:
        """Answer R_OpenQueue, 3.1.4.2. A failure is a fault with its HRESULT."""
        _, handle = await self._open(caller, request, _ACCESS.get(request.access))
        return remoteread.OpenQueueResponse(context=handle)

    async def open_queue_for_move(
        self, caller: Caller, request: remoteread.OpenQueueRequest
    ) -> remoteread.OpenQueueForMoveResponse:
        """Answer R_OpenQueueForMove, 3.1.4.11. A subqueue that does not exist is created."""
        move = Access.MOVE if request.access == Access.MOVE else None
        context, handle = await self._open(caller, request, move)
        return remoteread.OpenQueueForMoveResponse(move_context=context.move_context, context=handle)

    async def _open(
        self, caller: Caller, request: remoteread.OpenQueueRequest, access: Access | None
    ) -> tuple[QueueContext, bytes]:
        try:
            if access is None or request.share_mode not in (Share.DENY_NONE, Share.DENY_RECEIVE):
                raise MessageQueuingError(
                    ErrorCode.MQ_ERROR_INVALID_PARAMETER, f"access {request.access:#x}, share mode {request.share_mode}"
                )
            queue = await self._opening.open(caller, request.queue_format, access, Share(request.share_mode))
        except MessageQueuingError as error:
            log.info("a remote queue was not opened", peer=caller.peer, who=caller.principal, reason=str(error))
            raise RpcFault(int(error.code), error.sentence) from None
        context = QueueContext(queue)
        try:
            handle = caller.association.handles.create(context, caller.principal, lambda: self._close(context))
        except BaseException:
            self._queues.close(queue)
            raise
        queue.state, queue.owner, queue.principal = RemoteReadState.READY_FOR_READ, caller.association, caller.principal
        return context, handle

    def _close(self, context: QueueContext) -> None:
        context.forget_pending()
        self._queues.close(context.queue)

    async def close_queue(self, caller: Caller, request: remoteread.ContextRequest) -> ContextResponse:
        """Answer R_CloseQueue, 3.1.4.3: messages whose reads have not ended return to their places."""
        context = _context_of(caller, request.context)
        if context is None:
            return ContextResponse(status=ErrorCode.MQ_ERROR_INVALID_HANDLE)
        caller.association.handles.close(request.context)
        self._close(context)
        return ContextResponse(status=MQ_OK)

    async def create_cursor(
        self, caller: Caller, request: remoteread.ContextRequest
    ) -> remoteread.CreateCursorResponse:
        """Answer R_CreateCursor, 3.1.4.4, with the number of the cursor."""
        context = _context_of(caller, request.context)
        if context is None:
            return remoteread.CreateCursorResponse(status=ErrorCode.MQ_ERROR_INVALID_HANDLE)
        try:
            return remoteread.CreateCursorResponse(cursor=self._queues.add_cursor(context.queue), status=MQ_OK)
        except MessageQueuingError as error:
            return remoteread.CreateCursorResponse(status=int(error.code))

    async def close_cursor(self, caller: Caller, request: remoteread.CloseCursorRequest) -> Status:
        """Answer R_CloseCursor, 3.1.4.5: close one cursor."""
        context = _context_of(caller, request.context)
        cursor = context.queue.cursors.pop(request.cursor, None) if context is not None else None
        if cursor is None:
            return Status(status=ErrorCode.MQ_ERROR_INVALID_HANDLE)
        await cursor.close()
        return Status(status=MQ_OK)

    async def purge_queue(self, caller: Caller, request: remoteread.ContextRequest) -> Status:
        """Answer R_PurgeQueue, 3.1.4.6: delete all messages."""
        context = _context_of(caller, request.context)
        if context is None:
            return Status(status=ErrorCode.MQ_ERROR_INVALID_HANDLE)
        descriptor = context.queue.descriptor
        if descriptor.access != Access.RECEIVE:
            return Status(status=STATUS_ACCESS_DENIED)
        try:
            await descriptor.purge()
        except MessageQueuingError as error:
            return Status(status=int(error.code))
        log.info("a queue was purged remotely", queue=descriptor.queue.pathname, peer=caller.peer, who=caller.principal)
        return Status(status=MQ_OK)

    # Reads

    async def start_receive(
        self,
        caller: Caller,
        request: remoteread.StartReceiveRequest | remoteread.StartTransactionalReceiveRequest,
    ) -> StartReceiveResponse:
        """Answer R_StartReceive, 3.1.4.7: peek, or lock for a receive."""
        context = _context_of(caller, request.context)
        if context is None:
            return StartReceiveResponse(status=ErrorCode.MQ_ERROR_INVALID_HANDLE)
        queue = context.queue
        if request.request_id in queue.reads or request.request_id in context.pending:
            return StartReceiveResponse(status=ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        cursor = queue.cursors.get(request.cursor) if request.cursor else None
        if request.action in LOOKUPS:
            outside = request.cursor or request.timeout
            work = None if outside else by_lookup_id(queue, request.lookup_id, request.action)
        elif request.cursor and cursor is None:
            return StartReceiveResponse(status=STATUS_INVALID_HANDLE)
        else:
            work = None if request.lookup_id else by_position(queue, cursor, request.action, request.timeout)
        if work is None:
            return StartReceiveResponse(status=ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        read = await self._reads.read(caller, queue, request.request_id, work, locks=locks(request.action))
        if read.entry is not None:
            context.expect_end(read.entry, self._patience)
        return _answer(queue, read, request.max_body_size)

    def receive_at_once(self, caller: Caller, call: Called) -> Answer | None:
        """Answer R_StartReceive, 3.1.4.7, if it receives the first message, and need not wait for one."""
        form, representation = remoteread.StartReceiveRequest.form(call.written), call.representation
        if form is None or len(call.stub) < form.size:
            return None
        handle, lookup_id, cursor, action, timeout, number, largest_body, _ = form.unpack_from(call.stub)
        if action != _RECEIVE or cursor or lookup_id:
            return None
        context = _context_of(caller, handle)
        if context is None:
            return None
        queue = context.queue
        if number in queue.reads or number in context.pending:
            return None
        try:
            begun = self._reads.read_at_once(caller, queue, number)
        except MessageQueuingError as error:
            return Answer(_not_read(error).encode(representation), None, _not_read)
        if begun is None:
            return None if timeout else Answer(_NOTHING.encode(representation), None, _not_read)
        read, write = begun
        if read.entry is None:
            return Answer(_answer(queue, read, largest_body).encode(representation), None, _not_read)
        context.expect_end(read.entry, self._patience)
        packet = message_packet(read.value, _subqueue_of(queue))
        if len(packet) > largest_body:
            return Answer(_answer(queue, read, largest_body).encode(representation), write, _not_read)
        sequence_id = read.lookup_identifier & SEQUENTIAL_ID
        stub = remoteread.write_one_section(arrival_of(read.value), sequence_id, packet, representation)
        return Answer(stub, write, _not_read)

    async def start_transactional_receive(
        self, caller: Caller, request: remoteread.StartTransactionalReceiveRequest
    ) -> StartReceiveResponse:
        """Answer R_StartTransactionalReceive, 3.1.4.13: outside a transaction it is R_StartReceive."""
        if request.transaction_id == NO_TRANSACTION:
            return await self.start_receive(caller, request)
        context = _context_of(caller, request.context)
        if context is None:
            return StartReceiveResponse(status=ErrorCode.MQ_ERROR_INVALID_HANDLE)
        if not context.queue.descriptor.queue.transactional or request.action in _PEEKS:
            return StartReceiveResponse(status=ErrorCode.MQ_ERROR_TRANSACTION_USAGE)
        # The section creates a transaction that nobody commits. Here it is as unknown as to R_MoveMessage.
        return StartReceiveResponse(status=ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE)

    async def end_receive(self, caller: Caller, request: remoteread.EndReceiveRequest) -> Status:
        """Answer R_EndReceive when the client has read other answers."""
        status, write = self._end(caller, request.context, request.ack, request.request_id)
        if write is not None:
            try:
                await write
            except MessageQueuingError as error:
                return _not_ended(error)
        return Status(status=status)

    def end_at_once(self, caller: Caller, call: Called) -> Answer | None:
        """Answer R_EndReceive, 3.1.4.9, and R_EndTransactionalReceive, 3.1.4.15, in a series of them."""
        form = remoteread.EndReceiveRequest.form(call.written)
        if form is None or len(call.stub) < form.size:
            return None
        handle, ack, number = form.unpack_from(call.stub)
        if ack not in _ACKS:
            return None
        status, write = self._end(caller, handle, ack, number)
        return Answer(Status(status=status).encode(call.representation), write, _not_ended)

    def _end(self, caller: Caller, handle: bytes, ack: int, number: int) -> tuple[int, asyncio.Future[None] | None]:
        """Delete or unlock the message of a read: the status, and the write that must succeed before.

        R_EndTransactionalReceive ends reads that R_StartTransactionalReceive began, all of them outside transactions.
        """
        context = _context_of(caller, handle)
        if context is None or not context.pending:
            return ErrorCode.MQ_ERROR_INVALID_HANDLE, None
        entry = context.pending.pop(number, None)
        if entry is None:
            return ErrorCode.MQ_ERROR_INVALID_PARAMETER, None
        try:
            return MQ_OK, self._reads.begin_end(entry, delete=ack == _ACK)
        except MessageQueuingError as error:
            return error.code, None

    async def cancel_receive(self, caller: Caller, request: remoteread.CancelReceiveRequest) -> Status:
        """Answer R_CancelReceive, 3.1.4.8: end a waiting read."""
        context = _context_of(caller, request.context)
        if context is None:
            return Status(status=ErrorCode.MQ_ERROR_INVALID_HANDLE)
        return Status(status=self._reads.cancel(context.queue, request.request_id))

    # Moves, and transactions of other machines

    async def move_message(self, caller: Caller, request: remoteread.MoveMessageRequest) -> Status:
        """Answer R_MoveMessage, 3.1.4.10: move between a queue and its subqueues."""
        source = _context_of(caller, request.context_from)
        if source is None:
            return Status(status=ErrorCode.MQ_ERROR_INVALID_HANDLE)
        target = _move_target(caller, request.context_to)
        if target is None:
            return Status(status=ErrorCode.MQ_ERROR_INVALID_HANDLE)
        descriptor, into = source.queue.descriptor, target.queue.descriptor
        if request.transaction_id != NO_TRANSACTION:
            unknown = ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE
            return Status(status=unknown if into.queue.transactional else ErrorCode.MQ_ERROR_TRANSACTION_USAGE)
        position = descriptor.queue.locked.get(request.lookup_id)
        if position is not None and position.transaction is not None:
            return Status(status=ErrorCode.MQ_ERROR_MESSAGE_LOCKED_UNDER_TRANSACTION)
        try:
            await descriptor.move(request.lookup_id, into)
        except MessageQueuingError as error:
            unrelated = error.code == ErrorCode.MQ_ERROR_INVALID_PARAMETER
            return Status(status=STATUS_INVALID_PARAMETER if unrelated else int(error.code))
        return Status(status=MQ_OK)

    async def enlist_remote_transaction(
        self, caller: Caller, request: remoteread.EnlistRemoteTransactionRequest
    ) -> Status:
        """Refuse R_QMEnlistRemoteTransaction, 3.1.4.12: a node has no transaction coordinator (MS-DTCO)."""
        log.info("a transaction of another machine was refused: a node has no transaction coordinator",
                 peer=caller.peer, who=caller.principal)  # fmt: skip
        return Status(status=ErrorCode.MQ_ERROR_TRANSACTION_ENLIST)

    async def set_user_acknowledgement_class(
        self, caller: Caller, request: remoteread.SetUserAcknowledgementClassRequest
    ) -> Status:
        """Answer R_SetUserAcknowledgementClass, 3.1.4.14: no message is in a transaction of the caller."""
        context = _context_of(caller, request.context)
        if context is None:
            return Status(status=ErrorCode.MQ_ERROR_INVALID_HANDLE)
        queue = context.queue.descriptor.queue
        if request.lookup_id not in queue.locked and queue.value_of(request.lookup_id) is None:
            return Status(status=ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND)
        return Status(status=ErrorCode.MQ_ERROR_TRANSACTION_USAGE)


def _not_read(error: Exception) -> StartReceiveResponse:
    return StartReceiveResponse(status=_code_of(error))


def _not_ended(error: Exception) -> Status:
    return Status(status=_code_of(error))


def _code_of(error: Exception) -> int:
    return int(error.code if isinstance(error, MessageQueuingError) else ErrorCode.MQ_ERROR)


def _context_of(caller: Caller, handle: bytes) -> QueueContext | None:
    """The open queue of a handle; None for the null handle. A handle of another caller is a fault."""
    return caller.association.handles.get(handle, QueueContext, caller.principal)


def _move_target(caller: Caller, move_context: int) -> QueueContext | None:
    """The queue that the caller's association opened with R_OpenQueueForMove."""
    for one in caller.association.handles.of_kind(QueueContext, caller.principal):
        if one.move_context == move_context and one.queue.descriptor.access == Access.MOVE:
            return one
    return None


def _subqueue_of(queue: RemoteQueue) -> str:
    """The name of a subqueue; empty for any other queue."""
    found = queue.descriptor.queue
    return found.pathname.rpartition(";")[2] if found.parent is not None and not found.is_journal else ""


def _answer(queue: RemoteQueue, read: Read, largest_body: int) -> StartReceiveResponse:
    if not read.value:
        return StartReceiveResponse(status=read.status)
    return StartReceiveResponse(
        arrive_time=arrival_of(read.value),
        sequence_id=read.lookup_identifier & SEQUENTIAL_ID,
        sections=sections_of(read.value, _subqueue_of(queue), largest_body),
        status=read.status,
    )
