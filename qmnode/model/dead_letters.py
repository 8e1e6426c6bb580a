"""Which queue keeps a dead letter: one of the node's, or the one that the application named for the message.

MS-MQDMPR 3.1.1.12, ApplicationDeadletterQueue; MS-MQQB 3.1.5.7, 3.1.7.1.2.
"""

from typing import TYPE_CHECKING

import structlog

from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access, QueueType
from qmnode.model.quotas import EnqueueStatus
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.names import PathName, QueueNameError
from qmnode.structures.queue_attributes import QueuePrivacyLevel

if TYPE_CHECKING:
    from qmnode.model.message import Message
    from qmnode.model.queue import Queue
    from qmnode.model.queue_manager import QueueManager

log = structlog.get_logger(__name__)


def check_named(manager: "QueueManager", pathname: str, caller: object) -> None:
    """Raise if what an application names as dead-letter queue is no path name, or is a queue that it may not send to.

    That the queue is there and can keep the message counts when it is needed, and then only.
    """
    try:
        PathName.parse(pathname)
    except QueueNameError as error:
        raise MessageQueuingError(error.code, f"application_dead_letter_queue: {error.sentence}") from None
    try:
        queue = manager.names.find(pathname)
    except MessageQueuingError:
        return
    if not manager.opening.may_open(queue, Access.SEND, caller):
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_ACCESS_DENIED,
            f"application_dead_letter_queue: {caller} may not send to {queue.pathname}",
        )


def dead_letter_queue(manager: "QueueManager", message: "Message", size: int) -> "Queue":
    """Where a message that died goes, which takes ``size`` bytes: it is lost by no mistake in the name."""
    system = manager.transactional_dead_letter_queue if message.transactional else manager.dead_letter_queue
    pathname = message.application_dead_letter_queue
    if not pathname:
        return system
    try:
        queue = manager.names.find(pathname)
    except MessageQueuingError as error:
        fault: str | None = str(error)
    else:
        fault = _fault(manager, queue, message, size)
        if fault is None:
            return queue
    log.warning(
        "a dead letter goes to the queue of the system", named=pathname, queue=system.pathname, reason=fault,
        message=message.identifier.hex(),
    )  # fmt: skip
    return system


def _fault(manager: "QueueManager", queue: "Queue", message: "Message", size: int) -> str | None:
    """Why a queue cannot keep a dead letter."""
    if queue.queue_type not in (QueueType.PRIVATE, QueueType.PUBLIC) or queue.is_journal or queue.parent is not None:
        return "it is no queue that applications send to"
    if queue.transactional is not message.transactional:
        return "one of queue and message is transactional"
    if queue.create_time > message.sent_time:
        return "it was made after the message was sent, so nobody knows whether the sender may use it"
    if queue.authentication or queue.privacy_level == QueuePrivacyLevel.BODY:
        return "it takes only messages that are signed or encrypted"
    if manager.quotas.status(queue, size) is not EnqueueStatus.ACCEPTED:
        return "it has no room: receive or purge messages, or raise the quota"
    return None
