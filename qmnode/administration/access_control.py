"""Who may do what with a queue: reading its access control list, and allowing, denying or removing rights.

What Get-MsmqQueueACL and Set-MsmqQueueACL do. Everything else in the security descriptor stays as it is.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from qmnode.errors import MessageQueuingError
from qmnode.model.api import QueueManagerApi
from qmnode.structures.access_masks import QueueAccess
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.errors import PacketError
from qmnode.structures.security_descriptor import (
    AccessEntry,
    AccessMask,
    Ace,
    AceFlags,
    AceType,
    SecurityDescriptor,
    allow,
    deny,
)
from qmnode.structures.sid import (
    ANONYMOUS,
    AUTHENTICATED_USERS,
    BUILTIN_ADMINISTRATORS,
    BUILTIN_USERS,
    EVERYONE,
    LOCAL_SYSTEM,
    Sid,
)

RIGHTS: Final = {
    "full-control": QueueAccess.MQSEC_QUEUE_GENERIC_ALL,
    "read": QueueAccess.MQSEC_QUEUE_GENERIC_READ,
    "write": QueueAccess.MQSEC_QUEUE_GENERIC_WRITE,
    "receive-message": QueueAccess.MQSEC_RECEIVE_MESSAGE,
    "peek-message": QueueAccess.MQSEC_PEEK_MESSAGE,
    "send-message": QueueAccess.MQSEC_WRITE_MESSAGE,
    "receive-journal-message": QueueAccess.MQSEC_RECEIVE_JOURNAL_MESSAGE,
    "set-properties": QueueAccess.MQSEC_SET_QUEUE_PROPERTIES,
    "get-properties": QueueAccess.MQSEC_GET_QUEUE_PROPERTIES,
    "delete-queue": QueueAccess.MQSEC_DELETE_QUEUE,
    "get-permissions": QueueAccess.MQSEC_GET_QUEUE_PERMISSIONS,
    "change-permissions": QueueAccess.MQSEC_CHANGE_QUEUE_PERMISSIONS,
    "take-ownership": QueueAccess.MQSEC_TAKE_QUEUE_OWNERSHIP,
}
"""Rights of MS-MQMQ 2.2.24 by the names that operators use: the three generic ones, then the others."""
_GENERIC: Final = ("full-control", "read", "write")

_LARGEST_FIRST: Final = sorted(
    ((name, right) for name, right in RIGHTS.items() if name not in _GENERIC), key=lambda one: -one[1].bit_count()
)

TRUSTEES: Final = {
    "everyone": EVERYONE,
    "anonymous": ANONYMOUS,
    "authenticated-users": AUTHENTICATED_USERS,
    "administrators": BUILTIN_ADMINISTRATORS,
    "users": BUILTIN_USERS,
    "system": LOCAL_SYSTEM,
}
"""SIDs that have a name everywhere; all others are written as ``S-1-5-21-...``."""


class Change(StrEnum):
    """What is done to somebody's rights."""

    ALLOW = "allow"
    DENY = "deny"
    REMOVE = "remove"
    """Neither allowed nor denied any more: what other entries say counts."""


@dataclass(frozen=True, slots=True)
class AccessRule:
    """An entry of the list."""

    allows: bool
    trustee: str
    """SID, as text."""
    name: str | None
    """Its name, for those that have one everywhere."""
    mask: int
    rights: tuple[str, ...]
    inherited: bool


@dataclass(frozen=True, slots=True)
class QueueAccessList:
    """Who may do what with a queue."""

    owner: str | None
    unrestricted: bool
    """There is no list: everybody may do everything."""
    rules: tuple[AccessRule, ...]
    other_entries: int
    """Entries that are not about queues' rights (of objects, conditions, audits); they are kept."""


def trustee(text: str) -> Sid:
    """Whom a name or a SID means. MQ_ERROR_ILLEGAL_USER."""
    known = TRUSTEES.get(text.lower())
    if known is not None:
        return known
    try:
        return Sid.from_text(text)
    except ValueError:
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_ILLEGAL_USER, f"{text!r} is no SID (S-1-5-21-...), and none of: {', '.join(TRUSTEES)}"
        ) from None


def mask_of(names: Iterable[str]) -> int:
    """Rights by their names. MQ_ERROR_INVALID_PARAMETER."""
    mask = 0
    for name in names:
        try:
            mask |= RIGHTS[name]
        except KeyError:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INVALID_PARAMETER, f"{name!r} is no right: use {', '.join(RIGHTS)}"
            ) from None
    return mask


def names_of(mask: int) -> tuple[str, ...]:
    """The names of rights: of a generic one alone when it is exactly that, else of each that is in it whole."""
    if mask & AccessMask.GENERIC_ALL:
        return ("full-control",)
    for name in _GENERIC:
        if mask == RIGHTS[name]:
            return (name,)
    found: list[str] = []
    covered = 0
    for name, right in _LARGEST_FIRST:
        if right & mask == right and right & ~covered:
            found.append(name)
            covered |= right
    rest = mask & ~covered
    return (*found, *((f"0x{rest:08x}",) if rest else ()))


def describe(security: bytes) -> QueueAccessList:
    """What a security descriptor says about a queue."""
    descriptor = _parse(security)
    rules = tuple(_rule(ace) for ace in _aces(descriptor) if _is_plain(ace))
    return QueueAccessList(
        owner=str(descriptor.owner) if descriptor.owner is not None else None,
        unrestricted=descriptor.dacl is None,
        rules=rules,
        other_entries=len(_aces(descriptor)) - len(rules),
    )


def changed(security: bytes, change: Change, who: Sid, mask: int) -> bytes:
    """The security descriptor with other rights for somebody, in the order that Windows keeps: denials first.

    Where there was no list, everybody else keeps all rights: allowing one must not shut out the others.
    """
    descriptor = _parse(security)
    aces = list(_aces(descriptor))
    if descriptor.dacl is None:
        aces = [allow(EVERYONE, QueueAccess.MQSEC_QUEUE_GENERIC_ALL)]
    aces = [kept for ace in aces if (kept := _without(ace, who, mask)) is not None]
    if change is Change.ALLOW:
        aces.append(allow(who, mask | _mask_of(aces, who, AceType.ACCESS_ALLOWED)))
        aces = _without_others(aces, who, AceType.ACCESS_ALLOWED)
    elif change is Change.DENY:
        aces.append(deny(who, mask | _mask_of(aces, who, AceType.ACCESS_DENIED)))
        aces = _without_others(aces, who, AceType.ACCESS_DENIED)
    return descriptor.with_dacl(*sorted(aces, key=_order)).write()


async def show_access(manager: QueueManagerApi, name: str) -> QueueAccessList:
    """Who may do what with a queue."""
    return describe(await manager.queue_security(name))


async def change_access(
    manager: QueueManagerApi, name: str, change: Change, who: str, rights: Iterable[str]
) -> QueueAccessList:
    """Allow, deny or remove rights; the list as it is then."""
    sid, mask = trustee(who), mask_of(rights)
    security = changed(await manager.queue_security(name), change, sid, mask)
    await manager.set_queue(name, security=security)
    return await show_access(manager, name)


def _parse(security: bytes) -> SecurityDescriptor:
    if not security:
        return SecurityDescriptor()
    try:
        return SecurityDescriptor.parse(security)
    except PacketError as error:
        raise MessageQueuingError(ErrorCode.MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR, str(error)) from error


def _aces(descriptor: SecurityDescriptor) -> tuple[Ace, ...]:
    return descriptor.dacl.aces if descriptor.dacl is not None else ()


def _is_plain(ace: Ace) -> bool:
    return ace.ace_type in (AceType.ACCESS_ALLOWED, AceType.ACCESS_DENIED) and isinstance(ace.entry, AccessEntry)


def _is_inherited(ace: Ace) -> bool:
    return bool(AceFlags.INHERITED_ACE.get(ace.ace_flags))


def _rule(ace: Ace) -> AccessRule:
    assert isinstance(ace.entry, AccessEntry)
    names = {sid: name for name, sid in TRUSTEES.items()}
    return AccessRule(
        allows=ace.ace_type == AceType.ACCESS_ALLOWED,
        trustee=str(ace.entry.sid),
        name=names.get(ace.entry.sid),
        mask=ace.entry.mask,
        rights=names_of(ace.entry.mask),
        inherited=_is_inherited(ace),
    )


def _without(ace: Ace, who: Sid, mask: int) -> Ace | None:
    """The entry without these rights of somebody; None when nothing is left."""
    if not _is_plain(ace) or not isinstance(ace.entry, AccessEntry) or ace.entry.sid != who or _is_inherited(ace):
        return ace
    rest = ace.entry.mask & ~mask
    if rest == ace.entry.mask:
        return ace
    make: Callable[..., Ace] = allow if ace.ace_type == AceType.ACCESS_ALLOWED else deny
    return make(who, rest, flags=ace.ace_flags) if rest else None


def _is_own(ace: Ace, who: Sid, kind: AceType) -> bool:
    return (
        ace.ace_type == kind
        and isinstance(ace.entry, AccessEntry)
        and ace.entry.sid == who
        and not ace.entry.application_data
        and ace.ace_flags == 0
    )


def _mask_of(aces: list[Ace], who: Sid, kind: AceType) -> int:
    mask = 0
    for ace in aces:
        if _is_own(ace, who, kind) and isinstance(ace.entry, AccessEntry):
            mask |= ace.entry.mask
    return mask


def _without_others(aces: list[Ace], who: Sid, kind: AceType) -> list[Ace]:
    """Of several entries that say the same kind of thing about somebody, the last one, which says it all."""
    last = aces[-1]
    return [*(ace for ace in aces[:-1] if not _is_own(ace, who, kind)), last]


def _order(ace: Ace) -> int:
    if _is_inherited(ace):
        return 2
    return 0 if ace.ace_type in (AceType.ACCESS_DENIED, AceType.ACCESS_DENIED_OBJECT) else 1
