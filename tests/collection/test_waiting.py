"""What the role says of a node that does not become ready: the node's own reason, however often it was started."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

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
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)

    assert json.loads(done.stdout)["said"].splitlines() == [REASON, *RESTART]
