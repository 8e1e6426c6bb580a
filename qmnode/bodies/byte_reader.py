"""Bounds-checked reading of little-endian bytes."""

import struct
from functools import lru_cache
from typing import Any, Final

from qmnode.bodies.limits import BodyError


@lru_cache(maxsize=64)
def _layout(code: str) -> struct.Struct:
    return struct.Struct("<" + code)


class Reader:
    """A position in bytes. Every read raises BodyError where the bytes end too early."""

    __slots__ = ("data", "end", "place")

    def __init__(self, data: bytes, place: int = 0, end: int | None = None) -> None:
        self.data = data
        self.place = place
        self.end = len(data) if end is None else end

    @property
    def left(self) -> int:
        """The number of bytes not yet read."""
        return self.end - self.place

    def byte(self) -> int:
        """Read one byte as a number."""
        place = self.place
        if place >= self.end:
            raise BodyError(f"it ends at byte {self.end}, in the middle of a record")
        self.place = place + 1
        return self.data[place]

    def take(self, count: int) -> bytes:
        """Read the next ``count`` bytes."""
        place = self.place
        if count < 0 or count > self.end - place:
            raise BodyError(f"{count} bytes are announced at byte {place}, and {self.end - place} are left")
        self.place = place + count
        return self.data[place : place + count]

    def number(self, code: str) -> Any:
        """Read a number, by its code in :mod:`struct`."""
        layout = _layout(code)
        return layout.unpack(self.take(layout.size))[0]

    def multi_byte_integer(self) -> int:
        """MultiByteInt31 (MC-NBFX 2.1.2) and the length of an MS-NRBF LengthPrefixedString (2.1.1.6)."""
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 28:
                raise BodyError(f"the number at byte {self.place} has more than 31 bits")
        if value > 0x7FFFFFFF:
            raise BodyError(f"the number at byte {self.place} has more than 31 bits")
        return value

    def text(self) -> str:
        """Text in UTF-8 after its length (MC-NBFX 2.1.3, MS-NRBF 2.1.1.6)."""
        return utf8(self.take(self.multi_byte_integer()))


def utf8(content: bytes) -> str:
    """Decode UTF-8. Raises BodyError for other bytes."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BodyError(f"it is not UTF-8: {error.reason} at byte {error.start} of a text") from None


def utf16(content: bytes) -> str:
    """Decode UTF-16. Half of a surrogate pair is kept, as in a .NET string. Raises BodyError for an odd size."""
    if len(content) % 2:
        raise BodyError(f"UTF-16 has an even number of bytes, and these are {len(content)}")
    return content.decode("utf-16-le", "surrogatepass")


_MARKS: Final = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_LEAST: Final = 8
"""Bytes of a text without a mark: fewer are too few to tell it from numbers."""
_ZERO_PART: Final = 4
"""Without a mark, all high bytes but one in so many are zero."""
_NOT_PRINTED: Final = dict.fromkeys(map(ord, "\t\n\f\r\x1b\xa0\xad\u200c\u200d\u200e\u200f\u2028\u2029\u3000"), " ")
"""Characters of texts that Python does not take for printable."""


def utf16_as_utf8(content: bytes) -> bytes:
    """Content that can only be text of UTF-16, with a byte-order mark or nearly all of it in Latin letters, as UTF-8
    without the mark and a null at the end. Other content unchanged.
    """
    codec = _MARKS.get(content[:2], "")
    if len(content) % 2 or (codec and len(content) == 2) or not (codec or 0 in content[:64]):
        return content
    if not codec:
        zeros = content[::2].count(0), content[1::2].count(0)
        codec = "utf-16-le" if zeros[1] > zeros[0] else "utf-16-be"
        if len(content) < _LEAST or (len(content) // 2 - max(zeros)) * _ZERO_PART > len(content) // 2:
            return content
    try:
        text = content.decode(codec).removeprefix("\ufeff").removesuffix("\0")
    except UnicodeDecodeError:
        return content
    return text.encode() if text.translate(_NOT_PRINTED).isprintable() else content


def multi_byte_integer(value: int) -> bytes:
    """Encode a number as MultiByteInt31."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def encoded(text: str) -> bytes:
    """Encode a text as UTF-8. Raises BodyError for half of a surrogate pair, which UTF-8 cannot represent."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise BodyError(f"the character {text[error.start]!r} is half of a surrogate pair: UTF-8 has none") from None


def counted_text(text: str) -> bytes:
    """Encode a text as UTF-8 after its length."""
    content = encoded(text)
    return multi_byte_integer(len(content)) + content
