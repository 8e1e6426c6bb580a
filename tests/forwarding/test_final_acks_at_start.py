"""Final acknowledgments that a routing server delivers before the node can know that it may: they come only once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qmnode import QueueManager
from qmnode.delivery.topology import DirectoryResolver
from qmnode.directory.file import FileDirectory
from qmnode.model.stored_message import PREFIX_SIZE
from qmnode.protocol.connection import NextHop
from qmnode.structures.guid import Guid
from tests.adversary.lab import Enterprise, enterprise_in, receive, send, sent
from tests.adversary.wire import ACK_RECEIVE, Packet
from tests.lab.waiting import eventually
from tests.transport.conftest import TRANSACTIONAL, settings_of

pytestmark = pytest.mark.servers

BODIES = [b"1", b"2", b"3"]


@pytest.fixture
async def enterprise(tmp_path: Path) -> AsyncIterator[Enterprise]:
    """TARGET has received messages of SOURCE, which is down, and the final acknowledgments wait at ROUTER."""
    async with enterprise_in(tmp_path) as enterprise:
        source, router = await enterprise.start("SOURCE"), await enterprise.start("ROUTER")
        target = await enterprise.start("TARGET")
        await target.create_queue(TRANSACTIONAL, transactional=True)
        await send(source, enterprise.name("TARGET", 5), BODIES, positive_journaling_requested=True)
        await sent(source)
        assert source.queue_collection.awaiting_final_ack.message_count == len(BODIES)
        await enterprise.stop("SOURCE")
        assert await receive(target, TRANSACTIONAL, len(BODIES)) == BODIES
        await eventually(lambda: waiting_for(router, enterprise) == len(BODIES), "ROUTER has them")
        yield enterprise


def waiting_for(node: QueueManager, enterprise: Enterprise) -> int:
    """The number of acknowledgments for SOURCE that wait at a node, beside those of order."""
    queue = node.names.outgoing(node.names.parse(enterprise.name("SOURCE", 4)))
    if queue is None:
        return 0
    values = [value for _, value in queue.scan()] + [position.value for position in queue.locked.values()]
    return sum(Packet(value[PREFIX_SIZE:]).message_class == ACK_RECEIVE for value in values)


async def start_source(enterprise: Enterprise, file: Path) -> tuple[QueueManager, list[bool]]:
    """SOURCE with another file as its directory, and an entry for each final acknowledgment that has come to it."""
    machine, came = enterprise.machines["SOURCE"], list[bool]()
    settings = settings_of("SOURCE", machine.listens)
    node = await QueueManager.open(enterprise.folder / "SOURCE", settings, directory=FileDirectory(file))
    enterprise.nodes["SOURCE"] = node
    node.adopt_identifier(machine.identifier)
    acknowledgments = node.network.acknowledgments  # type: ignore[attr-defined]
    take = acknowledgments.take_final_ack

    def count(*received: object) -> None:
        came.append(True)
        take(*received)

    acknowledgments.take_final_ack = count
    await node.network.start()
    return node, came


async def test_they_come_again_while_the_directory_is_silent(
    enterprise: Enterprise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_PAUSE", "_FRESH_FAILURE"):
        monkeypatch.setattr(f"qmnode.delivery.topology.{name}", 0.5)
    file = tmp_path / "later.yaml"
    source, came = await start_source(enterprise, file)
    await eventually(lambda: bool(came), "they come")
    file.write_bytes(enterprise.directory.file.read_bytes())
    await eventually(lambda: source.journal_queue.message_count == len(BODIES), "they come again")


async def test_they_come_again_while_the_name_service_is_silent(
    enterprise: Enterprise, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("neighbours", "topology"):
        monkeypatch.setattr(f"qmnode.delivery.{module}._PATIENCE", 0.5)
    for name in ("_PAUSE", "_FRESH_FAILURE"):
        monkeypatch.setattr(f"qmnode.delivery.topology.{name}", 0.5)
    router, answers = enterprise.identifier("ROUTER"), DirectoryResolver.addresses

    async def silent(resolver: DirectoryResolver, machine: Guid) -> list[NextHop]:
        if machine == router:
            await asyncio.Event().wait()
        return await answers(resolver, machine)

    with monkeypatch.context() as patch:
        patch.setattr(DirectoryResolver, "addresses", silent)
        source, came = await start_source(enterprise, enterprise.directory.file)
        await eventually(lambda: bool(came), "they come")
    await eventually(lambda: source.journal_queue.message_count == len(BODIES), "they come again")


async def test_a_machine_that_has_become_a_routing_server_is_believed(enterprise: Enterprise, tmp_path: Path) -> None:
    machine, file = enterprise.machines["ROUTER"], tmp_path / "stale.yaml"
    await enterprise.nodes["ROUTER"].set_online(False)
    machine.routing_server = False
    enterprise.directory.write(file)
    source, _ = await start_source(enterprise, file)
    machine.routing_server = True
    enterprise.directory.write(file)
    await enterprise.nodes["ROUTER"].set_online(True)
    await eventually(lambda: source.journal_queue.message_count == len(BODIES), "they are believed")


async def test_a_destination_that_does_not_know_the_routing_server_yet_ends_nothing_silently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It refuses what looks like a stranger's copy without a word, so it must not let the source wait for one."""
    monkeypatch.setattr("qmnode.delivery.neighbours._ASK_AGAIN", 0.5)
    for module in ("neighbours", "topology"):
        monkeypatch.setattr(f"qmnode.delivery.{module}._PATIENCE", 0.5)
    for name in ("_PAUSE", "_FRESH_FAILURE"):
        monkeypatch.setattr(f"qmnode.delivery.topology.{name}", 0.5)
    async with enterprise_in(tmp_path) as enterprise:
        source, _ = (
            await enterprise.start("SOURCE", resend_timeouts=(1, 300, 1800, 21600)),
            await enterprise.start("ROUTER"),
        )
        router, answers = enterprise.identifier("ROUTER"), DirectoryResolver.addresses

        async def silent(resolver: DirectoryResolver, machine: Guid) -> list[NextHop]:
            if machine == router and resolver is target.network.resolver:  # type: ignore[attr-defined]
                await asyncio.Event().wait()
            return await answers(resolver, machine)

        with monkeypatch.context() as patch:
            target = await enterprise.start("TARGET")
            patch.setattr(DirectoryResolver, "addresses", silent)
            await send(source, enterprise.name("TARGET", 99), BODIES, negative_journaling_requested=True)
            tally = target.traffic.nowhere
            await eventually(lambda: sum(tally.rejected.values()) >= len(BODIES), "they are refused")
        dead = source.queue_collection.transactional_dead_letter
        await eventually(lambda: dead.message_count == len(BODIES), "the source learns it")
