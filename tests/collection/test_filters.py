"""The filters that verify.yml, move_site.yml and decommission.yml decide with."""

from __future__ import annotations

import runpy
from typing import TYPE_CHECKING, Any

import pytest
from ansible.errors import AnsibleFilterError

from tests.lab.enterprise import PLAYBOOKS

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = PLAYBOOKS / "collections/ansible_collections/mqenterprise/fleet/plugins/filter"
batches, link_ends, verification, needed_by, declared_queues, moved, left_out, slapd_configuration = (
    runpy.run_path(str(FOLDER / f"{name}.py"))[name]
    for name in (
        "batches", "link_ends", "verification", "needed_by", "declared_queues", "moved", "left_out",
        "slapd_configuration",
    )
)  # fmt: skip


def host(name: str, site: str, *roles: str) -> dict[str, Any]:
    return {"msmq_computer": name, "msmq_sites": [site], "msmq_roles": list(roles)}


HOSTS = {
    "a-gate": host("A-GATE", "A", "routing_server"),
    "a-router": host("a-router", "A", "routing_server"),
    "b-router": host("b-router", "B", "routing_server"),
    "b-client": host("b-client", "B", "client"),
    "localhost": {},
}


def test_gates_are_the_ends_of_a_link_and_routing_servers_where_it_names_none() -> None:
    pairs = link_ends([{"sites": ["A", "B"], "site_gates": ["a-gate"]}], HOSTS)

    assert [(pair["from"], pair["to"]) for pair in pairs] == [("a-gate", "b-router"), ("b-router", "a-gate")]
    assert {pair["link"] for pair in pairs} == {"A - B"}


FLEET = {
    "a-gate": host("A-GATE", "A", "routing_server") | {"msmq_is_gate": True},
    "a-1": host("a-1", "A", "routing_server"),
    "a-2": host("a-2", "A", "routing_server"),
    "a-3": host("a-3", "A", "routing_server"),
    "a-client": host("a-client", "A", "client"),
    "b-gate": host("B-GATE", "B", "routing_server") | {"msmq_is_gate": True},
    "b-client": host("b-client", "B", "client"),
    "c-gate": host("C-GATE", "C", "routing_server") | {"msmq_is_gate": True},
}
JOINED = link_ends([{"sites": ["A", "B"], "site_gates": ["A-GATE", "B-GATE"]}], FLEET)


def test_sites_come_one_after_the_other_and_a_site_keeps_half_of_its_routing_servers() -> None:
    order = [["a-gate"], ["a-1", "a-2"], ["a-3"], ["a-client"], ["b-gate"], ["b-client"], ["c-gate"]]

    assert batches(FLEET, FLEET) == order
    assert batches(FLEET, FLEET, one_at_a_time=True) == [[name] for name in FLEET]


def test_sites_go_side_by_side_but_for_the_ends_of_a_link() -> None:
    found = batches(FLEET, FLEET, sites_at_once=3, joined=JOINED)

    assert found == [["a-gate"], ["c-gate"], ["a-1", "a-2", "b-gate"], ["a-3", "b-client"], ["a-client"]]
    assert all({"a-gate", "b-gate"} - set(batch) for batch in found)


def test_hosts_without_a_node_come_before_all_others_and_one_goes_ahead() -> None:
    new = {"queue_manager_looked": {"document": {"current": None}}}
    old = {"queue_manager_looked": {"document": {"current": "1.0"}}}
    fleet = {name: FLEET[name] | (old if name in ("a-gate", "b-client") else new) for name in FLEET}

    found = batches(fleet, fleet)

    assert found == [["a-1"], ["a-2", "a-3", "a-client", "b-gate", "c-gate"], ["a-gate"], ["b-client"]]


def test_hosts_at_fault_are_in_no_batch_and_reported_with_those_that_were_passed_over() -> None:
    gate, other, *_ = FLEET
    assert left_out(FLEET) == "localhost,!localhost", "a pattern that matches no host"
    fleet = FLEET | {
        gate: FLEET[gate] | {"queue_manager_fault": "away"},
        other: FLEET[other] | {"queue_manager_passed_over": [gate]},
    }
    assert not any(gate in batch for batch in batches(fleet, fleet))
    assert left_out(fleet) == f"{gate},{other}"


def test_a_foreign_site_has_no_host_to_probe() -> None:
    assert link_ends([{"sites": ["A", "Mainframe"], "site_gates": ["a-gate"]}], HOSTS) == []


def test_machines_without_a_directory_are_paired_with_the_next_one() -> None:
    fleet = {name: {"msmq_computer": name, "msmq_directory": "none"} for name in ("b", "a", "c")}

    assert [(pair["from"], pair["to"]) for pair in link_ends([], fleet)] == [("a", "b"), ("b", "c"), ("c", "a")]
    assert link_ends([], {"a": fleet["a"]}) == []


def test_windows_sends_no_probes_and_is_probed_by_a_host_of_its_site() -> None:
    fleet = {
        "a": {"msmq_computer": "A", "msmq_sites": ["X"], "msmq_roles": ["routing_server"]},
        "b": {"msmq_computer": "B", "msmq_sites": ["Y"], "msmq_roles": ["routing_server"]},
        "w": {"msmq_computer": "W", "msmq_sites": ["Y"], "group_names": ["windows"]},
        "v": {"msmq_computer": "V", "msmq_sites": ["X"], "msmq_roles": ["routing_server"], "group_names": ["windows"]},
    }
    pairs = link_ends([{"sites": ["X", "Y"], "site_gates": []}], fleet)
    ways = {(pair["from"], pair["to"]) for pair in pairs}
    assert ways == {("a", "b"), ("b", "a"), ("b", "v"), ("b", "w")}
    answers = {
        "w": {"seconds": 0.2, "path": [], "why": ""},
        "v": {"seconds": None, "path": [], "why": "no acknowledgment within 60 s"},
    }
    looked = {name: {"queue_manager_looked": {}, "queue_manager_probed": {"identifier": name}} for name in "ab"}
    looked["b"]["queue_manager_answers"] = answers
    told = verification([pair for pair in pairs if pair["to"] in "vw"], fleet | looked)
    assert "b → w (Windows): 0.2 s there and back, by b → w" in told["seen"]
    assert told["faults"] == {"b": ["b → v (X - Y): no acknowledgment within 60 s, last seen at b"]}


def test_a_link_is_told_with_the_time_and_the_way_and_one_that_carries_nothing_is_a_fault() -> None:
    found = {
        "queue_manager_looked": {},
        "queue_manager_clock": {"difference": 0.4, "uncertainty": 0.05},
        "queue_manager_probed": {"identifier": "one"},
    }
    answers = {
        "two": {"seconds": 0.2, "path": ["one", "three", "two"], "why": ""},
        "three": {"seconds": None, "path": ["one"], "why": "no acknowledgment within 60 s"},
    }
    hosts = {
        "one": found | {"queue_manager_answers": answers},
        "two": found | {"queue_manager_probed": {"identifier": "two"}},
        "three": found | {"queue_manager_probed": {"identifier": "three"}},
    }
    pairs = [{"link": "A - B", "from": "one", "to": "two"}, {"link": "A - C", "from": "one", "to": "three"}]

    told = verification(pairs, hosts)

    assert "one → two (A - B): 0.2 s there and back, by one → three → two" in told["seen"]
    assert told["seen"][0] == "one: its clock is 0.40 s (± 0.05 s) ahead of the controller's, its node is one"
    assert told["faults"] == {"one": ["one → three (A - C): no acknowledgment within 60 s, last seen at one"]}


def test_tls_with_other_nodes_is_told_and_certificates_are_compared_with_the_directory() -> None:
    probed = {"identifier": "one", "tls_mode": "require", "plain_peers": ["WIN-7"], "certificate": "ONE"}
    host = {"queue_manager_looked": {}, "queue_manager_probed": probed, "msmq_identifier": "one"}

    told = verification([], {"one": host})

    assert "one: its mode of TLS with other nodes is require" in told["seen"]
    assert "one: speaks in clear with WIN-7, as declared (plain_peers)" in told["seen"]
    assert told["faults"] == {}
    for certificate, fault in (("two", "names two"), ("", "names no queue manager, or has ended")):
        other = host | {"queue_manager_probed": probed | {"certificate": certificate}}
        (sentence,) = verification([], {"one": other})["faults"]["one"]
        assert fault in sentence


def test_the_amqp_door_and_bridges_are_told_and_what_is_wrong_with_them() -> None:
    bridges = [
        {"name": "out", "connected": True, "reason": ""},
        {"name": "in", "connected": False, "reason": "Connection refused"},
    ]
    probed = {"identifier": "one", "amqp_port": 5671, "door_fault": "", "bridges": bridges}
    host = {"queue_manager_looked": {}, "queue_manager_probed": probed}

    told = verification([], {"one": host})

    assert {"one: its AMQP door is at port 5671", "one: its bridge out is connected"} <= set(told["seen"])
    assert told["faults"] == {"one": ["one: its bridge in is down: Connection refused"]}
    other = host | {
        "queue_manager_probed": {"identifier": "one", "amqp_port": 0, "door_fault": "its AMQP door is closed"}
    }
    assert verification([], {"one": other})["faults"] == {"one": ["one: its AMQP door is closed"]}


def test_a_probe_that_is_stuck_is_the_fault_of_the_host_that_has_it() -> None:
    lost = {"seconds": None, "path": ["one", "two"], "why": "no acknowledgment within 60 s"}
    looked = {"queue_manager_looked": {}}
    hosts = {"one": looked | {"queue_manager_answers": {"three": lost}}, "two": looked, "three": looked}
    pair = {"link": "A - C", "from": "one", "to": "three"}

    assert verification([pair], hosts)["faults"].keys() == {"two"}
    lost["path"] = ["one", "somebody"]  # who is no host of this inventory
    assert verification([pair], hosts)["faults"].keys() == {"one"}


@pytest.mark.parametrize(
    ("difference", "told"),
    [
        (0.04, "its clock agrees with the controller's within 0.10 s"),
        (-0.1, "its clock agrees with the controller's within 0.10 s"),
        (-90.0, "its clock is 90.00 s (± 0.10 s) behind the controller's"),
    ],
)
def test_a_clock_is_told_as_far_as_it_is_known(difference: float, told: str) -> None:
    host = {"queue_manager_looked": {}, "queue_manager_clock": {"difference": difference, "uncertainty": 0.1}}
    assert verification([], {"one": host})["seen"] == [f"one: {told}, its node does not answer"]


def test_a_link_of_which_one_end_was_not_looked_at_is_told() -> None:
    looked = {"queue_manager_looked": {}, "queue_manager_probed": {"identifier": "one"}}
    pairs = [{"link": "A - B", "from": "one", "to": "two"}, {"link": "B - C", "from": "two", "to": "three"}]

    told = verification(pairs, {"one": looked, "two": {}, "three": {}})

    assert told["seen"][1:] == ["one → two (A - B): not probed, as --limit leaves two out"]
    assert told["faults"] == {}


def test_declared_queues_have_what_is_said_of_them(tmp_path: Path) -> None:
    queues = declared_queues(PLAYBOOKS.parent / "inventory/contoso.yaml")
    assert queues[1] == {
        "machine": "cor-warehouse",
        "name": "picking",
        "label": "Bestellungen für Córdoba",
        "transactional": True,
    }
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("queues: [{machine: shop, nam: orders}]")
    with pytest.raises(AnsibleFilterError, match=r"wrong\.yaml:1"):
        declared_queues(wrong)


def test_nodes_with_one_identity_are_a_fault() -> None:
    copy = {"queue_manager_looked": {}, "queue_manager_probed": {"identifier": "one"}}
    faults = verification([], {"first": copy, "second": copy})["faults"]
    assert faults["first"] == faults["second"]
    assert faults["first"][0].startswith("first and second are one queue manager (one)")


def test_links_and_machines_that_name_a_machine_need_it() -> None:
    links = [{"sites": ["A", "B"], "site_gates": ["a-gate"]}, {"sites": ["B", "C"], "site_gates": ["b-router"]}]
    machines = [
        {"name": "b-client", "in_routing_servers": [], "out_routing_servers": ["A-GATE"]},
        {"name": "c-client", "in_routing_servers": [], "out_routing_servers": []},
    ]
    assert needed_by("a-gate", links, machines) == ["the routing link A - B", "b-client"]


def test_a_machine_keeps_the_routing_servers_of_its_new_sites_and_loses_the_others() -> None:
    routers = {"a-gate": ["A"], "both": ["A", "B"], "b-router": ["B"]}
    machines = [{"name": name, "sites": sites} for name, sites in routers.items()]
    machines.append(
        {"name": "SHOP", "sites": ["A"], "in_routing_servers": ["a-gate"], "out_routing_servers": ["A-GATE", "both"]}
    )

    assert moved(machines, "shop", ["b"]) == {
        "in_routing_servers": [],
        "out_routing_servers": ["both"],
        "lost": ["A-GATE"],
    }
    assert moved(machines, "Shop", ["A", "B"])["lost"] == []


def test_slapd_reads_schema_and_modules_where_the_host_has_them() -> None:
    where = {"schema": "/etc/openldap/schema", "modules": "/usr/lib64/openldap"}
    urls = {"dir1": "ldaps://dir1"}
    text = slapd_configuration("dc=contoso", "/var/lib/msmq-directory", "secret", "dir1", urls, **where)
    assert "include: file:///etc/openldap/schema/core.ldif" in text
    assert "olcModulePath: /usr/lib64/openldap\n" in text
