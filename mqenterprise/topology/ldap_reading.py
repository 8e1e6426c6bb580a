"""Read the whole directory: every entry of Message Queuing as a resource, and the place of each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from mqenterprise.directory.certificates import unpack_certificates
from mqenterprise.directory.entries import Entry
from mqenterprise.directory.errors import HalfWritten
from mqenterprise.directory.gateway import MARK, SECURITY, SETTINGS, token_of
from mqenterprise.directory.mapping import MAPPINGS, DeclaredValue, declared_values
from mqenterprise.directory.names import escape_filter, join_queue_name, name_of, normalized, parent_of, split_dn
from mqenterprise.topology.names import fold
from mqenterprise.topology.resources import Key, Kind, Table, Value, resource
from qmnode.objects.table import ROWS

if TYPE_CHECKING:
    from mqenterprise.directory.connection import LdapConnection
    from mqenterprise.topology.trustees import Trustees

VALUES: Final[Mapping[Kind, Mapping[str, DeclaredValue]]] = {kind: declared_values(kind) for kind in ROWS}
"""The plain values of each kind; those of a machine without :data:`COMPUTER`."""
COMPUTER: Final = declared_values(Kind.MACHINE, on_computer=True)["dns_name"]
"""The value of a machine that its computer has."""
ROUTERS: Final = {
    row.name: row.attribute
    for kind in (Kind.MACHINE, Kind.ROUTING_LINK)
    for row in ROWS[kind].values()
    if row.form.unit == "names" and row.name != "sites"
}
"""Values that name machines, and their attributes, which have distinguished names of mSMQConfiguration objects."""
DIFFERS: Final = " (differs)"
"""Suffix of a site's name: its mSMQSettings object differs from the queue manager."""


class ObjectPlace(NamedTuple):
    """The place of an object, and its GUID if other objects refer to it."""

    dn: str
    guid: bytes = b""

    @classmethod
    def of(cls, entry: Entry) -> ObjectPlace:
        return cls(entry.dn, entry.first("objectGUID") or b"")


@dataclass(slots=True)
class MachinePlace:
    """The entries of one machine."""

    computer: str
    is_computer_ours: bool
    configuration: ObjectPlace | None = None
    service_type: int = 0
    settings: dict[str, str] = field(default_factory=dict)
    """mSMQSettings objects by folded site name."""
    servers: tuple[str, ...] = ()
    """Our server objects, above the settings objects or left behind by an interruption."""


@dataclass(slots=True)
class Index:
    """The places of all objects. Writers keep it up to date."""

    places: dict[tuple[Kind, Key], ObjectPlace] = field(default_factory=dict)
    """Of all but machines."""
    machines: dict[str, MachinePlace] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    """Why entries are not in the table, in sentences."""


def read_all(
    connection: LdapConnection, trustees: Trustees, users: Collection[str], *, access: bool
) -> tuple[Table, Index]:
    """Read everything that can be declared. Access lists are long, and read only on request."""
    reader = _Reader(connection, trustees, access)
    reader.read(users)
    return reader.table, reader.index


class _Reader:
    def __init__(self, connection: LdapConnection, trustees: Trustees, access: bool) -> None:
        self._connection, self._trustees, self._access = connection, trustees, access
        self.table, self.index = Table(), Index()
        self._site_names: dict[bytes, str] = {}
        self._computers: dict[str, Entry] = {}
        self._configurations: list[Entry] = []
        self._machine_names: dict[str, str] = {}
        """By normalized distinguished name of the mSMQConfiguration object."""
        self._settings: dict[str, list[Entry]] = {}
        """By the folded name of their machine. Each is at its place below a site."""
        self._servers: dict[str, list[str]] = {}

    def read(self, users: Collection[str]) -> None:
        """Read all entries: those to which others refer before the others."""
        contexts, search = self._connection.dialect.contexts, self._connection.search
        ours, guid, gates = f"({MARK}=mqenterprise *)", "objectGUID", ROUTERS["site_gates"]
        routers = [attribute for attribute in ROUTERS.values() if attribute != gates]

        self._each(Kind.ENTERPRISE, (), lambda entry: self._put(Kind.ENTERPRISE, (), entry))
        self._each(Kind.SITE, (guid,), self._site)
        computers = search(contexts.domain, "(objectClass=computer)", ("cn", MARK, COMPUTER.row.name))
        self._over(computers, self._computer)
        self._each(Kind.MACHINE, (guid, "mSMQServiceType", "mSMQSites", *routers), self._configuration)
        self._over(search(contexts.sites, "(objectClass=mSMQSettings)", (MARK, *SETTINGS)), self._setting)
        self._over(search(contexts.sites, f"(&(objectClass=server){ours})", ("cn",)), self._server)
        self._over(self._configurations, self._machine)
        above = {normalized(parent_of(entry.dn)) for entry in self._configurations}
        self._over([entry for key, entry in self._computers.items() if key not in above], self._computer_alone)
        self._each(Kind.ROUTING_LINK, ("mSMQSite1", "mSMQSite2", gates), self._link)
        named = "".join(f"(cn={escape_filter(name)})" for name in users)
        people = f"(!(objectClass=computer))(|(mSMQSignCertificates=*){ours}{named})"
        self._each(Kind.USER, ("mSMQSignCertificates",), self._user, people)
        self._each(Kind.QUEUE, (guid, "mSMQQueueNameExt"), self._queue)
        self._each(Kind.QUEUE_ALIAS, (), lambda entry: self._put(Kind.QUEUE_ALIAS, (name_of(entry.dn),), entry))
        lists: list[Entry] = []
        self._each(
            Kind.DISTRIBUTION_LIST, ("member",), lists.append, f"{ours}(sAMAccountName=*)"
        )  # most groups are of people or rights
        self._lists(lists)

    def _each(self, kind: Kind, more: Iterable[str], read: Callable[[Entry], None], filter: str = "") -> None:
        """Read each entry of a kind with ``more`` attributes than its plain values and its access list."""
        mapping, listed = MAPPINGS[kind], (SECURITY,) if self._lists_access(kind) else ()
        base = getattr(self._connection.dialect.contexts, mapping.context)
        attributes = ("cn", MARK, *more, *listed, *(value.row.name for value in VALUES[kind].values()))
        self._over(self._connection.search(base, f"(&(objectClass={mapping.object_class}){filter})", attributes), read)

    def _over(self, entries: Iterable[Entry], read: Callable[[Entry], None]) -> None:
        """Read each entry. Entries that cannot be read are noted, and left out."""
        for entry in entries:
            try:
                read(entry)
            except HalfWritten as problem:
                self.index.unread.append(problem.sentence)

    def _lists_access(self, kind: Kind) -> bool:
        return self._access and "access" in ROWS[kind]

    def _put(self, kind: Kind, name: tuple[str, ...], entry: Entry, **more: Value) -> None:
        """Put an object into the table: its plain values, its access list if lists are read, and ``more`` values."""
        values = _decode(kind, entry) | more
        if self._lists_access(kind):
            values["access"] = self._trustees.lines(entry.first(SECURITY), kind)
        row = resource(kind, name, values, owned=token_of(entry) is not None)
        self.index.places[kind, row.reference.key] = ObjectPlace.of(entry)
        self.table.put(row)

    def _site(self, entry: Entry) -> None:
        name = name_of(entry.dn)
        self._site_names[entry.first("objectGUID") or b""] = name
        self._put(Kind.SITE, (name,), entry)

    def _computer(self, entry: Entry) -> None:
        self._computers[normalized(entry.dn)] = entry

    def _configuration(self, entry: Entry) -> None:
        self._machine_names[normalized(entry.dn)] = name_of(entry.dn, 1)
        self._configurations.append(entry)

    def _setting(self, entry: Entry) -> None:
        if name_of(entry.dn, 3):
            self._settings.setdefault(fold(name_of(entry.dn, 1)), []).append(entry)

    def _server(self, entry: Entry) -> None:
        self._servers.setdefault(fold(name_of(entry.dn)), []).append(entry.dn)

    def _machine(self, entry: Entry) -> None:
        name, computer = name_of(entry.dn, 1), self._computers.get(normalized(parent_of(entry.dn)))
        place = self._machine_place(name, parent_of(entry.dn), computer)
        place.configuration, place.service_type = ObjectPlace.of(entry), _number(entry.first("mSMQServiceType"))
        sites = entry.attributes.get("msmqsites", ())
        values: dict[str, Value] = {
            "sites": _sorted(self._site_names.get(site, f"({site.hex()})") for site in sites),
            **_decode(Kind.MACHINE, entry),
            **{name: self._routers(entry, name) for name in ROUTERS if name != "site_gates"},
        }
        found = ((name_of(other.dn, 3), other) for other in self._settings.get(fold(name), ()))
        values["settings"] = _sorted(site if _agrees(other, entry) else site + DIFFERS for site, other in found)
        values["dns_name"] = COMPUTER.decode(computer) if computer else None
        self.table.put(resource(Kind.MACHINE, (name,), values, owned=token_of(entry) is not None))

    def _computer_alone(self, computer: Entry) -> None:
        """Read a computer without a queue manager: no machine, or one that an interrupted apply of ours half made."""
        name = name_of(computer.dn)
        if self._machine_place(name, computer.dn, computer).is_computer_ours:
            self.table.put(resource(Kind.MACHINE, (name,), {}, owned=True, partial=True))

    def _machine_place(self, name: str, dn: str, computer: Entry | None) -> MachinePlace:
        place = MachinePlace(dn, computer is not None and token_of(computer) is not None)
        place.servers = tuple(self._servers.get(fold(name), ()))
        place.settings = {fold(name_of(other.dn, 3)): other.dn for other in self._settings.get(fold(name), ())}
        self.index.machines[fold(name)] = place
        return place

    def _routers(self, entry: Entry, value: str) -> tuple[str, ...]:
        """Return the names of machines, also of those that are gone."""
        found = []
        for raw in entry.attributes.get(ROUTERS[value].lower(), ()):
            dn = raw.decode("utf-8", "replace")
            known = self._machine_names.get(normalized(dn))
            found.append(known if known is not None else name_of(dn, 1) if len(split_dn(dn)) > 1 else dn)
        return _sorted(found)

    def _link(self, entry: Entry) -> None:
        ends = [entry.first(attribute) for attribute in ("mSMQSite1", "mSMQSite2")]
        name = tuple(name_of(dn.decode("utf-8", "replace")) if dn else "(nothing)" for dn in ends)
        self._put(Kind.ROUTING_LINK, name, entry, site_gates=self._routers(entry, "site_gates"))

    def _user(self, entry: Entry) -> None:
        self._put(Kind.USER, (name_of(entry.dn),), entry, certificates=unpack_certificates(entry))

    def _queue(self, entry: Entry) -> None:
        extension = entry.first("mSMQQueueNameExt") or b""
        queue = join_queue_name(name_of(entry.dn), extension.decode("utf-8", "replace"))
        self._put(Kind.QUEUE, (name_of(entry.dn, 2), queue), entry)

    def _lists(self, entries: Collection[Entry]) -> None:
        """Read distribution lists, with the names of their members, or what names a member that is none."""
        if not entries:
            return
        names = {
            normalized(self.index.places[row.kind, row.reference.key].dn): "\\".join(row.name)
            for row in self.table
            if row.kind in (Kind.QUEUE, Kind.QUEUE_ALIAS)
        } | {normalized(entry.dn): name_of(entry.dn) for entry in entries}
        for entry in entries:
            members = (dn.decode("utf-8", "replace") for dn in entry.attributes.get("member", ()))
            found = _sorted(names.get(normalized(dn), dn) for dn in members)
            self._put(Kind.DISTRIBUTION_LIST, (name_of(entry.dn),), entry, members=found)


def _decode(kind: Kind, entry: Entry) -> dict[str, Value]:
    return {name: value.decode(entry) for name, value in VALUES[kind].items()}


def _sorted(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(texts, key=fold))


def _number(value: bytes | None) -> int:
    return int(value) if value and len(value) <= 20 and value.removeprefix(b"-").isdigit() else 0


def _agrees(settings: Entry, configuration: Entry) -> bool:
    """Return whether an mSMQSettings object agrees with the queue manager."""
    return all(
        (settings.first(name) or default) == (configuration.first(repeated) or default)
        for name, (repeated, default) in SETTINGS.items()
    )
