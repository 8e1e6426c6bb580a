"""Counted arrays (MS-MQMQ 2.2.16), BLOB (2.2.15) and ULARGE_INTEGER (2.2.17).

These are structures of RPC interfaces. Here they are written without NDR's pointers and alignment: the count, then the
elements directly after it; strings end with a null. The array of PROPVARIANT is in ``propvariant.py``.
"""

from __future__ import annotations

from qmnode.structures.fields import Guid, array, data, guid, i32, length32, text_to_null, u16, u32, u64
from qmnode.structures.layout import Structure

# fmt: off


class Blob(Structure, section="MS-MQMQ 2.2.15", title="BLOB"):
    """Bytes with their count."""

    size_of_data: int = length32(0, "cbSize", "Bytes of pBlobData", of="data")
    data: bytes       = data(4, "pBlobData", "The bytes")


class Caub(Structure, section="MS-MQMQ 2.2.16.1", title="CAUB"):
    """Unsigned characters (bytes) with their count."""

    count_of_elements: int = length32(0, "cElems", "Number of elements", of="elements")
    elements: bytes        = data(4, "pElems", "The bytes")


class Caui(Structure, section="MS-MQMQ 2.2.16.2", title="CAUI"):
    """Counted unsigned short integers."""

    count_of_elements: int    = length32(0, "cElems", "Number of elements", of="elements")
    elements: tuple[int, ...] = array(4, u16(name="element"), "pElems", "16 bits each, without sign")


class Cal(Structure, section="MS-MQMQ 2.2.16.3", title="CAL"):
    """Counted long integers. The text says unsigned, but the declaration ``long*`` and VT_I4 say signed: signed."""

    count_of_elements: int    = length32(0, "cElems", "Number of elements", of="elements")
    elements: tuple[int, ...] = array(4, i32(name="element"), "pElems", "32 bits each, with sign")


class Caul(Structure, section="MS-MQMQ 2.2.16.4", title="CAUL"):
    """Counted unsigned long integers."""

    count_of_elements: int    = length32(0, "cElems", "Number of elements", of="elements")
    elements: tuple[int, ...] = array(4, u32(name="element"), "pElems", "32 bits each, without sign")


class Cauh(Structure, section="MS-MQMQ 2.2.16.5", title="CAUH"):
    """Large integers with their count."""

    count_of_elements: int    = length32(0, "cElems", "Number of elements", of="elements")
    elements: tuple[int, ...] = array(4, u64(name="element"), "pElems", "ULARGE_INTEGER: 64 bits each, without sign")


class Caclsid(Structure, section="MS-MQMQ 2.2.16.6", title="CACLSID"):
    """GUIDs with their count."""

    count_of_elements: int     = length32(0, "cElems", "Number of elements", of="elements")
    elements: tuple[Guid, ...] = array(4, guid(name="element"), "pElems", "GUIDs")


class LpWStr(Structure, section="MS-DTYP 2.2.36", title="LPWSTR"):
    """A null-terminated Unicode string."""

    text: str = text_to_null(0, "LPWSTR", "UTF-16, ended by a null")


class Calpwstr(Structure, section="MS-MQMQ 2.2.16.7", title="CALPWSTR"):
    """Strings with their count."""

    count_of_elements: int       = length32(0, "cElems", "Number of elements", of="elements")
    elements: tuple[LpWStr, ...] = array(4, LpWStr, "pElems", "Strings, each ended by a null")

    @classmethod
    def of(cls, *texts: str) -> Calpwstr:
        """The array of these strings."""
        return cls(elements=tuple(LpWStr(text=text) for text in texts))
# fmt: on
