"""Draw the enterprise as an SVG document: few sites as a ring of cards, many as a wheel with an outline below it.

Nothing overlaps: sites are points of an ellipse with their cards outside of it, so that no link, which is a chord,
passes under a card. A cost stands beside its link, clear of other links and texts. The same enterprise gives the same
picture, in light or dark as the viewer prefers.

A wheel has a point for each site on its rim, hubs inside, links as chords, and all names outside. Neighbours of the
least-cost tree stand side by side, so that a hub and its spokes are a fan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final

from mqenterprise.topology.graph import Graph, LinkEdge
from mqenterprise.topology.outline import order_of, outline
from mqenterprise.topology.ring import Ring, ring_of
from mqenterprise.topology.shapes import LINE, Box, Canvas, counted, fitted, path, text_width

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
