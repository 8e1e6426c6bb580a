"""Looking through the messages of a queue, and sending to a queue of either kind."""

from collections.abc import AsyncGenerator

from qmnode.administration.queue_names import format_name, queue_name
from qmnode.administration.turns import Pace
from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access, InTransaction, QueueApi, QueueManagerApi, QueueType, Seek
from qmnode.model.message import Message
from qmnode.structures.error_codes import ErrorCode


async def browse(queue: QueueApi, after: int | None = None) -> AsyncGenerator[Message, None]:
    """The messages of an open queue in their order, without taking them; those after a lookup identifier."""
    lookup_identifier, pace = after or 0, Pace()
    seek: Seek = "first" if after is None else "next"
    while True:
        try:
            message = await queue.peek_by_lookup_id(lookup_identifier, seek)
        except MessageQueuingError as error:
            if error.code == ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND:
                return
            raise
        yield message
        await pace.rest()
        lookup_identifier, seek = message.lookup_identifier, "next"


async def open_to_read(manager: QueueManagerApi, name: str, access: Access) -> QueueApi:
    """Open a queue for Access.PEEK or RECEIVE. An outgoing queue takes another access for the same."""
    try:
        outgoing = (await manager.queue(queue_name(name))).queue_type is QueueType.OUTGOING
    except MessageQueuingError as error:
        if error.code != ErrorCode.MQ_ERROR_ACCESS_DENIED:  # somebody who may read it need not see the rest
            raise
        outgoing = False
    return await manager.open_queue(format_name(name), access | Access.ADMIN if outgoing else access)


async def unit_for(manager: QueueManagerApi, name: str, transactional: bool | None = None) -> InTransaction:
    """The transaction that one send to a queue needs: one of its own if the queue is transactional, or else none.

    The properties of a queue on another machine are unknown here: it is not transactional unless ``transactional`` says
    so.
    """
    if transactional is None:
        try:
            transactional = (await manager.queue(name)).transactional
        except MessageQueuingError as error:
            # Somebody who may send need not see the queue.
            if error.code not in (ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND, ErrorCode.MQ_ERROR_ACCESS_DENIED):
                raise
            transactional = False
    return "single" if transactional else None
