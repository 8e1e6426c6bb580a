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

from qmnode.structures.access_masks import QueueAccess, QueueManagerAccess
from qmnode.structures.guid import Guid
from qmnode.structures.security_descriptor import (
    AccessEntry,
    AccessMask,
    Ace,
    AceFlags,
    AceType,
    ObjectEntry,
    SecurityDescriptor,
)
from qmnode.structures.sid import ANONYMOUS, AUTHENTICATED_USERS, EVERYONE, OWNER_RIGHTS, PRINCIPAL_SELF, Sid


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
