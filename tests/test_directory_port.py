"""The port to a directory: the workgroup answer, and finding an implementation by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from qmnode.directory.port import (
    DirectoryOperationError,
    DirectoryOperationResult,
    DirectoryOptions,
    Queue,
    WorkgroupDirectory,
    equals,
    open_directory,
    search,
)
from qmnode.structures.guid import ZERO_GUID

if TYPE_CHECKING:
    from pathlib import Path


class InstalledDirectory:
    """An entry point as ``importlib.metadata`` gives it."""

    name = "ldap"

    def load(self) -> Any:
        return lambda options: options


def options(tmp_path: Path) -> DirectoryOptions:
    return DirectoryOptions(settings={}, cache_path=tmp_path)


def test_a_node_without_a_directory_runs_in_workgroup_mode(tmp_path: Path) -> None:
    directory = open_directory(None, options(tmp_path))

    assert isinstance(directory, WorkgroupDirectory)
    assert not directory.offline


async def test_workgroup_mode_answers_every_event_with_not_connected() -> None:
    directory = WorkgroupDirectory()
    queue = Queue(pathname="host\\orders")

    for call in (
        directory.create_directory_object(queue),
        directory.delete_directory_object(queue),
        directory.read_directory(Queue, [equals("pathname", "host\\orders")]),
        directory.read_directory_begin(Queue),
        directory.read_directory_next(1),
        directory.write_directory(queue),
        directory.resolve_distribution_list(ZERO_GUID),
        directory.resolve_queue_alias("CN=alias"),
    ):
        with pytest.raises(DirectoryOperationError) as refused:
            await call
        assert refused.value.result is DirectoryOperationResult.DIRECTORY_NOT_CONNECTED
        assert "workgroup" in refused.value.sentence
    assert not await directory.check_directory_online()


async def test_searching_in_workgroup_mode_says_so() -> None:
    with pytest.raises(DirectoryOperationError, match="workgroup"):
        async for _ in search(WorkgroupDirectory(), Queue):
            pass


def test_an_installed_directory_is_opened_with_its_options(tmp_path: Path) -> None:
    wanted = options(tmp_path)

    assert open_directory("ldap", wanted, factories=[InstalledDirectory()]) is wanted


def test_a_directory_that_is_not_installed_is_named_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(DirectoryOperationError, match=r"'x500' is installed \(known: ldap\)"):
        open_directory("x500", options(tmp_path), factories=[InstalledDirectory()])
