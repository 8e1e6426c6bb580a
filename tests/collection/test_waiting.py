"""What the role says of a node that does not become ready: the node's own reason, however often it was started."""

from __future__ import annotations

import json
import subprocess
import sys
from http.server import BaseHTTPRequestHandler
from socketserver import UnixStreamServer
from threading import Thread
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from tests.lab.enterprise import PLAYBOOKS

if TYPE_CHECKING:
    from pathlib import Path

ROLE = PLAYBOOKS / "collections/ansible_collections/mqenterprise/fleet/roles/queue_manager/files/wait.py"
REASON = "0.0.0.0, ports 1801 and 3527: Address already in use"
RESTART = (
    "qmnode.service: Main process exited, code=exited, status=1/FAILURE",
    "qmnode.service: Failed with result 'exit-code'.",
    "Failed to start qmnode.service - Message Queuing (MSMQ) queue manager node.",
    "qmnode.service: Scheduled restart job, restart counter is at 5.",
    "Stopped qmnode.service - Message Queuing (MSMQ) queue manager node.",
    "qmnode.service: Start request repeated too quickly.",
    "qmnode.service: Failed with result 'exit-code'.",
    "Failed to start qmnode.service - Message Queuing (MSMQ) queue manager node.",
)


def test_the_reason_is_told_when_the_log_ends_with_the_service_manager(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("\n".join(['{"event": "starting", "level": "info"}', REASON, *RESTART]))

    command = [sys.executable, str(ROLE), str(tmp_path / "no.sock"), "", "0", str(log)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)

    assert json.loads(done.stdout)["said"].splitlines() == [REASON, *RESTART]
    assert done.returncode == 1
    assert "the node is not ready after" in done.stderr and REASON in done.stderr


class Answers(BaseHTTPRequestHandler):
    """A node that is ready, and whose description is ``node`` of its server."""

    def do_GET(self) -> None:
        content = json.dumps(self.server.node if self.path == "/v1/node" else {}).encode()  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def address_string(self) -> str:
        return "local"

    def log_message(self, *_: object) -> None:
        """Nothing."""


_WARNING = "ALPHA has not joined the directory: there is no ALPHA in it, did you mean ALHPA?"


@pytest.mark.parametrize(
    ("node", "problem"),
    [
        ({"directory": "not joined", "warnings": ["the disk is full", _WARNING]}, _WARNING),
        ({"directory": "not joined", "warnings": []}, "ALPHA has not joined the directory"),
        ({"directory": "not confirmed", "warnings": ["the directory is down"]}, ""),
        ({"directory": "joined", "warnings": []}, ""),
        ({}, ""),
    ],
)
def test_a_node_that_never_joined_its_directory_is_not_ready(
    tmp_path: Path, node: dict[str, Any], problem: str
) -> None:
    with UnixStreamServer(str(tmp_path / "node.sock"), Answers) as server:
        server.node = {"identifier": str(UUID(int=7)), "computer_name": "ALPHA"} | node  # type: ignore[attr-defined]
        Thread(target=server.serve_forever).start()
        command = [sys.executable, str(ROLE), str(tmp_path / "node.sock"), str(UUID(int=7)), "0", str(tmp_path / "log")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        server.shutdown()
    found = json.loads(done.stdout)
    assert (found["ready"], found["problem"]) == (not problem, problem)
    assert done.returncode == bool(problem)
