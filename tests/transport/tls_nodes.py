"""ALICE, BOB and CAROL with TLS in a mode, or without: an enterprise with a file as directory, or a workgroup."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from qmnode import Access, Message, QueueManager
from qmnode.directory.file import FileDirectory
from qmnode.settings.security import SecuritySettings, TlsMode, TlsSettings
from qmnode.structures.guid import guid_to_text
from tests.forwarding.enterprise import Directory, Machine
from tests.security.certificates import tls_of
from tests.transport.conftest import settings_of

QUEUE = r".\private$\tx"
NUMBERS = {"ALICE": 1, "BOB": 2, "CAROL": 3}


class Nodes:
    """ALICE and CAROL in the south, BOB in the north: machines of one enterprise, or of a workgroup."""

    def __init__(self, folder: Path, stack: AsyncExitStack, *, workgroup: bool = False) -> None:
        self.folder, self._stack, self.workgroup = folder, stack, workgroup
        sites = {"ALICE": ["south"], "BOB": ["north"], "CAROL": ["south"]}
        self.machines = {name: Machine(name, sites[name], routing_server=True) for name in NUMBERS}
        links = [("south", "north", 1, ["ALICE", "BOB"])]
        self.directory = Directory(folder / "directory.yaml", self.machines, links)
        self.directory.write()
        self.nodes: dict[str, QueueManager] = {}
        self.names: dict[str, str] = {}
        """Of each machine's queue: private names, in a workgroup direct ones."""

    def tls(self, name: str, mode: str, **settings: Any) -> TlsSettings:
        machine = self.machines[name]
        number = NUMBERS[name]
        return tls_of(
            self.folder, machine.listens, machine.identifier, number=number, mode=TlsMode(mode), **settings
        )  # fmt: skip

    async def start(self, name: str, mode: str = "", **tls: Any) -> QueueManager:
        """Start a node, without TLS if no mode is given."""
        machine = self.machines[name]
        settings = settings_of(name, machine.listens)
        if mode:
            security = SecuritySettings(tls=self.tls(name, mode, **tls))
            settings = settings.model_copy(update={"security": security})
        directory = None if self.workgroup else FileDirectory(self.directory.file)
        node = await QueueManager.open(self.folder / name, settings, directory=directory)
        self.nodes[name] = node
        self._stack.push_async_callback(self.stop, name)
        if node.identifier != machine.identifier:
            node.adopt_identifier(machine.identifier)
        await node.network.start()
        if name not in self.names:
            await node.create_queue(QUEUE, transactional=True)
            direct = rf"DIRECT=TCP:{machine.listens}\private$\tx"
            private = f"PRIVATE={guid_to_text(machine.identifier)}\\00000005"
            self.names[name] = direct if self.workgroup else private
        return node

    async def stop(self, name: str) -> None:
        node = self.nodes.pop(name, None)
        if node is not None:
            await node.close()

    async def send(self, body: bytes, *, to: str = "BOB") -> None:
        async with await self.nodes["ALICE"].open_queue(self.names[to], Access.SEND) as out:
            await out.send(Message(body), transaction="single")

    async def arrives(self, body: bytes, *, at: str = "BOB") -> bool:
        """Whether the next message of the queue is this one; waits for it. Whether it came over TLS."""
        async with await self.nodes[at].open_queue(f"DIRECT=OS:{QUEUE}", Access.RECEIVE) as queue:
            assert (await queue.receive(timeout=60)).body == body
        (session,) = [one for one in self.nodes["ALICE"].network.connections() if not one.incoming]
        return session.encrypted

    def attempts(self) -> int:
        """How often ALICE has failed to connect."""
        return sum(len(queue.connection_history) for queue in outgoing(self.nodes["ALICE"]))


def outgoing(node: QueueManager) -> list[Any]:
    return [queue for queue in node.queue_collection.values() if hasattr(queue, "connection_history")]
