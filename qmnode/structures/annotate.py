"""Decode trees: each field of a value with its name, value, offset, width and meaning. For people, so not optimised."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from qmnode.structures.errors import PacketError
from qmnode.structures.fields import Array, Bits, Choice, Data, Field, Length, Nested, Octets, Scalar, Text
from qmnode.structures.plan import Plan, resolve, show

if TYPE_CHECKING:
    from qmnode.structures.layout import Structure


@dataclass(slots=True)
class Annotation:
    """One line of a decode tree.

    ``name`` and ``section`` are the specification's; ``value`` is the field's value (text decoded), None for a
    structure whose ``children`` are its fields. ``offset`` and ``width`` are in bytes; ``text`` is the value for
    people; ``problem`` names the MUST that the value breaks.
    """

    name: str
    attribute: str
    value: Any
    offset: int
    width: int
    meaning: str
    text: str = ""
    section: str = ""
    structure: str = ""
    problem: str | None = None
    bits: list[BitsAnnotation] = field(default_factory=list)
    children: list[Annotation] = field(default_factory=list)

    def walk(self) -> Iterator[Annotation]:
        """Iterate over this line and all lines under it, in the order of the bytes."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(slots=True)
class BitsAnnotation:
    """One bit field of a flags word: bits ``shift`` to ``shift + width - 1``."""

    name: str
    value: int
    shift: int
    width: int
    meaning: str
    text: str = ""
    problem: str | None = None


def annotate(value: Structure, offset: int = 0) -> Annotation:
    """The decode tree of a value that was parsed at ``offset``."""
    plan = value.PLAN
    summary = (type(value).__doc__ or plan.name).strip().splitlines()[0]
    root = Annotation(plan.name, "", None, offset, value.size, summary, section=plan.section, structure=plan.name)
    at = offset
    for item in plan.fields:
        for line in _field(value, item, at):
            root.children.append(line)
            at = line.offset + line.width
    return root


def _field(value: Structure, item: Field, at: int) -> Iterator[Annotation]:
    plan = value.PLAN
    held: Any = getattr(value, item.attribute)
    if held is None:
        return
    if isinstance(item, Choice):
        number, bit = resolve(plan, item.on)
        selector: Any = value
        for word in number.split("."):
            selector = getattr(selector, word)
        case = item.cases[selector if bit is None else bit.get(selector)]
        assert case is not None
        yield _line(value, case, held, at, name=item.name, attribute=item.attribute, meaning=item.meaning)
    else:
        yield _line(value, item, held, at, name=item.name, attribute=item.attribute, meaning=item.meaning)


def _line(owner: Structure, item: Field, held: Any, at: int, *, name: str, attribute: str, meaning: str) -> Annotation:
    match item:
        case Nested():
            tree = annotate(held, at)
            tree.name, tree.attribute = name or tree.name, attribute
            tree.meaning = meaning or tree.meaning
            return tree
        case Array():
            return _array(owner, item, held, at, name=name, attribute=attribute, meaning=meaning)
        case Scalar():
            line = Annotation(
                name, attribute, held, at, item.size, meaning, show(item, held), structure=owner.PLAN.name
            )
            _explain(owner.PLAN, item, held, line)
            return line
        case Text():
            raw_size = _raw_size(owner, item, held)
            return Annotation(name, attribute, held, at, raw_size, meaning, repr(held), structure=owner.PLAN.name)
        case _:
            size = len(held)
            line = Annotation(name, attribute, held, at, size, meaning, f"{size} bytes", structure=owner.PLAN.name)
            if isinstance(item, Data) and item.holds is not None and held:
                _look_inside(item.holds, held, line)
            return line


def _look_inside(kind: type[Structure], held: Octets, line: Annotation) -> None:
    """Annotate bytes as the structure that they should contain."""
    try:
        value = kind.parse(bytes(held))
    except PacketError as error:
        line.problem = str(error)
    else:
        line.children = annotate(value, line.offset).children


def _raw_size(owner: Structure, item: Text, held: str) -> int:
    stored: Any = owner
    if item.attribute:
        return len(stored[owner.PLAN.index(item.attribute)])
    return len(held.encode("utf-16-le", "surrogatepass")) + (2 if item.terminated or item.scan else 0)


def _array(owner: Structure, item: Array, held: Any, at: int, *, name: str, attribute: str, meaning: str) -> Annotation:
    tree = Annotation(name, attribute, None, at, 0, meaning, f"{len(held)} items", structure=owner.PLAN.name)
    place = at
    for number, one in enumerate(held):
        line = _line(owner, item.item, one, place, name=f"[{number}]", attribute=str(number), meaning="")
        tree.children.append(line)
        place += line.width
    tree.width = place - at
    return tree


def _explain(plan: Plan, item: Scalar, held: Any, line: Annotation) -> None:
    """Add the names of values, the bit fields, and the broken MUST, if any."""
    if held in item.values:
        line.text += f" {item.values[held]}"
    if item.form == "number" and item.allowed is not None and held not in item.allowed:
        line.problem = f"{plan.name}.{item.name} must not be {show(item, held)}"
    if isinstance(item, Length):
        line.meaning = line.meaning or f"Size of {item.of}"
    if item.bits is not None:
        line.bits = [_bits(plan, item, part, value) for part, value in item.bits.parts(held)]
        problems = [part.problem for part in line.bits if part.problem]
        line.problem = line.problem or (problems[0] if problems else None)


def _bits(plan: Plan, item: Scalar, part: Bits, value: int) -> BitsAnnotation:
    problem = None
    if part.allowed is not None and value not in part.allowed:
        problem = f"{plan.name}.{item.name}.{part.name} must not be 0x{value:X}"
    text = part.values.get(value, "")
    return BitsAnnotation(part.name, value, part.shift, part.width, part.meaning, text, problem)


__all__ = ["Annotation", "BitsAnnotation", "annotate"]
