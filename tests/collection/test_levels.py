"""Settings of nodes are merged by key over all levels that give them, and one that reaches no node is an error."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.collection.conftest import COLLECTION
from tests.collection.test_ansible import PLAYBOOKS, run
from tests.playbooks.conftest import sample

pytestmark = pytest.mark.slow
ROUTER, SHOP, FAR = "ams-router", "ams-shop", "bre-router"
AT_FAULT = re.compile(r"^(\S+) .*failed=[1-9]", re.MULTILINE)
ADDED = re.compile(r"^\+(?!\+\+)(.*)$", re.MULTILINE)


class Inventory:
    """Three machines of the sample, hosts in folders of this machine, and files of variables beside the inventory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "inventory"
        self.folder.mkdir()
        self.file = self.folder / "lab.msmq.yaml"
        self.state = folder / "state"
        (self.folder / "enterprise.yaml").write_text(yaml.safe_dump(sample(ROUTER, SHOP, FAR) | {"foreign_sites": []}))
        self.describe()
        self.local = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "queue_manager_python": sys.executable,
            "queue_manager_service": "process",
            "queue_manager_root": f"{folder}/{{{{ inventory_hostname }}}}",
        }

    def describe(self, **options: object) -> None:
        """The inventory itself, with these options of its plugin."""
        plugin = {"plugin": "mqenterprise.fleet.directory", "source": "declared", "declared": "enterprise.yaml"}
        self.file.write_text(yaml.safe_dump(plugin | options))

    def give(self, place: str, **variables: object) -> None:
        """Variables of ``group_vars/NAME`` or ``host_vars/NAME``."""
        file = self.folder / f"{place}.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(yaml.safe_dump(variables))

    def play(self, *arguments: str, code: int = 0, **extra: object) -> str:
        """What the roll-out says, checked."""
        given = (*arguments, "--check", "--diff", "-e", json.dumps(extra))
        playbook = ("-i", self.file, PLAYBOOKS / "rollout.yml", *given)
        done = run("ansible-playbook", *playbook, cwd=self.folder, code=code, XDG_STATE_HOME=str(self.state))
        return done.stdout + done.stderr

    def declare(self, **more: object) -> None:
        """The enterprise as it is, and this."""
        file = self.folder / "enterprise.yaml"
        file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | more))


def settings(said: str) -> dict[str, dict[str, Any]]:
    """The settings that each node would get."""
    found = {}
    for part in said.split("+++ after: ")[1:]:
        path, _, rest = part.partition("\n")
        if path.endswith("etc/qmnode/node.yaml"):
            host = path.removesuffix("/etc/qmnode/node.yaml").rpartition("/")[2]
            found[host] = yaml.safe_load("\n".join(ADDED.findall(rest.partition("\n\n")[0])))
    return found


@pytest.fixture
def inventory(tmp_path: Path) -> Inventory:
    return Inventory(tmp_path)


def quota(kilobytes: int, **more: int) -> dict[str, Any]:
    return {"quotas": {"queue_manager_quota": kilobytes, **more}}


def signer(name: str) -> dict[str, Any]:
    """A user's key, which is a setting and a file."""
    path = f"{{{{ queue_manager_config }}}}/{name}.pem"
    return {
        "settings": {"security": {"signers": {name: {"private_key": path}}}},
        "files": [{"path": path, "content": f"the key of {name}", "mode": "0600"}],
    }


def tls() -> dict[str, Any]:
    files = {"certificate": "certificate.pem", "private_key": "key.pem", "authorities": "ca.pem"}
    return {name: f"{{{{ queue_manager_config }}}}/{file}" for name, file in files.items()} | {"peers": ["*"]}


BRIDGE = {
    "direction": "out", "queue": "orders", "peer": "amqps://b.example", "address": "billing", "user": "shop",
    "password_secret": {"name": "billing"},
}  # fmt: skip


COPY = {"to": "/mnt/copies/shop", "key": "/etc/qmnode/copy.key"}


class TestEveryLevel:
    """What one roll-out plans for settings that every level gives, and for a bridge that the enterprise declares."""

    @pytest.fixture(scope="class")
    def said(self, tmp_path_factory: pytest.TempPathFactory) -> str:
        inventory = Inventory(tmp_path_factory.mktemp("levels"))
        desk, shop = signer("desk"), signer("shop")
        inventory.describe(groups={"accounting": f"inventory_hostname == '{SHOP}'"})
        inventory.declare(bridges=[{"machine": SHOP, "name": "out", **BRIDGE}])
        inventory.give("group_vars/all", **inventory.local, queue_manager_settings={"transfer": {"retry_interval": 7}})
        security = desk["settings"]["security"] | {"tls": tls()}
        every = quota(1000, journal_quota=100) | {"security": security}
        inventory.give(
            "group_vars/queue_managers", queue_manager_settings=every, queue_manager_more_files=desk["files"]
        )
        inventory.give("group_vars/accounting", queue_manager_settings=quota(2000))
        inventory.give("group_vars/site_amsterdam", queue_manager_settings={"transfer": {"retry_maximum": 70}})
        inventory.give("group_vars/site_bremen", queue_manager_settings=quota(9000))
        host = {"transfer": {"retry_interval": 8}, "bridges": {"out": {"window": 50}}} | shop["settings"]
        host["management"] = {"key_rotation": {"modulus_length": 3072}}
        host["storage"] = {"remote_copy": {"lag": 5}}
        inventory.give(
            f"host_vars/{SHOP}",
            queue_manager_settings=host,
            queue_manager_more_files=shop["files"],
            queue_manager_key_rotation=True,
            msmq_remote_copy=COPY,
        )
        inventory.give(f"host_vars/{FAR}", routing_server_more_settings={"transfer": {"retry_interval": 9}})
        return inventory.play(queue_manager_settings={"transport": {"address": "127.0.0.1"}})

    @pytest.fixture
    def found(self, said: str) -> dict[str, dict[str, Any]]:
        return settings(said)

    def test_it_is_merged_by_key_into_the_settings_of_every_node(
        self, said: str, found: dict[str, dict[str, Any]]
    ) -> None:
        assert {host: each["quotas"]["queue_manager_quota"] for host, each in found.items()} == {
            ROUTER: 1000,  # what an operator says of all counts more than what the role has for routing servers
            SHOP: 2000,
            FAR: 9000,
        }
        assert {host: each["transfer"] for host, each in found.items()} == {
            ROUTER: {"retry_interval": 7, "retry_maximum": 70},
            SHOP: {"retry_interval": 8, "retry_maximum": 70},
            FAR: {"retry_interval": 9},
        }
        for host, each in found.items():
            assert each["quotas"]["journal_quota"] == 100, host
            assert each["security"]["tls"]["certificate"].endswith(f"{host}/etc/qmnode/certificate.pem")
            assert each["transport"]["address"] == "127.0.0.1"
        assert found[ROUTER]["security"]["signers"].keys() == {"desk"}
        assert found[SHOP]["security"]["signers"].keys() == {"desk", "shop"}
        keys = re.findall(r"\+\+\+ after: .*/([\w-]+)/etc/qmnode/(\w+)\.pem\n", said)
        assert {(ROUTER, "desk"), (FAR, "desk"), (SHOP, "desk"), (SHOP, "shop")} == {
            (host, name) for host, name in keys if name in ("desk", "shop")
        }

    def test_keys_rotate_from_the_console_only_where_a_variable_permits_it(
        self, found: dict[str, dict[str, Any]]
    ) -> None:
        assert {host: each["management"].get("key_rotation") for host, each in found.items()} == {
            ROUTER: None,
            SHOP: {"enabled": True, "modulus_length": 3072},
            FAR: None,
        }

    def test_a_declared_copy_is_in_the_settings_of_the_node_below_its_own(
        self, found: dict[str, dict[str, Any]]
    ) -> None:
        assert found[SHOP]["storage"]["remote_copy"] == {**COPY, "lag": 5}
        assert "storage" not in found[FAR]

    def test_a_declared_bridge_travels_in_the_document_with_what_settings_say_of_it(
        self, said: str, found: dict[str, dict[str, Any]]
    ) -> None:
        assert {host: each.get("bridges", {}) for host, each in found.items()} == {ROUTER: {}, SHOP: {}, FAR: {}}
        assert f"{SHOP}: what its document declares will be made: 0 private queues, 1 bridges" in said


def test_settings_that_reach_no_node_stop_before_a_host_is_touched(inventory: Inventory) -> None:
    """The hosts are those of the sample, which do not answer: they are not even looked at."""
    inventory.give("host_vars/ams-ruter", queue_manager_settings=quota(1))
    inventory.give("group_vars/site_bremem", queue_manager_listen="::")
    inventory.give(f"host_vars/{SHOP}", routing_server_more_settings=quota(1))
    inventory.give("group_vars/connectors", queue_manager_settings=quota(1))
    inventory.give("group_vars/all", queue_managers_settings=quota(1), queue_manager_state="state", ntp="ntp.test")

    said = inventory.play(code=2)

    for name, where, why in (
        (
            "queue_manager_settings",
            "host_vars/ams-ruter",
            "there is no host ams-ruter in the inventory, did you mean ams-router? If the host is gone, "
            "delete the file.",
        ),
        (
            "queue_manager_listen",
            "group_vars/site_bremem",
            "there is no group site_bremem in the inventory, did you mean site_bremen?",
        ),
        ("routing_server_more_settings", f"the host {SHOP}", "no routing server is among its hosts"),
        ("queue_manager_settings", "the group connectors", "the group has no hosts"),
    ):
        assert f"{name}, which {where} gives, reaches no node: {why}" in said
    misspelt = "queue_managers_settings, which the group all gives, is no variable of a node"
    assert f"{misspelt}: did you mean queue_manager_settings?" in said
    assert said.count(", which ") == 2 * 5, "each is told by the error and by its result, and nothing else is"
    assert "Look at the host" not in said
    assert AT_FAULT.findall(said) == ["localhost"]


def test_settings_with_which_a_node_would_not_start_stop_before_a_host_is_touched(inventory: Inventory) -> None:
    inventory.give(f"host_vars/{FAR}", queue_manager_settings={"quotas": {"queue_manager_quotta": 1}})

    said = inventory.play(code=2)

    assert f"The node of {FAR} would not start with its settings, and nothing was done to it" in said
    assert "Look at the host" not in said
    assert AT_FAULT.findall(said) == [FAR]


def test_what_the_command_line_gives_to_routing_servers_is_no_setting_of_another_host(inventory: Inventory) -> None:
    said = inventory.play("--limit", SHOP, code=2, routing_server_more_settings=quota(1))

    assert "which the command line gives, reaches no node: no routing server is among its hosts" in said
    assert "Look at the host" not in said


def test_files_of_other_sites_and_other_inventories_may_be_there(inventory: Inventory) -> None:
    inventory.describe(site="Bremen")
    inventory.give("group_vars/site_amsterdam", queue_manager_settings=quota(1))
    inventory.give("group_vars/all", **inventory.local)

    found = settings(inventory.play())

    assert {host: each["quotas"]["queue_manager_quota"] for host, each in found.items()} == {FAR: 8388608}
    inventory.describe()
    inventory.give("group_vars/all", **inventory.local, queue_manager_unreached="warn")
    inventory.give("group_vars/site_of_another", queue_manager_settings=quota(1))
    warned = inventory.play("--limit", f"localhost,{SHOP}")
    assert "there is no group site_of_another in the inventory" in warned


def test_the_end_of_a_mode_of_tls_that_only_a_run_had_set_is_reported(tmp_path: Path) -> None:
    ran = {"changes": "offer", "stays": "prefer", "stands": ""}
    hosts = {host: {"queue_manager_looked": {"document": {"tls_mode": mode}}} for host, mode in ran.items()}
    inventory, playbook = tmp_path / "hosts.yaml", tmp_path / "notes.yml"
    inventory.write_text(yaml.safe_dump({"all": {"hosts": hosts, "vars": {"ansible_connection": "local"}}}))
    show = {"ansible.builtin.debug": {"msg": "{{ queue_manager_notes }}"}, "when": "queue_manager_notes | length > 0"}
    role = {"vars_files": [str(COLLECTION / "roles/queue_manager/vars/main.yml")], "tasks": [show]}
    playbook.write_text(yaml.safe_dump([{"hosts": "all", "gather_facts": False, **role}]))
    wanted = {"queue_manager_checked": {"tls_mode": "prefer"}, "queue_manager_waited": {}}

    said = run("ansible-playbook", "-i", inventory, playbook, "-e", json.dumps(wanted)).stdout

    assert said.count(": its mode of TLS was ") == 1
    assert "changes: its mode of TLS was offer, and now is prefer, as queue_manager_tls says in this run" in said


def test_the_state_has_one_place_whatever_folder_ansible_is_started_in(inventory: Inventory, tmp_path: Path) -> None:
    show = {"ansible.builtin.debug": {"msg": "=={{ lookup('mqenterprise.fleet.state', 'queue_manager_state') }}=="}}
    plays = [{"hosts": hosts, "gather_facts": False, "tasks": [show]} for hosts in (ROUTER, "localhost")]
    playbook = tmp_path / "playbooks/state.yml"
    playbook.parent.mkdir()
    playbook.write_text(yaml.safe_dump(plays))

    def places(cwd: Path, *arguments: str) -> list[str]:
        said = run("ansible-playbook", "-i", inventory.file, playbook, *arguments, cwd=cwd).stdout
        return re.findall("==(.*)==", said)

    inventory.give("group_vars/queue_managers", queue_manager_state="kept/state")
    kept = str(inventory.folder / "kept/state")
    assert places(tmp_path) == places(PLAYBOOKS) == [kept, kept], "the controller's plays mean what the nodes' do"
    given = ("-e", "queue_manager_state=../given")
    assert places(PLAYBOOKS, *given) == [str(tmp_path / "given")] * 2
