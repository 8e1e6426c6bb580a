"""The ``qmnode`` command, run in this process, against a node that runs as a service."""

import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from qmnode.cli import main
from tests.lab.nodes import NodeProcess, running_node


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


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node of its own for the tests of a module."""
    with running_node(tmp_path_factory.mktemp("node"), managed=True) as node:
        yield node


@pytest.fixture
def node(daemon: NodeProcess, monkeypatch: pytest.MonkeyPatch) -> NodeProcess:
    """The node, which commands find by the environment."""
    monkeypatch.setenv("QMNODE_SOCKET", str(daemon.folder / "node.sock"))
    return daemon


@pytest.fixture
def queue(node: NodeProcess, command: Command, request: pytest.FixtureRequest) -> Iterator[str]:
    """A queue of the test's own."""
    name = re.sub(r"\W+", "-", request.node.name)[:100]
    assert command("queue", "create", name, "--journaling").code == 0
    yield name
    command("queue", "delete", name, "--yes")
