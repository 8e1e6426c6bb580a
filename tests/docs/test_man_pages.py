"""Man pages are those of the commands, and roff reads them without a complaint."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.docs.man_pages import FOLDER, pages
from tests.docs.reference.commands import PROGRAMS, program

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    """The pages as they are made now."""
    return pages()


def test_the_man_pages_are_those_of_the_commands(made: dict[str, str]) -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(made)
    stale = [name for name, text in made.items() if (FOLDER / name).read_text("utf-8") != text]
    assert stale == [], "run python -m tests.docs.man_pages"


def test_every_command_and_option_has_its_place(made: dict[str, str]) -> None:
    for name in PROGRAMS:
        for command in program(name).walk():
            words = command.path.split()
            page = made["-".join(words[:2]) + ".1"].replace(r"\-", "-")
            assert command.path in page or command.path.replace(" ", "-") in page
            assert [one for option in command.options for one in option.spellings if one not in page] == []


def test_the_wheel_takes_them() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"] == {"man": "share/man/man1"}


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is Debian's package groff-base")
def test_roff_reads_them_without_a_complaint() -> None:
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-z", *map(str, sorted(FOLDER.glob("*.1")))],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
