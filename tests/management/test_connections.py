"""Places for connections: strangers who fill them keep nobody out, and nothing that is silent stays."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

import qmnode
from qmnode.management.server import ManagementServer
from qmnode.settings.node import ManagementSettings, Settings
from tests.lab.waiting import holds
from tests.management.conftest import NAME, Managed, write_certificate, write_tokens

if TYPE_CHECKING:
    from collections.abc import Awaitable

Connected = tuple[asyncio.StreamReader, asyncio.StreamWriter]

pytestmark = pytest.mark.usefixtures("service_log")


@pytest.fixture
async def serving(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[Managed]]]:
    """Starts a management server with the given settings."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(**limits: float) -> Managed:
            certificate, key = write_certificate(tmp_path)
            settings = ManagementSettings.model_validate(
                {
                    "socket": tmp_path / "management.sock",
                    "listen": "127.0.0.1:0",
                    "tokens": write_tokens(tmp_path),
                    "certificate": certificate,
                    "private_key": key,
                    **limits,
                }
            )
            store = qmnode.QueueManager.open(tmp_path / "store", Settings(computer_name="ALPHA"))
            manager = await stack.enter_async_context(store)
            server = ManagementServer(manager, settings, lambda: True, operations=manager.operations)
            await server.start()
            stack.push_async_callback(server.stop)
            return Managed(manager, server, tmp_path)

        yield start


async def connected(managed: Managed, number: int, source: str = "127.0.0.2", first: bytes = b"") -> list[Connected]:
    """TCP connections from an address, each with these first bytes of a TLS handshake."""
    assert managed.server.address is not None
    made = []
    for _ in range(number):
        made.append(await asyncio.open_connection(*managed.server.address, local_addr=(source, 0)))
        made[-1][1].write(first)
    return made


async def is_served(managed: Managed) -> bool:
    async with managed.tcp() as client:
        return (await client.get("/v1/node")).status_code == 200


async def ended(connection: Connected) -> None:
    """Wait until the server has closed it."""
    reader, writer = connection
    async with asyncio.timeout(60):
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while await reader.read(65536):
                pass
    writer.close()


HELLO = bytes.fromhex("160301020001")
"""A ClientHello that never comes whole."""


@pytest.mark.parametrize("first", [b"", HELLO, b"GET / HTTP/1.1\r\n"], ids=["nothing", "half a hello", "no TLS"])
async def test_handshakes_that_never_end_keep_nobody_out(
    serving: Callable[..., Awaitable[Managed]], first: bytes
) -> None:
    managed = await serving(connections=8, connections_per_address=8, head_time=600)
    strangers = await connected(managed, 24, first=first)

    assert await is_served(managed)

    for stranger in strangers[:16]:
        await ended(stranger)
    for _, writer in strangers[16:]:
        writer.close()


async def test_a_flood_of_handshakes_opens_no_more_than_twice_the_places(
    serving: Callable[..., Awaitable[Managed]],
) -> None:
    """Connections that gave up their places are open until the event loop has closed them: they count too."""
    managed = await serving(connections=8, connections_per_address=8, head_time=600)
    assert managed.server.address is not None
    with contextlib.ExitStack() as stack:
        strangers = [stack.enter_context(socket.create_connection(managed.server.address)) for _ in range(200)]
        before, most = open_files(), 0
        for stranger in strangers:
            stranger.sendall(HELLO)
            most = max(most, open_files())
            await asyncio.sleep(0)

        assert most - before <= 2 * 8
        assert await is_served(managed)


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def test_a_handshake_has_its_time(serving: Callable[..., Awaitable[Managed]]) -> None:
    managed = await serving(head_time=0.2)

    for stranger in await connected(managed, 3, first=HELLO):
        await ended(stranger)


async def test_one_address_has_its_share_and_others_have_theirs(serving: Callable[..., Awaitable[Managed]]) -> None:
    managed = await serving(connections=8, connections_per_address=4, head_time=600)
    first = await connected(managed, 4, "127.0.0.3", HELLO)
    strangers = await connected(managed, 12, "127.0.0.2", HELLO)

    for stranger in strangers[:8]:
        await ended(stranger)

    assert not any(reader.at_eof() for reader, _ in [*first, *strangers[8:]])
    # All places are taken: the address that holds most gives one up, here either of the two.
    assert await is_served(managed)
    for _, writer in [*first, *strangers[8:]]:
        writer.close()


async def test_who_waits_for_a_message_keeps_its_place(serving: Callable[..., Awaitable[Managed]]) -> None:
    managed = await serving(connections=3, connections_per_address=3, head_time=600)
    await managed.manager.create_queue(NAME)
    async with managed.tcp() as client:
        receiving = client.post("/v1/queues/orders/receive", json={"timeout": 30, "body": "text"}, timeout=60)
        waiting = asyncio.ensure_future(receiving)

        async def is_waiting() -> bool:
            return managed.server.context.waiting == 1

        await holds(is_waiting, 30, "the receive waits")

        strangers = await connected(managed, 9, "127.0.0.1", HELLO)
        for stranger in strangers[:7]:
            await ended(stranger)
        await managed.fill(b"here")

        assert [message["label"] for message in (await waiting).json()["messages"]] == ["l"]
    for _, writer in strangers:
        writer.close()


@pytest.mark.parametrize("before", [b"", b"GET /healthz HTTP/1.1\r\nHost: node\r\n\r\n"], ids=["first", "second"])
async def test_the_head_of_a_request_has_its_time(serving: Callable[..., Awaitable[Managed]], before: bytes) -> None:
    managed = await serving(head_time=0.5)
    reader, writer = await asyncio.open_unix_connection(str(managed.settings.socket))
    writer.write(before + b"GET /v1/node HT")

    async def drip() -> None:
        while True:
            writer.write(b"x")
            await asyncio.sleep(0.1)

    dripping = asyncio.ensure_future(drip())
    try:
        async with asyncio.timeout(60):
            with contextlib.suppress(ConnectionError):
                while await reader.read(65536):
                    pass
    finally:
        dripping.cancel()
        writer.close()


async def test_callers_of_this_machine_have_their_share_too(serving: Callable[..., Awaitable[Managed]]) -> None:
    managed = await serving(connections=4, connections_per_address=4, head_time=600)
    path = str(managed.settings.socket)
    silent = [await asyncio.open_unix_connection(path) for _ in range(12)]

    async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=path), base_url="http://node") as client:
        assert (await client.get("/v1/node")).status_code == 200

    for _, writer in silent:
        writer.close()
