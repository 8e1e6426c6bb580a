"""Knowledge of a packet's bytes outside ``qmnode/structures``: formats, derived offsets, and numbers as offsets.

``python -m tests.reach.packet_knowledge`` lists what it finds. ``own_formats.toml`` names the modules and rooms that
have formats of their own, each with the reason.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

PROJECT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = (PROJECT / "qmnode", PROJECT / "mqenterprise")
STRUCTURES: Final = "qmnode/structures/"
EXCEPTIONS: Final = Path(__file__).with_name("own_formats.toml")

_FORMATS: Final = frozenset(("Struct", "calcsize", "iter_unpack", "pack", "pack_into", "unpack", "unpack_from"))
"""Functions of ``struct`` that take a format."""
_COLUMN: Final = re.compile(r"<[iu][248]")
"""A number of a packet, as numpy describes it. Keys of the store are big-endian."""
_PLACES: Final = frozenset(("codes_of", "codes_of_some", "names_of", "offset_of", "size_of"))
"""The functions of the layouts that derive offsets from declarations, for the view."""
_PACKETS: Final = frozenset(("packet", "value", "data", "buffer", "stored"))
"""Names of variables and attributes that hold a packet, or a stored value with one."""


class Knowledge(NamedTuple):
    """A place in a source that knows how a packet is laid out."""

    file: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}"


def exceptions() -> dict[str, dict[str, Any]]:
    """Modules, and rooms (with a slash at the end), that have formats of their own."""
    listed: dict[str, dict[str, Any]] = tomllib.loads(EXCEPTIONS.read_text("utf-8"))
    return listed


def found_in(source: str, file: str) -> Iterator[Knowledge]:
    """What a source knows of a packet's bytes."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module="qmnode.structures.layout", names=names) if {
                name.name for name in names
            } & _PLACES:
                yield Knowledge(file, node.lineno, "derives offsets itself: let packet_view do it")
            case ast.Call(func=ast.Attribute(value=ast.Name(id="struct"), attr=name)) if name in _FORMATS:
                yield Knowledge(file, node.lineno, f"struct.{name} has a format of bytes")
            case ast.ImportFrom(module="struct", names=names) if {name.name for name in names} - {"Struct", "error"}:
                yield Knowledge(file, node.lineno, "imports functions of struct by their names")
            case ast.Call(func=ast.Attribute(attr="dtype")) if _has_column(node):
                yield Knowledge(file, node.lineno, "dtype has a format of bytes")
            case ast.Call(func=ast.Name(id="Struct")):
                yield Knowledge(file, node.lineno, "Struct has a format of bytes")
            case ast.Subscript(value=base, slice=index) if _name(base) in _PACKETS and _has_number(index):
                yield Knowledge(file, node.lineno, f"a number as an offset: {ast.unparse(node)}")


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _has_column(call: ast.Call) -> bool:
    return any(isinstance(node, ast.Constant) and _COLUMN.fullmatch(str(node.value)) for node in ast.walk(call))


def _has_number(index: ast.expr) -> bool:
    """Whether an index adds numbers to places. The ends of a buffer, zero and none, are no knowledge of it."""
    return any(
        isinstance(node, ast.Constant) and type(node.value) is int and node.value != 0 for node in ast.walk(index)
    )


def found() -> list[Knowledge]:
    """All that the product's sources outside the structures know, the exceptions included."""
    result: list[Knowledge] = []
    for package in PACKAGES:
        for path in sorted(package.rglob("*.py")):
            file = str(path.relative_to(PROJECT))
            if not file.startswith(STRUCTURES):
                result += found_in(path.read_text("utf-8"), file)
    return result


def excepted(file: str) -> str | None:
    """The entry of the exceptions that a file falls under."""
    return next((name for name in exceptions() if file == name or (name.endswith("/") and file.startswith(name))), None)


if __name__ == "__main__":
    print(*(one for one in found() if excepted(one.file) is None), sep="\n")
