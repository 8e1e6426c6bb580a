"""Where the fields of a structure are, and how ``struct`` names them.

For code that runs once for each message and looks at a few fields without parsing the rest. All of it comes from the
declarations.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any

from qmnode.structures.fields import Scalar

if TYPE_CHECKING:
    from qmnode.structures.layout import Structure


def offset_of(structure: type[Structure], attribute: str) -> int:
    """Where a field of fixed place begins in its structure."""
    for item in structure.fields():
        if item.attribute == attribute and item.offset is not None:
            return item.offset
    raise LookupError(f"{structure.__name__}.{attribute} has no fixed place")


def size_of(structure: type[Structure]) -> int:
    """Bytes of a structure that has only fields of fixed width."""
    fields: tuple[Any, ...] = structure.fields()
    return sum(item.size for item in fields)


def codes_of(structure: type[Structure]) -> str:
    """The codes of the ``struct`` module for the fields at the structure's beginning that are always there and always
    of one width. No byte order: the specification's is little-endian, ``<``."""
    numbers = takewhile(lambda item: isinstance(item, Scalar) and item.when is None, structure.fields())
    return "".join(item.code for item in numbers if isinstance(item, Scalar))
