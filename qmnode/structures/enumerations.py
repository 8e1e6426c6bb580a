"""Enumerations of MS-MQMQ and MS-MQQB that several structures and rooms share."""

from enum import IntEnum, IntFlag, StrEnum
from typing import Final

# ----------------------------------------------------------------------------------------------------------------------
# Message class identifiers: MS-MQMQ 2.2.18.1.6. The class of a message: normal, report, acknowledgment, refusal.

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


# ----------------------------------------------------------------------------------------------------------------------
# Numbers of a message's security in MS-MQMQ 2.2.19.3 and 2.2.20.6: hashes, ciphers, privacy, signatures, senders.
#
# The names are those of MS-MQDMPR 3.1.1.12, the numbers are on the wire. The algorithm ids are CryptoAPI's ALG_ID.


class PrivacyLevel(IntEnum):
    """PrivacyLevel: how the body is encrypted in transit. Values of MessagePropertiesHeader.PrivacyLevel."""

    NONE = 0
    BASE = 1
    ENHANCED = 3
    ADVANCED = 5


PRIVACY_LEVELS: Final = frozenset(map(int, PrivacyLevel))


class HashAlgorithm(IntEnum):
    """HashAlgorithm: the hash that a signature is made over. Values of MessagePropertiesHeader.HashAlgorithm."""

    MD2 = 0x8001
    MD4 = 0x8002
    MD5 = 0x8003
    SHA1 = 0x8004
    SHA_256 = 0x800C
    SHA_512 = 0x800E


class EncryptionAlgorithm(IntEnum):
    """EncryptionAlgorithm: the cipher of the body. Values of MessagePropertiesHeader.EncryptionAlgorithm."""

    RC2 = 0x6602
    RC4 = 0x6801
    AES128 = 0x660E
    AES192 = 0x660F
    AES256 = 0x6610


class AuthenticationLevel(IntEnum):
    """AuthenticationLevel: the kind of digital signature requested, or found on arrival (SecurityHeader.Flags.AS)."""

    NONE = 0
    SIG10 = 1
    SIG20 = 3
    SIG30 = 5


class SenderIdentifierType(IntEnum):
    """SenderIdentifierType: the kind of SenderIdentifier. Values of SecurityHeader.Flags.ST."""

    NONE = 0
    SID = 1
    QUEUE_MANAGER_IDENTIFIER = 2


# ----------------------------------------------------------------------------------------------------------------------
# Values of a queue's attributes that several rooms share (MS-MQDMPR 3.1.1.2, 3.1.1.3; MS-MQMQ 2.3).


class QueuePrivacyLevel(IntEnum):
    """PrivacyLevel of a queue, PROPID_Q_PRIV_LEVEL (MS-MQMQ 2.3.1.12): accepts clear messages only, both, encrypted
    only.

    The privacy levels of messages are another enumeration, in :mod:`qmnode.structures.enumerations`.
    """

    NONE = 0
    OPTIONAL = 1
    BODY = 2


class OutgoingQueueState(StrEnum):
    """State of an outgoing queue, MS-MQDMPR 3.1.1.3; definitions and JSON documents contain the values."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    DISCONNECTING = "disconnecting"
    INACTIVE = "inactive"
    LOCKED = "locked"
    NEED_VALIDATION = "need validation"
    WAITING = "waiting"
    ON_HOLD = "on hold"


class ConnectionStatus(IntEnum):
    """Status in ConnectionHistory, MS-MQDMPR 3.1.1.3, with the values of MS-MQMQ 2.3.12.25: bit 31 is failure."""

    IN_PROCESS = 0x00000000
    ESTABLISH_PACKET_RECEIVED = 0x00000001
    ESTABLISHED = 0x00000002
    UNKNOWN_FAILURE = 0x80000000
    PING_FAILURE = 0x80000001
    SOCKET_CREATE_FAILURE = 0x80000002
    SOCKET_BIND_FAILURE = 0x80000003
    SOCKET_CONNECT_FAILURE = 0x80000004
    TCP_NOT_ENABLED = 0x80000005
    SOCKET_SEND_FAILURE = 0x80000006
    CONNECTION_NOT_READY = 0x80000007
    DNS_FAILURE = 0x80000008
    CERTIFICATE_VALIDATION_FAILURE = 0x80000009
    CONNECTION_LIMIT_REACHED = 0x8000000A
    CONNECTION_REFUSED = 0x8000000B
    ROUTING_DATA_NOT_AVAILABLE = 0x8000000C
    LOW_RESOURCE = 0x8000000D


# ----------------------------------------------------------------------------------------------------------------------
# How a queue is named in a QUEUE_FORMAT: MS-MQMQ 2.2.6, 2.2.7 and 2.2.11.


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


# ----------------------------------------------------------------------------------------------------------------------
# PROPVARIANT type constants: MS-MQMQ 2.2.12, the discriminant ``vt`` of a PROPVARIANT.

VT_VECTOR: Final = 0x1000
"""Combined by bitwise OR with another type: a counted array of it (2.2.16)."""


class VariantType(IntEnum):
    """VARENUM, with those vectors that a PROPVARIANT can hold (the cases of the union in 2.2.13.1).

    VT_VARIANT alone is not a value of ``vt``: it appears only in a vector.
    """

    VT_EMPTY = 0
    VT_NULL = 1
    VT_I2 = 2
    VT_I4 = 3
    VT_BOOL = 11
    VT_VARIANT = 12
    VT_I1 = 16
    VT_UI1 = 17
    VT_UI2 = 18
    VT_UI4 = 19
    VT_I8 = 20
    VT_UI8 = 21
    VT_LPWSTR = 31
    VT_BLOB = 65
    VT_CLSID = 72
    VT_VECTOR_I4 = VT_VECTOR | 3
    VT_VECTOR_VARIANT = VT_VECTOR | 12
    VT_VECTOR_UI1 = VT_VECTOR | 17
    VT_VECTOR_UI2 = VT_VECTOR | 18
    VT_VECTOR_UI4 = VT_VECTOR | 19
    VT_VECTOR_UI8 = VT_VECTOR | 21
    VT_VECTOR_LPWSTR = VT_VECTOR | 31
    VT_VECTOR_CLSID = VT_VECTOR | 72
