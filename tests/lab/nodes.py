"""Nodes as services, each in a process of its own: started, waited for, stopped, killed, started again."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import qmnode
from qmnode.event_loop import LOOP_VARIABLE
from tests.lab.loop_watch import VARIABLE, record_of
from tests.lab.waiting import holds, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from qmnode.local.remote import RemoteQueueManager

PROJECT: Final = Path(__file__).resolve().parents[2]
COMMAND: Final = (sys.executable, "-c", "from qmnode.cli import main; main()")
"""``qmnode``, as it is in this tree."""
WATCHED: Final = (
    sys.executable, "-c", "from tests.lab.loop_watch import watch_process; watch_process()\n" + COMMAND[2]
)  # fmt: skip
"""The same with a watch over its event loop."""
START: Final = 240.0
"""Seconds that a start may take on a busy machine."""
STOP: Final = 60.0


def launch(
    config: Path, log: Path, environment: Mapping[str, str], command: Sequence[str] = COMMAND, **options: Any
) -> subprocess.Popen[bytes]:
    """``qmnode run`` on a configuration, in a process of its own. Nothing else in the tests starts one."""
    with log.open("ab") as file:
        return subprocess.Popen(
            [*command, "run", "--config", str(config)],
            stdout=subprocess.DEVNULL, stderr=file, env=environment, **options,
        )  # fmt: skip


async def launch_heard(
    config: Path, environment: Mapping[str, str], command: Sequence[str]
) -> asyncio.subprocess.Process:
    """The same, with a pipe that has all of its output."""
    return await asyncio.create_subprocess_exec(
        *command, "run", "--config", str(config),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env=environment,
    )  # fmt: skip


async def answers(socket: Path, process: subprocess.Popen[bytes], said: Callable[[], str]) -> None:
    """Return when a node answers applications. NodeError if its process ends instead."""

    async def is_there() -> bool:
        try:
            async with qmnode.connect(socket):
                return True
        except (OSError, qmnode.MessageQueuingError):
            if process.poll() is not None:
                raise NodeError(f"the node ended with {process.returncode}: {said()}") from None
            return False

    await holds(is_there, START, "the node answers")


class NodeError(Exception):
    """The node did not start; says what it said."""


class NodeProcess:
    """``qmnode run`` on one configuration; all its files are in one folder."""

    def __init__(
        self, folder: Path, *, environment: Mapping[str, str] | None = None, tree: Path | None = None,
        managed: bool = False, **settings: object,
    ) -> None:  # fmt: skip
        """Without a network, unless the settings say otherwise. ``tree``: other sources to run, without the watch.

        ``managed``: with a management API on ``management_socket``; what serves it is half of what a start costs.
        """
        self.folder = folder
        self._tree = tree or PROJECT
        self._command = COMMAND if tree is None else (COMMAND[0], "-P", *COMMAND[1:])  # none of the present folder
        self._launcher = WATCHED if tree is None else self._command
        self.config = folder / "node.yaml"
        self.socket = folder / "node.sock"
        self.management_socket = folder / "management.sock"
        self.log = folder / "log"
        self.turns = record_of(self.log)
        """What the watch over its event loop has noted."""
        self.environment = {
            **os.environ, "PYTHONPATH": str(self._tree), VARIABLE: str(self.turns.path), **(environment or {})
        }  # fmt: skip
        self._launched: subprocess.Popen[bytes] | None = None
        self._looked_at = 0
        self._managed = managed
        folder.mkdir(exist_ok=True)
        self.configure(**settings)

    def configure(self, **settings: object) -> None:
        """Write the configuration; what is not said has the lab's defaults."""
        values: dict[str, object] = {
            "data": str(self.folder / "store"),
            "transport": {"enabled": False},
            "local": {"socket": str(self.socket)},
            "management": {"socket": str(self.management_socket) if self._managed else None},
        }
        self.config.write_text(json.dumps(values | settings))

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The present process, or the last one."""
        assert self._launched is not None, "it was never started"
        return self._launched

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self._launched is not None and self._launched.poll() is None

    def launch(self) -> None:
        """Start, and do not wait."""
        self.socket.unlink(missing_ok=True)
        self._looked_at = self.log.stat().st_size if self.log.exists() else 0
        self.turns.ready = float("inf")
        self._launched = launch(self.config, self.log, self.environment, self._launcher)

    def start(self) -> None:
        """Start, and wait until it is ready. NodeError if it ends instead."""
        self.launch()
        self.wait_for("ready")
        self.turns.ready = time.monotonic()

    def wait_for(self, event: str, limit: float = START, has: str = "event") -> dict[str, Any]:
        """The next line of the log that says so, and has that field. NodeError if the node ends without one."""

        def found() -> dict[str, Any] | None:
            ended = not self.running
            with self.log.open("rb") as log:
                log.seek(self._looked_at)
                for line in log:
                    if not line.endswith(b"\n"):
                        break
                    self._looked_at += len(line)
                    entry = json.loads(line) if line.startswith(b"{") else {}
                    if entry.get("event") == event and has in entry:
                        return dict(entry)
            if ended:
                raise NodeError(
                    f"the node ended with {self.process.returncode}, and never said {event!r}: {self.said()}"
                )
            return None

        return wait_until(found, limit, f"the node says {event!r}") or {}

    async def ready(self) -> None:
        """Wait until it answers applications. NodeError if it ends instead."""
        await answers(self.socket, self.process, self.said)

    async def start_again(self) -> None:
        """As :meth:`start`, in an event loop."""
        await asyncio.to_thread(self.start)

    async def connect(self) -> RemoteQueueManager:
        """A connection, as applications have it."""
        return await qmnode.connect(self.socket, reconnect=0)

    def command(self, *words: object, limit: float = 120) -> subprocess.CompletedProcess[str]:
        """Run ``qmnode`` for this node, without what only the node's environment has."""
        environment = {**os.environ, "PYTHONPATH": str(self._tree), "QMNODE_SOCKET": str(self.socket)}
        return subprocess.run(
            [*self._command, *map(str, words)], env=environment,
            capture_output=True, text=True, timeout=limit, check=False,
        )  # fmt: skip

    def said(self) -> str:
        """Its log."""
        return self.log.read_text("utf-8", "replace") if self.log.exists() else ""

    def send_signal(self, number: int) -> None:
        """To the process."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, if it runs; returns when it is gone."""
        if self._launched is not None:
            self._launched.kill()
            self._launched.wait()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.process.terminate()
        return self.process.wait(STOP)


@contextmanager
def running_node(folder: Path, *, managed: bool = False, **settings: object) -> Iterator[NodeProcess]:
    """A node named ALPHA that is ready; stopped at the end."""
    node = NodeProcess(folder, managed=managed, **({"computer_name": "ALPHA"} | settings))
    try:
        node.start()
        yield node
    finally:
        if node.running:
            node.stop()


@contextmanager
def watched_node(folder: Path, **settings: object) -> Iterator[NodeProcess]:
    """The same on asyncio's own loop, which the watch can look into."""
    with running_node(folder, environment={LOOP_VARIABLE: "asyncio"}, **settings) as node:
        yield node
