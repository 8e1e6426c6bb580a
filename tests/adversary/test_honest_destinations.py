"""Honest destinations that look like attackers: their acknowledgments are believed (MS-MQQB 3.1.1.6)."""

from __future__ import annotations

import pytest

from qmnode.delivery.acknowledgments import Credibility
from tests.adversary import wire
from tests.adversary.acknowledgments import COUNT, final_acks, numbered
from tests.adversary.lab import (
    outgoing,
    packets_of,
    receive,
    send,
    sent,
    waiting,
)
from tests.adversary.peer import acceptor, session
from tests.adversary.wire import Packet, Place
from tests.lab.waiting import eventually
from tests.transport.conftest import PLAIN, TRANSACTIONAL, Pair, loopback_address


def credibility_of(pair: Pair) -> Credibility:
    """What ALICE knows of the only destination to which she sends."""
    (queue_sender,) = pair.alice.network._queue_senders.values()  # type: ignore[attr-defined]
    return queue_sender.credibility  # type: ignore[no-any-return]


def read_by(author: bytes, pair: Pair, packets: list[Packet]) -> list[bytes]:
    """Their destination says that these were received."""
    source, alice = pair.alice.identifier, pair.addresses["ALICE"]
    return [
        wire.final_ack(author, 2_000_000 + at, alice, wire.ACK_RECEIVE, packet.place, source, packet.message_id)
        for at, packet in enumerate(packets)
    ]


async def test_a_destination_may_change_the_address_from_which_it_answers(pair: Pair) -> None:
    target, identifier, half = loopback_address(), wire.identifier(), COUNT // 2
    alice, journal = pair.addresses["ALICE"], pair.alice.journal_queue
    async with acceptor(target, identifier) as sessions:
        await send(pair.alice, rf"DIRECT=TCP:{target}\private$\q", numbered(), positive_journaling_requested=True)
        destination = await sessions.get()
        packets = [await destination.next(0) for _ in range(COUNT)]
        destination.acknowledge()
        for part in (packets[:half], packets[half:]):
            async with session(loopback_address(), alice, identifier) as back:
                left = waiting(pair.alice) - half
                back.send(wire.order_ack(identifier, 1, alice, part[-1].place.sequence, part[-1].place.number))
                await eventually(lambda: waiting(pair.alice) == left, "it is believed")  # noqa: B023  # awaited
                expected = journal.message_count + half
                back.send(*read_by(identifier, pair, part))
                await eventually(lambda: journal.message_count == expected, "they are believed")  # noqa: B023  # awaited


async def test_final_acknowledgments_that_wait_are_no_lies(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qmnode.delivery.strangers._MISSES", 10)
    target, identifier = loopback_address(), wire.identifier()
    alice, journal = pair.addresses["ALICE"], pair.alice.journal_queue
    async with acceptor(target, identifier) as sessions, session(loopback_address(), alice, identifier) as back:
        await send(pair.alice, rf"DIRECT=TCP:{target}\private$\q", numbered(), positive_journaling_requested=True)
        destination = await sessions.get()
        packets = [await destination.next(0) for _ in range(COUNT)]
        said, credibility = read_by(identifier, pair, packets), credibility_of(pair)
        back.send(*said)
        await eventually(lambda: len(credibility.final_acks) == COUNT, "they wait")
        assert not pair.alice.traffic.distrusted["final_acknowledgment"]
        destination.acknowledge()
        await eventually(lambda: journal.message_count == COUNT, "they are believed")


async def test_the_same_final_acknowledgment_waits_once(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qmnode.delivery.strangers._MISSES", 10)
    target, identifier, alice = loopback_address(), wire.identifier(), pair.addresses["ALICE"]
    async with acceptor(target, identifier) as sessions, session(loopback_address(), alice, identifier) as back:
        await send(pair.alice, rf"DIRECT=TCP:{target}\private$\q", numbered(0, 1), positive_journaling_requested=True)
        packet = await (await sessions.get()).next(0)
        back.send(*read_by(identifier, pair, [packet]) * 31)
        await eventually(lambda: pair.alice.traffic.distrusted["final_acknowledgment"] == 30)


async def test_a_destination_is_heard_although_much_from_its_address_fits_nothing(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages of before that ended in another way meanwhile, or of others at that address."""
    monkeypatch.setattr("qmnode.delivery.strangers._MISSES", 10)
    target, identifier = loopback_address(), wire.identifier()
    alice, journal = pair.addresses["ALICE"], pair.alice.journal_queue
    async with acceptor(target, identifier) as sessions:
        await send(pair.alice, rf"DIRECT=TCP:{target}\private$\q", numbered(), positive_journaling_requested=True)
        destination = await sessions.get()
        packets = [await destination.next(0) for _ in range(COUNT)]
        nothing = [
            wire.final_ack(
                identifier, number, alice, wire.PURGED, Place(7, number, 0), pair.alice.identifier, 3_000_000 + number
            )
            for number in range(1, 21)
        ]  # fmt: skip
        destination.send(*nothing, *read_by(identifier, pair, packets))
        await eventually(lambda: journal.message_count == COUNT, "they are believed")
        assert pair.alice.traffic.distrusted["final_acknowledgment"] == len(nothing)


async def test_a_final_acknowledgment_that_waits_outlives_the_order_acknowledgment(pair: Pair) -> None:
    target, identifier = loopback_address(), wire.identifier()
    alice, journal = pair.addresses["ALICE"], pair.alice.journal_queue
    async with acceptor(target, identifier) as sessions, session(loopback_address(), alice, identifier) as back:
        await send(pair.alice, rf"DIRECT=TCP:{target}\private$\q", numbered(), positive_journaling_requested=True)
        destination = await sessions.get()
        packets = [await destination.next(0) for _ in range(COUNT)]
        credibility = credibility_of(pair)
        back.send(*read_by(identifier, pair, packets))
        await eventually(lambda: len(credibility.final_acks) == COUNT, "they wait")
        destination.send(wire.order_ack(identifier, 1, alice, packets[-1].place.sequence, COUNT))
        await sent(pair.alice)
        destination.acknowledge()
        await eventually(lambda: journal.message_count == COUNT, "they are believed")


async def test_a_final_acknowledgment_ends_a_message_that_waits_behind_another_sequence(pair: Pair) -> None:
    """A power cut can take back that those ahead were acknowledged, when the message itself was received."""
    target, identifier = loopback_address(), wire.identifier()
    name = rf"DIRECT=TCP:{target}\private$\q"
    async with acceptor(target, identifier) as sessions:
        await send(pair.alice, name, [b"first"], positive_journaling_requested=True)
        await (await sessions.get()).next(0)
        await pair.stop("ALICE")
        await pair.start("ALICE")
        await send(pair.alice, name, [b"second"], positive_journaling_requested=True)
        destination = await sessions.get()
        assert (await destination.next(0)).body == b"first"
        await eventually(lambda: sum(len(queue.locked) for queue in outgoing(pair.alice)) == 2, "both are taken")
        _, second = packets_of(pair.alice)
        destination.send(*read_by(identifier, pair, [second]))
        await eventually(lambda: pair.alice.journal_queue.message_count == 1, "it is believed")
        assert waiting(pair.alice) == 1


async def test_a_final_acknowledgment_that_comes_before_a_session_to_the_destination_comes_again(pair: Pair) -> None:
    """The sender was down, and its destination is the first to connect."""
    target, identifier, alice = loopback_address(), wire.identifier(), pair.addresses["ALICE"]
    async with acceptor(target, identifier) as sessions:
        await send(pair.alice, rf"DIRECT=TCP:{target}\private$\q", numbered(0, 1), positive_journaling_requested=True)
        packet = await (await sessions.get()).next(0)
        await pair.stop("ALICE")
    await pair.start("ALICE")
    said = read_by(identifier, pair, [packet])
    async with session(target, alice, identifier) as back:
        back.send(*said)
        assert await back.is_closed(), "it is not acknowledged"
    async with acceptor(target, identifier) as sessions:
        await (await sessions.get()).next(0)
        async with session(target, alice, identifier) as back:
            back.send(*said)
            await eventually(lambda: pair.alice.journal_queue.message_count == 1, "it is believed")


async def test_a_destination_that_answers_from_another_address_is_believed_when_the_session_says_so(pair: Pair) -> None:
    target, other, identifier = loopback_address(), loopback_address(), wire.identifier()
    alice = pair.addresses["ALICE"]
    async with acceptor(target, identifier) as sessions, session(other, alice, identifier) as back:
        await send(pair.alice, rf"DIRECT=TCP:{target}\private$\q", numbered(), negative_journaling_requested=True)
        destination = await sessions.get()
        packets = [await destination.next(0) for _ in range(COUNT)]
        place = packets[-1].place
        back.send(wire.order_ack(identifier, 1, alice, place.sequence, COUNT))
        back.send(*final_acks(identifier, alice, pair.alice.identifier, packets[:1])[1:2])
        credibility = credibility_of(pair)
        await eventually(lambda: credibility.order_ack is not None and bool(credibility.final_acks), "both wait")
        assert not pair.alice.traffic.distrusted["order_acknowledgment"]
        assert waiting(pair.alice) == COUNT
        destination.acknowledge()
        await sent(pair.alice)
        dead = pair.alice.queue_collection.transactional_dead_letter
        waits = pair.alice.queue_collection.awaiting_final_ack
        await eventually(lambda: dead.message_count + waits.message_count == COUNT)
        back.send(*[final_acks(identifier, alice, pair.alice.identifier, [one])[1] for one in packets[1:]])
        await eventually(lambda: dead.message_count == COUNT, "its final acknowledgments are taken")


@pytest.mark.parametrize("transactional", [False, True])
async def test_a_node_takes_its_own_messages_by_a_name_of_its_own_that_it_does_not_know(
    pair: Pair, transactional: bool
) -> None:
    """An alias, or an address that no setting names: it connects to itself, and is no stranger there."""
    queue = TRANSACTIONAL if transactional else PLAIN
    name = rf"DIRECT=OS:{pair.addresses['ALICE']}{queue.removeprefix('.')}"
    more = {"positive_journaling_requested": True} if transactional else {}
    await send(pair.alice, name, numbered(), transactional=transactional, **more)
    assert await receive(pair.alice, queue, COUNT) == numbered()
    await sent(pair.alice)
    if transactional:
        await eventually(lambda: pair.alice.journal_queue.message_count == COUNT, "it says itself that they came")
    assert not pair.alice.traffic.distrusted["own_name"]
