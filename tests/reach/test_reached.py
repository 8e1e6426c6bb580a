"""Code is there because an entry point of the product reaches it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

import grimp
import pytest

from tests.reach.reached import (
    Unreached,
    exceptions,
    project_definitions,
    project_modules,
    unreached_definitions,
    unreached_modules,
)

if TYPE_CHECKING:
    from pathlib import Path

MOST = 40
"""Exceptions at the most."""


def listed(found: list[Unreached]) -> dict[str, Unreached]:
    """What is found, but for what is inside a module that the list of exceptions names."""
    modules = set(exceptions())
    return {one.name: one for one in found if one.name in modules or one.name.rpartition(".")[0] not in modules}


def test_every_module_function_and_class_is_reached_or_listed_with_a_reason() -> None:
    found = listed([*project_modules(), *project_definitions()])
    unlisted = sorted(found.keys() - exceptions().keys())
    assert not unlisted, f"nothing of the product uses {unlisted}: use it, delete it, or list it in unreached.toml"


def test_the_list_of_exceptions_is_short_and_true() -> None:
    found = listed([*project_modules(), *project_definitions()])
    assert sorted(exceptions().keys() - found.keys()) == [], "these are reached now: take them off the list"
    assert len(exceptions()) <= MOST
    for name, exception in exceptions().items():
        assert len(str(exception["reason"]).split()) >= 4, name
        since = exception["since"]
        assert isinstance(since, date) and since <= datetime.now(UTC).date(), name


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small package with one module that its command imports, and one that only tests would."""
    folder = tmp_path / "small_product"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "cli.py").write_text("from small_product import used\n\n\ndef main():\n    used.work()\n")
    (folder / "used.py").write_text("def work():\n    pass\n\n\ndef only_tested():\n    pass\n")
    (folder / "orphan.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


def test_a_module_that_nothing_imports_is_found(package: Path) -> None:
    graph = grimp.build_graph(package.name, cache_dir=None)
    found = unreached_modules(graph, ["small_product.cli"], {})
    assert [one.name for one in found] == ["small_product.orphan"]
    assert unreached_modules(graph, ["small_product.cli"], {"small_product.cli": {"small_product.orphan"}}) == []


def test_a_function_that_nothing_calls_is_found(package: Path) -> None:
    names = [item.name for item in unreached_definitions([package])]
    assert "only_tested" in names
    assert "work" not in names
