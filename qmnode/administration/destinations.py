"""Where a message goes back to: to where it failed, or to where it was sent."""

from typing import Final

from qmnode.administration.promises import QueueRole, kind_of
from qmnode.bodies.choice import read_headers
from qmnode.bodies.limits import CARRIED
from qmnode.errors import MessageQueuingError
from qmnode.model.message import Message
from qmnode.model.queue import Queue
from qmnode.structures.error_codes import ErrorCode

_FAILED_QUEUE: Final = ("NServiceBus.FailedQ", "rbs2-source-queue")
"""Headers in which NServiceBus and Rebus name the queue whose consumer failed: ``queue@machine``."""


def return_target(queue: Queue, message: Message) -> str:
    """The queue that a message of this queue is returned to. MQ_ERROR_QUEUE_NOT_FOUND if nothing says which.

    A failed message of NServiceBus or Rebus goes to the queue that its headers name, a dead letter to where it was
    sent, a message of a subqueue to the queue.
    """
    headers = read_headers(message.extension, limits=CARRIED).values
    for name in _FAILED_QUEUE:
        if address := headers.get(name):
            return _queue_at_machine(address)
    if kind_of(queue) is QueueRole.DEAD_LETTERS and message.destination_queue_format_name:
        return message.destination_queue_format_name
    if queue.parent is not None and not queue.is_journal:
        return queue.parent.pathname
    raise _unknown("nothing says where it failed: name a queue")


def replay_target(queue: Queue, message: Message) -> str:
    """The queue that a message of this journal was in, or was sent to. MQ_ERROR_QUEUE_NOT_FOUND for other queues."""
    if queue.is_journal and queue.parent is not None:
        return queue.parent.pathname
    if kind_of(queue) is QueueRole.JOURNAL and message.destination_queue_format_name:
        return message.destination_queue_format_name
    raise _unknown("only messages of journals are replayed without naming a queue")


def _queue_at_machine(address: str) -> str:
    """``sales@ALPHA`` as a format name; what has a backslash is a path name already."""
    address = address.strip()
    name, separator, machine = address.rpartition("@")
    if "\\" in address:
        return f"DIRECT=OS:{address}"
    if not separator:
        return f"DIRECT=OS:.\\private$\\{address}"
    return f"DIRECT=OS:{machine or '.'}\\private$\\{name}"


def _unknown(sentence: str) -> MessageQueuingError:
    return MessageQueuingError(ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND, sentence)
