"""The enterprise as routing sees it: sites, routing links and queue managers, frozen at one moment.

The attributes are those of MS-MQDMPR 3.1.1.1, 3.1.1.7 and 3.1.1.8 that MS-MQBR reads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from qmnode.structures.guid import Guid

LOWEST_COST = 1
HIGHEST_COST = 999_999
"""The range of RoutingLink.ActualCost (MS-MQDMPR 3.1.1.8)."""


@dataclass(frozen=True, slots=True)
class Site:
    """A site (MS-MQDMPR 3.1.1.7). The systems of a foreign site are reached through its connectors.

    MS-MQBR never asks whether a site is foreign: 3.1.3.1 takes every site as a vertex of the graph, and 3.1.5.1 lets
    machines that share a site connect directly. So connectors that share a foreign site carry other machines' messages
    through it, like the gates of any site. To prevent that, give its links a high cost.
    """

    identifier: Guid
    name: str
    foreign: bool = False


@dataclass(frozen=True, slots=True)
class RoutingLink:
    """A link between two sites, used both ways (MS-MQDMPR 3.1.1.8)."""

    site1: Guid
    site2: Guid
    cost: int
    site_gates: tuple[Guid, ...] = ()

    def __post_init__(self) -> None:
        if not LOWEST_COST <= self.cost <= HIGHEST_COST:
            raise ValueError(f"a routing link costs {LOWEST_COST} to {HIGHEST_COST}, not {self.cost}")
        if self.site1 == self.site2:
            raise ValueError("a routing link joins two different sites")

    def far_end(self, site: Guid) -> Guid:
        """The site at the other end of the link."""
        return self.site2 if site == self.site1 else self.site1


@dataclass(frozen=True, slots=True)
class Machine:
    """A queue manager as routing sees it (MS-MQDMPR 3.1.1.1)."""

    identifier: Guid
    name: str
    sites: tuple[Guid, ...]
    routing_server: bool = False
    out_routing_servers: tuple[Guid, ...] = ()
    in_routing_servers: tuple[Guid, ...] = ()
    foreign: bool = False
    dns_name: str = ""
    """Routing does not ask it, but a machine with another name is reached another way."""


@dataclass(frozen=True)
class TopologySnapshot:
    """The enterprise at one moment, indexed for routing. Build it with :meth:`of`; it never changes afterwards.

    A site gate is a routing server that belongs to a site and is named by a routing link of that site
    (Site.SiteGateCollection follows from RoutingLink.SiteGateIdentifierList).
    """

    machines: Mapping[Guid, Machine]
    sites: Mapping[Guid, Site]
    links: tuple[RoutingLink, ...]
    links_of_site: Mapping[Guid, tuple[RoutingLink, ...]] = field(repr=False)
    gates_of_site: Mapping[Guid, tuple[Guid, ...]] = field(repr=False)
    routers_of_site: Mapping[Guid, tuple[Guid, ...]] = field(repr=False)

    @classmethod
    def of(cls, machines: Iterable[Machine], sites: Iterable[Site], links: Iterable[RoutingLink]) -> TopologySnapshot:
        """Index an enterprise. Links to unknown sites (half replicated), and unknown gates, are left out."""
        machine_of = {machine.identifier: machine for machine in machines}
        site_of = {site.identifier: site for site in sites}
        kept = tuple(link for link in links if link.site1 in site_of and link.site2 in site_of)
        links_of_site: dict[Guid, list[RoutingLink]] = defaultdict(list)
        gates_of_site: dict[Guid, dict[Guid, None]] = defaultdict(dict)
        for link in kept:
            links_of_site[link.site1].append(link)
            links_of_site[link.site2].append(link)
            for gate in link.site_gates:
                machine = machine_of.get(gate)
                if machine is None or not machine.routing_server:
                    continue
                for site in (link.site1, link.site2):
                    if site in machine.sites:
                        gates_of_site[site][gate] = None
        routers_of_site: dict[Guid, list[Guid]] = defaultdict(list)
        for machine in machine_of.values():
            if machine.routing_server:
                for site in machine.sites:
                    routers_of_site[site].append(machine.identifier)
        return cls(
            MappingProxyType(machine_of),
            MappingProxyType(site_of),
            kept,
            MappingProxyType({site: tuple(found) for site, found in links_of_site.items()}),
            MappingProxyType({site: tuple(sorted(found)) for site, found in gates_of_site.items()}),
            MappingProxyType({site: tuple(sorted(found)) for site, found in routers_of_site.items()}),
        )

    def without(self, machines: Iterable[Guid] = (), links: Iterable[RoutingLink] = ()) -> TopologySnapshot:
        """A copy without some machines and links, for what-if questions."""
        gone_machines, gone_links = set(machines), set(links)
        return TopologySnapshot.of(
            (machine for machine in self.machines.values() if machine.identifier not in gone_machines),
            self.sites.values(),
            (link for link in self.links if link not in gone_links),
        )

    def is_connector(self, machine: Guid, foreign: Guid) -> bool:
        """Whether a queue manager takes the messages of a foreign system: it is in its site, or a gate of a link to
        it.
        """
        destination, connector = self.machines.get(foreign), self.machines.get(machine)
        if destination is None or connector is None or not destination.foreign or connector.foreign:
            return False
        return any(
            site in connector.sites
            or any(machine in self.gates_of_link(link) for link in self.links_of_site.get(site, ()))
            for site in self.sites_of(destination)
        )

    def sites_of(self, machine: Machine) -> tuple[Guid, ...]:
        """The sites through which a machine is reached: only the foreign sites of a foreign system."""
        if not machine.foreign:
            return machine.sites
        return tuple(site for site in machine.sites if site in self.sites and self.sites[site].foreign)

    def gates_of_link(self, link: RoutingLink) -> tuple[Guid, ...]:
        """The gates that a link names, without machines that are a site gate of neither end."""
        ends = {gate for site in (link.site1, link.site2) for gate in self.gates_of_site.get(site, ())}
        return tuple(gate for gate in link.site_gates if gate in ends)

    def is_site_gate(self, machine: Machine) -> bool:
        """Whether a machine is a site gate: IsSiteGate (MS-MQBR 3.1.5.8)."""
        return machine.routing_server and any(
            machine.identifier in self.gates_of_site.get(site, ()) for site in machine.sites
        )
