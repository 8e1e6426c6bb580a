"""What an operator does with a running enterprise: verify, back up, restore, move a machine, take one out.

In the whole story, of ``make soak``, each playbook is checked first, run, and run again: the check tells what the run
changes, and the second run changes nothing. ``make test`` has the short story, where that is so of the backup. The
tests are the chapters of a story, in order.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import time
from functools import cache
from typing import TYPE_CHECKING, Any

import boto3
import pytest
import yaml

import qmnode
from qmnode import Access, Message, MessageQueuingError, QueueType
from tests.lab.aws import ENVIRONMENT
from tests.lab.enterprise import PROJECT, LabEnterprise, Played
from tests.lab.traffic import COUNTER, Stream
from tests.playbooks.conftest import rolled_out
from tests.playbooks.secrecy import assert_kept
from tests.playbooks.test_under_load import PATIENCE, another_release, assert_perfect, release

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.lab.aws import Moto

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.timeout(1200)]
ROUTER, SHOP, GATE = "ams-router", "ams-shop", "bre-router"
PLACE = "s3://msmq-backups/contoso"
IDENTIFIER_JUMP = 1 << 20
"""No test sends as many messages; a restored node skips more."""


@pytest.fixture(scope="module")
def running(whole: bool) -> Iterator[LabEnterprise]:
    """Two sites with a link, a client in the first; rolled out."""
    del whole  # each story has an enterprise of its own
    queues = [
        {"machine": SHOP, "name": "orders", "transactional": True},
        {"machine": GATE, "name": "picking", "transactional": True},
    ]
    with rolled_out((ROUTER, SHOP, GATE), queues) as enterprise:
        yield enterprise


@pytest.fixture
def in_s3(running: LabEnterprise, moto: Moto, monkeypatch: pytest.MonkeyPatch) -> LabEnterprise:
    """It, and a bucket that its operator may write to."""
    for variable, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": moto.url}.items():
        monkeypatch.setenv(variable, value)
    client = boto3.client("s3")
    if all(bucket["Name"] != "msmq-backups" for bucket in client.list_buckets()["Buckets"]):
        where = {"LocationConstraint": ENVIRONMENT["AWS_DEFAULT_REGION"]}
        client.create_bucket(Bucket="msmq-backups", CreateBucketConfiguration=where)
    return running


def play(enterprise: LabEnterprise, whole: bool, playbook: str, *arguments: str, **variables: object) -> Played:
    """Run, and in the whole story checked before and run again; what the run itself said."""
    if not whole:
        done = enterprise.play(playbook, "-vvv", "--diff", *arguments, **variables).ok()
        assert changes(done) != {}
        return done
    foretold = enterprise.play(playbook, "--check", "--diff", *arguments, **variables).ok()
    done = enterprise.play(playbook, "-vvv", "--diff", *arguments, **variables).ok()
    assert changes(foretold) == changes(done) != {}
    again = enterprise.play(playbook, *arguments, **variables).ok()
    assert changes(again) == {}, again.said
    return done


def changes(played: Played) -> dict[str, int]:
    """How much was changed on each host where something was."""
    return {host: stats["changed"] for host, stats in played.stats.items() if stats["changed"]}


@cache
def public_name(enterprise: LabEnterprise, pathname: str) -> str:
    listed = json.loads(enterprise.command("queue", "list", "--json").stdout)
    (found,) = (each["identifier"] for each in listed if each["pathname"] == pathname)
    return f"PUBLIC={found}"


async def send(enterprise: LabEnterprise, source: str, pathname: str, *bodies: bytes) -> list[bytes]:
    """One transaction; the messages' identifiers."""
    name = public_name(enterprise, pathname)
    async with (
        qmnode.connect(enterprise.socket(source)) as node,
        await node.open_queue(name, Access.SEND) as queue,
        node.transaction() as unit,
    ):
        return [await queue.send(Message(body), transaction=unit) for body in bodies]


async def receive(enterprise: LabEnterprise, host: str, name: str, count: int, limit: float = 60.0) -> list[bytes]:
    """So many bodies, or those that came in time."""
    found: list[bytes] = []
    async with qmnode.connect(enterprise.socket(host)) as node, await node.open_queue(rf"DIRECT=OS:.\{name}") as queue:
        try:
            while len(found) < count:
                found += [message.body for message in await queue.receive_many(count - len(found), timeout=limit)]
        except MessageQueuingError:
            return found
    return found


async def holds(enterprise: LabEnterprise, host: str, name: str) -> int:
    async with qmnode.connect(enterprise.socket(host)) as node:
        return (await node.queue(rf".\{name}")).message_count


async def identifier(enterprise: LabEnterprise, host: str) -> bytes:
    async with qmnode.connect(enterprise.socket(host)) as node:
        return bytes(node.identifier)


def number(message: bytes) -> int:
    """The number in a message identifier, which a node gives out once."""
    return int.from_bytes(message[16:], "little")


def set_variables(enterprise: LabEnterprise, host: str, **variables: str) -> dict[str, Any]:
    """Change variables of a host in the inventory; what it had before."""
    file = enterprise.host_variables(host)
    before: dict[str, Any] = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump(before | variables))
    return before


class TestVerify:
    def test_a_traced_probe_goes_along_every_link(
        self, running: LabEnterprise, monkeypatch: pytest.MonkeyPatch, whole: bool
    ) -> None:
        monkeypatch.setenv("TZ", "Asia/Tokyo")  # clocks are compared wherever the controller is

        foretold = running.play("verify", "--check", "--diff").ok() if whole else None
        done = running.play("verify", "--diff").ok()
        assert changes(done) != {}
        assert foretold is None or changes(foretold) == changes(done)

        for start, end in ((ROUTER, GATE), (GATE, ROUTER)):
            assert f"{start} → {end} (Amsterdam - Bremen): " in done.said
            assert f"s there and back, by {start} → {end}" in done.said
        # Hosts of one machine have one clock: what is told is how well that is known.
        within = re.findall(r"its clock agrees with the controller's within ([\d.]+) s", done.said)
        assert len(within) == len(running.hosts.addresses)
        assert max(map(float, within)) < 3


class TestLimit:
    """``--limit`` leaves out the controller, and what is done there: that is told, and nothing goes by it unseen."""

    async def test_links_that_leave_the_limit_are_told_and_others_probed(
        self, running: LabEnterprise, whole: bool
    ) -> None:
        if whole:
            both = running.play("verify", "--limit", f"{ROUTER},{GATE}").ok()
            assert f"s there and back, by {ROUTER} → {GATE}" in both.said
            assert changes(both) == {}, "the queues for probes are there since the first run"

        one = running.play("verify", "--limit", GATE).ok()
        assert f"{ROUTER} → {GATE} (Amsterdam - Bremen): not probed, as --limit leaves {ROUTER} out" in one.said

        running.hosts.stop_node(GATE)
        away = running.play("verify", "--limit", GATE)
        running.hosts.start_node(GATE)
        await answers(running, GATE)
        assert away.code != 0
        assert f"{GATE}: the node does not answer" in away.said
        assert away.at_fault == {GATE}

    def test_one_node_is_backed_up_without_the_controller(self, running: LabEnterprise, tmp_path: Path) -> None:
        done = running.play("backup", "--limit", SHOP, backup_to=os.path.relpath(tmp_path / "kept", PROJECT)).ok()
        assert changes(done) == {SHOP: 1}
        (kept,) = (tmp_path / "kept").iterdir()
        assert kept.name.startswith(f"{SHOP}-20")
        nowhere = running.play("backup", "--limit", SHOP)
        assert nowhere.code != 0
        assert "Name where the backups are kept" in nowhere.said

    @pytest.mark.parametrize(
        ("playbook", "wanted"),
        [
            ("decommission", {"machine": GATE}),
            pytest.param("move_site", {"machine": SHOP, "site": "Bremen"}, marks=pytest.mark.soak),
            pytest.param("provision", {"declared": "nowhere.yaml"}, marks=pytest.mark.soak),
            ("publish_queues", {"queues": [{"machine": SHOP, "name": "limited"}]}),
        ],
    )
    def test_what_the_controller_does_is_not_passed_over(
        self, running: LabEnterprise, playbook: str, wanted: dict[str, Any]
    ) -> None:
        refused = running.play(playbook, "--limit", wanted.get("machine", SHOP), **wanted)
        assert refused.code != 0
        assert "without --limit" in refused.said
        assert changes(refused) == {}


class TestPublish:
    def test_what_is_wrong_with_a_queue_is_told_before_any_is_published(self, running: LabEnterprise) -> None:
        nothing = running.play("publish_queues")
        assert "Name the queues: -e @queues.yaml" in nothing.said
        misspelt = running.play("publish_queues", queues=[{"machine": SHOP, "name": "misspelt", "lable": "x"}])
        assert "A queue has no lable" in misspelt.said
        missing = running.play("publish_queues", declared=str(running.folder / "nowhere.yaml"))
        assert "nowhere.yaml: cannot be read: No such file or directory; name a YAML file" in missing.said
        assert {nothing.code, misspelt.code, missing.code} == {2}
        assert "misspelt" not in running.command("queue", "list").stdout

    def test_a_declaration_of_several_files_and_a_name_in_capitals(self, running: LabEnterprise, whole: bool) -> None:
        parts = running.folder / "parts"
        parts.mkdir()
        declared = json.loads(json.dumps(running.declaration))
        queues = [{"machine": SHOP.upper(), "name": "several", "transactional": True}]
        (parts / "queues.yaml").write_text(yaml.safe_dump({"queues": queues}))
        (parts / "rest.yaml").write_text(yaml.safe_dump({key: declared[key] for key in declared if key != "queues"}))

        play(running, whole, "publish_queues", declared=os.path.relpath(parts, PROJECT))
        gone = [{"machine": SHOP, "name": "several", "state": "absent"}]
        assert changes(running.play("publish_queues", queues=gone).ok()) != {}
        if whole:
            assert changes(running.play("publish_queues", queues=gone).ok()) == {}


class TestUpgrade:
    async def test_every_node_is_upgraded_under_a_stream_of_messages(
        self, running: LabEnterprise, whole: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """From the client through its routing server to the other site, until all are upgraded."""
        source = another_release(tmp_path)
        stream = Stream(
            lambda: running.socket(SHOP), lambda: running.socket(GATE), public_name(running, rf"{GATE}\picking"),
            rf"{GATE}\picking", count=1_000_000, rate=100.0, pause=0.1,
        )  # fmt: skip
        await stream.start()

        upgraded = await asyncio.to_thread(running.play, "upgrade", queue_manager_source=str(source))

        report = await stream.finish(PATIENCE, enough=True)
        async with qmnode.connect(running.socket(SHOP)) as node:
            await node.delete_queue(COUNTER)  # it holds a message: this machine could not be taken out later
        assert upgraded.ok().changed > 0
        assert_perfect(report, capsys, "while every node was upgraded")
        assert all("99.0.0" in release(running, host) for host in (ROUTER, SHOP, GATE))
        if whole:
            assert running.play("upgrade", queue_manager_source=str(source)).ok().changed == 0


class TestBackup:
    async def test_to_a_folder(self, running: LabEnterprise, tmp_path: Path) -> None:
        await send(running, SHOP, rf"{GATE}\picking", b"1", b"2", b"3")
        await arrived(running, GATE, "picking", 3)

        play(running, True, "backup", backup_to=str(folder(running)), backup_name="first")

        kept = {path.name: path for path in folder(running).iterdir()}
        assert kept.keys() == {f"{name}-first.tar.gz" for name in ("controller", ROUTER, SHOP, GATE)}
        assert all(not path.stat().st_mode & 0o077 for path in (folder(running), *kept.values()))
        left = running.hosts.path(GATE, "/var/lib/qmnode-backups")
        assert not list(left.iterdir()), "nothing of it stays on the host"

    async def test_a_restored_node_has_its_messages_back_and_gives_out_no_identifier_twice(
        self, running: LabEnterprise, whole: bool
    ) -> None:
        (before,) = await send(running, GATE, rf"{SHOP}\orders", b"of the original")
        await send(running, SHOP, rf"{GATE}\picking", b"4", b"5")
        assert await receive(running, GATE, "picking", 5) == [b"1", b"2", b"3", b"4", b"5"]

        first = {"backup_from": str(folder(running)), "backup_name": "first"}
        done = play(running, whole, "restore", "--limit", GATE, **first)
        assert (
            "received since the backup was made are received again" in done.said and "store: it is a copy" in done.said
        )

        await send(running, SHOP, rf"{GATE}\picking", b"6", b"7")
        assert await receive(running, GATE, "picking", 5) == [b"1", b"2", b"3", b"6", b"7"]
        (after,) = await send(running, GATE, rf"{SHOP}\orders", b"of the copy")
        assert number(after) > number(before) + IDENTIFIER_JUMP
        assert await receive(running, SHOP, "orders", 2) == [b"of the original", b"of the copy"]

    def test_a_backup_that_is_not_whole_changes_nothing(self, running: LabEnterprise) -> None:
        process = running.hosts.node_process(SHOP)
        whole = (folder(running) / f"{SHOP}-first.tar.gz").read_bytes()
        (folder(running) / f"{SHOP}-cut.tar.gz").write_bytes(whole[:1000])

        cut = running.play("restore", "--limit", SHOP, backup_from=str(folder(running)), backup_name="cut")

        assert cut.code != 0
        assert "the node goes on with what it has" in cut.said
        assert running.hosts.node_process(SHOP) == process
        assert changes(cut) == {}

    @pytest.mark.soak
    async def test_to_s3(self, in_s3: LabEnterprise) -> None:
        await send(in_s3, GATE, rf"{SHOP}\orders", b"waits")
        await arrived(in_s3, SHOP, "orders", 1)

        wanted = {"backup_to": PLACE, "backup_name": "second"}
        assert changes(in_s3.play("backup", **wanted).ok()) == dict.fromkeys(("localhost", ROUTER, SHOP, GATE), 1)
        assert changes(in_s3.play("backup", "--limit", SHOP, **wanted).ok()) == {}

        assert await receive(in_s3, SHOP, "orders", 1) == [b"waits"]

    @pytest.mark.soak
    async def test_what_is_wrong_is_found_and_a_node_comes_back_from_s3(self, in_s3: LabEnterprise) -> None:
        """A wrong clock, a node that does not run, and two with one identity: a node with the store of another."""
        shutil.copy(folder(in_s3) / f"{GATE}-first.tar.gz", folder(in_s3) / f"{SHOP}-copied.tar.gz")
        place = {"backup_from": str(folder(in_s3)), "backup_name": "copied"}
        copied = in_s3.play("restore", "--limit", SHOP, queue_manager_ready_seconds=3, **place)
        assert copied.code != 0, "it is not who the directory says"
        await answers(in_s3, SHOP)
        before = set_variables(in_s3, ROUTER, queue_manager_python=shifted_python(in_s3, ROUTER, 90))
        in_s3.hosts.stop_node(ROUTER)

        found = in_s3.play("verify")

        set_variables(in_s3, ROUTER, **before)
        in_s3.hosts.start_node(ROUTER)
        await answers(in_s3, ROUTER)
        assert found.code != 0
        twin = qmnode_guid(await identifier(in_s3, GATE))
        assert f"{SHOP} and {GATE} are one queue manager ({twin})" in found.said
        assert f"{ROUTER} is not fit" in found.said
        assert "s off the controller's" in found.said
        assert f"{ROUTER}: the node does not answer" in found.said
        assert found.at_fault == {ROUTER, SHOP, GATE}

        in_s3.play("restore", "--limit", SHOP, backup_from=PLACE, backup_name="second").ok()

        assert qmnode_guid(await identifier(in_s3, SHOP)) != twin
        assert await receive(in_s3, SHOP, "orders", 1) == [b"waits"]


def test_no_secret_is_in_what_was_said_and_in_the_logs_of_the_hosts(running: LabEnterprise) -> None:
    assert_kept(running)


class TestMove:
    def test_a_name_that_is_wrong_and_a_gate_are_not_moved(self, running: LabEnterprise) -> None:
        nobody = running.play("move_site", machine="nobody", site="Bremen")
        assert nobody.code != 0
        assert "There is no queue manager nobody" in nobody.said
        gate = running.play("move_site", machine=GATE, site="Amsterdam")
        assert gate.code != 0
        assert "the routing link Amsterdam - Bremen would not work any more" in gate.said
        assert changes(nobody) == changes(gate) == {}

    async def test_a_machine_belongs_to_its_new_site_and_messages_flow(
        self, running: LabEnterprise, whole: bool
    ) -> None:
        await send(running, SHOP, rf"{GATE}\picking", b"8")
        assert await receive(running, GATE, "picking", 1) == [b"8"]
        assert await next_hop(running, SHOP) == running.hosts.addresses[ROUTER]

        moved = play(running, whole, "move_site", machine=SHOP, site="Bremen")

        lost = f"{SHOP} no longer sends or receives through {ROUTER}, which is not in Bremen"
        assert lost in " ".join(moved.said.split())

        explained = json.loads(running.command("route", "explain", SHOP, GATE, "--json").stdout)
        assert explained["path"] == [SHOP, GATE]
        await send(running, SHOP, rf"{GATE}\picking", b"9")
        await send(running, ROUTER, rf"{SHOP}\orders", b"to Bremen")
        assert await receive(running, GATE, "picking", 1) == [b"9"]
        assert await receive(running, SHOP, "orders", 1) == [b"to Bremen"]
        assert await next_hop(running, SHOP) == running.hosts.addresses[GATE], "its own node knows its site"


class TestDecommission:
    def test_a_gate_is_needed(self, running: LabEnterprise) -> None:
        refused = running.play("decommission", machine=GATE)
        assert refused.code != 0
        assert "the routing link Amsterdam - Bremen would not work any more" in refused.said

    async def test_a_node_with_messages_goes_on(self, running: LabEnterprise) -> None:
        await send(running, ROUTER, rf"{SHOP}\orders", b"unread")
        await arrived(running, SHOP, "orders", 1)

        refused = running.play("decommission", machine=SHOP)

        assert refused.code != 0
        assert r"AMS-SHOP\\orders: 1" in refused.said
        assert changes(refused) == {}
        assert await receive(running, SHOP, "orders", 1) == [b"unread"]

    def test_a_node_without_messages_is_gone(self, running: LabEnterprise, whole: bool) -> None:
        done = play(running, whole, "decommission", machine=SHOP)

        # On the host its service and its settings; on the controller its login, its queue and its entry.
        assert changes(done) == {SHOP: 2, "localhost": 3}
        assert f"Delete {running.host_variables(SHOP)} as well." in done.said
        assert SHOP not in running.command("queue", "list", "--json").stdout
        assert running.command("route", "explain", SHOP, GATE, check=False).returncode != 0
        assert not running.hosts.path(SHOP, "/etc/qmnode").exists(), "its password and its key are gone"
        assert not running.socket(SHOP).exists()
        assert running.hosts.path(SHOP, "/var/lib/qmnode/CURRENT").exists(), "its store stays"
        if running.is_real:
            assert (
                "could not be found" in running.lab.hosts[SHOP].do("systemctl", "status", "qmnode", check=False).stderr
            )


def folder(enterprise: LabEnterprise) -> Path:
    """Where the operator keeps backups."""
    return enterprise.folder / "backups"


async def arrived(enterprise: LabEnterprise, host: str, name: str, count: int) -> None:
    deadline = time.monotonic() + 180
    while await holds(enterprise, host, name) < count:
        assert time.monotonic() < deadline, f"{name} has not {count} messages"
        await asyncio.sleep(0.1)


async def answers(enterprise: LabEnterprise, host: str) -> None:
    """Wait until a node that was started takes applications."""
    deadline = time.monotonic() + 180
    while True:
        try:
            await identifier(enterprise, host)
        except (OSError, MessageQueuingError):
            assert time.monotonic() < deadline, f"{host} does not answer"
            await asyncio.sleep(0.1)
        else:
            return


async def next_hop(enterprise: LabEnterprise, host: str) -> str:
    """Where a node sends what is for the gate."""
    name = public_name(enterprise, rf"{GATE}\picking")
    async with qmnode.connect(enterprise.socket(host)) as node:
        (hop,) = {
            hop
            for queue in await node.queues([QueueType.OUTGOING])
            if queue.pathname == name
            for hop in queue.next_hops
        }
    return str(hop)


def qmnode_guid(value: bytes) -> str:
    from qmnode.structures.guid import Guid, guid_to_text

    return guid_to_text(Guid(value))


def shifted_python(enterprise: LabEnterprise, host: str, seconds: float) -> str:
    """A Python on a host for which it is later: hosts of one machine have one clock."""
    place = enterprise.hosts.path(host, "/var/tmp/later")
    place.mkdir()
    real = enterprise.hosts.inventory(host)["queue_manager_python"]
    seen = "/var/tmp/later" if enterprise.is_real else str(place)
    (place / "sitecustomize.py").write_text(f"import time\nreal = time.time\ntime.time = lambda: real() + {seconds}\n")
    (place / "python").write_text(f'#!/bin/sh\nPYTHONPATH={seen} exec {real} "$@"\n')
    (place / "python").chmod(0o755)
    return f"{seen}/python"
