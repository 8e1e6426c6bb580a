"""The other process of a bench between two: it says its processor time for every line that it gets."""

from __future__ import annotations

import asyncio
import contextlib
import random
import subprocess
import sys
from time import process_time
from typing import TYPE_CHECKING

from qmnode.settings.security import TlsSettings

if TYPE_CHECKING:
    from pathlib import Path


def loopback_address() -> str:
    dice = random.SystemRandom()
    return f"127.{dice.randrange(1, 255)}.{dice.randrange(1, 255)}.{dice.randrange(2, 255)}"


def tls_in(folder: Path, address: str) -> TlsSettings:
    """The settings with the files that ``tests.security.certificates.tls_of`` wrote for an address."""
    place = folder / f"tls-{address}"
    names = ("certificate", "private_key", "authorities")
    files = {name: place / name.removeprefix("private_") for name in names}
    return TlsSettings(**files, peers=frozenset({"*"}))  # type: ignore[arg-type]


async def say_processor_time() -> None:
    """Say "ready", and then the processor time for every line that comes."""
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    print("ready", flush=True)
    while await lines.readline():
        print(process_time(), flush=True)


class Peer:
    """The other process: a module of the benches that receives."""

    def __init__(self, module: str, folder: Path, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, "receive", str(folder), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        while self.line() != "ready":
            pass

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def processor(self) -> float:
        """Its seconds of processor so far."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self.line())

    def stop(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        finally:
            self._process.kill()
