"""Each promise of the page on security names tests that exist. A promise without one is no promise."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.shares_table import with_table

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs/security.md"
WITHOUT = {"In short", "Who can reach what", "How a node decides whom to believe", "The attacks that the tests play"}
"""Sections that promise nothing themselves: others have their promises."""
_TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")


def _sections() -> dict[str, str]:
    """The sections of the page by title. A title of a subsection has the title above it before it."""
    found: dict[str, str] = {}
    above = title = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            above = title = line[3:]
        elif line.startswith("### "):
            title = f"{above} / {line[4:]}"
        elif title:
            found[title] = f"{found.get(title, '')}{line}\n"
    return found


def _rows(section: str) -> list[str]:
    """The rows of the tables of a section, without their heads."""
    lines = section.splitlines()
    return [line for place, line in enumerate(lines) if line.startswith("| ") and not _is_head(lines, place)]


def _is_head(lines: list[str], place: int) -> bool:
    return place + 1 < len(lines) and lines[place + 1].startswith("|--")


def test_each_section_that_promises_names_a_test() -> None:
    without = {title for title, section in _sections().items() if not _TEST.search(section)}

    assert without - WITHOUT == set(), "end such a section with: Shown by `folder/test_file.py::test_name`."


def test_each_row_of_a_promise_names_a_test() -> None:
    sections = _sections()
    rows = [
        (title, row)
        for title, section in sections.items()
        if title in ("What is promised", "Open in the first releases, closed now") or title.startswith("The attacks")
        for row in _rows(section)
    ]

    assert len(rows) > 100
    assert [(title, row[:80]) for title, row in rows if not _TEST.search(row)] == []


def test_each_named_test_exists() -> None:
    named = _TEST.findall(PAGE.read_text(encoding="utf-8"))
    missing = [f"{file}::{name}" for file, name in named if not _is_there(file, name)]

    assert named
    assert missing == []


def _is_there(file: str, name: str) -> bool:
    path = TESTS / file if "/" in file else TESTS / "adversary" / file
    return path.is_file() and re.search(rf"def {name}\(", path.read_text(encoding="utf-8")) is not None


def test_the_table_of_shares_is_that_of_the_rows() -> None:
    page = PAGE.read_text("utf-8")
    assert with_table(page) == page, "run python -m tests.docs.shares_table"
