"""Runs rotations in processes that are killed: ``python -m tests.keys.worker``, one JSON document a line each way.

It forks for each piece of work, so that nothing is imported anew a hundred times; it has no threads itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from mqenterprise.keys.publication import Node, Shown
from mqenterprise.keys.settings import KeyRotationError
from qmnode.security.key_stores import KeyPair, KeyPurpose, KeyStore, KeyStoreContents
from tests.keys.lab import Bench, Lists


class Fate:
    """Counts what is done outside of the process, and ends it with SIGKILL before or after one of these things."""

    def __init__(self, at: int | None) -> None:
        self._left = at

    def point(self) -> None:
        if self._left is None:
            return
        self._left -= 1
        if self._left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


class FileLists(Lists):
    """A directory that outlives its processes: a file that is replaced as a whole, as an LDAP change is."""

    def __init__(self, path: Path, fate: Fate) -> None:
        super().__init__()
        self._path, self._fate = path, fate
        if path.exists():
            stored = json.loads(path.read_text("ascii"))
            self.lists = {KeyPurpose(name): b64decode(value) for name, value in stored.items()}

    def read(self, node: Node) -> Shown:
        self._fate.point()
        return super().read(node)

    def replace(self, node: Node, shown: Shown, lists: dict[KeyPurpose, bytes]) -> bool:
        self._fate.point()
        replaced = super().replace(node, shown, lists)
        stored = {purpose.value: b64encode(value or b"").decode() for purpose, value in self.lists.items()}
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(stored), "ascii")
        new.replace(self._path)
        self._fate.point()
        return replaced


class FatefulStore:
    """A key store whose user may die before and after each call."""

    def __init__(self, store: KeyStore, fate: Fate) -> None:
        self._store, self._fate = store, fate

    async def read(self) -> KeyStoreContents:
        self._fate.point()
        return await self._store.read()

    async def replace(self, pairs: tuple[KeyPair, ...], *, expected_version: int) -> int:
        self._fate.point()
        version = await self._store.replace(pairs, expected_version=expected_version)
        self._fate.point()
        return version


def opened(folder: Path, now: float, fate: Fate) -> Bench:
    """The node whose keys and directory are in that folder."""
    bench = Bench(folder)
    bench = Bench(folder, FatefulStore(bench.file, fate))
    bench.clock.now = now
    bench.lists = bench.rotation._lists = FileLists(folder / "directory", fate)
    return bench


async def work(order: dict[str, Any]) -> None:
    """What one process does."""
    bench = opened(Path(order["folder"]), order["now"], Fate(order.get("die_at")))
    if order["work"] == "retire":
        await bench.rotation.retire()
        return
    if order["work"] == "rotate":
        await bench.rotation.prepare(order["begun"])
    else:
        try:
            await bench.rotation.roll_back()
        except KeyRotationError:
            return
    await bench.finish()


def forked(run: Callable[[], None], seconds: float | None) -> bool:
    """Run in a process of its own and kill it after so many seconds; whether it was killed, by whomever."""
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        code = 1
        try:
            run()
            code = 0
        finally:
            os._exit(code)
    if seconds is not None and signal.sigtimedwait({signal.SIGCHLD}, seconds) is None:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    # What came in between was this child's.
    signal.sigtimedwait({signal.SIGCHLD}, 0)
    if not os.WIFSIGNALED(status) and os.waitstatus_to_exitcode(status):
        raise RuntimeError("the work failed")
    return os.WIFSIGNALED(status)


def main() -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    for line in sys.stdin:
        order = json.loads(line)
        started = time.monotonic()
        killed = forked(lambda order=order: asyncio.run(work(order)), order.get("die_after"))
        print(json.dumps({"killed": killed, "seconds": time.monotonic() - started}), flush=True)


if __name__ == "__main__":
    main()
