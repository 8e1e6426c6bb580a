"""The timer that notices what others changed in the directory: its units, and what they run."""

from __future__ import annotations

import configparser
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mqenterprise.directory.entries import Change, ChangeKind
from mqenterprise.directory.settings import ServerKind
from mqenterprise.topology.check import load
from tests.lab.enterprise import PLAYBOOKS
from tests.topology.test_servers import SAMPLE, counted

pytestmark = [pytest.mark.servers, pytest.mark.slow]


class Units(configparser.ConfigParser):
    """A unit of systemd, in which a key may come more than once."""

    def __init__(self, file):
        super().__init__(interpolation=None, strict=False, comment_prefixes=("#",))
        self.optionxform = str
        self.read(file)
        self.runs = [
            shlex.split(line.partition("=")[2])
            for line in file.read_text().splitlines()
            if line.startswith("ExecStart=")
        ]


@pytest.mark.parametrize("directory_server", [ServerKind.OPENLDAP], indirect=True)
def test_the_timer_counts_what_was_changed_by_hand_and_undoes_it_where_that_is_asked_for(bench, tmp_path):
    bench.apply(load(SAMPLE))
    queue = bench.directory.queues.find("ams-shop\\orders")
    theirs = [Change(ChangeKind.REPLACE, "mSMQLabelEx", (b"by hand",))]
    bench.directory.connection.modify(queue.full_path, theirs)
    metrics = tmp_path / "node exporter/mqenterprise.prom"
    chosen = {
        "reconcile_declared": str(SAMPLE),
        "reconcile_directory_file": str(bench.file),
        "reconcile_metrics": str(metrics),
        "reconcile_state": str(tmp_path / "state"),
        "reconcile_units": str(tmp_path),
        "reconcile_started": False,
    }

    def play(**more):
        program = Path(sys.executable).with_name("ansible-playbook")
        command = [program, "-i", "localhost,", PLAYBOOKS / "reconcile.yml", "-e", json.dumps(chosen | more)]
        environment = os.environ | {"ANSIBLE_CONFIG": str(PLAYBOOKS / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return Units(tmp_path / "mqenterprise-reconcile.service")

    def run(command):
        environment = os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)

    (looks,) = play().runs
    assert run(looks).returncode == 2
    assert counted(metrics) == {"create": 0, "update": 1, "delete": 0}
    looks, applies = play(reconcile_applies=True).runs
    assert "--prune" not in applies
    assert run(applies).returncode == 0
    assert run(looks).returncode == 0
    assert counted(metrics) == {"create": 0, "update": 0, "delete": 0}
    assert bench.directory.queues.find("ams-shop\\orders").label != "by hand"
    if shutil.which("systemd-analyze"):
        for unit in ("mqenterprise-reconcile.service", "mqenterprise-reconcile.timer"):
            checked = run(["systemd-analyze", "verify", "--man=no", tmp_path / unit])
            assert not [line for line in checked.stderr.splitlines() if "mqenterprise-reconcile" in line], (
                checked.stderr
            )
