"""The conformance matrix: which test shows which section of a specification. ``make conformance`` prints it.

The data is ``matrix.toml``; the numbers and titles of the sections are in one list per specification beside it. Each
section has ``tests`` that show it, or a ``reason`` why there is nothing to show, or ``missing``: what is not there or
not shown yet, with ``since``, the day when that was written down. ``missing`` beside ``tests`` is what these leave out.
"""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
STATES = {"shown": "shown by tests", "partly": "partly shown", "reason": "with a reason", "missing": "missing"}
"""Every state of a section, and how counts call it."""


@dataclass(frozen=True)
class Entry:
    """What the matrix says of one section: tests by name, a reason, or what is missing and since when."""

    number: str
    tests: tuple[str, ...] = ()
    reason: str = ""
    missing: str = ""
    since: date | None = None

    @property
    def is_sound(self) -> bool:
        """Whether it has a reason or something else, not both, and what is missing with a date."""
        said = bool(self.tests or self.missing) is not bool(self.reason)
        return said and (self.since is not None) is bool(self.missing)

    @property
    def state(self) -> str:
        """Where the section stands: one of ``STATES``."""
        if self.reason:
            return "reason"
        if self.missing:
            return "partly" if self.tests else "missing"
        return "shown"

    def __str__(self) -> str:
        lines = [self.reason] if self.reason else list(self.tests)
        return "\n".join([*lines, f"MISSING since {self.since}: {self.missing}"] if self.missing else lines)


@dataclass(frozen=True)
class Deviation:
    """A place where the text is not followed to the letter, what is done instead, and the tests that show it."""

    section: str
    instead: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Specification:
    """One specification: its sections with their titles, and what the matrix says of them."""

    name: str
    titles: dict[str, str]
    entries: dict[str, Entry]
    deviations: list[Deviation] = field(default_factory=list)

    def unlisted(self) -> list[str]:
        """Sections of which the matrix says nothing."""
        return [number for number in self.titles if number not in self.entries]

    def unknown(self) -> list[str]:
        """Entries for sections that the specification does not have."""
        return [number for number in self.entries if number not in self.titles]

    def unsound(self) -> list[str]:
        """Entries that say nothing, or contradict themselves, or miss something without a date."""
        return [entry.number for entry in self.entries.values() if not entry.is_sound]

    def missing(self) -> list[Entry]:
        """Entries that say what is missing."""
        return [entry for entry in self.entries.values() if entry.missing]

    def tests(self) -> set[str]:
        """Every test that is named."""
        named = [*self.entries.values(), *self.deviations]
        return {test for item in named for test in item.tests}


def load() -> list[Specification]:
    """The matrix."""
    specifications = []
    for name, data in tomllib.loads((HERE / "matrix.toml").read_text("utf-8")).items():
        lines = (HERE / data["sections"]).read_text("utf-8").splitlines()
        titles = dict(line.split(" ", 1) for line in lines)
        entries = _entries(data["section"], titles)
        deviations = [
            Deviation(said["section"], said["instead"], tuple(said["tests"])) for said in data.get("deviation", [])
        ]
        specifications.append(Specification(name, titles, entries, deviations))
    return specifications


def _entries(said: dict[str, dict[str, Any]], titles: dict[str, str]) -> dict[str, Entry]:
    """The entries by number. ``2.3.*`` stands for every section below 2.3 that has no entry of its own."""
    found = {}
    for number, content in said.items():
        below = number.removesuffix("*")
        numbers = [one for one in titles if one.startswith(below) and one not in said] if below != number else []
        content = content | {"tests": tuple(content.get("tests", ()))}
        found |= {one: Entry(one, **content) for one in numbers or [number]}
    return found


@cache
def names_in(path: Path) -> frozenset[str]:
    """Tests of a file: functions, classes, ``Class::method``, and names it assigns (state machines of hypothesis)."""
    names = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                names.add(node.name)
            case ast.ClassDef():
                names.add(node.name)
                methods = (ast.FunctionDef, ast.AsyncFunctionDef)
                names |= {f"{node.name}::{item.name}" for item in node.body if isinstance(item, methods)}
            case ast.Assign(targets=[ast.Name(id=name)]):
                names.add(name)
            case _:
                pass
    return frozenset(names)


def exists(test: str) -> bool:
    """Whether a test named ``path::name`` is there."""
    path, _, name = test.partition("::")
    return (ROOT / path).is_file() and name in names_in(ROOT / path)


def main() -> None:
    """Print every specification as a table, with counts, and at last what is missing in any."""
    console = Console()
    specifications = load()
    for specification in specifications:
        _print_tables(console, specification)
    for specification in specifications:
        for entry in specification.missing():
            title = specification.titles[entry.number]
            console.print(f"{specification.name} {entry.number} {title}: missing since {entry.since}: {entry.missing}")
    for specification in specifications:
        console.print(_counts(specification))


def _print_tables(console: Console, specification: Specification) -> None:
    table = Table("section", "title", "shown by", title=specification.name)
    for number, title in specification.titles.items():
        table.add_row(number, title, str(specification.entries.get(number, "NOT LISTED")))
    console.print(table)
    if specification.deviations:
        table = Table("section", "instead", "shown by", title=f"{specification.name}: not to the letter")
        for deviation in specification.deviations:
            table.add_row(deviation.section, deviation.instead, "\n".join(deviation.tests))
        console.print(table)


def _counts(specification: Specification) -> str:
    states = Counter(entry.state for entry in specification.entries.values())
    counts = ", ".join(f"{states[state]} {text}" for state, text in STATES.items())
    return (
        f"{specification.name}: {len(specification.titles)} sections: {counts}, "
        f"{len(specification.unlisted())} not listed; "
        f"{len(specification.deviations)} deviations, {len(specification.tests())} tests named"
    )


if __name__ == "__main__":
    main()
