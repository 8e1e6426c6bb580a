"""A public queue moves to another machine while a sender has messages for it: nothing is lost or doubled, whatever the
directory answers meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from qmnode import Access, Message, QueueManager
from qmnode.directory.file import FileDirectory
from qmnode.directory.port import DirectoryOperationError, DirectoryOperationResult, equals
from qmnode.directory.port import Queue as DirectoryQueue
from qmnode.model.queue import OutgoingQueue
from qmnode.settings.node import Settings
from qmnode.settings.protocol import TransferSettings
from qmnode.structures.guid import Guid, guid_to_text, new_guid
from qmnode.structures.names import PublicFormatName
from tests.lab.waiting import eventually, holds
from tests.transport.conftest import loopback_address, settings_of

LATE = {"order_ack_timeout": 1.5}
"""Messages are received long before their sender knows that."""
HURRIED = {"retry_interval": 0.1, "retry_maximum": 0.2, "maximum_order_ack_delay": 5.0}


class Estate:
    """A queue that is at OLD, and that NEW is ready to take over; SENDER sends to it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "directory.yaml"
        self.addresses = {name: loopback_address() for name in ("OLD", "NEW", "SENDER")}
        self.identifiers = {name: new_guid() for name in self.addresses}
        entries = [
            {"identifier": guid_to_text(self.identifiers[name]), "computer_name": name, "qualified_computer_name": one}
            for name, one in self.addresses.items()
        ]
        self.file.write_text(yaml.safe_dump({"queue_managers": entries}))
        self.directory = FileDirectory(self.file)
        self.nodes: dict[str, QueueManager] = {}
        self.queue = new_guid()
        self.next = 0

    @property
    def name(self) -> str:
        return f"PUBLIC={guid_to_text(self.queue)}"

    async def start(self, name: str, **transfer: float) -> QueueManager:
        settings: Settings = settings_of(name, self.addresses[name])
        settings = settings.model_copy(update={"transfer": TransferSettings(**HURRIED | transfer)})  # type: ignore[arg-type]
        node = await QueueManager.open(self.folder / name, settings, directory=FileDirectory(self.file))
        if node.identifier != self.identifiers[name]:
            node.adopt_identifier(self.identifiers[name])
        await node.network.start()
        self.nodes[name] = node
        return node

    async def stop(self, name: str) -> None:
        await self.nodes.pop(name).close()

    async def publish(self) -> None:
        created = await self.nodes["OLD"].create_queue(r".\orders", transactional=True)
        self.queue = Guid(created.identifier)
        await self.nodes["NEW"].published.take_over(PublicFormatName(self.queue))

    async def move(self, owner: str) -> None:
        found = await self.directory.read_directory(DirectoryQueue, [equals("identifier", self.queue)])
        await self.directory.write_directory(replace(found, pathname=rf"{owner}\orders"), ["pathname"])

    async def send(self, count: int) -> None:
        """Send the next numbers."""
        async with await self.nodes["SENDER"].open_queue(self.name, Access.SEND) as queue:
            for number in range(self.next, self.next + count):
                await queue.send(Message(b"%d" % number, recoverable=True), "single")
        self.next += count

    def count(self, name: str) -> int:
        return sum(
            queue.message_count
            for queue in self.nodes[name].queue_collection.values()
            if not isinstance(queue, OutgoingQueue) and queue.pathname.lower().endswith("orders")
        )

    def waiting(self) -> int:
        return sum(
            queue.message_count
            for queue in self.nodes["SENDER"].queue_collection.values()
            if isinstance(queue, OutgoingQueue)
        )

    async def received(self, name: str) -> list[int]:
        async with await self.nodes[name].open_queue(rf"DIRECT=OS:{name}\orders", Access.RECEIVE) as queue:
            return [int((await queue.receive(0)).body) for _ in range(self.count(name))]


@pytest.fixture
async def estate(tmp_path: Path) -> AsyncIterator[Estate]:
    one = Estate(tmp_path)
    await one.start("OLD", **LATE)
    await one.start("NEW")
    await one.start("SENDER")
    await one.publish()
    yield one
    for node in one.nodes.values():
        await node.close()


async def test_a_sender_leaves_the_old_owner_when_it_has_acknowledged_everything(estate: Estate) -> None:
    await estate.send(10)
    await eventually(lambda: estate.count("OLD") == 10, "OLD has the messages")
    await estate.move("NEW")
    await holds(lambda: goes_on(estate), 60, "messages come to NEW")
    await eventually(lambda: not estate.waiting(), "all are acknowledged")
    old, new = await estate.received("OLD"), await estate.received("NEW")
    assert old + new == list(range(len(old) + len(new))) and len(old) >= 10 and new


async def goes_on(estate: Estate) -> bool:
    """Send one more; whether NEW has a message."""
    await estate.send(1)
    return estate.count("NEW") > 0


async def test_a_sender_that_is_restarted_before_it_follows_asks_the_old_owner_first(estate: Estate) -> None:
    await estate.send(5)
    await eventually(lambda: not estate.waiting(), "OLD has acknowledged these")
    await estate.send(5)
    await eventually(lambda: estate.count("OLD") == 10, "OLD has the messages")
    await estate.stop("SENDER")
    await estate.move("NEW")
    await estate.start("SENDER")
    await eventually(lambda: not estate.waiting(), "OLD has said what it has")
    await estate.send(5)
    await eventually(lambda: estate.count("NEW") == 5 and not estate.waiting(), "the others come to NEW")
    assert (await estate.received("OLD"), await estate.received("NEW")) == (list(range(10)), list(range(10, 15)))


async def test_a_sender_that_is_restarted_does_not_wait_for_ever_for_an_old_owner_that_is_gone(estate: Estate) -> None:
    await estate.send(5)
    await eventually(lambda: not estate.waiting(), "OLD has acknowledged these")
    await estate.stop("OLD")
    await estate.send(5)
    await estate.stop("SENDER")
    await estate.move("NEW")
    await estate.start("SENDER", maximum_order_ack_delay=0.5)
    await eventually(lambda: estate.count("NEW") == 5 and not estate.waiting(), "NEW takes messages without the others")
    assert await estate.received("NEW") == list(range(5, 10))


@pytest.mark.parametrize("first", ["NEW", "OLD"])
async def test_answers_that_alternate_between_two_owners_lose_and_double_nothing(estate: Estate, first: str) -> None:
    second = "OLD" if first == "NEW" else "NEW"
    for turn in range(6):
        await estate.send(4)
        await estate.move((first, second)[turn % 2])
        await asyncio.sleep(0.2)
    await eventually(lambda: not estate.waiting(), "all are acknowledged")
    old, new = await estate.received("OLD"), await estate.received("NEW")
    assert sorted(old + new) == list(range(24))
    assert (old, new) == (sorted(old), sorted(new)), "each has its messages in order"


async def test_messages_stay_with_their_owner_while_the_directory_does_not_answer(
    estate: Estate, monkeypatch: pytest.MonkeyPatch
) -> None:
    await estate.send(5)
    await eventually(lambda: estate.count("OLD") == 5, "OLD has the messages")
    sender = estate.nodes["SENDER"]

    async def down(*_: object) -> Guid:
        raise DirectoryOperationError(DirectoryOperationResult.DIRECTORY_NOT_CONNECTED, "the directory is down")

    monkeypatch.setattr(sender.network.resolver, "owner", down)
    await estate.move("OLD")  # a change is noticed, and cannot be read
    await estate.send(5)
    await eventually(lambda: estate.count("OLD") == 10, "the session stays")
    (outgoing,) = [one for one in sender.queue_collection.values() if isinstance(one, OutgoingQueue)]
    sender.network.queue_sender(sender.network.state.key_of(outgoing)).queue_connection.leave()
    await estate.send(5)
    monkeypatch.undo()
    await eventually(lambda: estate.count("OLD") == 15 and not estate.waiting(), "the sender connects again")
    assert await estate.received("OLD") == list(range(15))


async def test_a_message_that_a_machine_on_the_way_addressed_to_the_old_owner_is_taken(
    estate: Estate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A routing server looks the queue up later than the sender, and brings the message to its new owner."""
    await estate.move("NEW")
    old, sender = estate.identifiers["OLD"], estate.nodes["SENDER"]

    async def outdated(*_: object, **__: object) -> Guid:
        return old

    monkeypatch.setattr(sender.network.protection, "owner", outdated)
    async with await sender.open_queue(estate.name, Access.SEND) as queue:
        await queue.send(Message(b"0", recoverable=True), "single")
    await eventually(lambda: estate.count("NEW") == 1, "NEW takes the message")
