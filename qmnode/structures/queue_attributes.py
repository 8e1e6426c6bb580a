"""Values of a queue's attributes that several rooms share (MS-MQDMPR 3.1.1.2, 3.1.1.3; MS-MQMQ 2.3)."""

from enum import IntEnum, StrEnum


class QueuePrivacyLevel(IntEnum):
    """PrivacyLevel of a queue, PROPID_Q_PRIV_LEVEL (MS-MQMQ 2.3.1.12): accepts clear messages only, both, encrypted
    only.

    The privacy levels of messages are another enumeration, in :mod:`qmnode.structures.message_security`.
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
