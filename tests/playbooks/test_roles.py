"""Which role a playbook uses for which host: a routing server has settings of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from jinja2 import Environment

if TYPE_CHECKING:
    from collections.abc import Iterator

PLAYBOOKS = Path(__file__).parents[2] / "playbooks"
ROLE = PLAYBOOKS / "collections/ansible_collections/mqenterprise/fleet/roles/queue_manager"
WRITES_SETTINGS = ("main", "tls")
"""Entry points of the roles that write the settings of the node."""
WAYS = ("ansible.builtin.include_role", "ansible.builtin.import_role")


def tasks_of(tasks: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The tasks, with those of their blocks."""
    for task in tasks:
        yield task
        for part in ("block", "rescue", "always"):
            yield from tasks_of(task.get(part, []))


def settings_of(play: dict[str, Any], values: dict[str, Any]) -> str:
    """Of which role the settings are that the variables of a play choose; empty if they choose none."""
    chosen = play.get("vars", {})
    if "queue_manager_settings_from" not in chosen:
        return ""
    role = yaml.safe_load((ROLE / "vars/main.yml").read_text("utf-8"))
    known = {name: role[name] for name in role if name.startswith("queue_manager_routing_")}
    environment = Environment()
    environment.filters["bool"] = lambda text: text == "True"
    for name in ("rollout_routes", "queue_manager_settings_from", "queue_manager_base_settings"):
        known[name] = environment.from_string(chosen[name]).render(values | known)
    names = {
        ("['queue_manager_settings']", "{}"): "queue_manager",
        (
            "['queue_manager_settings', 'routing_server_settings', 'routing_server_more_settings']",
            "{'quotas': {'queue_manager_quota': 8388608}}",
        ): "routing_server",
    }
    return names[known["queue_manager_settings_from"], known["queue_manager_base_settings"]]


def uses(playbook: Path) -> set[tuple[str, str, bool]]:
    """Role, entry point, and whether it is a routing server's, of each use of a playbook that writes settings."""
    found = set()
    environment = Environment()
    for play in yaml.safe_load(playbook.read_text("utf-8")):
        for task in tasks_of(play.get("tasks", [])):
            role: dict[str, Any] = next((task[way] for way in WAYS if way in task), {})
            point = role.get("tasks_from", "main")
            if point not in WRITES_SETTINGS:
                continue
            for routes in (True, False):
                values: dict[str, Any] = {"msmq_roles": ["routing_server"] if routes else []}
                name = role.get("name", "").rpartition(".")[2]
                if name not in ("queue_manager", "routing_server"):
                    continue
                name = settings_of(play, values) or name
                condition = environment.compile_expression(str(task.get("when", "true")))
                if condition(**values):
                    found.add((name, point, routes))
    return found


@pytest.mark.parametrize(("playbook", "point"), [("rollout.yml", "main"), ("tls.yml", "tls")])
def test_settings_of_routing_servers_come_from_their_own_role(playbook: str, point: str) -> None:
    assert uses(PLAYBOOKS / playbook) == {
        ("routing_server", point, True),
        ("queue_manager", point, False),
    }


def test_no_other_playbook_writes_the_settings_of_nodes() -> None:
    assert {path.name for path in PLAYBOOKS.glob("*.yml") if uses(path)} == {"rollout.yml", "tls.yml"}


KNOWS_ITSELF = {"ask.yml", "ready.yml", "probe.yml", "probe_prepare.yml"}
"""Looks at any host; is delegated to the host that runs the node; are left out for standbys by ``verify.yml``."""


def test_whatever_asks_a_node_first_asks_which_host_of_its_machine_runs_it() -> None:
    asking = {}
    for path in sorted((ROLE / "tasks").glob("*.yml")):
        tasks = [*tasks_of(yaml.safe_load(path.read_text("utf-8")))]
        texts = [str(task) for task in tasks]
        socket = next(
            (place for place, text in enumerate(texts) if "qmnode.sock" in text or "management.sock" in text), None
        )
        if socket is not None:
            asked = [place for place, text in enumerate(texts) if "only_active.yml" in text or "ask_hosts.yml" in text]
            asking[path.name] = bool(asked) and asked[0] < socket
    assert {name for name, asked in asking.items() if not asked} - {"tls.yml"} == KNOWS_ITSELF
    assert {"backup.yml", "rotate.yml", "queues.yml", "leave.yml", "tls_look.yml"} <= {
        name for name, asked in asking.items() if asked
    }
    assert "only_active.yml" in (ROLE / "tasks/restore.yml").read_text("utf-8")
