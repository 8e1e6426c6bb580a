"""Read the whole directory: every entry of Message Queuing as a resource, and the place of each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mqenterprise.directory.certificates import unpack_certificates
from mqenterprise.directory.entries import Entry, Scope
from mqenterprise.directory.errors import HalfWritten
from mqenterprise.directory.gateway import MARK, token_of
from mqenterprise.directory.mapping import DeclaredValue, Values, declared_values
from mqenterprise.directory.names import (
    escape_filter,
    join_queue_name,
    name_of,
    normalized,
    parent_of,
    split_dn,
)
from mqenterprise.topology.names import fold
from mqenterprise.topology.resources import FIELDS, Key, Kind, Table, Value, resource
from qmnode.objects import rows

if TYPE_CHECKING:
    from mqenterprise.directory.connection import LdapConnection
    from mqenterprise.topology.trustees import Trustees

CONFIGURATION: Final = "msmq"
"""The name of every mSMQConfiguration object (MS-MQDSSM 2.2.1)."""
SETTINGS: Final = "MSMQ Settings"
DIFFERS: Final = " (differs)"
"""Suffix of a site's name: its mSMQSettings object differs from the queue manager."""
SERVICE_FLAGS: Final = (
    # attribute of mSMQSettings, attribute of mSMQConfiguration (MS-MQDSSM 3.1.6.1.1.3), value of the resource
    ("mSMQRoutingService", "mSMQRoutingServices", "routing_server"),
    ("mSMQDsService", "mSMQDsServices", "directory_server"),
    ("mSMQDependentClientService", "mSMQDependentClientServices", "supporting_server"),
)

VALUES: Final[Mapping[Kind, Mapping[str, DeclaredValue]]] = {
    kind: declared_values(rows.Kind(kind), fields) for kind, fields in FIELDS.items()
}
"""The plain values of each kind; those of a machine without :data:`COMPUTER`."""
COMPUTER: Final = declared_values(rows.Kind.MACHINE, FIELDS[Kind.MACHINE], on_computer=True)["dns_name"]
"""The value of a machine that its computer has."""


def decode(kind: Kind, entry: Entry) -> dict[str, Value]:
    return {name: value.decode(entry) for name, value in VALUES[kind].items()}


def encode(kind: Kind, values: Mapping[str, Value]) -> dict[str, Values]:
    """Return the attributes of plain values. An attribute without values is to be removed."""
    return {value.row.name: value.encode(values[name]) for name, value in VALUES[kind].items() if name in values}


def names(kind: Kind) -> tuple[str, ...]:
    """Return the names of the attributes to read."""
    return tuple(value.row.name for value in VALUES[kind].values())


@dataclass(slots=True)
class Place:
    """The place of an object, its GUID if other objects refer to it, and the token of our mark."""

    dn: str
    guid: bytes = b""
    token: int | None = None


@dataclass(slots=True)
class MachinePlace:
    """The entries of one machine."""

    computer: Place
    configuration: Place | None = None
    service_type: int = 0
    settings: dict[str, Place] = field(default_factory=dict)
    """mSMQSettings objects by folded site name."""
    servers: tuple[str, ...] = ()
    """Our server objects, above the settings objects or left behind by an interruption."""


@dataclass(slots=True)
class Index:
    """The places of all objects. Writers keep it up to date."""

    sites: dict[str, Place] = field(default_factory=dict)
    site_names: dict[bytes, str] = field(default_factory=dict)
    """Names of sites by GUID."""
    machines: dict[str, MachinePlace] = field(default_factory=dict)
    machine_names: dict[str, str] = field(default_factory=dict)
    """Names of machines by normalized distinguished name of their mSMQConfiguration object."""
    others: dict[tuple[Kind, Key], Place] = field(default_factory=dict)
    """Routing links, queues and users."""
    unread: list[str] = field(default_factory=list)
    """Why entries are not in the table, in sentences."""

    def configuration_name(self, dn: str) -> str:
        """Return the name of the machine of an mSMQConfiguration object, even if the object is gone."""
        known = self.machine_names.get(normalized(dn))
        return known if known is not None else name_of(dn, 1) if len(split_dn(dn)) > 1 else dn


def read_all(
    connection: LdapConnection, trustees: Trustees, users: Collection[str], *, access: bool
) -> tuple[Table, Index]:
    """Read everything that can be declared. Access lists are long, and read only on request."""
    reader = _Reader(connection, trustees, access)
    reader.enterprise()
    reader.sites()
    reader.machines()
    reader.links()
    reader.users(users)
    reader.queues()
    return reader.table, reader.index


class _Reader:
    def __init__(self, connection: LdapConnection, trustees: Trustees, access: bool) -> None:
        self._connection, self._trustees, self._access = connection, trustees, access
        self._contexts = connection.dialect.contexts
        self.table, self.index = Table(), Index()

    def _search(
        self, base: str, filter: str, attributes: Collection[str], scope: Scope = Scope.SUBTREE
    ) -> Iterator[Entry]:
        return self._connection.search(base, filter, tuple(attributes), scope)

    def _each(self, entries: Iterable[Entry], read: Callable[[Entry], None]) -> None:
        """Read each entry. Entries that cannot be read are noted, and left out."""
        for entry in entries:
            try:
                read(entry)
            except HalfWritten as problem:
                self.index.unread.append(problem.sentence)

    def enterprise(self) -> None:
        for entry in self._search(
            self._contexts.enterprise, "(objectClass=mSMQEnterpriseSettings)", names(Kind.ENTERPRISE), Scope.BASE
        ):
            self.table.put(resource(Kind.ENTERPRISE, (), decode(Kind.ENTERPRISE, entry)))

    def sites(self) -> None:
        attributes = ("cn", "objectGUID", MARK, *names(Kind.SITE))
        self._each(self._search(self._contexts.sites, "(objectClass=site)", attributes, Scope.LEVEL), self._site)

    def _site(self, entry: Entry) -> None:
        name, guid, token = name_of(entry.dn), entry.first("objectGUID") or b"", token_of(entry)
        self.index.sites[fold(name)] = Place(entry.dn, guid, token)
        self.index.site_names[guid] = name
        self.table.put(resource(Kind.SITE, (name,), decode(Kind.SITE, entry), owned=token is not None))

    def machines(self) -> None:
        computers = {
            normalized(entry.dn): entry
            for entry in self._search(self._contexts.domain, "(objectClass=computer)", ("cn", MARK, COMPUTER.row.name))
        }
        attributes = (
            *("cn", "objectGUID", MARK, "mSMQServiceType", "mSMQSites", "mSMQOutRoutingServers"),
            *("mSMQInRoutingServers", *names(Kind.MACHINE)),
        )
        configurations: list[Entry] = []

        def configuration(entry: Entry) -> None:
            self.index.machine_names[normalized(entry.dn)] = name_of(entry.dn, 1)
            configurations.append(entry)

        self._each(self._search(self._contexts.domain, "(objectClass=mSMQConfiguration)", attributes), configuration)
        settings = self._settings()
        self._servers = self._our_servers()
        above = {normalized(parent_of(entry.dn)) for entry in configurations}
        self._each(
            configurations, lambda entry: self._machine(entry, computers.get(normalized(parent_of(entry.dn))), settings)
        )
        alone = [computer for key, computer in computers.items() if key not in above]
        self._each(alone, lambda computer: self._computer_alone(computer, settings))

    def _settings(self) -> dict[str, list[Entry]]:
        """Return the mSMQSettings objects by the folded name of their machine. Each is at its place below a site."""
        attributes = ("mSMQQMID", "mSMQServices", MARK, *(flag for flag, _, _ in SERVICE_FLAGS))
        found: dict[str, list[Entry]] = {}

        def settings(entry: Entry) -> None:
            if name_of(entry.dn, 3):
                found.setdefault(fold(name_of(entry.dn, 1)), []).append(entry)

        self._each(self._search(self._contexts.sites, "(objectClass=mSMQSettings)", attributes), settings)
        return found

    def _our_servers(self) -> dict[str, tuple[str, ...]]:
        """Return our server objects by the folded name of their machine."""
        found: dict[str, tuple[str, ...]] = {}
        for entry in self._search(self._contexts.sites, f"(&(objectClass=server)({MARK}=mqenterprise *))", ("cn",)):
            name = fold(name_of(entry.dn))
            found[name] = (*found.get(name, ()), entry.dn)
        return found

    def _machine(self, entry: Entry, computer: Entry | None, settings: dict[str, list[Entry]]) -> None:
        name, guid, token = name_of(entry.dn, 1), entry.first("objectGUID") or b"", token_of(entry)
        place = MachinePlace(
            Place(parent_of(entry.dn), b"", token_of(computer) if computer else None), Place(entry.dn, guid, token)
        )
        place.service_type = _number(entry.first("mSMQServiceType"))
        place.servers = self._servers.get(fold(name), ())
        values: dict[str, Value] = {
            "sites": _sorted(self.index.site_names.get(site, f"({site.hex()})") for site in _all(entry, "mSMQSites")),
            **decode(Kind.MACHINE, entry),
            "out_routing_servers": self._machine_names(entry, "mSMQOutRoutingServers"),
            "in_routing_servers": self._machine_names(entry, "mSMQInRoutingServers"),
        }
        said = []
        for other in settings.get(fold(name), ()):
            site = name_of(other.dn, 3)
            place.settings[fold(site)] = Place(other.dn, b"", token_of(other))
            said.append(site if _agrees(other, guid, place.service_type, values) else site + DIFFERS)
        values["settings"] = _sorted(said)
        values["dns_name"] = COMPUTER.decode(computer) if computer else None
        self.index.machines[fold(name)] = place
        self.table.put(resource(Kind.MACHINE, (name,), values, owned=token is not None))

    def _computer_alone(self, computer: Entry, settings: dict[str, list[Entry]]) -> None:
        """Read a computer without a queue manager: no machine, or one that an interrupted apply of ours half made."""
        name, token = name_of(computer.dn), token_of(computer)
        place = MachinePlace(Place(computer.dn, b"", token))
        place.servers = self._servers.get(fold(name), ())
        for left in settings.get(fold(name), ()):
            place.settings[fold(name_of(left.dn, 3))] = Place(left.dn, b"", token_of(left))
        self.index.machines[fold(name)] = place
        if token is not None:
            self.table.put(resource(Kind.MACHINE, (name,), {}, owned=True, partial=True))

    def _machine_names(self, entry: Entry, attribute: str) -> tuple[str, ...]:
        return _sorted(self.index.configuration_name(dn.decode("utf-8", "replace")) for dn in _all(entry, attribute))

    def links(self) -> None:
        attributes = ("cn", "mSMQSite1", "mSMQSite2", "mSMQSiteGates", MARK, *names(Kind.ROUTING_LINK))
        found = self._search(self._contexts.enterprise, "(objectClass=mSMQSiteLink)", attributes, Scope.LEVEL)
        self._each(found, self._link)

    def _link(self, entry: Entry) -> None:
        ends = [entry.first(attribute) for attribute in ("mSMQSite1", "mSMQSite2")]
        name = tuple(name_of(dn.decode("utf-8", "replace")) if dn else "(nothing)" for dn in ends)
        values = decode(Kind.ROUTING_LINK, entry)
        values["site_gates"] = self._machine_names(entry, "mSMQSiteGates")
        self._put(Kind.ROUTING_LINK, name, values, entry)

    def users(self, named: Collection[str]) -> None:
        wanted = "".join(f"(cn={escape_filter(name)})" for name in named)
        of_interest = f"(|(mSMQSignCertificates=*)({MARK}=mqenterprise *){wanted})"
        filter = f"(&(objectClass=user)(!(objectClass=computer)){of_interest})"
        self._each(self._search(self._contexts.domain, filter, ("cn", MARK, "mSMQSignCertificates")), self._user)

    def _user(self, entry: Entry) -> None:
        self._put(Kind.USER, (name_of(entry.dn),), {"certificates": unpack_certificates(entry)}, entry)

    def queues(self) -> None:
        attributes = ["cn", "objectGUID", "mSMQQueueNameExt", MARK, *names(Kind.QUEUE)]
        if self._access:
            attributes.append("nTSecurityDescriptor")
        self._each(self._search(self._contexts.domain, "(objectClass=mSMQQueue)", attributes), self._queue)

    def _queue(self, entry: Entry) -> None:
        extension = entry.first("mSMQQueueNameExt") or b""
        queue = join_queue_name(name_of(entry.dn), extension.decode("utf-8", "replace"))
        values = decode(Kind.QUEUE, entry)
        if self._access:
            values["access"] = self._trustees.lines(entry.first("nTSecurityDescriptor"))
        self._put(Kind.QUEUE, (name_of(entry.dn, 2), queue), values, entry)

    def _put(self, kind: Kind, name: tuple[str, ...], values: dict[str, Value], entry: Entry) -> None:
        token = token_of(entry)
        row = resource(kind, name, values, owned=token is not None)
        self.index.others[kind, row.reference.key] = Place(entry.dn, entry.first("objectGUID") or b"", token)
        self.table.put(row)


def _all(entry: Entry, attribute: str) -> tuple[bytes, ...]:
    return entry.attributes.get(attribute.lower(), ())


def _sorted(texts: Iterator[str] | list[str]) -> tuple[str, ...]:
    return tuple(sorted(texts, key=fold))


def _number(value: bytes | None) -> int:
    return int(value) if value and len(value) <= 20 and value.removeprefix(b"-").isdigit() else 0


def _agrees(settings: Entry, guid: bytes, service_type: int, values: dict[str, Value]) -> bool:
    """Return whether an mSMQSettings object agrees with the queue manager."""
    flags = all((settings.first(flag) == b"TRUE") is values[value] for flag, _, value in SERVICE_FLAGS)
    return flags and settings.first("mSMQQMID") == guid and _number(settings.first("mSMQServices")) == service_type
