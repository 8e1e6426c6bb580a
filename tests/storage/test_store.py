"""The store: what survives, what is refused, and what is said about it."""

import asyncio
import gc
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from qmnode import QueueManager
from qmnode.model.transaction import Transaction
from qmnode.settings.node import StorageSettings
from qmnode.storage.errors import StoreError
from qmnode.storage.layout import NEWEST_FORMAT, QUEUE_KEY, Family
from qmnode.storage.origin import IDENTIFIER_JUMP, IDENTIFIERS
from qmnode.storage.store import Store

VALUE = b"v" * 100


def crash_copy(path: Path, *, cut: int = 0) -> Path:
    """The files as they are, perhaps with the end of the log torn off."""
    copy = path.with_name(path.name + "-crashed")
    shutil.copytree(path, copy, ignore=shutil.ignore_patterns("LOCK"))
    if cut:
        log = max((file for file in copy.glob("*.log") if file.stat().st_size), key=lambda file: file.name)
        with log.open("r+b") as stream:
            stream.truncate(log.stat().st_size - cut)
    return copy


def numbers(store: Store, queue: int = 64) -> list[int]:
    return [lookup for lookup, _ in store.read_messages(queue, 0, 1 << 60, 1000, 1 << 30, express=True)]


@pytest.mark.parametrize("sync", ["inline", "thread"])
async def test_what_was_durable_is_there_after_a_crash_and_express_is_not(path, sync):
    store = Store.open(path, StorageSettings(sync=sync))
    store.put_message(64, 1, VALUE)
    store.put_express(64, 2, VALUE)
    await store.durable()
    assert numbers(store) == [1, 2]
    with Store.open(crash_copy(path)) as copy:
        assert numbers(copy) == [1]
    store.close()
    with Store.open(path) as again:
        assert numbers(again) == [1]


@pytest.mark.parametrize("sync", ["inline", "thread"])
async def test_everyone_who_writes_in_a_pass_waits_for_one_write(path, sync):
    with Store.open(path, StorageSettings(sync=sync)) as store:

        async def write(number):
            store.put_message(64, number, VALUE)
            future = store.durable()
            await future
            return future

        futures = await asyncio.gather(*(write(number) for number in range(50)))
        assert len({id(future) for future in futures}) == 1
        assert store.pending() is None
        assert numbers(store) == list(range(50))


async def test_one_waiter_that_is_cancelled_does_not_cancel_the_others(path):
    with Store.open(path) as store:
        store.put_message(64, 1, VALUE)

        async def wait():
            await store.durable()

        tasks = [asyncio.create_task(wait()) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [type(None), asyncio.CancelledError, type(None)]
        assert numbers(store) == [1]


async def test_a_torn_end_of_the_log_loses_only_what_was_not_finished(path):
    store = Store.open(path)
    store.put_message(64, 1, VALUE)
    await store.durable()
    store.put_message(64, 2, VALUE)
    await store.durable()
    torn = crash_copy(path, cut=7)
    store.close()
    with Store.open(torn) as copy:
        assert numbers(copy) == [1]


def test_damage_in_the_middle_of_the_log_is_told_and_not_skipped(path):
    store = Store.open(path)
    for number in range(2000):
        store.put_message(64, number, VALUE)
        if number % 100 == 0:
            store.flush()
    store.flush()
    copy = crash_copy(path)
    store.close()
    log = max(copy.glob("*.log"), key=lambda file: file.stat().st_size)
    with log.open("r+b") as stream:
        stream.seek(log.stat().st_size // 3)
        stream.write(b"\xff" * 64)
    with pytest.raises(StoreError, match="cannot be opened"):
        Store.open(copy)


def test_a_newer_store_is_refused_with_a_sentence_that_says_what_to_do(path):
    with Store.open(path) as store:
        store.put(Family.META, b"format_version", QUEUE_KEY.pack(NEWEST_FORMAT + 1))
        store.flush()
    with pytest.raises(StoreError, match="use the program that wrote it"):
        Store.open(path)


def test_a_store_that_is_open_elsewhere_is_refused(path):
    with Store.open(path), pytest.raises(StoreError, match="is in use"):
        Store.open(path)
    Store.open(path).close()


@contextmanager
def no_room(path: Path) -> Iterator[None]:
    """Meanwhile the log of the store cannot grow. What pytest captures is shorter, and can."""
    size = max(file.stat().st_size for file in path.glob("*.log"))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What is freed is freed because nobody has it any longer."""
    gc.disable()
    yield
    gc.enable()


def test_a_store_that_could_not_be_written_opens_again_while_its_error_is_kept(path: Path, no_collector: None) -> None:
    store = Store.open(path)
    store.put_meta("much", bytes(2 << 20))
    store.flush()
    with no_room(path), pytest.raises(StoreError) as kept:
        store.put_meta_apart("more", bytes(100))
    store.close()
    Store.open(path).close()
    assert "File too large" in str(kept.value)


async def test_a_queue_manager_closes_its_store_although_nothing_else_ends_well(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise StoreError("a write to the message store failed")

    qm = await QueueManager.open(path)
    qm.transaction()
    monkeypatch.setattr(Transaction, "transaction_abort", fails)
    with pytest.raises(StoreError, match="failed"):
        await qm.close()
    await (await QueueManager.open(path)).close()


def identifier(store: Store) -> int:
    return int.from_bytes(store.get_meta(IDENTIFIERS) or b"", "big")


@pytest.mark.parametrize("how", ["checkpoint", "copied files"])
def test_a_copy_of_a_store_gives_out_no_identifier_and_no_sequence_again(path, how):
    with Store.open(path) as store:
        store.put_meta(IDENTIFIERS, (5000).to_bytes(8, "big"))
        store.flush()
        stamp = store.sequence_time_stamp
        copy = path.with_name("copy")
        if how == "checkpoint":
            store.write_checkpoint(copy)
    if how == "copied files":
        shutil.copytree(path, copy)
    with Store.open(path) as store:
        assert (identifier(store), store.sequence_time_stamp) == (5000, stamp)
    with Store.open(copy) as store:
        jumped = 5000 + IDENTIFIER_JUMP
        assert identifier(store) == jumped
        assert store.sequence_time_stamp > stamp
    with Store.open(copy) as store:
        assert identifier(store) == jumped


def test_a_checkpoint_is_the_store_at_one_moment(path):
    with Store.open(path) as store:
        store.put_message(64, 1, VALUE)
        store.flush()
        store.write_checkpoint(path.with_name("copy"))
        store.put_message(64, 2, VALUE)
        store.flush()
    with Store.open(path.with_name("copy")) as copy:
        assert numbers(copy) == [1]


class _BrokenDatabase:
    """Stands in for a disk that has become full."""

    def __init__(self, database):
        self._database = database

    def latest_sequence_number(self):
        return self._database.latest_sequence_number()

    def write(self, batch, options):
        raise OSError("No space left on device")

    def flush_wal(self, sync):
        raise OSError("No space left on device")


async def test_after_a_failed_write_everyone_is_told_and_nothing_more_is_written(path):
    store = Store.open(path)
    store.put_message(64, 1, VALUE)
    await store.durable()
    store._writer._database = _BrokenDatabase(store._database)
    store.put_message(64, 2, VALUE)
    waiting = [store.durable() for _ in range(3)]
    for future in waiting:
        with pytest.raises(StoreError, match="No space left on device"):
            await future
    store.put_message(64, 3, VALUE)
    with pytest.raises(StoreError, match="goes on by itself"):
        await store.durable()
    for refused in (store.flush, store.make_visible, store.check):
        with pytest.raises(StoreError):
            refused()
    store.close()
    with Store.open(path) as again:
        assert numbers(again) == [1]


async def test_a_failed_sync_in_the_thread_is_told_to_everyone_too(path):
    store = Store.open(path, StorageSettings(sync="thread"))

    class NoSync(_BrokenDatabase):
        def write(self, batch, options):
            self._database.write(batch, options)

    store._writer._database = NoSync(store._database)
    store.put_message(64, 2, VALUE)
    with pytest.raises(StoreError, match="No space left"):
        await store.durable()
    with pytest.raises(StoreError):
        store.check()
    store.close()


@pytest.mark.parametrize("memory", [1 << 20, 20 * len(VALUE), 0])
async def test_reads_of_both_kinds_of_messages_are_merged_and_complete(path, memory):
    with Store.open(
        path, StorageSettings.model_construct(**{**dict(StorageSettings()), "express_memory": memory})
    ) as store:
        for number in range(100):
            (store.put_express if number % 3 else store.put_message)(64, number, VALUE)
        store.put_message(65, 1, VALUE)
        store.make_visible()
        for limit in (1, 5, 50, 1000):
            first, found = 0, []
            while entries := store.read_messages(64, first, 1 << 60, limit, 1 << 30, express=True):
                found += [lookup for lookup, _ in entries]
                first = found[-1] + 1
            assert found == list(range(100))
        backwards = [lookup for lookup, _ in store.read_backwards(64, 1 << 60, 0, 1000, express=True)]
        assert backwards == list(range(99, -1, -1))
        assert [lookup for lookup, _ in store.read_messages(64, 0, 1 << 60, 1000, 250, express=False)] == [0, 3, 6]


async def test_an_express_message_that_is_replaced_is_there_once(path):
    with Store.open(path) as store:
        store._memory.limit = 2 * len(VALUE)
        for number in range(4):
            store.put_express(64, number, VALUE)
        store.delete_express(64, 0)
        store.put_express(64, 2, b"new")
        store.put_express(64, 1, VALUE + VALUE)
        store.make_visible()
        entries = store.read_messages(64, 0, 9, 1000, 1 << 20, express=True)
        assert entries == [(1, VALUE + VALUE), (2, b"new"), (3, VALUE)]
        assert [store.get_message(64, number) for number in range(4)] == [None, VALUE + VALUE, b"new", VALUE]


class _Recorder:
    """Notes what is asked of the database."""

    def __init__(self, database):
        self._database = database
        self.calls = []

    def latest_sequence_number(self):
        return self._database.latest_sequence_number()

    def write(self, batch, options):
        self.calls.append("synced write" if options.sync else "unlogged write" if options.disable_wal else "write")
        self._database.write(batch, options)

    def flush_wal(self, sync):
        self.calls.append("sync")
        self._database.flush_wal(sync)


@pytest.fixture
def recorded(path):
    with Store.open(path) as store:
        recorder = store._writer._database = _Recorder(store._database)
        yield store, recorder.calls
        store._writer._database = store._database


async def test_a_pass_is_one_synced_write(recorded):
    store, calls = recorded
    store.put_message(64, 1, VALUE)
    store.put_message(64, 2, VALUE)
    await store.durable()
    assert calls == ["synced write"]


async def test_express_messages_are_not_written(recorded):
    store, calls = recorded
    store.put_express(64, 1, VALUE)
    await store.durable()
    assert calls == []


async def test_express_messages_for_which_memory_has_no_room_are_not_synced(recorded):
    store, calls = recorded
    store._memory.limit = len(VALUE)
    store.put_express(64, 1, VALUE)
    store.put_express(64, 2, VALUE)
    await store.durable()
    assert calls == ["unlogged write"]


async def test_what_was_written_for_a_read_is_synced_before_anyone_is_told(recorded):
    store, calls = recorded
    store.put_message(64, 1, VALUE)
    future = store.durable()
    store.make_visible()
    assert calls == ["write"]
    assert not future.done()
    await future
    assert calls == ["write", "sync"]


async def test_a_later_write_of_the_pass_syncs_what_was_written_before(recorded):
    store, calls = recorded
    store.put_message(64, 1, VALUE)
    store.make_visible()
    store.put_message(64, 2, VALUE)
    assert store.pending() is not None
    await store.durable()
    assert calls == ["write", "synced write"]


async def test_a_flush_syncs_everything_at_once(recorded):
    store, calls = recorded
    store.put_message(64, 1, VALUE)
    store.make_visible()
    store.flush()
    assert calls == ["write", "sync"]
    assert store.pending() is None
    await asyncio.sleep(0)
    assert calls == ["write", "sync"]


async def test_a_message_that_is_received_in_the_pass_of_its_arrival_is_never_written(path):
    with Store.open(path) as store:
        store.put_message(64, 1, bytes(100_000))
        store.put_message(64, 2, VALUE)
        store.delete_message(64, 1, VALUE)
        await store.durable()
        assert numbers(store) == [2]
        assert sum(log.stat().st_size for log in path.glob("*.log")) < 50_000


async def test_what_happens_to_a_message_in_one_pass_counts_in_its_order(path):
    changed = b"w" * 50
    with Store.open(path) as store:
        for number in (1, 2, 3):
            store.put_message(64, number, VALUE)
        await store.durable()

        store.replace_message(64, 1, changed)  # on disk, then changed, then deleted
        store.delete_message(64, 1, VALUE)
        store.delete_message(64, 2, VALUE)  # deleted, put back
        store.put_message(64, 2, changed)
        store.delete_message(64, 3, VALUE)  # deleted, put back, deleted again
        store.put_message(64, 3, changed)
        store.delete_message(64, 3, VALUE)
        store.put_message(64, 4, VALUE)  # new, then changed
        store.replace_message(64, 4, changed)
        store.put_message(64, 5, VALUE)  # new, then in a range that is deleted, then new once more
        store.delete_messages(64, 5, 6)
        store.put_message(64, 6, VALUE)
        await store.durable()
        assert store.read_messages(64, 0, 100, 100, 1 << 20, express=False) == [(2, changed), (4, changed), (6, VALUE)]
    with Store.open(path) as again:
        assert numbers(again) == [2, 4, 6]


@pytest.mark.parametrize("sync", ["inline", "thread"])
async def test_what_comes_while_the_loop_looks_once_more_shares_the_write(path, sync):
    with Store.open(path, StorageSettings(sync=sync)) as store:
        store.put_message(64, 1, VALUE)
        first = store.durable()
        await asyncio.sleep(0)
        store.put_message(64, 2, VALUE)
        assert store.durable() is first
        await first
        assert numbers(store) == [1, 2]
