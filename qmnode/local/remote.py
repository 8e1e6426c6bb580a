"""A queue manager that runs as a service, with the interface of one that runs in this process."""

import functools
import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Self, TypeVar, cast

from qmnode.local.connection import Connection, RemoteQueue, RemoteTransaction
from qmnode.local.frames import ADDED_FIELDS, LOGIN, PUBLISHING
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
from qmnode.structures.guid import Guid

F = TypeVar("F", bound=Callable[..., Any])

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

    def __init__(
        self, connection: Connection, hello: dict[str, Any], directory_login: DirectoryLogin | None = None
    ) -> None:
        self.connection = connection
        self.operations = RemoteOperations(connection)
        self.identifier = Guid(hello["identifier"])
        self.computer_name = hello["computer_name"]
        self._first_release = ADDED_FIELDS not in hello
        self._last_transaction = 0
        self._login = directory_login

    @classmethod
    async def connect(cls, address: str | Path | None = None, directory_login: DirectoryLogin | None = None) -> Self:
        """Connect to a node; see :func:`connect`."""
        text = str(address or os.environ.get(SOCKET_VARIABLE) or DEFAULT_SOCKET)
        return cls(*await Connection.open(Path(text.removeprefix("unix:"))), directory_login)

    async def _call(self, name: str, *arguments: object, **keywords: object) -> Any:
        if self._login is not None and name in PUBLISHING:
            keywords[LOGIN] = [self._login.account, self._login.password]
        return await self.connection.method("manager", 0, name, arguments, **keywords)

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
        search = await self._call("find_queues", label=label, type=type, computer=computer)
        found: list[QueueInformation] = []
        while page := await self.connection.method("search", search, "next", ()):
            found += page
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

    async def account_names(self, security_identifiers: Sequence[str]) -> dict[str, str | None]:
        names: dict[str, str | None] = await self._call("account_names", list(security_identifiers))
        return names

    async def incoming_sequences(self, name: str = "") -> list[IncomingSequenceInformation]:
        """The sequences of transactional messages that come to a queue, or to any; a node of the first release shows
        none."""
        if self._first_release:
            return []
        found: list[IncomingSequenceInformation] = await self._call("incoming_sequences", name)
        return found

    async def backup(self, path: str | Path) -> None:
        """Write a copy of the store; the directory is one of the node's machine."""
        await self._call("backup", _absolute(path))

    async def close(self) -> None:
        """Close the connection; the node aborts what was not committed."""
        await self.connection.close()


class _Connecting:
    """``async with connect() as qm`` and ``qm = await connect()``."""

    def __init__(self, address: str | Path | None, directory_login: DirectoryLogin | None) -> None:
        self._address = address
        self._login = directory_login
        self._manager: RemoteQueueManager | None = None

    def __await__(self) -> Any:
        return RemoteQueueManager.connect(self._address, self._login).__await__()

    async def __aenter__(self) -> RemoteQueueManager:
        self._manager = await RemoteQueueManager.connect(self._address, self._login)
        return self._manager

    async def __aexit__(self, *_: object) -> None:
        if self._manager is not None:
            await self._manager.close()


def connect(address: str | Path | None = None, directory_login: DirectoryLogin | None = None) -> _Connecting:
    """Connect to the node that runs as a service: ``async with qmnode.connect() as qm:``.

    ``address`` is the path of its socket, with or without ``unix:``; without it the environment variable
    QMNODE_SOCKET counts, and then ``/run/qmnode/qmnode.sock``. MQ_ERROR_SERVICE_NOT_AVAILABLE if nobody answers there.

    ``directory_login`` is the user as whom the directory is changed where this application creates, changes or deletes
    public queues; by default, and where the enterprise has weakened security, that is the node.
    """
    return _Connecting(address, directory_login)


def _absolute(path: str | Path) -> str:
    """As the node, which works in another directory, understands it."""
    return str(Path(path).absolute())
