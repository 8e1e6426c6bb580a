"""The management API as part of the service: it starts, stops and reloads with the node."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import qmnode

PROJECT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.servers


class Daemon:
    def __init__(self, folder: Path, **management: object) -> None:
        self.folder = folder
        self.config = folder / "node.yaml"
        self.config.write_text(
            json.dumps(
                {
                    "data": str(folder / "store"),
                    "transport": {"enabled": False},
                    "local": {"socket": str(folder / "node.sock")},
                    "management": {
                        "socket": str(folder / "management.sock"),
                        "audit_log": str(folder / "audit.log"),
                        **management,
                    },
                }
            )
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from qmnode.cli import main; main()", "run", "-c", str(self.config)],
            stderr=subprocess.PIPE,
            text=True,
            cwd=PROJECT,
        )

    def wait_for(self, event: str) -> dict[str, Any]:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            entry: dict[str, Any] = json.loads(line)
            if entry["event"] == event:
                return entry
        raise AssertionError(f"the node ended without saying {event!r}")

    def client(self) -> httpx.Client:
        return httpx.Client(
            transport=httpx.HTTPTransport(uds=str(self.folder / "management.sock")), base_url="http://node"
        )

    def audited(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "audit.log").read_text().splitlines()]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path)
    try:
        daemon.wait_for("ready")
        yield daemon
    finally:
        daemon.process.kill()
        daemon.process.communicate()


def test_sigterm_stops_it_and_leaves_no_socket(daemon: Daemon) -> None:
    with daemon.client() as client:
        assert client.get("/readyz").status_code == 200
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(10) == 0
    assert not (daemon.folder / "management.sock").exists()


def test_the_log_stays_json_whatever_a_caller_sends(daemon: Daemon) -> None:
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(daemon.folder / "management.sock"))
        caller.sendall(b"this is no HTTP\r\n\r\n")
        assert b"400" in caller.recv(100)
    assert daemon.wait_for("Invalid HTTP request received.")["level"] == "warning"


async def test_changes_through_the_local_socket_are_in_the_audit_log_too(daemon: Daemon) -> None:
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


def test_sighup_begins_a_rotated_audit_log_again(daemon: Daemon) -> None:
    (daemon.folder / "audit.log").rename(daemon.folder / "audit.log.1")
    daemon.process.send_signal(signal.SIGHUP)
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
    daemon = Daemon(tmp_path, **management)
    _, errors = daemon.process.communicate(timeout=30)
    assert daemon.process.returncode == 2
    assert expected in errors
    assert "Traceback" not in errors
