"""Routing tables of all sites for questions about many journeys; only the parts that journeys pass are computed.

Every site on a least-cost way goes on along the same way. The least costs from the start of a journey therefore hold
for every site that it passes, and a new computation starts only where a journey leaves that way.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from heapq import heappop, heappush
from typing import Final

from qmnode.routing import Route, RoutingLink, RoutingTable, TopologySnapshot
from qmnode.structures.guid import Guid

KEPT: Final = 1_000
"""The number of sites whose costs are cached, and of destinations whose ways are cached."""
KEPT_DESTINATIONS: Final = 16
"""The number of cached destinations when all sites ask for one destination after the other."""
_NO_WAY: Final = -1


class LeastCosts:
    """The costs of the ways between sites, computed on demand."""

    def __init__(self, snapshot: TopologySnapshot) -> None:
        self.snapshot = snapshot
        self.position = {site: index for index, site in enumerate(snapshot.sites)}
        self.near: list[list[tuple[int, int, RoutingLink]]] = [[] for _ in self.position]
        """For each site: its neighbours, the costs of the links to them, and the links."""
        for link in snapshot.links:
            one, other = self.position[link.site1], self.position[link.site2]
            self.near[one].append((other, link.cost, link))
            self.near[other].append((one, link.cost, link))
        self._costs: dict[int, array[int]] = {}
        self._ways: dict[int, dict[int, int]] = {}

    def tables(self) -> dict[Guid, RoutingTable]:
        """The routing tables of all sites, for a router."""
        return {site: _Table(self, site) for site in self.position}

    def may_lead(self, link: RoutingLink, site: Guid) -> bool:
        """Return true: to find out whether a link is on a least-cost way costs more than it saves here."""
        return True

    def ways(self, site: int, destination: int) -> dict[int, int]:
        """Return the remaining cost by site, at least on the least-cost ways from ``site``; it lacks a cut-off one."""
        if destination not in self._ways and len(self._ways) >= KEPT:
            self._ways.clear()
        ways = self._ways.setdefault(destination, {})
        if site not in ways:
            ways.update(self._passed(site, destination))
        return ways

    def _passed(self, site: int, destination: int) -> dict[int, int]:
        """Walk back from the destination along every link of a least-cost way."""
        costs = self._from(site)
        whole = costs[destination]
        if whole == _NO_WAY:
            return {}
        passed, to_see = {destination: 0}, [destination]
        while to_see:
            here = to_see.pop()
            for near, cost, _ in self.near[here]:
                is_before = costs[near] != _NO_WAY and costs[near] + cost == costs[here]
                if is_before and near not in passed:
                    passed[near] = whole - costs[near]
                    to_see.append(near)
        return passed

    def _from(self, root: int) -> array[int]:
        """Return the cost of the way from ``root`` to each site (Dijkstra's algorithm)."""
        known = self._costs.get(root)
        if known is not None:
            return known
        if len(self._costs) >= KEPT:
            self._costs.clear()
        costs = self._costs[root] = array("q", [_NO_WAY]) * len(self.near)
        costs[root] = 0
        frontier = [(0, root)]
        while frontier:
            cost, site = heappop(frontier)
            if cost > costs[site]:
                continue
            for near, more, _ in self.near[site]:
                candidate = cost + more
                if not 0 <= costs[near] <= candidate:
                    costs[near] = candidate
                    heappush(frontier, (candidate, near))
        return costs


class CostsToDestinations(LeastCosts):
    """Costs for journeys from all sites to one destination after the other. Costs are the same in both directions."""

    def ways(self, site: int, destination: int) -> dict[int, int]:
        """Return the cost of the remaining way by site."""
        ways = self._ways.get(destination)
        if ways is None:
            if len(self._ways) >= KEPT_DESTINATIONS:
                self._ways.clear()
                self._costs.clear()
            costs = self._from(destination)
            ways = self._ways[destination] = {near: cost for near, cost in enumerate(costs) if cost != _NO_WAY}
        return ways

    def may_lead(self, link: RoutingLink, site: Guid) -> bool:
        """Return whether a link may be on a least-cost way to a site. If not, no such way changes without it."""
        costs = self._from(self.position[site])
        ends = [costs[self.position[end]] for end in (link.site1, link.site2)]
        return _NO_WAY not in ends and abs(ends[0] - ends[1]) == link.cost


class _Table(Mapping["Guid", Route]):
    """The routing table of one site; each route is made when it is looked up."""

    __slots__ = ("_costs", "_site")

    def __init__(self, costs: LeastCosts, site: Guid) -> None:
        self._costs = costs
        self._site = costs.position[site]

    def __getitem__(self, destination: Guid) -> Route:
        costs, own = self._costs, self._site
        to = costs.position[destination]
        ways = costs.ways(own, to)
        if to == own or own not in ways:
            raise KeyError(destination)
        left = ways[own]
        return Route(left, tuple(link for far, cost, link in costs.near[own] if ways.get(far) == left - cost))

    def __iter__(self) -> Iterator[Guid]:
        return (site for site in self._costs.position if self.get(site) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)
