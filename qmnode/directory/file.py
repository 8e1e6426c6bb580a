"""A directory in one YAML file that several nodes of a machine share: for tests, and for small installations.

Objects are lists of mappings under ``queue_managers``, ``queues``, ``users``, ``sites``, ``routing_links`` and
``enterprise``, with the attributes' names of :mod:`qmnode.directory.port`. GUIDs are text, other bytes hexadecimal.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import fcntl
import os
import types
import typing
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import fields, replace
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml

from qmnode.directory import port
from qmnode.directory.port import (
    DirectoryObject,
    DirectoryOperationError,
    DirectoryOperationResult,
    DirectoryOptions,
    Filter,
)
from qmnode.settings.yaml_text import read_yaml
from qmnode.structures.guid import Guid, guid_from_text, guid_to_text, new_guid

Stamp = tuple[int, int, int]
"""Time of change, size and number of the file."""
WATCH_INTERVAL: Final = 0.5
"""Seconds between two looks at the file."""
AnyObject = TypeVar("AnyObject", bound=DirectoryObject)

_SECTIONS: Final[dict[type[DirectoryObject], str]] = {
    port.Enterprise: "enterprise",
    port.Site: "sites",
    port.RoutingLink: "routing_links",
    port.QueueManager: "queue_managers",
    port.Queue: "queues",
    port.User: "users",
}
_UNIONS: Final = (typing.Union, types.UnionType)
_GONE: Final = {"annotation", "clustered", "directory_server_type", "qualified_pathname", "remote_access_server"}
"""Attributes in the files of earlier releases."""
_NAMES: Final = {"computer", "computer_name", "pathname", "name", "qualified_computer_name"}
"""Attributes whose comparison ignores case."""


def open_file_directory(options: DirectoryOptions) -> FileDirectory:
    """The directory whose file the setting ``file`` names."""
    path = options.settings.get("file")
    if not isinstance(path, str) or set(options.settings) != {"file"}:
        raise _failure(DirectoryOperationResult.GENERIC_ERROR, "a file directory has one setting, file: its path")
    return FileDirectory(Path(path))


class FileDirectory(port.WorkgroupDirectory):
    """The directory events over a YAML file. The file is small and local: reading it takes milliseconds."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[type[DirectoryObject], list[DirectoryObject]] = {}
        self._stamp: Stamp | None = None
        self._listeners: list[Callable[[Guid | None], None]] = []
        self._watcher: asyncio.Future[None] | None = None
        self._searches: dict[int, list[DirectoryObject]] = {}
        self._handles = count(1)

    async def create_directory_object(self, directory_object: DirectoryObject) -> Guid:
        identifier = directory_object.identifier or new_guid()
        with self._writing() as objects:
            same = objects.setdefault(type(directory_object), [])
            if any(one.identifier == identifier or _same_name(one, directory_object) for one in same):
                raise _failure(DirectoryOperationResult.OBJECT_ALREADY_EXISTS, "there is such an object already")
            same.append(replace(directory_object, identifier=identifier))
        return identifier

    async def delete_directory_object(self, directory_object: DirectoryObject) -> None:
        with self._writing() as objects:
            same = objects.setdefault(type(directory_object), [])
            same.remove(_find(same, directory_object))

    async def write_directory(
        self, directory_object: DirectoryObject, attributes: Collection[str] | None = None
    ) -> None:
        with self._writing() as objects:
            same = objects.setdefault(type(directory_object), [])
            old = _find(same, directory_object)
            names = {one.name for one in fields(directory_object)} if attributes is None else set(attributes)
            values = {name: getattr(directory_object, name) for name in names}
            changed = {name: value for name, value in values.items() if value is not None}
            same[same.index(old)] = replace(old, **changed)

    async def read_directory(
        self,
        object_type: type[AnyObject],
        filters: Sequence[Filter] = (),
        attributes: Collection[str] | None = None,
        *,
        force_directory_read: bool = False,
    ) -> AnyObject:
        for found in self._matching(object_type, filters):
            return found
        raise _failure(DirectoryOperationResult.OBJECT_NOT_FOUND, f"no such {object_type.__name__} is in {self._path}")

    async def read_directory_begin(self, object_type: type[DirectoryObject], filters: Sequence[Filter] = ()) -> int:
        handle = next(self._handles)
        self._searches[handle] = list(self._matching(object_type, filters))
        return handle

    async def read_directory_next(self, handle: int) -> DirectoryObject:
        found = self._searches.get(handle)
        if not found:
            raise _failure(DirectoryOperationResult.END_OF_DATA, "there are no more objects")
        return found.pop(0)

    async def read_directory_end(self, handle: int) -> None:
        self._searches.pop(handle, None)

    async def check_directory_online(self) -> bool:
        return self._path.exists()

    def watch(self, on_changed: Callable[[Guid | None], None]) -> None:
        """Call it after each change of the file, with None: any object may have changed."""
        self._listeners.append(on_changed)
        if self._watcher is None:
            self._watcher = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        seen = self._file_stamp()
        while True:
            await asyncio.sleep(WATCH_INTERVAL)
            if (stamp := self._file_stamp()) not in (seen, None):
                seen = stamp
                for listener in self._listeners:
                    listener(None)

    def _file_stamp(self) -> Stamp | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    async def close(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()

    # The file

    def _matching(self, object_type: type[AnyObject], filters: Sequence[Filter]) -> Iterator[AnyObject]:
        for one in self._read().get(object_type, []):
            if isinstance(one, object_type) and all(_satisfies(one, each) for each in filters):
                yield one

    def _read(self) -> dict[type[DirectoryObject], list[DirectoryObject]]:
        try:
            stamp = self._file_stamp()
            if stamp is None or stamp != self._stamp:
                self._known = _decode(read_yaml(self._path.read_text(encoding="utf-8")) or {})
                self._stamp = stamp
        except OSError as error:
            raise _failure(DirectoryOperationResult.DIRECTORY_NOT_CONNECTED, f"{self._path}: {error}") from error
        except (yaml.YAMLError, ValueError, TypeError, AttributeError) as error:
            raise _failure(DirectoryOperationResult.GENERIC_ERROR, f"{self._path}: {error}") from error
        return self._known

    @contextlib.contextmanager
    def _writing(self) -> Iterator[dict[type[DirectoryObject], list[DirectoryObject]]]:
        """Yield the objects for changes; the file is replaced as a whole if the block succeeds."""
        with self._path.with_name(self._path.name + ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            objects = {kind: list(found) for kind, found in self._read().items()}
            yield objects
            fresh = self._path.with_name(f"{self._path.name}.{os.getpid()}")
            fresh.write_text(yaml.safe_dump(_encode(objects)), encoding="utf-8")
            fresh.replace(self._path)


def _failure(result: DirectoryOperationResult, sentence: str) -> DirectoryOperationError:
    return DirectoryOperationError(result, sentence)


def _satisfies(one: DirectoryObject, condition: Filter) -> bool:
    have, wanted = getattr(one, condition.attribute), condition.value
    if condition.attribute in _NAMES and isinstance(have, str) and isinstance(wanted, str):
        have, wanted = have.casefold(), wanted.casefold()
    return have is not None and bool(have == wanted)


def _same_name(one: DirectoryObject, other: DirectoryObject) -> bool:
    return any(
        getattr(one, name).casefold() == getattr(other, name).casefold()
        for name in ("computer_name", "pathname", "name")
        if getattr(one, name, None) and getattr(other, name, None)
    )


def _find(objects: list[DirectoryObject], wanted: DirectoryObject) -> DirectoryObject:
    for one in objects:
        if one.identifier == wanted.identifier if wanted.identifier is not None else _same_name(one, wanted):
            return one
    raise _failure(DirectoryOperationResult.OBJECT_NOT_FOUND, "there is no such object")


def _decode(sections: dict[str, Any]) -> dict[type[DirectoryObject], list[DirectoryObject]]:
    return {
        kind: [
            kind(**{name: _value(hints[name], value) for name, value in entry.items() if name not in _GONE})
            for entry in sections.get(section) or ()
        ]
        for kind, section in _SECTIONS.items()
        for hints in (_hints(kind),)
    }


def _hints(kind: type[DirectoryObject]) -> dict[str, Any]:
    return typing.get_type_hints(kind, vars(port) | {"Guid": Guid})


def _value(hint: Any, value: Any) -> Any:
    """Convert a value of the file to the attribute's type."""
    if typing.get_origin(hint) in _UNIONS:
        return None if value is None else _value(typing.get_args(hint)[0], value)
    if typing.get_origin(hint) is tuple:
        return tuple(_value(typing.get_args(hint)[0], one) for one in value)
    if hint is Guid:
        return guid_from_text(value)
    if hint is bytes:
        return bytes.fromhex(value)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return hint(value)
    return value


def _encode(objects: dict[type[DirectoryObject], list[DirectoryObject]]) -> dict[str, Any]:
    return {
        _SECTIONS[kind]: [
            {
                one.name: _text(hints[one.name], getattr(each, one.name))
                for one in fields(each)
                if getattr(each, one.name) is not None
            }
            for each in found
        ]
        for kind, found in objects.items()
        for hints in (_hints(kind),)
    }


def _text(hint: Any, value: Any) -> Any:
    if typing.get_origin(hint) in _UNIONS:
        return _text(typing.get_args(hint)[0], value)
    if isinstance(value, tuple):
        return [_text(typing.get_args(hint)[0], one) for one in value]
    if hint is Guid:
        return guid_to_text(value)
    if isinstance(value, bytes):
        return value.hex()
    return value.value if isinstance(value, enum.Enum) else value
