"""The declared enterprise as pydantic models: every value with its range, its default and its specification.

An omitted value means the specification's default, not "leave as it is": the declaration describes the objects that it
names completely. The exceptions are access lists and ``certificates`` of a user, which are left alone when
they are not declared.

A node makes its document true: ``qmnode apply``, :mod:`qmnode.administration.machine_documents`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Final, Literal, TypeVar, cast, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, create_model

from mqenterprise.topology.access_lists import BY_KIND
from mqenterprise.topology.names import CommonName, Label, MachineName, QueueName, fold
from qmnode.objects.rows import FLAG, GUID, NO_QUOTA, QUOTA, Door, Form, Kind, Property, Rows
from qmnode.objects.table import (
    DISTRIBUTION_LIST,
    ENTERPRISE,
    MACHINE,
    PRIVATE_QUEUE,
    QUEUE,
    QUEUE_ALIAS,
    ROUTING_LINK,
    SITE,
    USER,
)
from qmnode.settings.bridges import BridgeName, BridgeSettings
from qmnode.settings.node import RemoteCopySettings
from qmnode.settings.probes import ProbeName, ProbeSettings
from qmnode.settings.sizes import quota_value
from qmnode.structures.names import (
    DirectFormatName,
    PrivateFormatName,
    PublicFormatName,
    machine_address,
    parse_format_name,
)

Role = Literal["routing_server", "supporting_server", "directory_server", "client", "connector"]


def _quota(written: object) -> object:
    value = quota_value(written)
    return None if value == NO_QUOTA and not isinstance(value, bool) else value


def _normal(form: Form) -> Callable[[str], Any]:
    """Return the function that gives a text its one written form."""
    return lambda text: form.write(form.read(text))


def _guid(text: str) -> str | None:
    """Return the written form; none for the GUID of zeros, which is no type."""
    try:
        return cast("str | None", _normal(GUID)(text))
    except ValueError:
        raise ValueError("a GUID looks like 12345678-9abc-def0-1234-56789abcdef0") from None


def _address(text: str) -> str:
    if (address := machine_address(text)) is None:
        raise ValueError("an address is an IPv4 or IPv6 address of a machine, such as 192.0.2.7")
    return address


def _dns_name(text: str) -> str:
    if len(text) > 255 or not all(re.fullmatch(r"(?!-)[\w-]{1,63}(?<!-)", label) for label in text.split(".")):
        raise ValueError("a DNS name is labels of letters, digits and hyphens, joined by dots")
    return text


def _queue_format_name(text: str) -> str:
    try:
        name = parse_format_name(text)
    except ValueError as error:
        raise ValueError(f"no format name: {error}") from None
    if not isinstance(name, PublicFormatName | PrivateFormatName | DirectFormatName):
        raise ValueError("an alias stands for one queue: write a PUBLIC=, PRIVATE= or DIRECT= format name")
    return text


Address = Annotated[str, AfterValidator(_address)]
QueueFormatName = Annotated[str, AfterValidator(_queue_format_name), Field(max_length=255)]
DnsName = Annotated[str, AfterValidator(_dns_name)]
Quota = Annotated[
    Annotated[int, Field(ge=0, le=NO_QUOTA)] | None,
    BeforeValidator(
        _quota,
        json_schema_input_type=Annotated[int, Field(ge=0, le=NO_QUOTA)]
        | Annotated[str, Field(pattern=r"^ *([Nn][Oo][Nn][Ee]|[0-9]+(\.[0-9]+)? *([KMGTkmgt]([Ii]?[Bb])?)?) *$")]
        | None,
    ),
    PlainSerializer(lambda quota: "none" if quota is None else quota, when_used="json"),
]
"""A number of KB, a size with a unit (``1GB``), or ``none``, which is None, as is an empty value."""
Model = TypeVar("Model", bound=BaseModel)


def _type(form: Form) -> Any:
    """The type of a field for the written values of a form."""
    if form is QUOTA:
        return Quota
    if form.choices:
        literal: Any = Literal
        return literal[tuple(form.choices)]
    if form is FLAG:
        return bool
    if form.type is int:
        return Annotated[int, Field(ge=form.least, le=form.most)]
    if form is GUID:
        return Annotated[str, AfterValidator(_guid)] | None
    return Annotated[str, AfterValidator(_normal(form))] | None if form.nullable else Label


def _description(row: Property) -> str:
    size = "; kilobytes, a size such as 10MB, or none" if row.form is QUOTA else ""
    attribute = f"{row.attribute}, " if row.attribute else ""
    return f"{row.sentence}{size} ({attribute}{row.section})"


def _extended(model: type[Model], fields: dict[str, Any]) -> type[Model]:
    """The model with these fields, in place of its own of the same names."""
    made: Any = create_model(model.__name__, __base__=model, __module__=model.__module__, **fields)
    made.__doc__ = model.__doc__
    return made  # type: ignore[no-any-return]


def _properties(rows: Rows, *other: str, more: Iterable[Property] = ()) -> Callable[[type[Model]], type[Model]]:
    """Give a model a field for each declared row, and for ``more`` rows that no directory holds.

    Its own annotation of a row is kept, and required without a default. ``other`` properties of the object are
    declared in another way.
    """

    def complete(model: type[Model]) -> type[Model]:
        fields: dict[str, Any] = {}
        for row in (*rows.at(Door.DECLARATION), *more):
            if row.name in other:
                continue
            own = model.model_fields.get(row.name)
            annotation = _type(row.form) if own is None else own.rebuild_annotation()
            about: dict[str, Any] = {"description": _description(row)}
            if own is None or not own.is_required():
                about["default"] = row.form.write(row.default)
            if row.form is QUOTA and about["default"] is None:
                about["json_schema_extra"] = {"default": "none"}
            if row.form.type is tuple and row.form.most is not None:
                about["max_length"] = row.form.most
            fields[row.name] = (annotation, Field(**about))
        return _extended(model, fields)

    return complete


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


Trustee = Annotated[
    str,
    Field(
        min_length=1,
        max_length=256,
        description="A user or group: its account, its name in the directory, Everyone, Anonymous, or S-1-...",
    ),
]


def _rights(kind: Kind) -> Callable[[type[Model]], type[Model]]:
    """Let the entries of an access list name the rights to a kind of object, and no others."""
    literal: Any = Literal
    right: Any = literal[tuple(BY_KIND[kind])]
    names: Any = Annotated[tuple[right, ...], Field(strict=False)]
    return lambda model: _extended(model, {"allow": (names, ()), "deny": (names, ())})


class _AnyAccess(_Model):
    to: Trustee
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


@_rights(Kind.QUEUE)
class Access(_AnyAccess):
    """One entry of a queue's access list (MS-MQMQ 2.2.24): rights that one user or group has, or is refused."""


@_rights(Kind.SITE)
class SiteAccess(_AnyAccess):
    """One entry of a site's access list (MS-MQMQ 2.2.25): rights that one user or group has, or is refused."""


@_rights(Kind.ENTERPRISE)
class EnterpriseAccess(_AnyAccess):
    """One entry of the enterprise's access list (MS-MQMQ 2.2.26): rights that somebody has, or is refused."""


AnyAccess = Access | SiteAccess | EnterpriseAccess


@_properties(ENTERPRISE)
class Enterprise(_Model):
    """Settings of the whole enterprise (MS-MQDMPR 3.1.1.6, mSMQEnterpriseSettings of MS-MQDSSM 2.2.1)."""

    name: CommonName = Field(description="What the operators call the enterprise; not stored in the directory")
    access: Annotated[tuple[EnterpriseAccess, ...], Field(strict=False)] | None = None


@_properties(SITE, "foreign")
class Site(_Model):
    """A site: machines that reach each other directly (MS-MQDMPR 3.1.1.7)."""

    name: CommonName
    access: Annotated[tuple[SiteAccess, ...], Field(strict=False)] | None = None


class ForeignSite(Site):
    """A network of another message system behind a connector (MS-MQDMPR 3.1.1.9; ForeignSite of 3.1.1.7)."""


@_properties(ROUTING_LINK)
class RoutingLink(_Model):
    """A link between two sites with its cost and site gates (MS-MQDMPR 3.1.1.8)."""

    sites: Annotated[tuple[CommonName, ...], Field(min_length=2, max_length=2, strict=False)] = Field(
        description="The two sites that the link joins, in either order"
    )
    cost: Annotated[int, Field(ge=ROUTING_LINK["cost"].form.least, le=ROUTING_LINK["cost"].form.most)]
    site_gates: Annotated[tuple[MachineName, ...], Field(strict=False)] = ()


class Failover(_Model):
    """How another host of a machine takes over (docs/failover.md). The directory does not hold it."""

    way: Literal["pacemaker", "operator", "kubernetes"] = Field(
        description="Who moves the node: pacemaker, an operator (with systemd alone), or kubernetes (its manifest is "
        "rendered)"
    )
    lease: int = Field(
        default=10, ge=1, le=3600, description="Seconds for which one renewal lets a host be active (failover.lease)"
    )
    device: str | None = Field(
        default=None,
        description="Block device with the store, which all hosts see and one mounts; for an operator, who may instead "
        "name a store on a file system that all hosts have mounted",
    )
    filesystem: str = Field(default="ext4", description="File system of the device")
    store: str | None = Field(
        default=None, description="Directory of the store on each host; by default that of the role queue_manager"
    )
    fencing: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        default=(), description="Fencing devices of the Pacemaker cluster, by the identifiers of their resources"
    )
    storage_class: str | None = Field(default=None, description="Kubernetes: class of the volume, if not the default")
    size: str = Field(default="10Gi", description="Kubernetes: size of the volume")


@_properties(MACHINE, *get_args(Role))
class Machine(_Model):
    """A computer with a queue manager (MS-MQDMPR 3.1.1.1)."""

    name: MachineName
    sites: Annotated[tuple[CommonName, ...], Field(strict=False)] = ()
    roles: Annotated[tuple[Role, ...], Field(strict=False)] = Field(
        default=("client",), description="What the machine does for others (MS-MQDMPR 3.1.1.1)"
    )
    foreign_sites: Annotated[tuple[CommonName, ...], Field(strict=False)] = Field(
        default=(), description="Foreign sites that this connector, or foreign machine, belongs to"
    )
    dns_name: DnsName | None = None
    addresses: Annotated[tuple[Address, ...], Field(strict=False)] = Field(
        default=(), description="Its IP addresses, for its node and for Ansible; the directory does not hold them"
    )
    out_routing_servers: Annotated[tuple[MachineName, ...], Field(strict=False)] = ()
    in_routing_servers: Annotated[tuple[MachineName, ...], Field(strict=False)] = ()
    quota: Quota = None
    foreign: bool = False
    remote_copy: RemoteCopySettings | None = Field(
        default=None,
        description="A copy of its messages elsewhere (docs/operations.md), for rollout.yml; the directory does not "
        "hold it. The key is the path of a file on the machine",
    )
    hosts: Annotated[tuple[DnsName, ...], Field(strict=False)] = Field(
        default=(),
        description="The two or three hosts of which one runs its node at a time, by host name; without it the machine "
        "is its own host. The directory does not hold them",
    )
    failover: Failover | None = Field(
        default=None, description="How another of its hosts takes over (docs/failover.md), for rollout.yml"
    )
    probes: dict[ProbeName, ProbeSettings] = Field(
        default={},
        max_length=100,
        description="Heartbeats that its node sends (docs/management.md), for rollout.yml; the directory does not hold "
        "them",
    )


ONLY_PRIVATE: Final = tuple(row for row in PRIVATE_QUEUE.values() if Door.DECLARATION not in row.doors)
"""Properties that no directory holds."""


@_properties(QUEUE, more=ONLY_PRIVATE)
class Queue(_Model):
    """A queue (MS-MQDMPR 3.1.1.2; defaults of 3.1.7.1.33)."""

    machine: MachineName = Field(description="The machine that holds the queue")
    name: QueueName
    private: bool = Field(
        default=False,
        description="The queue is private: no directory holds it, but the document of its machine "
        "(docs/machine-documents.md)",
    )
    quota: Quota = None
    access: Annotated[tuple[Access, ...], Field(strict=False)] | None = None


@_properties(USER)
class User(_Model):
    """A user with the certificates that sign its messages (MS-MQDMPR 3.1.1.15)."""

    name: CommonName
    certificates: Annotated[tuple[str, ...], Field(max_length=64, strict=False)] | None = None


@_properties(QUEUE_ALIAS)
class QueueAlias(_Model):
    """An object that stands for a queue, so that distribution lists can hold it (MS-MQDSSM 3.1.6.8)."""

    name: CommonName
    format_name: QueueFormatName


@_properties(DISTRIBUTION_LIST)
class DistributionList(_Model):
    """Queues that each get the messages to the list (MS-MQMQ 2.1.5)."""

    name: CommonName
    members: Annotated[tuple[Label, ...], Field(strict=False)] = ()


class Bridge(BridgeSettings):
    """A bridge between a queue of a machine and an AMQP 1.0 peer (docs/bridges.md). The directory does not hold it, but
    the document of the machine (docs/machine-documents.md). Paths are of files on that machine.
    """

    machine: MachineName = Field(description="The machine whose node has the bridge")
    name: BridgeName = Field(description="Unique on its machine")

    @property
    def settings(self) -> dict[str, Any]:
        """Its settings in the document of the machine: the declared values."""
        return self.model_dump(mode="json", exclude_unset=True, exclude={"machine", "name"})


class Declaration(_Model):
    """The enterprise as an operator declares it, in one YAML file or a directory of them."""

    @property
    def is_workgroup(self) -> bool:
        """Whether the enterprise has no directory."""
        return self.directory == "none"

    @property
    def public_queues(self) -> tuple[Queue, ...]:
        """The queues that the directory holds."""
        return tuple(queue for queue in self.queues if not queue.private)

    @property
    def has_access_lists(self) -> bool:
        """Whether an object of the directory has an access list: then those that are there have to be read."""
        objects: tuple[Any, ...] = (self.enterprise, *self.sites, *self.foreign_sites, *self.public_queues)
        return any(one.access is not None for one in objects)

    enterprise: Enterprise
    directory: Literal["ldap", "none"] = Field(
        default="ldap",
        description="none: the enterprise has no directory, and its machines are a workgroup (MS-MQMQ 1.1) with "
        "private queues and direct names",
    )
    sites: Annotated[tuple[Site, ...], Field(strict=False)] = ()
    foreign_sites: Annotated[tuple[ForeignSite, ...], Field(strict=False)] = ()
    routing_links: Annotated[tuple[RoutingLink, ...], Field(strict=False)] = ()
    machines: Annotated[tuple[Machine, ...], Field(strict=False)] = ()
    queues: Annotated[tuple[Queue, ...], Field(strict=False)] = ()
    users: Annotated[tuple[User, ...], Field(strict=False)] = ()
    queue_aliases: Annotated[tuple[QueueAlias, ...], Field(strict=False)] = ()
    distribution_lists: Annotated[tuple[DistributionList, ...], Field(strict=False)] = ()
    bridges: Annotated[tuple[Bridge, ...], Field(strict=False)] = ()


SECTIONS: Final[dict[str, tuple[type[BaseModel], Rows]]] = {
    "sites": (Site, SITE),
    "foreign_sites": (ForeignSite, SITE),
    "routing_links": (RoutingLink, ROUTING_LINK),
    "machines": (Machine, MACHINE),
    "users": (User, USER),
    "queues": (Queue, QUEUE),
    "queue_aliases": (QueueAlias, QUEUE_ALIAS),
    "distribution_lists": (DistributionList, DISTRIBUTION_LIST),
}
"""The model and the rows of each section of a declaration whose objects are in the directory."""


_KNOWN_TO_NODES: Final = re.compile(
    r"s-1-[0-9-]+|(user|group|uid|gid):.+|everyone|anonymous|authenticated-users|administrators|users|system|local|network"
)


def path_of(queue: Queue) -> str:
    """The path name of a declared queue (MS-MQMQ 2.1.1)."""
    return f"{queue.machine}\\{'private$' + chr(92) if queue.private else ''}{queue.name}"


def is_known_to_nodes(who: str) -> bool:
    """Whether a node can tell whom an entry of an access list means, without a directory."""
    return _KNOWN_TO_NODES.fullmatch(fold(who)) is not None


def machine_document(declaration: Declaration, machine: str) -> dict[str, Any]:
    """The document of one machine, with the values that are declared."""
    machines = (one for one in declaration.machines if fold(one.name) == fold(machine))
    return {
        "addresses": [address for one in machines for address in one.addresses],
        "bridges": {one.name: one.settings for one in declaration.bridges if fold(one.machine) == fold(machine)},
        "queues": [
            queue.model_dump(mode="json", exclude_unset=True, exclude={"machine", "private"})
            for queue in declaration.queues
            if queue.private and fold(queue.machine) == fold(machine)
        ],
    }
