"""Which role a playbook uses for which host: a routing server has settings of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

PLAYBOOKS = Path(__file__).parents[2] / "playbooks"
USES_SETTINGS = ("main", "check", "tls", "tls_look")
"""Entry points of the roles that need the settings of the node."""


def uses(playbook: Path) -> list[tuple[str, str, str]]:
    """Role, entry point and condition of each such use in a playbook."""
    found = []
    for play in yaml.safe_load(playbook.read_text("utf-8")):
        for task in play.get("tasks", []):
            role: dict[str, Any] = task.get("ansible.builtin.include_role") or {}
            point = role.get("tasks_from", "main")
            if role.get("name", "").startswith("msmq.enterprise.") and point in USES_SETTINGS:
                found.append((role["name"].rpartition(".")[2], point, str(task.get("when", ""))))
    return found


@pytest.mark.parametrize("playbook", ["rollout.yml", "tls.yml"])
def test_settings_of_routing_servers_come_from_their_own_role(playbook: str) -> None:
    found = [use for use in uses(PLAYBOOKS / playbook) if use[0] in ("queue_manager", "routing_server")]

    points = {point for _, point, _ in found}
    assert len(points) == 2
    assert set(found) == {
        use
        for point in points
        for use in (
            ("routing_server", point, "'routing_server' in msmq_roles | default([])"),
            ("queue_manager", point, "'routing_server' not in msmq_roles | default([])"),
        )
    }


def test_no_other_playbook_uses_the_settings_of_nodes() -> None:
    roles = {"queue_manager", "routing_server"}
    assert {path.name for path in PLAYBOOKS.glob("*.yml") if any(role in roles for role, _, _ in uses(path))} == {
        "rollout.yml",
        "tls.yml",
    }
