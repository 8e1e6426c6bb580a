"""Tables of the page. A cell has a text to show and a value to sort by."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

import pandas as pd

FEW: Final = 12
"""The number of rows that are shown until the reader expands the table or filters it."""
_NONE: Final = '<span class="quiet">–</span>'


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell shows ``html`` and is sorted by ``value``, or by its text if that is None."""

    html: str
    value: float | None = None
    right: bool = False
    """Whether the cell is aligned to the right, as numbers are."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column's title, and the sentence that shows when the reader points at it."""

    title: str
    hint: str = ""


def text(value: object, css: str = "") -> Cell:
    """Return a cell with a text; an empty one is a dash."""
    if value is None or value != value or value == "":
        return Cell(_NONE)
    return Cell(_marked(escape(str(value)), css))


def number(value: float | None, shown: str = "", css: str = "") -> Cell:
    """Return a cell with a number, or with ``shown`` in its place. None is a dash, which sorts below every number."""
    if value is None or value != value:
        return Cell(_NONE, -1e300, right=True)
    return Cell(_marked(escape(shown or f"{value:,.0f}"), css), float(value), right=True)


def time(value: float | None) -> Cell:
    """Seconds, in the unit that reads best."""
    return number(None) if value is None or value != value else number(value, seconds(float(value)))


def size(value: float | None) -> Cell:
    """Bytes, in the unit that reads best."""
    return number(None) if value is None or value != value else number(value, sized(float(value)))


def moment(value: Any, css: str = "") -> Cell:
    """Return a cell with a time (UTC), to the minute."""
    return text(None) if pd.isna(value) else text(f"{value:%Y-%m-%d %H:%M}", css)


def day(value: Any, css: str = "") -> Cell:
    return text(None) if pd.isna(value) else text(f"{value:%Y-%m-%d}", css)


def table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], name: str, total: int | None = None) -> str:
    """Return a table that sorts and filters with scripts and is complete without. ``total`` counts all rows."""
    right = [bool(rows) and all(row[place].right for row in rows) for place in range(len(columns))]
    head = "".join(
        f'<th scope="col"{_class(right[place])}{_hint(column.hint)}>{escape(column.title)}</th>'
        for place, column in enumerate(columns)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{_class(right[place])}{_value(cell)}>{cell.html}</td>" for place, cell in enumerate(row))
        + "</tr>\n"
        for row in rows
    )
    more = f'<p class="quiet">{total - len(rows):,} more in the tables.</p>' if total and total > len(rows) else ""
    return (
        f'<div class="scroll"><table class="data" data-few="{FEW}" aria-label="{escape(name)}">'
        f"<thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>{more}"
    )


def seconds(value: float) -> str:
    """Return a time in the unit that reads best. It is negative when the clocks of two nodes differ."""
    if value < 0:
        return f"-{seconds(-value)}"
    for limit, factor, unit in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms"), (120.0, 1.0, "s"), (7200.0, 1 / 60, "min")):
        if value < limit:
            return f"{_short(value * factor)} {unit}"
    return f"{_short(value / 3600)} h" if value < 172_800 else f"{_short(value / 86_400)} days"


def _short(value: float) -> str:
    return f"{value:.3g}" if value < 99.95 else f"{value:,.0f}"


def sized(value: float) -> str:
    """Bytes in the unit that reads best."""
    for unit in ("B", "KB", "MB", "GB"):
        if abs(value) < 1024:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1024
    return f"{value:,.1f} TB"


def _marked(html: str, css: str) -> str:
    return f'<span class="{css}">{html}</span>' if css else html


def _class(right: bool) -> str:
    return ' class="n"' if right else ""


def _hint(sentence: str) -> str:
    return f' title="{escape(sentence)}"' if sentence else ""


def _value(cell: Cell) -> str:
    return "" if cell.value is None else f' data-v="{cell.value:.10g}"'
