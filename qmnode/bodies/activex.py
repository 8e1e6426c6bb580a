"""Bodies by their type: VT_* constants (MS-MQMQ 2.2.12), as ActiveXMessageFormatter and the COM component write them.

=====================  ======================================================================
body type              Python
=====================  ======================================================================
VT_EMPTY, VT_NULL      None, if there are no bytes
VT_I1 ... VT_UI8       int
VT_R4, VT_R8           float
VT_CY                  Decimal with four digits
VT_DATE                datetime: an OLE date (COM) or .NET ticks (System.Messaging)
VT_BOOL                bool: one byte (System.Messaging) or two (COM)
VT_BSTR, VT_LPWSTR     str, of UTF-16
VT_LPSTR               str, of a code page that the message does not name
VT_CLSID               UUID
VT_VECTOR | VT_UI1,    bytes
VT_ARRAY | VT_UI1
other vectors          list
VT_STREAMED_OBJECT,    named as such: the class identifier and the bytes, never loaded
VT_STORED_OBJECT
=====================  ======================================================================

An OLE date and ticks cannot be confused: every double of a date since the year 100 has more bits than the last tick,
or is negative. Only eight zero bytes may be both, and are taken for DateTime.MinValue.
"""

import base64
import codecs
import struct
from collections.abc import Callable
from datetime import datetime
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from enum import IntEnum
from functools import partial
from typing import Any, Final
from uuid import UUID

from qmnode.bodies.byte_reader import Reader, utf16
from qmnode.bodies.dates import MOST_TICKS, from_ole, from_ticks, to_ole, to_ticks
from qmnode.bodies.limits import BodyError, Budget

VECTOR: Final = 0x1000
BYTE_ARRAY: Final = 0x2011
"""VT_ARRAY of VT_UI1: bytes, as COM programs send them."""
DEFAULT_CODE_PAGE: Final = "cp1252"


class Vt(IntEnum):
    """VARENUM constants that are types of bodies."""

    VT_EMPTY = 0
    VT_NULL = 1
    VT_I2 = 2
    VT_I4 = 3
    VT_R4 = 4
    VT_R8 = 5
    VT_CY = 6
    VT_DATE = 7
    VT_BSTR = 8
    VT_BOOL = 11
    VT_I1 = 16
    VT_UI1 = 17
    VT_UI2 = 18
    VT_UI4 = 19
    VT_I8 = 20
    VT_UI8 = 21
    VT_LPSTR = 30
    VT_LPWSTR = 31
    VT_STREAMED_OBJECT = 68
    VT_STORED_OBJECT = 69
    VT_CLSID = 72


_BYTE_ARRAY_NAME: Final = "VT_ARRAY|VT_UI1"
_NUMBERS: Final[dict[int, str]] = {
    Vt.VT_I1: "b",
    Vt.VT_UI1: "B",
    Vt.VT_I2: "h",
    Vt.VT_UI2: "H",
    Vt.VT_I4: "i",
    Vt.VT_UI4: "I",
    Vt.VT_I8: "q",
    Vt.VT_UI8: "Q",
    Vt.VT_R4: "f",
    Vt.VT_R8: "d",
}
codecs.lookup(DEFAULT_CODE_PAGE)  # loaded now, so that no stranger's body causes it
_WHOLE: Final = frozenset("bBhHiIqQ")
_TEXTS: Final = frozenset({Vt.VT_BSTR, Vt.VT_LPWSTR, Vt.VT_LPSTR})
_SCALE: Final = Decimal(10_000)


def type_name(body_type: int) -> str:
    """Name of a body type, such as ``VT_BSTR`` or ``VT_VECTOR|VT_UI1``."""
    if body_type == BYTE_ARRAY:
        return _BYTE_ARRAY_NAME
    try:
        return f"VT_VECTOR|{Vt(body_type ^ VECTOR).name}" if body_type & VECTOR else Vt(body_type).name
    except ValueError:
        return f"{body_type:#x}"


def type_of_name(name: str) -> int | None:
    """The body type of such a name; None for other text."""
    if name.upper() == _BYTE_ARRAY_NAME:
        return BYTE_ARRAY
    prefix, separator, element = name.upper().rpartition("|")
    if element not in Vt.__members__ or (separator and prefix != "VT_VECTOR"):
        return None
    return Vt[element] | (VECTOR if separator else 0)


def recognise(body: bytes, body_type: int) -> bool:
    """Whether the body type alone identifies the format."""
    return body_type != Vt.VT_EMPTY and type_of_name(type_name(body_type)) is not None


def decode(body: bytes, body_type: int, budget: Budget, code_page: str = DEFAULT_CODE_PAGE) -> Any:
    """Decode a body. Raises BodyError if the bytes do not fit the type."""
    budget.spend(1, len(body))
    if body_type == BYTE_ARRAY:
        return body
    if body_type & VECTOR:
        return _vector(body, body_type ^ VECTOR, budget, code_page)
    if (read := _FIXED.get(body_type)) is not None:
        return read(body)
    match body_type:
        case Vt.VT_EMPTY | Vt.VT_NULL:
            if body:
                raise BodyError(f"{type_name(body_type)} has no bytes, and these are {len(body)}")
            return None
        case Vt.VT_BSTR | Vt.VT_LPWSTR:
            return utf16(body)
        case Vt.VT_LPSTR:
            return _code_page_text(body, code_page)
        case Vt.VT_STREAMED_OBJECT | Vt.VT_STORED_OBJECT:
            return _com_object(body, body_type)
    raise BodyError(f"the body type {type_name(body_type)} is unknown")


def _number(code: str, body: bytes) -> Any:
    layout = struct.Struct("<" + code)
    if len(body) != layout.size:
        raise BodyError(f"the body type has {layout.size} bytes, and the body {len(body)}")
    return layout.unpack(body)[0]


def _date(body: bytes) -> datetime:
    ticks = _number("q", body)
    return from_ticks(ticks) if 0 <= ticks <= MOST_TICKS else from_ole(_number("d", body))


def _boolean(body: bytes) -> bool:
    if len(body) not in (1, 2):
        raise BodyError(f"VT_BOOL has one byte or two, and the body {len(body)}")
    return any(body)


_FIXED: Final[dict[int, Callable[[bytes], Any]]] = {
    **{kind: partial(_number, code) for kind, code in _NUMBERS.items()},
    Vt.VT_CY: lambda body: Decimal(_number("q", body)) / _SCALE,
    Vt.VT_DATE: _date,
    Vt.VT_BOOL: _boolean,
    Vt.VT_CLSID: lambda body: UUID(bytes_le=_number("16s", body)),
}
_ELEMENT_SIZES: Final[dict[int, int]] = {
    **{kind: struct.calcsize("<" + code) for kind, code in _NUMBERS.items()},
    Vt.VT_CY: 8,
    Vt.VT_DATE: 8,
    Vt.VT_BOOL: 2,
    Vt.VT_CLSID: 16,
}


def _code_page_text(body: bytes, code_page: str) -> str:
    try:
        return body.decode(code_page)
    except LookupError:
        raise BodyError(f"{code_page!r} is no code page: name one such as cp1252, cp932 or utf-8") from None
    except UnicodeError as error:
        raise BodyError(f"it is no text of the code page {code_page}: {error}"[:200]) from None


def _com_object(body: bytes, body_type: int) -> dict[str, Any]:
    if body_type == Vt.VT_STREAMED_OBJECT and len(body) >= 16:
        # OleSaveToStream writes the class identifier, then the object's own data.
        return {"object": "streamed", "class": str(UUID(bytes_le=body[:16])), "content": body[16:]}
    return {"object": "streamed" if body_type == Vt.VT_STREAMED_OBJECT else "stored", "content": body}


def _vector(body: bytes, element: int, budget: Budget, code_page: str) -> Any:
    """The elements of a vector. Bytes are the body itself; others may follow their count (COUNTEDARRAY, 2.2.16)."""
    if element == Vt.VT_UI1:
        return body
    if element in _TEXTS:
        return _text_vector(body, element, budget, code_page)
    size = _ELEMENT_SIZES.get(element)
    if size is None:
        raise BodyError(f"the body type {type_name(VECTOR | element)} is unknown")
    start = 4 if int.from_bytes(body[:4], "little") * size == len(body) - 4 else 0
    if (len(body) - start) % size:
        raise BodyError(f"{len(body)} bytes do not divide into elements of {size}, with or without a count before them")
    budget.spend((len(body) - start) // size)
    read = _FIXED[element]
    return [read(body[place : place + size]) for place in range(start, len(body), size)]


def _text_vector(body: bytes, element: int, budget: Budget, code_page: str) -> list[str]:
    """A count, then each text after its size: in bytes for BSTR and LPSTR, in characters for LPWSTR."""
    reader = Reader(body)
    count = reader.number("I")
    if count * 4 > reader.left:
        raise BodyError(f"{count} texts are announced in {reader.left} bytes")
    budget.spend(count)
    found = []
    for _ in range(count):
        size = reader.number("I")
        if element == Vt.VT_LPSTR:
            text = _code_page_text(reader.take(size), code_page)
        else:
            text = utf16(reader.take(size if element == Vt.VT_BSTR else 2 * size))
        found.append(text.removesuffix("\0"))
    if reader.left:
        raise BodyError(f"{reader.left} bytes follow the last text")
    return found


def encode(value: Any, body_type: int | None = None, code_page: str = DEFAULT_CODE_PAGE) -> tuple[bytes, int]:
    """Encode a value as a body of the given type, or of the type that System.Messaging chooses for the value."""
    if body_type is None:
        body_type = natural_type(value)
    try:
        return _encode(value, body_type, code_page), body_type
    except (struct.error, TypeError, ValueError, AttributeError, ArithmeticError, LookupError) as error:
        if isinstance(error, BodyError):
            raise
        if isinstance(error, LookupError):
            raise BodyError(f"{code_page!r:.80} is no code page: name one such as cp1252, cp932 or utf-8") from None
        raise BodyError(f"{value!r:.80} is no {type_name(body_type)}: {_wanted(body_type, code_page)}") from error


def _wanted(body_type: int, code_page: str) -> str:
    """The values that a body type accepts, for the sentence that refuses another one."""
    if body_type == BYTE_ARRAY or body_type & VECTOR:
        element = body_type & ~VECTOR
        return "it has bytes" if element in (Vt.VT_UI1, BYTE_ARRAY) else f"it has a list of {type_name(element)}"
    if (code := _NUMBERS.get(body_type, "")) in _WHOLE:
        bits = 8 * struct.calcsize("<" + code)
        least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if code.islower() else (0, (1 << bits) - 1)
        return f"it has whole numbers from {least} to {most}"
    return {
        Vt.VT_R4: "it has numbers up to 3.4e38",
        Vt.VT_R8: "it has numbers",
        Vt.VT_CY: "it has numbers from -922337203685477.5808 to 922337203685477.5807",
        Vt.VT_DATE: "it has a date and time",
        Vt.VT_LPSTR: f"it has text of the code page {code_page}",
        Vt.VT_CLSID: "it has a UUID",
    }.get(Vt(body_type), "it has text")


def natural_type(value: Any) -> int:
    """The type that ActiveXMessageFormatter writes for such a value."""
    match value:
        case None:
            return Vt.VT_NULL
        case bool():
            return Vt.VT_BOOL
        case int():
            return Vt.VT_I4 if -(1 << 31) <= value < 1 << 31 else Vt.VT_I8 if value < 1 << 63 else Vt.VT_UI8
        case float():
            return Vt.VT_R8
        case str():
            return Vt.VT_LPWSTR
        case bytes() | bytearray() | memoryview():
            return VECTOR | Vt.VT_UI1
        case Decimal():
            return Vt.VT_CY
        case datetime():
            return Vt.VT_DATE
        case UUID():
            return Vt.VT_CLSID
    raise BodyError(f"ActiveXMessageFormatter writes no {type(value).__name__}: scalars, text and bytes only")


def _encode(value: Any, body_type: int, code_page: str) -> bytes:
    if body_type == BYTE_ARRAY:
        return _encode_vector(value, Vt.VT_UI1, code_page)
    if body_type & VECTOR:
        return _encode_vector(value, body_type ^ VECTOR, code_page)
    if (code := _NUMBERS.get(body_type)) is not None:
        return struct.pack("<" + code, value)
    match body_type:
        case Vt.VT_EMPTY | Vt.VT_NULL if value is None:
            return b""
        case Vt.VT_CY:
            return struct.pack("<q", int((Decimal(value) * _SCALE).to_integral_value(ROUND_HALF_EVEN)))
        case Vt.VT_DATE:
            return struct.pack("<q", to_ticks(value))
        case Vt.VT_BOOL:
            return b"\xff" if _is_true(value) else b"\0"
        case Vt.VT_BSTR | Vt.VT_LPWSTR:
            return value.encode("utf-16-le", "surrogatepass")  # type: ignore[no-any-return]
        case Vt.VT_LPSTR:
            return value.encode(code_page)  # type: ignore[no-any-return]
        case Vt.VT_CLSID:
            return (value if isinstance(value, UUID) else UUID(value)).bytes_le
    raise BodyError(f"{type_name(body_type)} is not written for {type(value).__name__}")


def _is_true(value: Any) -> bool:
    """The boolean. Raises BodyError for other values: the text "false" is true to Python."""
    if not isinstance(value, int) or value not in (0, 1):
        raise BodyError(f"{value!r:.80} is no VT_BOOL: it has true and false, or 1 and 0")
    return bool(value)


def _encode_vector(value: Any, element: int, code_page: str) -> bytes:
    if element == Vt.VT_UI1:
        return bytes(memoryview(value))  # a number would give that many zeros
    if isinstance(value, (str, dict)) or (element not in _TEXTS and element not in _ELEMENT_SIZES):
        raise TypeError
    if element == Vt.VT_BOOL:
        parts = [b"\xff\xff" if _is_true(one) else b"\0\0" for one in value]
    elif element in _TEXTS:
        parts = [_counted_text(one, element, code_page) for one in value]
    else:
        parts = [_encode(one, element, code_page) for one in value]
    return struct.pack("<I", len(parts)) + b"".join(parts)


def _counted_text(text: str, element: int, code_page: str) -> bytes:
    content = _encode(text, element, code_page)
    return struct.pack("<I", len(content) // 2 if element == Vt.VT_LPWSTR else len(content)) + content


def encode_ole_date(value: Any) -> tuple[bytes, int]:
    """A date as VT_DATE, in the form that COM programs read."""
    if not isinstance(value, datetime) or value.year < 100:
        raise BodyError(f"{value!r:.80} is no OLE date: those are of the years 100 to 9999")
    return struct.pack("<d", to_ole(value)), Vt.VT_DATE


def value_of_text(text: str, body_type: int) -> Any:
    """Parse text that a person wrote as a value of the body type. Raises BodyError if it is not one."""
    try:
        match body_type:
            case Vt.VT_BSTR | Vt.VT_LPWSTR | Vt.VT_LPSTR:
                return text
            case Vt.VT_EMPTY | Vt.VT_NULL if not text.strip():
                return None
            case Vt.VT_R4 | Vt.VT_R8:
                return float(text)
            case Vt.VT_CY:
                return Decimal(text)
            case Vt.VT_DATE:
                return datetime.fromisoformat(text)
            case Vt.VT_BOOL:
                return {"true": True, "false": False, "1": True, "0": False}[text.strip().lower()]
            case Vt.VT_CLSID:
                return UUID(text)
            case _ if body_type in _NUMBERS:
                return int(text, 0)
            case _ if body_type in (BYTE_ARRAY, VECTOR | Vt.VT_UI1):
                return base64.b64decode("".join(text.split()), validate=True)
    except (ValueError, InvalidOperation, KeyError):
        pass
    raise BodyError(f"{text!r:.80} is no {type_name(body_type)}")
