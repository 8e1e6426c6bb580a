"""XML in the .NET binary format (MC-NBFX), with the dictionary of SOAP (MC-NBFS) and one in the message (MC-NBFSE)."""

import base64
import struct
from collections.abc import Callable
from datetime import UTC
from decimal import Decimal
from typing import Final
from uuid import UUID

from qmnode.bodies.byte_reader import Reader, counted_text, encoded, multi_byte_integer, utf8, utf16
from qmnode.bodies.dates import duration_text, from_binary
from qmnode.bodies.limits import BodyError, Budget
from qmnode.bodies.nbfs import STRINGS
from qmnode.bodies.xml_text import check_name
from qmnode.bodies.xml_tree import Element

_XML_NAMESPACE: Final = "http://www.w3.org/XML/1998/namespace"
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"


class Dictionary:
    """Strings by number: even ones are from MC-NBFS, odd ones from the string tables of a session (MC-NBFSE)."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._own: list[str] = []

    def read_table(self, reader: Reader) -> None:
        """Add the strings of a StringTable (MC-NBFSE 2.1)."""
        size = reader.multi_byte_integer()
        if size > reader.left:
            raise BodyError(f"a string table of {size} bytes is announced, and {reader.left} are left")
        end = reader.place + size
        while reader.place < end:
            text = reader.text()
            self._budget.spend(1, len(text))
            self._own.append(text)
        if reader.place != end:
            raise BodyError("a string table ends in the middle of a string")

    def string(self, reader: Reader) -> str:
        """The string that a DictionaryString (2.1.4) refers to."""
        number = reader.multi_byte_integer()
        strings, place = (self._own, number >> 1) if number % 2 else (STRINGS, number >> 1)
        if place >= len(strings):
            raise BodyError(f"string {number} is in no dictionary")
        text = strings[place]
        self._budget.spend(0, len(text))
        return text


def parse(reader: Reader, dictionary: Dictionary, budget: Budget) -> Element:
    """Parse the document that begins here into a tree."""
    return _Document(reader, dictionary, budget).read()


class _Document:
    """The records of one document."""

    def __init__(self, reader: Reader, dictionary: Dictionary, budget: Budget) -> None:
        self._reader = reader
        self._dictionary = dictionary
        self._budget = budget
        self._open: list[tuple[Element, dict[str, str]]] = []
        self._texts: list[list[str]] = []
        self._root: Element | None = None

    def read(self) -> Element:
        """Read records until the root is closed."""
        while self._root is None or self._open:
            kind = self._reader.byte()
            if kind == 0x01:
                self._end()
            elif kind == 0x02:
                self._budget.spend(1, len(self._reader.text()))
            elif kind == 0x03:
                self._array()
            elif 0x40 <= kind <= 0x77:
                self._element(kind)
            elif kind >= 0x80:
                self._character_data(kind)
            else:
                raise BodyError(f"record {kind:#04x} at byte {self._reader.place - 1} has no place there")
        return self._root

    def _element(self, kind: int) -> None:
        self._budget.check_depth(len(self._open) + 1)
        prefix, name = self._name(kind, _ELEMENT_NAMES, 0x44)
        spaces = self._open[-1][1] if self._open else {"": "", "xml": _XML_NAMESPACE}
        attributes: list[tuple[str, str, str]] = []
        while self._reader.left and 0x04 <= (record := self._reader.data[self._reader.place]) <= 0x3F:
            self._reader.place += 1
            if 0x08 <= record <= 0x0B:
                declared, space = self._declaration(record)
                spaces = {**spaces, declared: space}
                self._budget.spend(1 + len(spaces) // 8, len(space))
            else:
                attributes.append((*self._name(record, _ATTRIBUTE_NAMES, 0x0C), self._text(self._reader.byte())))
                self._budget.spend(1, len(attributes[-1][1]))
        element = Element(name, self._space(spaces, prefix))
        for prefix, name, value in attributes:
            element.attributes[self._space(spaces, prefix) if prefix else "", name] = value
        self._budget.spend(1, len(name))
        if self._open:
            self._open[-1][0].children.append(element)
        elif self._root is not None:
            raise BodyError("a second element follows the root")
        else:
            self._root = element
        self._open.append((element, spaces))
        self._texts.append([])

    def _name(self, kind: int, forms: dict[int, tuple[bool, bool]], first_letter: int) -> tuple[str, str]:
        """Prefix and name of an element's or attribute's record (2.2.1, 2.2.2)."""
        if kind in forms:
            prefixed, indexed = forms[kind]
            prefix = self._reader.text() if prefixed else ""
        else:
            letter = kind - first_letter
            prefix, indexed = _LETTERS[letter % 26], letter < 26
        return prefix, self._dictionary.string(self._reader) if indexed else self._reader.text()

    def _declaration(self, kind: int) -> tuple[str, str]:
        """Prefix and namespace of an xmlns record."""
        prefix = self._reader.text() if kind in (0x09, 0x0B) else ""
        return prefix, self._dictionary.string(self._reader) if kind >= 0x0A else self._reader.text()

    def _space(self, spaces: dict[str, str], prefix: str) -> str:
        try:
            return spaces[prefix]
        except KeyError:
            raise BodyError(f"the prefix {prefix!r:.80} has no namespace") from None

    def _character_data(self, kind: int) -> None:
        if not self._open:
            raise BodyError("text stands outside of the root")
        self._texts[-1].append(self._text(kind & 0xFE))
        if kind % 2:
            self._end()

    def _end(self) -> None:
        if not self._open:
            raise BodyError("an element ends that has not begun")
        element, _ = self._open.pop()
        text = "".join(self._texts.pop())
        element.text = text if not element.children or text.strip() else ""

    def _array(self) -> None:
        """An Array record (2.3.3): one element repeated, each time with one value."""
        first = self._reader.byte()
        if not 0x40 <= first <= 0x77:
            raise BodyError(f"an array begins with record {first:#04x}, which is no element")
        self._element(first)
        element, _ = self._open[-1]
        if self._reader.byte() != 0x01:
            raise BodyError("the element of an array holds more than the array's values")
        self._end()
        kind, count = self._reader.byte() & 0xFE, self._reader.multi_byte_integer()
        if kind not in _ARRAY_SIZES or not self._open:
            raise BodyError(f"an array of record {kind:#04x} is none of MC-NBFX 2.3.3, or stands outside of the root")
        if count * _ARRAY_SIZES[kind] > self._reader.left:
            raise BodyError(f"an array of {count} values is announced, and {self._reader.left} bytes are left")
        self._budget.spend(count * (1 + len(element.attributes)), count * len(element.name))
        siblings = self._open[-1][0].children
        siblings.pop()
        for _ in range(count):
            siblings.append(Element(element.name, element.namespace, dict(element.attributes), text=self._text(kind)))

    def _text(self, kind: int) -> str:
        self._budget.spend()
        if kind == 0xA8:
            return ""
        if kind == 0xAA:
            return self._dictionary.string(self._reader)
        if kind == 0xA4:
            return self._list()
        if (read := _TEXTS.get(kind)) is None:
            raise BodyError(f"record {kind:#04x} at byte {self._reader.place - 1} is no text")
        text = read(self._reader) if kind != 0xBC else _qualified_name(self._reader, self._dictionary)
        self._budget.spend(0, len(text))
        return text

    def _list(self) -> str:
        """Values between StartListText and EndListText (2.2.3.19): text with spaces between."""
        values = []
        while (kind := self._reader.byte()) != 0xA6:
            if kind == 0xA4:
                raise BodyError("a list stands within a list")
            values.append(self._text(kind))
        return " ".join(values)


_ELEMENT_NAMES: Final = {0x40: (False, False), 0x41: (True, False), 0x42: (False, True), 0x43: (True, True)}
"""For the records without a fixed letter: whether they have a prefix, and whether the name is in a dictionary."""
_ATTRIBUTE_NAMES: Final = {0x04: (False, False), 0x05: (True, False), 0x06: (False, True), 0x07: (True, True)}
_ARRAY_SIZES: Final = {
    0xB4: 1, 0x8A: 2, 0x8C: 4, 0x8E: 8, 0x90: 4, 0x92: 8, 0x94: 16, 0x96: 8, 0xAE: 8, 0xB0: 16
}  # fmt: skip


def _number(code: str) -> Callable[[Reader], str]:
    return lambda reader: str(reader.number(code))


def _float(code: str) -> Callable[[Reader], str]:
    def read(reader: Reader) -> str:
        value = reader.number(code)
        if value != value or value in (float("inf"), float("-inf")):
            return {float("inf"): "INF", float("-inf"): "-INF"}.get(value, "NaN")
        text = repr(value) if code == "d" else _single_text(value)
        return text.removesuffix(".0")

    return read


def _single_text(value: float) -> str:
    """The shortest text that represents the same 32 bits."""
    for digits in range(6, 10):
        text = f"{value:.{digits}g}"
        if struct.pack("<f", float(text)) == struct.pack("<f", value):
            return text
    return repr(value)


def _decimal(reader: Reader) -> str:
    """DecimalText (2.2.3.11): a Windows DECIMAL of 16 bytes."""
    _, scale, sign, high, low = struct.unpack("<HBBIQ", reader.take(16))
    if scale > 28:
        raise BodyError(f"a decimal has the scale {scale}, and at most 28")
    return format(Decimal(f"{'-' if sign & 0x80 else ''}{high << 64 | low}E-{scale}"), "f")


def _date(reader: Reader) -> str:
    """DateTimeText (2.2.3.12), with all seven digits of its ticks."""
    value = reader.number("Q")
    moment, rest = from_binary(value), (value & ((1 << 62) - 1)) % 10_000_000
    fraction = f".{rest:07}".rstrip("0") if rest else ""
    return f"{moment.replace(microsecond=0, tzinfo=None).isoformat()}{fraction}{'Z' if moment.tzinfo is UTC else ''}"


def _counted(code: str, decode: Callable[[bytes], str]) -> Callable[[Reader], str]:
    return lambda reader: decode(reader.take(reader.number(code)))


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _boolean(reader: Reader) -> str:
    return "true" if reader.byte() else "false"


def _qualified_name(reader: Reader, dictionary: Dictionary) -> str:
    prefix = reader.byte()
    if prefix >= 26:
        raise BodyError(f"a qualified name has the prefix {prefix}, and there are 26")
    return f"{_LETTERS[prefix]}:{dictionary.string(reader)}"


_TEXTS: Final[dict[int, Callable[[Reader], str]]] = {
    0x80: lambda _: "0",
    0x82: lambda _: "1",
    0x84: lambda _: "false",
    0x86: lambda _: "true",
    0x88: _number("b"),
    0x8A: _number("h"),
    0x8C: _number("i"),
    0x8E: _number("q"),
    0x90: _float("f"),
    0x92: _float("d"),
    0x94: _decimal,
    0x96: _date,
    0x98: _counted("B", utf8),
    0x9A: _counted("H", utf8),
    0x9C: _counted("i", utf8),
    0x9E: _counted("B", _base64),
    0xA0: _counted("H", _base64),
    0xA2: _counted("i", _base64),
    0xAC: lambda reader: f"urn:uuid:{UUID(bytes_le=reader.take(16))}",
    0xAE: lambda reader: duration_text(reader.number("q")),
    0xB0: lambda reader: str(UUID(bytes_le=reader.take(16))),
    0xB2: _number("Q"),
    0xB4: _boolean,
    0xB6: _counted("B", utf16),
    0xB8: _counted("H", utf16),
    0xBA: _counted("i", utf16),
    0xBC: lambda _: "",
}
"""Text records without the bit that ends the element: MC-NBFX 2.2.3."""

_NUMBERS: Final = {text: 2 * place for place, text in enumerate(STRINGS)}


def write_text(text: str) -> bytes:
    """A text record that ends its element."""
    content = encoded(text)
    if not content:
        return b"\x01"
    if len(content) < 1 << 8:
        return b"\x99" + struct.pack("<B", len(content)) + content
    if len(content) < 1 << 16:
        return b"\x9b" + struct.pack("<H", len(content)) + content
    return b"\x9d" + struct.pack("<i", len(content)) + content


def write(element: Element, around: str = "") -> bytes:
    """The element as records. Its namespaces become default namespaces, and those of attributes prefixes."""
    check_name(element.name)
    parts = [_name_record(0x42, element.name)]
    if element.namespace != around:
        known = _NUMBERS.get(element.namespace)
        parts.append(
            b"\x08" + counted_text(element.namespace) if known is None else b"\x0a" + multi_byte_integer(known)
        )
    spaces = sorted({space for space, _ in element.attributes if space})
    if len(spaces) > len(_LETTERS):
        raise BodyError(f"the element {element.name!r:.80} has attributes of {len(spaces)} namespaces")
    for (space, name), value in element.attributes.items():
        check_name(name)
        letter = spaces.index(space) if space else None
        parts.append(b"\x04" if letter is None else bytes([0x26 + letter]))
        parts.append(counted_text(name) + b"\x98" + _short(value))
    for number, space in enumerate(spaces):
        parts.append(b"\x09" + counted_text(_LETTERS[number]) + counted_text(space))
    parts += [write(child, element.namespace) for child in element.children]
    parts.append(write_text(element.text))
    return b"".join(parts)


def _name_record(indexed: int, name: str) -> bytes:
    known = _NUMBERS.get(name)
    if known is None:
        return bytes([indexed - 2]) + counted_text(name)
    return bytes([indexed]) + multi_byte_integer(known)


def _short(value: str) -> bytes:
    content = encoded(value)
    if len(content) > 0xFF:
        raise BodyError(f"an attribute has {len(content)} bytes, and at most 255 are written")
    return bytes([len(content)]) + content
