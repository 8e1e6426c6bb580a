"""Properties of a routing link: MS-MQMQ 2.3.7."""

from qmnode.structures.property_ids.base import PropertyId
from qmnode.structures.variant_types import VariantType as V


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
