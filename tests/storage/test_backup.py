"""Backups: a checkpoint beside the running node, and a restore that knows it is a copy."""

from pathlib import Path

import pytest

from qmnode import Access, Message, QueueManager
from qmnode.storage.backup import restore
from qmnode.storage.errors import StoreError

NAME = r".\private$\orders"
FORMAT = rf"DIRECT=OS:{NAME}"


async def send(qm: QueueManager, *bodies: bytes) -> list[bytes]:
    async with await qm.open_queue(FORMAT, Access.SEND) as queue:
        return await queue.send_many([Message(body, recoverable=True) for body in bodies])


async def bodies(data: Path) -> list[bytes]:
    async with QueueManager.open(data) as qm, await qm.open_queue(FORMAT) as queue:
        return [message.body for message in await queue.receive_many(100, timeout=0)]


async def test_a_backup_of_a_running_node_is_restored_as_it_was_then(tmp_path: Path) -> None:
    async with QueueManager.open(tmp_path / "store") as qm:
        await qm.create_queue(NAME)
        await send(qm, b"before")
        await qm.backup(tmp_path / "backup")
        await send(qm, b"after")
    seen: list[tuple[int, int]] = []
    count = restore(tmp_path / "backup", tmp_path / "copy", lambda done, total: seen.append((done, total)))
    assert seen[-1] == (count, count)
    assert await bodies(tmp_path / "copy") == [b"before"]
    assert await bodies(tmp_path / "store") == [b"before", b"after"]


async def test_a_restored_node_gives_out_no_identifier_that_the_original_gave_out_after_the_backup(
    tmp_path: Path,
) -> None:
    async with QueueManager.open(tmp_path / "store") as qm:
        await qm.create_queue(NAME)
        await qm.backup(tmp_path / "backup")
        later = await send(qm, *[b"x"] * 1000)
    restore(tmp_path / "backup", tmp_path / "copy")
    async with QueueManager.open(tmp_path / "copy") as qm:
        assert not set(await send(qm, *[b"y"] * 1000)) & set(later)


async def test_a_backup_is_private(tmp_path: Path) -> None:
    async with QueueManager.open(tmp_path / "store") as qm:
        await qm.backup(tmp_path / "backup")
    assert (tmp_path / "backup").stat().st_mode & 0o777 == 0o700
    restore(tmp_path / "backup", tmp_path / "copy")
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o700


async def test_a_backup_does_not_overwrite_and_leaves_nothing_when_it_fails(tmp_path: Path) -> None:
    async with QueueManager.open(tmp_path / "store") as qm:
        (tmp_path / "backup").mkdir()
        with pytest.raises(StoreError, match="exists already"):
            await qm.backup(tmp_path / "backup")
        with pytest.raises(StoreError, match="cannot be written"):
            await qm.backup(tmp_path / "none" / "backup")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "store"]


def test_what_is_no_backup_is_not_restored(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(StoreError, match="no backup"):
        restore(tmp_path / "other", tmp_path / "copy")


async def test_nothing_is_overwritten_by_a_restore(tmp_path: Path) -> None:
    async with QueueManager.open(tmp_path / "store") as qm:
        await qm.backup(tmp_path / "backup")
    with pytest.raises(StoreError, match="not empty"):
        restore(tmp_path / "backup", tmp_path / "store")


async def test_a_directory_that_was_made_before_becomes_private_with_the_store(tmp_path: Path) -> None:
    for name in ("store", "copy"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o755)
    async with QueueManager.open(tmp_path / "store") as qm:
        await qm.backup(tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "copy")
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("store", "copy")] == [0o700, 0o700]
