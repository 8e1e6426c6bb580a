"""The examples of the README, of the pages about one node, and of docstrings run as they are printed."""

import ast
import inspect
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from types import CodeType, ModuleType

import pytest

import qmnode
import qmnode.model.api
from tests.docs.pages import STARTED, WAIT, blocks

PROJECT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "docs/node.md", "docs/python.md", "docs/management.md")
ELSEWHERE = ("python3 -m venv ", "pip ", "make ", "cp ", "mqenterprise ")
"""How commands begin that other tests run: the installation, the demo, the enterprise."""


def script() -> str:
    """All examples of the pages as one session of a shell."""
    lines = ["set -eu", "trap 'kill $(jobs -p)' EXIT"]
    for block in (block for page in PAGES for block in blocks(page) if block.language in {"sh", "python"}):
        for command in block.commands():
            if not command.startswith(ELSEWHERE):
                lines.append(command)
            if started := STARTED.search(command):
                lines.append(WAIT.format(started[1]))  # the reader takes longer than the node needs
            if command.startswith("kill "):
                lines.append("wait")
    return "\n".join(lines)


@pytest.mark.servers
@pytest.mark.timeout(600)
def test_the_readme_is_right_from_beginning_to_end(tmp_path: Path) -> None:
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "qmnode").write_text(f"#!{sys.executable}\nfrom qmnode.cli import main\nmain()\n")
    (commands / "qmnode").chmod(0o755)
    (commands / "python").symlink_to(sys.executable)
    folder = tmp_path / "work"
    folder.mkdir()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("QMNODE_")},
        "PATH": f"{commands}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(PROJECT), *sys.path[1:]]),
    }
    # The reader's node listens at any address: in a network of its own no other test has one of its ports.
    alone = ["unshare", "--net"] if os.geteuid() == 0 else []
    text = "ip link set lo up\n" + script() if alone else script()
    with (tmp_path / "log").open("w+") as log:
        answer = subprocess.run(
            [*alone, "bash", "-c", text], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=log, timeout=540
        )
        log.seek(0)
        assert answer.returncode == 0, log.read() + answer.stdout.decode()
    printed = answer.stdout.decode()
    for expected in (
        r"private$\orders",
        "order 7",
        '"text":"order 9"',
        "b'invoice 2'",
        "b'letter 1'",
        "MQ_ERROR_IO_TIMEOUT",
    ):
        assert expected in printed
    assert "qmnode_queue_messages" in printed


def examples(module: ModuleType) -> list[str]:
    """The indented blocks of a module's docstring."""
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", inspect.getdoc(module) or "", re.MULTILINE)
    return [textwrap.dedent(block) for block in blocks]


@pytest.mark.parametrize("module", [qmnode, qmnode.model.api])
async def test_the_examples_of_docstrings_run(module: ModuleType, tmp_path: Path) -> None:
    found = examples(module)
    assert found
    for text in found:
        here = text.replace("/var/lib/qmnode", str(tmp_path / "store"))
        code = compile(here, module.__name__, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        assert isinstance(code, CodeType)
        names = {name: getattr(qmnode, name) for name in qmnode.__all__}
        await eval(code, names)
