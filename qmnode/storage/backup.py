"""Backups of a store: made beside the running node, and restored to a directory for a node to start on."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

from qmnode.storage.errors import StoreError
from qmnode.storage.large_messages import FOLDER, sync_folder
from qmnode.storage.origin import COPY_MARKER
from qmnode.storage.store import Store, make_private

_PRIVATE: Final = 0o700
_CHUNK: Final = 4 * 1024 * 1024
_CURRENT: Final = "CURRENT"
"""The file that every RocksDB store has: a directory without it is no store."""


async def back_up(store: Store, path: Path) -> None:
    """Write a checkpoint to the new directory ``path``, readable for its owner only, while the node continues.

    Files are hard links on the store's own file system, copies elsewhere. Raises StoreError if the directory exists or
    cannot be written, and then leaves nothing behind.
    """
    store.flush()
    try:
        # The thread goes on when the caller is cancelled, and needs the files until its end.
        await asyncio.shield(asyncio.ensure_future(_write_kept(store, path)))
    except StoreError:
        raise
    except Exception as error:  # RocksDB's exceptions have no common class
        raise StoreError(f"the backup {path} cannot be written: {error}") from error


async def _write_kept(store: Store, path: Path) -> None:
    with store.keep_large_messages():
        await asyncio.to_thread(_write, store, path)


def _write(store: Store, path: Path) -> None:
    if path.resolve().is_relative_to(store.path.resolve()):
        raise StoreError(
            f"{path} is in the folder of the store itself: a backup goes beside it, best onto another disk"
        )
    if path.exists():
        raise StoreError(f"{path} exists already: a backup goes into a new directory")
    # Inside a directory that is private from its first moment: RocksDB makes its own with the umask's permissions.
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as folder:
        written = Path(folder) / "checkpoint"
        store.write_checkpoint(written)
        (written / COPY_MARKER).touch()
        written.chmod(_PRIVATE)
        sync_folder(written)
        written.rename(path)
    sync_folder(path.parent)


def restore(backup: Path, data: Path, progress: Callable[[int, int], None] = lambda done, total: None) -> int:
    """Copy a backup into ``data``, which is empty or missing, so that a node can be started on it. Return the bytes
    copied.

    The node will know that it runs on a copy. ``progress`` is called with the bytes done and the total. Raises
    StoreError if the backup is invalid, ``data`` is not empty, or copying fails; then ``data`` is left empty.
    """
    if not (backup / _CURRENT).is_file():
        raise StoreError(f"{backup} is no backup: there is no file {_CURRENT} in it; name a directory of qmnode backup")
    if data.exists() and any(data.iterdir()):
        raise StoreError(f"{data} is not empty: restore into an empty directory, or move its files away first")
    for path in (*backup.iterdir(), *(backup / FOLDER).glob("*")):
        if path.is_symlink():  # else its author would read files with the rights of the caller
            raise StoreError(f"{path} is a link, which no backup has: remove it if you know what it leads to")
    try:
        make_private(data)
        return _copy(backup, data, progress)
    except OSError as error:
        _empty(data)
        raise StoreError(f"{backup} cannot be restored to {data}: {error.strerror or error}") from error


def _copy(backup: Path, data: Path, progress: Callable[[int, int], None]) -> int:
    files = sorted(path for path in backup.iterdir() if path.is_file() and path.name not in ("LOCK", _CURRENT))
    if (large := backup / FOLDER).is_dir():
        files += sorted(path for path in large.iterdir() if path.is_file())
        (data / FOLDER).mkdir(_PRIVATE)
    # CURRENT last: without it, the directory is not taken for a store.
    files.append(backup / _CURRENT)
    total, done = sum(path.stat().st_size for path in files), 0
    (data / COPY_MARKER).touch()
    for path in files:
        copy = data / path.relative_to(backup)
        with _opened(path) as source, copy.open("wb") as target:
            while chunk := source.read(_CHUNK):
                target.write(chunk)
                done += len(chunk)
                progress(done, total)
            target.flush()
            os.fsync(target.fileno())
        copy.chmod(0o600)
    if large.is_dir():
        sync_folder(data / FOLDER)
    sync_folder(data)
    return done


def _opened(path: Path) -> BinaryIO:
    """A file of a backup to read. OSError if it has become a link."""
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")


def _empty(folder: Path) -> None:
    if folder.is_dir():
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
