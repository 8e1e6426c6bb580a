"""The writes of the model, and the single writer: all writes of one pass of the event loop go to disk together, with
one sync. And the position up to which the log was synced, stored beside it to distinguish a torn tail from a loss.

Before it writes, the loop looks once more, without waiting, for what has come meanwhile: that shares the sync. Under
load it saves every tenth sync; a call that comes alone waits microseconds longer.

A new message waits in ``arrived`` until the pass ends. One that is received in the same pass is never written: the
batch would put and delete it, and its other records say the same without it.

Many callers share one future, because a future, or a write, for each message is what makes a store slow. There are two
ways to sync. *Inline* writes and syncs in the loop at the end of the pass. *Thread* writes without a sync in the loop
and syncs the log in a thread; writes made meanwhile share the next sync. Large messages are written to their files, and
synced, before the batch: in the loop as well, or they are synced in a thread while the loop goes on. Until then the
batch *leaves*, and later changes wait in the next one.

The disk begins with a large message before its batch is complete. While it is busy, the loop reads the next one, if
that has begun to come: the batch waits for it, but not long.

A write that was never synced may end torn when power fails; it was never confirmed. A synced write must be there at the
next start. RocksDB cannot tell the two apart: to it, a log that ends early ends there. So the file ``SYNCED`` holds the
sequence number of the last synced write. It is changed after each sync, in mapped memory, and not synced itself: a mark
that is too low, as after a power cut, only makes the check weaker; it is never too high. A system call instead would
cost a fifth of a disk sync, because it changes the file's time.

The file has 4096 bytes: the mark at 0, and at 512 the details that change once a second: the times of recent writes,
and the sizes of complete logs.
"""

import asyncio
import contextlib
import json
import mmap
import os
import struct
import time
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import structlog
from rocksdict import Rdict, WriteBatch, WriteOptions

from qmnode.allocator import total_filled
from qmnode.model.ports import Entry
from qmnode.model.traffic import Histogram
from qmnode.settings.node import StorageSettings
from qmnode.storage.errors import WHAT_TO_DO, StoreError
from qmnode.storage.express_messages import ExpressMemory
from qmnode.storage.large_messages import SMALLEST, LargeMessages
from qmnode.storage.layout import (
    DELAYED,
    DELAYED_KEY,
    DELAYED_MESSAGES,
    EXPIRY_KEY,
    FORMAT_VERSION,
    IDENTITY,
    IDENTITY_AGE_KEY,
    IDENTITY_KEY,
    LARGE_MESSAGES,
    MESSAGE_KEY,
    NAMED_DEAD_LETTERS,
    OPERATIONS,
    QUEUE_KEY,
    RETRY,
    RETRY_KEY,
    Family,
)

SYNCED_FILE: Final = "SYNCED"
SYNCED_SIZE: Final = 4096
DETAILS_AT: Final = 512
MARK: Final = struct.Struct("<QQQd")
"""Sequence number, its complement, messages, and time."""
COMPLEMENT: Final = (1 << 64) - 1
DETAILS: Final = struct.Struct("<II")
_INTERVAL: Final = 1.0
"""Seconds between two writes of the details."""
_HISTORY: Final = 48
_LOGS: Final = 40
_PATIENCE: Final = 0.002
"""Seconds that a batch of large messages waits at most for more of them. The disk needs about as long for 4 MB."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The position of the store at some time."""

    number: int
    """Sequence number of RocksDB: each record that is put or deleted has one."""
    messages: int
    """Recoverable messages stored up to then, since the file was created."""
    time: float


def logs_in(path: Path) -> dict[int, int]:
    """The write-ahead logs in a store's directory, with their sizes."""
    with os.scandir(path) as entries:
        return {
            int(entry.name[:-4]): entry.stat().st_size
            for entry in entries
            if entry.name.endswith(".log") and entry.name[:-4].isdigit()
        }


def write_synced(path: Path, number: int, messages: int) -> None:
    """Write the file for a copy of a store, whose logs are complete."""
    mark = MARK.pack(number, number ^ COMPLEMENT, messages, time.time())
    details = _pack_details([], logs_in(path), 0)
    with (path / SYNCED_FILE).open("wb") as file:
        file.write(mark.ljust(DETAILS_AT, b"\0") + details)
        file.flush()
        os.fsync(file.fileno())


def _pack_details(history: list[Moment], logs: dict[int, int], newest: int, *, closed: bool = True) -> bytes:
    kept = dict(sorted(logs.items())[-_LOGS:])
    moments = [(moment.number, moment.messages, round(moment.time, 1)) for moment in history]
    document: dict[str, Any] = {"history": moments, "logs": kept, "newest_log": newest, "closed": closed}
    text = json.dumps(document, separators=(",", ":")).encode()
    room = SYNCED_SIZE - DETAILS_AT - DETAILS.size
    if len(text) > room:
        text = b""
    return (DETAILS.pack(len(text), zlib.crc32(text)) + text).ljust(SYNCED_SIZE - DETAILS_AT, b"\0")


class SyncedMark:
    """Writes the file of an open store. Raises OSError if it cannot be created."""

    __slots__ = ("_details_at", "_file", "_history", "_map", "_number", "_path", "messages")

    def __init__(self, path: Path, number: int, messages: int) -> None:
        """Begin at the write that the store was recovered to."""
        self.messages = messages
        """The counter of stored messages, which the store increases."""
        self._path = path
        self._number = -1
        self._history: list[Moment] = []
        self._details_at = 0.0
        self._file = os.open(path / SYNCED_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(self._file).st_size != SYNCED_SIZE:
                os.ftruncate(self._file, 0)
                os.pwrite(self._file, bytes(SYNCED_SIZE), 0)  # reserve the mapped page's place on the disk
            self._map = mmap.mmap(self._file, SYNCED_SIZE)
            self.move(number)
            os.fsync(self._file)
        except BaseException:
            os.close(self._file)
            raise

    def move(self, number: int) -> None:
        """Record that all writes up to this one are synced."""
        if number <= self._number:
            return
        self._number = number
        now = time.time()
        MARK.pack_into(self._map, 0, number, number ^ COMPLEMENT, self.messages, now)
        if not 0 <= now - self._details_at < _INTERVAL:
            self._details_at = now
            self._write_details(Moment(number, self.messages, now))

    def _write_details(self, moment: Moment, *, closed: bool = False) -> None:
        history = self._history
        if len(history) >= _HISTORY:
            del history[1 : _HISTORY // 2 : 2]  # older entries are thinned out
        history.append(moment)
        with contextlib.suppress(OSError):  # the store detects disk errors itself
            logs = logs_in(self._path)
            newest = max(logs, default=0)
            logs.pop(newest, None)
            self._map[DETAILS_AT:] = _pack_details(history, logs, newest, closed=closed)

    def close(self, *, complete: bool = True) -> None:
        """Sync the file and close it. ``complete``: all writes are synced, which the file notes."""
        if self._map.closed:
            return
        if complete:
            self._write_details(Moment(self._number, self.messages, time.time()), closed=True)
        with contextlib.suppress(OSError):
            self._map.flush()
        self._map.close()
        os.close(self._file)


log = structlog.get_logger(__name__)

_DURATIONS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


def _nothing() -> None:
    pass


class Written(asyncio.Future[None]):
    """The future of a batch, shared by many waiters. Cancelling one of them cancels the future for none, not even for
    that one, which learns of it when the batch is on disk and its outcome is known.

    asyncio.shield would also protect the others, but at the price of a future for each.
    """

    begun = 0.0
    """When the first change of the batch was made, by the monotonic clock. Loops may count whole milliseconds."""
    ended = 0.0
    """When it was on disk, by the same clock; 0 before, and if it could not be written."""

    def cancel(self, msg: object = None) -> bool:
        return False


def _failure(error: BaseException) -> StoreError:
    if str(error).startswith("Corruption"):  # RocksDB's exceptions have no common class
        return StoreError(
            f"the message store is damaged ({error}); acknowledged messages in it may be missing: {WHAT_TO_DO}",
            damaged=True,
        )
    return StoreError(
        f"a write to the message store failed ({error}); nothing acknowledged is lost. "
        "Make room or repair the disk: the node then goes on by itself"
    )


class _Leaving(NamedTuple):
    """A batch that is written when its large messages are in their files."""

    batch: WriteBatch
    future: Written
    files: "Future[None]"
    free: list[int]


class Writer:
    """Collects the writes of a pass in ``batch`` (logged) and ``volatile`` (not logged), and writes them together."""

    __slots__ = (
        "_closed",
        "_database",
        "_dirty",
        "_executor",
        "_failure",
        "_free",
        "_future",
        "_large",
        "_leaving",
        "_logged",
        "_mark",
        "_messages",
        "_synced",
        "_syncing",
        "_unlogged",
        "_unsynced",
        "arrived",
        "batch",
        "before_write",
        "durations",
        "failed_since",
        "on_failure",
        "volatile",
        "volatile_used",
        "written",
    )

    def __init__(self, database: Rdict, in_thread: bool, mark: SyncedMark, messages: Any, large: LargeMessages) -> None:
        """``messages`` is the handle of the column family that ``arrived`` is for."""
        self._database = database
        self._mark = mark
        self._messages = messages
        self._large = large
        self._leaving: _Leaving | None = None
        self._free: list[int] = []
        """Files of large messages whose removal is written, and not synced yet."""
        self.written = 0
        """The sequence number of the last logged write. Unlogged writes have numbers too, which no recovery finds."""
        self.batch = WriteBatch(raw_mode=True)
        self.arrived: dict[bytes, bytes] = {}
        """Messages that the store does not have yet, by key: they join the batch when it is written."""
        self.volatile = WriteBatch(raw_mode=True)
        self.volatile_used = False
        self.durations = Histogram(_DURATIONS)
        """Durations from the first change of a batch until it is on disk."""
        self.before_write: Callable[[], None] = _nothing
        self._future: Written | None = None
        self.on_failure: Callable[[], None] = _nothing
        """Called once when a write or a sync has failed."""
        self._failure: StoreError | None = None
        self.failed_since = 0.0
        self._closed = False
        self._dirty = False
        """Whether data was written for reads to see that the end of the pass must sync."""
        self._synced = WriteOptions()
        self._synced.sync = True
        self._logged = WriteOptions()
        self._unlogged = WriteOptions()
        # A property, despite the library's type hints.
        self._unlogged.disable_wal = True  # type: ignore[assignment, method-assign]
        self._executor = ThreadPoolExecutor(1, "qmnode-sync") if in_thread else None
        # Thread mode only: futures of written batches that wait for the next sync, and whether a sync is running.
        self._unsynced: list[Written] = []
        self._syncing = False

    def durable(self) -> asyncio.Future[None]:
        """The future of the current batch, which is written at the end of the pass."""
        future = self._future
        if future is None:
            loop = asyncio.get_running_loop()
            future = self._future = Written(loop=loop)
            future.begun = time.monotonic()
            if self._failure is not None or self._closed:
                self._future = None
                future.set_exception(self._failure or StoreError("the store is closed"))
                future.exception()  # a failure without a waiter needs no warning
            else:
                loop.call_soon(self._linger, loop)
        return future

    def pending(self) -> asyncio.Future[None] | None:
        """The future of writes that are not on disk yet, or None."""
        if self._future is not None:
            return self._future
        if self._leaving is not None:
            return self._leaving.future
        return self._unsynced[-1] if self._unsynced else None

    @property
    def failure(self) -> StoreError | None:
        """The reason why nothing is written any longer, after a failed write."""
        return self._failure

    def check(self) -> None:
        """Raise if the store can no longer be written."""
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise StoreError("the store is closed")

    def _linger(self, loop: asyncio.AbstractEventLoop, busy: bool = False) -> None:
        """Let the loop look once more for what has come meanwhile: it shares the write. The disk begins with the large
        messages that have arrived; ``busy``: it has begun with others.
        """
        if self._failure is None and not self._closed:
            try:
                busy |= self._start_large()
            except Exception as error:
                self._fail(error)
        if busy:
            loop.call_soon(self._after_look, loop, total_filled())
        else:
            loop.call_soon(self._pass_over)

    def _after_look(self, loop: asyncio.AbstractEventLoop, filled: int) -> None:
        """Write, unless parts of a large message came while the disk is busy with another: look again, for a while."""
        future = self._future
        if future is not None and filled != total_filled() and time.monotonic() - future.begun < _PATIENCE:
            self._linger(loop, True)
        else:
            self._pass_over()

    def _start_large(self) -> bool:
        large = [key for key, value in self.arrived.items() if len(value) >= SMALLEST]
        for key in large:
            self._large.place(self.batch, key, self.arrived.pop(key))
        if large:
            self._large.start()
        return bool(large)

    def _pass_over(self) -> None:
        if self._future is None or self._leaving is not None:  # changes made while a batch leaves go with the next
            return
        if self._executor is not None:
            try:
                self._gather()
                if self._large.are_pending:
                    self._leave(self._future)
                    return
            except Exception as error:
                self._fail(error)
                return
        self._settle(self._executor is None)

    def _leave(self, future: Written) -> None:
        """Write the large messages of the batch, and sync them in a thread; the loop goes on meanwhile."""
        large = self._large.leave()
        leaving = self._leaving = _Leaving(self.batch, future, self._large.begin(large), large.free)
        self.batch, self._future = WriteBatch(raw_mode=True), None
        asyncio.wrap_future(leaving.files).add_done_callback(lambda done: self._left(leaving, done))

    def _left(self, leaving: _Leaving, done: "asyncio.Future[None]") -> None:
        if not done.cancelled():
            done.exception()  # seen below
        if self._leaving is leaving:
            self._end_leaving()
            self._sync_written()
        self._pass_over()  # changes made meanwhile, also if another caller has ended this

    def _end_leaving(self) -> None:
        """Write the batch that leaves, if any does, and wait for its large messages before that."""
        leaving, self._leaving = self._leaving, None
        if leaving is None:
            return
        try:
            leaving.files.result()
            self._database.write(leaving.batch, self._logged)
            self.written = self._database.latest_sequence_number()
        except Exception as error:
            self._fail(error, leaving.future)
            return
        self._large.arrived()
        self._free += leaving.free
        self._unsynced.append(leaving.future)

    def _release(self) -> None:
        """All that was written is synced."""
        if self._free:
            free, self._free = self._free, []
            self._large.release(free)

    def flush(self) -> None:
        """Write and sync now."""
        self.check()
        if self._leaving is not None:
            self._end_leaving()
            self.check()
        self._settle(True)
        self.check()

    def write_apart(self, key: bytes, value: bytes, family: Any) -> None:
        """Write and sync one record now, apart from the current batch, which may be half complete."""
        self.check()
        apart = WriteBatch(raw_mode=True)
        apart.put(key, value, family)
        del family
        try:
            self._database.write(apart, self._synced)
            self.written = self._database.latest_sequence_number()
        except Exception as error:
            self._fail(error)
            self.check()
        self._mark.move(self.written)

    def make_visible(self) -> None:
        """Write now, so that reads see it. The sync comes at the end of the pass, and its callers wait for that."""
        self.check()
        if self._leaving is not None:
            self._end_leaving()
            self.check()
            self._sync_written()
        try:
            written = self._write(self._logged)
        except Exception as error:
            self._fail(error)
            self.check()
        else:
            if written:
                self._dirty = True
                self.durable()

    def _gather(self) -> None:
        """Complete the batch, and hand the one that is not logged to RocksDB."""
        self.before_write()
        if self.volatile_used:
            volatile, self.volatile = self.volatile, WriteBatch(raw_mode=True)
            self.volatile_used = False
            self._database.write(volatile, self._unlogged)
        self.place_arrived()

    def _write(self, options: WriteOptions) -> bool:
        """Hand the batches to RocksDB. Return whether there was anything to log."""
        self._gather()
        batch = self.batch
        if not len(batch):
            return False
        self.batch = WriteBatch(raw_mode=True)
        has_large = self._large.changed
        if has_large:
            large = self._large.leave()
            self._large.write(large)
            self._free += large.free
        self._database.write(batch, options)
        self.written = self._database.latest_sequence_number()
        if has_large:
            self._large.arrived()
        return True

    def place_arrived(self) -> None:
        """Put new messages into the batch, for what comes after them in it."""
        if self.arrived:
            arrived, self.arrived = self.arrived, {}
            put, messages = self.batch.put, self._messages
            for key, value in arrived.items():
                if len(value) < SMALLEST:
                    put(key, value, messages)
                else:
                    self._large.place(self.batch, key, value)

    def _settle(self, sync: bool) -> None:
        """Write the batches and sync, here or in the thread, then wake the waiters."""
        future, self._future = self._future, None
        try:
            if not sync:
                self._dirty |= self._write(self._logged)
            elif not self._write(self._synced) and (self._dirty or self._unsynced):
                self._database.flush_wal(True)
        except Exception as error:
            self._fail(error, future)
            return
        if sync:
            if self.written:
                self._mark.move(self.written)
            self._release()
        if sync or not (self._dirty or self._unsynced):
            self._resolve([*self._unsynced, future] if self._unsynced else [future])
        elif future is not None:
            self._unsynced.append(future)
            self._start_sync()
        self._dirty = False

    def _resolve(self, futures: list[Written | None]) -> None:
        self._unsynced = []
        for future in futures:
            if future is not None and not future.done():
                self._synced_now(future)

    def _synced_now(self, future: Written) -> None:
        future.ended = time.monotonic()
        self.durations.observe(future.ended - future.begun)
        future.set_result(None)

    def fail(self, error: BaseException) -> None:
        """Stop writing, because the current batch is incomplete."""
        self._fail(error)

    def _fail(self, error: BaseException, *waiting: "asyncio.Future[None] | None") -> None:
        """Stop writing: memory is ahead of the disk, so the store has to be reopened. All who wait learn of it."""
        error.__traceback__ = None  # its frames hold the lock, as long as somebody keeps the failure
        first = self._failure is None
        self._failure = self._failure or _failure(error)
        self.failed_since = self.failed_since or time.time()
        self.batch = WriteBatch(raw_mode=True)
        self.arrived = {}
        self._large.give_up()
        unsynced, self._unsynced = self._unsynced, []
        leaving, self._leaving = self._leaving, None
        last, self._future = self._future, None
        for future in (*unsynced, leaving.future if leaving is not None else None, last, *waiting):
            if future is not None and not future.done():
                future.set_exception(self._failure)
                future.exception()
        if first:
            log.error("the message store failed", reason=str(error))
            self.on_failure()

    def _sync_written(self) -> None:
        if self._unsynced:
            self._start_sync()

    def _start_sync(self) -> None:
        if self._syncing or self._executor is None:
            return
        self._syncing = True
        covered, written = list(self._unsynced), self.written
        free, self._free = self._free, []
        loop = asyncio.get_running_loop()
        done = loop.run_in_executor(self._executor, self._database.flush_wal, True)
        done.add_done_callback(lambda result: self._sync_done(result, covered, written, free))

    def _sync_done(self, result: "asyncio.Future[None]", covered: list[Written], written: int, free: list[int]) -> None:
        self._syncing = False
        error = result.exception()
        if error is not None:
            self._fail(error)
        if self._failure is not None or self._closed:
            return
        if written:
            self._mark.move(written)
        self._large.release(free)
        for future in covered:
            if not future.done():
                self._synced_now(future)
        self._unsynced = [future for future in self._unsynced if not future.done()]
        if self._unsynced and not self._closed:
            self._start_sync()

    def close(self) -> None:
        """Write and sync pending changes; then refuse all calls."""
        if self._closed:
            return
        if self._failure is None:
            self._end_leaving()
        if self._failure is None:
            self._settle(True)
        self._closed = True
        if self._executor is not None:
            self._executor.shutdown(wait=True)
        self._large.close()
        del self._database, self._messages  # the lock on the directory is released with the last reference


class Writes:
    """Writes of the model into the current batch of an open store."""

    def __init__(self, database: Rdict, path: Path, settings: StorageSettings, mark: SyncedMark) -> None:
        self.path = path
        self.settings = settings
        self._handles: Mapping[Family, Any] = {family: database.get_column_family_handle(family) for family in Family}
        self._mark = mark
        self._messages = self._handles[Family.MESSAGES]
        self._large = LargeMessages(
            path,
            self._messages,
            self._handles[Family.META],
            database.get_column_family(Family.META),
            lambda: self._raise_format(LARGE_MESSAGES),
        )
        if settings.remote_copy.to:
            self._large.placed = deque()
        self._writer = Writer(database, settings.sync == "thread", mark, self._messages, self._large)
        self._express = self._handles[Family.EXPRESS]
        self._memory = ExpressMemory(settings.express_memory)
        self._format = FORMAT_VERSION
        self._spilled = False
        """Whether express messages have been written to the store for lack of memory."""
        self.durable = self._writer.durable
        self.pending = self._writer.pending
        self.check = self._writer.check
        self.flush = self._writer.flush
        self.make_visible = self._writer.make_visible
        self.fail = self._writer.fail

    @property
    def before_write(self) -> Callable[[], None]:
        """Called before every batch is written."""
        return self._writer.before_write

    @before_write.setter
    def before_write(self, callback: Callable[[], None]) -> None:
        self._writer.before_write = callback

    @property
    def write_durations(self) -> Histogram:
        """Durations from the first change of a batch until it is on disk."""
        return self._writer.durations

    @property
    def failure(self) -> StoreError | None:
        """The reason why nothing can be written any longer. Only reopening the store helps then."""
        return self._writer.failure

    def when_failed(self, callback: Callable[[], None]) -> None:
        """Set a callback that is called once when a write or a sync has failed."""
        self._writer.on_failure = callback

    def put(self, family: Family, key: bytes, value: bytes) -> None:
        """Write one record of any family in the current batch."""
        self._writer.batch.put(key, value, self._handles[family])

    def delete(self, family: Family, key: bytes) -> None:
        """Delete one record of any family in the current batch."""
        self._writer.batch.delete(key, self._handles[family])

    def delete_range(self, family: Family, first: bytes, end: bytes) -> None:
        """Delete the records of a family from ``first`` up to, but not including, ``end``."""
        self._writer.batch.delete_range(first, end, self._handles[family])

    def put_message(self, queue_id: int, lookup_identifier: int, value: bytes) -> None:
        """Store a recoverable message that the store does not have."""
        self._mark.messages += 1
        self._writer.arrived[MESSAGE_KEY.pack(queue_id, lookup_identifier)] = value

    def put_messages(self, queue_id: int, entries: Sequence[Entry]) -> None:
        """Store recoverable messages of one queue that the store does not have."""
        self._mark.messages += len(entries)
        arrived, pack = self._writer.arrived, MESSAGE_KEY.pack
        for lookup_identifier, value in entries:
            arrived[pack(queue_id, lookup_identifier)] = value

    def replace_message(self, queue_id: int, lookup_identifier: int, value: bytes) -> None:
        """Store another value of a recoverable message."""
        key, writer = MESSAGE_KEY.pack(queue_id, lookup_identifier), self._writer
        if key in writer.arrived:
            writer.arrived[key] = value
        elif len(value) < SMALLEST:
            writer.batch.put(key, value, self._messages)
        else:
            self._large.replace(writer.batch, key, value)

    def delete_message(self, queue_id: int, lookup_identifier: int, value: bytes) -> None:
        """Delete a recoverable message with this value. One that came in the same pass is not written at all."""
        key, writer = MESSAGE_KEY.pack(queue_id, lookup_identifier), self._writer
        if writer.arrived.pop(key, None) is not None:
            self._mark.messages -= 1
            return
        writer.batch.delete(key, self._messages)
        if len(value) >= SMALLEST:
            self._large.free(writer.batch, key)

    def delete_each(self, queue_id: int, entries: Sequence[Entry]) -> None:
        """Delete recoverable messages of one queue, which need not have been written yet."""
        writer, messages, pack = self._writer, self._messages, MESSAGE_KEY.pack
        arrived, delete = writer.arrived, writer.batch.delete
        if not arrived and max([len(value) for _, value in entries]) < SMALLEST:
            for lookup_identifier, _ in entries:
                delete(pack(queue_id, lookup_identifier), messages)
            return
        for lookup_identifier, value in entries:
            key = pack(queue_id, lookup_identifier)
            if arrived.pop(key, None) is not None:
                self._mark.messages -= 1
                continue
            delete(key, messages)
            if len(value) >= SMALLEST:
                self._large.free(writer.batch, key)

    def put_express(self, queue_id: int, lookup_identifier: int, value: bytes) -> None:
        """Store an express message: in memory, or outside the log."""
        if self._memory.put(queue_id, lookup_identifier, value):
            if self._spilled:  # a previous value may be there
                self._writer.volatile.delete(MESSAGE_KEY.pack(queue_id, lookup_identifier), self._express)
                self._writer.volatile_used = True
            return
        self._writer.volatile.put(MESSAGE_KEY.pack(queue_id, lookup_identifier), value, self._express)
        self._writer.volatile_used = True
        self._spilled = True

    def delete_express(self, queue_id: int, lookup_identifier: int) -> None:
        """Delete an express message."""
        if self._memory.delete(queue_id, lookup_identifier):
            return
        self._writer.volatile.delete(MESSAGE_KEY.pack(queue_id, lookup_identifier), self._express)
        self._writer.volatile_used = True

    def delete_messages(self, queue_id: int, first: int, stop: int) -> None:
        """Delete all messages of both kinds from ``first`` up to, but not including, ``stop``."""
        begin, end = MESSAGE_KEY.pack(queue_id, first), MESSAGE_KEY.pack(queue_id, stop)
        self._writer.place_arrived()
        self._writer.batch.delete_range(begin, end, self._messages)
        self._large.free_range(self._writer.batch, begin, end)
        self._memory.delete_range(queue_id, first, stop)
        if self._spilled:
            self._writer.volatile.delete_range(begin, end, self._express)
            self._writer.volatile_used = True

    def put_outgoing(self, queue_id: int, record: bytes) -> None:
        """Store an outgoing queue's place in its sequence."""
        self.put(Family.OUTGOING, QUEUE_KEY.pack(queue_id), record)

    def put_expiry(self, when: int, queue_id: int, lookup_identifier: int) -> None:
        """Add a message to the expiry index."""
        self.put(Family.EXPIRY, EXPIRY_KEY.pack(when, queue_id, lookup_identifier), b"")

    def delete_expiry(self, when: int, queue_id: int, lookup_identifier: int) -> None:
        """Delete a message from the expiry index."""
        self.delete(Family.EXPIRY, EXPIRY_KEY.pack(when, queue_id, lookup_identifier))

    def put_delayed(self, due: int, lookup_identifier: int) -> None:
        """Add a message to the index of delayed ones, by its delivery time in milliseconds since 1970."""
        self.put(Family.META, DELAYED_KEY.pack(DELAYED, due, lookup_identifier), b"")

    def delete_delayed(self, due: int, lookup_identifier: int) -> None:
        """Delete a message from the index of delayed ones."""
        self.delete(Family.META, DELAYED_KEY.pack(DELAYED, due, lookup_identifier))

    def put_identity(self, queue_id: int, digest: bytes, record: bytes) -> None:
        """Store a message id that a queue remembers, by its digest."""
        self.put(Family.META, IDENTITY_KEY.pack(IDENTITY, queue_id, 0, digest), record)

    def put_identity_age(self, queue_id: int, number: int, record: bytes) -> None:
        """Store the same by its number."""
        self.put(Family.META, IDENTITY_AGE_KEY.pack(IDENTITY, queue_id, 1, number), record)

    def delete_identity(self, queue_id: int, digest: bytes) -> None:
        """Delete a message id, by its digest."""
        self.delete(Family.META, IDENTITY_KEY.pack(IDENTITY, queue_id, 0, digest))

    def delete_identity_age(self, queue_id: int, number: int) -> None:
        """Delete the same by its number."""
        self.delete(Family.META, IDENTITY_AGE_KEY.pack(IDENTITY, queue_id, 1, number))

    def delete_identities(self, queue_id: int) -> None:
        """Delete all message ids that a queue remembers."""
        first, end = (IDENTITY + QUEUE_KEY.pack(number) for number in (queue_id, queue_id + 1))
        self.delete_range(Family.META, first, end)

    def put_try(self, queue_id: int, lookup_identifier: int, second: int) -> None:
        """Store when a message may be delivered again; 0 while it is being delivered."""
        self.put(Family.META, RETRY_KEY.pack(RETRY, queue_id, lookup_identifier), QUEUE_KEY.pack(second))

    def delete_try(self, queue_id: int, lookup_identifier: int) -> None:
        """Delete that record of a message."""
        self.delete(Family.META, RETRY_KEY.pack(RETRY, queue_id, lookup_identifier))

    def delete_tries(self, queue_id: int) -> None:
        """Delete those records of all messages of a queue."""
        first, end = (RETRY + QUEUE_KEY.pack(number) for number in (queue_id, queue_id + 1))
        self.delete_range(Family.META, first, end)

    def put_queue(self, queue_id: int, definition: bytes) -> None:
        """Store a queue's definition."""
        self.put(Family.QUEUES, QUEUE_KEY.pack(queue_id), definition)

    def delete_queue(self, queue_id: int) -> None:
        """Delete a queue's definition and counters."""
        self.delete(Family.QUEUES, QUEUE_KEY.pack(queue_id))
        self.delete(Family.COUNTERS, QUEUE_KEY.pack(queue_id))

    def put_counters(self, queue_id: int, counters: bytes) -> None:
        """Store a queue's counters."""
        self.put(Family.COUNTERS, QUEUE_KEY.pack(queue_id), counters)

    def delete_transaction(self, identifier: bytes) -> None:
        """Delete a prepared transaction."""
        self.delete(Family.TRANSACTIONS, identifier)

    def put_meta(self, name: str, value: bytes) -> None:
        """Store a fact about the node."""
        self.put(Family.META, name.encode(), value)

    def put_meta_apart(self, name: str, value: bytes) -> None:
        """Store a fact about the node now, synced, and leave the current batch as it is."""
        self._writer.write_apart(name.encode(), value, self._handles[Family.META])

    def named_dead_letters(self) -> None:
        """Raise the store's version before it stores a message with a dead-letter queue of its own, so that older
        programs refuse it.
        """
        self._raise_format(NAMED_DEAD_LETTERS)

    def operations_recorded(self) -> None:
        """Raise the store's version before it stores a job over messages, so that older programs refuse it."""
        self._raise_format(OPERATIONS)

    def delayed_messages(self) -> None:
        """Raise the store's version before it stores a message that waits for its delivery time, so that older programs
        refuse it.
        """
        self._raise_format(DELAYED_MESSAGES)

    def _raise_format(self, version: int) -> None:
        if self._format < version:
            self._format = version
            self.put_meta("format_version", QUEUE_KEY.pack(version))
