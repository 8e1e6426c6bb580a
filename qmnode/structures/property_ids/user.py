"""Properties of a user (MSMQ 1.0), and of an MQUser object: MS-MQMQ 2.3.6 and 2.3.9."""

from qmnode.structures.property_ids.base import PropertyId
from qmnode.structures.variant_types import VariantType as V


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
