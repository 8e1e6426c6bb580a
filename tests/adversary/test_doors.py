"""Doors beside the message path: the management API, remote read, and the private directory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import yaml

from qmnode import MessageQueuingError, QueueManager
from qmnode.dcerpc.interface import NDR64_SYNTAX, NDR_SYNTAX, SyntaxId
from qmnode.dcerpc.pdu import (
    Bind,
    BindAck,
    ContextElement,
    PduType,
    Result,
    body_of,
    syntax_of,
    to_syntax,
    write_pdu,
)
from qmnode.directory.file import FileDirectory
from qmnode.remote_read.qm2qm import QM2QM
from qmnode.settings.node import Settings
from qmnode.settings.remote_read import RemoteReadSettings
from qmnode.structures.guid import guid_to_text, new_guid
from tests.adversary.attacks import Area, attack
from tests.directory import test_node_rights as rights
from tests.management import test_connections as management
from tests.management.conftest import Managed
from tests.remote_read.conftest import serving
from tests.remote_read.raw_client import RawClient

lab, managing = rights.lab, management.serving
"""Fixtures of these rooms' own tests."""


@attack(
    Area.DOORS,
    can="hold connections to the management API with TLS handshakes that never end, and with requests whose heads "
    "never come",
    promised="places are shared by address, silent connections lose their places, and the node answers honest callers",
)
async def test_connections_that_say_nothing_keep_nobody_from_managing(
    managing: Callable[..., Awaitable[Managed]],
) -> None:
    managed = await managing(connections=8, connections_per_address=6, head_time=600)
    strangers = [
        stranger
        for source in ("127.0.0.2", "127.0.0.3", "127.0.0.4")
        for stranger in await management.connected(managed, 8, source, management.HELLO)
    ]

    assert await management.is_served(managed)

    for _, writer in strangers:
        writer.close()


@pytest.mark.servers
@pytest.mark.one_server(reason="Active Directory has access lists of its own")
@attack(
    Area.DOORS,
    can="log in to the private directory with the credentials of a node, and try every write that LDAP has a request "
    "for",
    promised="a node can write its own keys, certificates and queues: no sites, roles, host names, users, groups or "
    "SIDs",
)
def test_a_node_writes_nothing_else_into_the_private_directory(lab: rights.Lab) -> None:
    refused = {name: write(lab) for name, write in rights.FORBIDDEN.items()}

    assert set(refused.values()) == {rights.INSUFFICIENT_ACCESS_RIGHTS}, refused


OFFERS: dict[str, tuple[tuple[SyntaxId, ...], ...]] = {
    "NDR first": ((NDR_SYNTAX,), (NDR64_SYNTAX,)),
    "NDR64 first": ((NDR64_SYNTAX,), (NDR_SYNTAX,)),
    "both in one": ((NDR_SYNTAX, NDR64_SYNTAX),),
    "both in each": ((NDR_SYNTAX, NDR64_SYNTAX), (NDR64_SYNTAX, NDR_SYNTAX)),
}


def offer(*offered: tuple[SyntaxId, ...], first: int = 0, kind: int = PduType.BIND) -> bytes:
    """A PDU that proposes contexts of qm2qm with these representations."""
    contexts = tuple(
        ContextElement(
            context_id=number,
            abstract_syntax=to_syntax(QM2QM.syntax),
            transfer_syntaxes=tuple(map(to_syntax, syntaxes)),
        )
        for number, syntaxes in enumerate(offered, first)
    )
    return write_pdu(kind, 1, Bind(max_transmit=5840, max_receive=5840, group_id=0, contexts=contexts).write())


async def accepted(client: RawClient, pdu: bytes) -> set[SyntaxId]:
    """The representations that are accepted."""
    await client.send(pdu)
    answer = await client.receive()
    assert answer is not None
    results = body_of(answer, BindAck).results
    return {syntax_of(one.transfer_syntax) for one in results if one.result == Result.ACCEPTANCE}


@attack(
    Area.DOORS,
    can="bind an interface of remote read in NDR and in NDR64, so that one connection could read a request in two ways",
    promised="a connection has one representation of an interface; the node rejects the other contexts",
)
@pytest.mark.parametrize("offered", OFFERS.values(), ids=OFFERS)
async def test_an_interface_has_one_representation(tmp_path: Path, offered: tuple[tuple[SyntaxId, ...], ...]) -> None:
    async with serving(tmp_path) as remote, RawClient(remote.address, remote.port) as client:
        assert await accepted(client, offer(*offered)) == {NDR64_SYNTAX}
        assert await accepted(client, offer((NDR_SYNTAX,), first=7, kind=PduType.ALTER_CONTEXT)) == set()


TRAP = "127.0.0.77"
"""Its address, which is none of the node's own."""


class Trap:
    """A host of the attacker, which keeps what is sent to it."""

    def __init__(self) -> None:
        self.heard = b""
        self.port = 0

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[Trap]:
        async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.heard += await reader.read(65536)
            writer.close()

        async with await asyncio.start_server(hear, TRAP, 0) as server:
            self.port = server.sockets[0].getsockname()[1]
            yield self


async def read_from(folder: Path, port: int, *listed: str) -> None:
    """Open a queue of a host, as a local user does, in a node that has an account for remote read."""
    password = folder / "password"
    password.write_text("Secret-1\n")
    password.chmod(0o600)
    reading = RemoteReadSettings(
        endpoint_mapper_port=0,
        port=port,
        account="CONTOSO\\alice",
        password_file=password,
        mechanism="ntlm",
        authenticate_to=listed,
    )
    settings = Settings(computer_name="READING", remote_read=reading)
    async with QueueManager.open(folder / "reading", settings) as manager:
        with pytest.raises(MessageQueuingError):
            await manager.open_queue(rf"DIRECT=OS:{TRAP}\private$\orders")


@attack(
    Area.DOORS,
    can="as a user of a node's application socket, name a host of the attacker's own, so that the node reads there "
    "with its account",
    promised="the node authenticates itself only to machines of the directory and to the hosts in its settings",
)
async def test_credentials_are_not_drawn_to_a_host_that_a_user_names(tmp_path: Path) -> None:
    async with Trap().listening() as trap:
        await read_from(tmp_path, trap.port, "192.0.2.0/24", f"{TRAP}.example")
        assert trap.heard and b"NTLMSSP" not in trap.heard


@pytest.mark.parametrize("listed", ["127.0.0.0/8", TRAP])
async def test_a_host_of_the_settings_is_authenticated_to(tmp_path: Path, listed: str) -> None:
    async with Trap().listening() as trap:
        await read_from(tmp_path, trap.port, "other.example", listed)
        assert b"NTLMSSP" in trap.heard


NAMES = {
    "ALPHA": True,
    "alpha": True,
    "alpha.contoso.test": True,
    "Alpha.Contoso.Test.": True,
    "alpha.evil.test": False,
    "beta": False,
    "192.0.2.1": False,
    "::1": False,
    "": False,
    ".": False,
}


async def test_machines_are_known_by_their_computer_names_and_dns_names(tmp_path: Path) -> None:
    file = tmp_path / "directory.yaml"
    alpha = {
        "computer_name": "ALPHA",
        "qualified_computer_name": "alpha.contoso.test",
        "identifier": guid_to_text(new_guid()),
    }
    file.write_text(yaml.safe_dump({"queue_managers": [alpha]}))
    settings = Settings(computer_name="READING")
    async with QueueManager.open(tmp_path / "reading", settings, directory=FileDirectory(file)) as manager:
        assert {name: await manager.published.is_machine(name) for name in NAMES} == NAMES
