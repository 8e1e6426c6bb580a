"""The console's page is built from the sources beside it: without Node, by digests alone."""

from __future__ import annotations

import gzip
import importlib.machinery
import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

PROJECT = Path(__file__).resolve().parents[2]
LARGEST_START = 230_000
"""Bytes of the start page, compressed."""
LARGEST = 300_000
"""Bytes of everything that a browser can load, compressed."""


@pytest.fixture(scope="module")
def builder() -> ModuleType:
    """``.ci/console`` as a module."""
    loader = importlib.machinery.SourceFileLoader("console_builder", str(PROJECT / ".ci/console"))
    specification = importlib.util.spec_from_loader("console_builder", loader)
    assert specification is not None
    module = importlib.util.module_from_spec(specification)
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = written
    return module


def test_the_page_is_as_new_as_its_sources(builder: ModuleType) -> None:
    recorded = json.loads((builder.BUILT / builder.RECORD).read_text("utf-8"))
    now = builder.record()
    assert now["sources"] == recorded["sources"], "sources of the console are newer than its page: make console"
    assert now["built"] == recorded["built"], "built files of the console were changed by hand: make console"


def test_the_lock_names_no_host_and_pins_every_package(builder: ModuleType) -> None:
    lock = json.loads((builder.SOURCES / "package-lock.json").read_text("utf-8"))
    packages = {name: entry for name, entry in lock["packages"].items() if name}
    assert len(packages) > 20
    assert [name for name, entry in packages.items() if "resolved" in entry or "integrity" not in entry] == []


def test_the_start_page_loads_its_own_files_only_and_is_small(builder: ModuleType) -> None:
    page = (builder.BUILT / "index.html").read_text("utf-8")
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert [name for name in loaded if not name.startswith("./") or not (builder.BUILT / name).is_file()] == []
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=", page), "the policy allows no inline code"
    scripts = [name for name in loaded if name.endswith((".js", ".css"))]
    assert sum(len(gzip.compress((builder.BUILT / name).read_bytes())) for name in scripts) < LARGEST_START


def test_all_screens_together_are_small(builder: ModuleType) -> None:
    loaded = [path for path in builder.BUILT.rglob("*") if path.suffix in {".html", ".js", ".css", ".svg"}]
    assert sum(len(gzip.compress(path.read_bytes())) for path in loaded) < LARGEST


def test_no_style_sheet_or_script_names_another_host(builder: ModuleType) -> None:
    for path in builder.BUILT.rglob("*.css"):
        assert not re.search(r"url\(\s*['\"]?(https?:)?//|@import", path.read_text("utf-8")), path.name
    for path in builder.BUILT.rglob("*.js"):
        assert not re.search(r"(import|fetch|src=)\s*\(?\s*['\"]https?:", path.read_text("utf-8")), path.name
