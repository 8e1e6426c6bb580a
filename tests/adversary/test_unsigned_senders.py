"""Attacks with users that unsigned messages name, on a node that takes the word of declared plain peers for them."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from qmnode import QueueManager
from qmnode.directory.file import FileDirectory
from qmnode.directory.port import DirectoryOperationError, DirectoryOperationResult
from qmnode.settings.security import SecuritySettings, TlsMode, UnsignedSenders
from qmnode.structures.security_descriptor import QueueAccess as Right
from qmnode.structures.security_descriptor import Sid
from tests.adversary import wire
from tests.adversary.attacks import Area, attack
from tests.adversary.peer import Peer, session
from tests.doors.expectation import described
from tests.forwarding.enterprise import Directory, Machine
from tests.lab.waiting import eventually
from tests.security.certificates import tls_of
from tests.transport.conftest import loopback_address, settings_of

USER = Sid.from_text("S-1-5-21-7-8-9-1001")
OWNER = Sid.from_text("S-1-5-21-7-8-9-500")
QUEUE = r".\private$\orders"


class Unsteady(FileDirectory):
    """A directory that may not answer when it is asked for groups."""

    is_away = False

    async def expand_groups(self, security_identifier: bytes) -> tuple[bytes, ...]:
        if self.is_away:
            raise DirectoryOperationError(DirectoryOperationResult.DIRECTORY_NOT_CONNECTED, "it is away")
        return ()


@dataclass
class Scene:
    """A node whose queue lets one user send, and the machines of its enterprise."""

    node: QueueManager
    directory: Unsteady
    machines: dict[str, Machine]
    number: int = 0

    def letter(self, source: str, sid: Sid = USER) -> bytes:
        """An unsigned message of a machine that names a user."""
        self.number += 1
        encoded = sid.write()
        return wire.UserMessage(
            source=self.machines[source].identifier,
            message_id=self.number,
            queue=wire.direct(f"TCP:{self.address}\\private$\\orders"),
            security=struct.pack("<HHHHII", 0x00C1, len(encoded), 0, 0, 0, 0) + encoded,
        ).packet()

    @property
    def address(self) -> str:
        return self.machines["BOB"].listens

    async def send(self, own: str, opens_as: str, source: str) -> None:
        """A message of ``source`` from the address ``own``, in a session in the name of ``opens_as``."""
        async with session(own, self.address, self.machines[opens_as].identifier) as peer:
            await peer.say(self.letter(source))

    async def count(self) -> int:
        return (await self.node.queue(QUEUE)).message_count

    async def standings(self) -> dict[str, int]:
        """The refused messages, by what their senders were taken for."""
        return {one.standing: one.count for one in await self.node.refused_messages(QUEUE)}


@asynccontextmanager
async def scene_in(folder: Path) -> AsyncIterator[Scene]:
    machines = {name: Machine(name, ["site"]) for name in ("BOB", "PLAIN", "OTHER")}
    file = folder / "directory.yaml"
    Directory(file, machines).write()
    content = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump(content | {"users": [{"name": "u", "security_identifier": USER.write().hex()}]}))
    bob = machines["BOB"]
    tls = tls_of(folder, bob.listens, bob.identifier, mode=TlsMode.OFFER, plain_peers=frozenset({"PLAIN"}))
    security = SecuritySettings(tls=tls, unsigned_senders=UnsignedSenders.PLAIN_PEERS)
    settings = settings_of("BOB", bob.listens).model_copy(update={"security": security})
    directory = Unsteady(file)
    async with QueueManager.open(folder / "bob", settings, directory=directory) as node:
        node.adopt_identifier(bob.identifier)
        list_ = described([(True, USER, int(Right.MQSEC_WRITE_MESSAGE))], OWNER)
        await node.create_queue(QUEUE, security=list_)
        await node.network.start()
        await eventually(lambda: node.network.is_in_directory(machines["PLAIN"].identifier))
        yield Scene(node, directory, machines)


@attack(
    Area.SESSIONS,
    can="name a user in an unsigned message: in the name of a plain peer from another address, and from the address "
    "of a plain peer in the name of other machines",
    promised="the SID counts for no access list: it counts only in a plain peer's own messages from its own address",
)
async def test_a_user_is_named_only_by_the_machine_that_is_believed(tmp_path: Path) -> None:
    async with scene_in(tmp_path) as scene:
        plain = scene.machines["PLAIN"].listens
        await scene.send(loopback_address(), "PLAIN", "PLAIN")
        await scene.send(plain, "PLAIN", "OTHER")
        await scene.send(plain, "OTHER", "OTHER")
        await scene.send(scene.machines["OTHER"].listens, "OTHER", "OTHER")
        assert await scene.count() == 0
        assert set(await scene.standings()) == {"unproven"}
        await scene.send(plain, "PLAIN", "PLAIN")
        assert await scene.count() == 1


async def test_while_groups_are_not_known_the_messages_wait_at_their_sender(tmp_path: Path) -> None:
    async with scene_in(tmp_path) as scene:
        plain, letter = scene.machines["PLAIN"], scene.letter("PLAIN")
        scene.directory.is_away = True
        peer = await Peer.connect(plain.listens, scene.address)
        await peer.establish(plain.identifier)
        peer.send(letter)
        assert await peer.is_closed()
        assert (await scene.count(), await scene.standings()) == (0, {})
        scene.directory.is_away = False
        async with session(plain.listens, scene.address, plain.identifier) as peer:
            await peer.say(letter)
        assert await scene.count() == 1
