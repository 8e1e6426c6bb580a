"""Opens queues of other queue managers for this one: what ``open_queue`` does with a name of another computer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access, QueueApi, Share
from qmnode.rpc.remote_node import RemoteNode, RemoteReadOptions
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.names import DirectFormatName, DirectProtocol, FormatName, PrivateFormatName, PublicFormatName

if TYPE_CHECKING:
    from collections.abc import Callable

    from qmnode.model.queue_manager import QueueManager
    from qmnode.rpc.protection import SecurityContext


class RemoteReader:
    """Connections to the queue managers whose queues are open here, one for each."""

    def __init__(self, manager: QueueManager, security: Callable[[str], SecurityContext] | None = None) -> None:
        """``security`` makes security contexts for hosts; without it this node reads as nobody in particular."""
        self._manager = manager
        settings = manager.settings.remote_read
        self._options = RemoteReadOptions(
            endpoint_mapper_port=settings.endpoint_mapper_port,
            port=settings.port,
            own_address=settings.address,
            security=security,
            identifier=manager.identifier,
        )
        self._nodes: dict[str, RemoteNode] = {}
        self._connecting: dict[str, asyncio.Lock] = {}

    def reads(self, name: FormatName, access: Access) -> bool:
        """Whether a queue can be opened so over there."""
        return access in (Access.RECEIVE, Access.PEEK) and isinstance(
            name, DirectFormatName | PublicFormatName | PrivateFormatName
        )

    async def open_queue(self, name: FormatName, access: Access, share: Share) -> QueueApi:
        """Open a queue of another queue manager."""
        if self._manager.settings.hardened_security:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION,
                f"{name}: a node in hardened mode makes no remote procedure calls",
            )
        node = await self._node(await self._host_of(name))
        return await node.open_queue(name, access, share)

    async def _host_of(self, name: FormatName) -> str:
        if isinstance(name, DirectFormatName):
            if name.protocol not in (DirectProtocol.OS, DirectProtocol.TCP):
                raise MessageQueuingError(
                    ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION, f"{name} cannot be read over {name.protocol}"
                )
            return name.path.computer
        try:
            _, computer = await self._manager.published.get_queue_path(name)
        except MessageQueuingError as error:
            # The name is a good one; this node does not know whose it is.
            raise MessageQueuingError(ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION, error.sentence) from None
        return computer

    async def _node(self, host: str) -> RemoteNode:
        key = host.upper()
        lock = self._connecting.setdefault(key, asyncio.Lock())
        async with lock:
            node = self._nodes.get(key)
            if node is None or node.is_lost:
                node = await RemoteNode.connect(host, self._options)
                node.on_idle = self._idle
                self._nodes[key] = node
        if not lock.locked():
            self._connecting.pop(key, None)
        return node

    def _idle(self, node: RemoteNode) -> None:
        key = node.host.upper()
        if self._nodes.get(key) is node:
            del self._nodes[key]
        node.abort()

    async def close(self) -> None:
        """End all connections."""
        nodes, self._nodes = self._nodes, {}
        for node in nodes.values():
            await node.close()
