"""The beginning of a rotation is checked on the host before any key is made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
ROLE = PROJECT / "playbooks/collections/ansible_collections/mqenterprise/fleet/roles/queue_manager"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("yesterday", "rotation_begun is 'yesterday': write a moment with its time zone"),
        ("2026-01-31", "rotation_begun is '2026-01-31': write a moment with its time zone"),
        ("2199-01-31T08:00:00+00:00", "rotation_begun is 2199-01-31T08:00:00+00:00, which is still to come"),
    ],
)
def test_a_rotation_begins_at_a_moment_that_was(tmp_path: Path, wrong: str, told: str) -> None:

    folders = [str(tmp_path / name) for name in ("settings", "data", "management.sock")]
    arguments = [str(tmp_path / "bin"), "", *folders, "ALPHA", wrong, "do"]

    done = subprocess.run(
        [sys.executable, ROLE / "files/rotate.py", *arguments], capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert done.stderr.startswith(told)
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir()), "nothing is written or run"
