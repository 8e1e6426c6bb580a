"""The interface of :func:`qmnode.connect` for programs without asyncio: scripts, threads, Django, Jupyter.

    import qmnode

    with qmnode.sync.connect() as qm, qm.open_queue(r"DIRECT=OS:.\\private$\\orders") as queue:
        for message in queue:
            print(message.body)

Names, arguments and errors are those of :mod:`qmnode.model.api`; each call waits in the calling thread for its answer.
Threads may share all objects: calls that several threads make at the same time share one sync of the disk. One thread
with an event loop does the work for the whole process. A process that was forked connects again.
"""

import functools
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Iterator
from types import TracebackType
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar

from qmnode.local.connection import RECONNECT
from qmnode.local.loop_thread import BackgroundLoop, background_loop
from qmnode.local.operations import RemoteOperations
from qmnode.local.remote import Address, RemoteQueueManager
from qmnode.model.api import Access, CursorApi, DirectoryLogin, QueueApi, QueueManagerApi, Share, TransactionApi
from qmnode.model.message import Message
from qmnode.structures.guid import Guid

__all__ = ["Cursor", "InTransaction", "Operations", "Queue", "QueueManager", "Transaction", "connect"]

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class _Face:
    """A stand-in for an object of the asyncio interface: every call runs in the background loop."""

    _inner: Any
    _loop: BackgroundLoop

    def _run(self, method: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **keywords: P.kwargs) -> T:
        return self._loop.run(lambda: method(*args, **keywords))


def _documented_as(method: Callable[..., Any]) -> Callable[[F], F]:
    """The docstring of the method that a method stands in for."""

    def document(function: F) -> F:
        function.__doc__ = method.__doc__
        return function

    return document


def _blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """The same method, for a caller that waits for its answer."""
    name = method.__name__

    def call(self: _Face, /, *args: P.args, **keywords: P.kwargs) -> T:
        work: Callable[P, Coroutine[Any, Any, T]] = getattr(self._inner, name)
        return self._run(work, *args, **keywords)

    return functools.wraps(method, updated=())(call)


def _iterating(method: Callable[Concatenate[Any, P], AsyncIterator[T]]) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """The same iterator, for a caller that waits for each of its values."""
    name = method.__name__

    def iterate(self: _Face, /, *args: P.args, **keywords: P.kwargs) -> Iterator[T]:
        values: AsyncIterator[T] = getattr(self._inner, name)(*args, **keywords)

        async def following() -> tuple[T, ...]:
            async for value in values:
                return (value,)
            return ()

        try:
            while found := self._run(following):
                yield from found
        finally:
            if isinstance(values, AsyncGenerator):  # it may have a queue open, and its reader may have left early
                self._run(values.aclose)

    return functools.wraps(method, updated=())(iterate)


class _Closing(_Face):
    """With ``close``, which happens at the end of a ``with`` block or when nobody refers to the object any more."""

    def __init__(self, inner: Any, loop: BackgroundLoop) -> None:
        self._inner = inner
        self._loop = loop
        self._dropped = weakref.finalize(self, loop.post, inner.close)
        self._dropped.atexit = False

    def close(self) -> None:
        """Close it. Closing again does nothing."""
        if self._dropped.detach() is not None:
            self._run(self._inner.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Transaction(_Face):
    """A unit of work. As a context manager it commits, or aborts when the block raises."""

    _inner: TransactionApi

    def __init__(self, inner: TransactionApi, loop: BackgroundLoop, owner: "QueueManager") -> None:
        self._inner = inner
        self._loop = loop
        self._owner = owner

    @property
    def identifier(self) -> Guid:
        """Its identifier, once a call was part of it."""
        return self._inner.identifier

    prepare = _blocking(TransactionApi.prepare)
    commit = _blocking(TransactionApi.commit)
    abort = _blocking(TransactionApi.abort)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.commit()
        else:
            self.abort()


InTransaction = Transaction | Literal["single"] | None


def _inner(transaction: InTransaction) -> TransactionApi | Literal["single"] | None:
    return transaction._inner if isinstance(transaction, Transaction) else transaction


class Cursor(_Closing):
    """A position that walks through a queue."""

    _inner: CursorApi

    def __init__(self, inner: CursorApi, loop: BackgroundLoop, owner: "Queue") -> None:
        super().__init__(inner, loop)
        self._owner = owner

    peek = _blocking(CursorApi.peek)
    peek_next = _blocking(CursorApi.peek_next)

    @_documented_as(CursorApi.receive)
    def receive(self, timeout: float | None = None, transaction: InTransaction = None) -> Message:
        return self._run(self._inner.receive, timeout, _inner(transaction))


class Queue(_Closing):
    """An open queue. ``timeout`` is in seconds: None waits for ever, 0 does not wait."""

    _inner: QueueApi

    def __init__(self, inner: QueueApi, loop: BackgroundLoop, owner: "QueueManager") -> None:
        super().__init__(inner, loop)
        self._owner = owner

    @property
    def format_name(self) -> str:
        """The format name that it was opened by."""
        return self._inner.format_name

    @property
    def access(self) -> Access:
        """The access that it was opened for."""
        return self._inner.access

    @property
    def share(self) -> Share:
        """The access that others have meanwhile."""
        return self._inner.share

    peek = _blocking(QueueApi.peek)
    peek_by_lookup_id = _blocking(QueueApi.peek_by_lookup_id)
    receive_begin = _blocking(QueueApi.receive_begin)
    receive_end = _blocking(QueueApi.receive_end)
    purge = _blocking(QueueApi.purge)

    @_documented_as(QueueApi.send)
    def send(self, message: Message, transaction: InTransaction = None) -> bytes:
        return self._run(self._inner.send, message, _inner(transaction))

    @_documented_as(QueueApi.send_many)
    def send_many(self, messages: Iterable[Message], transaction: InTransaction = None) -> list[bytes]:
        # A generator may call other methods, which cannot wait inside the loop.
        return self._run(self._inner.send_many, list(messages), _inner(transaction))

    @_documented_as(QueueApi.receive)
    def receive(self, timeout: float | None = None, transaction: InTransaction = None) -> Message:
        return self._run(self._inner.receive, timeout, _inner(transaction))

    @_documented_as(QueueApi.receive_many)
    def receive_many(
        self, limit: int, timeout: float | None = None, transaction: InTransaction = None
    ) -> list[Message]:
        return self._run(self._inner.receive_many, limit, timeout, _inner(transaction))

    @_documented_as(QueueApi.receive_by_lookup_id)
    def receive_by_lookup_id(self, lookup_identifier: int, transaction: InTransaction = None) -> Message:
        return self._run(self._inner.receive_by_lookup_id, lookup_identifier, _inner(transaction))

    @_documented_as(QueueApi.move)
    def move(self, lookup_identifier: int, target: "Queue", transaction: InTransaction = None) -> None:
        self._run(self._inner.move, lookup_identifier, target._inner, _inner(transaction))

    @_documented_as(QueueApi.cursor)
    def cursor(self) -> Cursor:
        return Cursor(self._inner.cursor(), self._loop, self)

    def __iter__(self) -> Iterator[Message]:
        """Receive for ever, waiting whenever the queue is empty."""
        while True:
            yield self.receive()


class Operations(_Face):
    """Operations on messages: find them, and move, copy, delete, return or replay all that are found."""

    _inner: RemoteOperations

    def __init__(self, inner: RemoteOperations, loop: BackgroundLoop, owner: "QueueManager") -> None:
        self._inner = inner
        self._loop = loop
        self._owner = owner

    find_page = _blocking(RemoteOperations.find_page)
    find = _iterating(RemoteOperations.find)
    trace = _blocking(RemoteOperations.trace)
    failures = _blocking(RemoteOperations.failures)
    history = _blocking(RemoteOperations.history)
    edit = _blocking(RemoteOperations.edit)
    import_messages = _blocking(RemoteOperations.import_messages)
    start_job = _blocking(RemoteOperations.start_job)
    jobs = _blocking(RemoteOperations.jobs)
    job = _blocking(RemoteOperations.job)
    job_log = _iterating(RemoteOperations.job_log)
    control_job = _blocking(RemoteOperations.control_job)
    apply_document = _blocking(RemoteOperations.apply_document)
    show_document = _blocking(RemoteOperations.show_document)


class QueueManager(_Closing):
    """The node behind a Unix socket. Closing it closes what was opened through it."""

    _inner: RemoteQueueManager

    @property
    def operations(self) -> Operations:
        """Operations on messages, and the jobs that do them."""
        return Operations(self._inner.operations, self._loop, self)

    @property
    def identifier(self) -> Guid:
        """The queue manager's identifier."""
        return self._inner.identifier

    @property
    def computer_name(self) -> str:
        """The queue manager's name."""
        return self._inner.computer_name

    create_queue = _blocking(QueueManagerApi.create_queue)
    delete_queue = _blocking(QueueManagerApi.delete_queue)
    set_queue = _blocking(QueueManagerApi.set_queue)
    queue = _blocking(QueueManagerApi.queue)
    queues = _blocking(QueueManagerApi.queues)
    find_queues = _blocking(QueueManagerApi.find_queues)
    pause_queue = _blocking(QueueManagerApi.pause_queue)
    resume_queue = _blocking(QueueManagerApi.resume_queue)
    status = _blocking(QueueManagerApi.status)
    set_online = _blocking(QueueManagerApi.set_online)
    list_transactions = _blocking(QueueManagerApi.list_transactions)
    queue_security = _blocking(QueueManagerApi.queue_security)
    account_names = _blocking(QueueManagerApi.account_names)
    queue_manager_security = _blocking(QueueManagerApi.queue_manager_security)
    set_queue_manager_security = _blocking(QueueManagerApi.set_queue_manager_security)
    incoming_sequences = _blocking(QueueManagerApi.incoming_sequences)
    refused_messages = _blocking(QueueManagerApi.refused_messages)
    waiting = _blocking(QueueManagerApi.waiting)
    reset_incoming_sequences = _blocking(QueueManagerApi.reset_incoming_sequences)
    backup = _blocking(QueueManagerApi.backup)

    @_documented_as(QueueManagerApi.open_queue)
    def open_queue(self, format_name: str, access: Access = Access.RECEIVE, share: Share = Share.DENY_NONE) -> Queue:
        return Queue(self._run(self._inner.open_queue, format_name, access, share), self._loop, self)

    @_documented_as(QueueManagerApi.transaction)
    def transaction(self) -> Transaction:
        async def begin() -> TransactionApi:
            return self._inner.transaction()  # in the loop, which gives each thread a number of its own

        return Transaction(self._run(begin), self._loop, self)


def connect(
    address: Address = None, directory_login: DirectoryLogin | None = None, reconnect: float = RECONNECT
) -> QueueManager:
    """Connect to the node that runs as a service: ``with qmnode.sync.connect() as qm:``.

    The arguments and errors are those of :func:`qmnode.connect`.
    """
    loop = background_loop()
    return QueueManager(loop.run(lambda: RemoteQueueManager.connect(address, directory_login, reconnect)), loop)
