"""Attacks on nodes that prefer or require TLS: to be spoken with in clear, or to speak as another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from qmnode import QueueManager
from qmnode.security.tls import initiator_context
from tests.adversary import wire
from tests.adversary.attacks import Area, attack
from tests.adversary.peer import PORT, Peer
from tests.lab.waiting import eventually
from tests.security.certificates import tls_of
from tests.transport.tls_nodes import QUEUE, Nodes, outgoing

READ = 65_536


@asynccontextmanager
async def nodes_in(folder: Path, *, workgroup: bool = True) -> AsyncIterator[Nodes]:
    async with AsyncExitStack() as stack:
        yield Nodes(folder, stack, workgroup=workgroup)


async def takes(node: QueueManager, made: Peer, target: str, source: bytes) -> bool:
    """Whether a message comes in over this connection, in the name of a queue manager."""
    try:
        await made.establish(source)
        name = wire.direct(f"TCP:{target}\\private$\\tx")
        await made.say(wire.UserMessage(source=source, message_id=1, queue=name).packet())
    except ConnectionResetError:
        return False
    finally:
        made.close()
    return True


@attack(
    Area.SESSIONS,
    can="answer in clear at the address of a machine that has shown TLS, as a machine would that has lost its "
    "certificate",
    promised="a node that prefers TLS sends nothing to this address, also after a restart, unless an operator lists "
    "the machine in plain_peers",
)
@pytest.mark.slow
async def test_a_peer_that_has_shown_tls_is_not_answered_for_in_clear(tmp_path: Path) -> None:
    received: list[wire.Packet] = []
    async with nodes_in(tmp_path, workgroup=False) as nodes:
        machine = nodes.machines["BOB"]

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            made = Peer(reader, writer)
            try:
                await made.accept(machine.identifier)
                received.append(await made.next(0))
            except (ConnectionError, TimeoutError):
                pass
            finally:
                made.close()

        await nodes.start("BOB", "offer")
        await nodes.start("ALICE", "prefer")
        await nodes.send(b"one")
        assert await nodes.arrives(b"one")
        for name in ("ALICE", "BOB"):
            await nodes.stop(name)
        server = await asyncio.start_server(answer, machine.listens, PORT)
        alice = await nodes.start("ALICE", "prefer")
        await nodes.send(b"for Bob's eyes")
        await eventually(lambda: nodes.attempts() >= 3)
        assert received == []
        alice.network.peer_tls.reload(nodes.tls("ALICE", "prefer", plain_peers=frozenset({"bob"})))
        await eventually(lambda: bool(received))
        server.close()


@attack(
    Area.SESSIONS,
    can="open a plain session in the name of a machine that opens its own sessions with TLS, from the address of this "
    "machine",
    promised="a node that prefers or requires TLS does not open the session",
)
async def test_a_peer_that_opens_tls_sessions_is_not_spoken_for_in_clear(tmp_path: Path) -> None:
    async with nodes_in(tmp_path) as nodes:
        bob = await nodes.start("BOB", "prefer")
        await nodes.start("ALICE", "prefer")
        await nodes.send(b"one")
        assert await nodes.arrives(b"one")
        machine, target = nodes.machines["ALICE"], nodes.machines["BOB"].listens
        await nodes.stop("ALICE")
        stranger = wire.identifier()
        assert not await takes(bob, await Peer.connect(machine.listens, target), target, machine.identifier)
        assert await takes(bob, await Peer.connect(machine.listens, target), target, stranger)
        bob.network.peer_tls.reload(nodes.tls("BOB", "require"))
        assert not await takes(bob, await Peer.connect(machine.listens, target), target, stranger)


@attack(
    Area.SESSIONS,
    can="own the address of a plain peer that is listed by its name, and open sessions from there in the name of "
    "another machine",
    promised="a node that requires TLS opens none: another machine of the directory has to show its certificate",
)
async def test_the_address_of_a_plain_peer_speaks_for_no_other_machine(tmp_path: Path) -> None:
    async with nodes_in(tmp_path, workgroup=False) as nodes:
        plain, target = nodes.machines["CAROL"], nodes.machines["BOB"].listens
        bob = await nodes.start("BOB", "require", plain_peers=frozenset({"CAROL"}))
        await eventually(lambda: bob.network.is_in_directory(plain.identifier))
        alice = nodes.machines["ALICE"].identifier
        assert not await takes(bob, await Peer.connect(plain.listens, target), target, alice)
        assert await takes(bob, await Peer.connect(plain.listens, target), target, plain.identifier)


@attack(
    Area.SESSIONS,
    can="hold an expired certificate of a machine, and its key",
    promised="no session opens with it, from either side; if TLS was shown before, no plain session opens instead",
)
async def test_an_expired_certificate_is_nobodys(tmp_path: Path) -> None:
    async with nodes_in(tmp_path) as nodes:
        bob = await nodes.start("BOB", "prefer")
        await nodes.start("ALICE", "prefer")
        await nodes.send(b"one")
        assert await nodes.arrives(b"one")
        machine, target = nodes.machines["ALICE"], nodes.machines["BOB"].listens
        expired = tls_of(tmp_path / "old", machine.listens, machine.identifier, number=1, expired=True)
        context = initiator_context(expired)
        streams = await asyncio.open_connection(
            target, PORT, local_addr=(machine.listens, 0), ssl=context, server_hostname=target
        )
        assert not await takes(bob, Peer(*streams), target, machine.identifier)
        bob.network.peer_tls.reload(tls_of(tmp_path / "old", target, nodes.machines["BOB"].identifier, expired=True))
        for session in list(bob.network.accepted):
            session.close()
        before = nodes.attempts()
        await nodes.send(b"two")
        await eventually(lambda: nodes.attempts() >= before + 3)
        assert (await bob.queue(QUEUE)).message_count == 0
        assert outgoing(nodes.nodes["ALICE"])


@attack(
    Area.SESSIONS,
    can="record the TLS session of a machine and replay it to a node, so that the node takes the machine to have "
    "shown TLS",
    promised="only a completed handshake counts: the node goes on accepting the machine's plain sessions",
)
async def test_a_replayed_session_makes_nobody_ready(tmp_path: Path, own: str) -> None:
    async with nodes_in(tmp_path) as nodes:
        machine, target = nodes.machines["ALICE"], nodes.machines["BOB"].listens
        recorded = bytearray()

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there_reader, there_writer = await asyncio.open_connection(target, PORT)

            async def back() -> None:
                while data := await there_reader.read(READ):
                    writer.write(data)

            answering = asyncio.create_task(back())
            while data := await reader.read(READ):
                recorded.extend(data)
                there_writer.write(data)
            there_writer.close()
            answering.cancel()

        server = await asyncio.start_server(relay, own, PORT)
        bob = await nodes.start("BOB", "prefer")
        context = initiator_context(nodes.tls("ALICE", "prefer"))
        streams = await asyncio.open_connection(own, PORT, ssl=context, server_hostname=target)
        assert await takes(bob, Peer(*streams), target, machine.identifier)
        assert not await takes(bob, await Peer.connect(own, target), target, machine.identifier)  # it was shown
        server.close()
        await nodes.stop("BOB")

        nodes.folder = tmp_path / "another"
        nodes.folder.mkdir()
        nodes.names.clear()
        bob = await nodes.start("BOB", "prefer")
        reader, writer = await asyncio.open_connection(target, PORT)
        writer.write(recorded)
        async with asyncio.timeout(60):
            while await reader.read(READ):
                pass
        writer.close()
        assert await takes(bob, await Peer.connect(own, target), target, machine.identifier)
