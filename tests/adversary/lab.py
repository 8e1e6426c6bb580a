"""Nodes to attack: two without a directory, or an enterprise with a router whose directory is a file."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from qmnode import Access, Message, QueueManager
from qmnode.directory.file import FileDirectory
from qmnode.model.queue import OutgoingQueue
from qmnode.model.stored_message import PREFIX_SIZE
from qmnode.structures.guid import guid_to_text
from tests.adversary import wire
from tests.forwarding.enterprise import Directory, Machine
from tests.lab.waiting import eventually
from tests.transport.conftest import settings_of

HIGHEST = int(time.time()) + 40_000 << 32
"""A sequence identifier that comes after all that nodes give out, and that a clock which is wrong may still make."""


class Enterprise:
    """SOURCE in the south and TARGET in the north, with ROUTER between them, and STRANGER, an ordinary machine."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self.folder, self._stack = folder, stack
        self.machines = {
            "SOURCE": Machine("SOURCE", ["south"]),
            "ROUTER": Machine("ROUTER", ["south", "north"], routing_server=True),
            "TARGET": Machine("TARGET", ["north"]),
            "STRANGER": Machine("STRANGER", ["north"]),
        }
        self.directory = Directory(folder / "directory.yaml", self.machines)
        self.directory.write()
        self.nodes: dict[str, QueueManager] = {}

    async def start(self, name: str, address: str = "", **transfer: object) -> QueueManager:
        """Start a node, at another address than its own if one is given, with these settings of ``transfer``."""
        machine = self.machines[name]
        settings = settings_of(name, address or machine.listens)
        settings = settings.model_copy(update={"transfer": settings.transfer.model_copy(update=transfer)})
        node = await QueueManager.open(self.folder / name, settings, directory=FileDirectory(self.directory.file))
        self.nodes[name] = node
        self._stack.push_async_callback(self.stop, name)
        node.adopt_identifier(machine.identifier)
        await node.network.start()
        return node

    async def stop(self, name: str) -> None:
        node = self.nodes.pop(name, None)
        if node is not None:
            await node.close()

    def address(self, name: str) -> str:
        return self.machines[name].listens

    def identifier(self, name: str) -> bytes:
        return self.machines[name].identifier

    def name(self, machine: str, number: int) -> str:
        """A private format name."""
        return f"PRIVATE={guid_to_text(self.machines[machine].identifier)}\\{number:08x}"


@asynccontextmanager
async def enterprise_in(folder: Path) -> AsyncIterator[Enterprise]:
    async with AsyncExitStack() as stack:
        yield Enterprise(folder, stack)


async def send(
    node: QueueManager, name: str, bodies: list[bytes], *, transactional: bool = True, **more: object
) -> None:
    """One message for each body; transactional ones, or recoverable."""
    async with await node.open_queue(name, Access.SEND) as out:
        for body in bodies:
            if transactional:
                await out.send(Message(body, **more), transaction="single")  # type: ignore[arg-type]
            else:
                await out.send(Message(body, recoverable=True, **more))  # type: ignore[arg-type]


async def receive(node: QueueManager, name: str, count: int) -> list[bytes]:
    async with await node.open_queue(f"DIRECT=OS:{name}") as queue:
        return [(await queue.receive(timeout=60)).body for _ in range(count)]


async def bodies_until(node: QueueManager, name: str, last: bytes) -> list[bytes]:
    """All that comes, up to this body."""
    found: list[bytes] = []
    async with await node.open_queue(f"DIRECT=OS:{name}") as queue:
        while last not in found:
            found.append((await queue.receive(timeout=60)).body)
    return found


def outgoing(node: QueueManager) -> list[OutgoingQueue]:
    return [queue for queue in node.queue_collection.values() if isinstance(queue, OutgoingQueue)]


def waiting(node: QueueManager) -> int:
    """How many messages have not left a node, or wait for their order acknowledgment."""
    return sum(queue.message_count for queue in outgoing(node) if not queue.for_acknowledgments)


async def sent(node: QueueManager) -> None:
    await eventually(lambda: not waiting(node), "all is acknowledged")


def number_in(name: str) -> wire.Name:
    """The queue of a private format name as a UserHeader names it."""
    return wire.private(int(name.rpartition("\\")[2], 16))


def packets_of(node: QueueManager) -> list[wire.Packet]:
    """What an attacker sees of the messages that a node has to send, in their order."""
    queues = [queue for queue in outgoing(node) if not queue.for_acknowledgments]
    found = [position.value for queue in queues for position in queue.locked.values()]
    found += [value for queue in queues for _, value in queue.scan()]
    packets = [wire.Packet(data) for data in {value[PREFIX_SIZE:]: None for value in found}]
    return sorted(packets, key=lambda packet: packet.message_id)
