"""Drawings of an enterprise, and plans as people read them."""

from __future__ import annotations

import itertools
import math
import time
from xml.etree import ElementTree

import pytest
import yaml
from typer.testing import CliRunner

from mqenterprise.cli import app
from mqenterprise.topology.drawing import Graph, LinkEdge, SiteNode, graph_of, layout, link_rows, site_rows, svg
from mqenterprise.topology.normal_form import Kind, Reference, Table, resource
from mqenterprise.topology.plan import Action, Plan, Step, plan_lines, shown, summary


def table_of(*rows) -> Table:
    table = Table()
    for row in rows:
        table.put(row)
    return table


@pytest.fixture
def enterprise():
    machine = {"sites": ("A",), "routing_server": True}
    return table_of(
        resource(Kind.SITE, ("A",), {}),
        resource(Kind.SITE, ("B <&> C",), {"foreign": True}),
        resource(Kind.ROUTING_LINK, ("B <&> C", "A"), {"cost": 7, "site_gates": ("r1",)}),
        resource(Kind.ROUTING_LINK, ("A", "gone"), {"cost": 7, "site_gates": ()}),
        resource(Kind.MACHINE, ("r1",), machine),
        resource(Kind.MACHINE, ("c1",), {"sites": ("a",)}),
        resource(Kind.QUEUE, ("c1", "q"), {}),
    )


def test_the_graph_counts_machines_and_queues_and_drops_links_to_nowhere(enterprise):
    assert graph_of(enterprise) == Graph(
        (SiteNode("A", False, 2, ("r1",), 1), SiteNode("B <&> C", True, 0, (), 0)), (LinkEdge(0, 1, 7, ("r1",)),)
    )


def test_a_connector_is_counted_in_its_own_site_and_a_foreign_machine_in_the_foreign_one() -> None:
    graph = graph_of(
        table_of(
            resource(Kind.SITE, ("A",), {}),
            resource(Kind.SITE, ("M",), {"foreign": True}),
            resource(Kind.MACHINE, ("connector",), {"sites": ("A", "m"), "routing_server": True}),
            resource(Kind.MACHINE, ("host",), {"sites": ("M",), "foreign": True}),
            resource(Kind.QUEUE, ("connector", "q"), {}),
        )
    )
    assert [(site.name, site.machines, site.routing_servers, site.queues, site.names) for site in graph.sites] == [
        ("A", 1, ("connector",), 1, ("connector",)),
        ("M", 1, (), 0, ("host",)),
    ]


def test_the_svg_is_well_formed_and_holds_every_site_and_link(enterprise):
    root = ElementTree.fromstring(svg(graph_of(enterprise), 'Title "x" & <y>'))

    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"A", "B <&> C", "7"} <= set(texts)
    assert len(list(root.iter("{http://www.w3.org/2000/svg}line"))) == 1
    assert len(list(root.iter("{http://www.w3.org/2000/svg}circle"))) == 2


def test_the_same_enterprise_gives_the_same_picture(enterprise):
    assert svg(graph_of(enterprise), "E") == svg(graph_of(enterprise), "E")


@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_sites_do_not_lie_on_each_other_and_all_are_on_the_page(count):
    sites = tuple(SiteNode(str(i), False, 0, (), 0) for i in range(count))
    links = tuple(LinkEdge(i, i + 1, 1, ()) for i in range(count - 1))

    places = layout(Graph(sites, links))

    assert all(x > 0 and y > 0 for x, y in places)
    assert all(math.dist(a, b) > 60 for a, b in itertools.combinations(places, 2))


def test_two_hundred_sites_are_drawn_in_seconds():
    sites = tuple(SiteNode(str(i), False, 0, (), 0) for i in range(200))
    links = tuple(LinkEdge(i, (i * 7 + 1) % 200, 1, ()) for i in range(200))
    begun = time.process_time()

    svg(Graph(sites, links), "large")

    assert time.process_time() - begun < 60


def test_sites_and_links_are_rows_of_tables(enterprise):
    graph = graph_of(enterprise)
    assert [(row["site"], row["machines"], row["linked to (cost)"]) for row in site_rows(graph)] == [
        ("A", 2, ["B <&> C (7)"]),
        ("B <&> C (foreign)", 0, ["A (7)"]),
    ]
    assert [tuple(row.values())[:3] for row in link_rows(graph)] == [("A", "B <&> C", 7)]


def test_a_pipe_gets_a_line_for_each_site_and_link(tmp_path):
    declared = {
        "enterprise": {"name": "Shop"},
        "sites": [{"name": "north"}, {"name": "south"}],
        "machines": [
            {"name": name, "sites": [site], "roles": ["routing_server"]}
            for name, site in (("A", "north"), ("B", "south"))
        ],
        "routing_links": [
            {"sites": ["north", "south"], "cost": 7, "site_gates": ["A", "B"], "description": "a  long\u2028line"}
        ],
    }
    (tmp_path / "shop.yaml").write_text(yaml.safe_dump(declared))
    answer = CliRunner().invoke(app, ["show", str(tmp_path / "shop.yaml")])
    assert answer.exit_code == 0, answer.output
    assert [line.split("\t")[:3] for line in answer.stdout.splitlines()] == [
        ["site", "machines", "queues"], ["north", "1", "0"], ["south", "1", "0"],
        [""],
        ["routing link between", "and", "cost"], ["north", "south", "7"],
    ]  # fmt: skip


def step(action, before, after, name=("A",)):
    return Step(action, Reference(Kind.SITE, name), name, 0, before, after)


def test_a_plan_reads_as_a_diff():
    plan = Plan(
        "d",
        (
            step(Action.CREATE, {}, {"foreign": False, "label": ""}),
            step(Action.UPDATE, {"cost": 7, "site_gates": ("a", "b")}, {"cost": 1, "site_gates": ("b", "c")}),
            step(Action.DELETE, {"foreign": False}, {}),
        ),
    )

    assert [line.plain for line in plan_lines(plan)] == [
        "+ site A",
        "    foreign: no",
        "~ site A",
        "    cost: 7 -> 1",
        "    site_gates:",
        "      - a",
        "      + c",
        "- site A",
        "1 to create, 1 to change, 1 to delete.",
    ]


def test_nothing_to_do_says_so():
    assert summary(Plan("d", ())) == "Nothing to do: the directory is as declared."


def test_a_name_cannot_play_tricks_with_the_terminal():
    assert shown("label", "a\x1b[31mb\u202e") == "a\\x1b[31mb\\u202e"


def test_a_plan_shows_quotas_with_units():
    assert [shown("quota", kilobytes) for kilobytes in (0, 1500, 1_048_576, 0xFFFFFFFF)] == [
        "0 KiB",
        "1500 KiB",
        "1 GiB",
        "none",
    ]
    assert shown("cost", 1024) == "1024"
