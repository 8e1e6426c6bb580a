"""An open queue of another queue manager: MS-MQRR 3.2.4, MS-MQQP 3.2.4. Read it like a local one.

A message is received in two steps: the server locks it and transfers it, then this side acknowledges it and owns it. A
failure in between leaves it, or puts it back, in its place. If the connection is lost during the acknowledgment, this
side cannot know whether it arrived: the message is returned to the caller, and may still be on the server.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

from qmnode.dcerpc.client import Calls, ConnectionLostError
from qmnode.dcerpc.errors import RpcError
from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access, CursorApi, InTransaction, QueueApi, Seek, Share
from qmnode.model.message import Message
from qmnode.model.stored_message import TransferredMessage
from qmnode.remote_read.client_sessions import (
    LAST,
    SEEKS,
    Reading,
    ReadPeer,
    ReadSession,
    RemoteReadSession,
    check_status,
    rpc_error,
)
from qmnode.remote_read.qm2qm import INFINITE, Action
from qmnode.structures.error_codes import ErrorCode

_ALL_TIMEOUT: Final = 60.0
"""Seconds for several reads that do not wait for a message."""

_LONGEST: Final = 0xFFFFFFFE
_AT_ONCE: Final = 32
"""Concurrent reads of one ``receive_many``."""
_GIVE_UP: Final = 10.0
"""Seconds in which the server must confirm the end of a cancelled read."""


class RemoteReadQueue(QueueApi):
    """One queue of another queue manager, opened for reading or as the target of moves."""

    def __init__(
        self,
        node: ReadPeer,
        format_name: str,
        access: Access,
        share: Share,
        session: ReadSession,
        closed: Callable[[RemoteReadQueue], object],
    ) -> None:
        """``closed`` is called when it is closed."""
        self.node = node
        self._closed = closed
        self.format_name = format_name
        self.access = access
        self.share = share
        self.session = session
        self.pending: set[int] = set()
        """PendingRemoteReadEntryCollection (MS-MQQP 3.2.1.2): the request identifiers of waiting reads."""
        self._begun: dict[int, Any] = {}
        """The keys of begun reads, by lookup identifier."""
        self._begun_again: dict[int, Message] = {}
        """Messages of begun reads that have ended at the server."""
        self._kept: deque[Message] = deque()
        """Messages acknowledged while their callers were cancelled: the next receives return them."""
        self._ending: set[asyncio.Task[None]] = set()
        self._open = True

    # Receiving

    async def receive(self, timeout: float | None = None, transaction: InTransaction = None) -> Message:
        """Receive a message: start the read, then end it."""
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
        """Receive by lookup identifier, in the same two steps."""
        _refuse_transaction(transaction)
        return await self._acknowledge(await self._start_by_lookup_id(lookup_identifier, "current", take=True))

    async def receive_begin(self, timeout: float | None = None) -> Message:
        """The first step alone: finish with ``receive_end``."""
        if self._kept:
            message = self._kept.popleft()
            self._begun_again[message.lookup_identifier] = message
            return message
        read = await self._start(Action.MQ_ACTION_RECEIVE, timeout)
        if read.key is None:
            self._begun_again[read.message.lookup_identifier] = read.message
        else:
            self._begun[read.message.lookup_identifier] = read.key
        return read.message

    async def receive_end(self, lookup_identifier: int, delete: bool) -> None:
        """End the read. After MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE its outcome is unknown."""
        if (kept := self._begun_again.pop(lookup_identifier, None)) is not None:
            if not delete:
                self._kept.appendleft(kept)
            return
        key = self._begun.pop(lookup_identifier, None)
        if key is None:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE, f"no receive_begin holds message {lookup_identifier:#x}"
            )
        ended = await self.node.answer(self.session.begin(self.session.end(key, delete=delete)))
        check_status(ended.status, self.format_name)

    async def begin_many(self, limit: int) -> list[TransferredMessage]:
        """``receive_begin`` for up to ``limit`` available messages of a queue manager that has RemoteRead, in the order
        of the queue: all or none.
        """
        session = self._series()
        numbers = [self.node.next_request_id() for _ in range(limit)]
        found: list[tuple[TransferredMessage, int]] = []
        failure: MessageQueuingError | None = None
        for number, answer in zip(numbers, await self._answers(session.begin_reads(numbers)), strict=True):
            if isinstance(answer, TransferredMessage):
                found.append((answer, number))
            elif (error := self._error(answer)) is not None and error.code is not ErrorCode.MQ_ERROR_IO_TIMEOUT:
                failure = failure or error
        found.sort(key=_place)
        begun = {message.lookup_identifier: number for message, number in found}
        if len(begun) < len(found):
            failure = failure or self._ambiguous()
        if failure is not None:
            await self._answers(session.end_all([number for _, number in found], delete=False))
            raise failure
        self._begun.update(begun)
        return [message for message, _ in found]

    async def begin_these(self, lookup_identifiers: Sequence[int]) -> list[TransferredMessage | None]:
        """The same for messages by their lookup identifiers; None for each that is not there."""
        session = self._series()
        numbers = [self.node.next_request_id() for _ in lookup_identifiers]
        found: list[TransferredMessage | None] = []
        answers = await self._answers(session.begin_these(numbers, lookup_identifiers))
        for number, asked, answer in zip(numbers, lookup_identifiers, answers, strict=True):
            if isinstance(answer, TransferredMessage):
                if answer.lookup_identifier != asked:
                    raise self._ambiguous()
                self._begun[answer.lookup_identifier] = number
                found.append(answer)
            elif (error := self._error(answer)) is None or error.code is not ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND:
                raise error or MessageQueuingError(ErrorCode.MQ_ERROR, f"{self.node.host} sent no message")
            else:
                found.append(None)
        return found

    def _ambiguous(self) -> MessageQueuingError:
        return MessageQueuingError(
            ErrorCode.MQ_ERROR,
            f"{self.node.host} gave one lookup identifier to several messages of {self.format_name}: repair its queue, "
            "or receive them there",
        )

    async def end_many(self, lookup_identifiers: Iterable[int], *, delete: bool) -> list[MessageQueuingError | None]:
        """``receive_end`` for several of these reads; why each has not ended, or not for certain."""
        keys = [self._begun.pop(one) for one in lookup_identifiers]
        answers = await self._answers(self._series().end_all(keys, delete=delete))
        return [self._error(answer) for answer in answers]

    def _series(self) -> RemoteReadSession:
        """The session, of a queue manager that has RemoteRead."""
        self._check_open()
        if not isinstance(self.session, RemoteReadSession):
            raise MessageQueuingError(ErrorCode.MQ_ERROR_ILLEGAL_OPERATION, f"{self.node.host} has no RemoteRead")
        return self.session

    async def _answers(self, together: Calls) -> list[Any]:
        """The answers to calls, or the RpcErrors that some have instead."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_ALL_TIMEOUT):
                await together.done
        return list(together.answers.values())

    def _error(self, answer: Any) -> MessageQueuingError | None:
        """The error of an answer that is a status, an error or, if there was none in time, None; None for MQ_OK."""
        if answer == 0:
            return None
        if isinstance(answer, MessageQueuingError):
            return answer
        if answer is None or isinstance(answer, RpcError):
            return rpc_error(self.node.host, answer or TimeoutError())
        try:
            check_status(answer, "the queue")
        except MessageQueuingError as error:
            return error
        return None

    async def _acknowledge(self, read: Reading) -> Message:
        call = self.session.begin(self.session.end(read.key, delete=True))
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

    async def _start(self, action: Action, timeout: float | None, cursor: int = 0) -> Reading:
        self._check_open()
        request_id = self.node.next_request_id()
        call = self.session.begin(self.session.start(request_id, action, _milliseconds(timeout), cursor))
        return await self._read(call, request_id, action)

    async def _start_by_lookup_id(self, lookup_identifier: int, seek: Seek, *, take: bool) -> Reading:
        if not self.session.takes_lookup_ids:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_ILLEGAL_OPERATION, f"{self.node.host} is too old for lookup identifiers"
            )
        self._check_open()
        request_id, action = self.node.next_request_id(), SEEKS[seek][take]
        lookup_id = {"first": 0, "last": LAST}.get(seek, lookup_identifier)
        call = self.session.begin(self.session.start_by_lookup_id(request_id, action, lookup_id))
        return await self._read(call, request_id, action)

    async def _read(self, call: asyncio.Future[Any], request_id: int, action: Action) -> Reading:
        self.pending.add(request_id)
        try:
            response = await asyncio.shield(call)
        except RpcError as error:
            raise rpc_error(self.node.host, error) from error
        except asyncio.CancelledError:
            await self._see_to(self._abandon(call, request_id, action))
            raise
        finally:
            self.pending.discard(request_id)
        check_status(response.status, self.format_name)
        try:
            return self.session.reading_of(request_id, action, response)
        except MessageQueuingError:
            await self._see_to(self._abandon(call, request_id, action))
            raise

    async def _abandon(self, call: asyncio.Future[Any], request_id: int, action: Action) -> None:
        """Cancel a pending peek or receive. A message that arrived in the same moment is returned."""
        try:
            async with asyncio.timeout(_GIVE_UP):
                if not call.done():
                    await self.session.cancel(request_id)
                response = await call
                key = self.session.key_of(request_id, action, response)
                if key is not None:
                    await self.session.begin(self.session.end(key, delete=False))
        except (RpcError, TimeoutError) as error:
            if not isinstance(error, ConnectionLostError):
                self.node.reader.abort()  # the server then unlocks its messages

    # Peeking

    async def peek(self, timeout: float | None = None) -> Message:
        return (await self._start(Action.MQ_ACTION_PEEK_CURRENT, timeout)).message

    async def peek_by_lookup_id(self, lookup_identifier: int = 0, seek: Seek = "current") -> Message:
        return (await self._start_by_lookup_id(lookup_identifier, seek, take=False)).message

    def cursor(self) -> CursorApi:
        """A cursor, which the server creates with the first call."""
        self._check_open()
        return RemoteReadCursor(self)

    # The queue

    async def move(self, lookup_identifier: int, target: QueueApi, transaction: InTransaction = None) -> None:
        """Move a message at the server. After MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE its outcome is unknown."""
        _refuse_transaction(transaction)
        self._check_open()
        if not isinstance(target, RemoteReadQueue) or target.node is not self.node or not target._open:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INVALID_HANDLE,
                f"the target of a move is an open queue of the same queue manager, opened by its name {self.node.host}",
            )
        check_status(await self.session.move(lookup_identifier, target.session), self.format_name)

    async def purge(self) -> None:
        self._check_open()
        check_status(await self.session.purge(), self.format_name)

    def _check_open(self) -> None:
        if not self._open:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INVALID_HANDLE, f"{self.format_name} was closed: open it again"
            )

    async def close(self) -> None:
        """Close the queue. The server cancels waiting reads."""
        if not self._open:
            return
        self._open = False
        try:
            if not self.node.is_lost:
                await self.session.close()
        finally:
            self._closed(self)  # not before: another queue's close would end the connection

    # Operations that are only possible on local queues

    async def send(self, message: Message, transaction: InTransaction = None) -> bytes:
        """Refused: the queue is open for reading."""
        raise _read_only(self.format_name)

    async def send_many(self, messages: Iterable[Message], transaction: InTransaction = None) -> list[bytes]:
        """Refused: the queue is open for reading."""
        raise _read_only(self.format_name)


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
            self._handle = asyncio.ensure_future(self._queue.session.create_cursor())
        return await asyncio.shield(self._handle)

    async def peek(self, timeout: float | None = None) -> Message:
        return (await self._queue._start(Action.MQ_ACTION_PEEK_CURRENT, timeout, await self._opened())).message

    async def peek_next(self, timeout: float | None = None) -> Message:
        return (await self._queue._start(Action.MQ_ACTION_PEEK_NEXT, timeout, await self._opened())).message

    async def receive(self, timeout: float | None = None, transaction: InTransaction = None) -> Message:
        _refuse_transaction(transaction)
        queue = self._queue
        read = await queue._start(Action.MQ_ACTION_RECEIVE, timeout, await self._opened())
        return await queue._acknowledge(read)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._handle is not None:
            await self._queue.session.close_cursor(await self._handle)


def _place(found: tuple[TransferredMessage, int]) -> int:
    return found[0].lookup_identifier


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
            ErrorCode.MQ_ERROR_TRANSACTION_USAGE,
            "messages of another computer are not received or moved in a transaction: its queue manager would have to "
            "take part in it through a transaction coordinator (MS-DTCO), and nodes have none. Do it without a "
            "transaction, or have the messages sent here",
        )


def _read_only(name: str) -> MessageQueuingError:
    return MessageQueuingError(ErrorCode.MQ_ERROR_ACCESS_DENIED, f"{name} is open to be read: open it for Access.SEND")
