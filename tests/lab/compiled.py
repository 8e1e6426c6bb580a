"""Ansible's own utilities, compiled once.

Each module of a playbook brings them along as sources, in an archive, and compiles them whenever it is run: that is
most of what a short module does. Here they come from a folder instead, where Python keeps what it has compiled. They
are the same files, of the Ansible that runs the playbook; the module itself, and what it has from the collection, come
from the archive.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import ansible

if TYPE_CHECKING:
    from tests.lab.hosts import Host

UTILITIES = Path(ansible.__file__).parent / "module_utils"
THERE = "/usr/local/lib/qmlab-ansible"
"""Where a host has them."""
FINDER = """\
import sys
from importlib.machinery import PathFinder


class Compiled:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "ansible.module_utils" and path and ".zip" in path[0]:
            return PathFinder.find_spec(name, [{place!r}])
        return None


sys.meta_path.insert(0, Compiled)
"""


def for_controller(folder: Path) -> Path:
    """Write what modules that the controller runs need into a folder, which belongs into PYTHONPATH."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(FINDER.format(place=str(UTILITIES.parent)))
    return folder


def for_host(host: Host) -> None:
    """Put them into the files of a host that runs, for its Python."""
    place = host.root / THERE.lstrip("/")
    place.mkdir(parents=True)
    subprocess.run(["cp", "-a", str(UTILITIES), str(place)], check=True)
    packages = host.do(host.system.python, "-c", "import site; print(site.getsitepackages()[0])").stdout.strip()
    folder = host.root / packages.lstrip("/")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "qmlab_compiled.py").write_text(FINDER.format(place=THERE))
    (folder / "qmlab_compiled.pth").write_text("import qmlab_compiled\n")
