"""Access control: SIDs, rights on each kind of object, security descriptors (MS-DTYP 2.4, MS-MQMQ 2.2.23 to 2.2.27)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum, IntFlag
from functools import reduce
from operator import or_
from typing import Any, Final, TypeAlias, TypeVar

from qmnode.structures.errors import PacketError
from qmnode.structures.fields import (
    Flags,
    array,
    bits,
    choice,
    const8,
    guid,
    length8,
    length16,
    nested,
    raw,
    rest,
    u8,
    u16,
    u32,
)
from qmnode.structures.guid import Guid
from qmnode.structures.layout import Buffer, Structure

# ----------------------------------------------------------------------------------------------------------------------
# SID, MS-DTYP 2.4.2, of a user or group: packet form (2.4.2.2), text form (2.4.2.1), well-known ones (2.4.2.4).

MAX_SUB_AUTHORITIES: Final = 15

_NUMBER: Final = r"(?:0|[1-9]\d{0,9})"
_TEXT: Final = re.compile(rf"S-1-(0x[0-9A-F]{{12}}|{_NUMBER})((?:-{_NUMBER})*)", re.ASCII | re.IGNORECASE)
_NT_AUTHORITY: Final = bytes((0, 0, 0, 0, 0, 5))
_DOMAIN_ACCOUNTS: Final = 21
_DOMAIN_PARTS: Final = 5
_DECIMAL_AUTHORITIES: Final = 1 << 32
"""Authorities below this are printed in decimal, others in hexadecimal."""


# fmt: off
class Sid(Structure, section="MS-DTYP 2.4.2.2", title="SID"):
    """A security identifier. ``str()`` and ``from_text`` are the text form, ``S-1-5-18``."""

    revision: int                    = const8(0, "Revision", 1, "Revision of the SID")
    sub_authority_count: int         = length8(1, "SubAuthorityCount", "At most 15", of="sub_authorities",
                                               allowed=range(MAX_SUB_AUTHORITIES + 1))
    authority: bytes                 = raw(2, 6, "IdentifierAuthority", "Who issued it, most significant byte first")
    sub_authorities: tuple[int, ...] = array(8, u32(name="SubAuthority"), "SubAuthority", "Relative to the authority")
# fmt: on

    def __str__(self) -> str:
        number = int.from_bytes(self.authority, "big")
        authority = str(number) if number < _DECIMAL_AUTHORITIES else f"0x{number:012x}"
        return "-".join(["S", "1", authority, *map(str, self.sub_authorities)])

    @classmethod
    def from_text(cls, text: str) -> Sid:
        """The SID in text form. Raises ValueError for other text."""
        match = _TEXT.fullmatch(text)
        sub_authorities = tuple(map(int, match[2].split("-")[1:])) if match else ()
        authority = int(match[1], 0) if match else 0
        if (
            match is None
            or len(sub_authorities) > MAX_SUB_AUTHORITIES
            or max(sub_authorities, default=0) > 0xFFFFFFFF
            or (authority >= _DECIMAL_AUTHORITIES) != match[1].lower().startswith("0x")
        ):
            raise ValueError(f"not a SID: {text[:80]!r}; expected S-1-, an authority, up to 15 numbers of 32 bits")
        return cls(authority=authority.to_bytes(6, "big"), sub_authorities=sub_authorities)

    def __repr__(self) -> str:
        return f"Sid.from_text({str(self)!r})"

    @property
    def relative_id(self) -> int | None:
        """The last sub-authority, which distinguishes the principals of one domain; None if there is none."""
        return self.sub_authorities[-1] if self.sub_authorities else None

    @property
    def is_domain_account(self) -> bool:
        """Whether it is a user, group or machine of a domain, S-1-5-21-A-B-C-RID: the same on every machine."""
        parts = self.sub_authorities
        return self.authority == _NT_AUTHORITY and len(parts) == _DOMAIN_PARTS and parts[0] == _DOMAIN_ACCOUNTS

    def child(self, relative_id: int) -> Sid:
        """The SID of a principal of the domain that this SID names."""
        return Sid(authority=self.authority, sub_authorities=(*self.sub_authorities, relative_id))


EVERYONE: Final = Sid.from_text("S-1-1-0")
LOCAL: Final = Sid.from_text("S-1-2-0")
CREATOR_OWNER: Final = Sid.from_text("S-1-3-0")
CREATOR_GROUP: Final = Sid.from_text("S-1-3-1")
OWNER_RIGHTS: Final = Sid.from_text("S-1-3-4")
NETWORK: Final = Sid.from_text("S-1-5-2")
INTERACTIVE: Final = Sid.from_text("S-1-5-4")
SERVICE: Final = Sid.from_text("S-1-5-6")
ANONYMOUS: Final = Sid.from_text("S-1-5-7")
ENTERPRISE_DOMAIN_CONTROLLERS: Final = Sid.from_text("S-1-5-9")
PRINCIPAL_SELF: Final = Sid.from_text("S-1-5-10")
AUTHENTICATED_USERS: Final = Sid.from_text("S-1-5-11")
LOCAL_SYSTEM: Final = Sid.from_text("S-1-5-18")
LOCAL_SERVICE: Final = Sid.from_text("S-1-5-19")
NETWORK_SERVICE: Final = Sid.from_text("S-1-5-20")
BUILTIN_ADMINISTRATORS: Final = Sid.from_text("S-1-5-32-544")
BUILTIN_USERS: Final = Sid.from_text("S-1-5-32-545")
BUILTIN_GUESTS: Final = Sid.from_text("S-1-5-32-546")

UNIX_USERS: Final = Sid.from_text("S-1-22-1")
"""Samba's domain of the users of a Linux machine: the user's number follows."""
UNIX_GROUPS: Final = Sid.from_text("S-1-22-2")
"""The same for groups."""

GUEST_RELATIVE_ID: Final = 501
"""DOMAIN_USER_RID_GUEST: the guest account of any domain (MS-SAMR 2.2.1.14)."""


# ----------------------------------------------------------------------------------------------------------------------
# Access control of an object: ACE (MS-DTYP 2.4.4), ACL (2.4.5), self-relative SECURITY_DESCRIPTOR (2.4.6).

class AccessMask(IntFlag):
    """The bits of an ACCESS_MASK that mean the same for every kind of object: MS-DTYP 2.4.3."""

    DELETE = 0x00010000
    READ_CONTROL = 0x00020000
    WRITE_DACL = 0x00040000
    WRITE_OWNER = 0x00080000
    SYNCHRONIZE = 0x00100000
    ACCESS_SYSTEM_SECURITY = 0x01000000
    MAXIMUM_ALLOWED = 0x02000000
    GENERIC_ALL = 0x10000000
    GENERIC_EXECUTE = 0x20000000
    GENERIC_WRITE = 0x40000000
    GENERIC_READ = 0x80000000


class AceType(IntEnum):
    """The kinds of access control entry: AceType, MS-DTYP 2.4.4.1."""

    ACCESS_ALLOWED = 0x00
    ACCESS_DENIED = 0x01
    SYSTEM_AUDIT = 0x02
    SYSTEM_ALARM = 0x03
    ACCESS_ALLOWED_COMPOUND = 0x04
    ACCESS_ALLOWED_OBJECT = 0x05
    ACCESS_DENIED_OBJECT = 0x06
    SYSTEM_AUDIT_OBJECT = 0x07
    SYSTEM_ALARM_OBJECT = 0x08
    ACCESS_ALLOWED_CALLBACK = 0x09
    ACCESS_DENIED_CALLBACK = 0x0A
    ACCESS_ALLOWED_CALLBACK_OBJECT = 0x0B
    ACCESS_DENIED_CALLBACK_OBJECT = 0x0C
    SYSTEM_AUDIT_CALLBACK = 0x0D
    SYSTEM_ALARM_CALLBACK = 0x0E
    SYSTEM_AUDIT_CALLBACK_OBJECT = 0x0F
    SYSTEM_ALARM_CALLBACK_OBJECT = 0x10
    SYSTEM_MANDATORY_LABEL = 0x11
    SYSTEM_RESOURCE_ATTRIBUTE = 0x12
    SYSTEM_SCOPED_POLICY_ID = 0x13


# fmt: off
class AceFlags(Flags, width=8):
    """Inheritance and auditing of an entry: MS-DTYP 2.4.4.1."""

    OBJECT_INHERIT_ACE         = bits(0, 1, "Objects that are no containers inherit it")
    CONTAINER_INHERIT_ACE      = bits(1, 1, "Containers inherit it")
    NO_PROPAGATE_INHERIT_ACE   = bits(2, 1, "What inherits it does not pass it on")
    INHERIT_ONLY_ACE           = bits(3, 1, "It controls access only where it is inherited")
    INHERITED_ACE              = bits(4, 1, "It was inherited")
    SUCCESSFUL_ACCESS_ACE_FLAG = bits(6, 1, "Audit access that succeeds")
    FAILED_ACCESS_ACE_FLAG     = bits(7, 1, "Audit access that fails")


class ObjectAceFlags(Flags, width=32):
    """The GUIDs that an object entry has: MS-DTYP 2.4.4.3."""

    ACE_OBJECT_TYPE_PRESENT           = bits(0, 1, "ObjectType is present")
    ACE_INHERITED_OBJECT_TYPE_PRESENT = bits(1, 1, "InheritedObjectType is present")


class AccessEntry(Structure, section="MS-DTYP 2.4.4.2", title="ACCESS_ALLOWED_ACE"):
    """Rights of a user or group: the layout of entries that allow, deny or audit."""

    mask: int               = u32(0, "Mask", "Rights")
    sid: Sid                = nested(4, Sid, "Whom it is about", name="Sid")
    application_data: bytes = rest(None, "ApplicationData", "A condition, or ignored", default=b"")


class ObjectEntry(Structure, section="MS-DTYP 2.4.4.3", title="ACCESS_ALLOWED_OBJECT_ACE"):
    """Rights of a user or group to a part of a directory object, such as an extended right."""

    mask: int                          = u32(0, "Mask", "Rights")
    flags: int                         = u32(4, "Flags", "Which GUIDs are present", bits=ObjectAceFlags, default=0)
    object_type: Guid | None           = guid(8, "ObjectType", "Property, extended right or kind of child",
                                              when="flags.ACE_OBJECT_TYPE_PRESENT", default=None)
    inherited_object_type: Guid | None = guid(None, "InheritedObjectType", "What kind of child inherits it",
                                              when="flags.ACE_INHERITED_OBJECT_TYPE_PRESENT", default=None)
    sid: Sid                           = nested(None, Sid, "Whom it is about", name="Sid")
    application_data: bytes            = rest(None, "ApplicationData", "A condition, or ignored", default=b"")


class ReservedEntry(Structure, section="MS-DTYP 2.4.4.1", title="Reserved ACE"):
    """An entry of a kind that is reserved for future use."""

    body: bytes = rest(0, "Body", "Not interpreted", default=b"")


Entry: TypeAlias = AccessEntry | ObjectEntry | ReservedEntry

_OBJECT_TYPES: Final = {
    AceType.ACCESS_ALLOWED_OBJECT, AceType.ACCESS_DENIED_OBJECT, AceType.SYSTEM_AUDIT_OBJECT,
    AceType.ACCESS_ALLOWED_CALLBACK_OBJECT, AceType.ACCESS_DENIED_CALLBACK_OBJECT,
    AceType.SYSTEM_AUDIT_CALLBACK_OBJECT,
}
_RESERVED_TYPES: Final = {
    AceType.SYSTEM_ALARM, AceType.ACCESS_ALLOWED_COMPOUND, AceType.SYSTEM_ALARM_OBJECT, AceType.SYSTEM_ALARM_CALLBACK,
    AceType.SYSTEM_ALARM_CALLBACK_OBJECT,
}


def _entry_of(ace_type: AceType) -> type[Entry]:
    if ace_type in _RESERVED_TYPES:
        return ReservedEntry
    return ObjectEntry if ace_type in _OBJECT_TYPES else AccessEntry


class Ace(Structure, section="MS-DTYP 2.4.4.1", title="ACE", total="ace_size"):
    """An entry of an ACL."""

    ace_type: int  = u8(0, "AceType", "What it does", values={item.value: item.name for item in AceType}, strict=True)
    ace_flags: int = u8(1, "AceFlags", "Inheritance and auditing", bits=AceFlags, default=0)
    ace_size: int  = u16(2, "AceSize", "Bytes of the entry, a multiple of 4", default=0, allowed=range(0, 1 << 16, 4))
    entry: Entry   = choice(4, "Entry", "Rights and whom they are about", on="ace_type",
                            cases={item.value: _entry_of(item) for item in AceType})


class Acl(Structure, section="MS-DTYP 2.4.5", title="ACL", total="acl_size"):
    """A list of entries. Reserved fields, and bytes that AclSize counts after the entries, are kept as they are."""

    acl_revision: int      = u8(0, "AclRevision", "Kinds of entries that may be in it", default=2, strict=True,
                                values={2: "ACL_REVISION", 4: "ACL_REVISION_DS"})
    sbz1: int              = u8(1, "Sbz1", "Must be zero", default=0, allowed=(0,))
    acl_size: int          = u16(2, "AclSize", "Bytes of the list", default=0)
    ace_count: int         = length16(4, "AceCount", "Number of entries", of="aces")
    sbz2: int              = u16(6, "Sbz2", "Must be zero", default=0, allowed=(0,))
    aces: tuple[Ace, ...]  = array(8, Ace, "Aces", "The entries", default=())
    unused: bytes          = rest(None, "Unused", "Bytes behind the last entry", default=b"")

    @classmethod
    def of(cls, *aces: Ace) -> Acl:
        """The list of these entries, with the lowest revision that may hold them."""
        return cls(acl_revision=4 if any(isinstance(ace.entry, ObjectEntry) for ace in aces) else 2, aces=aces)


class Control(Flags, width=16):
    """Control of a SECURITY_DESCRIPTOR: MS-DTYP 2.4.6."""

    OD = bits(0, 1, "Owner defaulted")
    GD = bits(1, 1, "Group defaulted")
    DP = bits(2, 1, "DACL present")
    DD = bits(3, 1, "DACL defaulted")
    SP = bits(4, 1, "SACL present")
    SD = bits(5, 1, "SACL defaulted")
    DT = bits(6, 1, "DACL trusted")
    SS = bits(7, 1, "Server security")
    DC = bits(8, 1, "DACL computed inheritance required")
    SC = bits(9, 1, "SACL computed inheritance required")
    DI = bits(10, 1, "DACL auto-inherited")
    SI = bits(11, 1, "SACL auto-inherited")
    PD = bits(12, 1, "DACL protected")
    PS = bits(13, 1, "SACL protected")
    RM = bits(14, 1, "Resource manager control valid")
    SR = bits(15, 1, "Self-relative", allowed=(1,))


class SecurityDescriptorHeader(Structure, section="MS-DTYP 2.4.6", title="SECURITY_DESCRIPTOR"):
    """The fixed part of a self-relative security descriptor; the offsets count from its start."""

    revision: int     = const8(0, "Revision", 1, "Revision of the structure")
    sbz1: int         = u8(1, "Sbz1", "Resource manager control bits, valid with RM", default=0)
    control: int      = u16(2, "Control", "Options", bits=Control)
    offset_owner: int = u32(4, "OffsetOwner", "Where OwnerSid is; 0: nowhere", default=0)
    offset_group: int = u32(8, "OffsetGroup", "Where GroupSid is; 0: nowhere", default=0)
    offset_sacl: int  = u32(12, "OffsetSacl", "Where Sacl is; 0: nowhere", default=0)
    offset_dacl: int  = u32(16, "OffsetDacl", "Where Dacl is; 0: nowhere", default=0)
# fmt: on


_HEADER_SIZE: Final = 20
_Part = TypeVar("_Part", Sid, Acl)


@dataclass(frozen=True, slots=True)
class SecurityDescriptor:
    """A security descriptor, self-relative when written.

    A ``dacl`` of None means no access control: every operation is allowed. With DP in ``control`` this is explicit (a
    NULL DACL), without it the DACL was left out. ``write`` puts the parts in the order SACL, DACL, owner, group, as
    Windows does, so descriptors with another order are normalised.
    """

    owner: Sid | None = None
    group: Sid | None = None
    dacl: Acl | None = None
    sacl: Acl | None = None
    control: int = Control.of(SR=1)
    resource_manager_control: int = 0

    def __post_init__(self) -> None:
        control = Control.SR.put(self.control, 1)
        if self.dacl is not None:
            control = Control.DP.put(control, 1)
        if self.sacl is not None:
            control = Control.SP.put(control, 1)
        object.__setattr__(self, "control", control)

    @classmethod
    def parse(cls, buffer: Buffer) -> SecurityDescriptor:
        """The descriptor at the start of ``buffer``; bytes outside its parts are ignored. Raises PacketError."""
        header, _ = SecurityDescriptorHeader.parse_from(buffer)
        if not Control.SR.get(header.control):
            raise _bad("Control", 2, "SR is clear: only self-relative descriptors can be read")
        for name, flag, offset in (("Dacl", Control.DP, header.offset_dacl), ("Sacl", Control.SP, header.offset_sacl)):
            if offset and not flag.get(header.control):
                raise _bad(f"Offset{name}", 2, f"must be zero, since {flag.name} is clear")
        return cls(
            owner=_part(Sid, buffer, header.offset_owner, "OffsetOwner"),
            group=_part(Sid, buffer, header.offset_group, "OffsetGroup"),
            dacl=_part(Acl, buffer, header.offset_dacl, "OffsetDacl"),
            sacl=_part(Acl, buffer, header.offset_sacl, "OffsetSacl"),
            control=header.control,
            resource_manager_control=header.sbz1,
        )

    def write(self) -> bytes:
        """The descriptor in self-relative form."""
        offsets = {"offset_sacl": 0, "offset_dacl": 0, "offset_owner": 0, "offset_group": 0}
        parts: list[bytes] = []
        place = _HEADER_SIZE
        for name, part in zip(offsets, (self.sacl, self.dacl, self.owner, self.group), strict=True):
            if part is not None:
                offsets[name] = place
                parts.append(part.write())
                place += len(parts[-1])
        header = SecurityDescriptorHeader(sbz1=self.resource_manager_control, control=self.control, **offsets)
        return b"".join([header.write(), *parts])

    def with_dacl(self, *aces: Ace) -> SecurityDescriptor:
        """A copy of the descriptor with a DACL of these entries."""
        return replace(self, dacl=Acl.of(*aces))


def _part(kind: type[_Part], buffer: Buffer, offset: int, name: str) -> _Part | None:
    if offset == 0:
        return None
    if not _HEADER_SIZE <= offset < len(buffer):
        raise _bad(name, None, f"{offset} is not behind the header and inside of the {len(buffer)} bytes")
    part, _ = kind.parse_from(buffer, offset)
    return part


def _bad(field: str, offset: int | None, sentence: str) -> PacketError:
    return PacketError("SECURITY_DESCRIPTOR", field, offset, sentence)


def allow(sid: Sid, mask: int, *, flags: int = 0) -> Ace:
    """An entry that allows rights to a user or group (ACCESS_ALLOWED_ACE)."""
    return Ace(ace_type=AceType.ACCESS_ALLOWED, ace_flags=flags, entry=AccessEntry(mask=mask, sid=sid))


def deny(sid: Sid, mask: int, *, flags: int = 0) -> Ace:
    """An entry that denies rights to a user or group (ACCESS_DENIED_ACE)."""
    return Ace(ace_type=AceType.ACCESS_DENIED, ace_flags=flags, entry=AccessEntry(mask=mask, sid=sid))


# ----------------------------------------------------------------------------------------------------------------------
# Access rights of each kind of object: MS-MQMQ 2.2.23 to 2.2.27, and SECURITY_INFORMATION, 2.2.3.
#
# The low 16 bits are specific to the kind of object. DELETE to WRITE_OWNER (0x00010000 to 0x00080000) have the meaning
# of MS-DTYP 2.4.3, under a name of their own for each kind.


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
