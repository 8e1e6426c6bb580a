"""Access rights of each kind of object: MS-MQMQ 2.2.23 to 2.2.27, and SECURITY_INFORMATION, 2.2.3.

The low 16 bits are specific to the kind of object. DELETE to WRITE_OWNER (0x00010000 to 0x00080000) have the meaning of
MS-DTYP 2.4.3, under a name of their own for each kind.
"""

from collections.abc import Mapping
from enum import IntFlag
from functools import reduce
from operator import or_
from typing import Any, Final


def _every(declared: Mapping[str, Any]) -> int:
    """All rights that a class declared so far, which is what the specification lists for GENERIC_ALL."""
    return int(reduce(or_, (value for name, value in declared.items() if not name.startswith("_"))))


class SecurityInformation(IntFlag):
    """SECURITY_INFORMATION, 2.2.3: the parts of a security descriptor that a call refers to."""

    OWNER_SECURITY_INFORMATION = 0x00000001
    GROUP_SECURITY_INFORMATION = 0x00000002
    DACL_SECURITY_INFORMATION = 0x00000004
    SACL_SECURITY_INFORMATION = 0x00000008


class QueueManagerAccess(IntFlag):
    """MQQMACCESSMASK, 2.2.23: rights on a queue manager."""

    MQSEC_DELETE_DEADLETTER_MESSAGE = 0x00000001
    MQSEC_PEEK_DEADLETTER_MESSAGE = 0x00000002
    MQSEC_CREATE_QUEUE = 0x00000004
    MQSEC_SET_MACHINE_PROPERTIES = 0x00000010
    MQSEC_GET_MACHINE_PROPERTIES = 0x00000020
    MQSEC_DELETE_JOURNAL_QUEUE_MESSAGE = 0x00000040
    MQSEC_PEEK_JOURNAL_QUEUE_MESSAGE = 0x00000080
    MQSEC_DELETE_MACHINE = 0x00010000
    MQSEC_GET_MACHINE_PERMISSIONS = 0x00020000
    MQSEC_CHANGE_MACHINE_PERMISSIONS = 0x00040000
    MQSEC_TAKE_MACHINE_OWNERSHIP = 0x00080000
    MQSEC_RECEIVE_DEADLETTER_MESSAGE = MQSEC_DELETE_DEADLETTER_MESSAGE | MQSEC_PEEK_DEADLETTER_MESSAGE
    MQSEC_RECEIVE_JOURNAL_QUEUE_MESSAGE = MQSEC_DELETE_JOURNAL_QUEUE_MESSAGE | MQSEC_PEEK_JOURNAL_QUEUE_MESSAGE
    MQSEC_MACHINE_GENERIC_READ = (
        MQSEC_GET_MACHINE_PROPERTIES
        | MQSEC_GET_MACHINE_PERMISSIONS
        | MQSEC_RECEIVE_DEADLETTER_MESSAGE
        | MQSEC_RECEIVE_JOURNAL_QUEUE_MESSAGE
    )
    MQSEC_MACHINE_GENERIC_WRITE = MQSEC_GET_MACHINE_PROPERTIES | MQSEC_GET_MACHINE_PERMISSIONS | MQSEC_CREATE_QUEUE
    MQSEC_MACHINE_GENERIC_ALL = _every(vars())
    MQSEC_MACHINE_WORLD_RIGHTS = MQSEC_GET_MACHINE_PROPERTIES | MQSEC_GET_MACHINE_PERMISSIONS


class QueueAccess(IntFlag):
    """MQQUEUEACCESSMASK, 2.2.24: rights on a queue."""

    MQSEC_DELETE_MESSAGE = 0x00000001
    MQSEC_PEEK_MESSAGE = 0x00000002
    MQSEC_WRITE_MESSAGE = 0x00000004
    MQSEC_DELETE_JOURNAL_MESSAGE = 0x00000008
    MQSEC_SET_QUEUE_PROPERTIES = 0x00000010
    MQSEC_GET_QUEUE_PROPERTIES = 0x00000020
    MQSEC_DELETE_QUEUE = 0x00010000
    MQSEC_GET_QUEUE_PERMISSIONS = 0x00020000
    MQSEC_CHANGE_QUEUE_PERMISSIONS = 0x00040000
    MQSEC_TAKE_QUEUE_OWNERSHIP = 0x00080000
    MQSEC_RECEIVE_MESSAGE = MQSEC_DELETE_MESSAGE | MQSEC_PEEK_MESSAGE
    MQSEC_RECEIVE_JOURNAL_MESSAGE = MQSEC_DELETE_JOURNAL_MESSAGE | MQSEC_PEEK_MESSAGE
    MQSEC_QUEUE_GENERIC_READ = (
        MQSEC_GET_QUEUE_PROPERTIES | MQSEC_GET_QUEUE_PERMISSIONS | MQSEC_RECEIVE_MESSAGE | MQSEC_RECEIVE_JOURNAL_MESSAGE
    )
    MQSEC_QUEUE_GENERIC_WRITE = MQSEC_GET_QUEUE_PROPERTIES | MQSEC_GET_QUEUE_PERMISSIONS | MQSEC_WRITE_MESSAGE
    MQSEC_QUEUE_GENERIC_ALL = _every(vars())


class SiteAccess(IntFlag):
    """MQSITEACCESSMASK, 2.2.25: rights on a site."""

    MQSEC_CREATE_FRS = 0x00000001
    MQSEC_CREATE_BSC = 0x00000002
    MQSEC_CREATE_MACHINE = 0x00000004
    MQSEC_SET_SITE_PROPERTIES = 0x00000010
    MQSEC_GET_SITE_PROPERTIES = 0x00000020
    MQSEC_DELETE_SITE = 0x00010000
    MQSEC_GET_SITE_PERMISSIONS = 0x00020000
    MQSEC_CHANGE_SITE_PERMISSIONS = 0x00040000
    MQSEC_TAKE_SITE_OWNERSHIP = 0x00080000
    MQSEC_SITE_GENERIC_READ = MQSEC_GET_SITE_PROPERTIES | MQSEC_GET_SITE_PERMISSIONS
    MQSEC_SITE_GENERIC_WRITE = MQSEC_GET_SITE_PROPERTIES | MQSEC_GET_SITE_PERMISSIONS | MQSEC_CREATE_MACHINE
    MQSEC_SITE_GENERIC_ALL = _every(vars())


class EnterpriseAccess(IntFlag):
    """MQENTACCESSMASK, 2.2.26: rights on the enterprise."""

    MQSEC_CREATE_USER = 0x00000001
    MQSEC_CREATE_SITE = 0x00000002
    MQSEC_CREATE_CN = 0x00000004
    MQSEC_SET_ENTERPRISE_PROPERTIES = 0x00000010
    MQSEC_GET_ENTERPRISE_PROPERTIES = 0x00000020
    MQSEC_DELETE_ENTERPRISE = 0x00010000
    MQSEC_GET_ENTERPRISE_PERMISSIONS = 0x00020000
    MQSEC_CHANGE_ENTERPRISE_PERMISSIONS = 0x00040000
    MQSEC_TAKE_ENTERPRISE_OWNERSHIP = 0x00080000
    MQSEC_ENTERPRISE_GENERIC_READ = (
        MQSEC_CREATE_USER | MQSEC_GET_ENTERPRISE_PROPERTIES | MQSEC_GET_ENTERPRISE_PERMISSIONS
    )
    MQSEC_ENTERPRISE_GENERIC_WRITE = (
        MQSEC_CREATE_USER
        | MQSEC_GET_ENTERPRISE_PROPERTIES
        | MQSEC_GET_ENTERPRISE_PERMISSIONS
        | MQSEC_CREATE_SITE
        | MQSEC_CREATE_CN
    )
    MQSEC_ENTERPRISE_GENERIC_ALL = _every(vars())


class ConnectedNetworkAccess(IntFlag):
    """MQCNACCESSMASK, 2.2.27: rights on a connected network."""

    MQSEC_CN_OPEN_CONNECTOR = 0x00000001
    MQSEC_SET_CN_PROPERTIES = 0x00000010
    MQSEC_GET_CN_PROPERTIES = 0x00000020
    MQSEC_DELETE_CN = 0x00010000
    MQSEC_GET_CN_PERMISSIONS = 0x00020000
    MQSEC_CHANGE_CN_PERMISSIONS = 0x00040000
    MQSEC_TAKE_CN_OWNERSHIP = 0x00080000
    MQSEC_CN_GENERIC_READ = MQSEC_GET_CN_PROPERTIES | MQSEC_GET_CN_PERMISSIONS
    # The specification's only name here without "MQ"; kept as printed.
    SEC_CN_GENERIC_ALL = _every(vars())


QUEUE_RIGHTS: Final = {
    "receive": QueueAccess.MQSEC_RECEIVE_MESSAGE,
    "receive_journal": QueueAccess.MQSEC_RECEIVE_JOURNAL_MESSAGE,
    "peek": QueueAccess.MQSEC_PEEK_MESSAGE,
    "send": QueueAccess.MQSEC_WRITE_MESSAGE,
    "set_properties": QueueAccess.MQSEC_SET_QUEUE_PROPERTIES,
    "get_properties": QueueAccess.MQSEC_GET_QUEUE_PROPERTIES,
    "delete": QueueAccess.MQSEC_DELETE_QUEUE,
    "get_permissions": QueueAccess.MQSEC_GET_QUEUE_PERMISSIONS,
    "change_permissions": QueueAccess.MQSEC_CHANGE_QUEUE_PERMISSIONS,
    "take_ownership": QueueAccess.MQSEC_TAKE_QUEUE_OWNERSHIP,
    "generic_read": QueueAccess.MQSEC_QUEUE_GENERIC_READ,
    "generic_write": QueueAccess.MQSEC_QUEUE_GENERIC_WRITE,
    "generic_all": QueueAccess.MQSEC_QUEUE_GENERIC_ALL,
}
"""The names of declarations and documents. ``receive`` and ``receive_journal`` include ``peek``, as in 2.2.24."""


def names_of_rights(mask: int, known: Mapping[str, int] = QUEUE_RIGHTS) -> tuple[str, ...]:
    """Return the fewest names whose mask this is. Bits without a name are in hexadecimal."""
    if mask == known["generic_all"]:
        return ("generic_all",)
    names: list[str] = []
    left = mask
    # Wide rights come first: receive and receive_journal include the bit of peek.
    for name, right in known.items():
        bits = int(right)  # the inverse of a flag has no bits without a name
        if not name.startswith("generic_") and mask & bits == bits and left & bits:
            names.append(name)
            left &= ~bits
    if left:
        names.append(hex(left))
    return tuple(sorted(names))
