"""A peer, and the calls by which :mod:`~qmnode.remote_read.client_queue` reads one of its queues, over
RemoteRead (MS-MQRR 3.2.4) and qm2qm (MS-MQQP 3.2.4); and the errors of remote reads for applications.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from qmnode.dcerpc.client import Calls, RpcClient
from qmnode.dcerpc.errors import FaultStatus, RpcError, RpcFault
from qmnode.dcerpc.interface import Interface, Method
from qmnode.dcerpc.ndr import NULL_CONTEXT_HANDLE, Parameters
from qmnode.errors import MessageQueuingError, reason_of
from qmnode.model.api import Seek
from qmnode.model.message import Message
from qmnode.model.stored_message import TransferredMessage, received_message
from qmnode.remote_read import qm2qm, qmcomm, remoteread
from qmnode.remote_read.message_packet import lookup_identifier, transferred_message
from qmnode.remote_read.qm2qm import QM2QM, Action, RemoteReadAck, RemoteReadDesc, RemoteReadDesc2, Status
from qmnode.remote_read.qmcomm import QMCOMM, TransferBuffer
from qmnode.remote_read.remoteread import EVERYTHING, REMOTE_READ, SectionType, read_one_section
from qmnode.remote_read.server_reads import locks
from qmnode.structures.error_codes import ErrorCode

if TYPE_CHECKING:
    from qmnode.dcerpc.ndr import Representation


_STATUS: Final = {
    0xC000000D: ErrorCode.MQ_ERROR_INVALID_PARAMETER,
    0xC0000008: ErrorCode.MQ_ERROR_INVALID_HANDLE,
    0xC0000022: ErrorCode.MQ_ERROR_ACCESS_DENIED,
    0xC0000043: ErrorCode.MQ_ERROR_SHARING_VIOLATION,
    0x400E03E9: ErrorCode.MQ_ERROR_OPERATION_CANCELLED,
}
_CODES: Final = {int(code): code for code in ErrorCode}


def unavailable(host: str, error: Exception) -> MessageQueuingError:
    """The error for a host that does not answer, or not as a queue manager would."""
    reason = reason_of(error) or "no answer in time"
    return MessageQueuingError(
        ErrorCode.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE,
        f"{host} cannot be read from: {reason}. Remote read has to be enabled there, and its endpoint mapper reachable",
    )


def moves_unknown(host: str) -> MessageQueuingError:
    """The error for a move at a host that only has MS-MQQP."""
    return MessageQueuingError(
        ErrorCode.MQ_ERROR_ILLEGAL_OPERATION, f"{host} is too old to move messages for other computers: move them there"
    )


def rpc_error(host: str, error: Exception) -> MessageQueuingError:
    """The error of a failed call for an application."""
    if isinstance(error, RpcFault):
        if error.status in _CODES:  # Windows reports some failures as faults (note 18)
            return MessageQueuingError(_CODES[error.status], f"{host} says so")
        if error.status == FaultStatus.ACCESS_DENIED:
            return MessageQueuingError(ErrorCode.MQ_ERROR_ACCESS_DENIED, f"{host} denies access")
        return MessageQueuingError(ErrorCode.MQ_ERROR, f"{host}: {error}")
    return unavailable(host, error)


def check_status(status: int, what: str) -> None:
    """Raise the error of a status, unless it is MQ_OK."""
    if not status:
        return
    code = _STATUS.get(status) or _CODES.get(status)
    if code is None:
        raise MessageQueuingError(ErrorCode.MQ_ERROR, f"{what}: status {status:#010x}")
    raise MessageQueuingError(code, f"{what}: {code.text}")


CALL_TIMEOUT: Final = 60.0
"""Seconds for calls that do not wait for a message."""
LAST: Final = 0xFFFFFFFFFFFFFFFF
SEEKS: Final[dict[Seek, tuple[Action, Action]]] = {
    # Actions that peek and actions that receive.
    "current": (Action.MQ_LOOKUP_PEEK_CURRENT, Action.MQ_LOOKUP_RECEIVE_CURRENT),
    "next": (Action.MQ_LOOKUP_PEEK_NEXT, Action.MQ_LOOKUP_RECEIVE_NEXT),
    "first": (Action.MQ_LOOKUP_PEEK_NEXT, Action.MQ_LOOKUP_RECEIVE_NEXT),
    "prev": (Action.MQ_LOOKUP_PEEK_PREV, Action.MQ_LOOKUP_RECEIVE_PREV),
    "last": (Action.MQ_LOOKUP_PEEK_PREV, Action.MQ_LOOKUP_RECEIVE_PREV),
}

Call = tuple[Method, Parameters]
"""A call that is to begin."""


class Reading(NamedTuple):
    """A message that has arrived."""

    message: Message
    key: Any
    """The identity of its unfinished read at the server; None if that has ended."""


class ReadPeer:
    """The connections to a queue manager that is read, and their calls."""

    def __init__(self, host: str, client: RpcClient, reader: RpcClient, interface: Interface) -> None:
        self.host = host
        self._client = client
        self.reader = reader
        """The connection for reads."""
        self.interface = interface
        """The interface of reads: RemoteRead, or qm2qm."""
        self.request_id = 0
        self.takes_lookup_ids = True
        """Whether the server has RemoteQMStartReceive2 and RemoteQMStartReceiveByLookupId."""

    @property
    def is_lost(self) -> bool:
        """Whether a connection has ended."""
        return self._client.lost is not None or self.reader.lost is not None

    def next_request_id(self) -> int:
        """A RequestId, 3.2.1.1, that no waiting read has, since there are never four billion of them."""
        self.request_id = self.request_id % 0xFFFFFFFF + 1
        return self.request_id

    async def call(self, interface: Interface, method: Method, request: Parameters, limit: float = CALL_TIMEOUT) -> Any:
        """Call a method that does not wait for a message; raises errors with MQ_ERROR codes."""
        client = self.reader if interface is QM2QM else self._client
        return await self.answer(client.begin(interface, method, request), limit)

    async def answer(self, call: asyncio.Future[Any], limit: float = CALL_TIMEOUT) -> Any:
        """The response of a call that does not wait for a message; raises errors with MQ_ERROR codes."""
        try:
            async with asyncio.timeout(limit):
                return await call
        except (RpcError, TimeoutError) as error:
            raise rpc_error(self.host, error) from error


class ReadSession(ABC):
    """An open queue at the peer. Errors have MQ_ERROR codes; futures raise RpcError."""

    takes_lookup_ids = True
    move_context: int | None = None
    """pMoveContext of a queue that is open for moves (MS-MQRR 3.1.4.11)."""

    @abstractmethod
    def begin(self, call: Call) -> asyncio.Future[Any]:
        """Begin a call of this queue, and return the future of its response."""

    @abstractmethod
    def start(self, request_id: int, action: Action, milliseconds: int = 0, cursor: int = 0) -> Call:
        """A read at the front of the queue or at a cursor."""

    @abstractmethod
    def start_by_lookup_id(self, request_id: int, action: Action, lookup_id: int) -> Call:
        """A read by lookup identifier."""

    @abstractmethod
    def transferred(self, response: Any) -> TransferredMessage:
        """The message of a successful response. MQ_ERROR if there is none in it."""

    def reading_of(self, request_id: int, action: Action, response: Any) -> Reading:
        """The same message, as applications read it, and the key of its read."""
        found = self.transferred(response)
        message = received_message(found.lookup_identifier, found.value())
        return Reading(message, self.key_of(request_id, action, response))

    @abstractmethod
    def key_of(self, request_id: int, action: Action, response: Any) -> Any:
        """The key of the read that a response leaves open; None if it leaves none."""

    @abstractmethod
    def end(self, key: Any, *, delete: bool) -> Call:
        """The end of a read: delete its message or leave it."""

    @abstractmethod
    def cancel(self, request_id: int) -> asyncio.Future[Any]:
        """Begin to cancel a waiting read."""

    @abstractmethod
    async def create_cursor(self) -> int:
        """Create a cursor and return its number."""

    @abstractmethod
    async def close_cursor(self, cursor: int) -> None:
        """Close a cursor at the server."""

    @abstractmethod
    async def move(self, lookup_id: int, target: ReadSession) -> int:
        """Move a message into a queue that is open for moves, and return the status."""

    @abstractmethod
    async def purge(self) -> int:
        """Delete all messages and return the status."""

    @abstractmethod
    async def close(self) -> None:
        """Close the queue at the server."""


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


class RemoteReadSession(ReadSession):
    """An open queue: its QUEUE_CONTEXT_HANDLE_SERIALIZE. Reads are ended by their request identifiers."""

    def __init__(self, node: ReadPeer, context: bytes, move_context: int | None = None) -> None:
        self._node = node
        self._context = context
        self.move_context = move_context

    def begin(self, call: Call) -> asyncio.Future[Any]:
        """Begin a call of this queue, and return the future of its response."""
        return self._node.reader.begin(REMOTE_READ, *call)

    def begin_reads(self, request_ids: Sequence[int]) -> Calls:
        """R_StartReceive for messages that are available now, in one series. Answers: TransferredMessage, or status."""
        return self._start_all((one, 0, Action.MQ_ACTION_RECEIVE) for one in request_ids)

    def begin_these(self, request_ids: Sequence[int], lookup_ids: Sequence[int]) -> Calls:
        """The same with lookup identifiers."""
        action = Action.MQ_LOOKUP_RECEIVE_CURRENT
        return self._start_all((one, lookup, action) for one, lookup in zip(request_ids, lookup_ids, strict=True))

    def _start_all(self, reads: Iterable[tuple[int, int, int]]) -> Calls:
        reader, context = self._node.reader, self._context
        form = remoteread.StartReceiveRequest.form(reader.representation(REMOTE_READ))
        assert form is not None, "it has no pointers"
        pack = form.pack
        stubs = [pack(context, lookup, 0, action, 0, one, EVERYTHING, EVERYTHING) for one, lookup, action in reads]
        return reader.begin_all(REMOTE_READ, remoteread.START_RECEIVE, stubs, self._read_started)

    def _read_started(
        self, stub: bytes, representation: Representation
    ) -> TransferredMessage | int | MessageQueuingError:
        """The message of a response, the status of one that has none, or why there is none."""
        found = read_one_section(stub, representation)
        if found is not None:
            arrive_time, sequence_id, section = found
            return transferred_message(section, sequence_id, arrive_time)
        response = remoteread.StartReceiveResponse.decode(stub, representation)
        try:
            return response.status or self.transferred(response)
        except MessageQueuingError as error:
            return error

    def end_all(self, request_ids: Sequence[int], *, delete: bool) -> Calls:
        """R_EndReceive for many reads. Answers: statuses."""
        reader, context = self._node.reader, self._context
        ack = RemoteReadAck.RR_ACK if delete else RemoteReadAck.RR_NACK
        form = remoteread.EndReceiveRequest.form(reader.representation(REMOTE_READ))
        assert form is not None, "it has no pointers"
        stubs = [form.pack(context, ack, one) for one in request_ids]
        return reader.begin_all(REMOTE_READ, remoteread.END_RECEIVE, stubs, _read_status)

    def start(self, request_id: int, action: Action, milliseconds: int = 0, cursor: int = 0) -> Call:
        """R_StartReceive at the front of the queue or at a cursor."""
        request = remoteread.StartReceiveRequest(
            context=self._context, cursor=cursor, action=action, timeout=milliseconds, request_id=request_id
        )
        return remoteread.START_RECEIVE, request

    def start_by_lookup_id(self, request_id: int, action: Action, lookup_id: int) -> Call:
        """R_StartReceive with a LookupId."""
        request = remoteread.StartReceiveRequest(
            context=self._context, lookup_id=lookup_id, action=action, request_id=request_id
        )
        return remoteread.START_RECEIVE, request

    def transferred(self, response: Any) -> TransferredMessage:
        """The message of a successful response. This side asks for whole bodies, so it comes in one section."""
        sections = response.sections or []
        if len(sections) != 1 or sections[0].section_type != SectionType.ST_FULL_PACKET or not sections[0].section:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR, f"{self._node.host} said that it sent a message, and sent none that is whole"
            )
        return transferred_message(sections[0].section, response.sequence_id, response.arrive_time)

    def key_of(self, request_id: int, action: Action, response: Any) -> int | None:
        """The request identifier of a receive that succeeded."""
        return request_id if not response.status and locks(action) else None

    def end(self, key: int, *, delete: bool) -> Call:
        """R_EndReceive for one read."""
        ack = RemoteReadAck.RR_ACK if delete else RemoteReadAck.RR_NACK
        request = remoteread.EndReceiveRequest(context=self._context, ack=ack, request_id=key)
        return remoteread.END_RECEIVE, request

    def cancel(self, request_id: int) -> asyncio.Future[Any]:
        """Begin R_CancelReceive for one read."""
        request = remoteread.CancelReceiveRequest(context=self._context, request_id=request_id)
        return self.begin((remoteread.CANCEL_RECEIVE, request))

    async def create_cursor(self) -> int:
        """Create a cursor: R_CreateCursor, 3.2.4.8."""
        request = remoteread.ContextRequest(context=self._context)
        created = await self._node.call(REMOTE_READ, remoteread.CREATE_CURSOR, request)
        check_status(created.status, self._node.host)
        cursor: int = created.cursor
        return cursor

    async def close_cursor(self, cursor: int) -> None:
        """Close a cursor: R_CloseCursor, 3.2.4.12."""
        request = remoteread.CloseCursorRequest(context=self._context, cursor=cursor)
        await self._node.call(REMOTE_READ, remoteread.CLOSE_CURSOR, request)

    async def move(self, lookup_id: int, target: ReadSession) -> int:
        """Move a message: R_MoveMessage, 3.2.4.6."""
        if target.move_context is None:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_ACCESS_DENIED, "the target of a move is open for Access.MOVE")
        request = remoteread.MoveMessageRequest(
            context_from=self._context, context_to=target.move_context, lookup_id=lookup_id
        )
        status: int = (await self._node.call(REMOTE_READ, remoteread.MOVE_MESSAGE, request)).status
        return status

    async def purge(self) -> int:
        """Delete all messages: R_PurgeQueue, 3.2.4.7."""
        request = remoteread.ContextRequest(context=self._context)
        status: int = (await self._node.call(REMOTE_READ, remoteread.PURGE_QUEUE, request)).status
        return status

    async def close(self) -> None:
        """Close the queue: R_CloseQueue, 3.2.4.13."""
        request = remoteread.ContextRequest(context=self._context)
        await self._node.call(REMOTE_READ, remoteread.CLOSE_QUEUE, request)


def _read_status(stub: bytes, representation: Representation) -> int:
    return Status.decode(stub, representation).status
