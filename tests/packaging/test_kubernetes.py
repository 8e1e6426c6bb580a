"""The folder for Kubernetes: what its nodes have to have, and what kustomize makes of it where that is installed."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from qmnode.settings.node import read_settings

PROJECT = Path(__file__).resolve().parents[2]
FOLDER = PROJECT / "packaging/kubernetes"


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def test_a_pod_has_one_volume_that_is_written_and_the_rights_of_the_image() -> None:
    described = read(FOLDER / "nodes.yaml")["spec"]
    pod = described["template"]["spec"]
    (node,) = pod["containers"]
    assert node["securityContext"]["readOnlyRootFilesystem"]
    written = [one["mountPath"] for one in node["volumeMounts"] if not one.get("readOnly")]
    image = (PROJECT / "packaging/images/Containerfile").read_text("utf-8")
    assert written == ["/var/lib/qmnode"] and f"VOLUME {written[0]}\n" in image
    assert f"USER {pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}\n" in image
    assert described["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    assert described["serviceName"] == read(FOLDER / "service.yaml")["metadata"]["name"]


def test_its_nodes_and_those_of_the_image_have_the_same_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("QMNODE_")]:
        monkeypatch.delenv(name)
    settings = [read_settings(path / "node.yaml") for path in (FOLDER, PROJECT / "packaging/images")]
    assert settings[0] == settings[1]
    assert settings[0].data == Path("/var/lib/qmnode/store")


def test_its_store_moves_with_the_pod_and_the_lease_can_kill_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    pod = read(FOLDER / "nodes.yaml")["spec"]["template"]["spec"]
    own, hosts = pod["containers"][0]["env"]
    assert own["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"  # which is the host's name in the pod
    monkeypatch.setenv(hosts["name"], hosts["value"].replace(f"$({own['name']})", "qm-0"))
    assert read_settings(FOLDER / "node.yaml").failover.hosts == ("qm-0",)
    assert pod["shareProcessNamespace"]


@pytest.mark.soak
def test_kustomize_renders_it() -> None:
    program = shutil.which("kustomize")
    if program is None:
        pytest.skip("kustomize is not installed: go install sigs.k8s.io/kustomize/kustomize/v5@v5.7.1")
    rendered = subprocess.run([program, "build", FOLDER], capture_output=True, text=True, check=True).stdout
    made = {one["kind"]: one for one in yaml.safe_load_all(rendered)}
    assert set(made) == {"Namespace", "ConfigMap", "Secret", "Service", "StatefulSet", "PodDisruptionBudget"}
    assert {one["metadata"].get("namespace", "qmnode") for one in made.values()} == {"qmnode"}
    volumes = {one["name"]: one for one in made["StatefulSet"]["spec"]["template"]["spec"]["volumes"]}
    assert volumes["settings"]["configMap"]["name"] == made["ConfigMap"]["metadata"]["name"]
    assert volumes["secrets"]["secret"]["secretName"] == made["Secret"]["metadata"]["name"]
