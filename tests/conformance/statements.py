"""Sixty sentences of the specifications with MUST whose effect a user can see, and the tests that observe it there.

The sentences are those of ``statements.toml``. They were drawn at random (Python's ``random.Random(20261128).sample``)
from all sentences with MUST in the sections that the matrix has as shown; the first sixty about behaviour that a user
can see at a queue, a journal, a command, another node or a remote reader were kept, in the order in which they came.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from tests.conformance.matrix import Specification
from tests.conformance.matrix import exists as test_exists
from tests.conformance.matrix import load as load_matrix

COUNT: Final = 60


@dataclass(frozen=True)
class Statement:
    """One sentence in our words, its section, and the tests that observe it."""

    specification: str
    section: str
    must: str
    tests: tuple[str, ...]

    def problems(self) -> list[str]:
        """Return what is wrong with the entry; nothing if its section is shown and its tests exist."""
        entry = _matrix()[self.specification].entries.get(self.section)
        found = [] if self.tests else ["it names no test"]
        if entry is None or entry.state not in ("shown", "partly"):
            found.append(f"the matrix does not have section {self.section} as shown")
        return found + [f"{test} does not exist" for test in self.tests if not test_exists(test)]


@cache
def _matrix() -> dict[str, Specification]:
    return {one.name: one for one in load_matrix()}


@cache
def load() -> tuple[Statement, ...]:
    """Return the statements in the order in which they were drawn."""
    data = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    return tuple(
        Statement(one["specification"], one["section"], one["must"], tuple(one["tests"])) for one in data["statement"]
    )
