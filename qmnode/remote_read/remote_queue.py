"""An open queue of another queue manager: MS-MQQP 3.2.4. Read it like a local one.

A message is received in two steps: the server locks it and transfers it, then this side acknowledges it and owns it. A
failure in between leaves it, or puts it back, in its place. If the connection is lost during the acknowledgment, this
side cannot know whether it arrived: the message is returned to the caller, and may still be on the server.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final

from qmnode.dcerpc.client import ConnectionLostError
from qmnode.dcerpc.errors import RpcError
from qmnode.dcerpc.ndr import NULL_CONTEXT_HANDLE
from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access, CursorApi, InTransaction, QueueApi, Seek, Share
from qmnode.model.message import Message
from qmnode.model.packet import received_message, value_of_any_packet
from qmnode.model.packet_parts import PRIORITY
from qmnode.model.positions import LANE_SHIFT
from qmnode.remote_read import qm2qm, qmcomm
from qmnode.remote_read.qm2qm import INFINITE, QM2QM, Action, RemoteReadAck, RemoteReadDesc, RemoteReadDesc2
from qmnode.remote_read.qmcomm import QMCOMM
from qmnode.remote_read.remote_node import check_status, rpc_error
from qmnode.remote_read.transfer_buffer import TransferBuffer
from qmnode.structures.error_codes import ErrorCode

if TYPE_CHECKING:
    from qmnode.dcerpc.interface import Method
    from qmnode.dcerpc.ndr import Parameters
    from qmnode.remote_read.remote_node import RemoteNode

_LONGEST: Final = 0xFFFFFFFE
_AT_ONCE: Final = 32
"""Concurrent reads of one ``receive_many``."""
_LAST: Final = 0xFFFFFFFFFFFFFFFF
_GIVE_UP: Final = 10.0
"""Seconds in which the server must confirm the end of a cancelled read."""
_SEEKS: Final[dict[Seek, tuple[Action, Action]]] = {
    # Actions that peek and actions that receive.
    "current": (Action.MQ_LOOKUP_PEEK_CURRENT, Action.MQ_LOOKUP_RECEIVE_CURRENT),
    "next": (Action.MQ_LOOKUP_PEEK_NEXT, Action.MQ_LOOKUP_RECEIVE_NEXT),
    "first": (Action.MQ_LOOKUP_PEEK_NEXT, Action.MQ_LOOKUP_RECEIVE_NEXT),
    "prev": (Action.MQ_LOOKUP_PEEK_PREV, Action.MQ_LOOKUP_RECEIVE_PREV),
    "last": (Action.MQ_LOOKUP_PEEK_PREV, Action.MQ_LOOKUP_RECEIVE_PREV),
}


class _Read:
    """PendingRemoteReadEntry, 3.2.1.1: a message that has arrived, and the handle to end its read."""

    __slots__ = ("context", "message")

    def __init__(self, context: bytes, message: Message) -> None:
        self.context = context
        self.message = message


class RemoteReadQueue(QueueApi):
    """One queue of another queue manager, opened for reading."""

    def __init__(
        self, node: RemoteNode, format_name: str, access: Access, share: Share, handle: int, queue: int, session: bytes
    ) -> None:
        self.node = node
        self.format_name = format_name
        self.access = access
        self.share = share
        self.handle = handle
        """OpenQueueDescriptorHandle: hRemoteQueue and hQueue of every call."""
        self.pending: set[int] = set()
        """PendingRemoteReadEntryCollection, 3.2.1.2: the request identifiers of waiting reads."""
        self._queue = queue
        self._session = session
        self._begun: dict[int, _Read] = {}
        self._kept: deque[Message] = deque()
        """Messages acknowledged while their callers were cancelled: the next receives return them."""
        self._ending: set[asyncio.Task[None]] = set()
        self._open = True

    # Receiving

    async def receive(self, timeout: float | None = None, transaction: InTransaction = None) -> Message:
        """Receive a message, 3.2.4.3: RemoteQMStartReceive2, RemoteQMEndReceive."""
        _refuse_transaction(transaction)
        if self._kept:
            return self._kept.popleft()
        return await self._acknowledge(await self._start(Action.MQ_ACTION_RECEIVE, timeout))

    async def receive_many(
        self, limit: int, timeout: float | None = None, transaction: InTransaction = None
    ) -> list[Message]:
        """Receive up to ``limit`` available messages; each is acknowledged separately."""
        if limit < 1:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_INVALID_PARAMETER, "receive_many: the limit is at least 1")
        messages = [await self.receive(timeout, transaction)]
        try:
            while len(messages) < limit:
                wanted = min(_AT_ONCE, limit - len(messages))
                found = await self._receive_at_once(wanted)
                messages += found
                if len(found) < wanted:
                    break
        except asyncio.CancelledError:
            self._kept.extend(messages)
            raise
        except MessageQueuingError:
            pass  # the caller keeps received messages; the next call reports the error
        return messages

    async def _receive_at_once(self, wanted: int) -> list[Message]:
        tasks = [asyncio.ensure_future(self.receive(0)) for _ in range(wanted)]
        try:
            results = await asyncio.gather(*tasks, return_exceptions=True)
        except asyncio.CancelledError:
            results = await asyncio.gather(*tasks, return_exceptions=True)
            self._kept.extend(one for one in results if isinstance(one, Message))
            raise
        found = [one for one in results if isinstance(one, Message)]
        for one in results:
            if isinstance(one, BaseException) and not _is_empty(one) and not found:
                raise one
        return found

    async def receive_by_lookup_id(self, lookup_identifier: int, transaction: InTransaction = None) -> Message:
        """Receive by lookup identifier: RemoteQMStartReceiveByLookupId, RemoteQMEndReceive."""
        _refuse_transaction(transaction)
        return await self._acknowledge(await self._start_by_lookup_id(lookup_identifier, "current", take=True))

    async def receive_begin(self, timeout: float | None = None) -> Message:
        """The first step alone: finish with ``receive_end``."""
        if self._kept:
            read = _Read(NULL_CONTEXT_HANDLE, self._kept.popleft())
        else:
            read = await self._start(Action.MQ_ACTION_RECEIVE, timeout)
        self._begun[read.message.lookup_identifier] = read
        return read.message

    async def receive_end(self, lookup_identifier: int, delete: bool) -> None:
        """End the read: RemoteQMEndReceive. After MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE its outcome is unknown."""
        read = self._begun.pop(lookup_identifier, None)
        if read is None:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE, f"no receive_begin holds message {lookup_identifier:#x}"
            )
        if read.context == NULL_CONTEXT_HANDLE:
            if not delete:
                self._kept.appendleft(read.message)
            return
        ended = await self._call(qm2qm.END_RECEIVE, _end_of(read.context, RemoteReadAck.RR_ACK if delete else _NACK))
        check_status(ended.status, self.format_name)

    async def _acknowledge(self, read: _Read) -> Message:
        call = self.node.reader.begin(QM2QM, qm2qm.END_RECEIVE, _end_of(read.context, RemoteReadAck.RR_ACK))
        try:
            ended = await asyncio.shield(call)
        except ConnectionLostError:
            return read.message
        except RpcError as error:
            raise rpc_error(self.node.host, error) from error
        except asyncio.CancelledError:
            await self._see_to(self._keep(call, read.message))
            raise
        check_status(ended.status, self.format_name)
        return read.message

    async def _keep(self, call: asyncio.Future[Any], message: Message) -> None:
        """Keep an acknowledged message whose receiver was cancelled, for the next receive."""
        try:
            async with asyncio.timeout(_GIVE_UP):
                if (await call).status:
                    return
        except RpcError as error:
            if not isinstance(error, ConnectionLostError):
                return
        except TimeoutError:
            self.node.reader.abort()
        self._kept.append(message)

    async def _see_to(self, work: Coroutine[Any, Any, None]) -> None:
        """Let work finish, even if its waiter is cancelled again."""
        task = asyncio.ensure_future(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        await asyncio.shield(task)

    # Starting a read, and cancelling one

    async def _start(self, action: Action, timeout: float | None, cursor: int = 0) -> _Read:
        desc = RemoteReadDesc(
            remote_queue=self.handle,
            queue=self._queue,
            cursor=cursor,
            action=action,
            timeout=_milliseconds(timeout),
            request_id=self.node.next_request_id(),
        )
        if self.node.takes_lookup_ids:
            request = qm2qm.StartReceive2Request(desc2=RemoteReadDesc2(remote_read_desc=desc))
            return await self._read(qm2qm.START_RECEIVE2, request, desc.request_id)
        return await self._read(qm2qm.START_RECEIVE, qm2qm.StartReceiveRequest(desc=desc), desc.request_id)

    async def _start_by_lookup_id(self, lookup_identifier: int, seek: Seek, *, take: bool) -> _Read:
        if not self.node.takes_lookup_ids:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_ILLEGAL_OPERATION, f"{self.node.host} is too old for lookup identifiers"
            )
        desc = RemoteReadDesc(
            remote_queue=self.handle,
            queue=self._queue,
            action=_SEEKS[seek][take],
            request_id=self.node.next_request_id(),
        )
        lookup_id = {"first": 0, "last": _LAST}.get(seek, lookup_identifier)
        request = qm2qm.StartReceiveByLookupIdRequest(lookup_id=lookup_id, desc2=RemoteReadDesc2(remote_read_desc=desc))
        return await self._read(qm2qm.START_RECEIVE_BY_LOOKUP_ID, request, desc.request_id)

    async def _read(self, method: Method, request: Parameters, request_id: int) -> _Read:
        self._check_open()
        call = self.node.reader.begin(QM2QM, method, request)
        self.pending.add(request_id)
        try:
            response = await asyncio.shield(call)
        except RpcError as error:
            raise rpc_error(self.node.host, error) from error
        except asyncio.CancelledError:
            await self._see_to(self._abandon(call, request_id))
            raise
        finally:
            self.pending.discard(request_id)
        check_status(response.status, self.format_name)
        return self._read_of(response)

    def _read_of(self, response: Any) -> _Read:
        if isinstance(response, qm2qm.StartReceiveResponse):
            desc, sequential_id = response.desc, 0
        else:
            desc, sequential_id = response.desc2.remote_read_desc, response.desc2.sequential_id
        packet = (desc.buffer if desc is not None else None) or b""
        if desc is None or not packet:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR, f"{self.node.host} said that it sent a message, and sent none"
            )
        value = value_of_any_packet(packet, desc.arrive_time)
        priority = value[PRIORITY] & 7 if len(value) > PRIORITY else 0
        # The byte that SequentialId leaves out: messages of a higher priority come first (MS-MQDMPR 3.1.7.1.9).
        lookup_identifier = 7 - priority << LANE_SHIFT | sequential_id
        return _Read(response.context, received_message(lookup_identifier, value))

    async def _abandon(self, call: asyncio.Future[Any], request_id: int) -> None:
        """Canceling a Pending Peek or Receive, 3.2.4.7. A message that arrived in the same moment is returned."""
        try:
            async with asyncio.timeout(_GIVE_UP):
                if not call.done():
                    request = qm2qm.CancelReceiveRequest(
                        h_queue=self.handle, p_queue=self._queue, request_id=request_id
                    )
                    await self.node.reader.call(QM2QM, qm2qm.CANCEL_RECEIVE, request)
                response = await call
                if response.context != NULL_CONTEXT_HANDLE:
                    await self.node.reader.call(QM2QM, qm2qm.END_RECEIVE, _end_of(response.context, _NACK))
        except (RpcError, TimeoutError) as error:
            if not isinstance(error, ConnectionLostError):
                self.node.reader.abort()  # the server then unlocks its messages

    # Peeking

    async def peek(self, timeout: float | None = None) -> Message:
        """Peek at a message, 3.2.4.2."""
        return (await self._start(Action.MQ_ACTION_PEEK_CURRENT, timeout)).message

    async def peek_by_lookup_id(self, lookup_identifier: int = 0, seek: Seek = "current") -> Message:
        """Peek by lookup identifier: RemoteQMStartReceiveByLookupId."""
        return (await self._start_by_lookup_id(lookup_identifier, seek, take=False)).message

    def cursor(self) -> CursorApi:
        """A cursor, which the server creates with the first call."""
        self._check_open()
        return RemoteReadCursor(self)

    # The queue

    async def purge(self) -> None:
        """Purge the queue, 3.2.4.4."""
        self._check_open()
        purged = await self._call(qm2qm.PURGE_QUEUE, qm2qm.PurgeQueueRequest(queue=self.handle))
        check_status(purged.status, self.format_name)

    async def _call(self, method: Method, request: Parameters) -> Any:
        return await self.node.call(QM2QM, method, request)

    def _check_open(self) -> None:
        if not self._open:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INVALID_HANDLE, f"{self.format_name} was closed: open it again"
            )

    async def close(self) -> None:
        """Close the queue, 3.2.4.9. The server cancels waiting reads."""
        if not self._open:
            return
        self._open = False
        self.node.queues.discard(self)
        try:
            if not self.node.is_lost:
                await self._call(qm2qm.CLOSE_QUEUE, qm2qm.CloseQueueRequest(context=self._session))
        finally:
            self.node.queue_closed()

    # Operations that are only possible on local queues

    async def send(self, message: Message, transaction: InTransaction = None) -> bytes:
        """Refused: the queue is open for reading."""
        raise _read_only(self.format_name)

    async def send_many(self, messages: Iterable[Message], transaction: InTransaction = None) -> list[bytes]:
        """Refused: the queue is open for reading."""
        raise _read_only(self.format_name)

    async def move(self, lookup_identifier: int, target: QueueApi, transaction: InTransaction = None) -> None:
        """Refused: the protocol cannot move messages."""
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_ILLEGAL_OPERATION, "messages of another computer's queue are moved there"
        )


class RemoteReadCursor(CursorApi):
    """A cursor of a remote queue."""

    def __init__(self, queue: RemoteReadQueue) -> None:
        self._queue = queue
        self._handle: asyncio.Future[int] | None = None
        self._closed = False

    async def _opened(self) -> int:
        if self._closed:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_INVALID_HANDLE, "the cursor is closed")
        if self._handle is None:
            self._handle = asyncio.ensure_future(self._create())
        return await asyncio.shield(self._handle)

    async def _create(self) -> int:
        """Create the cursor: R_QMCreateRemoteCursor, MS-MQMP 3.1.4.4."""
        request = qmcomm.CreateRemoteCursorRequest(buffer=TransferBuffer(), queue=self._queue.handle)
        created = await self._queue.node.call(QMCOMM, qmcomm.CREATE_REMOTE_CURSOR, request)
        check_status(created.status, self._queue.format_name)
        cursor: int = created.cursor
        return cursor

    async def peek(self, timeout: float | None = None) -> Message:
        """Peek at the cursor, 3.2.4.5."""
        return (await self._queue._start(Action.MQ_ACTION_PEEK_CURRENT, timeout, await self._opened())).message

    async def peek_next(self, timeout: float | None = None) -> Message:
        """Peek at the next message, 3.2.4.5."""
        return (await self._queue._start(Action.MQ_ACTION_PEEK_NEXT, timeout, await self._opened())).message

    async def receive(self, timeout: float | None = None, transaction: InTransaction = None) -> Message:
        """Receive at the cursor, 3.2.4.6."""
        _refuse_transaction(transaction)
        queue = self._queue
        read = await queue._start(Action.MQ_ACTION_RECEIVE, timeout, await self._opened())
        return await queue._acknowledge(read)

    async def close(self) -> None:
        """Close the cursor, 3.2.4.8."""
        if self._closed:
            return
        self._closed = True
        if self._handle is not None:
            request = qm2qm.CloseCursorRequest(queue=self._queue.handle, cursor=await self._handle)
            await self._queue._call(qm2qm.CLOSE_CURSOR, request)


_NACK: Final = RemoteReadAck.RR_NACK


def _end_of(context: bytes, ack: RemoteReadAck) -> qm2qm.EndReceiveRequest:
    return qm2qm.EndReceiveRequest(context=context, ack=ack)


def _milliseconds(timeout: float | None) -> int:
    if timeout is None:
        return INFINITE
    if math.isnan(timeout):
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_INVALID_PARAMETER, "the timeout is not a number: seconds, or None for ever"
        )
    return min(max(math.ceil(timeout * 1000), 0), _LONGEST) if timeout != math.inf else _LONGEST


def _is_empty(error: BaseException) -> bool:
    return isinstance(error, MessageQueuingError) and error.code is ErrorCode.MQ_ERROR_IO_TIMEOUT


def _refuse_transaction(transaction: InTransaction) -> None:
    if transaction is not None:
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_TRANSACTION_USAGE, "a queue of another computer is not read in a transaction (MS-MQQP)"
        )


def _read_only(name: str) -> MessageQueuingError:
    return MessageQueuingError(ErrorCode.MQ_ERROR_ACCESS_DENIED, f"{name} is open to be read: open it for Access.SEND")
