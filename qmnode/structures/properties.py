"""Property identifiers: MS-MQMQ 2.3. One enumeration for each family of objects.

Numbers repeat between families (the two of management both begin at 1), so a number has a meaning only within its
family.
"""

from enum import IntEnum, StrEnum
from typing import Final, Self

from qmnode.structures.enumerations import VariantType
from qmnode.structures.enumerations import VariantType as V
from qmnode.structures.fields import i64, u32
from qmnode.structures.layout import Structure


# fmt: off
class SequenceInfo(Structure, section="MS-MQMQ 2.2.5.1", title="SEQUENCE_INFO"):
    """The place of a message in the sequence from one sending computer to one destination queue (2.2.5)."""

    seq_id: int  = i64(0, "SeqID", "The sequence")
    seq_no: int  = u32(8, "SeqNo", "The message's number in the sequence")
    prev_no: int = u32(12, "PrevNo", "The number of the message before it")
# fmt: on


class PropertyId(IntEnum):
    """A PROPID: its number, the type of its value in a PROPVARIANT (2.2.12), and the section that describes it."""

    variant_type: VariantType
    section: str

    def __new__(cls, value: int, variant_type: VariantType = VariantType.VT_EMPTY, section: str = "") -> Self:
        member = int.__new__(cls, value)
        member._value_ = value
        member.variant_type = variant_type
        member.section = section
        return member


class QueueProperty(PropertyId):
    """Queue Property Identifiers, 2.3.1."""

    PROPID_Q_INSTANCE = 101, V.VT_CLSID, "2.3.1.1"
    PROPID_Q_TYPE = 102, V.VT_CLSID, "2.3.1.2"
    PROPID_Q_PATHNAME = 103, V.VT_LPWSTR, "2.3.1.3"
    PROPID_Q_JOURNAL = 104, V.VT_UI1, "2.3.1.4"
    PROPID_Q_QUOTA = 105, V.VT_UI4, "2.3.1.5"
    PROPID_Q_BASEPRIORITY = 106, V.VT_I2, "2.3.1.6"
    PROPID_Q_JOURNAL_QUOTA = 107, V.VT_UI4, "2.3.1.7"
    PROPID_Q_LABEL = 108, V.VT_LPWSTR, "2.3.1.8"
    PROPID_Q_CREATE_TIME = 109, V.VT_I4, "2.3.1.9"
    PROPID_Q_MODIFY_TIME = 110, V.VT_I4, "2.3.1.10"
    PROPID_Q_AUTHENTICATE = 111, V.VT_UI1, "2.3.1.11"
    PROPID_Q_PRIV_LEVEL = 112, V.VT_UI4, "2.3.1.12"
    PROPID_Q_TRANSACTION = 113, V.VT_UI1, "2.3.1.13"
    PROPID_Q_SCOPE = 114, V.VT_UI1, "2.3.1.14"
    PROPID_Q_QMID = 115, V.VT_CLSID, "2.3.1.15"
    PROPID_Q_PARTITIONID = 116, V.VT_CLSID, "2.3.1.16"
    PROPID_Q_SEQNUM = 117, V.VT_BLOB, "2.3.1.17"
    PROPID_Q_HASHKEY = 118, V.VT_UI4, "2.3.1.18"
    PROPID_Q_LABEL_HASHKEY = 119, V.VT_UI4, "2.3.1.19"
    PROPID_Q_FULL_PATH = 121, V.VT_LPWSTR, "2.3.1.20"
    PROPID_Q_NAME_SUFFIX = 123, V.VT_LPWSTR, "2.3.1.21"
    PROPID_Q_PATHNAME_DNS = 124, V.VT_LPWSTR, "2.3.1.22"
    PROPID_Q_MULTICAST_ADDRESS = 125, V.VT_LPWSTR, "2.3.1.23"
    PROPID_Q_ADS_PATH = 126, V.VT_LPWSTR, "2.3.1.24"
    PROPID_Q_SECURITY = 1101, V.VT_BLOB, "2.3.1.25"
    PROPID_Q_OBJ_SECURITY = 1102, V.VT_BLOB, "2.3.1.26"
    PROPID_Q_SECURITY_INFORMATION = 1103, V.VT_UI4, "2.3.1.27"


class QueueManagerProperty(PropertyId):
    """Machine Property Identifiers, 2.3.2."""

    PROPID_QM_SITE_ID = 201, V.VT_CLSID, "2.3.2.1"
    PROPID_QM_MACHINE_ID = 202, V.VT_CLSID, "2.3.2.2"
    PROPID_QM_PATHNAME = 203, V.VT_LPWSTR, "2.3.2.3"
    PROPID_QM_ENCRYPTION_PK = 205, V.VT_VECTOR_UI1, "2.3.2.4"
    PROPID_QM_ADDRESS = 206, V.VT_BLOB, "2.3.2.5"
    PROPID_QM_CNS = 207, V.VT_VECTOR_CLSID, "2.3.2.6"
    PROPID_QM_OUTFRS = 208, V.VT_VECTOR_CLSID, "2.3.2.7"
    PROPID_QM_INFRS = 209, V.VT_VECTOR_CLSID, "2.3.2.8"
    PROPID_QM_SERVICE = 210, V.VT_UI4, "2.3.2.9"
    PROPID_QM_QUOTA = 214, V.VT_UI4, "2.3.2.10"
    PROPID_QM_PARTITIONID = 211, V.VT_CLSID, "2.3.2.11"
    PROPID_QM_HASHKEY = 212, V.VT_UI4, "2.3.2.12"
    PROPID_QM_SEQNUM = 213, V.VT_BLOB, "2.3.2.13"
    PROPID_QM_JOURNAL_QUOTA = 215, V.VT_UI4, "2.3.2.14"
    PROPID_QM_MACHINE_TYPE = 216, V.VT_LPWSTR, "2.3.2.15"
    PROPID_QM_CREATE_TIME = 217, V.VT_I4, "2.3.2.16"
    PROPID_QM_MODIFY_TIME = 218, V.VT_I4, "2.3.2.17"
    PROPID_QM_FOREIGN = 219, V.VT_UI1, "2.3.2.18"
    PROPID_QM_OS = 220, V.VT_UI4, "2.3.2.19"
    PROPID_QM_FULL_PATH = 221, V.VT_LPWSTR, "2.3.2.20"
    PROPID_QM_SITE_IDS = 222, V.VT_VECTOR_CLSID, "2.3.2.21"
    PROPID_QM_OUTFRS_DN = 223, V.VT_VECTOR_LPWSTR, "2.3.2.22"
    PROPID_QM_INFRS_DN = 224, V.VT_VECTOR_LPWSTR, "2.3.2.23"
    PROPID_QM_SERVICE_ROUTING = 227, V.VT_UI1, "2.3.2.24"
    PROPID_QM_SERVICE_DSSERVER = 228, V.VT_UI1, "2.3.2.25"
    PROPID_QM_SERVICE_DEPCLIENTS = 229, V.VT_UI1, "2.3.2.26"
    PROPID_QM_ENCRYPTION_PK_BASE = 231, V.VT_VECTOR_UI1, "2.3.2.27"
    PROPID_QM_ENCRYPTION_PK_ENHANCED = 232, V.VT_VECTOR_UI1, "2.3.2.28"
    PROPID_QM_PATHNAME_DNS = 233, V.VT_LPWSTR, "2.3.2.29"
    PROPID_QM_OBJ_SECURITY = 234, V.VT_BLOB, "2.3.2.30"
    PROPID_QM_SECURITY_INFORMATION = 237, V.VT_UI4, "2.3.2.31"
    PROPID_QM_ENCRYPT_PKS = 238, V.VT_BLOB, "2.3.2.32"
    PROPID_QM_SIGN_PKS = 239, V.VT_BLOB, "2.3.2.33"
    PROPID_QM_OWNER_SID = 241, V.VT_BLOB, "2.3.2.34"
    PROPID_QM_GROUP_IN_CLUSTER = 242, V.VT_UI1, "2.3.2.35"
    PROPID_QM_SECURITY = 1201, V.VT_BLOB, "2.3.2.36"
    PROPID_QM_SIGN_PK = 1202, V.VT_BLOB, "2.3.2.37"
    PROPID_QM_ENCRYPT_PK = 1203, V.VT_BLOB, "2.3.2.38"
    PROPID_QM_UPGRADE_DACL = 1205, V.VT_BLOB, "2.3.2.39"


class SiteProperty(PropertyId):
    """Site Property Identifiers, 2.3.3."""

    PROPID_S_PATHNAME = 301, V.VT_LPWSTR, "2.3.3.1"
    PROPID_S_SITEID = 302, V.VT_CLSID, "2.3.3.2"
    PROPID_S_GATES = 303, V.VT_VECTOR_CLSID, "2.3.3.3"
    PROPID_S_PSC = 304, V.VT_LPWSTR, "2.3.3.4"
    PROPID_S_INTERVAL1 = 305, V.VT_UI2, "2.3.3.5"
    PROPID_S_INTERVAL2 = 306, V.VT_UI2, "2.3.3.6"
    PROPID_S_PARTITIONID = 307, V.VT_CLSID, "2.3.3.7"
    PROPID_S_SEQNUM = 308, V.VT_BLOB, "2.3.3.8"
    PROPID_S_FULL_NAME = 309, V.VT_LPWSTR, "2.3.3.9"
    PROPID_S_NT4_STUB = 310, V.VT_UI2, "2.3.3.10"
    PROPID_S_FOREIGN = 311, V.VT_UI1, "2.3.3.11"
    PROPID_S_DONOTHING = 312, V.VT_UI1, "2.3.3.12"
    PROPID_S_SECURITY = 1301, V.VT_BLOB, "2.3.3.13"
    PROPID_S_PSC_SIGNPK = 1302, V.VT_BLOB, "2.3.3.14"
    PROPID_S_SECURITY_INFORMATION = 1303, V.VT_UI4, "2.3.3.15"


class ConnectedNetworkProperty(PropertyId):
    """Connected Network Property Identifiers, 2.3.4."""

    PROPID_CN_PROTOCOLID = 501, V.VT_UI1, "2.3.4.1"
    PROPID_CN_NAME = 502, V.VT_LPWSTR, "2.3.4.2"
    PROPID_CN_GUID = 503, V.VT_CLSID, "2.3.4.3"
    PROPID_CN_PARTITIONID = 504, V.VT_CLSID, "2.3.4.4"
    PROPID_CN_SEQNUM = 505, V.VT_BLOB, "2.3.4.5"
    PROPID_CN_SECURITY = 1501, V.VT_BLOB, "2.3.4.6"


class EnterpriseProperty(PropertyId):
    """Enterprise Object Property Identifiers, 2.3.5."""

    PROPID_E_NAME = 601, V.VT_LPWSTR, "2.3.5.1"
    PROPID_E_NAMESTYLE = 602, V.VT_UI1, "2.3.5.2"
    PROPID_E_CSP_NAME = 603, V.VT_LPWSTR, "2.3.5.3"
    PROPID_E_PECNAME = 604, V.VT_LPWSTR, "2.3.5.4"
    PROPID_E_S_INTERVAL1 = 605, V.VT_UI2, "2.3.5.5"
    PROPID_E_S_INTERVAL2 = 606, V.VT_UI2, "2.3.5.6"
    PROPID_E_PARTITIONID = 607, V.VT_CLSID, "2.3.5.7"
    PROPID_E_SEQNUM = 608, V.VT_BLOB, "2.3.5.8"
    PROPID_E_ID = 609, V.VT_CLSID, "2.3.5.9"
    PROPID_E_CRL = 610, V.VT_BLOB, "2.3.5.10"
    PROPID_E_CSP_TYPE = 611, V.VT_UI4, "2.3.5.11"
    PROPID_E_ENCRYPT_ALG = 612, V.VT_UI4, "2.3.5.12"
    PROPID_E_SIGN_ALG = 613, V.VT_UI4, "2.3.5.13"
    PROPID_E_HASH_ALG = 614, V.VT_UI4, "2.3.5.14"
    PROPID_E_LONG_LIVE = 616, V.VT_UI4, "2.3.5.15"
    PROPID_E_VERSION = 617, V.VT_UI2, "2.3.5.16"
    PROPID_E_SECURITY = 1601, V.VT_BLOB, "2.3.5.17"
    PROPID_E_CIPHER_MODE = 615, V.VT_UI4, "2.3.5.18"


class UserProperty(PropertyId):
    """User Object Property Identifiers, 2.3.6."""

    PROPID_U_SID = 701, V.VT_BLOB, "2.3.6.1"
    PROPID_U_PARTITIONID = 703, V.VT_CLSID, "2.3.6.2"
    PROPID_U_SEQNUM = 704, V.VT_BLOB, "2.3.6.3"
    PROPID_U_SIGN_CERT = 702, V.VT_BLOB, "2.3.6.4"
    PROPID_U_DIGEST = 705, V.VT_VECTOR_CLSID, "2.3.6.5"
    PROPID_U_ID = 706, V.VT_CLSID, "2.3.6.6"


class MQUserProperty(PropertyId):
    """MQUser Property Identifiers, 2.3.9."""

    PROPID_MQU_SID = 5401, V.VT_BLOB, "2.3.9.1"
    PROPID_MQU_SIGN_CERT = 5402, V.VT_BLOB, "2.3.9.2"
    PROPID_MQU_DIGEST = 5405, V.VT_VECTOR_CLSID, "2.3.9.3"
    PROPID_MQU_ID = 5406, V.VT_CLSID, "2.3.9.4"
    PROPID_MQU_SECURITY = 5407, V.VT_BLOB, "2.3.9.5"


class RoutingLinkProperty(PropertyId):
    """Routinglink Property Identifiers, 2.3.7."""

    PROPID_L_NEIGHBOR1 = 801, V.VT_CLSID, "2.3.7.1"
    PROPID_L_NEIGHBOR2 = 802, V.VT_CLSID, "2.3.7.2"
    PROPID_L_COST = 803, V.VT_UI4, "2.3.7.3"
    PROPID_L_PARTITIONID = 804, V.VT_CLSID, "2.3.7.4"
    PROPID_L_SEQNUM = 805, V.VT_BLOB, "2.3.7.5"
    PROPID_L_ID = 806, V.VT_CLSID, "2.3.7.6"
    PROPID_L_GATES_DN = 807, V.VT_VECTOR_LPWSTR, "2.3.7.7"
    PROPID_L_NEIGHBOR1_DN = 808, V.VT_LPWSTR, "2.3.7.8"
    PROPID_L_NEIGHBOR2_DN = 809, V.VT_LPWSTR, "2.3.7.9"
    PROPID_L_DESCRIPTION = 810, V.VT_LPWSTR, "2.3.7.10"
    PROPID_L_FULL_PATH = 811, V.VT_LPWSTR, "2.3.7.11"
    PROPID_L_ACTUAL_COST = 812, V.VT_UI4, "2.3.7.12"
    PROPID_L_GATES = 813, V.VT_VECTOR_CLSID, "2.3.7.13"


class SettingsProperty(PropertyId):
    """Settings Property Identifiers, 2.3.8."""

    PROPID_SET_NAME = 5101, V.VT_LPWSTR, "2.3.8.1"
    PROPID_SET_SERVICE = 5102, V.VT_UI4, "2.3.8.2"
    PROPID_SET_QM_ID = 5103, V.VT_CLSID, "2.3.8.3"
    PROPID_SET_FULL_PATH = 5105, V.VT_LPWSTR, "2.3.8.4"
    PROPID_SET_NT4 = 5106, V.VT_UI1, "2.3.8.5"
    PROPID_SET_PARTITIONID = 5107, V.VT_CLSID, "2.3.8.6"
    PROPID_SET_SITENAME = 5108, V.VT_LPWSTR, "2.3.8.7"
    PROPID_SET_SERVICE_ROUTING = 5109, V.VT_UI1, "2.3.8.8"
    PROPID_SET_SERVICE_DSSERVER = 5110, V.VT_UI1, "2.3.8.9"
    PROPID_SET_SERVICE_DEPCLIENTS = 5111, V.VT_UI1, "2.3.8.10"
    PROPID_SET_OLDSERVICE = 5112, V.VT_UI4, "2.3.8.11"


class ComputerProperty(PropertyId):
    """Computer Property Identifiers, 2.3.10."""

    PROPID_COM_FULL_PATH = 5201, V.VT_LPWSTR, "2.3.10.1"
    PROPID_COM_SAM_ACCOUNT = 5202, V.VT_LPWSTR, "2.3.10.2"
    PROPID_COM_ACCOUNT_CONTROL = 5204, V.VT_UI4, "2.3.10.3"
    PROPID_COM_DNS_HOSTNAME = 5205, V.VT_LPWSTR, "2.3.10.4"
    PROPID_COM_SID = 5206, V.VT_BLOB, "2.3.10.5"
    PROPID_COM_SIGN_CERT = 5207, V.VT_BLOB, "2.3.10.6"
    PROPID_COM_DIGEST = 5208, V.VT_VECTOR_CLSID, "2.3.10.7"
    PROPID_COM_ID = 5209, V.VT_CLSID, "2.3.10.8"


class ManagementMachineProperty(PropertyId):
    """Management Machine Property Identifiers, 2.3.11."""

    PROPID_MGMT_MSMQ_ACTIVEQUEUES = 1, V.VT_VECTOR_LPWSTR, "2.3.11.1"
    PROPID_MGMT_MSMQ_PRIVATEQ = 2, V.VT_VECTOR_LPWSTR, "2.3.11.2"
    PROPID_MGMT_MSMQ_DSSERVER = 3, V.VT_LPWSTR, "2.3.11.3"
    PROPID_MGMT_MSMQ_CONNECTED = 4, V.VT_LPWSTR, "2.3.11.4"
    PROPID_MGMT_MSMQ_TYPE = 5, V.VT_LPWSTR, "2.3.11.5"
    PROPID_MGMT_MSMQ_BYTES_IN_ALL_QUEUES = 6, V.VT_I8, "2.3.11.6"


class ManagementQueueProperty(PropertyId):
    """Management Queue Property Identifiers, 2.3.12."""

    PROPID_MGMT_QUEUE_PATHNAME = 1, V.VT_LPWSTR, "2.3.12.1"
    PROPID_MGMT_QUEUE_FORMATNAME = 2, V.VT_LPWSTR, "2.3.12.2"
    PROPID_MGMT_QUEUE_TYPE = 3, V.VT_LPWSTR, "2.3.12.3"
    PROPID_MGMT_QUEUE_LOCATION = 4, V.VT_LPWSTR, "2.3.12.4"
    PROPID_MGMT_QUEUE_XACT = 5, V.VT_LPWSTR, "2.3.12.5"
    PROPID_MGMT_QUEUE_FOREIGN = 6, V.VT_LPWSTR, "2.3.12.6"
    PROPID_MGMT_QUEUE_MESSAGE_COUNT = 7, V.VT_UI4, "2.3.12.7"
    PROPID_MGMT_QUEUE_BYTES_IN_QUEUE = 8, V.VT_UI4, "2.3.12.8"
    PROPID_MGMT_QUEUE_JOURNAL_MESSAGE_COUNT = 9, V.VT_UI4, "2.3.12.9"
    PROPID_MGMT_QUEUE_BYTES_IN_JOURNAL = 10, V.VT_UI4, "2.3.12.10"
    PROPID_MGMT_QUEUE_STATE = 11, V.VT_LPWSTR, "2.3.12.11"
    PROPID_MGMT_QUEUE_NEXTHOPS = 12, V.VT_VECTOR_LPWSTR, "2.3.12.12"
    PROPID_MGMT_QUEUE_EOD_LAST_ACK = 13, V.VT_BLOB, "2.3.12.13"
    PROPID_MGMT_QUEUE_EOD_LAST_ACK_TIME = 14, V.VT_I4, "2.3.12.14"
    PROPID_MGMT_QUEUE_EOD_LAST_ACK_COUNT = 15, V.VT_UI4, "2.3.12.15"
    PROPID_MGMT_QUEUE_EOD_FIRST_NON_ACK = 16, V.VT_BLOB, "2.3.12.16"
    PROPID_MGMT_QUEUE_EOD_LAST_NON_ACK = 17, V.VT_BLOB, "2.3.12.17"
    PROPID_MGMT_QUEUE_EOD_NEXT_SEQ = 18, V.VT_BLOB, "2.3.12.18"
    PROPID_MGMT_QUEUE_EOD_NO_READ_COUNT = 19, V.VT_UI4, "2.3.12.19"
    PROPID_MGMT_QUEUE_EOD_NO_ACK_COUNT = 20, V.VT_UI4, "2.3.12.20"
    PROPID_MGMT_QUEUE_EOD_RESEND_TIME = 21, V.VT_I4, "2.3.12.21"
    PROPID_MGMT_QUEUE_EOD_RESEND_INTERVAL = 22, V.VT_UI4, "2.3.12.22"
    PROPID_MGMT_QUEUE_EOD_RESEND_COUNT = 23, V.VT_UI4, "2.3.12.23"
    PROPID_MGMT_QUEUE_EOD_SOURCE_INFO = 24, V.VT_VECTOR_VARIANT, "2.3.12.24"
    PROPID_MGMT_QUEUE_CONNECTION_HISTORY = 25, V.VT_VECTOR_VARIANT, "2.3.12.25"
    PROPID_MGMT_QUEUE_SUBQUEUE_COUNT = 26, V.VT_UI4, "2.3.12.26"
    PROPID_MGMT_QUEUE_SUBQUEUE_NAMES = 27, V.VT_VECTOR_LPWSTR, "2.3.12.27"


class DeletionNotificationProperty(PropertyId):
    """Deletion Notification Property Identifiers, 2.3.13."""

    PROPID_D_SEQNUM = 1401, V.VT_BLOB, "2.3.13.1"
    PROPID_D_PARTITIONID = 1402, V.VT_CLSID, "2.3.13.2"
    PROPID_D_SCOPE = 1403, V.VT_UI1, "2.3.13.3"
    PROPID_D_OBJTYPE = 1404, V.VT_UI1, "2.3.13.4"
    PROPID_D_IDENTIFIER = 1405, V.VT_CLSID, "2.3.13.5"


PROPERTY_FAMILIES: Final[tuple[type[PropertyId], ...]] = (
    QueueProperty,
    QueueManagerProperty,
    SiteProperty,
    ConnectedNetworkProperty,
    EnterpriseProperty,
    UserProperty,
    RoutingLinkProperty,
    SettingsProperty,
    MQUserProperty,
    ComputerProperty,
    ManagementMachineProperty,
    ManagementQueueProperty,
    DeletionNotificationProperty,
)
"""All families, in the order of MS-MQMQ 2.3.1 to 2.3.13."""


# ----------------------------------------------------------------------------------------------------------------------
# Named values of properties of MS-MQMQ 2.3 that a node reads or answers with. Each class names the section.


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
