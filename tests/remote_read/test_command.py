"""``qmnode receive --node`` against ``qmnode run``: two processes, nothing in common but the network."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.lab.addresses import free_alias
from tests.lab.waiting import wait_until
from tests.remote_read.conftest import random_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.crash.disk import Disk

PROJECT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-c", "from qmnode.cli import main; main()"]
pytestmark = pytest.mark.servers


class Served:
    """A node as a service, with remote read and a user."""

    def __init__(self, folder: Path, disk: Disk | None = None, **remote_read: object) -> None:
        self._environment = os.environ | (disk.environment if disk is not None else {})
        self.mapper = random_port()
        self.address = free_alias([self.mapper])
        users = folder / "users"
        users.write_text("HOME:alice:Secret-1\n")
        users.chmod(0o600)
        self.password_file = folder / "password"
        self.password_file.write_text("Secret-1\n")
        self.password_file.chmod(0o600)
        self.socket = folder / "node.sock"
        settings = {
            "data": str(folder / "data" if disk is None else disk.store),
            "computer_name": "SERVED",
            "local": {"socket": str(self.socket)},
            "management": {"socket": None},
            "transport": {"enabled": False},
            "security": {"account_security_identifiers": {"alice": "S-1-5-21-1-2-3-1001"}},
            "remote_read": {
                "enabled": True, "address": self.address, "port": 0, "endpoint_mapper_port": self.mapper,
                "users": str(users), **remote_read,
            },
        }  # fmt: skip
        configuration = folder / "node.yaml"
        configuration.write_text(yaml.safe_dump(settings))
        self.configuration, self.log = configuration, folder / "log"
        self.process: subprocess.Popen[bytes]
        self.start()

    def start(self) -> None:
        """Run the node, and wait until it does."""
        self.socket.unlink(missing_ok=True)
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*COMMAND, "run", "--config", str(self.configuration)],
                cwd=PROJECT, env=self._environment, stdout=log, stderr=log,
            )  # fmt: skip
        wait_until(lambda: '"ready"' in self.log.read_text() or self.process.poll() is not None, 60, "the node runs")
        assert self.process.poll() is None, self.log.read_text()

    def run(self, *arguments: object, elsewhere: bool = False) -> subprocess.CompletedProcess[str]:
        environment = os.environ | ({} if elsewhere else {"QMNODE_SOCKET": str(self.socket)})
        return subprocess.run(
            [*COMMAND, *map(str, arguments)],
            cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    def receive(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        node = f"{self.address}:{self.mapper}"
        return self.run("receive", "--node", node, "orders", *arguments, elsewhere=True)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    one = Served(tmp_path)
    yield one
    one.process.send_signal(signal.SIGTERM)
    assert one.process.wait(30) == 0


def test_messages_of_another_node_are_received_as_anybody_and_as_somebody(served: Served) -> None:
    assert served.run("queue", "create", "orders").returncode == 0
    for body in ("order 7", "order 8", "order 9"):
        assert served.run("send", "orders", body).returncode == 0
    received = served.receive()
    assert (received.returncode, received.stdout) == (0, "order 7\n"), received.stderr
    alice = ("--user", "HOME\\alice", "--password-file", served.password_file)
    received = served.receive("--all", *alice)
    assert (received.returncode, received.stdout) == (0, "order 8\norder 9\n"), received.stderr
    assert served.receive().returncode == 4
    served.password_file.write_text("wrong\n")
    refused = served.receive(*alice)
    assert refused.returncode in (1, 3)
    assert "MQ_ERROR_ACCESS_DENIED" in refused.stderr and "wrong" not in refused.stderr
    assert served.receive("--user", "HOME\\alice").returncode == 2
