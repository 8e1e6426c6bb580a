r"""Temporary queues: a client attaches a link with a dynamic terminus (AMQP 1.0, part 3.5), the node makes the queue.

It is a private queue, and its address is one that other machines can use. Everybody may send to it. Only the connection
that has it receives from it. It ends with the link that made it, or with the connection if the link asks for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from qmnode.amqp.codec import Described
from qmnode.amqp.conditions import RESOURCE_LIMIT, RefusedError
from qmnode.amqp.engine import decoded
from qmnode.model import temporary

if TYPE_CHECKING:
    from qmnode.model.queue_manager import QueueManager
    from qmnode.shares import Account, Party

_PREFIX: Final = "amqp$temporary$"
_DELETE_ON_CLOSE: Final = (0x2B, "amqp:delete-on-close:list")
_LIFETIME: Final = "lifetime-policy"


def ends_with_link(terminus: Any) -> bool:
    """Whether a dynamic terminus asks for a queue that ends with its link, as it does if it says nothing."""
    asked = decoded(terminus.properties)
    policy = asked.get(_LIFETIME) if isinstance(asked, dict) else None
    return not isinstance(policy, Described) or policy.descriptor in _DELETE_ON_CLOSE


class TemporaryQueues:
    """The temporary queues of a door."""

    def __init__(self, manager: QueueManager, places: Account, quota: int) -> None:
        """``places`` counts the queues of each client; ``quota`` is that of each queue, in bytes."""
        self._manager = manager
        self._places = places
        self._quota = quota

    async def clear(self) -> None:
        """Delete what a node that was killed has left."""
        await temporary.clear(self._manager, _PREFIX)

    async def create(self, party: Party) -> str:
        """Make one. Its path name. RefusedError if the client has too many, or MessageQueuingError."""
        if not self._places.take(party):
            raise RefusedError(
                RESOURCE_LIMIT, "too many temporary queues (amqp.temporary_queues): close some of their links"
            )
        try:
            return await temporary.create(
                self._manager, _PREFIX, "Temporary queue of an AMQP client", max(1, self._quota // 1024)
            )
        except BaseException:
            self._places.give_back(party)
            raise

    def address(self, pathname: str) -> str:
        """The address of one, by which other machines can send to it as well."""
        return temporary.address(self._manager, pathname)

    async def delete(self, pathname: str, party: Party) -> None:
        """Delete one of a client, with its messages."""
        self._places.give_back(party)
        await temporary.delete(self._manager, pathname)
