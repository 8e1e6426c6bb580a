"""The vocabulary of layout declarations: numbers, bit fields, counted data, text, padding, choices, arrays.

A declaration is data: the layout engine (``layout.py``) reads it and makes the parser, the writer and the decode tree.
All integers are little-endian (MS-MQMQ 2.2.18). A field of fixed place has an offset, which is checked against the
fields before it; ``AFTER`` marks a field that follows one of variable length.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Final, Literal, Protocol, TypeVar, cast

from qmnode.structures.errors import PacketError
from qmnode.structures.guid import ZERO_GUID

Octets = bytes | bytearray | memoryview
"""A run of bytes that a parser does not copy: equal to ``bytes`` of the same content."""

AFTER: Final[None] = None
"""The offset of a field that follows a field of variable length."""

NULL_GUID: Final = ZERO_GUID


# --- bit fields -------------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class Bits:
    """Some bits of a flags word. ``values`` names the values; a value outside ``allowed`` breaks a MUST."""

    shift: int
    width: int
    meaning: str
    values: Mapping[int, str]
    allowed: Container[int] | None
    name: str = ""
    mask: int = 0

    def __post_init__(self) -> None:
        self.mask = ((1 << self.width) - 1) << self.shift

    def get(self, flags: int) -> int:
        """The value of these bits in a flags word."""
        return (flags & self.mask) >> self.shift

    def put(self, flags: int, value: int) -> int:
        """The flags word with these bits set to ``value``."""
        if value >> self.width:
            raise ValueError(f"{self.name} has {self.width} bits, {value} does not fit")
        return (flags & ~self.mask) | (value << self.shift)


def bits(
    shift: int,
    width: int,
    meaning: str,
    *,
    values: Mapping[int, str] | None = None,
    allowed: Container[int] | None = None,
) -> Bits:
    """Declare ``width`` bits from bit ``shift`` (0 is the least significant) of a flags word."""
    return Bits(
        shift, width, meaning, values or {}, allowed if allowed is not None or not values else frozenset(values)
    )


class Flags:
    """A flags word as data: subclass with ``width`` in bits and one ``bits()`` per field. Values stay plain ints."""

    WIDTH: ClassVar[int]
    FIELDS: ClassVar[dict[str, Bits]]

    def __init_subclass__(cls, width: int) -> None:
        cls.WIDTH = width
        cls.FIELDS = {name: part for name, part in vars(cls).items() if isinstance(part, Bits)}
        used = 0
        for name, part in cls.FIELDS.items():
            part.name = name
            if part.mask & used or part.mask >> width:
                raise TypeError(f"{cls.__name__}.{name} overlaps another field or leaves the word")
            used |= part.mask

    @classmethod
    def of(cls, **values: int) -> int:
        """The flags word in which the named fields have these values and all else is zero."""
        word = 0
        for name, value in values.items():
            word = cls.FIELDS[name].put(word, value)
        return word

    @classmethod
    def parts(cls, word: int) -> Iterator[tuple[Bits, int]]:
        """Each declared field with its value in ``word``, from the least significant bit."""
        return ((part, part.get(word)) for part in sorted(cls.FIELDS.values(), key=lambda part: part.shift))


# --- kinds of field ---------------------------------------------------------------------------------------------------
class DeclaredStructure(Protocol):
    """A structure, as far as fields know one: ``layout.py`` makes it from its declaration."""

    PLAN: ClassVar[Plan]

    @classmethod
    def parse(cls, buffer: Octets, offset: int = 0) -> Any:
        """The structure that fills a buffer from ``offset`` to its end. Raises PacketError."""


@dataclass(slots=True, kw_only=True)
class Field:
    """The common part of all kinds: the specification's name, meaning, offset (None: after the previous field)."""

    name: str
    meaning: str
    offset: int | None = None
    attribute: str = ""
    default: Any = None
    required: bool = True
    derived: bool = False  # not a part of the value: computed from what it counts
    when: str | None = None  # "path.to.flags.BIT": present only when the bit is set

    def describe(self) -> dict[str, Any]:
        """The whole declaration, for tools."""
        return {item.name: getattr(self, item.name) for item in fields(self)}


@dataclass(slots=True, kw_only=True)
class Scalar(Field):
    """A number, or a fixed run of bytes, that ``struct`` packs with ``code``."""

    code: str
    size: int
    const: int | bytes | None = None
    allowed: Container[int] | None = None
    strict: bool = False  # the parser rejects values that are not allowed
    values: Mapping[int, str] = field(default_factory=dict)
    bits: type[Flags] | None = None
    form: Literal["number", "bytes", "guid"] = "number"


@dataclass(slots=True, kw_only=True)
class Length(Scalar):
    """A number that counts another field: its bytes / ``unit`` * ``per`` + ``bias``, or the items of an array."""

    of: str
    unit: int = 1
    per: int = 1
    bias: int = 0


@dataclass(slots=True, kw_only=True)
class Data(Field):
    """Bytes counted by a Length, or up to the end of the enclosing structure (``rest``)."""

    view: bool = False
    rest: bool = False
    limit: int | None = None
    padding: Padding | None = None  # the padding that follows, set by the plan
    holds: type[DeclaredStructure] | None = None  # the structure that decode trees show in the bytes
    length: Length | None = None


@dataclass(slots=True, kw_only=True)
class Text(Field):
    """UTF-16-LE text: counted by a Length (``terminated``: null included), or up to a null when ``scan``.

    A structure keeps the bytes and decodes them when read; items of arrays and cases of choices are kept decoded.
    """

    terminated: bool = True
    empty_is_absent: bool = False
    scan: bool = False
    length: Length | None = None


@dataclass(slots=True, kw_only=True)
class Padding(Field):
    """Bytes of any value up to the next multiple of ``align``, counted from the start of the outermost structure."""

    align: int = 4
    clipped: bool = False  # only as far as the size that the structure states


@dataclass(slots=True, kw_only=True)
class Nested(Field):
    """Another structure in place."""

    structure: type[DeclaredStructure]


@dataclass(slots=True, kw_only=True)
class Array(Field):
    """An array with the count of a Length; ``item`` is any kind of field. The value is a tuple."""

    item: Field
    length: Length | None = None


@dataclass(slots=True, kw_only=True)
class Choice(Field):
    """One of several kinds, by the flags field or number at the path ``on``; None means no field at all."""

    on: str
    cases: Mapping[int, Field | None]


Kind = Scalar | Data | Text | Padding | Nested | Array | Choice


# --- declarations -----------------------------------------------------------------------------------------------------
class _Required:
    """The default of a field that the constructor requires."""


REQUIRED: Final = _Required()


_Declare = TypeVar("_Declare", bound="Callable[..., Any]")


def _sized(template: _Declare, code: str, size: int) -> _Declare:
    """The same declaration for a number of another width."""

    def declare(*args: Any, **options: Any) -> Any:
        return replace(template(*args, **options), code=code, size=size)

    return cast("_Declare", declare)


def u8(
    offset: int | None = AFTER,
    name: str = "",
    meaning: str = "",
    *,
    default: int | _Required | None = REQUIRED,
    values: Mapping[int, str] | None = None,
    allowed: Container[int] | None = None,
    strict: bool = False,
    bits: type[Flags] | None = None,
    when: str | None = None,
) -> Any:
    """A number. ``values`` names its values, ``allowed`` are those that keep every MUST.

    ``strict`` makes the parser reject a value that is not allowed; otherwise only the decode tree shows the fault.
    """
    if allowed is None and values:
        allowed = frozenset(values)
    return Scalar(
        offset=offset, name=name, meaning=meaning, code="B", size=1, values=values or {}, allowed=allowed,
        strict=strict, bits=bits, when=when, default=default, required=default is REQUIRED,
    )  # fmt: skip


u16 = _sized(u8, "H", 2)
u32 = _sized(u8, "I", 4)
u64 = _sized(u8, "Q", 8)
i8 = _sized(u8, "b", 1)
i16 = _sized(u8, "h", 2)
i32 = _sized(u8, "i", 4)
i64 = _sized(u8, "q", 8)
f32 = _sized(u8, "f", 4)
f64 = _sized(u8, "d", 8)


def const8(offset: int | None, name: str, value: int, meaning: str, *, init: Literal[False] = False) -> Any:
    """A number with a single permitted value; the parser rejects others. Not a constructor argument."""
    return Scalar(
        offset=offset, name=name, meaning=meaning, code="B", size=1, const=value, default=value, required=False
    )


const16 = _sized(const8, "H", 2)
const32 = _sized(const8, "I", 4)


def const_bytes(offset: int | None, name: str, value: bytes, meaning: str, *, init: Literal[False] = False) -> Any:
    """Constant bytes; the parser rejects others. Not a constructor argument."""
    return Scalar(
        offset=offset, name=name, meaning=meaning, code=f"{len(value)}s", size=len(value), const=value, default=value,
        required=False, form="bytes",
    )  # fmt: skip


def raw(
    offset: int | None, size: int, name: str, meaning: str, *, default: Any = REQUIRED, when: str | None = None
) -> Any:
    """A fixed number of bytes."""
    return Scalar(
        offset=offset, name=name, meaning=meaning, code=f"{size}s", size=size, default=default,
        required=default is REQUIRED, when=when, form="bytes",
    )  # fmt: skip


def guid(
    offset: int | None = AFTER,
    name: str = "",
    meaning: str = "",
    *,
    default: Any = REQUIRED,
    when: str | None = None,
) -> Any:
    """A GUID, 16 bytes as they are on the wire (MS-DTYP 2.3.4.2)."""
    return Scalar(
        offset=offset, name=name, meaning=meaning, code="16s", size=16, default=default,
        required=default is REQUIRED, when=when, form="guid",
    )  # fmt: skip


def length8(
    offset: int | None,
    name: str,
    meaning: str,
    *,
    of: str,
    unit: int = 1,
    per: int = 1,
    bias: int = 0,
    allowed: Container[int] | None = None,
    init: Literal[False] = False,
) -> Any:
    """A number that counts the field ``of``: its bytes / ``unit`` * ``per`` + ``bias``, or the items of an array.

    Derived: not a constructor argument, read as an attribute, checked by the parser.
    """
    return Length(
        offset=offset, name=name, meaning=meaning, code="B", size=1, of=of, unit=unit, per=per, bias=bias,
        allowed=allowed, strict=allowed is not None, derived=True, required=False,
    )  # fmt: skip


length16 = _sized(length8, "H", 2)
length32 = _sized(length8, "I", 4)


def data(
    offset: int | None,
    name: str,
    meaning: str,
    *,
    default: Any = REQUIRED,
    limit: int | None = None,
    holds: type[DeclaredStructure] | None = None,
) -> Any:
    """Bytes counted by a length field, at most ``limit``, copied out of the buffer.

    ``holds``: the structure that they should contain, parsed by its users and shown by decode trees.
    """
    return Data(
        offset=offset, name=name, meaning=meaning, default=default, required=default is REQUIRED, limit=limit,
        holds=holds,
    )  # fmt: skip


def view(offset: int | None, name: str, meaning: str, *, default: Any = REQUIRED) -> Any:
    """Bytes, counted by a length field, as a memoryview of the buffer that was parsed: never copied."""
    return Data(offset=offset, name=name, meaning=meaning, default=default, required=default is REQUIRED, view=True)


def rest(offset: int | None, name: str, meaning: str, *, default: Any = REQUIRED, limit: int | None = None) -> Any:
    """All remaining bytes of the buffer (in a packet, up to PacketSize)."""
    return Data(
        offset=offset, name=name, meaning=meaning, default=default, required=default is REQUIRED, rest=True, limit=limit
    )


def text(
    offset: int | None,
    name: str,
    meaning: str,
    *,
    default: Any = REQUIRED,
    terminated: bool = True,
    empty_is_absent: bool = False,
) -> Any:
    """UTF-16-LE text counted by a length field. ``terminated``: the count includes a null, which the value leaves out.

    ``empty_is_absent``: the empty text is written as zero bytes. Decoded when it is read, not when it is parsed.
    """
    return Text(
        offset=offset, name=name, meaning=meaning, default=default, required=default is REQUIRED,
        terminated=terminated, empty_is_absent=empty_is_absent,
    )  # fmt: skip


def text_to_null(offset: int | None, name: str, meaning: str, *, default: Any = REQUIRED) -> Any:
    """UTF-16-LE text that ends with a null character; no length field counts it."""
    return Text(offset=offset, name=name, meaning=meaning, default=default, required=default is REQUIRED, scan=True)


def padding(
    name: str = "Padding",
    meaning: str = "Any value",
    *,
    align: int = 4,
    clipped: bool = False,
    init: Literal[False] = False,
) -> Any:
    """Bytes up to the next multiple of ``align``. Kept as parsed; zeros when a value is built."""
    return Padding(offset=AFTER, name=name, meaning=meaning, align=align, clipped=clipped, default=b"", required=False)


def nested(
    offset: int | None,
    structure: type[DeclaredStructure],
    meaning: str,
    *,
    name: str = "",
    default: Any = REQUIRED,
    when: str | None = None,
) -> Any:
    """Another structure in place; with ``when``, only if that flag is set (a constructor sets it for a value)."""
    return Nested(
        offset=offset, name=name or getattr(structure, "__name__", ""), meaning=meaning, structure=structure,
        default=default, required=default is REQUIRED, when=when,
    )  # fmt: skip


def item_of(kind: Any, name: str) -> Field:
    """A field made of a structure, or the field itself."""
    if isinstance(kind, Field):
        return replace(kind, name=kind.name or name)
    return Nested(name=getattr(kind, "__name__", ""), meaning="", structure=kind)


def array(offset: int | None, item: Any, name: str, meaning: str, *, default: Any = REQUIRED) -> Any:
    """Items counted by a length field, as a tuple. ``item`` is a structure or a field."""
    return Array(
        offset=offset,
        name=name,
        meaning=meaning,
        item=item_of(item, name),
        default=default,
        required=default is REQUIRED,
    )


def choice(
    offset: int | None, name: str, meaning: str, *, on: str, cases: Mapping[int, Any], default: Any = REQUIRED
) -> Any:
    """The kind that ``cases`` has for the number or flag at the path ``on``; None: the field is absent.

    A value of ``on`` outside the cases is rejected. A constructor keeps ``on`` if it fits the given value, otherwise
    sets it to the first case that does.
    """
    kinds = {value: None if kind is None else item_of(kind, name) for value, kind in cases.items()}
    return Choice(
        offset=offset, name=name, meaning=meaning, on=on, cases=kinds, default=default, required=default is REQUIRED
    )


# ----------------------------------------------------------------------------------------------------------------------
# Analysis of a declaration before code is made of it: stored fields, paths to flags, runs, least sizes.


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
