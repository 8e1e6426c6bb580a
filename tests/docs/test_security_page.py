"""The page on security names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs/security.md"


def test_each_hole_that_was_closed_has_a_test() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## Open in the first releases")[2].partition("\n## ")[0]
    named = re.findall(r"\| `(\S+)::(\w+)` \|$", section, re.MULTILINE)

    assert len(named) == section.count("\n| ") - 1
    for file, name in named:
        assert re.search(rf"def {name}\(", (TESTS / file).read_text(encoding="utf-8")), f"{file}::{name}"
