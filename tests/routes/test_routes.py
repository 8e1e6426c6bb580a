"""``mqenterprise route``: explanations agree with the router, simulations say what a failure does."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from typer.testing import CliRunner

from mqenterprise.cli import app
from mqenterprise.commands.route import _table as table_of
from mqenterprise.routes import simulation
from mqenterprise.routes.enterprise import NamedTopology, UnknownName, of_directory
from mqenterprise.routes.explanation import explain
from mqenterprise.routes.simulation import simulate
from qmnode.directory import port as directory_port
from qmnode.directory.port import QueueManager, Site
from qmnode.routing import NoRouteError, Router, TopologySnapshot, follow
from tests.lab.cases import cases
from tests.lab.directory_objects import create
from tests.operations.managed import managed_node
from tests.routing.test_foreign_reference import enterprise as foreign_enterprise
from tests.routing.test_reference import large_enterprise, random_enterprise
from tests.routing.test_routing import guid, square

if TYPE_CHECKING:
    from collections.abc import Callable

    from mqenterprise.directory.open_directory import EnterpriseDirectory
    from qmnode.routing import RoutingLink
    from qmnode.structures.guid import Guid

REPOSITORY = Path(__file__).parents[2]
SAMPLE = REPOSITORY / "inventory/contoso.yaml"
PAGE = REPOSITORY / "docs/routing.md"
SITES = 20
"""Of an enterprise that is large for a test that follows each journey by itself."""


def run(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["route", *map(str, arguments)])
    assert done.exit_code == code, done.output
    return done.output


class TestExplain:
    @cases("drawn", [random_enterprise, foreign_enterprise])
    @cases("seed", range(0, 400, 8))
    def test_the_rule_that_is_told_is_the_one_that_decides(
        self, seed: int, drawn: Callable[[int], TopologySnapshot]
    ) -> None:
        topology = NamedTopology(drawn(seed))
        machines = topology.snapshot.machines
        for source in (each.identifier for each in machines.values() if not each.foreign):
            for destination in machines:
                found = explain(topology, source, destination)
                try:
                    journey = follow(topology.snapshot, source, destination)
                except NoRouteError:
                    assert not found.arrives
                    continue
                assert tuple(hop.machine for hop in found.hops) == journey.path
                assert found.cost == journey.cost
                for hop in found.hops:
                    decision = Router(topology.snapshot, hop.machine).next_hops(destination)
                    assert [each.rule for each in hop.considered if each.applies] == [decision.rule]
                    assert hop.considered[-1].applies

    @pytest.mark.servers
    def test_now_the_nodes_say_what_waits_on_the_way(self, tmp_path: Path) -> None:
        asked = ("explain", "ams-shop", "cor-warehouse", "--brief", "--declared", SAMPLE, "--now")
        with managed_node(tmp_path, "ams-shop", ["ams-router", "bre-router", "cor-router", "cor-warehouse"]) as node:
            nodes = ("--nodes", tmp_path / "nodes.yaml")
            assert "Not known now: ams-router, bre-router, cor-router, cor-warehouse" in run(*asked, *nodes)

            node.command("send", r"DIRECT=TCP:127.0.0.77\private$\elsewhere", "x")
            node.command("send", r"DIRECT=OS:cor-warehouse\private$\orders", "x")
            told = run(*asked, *nodes, code=2)
            (hop, *others) = json.loads(run(*asked, *nodes, "--json", code=2))["hops"]

        assert "By the directory it arrives.\nNow it waits at ams-shop, because " in told
        assert "set transport.enabled in node.yaml" in told and "127.0.0.77" not in told
        (waiting,) = hop["now"]["waiting"]
        assert (waiting["reason"], waiting["queue"]) == ("offline", r"DIRECT=OS:cor-warehouse\private$\orders")
        assert waiting["messages"] == 1
        assert all("no connection" in other["now"]["unknown"] for other in others)

    def test_a_link_is_told_with_the_cost_of_the_way_without_it(self) -> None:
        topology = NamedTopology(square(ab=3, bc=1, bd=1, cd=1))

        hops = explain(topology, guid("b-gate"), guid("c-client")).hops

        assert hops[0].link is not None
        assert (hops[0].link.cost, hops[0].detour) == (1, 2)

    def test_a_name_that_is_none_gets_the_nearest(self) -> None:
        assert "did you mean ams-shop?" in run("explain", "ams-shpo", "bre-router", "--declared", SAMPLE, code=1)

    def test_no_route_is_told_with_what_to_do(self, tmp_path: Path) -> None:
        declared = yaml.safe_load(SAMPLE.read_text("utf-8"))
        declared["routing_links"] = declared["routing_links"][:1]
        file = tmp_path / "cut.yaml"
        file.write_text(yaml.safe_dump(declared, allow_unicode=True), "utf-8")

        answer = run("explain", "ams-shop", "cor-warehouse", "--declared", file, code=1)

        assert "no routing link leads from ams-router to Córdoba" in answer

    def test_json_has_the_same(self) -> None:
        found = json.loads(run("explain", "ams-shop", "cor-warehouse\\picking", "--declared", SAMPLE, "--json"))

        assert found["path"] == ["ams-shop", "ams-router", "bre-router", "cor-router", "cor-warehouse"]
        assert (found["cost"], found["arrives"]) == (6, True)
        hop = found["hops"][1]
        assert (hop["rule"], hop["section"], hop["link"]) == ("next_site", "MS-MQBR 3.1.5.3", ["Amsterdam", "Bremen"])
        assert [each["applies"] for each in hop["considered"]] == [False] * 6 + [True]


class TestTable:
    def test_of_the_sample(self) -> None:
        rows = json.loads(run("table", "ams-router", "--declared", SAMPLE, "--json"))

        assert [(row["site"], row["cost"], row["next_hop"]) for row in rows] == [
            ("Bremen", 1, "bre-router"),
            ("Córdoba", 6, "bre-router"),
            ("Mainframe", 2, "bre-router"),
        ]
        assert "site gate" in run("table", "ams-router", "--declared", SAMPLE)

    def test_each_line_is_what_a_machine_of_that_site_alone_gets(self) -> None:
        compared = 0
        for seed in range(40):
            topology = NamedTopology(foreign_enterprise(seed))
            snapshot = topology.snapshot
            for node in (each for each in snapshot.machines.values() if not each.foreign):
                lines = {line["site"]: line for line in table_of(topology, node.identifier)}
                for to in snapshot.machines.values():
                    if len(to.sites) > 1 or to.sites[0] in node.sites or to.in_routing_servers:
                        continue
                    line = lines[topology.site_name(to.sites[0])]
                    try:
                        found = Router(snapshot, node.identifier).next_hops(to.identifier)
                    except NoRouteError as error:
                        assert line["rule"].split(" a machine of")[0] == error.reason.split(f" {to.name}")[0]
                        continue
                    shown = {line["next_hop"], *line["alternatives"].split(", ")} - {"", None}
                    assert shown == {topology.machine_name(hop) for hop in (*found.hops, *found.fall_back)}
                    assert line["rule"] == found.rule.value
                    compared += 1
        assert compared > 1_000


class TestSimulate:
    def test_another_way_is_taken(self) -> None:
        topology = NamedTopology(square(ab=3, bc=1, bd=1, cd=1))

        found = simulate(topology, links=topology.links("C-B"))

        assert not found.waiting and not found.cut_off
        changed = {(each.source, each.destination): each for each in found.changed}
        journey = changed[guid("a-client"), guid("c-client")]
        names = [topology.machine_name(hop) for hop in journey.after.path]
        assert names == ["a-client", "a-gate", "b-gate", "d-gate", "c-gate", "c-client"]
        assert (journey.before.cost, journey.after.cost) == (4, 5)
        assert [topology.machine_name(load.gate) for load in found.overloaded] == ["d-gate"]

    def test_a_gate_that_is_off_cuts_its_site_off(self) -> None:
        topology = NamedTopology(square(ab=3, bc=1, bd=1, cd=1))

        found = simulate(topology, machines=[guid("a-gate")])

        assert topology.site_names(found.cut_off) == "A"
        assert all(guid("a-client") in (each.source, each.destination) for each in found.waiting)
        assert "no next hop answers (a-gate)" in found.waiting[0].after.problem

    def test_what_it_says_of_random_enterprises_is_what_the_router_does(self) -> None:
        for seed, drawn in product(range(40), (random_enterprise, foreign_enterprise)):
            topology = NamedTopology(drawn(seed))
            if not topology.snapshot.links:
                continue
            gone = topology.snapshot.links[0]
            found = simulate(topology, links=[gone])
            without = topology.snapshot.without(links=[gone])
            for each in found.changed:
                assert follow(without, each.source, each.destination).path == each.after.path != each.before.path
            for each in found.waiting:
                with pytest.raises(NoRouteError):
                    follow(without, each.source, each.destination)

    @cases("seed", range(40))
    def test_it_is_what_following_each_journey_by_itself_gives(self, seed: int) -> None:
        dice, drawn = random.Random(seed), random_enterprise(seed)
        sites = [replace(site, foreign=dice.random() < 0.15) for site in drawn.sites.values()]
        whole = TopologySnapshot.of(drawn.machines.values(), sites, drawn.links)
        topology = NamedTopology(whole)
        out = [link for link in whole.links if dice.random() < 0.3]
        off = {machine for machine in whole.machines if dice.random() < 0.15}
        only = dice.choice(sites).identifier if dice.random() < 0.3 else None

        found = simulate(topology, links=out, machines=off, only_from=only)

        expected = followed_one_by_one(whole, out, off, only)
        assert found.journeys == expected.journeys
        told = {(each.source, each.destination): each.after.path or each.after.problem for each in found.changed}
        assert told == expected.changed
        waits = {(each.source, each.destination): each.after.problem for each in found.waiting}
        assert waits == expected.waiting
        assert set(found.cut_off) == expected.cut_off
        gates = {load.gate: (load.before, load.after) for load in found.gates}
        assert gates == {gate: (expected.before[gate], expected.after[gate]) for gate in gates}

    def test_a_large_enterprise_is_looked_at_with_a_machine_of_each_site(self, monkeypatch: pytest.MonkeyPatch) -> None:
        topology = NamedTopology(large_enterprise(SITES, 60))
        monkeypatch.setattr(simulation, "MOST_JOURNEYS", 1_000)
        out = topology.snapshot.links[0]

        found = simulate(topology, links=[out])

        assert (found.of, found.journeys) == ("one machine of each site", SITES * (SITES - 1))
        clients = [machine for machine in topology.snapshot.machines.values() if not machine.routing_server]
        smaller = TopologySnapshot.of(
            [*clients, *(each for each in topology.snapshot.machines.values() if each.routing_server)],
            topology.snapshot.sites.values(),
            topology.snapshot.links,
        )
        expected = followed_one_by_one(smaller, [out], set(), None, among={each.identifier for each in clients})
        assert {(each.source, each.destination): each.after.path for each in found.changed} == expected.changed
        assert {load.gate: load.after for load in found.gates} == {
            gate: expected.after[gate] for gates in smaller.gates_of_site.values() for gate in gates
        }

    def test_too_many_sites_are_asked_for_one_by_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        topology = NamedTopology(large_enterprise(30, 60))
        for limit in ("MOST_JOURNEYS", "MOST_SAMPLED"):
            monkeypatch.setattr(simulation, limit, 100)
        with pytest.raises(simulation.TooMuch, match=r"from 30 to 30 machines.*--from SITE"):
            simulate(topology, links=topology.snapshot.links[:1])
        only = next(iter(topology.snapshot.sites))
        assert simulate(topology, links=topology.snapshot.links[:1], only_from=only).journeys == 29

    def test_of_the_sample(self) -> None:
        off = ("simulate", "--declared", SAMPLE)

        found = json.loads(run(*off, "--without-link", "Bremen-Amsterdam", "--json", code=2))
        assert found["cut_off"] == ["Amsterdam"]
        assert found["changed"] == []
        text = run(*off, "--without", "bre-router")
        assert "Of 16 journeys between sites, 12 take another way and 0 wait. Simulated: every machine.\n" in text
        (gate,) = (line.split() for line in text.splitlines() if line.startswith("bre-connector\t"))
        assert gate == ["bre-connector", "0", "8", "yes"]
        assert "4 journeys" in run(*off, "--without", "cor-router", "--from", "Córdoba", code=2)

    def test_what_cannot_be_meant_is_told(self) -> None:
        assert "say what is out" in run("simulate", "--declared", SAMPLE, code=2)
        assert "no routing link 'Oslo-Rome'" in run(
            "simulate", "--declared", SAMPLE, "--without-link", "Oslo-Rome", code=1
        )


@dataclass
class Followed:
    """What ``simulate`` should find."""

    journeys: int = 0
    changed: dict[tuple[Guid, Guid], tuple[Guid, ...] | str] = field(default_factory=dict)
    waiting: dict[tuple[Guid, Guid], str] = field(default_factory=dict)
    cut_off: set[Guid] = field(default_factory=set)
    before: Counter[Guid] = field(default_factory=Counter)
    after: Counter[Guid] = field(default_factory=Counter)


def followed_one_by_one(
    whole: TopologySnapshot,
    out: list[RoutingLink],
    off: set[Guid],
    only: Guid | None,
    among: set[Guid] | None = None,
) -> Followed:
    """Each pair of machines by itself, with routing tables that are built whole."""

    def path(snapshot: TopologySnapshot, away: set[Guid]) -> tuple[Guid, ...] | str:
        try:
            return follow(snapshot, source.identifier, to.identifier, away=away).path
        except NoRouteError as error:
            return error.reason

    found, less = Followed(), whole.without(links=out)
    arrivals: dict[tuple[Guid, bool], list[bool]] = {}
    asked = [each for each in whole.machines.values() if each.identifier not in off]
    for source, to in product([each for each in asked if among is None or each.identifier in among], repeat=2):
        pair = (source.identifier, to.identifier)
        if set(source.sites) & set(to.sites) or (only is not None and only not in source.sites):
            continue
        found.journeys += 1
        was, now = path(whole, set()), path(less, off)
        for counter, way in ((found.before, was), (found.after, now)):
            counter.update(hop for hop in way if isinstance(way, tuple) and hop not in pair)
        if isinstance(was, str):
            continue
        for machine, sends in ((source, True), (to, False)):
            for site in machine.sites:
                arrivals.setdefault((site, sends), []).append(isinstance(now, tuple))
        if isinstance(now, str):
            found.waiting[pair] = now
        elif was != now:
            found.changed[pair] = now
    found.cut_off = {site for (site, _), arrived in arrivals.items() if not any(arrived)}
    return found


@pytest.mark.servers
def test_the_directory_is_read(directory: EnterpriseDirectory, fresh_name: Callable[[str], str]) -> None:
    sites = [create(directory, Site(name=fresh_name("Route"))) for _ in range(2)]
    made: dict[str, Any] = {}
    for name, site, router in (("gone", 0, True), ("gtwo", 1, True), ("shop", 0, False)):
        machine = QueueManager(
            computer_name=fresh_name(name),
            routing_server=router,
            site_identifier_list=(sites[site].identifier,),  # type: ignore[arg-type]
        )
        made[name] = directory.queue_managers.add(machine)
    create(
        directory,
        directory_port.RoutingLink(
            site1_identifier=sites[0].identifier,  # type: ignore[arg-type]
            site2_identifier=sites[1].identifier,  # type: ignore[arg-type]
            actual_cost=9,
            site_gate_identifier_list=(made["gone"].identifier, made["gtwo"].identifier),
        ),
    )

    topology = of_directory(directory)
    found = explain(topology, made["shop"].identifier, made["gtwo"].identifier)

    assert [hop.machine for hop in found.hops] == [made[name].identifier for name in ("shop", "gone", "gtwo")]
    assert found.cost == 9
    assert topology.links(f"{sites[1].name}-{sites[0].name}")
    with pytest.raises(UnknownName, match="there is no site 'Nowhere'"):
        topology.site("Nowhere")


def test_the_examples_of_the_page_are_what_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    blocks = re.findall(r"^    \$ mqenterprise (.+)\n((?:^    .*\n|^\n)*)", PAGE.read_text("utf-8"), re.MULTILINE)
    assert len(blocks) == 2
    for command, expected in blocks:
        printed = CliRunner().invoke(app, command.split()).output
        parts = [part.strip("\n") for part in re.sub(r"^    ", "", expected, flags=re.MULTILINE).split("...")]
        for part in parts:
            assert part.rstrip() in printed, command
