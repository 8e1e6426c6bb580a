"""Queue managers: a computer, its mSMQConfiguration object, and an mSMQSettings object for each site that it serves."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from mqenterprise.directory.certificates import digests_of
from mqenterprise.directory.change_notices import NOTIFIED_FIELDS, ChangeNotices
from mqenterprise.directory.entries import Change, ChangeKind, Entry, Scope
from mqenterprise.directory.errors import ConstraintViolated, HalfWritten, ObjectAlreadyExists, ObjectNotFound
from mqenterprise.directory.mapping import (
    BOOLEAN,
    OCTETS_LIST,
    QUEUE_MANAGER,
    UNSIGNED,
    Refers,
    filter_of,
    satisfies,
)
from mqenterprise.directory.names import child, escape_filter, name_of, normalized, parent_of
from mqenterprise.directory.new_descriptors import NewDescriptors
from mqenterprise.directory.objects import ObjectRepository
from mqenterprise.directory.repositories import configurations_of
from mqenterprise.directory.security import with_full_control
from qmnode.directory.port import DirectoryServerType, Filter, QueueManager
from qmnode.structures.change_notification import ChangeEvent
from qmnode.structures.guid import Guid
from qmnode.structures.names.direct import utf16_length

if TYPE_CHECKING:
    from mqenterprise.directory.connection import LdapConnection
    from mqenterprise.directory.references import References

LONGEST_COMPUTER_NAME: Final = 15
"""Characters of a NetBIOS name."""
CREATED_MARK: Final = b"created for Message Queuing"
"""In adminDescription of a computer or server entry that was made by us, and so may be deleted by us."""
ROUTING: Final = 0x01
REMOTE_ACCESS: Final = 0x10
CLUSTER: Final = b"MSClusterVirtualServer"
SERVICE_FIELDS: Final = frozenset(
    {
        "routing_server",
        "directory_server",
        "supporting_server",
        "directory_server_type",
        "remote_access_server",
        "site_identifier_list",
    }
)
"""Fields that mSMQSettings objects repeat or depend on (MS-MQDSSM 3.1.6.7.1.9)."""


SETTINGS: Final = ("mSMQQMID", "mSMQServices", "mSMQRoutingService", "mSMQDsService", "mSMQDependentClientService")
"""The attributes of mSMQSettings objects."""


class QueueManagerRepository(ObjectRepository[QueueManager]):
    """Queue managers by computer."""

    mapping = QUEUE_MANAGER

    def __init__(self, connection: LdapConnection, references: References, notices: ChangeNotices) -> None:
        super().__init__(connection, references)
        self._notices = notices
        self._descriptors = NewDescriptors(connection)

    def _computer(self, name: str) -> tuple[str, bool]:
        """The computer's entry, and whether there is one already: wherever it is, or where a new one goes."""
        if not 0 < utf16_length(name) <= LONGEST_COMPUTER_NAME:
            raise ConstraintViolated(
                f"{name!r} is no computer's name: it has 1 to {LONGEST_COMPUTER_NAME} UTF-16 units"
            )
        filter = f"(&(objectClass=computer)(cn={escape_filter(name)}))"
        found = next(self._connection.search(self._base(), filter, ("1.1",)), None)
        return (found.dn, True) if found else (child(name, self._connection.dialect.contexts.computers), False)

    def _dn(self, entity: QueueManager) -> str:
        return child("msmq", self._computer(entity.computer_name)[0])

    def _by_name(self, name: str) -> Iterator[Entry]:
        names = self.mapping.names(None)
        usual = child("msmq", child(name, self._connection.dialect.contexts.computers))
        try:
            yield self._connection.read(usual, names)
        except ObjectNotFound:
            for dn in configurations_of(self._connection, name):
                yield self._connection.read(dn, names)

    # Reading

    def _complete(self, entry: Entry, attributes: Collection[str] | None) -> QueueManager:
        names = self._computer_names(attributes)
        computer = self._connection.read(parent_of(entry.dn), names) if names else None
        return self._joined(entry, computer, attributes)

    def _computer_names(self, attributes: Collection[str] | None) -> tuple[str, ...]:
        names = self.mapping.names(attributes, on_computer=True)
        clustered = attributes is None or "clustered" in attributes
        return (*names, "servicePrincipalName") if clustered else names

    def _joined(self, entry: Entry, computer: Entry | None, attributes: Collection[str] | None) -> QueueManager:
        values: dict[str, Any] = {"computer_name": name_of(entry.dn, 1)}
        if computer is not None:
            for row in self.mapping.attributes:
                raw = computer.attributes.get(row.name.lower())
                if row.on_computer and raw and (attributes is None or row.field in attributes):
                    values[row.field] = self._value(row, raw, computer.dn)
            # 3.1.6.11.1.6
            values["clustered"] = any(CLUSTER in name for name in computer.attributes.get("serviceprincipalname", ()))
        found = self._decoded(entry, attributes, **values)
        if found.identifier is not None:
            self._references.note(entry.dn, found.identifier)
        return found

    def _computed(self, entry: Entry, attributes: Collection[str] | None) -> Mapping[str, Any]:
        services = entry.first("mSMQServiceType")
        if services is None:
            return {}
        bits = UNSIGNED.decode((services,))
        kind = next((kind for kind in DirectoryServerType if kind and bits & kind), DirectoryServerType.STANDALONE)
        return {"remote_access_server": bool(bits & REMOTE_ACCESS), "directory_server_type": kind}

    def list(self, *filters: Filter, attributes: Collection[str] | None = None) -> Iterator[QueueManager]:
        """All queue managers that satisfy all filters; computers are read along with them, not one by one."""
        asked = None if attributes is None else {*attributes, *(expression.attribute for expression in filters)}
        names = self._computer_names(asked)
        if not names:
            yield from super().list(*filters, attributes=attributes)
            return
        computers = {
            normalized(entry.dn): entry
            for entry in self._connection.search(self._base(), "(objectClass=computer)", names)
        }
        ldap_filter, left = filter_of(self.mapping, filters)
        for entry in self._connection.search(self._base(), ldap_filter, self.mapping.names(asked)):
            found = self._kept(entry, computers.get(normalized(parent_of(entry.dn))), asked)
            if found is not None and satisfies(found, left):
                yield found

    def _settings_of(self, identifier: Guid) -> Iterator[Entry]:
        """The mSMQSettings objects that name this queue manager, also those that should not be there any more."""
        filter = f"(&(objectClass=mSMQSettings)(mSMQQMID={escape_filter(bytes(identifier))}))"
        return self._connection.search(self._connection.dialect.contexts.sites, filter, SETTINGS)

    # Writing

    def add(self, entity: QueueManager) -> QueueManager:
        """Create the configuration under the computer, and the computer first when there is none.

        Cut before the end, :meth:`modify` completes what is missing. Raises ``ObjectAlreadyExists``.
        """
        computer = self._ensure_computer(entity)
        attributes = self._new_attributes(entity)
        if entity.security is None:
            attributes["nTSecurityDescriptor"] = self._descriptors.queue_manager(
                computer, is_foreign=entity.foreign_system
            )
        entry = self._connection.add(child("msmq", computer), self._classes(), attributes)
        added = self._added(entity, entry)
        assert added.identifier is not None
        self._references.note(entry.dn, added.identifier)
        self.give_to_computer(added)
        self._connection.modify(computer, self._computer_changes(added, None))
        self._keep_settings(added)
        return added

    def give_to_computer(self, entity: QueueManager) -> None:
        """Give the computer its own configuration and queues, as OpenLDAP's access rules do for all computers.

        On Active Directory the list of MS-MQDSSM 3.1.6.1.1.8 gives the computer the configuration alone. A node writes
        and deletes its queues as its computer, where the queue manager of Windows does so as the user.
        """
        if not self._connection.dialect.gives_guid:
            return
        dn = self._located(entity)
        sid = self._connection.read(parent_of(dn), ("objectSid",)).first("objectSid")
        descriptor = self._connection.read(dn, ("nTSecurityDescriptor",)).first("nTSecurityDescriptor")
        if sid is None or descriptor is None:
            return
        changed = with_full_control(descriptor, sid)
        if changed is not None:
            self._connection.modify(dn, [Change(ChangeKind.REPLACE, "nTSecurityDescriptor", (changed,))])

    def modify(self, entity: QueueManager, attributes: Collection[str] | None = None) -> None:
        """Write the given fields, and keep the objects for the sites in step (3.1.6.7.1.9)."""
        dn = self._located(entity)
        wanted = self._different(entity, dn) if attributes is None else tuple(attributes)
        self._connection.modify(dn, self._changes(entity, wanted))
        self._connection.modify(parent_of(dn), self._computer_changes(entity, wanted))
        if attributes is None or SERVICE_FIELDS & set(wanted):
            self._keep_settings(self.at(dn))
        if NOTIFIED_FIELDS & set(wanted):
            self.note_change(dn)

    def note_change(self, dn: str) -> None:
        """Note that a queue manager is to be notified of its changed object."""
        if self._notices.wanted:
            identifier = self._references.guid_of(dn, Refers.QUEUE_MANAGER)
            self._notices.note(ChangeEvent.QUEUE_MANAGER_CHANGED, identifier, identifier)

    def delete(self, entity: QueueManager) -> None:
        """Delete the configuration with its queues, the objects for its sites, and the computer if we made it."""
        dn = self._located(entity)
        identifier = self.at(dn, ("identifier",)).identifier
        assert identifier is not None
        for settings in tuple(self._settings_of(identifier)):
            self._delete_settings(settings.dn)
        computer = parent_of(dn)
        mark = self._connection.read(computer, ("adminDescription",)).first("adminDescription")
        self._connection.delete(computer if mark == CREATED_MARK else dn, tree=True)
        self._references.forget(dn)

    def set_password(self, entity: QueueManager, secret: str) -> None:
        """Set what the node binds with as its computer."""
        self._connection.set_password(parent_of(self._located(entity)), secret)

    def _ensure_computer(self, entity: QueueManager) -> str:
        dn, exists = self._computer(entity.computer_name)
        if exists:
            return dn  # also when we are that computer and may not create one
        account = self._connection.dialect.account("computer", entity.computer_name)
        with contextlib.suppress(ObjectAlreadyExists):
            self._connection.add(
                dn,
                COMPUTER_CLASSES[self._connection.dialect.gives_guid],
                {**account, "adminDescription": (CREATED_MARK,)},
            )
        return dn

    def _computer_changes(self, entity: QueueManager, wanted: Collection[str] | None) -> Sequence[Change]:
        """The fields of a queue manager that its computer object has. Fields that are not populated are left alone."""
        names = {row.field for row in self.mapping.attributes if row.on_computer}
        chosen = names if wanted is None else names & set(wanted)
        changes = [*self._changes(entity, [n for n in chosen if getattr(entity, n) is not None], on_computer=True)]
        if "public_signing_key_list" in chosen and entity.public_signing_key_list is not None:
            digests = OCTETS_LIST.encode(digests_of(entity.public_signing_key_list))
            changes.append(Change(ChangeKind.REPLACE, "mSMQDigests", digests))
        return changes

    def _computed_attributes(self, entity: QueueManager) -> dict[str, Sequence[bytes]]:
        return {"mSMQServiceType": UNSIGNED.encode(service_type(entity))}

    def _changes(self, entity: QueueManager, wanted: Collection[str], *, on_computer: bool = False) -> Sequence[Change]:
        # The bitmap has a bit of each of these fields.
        names = {*wanted, "remote_access_server"} if {"routing_server", "directory_server"} & set(wanted) else wanted
        return super()._changes(entity, names, on_computer=on_computer)

    # The objects for the sites

    def _keep_settings(self, entity: QueueManager) -> None:
        assert entity.identifier is not None
        serves = entity.routing_server or entity.directory_server or entity.supporting_server
        wanted: dict[str, str] = {}
        for site in entity.site_identifier_list if serves else ():
            try:
                dn = self._references.dn_of(site, Refers.SITE)
            except ObjectNotFound:
                continue  # 3.1.6.1.1.3: a site that does not exist is skipped
            wanted[normalized(self._settings_dn(dn, entity.computer_name))] = dn
        attributes: dict[str, Sequence[bytes]] = {
            "mSMQQMID": (bytes(entity.identifier),),
            "mSMQServices": UNSIGNED.encode(service_type(entity)),
            "mSMQRoutingService": BOOLEAN.encode(entity.routing_server),
            "mSMQDsService": BOOLEAN.encode(entity.directory_server),
            "mSMQDependentClientService": BOOLEAN.encode(entity.supporting_server),
        }
        for present in tuple(self._settings_of(entity.identifier)):
            if wanted.pop(normalized(present.dn), None) is None:
                self._delete_settings(present.dn)
            elif any(present.attributes.get(name.lower(), ()) != tuple(values) for name, values in attributes.items()):
                self._replace(present.dn, attributes)
        for dn in wanted.values():
            self._add_settings(dn, entity.computer_name, attributes)

    def _settings_dn(self, site_dn: str, computer: str) -> str:
        return child("MSMQ Settings", child(computer, child("Servers", site_dn)))

    def _add_settings(self, site_dn: str, computer: str, attributes: Mapping[str, Sequence[bytes]]) -> None:
        servers = child("Servers", site_dn)
        self._ensure(servers, "serversContainer")
        self._ensure(child(computer, servers), "server")
        dn = self._settings_dn(site_dn, computer)
        try:
            self._connection.add(dn, ("top", "mSMQSettings"), attributes)
        except ObjectAlreadyExists:
            # Remains of a queue manager of this name: 3.1.6.1.1.3 has them deleted and created again.
            self._replace(dn, attributes)

    def _ensure(self, dn: str, object_class: str) -> None:
        try:
            self._connection.read(dn, ("1.1",))
        except ObjectNotFound:
            with contextlib.suppress(ObjectAlreadyExists):
                self._connection.add(dn, ("top", object_class), {"adminDescription": (CREATED_MARK,)})

    def _replace(self, dn: str, attributes: Mapping[str, Sequence[bytes]]) -> None:
        changes = [Change(ChangeKind.REPLACE, name, tuple(values)) for name, values in attributes.items()]
        self._connection.modify(dn, changes)

    def _delete_settings(self, dn: str) -> None:
        self._connection.delete(dn)
        server = parent_of(dn)
        mark = self._connection.read(server, ("adminDescription",)).first("adminDescription")
        beneath = next(self._connection.search(server, "(objectClass=*)", ("1.1",), Scope.LEVEL), None)
        if mark == CREATED_MARK and beneath is None:
            self._connection.delete(server)

    def _kept(self, entry: Entry, computer: Entry | None, attributes: Collection[str] | None) -> QueueManager | None:
        try:
            return self._joined(entry, computer, attributes)
        except HalfWritten as problem:
            self._note(problem)
            return None


COMPUTER_CLASSES: Final = {
    True: ("top", "person", "organizationalPerson", "user", "computer"),
    False: ("top", "computer"),
}
"""By whether the server is Active Directory, where a computer is a person; in our OpenLDAP schema it is only itself."""


def service_type(queue_manager: QueueManager) -> int:
    """The value of mSMQServiceType for these roles (3.1.6.1.1.5)."""
    value = ROUTING if queue_manager.routing_server else 0
    value |= REMOTE_ACCESS if queue_manager.remote_access_server else 0
    return value | (int(queue_manager.directory_server_type) if queue_manager.directory_server else 0)
