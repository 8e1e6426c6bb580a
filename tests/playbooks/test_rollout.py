"""From a declaration to running nodes, as an operator does it: check first, run, run again, and what goes wrong.

The tests of a class are the chapters of one story, in order: ``make test`` has a short one, ``make soak`` the whole.
"""

from __future__ import annotations

import json
import os
import socket
import stat
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import qmnode
from tests.lab.enterprise import PLAYBOOKS, PROJECT
from tests.playbooks.secrecy import assert_kept

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.lab.enterprise import LabEnterprise

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.timeout(900)]
SHOP, ROUTER = "ams-shop", "ams-router"


class TestRollOut:
    def test_nothing_is_declared_yet(self, small: LabEnterprise, whole: bool) -> None:
        empty = small.play("rollout")
        assert empty.code != 0
        assert "no queue manager in the inventory" in empty.said
        for playbook in ("verify", "restore", "backup", "rotate_keys", "upgrade"):
            first = yaml.safe_load((PLAYBOOKS / f"{playbook}.yml").read_text())[0]["tasks"][0]["ansible.builtin.assert"]
            assert "groups['queue_managers'] | default([]) | length > 0" in first["that"], playbook
            assert "no queue manager in the inventory" in first["fail_msg"]
        empty = small.play("monitoring")
        assert empty.code != 0
        assert "There is no host in the group monitoring of the inventory" in empty.said
        first = yaml.safe_load((PLAYBOOKS / "directory.yml").read_text())[0]["tasks"][0]["ansible.builtin.assert"]
        assert "groups['directory_servers'] | default([]) | length > 0" in first["that"]
        assert "There is no host in the group directory_servers of the inventory" in first["fail_msg"]

        from_here = os.path.relpath(small.declared, PROJECT)
        foretold = small.play("provision", "--check", "--diff", declared=from_here).ok()
        assert foretold.changed == 1
        assert small.command("plan", str(small.declared), check=False).returncode == 2

        done = small.play("provision", declared=str(small.declared)).ok()

        assert done.changed == foretold.changed
        assert small.command("plan", str(small.declared), check=False).returncode == 0
        if whole:
            assert small.play("provision", declared=str(small.declared)).ok().changed == 0

    def test_a_check_tells_what_will_be_done_and_does_nothing(self, small: LabEnterprise) -> None:
        foretold = small.play("rollout", "--check", "--diff").ok()

        assert "computer_name: AMS-SHOP" in foretold.said
        assert not small.hosts.path(SHOP, "/etc/qmnode").exists()
        assert not small.releases.exists()
        done = small.play("rollout", "-vvv", "--diff").ok()
        assert done.changed == foretold.changed

    def test_a_node_that_does_not_become_ready(self, small: LabEnterprise) -> None:
        """Somebody else has its port. The next run goes on from there; the test after this one finds nothing left."""
        small.hosts.stop_node(ROUTER)
        with somebody_listens(small, ROUTER):
            stopped = small.play("rollout", queue_manager_ready_seconds=20)
            assert stopped.code != 0
            assert f"{ROUTER}, at " in stopped.said
            assert "is not ready after" in stopped.said
            assert "1801" in stopped.said, "the node's own reason is told"
            assert "run the playbook again" in stopped.said
            assert stopped.stats.get(SHOP, {"changed": 0})["changed"] == 0
        small.play("rollout", "--limit", ROUTER).ok()

    def test_again_nothing_is_changed(self, small: LabEnterprise) -> None:
        again = small.play("rollout").ok()
        assert again.changed == 0, again.said

    async def test_the_nodes_are_those_of_the_directory(self, small: LabEnterprise) -> None:
        listed = small.command("queue", "list", "--json").stdout
        queues = {each["pathname"]: each["identifier"] for each in json.loads(listed)}
        async with qmnode.connect(small.socket(SHOP)) as node:
            assert node.computer_name == "AMS-SHOP"
            found = await node.queue(r"ams-shop\orders")
        assert str(qmnode_guid(found.identifier)) == queues[r"ams-shop\orders"]

    async def test_a_node_has_its_private_queues_and_what_was_changed_by_hand_is_put_back(
        self, small: LabEnterprise, whole: bool
    ) -> None:
        assert "billing" not in small.command("queue", "list", "--json").stdout
        async with qmnode.connect(small.socket(SHOP)) as node:
            found = await node.queue(r".\private$\billing")
            assert (found.label, found.transactional, found.declared) == ("Billing", True, True)
            await node.set_queue(r".\private$\billing", label="Mine")
            if whole:
                foretold = small.play("rollout", "--check", "--diff", "--limit", SHOP).ok()
                assert foretold.changed == 1
                assert (await node.queue(r".\private$\billing")).label == "Mine"
            done = small.play("rollout", "--limit", SHOP).ok()
            assert (await node.queue(r".\private$\billing")).label == "Billing"
        assert done.changed == 1

    async def test_addresses_and_bridges_come_by_the_document_and_no_longer_by_node_yaml(
        self, small: LabEnterprise, whole: bool
    ) -> None:
        bridge = {"direction": "out", "queue": "none", "peer": "amqp://127.0.0.1:1", "address": "x"}
        given = {"queue_manager_bridges": {"declared": bridge}, "queue_manager_addresses": ["192.0.2.77"]}
        started = started_at(small, SHOP)

        small.play("rollout", "--limit", SHOP, **given).ok()

        settings = yaml.safe_load(small.hosts.path(SHOP, "/etc/qmnode/node.yaml").read_text())
        assert "bridges" not in settings and not settings["addresses"]
        async with qmnode.connect(small.socket(SHOP)) as node:
            found = (await node.status()).local_settings
            assert (found["addresses"], found["bridges"]) == (["192.0.2.77"], {"declared": "document"})
        if whole:
            assert small.play("rollout", "--limit", SHOP, **given).ok().changed == 0
        small.play("rollout", "--limit", SHOP).ok()
        async with qmnode.connect(small.socket(SHOP)) as node:
            assert not (await node.status()).bridges
        assert started_at(small, SHOP) == started, "no change of a document needs a restart"

    def test_secrets_are_for_the_node_alone(self, small: LabEnterprise) -> None:
        for name in ("key.pem", "directory.password", "directory.yaml"):
            mode = small.hosts.path(SHOP, f"/etc/qmnode/{name}").stat().st_mode
            assert not mode & (stat.S_IRWXG | stat.S_IRWXO), name
        kept = [path for path in small.releases.parent.rglob("*") if path.name in ("key.pem", "ca.key")]
        assert kept
        assert all(not path.stat().st_mode & 0o077 for path in kept)

    def test_a_chosen_host_has_an_amqp_door_with_its_certificate(self, small: LabEnterprise) -> None:
        verified = small.play("verify").ok()

        assert f"{SHOP}: its AMQP door is at port 5671" in verified.said
        assert f"{ROUTER}: its AMQP door" not in verified.said

    @pytest.mark.soak
    def test_a_door_that_cannot_be_used_is_a_fault(self, small: LabEnterprise) -> None:
        """What verify makes of what a node says is in tests/collection/test_filters.py as well."""
        wrong = {
            "bridges": {"out": {"direction": "out", "queue": "none", "peer": "amqp://127.0.0.1:1", "address": "x"}}
        }
        small.play("rollout", "--limit", SHOP, queue_manager_settings=wrong).ok()

        verified = small.play("verify", "--limit", SHOP)

        assert verified.code != 0
        assert f"{SHOP}: its bridge out is down: amqp://127.0.0.1:1" in verified.said

    def test_settings_that_were_changed_by_hand_are_put_right(self, small: LabEnterprise) -> None:
        """And those that an earlier run was given, and this one is not."""
        settings = small.hosts.path(SHOP, "/etc/qmnode/node.yaml")
        before = settings.read_text()
        settings.write_text(before.replace("AMS-SHOP", "SOMEBODY"))
        started = started_at(small, SHOP)

        small.play("rollout", "--limit", SHOP).ok()

        found = yaml.safe_load(settings.read_text())
        assert found | {"bridges": None} == yaml.safe_load(before) | {"bridges": None}
        assert not found.get("bridges")
        assert started_at(small, SHOP) != started

    def test_a_certificate_is_renewed_in_time(self, small: LabEnterprise) -> None:
        before = small.hosts.path(SHOP, "/etc/qmnode/certificate.pem").read_bytes()
        started = started_at(small, SHOP)

        renewed = small.play("rollout", "--limit", SHOP, queue_manager_renew_before=3000).ok()

        assert renewed.changed > 0
        assert small.hosts.path(SHOP, "/etc/qmnode/certificate.pem").read_bytes() != before
        assert started_at(small, SHOP) == started, "a renewed certificate needs no restart"

    def test_a_node_that_cannot_log_in_any_more_is_let_in_again(
        self, small: LabEnterprise, tmp_path: Path, whole: bool
    ) -> None:
        small.command("directory", "admit", SHOP, "--output", str(tmp_path / "elsewhere"))
        refused = small.play("rotate_keys", "--check", "--limit", SHOP)
        assert refused.code != 0
        assert "or the password is wrong" in refused.said

        if whole:
            assert small.play("rollout", "--check", "--limit", SHOP).ok().changed > 0
        small.play("rollout", "--limit", SHOP).ok()

        # The keys are rotated with its login. Begun again, as after a cut, the rotation finds them new.
        begun = datetime.now(UTC).isoformat(timespec="seconds")
        assert small.play("rotate_keys", "-vvv", "--limit", SHOP, rotation_begun=begun).ok().changed == 1
        if whole:
            assert small.play("rotate_keys", "--limit", SHOP, rotation_begun=begun).ok().changed == 0

    @pytest.mark.soak
    def test_a_rotation_begins_at_a_moment_that_was(self, small: LabEnterprise) -> None:
        """Other mistakes are refused by the same program: tests/collection/test_rotation.py."""
        refused = small.play("rotate_keys", "--limit", SHOP, rotation_begun="yesterday")
        assert refused.code != 0
        assert "rotation_begun is" in refused.said
        assert "Traceback" not in refused.said
        assert refused.changed == 0

    def test_no_secret_is_in_what_was_said_and_in_the_logs_of_the_hosts(self, small: LabEnterprise) -> None:
        assert_kept(small)


class TestFaults:
    """Each stops the play, names the host and what to do, harms nothing else, and is gone on from.

    TestRollOut has the node that does not become ready.
    """

    def test_a_host_that_is_away(self, small: LabEnterprise, whole: bool) -> None:
        if not small.is_real:
            pytest.skip("hosts without a network of their own cannot be away")
        small.lab.network.unplug(SHOP)
        stopped = small.play("rollout")
        assert stopped.code != 0
        assert f"{SHOP} cannot be reached" in stopped.said
        assert "run the playbook again" in stopped.said
        assert stopped.stats[ROUTER]["changed"] == 0
        assert stopped.at_fault == {SHOP}
        assert "--limit 'queue_managers,!ams-shop' or -e queue_manager_failures=continue" in stopped.said

        went_on = small.play("rollout", queue_manager_failures="continue", queue_manager_failures_percent=50)

        assert went_on.code != 0
        assert went_on.at_fault == {SHOP}
        assert f"The others went on without {SHOP}" in went_on.said
        assert f"ansible-playbook playbooks/rollout.yml --limit {SHOP}" in went_on.said
        assert went_on.stats[ROUTER]["ok"] > stopped.stats[ROUTER]["ok"]
        if whole:  # tests/collection/test_filters.py has what each of these leaves out
            left_out = small.play("rollout", queue_manager_failures="site", queue_manager_failures_percent=50)
            assert left_out.at_fault == {SHOP, ROUTER}
            assert f"since its site has a host at fault: {SHOP}" in left_out.said
            bounded = small.play("rollout", queue_manager_failures="continue", queue_manager_failures_percent=49)
            assert "more than queue_manager_failures_percent (49) allows: ams-shop" in bounded.said
            assert bounded.stats[ROUTER]["ok"] <= stopped.stats[ROUTER]["ok"]
        small.lab.network.plug(SHOP)
        assert small.play("rollout", "--limit", SHOP).ok().changed == 0, "also since the node was let in again"

    @pytest.mark.soak
    @pytest.mark.timeout(1800)
    def test_other_playbooks_go_on_without_a_host_that_is_away(self, small: LabEnterprise, tmp_path: Path) -> None:
        if not small.is_real:
            pytest.skip("hosts without a network of their own cannot be away")
        small.lab.network.unplug(SHOP)
        allowed = {"queue_manager_failures": "continue", "queue_manager_failures_percent": 50}
        for playbook, asked in (("upgrade", {}), ("rotate_keys", {}), ("tls", {"queue_manager_tls": "offer"})):
            stopped = small.play(playbook, **asked)
            assert stopped.at_fault == {SHOP}, stopped.said
            assert f"{SHOP} cannot be reached" in stopped.said
            assert "or -e queue_manager_failures=continue" in stopped.said
            went_on = small.play(playbook, **asked, **allowed)
            assert went_on.at_fault == {SHOP}, went_on.said
            assert f"ansible-playbook playbooks/{playbook}.yml --limit {SHOP}" in went_on.said
            assert went_on.stats[ROUTER]["failures"] == 0
            passed_over = small.play(playbook, **asked, **allowed | {"queue_manager_failures": "site"})
            assert passed_over.at_fault == {SHOP, ROUTER}, passed_over.said
        backed_up = small.play("backup", backup_to=str(tmp_path), backup_name="one")
        assert backed_up.at_fault == {SHOP}, backed_up.said
        assert f"{SHOP} cannot be reached" in backed_up.said
        again = f"ansible-playbook playbooks/backup.yml -e backup_to={tmp_path} -e backup_name=one --limit {SHOP}"
        assert again in backed_up.said
        assert (tmp_path / f"{ROUTER}-one.tar.gz").exists()
        verified = small.play("verify")
        assert verified.at_fault == {SHOP}, verified.said
        refused = small.play("tls", queue_manager_tls="require", **allowed)
        assert "this one could still speak in clear" in refused.said
        assert refused.changed == 0
        small.lab.network.plug(SHOP)
        small.play("tls", queue_manager_tls="offer").ok()
        small.play("rollout").ok()

    def test_a_host_with_another_key(self, small: LabEnterprise) -> None:
        if not small.is_real:
            pytest.skip("hosts without ssh have no key")
        small.lab.hosts[SHOP].new_key()
        small.lab.drop_connections()
        small.lab.hosts[SHOP].do("systemctl", "restart", "ssh")
        small.lab.hosts[SHOP].wait_until_up()
        stopped = small.play("rollout")
        assert stopped.code != 0
        assert f"{SHOP} cannot be reached" in stopped.said
        assert "ssh-keygen -R" in stopped.said
        small.lab.write_known_hosts()  # the next roll-out reaches it again

    def test_a_full_disk(self, small: LabEnterprise) -> None:
        """What is installed needs no room; so a host that lost its release is where it is missed."""
        with no_room(small) as wanted:
            stopped = small.play("rollout", "--limit", SHOP, **wanted)
            assert stopped.code != 0
            assert f"{SHOP} is not fit, and nothing was done to it" in stopped.said
            assert "make room on the disk" in stopped.said

    def test_a_run_that_was_cut_before_the_restart_is_gone_on_with(self, small: LabEnterprise) -> None:
        """Also the one before, which found no room."""
        os.utime(small.hosts.path(SHOP, "/etc/qmnode/node.yaml"))
        started = started_at(small, SHOP)

        small.play("rollout", "--limit", SHOP).ok()

        assert started_at(small, SHOP) != started

    @pytest.mark.parametrize(
        ("wrong", "told", "arguments"),
        [
            (
                {
                    "queue_manager_settings": {
                        "quotas": {"queue_manager_quotta": 1},
                        "transfer": {"retry_interval": "soon"},
                    }
                },
                [
                    "node.yaml: quotas.queue_manager_quotta: no such setting (did you mean queue_manager_quota?)",
                    "transfer.retry_interval:",
                ],
                [],
            ),
            pytest.param(
                {"queue_manager_management_listen": "127.0.0.1:8443", "queue_manager_tokens": [{"nam": "grafana"}]},
                ["tokens.yaml: 0.name: Field required"],
                ["--check"],
                marks=pytest.mark.soak,
            ),
        ],
    )
    def test_settings_that_are_wrong(
        self, small: LabEnterprise, wrong: dict[str, Any], told: list[str], arguments: list[str]
    ) -> None:
        """The node that runs is not stopped for them, and a check finds them too.

        Other mistakes are found by the same program: tests/collection/test_check_settings.py.
        """
        process = started_at(small, SHOP)
        stopped = small.play("rollout", *arguments, "--limit", SHOP, **wrong)
        assert stopped.code != 0
        assert f"The node of {SHOP} would not start with its settings" in stopped.said
        for mistake in told:
            assert mistake in stopped.said
        assert stopped.changed == 0
        assert stopped.at_fault == {SHOP}
        assert started_at(small, SHOP) == process


def qmnode_guid(identifier: bytes) -> str:
    """As the command line writes it."""
    from qmnode.structures.guid import Guid, guid_to_text

    return guid_to_text(Guid(identifier))


def started_at(enterprise: LabEnterprise, host: str) -> str:
    """What names the process of a node."""
    return enterprise.hosts.node_process(host)


@contextmanager
def no_room(enterprise: LabEnterprise) -> Iterator[dict[str, Any]]:
    """A small file system where the node keeps its data; without root, a need that no disk meets."""
    if not enterprise.is_real:
        yield {"queue_manager_free_bytes": 1 << 60, "queue_manager_install": str(enterprise.folder / "elsewhere")}
        return
    host = enterprise.lab.hosts[SHOP]
    host.do("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/mnt")
    try:
        yield {"queue_manager_install": "/mnt/qmnode"}
    finally:
        host.do("umount", "/mnt")


@contextmanager
def somebody_listens(enterprise: LabEnterprise, host: str) -> Iterator[None]:
    """The port of the binary protocol is taken."""
    if not enterprise.is_real:
        with socket.create_server((enterprise.hosts.addresses[host], 1801)):
            yield
        return
    listen = "import socket,time; s = socket.create_server(('', 1801)); time.sleep(600)"
    machine = enterprise.lab.hosts[host]
    machine.do("systemd-run", "--unit=intruder", "/usr/bin/python3", "-c", listen)
    try:
        yield
    finally:
        machine.do("systemctl", "stop", "intruder")
