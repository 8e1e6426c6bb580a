"""Large messages are in files of their own: nothing is lost, mixed up, or left behind, whatever happens between."""

import asyncio
import os
import random
import threading
from pathlib import Path
from typing import Literal

import pytest

from qmnode import Access, Message, QueueManager, Settings
from qmnode.settings.node import StorageSettings
from qmnode.storage import large_messages
from qmnode.storage.backup import back_up, restore
from qmnode.storage.errors import StoreError
from qmnode.storage.large_messages import FOLDER, SMALLEST, LargeMessages
from qmnode.storage.layout import FORMAT_VERSION, LARGE_MESSAGES, MESSAGE_KEY, QUEUE_KEY, Family
from qmnode.storage.store import Store
from qmnode.storage.verification import verify
from tests.storage.large_messages import (
    FORMAT,
    NAME,
    QUEUE,
    SYNC,
    delete,
    files,
    put,
    settled,
    stored,
    value,
)


@pytest.fixture(autouse=True)
def _from_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored is read from its file, not from memory (``test_recent``)."""
    monkeypatch.setattr(large_messages, "_RECENT_BYTES", 0)


@pytest.mark.parametrize("size", [SMALLEST - 1, SMALLEST, SMALLEST + 1, 4 << 20])
def test_what_is_stored_is_read_in_every_way_also_after_a_start(path: Path, size: int) -> None:
    with Store.open(path) as store:
        put(store, 1, 2, 3, size=size)
    with Store.open(path) as store:
        assert store.get_message(QUEUE, 2) == value(2, size)
        assert stored(store) == {number: value(number, size) for number in (1, 2, 3)}
        assert store.read_messages(QUEUE, 2, 3, 9, size, False) == [(2, value(2, size))]
        assert store.read_backwards(QUEUE, 3, 0, 2, False) == [(3, value(3, size)), (2, value(2, size))]
        assert len(files(path)) == (3 if size >= SMALLEST else 0)
        assert store.losses == []


def test_the_log_has_only_references(path: Path, store: Store) -> None:
    put(store, *range(8), size=1 << 20)
    assert sum(log.stat().st_size for log in path.glob("*.log")) < 20_000
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in (path / FOLDER).iterdir())
    assert (path / FOLDER).stat().st_mode & 0o777 == 0o700


def test_only_a_store_with_large_messages_is_refused_by_older_programs(path: Path) -> None:
    for number, (size, version) in enumerate([(SMALLEST - 1, FORMAT_VERSION), (SMALLEST, LARGE_MESSAGES)]):
        with Store.open(path) as store:
            put(store, number, size=size)
            found = store.get_meta("format_version")
        assert found == QUEUE_KEY.pack(version)


def test_a_file_is_written_over_once_its_message_is_gone(path: Path, store: Store) -> None:
    put(store, 1, 2)
    before = files(path)
    delete(store, 1)
    put(store, 3)
    assert files(path) == before
    assert stored(store) == {2: value(2), 3: value(3)}
    put(store, 4)
    assert len(files(path)) == 3


def test_a_file_is_not_written_over_while_the_removal_is_not_synced(path: Path) -> None:
    async def run() -> None:
        with Store.open(path) as store:
            put(store, 1)
            store.delete_message(QUEUE, 1, value(1))
            store.make_visible()
            store.put_message(QUEUE, 2, value(2))
            store.make_visible()
            assert len(files(path)) == 2
            assert stored(store) == {2: value(2)}
            await store.durable()
            put(store, 3)
            assert len(files(path)) == 2

    asyncio.run(run())


def test_a_much_larger_file_is_not_used_for_a_small_one(path: Path, store: Store) -> None:
    put(store, 1, size=4 << 20)
    delete(store, 1, size=4 << 20)
    put(store, 2)
    assert len(files(path)) == 2
    put(store, 3, size=3 << 20)
    assert len(files(path)) == 2


def test_another_value_replaces_the_message(path: Path, store: Store) -> None:
    put(store, 1)
    other = value(1)[:2] + b"\x07" + value(1)[3:]
    store.replace_message(QUEUE, 1, other)
    store.replace_message(QUEUE, 1, other)
    store.flush()
    assert stored(store) == {1: other}
    put(store, 2, 3)
    assert stored(store) == {1: other, 2: value(2), 3: value(3)}
    delete(store, 1, 2, 3)
    assert stored(store) == {}


def test_a_message_that_leaves_in_the_pass_of_its_arrival_is_never_written(path: Path, store: Store) -> None:
    store.put_message(QUEUE, 1, value(1))
    store.delete_message(QUEUE, 1, value(1))
    store.flush()
    assert files(path) == {} and stored(store) == {}


def test_messages_are_removed_one_by_one_and_with_all_others_in_one_pass(path: Path, store: Store) -> None:
    put(store, *range(6))
    store.put_message(QUEUE, 6, value(6))
    store.delete_message(QUEUE, 2, value(2))
    store.delete_messages(QUEUE, 1, 6)
    store.delete_messages(QUEUE, 2, 4)
    store.put_message(QUEUE, 7, value(7))
    store.flush()
    assert stored(store) == {number: value(number) for number in (0, 6, 7)}
    put(store, *range(10, 20))  # no file twice
    assert stored(store) == {number: value(number) for number in (0, 6, 7, *range(10, 20))}
    store.delete_messages(QUEUE, 0, 1 << 40)
    store.flush()
    assert stored(store) == {}


def test_few_files_are_kept_for_others(path: Path, store: Store) -> None:
    most = large_messages._SPARE_FILES
    put(store, *range(most + 20))
    store.delete_messages(QUEUE, 0, 1 << 40)
    store.flush()
    settled(store)
    assert len(files(path)) == most


def test_a_start_frees_the_files_of_no_message(path: Path) -> None:
    with Store.open(path) as store:
        put(store, 1)
    leftover = path / FOLDER / "00000000000000ff"
    leftover.write_bytes(bytes(SMALLEST * 2))
    with Store.open(path) as store:
        assert stored(store) == {1: value(1)}
        put(store, 2)
        assert len(files(path)) == 2
        assert stored(store) == {1: value(1), 2: value(2)}
        put(store, 3)
        assert (path / FOLDER / "0000000000000100").exists()


@pytest.mark.parametrize("size", [None, 100])
def test_a_lost_file_is_said_once_at_a_start_and_by_verify(path: Path, size: int | None) -> None:
    with Store.open(path) as store:
        put(store, 1, 2)
    file = sorted((path / FOLDER).iterdir())[0]
    file.unlink() if size is None else os.truncate(file, size)
    with Store.open(path) as store:
        (loss,) = store.losses
        assert f"large/{file.name} {'is missing' if size is None else 'has 100 bytes of'}" in loss.sentence
        assert store.get_message(QUEUE, 2) == value(2)
        with pytest.raises(StoreError, match=rf"large/{file.name}.*qmnode verify"):
            store.get_message(QUEUE, 1)
        with pytest.raises(StoreError):
            stored(store)
    with Store.open(path) as store:
        assert len(store.losses) == 1
        store.delete_messages(QUEUE, 0, 2)  # a purge gets rid of it
        store.flush()
        assert stored(store) == {2: value(2)}


def test_damage_in_a_file_is_found(path: Path, store: Store) -> None:
    put(store, 1, 2)
    first, second = sorted((path / FOLDER).iterdir())
    whole = first.read_bytes()
    for place in (0, 20, len(whole) // 2, len(whole) - 1):
        first.write_bytes(whole[:place] + bytes((whole[place] ^ 1,)) + whole[place + 1 :])
        with pytest.raises(StoreError, match="does not hold what was written"):
            store.get_message(QUEUE, 1)
    first.write_bytes(second.read_bytes())  # the file of another message
    with pytest.raises(StoreError, match="does not hold what was written"):
        store.get_message(QUEUE, 1)
    first.write_bytes(whole)
    assert stored(store) == {1: value(1), 2: value(2)}


async def send(qm: QueueManager, *bodies: bytes) -> None:
    async with await qm.open_queue(FORMAT, Access.SEND) as queue:
        await queue.send_many([Message(body, recoverable=True) for body in bodies])


async def received(data: Path) -> list[bytes]:
    async with QueueManager.open(data) as qm, await qm.open_queue(FORMAT) as queue:
        return [message.body for message in await queue.receive_many(100, timeout=0)]


BODIES = [bytes((number,)) * (SMALLEST * (number % 3) + 100) for number in range(7)]


@pytest.mark.parametrize("sync", SYNC)
async def test_verify_reads_large_messages(tmp_path: Path, path: Path, sync: Literal["inline", "thread"]) -> None:
    async with QueueManager.open(path, Settings(storage=StorageSettings(sync=sync))) as qm:
        await qm.create_queue(NAME)
        await send(qm, *BODIES)
    report = verify(path)
    assert report.findings == [] and report.format_version == LARGE_MESSAGES and report.messages == len(BODIES)
    file = sorted((path / FOLDER).iterdir())[-1]
    content = file.read_bytes()
    file.write_bytes(content[:-1] + b"?")
    (finding,) = verify(path).findings
    assert finding.sentence == f"large/{file.name} does not hold what was written"
    file.write_bytes(content)
    with Store.open(path) as store:
        key = next(key for key, record in store.scan(Family.META, b"large\0", b"large\1"))
        store.delete(Family.META, key)
        store.put(Family.META, b"large\0" + MESSAGE_KEY.pack(9, 9), bytes(16))
    sentences = [finding.sentence for finding in verify(path).findings]
    assert sentences == [
        "the index of large messages does not know its file",
        "the index has it, and it is not there",
    ]


async def test_a_backup_keeps_what_is_removed_and_written_over_later(tmp_path: Path, path: Path) -> None:
    async with QueueManager.open(path) as qm:
        await qm.create_queue(NAME)
        await send(qm, *BODIES)
        await qm.backup(tmp_path / "backup")
        async with await qm.open_queue(FORMAT) as queue:
            await queue.receive_many(100, timeout=0)
        await send(qm, *(bytes(reversed(body)) + b"later" for body in BODIES))
        await qm.backup(tmp_path / "later")
    seen: list[tuple[int, int]] = []
    count = restore(tmp_path / "backup", tmp_path / "copy", lambda done, total: seen.append((done, total)))
    assert seen[-1] == (count, count) and count > sum(map(len, BODIES))
    assert verify(tmp_path / "copy").findings == []
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in (tmp_path / "copy" / FOLDER).iterdir())
    assert await received(tmp_path / "copy") == BODIES
    restore(tmp_path / "later", tmp_path / "another")
    assert [body[-5:] for body in await received(tmp_path / "another")] == [b"later"] * len(BODIES)


@pytest.mark.parametrize("sync", SYNC)
async def test_backups_under_traffic_are_whole(tmp_path: Path, path: Path, sync: Literal["inline", "thread"]) -> None:
    dice = random.Random(7)
    with Store.open(path, StorageSettings(sync=sync)) as store:
        there: dict[int, bytes] = {}
        number = 0
        for turn in range(6):
            copying = asyncio.ensure_future(back_up(store, tmp_path / f"backup{turn}"))
            expected = dict(there)
            while not copying.done():
                number += 1
                there[number] = value(number, dice.choice([100, SMALLEST, SMALLEST * 2]))
                store.put_message(QUEUE, number, there[number])
                if len(there) > 9:
                    gone = dice.choice(sorted(there))
                    store.delete_message(QUEUE, gone, there.pop(gone))
                await store.durable()
            await copying
            restore(tmp_path / f"backup{turn}", tmp_path / f"copy{turn}")
            with Store.open(tmp_path / f"copy{turn}") as copy:
                found = stored(copy)
                assert all(found[one] == value(one, len(found[one])) for one in found)
                assert expected.keys() - found.keys() == set() or turn > 0
                assert copy.losses == []
        assert stored(store) == there


@pytest.mark.parametrize("sync", SYNC)
@pytest.mark.parametrize("seed", range(4))
async def test_any_order_of_changes_reads_and_starts(path: Path, seed: int, sync: Literal["inline", "thread"]) -> None:
    dice = random.Random(seed)
    settings = StorageSettings(sync=sync)
    there: dict[int, bytes] = {}
    number = 0
    store = Store.open(path, settings)
    for _ in range(400):
        match dice.choice(["put", "put", "put", "delete", "delete", "replace", "range", "wait", "visible", "reopen"]):
            case "put":
                for _ in range(dice.randrange(1, 4)):
                    number += 1
                    there[number] = value(number, dice.choice([100, SMALLEST - 1, SMALLEST, SMALLEST * 2, 1 << 20]))
                    store.put_message(QUEUE, number, there[number])
                store.durable()
            case "delete" if there:
                for one in dice.sample(sorted(there), min(len(there), dice.randrange(1, 4))):
                    if dice.random() < 0.5:
                        store.delete_message(QUEUE, one, there.pop(one))
                    else:
                        store.delete_each(QUEUE, [(one, there.pop(one))])
                store.durable()
            case "replace" if there:
                one = dice.choice(sorted(there))
                there[one] = there[one][:2] + bytes((dice.randrange(256),)) + there[one][3:]
                store.replace_message(QUEUE, one, there[one])
                store.durable()
            case "range" if len(there) > 12:
                first = dice.randrange(number)
                store.delete_messages(QUEUE, first, first + 6)
                for one in range(first, first + 6):
                    there.pop(one, None)
                store.durable()
            case "wait":
                for _ in range(dice.randrange(3)):
                    await asyncio.sleep(0)
                if dice.random() < 0.5:
                    await store.durable()
            case "visible":
                store.make_visible()
                assert stored(store) == there
            case "reopen" if dice.random() < 0.3:
                store.close()
                assert (
                    len(files(path))
                    <= sum(len(one) >= SMALLEST for one in there.values()) + large_messages._SPARE_FILES
                )
                store = Store.open(path, settings)
                assert stored(store) == there and store.losses == []
    await store.durable()
    assert stored(store) == there
    store.close()


def paused_copies(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Let a backup wait before it copies large messages: it says that it has begun, and is told to go on."""
    begun, go_on = threading.Event(), threading.Event()
    real = LargeMessages.copy_to

    def paused(files: LargeMessages, target: Path) -> None:
        begun.set()
        go_on.wait(240)
        real(files, target)

    monkeypatch.setattr(LargeMessages, "copy_to", paused)
    return begun, go_on


@pytest.mark.parametrize("sync", SYNC)
async def test_a_backup_is_whole_although_who_asked_for_it_is_gone(
    tmp_path: Path, path: Path, sync: Literal["inline", "thread"], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(path, StorageSettings(sync=sync)) as store:
        put(store, *range(1, 6))
        begun, go_on = paused_copies(monkeypatch)
        asking = asyncio.ensure_future(back_up(store, tmp_path / "backup"))
        assert await asyncio.to_thread(begun.wait, 30)
        asking.cancel()
        await asyncio.wait([asking])
        delete(store, *range(1, 6))
        put(store, *range(6, 11))
        go_on.set()
        while not (tmp_path / "backup").exists():
            await asyncio.sleep(0.01)
        put(store, *range(11, 20))
    with Store.open(tmp_path / "backup") as copy:
        assert stored(copy) == {number: value(number) for number in range(1, 6)}


async def test_a_backup_of_a_store_that_is_closed_meanwhile_fails(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(path)
    put(store, 1)
    begun, go_on = paused_copies(monkeypatch)
    asking = asyncio.ensure_future(back_up(store, tmp_path / "backup"))
    assert await asyncio.to_thread(begun.wait, 30)
    store.close()
    go_on.set()
    with pytest.raises(StoreError, match="closed meanwhile"):
        await asking
    assert not (tmp_path / "backup").exists()


def test_a_free_file_that_a_backup_has_a_link_to_is_not_written_over(tmp_path: Path, path: Path, store: Store) -> None:
    put(store, 1)
    delete(store, 1)
    (file,) = (path / FOLDER).iterdir()
    os.link(file, tmp_path / "link")
    put(store, 2)
    settled(store)
    assert (tmp_path / "link").read_bytes().endswith(value(1))
    assert stored(store) == {2: value(2)} and len(files(path)) == 1


def test_a_free_file_that_somebody_removed_is_not_missed(path: Path, store: Store) -> None:
    put(store, 1)
    delete(store, 1)
    (file,) = (path / FOLDER).iterdir()
    file.unlink()
    put(store, 2)
    settled(store)
    assert stored(store) == {2: value(2)} and len(files(path)) == 1
    store.close()
    with Store.open(path) as again:
        assert stored(again) == {2: value(2)} and again.losses == []


def test_many_lost_files_are_said_once(path: Path) -> None:
    with Store.open(path) as store:
        put(store, *range(120))
    for file in (path / FOLDER).iterdir():
        file.unlink()
    for _ in range(3):
        with Store.open(path) as store:
            (loss,) = store.losses
    assert "files of more large messages: 20" in loss.sentence and loss.messages == 120


def test_a_folder_that_is_none_is_said(path: Path) -> None:
    Store.open(path).close()
    (path / FOLDER).write_text("a file")
    with pytest.raises(StoreError, match="large: Not a directory"):
        Store.open(path)


def test_a_closed_store_says_so(path: Path) -> None:
    store = Store.open(path)
    put(store, 1)
    store.close()
    store.put_message(QUEUE, 2, value(2))
    store.delete_message(QUEUE, 1, value(1))
    store.replace_message(QUEUE, 1, value(1))
    with pytest.raises(StoreError, match="closed"):
        store.flush()


async def test_an_unreadable_message_keeps_no_other_from_expiring(path: Path) -> None:
    async with QueueManager.open(path) as qm:
        await qm.create_queue(NAME)
        await qm.create_queue(NAME + "2")
        async with await qm.open_queue(FORMAT, Access.SEND) as queue:
            await queue.send(Message(BODIES[2], recoverable=True, time_to_be_received=2))
    next((path / FOLDER).iterdir()).unlink()
    async with QueueManager.open(path) as qm:
        async with await qm.open_queue(FORMAT + "2", Access.SEND) as queue:
            await queue.send(Message(b"x", recoverable=True, time_to_be_received=2))
        other = qm.names.find(NAME + "2")
        assert other.message_count == 1
        async with asyncio.timeout(120):
            while other.message_count:
                await asyncio.sleep(0.1)
