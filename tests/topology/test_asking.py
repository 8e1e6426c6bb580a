"""``mqenterprise apply``, ``rollback`` and ``keys rollback`` ask the person at the terminal, and nobody else."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
import yaml
from typer.testing import CliRunner

from mqenterprise.cli import app
from mqenterprise.directory.open_directory import EnterpriseDirectory
from tests.lab.nodes import PROJECT
from tests.lab.terminal import at_a_terminal

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from mqenterprise.directory.private_slapd import EmbeddedDirectory

pytestmark = pytest.mark.servers
COMMAND = [sys.executable, "-c", "import sys; from mqenterprise.cli import main; sys.argv[0] = 'mqenterprise'; main()"]
ONE_SITE = "enterprise: {name: Asking}\nsites: [{name: Asked}]\n"


class Desk:
    def __init__(self, folder: Path, slapd: EmbeddedDirectory) -> None:
        self.settings = slapd.client_settings()
        (folder / "directory.yaml").write_text(
            yaml.safe_dump(self.settings.model_dump(mode="json", exclude_none=True)), "utf-8"
        )
        (folder / "keys.yaml").write_text(f"directory: {folder}/{{computer}}\nreload_interval: 0\n", "utf-8")
        self.declared = folder / "asked.yaml"
        self.declared.write_text(ONE_SITE, "utf-8")
        self.environment = {
            "MQENTERPRISE_DIRECTORY": str(folder / "directory.yaml"),
            "MQENTERPRISE_KEYS": str(folder / "keys.yaml"),
            "XDG_STATE_HOME": str(folder / "state"),
            "PYTHONPATH": str(PROJECT),
        }

    def typed(self, answer: str, *arguments: str) -> tuple[int, str]:
        return at_a_terminal([*COMMAND, *arguments], f"{answer}\n", self.environment)

    def piped(self, *arguments: str) -> Result:
        """In this process, whose standard input is no terminal then."""
        return CliRunner().invoke(app, arguments, input="n\n", env=self.environment)

    @property
    def is_applied(self) -> bool:
        with EnterpriseDirectory(self.settings) as directory:
            return directory.sites.find("Asked") is not None


@pytest.fixture
def desk(tmp_path: Path, slapd: EmbeddedDirectory) -> Desk:
    return Desk(tmp_path, slapd)


def test_a_person_sees_the_plan_and_is_asked_and_a_pipe_is_not(desk: Desk) -> None:
    declared = str(desk.declared)
    code, seen = desk.typed("n", "apply", declared)
    assert (code, desk.is_applied) == (1, False)
    assert "+ site Asked" in seen
    assert "Carry this out? [y/N]" in seen
    assert "Traceback" not in seen
    code, seen = desk.typed("y", "apply", declared)
    assert (code, desk.is_applied) == (0, True)
    assert "Done: 1 created." in seen
    code, seen = desk.typed("", "apply", declared)  # nothing to do is nothing to ask
    assert (code, "Carry this out?" in seen) == (0, False)
    code, seen = desk.typed("n", "rollback")
    assert (code, "- site Asked" in seen, desk.is_applied) == (1, True, True)
    code, seen = desk.typed("", "rollback", "--yes")
    assert (code, "Carry this out?" in seen, desk.is_applied) == (0, False, False)
    answer = desk.piped("apply", declared)
    assert (answer.exit_code, "Carry this out?" in answer.stderr + answer.stdout, desk.is_applied) == (0, False, True)
    assert desk.piped("rollback").exit_code == 0
    assert not desk.is_applied


def test_rolling_keys_back_shows_which_and_asks(desk: Desk) -> None:
    declared = ONE_SITE + "machines: [{name: asked-machine, sites: [Asked]}]\n"
    desk.declared.write_text(declared, "utf-8")
    assert desk.piped("apply", str(desk.declared)).exit_code == 0
    (desk.declared.parent / "asked-machine").mkdir()
    for _ in range(2):
        rotated = desk.piped("keys", "rotate", "asked-machine")
        assert rotated.exit_code in (0, 2), rotated.stderr
    before = desk.piped("keys", "status", "asked-machine", "--json").stdout
    code, seen = desk.typed("n", "keys", "rollback", "asked-machine")
    assert (code, "Publish these keys again?" in seen) == (1, True)
    assert "published now" in seen
    assert desk.piped("keys", "status", "asked-machine", "--json").stdout.count("current") == before.count("current")
    code, seen = desk.typed("y", "keys", "rollback", "asked-machine")
    assert code in (0, 2), seen
    assert "Publish these keys again?" not in desk.piped("keys", "rollback", "asked-machine").stderr
