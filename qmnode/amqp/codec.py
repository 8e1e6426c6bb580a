"""The type system of AMQP 1.0 (part 1): values from bytes and back, within limits; decimal numbers as text.

====================  ===================================================================
AMQP                  Python
====================  ===================================================================
null, boolean         None, bool
int                   int, which is written as long or ulong if it is too large
ubyte, ushort, ...    :class:`UByte`, :class:`Byte`, :class:`UShort`, :class:`Short`, :class:`UInt`, :class:`ULong`,
                      :class:`Long`
float, double         :class:`Float`, float
decimal32, ...        :class:`Decimal32`, :class:`Decimal64`, :class:`Decimal128`, with the bytes of their encoding
char                  :class:`Char`
timestamp             :class:`Timestamp`, milliseconds since 1970 (UTC)
uuid, binary          UUID, bytes
string, symbol        str, :class:`Symbol`
list, array           list
map                   dict; a key that cannot be one, such as a list, is an error
described             :class:`Described`
====================  ===================================================================

A finite decimal number (1.6.13 to 1.6.15, in binary integer significand encoding) is written as such, with all its
digits: ``1.50``. Infinities, values that are no number, and encodings that no number has keep their bits:
``0x7c000000``.
"""

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, NamedTuple
from uuid import UUID

from qmnode.bodies.dictionary_keys import MOST_ALIKE, KeyHashes

_SIGN: Final = "0x"


class _Form(NamedTuple):
    digits: int
    bias: int
    fraction: int
    """Bits of the significand behind the exponent, where this is not shifted."""
    exponents: int
    """One more than the largest biased exponent."""


_FORMS: Final = {
    4: _Form(7, 101, 23, 3 << 6),
    8: _Form(16, 398, 53, 3 << 8),
    16: _Form(34, 6176, 113, 3 << 12),
}
"""By the number of bytes."""


def decimal_to_text(encoded: bytes) -> str:
    """The number, or its bits."""
    form, bits = _FORMS[len(encoded)], 8 * len(encoded)
    number = int.from_bytes(encoded, "big")
    sign, rest = number >> (bits - 1), number & ((1 << (bits - 1)) - 1)
    exponent, significand = rest >> form.fraction, rest & ((1 << form.fraction) - 1)
    if rest >> (bits - 3) == 3:  # the exponent is two bits further on, and a bit of the significand is implied
        low = form.fraction - 2
        exponent = (rest >> low) & ((1 << (bits - 1 - form.fraction)) - 1)
        significand = (1 << form.fraction) | (rest & ((1 << low) - 1))
    if rest >> (bits - 5) == 15 or significand >= 10**form.digits:
        return _SIGN + encoded.hex()
    return str(Decimal((sign, tuple(map(int, str(significand))), exponent - form.bias)))


def decimal_from_text(text: str, size: int) -> bytes:
    """The bytes of the number, of which there are ``size``. ValueError if it has none."""
    if text.startswith(_SIGN):
        encoded = bytes.fromhex(text.removeprefix(_SIGN))
        if len(encoded) != size:
            raise ValueError(f"{text!r:.80} has not {size} bytes")
        return encoded
    form, bits = _FORMS[size], 8 * size
    sign, digits, scale = Decimal(text).as_tuple()
    if not isinstance(scale, int) or len(digits) > form.digits or not 0 <= scale + form.bias < form.exponents:
        raise ValueError(f"{text!r:.80} is no decimal number of {bits} bits")
    significand, exponent = int("".join(map(str, digits))), scale + form.bias
    if significand >> form.fraction:
        low = form.fraction - 2
        rest = (3 << (bits - 3)) | (exponent << low) | (significand & ((1 << low) - 1))
    else:
        rest = (exponent << form.fraction) | significand
    return ((sign << (bits - 1)) | rest).to_bytes(size, "big")


MAXIMUM_DEPTH: Final = 32
"""The deepest nesting of values that is decoded."""
MAXIMUM_ITEMS: Final = 20_000
"""Values in one message or frame."""


class CodecError(ValueError):
    """Bytes that are no AMQP value, or more of one than is taken."""


class Symbol(str):
    """A name out of a fixed vocabulary, in ASCII."""

    __slots__ = ()


class Byte(int):
    """A signed number of 8 bits."""

    __slots__ = ()


class UByte(int):
    """An unsigned number of 8 bits."""

    __slots__ = ()


class Short(int):
    """A signed number of 16 bits."""

    __slots__ = ()


class UShort(int):
    """An unsigned number of 16 bits."""

    __slots__ = ()


class UInt(int):
    """An unsigned number of 32 bits."""

    __slots__ = ()


class Long(int):
    """A signed number of 64 bits."""

    __slots__ = ()


class ULong(int):
    """An unsigned number of 64 bits."""

    __slots__ = ()


class Float(float):
    """A floating-point number of 32 bits."""

    __slots__ = ()


class Char(str):
    """One character of Unicode."""

    __slots__ = ()


class Decimal32(bytes):
    """The encoding of a decimal number of 32 bits."""


class Decimal64(bytes):
    """The encoding of a decimal number of 64 bits."""


class Decimal128(bytes):
    """The encoding of a decimal number of 128 bits."""


class Timestamp(int):
    """Milliseconds since 1970 (UTC)."""

    __slots__ = ()


class Described(NamedTuple):
    """A value with a descriptor that says what it is: a number or a symbol."""

    descriptor: Any
    value: Any


_EMPTY: Final[dict[int, Any]] = {
    0x40: None,
    0x41: True,
    0x42: False,
    0x43: UInt(0),
    0x44: ULong(0),
}
_FIXED: Final[dict[int, tuple[struct.Struct, Callable[[Any], Any]]]] = {
    0x50: (struct.Struct(">B"), UByte),
    0x51: (struct.Struct(">b"), Byte),
    0x52: (struct.Struct(">B"), UInt),
    0x53: (struct.Struct(">B"), ULong),
    0x54: (struct.Struct(">b"), int),
    0x55: (struct.Struct(">b"), Long),
    0x56: (struct.Struct(">B"), bool),
    0x60: (struct.Struct(">H"), UShort),
    0x61: (struct.Struct(">h"), Short),
    0x70: (struct.Struct(">I"), UInt),
    0x71: (struct.Struct(">i"), int),
    0x72: (struct.Struct(">f"), Float),
    0x73: (struct.Struct(">4s"), lambda four: _character(four)),
    0x74: (struct.Struct(">4s"), Decimal32),
    0x80: (struct.Struct(">Q"), ULong),
    0x81: (struct.Struct(">q"), Long),
    0x82: (struct.Struct(">d"), float),
    0x83: (struct.Struct(">q"), Timestamp),
    0x84: (struct.Struct(">8s"), Decimal64),
    0x94: (struct.Struct(">16s"), Decimal128),
    0x98: (struct.Struct(">16s"), lambda sixteen: UUID(bytes=sixteen)),
}
_ONE: Final = struct.Struct(">B")
_FOUR: Final = struct.Struct(">I")
_VARIABLE: Final[dict[int, tuple[struct.Struct, Callable[[bytes], Any]]]] = {
    0xA0: (_ONE, bytes),
    0xA1: (_ONE, lambda data: data.decode("utf-8")),
    0xA3: (_ONE, lambda data: Symbol(data.decode("ascii"))),
    0xB0: (_FOUR, bytes),
    0xB1: (_FOUR, lambda data: data.decode("utf-8")),
    0xB3: (_FOUR, lambda data: Symbol(data.decode("ascii"))),
}
_LISTS: Final = {0xC0: _ONE, 0xD0: _FOUR}
_MAPS: Final = {0xC1: _ONE, 0xD1: _FOUR}
_ARRAYS: Final = {0xE0: _ONE, 0xF0: _FOUR}


_UNREADABLE: Final = (UnicodeDecodeError, struct.error, OverflowError)
_SMALL_DESCRIPTOR: Final = b"\x00\x53"
"""The beginning of a described value whose descriptor is a number of 8 bits."""


def _character(four: bytes) -> Char:
    try:
        return Char(four.decode("utf-32-be"))
    except UnicodeDecodeError as error:
        raise CodecError(f"a character that is none: {error.reason}") from None


class Decoder:
    """Reads values out of bytes, one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0
        self._items = 0

    @property
    def at_end(self) -> bool:
        """Whether everything has been read."""
        return self.position >= len(self.data)

    def value(self) -> Any:
        """The next value. CodecError."""
        try:
            return self._value(0)
        except _UNREADABLE as error:
            raise CodecError(f"a value that cannot be read: {error}") from None

    def described(self) -> tuple[Any, Any]:
        """The descriptor and the value of the next value, a section of a message. CodecError if it is not described."""
        data, at = self.data, self.position
        if data[at : at + 2] == _SMALL_DESCRIPTOR and at + 3 < len(data):  # as sections come
            self.position = at + 4
            self._items += 2
            try:
                return data[at + 2], self._of(data[at + 3], 1)
            except _UNREADABLE as error:
                raise CodecError(f"a value that cannot be read: {error}") from None
        found = self.value()
        if not isinstance(found, Described):
            raise CodecError("a message consists of sections, and this is none")
        return found

    def _take(self, size: int) -> bytes:
        start, end = self.position, self.position + size
        if end > len(self.data):
            raise CodecError(f"a value of {size} bytes, of which {len(self.data) - start} are there")
        self.position = end
        return self.data[start:end]

    def _number(self, form: struct.Struct) -> int:
        at = self.position
        if form is _ONE and at < len(self.data):
            self.position = at + 1
            return self.data[at]
        return int(form.unpack(self._take(form.size))[0])

    def _value(self, depth: int) -> Any:
        return self._of(self._take(1)[0], depth)

    def _of(self, code: int, depth: int) -> Any:
        """The value whose constructor has been read."""
        self._items += 1
        if depth > MAXIMUM_DEPTH or self._items > MAXIMUM_ITEMS:
            raise CodecError(f"more than {MAXIMUM_DEPTH} values within values, or {MAXIMUM_ITEMS} values")
        if code in _EMPTY:
            return _EMPTY[code]
        if (variable := _VARIABLE.get(code)) is not None:
            return variable[1](self._take(self._number(variable[0])))
        if (fixed := _FIXED.get(code)) is not None:
            return fixed[1](fixed[0].unpack(self._take(fixed[0].size))[0])
        if code == 0x00:
            descriptor = self._value(depth + 1)
            if not isinstance(descriptor, int | str):
                raise CodecError("a descriptor is a number or a symbol")
            return Described(descriptor, self._value(depth + 1))
        if code == 0x45:
            return []
        if (form := _LISTS.get(code)) is not None:
            return self._items_of(form, depth)
        if (form := _MAPS.get(code)) is not None:
            return self._map(form, depth)
        if (form := _ARRAYS.get(code)) is not None:
            return self._array(form, depth)
        raise CodecError(f"no type of AMQP has the constructor 0x{code:02x}")

    def _head(self, form: struct.Struct) -> tuple[int, int]:
        """Where a compound value ends, and how many values it has."""
        size = self._number(form)
        end = self.position + size
        if size < form.size or end > len(self.data):
            raise CodecError(f"a compound value of {size} bytes, which are not there")
        return end, self._number(form)

    def _ended(self, end: int) -> None:
        if self.position != end:
            raise CodecError("a compound value has another size than it says")

    def _items_of(self, form: struct.Struct, depth: int) -> list[Any]:
        end, count = self._head(form)
        if count > end - self.position:
            raise CodecError(f"a list of {count} values in {end - self.position} bytes")
        if self._items + count > MAXIMUM_ITEMS:
            raise CodecError(f"more than {MAXIMUM_ITEMS} values")
        data, values = self.data, []
        for _ in range(count):
            at = self.position
            if at < end and (code := data[at]) in _EMPTY:  # a field that is not set, or a boolean
                self.position = at + 1
                self._items += 1
                values.append(_EMPTY[code])
            else:
                values.append(self._value(depth + 1))
        self._ended(end)
        return values

    def _map(self, form: struct.Struct, depth: int) -> dict[Any, Any]:
        end, count = self._head(form)
        if count % 2 or count > end - self.position:
            raise CodecError(f"a map of {count} keys and values")
        found: dict[Any, Any] = {}
        hashes = KeyHashes()
        for _ in range(count // 2):
            key = self._value(depth + 1)
            try:
                if type(key) is not str and not hashes.admits(key):
                    raise CodecError(f"a map with more than {MOST_ALIKE} keys that have one hash")
                if key in found and type(key) in map(type, filter(key.__eq__, found)):
                    raise CodecError(f"a map with the key {key!r:.80} twice")
                found[key] = self._value(depth + 1)
            except TypeError:
                raise CodecError("a map with a key that is a list or a map") from None
        self._ended(end)
        return found

    def _array(self, form: struct.Struct, depth: int) -> list[Any]:
        end, count = self._head(form)
        code = self._take(1)[0]
        if code == 0x00:
            self._value(depth + 1)  # all values have this descriptor, which nothing here asks for
            code = self._take(1)[0]
        if count > MAXIMUM_ITEMS:
            raise CodecError(f"an array of {count} values: at most {MAXIMUM_ITEMS} are taken")
        values = [self._of(code, depth + 1) for _ in range(count)]
        self._ended(end)
        return values


def _sized(short: int, long: int, data: bytes) -> bytes:
    if len(data) < 256:
        return bytes((short, len(data))) + data
    return bytes((long,)) + _FOUR.pack(len(data)) + data


def _compound(short: int, long: int, count: int, data: bytes) -> bytes:
    if len(data) < 255 and count < 256:
        return bytes((short, len(data) + 1, count)) + data
    return bytes((long,)) + _FOUR.pack(len(data) + 4) + _FOUR.pack(count) + data


def _unsigned(value: int, small: int, large: int, pack: Callable[[int], bytes], zero: bytes) -> bytes:
    if value == 0:
        return zero
    if 0 < value < 256:
        return bytes((small, value))
    return bytes((large,)) + pack(value)


NULL: Final = b"\x40"
UNENCODABLE: Final = (struct.error, UnicodeEncodeError)
"""The errors of a value that its type has no room for."""


def encode(value: Any) -> bytes:
    """The bytes of a value. CodecError if AMQP has none for it."""
    try:
        return _encode(value)
    except UNENCODABLE as error:
        raise CodecError(f"{value!r:.80} has no encoding: {error}") from None


def _integer(value: int) -> bytes:
    """A number that does not say its type: int, long or, beyond that, ulong."""
    if -(1 << 31) <= value < 1 << 31:
        return b"\x71" + _INT(value)
    return b"\x81" + _LONG(value) if value < 1 << 63 else b"\x80" + _UNSIGNED_LONG(value)


def encoded_list(values: list[bytes]) -> bytes:
    """The list of values that are encoded already."""
    return _compound(0xC0, 0xD0, len(values), b"".join(values)) if values else b"\x45"


def _dictionary(value: dict[Any, Any]) -> bytes:
    data = b"".join(_encode(key) + _encode(one) for key, one in value.items())
    return _compound(0xC1, 0xD1, 2 * len(value), data)


_INT: Final = struct.Struct(">i").pack
_LONG: Final = struct.Struct(">q").pack
_UNSIGNED_LONG: Final = struct.Struct(">Q").pack
_UNSIGNED_INT: Final = struct.Struct(">I").pack
_DOUBLE: Final = struct.Struct(">d").pack
_ENCODERS: Final[dict[type, Callable[[Any], bytes]]] = {
    type(None): lambda value: NULL,
    bool: lambda value: b"\x41" if value else b"\x42",
    Byte: lambda value: b"\x51" + struct.pack(">b", value),
    UByte: lambda value: b"\x50" + struct.pack(">B", value),
    Short: lambda value: b"\x61" + struct.pack(">h", value),
    UShort: lambda value: b"\x60" + struct.pack(">H", value),
    UInt: lambda value: _unsigned(value, 0x52, 0x70, _UNSIGNED_INT, b"\x43"),
    ULong: lambda value: _unsigned(value, 0x53, 0x80, _UNSIGNED_LONG, b"\x44"),
    Long: lambda value: b"\x81" + _LONG(value),
    Timestamp: lambda value: b"\x83" + _LONG(value),
    int: _integer,
    Float: lambda value: b"\x72" + struct.pack(">f", value),
    float: lambda value: b"\x82" + _DOUBLE(value),
    Symbol: lambda value: _sized(0xA3, 0xB3, value.encode("ascii")),
    Char: lambda value: b"\x73" + value.encode("utf-32-be"),
    Decimal32: lambda value: b"\x74" + value,
    Decimal64: lambda value: b"\x84" + value,
    Decimal128: lambda value: b"\x94" + value,
    str: lambda value: _sized(0xA1, 0xB1, value.encode("utf-8")),
    bytes: lambda value: _sized(0xA0, 0xB0, value),
    UUID: lambda value: b"\x98" + value.bytes,
    Described: lambda value: b"\x00" + _encode(value.descriptor) + _encode(value.value),
    list: lambda value: encoded_list([_encode(one) for one in value]),
    dict: _dictionary,
}


def _encode(value: Any) -> bytes:
    kind = type(value)
    encoder = _ENCODERS.get(kind)
    if encoder is None:
        return _encoder_of_base(kind)(value)
    return encoder(value)


def _encoder_of_base(kind: type) -> Callable[[Any], bytes]:
    for base in kind.__mro__:
        if (encoder := _ENCODERS.get(base)) is not None:
            return encoder
    raise CodecError(f"{kind.__name__} has no counterpart in AMQP")


def encoder_of(kind: type) -> Callable[[Any], bytes]:
    """The function that encodes a value as this type, whatever its own is. It raises ``UNENCODABLE``."""
    return _ENCODERS[kind]


def symbols(names: list[str]) -> bytes:
    """An array of symbols, which is how AMQP lists what is offered."""
    data = b"\xb3" + b"".join(_FOUR.pack(len(name)) + name.encode("ascii") for name in names)
    return b"\xf0" + _FOUR.pack(len(data) + 4) + _FOUR.pack(len(names)) + data
