"""The next possible hops of a message: GetNextHops of MS-MQBR 3.1.5, rule by rule.

Where the algorithm leaves a choice (several gates, several routing servers, ties between least-cost paths), the
candidates are ordered by rendezvous hashing over source and destination. Each pair keeps its order while the candidates
stay the same, the pairs spread evenly over the candidates, and later candidates are the fall-back of the first.
"""

import enum
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from hashlib import blake2b
from heapq import heappop, heappush
from itertools import groupby
from operator import itemgetter
from typing import Final

from qmnode.routing.snapshot import Machine, RoutingLink, TopologySnapshot
from qmnode.structures.guid import Guid, guid_to_text


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


class Rule(enum.Enum):
    """The branch of the algorithm that decided; the value is a sentence for people."""

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

    ``hops`` are queue managers; it is empty for the rules LOCAL and CONNECTOR. ``site`` is the next site for NEXT_SITE
    and the foreign site for CONNECTOR. ``cost`` is the cost of the remaining links between sites, 0 inside a site.
    ``fall_back`` holds hops to try when none of ``hops`` answers (MS-MQBR 1.3.2: a routing server of the site when a
    direct connection fails).
    """

    rule: Rule
    hops: tuple[Guid, ...] = ()
    fall_back: tuple[Guid, ...] = ()
    site: Guid | None = None
    cost: int = 0
    dearer: bool = False
    """The routing table has a cheaper row, but its next site has no gate. Other queue managers on the way may still
    route by such a row and send messages back, so check the whole journey before sending (``follow``).
    """


class NoRouteError(Exception):
    """There is no next hop ("Routing Attempt Fails", MS-MQBR 3.1.5.1). The message says why, and what to do.

    ``reason`` is the cause alone, for callers that left machines or links out to see what happens.
    """

    def __init__(self, reason: str, advice: str = "") -> None:
        self.reason = reason
        super().__init__(f"{reason}; {advice}" if advice else reason)


class Router:
    """The routing decisions of one queue manager over one snapshot; a new snapshot needs a new router.

    Routing tables are built when they are first needed, one for each site of the machine; up to ``remember`` answers
    are cached. ``table`` may supply tables that were built elsewhere, such as in another thread.
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
        """The name of the queue manager that decides."""
        return self._machine.name

    def next_hops(self, destination: Guid) -> NextHops:
        """GetNextHops (MS-MQBR 3.1.5.1) for the queue manager ``destination``. Raises :class:`NoRouteError`."""
        known = self._known.get(destination)
        if known is None:
            if len(self._known) >= self._remember:
                self._known.clear()
            machine = self._snapshot.machines.get(destination)
            if machine is None:
                raise NoRouteError(f"queue manager {guid_to_text(destination)} is not in the directory")
            known = self._known[destination] = self._decide(machine)
        return known

    def next_hops_to_site(self, site: Guid) -> NextHops:
        """GetNextHops for a machine that is only in ``site``. Raises :class:`NoRouteError`."""
        known = self._snapshot.sites[site]
        return self._decide(Machine(site, f"a machine of {known.name}", (site,), foreign=known.foreign))

    def routing_table(self, site: Guid) -> RoutingTable:
        """The routing table of ``site`` (MS-MQBR 3.1.1.2), built on first use."""
        table = self._tables.get(site)
        if table is None:
            table = self._tables[site] = build_routing_table(self._snapshot, site)
        return table

    def _decide(self, destination: Machine) -> NextHops:
        source = self._machine
        if destination.identifier == source.identifier:
            return NextHops(Rule.LOCAL)
        sites = self._snapshot.sites_of(destination)
        shared = self._sites.intersection(sites)
        if destination.foreign:
            if not sites:
                raise NoRouteError(
                    f"{destination.name} is a foreign system but belongs to no foreign site; give it one"
                )
            if shared:  # a foreign system takes no connections: the connectors of its site keep its messages
                return NextHops(Rule.CONNECTOR, site=min(shared))
        if not source.routing_server and source.out_routing_servers:
            return self._hops(Rule.OUT_ROUTING_SERVER, source.out_routing_servers, destination)
        if self._is_last_step(destination):
            return NextHops(Rule.LAST_STEP, (destination.identifier,))
        if shared:
            return self._within_site(destination, shared)
        if self._is_gate:
            return self._to_next_site(destination, sites)
        if source.routing_server:
            return self._through(Rule.SITE_GATE, self._snapshot.gates_of_site, "site gate", destination)
        return self._through(Rule.ROUTING_SERVER, self._snapshot.routers_of_site, "routing server", destination)

    def _is_last_step(self, destination: Machine) -> bool:
        source = self._machine
        return source.routing_server and not destination.foreign and source.identifier in destination.in_routing_servers

    def _within_site(self, destination: Machine, shared: frozenset[Guid]) -> NextHops:
        if destination.in_routing_servers:
            return self._hops(Rule.IN_ROUTING_SERVER, destination.in_routing_servers, destination)
        fall_back: Iterable[Guid] = ()
        if not self._machine.routing_server:  # a routing server that falls back to another one could cause a loop
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
                f"{self._machine.name} ({names}) has no {kind} to reach {destination.name} in another site",
                f"declare a {kind} in its site",
            )
        return NextHops(rule, self._ordered(candidates, destination))

    def _to_next_site(self, destination: Machine, sites: tuple[Guid, ...]) -> NextHops:
        """GetNextHopsForSiteGate (MS-MQBR 3.1.5.3) for a destination in ``sites``.

        With several sites at either end, several rows of the routing table lead to the destination. The specification
        takes the last of them; we take the cheapest row whose next site has a gate, and all rows of equal cost.
        """
        rows = sorted(
            (
                (route.cost, own, site, route)
                for own in self._machine.sites
                for site in sites
                if (route := self._row(own, site))
            ),
            key=itemgetter(0),
        )
        if not rows:
            raise NoRouteError(
                f"no routing link leads from {self._machine.name} to "
                f"{' or '.join(map(self._site_name, sites)) or 'a site'} of {destination.name}"
            )
        for cost, equal in groupby(rows, key=itemgetter(0)):
            steps = dict.fromkeys((link.far_end(own), link) for _, own, _, route in equal for link in route.first_links)
            decision = self._by_links(cost, self._spread(steps, destination), destination, sites)
            if decision is not None:
                return replace(decision, dearer=True) if cost > rows[0][0] else decision
        ends = {link.far_end(own): None for _, own, _, route in rows for link in route.first_links}
        names = " or ".join(sorted(map(self._site_name, ends)))
        raise NoRouteError(
            f"{names}, the next site on the way to {destination.name}, has no site gate; name one on its routing link"
        )

    def _row(self, own: Guid, site: Guid) -> Route | None:
        return self.routing_table(own).get(site)

    def _by_links(
        self, cost: int, steps: Iterable[tuple[Guid, RoutingLink]], destination: Machine, sites: tuple[Guid, ...]
    ) -> NextHops | None:
        """The gates of the next sites, those that the links name first; None when there are none.

        The link into a foreign destination's own site names its connectors, and this machine may be one of them. On the
        way to any other machine, a foreign site is treated like any site.
        """
        hops: list[Guid] = []
        first: Guid | None = None
        for site, link in steps:
            gates: tuple[Guid, ...] = self._snapshot.gates_of_site.get(site, ())
            if destination.foreign and site in sites:
                connectors = self._snapshot.gates_of_link(link)
                if self._machine.identifier in connectors:
                    return NextHops(Rule.CONNECTOR, site=site, cost=cost)
                gates = connectors or gates
            others = [gate for gate in gates if gate != self._machine.identifier]
            if others and first is None:
                first = site
            hops += self._ordered((gate for gate in others if gate in link.site_gates), destination)
            hops += self._ordered((gate for gate in others if gate not in link.site_gates), destination)
        return NextHops(Rule.NEXT_SITE, tuple(dict.fromkeys(hops)), site=first, cost=cost) if hops else None

    def _hops(self, rule: Rule, servers: tuple[Guid, ...], destination: Machine) -> NextHops:
        present = [server for server in servers if server in self._snapshot.machines]
        if not present:
            raise NoRouteError(
                f"none of the routing servers named for {destination.name} is in the directory: {rule.value}"
            )
        return NextHops(rule, self._ordered(present, destination))

    def _spread(
        self, steps: Collection[tuple[Guid, RoutingLink]], destination: Machine
    ) -> Iterable[tuple[Guid, RoutingLink]]:
        if len(steps) == 1:
            return steps
        return sorted(steps, key=lambda step: self._weight(step[1].site1 + step[1].site2, destination))

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


# ----------------------------------------------------------------------------------------------------------------------
# Whole journeys: the path of a message if every queue manager on its way routes by the same snapshot.

CIRCLE_HINT: Final = "check the in- and out-routing servers, and that every link names a site gate on each side"


@dataclass(frozen=True, slots=True)
class Journey:
    """The queue managers that a message passes, source and destination included, and the decision of each."""

    path: tuple[Guid, ...]
    decisions: tuple[NextHops, ...]

    @property
    def cost(self) -> int:
        """The total cost of the journey's links between sites."""
        return max((decision.cost for decision in self.decisions), default=0)


def follow(
    snapshot: TopologySnapshot,
    source: Guid,
    destination: Guid,
    *,
    away: Set[Guid] = frozenset(),
    tables: dict[Guid, RoutingTable] | None = None,
) -> Journey:
    """Route from hop to hop until the destination or a connector queue is reached.

    ``away`` holds queue managers that are down: each hop then tries its next possible hop. ``tables`` keeps routing
    tables between calls. Raises :class:`NoRouteError` when a hop has no route or a message would loop.
    """
    tables = {} if tables is None else tables
    path, decisions = [source], []
    while True:
        decision, hop = step(snapshot, Router(snapshot, path[-1], tables=tables), destination, away)
        decisions.append(decision)
        if hop is None:
            return Journey(tuple(path), tuple(decisions))
        if hop in path:
            names = " to ".join(snapshot.machines[at].name for at in (*path, hop))
            raise NoRouteError(f"messages would go in a circle: {names}; {CIRCLE_HINT}")
        path.append(hop)


def step(
    snapshot: TopologySnapshot, router: Router, destination: Guid, away: Set[Guid] = frozenset()
) -> tuple[NextHops, Guid | None]:
    """Return one queue manager's decision, and the first of its next hops that is up (None where the message has
    arrived).

    Raises :class:`NoRouteError` when there is no route, or every next hop is down.
    """
    decision = router.next_hops(destination)
    if decision.rule in (Rule.LOCAL, Rule.CONNECTOR):
        return decision, None
    for hop in (*decision.hops, *decision.fall_back):
        if hop not in away:
            return decision, hop
    names = ", ".join(snapshot.machines[hop].name for hop in decision.hops if hop in snapshot.machines)
    raise NoRouteError(f"{router.name} waits: no next hop answers ({names})")
