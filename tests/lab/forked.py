"""Nodes that are forked from one process, which has imported what ``qmnode run`` imports: most of what a start costs.

``python -m tests.lab.forked`` is that process: each line of its standard input has a configuration and a log, and
the answer is the number of the process that runs a node with them.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tests.lab.nodes import NodeProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SUBREAPER: Final = 36
"""PR_SET_CHILD_SUBREAPER of ``prctl``: the nodes become children of the test when their parent has ended."""

_IMPORTED: Final = (
    "uvicorn", "uvloop", "qmnode.administration.operations", "qmnode.commands.node", "qmnode.commands.registry",
    "qmnode.commands.command_table", "qmnode.delivery.network", "qmnode.management.app", "qmnode.management.server",
    "qmnode.service",
)  # fmt: skip


class _Child:
    """A child of this process, as ``subprocess.Popen`` has it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self, options: int = os.WNOHANG) -> int | None:
        if self.returncode is None and (ended := os.waitpid(self.pid, options))[0]:
            self.returncode = os.waitstatus_to_exitcode(ended[1])
        return self.returncode

    def wait(self) -> int | None:
        return self.poll(0)

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, 9)


class ForkedNode(NodeProcess):
    """``qmnode run``, forked."""

    def __init__(self, folder: Path, server: subprocess.Popen[str], **settings: object) -> None:
        super().__init__(folder, **settings)
        self._server = server

    def launch(self) -> None:
        """Start, and do not wait."""
        self.socket.unlink(missing_ok=True)
        self.log.write_bytes(b"")
        self._looked_at = 0
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.write(json.dumps([str(self.config), str(self.log)]) + "\n")
        self._server.stdin.flush()
        self._launched = _Child(int(self._server.stdout.readline()))  # type: ignore[assignment]


@contextmanager
def node_server() -> Iterator[subprocess.Popen[str]]:
    """The process from which nodes are forked."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    command = [sys.executable, "-m", "tests.lab.forked"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def _run(config: str, log: str) -> None:
    from qmnode.cli import main

    for number, file in ((0, os.devnull), (1, os.devnull), (2, log)):
        os.dup2(os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), number)
    sys.argv = ["qmnode", "run", "--config", config]
    main()


def _serve() -> None:
    for name in _IMPORTED:
        importlib.import_module(name)
    for line in sys.stdin:
        reading, writing = os.pipe()
        if not (between := os.fork()):
            if child := os.fork():
                os.write(writing, b"%d" % child)
                os._exit(0)
            os.setsid()
            os.close(reading), os.close(writing)
            _run(*json.loads(line))
            os._exit(0)
        os.waitpid(between, 0)
        print(int(os.read(reading, 20)), flush=True)
        os.close(reading), os.close(writing)


if __name__ == "__main__":
    _serve()
