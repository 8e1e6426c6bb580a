"""The node as a process over a disk that forgets, and that is killed without a word."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import qmnode
from qmnode.errors import MessageQueuingError
from qmnode.local.remote import RemoteQueueManager
from tests.crash.disk import Disk

_PROJECT: Final = Path(__file__).resolve().parents[2]
_COMMAND: Final = [sys.executable, "-c", "from qmnode.cli import main; main()", "run", "--config"]
_START: Final = 120.0
"""Seconds that a start may take on a busy machine."""


class DaemonError(Exception):
    """The node did not start; says what it said."""


class Daemon:
    """``qmnode run``, started and killed many times on one disk."""

    def __init__(self, disk: Disk, **settings: object) -> None:
        self.disk = disk
        self._folder = disk.store.parent
        self.socket = self._folder / "node.sock"
        self.management_socket = self._folder / "management.sock"
        self._log = self._folder / "node.log"
        self._configuration = self._folder / "node.yaml"
        self._settings = {
            "data": str(disk.store),
            "transport": {"enabled": False},
            "computer_name": "ALPHA",
            "local": {"socket": str(self.socket)},
            "management": {"socket": str(self.management_socket)},
            **settings,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def spawn(self) -> None:
        """Start, and do not wait until it answers."""
        self._configuration.write_text(json.dumps(self._settings))
        self.socket.unlink(missing_ok=True)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*_COMMAND, str(self._configuration)],
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(_PROJECT), **self.disk.environment},
            )

    async def start(self) -> None:
        """Start, and wait until it answers. DaemonError if it ends instead."""
        self.spawn()
        await self.ready()

    async def ready(self) -> None:
        """Wait until it answers."""
        deadline = asyncio.get_running_loop().time() + _START
        while asyncio.get_running_loop().time() < deadline:
            assert self._process is not None
            if self._process.poll() is not None:
                raise DaemonError(f"the node ended with {self._process.returncode}: {self.said()}")
            try:
                async with await self.connect():
                    return
            except MessageQueuingError:
                await asyncio.sleep(0.01)
        raise DaemonError(f"the node did not answer in {_START} s: {self.said()}")

    async def connect(self) -> RemoteQueueManager:
        """A connection."""
        return await qmnode.connect(self.socket)

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run ``qmnode`` for this node."""
        return subprocess.run(
            [sys.executable, "-c", "from qmnode.cli import main; main()", *words, "--socket", str(self.socket)],
            env={**os.environ, "PYTHONPATH": str(_PROJECT)},
            capture_output=True,
            text=True,
        )

    def said(self) -> str:
        """Its log."""
        return self._log.read_text(errors="replace")

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(_START)
