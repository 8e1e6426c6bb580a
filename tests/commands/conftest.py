"""The ``qmnode`` command, run in this process, against a node that runs as a service."""

import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from qmnode.cli import main

PROJECT = Path(__file__).resolve().parents[2]


@dataclass
class Answer:
    """What a command printed and ended with."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def documents(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Command = Callable[..., Answer]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run ``qmnode`` with these arguments and this standard input."""

    def run(*arguments: object, stdin: bytes = b"") -> Answer:
        monkeypatch.setattr(sys, "argv", ["qmnode", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code: Any = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        printed = capsys.readouterr()
        return Answer(code, printed.out, printed.err)

    return run


@dataclass
class Daemon:
    folder: Path
    process: subprocess.Popen[str]

    @property
    def config(self) -> Path:
        return self.folder / "node.yaml"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A node of its own for the tests of a module."""
    folder = tmp_path_factory.mktemp("node")
    (folder / "node.yaml").write_text(
        json.dumps(
            {
                "computer_name": "ALPHA",
                "data": str(folder / "store"),
                "transport": {"enabled": False},
                "local": {"socket": str(folder / "node.sock")},
                "management": {"socket": str(folder / "management.sock")},
            }
        )
    )
    with subprocess.Popen(
        [sys.executable, "-c", "from qmnode.cli import main; main()", "run", "-c", str(folder / "node.yaml")],
        stderr=subprocess.PIPE,
        text=True,
        cwd=PROJECT,
    ) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if json.loads(line)["event"] == "ready":
                    break
            yield Daemon(folder, process)
        finally:
            process.terminate()
            process.wait(10)


@pytest.fixture
def node(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> Daemon:
    """The node, which commands find by the environment."""
    monkeypatch.setenv("QMNODE_SOCKET", str(daemon.folder / "node.sock"))
    return daemon


@pytest.fixture
def queue(node: Daemon, command: Command, request: pytest.FixtureRequest) -> Iterator[str]:
    """A queue of the test's own."""
    name = request.node.name[:60]
    assert command("queue", "create", name, "--journaling").code == 0
    yield name
    command("queue", "delete", name, "--yes")
