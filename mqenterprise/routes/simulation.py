"""What happens when routing links or queue managers are out: which journeys change, which wait, which gates carry more.

A link that is out is out of everybody's tables. A queue manager that is out is still in the directory: whoever routes
to it finds no answer and tries its next possible hop, as nodes do; where there is none, messages wait for its return.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mqenterprise.routes.least_costs import LeastCosts
from qmnode.routing import NoRouteError, follow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mqenterprise.routes.enterprise import NamedTopology
    from qmnode.routing import Machine, RoutingLink, TopologySnapshot
    from qmnode.structures.guid import Guid

MOST_JOURNEYS: Final = 250_000
OVERLOAD: Final = 1.5
"""A gate with this many times the journeys that it had before, and more than its even share, is overloaded."""

Path = tuple["Guid", ...]


class TooMuch(ValueError):
    """There are more journeys than are looked at in one go; the sentence says how to ask for fewer."""


@dataclass(frozen=True, slots=True)
class Way:
    """A journey: its path, or why there is none."""

    path: Path = ()
    cost: int = 0
    problem: str = ""


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
    away = frozenset(machines)
    pairs = _pairs(topology.snapshot, away, only_from)
    before = _ways(topology.snapshot, pairs, frozenset())
    after = _ways(topology.snapshot.without(links=links), pairs, away)
    changed: list[ChangedJourney] = []
    waiting: list[ChangedJourney] = []
    for pair in pairs:
        was, now = before[pair], after[pair]
        if was.problem or was.path == now.path:
            continue
        (waiting if now.problem else changed).append(ChangedJourney(*pair, was, now))
    return Simulation(
        len(pairs),
        tuple(changed),
        tuple(waiting),
        _cut_off(topology.snapshot, before, after),
        _loads(topology.snapshot, before, after),
    )


def _pairs(snapshot: TopologySnapshot, away: frozenset[Guid], only_from: Guid | None) -> list[tuple[Guid, Guid]]:
    """Journeys between sites, between all machines, or, where they are too many, one machine of each sort."""
    everyone = [machine for machine in snapshot.machines.values() if machine.identifier not in away and machine.sites]
    for machines in (everyone, _one_of_each_sort(everyone)):
        sources = [
            machine for machine in machines if not machine.foreign and (only_from is None or only_from in machine.sites)
        ]
        if len(sources) * len(machines) <= MOST_JOURNEYS:
            return [
                (source.identifier, to.identifier)
                for source in sources
                for to in machines
                if not set(source.sites) & set(to.sites)
            ]
    raise TooMuch(
        f"{len(sources):,} by {len(machines):,} queue managers are more than {MOST_JOURNEYS:,} journeys: "
        "ask for those from one site (--from SITE)"
    )


def _one_of_each_sort(machines: Iterable[Machine]) -> list[Machine]:
    found: dict[object, Machine] = {}
    for machine in machines:
        sort = (machine.sites, machine.routing_server, machine.out_routing_servers, machine.in_routing_servers)
        found.setdefault((*sort, machine.identifier if machine.routing_server else None), machine)
    return list(found.values())


def _ways(
    snapshot: TopologySnapshot, pairs: Iterable[tuple[Guid, Guid]], away: frozenset[Guid]
) -> dict[tuple[Guid, Guid], Way]:
    tables = LeastCosts(snapshot).tables()
    found = {}
    for source, destination in sorted(pairs, key=lambda pair: pair[1]):  # those to one destination share their ways
        try:
            journey = follow(snapshot, source, destination, away=away, tables=tables)
        except NoRouteError as error:
            found[source, destination] = Way(problem=str(error))
        else:
            found[source, destination] = Way(journey.path, journey.cost)
    return found


def _cut_off(
    snapshot: TopologySnapshot, before: Mapping[tuple[Guid, Guid], Way], after: Mapping[tuple[Guid, Guid], Way]
) -> tuple[Guid, ...]:
    arrived: dict[tuple[Guid, str], list[bool]] = defaultdict(list)
    for pair, was in before.items():
        if was.problem:
            continue
        for machine, role in zip(pair, ("source", "destination"), strict=True):
            for site in snapshot.machines[machine].sites:
                arrived[site, role].append(not after[pair].problem)
    return tuple(dict.fromkeys(site for (site, _), arrivals in arrived.items() if not any(arrivals)))


def _loads(
    snapshot: TopologySnapshot, before: Mapping[tuple[Guid, Guid], Way], after: Mapping[tuple[Guid, Guid], Way]
) -> tuple[GateLoad, ...]:
    carried = [
        Counter(hop for pair, way in ways.items() for hop in way.path if hop not in pair) for ways in (before, after)
    ]
    gates = dict.fromkeys(gate for gates in snapshot.gates_of_site.values() for gate in gates)
    working = [gate for gate in gates if carried[1][gate]]
    share = sum(carried[1][gate] for gate in working) / len(working) if working else 0.0
    return tuple(
        GateLoad(
            gate,
            was := carried[0][gate],
            now := carried[1][gate],
            now > share and now >= OVERLOAD * was and now > was,
        )
        for gate in gates
    )
