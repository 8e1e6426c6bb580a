"""One queue read over RemoteRead: MS-MQRR 3.2.4."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from qmnode.dcerpc.client import Calls
from qmnode.errors import MessageQueuingError
from qmnode.model.stored_message import TransferredMessage
from qmnode.remote_read import remoteread
from qmnode.remote_read.message_packet import transferred_message
from qmnode.remote_read.qm2qm import Action, RemoteReadAck, Status
from qmnode.remote_read.read_session import Call, ReadPeer, ReadSession
from qmnode.remote_read.reads import locks
from qmnode.remote_read.remote_errors import check_status
from qmnode.remote_read.remoteread import EVERYTHING, REMOTE_READ, SectionType, read_one_section
from qmnode.structures.error_codes import ErrorCode

if TYPE_CHECKING:
    from qmnode.dcerpc.ndr import Representation


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
