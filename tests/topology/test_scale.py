"""200 sites, 2,000 machines, 20,000 queues on slapd: how long a plan takes, and an apply from nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mqenterprise.directory.settings import ServerKind
from mqenterprise.topology.check import load
from mqenterprise.topology.session import apply_declared
from tests.lab.servers import DirectoryServer, start_slapd
from tests.topology.conftest import Bench, Silent

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
SITES, MACHINES, QUEUES = 200, 2_000, 20_000
PLAN_SECONDS, PLAN_MEBIBYTES = 15.0, 500.0
SHARE_OF_ADD_RATE = 0.5
PROBES = 5_000
"""Entries that the server's own client adds, to know its rate."""

MEASURED = """
import json, resource, sys, time
begun = time.monotonic()
from mqenterprise.cli import app
try:
    app()
except SystemExit as ended:
    code = ended.code
usage = resource.getrusage(resource.RUSAGE_SELF)
# Not ru_maxrss, which begins with the memory of the process that started this one.
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM:"))
figures = {"code": code, "seconds": time.monotonic() - begun, "mebibytes": peak / 1024}
print(json.dumps(figures | {"cpu": usage.ru_utime + usage.ru_stime}), file=sys.stderr)
"""


def declaration() -> str:
    """The text of a large enterprise: a tree of sites, a router in each, machines that route through it."""
    lines = ["enterprise: {name: Large}", "sites:", *(f"  - name: Site {n:03}" for n in range(SITES))]
    lines += [
        "routing_links:",
        *(f"  - {{sites: [Site {n // 2:03}, Site {n:03}], cost: {n}, site_gates: [r{n:03}]}}" for n in range(1, SITES)),
        "machines:",
        *(f"  - {{name: r{n:03}, sites: [Site {n:03}], roles: [routing_server]}}" for n in range(SITES)),
    ]
    for n in range(MACHINES - SITES):
        machine, site = f"m{n:04}", f"{n % SITES:03}"
        lines.append(f"  - {{name: {machine}, sites: [Site {site}], out_routing_servers: [r{site}]}}")
    lines.append("queues:")
    for n in range(QUEUES):
        machine = n % (MACHINES - SITES)
        lines += [f"  - machine: m{machine:04}", f"    name: queue {n:05}", f"    label: Label {n}"]
        lines += ["    transactional: true", f"    quota: {n}"]
    return "\n".join(lines) + "\n"


@pytest.fixture
def bench(open_folder, tmp_path):
    embedded = start_slapd(open_folder / "state")
    made = Bench(DirectoryServer(ServerKind.OPENLDAP, embedded.client_settings()), tmp_path)
    made.directory.prepare()
    yield made
    made.directory.close()
    embedded.stop()


def own_add_rate(bench) -> float:
    """Queues per second that ldapadd adds to an empty machine, which is deleted again."""
    connection, settings = bench.directory.connection, bench.server.settings
    computer = f"CN=probe,{connection.dialect.contexts.computers}"
    connection.add(computer, ("top", "computer"), {})
    connection.add(f"CN=msmq,{computer}", ("top", "mSMQConfiguration"), {})
    entry = (
        "dn: CN=q{n},CN=msmq,{computer}\nobjectClass: top\nobjectClass: mSMQQueue\nobjectGUID: {n:016}\n"
        "mSMQLabelEx: Label {n}\nmSMQJournal: FALSE\nmSMQQueueQuota: {n}\nmSMQQueueJournalQuota: -1\n"
        "mSMQAuthenticate: FALSE\nmSMQTransactional: TRUE\nmSMQBasePriority: 0\nmSMQPrivacyLevel: 1\n"
        "adminDescription: probe\n\n"
    )
    ldif = "".join(entry.format(n=n, computer=computer) for n in range(PROBES))
    secret = bench.folder / "secret"
    secret.write_text(settings.secret())
    arguments = ["ldapadd", "-x", "-H", settings.servers[0], "-D", settings.user, "-y", str(secret)]
    begun = time.monotonic()
    subprocess.run(
        arguments,
        input=ldif.encode(),
        env={**os.environ, "LDAPTLS_CACERT": str(settings.ca_file)},
        capture_output=True,
        timeout=300,
        check=True,
    )
    rate = PROBES / (time.monotonic() - begun)
    connection.delete(computer, tree=True)
    return rate


def entries(bench) -> int:
    connection = bench.directory.connection
    return sum(1 for _ in connection.search(connection.root, "(adminDescription=mqenterprise *)", ("1.1",)))


def test_a_large_enterprise_is_applied_and_planned_in_time(bench, tmp_path, record_property):
    file = tmp_path / "large.yaml"
    file.write_text(declaration())
    checked = load(file)
    before = own_add_rate(bench)

    begun = time.monotonic()
    done = apply_declared(checked, bench.target, Silent()).done
    seconds = time.monotonic() - begun
    after = own_add_rate(bench)
    rate, own = entries(bench) / seconds, (before + after) / 2
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MQENTERPRISE_DIRECTORY": str(bench.file)}
    for _ in range(3):  # a machine that is shared stalls now and then
        plan = subprocess.run(
            [sys.executable, "-c", MEASURED, "plan", str(file)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        figures = json.loads(plan.stderr.splitlines()[-1])
        if figures["seconds"] < PLAN_SECONDS:
            break

    told = f"apply: {done} steps, {rate:.0f} entries/s, ldapadd {own:.0f}/s; plan: {figures}"
    record_property("figures", told)
    print(told)
    assert done == SITES + (SITES - 1) + MACHINES + QUEUES, told
    assert rate >= SHARE_OF_ADD_RATE * own, told
    assert (figures["code"], plan.stdout.splitlines()[-1]) == (0, "Nothing to do: the directory is as declared.")
    assert figures["seconds"] < PLAN_SECONDS, told
    assert figures["mebibytes"] < PLAN_MEBIBYTES, told
