"""A queue manager of another make, written from the specification alone, works with ours over plain connections.

It sends and receives, restarts, and goes on with its sequences where it was.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from qmnode import Access, Message
from tests.adversary import wire
from tests.adversary.peer import Peer, acceptor, session
from tests.adversary.wire import Packet, Place
from tests.lab.waiting import eventually
from tests.transport.conftest import PLAIN, TRANSACTIONAL, Pair, loopback_address

FIRST_SEQUENCE = 1_700_000_000 << 32 | 1


@dataclass
class PlainPeer:
    """What a queue manager keeps on its disk, and how it opens sessions."""

    address: str = field(default_factory=loopback_address)
    identifier: bytes = field(default_factory=wire.identifier)
    last_message_id: int = 0
    sequence: int = FIRST_SEQUENCE
    last_number: int = 0
    previous: int = 0
    received: list[bytes] = field(default_factory=list)
    in_place: Place = Place(0, 0, 0)  # noqa: RUF009  # immutable
    """The place of the last transactional message that it took."""

    def message(self, queue: str, body: bytes, *, transactional: bool = False, **more: object) -> bytes:
        """Its next message, for a direct name."""
        self.last_message_id += 1
        place = None
        if transactional:
            self.last_number += 1
            place = Place(self.sequence, self.last_number, self.previous)
            self.previous = self.last_number
        return wire.UserMessage(
            source=self.identifier,
            message_id=self.last_message_id,
            queue=wire.direct(queue),
            body=body,
            place=place,
            **more,  # type: ignore[arg-type]
        ).packet()

    @asynccontextmanager
    async def sending(self, target: str) -> AsyncIterator[Peer]:
        """A session that it opens."""
        async with session(self.address, target, self.identifier, window=64) as peer:
            yield peer

    def take(self, packet: Packet) -> None:
        """A UserMessage came: only in order, and once (3.1.5.8.6)."""
        if packet.user_flags & wire.WITH_TRANSACTION:
            place, last = packet.place, self.in_place
            same = place.sequence == last.sequence and place.number > last.number and place.previous <= last.number
            newer = place.sequence > last.sequence and place.previous == 0
            if not same and not newer:
                return
            self.in_place = place
        self.received.append(packet.body)

    def order_ack(self, target: str) -> bytes:
        """It has taken all up to ``in_place``."""
        self.last_message_id += 1
        place = self.in_place
        return wire.order_ack(self.identifier, self.last_message_id, target, place.sequence, place.number)


def name(pair: Pair, queue: str) -> str:
    return pair.direct("BOB", queue).removeprefix("DIRECT=")


async def order_acks(peer: Peer, sequence: int, number: int) -> None:
    """Until the order acknowledgment for this place comes."""

    def fits(packet: Packet) -> bool:
        if packet.kind or packet.message_class != wire.ORDER_ACK:
            return False
        body = packet.body
        assert packet.user_flags >> 10 & 7 == 7, "to a direct name's sender goes a direct name"
        return body[:12] == sequence.to_bytes(8, "little") + number.to_bytes(4, "little")

    await peer.next_that(fits)


async def test_it_sends_and_restarts_and_its_sequence_goes_on(pair: Pair) -> None:
    plain = PlainPeer()
    target = pair.addresses["BOB"]
    async with acceptor(plain.address, plain.identifier) as sessions:
        async with plain.sending(target) as peer:
            await peer.say(
                plain.message(name(pair, PLAIN), b"express", delivery=wire.EXPRESS, priority=3),
                plain.message(name(pair, PLAIN), b"recoverable"),
                *(plain.message(name(pair, TRANSACTIONAL), b"%d" % number, transactional=True) for number in range(3)),
            )
            back = await sessions.get()
            await order_acks(back, FIRST_SEQUENCE, 3)
        async with plain.sending(target) as peer:  # it restarted, and knows of no acknowledgment: it sends once more
            plain.last_number, plain.previous, plain.last_message_id = 1, 1, 3
            again = [plain.message(name(pair, TRANSACTIONAL), b"%d" % one, transactional=True) for one in (1, 2)]
            await peer.say(*again, plain.message(name(pair, TRANSACTIONAL), b"3", transactional=True))
            await order_acks(back, FIRST_SEQUENCE, 4)
        await pair.stop("BOB")
        await pair.start("BOB")
        async with plain.sending(target) as peer:  # all was acknowledged: a new sequence begins (3.1.1.5)
            plain.sequence, plain.last_number, plain.previous = FIRST_SEQUENCE + 1, 0, 0
            await peer.say(plain.message(name(pair, TRANSACTIONAL), b"4", transactional=True))
            await order_acks(await sessions.get(), FIRST_SEQUENCE + 1, 1)
    async with (
        await pair.bob.open_queue(f"DIRECT=OS:{PLAIN}") as queue,
        await pair.bob.open_queue(f"DIRECT=OS:{TRANSACTIONAL}") as transactional,
    ):
        assert (await queue.receive(timeout=60)).body == b"recoverable"  # express ones end with the process
        assert [(await transactional.receive(timeout=60)).body for _ in range(5)] == [b"%d" % one for one in range(5)]


async def test_it_receives_and_restarts_and_takes_each_message_once(pair: Pair) -> None:
    plain = PlainPeer()
    alice = pair.addresses["ALICE"]
    async with await pair.alice.open_queue(rf"DIRECT=TCP:{plain.address}\private$\q", Access.SEND) as out:
        for number in range(3):
            await out.send(Message(b"%d" % number), transaction="single")
        async with acceptor(plain.address, plain.identifier) as sessions:
            peer = await sessions.get()
            for _ in range(3):
                plain.take(await peer.next(0))
            peer.acknowledge()
            # It ends before its order acknowledgment has left.
        await out.send(Message(b"3"), transaction="single")
        async with acceptor(plain.address, plain.identifier) as sessions, plain.sending(alice) as back:
            peer = await sessions.get()
            for _ in range(4):
                plain.take(await peer.next(0))
            peer.acknowledge()
            back.send(plain.order_ack(alice))
            await eventually(lambda: not waiting(pair), "the order acknowledgment is taken")
    assert plain.received == [b"0", b"1", b"2", b"3"]


def waiting(pair: Pair) -> int:
    queues = pair.alice.queue_collection.values()
    return sum(queue.message_count for queue in queues if queue.pathname.startswith("DIRECT"))


async def test_what_it_acknowledges_in_its_own_session_counts_as_well(pair: Pair) -> None:
    """One connection carries messages of both sides (3.1.1.4)."""
    plain = PlainPeer()
    async with (
        acceptor(plain.address, plain.identifier) as sessions,
        await pair.alice.open_queue(rf"DIRECT=TCP:{plain.address}\private$\q", Access.SEND) as out,
    ):
        await out.send(Message(b"one", recoverable=True))
        await out.send(Message(b"two"), transaction="single")
        peer = await sessions.get()
        for _ in range(2):
            plain.take(await peer.next(0))
        peer.acknowledge()
        peer.send(plain.order_ack(pair.addresses["ALICE"]))
        await eventually(lambda: not waiting(pair), "both acknowledgments are taken")
    assert plain.received == [b"one", b"two"]
