"""Searches for the public queues of the enterprise: in C, in Python, and as callers who may not see all of them."""

from __future__ import annotations

import asyncio
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import qmnode
from qmnode.administration.operation_rights import GuardedQueueManager
from qmnode.directory.file import FileDirectory
from qmnode.directory.port import Queue, WorkgroupDirectory
from qmnode.model.public_queues import PublishedQueues
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import Guid, guid_to_text, new_guid
from qmnode.structures.security_descriptor import Acl, QueueAccess, SecurityDescriptor, allow
from tests.certificates.enterprise import application_of
from tests.lab.nodes import NodeProcess, running_node
from tests.mqrt.conftest import OWN, Library, at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SERVICE = Guid(bytes(range(1, 17)))
QUEUES: dict[str, dict[str, Any]] = {
    r"beta\c": {"label": "Orders", "transactional": True},
    r"beta\a": {"label": "Orders"},
    r"beta\b": {"label": "Bills", "quota": 2000, "type": guid_to_text(SERVICE)},
    r"alpha\own": {"label": "Mine"},
}


def written(file: Path, more: dict[str, dict[str, Any]] | None = None) -> Path:
    """A directory with the queues, and some more."""
    queues = QUEUES | (more or {})
    machines = [{"identifier": guid_to_text(new_guid()), "computer_name": name} for name in ("ALPHA", "BETA")]
    content = {
        "queue_managers": machines,
        "queues": [{"identifier": guid_to_text(new_guid()), "pathname": name, **rest} for name, rest in queues.items()],
    }
    file.write_text(yaml.safe_dump(content))
    return file


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    folder = tmp_path_factory.mktemp("searches")
    file = written(folder / "directory.yaml")
    with running_node(folder / "node", directory={"name": "file", "settings": {"file": str(file)}}) as process:
        yield process


@pytest.mark.servers
def test_a_program_in_c_finds_public_queues(library: Library, node: NodeProcess) -> None:
    program = library.program(OWN / "searches.c")
    run = subprocess.run([program], env=at(node.socket), capture_output=True, text=True, timeout=120)
    assert (run.stdout.strip(), run.returncode) == ("", 0), run.stderr


@pytest.mark.servers
async def test_a_program_in_python_finds_public_queues(node: NodeProcess) -> None:
    async with qmnode.connect(node.socket) as manager:

        async def names(**criteria: Any) -> list[str]:
            return [queue.pathname for queue in await manager.find_queues(**criteria)]

        assert await names() == sorted(QUEUES)
        assert await names(label="Orders") == [r"beta\a", r"beta\c"]
        assert await names(label="Orders", computer="Beta", type=SERVICE) == []
        (bills,) = await manager.find_queues(type=SERVICE)
        assert (bills.label, bills.quota, bills.format_name) == (
            "Bills",
            2000,
            f"PUBLIC={guid_to_text(bills.identifier)}",
        )
        for wrong in ({"label": 3}, {"computer": b"beta"}, {"type": b"short"}):
            with pytest.raises(qmnode.MessageQueuingError) as refused:
                await names(**wrong)
            assert refused.value.code is ErrorCode.MQ_ERROR_INVALID_PARAMETER
    with qmnode.sync.connect(node.socket) as blocking:
        assert [queue.pathname for queue in blocking.find_queues(computer="alpha")] == [r"alpha\own"]


@pytest.mark.servers
async def test_many_queues_come_in_pages(tmp_path: Path) -> None:
    many = {rf"beta\more{number:05}": {} for number in range(450)}
    directory = {"name": "file", "settings": {"file": str(written(tmp_path / "directory.yaml", many))}}
    with running_node(tmp_path / "node", directory=directory) as node:
        async with qmnode.connect(node.socket) as manager:
            assert [queue.pathname for queue in await manager.find_queues(computer="beta")] == sorted(
                name for name in (QUEUES | many) if name.startswith("beta")
            )


@pytest.mark.servers
async def test_searches_that_nobody_reads_have_a_limit(node: NodeProcess) -> None:
    async with qmnode.connect(node.socket) as manager:
        for _ in range(8):
            await manager.connection.method("manager", 0, "find_queues", ())
        with pytest.raises(qmnode.MessageQueuingError, match="searches open"):
            await manager.find_queues()


async def test_searches_that_wait_for_the_directory_count_as_open(tmp_path: Path) -> None:
    async with qmnode.QueueManager.open(tmp_path / "node") as owner, application_of(owner, tmp_path) as manager:
        directory = FileDirectory(written(tmp_path / "directory.yaml"))
        owner.published = PublishedQueues(owner.context, directory)
        read, answers = directory.read_directory_begin, asyncio.Event()

        async def late(*asked: Any) -> Any:
            await answers.wait()
            return await read(*asked)

        directory.read_directory_begin = late  # type: ignore[method-assign]
        calls = [asyncio.ensure_future(manager.connection.method("manager", 0, "find_queues", ())) for _ in range(8)]
        calls.append(asyncio.ensure_future(manager.connection.method("manager", 0, "find_queues", ())))
        with pytest.raises(qmnode.MessageQueuingError, match="searches open"):
            await asyncio.wait_for(calls.pop(), 60)
        answers.set()
        assert len(set(await asyncio.gather(*calls))) == 8


async def test_others_get_turns_while_many_queues_are_shown_to_a_caller(tmp_path: Path) -> None:
    rows = [Queue(pathname=rf"beta\more{number:05}", identifier=new_guid()) for number in range(3000)]
    async with qmnode.QueueManager.open(tmp_path / "node") as manager:
        guarded = GuardedQueueManager(manager, manager.principals.of_unix_user(60_001))
        turns: list[int] = []

        async def found(*_: object) -> list[Queue]:
            asyncio.get_running_loop().call_soon(turns.append, 1)
            return rows

        manager.published.find = found  # type: ignore[method-assign]
        seen = asyncio.ensure_future(guarded.find_queues())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (turns, seen.done()) == ([1], False)
        assert len(await seen) == len(rows)


async def test_queues_are_hidden_from_callers_whom_their_descriptors_do_not_let_see_them(tmp_path: Path) -> None:
    async with qmnode.QueueManager.open(tmp_path / "node") as manager:
        owner, other = (
            GuardedQueueManager(manager, manager.principals.of_unix_user(user)) for user in (60_001, 60_002)
        )
        closed = SecurityDescriptor(dacl=Acl.of(allow(owner.principal.user, QueueAccess.MQSEC_GET_QUEUE_PROPERTIES)))
        hidden = {r"beta\a": {"security": closed.write().hex()}}
        directory = FileDirectory(written(tmp_path / "directory.yaml", hidden))
        manager.published = PublishedQueues(manager.context, directory)
        for user, seen in ((owner, True), (other, False)):
            names = {queue.pathname for queue in await user.find_queues()}
            assert (r"beta\a" in names, r"beta\b" in names, len(names)) == (seen, True, 3 + seen)


async def test_without_a_directory_nothing_can_be_found(tmp_path: Path) -> None:
    async with qmnode.QueueManager.open(tmp_path) as manager:
        for directory in (None, WorkgroupDirectory()):
            manager.published = PublishedQueues(manager.context, directory)
            with pytest.raises(qmnode.MessageQueuingError) as refused:
                await manager.find_queues()
            assert refused.value.code is ErrorCode.MQ_ERROR_NO_DS
