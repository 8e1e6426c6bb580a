"""Security descriptors as text: the Security Descriptor Description Language, MS-DTYP 2.5.1.

Read and written: owner, group, DACL and SACL with entries that allow, deny or audit, for objects and their parts. Not:
conditional entries, resource attributes, mandatory labels and central policies, which queues do not use; they are
refused, never dropped.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn

from qmnode.structures.errors import PacketError
from qmnode.structures.fields import Bits
from qmnode.structures.guid import Guid, guid_from_text, guid_to_text
from qmnode.structures.security_descriptor import (
    ANONYMOUS,
    AUTHENTICATED_USERS,
    BUILTIN_ADMINISTRATORS,
    BUILTIN_GUESTS,
    BUILTIN_USERS,
    CREATOR_GROUP,
    CREATOR_OWNER,
    ENTERPRISE_DOMAIN_CONTROLLERS,
    EVERYONE,
    INTERACTIVE,
    LOCAL_SERVICE,
    LOCAL_SYSTEM,
    NETWORK,
    NETWORK_SERVICE,
    OWNER_RIGHTS,
    PRINCIPAL_SELF,
    SERVICE,
    AccessEntry,
    Ace,
    AceFlags,
    AceType,
    Acl,
    Control,
    ObjectEntry,
    SecurityDescriptor,
    Sid,
)

MAX_SDDL_LENGTH: Final = 1 << 17
"""Longest text that is read: an ACL has at most 64 KiB."""

MAX_ACES: Final = 1 << 12
"""Most entries of one ACL that are read: 64 KiB hold no more of 16 bytes, the least that an entry has."""


class SddlError(ValueError):
    """A text that is no security descriptor: where it goes wrong, and what was expected there."""

    def __init__(self, text: str, position: int, expected: str) -> None:
        super().__init__(text, position, expected)
        self.text = text
        self.position = position
        self.expected = expected

    def __str__(self) -> str:
        return f"not SDDL at character {self.position} ({self.text[self.position :][:40]!r}): expected {self.expected}"


# --- the words of the language ----------------------------------------------------------------------------------------
_ACE_TYPES: Final = {
    "A": AceType.ACCESS_ALLOWED,
    "D": AceType.ACCESS_DENIED,
    "AU": AceType.SYSTEM_AUDIT,
    "OA": AceType.ACCESS_ALLOWED_OBJECT,
    "OD": AceType.ACCESS_DENIED_OBJECT,
    "OU": AceType.SYSTEM_AUDIT_OBJECT,
}
_ACE_FLAGS: Final[dict[str, Bits]] = {
    "OI": AceFlags.OBJECT_INHERIT_ACE,
    "CI": AceFlags.CONTAINER_INHERIT_ACE,
    "NP": AceFlags.NO_PROPAGATE_INHERIT_ACE,
    "IO": AceFlags.INHERIT_ONLY_ACE,
    "ID": AceFlags.INHERITED_ACE,
    "SA": AceFlags.SUCCESSFUL_ACCESS_ACE_FLAG,
    "FA": AceFlags.FAILED_ACCESS_ACE_FLAG,
}
_RIGHTS: Final = {
    "CC": 0x00000001,
    "DC": 0x00000002,
    "LC": 0x00000004,
    "SW": 0x00000008,
    "RP": 0x00000010,
    "WP": 0x00000020,
    "DT": 0x00000040,
    "LO": 0x00000080,
    "CR": 0x00000100,
    "SD": 0x00010000,
    "RC": 0x00020000,
    "WD": 0x00040000,
    "WO": 0x00080000,
    "GA": 0x10000000,
    "GX": 0x20000000,
    "GW": 0x40000000,
    "GR": 0x80000000,
}
_RIGHTS_OF_SEVERAL_BITS: Final = {
    "FA": 0x001F01FF,
    "FX": 0x001200A0,
    "FW": 0x00120116,
    "FR": 0x00120089,
    "KA": 0x000F003F,
    "KR": 0x00020019,
    "KX": 0x00020019,
    "KW": 0x00020006,
}
_SIDS: Final = {
    "AN": ANONYMOUS,
    "AU": AUTHENTICATED_USERS,
    "BA": BUILTIN_ADMINISTRATORS,
    "BG": BUILTIN_GUESTS,
    "BU": BUILTIN_USERS,
    "CG": CREATOR_GROUP,
    "CO": CREATOR_OWNER,
    "ED": ENTERPRISE_DOMAIN_CONTROLLERS,
    "IU": INTERACTIVE,
    "LS": LOCAL_SERVICE,
    "NS": NETWORK_SERVICE,
    "NU": NETWORK,
    "OW": OWNER_RIGHTS,
    "PS": PRINCIPAL_SELF,
    "SU": SERVICE,
    "SY": LOCAL_SYSTEM,
    "WD": EVERYONE,
}
_DOMAIN_SIDS: Final = {
    "RO": 498,
    "LA": 500,
    "LG": 501,
    "DA": 512,
    "DU": 513,
    "DG": 514,
    "DC": 515,
    "DD": 516,
    "CA": 517,
    "SA": 518,
    "EA": 519,
    "PA": 520,
    "CN": 522,
    "RS": 553,
}
"""Accounts of a domain by their relative identifier."""

_SID_NAMES: Final = {sid: name for name, sid in _SIDS.items()}
_ACE_TYPE_NAMES: Final = {number.value: name for name, number in _ACE_TYPES.items()}
_ACL_FLAGS: Final[dict[str, dict[str, Bits]]] = {
    "D": {"P": Control.PD, "AR": Control.DC, "AI": Control.DI},
    "S": {"P": Control.PS, "AR": Control.SC, "AI": Control.SI},
}
_NO_ACCESS_CONTROL: Final = "NO_ACCESS_CONTROL"
"""What Windows writes for an ACL that is present and NULL; not in the grammar."""

_OCTAL_DIGITS: Final = frozenset("01234567")
_NUMBER: Final = re.compile(r"0[xX][0-9A-Fa-f]{1,8}|0[0-7]{1,11}|[0-9]{1,10}", re.ASCII)
_WORD_OF_SID: Final = re.compile(r"S-1-(?:0x[0-9A-F]{12}|\d{1,10})(?:-\d{1,10})*|[A-Z]{2}", re.ASCII | re.IGNORECASE)


# --- reading ----------------------------------------------------------------------------------------------------------
class _Reader:
    def __init__(self, text: str, domain: Sid | None) -> None:
        self.text = text
        self.domain = domain
        self.position = 0

    def fail(self, expected: str, position: int | None = None) -> NoReturn:
        raise SddlError(self.text, self.position if position is None else position, expected)

    def take(self, word: str) -> bool:
        if not self.text.startswith(word, self.position):
            return False
        self.position += len(word)
        return True

    def until(self, stop: str) -> tuple[str, int]:
        """What comes before ``stop``, which is stepped over, and where it began."""
        start = self.position
        end = self.text.find(stop, start)
        if end < 0:
            self.fail(f"a {stop} further on")
        self.position = end + 1
        return self.text[start:end], start

    def descriptor(self) -> SecurityDescriptor:
        owner = self.sid() if self.take("O:") else None
        group = self.sid() if self.take("G:") else None
        control = 0
        acls: dict[str, Acl | None] = {"D": None, "S": None}
        for letter, present in (("D", Control.DP), ("S", Control.SP)):
            if self.take(f"{letter}:"):
                flags, acls[letter] = self.acl(_ACL_FLAGS[letter])
                control = present.put(control, 1) | flags
        if self.position != len(self.text):
            self.fail("O:, G:, D: and S:, each at most once and in this order")
        return SecurityDescriptor(owner=owner, group=group, dacl=acls["D"], sacl=acls["S"], control=control)

    def sid(self) -> Sid:
        match = _WORD_OF_SID.match(self.text, self.position)
        if match is None:
            self.fail("a SID, or the two letters of a well-known one")
        sid = self.sid_of(match[0], self.position)
        self.position = match.end()
        return sid

    def sid_of(self, word: str, position: int) -> Sid:
        name = word.upper()
        if name in _SIDS:
            return _SIDS[name]
        if name in _DOMAIN_SIDS:
            if self.domain is None:
                self.fail(f"a SID: {name} depends on the domain, which is not known here", position)
            return self.domain.child(_DOMAIN_SIDS[name])
        try:
            return Sid.from_text(word)
        except ValueError:
            self.fail("a SID, or the two letters of a well-known one", position)

    def acl(self, flags: dict[str, Bits]) -> tuple[int, Acl | None]:
        control = 0
        if self.take(_NO_ACCESS_CONTROL):
            return control, None
        while word := next((word for word in flags if self.take(word)), ""):
            control = flags[word].put(control, 1)
        aces: list[Ace] = []
        while self.take("("):
            if len(aces) == MAX_ACES:
                self.fail(f"at most {MAX_ACES} entries")
            aces.append(self.ace())
        try:
            return control, Acl.of(*aces)
        except PacketError:
            self.fail("entries that fit into the 64 KiB of an ACL")

    def ace(self) -> Ace:
        type_name, position = self.until(";")
        ace_type = _ACE_TYPES.get(type_name.upper())
        if ace_type is None:
            self.fail(f"one of {', '.join(_ACE_TYPES)}", position)
        flags = self.ace_flags()
        mask = self.rights()
        object_type, inherited = self.guid(), self.guid()
        word, position = self.until(")")
        sid = self.sid_of(word, position)
        if type_name.upper().startswith("O"):
            entry = ObjectEntry(mask=mask, sid=sid, object_type=object_type, inherited_object_type=inherited)
            return Ace(ace_type=ace_type, ace_flags=flags, entry=entry)
        if object_type is not None or inherited is not None:
            self.fail("no GUID in an entry that is not for an object", position)
        return Ace(ace_type=ace_type, ace_flags=flags, entry=AccessEntry(mask=mask, sid=sid))

    def ace_flags(self) -> int:
        words, position = self.until(";")
        flags = 0
        for place in range(0, len(words), 2):
            flag = _ACE_FLAGS.get(words[place : place + 2].upper())
            if flag is None:
                self.fail(f"flags out of {', '.join(_ACE_FLAGS)}", position + place)
            flags = flag.put(flags, 1)
        return flags

    def rights(self) -> int:
        words, position = self.until(";")
        if _NUMBER.fullmatch(words):
            octal = words.startswith("0") and words[1:].isdecimal()
            if octal and not _OCTAL_DIGITS.issuperset(words):
                self.fail("octal digits after a leading 0", position)
            number = int(words, 8 if octal else 0)
            if number > 0xFFFFFFFF:
                self.fail("rights of 32 bits", position)
            return number
        mask = 0
        for place in range(0, len(words), 2):
            word = words[place : place + 2].upper()
            right = _RIGHTS.get(word) or _RIGHTS_OF_SEVERAL_BITS.get(word)
            if right is None:
                self.fail("rights: two letters each, or a number", position + place)
            mask |= right
        return mask

    def guid(self) -> Guid | None:
        word, position = self.until(";")
        if not word:
            return None
        try:
            return guid_from_text(word)
        except ValueError:
            self.fail("a GUID", position)


def parse_sddl(text: str, domain: Sid | None = None) -> SecurityDescriptor:
    """The descriptor that ``text`` means; ``domain`` is whose administrators ``DA`` are. Raises SddlError."""
    if len(text) > MAX_SDDL_LENGTH:
        raise SddlError(text, MAX_SDDL_LENGTH, f"at most {MAX_SDDL_LENGTH} characters")
    return _Reader(text, domain).descriptor()


# --- writing ----------------------------------------------------------------------------------------------------------
def format_sddl(descriptor: SecurityDescriptor) -> str:
    """The descriptor as text. Raises ValueError for entries that the module does not know."""
    parts = []
    if descriptor.owner is not None:
        parts.append(f"O:{_sid_text(descriptor.owner)}")
    if descriptor.group is not None:
        parts.append(f"G:{_sid_text(descriptor.group)}")
    for letter, present, acl in (("D", Control.DP, descriptor.dacl), ("S", Control.SP, descriptor.sacl)):
        if present.get(descriptor.control):
            parts.append(f"{letter}:{_acl_text(acl, _ACL_FLAGS[letter], descriptor.control)}")
    return "".join(parts)


def _acl_text(acl: Acl | None, flags: dict[str, Bits], control: int) -> str:
    if acl is None:
        return _NO_ACCESS_CONTROL
    words = [word for word, flag in flags.items() if flag.get(control)]
    return "".join(words + [_ace_text(ace) for ace in acl.aces])


def _ace_text(ace: Ace) -> str:
    entry = ace.entry
    name = _ACE_TYPE_NAMES.get(ace.ace_type)
    if name is None or not isinstance(entry, AccessEntry | ObjectEntry):
        raise ValueError(f"an entry of type 0x{ace.ace_type:02X} has no text form here")
    flags = "".join(word for word, flag in _ACE_FLAGS.items() if flag.get(ace.ace_flags))
    guids = ["", ""]
    if isinstance(entry, ObjectEntry):
        guids = [guid_to_text(one) if one else "" for one in (entry.object_type, entry.inherited_object_type)]
    return f"({';'.join([name, flags, _rights_text(entry.mask), *guids, _sid_text(entry.sid)])})"


def _rights_text(mask: int) -> str:
    words = [word for word, bit in _RIGHTS.items() if mask & bit]
    covered = sum(_RIGHTS[word] for word in words)
    return "".join(words) if covered == mask else f"0x{mask:x}"


def _sid_text(sid: Sid) -> str:
    return _SID_NAMES.get(sid) or str(sid)
