"""How large columns of a Parquet file become when they are read: by the headers of their pages.

A reader takes memory by these headers, and not by the footer, which may say anything. A page header is a structure in
Thrift's compact protocol, followed by the bytes of the page.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyarrow import parquet

_HEADER: Final = 64 << 10
"""The most bytes of a page's header; it may hold the least and the greatest value of its page."""
_MOST_PAGES: Final = 100_000
_DEEPEST: Final = 8
_DICTIONARY: Final = 2
"""The type of a page with the distinct values of a column, to which other pages refer."""
_SIZED: Final = frozenset({0, 2, 3, 4, 8})
"""Encodings whose values have at most the size of their page, or are numbers of values in a dictionary: PLAIN,
PLAIN_DICTIONARY, RLE, BIT_PACKED, RLE_DICTIONARY. Others repeat parts of the value before."""
_TYPES: Final = frozenset({"BOOLEAN", "INT32", "INT64", "BYTE_ARRAY"})


class ExpansionError(Exception):
    """The size of a column in memory is unknown, or has no bound. ``reason`` is one word for a table."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


@dataclass(slots=True)
class Size:
    """The size of a column in memory."""

    pages: int = 0
    """Bytes of its pages, decompressed, and eight bytes for each row."""
    most: int = 0
    """The most bytes of its texts, if each row has the largest text of a dictionary."""


def expansion(
    metadata: parquet.FileMetaData, columns: Sequence[str], read: Callable[[int, int], bytes]
) -> dict[str, Size]:
    """Return the sizes of columns, as their pages tell them. ``read`` returns bytes of the file at a place, at most so
    many. Raises :class:`ExpansionError`.
    """
    sizes = {name: Size() for name in columns}
    pages = 0
    for index in range(metadata.num_row_groups if columns else 0):
        group = metadata.row_group(index)
        for number in range(group.num_columns):
            chunk = group.column(number)
            name = metadata.schema.column(number).path.partition(".")[0]
            if name not in sizes:
                continue
            size = sizes[name]
            if metadata.schema.column(number).max_repetition_level or chunk.physical_type not in _TYPES:
                raise ExpansionError("schema", f"column {name} has an unexpected type: {chunk.physical_type}")
            size.pages += 8 * group.num_rows
            place = min(one for one in (chunk.dictionary_page_offset, chunk.data_page_offset) if one is not None)
            end = place + chunk.total_compressed_size
            dictionary = 0
            while place < end:
                pages += 1
                if pages > _MOST_PAGES:
                    raise ExpansionError("too-large", f"it has more than {_MOST_PAGES:,} pages")
                header, length = _structure(read(place, _HEADER))
                place += length + _whole(header, 3, name)
                size.pages += _whole(header, 2, name)
                if header.get(1) == _DICTIONARY:
                    dictionary = max(dictionary, _whole(header, 2, name))
                else:
                    data, encoding = (header[5], 2) if 5 in header else (header.get(8), 4)
                    if not isinstance(data, dict) or data.get(encoding) not in _SIZED:
                        raise ExpansionError("schema", f"column {name} has an encoding that no node writes")
            size.most += dictionary * group.num_rows if chunk.physical_type == "BYTE_ARRAY" else 0
    return sizes


def _whole(header: dict[int, Any], field: int, column: str) -> int:
    value = header.get(field)
    if not isinstance(value, int) or value < 0:
        raise ExpansionError("corrupt", f"a page of column {column} has no size")
    return value


def _structure(data: bytes) -> tuple[dict[int, Any], int]:
    """Return the fields of a structure by number, and its length. Raises :class:`ExpansionError`."""
    reader = _Compact(data)
    try:
        return reader.structure(0), reader.place
    except IndexError:
        raise ExpansionError("corrupt", "the header of a page is cut") from None


class _Compact:
    """Reads a structure in Thrift's compact protocol. Raises IndexError at the end of the bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.place = 0

    def structure(self, depth: int) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            step, kind = head >> 4, head & 15
            number = number + step if step else self._number()
            fields[number] = self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2):  # true and false
            return kind == 1
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):  # whole numbers of 16, 32 and 64 bits
            return self._number()
        if kind == 8:  # bytes
            size = self._varint()
            self.place += size
            if self.place > len(self._data):
                raise IndexError
            return None
        if kind == 12 and depth < _DEEPEST:
            return self.structure(depth + 1)
        raise ExpansionError("corrupt", "the header of a page has a field that no page has")

    def _byte(self) -> int:
        value = self._data[self.place]
        self.place += 1
        return value

    def _varint(self) -> int:
        value = shift = 0
        while shift < 64:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
        raise ExpansionError("corrupt", "the header of a page has a number that is too large")

    def _number(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
