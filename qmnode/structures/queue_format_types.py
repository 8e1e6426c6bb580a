"""How a queue is named in a QUEUE_FORMAT: MS-MQMQ 2.2.6, 2.2.7 and 2.2.11."""

from enum import IntEnum, IntFlag


class QueueFormatType(IntEnum):
    """QUEUE_FORMAT_TYPE, 2.2.6: the kind of format name."""

    QUEUE_FORMAT_TYPE_UNKNOWN = 0
    QUEUE_FORMAT_TYPE_PUBLIC = 1
    QUEUE_FORMAT_TYPE_PRIVATE = 2
    QUEUE_FORMAT_TYPE_DIRECT = 3
    QUEUE_FORMAT_TYPE_MACHINE = 4
    QUEUE_FORMAT_TYPE_CONNECTOR = 5
    QUEUE_FORMAT_TYPE_DL = 6
    QUEUE_FORMAT_TYPE_MULTICAST = 7
    QUEUE_FORMAT_TYPE_SUBQUEUE = 8


class QueueSuffixType(IntEnum):
    """QUEUE_SUFFIX_TYPE, 2.2.11: the suffix after the semicolon; the low four bits of ``m_SuffixAndFlags`` (2.2.7)."""

    QUEUE_SUFFIX_TYPE_NONE = 0
    QUEUE_SUFFIX_TYPE_JOURNAL = 1
    QUEUE_SUFFIX_TYPE_DEADLETTER = 2
    QUEUE_SUFFIX_TYPE_DEADXACT = 3
    QUEUE_SUFFIX_TYPE_XACTONLY = 4
    QUEUE_SUFFIX_TYPE_SUBQUEUE = 5


class QueueFormatFlag(IntFlag):
    """The high four bits of ``m_SuffixAndFlags``, 2.2.7."""

    QUEUE_FORMAT_FLAG_NOT_SYSTEM = 0x00
    QUEUE_FORMAT_FLAG_SYSTEM = 0x80
