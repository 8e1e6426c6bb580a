"""What the resources work with: the queue manager, the settings, and who calls."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol, TypeVar, cast

from fastapi import Depends, HTTPException, Request

from qmnode.administration.names import format_name, queue_name
from qmnode.administration.operations import Operations
from qmnode.bodies.limits import DEFAULT_LIMITS, Limits
from qmnode.errors import MessageQueuingError
from qmnode.management.tokens import Caller, Role
from qmnode.model.administration import ConnectionList
from qmnode.model.api import Access, QueueApi, QueueType
from qmnode.model.queue_manager import QueueManager
from qmnode.security.service import KeyStoreStatus
from qmnode.settings.node import ManagementSettings
from qmnode.structures.error_codes import ErrorCode

T = TypeVar("T")


class KeyReader(Protocol):
    """The port to whoever reads the node's private keys."""

    @property
    def status(self) -> KeyStoreStatus:
        """How the last reading went."""

    async def read(self) -> KeyStoreStatus:
        """Read them again now."""


@dataclass
class Context:
    """One for all requests of an application."""

    manager: QueueManager
    settings: ManagementSettings
    ready: Callable[[], bool] = lambda: True
    connection_list: ConnectionList | None = None
    key_reader: KeyReader | None = None
    body_limits: Limits = DEFAULT_LIMITS
    operations: Operations | None = None
    waiting: int = 0
    """Requests that wait for a message."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the node stops: requests that wait for a message end."""

    async def wait_for(self, request: Request, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of work that may take long; None when the caller goes away or the node stops before."""
        if self.waiting >= self.settings.waiting_receives:
            work.close()
            raise HTTPException(429, f"{self.waiting} requests wait for messages already: try again later")
        self.waiting += 1
        task = asyncio.ensure_future(work)
        ends = [asyncio.ensure_future(_gone(request)), asyncio.ensure_future(self.stopping.wait())]
        try:
            await asyncio.wait([task, *ends], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            task.cancel()  # what was about to be received stays where it is
            with contextlib.suppress(asyncio.CancelledError):
                return await task
            return None
        finally:
            self.waiting -= 1
            for end in (task, *ends):
                end.cancel()

    async def open(self, name: str, access: Access) -> QueueApi:
        """Open the queue that a path of the API names. Outgoing queues take another access for the same."""
        if access is not Access.SEND and access is not Access.MOVE:
            information = await self.manager.queue(queue_name(name))
            if information.queue_type is QueueType.OUTGOING:
                access |= Access.ADMIN
        return await self.manager.open_queue(format_name(name), access)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _context(request: Request) -> Context:
    return cast("Context", request.app.state.context)


Node = Annotated[Context, Depends(_context)]


def note(request: Request, **details: Any) -> None:
    """Facts for the audit log: never bodies, never secrets."""
    request.scope["state"].setdefault("audit", {}).update(details)


def require_operate(request: Request, what: str) -> None:
    """Some readings are for operators only."""
    caller: Caller = request.scope["state"]["caller"]
    if caller.role is not Role.OPERATE:
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_ACCESS_DENIED, f"the role of {caller.name} is {caller.role}, and {what} is for operate"
        )
