"""A release that one lab has built and installed, for labs that are about something else: each takes a minute of work.

Only for hosts with a root of their own: there an installation has the same place on all of them.
"""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.lab.enterprise import LabEnterprise

ARCHIVES = "controller/state/mqenterprise/rollout/releases"
INSTALLED = "opt/qmnode/releases"
_kept: list[Path] = []


def keep(lab: Path) -> None:
    """Keep what the lab in this folder has installed on its hosts, until this process ends."""
    installed = next(iter(sorted(lab.glob(f"hosts/*/root/{INSTALLED}"))), None)
    if _kept or installed is None:
        return
    folder = Path(tempfile.mkdtemp(prefix="qmrelease"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _copy(lab / ARCHIVES, folder / "archives")
    _copy(installed, folder / "installed")
    _kept.append(folder)


def give(enterprise: LabEnterprise) -> None:
    """Put the kept release where this enterprise would build and install it. It does so itself where none is kept."""
    if not _kept or not enterprise.is_real:
        return
    _copy(_kept[0] / "archives", enterprise.releases)
    for host in enterprise.lab.hosts.values():
        _copy(_kept[0] / "installed", host.root / INSTALLED)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)
