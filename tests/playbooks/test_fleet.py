"""A fleet of unequal hosts: Debian 12 and 13, Pythons of their own below /opt; some dead, full, or with a wrong clock.

It is rolled out, upgraded, gets new keys and TLS without hosts at fault, takes them in when they are mended, and loses
a machine, under a stream of encrypted transactional messages, of which none is lost, doubled or out of order.
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from tests.lab.enterprise import LabEnterprise, Played, RealHosts
from tests.lab.hosts import System, own_system, why_no_hosts
from tests.lab.roots import why_no_roots
from tests.lab.systems import debian, with_python
from tests.lab.traffic import Stream
from tests.playbooks.test_tls import RETRY, status
from tests.playbooks.test_under_load import another_release, assert_perfect, release

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.servers, pytest.mark.soak, pytest.mark.timeout(5400)]
NORTH, SOUTH = "n-gate", "s-gate"
SENDER, RECEIVER = "n-shop", "s-store"
"""Hosts with Pythons of their own; their messages pass the gates."""
RATE = 200.0
PATIENCE = 900.0
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"


@dataclass(frozen=True)
class Fleet:
    """Hosts by system, the first of each site its gate, and those that are at fault at first."""

    hosts: dict[str, str]
    dead: str = ""
    full: str = ""
    late: str = ""

    @property
    def at_fault(self) -> set[str]:
        return {host for host in (self.dead, self.full, self.late) if host}

    @property
    def sound(self) -> list[str]:
        """The others."""
        return [host for host in self.hosts if host not in self.at_fault]


FOUR = Fleet({NORTH: "Debian 12", SENDER: "Python 3.12", SOUTH: "Debian 13", RECEIVER: "Python 3.13"})
TWELVE = Fleet(
    FOUR.hosts
    | {"n-2": "Debian 12", "n-3": "Debian 13", "n-4": "Debian 12", "n-5": "Python 3.13"}
    | {"s-2": "Debian 13", "s-3": "Debian 12", "s-4": "Debian 13", "s-5": "Python 3.12"},
    dead="n-2",
    full="s-2",
    late="n-3",
)


def systems() -> dict[str, System]:
    """What hosts can be made of here."""
    if reason := why_no_hosts() or why_no_roots():
        pytest.skip(reason)
    found = {"Debian 12": own_system(), "Debian 13": debian("trixie")}
    for version in ("3.12", "3.13"):
        own = with_python(version)
        if own is None:
            pytest.skip(f"this machine has no Python {version} of its own to put below /opt")
        found[f"Python {version}"] = own
    return found


def declared(fleet: Fleet) -> dict[str, Any]:
    """Two sites and one routing link; the receiver has a queue, and the gate beside it another."""
    sites = {host: "North" if host.startswith("n") else "South" for host in fleet.hosts}
    machines = [
        {"name": host, "sites": [site], **({"roles": ["routing_server"]} if host in (NORTH, SOUTH) else {
            "out_routing_servers": [NORTH if site == "North" else SOUTH],
            "in_routing_servers": [NORTH if site == "North" else SOUTH],
        })}
        for host, site in sites.items()
    ]  # fmt: skip
    return {
        "enterprise": {"name": "Fleet"},
        "sites": [{"name": "North"}, {"name": "South"}],
        "routing_links": [{"sites": ["North", "South"], "cost": 1, "site_gates": [NORTH, SOUTH]}],
        "machines": machines,
        "queues": [{"machine": host, "name": "stream", "transactional": True} for host in (RECEIVER, SOUTH)],
    }


@pytest.mark.parametrize("fleet", [FOUR, TWELVE], ids=["four", "twelve"])
async def test_a_fleet_of_unequal_hosts(fleet: Fleet, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made_of = systems()
    chosen = {host: made_of[kind] for host, kind in fleet.hosts.items()}
    enterprise = LabEnterprise(declared(fleet), make=lambda hosts: RealHosts(hosts, chosen))
    try:
        enterprise.start()
        enterprise.set_for_all(**RETRY)
        enterprise.play("provision", declared=str(enterprise.declared)).ok()
        bring_faults(enterprise, fleet)
        went_on(enterprise, fleet, "rollout")

        stream = stream_to(enterprise, RECEIVER)
        await stream.start()
        assert (await asyncio.to_thread(went_on, enterprise, fleet, "rollout")).changed == 0
        source = {"queue_manager_source": str(another_release(tmp_path))}
        await asyncio.to_thread(went_on, enterprise, fleet, "upgrade", **source)
        assert all("99.0.0" in release(enterprise, host) for host in fleet.sound)
        begun = datetime.now(UTC).isoformat(timespec="seconds")
        rotated = await asyncio.to_thread(went_on, enterprise, fleet, "rotate_keys", rotation_begun=begun)
        assert rotated.changed == len(fleet.sound)
        for mode in ("offer", "prefer"):
            enterprise.set_for_all(queue_manager_tls=mode)
            await asyncio.to_thread(went_on, enterprise, fleet, "tls")
        assert {status(enterprise, host)["tls_mode"] for host in fleet.sound} == {"prefer"}

        await asyncio.to_thread(take_in, enterprise, fleet, **source)
        assert all("99.0.0" in release(enterprise, host) for host in fleet.hosts)
        assert {host: python_of(enterprise, host) for host in fleet.hosts} == {
            host: python_of(enterprise, host, made_of[kind].python) for host, kind in fleet.hosts.items()
        }
        enterprise.set_for_all(queue_manager_tls="require")
        (await asyncio.to_thread(play, enterprise, "tls")).ok()
        report = await stream.finish(PATIENCE, enough=True)
        assert_perfect(report, capsys, f"while {len(fleet.hosts)} hosts were upgraded, got keys, TLS, or were taken in")
        assert {status(enterprise, host)["tls_mode"] for host in fleet.hosts} == {"require"}

        leaving = next(host for host in reversed(fleet.hosts) if host not in (NORTH, SOUTH, SENDER))
        stream = stream_to(enterprise, SOUTH)
        await stream.start()
        (await asyncio.to_thread(play, enterprise, "decommission", machine=leaving)).ok()
        report = await stream.finish(PATIENCE, enough=True)
        assert_perfect(report, capsys, f"while {leaving} was decommissioned")
        assert not enterprise.hosts.path(leaving, "/etc/qmnode").exists()
        enterprise.host_variables(leaving).unlink()
        for kind, key in (("machines", "name"), ("queues", "machine")):
            enterprise.declaration[kind] = [one for one in enterprise.declaration[kind] if one[key] != leaving]
        enterprise.write_declaration()
        unchanged(enterprise)
    finally:
        enterprise.close()


def bring_faults(enterprise: LabEnterprise, fleet: Fleet) -> None:
    """Have one host dead, one with a full disk, and one whose clock is wrong."""
    if not fleet.at_fault:
        return
    hosts = enterprise.lab.hosts
    enterprise.lab.network.unplug(fleet.dead)
    hosts[fleet.dead].power_off()
    hosts[fleet.full].do("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/opt")
    lie = f"SetEnv LD_PRELOAD={FAKETIME} FAKETIME=-400 DONT_FAKE_MONOTONIC=1"
    hosts[fleet.late].do("sh", "-c", f"echo '{lie}' >>/etc/ssh/sshd_config && systemctl restart ssh")
    hosts[fleet.late].wait_until_up()


def went_on(enterprise: LabEnterprise, fleet: Fleet, playbook: str, **variables: object) -> Played:
    """Run a playbook, which leaves out the hosts at fault and says why."""
    if not fleet.at_fault:
        return play(enterprise, playbook, **variables).ok()
    going_on: dict[str, Any] = {"queue_manager_failures": "continue", "queue_manager_failures_percent": 25}
    played = play(enterprise, playbook, **variables, **going_on)
    assert played.at_fault == fleet.at_fault, played.said
    for host, cause in (
        (fleet.dead, "cannot be reached"),
        (fleet.full, "MB are free for /opt/qmnode"),
        (fleet.late, "s off the controller's, set it right"),
    ):
        told = rf"{host} .*{cause}.*The others went on without {host}\..*playbooks/{playbook}\.yml --limit ([\w,-]+)"
        found = re.search(told, played.said)
        assert found is not None, played.said
        assert set(found[1].split(",")) == fleet.at_fault
    return played


def take_in(enterprise: LabEnterprise, fleet: Fleet, **variables: object) -> None:
    """TLS is required of nobody before all are there. The first run that finds hosts mended takes them in."""
    if fleet.at_fault:
        refused = play(enterprise, "tls", queue_manager_tls="require", queue_manager_failures="continue")
        assert refused.at_fault == fleet.at_fault, refused.said
        assert refused.changed == 0
        mend_faults(enterprise, fleet)
        taken_in = play(enterprise, "rollout", **variables).ok()
        assert {host for host, found in taken_in.stats.items() if found["changed"]} == fleet.at_fault
    unchanged(enterprise)


def mend_faults(enterprise: LabEnterprise, fleet: Fleet) -> None:
    hosts = enterprise.lab.hosts
    enterprise.lab.network.plug(fleet.dead)
    hosts[fleet.dead].boot()
    hosts[fleet.dead].wait_until_up()
    hosts[fleet.full].do("umount", "/opt")
    hosts[fleet.late].do("sh", "-c", "sed -i /FAKETIME/d /etc/ssh/sshd_config && systemctl restart ssh")
    hosts[fleet.late].wait_until_up()
    enterprise.lab.drop_connections()


def play(enterprise: LabEnterprise, playbook: str, **variables: object) -> Played:
    return enterprise.play(playbook, limit=3000, **variables)


def unchanged(enterprise: LabEnterprise) -> None:
    again = play(enterprise, "rollout").ok()
    assert again.changed == 0, again.said


def python_of(enterprise: LabEnterprise, host: str, python: str = "/opt/qmnode/current/bin/python") -> str:
    """Python and C library of a program on a host."""
    asked = "import os, sys; print(sys.version_info[:3], os.confstr('CS_GNU_LIBC_VERSION'))"
    return enterprise.lab.hosts[host].do(python, "-c", asked).stdout


def stream_to(enterprise: LabEnterprise, receiver: str) -> Stream:
    listed = json.loads(enterprise.command("queue", "list", "--json").stdout)
    (queue,) = (each for each in listed if each["pathname"].lower() == f"{receiver}\\stream")
    return Stream(
        lambda: enterprise.socket(SENDER),
        lambda: enterprise.socket(receiver),
        f"PUBLIC={queue['identifier']}",
        f"{receiver}\\stream",
        count=1_000_000,
        rate=RATE,
        encrypted=True,
        pause=0.1,
    )
