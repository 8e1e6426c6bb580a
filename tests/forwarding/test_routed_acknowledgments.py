"""Whose acknowledgments count for what is on its way over a routing server; and what role a node takes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from qmnode import Access, Message, QueueManager
from qmnode.directory.file import FileDirectory
from qmnode.protocol.incoming_sequences import Route
from qmnode.structures.guid import Guid, guid_to_text, new_guid
from tests.forwarding.enterprise import Directory, Machine
from tests.lab.waiting import eventually
from tests.transport.conftest import TRANSACTIONAL, loopback_address, settings_of
from tests.transport.hostile import HostilePeer
from tests.transport.test_hostile_peers import acknowledgments

MALLORY = new_guid()
BODIES = [b"1", b"2", b"3"]


class Line:
    """SOURCE, ROUTER and TARGET, with no other way from one end to the other."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self.folder = folder
        self.machines = {
            "SOURCE": Machine("SOURCE", ["south"]),
            "ROUTER": Machine("ROUTER", ["south", "north"], routing_server=True),
            "TARGET": Machine("TARGET", ["north"]),
        }
        self.directory = Directory(folder / "directory.yaml", self.machines)
        self.directory.write()
        self._stack = stack

    async def start(self, name: str) -> QueueManager:
        machine = self.machines[name]
        settings = settings_of(name, machine.listens)
        node = await QueueManager.open(self.folder / name, settings, directory=FileDirectory(self.directory.file))
        self._stack.push_async_callback(node.close)
        node.adopt_identifier(machine.identifier)
        await node.network.start()
        return node


@pytest.fixture
async def line(tmp_path: Path) -> AsyncIterator[Line]:
    async with AsyncExitStack() as stack:
        yield Line(tmp_path, stack)


async def test_a_routing_server_closes_idle_sessions_sooner(line: Line) -> None:
    """MS-MQQB 3.1.2.2 note 44."""
    source, router = await line.start("SOURCE"), await line.start("ROUTER")
    assert (source.network.session_settings.cleanup_interval, router.network.session_settings.cleanup_interval) == (
        300,
        120,
    )
    line.machines["ROUTER"].routing_server = False
    line.directory.write()
    router.network.read_topology_soon()
    await eventually(lambda: router.network.session_settings.cleanup_interval == 300)


@pytest.mark.parametrize("kind", ["private", "public"])
async def test_only_the_destination_acknowledges_what_goes_over_a_routing_server(line: Line, kind: str) -> None:
    source, _, target = await line.start("SOURCE"), await line.start("ROUTER"), await line.start("TARGET")
    if kind == "public":
        identifier = (await target.create_queue(r".\tx", transactional=True)).identifier
        name, here = f"PUBLIC={guid_to_text(Guid(identifier))}", r"DIRECT=OS:.\tx"
    else:
        await target.create_queue(TRANSACTIONAL, transactional=True)
        name, here = f"PRIVATE={guid_to_text(target.identifier)}\\00000005", f"DIRECT=OS:{TRANSACTIONAL}"
    await target.close()
    out = await source.open_queue(name, Access.SEND)
    for body in BODIES:
        await out.send(Message(body, positive_journaling_requested=True), transaction="single")
    sequences = source.network.state.outgoing
    await eventually(lambda: [sequence.sent for sequence in sequences if sequence.sent] == [3])
    (sequence,) = (one for one in sequences if one.sent)

    for author in (MALLORY, line.machines["ROUTER"].identifier):
        async with HostilePeer(loopback_address(), line.machines["SOURCE"].listens) as peer:
            await peer.establish(author)
            for packet in acknowledgments(source.identifier, Route(False, ""), author, sequence.active_id, 3):
                peer.send(packet)
            assert await peer.is_closed()
    assert sequence.acknowledged == 0
    assert not source.journal_queue.message_count

    target = await line.start("TARGET")
    queue = await target.open_queue(here)
    assert [(await queue.receive(timeout=60)).body for _ in BODIES] == BODIES
    await eventually(lambda: source.journal_queue.message_count == len(BODIES))
