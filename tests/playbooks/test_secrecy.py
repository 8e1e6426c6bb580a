"""A whole roll-out, with all that Ansible can say of it: no secret is in what it says, nor in any log of any host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.lab import releases
from tests.lab.enterprise import LabEnterprise
from tests.playbooks.conftest import SMALL, sample
from tests.playbooks.secrecy import assert_kept, plant

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(5400)]
EVERYTHING = ("-vvv", "--diff")


@pytest.fixture
def enterprise() -> Iterator[LabEnterprise]:
    found = LabEnterprise(sample(*SMALL))
    try:
        found.start()
        releases.give(found)
        found.let_operate()
        plant(found)
        found.set_for_all(queue_manager_amqp=True)
        yield found
    finally:
        found.close()


def test_no_secret_of_a_whole_roll_out_is_in_any_log(
    enterprise: LabEnterprise, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Directory logins, TLS in each mode, users' certificates, a rotation of the keys, a backup and its restore."""
    place = {"backup_name": "first"}
    enterprise.play("provision", *EVERYTHING, declared=str(enterprise.declared)).ok()
    enterprise.play("rollout", *EVERYTHING, "--check").ok()
    enterprise.play("rollout", *EVERYTHING).ok()
    for mode in ("offer", "prefer", "require"):
        enterprise.play("tls", *EVERYTHING, queue_manager_tls=mode).ok()
    enterprise.play("rollout", *EVERYTHING, queue_manager_tls="require", queue_manager_renew_before=3000).ok()
    enterprise.play("verify", *EVERYTHING).ok()
    enterprise.play("rotate_keys", *EVERYTHING, rotation_begun="2026-01-01T00:00:00+00:00").ok()
    enterprise.play("backup", *EVERYTHING, backup_to=str(tmp_path), **place).ok()
    enterprise.play("restore", *EVERYTHING, "--limit", SMALL[1], backup_from=str(tmp_path), **place).ok()

    count = assert_kept(enterprise)

    with capsys.disabled():
        print(
            f"none of {count} secrets is in {len(enterprise.transcripts)} runs of playbooks and the logs of the hosts"
        )
