"""Attacks by those who hold a certificate of the enterprise, over TLS: they are nobody but whom it names."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography.x509 import DNSName, GeneralName, IPAddress, UniformResourceIdentifier

from qmnode import Access, Message, QueueManager
from qmnode.security.tls import acceptor_context, initiator_context, queue_manager_of
from qmnode.settings.security import SecuritySettings, TlsSettings
from qmnode.structures.guid import guid_to_text
from tests.adversary import wire
from tests.adversary.attacks import Area, attack
from tests.adversary.peer import PORT, Peer
from tests.lab.waiting import eventually
from tests.security.certificates import certificate, tls_of
from tests.transport.conftest import loopback_address, settings_of

QUEUE = r".\private$\orders"


@asynccontextmanager
async def bob(folder: Path, *, required: bool = False) -> AsyncIterator[tuple[QueueManager, str]]:
    """A node that speaks nothing but TLS, and its address."""
    address = loopback_address()
    settings = settings_of("BOB", address)
    tls = tls_of(folder, address, required=required)
    settings = settings.model_copy(update={"security": SecuritySettings(tls=tls)})
    node = await QueueManager.open(folder / "BOB", settings)
    try:
        await node.create_queue(QUEUE)
        await node.network.start()
        yield node, address
    finally:
        await node.close()


@asynccontextmanager
async def peer(target: str, own: str, tls: ssl.SSLContext) -> AsyncIterator[Peer]:
    """A TLS connection from the address ``own``."""
    streams = await asyncio.open_connection(target, PORT, local_addr=(own, 0), ssl=tls, server_hostname=target)
    made = Peer(*streams)
    try:
        yield made
    finally:
        made.close()


async def arrives(node: QueueManager, target: str, own: str, tls: TlsSettings, source: bytes) -> bool:
    """Whether a holder of this certificate opens a session as ``source`` and has a message taken."""
    async with peer(target, own, initiator_context(tls)) as made:
        try:
            await made.establish(source)
            name = wire.direct(f"TCP:{target}\\private$\\orders")
            await made.say(wire.UserMessage(source=source, message_id=1, queue=name).packet())
        except ConnectionResetError:
            return False
    return (await node.queue(QUEUE)).message_count == 1


@attack(
    Area.SESSIONS,
    can="hold a certificate of the enterprise, and open a session in the name of another queue manager",
    promised="the session does not open: a certificate that names a queue manager cannot be used in the name of "
    "another",
)
async def test_a_certificate_speaks_for_no_other_queue_manager(tmp_path: Path, own: str) -> None:
    alice, mallory = wire.identifier(), wire.identifier()
    async with bob(tmp_path) as (node, target):
        certified = tls_of(tmp_path, own, mallory)
        assert not await arrives(node, target, own, certified, alice)
        assert await arrives(node, target, own, certified, mallory)


@attack(
    Area.SESSIONS,
    can="hold a certificate with several names: the GUID of another machine beside its own, in odd notations, or "
    "wildcards",
    promised="the certificate counts for the one queue manager on which all its names agree, or for none",
)
@pytest.mark.parametrize(
    "names",
    [
        ["urn:uuid:{own}", "urn:uuid:{alice}"],
        ["urn:uuid:{own}", "URN:UUID:{ALICE}"],
        ["urn:uuid:{own}", "urn:uuid:{{{alice}}}"],
        ["urn:uuid:{own}", "urn:uuid:{alice}?", "urn:uuid:"],
        ["urn:uuid:{own}", "urn:uuid:*"],
        ["urn:uuid:*"],
        ["urn:uuid:{own} {alice}"],
        ["urn:uuid:%7B{alice}%7D"],
        ["urn:uuid:{own}", "uuid:{alice}", "urn:guid:{alice}", "https://x/urn:uuid:{alice}"],
    ],
)
async def test_a_certificate_of_several_names_speaks_for_one_at_most(
    tmp_path: Path, own: str, names: list[str]
) -> None:
    alice, mallory = wire.identifier(), wire.identifier()
    texts = {"own": guid_to_text(mallory), "alice": guid_to_text(alice), "ALICE": guid_to_text(alice).upper()}
    certified = tls_of(tmp_path, own)
    known: list[GeneralName] = [IPAddress(ip_address(own)), DNSName("*"), DNSName(f"urn:uuid:{guid_to_text(alice)}")]
    known += [UniformResourceIdentifier(name.format(**texts)) for name in names]
    certified.certificate.write_bytes(certificate(own, 0, "authority", *known))
    async with bob(tmp_path / "bob") as (node, target):
        assert not await arrives(node, target, own, certified, alice)


@attack(
    Area.SESSIONS,
    can="hold a certificate of the enterprise for a host that is no queue manager, and open sessions with it",
    promised="no session opens if security.tls.require_identity is set",
)
async def test_a_certificate_of_no_queue_manager_speaks_for_none(tmp_path: Path, own: str) -> None:
    alice, nobody = wire.identifier(), tls_of(tmp_path, own)
    async with bob(tmp_path / "strict", required=True) as (node, target):
        assert not await arrives(node, target, own, nobody, alice)
        certified = tls_of(tmp_path / "alice", own, alice)
        assert await arrives(node, target, own, certified, alice)
    async with bob(tmp_path / "lenient") as (node, target):
        assert await arrives(node, target, own, nobody, alice)


@attack(
    Area.SESSIONS,
    can="answer at an address to which a node connects, with a certificate of the enterprise, as another queue manager",
    promised="the node sends nothing: the answer must name the queue manager that the certificate names",
)
async def test_an_acceptor_is_whom_its_certificate_names(tmp_path: Path, own: str) -> None:
    alice, mallory = wire.identifier(), wire.identifier()
    certified = tls_of(tmp_path, own, mallory)
    claims: asyncio.Queue[bytes] = asyncio.Queue()
    received: list[wire.Packet] = []
    ended: asyncio.Queue[bytes] = asyncio.Queue()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        made, claim = Peer(reader, writer), await claims.get()
        try:
            await made.accept(claim)
            received.append(await made.next(0))
            made.acknowledge()
        except (ConnectionError, TimeoutError):
            pass
        finally:
            ended.put_nowait(claim)
            made.close()

    server = await asyncio.start_server(answer, own, PORT, ssl=acceptor_context(certified))
    async with bob(tmp_path / "node") as (node, _):
        claims.put_nowait(alice)
        async with await node.open_queue(rf"DIRECT=TCP:{own}\private$\orders", Access.SEND) as out:
            await out.send(Message(b"for Alice's eyes", recoverable=True))
        async with asyncio.timeout(60):
            assert await ended.get() == alice
        assert received == []
        claims.put_nowait(mallory)
        await eventually(lambda: len(received) == 1)
    server.close()


@pytest.mark.parametrize("required", [False, True])
def test_what_a_certificate_says_of_its_queue_manager(required: bool) -> None:
    one, other = "1c9a0b62-96d7-4a35-a2e6-11f2d4f0e001", "1c9a0b62-96d7-4a35-a2e6-11f2d4f0e002"

    def of(*names: tuple[str, str]) -> str | None:
        found = queue_manager_of({"subjectAltName": names}, required=required)
        return None if found is None else guid_to_text(found)

    nobody = guid_to_text(bytes(16))
    unnamed = nobody if required else None
    assert of(("DNS", "a.test"), ("URI", f"urn:uuid:{one}")) == one
    assert of(("URI", f"URN:UUID:{one.upper()}"), ("URI", f"urn:uuid:{one}")) == one
    assert of(("URI", f"urn:uuid:{one}"), ("URI", f"urn:uuid:{other}")) == nobody
    assert of(("URI", "urn:uuid:something")) == nobody
    assert of(("DNS", f"urn:uuid:{one}"), ("URI", "https://a.test/")) == unnamed
    assert of() == unnamed
    assert queue_manager_of(None, required=required) == (bytes(16) if required else None)
