"""A real directory as the target of plan and apply: OpenLDAP or Active Directory, through one connection.

Names become references to entries here, and :class:`~mqenterprise.directory.gateway.FencedWriter` keeps the rules of
marks and tokens. A change of a value is refused when the directory has neither its old nor its new value.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from mqenterprise.directory.entries import Entry
from mqenterprise.directory.errors import (
    ConditionFailed,
    DirectoryError,
    DirectoryUnavailable,
    HalfWritten,
    ObjectAlreadyExists,
    ObjectNotFound,
)
from mqenterprise.directory.gateway import (
    MARK,
    ROUTING,
    SECURITY,
    SETTINGS,
    FencedWriter,
    Writer,
    replacement,
    token_of,
)
from mqenterprise.directory.ldap_names import (
    child,
    escape_filter,
    join_queue_name,
    name_of,
    normalized,
    parent_of,
    split_dn,
)
from mqenterprise.directory.mapping import (
    MAPPINGS,
    DeclaredValue,
    declared_values,
    pack_certificates,
    unpack_certificates,
)
from mqenterprise.topology.names import fold
from mqenterprise.topology.normal_form import Key, Kind, Table, Value, resource
from mqenterprise.topology.plan import (
    Action,
    ConflictingChange,
    Snapshot,
    Step,
    TargetError,
    TargetUnavailable,
    Values,
    recipients,
)
from mqenterprise.topology.trustees import RIGHTS_GROUPS, Trustees
from qmnode.objects.table import ROWS
from qmnode.structures.change_notification import ChangeEvent
from qmnode.structures.guid import guid_from_bytes

if TYPE_CHECKING:
    from mqenterprise.directory.connection import LdapConnection
    from mqenterprise.directory.open_directory import EnterpriseDirectory

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


LONGEST_ACCOUNT_NAME: Final = 20
"""The greatest length of a user's sAMAccountName."""
LEASE_NAME: Final = "mqenterprise"
"""The container under ``CN=Services`` whose mark attribute holds the lease."""
_QUEUE_EVENTS: Final = {
    Action.CREATE: ChangeEvent.QUEUE_CREATED,
    Action.UPDATE: ChangeEvent.QUEUE_CHANGED,
    Action.DELETE: ChangeEvent.QUEUE_DELETED,
}
_NOTIFIED: Final = frozenset({"quota", "journal_quota"})
"""The values of a machine that its queue manager reads again when it is notified."""
_SERVICES: Final = frozenset({"routing_server", "supporting_server", "directory_server", "settings"})

_Attributes = dict[str, tuple[bytes, ...]]


class LdapTarget:
    """The :class:`mqenterprise.topology.plan.Target` of a directory server."""

    def __init__(self, service: EnterpriseDirectory, *, access: bool = True) -> None:
        self._service = service
        self._connection = service.connection
        self._gateway = service.gateway
        self._trustees = Trustees(service.connection)
        self._access = access
        self._index = Index()
        self._lock = threading.Lock()

    @property
    def unread(self) -> Sequence[str]:
        """Why entries are not in the last snapshot, in sentences."""
        return self._index.unread

    @property
    def directory(self) -> str:
        """Identify the directory by the name of its root."""
        with port_errors():
            return self._connection.root

    def snapshot(self, users: Collection[str] = ()) -> Snapshot:
        with port_errors():
            self._trustees.forget()
            table, self._index = read_all(self._connection, self._trustees, users, access=self._access)
            return Snapshot(self._connection.root, table, self._canonical)

    def _canonical(self, name: str) -> str | None:
        with port_errors():
            return self._trustees.canonical(name)

    def prepare(self) -> None:
        with port_errors():
            self._service.prepare()

    def lease_entry(self) -> LdapLease:
        return LdapLease(self._service)

    def carry_out(self, step: Step, token: int) -> None:
        with port_errors():
            writer, is_machine = FencedWriter(self._connection, token), step.reference.kind is Kind.MACHINE
            match step.action:
                case Action.DELETE:
                    self._delete(step, writer)
                case Action.CREATE if is_machine:
                    self._create_machine(step, writer)
                case Action.CREATE:
                    self._create(step, writer)
                case Action.UPDATE if is_machine:
                    self._update_machine(step, writer)
                case Action.UPDATE:
                    self._change(self._index.places[step.reference.kind, step.reference.key].dn, step, writer)
            if self._service.notices.are_sent:
                self._notify(step)

    def delete_of_others(self, step: Step) -> None:
        """Delete, on request, an object that this tool did not make, if it is still there."""
        with port_errors(), suppress(ObjectNotFound):
            self._delete(step, self._gateway.writer)
            self._notify(step)

    def _notify(self, step: Step) -> None:
        """Note that a queue manager is to be notified of a step that was carried out."""
        machine = self._index.machines.get(fold(step.name[0])) if step.name else None
        owner = None if machine is None else machine.configuration
        match step.reference.kind:
            case Kind.QUEUE:
                changed = self._index.places.get((Kind.QUEUE, step.reference.key))
                event = _QUEUE_EVENTS[step.action]
            case Kind.MACHINE if step.action is Action.UPDATE and _NOTIFIED & step.after.keys():
                changed, event = owner, ChangeEvent.QUEUE_MANAGER_CHANGED
            case _:
                return
        if changed is not None and changed.guid and owner is not None:
            self._service.notices.note(event, guid_from_bytes(changed.guid), guid_from_bytes(owner.guid))

    # Values

    def _site(self, name: str) -> ObjectPlace:
        place = self._index.places.get((Kind.SITE, (fold(name),)))
        if place is None:
            raise ConflictingChange(f"the site {name} is gone")
        return place

    def _configuration(self, machine: str) -> ObjectPlace:
        place = self._index.machines.get(fold(machine))
        if place is None or place.configuration is None:
            raise ConflictingChange(f"the machine {machine} is gone")
        return place.configuration

    def _member(self, name: str) -> bytes:
        for reference in recipients(name):
            if (place := self._index.places.get((reference.kind, reference.key))) is not None:
                return place.dn.encode()
        raise ConflictingChange(f"the queue, alias or list {name} is gone")

    def _attributes(self, kind: Kind, values: Values) -> _Attributes:
        """Return the attributes of values, without those of a machine's computer."""
        plain = VALUES[kind].items()
        found = {value.row.name: value.encode(values[name]) for name, value in plain if name in values}
        for name in ROUTERS.keys() & values.keys():
            found[ROUTERS[name]] = tuple(self._configuration(one).dn.encode() for one in _names(values[name]))
        if "sites" in values:
            found["mSMQSites"] = tuple(self._site(site).guid for site in _names(values["sites"]))
        if "members" in values:
            found["member"] = tuple(self._member(name) for name in _names(values["members"]))
        if "certificates" in values:
            found |= pack_certificates(_names(values["certificates"]))
        if isinstance(lines := values.get("access"), tuple):
            found[SECURITY] = (self._trustees.descriptor(lines, kind),)
        return found

    def _change(self, dn: str, step: Step, writer: FencedWriter, more: _Attributes | None = None) -> None:
        """Change an entry. Raises :class:`ConflictingChange` when a field has neither its old nor its new value."""
        kind = step.reference.kind
        attributes = self._attributes(kind, step.after) | (more or {})
        entry = writer.read(dn, tuple(attributes))
        for name, value in VALUES[kind].items():
            if name in step.after and value.decode(entry) not in (step.before.get(name), step.after[name]):
                what = step.name[0] if kind is Kind.MACHINE else dn
                raise ConflictingChange(f"{name} of {what} is {value.decode(entry)!r} now")
        self._keep_rights(dn, kind, step.after, writer)
        writer.change(dn, attributes, entry)

    def _keep_rights(self, dn: str, kind: Kind, values: Values, writer: FencedWriter) -> None:
        """Keep the groups by which OpenLDAP enforces the access list of a site or of the enterprise, if there is one.

        They come before the list itself, so that a plan shows a difference until all are written.
        """
        lines = values.get("access")
        if kind in RIGHTS_GROUPS and isinstance(lines, tuple) and not self._connection.dialect.gives_guid:
            self._gateway.keep_rights(writer, dn, self._trustees.holders(lines, kind))

    # Objects

    def _create(self, step: Step, writer: FencedWriter) -> None:
        kind, name = step.reference.kind, step.name
        attributes = self._attributes(kind, step.after)
        match kind:
            case Kind.ENTERPRISE:
                enterprise = self._connection.dialect.contexts.enterprise
                self._keep_rights(enterprise, kind, step.after, writer)
                writer.change(enterprise, attributes)
                return
            case Kind.SITE:
                late = {} if self._connection.dialect.gives_guid else {SECURITY: attributes.pop(SECURITY, ())}
                entry = self._gateway.create_site(writer, name[0], attributes)
                if late.get(SECURITY):
                    self._keep_rights(entry.dn, kind, step.after, writer)
                    writer.change(entry.dn, late)
            case Kind.ROUTING_LINK:
                places = [self._site(site) for site in name]
                attributes |= {"mSMQSite1": (places[0].dn.encode(),), "mSMQSite2": (places[1].dn.encode(),)}
                sites = [guid_from_bytes(place.guid) for place in places]
                entry = self._gateway.create_link(writer, sites, attributes)
            case Kind.QUEUE:
                entry = self._gateway.create_queue(writer, self._configuration(name[0]).dn, name[1], attributes)
            case Kind.QUEUE_ALIAS:
                entry = self._gateway.create_alias(writer, name[0], attributes)
            case Kind.DISTRIBUTION_LIST:
                entry = self._gateway.create_list(writer, name[0], account_name(name[0]), attributes)
            case _:
                if not self._connection.dialect.gives_guid:  # nor a security identifier, by which lists name the user
                    attributes["objectSid"] = (self._trustees.new_identifier(),)
                entry = self._gateway.create_user(writer, name[0], account_name(name[0]), attributes)
                self._trustees.created(name[0])
        with self._lock:
            self._index.places[kind, step.reference.key] = ObjectPlace.of(entry)

    def _create_machine(self, step: Step, writer: FencedWriter) -> None:
        """Create a machine, or complete an unfinished one."""
        name, values = step.name[0], step.after
        place = self._index.machines.get(fold(name))
        exists = place is not None
        place = place or MachinePlace(child(name, self._connection.dialect.contexts.computers), is_computer_ours=True)
        entry = self._gateway.create_queue_manager(
            writer,
            place.computer,
            self._attributes(Kind.MACHINE, values) | _service_type(place, values),
            _on_computer(values),
            exists=exists,
            is_foreign=bool(values.get("foreign")),
        )
        place.configuration = ObjectPlace.of(entry)
        with self._lock:
            self._index.machines[fold(name)] = place
        self._keep_settings(place, entry.dn, values, writer)

    def _update_machine(self, step: Step, writer: FencedWriter) -> None:
        """Bring a machine from ``before`` to ``after``, which hold only the values that differ."""
        place = self._index.machines[fold(step.name[0])]
        if place.configuration is None:
            raise ConflictingChange(f"the queue manager of {step.name[0]} is gone")
        more = _service_type(place, step.after) if "routing_server" in step.after else {}
        self._change(place.configuration.dn, step, writer, more)
        if computer := _on_computer(step.after):
            writer.change(place.computer, computer)
        if _SERVICES & step.after.keys():
            self._keep_settings(place, place.configuration.dn, step.after, writer)

    def _keep_settings(self, place: MachinePlace, configuration: str, values: Values, writer: FencedWriter) -> None:
        """Keep the machine's settings objects, in other sites if the values name some."""
        wanted = {fold(site) for site in _names(values["settings"])} if "settings" in values else {*place.settings}
        sites = {self._site(site).dn: site for site in wanted}
        kept = self._gateway.keep_settings(writer, configuration, sites, place.settings.values())
        place.settings = {sites[dn]: settings for dn, settings in kept.items()}

    def _delete(self, step: Step, writer: Writer) -> None:
        """Delete an object. Queues of a machine are separate steps; a computer that is not the writer's stays."""
        kind, key = step.reference.kind, step.reference.key
        if kind is Kind.ENTERPRISE:
            raise TargetError("the settings of the enterprise cannot be deleted")
        if kind is Kind.MACHINE:
            if (machine := self._index.machines.get(key[0])) is not None:
                configuration = None if machine.configuration is None else machine.configuration.dn
                settings = (*machine.settings.values(),)
                is_its_own = self._is_computer_of(writer, machine)
                self._gateway.delete_queue_manager(
                    writer, machine.computer, configuration, settings, machine.servers, is_its_own
                )
                with self._lock:
                    self._index.machines.pop(key[0], None)
        elif (place := self._index.places.get((kind, key))) is not None:
            if kind is Kind.SITE:
                self._gateway.delete_site(writer, place.dn)
            else:
                writer.remove(place.dn)

    def _is_computer_of(self, writer: Writer, machine: MachinePlace) -> bool:
        """Return whether the computer has the mark of this writer. An apply looks again when it deletes it."""
        if isinstance(writer, FencedWriter):
            return machine.is_computer_ours
        with suppress(ObjectNotFound):
            return writer.is_ours(self._connection.read(machine.computer, (MARK,)))
        return False


def _names(value: Value) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()


def _on_computer(values: Values) -> _Attributes:
    return {COMPUTER.row.name: COMPUTER.encode(values["dns_name"])} if "dns_name" in values else {}


def _service_type(place: MachinePlace, values: Values) -> _Attributes:
    """Set the routing server's bit of mSMQServiceType (MS-MQDSSM 3.1.6.1.1.5) and keep the others."""
    place.service_type = place.service_type & ~ROUTING | (ROUTING if values.get("routing_server") else 0)
    return {"mSMQServiceType": (str(place.service_type).encode(),)}


def account_name(name: str) -> str:
    """Return a user's ``sAMAccountName``: the name, or one derived from it if the name is not allowed."""
    plain = re.sub(r"[\"/\\\[\]:;|=,+*?<>\x00-\x1f]", "_", name).rstrip(".")
    if plain == name and len(name) <= LONGEST_ACCOUNT_NAME:
        return name
    return f"{plain[: LONGEST_ACCOUNT_NAME - 9].rstrip('.')}-{hashlib.sha256(fold(name).encode()).hexdigest()[:8]}"


@contextmanager
def port_errors() -> Iterator[None]:
    """Turn the directory's errors into those of the port."""
    try:
        yield
    except DirectoryUnavailable as error:
        raise TargetUnavailable(error.sentence) from error
    except ConditionFailed as error:
        raise ConflictingChange(error.sentence) from error
    except DirectoryError as error:
        raise TargetError(error.sentence) from error
    except LookupError as error:
        raise ConflictingChange(f"{error.args[0]} is not in the directory any more") from error
    except ValueError as error:
        # Only an edited plan file has such values: those of a declaration were checked.
        raise TargetError(f"the value cannot be written: {error}") from error


class LdapLease:
    """The lease's text, in the mark attribute of a container of its own."""

    def __init__(self, service: EnterpriseDirectory) -> None:
        self._connection = service.connection
        self._dn = child(LEASE_NAME, service.connection.dialect.contexts.services)

    def read(self) -> str | None:
        with port_errors():
            try:
                value = self._connection.read(self._dn, (MARK,)).first(MARK)
            except ObjectNotFound:
                return None
            return value.decode("utf-8", "replace") if value else None

    def swap(self, old: str | None, new: str) -> bool:
        with port_errors():
            try:
                if old is None:
                    self._connection.add(self._dn, ("top", "container"), {MARK: (new.encode(),)})
                else:
                    self._connection.modify(self._dn, replacement(MARK, (old.encode(),), (new.encode(),)))
            except (ObjectAlreadyExists, ConditionFailed, ObjectNotFound):
                return False
            return True
