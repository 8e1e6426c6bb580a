"""The workflows and the forms of issues: they call targets that are there, and have what their forms need."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

PROJECT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((PROJECT / ".github/workflows").glob("*.yml"))
FORMS = [path for path in (PROJECT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml"]


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_calls_targets_of_the_makefile(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text("utf-8"), re.MULTILINE))
    jobs = read(path)["jobs"].values()
    said = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    called = {name for text in said for name in re.findall(r"(?:^|sudo )make ([a-z-]+)", text)}
    assert called
    assert called <= targets
    assert all(job["timeout-minutes"] for job in jobs)


def test_the_matrix_has_the_pythons_that_the_metadata_names() -> None:
    named = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (PROJECT / "pyproject.toml").read_text("utf-8"))
    assert read(PROJECT / ".github/workflows/checks.yml")["jobs"]["matrix"]["strategy"]["matrix"]["python"] == named


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_a_form_has_a_name_a_description_and_a_label_for_each_field(path: Path) -> None:
    form = read(path)
    assert form["name"] and form["description"]
    for field in form["body"]:
        assert field["attributes"]["value" if field["type"] == "markdown" else "label"]
