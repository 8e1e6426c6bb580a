"""The project's own promises: commands that start, one version, a license everywhere, files that stay true."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml

PROJECT = Path(__file__).resolve().parent.parent
COLLECTION = PROJECT / "playbooks/collections/ansible_collections/mqenterprise/fleet"
METADATA: dict[str, Any] = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]


def read_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


@pytest.mark.parametrize("package", ["qmnode", "mqenterprise"])
def test_the_commands_answer_to_help(package: str) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", f"from {package}.cli import main; main()", "--help"], capture_output=True, text=True
    )
    assert answer.returncode == 0
    assert "Usage" in answer.stdout


def test_there_is_one_version() -> None:
    released = re.findall(r"^## \[(\d[^\]]*)\] - \d{4}-\d\d-\d\d$", (PROJECT / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert released[0] == METADATA["version"]
    assert read_yaml(COLLECTION / "galaxy.yml")["version"] == METADATA["version"]
    assert METADATA["version"] in read_yaml(COLLECTION / "changelogs/changelog.yaml")["releases"]


def test_the_license_is_where_files_refer_to_it_and_in_what_is_built() -> None:
    text = (PROJECT / "LICENSE").read_text("utf-8")
    assert "Apache License\n                           Version 2.0, January 2004" in text
    assert (COLLECTION / "LICENSE").read_text("utf-8") == text
    assert METADATA["license"] == "Apache-2.0"
    assert METADATA["license-files"] == ["LICENSE"]
    assert read_yaml(COLLECTION / "galaxy.yml")["license"] == ["Apache-2.0"]


@pytest.mark.parametrize("page", ["SECURITY.md", "CHANGELOG.md"])
def test_a_page_names_only_files_that_exist(page: str) -> None:
    named = re.findall(r"`((?:docs|tests|playbooks)/[\w./-]*|\w+\.md)`", (PROJECT / page).read_text("utf-8"))
    assert named
    assert [name for name in named if not (PROJECT / name).exists()] == []


def test_checks_before_a_commit_use_the_tools_that_are_installed() -> None:
    configuration = read_yaml(PROJECT / ".pre-commit-config.yaml")
    assert {repository["repo"] for repository in configuration["repos"]} == {"local"}, "nothing may be fetched"
    for hook in configuration["repos"][0]["hooks"]:
        folder, name = Path(hook["entry"].split()[0]).parent, Path(hook["entry"].split()[0]).name
        assert folder == Path(".venv/bin")
        assert (Path(sys.executable).parent / name).exists(), f"{hook['id']}: {name} is not installed"


def test_changelog_fragments_have_the_sections_of_the_collections_changelog() -> None:
    configuration = read_yaml(COLLECTION / "changelogs/config.yaml")
    sections = {name for name, _ in configuration["sections"]} | {"release_summary", "trivial"}
    for path in (COLLECTION / "changelogs" / configuration["notesdir"]).iterdir():
        assert path.suffix == ".yml", f"{path.name}: fragments are *.yml"
        fragment = read_yaml(path)
        assert set(fragment) <= sections, path.name
        assert all(isinstance(line, str) for lines in fragment.values() for line in lines), path.name


def test_an_execution_environment_gets_files_that_exist() -> None:
    environment = read_yaml(COLLECTION / "meta/execution-environment.yml")
    assert [name for name in environment["dependencies"].values() if not (COLLECTION / name).is_file()] == []
    wanted = (COLLECTION / "meta/ee-requirements.txt").read_text("utf-8").splitlines()[-1]
    name, extra = re.fullmatch(r"(\w+)\[(\w+)\]", wanted).groups()  # type: ignore[union-attr]
    assert name == METADATA["name"]
    assert extra in METADATA["optional-dependencies"]


def starts_a_node(tree: ast.AST) -> bool:
    """Whether a program has a command line that ends in ``run --config FILE``, after the words of the program."""
    for found in ast.walk(tree):
        words: list[ast.expr] = []
        if isinstance(found, ast.List | ast.Tuple):
            words = found.elts
        elif isinstance(found, ast.Call) and isinstance(found.func, ast.Attribute | ast.Name):
            called = found.func.attr if isinstance(found.func, ast.Attribute) else found.func.id
            words = found.args if called in ("Popen", "create_subprocess_exec") else []
        said = [word.value if isinstance(word, ast.Constant) else None for word in words]
        if any(said[at] == "run" and said[at + 1] in ("--config", "-c") for at in range(1, len(said) - 1)):
            return True
    return False


def test_only_the_lab_starts_nodes() -> None:
    """The bench measures a start, so it has its own."""
    files = [path for path in (PROJECT / "tests").rglob("*.py") if path.parent.name not in ("lab", "bench")]
    texts = {path: text for path in files if '"run"' in (text := path.read_text("utf-8"))}
    assert [str(path) for path, text in texts.items() if starts_a_node(ast.parse(text))] == []
    assert starts_a_node(ast.parse((PROJECT / "tests/lab/nodes.py").read_text("utf-8")))


def test_what_is_deprecated_fails_the_test_of_our_code_that_uses_it() -> None:
    with pytest.raises(DeprecationWarning):
        warnings.warn("no longer", DeprecationWarning, stacklevel=1)
