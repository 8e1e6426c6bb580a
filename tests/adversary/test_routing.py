"""A routing server passes on what the enterprise sends, and a stranger neither uses it up nor holds it up.

ROUTER is the routing server of two sites. SOURCE and TARGET are declared machines, whose names resolve to their own
addresses. MALLORY is a stranger at an address of his own, who knows all names and identifiers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from qmnode import Access, Message, QueueManager
from qmnode.administration.access_control import Change, change_access
from qmnode.administration.operation_rights import GuardedQueueManager
from qmnode.delivery import topology
from qmnode.delivery.topology import MachineAddresses
from qmnode.directory.file import FileDirectory
from qmnode.model.queue import OutgoingQueue
from qmnode.settings.node import QuotaSettings
from qmnode.structures.guid import Guid, guid_to_text
from qmnode.structures.user_message import PrivateQueueFormatNameId, SecurityFlags, SecurityHeader, UserFlags
from tests.adversary import wire
from tests.adversary.attacks import Area, attack
from tests.adversary.peer import acceptor, session
from tests.forwarding.enterprise import Directory, Machine
from tests.forwarding.test_strangers import Counting
from tests.lab.waiting import eventually, holds
from tests.model.conftest import FakeClock
from tests.protocol.machines import message
from tests.transport.conftest import PLAIN, loopback_address, settings_of

DEAD_LETTERS = r"DIRECT=OS:.\SYSTEM$;DEADLETTER"
SID = b"\1\1\0\0\0\0\0\5\x12\0\0\0"


@dataclass
class Lab:
    """The enterprise; its nodes are started by name, with settings of the transfer and quotas."""

    directory: Directory
    start: Callable[..., Coroutine[None, None, QueueManager]]

    def address(self, name: str) -> str:
        return self.directory.machines[name].listens

    def identifier(self, name: str) -> bytes:
        return bytes(self.directory.machines[name].identifier)

    def queue(self, number: int, machine: str = "TARGET") -> str:
        """The name of a private queue."""
        return f"PRIVATE={guid_to_text(self.directory.machines[machine].identifier)}\\{number:08x}"

    def forged(self, number: int, queue: int = 5, **more: Any) -> bytes:
        """A message of nobody for a private queue of TARGET."""
        facts: dict[str, Any] = {"source": wire.identifier(), "address": self.identifier("TARGET"), **more}
        return wire.UserMessage(message_id=number, queue=wire.private(queue), **facts).packet()


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    machines = {
        "SOURCE": Machine("SOURCE", ["south"]),
        "ROUTER": Machine("ROUTER", ["south", "north"], routing_server=True),
        "TARGET": Machine("TARGET", ["north"]),
    }
    directory = Directory(tmp_path / "directory.yaml", machines)
    directory.write()
    async with AsyncExitStack() as stack:

        async def start(name: str, quotas: QuotaSettings | None = None, **more: Any) -> QueueManager:
            machine = machines[name]
            settings = settings_of(name, machine.listens)
            known = more.pop("directory", FileDirectory(directory.file))
            clock = {"clock": more.pop("clock")} if "clock" in more else {}
            changes = {"transfer": settings.transfer.model_copy(update=more), "quotas": quotas or settings.quotas}
            settings = settings.model_copy(update=changes)
            node = await QueueManager.open(tmp_path / name, settings, directory=known, **clock)
            stack.push_async_callback(node.close)
            node.adopt_identifier(machine.identifier)
            await node.network.start()
            return node

        yield Lab(directory, start)


def outgoing(node: QueueManager) -> list[OutgoingQueue]:
    """The outgoing queues that applications and packets made, without those for acknowledgments of sequences."""
    queues = node.queue_collection.values()
    return [one for one in queues if isinstance(one, OutgoingQueue) and not one.for_acknowledgments]


async def send(node: QueueManager, name: str, body: bytes = b"honest") -> None:
    async with await node.open_queue(name, Access.SEND) as queue:
        await queue.send(Message(body, recoverable=True))


async def say(own: str, lab: Lab, *packets: bytes, client: bytes | None = None, at_once: bool = False) -> bool:
    """Messages of a new session with ROUTER, one after the other or ``at_once``. Whether ROUTER took all of them."""
    async with session(own, lab.address("ROUTER"), client or wire.identifier()) as mallory:
        try:
            for packet in (b"".join(packets),) if at_once else packets:
                mallory.sent += len(packets) - 1 if at_once else 0
                await mallory.say(packet)
        except ConnectionError:
            return False
    return True


@attack(
    Area.ROUTING,
    can="send messages for many queues of a machine that is down, so that the node makes an outgoing queue for each",
    promised="one stranger can make 1/20 of quotas.outgoing_queues; applications and declared peers can make others",
)
async def test_a_stranger_does_not_take_all_outgoing_queues(lab: Lab, own: str) -> None:
    router = await lab.start("ROUTER", QuotaSettings(outgoing_queues=32))
    for first in range(0, 40, 8):
        forged = [lab.forged(one, queue=100 + one) for one in range(first + 1, first + 9)]
        await say(own, lab, *forged, at_once=first > 10)
    assert len(outgoing(router)) == 1
    await send(router, lab.queue(5))
    source = await lab.start("SOURCE")
    await send(source, lab.queue(6))
    await eventually(lambda: len(outgoing(router)) == 3)


@attack(
    Area.ROUTING,
    can="send messages for many queues of a machine that is down, from many addresses",
    promised="all strangers together can make a quarter of the outgoing queues",
)
async def test_many_strangers_do_not_take_all_outgoing_queues(lab: Lab) -> None:
    router = await lab.start("ROUTER", QuotaSettings(outgoing_queues=32))
    for first in range(0, 80, 8):
        forged = [lab.forged(one, queue=100 + one) for one in range(first + 1, first + 9)]
        await say(loopback_address(), lab, *forged, at_once=first > 10)
    assert len(outgoing(router)) == 8
    await send(router, lab.queue(5))


@attack(
    Area.ROUTING,
    can="name in each message another machine that the directory does not have, so that the node reads the whole "
    "directory each time",
    promised="strangers can make the node read the directory once a second at most, and less often if it is large",
)
@pytest.mark.parametrize("patience", [0, 1800])
async def test_strangers_do_not_have_the_directory_read_all_the_time(lab: Lab, own: str, patience: int) -> None:
    directory = Counting(lab.directory.file)
    await lab.start("ROUTER", directory=directory, unknown_machine_patience=patience)
    before, began = directory.searches, time.monotonic()
    assert await say(own, lab, *(lab.forged(one, address=wire.identifier()) for one in range(1, 61)))
    readings = (directory.searches - before) / 3  # of sites, machines and links
    assert readings <= 2 + (time.monotonic() - began)


@attack(
    Area.ROUTING,
    can="send a message in a machine's name together with one for a machine that has just joined, so that the node "
    "reads the topology after it looks at the sender and before it decides",
    promised="the node then looks at the sender again: it forwards nothing in the name of a machine that has another "
    "address",
)
async def test_a_changed_topology_makes_no_stranger_believed(lab: Lab, own: str) -> None:
    router = await lab.start("ROUTER", unknown_machine_patience=0)
    lab.directory.machines["JOINED"] = joined = Machine("JOINED", ["north"])
    lab.directory.write()
    topology = router.network.topology  # type: ignore[attr-defined]

    async def is_read() -> bool:
        await eventually(lambda: topology.is_due, "the directory may be read again")
        packets = lab.forged(1, address=bytes(joined.identifier)), lab.forged(2, source=lab.identifier("SOURCE"))
        await say(own, lab, *packets, at_once=True)
        return topology.knows(joined.identifier)

    await holds(is_read, 60.0, "the messages came when no reading from before the change went on")
    assert [queue.pathname for queue in outgoing(router) if queue.message_count] == [lab.queue(5, "JOINED")]


@attack(
    Area.ROUTING,
    can="leave messages for machines that will never exist, each in an outgoing queue of its own",
    promised="one address can leave transfer.unknown_machine_messages of them here, for "
    "transfer.unknown_machine_patience",
)
async def test_messages_for_machines_that_never_come_are_few_and_end(lab: Lab, own: str) -> None:
    clock = FakeClock(time.time())
    router = await lab.start("ROUTER", clock=clock, unknown_machine_messages=4)
    assert await say(own, lab, *(lab.forged(one, address=wire.identifier()) for one in range(1, 21)))
    assert sum(one.message_count for one in outgoing(router)) == len(outgoing(router)) == 4
    clock.advance(1_900)
    assert not any(one.message_count for one in outgoing(router))


@attack(
    Area.ROUTING,
    can="send a message with a high hop count, or open a session in the name of the next hop, so that messages seem "
    "to go in circles",
    promised="a stranger cannot make the node hold messages back: sessions with the next hop stay open, and no "
    "message of others waits",
)
async def test_a_stranger_does_not_hold_up_the_messages_of_others(lab: Lab, own: str) -> None:
    router = await lab.start("ROUTER")
    target = lab.identifier("TARGET")
    async with acceptor(lab.address("TARGET"), target) as sessions:
        await send(router, lab.queue(5), b"first")
        async with asyncio.timeout(60):
            peer = await sessions.get()
        assert (await peer.next(0)).body == b"first"
        peer.acknowledge()
        await say(own, lab, lab.forged(1, hops=12, body=b"far"))
        await say(own, lab, lab.forged(2, body=b"back"), client=target)
        assert [(await peer.next(0)).body for _ in range(2)] == [b"far", b"back"]
        peer.acknowledge()
        await asyncio.sleep(1.5)  # a session that is left is closed within a second
        await send(router, lab.queue(5), b"second")
        assert (await peer.next(0)).body == b"second"
        assert sessions.empty()


@attack(
    Area.ROUTING,
    can="send large messages for a machine that is down, until the node has no room left for others",
    promised="messages that the node forwards for strangers take half of the quota at most; the other half is for the "
    "others",
)
async def test_transit_of_strangers_does_not_fill_the_node(lab: Lab, own: str) -> None:
    router = await lab.start("ROUTER", QuotaSettings(queue_manager_quota=1_000))
    await router.create_queue(PLAIN)
    for _ in range(3):
        await say(own, lab, *(lab.forged(one, body=bytes(60_000)) for one in range(1, 25)))
    assert router.quotas.used <= 512_000
    await send(router, f"DIRECT=OS:{PLAIN}", bytes(200_000))
    source = await lab.start("SOURCE")
    await send(source, lab.queue(6), bytes(200_000))
    await eventually(lambda: any(one.pathname.endswith("00000006") and one.message_count for one in outgoing(router)))


@attack(
    Area.ROUTING,
    can="have a message refused for lack of room, at the moment at which the node writes messages of others",
    promised="the node closes the attacker's session, and the others get their acknowledgments",
)
async def test_a_session_that_is_refused_keeps_no_acknowledgment_from_others(lab: Lab, own: str) -> None:
    router = await lab.start("ROUTER", QuotaSettings(outgoing_queues=16))
    address, source = lab.address("ROUTER"), lab.identifier("SOURCE")
    async with (
        session(own, address, wire.identifier()) as mallory, session(lab.address("SOURCE"), address, source) as honest
    ):  # fmt: skip
        await mallory.say(lab.forged(1, queue=100))
        await honest.say(lab.forged(1, queue=200, source=source))
        mallory.send(lab.forged(2, queue=101))  # both are read in one pass of the node, and written with one sync
        honest.send(lab.forged(2, queue=200, source=source))
        honest.sent += 1
        await honest.settled()
        assert await mallory.is_closed()
    assert sorted(one.message_count for one in outgoing(router)) == [1, 2]


@attack(
    Area.ROUTING,
    can="mark a message as authenticated, in any user's name, and have it expire on its way, in a dead-letter queue",
    promised="the dead letter is not marked as authenticated, because no node has verified the message",
)
async def test_a_claim_of_authentication_does_not_come_out_in_a_dead_letter_queue(lab: Lab, own: str) -> None:
    clock = FakeClock(time.time())
    router = await lab.start("ROUTER", clock=clock)
    header = SecurityHeader(flags=SecurityFlags.of(ST=1, AU=1, AS=3), security_id=SID)
    packet = message(
        7, source=Guid(wire.identifier()), address=lab.directory.machines["TARGET"].identifier,
        queue=PrivateQueueFormatNameId(private_queue_identifier=5), recoverable=True, flags=UserFlags.of(SH=1, JN=1),
        sent_time=int(time.time()), time_to_reach_queue=60, security_header=header,
    )  # fmt: skip
    await say(own, lab, packet)
    clock.advance(100)
    async with await router.open_queue(DEAD_LETTERS) as queue:
        dead = await queue.receive(timeout=60)
    assert (dead.body, dead.authentication_level) == (b"hello", 0)


@attack(
    Area.ROUTING,
    can="name queues by the addresses of hosts of the attacker's choice, so that the node connects to these hosts",
    promised="the node forwards no message with a direct format name or without a destination's GUID: it puts the "
    "message into a queue of its own, or refuses it",
)
async def test_a_message_for_a_direct_name_elsewhere_goes_nowhere(lab: Lab, own: str) -> None:
    router = await lab.start("ROUTER")
    victim = loopback_address()
    async with acceptor(victim, wire.identifier()) as sessions:
        names = [
            wire.direct(rf"TCP:{victim}\private$\x"), wire.direct(rf"OS:{victim}\private$\x"),
            wire.direct(rf"HTTP://{victim}/msmq/private$/x"), wire.public(wire.identifier()), wire.private(77),
        ]  # fmt: skip
        packets = [
            wire.UserMessage(source=wire.identifier(), message_id=number, queue=name, address=address).packet()
            for number, name in enumerate(names, 1)
            for address in (wire.NOBODY, lab.identifier("ROUTER"))
        ]
        assert await say(own, lab, *packets)
        assert not outgoing(router)
        assert sessions.empty()


@attack(
    Area.ROUTING,
    can="ask for acknowledgments to queues at ports, URLs and addresses of the attacker's choice, also at those of "
    "the node",
    promised="the node connects to the port of MSMQ only, and to no unspecified, multicast or broadcast address",
)
async def test_an_acknowledgment_goes_to_no_port_and_no_address_of_nobody(lab: Lab, own: str) -> None:
    router = await lab.start("ROUTER")
    await router.create_queue(PLAIN)
    victim, visits = loopback_address(), 0

    async def visited(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal visits
        visits += 1
        writer.close()

    listening = await asyncio.start_server(visited, victim, 8080)
    nobody = ["TCP:0.0.0.0", "TCP:224.0.0.1", "TCP:255.255.255.255", "TCP:::", "TCP:ff02::1", "OS:0", "OS:0.0.0.0"]
    ports = [f"TCP:{victim}:8080", f"OS:{victim}:8080", f"OS:x@{victim}:8080"]
    names = [*(rf"{one}\private$\x" for one in (*nobody, *ports)), f"HTTP://{victim}:8080/msmq/private$/x"]
    plain = wire.direct(rf"OS:{lab.address('ROUTER')}\private$\plain")
    packets = [
        wire.UserMessage(
            source=wire.identifier(), message_id=number, queue=plain, admin=wire.direct(name), asks=wire.ACK_ARRIVAL
        ).packet()
        for number, name in enumerate(names, 1)
    ]
    try:
        assert await say(own, lab, *packets)
        await eventually(lambda: len(outgoing(router)) >= len(nobody))
        await eventually(lambda: all(one.connection_history for one in outgoing(router)))
        assert not [one.next_hops for one in outgoing(router) if one.next_hops]
        assert not visits
    finally:
        listening.close()


@attack(
    Area.ROUTING,
    can="send to a queue that is open to the attacker, and ask for acknowledgments to a queue of the node that is "
    "closed to the attacker",
    promised="an acknowledgment enters a queue of the node only if the access list of this queue accepts messages "
    "without a sender",
)
async def test_an_acknowledgment_is_no_way_into_a_queue_that_takes_nothing(lab: Lab, own: str) -> None:
    router = await lab.start("ROUTER")
    await router.create_queue(PLAIN)
    owner = router.principals.of_unix_user(60_001)
    for name in ("closed", "open"):
        await GuardedQueueManager(router, owner).create_queue(rf".\private$\{name}")
    await change_access(
        GuardedQueueManager(router, owner), r".\private$\closed", Change.DENY, "everyone", ["send-message"]
    )
    plain = wire.direct(rf"OS:{lab.address('ROUTER')}\private$\plain")
    packets = [
        wire.UserMessage(
            source=wire.identifier(), message_id=number, queue=plain,
            admin=wire.direct(rf"OS:ROUTER\private$\{name}"), asks=wire.ACK_ARRIVAL, label="by the back door",
        ).packet()
        for number, name in enumerate(("closed", "closed;later", "open"), 1)
    ]  # fmt: skip

    assert await say(own, lab, *packets)

    async def is_acknowledged() -> bool:
        return (await router.queue(r".\private$\open")).message_count == 1

    await holds(is_acknowledged, 60, "the queue that takes everybody's has the acknowledgment")
    assert (await router.queue(r".\private$\closed")).message_count == 0


async def test_a_declared_machine_stays_declared_however_long_its_session_lasts(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up: list[bytes] = []
    look_up = MachineAddresses._look_up

    async def counted(addresses: MachineAddresses, machine: Guid) -> None:
        looked_up.append(machine)
        await look_up(addresses, machine)

    monkeypatch.setattr(topology, "_FRESH", 0.1)
    monkeypatch.setattr(MachineAddresses, "_look_up", counted)
    router = await lab.start("ROUTER", QuotaSettings(outgoing_queues=32))
    async with session(lab.address("SOURCE"), lab.address("ROUTER"), lab.identifier("SOURCE")) as source:
        await source.say(lab.forged(1, queue=100))
        asked = len(looked_up)
        for number in range(1000, 1100):  # until what was found is old
            if len(looked_up) > asked:
                break
            await source.say(lab.forged(number, queue=100))
            await asyncio.sleep(0.05)
        assert len(looked_up) > asked
        await source.say(*(lab.forged(one, queue=100 + one) for one in range(1, 8)))
    assert len(outgoing(router)) == 8
