"""The routing table of a site: the least-cost way to every other site (MS-MQBR 3.1.1.2 and 3.1.3.1)."""

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush

from qmnode.routing.snapshot import RoutingLink, TopologySnapshot
from qmnode.structures.guid import Guid


@dataclass(frozen=True, slots=True)
class Route:
    """The least-cost way to one site: its cost, and the equally good links that it may begin with.

    The specification keeps one next hop and lets an implementation choose among ties; keeping all of them lets the
    router spread the traffic and fall back.
    """

    cost: int
    first_links: tuple[RoutingLink, ...]


RoutingTable = Mapping[Guid, Route]
"""Routes by destination site. The root site and unreachable sites are not in it."""


def build_routing_table(snapshot: TopologySnapshot, root: Guid) -> RoutingTable:
    """Dijkstra's algorithm from the site ``root``, keeping every first link of a least-cost path.

    A foreign site is a vertex like any other: MS-MQBR 3.1.3.1 makes no difference (see :class:`Site`).
    """
    best: dict[Guid, int] = {root: 0}
    first: dict[Guid, dict[RoutingLink, None]] = {root: {}}
    settled: set[Guid] = set()
    frontier: list[tuple[int, Guid]] = [(0, root)]
    links_of_site = snapshot.links_of_site
    while frontier:
        cost, site = heappop(frontier)
        if site in settled:
            continue
        settled.add(site)
        for link in links_of_site.get(site, ()):
            neighbour = link.site2 if link.site1 == site else link.site1
            candidate = cost + link.cost
            known = best.get(neighbour)
            if known is not None and candidate > known:
                continue
            starts = {link: None} if site == root else first[site]
            if known is None or candidate < known:
                best[neighbour] = candidate
                first[neighbour] = dict(starts)
                heappush(frontier, (candidate, neighbour))
            elif neighbour not in settled:
                first[neighbour].update(starts)
    del best[root]
    return {site: Route(cost, tuple(first[site])) for site, cost in best.items()}
