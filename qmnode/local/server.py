"""The node's side of the socket: what a connection opened and began ends with it, at the latest."""

import asyncio
import contextlib
import inspect
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import structlog

from qmnode.administration.asker import Asker
from qmnode.administration.guarded import GuardedQueueManager
from qmnode.errors import MessageQueuingError
from qmnode.local import values
from qmnode.local.changes import CHANGES, Auditor, LocalChange, properties_of, target_of
from qmnode.local.frames import (
    ADDED_FIELDS,
    GREETING,
    NO_TRANSACTION,
    PROTOCOL_VERSION,
    RECEIVE_HEAD,
    REQUESTS,
    SEND_HEAD,
    SINGLE_TRANSACTION,
    Frame,
    FrameError,
    FrameReader,
    Kind,
    frame_parts,
    pack_received,
    unpack_sent,
)
from qmnode.local.receives import Receives
from qmnode.model.api import Access, CursorApi, InTransaction, QueueApi, QueueManagerApi, Share, TransactionApi
from qmnode.model.message import DEFAULTS, Message
from qmnode.model.open_queue import OpenQueueDescriptor
from qmnode.model.packet import message_from_packet, whole_value
from qmnode.model.ports import Entry
from qmnode.model.queue_manager import QueueManager
from qmnode.security.principals import Principals
from qmnode.settings.node import LocalSettings
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.errors import PacketError
from qmnode.unix_sockets import bind_unix_socket, peer_credentials, peer_groups

if TYPE_CHECKING:
    from qmnode.administration.operations import Operations

_WRITE_LIMIT: Final = 4 * 1024 * 1024
"""Bytes of answers that wait for a slow application before its calls are no longer read."""
MAXIMUM_CALLS: Final = 8192
"""Calls of one connection under way before its next ones are no longer read."""
NOT_UNDERSTOOD: Final = (FrameError, TypeError, ValueError, KeyError, struct.error)
"""Exceptions for what an application asks that means nothing here."""

Outcome = tuple[Kind, Sequence[bytes]]
"""The kind of an answer, and the parts of its body."""

log = structlog.get_logger(__name__)


class LocalServer:
    """Listens on a Unix socket for applications of this machine."""

    def __init__(
        self,
        manager: QueueManager,
        settings: LocalSettings,
        audit: Auditor | None = None,
        complete: bool = True,
        principals: Principals | None = None,
    ) -> None:
        """While the queue manager is not ``complete``, all calls but those for its status wait.

        ``principals`` says who applications are; without it that is as in a workgroup.
        """
        self.manager = manager
        self.principals = principals or Principals(manager.settings.security)
        self.settings = settings
        self.path = settings.socket
        self.audit = audit
        self.operations: Operations | None = None
        """Set when the queue manager is complete, if it has any."""
        self.connections: set[LocalConnection] = set()
        self._server: asyncio.Server | None = None
        self.stopping = False
        self.completed = asyncio.Event()
        if complete:
            self.completed.set()

    def complete(self, operations: "Operations | None" = None) -> None:
        """The queue manager can do everything from now on; calls that wait for that go on, the oldest first."""
        self.operations = operations
        self.completed.set()

    async def start(self) -> None:
        """Listen for applications. The socket of a killed node is replaced; one that answers is not."""
        listener = bind_unix_socket(self.path, self.settings.mode)
        self._server = await asyncio.get_running_loop().create_unix_server(lambda: LocalConnection(self), sock=listener)
        log.info("listening for applications", socket=str(self.path))

    async def stop(self) -> None:
        """Stop listening and end the connections; what each had open is run down."""
        if self._server is None:
            return
        self.stopping = True
        for listener in self._server.sockets:
            asyncio.get_running_loop().remove_reader(listener.fileno())
        for _ in range(3):  # a connection that was just accepted is made in the next passes; then it can be ended
            await asyncio.sleep(0)
        self._server.close()
        for connection in list(self.connections):
            connection.end()
        while self.connections:
            await asyncio.gather(*(connection.gone.wait() for connection in list(self.connections)))
        await self._server.wait_closed()
        self._server = None
        self.path.unlink(missing_ok=True)


class LocalConnection(asyncio.Protocol):
    """The connection of one application: its handles, cursors and transactions."""

    def __init__(self, server: LocalServer) -> None:
        self.server = server
        self.gone = asyncio.Event()
        self.user_id = -1
        self.refused = False
        """Whether there was no place for it: it takes none until it has ended."""
        self._groups: frozenset[int] = frozenset()
        self._guarded: GuardedQueueManager
        self._transport: asyncio.Transport
        self._greeting_deadline: asyncio.TimerHandle | None = None
        self._reader = FrameReader()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._handles: dict[int, QueueApi | CursorApi] = {}
        self._transactions: dict[int, TransactionApi] = {}
        self._last_handle = 0
        self._receives = Receives(self._received, self._failed)
        self._unstarted = 0
        """Tasks of calls that have not taken their first step."""
        self._answers: list[bytes] = []
        self._greeted = False
        self._encode = values.encode_for_first_release
        self._paused = False
        self._writable = True

    # The connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask the kernel for the user at the other end; called when an application connects."""
        self._transport = cast("asyncio.Transport", transport)
        if self.server.stopping:  # it was accepted just before, and nobody would ever end it
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=_WRITE_LIMIT)
        peer: socket.socket = transport.get_extra_info("socket")
        _, self.user_id = peer_credentials(peer)
        self._groups = peer_groups(peer)
        self.server.connections.add(self)
        settings, loop = self.server.settings, asyncio.get_running_loop()
        self._greeting_deadline = loop.call_later(settings.greeting_time, self._end_if_silent)
        self.refused = self._is_one_too_many()
        if self.refused:
            limit = settings.connections
            log.warning("an application was refused: too many are connected", limit=limit, user_id=self.user_id)
            refusal = MessageQueuingError(
                ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES, f"{limit} applications are connected (local.connections)"
            )
            self._answer(Kind.FAILED, 0, values.encode_error(refusal))
            self.end()

    def _is_one_too_many(self) -> bool:
        """Whether all places are taken, or half of them by this user. Root's are counted apart, so that the
        applications of others never keep it out."""
        limit = self.server.settings.connections
        users = [one.user_id for one in self.server.connections if not one.refused]
        own = users.count(self.user_id)
        if not self.user_id:
            return own > limit
        return len(users) - users.count(0) > limit or own > max(limit // 2, 1)

    def _stop_waiting(self) -> None:
        if self._greeting_deadline is not None:
            self._greeting_deadline.cancel()
            self._greeting_deadline = None

    def _end_if_silent(self) -> None:
        if not self._greeted:
            log.info("closing a connection of an application that says nothing", user_id=self.user_id)
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take calls of the application, whole or in pieces."""
        try:
            for call in self._reader.feed(data):
                self._take(call)
        except FrameError as error:
            log.warning(
                "closing a connection that does not speak the protocol", reason=str(error), user_id=self.user_id
            )
            self._answer(Kind.FAILED, 0, values.encode([int(ErrorCode.MQ_ERROR_INVALID_PARAMETER), str(error)]))
            self.end()
        self._adjust_reading()

    def pause_writing(self) -> None:
        """The application does not read its answers: read no more of its calls."""
        self._writable = False
        self._adjust_reading()

    def resume_writing(self) -> None:
        """Let answers be written again."""
        self._writable = True
        self._adjust_reading()

    def _adjust_reading(self) -> None:
        paused = not self._writable or len(self._tasks) + len(self._receives) >= MAXIMUM_CALLS
        if paused != self._paused and not self._transport.is_closing():
            self._paused = paused
            if paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def end(self) -> None:
        """Send what was answered and close."""
        self._flush()
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The application went away: run down what it had."""
        self._stop_waiting()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        self._receives.abandon()
        self._rundown = asyncio.get_running_loop().create_task(self._run_down(tasks))

    async def _run_down(self, tasks: "list[asyncio.Task[None]]") -> None:
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
            for handle in list(self._handles.values()):
                await handle.close()
            for transaction in list(self._transactions.values()):
                await transaction.abort()
        except MessageQueuingError as error:
            log.warning("what an application left behind could not all be closed", error=str(error))
        finally:
            self._handles.clear()
            self._transactions.clear()
            self.server.connections.discard(self)
            self.gone.set()

    # Calls

    def _take(self, call: Frame) -> None:
        if not self._greeted:
            self._greet(call)
            return
        if call.kind == Kind.CANCEL:
            self._cancel(call.number)
            return
        work = _WORK.get(call.kind)
        if work is None:
            raise FrameError(f"calls of kind {call.kind} are not known")
        if call.number in self._tasks or call.number in self._receives:
            raise FrameError(f"two calls with the number {call.number}")
        # Calls that came before and have not begun are done first.
        if call.kind == Kind.RECEIVE and not self._unstarted and self._begin_receive(call):
            return
        self._unstarted += 1
        self._tasks[call.number] = asyncio.get_running_loop().create_task(self._perform(work, call))

    def _cancel(self, number: int) -> None:
        task = self._tasks.get(number)
        if task is not None:
            # After its first step, when both came together: a task that is cancelled before it never runs.
            asyncio.get_running_loop().call_soon(task.cancel)
        elif self._receives.cancel(number):
            self._failed(number, _cancelled())

    def _greet(self, call: Frame) -> None:
        hello = values.decode(call.body) if call.kind == Kind.HELLO else None
        if not isinstance(hello, dict):
            raise FrameError("the first frame is a hello")
        if hello.get("version") != PROTOCOL_VERSION:
            raise FrameError(
                f"the application speaks version {hello.get('version')} of the protocol, the node {PROTOCOL_VERSION}: "
                "install the same qmnode on both sides"
            )
        self._greeted = True
        self._stop_waiting()
        if hello.get(ADDED_FIELDS) is True:
            self._encode = values.encode
        manager = self.server.manager
        answer = GREETING | {"computer_name": manager.computer_name}
        self._answer(Kind.RESULT, call.number, values.encode(answer | {"identifier": bytes(manager.identifier)}))

    def _begin_receive(self, call: Frame) -> bool:
        """Begin a receive outside of transactions. False leaves it to a task."""
        if len(call.body) != RECEIVE_HEAD.size or not self.server.completed.is_set():
            return False
        handle, transaction, limit, timeout = RECEIVE_HEAD.unpack(call.body)
        queue = self._handles.get(handle)
        if transaction not in _NO_UNIT or not limit or not isinstance(queue, OpenQueueDescriptor):
            return False
        try:
            self._receives.start(call.number, queue, limit, _seconds(timeout))
        except Exception as error:
            self._failed(call.number, error)
        return True

    def _received(self, number: int, entries: list[Entry]) -> None:
        self._answer(Kind.MESSAGES, number, *pack_received(entries))
        if self._paused:
            self._adjust_reading()

    def _failed(self, number: int, error: Exception) -> None:
        self._answer(Kind.FAILED, number, values.encode(self._error_value(error)))
        if self._paused:
            self._adjust_reading()

    def _error_value(self, error: Exception) -> Any:
        if isinstance(error, MessageQueuingError):
            return values.error_value(error)
        if isinstance(error, NOT_UNDERSTOOD):
            return _not_understood(error)
        # A mistake of ours must cost the application one call, not the connection.
        log.error("a call failed unexpectedly", user_id=self.user_id, exc_info=error)
        return [int(ErrorCode.MQ_ERROR), "the node failed at this call; its log says why"]

    async def _perform(self, work: "Work", call: Frame) -> None:
        self._unstarted -= 1
        try:
            if not self.server.completed.is_set() and not _asks_for_status(call):
                await self.server.completed.wait()
            kind, parts = await work(self, call.body)
        except asyncio.CancelledError:
            if self._transport.is_closing():
                raise
            kind, parts = Kind.FAILED, (values.encode_error(_cancelled()),)
        except Exception as error:
            kind, parts = Kind.FAILED, (values.encode(self._error_value(error)),)
        finally:
            del self._tasks[call.number]
            if self._paused:
                self._adjust_reading()
        self._answer(kind, call.number, *parts)

    def _answer(self, kind: Kind, number: int, *parts: bytes) -> None:
        if not self._answers:
            asyncio.get_running_loop().call_soon(self._flush)
        self._answers += frame_parts(kind, number, *parts)

    def _flush(self) -> None:
        answers, self._answers = self._answers, []
        if answers and not self._transport.is_closing():
            self._transport.write(b"".join(answers))
            self._receives.sent()

    # The calls

    def _queue(self, handle: int) -> QueueApi:
        queue = self._handles.get(handle)
        if not isinstance(queue, QueueApi):
            raise MessageQueuingError(ErrorCode.MQ_ERROR_INVALID_HANDLE, "the queue was closed: open it again")
        return queue

    def _cursor(self, handle: int) -> CursorApi:
        cursor = self._handles.get(handle)
        if not isinstance(cursor, CursorApi):
            raise MessageQueuingError(ErrorCode.MQ_ERROR_INVALID_HANDLE, "the cursor was closed: open it again")
        return cursor

    def _transaction(self, number: int) -> InTransaction:
        if number == NO_TRANSACTION:
            return None
        if number == SINGLE_TRANSACTION:
            return "single"
        transaction = self._transactions.get(number)
        if transaction is None:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE, "the transaction has ended: begin another one"
            )
        return transaction

    def _check_room(self) -> None:
        """Before anything is opened or begun."""
        limit = self.server.settings.handles
        if len(self._handles) + len(self._transactions) >= limit:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES,
                f"this application has {limit} queues, cursors and transactions open (local.handles): close some",
            )

    def _register(self, thing: QueueApi | CursorApi) -> int:
        self._last_handle += 1
        self._handles[self._last_handle] = thing
        return self._last_handle

    async def send(self, body: bytes) -> Outcome:
        """Send a batch: as one, or each for itself."""
        handle, transaction, together, count = SEND_HEAD.unpack_from(body)
        queue, unit = self._queue(handle), self._transaction(transaction)
        items = unpack_sent(body, SEND_HEAD.size, count)
        try:
            messages = [_message(*item) for item in items]
        except NOT_UNDERSTOOD:
            if together or unit is not None:
                raise
        else:
            try:
                # One write for all of them when nothing is wrong, which is how it nearly always is.
                return Kind.IDENTIFIERS, await queue.send_many(messages, unit)
            except MessageQueuingError:
                if together or unit is not None:
                    raise
        outcomes = await asyncio.gather(*(_send_alone(queue, *item) for item in items), return_exceptions=True)
        return Kind.MIXED, (values.encode([_outcome(outcome) for outcome in outcomes]),)

    async def receive(self, body: bytes) -> Outcome:
        """Receive up to a number of messages."""
        handle, transaction, limit, timeout = RECEIVE_HEAD.unpack(body)
        queue, unit = self._queue(handle), self._transaction(transaction)
        messages = await queue.receive_many(limit, _seconds(timeout), unit)
        if transaction in _NO_UNIT and isinstance(queue, OpenQueueDescriptor):
            self._receives.hand_over(queue, [_entry(message) for message in messages])
        return Kind.MESSAGES, _pack_messages(messages)

    async def peek(self, body: bytes) -> Outcome:
        """Peek at the first message."""
        handle, _, _, timeout = RECEIVE_HEAD.unpack(body)
        return Kind.MESSAGES, _pack_messages([await self._queue(handle).peek(_seconds(timeout))])

    async def call(self, body: bytes) -> Outcome:
        """Any other method: ``[what, handle, method, arguments, keywords]``."""
        what, handle, method, arguments, keywords = values.decode(body)
        # ``begin`` asks for no right, and a call with its transaction may come next.
        if what in ("manager", "operations") and method != "begin":
            await self._admit()
        allowed, target = self._target(what, handle)
        if method not in allowed:
            raise FrameError(f"there is no call {what}.{method}")
        with self._audited(method, target, arguments, keywords):
            if "transaction" in keywords:
                keywords["transaction"] = self._transaction(keywords["transaction"])
            if what == "operations":
                result = await getattr(target, method)(self._asker(), *arguments, **keywords)
            elif method in _OWN:
                result = await _OWN[method](self, handle, *arguments, **keywords)
            else:
                result = await getattr(target, method)(*arguments, **keywords)
        if isinstance(result, Message):
            return Kind.MESSAGES, _pack_messages([result])
        return Kind.RESULT, (self._encode(result),)

    async def _admit(self) -> None:
        """See who the application is, and what the queue manager is to it. It is remembered, by user and groups."""
        server = self.server
        if server.completed.is_set():
            principal = await server.principals.of_local_user(self.user_id, self._groups)
        else:  # asked for the status, while the directory may not be there yet
            principal = server.principals.of_unix_user(self.user_id, self._groups)
        self._guarded = GuardedQueueManager(server.manager, principal, self._repaired)

    def _repaired(self, operation: str, name: str) -> None:
        """Report an operation that only an administrator could do to the audit log."""
        if self.server.audit is not None:
            self.server.audit(LocalChange(self.user_id, "repair", name, (operation,), "done", None))

    @contextlib.contextmanager
    def _audited(self, method: str, target: object, arguments: list[Any], keywords: dict[str, Any]) -> Iterator[None]:
        """Report a change to the audit log, however it ends."""
        audit = self.server.audit
        if audit is None or method not in CHANGES:
            yield
            return
        name = target.format_name if isinstance(target, QueueApi) else target_of(arguments)
        outcome, problem = "aborted", None
        try:
            yield
            outcome = "done"
        except MessageQueuingError as error:
            outcome = "denied" if error.code == ErrorCode.MQ_ERROR_ACCESS_DENIED else "failed"
            problem = error.name
            raise
        finally:
            audit(LocalChange(self.user_id, method, name, properties_of(keywords), outcome, problem))

    def _target(self, what: str, handle: int) -> tuple[frozenset[str], object]:
        match what:
            case "manager":
                return _MANAGER_METHODS, getattr(self, "_guarded", None)
            case "queue":
                return _QUEUE_METHODS, self._queue(handle)
            case "cursor":
                return _CURSOR_METHODS, self._cursor(handle)
            case "transaction":
                return _TRANSACTION_METHODS, self._transaction(handle)
            case "operations":
                return _OPERATION_METHODS, self._operations()
            case _:
                raise FrameError(f"there are no calls on a {what}")

    def _operations(self) -> "Operations":
        if self.server.operations is None:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_UNSUPPORTED_OPERATION, "this queue manager has no operations on messages"
            )
        return self.server.operations

    def _asker(self) -> Asker:
        return Asker(f"uid:{self.user_id}", principal=self._guarded.principal)

    async def _open_queue(self, _: int, format_name: str, access: int, share: int) -> list[Any]:
        self._check_room()
        queue = await self._guarded.open_queue(format_name, Access(access), Share(share))
        queue.user_id = self.user_id
        return [self._register(queue), queue.format_name]

    async def _begin(self, _: int, number: int) -> bytes:
        if number in (NO_TRANSACTION, SINGLE_TRANSACTION) or number in self._transactions:
            raise FrameError(f"a transaction cannot have the number {number}")
        self._check_room()
        transaction = self._transactions[number] = self.server.manager.transaction()
        return bytes(transaction.identifier)

    async def _end_transaction(self, number: int, commit: bool) -> None:
        transaction = self._transaction(number)
        assert isinstance(transaction, TransactionApi)
        del self._transactions[number]
        await (transaction.commit() if commit else transaction.abort())

    async def _open_cursor(self, handle: int) -> int:
        self._check_room()
        return self._register(self._queue(handle).cursor())

    async def _close_handle(self, handle: int) -> None:
        await self._handles.pop(handle).close()

    async def _move(self, handle: int, lookup: int, target: int, transaction: InTransaction = None) -> None:
        await self._queue(handle).move(lookup, self._queue(target), transaction)


Work = Callable[[LocalConnection, bytes], Awaitable[Outcome]]
_NO_UNIT: Final = (NO_TRANSACTION, SINGLE_TRANSACTION)
"""Numbers of receives that are outside of transactions, or are one themselves."""

_WORK: Final[dict[int, Work]] = {
    Kind.SEND: LocalConnection.send,
    Kind.RECEIVE: LocalConnection.receive,
    Kind.PEEK: LocalConnection.peek,
    Kind.CALL: LocalConnection.call,
}

_OWN: Final[dict[str, Callable[..., Awaitable[Any]]]] = {
    "open_queue": LocalConnection._open_queue,
    "begin": LocalConnection._begin,
    "end": LocalConnection._end_transaction,
    "cursor": LocalConnection._open_cursor,
    "close": LocalConnection._close_handle,
    "move": LocalConnection._move,
}
"""Methods in which handles stand for queues, cursors and transactions."""


def _methods(interface: type, *more: str, without: frozenset[str] = frozenset()) -> frozenset[str]:
    """The coroutine methods of an interface: those that an application may call through the socket."""
    own = {
        name
        for name, member in inspect.getmembers(interface, inspect.iscoroutinefunction)
        if not name.startswith("_") and name not in without
    }
    return frozenset(own.union(more))


_MANAGER_METHODS: Final = _methods(QueueManagerApi, "begin", without=frozenset({"close"}))
_QUEUE_METHODS: Final = _methods(QueueApi, "cursor")
_CURSOR_METHODS: Final = _methods(CursorApi)
_OPERATION_METHODS: Final = frozenset(
    {
        "find",
        "failures",
        "history",
        "edit",
        "import_messages",
        "start_job",
        "list_jobs",
        "show_job",
        "job_log",
        "control_job",
    }
)
_TRANSACTION_METHODS: Final = frozenset({"prepare", "end"})


def _asks_for_status(call: Frame) -> bool:
    return call.kind == Kind.CALL and values.decode(call.body)[:3] == ["manager", 0, "status"]


def _message(packet: bytes, more: bytes) -> Message:
    try:
        message = message_from_packet(packet)
    except PacketError as error:
        raise FrameError(f"a message that is no UserMessage packet: {error}") from error
    if more:
        properties = values.decode(more)
        if not isinstance(properties, dict) or not properties.keys() <= REQUESTS:
            raise FrameError("a message asks for what messages cannot ask for")
        for name, asked in properties.items():
            if not isinstance(asked, int if isinstance(DEFAULTS[name], int) else type(DEFAULTS[name])):
                raise FrameError(f"{name} of a message cannot be {asked!r}")
        return message.copy(**properties)
    return message


async def _send_alone(queue: QueueApi, packet: bytes, more: bytes) -> bytes:
    return await queue.send(_message(packet, more))


def _cancelled() -> MessageQueuingError:
    return MessageQueuingError(ErrorCode.MQ_ERROR_OPERATION_CANCELLED)


def _not_understood(error: BaseException) -> list[Any]:
    return [int(ErrorCode.MQ_ERROR_INVALID_PARAMETER), f"the call cannot be understood: {error}"]


def _entry(message: Message) -> Entry:
    return message.lookup_identifier, whole_value(message)


def _pack_messages(messages: list[Message]) -> list[bytes]:
    return pack_received(map(_entry, messages))


def _outcome(outcome: bytes | BaseException) -> Any:
    if isinstance(outcome, MessageQueuingError):
        return values.error_value(outcome)
    if isinstance(outcome, NOT_UNDERSTOOD):
        return _not_understood(outcome)
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def _seconds(timeout: float) -> float | None:
    return None if timeout < 0 else timeout
