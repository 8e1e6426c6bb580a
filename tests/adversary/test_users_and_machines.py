"""Certificates at the doors that they are not for: a queue manager's at the AMQP door, and a user's between nodes."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.x509 import IPAddress, UniformResourceIdentifier
from cryptography.x509.oid import ExtendedKeyUsageOID

from qmnode import QueueManager
from qmnode.amqp.door import AmqpDoor
from qmnode.amqp.principals import AMQP_HEADER, SASL_HEADER
from qmnode.directory.port import WorkgroupDirectory
from qmnode.security.principals import Principals
from qmnode.settings.amqp import AmqpSettings
from qmnode.settings.node import NodeSettings
from qmnode.settings.security import SecuritySettings
from qmnode.structures.guid import guid_to_text
from tests.adversary import wire
from tests.adversary.attacks import Area, attack
from tests.adversary.test_amqp_door import FLOW, MESSAGE, attach, transfer
from tests.adversary.test_certificates import QUEUE, arrives, bob
from tests.amqp.raw import BEGIN, CLOSE, OPEN, connect, frame, init, read_all, values
from tests.lab.waiting import holds
from tests.security.certificates import certificate, machine_names, tls_of
from tests.transport.conftest import loopback_address, settings_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from qmnode.security.principals import Principal
    from qmnode.settings.security import TlsSettings

pytestmark = pytest.mark.servers
BOTH = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
CLIENTS = (ExtendedKeyUsageOID.CLIENT_AUTH,)


def user(folder: Path, own: str, name: str, *usages: Any) -> TlsSettings:
    """The files of a user that the authority of the hosts has certified."""
    found = tls_of(folder / name, own)
    found.certificate.write_bytes(certificate(name, 0, "authority", usages=usages))
    return found


class Asked(Principals):
    """Notes the names of the users who log in."""

    names: list[str]

    async def of_remote_user(self, name: str) -> Principal:
        self.names.append(name)
        return await super().of_remote_user(name)


@asynccontextmanager
async def node_of(folder: Path, name: str) -> AsyncIterator[tuple[QueueManager, NodeSettings]]:
    """A node that requires TLS and identities, with a certificate that names it. Its address is in its settings."""
    base = settings_of(name, loopback_address())
    async with QueueManager.open(folder / name, base) as node:
        tls = tls_of(folder, base.transport.address, node.identifier, required=True)
    settings = NodeSettings(
        data=folder / name, computer_name=name, transport=base.transport, transfer=base.transfer,
        security=SecuritySettings(tls=tls), export={},
    )  # fmt: skip
    async with QueueManager.open(settings.data, settings) as node:
        await node.network.start()
        yield node, settings


@asynccontextmanager
async def gate(folder: Path, **amqp: Any) -> AsyncIterator[tuple[AmqpDoor, str, list[str]]]:
    """Such a node with an AMQP door, which has the certificate of the node: the door, the name in the certificate, and
    the users who log in."""
    async with node_of(folder, "GATE") as (node, settings):
        tls = settings.security.tls
        assert tls is not None
        door = AmqpSettings(
            enabled=True, address="127.0.0.1", port=0, certificate=tls.certificate, private_key=tls.private_key,
            authorities=tls.authorities, **amqp,
        )  # fmt: skip
        callers = Asked(settings.security, WorkgroupDirectory())
        callers.names = []
        opened = AmqpDoor(node, settings.model_copy(update={"amqp": door}), callers)
        await opened.start()
        try:
            yield opened, settings.transport.address, callers.names
        finally:
            await opened.stop()


async def logs_in(door: AmqpDoor, server: str, tls: TlsSettings, target: str = "") -> bool:
    """Whether the holder of a certificate logs in with EXTERNAL. With a target, a message is sent there."""
    context = ssl.create_default_context(cafile=tls.authorities)
    context.load_cert_chain(tls.certificate, tls.private_key)
    begun = SASL_HEADER + init("EXTERNAL") + AMQP_HEADER + frame(OPEN) + BEGIN

    def work() -> bytes:
        answer = b""
        with connect(door.port) as plain, context.wrap_socket(plain, server_hostname=server) as connection:
            connection.sendall(begun + (attach("out", 0, target, receives=False) if target else b""))
            while target and FLOW not in answer and (more := connection.recv(65536)):
                answer += more
            with contextlib.suppress(OSError):
                connection.sendall((transfer(0, 0, MESSAGE) if target else b"") + CLOSE)
            return answer + read_all(connection)

    outcomes = [one for one in values(await asyncio.to_thread(work)) if one is not None and one.descriptor == 0x44]
    return [one.value[0] for one in outcomes] == [0]


@attack(
    Area.AMQP,
    can="log in to the AMQP door of a node with the certificate of another machine, and send messages to a third node, "
    "which takes them for messages of the node with the door",
    promised="a certificate that names a queue manager is no user's: the login fails, and nothing arrives at the third "
    "node",
)
async def test_a_queue_managers_certificate_is_no_users(tmp_path: Path, own: str) -> None:
    stolen = tls_of(tmp_path / "stolen", own, wire.identifier())
    async with node_of(tmp_path, "BOB") as (node, settings), gate(tmp_path) as (door, server, _):
        await node.create_queue(QUEUE)
        queue = rf"DIRECT=TCP:{settings.transport.address}\private$\orders"
        assert not await logs_in(door, server, stolen, queue)
        assert await logs_in(door, server, user(tmp_path, own, "billing", *CLIENTS), queue)

        async def only_one() -> bool:
            return (await node.queue(QUEUE)).message_count == 1

        await holds(only_one, 30, "the user's message arrives, and no other")


@attack(
    Area.AMQP,
    can="log in to the AMQP door with a certificate that names two queue managers, or one that cannot be read",
    promised="the login fails, whatever amqp.queue_managers has",
)
@pytest.mark.parametrize("names", [("{bridge}", "{other}"), ("{bridge} ",), ("*",)])
async def test_a_certificate_of_several_queue_managers_is_no_users(
    tmp_path: Path, own: str, names: tuple[str, ...]
) -> None:
    bridge, other = (guid_to_text(wire.identifier()) for _ in range(2))
    shown = user(tmp_path, own, "odd")
    uris = [UniformResourceIdentifier("urn:uuid:" + name.format(bridge=bridge, other=other)) for name in names]
    shown.certificate.write_bytes(certificate("odd", 0, "authority", *uris))
    async with gate(tmp_path, queue_managers={bridge: "bridge"}) as (door, server, _):
        assert not await logs_in(door, server, shown)


async def test_the_bridge_of_a_node_is_the_user_that_the_settings_say(tmp_path: Path, own: str) -> None:
    bridge, other = wire.identifier(), wire.identifier()
    users = {"{" + guid_to_text(bridge).upper() + "}": "bridge of bremen"}
    async with gate(tmp_path, queue_managers=users) as (door, server, names):
        assert await logs_in(door, server, tls_of(tmp_path / "bridge", own, bridge))
        assert not await logs_in(door, server, tls_of(tmp_path / "other", own, other))
    assert set(names) == {"bridge of bremen"}


@pytest.mark.parametrize(
    ("days", "usages", "taken"), [(1, BOTH, True), (-1, BOTH, False), (-1, (), False), (-1, CLIENTS, True)]
)
async def test_certificates_that_servers_may_show_are_taken_until_a_day(
    tmp_path: Path, own: str, days: int, usages: Any, taken: bool
) -> None:
    until = (datetime.now(UTC) + timedelta(days=days)).date()
    async with gate(tmp_path, server_certificates_until=until) as (door, server, _):
        assert await logs_in(door, server, user(tmp_path, own, "billing", *usages)) is taken


@attack(
    Area.SESSIONS,
    can="hold a certificate of the enterprise that was issued to a user, and open sessions with it",
    promised="no session opens, whether security.tls.require_identity is set or not: such a certificate is for clients "
    "alone",
)
@pytest.mark.parametrize("required", [True, False])
async def test_a_users_certificate_is_no_queue_managers(tmp_path: Path, own: str, required: bool) -> None:
    mallory = wire.identifier()
    async with bob(tmp_path, required=required) as (node, target):
        assert not await arrives(node, target, own, user(tmp_path, own, "billing", *CLIENTS), mallory)
        honest = tls_of(tmp_path / "honest", own, mallory)
        names = [IPAddress(ip_address(own)), *machine_names(mallory)]
        honest.certificate.write_bytes(certificate(own, 0, "authority", *names, usages=BOTH))
        assert await arrives(node, target, own, honest, mallory)
