"""Hypothesis strategies for values of any structure, made from its declaration."""

from __future__ import annotations

import importlib
import pkgutil
import struct
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

import qmnode.structures
from qmnode.structures.fields import Array, Choice, Data, Field, Length, Nested, Padding, Scalar, Text
from qmnode.structures.layout import Structure

if TYPE_CHECKING:
    from collections.abc import Iterator

_SMALL = 40
_CHARACTERS = st.characters(exclude_categories=("Cs",))
_NO_NULL = st.characters(exclude_categories=("Cs",), exclude_characters="\0")


def all_structures() -> list[type[Structure]]:
    """Every structure of the package, by import of all its modules."""
    for module in pkgutil.walk_packages(qmnode.structures.__path__, "qmnode.structures."):
        importlib.import_module(module.name)
    found = {kind for kind in _subclasses(Structure) if kind.__module__.startswith("qmnode.") and kind.PLAN.fields}
    return sorted(found, key=lambda kind: (kind.__module__, kind.__name__))


def _subclasses(kind: type) -> Iterator[type]:
    for below in kind.__subclasses__():
        yield below
        yield from _subclasses(below)


def values_of(kind: type[Structure]) -> st.SearchStrategy[Any]:
    """Values of a structure, built by its constructor."""
    given: dict[str, st.SearchStrategy[Any]] = {}
    for item in kind.PLAN.stored:
        constant = isinstance(item, Scalar) and item.const is not None
        if not constant and item.attribute != kind.PLAN.total and not _is_total(kind, item):
            given[item.attribute] = _field(item)
    return st.fixed_dictionaries(given).map(lambda values: kind(**values))


def _is_total(kind: type[Structure], item: Field) -> bool:
    return item.name == "PacketSize"  # filled in by what the header is put in, and bounded by it


def _field(item: Field) -> st.SearchStrategy[Any]:
    present = _present(item)
    return st.none() | present if item.when is not None else present


def _present(item: Field) -> st.SearchStrategy[Any]:
    match item:
        case Scalar():
            return _scalar(item)
        case Data():
            return _data(item)
        case Text():
            return _text(item)
        case Padding():
            return st.binary(max_size=item.align)
        case Nested():
            return values_of(item.structure)
        case Array():
            return st.lists(_field(item.item), max_size=3)
        case Choice():
            cases = [case for case in item.cases.values() if case is not None]
            empty = [st.none()] if None in item.cases.values() else []
            return st.one_of(*empty, *map(_field, cases))
    raise AssertionError(f"no strategy for {item!r}")


def _scalar(item: Scalar) -> st.SearchStrategy[Any]:
    if item.form != "number":
        return st.binary(min_size=item.size, max_size=item.size)
    if item.code in "fd":
        return st.floats(width=32 if item.code == "f" else 64, allow_nan=False)
    if item.strict and item.allowed is not None:
        if isinstance(item.allowed, range):
            return st.integers(item.allowed.start, item.allowed.stop - 1)
        return st.sampled_from([number for number in range(1 << 16) if number in item.allowed])
    signed = item.code.islower()
    bits = 8 * struct.calcsize(f"<{item.code}")
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) if signed else st.integers(0, (1 << bits) - 1)


def _limit(length: Length | None) -> int:
    if length is None or not isinstance(length.allowed, range):
        return _SMALL
    return min(_SMALL, length.allowed.stop - 1)


def _data(item: Data) -> st.SearchStrategy[bytes]:
    unit = item.length.unit if item.length is not None else 1
    most = _limit(item.length) if item.limit is None else min(_SMALL, item.limit)
    return st.binary(max_size=most).map(lambda content: content[: len(content) // unit * unit])


def _text(item: Text) -> st.SearchStrategy[str]:
    return st.text(_NO_NULL if item.scan else _CHARACTERS, max_size=12)
