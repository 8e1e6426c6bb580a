r"""Temporary queues: private queues for the answers to a program that is connected, or to the node itself.

Everybody may send to one and nobody may look at it: neither its name nor its number can be guessed, so that those alone
send whom it was given to. It is in no document or export.
"""

from __future__ import annotations

from secrets import token_hex
from typing import TYPE_CHECKING, Final

import structlog

from qmnode.errors import MessageQueuingError
from qmnode.model.api import QueueType
from qmnode.model.queue import TEMPORARY
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.names import parse_single_format_name
from qmnode.structures.security_descriptor import (
    ANONYMOUS,
    BUILTIN_ADMINISTRATORS,
    EVERYONE,
    Acl,
    QueueAccess,
    SecurityDescriptor,
    allow,
)

if TYPE_CHECKING:
    from qmnode.model.queue_manager import QueueManager

log = structlog.get_logger(__name__)

_SECURITY: Final = SecurityDescriptor(
    owner=BUILTIN_ADMINISTRATORS,
    group=BUILTIN_ADMINISTRATORS,
    dacl=Acl.of(*(allow(who, QueueAccess.MQSEC_WRITE_MESSAGE) for who in (EVERYONE, ANONYMOUS))),
).write()


async def create(manager: QueueManager, prefix: str, label: str, quota: int) -> str:
    r"""Make one, and return its path name. ``prefix`` begins its name, such as ``amqp$temporary$``; ``quota`` is in
    kilobytes.
    """
    made = await manager.create_queue(
        f".\\private$\\{prefix}{token_hex(16)}", type=TEMPORARY, label=label, quota=quota, security=_SECURITY
    )
    return made.pathname


async def clear(manager: QueueManager, prefix: str) -> None:
    """Delete what a node that was killed has left of one prefix."""
    for queue in await manager.queues([QueueType.PRIVATE]):
        if queue.type == TEMPORARY and f"\\private$\\{prefix}" in queue.pathname:
            await delete(manager, queue.pathname)


def address(manager: QueueManager, pathname: str) -> str:
    """The address of one, by which other machines can send to it as well."""
    name = parse_single_format_name(f"DIRECT=OS:.\\{pathname.partition(chr(92))[2]}")
    return str(manager.names.for_others(name))


async def delete(manager: QueueManager, pathname: str) -> None:
    """Delete one with its messages."""
    try:
        await manager.delete_queue(pathname)
    except MessageQueuingError as error:
        if error.code != ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND:
            log.warning("a temporary queue was not deleted", queue=pathname, reason=str(error))
