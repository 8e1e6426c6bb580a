"""The next possible hops of a message: GetNextHops of MS-MQBR 3.1.5, rule by rule.

Where the algorithm leaves a choice (several gates, several routing servers, ties between least-cost paths) the
candidates are ordered by rendezvous hashing over source and destination: each pair keeps its order for as long as the
candidates are there, the pairs spread evenly over the candidates, and the later ones are the fall-back of the first.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b

from qmnode.routing.snapshot import Machine, RoutingLink, TopologySnapshot
from qmnode.routing.table import Route, RoutingTable, build_routing_table
from qmnode.structures.guid import Guid, guid_to_text


class Rule(enum.Enum):
    """Which branch of the algorithm decided; the value is a sentence for people."""

    LOCAL = "the destination is this queue manager"
    CONNECTOR = "this queue manager is a connector of the destination's foreign site: into the connector queue"
    OUT_ROUTING_SERVER = "the source sends everything through its out-routing servers (MS-MQBR 3.1.5.1)"
    IN_ROUTING_SERVER = "the destination receives everything through its in-routing servers (MS-MQBR 3.1.5.1)"
    SAME_SITE = "source and destination share a site: a direct connection (MS-MQBR 3.1.5.1)"
    ROUTING_SERVER = "another site: through a routing server of the own site (MS-MQBR 3.1.5.5)"
    LAST_STEP = "this routing server is an in-routing server of the destination: a direct connection (MS-MQBR 3.1.5.2)"
    SITE_GATE = "another site: through a site gate of the own site (MS-MQBR 3.1.5.6)"
    NEXT_SITE = "this site gate sends to the gate of the next site on the least-cost path (MS-MQBR 3.1.5.3)"


@dataclass(frozen=True, slots=True)
class NextHops:
    """Where a message may go next, best first.

    ``hops`` are queue managers; it is empty for the rules LOCAL and CONNECTOR. ``site`` is the next site for
    NEXT_SITE and the foreign site for CONNECTOR. ``cost`` is the cost of the rest of the way between sites, 0 inside
    a site. ``fall_back`` holds hops to try when none of ``hops`` answers (MS-MQBR 1.3.2: a routing server of the site
    when a direct connection fails).
    """

    rule: Rule
    hops: tuple[Guid, ...] = ()
    fall_back: tuple[Guid, ...] = ()
    site: Guid | None = None
    cost: int = 0


class NoRouteError(Exception):
    """There is no next hop ("Routing Attempt Fails", MS-MQBR 3.1.5.1); says why and what to do."""


class Router:
    """The routing decisions of one queue manager over one snapshot; a new snapshot needs a new router.

    Routing tables are built when they are first needed, one for each site of the machine; answers are kept, up to
    ``remember`` of them. ``table`` may supply tables that were built elsewhere (in another thread, say).
    """

    def __init__(
        self,
        snapshot: TopologySnapshot,
        source: Guid,
        *,
        tables: dict[Guid, RoutingTable] | None = None,
        remember: int = 100_000,
    ) -> None:
        machine = snapshot.machines.get(source)
        if machine is None:
            raise NoRouteError(f"queue manager {guid_to_text(source)} is not in the directory; let it join first")
        self._snapshot = snapshot
        self._machine = machine
        self._sites = frozenset(machine.sites)
        self._is_gate = snapshot.is_site_gate(machine)
        self._tables = {} if tables is None else tables
        self._remember = remember
        self._known: dict[Guid, NextHops] = {}

    @property
    def name(self) -> str:
        """The name of the queue manager whose decisions these are."""
        return self._machine.name

    def next_hops(self, destination: Guid) -> NextHops:
        """GetNextHops (MS-MQBR 3.1.5.1) for the queue manager ``destination``. Raises :class:`NoRouteError`."""
        known = self._known.get(destination)
        if known is None:
            if len(self._known) >= self._remember:
                self._known.clear()
            known = self._known[destination] = self._decide(destination)
        return known

    def routing_table(self, site: Guid) -> RoutingTable:
        """The routing table of ``site`` (MS-MQBR 3.1.1.2), built when it is first asked for."""
        table = self._tables.get(site)
        if table is None:
            table = self._tables[site] = build_routing_table(self._snapshot, site)
        return table

    def _decide(self, identifier: Guid) -> NextHops:
        source = self._machine
        destination = self._snapshot.machines.get(identifier)
        if destination is None:
            raise NoRouteError(f"queue manager {guid_to_text(identifier)} is not in the directory")
        if identifier == source.identifier:
            return NextHops(Rule.LOCAL)
        shared = self._sites.intersection(destination.sites)
        if destination.foreign and shared:
            return self._to_foreign(destination, shared)
        if not source.routing_server and source.out_routing_servers:
            return self._hops(Rule.OUT_ROUTING_SERVER, source.out_routing_servers, destination)
        if source.routing_server and source.identifier in destination.in_routing_servers:
            return NextHops(Rule.LAST_STEP, (identifier,))
        if shared:
            return self._within_site(destination, shared)
        if self._is_gate:
            return self._to_next_site(destination)
        if source.routing_server:
            return self._through(Rule.SITE_GATE, self._snapshot.gates_of_site, "site gate", destination)
        return self._through(Rule.ROUTING_SERVER, self._snapshot.routers_of_site, "routing server", destination)

    def _to_foreign(self, destination: Machine, shared: frozenset[Guid]) -> NextHops:
        """Nobody connects to a foreign queue manager: its site's connectors keep its messages in a queue of theirs."""
        for site in sorted(shared):
            if self._snapshot.sites[site].foreign:
                return NextHops(Rule.CONNECTOR, site=site)
        raise NoRouteError(f"{destination.name} is a foreign system but belongs to no foreign site; give it one")

    def _within_site(self, destination: Machine, shared: frozenset[Guid]) -> NextHops:
        if destination.in_routing_servers:
            return self._hops(Rule.IN_ROUTING_SERVER, destination.in_routing_servers, destination)
        fall_back: Iterable[Guid] = ()
        if not self._machine.routing_server:  # a routing server that fell back to another one could go in circles
            fall_back = {router for site in shared for router in self._snapshot.routers_of_site.get(site, ())}
        others = (router for router in fall_back if router != destination.identifier)
        return NextHops(Rule.SAME_SITE, (destination.identifier,), self._ordered(others, destination))

    def _through(
        self, rule: Rule, of_site: Mapping[Guid, tuple[Guid, ...]], kind: str, destination: Machine
    ) -> NextHops:
        candidates = {hop for site in self._machine.sites for hop in of_site.get(site, ())}
        candidates.discard(self._machine.identifier)
        if not candidates:
            names = ", ".join(map(self._site_name, self._machine.sites)) or "no site"
            raise NoRouteError(
                f"{self._machine.name} ({names}) has no {kind} to reach {destination.name} in another site; "
                f"declare a {kind} in its site"
            )
        return NextHops(rule, self._ordered(candidates, destination))

    def _to_next_site(self, destination: Machine) -> NextHops:
        """GetNextHopsForSiteGate (MS-MQBR 3.1.5.3).

        The specification takes the last table row that leads to a site of the destination; we take the cheapest.
        """
        route = self._cheapest(destination)
        if route is None:
            raise NoRouteError(
                f"no routing link leads from {self._machine.name} to "
                f"{' or '.join(map(self._site_name, destination.sites)) or 'a site'} of {destination.name}"
            )
        hops: list[Guid] = []
        sites: list[Guid] = []
        for link in self._spread(route.first_links, destination):
            site = link.site2 if link.site1 in self._sites else link.site1
            sites.append(site)
            gates = self._snapshot.gates_of_site.get(site, ())
            if self._snapshot.sites[site].foreign:
                if self._machine.identifier in link.site_gates:
                    return NextHops(Rule.CONNECTOR, site=site, cost=route.cost)
                gates = link.site_gates
            hops += self._ordered((gate for gate in gates if gate in link.site_gates), destination)
            hops += self._ordered((gate for gate in gates if gate not in link.site_gates), destination)
        hops = [hop for hop in dict.fromkeys(hops) if hop != self._machine.identifier]
        if not hops:
            names = " or ".join(map(self._site_name, sites))
            raise NoRouteError(
                f"{names}, the next site on the way to {destination.name}, has no site gate; "
                "name one on its routing link"
            )
        return NextHops(Rule.NEXT_SITE, tuple(hops), site=sites[0], cost=route.cost)

    def _cheapest(self, destination: Machine) -> Route | None:
        """The least-cost route from any site of this machine to any site of the destination, ties joined."""
        found = [
            route
            for own in self._machine.sites
            for site in destination.sites
            if (route := self.routing_table(own).get(site)) is not None
        ]
        if not found:
            return None
        least = min(route.cost for route in found)
        first = (link for route in found if route.cost == least for link in route.first_links)
        return Route(least, tuple(dict.fromkeys(first)))

    def _hops(self, rule: Rule, servers: tuple[Guid, ...], destination: Machine) -> NextHops:
        present = [server for server in servers if server in self._snapshot.machines]
        if not present:
            raise NoRouteError(
                f"none of the routing servers named for {destination.name} is in the directory: {rule.value}"
            )
        return NextHops(rule, self._ordered(present, destination))

    def _spread(self, links: tuple[RoutingLink, ...], destination: Machine) -> Iterable[RoutingLink]:
        if len(links) == 1:
            return links
        return sorted(links, key=lambda link: self._weight(link.site1 + link.site2, destination))

    def _ordered(self, candidates: Iterable[Guid], destination: Machine) -> tuple[Guid, ...]:
        found = tuple(candidates)
        if len(found) < 2:
            return found
        return tuple(sorted(found, key=lambda candidate: self._weight(candidate, destination)))

    def _weight(self, candidate: bytes, destination: Machine) -> bytes:
        pair = self._machine.identifier + destination.identifier
        return blake2b(candidate, digest_size=8, key=pair).digest()

    def _site_name(self, site: Guid) -> str:
        known = self._snapshot.sites.get(site)
        return guid_to_text(site) if known is None else known.name
