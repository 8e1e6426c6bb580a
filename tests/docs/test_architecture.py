"""ARCHITECTURE.md and CONTRIBUTING.md say what is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.state_diagrams import BEGIN, END, PAGE, diagram, with_diagrams

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md")
PATH = re.compile(r"`((?:qmnode|mqenterprise|tests|playbooks|docs|schemas|inventory|\.ci)/[\w./-]*)`")


def test_the_diagrams_are_those_of_the_tables() -> None:
    page = PAGE.read_text("utf-8")
    assert page.count(BEGIN) == page.count(END) == 1
    assert with_diagrams(page) == page, "run python -m tests.docs.state_diagrams"


def test_edges_with_the_same_ends_share_an_arrow_and_loops_have_none() -> None:
    drawn = diagram("A", [("A", "B", "one"), ("A", "B", "two"), ("B", "B", "stays")])
    assert "    A --> B: one, two" in drawn
    assert "stays" not in drawn


def test_every_room_of_the_packages_is_described() -> None:
    page = PAGE.read_text("utf-8")
    for package in ("qmnode", "mqenterprise"):
        rooms = {path.parent.name for path in (ROOT / package).glob("*/__init__.py")} | {"commands"}
        unnamed = sorted(room for room in rooms if f"| `{room}/` |" not in page)
        assert unnamed == [], f"{package}: add a row to ARCHITECTURE.md"


@pytest.mark.parametrize("name", PAGES)
def test_every_path_that_a_page_names_is_there(name: str) -> None:
    text = re.sub(r"```.*?```", "", (ROOT / name).read_text("utf-8"), flags=re.DOTALL)
    paths = set(PATH.findall(text))
    assert len(paths) > 5
    assert sorted(path for path in paths if not (ROOT / path).exists()) == []


@pytest.mark.parametrize("name", PAGES)
def test_every_target_that_a_page_names_is_in_the_makefile(name: str) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), flags=re.MULTILINE))
    named = set(re.findall(r"`make ([a-z]+)", (ROOT / name).read_text("utf-8")))
    assert named <= targets
