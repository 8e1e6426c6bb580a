"""What of the product no entry point reaches: modules by the import graph, functions and classes by vulture.

``python -m tests.reach.reached`` prints both. Allowed exceptions, each with its reason, are in ``unreached.toml``.
"""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grimp
from vulture import Vulture

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from vulture.core import Item

PROJECT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = ("qmnode", "mqenterprise")
PLAYBOOKS: Final = PROJECT / "playbooks"
DECORATORS: Final = [
    # They hand the function to the framework that calls it: Typer, FastAPI, pydantic, and our own RPC dispatch.
    "@*.callback",
    "@*.command",
    "@*router.*",
    "@field_validator",
    "@model_validator",
]
KINDS: Final = {"function", "method", "property", "class"}
_NAMED: Final = re.compile(r"^(?:qmnode|mqenterprise)(?:\.\w+)+(?::\w+(?:/\w+)?)?$")
_QUOTED: Final = re.compile(r"[\"'](?:qmnode|mqenterprise)\.")


@dataclass(frozen=True, order=True)
class Unreached:
    """A module, or a function, method, property or class in one; ``name`` is dotted and begins with the module."""

    name: str
    kind: str
    line: int = 0


def unreached_modules(graph: grimp.ImportGraph, roots: Iterable[str], named: dict[str, set[str]]) -> list[Unreached]:
    """Modules that no root imports, directly or through others.

    ``named`` has, for a module, those that its code names in strings: tables of commands, ``-m`` of child processes.
    """
    seen: set[str] = set()
    waiting = [root for root in roots if root in graph.modules]
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        waiting += graph.find_modules_directly_imported_by(module)
        waiting += named.get(module, set()) & graph.modules
        if "." in module:
            waiting.append(module.rpartition(".")[0])
    return [Unreached(module, "module") for module in sorted(graph.modules - seen)]


@cache
def project_modules() -> list[Unreached]:
    """The project's unreached modules."""
    graph = grimp.build_graph(*PACKAGES)
    return unreached_modules(graph, entry_points(), {name: set(named_modules(path)) for name, path in sources()})


def entry_points() -> set[str]:
    """Modules where the product begins: its commands, plug-ins, ``python -m``, public names and the collection."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
    targets = [*project["scripts"].values()]
    targets += [target for group in project["entry-points"].values() for target in group.values()]
    roots = {target.partition(":")[0] for target in targets} | set(PACKAGES)
    roots |= {name for name, path in sources() if name.endswith(".__main__") or _is_a_program(path)}
    for path in PLAYBOOKS.rglob("*.py"):
        roots |= imported_modules(path)
    return roots


def _is_a_program(path: Path) -> bool:
    return '\nif __name__ == "__main__":' in path.read_text("utf-8")


def imported_modules(path: Path) -> set[str]:
    """The modules that a file outside the packages imports, and what it imports from them."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.partition(".")[0] in PACKAGES}


def named_modules(path: Path) -> Iterator[str]:
    """Modules that strings of a file name: ``package.module`` or ``package.module:attribute``."""
    source = path.read_text("utf-8")
    if not _QUOTED.search(source):
        return  # most files, which need not be parsed
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _NAMED.match(node.value):
            yield node.value.partition(":")[0]


@cache
def project_definitions() -> list[Unreached]:
    """Functions, methods, properties and classes of the packages whose names the product nowhere uses."""
    entries = entry_functions()
    found = []
    for item in unreached_definitions([*(PROJECT / package for package in PACKAGES), PLAYBOOKS]):
        path = Path(item.filename)
        if path.is_relative_to(PLAYBOOKS):
            continue  # Ansible finds what it calls by its file
        module = module_name(path)
        if f"{module}:{item.name}" in entries or called_by_a_library(module, item.name, item.first_lineno):
            continue
        found.append(Unreached(f"{module}.{item.name}", item.typ, item.first_lineno))
    return sorted(found)


def unreached_definitions(folders: Iterable[Path]) -> list[Item]:
    """What vulture finds in these folders together."""
    vulture = Vulture(ignore_decorators=DECORATORS)
    vulture.scavenge(list(folders))
    return [item for item in vulture.get_unused_code(min_confidence=60) if item.typ in KINDS]


def entry_functions() -> set[str]:
    """``module:function`` of every entry point of the project."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
    return {target for group in project["entry-points"].values() for target in group.values()}


def called_by_a_library(module: str, name: str, line: int) -> bool:
    """Whether a name is a hook: a method that overrides one of a class outside the project, or of the language."""
    if name.startswith("__") and name.endswith("__"):
        return True
    for kind in vars(import_module(module)).values():
        if not inspect.isclass(kind) or kind.__module__ != module:
            continue
        own = vars(kind).get(name)
        function = getattr(own, "__func__", own)
        code = getattr(inspect.unwrap(function) if callable(function) else None, "__code__", None)
        if code is not None and code.co_firstlineno == line:
            return any(
                name in vars(base) for base in kind.__mro__[1:] if base.__module__.partition(".")[0] not in PACKAGES
            )
    return False


@cache
def sources() -> list[tuple[str, Path]]:
    """Every module of the packages with its file."""
    paths = [path for package in PACKAGES for path in sorted((PROJECT / package).rglob("*.py"))]
    return [(module_name(path), path) for path in paths]


def module_name(path: Path) -> str:
    """The dotted name of a file in one of the packages."""
    parts = path.resolve().relative_to(PROJECT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def exceptions() -> dict[str, dict[str, object]]:
    """The names that may be unreached, each with its ``reason`` and the date ``since`` when it is."""
    listed: dict[str, dict[str, object]] = tomllib.loads(
        (Path(__file__).with_name("unreached.toml")).read_text("utf-8")
    )
    return listed


if __name__ == "__main__":
    for one in [*project_modules(), *project_definitions()]:
        print(f"{one.kind:9} {one.name}" + (f" (line {one.line})" if one.line else ""))
