"""The free space on the disk under a store, and whether it accepts writes."""

import contextlib
import os
from pathlib import Path
from typing import Final

_PROBE: Final = ".probe"
_PROBE_SIZE: Final = 1024 * 1024


def space(path: Path) -> tuple[int, int]:
    """The free bytes (for this process) and the total bytes of the file system. Zeros if unknown."""
    try:
        found = os.statvfs(path)
    except OSError:
        return 0, 0
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize


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
