"""GUID: MS-MQMQ 2.2.18.1.1, MS-DTYP 2.3.4. Sixteen wire bytes, and the text form both ways.

On the wire a GUID is a 32-bit and two 16-bit little-endian fields and eight plain bytes, and the project keeps it like
that everywhere: comparing, hashing and storing need no conversion. Only people read the text form, which prints the
first three fields as numbers, so their bytes appear reversed: ``33 22 11 00 55 44 77 66 88 99 ...`` is
``00112233-4455-6677-8899-...``.
"""

import re
from typing import Final, NewType
from uuid import uuid4

Guid = NewType("Guid", bytes)
"""Sixteen bytes in wire order."""

GUID_SIZE: Final = 16
ZERO_GUID: Final = Guid(bytes(GUID_SIZE))

_TEXT: Final = re.compile(r"(\{)?([0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})(?(1)\})", re.ASCII)


def new_guid() -> Guid:
    """Create a random GUID (version 4)."""
    return Guid(uuid4().bytes_le)


def guid_from_bytes(wire: bytes | bytearray | memoryview) -> Guid:
    """A GUID from its 16 wire bytes, which are copied. Raises ValueError for any other length."""
    if len(wire) != GUID_SIZE:
        raise ValueError(f"a GUID has {GUID_SIZE} bytes, not {len(wire)}")
    return Guid(bytes(wire))


def guid_from_text(text: str) -> Guid:
    """A GUID from ``8-4-4-4-12`` hexadecimal digits in any case, perhaps in braces. Raises ValueError."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError(f"not a GUID: {text[:64]!r}; expected 8-4-4-4-12 hexadecimal digits")
    return Guid(_swap_fields(bytes.fromhex(match[2].replace("-", ""))))


def guid_to_text(guid: bytes) -> str:
    """The text form, in lower case and without braces, as Windows prints it in format names."""
    digits = _swap_fields(guid).hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _swap_fields(guid: bytes) -> bytes:
    """Reverse the bytes of the first three fields: between wire order and the order of the printed digits."""
    return guid[3::-1] + guid[5:3:-1] + guid[7:5:-1] + guid[8:]
