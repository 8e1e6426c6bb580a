"""Access control lists of queues: read them, and allow, deny or remove rights.

These are Get-MsmqQueueACL and Set-MsmqQueueACL. Everything else in the security descriptor stays as it is.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from qmnode.errors import ConfigurationError, MessageQueuingError
from qmnode.model.api import QueueManagerApi, QueueType
from qmnode.security.access_check import closed_queue_security, machine_security, open_to
from qmnode.security.principals import parsed, unix_account
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.errors import PacketError
from qmnode.structures.security_descriptor import (
    ANONYMOUS,
    AUTHENTICATED_USERS,
    BUILTIN_ADMINISTRATORS,
    BUILTIN_USERS,
    EVERYONE,
    LOCAL,
    LOCAL_SYSTEM,
    NETWORK,
    AccessEntry,
    AccessMask,
    Ace,
    AceFlags,
    AceType,
    QueueAccess,
    SecurityDescriptor,
    Sid,
    allow,
    deny,
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
    "local": LOCAL,
    "network": NETWORK,
}
"""SIDs that have a name everywhere; all others are written as ``S-1-5-21-...``, those of this machine also as
``user:alice``, ``uid:1000``, ``group:ops`` and ``gid:50``."""
_NAMES: Final = {sid: name for name, sid in TRUSTEES.items()}


_OF_WINDOWS: Final = (BUILTIN_USERS, LOCAL_SYSTEM)
"""SIDs that callers have only where a directory puts them into these."""


class Change(StrEnum):
    """A change of somebody's rights."""

    ALLOW = "allow"
    DENY = "deny"
    REMOVE = "remove"
    """Neither allowed nor denied any more: what other entries say counts."""


@dataclass(frozen=True, slots=True)
class AccessRule:
    """An entry of the list."""

    allows: bool
    trustee: str
    """The SID of the entry, as text."""
    name: str | None
    """Its name, for those that have one everywhere."""
    mask: int
    rights: tuple[str, ...]
    inherited: bool
    known: bool | None = None
    """Whether anybody here is that: an entry for an account that nobody has lets nobody in. None: not known now."""


@dataclass(frozen=True, slots=True)
class QueueAccessList:
    """The access list of a queue."""

    owner: str | None
    unrestricted: bool
    """There is no list: everybody may do everything."""
    rules: tuple[AccessRule, ...]
    other_entries: int
    """Entries that are not about queues' rights (of objects, conditions, audits); they are kept."""
    owner_name: str | None = None
    """The name of the owner, where it is known here."""


def trustee(text: str) -> Sid:
    """The account that a name or SID stands for. MQ_ERROR_ILLEGAL_USER."""
    known = TRUSTEES.get(text.lower())
    if known is not None:
        return known
    try:
        if ":" in text:
            kind, number = unix_account(text, "access list")
            if number is None:
                raise MessageQueuingError(ErrorCode.MQ_ERROR_ILLEGAL_USER, f"this machine has no {text}")
            return kind(number)
        return Sid.from_text(text)
    except (ValueError, ConfigurationError):
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_ILLEGAL_USER,
            f"{text!r} is no SID (S-1-5-21-...), no account of this machine (user:alice, group:ops, uid:1000, gid:50), "
            f"and none of: {', '.join(TRUSTEES)}",
        ) from None


def owner_of(text: str) -> Sid:
    """The user whom a queue is for: a number, an account here, or whom an entry may name. MQ_ERROR_ILLEGAL_USER."""
    if text.isascii() and text.isdigit():
        return trustee(f"uid:{text}")
    if ":" in text or text.upper().startswith("S-1-"):
        return trustee(text)
    return trustee(f"user:{text}")


def owned_by(owner: Sid) -> bytes:
    """The descriptor of a new queue that belongs to somebody; its list is the default one."""
    return SecurityDescriptor(owner=owner, group=owner).write()


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
    """The rights that a security descriptor gives to a queue."""
    descriptor = _parse(security)
    rules = tuple(_rule(ace) for ace in _aces(descriptor) if _is_plain(ace))
    return QueueAccessList(
        owner=str(descriptor.owner) if descriptor.owner is not None else None,
        unrestricted=descriptor.dacl is None,
        rules=rules,
        other_entries=len(_aces(descriptor)) - len(rules),
        owner_name=_NAMES.get(descriptor.owner) if descriptor.owner is not None else None,
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
    found = describe(await manager.queue_security(name))
    nameless = {rule.trustee for rule in found.rules if rule.name is None}
    if found.owner is not None and found.owner_name is None:
        nameless.add(found.owner)
    if not nameless:
        return found
    try:
        names = await manager.account_names(sorted(nameless))
    except MessageQueuingError:  # of a node of the first release, or for a caller who may not ask
        return found
    return replace(
        found,
        rules=tuple(_named(rule, names) for rule in found.rules),
        owner_name=found.owner_name or names.get(found.owner or "") or None,
    )


def _named(rule: AccessRule, names: dict[str, str | None]) -> AccessRule:
    if rule.name is not None:
        return replace(rule, known=True)
    name = names.get(rule.trustee)
    return rule if name is None else replace(rule, name=name or None, known=bool(name))


async def check_denied(manager: QueueManagerApi, who: str, sid: Sid) -> None:
    """Refuse the denial of an account that no caller can be. While the directory does not answer, nobody knows that."""
    if sid in _OF_WINDOWS:
        nobody = not (await manager.status()).directory
    elif sid in TRUSTEES.values():
        nobody = False
    else:
        nobody = (await manager.account_names([str(sid)])).get(str(sid)) == ""
    if nobody:
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_ILLEGAL_USER,
            f"a denial for {who} would deny nobody: no caller of this node can be {sid}. Name a user or group that is "
            "known here, or one of everyone, anonymous, authenticated-users, local and network",
        )


async def change_access(
    manager: QueueManagerApi, name: str, change: Change, who: str, rights: Iterable[str]
) -> QueueAccessList:
    """Allow, deny or remove rights; the list as it is then. MQ_ERROR_ILLEGAL_USER for a denial that matches nobody."""
    sid, mask = trustee(who), mask_of(rights)
    security = changed(await manager.queue_security(name), change, sid, mask)
    if change is Change.DENY:
        await check_denied(manager, who, sid)
    await manager.set_queue(name, security=security)
    return await show_access(manager, name)


@dataclass(frozen=True, slots=True)
class OpenQueue:
    """A queue with which everyone may do more than send to it and see it."""

    pathname: str
    """Empty for the queue manager itself."""
    trustee: str
    """``everyone``, ``local`` for every application of the machine, or ``anonymous``."""
    rights: tuple[str, ...]


def open_queue_of(pathname: str, security: bytes) -> list[OpenQueue]:
    """The rights that a queue's descriptor leaves open. One that cannot be read lets nobody in."""
    if security and parsed(security) is None:
        return []
    return [OpenQueue(pathname, _NAMES[sid], names_of(mask)) for sid, mask in open_to(parsed(security)).items()]


async def close_access(manager: QueueManagerApi, names: Iterable[str] | None = None) -> list[OpenQueue]:
    """Close queues that are open to everyone, those of these names or all, and what was open.

    Everyone keeps the right to see them, and to send if it had that; the owner has all rights. With all queues, what
    every application of the machine may do with the queue manager itself is put back to what new nodes allow.
    """
    closed: list[OpenQueue] = []
    for name in await _closable(manager) if names is None else names:
        security = await manager.queue_security(name)
        found = open_queue_of(name, security)
        if found:
            await manager.set_queue(name, security=closed_queue_security(_parse(security)).write())
            closed += found
    if names is None:
        machine, wanted = await manager.queue_manager_security(), machine_security(upgraded=False).write()
        if machine == machine_security(upgraded=True).write():
            await manager.set_queue_manager_security(wanted)
            closed.append(OpenQueue("", "local", ("full-control",)))
    return closed


async def _closable(manager: QueueManagerApi) -> list[str]:
    kinds = [QueueType.PRIVATE, QueueType.PUBLIC, QueueType.SYSTEM]
    found = await manager.queues(kinds)
    return [queue.pathname for queue in found if queue.queue_type is QueueType.SYSTEM or ";" not in queue.pathname]


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
    return AccessRule(
        allows=ace.ace_type == AceType.ACCESS_ALLOWED,
        trustee=str(ace.entry.sid),
        name=_NAMES.get(ace.entry.sid),
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
