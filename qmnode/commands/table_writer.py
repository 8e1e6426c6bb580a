"""The writer of tables, for both programs."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from qmnode.commands.output import cell, escape_what_the_output_has_not, say

_GAP: Final = "  "
_NARROWEST: Final = 16
"""Columns of the terminal that text gets at least, before columns of the table are left out for it."""


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Sequence[str] = (),
    whole: Sequence[str] = (),
    drop: Sequence[str] = (),
    wide: bool = False,
    continued: bool = False,
) -> None:
    """Print a table: to a pipe all of it, with tabs between the cells; to a terminal what fits into its width.

    In a pipe a row is a line, whatever its cells hold. In a terminal the columns of ``drop`` are left out, the first of
    them first, until the others have room, and a remark names them. Text is broken into lines. The columns of ``whole``
    hold identifiers, which are never broken: after one that is longer than its column, its row goes on in the next
    line. With ``wide`` a terminal gets all columns, unbroken. A ``continued`` table has no heading of its own in a
    pipe, which has that of the table before.
    """
    cells = [[cell(value) for value in row] for row in rows]
    escape_what_the_output_has_not()
    if not sys.stdout.isatty():
        for line in cells if continued else (columns, *cells):
            print("\t".join(line))
        return
    from rich.cells import cell_len

    natural = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    room = sum(natural) + len(_GAP) * len(columns) if wide else shutil.get_terminal_size().columns
    words = [max(map(cell_len, " ".join(column).split(" "))) for column in zip(columns, *cells, strict=True)]
    table = [
        _Column(at, name, widest, word, cell_len(name), is_whole=name in whole, is_right=name in right)
        for at, (name, widest, word) in enumerate(zip(columns, natural, words, strict=True))
    ]
    shown = _fitted(table, drop, room)
    print(_GAP.join(column.aligned(column.name) for column in shown).rstrip())
    print(("─" if "utf" in (sys.stdout.encoding or "").lower() else "-") * min(_total(shown), room))
    for row in cells:
        for line in _lines(shown, row, room):
            print(line.rstrip())
    if not continued and (left_out := [column.name for column in table if column not in shown]):
        say(f"not shown in {room} columns: {', '.join(left_out)}; --wide shows all")


def print_row(*values: object) -> None:
    """Print a line of a listing whose lines appear as they are found. A terminal gets no cells for values of None."""
    escape_what_the_output_has_not()
    if sys.stdout.isatty():
        print(_GAP.join(cell(value) for value in values if value is not None))
    else:
        print("\t".join(map(cell, values)))


@dataclass(slots=True, eq=False)
class _Column:
    """A column of a table in a terminal. Widths are in columns of the terminal, which wide characters take two of."""

    at: int
    name: str
    natural: int
    word: int
    """Of the longest word."""
    width: int
    is_whole: bool
    is_right: bool

    def aligned(self, text: str) -> str:
        from rich.cells import cell_len

        space = " " * max(0, self.width - cell_len(text))
        return space + text if self.is_right else text + space

    def broken(self, text: str) -> list[str]:
        """The text in lines, broken between words where that is possible."""
        from rich.cells import cell_len, chop_cells

        if self.is_whole or cell_len(text) <= self.width:
            return [text]
        lines = [""]
        for word in text.split(" "):
            if lines[-1] and cell_len(lines[-1]) + 1 + cell_len(word) <= self.width:
                lines[-1] += f" {word}"
            else:
                lines[len(lines) - (not lines[-1]) :] = chop_cells(word, self.width) or [""]
        return lines


def _total(columns: Sequence[_Column]) -> int:
    return sum(column.width for column in columns) + len(_GAP) * (len(columns) - 1)


def _fitted(table: Sequence[_Column], drop: Sequence[str], room: int) -> list[_Column]:
    """The columns that fit into ``room``, with their widths: identifiers get half of it, or what they need."""
    from rich.cells import cell_len

    for column in table:
        enough = max(column.width, room // 2 if column.is_whole or column.is_right else _NARROWEST)
        column.width = min(column.natural, enough)
    shown = list(table)
    for name in drop:
        if _total(shown) <= room:
            break
        shown = [column for column in shown if column.name != name]
    # Identifiers that have no room in their column have a line of their own, so that its width may be that of its name.
    names = sorted((column for column in shown if column.is_whole), key=lambda column: -column.width)
    texts = [column for column in shown if not column.is_whole and not column.is_right]
    for column in (*names[:1], *texts, *names[1:]):
        least = max(cell_len(column.name), 0 if column.is_whole else min(column.word, _NARROWEST))
        column.width -= max(0, min(column.width - least, _total(shown) - room))
    for column in sorted(shown, key=lambda column: not column.is_whole):
        column.width = min(column.natural, column.width + max(0, room - _total(shown)))
    return shown


def _lines(columns: Sequence[_Column], row: Sequence[str], room: int) -> list[str]:
    """The lines of a row: cells begin in their columns, and a line ends where the next cell has no room any more."""
    from rich.cells import cell_len

    lines, top, start = [""], 0, 0
    for column in columns:
        parts = column.broken(row[column.at])
        at = max(0, min(start, room - cell_len(parts[0])))
        if at < (end := cell_len(lines[top].rstrip())) + len(_GAP) and end:
            top += 1
        for line, part in enumerate(parts, top):
            lines += [""] * (line + 1 - len(lines))
            lines[line] += " " * (at - cell_len(lines[line])) + column.aligned(part)
        start += column.width + len(_GAP)
    return lines
