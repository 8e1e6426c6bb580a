"""A node whose management API an administrator reaches: ``nodes.yaml`` says how."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.lab.nodes import NodeProcess
from tests.management.conftest import digest, write_certificate

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

_SECRET = "ann's"


@contextmanager
def managed_node(folder: Path, name: str, down: Collection[str] = ()) -> Iterator[NodeProcess]:
    """The running node; ``nodes.yaml`` of the folder also has machines that are ``down``."""
    certificate, key = write_certificate(folder)
    tokens = folder / "tokens.yaml"
    tokens.write_text(json.dumps([{"name": "ann", "role": "administer", "sha256": digest(_SECRET)}]))
    tokens.chmod(0o600)
    (folder / "my.token").write_text(_SECRET)
    (folder / "my.token").chmod(0o600)
    (folder / "node").mkdir()
    management = {
        "listen": "127.0.0.1:0",
        "socket": str(folder / "node/m.sock"),
        "tokens": str(tokens),
        "certificate": str(certificate),
        "private_key": str(key),
    }
    node = NodeProcess(folder / "node", computer_name=name, management=management)
    node.launch()
    try:
        listening = node.wait_for("management API", has="port")
        node.wait_for("ready")
        addresses = {name: f"127.0.0.1:{listening['port']}", **dict.fromkeys(down, "127.0.0.1:9")}
        machines = {machine: {"address": address} for machine, address in addresses.items()}
        settings = {"authority": "certificate.pem", "token_file": "my.token", "machines": machines}
        (folder / "nodes.yaml").write_text(json.dumps(settings))
        yield node
    finally:
        node.stop()
