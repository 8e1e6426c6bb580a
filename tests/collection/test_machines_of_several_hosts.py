"""A machine of two hosts in the inventory, in the settings of its hosts, and in a Pacemaker cluster that is played."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

import pytest

from tests.collection.conftest import COLLECTION
from tests.collection.test_ansible import PLAYBOOKS, plain, run
from tests.collection.test_levels import Inventory, settings
from tests.playbooks.conftest import sample

if TYPE_CHECKING:
    from pathlib import Path

ROUTER, SHOP = "ams-router", "ams-shop"
PACEMAKER = {"way": "pacemaker", "device": "/dev/shared", "fencing": ["fence-a", "fence-b"], "lease": 7}
CLUSTER = """\
<cib><configuration><crm_config><cluster_property_set id="o"><nvpair id="o1" name="stonith-enabled" value="STONITH"/>
</cluster_property_set></crm_config><nodes><node id="1" uname="cor-a"/><node id="2" uname="cor-b"/></nodes>
<resources><primitive id="fence-a" class="stonith" type="fence_ipmilan"/>RESOURCES</resources>
<constraints>CONSTRAINTS</constraints></configuration></cib>
"""


@pytest.mark.slow
def test_each_host_of_a_machine_is_a_host_with_its_settings(tmp_path: Path) -> None:
    inventory = Inventory(tmp_path)
    declared = sample(ROUTER, SHOP) | {"foreign_sites": []}
    router = next(one for one in declared["machines"] if one["name"] == ROUTER)
    router |= {"hosts": ["Cor-A", "cor-b"], "addresses": ["192.0.2.7"], "failover": PACEMAKER}
    inventory.declare(**declared)
    inventory.give("group_vars/all", **inventory.local)

    listed = plain(json.loads(run("ansible-inventory", "-i", inventory.file, "--list").stdout))
    found = settings(inventory.play("--limit", "cor-a,cor-b"))

    known = listed["_meta"]["hostvars"]
    assert (listed["routing_servers"]["hosts"], listed["queue_managers"]["hosts"]) == (
        ["cor-a", "cor-b"], ["cor-a", "cor-b", SHOP],
    )  # fmt: skip
    assert known["cor-a"]["msmq_hosts"] == ["cor-a", "cor-b"]
    assert known["cor-a"]["msmq_failover"]["device"] == "/dev/shared"
    assert known["cor-b"]["msmq_computer"] == ROUTER
    assert "ansible_host" not in known["cor-a"] and known[SHOP]["msmq_hosts"] == []
    for host in ("cor-a", "cor-b"):
        assert found[host]["computer_name"] == ROUTER.upper()
        assert found[host]["failover"]["hosts"] == ["cor-a", "cor-b"]
        assert (found[host]["failover"]["lease"], found[host]["failover"]["lease_file"]) == (
            7,
            "/run/qmnode-cluster/lease",
        )
    decommission = ("-i", inventory.file, PLAYBOOKS / "decommission.yml", "-e", "machine=Cor-A")
    refused = run("ansible-playbook", *decommission, cwd=inventory.folder, code=2)
    assert f"Cor-A is a host of {ROUTER}: name the machine" in refused.stdout


class Cluster:
    """The commands of Pacemaker, played: they answer from files, and keep what they are given."""

    def __init__(self, folder: Path, cib: str) -> None:
        self.folder = folder
        self.machine: dict[str, Any] = {
            "name": "cor-router", "here": "cor-b", "active": "cor-a", "way": "pacemaker", "hosts": ["cor-a", "cor-b"],
            "store": "/var/lib/qmnode", "device": "/dev/shared", "filesystem": "ext4", "addresses": ["192.0.2.7"],
            "fencing": ["fence-a"], "lease": 7, "user": "qmnode", "group": "qmnode", "command": "qmnode", "config": "c",
        }  # fmt: skip
        self.have(cib)
        self.command(
            "cibadmin",
            f'case $1 in --query) cat {folder}/cib;; *) echo "$@" >>{folder}/asked; cat >>{folder}/given;; esac',
        )
        self.command("stonith_admin", "case $2 in cor-a|cor-b) echo fence-a; echo 1 fence device found;; esac")

    def have(self, cib: str) -> None:
        (self.folder / "cib").write_text(cib)

    def command(self, name: str, script: str) -> None:
        file = self.folder / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    def do(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        program = COLLECTION / "roles/queue_manager/files/cluster.py"
        return subprocess.run(
            [sys.executable, program, *arguments], input=json.dumps(self.machine), text=True, capture_output=True,
            check=False, env=os.environ | {"PATH": f"{self.folder}:{os.environ['PATH']}"},
        )  # fmt: skip


def cib(stonith: str = "true", resources: str = "", constraints: str = "") -> str:
    return (
        CLUSTER.replace("STONITH", stonith).replace("RESOURCES", resources).replace("CONSTRAINTS", constraints)
    )  # fmt: skip


def test_the_resources_of_a_machine_are_made_once_in_their_order(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, cib())

    foretold = cluster.do("resources", "check")
    made = cluster.do("resources")

    assert json.loads(foretold.stdout) == json.loads(made.stdout), made.stderr
    assert json.loads(made.stdout) == {"changed": True, "resources": ["cor-router", "cor-router-hosts"]}
    group, place = ET.fromstring(f"<x>{(tmp_path / 'given').read_text()}</x>")
    assert [one.get("type") for one in group.iter("primitive")] == ["Filesystem", "IPaddr2", "qmnode"]
    values = {one.get("name"): one.get("value") for one in group.iter("nvpair")}
    assert (values["device"], values["directory"], values["ip"]) == ("/dev/shared", "/var/lib/qmnode", "192.0.2.7")
    assert values["lease"] == "7"
    assert [one.get("value") for one in place.iter("expression")] == ["cor-a", "cor-b"]
    cluster.have(cib("true", ET.tostring(group, "unicode"), ET.tostring(place, "unicode")))
    assert json.loads(cluster.do("resources").stdout)["changed"] is False
    cluster.machine["addresses"] = ["192.0.2.8"]
    assert json.loads(cluster.do("resources").stdout)["resources"] == ["cor-router"]
    assert (tmp_path / "asked").read_text().splitlines()[-1] == "--replace --scope resources --xml-pipe"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cib": cib("false")}, "its fencing is off: set stonith-enabled=true"),
        ({"fencing": ["fence-x"]}, "the cluster has no fencing device fence-x, it has fence-a: add it, or name it"),
        ({"hosts": ["cor-a", "cor-b", "cor-c"]}, "cor-c is no member of the cluster"),
        ({"stonith_admin": "exit 0"}, "fence-a cannot fence cor-a: see that it runs"),
        ({"cibadmin": "echo no connection >&2; exit 1"}, "no Pacemaker cluster answers on cor-b: set up Corosync"),
    ],
)
def test_a_cluster_that_could_not_fence_gets_no_resource(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, change.pop("cib", cib()))
    for name in ("stonith_admin", "cibadmin"):
        if name in change:
            cluster.command(name, change.pop(name))
    cluster.machine |= change

    refused = cluster.do("resources")

    assert refused.returncode == 1
    assert said in refused.stderr
    assert not (tmp_path / "asked").exists()


def test_a_host_on_which_the_cluster_still_starts_the_node_is_not_the_active_one(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, cib())
    cluster.command("crm_resource", "echo cor-b")
    line = "  * cor-router-node (ocf:qmnode:qmnode): {} cor-b"
    cluster.command(
        "crm_mon",
        f"if [ -e {tmp_path}/asked ]; then echo '{line.format('Started')}'; else echo '{line.format('Starting')}'; fi\n"
        f"echo >>{tmp_path}/asked",
    )

    found = json.loads(cluster.do("active").stdout)

    assert found["active"] == "cor-b"
    assert len((tmp_path / "asked").read_text()) == 2


def test_a_standby_whose_device_has_another_file_system_is_unfit(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, cib())
    cluster.machine |= {"command": str(tmp_path / "qmnode"), "device": str(tmp_path / "gone")}
    cluster.command("qmnode", "echo fit: qmnode 1, clock synchronised")
    cluster.command("systemctl", "echo loaded")
    cluster.command("crm_resource", "exit 0")

    (tmp_path / "gone").write_bytes(b"x")
    cluster.command("blkid", "echo xfs")
    found = json.loads(cluster.do("fit").stdout)

    assert found == {"fit": False, "said": f"{tmp_path / 'gone'} has xfs, and ext4 is declared"}
    cluster.command("blkid", "echo ext4")
    assert json.loads(cluster.do("fit").stdout) == {"fit": True, "said": "qmnode 1, clock synchronised"}
    cluster.machine["command"] = str(tmp_path / "not-installed")
    assert json.loads(cluster.do("fit").stdout)["said"] == f"there is no {tmp_path / 'not-installed'}: run rollout.yml"
    cluster.machine["command"] = str(tmp_path / "qmnode")
    cluster.command("qmnode", "echo unfit: its certificate ends; exit 1")
    assert json.loads(cluster.do("fit").stdout) == {"fit": False, "said": "its certificate ends"}


def test_what_a_check_said_replaces_what_an_earlier_one_said_of_the_same_host(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, cib())
    program = (COLLECTION / "roles/queue_manager/files/cluster.py").read_text()
    notes = tmp_path / "run/standbys"
    (tmp_path / "cluster.py").write_text(program.replace("/run/qmnode-cluster/standbys", str(notes)))
    for host, said in (("cor-b", "fit: qmnode 1"), ("cor-bb", "fit: qmnode 1"), ("cor-b", "unfit: no device\n")):
        given = json.dumps(cluster.machine | {"standby": host, "said": said.strip()})
        command = [sys.executable, tmp_path / "cluster.py", "note"]
        subprocess.run(command, input=given, text=True, check=True, capture_output=True)

    first, second = notes.read_text().splitlines()
    assert first.startswith("cor-bb fit: qmnode 1 (checked 2")
    assert second.startswith("cor-b unfit: no device (checked 2")
    assert notes.stat().st_mode & 0o777 == 0o644


def test_hosts_of_one_machine_are_worked_on_one_by_one_and_the_active_one_last(tmp_path: Path) -> None:
    def host(machine: str, *, running: bool, current: str | None = "r") -> dict[str, Any]:
        looked = {"document": {"running": running, "current": current}}
        return {"msmq_computer": machine, "msmq_sites": ["s"], "queue_manager_looked": looked}

    sys.path.insert(0, str(COLLECTION / "plugins/filter"))
    try:
        from batches import batches
        from link_ends import link_ends
    finally:
        sys.path.pop(0)
    hosts = {"a": host("M", running=True), "b": host("M", running=False), "c": host("N", running=True)}
    assert batches(list(hosts), hosts) == [["b"], ["c"], ["a"]]
    assert batches(list(hosts), hosts, one_at_a_time=True) == [["b"], ["a"], ["c"]]
    new = {name: host(name[0], running=False, current=None) for name in ("m1", "m2", "n1")}
    assert batches(list(new), new) == [["m1"], ["n1"], ["m2"]]
    for one in hosts.values():
        one |= {"msmq_roles": ["routing_server"], "msmq_hosts": ["a", "b"] if one["msmq_computer"] == "M" else []}
    hosts["c"]["msmq_sites"] = ["t"]
    pairs = link_ends([{"sites": ["s", "t"], "site_gates": ["M", "N"]}], hosts)
    assert [(pair["from"], pair["to"]) for pair in pairs] == [("a", "c"), ("c", "a")]
