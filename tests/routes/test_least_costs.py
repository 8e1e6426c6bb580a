"""Tables of which only what is asked for is worked out are those that are built whole."""

from __future__ import annotations

import random
from dataclasses import replace

from mqenterprise.routes.simulation import LeastCosts
from qmnode.routing import NoRouteError, TopologySnapshot, build_routing_table, follow
from tests.routing.test_reference import large_enterprise, random_enterprise


def test_every_route_is_that_of_a_whole_table_in_whatever_order_they_are_asked_for() -> None:
    compared = foreign = ties = 0
    for seed in range(300):
        dice, drawn = random.Random(seed), random_enterprise(seed)
        sites = [replace(site, foreign=dice.random() < 0.2) for site in drawn.sites.values()]
        snapshot = TopologySnapshot.of(drawn.machines.values(), sites, drawn.links)
        tables = LeastCosts(snapshot).tables()
        whole = {site: build_routing_table(snapshot, site) for site in snapshot.sites}
        asked = [(site, to) for site in snapshot.sites for to in snapshot.sites]
        dice.shuffle(asked)
        for site, to in asked:
            found, expected = tables[site].get(to), whole[site].get(to)
            if found is None or expected is None:
                assert found is expected, (seed, site, to)
                continue
            assert (found.cost, set(found.first_links)) == (expected.cost, set(expected.first_links)), (seed, site, to)
            compared += 1
            foreign += snapshot.sites[site].foreign or snapshot.sites[to].foreign
            ties += len(found.first_links) > 1
        assert all(set(tables[site]) == set(whole[site]) for site in snapshot.sites)
    assert compared > 1000 and foreign > 100 and ties > 100


def test_journeys_are_those_that_whole_tables_give() -> None:
    arrived = 0
    for seed in range(100):
        snapshot = random_enterprise(seed)
        tables = LeastCosts(snapshot).tables()
        for source in snapshot.machines:
            for destination in snapshot.machines:
                try:
                    expected = follow(snapshot, source, destination)
                except NoRouteError as error:
                    expected, problem = None, str(error)
                try:
                    assert follow(snapshot, source, destination, tables=tables) == expected
                    arrived += 1
                except NoRouteError as error:
                    assert expected is None and str(error) == problem
    assert arrived > 1000


def test_what_is_asked_from_one_site_is_worked_out_once() -> None:
    snapshot = large_enterprise(200, 1_000)
    costs = LeastCosts(snapshot)
    tables = costs.tables()
    source, *others = snapshot.machines
    for destination in others:
        follow(snapshot, source, destination, tables=tables)
    assert len(costs._costs) == 1
