"""The images: small, the same twice, run by nobody's root, and what their volume has survives a kill."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.images import ACCOUNT, Container
from tests.packaging.conftest import build

pytestmark = [pytest.mark.soak, pytest.mark.servers]

MOST = 150_000_000
"""Bytes of the node's image, compressed."""
DIFFERENT: set[str] = set()
"""Files that are not the same in two builds."""


@pytest.fixture
def node(images: Path, tmp_path: Path) -> Iterator[Container]:
    (tmp_path / "container").mkdir()
    container = Container(images / "qmnode-node-image", tmp_path / "container", "/var/lib/qmnode")
    try:
        yield container
    finally:
        container.close()


def layers(layout: Path) -> list[Path]:
    def blob(digest: str) -> Path:
        return layout / "blobs" / digest.replace(":", "/")

    index = json.loads((layout / "index.json").read_text())
    manifest = json.loads(blob(index["manifests"][0]["digest"]).read_text())
    return [blob(layer["digest"]) for layer in manifest["layers"]]


def contents(layout: Path) -> dict[str, str]:
    """Each file of an image with a digest of it and of what is known about it."""
    found = {}
    for layer in layers(layout):
        with tarfile.open(layer) as archive:
            for entry in archive:
                file = archive.extractfile(entry) if entry.isfile() else None
                known = f"{entry.mode} {entry.uid} {entry.gid} {entry.mtime} {entry.linkname}".encode()
                found[entry.name] = hashlib.sha256(known + (file.read() if file else b"")).hexdigest()
    return found


def test_an_image_is_small_and_the_same_when_it_is_built_again(images: Path, packages: Path, tmp_path: Path) -> None:
    layout = images / "qmnode-node-image"
    assert sum(path.stat().st_size for path in layers(layout)) < MOST
    build("images", "--packages", packages, "--out", tmp_path, "--target", "node")
    first, second = contents(layout), contents(tmp_path / "qmnode-node-image")
    different = {name for name in first.keys() | second.keys() if first.get(name) != second.get(name)}
    assert different <= DIFFERENT


def test_a_node_takes_a_message_and_gives_it_back_without_root_and_without_a_root_to_write_to(node: Container) -> None:
    node.ready()
    assert node.account == (ACCOUNT, ACCOUNT)
    assert node.do("id", "-u").stdout == f"{ACCOUNT}\n"
    assert "Read-only file system" in node.do("touch", "/etc/qmnode/x", check=False).stderr
    node.do("qmnode", "queue", "create", "orders")
    node.do("qmnode", "send", "orders", "order 7")
    assert node.do("qmnode", "receive", "orders").stdout == "order 7\n"
    assert node.do("qmnode", "status").returncode == 0
    assert node.end() == 0


def test_a_hundred_megabytes_of_messages_survive_a_kill(node: Container) -> None:
    node.ready()
    node.do("qmnode", "queue", "create", "orders", "--transactional")
    body = "x" * 99_990
    lines = "".join(f"{number:09} {body}\n" for number in range(1000))
    node.do("qmnode", "send", "orders", "--lines", said=lines)
    assert node.end("KILL") != 0

    node.ready()
    assert json.loads(node.do("qmnode", "status", "--json").stdout)["message_count"] == 1000
    received = node.do("qmnode", "receive", "orders", "--all").stdout
    assert hashlib.sha256(received.encode()).digest() == hashlib.sha256(lines.encode()).digest()


def test_a_start_needs_little_of_the_processor(node: Container) -> None:
    node.ready()  # its store is made
    node.end()
    used = []
    for _ in range(3):
        node.ready()
        used.append(node.processor_seconds)
        node.end()
    assert min(used) < 1, used


@pytest.mark.timed
def test_a_node_is_ready_in_two_seconds(node: Container) -> None:
    node.ready()  # its store is made
    node.end()
    taken = []
    for _ in range(3):
        taken.append(node.ready())
        node.end()
    assert min(taken) < 2, taken


def test_the_image_of_the_console_has_its_program_and_needs_no_root(images: Path, tmp_path: Path) -> None:
    (tmp_path / "container").mkdir()
    console = Container(images / "qmnode-console-image", tmp_path / "container", "/var/lib/mqenterprise")
    try:
        assert console.account == (ACCOUNT, ACCOUNT)
        console.start("console", "--help")
        assert console.wait() == 0, console.log
        assert "--sign-in" in console.log
        console.start("console")  # without a directory and without nodes it says what it lacks
        assert console.wait() != 0
        assert "MQENTERPRISE_NODES" in console.log and "Traceback" not in console.log
    finally:
        console.close()
