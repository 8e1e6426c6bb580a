"""Opens queues of other queue managers: ``open_queue`` with the name of another computer."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access, QueueApi, Share
from qmnode.security.principals import Principal, named_in_settings
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.names import DirectFormatName, DirectProtocol, FormatName, PrivateFormatName, PublicFormatName

if TYPE_CHECKING:
    from qmnode.dcerpc.protection import SecurityContext
    from qmnode.model.queue_manager import QueueManager
    from qmnode.remote_read.client_interfaces import RemoteNode, RemoteReadOptions


log = structlog.get_logger(__name__)


def _is_listed(host: str, listed: tuple[str, ...]) -> bool:
    """Whether one of the names, domains, addresses and networks is this host's."""
    name = host.rstrip(".").casefold()
    try:
        address = ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return any(name == one.casefold() or (one.startswith(".") and name.endswith(one.casefold())) for one in listed)
    networks = []
    for one in listed:
        with contextlib.suppress(ValueError):
            networks.append(ipaddress.ip_network(one, strict=False))
    return any(address in network for network in networks)


@dataclass(slots=True)
class _Attempt:
    """A connection that is being made, and the number of callers that wait for it."""

    task: asyncio.Task[RemoteNode]
    waiting: int = 0


class RemoteReader:
    """One connection to each queue manager whose queues are open here."""

    def __init__(self, manager: QueueManager, security: Callable[[str], SecurityContext] | None = None) -> None:
        """``security`` makes contexts for hosts; without it: anonymously. ConfigurationError: impossible readers."""
        self._manager = manager
        self._security = security
        named = manager.settings.remote_read.readers
        self._readers = frozenset(named_in_settings(text, "remote_read.readers") for text in named)
        self._nodes: dict[str, RemoteNode] = {}
        self._connecting: dict[str, _Attempt] = {}

    async def _security_for(self, host: str) -> Callable[[str], SecurityContext] | None:
        """How this node authenticates itself to a host: a local user who names one of his own gets nothing to relay."""
        if self._security is None or _is_listed(host, self._manager.settings.remote_read.authenticate_to):
            return self._security
        if await self._manager.published.is_machine(host):
            return self._security
        log.warning(
            "reading without credentials from a host that is no machine of the directory",
            host=host,
            setting="remote_read.authenticate_to",
        )
        return None

    async def _options(self, host: str) -> RemoteReadOptions:
        from qmnode.remote_read.client_interfaces import RemoteReadOptions

        settings = self._manager.settings.remote_read
        return RemoteReadOptions(
            endpoint_mapper_port=settings.endpoint_mapper_port,
            port=settings.port,
            own_address=settings.address,
            security=await self._security_for(host),
            identifier=self._manager.identifier,
        )

    def check(self, name: FormatName, caller: object) -> None:
        """MQ_ERROR_ACCESS_DENIED if this node reads elsewhere with an account, and not for this caller."""
        if self._security is None or not self._readers or not isinstance(caller, Principal) or caller.administrator:
            return
        if self._readers.isdisjoint(caller.token.sids):
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_ACCESS_DENIED,
                f"{name}: {caller} is not in remote_read.readers: add it, or its group",
            )

    def reads(self, name: FormatName, access: Access) -> bool:
        """Whether a remote queue can be opened with this access."""
        return access in (Access.RECEIVE, Access.PEEK, Access.MOVE) and isinstance(
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
            # The name is valid, but this node does not know its owner.
            raise MessageQueuingError(ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION, error.sentence) from None
        return computer

    async def _node(self, host: str) -> RemoteNode:
        """The connection to a computer. Callers that ask while it is being made share it and its outcome."""
        key = host.upper()
        node = self._nodes.get(key)
        if node is not None and not node.is_lost:
            return node
        attempt = self._connecting.get(key)
        if attempt is None:
            attempt = self._connecting[key] = _Attempt(asyncio.ensure_future(self._connect(key, host)))
        attempt.waiting += 1
        try:
            return await asyncio.shield(attempt.task)
        except asyncio.CancelledError:
            if attempt.waiting == 1:
                self._give_up(key, attempt)
            raise
        finally:
            attempt.waiting -= 1

    async def _connect(self, key: str, host: str) -> RemoteNode:
        own = asyncio.current_task()
        try:
            from qmnode.remote_read.client_interfaces import RemoteNode

            node = await RemoteNode.connect(host, await self._options(host))
        finally:
            if key in self._connecting and self._connecting[key].task is own:
                del self._connecting[key]
        node.on_idle = self._idle
        self._nodes[key] = node
        return node

    def _give_up(self, key: str, attempt: _Attempt) -> None:
        """Abandon a connection without waiters, which may just have been made. The next caller makes another."""
        task = attempt.task
        if not task.done():
            task.cancel()
            if self._connecting.get(key) is attempt:
                del self._connecting[key]
        elif not task.cancelled() and task.exception() is None:
            task.result().queue_closed()

    def _idle(self, node: RemoteNode) -> None:
        key = node.host.upper()
        if self._nodes.get(key) is node:
            del self._nodes[key]
        node.abort()

    async def close(self) -> None:
        """Close the connections to all queue managers."""
        nodes, self._nodes = self._nodes, {}
        for node in nodes.values():
            await node.close()
