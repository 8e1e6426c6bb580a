"""What Prometheus and Grafana are given: well formed, and about metrics that a node has."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from mqenterprise.cli import app as enterprise_application
from qmnode import QueueManager
from qmnode.commands.command_table import app as node_application
from qmnode.management.metrics import exposition
from qmnode.management.request_context import Context
from qmnode.settings.node import ManagementSettings
from tests.lab.enterprise import PLAYBOOKS

FILES = PLAYBOOKS / "collections/ansible_collections/mqenterprise/fleet/roles/monitoring/files"
RULES = FILES / "msmq.rules.yml"
TRIED = Path(__file__).with_name("alerts.yml")
"""Series of samples, and which alerts they are to raise, for promtool."""
NAME = re.compile(r"\b(?:qmnode|process)_[a-z_]+")


@pytest.fixture
async def metrics(tmp_path: Path) -> set[str]:
    """The names of a node's metrics."""
    async with QueueManager.open(tmp_path / "node") as manager:
        await manager.create_queue(r".\private$\one")
        text = (await exposition(Context(manager, ManagementSettings()))).decode()
    return {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")}


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


async def test_rules_and_dashboard_are_about_metrics_that_there_are(metrics: set[str]) -> None:
    dashboard = json.loads((FILES / "msmq-dashboard.json").read_text("utf-8"))
    expressions = [rule["expr"] for rule in rules()]
    expressions += [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    named = {name.removesuffix("_bucket") for expression in expressions for name in NAME.findall(expression)}
    assert len(named) > 10
    assert named <= metrics


def test_commands_that_alerts_name_are_there() -> None:
    """With the help of each: a command that is none has no help."""
    actions = " ".join(rule["annotations"]["action"] for rule in rules())
    named = set(re.findall(r"`(qmnode|mqenterprise) ([a-z -]+)`", actions))
    assert len(named) > 4
    for program, arguments in named:
        application = {"qmnode": node_application, "mqenterprise": enterprise_application}[program]
        done = CliRunner().invoke(application, [*arguments.split(), "--help"])
        assert done.exit_code == 0, (program, arguments)
    for playbook in re.findall(r"playbooks/(\w+\.yml)", actions):
        assert (PLAYBOOKS / playbook).exists(), playbook


def test_every_alert_says_what_happened_and_what_to_do() -> None:
    assert len({rule["alert"] for rule in rules()}) == len(rules())
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"].keys() == {"summary", "action"}


def test_expressions_are_balanced_and_on_the_chosen_data_source() -> None:
    dashboard = json.loads((FILES / "msmq-dashboard.json").read_text("utf-8"))
    assert {each["name"]: each["type"] for each in dashboard["templating"]["list"]} == {
        "datasource": "datasource",
        "node": "query",
    }
    for panel in dashboard["panels"]:
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    for expression in (*expressions, *(rule["expr"] for rule in rules())):
        assert is_balanced(expression), expression


def is_balanced(expression: str) -> bool:
    """Whether all brackets are closed, outside of texts."""
    pairs, opened = {")": "(", "}": "{", "]": "["}, []
    for character in re.sub(r'"[^"]*"', "", expression):
        if character in pairs.values():
            opened.append(character)
        elif character in pairs and (not opened or opened.pop() != pairs[character]):
            return False
    return not opened


def test_panels_have_places_of_their_own() -> None:
    panels = json.loads((FILES / "msmq-dashboard.json").read_text("utf-8"))["panels"]
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len({panel["id"] for panel in panels}) == len(panels)


@pytest.fixture
def promtool() -> Path:
    """Beside this Python, where ``make`` puts it, or the machine's."""
    found = shutil.which("promtool", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if found is None:
        pytest.skip("promtool (Debian's prometheus) is not here: .ci/promtool fetches it")
    return Path(found)


@pytest.mark.parametrize(
    "arguments", [("check", "rules", RULES), ("test", "rules", TRIED)], ids=["well formed", "tried"]
)
def test_prometheus_takes_the_rules(promtool: Path, arguments: tuple[str | Path, ...]) -> None:
    done = subprocess.run([promtool, *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_playbook_writes_rules_dashboard_and_targets(tmp_path: Path) -> None:
    """Checked, run, and run again."""
    monitor = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    nodes = {"one": {"ansible_host": "192.0.2.1"}, "two": {"ansible_host": "2001:db8::2"}, "three.contoso.test": {}}
    pair = {"msmq_hosts": ["cor-a", "cor-b"], "msmq_addresses": ["192.0.2.7"]}
    nodes |= {
        "cor-a": pair | {"ansible_host": "192.0.2.8"},
        "cor-b": pair,
    }  # one of them runs the node, at that address
    groups = {"monitoring": {"monitor": monitor | {"monitoring_root": str(tmp_path / "root")}}, "queue_managers": nodes}
    inventory = tmp_path / "hosts.yaml"
    inventory.write_text(yaml.safe_dump({name: {"hosts": hosts} for name, hosts in groups.items()}))

    def play(*arguments: str) -> str:
        program = Path(sys.executable).with_name("ansible-playbook")
        command = [program, "-i", inventory, PLAYBOOKS / "monitoring.yml", *arguments]
        environment = os.environ | {"ANSIBLE_CONFIG": str(PLAYBOOKS / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        (changed,) = re.findall(r"^monitor .*changed=(\d+)", done.stdout, re.MULTILINE)
        return str(changed)

    assert play("--check", "--diff") == "1"
    assert not (tmp_path / "root").exists()
    assert (play(), play()) == ("1", "0")
    (job,) = json.loads((tmp_path / "root/etc/prometheus/targets/msmq.json").read_text())
    assert sorted(job["targets"]) == [
        "192.0.2.1:8443",
        "192.0.2.7:8443",
        "[2001:db8::2]:8443",
        "three.contoso.test:8443",
    ]
    assert (tmp_path / "root/etc/prometheus/rules/msmq.rules.yml").read_bytes() == RULES.read_bytes()
    assert json.loads((tmp_path / "root/var/lib/grafana/dashboards/msmq-dashboard.json").read_text())["panels"]


def test_every_alert_is_tried() -> None:
    tried = TRIED.read_text("utf-8")
    assert {rule["alert"] for rule in rules()} == set(re.findall(r'alertname="(\w+)"', tried))
