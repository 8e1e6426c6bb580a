"""Reading a queue from elsewhere with our own client: MS-MQQP 3.2.4, over 3.1.4."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

import qmnode
from qmnode import Access, Message, MessageQueuingError, QueueManager, Share
from qmnode.dcerpc.ndr import NDR, NDR64
from qmnode.dcerpc.server import RpcServer
from qmnode.local.server import LocalServer
from qmnode.remote_read.client_interfaces import RemoteNode, RemoteReadOptions
from qmnode.remote_read.qm2qm import QM2QM, Action
from qmnode.remote_read.remoteread import REMOTE_READ
from qmnode.settings.node import LocalSettings, Settings
from qmnode.settings.remote_read import RemoteReadSettings
from qmnode.shares import RPC_ANSWER_BYTES, Accountant
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.names import parse_single_format_name
from tests.lab.waiting import eventually
from tests.remote_read.conftest import NAME, QUEUE, Remote, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture(params=["RemoteRead", "qm2qm"])
async def remote(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Remote]:
    """A node that has RemoteRead, and an older one, which is read over qm2qm."""
    async with serving(tmp_path, older=request.param == "qm2qm") as one:
        yield one


HERE = parse_single_format_name(r"DIRECT=OS:SERVING\private$\orders")


async def failure(call: object) -> ErrorCode:
    with pytest.raises(MessageQueuingError) as caught:
        await call  # type: ignore[misc]
    return caught.value.code


@pytest.mark.parametrize("representations", [(), (NDR,), (NDR64,)], ids=["any", "NDR", "NDR64"])
async def test_messages_come_whole_and_in_order(remote: Remote, representations: tuple) -> None:
    await remote.send(b"one", b"two", label="a label", priority=5)
    async with remote.open(representations=representations) as queue:
        first = await queue.receive(0)
        second = await queue.receive(0)
    assert (first.body, first.label, first.priority) == (b"one", "a label", 5)
    assert second.body == b"two"
    assert first.lookup_identifier < second.lookup_identifier
    assert abs(first.arrival_time - time.time()) < 60
    assert await remote.bodies() == []


async def test_a_node_that_has_remote_read_is_read_over_it_and_an_older_one_over_qm2qm(remote: Remote) -> None:
    has = REMOTE_READ.syntax in remote.server.server.interfaces
    async with remote.open() as queue:
        assert queue.node.interface is (REMOTE_READ if has else QM2QM)
    async with await RemoteNode.connect(
        remote.address, RemoteReadOptions(endpoint_mapper_port=0, port=remote.port)
    ) as node:  # no mapper is asked: the bind is refused by the older one
        assert node.interface is (REMOTE_READ if has else QM2QM)


async def test_a_paused_queue_gives_remote_readers_nothing(remote: Remote) -> None:
    await remote.send(b"one")
    await remote.manager.pause_queue(QUEUE)
    async with remote.open() as queue:
        assert await failure(queue.receive(0)) is ErrorCode.MQ_ERROR_IO_TIMEOUT
        message = await queue.peek(0)
        assert message.body == b"one"
        by_name = queue.receive_by_lookup_id(message.lookup_identifier)
        assert await failure(by_name) is ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND
        waiting = asyncio.ensure_future(queue.receive(60))
        await eventually(lambda: len(remote.manager.names.find(QUEUE).waiting) == 1)
        await remote.manager.resume_queue(QUEUE)
        assert (await waiting).body == b"one"


async def test_counts_of_moves_and_aborts_arrive(remote: Remote) -> None:
    """MS-MQQP has no place for them."""
    await remote.send(b"one", time_to_reach_queue=1_000)
    here = await remote.manager.open_queue(NAME)
    target = await remote.manager.open_queue(NAME + ";later", Access.MOVE)
    await here.move((await here.peek(0)).lookup_identifier, target)
    async with await remote.connect() as node:
        queue = await node.open_queue(parse_single_format_name(r"DIRECT=OS:SERVING\private$\orders;later"))
        message = await queue.receive(0)
    assert message.move_count == (1 if node.interface is REMOTE_READ else 0)
    assert message.time_to_reach_queue == 1_000


async def test_the_largest_message_travels_in_fragments(remote: Remote) -> None:
    body = bytes(range(256)) * 16_000
    await remote.send(body)
    async with remote.open() as queue:
        assert (await queue.peek(0)).body == body
        assert (await queue.receive(0)).body == body


async def test_a_received_message_is_locked_until_it_is_ended(remote: Remote) -> None:
    await remote.send(b"one", b"two", b"three")
    async with remote.open() as queue, remote.open() as other:
        one = await queue.receive_begin(0)
        assert (await other.receive(0)).body == b"two"
        await queue.receive_end(one.lookup_identifier, delete=False)
        assert await remote.bodies() == [b"one", b"three"]
        one = await other.receive_begin(0)
        await other.receive_end(one.lookup_identifier, delete=True)
        assert await remote.bodies() == [b"three"]
        assert await failure(other.receive_end(one.lookup_identifier, True)) is ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE


async def test_a_client_that_vanishes_leaves_its_messages_in_their_places(remote: Remote) -> None:
    await remote.send(b"one", b"two", b"three")
    node = await remote.connect()
    queue = await node.open_queue(HERE)
    await queue.receive(0)
    assert (await queue.receive_begin(0)).body == b"two"
    waiting = [asyncio.create_task(queue.receive_begin()) for _ in range(2)]
    await asyncio.sleep(0)
    node.abort()
    for task in waiting:
        with pytest.raises(MessageQueuingError) as caught:
            if (await task).body != b"three":
                raise AssertionError("another message")
            raise caught.type(ErrorCode.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE)  # it had come before the end
    await eventually(lambda: not remote.server.queues)
    assert await remote.bodies() == [b"two", b"three"]
    assert len(remote.server.server.associations) == 0


async def test_peeks_leave_messages(remote: Remote) -> None:
    await remote.send(b"one", b"two")
    async with remote.open(Access.PEEK) as queue:
        assert (await queue.peek(0)).body == (await queue.peek(0)).body == b"one"
        assert await failure(queue.receive(0)) is ErrorCode.MQ_ERROR_ACCESS_DENIED
        assert await failure(queue.purge()) is ErrorCode.MQ_ERROR_ACCESS_DENIED
    assert await remote.bodies() == [b"one", b"two"]


async def test_a_cursor_walks_and_receives(remote: Remote) -> None:
    await remote.send(b"one", b"two", b"three")
    async with remote.open() as queue:
        async with queue.cursor() as cursor, queue.cursor() as other:
            assert await failure(cursor.peek_next(0)) is ErrorCode.MQ_ERROR_ILLEGAL_CURSOR_ACTION
            assert (await cursor.peek(0)).body == b"one"
            assert (await cursor.peek_next(0)).body == b"two"
            assert (await cursor.receive(0)).body == b"two"
            assert (await other.peek(0)).body == b"one"
            assert (await cursor.peek(0)).body == b"three"
        assert await failure(cursor.peek(0)) is ErrorCode.MQ_ERROR_INVALID_HANDLE
    assert await remote.bodies() == [b"one", b"three"]


async def test_a_received_message_of_a_cursor_goes_back_when_it_is_refused(remote: Remote) -> None:
    await remote.send(b"one", b"two")
    async with remote.open() as queue:
        cursor = queue.cursor()
        await cursor.peek(0)
        await cursor.peek_next(0)
        read = await queue._start(Action.MQ_ACTION_RECEIVE, 0, await cursor._opened())
        assert (await queue.session.begin(queue.session.end(read.key, delete=False))).status == 0
    assert await remote.bodies() == [b"one", b"two"]


async def test_lookup_identifiers_find_every_neighbour(remote: Remote) -> None:
    await remote.send(b"one", b"two", b"three")
    async with remote.open() as queue:
        first = await queue.peek_by_lookup_id(0, "first")
        last = await queue.peek_by_lookup_id(0, "last")
        assert (first.body, last.body) == (b"one", b"three")
        middle = await queue.peek_by_lookup_id(first.lookup_identifier, "next")
        assert (await queue.peek_by_lookup_id(last.lookup_identifier, "prev")).body == middle.body == b"two"
        assert (await queue.peek_by_lookup_id(middle.lookup_identifier)).body == b"two"
        missing = queue.peek_by_lookup_id(last.lookup_identifier, "next")
        assert await failure(missing) is ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND
        assert (await queue.receive_by_lookup_id(middle.lookup_identifier)).body == b"two"
        gone = queue.receive_by_lookup_id(middle.lookup_identifier)
        assert await failure(gone) is ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND
    assert await remote.bodies() == [b"one", b"three"]


@pytest.mark.parametrize(
    ("action", "lookup", "taken"),
    [
        (Action.MQ_LOOKUP_RECEIVE_NEXT, 0, b"one"),
        (Action.MQ_LOOKUP_RECEIVE_PREV, 0xFFFFFFFFFFFFFFFF, b"three"),
    ],
)
async def test_the_first_and_the_last_are_received_in_two_steps(
    remote: Remote, action: Action, lookup: int, taken: bytes
) -> None:
    """3.1.4.11 would remove it at once: it is locked, and back in its place when it is not acknowledged."""
    await remote.send(b"one", b"two", b"three")
    async with remote.open() as queue:
        call = queue.session.begin(queue.session.start_by_lookup_id(1, action, lookup))
        read = await queue._read(call, 1, action)
        assert read.message.body == taken
        async with remote.open() as other:
            assert len(await other.receive_many(5, 0)) == 2
    await eventually(lambda: not remote.server.queues)
    assert await remote.bodies() == [taken]


async def test_purge_leaves_nothing(remote: Remote) -> None:
    await remote.send(b"one", b"two")
    async with remote.open() as queue:
        await queue.purge()
        assert await failure(queue.peek(0)) is ErrorCode.MQ_ERROR_IO_TIMEOUT


async def test_a_wait_ends_with_a_message_with_its_time_or_with_the_queue(remote: Remote) -> None:
    async with remote.open() as queue:
        receive = asyncio.create_task(queue.receive())
        await eventually(lambda: bool(queue.pending))
        await remote.send(b"late")
        assert (await receive).body == b"late"
        assert await failure(queue.receive(0.05)) is ErrorCode.MQ_ERROR_IO_TIMEOUT
        assert await failure(queue.receive(0)) is ErrorCode.MQ_ERROR_IO_TIMEOUT
        receive = asyncio.create_task(queue.receive())
        await eventually(lambda: bool(queue.pending))
        await asyncio.sleep(0.02)
        await queue.close()
        assert await failure(receive) is ErrorCode.MQ_ERROR_OPERATION_CANCELLED
        assert await failure(queue.receive(0)) is ErrorCode.MQ_ERROR_INVALID_HANDLE


async def test_a_cancelled_receive_leaves_the_message_for_the_next(remote: Remote) -> None:
    async with remote.open() as queue:
        receive = asyncio.create_task(queue.receive())
        await eventually(lambda: any(one.reads for one in remote.server.queues._by_number.values()))
        receive.cancel()
        with pytest.raises(asyncio.CancelledError):
            await receive
        assert not any(one.reads for one in remote.server.queues._by_number.values())
        await remote.send(b"one")
        assert (await queue.receive(0)).body == b"one"


async def test_a_receive_that_is_cancelled_as_its_message_comes_loses_and_doubles_nothing(remote: Remote) -> None:
    async with remote.open() as queue:
        taken = []
        for number in range(60):
            receive = asyncio.create_task(queue.receive())
            await eventually(lambda: any(one.reads for one in remote.server.queues._by_number.values()))
            await remote.send(b"%d" % number)
            for _ in range(number % 12):
                await asyncio.sleep(0)
            receive.cancel()
            try:
                taken.append((await receive).body)
            except asyncio.CancelledError:
                taken.append((await queue.receive(5)).body)
        assert taken == [b"%d" % number for number in range(60)]
    assert await remote.bodies() == []


async def test_many_receives_of_one_queue_wait_at_the_same_time(remote: Remote) -> None:
    async with remote.open() as queue:
        receives = [asyncio.create_task(queue.receive()) for _ in range(20)]
        await eventually(lambda: any(len(one.reads) == 20 for one in remote.server.queues._by_number.values()))
        await remote.send(*[b"%d" % number for number in range(20)])
        assert [int((await receive).body) for receive in receives] == list(range(20))


async def test_receive_many_takes_what_there_is(remote: Remote) -> None:
    bodies = [b"%d" % number for number in range(100)]
    await remote.send(*bodies)
    async with remote.open() as queue:
        assert [message.body for message in await queue.receive_many(70, 0)] == bodies[:70]
        assert [message.body for message in await queue.receive_many(70, 0)] == bodies[70:]


async def test_exclusive_access_is_kept(remote: Remote) -> None:
    async with await remote.connect() as node:
        queue = await node.open_queue(HERE, Access.RECEIVE, Share.DENY_RECEIVE)
        assert await failure(node.open_queue(HERE)) is ErrorCode.MQ_ERROR_SHARING_VIOLATION
        await queue.close()
        await node.open_queue(HERE)


@pytest.mark.parametrize(
    ("name", "access", "code"),
    [
        (r"DIRECT=OS:SERVING\private$\none", Access.RECEIVE, ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND),
        (r"DIRECT=OS:elsewhere\private$\orders", Access.RECEIVE, ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND),
        (r"DIRECT=OS:SERVING\private$\orders", Access.SEND, ErrorCode.MQ_ERROR_UNSUPPORTED_ACCESS_MODE),
        (r"DIRECT=OS:SERVING\private$\order_queue$", Access.RECEIVE, ErrorCode.MQ_ERROR_ACCESS_DENIED),
        (r"DIRECT=OS:SERVING\system$;DEADLETTER", Access.PEEK, ErrorCode.MQ_ERROR_ACCESS_DENIED),
        (
            "CONNECTOR=557358d1-9150-9595-4997-b6e611ea26c6",
            Access.RECEIVE,
            ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION,
        ),
        ("MULTICAST=234.1.1.1:8001", Access.RECEIVE, ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION),
    ],
)
async def test_what_cannot_be_opened(remote: Remote, name: str, access: Access, code: ErrorCode) -> None:
    async with await remote.connect() as node:
        if access is Access.SEND and node.interface is REMOTE_READ:
            code = ErrorCode.MQ_ERROR_INVALID_PARAMETER  # MS-MQRR 3.1.4.2
        assert await failure(node.open_queue(parse_single_format_name(name), access)) is code
    assert not remote.server.queues


async def test_an_opening_that_is_cancelled_leaves_nothing_open(remote: Remote) -> None:
    async with await remote.connect() as node:
        for passes in range(12):
            opening = asyncio.create_task(node.open_queue(HERE, Access.RECEIVE, Share.DENY_RECEIVE))
            for _ in range(passes):
                await asyncio.sleep(0)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await (await opening).close()
                raise asyncio.CancelledError  # it was faster
            await eventually(lambda: not remote.server.queues and not node.queues)
        await node.open_queue(HERE)


async def test_journals_and_subqueues_are_read_too(remote: Remote) -> None:
    await remote.manager.set_queue(QUEUE, journaling=True)
    await remote.send(b"one")
    async with await remote.connect() as node:
        queue = await node.open_queue(HERE)
        await queue.receive(0)
        journal = await node.open_queue(parse_single_format_name(f"{HERE};JOURNAL"))
        assert (await journal.receive(0)).body == b"one"


async def test_what_only_home_can_do_is_refused_with_a_reason(remote: Remote) -> None:
    async with remote.open() as queue:
        assert await failure(queue.send(Message(b"x"))) is ErrorCode.MQ_ERROR_ACCESS_DENIED
        assert await failure(queue.send_many([])) is ErrorCode.MQ_ERROR_ACCESS_DENIED
        assert await failure(queue.receive(0, transaction="single")) is ErrorCode.MQ_ERROR_TRANSACTION_USAGE
        old = queue.node.interface is QM2QM
        assert await failure(queue.move(1, queue)) is (
            ErrorCode.MQ_ERROR_ILLEGAL_OPERATION if old else ErrorCode.MQ_ERROR_ACCESS_DENIED
        )


async def test_a_server_that_stops_gives_everything_back(remote: Remote) -> None:
    await remote.send(b"one")
    async with remote.open() as queue:
        await queue.receive_begin(0)
        await remote.server.stop()
        assert await remote.bodies() == [b"one"]
        assert await failure(queue.receive(0)) is ErrorCode.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE


async def test_nobody_there_is_said_clearly(tmp_path: Path) -> None:
    settings = Settings(remote_read=RemoteReadSettings(endpoint_mapper_port=1))
    async with QueueManager.open(tmp_path / "reading", settings) as manager:
        with pytest.raises(MessageQueuingError, match="endpoint mapper") as caught:
            await manager.open_queue(r"DIRECT=TCP:127.9.8.7\private$\orders")
        assert caught.value.code is ErrorCode.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE


async def test_open_queue_reads_a_queue_of_another_computer(remote: Remote, tmp_path: Path) -> None:
    await remote.send(b"one", b"two", b"three")
    reading = RemoteReadSettings(endpoint_mapper_port=remote.endpoint_mapper_port)
    name = rf"DIRECT=TCP:{remote.address}\private$\orders"
    async with QueueManager.open(tmp_path / "reading", Settings(computer_name="R", remote_read=reading)) as manager:
        async with await manager.open_queue(name) as queue:
            assert (await queue.receive(0)).body == b"one"
            async with queue.cursor() as cursor:
                assert (await cursor.peek(0)).body == b"two"
        await eventually(lambda: not remote.server.server.connections)
        async with await manager.open_queue(name, Access.PEEK) as queue:
            assert (await queue.peek(0)).body == b"two"
            open_still = await manager.open_queue(name)
        assert (await open_still.receive(0)).body == b"two"
    await eventually(lambda: not remote.server.queues)
    assert await remote.bodies() == [b"three"]


@pytest.mark.parametrize("protocol", ["TCP", "OS"])
async def test_an_address_is_a_name_of_the_computer_that_has_it(remote: Remote, protocol: str) -> None:
    await remote.send(b"one")
    name = parse_single_format_name(rf"DIRECT={protocol}:{remote.address}\private$\orders")
    async with await remote.connect() as node:
        assert (await (await node.open_queue(name)).receive(0)).body == b"one"


async def test_applications_of_a_node_read_elsewhere_through_its_socket(remote: Remote, tmp_path: Path) -> None:
    await remote.send(b"one", b"two", b"three")
    reading = RemoteReadSettings(endpoint_mapper_port=remote.endpoint_mapper_port)
    name = rf"DIRECT=TCP:{remote.address}\private$\orders"
    socket = tmp_path / "node.sock"
    async with QueueManager.open(tmp_path / "reading", Settings(computer_name="R", remote_read=reading)) as manager:
        local = LocalServer(manager, LocalSettings(socket=socket))
        await local.start()
        async with qmnode.connect(socket) as application:
            async with await application.open_queue(name) as queue:
                assert (await queue.receive(0)).body == b"one"
                async with queue.cursor() as cursor:
                    assert (await cursor.peek(0)).body == b"two"
                begun = await queue.receive_begin(0)
                await queue.receive_end(begun.lookup_identifier, delete=False)
                assert [one.body for one in await queue.receive_many(5, 0)] == [b"two", b"three"]
                waiting = asyncio.create_task(queue.receive())
                await eventually(lambda: any(one.reads for one in remote.server.queues._by_number.values()))
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                await eventually(lambda: not any(one.reads for one in remote.server.queues._by_number.values()))
            left_open = await application.open_queue(name)
            await remote.send(b"four")
            await left_open.receive_begin(0)
        await eventually(lambda: not remote.server.queues, "what an application leaves behind is closed there, too")
        await local.stop()
    assert await remote.bodies() == [b"four"]


async def test_hardened_mode_answers_and_makes_no_calls(tmp_path: Path) -> None:
    settings = Settings(hardened_security=True)
    async with QueueManager.open(tmp_path / "hardened", settings) as manager:
        code = await failure(manager.open_queue(r"DIRECT=TCP:127.9.8.7\private$\orders"))
        assert code is ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION
        from qmnode.directory.port import WorkgroupDirectory
        from qmnode.remote_read.server import RemoteReadServer

        server = RemoteReadServer(manager, RemoteReadSettings(), WorkgroupDirectory())
        assert await failure(server.start()) is ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE
        assert server.port == 0


async def test_a_port_that_is_taken_is_raised_by_eleven(tmp_path: Path, remote: Remote) -> None:
    settings = {"address": remote.address, "port": remote.port, "endpoint_mapper_port": 0}
    async with serving(tmp_path / "second", **settings) as second:
        assert second.port == remote.port + 11


async def test_any_port_is_the_same_one_for_every_address() -> None:
    """Clients hear of one port from the endpoint mapper, over IPv4 as over IPv6."""
    server = RpcServer([], Accountant().open(RPC_ANSWER_BYTES, 1 << 20))
    await server.start("", 0)
    ports = {one.getsockname()[1] for listening in server._servers for one in listening.sockets}
    await server.stop()
    assert ports == {server.port}


async def test_settings_and_limits_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qmnode.remote_read.server_reads.CURSORS", 1)
    async with serving(tmp_path, open_queues=2) as remote, await remote.connect() as node:
        first = await node.open_queue(HERE)
        await node.open_queue(HERE)
        assert await failure(node.open_queue(HERE)) is ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES
        await remote.send(b"one")
        await first.cursor().peek(0)
        assert await failure(first.cursor().peek(0)) is ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES
        assert NAME


class Connecting:
    """Connections that are made when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began = self.given_up = 0
        self.go_on = asyncio.Event()
        self._connect = RemoteNode.connect
        monkeypatch.setattr(RemoteNode, "connect", self.connect)

    async def connect(self, host: str, options: object) -> RemoteNode:
        self.began += 1
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        return await self._connect(host, options)


async def test_who_opens_queues_of_a_computer_that_is_away_waits_for_one_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connecting = Connecting(monkeypatch)
    settings = Settings(remote_read=RemoteReadSettings(endpoint_mapper_port=1))
    async with QueueManager.open(tmp_path / "reading", settings) as manager:
        name = r"DIRECT=TCP:127.9.8.7\private$\orders"
        opens = [asyncio.create_task(manager.open_queue(name)) for _ in range(10)]
        await eventually(lambda: connecting.began == 1)
        opens[0].cancel()
        connecting.go_on.set()
        for one in opens[1:]:
            assert await failure(one) is ErrorCode.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE
        assert (connecting.began, opens[0].cancelled()) == (1, True)
        assert await failure(manager.open_queue(name)) is ErrorCode.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE
        assert connecting.began == 2, "the next one tries again"


async def test_a_connection_that_nobody_waits_for_any_more_is_given_up(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connecting = Connecting(monkeypatch)
    settings = Settings(remote_read=RemoteReadSettings(endpoint_mapper_port=remote.endpoint_mapper_port))
    name = rf"DIRECT=TCP:{remote.address}\private$\orders"
    async with QueueManager.open(tmp_path / "reading", settings) as manager:
        opens = [asyncio.create_task(manager.open_queue(name)) for _ in range(3)]
        await eventually(lambda: connecting.began == 1)
        for one in opens:
            one.cancel()
        await asyncio.gather(*opens, return_exceptions=True)
        await eventually(lambda: connecting.given_up == 1)
        connecting.go_on.set()
        for passes in range(40):
            opening = asyncio.create_task(manager.open_queue(name))
            for _ in range(passes):
                await asyncio.sleep(0.0005)
            opening.cancel()
            if passes % 2:
                async with await manager.open_queue(name):
                    assert len(remote.server.server.connections) in (1, 2)
            with suppress(asyncio.CancelledError):
                await (await opening).close()
            await eventually(lambda: not remote.server.server.connections)
        async with await manager.open_queue(name):
            assert len(remote.server.server.connections) == 1
