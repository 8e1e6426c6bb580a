"""The vocabulary of method declarations: numbers, handles, pointers, arrays, strings.

A type is data; ``codec`` makes its reader and writer for one representation. NDR is C706 chapter 14. NDR64 has the
changes of MS-RPCE 2.2.5: counts, offsets and pointers have eight bytes, enumerations four, structures are padded at
their end, and the members of unions are aligned like the largest.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from qmnode.dcerpc.errors import NdrError, RangeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


# ----------------------------------------------------------------------------------------------------------------------
# Octet streams of stub data: alignment, referents, and data deferred until the constructed type is complete.

_PADDING: Final = bytes(8)
_FIRST_REFERENT: Final = 0x00020000
_WORDS: Final = {
    (size, order): struct.Struct(f"{order}{'I' if size == 4 else 'Q'}") for size in (4, 8) for order in "<>"
}


class NdrWriter:
    """Writes stub data. Referents of embedded pointers follow the type that contains them (C706 14.3.12.3)."""

    __slots__ = ("data", "deferred", "referent", "word")

    def __init__(self, word: struct.Struct) -> None:
        self.data = bytearray()
        self.word = word
        """Bytes of counts, offsets and pointers: four in NDR, eight in NDR64 (MS-RPCE 2.2.5.3)."""
        self.referent = _FIRST_REFERENT
        self.deferred: list[tuple[Codec, Any]] = []

    def align(self, boundary: int) -> None:
        """Pad to a multiple of ``boundary``."""
        gap = -len(self.data) % boundary
        if gap:
            self.data += _PADDING[:gap]

    def put_word(self, value: int) -> None:
        """Write a count, an offset or a pointer."""
        self.align(self.word.size)
        self.data += self.word.pack(value)

    def next_referent(self) -> int:
        """The next value for a pointer that is not null."""
        referent = self.referent
        self.referent = referent + 4
        return referent

    def flush(self) -> None:
        """Write deferred data, each followed by the data that it defers in turn."""
        pending, self.deferred = self.deferred, []
        for codec, value in pending:
            codec.write(self, value)
            if self.deferred:
                self.flush()


class NdrReader:
    """Reads stub data. Memory for a count is allocated only after checking that the counted bytes are present."""

    __slots__ = ("data", "deferred", "end", "position", "word")

    def __init__(self, data: bytes, word: struct.Struct) -> None:
        self.data = data
        self.end = len(data)
        self.position = 0
        self.word = word
        self.deferred: list[tuple[Any, Any, Codec, str, str]] = []
        """Deferred reads: target, name or place in it, codec, and the target's members that count the data."""

    def align(self, boundary: int) -> None:
        """Skip to a multiple of ``boundary``."""
        self.position += -self.position % boundary

    def word_value(self) -> int:
        """Read a count, an offset or a pointer."""
        word = self.word
        position = self.position + -self.position % word.size
        if position + word.size > self.end:
            raise NdrError(f"the stub data ends at {self.end}, in the middle of a number at {position}")
        self.position = position + word.size
        value: int = word.unpack_from(self.data, position)[0]
        return value

    def take(self, size: int) -> bytes:
        position = self.position
        if size > self.end - position:
            raise NdrError(f"{size} bytes at {position}, but the stub data ends at {self.end}")
        self.position = position + size
        return self.data[position : position + size]

    def fields(self, form: struct.Struct) -> tuple[Any, ...]:
        """Read fields of fixed size, which are aligned already."""
        position = self.position
        after = position + form.size
        if after > self.end:
            raise NdrError(f"{form.size} bytes at {position}, but the stub data ends at {self.end}")
        self.position = after
        return form.unpack_from(self.data, position)

    def flush(self) -> None:
        """Read deferred data, each followed by the data that it defers in turn."""
        pending, self.deferred = self.deferred, []
        for target, place, codec, size, length in pending:
            if type(target) is list:
                target[place] = codec.read(self)
            else:
                read = target.__dict__
                read[place] = codec.read(self, read[size] if size else None, read[length] if length else None)
            if self.deferred:
                self.flush()


def word_of(pointer_size: int, order: str) -> struct.Struct:
    """The ``struct`` form of counts, offsets and pointers."""
    return _WORDS[pointer_size, order]


@dataclass(frozen=True, slots=True, eq=False)
class Representation:
    """A transfer syntax, as far as it affects stub data. There is one object for each, which keys tables of codecs."""

    name: str
    pointer_size: int
    enumeration: str
    pads_structures: bool
    order: Literal["<", ">"] = "<"
    """The byte order, in the notation of the struct module."""
    word: struct.Struct = field(init=False)
    """The ``struct`` form of counts, offsets and pointers."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "word", word_of(self.pointer_size, self.order))


NDR: Final = Representation("NDR", 4, "H", pads_structures=False)
NDR64: Final = Representation("NDR64", 8, "I", pads_structures=True)
_BIG_ENDIAN: Final = {one: replace(one, order=">") for one in (NDR, NDR64)}


def big_endian_of(representation: Representation) -> Representation:
    """The same representation in big-endian order."""
    return _BIG_ENDIAN[representation]


CONTEXT_HANDLE_SIZE: Final = 20
NULL_CONTEXT_HANDLE: Final = bytes(CONTEXT_HANDLE_SIZE)
_LARGEST: Final = 8 * 1024 * 1024
"""The most items of an array, whatever a count says."""


class Codec:
    """Reads and writes a type in one representation. Both deal with alignment themselves."""

    __slots__ = ("align", "code")

    def __init__(self, align: int, code: str = "") -> None:
        self.align = align
        self.code = code
        """The code of the struct module, if the type has a fixed form that can be packed with its neighbours."""

    def write(self, writer: NdrWriter, value: Any) -> None:
        """Append a value to the stream."""
        raise NotImplementedError

    def read(self, reader: NdrReader, size: int | None = None, length: int | None = None) -> Any:
        """Read a value. ``size`` and ``length`` are the values of size_is and length_is, for arrays."""
        raise NotImplementedError


class Declared(Protocol):
    """A type of a member: a Type, or a class of structures."""

    def codec(self, representation: Representation, /) -> Codec:
        """The codec for a representation, made once."""


class Type:
    """Base class of all types except structures."""

    __slots__ = ("_codecs",)

    def __init__(self) -> None:
        self._codecs: dict[Representation, Codec] = {}

    def codec(self, representation: Representation, /) -> Codec:
        """The codec for a representation, made once."""
        codec = self._codecs.get(representation)
        if codec is None:
            codec = self._codecs[representation] = self._make(representation)
        return codec

    def _make(self, representation: Representation) -> Codec:
        raise NotImplementedError


# --- fixed forms ------------------------------------------------------------------------------------------------------
class _FixedCodec(Codec):
    __slots__ = ("_form",)

    def __init__(self, align: int, code: str, order: str) -> None:
        super().__init__(align, code)
        self._form = struct.Struct(f"{order}{code}")

    def write(self, writer: NdrWriter, value: Any) -> None:
        writer.align(self.align)
        writer.data += self._form.pack(value)

    def read(self, reader: NdrReader, size: int | None = None, length: int | None = None) -> Any:
        reader.align(self.align)
        return reader.fields(self._form)[0]


class Fixed(Type):
    """A number of the same form in both representations."""

    __slots__ = ("_align", "_code")

    def __init__(self, code: str, align: int) -> None:
        super().__init__()
        self._code, self._align = code, align

    def _make(self, representation: Representation) -> Codec:
        return _FixedCodec(self._align, self._code, representation.order)


class _TurnedCodec(Codec):
    """A run of bytes in memory whose wire form is big-endian fields."""

    __slots__ = ("_big", "_little")

    def __init__(self, align: int, fields: str) -> None:
        super().__init__(align)
        self._big, self._little = struct.Struct(f">{fields}"), struct.Struct(f"<{fields}")

    def write(self, writer: NdrWriter, value: Any) -> None:
        writer.align(self.align)
        writer.data += self._big.pack(*self._little.unpack(value))

    def read(self, reader: NdrReader, size: int | None = None, length: int | None = None) -> Any:
        reader.align(self.align)
        return self._little.pack(*reader.fields(self._big))


class Identifier(Type):
    """A run of bytes with inner fields, kept in little-endian form."""

    __slots__ = ("_align", "_fields")

    def __init__(self, fields: str, align: int) -> None:
        super().__init__()
        self._fields, self._align = fields, align

    def _make(self, representation: Representation) -> Codec:
        if representation.order == "<":
            return _FixedCodec(self._align, f"{struct.calcsize('<' + self._fields)}s", "<")
        return _TurnedCodec(self._align, self._fields)


class Enumeration(Type):
    """An enumeration without ``v1_enum``: two octets in NDR, four in NDR64 (MS-RPCE 2.2.5.2)."""

    __slots__ = ()

    def _make(self, representation: Representation) -> Codec:
        code = representation.enumeration
        return _FixedCodec(struct.calcsize(code), code, representation.order)


U8: Final = Fixed("B", 1)
U16: Final = Fixed("H", 2)
U32: Final = Fixed("I", 4)
U64: Final = Fixed("Q", 8)
ENUM: Final = Enumeration()
GUID: Final = Identifier("IHH8s", 4)
CONTEXT_HANDLE: Final = Identifier("IIHH8s", 4)
OCTETS: Final = Identifier("16s", 1)
"""``unsigned char[16]``: a fixed array, without alignment."""


# --- pointers ---------------------------------------------------------------------------------------------------------
class _PointerCodec(Codec):
    """A top-level pointer: its referent follows at once. Embedded pointers are handled by what contains them."""

    __slots__ = ("referent",)

    def __init__(self, align: int, referent: Codec, code: str) -> None:
        super().__init__(align, code)
        self.referent = referent

    def write(self, writer: NdrWriter, value: Any) -> None:
        if value is None:
            writer.put_word(0)
        else:
            writer.put_word(writer.next_referent())
            self.referent.write(writer, value)

    def read(self, reader: NdrReader, size: int | None = None, length: int | None = None) -> Any:
        if not reader.word_value():
            return None
        return self.referent.read(reader, size, length)


class Pointer(Type):
    """A unique pointer: None, or its referent. Full pointers look the same, as there are no aliases here.

    A reference pointer as a parameter is declared as its referent, since the pointer itself is not transmitted.
    """

    __slots__ = ("_referent",)

    def __init__(self, referent: Declared) -> None:
        super().__init__()
        self._referent = referent

    def _make(self, representation: Representation) -> Codec:
        code = "I" if representation.pointer_size == 4 else "Q"
        return _PointerCodec(representation.pointer_size, self._referent.codec(representation), code)


# --- arrays and strings -----------------------------------------------------------------------------------------------
class Room(list[Any]):
    """Items of a varying array with spare room: its size_is is ``size``."""

    def __init__(self, items: Iterable[Any], size: int) -> None:
        super().__init__(items)
        self.size = size


class _ArrayCodec(Codec):
    __slots__ = ("_item", "_varying")

    def __init__(self, item: Codec, word: int, *, varying: bool) -> None:
        super().__init__(max(item.align, word))
        self._item = item
        self._varying = varying

    def write(self, writer: NdrWriter, value: Any) -> None:
        writer.put_word(value.size if type(value) is Room else len(value))
        if self._varying:
            writer.put_word(0)
            writer.put_word(len(value))
        self.write_items(writer, value)

    def write_items(self, writer: NdrWriter, value: Any) -> None:
        if self._item.code == "B":
            writer.data += value
            return
        pointer = self._item if isinstance(self._item, _PointerCodec) else None
        for item in value:
            if pointer is None:
                self._item.write(writer, item)
            elif item is None:
                writer.put_word(0)
            else:
                writer.put_word(writer.next_referent())
                writer.deferred.append((pointer.referent, item))

    def read(self, reader: NdrReader, size: int | None = None, length: int | None = None) -> Any:
        count = reader.word_value()
        if size is not None and count != size:
            raise NdrError(f"an array of {count} items, where size_is says {size}")
        if self._varying:
            if reader.word_value():
                raise NdrError("a varying array that does not begin at its first item")
            actual = reader.word_value()
            if actual > count:
                raise NdrError(f"{actual} items of an array of {count}")
            if length is not None and actual != length:
                raise NdrError(f"{actual} items, where length_is says {length}")
            count = actual
        return self.read_items(reader, count)

    def read_items(self, reader: NdrReader, count: int) -> Any:
        if self._item.code == "B":
            return reader.take(count)
        if count > min(_LARGEST, reader.end - reader.position):
            raise NdrError(f"an array of {count} items, more than there are bytes")
        if not isinstance(self._item, _PointerCodec):
            return [self._item.read(reader) for _ in range(count)]
        items: list[Any] = [None] * count
        for place in range(count):
            if reader.word_value():
                reader.deferred.append((items, place, self._item.referent, "", ""))
        return items


class Array(Type):
    """A conformant array, also varying if ``varying``: a list, or bytes when the items are octets."""

    __slots__ = ("_item", "varying")

    def __init__(self, item: Declared, *, varying: bool = False) -> None:
        super().__init__()
        self._item = item
        self.varying = varying

    def _make(self, representation: Representation) -> _ArrayCodec:
        return _ArrayCodec(self._item.codec(representation), representation.pointer_size, varying=self.varying)


class _StringCodec(Codec):
    __slots__ = ("_encoding",)

    def __init__(self, word: int, order: str) -> None:
        super().__init__(word)
        self._encoding = "utf-16-le" if order == "<" else "utf-16-be"

    def write(self, writer: NdrWriter, value: Any) -> None:
        encoded = value.encode(self._encoding, "surrogatepass") + b"\0\0"
        writer.put_word(len(encoded) // 2)
        writer.put_word(0)
        writer.put_word(len(encoded) // 2)
        writer.data += encoded

    def read(self, reader: NdrReader, size: int | None = None, length: int | None = None) -> str:
        count = reader.word_value()
        if reader.word_value():
            raise NdrError("a string that does not begin at its first character")
        actual = reader.word_value()
        if not 0 < actual <= count:
            raise NdrError(f"a string of {actual} characters with room for {count}")
        text = reader.take(2 * actual).decode(self._encoding, "surrogatepass")
        end = text.find("\0")
        if end != len(text) - 1:
            raise NdrError("a string with a null in it, or none at its end")
        return text[:-1]


class WideString(Type):
    """``[string] wchar_t*``: a conformant varying string of UTF-16 with its null."""

    __slots__ = ()

    def _make(self, representation: Representation) -> Codec:
        return _StringCodec(representation.pointer_size, representation.order)


WIDE_STRING: Final = WideString()


class _CharactersCodec(Codec):
    __slots__ = ("_size",)

    def __init__(self, word: int, size: int) -> None:
        super().__init__(word)
        self._size = size

    def write(self, writer: NdrWriter, value: Any) -> None:
        encoded = value.encode("latin-1") + b"\0"
        writer.put_word(0)
        writer.put_word(len(encoded))
        writer.data += encoded

    def read(self, reader: NdrReader, size: int | None = None, length: int | None = None) -> str:
        if reader.word_value():
            raise NdrError("a string that does not begin at its first character")
        count = reader.word_value()
        text = reader.take(count)
        if not 0 < count <= self._size or text.find(b"\0") != count - 1:
            raise NdrError(f"a string of {count} characters with room for {self._size}, or with a null in it")
        return text[:-1].decode("latin-1")


class Characters(Type):
    """``[string] char name[size]``: a varying string with its null."""

    __slots__ = ("_size",)

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def _make(self, representation: Representation) -> Codec:
        return _CharactersCodec(representation.pointer_size, self._size)


# --- unions -----------------------------------------------------------------------------------------------------------
class UnionCodec(Codec):
    """A non-encapsulated union: the tag again, then the member that it selects.

    NDR64 aligns the union and its member like its largest member (MS-RPCE 2.2.5.3.4.4). NDR aligns the tag and the
    selected member each in its own way, and an empty one not at all (C706 14.3.8).
    """

    __slots__ = ("_aligned", "_members", "_tag")

    def __init__(self, tag: Codec, members: Mapping[int, Codec | None], *, aligned: bool) -> None:
        self._members = members
        self._tag = tag
        super().__init__(max([tag.align, *(one.align for one in members.values() if one is not None)]))
        self._aligned = self.align if aligned else 1

    def write_member(self, writer: NdrWriter, tag: int, value: Any) -> None:
        member = self._member(tag)
        writer.align(self._aligned)
        self._tag.write(writer, tag)
        writer.align(self._aligned)
        if not isinstance(member, _PointerCodec):
            if member is not None:
                member.write(writer, value)
        elif value is None:
            writer.put_word(0)
        else:
            writer.put_word(writer.next_referent())
            writer.deferred.append((member.referent, value))

    def read_member(self, reader: NdrReader, tag: int, target: Any, name: str) -> Any:
        """The member, or None; a pointer's referent is set later as ``name`` of ``target``. The tags must agree."""
        member = self._member(tag)
        reader.align(self._aligned)
        if self._tag.read(reader) != tag:
            raise NdrError(f"the tag of a union is not {tag}, which selects its member")
        reader.align(self._aligned)
        if member is None:
            return None
        if not isinstance(member, _PointerCodec):
            return member.read(reader)
        if reader.word_value():
            reader.deferred.append((target, name, member.referent, "", ""))
        return None

    def _member(self, tag: int) -> Codec | None:
        try:
            return self._members[tag]
        except KeyError:
            raise RangeError(f"a union has no member {tag}") from None


class Union(Type):
    """A union: members by tag; None is an empty one."""

    __slots__ = ("_members", "_tag")

    def __init__(self, tag: Declared, members: Mapping[int, Declared | None]) -> None:
        super().__init__()
        self._tag = tag
        self._members = members

    def _make(self, representation: Representation) -> UnionCodec:
        members = {tag: None if one is None else one.codec(representation) for tag, one in self._members.items()}
        tag = self._tag.codec(representation)
        return UnionCodec(tag, members, aligned=representation.pads_structures)


class _LaterCodec(Codec):
    __slots__ = ("_find", "_found")

    def __init__(self, align: int, find: Callable[[], Codec]) -> None:
        super().__init__(align)
        self._find = find
        self._found: Codec | None = None

    def _codec(self) -> Codec:
        if self._found is None:
            self._found = self._find()
        return self._found

    def write(self, writer: NdrWriter, value: Any) -> None:
        self._codec().write(writer, value)

    def read(self, reader: NdrReader, size: int | None = None, length: int | None = None) -> Any:
        return self._codec().read(reader, size, length)


class Later(Type):
    """A type that is declared further down, for structures that contain themselves; ``align`` is its alignment."""

    __slots__ = ("_align", "_named")

    def __init__(self, named: Callable[[], Declared], align: int) -> None:
        super().__init__()
        self._named, self._align = named, align

    def _make(self, representation: Representation) -> Codec:
        return _LaterCodec(self._align, lambda: self._named().codec(representation))


POINTER_CODEC: Final = _PointerCodec
