"""Fixtures that tests of several packages use, and what holds for every test."""

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
