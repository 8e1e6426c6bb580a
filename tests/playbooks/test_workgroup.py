"""Endpoints in a workgroup: the same playbooks, and no directory server anywhere.

``make test`` has two hosts, ``make soak`` all six of the sample.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import yaml

import qmnode
from qmnode import Access, Message, MessageQueuingError
from tests.lab import releases
from tests.lab.enterprise import PROJECT, LabEnterprise

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.lab.enterprise import Played

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.timeout(1200)]
PATIENCE = 60.0
SALES, OPS = "sales", "ops"


@contextmanager
def fleet(*hosts: str) -> Iterator[LabEnterprise]:
    """These hosts of the sample, all if none is named, in mode prefer of TLS; rolled out."""
    declared: dict[str, Any] = yaml.safe_load((PROJECT / "inventory/fleet.yaml").read_text("utf-8"))
    if hosts:
        declared["machines"] = [machine for machine in declared["machines"] if machine["name"] in hosts]
        declared["queues"] = [queue for queue in declared["queues"] if queue["machine"] in hosts]
    enterprise = LabEnterprise(declared)
    try:
        enterprise.start()
        releases.give(enterprise)
        retry = {"transfer": {"retry_interval": 1, "retry_maximum": 5}}
        enterprise.set_for_all(queue_manager_tls="prefer", queue_manager_settings=retry)
        enterprise.play("rollout").ok()
        yield enterprise
    finally:
        enterprise.close()


@pytest.fixture(scope="module")
def two() -> Iterator[LabEnterprise]:
    """One endpoint, and the machine with the shared queues."""
    with fleet(SALES, OPS) as enterprise:
        yield enterprise


def direct(enterprise: LabEnterprise, host: str, queue: str) -> str:
    """The name by which programs of NServiceBus send."""
    (name,) = (one["dns_name"] for one in enterprise.declaration["machines"] if one["name"] == host)
    return rf"DIRECT=OS:{name}\private$\{queue}"


async def passes(enterprise: LabEnterprise, source: str, target: str, queue: str, bodies: list[bytes]) -> list[bytes]:
    """Send in one transaction to a transactional queue of another host; what is received there."""
    async with (
        qmnode.connect(enterprise.socket(source)) as node,
        await node.open_queue(direct(enterprise, target, queue), Access.SEND) as out,
        node.transaction() as unit,
    ):
        for body in bodies:
            await out.send(Message(body), transaction=unit)
    async with (
        qmnode.connect(enterprise.socket(target)) as node,
        await node.open_queue(rf"DIRECT=OS:.\private$\{queue}") as into,
    ):
        return [(await into.receive(timeout=PATIENCE)).body for _ in bodies]


def secured(enterprise: LabEnterprise, host: str) -> set[str]:
    """How the open sessions of a node go over the network: ``tls`` or ``clear``."""
    socket = str(enterprise.hosts.path(host, "/run/qmnode/management.sock"))
    with httpx.Client(transport=httpx.HTTPTransport(uds=socket), base_url="http://node") as client:
        found = client.get("/v1/connections").raise_for_status().json()["connections"]
    return {"tls" if one["encrypted"] else "clear" for one in found if one["state"] == "open"}


def certificate(enterprise: LabEnterprise, host: str) -> bytes:
    return enterprise.hosts.path(host, "/etc/qmnode/certificate.pem").read_bytes()


def has_no_directory(enterprise: LabEnterprise) -> bool:
    """Whether no server was made, no host has a login, and no setting names one."""
    files = [
        file.name
        for host in enterprise.hosts.addresses
        for file in enterprise.hosts.path(host, "/etc/qmnode").iterdir()
    ]
    settings = [
        yaml.safe_load(enterprise.hosts.path(host, "/etc/qmnode/node.yaml").read_text())
        for host in enterprise.hosts.addresses
    ]
    return (
        not enterprise.directory_file.exists()
        and not any(name.startswith("directory") for name in files)
        and not any("directory" in one for one in settings)
    )


def unchanged(played: Played) -> None:
    assert played.ok().changed == 0, played.said[-6000:]


async def test_two_machines_are_rolled_out_verified_and_speak_tls(two: LabEnterprise) -> None:
    """That a second roll-out changes nothing is shown of six, in ``make soak``."""
    assert has_no_directory(two)
    bodies = [b"order %d" % number for number in range(20)]
    assert await passes(two, SALES, OPS, "error", bodies) == bodies
    assert secured(two, SALES) == {"tls"}
    verified = two.play("verify").ok()
    assert f"{SALES} → {OPS} (direct): " in verified.said
    assert f"{OPS} → {SALES} (direct): " in verified.said
    assert "its mode of TLS with other nodes is prefer" in verified.said


@pytest.mark.soak
@pytest.mark.parametrize(
    ("playbook", "words"),
    [("rotate_keys", "nobody encrypts messages with published keys"), ("provision", "Fleet has no directory; ")],
)
def test_what_needs_a_directory_says_that_there_is_none(two: LabEnterprise, playbook: str, words: str) -> None:
    refused = two.play(playbook, declared=str(two.declared))
    assert refused.code != 0
    assert words in refused.said


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_six_machines_live_without_a_directory(tmp_path: Path) -> None:
    """Roll out, change by hand, prune, rotate certificates, back up, restore, upgrade, take one out."""
    with fleet() as six:
        hosts = sorted(six.hosts.addresses)
        assert len(hosts) == 6 and has_no_directory(six)
        unchanged(six.play("rollout"))
        await everybody_reaches_everybody(six)
        verified = six.play("verify").ok()
        for start, end in zip(hosts, [*hosts[1:], hosts[0]], strict=True):
            assert f"{start} → {end} (direct): " in verified.said
        await a_queue_that_was_changed_by_hand_is_put_back(six)
        await a_queue_that_is_not_declared_any_more_goes_with_prune_alone(six)
        await certificates_rotate_while_messages_flow(six)
        unchanged(six.play("rollout"))
        await a_node_is_restored(six, tmp_path)
        six.play("upgrade").ok()
        prometheus_finds_every_node(six, tmp_path)
        await a_machine_leaves(six)
        six.play("verify").ok()


async def everybody_reaches_everybody(six: LabEnterprise) -> None:
    inputs = {queue["machine"]: queue["name"] for queue in six.declaration["queues"]}
    for source in inputs:
        for target, queue in inputs.items():
            if source != target:
                bodies = [f"{source} {number}".encode() for number in range(3)]
                assert await passes(six, source, target, queue, bodies) == bodies


async def a_queue_that_was_changed_by_hand_is_put_back(six: LabEnterprise) -> None:
    name = r".\private$\Sales"
    async with qmnode.connect(six.socket(SALES)) as node:
        await node.set_queue(name, label="Mine")
        foretold = six.play("rollout", "--check", "--diff").ok()
        assert (foretold.changed, (await node.queue(name)).label) == (1, "Mine")
        assert six.play("rollout").ok().changed == 1
        assert (await node.queue(name)).label == ""


async def a_queue_that_is_not_declared_any_more_goes_with_prune_alone(six: LabEnterprise) -> None:
    six.declaration["queues"].append({"machine": SALES, "name": "Sales.Old", "private": True, "transactional": True})
    six.write_declaration()
    assert six.play("rollout").ok().changed == 1
    six.declaration["queues"].pop()
    six.write_declaration()
    async with qmnode.connect(six.socket(SALES)) as node:
        unchanged(six.play("rollout"))
        assert (await node.queue(r".\private$\Sales.Old")).declared
        assert six.play("rollout", queue_manager_prune_private_queues=True).ok().changed == 1
        with pytest.raises(MessageQueuingError):
            await node.queue(r".\private$\Sales.Old")


async def certificates_rotate_while_messages_flow(six: LabEnterprise) -> None:
    before = {host: certificate(six, host) for host in six.hosts.addresses}
    six.play("tls", queue_manager_tls="require").ok()
    six.set_for_all(queue_manager_tls="require")
    await everybody_reaches_everybody(six)
    assert secured(six, SALES) == {"tls"}
    assert {host: certificate(six, host) for host in before} == before
    running = {host: six.hosts.node_process(host) for host in before}
    assert six.play("tls", queue_manager_renew_before=3000).ok().changed > 0
    assert all(certificate(six, host) != old for host, old in before.items())
    await everybody_reaches_everybody(six)
    assert {host: six.hosts.node_process(host) for host in before} == running, "nothing was restarted"
    six.play("verify").ok()


async def a_node_is_restored(six: LabEnterprise, folder: Path) -> None:
    """The queue that is lost after the backup is made again; the node is who it was, and its certificate says so."""
    six.play("backup", backup_to=str(folder / "kept"), backup_name="one").ok()
    async with qmnode.connect(six.socket(SALES)) as node:
        await node.delete_queue(r".\private$\Sales")
    six.play("restore", "--limit", SALES, backup_from=str(folder / "kept"), backup_name="one").ok()
    six.play("rollout", "--limit", SALES).ok()
    bodies = [b"after", b"the restore"]
    assert await passes(six, OPS, SALES, "Sales", bodies) == bodies
    six.play("verify").ok()


def prometheus_finds_every_node(six: LabEnterprise, folder: Path) -> None:
    here = f"localhost ansible_connection=local ansible_python_interpreter={sys.executable}"
    inventory = six.inventory.parent / "monitor.ini"
    inventory.write_text(f"[monitoring]\n{here}\n")
    settings = {f"monitoring_{name}": str(folder / name) for name in ("rules", "targets", "dashboards")}
    six.play("monitoring", "-i", str(six.inventory), "-i", str(inventory), **settings).ok()
    (jobs,) = json.loads((folder / "targets/msmq.json").read_text())
    assert {target.rpartition(":")[0] for target in jobs["targets"]} == set(six.hosts.addresses.values())


async def a_machine_leaves(six: LabEnterprise) -> None:
    left_out = six.play("decommission", "--limit", "web", machine="web")
    assert left_out.code != 0 and "without --limit" in left_out.said
    six.play("decommission", machine="web").ok()
    assert not six.hosts.path("web", "/etc/qmnode").exists()
    six.declaration["machines"] = [one for one in six.declaration["machines"] if one["name"] != "web"]
    six.declaration["queues"] = [one for one in six.declaration["queues"] if one["machine"] != "web"]
    six.write_declaration()
    (six.host_variables("web")).unlink()
    unchanged(six.play("rollout"))


@pytest.mark.soak
async def test_hosts_with_other_pythons_get_wheels_of_their_own_and_one_without_wheels_is_refused(
    tmp_path: Path,
) -> None:
    pythons = subprocess.check_output([PROJECT / ".ci/python", "--all"], text=True).split()
    own = "{}.{}".format(*sys.version_info)
    others = [python for python in pythons if own not in subprocess.check_output([python, "--version"], text=True)]
    if not others:
        pytest.skip("this machine has one Python that the project supports: nothing to compare")
    # A host of an architecture for which packages have no wheels.
    strange = tmp_path / "python"
    (tmp_path / "sitecustomize.py").write_text("import platform\nplatform.machine = lambda: 'armv7l'\n")
    strange.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    strange.chmod(0o755)
    declared: dict[str, Any] = yaml.safe_load((PROJECT / "inventory/fleet.yaml").read_text("utf-8"))
    declared["machines"] = [machine for machine in declared["machines"] if machine["name"] in (SALES, OPS)]
    declared["queues"] = [queue for queue in declared["queues"] if queue["machine"] in (SALES, OPS)]
    enterprise = LabEnterprise(declared, real=False)

    def give(host: str, *names: str) -> None:
        file = enterprise.host_variables(host)
        file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"queue_manager_python": list(names)}))

    def release(host: str, *words: str) -> str:
        python = enterprise.hosts.path(host, "/opt/qmnode/current/bin/python")
        return subprocess.check_output([python, *words], text=True)

    try:
        enterprise.start()
        give(SALES, "no-such-python", others[-1])
        give(OPS, str(strange))
        refused = enterprise.play("rollout")
        assert f"{OPS} is not fit, and nothing was done to it: there are no wheels for" in refused.said, refused.said
        assert refused.at_fault == {OPS}
        assert not enterprise.hosts.path(SALES, "/opt/qmnode/current").exists()

        give(OPS, sys.executable)
        enterprise.play("rollout").ok()
        assert release(SALES, "--version") == subprocess.check_output([others[-1], "--version"], text=True)
        assert own in release(OPS, "--version")
        assert await passes(enterprise, SALES, OPS, "error", [b"one", b"two"]) == [b"one", b"two"]
        again = enterprise.play("rollout").ok()
        assert [stats["changed"] for stats in again.stats.values()] == [0] * len(again.stats), again.said
    finally:
        enterprise.close()
