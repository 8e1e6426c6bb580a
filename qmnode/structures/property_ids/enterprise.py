"""Properties of the enterprise: MS-MQMQ 2.3.5."""

from qmnode.structures.property_ids.base import PropertyId
from qmnode.structures.variant_types import VariantType as V


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
