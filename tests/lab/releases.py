"""A release that one lab has built and installed, for labs that are about something else: each takes a minute of work.

The processes that share the tests of a run share it. Only for hosts with a root of their own: there an installation has
the same place on all of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.lab.enterprise import LabEnterprise

ARCHIVES = "controller/state/mqenterprise/rollout/releases"
INSTALLED = "opt/qmnode/releases"


def _kept() -> Path:
    """Where this run of the tests keeps it: its first process starts the others, and removes it."""
    run = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    return Path(tempfile.gettempdir()) / f"qmrelease-{run}"


def keep(lab: Path) -> None:
    """Keep what the lab in this folder has installed on its hosts, until the run ends."""
    installed = next(iter(sorted(lab.glob(f"hosts/*/root/{INSTALLED}"))), None)
    if _kept().exists() or installed is None:
        return
    folder = Path(tempfile.mkdtemp(prefix="qmrelease"))
    _copy(lab / ARCHIVES, folder / "archives")
    _copy(installed, folder / "installed")
    try:
        folder.rename(_kept())
    except OSError:  # another process was faster
        shutil.rmtree(folder)


def give(enterprise: LabEnterprise) -> None:
    """Put the kept release where this enterprise would build and install it. It does so itself where none is kept."""
    if not _kept().exists() or not enterprise.is_real:
        return
    _copy(_kept() / "archives", enterprise.releases)
    for host in enterprise.lab.hosts.values():
        _copy(_kept() / "installed", host.root / INSTALLED)


def remove() -> None:
    """At the end of the run."""
    shutil.rmtree(_kept(), ignore_errors=True)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)
