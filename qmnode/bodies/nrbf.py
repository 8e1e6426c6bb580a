"""BinaryMessageFormatter: .NET Remoting Binary Format (MS-NRBF), in a body of the type 768. Read only.

Nothing is instantiated: an object is a dictionary of its members with its type's name under ``$type``. Collections of
the framework are shown as their contents. An object within itself is replaced by ``{"$cycle": "its type"}``. Writing
the format is left out on purpose: .NET deprecates its reader, since a body can make it run code.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple

from qmnode.bodies.byte_reader import Reader
from qmnode.bodies.dates import from_nrbf
from qmnode.bodies.limits import BodyError, Budget
from qmnode.bodies.nrbf_objects import Instance, Reference, ValueBuilder

BODY_TYPE: Final = 768
"""VT_BINARY_OBJECT of System.Messaging; not a VARENUM constant."""
_MOST_RANK: Final = 32
_MOST_MEMBERS: Final = 4096


def recognise(body: bytes) -> bool:
    """Whether it begins with a SerializationHeaderRecord (2.6.1) of version 1.0."""
    return body[:1] == b"\0" and len(body) >= 17 and body[9:17] == b"\1\0\0\0\0\0\0\0"


class _Nulls(NamedTuple):
    """Several nulls in an array (2.5.5, 2.5.6)."""

    number: int


class _End(NamedTuple):
    """The end of the stream: MessageEnd (2.6.3)."""


@dataclass(frozen=True, slots=True)
class _Class:
    """The declaration of a class (2.3.1): ``types`` is None if the members' types are not in the stream."""

    name: str
    members: tuple[str, ...]
    types: tuple[tuple[int, int], ...] | None
    """The BinaryTypeEnum of each member, and the PrimitiveTypeEnum of a primitive."""


_PRIMITIVE: Final = 0
_PRIMITIVE_ARRAY: Final = 7
_SYSTEM_CLASS: Final = 3
_CLASS: Final = 4
_MOST_TYPE: Final = 7

_NUMBERS: Final = {6: "d", 7: "h", 8: "i", 9: "q", 10: "b", 11: "f", 14: "H", 15: "I", 16: "Q"}
_BOOLEAN: Final = 1
_BYTE: Final = 2


def decode(body: bytes, budget: Budget) -> Any:
    """The object graph as nested values."""
    budget.spend(1, len(body))
    stream = _Stream(body, budget)
    root = stream.read()
    # The result is charged separately from the records: an object that is referenced twice is in it twice.
    return ValueBuilder(stream.objects, Budget(budget.limits)).build(root)


class _Stream:
    """The records of a stream, in their order."""

    def __init__(self, body: bytes, budget: Budget) -> None:
        self._reader = Reader(body)
        self._budget = budget
        self._classes: dict[int, _Class] = {}
        self._depth = 0
        self.objects: dict[int, Any] = {}
        self._records: dict[int, Callable[[], Any]] = {
            1: self._class_with_id,
            2: lambda: self._class_with_members(typed=False, library=False),
            3: lambda: self._class_with_members(typed=False, library=True),
            4: lambda: self._class_with_members(typed=True, library=False),
            5: lambda: self._class_with_members(typed=True, library=True),
            6: self._string,
            7: self._array,
            8: lambda: self._primitive(self._reader.byte()),
            9: lambda: Reference(self._reader.number("i")),
            10: lambda: None,
            11: _End,
            13: lambda: _Nulls(self._reader.byte()),
            14: lambda: _Nulls(self._reader.number("i")),
            15: self._primitive_array,
            16: self._object_array,
            17: self._object_array,
        }

    def read(self) -> Reference:
        """Read to MessageEnd and return the reference to the root."""
        if not recognise(self._reader.data):
            raise BodyError("it does not begin with the header of the .NET Remoting Binary Format, version 1.0")
        self._reader.take(1)
        root = Reference(self._reader.number("i"))
        self._reader.take(12)
        while not isinstance(self._record(), _End):
            pass
        return root

    def _record(self) -> Any:
        """Read one record with its nested records. Preceding library records (2.6.2) are skipped."""
        self._budget.spend()
        kind = self._reader.byte()
        while kind == 12:
            self._budget.spend()
            self._reader.number("i")
            self._text()
            kind = self._reader.byte()
        read = self._records.get(kind)
        if read is None:
            known = "a call, not a serialized object" if kind in (21, 22) else "no record"
            raise BodyError(f"record {kind} at byte {self._reader.place - 1} is {known}")
        self._depth += 1
        self._budget.check_depth(self._depth)
        found = read()
        self._depth -= 1
        return found

    def _text(self) -> str:
        size = self._reader.multi_byte_integer()
        return self._reader.take(size).decode("utf-8", "replace")

    def _keep(self, identifier: int, value: Any) -> Reference:
        self.objects.setdefault(identifier, value)
        return Reference(identifier)

    # Classes: 2.3

    def _class_with_members(self, *, typed: bool, library: bool) -> Any:
        identifier = self._reader.number("i")
        name = self._text()
        count = self._reader.number("i")
        if not 0 <= count <= _MOST_MEMBERS:
            raise BodyError(f"the class {name!r:.80} has {count} members, and at most {_MOST_MEMBERS} are read")
        self._budget.spend(count)
        members = tuple(self._text() for _ in range(count))
        types = self._member_types(count) if typed else None
        if library:
            self._reader.number("i")
        described = _Class(name, members, types)
        self._classes[identifier] = described
        return self._members(identifier, described)

    def _member_types(self, count: int) -> tuple[tuple[int, int], ...]:
        kinds = self._reader.take(count)
        return tuple((kind, self._type_information(kind)) for kind in kinds)

    def _type_information(self, kind: int) -> int:
        """AdditionalInfos of a BinaryTypeEnum (2.3.1.2)."""
        if kind in (_PRIMITIVE, _PRIMITIVE_ARRAY):
            return self._reader.byte()
        if kind in (_SYSTEM_CLASS, _CLASS):
            self._text()
            if kind == _CLASS:
                self._reader.number("i")
        elif kind > _MOST_TYPE:
            raise BodyError(f"the type {kind} at byte {self._reader.place} is none of MS-NRBF 2.1.2.2")
        return 0

    def _class_with_id(self) -> Any:
        identifier, metadata = self._reader.number("i"), self._reader.number("i")
        described = self._classes.get(metadata)
        if described is None:
            raise BodyError(f"object {identifier} is of the class of object {metadata}, which has not been read")
        return self._members(identifier, described)

    def _members(self, identifier: int, described: _Class) -> Any:
        instance = Instance(described.name, described.members)
        found = self._keep(identifier, instance)
        if described.types is None:
            self._budget.spend(len(described.members))
            instance.values = [self._member() for _ in described.members]
        else:
            instance.values = [
                self._primitive(primitive) if kind == _PRIMITIVE else self._member()
                for kind, primitive in described.types
            ]
        return found

    def _member(self) -> Any:
        value = self._record()
        if isinstance(value, (_Nulls, _End)):
            raise BodyError(f"a member's value is missing at byte {self._reader.place}")
        return value

    def _string(self) -> Reference:
        return self._keep(self._reader.number("i"), self._text())

    # Arrays: 2.4

    def _array(self) -> Reference:
        identifier = self._reader.number("i")
        shape = self._reader.byte()
        rank = self._reader.number("i")
        if shape > 5 or not 1 <= rank <= _MOST_RANK:
            raise BodyError(f"an array of the kind {shape} with {rank} dimensions is none of MS-NRBF 2.4")
        lengths = [self._reader.number("i") for _ in range(rank)]
        if shape >= 3:
            self._reader.take(4 * rank)  # lower bounds
        kind = self._reader.byte()
        primitive = self._type_information(kind)
        count = 1
        for length in lengths:
            count *= self._checked(length)
            self._checked(count)
        values: list[Any] = []
        found = self._keep(identifier, values)
        if kind == _PRIMITIVE:
            flat = self._primitives(primitive, count)
        else:
            self._elements(values, count)
            flat = values
        if rank > 1:
            shaped = _nested(list(flat), lengths)
            values[:] = shaped
        elif flat is not values:
            self.objects[identifier] = flat
        return found

    def _primitive_array(self) -> Reference:
        identifier, count = self._reader.number("i"), self._checked(self._reader.number("i"))
        return self._keep(identifier, self._primitives(self._reader.byte(), count))

    def _object_array(self) -> Reference:
        identifier, count = self._reader.number("i"), self._checked(self._reader.number("i"))
        values: list[Any] = []
        found = self._keep(identifier, values)
        self._elements(values, count)
        return found

    def _checked(self, length: int) -> int:
        if length < 0:
            raise BodyError(f"an array has {length} elements")
        return length

    def _elements(self, values: list[Any], count: int) -> None:
        while len(values) < count:
            value = self._record()
            if isinstance(value, _Nulls):
                if not 0 < value.number <= count - len(values):
                    raise BodyError(f"{value.number} nulls in an array with {count - len(values)} elements to come")
                self._budget.spend(value.number)
                values += [None] * value.number
            elif isinstance(value, _End):
                raise BodyError(f"the stream ends with {count - len(values)} elements of an array missing")
            else:
                values.append(value)

    # Primitives: 2.1.1, 2.5.1

    def _primitives(self, kind: int, count: int) -> Any:
        if kind == _BYTE:
            return self._reader.take(count)
        if (code := _NUMBERS.get(kind, "?" if kind == _BOOLEAN else "")) != "":
            content = self._reader.take(count * struct.calcsize("<" + code))
            self._budget.spend(count // 4)
            return list(struct.unpack(f"<{count}{code}", content))
        self._budget.spend(count)
        return [self._primitive(kind) for _ in range(count)]

    def _primitive(self, kind: int) -> Any:
        self._budget.spend()
        reader = self._reader
        if (code := _NUMBERS.get(kind)) is not None:
            return reader.number(code)
        match kind:
            case 1:
                return bool(reader.byte())
            case 2:
                return reader.byte()
            case 3:
                return self._char()
            case 5:
                return self._decimal()
            case 12:
                return timedelta(microseconds=reader.number("q") // 10)
            case 13:
                return from_nrbf(reader.number("q"))
            case 17:
                return None
            case 18:
                return self._text()
        raise BodyError(f"the primitive type {kind} at byte {reader.place} is none of MS-NRBF 2.1.2.3")

    def _char(self) -> str:
        """One character of UTF-8 (2.1.1.1)."""
        first = self._reader.byte()
        more = 0 if first < 0x80 else 1 if first < 0xE0 else 2 if first < 0xF0 else 3
        return (bytes([first]) + self._reader.take(more)).decode("utf-8", "replace")

    def _decimal(self) -> Decimal:
        text = self._text()
        try:
            return Decimal(text)
        except ArithmeticError:
            raise BodyError(f"{text!r:.80} is no decimal") from None


def _nested(flat: list[Any], lengths: list[int]) -> list[Any]:
    """Elements of a rectangular array, row by row, as lists within lists."""
    for length in reversed(lengths[1:]):
        flat = [flat[start : start + length] for start in range(0, len(flat), length)] if length else []
    return flat
