"""``qmnode receive --node`` against ``qmnode run``: two processes, nothing in common but the network."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.lab.addresses import free_alias
from tests.lab.nodes import NodeProcess
from tests.remote_read.conftest import random_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.crash.disk import Disk

pytestmark = pytest.mark.servers


class Served(NodeProcess):
    """With remote read and a user."""

    def __init__(self, folder: Path, disk: Disk | None = None, **remote_read: object) -> None:
        self.mapper = random_port()
        self.address = free_alias([self.mapper])
        users = folder / "users"
        users.write_text("HOME:alice:Secret-1\n")
        users.chmod(0o600)
        self.password_file = folder / "password"
        self.password_file.write_text("Secret-1\n")
        self.password_file.chmod(0o600)
        super().__init__(
            folder,
            environment=None if disk is None else disk.environment,
            data=str(folder / "data" if disk is None else disk.store),
            computer_name="SERVED",
            management={"socket": None},
            security={"account_security_identifiers": {"alice": "S-1-5-21-1-2-3-1001"}},
            remote_read={
                "enabled": True, "address": self.address, "port": 0, "endpoint_mapper_port": self.mapper,
                "users": str(users), **remote_read,
            },
        )  # fmt: skip
        self.start()

    def receive(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        node = f"{self.address}:{self.mapper}"
        return self.command("receive", "--node", node, "orders", *arguments)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    one = Served(tmp_path)
    yield one
    assert one.stop() == 0


def test_messages_of_another_node_are_received_as_anybody_and_as_somebody(served: Served) -> None:
    assert served.command("queue", "create", "orders").returncode == 0
    for body in ("order 7", "order 8", "order 9"):
        assert served.command("send", "orders", body).returncode == 0
    refused = served.receive()
    assert (refused.returncode, "MQ_ERROR_ACCESS_DENIED" in refused.stderr) == (1, True), refused.stderr
    for reader in ("anonymous", "S-1-5-21-1-2-3-1001"):
        assert served.command("queue", "acl", "allow", "orders", reader, "receive-message").returncode == 0
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
