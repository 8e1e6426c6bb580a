"""What holds for both programs: help, versions, mistakes in a line, and output that nobody reads to its end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import mqenterprise.cli
import qmnode.cli
import qmnode.commands.command_table
from tests.docs.reference.commands import program as commands_of
from tests.lab.nodes import PROJECT
from tests.lab.terminal import at_a_terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.lab.nodes import NodeProcess

PROGRAMS: dict[str, Any] = {"qmnode": qmnode.cli, "mqenterprise": mqenterprise.cli}
COMMANDS = {"qmnode": qmnode.commands.command_table.COMMANDS, "mqenterprise": mqenterprise.cli.COMMANDS}
START = "import sys; from {0}.cli import main; sys.argv[0] = '{0}'; main()"


def started(program: str, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", START.format(program), *arguments],
        capture_output="stdout" not in more,
        text=True,
        timeout=240,
        cwd=PROJECT,
        check=False,
        **more,
    )


@pytest.fixture
def called(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    """A program in this process: its exit code, output and complaints."""

    def call(program: str, *arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", [program, *arguments])
        code: Any = 0
        try:
            PROGRAMS[program].main()
        except SystemExit as end:
            code = end.code
        return code, *capsys.readouterr()

    return call


@pytest.mark.parametrize("columns", [80, 100, 200])
@pytest.mark.parametrize("program", PROGRAMS)
def test_help_fits_the_terminal_and_cuts_nothing_off(
    program: str, columns: int, called: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for command in commands_of(program).walk():
        code, said, _ = called(*command.path.split(), "--help")
        text, _, examples = said.partition("\nExample")
        assert code == 0, command.path
        assert [line for line in said.splitlines() if len(line) > min(columns, 100)] == [], command.path
        assert not re.search("…|[─│]|^  [a-z-]+  .*[.]{3}$", text, re.MULTILINE), said
        missing = [name for one in command.options if not one.argument for name in one.spellings if name not in text]
        missing += [one.path for one in command.commands if f"\n  {one.path.split()[-1]} " not in text]
        assert missing == [], command.path
        assert bool(command.epilog) == bool(examples), command.path
        assert not re.search(r"^ *\\$", examples, re.MULTILINE), command.path


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_command_and_option_has_a_help(program: str) -> None:
    found = [(command.path, one) for command in commands_of(program).walk() for one in (command, *command.options)]
    assert [(path, one) for path, one in found if not one.help] == []


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_version_is_that_of_the_package(program: str, called: Callable[..., Any]) -> None:
    assert called(program, "--version") == (0, version("qmnode") + "\n", "")


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("columns", ["80", "100"])
def test_help_looks_alike(
    program: str, columns: str, called: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("TERMINAL_WIDTH", columns)
    for command in ((), *((name,) for name in COMMANDS[program])):
        code, out, err = called(program, *command, "--help")
        assert (code, err) == (0, "")
        assert "\nOptions:\n" in out
        assert out.count("--install-completion") == (not command)
        assert "[[" not in out
    assert set(COMMANDS[program]) <= set(re.findall(r"^  (\S+)", called(program, "--help")[1], re.MULTILINE))


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("qmnode stats", "qmnode: no such command 'stats'. Did you mean 'status'? (see 'qmnode --help')"),
        ("qmnode queue crate x", "Did you mean 'create'?"),
        ("qmnode status --jason", "no such option: --jason (Possible options: --json)"),
        ("qmnode send", "qmnode send: missing argument"),
        ("qmnode send orders x --priority high", "'--priority'"),
        ("qmnode queue", "qmnode queue: name a command"),
        ("mqenterprise plna x", "mqenterprise: no such command 'plna'. Did you mean 'plan'?"),
        ("mqenterprise keys statsu", "Did you mean 'status'?"),
        ("mqenterprise apply", "mqenterprise apply: missing argument"),
        ("mqenterprise apply x --prun", "(Possible options: --prune)"),
    ],
)
def test_wrong_usage_is_one_line_that_names_what_was_meant(
    line: str, sentence: str, called: Callable[..., Any]
) -> None:
    code, _, err = called(*line.split())
    assert (code, sentence in err, err.count("\n")) == (2, True, 1), err


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_full_disk_under_the_output_is_a_sentence(program: str) -> None:
    with Path("/dev/full").open("w") as full:
        answer = started(program, "--version", stdout=full, stderr=subprocess.PIPE)
    assert (answer.returncode, answer.stderr) == (1, "the output cannot be written: No space left on device\n")


def test_complaints_are_red_at_a_terminal_only() -> None:
    command = [sys.executable, "-c", START.format("qmnode"), "stats"]
    _, out = at_a_terminal(command, environment={"TERM": "xterm", "PYTHONPATH": str(PROJECT), "NO_COLOR": ""})
    assert out.startswith("\x1b[31mqmnode: no such command")
    assert "\x1b" not in started("qmnode", "stats").stderr


@pytest.mark.servers
def test_queues_complete_in_the_shell(
    node: NodeProcess, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("parcels", "parcels-late", "returns"):
        command("queue", "create", name)

    def completed(line: str) -> set[str]:
        monkeypatch.setenv("_QMNODE_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        return set(command().out.split())

    assert completed("qmnode send par") == {"parcels", "parcels-late"}
    assert completed("qmnode queue purge ret") == {"returns"}
    assert completed(f"qmnode peek --socket {node.socket} ret") == {"returns"}
    assert completed("qmnode queue acl show ret") == {"returns"}
    assert completed("qmnode journal ret") == {"returns"}
    monkeypatch.setenv("QMNODE_SOCKET", "/none")
    assert completed("qmnode send par") == set()
    assert os.environ["QMNODE_SOCKET"] == "/none"
