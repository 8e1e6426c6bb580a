"""The disk under a running node: what the node says when it fails, and when the node may go on.

After a failed write memory is ahead of the disk, so only opening the store again helps. Until that works the queue
manager stays as it is: it takes nothing, and answers those who ask how it is.
"""

import asyncio
import time
from pathlib import Path
from typing import Final

import structlog

from qmnode.node import QueueManager
from qmnode.settings.node import StorageSettings
from qmnode.storage.disk_reserve import keep_reserve, probe, release_reserve, space
from qmnode.storage.errors import StoreError
from qmnode.storage.store import Store

log = structlog.get_logger(__name__)

_TROUBLE: Final = "disk"
_LOOK: Final = 1.0
"""Seconds between two looks at the room that is left."""
_PROBE_INTERVAL: Final = 1.0
_TRIAL_INTERVAL: Final = 60.0
"""Seconds until a store that could not be opened is tried again, if no room was made meanwhile."""
_MIB: Final = 1024 * 1024
_KEPT: Final = 64 * _MIB
_KEPT_OF_DISK: Final = 4
"""The room that is kept for receiving and for RocksDB: so many bytes, and at most this part of the disk."""
_COPIES: Final = 4
"""Bytes that one byte of a message takes for a while: in the log, in a sorted file, and in those it is merged into."""


class DiskWatch:
    """Watches the disk of one open queue manager, from its start to its end."""

    def __init__(self, manager: QueueManager, path: Path, settings: StorageSettings) -> None:
        self._manager = manager
        self._path = path
        self._settings = settings
        self._failed = asyncio.Event()
        self._tried = 0.0
        self._free = -_MIB
        assert isinstance(manager.store, Store)
        self._store = manager.store
        self._store.when_failed(self._failed.set)
        if self._store.failure is not None:
            self._failed.set()
        keep_reserve(path)
        self._look()

    async def resumable(self) -> None:
        """Return when the store has failed and can be opened again. It is closed then."""
        while not self._failed.is_set():
            if self._look():
                await asyncio.to_thread(self._store.reclaim)
            try:
                async with asyncio.timeout(_LOOK):
                    await self._failed.wait()
            except TimeoutError:
                continue
        failure = self._store.failure
        damaged = failure is not None and failure.damaged
        self._manager.troubles[_TROUBLE] = (
            failure.sentence
            if failure is not None and failure.damaged
            else "it is full or fails, and nothing can be stored"
        )
        # Others keep their messages, and come again when somebody listens.
        await self._manager.network.stop()
        if damaged:
            await asyncio.Event().wait()  # opened again, the store would come to the same place again
        release_reserve(self._path)
        works = False
        while not works:
            await asyncio.sleep(_PROBE_INTERVAL)
            if not await asyncio.to_thread(self._is_worth_a_trial):
                continue
            self._store.close()  # here, not in the thread: the node may be stopped meanwhile, and closes it too
            works = await asyncio.to_thread(self._opens)
        log.warning("the disk takes writes again: the node resumes")

    def _look(self) -> bool:
        """Warn before it is full, and keep room for receiving. Return whether RocksDB should free some."""
        free, total = space(self._path)
        room = free - min(_KEPT, total // _KEPT_OF_DISK)
        self._manager.quotas.allow(max(0, room) / _COPIES if total else float("inf"))
        self._warn(free, total)
        return bool(total) and room <= 0

    def _warn(self, free: int, total: int) -> None:
        troubles = self._manager.troubles
        if not total or free >= self._settings.low_space:
            troubles.pop(_TROUBLE, None)
            return
        if _TROUBLE not in troubles:
            log.warning("the disk is almost full", free_bytes=free, low_space=self._settings.low_space)
        troubles[_TROUBLE] = f"{free // _MIB} of {total // _MIB} MiB are free: without room nothing can be stored"

    def _is_worth_a_trial(self) -> bool:
        """Whether the disk takes writes, and has more room than at the last trial, or that was some time ago."""
        if probe(self._path) is not None:
            return False
        now, free = time.monotonic(), space(self._path)[0]
        if free < self._free + _MIB and now < self._tried + _TRIAL_INTERVAL:
            return False
        self._tried, self._free = now, free
        return True

    def _opens(self) -> bool:
        """Whether the store can be opened."""
        try:
            Store.open(self._path, self._settings, resumes=True).close()
        except StoreError as error:
            log.warning("the message store cannot be opened yet", reason=error.sentence)
            return False
        return True
