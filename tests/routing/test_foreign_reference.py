"""The router against a second brute-force reading of MS-MQBR 3.1.5: foreign sites, connectors, several sites each."""

from __future__ import annotations

import random

import pytest

from qmnode.routing import Machine, NoRouteError, Router, RoutingLink, Rule, Site, TopologySnapshot
from qmnode.structures.guid import Guid
from tests.routing.test_reference import guid


def enterprise(seed: int) -> TopologySnapshot:
    """Two to six sites, a quarter of them foreign; machines in one or two of them; links and gates at random."""
    dice = random.Random(seed)
    sites = [Site(guid(1, i), f"S{i}", foreign=i > 0 and dice.random() < 0.25) for i in range(dice.randint(2, 6))]
    machines: dict[Guid, Machine] = {}
    for i, site in enumerate(sites):
        for j in range(dice.randint(0 if site.foreign else 1, 4)):
            belongs = [site.identifier]
            if not site.foreign and dice.random() < 0.15:
                belongs.append(dice.choice(sites).identifier)
            routes = not site.foreign and dice.random() < 0.55
            machine = Machine(
                guid(2, i * 10 + j), f"{site.name}-{j}", tuple(dict.fromkeys(belongs)), routes, foreign=site.foreign
            )
            machines[machine.identifier] = machine
    routers = [each for each in machines.values() if each.routing_server]
    links = []
    for i, one in enumerate(sites):
        for other in sites[i + 1 :]:
            if dice.random() < 0.6:
                ends = {one.identifier, other.identifier}
                gates = [each.identifier for each in routers if ends & set(each.sites) and dice.random() < 0.7]
                links.append(RoutingLink(one.identifier, other.identifier, dice.randint(1, 3), tuple(gates)))
    return TopologySnapshot.of([_guarded(each, routers, dice) for each in machines.values()], sites, links)


def _guarded(machine: Machine, routers: list[Machine], dice: random.Random) -> Machine:
    """A machine that may send or receive through routing servers of its sites."""
    near = [each.identifier for each in routers if set(each.sites) & set(machine.sites) and each != machine]

    def some(possible: bool) -> tuple[Guid, ...]:
        chosen = possible and near and dice.random() < 0.2
        return tuple(dice.sample(near, min(len(near), dice.randint(1, 2)))) if chosen else ()

    through = some(not machine.routing_server and not machine.foreign)
    return Machine(
        machine.identifier,
        machine.name,
        machine.sites,
        machine.routing_server,
        through,
        some(not machine.foreign),
        machine.foreign,
    )


def first_links(snapshot: TopologySnapshot, start: Guid, end: Guid) -> tuple[int, set[RoutingLink]]:
    """All simple ways, foreign sites being sites like others: the least cost, and the links that begin them."""
    found: list[tuple[int, RoutingLink]] = []

    def walk(at: Guid, seen: set[Guid], cost: int, first: RoutingLink | None) -> None:
        if first is not None and at == end:
            found.append((cost, first))
            return
        for link in snapshot.links:
            if at in (link.site1, link.site2) and link.far_end(at) not in seen:
                onward = link.far_end(at)
                walk(onward, seen | {onward}, cost + link.cost, first or link)

    walk(start, {start}, 0, None)
    least = min((cost for cost, _ in found), default=0)
    return least, {first for cost, first in found if cost == least}


def gates(snapshot: TopologySnapshot, site: Guid) -> set[Guid]:
    return {
        gate
        for link in snapshot.links
        for gate in link.site_gates
        if site in (link.site1, link.site2) and site in snapshot.machines[gate].sites
    }


def expected(snapshot: TopologySnapshot, source: Machine, to: Machine) -> tuple[set[Guid], bool]:
    """Every next hop that the rules allow, and whether the connector queue is one."""
    shared = set(source.sites) & set(to.sites)
    if to.foreign and shared:
        return set(), True
    if not source.routing_server and source.out_routing_servers:
        return set(source.out_routing_servers), False
    if source.routing_server and source.identifier in to.in_routing_servers:
        return {to.identifier}, False
    if shared:
        return set(to.in_routing_servers) or {to.identifier}, False
    if not source.routing_server:
        routers = {each.identifier for each in snapshot.machines.values() if each.routing_server and near(each, source)}
        return routers, False
    own = {gate for site in source.sites for gate in gates(snapshot, site)}
    return next_sites(snapshot, source, to) if source.identifier in own else (own, False)


def near(one: Machine, other: Machine) -> bool:
    return bool(set(one.sites) & set(other.sites))


def next_sites(snapshot: TopologySnapshot, source: Machine, to: Machine) -> tuple[set[Guid], bool]:
    """By the cheapest rows of the routing table of which the next site has a gate."""
    rows = [
        (least, {(link.far_end(own), link) for link in links})
        for own in source.sites
        for site in to.sites
        for least, links in [first_links(snapshot, own, site)]
        if links
    ]
    for cost in sorted({cost for cost, _ in rows}):
        hops: set[Guid] = set()
        connects = False
        for site, link in {step for least, steps in rows if least == cost for step in steps}:
            if to.foreign and site in to.sites:
                connects |= source.identifier in link.site_gates
                hops |= set(link.site_gates) or gates(snapshot, site)
            else:
                hops |= gates(snapshot, site)
        if hops - {source.identifier} or connects:
            return hops - {source.identifier}, connects
    return set(), False


@pytest.mark.parametrize("block", range(6))
def test_next_hops_agree_where_sites_are_foreign_and_machines_are_in_several(block: int) -> None:
    compared = connected = dearer = 0
    for seed in range(block * 350, block * 350 + 350):
        snapshot = enterprise(seed)
        for source in snapshot.machines.values():
            if source.foreign:
                continue
            router = Router(snapshot, source.identifier)
            for to in snapshot.machines.values():
                if source is to:
                    continue
                hops, connects = expected(snapshot, source, to)
                try:
                    found = router.next_hops(to.identifier)
                except NoRouteError:
                    assert not hops and not connects, (seed, source.name, to.name)
                    continue
                compared += 1
                if found.rule is Rule.CONNECTOR:
                    assert to.foreign and connects, (seed, source.name, to.name)
                    connected += 1
                else:
                    assert set(found.hops) == hops, (seed, source.name, to.name)
                    dearer += found.rule is Rule.NEXT_SITE and found.cost > cheapest(router, source, to)
    assert compared > 15_000 and connected > 500 and dearer > 50


def cheapest(router: Router, source: Machine, to: Machine) -> int:
    found = (router.routing_table(own).get(site) for own in source.sites for site in to.sites)
    return min(route.cost for route in found if route is not None)
