"""Named values of properties of MS-MQMQ 2.3 that a node reads or answers with. Each class names the section."""

from enum import StrEnum


class ConnectedState(StrEnum):
    """PROPID_MGMT_MSMQ_CONNECTED, 2.3.11.4: whether the queue manager is online."""

    MSMQ_CONNECTED = "CONNECTED"
    MSMQ_DISCONNECTED = "DISCONNECTED"


class ManagedQueueType(StrEnum):
    """PROPID_MGMT_QUEUE_TYPE, 2.3.12.3: the kind of queue."""

    MGMT_QUEUE_TYPE_PUBLIC = "PUBLIC"
    MGMT_QUEUE_TYPE_PRIVATE = "PRIVATE"
    MGMT_QUEUE_TYPE_MACHINE = "MACHINE"
    MGMT_QUEUE_TYPE_CONNECTOR = "CONNECTOR"
    MGMT_QUEUE_TYPE_MULTICAST = "MULTICAST"


class QueueLocation(StrEnum):
    """PROPID_MGMT_QUEUE_LOCATION, 2.3.12.4: whether the queue is on this computer."""

    MGMT_QUEUE_LOCAL_LOCATION = "LOCAL"
    MGMT_QUEUE_REMOTE_LOCATION = "REMOTE"


class QueueTransactional(StrEnum):
    """PROPID_MGMT_QUEUE_XACT, 2.3.12.5: whether the queue is transactional."""

    MGMT_QUEUE_UNKNOWN_TYPE = "UNKNOWN"
    MGMT_QUEUE_TRANSACTIONAL_TYPE = "YES"
    MGMT_QUEUE_NOT_TRANSACTIONAL_TYPE = "NO"


class QueueForeign(StrEnum):
    """PROPID_MGMT_QUEUE_FOREIGN, 2.3.12.6: whether the queue is on a foreign system."""

    MGMT_QUEUE_UNKNOWN_TYPE = "UNKNOWN"
    MGMT_QUEUE_FOREIGN_TYPE = "YES"
    MGMT_QUEUE_NOT_FOREIGN_TYPE = "NO"


class QueueState(StrEnum):
    """PROPID_MGMT_QUEUE_STATE, 2.3.12.11: the state of the connection to an outgoing queue's next hop."""

    MGMT_QUEUE_STATE_LOCAL = "LOCAL CONNECTION"
    MGMT_QUEUE_STATE_NONACTIVE = "INACTIVE"
    MGMT_QUEUE_STATE_WAITING = "WAITING"
    MGMT_QUEUE_STATE_NEED_VALIDATE = "NEED VALIDATION"
    MGMT_QUEUE_STATE_ONHOLD = "ONHOLD"
    MGMT_QUEUE_STATE_CONNECTED = "CONNECTED"
    MGMT_QUEUE_STATE_DISCONNECTING = "DISCONNECTING"
    MGMT_QUEUE_STATE_DISCONNECTED = "DISCONNECTED"
