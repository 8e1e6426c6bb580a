"""The offsets of a structure's fields, and their ``struct`` codes.

For code that runs once for each message and reads a few fields without parsing the rest. All of it comes from the
declarations.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any

from qmnode.structures.fields import Scalar

if TYPE_CHECKING:
    from qmnode.structures.layout import Structure


def offset_of(structure: type[Structure], attribute: str) -> int:
    """The offset of a field of fixed place in its structure."""
    for item in structure.fields():
        if item.attribute == attribute and item.offset is not None:
            return item.offset
    raise LookupError(f"{structure.__name__}.{attribute} has no fixed place")


def codes_of_some(structure: type[Structure], *attributes: str) -> str:
    """The ``struct`` codes that read some fields of fixed place, in their order, and skip what is between them."""
    codes, place = "", 0
    for item in structure.fields():
        if item.attribute in attributes and isinstance(item, Scalar) and item.offset is not None:
            codes += f"{item.offset - place}x{item.code}"
            place = item.offset + item.size
    return codes


def size_of(structure: type[Structure]) -> int:
    """The size in bytes of a structure that has only fields of fixed width."""
    fields: tuple[Any, ...] = structure.fields()
    return sum(item.size for item in fields)


def codes_of(structure: type[Structure]) -> str:
    """The ``struct`` codes of the leading fields that are always there with a fixed width, without byte order."""
    return "".join(item.code for item in _leading(structure))


def names_of(structure: type[Structure]) -> tuple[str, ...]:
    """The attributes of the same fields."""
    return tuple(item.attribute for item in _leading(structure))


def _leading(structure: type[Structure]) -> list[Scalar]:
    fields = takewhile(lambda item: isinstance(item, Scalar) and item.when is None, structure.fields())
    return [item for item in fields if isinstance(item, Scalar)]
