"""Draw many sites as an outline: each under the neighbour of its cheapest link, with its other links in words."""

from collections import defaultdict
from heapq import heappop, heappush
from typing import Final, NamedTuple

from mqenterprise.topology.graph import Graph
from mqenterprise.topology.names import fold
from mqenterprise.topology.shapes import Box, Canvas, counted, fitted, path, text_width

_MARGIN: Final = 24.0
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
