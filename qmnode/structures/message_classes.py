"""Message class identifiers: MS-MQMQ 2.2.18.1.6. The class of a message: normal, report, acknowledgment, refusal."""

from enum import IntEnum
from typing import Final

CUSTOM_CLASS_MASK: Final = 0xE1FF
"""Bits that an application may set in a class of its own; the others must be zero."""


class MessageClass(IntEnum):
    """MESSAGE_CLASS_VALUES: the classes that the specification names. Applications may use others, see the mask."""

    MQMSG_CLASS_NORMAL = 0x0000
    MQMSG_CLASS_REPORT = 0x0001
    MQMSG_CLASS_ACK_REACH_QUEUE = 0x0002
    MQMSG_CLASS_ORDER_ACK = 0x00FF
    MQMSG_CLASS_ACK_RECEIVE = 0x4000
    MQMSG_CLASS_NACK_BAD_DST_Q = 0x8000
    MQMSG_CLASS_NACK_DELETED = 0x8001
    MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT = 0x8002
    MQMSG_CLASS_NACK_Q_EXCEED_QUOTA = 0x8003
    MQMSG_CLASS_NACK_ACCESS_DENIED = 0x8004
    MQMSG_CLASS_NACK_HOP_COUNT_EXCEEDED = 0x8005
    MQMSG_CLASS_NACK_BAD_SIGNATURE = 0x8006
    MQMSG_CLASS_NACK_BAD_ENCRYPTION = 0x8007
    # NackCouldNotEncrypt of MS-MQDMPR 3.1.1.12. MS-MQMQ has no number for it; Microsoft's System.Messaging has
    # (Acknowledgment.CouldNotEncrypt). It names none of the other classes without a number: a changed GUID of the
    # source, and a receive time-out at the sender. They are not used.
    MQMSG_CLASS_NACK_COULD_NOT_ENCRYPT = 0x8008
    MQMSG_CLASS_NACK_NOT_TRANSACTIONAL_Q = 0x8009
    MQMSG_CLASS_NACK_NOT_TRANSACTIONAL_MSG = 0x800A
    # A scan of the specification prints CRYPTQ here; its own text below the enumeration says CRYPTO.
    MQMSG_CLASS_NACK_UNSUPPORTED_CRYPTO_PROVIDER = 0x800B
    MQMSG_CLASS_NACK_Q_DELETED = 0xC000
    MQMSG_CLASS_NACK_Q_PURGED = 0xC001
    MQMSG_CLASS_NACK_RECEIVE_TIMEOUT = 0xC002
    MQMSG_CLASS_NACK_RECEIVE_REJECTED = 0xC004


INSECURE_NACKS: Final = frozenset(
    {
        MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q,
        MessageClass.MQMSG_CLASS_NACK_BAD_ENCRYPTION,
        MessageClass.MQMSG_CLASS_NACK_BAD_SIGNATURE,
        MessageClass.MQMSG_CLASS_NACK_ACCESS_DENIED,
        MessageClass.MQMSG_CLASS_NACK_UNSUPPORTED_CRYPTO_PROVIDER,
    }
)
"""Administration acknowledgments that tell strangers of this queue manager: off by default (3.1.7.15, 5.1)."""

_RECEIVE: Final = 0x4000
_NEGATIVE: Final = 0x8000


def is_negative_acknowledgment(message_class: int) -> bool:
    """Whether the class reports that the original message was not delivered or not received."""
    return bool(message_class & _NEGATIVE)


def is_receive_acknowledgment(message_class: int) -> bool:
    """Whether the class reports the outcome of the original message after it had reached its queue."""
    return bool(message_class & _RECEIVE)


def is_permitted(message_class: int) -> bool:
    """Whether a message may have the class: one that the specification names, or a custom one within the mask."""
    return message_class & ~CUSTOM_CLASS_MASK == 0
