"""Structures and parameter lists, declared once as classes; both representations come from the declaration.

    class RemoteReadDesc(NdrStructure):
        remote_queue: int = member(U32, "hRemoteQueue")
        buffer: bytes | None = member(Pointer(Array(U8, varying=True)), "lpBuffer", default=None)
        size: int = counts("buffer", U32, "dwSize")

A member that counts another is not given and not kept: it is derived from the counted member, and checked when read.
Consecutive fixed members are packed in one step.
"""

from __future__ import annotations

import dataclasses
import struct
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self, dataclass_transform

from qmnode.dcerpc.errors import NdrError, RangeError
from qmnode.dcerpc.ndr.types import (
    POINTER_CODEC,
    Array,
    Codec,
    Declared,
    NdrReader,
    NdrWriter,
    Pointer,
    Representation,
    UnionCodec,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclasses.dataclass(slots=True)
class Member:
    """The declaration of one member."""

    type: Declared
    name: str
    default: Any
    allowed: range | None
    switch: str
    counted: str = ""
    role: Literal["", "size", "length", "both"] = ""
    attribute: str = ""


_REQUIRED: Final = object()


def member(
    type: Declared, name: str, *, default: Any = _REQUIRED, allowed: range | None = None, switch: str = ""
) -> Any:
    """A member, with the specification's name. ``allowed``: the range; ``switch``: the member that selects the case."""
    return Member(type, name, default, allowed, switch)


def counts(
    what: str,
    type: Declared,
    name: str,
    *,
    role: Literal["size", "length", "both"] = "both",
    allowed: range | None = None,
    init: Literal[False] = False,
) -> Any:
    """The number of items of the member ``what``: its size_is, its length_is, or both."""
    return Member(type, name, 0, allowed, "", what, role)


# --- steps: runs of fixed members, and the others one by one ----------------------------------------------------------
class _Run:
    """Members of fixed form that are packed together."""

    __slots__ = ("_checks", "_get", "_has_several", "_is_plain", "_names", "_pointers", "align", "form")

    def __init__(self, align: int, members: Sequence[tuple[Member, Codec]], counters: _Counters, order: str) -> None:
        self.align = align
        form, offset = order, 0
        for _, codec in members:
            gap = -offset % codec.align
            form += "x" * gap + codec.code
            offset += gap + struct.calcsize(f"<{codec.code}")
        self.form = struct.Struct(form)
        self._names = [one.attribute for one, _ in members]
        self._get = attrgetter(*self._names)
        self._checks = [(place, one) for place, (one, _) in enumerate(members) if one.allowed is not None]
        self._pointers = [
            (place, one.attribute, codec.referent, *counters(one.attribute))
            for place, (one, codec) in enumerate(members)
            if isinstance(codec, POINTER_CODEC)
        ]
        self._has_several = len(members) > 1
        self._is_plain = not self._checks and not self._pointers

    @property
    def is_flat(self) -> bool:
        """Whether nothing in it is deferred."""
        return not self._pointers

    def pack(self, value: Any) -> bytes:
        """The members of a flat run that begins the stub data."""
        got: Any = self._get(value)
        if not self._has_several:
            got = (got,)
        for place, one in self._checks:
            _check(one, got[place])
        return self.form.pack(*got)

    def unpack(self, data: bytes, target: Any) -> None:
        """Read a flat run that begins the stub data."""
        form = self.form
        if form.size > len(data):
            raise NdrError(f"{form.size} bytes at 0, but the stub data ends at {len(data)}")
        values = form.unpack_from(data)
        for place, one in self._checks:
            _check(one, values[place])
        target.__dict__.update(zip(self._names, values, strict=True))

    def write(self, writer: NdrWriter, value: Any) -> None:
        got: Any = self._get(value)
        if self._is_plain:
            writer.align(self.align)
            writer.data += self.form.pack(*got) if self._has_several else self.form.pack(got)
            return
        values: list[Any] = list(got) if self._has_several else [got]
        for place, _, referent, *_ in self._pointers:
            pointed = values[place]
            if pointed is None:
                values[place] = 0
            else:
                values[place] = writer.next_referent()
                writer.deferred.append((referent, pointed))
        for place, one in self._checks:
            _check(one, values[place])
        writer.align(self.align)
        writer.data += self.form.pack(*values)

    def read(self, reader: NdrReader, target: Any) -> None:
        reader.position += -reader.position % self.align
        values = reader.fields(self.form)
        for place, one in self._checks:
            _check(one, values[place])
        attributes = target.__dict__
        attributes.update(zip(self._names, values, strict=True))
        for place, name, referent, size, length in self._pointers:
            attributes[name] = None
            if values[place]:
                reader.deferred.append((target, name, referent, size, length))


def _check(one: Member, number: int) -> None:
    assert one.allowed is not None
    if number not in one.allowed:
        raise RangeError(f"{one.name} is {number}, not in {one.allowed.start} to {one.allowed.stop - 1}")


class _Alone:
    """A member that its own codec reads and writes."""

    __slots__ = ("_codec", "_length", "_name", "_size", "_switch", "align")

    def __init__(self, one: Member, codec: Codec, counters: _Counters) -> None:
        self.align = codec.align
        self._name, self._switch = one.attribute, one.switch
        self._size, self._length = counters(one.attribute)
        self._codec = codec

    def write(self, writer: NdrWriter, value: Any) -> None:
        if isinstance(self._codec, UnionCodec):
            self._codec.write_member(writer, getattr(value, self._switch), getattr(value, self._name))
        else:
            self._codec.write(writer, getattr(value, self._name))

    def read(self, reader: NdrReader, target: Any) -> None:
        attributes = target.__dict__
        if isinstance(self._codec, UnionCodec):
            attributes[self._name] = self._codec.read_member(reader, attributes[self._switch], target, self._name)
        else:
            size, length = attributes.get(self._size), attributes.get(self._length)
            attributes[self._name] = self._codec.read(reader, size, length)


class _Counters:
    """The members that hold the size and the length of a member."""

    def __init__(self, members: Sequence[Member]) -> None:
        self._names = {
            (one.counted, role): one.attribute
            for one in members
            if one.role
            for role in (("size", "length") if one.role == "both" else (one.role,))
        }

    def __call__(self, attribute: str) -> tuple[str, str]:
        return self._names.get((attribute, "size"), ""), self._names.get((attribute, "length"), "")


def _steps(
    members: Sequence[Member], representation: Representation, align: int, counters: _Counters | None = None
) -> list[_Run | _Alone]:
    """The longest possible runs: a member that needs more alignment than the run's beginning starts another one."""
    counters = counters or _Counters(members)
    steps: list[_Run | _Alone] = []
    run: list[tuple[Member, Codec]] = []
    for one in members:
        codec = one.type.codec(representation)
        if run and (not codec.code or codec.align > align):
            steps.append(_Run(align, run, counters, representation.order))
            run = []
        if not codec.code:
            steps.append(_Alone(one, codec, counters))
            align = 1
            continue
        if not run and (steps or codec.align > align):
            align = codec.align
        run.append((one, codec))
    if run:
        steps.append(_Run(align, run, counters, representation.order))
    return steps


# --- structures -------------------------------------------------------------------------------------------------------
class _StructureCodec(Codec):
    __slots__ = ("_conformant", "_kind", "_pads", "_representation", "_steps")

    def __init__(self, kind: type[NdrStructure], representation: Representation) -> None:
        members = kind.MEMBERS
        super().__init__(max(one.type.codec(representation).align for one in members))
        self._kind = kind
        self._representation = representation
        self._conformant = ""
        last = members[-1]
        if isinstance(last.type, Array):
            # A structure with a conformant array at its end: the count is before the structure (C706 14.3.7.2).
            self._conformant, members = last.attribute, members[:-1]
        self._pads = representation.pads_structures and not self._conformant
        self._steps = _steps(members, representation, self.align)

    def write(self, writer: NdrWriter, value: Any) -> None:
        if type(value) is not self._kind:
            raise TypeError(f"{value!r:.80} is no {self._kind.__name__}")
        if self._conformant:
            writer.put_word(len(getattr(value, self._conformant)))
        writer.align(self.align)
        for step in self._steps:
            step.write(writer, value)
        if self._conformant:
            self._array().write_items(writer, getattr(value, self._conformant))
        if self._pads:
            writer.align(self.align)

    def read(self, reader: NdrReader, size: int | None = None, length: int | None = None) -> Any:
        count = reader.word_value() if self._conformant else 0
        reader.position += -reader.position % self.align
        target: Any = self._kind.__new__(self._kind)
        for step in self._steps:
            step.read(reader, target)
        if self._conformant:
            self._read_array(reader, target, count)
        if self._pads:
            reader.align(self.align)
        return target

    def _read_array(self, reader: NdrReader, target: Any, count: int) -> None:
        size, _ = _Counters(self._kind.MEMBERS)(self._conformant)
        if size and target.__dict__[size] != count:
            raise NdrError(f"an array of {count} items, where size_is says {target.__dict__[size]}")
        target.__dict__[self._conformant] = self._array().read_items(reader, count)

    def _array(self) -> Any:
        return self._kind.MEMBERS[-1].type.codec(self._representation)


class _ParametersCodec(Codec):
    """Parameters one after the other; a pointer's referent follows at once, not after the last parameter."""

    __slots__ = ("_kind", "_steps", "flat")

    def __init__(self, kind: type[NdrStructure], representation: Representation) -> None:
        super().__init__(8)
        self.flat: _Run | None = None
        """All parameters, if they are packed in one step: most requests are."""
        self._kind = kind
        self._steps: list[_Run | _Alone] = []
        members = kind.MEMBERS
        begin = 0
        for place, one in enumerate(members):
            # A run ends with a pointer: its referent comes before the next parameter.
            if isinstance(one.type, Pointer) or place == len(members) - 1:
                align = 8 if begin == 0 else 1
                self._steps += _steps(members[begin : place + 1], representation, align, _Counters(members))
                begin = place + 1
        if len(self._steps) == 1 and isinstance(self._steps[0], _Run) and self._steps[0].is_flat:
            self.flat = self._steps[0]

    def write(self, writer: NdrWriter, value: Any) -> None:
        for step in self._steps:
            step.write(writer, value)
            if writer.deferred:
                writer.flush()

    def read(self, reader: NdrReader, size: int | None = None, length: int | None = None) -> Any:
        target: Any = self._kind.__new__(self._kind)
        for step in self._steps:
            step.read(reader, target)
            if reader.deferred:
                reader.flush()
        return target


@dataclass_transform(kw_only_default=True, field_specifiers=(member, counts))
class NdrStructure:
    """Base class of structures: see the module. Values are compared by their members."""

    MEMBERS: ClassVar[tuple[Member, ...]] = ()
    _codecs: ClassVar[dict[Representation, Codec]]

    def __init_subclass__(cls) -> None:
        members = list(cls.MEMBERS)
        for attribute, one in list(vars(cls).items()):
            if not isinstance(one, Member):
                continue
            one.attribute = attribute
            members.append(one)
            if one.role:
                setattr(cls, attribute, _count_property(one))
                cls.__annotations__.pop(attribute)
            elif one.default is _REQUIRED:
                delattr(cls, attribute)
            elif isinstance(one.default, NdrStructure):
                setattr(cls, attribute, dataclasses.field(default_factory=type(one.default)))
            else:
                setattr(cls, attribute, one.default)
        cls.MEMBERS = tuple(members)
        cls._codecs = {}
        dataclasses.dataclass(kw_only=True)(cls)

    @classmethod
    def codec(cls, representation: Representation, /) -> Codec:
        """The codec for a representation, made once for each structure."""
        codec = cls._codecs.get(representation)
        if codec is None:
            codec = cls._codecs[representation] = cls._make(representation)
        return codec

    @classmethod
    def _make(cls, representation: Representation) -> Codec:
        return _StructureCodec(cls, representation)


def _count_property(one: Member) -> property:
    def count(value: Any) -> int:
        counted = getattr(value, one.counted)
        return 0 if counted is None else len(counted)

    return property(count, doc=one.name)


class Parameters(NdrStructure):
    """The stub data of a request or a response."""

    @classmethod
    def _make(cls, representation: Representation) -> Codec:
        return _ParametersCodec(cls, representation)

    @classmethod
    def form(cls, representation: Representation) -> struct.Struct | None:
        """The form that packs and unpacks all members in their order; None if they have no such form."""
        codec: Any = cls.codec(representation)
        return None if codec.flat is None else codec.flat.form

    def encode(self, representation: Representation) -> bytes:
        """Encode the stub data. Raises RangeError if a member is not in its range."""
        codec: Any = self.codec(representation)
        try:
            if codec.flat is not None:
                packed: bytes = codec.flat.pack(self)
                return packed
            writer = NdrWriter(representation.word)
            codec.write(writer, self)
        except struct.error as error:
            raise NdrError(f"{type(self).__qualname__}: {error}") from None
        return bytes(writer.data)

    @classmethod
    def decode(cls, data: bytes, representation: Representation) -> Self:
        """Decode the parameters in stub data, ignoring data after them (C706 14.1). Raises NdrError if invalid."""
        codec: Any = cls.codec(representation)
        if codec.flat is not None:
            flat = cls.__new__(cls)
            codec.flat.unpack(data, flat)
            return flat
        value: Self = codec.read(NdrReader(data, representation.word))
        return value
