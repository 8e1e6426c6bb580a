"""Directories and buckets under one kind of name: ``/var/lib/segments``, ``file:///...`` or ``s3://bucket/prefix``.

Region, endpoint and credentials of a bucket come from the environment as AWS's own tools read it. The address may also
give the endpoint: ``s3://bucket/prefix?endpoint_override=http://127.0.0.1:9000``.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from pyarrow import fs

from qmnode.errors import ConfigurationError
from qmnode.export.events import shown


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in a place."""

    path: str
    """The path in its file system."""
    size: int
    modified: datetime

    @property
    def name(self) -> str:
        """The name without its directories."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Place:
    """A directory in a file system. Opened where it is used, because a file system cannot be sent between processes."""

    address: str
    """The address as the operator wrote it."""
    root: str
    file_system: Any

    @classmethod
    def open(cls, address: str) -> Self:
        """Open the place of an address. Raises ConfigurationError for an unknown file system."""
        if "://" not in address:
            return cls(address, str(Path(address).absolute()), fs.LocalFileSystem())
        try:
            file_system, root = fs.FileSystem.from_uri(address)
        except (ValueError, OSError) as error:
            raise ConfigurationError(f"{shown(address)}: {error}; use a directory or s3://bucket/prefix") from error
        return cls(address, root.rstrip("/"), file_system)

    @property
    def is_local(self) -> bool:
        """Whether it is a directory of this machine."""
        return isinstance(self.file_system, fs.LocalFileSystem)

    def files(self, suffix: str = "") -> Iterator[StoredFile]:
        """All files below, at any depth, except temporary ones; none if the place does not exist. Raises OSError."""
        # A selector for a prefix that is itself a file finds nothing, so check that case first.
        root = self.file_system.get_file_info(self.root)
        found = [root] if root.type == fs.FileType.File else self._below()
        for one in found:
            hidden = any(part.startswith((".", "_")) for part in one.path[len(self.root) :].split("/"))
            if one.type == fs.FileType.File and one.path.endswith(suffix) and not hidden:
                yield StoredFile(one.path, one.size or 0, one.mtime or datetime.fromtimestamp(0, UTC))

    def _below(self) -> list[Any]:
        found: list[Any] = self.file_system.get_file_info(
            fs.FileSelector(self.root, recursive=True, allow_not_found=True)
        )
        return found

    def put(self, path: str, content: Any) -> None:
        """Write a file atomically: whole or absent, for readers and after a crash. Raises OSError."""
        full = f"{self.root}/{path}"
        if not self.is_local:
            with self.file_system.open_output_stream(full) as stream:
                stream.write(content)
            return
        target = Path(full)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.tmp")
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
        folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def delete(self, path: str) -> None:
        """Delete a file, by its path in ``files``. Raises OSError."""
        self.file_system.delete_file(path)


def below(address: str, folder: str) -> str:
    """The address of a folder in a place, keeping the parameters of the address."""
    path, mark, parameters = address.partition("?") if "://" in address else (address, "", "")
    return f"{path.rstrip('/')}/{folder}{mark}{parameters}"
