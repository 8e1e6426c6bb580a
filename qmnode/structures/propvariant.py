"""PROPVARIANT (MS-MQMQ 2.2.13): a value with its type, including arrays of such values.

This is a structure of RPC interfaces. Here it is written without NDR's pointers and alignment: the eight bytes of the
type and the reserved fields, and the value directly after them; strings end with a null.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from qmnode.structures.counted_arrays import Blob, Caclsid, Cal, Calpwstr, Caub, Cauh, Caui, Caul, LpWStr
from qmnode.structures.fields import (
    Guid,
    Later,
    array,
    choice,
    guid,
    i8,
    i16,
    i32,
    i64,
    length32,
    u8,
    u16,
    u32,
    u64,
)
from qmnode.structures.layout import Structure
from qmnode.structures.variant_types import VariantType as V

VARIANT_TRUE: Final = 0xFFFF
VARIANT_FALSE: Final = 0x0000
"""The false value of VARIANT_BOOL, MS-MQMQ 2.2.14."""


# fmt: off
class CaPropVariant(Structure, section="MS-MQMQ 2.2.16.8", title="CAPROPVARIANT"):
    """PROPVARIANTs with their count."""

    count_of_elements: int            = length32(0, "cElems", "Number of elements", of="elements")
    elements: tuple[PropVariant, ...] = array(4, Later(lambda: PropVariant), "pElems", "The values")


Value: TypeAlias = (
    int | Guid | LpWStr | Blob | Caub | Caui | Cal | Caul | Cauh | Caclsid | Calpwstr | CaPropVariant | None
)

_VALUES: Final[dict[int, Any]] = {
    V.VT_EMPTY: None,
    V.VT_NULL: None,
    V.VT_I1: i8(name="cVal"),
    V.VT_UI1: u8(name="bVal"),
    V.VT_I2: i16(name="iVal"),
    V.VT_UI2: u16(name="uiVal"),
    V.VT_I4: i32(name="lVal"),
    V.VT_UI4: u32(name="ulVal"),
    V.VT_I8: i64(name="hVal"),
    V.VT_UI8: u64(name="uhVal"),
    V.VT_BOOL: u16(name="boolVal", values={VARIANT_TRUE: "VARIANT_TRUE", VARIANT_FALSE: "VARIANT_FALSE"}),
    V.VT_CLSID: guid(name="puuid"),
    V.VT_BLOB: Blob,
    V.VT_LPWSTR: LpWStr,
    V.VT_VECTOR_UI1: Caub,
    V.VT_VECTOR_UI2: Caui,
    V.VT_VECTOR_I4: Cal,
    V.VT_VECTOR_UI4: Caul,
    V.VT_VECTOR_UI8: Cauh,
    V.VT_VECTOR_CLSID: Caclsid,
    V.VT_VECTOR_LPWSTR: Calpwstr,
    V.VT_VECTOR_VARIANT: CaPropVariant,
}


class PropVariant(Structure, section="MS-MQMQ 2.2.13.1", title="PROPVARIANT"):
    """A value with its type. VT_EMPTY and VT_NULL have none. The reserved fields are kept as they are."""

    vt: int        = u16(0, "vt", "Type of the value", values={item: item.name for item in V})
    reserved1: int = u8(2, "wReserved1", "Any value, ignored", default=0)
    reserved2: int = u8(3, "wReserved2", "Any value, ignored", default=0)
    reserved3: int = u32(4, "wReserved3", "Any value, ignored", default=0)
    value: Value   = choice(8, "_varUnion", "The value", on="vt", cases=_VALUES, default=None)
# fmt: on
