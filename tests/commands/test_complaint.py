"""Errors of both programs: one line, with the entry of the page that says more, and what to install if that is it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import mqenterprise.cli
import qmnode.cli
from qmnode.commands.error_line import ENTRIES, PAGE
from qmnode.commands.fast_start import EXTRAS
from qmnode.structures.error_codes import ErrorCode

ROOT = Path(__file__).parents[2]


def complaint(
    program: str, *arguments: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[object, str]:
    """The exit code and what a command line prints on standard error."""
    monkeypatch.setattr(sys, "argv", [program, *arguments])
    with pytest.raises(SystemExit) as end:
        {"qmnode": qmnode.cli.main, "mqenterprise": mqenterprise.cli.main}[program]()
    return end.value.code, capsys.readouterr().err


def test_each_entry_is_a_heading_of_the_page_and_each_code_one_of_the_field() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / PAGE).read_text("utf-8"), re.MULTILINE)
    assert set(ENTRIES.values()) <= {heading.lower().replace(" ", "-") for heading in headings}
    assert {part for part in ENTRIES if part.startswith("MQ_")} <= {code.name for code in ErrorCode}


def test_both_programs_name_the_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    socket = str(tmp_path / "none.sock")
    code, said = complaint("qmnode", "queue", "list", "--socket", socket, monkeypatch=monkeypatch, capsys=capsys)
    assert (code, said.count("\n")) == (3, 1)
    assert said.endswith(f"(see {PAGE}#no-node-answers)\n")

    nowhere = tmp_path / "directory.yaml"
    nowhere.write_text("{servers: ['ldap://127.0.0.77:9'], user: cn=x, password: x, root: 'dc=x'}")
    arguments = ("queue", "find", "--label", "x", "--directory", str(nowhere))
    code, said = complaint("mqenterprise", *arguments, monkeypatch=monkeypatch, capsys=capsys)
    assert code == 1
    assert said.endswith(f"(see {PAGE}#the-directory-is-down)\n")


def test_a_sentence_without_an_entry_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = complaint("qmnode", "queue", "lost", monkeypatch=monkeypatch, capsys=capsys)
    assert code == 2
    assert PAGE not in said


@pytest.mark.parametrize("package", sorted(EXTRAS))
def test_each_extra_brings_its_package(package: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    brought = " ".join(project["project"]["optional-dependencies"][EXTRAS[package]])
    distribution = {"dns": "dnspython", "proton": "python-qpid-proton", "spnego": "pyspnego"}.get(package, package)
    assert distribution in brought


@pytest.mark.parametrize(
    ("program", "package", "arguments"),
    [("mqenterprise", "ldap3", ["directory", "status"]), ("mqenterprise", "httpx", ["job", "list", "--all"])],
)
def test_a_program_without_its_extra_says_what_to_install(program: str, package: str, arguments: list[str]) -> None:
    start = f"import sys; sys.modules[{package!r}] = None; from {program}.cli import main; main()"

    done = subprocess.run([sys.executable, "-c", start, *arguments], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert done.stderr == (
        f"this needs the package {package}: pip install 'qmnode[enterprise]' (see {PAGE}#an-extra-is-missing)\n"
    )
