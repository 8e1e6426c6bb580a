"""A roll-out to hundreds of hosts that changes nothing: how long it takes, and what it costs the controller.

Ten hosts are real. Their answers, and how long each took, are recorded; hundreds of hosts answer as they did.
"""

from __future__ import annotations

import resource
import shutil
import statistics
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from tests.lab.enterprise import LabEnterprise, Played
from tests.lab.hosts import why_no_hosts
from tests.lab.replay import Answers, RecordedHosts, ReplayedHosts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.servers, pytest.mark.soak, pytest.mark.timed, pytest.mark.timeout(5400)]
OF_A_SITE = 10
"""Hosts, of which the first is the gate."""
CURVE = (10, 25, 50, 100, 200)
MOST = 90.0
"""Seconds for 200 hosts."""
TURNS = 3


def name(number: int) -> str:
    return f"h-{number:03}"


def declared(count: int) -> dict[str, Any]:
    """Sites in a row, each with a gate and clients."""
    gates = range(0, count, OF_A_SITE)
    sites = {gate: f"Site {gate // OF_A_SITE}" for gate in gates}

    def machine(number: int) -> dict[str, Any]:
        gate = number - number % OF_A_SITE
        role = {"roles": ["routing_server"]} if number == gate else {"out_routing_servers": [name(gate)]}
        return {"name": name(number), "sites": [sites[gate]], **role}

    return {
        "enterprise": {"name": "Hundreds"},
        "sites": [{"name": site} for site in sites.values()],
        "routing_links": [
            {"sites": [sites[one], sites[other]], "cost": 1, "site_gates": [name(one), name(other)]}
            for one, other in pairwise(gates)
        ],
        "machines": [machine(number) for number in range(count)],
        "queues": [],
    }


@dataclass(frozen=True)
class Cost:
    """Of a run."""

    seconds: float
    processor: float
    """Seconds, of the controller."""
    played: Played

    def __str__(self) -> str:
        longest = sorted(self.played.seconds.items(), key=lambda each: -each[1])[:6]
        where = ", ".join(f"{seconds:.1f} s {task}" for task, seconds in longest)
        return f"{self.seconds:.1f} s, {self.processor:.1f} s of the controller's processor ({where})"


def roll_out(enterprise: LabEnterprise, **variables: object) -> Cost:
    sites = len(enterprise.declaration["sites"])
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    played = enterprise.play("rollout", limit=3000, queue_manager_sites_at_once=sites, **variables)
    after, took = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began
    return Cost(took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, played)


def unchanged(enterprise: LabEnterprise) -> Cost:
    cost = roll_out(enterprise)
    assert cost.played.ok().changed == 0, cost.played.said[-3000:]
    assert set(cost.played.stats) >= set(enterprise.hosts.addresses)
    return cost


@dataclass(frozen=True)
class Recorded:
    """Ten real hosts that were rolled out."""

    costs: list[Cost]
    answers: dict[str, Answers]
    inventory: dict[str, dict[str, Any]]
    dead: Answers
    """Of a host without power."""
    releases: Path
    """What the controller has built, and need not build again."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    if reason := why_no_hosts():
        pytest.skip(reason)
    enterprise = LabEnterprise(declared(OF_A_SITE), make=RecordedHosts)
    hosts = enterprise.hosts
    assert isinstance(hosts, RecordedHosts)
    with closing(enterprise):
        enterprise.start()
        enterprise.play("provision", declared=str(enterprise.declared)).ok()
        while roll_out(enterprise).played.ok().changed:
            pass
        hosts.recording = True
        costs = [unchanged(enterprise) for _turn in range(TURNS)]
        answers = hosts.answers()
        last = name(OF_A_SITE - 1)
        enterprise.lab.hosts[last].power_off()
        assert roll_out(enterprise, queue_manager_failures="continue").played.at_fault == {last}
        releases = shutil.copytree(enterprise.releases, tmp_path_factory.mktemp("recorded") / "releases")
        inventory = {host: hosts.inventory(host) for host in hosts.addresses}
        return Recorded(costs, answers, inventory, hosts.answers()[last], releases)


@contextmanager
def replayed(recorded: Recorded, count: int) -> Iterator[LabEnterprise]:
    """So many hosts that answer as the ten did, rolled out."""
    others = {name(number): name(number % OF_A_SITE) for number in range(count)}
    as_others = {host: (recorded.answers[other], recorded.inventory[other]) for host, other in others.items()}
    enterprise = LabEnterprise(declared(count), make=partial(ReplayedHosts, as_others=as_others))
    with closing(enterprise):
        enterprise.start()
        enterprise.releases.parent.mkdir(parents=True)
        enterprise.releases.symlink_to(recorded.releases)
        enterprise.play("provision", declared=str(enterprise.declared)).ok()
        roll_out(enterprise).played.ok()  # lets all into the directory
        yield enterprise


def test_ten_hosts_cost_what_their_recorded_answers_cost(
    recorded: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    with replayed(recorded, OF_A_SITE) as enterprise:
        costs = [unchanged(enterprise) for _turn in range(TURNS)]
    real, played = (statistics.median(cost.seconds for cost in each) for each in (recorded.costs, costs))
    with capsys.disabled():
        print(f"\nten real hosts: {recorded.costs[0]}\nten replayed: {costs[0]}")
        print(f"medians of {TURNS}: {real:.1f} and {played:.1f} s")
    assert abs(real - played) <= 0.2 * real


@pytest.mark.parametrize("count", CURVE)
def test_an_unchanged_roll_out(recorded: Recorded, count: int, capsys: pytest.CaptureFixture[str]) -> None:
    with replayed(recorded, count) as enterprise:
        cost = unchanged(enterprise)
    with capsys.disabled():
        print(f"\n{count} hosts: {cost}")
    assert cost.seconds <= MOST


def test_a_dead_host_of_two_hundred(recorded: Recorded) -> None:
    dead, count = name(57), max(CURVE)
    with replayed(recorded, count) as enterprise:
        hosts = enterprise.hosts
        assert isinstance(hosts, ReplayedHosts)
        hosts.answer(dead, recorded.dead)

        stopped = roll_out(enterprise).played
        assert stopped.code != 0
        assert stopped.at_fault == {dead}
        assert f"--limit 'queue_managers,!{dead}'" in stopped.said
        assert "queue_manager_failures=continue" in stopped.said

        went_on = roll_out(enterprise, queue_manager_failures="continue").played
        assert went_on.at_fault == {dead}
        assert f"{dead} cannot be reached" in went_on.said
        assert f"ansible-playbook playbooks/rollout.yml --limit {dead}" in went_on.said

        without_site = roll_out(enterprise, queue_manager_failures="site").played
        assert without_site.at_fault == {name(number) for number in range(50, 60)}
        assert f"its site has a host at fault: {dead}" in without_site.said

        bounded = roll_out(enterprise, queue_manager_failures="continue", queue_manager_failures_percent=0.4).played
        assert bounded.code != 0
        assert "1 hosts are at fault, more than queue_manager_failures_percent (0.4) allows" in bounded.said
