"""A node that runs as a service, in a process of its own and without a network."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.lab.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT: Final = Path(__file__).resolve().parents[2]


@dataclass
class Daemon:
    """The node, and the folder of its configuration, store, sockets and log."""

    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def config(self) -> Path:
        return self.folder / "node.yaml"

    @property
    def socket(self) -> Path:
        return self.folder / "node.sock"


@contextmanager
def running_node(folder: Path, **settings: object) -> Iterator[Daemon]:
    """Start a node named ALPHA, and stop it at the end."""
    values: dict[str, object] = {
        "computer_name": "ALPHA",
        "data": str(folder / "store"),
        "transport": {"enabled": False},
        "local": {"socket": str(folder / "node.sock")},
        "management": {"socket": str(folder / "management.sock")},
    }
    (folder / "node.yaml").write_text(json.dumps(values | settings))
    command = [sys.executable, "-c", "from qmnode.cli import main; main()", "run", "-c", str(folder / "node.yaml")]
    log = folder / "log"
    with log.open("wb") as stderr, subprocess.Popen(command, stderr=stderr, cwd=PROJECT) as process:
        try:
            wait_until(lambda: process.poll() or '"ready"' in log.read_text("utf-8"), 60, "the node is ready")
            assert process.poll() is None, log.read_text("utf-8")
            yield Daemon(folder, process)
        finally:
            process.terminate()
            process.wait(10)
