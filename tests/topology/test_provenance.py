"""By which road a value comes to a machine, and who lost: the cases that need no server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mqenterprise.commands.chosen_nodes import DEFAULT_ACCESS
from mqenterprise.commands.explain import _ask, _silence
from mqenterprise.topology.check import load
from mqenterprise.topology.declared_table import declared_table
from mqenterprise.topology.normal_form import Kind, Table
from mqenterprise.topology.provenance import From, NodeAnswer, UnknownValue, asked, located, standings
from qmnode.cli import main
from qmnode.objects.rows import Door
from qmnode.objects.table import ROWS

if TYPE_CHECKING:
    from pathlib import Path

    from mqenterprise.topology.check import Checked

UNASKED = "holds, unless node.yaml says otherwise: ask the node with --nodes"
TEXT = r"""
enterprise: {name: E, default_time_to_live: 60}
sites: [{name: a}, {name: b, intra_site_replication_interval: 7}]
foreign_sites: [{name: f}]
routing_links:
  - sites: [a, b]
    cost: 5
    site_gates: [m]
users: [{name: u, certificates: []}]
machines:
  - name: m
    sites: [a]
    roles: [routing_server]
    addresses: [192.0.2.7]
    quota: 10MB
queues:
  - machine: m
    name: in.orders
    label: orders
queue_aliases: [{name: q, format_name: 'DIRECT=OS:m\q'}]
distribution_lists: [{name: l, members: [q]}]
"""


@pytest.fixture
def checked(tmp_path: Path) -> Checked:
    (tmp_path / "e.yaml").write_text(TEXT)
    return load(tmp_path / "e.yaml")


def found(
    text: str, checked: Checked | None, node: NodeAnswer | None = None, present: Table | None = None
) -> list[tuple[str, object, str, str]]:
    """The standings of a value; the directory is as declared, unless another is given."""
    declared = None if checked is None else declared_table(checked, lambda name: name)
    there = present if present is not None else declared or Table()
    rows = standings(
        located(asked(text), there, declared), checked, declared, there, node or NodeAnswer(unknown="not asked")
    )
    return [(one.where.value, one.value, one.place.rpartition("/")[2], one.fate) for one in rows]


def test_a_declared_value_has_its_line_and_its_attribute(checked: Checked) -> None:
    assert found("m.quota", checked) == [
        ("declaration", 10240, "e.yaml:15", "applied"),
        ("directory", 10240, "mSMQQuota", UNASKED),
        ("default", 0x0010_0000, "MS-MQDMPR 3.1.1.1", "not used"),
    ]
    asked_of_node = found("m.quota", checked, NodeAnswer(10240, "directory"))
    assert asked_of_node[1] == ("directory", 10240, "mSMQQuota", "holds")
    assert found("m\\in.orders.label", checked)[0] == ("declaration", "orders", "e.yaml:19", "applied")
    assert found("M.default_time_to_live", checked)[0] == ("declaration", 60, "e.yaml:2", "applied")
    assert found("m.routing_server", checked)[0] == ("declaration", True, "e.yaml:13", "applied")


def test_names_of_declarations_lead_to_the_values_that_they_stand_for(checked: Checked) -> None:
    assert asked("m.foreign_sites").name == "sites"
    with pytest.raises(UnknownValue, match=r"ask for m\.routing_server or m\.supporting_server or m\.directory_server"):
        asked("m.roles")


def test_sites_links_and_users_have_values_too(checked: Checked) -> None:
    assert found("b.intra_site_replication_interval", checked) == [
        ("declaration", 7, "e.yaml:3", "applied"),
        ("directory", 7, "mSMQInterval1", "holds"),
        ("default", 2, "MS-MQMQ 2.3.3.5", "not used"),
    ]
    assert found("B|a.cost", checked)[0] == ("declaration", 5, "e.yaml:7", "applied")
    assert found("a|b.site_gates", checked)[1] == ("directory", ("m",), "mSMQSiteGates", "holds")
    assert found("u.certificates", checked)[0] == ("declaration", (), "e.yaml:9", "applied")
    assert found("f.foreign", checked)[:2] == [
        ("declaration", True, "e.yaml:4", "applied"),
        ("directory", True, "mSMQSiteForeign", "holds"),
    ]
    assert found("m.foreign", checked)[0][:3] == ("directory", False, "mSMQForeign")


def test_the_command_that_has_an_access_list_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    program, *command = _silence(asked(r"m\orders.access")).removesuffix(" has it").split()

    monkeypatch.setattr("sys.argv", [program, *command, "--help"])
    with pytest.raises(SystemExit) as ended:
        main()

    assert (program, ended.value.code) == ("qmnode", 0)


DECLARED = [(kind, row.name) for kind, rows in ROWS.items() for row in rows.at(Door.DECLARATION)]
OBJECTS = {
    Kind.ENTERPRISE: "m",
    Kind.SITE: "b",
    Kind.USER: "u",
    Kind.MACHINE: "m",
    Kind.ROUTING_LINK: "a|b",
    Kind.QUEUE: "m\\in.orders",
    Kind.QUEUE_ALIAS: "q",
    Kind.DISTRIBUTION_LIST: "l",
}


@pytest.mark.parametrize(("kind", "name"), DECLARED)
def test_every_declared_property_is_explained(checked: Checked, kind: Kind, name: str) -> None:
    rows = found(f"{OBJECTS[kind]}.{name}", checked)
    assert [row[2] for row in rows if row[0] == "default"] == [ROWS[kind][name].section]
    assert sum("holds" in row[3] for row in rows) == 1


def test_what_is_in_node_yaml_loses_to_the_directory_or_wins(checked: Checked) -> None:
    lost = found("m.quota", checked, NodeAnswer(10240, "directory", own=4096))
    assert lost[2] == (
        "node.yaml", 4096, "quotas.queue_manager_quota", "lost: the directory wins, unless quotas.source is local"
    )  # fmt: skip
    won = {row[0]: row[3] for row in found("m.quota", checked, NodeAnswer(4096, "settings", own=4096))}
    assert won["node.yaml"] == "holds"
    assert won["directory"] == "lost: the node has quotas.source: local"
    undeclared = {row[0]: row[3] for row in found("m.journal_quota", checked, NodeAnswer(7, "settings", own=7))}
    assert undeclared["directory"] == "equals the default, which declares nothing"


def test_a_default_holds_when_nothing_is_declared(checked: Checked) -> None:
    assert [(row[0], row[3]) for row in found("m.journal_quota", checked)] == [
        ("directory", "is the default"),
        ("default", UNASKED),
    ]
    assert found("m\\in.orders.quota", checked)[-1][3] == "holds"


def test_no_quota_is_a_declared_value(tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text(TEXT.replace("quota: 10MB", "quota: none"))
    rows = found("m.quota", load(tmp_path / "e.yaml"), NodeAnswer(None, "directory"))
    assert [(row[0], row[1], row[3]) for row in rows[1:]] == [
        ("directory", None, "holds"),
        ("default", 0x0010_0000, "not used"),
    ]


def test_a_local_default_wins_over_the_directory(checked: Checked) -> None:
    fates = {row[0]: row[3] for row in found("m.quota", checked, NodeAnswer(0x0010_0000, "default"))}
    assert fates == {
        "declaration": "applied",
        "directory": "lost: the node has quotas.source: local",
        "default": "holds",
    }


def test_a_declaration_that_is_not_applied_is_no_value_yet(checked: Checked) -> None:
    assert found("m.quota", checked, present=Table())[0][3] == "not applied: mqenterprise plan shows the change"


def test_hosts_and_their_failover_come_by_the_roll_out(tmp_path: Path) -> None:
    more = "    quota: 10MB\n    hosts: [m-1, m-2]\n    failover: {way: operator, store: /srv/m}\n"
    (tmp_path / "e.yaml").write_text(TEXT.replace("    quota: 10MB\n", more))
    checked = load(tmp_path / "e.yaml")
    fate, default = "holds once it was rolled out: rollout.yml --check shows the change", (From.DEFAULT.value, (), "")
    assert found("m.hosts", checked) == [("declaration", ["m-1", "m-2"], "e.yaml:16", fate), (*default, "not used")]
    declared = {"way": "operator", "store": "/srv/m"}
    assert found("m.failover", checked)[0] == ("declaration", declared, "e.yaml:17", fate)
    assert found("m.remote_copy", checked) == [(*default, "holds")]


def test_addresses_come_by_the_document_and_win_over_node_yaml(checked: Checked) -> None:
    declared, default = ("declaration", ("192.0.2.7",), "e.yaml:14"), (From.DEFAULT.value, (), "")
    unasked = "holds once the document was applied: ask the node with --nodes"
    assert found("m.addresses", checked) == [(*declared, unasked), (*default, "not used")]
    own = ("node.yaml", ("192.0.2.1",), "addresses")
    node = NodeAnswer(("192.0.2.7",), "document", ("192.0.2.1",), ("192.0.2.7",))
    lost = (*own, "lost: the document of the machine wins")
    assert found("m.addresses", checked, node) == [(*declared, "applied"), lost, (*default, "not used")]
    node = NodeAnswer(("192.0.2.1",), "settings", ("192.0.2.1",), ())
    missing = (*declared, "not applied: rollout.yml --check shows the change")
    assert found("m.addresses", checked, node) == [missing, (*own, "holds"), (*default, "not used")]


def test_each_bridge_has_its_line_and_what_became_of_it(tmp_path: Path) -> None:
    text = TEXT + "bridges:\n  - &b {machine: m, name: out, direction: out, queue: q, peer: 'amqp://b', address: a}\n"
    (tmp_path / "e.yaml").write_text(text + "  - {<<: *b, name: changed}\n")
    checked = load(tmp_path / "e.yaml")
    made = {"direction": "out", "queue": "q", "peer": "amqp://b", "address": "a"}
    node = NodeAnswer(("out", "mine"), "", ("mine", "out"), {"out": made, "changed": made | {"window": 3}})
    assert found("m.bridges", checked, node) == [
        ("declaration", "out", "e.yaml:23", "applied"),
        ("declaration", "changed", "e.yaml:24", "not applied: rollout.yml --check shows the change"),
        ("node.yaml", "mine", "bridges.mine", "holds"),
        ("node.yaml", "out", "bridges.out", "lost: the document of the machine wins"),
        ("default", (), "", "not used"),
    ]
    assert found("m.bridges", None) == [("default", (), "", "holds")]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("quota", "write MACHINE.PROPERTY"),
        ("m\\.label", "write MACHINE.PROPERTY"),
        ("m.qouta", r"no declared property 'qouta' \(did you mean quota"),
        ("|b.cost", "write MACHINE.PROPERTY"),
        ("a|c.cost", "there is no routing link a|c in the directory or the declaration"),
        ("a.replication", "a machine, site, user, alias, list or enterprise has no declared property"),
        ("m\\q.cost", "a queue has no declared property"),
        ("m\\q.duplicate_window", "a queue has no declared property"),
        ("nobody.quota", "there is no machine nobody in the directory or the declaration"),
    ],
)
def test_an_unknown_value_is_refused(checked: Checked, text: str, sentence: str) -> None:
    with pytest.raises(UnknownValue, match=sentence):
        found(text, checked)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a.intra_site_replication_interval", "mqenterprise route explain"),
        ("a|b.cost", "mqenterprise route explain"),
        ("u.certificates", "mqenterprise certificate list"),
        ("m\\q.access", "qmnode queue acl show"),
        ("m.supporting_server", "no node obeys it"),
        ("m.version", "a node does not show it"),
        ("m.sites", "--nodes FILE"),
    ],
)
def test_the_answer_says_why_no_node_was_asked(text: str, reason: str) -> None:
    assert reason in _ask(asked(text), DEFAULT_ACCESS).unknown


def test_names_of_earlier_releases_are_understood() -> None:
    assert (asked("m\\q.journal").kind, asked("m\\q.journal").name) == (Kind.QUEUE, "journaling")
