"""Each promise of the pages on security names tests that exist. A promise without one is no promise."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.shares_table import PAGE as SHARES
from tests.docs.shares_table import with_table

TESTS = Path(__file__).parents[1]
DOCS = TESTS.parent / "docs"
PROMISING = ("security.md", "tls.md", "reference/attacks.md", "msmq-vulnerabilities.md")
ROWS = {"What is promised", "Open in the first releases, closed now"}
"""Sections whose tables are promises row by row, besides all of the pages of attacks."""
WITHOUT = {"In short", "Who can reach what", "How a node decides whom to believe"}
"""Sections that promise nothing themselves: others have their promises."""
_TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")


def _sections() -> dict[tuple[str, str], str]:
    """The sections by page and title. A title of a subsection has the title above it before it."""
    found: dict[tuple[str, str], str] = {}
    for page in PROMISING:
        above = title = ""
        for line in (DOCS / page).read_text(encoding="utf-8").splitlines():
            if line.startswith("## "):
                above = title = line[3:]
            elif line.startswith("### "):
                title = f"{above} / {line[4:]}"
            elif title or page == "msmq-vulnerabilities.md":
                found[page, title] = f"{found.get((page, title), '')}{line}\n"
    return found


def _rows(section: str) -> list[str]:
    """The rows of the tables of a section, without their heads."""
    lines = section.splitlines()
    return [line for place, line in enumerate(lines) if line.startswith("| ") and not _is_head(lines, place)]


def _is_head(lines: list[str], place: int) -> bool:
    return place + 1 < len(lines) and lines[place + 1].startswith("|--")


def test_each_section_that_promises_names_a_test() -> None:
    without = {title for (_, title), section in _sections().items() if not _TEST.search(section)}

    assert without - WITHOUT == set(), "end such a section with: Shown by `folder/test_file.py::test_name`."


def test_each_row_of_a_promise_names_a_test() -> None:
    sections = _sections()
    rows = [
        (title, row)
        for (page, title), section in sections.items()
        if title in ROWS or page in ("reference/attacks.md", "msmq-vulnerabilities.md")
        for row in _rows(section)
    ]

    assert len(rows) > 100
    assert [(title, row[:80]) for title, row in rows if not _TEST.search(row)] == []


def test_each_named_test_exists() -> None:
    named = [one for page in PROMISING for one in _TEST.findall((DOCS / page).read_text(encoding="utf-8"))]
    missing = [f"{file}::{name}" for file, name in named if not _is_there(file, name)]

    assert named
    assert missing == []


def _is_there(file: str, name: str) -> bool:
    path = TESTS / file if "/" in file else TESTS / "adversary" / file
    return path.is_file() and re.search(rf"def {name}\(", path.read_text(encoding="utf-8")) is not None


def test_the_table_of_shares_is_that_of_the_rows() -> None:
    page = SHARES.read_text("utf-8")
    assert with_table(page) == page, "run python -m tests.docs.shares_table"
