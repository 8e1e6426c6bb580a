"""The typed objects of the directory. Those that a node also reads are declared by its port and only named here."""

from dataclasses import dataclass

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
from qmnode.structures.guid import Guid
from qmnode.structures.queue_attributes import QueuePrivacyLevel

__all__ = [
    "DirectoryObject",
    "DirectoryServerType",
    "DistributionList",
    "Enterprise",
    "Filter",
    "OperatingSystemType",
    "Operator",
    "Queue",
    "QueueAlias",
    "QueueManager",
    "QueueManagerSettings",
    "QueuePrivacyLevel",
    "RoutingLink",
    "Site",
    "User",
    "equals",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueManagerSettings(DirectoryObject):
    """An mSMQSettings object: what one site says of a queue manager that serves it (MS-MQDSSM 3.1.6.7.1.9).

    The repository of queue managers keeps these in step; they are read for their own sake only.
    """

    site_name: str
    computer_name: str
    queue_manager_identifier: Guid
    services: int = 0
    routing_server: bool = False
    directory_server: bool = False
    supporting_server: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueAlias(DirectoryObject):
    """An msMQ-Custom-Recipient object: a name for a format name (MS-MQDSSM 2.3)."""

    name: str
    format_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributionList(DirectoryObject):
    """A group of queues and aliases, by distinguished name (MS-MQDSSM 3.1.6.9)."""

    name: str
    members: tuple[str, ...] = ()
