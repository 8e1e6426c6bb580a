"""The context of all resources: the queue manager, the settings and the caller."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, Protocol, TypeVar, cast

from fastapi import Depends, HTTPException, Query, Request

from qmnode.administration.key_rotation import KeyRotations
from qmnode.administration.operation_rights import GuardedQueueManager
from qmnode.administration.operations import Operations
from qmnode.administration.queue_names import format_name, queue_name
from qmnode.bodies.limits import DEFAULT_LIMITS, Limits
from qmnode.errors import MessageQueuingError
from qmnode.management.message_documents import BodyForm
from qmnode.management.tokens import Caller, Role
from qmnode.model.administration import ConnectionList
from qmnode.model.api import Access, QueueApi, QueueType
from qmnode.model.queue import Queue
from qmnode.model.queue_manager import QueueManager
from qmnode.security.message_security import KeyStoreStatus
from qmnode.security.principals import Principal, Principals
from qmnode.settings.node import ManagementSettings
from qmnode.structures.error_codes import ErrorCode

T = TypeVar("T")
OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})
"""Asked by load balancers and watchdogs, which have no token. The answers are yes or no."""


class KeyReader(Protocol):
    """The port to the reader of the node's private keys."""

    @property
    def status(self) -> KeyStoreStatus:
        """How the last reading went."""

    async def read(self) -> KeyStoreStatus:
        """Read them again now."""


@dataclass
class Context:
    """One for all requests of an application."""

    manager: QueueManager | GuardedQueueManager
    settings: ManagementSettings
    ready: Callable[[], bool] = lambda: True
    connection_list: ConnectionList | None = None
    key_reader: KeyReader | None = None
    body_limits: Limits = DEFAULT_LIMITS
    operations: Operations | None = None
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the node stops: requests that wait for a message end."""
    principals: Principals | None = None
    rotations: KeyRotations | None = None
    """None where the settings do not permit rotations through the API."""
    _waiting: list[None] = field(default_factory=list)

    @property
    def waiting(self) -> int:
        """Requests that wait for a message."""
        return len(self._waiting)

    @property
    def principal(self) -> Principal | None:
        """The caller that queues' descriptors are asked for; None for a role that needs no other right."""
        return self.manager.principal if isinstance(self.manager, GuardedQueueManager) else None

    async def seen_by(self, caller: Caller, repaired: Callable[[str, str], None]) -> Context:
        """The same as a caller may use it.

        For a token without a principal its role says that, and every queue is open to it; as to an administrator on
        the Unix socket.
        """
        principals = self.principals
        assert principals is not None and isinstance(self.manager, QueueManager)
        if caller.user is not None:
            if principals.of_unix_user(*caller.user).administrator:  # for which no directory is asked
                return self
            principal = await principals.of_local_user(*caller.user)
            if principal.administrator:
                return self
        elif caller.principal is not None:
            principal = await principals.of_token(caller.name, caller.principal)
        else:
            return self
        return replace(self, manager=GuardedQueueManager(self.manager, principal, repaired))

    def require(self, what: str) -> None:
        """Raise MQ_ERROR_ACCESS_DENIED unless the caller may use a part beside the queue manager (``BESIDE``)."""
        if isinstance(self.manager, GuardedQueueManager):
            self.manager.require(what)

    def may_see(self, queue: Queue) -> bool:
        return not isinstance(self.manager, GuardedQueueManager) or self.manager.may_see(queue)

    async def wait_for(self, request: Request, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of work that may take long; None when the caller goes away or the node stops before."""
        if self.waiting >= self.settings.waiting_receives:
            work.close()
            raise HTTPException(429, f"{self.waiting} requests wait for messages already: try again later")
        self._waiting.append(None)
        task = asyncio.ensure_future(work)
        ends = [asyncio.ensure_future(_gone(request)), asyncio.ensure_future(self.stopping.wait())]
        try:
            await asyncio.wait([task, *ends], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            task.cancel()  # a message that was about to be received stays in its queue
            with contextlib.suppress(asyncio.CancelledError):
                return await task
            return None
        finally:
            self._waiting.pop()
            for end in (task, *ends):
                end.cancel()

    async def open(self, name: str, access: Access) -> QueueApi:
        """Open the queue that a path of the API names. Outgoing queues take another access for the same."""
        if access is not Access.SEND and access is not Access.MOVE:
            queue = self.manager.context.names.find(queue_name(name))
            if queue.queue_type is QueueType.OUTGOING:
                access |= Access.ADMIN
        return await self.manager.open_queue(format_name(name), access)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _context(request: Request) -> Context:
    context = cast("Context", request.app.state.context)
    caller: Caller | None = request.scope["state"].get("caller")
    if caller is None or request.scope["path"] in OPEN_PATHS:
        return context
    return await context.seen_by(caller, lambda operation, _: note(request, repair=operation))


Node = Annotated[Context, Depends(_context)]


def note(request: Request, **details: Any) -> None:
    """Facts for the audit log: never bodies, never secrets."""
    request.scope["state"].setdefault("audit", {}).update(details)


def note_target(request: Request, name: str) -> None:
    """The object of the entry in the audit log, where the path does not name it."""
    request.scope["state"]["audit_target"] = {"name": name}


def caller_of(request: Request) -> Caller:
    """The caller, as the door identified it."""
    return cast("Caller", request.scope["state"]["caller"])


def require_administer(request: Request, what: str) -> None:
    """Raise MQ_ERROR_ACCESS_DENIED unless the caller has the role ``administer``."""
    caller = caller_of(request)
    if caller.role is not Role.ADMINISTER:
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_ACCESS_DENIED,
            f"the role of {caller.name} is {caller.role}, and {what} is for {Role.ADMINISTER}",
        )


def require_bodies(request: Request, what: str) -> None:
    """Raise MQ_ERROR_ACCESS_DENIED unless the caller's role sees the bodies of messages."""
    caller = caller_of(request)
    if not caller.role.sees_bodies:
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_ACCESS_DENIED,
            f"the role of {caller.name} is {caller.role}, and {what} is for {Role.BODIES} and {Role.OPERATE}",
        )


async def _body_form(
    request: Request,
    body: Annotated[BodyForm, Query(description="Bodies are for the role bodies")] = BodyForm.NONE,
) -> BodyForm:
    if body is not BodyForm.NONE:
        require_bodies(request, "the body of a message")
    return body


BodyForms = Annotated[BodyForm, Depends(_body_form)]
"""How bodies are to be shown, which the caller's role has to allow."""
