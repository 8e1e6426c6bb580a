"""Draw many sites as a wheel: a point for each on its rim, hubs inside, links as chords, all names outside.

Neighbours of the least-cost tree stand side by side, so that a hub and its spokes are a fan.
"""

from collections import Counter
from collections.abc import Sequence
from math import sqrt
from typing import Final

from mqenterprise.topology.graph import Graph
from mqenterprise.topology.shapes import LINE, Canvas, counted, fitted, path, text_width

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
