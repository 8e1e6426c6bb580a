"""Places of a few sites on an ellipse, with their cards outside and the costs of their links inside."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Final

from mqenterprise.topology.names import fold
from mqenterprise.topology.shapes import LINE, Box, counted, fitted, text_width

if TYPE_CHECKING:
    from mqenterprise.topology.graph import Graph, SiteNode

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
