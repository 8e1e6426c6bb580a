"""Files of large messages are written and synced before their batch, in the loop or in a thread, and few are open."""

import asyncio
import os
import threading
from pathlib import Path
from typing import Literal

import pytest

from qmnode.allocator import filled
from qmnode.settings.node import StorageSettings
from qmnode.storage import large_messages
from qmnode.storage.errors import StoreError
from qmnode.storage.large_messages import FOLDER
from qmnode.storage.store import Store
from tests.storage.large_messages import (
    QUEUE,
    SYNC,
    files,
    open_files,
    put,
    stored,
    value,
)


@pytest.mark.parametrize("sync", SYNC)
async def test_a_file_that_cannot_be_written_fails_the_store_and_loses_nothing(
    path: Path, sync: Literal["inline", "thread"], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(path, StorageSettings(sync=sync))
    put(store, 1)
    failed: list[bool] = []
    store.when_failed(lambda: failed.append(True))

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    store.put_message(QUEUE, 2, value(2))
    store.delete_message(QUEUE, 1, value(1))
    waiting = [store.durable(), store.durable()]
    for one in waiting:
        with pytest.raises(StoreError, match=r"No space left on device.*Make room"):
            await one
    assert failed == [True]
    with pytest.raises(StoreError):
        store.check()
    monkeypatch.undo()
    store.close()
    with Store.open(path) as store:
        assert stored(store) == {1: value(1)}


async def test_what_comes_while_files_are_synced_goes_with_the_next_batch_in_its_order(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``sync: thread`` the loop goes on meanwhile."""
    with Store.open(path, StorageSettings(sync="thread")) as store:
        done: list[str] = []
        real = os.fdatasync

        def slow(file: int) -> None:
            os.sched_yield()
            real(file)

        monkeypatch.setattr(os, "fdatasync", slow)
        store.put_message(QUEUE, 1, value(1))
        first = store.durable()
        first.add_done_callback(lambda _: done.append("large"))
        while store._writer._leaving is None:
            await asyncio.sleep(0)
        store.put_message(QUEUE, 2, value(2, 100))
        store.delete_message(QUEUE, 1, value(1))
        second = store.durable()
        second.add_done_callback(lambda _: done.append("small"))
        assert second is not first and store.pending() is second
        await second
        assert done == ["large", "small"]
        assert stored(store) == {2: value(2, 100)}
        store.put_message(QUEUE, 3, value(3))
        third = store.durable()
        while store._writer._leaving is None:
            await asyncio.sleep(0)
        assert store.pending() is third
        store.put_message(QUEUE, 4, value(4))
        store.make_visible()  # waits for the files
        assert stored(store) == {2: value(2, 100), 3: value(3), 4: value(4)}
        await asyncio.gather(third, store.durable())


@pytest.mark.parametrize("sync", SYNC)
@pytest.mark.parametrize("ends", ["stays", "received", "replaced", "range"])
async def test_the_disk_begins_with_a_large_message_before_its_batch_is_written(
    path: Path, sync: Literal["inline", "thread"], ends: str
) -> None:
    left = value(1)[:2] + b"\x07" + value(1)[3:]
    with Store.open(path, StorageSettings(sync=sync)) as store:
        store.put_message(QUEUE, 1, value(1))
        written = store.durable()
        await asyncio.sleep(0)
        (file,) = (path / FOLDER).iterdir()
        assert file.read_bytes().endswith(value(1)) and not written.done()
        match ends:
            case "received":
                store.delete_message(QUEUE, 1, value(1))
            case "replaced":
                store.replace_message(QUEUE, 1, left)
            case "range":
                store.delete_messages(QUEUE, 0, 9)
        assert store.durable() is written
        await written
        expected = {"stays": {1: value(1)}, "replaced": {1: left}}.get(ends, {})
        assert stored(store) == expected
        put(store, 2)
        assert len(files(path)) == 1 + (ends in ("stays", "replaced"))
    with Store.open(path) as store:
        assert stored(store) == expected | {2: value(2)} and store.losses == []


async def test_a_large_message_shares_the_sync_of_the_one_that_is_read_meanwhile(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qmnode.storage.writer._PATIENCE", 60.0)
    store.put_message(QUEUE, 1, value(1))
    written = store.durable()
    for _ in range(3):
        filled(1)
        await asyncio.sleep(0)
    store.put_message(QUEUE, 2, value(2))
    assert store.durable() is written and not written.done()
    await written
    assert stored(store) == {1: value(1), 2: value(2)}


async def test_a_large_message_does_not_wait_for_one_that_has_no_end(store: Store) -> None:
    store.put_message(QUEUE, 1, value(1))
    written, passes = store.durable(), 0
    while not written.done():
        filled(1)
        passes += 1
        await asyncio.sleep(0.0001)
    assert passes < 1_000  # a tenth of a second; 2 ms are allowed
    store.put_message(QUEUE, 2, value(2))
    store.durable()
    for _ in range(3):
        await asyncio.sleep(0)
    assert store.get_message(QUEUE, 2) == value(2)


async def test_a_sync_that_fails_while_a_batch_leaves_fails_all_who_wait(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(path, StorageSettings(sync="thread"))
    store.flush()
    writer, go_on = store._writer, threading.Event()
    real = os.fdatasync

    def slow(file: int) -> None:
        go_on.wait(240)
        real(file)

    monkeypatch.setattr(os, "fdatasync", slow)
    store.put_message(QUEUE, 1, value(1))
    leaving = store.durable()
    while writer._leaving is None:
        await asyncio.sleep(0)
    store.put_meta("next", b"batch")
    following = store.durable()
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    failed.set_exception(OSError("Input/output error"))
    writer._sync_done(failed, [], 0, [])
    go_on.set()
    for one in (leaving, following, store.durable()):
        with pytest.raises(StoreError, match="Input/output error"):
            await one
    store.close()
    with Store.open(path) as again:
        assert again.get_meta("next") is None and stored(again) == {}


@pytest.mark.parametrize("sync", SYNC)
async def test_few_files_are_open_at_a_time(
    path: Path, sync: Literal["inline", "thread"], monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 0
    real = os.fdatasync

    def counted(file: int) -> None:
        nonlocal most
        most = max(most, open_files(path))
        real(file)

    monkeypatch.setattr(os, "fdatasync", counted)
    with Store.open(path, StorageSettings(sync=sync)) as store:
        for number in range(100):
            store.put_message(QUEUE, number, value(number))
        await store.durable()
        assert stored(store) == {number: value(number) for number in range(100)}
        for number in range(50):
            store.delete_message(QUEUE, number, value(number))
        await store.durable()
        assert open_files(path) <= large_messages._OPEN_FILES
    assert 0 < most <= 3 * large_messages._OPEN_FILES + 2  # begun, to be written, and kept
    assert open_files(path) == 0


@pytest.mark.parametrize("sync", SYNC)
@pytest.mark.parametrize("passes", [0, 1, 2])
async def test_no_file_stays_open_when_a_write_fails(
    path: Path, sync: Literal["inline", "thread"], passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(path, StorageSettings(sync=sync))
    store.put_message(QUEUE, 1, value(1))
    written = store.durable()
    for _ in range(passes):
        await asyncio.sleep(0)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    store.put_message(QUEUE, 2, value(2))
    with pytest.raises(StoreError, match="No space left"):
        await asyncio.gather(written, store.durable())
    monkeypatch.undo()
    store.put_message(QUEUE, 3, value(3))
    with pytest.raises(StoreError):
        await store.durable()
    store.close()
    assert open_files(path) == 0


async def test_the_loop_syncs_no_file_that_a_thread_can(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_loop = 0
    real = os.fdatasync

    def counted(file: int) -> None:
        nonlocal in_loop
        in_loop += threading.current_thread() is threading.main_thread()
        real(file)

    with Store.open(path, StorageSettings(sync="thread")) as store:
        put(store, 0)
        monkeypatch.setattr(os, "fdatasync", counted)
        for number in range(1, 2 * large_messages._OPEN_FILES + 1):
            store.put_message(QUEUE, number, value(number))
        await store.durable()
        assert in_loop == 0
