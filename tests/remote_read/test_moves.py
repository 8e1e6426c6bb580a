"""Messages of another queue manager's queue moved from here, between the queue and its subqueues: MS-MQRR 3.2.4.6."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

import qmnode
from qmnode import Access, Message, MessageQueuingError, QueueManager, Share
from qmnode.local.server import LocalServer
from qmnode.settings.node import LocalSettings, Settings
from qmnode.settings.remote_read import RemoteReadSettings
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.security_descriptor import ANONYMOUS, EVERYONE, SecurityDescriptor, allow
from tests.lab.nodes import NodeProcess
from tests.remote_read.conftest import NAME, OPEN, QUEUE, Remote, serving
from tests.remote_read.test_command import Served

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from qmnode.model.api import QueueApi, QueueManagerApi

READERS = SecurityDescriptor().with_dacl(*(allow(one, 0xF003F & ~0x4) for one in (EVERYONE, ANONYMOUS))).write()
"""All rights but the one to write messages."""


class Elsewhere:
    """An application of another node, which opens the queues of the serving one."""

    def __init__(self, remote: Remote, application: QueueManagerApi) -> None:
        self.application = application
        self._computer = rf"DIRECT=TCP:{remote.address}\private$" + "\\"

    async def open(
        self, name: str = "orders", access: Access = Access.RECEIVE, share: Share = Share.DENY_NONE
    ) -> QueueApi:
        return await self.application.open_queue(self._computer + name, access, share)


@asynccontextmanager
async def elsewhere(remote: Remote, folder: Path) -> AsyncIterator[Elsewhere]:
    """A second node, with an application on its socket."""
    reading = RemoteReadSettings(endpoint_mapper_port=remote.endpoint_mapper_port)
    settings = Settings(computer_name="READING", remote_read=reading)
    async with QueueManager.open(folder / "reading", settings) as manager:
        local = LocalServer(manager, LocalSettings(socket=folder / "reading.sock"))
        await local.start()
        try:
            async with qmnode.connect(local.path) as application:
                yield Elsewhere(remote, application)
        finally:
            await local.stop()


@pytest.fixture
async def other(remote: Remote, tmp_path: Path) -> AsyncIterator[Elsewhere]:
    async with elsewhere(remote, tmp_path) as one:
        yield one


async def failure(call: object) -> ErrorCode:
    with pytest.raises(MessageQueuingError) as caught:
        await call  # type: ignore[misc]
    return caught.value.code


async def test_a_message_of_a_remote_queue_moves_into_a_subqueue_and_back(remote: Remote, other: Elsewhere) -> None:
    await remote.send(b"one", b"two", b"three")
    queue, later = await other.open(), await other.open("orders;later", Access.MOVE)
    two = (await queue.peek_by_lookup_id((await queue.peek(0)).lookup_identifier, "next")).lookup_identifier
    await queue.move(two, later)
    assert await remote.bodies() == [b"one", b"three"]
    assert (await remote.manager.queue(QUEUE)).subqueues == ("later",)
    subqueue = await other.open("orders;later")
    moved = await subqueue.peek(0)
    assert (moved.body, moved.lookup_identifier, moved.move_count) == (b"two", two, 1)
    await subqueue.move(two, await other.open(access=Access.MOVE))
    assert await remote.bodies() == [b"one", b"two", b"three"]
    assert (await queue.peek_by_lookup_id(two)).move_count == 2


async def test_a_message_moves_between_two_subqueues(remote: Remote, other: Elsewhere) -> None:
    await remote.send(b"one")
    queue, first, second = (
        await other.open(),
        await other.open("orders;first", Access.MOVE),
        await other.open("orders;second", Access.MOVE),
    )
    lookup = (await queue.peek(0)).lookup_identifier
    await queue.move(lookup, first)
    await (await other.open("orders;first")).move(lookup, second)
    assert (await (await other.open("orders;second")).receive(0)).body == b"one"


async def test_a_message_that_is_gone_or_locked_is_not_moved(remote: Remote, other: Elsewhere) -> None:
    await remote.send(b"one", b"two")
    queue, later = await other.open(), await other.open("orders;later", Access.MOVE)
    gone = (await queue.receive(0)).lookup_identifier
    assert await failure(queue.move(gone, later)) is ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND
    locked = (await queue.receive_begin(0)).lookup_identifier
    assert await failure(queue.move(locked, later)) is ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND
    await queue.receive_end(locked, delete=False)
    await queue.move(locked, later)
    assert await remote.bodies() == []


async def test_the_target_is_a_queue_of_the_same_family_that_is_open_for_moves(
    remote: Remote, other: Elsewhere
) -> None:
    await remote.send(b"one")
    await remote.manager.create_queue(r".\private$\bills", security=OPEN)
    queue = await other.open()
    lookup = (await queue.peek(0)).lookup_identifier
    for name, access, code in (
        ("bills;later", Access.MOVE, ErrorCode.MQ_ERROR_INVALID_PARAMETER),
        ("bills", Access.MOVE, ErrorCode.MQ_ERROR_INVALID_PARAMETER),
        ("orders", Access.MOVE, ErrorCode.MQ_ERROR_INVALID_PARAMETER),
        ("orders", Access.RECEIVE, ErrorCode.MQ_ERROR_ACCESS_DENIED),
    ):
        target = await other.open(name, access)
        assert await failure(queue.move(lookup, target)) is code, name
        await target.close()
        assert await failure(queue.move(lookup, target)) is ErrorCode.MQ_ERROR_INVALID_HANDLE
    await other.application.create_queue(QUEUE)
    own = await other.application.open_queue(NAME + ";later", Access.MOVE)
    assert await failure(queue.move(lookup, own)) is ErrorCode.MQ_ERROR_INVALID_HANDLE
    assert await failure((await other.application.open_queue(NAME)).move(lookup, target)) is (
        ErrorCode.MQ_ERROR_INVALID_HANDLE
    )
    assert await remote.bodies() == [b"one"]


async def test_moves_need_the_right_to_write_there_and_a_queue_that_receives(remote: Remote, other: Elsewhere) -> None:
    await remote.send(b"one")
    later, peeking = await other.open("orders;later", Access.MOVE), await other.open(access=Access.PEEK)
    lookup = (await peeking.peek(0)).lookup_identifier
    assert await failure(peeking.move(lookup, later)) is ErrorCode.MQ_ERROR_ACCESS_DENIED
    await remote.manager.set_queue(QUEUE, security=READERS)
    assert await failure(other.open("orders;later", Access.MOVE)) is ErrorCode.MQ_ERROR_ACCESS_DENIED
    assert await failure(other.open("orders;new", Access.MOVE)) is ErrorCode.MQ_ERROR_ACCESS_DENIED
    assert (await remote.manager.queue(QUEUE)).subqueues == ("later",)
    assert await remote.bodies() == [b"one"]


async def test_a_target_of_moves_only_takes_them(remote: Remote, other: Elsewhere) -> None:
    await remote.send(b"one")
    target = await other.open(access=Access.MOVE)
    assert await failure(target.receive(0)) is ErrorCode.MQ_ERROR_ACCESS_DENIED
    assert await failure(target.peek(0)) is ErrorCode.MQ_ERROR_ACCESS_DENIED
    assert await failure(other.open("none", Access.MOVE)) is ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND
    unshared = other.open("orders;later", Access.MOVE, Share.DENY_RECEIVE)
    assert await failure(unshared) is ErrorCode.MQ_ERROR_UNSUPPORTED_ACCESS_MODE
    assert (await remote.manager.queue(QUEUE)).subqueues == ()


async def test_a_move_is_refused_in_a_transaction(remote: Remote, other: Elsewhere) -> None:
    await remote.send(b"one")
    queue, later = await other.open(), await other.open("orders;later", Access.MOVE)
    lookup = (await queue.peek(0)).lookup_identifier
    async with other.application.transaction() as unit:
        assert await failure(queue.move(lookup, later, unit)) is ErrorCode.MQ_ERROR_TRANSACTION_USAGE
    assert await failure(queue.move(lookup, later, "single")) is ErrorCode.MQ_ERROR_TRANSACTION_USAGE
    assert await remote.bodies() == [b"one"]


async def test_an_older_peer_moves_nothing_for_others(tmp_path: Path) -> None:
    async with serving(tmp_path, older=True) as remote, elsewhere(remote, tmp_path) as other:
        await remote.send(b"one")
        assert await failure(other.open("orders;later", Access.MOVE)) is ErrorCode.MQ_ERROR_ILLEGAL_OPERATION
        assert await remote.bodies() == [b"one"] and not remote.server.queues


async def test_a_move_after_the_server_stopped_says_that_it_is_not_there(remote: Remote, other: Elsewhere) -> None:
    await remote.send(b"one")
    queue, later = await other.open(), await other.open("orders;later", Access.MOVE)
    lookup = (await queue.peek(0)).lookup_identifier
    await remote.server.stop()
    assert await failure(queue.move(lookup, later)) is ErrorCode.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE
    assert await remote.bodies() == [b"one"]


@pytest.mark.servers
@pytest.mark.slow
async def test_a_moved_message_is_still_there_after_its_node_was_killed(tmp_path: Path) -> None:
    """Two processes. The answer to a move waits for the disk."""
    served = Served(tmp_path)
    reading = NodeProcess(tmp_path / "reading", computer_name="READING", management={"socket": None},
                          remote_read={"endpoint_mapper_port": served.mapper})  # fmt: skip
    reading.start()
    try:
        async with qmnode.connect(served.socket) as application:
            await application.create_queue(QUEUE, security=OPEN)
            await (await application.open_queue(NAME, Access.SEND)).send(Message(b"order 7", recoverable=True))
        name = rf"DIRECT=TCP:{served.address}\private$\orders"
        async with qmnode.connect(reading.socket) as application:
            queue = await application.open_queue(name)
            later = await application.open_queue(name + ";later", Access.MOVE)
            await queue.move((await queue.peek(0)).lookup_identifier, later)
            served.kill()
        served.start()
        async with qmnode.connect(served.socket) as application:
            moved = await (await application.open_queue(NAME + ";later")).receive(0)
            assert (moved.body, moved.move_count) == (b"order 7", 1)
    finally:
        assert reading.stop() == 0
        assert served.stop() == 0
