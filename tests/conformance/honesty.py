"""Whether a test of the matrix exercises code that runs in the product.

A test that uses a module, function or class which no entry point reaches (``tests.reach``) shows nothing about the
product, whatever it asserts; nor does a structure that nothing of the product reads or writes.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Final

from tests.conformance.matrix import ROOT
from tests.reach.reached import Unreached, project_definitions, project_modules

PACKAGES: Final = ("qmnode", "mqenterprise")


@cache
def unreached() -> frozenset[str]:
    """Dotted names of everything in the product that no entry point reaches."""
    found: list[Unreached] = [*project_modules(), *project_definitions()]
    return frozenset(one.name for one in found)


def is_unreached(name: str, names: frozenset[str] | None = None) -> bool:
    """Whether a dotted name, or a module that it is in, is one that no entry point reaches."""
    gone = unreached() if names is None else names
    parts = name.split(".")
    return any(".".join(parts[:end]) in gone for end in range(1, len(parts) + 1))


def used_by(test: str) -> set[str]:
    """Dotted names of the product that the body of a test, ``path::name`` or ``path::Class::name``, mentions."""
    path, _, name = test.partition("::")
    return names_used(ROOT / path).get(name, set())


@cache
def names_used(path: Path) -> dict[str, set[str]]:
    """For each test of a file the names that it takes from the product, by the file's imports."""
    tree = ast.parse(path.read_text("utf-8"))
    imports = _imports(tree)
    found: dict[str, set[str]] = {}
    for node in tree.body:
        functions = [(node.name, node)] if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else []
        if isinstance(node, ast.ClassDef):
            methods = (item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef))
            functions = [(f"{node.name}::{item.name}", item) for item in methods]
        for name, function in functions:
            mentioned = {
                leaf.id for statement in function.body for leaf in ast.walk(statement) if isinstance(leaf, ast.Name)
            }
            found[name] = {imports[one] for one in mentioned if one in imports}
    return found


def _imports(tree: ast.Module) -> dict[str, str]:
    """The dotted name of everything of the product that a file imports, by the name that it has there."""
    imports: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in PACKAGES:
            imports |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return imports
