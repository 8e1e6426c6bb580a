"""A queue manager with an AMQP door on loopback, and Proton's own client in a thread."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from proton import Message as AmqpMessage
from proton.reactor import ReceiverOption
from proton.utils import BlockingConnection

from qmnode import Access, Message, QueueManager
from qmnode.administration.browsing import browse
from qmnode.amqp.door import AmqpDoor
from qmnode.directory.port import Directory, WorkgroupDirectory
from qmnode.security.principals import Principals
from qmnode.settings.node import NodeSettings
from qmnode.structures.security_descriptor import ANONYMOUS, EVERYONE, Acl, QueueAccess, SecurityDescriptor, allow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path


SECRET = "open sesame"
READER = "only reading"


def tokens_file(path: Path) -> Path:
    lines = [
        f"- {{name: {name}, role: {role}, sha256: {hashlib.sha256(secret.encode()).hexdigest()}}}\n"
        for name, role, secret in (("ops", "operate", SECRET), ("eye", "read", READER))
    ]
    path.write_text("".join(lines))
    path.chmod(0o600)
    return path


class Door:
    """The node, its door, and a way in at home."""

    def __init__(self, manager: QueueManager, door: AmqpDoor) -> None:
        self.manager = manager
        self.door = door

    @property
    def url(self) -> str:
        return f"amqp://127.0.0.1:{self.door.port}"

    async def send(self, name: str, *bodies: bytes, **properties: Any) -> None:
        transactional = (await self.manager.queue(f".\\private$\\{name}")).transactional
        async with await self.manager.open_queue(f"DIRECT=OS:.\\private$\\{name}", Access.SEND) as queue:
            for body in bodies:
                message = Message(body, **{"recoverable": True, **properties})
                await queue.send(message, "single" if transactional else None)

    async def messages(self, name: str) -> list[Message]:
        """What is available in a queue, in order."""
        path = name if "\\" in name else f".\\private$\\{name}"
        async with await self.manager.open_queue(f"DIRECT=OS:{path}", Access.PEEK) as queue:
            return [message async for message in browse(queue)]

    async def bodies(self, name: str) -> list[bytes]:
        return [message.body for message in await self.messages(name)]


@asynccontextmanager
async def open_door(path: Path, directory: Directory | None = None, **amqp: Any) -> AsyncIterator[Door]:
    settings = NodeSettings(
        data=path / "data",
        computer_name="HERE",
        amqp={"enabled": True, "address": "127.0.0.1", "port": 0, "tokens": tokens_file(path / "tokens.yaml"), **amqp},
        export={},
    )
    async with QueueManager.open(settings.data, settings) as manager:
        everybody = [allow(who, QueueAccess.MQSEC_QUEUE_GENERIC_ALL) for who in (EVERYONE, ANONYMOUS)]
        security = SecurityDescriptor(owner=EVERYONE, group=EVERYONE, dacl=Acl.of(*everybody)).write()
        await manager.create_queue(r".\private$\orders", security=security)
        await manager.create_queue(r".\private$\exact", transactional=True, security=security)
        await manager.create_queue(r".\private$\done", transactional=True, security=security)
        door = AmqpDoor(manager, settings, Principals(settings.security, directory or WorkgroupDirectory()))
        await door.start()
        try:
            yield Door(manager, door)
        finally:
            await door.stop()


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    async with open_door(tmp_path, anonymous=True) as opened:
        yield opened


@contextmanager
def connected(url: str, **options: Any) -> Iterator[BlockingConnection]:
    options = {"timeout": 60, "allowed_mechs": "ANONYMOUS", **options}
    connection = BlockingConnection(url, **options)
    try:
        yield connection
    finally:
        connection.close()


async def in_thread(work: Callable[[], Any]) -> Any:
    """A blocking client beside the node."""
    return await asyncio.to_thread(work)


class Browsing(ReceiverOption):
    """A receiver that asks for copies."""

    def apply(self, receiver: Any) -> None:
        receiver.source.distribution_mode = 1


def amqp_message(body: Any = b"", **properties: Any) -> AmqpMessage:
    return AmqpMessage(body=body, inferred=True, **{"durable": True, **properties})


def take(receiver: Any) -> bytes:
    """The body of the next message. The client's message owns the memory of its body."""
    message = receiver.receive(timeout=60)
    return bytes(message.body)
