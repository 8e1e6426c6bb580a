"""Flat readers: the fields of a structure and of its nested structures in one value, without the values in between.

A receiver decides by some forty fields of a message and keeps its packet as bytes. Making a value for each header only
to read it once costs more than the parsing. So a flat reader is made from the same declarations: it performs the same
checks in the same order, raises the same ``PacketError``, and leaves out fields that are not requested:

    class MessageHeaders(Flat, of=UserMessage):
        message_id: int = at("user_header.message_id")

A field of an absent header is None. Fields are final, which the type checker enforces.
"""

from __future__ import annotations

from codecs import utf_16_le_decode
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, dataclass_transform

from qmnode.structures.fields import Choice, Data, Field, Nested, Padding, Text
from qmnode.structures.generate_reader import ReaderCode
from qmnode.structures.plan import Plan, resolve

if TYPE_CHECKING:
    from qmnode.structures.layout import Structure


@dataclass(frozen=True, slots=True)
class At:
    """The path of a field, from the outermost structure."""

    path: str
    raw: bool = False


def at(path: str) -> Any:
    """Declare that an attribute is the field at ``path``."""
    return At(path)


def bytes_at(path: str) -> Any:
    """Declare that an attribute is the field at ``path`` as its bytes, checked but not parsed."""
    return At(path, raw=True)


def _field_at(kind: type[Structure], path: str) -> Field:
    first, _, rest = path.partition(".")
    item = kind.PLAN.field(first)
    if item is None:
        raise TypeError(f"{kind.__name__} has no field {first}")
    if not rest:
        return item
    if not isinstance(item, Nested):
        raise TypeError(f"{kind.__name__}.{first} has no fields")
    return _field_at(item.structure, rest)


def _text(slot: str, item: Text) -> property:
    get = attrgetter(slot)

    def read(self: Any) -> str | None:
        stored = get(self)
        return None if stored is None else utf_16_le_decode(stored[:-2], "surrogatepass")[0]

    return property(read, doc=f"{item.name}: {item.meaning}")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(at, bytes_at))
class FlatMeta(type):
    """Turns a class body of paths into a class with a slot for each, and a reader."""

    def __new__(
        mcs, name: str, bases: tuple[type, ...], body: dict[str, Any], *, of: type[Structure] | None = None
    ) -> FlatMeta:
        paths = {attribute: value.path for attribute, value in body.items() if isinstance(value, At)}
        raw = frozenset(value.path for value in body.values() if isinstance(value, At) and value.raw)
        body = {word: value for word, value in body.items() if word not in paths}
        slots: dict[str, str] = {}
        for attribute, path in paths.items():
            assert of is not None
            item = _field_at(of, path)
            slot = attribute
            if isinstance(item, Text):
                slot = f"_{attribute}"
                body[attribute] = _text(slot, item)
            slots[slot] = f"{item.name}: {item.meaning}"
        cls = super().__new__(mcs, name, bases, {**body, "__slots__": slots})
        if of is not None:
            made: Any = cls
            made.PATHS = paths
            slots_at = dict(zip(slots, paths.values(), strict=True))
            made._read = staticmethod(FlatCode(of, made, slots_at, raw).make())
        return cls


class Flat(metaclass=FlatMeta):
    """Base class of flat values."""

    PATHS: ClassVar[dict[str, str]]
    _read: ClassVar[Callable[[bytes, int], Any]]

    @classmethod
    def parse(cls, buffer: bytes) -> Self:
        """The fields of the structure that fills ``buffer``. Raises PacketError, also for bytes left over."""
        result: Self = cls._read(buffer, len(buffer))
        return result

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.PATHS)})"


_NOTHING: Final = "None"


class FlatCode(ReaderCode):
    """The parser of a structure that keeps variables instead of values for the structures inside it."""

    def __init__(self, owner: type[Structure], kind: Any, slots: dict[str, str], raw: frozenset[str]) -> None:
        super().__init__(owner, of_bytes=True)
        self.kind = kind
        self.slots = slots
        self.raw = raw
        self.passing = False  # over bytes that are checked, but not parsed
        self.wanted = set(slots.values())
        self.opened = {path.rpartition(".")[0] for path in self.wanted} - {""}
        self.found: dict[str, str] = {}
        self.prefix: str | None = ""

    def make(self) -> Callable[..., Any]:
        name = self.owner.PLAN.name
        self.add("p = origin = 0")
        self.structure(self.owner, {})
        self.settle()
        last = self.owner.PLAN.fields[-1].name
        self.add(f"if p != end: raise Bad({name!r}, {last!r}, p, f'{{end - p}} bytes are left over')")
        self.names["make"] = object.__new__
        self.add(f"s = make({self.name(self.kind, name)})")
        for slot, path in self.slots.items():
            self.add(f"s.{slot} = {self.found[path]}")
        self.add("return s")
        return self.compile("buf, end", f"<flat reader of {name}>")

    def path(self, attribute: str) -> str | None:
        """The path of a field of the current structure; None inside a structure that is kept whole."""
        if self.prefix is None:
            return None
        return f"{self.prefix}.{attribute}" if self.prefix else attribute

    def value(self, kind: type[Structure], plan: Plan, values: dict[str, str], whole: str) -> str:
        """Keep the variables without making a value, except for structures that are kept whole."""
        if self.passing:
            return _NOTHING
        if self.prefix is None:
            return super().value(kind, plan, values, whole)
        for attribute, variable in values.items():
            self.found[f"{self.prefix}.{attribute}" if self.prefix else attribute] = variable
        return _NOTHING

    def present(self, kind: type[Structure], item: Field, symbols: dict[str, str]) -> str:
        before = self.prefix
        path = self.path(item.attribute)
        if path in self.raw:
            return self.as_bytes(kind, item, symbols)
        if isinstance(item, Choice) or (isinstance(item, Nested) and path not in self.opened):
            self.prefix = None
        elif isinstance(item, Nested):
            self.prefix = path
        try:
            return super().present(kind, item, symbols)
        finally:
            self.prefix = before

    def as_bytes(self, kind: type[Structure], item: Field, symbols: dict[str, str]) -> str:
        """Emit a field that is checked and kept as its bytes; return its variable."""
        self.settle()
        begin, result, before = self.variable("begin"), self.variable(item.attribute), self.prefix
        absent = isinstance(item, Choice) and item.cases.get(0, item) is None
        if absent:  # the usual case: no bytes to skip
            assert isinstance(item, Choice)
            number, bit = resolve(kind.PLAN, item.on)
            self.add(f"if not {symbols[number]}{'' if bit is None else f' & {bit.mask}'}: {result} = b''")
            self.add("else:")
            self.depth += 1
        aligned = self.aligned
        self.add(f"{begin} = p")
        self.prefix, self.passing = None, True
        super().present(kind, item, symbols)
        self.prefix, self.passing = before, False
        self.settle()
        self.add(f"{result} = buf[{begin}:p]")
        if absent:
            self.depth -= 1
            self.aligned &= aligned
        return result

    def field(self, kind: type[Structure], item: Field, symbols: dict[str, str]) -> str:
        path = self.path(item.attribute)
        if item.when is None or path not in self.opened:
            return super().field(kind, item, symbols)
        number, bit = resolve(kind.PLAN, item.when)
        assert bit is not None
        self.settle()
        aligned, known = self.aligned, set(self.found)
        self.add(f"if {symbols[number]} & {bit.mask}:")
        self.depth += 1
        self.present(kind, item, symbols)
        self.settle()
        self.depth -= 1
        absent = [variable for path, variable in self.found.items() if path not in known and path in self.wanted]
        self.add(f"else: {' = '.join(absent)} = None")
        self.aligned &= aligned
        return _NOTHING

    def is_wanted(self, item: Field) -> bool:
        """Whether the bytes of a field are kept, or only skipped."""
        return not self.passing and (self.prefix is None or self.path(item.attribute) in self.wanted)

    def some_data(self, plan: Plan, item: Data, symbols: dict[str, str], result: str) -> None:
        if self.is_wanted(item):
            super().some_data(plan, item, symbols, result)
        else:
            self.add(f"p = {self.counted(plan, item, symbols) if not item.rest else 'end'}")

    def some_padding(self, plan: Plan, item: Padding, result: str) -> None:
        if self.is_wanted(item):
            super().some_padding(plan, item, result)
            return
        if item.clipped:
            self.add(f"p += -p & {item.align - 1}")
            self.add("if p > end: p = end")
        else:
            before = self.variable("q")
            self.add(f"{before}, p = p, p + (-p & {item.align - 1})")
            self.add(f"if p > end: raise short({plan.name!r}, {item.name!r}, {before}, p - {before}, end)")
