"""The one way in which entries of Message Queuing are written."""

import re
from typing import Final

from mqenterprise.directory.entries import Entry

MARK: Final = "adminDescription"
"""The attribute for our mark: free text that every object of Active Directory may have and that nothing else reads.

Active Directory has it on class ``top``, so its schema is not changed. Our OpenLDAP schema allows it everywhere.
"""
_MARK: Final = re.compile(r"mqenterprise (\d{1,19})")


def mark(token: int) -> bytes:
    """Return the mark of an object that an apply with this fencing token writes."""
    return f"mqenterprise {token}".encode()


def token_of(entry: Entry) -> int | None:
    """Return the fencing token of our mark, or None when the object is not ours."""
    value = entry.first(MARK)
    found = _MARK.fullmatch(value.decode("utf-8", "replace")) if value else None
    return int(found[1]) if found else None
