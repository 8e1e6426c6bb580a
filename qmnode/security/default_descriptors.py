"""Security descriptors of new queues (MS-MQDMPR 3.1.7.1.3.1) and queue managers (MS-MQDSSM 3.1.6.1.1.8)."""

from __future__ import annotations

from typing import Final

from qmnode.structures.access_masks import QueueAccess, QueueManagerAccess
from qmnode.structures.security_descriptor import Ace, Acl, SecurityDescriptor, allow
from qmnode.structures.sid import ANONYMOUS, EVERYONE, GUEST_RELATIVE_ID, Sid

_SEE_QUEUE: Final = QueueAccess.MQSEC_GET_QUEUE_PROPERTIES | QueueAccess.MQSEC_GET_QUEUE_PERMISSIONS

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
    # The section finds the owner and never puts it into the descriptor, without which it would have no rights as owner.
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


def default_queue_manager_security(
    user: Sid, *, machine: Sid | None = None, is_foreign: bool = False
) -> SecurityDescriptor:
    """The descriptor of a new queue manager: everyone sees it, its computer runs it, its creator administers it."""
    world = (
        QueueManagerAccess.MQSEC_MACHINE_GENERIC_WRITE if is_foreign else QueueManagerAccess.MQSEC_MACHINE_WORLD_RIGHTS
    )
    aces = [allow(EVERYONE, world)]
    if machine is not None:
        # Owner and machine are the same account here, so the second entry adds nothing; the section has both.
        aces += [allow(machine, QueueManagerAccess.MQSEC_MACHINE_GENERIC_ALL), allow(machine, MACHINE_SELF_RIGHTS)]
    aces.append(allow(user, QueueManagerAccess.MQSEC_MACHINE_GENERIC_ALL))
    owner = machine or user
    return SecurityDescriptor(owner=owner, group=owner, dacl=Acl.of(*aces))
