"""Fixtures that tests of several packages use, and what holds for every test."""

import asyncio
import gc
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from qmnode import allocator
from qmnode.event_loop import LOOP_VARIABLE
from tests.durations import summary
from tests.lab import releases
from tests.lab.aws import moto  # noqa: F401
from tests.lab.loop_watch import fails, fresh_turns, too_long
from tests.lab.servers import (  # noqa: F401
    directory,
    directory_server,
    domain_controller,
    fresh_name,
    open_folder,
    shared_servers,
    slapd,
    swept_servers,
    writing_modules,
)


@pytest.fixture
def own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """All buffers can be lent: what earlier tests left to the garbage collector keeps none of them."""
    monkeypatch.setattr(allocator, "_OF_THREAD", allocator._Lenders())


@pytest.fixture(autouse=True, scope="module")
def as_logs_were() -> Iterator[None]:
    """A module whose node runs in this process, with a level of its own, hides no lines from the tests after it."""
    configured = structlog.get_config()
    yield
    structlog.configure(**configured)


# A machine that is shared stalls now and then; time limits of single examples would report that as failures.
settings.register_profile("project", deadline=None)
settings.load_profile("project")


TESTS = Path(__file__).parent
TOGETHER = {
    "playbooks": ("playbooks",),
    "demo": ("playbooks/test_demo.py",),
    "operations": ("playbooks/test_operations.py",),
    "pipeline": ("pipeline",),
    "directories": (
        "certificates", "collection", "directory", "discovery", "keys", "routes", "topology",
        "docs/test_beside_windows.py", "docs/test_moved_queue.py", "forwarding/test_topology.py",
        "remote_read/test_authentication.py", "remote_read/test_kerberos.py", "amqp/test_directory_users.py",
        "operations/test_nodes.py", "effects/test_access_lists.py", "effects/test_weakened_security.py",
        "pipeline/test_directory_source.py",
    ),
}  # fmt: skip
"""Folders and files whose tests one process runs: they share hosts, a Spark session, two directories.
Starting a session or an Active Directory takes most of a minute. A file counts more than its folder."""
LONGEST = ("demo", "pipeline", "playbooks", "directories", "operations")
FIRST = (*LONGEST, "tests/soak/test_soak.py", "tests/crash/test_crash.py")
"""What takes longest, so that no process is left alone with it at the end. Operations have the release of the demo."""
SCOPES = {place: name for name, places in TOGETHER.items() for place in places}


OF_WHOLE_NODES = {
    "adversary", "bench", "certificates", "collection", "console", "copies", "crash", "doors", "export", "failover",
    "faults", "forwarding", "keys", "management", "mqrt", "operations", "pipeline", "playbooks", "scale", "service",
    "soak", "survey", "transport",
}  # fmt: skip
"""Rooms whose tests run whole nodes, Ansible or Spark. ``make check`` leaves them to ``make test``, and does not even
read them: that takes each of its processes as long as a thousand tests."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Whether a room is left out, as it is where nothing slow is asked for."""
    of_nodes = collection_path.parent == TESTS and collection_path.name in OF_WHOLE_NODES
    return True if of_nodes and "not slow" in config.option.markexpr else None


class Scheduler(LoadScopeScheduling):
    """Gives each process a file after the other, or a folder whose tests belong together."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)


def scope(nodeid: str) -> str:
    """What one process runs: a file, or what belongs together."""
    file = nodeid.split("::", 1)[0]
    folder, _, rest = file.removeprefix("tests/").partition("/")
    return SCOPES.get(f"{folder}/{rest}") or SCOPES.get(folder) or file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduler:
    return Scheduler(config, log)


MEMORY, MEMORY_NEEDED = Path("/dev/shm"), 4 << 30
"""A file system in memory, and the free bytes from which on the tests' folders are there: each of their thousands of
stores would else wait for a disk several times."""


def pytest_configure(config: pytest.Config) -> None:
    """What a process of several starts can be interrupted; it would inherit that the process itself ignores it."""
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_NEEDED:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    if hasattr(config, "workerinput"):
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.environ.get(LOOP_VARIABLE) == "uvloop":  # else what runs in this process has asyncio's own loop
        import uvloop

        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    gc.disable()


def pytest_unconfigure(config: pytest.Config) -> None:
    """The processes that shared it have ended."""
    if not hasattr(config, "workerinput"):
        releases.remove()


def pytest_collection_finish() -> None:
    """Thousands of tests and their modules stay until the end: the garbage collector need not look at them again."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where several processes share the work, the longest begins first; a single one keeps the order of the files."""
    if hasattr(config, "workerinput"):
        order = {name: place for place, name in enumerate(FIRST)}
        items.sort(key=lambda item: order.get(scope(item.nodeid), len(order)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Add what the watch over the nodes' event loops noted during a test; fail the test if it is to fail of it."""
    report = yield
    if call.when == "call" and (turns := too_long(fresh_turns())):
        report.user_properties.append(("turns", turns))
        if report.passed and fails(item):
            report.outcome = "failed"
            report.longrepr = "the event loop of a node was held:\n" + "\n".join(turns)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Where the time went."""
    reports = [
        report for found in terminalreporter.stats.values() for report in found if isinstance(report, pytest.TestReport)
    ]
    if lines := summary(reports):
        terminalreporter.section("where the time went")
        for line in lines:
            terminalreporter.line(line)
    turns = [(one.nodeid, text) for one in reports for name, found in one.user_properties if name == "turns"
             for text in found]  # fmt: skip
    if turns:
        terminalreporter.section("turns of nodes' event loops that were too long")
        for test, text in turns[:40]:
            terminalreporter.line(f"{test}: {text}")


def pytest_itemcollected(item: pytest.Item) -> None:
    """What compares with the clock may find the machine busy: it is tried up to three times, and the end says so.

    For these alone, and only in the soaks: a test of what is right has to pass the first time, on any machine.
    """
    if item.get_closest_marker("timed"):
        if not item.get_closest_marker("soak"):
            raise pytest.UsageError(f"{item.nodeid} compares with the clock: count something else, or mark it soak")
        item.add_marker(pytest.mark.flaky(reruns=2))
