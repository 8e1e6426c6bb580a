"""Bytes that a node holds for others: a total, a reserve for those who have earned it, and a share for each block."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from qmnode import Access, Message, MessageQueuingError, QueueManager
from qmnode.administration.operation_rights import GuardedQueueManager
from qmnode.allocator import SPARED, lendable
from qmnode.dcerpc.server import RpcConnection, RpcServer, ServerLimits, service
from qmnode.local import values
from qmnode.local.frames import PROTOCOL_VERSION, RECEIVE_HEAD, FrameKind, frame
from qmnode.local.server import LocalServer
from qmnode.model.api import QueueType
from qmnode.remote_read.remoteread import REMOTE_READ
from qmnode.security.principals import Principals
from qmnode.settings.node import LocalSettings, QuotaSettings, Settings
from qmnode.settings.security import SecuritySettings
from qmnode.shares import RPC_ANSWER_BYTES, Accountant
from qmnode.shares import Kind as PartyKind
from qmnode.structures.guid import new_guid
from qmnode.transport.connection import Connection, HeldBytes
from tests.adversary import wire
from tests.adversary.attacks import Area, attack
from tests.adversary.beside import KIB, MIB, MOST, Besieged, besieged
from tests.adversary.besiegers import FAULTING, PLAIN, fill, persist, send_signed, signed
from tests.adversary.nodes import address_of, letter, node_with
from tests.adversary.peer import session
from tests.lab.waiting import eventually, until
from tests.remote_read.raw_client import RawClient, request_pdu
from tests.transport.conftest import loopback_address

pytestmark = pytest.mark.servers


async def besiege_with_signed(folder: Path, blocks: int, connections: int, messages: int) -> None:
    addresses = [loopback_address() for _ in range(blocks)]
    async with besieged(folder) as lab:
        async with lab.honest_traffic():
            await lab.each_sends(3)
            before = lab.memory
            attackers = [partial(persist, send_signed, lab.target, one) for one in addresses * connections]
            async with lab.attacked(attackers):
                await lab.each_sends(messages)
            print(lab.report())
            assert lab.peak - before < MOST, lab.report()
        await lab.all_is_well()


@attack(
    Area.RESOURCES,
    can="send large signed messages over many connections, faster than signatures are verified",
    promised="messages that wait for a verification have a limit over all connections; an address over its share is "
    "not read for a while, and half of the limit and more is kept for declared peers",
)
async def test_signed_messages_of_a_stranger_wait_in_its_share(tmp_path: Path) -> None:
    await besiege_with_signed(tmp_path, 1, 30, 10)


@attack(
    Area.RESOURCES,
    can="send a large signed message in small pieces, so that little of it comes with its end",
    promised="the address pays for the whole message while it is verified, and buffers are left to others",
)
async def test_a_message_that_came_in_pieces_is_charged_whole(
    tmp_path: Path, own: str, own_memory: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    charged: dict[Connection, int] = {}
    hold = HeldBytes.hold

    def noted(account: HeldBytes, connection: Connection, count: int) -> None:
        hold(account, connection, count)
        if connection.session.unsettled():
            charged[connection] = max(charged.get(connection, 0), connection.charged)

    monkeypatch.setattr(HeldBytes, "hold", noted)
    async with node_with(tmp_path) as bob, AsyncExitStack() as stack:
        large = letter(address_of(bob), body=bytes(MIB), security=signed())
        peers = [await stack.enter_async_context(session(own, address_of(bob), wire.identifier())) for _ in range(4)]
        for start in range(0, len(large) - 1, 64 * KIB):
            for peer in peers:
                peer.send(large[start : min(start + 64 * KIB, len(large) - 1)])
                await peer.flush()
        await until_incomplete(bob, [len(large) - 1] * len(peers))
        assert lendable() >= SPARED
        for peer in peers:
            peer.send(large[-1:])
        await eventually(lambda: len(charged) == len(peers), "all are whole")
        assert min(charged.values()) >= len(large)


async def until_incomplete(node: QueueManager, sizes: list[int]) -> None:
    """Wait until so many bytes of incomplete packets have been read."""
    await eventually(lambda: [one.session.incomplete() for one in node.network.accepted] == sizes, "all has been read")


@attack(
    Area.RESOURCES,
    can="begin large messages over many connections until its share is used up, and leave: what came is read slowly",
    promised="one message after the other is read to its end; connections that wait for long meanwhile are closed",
)
async def test_begun_messages_over_the_share_do_not_wait_for_long(tmp_path: Path, own: str) -> None:
    async with node_with(tmp_path, incomplete_bytes=4 * MIB) as bob, AsyncExitStack() as stack:
        large = letter(address_of(bob), body=bytes(MIB))
        peers = [await stack.enter_async_context(session(own, address_of(bob), wire.identifier())) for _ in range(6)]
        for peer in peers:
            peer.send(large[: 400 * KIB])
            await peer.flush()
            await asyncio.sleep(0.05)
        first, *others = peers
        closed = asyncio.gather(*(one.is_closed() for one in others))
        begin = 400 * KIB
        while not closed.done():
            first.send(large[begin : begin + 256])
            begin += 256
            await asyncio.wait([closed], timeout=0.25)
        await closed
        first.sent = 1
        first.send(large[begin:])
        await first.settled()
        assert (await bob.queue(r".\private$\plain")).message_count == 1


@attack(
    Area.RESOURCES,
    can="begin a large message at each of some addresses until strangers may hold no more, and send bytes of each now "
    "and then",
    promised="only one of them is waited for; the connections of the others are closed",
)
async def test_begun_messages_of_many_keep_no_other_stranger_waiting(
    tmp_path: Path, own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for patience in ("_SILENCE", "_PATIENCE"):
        monkeypatch.setattr(f"qmnode.transport.connection.{patience}", 0.5)
    async with node_with(tmp_path, incomplete_bytes=4 * MIB) as bob, AsyncExitStack() as stack:
        large = letter(address_of(bob), body=bytes(MIB))
        at, source = address_of(bob), wire.identifier()
        peers = [await stack.enter_async_context(session(loopback_address(), at, source)) for _ in range(3)]
        for peer in peers:
            peer.send(large[: 700 * KIB])
            await peer.flush()
        await eventually(lambda: bob.network._held.are_scarce, "they hold all")

        async def drip() -> None:
            for begin in range(700 * KIB, len(large)):
                for peer in peers:
                    peer.send(large[begin : begin + 1])
                await asyncio.sleep(0.1)

        dripping = asyncio.ensure_future(drip())
        async with session(own, at, wire.identifier()) as honest:
            await honest.say(letter(at, body=bytes(400 * KIB)))
        dripping.cancel()
        assert (await bob.queue(r".\private$\plain")).message_count == 1


@pytest.mark.soak
@pytest.mark.parametrize(("blocks", "connections"), [(1, 60), (1, 150), (10, 20)])
async def test_signed_messages_of_many_wait_in_their_shares(tmp_path: Path, blocks: int, connections: int) -> None:
    await besiege_with_signed(tmp_path, blocks, connections, 300)


@attack(
    Area.RESOURCES,
    can="fill the quota of a node, with messages for a queue that is open to all and with dead letters for queues that "
    "do not exist",
    promised="a quarter of the quota is kept for declared peers and applications, half of that for applications alone; "
    "dead letters of strangers are kept in the first half only",
)
async def test_strangers_fill_their_part_of_the_quota_only(tmp_path: Path) -> None:
    limit = 8 * MIB
    async with besieged(tmp_path, quotas={"queue_manager_quota": limit // KIB}) as lab:
        async with lab.honest_traffic():
            await lab.each_sends(2)
            for queue, most in (("nowhere", limit // 2), (PLAIN, limit * 3 // 4)):
                async with lab.attacked([partial(persist, partial(fill, queue=queue), lab.target, loopback_address())]):
                    await until(partial(holds, lab, most - 512 * KIB), f"strangers have filled {queue}", 60)
                    await lab.each_sends(5)
                async with await lab.node.connect() as manager:
                    assert (await manager.status()).quota_used < most + MIB // 2
        await lab.all_is_well()


async def holds(lab: Besieged, size: int) -> bool:
    """Whether the node stores so many bytes."""
    async with await lab.node.connect() as manager:
        return (await manager.status()).quota_used > size


@attack(
    Area.RESOURCES,
    can="as a local application, peek at large messages hundreds of times at once, and read no answer",
    promised="a connection holds 40 MiB of answers at most: other calls wait until the application reads",
)
async def test_an_application_that_reads_no_answers_is_answered_no_further(tmp_path: Path) -> None:
    name = r".\private$\large"
    async with QueueManager.open(tmp_path / "store") as manager:
        server = LocalServer(manager, LocalSettings(socket=tmp_path / "node.sock"))
        await server.start()
        await manager.create_queue(name)
        async with await manager.open_queue(f"DIRECT=OS:{name}", Access.SEND) as out:
            await out.send(Message(bytes(4 * MIB - 64 * KIB)))
        reader, writer = await asyncio.open_unix_connection(server.path)
        writer.write(frame(FrameKind.HELLO, 0, values.encode({"version": PROTOCOL_VERSION})))
        opened = ["manager", 0, "open_queue", [f"DIRECT=OS:{name}", int(Access.RECEIVE), 0], {}]
        writer.write(frame(FrameKind.CALL, 1, values.encode(opened)))
        await eventually(lambda: any(one.methods._handles for one in server.connections))
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"".join(frame(FrameKind.PEEK, 2 + one, RECEIVE_HEAD.pack(1, 0, 1, 0.0)) for one in range(100)))
        (connection,) = server.connections
        await eventually(lambda: connection._unsent == 0 and len(connection._tasks) > 80)
        assert connection._transport.get_write_buffer_size() < 40 * MIB
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        whole = 0
        while whole < 100 * (4 * MIB - 64 * KIB):
            whole += len(await reader.read(MIB))
        await eventually(lambda: not connection._tasks)
        writer.close()
        await server.stop()


async def _silent_client(stack: AsyncExitStack, server: RpcServer) -> RawClient:
    """A client that reads no answers; neither end of its connection keeps many in the system's buffers."""
    client = await stack.enter_async_context(RawClient("127.0.0.1", server.port))
    await client.bind(REMOTE_READ)
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    _keep_little(client.writer.transport)
    for connection in server.connections:
        _keep_little(connection._transport)
    return client


@attack(
    Area.DOORS,
    can="make remote procedure calls without authentication that all fault, over many connections, and read no answer",
    promised="a connection holds 64 KiB of answers and one read of requests, and ends if nothing is read for a minute",
)
async def test_callers_that_read_no_answers_are_not_read_and_end() -> None:
    server = rpc_server(limits=ServerLimits(answer_timeout=0.5))
    await server.start("127.0.0.1", 0)
    requests = b"".join(request_pdu(3, b"", 2 + number, context=77) for number in range(4_000))
    async with AsyncExitStack() as stack:
        for _ in range(3):
            client = await _silent_client(stack, server)
            for _ in range(20):
                client.writer.write(requests)
        most = 0

        def have_ended() -> bool:
            nonlocal most
            sizes = [one._transport.get_write_buffer_size() for one in server.connections]
            most = max(most, *sizes, 0)
            return not server.connections

        await eventually(have_ended, "the connections end")
        assert 0 < most < 256 * KIB
    await server.stop()


def rpc_server(total: int = 8 * MIB, **more: ServerLimits) -> RpcServer:
    """A server whose clients leave no more than so many bytes of answers unread."""
    return RpcServer([service(REMOTE_READ, {})], Accountant().open(RPC_ANSWER_BYTES, total), **more)


@attack(
    Area.DOORS,
    can="leave the answers of a hundred connections unread, each of them fewer than one connection may",
    promised="all unread answers have a total; a quarter is the most of one address, whose further connections end",
)
async def test_unread_answers_of_all_callers_have_a_total() -> None:
    server = rpc_server(MIB)
    await server.start("127.0.0.1", 0)
    async with AsyncExitStack() as stack:
        for _ in range(40):
            client = await _silent_client(stack, server)
            client.writer.write(4 * FAULTING)
        await eventually(lambda: server.answers.refused[PartyKind.STRANGER] > 0, "some are refused")
        assert 0 < server.answers.used[PartyKind.STRANGER] <= MIB // 4
        async with RawClient("127.0.0.1", server.port, own="127.0.0.2") as other:
            await other.bind(REMOTE_READ)
            await other.send(request_pdu(3, b"", 2, context=77))
            assert await other.receive() is not None
    await eventually(lambda: not server.connections, "all have ended")
    assert set(server.answers.used.values()) == {0}
    await server.stop()


@attack(
    Area.DOORS,
    can="send thousands of small requests at once over many connections",
    promised="connections take turns: in each, one processes a kilobyte of its requests before the next one does",
)
async def test_callers_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[RpcConnection] = []
    process = RpcConnection._process_some

    def noted(connection: RpcConnection) -> bool:
        turns.append(connection)
        return process(connection)

    monkeypatch.setattr(RpcConnection, "_process_some", noted)
    monkeypatch.setattr("qmnode.shares._ALONE", 1)
    server = rpc_server()
    await server.start("127.0.0.1", 0)
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(RawClient("127.0.0.1", server.port)) for _ in range(5)]
        for client in clients:
            await client.bind(REMOTE_READ)
        turns.clear()
        for client in clients:
            client.writer.write(FAULTING)
        for client in clients:
            for _ in range(600):
                assert await client.receive() is not None
    steps = -(-len(FAULTING) // 1024)
    assert len(turns) >= 5 * steps
    repeated = sum(1 for one, after in pairwise(turns) if one is after)
    assert repeated < len(turns) // 5, "one connection processed its requests while others had some"
    await eventually(lambda: not server.connections, "all have ended")
    await server.stop()


def _keep_little(transport: asyncio.BaseTransport) -> None:
    """Let the kernel keep few bytes of a connection: by itself it would take all that the test sends."""
    for buffer in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, buffer, 4096)


@attack(
    Area.RESOURCES,
    can="as a user of the socket's group, create queues without end",
    promised="a user who is no administrator has a limit of queues, and an error names it; it holds after a restart",
)
async def test_a_user_has_a_limit_of_queues(tmp_path: Path) -> None:
    settings = Settings(quotas=QuotaSettings(queues_per_user=5))
    user, other = (Principals(SecuritySettings()).of_unix_user(number, frozenset()) for number in (12_345, 12_346))
    for _ in range(2):
        async with QueueManager.open(tmp_path, settings) as manager:
            guarded = GuardedQueueManager(manager, user)
            with pytest.raises(MessageQueuingError, match="queues_per_user"):
                for _ in range(6):
                    await guarded.create_queue(rf".\private$\{new_guid().hex()}")
            await GuardedQueueManager(manager, other).create_queue(rf".\private$\{new_guid().hex()}")
            assert len(await manager.queues([QueueType.PRIVATE])) <= 7
