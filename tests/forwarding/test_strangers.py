"""Whose messages a node passes on: those for machines of the enterprise, also for one that has only just joined.

Those for machines that its directory does not show wait for ``transfer.unknown_machine_patience``, and not too many.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest

from qmnode import Access, Message, MessageQueuingError, QueueManager
from qmnode.delivery.topology import DirectoryResolver
from qmnode.directory.file import FileDirectory
from qmnode.directory.port import DirectoryObject, Filter
from qmnode.model.api import QueueType
from qmnode.model.positions import SystemClock
from qmnode.model.queue import OutgoingQueue
from qmnode.protocol.connection import NextHop
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.guid import Guid, guid_to_text, new_guid
from qmnode.structures.user_message import (
    DirectQueueFormatName,
    PrivateQueueFormatName,
    PrivateQueueFormatNameId,
    TransactionHeader,
    UserFlags,
)
from tests.forwarding.enterprise import Directory, Machine
from tests.lab.waiting import eventually
from tests.model.conftest import FakeClock
from tests.protocol.machines import ALL_ACKNOWLEDGMENTS, message
from tests.transport.conftest import PLAIN, TRANSACTIONAL, loopback_address, settings_of
from tests.transport.hostile import HostilePeer


class Counting(FileDirectory):
    """A directory that counts how often it is searched."""

    searches = 0

    async def read_directory_begin(self, object_type: type[DirectoryObject], filters: Sequence[Filter] = ()) -> int:
        self.searches += 1
        return await super().read_directory_begin(object_type, filters)


@dataclass
class Stale:
    """A routing server whose directory does not have TARGET yet, which SOURCE has."""

    fresh: Directory
    stale: Directory
    machines: dict[str, Machine]
    clock: FakeClock
    """Of ROUTER."""
    start: Callable[..., Coroutine[None, None, QueueManager]]
    """A node by its name and directory; settings of ``transfer`` may follow."""

    @property
    def name(self) -> str:
        """Of the first private queue of TARGET."""
        return f"PRIVATE={guid_to_text(self.machines['TARGET'].identifier)}\\00000005"

    def catch_up(self) -> None:
        """The directory of ROUTER has TARGET too from now on."""
        self.stale.machines = self.machines
        self.stale.write()

    @property
    def router_address(self) -> str:
        return self.machines["ROUTER"].listens


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
    clock = FakeClock(time.time())
    async with AsyncExitStack() as stack:

        async def start(name: str, directory: Directory, **transfer: object) -> QueueManager:
            machine = machines[name]
            settings = settings_of(name, machine.listens)
            settings = settings.model_copy(update={"transfer": settings.transfer.model_copy(update=transfer)})
            node = await QueueManager.open(
                tmp_path / name,
                settings,
                directory=FileDirectory(directory.file),
                clock=clock if name == "ROUTER" else SystemClock(),
            )
            stack.push_async_callback(node.close)
            node.adopt_identifier(machine.identifier)
            await node.network.start()
            return node

        yield Stale(fresh, stale, machines, clock, start)


async def send(node: QueueManager, name: str, body: bytes, **more: Any) -> None:
    async with await node.open_queue(name, Access.SEND) as out:
        await out.send(Message(body, recoverable=True, **more))


@pytest.mark.parametrize("patience", [0, 60])
async def test_a_machine_that_has_just_joined_is_looked_up_before_its_messages_are_refused(
    lab: Stale, patience: int
) -> None:
    source, target = await lab.start("SOURCE", lab.fresh), await lab.start("TARGET", lab.fresh)
    router = await lab.start("ROUTER", lab.stale, unknown_machine_patience=patience)
    await eventually(lambda: router.network._topology.is_due)  # the directory was read a while ago
    await target.create_queue(PLAIN)
    lab.catch_up()
    await send(source, lab.name, b"welcome")
    async with await target.open_queue(f"DIRECT=OS:{PLAIN}") as queue:
        assert (await queue.receive(timeout=60)).body == b"welcome"


async def test_nothing_is_passed_on_to_who_is_not_in_the_directory_but_kept_if_that_was_asked_for(lab: Stale) -> None:
    source = await lab.start("SOURCE", lab.fresh)
    router = await lab.start("ROUTER", lab.stale, unknown_machine_patience=0)
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
        direct = DirectQueueFormatName(direct_format_name=rf"TCP:{address}\private$\plain")
        private = PrivateQueueFormatNameId(private_queue_identifier=5)
        async with (
            HostilePeer(loopback_address(), address) as peer, await router.open_queue(f"DIRECT=OS:{PLAIN}") as queue
        ):  # fmt: skip
            await peer.establish(stranger)  # who that is may be looked up once
            for number in range(1, 4):
                peer.send(message(number, address=new_guid(), queue=direct, sent_time=int(time.time())))
                assert (await queue.receive(timeout=60)).body == b"hello"
                if number == 1:
                    before = directory.searches
            assert directory.searches == before
            peer.send(message(4, address=stranger, queue=private, sent_time=int(time.time())))
            await eventually(lambda: directory.searches > before)


# They wait


async def test_messages_wait_for_a_machine_that_the_directory_shows_later(lab: Stale) -> None:
    """Express, recoverable and transactional ones, in their order; the router's own applications see no difference."""
    source, router = await lab.start("SOURCE", lab.fresh), await lab.start("ROUTER", lab.stale)
    target = await lab.start("TARGET", lab.fresh)
    await target.create_queue(PLAIN)
    await target.create_queue(TRANSACTIONAL, transactional=True)
    transactional = lab.name.replace("00000005", "00000006")
    async with await source.open_queue(lab.name, Access.SEND) as out:
        await out.send(Message(b"express"))
    await send(source, lab.name, b"recoverable")
    async with await source.open_queue(transactional, Access.SEND) as out:
        for number in range(3):
            await out.send(Message(bytes((number,))), transaction="single")
    await eventually(lambda: waiting(router, lab.name) == 2 and waiting(router, transactional) == 3)
    await send(router, lab.name, b"local")
    lab.catch_up()
    async with await target.open_queue(f"DIRECT=OS:{PLAIN}") as queue:
        assert {(await queue.receive(timeout=60)).body for _ in range(3)} == {b"express", b"recoverable", b"local"}
    async with await target.open_queue(f"DIRECT=OS:{TRANSACTIONAL}") as queue:
        assert [(await queue.receive(timeout=60)).body for _ in range(3)] == [b"\0", b"\1", b"\2"]


async def test_what_waited_for_too_long_is_refused(lab: Stale) -> None:
    """The other messages in the same outgoing queue, of this node's applications, stay."""
    source = await lab.start("SOURCE", lab.fresh)
    router = await lab.start("ROUTER", lab.stale, unknown_machine_patience=600)
    await send(router, lab.name, b"local")
    await send(source, lab.name, b"let go")
    await send(source, lab.name, b"kept", negative_journaling_requested=True)
    await eventually(lambda: waiting(router, lab.name) == 3)
    lab.clock.advance(598)
    assert waiting(router, lab.name) == 3
    lab.clock.advance(4)
    assert await dead_letter(router) == (b"kept", MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q)
    assert waiting(router, lab.name) == 1
    async with await router.open_queue(lab.name, Access.PEEK_ADMIN) as queue:
        assert (await queue.peek(timeout=60)).body == b"local"


async def test_its_own_time_counts_while_a_message_waits(lab: Stale) -> None:
    source, router = await lab.start("SOURCE", lab.fresh), await lab.start("ROUTER", lab.stale)
    await send(source, lab.name, b"late", negative_journaling_requested=True, time_to_reach_queue=300)
    await eventually(lambda: waiting(router, lab.name) == 1)
    lab.clock.advance(320)
    assert await dead_letter(router) == (b"late", MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT)


async def test_the_patience_ends_for_a_machine_that_is_known_and_away(lab: Stale) -> None:
    """From then on its messages have the time that their sender gave them."""
    source = await lab.start("SOURCE", lab.fresh)
    router = await lab.start("ROUTER", lab.stale, unknown_machine_patience=600, routing_refresh=0.2)
    await send(source, lab.name, b"patient")
    await send(source, lab.name, b"late", negative_journaling_requested=True, time_to_reach_queue=3600)
    await eventually(lambda: waiting(router, lab.name) == 2)
    lab.catch_up()
    await eventually(lambda: bool(router.outgoing_queue(lab.name).next_hops))
    lab.clock.advance(700)
    assert waiting(router, lab.name) == 2
    lab.clock.advance(3000)
    assert await dead_letter(router) == (b"late", MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT)
    target = await lab.start("TARGET", lab.fresh)
    await target.create_queue(PLAIN)
    async with await target.open_queue(f"DIRECT=OS:{PLAIN}") as queue:
        assert (await queue.receive(timeout=60)).body == b"patient"


async def test_a_restart_has_messages_wait_again_and_no_longer_than_before(lab: Stale) -> None:
    source = await lab.start("SOURCE", lab.fresh)
    router = await lab.start("ROUTER", lab.stale, unknown_machine_patience=600)
    await send(source, lab.name, b"kept", negative_journaling_requested=True)
    await eventually(lambda: waiting(router, lab.name) == 1)
    await router.close()
    await source.close()
    lab.clock.advance(10_000)
    router = await lab.start("ROUTER", lab.stale, unknown_machine_patience=600)
    lab.clock.advance(590)
    assert waiting(router, lab.name) == 1
    lab.clock.advance(20)
    assert await dead_letter(router) == (b"kept", MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q)
    assert waiting(router, lab.name) == 0


async def dead_letter(node: QueueManager) -> tuple[bytes, int]:
    """Body and class of the first message in the dead-letter queue of a node."""
    async with await node.open_queue(r"DIRECT=OS:.\SYSTEM$;DEADLETTER") as queue:
        dead = await queue.receive(timeout=60)
    return dead.body, dead.message_class


# Not too many


async def test_a_neighbour_leaves_so_many_messages_and_takes_nothing_from_others(lab: Stale) -> None:
    router = await lab.start("ROUTER", lab.stale, unknown_machine_messages=3)
    async with Flood(lab) as flood, Flood(lab) as other:
        flood.send(*(flood.message(new_guid(), number) for number in range(10)))
        await eventually(lambda: refused(router) == 7)
        assert outgoing(router) == 3  # those that were refused left no queue
        other.send(*(other.message(new_guid(), number) for number in range(4)))
        await eventually(lambda: refused(router) == 8)
    assert outgoing(router) == 6


async def test_a_neighbour_leaves_so_many_bytes(lab: Stale) -> None:
    router = await lab.start("ROUTER", lab.stale, unknown_machine_bytes=10_000)
    async with Flood(lab) as flood:
        machine = new_guid()
        flood.send(flood.message(machine, 5, body=bytes(20_000)))
        await eventually(lambda: refused(router) == 1)
        assert not outgoing(router)
        flood.send(*(flood.message(machine, 5, body=bytes(4_000)) for _ in range(5)))
        await eventually(lambda: refused(router) == 4)
    assert waiting(router, name_of(machine, 5)) == 2


async def test_all_strangers_together_leave_four_shares_and_none_of_declared_machines(
    lab: Stale, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while it takes a moment to find out who is declared."""
    addresses = DirectoryResolver.addresses

    async def slowly(self: DirectoryResolver, machine: Guid) -> list[NextHop]:
        await asyncio.sleep(0.3)
        return await addresses(self, machine)

    monkeypatch.setattr(DirectoryResolver, "addresses", slowly)
    router = await lab.start("ROUTER", lab.stale, unknown_machine_messages=2)
    async with AsyncExitStack() as stack:
        for number in range(1, 7):
            flood = await stack.enter_async_context(Flood(lab))
            flood.send(*(flood.message(new_guid(), 5) for _ in range(2)))
            await eventually(lambda count=number: outgoing(router) + refused(router) == 2 * count)  # type: ignore[misc]
    assert (outgoing(router), refused(router)) == (8, 4)
    source = await lab.start("SOURCE", lab.fresh)
    await send(source, lab.name, b"declared")
    await eventually(lambda: waiting(router, lab.name) == 1)


async def test_what_a_source_sends_again_is_neither_counted_nor_kept_twice(lab: Stale) -> None:
    """Transactional messages come again until their order acknowledgment, which their destination cannot send."""
    router = await lab.start("ROUTER", lab.stale, unknown_machine_messages=5)
    machine = new_guid()
    async with Flood(lab) as flood:
        sequence = [flood.transactional(machine, number) for number in range(1, 5)]
        for _ in range(4):
            flood.send(*sequence)
        flood.send(flood.transactional(machine, 5), flood.transactional(machine, 6), *sequence)
        await eventually(lambda: refused(router) == 1)
        flood.send(flood.transactional(machine, 7))
        await eventually(lambda: refused(router) == 2)
    assert waiting(router, name_of(machine, 5)) == 5


async def test_the_share_is_free_again_when_the_machine_is_known_or_the_wait_is_over(lab: Stale) -> None:
    router = await lab.start(
        "ROUTER", lab.stale, unknown_machine_messages=1, unknown_machine_patience=600, routing_refresh=0.2
    )
    known, unknown = lab.machines["TARGET"].identifier, new_guid()
    async with Flood(lab) as flood:
        flood.send(flood.message(known, 5), flood.message(unknown, 5))
        await eventually(lambda: refused(router) == 1)
        lab.catch_up()
        await eventually(lambda: bool(router.outgoing_queue(name_of(known, 5)).next_hops))
        flood.send(flood.message(unknown, 5))
        await eventually(lambda: waiting(router, name_of(unknown, 5)) == 1)
        lab.clock.advance(610)
        assert waiting(router, name_of(unknown, 5)) == 0
        flood.send(flood.message(unknown, 5))
        await eventually(lambda: waiting(router, name_of(unknown, 5)) == 1)
    assert refused(router) == 1


async def test_what_is_refused_anyway_leaves_nothing(lab: Stale) -> None:
    """Too late, and over too many hops."""
    router = await lab.start("ROUTER", lab.stale)
    async with Flood(lab) as flood:
        flood.send(
            flood.message(new_guid(), 5, sent_time=1, time_to_reach_queue=1), flood.message(new_guid(), 5, hops=29)
        )
        await eventually(lambda: router.traffic.nowhere.rejected.total() == 2)
    assert not outgoing(router)


async def test_no_negative_acknowledgment_leaves_for_whoever_names_a_queue_for_it(lab: Stale) -> None:
    """MS-MQQB 5.1: of unknown destinations strangers are told only where SendInsecureNacks says so."""
    router = await lab.start("ROUTER", lab.stale)
    await router.create_queue(PLAIN)
    admin = PrivateQueueFormatName(source_queue_manager=lab.machines["ROUTER"].identifier, private_queue_identifier=5)
    machine = new_guid()
    async with Flood(lab) as flood:
        asked = {"admin_queue": admin, "properties": ALL_ACKNOWLEDGMENTS, "flags": UserFlags.of(AQ=4)}
        flood.send(flood.message(machine, 5, **asked))
        await eventually(lambda: waiting(router, name_of(machine, 5)) == 1)
        lab.clock.advance(3600)
        assert waiting(router, name_of(machine, 5)) == 0
    async with await router.open_queue(f"DIRECT=OS:{PLAIN}") as queue:
        with pytest.raises(MessageQueuingError):
            await queue.receive(timeout=0)


class Flood(HostilePeer):
    """A neighbour of ROUTER, at an address of its own, that names what machines it likes."""

    def __init__(self, lab: Stale) -> None:
        super().__init__(loopback_address(), lab.router_address)
        self._identifier = new_guid()
        self._number = 0

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        await self.establish(self._identifier)
        return self

    def send(self, *packets: bytes) -> None:  # type: ignore[override]
        """All at once."""
        super().send(b"".join(packets))

    def message(self, machine: Guid, queue: int, **more: Any) -> bytes:
        """For a private queue of a machine."""
        self._number += 1
        name = PrivateQueueFormatNameId(private_queue_identifier=queue)
        facts: dict[str, Any] = {"source": self._identifier, "sent_time": int(time.time()), "recoverable": True, **more}
        return message(self._number, address=machine, queue=name, **facts)

    def transactional(self, machine: Guid, number: int) -> bytes:
        """In one sequence."""
        return self.message(
            machine, 5, transaction=TransactionHeader(
                tx_sequence_id=1 << 32, tx_sequence_number=number, previous_tx_sequence_number=number - 1
            )
        )  # fmt: skip


def name_of(machine: Guid, queue: int) -> str:
    return f"PRIVATE={guid_to_text(machine)}\\{queue:08x}"


def waiting(node: QueueManager, name: str) -> int:
    """How many messages an outgoing queue has."""
    return sum(
        one.message_count for one in node.queue_collection.values() if one.pathname.casefold() == name.casefold()
    )


def outgoing(node: QueueManager) -> int:
    """How many outgoing queues there are, without those for acknowledgments."""
    queues = node.queue_collection.values()
    return sum(isinstance(one, OutgoingQueue) and not one.for_acknowledgments for one in queues)


def refused(node: QueueManager) -> int:
    return node.traffic.nowhere.rejected[MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q]
