"""Fixtures that tests of several packages use, and what holds for every test."""

import pytest
from hypothesis import settings

from tests.lab.aws import moto  # noqa: F401
from tests.lab.servers import (  # noqa: F401
    directory,
    directory_server,
    domain_controller,
    fresh_name,
    open_folder,
    shared_servers,
    slapd,
    swept_servers,
)

# A machine that is shared stalls now and then; time limits of single examples would report that as failures.
settings.register_profile("project", deadline=None)
settings.load_profile("project")


TOGETHER = ("pipeline", "playbooks")
"""Folders whose tests one process runs: those of one share Spark's, and those of the other the machine's network."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Which tests one process runs when several share them: those of a file, in their order.

    And what compares with the clock may find the machine busy: it is tried up to three times, and the end says so. For
    these alone. A test of what is right, not of how quick it is, has to pass the first time.
    """
    for item in items:
        file = item.path.relative_to(item.config.rootpath)
        item.add_marker(pytest.mark.xdist_group(file.parts[1] if file.parts[1] in TOGETHER else file.as_posix()))
        if item.get_closest_marker("timed"):
            item.add_marker(pytest.mark.flaky(reruns=2))
