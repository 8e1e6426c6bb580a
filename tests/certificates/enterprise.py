"""Two queue managers and a user in a directory file, over real sockets: for messages that are signed and encrypted."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

import qmnode
from qmnode import Access, Message, MessageQueuingError, QueueManager
from qmnode.directory.file import FileDirectory
from qmnode.local.server import LocalServer
from qmnode.model.api import QueueApi
from qmnode.security.key_stores import FileKeyStore, KeyPair
from qmnode.security.sender_identity import make_internal_certificate
from qmnode.settings.node import ExportSettings, LocalSettings
from qmnode.settings.security import SecuritySettings, SignerSettings
from qmnode.structures.enumerations import AuthenticationLevel, MessageClass, PrivacyLevel
from qmnode.structures.guid import Guid, guid_to_text, new_guid
from qmnode.structures.public_keys import MqUserSignCert, MqUserSignCerts
from qmnode.structures.security_descriptor import Sid
from tests.security.keys import private_key
from tests.security.messages import encryption_pair
from tests.transport.conftest import loopback_address, settings_of

ACCOUNT = pwd.getpwuid(os.geteuid()).pw_name
ALICE = Sid.from_text("S-1-5-21-7-8-9-1001")
MALLORY = Sid.from_text("S-1-5-21-7-8-9-1002")
HOUR = 3600.0
QUEUE = r".\private$\orders"
ADMIN = r".\private$\admin"
LIFETIME = 300
"""Milliseconds for which a node remembers a user's certificate."""


def user_certificate(number: int = 0, begins: float = -HOUR, ends: float = HOUR) -> bytes:
    """A certificate of a test key; its dates count from now, in seconds."""
    return make_internal_certificate(private_key(1024, number), "alice", time.time() + begins, time.time() + ends)


class Enterprise:
    """A and B, and what the directory says of their users."""

    def __init__(self, folder: Path, export: ExportSettings | None = None) -> None:
        self.folder = folder
        self.export = export or ExportSettings()
        self.file = folder / "directory.yaml"
        self.addresses = {"A": loopback_address(), "B": loopback_address()}
        self.identifiers = {name: new_guid() for name in self.addresses}
        self.nodes: dict[str, QueueManager] = {}
        self.key_file = folder / "alice.key"
        self.use_key(0)
        managers = [
            {
                "identifier": guid_to_text(self.identifiers[name]),
                "computer_name": name,
                "qualified_computer_name": address,
            }
            for name, address in self.addresses.items()
        ]
        self.file.write_text(yaml.safe_dump({"queue_managers": managers}))

    def use_key(self, number: int) -> None:
        """Alice signs with another key from now on."""
        self.key_file.write_bytes(private_key(1024, number).to_der())
        self.key_file.chmod(0o600)

    def write(self, change: Any) -> None:
        """Change the directory as an administrator does: what was there is replaced as a whole."""
        sections = yaml.safe_load(self.file.read_text())
        change(sections)
        fresh = self.file.with_suffix(".fresh")
        fresh.write_text(yaml.safe_dump(sections))
        fresh.replace(self.file)

    def register(self, certificates: dict[Sid, Sequence[bytes]]) -> None:
        """The users with exactly these certificates."""
        users = [
            {
                "identifier": guid_to_text(new_guid()),
                "name": ACCOUNT if sid == ALICE else "mallory",
                "security_identifier": sid.write().hex(),
                "certificates": MqUserSignCerts(
                    certificates=tuple(
                        MqUserSignCert(digest=bytes(16), identifier=new_guid(), certificate=each) for each in listed
                    )
                )
                .write()
                .hex(),
            }
            for sid, listed in certificates.items()
        ]
        self.write(lambda sections: sections.update(users=users))

    async def start(self, name: str, **security: Any) -> QueueManager:
        security.setdefault("signers", {ACCOUNT: SignerSettings(private_key=self.key_file)})
        security.setdefault("user_cert_lifetime", LIFETIME)
        settings = settings_of(name, self.addresses[name]).model_copy(update={"security": SecuritySettings(**security)})
        # Refusals are told to their senders, which is off by default (MS-MQQB 3.1.5.8.3).
        told = settings.transfer.model_copy(update={"send_insecure_nacks": True})
        settings = settings.model_copy(update={"transfer": told, "export": self.export})
        if not (self.folder / name).exists():  # keys of its own would take a node a second
            FileKeyStore(self.folder / name / "keys").replace_now(self.key_pairs(name), expected_version=0)
        node = await QueueManager.open(self.folder / name, settings, directory=FileDirectory(self.file))
        if node.identifier != self.identifiers[name]:
            node.adopt_identifier(self.identifiers[name])
        await node.network.start()
        self.nodes[name] = node
        return node

    def key_pairs(self, name: str) -> tuple[KeyPair, ...]:
        """What a node begins with."""
        self.folder.joinpath(name).mkdir(exist_ok=True)
        number = list(self.addresses).index(name)
        return (encryption_pair(number=number, now=time.time() - HOUR),)

    @property
    def a(self) -> QueueManager:
        return self.nodes["A"]

    @property
    def b(self) -> QueueManager:
        return self.nodes["B"]

    async def queue_on_b(self, pathname: str = QUEUE, **properties: Any) -> str:
        """A queue on B, by a name that messages to it are signed and encrypted for."""
        await self.b.create_queue(pathname, **properties)
        number = (await self.b.queue(pathname)).private_queue_number
        return f"PRIVATE={guid_to_text(Guid(self.b.identifier))}\\{number:08x}"

    async def ends_as(self, out: QueueApi, message: Message, **properties: Any) -> tuple[str, Message | None]:
        """Send on A, and wait for what becomes of it: its acknowledgment, and the message if it arrived on B."""
        number = (await self.a.queue(ADMIN)).private_queue_number
        admin = f"PRIVATE={guid_to_text(Guid(self.a.identifier))}\\{number:08x}"
        message = message.copy(
            recoverable=True, acknowledgements_requested=5, administration_queue_format_name=admin, **properties
        )
        await out.send(message)
        async with await self.a.open_queue(f"DIRECT=OS:{ADMIN}") as acknowledgments:
            acknowledgment = await acknowledgments.receive(timeout=60)
        async with await self.b.open_queue(f"DIRECT=OS:{QUEUE}") as queue:
            try:
                arrived = await queue.receive(timeout=0)
            except MessageQueuingError:
                arrived = None
        return MessageClass(acknowledgment.message_class).name, arrived


@asynccontextmanager
async def two_nodes(folder: Path, export: ExportSettings | None = None, **security: Any) -> AsyncIterator[Enterprise]:
    enterprise = Enterprise(folder, export)
    try:
        for name in enterprise.addresses:
            await enterprise.start(name, **security)
        await enterprise.a.create_queue(ADMIN)
        yield enterprise
    finally:
        for node in enterprise.nodes.values():
            await node.close()


@asynccontextmanager
async def application_of(node: QueueManager, folder: Path) -> AsyncIterator[qmnode.local.remote.RemoteQueueManager]:
    """An application at the node's socket."""
    server = LocalServer(node, LocalSettings(socket=folder / "node.sock"))
    await server.start()
    try:
        async with qmnode.connect(server.path) as application:
            yield application
    finally:
        await server.stop()


def signed(body: bytes = b"an order", level: AuthenticationLevel = AuthenticationLevel.SIG20, **more: Any) -> Message:
    return Message(body, authentication_level=level, **more)


__all__ = [
    "ACCOUNT", "ADMIN", "ALICE", "HOUR", "LIFETIME", "MALLORY", "QUEUE", "Access", "Enterprise", "PrivacyLevel",
    "application_of", "signed", "two_nodes", "user_certificate",
]  # fmt: skip
