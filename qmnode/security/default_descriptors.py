"""Security descriptors of new objects: queues (MS-MQDMPR 3.1.7.1.3.1), queue managers and sites (MS-MQDSSM 3.1.6.1)."""

from typing import Final

from qmnode.security.access_check import QUEUE_MAPPING, Token, access_check
from qmnode.structures.access_masks import QueueAccess, QueueManagerAccess, SiteAccess
from qmnode.structures.security_descriptor import (
    AccessEntry,
    AccessMask,
    Ace,
    AceType,
    Acl,
    SecurityDescriptor,
    allow,
)
from qmnode.structures.sid import (
    ANONYMOUS,
    AUTHENTICATED_USERS,
    BUILTIN_ADMINISTRATORS,
    EVERYONE,
    GUEST_RELATIVE_ID,
    LOCAL,
    Sid,
)

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
