"""A queue manager that runs as a service, with the interface of one that runs in this process."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self, Unpack

from qmnode.local.connection import Connection, RemoteQueue, RemoteTransaction
from qmnode.local.frames import (
    ADDED_FIELDS,
)
from qmnode.local.operations import RemoteOperations
from qmnode.model.administration import IncomingSequenceInformation, NodeStatus, TransactionInformation
from qmnode.model.api import (
    Access,
    QueueApi,
    QueueInformation,
    QueueManagerApi,
    QueueProperties,
    QueueType,
    Share,
    TransactionApi,
)
from qmnode.model.traffic import RefusedMessages
from qmnode.structures.guid import Guid

DEFAULT_SOCKET: Final = "/run/qmnode/qmnode.sock"
SOCKET_VARIABLE: Final = "QMNODE_SOCKET"
"""Environment variable with the socket of the node, for ``connect()`` without an address."""


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
