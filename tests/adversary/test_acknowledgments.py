"""Attacks on what a sender keeps until it is acknowledged (MS-MQQB 3.1.1.6): only what is safe elsewhere goes."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qmnode import Access
from qmnode.delivery import notices
from qmnode.delivery.strangers import Distrust
from qmnode.delivery.strangers import Doubt as Distrusted
from qmnode.delivery.topology import DirectoryResolver
from qmnode.protocol.connection import NextHop
from qmnode.structures.guid import Guid
from tests.adversary import wire
from tests.adversary.acknowledgments import COUNT, REASONS, final_acks, numbered, say_to
from tests.adversary.attacks import Area, attack
from tests.adversary.lab import (
    Enterprise,
    bodies_until,
    enterprise_in,
    outgoing,
    packets_of,
    receive,
    send,
    sent,
    waiting,
)
from tests.adversary.peer import acceptor, session
from tests.adversary.wire import Place
from tests.lab.waiting import eventually
from tests.transport.conftest import TRANSACTIONAL, Pair, loopback_address


@pytest.fixture
async def enterprise(tmp_path: Path) -> AsyncIterator[Enterprise]:
    async with enterprise_in(tmp_path) as enterprise:
        yield enterprise


@attack(
    Area.ACKNOWLEDGMENTS,
    can="send final acknowledgments, of any kind and in any name, for messages that the sender has not sent yet",
    promised="the sender sends the messages, and they arrive",
)
async def test_final_acknowledgments_take_nothing_that_was_not_sent(pair: Pair, own: str) -> None:
    bob, name, alice = pair.bob.identifier, pair.direct("BOB", TRANSACTIONAL), pair.addresses["ALICE"]
    await pair.stop("BOB")
    await send(pair.alice, name, numbered())
    packets = packets_of(pair.alice)
    for author in (wire.identifier(), bob):
        forged = final_acks(author, alice, pair.alice.identifier, packets)
        await say_to(pair.alice, own, alice, [author, bob], forged)
    assert waiting(pair.alice) == COUNT
    await pair.start("BOB")
    assert await receive(pair.bob, TRANSACTIONAL, COUNT) == numbered()


@attack(
    Area.ACKNOWLEDGMENTS,
    can="send order acknowledgments in the destination's name for messages that the destination has not stored yet",
    promised="the sender keeps the messages until the destination has them on its disk",
)
async def test_order_acknowledgments_of_a_stranger_take_nothing_on_its_way(pair: Pair, own: str) -> None:
    target, identifier = loopback_address(), wire.identifier()
    alice = pair.addresses["ALICE"]
    async with acceptor(target, identifier) as sessions:
        await send(pair.alice, rf"DIRECT=TCP:{target}\private$\q", numbered())
        destination = await sessions.get()
        packets = [await destination.next(0) for _ in range(COUNT)]
        place = packets[-1].place
        forged = [wire.order_ack(identifier, 1, alice, place.sequence, number) for number in (1, COUNT, COUNT + 1)]
        forged += final_acks(identifier, alice, pair.alice.identifier, packets)
        await say_to(pair.alice, own, alice, [wire.identifier(), identifier], forged)
        assert waiting(pair.alice) == COUNT
        assert pair.alice.traffic.distrusted["order_acknowledgment"]
    async with acceptor(target, identifier) as sessions:  # it died, and has nothing: all comes again
        destination = await sessions.get()
        assert [(await destination.next(0)).body for _ in range(COUNT)] == numbered()


@attack(
    Area.ACKNOWLEDGMENTS,
    can="after the sender restarts, send acknowledgments of its messages before it sends them again",
    promised="the sender sends the messages again, and they arrive",
)
async def test_acknowledgments_take_nothing_after_a_restart(pair: Pair, own: str) -> None:
    bob, name, alice = pair.bob.identifier, pair.direct("BOB", TRANSACTIONAL), pair.addresses["ALICE"]
    await pair.stop("BOB")
    await send(pair.alice, name, numbered())
    packets = packets_of(pair.alice)
    await pair.stop("ALICE")
    await pair.start("ALICE")
    forged = [wire.order_ack(bob, 1, alice, packets[-1].place.sequence, number) for number in range(1, COUNT + 1)]
    await say_to(pair.alice, own, alice, [bob], forged + final_acks(bob, alice, pair.alice.identifier, packets))
    assert waiting(pair.alice) == COUNT
    await pair.start("BOB")
    assert await receive(pair.bob, TRANSACTIONAL, COUNT) == numbered()


@attack(
    Area.ACKNOWLEDGMENTS,
    can="send acknowledgments that name the sender itself as their author",
    promised="the acknowledgments change nothing",
)
async def test_nobody_acknowledges_a_nodes_messages_in_its_own_name(pair: Pair, own: str) -> None:
    name, alice, itself = pair.direct("BOB", TRANSACTIONAL), pair.addresses["ALICE"], pair.alice.identifier
    await pair.stop("BOB")
    await send(pair.alice, name, numbered())
    packets = packets_of(pair.alice)
    forged = [wire.order_ack(itself, 1, alice, packets[-1].place.sequence, number) for number in range(1, COUNT + 1)]
    await say_to(pair.alice, own, alice, [itself], forged + final_acks(itself, alice, itself, packets))
    assert waiting(pair.alice) == COUNT
    assert pair.alice.traffic.distrusted["own_name"] == len(forged) + COUNT * len(REASONS)
    await pair.start("BOB")
    assert await receive(pair.bob, TRANSACTIONAL, COUNT) == numbered()


@attack(
    Area.ACKNOWLEDGMENTS,
    can="as a machine of the enterprise, acknowledge messages that are for another machine, or report that they came "
    "too late",
    promised="the sender keeps its messages, and they arrive",
)
async def test_a_machine_acknowledges_nothing_for_another(enterprise: Enterprise) -> None:
    source = await enterprise.start("SOURCE")
    stranger, target = enterprise.identifier("STRANGER"), enterprise.identifier("TARGET")
    name, address = enterprise.name("TARGET", 5), enterprise.address("SOURCE")
    await send(source, name, numbered())
    packets = packets_of(source)
    sequence = packets[-1].place.sequence
    for author in (stranger, target):
        forged = [wire.order_ack(author, 1, source.identifier, sequence, number) for number in (1, COUNT)]
        forged += final_acks(author, source.identifier, source.identifier, packets)
        await say_to(source, enterprise.address("STRANGER"), address, [stranger, target], forged)
        await asyncio.sleep(0)
    assert waiting(source) == COUNT
    await enterprise.start("ROUTER")
    node = await enterprise.start("TARGET")
    await node.create_queue(TRANSACTIONAL, transactional=True)
    assert await receive(node, TRANSACTIONAL, COUNT) == numbered()
    await sent(source)


@attack(
    Area.ACKNOWLEDGMENTS,
    can="report in the destination's name that messages were refused, while they wait in a routing server",
    promised="if the directory has the destination at another address, the sender does not believe the report: it "
    "makes no dead letter and no journal copy",
)
async def test_how_a_message_ended_is_not_said_from_another_address(enterprise: Enterprise, own: str) -> None:
    source, router = await enterprise.start("SOURCE"), await enterprise.start("ROUTER")
    more = {"negative_journaling_requested": True, "positive_journaling_requested": True}
    await send(source, enterprise.name("TARGET", 5), numbered(), **more)  # type: ignore[arg-type]
    packets = packets_of(source)
    (queue_sender,) = source.network._queue_senders.values()  # type: ignore[attr-defined]
    await eventually(lambda: len(queue_sender.credibility._stored) == COUNT, "the router has them")
    assert waiting(router) == COUNT
    target = enterprise.identifier("TARGET")
    forged = final_acks(target, source.identifier, source.identifier, packets)
    await say_to(source, own, enterprise.address("SOURCE"), [target, enterprise.identifier("STRANGER")], forged)
    assert waiting(source) == COUNT
    node = await enterprise.start("TARGET")
    await node.create_queue(TRANSACTIONAL, transactional=True)
    assert await receive(node, TRANSACTIONAL, COUNT) == numbered()
    await sent(source)
    assert source.queue_collection.transactional_dead_letter.message_count == 0
    await eventually(
        lambda: source.journal_queue.message_count == COUNT, "the destination says that they were received"
    )


@attack(
    Area.ACKNOWLEDGMENTS,
    can="as a machine of the enterprise, acknowledge messages that were sent to the address of another machine, or "
    "report how they ended, before the sender knows which queue manager is at this address",
    promised="the sender keeps its messages, and they arrive",
)
async def test_a_machine_ends_nothing_that_was_sent_to_an_address(enterprise: Enterprise) -> None:
    source, stranger = await enterprise.start("SOURCE"), enterprise.identifier("STRANGER")
    await send(source, rf"DIRECT=TCP:{enterprise.address('TARGET')}{TRANSACTIONAL[1:]}", numbered())
    packets = packets_of(source)
    sequence = packets[-1].place.sequence
    forged = [wire.order_ack(stranger, 1, enterprise.address("SOURCE"), sequence, number) for number in (1, COUNT)]
    forged += final_acks(stranger, enterprise.address("SOURCE"), source.identifier, packets)
    await say_to(source, enterprise.address("STRANGER"), enterprise.address("SOURCE"), [stranger], forged)
    assert waiting(source) == COUNT
    node = await enterprise.start("TARGET")
    await node.create_queue(TRANSACTIONAL, transactional=True)
    assert await receive(node, TRANSACTIONAL, COUNT) == numbered()
    await sent(source)


@attack(
    Area.ACKNOWLEDGMENTS,
    can="report that messages in a routing server came too late, in the name of this server, of another machine, or "
    "of a machine that does not exist",
    promised="the sender believes this report only from the destination, or from a machine that may forward the "
    "sender's messages by the topology, and only from its address",
)
async def test_too_late_on_the_way_is_not_said_by_anybody(enterprise: Enterprise, own: str) -> None:
    source, router = await enterprise.start("SOURCE"), await enterprise.start("ROUTER")
    more = {"negative_journaling_requested": True, "positive_journaling_requested": True}
    await send(source, enterprise.name("TARGET", 5), numbered(), **more)  # type: ignore[arg-type]
    packets = packets_of(source)
    (queue_sender,) = source.network._queue_senders.values()  # type: ignore[attr-defined]
    await eventually(lambda: len(queue_sender.credibility._stored) == COUNT, "the router has them")
    assert waiting(router) == COUNT
    for author in (enterprise.identifier("ROUTER"), enterprise.identifier("STRANGER"), wire.identifier()):
        forged = final_acks(author, source.identifier, source.identifier, packets)
        await say_to(source, own, enterprise.address("SOURCE"), [author], forged)
        assert waiting(source) == COUNT
    node = await enterprise.start("TARGET")
    await node.create_queue(TRANSACTIONAL, transactional=True)
    assert await receive(node, TRANSACTIONAL, COUNT) == numbered()
    await sent(source)
    assert source.queue_collection.transactional_dead_letter.message_count == 0
    await eventually(
        lambda: source.journal_queue.message_count == COUNT, "the destination says that they were received"
    )


@attack(
    Area.ACKNOWLEDGMENTS,
    can="report in the destination's name that messages arrived in order, while they wait in a routing server",
    promised="if the directory has the destination at another address, the sender does not believe the report and "
    "keeps the messages. If they expire on their way, the destination does not wait for them",
)
async def test_arrival_in_order_is_not_said_from_another_address(enterprise: Enterprise, own: str) -> None:
    source, router = await enterprise.start("SOURCE"), await enterprise.start("ROUTER")
    name = enterprise.name("TARGET", 5)
    await send(source, name, numbered())
    packets = packets_of(source)
    (queue_sender,) = source.network._queue_senders.values()  # type: ignore[attr-defined]
    await eventually(lambda: len(queue_sender.credibility._stored) == COUNT, "the router has them")
    assert waiting(router) == COUNT
    target, sequence = enterprise.identifier("TARGET"), packets[-1].place.sequence
    forged = [wire.order_ack(target, 1, source.identifier, sequence, number) for number in (COUNT // 2, COUNT)]
    await say_to(source, own, enterprise.address("SOURCE"), [target, enterprise.identifier("STRANGER")], forged)
    assert waiting(source) == COUNT
    assert source.traffic.distrusted["order_acknowledgment"] == 2 * len(forged)
    node = await enterprise.start("TARGET")
    await node.create_queue(TRANSACTIONAL, transactional=True)
    assert await receive(node, TRANSACTIONAL, COUNT) == numbered()
    await sent(source)


@attack(
    Area.ACKNOWLEDGMENTS,
    can="send the destination a message in the sender's name, with the sequence and the last number of messages that "
    "are on their way to another queue there, so that the destination itself acknowledges these messages to the "
    "sender",
    promised="the destination does not acknowledge a stranger's message to the sender, so the sender keeps its "
    "messages",
)
@pytest.mark.parametrize("number", [5, 6, 99], ids=["the same queue", "another queue", "no queue"])
async def test_the_destination_does_not_acknowledge_what_a_stranger_delivered(
    enterprise: Enterprise, own: str, number: int
) -> None:
    source, router = await enterprise.start("SOURCE"), await enterprise.start("ROUTER")
    node = await enterprise.start("TARGET")
    for queue in (TRANSACTIONAL, r".\private$\other"):
        await node.create_queue(queue, transactional=True)
    name = enterprise.name("TARGET", 5)
    async with await router.open_queue(name, Access.SEND):
        await router.pause_queue(name)
        await send(source, name, numbered())
        (queue_sender,) = source.network._queue_senders.values()  # type: ignore[attr-defined]
        await eventually(lambda: len(queue_sender.credibility._stored) == COUNT, "the router has them")
        packet = wire.UserMessage(
            source=source.identifier, message_id=7_000_000, queue=wire.private(number), address=node.identifier,
            place=Place(packets_of(source)[-1].place.sequence, COUNT, 0),
        )  # fmt: skip
        async with session(own, enterprise.address("TARGET"), source.identifier) as mallory:
            await mallory.say(packet.packet())
        incoming = node.network.state.incoming  # type: ignore[attr-defined]
        await eventually(lambda: incoming.next_timer() is None, "the acknowledgment is due")
        toward = [queue for queue in outgoing(node) if queue.for_acknowledgments]
        assert not [queue.pathname for queue in toward if queue.pathname.startswith("PRIVATE=")]
        assert waiting(source) == COUNT
        await router.resume_queue(name)
    await sent(source)
    assert await bodies_until(node, TRANSACTIONAL, numbered()[-1]) == [*[b"forged"] * (number == 5), *numbered()]


@attack(
    Area.ACKNOWLEDGMENTS,
    can="deliver the first message of a sequence from many addresses, and listen at none of them later",
    promised="order acknowledgments for these addresses wait for a limited time",
)
async def test_what_acknowledges_strangers_does_not_wait_for_ever(
    enterprise: Enterprise, own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "_ORDER_ACK_LIFE", 3.0)
    source, node = await enterprise.start("SOURCE"), await enterprise.start("TARGET")
    await node.create_queue(TRANSACTIONAL, transactional=True)
    for at, address in enumerate([own, loopback_address(), loopback_address()]):
        packet = wire.UserMessage(
            source=source.identifier, message_id=7_000_000 + at, queue=wire.private(5), address=node.identifier,
            place=Place(int(time.time()) + at << 32, 1, 0),
        )  # fmt: skip
        async with session(address, enterprise.address("TARGET"), source.identifier) as mallory:
            await mallory.say(packet.packet())

    def waiting_acknowledgments() -> int:
        return sum(queue.message_count for queue in outgoing(node) if queue.for_acknowledgments)

    await eventually(lambda: waiting_acknowledgments() == 3, "they wait")
    await eventually(lambda: not waiting_acknowledgments(), "they do not wait any more")


@attack(
    Area.ACKNOWLEDGMENTS,
    can="report in the destination's name how messages ended, while the name service does not answer",
    promised="the sender believes nothing until the name service answers where the destination is",
)
async def test_how_a_message_ended_is_not_said_while_the_name_service_is_silent(
    enterprise: Enterprise, own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("neighbours", "topology"):
        monkeypatch.setattr(f"qmnode.delivery.{module}._PATIENCE", 0.5)
    router = await enterprise.start("ROUTER")
    target, answers = enterprise.identifier("TARGET"), DirectoryResolver.addresses

    async def silent(resolver: DirectoryResolver, machine: Guid) -> list[NextHop]:
        if machine == target and resolver is not router.network.resolver:  # type: ignore[attr-defined]
            await asyncio.Event().wait()
        return await answers(resolver, machine)

    monkeypatch.setattr(DirectoryResolver, "addresses", silent)
    source = await enterprise.start("SOURCE")
    more = {"negative_journaling_requested": True, "positive_journaling_requested": True}
    await send(source, enterprise.name("TARGET", 5), numbered(), **more)  # type: ignore[arg-type]
    packets = packets_of(source)
    (queue_sender,) = source.network._queue_senders.values()  # type: ignore[attr-defined]
    await eventually(lambda: len(queue_sender.credibility._stored) == COUNT, "the router has them")
    forged = final_acks(target, source.identifier, source.identifier, packets)
    forged += [wire.order_ack(target, 1, source.identifier, packets[-1].place.sequence, COUNT)]
    async with session(own, enterprise.address("SOURCE"), target) as peer:
        peer.send(*forged)
        assert await peer.is_closed()
    assert waiting(source) == COUNT
    monkeypatch.setattr(DirectoryResolver, "addresses", answers)
    node = await enterprise.start("TARGET")
    await node.create_queue(TRANSACTIONAL, transactional=True)
    assert await receive(node, TRANSACTIONAL, COUNT) == numbered()
    await sent(source)
    assert not source.queue_collection.transactional_dead_letter.message_count
    await eventually(
        lambda: source.journal_queue.message_count == COUNT, "the destination says that they were received"
    )


@attack(
    Area.ACKNOWLEDGMENTS,
    can="report that messages were refused, after they arrived and before their final acknowledgments come",
    promised="the sender waits for the final acknowledgments of the destination",
)
async def test_how_a_message_ended_says_its_destination_alone(pair: Pair, own: str) -> None:
    name, alice, bob = pair.direct("BOB", TRANSACTIONAL), pair.addresses["ALICE"], pair.bob.identifier
    await pair.alice.set_online(False)
    await send(pair.alice, name, numbered(), negative_journaling_requested=True)
    packets = packets_of(pair.alice)
    await pair.alice.set_online(True)
    await sent(pair.alice)
    waits = pair.alice.queue_collection.awaiting_final_ack
    assert waits.message_count == COUNT
    await say_to(pair.alice, own, alice, [bob], final_acks(bob, alice, pair.alice.identifier, packets))
    assert waits.message_count == COUNT
    assert not pair.alice.queue_collection.transactional_dead_letter.message_count
    assert await receive(pair.bob, TRANSACTIONAL, COUNT) == numbered()
    await eventually(lambda: not waits.message_count, "the destination's word is taken")
    assert not pair.alice.queue_collection.transactional_dead_letter.message_count


def test_acknowledgments_that_match_nothing_count_by_address_block() -> None:
    distrust = Distrust(Counter())
    assert not distrust.is_noisy("2001:db8::1", 0.0)
    for number in range(300):
        distrust.missed(Distrusted.FINAL_ACK, f"2001:db8::{number:x}", 0.0)
    assert distrust.is_noisy("2001:db8::ffff", 1.0)
    assert not distrust.is_noisy("2001:db8:0:1::1", 1.0)
    assert not distrust.is_noisy("2001:db8::ffff", 61.0)


@attack(
    Area.ACKNOWLEDGMENTS,
    can="send thousands of acknowledgments that belong to no message",
    promised="the sender counts and drops them; they take next to no time from others",
)
async def test_what_fits_nothing_is_cheap(pair: Pair, own: str) -> None:
    name, alice = pair.direct("BOB", TRANSACTIONAL), pair.addresses["ALICE"]
    await pair.stop("BOB")
    await send(pair.alice, name, numbered())
    place = packets_of(pair.alice)[-1].place
    count, stranger = 4_000, wire.identifier()
    forged = [
        wire.final_ack(
            stranger, number + 1, alice, wire.PURGED, Place(place.sequence, number + 1, number),
            pair.alice.identifier, number,
        )
        for number in range(count)
    ]  # fmt: skip
    began = time.process_time()
    await say_to(pair.alice, own, alice, [stranger], forged)
    assert time.process_time() - began < count * 0.01
    assert pair.alice.traffic.distrusted["final_acknowledgment"] == count
    await pair.start("BOB")
    assert await receive(pair.bob, TRANSACTIONAL, COUNT) == numbered()
