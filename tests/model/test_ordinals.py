"""Numbers that are never given out twice."""

import asyncio

import pytest

from qmnode.model.positions import Ordinal
from qmnode.settings.node import StorageSettings
from qmnode.storage.store import Store


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "s", StorageSettings()) as store:
        yield store


async def test_numbers_follow_each_other_and_a_restart_skips_the_rest_of_a_block(store):
    ordinal = Ordinal(store, "n", 32, 10)
    seen = []
    for _ in range(95):
        seen.append(ordinal.next())
        await asyncio.sleep(0)
    assert seen == list(range(1, 96))
    again = Ordinal(store, "n", 32, 10)
    assert 95 < again.next() <= 95 + 21


async def test_numbers_are_reserved_on_disk_before_they_are_given_out_even_without_a_pause(store):
    ordinal = Ordinal(store, "n", 32, 10)
    for _ in range(1000):
        number = ordinal.next()
        assert int.from_bytes(store.get_meta("n"), "big") >= number


async def test_the_next_block_joins_the_batch_and_does_not_split_it(store):
    ordinal = Ordinal(store, "n", 32, 100)
    ordinal.next()
    writes = []
    store.before_write = lambda: writes.append(1)
    for _ in range(90):
        ordinal.next()
    assert writes == []
    await store.durable()
    for _ in range(40):
        ordinal.next()
    assert len(writes) == 1


async def test_the_first_number_after_a_start_does_not_split_a_batch(store):
    """A message that expired and its acknowledgment are one batch, and the acknowledgment takes the first number."""
    store.put_meta("deleted", b"a message")
    Ordinal(store, "n", 32, 100).next()
    assert store.get_meta("deleted") is None
    assert int.from_bytes(store.get_meta("n"), "big") == 100
    await store.durable()
    assert store.get_meta("deleted") == b"a message"


async def test_numbers_that_run_out_within_a_pass_do_not_split_a_batch(store):
    ordinal = Ordinal(store, "n", 32, 10)
    store.put_meta("half", b"done")
    for _ in range(95):
        number = ordinal.next()
        assert int.from_bytes(store.get_meta("n"), "big") >= number
    assert store.get_meta("half") is None
    await store.durable()
    assert int.from_bytes(store.get_meta("n"), "big") >= number


async def test_a_short_number_wraps_around(store):
    ordinal = Ordinal(store, "n", 4, 10)
    assert [ordinal.next() for _ in range(17)][-2:] == [0, 1]
