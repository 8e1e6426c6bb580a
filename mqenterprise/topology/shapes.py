"""Boxes, texts and lines of an SVG document, and the room that a text takes."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from mqenterprise.markup import Element, append, element, svg

LINE: Final = 17.0
"""The height of a line of text."""
_NARROW, _USUAL, _BROAD, _FULL = 0.42, 0.64, 0.98, 1.1
"""Widths of characters as fractions of the font size, taken from a broad font."""

_STYLE: Final = """
:root{--page:#fff;--ink:#1b2733;--soft:#51606e;--line:#6b7c8c;
--card:#eef5fb;--edge:#2b6ca3;--gate:#b4460f;--other:#fbf3e4;--rim:#8a5a12}
@media(prefers-color-scheme:dark){:root{--page:#12181f;--ink:#e8eef4;--soft:#a9b7c4;--line:#8496a6;
--card:#1c2a38;--edge:#6fb1e8;--gate:#ff9a62;--other:#2e2618;--rim:#dca95a}}
svg{width:100%;height:auto;background:var(--page)}
text{font-family:"DejaVu Sans",Verdana,Arial,sans-serif;fill:var(--ink)}
.page{fill:var(--page)}.title,.name{font-weight:bold}.small{fill:var(--soft)}.cost{font-weight:bold}
line,.link{stroke:var(--line);stroke-width:2;fill:none}.stub,.tree{stroke:var(--line);stroke-width:1;fill:none}
.card{fill:var(--card);stroke:var(--edge);stroke-width:1.5}circle{fill:var(--edge)}circle.foreign{fill:var(--rim)}
.card.foreign{fill:var(--other);stroke:var(--rim);stroke-dasharray:5 3}
.gate{fill:var(--gate)}text.gate{font-weight:bold;fill:var(--ink)}.router{fill:var(--edge)}text.router{fill:var(--ink)}.machine{fill:var(--soft)}
"""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in pixels, sides parallel to the page."""

    left: float
    top: float
    right: float
    bottom: float

    def moved(self, x: float, y: float) -> Box:
        return Box(self.left + x, self.top + y, self.right + x, self.bottom + y)

    def grown(self, by: float) -> Box:
        return Box(self.left - by, self.top - by, self.right + by, self.bottom + by)

    def meets(self, other: Box) -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )

    def meets_line(self, x1: float, y1: float, x2: float, y2: float) -> bool:
        """Return whether any part of a line is inside (Liang and Barsky 1984)."""
        begin, end = 0.0, 1.0
        dx, dy = x2 - x1, y2 - y1
        for step, room in ((-dx, x1 - self.left), (dx, self.right - x1), (-dy, y1 - self.top), (dy, self.bottom - y1)):
            if step == 0:
                if room <= 0:
                    return False
                continue
            at = room / step
            if step < 0:
                begin = max(begin, at)
            else:
                end = min(end, at)
        return begin < end


def text_width(text: str, size: float) -> float:
    """Return the greatest width of a text in pixels, in the fonts of a browser."""
    return size * sum(map(_width, text))


def _width(character: str) -> float:
    if unicodedata.east_asian_width(character) in "WF":
        return _FULL
    if unicodedata.combining(character):
        return 0.0
    if character in "ijltfrI.,:;'|!()[]- ":
        return _NARROW
    return _BROAD if character in "mwMW@%" else _USUAL if character.isalnum() and not character.isupper() else 0.78


def fitted(text: str, size: float, width: float) -> str:
    """Return the text, cut with an ellipsis if it is wider than the given width."""
    if text_width(text, size) <= width:
        return text
    left = width - size
    for place, character in enumerate(text):
        left -= size * _width(character)
        if left < 0:
            return text[:place].rstrip() + "…"
    return text


def path(data: str, style: str) -> Element:
    """Return a path element with this outline."""
    return element("path", class_=style, d=data)


class Canvas:
    """Collects the elements of a document."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._parts: list[Element] = [element("rect", class_="page", width="100%", height="100%")]
        self._group: Element | None = None

    def add(self, part: Element) -> None:
        if self._group is None:
            self._parts.append(part)
        else:
            append(self._group, part)

    @contextmanager
    def group(self, about: str) -> Iterator[None]:
        """Group elements, with a text that shows when the group is pointed at. Groups do not nest."""
        group = element("g", element("title", about))
        self.add(group)
        self._group = group
        yield
        self._group = None

    def text(self, x: float, y: float, text: str, style: str, size: float, whole: str | None = None) -> None:
        """Add a line of text with its baseline at ``y``. If it was cut, pointing at it shows ``whole``."""
        more = element("title", whole) if whole is not None and whole != text else None
        self.add(element("text", text, more, class_=style, font_size=f"{size:g}", x=f"{x:.1f}", y=f"{y:.1f}"))

    def line(self, x1: float, y1: float, x2: float, y2: float) -> None:
        self.add(element("line", x1=f"{x1:.1f}", y1=f"{y1:.1f}", x2=f"{x2:.1f}", y2=f"{y2:.1f}"))

    def box(self, box: Box, style: str) -> None:
        wide, high = box.right - box.left, box.bottom - box.top
        rounded = "6" if style.startswith("card") and high > LINE else None
        place = {"x": f"{box.left:.1f}", "y": f"{box.top:.1f}", "width": f"{wide:.1f}", "height": f"{high:.1f}"}
        self.add(element("rect", class_=style, **place, rx=rounded))

    def circle(self, x: float, y: float, radius: float, style: str) -> None:
        self.add(element("circle", class_=style or None, cx=f"{x:.1f}", cy=f"{y:.1f}", r=f"{radius:g}"))

    def document(self, width: float, height: float) -> str:
        """Return all elements on a page of that size."""
        return svg(
            element(
                "svg",
                element("title", self._title),
                element("style", f"{_STYLE}svg{{max-width:{2 * width:.0f}px}}"),
                *self._parts,
                xmlns="http://www.w3.org/2000/svg",
                viewBox=f"0 0 {width:.0f} {height:.0f}",
                width=f"{width:.0f}",
                height=f"{height:.0f}",
                role="img",
            )
        )


def counted(number: int, thing: str) -> str:
    """Return a number with its noun, in the plural unless the number is one."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
