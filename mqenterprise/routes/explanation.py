"""Explain a route: at each hop, the rules of MS-MQBR 3.1.5 in their order, and the result of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qmnode.routing import CIRCLE_HINT, Machine, NextHops, NoRouteError, Router, RoutingLink, RoutingTable, Rule, follow
from qmnode.structures.guid import Guid

if TYPE_CHECKING:
    from mqenterprise.routes.enterprise import NamedTopology

SECTIONS = {
    Rule.LOCAL: "3.1.5.1",
    Rule.CONNECTOR: "3.1.5.1",
    Rule.OUT_ROUTING_SERVER: "3.1.5.1",
    Rule.LAST_STEP: "3.1.5.2",
    Rule.IN_ROUTING_SERVER: "3.1.5.1",
    Rule.SAME_SITE: "3.1.5.1",
    Rule.NEXT_SITE: "3.1.5.3",
    Rule.SITE_GATE: "3.1.5.6",
    Rule.ROUTING_SERVER: "3.1.5.5",
}
"""The section of MS-MQBR for each rule, in the order in which the rules are evaluated."""


@dataclass(frozen=True, slots=True)
class Considered:
    """An evaluated rule: whether it decides, and the reason."""

    rule: Rule
    applies: bool
    why: str


@dataclass(frozen=True, slots=True)
class Hop:
    """The decision of a queue manager. ``next`` is None where the message has arrived or cannot go on (``problem``)."""

    machine: Guid
    considered: tuple[Considered, ...]
    decision: NextHops | None
    next: Guid | None
    alternatives: tuple[Guid, ...] = ()
    """The hops that are tried in this order when ``next`` does not answer."""
    link: RoutingLink | None = None
    """The routing link that the hop takes, if any."""
    detour: int | None = None
    """The cost of the remaining way without that link; None when there is no other way."""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The hops from a source to a destination."""

    hops: tuple[Hop, ...]

    @property
    def arrives(self) -> bool:
        return not self.hops[-1].problem

    @property
    def cost(self) -> int:
        """The total cost of the routing links on the way."""
        return max((hop.decision.cost for hop in self.hops if hop.decision is not None), default=0)


def explain(topology: NamedTopology, source: Guid, destination: Guid) -> Explanation:
    """Follow a message from hop to hop."""
    tables: dict[Guid, RoutingTable] = {}
    hops: list[Hop] = []
    at: Guid | None = source
    while at is not None:
        hop = _hop(topology, at, destination, tables)
        if hop.next is not None and hop.next in [each.machine for each in hops] + [at]:
            circle = topology.machine_names([*(each.machine for each in hops), at, hop.next])
            problem = f"messages would go in a circle ({circle}): {CIRCLE_HINT}"
            hop = Hop(at, hop.considered, hop.decision, None, problem=problem)
        hops.append(hop)
        at = hop.next
    return Explanation(tuple(hops))


def next_link(
    topology: NamedTopology, source: Guid, destination: Guid, tables: dict[Guid, RoutingTable]
) -> RoutingLink | None:
    """Return the routing link of a message's next hop; None within a site. ``tables`` keeps routing tables."""
    try:
        decision = Router(topology.snapshot, source, tables=tables).next_hops(destination)
    except NoRouteError:
        return None
    if decision.rule is not Rule.NEXT_SITE:
        return None
    hop = (*decision.hops, *decision.fall_back)[0]
    return _link(topology, topology.snapshot.machines[source], decision, hop)


def considered(
    topology: NamedTopology, source: Machine, destination: Machine, decision: NextHops | None
) -> Iterator[Considered]:
    """Return every rule up to the one that decides (GetNextHops, MS-MQBR 3.1.5.1, as in ``Router``)."""
    for rule, applies, why in _questions(topology, source, destination, decision):
        yield Considered(rule, applies, why)
        if applies:
            return


def _questions(
    topology: NamedTopology, source: Machine, to: Machine, decision: NextHops | None
) -> Iterator[tuple[Rule, bool, str]]:
    names, snapshot = topology.machine_names, topology.snapshot
    reached_in = snapshot.sites_of(to)
    shared = [site for site in source.sites if site in reached_in]
    yield (
        Rule.LOCAL,
        source.identifier == to.identifier,
        f"{source.name} is {'' if source.identifier == to.identifier else 'not '}the destination",
    )
    yield _connector(topology, source, to, decision)
    if source.routing_server:
        yield Rule.OUT_ROUTING_SERVER, False, f"{source.name} is a routing server and routes for itself"
    else:
        servers = source.out_routing_servers
        text = f"names {names(servers)}" if servers else "names no out-routing server"
        yield Rule.OUT_ROUTING_SERVER, bool(servers), f"{source.name} {text}"
    last = source.routing_server and not to.foreign and source.identifier in to.in_routing_servers
    yield (
        Rule.LAST_STEP,
        last,
        f"{source.name} is {'an' if last else 'no'} in-routing server of {to.name}",
    )
    common = f"both are in {topology.site_names(shared)}" if shared else _apart(topology, source, to)
    guarded = bool(shared and to.in_routing_servers)
    through = (
        f"{to.name} names {names(to.in_routing_servers)}"
        if to.in_routing_servers
        else (f"{to.name} names no in-routing server")
    )
    yield Rule.IN_ROUTING_SERVER, guarded, f"{common}; {through}"
    yield Rule.SAME_SITE, bool(shared), common
    gate = snapshot.is_site_gate(source)
    yield Rule.NEXT_SITE, gate, f"{source.name} is {'a' if gate else 'no'} site gate"
    yield (
        Rule.SITE_GATE,
        source.routing_server,
        f"{source.name} is {'a' if source.routing_server else 'no'} routing server",
    )
    yield Rule.ROUTING_SERVER, True, f"{source.name} routes for nobody, so its site's routing servers do"


def _connector(
    topology: NamedTopology, source: Machine, to: Machine, decision: NextHops | None
) -> tuple[Rule, bool, str]:
    if not to.foreign:
        return Rule.CONNECTOR, False, f"{to.name} is no foreign system"
    where = f"{to.name} is a foreign system of {topology.site_names(topology.snapshot.sites_of(to))}"
    if decision is None or decision.rule is not Rule.CONNECTOR:
        return Rule.CONNECTOR, False, f"{where}, and {source.name} is no connector of it"
    site = topology.site_names([decision.site] if decision.site is not None else [])
    link = "" if decision.site in source.sites else "a site gate of the link to "
    return Rule.CONNECTOR, True, f"{where}, and {source.name} is {link or 'in '}{site}"


def _apart(topology: NamedTopology, source: Machine, to: Machine) -> str:
    own, other = topology.site_names(source.sites), topology.site_names(to.sites)
    return f"{source.name} is in {own}, {to.name} in {other}"


def _hop(topology: NamedTopology, at: Guid, destination: Guid, tables: dict[Guid, RoutingTable]) -> Hop:
    source, to = topology.snapshot.machines[at], topology.snapshot.machines[destination]
    decision, problem = None, ""
    try:
        decision = Router(topology.snapshot, at, tables=tables).next_hops(destination)
    except NoRouteError as error:
        problem = str(error)
    asked = tuple(considered(topology, source, to, decision))
    if decision is None or decision.rule in (Rule.LOCAL, Rule.CONNECTOR):
        return Hop(at, asked, decision, None, problem=problem)
    first, *rest = (*decision.hops, *decision.fall_back)
    link = _link(topology, source, decision, first) if decision.rule is Rule.NEXT_SITE else None
    detour = None if link is None else _detour(topology, at, destination, link)
    return Hop(at, asked, decision, first, tuple(rest), link, detour)


def _link(topology: NamedTopology, at: Machine, decision: NextHops, hop: Guid) -> RoutingLink | None:
    """The cheapest link between a site of this gate and the next site."""
    near, far = set(at.sites), set(topology.snapshot.machines[hop].sites)
    joining = [
        link
        for site in at.sites
        for link in topology.snapshot.links_of_site.get(site, ())
        if link.far_end(site) == decision.site or link.far_end(site) in far - near
    ]
    return min(joining, key=lambda link: (decision.site not in (link.site1, link.site2), link.cost), default=None)


def _detour(topology: NamedTopology, at: Guid, destination: Guid, link: RoutingLink) -> int | None:
    """Return the cost of the way without a link, or None when there is no other way."""
    try:
        return follow(topology.snapshot.without(links=[link]), at, destination).cost
    except NoRouteError:
        return None
