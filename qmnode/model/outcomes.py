"""What follows when a message leaves its queue: Message Position Deleted, MS-MQDMPR 3.1.7.2.1 and MS-MQQB 3.1.7.2.

A copy for the queue's journal, a copy for a dead-letter queue, an acknowledgment for the sender. All of it is in the
same batch as the deletion, so that no crash comes between a message and its copy.
"""

from typing import TYPE_CHECKING, Final

from qmnode.model.dead_letters import dead_letter_queue
from qmnode.model.message import INFINITE, Acknowledgment, Message
from qmnode.model.packet import received_message, with_class
from qmnode.model.record import (
    FLAGS,
    NEGATIVE_JOURNAL,
    NEVER,
    ON_ARRIVAL,
    ON_LOSS,
    PREFIX_SIZE,
    REPORT,
    TRANSACTIONAL,
    with_prefix,
)
from qmnode.structures.message_classes import MessageClass, is_negative_acknowledgment, is_receive_acknowledgment
from qmnode.structures.multi_queue_format_header import MOST_ADMINISTRATION_QUEUES
from qmnode.structures.names.multiple import SEPARATOR

if TYPE_CHECKING:
    from qmnode.model.queue import Queue
    from qmnode.model.queue_manager import QueueManager

_ACKNOWLEDGED_BY: Final = {
    # (negative?, about receiving?): the bit of AcknowledgementsRequested that asks for it.
    (False, False): Acknowledgment.POSITIVE_ARRIVAL,
    (False, True): Acknowledgment.POSITIVE_RECEIVE,
    (True, False): Acknowledgment.NEGATIVE_ARRIVAL,
    (True, True): Acknowledgment.NEGATIVE_RECEIVE,
}


class Outcomes:
    """Sends after a message what was asked for when it leaves."""

    def __init__(self, manager: "QueueManager") -> None:
        self._manager = manager
        self.journal_copies_dropped = 0
        """Copies that a journal's quota had no room for."""

    def message_position_deleted(self, queue: "Queue", lookup_identifier: int, value: bytes, reason: int) -> None:
        """A message was deleted for this reason."""
        if reason == MessageClass.MQMSG_CLASS_ACK_RECEIVE:
            if queue.journaling:
                self.add_to_journal(queue.journal, lookup_identifier, value)
        elif value[FLAGS] & NEGATIVE_JOURNAL and not queue.is_dead_letter:
            self.add_to_dead_letters(lookup_identifier, value, reason)
        if value[FLAGS] & REPORT:
            self.acknowledge(received_message(lookup_identifier, value), reason)
        network = self._manager.network
        if value[FLAGS] & TRANSACTIONAL and network is not None and not (queue.is_dead_letter or queue.is_journal):
            network.message_left(value, reason)

    def arrived(self, lookup_identifier: int, value: bytes) -> None:
        """A message reached its queue here: acknowledge that, and keep a copy if it was sent from here."""
        message = received_message(lookup_identifier, value)
        if message.positive_journaling_requested and message.source_machine_identifier == self._manager.identifier:
            self.add_to_journal(self._manager.journal_queue, lookup_identifier, value)
        self.acknowledge(message, MessageClass.MQMSG_CLASS_ACK_REACH_QUEUE)

    def add_to_journal(self, journal: "Queue", lookup_identifier: int, value: bytes) -> None:
        """Target journaling, and positive source journaling."""
        if self._manager.quotas.journal_has_room(journal, len(value) - PREFIX_SIZE):
            journal.insert(lookup_identifier, kept(value))
        else:
            self.journal_copies_dropped += 1

    def add_to_dead_letters(self, lookup_identifier: int, value: bytes, reason: int) -> None:
        """Negative source journaling: a message that asked for it and was not received goes to a dead-letter queue.

        That which the application named, or that of this node, also for a message from elsewhere; but a transactional
        one is its sender's to keep, who learns of it by the final acknowledgment.
        """
        message = received_message(lookup_identifier, value)
        manager = self._manager
        if not message.negative_journaling_requested:
            return
        if message.transactional and message.source_machine_identifier != manager.identifier:
            return
        queue = dead_letter_queue(manager, message, len(value) - PREFIX_SIZE)
        queue.insert(lookup_identifier, with_class(kept(value), reason))

    def acknowledge(self, message: Message, message_class: int) -> None:
        """Send Administration Acknowledgment (MS-MQQB 3.1.7.15), if the message asks for one of this class."""
        asked = _ACKNOWLEDGED_BY[is_negative_acknowledgment(message_class), is_receive_acknowledgment(message_class)]
        if not message.acknowledgements_requested & asked or not message.administration_queue_format_name:
            return
        several = message.administration_multi_queue_format_name
        if several.count(SEPARATOR) >= MOST_ADMINISTRATION_QUEUES:
            several = ""
        negative = is_negative_acknowledgment(message_class)
        self._manager.send_internally(
            several or message.administration_queue_format_name,
            Message(
                message.body if negative and not message.privacy_level else b"",
                label=message.label,
                message_class=message_class,
                correlation_identifier=message.identifier,
                response_queue_format_name=message.destination_queue_format_name,
                time_to_reach_queue=INFINITE,
                recoverable=message.recoverable,
                priority=message.priority,
                body_type=message.body_type,
                app_specific=message.app_specific,
            ),
        )


def kept(value: bytes) -> bytes:
    """The message as a journal or dead-letter queue keeps it: it does not expire, and nobody is told when it goes."""
    return with_prefix(value, flags=value[FLAGS] & ~(ON_ARRIVAL | ON_LOSS), expires=NEVER)
