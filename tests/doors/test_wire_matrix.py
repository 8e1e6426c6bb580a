"""The door matrix on the wire (MS-MQQB): messages as signed senders, as others that claim to be them, and unsigned."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest
import yaml

from qmnode import Access, QueueManager
from qmnode.administration.browsing import browse
from qmnode.directory.file import FileDirectory
from qmnode.security.protector import Protected, ProtectionRequest, Signer
from qmnode.structures.enumerations import AuthenticationLevel, HashAlgorithm, SenderIdentifierType
from qmnode.structures.guid import Guid, guid_to_text
from qmnode.structures.packets import InternalPacketType
from qmnode.structures.security_descriptor import ANONYMOUS, AUTHENTICATED_USERS, EVERYONE, Sid
from qmnode.structures.security_descriptor import QueueAccess as Right
from qmnode.structures.user_message import (
    BaseFlags,
    BaseHeader,
    MessagePropertiesHeader,
    PrivateQueueFormatNameId,
    SecurityFlags,
    SecurityHeader,
    UserFlags,
    UserHeader,
    UserMessage,
)
from tests.adversary.peer import session
from tests.doors.expectation import DOMAIN, MEMBER, STRANGER, Matrix, Who, allowed, described, descriptors
from tests.security.directories import user_certificates
from tests.security.keys import private_key
from tests.security.messages import DAY, certificate, source
from tests.transport.conftest import loopback_address, settings_of

USERS = {"owner": DOMAIN.owner, "member": MEMBER, "stranger": STRANGER}
NAMED = frozenset({EVERYONE, AUTHENTICATED_USERS})
UNSIGNED = Who(frozenset({ANONYMOUS, EVERYONE}))  # security.everyone_includes_anonymous
SENDERS: dict[str, Who] = {
    "owner": Who(NAMED | {DOMAIN.owner}),
    "member": Who(NAMED | {MEMBER, DOMAIN.group}),
    "stranger": Who(NAMED | {STRANGER}),
    "unsigned": UNSIGNED,
    "claims to be the owner, unsigned": UNSIGNED,
    "self-made certificate, no sender": UNSIGNED,
}
NOBODY = {"self-made certificate, the owner", "the owner's signature on another body"}
"""Senders whose messages no queue takes."""
KINDS = {"user": "a UserMessage asks the queue's descriptor: the cells below"} | {
    one.name: "it names no queue" for one in InternalPacketType
}
DESCRIPTORS = descriptors(DOMAIN)
NAMES = {f"q{number}": text for number, text in enumerate(DESCRIPTORS)}


SOURCE = bytes(range(100, 116))


class Enterprise(FileDirectory):
    """A directory in which one user is in a group."""

    async def expand_groups(self, security_identifier: bytes) -> tuple[bytes, ...]:
        return (DOMAIN.group.write(),) if security_identifier == MEMBER.write() else ()


def signer_of(name: str, number: int, sid: Sid | None, now: float) -> Signer:
    encoded = certificate(1024, number, now - DAY, now + DAY)
    kind = SenderIdentifierType.NONE if sid is None else SenderIdentifierType.SID
    return Signer(private_key(1024, number), encoded, kind, b"" if sid is None else sid.write())


@dataclass
class Target:
    """The node, and its address."""

    node: QueueManager
    address: str
    now: float


@pytest.fixture
async def target(tmp_path: Path) -> AsyncIterator[Target]:
    now, address = float(int(time.time())), loopback_address()
    identifier = Guid(bytes(range(16)))
    users = [
        {
            "name": name,
            "security_identifier": sid.write().hex(),
            "certificates": user_certificates(certificate(1024, number, now - DAY, now + DAY)).hex(),
        }
        for number, (name, sid) in enumerate(USERS.items())
    ]
    machine = {"computer_name": "BOB", "identifier": guid_to_text(identifier)}
    file = tmp_path / "directory.yaml"
    file.write_text(yaml.safe_dump({"users": users, "queue_managers": [machine]}))
    settings = settings_of("BOB", address)
    async with QueueManager.open(tmp_path / "bob", settings, directory=Enterprise(file)) as node:
        node.adopt_identifier(identifier)
        for name, text in NAMES.items():
            security = described(DESCRIPTORS[text], DOMAIN.owner)
            await node.create_queue(rf".\private$\{name}", security=security)
            await node.create_queue(rf".\private$\{name}a", security=security, authentication=True)
        await node.network.start()
        yield Target(node, address, now)


def packet(target: Target, sender: str, queue: str, number: int) -> bytes:
    """A message of this sender for a queue, whose label names the sender."""
    body = sender.encode()
    private = target.node.names.find(rf".\private$\{queue}").private_queue_number
    made = UserMessage(
        base_header=BaseHeader(flags=BaseFlags.of(PR=3)),
        user_header=UserHeader(
            source_queue_manager=Guid(SOURCE),
            queue_manager_address=Guid(bytes(target.node.identifier)),
            sent_time=int(target.now),
            message_id=number,
            flags=UserFlags.of(MP=1, DM=1),
            destination_queue=PrivateQueueFormatNameId(private_queue_identifier=private),
        ),
        message_properties_header=MessagePropertiesHeader(message_body=body, hash_algorithm=HashAlgorithm.SHA_512),
    )
    names = list(USERS)
    if sender in USERS:
        signed_by = signer_of(sender, names.index(sender), USERS[sender], target.now)
    elif sender == "self-made certificate, no sender":
        signed_by = signer_of(sender, 3, None, target.now)
    elif sender == "self-made certificate, the owner":
        signed_by = signer_of(sender, 3, DOMAIN.owner, target.now)
    elif sender == "the owner's signature on another body":
        signed_by = signer_of(sender, 0, DOMAIN.owner, target.now)
    elif sender == "claims to be the owner, unsigned":
        claim = SecurityHeader(flags=SecurityFlags.of(ST=1, DE=1, AI=1), security_id=DOMAIN.owner.write())
        return made.replace(security_header=claim).write()
    else:
        return made.write()
    protected = source().protect(ProtectionRequest(made.write(), AuthenticationLevel.SIG20, signed_by), target.now)
    assert isinstance(protected, Protected), protected
    if sender == "the owner's signature on another body":
        return protected.written.replace(body, body[::-1])
    return protected.written


def test_every_kind_of_packet_has_a_row() -> None:
    assert {one.name for one in InternalPacketType} | {"user"} == set(KINDS)


async def test_no_denied_sender_succeeds_and_no_allowed_one_fails(
    target: Target, own: str, capsys: pytest.CaptureFixture[str]
) -> None:
    matrix = Matrix("the wire")
    queues = [name + suffix for name in NAMES for suffix in ("", "a")]
    cells = list(product((*SENDERS, *NOBODY), queues))
    async with session(own, target.address, SOURCE, window=16) as peer:
        await peer.say(*(packet(target, sender, queue, number) for number, (sender, queue) in enumerate(cells, 1)))
    for queue in queues:
        found = set()
        async with await target.node.open_queue(rf"DIRECT=OS:.\private$\{queue}", Access.PEEK) as opened:
            async for one in browse(opened):
                sender = one.body.decode()
                found.add(sender)
                # What a packet claims is in none of the fields that applications trust.
                assert one.sender_identifier == (USERS[sender].write() if sender in USERS else b"")
        authenticated = queue.endswith("a")
        entries = DESCRIPTORS[NAMES[queue.removesuffix("a")]]
        for sender in (*SENDERS, *NOBODY):
            expected = sender not in NOBODY and (sender in USERS or not authenticated)
            expected = expected and allowed(entries, SENDERS[sender], DOMAIN.owner, int(Right.MQSEC_WRITE_MESSAGE))
            matrix.count(f"{sender}, {queue} ({NAMES[queue.removesuffix('a')]})", expected, sender in found)
    with capsys.disabled():
        print(matrix.report())
    assert not matrix.wrong, "\n".join(matrix.wrong[:60])
    assert matrix.cells >= 500


@pytest.fixture
def own() -> str:
    """The sender's address."""
    return loopback_address()
