"""Six hosts go from plain connections to TLS and back, one run for each mode, while messages go over three sites."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.playbooks.conftest import rolled_out, sample
from tests.playbooks.test_under_load import PATIENCE, QUEUE, RECEIVER, SENDER, assert_perfect, stream_of

if TYPE_CHECKING:
    from tests.lab.enterprise import LabEnterprise

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(1800)]
LONGEST = 10.0
"""Seconds for which a link may be cut."""


def six() -> list[str]:
    """The routing servers of the sample, and other machines of it."""
    names = [machine["name"] for machine in sample()["machines"]]
    first = [SENDER, "bre-router", RECEIVER]
    return [*first, *(name for name in names if name not in first)][:6]


async def test_an_enterprise_changes_to_tls_and_back_under_load(capsys: pytest.CaptureFixture[str]) -> None:
    """First half of the hosts prefer TLS, and the others have none, as hosts of older releases."""
    queue = {"machine": RECEIVER, "name": QUEUE, "transactional": True}
    hosts = six()
    with rolled_out(hosts, [queue]) as enterprise:
        refused = enterprise.play("tls", queue_manager_tls="require")
        assert refused.at_fault == set(hosts)
        assert "it does not prefer TLS yet" in refused.said
        new = hosts[::2]
        await changes(enterprise, capsys, f"{len(new)} of {len(hosts)} hosts changed to prefer", "prefer", new)
        for mode in ("offer", "prefer", "require"):
            await changes(enterprise, capsys, f"{len(hosts)} hosts changed to {mode}", mode, hosts)
        await changes(enterprise, capsys, "all certificates were renewed", "require", hosts, renew_before=900)
        assert enterprise.play("tls", queue_manager_tls="require", **RETRY).ok().changed == 0
        for mode in ("prefer", "offer"):
            await changes(enterprise, capsys, f"{len(hosts)} hosts changed to {mode}", mode, hosts)
        verified = enterprise.play("verify").ok()
        assert "its mode of TLS with other nodes is offer" in verified.said
        rolled = enterprise.play("rollout", queue_manager_tls="offer", **RETRY).ok()
        assert rolled.changed == 0  # what a node has read while it ran needs no restart


async def changes(
    enterprise: LabEnterprise, capsys: pytest.CaptureFixture[str], what: str, mode: str, hosts: list[str], **more: int
) -> None:
    """A run of the playbook on these hosts, under load: nothing is lost, and no link is cut for long."""
    stream = stream_of(enterprise, 100_000, 500.0)
    await stream.start()
    settings = {f"queue_manager_{name}": value for name, value in more.items()}
    limit = "--limit", ",".join(hosts)
    changed = await asyncio.to_thread(enterprise.play, "tls", *limit, queue_manager_tls=mode, **settings, **RETRY)
    report = await stream.finish(PATIENCE, enough=True)
    assert changed.ok().changed >= len(hosts)
    assert_perfect(report, capsys, f"while {what}")
    assert report.longest_receive_pause < LONGEST
    with capsys.disabled():
        print(f"longest pause of the receiver {report.longest_receive_pause:.1f} s")
    for host in hosts:
        node = status(enterprise, host)
        assert (node["tls_mode"], node["warnings"]) == (mode, [])


RETRY: dict[str, Any] = {
    name: {"transfer": {"retry_interval": 1, "retry_maximum": 5}}
    for name in ("queue_manager_settings", "routing_server_more_settings")
}


def status(enterprise: LabEnterprise, host: str) -> dict[str, Any]:
    """What ``qmnode status`` says on a host."""
    program = Path(sys.executable).with_name("qmnode")
    command = [str(program), "status", "--json", "--socket", str(enterprise.socket(host))]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found
