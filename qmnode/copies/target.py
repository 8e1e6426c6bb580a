"""Where a copy is kept: a folder, or a bucket of S3. Both hold pieces by name, each whole or absent."""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol

from qmnode.errors import ConfigurationError
from qmnode.storage.large_messages import sync_folder

PIECE: Final = 16 * 1024 * 1024
"""Most bytes of a piece before it is sealed."""
LARGEST: Final = PIECE + 4096
"""Most bytes of a stored piece: what is larger is not read."""
_PART: Final = ".part"
_BUCKET: Final = "s3://"


class CopyError(Exception):
    """The copy could not be written or read; the sentence says why."""


class Target(Protocol):
    """A place for pieces. Calls block, and raise CopyError."""

    def names(self) -> list[str]:
        """The names of all pieces."""

    def put(self, name: str, *parts: bytes) -> None:
        """Write a piece, which is durable afterwards."""

    def get(self, name: str) -> bytes:
        """Read a piece, of at most ``LARGEST`` bytes."""

    def remove(self, name: str) -> None:
        """Remove a piece, if it is there."""


def open_target(to: str) -> Target:
    """The target of an address: an absolute folder, or ``s3://bucket/prefix``. Raises ConfigurationError."""
    if to.startswith(_BUCKET):
        return Bucket(to)
    if "://" in to or not Path(to).is_absolute():
        raise ConfigurationError(f"{to!r:.200} is no place for a copy: name an absolute folder, or s3://bucket/prefix")
    return Folder(Path(to))


class Folder:
    """A folder that only its owner may enter. It is made if its parent exists: else its disk may not be mounted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_closed = False

    def names(self) -> list[str]:
        """The names of regular files; links and folders are nobody's pieces."""
        try:
            with os.scandir(self.path) as entries:
                return [one.name for one in entries if one.is_file(follow_symlinks=False)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _failed(self.path, error) from error

    def put(self, name: str, *parts: bytes) -> None:
        """Write beside, sync, and rename."""
        part = self.path / f".{name}{_PART}"
        try:
            self._close_to_others()
            part.unlink(missing_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                with os.fdopen(os.open(part, flags, 0o600), "wb") as file:
                    file.writelines(parts)
                    file.flush()
                    os.fsync(file.fileno())
                part.rename(self.path / name)
            except BaseException:
                part.unlink(missing_ok=True)
                raise
            sync_folder(self.path)
        except OSError as error:
            self._is_closed = False
            raise _failed(self.path, error) from error

    def _close_to_others(self) -> None:
        """Make the folder if it is not there. A copy has many pieces: they are looked through once."""
        if not self.path.is_dir():
            self.path.mkdir(0o700)
        elif not self._is_closed and not any(self.path.iterdir()):
            # made by an administrator, who may not have thought of it
            with contextlib.suppress(PermissionError):
                self.path.chmod(0o700)
        self._is_closed = True

    def get(self, name: str) -> bytes:
        """Read a regular file of at most ``LARGEST`` bytes."""
        path = self.path / name
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with os.fdopen(os.open(path, flags), "rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
                    raise CopyError(f"{path} is no piece of a copy: it is no file, or larger than any piece")
                return file.read(LARGEST)
        except OSError as error:
            raise _failed(path, error) from error

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        try:
            (self.path / name).unlink(missing_ok=True)
        except OSError as error:
            raise _failed(self.path, error) from error


def _failed(path: Path, error: OSError) -> CopyError:
    return CopyError(f"{path}: {error.strerror or error}")


class Bucket:
    """A prefix in a bucket. Region, endpoint and credentials come from the environment, as AWS's own tools read it."""

    def __init__(self, to: str) -> None:
        try:
            import boto3
            from botocore.config import Config
        except ImportError:
            raise ConfigurationError(f"{to!r:.200} needs the extra aws: pip install 'qmnode[aws]'") from None
        bucket, _, prefix = to.removeprefix(_BUCKET).partition("/")
        if not bucket:
            raise ConfigurationError(f"{to!r:.200} names no bucket: write s3://bucket/prefix")
        self._place = {"Bucket": bucket}
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        # Bounded in time: 2 attempts of (3 + 20) s.
        config = Config(connect_timeout=3, read_timeout=20, retries={"total_max_attempts": 2, "mode": "standard"})
        try:
            self._client: Any = boto3.session.Session().client("s3", config=config)
        except Exception as error:  # BotoCoreError or ValueError, by version
            raise ConfigurationError(f"{to!r:.200} cannot be used: {error}") from None

    def names(self) -> list[str]:
        """The names below the prefix, without those of deeper folders."""
        return [name for name in self._listed() if "/" not in name]

    def _listed(self) -> Iterator[str]:
        with _calls():
            pages = self._client.get_paginator("list_objects_v2").paginate(**self._place, Prefix=self._prefix)
            for page in pages:
                for one in page.get("Contents", ()):
                    yield one["Key"].removeprefix(self._prefix)

    def put(self, name: str, *parts: bytes) -> None:
        """Write an object, which replaces one of this name."""
        with _calls():
            self._client.put_object(**self._place, Key=self._prefix + name, Body=b"".join(parts))

    def get(self, name: str) -> bytes:
        """Read an object of at most ``LARGEST`` bytes."""
        with _calls():
            found = self._client.get_object(**self._place, Key=self._prefix + name)
            piece: bytes = found["Body"].read(LARGEST + 1)
        if len(piece) > LARGEST:
            raise CopyError(f"{name} is larger than any piece of a copy")
        return piece

    def remove(self, name: str) -> None:
        """Remove an object, if it is there."""
        with _calls():
            self._client.delete_object(**self._place, Key=self._prefix + name)


@contextlib.contextmanager
def _calls() -> Iterator[None]:
    """Turn what the library raises into CopyError."""
    try:
        yield
    except CopyError:
        raise
    except Exception as error:
        raise CopyError(f"S3: {error}") from error
