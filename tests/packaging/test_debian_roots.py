"""The Debian packages in clean, booted roots: installed, used, upgraded with messages in the store, removed, purged."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.roots import PROJECT, DebianRoot, why_no_roots

pytestmark = [pytest.mark.soak, pytest.mark.servers]

SUITES = {"bookworm": "deb12", "trixie": "deb13"}
FIRST = "ec6e73b"
"""The commit of 0.1.0: the version before, whose store an upgrade finds."""


def build(out: Path, *options: str) -> None:
    command = [sys.executable, str(PROJECT / "packaging/linux/build.py"), "--out", str(out), *options]
    subprocess.run(command, check=True)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the packages, or those of QMNODE_TEST_PACKAGES; and the version before as revision 0."""
    if reason := why_no_roots():
        pytest.skip(reason)
    out, before = tmp_path_factory.mktemp("packages"), tmp_path_factory.mktemp("before")
    releases = [word for name in SUITES.values() for word in ("--release", name)]
    if given := os.environ.get("QMNODE_TEST_PACKAGES"):
        for path in Path(given).glob("*.deb"):
            (out / path.name).symlink_to(path)
    else:
        build(out, *releases)
    if list(out.glob("qmnode_*-0+*.deb")):
        return out
    archive = subprocess.run(["git", "-C", PROJECT, "archive", FIRST], capture_output=True)
    if archive.returncode:
        pytest.skip("this clone has not the history with the version before: git fetch --unshallow")
    subprocess.run(["tar", "-x", "-C", before], input=archive.stdout, check=True)
    build(out, *releases, "--package", "qmnode", "--revision", "0", "--source", str(before))
    return out


@pytest.fixture(params=SUITES)
def root(request: pytest.FixtureRequest, tmp_path: Path, packages: Path) -> Iterator[DebianRoot]:
    """A booted root of a release, into which all its packages were fetched."""
    root = DebianRoot(request.param, tmp_path / "root")
    try:
        root.fetch(*sorted(packages.glob(f"*+{SUITES[request.param]}_*.deb")))
        root.boot()
        yield root
    finally:
        root.close()


def package(root: DebianRoot, packages: Path, name: str, revision: int = 1) -> Path:
    return next(packages.glob(f"{name}_*-{revision}+{SUITES[root.suite]}_*.deb"))


def test_a_node_is_installed_upgraded_removed_and_purged_and_its_messages_stay(
    root: DebianRoot, packages: Path
) -> None:
    root.install(package(root, packages, "qmnode", 0))
    root.do("qmnode", "status", "--wait", "60")
    root.do("qmnode", "queue", "create", "orders")
    root.do("qmnode", "queue", "create", "payments", "--transactional")
    root.do("qmnode", "send", "orders", "--lines", said="".join(f"order {number}\n" for number in range(1, 101)))
    root.do("qmnode", "send", "payments", "payment 1")
    (root.root / "etc/qmnode/node.yaml").write_text(
        (root.root / "etc/qmnode/node.yaml").read_text().replace("queue_manager_quota: 1GB", "queue_manager_quota: 2GB")
    )
    identifier = identity(root)

    root.install(package(root, packages, "qmnode"))
    root.do("qmnode", "status", "--wait", "60")
    assert identity(root) == identifier
    assert "queue_manager_quota: 2GB" in root.do("cat", "/etc/qmnode/node.yaml").stdout, (
        "dpkg has replaced the settings"
    )
    assert root.do("qmnode", "receive", "orders").stdout == "order 1\n"
    assert "pydantic" in root.do("ls", f"/opt/qmnode/lib/{python(root)}/site-packages").stdout
    assert root.do("stat", "-c%U", f"/proc/{pid(root)}").stdout == "qmnode\n"

    # One that its administrator has stopped stays so.
    root.do("systemctl", "stop", "qmnode")
    root.install(package(root, packages, "qmnode"), "--reinstall")
    assert root.do("systemctl", "is-active", "qmnode", check=False).stdout == "inactive\n"
    root.do("systemctl", "start", "qmnode")

    root.do("apt-get", "remove", "-y", "qmnode")
    assert root.do("systemctl", "is-active", "qmnode", check=False).stdout == "inactive\n"
    assert root.do("find", "/opt/qmnode", check=False).stdout == "", "bytecode was left"
    root.install(package(root, packages, "qmnode"))
    root.do("qmnode", "status", "--wait", "60")
    assert identity(root) == identifier
    assert root.do("qmnode", "receive", "orders").stdout == "order 2\n"
    assert root.do("qmnode", "receive", "payments").stdout == "payment 1\n"

    said = root.do("apt-get", "purge", "-y", "qmnode")
    assert "the messages in /var/lib/qmnode are kept" in said.stdout + said.stderr
    assert root.do("ls", "/etc/qmnode", check=False).returncode != 0
    root.install(package(root, packages, "qmnode"))
    root.do("qmnode", "status", "--wait", "60")
    assert root.do("qmnode", "receive", "orders", "--all").stdout.splitlines() == [f"order {n}" for n in range(3, 101)]

    root.do("debconf-set-selections", said="qmnode qmnode/purge_messages boolean true\n")
    root.do("apt-get", "purge", "-y", "qmnode")
    left = root.do("find", "/var/lib/qmnode", "/etc/qmnode", "/opt/qmnode", "/var/log/qmnode", check=False).stdout
    assert left == ""
    assert root.do("getent", "passwd", "qmnode", check=False).stdout == ""


def test_the_toolkit_is_installed_used_and_purged(root: DebianRoot, packages: Path) -> None:
    root.install(package(root, packages, "mqenterprise"))
    root.install(package(root, packages, "qmnode"))
    root.do("mqenterprise", "validate", "/usr/share/mqenterprise/inventory/contoso.yaml")
    playbook = (
        "env",
        "ANSIBLE_CONFIG=/usr/share/mqenterprise/playbooks/ansible.cfg",
        "/opt/mqenterprise/bin/ansible-playbook",
    )
    listed = root.do(*playbook, "/usr/share/mqenterprise/playbooks/rollout.yml", "--list-hosts").stdout
    assert "ams-router" in listed
    assert root.do("/opt/mqenterprise/bin/python3", "-m", "pip", "--version").stdout.startswith("pip ")
    for program in ("qmnode", "mqenterprise"):
        completing = f"source /usr/share/bash-completion/completions/{program}; complete -p {program}"
        assert f"_{program}_completion" in root.do("bash", "-c", completing).stdout
        assert root.do("test", "-s", f"/usr/share/man/man1/{program}.1.gz").returncode == 0
    root.do("apt-get", "purge", "-y", "mqenterprise")
    assert root.do("find", "/opt/mqenterprise", "/usr/share/mqenterprise", check=False).stdout == ""
    root.do("qmnode", "status", "--wait", "60")


def identity(root: DebianRoot) -> str:
    return root.do("cat", "/var/lib/qmnode/IDENTITY").stdout


def pid(root: DebianRoot) -> str:
    return root.do("systemctl", "show", "--property=MainPID", "--value", "qmnode").stdout.strip()


def python(root: DebianRoot) -> str:
    return "python3.11" if root.suite == "bookworm" else "python3.13"
