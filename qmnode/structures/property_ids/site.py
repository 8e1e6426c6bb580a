"""Properties of a site: MS-MQMQ 2.3.3."""

from qmnode.structures.property_ids.base import PropertyId
from qmnode.structures.variant_types import VariantType as V


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
