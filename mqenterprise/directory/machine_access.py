"""The access list of a queue manager, on its object in the directory (MS-MQMQ 2.2.23).

It does the work of Get-MsmqQueueManagerACL and Set-MsmqQueueManagerACL. Only the entries of the one who is named
change; Active
Directory's own entries about other things stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mqenterprise.directory.entries import Change as EntryChange
from mqenterprise.directory.entries import ChangeKind
from mqenterprise.directory.errors import ConstraintViolated, ObjectNotFound
from mqenterprise.directory.security_descriptors import QUEUE_MANAGER_RIGHTS, to_active_directory, to_message_queuing
from mqenterprise.directory.settings import ServerKind
from qmnode.administration.access_control import Change
from qmnode.structures.errors import PacketError
from qmnode.structures.security_descriptor import (
    EVERYONE,
    AccessEntry,
    Ace,
    AceFlags,
    AceType,
    Acl,
    ObjectEntry,
    QueueManagerAccess,
    SecurityDescriptor,
    Sid,
    allow,
    deny,
)

if TYPE_CHECKING:
    from mqenterprise.directory.open_directory import EnterpriseDirectory

RIGHTS: Final = {
    "full-control": QueueManagerAccess.MQSEC_MACHINE_GENERIC_ALL,
    "receive-dead-letter": QueueManagerAccess.MQSEC_RECEIVE_DEADLETTER_MESSAGE,
    "peek-dead-letter": QueueManagerAccess.MQSEC_PEEK_DEADLETTER_MESSAGE,
    "receive-journal": QueueManagerAccess.MQSEC_RECEIVE_JOURNAL_QUEUE_MESSAGE,
    "peek-journal": QueueManagerAccess.MQSEC_PEEK_JOURNAL_QUEUE_MESSAGE,
    "create-queue": QueueManagerAccess.MQSEC_CREATE_QUEUE,
    "set-properties": QueueManagerAccess.MQSEC_SET_MACHINE_PROPERTIES,
    "get-properties": QueueManagerAccess.MQSEC_GET_MACHINE_PROPERTIES,
    "delete": QueueManagerAccess.MQSEC_DELETE_MACHINE,
    "get-permissions": QueueManagerAccess.MQSEC_GET_MACHINE_PERMISSIONS,
    "change-permissions": QueueManagerAccess.MQSEC_CHANGE_MACHINE_PERMISSIONS,
    "take-ownership": QueueManagerAccess.MQSEC_TAKE_MACHINE_OWNERSHIP,
}
"""The rights by the names that operators use; the one that is all of them first, and wide ones before narrow ones."""
_ATTRIBUTE: Final = "nTSecurityDescriptor"
_ALLOWING: Final = (AceType.ACCESS_ALLOWED, AceType.ACCESS_ALLOWED_OBJECT)


@dataclass(frozen=True, slots=True)
class MachineRule:
    """One entry of the list: an account, and a right that is allowed or denied."""

    user: str
    allows: bool
    rights: tuple[str, ...]
    inherited: bool


class MachineAccess:
    """The access lists of queue managers in one directory. ``name_of`` and ``identifier_of`` know users and groups."""

    def __init__(
        self,
        directory: EnterpriseDirectory,
        name_of: Callable[[bytes], str],
        identifier_of: Callable[[str], bytes | None],
    ) -> None:
        self._directory = directory
        self._name_of = name_of
        self._identifier_of = identifier_of
        self._active = directory.connection.dialect.kind is ServerKind.ACTIVE_DIRECTORY

    def rules(self, computer: str) -> list[MachineRule]:
        """The entries, in the order in which they count; none if there is no list."""
        return [
            MachineRule(
                self._name_of(ace.entry.sid.write()),
                ace.ace_type in _ALLOWING,
                names_of(ace.entry.mask),
                _inherited(ace),
            )
            for ace in self._from_directory(_aces(self._read(computer)[1]))
            if isinstance(ace.entry, AccessEntry)
        ]

    def change(self, computer: str, change: Change, user: str, rights: Iterable[str]) -> None:
        """Allow or deny rights to somebody, or neither any more."""
        sid, mask = self._sid(user), mask_of(rights)
        dn, present = self._read(computer)
        aces: Iterable[Ace] = _aces(present)
        if present.dacl is None:
            # Where there was no list, everybody went on seeing the queue manager; a list must not change that.
            aces = self._to_directory([allow(EVERYONE, QueueManagerAccess.MQSEC_MACHINE_WORLD_RIGHTS)])
        theirs = [ace for ace in aces if _is_of(ace, sid) and self._from_directory([ace])]
        allowed, denied = self._masks(theirs)
        match change:
            case Change.ALLOW:
                allowed, denied = allowed | mask, denied & ~mask
            case Change.DENY:
                allowed, denied = allowed & ~mask, denied | mask
            case Change.REMOVE:
                allowed, denied = allowed & ~mask, denied & ~mask
        own = ([deny(sid, denied)] if denied else []) + ([allow(sid, allowed)] if allowed else [])
        others = [ace for ace in aces if ace not in theirs]
        after = sorted([*others, *self._to_directory(own)], key=_order)
        written = SecurityDescriptor(dacl=Acl.of(*after), control=present.control & ~_NO_AUDITING).write()
        self._directory.connection.modify(dn, [EntryChange(ChangeKind.REPLACE, _ATTRIBUTE, (written,))])
        self._directory.queue_managers.note_change(dn)

    def _read(self, computer: str) -> tuple[str, SecurityDescriptor]:
        found = self._directory.queue_managers.find(computer)
        if found is None or found.full_path is None:
            raise ObjectNotFound(f"there is no queue manager on a computer named {computer!r} in the directory")
        raw = self._directory.connection.read(found.full_path, (_ATTRIBUTE,)).first(_ATTRIBUTE)
        try:
            return found.full_path, SecurityDescriptor.parse(raw) if raw else SecurityDescriptor()
        except PacketError as error:
            raise ConstraintViolated(f"the access list of {computer} cannot be read: {error}") from error

    def _sid(self, user: str) -> Sid:
        identifier = self._identifier_of(user)
        if identifier is None:
            raise ConstraintViolated(f"there is no user or group {user!r}: give its account, its name, or S-1-...")
        return Sid.parse(identifier)

    def _from_directory(self, aces: Iterable[Ace]) -> list[Ace]:
        """Entries with the rights of Message Queuing; those about something else are left out."""
        written = SecurityDescriptor(dacl=Acl.of(*aces)).write()
        return list(
            _aces(SecurityDescriptor.parse(to_message_queuing(written, self._rights) if self._active else written))
        )

    def _to_directory(self, aces: Iterable[Ace]) -> list[Ace]:
        """The other way round: entries as this directory keeps them."""
        written = SecurityDescriptor(dacl=Acl.of(*aces)).write()
        return list(
            _aces(SecurityDescriptor.parse(to_active_directory(written, self._rights) if self._active else written))
        )

    _rights = QUEUE_MANAGER_RIGHTS

    def _masks(self, aces: Iterable[Ace]) -> tuple[int, int]:
        allowed = denied = 0
        for ace in self._from_directory(aces):
            if isinstance(ace.entry, AccessEntry):
                if ace.ace_type in _ALLOWING:
                    allowed |= ace.entry.mask
                else:
                    denied |= ace.entry.mask
        return allowed, denied


_NO_AUDITING: Final = 0x0010
"""SACL present: the part about auditing is not ours to write."""


def mask_of(names: Iterable[str]) -> int:
    """Rights by their names. Raises :class:`ConstraintViolated`."""
    mask = 0
    for name in names:
        if name not in RIGHTS:
            raise ConstraintViolated(f"{name!r} is no right: use {', '.join(RIGHTS)}")
        mask |= RIGHTS[name]
    return mask


def names_of(mask: int) -> tuple[str, ...]:
    """The names of rights; bits that have none are left out, as they are about something else."""
    found: list[str] = []
    covered = 0
    for name, right in RIGHTS.items():
        if mask & right == right and right & ~covered:
            found.append(name)
            covered |= right
    return tuple(found)


def _aces(descriptor: SecurityDescriptor) -> tuple[Ace, ...]:
    return descriptor.dacl.aces if descriptor.dacl is not None else ()


def _inherited(ace: Ace) -> bool:
    return bool(AceFlags.INHERITED_ACE.get(ace.ace_flags))


def _is_of(ace: Ace, sid: Sid) -> bool:
    """Whether an entry is one of somebody's own, for this object itself."""
    return isinstance(ace.entry, AccessEntry | ObjectEntry) and ace.entry.sid == sid and ace.ace_flags == 0


def _order(ace: Ace) -> int:
    if _inherited(ace):
        return 2
    return 0 if ace.ace_type in (AceType.ACCESS_DENIED, AceType.ACCESS_DENIED_OBJECT) else 1
