"""Man pages are those of the commands, and roff reads them without a complaint."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from qmnode.capture.read_files import Format
from qmnode.commands.receive import Show
from qmnode.commands.send import Hash
from qmnode.objects.table import QUEUE
from tests.docs.man_pages import FOLDER, pages
from tests.docs.reference.commands import PROGRAMS, program

if TYPE_CHECKING:
    from collections.abc import Iterable

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


@pytest.mark.parametrize(
    ("page", "option", "choices"),
    [
        ("qmnode-queue.1", "privacy-level", QUEUE["privacy_level"].form.choices),
        ("mqenterprise-queue.1", "privacy-level", QUEUE["privacy_level"].form.choices),
        ("qmnode-send.1", "hash", Hash),
        ("qmnode-decode.1", "format", Format),
        ("qmnode-peek.1", "show", Show),
    ],
)
def test_options_with_choices_list_them(made: dict[str, str], page: str, option: str, choices: Iterable[str]) -> None:
    lines = [line for line in made[page].replace(r"\-", "-").splitlines() if rf"\fB--{option}\fR" in line]
    assert {line.rpartition(r"\fI")[2] for line in lines} == {rf"{'|'.join(choices)}\fR"}
