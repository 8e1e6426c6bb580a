"""A queue manager whose queues are read remotely, on a loopback address and ports of its own."""

from __future__ import annotations

import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from qmnode import Access, Message, QueueManager
from qmnode.dcerpc.authentication import acceptor_authentication
from qmnode.dcerpc.endpoint_mapper import ENDPOINT_MAPPER, MAP
from qmnode.dcerpc.server import ServerLimits
from qmnode.directory.port import WorkgroupDirectory
from qmnode.remote_read.client_interfaces import RemoteNode, RemoteReadOptions
from qmnode.remote_read.remoteread import REMOTE_READ
from qmnode.remote_read.server import RemoteReadServer
from qmnode.settings.node import Settings
from qmnode.settings.remote_read import RemoteReadSettings
from qmnode.structures.names import parse_single_format_name
from qmnode.structures.security_descriptor import ANONYMOUS, EVERYONE, SecurityDescriptor, allow
from tests.lab.addresses import free_alias

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from qmnode.model.api import QueueApi
    from qmnode.remote_read.client_queue import RemoteReadQueue

QUEUE = r".\private$\orders"
NAME = r"DIRECT=OS:.\private$\orders"
THERE = r"DIRECT=OS:SERVING\private$\orders"
DEADLINE = 60.0
OPEN = SecurityDescriptor().with_dacl(*(allow(one, 0xF003F) for one in (EVERYONE, ANONYMOUS))).write()
"""Lets in readers without a name, too."""


class Remote:
    """The node, its server, and a way in at home."""

    def __init__(self, manager: QueueManager, server: RemoteReadServer, sender: QueueApi) -> None:
        self.manager = manager
        self.server = server
        self.sender = sender

    @property
    def address(self) -> str:
        return self.server.settings.address

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def endpoint_mapper_port(self) -> int:
        return self.server.endpoint_mapper.port

    def options(self, **more: Any) -> RemoteReadOptions:
        return RemoteReadOptions(endpoint_mapper_port=self.endpoint_mapper_port, **more)

    async def connect(self, **more: Any) -> RemoteNode:
        return await RemoteNode.connect(self.address, self.options(**more))

    @asynccontextmanager
    async def open(self, access: Access = Access.RECEIVE, **more: Any) -> AsyncIterator[RemoteReadQueue]:
        """The queue, opened over a connection of its own."""
        async with await self.connect(**more) as node:
            yield await node.open_queue(parse_single_format_name(THERE), access)

    async def send(self, *bodies: bytes, **properties: Any) -> None:
        await self.sender.send_many([Message(body, recoverable=True, **properties) for body in bodies])

    async def bodies(self) -> list[bytes]:
        """What is in the queue, in order."""
        async with await self.manager.open_queue(NAME, Access.PEEK) as queue, queue.cursor() as cursor:
            count = (await self.manager.queue(QUEUE)).message_count
            reads = [cursor.peek, *[cursor.peek_next] * (count - 1)] if count else []
            return [(await read(0)).body for read in reads]


def random_port() -> int:
    return random.SystemRandom().randrange(20_000, 32_000)


def without_remote_read(server: RemoteReadServer) -> None:
    """Make it a server of a node that does not know RemoteRead: its mapper does not know it, and no bind finds it."""
    for rpc in (server.server, server.endpoint_mapper):
        rpc.services.pop(REMOTE_READ.syntax, None)
        rpc.interfaces.pop(REMOTE_READ.syntax, None)
    mapper: Any = server.endpoint_mapper.services[ENDPOINT_MAPPER.syntax].handlers[MAP.opnum]
    mapper.__self__._known.pop(REMOTE_READ.syntax)


@asynccontextmanager
async def serving(
    folder: Path, *, older: bool = False, limits: ServerLimits | None = None, **settings: Any
) -> AsyncIterator[Remote]:
    """A node that serves remote readers; ``older``: over qm2qm alone."""
    mapper = random_port()
    address = free_alias([mapper])
    own = RemoteReadSettings(
        **({"enabled": True, "address": address, "port": 0, "endpoint_mapper_port": mapper} | settings)
    )
    security = {"account_security_identifiers": {"ALICE": "S-1-5-21-1-2-3-1001", "BOB": "S-1-5-21-1-2-3-1002"}}
    all_settings = Settings(computer_name="SERVING", remote_read=own, security=security)  # type: ignore[arg-type]
    async with QueueManager.open(folder / "serving", all_settings) as manager:
        await manager.create_queue(QUEUE, security=OPEN)
        server = RemoteReadServer(manager, own, WorkgroupDirectory(), acceptor_authentication(own), limits=limits)
        if older:
            without_remote_read(server)
        await server.start()
        try:
            yield Remote(manager, server, await manager.open_queue(NAME, Access.SEND))
        finally:
            await server.stop()


@pytest.fixture
async def remote(tmp_path: Path) -> AsyncIterator[Remote]:
    async with serving(tmp_path) as one:
        yield one
