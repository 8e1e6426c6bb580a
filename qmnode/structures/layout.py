"""The layout engine: a structure is declared once, as data, and its parser and writer are made from the declaration.

    class BaseHeader(Structure, section="MS-MQMQ 2.2.19.1"):
        version_number: int = const8(0, "VersionNumber", 0x10, "Version of the packet format")
        reserved: int       = u8(1, "Reserved", "Any value", default=0)
        flags: int          = u16(2, "Flags", "Options", bits=BaseFlags)

A structure is an immutable tuple with named fields. ``BaseHeader.parse(bytes)`` and ``value.write()`` are inverses of
each other in both directions: bytes that may have any value (padding, reserved bits) are kept. Any bytes give a value
or ``PacketError``. Lengths are not fields of a value but derived from the fields that they count; a constructor also
sets the flags for optional parts, totals and padding.

The vocabulary of declarations is in ``fields.py``, the code generator in ``generate.py``.
"""

from __future__ import annotations

import dataclasses
import operator
import struct
from _collections import _tuplegetter  # type: ignore[import-not-found]  # as namedtuple does: access at C speed
from codecs import utf_16_le_decode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast, dataclass_transform

from qmnode.structures.errors import PacketError
from qmnode.structures.fields import (
    Array,
    Bits,
    Choice,
    Data,
    DeclaredStructure,
    Field,
    Length,
    Nested,
    Octets,
    Padding,
    Plan,
    Scalar,
    Text,
    array,
    choice,
    const8,
    const16,
    const32,
    const_bytes,
    data,
    f32,
    f64,
    guid,
    i8,
    i16,
    i32,
    i64,
    length8,
    length16,
    length32,
    nested,
    padding,
    prepare,
    raw,
    resolve,
    rest,
    scalar_problem,
    show,
    text,
    text_to_null,
    u8,
    u16,
    u32,
    u64,
    view,
)
from qmnode.structures.generate import ReaderCode, WriterCode

Raw = dict[str, Any]
if TYPE_CHECKING:
    _Base = object
else:
    _Base = tuple

Buffer = bytes | bytearray | memoryview

_join = b"".join


def _text_property(place: int, field: Text) -> property:
    if not (field.terminated or field.scan):
        return property(lambda self: utf_16_le_decode(self[place], "surrogatepass")[0], doc=field.meaning)

    def read(self: Any) -> str:
        return utf_16_le_decode(self[place][:-2], "surrogatepass")[0]

    return property(read, doc=field.meaning)


def _length_property(place: int, field: Length, of_items: bool) -> property:
    get = itemgetter(place)

    def read(self: Any) -> int:
        size = len(get(self))
        return (size if of_items else size // field.unit * field.per) + field.bias

    return property(read, doc=field.meaning)


def _accessor(plan: Plan, field: Field) -> Any:
    if isinstance(field, Length):
        return _length_property(plan.index(field.of), field, isinstance(plan.field(field.of), Array))
    if isinstance(field, Text):
        return _text_property(plan.index(field.attribute), field)
    return _tuplegetter(plan.index(field.attribute), f"{field.name}: {field.meaning}")


@dataclass_transform(
    frozen_default=True,
    kw_only_default=True,
    field_specifiers=(
        u8,
        u16,
        u32,
        u64,
        i8,
        i16,
        i32,
        i64,
        f32,
        f64,
        const8,
        const16,
        const32,
        const_bytes,
        raw,
        guid,
        length8,
        length16,
        length32,
        data,
        view,
        rest,
        text,
        text_to_null,
        padding,
        nested,
        array,
        choice,
    ),
)
class StructureMeta(type):
    """Turns a class body of declarations into a structure."""

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        body: dict[str, Any],
        *,
        section: str = "",
        title: str = "",
        total: str | None = None,
        outside_total: tuple[str, ...] = (),
        requires: Mapping[str, int] | None = None,
        floating: bool = False,
    ) -> StructureMeta:
        declared = {attribute: item for attribute, item in body.items() if isinstance(item, Field)}
        taken = {word for base in bases for word in dir(base)}
        for attribute, item in declared.items():
            if attribute in taken:
                raise TypeError(f"{name}.{attribute}: the name is taken, choose another for {item.name}")
            item.attribute = attribute
        plan = Plan(
            name=title or name, section=section, fields=tuple(declared.values()), total=total,
            outside_total=frozenset(outside_total), requires=dict(requires or {}), floating=floating,
        )  # fmt: skip
        prepare(plan)
        places = {item.attribute: place for place, item in enumerate(plan.stored)}
        body = {**body, "__slots__": (), "PLAN": plan, "_places": places}
        body.update({attribute: _accessor(plan, item) for attribute, item in declared.items()})
        cls = super().__new__(mcs, name, bases, body)
        if declared:
            made: Any = cls
            made._read_bytes = staticmethod(_made_when_used(made, "_read_bytes"))
            made._read_view = staticmethod(_made_when_used(made, "_read_view"))
            made._parts = _writer_made_when_used(made)
        return cls


def _made_when_used(cls: Any, reader: str) -> Callable[..., Any]:
    """A parser that is made at its first use, when every structure that it names is declared."""

    def first_use(*arguments: Any) -> Any:
        setattr(cls, reader, staticmethod(ReaderCode(cls, of_bytes=reader == "_read_bytes").make()))
        return getattr(cls, reader)(*arguments)

    return first_use


def _writer_made_when_used(cls: Any) -> Callable[..., Any]:
    """A writer that is made at its first use: a process never writes most structures."""

    def first_use(self: Any) -> Any:
        cls._parts = WriterCode(cls).make()
        return cls._parts(self)

    return first_use


class Structure(_Base, metaclass=StructureMeta):
    """Base of all structures. Keyword arguments of the constructor are the fields; see the module for the rules.

    ``section``: the specification's section. ``total``: the path of the field that holds the size of the structure,
    except for the fields ``outside_total``. ``requires``: values that flags or numbers must have, by path.
    ``floating``: the structure may start anywhere, so its padding depends on where it is put.
    """

    PLAN: ClassVar[Plan]
    _places: ClassVar[dict[str, int]]
    _read_bytes: ClassVar[Callable[..., Any]]
    _read_view: ClassVar[Callable[..., Any]]

    if not TYPE_CHECKING:

        def __new__(cls, **values: Any) -> Self:
            return construct(cls, values)

        def __eq__(self, other: object) -> bool:
            return self.__class__ is other.__class__ and tuple.__eq__(self, other)

        def __ne__(self, other: object) -> bool:
            return not self == other

        __hash__ = tuple.__hash__

    def _parts(self) -> list[Any]:
        raise NotImplementedError

    @classmethod
    def parse(cls, buffer: Buffer, offset: int = 0) -> Self:
        """The structure that fills ``buffer`` from ``offset`` to its end, exactly. Raises PacketError."""
        if buffer.__class__ is bytes and offset == 0:  # the hot path: one call less
            value, stop = cls._read_bytes(buffer, 0, len(buffer), 0)
        else:
            value, stop = cls.parse_from(buffer, offset)
        if stop != len(buffer):
            raise PacketError(
                cls.PLAN.name, cls.PLAN.fields[-1].name, stop, f"{len(buffer) - stop} bytes are left over"
            )
        result: Self = value
        return result

    @classmethod
    def parse_from(cls, buffer: Buffer, offset: int = 0, end: int | None = None) -> tuple[Self, int]:
        """The structure at ``offset``, and the offset after it; bytes at or after ``end`` are not read."""
        if not isinstance(buffer, bytes):
            buffer = memoryview(buffer).cast("B")
        size = len(buffer)
        if end is None or end > size:
            end = size
        if not 0 <= offset <= end:
            raise PacketError(cls.PLAN.name, cls.PLAN.fields[0].name, offset, f"starts outside of the {end} bytes")
        reader = cls._read_bytes if isinstance(buffer, bytes) else cls._read_view
        result: tuple[Self, int] = reader(buffer, offset, end, offset)
        return result

    def buffers(self) -> list[Buffer]:
        """The byte runs of the structure, for ``writelines``; bodies are not copied."""
        return self._parts()

    def write(self) -> bytes:
        """The structure as bytes."""
        return _join(self._parts())

    @property
    def size(self) -> int:
        """The size of the structure in bytes."""
        return sum(map(len, self._parts()))

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed; flags, totals and padding are set as by the constructor."""
        values: Any = self
        raw = {field.attribute: value for field, value in zip(self.PLAN.stored, tuple(values), strict=True)}
        changed: Self = adopt(type(self), raw, changes)
        return changed

    def put(self, **stored: Any) -> Self:
        """A copy with stored fields as given, for code that runs for every message, where ``replace`` is too slow.

        There are no checks; flags, totals and padding stay as they are unless they are given too. Text is given as its
        bytes.
        """
        places = self._places
        values: list[Any] = list(cast("tuple[Any, ...]", self))
        for attribute, value in stored.items():
            values[places[attribute]] = value
        make: Any = tuple.__new__
        changed: Self = make(type(self), values)
        return changed

    @classmethod
    def fields(cls) -> tuple[Field, ...]:
        """The declarations, lengths included, in the order of the bytes."""
        return cls.PLAN.fields

    @classmethod
    def section(cls) -> str:
        """The specification and section that define the structure."""
        return cls.PLAN.section

    @classmethod
    def annotate(cls, buffer: Buffer, offset: int = 0) -> Annotation:
        """Parse, and return every field with its name, value, offset, width and meaning, as a tree."""
        value, _ = cls.parse_from(buffer, offset)
        return annotate(value, offset)

    def __repr__(self) -> str:
        inner = ", ".join(f"{field.attribute}={getattr(self, field.attribute)!r}" for field in self.PLAN.stored)
        return f"{type(self).__name__}({inner})"

    if not TYPE_CHECKING:

        def __getnewargs_ex__(self) -> Any:
            return (), {field.attribute: getattr(self, field.attribute) for field in self.PLAN.stored}

        def __reduce__(self) -> Any:
            return _restore, (type(self), self.write())


def _restore(cls: type[Structure], written: bytes) -> Structure:
    return cls.parse(written)


# Offsets and ``struct`` codes, for code that runs once for each message and reads a few fields without parsing the rest


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


def size_of(structure: type[DeclaredStructure]) -> int:
    """The size in bytes of a structure that has only fields of fixed width."""
    fields: tuple[Any, ...] = structure.PLAN.fields
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


# ----------------------------------------------------------------------------------------------------------------------
# Builds values from the arguments of a caller: checks each field and sets the dependent ones.
#
# Dependent fields are the flags for optional parts, the type of a choice, required flags, padding, and totals.


def construct(cls: type[Structure], values: Raw) -> Any:
    """The value of ``cls`` with these fields. Raises TypeError for a wrong name, PacketError for a wrong value."""
    plan = cls.PLAN
    raw: Raw = {}
    for field in plan.stored:
        if field.attribute in values:
            raw[field.attribute] = stored_form(plan, field, values[field.attribute])
        elif field.required:
            raise TypeError(f"{plan.name}: {field.attribute} is missing")
        else:
            raw[field.attribute] = stored_form(plan, field, field.default)
    _no_other(plan, values)
    return settle(cls, raw, 0)


def adopt(cls: type[Structure], raw: Raw, changes: Raw) -> Any:
    """A copy of the stored fields ``raw`` with a caller's changes."""
    plan = cls.PLAN
    _no_other(plan, changes)
    for field in plan.stored:
        if field.attribute in changes:
            raw[field.attribute] = stored_form(plan, field, changes[field.attribute])
    return settle(cls, raw, 0)


def _no_other(plan: Plan, values: Raw) -> None:
    for name in values:
        if plan.field(name) is None or plan.field(name) not in plan.stored:
            raise TypeError(f"{plan.name} has no field {name} to set")


def _bad(plan: Plan, field: Field, sentence: str) -> PacketError:
    return PacketError(plan.name, field.name, None, sentence)


# --- one field --------------------------------------------------------------------------------------------------------
def stored_form(plan: Plan, field: Field, value: Any) -> Any:
    """A field's value as the structure keeps it: text as its bytes, arrays as tuples."""
    if value is None and (field.when is not None or isinstance(field, Choice)):
        return None
    match field:
        case Scalar():
            return _scalar(plan, field, value)
        case Data():
            return _data(plan, field, value)
        case Padding():
            return bytes(value)
        case Text():
            return _text(plan, field, value)
        case Nested():
            kind = field.structure
            if type(value) is not kind:
                raise _bad(plan, field, f"must be a {kind.__name__}, is {value!r:.60}")
            return value
        case Array():
            items = tuple(stored_form(plan, field.item, item) for item in value)
            _countable(plan, field, field.length, len(items))
            return items
        case Choice():
            return value  # settle checks it, as it knows the case
    raise AssertionError(f"no such kind of field: {field!r}")


def _scalar(plan: Plan, field: Scalar, value: Any) -> Any:
    if field.form != "number":
        if not isinstance(value, bytes | bytearray | memoryview):  # bytes(16) would be 16 zeros
            raise _bad(plan, field, f"must be bytes, is {value!r:.60}")
        value = bytes(value)
        if len(value) != field.size:
            raise _bad(plan, field, f"must have {field.size} bytes, has {len(value)}")
    elif field.code not in "fd":
        value = int(operator.index(value))  # the plain number of an enum's member
    try:
        packed = struct.pack(f"<{field.code}", value)
    except (struct.error, OverflowError) as error:
        raise _bad(plan, field, f"{value!r:.60} does not fit: {error}") from error
    if field.code in "fd":  # the part of a Python float that 4 bytes keep
        value = struct.unpack(f"<{field.code}", packed)[0]
    problem = scalar_problem(field, value)
    if problem is not None:
        raise _bad(plan, field, problem)
    return value


def _data(plan: Plan, field: Data, value: Any) -> Any:
    if isinstance(value, memoryview) and field.view:
        value = value if value.format == "B" and value.ndim == 1 else value.cast("B")
    elif not isinstance(value, bytes):
        value = bytes(memoryview(value))
    if field.limit is not None and len(value) > field.limit:
        raise _bad(plan, field, f"has {len(value)} bytes, at most {field.limit} are allowed")
    _countable(plan, field, field.length, len(value))
    return value


def _text(plan: Plan, field: Text, value: str) -> bytes | str:
    if field.scan and "\0" in value:
        raise _bad(plan, field, "has a null character inside")
    written = value.encode("utf-16-le", "surrogatepass")
    if (field.terminated or field.scan) and (value or not field.empty_is_absent):
        written += b"\0\0"
    _countable(plan, field, field.length, len(written))
    return written if field.attribute else value


def _countable(plan: Plan, field: Field, length: Length | None, size: int) -> None:
    """Raise if a length field cannot hold the size."""
    if length is None:
        return
    if not isinstance(field, Array):
        if size % length.unit:
            raise _bad(plan, field, f"has {size} bytes, must be a multiple of {length.unit}")
        size = size // length.unit * length.per
    size += length.bias
    if size >> (8 * length.size) or (length.allowed is not None and size not in length.allowed):
        raise _bad(plan, field, f"is too large: {length.name} would be {size}")


# --- what follows from the rest ---------------------------------------------------------------------------------------
def settle(cls: type[Structure], raw: Raw, start: int) -> Any:
    """Set flags, choices, padding and totals of a value that starts at ``start`` (counted from its alignment)."""
    plan = cls.PLAN
    for path, value in plan.requires.items():
        _put(plan, raw, path, value)
    for field in plan.stored:
        if field.when is not None:
            present = raw[field.attribute] is not None
            if bool(_get(plan, raw, field.when)) is not present:
                _put(plan, raw, field.when, int(present))
        elif isinstance(field, Choice):
            raw[field.attribute] = _choose(cls, field, raw)
    inside = _place(cls, raw, start)
    if plan.total is not None:
        _put(plan, raw, plan.total, inside)
        stated = plan.field(plan.total)
        if stated is not None:
            stored_form(plan, stated, inside)  # raises if the field cannot hold the size
    make: Any = tuple.__new__
    return make(cls, raw.values())


def _choose(cls: type[Structure], field: Choice, raw: Raw) -> Any:
    """Check the value of a choice against its case, or set ``on`` to the first case that fits."""
    plan, value = cls.PLAN, raw[field.attribute]
    now = _get(plan, raw, field.on)
    for number in (now, *field.cases):
        if number not in field.cases:
            continue
        case = field.cases[number]
        if case is None:
            if value is None:
                _put(plan, raw, field.on, number)
                return None
            continue
        if value is None or (isinstance(case, Nested) and type(value) is not case.structure):
            continue
        form = _stored_or_none(plan, case, value)
        if form is not None:
            _put(plan, raw, field.on, number)
            return form
    raise _bad(plan, field, f"{value!r:.60} is of no kind that {field.name} can be")


def _stored_or_none(plan: Plan, case: Field, value: Any) -> Any:
    try:
        return stored_form(plan, case, value)
    except (PacketError, TypeError, AttributeError):
        return None


def _place(cls: type[Structure], raw: Raw, start: int) -> int:
    """Set padding and the items whose padding depends on their place. Return the size that counts for the total."""
    plan = cls.PLAN
    at = start
    inside = None
    for field in plan.fields:
        if field.attribute in plan.outside_total and inside is None:
            inside = at - start
        if field.derived:
            assert isinstance(field, Length)
            at += field.size
            continue
        value = raw[field.attribute]
        if isinstance(field, Padding):
            need = -at % field.align
            value = raw[field.attribute] = value[:need].ljust(need, b"\0")
        elif isinstance(field, Array | Choice | Nested):
            value = raw[field.attribute] = _placed(value, at)
        at += _size(field, value)
    return at - start if inside is None else inside


def _placed(value: Any, at: int) -> Any:
    """A structure, or a tuple of them, with the padding that it has at ``at``."""
    plan = getattr(value, "PLAN", None)
    if plan is not None:
        if not plan.floating:
            return value
        raw = {field.attribute: part for field, part in zip(plan.stored, value, strict=True)}
        return settle(type(value), raw, at)
    if not isinstance(value, tuple):
        return value
    items = []
    for item in value:
        items.append(_placed(item, at))
        at += getattr(items[-1], "size", 0)
    return tuple(items)


def _size(field: Field, value: Any) -> int:
    if value is None:
        return 0
    match field:
        case Scalar():
            return field.size
        case Text(attribute=""):
            return len(value.encode("utf-16-le", "surrogatepass")) + 2 * (field.terminated or field.scan)
        case Data() | Text() | Padding():
            return len(value)
        case Nested():
            return int(value.size)
        case Array():
            return sum(_size(field.item, item) for item in value)
        case Choice():
            case = next(case for case in field.cases.values() if case is not None and _is_case(case, value))
            return _size(case, value)
    raise AssertionError(f"no such kind of field: {field!r}")


def _is_case(case: Field, value: Any) -> bool:
    return not isinstance(case, Nested) or type(value) is case.structure


def _get(plan: Plan, raw: Raw, path: str) -> int:
    number, bit = resolve(plan, path)
    first, *rest = number.split(".")
    value = raw[first]
    for word in rest:
        value = getattr(value, word)
    word_value: int = value
    return word_value if bit is None else bit.get(word_value)


def _put(plan: Plan, raw: Raw, path: str, value: int) -> None:
    number, bit = resolve(plan, path)
    if _get(plan, raw, path) == value:
        return
    word = value if bit is None else bit.put(_get(plan, raw, number), value)
    first, *rest = number.split(".")
    raw[first] = _with(raw[first], rest, word)


def _with(holder: Any, path: list[str], value: int) -> Any:
    if not path:
        return value
    first, *rest = path
    return holder.replace(**{first: _with(getattr(holder, first), rest, value)})


# ----------------------------------------------------------------------------------------------------------------------
# Decode trees: each field of a value with its name, value, offset, width and meaning. For people, so not optimised.


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
    bits: list[BitsAnnotation] = dataclasses.field(default_factory=list)
    children: list[Annotation] = dataclasses.field(default_factory=list)

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


def _look_inside(kind: type[DeclaredStructure], held: Octets, line: Annotation) -> None:
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
