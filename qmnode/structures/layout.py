"""The layout engine: a structure is declared once, as data, and its parser and writer are made from the declaration.

    class BaseHeader(Structure, section="MS-MQMQ 2.2.19.1"):
        version_number: int = const8(0, "VersionNumber", 0x10, "Version of the packet format")
        reserved: int       = u8(1, "Reserved", "Any value", default=0)
        flags: int          = u16(2, "Flags", "Options", bits=BaseFlags)

A structure is an immutable tuple with named fields. ``BaseHeader.parse(bytes)`` and ``value.write()`` are inverses of
each other in both directions: bytes that may have any value (padding, reserved bits) are kept. Any bytes give a value
or ``PacketError``. Lengths are not fields of a value but derived from the fields that they count; a constructor also
sets the flags for optional parts, totals and padding.

The vocabulary of declarations is in ``fields.py``, the code generator in ``generate.py`` and its neighbours,
constructors in ``construct.py``, decode trees in ``annotate.py``.
"""

from __future__ import annotations

from _collections import _tuplegetter  # type: ignore[import-not-found]  # as namedtuple does: access at C speed
from codecs import utf_16_le_decode
from itertools import takewhile
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast, dataclass_transform

from qmnode.structures.construct import adopt, construct
from qmnode.structures.errors import PacketError
from qmnode.structures.fields import (
    Array,
    Field,
    Length,
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
    raw,
    rest,
    text,
    text_to_null,
    u8,
    u16,
    u32,
    u64,
    view,
)
from qmnode.structures.generate_reader import ReaderCode
from qmnode.structures.generate_writer import WriterCode
from qmnode.structures.plan import Plan, prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from qmnode.structures.annotate import Annotation

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
        from qmnode.structures.annotate import annotate  # imported here because only decoders need it

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
