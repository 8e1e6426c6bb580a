"""Properties of a deletion notification: MS-MQMQ 2.3.13."""

from qmnode.structures.property_ids.base import PropertyId
from qmnode.structures.variant_types import VariantType as V


class DeletionNotificationProperty(PropertyId):
    """Deletion Notification Property Identifiers, 2.3.13."""

    PROPID_D_SEQNUM = 1401, V.VT_BLOB, "2.3.13.1"
    PROPID_D_PARTITIONID = 1402, V.VT_CLSID, "2.3.13.2"
    PROPID_D_SCOPE = 1403, V.VT_UI1, "2.3.13.3"
    PROPID_D_OBJTYPE = 1404, V.VT_UI1, "2.3.13.4"
    PROPID_D_IDENTIFIER = 1405, V.VT_CLSID, "2.3.13.5"
