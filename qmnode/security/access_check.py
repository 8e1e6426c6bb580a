"""May somebody do something: the access check algorithm of MS-DTYP 2.5.3.2, for queues and what contains them.

Left out of the algorithm: central access policies and mandatory integrity, which Message Queuing does not use. The
condition of a conditional entry is never taken to hold: an entry that would allow is passed over, one that would deny
denies.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from qmnode.structures.guid import Guid
from qmnode.structures.security_descriptor import (
    ANONYMOUS,
    AUTHENTICATED_USERS,
    BUILTIN_ADMINISTRATORS,
    EVERYONE,
    GUEST_RELATIVE_ID,
    LOCAL,
    OWNER_RIGHTS,
    PRINCIPAL_SELF,
    AccessEntry,
    AccessMask,
    Ace,
    AceFlags,
    AceType,
    Acl,
    ObjectEntry,
    QueueAccess,
    QueueManagerAccess,
    SecurityDescriptor,
    Sid,
    SiteAccess,
    allow,
)


class Privilege(Enum):
    """Privileges that the access check looks at."""

    SECURITY = auto()
    """SeSecurityPrivilege: read and change SACLs."""

    TAKE_OWNERSHIP = auto()
    """SeTakeOwnershipPrivilege: become the owner of anything."""


@dataclass(frozen=True, slots=True)
class Token:
    """The token of a caller (MS-DTYP 2.5.2): the SIDs of an account and of all its groups, and its privileges."""

    sids: frozenset[Sid]
    privileges: frozenset[Privilege] = frozenset()
    uncertain: bool = False
    """Groups may be missing, as a directory does not answer: entries that deny something to accounts of domains count
    as if they were about this token."""

    @classmethod
    def of(cls, user: Sid, groups: Iterable[Sid] = (), privileges: Iterable[Privilege] = ()) -> Token:
        """The token of an account; it is in Everyone and, unless it is anonymous, in Authenticated Users.

        Everyone as the user is the sender that only its queue manager identifies (MS-MQQB 3.1.5.8.3).
        """
        implied = {EVERYONE} if user in (EVERYONE, ANONYMOUS) else {EVERYONE, AUTHENTICATED_USERS}
        return cls(frozenset({user, *groups, *implied}), frozenset(privileges))


# Plain numbers: arithmetic on flags costs a microsecond each time, and checks are made for messages.
_MAXIMUM_ALLOWED: Final = int(AccessMask.MAXIMUM_ALLOWED)
_ACCESS_SYSTEM_SECURITY: Final = int(AccessMask.ACCESS_SYSTEM_SECURITY)
_WRITE_OWNER: Final = int(AccessMask.WRITE_OWNER)
_IMPLICIT_FOR_OWNER: Final = int(AccessMask.READ_CONTROL | AccessMask.WRITE_DACL)
_GENERIC: Final = int(
    AccessMask.GENERIC_READ | AccessMask.GENERIC_WRITE | AccessMask.GENERIC_EXECUTE | AccessMask.GENERIC_ALL
)


_NT_AUTHORITY: Final = EVERYONE.authority[:-1] + b"\x05"
_DOMAIN_ACCOUNTS: Final = 21
"""First sub-authority of the accounts of domains: S-1-5-21-..."""


@dataclass(frozen=True, slots=True)
class GenericMapping:
    """The meaning of the generic rights for a kind of object."""

    read: int
    write: int
    execute: int
    all: int

    def map(self, mask: int) -> int:
        """The mask with the rights of this kind of object in the place of generic ones."""
        mask = int(mask)
        if not mask & _GENERIC:
            return mask
        for generic, specific in (
            (AccessMask.GENERIC_READ, self.read),
            (AccessMask.GENERIC_WRITE, self.write),
            (AccessMask.GENERIC_EXECUTE, self.execute),
            (AccessMask.GENERIC_ALL, self.all),
        ):
            if mask & generic:
                mask = int(mask & ~generic | specific)
        return mask


QUEUE_MAPPING: Final = GenericMapping(
    read=QueueAccess.MQSEC_QUEUE_GENERIC_READ,
    write=QueueAccess.MQSEC_QUEUE_GENERIC_WRITE,
    execute=0,
    all=QueueAccess.MQSEC_QUEUE_GENERIC_ALL,
)
QUEUE_MANAGER_MAPPING: Final = GenericMapping(
    read=QueueManagerAccess.MQSEC_MACHINE_GENERIC_READ,
    write=QueueManagerAccess.MQSEC_MACHINE_GENERIC_WRITE,
    execute=0,
    all=QueueManagerAccess.MQSEC_MACHINE_GENERIC_ALL,
)


@dataclass(frozen=True, slots=True)
class AccessDecision:
    """The answer: ``granted`` are the rights that were asked for, or with MAXIMUM_ALLOWED all that there are; else 0.

    ``missing`` are the rights without which the answer is no.
    """

    allowed: bool
    granted: int
    missing: int = 0


_ALLOW: Final = {AceType.ACCESS_ALLOWED, AceType.ACCESS_ALLOWED_OBJECT}
_DENY: Final = {
    AceType.ACCESS_DENIED,
    AceType.ACCESS_DENIED_OBJECT,
    AceType.ACCESS_DENIED_CALLBACK,
    AceType.ACCESS_DENIED_CALLBACK_OBJECT,
}


def access_check(
    descriptor: SecurityDescriptor,
    token: Token,
    requested: int,
    mapping: GenericMapping = QUEUE_MAPPING,
    *,
    object_type: Guid | None = None,
    principal_self: Sid | None = None,
) -> AccessDecision:
    """Whether ``token`` has the rights ``requested`` to what ``descriptor`` protects.

    ``mapping`` is applied to the request and not to the entries, as the algorithm demands. An entry for an object type
    counts only when it is ``object_type``. ``principal_self`` stands for PRINCIPAL_SELF.
    """
    wanted = mapping.map(requested)
    maximum = bool(wanted & _MAXIMUM_ALLOWED)
    wanted &= ~_MAXIMUM_ALLOWED
    if descriptor.dacl is None:
        granted = wanted | (mapping.all if maximum else 0)
        return _without_audit_right(granted, token)
    owned = descriptor.owner is not None and descriptor.owner in token.sids
    sids = _effective_sids(token, owned, principal_self)
    implicit = _implicit_rights(descriptor, token, owned, wanted)
    entries = _relevant_entries(descriptor.dacl.aces, sids, object_type, token.uncertain)
    if maximum:
        return _maximum(entries, implicit, wanted)
    return _specific(entries, implicit, wanted)


def _without_audit_right(granted: int, token: Token) -> AccessDecision:
    missing = granted & _ACCESS_SYSTEM_SECURITY if Privilege.SECURITY not in token.privileges else 0
    return AccessDecision(not missing, 0 if missing else granted, missing)


def _effective_sids(token: Token, owned: bool, principal_self: Sid | None) -> frozenset[Sid]:
    sids = set(token.sids)
    if owned:
        sids.add(OWNER_RIGHTS)
    if principal_self in token.sids:
        sids.add(PRINCIPAL_SELF)
    return frozenset(sids)


def _implicit_rights(descriptor: SecurityDescriptor, token: Token, owned: bool, wanted: int) -> int:
    """Rights that need no entry: those of privileges, and the owner's unless an entry says what owners may."""
    rights = 0
    if wanted & _ACCESS_SYSTEM_SECURITY and Privilege.SECURITY in token.privileges:
        rights |= _ACCESS_SYSTEM_SECURITY
    if wanted & _WRITE_OWNER and Privilege.TAKE_OWNERSHIP in token.privileges:
        rights |= _WRITE_OWNER
    if owned and descriptor.dacl is not None and not any(_sid_of(ace) == OWNER_RIGHTS for ace in descriptor.dacl.aces):
        rights |= _IMPLICIT_FOR_OWNER
    return rights


def _sid_of(ace: Ace) -> Sid | None:
    return ace.entry.sid if isinstance(ace.entry, AccessEntry | ObjectEntry) else None


def _is_of_domain(sid: Sid) -> bool:
    return sid.authority == _NT_AUTHORITY and sid.sub_authorities[:1] == (_DOMAIN_ACCOUNTS,)


def _relevant_entries(
    aces: Iterable[Ace], sids: frozenset[Sid], object_type: Guid | None, uncertain: bool
) -> Iterable[tuple[bool, int]]:
    """For each entry that is about the token and the object itself: whether it allows, and which rights."""
    for ace in aces:
        entry = ace.entry
        if AceFlags.INHERIT_ONLY_ACE.get(ace.ace_flags) or not isinstance(entry, AccessEntry | ObjectEntry):
            continue
        if entry.sid not in sids and not (uncertain and ace.ace_type in _DENY and _is_of_domain(entry.sid)):
            continue
        if isinstance(entry, ObjectEntry) and entry.object_type not in (None, object_type):
            continue
        if ace.ace_type in _ALLOW:
            yield True, entry.mask & ~_ACCESS_SYSTEM_SECURITY  # only the privilege gives it (2.4.3)
        elif ace.ace_type in _DENY:
            yield False, entry.mask


def _specific(entries: Iterable[tuple[bool, int]], implicit: int, wanted: int) -> AccessDecision:
    remaining = wanted & ~implicit
    if wanted & ~implicit & _ACCESS_SYSTEM_SECURITY:
        return AccessDecision(False, 0, _ACCESS_SYSTEM_SECURITY)
    for allows, mask in entries:
        if allows:
            remaining &= ~mask
        elif remaining & mask:
            return AccessDecision(False, 0, remaining & mask)
    return AccessDecision(not remaining, 0 if remaining else wanted, remaining)


def _maximum(entries: Iterable[tuple[bool, int]], implicit: int, wanted: int) -> AccessDecision:
    """All rights there are. The algorithm's last step would forget the implicit ones that it granted: kept here."""
    allowed = denied = 0
    for allows, mask in entries:
        if allows:
            allowed |= mask
        else:
            denied |= mask
    granted = allowed & ~denied | implicit
    missing = wanted & ~granted
    if missing or not granted:
        return AccessDecision(False, 0, missing)
    return AccessDecision(True, granted)


# ----------------------------------------------------------------------------------------------------------------------
# Security descriptors of new objects: queues (MS-MQDMPR 3.1.7.1.3.1), queue managers and sites (MS-MQDSSM 3.1.6.1).

_SEE_QUEUE: Final = QueueAccess.MQSEC_GET_QUEUE_PROPERTIES | QueueAccess.MQSEC_GET_QUEUE_PERMISSIONS
OPEN_TO_ALL: Final = int(_SEE_QUEUE | QueueAccess.MQSEC_WRITE_MESSAGE)
"""Everyone's rights to a queue that is not open: send, and see its properties and permissions."""
_WIDE: Final = {EVERYONE: OPEN_TO_ALL, LOCAL: int(_SEE_QUEUE), ANONYMOUS: OPEN_TO_ALL}
_APPLICATIONS: Final = allow(LOCAL, QueueAccess.MQSEC_QUEUE_GENERIC_ALL)
"""By this entry the queues of a store of an earlier version let in who got in there: every application."""

MACHINE_SELF_RIGHTS: Final = (
    QueueManagerAccess.MQSEC_MACHINE_GENERIC_ALL
    & ~QueueManagerAccess.MQSEC_DELETE_MACHINE
    & ~QueueManagerAccess.MQSEC_TAKE_MACHINE_OWNERSHIP
)
"""MQSEC_MACHINE_SELF_RIGHTS, which MS-MQDSSM names and no specification defines: all but deleting and owning it."""


def default_queue_security(
    user: Sid,
    *,
    is_domain_user: bool,
    machine: Sid | None = None,
    accepts_srmp: bool = False,
    supplied: SecurityDescriptor | None = None,
) -> SecurityDescriptor:
    """The descriptor of a new queue that ``user`` creates.

    ``machine`` is the computer's account in the directory, None in workgroup mode. ``accepts_srmp``: messages may come
    over HTTP. ``supplied`` is what the creator asked for: its owner, DACL and SACL are kept. ``is_domain_user`` is
    about the owner: that of ``supplied`` if it has one, else ``user``.
    """
    asked = supplied or SecurityDescriptor()
    asked_owner = asked.owner or user
    owner = asked_owner if is_domain_user else ANONYMOUS
    # The section determines the owner, but never writes it into the descriptor; an owner has rights only if it is.
    dacl = asked.dacl or _queue_dacl(owner, is_domain_user, machine, accepts_srmp)
    return SecurityDescriptor(owner=owner, group=asked.group or owner, dacl=dacl, sacl=asked.sacl)


def _queue_dacl(owner: Sid, is_domain_user: bool, machine: Sid | None, accepts_srmp: bool) -> Acl:
    nobody_in_particular = not is_domain_user or owner.relative_id == GUEST_RELATIVE_ID
    world = QueueAccess.MQSEC_QUEUE_GENERIC_ALL if nobody_in_particular else _SEE_QUEUE
    aces: list[Ace] = []
    if accepts_srmp:
        world |= QueueAccess.MQSEC_WRITE_MESSAGE
        aces.append(allow(ANONYMOUS, QueueAccess.MQSEC_WRITE_MESSAGE))
    if machine is not None:
        aces.append(allow(machine, _SEE_QUEUE))
    if not nobody_in_particular:
        aces.append(allow(owner, QueueAccess.MQSEC_QUEUE_GENERIC_ALL))
    return Acl.of(allow(EVERYONE, world), *aces)


def workgroup_queue_security(user: Sid, supplied: SecurityDescriptor | None = None) -> SecurityDescriptor:
    """The descriptor of a new queue of a user that no directory has: everyone sends and sees, the owner does all.

    The section lets everyone do everything with such a queue, and gives it to the anonymous user. That is not so here.
    """
    asked = supplied or SecurityDescriptor()
    owner = asked.owner or user
    dacl = asked.dacl or Acl.of(allow(EVERYONE, OPEN_TO_ALL), allow(owner, QueueAccess.MQSEC_QUEUE_GENERIC_ALL))
    return SecurityDescriptor(owner=owner, group=asked.group or owner, dacl=dacl, sacl=asked.sacl)


def machine_security(upgraded: bool) -> SecurityDescriptor:
    """The descriptor of the queue manager that this node is, in MQQMACCESSMASK: users of the machine create queues.

    In a store that an earlier version made (``upgraded``) they do everything, as they did there.
    """
    local = QueueManagerAccess.MQSEC_MACHINE_WORLD_RIGHTS | QueueManagerAccess.MQSEC_CREATE_QUEUE
    return _of_administrators(
        allow(EVERYONE, QueueManagerAccess.MQSEC_MACHINE_WORLD_RIGHTS),
        allow(LOCAL, QueueManagerAccess.MQSEC_MACHINE_GENERIC_ALL if upgraded else local),
        allow(BUILTIN_ADMINISTRATORS, QueueManagerAccess.MQSEC_MACHINE_GENERIC_ALL),
    )


def system_queue_security(upgraded: bool) -> SecurityDescriptor:
    """The descriptor of dead-letter queues and of the machine's journal: messages of everybody, for administrators."""
    return _of_administrators(
        allow(EVERYONE, _SEE_QUEUE),
        *([allow(LOCAL, QueueAccess.MQSEC_QUEUE_GENERIC_ALL)] if upgraded else []),
        allow(BUILTIN_ADMINISTRATORS, QueueAccess.MQSEC_QUEUE_GENERIC_ALL),
    )


def notification_queue_security() -> SecurityDescriptor:
    """The descriptor of the queue of change notifications: everybody sends, and only the queue manager receives."""
    send = _SEE_QUEUE | QueueAccess.MQSEC_WRITE_MESSAGE
    return _of_administrators(allow(EVERYONE, send), allow(ANONYMOUS, send))


def outgoing_queue_security(machine: SecurityDescriptor, *, anonymous: bool) -> SecurityDescriptor:
    """The descriptor of queues to other machines: any user sends, and the rest is for users
    with the right to change the queue manager. With ``anonymous``, those without a name send as well."""
    senders = [AUTHENTICATED_USERS, *([ANONYMOUS] if anonymous else [])]
    aces = [*(allow(who, QueueAccess.MQSEC_WRITE_MESSAGE) for who in senders), allow(EVERYONE, _SEE_QUEUE)]
    for ace in machine.dacl.aces if machine.dacl is not None else ():
        if isinstance(ace.entry, AccessEntry) and ace.entry.mask & QueueManagerAccess.MQSEC_SET_MACHINE_PROPERTIES:
            mask = QueueAccess.MQSEC_QUEUE_GENERIC_ALL
            aces.append(Ace(ace_type=ace.ace_type, ace_flags=0, entry=AccessEntry(mask=mask, sid=ace.entry.sid)))
    return _of_administrators(*sorted(aces, key=lambda ace: ace.ace_type != AceType.ACCESS_DENIED))


def upgraded_queue_security(security: SecurityDescriptor, anonymous_readers: bool) -> SecurityDescriptor:
    """The descriptor of a queue of an earlier version, which asked for it at the network's doors only.

    It gets an owner, and every application of this machine keeps what it had: everything, whatever the list says.
    With ``anonymous_readers``, so do remote readers without a name, who are not in Everyone any more.
    """
    owner = security.owner if security.owner not in (None, ANONYMOUS) else BUILTIN_ADMINISTRATORS
    everything = int(QueueAccess.MQSEC_QUEUE_GENERIC_ALL)
    dacl = security.dacl or Acl.of(allow(EVERYONE, everything))
    found = SecurityDescriptor(owner=owner, group=security.group or owner, dacl=dacl, sacl=security.sacl)
    if anonymous_readers:
        reader = access_check(found, Token(frozenset({ANONYMOUS, EVERYONE})), AccessMask.MAXIMUM_ALLOWED)
        readable = reader.granted & QueueAccess.MQSEC_QUEUE_GENERIC_READ
        if not access_check(found, Token(frozenset({ANONYMOUS})), readable).allowed:
            found = found.with_dacl(*dacl.aces, allow(ANONYMOUS, readable))
    application = Token(frozenset({EVERYONE, AUTHENTICATED_USERS, LOCAL}))
    if not access_check(found, application, everything).allowed:
        found = found.with_dacl(_APPLICATIONS, *_aces(found))
    return found


def with_applications(told: SecurityDescriptor, before: SecurityDescriptor | None) -> SecurityDescriptor:
    """A descriptor with the entry by which :func:`upgraded_queue_security` lets applications in, if that was there."""
    if before is None or _APPLICATIONS not in _aces(before) or told.dacl is None or _APPLICATIONS in told.dacl.aces:
        return told
    return told.with_dacl(_APPLICATIONS, *told.dacl.aces)


def closed_queue_security(security: SecurityDescriptor) -> SecurityDescriptor:
    """The descriptor without what makes a queue open to everyone: everyone sends, if so far they could, and sees."""
    owner = security.owner if security.owner not in (None, ANONYMOUS) else BUILTIN_ADMINISTRATORS
    assert owner is not None
    if security.dacl is None:
        return workgroup_queue_security(owner, SecurityDescriptor(group=security.group, sacl=security.sacl))
    aces = []
    for ace in security.dacl.aces:
        entry, wide = ace.entry, _WIDE
        if ace.ace_type == AceType.ACCESS_ALLOWED and isinstance(entry, AccessEntry) and entry.sid in wide:
            mask = QUEUE_MAPPING.map(entry.mask) & wide[entry.sid]
            if not mask:
                continue
            ace = allow(entry.sid, mask, flags=ace.ace_flags)
        aces.append(ace)
    own = allow(owner, QueueAccess.MQSEC_QUEUE_GENERIC_ALL)
    if own not in aces:
        aces.append(own)
    group = security.group if security.group not in (None, ANONYMOUS) else owner
    return SecurityDescriptor(owner, group, Acl.of(*aces), security.sacl)


def open_to(security: SecurityDescriptor | None) -> dict[Sid, int]:
    """The rights of everyone, of every application of this machine, and of callers without a name, beyond sending to a
    queue and seeing it. A trustee without such rights is left out. None is a queue without a descriptor."""
    found: dict[Sid, int] = {}
    for sid, allowed in _WIDE.items():
        token = Token(frozenset({sid}))
        decision = access_check(security or SecurityDescriptor(), token, AccessMask.MAXIMUM_ALLOWED)
        if rest := decision.granted & ~allowed & int(QueueAccess.MQSEC_QUEUE_GENERIC_ALL):
            found[sid] = rest
    return found


def _of_administrators(*aces: Ace) -> SecurityDescriptor:
    return SecurityDescriptor(owner=BUILTIN_ADMINISTRATORS, group=BUILTIN_ADMINISTRATORS, dacl=Acl.of(*aces))


def _aces(descriptor: SecurityDescriptor) -> tuple[Ace, ...]:
    return descriptor.dacl.aces if descriptor.dacl is not None else ()


def default_queue_manager_security(
    user: Sid, *, machine: Sid | None = None, is_foreign: bool = False
) -> SecurityDescriptor:
    """The descriptor of a new queue manager: everyone sees it, its computer runs it, its creator administers it."""
    world = (
        QueueManagerAccess.MQSEC_MACHINE_GENERIC_WRITE if is_foreign else QueueManagerAccess.MQSEC_MACHINE_WORLD_RIGHTS
    )
    aces = [allow(EVERYONE, world)]
    if machine is not None:
        # Owner and machine are the same account, so the second entry adds nothing; the section has both.
        aces += [allow(machine, QueueManagerAccess.MQSEC_MACHINE_GENERIC_ALL), allow(machine, MACHINE_SELF_RIGHTS)]
    aces.append(allow(user, QueueManagerAccess.MQSEC_MACHINE_GENERIC_ALL))
    owner = machine or user
    return SecurityDescriptor(owner=owner, group=owner, dacl=Acl.of(*aces))


def default_site_security(owner: Sid) -> SecurityDescriptor:
    """The descriptor of a new site of a user of the domain: everyone sees it, its creator administers it.

    The section lets everyone administer the site of a guest or of a user of no domain. A directory has neither as the
    creator of a site.
    """
    everything, seen = SiteAccess.MQSEC_SITE_GENERIC_ALL, SiteAccess.MQSEC_SITE_GENERIC_READ
    return SecurityDescriptor(owner=owner, group=owner, dacl=Acl.of(allow(EVERYONE, seen), allow(owner, everything)))
