"""Properties of a connected network: MS-MQMQ 2.3.4."""

from qmnode.structures.property_ids.base import PropertyId
from qmnode.structures.variant_types import VariantType as V


class ConnectedNetworkProperty(PropertyId):
    """Connected Network Property Identifiers, 2.3.4."""

    PROPID_CN_PROTOCOLID = 501, V.VT_UI1, "2.3.4.1"
    PROPID_CN_NAME = 502, V.VT_LPWSTR, "2.3.4.2"
    PROPID_CN_GUID = 503, V.VT_CLSID, "2.3.4.3"
    PROPID_CN_PARTITIONID = 504, V.VT_CLSID, "2.3.4.4"
    PROPID_CN_SEQNUM = 505, V.VT_BLOB, "2.3.4.5"
    PROPID_CN_SECURITY = 1501, V.VT_BLOB, "2.3.4.6"
