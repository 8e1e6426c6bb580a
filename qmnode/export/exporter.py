"""Exports the store's events: when there are enough, or when it is time, the oldest become one segment.

The range of a segment is recorded in the store before it is written, and its events leave the store after that. So a
crash in between writes the same segment again under the same name, and no event is in two segments.
"""

import asyncio
import contextlib
import importlib.util
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Final

import structlog

from qmnode.errors import ConfigurationError
from qmnode.export.events import EventKind, shown
from qmnode.export.log import count_of
from qmnode.export.recorder import EventRecorder
from qmnode.model.queue import Queue
from qmnode.settings.node import ExportSettings
from qmnode.storage.store import Store
from qmnode.structures.guid import guid_to_text

if TYPE_CHECKING:
    from qmnode.model.queue_manager import QueueManager

log = structlog.get_logger(__name__)

_SETTLED: Final = "events_segment"
"""First and last event of the segment that is being written."""
_PATIENCE: Final = (1.0, 60.0)
"""Seconds until another attempt, and the most that they grow to."""
_LAST_WORD: Final = 15.0
"""Seconds that the last segment may take when the node stops; otherwise it is written after the next start."""
_ROLL_BYTES: Final = 32 << 20
"""Bytes of recorded events that fill a segment, in which they take a fifth of that."""
_SAMPLE_SECONDS: Final = 60.0
"""Seconds between two samples of the fill levels of queues."""
_KB: Final = 1024
_INFINITE: Final = 0xFFFF_FFFF
_LINE: Final = 1 << 20


class ExportError(Exception):
    """A segment could not be written."""


def check_export(settings: ExportSettings) -> None:
    """Raise ConfigurationError if the requested export is not possible here."""
    if settings.target and importlib.util.find_spec("pyarrow") is None:
        raise ConfigurationError("export.target is set, and pyarrow is not installed: pip install 'qmnode[export]'")


class Exporter:
    """Exports the events of one node while it runs."""

    def __init__(
        self, manager: "QueueManager", store: Store, recorder: EventRecorder, settings: ExportSettings
    ) -> None:
        self._manager = manager
        self._store = store
        self._recorder = recorder
        self._settings = settings
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._sampled = 0.0
        self.segments = 0
        """Segments written since the start."""
        self.failure = ""
        """Why the last attempt failed; empty if it succeeded."""

    def start(self) -> None:
        """Begin to record and export events."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="export")

    async def stop(self) -> None:
        """Stop recording, write the remaining events if that can be done soon, and end."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        try:
            async with asyncio.timeout(_LAST_WORD):
                self._recorder.stop()
                self._recorder.flush()
                while self._recorder.backlog > 0:
                    await self.export()
        except (ExportError, TimeoutError) as error:
            log.warning("the last events stay in the store until the next start", reason=str(error))
        await self._end_process()

    async def _run(self) -> None:
        delay = _PATIENCE[0]
        while True:
            await asyncio.sleep(min(delay, self._settings.roll_seconds / 4))
            self._sample()
            if not self._is_time():
                continue
            try:
                await self.export()
                delay = _PATIENCE[0]
            except ExportError as error:
                log.warning("events are not exported", target=shown(self._settings.target), reason=str(error))
                await asyncio.sleep(delay)
                delay = min(2 * delay, _PATIENCE[1])

    def _is_time(self) -> bool:
        recorder, settings = self._recorder, self._settings
        if recorder.oldest is None:
            return False
        return recorder.backlog >= _ROLL_BYTES or time.monotonic() - recorder.oldest >= settings.roll_seconds

    async def export(self) -> None:
        """Write the oldest events as one segment. Raises ExportError."""
        blocks = self._settled()
        if not blocks:
            return
        try:
            await self._write(blocks)
        except (OSError, ValueError, ExportError, asyncio.IncompleteReadError) as error:
            self.failure = str(error)
            await self._end_process()
            raise ExportError(self.failure) from error
        except asyncio.CancelledError:
            await self._end_process()  # its next answer would be to this job
            raise
        self.failure = ""
        self.segments += 1
        self._recorder.forget(blocks)
        await self._store.durable()

    def _settled(self) -> list[tuple[int, bytes]]:
        """The blocks of the next segment: those recorded before a crash, or as many as fill one."""
        record = self._store.get_meta(_SETTLED)
        first, last = json.loads(record) if record else (0, 0)
        if last > self._recorder.exported and first == self._recorder.exported + 1:
            return [one for one in self._recorder.blocks(self._settings.backlog_bytes * 2) if one[0] <= last]
        self._recorder.flush()
        blocks = self._recorder.blocks(_ROLL_BYTES)
        if blocks:
            ends = blocks[0][0], blocks[-1][0] + count_of(blocks[-1][1]) - 1
            self._store.put_meta(_SETTLED, json.dumps(ends).encode())
            self._store.flush()
        return blocks

    async def _write(self, blocks: list[tuple[int, bytes]]) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            process = self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "qmnode.export.worker",
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=_LINE,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        settings, manager = self._settings, self._manager
        job = {
            "target": settings.target,
            "labels": settings.labels,
            "directory_bytes": settings.directory_bytes,
            "origin": {
                "node": manager.computer_name,
                "node_id": guid_to_text(manager.identifier),
                "site": settings.site or manager.site_name,
            },
            "blocks": [(first, len(block)) for first, block in blocks],
        }
        process.stdin.write(json.dumps(job).encode() + b"\n")
        for _, block in blocks:
            process.stdin.write(block)
            await process.stdin.drain()
        line = await process.stdout.readline()
        if not line:
            raise ExportError("the process that writes segments has ended")
        answer = json.loads(line)
        if "error" in answer:
            raise ExportError(answer["error"])
        log.info("exported", segment=answer["segment"])

    async def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(5):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    # Samples of fill levels

    def _sample(self) -> None:
        now = time.monotonic()
        if now - self._sampled < _SAMPLE_SECONDS:
            return
        self._sampled = now
        manager = self._manager
        total = 0
        for queue in manager.queue_collection.values():
            if not queue.is_internal:
                for one in (queue, queue.journal) if queue.has_journal else (queue,):
                    total += one.message_count
                    self._sample_queue(one)
        quotas = manager.quotas
        limit = None if quotas.limit == float("inf") else int(quotas.limit)
        self._recorder.node_event(EventKind.SAMPLE, count=total, bytes=quotas.used, quota=limit)

    def _sample_queue(self, queue: Queue) -> None:
        if queue.message_count or queue.quota != _INFINITE:
            self._recorder.node_event(
                EventKind.SAMPLE,
                queue.pathname,
                count=queue.message_count,
                bytes=queue.total_bytes,
                quota=None if queue.quota == _INFINITE else queue.quota * _KB,
            )
