"""Properties of a computer object: MS-MQMQ 2.3.10."""

from qmnode.structures.property_ids.base import PropertyId
from qmnode.structures.variant_types import VariantType as V


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
