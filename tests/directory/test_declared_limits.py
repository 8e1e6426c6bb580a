"""What the directory declares for a machine and the enterprise, its node obeys: at once, over restart and outage."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import qmnode
from mqenterprise.directory.admission import admit
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import guid_to_text, new_guid
from tests.directory.test_membership import installed as installed
from tests.directory.test_membership import node_settings, running
from tests.lab.directory_objects import change
from tests.lab.nodes import running_node
from tests.lab.waiting import until, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mqenterprise.directory.open_directory import EnterpriseDirectory
    from qmnode.local.remote import RemoteQueueManager
    from tests.lab.nodes import NodeProcess

    Named = Callable[[str], str]

QUEUE = r".\private$\orders"
JOURNALED = r"ALPHA\PRIVATE$\JOURNALED"
ELSEWHERE = r"DIRECT=OS:elsewhere.example\private$\orders"
MACHINE = {"identifier": guid_to_text(new_guid()), "computer_name": "ALPHA"}
ENTERPRISE = {"identifier": guid_to_text(new_guid())}


class DeclaredMachine:
    """A machine in a file directory, and its node."""

    def __init__(self, file: Path, **limits: int) -> None:
        self.file = file
        self.declare(**limits)

    def declare(self, default_time_to_live: int | None = None, **quotas: int) -> None:
        enterprise: dict[str, Any] = ENTERPRISE
        if default_time_to_live is not None:
            enterprise = ENTERPRISE | {"default_time_to_live": default_time_to_live}
        fresh = self.file.with_suffix(".fresh")
        fresh.write_text(yaml.safe_dump({"queue_managers": [MACHINE | quotas], "enterprise": [enterprise]}))
        fresh.replace(self.file)

    @contextmanager
    def node(self, folder: Path, **settings: Any) -> Iterator[NodeProcess]:
        directory = {"name": "file", "settings": {"file": str(self.file)}}
        with running_node(folder, directory=directory, **settings) as node:
            yield node


async def create(manager: RemoteQueueManager, path: str, **properties: Any) -> None:
    try:
        await manager.create_queue(path, **properties)
    except qmnode.MessageQueuingError as error:
        assert error.code is ErrorCode.MQ_ERROR_QUEUE_EXISTS


async def send(node: NodeProcess, size: int) -> None:
    async with qmnode.connect(node.socket) as manager:
        await create(manager, QUEUE)
        queue = await manager.open_queue(f"DIRECT=OS:{QUEUE}", qmnode.Access.SEND)
        await queue.send(qmnode.Message(bytes(size)))


async def refuses(node: NodeProcess, size: int) -> None:
    with pytest.raises(qmnode.MessageQueuingError, match="quota of the queue manager") as refused:
        await send(node, size)
    assert refused.value.code is ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES


async def journaled(node: NodeProcess, size: int) -> int:
    """Copies in the journal of a queue after one more message of that size was received from it."""
    async with qmnode.connect(node.socket) as manager:
        await create(manager, JOURNALED, journaling=True)
        sender = await manager.open_queue(f"DIRECT=OS:{JOURNALED}", qmnode.Access.SEND)
        await sender.send(qmnode.Message(bytes(size)))
        await (await manager.open_queue(f"DIRECT=OS:{JOURNALED}")).receive(timeout=60)
        return (await manager.queue(JOURNALED)).journal_message_count


def shown(node: NodeProcess) -> dict[str, Any]:
    done = node.command("status", "--json")
    assert done.returncode == 0, done.stderr
    quotas: dict[str, Any] = json.loads(done.stdout)["quotas"]
    return quotas


async def test_a_node_obeys_the_quota_that_the_directory_declares_and_its_changes(tmp_path: Path) -> None:
    machine = DeclaredMachine(tmp_path / "directory.yaml", queue_manager_quota=64, journal_quota=32)
    with machine.node(tmp_path / "node", quotas={"queue_manager_quota": 1000}) as node:
        await refuses(node, 70_000)
        await send(node, 10_000)
        quotas = shown(node)
        assert (quotas["quota"], quotas["quota_source"]) == (64, "directory")
        assert (quotas["journal_quota"], quotas["journal_quota_source"]) == (32, "directory")
        assert "(from the directory)" in node.command("status").stdout

        assert await journaled(node, 40_000) == 0
        assert await journaled(node, 4_000) == 1

        machine.declare(queue_manager_quota=8)
        wait_until(lambda: shown(node)["quota"] == 8, 60, "the smaller quota holds")
        await refuses(node, 1_000)

        machine.declare()
        wait_until(lambda: shown(node)["quota_source"] == "settings", 60, "the settings hold again")
        assert shown(node)["quota"] == 1000
        await send(node, 70_000)
        assert shown(node)["journal_quota_source"] == "default"
        assert await journaled(node, 40_000) == 2

        machine.declare(queue_manager_quota=16)
        wait_until(lambda: shown(node)["quota"] == 16, 60, "it is declared again")
        machine.file.unlink()
        await refuses(node, 1_000)


async def test_settings_can_say_that_they_win(tmp_path: Path) -> None:
    machine = DeclaredMachine(tmp_path / "directory.yaml", queue_manager_quota=8)
    with machine.node(tmp_path / "node", quotas={"queue_manager_quota": 1000, "source": "local"}) as node:
        await send(node, 70_000)
        quotas = shown(node)
    assert (quotas["quota"], quotas["quota_source"]) == (1000, "settings")


async def times(manager: RemoteQueueManager, **properties: Any) -> int:
    """The time that a message has which was sent with these properties."""
    queue = await manager.open_queue(ELSEWHERE, qmnode.Access.SEND)
    await queue.send_many([qmnode.Message(b"x", **properties)])
    waiting = await manager.open_queue(ELSEWHERE, qmnode.Access.RECEIVE | qmnode.Access.ADMIN)
    return (await waiting.receive(timeout=60)).time_to_reach_queue


async def test_messages_have_the_time_that_the_enterprise_gives(tmp_path: Path) -> None:
    ways: tuple[dict[str, Any], ...] = {}, {"label": "a label"}, {"priority": 1, "recoverable": True}
    machine = DeclaredMachine(tmp_path / "directory.yaml", default_time_to_live=3600)
    with machine.node(tmp_path / "node") as node:
        async with qmnode.connect(node.socket) as manager:
            for properties in ways:
                assert await times(manager, **properties) == 3600
                assert await times(manager, time_to_reach_queue=60, **properties) == 60
            quotas = shown(node)
            assert (quotas["default_time_to_live"], quotas["default_time_to_live_source"]) == (3600, "directory")
            machine.declare()
            wait_until(lambda: shown(node)["default_time_to_live"] == 345_600, 60, "the default holds again")
            for properties in ways:
                assert await times(manager, **properties) == 345_600


@pytest.mark.servers
async def test_limits_outlive_a_restart_without_the_directory(
    directory: EnterpriseDirectory, tmp_path: Path, fresh_name: Named
) -> None:
    computer = fresh_name("NODE")
    admit(directory, computer, tmp_path / "given")
    file = tmp_path / "given" / "directory.yaml"
    settings = node_settings(tmp_path, computer, file)
    before = directory.enterprise()
    try:
        async with running(settings) as service:
            found = directory.queue_managers.find(computer)
            assert found is not None
            directory.queue_managers.modify(replace(found, queue_manager_quota=64), ("queue_manager_quota",))
            change(directory, before, default_time_to_live=3600)

            async def limits() -> bool:
                status = await service.manager.status()
                return (status.quota, status.default_time_to_live) == (64, 3600)

            await until(limits, "the changes hold")
        text = file.read_text()
        file.write_text(text.replace(directory.connection.settings.servers[0], "ldaps://127.0.0.1:1"))
        async with running(settings) as service:
            assert await limits()
    finally:
        change(directory, before, default_time_to_live=before.default_time_to_live)
