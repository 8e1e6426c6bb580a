"""Private keys in one file of mode 0600, replaced as a whole, encrypted by its :mod:`~qmnode.security.sealing`."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NoReturn

from qmnode.security.errors import KeyStoreError
from qmnode.security.key_records import decode_contents, encode_contents
from qmnode.security.key_ring import KeyPair
from qmnode.security.key_store import (
    KeyStoreConflictError,
    KeyStoreContents,
    KeyStoreOptions,
    KeyStoreUnavailableError,
)
from qmnode.security.private_files import as_owner_of, read_private
from qmnode.security.sealing import NoSealing, PassphraseSealing, Sealing

MODE: Final = 0o600


def open_file_key_store(options: KeyStoreOptions) -> FileKeyStore:
    """The store that the settings ``path`` and ``passphrase_file`` describe in the node's directory."""
    unknown = sorted(set(options.settings) - {"path", "passphrase_file"})
    if unknown:
        raise KeyStoreError(f"a file key store has no settings {', '.join(unknown)}")
    path = options.directory / options.settings.get("path", "keys")
    named = options.settings.get("passphrase_file")
    return FileKeyStore(path, None if named is None else PassphraseSealing(options.directory / named))


class FileKeyStore:
    """A :class:`~qmnode.security.key_store.KeyStore` in a file. Calls run in a thread."""

    def __init__(self, path: Path, sealing: Sealing | str | None = None) -> None:
        """``sealing`` may be a passphrase."""
        self._path = path
        self._sealing = PassphraseSealing(sealing) if isinstance(sealing, str) else sealing or NoSealing()

    def __repr__(self) -> str:
        return f"<FileKeyStore {self._path}, protected by {self._sealing.protection}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key store holds the way to its keys and is not copied to another process")

    async def read(self) -> KeyStoreContents:
        """The contents; refuses a file that others can read, or that another user owns."""
        return await asyncio.to_thread(self.read_now)

    async def replace(self, pairs: tuple[KeyPair, ...], *, expected_version: int) -> int:
        """Write the file anew beside the old one, sync it, and put it in its place."""
        return await asyncio.to_thread(self.replace_now, pairs, expected_version=expected_version)

    def read_now(self) -> KeyStoreContents:
        """As :meth:`read`, for callers that may block."""
        folder = self._path.parent
        with as_owner_of(folder):
            stored = read_private(self._path)
        if stored is None:
            if not folder.is_dir():
                raise self._elsewhere("cannot be read")
            return KeyStoreContents(0, ())
        where = str(self._path)
        return decode_contents(self._sealing.open(stored, where), where)

    def replace_now(self, pairs: tuple[KeyPair, ...], *, expected_version: int) -> int:
        """As :meth:`replace`, for callers that may block."""
        try:
            with self._exclusive():
                found = self.read_now().version
                if found != expected_version:
                    raise KeyStoreConflictError(
                        f"{self._path} is at version {found}, not {expected_version}: read it again"
                    )
                clear = encode_contents(KeyStoreContents(found + 1, pairs))
                sealed = self._sealing.seal(clear, str(self._path))
                with as_owner_of(self._path.parent):
                    self._store(sealed)
                return found + 1
        except FileNotFoundError:
            raise self._elsewhere("cannot be written") from None
        except OSError as error:
            raise KeyStoreUnavailableError(f"{self._path} cannot be written: {error.strerror}") from None

    def _elsewhere(self, fault: str) -> KeyStoreUnavailableError:
        return KeyStoreUnavailableError(
            f"{self._path} {fault}: there is no folder {self._path.parent} on this machine; "
            f"do this where the node's keys are, or say where they are"
        )

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        """One writer at a time, also across processes. The lock is a file of its own: the store's is replaced."""
        with as_owner_of(self._path.parent):
            flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC
            lock = os.open(self._path.with_name(self._path.name + ".lock"), flags, MODE)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _store(self, stored: bytes) -> None:
        fresh = self._path.with_name(f"{self._path.name}.new")
        with contextlib.suppress(FileNotFoundError):
            fresh.unlink()  # of a writer that was killed; the lock says that none is at work
        file = os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, MODE)
        with os.fdopen(file, "wb") as stream:
            os.fchmod(file, MODE)
            stream.write(stored)
            stream.flush()
            os.fsync(file)
        fresh.replace(self._path)
        directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
