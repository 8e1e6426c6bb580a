"""Tables of the page. A cell has a text to show and a value to sort by."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from mqenterprise.markup import Content, Element, append, element

FEW: Final = 12
"""The number of rows that are shown until the reader expands the table or filters it."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell shows ``content`` and is sorted by ``value``, or by its text if that is None."""

    content: tuple[Content, ...]
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
        return quiet("–")
    return Cell((_marked(str(value), css),))


def number(value: float | None, shown: str = "", css: str = "") -> Cell:
    """Return a cell with a number, or with ``shown`` in its place. None is a dash, which sorts below every number."""
    if value is None or value != value:
        return quiet("–", -1e300, right=True)
    return Cell((_marked(shown or f"{value:,.0f}", css),), float(value), right=True)


def quiet(words: str, value: float | None = None, *, right: bool = False) -> Cell:
    """Return a cell with words that stand back, such as those for a missing value."""
    return Cell((element("span", words, class_="quiet"),), value, right)


def time(value: float | None) -> Cell:
    """Seconds, in the unit that reads best."""
    return number(None) if value is None or value != value else number(value, seconds(float(value)))


def size(value: float | None) -> Cell:
    """Bytes, in the unit that reads best."""
    return number(None) if value is None or value != value else number(value, sized(float(value)))


def moment(value: Any, css: str = "") -> Cell:
    """Return a cell with a time (UTC), to the minute."""
    return text(None) if _is_missing(value) else text(f"{value:%Y-%m-%d %H:%M}", css)


def day(value: Any, css: str = "") -> Cell:
    return text(None) if _is_missing(value) else text(f"{value:%Y-%m-%d}", css)


def _is_missing(value: Any) -> bool:
    """Whether it is None, or a missing value of pandas, which equals nothing."""
    return value is None or value != value


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], name: str, total: int | None = None
) -> list[Element]:
    """Return a table that sorts and filters with scripts and is complete without. ``total`` counts all rows."""
    right = [bool(rows) and all(row[place].right for row in rows) for place in range(len(columns))]
    head = element("tr")
    for place, column in enumerate(columns):
        append(head, element("th", column.title, scope="col", class_=_class(right[place]), title=column.hint or None))
    body = element("tbody", "\n")
    for row in rows:
        cells = (
            element("td", *cell.content, class_=_class(right[place]), data_v=_value(cell))
            for place, cell in enumerate(row)
        )
        append(body, element("tr", *cells), "\n")
    made = element("table", element("thead", head), body, class_="data", data_few=FEW, aria_label=name)
    parts = [element("div", made, class_="scroll")]
    if total and total > len(rows):
        parts.append(element("p", f"{total - len(rows):,} more in the tables.", class_="quiet"))
    return parts


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


def _marked(text: str, css: str) -> Content:
    return element("span", text, class_=css) if css else text


def _class(right: bool) -> str | None:
    return "n" if right else None


def _value(cell: Cell) -> str | None:
    return None if cell.value is None else f"{cell.value:.10g}"
