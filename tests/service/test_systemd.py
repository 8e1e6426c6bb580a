"""The systemd unit: systemd understands it, and it is locked down."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from qmnode.systemd.__main__ import unit

pytestmark = pytest.mark.servers


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "qmnode.service"
    path.write_text(unit(sys.executable))
    return path


def test_systemd_understands_every_line(path: Path) -> None:
    answer = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True, timeout=240)
    complaints = [line for line in answer.stderr.splitlines() if str(path) in line or path.name in line]
    assert complaints == []


def test_the_sandbox_leaves_little_exposed(path: Path) -> None:
    answer = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(path)],
        capture_output=True,
        text=True,
        timeout=240,
    )
    level = re.search(r"Overall exposure level for qmnode.service: ([0-9.]+)", answer.stdout)
    assert level is not None, answer.stderr
    assert float(level[1]) <= 2.0


@pytest.mark.parametrize(
    "line",
    [
        "Type=notify",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "StateDirectory=qmnode qmnode-backups",
        "RuntimeDirectory=qmnode",
        "SystemCallFilter=@system-service",
        "CapabilityBoundingSet=",
        "LimitCORE=0",
        "ExecReload=/bin/kill -HUP $MAINPID",
    ],
)
def test_what_must_be_in_the_unit(line: str) -> None:
    assert line in unit().splitlines()


def test_it_is_printed_with_the_installed_command() -> None:
    answer = subprocess.run([sys.executable, "-m", "qmnode.systemd"], capture_output=True, text=True, check=True)
    assert "ExecStart=/" in answer.stdout
    assert "qmnode run --config /etc/qmnode/node.yaml" in answer.stdout
