"""Systems for hosts of the lab beside this machine's own: another Debian, or a Python of its own below /opt."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.lab.hosts import System, own_system
from tests.lab.roots import KEPT, PROJECT, clean_root

LEFT_OUT = shutil.ignore_patterns("test", "tests", "idlelib", "site-packages", "config-*", "*.a", "pkgconfig")
"""What a Python can do without."""


def debian(suite: str) -> System:
    """A Debian release as an administrator would install a host: ssh, and Python from its own packages."""
    return System(clean_root(suite, "openssh-server", "python3", "libfaketime"), "/usr/bin/python3")


def with_python(version: str) -> System | None:
    """This machine's system with a Python of this version below /opt; None if the machine has none to copy."""
    asked = "import sys; print('%d.%d' % sys.version_info[:2], sys.base_prefix)"
    for python in subprocess.check_output([PROJECT / ".ci/python", "--all"], text=True).split():
        found, prefix = subprocess.check_output([python, "-c", asked], text=True).split(maxsplit=1)
        if found == version and prefix.strip() != "/usr":
            moved = _moved(Path(prefix.strip()), version)
            return System(own_system().base, f"/opt/python{version}/bin/python{version}", moved)
    return None


def _moved(prefix: Path, version: str) -> Path:
    """A folder with ``opt`` and in it a copy of an installation, which works there. It is kept for later runs."""
    kept = KEPT / f"opt-{prefix.name}-python{version}"
    if not kept.exists():
        partial = kept.with_name(f".{kept.name}-{os.getpid()}")
        installed = partial / f"opt/python{version}"
        for folder in ("bin", "lib"):
            shutil.copytree(prefix / folder, installed / folder, symlinks=True, ignore=LEFT_OUT)
        # Its programs look for libpython where it was built: they are to look beside themselves.
        built, beside = f"{prefix}/lib".encode() + b"\0", b"$ORIGIN/../lib\0"
        for file in (installed / "bin").glob("python3*"):
            if not file.is_symlink() and file.read_bytes().startswith(b"\x7fELF"):
                file.write_bytes(file.read_bytes().replace(built, beside.ljust(len(built), b"\0")))
        with suppress(OSError):  # another process was faster
            partial.rename(kept)
    return kept
