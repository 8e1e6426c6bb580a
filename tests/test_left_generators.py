"""Every asynchronous generator that a loop may leave early is closed: it may have a queue open."""

from __future__ import annotations

import ast
import re
from pathlib import Path

PROJECT = Path(__file__).parents[1]
GENERATOR = re.compile(r"async def (\w+)\([^)]*\) -> Async(?:Generator|Iterator)\[")


def test_loops_that_end_early_close_what_they_read() -> None:
    texts = {
        path: path.read_text("utf-8") for room in ("qmnode", "mqenterprise") for path in (PROJECT / room).rglob("*.py")
    }
    names = {name for text in texts.values() for name in GENERATOR.findall(text)}
    assert {"browse", "dead_letters", "found"} <= names
    found = []
    for path, text in texts.items():
        for loop in ast.walk(ast.parse(text)) if "async for" in text else ():
            if not isinstance(loop, ast.AsyncFor) or not isinstance(loop.iter, ast.Call):
                continue
            called = loop.iter.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            leaves = any(isinstance(one, ast.Break | ast.Return | ast.Yield) for one in ast.walk(loop))
            if name in names and leaves:
                found.append(f"{path.relative_to(PROJECT)}:{loop.lineno}: {name}")
    assert not found
