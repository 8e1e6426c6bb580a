"""The free space on the disk under a store, and whether it accepts writes."""

import contextlib
import os
from pathlib import Path
from typing import Final

RESERVE: Final = ".reserve"
"""The file that gives its room back when the disk is full, so that the store can be opened and messages received."""
_SMALL_DISK: Final = 1024 * 1024 * 1024
"""Only smaller disks have a reserve: RocksDB's own files may fill them."""
_RESERVE_OF_DISK: Final = 12
_PROBE: Final = ".probe"
_PROBE_SIZE: Final = 1024 * 1024


def space(path: Path) -> tuple[int, int]:
    """The free bytes (for this process) and the total bytes of the file system. Zeros if unknown."""
    try:
        found = os.statvfs(path)
    except OSError:
        return 0, 0
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize


def keep_reserve(path: Path) -> None:
    """Make the reserve of a small disk, if there is room for three of it."""
    free, total = space(path)
    size = total // _RESERVE_OF_DISK
    file = path / RESERVE
    if not 0 < total < _SMALL_DISK or free < 3 * size or file.exists():
        return
    with contextlib.suppress(OSError):
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)
        finally:
            os.close(descriptor)


def release_reserve(path: Path) -> None:
    """Give the room of the reserve back."""
    with contextlib.suppress(OSError):
        (path / RESERVE).unlink(missing_ok=True)


def probe(path: Path) -> OSError | None:
    """Write and sync a mebibyte in this directory. Return the error, or None."""
    file = path / _PROBE
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            left = memoryview(os.urandom(_PROBE_SIZE))
            while left:
                left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        return error
    finally:
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)
    return None
