"""PROPVARIANT (MS-MQMQ 2.2.13, 2.2.13.1) as stub data, with BLOB (2.2.15) and the counted arrays (2.2.16)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from qmnode.dcerpc.ndr import (
    GUID,
    U8,
    U16,
    U32,
    U64,
    WIDE_STRING,
    Array,
    Fixed,
    Later,
    NdrStructure,
    Pointer,
    Union,
    counts,
    member,
)
from qmnode.structures.enumerations import VariantType as V

_I8: Final = Fixed("b", 1)
_I16: Final = Fixed("h", 2)
_I32: Final = Fixed("i", 4)
_I64: Final = Fixed("q", 8)
_ALIGNMENT: Final = 8
"""Of a PROPVARIANT: that of its 64-bit integers."""


class _Octets(NdrStructure):
    """BLOB and CAUB, 2.2.15 and 2.2.16.1: octets with their number."""

    size: int = counts("items", U32, "cElems", role="size")
    items: bytes | None = member(Pointer(Array(U8)), "pElems", default=None)


class _Shorts(NdrStructure):
    """CAUI, 2.2.16.2: 16-bit numbers without a sign."""

    size: int = counts("items", U32, "cElems", role="size")
    items: list[int] | None = member(Pointer(Array(U16)), "pElems", default=None)


class _Longs(NdrStructure):
    """CAL, 2.2.16.3: ``long``, although the text calls the elements unsigned."""

    size: int = counts("items", U32, "cElems", role="size")
    items: list[int] | None = member(Pointer(Array(_I32)), "pElems", default=None)


class _UnsignedLongs(NdrStructure):
    """CAUL, 2.2.16.4: 32-bit numbers without a sign."""

    size: int = counts("items", U32, "cElems", role="size")
    items: list[int] | None = member(Pointer(Array(U32)), "pElems", default=None)


class _UnsignedHypers(NdrStructure):
    """CAUH, 2.2.16.5: 64-bit numbers without a sign."""

    size: int = counts("items", U32, "cElems", role="size")
    items: list[int] | None = member(Pointer(Array(U64)), "pElems", default=None)


class _Guids(NdrStructure):
    """CACLSID, 2.2.16.6: GUIDs with their number."""

    size: int = counts("items", U32, "cElems", role="size")
    items: list[bytes] | None = member(Pointer(Array(GUID)), "pElems", default=None)


class _Strings(NdrStructure):
    """CALPWSTR, 2.2.16.7: strings with their number."""

    size: int = counts("items", U32, "cElems", role="size")
    items: list[str] | None = member(Pointer(Array(Pointer(WIDE_STRING))), "pElems", default=None)


class _Variants(NdrStructure):
    """CAPROPVARIANT, 2.2.16.8: values of any types, with their number."""

    size: int = counts("items", U32, "cElems", role="size")
    items: list[Variant] | None = member(Pointer(Array(Later(lambda: Variant, _ALIGNMENT))), "pElems", default=None)


_VECTORS: Final[dict[int, Any]] = {
    V.VT_BLOB: _Octets,
    V.VT_VECTOR_UI1: _Octets,
    V.VT_VECTOR_UI2: _Shorts,
    V.VT_VECTOR_I4: _Longs,
    V.VT_VECTOR_UI4: _UnsignedLongs,
    V.VT_VECTOR_UI8: _UnsignedHypers,
    V.VT_VECTOR_CLSID: _Guids,
    V.VT_VECTOR_LPWSTR: _Strings,
}
_FLAT: Final[dict[int, Any]] = {
    V.VT_EMPTY: None,
    V.VT_NULL: None,
    V.VT_I1: _I8,
    V.VT_UI1: U8,
    V.VT_I2: _I16,
    V.VT_UI2: U16,
    V.VT_I4: _I32,
    V.VT_UI4: U32,
    V.VT_I8: _I64,
    V.VT_UI8: U64,
    V.VT_BOOL: U16,
    V.VT_CLSID: Pointer(GUID),
    V.VT_LPWSTR: Pointer(WIDE_STRING),
    **_VECTORS,
}


class FlatVariant(NdrStructure):
    """A PROPVARIANT of a request. Vectors of variants are refused: their nesting has no bound, and the value that a
    client sends must be VT_NULL anyway (MS-MQMR 3.1.4.1).
    """

    vt: int = member(U16, "vt", default=V.VT_NULL)
    reserved1: int = member(U8, "wReserved1", default=0)
    reserved2: int = member(U8, "wReserved2", default=0)
    reserved3: int = member(U32, "wReserved3", default=0)
    value: Any = member(Union(U16, _FLAT), "_varUnion", switch="vt", default=None)


class Variant(NdrStructure):
    """A PROPVARIANT of a response."""

    vt: int = member(U16, "vt", default=V.VT_NULL)
    reserved1: int = member(U8, "wReserved1", default=0)
    reserved2: int = member(U8, "wReserved2", default=0)
    reserved3: int = member(U32, "wReserved3", default=0)
    value: Any = member(Union(U16, _FLAT | {V.VT_VECTOR_VARIANT: _Variants}), "_varUnion", switch="vt", default=None)


def variant(kind: V, value: Any) -> Variant:
    """A value of this type; VT_NULL for None. Vectors and blobs are given as their items."""
    if value is None:
        return Variant()
    structure: Any = _Variants if kind is V.VT_VECTOR_VARIANT else _VECTORS.get(kind)
    return Variant(vt=kind, value=value if structure is None else structure(items=value or None))


def vector(kind: V, items: Iterable[Any]) -> Variant:
    return variant(kind, list(items))
