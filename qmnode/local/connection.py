"""The application's side of the socket: calls out, answers in, several under way at a time; and the open
queues, cursors and transactions whose methods are such calls.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from qmnode.errors import MessageQueuingError
from qmnode.local import values
from qmnode.local.asking import unreachable
from qmnode.local.frames import (
    BATCH_BYTES,
    FOR_EVER,
    GREETING,
    HEAD,
    HEAD_SIZE,
    MAXIMUM_FRAME,
    NO_TRANSACTION,
    PROGRAM,
    RECEIVE_HEAD,
    REPEATED,
    REQUESTS,
    SEND_HEAD,
    SINGLE_TRANSACTION,
    SIZE_FIELD,
    SLOT,
    SLOT_SHIFT,
    TOGETHER,
    Frame,
    FrameError,
    FrameReader,
    Kind,
    Sent,
    enlarge_send_buffer,
    frame_parts,
    pack_sent,
    unpack_received,
    write_parts,
)
from qmnode.model.api import (
    Access,
    CursorApi,
    InTransaction,
    QueueApi,
    Seek,
    Share,
    TransactionApi,
)
from qmnode.model.message import Message
from qmnode.model.packet import received_message
from qmnode.model.serialization import Destination, Travelling
from qmnode.structures.envelope import Packet
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import Guid
from qmnode.structures.names import QueueNameError, parse_single_format_name

if TYPE_CHECKING:
    from qmnode.local.remote import RemoteQueueManager

_UNREACHABLE: Final = ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE
_IDENTIFIER: Final = 20
_SEVERAL_QUEUES: Final = parse_single_format_name("DIRECT=OS:.\\private$\\.")
"""Stands for a name that no packet can carry: the node makes a message for each queue that it means."""


class LostError(MessageQueuingError):
    """The connection to the node is lost, and with it what was open."""

    sent = False
    """Whether the call was sent, so that the node may have done it."""


def again(error: MessageQueuingError, *, sent: bool = False) -> MessageQueuingError:
    """The same error for another caller: one object raised many times would collect the tracebacks of all."""
    if not isinstance(error, LostError):
        return MessageQueuingError(error.code, error.sentence)
    lost = LostError(error.code, error.sentence)
    lost.sent = sent
    return lost


def failure(answer: Frame) -> MessageQueuingError:
    """The error that the node answered with."""
    return values.decode_error(values.decode(answer.body))


class Answer(asyncio.Future[Frame]):
    """The answer of a call that is under way.

    A caller that is cancelled cancels the call at the node, and learns of it with the answer: a message that was
    already on its way is not lost. A second cancellation ends the wait at once.
    """

    __slots__ = ("_connection", "number")

    def __init__(self, connection: "Connection", number: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._connection: Connection | None = connection
        self.number = number

    def cancel(self, msg: object = None) -> bool:
        if self._connection is None or self.done():
            return super().cancel(msg)
        connection, self._connection = self._connection, None
        connection.cancel_call(self.number)
        return False


class Connection(asyncio.BufferedProtocol):
    """A connection to a node. Every call that is under way when it breaks fails with MQ_ERROR_SERVICE_NOT_AVAILABLE."""

    def __init__(self, path: Path, last_number: int = 0) -> None:
        self.path = path
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader()
        self._waiting: dict[int, Answer] = {}
        self.last_number = last_number
        """The number of the newest call. Those of the next connection go on from it."""
        self._out: list[Packet] = []
        self._transport: asyncio.Transport | None = None
        self._lost: MessageQueuingError | None = None
        self._writable = True
        self._closed = asyncio.Event()

    @classmethod
    async def open(
        cls, path: Path, program: bytes = b"", last_number: int = 0, limit: float | None = None
    ) -> tuple["Connection", dict[str, Any]]:
        """Connect and greet; the node says who it is, within ``limit`` seconds if there is one."""
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_unix_connection(lambda: cls(path, last_number), str(path))
        except OSError as error:
            raise unreachable(path, error) from error
        silence = None if limit is None else loop.call_later(limit, connection.abort)
        greeting = GREETING | ({PROGRAM: program} if program else {})
        try:
            return connection, values.decode((await connection.call(Kind.HELLO, values.encode(greeting))).body)
        except BaseException:
            await connection.close()
            raise
        finally:
            if silence is not None:
                silence.cancel()

    def abort(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    # The connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; called when the connection is made."""
        self._transport = cast("asyncio.Transport", transport)
        enlarge_send_buffer(transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes belong."""
        return self._reader.buffer()

    def buffer_updated(self, count: int) -> None:
        """Take answers of the node, whole or in pieces."""
        try:
            for answer in self._reader.filled(count):
                future = self._waiting.pop(answer.number, None)
                if future is None:
                    if answer.kind == Kind.FAILED and answer.number == 0:
                        self._fail(values.decode_error(values.decode(answer.body)))
                elif not future.done():
                    future.set_result(answer)
        except FrameError as error:
            self._fail(MessageQueuingError(_UNREACHABLE, f"what answers on {self.path} is no node: {error}"))
            if self._transport is not None:
                self._transport.abort()

    def pause_writing(self) -> None:
        """The node does not keep up: calls wait here."""
        self._writable = False

    def resume_writing(self) -> None:
        """Send the calls that waited."""
        self._writable = True
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """The node went away, or this side closed."""
        self._reader = FrameReader()
        self._fail(LostError(_UNREACHABLE, f"the connection to the node on {self.path} is closed: connect again"))
        self._closed.set()

    def _fail(self, error: MessageQueuingError) -> None:
        self._lost = self._lost or error
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(again(self._lost, sent=True))
                future.exception()

    async def close(self) -> None:
        """Close; the node runs down what was open."""
        if self._transport is not None:
            self._flush()
            self._transport.close()
            await self._closed.wait()

    # Calls

    @property
    def is_lost(self) -> bool:
        """Whether it has ended."""
        return self._lost is not None

    def take_number(self) -> int:
        """A number for a call."""
        self.last_number = self.last_number % 0xFFFFFFFF + 1
        return self.last_number

    def start(self, kind: Kind, *parts: bytes, number: int = 0) -> Answer:
        """Make a call. Calls that are made in one pass of the event loop leave together, in their order.

        ``number``: one that was taken, perhaps for the same call on a connection before.
        """
        if self._lost is not None:
            raise again(self._lost)
        size = HEAD_SIZE + sum(map(len, parts))
        if size > MAXIMUM_FRAME:
            # The node would end the connection over it, and with it all that is open.
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES,
                f"one call with {size} bytes: at most {MAXIMUM_FRAME} travel at once, so send fewer messages at a time",
            )
        number = number or self.take_number()
        answer = self._waiting[number] = Answer(self, number, self._loop)
        self._send(HEAD.pack(size - SIZE_FIELD, kind, number), *parts)
        return answer

    def cancel_call(self, number: int) -> None:
        """Tell the node that a call's answer is no longer of use; the answer comes all the same."""
        if self._lost is None:
            self._send(*frame_parts(Kind.CANCEL, number))

    async def call(self, kind: Kind, *parts: bytes) -> Frame:
        """Make a call and wait for its answer. Raises the node's error.

        When the caller is cancelled, the call is cancelled at the node and its answer awaited: a message that was
        already on its way is returned and not lost.
        """
        return await self.answer(self.start(kind, *parts))

    @staticmethod
    async def answer(started: Answer, *, failed: bool = False) -> Frame:
        """Wait for the answer of a call, as :meth:`call`. ``failed``: an error of the node is an answer too."""
        try:
            answer = await started
        except asyncio.CancelledError:
            if started.cancelled() or started.exception() or (answer := started.result()).kind != Kind.MESSAGES:
                raise
        if answer.kind == Kind.FAILED and not failed:
            raise failure(answer)
        return answer

    async def method(
        self, what: str, handle: int, name: str, arguments: Iterable[object] = (), **keywords: object
    ) -> Any:
        """Call a method of the manager, a queue, a cursor or a transaction; its result, or a frame of messages."""
        answer = await self.call(Kind.CALL, values.encode([what, handle, name, list(arguments), keywords]))
        return answer if answer.kind == Kind.MESSAGES else values.decode(answer.body)

    def _send(self, *parts: Packet) -> None:
        if not self._out:
            self._loop.call_soon(self._pass_over)
        self._out += parts

    def _pass_over(self) -> None:
        if self._writable:
            self._flush()

    def _flush(self) -> None:
        out, self._out = self._out, []
        if out and self._transport is not None and not self._transport.is_closing():
            write_parts(self._transport, out)


class RemoteTransaction(TransactionApi):
    """A unit of work at the node, over one connection: it is aborted when that is lost."""

    connection: Connection

    def __init__(self, manager: "RemoteQueueManager", number: int) -> None:
        self.manager = manager
        self.number = number
        self._begun: asyncio.Future[tuple[Connection, bytes]] | None = None
        self._ended = False

    async def begin(self) -> int:
        """Tell the node, once; the number that calls name the transaction by."""
        if self._ended:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE, "the transaction has ended: begin another one"
            )
        if self._begun is None:
            self._begun = asyncio.ensure_future(self.manager.line.repeat(self._begin))
        self.connection, identifier = await asyncio.shield(self._begun)
        self.identifier = Guid(identifier)
        return self.number

    async def _begin(self, connection: Connection) -> tuple[Connection, bytes]:
        return connection, await connection.method("manager", 0, "begin", [self.number])

    async def call(self, connection: Connection, kind: Kind, *parts: bytes) -> Frame:
        """Make a call of the transaction over this connection."""
        if connection is not self.connection:
            raise _aborted()
        try:
            return await connection.call(kind, *parts)
        except LostError as error:
            raise self._lost(error) from error

    def _lost(self, error: LostError) -> MessageQueuingError:
        return _aborted() if self.manager.line.renews else again(error)

    async def prepare(self) -> None:
        """Prepare: the event Transaction Prepare (3.1.4.3)."""
        number = await self.begin()
        await self.call(self.connection, Kind.CALL, values.encode(["transaction", number, "prepare", [], {}]))

    async def commit(self) -> None:
        """Commit: the event Transaction Commit (3.1.4.4). If the connection is lost, the next one decides it."""
        number, line = await self.begin(), self.manager.line
        self._ended = True
        slot, call = line.take_slot(), self.connection.take_number()
        asked = [True, slot, call] if slot else [True]
        try:
            started = self.connection.start(
                Kind.CALL, values.encode(["transaction", number, "end", asked, {}]), number=call
            )
            await self.connection.answer(started)
        except LostError as error:
            if not error.sent:
                raise self._lost(error) from error
            if not slot:
                raise unknown("commit") from error
            if not await self._is_committed(error, slot, call):
                raise _aborted() from error
        line.free_slot(slot)

    async def _is_committed(self, error: LostError, slot: int, call: int) -> bool:
        async def is_done(connection: Connection) -> bool:
            return bool(await connection.method("manager", 0, "is_done", [slot, call]))

        try:
            await self.manager.line.renewed(self.connection, error)
            return await self.manager.line.repeat(is_done)
        except MessageQueuingError as failed:
            raise unknown("commit") from failed

    async def abort(self) -> None:
        """Abort: the event Transaction Abort (3.1.4.5). A lost connection has done it."""
        number = await self.begin()
        self._ended = True
        with contextlib.suppress(LostError):
            await self.connection.method("transaction", number, "end", [False])


def _aborted() -> MessageQueuingError:
    return MessageQueuingError(
        ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE,
        "the connection to the node was lost, and the transaction is aborted with it: begin another one",
    )


def unknown(what: str) -> MessageQueuingError:
    """The error of a call that may have been done, or not."""
    return MessageQueuingError(
        _UNREACHABLE,
        f"the connection to the node was lost during {what!r}, and whether it was done is not known: look before you "
        "call it again",
    )


def _unit(transaction: InTransaction) -> RemoteTransaction | None:
    """The transaction of several calls that a call is part of."""
    if transaction in (None, "single"):
        return None
    if not isinstance(transaction, RemoteTransaction):
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_TRANSACTION_ENLIST, "the transaction belongs to another queue manager"
        )
    return transaction


def _single(transaction: InTransaction) -> int:
    return NO_TRANSACTION if transaction is None else SINGLE_TRANSACTION


class _Lost(NamedTuple):
    """A call that a connection has left without an answer."""

    connection: Connection
    number: int
    slot: int
    error: LostError = LostError(_UNREACHABLE)


class _Batch:
    """Messages of several callers that go to the node in one frame."""

    __slots__ = ("callers", "items", "size")

    def __init__(self) -> None:
        self.callers: list[asyncio.Future[bytes]] = []
        self.items: list[Sent] = []
        self.size = 0

    def settle(self, outcomes: Iterable[bytes | BaseException]) -> None:
        """End the calls, except those whose callers were cancelled: their messages are sent all the same."""
        for caller, outcome in zip(self.callers, outcomes, strict=False):
            if caller.done():
                continue
            if isinstance(outcome, MessageQueuingError):
                caller.set_exception(again(outcome))
            elif isinstance(outcome, BaseException):
                caller.set_exception(outcome)
            else:
                caller.set_result(outcome)


class RemoteQueue(QueueApi):
    """An open queue at the node. It is opened again on the next connection."""

    def __init__(
        self,
        manager: "RemoteQueueManager",
        connection: Connection,
        handle: int,
        format_name: str,
        access: Access,
        share: Share,
    ) -> None:
        self.manager = manager
        self.connection = connection
        """The connection on which the handle is open."""
        self.handle = handle
        self.format_name = format_name
        self.access = access
        self.share = share
        self._line = manager.line
        self._travelling = Travelling(_destination(manager.identifier, format_name))
        self._batch: _Batch | None = None
        self._loop = asyncio.get_running_loop()
        self._opening: asyncio.Future[None] | None = None
        self._order = asyncio.Lock()
        """Held by each send that is made again, in their order, until it is under way."""
        self._sending: set[asyncio.Task[None]] = set()

    # Connections

    async def _opened(self) -> Connection:
        """The present connection, with the queue open on it."""
        while self.connection is not self._line.connection and self.handle:
            if self._opening is None or self._opening.done():
                self._opening = asyncio.ensure_future(self._open_again())
                self._opening.add_done_callback(lambda done: done.cancelled() or done.exception())
            await asyncio.shield(self._opening)
        return self.connection if self.handle else self._line.connection

    async def _open_again(self) -> None:
        asked = [self.format_name, int(self.access), int(self.share)]

        async def open_on(connection: Connection) -> tuple[Connection, int]:
            handle, _ = await connection.method("manager", 0, "open_queue", asked)
            return connection, handle

        self.connection, self.handle = await self._line.repeat(open_on)

    async def _repeat(self, attempt: Callable[[Connection], Awaitable[Frame]]) -> Frame:
        """Make a call that may be made twice."""
        while True:
            connection = await self._opened()
            try:
                return await attempt(connection)
            except LostError as error:
                await self._line.renewed(connection, error)

    # Sending

    async def send(self, message: Message, transaction: InTransaction = None) -> bytes:
        """Enqueue Message To An Open Queue (3.1.7.1.27). Calls made at the same time travel together."""
        item = to_travel(message, self._travelling)
        if transaction is not None:
            return (await self._send_together([item], transaction))[0]
        batch = self._batch
        if batch is None or batch.size >= BATCH_BYTES:
            batch = self._batch = _Batch()
            self._loop.call_soon(self._batch_over, batch)
        caller: asyncio.Future[bytes] = self._loop.create_future()
        batch.callers.append(caller)
        batch.items.append(item)
        batch.size += item[0]
        return await caller

    def _batch_over(self, batch: _Batch) -> None:
        if self._batch is batch:
            self._batch = None
        connection = self.connection
        waits = self._sending or self._order.locked()
        if waits or connection is not self._line.connection or connection.is_lost:
            self._later(self._send_batch(batch))
            return
        slot = self._line.take_slot()
        try:
            answer = self._start(batch.items, NO_TRANSACTION, slot << SLOT_SHIFT)
        except MessageQueuingError as error:
            self._line.free_slot(slot)
            batch.settle(repeat(error))
        else:
            answer.add_done_callback(partial(self._answered, batch, _Lost(connection, answer.number, slot)))

    def _answered(self, batch: _Batch, call: _Lost, answer: asyncio.Future[Frame]) -> None:
        """Give each caller the identifier of its message, or its error; or send all again."""
        error, slot = answer.exception(), call.slot
        if isinstance(error, LostError):
            self._later(self._send_batch(batch, call._replace(error=error)))
            return
        self._line.free_slot(slot)
        batch.settle(_outcomes(answer.result()) if error is None else repeat(error))

    def _later(self, sending: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(sending)
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send_batch(self, batch: _Batch, lost: _Lost | None = None) -> None:
        try:
            answer = await self._send_again(batch.items, NO_TRANSACTION, 0, lost)
        except MessageQueuingError as failed:
            batch.settle(repeat(failed))
        else:
            batch.settle(_outcomes(answer))

    async def send_many(self, messages: Iterable[Message], transaction: InTransaction = None) -> list[bytes]:
        """Send all of them, in order, with one sync."""
        items = [to_travel(message, self._travelling) for message in messages]
        if not items:
            return []
        return await self._send_together(items, transaction)

    async def _send_together(self, items: list[Sent], transaction: InTransaction) -> list[bytes]:
        if (unit := _unit(transaction)) is not None:
            number, connection = await unit.begin(), await self._opened()
            head = SEND_HEAD.pack(self.handle, number, TOGETHER, len(items))
            return _identifiers((await unit.call(connection, Kind.SEND, head, *pack_sent(items))).body)
        answer = await self._send_again(items, _single(transaction), TOGETHER)
        if answer.kind == Kind.FAILED:
            raise failure(answer)
        return _identifiers(answer.body)

    def _start(self, items: list[Sent], transaction: int, how: int, number: int = 0) -> Answer:
        head = SEND_HEAD.pack(self.handle, transaction, how, len(items))
        return self.connection.start(Kind.SEND, head, *pack_sent(items), number=number)

    async def _send_again(self, items: list[Sent], transaction: int, how: int, lost: _Lost | None = None) -> Frame:
        """Send until there is an answer. ``lost``: the call that was made for them already."""
        slot = lost.slot if lost is not None else self._line.take_slot()
        number, repeated = (lost.number, REPEATED) if lost is not None else (0, 0)
        while True:
            async with self._order:
                if lost is not None:
                    await self._line.renewed(lost.connection, lost.error)
                    if repeated and not slot:
                        raise unknown("send") from lost.error
                connection = await self._opened()
                try:
                    started = self._start(items, transaction, how | slot << SLOT_SHIFT | repeated, number)
                except LostError as error:
                    lost = _Lost(connection, number, slot, error)
                    continue
            try:
                answer = await connection.answer(started, failed=True)
            except LostError as error:
                number, repeated = started.number, REPEATED
                lost = _Lost(connection, number, slot, error)
                continue
            finally:
                if started.done() and not started.cancelled() and not started.exception():
                    self._line.free_slot(slot)
            return answer

    # Reading

    async def _ask(self, limit: int, timeout: float | None, transaction: InTransaction) -> list[Message]:
        """Receive up to so many messages, which a lost connection neither loses nor doubles."""
        if (unit := _unit(transaction)) is not None:
            number, connection = await unit.begin(), await self._opened()
            head = RECEIVE_HEAD.pack(self.handle, number, limit, _seconds(timeout))
            return _messages(await unit.call(connection, Kind.RECEIVE, head))
        until = None if timeout is None else self._loop.time() + timeout
        slot, number = self._line.take_slot(), 0
        seconds = _seconds(timeout)
        while True:
            connection = self.connection if self.connection is self._line.connection else await self._opened()
            head = RECEIVE_HEAD.pack(self.handle, _single(transaction), limit, seconds)
            if slot:
                head += SLOT.pack(slot << SLOT_SHIFT | (REPEATED if number else 0))
            started = None
            try:
                started = connection.start(Kind.RECEIVE, head, number=number)
                return _messages(await connection.answer(started))
            except LostError as error:
                if started is not None and slot:
                    number = started.number
                await self._line.renewed(connection, error)
                seconds = _seconds(None if until is None else until - self._loop.time())
            finally:
                if started is not None and started.done() and not started.cancelled() and not _is_lost(started):
                    self._line.free_slot(slot)

    async def receive(self, timeout: float | None = None, transaction: InTransaction = None) -> Message:
        """Take a message out: the event Dequeue Message (3.1.7.1.10)."""
        return (await self._ask(1, timeout, transaction))[0]

    async def receive_many(
        self, limit: int, timeout: float | None = None, transaction: InTransaction = None
    ) -> list[Message]:
        """Dequeue Message, up to ``limit`` times."""
        return await self._ask(min(max(limit, 0), 0xFFFFFFFF), timeout, transaction)

    async def peek(self, timeout: float | None = None) -> Message:
        """Look at a message: the event Peek Message (3.1.7.1.15)."""

        def ask(connection: Connection) -> Awaitable[Frame]:
            return connection.call(Kind.PEEK, RECEIVE_HEAD.pack(self.handle, NO_TRANSACTION, 1, _seconds(timeout)))

        return _messages(await self._repeat(ask))[0]

    async def call(
        self, name: str, *arguments: object, transaction: InTransaction = None, repeats: bool = False
    ) -> tuple[Connection, Any]:
        """Call a method; over which connection, and the result."""
        return await self.call_on("queue", None, name, *arguments, transaction=transaction, repeats=repeats)

    async def call_on(
        self,
        what: str,
        on: tuple[Connection, int] | None,
        name: str,
        *arguments: object,
        transaction: InTransaction = None,
        repeats: bool = False,
    ) -> tuple[Connection, Any]:
        """The same of the queue, or of a cursor: on a connection, with a handle there."""
        unit = _unit(transaction)
        keywords = {} if transaction is None else {"transaction": await unit.begin() if unit else SINGLE_TRANSACTION}
        others = [one for one in arguments if isinstance(one, RemoteQueue)]
        while True:
            for other in others:
                await other._opened()
            connection = await self._opened()
            if any(other.connection is not connection for other in others):
                continue
            if on is not None and on[0] is not connection:
                raise MessageQueuingError(
                    ErrorCode.MQ_ERROR_INVALID_HANDLE, "the cursor was lost with the connection: open another one"
                )
            given = [one.handle if isinstance(one, RemoteQueue) else one for one in arguments]
            parts = values.encode([what, self.handle if on is None else on[1], name, given, keywords])
            try:
                if unit is not None:
                    answer = await unit.call(connection, Kind.CALL, parts)
                else:
                    answer = await connection.call(Kind.CALL, parts)
                return connection, answer if answer.kind == Kind.MESSAGES else values.decode(answer.body)
            except LostError as error:
                if error.sent and not repeats:
                    raise unknown(name) from error
                await self._line.renewed(connection, error)

    async def receive_by_lookup_id(self, lookup_identifier: int, transaction: InTransaction = None) -> Message:
        """Read Message By Lookup Identifier (3.1.7.1.13)."""
        _, found = await self.call("receive_by_lookup_id", lookup_identifier, transaction=transaction)
        return _messages(found)[0]

    async def peek_by_lookup_id(self, lookup_identifier: int = 0, seek: Seek = "current") -> Message:
        """Read Message By Lookup Identifier (3.1.7.1.13)."""
        _, found = await self.call("peek_by_lookup_id", lookup_identifier, seek, repeats=True)
        return _messages(found)[0]

    async def receive_begin(self, timeout: float | None = None) -> Message:
        """Dequeue Message Begin (3.1.7.1.11)."""
        _, found = await self.call("receive_begin", timeout, repeats=True)
        return _messages(found)[0]

    async def receive_end(self, lookup_identifier: int, delete: bool) -> None:
        """Dequeue Message End (3.1.7.1.12)."""
        await self.call("receive_end", lookup_identifier, delete)

    def cursor(self) -> CursorApi:
        """Open Cursor (3.1.7.1.1). The node hears of it with the first call."""
        return RemoteCursor(self)

    async def move(self, lookup_identifier: int, target: QueueApi, transaction: InTransaction = None) -> None:
        """Move a message to a subqueue or back: the event Move Message (3.1.7.1.16)."""
        if not isinstance(target, RemoteQueue) or target.manager is not self.manager:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INVALID_HANDLE, "the target of a move is an open queue of the same queue manager"
            )
        await self.call("move", lookup_identifier, target, transaction=transaction)

    async def purge(self) -> None:
        """Delete all messages: the event Purge Queue (3.1.7.1.7)."""
        await self.call("purge")

    async def close(self) -> None:
        """Close the handle: the event Close Queue (3.1.7.1.6)."""
        if self.handle:
            handle, self.handle = self.handle, 0
            if self.connection is self._line.connection:
                await self.connection.method("queue", handle, "close")


class RemoteCursor(CursorApi):
    """A cursor at the node. It is lost with its connection."""

    def __init__(self, queue: RemoteQueue) -> None:
        self.queue = queue
        self._opened: asyncio.Future[tuple[Connection, int]] | None = None
        self._closed = False

    async def _call(self, name: str, timeout: float | None, transaction: InTransaction = None) -> Message:
        if self._closed:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_INVALID_HANDLE, "the cursor was closed: open another one")
        if self._opened is None:
            self._opened = asyncio.ensure_future(self.queue.call("cursor", repeats=True))
        place = await asyncio.shield(self._opened)
        reads = name != "receive"
        _, found = await self.queue.call_on("cursor", place, name, timeout, transaction=transaction, repeats=reads)
        return _messages(found)[0]

    async def peek(self, timeout: float | None = None) -> Message:
        """Peek Message at the cursor (3.1.7.1.15)."""
        return await self._call("peek", timeout)

    async def peek_next(self, timeout: float | None = None) -> Message:
        """Peek Next Message (3.1.7.1.14)."""
        return await self._call("peek_next", timeout)

    async def receive(self, timeout: float | None = None, transaction: InTransaction = None) -> Message:
        """Dequeue Message at the cursor (3.1.7.1.10)."""
        return await self._call("receive", timeout, transaction)

    async def close(self) -> None:
        """Close the cursor: the event Close Cursor (3.1.7.1.2)."""
        if not self._closed:
            self._closed = True
            if self._opened is not None:
                connection, handle = await self._opened
                if connection is self.queue.manager.line.connection:
                    await connection.method("cursor", handle, "close")


def _is_lost(started: Answer) -> bool:
    return isinstance(started.exception(), LostError)


def _seconds(timeout: float | None) -> float:
    return FOR_EVER if timeout is None else max(timeout, 0.0)


def _destination(identifier: Guid, format_name: str) -> Destination:
    try:
        return Destination(identifier, parse_single_format_name(format_name))
    except (QueueNameError, MessageQueuingError):
        return Destination(identifier, _SEVERAL_QUEUES)


def to_travel(message: Message, travelling: Travelling) -> Sent:
    """A message as it goes to the node: a packet whose addresses and numbers the node fills in, and what has no place
    in that packet.
    """
    more = b""
    if not REQUESTS.isdisjoint(message.__dict__):
        more = values.encode({name: value for name, value in message.__dict__.items() if name in REQUESTS})
    return *travelling.pack(message), more


def _messages(answer: Frame) -> list[Message]:
    return [received_message(lookup, value) for lookup, value in unpack_received(answer.data)]


def _outcomes(answer: Frame) -> Iterable[bytes | MessageQueuingError]:
    """The identifier or the error of each message of a batch, in its order."""
    if answer.kind == Kind.FAILED:
        return repeat(failure(answer))
    if answer.kind == Kind.MIXED:
        return [one if isinstance(one, bytes) else values.decode_error(one) for one in values.decode(answer.body)]
    return _identifiers(answer.body)


def _identifiers(body: bytes) -> list[bytes]:
    return [body[at : at + _IDENTIFIER] for at in range(0, len(body), _IDENTIFIER)]
