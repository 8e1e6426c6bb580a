"""SID, MS-DTYP 2.4.2, of a user or group: packet form (2.4.2.2), text form (2.4.2.1), well-known ones (2.4.2.4)."""

from __future__ import annotations

import re
from typing import Final

from qmnode.structures.fields import array, const8, length8, raw, u32
from qmnode.structures.layout import Structure

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
