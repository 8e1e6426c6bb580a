"""The commands as an operator meets them, where no directory is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mqenterprise.cli import COMMANDS, app

SAMPLE = Path(__file__).parents[2] / "inventory" / "contoso.yaml"


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Runs a command in a place where no directory is known."""
    monkeypatch.delenv("MQENTERPRISE_DIRECTORY", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_validate_counts_what_is_declared(run):
    result = run("validate", SAMPLE)

    assert result.exit_code == 0
    assert result.stdout == "Contoso is valid: 4 sites, 3 routing links, 6 machines, 3 queues, 2 users.\n"


def test_validate_tells_all_problems_with_their_lines(run, tmp_path):
    file = tmp_path / "bad.yaml"
    file.write_text("enterprise: {name: E}\nsites:\n  - nam: A\nqueues:\n  - {machine: m, name: q}\n")

    plain, machine = run("validate", file), run("validate", "--json", file)

    assert (plain.exit_code, machine.exit_code) == (1, 1)
    assert "bad.yaml:3: sites[0].nam: there is no setting 'nam' (did you mean name?)" in plain.stderr
    assert [problem["line"] for problem in json.loads(machine.stdout)["problems"]] == [3, 3, 5]


def test_a_declaration_is_drawn_without_a_directory(run, tmp_path):
    assert run("show", SAMPLE, "--svg", tmp_path / "x.svg").exit_code == 0
    assert (tmp_path / "x.svg").read_text("utf-8").startswith("<svg ")
    assert "Bremen" in run("show", SAMPLE).stdout


@pytest.mark.parametrize("arguments", [("plan",), ("apply", "a", "b"), ("plan", "x", "--nonsense"), ("nonsense",)])
def test_wrong_usage_is_exit_code_2(run, arguments):
    assert run(*arguments).exit_code == 2


@pytest.mark.parametrize(
    "arguments", [("apply", "nothing.yaml"), ("drift", "nothing.yaml"), ("rollback", "nothing.json")]
)
def test_a_failure_is_exit_code_1_and_a_sentence(run, arguments):
    result = run(*arguments)

    assert result.exit_code == 1
    assert result.stderr
    assert "Traceback" not in result.output


def test_a_broken_plan_file_is_told(run, tmp_path):
    (tmp_path / "plan.json").write_text('{"format": 99}')

    result = run("apply", tmp_path / "plan.json")

    assert result.exit_code == 1
    assert "not a plan of format 1; make it anew with 'mqenterprise plan --save'" in result.stderr


def test_help_imports_no_command():
    code = "import sys; sys.argv[1:] = ['--help']; from mqenterprise.cli import app\n"
    code += "try: app()\nexcept SystemExit: pass\nprint([m for m in sys.modules if m.startswith('mqenterprise.')])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "['mqenterprise.cli']"
    assert all(name in done.stdout for name in COMMANDS)


def test_a_declaration_is_checked_without_loading_what_speaks_with_nodes():
    code = f"import sys; sys.argv[1:] = ['validate', {str(SAMPLE)!r}]; from mqenterprise.cli import app\n"
    code += "try: app()\nexcept SystemExit: pass\nprint({'fastapi', 'httpx'} & set(sys.modules))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "set()"
