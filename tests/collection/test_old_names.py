"""The names that the collection had: each leads to the one of the same name, with a warning, for one release."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.collection.conftest import COLLECTION, COLLECTIONS, REPOSITORY
from tests.collection.test_ansible import run

OLD = COLLECTIONS / "ansible_collections/msmq/enterprise"
NEW = {
    *("carry", "carrying", "check_settings", "credentials", "distribution_list", "distribution_list_info"),
    "left_out",
    *("queue_alias", "queue_alias_info", "script", "survey_info", "switch"),
}
"""Plugins that came after the collection got its name: they have no old one."""
KINDS = ("action", "doc_fragments", "filter", "inventory", "lookup", "modules")


def test_each_plugin_is_redirected_and_each_role_has_a_twin() -> None:
    routing = yaml.safe_load((OLD / "meta/runtime.yml").read_text())["plugin_routing"]

    for kind in KINDS:
        names = {path.stem for path in (COLLECTION / "plugins" / kind).glob("*.py")}
        assert {name: row["redirect"] for name, row in routing[kind].items()} == {
            name: f"mqenterprise.fleet.{name}" for name in names - NEW
        }
    assert set(routing) == set(KINDS)
    roles = {path.name for path in (OLD / "roles").iterdir()}
    assert roles == {path.name for path in (COLLECTION / "roles").iterdir()} - {"reconcile"}
    versions = [yaml.safe_load((folder / "galaxy.yml").read_text())["version"] for folder in (OLD, COLLECTION)]
    assert versions[0] == versions[1]


def test_a_playbook_and_an_inventory_of_the_old_names_work(tmp_path: Path) -> None:
    inventory = tmp_path / "lab.msmq.yaml"
    declared = str(REPOSITORY / "inventory/contoso.yaml")
    inventory.write_text(
        yaml.safe_dump({"plugin": "msmq.enterprise.directory", "source": "declared", "declared": declared})
    )
    playbook = tmp_path / "play.yml"
    group = {"group/msmq.enterprise.directory": {"directory_file": "/nonexistent/of-the-group.yaml"}}
    tasks = [
        {"msmq.enterprise.site_info": {}, "ignore_errors": True},
        {"import_role": {"name": "msmq.enterprise.monitoring"}, "vars": {"monitoring_root": str(tmp_path / "root")}},
    ]
    play = {"hosts": "ams-router", "connection": "local", "gather_facts": False, "module_defaults": group}
    variables = {"ansible_python_interpreter": "{{ ansible_playbook_python }}"}
    playbook.write_text(yaml.safe_dump([play | {"vars": variables, "tasks": tasks}]))

    answer = run("ansible-playbook", "-i", inventory, playbook)

    said = answer.stdout + answer.stderr
    assert "write 'plugin: mqenterprise.fleet.directory'" in " ".join(said.split())
    assert "of-the-group.yaml cannot be read" in said
    assert "Write mqenterprise.fleet.site_info" in said
    assert (tmp_path / "root/etc/prometheus/rules/msmq.rules.yml").exists()
