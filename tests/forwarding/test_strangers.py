"""Whose messages a node passes on: those for machines of the enterprise, also for one that has only just joined."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from qmnode import Access, Message, QueueManager
from qmnode.directory.file import FileDirectory
from qmnode.directory.port import DirectoryObject, Filter
from qmnode.model.api import QueueType
from qmnode.structures.guid import guid_to_text, new_guid
from qmnode.structures.message_classes import MessageClass
from qmnode.structures.queue_formats import DirectQueueFormatName, PrivateQueueFormatNameId
from tests.forwarding.enterprise import Directory, Machine
from tests.protocol.machines import message
from tests.transport.conftest import PLAIN, eventually, loopback_address, settings_of
from tests.transport.hostile import HostilePeer


class Counting(FileDirectory):
    """A directory that counts how often it is searched."""

    searches = 0

    async def read_directory_begin(
        self,
        object_type: type[DirectoryObject],
        filters: Sequence[Filter] = (),
        attributes: Collection[str] | None = None,
    ) -> int:
        self.searches += 1
        return await super().read_directory_begin(object_type, filters, attributes)


@dataclass
class Stale:
    """A routing server whose directory does not have TARGET yet, which SOURCE has."""

    fresh: Directory
    stale: Directory
    machines: dict[str, Machine]
    start: Callable[[str, Directory], Coroutine[None, None, QueueManager]]

    @property
    def name(self) -> str:
        """Of the first private queue of TARGET."""
        return f"PRIVATE={guid_to_text(self.machines['TARGET'].identifier)}\\00000005"


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Stale]:
    machines = {
        "SOURCE": Machine("SOURCE", ["south"]),
        "ROUTER": Machine("ROUTER", ["south", "north"], routing_server=True),
        "TARGET": Machine("TARGET", ["north"]),
    }
    fresh = Directory(tmp_path / "fresh.yaml", machines)
    stale = Directory(tmp_path / "stale.yaml", {name: one for name, one in machines.items() if name != "TARGET"})
    stale.sites = fresh.sites
    fresh.write()
    stale.write()
    async with AsyncExitStack() as stack:

        async def start(name: str, directory: Directory) -> QueueManager:
            machine = machines[name]
            node = await QueueManager.open(
                tmp_path / name, settings_of(name, machine.listens), directory=FileDirectory(directory.file)
            )
            stack.push_async_callback(node.close)
            node.adopt_identifier(machine.identifier)
            await node.network.start()
            return node

        yield Stale(fresh, stale, machines, start)


async def send(node: QueueManager, name: str, body: bytes, **more: Any) -> None:
    async with await node.open_queue(name, Access.SEND) as out:
        await out.send(Message(body, recoverable=True, **more))


async def test_a_machine_that_has_just_joined_is_looked_up_before_its_messages_are_refused(lab: Stale) -> None:
    source, _, target = (
        await lab.start("SOURCE", lab.fresh), await lab.start("ROUTER", lab.stale), await lab.start("TARGET", lab.fresh)
    )  # fmt: skip
    await target.create_queue(PLAIN)
    lab.stale.machines = lab.machines
    lab.stale.write()
    await send(source, lab.name, b"welcome")
    async with await target.open_queue(f"DIRECT=OS:{PLAIN}") as queue:
        assert (await queue.receive(timeout=60)).body == b"welcome"


async def test_nothing_is_passed_on_to_who_is_not_in_the_directory_but_kept_if_that_was_asked_for(lab: Stale) -> None:
    source, router = await lab.start("SOURCE", lab.fresh), await lab.start("ROUTER", lab.stale)
    await send(source, lab.name, b"let go")
    await send(source, lab.name, b"to a stranger", negative_journaling_requested=True)
    async with await router.open_queue(r"DIRECT=OS:.\SYSTEM$;DEADLETTER") as queue:
        dead = await queue.receive(timeout=60)
    assert (dead.body, dead.message_class) == (b"to a stranger", MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q)
    await eventually(lambda: not any(one.message_count for one in source.queue_collection.values()))
    assert not router.queue_collection.dead_letter.message_count
    assert not [one for one in await router.queues([QueueType.OUTGOING]) if one.pathname == lab.name]


async def test_only_names_that_lead_to_a_machine_have_the_directory_read(lab: Stale, tmp_path: Path) -> None:
    """A direct name says itself where its queue is: whatever stands in QueueManagerAddress reads nothing."""
    address, stranger = lab.machines["ROUTER"].listens, new_guid()
    directory = Counting(lab.stale.file)
    async with QueueManager.open(tmp_path / "ROUTER", settings_of("ROUTER", address), directory=directory) as router:
        router.adopt_identifier(lab.machines["ROUTER"].identifier)
        await router.network.start()
        await router.create_queue(PLAIN)
        before = directory.searches
        direct = DirectQueueFormatName(direct_format_name=rf"TCP:{address}\private$\plain")
        private = PrivateQueueFormatNameId(private_queue_identifier=5)
        async with (
            HostilePeer(loopback_address(), address) as peer, await router.open_queue(f"DIRECT=OS:{PLAIN}") as queue
        ):  # fmt: skip
            await peer.establish(stranger)
            for number in range(1, 4):
                peer.send(message(number, address=new_guid(), queue=direct, sent_time=int(time.time())))
                assert (await queue.receive(timeout=60)).body == b"hello"
            assert directory.searches == before
            peer.send(message(4, address=stranger, queue=private, sent_time=int(time.time())))
            await eventually(lambda: directory.searches > before)
