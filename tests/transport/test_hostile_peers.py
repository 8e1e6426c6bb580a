"""Peers that mean harm, over sockets, against nodes at work: it costs nobody else anything (MS-MQQB 5.1)."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

import qmnode
from qmnode import Access, Message, QueueApi
from qmnode.protocol.acknowledgments import FinalAcknowledgment, final_ack_packet, order_ack_packet
from qmnode.protocol.incoming_sequences import OrderAcknowledgment, Route
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.guid import Guid, new_guid
from qmnode.structures.packets import FinalAckBody, SessionAck
from qmnode.structures.user_message import SessionHeader
from tests.lab.waiting import eventually
from tests.protocol.machines import message
from tests.transport.conftest import PLAIN, TRANSACTIONAL, Pair, loopback_address
from tests.transport.hostile import HostilePeer
from tests.transport.test_two_nodes import Node, create_queues, nodes

__all__ = ["nodes"]  # a fixture

MALLORY = new_guid()
GARBAGE = b"GET / HTTP/1.1\r\n\r\n" * 8
OVERSIZED = b"\x10\0\x08\0LIOR\xff\xff\xff\x7f" + bytes(64)


def session_ack(count: int) -> bytes:
    """An acknowledgment of messages that were never sent."""
    header = SessionHeader(ack_sequence_number=count, user_msg_sequence_number=0)
    return SessionAck(session_header=header).write()


def acknowledgments(source: Guid, route: Route, author: Guid, sequence_id: int, number: int) -> list[bytes]:
    """Order and final acknowledgments in somebody's name."""
    order = OrderAcknowledgment(source, route, sequence_id, number)
    body = FinalAckBody(
        tx_sequence_id=sequence_id,
        tx_sequence_number=number,
        tx_previous_sequence_number=number - 1,
        source_guid=source,
        message_id=number,
    )
    final = FinalAcknowledgment(source, route, MessageClass.MQMSG_CLASS_ACK_RECEIVE, body)
    return [order_ack_packet(order, author, 1_000_000, int(time.time())), final_ack_packet(final, author, 1_000_001, 1)]


@pytest.mark.parametrize("author", ["mallory", "bob"])
async def test_forged_acknowledgments_take_nothing_from_an_outgoing_queue(pair: Pair, author: str) -> None:
    """Not even when the identifier of the sequence is known and the destination's name is used."""
    await pair.bob.create_queue(r".\private$\more", transactional=True)
    out = await pair.alice.open_queue(pair.direct("BOB", TRANSACTIONAL), Access.SEND)
    await out.send(Message(b"0"), transaction="single")
    queue = await pair.bob.open_queue(f"DIRECT=OS:{TRANSACTIONAL}")
    await queue.receive(timeout=60)
    bob = pair.bob.identifier
    await eventually(lambda: not any(sequence.sent > sequence.acknowledged for sequence in outgoing(pair)))
    await pair.stop("BOB")
    for number in range(1, 6):
        await out.send(Message(b"%d" % number), transaction="single")
    (sequence,) = outgoing(pair)
    alice, identifier = pair.alice.identifier, MALLORY if author == "mallory" else bob
    route = Route(True, pair.addresses["ALICE"])

    async with HostilePeer(loopback_address(), pair.addresses["ALICE"]) as peer:
        await peer.establish(identifier)
        for sequence_id, number in itertools.product(
            (sequence.next_id, sequence.next_id + 1, sequence.next_id - 1, 1), (2, 5, 6, 0xFFFF_FFFF)
        ):
            for packet in acknowledgments(alice, route, identifier, sequence_id, number):
                peer.send(packet)
        await peer.flush()

    await pair.start("BOB")
    queue = await pair.bob.open_queue(f"DIRECT=OS:{TRANSACTIONAL}")
    assert [(await queue.receive(timeout=60)).body for _ in range(5)] == [b"%d" % number for number in range(1, 6)]


def outgoing(pair: Pair) -> list[object]:
    return list(pair.alice.network.state.outgoing)  # type: ignore[attr-defined]


async def test_an_acknowledgment_of_what_was_not_sent_closes_the_session(pair: Pair) -> None:
    async with HostilePeer(loopback_address(), pair.addresses["BOB"]) as peer:
        await peer.establish(MALLORY)
        peer.send(session_ack(50))
        assert await peer.is_closed()


async def test_whoever_uses_anothers_identifier_does_not_touch_its_session(pair: Pair) -> None:
    out = await pair.alice.open_queue(pair.direct("BOB", PLAIN), Access.SEND)
    queue = await pair.bob.open_queue(f"DIRECT=OS:{PLAIN}")
    for number in range(20):
        async with HostilePeer(loopback_address(), pair.addresses["BOB"]) as peer:
            await peer.establish(pair.alice.identifier)
            await out.send(Message(b"%d" % number, recoverable=True))
            peer.send(session_ack(1) if number % 2 else GARBAGE)
            assert await peer.is_closed()
        assert (await queue.receive(timeout=60)).body == b"%d" % number
    assert sum(one.incoming for one in pair.bob.network.connections()) == 1


async def test_a_message_for_no_queue_of_a_stranger_stays_out(pair: Pair) -> None:
    async with HostilePeer(loopback_address(), pair.addresses["BOB"]) as peer:
        await peer.establish(MALLORY)
        for number in range(1, 200):
            peer.send(message(number, source=MALLORY))
        await peer.flush()
        queue = await pair.bob.open_queue(f"DIRECT=OS:{PLAIN}")
        with pytest.raises(qmnode.MessageQueuingError):
            await queue.receive(timeout=0.2)


class Process:
    """What a node's process uses."""

    def __init__(self, node: Node) -> None:
        assert node.process is not None
        self._path = Path("/proc") / str(node.process.pid)

    def descriptors(self) -> int:
        return len(list((self._path / "fd").iterdir()))

    def resident_megabytes(self) -> float:
        line = next(one for one in (self._path / "status").read_text().splitlines() if one.startswith("VmRSS"))
        return int(line.split()[1]) / 1024


async def hold(peer: HostilePeer, data: bytes, dice: random.Random) -> None:
    peer.send(data)
    await peer.flush()
    await asyncio.sleep(dice.random() * 0.2)  # half a packet, and then nothing: that is the attack


async def attack(target: str, victim: Guid, dice: random.Random, done: asyncio.Event, made: list[int]) -> None:
    """One attacker, from an address of its own, until it is enough. Adds to ``made`` each connection it makes."""
    own, count = loopback_address(), 0
    stranger = new_guid()
    while not done.is_set():
        count += 1
        made.append(count)
        with suppress(OSError, AssertionError, TimeoutError):
            async with HostilePeer(own, target) as peer:
                match count % 7:
                    case 0:
                        await hold(peer, GARBAGE, dice)
                    case 1:
                        await hold(peer, OVERSIZED, dice)
                    case 2:
                        await hold(peer, message(1, body=bytes(60_000))[:30_000], dice)
                    case 3:
                        await hold(peer, b"", dice)
                    case 4:
                        await peer.establish(victim)
                        await hold(peer, session_ack(200), dice)
                    case 5:
                        await peer.establish(stranger)
                        for number in range(200):
                            peer.send(message(number + 1, source=stranger, body=bytes(100)))
                        await hold(peer, message(1, source=stranger, body=bytes(4000))[:2000], dice)
                    case _:
                        await peer.establish(stranger)
                        forged = acknowledgments(victim, Route(True, target), stranger, dice.getrandbits(63), 7)
                        await hold(peer, b"".join(forged) * 20, dice)
        await asyncio.sleep(0.005)


@asynccontextmanager
async def attackers(number: int, target: str, victim: Guid) -> AsyncIterator[Callable[[], int]]:
    done = asyncio.Event()
    made: list[int] = []
    tasks = [asyncio.create_task(attack(target, victim, random.Random(seed), done, made)) for seed in range(number)]
    try:
        yield lambda: len(made)
    finally:
        done.set()
        await asyncio.gather(*tasks)


COUNT = 1500


async def stream(out: QueueApi, queue: QueueApi, first: int) -> float:
    """Transactional messages a second, all of which came once and in order."""
    began = time.monotonic()
    numbers: list[int] = []

    async def receive() -> None:
        while len(numbers) < COUNT:
            numbers.extend(int(one.body) for one in await queue.receive_many(100, timeout=60))

    receiving = asyncio.create_task(receive())
    for start in range(first, first + COUNT, 50):
        await out.send_many([Message(b"%d" % number) for number in range(start, start + 50)], transaction="single")
    await receiving
    assert numbers == list(range(first, first + COUNT))
    return COUNT / (time.monotonic() - began)


@pytest.mark.servers
@pytest.mark.soak
@pytest.mark.timed
async def test_others_keep_their_rate_and_memory_and_descriptors_stay_flat(nodes: tuple[Node, Node]) -> None:
    alice, bob = nodes
    await create_queues(*nodes)
    process = Process(bob)
    async with qmnode.connect(alice.socket) as sender, qmnode.connect(bob.socket) as receiver:
        out = await sender.open_queue(bob.direct(TRANSACTIONAL), Access.SEND)
        queue = await receiver.open_queue(f"DIRECT=OS:{TRANSACTIONAL}")
        victim = sender.identifier
        first = itertools.count(0, COUNT)
        await stream(out, queue, next(first))
        async with attackers(8, bob.address, victim):  # once before measuring: caches are as full as they get
            undisturbed_after_warming = await stream(out, queue, next(first))
        assert undisturbed_after_warming > 0
        undisturbed = await stream(out, queue, next(first))
        descriptors, megabytes = process.descriptors(), process.resident_megabytes()
        async with attackers(8, bob.address, victim) as made:
            disturbed = [await stream(out, queue, next(first)) for _ in range(4)]
            while made() <= 50:
                disturbed.append(await stream(out, queue, next(first)))
        async with asyncio.timeout(30):
            while process.descriptors() > descriptors + 2:
                await asyncio.sleep(0.1)
    print(f"{made()} hostile connections; {undisturbed:.0f}/s without, {disturbed} with them")
    assert max(disturbed) > undisturbed / 5
    assert process.resident_megabytes() < megabytes + 40
