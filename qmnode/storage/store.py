"""A store on RocksDB: opening it, and the reads of the model. Its writes are in :mod:`qmnode.storage.writer`."""

import contextlib
import shutil
from collections.abc import Container, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import Any, Final, NoReturn, Self

import structlog
from rocksdict import (
    BlockBasedOptions,
    Cache,
    Checkpoint,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    ReadOptions,
)

from qmnode.model.administration import StorageCondition
from qmnode.model.ports import Entry
from qmnode.settings.node import StorageSettings
from qmnode.storage.disk_reserve import space
from qmnode.storage.errors import WHAT_TO_DO, StoreError
from qmnode.storage.large_messages import LargeMessages
from qmnode.storage.layout import (
    DELAYED,
    DELAYED_KEY,
    EXPIRY_KEY,
    FORMAT_VERSION,
    IDENTITY,
    IDENTITY_AGE_KEY,
    IDENTITY_KEY,
    MESSAGE_KEY,
    NEWEST_FORMAT,
    QUEUE_KEY,
    RETRY,
    RETRY_KEY,
    Family,
)
from qmnode.storage.lost_writes import (
    LOSSES,
    Loss,
    check_files,
    damaged_logs,
    examine,
    find_loss,
    first_needed_log,
    has_gap,
    moment,
    recent,
    sentences,
    up_to_damage,
    with_files,
    with_loss,
)
from qmnode.storage.origin import COPY_MARKER, SEQUENCE_TIME_STAMP, take_origin
from qmnode.storage.records import check_end, scan, unreadable
from qmnode.storage.writer import SyncedMark, Writes, write_synced

log = structlog.get_logger(__name__)

_SMALLEST_BUFFER: Final = 256 * 1024
_BUFFERS_OF_DISK: Final = 64
_LOGS_OF_DISK: Final = 16
"""A buffer, and all logs, have at most this part of the disk."""
ARCHIVE: Final = "archive"
"""The folder to which RocksDB moves logs that a copy elsewhere may still need."""
COPYING: Final = "COPYING"
"""The file that says which copy elsewhere has all of the log so far, or gets it."""
_FOR_EVER: Final = 100 * 365 * 86_400
_LAST_LOOKUP: Final = 0xFFFFFFFFFFFFFFFF


def _fitted(settings: StorageSettings, path: Path) -> StorageSettings:
    """The settings with less for the log and the buffers if the disk is small: they would fill it."""
    _, total = space(path)
    if not total:
        return settings
    changes = {
        "write_buffer": min(settings.write_buffer, max(_SMALLEST_BUFFER, total // _BUFFERS_OF_DISK)),
        "log_limit": min(settings.log_limit, max(4 * _SMALLEST_BUFFER, total // _LOGS_OF_DISK)),
    }
    return settings.model_copy(update=changes)


def _options(settings: StorageSettings, recovery: DBRecoveryMode) -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_wal_recovery_mode(recovery)
    options.set_max_total_wal_size(settings.log_limit)
    options.set_manifest_preallocation_size(_SMALLEST_BUFFER)
    if settings.remote_copy.to:
        options.set_wal_ttl_seconds(_FOR_EVER)
    options.set_max_background_jobs(2)
    options.set_keep_log_file_num(4)
    options.set_max_log_file_size(4 * _SMALLEST_BUFFER)
    options.set_max_open_files(512)
    return options


def _family_options(family: Family, settings: StorageSettings, cache: Cache) -> Options:
    options = Options(raw_mode=True)
    table = BlockBasedOptions()
    table.set_block_cache(cache)
    table.set_cache_index_and_filter_blocks(True)
    if family in (Family.MESSAGES, Family.EXPRESS):
        table.set_block_size(16 * 1024)
    options.set_block_based_table_factory(table)
    options.set_write_buffer_size(settings.write_buffer if family is Family.MESSAGES else 4 * 1024 * 1024)
    if family is Family.MESSAGES:  # two buffers leave together: a message that came and went in them is not written
        options.set_min_write_buffer_number_to_merge(2)
        options.set_max_write_buffer_number(3)
    options.set_compression_type(DBCompressionType.lz4())
    return options


def make_private(path: Path) -> None:
    """Make the directory of a new store accessible to its owner only, even if an administrator created it.

    The files in it have RocksDB's permissions, which allow everyone to read them. Later changes are kept. Raises
    StoreError.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (path / "CURRENT").exists():
            path.chmod(0o700)
    except OSError as error:
        raise StoreError(f"the directory {path} cannot be made private: {error.strerror}") from error


def _forget_copy(path: Path) -> None:
    """Without a copy elsewhere nobody needs its logs, and one that is set up again begins anew."""
    with contextlib.suppress(OSError):  # of a disk that fails: the next start forgets it
        (path / COPYING).unlink(missing_ok=True)
    shutil.rmtree(path / ARCHIVE, ignore_errors=True)


class Store(Writes):
    """An open store. Only one process may have it open at a time, except for copies and secondary readers."""

    def __init__(self, database: Rdict, path: Path, settings: StorageSettings, mark: SyncedMark) -> None:
        super().__init__(database, path, settings, mark)
        self._database = database
        self._families: Mapping[Family, Rdict] = {family: database.get_column_family(family) for family in Family}
        self.losses: list[Loss] = []
        """Recently found losses of synced writes."""

    @classmethod
    def open(cls, path: str | Path, settings: StorageSettings | None = None, *, resumes: bool = False) -> "Store":
        """Open the store in this directory, or create one. Raises StoreError if it is damaged, newer, or open
        elsewhere. ``resumes``: this process had it open, and knows that a write at the log's end failed.
        """
        settings = settings or StorageSettings()
        path = Path(path)
        make_private(path)
        settings = _fitted(settings, path)
        cache = Cache(settings.block_cache)
        families = {family.value: _family_options(family, settings, cache) for family in Family}
        try:
            before = examine(path)
            if resumes:
                before = replace(before, ends={})
            check_files(path, before)
            first_log = first_needed_log(path, before)
            try:
                if has_gap(before):
                    raise _GapError
                recovery = DBRecoveryMode.tolerate_corrupted_tail_records()
                database = Rdict(str(path), options=_options(settings, recovery), column_families=families)
            except Exception as error:
                if "Corrupt" not in str(error) or (after := up_to_damage(path, before)) is None:
                    raise
                before, recovery = after, DBRecoveryMode.point_in_time()
                database = Rdict(str(path), options=_options(settings, recovery), column_families=families)
            loss = find_loss(before, database.latest_sequence_number(), lambda: first_log)
            database.drop_column_family(Family.EXPRESS)
            database.create_column_family(Family.EXPRESS, _family_options(Family.EXPRESS, settings, cache))
            messages = before.synced.mark.messages - (loss.messages if loss is not None else 0) if before.synced else 0
            if before.synced is not None and not before.synced.closed and not resumes:
                log.warning(
                    "the node was not stopped: it was killed, or the machine lost power",
                    last_synced=moment(before.synced.mark.time),
                    what_may_be_missing="nothing, unless the disk lost writes that it had confirmed after this time",
                )
            mark = SyncedMark(path, database.latest_sequence_number(), messages)
            store = cls(database, path, settings, mark)
        except StoreError:
            raise
        except Exception as error:
            error.__traceback__ = database = None  # they hold the lock
            reason = str(error)
            if "lock" in reason.lower() and "Corrupt" not in reason:
                raise StoreError(
                    f"{path} is in use: stop the node that runs on it, or name another store (setting data)"
                ) from error
            if _is_full(error):
                reason = "No space left on device; make room, then start it again"
            elif any(word in reason for word in ("Corrupt", "No such file")):
                what = "; ".join([reason, *sentences(damaged_logs(path))])
                raise StoreError(
                    f"the message store {path} cannot be opened: {what}: {WHAT_TO_DO}", damaged=True
                ) from error
            raise StoreError(f"the message store {path} cannot be opened: {reason}") from error
        if not settings.remote_copy.to:
            _forget_copy(path)
        try:
            store._check_version()
            loss = with_files(loss, store._large.take_up(), recent(store.get_meta(LOSSES)))
            if loss is not None and loss.is_certain:
                log.error("the message store has lost what was synced", reason=loss.sentence)
            elif loss is not None:
                log.warning("the end of the log is damaged", reason=loss.sentence)
            if loss is not None:
                store.put_meta(LOSSES, with_loss(store.get_meta(LOSSES), loss))
                store.flush()
            take_origin(store, lost=loss is not None and loss.is_certain)
            store.losses = recent(store.get_meta(LOSSES))
        except BaseException:
            store.close()
            raise
        return store

    def _check_version(self) -> None:
        found = self.get_meta("format_version")
        if found is None:
            self.put_meta("format_version", QUEUE_KEY.pack(FORMAT_VERSION))
            self.flush()
            return
        version = QUEUE_KEY.unpack(found)[0]
        self._format = version
        if version > NEWEST_FORMAT:
            raise StoreError(
                f"the message store {self.path} has format {version}, and this program reads up to {NEWEST_FORMAT}: "
                "use the program that wrote it, or a newer one"
            )

    def condition(self) -> StorageCondition:
        """The condition of the store, and of the disk under it."""
        free, total = space(self.path)
        failure = self._writer.failure
        lost = sum(max(1, loss.writes) for loss in self.losses if loss.is_certain)
        sentence = failure.sentence if failure is not None else ""
        return StorageCondition(sentence, free, total, lost, self._writer.failed_since)

    def reclaim(self) -> None:
        """Have RocksDB free the room of removed records; may run in a thread."""
        try:
            for family in self._families.values():
                family.flush()
            self._families[Family.MESSAGES].compact_range(None, None)
        except Exception as error:  # as in open
            log.warning("no room is freed in the message store", reason=str(error))

    # Reads of flushed writes

    def get_outgoing(self, queue_id: int) -> bytes | None:
        """An outgoing queue's place in its sequence."""
        return self.get(Family.OUTGOING, QUEUE_KEY.pack(queue_id))

    @property
    def sequence_time_stamp(self) -> int:
        """The lowest time stamp that a new outgoing sequence may have."""
        return int.from_bytes(self.get_meta(SEQUENCE_TIME_STAMP) or b"", "big")

    def get(self, family: Family, key: bytes) -> bytes | None:
        """One record of a family."""
        try:
            value: bytes | None = self._families[family].get(key)
        except Exception as error:
            raise unreadable(error) from error
        return value

    def scan(self, family: Family, first: bytes, end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Records from ``first`` up to, but not including, ``end``, in the order of their keys."""
        return scan(self._families[family], first, end)

    def get_identity(self, queue_id: int, digest: bytes) -> bytes | None:
        """The record of a message id, by its digest."""
        return self.get(Family.META, IDENTITY_KEY.pack(IDENTITY, queue_id, 0, digest))

    def get_identity_age(self, queue_id: int, number: int) -> bytes | None:
        """The record of a message id, by its number."""
        return self.get(Family.META, IDENTITY_AGE_KEY.pack(IDENTITY, queue_id, 1, number))

    def identity_ages(self, queue_id: int) -> tuple[int, int]:
        """The first and the last number of the message ids of a queue; (0, -1) without any."""
        first, end = (IDENTITY_AGE_KEY.pack(IDENTITY, queue_id, 1, number) for number in (0, _LAST_LOOKUP))
        key = next((key for key, _ in self.scan(Family.META, first, end)), None)
        if key is None:
            return 0, -1
        iterator = self._families[Family.META].iter()
        iterator.seek_for_prev(end)
        last = iterator.key() if iterator.valid() else key
        return IDENTITY_AGE_KEY.unpack(key)[-1], IDENTITY_AGE_KEY.unpack(last)[-1]

    def get_message(self, queue_id: int, lookup_identifier: int) -> bytes | None:
        """The value of a message of either kind."""
        value = self._memory.get(queue_id, lookup_identifier)
        if value is not None:
            return value
        key = MESSAGE_KEY.pack(queue_id, lookup_identifier)
        value = self.get(Family.MESSAGES, key)
        return self.get(Family.EXPRESS, key) if value is None else self._large.value(key, value)

    def read_messages(self, queue_id: int, first: int, last: int, limit: int, size: int, express: bool) -> list[Entry]:
        """Messages from ``first`` to ``last``, until ``limit`` messages or ``size`` bytes."""
        entries = self._forward(Family.MESSAGES, queue_id, first, last, limit, size)
        if not express:
            return entries
        parts = [entries, self._memory.read(queue_id, first, last, limit, size)]
        if self._spilled:
            parts.append(self._forward(Family.EXPRESS, queue_id, first, last, limit, size))
        parts = [part for part in parts if part]
        if len(parts) < 2:
            return parts[0] if parts else []
        # Of truncated lists, only the part before every cut is complete.
        ends = [part[-1][0] for part in parts if _is_cut(part, limit, size)]
        until = min(ends, default=_LAST_LOOKUP)
        return [entry for entry in merge(*parts) if entry[0] <= until]

    def _forward(self, family: Family, queue_id: int, first: int, last: int, limit: int, size: int) -> list[Entry]:
        end = MESSAGE_KEY.pack(queue_id, last)
        # Without a bound, finding the end of this queue would mean searching through deleted messages of the next.
        bound = ReadOptions()
        bound.set_iterate_upper_bound(end + b"\0")
        iterator = self._families[family].iter(bound)
        iterator.seek(MESSAGE_KEY.pack(queue_id, first))
        unpack = int.from_bytes
        entries: list[Entry] = []
        while iterator.valid():
            key = iterator.key()
            if key > end:
                break
            value = self._large.value(key, iterator.value())
            entries.append((unpack(key[4:], "big"), value))
            size -= len(value)
            if len(entries) >= limit or size <= 0:
                break
            iterator.next()
        else:
            check_end(iterator)
        return entries

    def first_beginning(self, queue_id: int, first: int, last: int, size: int, express: bool) -> bytes | None:
        """The first ``size`` bytes of the value of the first message from ``first`` to ``last`` that is written."""
        found: list[tuple[bytes, bytes]] = []
        for family in (Family.MESSAGES, Family.EXPRESS) if express and self._spilled else (Family.MESSAGES,):
            bound = ReadOptions()
            bound.set_iterate_upper_bound(MESSAGE_KEY.pack(queue_id, last) + b"\0")
            iterator = self._families[family].iter(bound)
            iterator.seek(MESSAGE_KEY.pack(queue_id, first))
            if iterator.valid():
                found.append((iterator.key(), iterator.value()))
        if express:
            found += [
                (MESSAGE_KEY.pack(queue_id, place), value)
                for place, value in self._memory.read(queue_id, first, last, 1, 1)
            ]
        return self._large.beginning(*min(found), size) if found else None

    def end_of_run(self, queue_id: int, first: int, last: int, members: Container[int]) -> int:
        """The last of the recoverable messages from ``first`` on that follow each other and are all ``members``;
        ``first - 1`` if the next one is none. No value is read.
        """
        bound = ReadOptions()
        bound.set_iterate_upper_bound(MESSAGE_KEY.pack(queue_id, last) + b"\0")
        iterator = self._families[Family.MESSAGES].iter(bound)
        iterator.seek(MESSAGE_KEY.pack(queue_id, first))
        end, unpack = first - 1, int.from_bytes
        while iterator.valid() and (found := unpack(iterator.key()[4:], "big")) in members:
            end = found
            iterator.next()
        check_end(iterator)
        return end

    def read_backwards(self, queue_id: int, last: int, first: int, limit: int, express: bool) -> list[Entry]:
        """Messages from ``last`` down to ``first``."""
        parts = [self._backward(Family.MESSAGES, queue_id, last, first, limit)]
        if express:
            parts.append(self._memory.read_backwards(queue_id, last, first, limit))
            if self._spilled:
                parts.append(self._backward(Family.EXPRESS, queue_id, last, first, limit))
        return list(islice(merge(*parts, reverse=True), limit))

    def _backward(self, family: Family, queue_id: int, last: int, first: int, limit: int) -> list[Entry]:
        iterator = self._families[family].iter()
        iterator.seek_for_prev(MESSAGE_KEY.pack(queue_id, last))
        begin = MESSAGE_KEY.pack(queue_id, first)
        entries: list[Entry] = []
        while iterator.valid() and len(entries) < limit:
            key = iterator.key()
            if key < begin:
                break
            entries.append((int.from_bytes(key[4:], "big"), self._large.value(key, iterator.value())))
            iterator.prev()
        else:
            check_end(iterator)
        return entries

    def read_expiry(self, first: tuple[int, int, int], last: int, limit: int) -> list[tuple[int, int, int]]:
        """Expiry entries from ``first`` to the second ``last``."""
        records = self.scan(Family.EXPIRY, EXPIRY_KEY.pack(*first), EXPIRY_KEY.pack(last, 0xFFFFFFFF, _LAST_LOOKUP))
        return [EXPIRY_KEY.unpack(key) for key, _ in islice(records, limit)]

    def read_tries(self) -> list[tuple[int, int, int]]:
        """When messages may be delivered again: queue, lookup identifier and second."""
        first, end = RETRY_KEY.pack(RETRY, 0, 0), RETRY_KEY.pack(RETRY, 0xFFFFFFFF, _LAST_LOOKUP)
        records = self.scan(Family.META, first, end)
        return [(*RETRY_KEY.unpack(key)[1:], *QUEUE_KEY.unpack(value)) for key, value in records]

    def read_delayed(self, first: tuple[int, int], last: int, limit: int) -> list[tuple[int, int]]:
        """Entries of the index of delayed messages from ``first`` to the millisecond ``last``."""
        begin, end = DELAYED_KEY.pack(DELAYED, *first), DELAYED_KEY.pack(DELAYED, last, _LAST_LOOKUP)
        bound = ReadOptions()  # or else the end is sought among deleted records of other kinds
        bound.set_iterate_upper_bound(end)
        iterator = self._families[Family.META].iter(bound)
        iterator.seek(begin)
        entries: list[tuple[int, int]] = []
        while iterator.valid():
            _, due, lookup_identifier = DELAYED_KEY.unpack(iterator.key())
            entries.append((due, lookup_identifier))
            if len(entries) >= limit:
                return entries
            iterator.next()
        check_end(iterator)
        return entries

    def read_queues(self) -> list[tuple[int, bytes]]:
        """The definitions of all queues."""
        return [(QUEUE_KEY.unpack(key)[0], value) for key, value in self.scan(Family.QUEUES, b"")]

    def read_counters(self) -> dict[int, bytes]:
        """The counters of all queues."""
        return {QUEUE_KEY.unpack(key)[0]: value for key, value in self.scan(Family.COUNTERS, b"")}

    def read_transactions(self) -> list[tuple[bytes, bytes]]:
        """The records of all prepared transactions."""
        return list(self.scan(Family.TRANSACTIONS, b""))

    def get_meta(self, name: str) -> bytes | None:
        """A fact about the node, by name."""
        return self.get(Family.META, name.encode())

    # Opening and closing

    @property
    def large_messages(self) -> LargeMessages:
        """The files of large messages, for a copy elsewhere."""
        return self._large

    def keep_large_messages(self) -> AbstractContextManager[None]:
        """While a checkpoint is written, the files of large messages stay, although their messages go."""
        return self._large.kept()

    def write_checkpoint(self, path: str | Path) -> None:
        """Write a checkpoint of the flushed data; may run in a thread, while large messages are kept."""
        number = self._writer.written
        Checkpoint(self._database).create_checkpoint(str(path))
        self._large.copy_to(Path(path))
        if isinstance(self._handles, _Closed):  # and files were not kept any longer
            raise StoreError("the message store was closed meanwhile")
        write_synced(Path(path), number, self._mark.messages)
        (Path(path) / COPY_MARKER).touch()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Write pending changes and close. Closing again does nothing.

        The lock on the directory is released with the last reference to the database; families and their handles hold
        one.
        """
        if isinstance(self._handles, _Closed):
            return
        failed = self._writer.failure is not None
        self._writer.close()
        errors = [error for part in (*self._families.values(), self._database) if (error := _close(part)) is not None]
        failed |= self._writer.failure is not None
        self._families = self._handles = _Closed()
        self._messages = self._express = None
        del self._database
        self._mark.close(complete=not failed and not errors)
        # A store that failed earlier has notified its users; one that fails only now has not.
        if errors and not failed:
            raise StoreError(f"the message store could not be closed: {errors[0]}") from errors[0]


class _GapError(Exception):
    """A log that ends too early is followed by another."""

    def __init__(self) -> None:
        super().__init__("Corruption: a log ends before the next one begins")


class _Closed(dict[Family, Any]):
    """The families of a store that is closed."""

    def __missing__(self, family: Family) -> NoReturn:
        raise StoreError("the message store is closed")


def _close(part: Rdict) -> Exception | None:
    try:
        part.close()
    except Exception as error:  # RocksDB's exceptions have no common class
        return error.with_traceback(None)  # its frames hold the lock
    return None


def _is_full(error: Exception) -> bool:
    return "No space left on device" in str(error)  # RocksDB has no error numbers


def _is_cut(entries: list[Entry], limit: int, size: int) -> bool:
    return len(entries) >= limit or sum(len(value) for _, value in entries) >= size
