"""Names say what a thing is, or what a function returns or does; and a class has a name of its own."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from typing import Final

from tests.words.texts import ROOT

PARTICIPLES: Final = re.compile(r"_*(told|said|meant|known|wanted|astray|moved_?on|soon_\w+|happenings?)", re.I)
"""Names that say neither: whether something was told, what somebody meant."""
PARTICIPLES_LEFT: Final = {
    "qmnode/bodies/activex.py:_wanted",
    "qmnode/export/recorder.py:_told",
    "mqenterprise/pipeline/progress.py:wanted",
    "mqenterprise/pipeline/simulation/happenings.py:happenings",
    "mqenterprise/pipeline/simulation/happenings.py:Happenings",
    "mqenterprise/pipeline/sources/message_columns.py:_known",
    "mqenterprise/pipeline/sources/qmnode_source.py:_wanted",
    "mqenterprise/pipeline/sources/reading.py:Wanted",
}
"""The list only shrinks."""
REPEATED: Final = 122
"""Names of classes that several modules have, at the most. The number only shrinks."""


@cache
def named() -> dict[str, ast.Module]:
    """The modules of both packages, by path."""
    files = [path for package in ("qmnode", "mqenterprise") for path in sorted((ROOT / package).rglob("*.py"))]
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text("utf-8")) for path in files}


def test_no_participle_is_a_name() -> None:
    found = set()
    for path, tree in named().items():
        names = {path.rpartition("/")[2].removesuffix(".py")}
        definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        names |= {node.name for node in ast.walk(tree) if isinstance(node, definitions)}
        found |= {f"{path}:{name}" for name in names if PARTICIPLES.fullmatch(name)}
    assert sorted(found - PARTICIPLES_LEFT) == [], "say what it returns or does: as_json, to_active_directory, conflict"
    assert sorted(PARTICIPLES_LEFT - found) == [], "these are gone: take them off the list"


def test_a_class_has_a_name_of_its_own() -> None:
    modules: dict[str, list[str]] = defaultdict(list)
    for path, tree in named().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].append(path)
    repeated = {name: paths for name, paths in modules.items() if len(paths) > 1}
    assert len(repeated) <= REPEATED, f"two modules have a class of the same name: {repeated}"
