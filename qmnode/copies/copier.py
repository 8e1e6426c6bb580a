"""Keeps the copy of a running node: marks moments, ships them in a thread, and makes bases.

Nothing that is acknowledged waits for it. While the target is unavailable, logs and the files of large messages stay in
the store, up to the setting ``backlog``.
"""

import asyncio
import contextlib
import json
import shutil
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, TypeVar

import structlog

from qmnode.copies.shipper import FAMILIES, GapError, Shipper
from qmnode.copies.target import CopyError, Folder, open_target
from qmnode.errors import ConfigurationError
from qmnode.settings.node import RemoteCopySettings
from qmnode.storage.errors import StoreError
from qmnode.storage.layout import Family
from qmnode.storage.store import Store

if TYPE_CHECKING:
    from qmnode.model.queue_manager import QueueManager

log = structlog.get_logger(__name__)

_T = TypeVar("_T")
_TROUBLE: Final = "copy"
_CHECKPOINT: Final = "copying"
"""The folder in the store in which a base waits to be shipped: links to files of the store."""
_MARKS: Final = 1.0
"""Seconds between two moments that can be restored."""
_PATIENCE: Final = 30.0
"""Most seconds until another attempt after a failed one."""
_LAST_WORD: Final = 15.0
"""Seconds that shipping may take when the node stops; the rest is shipped after the next start."""


def check_copy(path: Path, settings: RemoteCopySettings) -> None:
    """Raise ConfigurationError if no copy of the store in ``path`` can be kept there."""
    target, own = open_target(settings.to), path.resolve()
    if isinstance(target, Folder):
        folder = target.path.resolve()
        if folder.is_relative_to(own) or own.is_relative_to(folder):
            raise ConfigurationError(
                f"storage.remote_copy.to: {settings.to} and the store {path} are one folder, or one is in the other: "
                "name a folder on another disk, best of another site"
            )


class Copier:
    """The copy of one node's store, from its start to its end."""

    def __init__(self, manager: "QueueManager", store: Store, path: Path) -> None:
        """Raises ConfigurationError if the copy cannot be kept there."""
        settings = self._settings = store.settings.remote_copy
        check_copy(path, settings)
        self._manager = manager
        self._store = store
        self._large = store.large_messages
        assert self._large.placed is not None
        target = open_target(settings.to)
        self._shipper = Shipper(path, target, settings, manager.computer_name, self._large.placed)
        self._checkpoint = path / _CHECKPOINT
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        # The end of the process must not wait for a target that hangs, as a network file system may.
        Thread(target=self._work, name="qmnode-copy", daemon=True).start()
        self._held: list[int] = []
        self._held_size = 0
        """Files of large messages that wait for the shipping under way, and their bytes."""
        self._wake = asyncio.Event()
        self._large.on_held = self._wake.set
        self._task: asyncio.Task[None] | None = None
        self._period = settings.lag / 2
        self._due = 0.0
        self._patience = 1.0
        self._base_due = 0.0
        self.failure = ""
        """Why the last attempt failed; empty if it succeeded."""

    def start(self) -> None:
        """Begin, or go on where the copy ends."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="copy")

    async def stop(self) -> None:
        """Ship what is written, if that can be done soon, and end."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._large.on_held = lambda: None
        try:
            async with asyncio.timeout(_LAST_WORD):
                self._store.flush()
                await self._in_thread(self._shipper.mark)
                await self._in_thread(self._shipper.ship)
        except (CopyError, StoreError, OSError, TimeoutError) as error:
            log.warning("the end of the log is shipped after the next start", reason=_reason(error))
        self._calls.put(None)

    def state(self) -> dict[str, Any]:
        """The copy as it is now, for status and metrics. Times are in seconds since 1970 (UTC)."""
        shipper = self._shipper
        return {
            "to": self._settings.to,
            "lag_seconds": round(shipper.lag, 3),
            "lag_bytes": shipper.behind,
            "moment": shipper.shipped if shipper.based else 0.0,
            "base": shipper.based,
            "failure": self.failure,
        }

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    async def _in_thread(self, call: Callable[[], _T]) -> _T:
        """Call it in the thread. Meanwhile no more than the backlog is kept for the copy."""
        called: Future[_T] = Future()

        def work() -> None:
            if called.set_running_or_notify_cancel():
                try:
                    called.set_result(call())
                except BaseException as error:
                    called.set_exception(error)

        self._calls.put(work)
        done = asyncio.wrap_future(called)
        try:
            while not (await asyncio.wait([done], timeout=_MARKS))[0]:
                self._bound_backlog()
            return done.result()
        finally:
            done.cancel()

    def _bound_backlog(self) -> None:
        """Warn while the target does not answer, and give up the backlog when it is too large."""
        shipper = self._shipper
        if shipper.lag > self._settings.lag:
            self._warn("the target does not answer, or is slower than the node")
        size = self._held_size + self._large.held_bytes() + shipper.kept()
        if size > self._settings.backlog and not shipper.abandoned:
            shipper.abandoned = True
            log.error("the copy has a gap: its backlog is full", backlog=self._settings.backlog)
        if shipper.abandoned:
            shipper.let_logs_go()
            held = self._held + self._large.take_held()[0]
            self._held, self._held_size = [], 0
            self._large.let_go(held, shipped=True)

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(_MARKS, self._period)):
                    await self._wake.wait()
            try:
                if self._shipper.abandoned:
                    await self._in_thread(self._shipper.give_up)
                await self._in_thread(self._shipper.mark)
                if time.monotonic() >= self._due or (self._wake.is_set() and not self.failure):
                    await self._ship()
                if self._shipper.generation and time.monotonic() >= self._base_due:
                    await self._make_base()
            except (CopyError, OSError) as error:
                await self._failed(error)
            else:
                self._works()

    def _works(self) -> None:
        if not self.failure and self._shipper.lag <= self._settings.lag:
            self._manager.troubles.pop(_TROUBLE, None)
        elif self._shipper.based and self._shipper.lag > self._settings.lag:
            self._warn(self.failure or "the target is slower than the node")

    async def _ship(self) -> None:
        """Ship all that is marked; then files of large messages may go. Raises CopyError."""
        self._held, self._held_size = self._large.take_held()
        shipped = False
        self._due = time.monotonic() + self._period
        generation = self._shipper.generation
        try:
            await self._in_thread(self._shipper.ship)
            shipped = True
        except (CopyError, OSError):
            if self._held_size + self._shipper.behind > self._settings.backlog:
                await self._in_thread(self._shipper.give_up)
                log.error("the copy has a gap: its backlog is full", backlog=self._settings.backlog)
                shipped = True
            raise
        finally:
            held, self._held, self._held_size = self._held, [], 0
            self._large.let_go(held, shipped=shipped)
        self.failure, self._patience = "", 1.0
        if self._shipper.generation != generation:
            resumed = bool(self._shipper.based)
            log.info("the copy goes on" if resumed else "the copy begins", to=self._settings.to)
            self._base_due = 0.0 if not resumed else time.monotonic() + self._settings.base

    async def _failed(self, error: Exception) -> None:
        if isinstance(error, GapError):
            await self._in_thread(self._shipper.give_up)
        reason = _reason(error)
        if reason != self.failure:
            log.warning("the copy is not written", to=self._settings.to, reason=reason)
        self.failure = reason
        self._warn(reason)
        self._due = time.monotonic() + self._patience
        self._base_due = max(self._base_due, self._due)
        self._patience = min(2 * self._patience, _PATIENCE)

    def _warn(self, reason: str) -> None:
        self._manager.troubles[_TROUBLE] = (
            f"it is {self._shipper.lag:.0f} s behind ({reason}): if this machine is lost now, so is what was accepted "
            "since"
        )

    # Bases

    async def _make_base(self) -> None:
        """Ship the store as it is, and what comes meanwhile as well. Raises CopyError, OSError."""
        shutil.rmtree(self._checkpoint, ignore_errors=True)
        try:
            with self._store.keep_large_messages():
                await asyncio.shield(asyncio.ensure_future(self._in_thread(self._write_checkpoint)))
            self._note_families()  # in a log that is needed after the base
            mark = await self._in_thread(self._shipper.mark)
            steps = self._shipper.base(self._checkpoint, mark.time)
            while await self._in_thread(lambda: next(steps, False)) is None:
                if time.monotonic() >= self._due:
                    await self._in_thread(self._shipper.mark)
                    await self._ship()
        finally:
            shutil.rmtree(self._checkpoint, ignore_errors=True)
        self._base_due = time.monotonic() + self._settings.base
        await self._in_thread(self._shipper.expire)

    def _write_checkpoint(self) -> None:
        try:
            self._store.write_checkpoint(self._checkpoint)
        except Exception as error:  # RocksDB's exceptions have no common class
            raise CopyError(f"no base can be made: {error}") from error

    def _note_families(self) -> None:
        """Let the log say which number each family has in it: a deletion of nothing in each, in this order."""
        try:
            families = [family for family in Family if family is not Family.EXPRESS]
            self._store.put_meta(FAMILIES.decode(), json.dumps(families).encode())
            for family in families:
                self._store.delete(family, FAMILIES)
            self._store.flush()
        except StoreError as error:
            raise CopyError(error.sentence) from error


def _reason(error: BaseException) -> str:
    return getattr(error, "sentence", "") or str(error) or "it takes too long"
