"""Draw the sites and links of an enterprise: as the rows of tables, and as an SVG document.

Nothing overlaps: sites are points of an ellipse with their cards outside of it, so that no link, which is a chord,
passes under a card. A cost stands beside its link, clear of other links and texts. The same enterprise gives the same
picture, in light or dark as the viewer prefers.

A wheel has a point for each site on its rim, hubs inside, links as chords, and all names outside. Neighbours of the
least-cost tree stand side by side, so that a hub and its spokes are a fan.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import combinations
from math import sqrt
from typing import Final, NamedTuple

from mqenterprise.markup import Element, append, element, svg_document
from mqenterprise.topology.names import fold
from mqenterprise.topology.normal_form import Kind, Resource, Table


@dataclass(frozen=True, slots=True)
class SiteNode:
    """A site of the graph."""

    name: str
    foreign: bool
    machines: int
    routing_servers: tuple[str, ...]
    queues: int
    names: tuple[str, ...] = field(default=(), compare=False)
    """The names of its machines."""


@dataclass(frozen=True, slots=True)
class LinkEdge:
    """A routing link of the graph: positions of its sites, cost, site gates and description."""

    first: int
    second: int
    cost: int
    site_gates: tuple[str, ...]
    description: str = ""


@dataclass(frozen=True, slots=True)
class Graph:
    """Sites and links of an enterprise."""

    sites: tuple[SiteNode, ...]
    links: tuple[LinkEdge, ...]


def graph_of(table: Table) -> Graph:
    """Return the graph of a table, without links to missing sites."""
    machines = {row.reference.key[0]: row for row in table if row.kind is Kind.MACHINE and not row.partial}
    queues = Counter(row.reference.key[0] for row in table if row.kind is Kind.QUEUE)
    members: dict[str, list[Resource]] = {}
    for machine in machines.values():
        for site in _names(machine, "sites"):
            members.setdefault(fold(site), []).append(machine)
    rows = sorted((row for row in table if row.kind is Kind.SITE), key=lambda row: row.reference.key)
    foreign = {row.reference.key[0] for row in rows if row.values.get("foreign")}
    position = {row.reference.key[0]: index for index, row in enumerate(rows)}
    nodes = []
    for row in rows:
        # A connector is a machine of its own site: the foreign site that it speaks for has only foreign machines.
        inside = [
            machine
            for machine in members.get(row.reference.key[0], [])
            if machine.values.get("foreign") or row.reference.key[0] not in foreign
        ]
        routers = tuple(sorted(machine.name[0] for machine in inside if machine.values.get("routing_server")))
        held = sum(queues[machine.reference.key[0]] for machine in inside)
        names = tuple(sorted((machine.name[0] for machine in inside), key=fold))
        nodes.append(SiteNode(row.name[0], bool(row.values.get("foreign")), len(inside), routers, held, names))
    links = []
    for row in sorted((row for row in table if row.kind is Kind.ROUTING_LINK), key=lambda row: row.reference.key):
        ends = [position.get(site) for site in row.reference.key]
        cost = row.values.get("cost")
        if ends[0] is not None and ends[1] is not None and isinstance(cost, int):
            about = str(row.values.get("description") or "")
            links.append(LinkEdge(ends[0], ends[1], cost, _names(row, "site_gates"), about))
    return Graph(tuple(nodes), tuple(links))


def _names(row: Resource, field: str) -> tuple[str, ...]:
    value = row.values.get(field)
    return value if isinstance(value, tuple) else ()


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
        return svg_document(
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


_COLUMN: Final = 560.0
_ROW: Final = 38.0
_INDENT: Final = 16.0
_DEEPEST: Final = 10
"""The greatest number of steps by which a site is indented."""
_NAMED: Final = 6


class _Row(NamedTuple):
    site: int
    depth: int
    parent: int | None
    cost: int


def outline(canvas: Canvas | None, graph: Graph, top: float) -> tuple[float, float]:
    """Draw it below ``top`` in two columns, and return its width and lower end. Without a canvas only measure it."""
    rows = _rows(graph)
    each = -(-len(rows) // 2)
    width = 2 * _COLUMN + 3 * _MARGIN
    if canvas is None:
        return width, top + each * _ROW
    links: dict[int, list[tuple[int, int]]] = defaultdict(list)
    gates: dict[int, set[str]] = defaultdict(set)
    for link in graph.links:
        links[link.first].append((link.cost, link.second))
        links[link.second].append((link.cost, link.first))
        for end in (link.first, link.second):
            gates[end].update(map(fold, link.site_gates))
    drawn: dict[int, tuple[float, float, int]] = {}
    for place, row in enumerate(rows):
        column = place // each
        x = _MARGIN + column * (_COLUMN + _MARGIN) + min(row.depth, _DEEPEST) * _INDENT
        y = top + place % each * _ROW
        drawn[row.site] = (x, y, column)
        _connect(canvas, drawn, row)
        site = graph.sites[row.site]
        canvas.box(Box(x, y + 5, x + 10, y + 15), "card foreign" if site.foreign else "router")
        right = _MARGIN + column * (_COLUMN + _MARGIN) + _COLUMN
        name = fitted(site.name, 14 * 1.12, (right - x) * 0.5)
        with canvas.group(f"{site.name}: {counted(site.machines, 'machine')}, {counted(site.queues, 'queue')}"):
            canvas.text(x + 16, y + 15, name, "name", 14)
            after = x + 30 + text_width(name, 14 * 1.12)
            canvas.text(after, y + 15, fitted(_ways(graph, row, links[row.site]), 12, right - after), "line", 12)
            inside = _inside(site.names, site.routing_servers, gates[row.site])
            canvas.text(x + 16, y + 30, fitted(inside, 12, right - x - 16), "small", 12, whole=inside)
    return width, top + each * _ROW


def order_of(graph: Graph) -> list[int]:
    """Return the sites in the order of their least-cost trees, each between the sites that nothing else leads to."""
    below: dict[int | None, list[int]] = defaultdict(list)
    for row in _rows(graph):
        below[row.parent].append(row.site)
    order: list[int] = []
    stack = below[None][::-1]
    while stack:
        site = stack.pop()
        ends = [child for child in below[site] if not below[child]]
        order += [*ends[: len(ends) // 2], site, *ends[len(ends) // 2 :]]
        stack += [child for child in reversed(below[site]) if below[child]]
    return order


def _connect(canvas: Canvas, drawn: dict[int, tuple[float, float, int]], row: _Row) -> None:
    """Draw a line to the parent site, if that is in the same column."""
    if row.parent is None:
        return
    x, y, column = drawn[row.site]
    above_x, above_y, above_column = drawn[row.parent]
    if column != above_column or above_x >= x:
        return
    canvas.add(path(f"M{above_x + 5:.1f} {above_y + 15:.1f}V{y + 10:.1f}H{x:.1f}", "tree"))


def _ways(graph: Graph, row: _Row, links: list[tuple[int, int]]) -> str:
    others = sorted((cost, graph.sites[end].name) for cost, end in links if end != row.parent)
    text = "" if row.parent is None else f"{row.cost} to {graph.sites[row.parent].name}"
    if row.parent is None and not others:
        return "no link"
    more = ", ".join(f"{cost} to {name}" for cost, name in others[:8])
    return "; ".join(part for part in (text, more) if part)


def _inside(names: tuple[str, ...], routers: tuple[str, ...], gates: set[str]) -> str:
    here = [name for name in names if fold(name) in gates]
    rest = sorted(
        (name for name in names if fold(name) not in gates), key=lambda name: (name not in routers, fold(name))
    )
    parts = [f"gates {', '.join(here)}"] if here else []
    if rest:
        more = f" and {len(rest) - _NAMED} more" if len(rest) > _NAMED else ""
        parts.append(f"{'also ' if here else ''}{', '.join(rest[:_NAMED])}{more}")
    return "; ".join(parts) or "no machine"


def _rows(graph: Graph) -> list[_Row]:
    """Return least-cost spanning trees (Prim's algorithm), each rooted at the site with the most links."""
    near: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for link in graph.links:
        near[link.first].append((link.cost, link.second))
        near[link.second].append((link.cost, link.first))
    below: dict[int | None, list[tuple[int, int]]] = defaultdict(list)
    seen: set[int] = set()
    for root in sorted(range(len(graph.sites)), key=lambda index: (-len(near[index]), index)):
        waiting: list[tuple[int, int, int | None]] = [(0, root, None)]
        while waiting:
            cost, site, parent = heappop(waiting)
            if site in seen:
                continue
            seen.add(site)
            below[parent].append((site, cost))
            for more, other in near[site]:
                if other not in seen:
                    heappush(waiting, (more, other, site))
    rows: list[_Row] = []
    to_see = [(site, 0, None, cost) for site, cost in reversed(below[None])]
    stack: list[tuple[int, int, int | None, int]] = list(to_see)
    while stack:
        site, depth, parent, cost = stack.pop()
        rows.append(_Row(site, depth, parent, cost))
        stack += [(child, depth + 1, site, price) for child, price in reversed(below[site])]
    return rows


Point = tuple[float, float]

_WIDEST: Final = 190.0
_NAMES: Final = 6
"""The greatest number of machine names on a card."""
_GAP: Final = 12.0
_NEAREST: Final = 72.0
"""The smallest distance between two sites in pixels."""
_PLACES: Final = tuple(0.5 + sign * step / 20 for step in range(9) for sign in ((1, -1) if step else (1,)))


@dataclass(frozen=True, slots=True)
class Line:
    """A text in a card with its position; ``kind`` selects the symbol before it."""

    x: float
    y: float
    text: str
    style: str
    size: float
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Card:
    """The texts about a site."""

    box: Box
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Ring:
    """Positions from the upper left corner of the ring. ``labels`` holds None for a cost without a free position."""

    points: tuple[Point, ...]
    cards: tuple[Card, ...]
    labels: tuple[Box | None, ...]
    width: float
    height: float

    def moved(self, x: float, y: float) -> Ring:
        points = tuple((px + x, py + y) for px, py in self.points)
        cards = tuple(replace(card, box=card.box.moved(x, y)) for card in self.cards)
        labels = tuple(box and box.moved(x, y) for box in self.labels)
        return Ring(points, cards, labels, self.width, self.height)


def ring_of(graph: Graph) -> Ring:
    """Return the smallest ring on which no two cards touch."""
    gates = {fold(gate) for link in graph.links for gate in link.site_gates}
    cards = [_card(site, gates) for site in graph.sites]
    order = _order(graph)
    if len(cards) < 2:
        return _cut([(0.0, -18.0)] * len(cards), [replace(card, box=card.box.moved(0, 0)) for card in cards], [])
    radius = 90.0
    while True:
        points, placed = _placed(cards, order, radius)
        clear = all(not a.box.grown(_GAP).meets(b.box) for a, b in combinations(placed, 2))
        if clear and all(math.dist(a, b) > _NEAREST for a, b in combinations(points, 2)):
            return _cut(points, placed, _labels(graph, points))
        radius *= 1.06


def _placed(cards: Sequence[Card], order: Sequence[int], radius: float) -> tuple[list[Point], list[Card]]:
    """Place sites at equal steps of the ellipse, with cards that only touch its tangent there."""
    points: list[Point] = [(0.0, 0.0)] * len(cards)
    placed = list(cards)
    count = len(cards)
    across, down = (radius * 1.15, radius) if count > 2 else (radius, radius)
    turn = math.pi if count == 2 else -math.pi / 2
    for place, index in enumerate(order):
        angle = turn + 2 * math.pi * place / count
        x, y = across * math.cos(angle), down * math.sin(angle)
        out_x, out_y = math.cos(angle) / across, math.sin(angle) / down
        length = math.hypot(out_x, out_y)
        out_x, out_y = out_x / length, out_y / length
        box = cards[index].box
        wide, high = box.right - box.left, box.bottom - box.top
        away = abs(out_x) * wide / 2 + abs(out_y) * high / 2 + 12
        left, top = x + out_x * away - wide / 2, y + out_y * away - high / 2
        points[index] = (x, y)
        placed[index] = replace(cards[index], box=Box(left, top, left + wide, top + high))
    return points, placed


def _cut(points: Sequence[Point], cards: Sequence[Card], labels: Sequence[Box | None]) -> Ring:
    """Shift the picture to begin at zero, and cut it where its last part ends."""
    spots = [Box(x - 6, y - 6, x + 6, y + 6) for x, y in points]
    boxes = [*(card.box for card in cards), *spots, *(label for label in labels if label is not None)]
    left, top = min((box.left for box in boxes), default=0.0), min((box.top for box in boxes), default=0.0)
    right, bottom = max((box.right for box in boxes), default=0.0), max((box.bottom for box in boxes), default=0.0)
    return Ring(tuple(points), tuple(cards), tuple(labels), right - left, bottom - top).moved(-left, -top)


def _card(site: SiteNode, gates: set[str]) -> Card:
    names = sorted(site.names, key=lambda name: (fold(name) not in gates, name not in site.routing_servers, fold(name)))
    counts = "foreign site" if site.foreign else f"{counted(site.machines, 'machine')}, {counted(site.queues, 'queue')}"
    rows = [
        (site.name, "name", 14.0, ""),
        (counts, "small", 12.0, ""),
    ]
    for name in names[:_NAMES]:
        kind = "gate" if fold(name) in gates else "router" if name in site.routing_servers else "machine"
        rows.append((name, kind, 12.0, kind))
    if len(names) > _NAMES:
        rows.append((f"and {len(names) - _NAMES} more", "small", 12.0, ""))
    lines = []
    for place, (text, style, size, kind) in enumerate(rows):
        room = _WIDEST - 20 - (16 if kind else 0)
        cut = fitted(text, size * (1.12 if style in ("name", "gate") else 1), room)
        lines.append(Line(10, 20 + place * LINE, cut, style, size, kind))
    wide = max(text_width(line.text, line.size * 1.12) + (16 if line.kind else 0) for line in lines) + 20
    return Card(Box(0, 0, min(max(wide, 96), _WIDEST), 28 + (len(lines) - 1) * LINE), tuple(lines))


def _order(graph: Graph) -> list[int]:
    """Order the sites so that linked ones are close: exchange positions as long as that helps."""
    count = len(graph.sites)
    place = list(range(count))

    def length() -> int:
        steps = (abs(place[link.first] - place[link.second]) for link in graph.links)
        return sum(min(step, count - step) ** 2 for step in steps)

    best = length()
    better = count > 3
    while better:
        better = False
        for one, other in combinations(range(count), 2):
            place[one], place[other] = place[other], place[one]
            now = length()
            if now < best:
                best, better = now, True
            else:
                place[one], place[other] = place[other], place[one]
    return sorted(range(count), key=place.__getitem__)


def _labels(graph: Graph, points: Sequence[Point]) -> list[Box | None]:
    """Place a cost beside each link, near its middle if there is room."""
    lines = [(*points[link.first], *points[link.second]) for link in graph.links]
    taken = [Box(x - 9, y - 9, x + 9, y + 9) for x, y in points]
    labels: list[Box | None] = []
    for link, (x1, y1, x2, y2) in zip(graph.links, lines, strict=True):
        wide, high = text_width(str(link.cost), 13 * 1.12) + 6, LINE
        length = math.hypot(x2 - x1, y2 - y1) or 1.0
        out_x, out_y = (y1 - y2) / length, (x2 - x1) / length
        if (out_y, out_x) > (0, 0):  # above its link, if it is level
            out_x, out_y = -out_x, -out_y
        away = abs(out_x) * wide / 2 + abs(out_y) * high / 2 + 3
        found = None
        for at in _PLACES:
            for side in (1, -1):
                x, y = x1 + (x2 - x1) * at + side * out_x * away, y1 + (y2 - y1) * at + side * out_y * away
                box = Box(x - wide / 2, y - high / 2, x + wide / 2, y + high / 2)
                if not any(box.meets(other) for other in taken) and not any(box.meets_line(*line) for line in lines):
                    found = box
                    break
            if found is not None:
                taken.append(found)
                break
        labels.append(found)
    return labels


_MARGIN: Final = 24.0
_NAME: Final = 240.0
"""Pixels that a name may take beside the wheel."""
_LEAST_HEIGHT: Final = 460.0
_SIZE: Final = 13.0
_HUB: Final = 3
"""Links from which on a site is a hub."""
_INSIDE: Final = 0.62
"""The place of a hub, between the middle and the rim."""


def wheel(canvas: Canvas, graph: Graph, order: Sequence[int], width: float, top: float) -> float:
    """Draw the sites in this order, down one side and up the other, and return the lower end."""
    rows = -(-len(order) // 2)
    step = max(LINE, _LEAST_HEIGHT / max(rows, 1))
    half_width, half_height = width / 2 - _MARGIN - _NAME, rows * step / 2 + step
    middle_x, middle_y = width / 2, top + half_height

    def reach(y: float) -> float:
        """The distance from the middle to the rim at this height."""
        return half_width * sqrt(max(0.0, 1 - ((y - middle_y) / half_height) ** 2))

    degrees = Counter(end for link in graph.links for end in (link.first, link.second))
    rims: dict[int, tuple[float, float]] = {}
    places: dict[int, tuple[float, float]] = {}
    for place, site in enumerate(order):
        side, row = (1, place) if place < rows else (-1, 2 * rows - 1 - place)
        y = middle_y + (row - (rows - 1) / 2) * step
        x = middle_x + side * reach(y)
        inside = _INSIDE if degrees[site] >= _HUB else 1.0
        rims[site] = x, y
        # In a high wheel a hub stays beside its spokes.
        down = 1 - (1 - inside) * min(1.0, _LEAST_HEIGHT / (2 * half_height))
        places[site] = middle_x + inside * (x - middle_x), middle_y + down * (y - middle_y)
    for link in graph.links:
        (x1, y1), (x2, y2) = places[link.first], places[link.second]
        ends = f"{graph.sites[link.first].name} to {graph.sites[link.second].name}, cost {link.cost}"
        with canvas.group(ends):
            canvas.line(x1, y1, x2, y2)
    for site, (x, y) in rims.items():
        found, side = graph.sites[site], 1 if x >= middle_x else -1
        # Outside of every chord, over the whole height of the text.
        beside = max(reach(y - _SIZE * 0.6), reach(y + _SIZE * 0.6)) + 10
        name = fitted(found.name, _SIZE * 1.12, width / 2 - _MARGIN - beside)
        with canvas.group(f"{found.name}: {counted(found.machines, 'machine')}, {counted(found.queues, 'queue')}"):
            end, (at_x, at_y) = middle_x + side * (beside - 4), places[site]
            canvas.add(path(f"M{at_x:.1f} {at_y:.1f}L{x:.1f} {y:.1f}L{end:.1f} {y:.1f}", "stub"))
            canvas.circle(at_x, at_y, 7 if degrees[site] >= _HUB else 4, "foreign" if found.foreign else "")
            left = middle_x + beside if side > 0 else middle_x - beside - text_width(name, _SIZE * 1.12)
            canvas.text(left, y + _SIZE * 0.36, name, "name", _SIZE)
    return top + 2 * half_height


MOST_IN_RING: Final = 16
"""The greatest number of sites for which a ring is readable at a glance."""
_LEAST_WIDTH: Final = 560.0
_LEGEND: Final = (
    ("gate", "site gate"),
    ("router", "routing server"),
    ("machine", "machine"),
    ("link", "routing link and its cost"),
    ("foreign", "foreign site"),
)


@dataclass(slots=True)
class _Head:
    """Title and legend, and the position below them where the picture begins."""

    canvas: Canvas
    width: float
    below: float = 0.0

    def draw(self, title: str, graph: Graph) -> None:
        canvas, x, y = self.canvas, _MARGIN, _MARGIN + 18
        canvas.text(x, y, fitted(title, 20, self.width - 2 * _MARGIN), "title", 20, whole=title)
        counts = f"{counted(len(graph.sites), 'site')}, {counted(len(graph.links), 'routing link')}"
        canvas.text(
            x, y + 22, f"{counts}, {counted(sum(site.machines for site in graph.sites), 'machine')}", "small", 12
        )
        y += 48
        for kind, words in _LEGEND:
            wide = 30 + len(words) * 7.6
            if x + wide > self.width - _MARGIN:
                x, y = _MARGIN, y + LINE + 4
            _sample(canvas, kind, x, y)
            canvas.text(x + 22, y, words, "small", 12)
            x += wide
        self.below = y + 28


def svg(graph: Graph, title: str) -> str:
    """Return the graph as an SVG document. Pointing at a site or link shows its contents."""
    canvas = Canvas(title)
    if len(graph.sites) > MOST_IN_RING:
        width = outline(None, graph, 0.0)[0]
        head = _Head(canvas, width)
        head.draw(title, graph)
        below = wheel(canvas, graph, order_of(graph), width, head.below)
        _, height = outline(canvas, graph, below + _MARGIN)
        return canvas.document(width, height + _MARGIN)
    ring = ring_of(graph)
    width = max(ring.width + 2 * _MARGIN, _LEAST_WIDTH)
    head = _Head(canvas, width)
    head.draw(title, graph)
    if not graph.sites:
        canvas.text(_MARGIN, head.below + 10, "no site is declared", "small", 12)
    ring = ring.moved((width - ring.width) / 2, head.below)
    _draw(canvas, graph, ring)
    height = _links(canvas, graph, width, head.below + ring.height + 34)
    return canvas.document(width, height + _MARGIN)


def layout(graph: Graph) -> list[tuple[float, float]]:
    """Return the positions of the sites in pixels, all positive."""
    if len(graph.sites) > MOST_IN_RING:
        return [(_MARGIN, _MARGIN + index * LINE) for index in range(len(graph.sites))]
    return list(ring_of(graph).moved(_MARGIN, _MARGIN).points)


def _draw(canvas: Canvas, graph: Graph, ring: Ring) -> None:
    for link, label in zip(graph.links, ring.labels, strict=True):
        (x1, y1), (x2, y2) = ring.points[link.first], ring.points[link.second]
        with canvas.group(_about(graph, link)):
            canvas.line(x1, y1, x2, y2)
            if label is not None:
                canvas.text(label.left + 3, label.bottom - 4, str(link.cost), "cost", 13)
    for site, card, (x, y) in zip(graph.sites, ring.cards, ring.points, strict=True):
        with canvas.group(f"{site.name}: {counted(site.machines, 'machine')}, {counted(site.queues, 'queue')}"):
            near_x = min(max(x, card.box.left), card.box.right)
            near_y = min(max(y, card.box.top), card.box.bottom)
            canvas.add(path(f"M{x:.1f} {y:.1f}L{near_x:.1f} {near_y:.1f}", "stub"))
            canvas.box(card.box, "card foreign" if site.foreign else "card")
            canvas.circle(x, y, 5.5, "foreign" if site.foreign else "")
            for line in card.lines:
                if line.kind:
                    _sample(canvas, line.kind, card.box.left + line.x, card.box.top + line.y)
                    canvas.text(card.box.left + line.x + 16, card.box.top + line.y, line.text, line.style, line.size)
                else:
                    canvas.text(card.box.left + line.x, card.box.top + line.y, line.text, line.style, line.size)


def _links(canvas: Canvas, graph: Graph, width: float, top: float) -> float:
    """List every link in words with its gates, and return where the last line ends."""
    if not graph.links:
        return top - 20
    canvas.text(_MARGIN, top, "Routing links", "name", 14)
    columns = max(1, int((width - 2 * _MARGIN) // 420))
    wide = (width - 2 * _MARGIN) / columns
    each = -(-len(graph.links) // columns)
    for index, link in enumerate(graph.links):
        x, y = _MARGIN + index // each * wide, top + 22 + index % each * 34
        sentence = _about(graph, link)
        first, _, gates = sentence.partition("; ")
        canvas.text(x, y, fitted(first, 13, wide - 16), "line", 13, whole=first)
        canvas.text(x, y + 15, fitted(gates, 12, wide - 16), "small", 12, whole=gates)
    return top + 22 + each * 34 - 10


def _about(graph: Graph, link: LinkEdge) -> str:
    ends = f"{graph.sites[link.first].name} to {graph.sites[link.second].name}, cost {link.cost}"
    about = f" ({link.description})" if link.description else ""
    return f"{ends}{about}; site gates: {', '.join(link.site_gates) or 'none, so nothing passes'}"


def _sample(canvas: Canvas, kind: str, x: float, y: float) -> None:
    """Draw a sample of a symbol for the legend, beside a line of text with its baseline at ``y``."""
    match kind:
        case "gate":
            canvas.add(path(f"M{x + 6} {y - 10}l5.5 5.5l-5.5 5.5l-5.5-5.5z", "gate"))
        case "router":
            canvas.box(Box(x + 1.5, y - 9, x + 10.5, y), "router")
        case "machine":
            canvas.box(Box(x + 4, y - 7, x + 8, y - 3), "machine")
        case "link":
            canvas.add(path(f"M{x} {y - 4}h16", "link"))
        case "foreign":
            canvas.box(Box(x, y - 10, x + 16, y + 1), "card foreign")


def site_rows(graph: Graph) -> list[dict[str, object]]:
    """Return the sites, each with what it has and with the sites that it is linked to."""
    neighbours: dict[int, list[str]] = {}
    for link in graph.links:
        for here, there in ((link.first, link.second), (link.second, link.first)):
            neighbours.setdefault(here, []).append(f"{graph.sites[there].name} ({link.cost})")
    return [
        {
            "site": site.name + (" (foreign)" if site.foreign else ""),
            "machines": site.machines,
            "queues": site.queues,
            "routing servers": site.routing_servers,
            "linked to (cost)": neighbours.get(index, []),
        }
        for index, site in enumerate(graph.sites)
    ]


def link_rows(graph: Graph) -> list[dict[str, object]]:
    """Return the routing links, each with its ends."""
    return [
        {
            "routing link between": graph.sites[link.first].name,
            "and": graph.sites[link.second].name,
            "cost": link.cost,
            "site gates": link.site_gates,
            "description": link.description,
        }
        for link in graph.links
    ]
