"""Sites and links of an enterprise as a graph for drawing."""

from collections import Counter
from dataclasses import dataclass, field

from mqenterprise.topology.names import fold
from mqenterprise.topology.resources import Kind, Resource, Table


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
