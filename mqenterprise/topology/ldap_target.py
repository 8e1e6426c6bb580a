"""A real directory as the target of plan and apply: OpenLDAP or Active Directory, through one connection.

Every object that is created carries our mark with the fencing token of the lease under which it was written
(:data:`~mqenterprise.directory.gateway.MARK`). A change first reads the object, and refuses it if it is not in the
planned state or carries a later token. It then replaces exactly the values that it has read, so that a concurrent
write makes the change fail instead of being overwritten. A deletion first renews the mark under the same condition, and
is conditional on the mark where the server supports that. Active Directory does not, which leaves a gap of one round
trip.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from mqenterprise.directory.certificates import pack_certificates
from mqenterprise.directory.entries import Change, ChangeKind, Entry, Scope
from mqenterprise.directory.errors import (
    ConditionFailed,
    DirectoryError,
    DirectoryUnavailable,
    ObjectAlreadyExists,
    ObjectNotFound,
)
from mqenterprise.directory.gateway import MARK, mark, token_of
from mqenterprise.directory.names import child, parent_of, split_queue_name
from mqenterprise.directory.new_descriptors import NewDescriptors
from mqenterprise.directory.settings import ServerKind
from mqenterprise.topology.ldap_machines import Machines
from mqenterprise.topology.ldap_reading import VALUES, Index, Place, encode, read_all
from mqenterprise.topology.names import fold
from mqenterprise.topology.plan import Action, Step, Values
from mqenterprise.topology.resources import Kind
from mqenterprise.topology.target import MovedOn, Snapshot, TargetError, TargetUnavailable
from mqenterprise.topology.trustees import Trustees
from qmnode.structures.change_notification import ChangeEvent
from qmnode.structures.guid import guid_from_bytes, guid_to_text

if TYPE_CHECKING:
    from mqenterprise.directory.dialect import Contexts
    from mqenterprise.directory.service import EnterpriseDirectory

LONGEST_ACCOUNT_NAME: Final = 20
"""The greatest length of a user's sAMAccountName."""
LEASE_NAME: Final = "mqenterprise"
"""The container under ``CN=Services`` whose mark attribute holds the lease."""


class Writer:
    """Create, change and delete entries under the rules above. Safe for threads."""

    def __init__(self, service: EnterpriseDirectory) -> None:
        self.connection = service.connection
        self.descriptors = NewDescriptors(service.connection)
        self.lock = threading.Lock()

    def create(
        self,
        dn: str,
        classes: Sequence[str],
        attributes: Mapping[str, Sequence[bytes]],
        token: int,
        *,
        or_theirs: bool = False,
    ) -> Place:
        """Create an entry of ours, or bring the remains of an interrupted apply of ours to the same state.

        With ``or_theirs`` an entry of someone else is taken over too; otherwise it raises :class:`MovedOn`.
        """
        try:
            entry = self.connection.add(dn, classes, {**attributes, MARK: (mark(token),)})
        except ObjectAlreadyExists:
            present = self.read(dn, ("objectGUID", *attributes))
            ours = token_of(present)
            if ours is None and not or_theirs:
                raise MovedOn(f"someone else made {dn}") from None
            self.change(dn, attributes, token, present=present)
            return Place(dn, present.first("objectGUID") or b"", ours)
        return Place(dn, entry.first("objectGUID") or b"", token)

    def ensure(self, dn: str, classes: Sequence[str], token: int) -> None:
        """Create an entry unless it exists, ours or not."""
        try:
            self.connection.add(dn, classes, {MARK: (mark(token),)})
        except ObjectAlreadyExists:
            return

    def read(self, dn: str, attributes: Collection[str]) -> Entry:
        """Read an entry with its mark. Raises :class:`MovedOn` when it is gone."""
        try:
            return self.connection.read(dn, (MARK, *attributes))
        except ObjectNotFound:
            raise MovedOn(f"{dn} is gone") from None

    def change(
        self, dn: str, attributes: Mapping[str, Sequence[bytes]], token: int, *, present: Entry | None = None
    ) -> None:
        """Set these attribute values of an entry. An attribute without values is removed."""
        entry = present or self.read(dn, tuple(attributes))
        changes = []
        for name, values in attributes.items():
            old = entry.attributes.get(name.lower(), ())
            if set(old) != set(values):
                changes += _replacement(name, old, tuple(values))
        if changes:
            self._modify(dn, [*changes, *self._marking(dn, entry, token)])

    def _marking(self, dn: str, entry: Entry, token: int) -> list[Change]:
        """Renew our mark, if the object is ours. Raises :class:`MovedOn` when a later apply wrote it."""
        old = token_of(entry)
        if old is None or old == token:
            return []
        if old > token:
            raise MovedOn(f"{dn} was written by a later apply")
        return _replacement(MARK, (mark(old),), (mark(token),))

    def _modify(self, dn: str, changes: list[Change]) -> None:
        try:
            self.connection.modify(dn, changes)
        except (ConditionFailed, ObjectNotFound) as error:
            raise MovedOn(error.sentence) from error

    def remove(self, dn: str, token: int) -> None:
        """Delete an entry of ours, if it still exists."""
        try:
            entry = self.connection.read(dn, (MARK,))
        except ObjectNotFound:
            return
        if token_of(entry) is None:
            raise MovedOn(f"{dn} is not ours (any more)")
        marking = self._marking(dn, entry, token)
        if marking:
            self._modify(dn, marking)
        try:
            self.connection.delete(dn, only_if=(MARK, mark(token)))
        except ObjectNotFound:
            return
        except ConditionFailed as error:
            raise MovedOn(error.sentence) from error

    def remove_if_empty(self, dn: str, token: int) -> None:
        """Delete an entry if it is ours and empty."""
        try:
            entry = self.connection.read(dn, (MARK,))
        except ObjectNotFound:
            return
        beneath = next(self.connection.search(dn, "(objectClass=*)", ("1.1",), Scope.LEVEL), None)
        if token_of(entry) is not None and beneath is None:
            self.remove(dn, token)

    def discard(self, dn: str) -> None:
        """Delete an entry, ours or not, if it still exists."""
        try:
            self.connection.delete(dn)
        except ObjectNotFound:
            return


def _replacement(name: str, old: Sequence[bytes], new: tuple[bytes, ...]) -> list[Change]:
    """Return changes that fail when the present values are no longer ``old``."""
    if name == "nTSecurityDescriptor":
        # The server completes a descriptor, so there is no exact value to delete.
        return [Change(ChangeKind.REPLACE, name, new)]
    changes = []
    if taken := tuple(value for value in old if value not in new):
        changes.append(Change(ChangeKind.DELETE, name, taken))
    if given := tuple(value for value in new if value not in old):
        changes.append(Change(ChangeKind.ADD, name, given))
    return changes


class LdapTarget:
    """The :class:`mqenterprise.topology.target.Target` of a directory server."""

    def __init__(self, service: EnterpriseDirectory, *, access: bool = True) -> None:
        self._service = service
        self._connection = service.connection
        self._writer = Writer(service)
        self._trustees = Trustees(service.connection)
        self._access = access
        self._index = Index()
        self._machines = Machines(self._writer, self._index)

    @property
    def _contexts(self) -> Contexts:
        return self._connection.dialect.contexts

    @property
    def unread(self) -> Sequence[str]:
        """Why entries are not in the last snapshot, in sentences."""
        return self._index.unread

    @property
    def directory(self) -> str:
        """Identify the directory by the name of its root."""
        with _told():
            return self._connection.root

    def snapshot(self, users: Collection[str] = ()) -> Snapshot:
        with _told():
            self._trustees.forget()
            table, self._index = read_all(self._connection, self._trustees, users, access=self._access)
            self._machines = Machines(self._writer, self._index)
            return Snapshot(self._connection.root, table, self._canonical)

    def _canonical(self, name: str) -> str | None:
        with _told():
            return self._trustees.canonical(name)

    def prepare(self) -> None:
        with _told():
            self._service.prepare()

    def lease_entry(self) -> LdapLease:
        return LdapLease(self._service)

    def carry_out(self, step: Step, token: int) -> None:
        with _told():
            match step.action:
                case Action.DELETE:
                    self._delete(step, token)
                case Action.CREATE:
                    self._create(step, token)
                case Action.UPDATE:
                    self._update(step, token)
            if self._service.notices.wanted:
                self._notify(step)

    def _notify(self, step: Step) -> None:
        """Note that a queue manager is to be notified of a step that was carried out."""
        match step.reference.kind:
            case Kind.QUEUE:
                changed = self._index.others.get((Kind.QUEUE, step.reference.key))
                event = _QUEUE_EVENTS[step.action]
            case Kind.MACHINE if step.action is Action.UPDATE and _NOTIFIED & step.after.keys():
                changed, event = self._machine_place(step.name[0]), ChangeEvent.QUEUE_MANAGER_CHANGED
            case _:
                return
        owner = self._machine_place(step.name[0])
        if changed is not None and changed.guid and owner is not None:
            self._service.notices.note(event, guid_from_bytes(changed.guid), guid_from_bytes(owner.guid))

    def _machine_place(self, name: str) -> Place | None:
        found = self._index.machines.get(fold(name))
        return None if found is None else found.configuration

    def _create(self, step: Step, token: int) -> None:
        kind, name, values = step.reference.kind, step.name, step.after
        match kind:
            case Kind.ENTERPRISE:
                self._writer.change(self._contexts.enterprise, encode(Kind.ENTERPRISE, values), token)
            case Kind.SITE:
                dn = child(name[0], self._contexts.sites)
                site = dict(encode(Kind.SITE, values))
                if descriptor := self._writer.descriptors.site():
                    site["nTSecurityDescriptor"] = descriptor
                place = self._writer.create(dn, ("top", "site"), site, token)
                self._writer.ensure(child("Servers", dn), ("top", "serversContainer"), token)
                if self._connection.dialect.kind is ServerKind.ACTIVE_DIRECTORY:
                    self._writer.ensure(child(_SITE_SETTINGS, dn), _SITE_SETTINGS_CLASSES, token)
                with self._writer.lock:
                    self._index.sites[fold(name[0])] = place
                    self._index.site_names[place.guid] = name[0]
            case Kind.MACHINE:
                computers = self._contexts.computers
                self._machines.create(name[0], child(name[0], computers), values, token)
            case Kind.ROUTING_LINK:
                self._create_link(step, token)
            case Kind.USER:
                self._create_user(step, token)
            case Kind.QUEUE:
                self._create_queue(step, token)

    def _add(
        self, step: Step, dn: str, classes: Sequence[str], attributes: Mapping[str, Sequence[bytes]], token: int
    ) -> None:
        place = self._writer.create(dn, classes, attributes, token)
        with self._writer.lock:
            self._index.others[step.reference.kind, step.reference.key] = place

    def _create_link(self, step: Step, token: int) -> None:
        places = [self._index.sites[fold(site)] for site in step.name]
        # 3.1.6.1.4.2: only the hexadecimal digits of the two GUIDs.
        name = "".join(guid_to_text(guid_from_bytes(place.guid)).replace("-", "") for place in places)
        attributes = {
            "mSMQSite1": (places[0].dn.encode(),),
            "mSMQSite2": (places[1].dn.encode(),),
            **self._attributes(Kind.ROUTING_LINK, step.after),
        }
        self._add(step, child(name, self._contexts.enterprise), ("top", "mSMQSiteLink"), attributes, token)

    def _create_queue(self, step: Step, token: int) -> None:
        machine, queue = step.name
        place = self._index.machines[fold(machine)].configuration
        if place is None:
            raise MovedOn(f"the machine {machine} is gone")
        name, extension = split_queue_name(queue)
        attributes = self._attributes(Kind.QUEUE, step.after)
        if extension:
            attributes["mSMQQueueNameExt"] = (extension.encode(),)
        if "nTSecurityDescriptor" not in attributes and (
            descriptor := self._writer.descriptors.queue(parent_of(place.dn))
        ):
            attributes["nTSecurityDescriptor"] = descriptor
        self._add(step, child(name, place.dn), ("top", "mSMQQueue"), attributes, token)

    def _create_user(self, step: Step, token: int) -> None:
        dialect, name = self._connection.dialect, step.name[0]
        attributes = {**dialect.account("user", account_name(name)), **self._attributes(Kind.USER, step.after)}
        classes: tuple[str, ...] = ("top", "person", "organizationalPerson", "user")
        if not dialect.gives_guid:  # nor a security identifier, by which access lists name the user
            classes = ("top", "user")
            attributes["objectSid"] = (self._trustees.new_identifier(),)
        self._add(step, child(name, self._contexts.users), classes, attributes, token)
        self._trustees.created(name)

    def _attributes(self, kind: Kind, values: Values) -> dict[str, tuple[bytes, ...]]:
        """Return the attributes of values; for machines see :class:`Machines`."""
        found = encode(kind, values)
        if "site_gates" in values:
            gates = values["site_gates"]
            found["mSMQSiteGates"] = self._machines.configurations(gates if isinstance(gates, tuple) else ())
        if "certificates" in values:
            certificates = values["certificates"]
            found |= pack_certificates(certificates if isinstance(certificates, tuple) else ())
        if "access" in values:
            lines = values["access"]
            if isinstance(lines, tuple):
                found["nTSecurityDescriptor"] = (self._trustees.descriptor(lines),)
        return found

    def _update(self, step: Step, token: int) -> None:
        kind = step.reference.kind
        match kind:
            case Kind.ENTERPRISE:
                self._writer.change(self._contexts.enterprise, encode(Kind.ENTERPRISE, step.after), token)
            case Kind.MACHINE:
                self._machines.update(step.name[0], step.before, step.after, token)
            case Kind.SITE:
                self._change(self._index.sites[step.reference.key[0]].dn, step, token)
            case _:
                self._change(self._index.others[kind, step.reference.key].dn, step, token)

    def _change(self, dn: str, step: Step, token: int) -> None:
        attributes = self._attributes(step.reference.kind, step.after)
        entry = self._writer.read(dn, tuple(attributes))
        self._as_planned(dn, entry, step)
        self._writer.change(dn, attributes, token, present=entry)

    @staticmethod
    def _as_planned(dn: str, entry: Entry, step: Step) -> None:
        """Raise :class:`MovedOn` when a field has neither its old nor its new value."""
        for name, field in VALUES[step.reference.kind].items():
            if name in step.after and field.decode(entry) not in (step.before.get(name), step.after[name]):
                raise MovedOn(f"{name} of {dn} is {field.decode(entry)!r} now")

    def _delete_site(self, dn: str, token: int) -> None:
        """Delete a site, after the remains that an interrupted apply of ours may have left of deleted machines."""
        servers = child("Servers", dn)
        for entry in list(self._connection.search(servers, "(objectClass=server)", ("cn", MARK), Scope.LEVEL)):
            self._writer.remove_if_empty(entry.dn, token)
        self._writer.remove_if_empty(servers, token)
        self._writer.remove_if_empty(child(_SITE_SETTINGS, dn), token)
        self._writer.remove(dn, token)

    def _delete(self, step: Step, token: int) -> None:
        kind, key = step.reference.kind, step.reference.key
        match kind:
            case Kind.ENTERPRISE:
                raise TargetError("the settings of the enterprise cannot be deleted")
            case Kind.MACHINE:
                self._machines.delete(step.name[0], token)
            case Kind.SITE:
                place = self._index.sites.get(key[0])
                if place is not None:
                    self._delete_site(place.dn, token)
            case _:
                other = self._index.others.get((kind, key))
                if other is not None:
                    self._writer.remove(other.dn, token)


_SITE_SETTINGS: Final = "NTDS Site Settings"
_SITE_SETTINGS_CLASSES: Final = ("top", "applicationSiteSettings", "nTDSSiteSettings")
"""Beneath every site of Active Directory (MS-ADTS 6.1.1.2.2.1.1); its tools report a site without them as damaged."""
_QUEUE_EVENTS: Final = {
    Action.CREATE: ChangeEvent.QUEUE_CREATED,
    Action.UPDATE: ChangeEvent.QUEUE_CHANGED,
    Action.DELETE: ChangeEvent.QUEUE_DELETED,
}
_NOTIFIED: Final = frozenset({"quota", "journal_quota"})
"""The values of a machine that its queue manager reads again when it is notified."""


def account_name(name: str) -> str:
    """Return a user's ``sAMAccountName``: the name, or one derived from it if the name is not allowed."""
    plain = re.sub(r"[\"/\\\[\]:;|=,+*?<>\x00-\x1f]", "_", name).rstrip(".")
    if plain == name and len(name) <= LONGEST_ACCOUNT_NAME:
        return name
    return f"{plain[: LONGEST_ACCOUNT_NAME - 9].rstrip('.')}-{hashlib.sha256(fold(name).encode()).hexdigest()[:8]}"


@contextmanager
def _told() -> Iterator[None]:
    """Turn the directory's errors into those of the port."""
    try:
        yield
    except DirectoryUnavailable as error:
        raise TargetUnavailable(error.sentence) from error
    except DirectoryError as error:
        raise TargetError(error.sentence) from error
    except LookupError as error:
        raise MovedOn(f"{error.args[0]} is not in the directory any more") from error
    except ValueError as error:
        # Only an edited plan file has such values: those of a declaration were checked.
        raise TargetError(f"the value cannot be written: {error}") from error


class LdapLease:
    """The lease's text, in the mark attribute of a container of its own."""

    def __init__(self, service: EnterpriseDirectory) -> None:
        self._connection = service.connection
        self._dn = child(LEASE_NAME, service.connection.dialect.contexts.services)

    def read(self) -> str | None:
        with _told():
            try:
                value = self._connection.read(self._dn, (MARK,)).first(MARK)
            except ObjectNotFound:
                return None
            return value.decode("utf-8", "replace") if value else None

    def swap(self, old: str | None, new: str) -> bool:
        with _told():
            try:
                if old is None:
                    self._connection.add(self._dn, ("top", "container"), {MARK: (new.encode(),)})
                else:
                    self._connection.modify(self._dn, _replacement(MARK, (old.encode(),), (new.encode(),)))
            except (ObjectAlreadyExists, ConditionFailed, ObjectNotFound):
                return False
            return True
