"""Files with secrets: a file is read only if its mode lets its owner alone read it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import stat
from typing import TYPE_CHECKING, Any, Final

import structlog

from qmnode.security.errors import KeyStoreError, KeyStoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


LARGEST: Final = 8 * 1024 * 1024
"""Bytes that are read at most."""


@contextlib.contextmanager
def as_owner_of(folder: Path) -> Iterator[None]:
    """Let root use files of a folder as its owner, in this thread, who owns new ones. Nothing for other users."""
    if os.geteuid() != 0 or not folder.exists():
        yield
        return
    owner = folder.stat()
    system = _system()
    user, group = system.setfsuid(owner.st_uid), system.setfsgid(owner.st_gid)
    try:
        yield
    finally:
        system.setfsgid(group)
        system.setfsuid(user)


def _system() -> Any:
    import ctypes

    return ctypes.CDLL(None)


def _user() -> int:
    """The user as whom this thread uses files."""
    unchanged = -1
    return int(_system().setfsuid(unchanged)) if os.geteuid() == 0 else os.geteuid()


def read_private(path: Path) -> bytes | None:
    """The bytes of a file that this user owns and nobody else can read; None if there is no file."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise KeyStoreUnavailableError(f"{path} cannot be opened: {error.strerror}") from None
    try:
        _check_private(path, os.fstat(file))
        with os.fdopen(os.dup(file), "rb") as stream:
            return stream.read(LARGEST)
    except OSError as error:
        raise KeyStoreUnavailableError(f"{path} cannot be read: {error.strerror}") from None
    finally:
        os.close(file)


def _check_private(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise KeyStoreError(f"{path} is not a file")
    if status.st_mode & 0o177:
        mode = stat.S_IMODE(status.st_mode)
        raise KeyStoreError(f"{path} has mode {mode:04o}: others may know what is in it. Replace that; chmod 600")
    if status.st_uid != _user():
        raise KeyStoreError(f"{path} belongs to user {status.st_uid}, not to user {_user()}: run this as its owner")


# ----------------------------------------------------------------------------------------------------------------------
# Protection of a process that holds private keys: it leaves no core dump, and no other process reads its memory.

_PR_SET_DUMPABLE: Final = 4

log = structlog.get_logger(__name__)


def forbid_core_dumps() -> None:
    """No core file of this process or its children, whatever the shell allowed: it would hold the keys in clear.

    Where the system can (Linux), no other process of this user may read this one's memory either (prctl(2)).
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)
    if prctl is not None and prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        log.warning("other processes of this user may read this one's memory", error=ctypes.get_errno())
