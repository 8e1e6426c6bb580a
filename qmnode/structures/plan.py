"""Analysis of a declaration before code is made of it: stored fields, paths to flags, runs, least sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qmnode.structures.errors import PacketError
from qmnode.structures.fields import (
    Array,
    Bits,
    Choice,
    Data,
    Field,
    Length,
    Nested,
    Padding,
    Scalar,
    Text,
)


@dataclass(slots=True)
class Plan:
    """The checked declaration of one structure."""

    name: str
    section: str
    fields: tuple[Field, ...]
    total: str | None
    outside_total: frozenset[str]
    requires: dict[str, int]
    floating: bool
    stored: tuple[Field, ...] = ()

    def __post_init__(self) -> None:
        self.stored = tuple(item for item in self.fields if not item.derived)

    def index(self, attribute: str) -> int:
        """The place of a stored field in the tuple."""
        return next(place for place, item in enumerate(self.stored) if item.attribute == attribute)

    def field(self, attribute: str) -> Field | None:
        return next((item for item in self.fields if item.attribute == attribute), None)


def prepare(plan: Plan) -> None:
    """Link lengths to the fields that they count, check offsets. Raises TypeError for an invalid declaration."""
    place: int | None = 0
    before: Field | None = None
    for item in plan.fields:
        if item.offset is not None and item.offset != place:
            raise TypeError(f"{plan.name}.{item.name}: declared at {item.offset}, the fields before it end at {place}")
        if isinstance(item, Length):
            counted = plan.field(item.of)
            if not isinstance(counted, Data | Text | Array):
                raise TypeError(f"{plan.name}.{item.name} counts {item.of!r}, which cannot be counted")
            counted.length = item
        if isinstance(item, Padding) and isinstance(before, Data) and before.when is None:
            before.padding = item
        before = item
        size = fixed_size(item)
        place = None if place is None or size is None else place + size
    for item in plan.fields:
        uncounted = isinstance(item, Data | Text | Array) and item.length is None
        if uncounted and not getattr(item, "rest", False) and not getattr(item, "scan", False):
            raise TypeError(f"{plan.name}.{item.name}: nothing counts it")
        if isinstance(item, Array) and least_size(item.item) < 1:
            raise TypeError(f"{plan.name}.{item.name}: its items may be of no size")


def fixed_size(item: Field) -> int | None:
    """The size of a field that is always present and of constant size, else None."""
    if item.when is not None:
        return None
    if isinstance(item, Scalar):
        return item.size
    if isinstance(item, Nested):
        sizes = [fixed_size(part) for part in item.structure.PLAN.fields]
        return None if None in sizes else sum(size for size in sizes if size is not None)
    return None


def least_size(item: Field) -> int:
    """The least number of bytes a field takes."""
    match item:
        case _ if item.when is not None:
            return 0
        case Scalar():
            return item.size
        case Text():
            return 2 if item.scan or (item.terminated and not item.empty_is_absent) else 0
        case Nested():
            return sum(least_size(part) for part in item.structure.PLAN.fields)
        case Choice():
            return min(0 if case is None else least_size(case) for case in item.cases.values())
        case _:
            return 0


def resolve(plan: Plan, path: str) -> tuple[str, Bits | None]:
    """Split a path into the path of a number and, if its last part names one, a bit field of it."""
    words = path.split(".")
    here: Plan | None = plan
    found: Field | None = None
    for count, word in enumerate(words):
        step = here.field(word) if here is not None else None
        if step is None:
            flags = found.bits if isinstance(found, Scalar) else None
            if flags is None or word not in flags.FIELDS or count != len(words) - 1:
                raise TypeError(f"{plan.name}: no such field as {path}")
            return ".".join(words[:-1]), flags.FIELDS[word]
        found = step
        here = found.structure.PLAN if isinstance(found, Nested) else None
    return path, None


# --- what goes wrong, out of the way of the code that is made ---------------------------------------------------------
def short(structure: str, name: str, at: int, need: int, end: int) -> PacketError:
    """The error of a field that needs more bytes than are left."""
    return PacketError(structure, name, at, f"needs {need} bytes, {max(end - at, 0)} are left")


def short_run(structure: str, run: tuple[Field, ...], at: int, end: int) -> PacketError:
    """The error of a run of fixed fields that does not fit: names the first field that does not."""
    for item in run:
        assert isinstance(item, Scalar)
        if at + item.size > end:
            return short(structure, item.name, at, item.size, end)
        at += item.size
    raise AssertionError("the run fits")


def wrong_run(structure: str, run: tuple[Field, ...], at: int, values: tuple[Any, ...]) -> PacketError:
    """The error of a run of fixed fields with a forbidden value: names the first such field."""
    for item, value in zip(run, values, strict=True):
        assert isinstance(item, Scalar)
        problem = scalar_problem(item, value)
        if problem is not None:
            return PacketError(structure, item.name, at, problem)
        at += item.size
    raise AssertionError("all values are allowed")


def scalar_problem(item: Scalar, value: Any) -> str | None:
    """The parser's objection to a value, or None."""
    if item.const is not None and value != item.const:
        return f"must be {show(item, item.const)}, is {show(item, value)}"
    if item.strict and item.allowed is not None and value not in item.allowed:
        return f"{show(item, value)} is not allowed"
    return None


def show(item: Scalar, value: Any) -> str:
    """A number in hexadecimal as the specifications print it, bytes as hex."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"0x{value:0{2 * item.size}X}" if value >= 0 else str(value)
    return bytes(value).hex() if isinstance(value, bytes) else str(value)


__all__ = ["Padding", "Plan", "fixed_size", "least_size", "prepare", "resolve"]
