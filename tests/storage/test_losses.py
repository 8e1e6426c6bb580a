"""A log that has lost what was synced is noticed at the start and by the check; one that is only torn is not."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from qmnode import Access, Message, QueueManager
from qmnode.settings.node import Settings, StorageSettings
from qmnode.storage.errors import StoreError
from qmnode.storage.lost_writes import Loss, read_synced, recent
from qmnode.storage.origin import IDENTIFIER_JUMP
from qmnode.storage.store import Store
from qmnode.storage.verification import verify
from qmnode.storage.writer import SYNCED_FILE
from tests.storage.damage import killed

NAME = r".\private$\orders"
FORMAT = rf"DIRECT=OS:{NAME}"
COUNT = 200


@pytest.fixture(params=["inline", "thread"])
async def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The directory of a node that was killed after 200 messages were acknowledged."""
    settings = Settings(storage=StorageSettings(sync=request.param))
    async with QueueManager.open(tmp_path / "store", settings) as qm:
        await qm.create_queue(NAME)
        async with await qm.open_queue(FORMAT, Access.SEND) as queue:
            for number in range(COUNT):
                await queue.send(Message(b"%d" % number, recoverable=True))
            await queue.send(Message(b"express"))
        return killed(tmp_path / "store", tmp_path / "killed")


def newest_log(path: Path) -> Path:
    return max(path.glob("*.log"))


def test_nothing_is_reported_of_a_node_that_was_killed(path: Path) -> None:
    assert verify(path).findings == []
    with Store.open(path) as store:
        assert store.losses == []
    assert verify(path).findings == []


async def test_a_torn_end_is_reported_as_that_and_is_no_loss(path: Path) -> None:
    with newest_log(path).open("ab") as log:
        log.write(b"\x12\x34torn")
    (finding,) = verify(path).findings
    assert "6 damaged bytes at its end, which may have held acknowledged messages" in finding.sentence
    async with QueueManager.open(path) as qm:
        status = await qm.status()
        assert status.warnings == (f"message store: {finding.sentence}",)
        assert not status.lost_writes
    assert [one.sentence for one in verify(path).findings] == [finding.sentence]  # for a week


def test_a_write_that_failed_in_this_process_is_no_torn_end(path: Path) -> None:
    with newest_log(path).open("ab") as log:
        log.write(b"\x12\x34torn")
    with Store.open(path, resumes=True) as store:
        assert store.losses == []


async def test_a_damaged_record_at_the_end_that_was_never_synced_is_reported_and_the_rest_is_there(path: Path) -> None:
    log = newest_log(path)
    whole = log.read_bytes()
    log.write_bytes(whole + b"sums\x32\0\1" + bytes(200))  # pages of a write that came in any order
    sentences = " ".join(finding.sentence for finding in verify(path).findings)
    assert "may have held acknowledged messages" in sentences
    async with QueueManager.open(path) as qm, await qm.open_queue(FORMAT) as queue:
        assert len(await queue.receive_many(2 * COUNT, timeout=0)) == COUNT
        (loss,) = qm.store.losses
        assert "may have held acknowledged messages" in loss.sentence


def test_a_damaged_record_that_was_synced_keeps_the_node_from_starting_and_is_named(path: Path) -> None:
    log = newest_log(path)
    whole = log.read_bytes()
    place = len(whole) - 20
    log.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    with pytest.raises(StoreError, match=rf"{log.name} has \d+ damaged bytes at its end, which may have held"):
        Store.open(path)
    findings = {finding.where: finding.sentence for finding in verify(path).findings}
    assert "begin with a damaged record" in findings[log.name]
    assert "were synced and are gone" in findings["write-ahead log"]


def test_a_kill_is_told_from_a_stop(path: Path) -> None:
    with capture_logs() as killed, Store.open(path):
        pass
    assert "the node was not stopped" in str(killed)
    with capture_logs() as stopped, Store.open(path):
        pass
    assert "the node was not stopped" not in str(stopped)


async def test_a_log_whose_newest_half_is_missing_is_reported_with_what_may_be_missing(path: Path) -> None:
    log = newest_log(path)
    os.truncate(log, log.stat().st_size // 2)
    (finding,) = verify(path).findings
    assert finding.where == "write-ahead log"
    assert "were synced and are gone" in finding.sentence
    async with QueueManager.open(path) as qm:
        status = await qm.status()
        (warning,) = status.warnings
        assert warning == f"message store: {finding.sentence}"
        assert status.lost_writes > 100
        async with await qm.open_queue(FORMAT) as queue:
            left = len(await queue.receive_many(2 * COUNT, timeout=0))
        (loss,) = qm.store.losses
    # Between two marks of a second it is counted by share.
    assert 0 < left < COUNT
    assert abs(loss.messages - (COUNT - left)) <= COUNT // 4
    assert [one.where for one in verify(path).findings] == ["write-ahead log"]  # still told, also after the start
    async with QueueManager.open(path) as qm:
        assert (await qm.status()).lost_writes == loss.writes


async def test_a_node_that_lost_writes_gives_no_message_identifier_twice(path: Path) -> None:
    log = newest_log(path)
    os.truncate(log, log.stat().st_size // 2)
    async with QueueManager.open(path) as qm, await qm.open_queue(FORMAT, Access.SEND) as queue:
        sent = await queue.send(Message(b"new", recoverable=True))
        assert int.from_bytes(sent[16:], "little") > IDENTIFIER_JUMP


def test_a_log_that_is_gone_is_reported(path: Path) -> None:
    newest_log(path).unlink()
    sentences = " ".join(finding.sentence for finding in verify(path).findings)
    assert ".log is missing" in sentences
    with Store.open(path) as store:
        assert ".log is missing" in store.losses[0].sentence


def test_an_older_log_that_is_missing_is_reported_although_the_newest_is_whole(tmp_path: Path) -> None:
    path = _with_two_logs(tmp_path)
    older = min(path.glob("*.log"))
    older.unlink()
    assert f"{older.name} is missing" in " ".join(finding.sentence for finding in verify(path).findings)
    with Store.open(path) as store:
        assert f"{older.name} is missing" in store.losses[0].sentence


def test_with_an_older_log_that_was_cut_the_node_does_not_start_and_the_check_names_the_log(tmp_path: Path) -> None:
    path = _with_two_logs(tmp_path)
    older = min(path.glob("*.log"))
    os.truncate(older, older.stat().st_size // 2)
    with pytest.raises(StoreError, match=rf"{older.name} has .* may have held acknowledged messages"):
        Store.open(path)
    assert older.name in " ".join(finding.sentence for finding in verify(path).findings)


def _with_two_logs(folder: Path) -> Path:
    """A store whose newest log began when one family went to a sorted file, and whose older one is needed still."""
    with Store.open(folder / "store") as store:
        for number in range(50):
            store.put_message(64, number, bytes(2000))
            store.put_meta("older", bytes(2000))
            store.flush()
        store._families["meta"].flush()
        store._mark._details_at = 0.0  # as if a second had passed
        store.put_meta("newer", b"")
        store.flush()
        return killed(folder / "store", folder / "killed")


def test_logs_that_are_not_needed_any_more_are_not_missed(tmp_path: Path) -> None:
    path = _with_two_logs(tmp_path)
    with Store.open(path):
        pass  # recovery writes all to sorted files
    with Store.open(path) as store:
        assert store.losses == []


@pytest.mark.parametrize("content", [b"", b"short", os.urandom(4096), None])
def test_a_mark_that_cannot_be_read_is_no_loss(path: Path, content: bytes | None) -> None:
    if content is None:  # as in a store of a program that kept none
        (path / SYNCED_FILE).unlink()
    else:
        (path / SYNCED_FILE).write_bytes(content)
    assert verify(path).findings == []
    with Store.open(path) as store:
        assert store.losses == []
        assert read_synced(path) is not None


async def test_a_backup_whose_log_was_cut_is_reported(tmp_path: Path) -> None:
    async with QueueManager.open(tmp_path / "store") as qm:
        await qm.create_queue(NAME)
        await qm.backup(tmp_path / "backup")
    assert verify(tmp_path / "backup").findings == []
    mark = read_synced(tmp_path / "backup")
    assert mark is not None and mark.mark.number > 0


def test_losses_are_told_for_a_week() -> None:
    loss = Loss(writes=4, messages=2, since=0.0, until=1_000_000.0, found=time.time() - 6 * 86400)
    old = replace(loss, found=time.time() - 8 * 86400)
    record = json.dumps([asdict(old), asdict(loss)]).encode()
    assert recent(record) == [loss]
    assert loss.sentence.startswith("4 records of about 2 stored messages, written until 1970-01-12 13:46:40 UTC")


def _sorted_file(path: Path) -> Path:
    return max(path.glob("*.sst"), key=lambda file: file.stat().st_size)


def _cut(file: Path, share: float) -> None:
    os.truncate(file, int(file.stat().st_size * share))


@pytest.mark.public_report("facebook/rocksdb#8682", "facebook/rocksdb#6430")
@pytest.mark.parametrize(
    "damage",
    [
        lambda path: _cut(max(path.glob("MANIFEST*")), 0.2),
        lambda path: _cut(max(path.glob("MANIFEST*")), 0),
        lambda path: max(path.glob("MANIFEST*")).unlink(),
        lambda path: (path / "CURRENT").unlink(),
        lambda path: (path / "CURRENT").write_text("no store"),
        lambda path: (path / "CURRENT").write_text(""),
        lambda path: [file.unlink() for file in path.iterdir() if file.name != SYNCED_FILE],
        lambda path: _sorted_file(path).unlink(),
        lambda path: _cut(_sorted_file(path), 0.5),
    ],
    ids=[
        "manifest cut",
        "manifest empty",
        "no manifest",
        "no current",
        "no store",
        "empty current",
        "only the mark",
        "no file",
        "cut",
    ],
)
async def test_where_the_node_does_not_start_the_check_says_that_it_is_damaged(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    path = tmp_path / "store"
    async with QueueManager.open(path) as qm:
        await qm.create_queue(NAME)
        for family in qm.store._families.values():
            family.flush()
    damage(path)
    files = sorted(file.name for file in path.glob("*.sst"))
    with pytest.raises(StoreError):
        verify(path)
    with pytest.raises(StoreError) as refused:
        await QueueManager.open(path)
    assert "qmnode restore" in str(refused.value)
    assert sorted(file.name for file in path.glob("*.sst")) == files  # nothing was removed by trying
