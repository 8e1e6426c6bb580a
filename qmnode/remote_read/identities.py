"""The principals of remote callers, and their use of queues that others opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qmnode.dcerpc.server import Caller
    from qmnode.model.queue_manager import QueueManager
    from qmnode.remote_read.opened import RemoteQueue
    from qmnode.security.principals import Principal, Principals


class Identities:
    """The principals of remote callers."""

    def __init__(self, manager: QueueManager, principals: Principals) -> None:
        self._manager = manager
        self._principals = principals

    async def principal(self, account: str) -> Principal:
        """The principal of ``DOMAIN\\user`` or ``user@REALM``; the anonymous one without a name. MQ_ERROR_NO_DS."""
        return await self._principals.of_remote_user(account)

    async def may_use(self, caller: Caller, queue: RemoteQueue) -> bool:
        """Whether a caller may use a queue whose number it knows: one of its own, or one that it could open itself."""
        opener = queue.opener
        if caller.principal == opener.principal and (
            caller.principal or caller.association in (opener.association, queue.owner)
        ):
            return True
        principal = await self.principal(caller.principal)
        return self._manager.opening.may_open(queue.descriptor.queue, queue.descriptor.access, principal)
