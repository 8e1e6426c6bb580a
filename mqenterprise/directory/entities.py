"""The typed objects of the directory. Those that a node also reads are declared by its port and only named here."""

from qmnode.directory.port import (
    DirectoryObject,
    DirectoryServerType,
    Enterprise,
    Filter,
    OperatingSystemType,
    Operator,
    Queue,
    QueueManager,
    RoutingLink,
    Site,
    User,
    equals,
)
from qmnode.structures.queue_attributes import QueuePrivacyLevel

__all__ = [
    "DirectoryObject",
    "DirectoryServerType",
    "Enterprise",
    "Filter",
    "OperatingSystemType",
    "Operator",
    "Queue",
    "QueueManager",
    "QueuePrivacyLevel",
    "RoutingLink",
    "Site",
    "User",
    "equals",
]
