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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What waits for real servers or measures time is tried once more when it fails; the end of the run names it.

    For these alone: what takes neither a server nor a clock has to pass the first time.
    """
    for item in items:
        if item.get_closest_marker("servers") or item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.flaky(reruns=1))
