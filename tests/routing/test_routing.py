"""MS-MQBR 3.1.5, rule by rule, and its own example (section 4)."""

from __future__ import annotations

import pytest

from qmnode.routing import Machine, NoRouteError, Router, RoutingLink, Rule, Site, TopologySnapshot, follow
from qmnode.structures.guid import Guid


def guid(name: str) -> Guid:
    return Guid(name.encode().ljust(16, b"\0"))


def link(ends: str, cost: int, *gates: str) -> RoutingLink:
    return RoutingLink(guid(ends[0]), guid(ends[1]), cost, tuple(map(guid, gates)))


def machine(name: str, site: str = "", **more: object) -> Machine:
    sites = tuple(guid(letter) for letter in site or name[0].upper())
    return Machine(guid(name), name, sites, **more)  # type: ignore[arg-type]


def names(hops: tuple[Guid, ...]) -> list[str]:
    return [hop.rstrip(b"\0").decode() for hop in hops]


def square(ab: int, bc: int, bd: int, cd: int) -> TopologySnapshot:
    """Four sites, a gate and a client in each; links A-B, B-C, B-D and C-D (MS-MQBR section 4, figure 4)."""
    machines = [machine(f"{site}-gate", routing_server=True) for site in "abcd"]
    machines += [machine(f"{site}-client") for site in "abcd"]
    links = [
        link(ends, cost, f"{ends[0].lower()}-gate", f"{ends[1].lower()}-gate")
        for ends, cost in (("AB", ab), ("BC", bc), ("BD", bd), ("CD", cd))
    ]
    return TopologySnapshot.of(machines, [Site(guid(site), site) for site in "ABCD"], links)


def test_the_specification_example_goes_by_b_alone_when_the_direct_link_is_cheap() -> None:
    journey = follow(square(ab=3, bc=1, bd=1, cd=1), guid("a-client"), guid("c-client"))
    assert names(journey.path) == ["a-client", "a-gate", "b-gate", "c-gate", "c-client"]
    assert journey.cost == 4


def test_the_specification_example_goes_by_b_and_d_when_the_direct_link_is_dear() -> None:
    journey = follow(square(ab=3, bc=3, bd=1, cd=1), guid("a-client"), guid("c-client"))
    assert names(journey.path) == ["a-client", "a-gate", "b-gate", "d-gate", "c-gate", "c-client"]
    assert journey.cost == 5


def one_site(*machines: Machine) -> TopologySnapshot:
    return TopologySnapshot.of(machines, [Site(guid("A"), "A")], [])


def test_machines_of_one_site_connect_directly_and_fall_back_to_a_routing_server() -> None:
    snapshot = one_site(machine("a-1"), machine("a-2"), machine("a-router", routing_server=True))
    hops = Router(snapshot, guid("a-1")).next_hops(guid("a-2"))
    assert (hops.rule, names(hops.hops), names(hops.fall_back)) == (Rule.SAME_SITE, ["a-2"], ["a-router"])


def test_an_out_routing_server_takes_everything_even_within_the_site() -> None:
    snapshot = one_site(
        machine("a-1", out_routing_servers=(guid("a-out"),)), machine("a-2"), machine("a-out", routing_server=True)
    )
    assert names(follow(snapshot, guid("a-1"), guid("a-2")).path) == ["a-1", "a-out", "a-2"]


def test_an_in_routing_server_receives_everything_for_its_client() -> None:
    snapshot = one_site(
        machine("a-1"), machine("a-2", in_routing_servers=(guid("a-in"),)), machine("a-in", routing_server=True)
    )
    journey = follow(snapshot, guid("a-1"), guid("a-2"))
    assert names(journey.path) == ["a-1", "a-in", "a-2"]
    assert [decision.rule for decision in journey.decisions] == [Rule.IN_ROUTING_SERVER, Rule.LAST_STEP, Rule.LOCAL]


def test_a_client_without_a_routing_server_in_its_site_is_told_what_to_declare() -> None:
    snapshot = TopologySnapshot.of([machine("a-1"), machine("b-1")], [Site(guid("A"), "A"), Site(guid("B"), "B")], [])
    with pytest.raises(NoRouteError, match=r"a-1 \(A\) has no routing server to reach b-1"):
        Router(snapshot, guid("a-1")).next_hops(guid("b-1"))


def test_a_routing_server_that_is_no_gate_goes_through_the_gate_of_its_site() -> None:
    snapshot = square(3, 1, 1, 1)
    more = [*snapshot.machines.values(), machine("a-router", routing_server=True)]
    snapshot = TopologySnapshot.of(more, snapshot.sites.values(), snapshot.links)
    hops = Router(snapshot, guid("a-router")).next_hops(guid("c-client"))
    assert (hops.rule, names(hops.hops)) == (Rule.SITE_GATE, ["a-gate"])


def foreign_enterprise() -> TopologySnapshot:
    """Site F is foreign; the gate a-conn of the link A-F is its connector. B reaches F through A."""
    machines = [
        machine("a-1"),
        machine("a-gate", routing_server=True),
        machine("a-conn", site="AF", routing_server=True),
        machine("b-gate", routing_server=True),
        machine("f-host", foreign=True),
    ]
    sites = [Site(guid("A"), "A"), Site(guid("B"), "B"), Site(guid("F"), "F", foreign=True)]
    return TopologySnapshot.of(machines, sites, [link("AB", 1, "a-gate", "b-gate"), link("AF", 1, "a-conn")])


@pytest.mark.parametrize("source", ["a-1", "a-gate", "b-gate", "a-conn"])
def test_messages_to_a_foreign_system_end_in_the_connector_queue(source: str) -> None:
    journey = follow(foreign_enterprise(), guid(source), guid("f-host"))
    assert names(journey.path)[-1] == "a-conn"
    assert journey.decisions[-1].rule is Rule.CONNECTOR
    assert journey.decisions[-1].site == guid("F")


def shared_foreign_site() -> TopologySnapshot:
    """Nothing but the foreign site F, of which A and B have a connector each, joins A with B."""
    machines = [machine(f"{site}-{kind}", routing_server=kind == "gate") for site in "ab" for kind in ("1", "gate")]
    machines += [machine(f"{site}-conn", site=f"{site.upper()}F", routing_server=True) for site in "ab"]
    machines.append(machine("f-host", foreign=True))
    sites = [Site(guid("A"), "A"), Site(guid("B"), "B"), Site(guid("F"), "F", foreign=True)]
    links = [link("AF", 1, "a-gate", "a-conn"), link("FB", 1, "b-conn", "b-gate")]
    return TopologySnapshot.of(machines, sites, links)


@pytest.mark.parametrize("source", ["a-1", "a-gate", "a-conn"])
@pytest.mark.parametrize("destination", ["b-1", "b-gate", "b-conn"])
def test_a_foreign_site_that_connectors_share_carries_messages_of_others(source: str, destination: str) -> None:
    journey = follow(shared_foreign_site(), guid(source), guid(destination))
    assert names(journey.path)[-1] == destination
    assert journey.decisions[-1].rule is Rule.LOCAL
    assert {"a-conn", "b-conn"} & set(names(journey.path))


@pytest.mark.parametrize("destination", ["b-conn", "b-1"])
def test_a_gate_that_joins_a_foreign_site_sends_ordinary_machines_on(destination: str) -> None:
    """``a-gate`` is a gate of the link to F, and ``b-conn`` is in F: it is a machine and no foreign system."""
    found = Router(shared_foreign_site(), guid("a-gate")).next_hops(guid(destination))
    assert (found.rule, found.site) == (Rule.NEXT_SITE, guid("F"))
    assert set(names(found.hops)) == {"a-conn", "b-conn"}


def test_a_gate_of_the_link_to_a_foreign_site_keeps_messages_for_its_systems() -> None:
    found = Router(shared_foreign_site(), guid("a-gate")).next_hops(guid("f-host"))
    assert (found.rule, found.site) == (Rule.CONNECTOR, guid("F"))


def test_a_foreign_system_is_reached_in_its_foreign_sites_only() -> None:
    """Sharing an ordinary site with one is no way to it."""
    machines = [machine("a-1"), machine("a-conn", site="AF", routing_server=True)]
    machines.append(machine("f-host", site="AF", foreign=True, in_routing_servers=(guid("a-conn"),)))
    sites = [Site(guid("A"), "A"), Site(guid("F"), "F", foreign=True)]
    snapshot = TopologySnapshot.of(machines, sites, [link("AF", 1, "a-conn")])
    journey = follow(snapshot, guid("a-1"), guid("f-host"))
    assert names(journey.path) == ["a-1", "a-conn"]
    assert journey.decisions[-1].rule is Rule.CONNECTOR


def test_a_foreign_system_without_a_foreign_site_is_named() -> None:
    snapshot = one_site(machine("a-1"), machine("a-host", foreign=True))
    with pytest.raises(NoRouteError, match="a-host is a foreign system but belongs to no foreign site"):
        Router(snapshot, guid("a-1")).next_hops(guid("a-host"))


@pytest.mark.parametrize("cheaper", ["C", "D"])
def test_a_dearer_row_serves_where_the_cheapest_ones_next_site_has_no_gate(cheaper: str) -> None:
    """The destination is in C and in D, and only one of them has a gate."""
    other = "D" if cheaper == "C" else "C"
    machines = [machine("a-gate", routing_server=True), machine("c-d", site="CD")]
    machines.append(machine("x-gate", site=other, routing_server=True))
    links = [link(f"A{cheaper}", 1, "a-gate"), link(f"A{other}", 9, "a-gate", "x-gate")]
    snapshot = TopologySnapshot.of(machines, [Site(guid(name), name) for name in "ACD"], links)
    found = Router(snapshot, guid("a-gate")).next_hops(guid("c-d"))
    assert (names(found.hops), found.cost, found.site) == (["x-gate"], 9, guid(other))


def test_a_row_without_gates_is_named_when_there_is_no_other() -> None:
    machines = [machine("a-gate", routing_server=True), machine("c-d", site="CD")]
    links = [link("AC", 1, "a-gate"), link("AD", 9, "a-gate")]
    snapshot = TopologySnapshot.of(machines, [Site(guid(name), name) for name in "ACD"], links)
    with pytest.raises(NoRouteError, match="C or D, the next site on the way to c-d, has no site gate"):
        Router(snapshot, guid("a-gate")).next_hops(guid("c-d"))


def two_gates() -> TopologySnapshot:
    machines = [machine("a-gate", routing_server=True)]
    machines += [machine(f"b-gate{i}", routing_server=True) for i in range(3)]
    machines += [machine(f"b-{i:04}") for i in range(3000)]
    gates = ["a-gate", "b-gate0", "b-gate1", "b-gate2"]
    return TopologySnapshot.of(machines, [Site(guid("A"), "A"), Site(guid("B"), "B")], [link("AB", 1, *gates)])


def test_several_gates_share_the_traffic_evenly_and_stand_in_for_each_other() -> None:
    snapshot = two_gates()
    router = Router(snapshot, guid("a-gate"))
    first = [names(router.next_hops(guid(f"b-{i:04}")).hops) for i in range(3000)]
    assert all(sorted(hops) == ["b-gate0", "b-gate1", "b-gate2"] for hops in first)
    counts = [sum(hops[0] == f"b-gate{gate}" for hops in first) for gate in range(3)]
    assert min(counts) > 900, counts


def test_a_gate_that_goes_moves_only_its_own_traffic() -> None:
    whole, less = two_gates(), two_gates().without([guid("b-gate1")])
    before, after = Router(whole, guid("a-gate")), Router(less, guid("a-gate"))
    for i in range(3000):
        destination = guid(f"b-{i:04}")
        hops = [hop for hop in before.next_hops(destination).hops if hop != guid("b-gate1")]
        assert list(after.next_hops(destination).hops) == hops


def test_a_hop_that_is_away_is_passed_by_the_next_possible_one() -> None:
    snapshot = two_gates()
    preferred = follow(snapshot, guid("a-gate"), guid("b-0001")).path[1]
    detour = follow(snapshot, guid("a-gate"), guid("b-0001"), away={preferred}).path
    assert detour[1] != preferred
    assert detour[-1] == guid("b-0001")


def test_equal_costs_are_used_both_and_the_answer_stays_the_same() -> None:
    machines = [machine(f"{site}-gate", routing_server=True) for site in "abcd"]
    machines += [machine(f"d-{i:04}") for i in range(1000)]
    links = [link(ends, 1, f"{ends[0].lower()}-gate", f"{ends[1].lower()}-gate") for ends in ("AB", "AC", "BD", "CD")]
    snapshot = TopologySnapshot.of(machines, [Site(guid(site), site) for site in "ABCD"], links)
    router, again = Router(snapshot, guid("a-gate")), Router(snapshot, guid("a-gate"))
    first = [names(router.next_hops(guid(f"d-{i:04}")).hops) for i in range(1000)]
    assert {hops[0] for hops in first} == {"b-gate", "c-gate"}
    assert 400 < sum(hops[0] == "b-gate" for hops in first) < 600
    assert first == [names(again.next_hops(guid(f"d-{i:04}")).hops) for i in range(1000)]


def test_a_circle_of_in_routing_servers_is_named_not_followed() -> None:
    snapshot = one_site(
        machine("a-1", out_routing_servers=(guid("a-2"),)),
        machine("a-2", out_routing_servers=(guid("a-1"),)),
        machine("a-3"),
    )
    with pytest.raises(NoRouteError, match="a-1 to a-2 to a-1"):
        follow(snapshot, guid("a-1"), guid("a-3"))


@pytest.mark.parametrize("cost", [0, -1, 1_000_000])
def test_a_link_with_a_cost_out_of_range_is_refused(cost: int) -> None:
    with pytest.raises(ValueError, match="costs 1 to 999999"):
        link("AB", cost)
