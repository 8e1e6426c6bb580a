"""A queue manager that runs as a service, with the interface of one that runs in this process."""

import functools
import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Self, TypeVar, cast

from qmnode.errors import MessageQueuingError
from qmnode.local.connection import Connection, RemoteQueue, RemoteTransaction
from qmnode.local.frames import ADDED_FIELDS, LOGIN, PUBLISHING
from qmnode.local.line import LONGEST, RECONNECT, Line
from qmnode.local.operations import RemoteOperations
from qmnode.model.administration import IncomingSequenceInformation
from qmnode.model.api import (
    Access,
    DirectoryLogin,
    QueueApi,
    QueueInformation,
    QueueManagerApi,
    QueueType,
    Share,
    TransactionApi,
)
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import Guid

F = TypeVar("F", bound=Callable[..., Any])

Address = str | Path | Sequence[str | Path] | None
"""The path of a node's socket, or several."""
_DONE_ONCE: Final = frozenset({"backup", "create_queue", "delete_queue", "reset_incoming_sequences"})
"""Methods that would fail, or do harm, if they were called again after they were done."""
DEFAULT_SOCKET: Final = "/run/qmnode/qmnode.sock"
SOCKET_VARIABLE: Final = "QMNODE_SOCKET"
"""Environment variable with the socket of the node, for ``connect()`` without an address."""


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
