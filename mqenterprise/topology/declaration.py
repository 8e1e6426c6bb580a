"""The declared enterprise as pydantic models: every value with its range, its default and its specification.

An omitted value means the specification's default, not "leave as it is": the declaration describes the objects that it
names completely. The exceptions are ``access`` of a queue and ``certificates`` of a user, which are left alone when
they are not declared.
"""

import ipaddress
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from mqenterprise.topology.names import CommonName, Label, MachineName, QueueName
from qmnode.settings.bridges import BridgeName, BridgeSettings
from qmnode.settings.sizes import UNLIMITED as UNLIMITED
from qmnode.settings.units import Quota

MINIMUM_COST, MAXIMUM_COST = 1, 999_999
"""A routing link's cost (MS-MQDMPR 3.1.1.8)."""

Seconds = Annotated[int, Field(ge=0, le=0x7FFFFFFF)]
Cost = Annotated[int, Field(ge=MINIMUM_COST, le=MAXIMUM_COST)]

PrivacyLevel = Literal["none", "optional", "body"]
OperatingSystem = Literal["other", "foreign", "win95", "win_client", "win_server", "win_enterprise"]
Role = Literal["routing_server", "supporting_server", "directory_server", "client", "connector"]
Right = Literal[
    "receive",
    "peek",
    "send",
    "receive_journal",
    "get_properties",
    "set_properties",
    "get_permissions",
    "change_permissions",
    "take_ownership",
    "delete",
    "generic_read",
    "generic_write",
    "generic_all",
]


def _guid(text: str) -> str:
    if not re.fullmatch(r"\{?[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\}?", text):
        raise ValueError("a GUID looks like 12345678-9abc-def0-1234-56789abcdef0")
    return text.strip("{}").lower()


def _multicast(text: str) -> str:
    match = re.fullmatch(r"(\d{1,3}(?:\.\d{1,3}){3}):(\d{1,5})", text)
    try:
        address = ipaddress.IPv4Address(match[1]) if match else None
    except ipaddress.AddressValueError:
        address = None
    if match is None or address is None or not address.is_multicast or int(match[2]) > 65535:
        raise ValueError("a multicast address is ADDRESS:PORT with an address from 224.0.0.0 to 239.255.255.255")
    return f"{address}:{int(match[2])}"


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise ValueError("an address is an IPv4 or IPv6 address, such as 192.0.2.7") from None


def _dns_name(text: str) -> str:
    if len(text) > 255 or not all(re.fullmatch(r"(?!-)[\w-]{1,63}(?<!-)", label) for label in text.split(".")):
        raise ValueError("a DNS name is labels of letters, digits and hyphens, joined by dots")
    return text


Guid = Annotated[str, AfterValidator(_guid)]
MulticastAddress = Annotated[str, AfterValidator(_multicast)]
Address = Annotated[str, AfterValidator(_address)]
DnsName = Annotated[str, AfterValidator(_dns_name)]


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Enterprise(_Model):
    """Settings of the whole enterprise (MS-MQDMPR 3.1.1.6, mSMQEnterpriseSettings of MS-MQDSSM 2.2.1)."""

    name: CommonName = Field(description="What the operators call the enterprise; not stored in the directory")
    weakened_security: bool = Field(
        default=False,
        description="Queue managers use their own identity for the directory (mSMQNameStyle, MS-MQDSSM 3.1.6.11.3.2)",
    )
    default_time_to_live: Seconds = Field(
        default=345_600,
        description="Seconds that a message has to reach its queue (mSMQLongLived, MS-MQMQ 2.3.5.15, MS-MQDSSM <13>)",
    )
    change_notification: bool = Field(
        default=True,
        description="Queue managers without LDAP are told of changes (mSMQCSPName Y or N, MS-MQDSSM 3.1.6.7.3.4, <13>)",
    )
    old_directory: bool = Field(
        default=False, description="The directory is MSMQ 1.0's (mSMQVersion 3, else 200, MS-MQDSSM 3.1.6.7.3.2)"
    )


class Site(_Model):
    """A site: machines that reach each other directly (MS-MQDMPR 3.1.1.7)."""

    name: CommonName
    intra_site_replication_interval: Seconds = Field(
        default=2, description="Seconds, within the site (mSMQInterval1, MS-MQMQ 2.3.3.5)"
    )
    inter_site_replication_interval: Seconds = Field(
        default=10, description="Seconds, between sites (mSMQInterval2, MS-MQMQ 2.3.3.6)"
    )
    migrated_from_msmq10: bool = Field(default=False, description="mSMQNt4Stub (MS-MQMQ 2.3.3.10)")


class ForeignSite(Site):
    """A network of another message system behind a connector (MS-MQDMPR 3.1.1.9; ForeignSite of 3.1.1.7)."""


class RoutingLink(_Model):
    """A link between two sites with its cost and site gates (MS-MQDMPR 3.1.1.8)."""

    sites: Annotated[tuple[CommonName, ...], Field(min_length=2, max_length=2, strict=False)] = Field(
        description="The two sites that the link joins, in either order"
    )
    cost: Cost = Field(description="The lower, the better the link")
    site_gates: Annotated[tuple[MachineName, ...], Field(strict=False)] = Field(
        default=(), description="Routing servers of either site that all messages over the link pass"
    )
    description: Label = ""


class Machine(_Model):
    """A computer with a queue manager (MS-MQDMPR 3.1.1.1)."""

    name: MachineName
    sites: Annotated[tuple[CommonName, ...], Field(max_length=64, strict=False)] = Field(
        default=(), description="Sites it belongs to; a connector names its foreign sites under foreign_sites"
    )
    roles: Annotated[tuple[Role, ...], Field(strict=False)] = Field(
        default=("client",), description="What the machine does for others (MS-MQDMPR 3.1.1.1)"
    )
    foreign_sites: Annotated[tuple[CommonName, ...], Field(strict=False)] = Field(
        default=(), description="Foreign sites that this connector, or foreign machine, belongs to"
    )
    dns_name: DnsName | None = Field(default=None, description="Fully qualified name (dNSHostName)")
    addresses: Annotated[tuple[Address, ...], Field(strict=False)] = Field(
        default=(), description="Addresses for the inventory; the directory does not hold them"
    )
    out_routing_servers: Annotated[tuple[MachineName, ...], Field(max_length=3, strict=False)] = Field(
        default=(), description="Routing servers that all its outgoing messages pass (MS-MQDMPR 3.1.1.1)"
    )
    in_routing_servers: Annotated[tuple[MachineName, ...], Field(max_length=3, strict=False)] = Field(
        default=(), description="Routing servers that all its incoming messages pass (MS-MQDMPR 3.1.1.1)"
    )
    # MS-MQDMPR says bytes, but 0x00100000 bytes would hold no backlog, and Windows counts kilobytes as for a queue.
    quota: Quota = Field(
        default=0x0010_0000,
        description="Kilobytes, or a size such as 10MB, of all queues (mSMQQuota; MS-MQDMPR 3.1.1.1)",
    )
    journal_quota: Quota = Field(
        default=UNLIMITED, description="Kilobytes, or a size such as 10MB, of all journals (MS-MQMQ 2.3.2.14)"
    )
    foreign: bool = Field(default=False, description="Not a queue manager but a foreign system (MS-MQMQ 2.3.2.18)")
    operating_system: OperatingSystem = Field(default="other", description="mSMQOSType (MS-MQDSSM 3.1.6.1.1.4)")
    version: Label = Field(default="", description="Version of the queue manager (mSMQComputerTypeEx)")


class Access(_Model):
    """One entry of a queue's access list (MS-MQMQ 2.2.24): rights that one user or group has, or is refused."""

    to: Annotated[str, Field(min_length=1, max_length=256)] = Field(
        description="A user or group: its account, its name in the directory, Everyone, Anonymous, or S-1-..."
    )
    allow: Annotated[tuple[Right, ...], Field(strict=False)] = ()
    deny: Annotated[tuple[Right, ...], Field(strict=False)] = ()


class Queue(_Model):
    """A public queue (MS-MQDMPR 3.1.1.2; defaults of 3.1.7.1.33)."""

    machine: MachineName = Field(description="The machine that holds the queue")
    name: QueueName
    label: Label = Field(default="", description="MS-MQMQ 2.3.1.8")
    type: Guid | None = Field(default=None, description="The type of service, for applications (MS-MQMQ 2.3.1.2)")
    transactional: bool = Field(default=False, description="Fixed at creation (MS-MQMQ 2.3.1.13)")
    journal: bool = Field(default=False, description="Copies of received messages are kept (MS-MQMQ 2.3.1.4)")
    quota: Quota = Field(default=UNLIMITED, description="Kilobytes, a size such as 10MB, or none (MS-MQMQ 2.3.1.5)")
    journal_quota: Quota = Field(
        default=UNLIMITED, description="Kilobytes, a size such as 10MB, or none (MS-MQMQ 2.3.1.7)"
    )
    authenticate: bool = Field(default=False, description="Only authenticated messages (MS-MQMQ 2.3.1.11)")
    privacy_level: PrivacyLevel = Field(default="optional", description="MS-MQMQ 2.3.1.12")
    base_priority: Annotated[int, Field(ge=-32768, le=32767)] = Field(default=0, description="MS-MQMQ 2.3.1.6")
    multicast_address: MulticastAddress | None = Field(default=None, description="ADDRESS:PORT (MS-MQMQ 2.3.1.23)")
    access: Annotated[tuple[Access, ...], Field(strict=False)] | None = Field(
        default=None, description="The whole access list; left alone when it is not declared"
    )


class User(_Model):
    """A user with the certificates that sign its messages (MS-MQDMPR 3.1.1.15)."""

    name: CommonName
    certificates: Annotated[tuple[str, ...], Field(max_length=64, strict=False)] | None = Field(
        default=None,
        description="PEM files, relative to this file, or PEM text in place; left alone when it is not declared",
    )


class Bridge(BridgeSettings):
    """A bridge between a queue of a machine and an AMQP 1.0 peer (docs/bridges.md). The directory does not hold it: the
    playbook ``rollout.yml`` brings it to the machine's node. Paths are of files on that machine.
    """

    machine: MachineName = Field(description="The machine whose node has the bridge")
    name: BridgeName = Field(description="Unique on its machine")

    @property
    def settings(self) -> dict[str, Any]:
        """Its settings in ``node.yaml``: the declared values."""
        return self.model_dump(mode="json", exclude_unset=True, exclude={"machine", "name"})


class Declaration(_Model):
    """The enterprise as an operator declares it, in one YAML file or a directory of them."""

    enterprise: Enterprise
    sites: Annotated[tuple[Site, ...], Field(strict=False)] = ()
    foreign_sites: Annotated[tuple[ForeignSite, ...], Field(strict=False)] = ()
    routing_links: Annotated[tuple[RoutingLink, ...], Field(strict=False)] = ()
    machines: Annotated[tuple[Machine, ...], Field(strict=False)] = ()
    queues: Annotated[tuple[Queue, ...], Field(strict=False)] = ()
    users: Annotated[tuple[User, ...], Field(strict=False)] = ()
    bridges: Annotated[tuple[Bridge, ...], Field(strict=False)] = ()
