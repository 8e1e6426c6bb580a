"""Makes parsers and writers from declarations: one function per structure, with its nested structures inlined.

A parser (``generate_reader.py``) is ``read(buf, p, end, origin) -> (value, p)``: it parses the structure at
``p``, never reads past ``end``, and aligns to ``origin``, the start of the outermost structure. It is made twice: for
``bytes``, and for a memoryview. A writer (``generate_writer.py``) is ``parts(value) -> list`` of byte runs; joined they
are the structure. This module has the parts that both share.
"""

import re
from collections.abc import Callable
from typing import Any

from qmnode.structures.errors import PacketError
from qmnode.structures.fields import Choice, Field, Scalar
from qmnode.structures.plan import short, short_run, wrong_run

_FIRST_LOOK = 64
"""Bytes of a view that are first searched for the end of a text: most names are shorter."""


def text_end(buf: bytes | memoryview, p: int, end: int) -> int:
    """The offset after the null character that ends UTF-16 text at ``p``, or -1 when none is before ``end``."""
    if isinstance(buf, bytes):
        return _text_end(buf, p, end)
    # A view cannot be searched, so a part of it is copied, at most a multiple of the text. If each of many texts in a
    # buffer copied the whole rest, the time would grow with the square of their number.
    size = _FIRST_LOOK
    while True:
        found = _text_end(bytes(buf[p : min(p + size, end)]), 0, size)
        if found >= 0:
            return p + found
        if p + size >= end:
            return -1
        size *= 4


def _text_end(buf: bytes, p: int, end: int) -> int:
    at = buf.find(b"\0\0", p, end)
    while at >= 0 and (at - p) % 2:
        at = buf.find(b"\0\0", at + 1, end)
    return at if at < 0 else at + 2


class Code:
    """Lines of a function under construction, with the objects they name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[str, Any] = {
            "Bad": PacketError, "short": short, "short_run": short_run, "wrong_run": wrong_run,
            "new": tuple.__new__, "text_end": text_end, "memoryview": memoryview,
        }  # fmt: skip
        self.count = 0

    def add(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def variable(self, hint: str = "v") -> str:
        self.count += 1
        return f"{hint}_{self.count}"

    def name(self, value: Any, hint: str) -> str:
        """A name in the function's globals for an object."""
        for known, there in self.names.items():
            if there is value and not isinstance(value, int):
                return known
        name = self.variable(re.sub(r"\W", "_", hint))
        self.names[name] = value
        return name

    def compile(self, signature: str, filename: str) -> Callable[..., Any]:
        source = f"def made({signature}):\n" + "\n".join(self.lines) + "\n"
        exec(compile(source, filename, "exec"), self.names)  # noqa: S102 - made of our own declarations only
        made: Callable[..., Any] = self.names.pop("made")
        made.__source__ = source  # type: ignore[attr-defined]
        return made


def fixed_run(fields: tuple[Field, ...], place: int) -> tuple[Field, ...]:
    """The fixed fields from ``place`` on that one unpack reads."""
    stop = place
    while stop < len(fields) and isinstance(fields[stop], Scalar) and fields[stop].when is None:
        stop += 1
    return fields[place:stop]


def same_cases(item: Choice) -> list[tuple[list[int], Field | None]]:
    """The cases of a choice with the values that share one, absence first: it is the most frequent."""
    groups: list[tuple[list[int], Field | None]] = []
    for value, case in sorted(item.cases.items(), key=lambda pair: pair[1] is not None):
        for values, known in groups:
            if known == case:
                values.append(value)
                break
        else:
            groups.append(([value], case))
    return groups
