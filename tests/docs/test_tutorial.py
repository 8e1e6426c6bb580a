"""The commands of the README and the tutorial, typed by a newcomer in clean roots of Debian 12 and 13."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import PROJECT, blocks
from tests.lab.roots import DebianRoot, why_no_roots

PAGE = "docs/tutorial.md"
SUITES = ("bookworm", "trixie")
NEEDED = ("python3-venv", "slapd", "ca-certificates")
"""Packages that the pages name, and what pip needs of the lab to trust its index."""
EXPECTED = {
    "README.md": ("order 7", "created", "Amsterdam"),
    PAGE: (
        "Dear Bremen",
        "invoice 1",
        "6 created",
        "order 7",
        "order 8",
        "outgoing",
        "alpha (Amsterdam) sends to beta",
    ),
}


def stages(page: str) -> list[tuple[bool, str]]:
    """The commands of a page as one session in the folder of the sources; what installs packages has a network."""
    found: list[tuple[bool, str]] = []
    lines: list[str] = []

    def end(*, online: bool) -> None:
        found.append((online, "\n".join(["set -eu", "test ! -e venv || . venv/bin/activate", *lines])))
        lines.clear()

    for block in blocks(page):
        if block.language == "python":
            lines += ["python <<'EXAMPLE'", *block.lines, "EXAMPLE"]
        for line in block.lines if block.language == "sh" and not block.lines[0].startswith("make ") else ():
            installs = "pip install" in line
            if installs and lines:
                end(online=False)
            lines.append(line)
            if installs:
                end(online=True)
    end(online=False)
    return found


def shown(page: str) -> list[str]:
    """The lines of output that the page shows. Those with a time of day are left out, and the rules of tables, which a
    pipe does not get; it gets a tab where a terminal gets blanks."""
    lines = [" ".join(line.split()) for block in blocks(page) if block.language == "text" for line in block.lines]
    return [line for line in lines if not re.search(r"\d\d:\d\d:\d\d|^[─ ]+$", line)]


def typed(root: DebianRoot, page: str) -> str:
    """What the commands of a page print in a copy of the sources; AssertionError where one fails."""
    folder = root.root / "home/newcomer/sources"
    subprocess.run(["chroot", root.root, "useradd", "--create-home", "--shell", "/bin/bash", "newcomer"], check=True)
    files = subprocess.check_output(["git", "-C", PROJECT, "ls-files", "-z"])
    folder.mkdir()
    packed = subprocess.check_output(["tar", "-C", PROJECT, "--null", "--files-from=-", "-c"], input=files)
    subprocess.run(["tar", "-C", folder, "-x"], input=packed, check=True)
    subprocess.run(["chroot", root.root, "chown", "-R", "newcomer:", "/home/newcomer"], check=True)
    if certificate := os.environ.get("PIP_CERT"):
        root.copy(Path(certificate))
    said = ""
    for online, script in stages(page):
        done = root.type(script, "newcomer", "/home/newcomer/sources", online=online)
        said += done.stdout
        assert done.returncode == 0, said
    return said


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.servers
@pytest.mark.skipif(why_no_roots() is not None, reason=why_no_roots() or "")
@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("page", EXPECTED)
def test_a_newcomer_can_do_what_the_page_says(tmp_path: Path, suite: str, page: str) -> None:
    root = DebianRoot(suite, tmp_path / "root", *NEEDED)
    try:
        said = typed(root, page)
    finally:
        root.close()
    assert [one for one in EXPECTED[page] if one not in said] == [], said
    printed = {" ".join(line.split()) for line in said.splitlines()}
    assert page != PAGE or [line for line in shown(page) if line not in printed] == [], said
