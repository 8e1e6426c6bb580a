"""Attacks on the order of transactional messages (MS-MQQB 3.1.1.5): none is lost, doubled or held back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qmnode.delivery.topology import DirectoryResolver
from qmnode.directory.port import DirectoryOperationError, DirectoryOperationResult
from qmnode.protocol.connection import NextHop
from qmnode.protocol.incoming_sequences import MOST_BRANCHES
from qmnode.structures.guid import Guid
from tests.adversary import wire
from tests.adversary.attacks import Area, attack
from tests.adversary.lab import (
    HIGHEST,
    Enterprise,
    bodies_until,
    enterprise_in,
    number_in,
    packets_of,
    receive,
    send,
    sent,
    waiting,
)
from tests.adversary.peer import session
from tests.adversary.wire import Place
from tests.forwarding.enterprise import Machine
from tests.lab.waiting import eventually
from tests.transport.conftest import PLAIN, TRANSACTIONAL, Pair, loopback_address

COUNT = 20
PAUSES = (("topology", "_PAUSE"), ("topology", "_FRESH_FAILURE"))
"""The least times between look-ups of one machine."""


@pytest.fixture
async def enterprise(tmp_path: Path) -> AsyncIterator[Enterprise]:
    async with enterprise_in(tmp_path) as enterprise:
        yield enterprise


def numbered(first: int, count: int = COUNT) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def forged(pair: Pair, place: Place, queue: str = TRANSACTIONAL, body: bytes = b"forged") -> bytes:
    """A transactional message of ALICE for a queue of BOB, by the name that she uses."""
    name = pair.direct("BOB", queue).removeprefix("DIRECT=")
    return wire.UserMessage(
        source=pair.alice.identifier, message_id=1_000_000, queue=wire.direct(name), place=place, body=body
    ).packet()


def real(found: list[bytes]) -> list[bytes]:
    return [body for body in found if body != b"forged"]


@attack(
    Area.SEQUENCES,
    can="send a router one packet in the router's own name, with a very high sequence, for a third machine",
    promised="all messages of the router itself to this machine arrive, also after the router restarts",
)
async def test_a_packet_in_a_nodes_own_name_acknowledges_nothing_of_it(enterprise: Enterprise, own: str) -> None:
    router, target = await enterprise.start("ROUTER"), await enterprise.start("TARGET")
    await target.create_queue(TRANSACTIONAL, transactional=True)
    name = enterprise.name("TARGET", 5)
    await send(router, name, numbered(0))
    packet = wire.UserMessage(
        source=router.identifier, address=target.identifier, message_id=7, queue=number_in(name),
        place=Place(HIGHEST, 1, 0),
    ).packet()  # fmt: skip
    async with session(own, enterprise.address("ROUTER"), wire.identifier()) as peer:
        await peer.say(packet)
    assert router.traffic.distrusted["own_name"] == 1
    await send(router, name, numbered(COUNT))
    await sent(router)
    await enterprise.stop("ROUTER")
    router = await enterprise.start("ROUTER")
    await send(router, name, numbered(2 * COUNT))
    assert await receive(target, TRANSACTIONAL, 3 * COUNT) == numbered(0, 3 * COUNT)


@attack(
    Area.SEQUENCES,
    can="send one packet in the sender's name, with the highest sequence that can occur, to a queue that accepts or "
    "refuses it",
    promised="the sender's messages arrive in order, also after sender and receiver restart",
)
@pytest.mark.parametrize("queue", [TRANSACTIONAL, PLAIN, r".\private$\nothing"])
@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
async def test_the_highest_sequence_keeps_nobody_out(pair: Pair, own: str, queue: str, first: bool) -> None:
    name = pair.direct("BOB", TRANSACTIONAL)
    if not first:
        await send(pair.alice, name, numbered(0))
    async with session(own, pair.addresses["BOB"], pair.alice.identifier) as peer:
        await peer.say(forged(pair, Place(HIGHEST, 0xFFFF_0000, 0), queue))
    if first:
        await send(pair.alice, name, numbered(0))
    for node in ("BOB", "ALICE"):
        await pair.stop(node)
        await pair.start(node)
    await send(pair.alice, name, numbered(COUNT))
    assert real(await bodies_until(pair.bob, TRANSACTIONAL, b"%d" % (2 * COUNT - 1))) == numbered(0, 2 * COUNT)


@attack(
    Area.SEQUENCES,
    can="send messages with the sequence and numbers that the sender will use next, but with other bodies",
    promised="the sender's messages are delivered too, in order",
)
async def test_the_senders_next_places_cannot_be_taken(pair: Pair, own: str) -> None:
    name = pair.direct("BOB", TRANSACTIONAL)
    await pair.alice.set_online(False)
    await send(pair.alice, name, numbered(0))
    places = [packet.place for packet in packets_of(pair.alice)]
    assert len(places) == COUNT
    async with session(own, pair.addresses["BOB"], pair.alice.identifier) as peer:
        await peer.say(*(forged(pair, place) for place in places))
    await pair.alice.set_online(True)
    assert real(await bodies_until(pair.bob, TRANSACTIONAL, b"%d" % (COUNT - 1))) == numbered(0)
    await sent(pair.alice)


@attack(
    Area.SEQUENCES,
    can="send copies of all packets of the sender, word for word, from other addresses, before and after the sender",
    promised="each message is delivered once, in order",
)
async def test_replayed_packets_are_not_delivered_again(pair: Pair, own: str) -> None:
    name = pair.direct("BOB", TRANSACTIONAL)
    await pair.alice.set_online(False)
    await send(pair.alice, name, numbered(0))
    packets = [packet.data for packet in packets_of(pair.alice)]
    async with session(own, pair.addresses["BOB"], pair.alice.identifier) as peer:
        await peer.say(*packets[: COUNT // 2])
        await pair.alice.set_online(True)
        assert await receive(pair.bob, TRANSACTIONAL, COUNT) == numbered(0)
        await peer.say(*packets)
        async with session(loopback_address(), pair.addresses["BOB"], pair.alice.identifier) as another:
            await another.say(*packets)
    await send(pair.alice, name, [b"last"])
    assert await receive(pair.bob, TRANSACTIONAL, 1) == [b"last"]


@attack(
    Area.SEQUENCES,
    can="open a session in one name, and send packets that name another queue manager as their source",
    promised="the node's position in the sequence of that queue manager does not change",
)
async def test_a_stranger_under_its_own_name_moves_nobodys_sequence(pair: Pair, own: str) -> None:
    name = pair.direct("BOB", TRANSACTIONAL)
    await send(pair.alice, name, numbered(0))
    await sent(pair.alice)
    async with session(own, pair.addresses["BOB"], wire.identifier()) as peer:
        await peer.say(forged(pair, Place(HIGHEST, 1, 0)), forged(pair, Place(HIGHEST, 0xFFFF_FFFF, 1)))
    await send(pair.alice, name, numbered(COUNT))
    assert real(await bodies_until(pair.bob, TRANSACTIONAL, b"%d" % (2 * COUNT - 1))) == numbered(0, 2 * COUNT)


@attack(
    Area.SEQUENCES,
    can="send packets in the sender's name, so that the receiver sends the sender's acknowledgments to the attacker",
    promised="the sender gets the acknowledgments of its messages, and the attacker gets none of them",
)
async def test_nobody_draws_the_acknowledgments_of_another(pair: Pair, own: str) -> None:
    name = pair.direct("BOB", TRANSACTIONAL)
    await send(pair.alice, name, numbered(0))
    await sent(pair.alice)
    stale = forged(pair, Place(1, 5, 4))
    async with session(own, pair.addresses["BOB"], pair.alice.identifier) as peer:
        await peer.say(stale)
        await send(pair.alice, name, numbered(COUNT))
        await peer.say(stale)
        await sent(pair.alice)
    assert await receive(pair.bob, TRANSACTIONAL, 2 * COUNT) == numbered(0, 2 * COUNT)


@attack(
    Area.SEQUENCES,
    can="begin a sequence with a time stamp far in the future, in the sender's name, from the attacker's own address",
    promised="the receiver drops the messages of this sequence",
)
async def test_a_sequence_of_the_future_is_not_taken(pair: Pair, own: str) -> None:
    future = int(time.time()) + 200_000 << 32
    async with session(own, pair.addresses["BOB"], pair.alice.identifier) as peer:
        await peer.say(forged(pair, Place(future, 1, 0)), forged(pair, Place(future | 0xFFFF_FFFF, 1, 0)))
    assert pair.bob.traffic.distrusted["future_sequence"] == 2
    await send(pair.alice, pair.direct("BOB", TRANSACTIONAL), [b"last"])
    assert await receive(pair.bob, TRANSACTIONAL, 1) == [b"last"]


@attack(
    Area.SEQUENCES,
    can="send messages in the name of a machine of the enterprise, before this machine sends and while it sends",
    promised="all messages of the machine arrive, once and in order; while it sends, the receiver accepts none of the "
    "attacker's",
)
async def test_a_machine_of_the_enterprise_goes_before_who_only_says_so(enterprise: Enterprise, own: str) -> None:
    source, target = await enterprise.start("SOURCE"), await enterprise.start("TARGET")
    await enterprise.start("ROUTER")
    await target.create_queue(TRANSACTIONAL, transactional=True)
    name = enterprise.name("TARGET", 5)

    def forge(place: Place) -> bytes:
        return wire.UserMessage(
            source=source.identifier, address=target.identifier, message_id=7, queue=number_in(name), place=place
        ).packet()

    async with session(own, enterprise.address("TARGET"), source.identifier) as peer:
        await peer.say(forge(Place(HIGHEST, 1, 0)))
        await send(source, name, numbered(0))
        await eventually(lambda: target_count(target) == COUNT + 1, "all are there")
        await peer.say(forge(Place(HIGHEST + 1, 1, 0)), forge(Place(HIGHEST + 1, 2, 1)))
        assert target.traffic.distrusted["contested"] == 2
    await send(source, name, numbered(COUNT))
    found = await bodies_until(target, TRANSACTIONAL, b"%d" % (2 * COUNT - 1))
    assert found.count(b"forged") == 1
    assert real(found) == numbered(0, 2 * COUNT)


def target_count(node: object) -> int:
    return node.names.find(TRANSACTIONAL).message_count  # type: ignore[attr-defined,no-any-return]


@attack(
    Area.SEQUENCES,
    can="have a routing server forward packets in the name of a machine that has another address",
    promised="the routing server forwards none of them; the machine's own messages arrive in order",
)
async def test_a_routing_server_does_not_vouch_for_strangers(enterprise: Enterprise, own: str) -> None:
    source, target = await enterprise.start("SOURCE"), await enterprise.start("TARGET")
    router = await enterprise.start("ROUTER")
    await target.create_queue(TRANSACTIONAL, transactional=True)
    name = enterprise.name("TARGET", 5)
    packet = wire.UserMessage(
        source=source.identifier, address=target.identifier, message_id=7, queue=number_in(name),
        place=Place(HIGHEST, 1, 0),
    ).packet()  # fmt: skip
    async with session(own, enterprise.address("ROUTER"), source.identifier) as peer:
        peer.send(packet)
        assert await peer.is_closed()
    assert router.traffic.distrusted["elsewhere"] == 1
    await send(source, name, numbered(0))
    assert await receive(target, TRANSACTIONAL, COUNT) == numbered(0)


@attack(
    Area.SEQUENCES,
    can="have a routing server forward packets in the name of a machine while the name service does not answer, or the "
    "directory answers with an error",
    promised="the routing server forwards nothing in this name until it knows the addresses of the machine",
)
@pytest.mark.parametrize("is_silent", [True, False], ids=["silent", "error"])
async def test_a_name_service_that_does_not_answer_lets_no_stranger_pass(
    enterprise: Enterprise, own: str, monkeypatch: pytest.MonkeyPatch, is_silent: bool
) -> None:
    for module, seconds in (("neighbours", "_PATIENCE"), ("topology", "_PATIENCE"), *PAUSES):
        monkeypatch.setattr(f"qmnode.delivery.{module}.{seconds}", 0.5)
    source, target = await enterprise.start("SOURCE"), await enterprise.start("TARGET")
    router = await enterprise.start("ROUTER")
    await target.create_queue(TRANSACTIONAL, transactional=True)
    name, answers = enterprise.name("TARGET", 5), DirectoryResolver.addresses

    async def without_answer(resolver: DirectoryResolver, machine: Guid) -> list[NextHop]:
        if machine == source.identifier:
            if is_silent:
                await asyncio.Event().wait()
            raise DirectoryOperationError(DirectoryOperationResult.DIRECTORY_NOT_CONNECTED, "it is away")
        return await answers(resolver, machine)

    monkeypatch.setattr(DirectoryResolver, "addresses", without_answer)
    packet = wire.UserMessage(
        source=source.identifier, address=target.identifier, message_id=7, queue=number_in(name),
        place=Place(HIGHEST, 1, 0),
    ).packet()  # fmt: skip
    async with session(own, enterprise.address("ROUTER"), wire.identifier()) as peer:
        peer.send(packet)
        assert await peer.is_closed()
    assert not waiting(router)
    monkeypatch.setattr(DirectoryResolver, "addresses", answers)
    await send(source, name, numbered(0))
    assert await receive(target, TRANSACTIONAL, COUNT) == numbered(0)


@attack(
    Area.SEQUENCES,
    can="send messages of the sender's sequence from as many addresses as the attacker has",
    promised="the receiver remembers a limited number of these addresses, and keeps the sender's own position",
)
async def test_many_addresses_push_nobody_out(pair: Pair) -> None:
    name = pair.direct("BOB", TRANSACTIONAL)
    await send(pair.alice, name, numbered(0))
    await sent(pair.alice)
    for number in range(24):
        async with session(loopback_address(), pair.addresses["BOB"], pair.alice.identifier) as peer:
            await peer.say(forged(pair, Place(HIGHEST + number, 1, 0)))
    known = [one for one in pair.bob.network.state.incoming if one.source == pair.alice.identifier]  # type: ignore[attr-defined]
    assert len(known) == MOST_BRANCHES
    await send(pair.alice, name, numbered(COUNT))
    assert real(await bodies_until(pair.bob, TRANSACTIONAL, b"%d" % (2 * COUNT - 1))) == numbered(0, 2 * COUNT)


# Honest senders that look like attackers


async def test_a_routing_server_may_be_told_to_pass_on_what_comes_from_any_address(
    enterprise: Enterprise, own: str
) -> None:
    """Where addresses are translated on the way."""
    target = await enterprise.start("TARGET")
    source = await enterprise.start("SOURCE", address=own)
    await enterprise.start("ROUTER", only_registered_addresses=False)
    await target.create_queue(TRANSACTIONAL, transactional=True)
    await send(source, enterprise.name("TARGET", 5), numbered(0))
    assert await receive(target, TRANSACTIONAL, COUNT) == numbered(0)


async def test_a_sender_that_moves_there_and_back_goes_on_in_its_sequence(pair: Pair) -> None:
    name = pair.direct("BOB", TRANSACTIONAL)
    home, first = pair.addresses["ALICE"], 0
    for address in (home, loopback_address(), home, loopback_address()):
        await pair.stop("ALICE")
        pair.addresses["ALICE"] = address
        pair.bob.network.notices.order = lambda acknowledgment: None  # lost on its way: the next address sends again
        await pair.start("ALICE")
        await send(pair.alice, name, numbered(first, 5))
        first += 5
        await eventually(lambda: target_count(pair.bob) == first, "they arrive")  # noqa: B023  # awaited
    assert await receive(pair.bob, TRANSACTIONAL, first) == numbered(0, first)


async def test_a_machine_at_an_unregistered_address_is_served_once_the_registered_one_is_silent(
    enterprise: Enterprise, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qmnode.protocol.incoming_sequences.SPEAKING", 0.0)
    target = await enterprise.start("TARGET")
    await enterprise.start("ROUTER")
    await target.create_queue(TRANSACTIONAL, transactional=True)
    name, first = enterprise.name("TARGET", 5), 0
    direct = rf"DIRECT=TCP:{enterprise.address('TARGET')}\private$\tx"
    for address in ("", loopback_address(), "", loopback_address()):
        source = await enterprise.start("SOURCE", address)
        await send(source, direct, numbered(first, 5))
        first += 5
        await eventually(lambda: target_count(target) == first, "they arrive")  # noqa: B023  # awaited
        await enterprise.stop("SOURCE")
    assert await receive(target, TRANSACTIONAL, first) == numbered(0, first)
    assert name


async def test_messages_of_a_failed_over_router_come_once_and_in_order(pair: Pair, own: str) -> None:
    """Another peer brings the rest of a sequence that no directory knows: it goes on."""
    name = pair.direct("BOB", TRANSACTIONAL).removeprefix("DIRECT=")
    source = wire.identifier()

    def message(number: int) -> bytes:
        return wire.UserMessage(
            source=source, message_id=number, queue=wire.direct(name), place=Place(9 << 32, number, number - 1),
            body=b"%d" % number,
        ).packet()  # fmt: skip

    packets = [message(number) for number in range(1, 11)]  # once: a message that is sent again is the same
    async with session(own, pair.addresses["BOB"], wire.identifier()) as peer:
        await peer.say(*packets[:5])
    async with session(loopback_address(), pair.addresses["BOB"], wire.identifier()) as peer:
        await peer.say(*packets[2:8])
    async with session(own, pair.addresses["BOB"], wire.identifier()) as peer:
        await peer.say(*packets[6:])
    assert await receive(pair.bob, TRANSACTIONAL, 10) == numbered(1, 10)


async def test_sources_that_the_directory_does_not_find_are_looked_up_together(
    enterprise: Enterprise, own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("neighbours", "topology"):
        monkeypatch.setattr(f"qmnode.delivery.{module}._PATIENCE", 0.5)
    for number in range(12):
        enterprise.machines[f"AWAY{number}"] = Machine(f"AWAY{number}", ["south"])
    enterprise.directory.write()
    target = await enterprise.start("TARGET")
    await target.create_queue(PLAIN)
    asked: list[bytes] = []

    async def never(_: DirectoryResolver, machine: Guid) -> None:
        asked.append(machine)
        await asyncio.Event().wait()

    monkeypatch.setattr(DirectoryResolver, "addresses", never)
    name = wire.direct(rf"TCP:{enterprise.address('TARGET')}\private$\plain")
    sources = [enterprise.identifier(f"AWAY{number}") for number in range(12)]
    async with session(own, enterprise.address("TARGET"), target.identifier) as peer:
        await peer.say(*(wire.UserMessage(source=source, message_id=1, queue=name).packet() for source in sources))
    assert 0 < len(asked) < len(sources)
