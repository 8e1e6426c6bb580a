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
    queue = {"machine": RECEIVER, "name": QUEUE, "transactional": True}
    hosts = six()
    with rolled_out(hosts, [queue]) as enterprise:
        refused = enterprise.play("tls", queue_manager_tls="require")
        assert refused.at_fault == set(hosts)
        assert "it does not prefer TLS yet" in refused.said
        for mode in ("offer", "prefer", "require", "prefer", "offer"):
            stream = stream_of(enterprise, 100_000, 500.0)
            await stream.start()
            changed = await asyncio.to_thread(enterprise.play, "tls", queue_manager_tls=mode, **RETRY)
            report = await stream.finish(PATIENCE, enough=True)
            assert changed.ok().changed >= len(hosts)
            assert_perfect(report, capsys, f"while {len(hosts)} hosts changed to {mode}")
            assert report.longest_receive_pause < LONGEST
            with capsys.disabled():
                print(f"longest pause of the receiver {report.longest_receive_pause:.1f} s")
            for host in hosts:
                node = status(enterprise, host)
                assert (node["tls_mode"], node["warnings"]) == (mode, [])
        verified = enterprise.play("verify").ok()
        assert "its mode of TLS with other nodes is offer" in verified.said
        again = enterprise.play("tls", queue_manager_tls="offer", **RETRY).ok()
        assert again.changed == 0
        renewed = enterprise.play("tls", queue_manager_tls="offer", queue_manager_renew_before=900, **RETRY).ok()
        assert renewed.changed >= 2 * len(hosts)


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
