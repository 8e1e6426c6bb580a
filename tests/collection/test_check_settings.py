"""A node's settings are checked on the controller before anything is done to its host."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parents[2]
FILES = {"tokens": "/etc/tokens", "certificate": "/etc/certificate.pem", "private_key": "/etc/key.pem"}
ROLE = PROJECT / "playbooks/collections/ansible_collections/mqenterprise/fleet/roles/queue_manager"


def checked(settings: dict[str, Any], *tokens: dict[str, str], **document: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, ROLE / "files/check_settings.py"],
        input=json.dumps({"settings": settings, "tokens": tokens, "document": document}),
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_settings_that_a_node_can_start_with_pass() -> None:
    done = checked({"computer_name": "ALPHA", "data": "/var/lib/qmnode"})

    assert (done.returncode, done.stderr) == (0, "")


def test_a_bridge_of_the_document_is_checked_as_well() -> None:
    done = checked({}, bridges={"out": {"direction": "out", "queue": "q", "peer": "amqp://b", "addres": "a"}})

    assert done.returncode == 1
    assert "the document of the machine: bridges.out.addres: unknown: did you mean address?" in done.stderr


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"quotas": {"queue_manager_quotta": 1}, "transfer": {"retry_interval": "soon"}},
            [
                "node.yaml: quotas.queue_manager_quotta: no such setting (did you mean queue_manager_quota?)",
                "node.yaml: transfer.retry_interval: Input should be a valid number",
            ],
        ),
        ({"management": {"listen": "everywhere"} | FILES}, ["management.listen: 'everywhere' is not ADDRESS:PORT"]),
    ],
)
def test_mistakes_name_the_setting_and_no_line_of_a_file_that_nobody_wrote(
    settings: dict[str, Any], told: list[str]
) -> None:
    done = checked(settings)

    assert done.returncode == 1
    for mistake in told:
        assert mistake in done.stderr
    assert "/tmp" not in done.stderr


def test_a_mistake_in_a_token_names_it() -> None:
    done = checked({"management": {"listen": "127.0.0.1:8443"} | FILES}, {"nam": "grafana"})

    assert done.returncode == 1
    assert done.stderr.startswith("tokens.yaml: 0.name: Field required")
