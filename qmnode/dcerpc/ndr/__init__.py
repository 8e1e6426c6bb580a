"""Stub data: NDR (C706 chapter 14) and NDR64 (MS-RPCE 2.2.5), both from one declaration of each method.

``types.py`` has the vocabulary of declarations, ``structures.py`` structures and parameter lists, ``streams.py`` the
octet streams with alignment and deferred referents.
"""

from qmnode.dcerpc.ndr.structures import NdrStructure, Parameters, counts, member
from qmnode.dcerpc.ndr.types import (
    CONTEXT_HANDLE,
    ENUM,
    GUID,
    NDR,
    NDR64,
    NULL_CONTEXT_HANDLE,
    OCTETS,
    U8,
    U16,
    U32,
    U64,
    WIDE_STRING,
    Array,
    Characters,
    Fixed,
    Later,
    Pointer,
    Representation,
    Room,
    Type,
    Union,
    big_endian_of,
)

__all__ = [
    "CONTEXT_HANDLE",
    "ENUM",
    "GUID",
    "NDR",
    "NDR64",
    "NULL_CONTEXT_HANDLE",
    "OCTETS",
    "U8",
    "U16",
    "U32",
    "U64",
    "WIDE_STRING",
    "Array",
    "Characters",
    "Fixed",
    "Later",
    "NdrStructure",
    "Parameters",
    "Pointer",
    "Representation",
    "Room",
    "Type",
    "Union",
    "big_endian_of",
    "counts",
    "member",
]
