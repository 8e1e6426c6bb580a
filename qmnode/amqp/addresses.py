r"""Addresses of AMQP links, which are names of queues, the way back, and temporary queues.

======================================  ======================================================
address                                 queue
======================================  ======================================================
``orders``                              the private queue ``.\private$\orders``
``private$\orders``, ``.\orders``       path names; ``.\orders`` is the public queue
``orders;journal``, ``orders;late``     its journal, its subqueue ``late``
``system$;deadletter``                  dead letters; ``system$;deadxact`` has transactional ones
``DIRECT=OS:shop\private$\orders``      any format name: elsewhere, several, lists
======================================  ======================================================

``queue://``, ``/queue/`` and ``/queues/`` before a name, as clients of other brokers write them, are left out.

The queue of a dynamic terminus (AMQP 1.0, part 3.5) is private, and its address is one that other machines can use.
Everybody may send to it. Only the connection that has it receives from it. It ends with the link that made it, or
with the connection if the link asks for that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from qmnode.administration.queue_names import format_name
from qmnode.amqp.codec import Described
from qmnode.amqp.error_conditions import RESOURCE_LIMIT, RefusedError
from qmnode.amqp.proton_engine import decoded
from qmnode.errors import MessageQueuingError
from qmnode.model import temporary_queues
from qmnode.structures.error_codes import ErrorCode

if TYPE_CHECKING:
    from qmnode.model.queue_manager import QueueManager
    from qmnode.shares import Account, Party

_PREFIXES: Final = ("queue://", "/queues/", "/queue/")
_LONGEST: Final = 2048
_HERE: Final = ".\\"
_PRIVATE: Final = "private$\\"
_DIRECT: Final = "DIRECT=OS:"


def opened_name(address: str | None) -> str:
    """The format name that opens the queue of an address. MQ_ERROR_ILLEGAL_FORMATNAME."""
    return format_name(_checked(address))


def address_of(name: str, is_here: Callable[[str], bool]) -> str:
    """The address of a format name: short for a private queue of this node, which ``is_here`` recognises."""
    if name[: len(_DIRECT)].upper() != _DIRECT or not is_here(name):
        return name
    _, _, local = name[len(_DIRECT) :].partition("\\")
    if local[: len(_PRIVATE)].lower() == _PRIVATE:
        return local[len(_PRIVATE) :]
    return f"{_HERE}{local}"


def _checked(address: str | None) -> str:
    for prefix in _PREFIXES:
        if address is not None and address.startswith(prefix):
            address = address.removeprefix(prefix)
            break
    if not address:
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_ILLEGAL_FORMATNAME, "the link has no address: give the name of a queue"
        )
    if len(address) > _LONGEST or "\0" in address:
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_ILLEGAL_FORMATNAME, f"an address of {len(address)} characters names no queue"
        )
    return address


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
        await temporary_queues.clear(self._manager, _PREFIX)

    async def create(self, party: Party) -> str:
        """Make one. Its path name. RefusedError if the client has too many, or MessageQueuingError."""
        if not self._places.take(party):
            raise RefusedError(
                RESOURCE_LIMIT, "too many temporary queues (amqp.temporary_queues): close some of their links"
            )
        try:
            return await temporary_queues.create(
                self._manager, _PREFIX, "Temporary queue of an AMQP client", max(1, self._quota // 1024)
            )
        except BaseException:
            self._places.give_back(party)
            raise

    def address(self, pathname: str) -> str:
        """The address of one, by which other machines can send to it as well."""
        return temporary_queues.address(self._manager, pathname)

    async def delete(self, pathname: str, party: Party) -> None:
        """Delete one of a client, with its messages."""
        self._places.give_back(party)
        await temporary_queues.delete(self._manager, pathname)
