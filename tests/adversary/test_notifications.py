"""Change notifications (MS-MQCN) that anybody sends: a node reads its directory for them, and believes nothing."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from qmnode import QueueManager
from qmnode.directory.file import FileDirectory
from qmnode.directory.membership import Membership
from qmnode.directory.port import Queue
from qmnode.errors import MessageQueuingError
from qmnode.model.queue_collection import NOTIFICATIONS_QUOTA
from qmnode.settings.node import DirectoryMembershipSettings, NodeSettings
from qmnode.structures.change_notification import ChangeEvent, Notification
from qmnode.structures.guid import Guid, guid_to_text, new_guid
from tests.adversary import wire
from tests.adversary.attacks import Area, attack
from tests.adversary.peer import session
from tests.transport.conftest import loopback_address, settings_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


class Counting(FileDirectory):
    """A directory that counts how often it is read for one node."""

    def __init__(self, file: Path) -> None:
        super().__init__(file)
        self.reads: list[tuple[str, object]] = []

    async def read_directory(self, object_type: Any, filters: Any = (), attributes: Any = None, **more: Any) -> Any:
        if more.get("force_directory_read"):
            self.reads.append((object_type.__name__, filters[0].value))
        return await super().read_directory(object_type, filters, attributes, **more)

    async def read_directory_begin(self, object_type: Any, *others: Any, **more: Any) -> int:
        if object_type is Queue:
            self.reads.append(("Queue", "all"))
        return await super().read_directory_begin(object_type, *others, **more)


class Owner:
    """A node in a directory with two public queues, and a clock that the test moves."""

    def __init__(self, manager: QueueManager, directory: Counting, address: str) -> None:
        self.manager, self.directory, self.address = manager, directory, address
        self.seconds = 0.0
        settings = NodeSettings(directory=DirectoryMembershipSettings(name="file", notification_interval=60))
        self.membership = Membership(directory, manager, settings, lambda: self.seconds)
        self.queues: list[Guid] = []
        self._sent = 0

    async def notify(self, *bodies: bytes, queue: wire.Name | None = None) -> None:
        """Send notifications from a stranger, who claims to be whoever he likes."""
        packets = []
        for body in bodies:
            self._sent += 1
            packets.append(
                wire.UserMessage(
                    source=wire.identifier(), message_id=self._sent, address=self.manager.identifier,
                    queue=queue or wire.private(3), body=body, delivery=wire.EXPRESS,
                ).packet()
            )  # fmt: skip
        async with session(loopback_address(), self.address, wire.identifier()) as peer:
            await peer.say(*packets)

    @property
    def waiting(self) -> int:
        return self.manager.queue_collection.notify.message_count

    async def reads_after(self, seconds: float) -> list[tuple[str, object]]:
        """What the node reads of the directory when so much time has passed."""
        self.seconds += seconds
        self.directory.reads.clear()
        await self.membership._process_notifications()
        return list(self.directory.reads)


@asynccontextmanager
async def owner_in(folder: Path) -> AsyncIterator[Owner]:
    file = folder / "directory.yaml"
    file.write_text("{}")
    directory, address = Counting(file), loopback_address()
    async with QueueManager.open(folder / "bob", settings_of("BOB", address), directory=directory) as manager:
        owner = Owner(manager, directory, address)
        await owner.membership.join()
        owner.queues = [(await manager.create_queue(f".\\q{number}")).identifier for number in range(2)]
        await manager.network.start()
        yield owner


def said(guid: Guid, event: ChangeEvent = ChangeEvent.QUEUE_CHANGED, server: str = "evil.test") -> bytes:
    return Notification(event, guid, server).write()


@attack(
    Area.DOORS,
    can="send any number of change notifications for a node's queues and for unknown objects, with deletions and with "
    "a directory server of the attacker's own",
    promised="the node believes none of them: it reads the named objects of its own directory, at most once a minute, "
    "and keeps its queues",
)
async def test_forged_notifications_only_make_the_directory_be_read_at_a_bounded_rate(tmp_path: Path) -> None:
    async with owner_in(tmp_path) as owner:
        first, second = owner.queues
        deletion = said(second, ChangeEvent.QUEUE_DELETED)
        await owner.notify(said(first), said(first), deletion, b"\x02\x01junk", b"")
        assert await owner.reads_after(0) == [("Queue", first), ("Queue", second)] or owner.directory.reads == [
            ("Queue", second), ("Queue", first),
        ]  # fmt: skip
        assert owner.waiting == 0
        assert {one.identifier for one in await owner.manager.queues()} >= {first, second}

        await owner.notify(said(new_guid()), said(owner.manager.identifier, ChangeEvent.QUEUE_MANAGER_CHANGED))
        assert await owner.reads_after(59) == []
        assert owner.waiting == 2
        assert await owner.reads_after(1) == [("QueueManager", owner.manager.identifier), ("Queue", "all")]

        await owner.notify(*[said(new_guid()) for _ in range(500)])
        assert owner.manager.queue_collection.notify.total_bytes <= NOTIFICATIONS_QUOTA * 1024
        reads = await owner.reads_after(60)
        assert sorted(reads, key=str) == sorted(
            [("Queue", first), ("Queue", second), ("QueueManager", owner.manager.identifier), ("Queue", "all")], key=str
        )
        assert owner.waiting == 0


async def test_a_notification_of_an_old_directory_service_makes_everything_be_read(tmp_path: Path) -> None:
    async with owner_in(tmp_path) as owner:
        await owner.notify(b"\x01\x01" + bytes(100), queue=wire.direct(rf"TCP:{owner.address}\private$\notify_queue$"))
        assert len(await owner.reads_after(0)) == 4


async def test_the_notification_queue_is_closed_to_applications_and_in_workgroup_mode(tmp_path: Path) -> None:
    async with owner_in(tmp_path) as owner:
        for name in (r"DIRECT=OS:.\private$\notify_queue$", f"PRIVATE={guid_to_text(owner.manager.identifier)}\\3"):
            with pytest.raises(MessageQueuingError, match="for the queue manager only"):
                await owner.manager.open_queue(name)
    address = loopback_address()
    async with QueueManager.open(tmp_path / "alone", settings_of("ALONE", address)) as manager:
        await manager.network.start()
        alone = wire.UserMessage(
            source=wire.identifier(), message_id=1, address=manager.identifier, queue=wire.private(3),
            body=said(new_guid()), delivery=wire.EXPRESS,
        )  # fmt: skip
        async with session(loopback_address(), address, wire.identifier()) as peer:
            await peer.say(alone.packet())
        assert manager.queue_collection.notify.message_count == 0
