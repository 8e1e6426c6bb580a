"""A queue manager that runs as a service, with the interface of one that runs in this process: its open queues,
cursors and transactions are at the node, and their methods are calls.
"""

import asyncio
import contextlib
import functools
import inspect
import os
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeVar, cast

from qmnode.errors import MessageQueuingError
from qmnode.local import values
from qmnode.local.connection import LONGEST, RECONNECT, Answer, Connection, Line, LostError, again, failure, unknown
from qmnode.local.frames import (
    ADDED_FIELDS,
    BATCH_BYTES,
    FOR_EVER,
    LOGIN,
    NO_TRANSACTION,
    PUBLISHING,
    RECEIVE_HEAD,
    REPEATED,
    REQUESTS,
    SEND_HEAD,
    SINGLE_TRANSACTION,
    SLOT,
    SLOT_SHIFT,
    TOGETHER,
    TOGETHER_FIELD,
    Frame,
    FrameKind,
    Sent,
    pack_sent,
    unpack_received,
)
from qmnode.local.operations import RemoteOperations
from qmnode.model.administration import IncomingSequenceInformation
from qmnode.model.api import (
    Access,
    CursorApi,
    DirectoryLogin,
    InTransaction,
    QueueApi,
    QueueInformation,
    QueueManagerApi,
    QueueType,
    Seek,
    Share,
    TransactionApi,
)
from qmnode.model.message import Message
from qmnode.model.serialization import Destination, Travelling
from qmnode.model.stored_message import received_message
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import Guid
from qmnode.structures.names import QueueNameError, parse_single_format_name

F = TypeVar("F", bound=Callable[..., Any])

Address = str | Path | Sequence[str | Path] | None
"""The path of a node's socket, or several."""
_DONE_ONCE: Final = frozenset({"backup", "create_queue", "delete_queue", "reset_incoming_sequences"})
"""Methods that would fail, or do harm, if they were called again after they were done."""
DEFAULT_SOCKET: Final = "/run/qmnode/qmnode.sock"
SOCKET_VARIABLE: Final = "QMNODE_SOCKET"
"""Environment variable with the socket of the node, for ``connect()`` without an address."""
_IDENTIFIER: Final = 20
_SEVERAL_QUEUES: Final = parse_single_format_name("DIRECT=OS:.\\private$\\.")
"""Stands for a name that no packet can carry: the node makes a message for each queue that it means."""
_UNREACHABLE: Final = ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE


def _at_node(method: F) -> F:
    """The method of a queue manager that calls it in the node."""
    name, parameters = method.__name__, inspect.signature(method)

    async def call(self: "RemoteQueueManager", /, *arguments: Any, **keywords: Any) -> Any:
        given = parameters.bind(self, *arguments, **keywords)
        given.apply_defaults()
        return await self._call(name, *given.args[1:], **given.kwargs)

    return cast("F", functools.wraps(method, updated=())(call))


class RemoteQueueManager(QueueManagerApi):
    """The node behind a Unix socket. Closing it closes what was opened through it."""

    def __init__(self, line: Line, directory_login: DirectoryLogin | None = None) -> None:
        self.line = line
        self.operations = RemoteOperations(line)
        self.identifier = Guid(line.hello["identifier"])
        self.computer_name = line.hello["computer_name"]
        self._last_transaction = 0
        self._login = directory_login

    @classmethod
    async def connect(
        cls, address: Address = None, directory_login: DirectoryLogin | None = None, reconnect: float = RECONNECT
    ) -> Self:
        """Connect to a node; see :func:`connect`."""
        line = Line(_paths(address), _checked(reconnect))
        await line.open()
        return cls(line, directory_login)

    @property
    def connection(self) -> Connection:
        """The connection that calls are made over now; another one follows when it is lost."""
        return self.line.connection

    async def _call(self, name: str, *arguments: object, **keywords: object) -> Any:
        if self._login is not None and name in PUBLISHING:
            keywords[LOGIN] = [self._login.account, self._login.password]

        async def attempt(connection: Connection) -> Any:
            return await connection.method("manager", 0, name, arguments, **keywords)

        return await (self.line.once(name, attempt) if name in _DONE_ONCE else self.line.repeat(attempt))

    create_queue = _at_node(QueueManagerApi.create_queue)
    delete_queue = _at_node(QueueManagerApi.delete_queue)
    set_queue = _at_node(QueueManagerApi.set_queue)
    queue = _at_node(QueueManagerApi.queue)
    pause_queue = _at_node(QueueManagerApi.pause_queue)
    resume_queue = _at_node(QueueManagerApi.resume_queue)
    status = _at_node(QueueManagerApi.status)
    set_online = _at_node(QueueManagerApi.set_online)
    list_transactions = _at_node(QueueManagerApi.list_transactions)
    queue_security = _at_node(QueueManagerApi.queue_security)
    queue_manager_security = _at_node(QueueManagerApi.queue_manager_security)
    set_queue_manager_security = _at_node(QueueManagerApi.set_queue_manager_security)
    refused_messages = _at_node(QueueManagerApi.refused_messages)
    waiting = _at_node(QueueManagerApi.waiting)
    reset_incoming_sequences = _at_node(QueueManagerApi.reset_incoming_sequences)

    async def queues(self, kinds: Sequence[QueueType] | None = None) -> list[QueueInformation]:
        found: list[QueueInformation] = await self._call("queues", kinds and [kind.value for kind in kinds])
        return found

    async def find_queues(
        self, *, label: str | None = None, type: Guid | None = None, computer: str | None = None
    ) -> list[QueueInformation]:
        async def search(connection: Connection) -> list[QueueInformation]:
            number = await connection.method("manager", 0, "find_queues", label=label, type=type, computer=computer)
            found: list[QueueInformation] = []
            while page := await connection.method("search", number, "next", ()):
                found += page
            return found

        return await self.line.repeat(search)

    async def open_queue(
        self, format_name: str, access: Access = Access.RECEIVE, share: Share = Share.DENY_NONE
    ) -> QueueApi:
        """Open a queue: the event Open Queue (3.1.7.1.5)."""

        async def open_on(connection: Connection) -> RemoteQueue:
            asked = [format_name, int(access), int(share)]
            handle, name = await connection.method("manager", 0, "open_queue", asked)
            return RemoteQueue(self, connection, handle, name, access, share)

        return await self.line.repeat(open_on)

    def transaction(self) -> TransactionApi:
        """Create Transaction (3.1.7.1.8). The node hears of it with the first call that is part of it."""
        self._last_transaction += 1
        return RemoteTransaction(self, self._last_transaction)

    async def account_names(self, security_identifiers: Sequence[str]) -> dict[str, str | None]:
        names: dict[str, str | None] = await self._call("account_names", list(security_identifiers))
        return names

    async def incoming_sequences(self, name: str = "") -> list[IncomingSequenceInformation]:
        """The sequences of transactional messages that come to a queue, or to any; a node of the first release shows
        none."""
        if ADDED_FIELDS not in self.line.hello:
            return []
        found: list[IncomingSequenceInformation] = await self._call("incoming_sequences", name)
        return found

    async def backup(self, path: str | Path) -> None:
        """Write a copy of the store; the directory is one of the node's machine."""
        await self._call("backup", _absolute(path))

    async def close(self) -> None:
        """Close the connection; the node aborts what was not committed."""
        await self.line.close()


class _Connecting:
    """``async with connect() as qm`` and ``qm = await connect()``."""

    def __init__(self, address: Address, directory_login: DirectoryLogin | None, reconnect: float) -> None:
        self._asked = address, directory_login, reconnect
        self._manager: RemoteQueueManager | None = None

    def __await__(self) -> Any:
        return RemoteQueueManager.connect(*self._asked).__await__()

    async def __aenter__(self) -> RemoteQueueManager:
        self._manager = await RemoteQueueManager.connect(*self._asked)
        return self._manager

    async def __aexit__(self, *_: object) -> None:
        if self._manager is not None:
            await self._manager.close()


def connect(
    address: Address = None, directory_login: DirectoryLogin | None = None, reconnect: float = RECONNECT
) -> _Connecting:
    """Connect to the node that runs as a service: ``async with qmnode.connect() as qm:``.

    ``address`` is the path of its socket, with or without ``unix:``; without it the environment variable
    QMNODE_SOCKET counts, and then ``/run/qmnode/qmnode.sock``. Of several addresses of one node the next is tried if
    one does not answer within a second. MQ_ERROR_SERVICE_NOT_AVAILABLE if nobody answers.

    A lost connection is made again within ``reconnect`` seconds (0: never), by the next call or by those under way:
    what was sent or received is neither lost nor doubled, and open queues stay open. A transaction is aborted with its
    connection, and its next call raises MQ_ERROR_TRANSACTION_SEQUENCE; a commit under way is decided. Cursors are lost,
    and of calls that change queues MQ_ERROR_SERVICE_NOT_AVAILABLE says that they may have been done.

    ``directory_login`` is the user as whom the directory is changed where this application creates, changes or deletes
    public queues; by default, and where the enterprise has weakened security, that is the node.
    """
    return _Connecting(address, directory_login, reconnect)


def _paths(address: Address) -> list[Path]:
    given = address or os.environ.get(SOCKET_VARIABLE) or DEFAULT_SOCKET
    each = [given] if isinstance(given, str | Path) else given
    return [Path(str(one).removeprefix("unix:")) for one in each]


def _checked(reconnect: float) -> float:
    if not 0 <= reconnect <= LONGEST:
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_INVALID_PARAMETER, f"reconnect is 0 to {LONGEST:g} seconds, not {reconnect!r}"
        )
    return reconnect


def _absolute(path: str | Path) -> str:
    """As the node, which works in another directory, understands it."""
    return str(Path(path).absolute())


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

    async def call(self, connection: Connection, kind: FrameKind, *parts: bytes) -> Frame:
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
        await self.call(self.connection, FrameKind.CALL, values.encode(["transaction", number, "prepare", [], {}]))

    async def commit(self) -> None:
        """Commit: the event Transaction Commit (3.1.4.4). If the connection is lost, the next one decides it."""
        number, line = await self.begin(), self.manager.line
        self._ended = True
        slot, call = line.take_slot(), self.connection.take_number()
        asked = [True, slot, call] if slot else [True]
        try:
            started = self.connection.start(
                FrameKind.CALL, values.encode(["transaction", number, "end", asked, {}]), number=call
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


_RECEIVED_TOGETHER: Final = 64
"""Callers that receive with one call at most. Others have calls of their own, so that messages meet one that waits."""
_LARGE: Final = 16 * 1024
"""Bytes of a message that is received with a call of its own."""


class _Caller(asyncio.Future[Message]):
    """A caller that receives one message, with a call that others share.

    When it is cancelled it cancels that at the node, and gets a message that was on its way. The others ask again.
    """

    __slots__ = ("answer", "has_given_up")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self.answer: Answer | None = None
        self.has_given_up = False

    def cancel(self, msg: object = None) -> bool:
        if self.answer is None or self.has_given_up or self.done():
            return super().cancel(msg)
        self.has_given_up = True
        if not self.answer.is_cancelled_at_node:
            self.answer.cancel()
        return False

    def lose_call(self) -> None:
        """Note that the call has no answer. A caller that has given up ends without a message."""
        self.answer = None
        if self.has_given_up and not self.done():
            super().cancel()


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
        self._receiving: set[asyncio.Task[None]] = set()
        self._callers: list[_Caller] = []
        """Those that receive with the next call."""
        self._together = _RECEIVED_TOGETHER
        """The number that may share it. Large messages come with calls of their own, whose answers are not copied."""
        self._left_over: deque[Message] = deque()
        """Messages whose callers were cancelled while the connection was lost. Others get them."""
        self._under_way: set[Answer] = set()
        """The calls of callers that wait."""

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
            self._later(self._sending, self._send_batch(batch))
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
            self._later(self._sending, self._send_batch(batch, call._replace(error=error)))
            return
        self._line.free_slot(slot)
        batch.settle(_outcomes(answer.result()) if error is None else repeat(error))

    def _later(self, tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

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
            return _identifiers((await unit.call(connection, FrameKind.SEND, head, *pack_sent(items))).body)
        answer = await self._send_again(items, _single(transaction), TOGETHER)
        if answer.kind == FrameKind.FAILED:
            raise failure(answer)
        return _identifiers(answer.body)

    def _start(self, items: list[Sent], transaction: int, how: int, number: int = 0) -> Answer:
        head = SEND_HEAD.pack(self.handle, transaction, how, len(items))
        return self.connection.start(FrameKind.SEND, head, *pack_sent(items), number=number)

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
            return _messages(await unit.call(connection, FrameKind.RECEIVE, head))
        if self._left_over and limit:
            return [self._left_over.popleft()]
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
                started = connection.start(FrameKind.RECEIVE, head, number=number)
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
        """Take a message out: the event Dequeue Message (3.1.7.1.10). Calls that are made at the same time, and wait
        for ever, travel together.
        """
        if timeout is not None or transaction is not None or TOGETHER_FIELD not in self._line.hello:
            return (await self._ask(1, timeout, transaction))[0]
        caller = _Caller(self._loop)
        self._receive_soon([caller])
        try:
            return await caller
        except asyncio.CancelledError:
            if caller.cancelled() or caller.exception() is not None:
                raise
            return caller.result()

    def _receive_soon(self, callers: list[_Caller]) -> None:
        if not self._callers:
            self._loop.call_soon(self._receive_together)
        self._callers += callers

    def _receive_together(self) -> None:
        """Make the calls of those that receive now."""
        callers, self._callers = [one for one in self._callers if not one.done()], []
        if some := callers[: len(self._left_over)]:
            self._share(some, [self._left_over.popleft() for _ in some], None)
            callers = callers[len(some) :]
        elif self._left_over and (calls := [one for one in self._under_way if not one.is_cancelled_at_node]):
            calls[0].cancel()  # its callers ask again, and get what is left over
        for at in range(0, len(callers), self._together):
            some = callers[at : at + self._together]
            connection, slot = self.connection, 0
            if connection is not self._line.connection or connection.is_lost or not (slot := self._line.take_slot()):
                self._later(self._receiving, self._receive_again(some))
                continue
            self._receive_over(connection, some, slot)

    def _receive_over(self, connection: Connection, callers: list[_Caller], slot: int, number: int = 0) -> None:
        """Make the call of these callers, or make it again with the same number."""
        head = RECEIVE_HEAD.pack(
            self.handle, NO_TRANSACTION, max(1, sum(not caller.done() for caller in callers)), FOR_EVER
        )
        if slot:
            head += SLOT.pack(slot << SLOT_SHIFT | TOGETHER | (REPEATED if number else 0))
        answer = connection.start(FrameKind.RECEIVE, head, number=number)
        for caller in callers:
            caller.answer = answer
        self._under_way.add(answer)
        answer.add_done_callback(partial(self._received_together, callers, _Lost(connection, answer.number, slot)))
        if all(caller.done() for caller in callers):
            answer.cancel()  # an answer that the lost call had comes all the same

    def _received_together(self, callers: list[_Caller], call: _Lost, answer: asyncio.Future[Frame]) -> None:
        self._under_way.discard(cast("Answer", answer))
        error = answer.exception()
        if isinstance(error, LostError):
            for caller in callers:
                caller.lose_call()
            self._later(self._receiving, self._receive_again(callers, call._replace(error=error)))
            return
        self._line.free_slot(call.slot)
        messages: list[Message] = []
        try:
            if error is None and (frame := answer.result()).kind == FrameKind.FAILED:
                error = failure(frame)
            elif error is None:
                messages = _messages(frame)
                self._together = _RECEIVED_TOGETHER if len(frame.data) < _LARGE * len(messages) else 1
        except Exception as malformed:
            error = malformed
        self._share(callers, messages, error)

    async def _receive_again(self, callers: list[_Caller], lost: _Lost | None = None) -> None:
        """Receive over the next connection, or without a mark."""
        try:
            if lost is not None:
                await self._line.renewed(lost.connection, lost.error)
            slot, number = (self._line.take_slot(), 0) if lost is None else (lost.slot, lost.slot and lost.number)
            while True:
                connection = await self._opened()
                try:
                    self._receive_over(connection, callers, slot, number)
                    return
                except LostError as error:
                    await self._line.renewed(connection, error)
        except asyncio.CancelledError:  # the program ends
            for caller in callers:
                caller.lose_call()
                caller.cancel()
            raise
        except Exception as error:
            self._share(callers, [], error)

    def _share(self, callers: list[_Caller], messages: list[Message], error: BaseException | None) -> None:
        """Give each a message, or the error; those without one ask again. Callers that have given up come last."""
        if any(caller.has_given_up for caller in callers):
            callers.sort(key=lambda caller: caller.has_given_up)
        is_cancelled = isinstance(error, MessageQueuingError) and error.code == ErrorCode.MQ_ERROR_OPERATION_CANCELLED
        left = iter(messages)
        again_soon = []
        for caller in callers:
            if caller.done():
                continue
            if (message := next(left, None)) is not None:
                caller.set_result(message)
            elif caller.has_given_up:
                caller.lose_call()
            elif error is None or is_cancelled:
                caller.answer = None
                again_soon.append(caller)
            else:
                caller.set_exception(again(error) if isinstance(error, MessageQueuingError) else error)
                if isinstance(error, MessageQueuingError) and error.code == ErrorCode.MQ_ERROR_MESSAGE_ALREADY_RECEIVED:
                    error = None  # a large message was lost with the connection, which one of them learns
        self._left_over += left
        if again_soon or self._left_over:
            self._receive_soon(again_soon)

    async def receive_many(
        self, limit: int, timeout: float | None = None, transaction: InTransaction = None
    ) -> list[Message]:
        """Dequeue Message, up to ``limit`` times."""
        return await self._ask(min(max(limit, 0), 0xFFFFFFFF), timeout, transaction)

    async def peek(self, timeout: float | None = None) -> Message:
        """Look at a message: the event Peek Message (3.1.7.1.15)."""

        def ask(connection: Connection) -> Awaitable[Frame]:
            return connection.call(FrameKind.PEEK, RECEIVE_HEAD.pack(self.handle, NO_TRANSACTION, 1, _seconds(timeout)))

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
                    answer = await unit.call(connection, FrameKind.CALL, parts)
                else:
                    answer = await connection.call(FrameKind.CALL, parts)
                return connection, answer if answer.kind == FrameKind.MESSAGES else values.decode(answer.body)
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
    size, parts = travelling.pack(message)
    more = b""
    if len(parts) == 1 and not REQUESTS.isdisjoint(message.__dict__):  # one that has only content is in several parts
        more = values.encode({name: value for name, value in message.__dict__.items() if name in REQUESTS})
    return size, parts, more


def _messages(answer: Frame) -> list[Message]:
    return [received_message(lookup, value) for lookup, value in unpack_received(answer.data)]


def _outcomes(answer: Frame) -> Iterable[bytes | MessageQueuingError]:
    """The identifier or the error of each message of a batch, in its order."""
    if answer.kind == FrameKind.FAILED:
        return repeat(failure(answer))
    if answer.kind == FrameKind.MIXED:
        return [one if isinstance(one, bytes) else values.decode_error(one) for one in values.decode(answer.body)]
    return _identifiers(answer.body)


def _identifiers(body: bytes) -> list[bytes]:
    return [body[at : at + _IDENTIFIER] for at in range(0, len(body), _IDENTIFIER)]
