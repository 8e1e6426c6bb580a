"""Whether a node that runs has its settings in use: what the role restarts it for."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

import qmnode
from qmnode.structures.guid import Guid, guid_to_text
from tests.collection.conftest import COLLECTION
from tests.lab.nodes import NodeProcess, running_node

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.servers
LOOK = COLLECTION / "roles/queue_manager/files/look.py"
NAME = {"computer_name": "ALPHA"}


def look(node: NodeProcess) -> dict[str, Any]:
    """What the role sees of the node."""
    process = node.folder / "pid"
    process.write_text(str(node.process.pid))
    folders = [node.folder] * 3
    command = [sys.executable, *map(str, (LOOK, *folders, process, node.management_socket))]
    found: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found


def stale(node: NodeProcess) -> list[str]:
    """The names of files that wait for a restart."""
    return [one.rpartition("/")[2] for one in look(node)["stale"]]


def test_settings_that_a_reload_took_need_no_restart(tmp_path: Path) -> None:
    with running_node(tmp_path, managed=True, **NAME) as node:
        assert stale(node) == []
        assert look(node)["identifier"] == identifier(node), "in a workgroup, its certificate names it"
        node.configure(**NAME, quotas={"queue_manager_quota": 1})
        assert stale(node) == ["node.yaml"]
        node.process.send_signal(signal.SIGHUP)
        node.wait_for("reloaded")
        assert stale(node) == []

        time.sleep(0.1)  # files written within 0.05 s of the reading count as read
        node.configure(**NAME, transfer={"retry_interval": 3})
        node.process.send_signal(signal.SIGHUP)
        node.wait_for("reloaded")
        assert stale(node) == ["node.yaml"]
        assert warnings(node) == ("settings: transfer changed: restart the node for that",)

        node.configure(**NAME)
        node.process.send_signal(signal.SIGHUP)
        node.wait_for("reloaded")
        assert (stale(node), warnings(node)) == ([], ())


def identifier(node: NodeProcess) -> str:
    async def ask() -> str:
        async with qmnode.connect(node.socket) as qm:
            return guid_to_text(Guid(qm.identifier))

    return asyncio.run(ask())


def warnings(node: NodeProcess) -> tuple[str, ...]:
    async def ask() -> tuple[str, ...]:
        async with qmnode.connect(node.socket) as qm:
            return (await qm.status()).warnings

    return asyncio.run(ask())
