"""Looking through the messages of a queue, and sending to a queue of either kind."""

from collections.abc import AsyncIterator

from qmnode.errors import MessageQueuingError
from qmnode.model.api import InTransaction, QueueApi, QueueManagerApi, Seek
from qmnode.model.message import Message
from qmnode.structures.error_codes import ErrorCode


async def browse(queue: QueueApi, after: int | None = None) -> AsyncIterator[Message]:
    """The messages of an open queue in their order, without taking them; those after a lookup identifier."""
    lookup_identifier = after or 0
    seek: Seek = "first" if after is None else "next"
    while True:
        try:
            message = await queue.peek_by_lookup_id(lookup_identifier, seek)
        except MessageQueuingError as error:
            if error.code == ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND:
                return
            raise
        yield message
        lookup_identifier, seek = message.lookup_identifier, "next"


async def unit_for(manager: QueueManagerApi, name: str, transactional: bool | None = None) -> InTransaction:
    """The transaction that one send to a queue needs: one of its own if the queue is transactional, or else none.

    What a queue on another machine is cannot be seen from here: it is not transactional unless ``transactional`` says
    so.
    """
    if transactional is None:
        try:
            transactional = (await manager.queue(name)).transactional
        except MessageQueuingError as error:
            if error.code != ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND:
                raise
            transactional = False
    return "single" if transactional else None
