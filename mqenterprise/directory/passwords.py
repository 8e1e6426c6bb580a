"""Passwords as OpenLDAP stores them (RFC 2307, RFC 3112): hashed, so that a backup or a dump gives nobody a login.

The scheme is {SSHA}, which every slapd verifies without a module. The passwords of nodes are 256 random bits, which no
search through a salted SHA-1 finds; a slower hash would only make each of their logins slower. Active Directory hashes
what it is given by itself.
"""

import base64
import hashlib
import secrets
from typing import Final

_SALT: Final = 16


def hashed(secret: bytes, salt: bytes | None = None) -> bytes:
    """``secret`` as a value of userPassword, with a random salt unless one is given."""
    salt = secrets.token_bytes(_SALT) if salt is None else salt
    digest = hashlib.sha1(secret + salt, usedforsecurity=False).digest()
    return b"{SSHA}" + base64.b64encode(digest + salt)
