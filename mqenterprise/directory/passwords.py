"""Passwords as OpenLDAP stores them (RFC 2307, RFC 3112): hashed, so that a backup or a dump gives nobody a login.

The scheme is {SSHA}, which every slapd verifies without a module. The passwords of nodes are 256 random bits, which no
search through a salted SHA-1 finds; a slower hash would only make each of their logins slower. Active Directory hashes
what it is given by itself.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from typing import TYPE_CHECKING, Final

from mqenterprise.directory.entries import Change, ChangeKind
from mqenterprise.directory.errors import ConditionFailed, ObjectNotFound

if TYPE_CHECKING:
    from mqenterprise.directory.connection import LdapConnection

_ATTRIBUTE: Final = "userPassword"
_SCHEME: Final = re.compile(rb"\{(?!CLEARTEXT\})[\w./-]+\}", re.IGNORECASE)
_CLEAR_SCHEME: Final = re.compile(rb"\{CLEARTEXT\}", re.IGNORECASE)
_SALT: Final = 16


def hashed(secret: bytes, salt: bytes | None = None) -> bytes:
    """``secret`` as a value of userPassword, with a random salt unless one is given."""
    salt = secrets.token_bytes(_SALT) if salt is None else salt
    digest = hashlib.sha1(secret + salt, usedforsecurity=False).digest()
    return b"{SSHA}" + base64.b64encode(digest + salt)


def hash_clear_passwords(connection: LdapConnection) -> int:
    """Hash every computer's password that lies in clear, as early versions stored them; nodes keep theirs.

    Return how many there were. None are seen by an account that may not read passwords, or in Active Directory.
    """
    if connection.dialect.gives_guid:
        return 0
    count = 0
    for entry in connection.search(connection.dialect.contexts.computers, f"({_ATTRIBUTE}=*)", (_ATTRIBUTE,)):
        clear = [bytes(value) for value in entry.attributes.get(_ATTRIBUTE.lower(), ()) if not _SCHEME.match(value)]
        if not clear:
            continue
        changes = [
            Change(ChangeKind.DELETE, _ATTRIBUTE, tuple(clear)),
            Change(ChangeKind.ADD, _ATTRIBUTE, tuple(hashed(_CLEAR_SCHEME.sub(b"", value, 1)) for value in clear)),
        ]
        try:
            connection.modify(entry.dn, changes)
        except (ConditionFailed, ObjectNotFound):
            continue  # changed or deleted meanwhile
        count += 1
    return count
