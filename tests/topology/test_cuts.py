"""Apply cut anywhere: by SIGKILL at random points, and by a directory that dies under it."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml

from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.directory.settings import ServerKind
from mqenterprise.topology.apply import ApplyError, apply_declared, plan_declared
from mqenterprise.topology.check import load
from mqenterprise.topology.ldap_target import LdapTarget
from tests.lab.servers import DirectoryServer, start_slapd
from tests.lab.waiting import wait_until
from tests.topology.conftest import Bench, Silent

pytestmark = pytest.mark.servers

ROOT = Path(__file__).parents[2]
NOTHING = {"enterprise": {"name": "Nothing"}}


def enterprise(sites: int, machines: int, queues: int) -> dict:
    """An enterprise with everything in it: links with gates, routing through servers, users and access rights."""
    names = [f"Site {n}" for n in range(sites)]
    members = [
        {"name": f"m{n}", "sites": [names[n % sites]], "out_routing_servers": [f"r{n % sites}"]}
        for n in range(machines)
    ]
    return {
        "enterprise": {"name": "Cut", "default_time_to_live": 86_400},
        "sites": [{"name": name} for name in names],
        "routing_links": [
            {"sites": [names[n - 1], names[n]], "cost": n, "site_gates": [f"r{n}"]} for n in range(1, sites)
        ],
        "machines": [
            *({"name": f"r{n}", "sites": [names[n]], "roles": ["routing_server"]} for n in range(sites)),
            *members,
        ],
        "users": [{"name": "Cut User"}],
        "queues": [
            {
                "machine": f"m{n % machines}",
                "name": f"queue {n}",
                "transactional": n % 2 == 0,
                "access": [{"to": "Cut User", "allow": ["send"]}],
            }
            for n in range(queues)
        ],
    }


def apply_in_child(settings, file, prune):
    """What the process that is killed does."""
    with EnterpriseDirectory(settings) as directory:
        apply_declared(load(file), LdapTarget(directory), Silent(), prune=prune, patience=30)


def cut(bench, file, delay, *, prune):
    """Start an apply in a process of its own and kill it after a while. Whether it was still running."""
    context = multiprocessing.get_context("fork")
    child = context.Process(target=apply_in_child, args=(bench.server.settings, file, prune))
    child.start()
    child.join(delay)
    running = child.is_alive()
    if running:
        os.kill(child.pid, signal.SIGKILL)
    child.join()
    return running


def timed(bench, checked, *, prune):
    begun = time.monotonic()
    bench.apply(checked, prune=prune)
    return time.monotonic() - begun


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("cuts", [2, pytest.param(50, marks=pytest.mark.soak)])
def test_cut_by_sigkill_at_random_points_and_run_again_equals_one_clean_apply(bench, cuts):
    size = (3, 6, 12) if bench.server.is_active_directory else (5, 20, 100)
    full, nothing = bench.declare(enterprise(*size), "full.yaml"), bench.declare(NOTHING, "nothing.yaml")
    durations = {True: timed(bench, full, prune=True)}
    clean = bench.ours()
    durations[False] = timed(bench, nothing, prune=True)
    points = random.Random(5)
    were_cut = tries = 0

    while were_cut < cuts and tries < 3 * cuts:
        building = tries % 2 == 0
        tries += 1
        checked, wanted = (full, clean) if building else (nothing, {})
        file = bench.folder / ("full.yaml" if building else "nothing.yaml")
        if cut(bench, file, points.uniform(0.02, 0.02 + durations[building]), prune=True):
            were_cut += 1
        else:  # it was faster than before: aim earlier
            durations[building] *= 0.8

        bench.apply(checked, prune=True)

        assert bench.ours() == wanted
        assert bench.plan(checked, prune=True).steps == ()
    assert were_cut == cuts


def apply_and_stop(settings, file):
    """An apply that stops itself in the middle, as a laptop does that is closed; exit code 3 when it lost its lease."""

    class Sleepy(Silent):
        def step(self):
            super().step()
            if self.steps == 50:
                os.kill(os.getpid(), signal.SIGSTOP)

    with EnterpriseDirectory(settings) as directory:
        try:
            apply_declared(load(file), LdapTarget(directory), Sleepy(), time_to_live=8.0)
        except ApplyError:
            os._exit(3)


def test_an_apply_that_slept_while_another_took_over_changes_nothing_more(bench):
    data = enterprise(2, 4, 80)
    bench.declare(data, "early.yaml")
    for queue in data["queues"]:
        queue["quota"] = 7
    late = bench.declare(data, "late.yaml")
    child = multiprocessing.get_context("fork").Process(
        target=apply_and_stop, args=(bench.server.settings, bench.folder / "early.yaml")
    )
    child.start()
    stat = Path(f"/proc/{child.pid}/stat")

    def state():
        return stat.read_text().rpartition(")")[2].split()[0]

    wait_until(lambda: state() in "TZ", 60, "the first apply sleeps")
    assert state() == "T", "the first apply ended before it slept"

    bench.apply(late)
    done = bench.ours()
    os.kill(child.pid, signal.SIGCONT)
    child.join(60)

    assert child.exitcode == 3
    assert bench.ours() == done
    assert bench.plan(late).steps == ()


@pytest.fixture
def own_slapd(open_folder, tmp_path):
    """A slapd of this test alone, as it is to be killed."""
    embedded = start_slapd(open_folder / "state")
    bench = Bench(DirectoryServer(ServerKind.OPENLDAP, embedded.client_settings()), tmp_path)
    bench.directory.prepare()
    yield embedded, bench
    bench.directory.close()
    embedded.stop()


@pytest.mark.slow
def test_a_directory_killed_in_the_middle_is_told_and_the_apply_can_be_run_again(own_slapd):
    embedded, bench = own_slapd
    checked = bench.declare(enterprise(5, 20, 300))

    class Killer(Silent):
        def step(self):
            super().step()
            if self.steps == 100:
                os.kill(embedded.pid(), signal.SIGKILL)

    with pytest.raises(ApplyError, match=r"the directory went away at .* of 336 steps are done; run again to go on"):
        apply_declared(checked, bench.target, Killer())
    embedded.start()
    # The lease could not be given back, and its holder, this process, is alive: it runs out.
    done = apply_declared(checked, bench.target, Silent(), patience=60)

    assert done.done <= 336 - 100
    assert plan_declared(checked, bench.target).steps == ()


def test_the_command_says_so_when_the_directory_dies(own_slapd):
    embedded, bench = own_slapd
    (bench.folder / "e.yaml").write_text(yaml.safe_dump(enterprise(5, 20, 2000)))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MQENTERPRISE_DIRECTORY": str(bench.file)}
    arguments = [sys.executable, "-c", "from mqenterprise.cli import main; main()", "apply", bench.folder / "e.yaml"]
    process = subprocess.Popen(arguments, env=environment, stderr=subprocess.PIPE, text=True)
    died = threading.Event()

    def kill_once_it_writes():
        while process.poll() is None:
            if len(bench.ours()) > 100:
                os.kill(embedded.pid(), signal.SIGKILL)
                died.set()
                return

    watcher = threading.Thread(target=kill_once_it_writes)
    watcher.start()
    _, complaint = process.communicate(timeout=300)
    watcher.join()

    assert died.is_set()
    assert process.returncode == 1
    assert "the directory went away at" in complaint
    assert "run again to go on" in complaint
    assert "Traceback" not in complaint
