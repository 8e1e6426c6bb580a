"""Property identifiers: MS-MQMQ 2.3. One enumeration for each family of objects, in files named for it.

Numbers repeat between families (the two of management both begin at 1), so a number means something only together with
its family.
"""

from typing import Final

from qmnode.structures.property_ids.base import PropertyId
from qmnode.structures.property_ids.computer import ComputerProperty
from qmnode.structures.property_ids.connected_network import ConnectedNetworkProperty
from qmnode.structures.property_ids.deletion import DeletionNotificationProperty
from qmnode.structures.property_ids.enterprise import EnterpriseProperty
from qmnode.structures.property_ids.management import ManagementMachineProperty, ManagementQueueProperty
from qmnode.structures.property_ids.queue import QueueProperty
from qmnode.structures.property_ids.queue_manager import QueueManagerProperty
from qmnode.structures.property_ids.routing_link import RoutingLinkProperty
from qmnode.structures.property_ids.settings import SettingsProperty
from qmnode.structures.property_ids.site import SiteProperty
from qmnode.structures.property_ids.user import MQUserProperty, UserProperty

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
"""Every family, in the order of MS-MQMQ 2.3.1 to 2.3.13."""

__all__ = [
    "PROPERTY_FAMILIES",
    "ComputerProperty",
    "ConnectedNetworkProperty",
    "DeletionNotificationProperty",
    "EnterpriseProperty",
    "MQUserProperty",
    "ManagementMachineProperty",
    "ManagementQueueProperty",
    "PropertyId",
    "QueueManagerProperty",
    "QueueProperty",
    "RoutingLinkProperty",
    "SettingsProperty",
    "SiteProperty",
    "UserProperty",
]
