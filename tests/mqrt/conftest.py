"""The C library, built once for a process of the tests, and programs that use it."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from tests.lab.nodes import PROJECT

if TYPE_CHECKING:
    from pathlib import Path

LIBRARY: Final = PROJECT / "mqrt"
OWN: Final = PROJECT / "tests/mqrt"
WARNINGS: Final = ("-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-pthread")


class Library(NamedTuple):
    """A build of the library, and what compiles a program against it."""

    folder: Path
    flags: tuple[str, ...] = ("-O1", "-g")

    def program(self, source: Path) -> Path:
        """Compile a program that uses it."""
        made = self.folder / source.stem
        words = ["gcc", *WARNINGS, *self.flags, f"-I{LIBRARY / 'include'}", f"-I{self.folder}", source]
        words += [f"-L{self.folder}", "-lmqrt", f"-Wl,-rpath,{self.folder}", "-o", made]
        compiled = subprocess.run(list(map(str, words)), capture_output=True, text=True)
        assert compiled.returncode == 0, compiled.stderr
        return made


def build(folder: Path, *flags: str) -> Library:
    """Build the library in a folder, without a warning."""
    library = Library(folder, flags or ("-O1", "-g"))
    built = subprocess.run(
        ["make", "-j2", "-C", str(LIBRARY), f"BUILD={folder}", f"CFLAGS={' '.join(library.flags)} -Werror"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return library


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """The library as packages have it, but for the optimisation."""
    return build(tmp_path_factory.mktemp("mqrt"))


def at(socket: Path) -> dict[str, str]:
    """The environment of a program that uses a node."""
    return {**os.environ, "QMNODE_SOCKET": str(socket)}
