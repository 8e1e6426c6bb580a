"""Public and private names over a directory in a file: addresses, routing, encryption, and who may write."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from qmnode import Access, Message, MessageQueuingError, QueueManager
from qmnode.directory.file import FileDirectory
from qmnode.directory.port import Queue as DirectoryQueue
from qmnode.directory.port import QueueManager as DirectoryQueueManager
from qmnode.directory.port import equals
from qmnode.model.queue import OutgoingQueue
from qmnode.structures.enumerations import ConnectionStatus, MessageClass, PrivacyLevel
from qmnode.structures.guid import Guid, guid_to_text, new_guid
from tests.lab.waiting import eventually
from tests.transport.conftest import PLAIN, TRANSACTIONAL, loopback_address, settings_of

ADVANCED = PrivacyLevel.ADVANCED
BODY = b"a body that nobody on the way should read" * 20


class Enterprise:
    def __init__(self, folder: Path) -> None:
        self.file = folder / "directory.yaml"
        self.directory = FileDirectory(self.file)
        self.folder = folder
        self.addresses = {"ALICE": loopback_address(), "BOB": loopback_address()}
        self.identifiers = {name: new_guid() for name in self.addresses}
        entries = [
            {
                "identifier": guid_to_text(self.identifiers[name]),
                "computer_name": name,
                "qualified_computer_name": address,
            }
            for name, address in self.addresses.items()
        ]
        self.file.write_text(yaml.safe_dump({"queue_managers": entries}))
        self.nodes: dict[str, QueueManager] = {}

    async def start(self, name: str) -> QueueManager:
        node = await QueueManager.open(
            self.folder / name, settings_of(name, self.addresses[name]), directory=FileDirectory(self.file)
        )
        if node.identifier != self.identifiers[name]:
            node.adopt_identifier(self.identifiers[name])
        await node.network.start()
        self.nodes[name] = node
        return node


@pytest.fixture
async def enterprise(tmp_path: Path) -> AsyncIterator[Enterprise]:
    enterprise = Enterprise(tmp_path)
    for name in enterprise.addresses:
        await enterprise.start(name)
    yield enterprise
    for node in enterprise.nodes.values():
        await node.close()


async def private_name(node: QueueManager, pathname: str, **properties: object) -> str:
    await node.create_queue(pathname, **properties)  # type: ignore[arg-type]
    information = await node.queue(pathname)
    return f"PRIVATE={guid_to_text(node.identifier)}\\{information.private_queue_number:08x}"


async def receive(node: QueueManager, pathname: str) -> Message:
    async with await node.open_queue(f"DIRECT=OS:{pathname}") as queue:
        return await queue.receive(timeout=60)


async def test_keys_are_published_once(enterprise: Enterprise) -> None:
    found = await enterprise.directory.read_directory(DirectoryQueueManager, [equals("computer_name", "bob")])
    assert found.public_encryption_key_list
    await enterprise.nodes["BOB"].close()
    await enterprise.start("BOB")
    again = await enterprise.directory.read_directory(DirectoryQueueManager, [equals("computer_name", "bob")])
    assert again.public_encryption_key_list == found.public_encryption_key_list


@pytest.mark.parametrize("transactional", [False, True])
async def test_private_names_with_encryption(enterprise: Enterprise, transactional: bool) -> None:
    alice, bob = enterprise.nodes["ALICE"], enterprise.nodes["BOB"]
    pathname = TRANSACTIONAL if transactional else PLAIN
    name = await private_name(bob, pathname, transactional=transactional)
    out = await alice.open_queue(name, Access.SEND)
    for level in (PrivacyLevel.NONE, ADVANCED, PrivacyLevel.NONE):
        await out.send(
            Message(BODY + bytes((level,)), privacy_level=level, recoverable=True),
            transaction="single" if transactional else None,
        )
    for level in (PrivacyLevel.NONE, ADVANCED, PrivacyLevel.NONE):
        message = await receive(bob, pathname)
        assert message.body == BODY + bytes((level,))
    await eventually(lambda: not any(q.message_count for q in alice.queue_collection.values()))


async def test_public_names(enterprise: Enterprise) -> None:
    alice, bob = enterprise.nodes["ALICE"], enterprise.nodes["BOB"]
    created = await bob.create_queue(r".\orders")
    published = await enterprise.directory.read_directory(DirectoryQueue, [equals("pathname", r"bob\orders")])
    assert published.identifier == created.identifier
    out = await alice.open_queue(f"PUBLIC={guid_to_text(Guid(created.identifier))}", Access.SEND)
    await out.send(Message(BODY, privacy_level=ADVANCED))
    message = await receive(bob, r".\orders")
    assert message.body == BODY
    assert message.destination_queue_manager_identifier == bob.identifier


async def test_a_queue_that_takes_encrypted_messages_only_refuses_others(enterprise: Enterprise) -> None:
    alice, bob = enterprise.nodes["ALICE"], enterprise.nodes["BOB"]
    name = await private_name(bob, PLAIN, privacy_level=2)
    out = await alice.open_queue(name, Access.SEND)
    await out.send(Message(b"in clear", recoverable=True))
    await out.send(Message(b"encrypted", recoverable=True, privacy_level=ADVANCED))
    assert (await receive(bob, PLAIN)).body == b"encrypted"
    assert (await bob.queue(PLAIN)).message_count == 0


async def test_nothing_leaves_in_clear_that_cannot_be_encrypted(enterprise: Enterprise) -> None:
    alice, bob = enterprise.nodes["ALICE"], enterprise.nodes["BOB"]
    name = await private_name(bob, PLAIN)
    stripped = yaml.safe_load(enterprise.file.read_text())
    for entry in stripped["queue_managers"]:
        entry.pop("public_encryption_key_list", None)
    enterprise.file.write_text(yaml.safe_dump(stripped))
    out = await alice.open_queue(name, Access.SEND)
    await out.send(Message(b"secret", recoverable=True, privacy_level=ADVANCED, negative_journaling_requested=True))
    await out.send(Message(b"plain", recoverable=True))
    assert (await receive(bob, PLAIN)).body == b"plain"
    dead = await alice.open_queue(r"DIRECT=OS:.\SYSTEM$;DEADLETTER")
    assert (await dead.receive(timeout=60)).body == b"secret"
    history = next(
        queue.connection_history
        for queue in alice.queue_collection.values()
        if isinstance(queue, OutgoingQueue) and queue.pathname == name
    )
    failures = [one for one in history if one.status is ConnectionStatus.CERTIFICATE_VALIDATION_FAILURE]
    assert [bool(one.error & 0x80000000) for one in failures] == [True]
    assert failures[0].addresses == (enterprise.addresses["BOB"],)


async def test_a_message_that_could_not_be_encrypted_says_so(enterprise: Enterprise) -> None:
    alice, bob = enterprise.nodes["ALICE"], enterprise.nodes["BOB"]
    name = await private_name(bob, PLAIN)
    stripped = yaml.safe_load(enterprise.file.read_text())
    for entry in stripped["queue_managers"]:
        entry.pop("public_encryption_key_list", None)
    enterprise.file.write_text(yaml.safe_dump(stripped))
    out = await alice.open_queue(name, Access.SEND)
    await out.send(Message(b"secret", recoverable=True, privacy_level=ADVANCED, negative_journaling_requested=True))
    dead = await alice.open_queue(r"DIRECT=OS:.\SYSTEM$;DEADLETTER")
    assert (await dead.receive(timeout=60)).message_class == MessageClass.MQMSG_CLASS_NACK_COULD_NOT_ENCRYPT


async def test_encryption_for_a_direct_name_is_refused_at_once(enterprise: Enterprise) -> None:
    alice, bob = enterprise.nodes["ALICE"], enterprise.nodes["BOB"]
    for name in (r"DIRECT=OS:bob\private$\q", r"DIRECT=TCP:127.9.9.9\private$\q", r"DIRECT=OS:bob\public"):
        out = await alice.open_queue(name, Access.SEND)
        for level in (PrivacyLevel.ENHANCED, ADVANCED):
            with pytest.raises(MessageQueuingError, match="cannot be encrypted"):
                await out.send(Message(b"secret", privacy_level=level))
            with pytest.raises(MessageQueuingError, match="cannot be encrypted"):
                await out.send_many([Message(b"clear"), Message(b"secret", privacy_level=level)])
        assert not alice.names.find(name).message_count
    await bob.create_queue(r".\private$\here")
    here = await bob.open_queue(r"DIRECT=OS:.\private$\here", Access.SEND)
    await here.send(Message(b"stays here", privacy_level=ADVANCED))
