"""A queue that moved from Windows with its access list: the tables of docs/beside-windows.md, cell by cell.

Its senders are queue managers of another make, which write unsigned messages with a user's SID as Windows does, from
the specification alone. The queue's list names a group that the user is in through another group of a real directory.
"""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mqenterprise.directory.cache import DirectoryCache
from mqenterprise.directory.port import LdapPort, PortSettings
from qmnode import Access, QueueManager
from qmnode.administration.browsing import browse
from qmnode.directory.file import FileDirectory
from qmnode.management.queue_documents import RefusedMessagesDocument
from qmnode.model.traffic import Standing
from qmnode.security.tls import initiator_context
from qmnode.settings.security import SecuritySettings, TlsMode, UnsignedSenders
from qmnode.structures.security_descriptor import QueueAccess as Right
from qmnode.structures.security_descriptor import Sid
from tests.adversary import wire
from tests.adversary.peer import PORT, Peer
from tests.doors.expectation import described
from tests.forwarding.enterprise import Directory, Machine
from tests.lab.groups import Groups
from tests.lab.waiting import eventually
from tests.security.certificates import tls_of
from tests.transport.conftest import settings_of

if TYPE_CHECKING:
    from mqenterprise.directory.open_directory import EnterpriseDirectory

    Named = Callable[[str], str]

pytestmark = pytest.mark.servers

PAGE = (Path(__file__).parents[2] / "docs/beside-windows.md").read_text("utf-8")
OWNER = Sid.from_text("S-1-5-21-9-9-9-500")
UNHEARD_OF = Sid.from_text("S-1-5-21-9-9-9-4711").write()
QUEUE = r".\private$\orders"


def table(heading: str) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of the table whose first column has this heading; code marks are taken off."""
    text = PAGE[PAGE.index(f"| {heading} |") :].split("\n\n", 1)[0]
    cells = [[cell.strip().replace("`", "") for cell in line.strip("|").split("|")] for line in text.splitlines()]
    return cells[0][1:], cells[2:]


def reason_in(result: str) -> str:
    """The reason in a cell such as ``refused (never)``."""
    return result.removeprefix("refused (").removesuffix(")")


_SETTINGS, _ROWS = table("the message arrives")
WAYS = [row[0] for row in _ROWS]
SETTINGS = [[setting, *(row[1 + column] for row in _ROWS)] for column, setting in enumerate(_SETTINGS)]
"""A setting, and what becomes of a message on each way."""
_, SENDERS = table("The message names")


class Enterprise(FileDirectory):
    """Machines from a file, users and groups from a real directory."""

    def __init__(self, file: Path, accounts: LdapPort) -> None:
        super().__init__(file)
        self._accounts = accounts

    async def expand_groups(self, security_identifier: bytes) -> tuple[bytes, ...]:
        return await self._accounts.expand_groups(security_identifier)


def security_header(sid: bytes) -> bytes:
    """A SecurityHeader as Windows writes it for an unsigned message (MS-MQMQ 2.2.20.6): ST is 1, DE and AI are set."""
    return struct.pack("<HHHHII", 0x00C1, len(sid), 0, 0, 0, 0) + sid + bytes(-len(sid) % 4)


@dataclass
class Scene:
    """The node that the queue moved to, and the machines that send there."""

    node: QueueManager
    machines: dict[str, Machine]
    folder: Path
    numbers: dict[str, int]

    async def send(self, way: str, sid: bytes, body: bytes) -> None:
        """A message of a machine that comes this way."""
        target = self.machines["BOB"].listens
        source, bringer = {
            "from the sender's machine, over TLS with its certificate": ("SECURE", "SECURE"),
            "from the sender's machine, a plain peer": ("PLAIN", "PLAIN"),
            "from the sender's machine, without TLS, not a plain peer": ("CLEAR", "CLEAR"),
            "from another machine, such as a routing server": ("CLEAR", "PLAIN"),
        }[way]
        own = self.machines[bringer].listens
        tls: dict[str, Any] = {}
        if "over TLS" in way:
            context = initiator_context(tls_of(self.folder, own, self.machines[bringer].identifier, number=1))
            tls = {"ssl": context, "server_hostname": target}
        peer = Peer(*await asyncio.open_connection(target, PORT, local_addr=(own, 0), **tls))
        try:
            await peer.establish(self.machines[bringer].identifier)
            number = self.numbers[source] = self.numbers.get(source, 0) + 1
            name = wire.direct(f"TCP:{target}\\private$\\orders")
            header = security_header(sid) if sid else b""
            machine = self.machines[source].identifier
            await peer.say(
                wire.UserMessage(source=machine, message_id=number, queue=name, body=body, security=header).packet()
            )
        finally:
            peer.close()

    async def delivered(self) -> set[bytes]:
        """The bodies in the queue, whose messages say nothing that applications trust."""
        found = set()
        async with await self.node.open_queue(f"DIRECT=OS:{QUEUE}", Access.PEEK) as queue:
            async for message in browse(queue):
                assert message.sender_identifier == b""
                found.add(message.body)
        return found

    async def refused(self) -> list[RefusedMessagesDocument]:
        return [RefusedMessagesDocument.of(one) for one in await self.node.refused_messages(QUEUE)]


@pytest.fixture
async def scene(directory: EnterpriseDirectory, fresh_name: Named, tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    groups = Groups(directory, fresh_name)
    user, member = groups.user()
    inner, _ = groups.group(user)
    _, group = groups.group(inner)
    _, other = groups.user()
    names = ("BOB", "SECURE", "PLAIN", "CLEAR")
    machines = {name: Machine(name, ["site"]) for name in names}
    declared = Directory(tmp_path / "directory.yaml", machines)
    declared.write()
    accounts = LdapPort(PortSettings(directory=directory.connection.settings), DirectoryCache(None))
    people = {
        "a user whom the access list lets send, also through a group of a group": member,
        "another user of the directory": other,
        "an account that the directory does not have": UNHEARD_OF,
        "Everyone, or another well-known account": bytes.fromhex("010100000000000100000000"),
        "nobody": b"",
    }

    @asynccontextmanager
    async def opened(**security: Any) -> AsyncIterator[tuple[Scene, dict[str, bytes]]]:
        machine = machines["BOB"]
        tls = tls_of(
            tmp_path, machine.listens, machine.identifier, mode=TlsMode.OFFER, plain_peers=frozenset({"PLAIN"})
        )
        settings = settings_of("BOB", machine.listens)
        settings = settings.model_copy(update={"security": SecuritySettings(tls=tls, **security)})
        async with QueueManager.open(tmp_path / "bob", settings, directory=Enterprise(declared.file, accounts)) as node:
            node.adopt_identifier(machine.identifier)
            list_ = described([(True, Sid.parse(group), int(Right.MQSEC_WRITE_MESSAGE))], OWNER)
            await node.create_queue(QUEUE, security=list_)
            await node.network.start()
            await eventually(lambda: node.network.is_in_directory(machines["PLAIN"].identifier))
            yield Scene(node, machines, tmp_path, {}), people

    yield opened
    await accounts.close()


@pytest.mark.parametrize("row", SETTINGS, ids=lambda row: row[0])
@pytest.mark.parametrize("by_queue", (False, True), ids=("everywhere", "for the queue"))
async def test_messages_are_delivered_as_the_table_says(scene: Any, row: list[str], by_queue: bool) -> None:
    value, *results = row
    setting = UnsignedSenders(value.removesuffix(" (the default)"))
    security: dict[str, Any] = {"unsigned_senders": setting}
    if by_queue:
        other = UnsignedSenders.NEVER if setting is not UnsignedSenders.NEVER else UnsignedSenders.PLAIN_PEERS
        security = {"unsigned_senders": other, "unsigned_senders_by_queue": {"orders": setting}}
    async with scene(**security) as (bob, people):
        member = people["a user whom the access list lets send, also through a group of a group"]
        for way in WAYS:
            await bob.send(way, member, way.encode())
        delivered = await bob.delivered()
        standings: list[str] = []
        for way, result in zip(WAYS, results, strict=True):
            assert (way.encode() in delivered) is (result == "delivered"), (value, way)
            if result != "delivered":
                standings.append(reason_in(result))
        refused = await bob.refused()
        assert sorted(one.standing for one in refused for _ in range(one.count)) == sorted(standings)
        assert {one.reason for one in refused} <= {"access_denied"}
        assert {one.sender for one in refused} <= {str(Sid.parse(member))}


async def test_each_sender_has_the_result_of_the_table(scene: Any) -> None:
    async with scene(unsigned_senders=UnsignedSenders.PLAIN_PEERS) as (bob, people):
        assert {row[0] for row in SENDERS} == set(people)
        for who, result in SENDERS:
            await bob.send("from the sender's machine, a plain peer", people[who], who.encode())
            assert (who.encode() in await bob.delivered()) is (result == "delivered"), who
            if result != "delivered":
                (last, *_) = await bob.refused()
                assert last.standing == reason_in(result), who
                assert last.explanation and last.count == 1


def test_every_standing_is_explained_on_the_page() -> None:
    shown = set(re.findall(r"refused \(`([a-z-]+)`\)", PAGE))
    assert shown | {"signed"} == {one.value for one in Standing}
