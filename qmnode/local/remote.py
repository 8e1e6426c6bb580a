"""A queue manager that runs as a service, with the interface of one that runs in this process."""

import asyncio
import os
from collections.abc import Iterable, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any, Final, Self, Unpack

from qmnode.errors import MessageQueuingError
from qmnode.local import values
from qmnode.local.connection import Connection, again, failure
from qmnode.local.frames import (
    ADDED_FIELDS,
    BATCH_BYTES,
    FOR_EVER,
    NO_TRANSACTION,
    RECEIVE_HEAD,
    REQUESTS,
    SEND_HEAD,
    SINGLE_TRANSACTION,
    Frame,
    Kind,
    pack_sent,
    unpack_received,
)
from qmnode.local.operations import RemoteOperations
from qmnode.model.administration import IncomingSequenceInformation, NodeStatus, TransactionInformation
from qmnode.model.api import (
    Access,
    CursorApi,
    InTransaction,
    QueueApi,
    QueueInformation,
    QueueManagerApi,
    QueueProperties,
    QueueType,
    Seek,
    Share,
    TransactionApi,
)
from qmnode.model.message import Message
from qmnode.model.packet import received_message
from qmnode.model.record import PREFIX_SIZE
from qmnode.model.serialization import Destination, serialize
from qmnode.model.traffic import RefusedMessages
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import Guid
from qmnode.structures.names import QueueNameError, parse_single_format_name

DEFAULT_SOCKET: Final = "/run/qmnode/qmnode.sock"
SOCKET_VARIABLE: Final = "QMNODE_SOCKET"
"""Environment variable with the socket of the node, for ``connect()`` without an address."""
_IDENTIFIER: Final = 20
_SEVERAL_QUEUES: Final = parse_single_format_name("DIRECT=OS:.\\private$\\.")
"""Stands for a name that no packet can carry: the node makes a message for each queue that it means."""


class RemoteQueueManager(QueueManagerApi):
    """The node behind a Unix socket. Closing it closes what was opened through it."""

    def __init__(self, connection: Connection, hello: dict[str, Any]) -> None:
        self.connection = connection
        self.operations = RemoteOperations(connection)
        self.identifier = Guid(hello["identifier"])
        self.computer_name = hello["computer_name"]
        self._first_release = ADDED_FIELDS not in hello
        self._last_transaction = 0

    @classmethod
    async def connect(cls, address: str | Path | None = None) -> Self:
        """Connect to a node; see :func:`connect`."""
        text = str(address or os.environ.get(SOCKET_VARIABLE) or DEFAULT_SOCKET)
        return cls(*await Connection.open(Path(text.removeprefix("unix:"))))

    async def _call(self, name: str, *arguments: object, **keywords: object) -> Any:
        return await self.connection.method("manager", 0, name, arguments, **keywords)

    async def create_queue(self, pathname: str, **properties: Unpack[QueueProperties]) -> QueueInformation:
        """Create a queue: the event Create Queue (3.1.7.1.3)."""
        information: QueueInformation = await self._call("create_queue", pathname, **properties)
        return information

    async def delete_queue(self, name: str) -> None:
        """Delete a queue: the event Delete Queue (3.1.7.1.4)."""
        await self._call("delete_queue", name)

    async def set_queue(self, name: str, **properties: Unpack[QueueProperties]) -> QueueInformation:
        """Change properties of a queue."""
        information: QueueInformation = await self._call("set_queue", name, **properties)
        return information

    async def queue(self, name: str) -> QueueInformation:
        """The properties and counts of one queue."""
        information: QueueInformation = await self._call("queue", name)
        return information

    async def queues(self, kinds: Sequence[QueueType] | None = None) -> list[QueueInformation]:
        """All queues, or those of the given types."""
        found: list[QueueInformation] = await self._call("queues", kinds and [kind.value for kind in kinds])
        return found

    async def open_queue(
        self, format_name: str, access: Access = Access.RECEIVE, share: Share = Share.DENY_NONE
    ) -> QueueApi:
        """Open a queue: the event Open Queue (3.1.7.1.5)."""
        handle, name = await self._call("open_queue", format_name, int(access), int(share))
        return RemoteQueue(self, handle, name, access, share)

    def transaction(self) -> TransactionApi:
        """Create Transaction (3.1.7.1.8). The node hears of it with the first call that is part of it."""
        self._last_transaction += 1
        return RemoteTransaction(self, self._last_transaction)

    async def pause_queue(self, name: str) -> None:
        """Pause an outgoing queue: the event Pause Queue (3.1.4.14)."""
        await self._call("pause_queue", name)

    async def resume_queue(self, name: str) -> None:
        """Resume an outgoing queue: the event Resume Queue (3.1.4.15)."""
        await self._call("resume_queue", name)

    async def status(self) -> NodeStatus:
        """How the queue manager is now."""
        status: NodeStatus = await self._call("status")
        return status

    async def set_online(self, online: bool) -> None:
        """Bring Online or Take Offline."""
        await self._call("set_online", online)

    async def list_transactions(self) -> list[TransactionInformation]:
        """The transactions that have not ended."""
        found: list[TransactionInformation] = await self._call("list_transactions")
        return found

    async def queue_security(self, name: str) -> bytes:
        """The security descriptor of a queue."""
        security: bytes = await self._call("queue_security", name)
        return security

    async def account_names(self, security_identifiers: Sequence[str]) -> dict[str, str | None]:
        """The names of users and groups by their SIDs."""
        names: dict[str, str | None] = await self._call("account_names", list(security_identifiers))
        return names

    async def queue_manager_security(self) -> bytes:
        """The security descriptor of the queue manager itself."""
        security: bytes = await self._call("queue_manager_security")
        return security

    async def set_queue_manager_security(self, security: bytes) -> None:
        """Give the queue manager itself another security descriptor."""
        await self._call("set_queue_manager_security", security)

    async def incoming_sequences(self, name: str = "") -> list[IncomingSequenceInformation]:
        """The sequences of transactional messages that come to a queue, or to any; a node of the first release shows
        none."""
        if self._first_release:
            return []
        found: list[IncomingSequenceInformation] = await self._call("incoming_sequences", name)
        return found

    async def refused_messages(self, name: str) -> list[RefusedMessages]:
        """The messages that a queue refused since the start, by sender and reason."""
        found: list[RefusedMessages] = await self._call("refused_messages", name)
        return found

    async def reset_incoming_sequences(self, source: bytes, name: str = "", address: str = "") -> int:
        """Forget how far the sequences of a queue manager are."""
        count: int = await self._call("reset_incoming_sequences", source, name, address)
        return count

    async def backup(self, path: str | Path) -> None:
        """Write a copy of the store; the directory is one of the node's machine."""
        await self._call("backup", _absolute(path))

    async def close(self) -> None:
        """Close the connection; the node aborts what was not committed."""
        await self.connection.close()


class RemoteTransaction(TransactionApi):
    """A unit of work at the node."""

    def __init__(self, manager: RemoteQueueManager, number: int) -> None:
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
        self.items: list[tuple[bytes, bytes]] = []
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
        self, manager: RemoteQueueManager, handle: int, format_name: str, access: Access, share: Share
    ) -> None:
        self.manager = manager
        self.connection = manager.connection
        self.handle = handle
        self.format_name = format_name
        self.access = access
        self.share = share
        self._destination = _destination(manager.identifier, format_name)
        self._batch: _Batch | None = None
        self._loop = asyncio.get_running_loop()

    # Sending

    async def send(self, message: Message, transaction: InTransaction = None) -> bytes:
        """Enqueue Message To An Open Queue (3.1.7.1.27). Calls made at the same time travel together."""
        item = to_travel(message, self._destination)
        if transaction is not None:
            return (await self._send_together([item], await _number(transaction)))[0]
        batch = self._batch
        if batch is None or batch.size >= BATCH_BYTES:
            batch = self._batch = _Batch()
            self._loop.call_soon(self._batch_over, batch)
        caller: asyncio.Future[bytes] = self._loop.create_future()
        batch.callers.append(caller)
        batch.items.append(item)
        batch.size += len(item[0])
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
        items = [to_travel(message, self._destination) for message in messages]
        if not items:
            return []
        return await self._send_together(items, await _number(transaction))

    async def _send_together(self, items: list[tuple[bytes, bytes]], transaction: int) -> list[bytes]:
        head = SEND_HEAD.pack(self.handle, transaction, True, len(items))
        return _identifiers((await self.connection.call(Kind.SEND, head, *pack_sent(items))).body)

    # Reading

    async def _receive(
        self, kind: Kind, limit: int, timeout: float | None, transaction: InTransaction
    ) -> list[Message]:
        seconds = FOR_EVER if timeout is None else max(timeout, 0.0)
        number = NO_TRANSACTION if transaction is None else await _number(transaction)
        head = RECEIVE_HEAD.pack(self.handle, number, limit, seconds)
        return _messages(await self.connection.call(kind, head))

    async def receive(self, timeout: float | None = None, transaction: InTransaction = None) -> Message:
        """Take a message out: the event Dequeue Message (3.1.7.1.10)."""
        return (await self._receive(Kind.RECEIVE, 1, timeout, transaction))[0]

    async def receive_many(
        self, limit: int, timeout: float | None = None, transaction: InTransaction = None
    ) -> list[Message]:
        """Dequeue Message, up to ``limit`` times."""
        return await self._receive(Kind.RECEIVE, min(max(limit, 0), 0xFFFFFFFF), timeout, transaction)

    async def peek(self, timeout: float | None = None) -> Message:
        """Look at a message: the event Peek Message (3.1.7.1.15)."""
        return (await self._receive(Kind.PEEK, 1, timeout, None))[0]

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


def to_travel(message: Message, destination: Destination) -> tuple[bytes, bytes]:
    """A message as it goes to the node: a packet whose addresses and numbers the node fills in, and what has no place
    in that packet.
    """
    more = message.__dict__.keys() & REQUESTS
    value = serialize(message, destination, 0, 0.0)
    return value[PREFIX_SIZE:], values.encode({name: message.__dict__[name] for name in more}) if more else b""


def _messages(answer: Frame) -> list[Message]:
    return [received_message(lookup, value) for lookup, value in unpack_received(answer.body)]


def _outcomes(answer: Frame) -> Iterable[bytes | MessageQueuingError]:
    """The identifier or the error of each message of a batch, in its order."""
    if answer.kind == Kind.FAILED:
        return repeat(failure(answer))
    if answer.kind == Kind.MIXED:
        return [one if isinstance(one, bytes) else values.decode_error(one) for one in values.decode(answer.body)]
    return _identifiers(answer.body)


def _identifiers(body: bytes) -> list[bytes]:
    return [body[at : at + _IDENTIFIER] for at in range(0, len(body), _IDENTIFIER)]


class _Connecting:
    """``async with connect() as qm`` and ``qm = await connect()``."""

    def __init__(self, address: str | Path | None) -> None:
        self._address = address
        self._manager: RemoteQueueManager | None = None

    def __await__(self) -> Any:
        return RemoteQueueManager.connect(self._address).__await__()

    async def __aenter__(self) -> RemoteQueueManager:
        self._manager = await RemoteQueueManager.connect(self._address)
        return self._manager

    async def __aexit__(self, *_: object) -> None:
        if self._manager is not None:
            await self._manager.close()


def connect(address: str | Path | None = None) -> _Connecting:
    """Connect to the node that runs as a service: ``async with qmnode.connect() as qm:``.

    ``address`` is the path of its socket, with or without ``unix:``; without it the environment variable
    QMNODE_SOCKET counts, and then ``/run/qmnode/qmnode.sock``. MQ_ERROR_SERVICE_NOT_AVAILABLE if nobody answers there.
    """
    return _Connecting(address)


def _absolute(path: str | Path) -> str:
    """As the node, which works in another directory, understands it."""
    return str(Path(path).absolute())
