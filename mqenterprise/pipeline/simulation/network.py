"""The declared enterprise as arrays: machines, sites, routers, and the next site from any site at any moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import NAMESPACE_DNS, uuid5

import numpy as np

from mqenterprise.pipeline.graph import Link, SiteGraph, least_cost_trees
from mqenterprise.topology.declaration import Declaration
from mqenterprise.topology.names import fold
from qmnode.errors import ConfigurationError

if TYPE_CHECKING:
    from mqenterprise.pipeline.graph import Floats, Integers
    from mqenterprise.pipeline.simulation.traffic import LinkBehaviour, Traffic

MICRO = 1_000_000
_KILOBYTE = 1024


@dataclass(frozen=True)
class Behaviours:
    """The values of :class:`LinkBehaviour` as arrays over links, in microseconds. The last row is within a site."""

    delay: Integers
    jitter: Integers
    loss: Floats
    retry: Integers

    @classmethod
    def of(cls, behaviours: Sequence[LinkBehaviour]) -> Behaviours:
        """Make one row for each behaviour."""

        def micro(name: str) -> Integers:
            return np.array([round(getattr(one, name) * MICRO) for one in behaviours], dtype=np.int64)

        loss = np.array([one.loss for one in behaviours], dtype=np.float64)
        return cls(micro("delay"), micro("jitter"), loss, micro("retry"))


@dataclass(frozen=True)
class SimulatedQueue:
    """A queue that messages are sent to. Unless it is ``declared``, it refuses all."""

    path: str
    machine: int
    identifier: str
    quota: int | None
    """The quota in bytes."""
    declared: bool = True

    @property
    def format_name(self) -> str:
        """The destination in packets."""
        return f"PUBLIC={self.identifier}"


class Network:
    """The machines with queue managers, in the order of their declaration, and their sites."""

    def __init__(self, declaration: Declaration, traffic: Traffic) -> None:
        self.start = round(traffic.start.timestamp()) * MICRO
        self.declaration = declaration
        foreign = {fold(site.name) for site in declaration.foreign_sites}
        names = [site.name for site in (*declaration.sites, *declaration.foreign_sites)]
        spelled = {fold(name): name for name in names}
        self.graph = SiteGraph.of(
            Link(
                spelled[fold(link.sites[0])],
                spelled[fold(link.sites[1])],
                link.cost,
                fold(link.sites[0]) in foreign,
                fold(link.sites[1]) in foreign,
            )
            for link in declaration.routing_links
        )
        self.machines = [machine for machine in declaration.machines if machine.sites and not machine.foreign]
        self.names = [machine.name for machine in self.machines]
        self.identifiers = [str(uuid5(NAMESPACE_DNS, f"{traffic.seed}/{name}")) for name in self.names]
        self.sites = tuple(sorted(set(names)))
        self._position = {fold(site): index for index, site in enumerate(self.sites)}
        self.site_of = np.array([self._position[fold(machine.sites[0])] for machine in self.machines], dtype=np.int64)
        self._machine = {fold(name): index for index, name in enumerate(self.names)}
        self.router_of = self._routers()
        self._set_links(traffic)

    def machine(self, name: str) -> int:
        """Return the number of a machine. ConfigurationError if it is not declared."""
        found = self._machine.get(fold(name))
        if found is None:
            raise ConfigurationError(f"the traffic names {name!r}, which is no declared machine with a queue manager")
        return found

    def queue(self, path: str, seed: int) -> SimulatedQueue:
        """Return the queue with the path MACHINE\\QUEUE."""
        machine, _, name = path.partition("\\")
        number = self.machine(machine)
        identifier = str(uuid5(NAMESPACE_DNS, f"{seed}/queue/{fold(path)}"))
        for queue in self.declaration.public_queues:
            if (fold(queue.machine), fold(queue.name)) == (fold(machine), fold(name)):
                quota = None if queue.quota is None else queue.quota * _KILOBYTE
                return SimulatedQueue(f"{self.names[number]}\\{queue.name}", number, identifier, quota)
        return SimulatedQueue(path, number, identifier, None, declared=False)

    def _routers(self) -> Integers:
        """Return the routing server of each site (-1: none), preferably a site gate."""
        gates = {fold(gate) for link in self.declaration.routing_links for gate in link.site_gates}
        routers = np.full(len(self.sites), -1, dtype=np.int64)
        for wanted_gate in (False, True):
            for index in reversed(range(len(self.machines))):
                machine = self.machines[index]
                if "routing_server" in machine.roles and (not wanted_gate or fold(machine.name) in gates):
                    routers[self.site_of[index]] = index
        return routers

    def _set_links(self, traffic: Traffic) -> None:
        """Set behaviours, and for each epoch (a period in which the same links are up) the next site on the way."""
        special: Mapping[frozenset[str], LinkBehaviour] = {
            frozenset(fold(site) for site in link.sites): link for link in traffic.links
        }
        pairs = [frozenset((fold(link.site1), fold(link.site2))) for link in self.graph.links]
        if unknown := [link.sites for link in traffic.links if frozenset(map(fold, link.sites)) not in pairs]:
            raise ConfigurationError(f"the traffic names a link {' - '.join(unknown[0])}, which is not declared")
        chosen = [special.get(pair, traffic.link) for pair in pairs]
        self.behaviours = Behaviours.of([*chosen, traffic.within_site])
        self.within_site = len(chosen)
        outages = [
            (round(outage.begins * MICRO) + self.start, round(outage.ends * MICRO) + self.start, number)
            for number, link in enumerate(chosen)
            for outage in link.outages
        ]
        self.boundaries = np.array(sorted({moment for outage in outages for moment in outage[:2]}), dtype=np.int64)
        count = len(self.sites)
        self.next_site = np.full((len(self.boundaries) + 1, count, count), -1, dtype=np.int32)
        begins = [np.iinfo(np.int64).min, *self.boundaries.tolist()]
        tables: dict[frozenset[int], Integers] = {}
        for epoch, moment in enumerate(begins):
            down = frozenset(number for begin, end, number in outages if begin <= moment < end)
            if down not in tables:
                tables[down] = self._next_sites(down)
            self.next_site[epoch] = tables[down]
        self.usual_next_site = tables.get(frozenset(), self._next_sites(frozenset()))
        self.link_of = np.full((count, count), -1, dtype=np.int64)
        for number, link in enumerate(self.graph.links):
            one, other = self._position[fold(link.site1)], self._position[fold(link.site2)]
            self.link_of[one, other] = self.link_of[other, one] = number

    def _next_sites(self, down: frozenset[int]) -> Integers:
        """Return the next site from each site (row) to each other (column) over the links that are up; -1: no way."""
        up = ~np.isin(self.graph.number, list(down))
        graph = SiteGraph(
            self.graph.sites,
            self.graph.position,
            self.graph.links,
            self.graph.tails[up],
            self.graph.heads[up],
            self.graph.number[up],
        )
        places = np.array([self._position[fold(site)] for site in graph.sites], dtype=np.int64)
        table = np.full((len(self.sites), len(self.sites)), -1, dtype=np.int64)
        for tree in least_cost_trees(graph.matrix(graph.costs), range(len(graph.sites))):
            # The site before each site on the way from the root; then two sites before, and so on, until the root.
            step = np.arange(len(places))
            while True:
                further = tree.before[step]
                moving = (further >= 0) & (further != tree.root)
                if not moving.any():
                    break
                step = np.where(moving, further, step)
            reached = np.isfinite(tree.distance) & (np.arange(len(places)) != tree.root)
            table[places[tree.root], places[reached]] = places[step[reached]]
        return table
