"""Messages that the queue manager sends by itself: acknowledgments and trace reports (MS-MQQB 3.1.7.15, 3.1.5.8.9).

Where they go is what other messages say, which may have come from anybody.
"""

from typing import TYPE_CHECKING

import structlog

from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access, QueueType
from qmnode.model.message import Message
from qmnode.model.positions import LANE_SHIFT
from qmnode.model.quotas import EnqueueStatus
from qmnode.model.serialization import Destination, serialize
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.names import MultipleElementFormatName

if TYPE_CHECKING:
    from qmnode.model.queue_manager import QueueManager

log = structlog.get_logger(__name__)


def send_internally(manager: "QueueManager", format_name: str, message: Message) -> None:
    """Send a message, which is dropped if that cannot be done.

    To each queue, if the name has several elements: as a message of its own, as its receiver may be the same.
    """
    try:
        name = manager.names.parse(format_name)
        if isinstance(name, MultipleElementFormatName):
            for element in name.elements:
                send_internally(manager, str(element), message)
            return
        queue = manager.opening.find(name, Access.SEND, for_strangers=True)
    except MessageQueuingError as error:
        if error.code is ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES:
            log.warning("a message about a message cannot be sent", destination=format_name, reason=str(error))
        return
    if queue.transactional:
        return
    ordinal = manager.ordinal.next()
    destination = Destination(manager.identifier, name, transit=queue.queue_type is QueueType.OUTGOING)
    value = serialize(message, destination, ordinal, manager.clock.time())
    if manager.quotas.status(queue, len(value)) is EnqueueStatus.ACCEPTED:
        queue.arrive(7 - message.priority << LANE_SHIFT | manager.sequence.next(), value)
