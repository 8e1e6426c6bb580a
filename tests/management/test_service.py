"""The management API as part of the service: it starts, stops and reloads with the node."""

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import qmnode
from tests.lab.nodes import NodeProcess

pytestmark = pytest.mark.servers


class Managed(NodeProcess):
    """With a log of what was changed."""

    def __init__(self, folder: Path, **management: object) -> None:
        given = {"socket": str(folder / "management.sock"), "audit_log": str(folder / "audit.log")}
        super().__init__(folder, management=given | management)

    def client(self) -> httpx.Client:
        return httpx.Client(
            transport=httpx.HTTPTransport(uds=str(self.folder / "management.sock")), base_url="http://node"
        )

    def audited(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "audit.log").read_text().splitlines()]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Managed]:
    daemon = Managed(tmp_path)
    try:
        daemon.start()
        yield daemon
    finally:
        daemon.kill()


def test_sigterm_stops_it_and_leaves_no_socket(daemon: Managed) -> None:
    with daemon.client() as client:
        assert client.get("/readyz").status_code == 200
        daemon.send_signal(signal.SIGTERM)
        assert daemon.process.wait(240) == 0
    assert not (daemon.folder / "management.sock").exists()


def test_the_log_stays_json_whatever_a_caller_sends(daemon: Managed) -> None:
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(daemon.folder / "management.sock"))
        caller.sendall(b"this is no HTTP\r\n\r\n")
        assert b"400" in caller.recv(100)
    assert daemon.wait_for("Invalid HTTP request received.")["level"] == "warning"


async def test_changes_through_the_local_socket_are_in_the_audit_log_too(daemon: Managed) -> None:
    async with qmnode.connect(daemon.folder / "node.sock") as qm:
        await qm.create_queue(r".\private$\orders", label="secret label")
        with pytest.raises(qmnode.MessageQueuingError):
            await qm.delete_queue(r".\private$\none")
        async with await qm.open_queue(r"DIRECT=OS:.\private$\orders") as queue:
            await queue.purge()
    created, deleted, purged = daemon.audited()
    assert (created["action"], created["channel"], created["outcome"]) == ("create_queue", "local", "done")
    assert (created["target"], created["details"]) == ({"name": r".\private$\orders"}, {"properties": ["label"]})
    assert created["who"].startswith("uid:")
    assert (deleted["outcome"], deleted["problem"]) == ("failed", "MQ_ERROR_QUEUE_NOT_FOUND")
    assert (purged["action"], purged["target"]["name"]) == ("purge", r"DIRECT=OS:.\private$\orders")


def test_sighup_begins_a_rotated_audit_log_again(daemon: Managed) -> None:
    (daemon.folder / "audit.log").rename(daemon.folder / "audit.log.1")
    daemon.send_signal(signal.SIGHUP)
    daemon.wait_for("reloaded")
    with daemon.client() as client:
        client.post("/v1/queues", json={"name": "orders"})
    assert [entry["action"] for entry in daemon.audited()] == ["create_queue"]


@pytest.mark.parametrize(
    ("management", "expected"),
    [
        ({"audit_log": "/none/audit.log"}, "the audit log cannot be written"),
        (
            {"listen": "nowhere:1", "tokens": "/none", "certificate": "/none", "private_key": "/none"},
            "/none: ",
        ),
    ],
)
def test_files_that_cannot_be_used_are_wrong_usage(
    tmp_path: Path, management: dict[str, object], expected: str
) -> None:
    answer = (node := Managed(tmp_path, **management)).command("run", "-c", node.config)
    assert answer.returncode == 2
    assert expected in answer.stderr
    assert "Traceback" not in answer.stderr
