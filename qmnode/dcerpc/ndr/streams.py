"""Octet streams of stub data: alignment, referents, and what is deferred until the constructed type is complete."""

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
    """Makes stub data. The referents of embedded pointers come after what contains the pointers (C706 14.3.12.3)."""

    __slots__ = ("data", "deferred", "referent", "word")

    def __init__(self, word: struct.Struct) -> None:
        self.data = bytearray()
        self.word = word
        """Four bytes in NDR, eight in NDR64: counts, offsets and pointers (MS-RPCE 2.2.5.3)."""
        self.referent = _FIRST_REFERENT
        self.deferred: list[tuple[Codec, Any]] = []

    def align(self, boundary: int) -> None:
        """Pad to a multiple of ``boundary``."""
        gap = -len(self.data) % boundary
        if gap:
            self.data += _PADDING[:gap]

    def put_word(self, value: int) -> None:
        """A count, an offset or a pointer."""
        self.align(self.word.size)
        self.data += self.word.pack(value)

    def next_referent(self) -> int:
        """What stands for a pointer that is not null."""
        referent = self.referent
        self.referent = referent + 4
        return referent

    def flush(self) -> None:
        """Write what was deferred, and after each what that defers."""
        pending, self.deferred = self.deferred, []
        for codec, value in pending:
            codec.write(self, value)
            if self.deferred:
                self.flush()


class NdrReader:
    """Takes stub data apart. Nothing is allocated for a count before the bytes that it counts are known to be there."""

    __slots__ = ("data", "deferred", "end", "position", "word")

    def __init__(self, data: bytes, word: struct.Struct) -> None:
        self.data = data
        self.end = len(data)
        self.position = 0
        self.word = word
        self.deferred: list[tuple[Any, Any, Codec, str, str]] = []
        """Where to put what: target, name or place in it, how to read it, which members of the target count it."""

    def align(self, boundary: int) -> None:
        """Skip to a multiple of ``boundary``."""
        self.position += -self.position % boundary

    def word_value(self) -> int:
        """A count, an offset or a pointer."""
        word = self.word
        position = self.position + -self.position % word.size
        if position + word.size > self.end:
            raise NdrError(f"the stub data ends at {self.end}, in the middle of a number at {position}")
        self.position = position + word.size
        value: int = word.unpack_from(self.data, position)[0]
        return value

    def take(self, size: int) -> bytes:
        """So many bytes."""
        position = self.position
        if size > self.end - position:
            raise NdrError(f"{size} bytes at {position}, but the stub data ends at {self.end}")
        self.position = position + size
        return self.data[position : position + size]

    def fields(self, form: struct.Struct) -> tuple[Any, ...]:
        """Fields of fixed size, which are aligned already."""
        position = self.position
        after = position + form.size
        if after > self.end:
            raise NdrError(f"{form.size} bytes at {position}, but the stub data ends at {self.end}")
        self.position = after
        return form.unpack_from(self.data, position)

    def flush(self) -> None:
        """Read what was deferred, and after each what that defers."""
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
    """The form of counts, offsets and pointers."""
    return _WORDS[pointer_size, order]
