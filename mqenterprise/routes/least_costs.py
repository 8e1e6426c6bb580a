"""Routing tables of all sites for questions about many journeys, of which only what the journeys pass is worked out.

What is on a least-cost way to a destination goes on along the same way. So the least costs from where a journey begins
also answer for every site that it passes, and only one that leads elsewhere is begun from anew.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from qmnode.routing import Route

if TYPE_CHECKING:
    from qmnode.routing import RoutingLink, RoutingTable, TopologySnapshot
    from qmnode.structures.guid import Guid

KEPT: Final = 1_000
"""Sites whose costs, and destinations whose ways are kept."""
KEPT_DESTINATIONS: Final = 16
"""The same, when all sites ask for one destination after the other."""
_NO_WAY: Final = -1


class LeastCosts:
    """What ways between the sites of an enterprise cost, worked out when it is first asked for."""

    def __init__(self, snapshot: TopologySnapshot) -> None:
        self.snapshot = snapshot
        self.position = {site: index for index, site in enumerate(snapshot.sites)}
        self.near: list[list[tuple[int, int, RoutingLink]]] = [[] for _ in self.position]
        """By site the sites that links join it with, the costs of these, and the links."""
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
        """Whether a link may be on a least-cost way to a site; to know it would take more than it saves here."""
        return True

    def ways(self, site: int, destination: int) -> dict[int, int]:
        """By site what the rest of the way costs, for all that least-cost ways from ``site`` pass, and for some others.

        Without ``site`` when there is no way.
        """
        if destination not in self._ways and len(self._ways) >= KEPT:
            self._ways.clear()
        ways = self._ways.setdefault(destination, {})
        if site not in ways:
            ways.update(self._passed(site, destination))
        return ways

    def _passed(self, site: int, destination: int) -> dict[int, int]:
        """Back from the destination by every link of a least-cost way."""
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
        """Dijkstra's algorithm: by site, what the way from ``root`` costs."""
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
    """For journeys from everywhere to one destination after the other: ways cost the same there and back."""

    def ways(self, site: int, destination: int) -> dict[int, int]:
        """By site what the rest of the way costs."""
        ways = self._ways.get(destination)
        if ways is None:
            if len(self._ways) >= KEPT_DESTINATIONS:
                self._ways.clear()
                self._costs.clear()
            costs = self._from(destination)
            ways = self._ways[destination] = {near: cost for near, cost in enumerate(costs) if cost != _NO_WAY}
        return ways

    def may_lead(self, link: RoutingLink, site: Guid) -> bool:
        """Whether a link may be on a least-cost way to a site. If not, all such ways are the same without it."""
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
