"""The application's side of the socket: calls out, answers in, several under way at a time; and the open
queues, cursors and transactions whose methods are such calls.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

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
    RECEIVE_HEAD,
    REQUESTS,
    SEND_HEAD,
    SINGLE_TRANSACTION,
    SIZE_FIELD,
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


def again(error: MessageQueuingError) -> MessageQueuingError:
    """The same error for another caller: one object raised many times would collect the tracebacks of all."""
    return MessageQueuingError(error.code, error.sentence)


def failure(answer: Frame) -> MessageQueuingError:
    """The error that the node answered with."""
    return values.decode_error(values.decode(answer.body))


class Answer(asyncio.Future[Frame]):
    """The answer of a call that is under way.

    A caller that is cancelled cancels the call at the node, and learns of it with the answer: a message that was
    already on its way is not lost. A second cancellation ends the wait at once.
    """

    __slots__ = ("_connection", "_number")

    def __init__(self, connection: "Connection", number: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._connection: Connection | None = connection
        self._number = number

    def cancel(self, msg: object = None) -> bool:
        if self._connection is None or self.done():
            return super().cancel(msg)
        connection, self._connection = self._connection, None
        connection.cancel_call(self._number)
        return False


class Connection(asyncio.BufferedProtocol):
    """A connection to a node. Every call that is under way when it breaks fails with MQ_ERROR_SERVICE_NOT_AVAILABLE."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader()
        self._waiting: dict[int, Answer] = {}
        self._last_number = 0
        self._out: list[Packet] = []
        self._transport: asyncio.Transport | None = None
        self._lost: MessageQueuingError | None = None
        self._writable = True
        self._closed = asyncio.Event()

    @classmethod
    async def open(cls, path: Path) -> tuple["Connection", dict[str, Any]]:
        """Connect and greet; the node says who it is."""
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_unix_connection(lambda: cls(path), str(path))
        except OSError as error:
            raise unreachable(path, error) from error
        try:
            return connection, values.decode((await connection.call(Kind.HELLO, values.encode(GREETING))).body)
        except BaseException:
            await connection.close()
            raise

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
        self._fail(
            MessageQueuingError(_UNREACHABLE, f"the connection to the node on {self.path} is closed: connect again")
        )
        self._closed.set()

    def _fail(self, error: MessageQueuingError) -> None:
        self._lost = self._lost or error
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(again(self._lost))
                future.exception()

    async def close(self) -> None:
        """Close; the node runs down what was open."""
        if self._transport is not None:
            self._flush()
            self._transport.close()
            await self._closed.wait()

    # Calls

    def start(self, kind: Kind, *parts: bytes) -> Answer:
        """Make a call. Calls that are made in one pass of the event loop leave together, in their order."""
        if self._lost is not None:
            raise again(self._lost)
        size = HEAD_SIZE + sum(map(len, parts))
        if size > MAXIMUM_FRAME:
            # The node would end the connection over it, and with it all that is open.
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES,
                f"one call with {size} bytes: at most {MAXIMUM_FRAME} travel at once, so send fewer messages at a time",
            )
        number = self._last_number = self._last_number % 0xFFFFFFFF + 1
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
        started = self.start(kind, *parts)
        try:
            answer = await started
        except asyncio.CancelledError:
            if started.cancelled() or started.exception() or (answer := started.result()).kind != Kind.MESSAGES:
                raise
        if answer.kind == Kind.FAILED:
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
    """A unit of work at the node."""

    def __init__(self, manager: "RemoteQueueManager", number: int) -> None:
        self.manager = manager
        self.number = number
        self._begun: asyncio.Future[bytes] | None = None
        self._ended = False

    async def begin(self) -> int:
        """Tell the node, once; the number that calls name the transaction by."""
        if self._ended:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE, "the transaction has ended: begin another one"
            )
        if self._begun is None:
            call = self.manager._call("begin", self.number)
            self._begun = asyncio.ensure_future(call)
        self.identifier = Guid(await asyncio.shield(self._begun))
        return self.number

    async def prepare(self) -> None:
        """Prepare: the event Transaction Prepare (3.1.4.3)."""
        await self.manager.connection.method("transaction", await self.begin(), "prepare")

    async def commit(self) -> None:
        """Commit: the event Transaction Commit (3.1.4.4)."""
        await self._end(commit=True)

    async def abort(self) -> None:
        """Abort: the event Transaction Abort (3.1.4.5)."""
        await self._end(commit=False)

    async def _end(self, *, commit: bool) -> None:
        number = await self.begin()
        self._ended = True
        await self.manager.connection.method("transaction", number, "end", [commit])


async def _number(transaction: InTransaction) -> int:
    match transaction:
        case None:
            return NO_TRANSACTION
        case "single":
            return SINGLE_TRANSACTION
        case RemoteTransaction():
            return await transaction.begin()
        case _:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_TRANSACTION_ENLIST, "the transaction belongs to another queue manager"
            )


class _Batch:
    """Messages of several callers that go to the node in one frame."""

    __slots__ = ("callers", "items", "size")

    def __init__(self) -> None:
        self.callers: list[asyncio.Future[bytes]] = []
        self.items: list[Sent] = []
        self.size = 0

    def answered(self, answer: asyncio.Future[Frame]) -> None:
        """Give each caller the identifier of its message, or its error."""
        error = answer.exception()
        self.settle(_outcomes(answer.result()) if error is None else repeat(error))

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
    """An open queue at the node."""

    def __init__(
        self, manager: "RemoteQueueManager", handle: int, format_name: str, access: Access, share: Share
    ) -> None:
        self.manager = manager
        self.connection = manager.connection
        self.handle = handle
        self.format_name = format_name
        self.access = access
        self.share = share
        self._travelling = Travelling(_destination(manager.identifier, format_name))
        self._batch: _Batch | None = None
        self._loop = asyncio.get_running_loop()

    # Sending

    async def send(self, message: Message, transaction: InTransaction = None) -> bytes:
        """Enqueue Message To An Open Queue (3.1.7.1.27). Calls made at the same time travel together."""
        item = to_travel(message, self._travelling)
        if transaction is not None:
            return (await self._send_together([item], await _number(transaction)))[0]
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
        head = SEND_HEAD.pack(self.handle, NO_TRANSACTION, False, len(batch.items))
        try:
            answer = self.connection.start(Kind.SEND, head, *pack_sent(batch.items))
        except MessageQueuingError as error:
            batch.settle(repeat(error))
        else:
            answer.add_done_callback(batch.answered)

    async def send_many(self, messages: Iterable[Message], transaction: InTransaction = None) -> list[bytes]:
        """Send all of them, in order, with one sync."""
        items = [to_travel(message, self._travelling) for message in messages]
        if not items:
            return []
        return await self._send_together(items, await _number(transaction))

    async def _send_together(self, items: list[Sent], transaction: int) -> list[bytes]:
        head = SEND_HEAD.pack(self.handle, transaction, True, len(items))
        return _identifiers((await self.connection.call(Kind.SEND, head, *pack_sent(items))).body)

    # Reading

    def _ask(self, kind: Kind, limit: int, timeout: float | None, number: int) -> Coroutine[Any, Any, Frame]:
        """Ask for messages, in the transaction of this number."""
        seconds = FOR_EVER if timeout is None else max(timeout, 0.0)
        return self.connection.call(kind, RECEIVE_HEAD.pack(self.handle, number, limit, seconds))

    async def receive(self, timeout: float | None = None, transaction: InTransaction = None) -> Message:
        """Take a message out: the event Dequeue Message (3.1.7.1.10)."""
        number = NO_TRANSACTION if transaction is None else await _number(transaction)
        return _messages(await self._ask(Kind.RECEIVE, 1, timeout, number))[0]

    async def receive_many(
        self, limit: int, timeout: float | None = None, transaction: InTransaction = None
    ) -> list[Message]:
        """Dequeue Message, up to ``limit`` times."""
        number = NO_TRANSACTION if transaction is None else await _number(transaction)
        return _messages(await self._ask(Kind.RECEIVE, min(max(limit, 0), 0xFFFFFFFF), timeout, number))

    async def peek(self, timeout: float | None = None) -> Message:
        """Look at a message: the event Peek Message (3.1.7.1.15)."""
        return _messages(await self._ask(Kind.PEEK, 1, timeout, NO_TRANSACTION))[0]

    async def _call(self, name: str, *arguments: object, **keywords: object) -> Any:
        return await self.connection.method("queue", self.handle, name, arguments, **keywords)

    async def receive_by_lookup_id(self, lookup_identifier: int, transaction: InTransaction = None) -> Message:
        """Read Message By Lookup Identifier (3.1.7.1.13)."""
        number = await _number(transaction)
        return _messages(await self._call("receive_by_lookup_id", lookup_identifier, transaction=number))[0]

    async def peek_by_lookup_id(self, lookup_identifier: int = 0, seek: Seek = "current") -> Message:
        """Read Message By Lookup Identifier (3.1.7.1.13)."""
        return _messages(await self._call("peek_by_lookup_id", lookup_identifier, seek))[0]

    async def receive_begin(self, timeout: float | None = None) -> Message:
        """Dequeue Message Begin (3.1.7.1.11)."""
        return _messages(await self._call("receive_begin", timeout))[0]

    async def receive_end(self, lookup_identifier: int, delete: bool) -> None:
        """Dequeue Message End (3.1.7.1.12)."""
        await self._call("receive_end", lookup_identifier, delete)

    def cursor(self) -> CursorApi:
        """Open Cursor (3.1.7.1.1). The node hears of it with the first call."""
        return RemoteCursor(self)

    async def move(self, lookup_identifier: int, target: QueueApi, transaction: InTransaction = None) -> None:
        """Move a message to a subqueue or back: the event Move Message (3.1.7.1.16)."""
        if not isinstance(target, RemoteQueue) or target.connection is not self.connection:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INVALID_HANDLE, "the target of a move is an open queue of the same queue manager"
            )
        await self._call("move", lookup_identifier, target.handle, transaction=await _number(transaction))

    async def purge(self) -> None:
        """Delete all messages: the event Purge Queue (3.1.7.1.7)."""
        await self._call("purge")

    async def close(self) -> None:
        """Close the handle: the event Close Queue (3.1.7.1.6)."""
        if self.handle:
            handle, self.handle = self.handle, 0
            await self.connection.method("queue", handle, "close")


class RemoteCursor(CursorApi):
    """A cursor at the node."""

    def __init__(self, queue: RemoteQueue) -> None:
        self.queue = queue
        self._handle: asyncio.Future[int] | None = None
        self._closed = False

    async def _call(self, name: str, *arguments: object, **keywords: object) -> Message:
        if self._closed:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_INVALID_HANDLE, "the cursor was closed: open another one")
        if self._handle is None:
            self._handle = asyncio.ensure_future(self.queue._call("cursor"))
        handle = await asyncio.shield(self._handle)
        return _messages(await self.queue.connection.method("cursor", handle, name, arguments, **keywords))[0]

    async def peek(self, timeout: float | None = None) -> Message:
        """Peek Message at the cursor (3.1.7.1.15)."""
        return await self._call("peek", timeout)

    async def peek_next(self, timeout: float | None = None) -> Message:
        """Peek Next Message (3.1.7.1.14)."""
        return await self._call("peek_next", timeout)

    async def receive(self, timeout: float | None = None, transaction: InTransaction = None) -> Message:
        """Dequeue Message at the cursor (3.1.7.1.10)."""
        return await self._call("receive", timeout, transaction=await _number(transaction))

    async def close(self) -> None:
        """Close the cursor: the event Close Cursor (3.1.7.1.2)."""
        if not self._closed:
            self._closed = True
            if self._handle is not None:
                await self.queue.connection.method("cursor", await self._handle, "close")


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
