"""``qmnode run`` several times, as the nodes of an enterprise whose directory is a file."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

import qmnode
from qmnode.local.remote import RemoteQueueManager
from qmnode.structures.guid import Guid, guid_to_text, new_guid
from tests.lab.nodes import PROJECT, START, answers, launch
from tests.lab.waiting import holds, until
from tests.transport.conftest import loopback_address

HURRIED = {
    "retry_interval": 0.1, "retry_maximum": 0.3, "resend_timeouts": (1, 2, 1800, 21600), "better_hop_interval": 0.3,
    "routing_refresh": 0.5,
}  # fmt: skip


@dataclass
class Machine:
    """What the directory says of a node."""

    name: str
    sites: Sequence[str]
    routing_server: bool = False
    in_routing_servers: Sequence[str] = ()
    out_routing_servers: Sequence[str] = ()
    foreign: bool = False
    identifier: Guid = field(default_factory=new_guid)
    listens: str = field(default_factory=loopback_address)
    """The address of the node."""
    address: str = ""
    """The address at which others find it; the same if it is empty."""


@dataclass
class Directory:
    """The file, and what is in it."""

    file: Path
    machines: dict[str, Machine]
    links: Sequence[tuple[str, str, int, Sequence[str]]] = ()
    """Site, site, cost, site gates."""
    foreign_sites: Sequence[str] = ()

    def __post_init__(self) -> None:
        names = {site for machine in self.machines.values() for site in machine.sites}
        names.update(site for link in self.links for site in link[:2])
        self.sites = {name: new_guid() for name in sorted(names)}

    def _guids(self, names: Sequence[str]) -> list[str]:
        return [guid_to_text(self.machines[name].identifier) for name in names]

    def write(self, file: Path | None = None) -> None:
        """All of it, as one change. What nodes have written there (public queues, keys) stays."""
        file = file or self.file
        known = yaml.safe_load(file.read_text()) if file.exists() else {}
        before = {one["identifier"]: one for one in known.get("queue_managers", ())}
        content = known | {
            "sites": [
                {"identifier": guid_to_text(identifier), "name": name, "foreign_site": name in self.foreign_sites}
                for name, identifier in self.sites.items()
            ],
            "routing_links": [
                {
                    "identifier": guid_to_text(new_guid()),
                    "site1_identifier": guid_to_text(self.sites[one]),
                    "site2_identifier": guid_to_text(self.sites[other]),
                    "actual_cost": cost,
                    "site_gate_identifier_list": self._guids(gates),
                }
                for one, other, cost, gates in self.links
            ],
            "queue_managers": [
                before.get(guid_to_text(one.identifier), {})
                | {
                    "identifier": guid_to_text(one.identifier),
                    "computer_name": one.name,
                    "qualified_computer_name": one.address or one.listens,
                    "site_identifier_list": [guid_to_text(self.sites[site]) for site in one.sites],
                    "routing_server": one.routing_server,
                    "foreign_system": one.foreign,
                    "in_routing_server_identifier_list": self._guids(one.in_routing_servers),
                    "out_routing_server_identifier_list": self._guids(one.out_routing_servers),
                }
                for one in self.machines.values()
            ],
        }
        fresh = file.with_name(file.name + ".fresh")
        fresh.write_text(yaml.safe_dump(content))
        fresh.replace(file)


class Node:
    """A node in a process of its own, on an address of its own."""

    def __init__(
        self,
        folder: Path,
        machine: Machine,
        directory: Path,
        *,
        environment: Mapping[str, str] | None = None,
        data: Path | None = None,
        **settings: object,
    ) -> None:
        self.folder = folder
        self.machine = machine
        self.process: subprocess.Popen[bytes] | None = None
        self._environment = {**os.environ, "PYTHONPATH": str(PROJECT), **(environment or {})}
        folder.mkdir(exist_ok=True)
        content = {
            "computer_name": machine.name,
            "data": str(data or folder / "store"),
            "local": {"socket": str(self.socket)},
            "management": {"socket": None},
            "transport": {"address": machine.listens},
            "transfer": HURRIED,
            "directory": {"name": "file", "settings": {"file": str(directory)}},
            **settings,
        }
        (folder / "node.yaml").write_text(json.dumps(content))

    @property
    def socket(self) -> Path:
        return self.folder / "node.sock"

    def start(self) -> None:
        self.process = launch(self.folder / "node.yaml", self.folder / "log", self._environment)

    async def ready(self) -> None:
        """Until it serves applications and takes connections of others."""
        assert self.process is not None
        await answers(self.socket, self.process, self.log)

        async def listens() -> bool:
            try:
                _, writer = await asyncio.open_connection(self.machine.listens, 1801)
            except OSError:
                return False
            writer.close()
            return True

        await holds(listens, START, f"{self.machine.name} takes connections")

    async def connect(self) -> RemoteQueueManager:
        return await qmnode.connect(self.socket)

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    async def start_again(self) -> None:
        """Start, and wait until it is ready."""
        self.start()
        await self.ready()

    def private_name(self, number: int) -> str:
        """The private format name of a queue here."""
        return f"PRIVATE={guid_to_text(self.machine.identifier)}\\{number:08x}"

    async def create_queue(self, name: str, **properties: object) -> str:
        """A private queue; its private format name."""
        async with await self.connect() as qm:
            found = await qm.create_queue(rf".\private$\{name}", **properties)  # type: ignore[arg-type]
            return self.private_name(found.private_queue_number)

    async def create_public_queue(self, name: str) -> Guid:
        """A public queue; its identifier."""
        async with await self.connect() as qm:
            return Guid((await qm.create_queue(rf".\{name}")).identifier)

    async def send(
        self, name: str, bodies: Sequence[bytes], *, transactional: bool = False, **properties: object
    ) -> None:
        """Messages, one after the other."""
        async with await self.connect() as qm, await qm.open_queue(name, qmnode.Access.SEND) as queue:
            messages = [qmnode.Message(body, **properties) for body in bodies]  # type: ignore[arg-type]
            if not transactional:
                await queue.send_many(messages)
                return
            async with qm.transaction() as transaction:
                await queue.send_many(messages, transaction=transaction)

    async def receive(self, name: str, count: int, timeout: float = 60) -> list[qmnode.Message]:
        """So many messages of a queue here."""
        async with await self.connect() as qm, await qm.open_queue(f"DIRECT=OS:.\\{name}") as queue:
            return [await queue.receive(timeout=timeout) for _ in range(count)]

    async def bodies(self, name: str, count: int, timeout: float = 60) -> list[bytes]:
        return [message.body for message in await self.receive(rf"private$\{name}", count, timeout)]

    async def look(self, name: str) -> qmnode.Message:
        """The first message of an outgoing queue here, which stays."""
        await until(lambda: self.count(name), f"a message in {name}")
        async with await self.connect() as qm, await qm.open_queue(name, qmnode.Access.PEEK_ADMIN) as queue:
            return await queue.peek(timeout=60)

    async def count(self, name: str) -> int:
        """How many messages a queue has, by path or format name; none if there is no such queue."""
        async with await self.connect() as qm:
            try:
                return (await qm.queue(name)).message_count
            except qmnode.MessageQueuingError:
                return 0

    async def outgoing(self, *, strangers: Sequence[str] = ()) -> int:
        """How many messages wait here for another node. What goes to strangers, whose direct names begin so, does not
        count.
        """
        async with await self.connect() as qm:
            found = await qm.queues([qmnode.QueueType.OUTGOING])
            answers = tuple(f"DIRECT=TCP:{one}" for one in strangers)
            return sum(queue.message_count for queue in found if not queue.pathname.startswith(answers))

    async def waiting(self) -> list[str]:
        """What waits here for others: for people."""
        async with await self.connect() as qm:
            found = [queue for queue in await qm.queues([qmnode.QueueType.OUTGOING]) if queue.message_count]
        return [f"{self.machine.name}: {one.message_count} in {one.pathname}, {one.state}" for one in found]
