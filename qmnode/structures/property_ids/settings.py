"""Properties of a settings object: what a queue manager does for one site: MS-MQMQ 2.3.8."""

from qmnode.structures.property_ids.base import PropertyId
from qmnode.structures.variant_types import VariantType as V


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
