"""The probe of ``verify.yml`` to a machine of the directory that has nothing but a queue for it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.lab.nodes import PROJECT, NodeProcess
from tests.operations.carried import create
from tests.operations.switched import Enterprise

if TYPE_CHECKING:
    from pathlib import Path

    from mqenterprise.directory.private_slapd import EmbeddedDirectory

pytestmark = [
    pytest.mark.servers,
    pytest.mark.one_server(reason="a probe does not depend on the directory's product"),
]
PROBE = PROJECT / "playbooks/collections/ansible_collections/mqenterprise/fleet/roles/queue_manager/files/probe.py"


def probe(node: NodeProcess, *words: str) -> dict[str, Any]:
    """What the probe prints that is run beside a node."""
    ended = subprocess.run(
        [sys.executable, str(PROBE), str(node.socket), *words], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert not ended.returncode, ended.stderr
    return dict(json.loads(ended.stdout))


async def test_a_machine_of_the_directory_answers_a_probe_to_its_address(
    slapd: EmbeddedDirectory, tmp_path: Path
) -> None:
    enterprise = Enterprise(tmp_path, slapd)
    here, windows = enterprise.sender, enterprise.old
    try:
        await asyncio.gather(*(asyncio.to_thread(node.start) for node in (here, windows)))
        await create(windows, "mqenterprise-probe")
        made = await asyncio.to_thread(probe, here, "prepare", "", "reports")
        names, address = {made["identifier"]: "here"}, enterprise.addresses["SWOLD"]
        asked = {"targets": {}, "windows": {"win": address}, "names": names, "addresses": {}, "direct": ""}
        found = (await asyncio.to_thread(probe, here, "probe", json.dumps(asked)))["found"]["win"]
        assert found["why"] == "", found
        assert found["seconds"] >= 0
    finally:
        enterprise.stop()
