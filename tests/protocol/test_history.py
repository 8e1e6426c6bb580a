"""MessageIDHistoryTable: matched on source and identifier, 30 minutes of it, bounded (3.1.1.3, 3.1.5.8.1, 3.1.6.7)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmnode.protocol.commands import Family, Record
from qmnode.protocol.message_id_history import PAGE_SIZE, PAGES_PER_SOURCE, MessageIdHistory
from qmnode.settings.protocol import TransferSettings
from qmnode.shares import Accountant, declared, stranger
from qmnode.structures.guid import Guid
from tests.protocol.machines import ALICE, BOB, CAROL, TIME


def page_count(table: MessageIdHistory) -> int:
    """How many pages the table keeps: the measure of its memory."""
    return sum(len(source.durable) + len(source.volatile) for source in table._sources.values())


def history(**parameters: int) -> MessageIdHistory:
    return MessageIdHistory(TransferSettings(**parameters), Accountant())  # type: ignore[arg-type]


def restarted(store: dict[bytes, bytes], **parameters: int) -> MessageIdHistory:
    again = history(**parameters)
    again.load(store.items())
    return again


def write(store: dict[bytes, bytes], records: list[Record]) -> None:
    for family, key, value in records:
        assert family is Family.MESSAGE_ID_HISTORY
        if value is None:
            store.pop(key, None)
        else:
            store[key] = value


def test_a_message_is_a_duplicate_the_second_time() -> None:
    table = history()
    assert not table.seen(ALICE, 7)
    assert table.add(ALICE, 7, True, TIME)
    assert table.seen(ALICE, 7)
    assert not table.add(ALICE, 7, True, TIME)


def test_the_same_ordinal_of_another_source_is_another_message() -> None:
    """3.1.5.8.1 compares the ordinal alone: of two senders that count from 1, one would lose its messages."""
    table = history()
    assert table.add(ALICE, 7, True, TIME)
    assert table.add(BOB, 7, True, TIME)
    assert not table.seen(CAROL, 7)


def test_a_message_that_changed_its_delivery_mode_is_still_a_duplicate() -> None:
    table = history()
    table.add(ALICE, 7, True, TIME)
    assert not table.add(ALICE, 7, False, TIME)
    table.add(ALICE, 8, False, TIME)
    assert not table.add(ALICE, 8, True, TIME)


def test_recoverable_entries_survive_a_restart_and_express_ones_do_not() -> None:
    table, store = history(), {}
    for number in range(3000):
        table.add(ALICE, number, number % 2 == 0, TIME)
    write(store, table.take_records())
    again = restarted(store)
    assert all(again.seen(ALICE, number) is (number % 2 == 0) for number in range(3000))


def test_only_what_changed_is_written() -> None:
    table = history()
    for number in range(2 * PAGE_SIZE):
        table.add(ALICE, number, True, TIME)
    assert len(table.take_records()) == 2
    table.add(ALICE, 5 * PAGE_SIZE, True, TIME)
    assert len(table.take_records()) == 1
    table.add(ALICE, 5 * PAGE_SIZE, True, TIME)
    assert table.take_records() == []


def test_entries_live_for_thirty_minutes_at_least() -> None:
    table, store = history(), {}
    table.add(ALICE, 1, True, TIME)
    write(store, table.take_records())
    table.clean(TIME + 1800)
    assert table.seen(ALICE, 1)
    assert table.clean(TIME + 1801) is False
    assert not table.seen(ALICE, 1)
    write(store, table.take_records())
    assert store == {}


def test_thirty_minutes_at_40000_a_second_fit_in_little_memory_and_few_records() -> None:
    """72 million messages; the 10,000 entries of other implementations are a quarter of a second."""
    table = history()
    pages = 40_000 * 1_800 // PAGE_SIZE
    assert pages < PAGES_PER_SOURCE
    for number in range(4):  # every page is the same; a full one is shared
        for offset in range(PAGE_SIZE):
            table.add(ALICE, number * PAGE_SIZE + offset, True, TIME)
    table.take_records()
    assert len(table) == 4 * PAGE_SIZE
    assert page_count(table) == 4


def test_contents_are_compared_while_any_are_remembered() -> None:
    """A digest of each message costs time, so a node takes none when the last stranger's message is forgotten."""
    table = history()
    table.add(ALICE, 7, True, TIME + 1801)
    table.add_content(BOB, True, TIME)
    assert table.clean(TIME + 1800)
    assert table.seen_content(BOB)
    assert table.clean(TIME + 1801)
    assert not table.has_contents
    store: dict[bytes, bytes] = {}
    write(store, table.take_records())
    assert not restarted(store).has_contents


def test_a_full_page_still_knows_all_its_messages_after_a_restart() -> None:
    table, store = history(), {}
    for number in range(PAGE_SIZE):
        table.add(ALICE, number, True, TIME)
    write(store, table.take_records())
    again = restarted(store)
    assert not any(again.add(ALICE, number, True, TIME) for number in range(PAGE_SIZE))
    assert len(again) == PAGE_SIZE


def test_an_abandoned_message_is_welcome_again() -> None:
    table = history()
    for number in range(PAGE_SIZE):
        table.add(ALICE, number, True, TIME)
    table.remove(ALICE, 5)
    assert not table.seen(ALICE, 5)
    assert table.seen(ALICE, 6)
    assert table.add(ALICE, 5, True, TIME)


def test_a_stranger_with_random_identifiers_pushes_out_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qmnode.protocol.message_id_history.PAGES_PER_SOURCE", 16)
    table, store = history(), {}
    table.add(BOB, 1, True, TIME)
    for number in range(1000):
        table.add(ALICE, number * 7919 * PAGE_SIZE % 2**32, True, TIME)
        write(store, table.take_records())
    assert table.seen(BOB, 1)
    assert page_count(table) == len(store) == 17


def test_the_number_of_sources_is_bounded_too() -> None:
    table, store = history(history_sources=10), {}
    for number in range(100):
        table.party = declared(str(number))
        table.add(Guid(number.to_bytes(16, "big")), 1, True, TIME)
        write(store, table.take_records())
    assert page_count(table) == len(store) == 10


def test_a_neighbour_that_invents_sources_pushes_out_only_its_own() -> None:
    """Each message has a source and an identifier of its own: every one of them makes a page."""
    table, store = history(history_sparse_pages=50, history_sources=300), {}
    table.party = stranger("10.0.0.2")
    table.add(BOB, 1, True, TIME)
    table.add(BOB, 2, False, TIME)
    table.party = stranger("10.0.0.66")
    for number in range(5000):
        table.add(Guid((number % 999).to_bytes(16, "big")), number * 7919 * PAGE_SIZE % 2**32, number % 2 == 0, TIME)
        write(store, table.take_records())
    assert table.seen(BOB, 1) and table.seen(BOB, 2)
    assert page_count(table) == 52
    assert len(store) <= 51
    assert len(table) == 52


@pytest.mark.parametrize(("addresses", "kept"), [("2001:db8::{}", 50), ("10.0.0.{}", 200)])
def test_neighbours_that_invent_sources_are_limited_together(addresses: str, kept: int) -> None:
    table = history(history_sparse_pages=50)
    for number in range(20_000):
        table.party = stranger(addresses.format(number % 100))
        table.add(Guid(number.to_bytes(16, "big")), number, True, TIME)
    assert kept - 3 <= page_count(table) <= kept


@pytest.mark.parametrize("blocks", [1, 3, 10])
def test_invented_sources_push_out_no_source_of_others_also_after_a_restart(blocks: int) -> None:
    table, store = history(history_sources=100, history_sparse_pages=50), {}
    honest = {ALICE: declared("ALICE"), BOB: stranger("10.0.1.1")}
    for source, party in honest.items():
        table.party = party
        table.add(source, 1, True, TIME)
    for _ in range(3):
        for number in range(2_000):
            table.party = stranger(f"10.0.0.{number % blocks}")
            table.add(Guid(number.to_bytes(16, "big")), number, True, TIME)
            write(store, table.take_records())
        assert all(table.seen(source, 1) for source in honest)
        assert page_count(table) <= 52
        table = restarted(store, history_sources=100, history_sparse_pages=50)


def test_pages_with_many_messages_stay_however_many_a_neighbour_brings() -> None:
    table = history(history_sparse_pages=50)
    for number in range(200 * PAGE_SIZE // 32):  # 200 pages, each with 32 messages and more
        table.add(ALICE, number * 32, True, TIME)
    assert page_count(table) == 200
    assert all(table.seen(ALICE, number * 32) for number in range(200 * PAGE_SIZE // 32))


def test_what_is_cleaned_leaves_nothing_behind() -> None:
    table = history(history_sparse_pages=50)
    for number in range(40):
        table.party = stranger(f"10.0.0.{number % 4}")
        table.add(ALICE, number * PAGE_SIZE, True, TIME)
    assert table.clean(TIME + 1801) is False
    assert table.add(ALICE, 1, True, TIME) and table.clean(TIME + 1801) is False


@given(st.lists(st.tuples(st.sampled_from([ALICE, BOB]), st.integers(0, 3000), st.booleans()), max_size=200))
def test_it_behaves_like_a_set(entries: list[tuple[Guid, int, bool]]) -> None:
    table, reference = history(), set()
    for source, number, durable in entries:
        assert table.add(source, number, durable, TIME) is ((source, number) not in reference)
        reference.add((source, number))
    assert len(table) == len(reference)
    assert all(table.seen(source, number) for source, number in reference)
