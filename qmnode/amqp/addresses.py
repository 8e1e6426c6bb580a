r"""Addresses of AMQP links, which are names of queues, and the way back.

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
"""

from collections.abc import Callable
from typing import Final

from qmnode.administration.names import format_name
from qmnode.errors import MessageQueuingError
from qmnode.structures.error_codes import ErrorCode

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
