"""Typed faces of the gateway: an entry becomes an object and back by the mapping. One repository for each kind."""

from __future__ import annotations

import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

import structlog

from mqenterprise.directory.entries import Entry
from mqenterprise.directory.errors import ConstraintViolated, HalfWritten, ObjectNotFound
from mqenterprise.directory.gateway import CONFIGURATION, MARK, ROUTING, SECURITY, Gateway
from mqenterprise.directory.ldap_names import (
    child,
    escape_filter,
    join_queue_name,
    name_of,
    normalized,
    parent_of,
    split_pathname,
    split_queue_name,
)
from mqenterprise.directory.mapping import (
    ENTERPRISE,
    QUEUE,
    QUEUE_ALIAS,
    QUEUE_MANAGER,
    ROUTING_LINK,
    SITE,
    UNSIGNED,
    USER,
    Attribute,
    ObjectMapping,
    Refers,
    Values,
    default_of,
    digests_of,
    filter_of,
    satisfies,
)
from mqenterprise.directory.security_descriptors import with_full_control
from qmnode.directory.port import (
    DirectoryObject,
    Enterprise,
    Filter,
    Queue,
    QueueAlias,
    QueueManager,
    RoutingLink,
    Site,
    User,
)
from qmnode.objects.rows import Changes
from qmnode.structures.change_notification import ChangeEvent
from qmnode.structures.guid import GUID_SIZE, ZERO_GUID, Guid, guid_from_bytes, guid_to_text
from qmnode.structures.names import utf16_length

if TYPE_CHECKING:
    from mqenterprise.directory.connection import LdapConnection

REMEMBERED: Final = 300.0
"""The seconds for which a GUID is remembered. An object that is made anew under its old name has another GUID."""
READ_ALL_AFTER: Final = 8
"""Single look-ups of one kind after which all of that kind are read at once."""


class References:
    """Resolves the references of MS-MQDSSM 3.1.6.1.1.6, 3.1.6.1.4.4 and their like."""

    def __init__(self, connection: LdapConnection, clock: Callable[[], float] = time.monotonic) -> None:
        self._connection = connection
        self._clock = clock
        self._lock = threading.Lock()
        self._by_dn: dict[str, tuple[Guid, float]] = {}
        self._single: dict[Refers, int] = {}
        self._read_all_at: dict[Refers, float] = {}

    def note(self, dn: str, guid: Guid) -> None:
        """Remember a pair that was seen."""
        with self._lock:
            self._by_dn[normalized(dn)] = (guid, self._clock())

    def guid_of(self, dn: str, kind: Refers) -> Guid:
        """The GUID of the object of that name. Raises ``ObjectNotFound``."""
        key = normalized(dn)
        known = self._fresh(key)
        if known is None and self._should_read_all(kind):
            self._read_all(kind)
            known = self._fresh(key)
        if known is None:
            value = self._connection.read(dn, ("objectGUID",)).first("objectGUID")
            if value is None or len(value) != GUID_SIZE:
                raise ObjectNotFound(f"{dn} has no objectGUID")
            known = guid_from_bytes(value)
            self.note(dn, known)
        return known

    def _fresh(self, key: str) -> Guid | None:
        guid, since = self._by_dn.get(key, (None, 0.0))
        return None if self._clock() - since > REMEMBERED else guid

    def _should_read_all(self, kind: Refers) -> bool:
        with self._lock:
            if self._clock() - self._read_all_at.get(kind, -REMEMBERED) < REMEMBERED / 10:
                return False
            self._single[kind] = self._single.get(kind, 0) + 1
            return self._single[kind] > READ_ALL_AFTER

    def _read_all(self, kind: Refers) -> None:
        with self._lock:
            self._read_all_at[kind] = self._clock()
            self._single[kind] = 0
        for entry in self._connection.search(self._base(kind), f"(objectClass={kind.value})", ("objectGUID",)):
            value = entry.first("objectGUID")
            if value is not None and len(value) == GUID_SIZE:
                self.note(entry.dn, guid_from_bytes(value))

    def _base(self, kind: Refers) -> str:
        contexts = self._connection.dialect.contexts
        return contexts.sites if kind is Refers.SITE else contexts.domain


Entity = TypeVar("Entity", bound=DirectoryObject)

log = structlog.get_logger(__name__)

PROBLEMS_KEPT: Final = 1000
LONGEST_COMPUTER_NAME: Final = 15
"""Characters of a NetBIOS name."""


class Repository(Generic[Entity]):
    """One kind of object. A kind that is more than one entry overrides what differs."""

    mapping: ClassVar[ObjectMapping]

    def __init__(self, gateway: Gateway, references: References) -> None:
        self._gateway = gateway
        self._connection = gateway.connection
        self._references = references
        self.half_written: list[HalfWritten] = []
        """Entries that :meth:`list` left out, because something that they cannot be without is missing."""

    # Where

    def _base(self) -> str:
        return str(getattr(self._connection.dialect.contexts, self.mapping.context))

    def _by_name(self, name: str) -> Iterator[Entry]:
        """The entries of that name, the one where it belongs first."""
        filter = f"(&(objectClass={self.mapping.object_class})(cn={escape_filter(name)}))"
        return self._connection.search(self._base(), filter, self.mapping.names(None))

    def _located(self, entity: Entity) -> str:
        """The distinguished name of an object that exists; by its GUID when its path is not known."""
        if entity.full_path is not None:
            return entity.full_path
        if entity.identifier is None:
            raise ObjectNotFound(f"this {self.mapping.entity.__name__} was not read from the directory: find it first")
        return self._entry_by_guid(entity.identifier, ("objectGUID",)).dn

    # Reading

    def get(self, identifier: Guid, attributes: Collection[str] | None = None) -> Entity:
        """The object of that GUID. Raises ``ObjectNotFound``, and ``HalfWritten`` for half of one."""
        return self._complete(self._entry_by_guid(identifier, self.mapping.names(attributes)), attributes)

    def at(self, dn: str, attributes: Collection[str] | None = None) -> Entity:
        """The object at a full path. Raises ``ObjectNotFound``."""
        return self._complete(self._connection.read(dn, self.mapping.names(attributes)), attributes)

    def find(self, name: str) -> Entity | None:
        """The object of that name, or nothing."""
        entry = next(self._by_name(name), None)
        return None if entry is None else self._complete(entry, None)

    def list(self, *filters: Filter, attributes: Collection[str] | None = None) -> Iterator[Entity]:
        """All objects that satisfy all filters. Half of an object is left out and noted in :attr:`half_written`."""
        asked = None if attributes is None else {*attributes, *(expression.attribute for expression in filters)}
        ldap_filter, left = filter_of(self.mapping, filters)
        more = self._read_along(asked)
        for entry in self._connection.search(self._base(), ldap_filter, self.mapping.names(asked)):
            try:
                found = self._complete(entry, asked, more)
            except HalfWritten as problem:
                log.warning("directory entry left out", reason=problem.sentence)
                if len(self.half_written) < PROBLEMS_KEPT:
                    self.half_written.append(problem)
                continue
            if satisfies(found, left):
                yield found

    def _read_along(self, attributes: Collection[str] | None) -> Mapping[str, Entry] | None:
        """Other entries that a listing needs, by normalized distinguished name."""
        return None

    def _entry_by_guid(self, identifier: Guid, names: Collection[str]) -> Entry:
        base, filter, is_base = self._connection.dialect.by_guid(identifier)
        wanted = (*names, "objectClass")
        found = (self._connection.read(base, wanted),) if is_base else self._connection.search(base, filter, wanted)
        for entry in found:
            # A GUID of another kind of object is nobody's of this kind.
            if self.mapping.object_class.lower().encode() in map(bytes.lower, entry.attributes.get("objectclass", ())):
                return entry
        raise ObjectNotFound(f"there is no {self.mapping.entity.__name__} with the GUID {guid_to_text(identifier)}")

    def _complete(
        self, entry: Entry, attributes: Collection[str] | None, along: Mapping[str, Entry] | None = None
    ) -> Entity:
        """An object of an entry; a kind that has more to read than one entry does so here."""
        return self._decoded(entry, attributes, {})

    def _decoded(self, entry: Entry, attributes: Collection[str] | None, more: Mapping[str, Any]) -> Entity:
        values: dict[str, Any] = {"full_path": entry.dn}
        try:
            for row in self.mapping.attributes:
                is_asked = attributes is None or row.field in attributes
                if row.on_computer or not (is_asked or row.required):
                    continue
                if raw := entry.attributes.get(row.name.lower()):
                    values[row.field] = self._value(row, raw, entry.dn)
                elif row.required and (is_asked or row.field == "identifier"):
                    raise HalfWritten(f"{entry.dn} lacks {row.name}: someone made half of it; complete or delete it")
            values |= {**more, **self._computed(entry, attributes)}
        except (ValueError, struct.error) as error:  # UnicodeDecodeError is one
            raise HalfWritten(f"{entry.dn} is not what it should be: {error}; correct or delete it") from error
        # A field without a default that was not asked for still needs something; it is not to be used (3.1.7.1.20).
        for item in fields(self.mapping.entity):
            if item.name not in values and item.default is MISSING:
                values[item.name] = 0 if item.name == "actual_cost" else b"" if item.name.endswith("identifier") else ""
        return self.mapping.entity(**values)  # type: ignore[return-value]

    def _computed(self, entry: Entry, attributes: Collection[str] | None) -> Mapping[str, Any]:
        """The fields that take more than one attribute."""
        return {}

    def _value(self, row: Attribute, raw: Values, dn: str) -> Any:
        if row.refers is not None:
            return self._resolved(row, row.refers, raw, dn)
        try:
            return row.codec.decode(raw)
        except (ValueError, struct.error) as error:
            raise HalfWritten(f"{row.name} of {dn} is not what it should be: {error}") from error

    def _resolved(self, row: Attribute, refers: Refers, raw: Values, dn: str) -> Any:
        found = []
        for value in raw:
            try:
                found.append(self._references.guid_of(value.decode(), refers))
            except (ObjectNotFound, ConstraintViolated):
                # 3.1.6.11.1.3 skips a routing server that is gone. 3.1.6.11.5.3 makes a gate that is gone an error; one
                # deleted machine would take the whole link from everyone, so it is skipped as well.
                if row.required:
                    named = value.decode()[:200]
                    raise HalfWritten(f"{row.name} of {dn} names {named!r}, which does not exist") from None
        return found[0] if row.required else tuple(found)


class WrittenRepository(Repository[Entity]):
    """A kind that nodes and administrators write one by one. Declarations write the others through the gateway."""

    def add(self, entity: Entity) -> Entity:
        """Create it. Raises ``ObjectAlreadyExists``."""
        rows = [row for row in self.mapping.attributes if row.changes is not Changes.NEVER and not row.on_computer]
        entry = self._create(entity, {row.name: self._encoded(row, entity) for row in rows})
        value = entry.first("objectGUID")
        if value is None:
            raise HalfWritten(f"{entry.dn} was created and has no objectGUID")
        return replace(entity, identifier=guid_from_bytes(value), full_path=entry.dn)

    def _create(self, entity: Entity, attributes: Mapping[str, Values]) -> Entry:
        """Create the entry with these attributes, where 2.2.1 puts it."""
        raise NotImplementedError

    def modify(self, entity: Entity, attributes: Collection[str] | None = None) -> None:
        """Write the given fields. Without ``attributes``: read, compare and write the fields that differ."""
        dn = self._located(entity)
        self._write(dn, entity, self._different(entity, dn) if attributes is None else attributes)

    def _write(self, dn: str, entity: Entity, names: Collection[str]) -> None:
        rows = [row for name in names if (row := self.mapping.of(name)) is not None]
        changed = {
            row.name: self._encoded(row, entity)
            for row in rows
            if row.changes is Changes.ALWAYS and not row.on_computer
        }
        # A descriptor cannot be taken away, and one that we do not know is not to be.
        self._gateway.writer.change(dn, {key: values for key, values in changed.items() if values or key != SECURITY})

    def _different(self, entity: Entity, dn: str) -> Collection[str]:
        present = self.at(dn)
        names = [row.field for row in self.mapping.attributes if row.changes is Changes.ALWAYS]
        return [
            name
            for name in names
            if getattr(present, name) != getattr(entity, name)
            and not (getattr(entity, name) is None and default_of(self.mapping.entity, name) is None)
        ]

    def _encoded(self, row: Attribute, entity: Entity) -> Values:
        value = getattr(entity, row.field)
        if row.refers is not None and value:
            raise ConstraintViolated(f"{row.field} is written by declarations alone")
        try:
            return row.codec.encode(value)
        except (ValueError, OverflowError, TypeError, AttributeError) as error:
            kind = self.mapping.entity.__name__
            raise ConstraintViolated(f"{value!r} is no {row.field} of a {kind}: {error}") from error

    def _configurations(self, computer: str, names: Collection[str] = ("1.1",)) -> Iterator[Entry]:
        """The mSMQConfiguration objects of computers of that name: where they usually are, then elsewhere."""
        with suppress(ObjectNotFound):
            yield self._connection.read(self._usual(computer), names)
        for entry in self._computers(computer):
            dn = child(CONFIGURATION, entry.dn)
            if normalized(dn) != normalized(self._usual(computer)):
                with suppress(ObjectNotFound):
                    yield self._connection.read(dn, names)

    def _usual(self, computer: str) -> str:
        """Where the mSMQConfiguration object of a computer mostly is, which costs no search."""
        return child(CONFIGURATION, child(computer, self._connection.dialect.contexts.computers))

    def _computers(self, name: str) -> Iterator[Entry]:
        filter = f"(&(objectClass=computer)(cn={escape_filter(name)}))"
        return self._connection.search(self._connection.dialect.contexts.domain, filter, ("1.1",))


class EnterpriseRepository(Repository[Enterprise]):
    """The one object of its kind (MS-MQDSSM 2.2.3)."""

    mapping = ENTERPRISE

    def _computed(self, entry: Entry, attributes: Collection[str] | None) -> Mapping[str, Any]:
        return {"name": self._connection.root}  # 3.1.6.11.3.1


class SiteRepository(Repository[Site]):
    """Sites and foreign sites, under CN=Sites of the configuration."""

    mapping = SITE

    def _decoded(self, entry: Entry, attributes: Collection[str] | None, more: Mapping[str, Any]) -> Site:
        site = super()._decoded(entry, attributes, more)
        if site.identifier is not None:
            self._references.note(entry.dn, site.identifier)
        return site


class RoutingLinkRepository(Repository[RoutingLink]):
    """Routing links, under the Enterprise object."""

    mapping = ROUTING_LINK


class QueueRepository(WrittenRepository[Queue]):
    """Public queues, each under the mSMQConfiguration object of its queue manager, which is notified of changes."""

    mapping = QUEUE

    def add(self, entity: Queue) -> Queue:
        added = super().add(entity)
        self._notify(ChangeEvent.QUEUE_CREATED, added)
        return added

    def _create(self, entity: Queue, attributes: Mapping[str, Values]) -> Entry:
        computer, queue = split_pathname(entity.pathname)
        return self._gateway.create_queue(self._gateway.writer, self._configuration_dn(computer), queue, attributes)

    def modify(self, entity: Queue, attributes: Collection[str] | None = None) -> None:
        # An application type of zeros and none are the same (3.1.6.11.2).
        is_typed = attributes is not None or entity.type != ZERO_GUID
        super().modify(entity if is_typed else replace(entity, type=None), attributes)
        self._notify(ChangeEvent.QUEUE_CHANGED, entity)

    def delete(self, entity: Queue) -> None:
        """Delete it. Raises ``ObjectNotFound``."""
        dn = self._located(entity)
        known = self.at(dn, ("identifier",)) if self._gateway.notices.are_sent else entity
        self._gateway.writer.remove(dn, tree=True)
        self._notify(ChangeEvent.QUEUE_DELETED, known)

    def move(self, entity: Queue, computer: str) -> Queue:
        """Give a queue to the queue manager of another computer: its PUBLIC= name stays. Return it as it is then.

        Raises ``ObjectNotFound`` if there is none, ``ObjectAlreadyExists`` if it has a queue of that name.
        """
        moved = self.at(self._connection.move(self._located(entity), self._configuration_dn(computer)))
        self._notify(ChangeEvent.QUEUE_CREATED, moved)
        return moved

    def _notify(self, event: ChangeEvent, queue: Queue) -> None:
        if self._gateway.notices.are_sent and queue.identifier is not None:
            owner = self._references.guid_of(parent_of(self._located(queue)), Refers.QUEUE_MANAGER)
            self._gateway.notices.note(event, queue.identifier, owner)

    def _configuration_dn(self, computer: str) -> str:
        """Where the queue manager of a computer is."""
        usual = self._usual(computer)
        try:
            self._references.guid_of(usual, Refers.QUEUE_MANAGER)
        except ObjectNotFound:
            for entry in self._configurations(computer):
                return entry.dn
            raise ObjectNotFound(
                f"there is no queue manager on a computer named {computer!r} in the directory"
            ) from None
        return usual

    def _by_name(self, name: str) -> Iterator[Entry]:
        computer, queue = split_pathname(name)
        cn = split_queue_name(queue)[0]
        names = self.mapping.names(None)
        try:
            yield self._connection.read(child(cn, self._usual(computer)), names)
        except ObjectNotFound:
            for entry in self._configurations(computer):
                filter = f"(&(objectClass=mSMQQueue)(cn={escape_filter(cn)}))"
                yield from self._connection.search(entry.dn, filter, names)

    def of(self, computer: str, attributes: Collection[str] | None = None) -> Iterator[Queue]:
        """The public queues of one computer. Raises ``ObjectNotFound`` when it has no queue manager."""
        dn = self._configuration_dn(computer)
        for entry in self._connection.search(dn, "(objectClass=mSMQQueue)", self.mapping.names(attributes)):
            yield self._complete(entry, attributes)

    def _computed(self, entry: Entry, attributes: Collection[str] | None) -> Mapping[str, Any]:
        extension = entry.first("mSMQQueueNameExt") or b""
        queue = join_queue_name(name_of(entry.dn), extension.decode())
        return {"pathname": f"{name_of(entry.dn, 2)}\\{queue}".lower()}  # 3.1.6.11.2.1


class QueueAliasRepository(Repository[QueueAlias]):
    """Queue aliases, wherever they are."""

    mapping = QUEUE_ALIAS


class UserRepository(Repository[User]):
    """Users: those that the directory has, found wherever they are, and those that we add, under CN=Users."""

    mapping = USER

    def _by_name(self, name: str) -> Iterator[Entry]:
        text = escape_filter(name)
        filter = f"(&(objectClass=user)(!(objectClass=computer))(|(sAMAccountName={text})(cn={text})))"
        return self._connection.search(self._base(), filter, self.mapping.names(None))

    def _computed(self, entry: Entry, attributes: Collection[str] | None) -> Mapping[str, Any]:
        account = entry.first("sAMAccountName") or entry.first("cn")
        return {"name": account.decode() if account else name_of(entry.dn)}

    def list(self, *filters: Filter, attributes: Collection[str] | None = None) -> Iterator[User]:
        """All users. A computer is a user to the schema and not to us."""
        return (user for user in super().list(*filters, attributes=attributes) if not user.name.endswith("$"))


class QueueManagerRepository(WrittenRepository[QueueManager]):
    """Queue managers: a computer, its mSMQConfiguration object, and an mSMQSettings object for each site it serves."""

    mapping = QUEUE_MANAGER

    def _by_name(self, name: str) -> Iterator[Entry]:
        return self._configurations(name, self.mapping.names(None))

    def _read_along(self, attributes: Collection[str] | None) -> Mapping[str, Entry] | None:
        """The computers, which are read along with queue managers, not one by one."""
        if not (names := self.mapping.names(attributes, on_computer=True)):
            return None
        computers = self._connection.search(self._base(), "(objectClass=computer)", names)
        return {normalized(entry.dn): entry for entry in computers}

    def _complete(
        self, entry: Entry, attributes: Collection[str] | None, along: Mapping[str, Entry] | None = None
    ) -> QueueManager:
        values: dict[str, Any] = {"computer_name": name_of(entry.dn, 1)}
        if names := self.mapping.names(attributes, on_computer=True):
            dn = parent_of(entry.dn)
            computer = self._connection.read(dn, names) if along is None else along.get(normalized(dn))
            if computer is not None:
                for row in self.mapping.attributes:
                    raw = computer.attributes.get(row.name.lower())
                    if row.on_computer and raw and (attributes is None or row.field in attributes):
                        values[row.field] = self._value(row, raw, computer.dn)
        found = self._decoded(entry, attributes, values)
        if found.identifier is not None:
            self._references.note(entry.dn, found.identifier)
        return found

    def add(self, entity: QueueManager) -> QueueManager:
        """Create the configuration under the computer, and the computer first when there is none.

        Raises ``ObjectAlreadyExists``.
        """
        added = super().add(entity)
        assert added.identifier is not None and added.full_path is not None
        self._references.note(added.full_path, added.identifier)
        self.give_to_computer(added)
        return added

    def _create(self, entity: QueueManager, attributes: Mapping[str, Values]) -> Entry:
        name = entity.computer_name
        if not 0 < utf16_length(name) <= LONGEST_COMPUTER_NAME:
            raise ConstraintViolated(
                f"{name!r} is no computer's name: it has 1 to {LONGEST_COMPUTER_NAME} UTF-16 units"
            )
        found = next(self._computers(name), None)  # also when we are that computer and may not create one
        computer = child(name, self._connection.dialect.contexts.computers) if found is None else found.dn
        services = {"mSMQServiceType": UNSIGNED.encode(ROUTING if entity.routing_server else 0)}
        return self._gateway.create_queue_manager(
            self._gateway.writer, computer, {**attributes, **services}, self._on_computer(entity, None),
            exists=found is not None, is_foreign=entity.foreign_system,
        )  # fmt: skip

    def give_to_computer(self, entity: QueueManager) -> None:
        """Give the computer its own configuration and queues, as OpenLDAP's access rules do for all computers.

        On Active Directory the list of MS-MQDSSM 3.1.6.1.1.8 gives the computer the configuration alone. A node writes
        and deletes its queues as its computer, where the queue manager of Windows does so as the user.
        """
        if not self._connection.dialect.gives_guid:
            return
        dn = self._located(entity)
        sid = self._connection.read(parent_of(dn), ("objectSid",)).first("objectSid")
        descriptor = self._connection.read(dn, (SECURITY,)).first(SECURITY)
        if sid is None or descriptor is None:
            return
        changed = with_full_control(descriptor, sid)
        if changed is not None:
            self._gateway.writer.change(dn, {SECURITY: (changed,)})

    def modify(self, entity: QueueManager, attributes: Collection[str] | None = None) -> None:
        """Write the given fields. A declaration alone changes sites and roles, which other objects repeat."""
        dn = self._located(entity)
        names = {*(self._different(entity, dn) if attributes is None else attributes)}
        self._write(dn, entity, names)
        self._gateway.writer.change(parent_of(dn), self._on_computer(entity, names))

    def note_change(self, dn: str) -> None:
        """Note that a queue manager is to be notified of its changed object."""
        if self._gateway.notices.are_sent:
            identifier = self._references.guid_of(dn, Refers.QUEUE_MANAGER)
            self._gateway.notices.note(ChangeEvent.QUEUE_MANAGER_CHANGED, identifier, identifier)

    def set_password(self, entity: QueueManager, secret: str) -> None:
        """Set what the node binds with as its computer."""
        self._connection.set_password(parent_of(self._located(entity)), secret)

    def _on_computer(self, entity: QueueManager, names: Collection[str] | None) -> dict[str, Values]:
        """The attributes of the computer. Fields that are not populated are left alone."""
        attributes = {
            row.name: self._encoded(row, entity)
            for row in self.mapping.attributes
            if row.on_computer and (names is None or row.field in names) and getattr(entity, row.field) is not None
        }
        if "mSMQSignCertificates" in attributes and entity.public_signing_key_list is not None:
            attributes["mSMQDigests"] = digests_of(entity.public_signing_key_list)
        return attributes


ASKED: Final = ("objectClass", "objectGUID", "member", "msMQ-Recipient-FormatName")
MOST_QUEUES: Final = 10_000
"""Format names that one list may lead to; a message is sent to each of them."""
MOST_NAMES: Final = 50_000
"""Names of members in a list and the lists in it, those that are there several times as well."""
_SECONDS: Final = 60.0


def resolve_queue_alias(connection: LdapConnection, full_path: str) -> str:
    """The format name of an alias (3.1.6.8). Raises ``ObjectNotFound``, and ``HalfWritten`` for one without."""
    return _format_name(connection.read(full_path, ("msMQ-Recipient-FormatName",)))


def declared_lists(connection: LdapConnection) -> Iterator[tuple[str, Guid]]:
    """The names and GUIDs of the lists that declarations made: most groups of a directory are of people."""
    filter = f"(&(objectClass=group)({MARK}=mqenterprise *))"
    for entry in connection.search(connection.dialect.contexts.domain, filter, ("objectGUID",)):
        if not normalized(entry.dn).partition(",")[2].startswith("cn=users,"):
            continue  # the access list of a site or the enterprise, in OpenLDAP
        if (value := entry.first("objectGUID")) is not None:
            yield name_of(entry.dn), guid_from_bytes(value)


def resolve_distribution_list(
    connection: LdapConnection, identifier: Guid, seconds: float = _SECONDS
) -> tuple[str, ...]:
    """The format names of all queues of a list and of the lists in it (3.1.6.9), each once, in the order of the lists.

    The section would follow lists that contain each other without end; here each member is read once. Raises
    ``ConstraintViolated`` for a member that is no queue, alias or list, for lists of too many names, and after
    ``seconds``.
    """
    outermost = _by_guid(connection, identifier)
    found: dict[str, None] = {}
    seen = {normalized(outermost.dn)}
    left: deque[tuple[str, Sequence[bytes]]] = deque()
    names, until = 0, monotonic() + seconds

    def enter(group: Entry) -> None:
        nonlocal names
        members = group.attributes.get("member", ())
        names += len(members)
        if names > MOST_NAMES:
            raise ConstraintViolated(
                f"{outermost.dn} and the lists in it name more than {MOST_NAMES:,} members: split it"
            )
        left.append((group.dn, members))

    enter(outermost)
    while left:
        dn, members = left.popleft()
        for member in members:
            path = member.decode("utf-8", "replace")
            if (place := normalized(path)) in seen:
                continue
            seen.add(place)
            if len(seen) > MOST_QUEUES:
                raise ConstraintViolated(f"{outermost.dn} and the lists in it have more than {MOST_QUEUES:,} members")
            if monotonic() > until:
                raise ConstraintViolated(
                    f"{outermost.dn} and the lists in it cannot be read within {seconds:g} s: {len(seen):,} of their "
                    "members were; split it"
                )
            entry = connection.read(path, ASKED)
            classes = {value.decode("utf-8", "replace").lower() for value in entry.attributes.get("objectclass", ())}
            if "msmqqueue" in classes:
                found[_public(entry)] = None
            elif "msmq-custom-recipient" in classes:
                found[_format_name(entry)] = None
            elif "group" in classes:
                enter(entry)
            else:
                raise ConstraintViolated(f"{dn} has {entry.dn}, which is no queue, alias or list")
    return tuple(found)


def _by_guid(connection: LdapConnection, identifier: Guid) -> Entry:
    base, filter, is_base = connection.dialect.by_guid(identifier)
    entries = (connection.read(base, ASKED),) if is_base else connection.search(base, filter, ASKED)
    for entry in entries:
        if b"group" in entry.attributes.get("objectclass", ()):
            return entry
    raise ObjectNotFound(f"there is no distribution list with the GUID {guid_to_text(identifier)}")


def _public(entry: Entry) -> str:
    value = entry.first("objectGUID")
    if value is None or len(value) != GUID_SIZE:
        raise HalfWritten(f"{entry.dn} lacks objectGUID")
    return f"PUBLIC={guid_to_text(guid_from_bytes(value))}"


def _format_name(entry: Entry) -> str:
    value = entry.first("msMQ-Recipient-FormatName")
    if value is None:
        raise HalfWritten(f"{entry.dn} is an alias without a format name")
    return value.decode("utf-8", "replace")
