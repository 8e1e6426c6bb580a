"""Attacks on what a node remembers of messages that came (MS-MQQB 3.1.5.8.1): identifiers can be counted by anybody."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qmnode.structures.enumerations import MessageClass
from tests.adversary import wire
from tests.adversary.attacks import Area, attack
from tests.adversary.lab import (
    Enterprise,
    bodies_until,
    enterprise_in,
    number_in,
    packets_of,
    receive,
    send,
    sent,
)
from tests.adversary.peer import session
from tests.lab.waiting import eventually
from tests.transport.conftest import PLAIN, Pair, loopback_address

ADMIN = r".\private$\admin"
COUNT = 20
LAST = b"%d" % (COUNT - 1)


@pytest.fixture
async def enterprise(tmp_path: Path) -> AsyncIterator[Enterprise]:
    async with enterprise_in(tmp_path) as enterprise:
        yield enterprise


def numbered(first: int = 0, count: int = COUNT) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def real(found: list[bytes]) -> list[bytes]:
    return [body for body in found if body != b"forged"]


def forged(pair: Pair, number: int, queue: str = PLAIN, **more: object) -> bytes:
    """A message with an identifier of ALICE, for a queue of BOB."""
    name = pair.direct("BOB", queue).removeprefix("DIRECT=")
    return wire.UserMessage(
        source=pair.alice.identifier,
        message_id=number,
        queue=wire.direct(name),
        **more,  # type: ignore[arg-type]
    ).packet()


async def identifiers_of_alice(pair: Pair) -> list[int]:
    """Those of the messages that she will send when she is online again."""
    await pair.alice.set_online(False)
    await send(pair.alice, pair.direct("BOB", PLAIN), numbered(), transactional=False)
    numbers = [packet.message_id for packet in packets_of(pair.alice)]
    assert len(numbers) == COUNT
    return numbers


@attack(
    Area.HISTORY,
    can="send messages with the identifiers that the sender will use next, to a queue that exists or to one that does "
    "not",
    promised="the sender's messages with these identifiers arrive",
)
@pytest.mark.parametrize("queue", [PLAIN, r".\private$\nothing", r".\private$\tx"])
@pytest.mark.parametrize("itself", [True, False], ids=["as_the_sender", "as_itself"])
async def test_identifiers_that_a_stranger_claims_are_its_own(pair: Pair, own: str, queue: str, itself: bool) -> None:
    numbers = await identifiers_of_alice(pair)
    name = pair.alice.identifier if itself else wire.identifier()
    async with session(own, pair.addresses["BOB"], name) as peer:
        await peer.say(*(forged(pair, number, queue) for number in numbers))
    await pair.alice.set_online(True)
    assert real(await bodies_until(pair.bob, PLAIN, LAST)) == numbered()


@attack(
    Area.HISTORY,
    can="send messages with all identifiers that the sender will use next, and wait until the receiver restarts",
    promised="the sender's messages arrive: the identifiers that the receiver reads from its disk do no harm either",
)
async def test_claimed_identifiers_do_no_more_after_a_restart(pair: Pair, own: str) -> None:
    await send(pair.alice, pair.direct("BOB", PLAIN), [b"seen"], transactional=False)
    assert await receive(pair.bob, PLAIN, 1) == [b"seen"]
    await sent(pair.alice)
    async with session(own, pair.addresses["BOB"], pair.alice.identifier) as peer:
        await peer.say(*(forged(pair, number, r".\private$\nothing") for number in range(1, 200)))
    await pair.stop("BOB")
    await pair.start("BOB")
    await send(pair.alice, pair.direct("BOB", PLAIN), numbered(), transactional=False)
    assert await bodies_until(pair.bob, PLAIN, LAST) == numbered()


@attack(
    Area.HISTORY,
    can="send copies of the sender's recoverable packets, word for word, before and after the sender, from two "
    "addresses",
    promised="each message is delivered once",
)
async def test_replayed_recoverable_packets_are_delivered_once(pair: Pair, own: str) -> None:
    await identifiers_of_alice(pair)
    packets = [packet.data for packet in packets_of(pair.alice)]
    async with session(own, pair.addresses["BOB"], pair.alice.identifier) as peer:
        await peer.say(*packets[: COUNT // 2])
        await pair.alice.set_online(True)
        await sent(pair.alice)
        await peer.say(*packets)
        async with session(loopback_address(), pair.addresses["BOB"], pair.alice.identifier) as another:
            await another.say(*packets)
    await send(pair.alice, pair.direct("BOB", PLAIN), [b"last"], transactional=False)
    assert sorted(await bodies_until(pair.bob, PLAIN, b"last")) == sorted([*numbered(), b"last"])


@attack(
    Area.HISTORY,
    can="send copies of a machine's packets, word for word, before the machine does, and wait until the receiver "
    "restarts",
    promised="if the machine belongs to the enterprise, each message is delivered once",
)
async def test_packets_that_came_before_a_restart_are_not_delivered_again(enterprise: Enterprise, own: str) -> None:
    source, target = await enterprise.start("SOURCE"), await enterprise.start("TARGET")
    await target.create_queue(PLAIN)
    name = enterprise.name("TARGET", 5)
    await send(source, name, numbered(), transactional=False)
    async with session(own, enterprise.address("TARGET"), source.identifier) as peer:
        await peer.say(*(packet.data for packet in packets_of(source)))
    await enterprise.stop("TARGET")
    target = await enterprise.start("TARGET")
    await enterprise.start("ROUTER")
    await sent(source)
    await send(source, name, [b"last"], transactional=False)
    assert await bodies_until(target, PLAIN, b"last") == [*numbered(), b"last"]


@attack(
    Area.HISTORY,
    can="send copies of the sender's packets before the sender does, with a time to be received of 0, so that the "
    "copies expire at once",
    promised="the sender's messages arrive: a copy that expires earlier counts as another message",
)
async def test_copies_that_expire_take_nothing_with_them(pair: Pair, own: str) -> None:
    await identifiers_of_alice(pair)
    copies = [bytearray(packet.data) for packet in packets_of(pair.alice)]
    for copy in copies:
        copy[48:52] = bytes(4)
    async with session(own, pair.addresses["BOB"], pair.alice.identifier) as peer:
        await peer.say(*map(bytes, copies))
    await pair.alice.set_online(True)
    assert await bodies_until(pair.bob, PLAIN, LAST) == numbered()


@attack(
    Area.HISTORY,
    can="send express messages with identifiers that the sender then uses for recoverable messages, or the reverse",
    promised="the sender's messages arrive",
)
async def test_express_claims_keep_recoverable_messages_out_no_more(pair: Pair, own: str) -> None:
    numbers = await identifiers_of_alice(pair)
    async with session(own, pair.addresses["BOB"], pair.alice.identifier) as peer:
        await peer.say(*(forged(pair, number, delivery=wire.EXPRESS) for number in numbers))
    await pair.alice.set_online(True)
    assert real(await bodies_until(pair.bob, PLAIN, LAST)) == numbered()


@attack(
    Area.HISTORY,
    can="send messages in the name of a machine of the enterprise, from an unregistered address, with the machine's "
    "identifiers; later also copies of its packets",
    promised="the machine's messages arrive, and the copies are not delivered again",
)
async def test_a_machines_identifiers_are_its_own(enterprise: Enterprise, own: str) -> None:
    await enterprise.start("ROUTER")
    source, target = await enterprise.start("SOURCE"), await enterprise.start("TARGET")
    await target.create_queue(PLAIN)
    name = enterprise.name("TARGET", 5)
    await enterprise.stop("ROUTER")
    await send(source, name, numbered(), transactional=False)
    packets = packets_of(source)
    async with session(own, enterprise.address("TARGET"), source.identifier) as peer:
        forged = [
            wire.UserMessage(
                source=source.identifier, address=target.identifier, message_id=packet.message_id, queue=number_in(name)
            ).packet()
            for packet in packets
        ]
        await peer.say(*forged)
        await enterprise.start("ROUTER")
        assert real(await bodies_until(target, PLAIN, LAST)) == numbered()
        await peer.say(*(packet.data for packet in packets))
    await send(source, name, [b"last"], transactional=False)
    assert real(await bodies_until(target, PLAIN, b"last")) == [b"last"]


@attack(
    Area.HISTORY,
    can="send messages with the sender's identifiers that expire on their way, at a router",
    promised="if the sender's own messages with these identifiers expire there too, the router puts them into its "
    "dead-letter queue all the same",
)
async def test_what_ended_on_its_way_hides_no_other_message(enterprise: Enterprise, own: str) -> None:
    router = await enterprise.start("ROUTER")
    name = enterprise.name("TARGET", 5)
    stranger = enterprise.machines["STRANGER"]

    def late(source: bytes, body: bytes) -> bytes:
        return wire.UserMessage(
            source=source, address=enterprise.identifier("TARGET"), message_id=5, queue=number_in(name), body=body,
            flags=wire.DEAD_LETTER, reach=1, sent=1_000,
        ).packet()  # fmt: skip

    async with session(own, enterprise.address("ROUTER"), wire.identifier()) as peer:
        unknown = wire.identifier()
        await peer.say(late(unknown, b"forged"), late(unknown, b"forged"))
    async with session(stranger.listens, enterprise.address("ROUTER"), stranger.identifier) as peer:
        await peer.say(late(unknown, b"real"))
    dead = router.queue_collection.dead_letter
    await eventually(lambda: dead.message_count == 2)
    async with await router.open_queue(r"DIRECT=OS:.\SYSTEM$;DEADLETTER") as queue:
        found = [await queue.receive(timeout=60) for _ in range(2)]
    assert [(one.body, one.message_class) for one in found] == [
        (b"forged", MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT),
        (b"real", MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT),
    ]


# An honest sender that looks like an attacker


async def test_a_sender_that_moves_and_sends_again_is_known_by_what_it_says(pair: Pair, own: str) -> None:
    name = pair.direct("BOB", PLAIN).removeprefix("DIRECT=")
    source = wire.identifier()
    packets = [
        wire.UserMessage(source=source, message_id=number, queue=wire.direct(name), body=b"%d" % number).packet()
        for number in range(1, 11)
    ]
    async with session(own, pair.addresses["BOB"], source) as peer:
        await peer.say(*packets[:7])
    async with session(loopback_address(), pair.addresses["BOB"], source) as peer:
        await peer.say(*packets[3:])
    assert await receive(pair.bob, PLAIN, 10) == numbered(1, 10)
    assert pair.bob.names.find(PLAIN).message_count == 0


@attack(
    Area.HISTORY,
    can="see a message, and deliver a copy of it before its source does, to a queue that refuses it",
    promised="if the directory has the source at another address, only the message from the source gets a negative "
    "acknowledgment and goes to the dead-letter queue",
)
async def test_a_refused_message_ends_once(enterprise: Enterprise, own: str) -> None:
    source, target = await enterprise.start("SOURCE"), await enterprise.start("TARGET", send_insecure_nacks=True)
    await source.create_queue(ADMIN)
    number = (await source.queue(ADMIN)).private_queue_number
    admin = enterprise.name("SOURCE", number)
    more = {"acknowledgements_requested": 0x0F, "administration_queue_format_name": admin}
    name = enterprise.name("TARGET", 99)
    await send(source, name, [b"refused"], transactional=False, negative_journaling_requested=True, **more)
    (packet,) = packets_of(source)
    async with session(own, enterprise.address("TARGET"), source.identifier) as peer:
        await peer.say(packet.data)
    await enterprise.start("ROUTER")
    await receive(source, ADMIN, 1)
    await send(source, name, [b"the next"], transactional=False, **more)
    await receive(source, ADMIN, 1)
    assert (await source.queue(ADMIN)).message_count == 0
    assert target.queue_collection.dead_letter.message_count == 1
