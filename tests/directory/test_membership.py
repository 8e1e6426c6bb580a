"""A node as a service that belongs to a directory: who it is there, and that it runs while the directory is away."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import qmnode.directory.membership
from mqenterprise.directory.admission import admit
from qmnode import QueueManager
from qmnode.directory.file import FileDirectory
from qmnode.directory.membership import Membership, directory_of
from qmnode.directory.port import (
    ENTRY_POINT_GROUP,
    DirectoryOperationError,
    DirectoryOperationResult,
    Queue,
    open_directory,
)
from qmnode.errors import ConfigurationError
from qmnode.model.public_queues import PublishedQueues
from qmnode.service import Service
from qmnode.settings.node import NodeSettings, Settings
from qmnode.structures.guid import Guid, guid_to_text, new_guid

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from mqenterprise.directory.open_directory import EnterpriseDirectory

    Named = Callable[[str], str]

LDAP = EntryPoint("ldap", "mqenterprise.directory.port:open_port", ENTRY_POINT_GROUP)


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The project's entry point, also where it is not installed."""
    monkeypatch.setattr(qmnode.directory.membership, "open_directory", partial(open_directory, factories=[LDAP]))


def node_settings(folder: Path, computer: str, given: Path | None) -> NodeSettings:
    return NodeSettings.model_validate(
        {
            "data": folder / "data",
            "transport": {"enabled": False},
            "computer_name": computer,
            "local": {"socket": folder / "socket"},
            "management": {"socket": folder / "management"},
            "directory": {"name": "ldap", "settings": {"file": str(given), "answer_limit": 15}} if given else {},
        }
    )


@asynccontextmanager
async def running(settings: NodeSettings) -> AsyncIterator[Service]:
    service = Service(settings)
    started = asyncio.Event()
    task = asyncio.create_task(service.run(started.set))
    waiting = asyncio.create_task(started.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED, timeout=60)
    waiting.cancel()
    if task.done():
        await task
    try:
        yield service
    finally:
        service.stop()
        await task


@pytest.mark.servers
class TestJoining:
    async def test_a_node_takes_the_identifier_of_the_directory_and_keeps_it(
        self, directory: EnterpriseDirectory, tmp_path: Path, fresh_name: Named
    ) -> None:
        computer = fresh_name("NODE")
        admitted = admit(directory, computer, tmp_path / "given")
        settings = node_settings(tmp_path, computer, tmp_path / "given" / "directory.yaml")

        for _ in range(2):
            async with running(settings) as service:
                assert service.manager.identifier == admitted.identifier

    async def test_its_public_queues_are_published_under_its_own_identity(
        self, directory: EnterpriseDirectory, tmp_path: Path, fresh_name: Named
    ) -> None:
        computer = fresh_name("NODE")
        admit(directory, computer, tmp_path / "given")
        settings = node_settings(tmp_path, computer, tmp_path / "given" / "directory.yaml")

        async with running(settings) as service:
            made = await service.manager.create_queue(f"{computer}\\orders", label="mine")

            found = directory.queues.find(f"{computer}\\orders")
            assert found is not None and found.identifier == made.identifier
            await service.manager.delete_queue(f"{computer}\\orders")
        assert directory.queues.find(f"{computer}\\orders") is None

    async def test_a_change_in_the_directory_reaches_the_queue(
        self, directory: EnterpriseDirectory, tmp_path: Path, fresh_name: Named
    ) -> None:
        computer = fresh_name("NODE")
        admit(directory, computer, tmp_path / "given")
        settings = node_settings(tmp_path, computer, tmp_path / "given" / "directory.yaml")
        async with running(settings) as service:
            await service.manager.create_queue(f"{computer}\\orders", label="old")
            published = directory.queues.find(f"{computer}\\orders")
            assert published is not None

            directory.queues.modify(replace(published, label="new", quota=77), ("label", "quota"))

            async with asyncio.timeout(60):
                while (known := await service.manager.queue(f"{computer}\\orders")).label != "new":
                    await asyncio.sleep(0.02)
            assert known.quota == 77
            sender = await service.manager.open_queue(f"DIRECT=OS:{computer}\\orders", qmnode.Access.SEND)
            await sender.close()

    async def test_a_node_with_messages_keeps_its_identifier(
        self, directory: EnterpriseDirectory, tmp_path: Path, fresh_name: Named
    ) -> None:
        computer = fresh_name("NODE")
        async with running(node_settings(tmp_path, computer, None)) as service:
            await service.manager.create_queue(f"{computer}\\PRIVATE$\\kept")
            alone = service.manager.identifier
            queue = await service.manager.open_queue(f"DIRECT=OS:{computer}\\PRIVATE$\\kept", qmnode.Access.SEND)
            await queue.send(qmnode.Message(body=b"kept", recoverable=True))
            await queue.close()
        admit(directory, computer, tmp_path / "given")

        async with running(node_settings(tmp_path, computer, tmp_path / "given" / "directory.yaml")) as service:
            assert service.manager.identifier == alone

    async def test_a_node_starts_while_its_directory_is_away(
        self, directory: EnterpriseDirectory, tmp_path: Path, fresh_name: Named
    ) -> None:
        computer = fresh_name("NODE")
        admitted = admit(directory, computer, tmp_path / "given")
        file = tmp_path / "given" / "directory.yaml"
        settings = node_settings(tmp_path, computer, file)
        async with running(settings):
            pass
        text = file.read_text()
        file.write_text(text.replace(directory.connection.settings.servers[0], "ldaps://127.0.0.1:1"))

        async with running(settings) as service:
            assert service.manager.identifier == admitted.identifier
            await service.manager.create_queue(f"{computer}\\PRIVATE$\\works")
            (warning,) = (await service.manager.status()).warnings
            assert warning.startswith("directory: it does not answer")


def test_a_directory_that_is_not_installed_stops_the_node_with_a_sentence(tmp_path: Path) -> None:
    settings = NodeSettings.model_validate({"data": tmp_path, "directory": {"name": "x500"}})

    with pytest.raises(ConfigurationError, match="x500"):
        directory_of(settings)


def test_without_a_name_there_is_no_directory(tmp_path: Path) -> None:
    assert directory_of(NodeSettings.model_validate({"data": tmp_path})) is None


@pytest.mark.servers
async def test_queues_that_an_administrator_publishes_are_taken_over(
    directory: EnterpriseDirectory, tmp_path: Path, fresh_name: Named
) -> None:
    computer = fresh_name("NODE")
    admit(directory, computer, tmp_path / "given")
    before = directory.queues.add(Queue(pathname=f"{computer}\\orders", transactional=True, label="declared"))
    settings = node_settings(tmp_path, computer, tmp_path / "given" / "directory.yaml")

    async with running(settings) as service:
        manager = service.manager
        (taken,) = [each for each in await manager.queues() if each.pathname.lower().endswith("\\orders")]
        assert (taken.identifier, taken.transactional, taken.label) == (before.identifier, True, "declared")

        directory.queues.add(Queue(pathname=f"{computer}\\prices", journaling=True))

        async with asyncio.timeout(60):
            while not any(each.pathname.lower().endswith("\\prices") for each in await manager.queues()):
                await asyncio.sleep(0.05)
        await (await manager.open_queue(f"DIRECT=OS:{computer}\\prices")).close()


class WatchedFile(FileDirectory):
    """A file that says by hand that it has changed."""

    def watch(self, on_changed: Callable[[Guid | None], None]) -> None:
        self.tell = on_changed


async def test_when_anything_may_have_changed_queues_may_be_new(tmp_path: Path) -> None:
    """A feed of changes that begins late, or has lost its place, tells of no object by itself."""
    declared: dict[str, list[dict[str, str]]] = {
        "queue_managers": [
            {
                "identifier": guid_to_text(new_guid()),
                "computer_name": "ALPHA",
                "qualified_computer_name": "alpha.example",
            }
        ]
    }
    file = tmp_path / "directory.yaml"
    file.write_text(yaml.safe_dump(declared))
    directory = WatchedFile(file)
    settings = node_settings(tmp_path, "ALPHA", None)

    async with QueueManager.open(tmp_path / "data", Settings(computer_name="ALPHA")) as manager:
        membership = Membership(directory, manager, settings)
        manager.published = PublishedQueues(manager.context, directory)
        await membership.join()
        declared["queues"] = [{"identifier": guid_to_text(new_guid()), "pathname": "ALPHA\\prices"}]
        file.write_text(yaml.safe_dump(declared))
        directory.tell(None)
        async with asyncio.timeout(60):
            while not any(each.pathname.lower().endswith("\\prices") for each in await manager.queues()):
                await asyncio.sleep(0.05)


class ClosedFile(FileDirectory):
    """A file to which this node may add nothing, as its account in a directory may not."""

    async def create_directory_object(self, made: Any) -> Guid:
        raise DirectoryOperationError(DirectoryOperationResult.GENERIC_ERROR, "insufficientAccessRights")


@pytest.mark.parametrize(
    ("entered", "state"),
    [
        (("ALPHA",), "joined"),
        (("alpha",), "joined"),
        (("BETA", "Alpha"), "joined"),
        (("ALHPA",), "not joined"),
        (("ALPHA1", "ALPH"), "not joined"),
        ((), "not joined"),
    ],
)
async def test_the_status_says_whether_a_node_has_joined_under_its_name(
    tmp_path: Path, entered: tuple[str, ...], state: str
) -> None:
    rows = [
        {"identifier": guid_to_text(new_guid()), "computer_name": name, "qualified_computer_name": f"{name}.example"}
        for name in entered
    ]
    file = tmp_path / "directory.yaml"
    file.write_text(yaml.safe_dump({"queue_managers": rows}))
    async with QueueManager.open(tmp_path / "data", Settings(computer_name="ALPHA")) as manager:
        await Membership(ClosedFile(file), manager, node_settings(tmp_path, "ALPHA", None)).join()
        status = await manager.status()
    assert status.directory == state
    warned = [one for one in status.warnings if "ALPHA has not joined the directory: " in one]
    assert len(warned) == (state == "not joined")
