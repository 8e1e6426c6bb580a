"""The one way in which entries of Message Queuing are written: where those of each kind are, and what belongs to each.

:class:`Gateway` creates and deletes objects with their companions, for repositories and for plans. A :class:`Writer`
writes single entries: whatever they hold for repositories, under conditions for plans (:class:`FencedWriter`).

Windows notifies of changes (MS-MQCN) through the queue manager of the computer where the change is made (MS-MQDMPR
3.1.7.1.18, 19 and 24). Here a node of this machine sends the messages, if the directory's settings name its socket.

MS-MQDSSM 3.1.6.1.1.8, 3.1.6.1.2.2 and 3.1.6.1.3.4 write masks of MS-MQMQ into new entries. Active Directory would
take them for its own rights (MS-ADTS 5.1.3.2) and, for one, let everyone change every queue manager. So they are
written as the rights that MS-MQDSSM 5.1 asks for. For mSMQSettings and mSMQSiteLink objects 5.1 leaves the list to
their class. OpenLDAP has no access lists on objects.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

import qmnode
from mqenterprise.directory.entries import Change, ChangeKind, Entry, Scope
from mqenterprise.directory.errors import (
    ConditionFailed,
    ConstraintViolated,
    DirectoryError,
    ObjectAlreadyExists,
    ObjectNotFound,
)
from mqenterprise.directory.ldap_names import child, escape_filter, name_of, normalized, parent_of, split_queue_name
from mqenterprise.directory.security_descriptors import (
    QUEUE_MANAGER_RIGHTS,
    QUEUE_RIGHTS,
    SITE_RIGHTS,
    RightsTable,
    to_active_directory,
)
from mqenterprise.directory.settings import ServerKind
from qmnode.security.access_check import (
    default_queue_manager_security,
    default_queue_security,
    default_site_security,
)
from qmnode.structures.change_notification import (
    NOTIFICATION_QUEUE_NUMBER,
    TIME_TO_REACH_QUEUE,
    ChangeEvent,
    Notification,
)
from qmnode.structures.errors import PacketError
from qmnode.structures.guid import Guid, guid_to_text
from qmnode.structures.security_descriptor import SecurityDescriptor, Sid

if TYPE_CHECKING:
    from mqenterprise.directory.connection import LdapConnection

log = structlog.get_logger(__name__)

MOST: Final = 100
"""Notifications for one queue manager; with so many, Windows reads all of its objects again (appendix A <3>)."""


class ChangeNotices:
    """Collects the changes of one use of the directory. Safe for threads."""

    def __init__(self, socket: Path | None, server: Callable[[], str]) -> None:
        """``socket``: of a node on this machine, or None to notify nobody. ``server``: the directory server's name."""
        self._socket = socket
        self._server = server
        self._lock = threading.Lock()
        self._noted: dict[Guid, dict[tuple[ChangeEvent, Guid], None]] = {}

    @property
    def are_sent(self) -> bool:
        """Whether anybody is notified."""
        return self._socket is not None

    def note(self, event: ChangeEvent, object_guid: Guid, owner: Guid) -> None:
        """Remember a change that was made, of an object of the queue manager ``owner``."""
        if self._socket is None:
            return
        with self._lock:
            noted = self._noted.setdefault(owner, {})
            if len(noted) < MOST:
                noted[event, object_guid] = None

    def send(self) -> None:
        """Send Change Notification (3.3.4.1) for all changes. A failure is logged: the changes themselves are made."""
        with self._lock:
            noted, self._noted = self._noted, {}
        if not noted or self._socket is None:
            return
        try:
            server = self._server()
            with qmnode.sync.connect(self._socket) as node:
                for owner, changes in noted.items():
                    if owner != node.identifier:  # it watches the directory
                        _send_to(node, owner, [Notification(*change, server) for change in changes])
        except (qmnode.MessageQueuingError, OSError, ValueError) as error:
            log.warning(
                "the owners of changed objects were not notified: they read them when their own timers expire",
                node=str(self._socket), reason=str(error),
            )  # fmt: skip


def _send_to(node: qmnode.sync.QueueManager, owner: Guid, notifications: list[Notification]) -> None:
    """Send messages to one queue manager (3.3.5.3), unsigned: notifications of queue managers may be (3.2.5.2)."""
    name = f"PRIVATE={guid_to_text(owner)}\\{NOTIFICATION_QUEUE_NUMBER:x}"
    with node.open_queue(name, qmnode.Access.SEND) as queue:
        queue.send_many([qmnode.Message(one.write(), time_to_reach_queue=TIME_TO_REACH_QUEUE) for one in notifications])


_COMPUTERS_KEPT: Final = 4096
_ACCOUNTS: Final = frozenset({b"user", b"computer", b"inetorgperson"})


class NewDescriptors:
    """Descriptors for the objects that one connection creates. An empty answer leaves the list to the object's class.

    It is empty on OpenLDAP, and where the server does not say who the connection's user is: with a list that does not
    name its creator, an object could be out of the creator's reach.
    """

    def __init__(self, connection: LdapConnection) -> None:
        self._connection = connection
        self._creator: Sid | None = None
        self._is_creator_known = False
        self._computers: dict[str, Sid | None] = {}

    def queue_manager(self, computer: str, *, is_foreign: bool = False) -> tuple[bytes, ...]:
        """That of the mSMQConfiguration object of the computer with this distinguished name (3.1.6.1.1.8)."""
        if (creator := self._creator_of()) is None:
            return ()
        self._computers.pop(normalized(computer), None)  # of a computer that was deleted and made again
        machine = self._machine(computer)
        return _written(
            default_queue_manager_security(creator, machine=machine, is_foreign=is_foreign), QUEUE_MANAGER_RIGHTS
        )

    def queue(self, computer: str) -> tuple[bytes, ...]:
        """That of a public queue of this computer for which nobody has chosen one (MS-MQDMPR 3.1.7.1.3.1)."""
        if (creator := self._creator_of()) is None:
            return ()
        machine = self._machine(computer)
        return _written(default_queue_security(creator, is_domain_user=True, machine=machine), QUEUE_RIGHTS)

    def site(self) -> tuple[bytes, ...]:
        """That of a site (3.1.6.1.3.4)."""
        creator = self._creator_of()
        return () if creator is None else _written(default_site_security(creator), SITE_RIGHTS)

    def _machine(self, computer: str) -> Sid | None:
        key = normalized(computer)
        if key not in self._computers:
            if len(self._computers) >= _COMPUTERS_KEPT:
                self._computers.clear()
            self._computers[key] = _sid(self._connection.read(computer, ("objectSid",)).first("objectSid"))
        return self._computers[key]

    def _creator_of(self) -> Sid | None:
        """The user of this connection: the first of tokenGroups of the root DSE (MS-ADTS 3.1.1.3.2), if that is one."""
        if self._connection.dialect.kind is not ServerKind.ACTIVE_DIRECTORY:
            return None
        if not self._is_creator_known:
            self._creator = self._asked()
            self._is_creator_known = True
        return self._creator

    def _asked(self) -> Sid | None:
        found = _sid(self._connection.read("", ("tokenGroups",)).first("tokenGroups"))
        try:
            classes = self._connection.read(f"<SID={found}>", ("objectClass",)).attributes if found else {}
        except DirectoryError as error:
            log.warning(
                "new objects get the access lists of their classes: the user of this connection is not in the domain",
                user=str(found),
                reason=error.sentence,
            )
            return None
        # A group must not get what is for one user.
        kinds = {name.lower() for name in classes.get("objectclass", ())}
        return found if kinds & _ACCOUNTS else None


def _sid(value: bytes | None) -> Sid | None:
    try:
        return Sid.parse(value) if value else None
    except PacketError:
        return None


def _written(descriptor: SecurityDescriptor, rights: RightsTable) -> tuple[bytes, ...]:
    """The list alone: the owner is the server's to say, and 3.1.6.1.1.8 and 3.1.6.1.3.4 name none."""
    return (to_active_directory(SecurityDescriptor(dacl=descriptor.dacl).write(), rights),)


Attributes = Mapping[str, Sequence[bytes]]

MARK: Final = "adminDescription"
"""The attribute for our mark: free text that every object of Active Directory may have and that nothing else reads.

Active Directory has it on class ``top``, so its schema is not changed. Our OpenLDAP schema allows it everywhere.
"""
_MARK: Final = re.compile(r"mqenterprise (\d{1,19})")
CREATED_MARK: Final = b"created for Message Queuing"
"""The mark of a computer or server entry that was made for a queue manager without a plan, and is deleted with it."""
SECURITY: Final = "nTSecurityDescriptor"
CONFIGURATION: Final = "msmq"
"""The name of every mSMQConfiguration object (MS-MQDSSM 2.2.1)."""
SETTINGS: Final[Mapping[str, tuple[str, bytes]]] = {
    "mSMQQMID": ("objectGUID", b""),
    "mSMQServices": ("mSMQServiceType", b"0"),
    "mSMQRoutingService": ("mSMQRoutingServices", b"FALSE"),
    "mSMQDsService": ("mSMQDsServices", b"FALSE"),
    "mSMQDependentClientService": ("mSMQDependentClientServices", b"FALSE"),
}
"""The attributes of mSMQSettings: those of mSMQConfiguration that they repeat, with defaults (3.1.6.1.1.3)."""
ROUTING: Final = 0x01
"""The routing server's bit of mSMQServiceType (MS-MQDSSM 3.1.6.1.1.5)."""
_SITE_SETTINGS: Final = "NTDS Site Settings"
_SITE_SETTINGS_CLASSES: Final = ("top", "applicationSiteSettings", "nTDSSiteSettings")
"""Beneath every site of Active Directory (MS-ADTS 6.1.1.2.2.1.1); its tools report a site without them as damaged."""
_PERSON: Final = ("top", "person", "organizationalPerson", "user")
_UNIVERSAL_GROUP: Final = b"8"
"""A groupType without the bit of security groups (MS-ADTS 2.2.12)."""
_SERVERS: Final = ("top", "serversContainer")


def mark(token: int) -> bytes:
    """Return the mark of an object that an apply with this fencing token writes."""
    return f"mqenterprise {token}".encode()


def token_of(entry: Entry) -> int | None:
    """Return the fencing token of our mark, or None when the object is not ours."""
    value = entry.first(MARK)
    found = _MARK.fullmatch(value.decode("utf-8", "replace")) if value else None
    return int(found[1]) if found else None


class Writer:
    """Write entries whatever they hold. Companions have a mark, and are deleted with the object they are made for."""

    def __init__(self, connection: LdapConnection, mark: bytes = CREATED_MARK) -> None:
        self._connection = connection
        self._mark = mark

    def is_ours(self, entry: Entry) -> bool:
        """Return whether an entry has the mark of those that this writer may delete."""
        return entry.first(MARK) == self._mark

    def create(
        self, dn: str, classes: Sequence[str], attributes: Attributes, *, companion: bool = False, takes: bool = False
    ) -> Entry:
        """Create an entry. Raises ``ObjectAlreadyExists``.

        A companion that exists is used as it is; with ``takes`` an entry that exists gets the attributes.
        """
        marked = {**attributes, MARK: (self._mark,)} if companion else attributes
        try:
            return self._connection.add(dn, classes, marked)
        except ObjectAlreadyExists:
            if not takes and not companion:
                raise
            present = self._taken(dn, classes)
            if takes:
                self.change(dn, attributes)
            return present

    def ensure(self, dn: str, classes: Sequence[str]) -> None:
        """Create a container unless it exists, ours or not. A node may look at those that it may not create."""
        try:
            self._taken(dn, classes)
        except ObjectNotFound:
            self.create(dn, classes, {}, companion=True)

    def _taken(self, dn: str, classes: Sequence[str], attributes: Iterable[str] = ()) -> Entry:
        """Read an entry that is to be used. Raises ``ObjectAlreadyExists`` if it is of another class: not to be."""
        entry = self.read(dn, ("objectClass", "objectGUID", *attributes))
        kinds = [kind.decode("utf-8", "replace") for kind in entry.attributes.get("objectclass", ())]
        if classes[-1].lower() not in map(str.lower, kinds):
            sentence = f"{dn} has the class {' '.join(kinds[-1:])} instead of {classes[-1]}: delete or rename it"
            raise ObjectAlreadyExists(sentence)
        return entry

    def read(self, dn: str, attributes: Collection[str]) -> Entry:
        """Read an entry. Raises ``ObjectNotFound``."""
        return self._connection.read(dn, tuple(attributes))

    def change(self, dn: str, attributes: Attributes, present: Entry | None = None) -> None:
        """Set these values, or those that differ from the ``present`` ones. An attribute without values is removed."""
        self._connection.modify(
            dn,
            [
                Change(ChangeKind.REPLACE, name, tuple(values))
                for name, values in attributes.items()
                if present is None or set(present.attributes.get(name.lower(), ())) != set(values)
            ],
        )

    def remove(self, dn: str, *, tree: bool = False) -> None:
        """Delete an entry, and with ``tree`` what lies beneath it."""
        self._connection.delete(dn, tree=tree)

    def remove_if_empty(self, dn: str) -> None:
        """Delete an entry if it is ours and empty."""
        try:
            entry = self._connection.read(dn, (MARK,))
        except ObjectNotFound:
            return
        if self.is_ours(entry) and not any(self._connection.search(dn, "(objectClass=*)", ("1.1",), Scope.LEVEL)):
            self.remove(dn)

    def discard(self, dn: str) -> None:
        """Delete an entry, ours or not, if it still exists."""
        with contextlib.suppress(ObjectNotFound):
            self._connection.delete(dn)


class FencedWriter(Writer):
    """Write entries under the fencing token of an apply. Each that it creates has a mark with the token.

    A change first reads the entry, and refuses it if it carries a later token. It then replaces exactly the values that
    it has read, so that a concurrent write makes the change fail instead of being overwritten. A deletion first renews
    the mark under the same condition, and is conditional on the mark where the server supports that. Active Directory
    does not, which leaves a gap of one round trip. A refusal is ``ConditionFailed``.
    """

    def __init__(self, connection: LdapConnection, token: int) -> None:
        super().__init__(connection, mark(token))
        self._token = token

    def is_ours(self, entry: Entry) -> bool:
        return token_of(entry) is not None

    def create(
        self, dn: str, classes: Sequence[str], attributes: Attributes, *, companion: bool = False, takes: bool = False
    ) -> Entry:
        """Create an entry, or bring the remains of an interrupted apply of ours to the same state.

        An entry of someone else is refused, except with ``takes``.
        """
        try:
            return self._connection.add(dn, classes, {**attributes, MARK: (self._mark,)})
        except ObjectAlreadyExists:
            present = self._taken(dn, classes, attributes)
            if not takes and not self.is_ours(present):
                raise ConditionFailed(f"someone else made {dn}") from None
            self.change(dn, attributes, present)
            return present

    def ensure(self, dn: str, classes: Sequence[str]) -> None:
        # Most do not exist, so a look first would only be one more round trip.
        try:
            self._connection.add(dn, classes, {MARK: (self._mark,)})
        except ObjectAlreadyExists:
            self._taken(dn, classes)

    def read(self, dn: str, attributes: Collection[str]) -> Entry:
        """Read an entry with its mark."""
        try:
            return self._connection.read(dn, (MARK, *attributes))
        except ObjectNotFound:
            raise ConditionFailed(f"{dn} is gone") from None

    def change(self, dn: str, attributes: Attributes, present: Entry | None = None) -> None:
        entry = present or self.read(dn, tuple(attributes))
        changes = []
        for name, values in attributes.items():
            old = entry.attributes.get(name.lower(), ())
            if set(old) != set(values):
                changes += replacement(name, old, tuple(values))
        if changes:
            self._modify(dn, [*changes, *self._marking(dn, entry)])

    def remove(self, dn: str, *, tree: bool = False) -> None:
        """Delete an entry of ours, if it still exists, without those beneath it: they are not its own."""
        try:
            entry = self._connection.read(dn, (MARK,))
        except ObjectNotFound:
            return
        if not self.is_ours(entry):
            raise ConditionFailed(f"{dn} is not ours (any more)")
        if marking := self._marking(dn, entry):
            self._modify(dn, marking)
        with contextlib.suppress(ObjectNotFound):
            self._connection.delete(dn, only_if=(MARK, self._mark))

    def _marking(self, dn: str, entry: Entry) -> list[Change]:
        """Renew our mark, if the entry is ours."""
        old = token_of(entry)
        if old is None or old == self._token:
            return []
        if old > self._token:
            raise ConditionFailed(f"{dn} was written by a later apply")
        return replacement(MARK, (mark(old),), (self._mark,))

    def _modify(self, dn: str, changes: list[Change]) -> None:
        try:
            self._connection.modify(dn, changes)
        except ObjectNotFound as error:
            raise ConditionFailed(error.sentence) from error


def replacement(name: str, old: Sequence[bytes], new: tuple[bytes, ...]) -> list[Change]:
    """Return changes that fail when the present values are no longer ``old``."""
    if name == SECURITY:
        # The server completes a descriptor, so there is no exact value to delete.
        return [Change(ChangeKind.REPLACE, name, new)]
    changes = []
    if taken := tuple(value for value in old if value not in new):
        changes.append(Change(ChangeKind.DELETE, name, taken))
    if given := tuple(value for value in new if value not in old):
        changes.append(Change(ChangeKind.ADD, name, given))
    return changes


class Gateway:
    """Create and delete the objects of one directory with their companions. Safe for threads.

    The order of writes makes an interruption harmless: a queue manager is created from its computer to its settings and
    deleted in reverse order, so that the remainder is always either a queue manager or a computer with our mark.
    """

    def __init__(self, connection: LdapConnection, notices: ChangeNotices) -> None:
        self.connection = connection
        self.notices = notices
        self.writer = Writer(connection)
        self._descriptors = NewDescriptors(connection)

    def create_site(self, writer: Writer, name: str, attributes: Attributes) -> Entry:
        """Create a site with the containers that it needs."""
        dialect = self.connection.dialect
        dn = child(name, dialect.contexts.sites)
        entry = writer.create(dn, ("top", "site"), _with_list(attributes, self._descriptors.site))
        writer.ensure(child("Servers", dn), _SERVERS)
        if dialect.kind is ServerKind.ACTIVE_DIRECTORY:
            writer.ensure(child(_SITE_SETTINGS, dn), _SITE_SETTINGS_CLASSES)
        return entry

    def delete_site(self, writer: Writer, dn: str) -> None:
        """Delete a site, after its containers and what an interruption left in them of deleted queue managers."""
        servers = child("Servers", dn)
        for entry in list(self.connection.search(dn, "(objectClass=group)", ("1.1",), Scope.LEVEL)):
            writer.discard(entry.dn)
        for entry in list(self.connection.search(servers, "(objectClass=server)", ("1.1",), Scope.LEVEL)):
            writer.remove_if_empty(entry.dn)
        writer.remove_if_empty(servers)
        writer.remove_if_empty(child(_SITE_SETTINGS, dn))
        writer.remove(dn, tree=True)

    def keep_rights(self, writer: Writer, dn: str, holders: Mapping[str, Sequence[str]]) -> None:
        """Keep a group beneath a site or the enterprise for each right, with those who have it or are refused it.

        OpenLDAP's access rules look them up (:mod:`mqenterprise.directory.private_slapd`). A right that nobody
        has needs no group. Rights are taken away first, and given last: once the first are written, no interruption
        leaves more than is declared. A right with a new denial is nobody's until all groups are written.
        """
        filter = f"(&(objectClass=group)(|{''.join(f'(cn={escape_filter(name)})' for name in holders)}))"
        found = self.connection.search(dn, filter, ("member",), Scope.LEVEL)
        present = {name_of(group.dn): set(group.attributes.get("member", ())) for group in found}
        wanted = {name: {member.encode() for member in members} for name, members in holders.items()}
        left = {}
        for name in wanted:
            verb, _, right = name.partition(" ")
            if verb == "allow":
                denied = f"deny {right}"
                is_kept = wanted[denied] <= present.get(denied, set())
                left[name] = wanted[name] & present.get(name, set()) if is_kept else set()
        for name, members in (*left.items(), *sorted(wanted.items(), reverse=True)):  # denials, then what is allowed
            if members == present.get(name, set()):
                continue
            present[name] = members
            if members:
                writer.create(child(name, dn), ("top", "group"), {"member": tuple(sorted(members))}, takes=True)
            else:
                writer.discard(child(name, dn))

    def create_link(self, writer: Writer, sites: Iterable[Guid], attributes: Attributes) -> Entry:
        """Create a routing link between two sites."""
        # 3.1.6.1.4.2: only the hexadecimal digits of the two GUIDs.
        name = "".join(guid_to_text(site).replace("-", "") for site in sites)
        return writer.create(
            child(name, self.connection.dialect.contexts.enterprise), ("top", "mSMQSiteLink"), attributes
        )

    def create_user(self, writer: Writer, name: str, account: str, attributes: Attributes) -> Entry:
        """Create a user with this account name."""
        dialect = self.connection.dialect
        classes = _PERSON if dialect.gives_guid else ("top", "user")
        given = {**attributes, **dialect.account("user", account)}
        return writer.create(child(name, dialect.contexts.users), classes, given)

    def create_alias(self, writer: Writer, name: str, attributes: Attributes) -> Entry:
        """Create a queue alias."""
        dn = child(name, self.connection.dialect.contexts.users)
        return writer.create(dn, ("top", "msMQ-Custom-Recipient"), attributes)

    def create_list(self, writer: Writer, name: str, account: str, attributes: Attributes) -> Entry:
        """Create a distribution list with this account name: a group that gives nobody rights."""
        dialect = self.connection.dialect
        given = {**attributes, "groupType": (_UNIVERSAL_GROUP,), **dialect.account("group", account)}
        return writer.create(child(name, dialect.contexts.users), ("top", "group"), given)

    def create_queue(self, writer: Writer, configuration: str, name: str, attributes: Attributes) -> Entry:
        """Create a public queue of the queue manager whose mSMQConfiguration object this is."""
        cn, extension = split_queue_name(name)
        if ";" in name:
            raise ConstraintViolated(f"{name!r} is no name of a public queue: what follows a semicolon is a subqueue")
        named = {**attributes, "mSMQQueueNameExt": (extension.encode(),)} if extension else attributes
        computer = parent_of(configuration)
        secured = _with_list(named, lambda: self._descriptors.queue(computer))
        return writer.create(child(cn, configuration), ("top", "mSMQQueue"), secured)

    def create_queue_manager(
        self,
        writer: Writer,
        computer: str,
        attributes: Attributes,
        on_computer: Attributes,
        *,
        exists: bool,
        is_foreign: bool,
    ) -> Entry:
        """Create the mSMQConfiguration object below a computer, and the computer first unless it ``exists``."""
        if not exists:
            dialect = self.connection.dialect
            classes = (*_PERSON, "computer") if dialect.gives_guid else ("top", "computer")
            account = dialect.account("computer", name_of(computer))
            writer.create(computer, classes, {**account, **on_computer}, companion=True)
        secured = _with_list(attributes, lambda: self._descriptors.queue_manager(computer, is_foreign=is_foreign))
        entry = writer.create(child(CONFIGURATION, computer), ("top", "mSMQConfiguration"), secured)
        if on_computer:
            writer.change(computer, on_computer)
        return entry

    def keep_settings(
        self, writer: Writer, configuration: str, sites: Iterable[str], present: Iterable[str]
    ) -> dict[str, str]:
        """Keep an mSMQSettings object in each of these sites, equal to the queue manager, and delete the other present
        ones (MS-MQDSSM 3.1.6.7.1.9). Return their distinguished names by site.
        """
        computer = name_of(configuration, 1)
        kept = {site: child("MSMQ Settings", child(computer, child("Servers", site))) for site in sites}
        left = {normalized(dn): dn for dn in present}
        if not kept and not left:
            return kept
        said = writer.read(configuration, [repeated for repeated, _ in SETTINGS.values()])
        attributes = {
            name: said.attributes.get(repeated.lower(), (default,) if default else ())
            for name, (repeated, default) in SETTINGS.items()
        }
        for dn in kept.values():
            if (known := left.pop(normalized(dn), None)) is not None:
                writer.change(known, attributes, writer.read(known, tuple(attributes)))
                continue
            server = parent_of(dn)
            writer.ensure(parent_of(server), _SERVERS)
            writer.ensure(server, ("top", "server"))
            # Remains of a queue manager of this name are taken: 3.1.6.1.1.3 has them deleted and created again.
            writer.create(dn, ("top", "mSMQSettings"), attributes, takes=True)
        for dn in left.values():
            self._remove_settings(writer, dn)
        return kept

    def delete_queue_manager(
        self,
        writer: Writer,
        computer: str,
        configuration: str | None,
        settings: Iterable[str],
        servers: Iterable[str],
        with_computer: bool,
    ) -> None:
        """Delete a queue manager with its settings and server objects, and its computer if that was made for it."""
        for dn in settings:
            self._remove_settings(writer, dn)
        for dn in servers:
            writer.remove_if_empty(dn)
        if configuration is not None:
            writer.remove(configuration, tree=True)
        if with_computer:
            writer.remove(computer, tree=True)

    def _remove_settings(self, writer: Writer, dn: str) -> None:
        """Delete a settings object, ours or not: it means nothing without the queue manager."""
        writer.discard(dn)
        writer.remove_if_empty(parent_of(dn))


def _with_list(attributes: Attributes, new: Callable[[], tuple[bytes, ...]]) -> Attributes:
    """Add the access list of a new object, unless somebody has chosen one or it is left to the object's class."""
    if attributes.get(SECURITY) or not (descriptor := new()):
        return attributes
    return {**attributes, SECURITY: descriptor}
