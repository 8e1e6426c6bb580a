"""Sites and routing links as a graph: a picture in SVG, and tables for the terminal.

The layout is a plain force-directed one that always begins on the same circle, so that the same enterprise gives the
same picture, and a small change a similar one.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from rich.table import Table as Grid
from rich.text import Text

from mqenterprise.topology.names import fold
from mqenterprise.topology.render import shown
from mqenterprise.topology.resources import Kind, Resource, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

SPACING = 190.0
"""The distance in pixels that two linked sites settle at."""
MARGIN = 110.0
_PAIRS = 2_500_000
"""Pairs of sites that a layout may look at, over all its rounds: a second or two."""


@dataclass(frozen=True, slots=True)
class SiteNode:
    """A site of the graph."""

    name: str
    foreign: bool
    machines: int
    routing_servers: tuple[str, ...]
    queues: int


@dataclass(frozen=True, slots=True)
class LinkEdge:
    """A routing link of the graph: positions of its sites, cost and site gates."""

    first: int
    second: int
    cost: int
    site_gates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Graph:
    """Sites and links of an enterprise."""

    sites: tuple[SiteNode, ...]
    links: tuple[LinkEdge, ...]


def graph_of(table: Table) -> Graph:
    """The graph of a table. A link to a site that is not there is left out."""
    machines = {row.reference.key[0]: row for row in table if row.kind is Kind.MACHINE and not row.partial}
    queues = Counter(row.reference.key[0] for row in table if row.kind is Kind.QUEUE)
    members: dict[str, list[Resource]] = {}
    for machine in machines.values():
        for site in _names(machine, "sites"):
            members.setdefault(fold(site), []).append(machine)
    rows = sorted((row for row in table if row.kind is Kind.SITE), key=lambda row: row.reference.key)
    position = {row.reference.key[0]: index for index, row in enumerate(rows)}
    nodes = []
    for row in rows:
        inside = members.get(row.reference.key[0], [])
        routers = tuple(sorted(machine.name[0] for machine in inside if machine.values.get("routing_server")))
        held = sum(queues[machine.reference.key[0]] for machine in inside)
        nodes.append(SiteNode(row.name[0], bool(row.values.get("foreign")), len(inside), routers, held))
    links = []
    for row in sorted((row for row in table if row.kind is Kind.ROUTING_LINK), key=lambda row: row.reference.key):
        ends = [position.get(site) for site in row.reference.key]
        cost = row.values.get("cost")
        if ends[0] is not None and ends[1] is not None and isinstance(cost, int):
            links.append(LinkEdge(ends[0], ends[1], cost, _names(row, "site_gates")))
    return Graph(tuple(nodes), tuple(links))


def _names(row: Resource, field: str) -> tuple[str, ...]:
    value = row.values.get(field)
    return value if isinstance(value, tuple) else ()


Point = tuple[float, float]


def layout(graph: Graph) -> list[Point]:
    """Places of the sites in pixels, all positive (Fruchterman and Reingold 1991, cooled linearly)."""
    count = len(graph.sites)
    radius = SPACING * max(count, 2) / (2 * math.pi)
    xs = [radius * math.cos(2 * math.pi * i / max(count, 1)) for i in range(count)]
    ys = [radius * math.sin(2 * math.pi * i / max(count, 1)) for i in range(count)]
    rounds = min(200, max(10, _PAIRS // max(1, count * count // 2)))
    for turn in range(rounds):
        moves = _forces(graph, xs, ys)
        heat = SPACING * (1 - turn / rounds)
        for i, (dx, dy) in enumerate(moves):
            length = math.hypot(dx, dy) or 1.0
            xs[i] += dx / length * min(length, heat)
            ys[i] += dy / length * min(length, heat)
    left, top = min(xs, default=0.0) - MARGIN, min(ys, default=0.0) - MARGIN
    return [(x - left, y - top) for x, y in zip(xs, ys, strict=True)]


def _forces(graph: Graph, xs: Sequence[float], ys: Sequence[float]) -> list[Point]:
    fx, fy = [0.0] * len(xs), [0.0] * len(xs)
    centre_x, centre_y = sum(xs) / len(xs) if xs else 0.0, sum(ys) / len(ys) if ys else 0.0
    for i in range(len(xs)):
        # A weak pull to the middle keeps sites without links on the page.
        fx[i] += (centre_x - xs[i]) * 0.05
        fy[i] += (centre_y - ys[i]) * 0.05
        for j in range(i):
            dx, dy = xs[i] - xs[j], ys[i] - ys[j]
            push = SPACING * SPACING / (dx * dx + dy * dy + 1e-6)
            fx[i] += dx * push
            fy[i] += dy * push
            fx[j] -= dx * push
            fy[j] -= dy * push
    for link in graph.links:
        dx, dy = xs[link.first] - xs[link.second], ys[link.first] - ys[link.second]
        pull = math.hypot(dx, dy) / SPACING
        fx[link.first] -= dx * pull
        fy[link.first] -= dy * pull
        fx[link.second] += dx * pull
        fy[link.second] += dy * pull
    return list(zip(fx, fy, strict=True))


_STYLE = (
    "text{font:13px sans-serif;text-anchor:middle;fill:#1b2733;paint-order:stroke;stroke:#fff;stroke-width:4px}"
    ".small{font-size:11px;fill:#5b6b7a}"
    "line{stroke:#7a8b9a;stroke-width:2}circle{fill:#dcecf9;stroke:#2b6ca3;stroke-width:2}"
    ".foreign{fill:#f6ecd9;stroke:#a3732b;stroke-dasharray:5 3}.cost{fill:#fff;stroke:none}"
)


def svg(graph: Graph, title: str) -> str:
    """The graph as an SVG document; what a site or link holds shows when it is pointed at."""
    places = layout(graph)
    width = max((x for x, _ in places), default=MARGIN) + MARGIN
    height = max((y for _, y in places), default=MARGIN) + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}">',
        f"<title>{_xml(title)}</title><style>{_STYLE}</style>",
    ]
    for link in graph.links:
        (x1, y1), (x2, y2) = places[link.first], places[link.second]
        x, y = (x1 + x2) / 2, (y1 + y2) / 2
        gates = ", ".join(link.site_gates) or "none"
        parts.append(
            f"<g><title>{_xml(f'cost {link.cost}, site gates: {gates}')}</title>"
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'
            f'<rect class="cost" x="{x - 4 - 4 * len(str(link.cost)):.1f}" y="{y - 9:.1f}" '
            f'width="{8 + 8 * len(str(link.cost))}" height="18"/>'
            f'<text x="{x:.1f}" y="{y + 4:.1f}">{link.cost}</text></g>'
        )
    for site, (x, y) in zip(graph.sites, places, strict=True):
        routers = ", ".join(site.routing_servers) or "none"
        kind = "foreign site" if site.foreign else f"{site.machines} machines, {site.queues} queues"
        style = ' class="foreign"' if site.foreign else ""
        parts.append(
            f"<g><title>{_xml(f'{site.name}: routing servers {routers}')}</title>"
            f'<circle{style} cx="{x:.1f}" cy="{y:.1f}" r="26"/>'
            f'<text x="{x:.1f}" y="{y + 42:.1f}">{_xml(site.name)}</text>'
            f'<text class="small" x="{x:.1f}" y="{y + 57:.1f}">{kind}</text></g>'
        )
    return "\n".join([*parts, "</svg>", ""])


def _xml(text: str) -> str:
    # XML has no place for most control characters, not even escaped.
    return escape("".join(c if c.isprintable() else "\ufffd" for c in text))


def terminal(graph: Graph) -> tuple[Grid, Grid]:
    """Sites and links as tables."""
    sites = Grid("Site", "Machines", "Queues", "Routing servers", "Linked to (cost)", title="Sites")
    neighbours: dict[int, list[str]] = {}
    for link in graph.links:
        for here, there in ((link.first, link.second), (link.second, link.first)):
            neighbours.setdefault(here, []).append(f"{graph.sites[there].name} ({link.cost})")
    for index, site in enumerate(graph.sites):
        sites.add_row(
            Text(shown("", site.name) + (" (foreign)" if site.foreign else "")),
            str(site.machines),
            str(site.queues),
            Text(shown("", site.routing_servers)),
            Text(shown("", tuple(neighbours.get(index, ())))),
        )
    links = Grid("Between", "And", "Cost", "Site gates", title="Routing links")
    for link in graph.links:
        ends = (graph.sites[link.first].name, graph.sites[link.second].name)
        links.add_row(*(Text(shown("", end)) for end in ends), str(link.cost), Text(shown("", link.site_gates)))
    return sites, links
