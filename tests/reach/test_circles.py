"""Files of a room import each other in one direction, imports for types included."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grimp

from tests.reach.reached import PACKAGES

if TYPE_CHECKING:
    import pytest

LIST: Final = Path(__file__).with_name("circles.toml")


def circles(graph: grimp.ImportGraph) -> list[frozenset[str]]:
    """The largest sets of modules of which each imports each, directly or through others."""
    ahead = {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}
    behind: dict[str, set[str]] = {module: set() for module in ahead}
    for module, imported in ahead.items():
        for one in imported:
            behind[one].add(module)
    found: list[frozenset[str]] = []
    waiting = set(ahead)
    while waiting:
        module = waiting.pop()
        circle = reached(module, ahead) & reached(module, behind)
        waiting -= circle
        if len(circle) > 1:
            found.append(frozenset(circle))
    return found


def reached(module: str, steps: dict[str, set[str]]) -> set[str]:
    """The module, and those that it leads to."""
    seen, waiting = {module}, [module]
    while waiting:
        new = steps[waiting.pop()] - seen
        seen |= new
        waiting += new
    return seen


def listed() -> list[tuple[frozenset[str], str]]:
    """The circles that are known, each with its reason."""
    known = tomllib.loads(LIST.read_text("utf-8"))["circle"]
    return [(frozenset(one["modules"]), one["reason"]) for one in known]


def test_files_import_each_other_in_one_direction_but_for_the_listed_circles() -> None:
    found = circles(grimp.build_graph(*PACKAGES, exclude_type_checking_imports=False))
    known = [modules for modules, _ in listed()]
    new = [sorted(circle) for circle in found if not any(circle <= modules for modules in known)]
    assert new == [], "these import each other: let one have what both need, or make one file of them"
    gone = {module for modules in known for module in modules}.difference(*found)
    assert sorted(gone) == [], "these are in no circle any more: take them off circles.toml"


def test_each_listed_circle_has_a_reason() -> None:
    assert [sorted(modules) for modules, reason in listed() if len(reason.split()) < 6] == []


def test_a_circle_of_imports_for_types_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "small_circle"
    package.mkdir()
    for name, text in {
        "__init__": "",
        "first": "from small_circle import second",
        "second": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from small_circle import third",
        "third": "from small_circle import first",
        "above": "from small_circle import first",
    }.items():
        (package / f"{name}.py").write_text(text + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    graph = grimp.build_graph("small_circle", exclude_type_checking_imports=False, cache_dir=None)
    assert circles(graph) == [frozenset(f"small_circle.{name}" for name in ("first", "second", "third"))]
