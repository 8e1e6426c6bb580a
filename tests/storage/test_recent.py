"""Large messages whose queue is a little behind are not read from their files again."""

from __future__ import annotations

from pathlib import Path

import pytest

from qmnode.model.stored_message import PREFIX_SIZE
from qmnode.storage import large_messages
from qmnode.storage.errors import StoreError
from qmnode.storage.large_messages import FOLDER, SMALLEST
from qmnode.storage.layout import LARGE, MESSAGE_KEY, Family
from qmnode.storage.store import Store
from tests.storage.large_messages import QUEUE, delete, put, stored, value

ROOM = 4


@pytest.fixture(autouse=True)
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_messages, "_RECENT_BYTES", ROOM * SMALLEST)


def damage(path: Path) -> None:
    """Make all files of large messages unreadable."""
    for file in (path / FOLDER).iterdir():
        file.write_bytes(bytes(file.stat().st_size))


def in_memory(path: Path, store: Store, *numbers: int) -> list[int]:
    """Those that are read although their files are damaged."""
    damage(path)
    found = []
    for number in numbers:
        try:
            assert store.get_message(QUEUE, number) == value(number)
        except StoreError:
            continue
        found.append(number)
    return found


def test_as_many_as_there_is_room_for_are_read_from_memory_in_every_way(path: Path, store: Store) -> None:
    put(store, *range(6))
    assert stored(store) == {number: value(number) for number in range(6)}
    assert in_memory(path, store, *range(6)) == [0, 1, 2, 3]
    assert stored(store, 3) == {number: value(number) for number in range(4)}
    assert store.read_backwards(QUEUE, 3, 0, 2, False) == [(3, value(3)), (2, value(2))]
    with pytest.raises(StoreError, match="does not hold what was written"):
        stored(store)


def test_one_that_goes_makes_room_for_those_that_come(path: Path, store: Store) -> None:
    put(store, *range(6))
    delete(store, 1, 3)
    put(store, 6, 7, 8)
    assert in_memory(path, store, 0, 2, 4, 5, 6, 7, 8) == [0, 2, 6, 7]
    store.delete_messages(QUEUE, 0, 8)
    store.flush()
    put(store, 9)
    assert in_memory(path, store, 8, 9) == [9]


def test_those_that_stay_long_give_way(path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    put(store, 0, 1, 2)
    later = large_messages.time.monotonic() + 2
    monkeypatch.setattr(large_messages.time, "monotonic", lambda: later)
    put(store, 3, 4, 5, 6, 7)
    assert in_memory(path, store, *range(8)) == [3, 4, 5, 6]


def test_one_that_is_larger_than_the_room_is_read_from_its_file(path: Path, store: Store) -> None:
    put(store, 0, 1)
    put(store, 2, size=(ROOM + 1) * SMALLEST)
    assert stored(store, 2)[2] == value(2, (ROOM + 1) * SMALLEST)
    assert in_memory(path, store, 0, 1, 2) == [0, 1]


def test_another_value_is_read_as_soon_as_it_is_there(path: Path, store: Store) -> None:
    put(store, 0)
    other = value(0)[:PREFIX_SIZE] + bytes(SMALLEST)
    store.replace_message(QUEUE, 0, other)
    assert store.get_message(QUEUE, 0) == value(0)
    store.flush()
    assert store.get_message(QUEUE, 0) == other
    damage(path)
    assert store.get_message(QUEUE, 0) == other


def test_a_message_whose_file_was_given_to_another_one_is_not_read_as_that(path: Path, store: Store) -> None:
    put(store, 0)
    store.delete(Family.META, LARGE + MESSAGE_KEY.pack(QUEUE, 0))  # a damaged index
    store.flush()
    store.close()
    with Store.open(path) as again:
        put(again, 1)
        assert again.get_message(QUEUE, 1) == value(1)
        with pytest.raises(StoreError, match="does not hold what was written"):
            again.get_message(QUEUE, 0)


def test_nothing_stays_in_memory_after_a_failed_write(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    put(store, 0)
    monkeypatch.setattr(large_messages.os, "fdatasync", _fails)
    with pytest.raises(StoreError, match="a write to the message store failed"):
        put(store, 1)
    assert not store._large._recent
    assert not store._large._recent_bytes


def _fails(_: int) -> None:
    raise OSError("no more")
