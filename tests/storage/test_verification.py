"""The offline check: a sound store has no findings, and each kind of damage is named."""

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from qmnode import Access, Message, QueueManager
from qmnode.model.queue import Counters
from qmnode.model.stored_message import with_prefix
from qmnode.storage.errors import StoreError
from qmnode.storage.layout import FORMAT_VERSION, MESSAGE_KEY, NEWEST_FORMAT, QUEUE_KEY, Family
from qmnode.storage.store import Store
from qmnode.storage.verification import verify

NAME = r".\private$\orders"
FORMAT = rf"DIRECT=OS:{NAME}"


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A stopped node's store with messages of several kinds, a journal, and a transaction in doubt."""
    async with QueueManager.open(tmp_path / "store") as qm:
        await qm.create_queue(NAME, journaling=True)
        await qm.create_queue(r".\private$\exact", transactional=True)
        async with await qm.open_queue(FORMAT, Access.SEND) as queue:
            await queue.send_many([Message(b"r", recoverable=True, priority=priority) for priority in (0, 3, 3, 7)])
            await queue.send(Message(b"express"))
            await queue.send(Message(b"expires", recoverable=True, time_to_be_received=100_000))
        async with await qm.open_queue(FORMAT) as queue:
            await queue.receive_many(2)
        description = json.dumps([{"kind": "enqueue", "queue": 64, "lookup": 1, "size": 3, "target": 0, "reason": 0}])
        record = len(description).to_bytes(4, "big") + description.encode() + b"abc"
        qm.store.put(Family.TRANSACTIONS, bytes(16), record)  # as releases up to 0.1 could write it
    return tmp_path / "store"


def change(path: Path, work: Callable[[Store], None]) -> None:
    """Damage a store."""
    store = Store.open(path)
    work(store)
    store.close()


def a_message(store: Store) -> tuple[bytes, bytes]:
    return next(store.scan(Family.MESSAGES, MESSAGE_KEY.pack(64, 0)))


def test_a_sound_store_has_no_findings(path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    report = verify(path, lambda done, total: seen.append((done, total)))
    assert report.findings == []
    # Two in the journal; three are left, and the express one is not looked at.
    assert (report.queues, report.messages, report.format_version) == (2, 5, FORMAT_VERSION)
    assert seen[-1] == (5, 5)


def test_a_start_that_was_killed_leaves_a_sound_store(path: Path) -> None:
    names = Rdict.list_cf(str(path), Options(raw_mode=True))
    database = Rdict(
        str(path), Options(raw_mode=True), column_families={name: Options(raw_mode=True) for name in names}
    )
    database.drop_column_family(Family.EXPRESS)
    database.close()
    assert verify(path).findings == []
    change(path, lambda store: None)
    assert verify(path).findings == []


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no message store"):
        verify(tmp_path)


def _cut_a_message(store: Store) -> None:
    key, value = a_message(store)
    store.put(Family.MESSAGES, key, value[:-1])


def _remove_a_message(store: Store) -> None:
    store.delete(Family.MESSAGES, a_message(store)[0])


def _add_a_message_of_nobody(store: Store) -> None:
    store.put(Family.MESSAGES, MESSAGE_KEY.pack(4710, 1), a_message(store)[1])


def _make_a_message_expire(store: Store) -> None:
    key, value = a_message(store)
    store.put(Family.MESSAGES, key, with_prefix(value, expires=2_000_000_000))


def _break_a_definition(store: Store) -> None:
    store.put(Family.QUEUES, QUEUE_KEY.pack(64), b"{")


def _break_counters(store: Store) -> None:
    store.put(Family.COUNTERS, QUEUE_KEY.pack(64), b"abc")


def _break_a_transaction(store: Store) -> None:
    ((key, record),) = store.read_transactions()
    store.put(Family.TRANSACTIONS, key, record[:-1])


def _come_from_the_future(store: Store) -> None:
    store.put_meta("format_version", QUEUE_KEY.pack(NEWEST_FORMAT + 1))


def _begin_in_another_way(store: Store) -> None:
    key, value = a_message(store)
    store.put(Family.MESSAGES, key, b"\xff" + value[1:])


def _begin_after_a_message(store: Store) -> None:
    key, record = next(store.scan(Family.COUNTERS, b""))
    begun = Counters.unpack(record)
    lanes = [(index, count, head + 1) for index, count, head in begun.lanes]
    changed = struct.pack(">QQ", begun.size, begun.loss_reports) + b"".join(
        struct.pack(">BQQ", *lane) for lane in lanes
    )
    store.put(Family.COUNTERS, key, changed)


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (_begin_after_a_message, "before its head"),
        (_cut_a_message, "packet does not decode"),
        (_remove_a_message, "are there"),
        (_add_a_message_of_nobody, "no such queue"),
        (_make_a_message_expire, "index of expiry"),
        (_break_a_definition, "definition does not decode"),
        (_break_counters, "do not decode"),
        (_break_a_transaction, "its operations need"),
        (_come_from_the_future, "newer"),
        (_begin_in_another_way, "does not begin as records do"),
    ],
)
def test_damage_is_named(path: Path, damage: Callable[[Store], None], expected: str) -> None:
    change(path, damage)
    report = verify(path)
    assert any(expected in finding.sentence for finding in report.findings), report.findings


def _renumber(store: Store, old: int, new: int) -> None:
    for family in (Family.QUEUES, Family.COUNTERS, Family.MESSAGES):
        for key, value in list(store.scan(family, QUEUE_KEY.pack(old), QUEUE_KEY.pack(old + 1))):
            store.delete(family, key)
            store.put(family, QUEUE_KEY.pack(new) + key[QUEUE_KEY.size :], value)


async def test_a_queue_with_an_odd_number_is_named_and_its_messages_are_found(tmp_path: Path) -> None:
    async with QueueManager.open(tmp_path) as qm:
        await qm.create_queue(NAME)
        async with await qm.open_queue(FORMAT, Access.SEND) as queue:
            await queue.send(Message(b"kept", recoverable=True))
    change(tmp_path, lambda store: _renumber(store, 64, 67))

    (finding,) = verify(tmp_path).findings
    assert finding.where.endswith("orders") and "67 is odd and also that of its own journal" in finding.sentence
    async with QueueManager.open(tmp_path) as qm, await qm.open_queue(FORMAT) as queue:
        assert (await queue.receive(timeout=0)).body == b"kept"


def test_a_queue_with_the_number_of_a_journal_is_named(path: Path) -> None:
    change(path, lambda store: _renumber(store, 66, 65))

    (finding,) = verify(path).findings
    assert finding.where.endswith("exact") and "65 is odd and also that of the journal of" in finding.sentence


def test_a_damaged_file_is_named(path: Path) -> None:
    change(path, lambda store: store._database.flush())
    change(path, lambda store: store._database.compact_range(None, None))
    tables = sorted(path.glob("*.sst"), key=lambda file: file.stat().st_size)
    for table in tables:
        content = bytearray(table.read_bytes())
        content[10:40] = bytes(30)
        table.write_bytes(content)
    assert any("cannot be read" in finding.sentence for finding in verify(path).findings)


async def test_a_block_that_is_damaged_in_the_middle_of_a_queue_is_named(tmp_path: Path) -> None:
    path = tmp_path / "store"
    async with QueueManager.open(path) as qm:
        await qm.create_queue(NAME)
        queue = await qm.open_queue(FORMAT, Access.SEND)
        await queue.send_many([Message(random.randbytes(1024), recoverable=True) for _ in range(300)])
    change(path, lambda store: store._database.flush())
    change(path, lambda store: store._families[Family.MESSAGES].flush())
    change(path, lambda store: store._families[Family.MESSAGES].compact_range(None, None))
    table = max(path.glob("*.sst"), key=lambda file: file.stat().st_size)
    content = bytearray(table.read_bytes())
    assert len(content) > 100_000
    middle = len(content) // 2
    content[middle : middle + 64] = bytes(64)
    table.write_bytes(content)
    report = verify(path)
    (gap,) = [one for one in report.findings if "block checksum mismatch" in one.sentence]
    assert gap.where.startswith("messages behind 0x") and NAME.rpartition("\\")[2] in gap.where
    assert 270 < report.messages < 300  # those on both sides of the block were checked
