"""Decisions about a message and its copy at the sender: journals, dead-letter queues, refusals.

Figures 5 to 10 of 3.1.1.1.1, sections 3.1.5.5.4, 3.1.5.6, 3.1.5.7, 3.1.5.8.8, 3.1.7.1.2, 3.1.7.1.5.1 and 3.1.7.15.
"""

from enum import Enum, auto, unique
from typing import Final

from qmnode.structures.base_header import INFINITE
from qmnode.structures.message_classes import MessageClass
from qmnode.structures.user_header import UserFlags

_JN: Final = UserFlags.JN.mask
_JP: Final = UserFlags.JP.mask
_TH: Final = UserFlags.TH.mask

WITHOUT_BODY: Final = frozenset({MessageClass.MQMSG_CLASS_ACK_REACH_QUEUE, MessageClass.MQMSG_CLASS_ACK_RECEIVE})
"""Administration acknowledgments that do not return the body (3.1.7.15)."""


@unique
class Fate(Enum):
    """The fate of a message that leaves the outgoing queue, or that is refused."""

    RELEASE = auto()
    """The message is deleted."""
    JOURNAL = auto()
    """Moved to the system journal queue."""
    DEAD_LETTER = auto()
    """Moved to the system dead-letter queue."""
    TRANSACTIONAL_DEAD_LETTER = auto()
    """The message's application dead-letter queue if it has one, else the system transactional dead-letter queue."""
    AWAIT_FINAL_ACK = auto()
    """Moved to AwaitingFinalACKTable until the FinalAck reports its outcome."""
    KEEP = auto()
    """Stays where it is."""


def after_order_ack(user_flags: int, final_ack_requested: bool = False) -> Fate:
    """The fate of a transactional message that an order acknowledgment covers (3.1.5.6); FA is the header's flag."""
    return Fate.AWAIT_FINAL_ACK if user_flags & (_JN | _JP) or final_ack_requested else Fate.RELEASE


def after_final_ack(user_flags: int, message_class: int) -> Fate:
    """The fate of a message with a FinalAck, whether it waited for it or is still in the outgoing queue (3.1.5.7)."""
    if message_class == MessageClass.MQMSG_CLASS_ACK_RECEIVE:
        return Fate.JOURNAL if user_flags & _JP else Fate.RELEASE
    return Fate.TRANSACTIONAL_DEAD_LETTER if user_flags & _JN else Fate.RELEASE


KEPT_WHEN_REFUSED: Final = frozenset(
    {
        MessageClass.MQMSG_CLASS_NACK_Q_EXCEED_QUOTA,
        MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT,
        MessageClass.MQMSG_CLASS_NACK_HOP_COUNT_EXCEEDED,
        MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q,
        MessageClass.MQMSG_CLASS_NACK_NOT_TRANSACTIONAL_MSG,
    }
)
"""Refusals after which a message that is not transactional goes to the dead-letter queue of the refusing node, since
its source has deleted it. 3.1.5.8.8 requires this for the quota. It is done for the others too, because some are not
even acknowledged by default and would leave no trace. Refusals for security keep nothing.
"""


def refused_here(user_flags: int, message_class: int) -> Fate:
    """The fate of a refused message at the refuser. A transactional one is kept by its source for the FinalAck."""
    if message_class in KEPT_WHEN_REFUSED and user_flags & _JN and not user_flags & _TH:
        return Fate.DEAD_LETTER
    return Fate.RELEASE


def has_expired(time_to_reach_queue: int, sent_time: int, time: int) -> bool:
    """Whether the time to reach the queue has ended (3.1.7.1.2, MS-MQMQ 2.2.19.1): seconds, since 1970."""
    return time_to_reach_queue != INFINITE and time - sent_time > time_to_reach_queue
