"""Establishing sessions: who takes places, and what a handshake may cost (MS-MQQB 2.1.1, 3.1.5.3)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

import qmnode
from qmnode import Access, Message, QueueManager
from qmnode.protocol.connection import NextHop
from qmnode.settings.security import SecuritySettings
from qmnode.shares import block_of
from qmnode.transport import listener
from tests.adversary import wire
from tests.adversary.attacks import Area, attack
from tests.adversary.nodes import address_of, letter, node_with
from tests.adversary.peer import Peer, session
from tests.lab.waiting import eventually
from tests.security.test_tls import node as tls_settings
from tests.transport.conftest import PLAIN, Pair, loopback_address, settings_of

PLACES, PER_BLOCK = 40, 10


async def occupy(stack: AsyncExitStack, own: str, target: str, count: int) -> list[Peer]:
    """Sessions from one address, each of which has brought a message."""
    peers = []
    for _ in range(count):
        peer = await stack.enter_async_context(session(own, target, wire.identifier()))
        await peer.say(letter(target))
        peers.append(peer)
    return peers


async def is_served(own: str, target: str) -> bool:
    """Whether a newcomer opens a session and its message is taken."""
    with suppress(ConnectionError):
        async with session(own, target, wire.identifier()) as peer:
            await peer.say(letter(target))
            return True
    return False


@attack(
    Area.SESSIONS,
    can="fill all places for connections from several addresses, with sessions that have each delivered a message",
    promised="a new peer gets a place at once, and an honest peer at work keeps its place",
)
async def test_a_full_table_has_room_for_a_new_peer(tmp_path: Path) -> None:
    async with node_with(tmp_path, sessions=PLACES, sessions_per_peer=PER_BLOCK) as bob, AsyncExitStack() as stack:
        target = address_of(bob)
        honest = (await occupy(stack, loopback_address(), target, 1))[0]
        attackers = [loopback_address() for _ in range(PLACES // PER_BLOCK)]
        for own in attackers:
            await occupy(stack, own, target, PER_BLOCK - (own == attackers[-1]))
        await eventually(lambda: len(bob.network.accepted) == PLACES)
        for _ in range(3):
            await honest.say(letter(target))
            assert await is_served(loopback_address(), target)
        with suppress(ConnectionError):  # the attackers come back
            await occupy(stack, attackers[0], target, PER_BLOCK)
        await honest.say(letter(target))
        assert await is_served(loopback_address(), target)


@attack(
    Area.SESSIONS,
    can="fill all places with sessions that are never idle, and connect again for each session that the node closes",
    promised="an address block that holds more than its share loses places, even busy ones; an honest block with few "
    "places loses none",
)
async def test_busy_attackers_give_up_what_is_over_their_share(tmp_path: Path) -> None:
    async with node_with(tmp_path, sessions=PLACES, sessions_per_peer=PER_BLOCK) as bob, AsyncExitStack() as stack:
        target = address_of(bob)
        honest = (await occupy(stack, loopback_address(), target, 2))[1]
        attackers = [loopback_address() for _ in range(4)]
        held = [
            peer
            for own in attackers
            for peer in await occupy(stack, own, target, PER_BLOCK - (own == attackers[0]) * 2)
        ]
        stop = asyncio.Event()

        async def stay_busy(peer: Peer) -> None:
            with suppress(ConnectionError, TimeoutError):
                while not stop.is_set():
                    await peer.say(letter(target))

        tasks = [asyncio.create_task(stay_busy(peer)) for peer in held]
        for _ in range(5):
            assert await is_served(loopback_address(), target)
            await honest.say(letter(target))
        stop.set()
        await asyncio.gather(*tasks)


@attack(
    Area.SESSIONS,
    can="use each address of an IPv6 /64 network as if it were another peer",
    promised="a /64 network is one address block for all limits; a mapped IPv4 address counts as the IPv4 address",
)
async def test_a_network_of_64_bits_is_one_block() -> None:
    assert block_of("2001:db8:1:2::1") == block_of("2001:db8:1:2:ffff::7%eth0") == "2001:db8:1:2::/64"
    assert block_of("2001:db8:1:3::1") != block_of("2001:db8:1:2::1")
    assert block_of("::ffff:192.0.2.7") == block_of("192.0.2.7") == "192.0.2.7"
    assert block_of("no address") == "no address"
    table = listener.Slots(8, 3, lambda _: False, lambda _: False)
    taken = [table.take(block_of(f"2001:db8:1:2::{last}"), 0.0) for last in range(5)]
    assert [one is not None for one in taken] == [True] * 3 + [False] * 2
    assert table.take(block_of("2001:db8:1:3::1"), 0.0) is not None


@attack(
    Area.SESSIONS,
    can="open a session without an identity: with a null ClientGuid",
    promised="the node answers as MS-MQQB 3.1.5.3.1 demands, treats the peer as a stranger, and raises no alarm about "
    "a copied identity",
)
async def test_an_initiator_without_an_identifier_is_answered(pair: Pair) -> None:
    target, bob = pair.addresses["BOB"], bytes(pair.bob.identifier)
    for server, refused in ((wire.NOBODY, False), (bob, False), (wire.identifier(), True)):
        for _ in range(2):
            peer = await Peer.connect(loopback_address(), target)
            answer = await peer.establish(wire.NOBODY, server)
            assert answer.is_refusal is refused
            assert (answer.data[20:36], answer.data[36:52]) == (wire.NOBODY, bob)
            if not refused:
                await peer.say(letter(target))
            peer.close()
    assert "identity" not in pair.bob.troubles


@attack(
    Area.SESSIONS,
    can="open connections, and send a few bytes of a packet or none",
    promised="these connections give up their places when others need them, and no peer loses a session to them",
)
async def test_half_open_sessions_make_room(tmp_path: Path) -> None:
    async with node_with(tmp_path, sessions=12, sessions_per_peer=4) as bob, AsyncExitStack() as stack:
        target = address_of(bob)
        request = wire.establish_connection(wire.identifier(), wire.NOBODY)
        for attacker in range(3):
            own = loopback_address()
            for number in range(4):
                peer = await Peer.connect(own, target)
                stack.callback(peer.close)
                peer.send(request[: 40 * number * attacker])
                await peer.flush()
        await eventually(lambda: len(bob.network.accepted) == 12)
        for _ in range(4):
            assert await is_served(loopback_address(), target)


@attack(
    Area.SESSIONS,
    can="fill all places with TLS handshakes that do not go on, and with connections that do not send a first byte",
    promised="these connections give up their places like all silent ones; a node with a certificate gets a place",
)
async def test_half_open_handshakes_make_room(tmp_path: Path) -> None:
    names = {"alice.example": loopback_address(), "bob.example": loopback_address()}
    nodes = {}
    async with AsyncExitStack() as stack:
        for number, (name, address) in enumerate(names.items()):
            (tmp_path / name).mkdir()
            tls = tls_settings(tmp_path / name, name, number)
            settings = settings_of(name[:3].upper(), address, sessions=12, sessions_per_peer=4)
            settings = settings.model_copy(update={"security": SecuritySettings(tls=tls)})
            nodes[name] = await stack.enter_async_context(QueueManager.open(tmp_path / name / "store", settings))
            await nodes[name].network.start()
        alice, bob = nodes.values()
        alice.network.resolver = _To(names["bob.example"])  # type: ignore[assignment]
        await bob.create_queue(PLAIN)
        hello = b"\x16\x03\x01\x02\x00"  # the head of a record, of which the rest never comes
        for attacker in range(3):
            own = loopback_address()
            for _ in range(4):
                peer = await Peer.connect(own, names["bob.example"])
                stack.callback(peer.close)
                if attacker:
                    peer.send(hello)
                    await peer.flush()
        await eventually(lambda: bob.network.listener.sessions == 12)
        out = await alice.open_queue(rf"DIRECT=TCP:{names['bob.example']}\private$\plain", Access.SEND)
        await out.send(Message(b"through"))
        async with asyncio.timeout(60), await bob.open_queue(f"DIRECT=OS:{PLAIN}") as queue:
            assert (await queue.receive(timeout=60)).body == b"through"
        assert bob.network.listener.sessions <= 12


class _To:
    """Says what a name server would."""

    def __init__(self, address: str) -> None:
        self._hops = [NextHop(address, "bob.example")]

    async def next_hops(self, format_name: str) -> list[NextHop]:
        return self._hops


@attack(
    Area.SESSIONS,
    can="open a plain connection to a node that requires TLS, or send it bytes that only begin like TLS",
    promised="the node closes the connection without an answer, and its place is free again",
)
async def test_what_is_not_tls_ends_at_once(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    tls = tls_settings(tmp_path / "t", "bob.example", 1).model_copy(update={"peers": frozenset({"*"})})
    address = loopback_address()
    settings = settings_of("BOB", address).model_copy(update={"security": SecuritySettings(tls=tls)})
    async with QueueManager.open(tmp_path / "bob", settings) as bob:
        await bob.network.start()
        for data in (wire.establish_connection(wire.identifier(), wire.NOBODY), b"\x16\x03\x01\x00\x05" + bytes(64)):
            peer = await Peer.connect(loopback_address(), address)
            peer.send(data)
            assert await peer.is_closed()
            peer.close()
        await eventually(lambda: not bob.network.listener.sessions)


@attack(
    Area.SESSIONS,
    can="announce a window of 0 or of 65,535, or time-outs out of their range",
    promised="a window of 0 counts as 1, and the node's own window stays the limit; a value out of its range closes "
    "the session",
)
async def test_impossible_parameters_stop_nobody(pair: Pair) -> None:
    target = pair.addresses["BOB"]
    for window in (0, 0xFFFF):
        peer = await Peer.connect(loopback_address(), target)
        await peer.establish(wire.identifier(), window=window)
        await peer.say(*(letter(target, number) for number in range(1, 17)))
        peer.close()
    for number in (0, 1, 0xFFFF_FFFF):
        peer = await Peer.connect(loopback_address(), target)
        peer.send(wire.establish_connection(wire.identifier(), wire.NOBODY))
        await peer.next(wire.ESTABLISH_CONNECTION)
        peer.send(wire.connection_parameters(acknowledgment=number))
        assert await peer.is_closed()


@attack(
    Area.SESSIONS,
    can="request a session again in an open one, answer one's own request, or send acknowledgments or messages before "
    "the session is open",
    promised="each of these packets closes its own session; the node accepts no message before a session is open",
)
async def test_packets_out_of_turn_close_their_own_session(pair: Pair) -> None:
    target = pair.addresses["BOB"]
    request = wire.establish_connection(wire.identifier(), wire.NOBODY)
    for first in (wire.session_ack(0), wire.connection_parameters(), letter(target), request + request):
        peer = await Peer.connect(loopback_address(), target)
        peer.send(first)
        assert await peer.is_closed()
    async with session(loopback_address(), target, wire.identifier()) as peer:
        peer.send(request)
        assert await peer.is_closed()
    async with await pair.bob.open_queue(f"DIRECT=OS:{PLAIN}") as queue:
        with pytest.raises(qmnode.MessageQueuingError):
            await queue.receive(timeout=0)
