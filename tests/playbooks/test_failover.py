"""A machine of two hosts, from its declaration to a node that moves: rolled out, verified, moved, drained, upgraded.

The hosts see one file by a loop device of each one's own, so each has its own page cache. A class is a story, in order.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import qmnode
from qmnode import Access, Message
from tests.failover.cluster import COROSYNC, DEVICE, FENCE, FENCE_AGENT, NAMES, SITE, STORE, Cluster, why_no_cluster
from tests.lab import releases
from tests.lab.enterprise import LabEnterprise
from tests.lab.hosts import why_no_hosts
from tests.lab.network import run

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.servers, pytest.mark.soak, pytest.mark.timeout(1800),
    pytest.mark.skipif(why_no_hosts() is not None, reason="hosts with systemd are needed"),
]  # fmt: skip
A, B = NAMES
JOBS = r".\private$\jobs"
MACHINE = {"name": "COR-ROUTER", "sites": [SITE], "roles": ["routing_server"], "hosts": list(NAMES)}


class Pair(Cluster):
    """The two hosts of a rolled out enterprise, with what their device and their fencing need."""

    def __init__(self, way: str) -> None:
        failover = {"way": way, "device": DEVICE} | ({"fencing": ["fence"], "lease": 5} if way == "pacemaker" else {})
        queue = {"machine": "COR-ROUTER", "name": "jobs", "private": True, "transactional": True}
        self.enterprise = LabEnterprise(
            {
                "enterprise": {"name": "E"},
                "sites": [{"name": SITE}],
                "machines": [MACHINE | {"failover": failover}],
                "queues": [queue],
            }
        )
        self.lab = self.enterprise.lab
        self.network, self.hosts = self.lab.network, self.lab.hosts
        self.address = str(self.network.sites[SITE].network[20])
        self.enterprise.declaration["machines"][0]["addresses"] = [self.address]
        self.image = self.network.folder / "device"
        self.fenced, self.boots = [], dict.fromkeys(NAMES, 0)
        self._loops: dict[str, str] = {}
        self._ended = threading.Event()
        self._busy = {name: threading.Lock() for name in NAMES}
        self._fencing = threading.Thread(target=self._serve_fencing, daemon=True)

    def prepare(self) -> None:
        """Hosts, directory and device."""
        with self.image.open("wb") as file:
            file.truncate(1 << 30)
        run("mkfs.ext4", "-q", "-F", str(self.image))
        self.enterprise.start()
        for name, host in self.hosts.items():
            self._loops[name] = run("losetup", "-f", "--show", str(self.image)).stdout.strip()
            host.do("mknod", DEVICE, "b", "7", str(os.minor(Path(self._loops[name]).stat().st_rdev)))
        releases.give(self.enterprise)
        self.enterprise.play("provision", declared=str(self.enterprise.declared)).ok()

    def form(self) -> None:
        """Corosync and Pacemaker, without a resource."""
        nodes = "\n".join(
            f"  node {{\n    ring0_addr: {self.hosts[name].address}\n    name: {name}\n    nodeid: {number}\n  }}"
            for number, name in enumerate(NAMES, 1)
        )
        for host in self.hosts.values():
            host.inside("/etc/corosync/corosync.conf").write_text(COROSYNC.format(nodes=nodes))
            agent = host.inside("/usr/sbin/fence_lab")
            gateway = str(self.network.sites[SITE].gateway)
            agent.write_text(FENCE_AGENT.replace("GATEWAY", gateway).replace("FENCE", FENCE))
            agent.chmod(0o755)
            loader = host.inside("/usr/sbin/modprobe")
            loader.unlink(missing_ok=True)
            loader.write_text("#!/bin/sh\nexit 0\n")
            loader.chmod(0o755)
            host.do("systemctl", "start", "corosync", "pacemaker", limit=120)
        self._fencing.start()

    def add_fencing(self) -> None:
        """The lab's fencing device."""
        text = (
            '<primitive id="fence" class="stonith" type="fence_lab"><instance_attributes id="fi">'
            '<nvpair id="fi1" name="pcmk_host_list" value="cor-a cor-b"/></instance_attributes></primitive>'
        )
        self.hosts[A].do("cibadmin", "--create", "--scope", "resources", "--xml-text", text)
        self.hosts[A].do("crm_resource", "--wait")

    def play(self, playbook: str, *arguments: str, **variables: object) -> Any:
        """A playbook on the machine."""
        return self.enterprise.play(playbook, *arguments, limit=3000, **variables)

    def is_active(self, name: str) -> bool:
        """Whether systemd runs the node on a host."""
        return self.hosts[name].do("systemctl", "is-active", "qmnode", check=False).stdout.strip() == "active"

    def where(self) -> list[str]:
        """The hosts that run the node."""
        return [name for name in NAMES if self.is_active(name)]

    async def put(self, name: str, body: bytes) -> None:
        """A message into the queue, by the host that runs the node."""
        async with qmnode.connect(self.enterprise.socket(name)) as node:
            queue = await node.open_queue(f"DIRECT=OS:{JOBS}", Access.SEND)
            transaction = node.transaction()
            await queue.send(Message(body), transaction=transaction)
            await transaction.commit()

    async def bodies(self, name: str) -> list[bytes]:
        """The messages of the queue, as that host has them."""
        async with qmnode.connect(self.enterprise.socket(name)) as node:
            queue = await node.open_queue(f"DIRECT=OS:{JOBS}", Access.PEEK)
            found = [await queue.peek_by_lookup_id(0, "first")]
            while len(found) < (await node.queue(JOBS)).message_count:
                found.append(await queue.peek_by_lookup_id(found[-1].lookup_identifier, "next"))
            return [bytes(one.body) for one in found]

    def settings(self, name: str) -> dict[str, Any]:
        """``node.yaml`` of a host."""
        return dict(yaml.safe_load(self.hosts[name].inside("/etc/qmnode/node.yaml").read_text()))

    @contextmanager
    def silent(self, what: str) -> Iterator[None]:
        """Print how long no host's node has answered at most; soak alone."""
        ended, answers = threading.Event(), [time.monotonic()]

        def ask() -> None:
            while not ended.wait(0.05):
                if any(answers_now(host.inside("/run/qmnode/management.sock")) for host in self.hosts.values()):
                    answers.append(time.monotonic())

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            yield
        finally:
            ended.set()
            asking.join()
            longest = max((after - before for before, after in pairwise(answers)), default=0.0)
            print(f"\n{what}: no node answered for {longest:.1f} s")

    def close(self) -> None:
        """Power both off and remove everything."""
        self._ended.set()
        if self._fencing.is_alive():
            self._fencing.join(60)
        releases.keep(self.enterprise.hosts.folder)
        self.enterprise.close()
        for loop in self._loops.values():
            run("losetup", "-d", loop, check=False)


def answers_now(path: Path) -> bool:
    """Whether a node answers at a socket of its management API."""
    with suppress(OSError), socket.socket(socket.AF_UNIX) as line:
        line.settimeout(2)
        line.connect(str(path))
        line.sendall(b"GET /v1/node HTTP/1.0\r\nHost: node\r\n\r\n")
        return line.recv(12).endswith(b"200")
    return False


def files(pair: Pair, name: str) -> dict[str, bytes]:
    folder = pair.hosts[name].inside("/etc/qmnode")
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


async def passes_over(pair: Pair, bodies: list[bytes]) -> None:
    """The other playbooks act on the host that runs the node, and start and mount nothing on the one that stands by."""
    (active,) = pair.where()
    other = B if active == A else A
    place = pair.enterprise.folder / "backups"
    assert pair.play("backup", backup_to=str(place), backup_name="monday").ok().at_fault == set()
    assert {path.name for path in place.iterdir()} == {"controller-monday.tar.gz", "cor-router-monday.tar.gz"}
    refused = pair.play("backup", "--limit", other, backup_to=str(place), backup_name="tuesday").ok()
    assert refused.changed == 0
    assert f"{other} stands by, and is passed over: COR-ROUTER runs on {active}" in refused.said
    before = pair.enterprise.published_keys("COR-ROUTER")
    pair.play("rotate_keys", rotation_begun=datetime.now(UTC).isoformat()).ok()
    assert before != pair.enterprise.published_keys("COR-ROUTER")
    pair.play("tls", queue_manager_tls="offer").ok()
    assert files(pair, A).keys() - {"keys.yaml"} == files(pair, B).keys() - {"keys.yaml"}
    assert [pair.settings(name)["security"]["tls"]["mode"] for name in NAMES] == ["offer", "offer"]
    await pair.put(active, b"after the backup")
    pair.play("restore", "--check", backup_from=str(place), backup_name="monday").ok()
    assert await pair.bodies(active) == [*bodies, b"after the backup"]
    with pair.silent("restored"):
        pair.play("restore", backup_from=str(place), backup_name="monday").ok()
    assert await pair.bodies(active) == bodies
    assert pair.where() == [active]
    assert pair.hosts[other].do("mountpoint", "-q", STORE, check=False).returncode != 0


class TestAnOperatorMovesIt:
    @pytest.fixture(scope="class")
    def pair(self) -> Iterator[Pair]:
        pair = Pair("operator")
        try:
            pair.prepare()
            yield pair
        finally:
            pair.close()

    async def test_both_are_set_up_alike_and_one_runs_the_node(self, pair: Pair) -> None:
        foretold = pair.play("rollout", "--check", "--diff").ok()
        assert not pair.hosts[A].inside("/etc/qmnode").exists()
        done = pair.play("rollout").ok()
        assert len(pair.where()) == 1, done.said[-3000:]
        assert foretold.changed > 0
        assert files(pair, A) == files(pair, B)
        assert pair.settings(A)["failover"]["hosts"] == list(NAMES)
        assert pair.play("rollout").ok().changed == 0
        await pair.put(pair.where()[0], b"1")

    def test_verify_tries_a_switch_and_names_what_is_wrong(self, pair: Pair) -> None:
        (active,) = pair.where()
        other = B if active == A else A
        said = pair.play("verify").ok().said
        assert f"{other}: " in said and "it stands by and could run COR-ROUTER" in said
        pair.hosts[other].do("mv", DEVICE, f"{DEVICE}-gone")
        wrong = pair.play("verify")
        pair.hosts[other].do("mv", f"{DEVICE}-gone", DEVICE)
        assert wrong.at_fault == {other}
        assert f"{DEVICE}, the device of the store, cannot be read" in wrong.said

    async def test_the_node_moves_on_request_and_back_with_its_messages(self, pair: Pair) -> None:
        (active,) = pair.where()
        other = B if active == A else A
        foretold = pair.play("failover", "--check", machine="cor-router").ok()
        assert f"{other} is fit, and will run COR-ROUTER in place of {active}" in foretold.said
        assert pair.where() == [active]
        with pair.silent("moved by an operator"):
            pair.play("failover", machine="cor-router").ok()
        assert pair.where() == [other]
        assert await pair.bodies(other) == [b"1"]
        await pair.put(other, b"2")
        with pair.silent("taken back by an operator"):
            pair.play("failover", machine="COR-ROUTER", to=active).ok()
        assert pair.where() == [active]
        assert await pair.bodies(active) == [b"1", b"2"]
        assert pair.play("failover", machine="COR-ROUTER", to=active).ok().changed == 0

    def test_wrong_requests_are_refused_and_change_nothing(self, pair: Pair) -> None:
        before = pair.where()
        for said, given in {
            "No machine is named: -e machine=NAME; those with hosts are COR-ROUTER": {},
            "There is no machine x with hosts in the inventory": {"machine": "x"},
            "COR-ROUTER has no host cor-c; it has cor-a and cor-b": {"machine": "COR-ROUTER", "to": "cor-c"},
        }.items():
            refused = pair.play("failover", **given)
            assert refused.code != 0
            assert said in refused.said
        assert pair.where() == before

    async def test_the_standby_is_upgraded_first_and_takes_over(self, pair: Pair) -> None:
        (active,) = pair.where()
        other = B if active == A else A
        for host in pair.hosts.values():  # as if an earlier release were installed
            current = host.inside("/opt/qmnode/current")
            earlier = current.readlink().with_name("earlier")
            host.do("cp", "-a", str(Path("/opt/qmnode") / current.readlink()), f"/opt/qmnode/{earlier}")
            host.do("ln", "-sfn", str(earlier), "/opt/qmnode/current")
        with pair.silent("upgraded"):
            pair.play("upgrade").ok()
        assert pair.where() == [other]
        assert {host.inside("/opt/qmnode/current").readlink().name == "earlier" for host in pair.hosts.values()} == {
            False
        }
        assert await pair.bodies(other) == [b"1", b"2"]

    async def test_other_playbooks_pass_over_the_host_that_stands_by(self, pair: Pair) -> None:
        await passes_over(pair, [b"1", b"2"])

    async def test_a_lost_host_is_replaced_only_when_it_is_said_to_be_off(self, pair: Pair) -> None:
        (active,) = pair.where()
        other = B if active == A else A
        pair.power_off(active)
        refused = pair.play("failover", machine="cor-router")
        assert refused.code != 0
        assert f"{active} could not be asked and may run COR-ROUTER: nothing was started" in refused.said
        assert not pair.is_active(other)
        pair.play("failover", machine="cor-router", fenced=active).ok()
        assert pair.is_active(other)
        assert await pair.bodies(other) == [b"1", b"2"]
        status = json.loads(pair.hosts[other].do("/opt/qmnode/current/bin/qmnode", "status", "--json").stdout)
        assert status["failover"]["host"] == other


@pytest.mark.skipif(why_no_cluster() is not None, reason="Pacemaker and Corosync are needed")
class TestPacemakerMovesIt:
    @pytest.fixture(scope="class")
    def pair(self) -> Iterator[Pair]:
        pair = Pair("pacemaker")
        try:
            pair.prepare()
            yield pair
        finally:
            pair.close()

    def test_without_a_cluster_and_without_fencing_nothing_is_started(self, pair: Pair) -> None:
        refused = pair.play("rollout")
        assert refused.code != 0
        assert "no Pacemaker cluster answers on" in refused.said
        pair.form()
        refused = pair.play("rollout")
        assert refused.code != 0
        assert "the cluster has no fencing device fence, it has no fencing device: add it, or name it" in refused.said
        assert not pair.where()
        assert "cor-router" not in pair.hosts[A].do("cibadmin", "--query", "--scope", "resources").stdout
        pair.add_fencing()

    async def test_the_cluster_runs_the_node_on_one_host(self, pair: Pair) -> None:
        pair.play("rollout").ok()
        (active,) = pair.where()
        assert files(pair, A) == files(pair, B)
        assert pair.play("rollout").ok().changed == 0
        await pair.put(active, b"1")
        assert "it stands by and could run COR-ROUTER" in pair.play("verify").ok().said

    async def test_the_node_moves_on_request_and_back(self, pair: Pair) -> None:
        (active,) = pair.where()
        other = B if active == A else A
        with pair.silent("moved by Pacemaker"):
            pair.play("failover", machine="cor-router").ok()
        assert pair.where() == [other]
        assert await pair.bodies(other) == [b"1"]
        with pair.silent("taken back by Pacemaker"):
            pair.play("failover", machine="cor-router", drain=other).ok()
        assert pair.where() == [active]
        assert "could not run COR-ROUTER" in pair.play("failover", machine="cor-router").said
        pair.play("failover", machine="cor-router", undrain=other).ok()
        assert pair.where() == [active]

    async def test_other_playbooks_pass_over_the_host_that_stands_by(self, pair: Pair) -> None:
        await passes_over(pair, [b"1"])

    async def test_the_cluster_fences_and_takes_over_by_itself(self, pair: Pair) -> None:
        (active,) = pair.where()
        other = B if active == A else A
        pair.lose(active)
        pair.hosts[other].do("crm_resource", "--wait", limit=180)
        assert pair.where() == [other] or pair.wait_until_active() == other
        assert active in {target for _, _, target in pair.fenced}
        assert await pair.bodies(other) == [b"1"]

    def test_the_machine_is_taken_out_with_all_its_hosts(self, pair: Pair) -> None:
        refused = pair.play("decommission", machine="cor-a")
        assert "cor-a is a host of COR-ROUTER: name the machine" in refused.said
        held = pair.play("decommission", machine="cor-router")
        assert held.code != 0
        assert "holds messages" in held.said
        assert len(pair.where()) == 1
        pair.play("decommission", machine="cor-router", decommission_with_messages=True).ok()
        assert pair.where() == []
        for name in NAMES:
            assert not pair.hosts[name].inside("/etc/qmnode").exists()
            assert pair.hosts[name].do("mountpoint", "-q", STORE, check=False).returncode != 0
        assert "cor-router" not in pair.hosts[A].do("cibadmin", "--query", "--scope", "configuration").stdout
