"""What becomes of a message whose receivers keep failing: after so many aborted receives it is moved out of the way."""

from typing import TYPE_CHECKING, Final

from qmnode.model.outcomes import kept
from qmnode.model.packet import with_class
from qmnode.model.record import PREFIX, with_prefix
from qmnode.settings.node import PoisonSettings
from qmnode.structures.message_classes import MessageClass

if TYPE_CHECKING:
    from qmnode.model.queue import Queue
    from qmnode.model.queue_manager import QueueManager

POISON_SUBQUEUE: Final = "poison"


class PoisonPolicy:
    """Counts aborted receives in the message itself, and acts when there are too many."""

    def __init__(self, manager: "QueueManager", settings: PoisonSettings) -> None:
        self._manager = manager
        self.settings = settings

    def aborted(self, queue: "Queue", lookup_identifier: int, value: bytes) -> None:
        """A transaction that had received this message (already unlocked) has aborted."""
        aborts = PREFIX.unpack_from(value)[2] + 1
        counted = with_prefix(value, aborts=aborts)
        limit = self.settings.aborts
        if limit and aborts >= limit and self._move_away(queue, lookup_identifier, value, counted):
            return
        queue.replace(lookup_identifier, counted)
        queue.make_available(lookup_identifier, counted)

    def _move_away(self, queue: "Queue", lookup_identifier: int, value: bytes, counted: bytes) -> bool:
        if self.settings.target == "dead-letter":
            queue.remove(lookup_identifier, value)
            reason = MessageClass.MQMSG_CLASS_NACK_RECEIVE_REJECTED
            queue.tally.ended(value, reason)
            if queue.recorder is not None:
                queue.recorder.deleted(queue, value, reason)
            self._manager.transactional_dead_letter_queue.insert(lookup_identifier, with_class(kept(counted), reason))
            return True
        if queue.parent is not None:
            return False  # a subqueue has none of its own: what fails there stays there
        target = self._manager.subqueue(queue, POISON_SUBQUEUE)
        queue.remove(lookup_identifier, value)
        target.insert(lookup_identifier, counted)
        return True
