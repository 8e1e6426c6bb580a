"""Simulate an outage of routing links or queue managers: journeys that change or wait, gates that carry more.

A link that is out is missing from all routing tables. A queue manager that is out is still in the directory: its
neighbours get no answer and try their next possible hop, as nodes do. Where there is none, messages wait.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from qmnode.routing import (
    Machine,
    NoRouteError,
    Route,
    Router,
    RoutingLink,
    RoutingTable,
    TopologySnapshot,
    follow,
    step,
)
from qmnode.structures.guid import Guid

if TYPE_CHECKING:
    from mqenterprise.routes.enterprise import NamedTopology


@dataclass(frozen=True, slots=True)
class FoundJourney:
    """A journey: its path, or the reason why there is none."""

    path: tuple[Guid, ...] = ()
    cost: int = 0
    problem: str = ""


class Journeys:
    """Journeys in one state of the enterprise, in which the machines in ``away`` are down."""

    def __init__(self, costs: LeastCosts, away: Set[Guid]) -> None:
        self.snapshot = costs.snapshot
        self.costs = costs
        self.away = away
        self.tables: dict[Guid, RoutingTable] = costs.tables()
        self._routers: dict[Guid, Router] = {}

    def router(self, machine: Guid) -> Router:
        """Return the router of a machine. It remembers a single decision, because each is needed only once."""
        router = self._routers.get(machine)
        if router is None:
            router = self._routers[machine] = Router(self.snapshot, machine, tables=self.tables, remember=1)
        return router

    def to(self, destination: Guid) -> JourneysTo:
        return JourneysTo(self, destination)


class JourneysTo:
    """The journeys to one destination."""

    def __init__(self, journeys: Journeys, destination: Guid) -> None:
        self._journeys = journeys
        self._destination = destination
        self._known: dict[Guid, FoundJourney] = {}

    @property
    def passed(self) -> Mapping[Guid, FoundJourney]:
        """The machines on the ways asked for so far, with the remaining way from each."""
        return self._known

    def way(self, source: Guid) -> FoundJourney:
        """Return the same way as ``follow``."""
        journeys, known = self._journeys, self._known
        trail: dict[Guid, int] = {}
        at: Guid | None = source
        end = FoundJourney()
        while at is not None:
            if at in known:
                end = known[at]
                break
            if at in trail:
                return self._followed(source)
            trail[at] = 0
            try:
                decision, at_next = step(journeys.snapshot, journeys.router(at), self._destination, journeys.away)
            except NoRouteError as error:
                end = FoundJourney(problem=error.reason)
                break
            trail[at] = decision.cost
            at = at_next
        for passed, cost in reversed(trail.items()):
            if not end.problem:
                end = FoundJourney((passed, *end.path), max(cost, end.cost))
            known[passed] = end
        return end

    def _followed(self, source: Guid) -> FoundJourney:
        """Return a way that runs into a circle, with all machines that it passes before."""
        journeys = self._journeys
        try:
            found = follow(
                journeys.snapshot, source, self._destination, away=journeys.away, tables=dict(journeys.tables)
            )
        except NoRouteError as error:
            return FoundJourney(problem=error.reason)
        return FoundJourney(found.path, found.cost)


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


MOST_JOURNEYS: Final = 1_000_000
"""With more journeys than this, samples of the machines stand for all."""
MOST_SAMPLED: Final = 10_000_000
OVERLOAD: Final = 1.5
"""A gate is overloaded when its journeys grow by this factor and exceed its even share."""


class TooMuch(ValueError):
    """The question covers too many journeys; the message says how to ask for fewer."""


@dataclass(frozen=True, slots=True)
class ChangedJourney:
    """A journey from one machine to another that takes another way than before, or no longer arrives."""

    source: Guid
    destination: Guid
    before: FoundJourney
    after: FoundJourney


@dataclass(frozen=True, slots=True)
class GateLoad:
    """The number of journeys through a site gate."""

    gate: Guid
    before: int
    after: int
    overloaded: bool


@dataclass(frozen=True, slots=True)
class Simulation:
    """The differences between the two states."""

    journeys: int
    of: str
    """The machines between which the journeys are: all, or samples of them."""
    changed: tuple[ChangedJourney, ...]
    """The journeys that still arrive, on another path."""
    waiting: tuple[ChangedJourney, ...]
    """The journeys that arrived before and no longer do."""
    cut_off: tuple[Guid, ...]
    """Sites that can no longer be reached from any other site, or can no longer reach any."""
    gates: tuple[GateLoad, ...]

    @property
    def overloaded(self) -> tuple[GateLoad, ...]:
        return tuple(load for load in self.gates if load.overloaded)


def simulate(
    topology: NamedTopology,
    *,
    links: Iterable[RoutingLink] = (),
    machines: Iterable[Guid] = (),
    only_from: Guid | None = None,
) -> Simulation:
    """Compare the enterprise with itself without some links and machines; ``only_from`` a site. Raises ``TooMuch``."""
    whole, away = topology.snapshot, frozenset(machines)
    asked = _asked(whole, away, only_from)
    least_costs = CostsToDestinations if only_from is None else LeastCosts
    out = frozenset(links)
    before = Journeys(least_costs(whole), frozenset())
    after = Journeys(least_costs(whole.without(links=out)), away)
    other_gates = whole.gates_of_site != after.snapshot.gates_of_site
    difference = _Difference(before, after, tuple(out), other_gates)
    for destination in asked.destinations:
        sources = [each.identifier for each in asked.sources if not set(each.sites) & set(destination.sites)]
        difference.add(sources, destination)
    order = {machine: place for place, machine in enumerate(whole.machines)}
    return difference.found(asked.of, order)


@dataclass(frozen=True, slots=True)
class _Asked:
    """The journeys that are examined: from each source to each destination in another site."""

    sources: tuple[Machine, ...]
    destinations: tuple[Machine, ...]
    of: str


def _asked(snapshot: TopologySnapshot, away: frozenset[Guid], only_from: Guid | None) -> _Asked:
    """Choose the journeys between all machines, or between samples where those are too many."""
    everyone = [machine for machine in snapshot.machines.values() if machine.identifier not in away and machine.sites]
    samples = (
        ("every machine", everyone, MOST_JOURNEYS),
        ("one machine of each sort in each site", _one_of_each_sort(everyone), MOST_JOURNEYS),
        ("one machine of each site", _one_of_each_site(everyone), MOST_SAMPLED),
    )
    for of, machines, most in samples:
        sources = [each for each in machines if not each.foreign and (only_from is None or only_from in each.sites)]
        if len(sources) * len(machines) <= most:
            return _Asked(tuple(sources), tuple(sorted(machines, key=lambda each: each.sites)), of)
    raise TooMuch(
        f"journeys from {len(sources):,} to {len(machines):,} machines, one of each site, are more than {most:,}: "
        "ask for those from one site (--from SITE)"
    )


def _one_of_each_sort(machines: Iterable[Machine]) -> list[Machine]:
    found: dict[object, Machine] = {}
    for machine in machines:
        sort = (machine.sites, machine.foreign, machine.out_routing_servers, machine.in_routing_servers)
        found.setdefault((*sort, machine.identifier if machine.routing_server else None), machine)
    return list(found.values())


def _one_of_each_site(machines: Iterable[Machine]) -> list[Machine]:
    """Choose one machine of each site, preferably no routing server: its messages pass the site's routing servers."""
    found: dict[Guid, Machine] = {}
    for machine in sorted(machines, key=lambda each: each.routing_server):
        for site in machine.sites:
            found.setdefault(site, machine)
    return list({machine.identifier: machine for machine in found.values()}.values())


@dataclass(slots=True)
class _Difference:
    """The differences between two states, collected destination by destination."""

    before: Journeys
    after: Journeys
    out: tuple[RoutingLink, ...]
    """The links that are out."""
    other_gates: bool
    """Whether machines stop being site gates without these links."""
    journeys: int = 0
    changed: list[ChangedJourney] = field(default_factory=list)
    waiting: list[ChangedJourney] = field(default_factory=list)
    arrives: dict[tuple[Guid, str], bool] = field(default_factory=dict)
    """For each site and role that had a way before: whether one of its journeys still arrives."""
    carried: tuple[Counter[Guid], Counter[Guid]] = field(default_factory=lambda: (Counter(), Counter()))

    def add(self, sources: list[Guid], destination: Machine) -> None:
        to = destination.identifier
        before = self.before.to(to)
        ways = [(source, before.way(source)) for source in sources]
        after = self.after.to(to) if self._differs(before, destination) else before
        for source, was in ways:
            now = was if after is before else after.way(source)
            self.journeys += 1
            for counter, way in zip(self.carried, (was, now), strict=True):
                counter.update(way.path[1:-1] if way.path[-1:] == (to,) else way.path[1:])
            if was.problem:
                continue
            self._note(source, to, arrives=not now.problem)
            if was.path != now.path:
                (self.waiting if now.problem else self.changed).append(ChangedJourney(source, to, was, now))

    def _differs(self, before: JourneysTo, destination: Machine) -> bool:
        """Return whether any decision for a destination may differ. Most ways do not pass the outage."""
        if self.other_gates or not self.after.away.isdisjoint(before.passed):
            return True
        return any(self.before.costs.may_lead(link, site) for link in self.out for site in destination.sites)

    def _note(self, source: Guid, destination: Guid, *, arrives: bool) -> None:
        for machine, role in ((source, "source"), (destination, "destination")):
            for site in self.before.snapshot.machines[machine].sites:
                self.arrives[site, role] = arrives or self.arrives.get((site, role), False)

    def found(self, of: str, order: dict[Guid, int]) -> Simulation:
        """Return all differences, with the journeys in the order of the machines."""

        def place(each: ChangedJourney) -> tuple[int, int]:
            return order[each.source], order[each.destination]

        return Simulation(
            self.journeys,
            of,
            tuple(sorted(self.changed, key=place)),
            tuple(sorted(self.waiting, key=place)),
            tuple(dict.fromkeys(site for (site, _), arrives in self.arrives.items() if not arrives)),
            tuple(self._loads()),
        )

    def _loads(self) -> Iterator[GateLoad]:
        before, after = self.carried
        gates = dict.fromkeys(gate for gates in self.before.snapshot.gates_of_site.values() for gate in gates)
        working = [gate for gate in gates if after[gate]]
        share = sum(after[gate] for gate in working) / len(working) if working else 0.0
        for gate in gates:
            was, now = before[gate], after[gate]
            yield GateLoad(gate, was, now, now > share and now >= OVERLOAD * was and now > was)
