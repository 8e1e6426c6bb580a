"""PROPVARIANT type constants: MS-MQMQ 2.2.12, the discriminant ``vt`` of a PROPVARIANT."""

from enum import IntEnum
from typing import Final

VT_VECTOR: Final = 0x1000
"""Combined by bitwise OR with another type: a counted array of it (2.2.16)."""


class VariantType(IntEnum):
    """VARENUM, with those vectors that a PROPVARIANT can hold (the cases of the union in 2.2.13.1).

    VT_VARIANT alone is not a value of ``vt``: it appears only in a vector.
    """

    VT_EMPTY = 0
    VT_NULL = 1
    VT_I2 = 2
    VT_I4 = 3
    VT_BOOL = 11
    VT_VARIANT = 12
    VT_I1 = 16
    VT_UI1 = 17
    VT_UI2 = 18
    VT_UI4 = 19
    VT_I8 = 20
    VT_UI8 = 21
    VT_LPWSTR = 31
    VT_BLOB = 65
    VT_CLSID = 72
    VT_VECTOR_I4 = VT_VECTOR | 3
    VT_VECTOR_VARIANT = VT_VECTOR | 12
    VT_VECTOR_UI1 = VT_VECTOR | 17
    VT_VECTOR_UI2 = VT_VECTOR | 18
    VT_VECTOR_UI4 = VT_VECTOR | 19
    VT_VECTOR_UI8 = VT_VECTOR | 21
    VT_VECTOR_LPWSTR = VT_VECTOR | 31
    VT_VECTOR_CLSID = VT_VECTOR | 72
