"""The timer of the role reconcile under a real systemd: it notices what others changed, and undoes it if asked to."""

from __future__ import annotations

import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from mqenterprise.directory.entries import Change, ChangeKind
from mqenterprise.directory.open_directory import EnterpriseDirectory
from tests.lab.waiting import wait_until
from tests.playbooks.conftest import rolled_out

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lab.enterprise import LabEnterprise

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(1800)]
HOST = "ams-router"
PLACE, METRICS = "/srv/enterprise", "/srv/metrics/mqenterprise.prom"
LIMIT = 300.0
"""Seconds until a timer that fires every five seconds, and up to thirty later, must have shown something."""


def test_a_timer_notices_drift_and_undoes_it_only_where_it_is_asked_to() -> None:
    queues = [{"machine": HOST, "name": name, "label": "As declared"} for name in ("kept", "dropped")]
    with rolled_out([HOST], queues) as enterprise:
        if not enterprise.is_real:
            pytest.skip("a timer needs a host with systemd")
        declare_on_host(enterprise, without="dropped")
        keys = enterprise.published_keys(HOST)
        relabel(enterprise, "By hand")

        install(enterprise, reconcile_applies=False)
        wait_until(lambda: counted(enterprise)["update"] == 1, LIMIT, "the timer counts the change")
        log = enterprise.lab.hosts[HOST].do("journalctl", "-u", "mqenterprise-reconcile", "--no-pager").stdout
        assert "By hand" in log, "it names the difference"
        assert install(enterprise, reconcile_applies=False) == 0
        assert labels(enterprise) == {"kept": "By hand", "dropped": "As declared"}

        assert install(enterprise, reconcile_applies=True) > 0
        wait_until(lambda: labels(enterprise)["kept"] == "As declared", LIMIT, "the timer applies the declaration")
        wait_until(lambda: counted(enterprise)["update"] == 0, LIMIT, "the timer counts no change any more")
        assert labels(enterprise) == {"kept": "As declared", "dropped": "As declared"}, "nothing is deleted"
        assert enterprise.published_keys(HOST) == keys


def install(enterprise: LabEnterprise, **more: object) -> int:
    """Run the playbook with the host in the place of the controller; the number of changes."""
    inventory = enterprise.folder / "reconcile.yaml"
    controller = {"ansible_connection": "ssh", "ansible_host": enterprise.hosts.addresses[HOST]}
    inventory.write_text(yaml.safe_dump({"all": {"hosts": {"localhost": controller}}}))
    settings: dict[str, Any] = {
        "ansible_python_interpreter": enterprise.lab.hosts[HOST].system.python,
        "reconcile_declared": f"{PLACE}/contoso.yaml",
        "reconcile_directory_file": f"{PLACE}/directory.yaml",
        "reconcile_metrics": METRICS,
        "reconcile_program": "/opt/qmnode/current/bin/mqenterprise",
        "reconcile_every": "5s",
    }
    return enterprise.play("reconcile", "-i", str(inventory), **settings | more).ok().changed


def declare_on_host(enterprise: LabEnterprise, without: str) -> None:
    """Put the declaration without one of its queues on the host, and how to reach the directory."""
    folder = root(enterprise) / PLACE.lstrip("/")
    folder.mkdir(parents=True)
    less = [queue for queue in enterprise.declaration["queues"] if queue["name"] != without]
    (folder / "contoso.yaml").write_text(yaml.safe_dump(enterprise.declaration | {"queues": less}))
    settings = enterprise.directory.client_settings()
    values = settings.model_dump(mode="json", exclude_defaults=True)
    for name in ("password_file", "ca_file"):
        shutil.copy(values[name], folder / name)
        values[name] = f"{PLACE}/{name}"
    (folder / "directory.yaml").write_text(yaml.safe_dump(values))


def root(enterprise: LabEnterprise) -> Path:
    return enterprise.lab.hosts[HOST].root


def relabel(enterprise: LabEnterprise, label: str) -> None:
    with EnterpriseDirectory(enterprise.directory.client_settings()) as directory:
        queue = directory.queues.find(f"{HOST}\\kept")
        assert queue is not None
        directory.connection.modify(queue.full_path, [Change(ChangeKind.REPLACE, "mSMQLabelEx", (label.encode(),))])


def labels(enterprise: LabEnterprise) -> dict[str, str]:
    with EnterpriseDirectory(enterprise.directory.client_settings()) as directory:
        found = {name: directory.queues.find(f"{HOST}\\{name}") for name in ("kept", "dropped")}
        return {name: queue.label for name, queue in found.items() if queue is not None}


def counted(enterprise: LabEnterprise) -> Counter[str]:
    """The metrics of the host, by action; -1 for each while there are none."""
    file = root(enterprise) / METRICS.lstrip("/")
    if not file.exists():
        return Counter(update=-1)
    families = text_string_to_metric_families(file.read_text())
    (changes,) = (family for family in families if family.name == "mqenterprise_drift_changes")
    return Counter({sample.labels["action"]: int(sample.value) for sample in changes.samples})
