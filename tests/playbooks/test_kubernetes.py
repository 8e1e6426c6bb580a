"""A machine that Kubernetes runs, from its declaration to the manifest that a roll-out renders.

No cluster is asked: the manifest is compared with the declaration, and its settings and secrets are given to a node.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.lab.enterprise import LabEnterprise

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.timeout(600)]
MACHINE: dict[str, Any] = {
    "name": "COR-ROUTER", "sites": ["Cork"], "hosts": ["cor-a", "cor-b"], "addresses": ["192.0.2.7"],
    "failover": {"way": "kubernetes", "storage_class": "fast", "size": "20Gi", "lease": 7},
}  # fmt: skip


@pytest.fixture(scope="module")
def made() -> Iterator[tuple[Path, dict[str, Any]]]:
    """The folder of the controller's state, and the parts of the manifest by their kind."""
    enterprise = LabEnterprise(
        {"enterprise": {"name": "E"}, "sites": [{"name": "Cork"}], "machines": [MACHINE]}, real=False
    )
    try:
        enterprise.start()
        for host in MACHINE["hosts"]:
            enterprise.host_variables(host).unlink()  # which no playbook reaches
        given = {"queue_manager_tls": "require", "queue_manager_management_listen": "0.0.0.0:8443"}
        enterprise.host_variables("cor-router").write_text(yaml.safe_dump(given))
        enterprise.play("provision", declared=str(enterprise.declared)).ok()
        enterprise.play("rollout").ok()
        state = enterprise.folder / "state/mqenterprise/rollout"
        parts = yaml.safe_load_all((state / "kubernetes/cor-router.yaml").read_text())
        yield state, {one["kind"]: one for one in parts}
    finally:
        enterprise.close()


def test_one_pod_of_the_declared_hosts_has_the_one_volume(made: tuple[Path, dict[str, Any]]) -> None:
    described = made[1]["StatefulSet"]["spec"]
    pod = described["template"]["spec"]
    assert described["replicas"] == 1
    (claim,) = described["volumeClaimTemplates"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]  # what keeps two pods from one store
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["spec"]["resources"] == {"requests": {"storage": "20Gi"}}
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["values"] == ["cor-a", "cor-b"]
    assert pod["shareProcessNamespace"]
    assert made[1]["Service"]["spec"]["selector"].items() <= described["template"]["metadata"]["labels"].items()
    assert described["serviceName"] == made[1]["Service"]["metadata"]["name"]


def test_its_probes_ask_the_node_that_its_settings_describe(made: tuple[Path, dict[str, Any]]) -> None:
    pod = made[1]["StatefulSet"]["spec"]["template"]["spec"]
    (node,) = pod["containers"]
    settings = yaml.safe_load(made[1]["ConfigMap"]["data"]["node.yaml"])
    assert node["args"] == ["run", "--config", "/etc/qmnode/node.yaml"]
    variables = {one["name"]: one["value"] for one in node["env"]}
    assert variables["QMNODE_SOCKET"] == settings["local"]["socket"]
    for probe in ("startupProbe", "readinessProbe"):
        assert node[probe]["exec"]["command"] == ["qmnode", "status"]
    writable = [Path(one["mountPath"]) for one in node["volumeMounts"] if not one.get("readOnly")]
    for file in (settings["data"], settings["local"]["socket"], settings["management"]["audit_log"]):
        assert any(Path(file).is_relative_to(folder) for folder in writable)
    assert settings["failover"] | {"ledger": ""} == {"hosts": ["cor-router-0"], "lease": 7, "ledger": ""}


def test_a_node_accepts_its_settings_and_its_secrets(made: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    state, parts = made
    pod = parts["StatefulSet"]["spec"]["template"]["spec"]
    files, store = (
        {one["name"]: one for one in pod["containers"][0]["volumeMounts"]}[name] for name in ("files", "store")
    )
    text = parts["ConfigMap"]["data"]["node.yaml"]
    for path in (files["mountPath"], store["mountPath"], "/run/qmnode", "/var/log/qmnode"):
        assert path in text
        (tmp_path / path[1:]).mkdir(parents=True, exist_ok=True)
        text = text.replace(path, f"{tmp_path}{path}")
    folder = tmp_path / files["mountPath"][1:]
    for file in (state / "kubernetes/cor-router").iterdir():  # as kubectl takes them
        assert file.stat().st_mode & 0o777 == 0o600
        (folder / file.name).write_bytes(file.read_bytes())
        (folder / file.name).chmod(pod["volumes"][1]["projected"]["defaultMode"])
    own = socket.gethostname().partition(".")[0]
    (folder / "node.yaml").write_text(text.replace("cor-router-0", own))
    checked = subprocess.run(
        [Path(sys.executable).with_name("qmnode"), "run", "--check", "--config", folder / "node.yaml"],
        capture_output=True, text=True, check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith("QMNODE_")},
    )  # fmt: skip
    named = re.findall(rf"{folder}/\S+", text)
    assert {one for one in named if not Path(one).exists()} == set()
    assert checked.stdout.startswith("fit: "), checked.stdout + checked.stderr
