"""Which role a playbook uses for which host: a routing server has settings of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

PLAYBOOKS = Path(__file__).parents[2] / "playbooks"
WRITES_SETTINGS = ("main", "tls")
"""Entry points of the roles that write the settings of the node."""


def uses(playbook: Path) -> set[tuple[str, str, str]]:
    """Role, entry point and condition of each such use in a playbook."""
    found = set()
    for play in yaml.safe_load(playbook.read_text("utf-8")):
        for task in play.get("tasks", []):
            role: dict[str, Any] = task.get("ansible.builtin.include_role") or {}
            name, point = role.get("name", "").rpartition(".")[2], role.get("tasks_from", "main")
            if name in ("queue_manager", "routing_server") and point in WRITES_SETTINGS:
                found.add((name, point, str(task.get("when", ""))))
    return found


@pytest.mark.parametrize(("playbook", "point"), [("rollout.yml", "main"), ("tls.yml", "tls")])
def test_settings_of_routing_servers_come_from_their_own_role(playbook: str, point: str) -> None:
    assert uses(PLAYBOOKS / playbook) == {
        ("routing_server", point, "'routing_server' in msmq_roles | default([])"),
        ("queue_manager", point, "'routing_server' not in msmq_roles | default([])"),
    }


def test_no_other_playbook_writes_the_settings_of_nodes() -> None:
    assert {path.name for path in PLAYBOOKS.glob("*.yml") if uses(path)} == {"rollout.yml", "tls.yml"}
