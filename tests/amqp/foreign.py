"""Programs that nobody here wrote: clients with their libraries, and Artemis. What is missing fails a test."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import subprocess
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.addresses import free_port
from tests.lab.waiting import holds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

CLIENTS = Path(__file__).parent / "clients"
PLACE = Path(__file__).resolve().parents[2] / ".clients"
"""Their libraries, which the package managers bring once."""
_TRIES = 3


@contextmanager
def alone(place: Path) -> Iterator[None]:
    """Of the processes that run tests side by side, one at a time."""
    import fcntl

    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def installed(name: str, *command: str, sources: Path = CLIENTS) -> Path:
    """The folder of a client with its libraries, which its package manager brings."""
    place = PLACE / name
    with alone(place):
        files = {file.name: file.read_bytes() for file in sorted((sources / name).iterdir()) if file.is_file()}
        wanted = hashlib.sha256(
            repr((command, [v for k, v in files.items() if "." in k and k[-5:] != ".java"])).encode()
        )
        complete = place / "complete"
        for file, content in files.items():
            (place / file).write_bytes(content)
        if not complete.exists() or complete.read_text() != wanted.hexdigest():
            bring(place, *command)
            complete.write_text(wanted.hexdigest())
    return place


def bring(place: Path, *command: str) -> None:
    """Run a package manager, again if the network failed it."""
    if shutil.which(command[0]) is None:
        raise AssertionError(f"{command[0]} is not installed: run .ci/packages as root, which `make test` does")
    for attempt in range(1, _TRIES + 1):
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=300, check=False)
        if not done.returncode:
            return
        if attempt == _TRIES:
            raise AssertionError(f"{' '.join(command)} fails: {done.stderr[-1000:]}{done.stdout[-1000:]}")


async def run(*command: str, cwd: Path, seconds: float = 120) -> str:
    """What a program prints; it ends well."""
    process = await asyncio.create_subprocess_exec(
        *command, cwd=cwd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), seconds)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, output.decode()
    return output.decode()


def jms() -> Path:
    return installed("jms", "mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib")


def rhea() -> Path:
    return installed("rhea", "npm", "ci", "--no-audit", "--no-fund")


def go() -> Path:
    return installed("go", "go", "build", "-o", "client", "main.go")


class Broker:
    """A broker in a process of its own. It keeps its messages when it is killed and started again."""

    def __init__(self, command: list[str], port: int, cwd: Path, environment: dict[str, str]) -> None:
        self.port = port
        self.url = f"amqp://127.0.0.1:{port}"
        self._command, self._cwd, self._environment = command, cwd, os.environ | environment
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with (self._cwd / "log").open("ab") as out:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, cwd=self._cwd, env=self._environment, start_new_session=True,
                stdin=asyncio.subprocess.PIPE, stdout=out, stderr=out,
            )  # fmt: skip
        await holds(self._listens, 300, f"{self._command[0]} listens", 0.2)

    @property
    def pid(self) -> int:
        """The first of its processes."""
        assert self._process is not None, "it does not run"
        return self._process.pid

    async def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.returncode is None, (self._cwd / "log").read_text()[-3000:]
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True

    async def kill(self) -> None:
        """At once, with all processes that it started."""
        process, self._process = self._process, None
        if process is not None:
            os.killpg(process.pid, 9)
            await process.wait()
            await holds(self._is_down, 60, f"{self._command[0]} is down")

    async def _is_down(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return True
        writer.close()
        return False


@asynccontextmanager
async def artemis(path: Path, *queues: str) -> AsyncIterator[Broker]:
    """Apache ActiveMQ Artemis with these queues, without logins."""
    place = installed("artemis", "mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib")
    port = free_port()
    command = ["java", "-Xmx256m", "-cp", f"{place}/lib/*", f"{place}/Broker.java", str(port), str(path), *queues]
    broker = Broker(command, port, path, {})
    try:
        await broker.start()
        yield broker
    finally:
        await broker.kill()
