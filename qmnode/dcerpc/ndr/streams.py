"""Octet streams of stub data: alignment, referents, and data deferred until the constructed type is complete."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from qmnode.dcerpc.errors import NdrError

if TYPE_CHECKING:
    from qmnode.dcerpc.ndr.types import Codec

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
