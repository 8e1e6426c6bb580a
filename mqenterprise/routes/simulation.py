"""Simulate an outage of routing links or queue managers: journeys that change or wait, gates that carry more.

A link that is out is missing from all routing tables. A queue manager that is out is still in the directory: its
neighbours get no answer and try their next possible hop, as nodes do. Where there is none, messages wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mqenterprise.routes.journeys import FoundJourney, Journeys, JourneysTo
from mqenterprise.routes.least_costs import CostsToDestinations, LeastCosts
from qmnode.routing import Machine, RoutingLink, TopologySnapshot
from qmnode.structures.guid import Guid

if TYPE_CHECKING:
    from mqenterprise.routes.enterprise import NamedTopology

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
