"""What happens when routing links or queue managers are out: which journeys change, which wait, which gates carry more.

A link that is out is out of everybody's tables. A queue manager that is out is still in the directory: whoever routes
to it finds no answer and tries its next possible hop, as nodes do; where there is none, messages wait for its return.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mqenterprise.routes.journeys import Journeys, JourneysTo, Way
from mqenterprise.routes.least_costs import CostsToDestinations, LeastCosts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mqenterprise.routes.enterprise import NamedTopology
    from qmnode.routing import Machine, RoutingLink, TopologySnapshot
    from qmnode.structures.guid import Guid

MOST_JOURNEYS: Final = 1_000_000
"""With more than these not all machines are asked for, but samples of them."""
MOST_SAMPLED: Final = 10_000_000
OVERLOAD: Final = 1.5
"""A gate with this many times the journeys that it had before, and more than its even share, is overloaded."""


class TooMuch(ValueError):
    """There are more journeys than are looked at in one go; the sentence says how to ask for fewer."""


@dataclass(frozen=True, slots=True)
class ChangedJourney:
    """Messages from one machine to another that go another way than before, or do not arrive."""

    source: Guid
    destination: Guid
    before: Way
    after: Way


@dataclass(frozen=True, slots=True)
class GateLoad:
    """How many of the journeys pass a site gate."""

    gate: Guid
    before: int
    after: int
    overloaded: bool


@dataclass(frozen=True, slots=True)
class Simulation:
    """What is different."""

    journeys: int
    of: str
    """Which machines the journeys are between: all, or samples of them."""
    changed: tuple[ChangedJourney, ...]
    """Those that still arrive, on another path."""
    waiting: tuple[ChangedJourney, ...]
    """Those that arrived before and do not any more."""
    cut_off: tuple[Guid, ...]
    """Sites that no other site reaches any more, or that reach no other, although they did before."""
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
    """Which journeys are looked at: from each of the sources to each destination in another site."""

    sources: tuple[Machine, ...]
    destinations: tuple[Machine, ...]
    of: str


def _asked(snapshot: TopologySnapshot, away: frozenset[Guid], only_from: Guid | None) -> _Asked:
    """Journeys between all machines, or, where they are too many, those of some."""
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
    """Rather one that routes for nobody: what it sends passes the routing servers of its site."""
    found: dict[Guid, Machine] = {}
    for machine in sorted(machines, key=lambda each: each.routing_server):
        for site in machine.sites:
            found.setdefault(site, machine)
    return list({machine.identifier: machine for machine in found.values()}.values())


@dataclass(slots=True)
class _Difference:
    """What is different between two states, put together destination by destination."""

    before: Journeys
    after: Journeys
    out: tuple[RoutingLink, ...]
    """The links that are out."""
    other_gates: bool
    """Whether machines are no site gates any more without them."""
    journeys: int = 0
    changed: list[ChangedJourney] = field(default_factory=list)
    waiting: list[ChangedJourney] = field(default_factory=list)
    arrives: dict[tuple[Guid, str], bool] = field(default_factory=dict)
    """By site and role, for sites that had a way before: whether one of their journeys still arrives."""
    carried: tuple[Counter[Guid], Counter[Guid]] = field(default_factory=lambda: (Counter(), Counter()))

    def add(self, sources: list[Guid], destination: Machine) -> None:
        """Journeys from all sources to one destination."""
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
        """Whether any decision for a destination may be another: most ways do not pass what is out."""
        if self.other_gates or not self.after.away.isdisjoint(before.passed):
            return True
        return any(self.before.costs.may_lead(link, site) for link in self.out for site in destination.sites)

    def _note(self, source: Guid, destination: Guid, *, arrives: bool) -> None:
        for machine, role in ((source, "source"), (destination, "destination")):
            for site in self.before.snapshot.machines[machine].sites:
                self.arrives[site, role] = arrives or self.arrives.get((site, role), False)

    def found(self, of: str, order: dict[Guid, int]) -> Simulation:
        """All of it, journeys in the order of the machines."""

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
