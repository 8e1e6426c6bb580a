"""Marks of receives share records, and what one says holds after a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from qmnode.local.program_calls import MarkGroup, Marks
from qmnode.storage.layout import Family
from qmnode.storage.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROGRAM = b"p" * 16


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "store") as opened:
        yield opened


def received(marks: Marks, *calls: tuple[int, int, bytes]) -> MarkGroup:
    """Slot, number and answer of each."""
    return marks.put_received(
        PROGRAM, [(slot, number, len(answer)) for slot, number, answer in calls], [answer for _, _, answer in calls]
    )


def records(store: Store) -> int:
    store.flush()
    return len(list(store.scan(Family.META, b"mark", b"marl")))


@pytest.fixture
def marks(store: Store) -> Marks:
    return Marks(store)


def found(marks: Marks, store: Store, slot: int, number: int) -> list[bytes]:
    """What a program gets that asks again, now and after a restart, which agree."""
    store.flush()
    ours = marks.find(PROGRAM, slot, number)
    assert ours == Marks(store).find(PROGRAM, slot, number)
    return list(ours.values())


def test_receives_of_one_batch_share_a_record(store: Store, marks: Marks) -> None:
    received(marks, (1, 10, b"one"), (2, 11, b"eleven"), (3, 12, b""))
    assert records(store) == 1
    assert found(marks, store, 1, 10) == [b"one"]
    assert found(marks, store, 2, 11) == [b"eleven"]
    assert found(marks, store, 3, 12) == [b""], "done, and its messages are not kept"
    assert found(marks, store, 1, 11) == found(marks, store, 2, 10) == found(marks, store, 4, 13) == []


def test_a_record_is_used_again_when_all_its_calls_are_answered(store: Store, marks: Marks) -> None:
    for number in range(10, 50, 2):
        received(marks, (1, number, b"a%d" % number), (2, number + 1, b"b"))
    assert records(store) <= 2
    assert found(marks, store, 1, 48) == [b"a48"]
    assert found(marks, store, 1, 46) == []


def test_a_slot_that_calls_of_one_batch_share_keeps_no_record(store: Store, marks: Marks) -> None:
    for number in range(1, 20, 2):
        received(marks, (1, number, b"one"), (1, number + 1, b"two"))
        store.flush()
    assert records(store) == 1


def test_a_call_that_is_not_confirmed_keeps_its_record(store: Store, marks: Marks) -> None:
    received(marks, (1, 10, b"one"), (2, 11, b"two"))
    for number in range(12, 20):
        received(marks, (1, number, b"more"))
    assert found(marks, store, 2, 11) == [b"two"]
    marks.put(PROGRAM, 2, 20, b"a send")
    store.flush()
    assert marks.find(PROGRAM, 2, 20) == {0: b"a send"}
    received(marks, (1, 21, b"last"))
    received(marks, (1, 22, b"last"))
    assert records(store) <= 4


@pytest.mark.parametrize("is_handed_over", [False, True])
def test_withdrawn_calls_are_not_done(store: Store, marks: Marks, is_handed_over: bool) -> None:
    group = received(marks, (1, 10, b"one"), (2, 11, b"two"), (3, 12, b"three"))
    if is_handed_over:
        store.flush()
        group.value = b""
    marks.withdraw(PROGRAM, group, [2])
    assert found(marks, store, 1, 10) == [b"one"]
    assert found(marks, store, 2, 11) == []
    assert found(marks, store, 3, 12) == [b"three"]
    marks.withdraw(PROGRAM, group, [1, 3])
    assert records(store) == 0
    assert found(marks, store, 1, 10) == []
    received(marks, (1, 13, b"again"))
    marks.withdraw(PROGRAM, group, [1])
    assert found(marks, store, 1, 13) == [b"again"], "a group of before says nothing about it"


def test_the_newest_call_of_a_slot_counts_after_a_restart_also_when_numbers_begin_again(
    store: Store, marks: Marks
) -> None:
    received(marks, (1, 0xFFFFFFFF, b"old"), (2, 0xFFFFFFFE, b"stays"))
    received(marks, (1, 3, b"new"))
    assert found(marks, store, 1, 3) == [b"new"]
    assert found(marks, store, 1, 0xFFFFFFFF) == []
    assert found(marks, store, 2, 0xFFFFFFFE) == [b"stays"]


def test_unused_records_make_room(store: Store, marks: Marks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qmnode.local.program_calls.MOST_OF_PROGRAM", 5_000)
    for slot in range(1, 5):
        received(marks, (slot, slot, bytes(550)))
    assert not received(marks, (9, 9, bytes(550))).value, "there is no room"
    for slot in range(1, 5):
        marks.put(PROGRAM, slot, 20 + slot, b"")
    assert received(marks, (9, 10, bytes(2_000))).value
    assert found(marks, store, 9, 10) == [bytes(2_000)]
    assert marks._size == sum(len(key) + len(value) for key, value in store.scan(Family.META, b"mark", b"marl"))


def test_a_program_that_is_forgotten_leaves_nothing(store: Store, marks: Marks) -> None:
    received(marks, (1, 10, b"one"))
    marks.put(PROGRAM, 2, 11, b"two")
    marks.forget(PROGRAM)
    assert records(store) == 0
    assert marks._size == 0
