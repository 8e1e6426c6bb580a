"""UDP pings, port 3527: ask whether a queue manager would accept a session, and answer (MS-MQQB 2.1.2, 3.1.7.6)."""

import asyncio
import secrets
import socket
from collections.abc import Callable
from typing import Any, cast

import structlog

from qmnode.protocol.ping import PingClient, ping_response
from qmnode.structures.guid import Guid
from qmnode.transport.listener import listening_sockets

log = structlog.get_logger(__name__)


class _Answers(asyncio.DatagramProtocol):
    """Answers ping requests (3.1.7.7)."""

    def __init__(self, identifier: Guid, refuse: Callable[[], bool]) -> None:
        self._identifier = identifier
        self._refuse = refuse
        self._transport: asyncio.DatagramTransport
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, address: tuple[str | Any, int]) -> None:
        answer = ping_response(data, self._identifier, self._refuse())
        if answer is not None:
            self._transport.sendto(answer, address)

    def connection_lost(self, error: Exception | None) -> None:
        self.closed.set_result(None)

    async def close(self) -> None:
        """Close the UDP socket."""
        self._transport.close()
        await self.closed

    def error_received(self, error: Exception) -> None:
        """Ignore an answer that could not be delivered: its receiver no longer waits."""
        log.debug("a ping could not be answered", reason=str(error))


class PingServer:
    """Answers pings from other queue managers."""

    def __init__(self, identifier: Guid, refuse: Callable[[], bool]) -> None:
        """``refuse`` returns whether a session would be refused now."""
        self._identifier = identifier
        self._refuse = refuse
        self._answers: list[_Answers] = []

    async def start(self, address: str, port: int) -> None:
        """Start to listen. Raises OSError if the address is in use or not of this machine."""
        loop = asyncio.get_running_loop()
        for one in listening_sockets(address, port, socket.SOCK_DGRAM):
            _, answers = await loop.create_datagram_endpoint(lambda: _Answers(self._identifier, self._refuse), sock=one)
            self._answers.append(answers)

    async def stop(self) -> None:
        """Stop answering and close the sockets."""
        for answers in self._answers:
            await answers.close()
        self._answers = []


class _Asking(asyncio.DatagramProtocol):
    """Waits for one ping response (3.1.7.8)."""

    def __init__(self, client: PingClient) -> None:
        self.answered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._client = client

    def datagram_received(self, data: bytes, address: tuple[str | Any, int]) -> None:
        answer = self._client.receive(data)
        if answer is not None and not self.answered.done():
            self.answered.set_result(answer[1])

    def error_received(self, error: Exception) -> None:
        if not self.answered.done():
            self.answered.set_result(False)


async def ping(identifier: Guid, address: str, port: int, own_address: str) -> bool:
    """Whether the queue manager answers a ping within a second (3.1.2.9) and would accept a session."""
    loop = asyncio.get_running_loop()
    client = PingClient(identifier, cookie=secrets.randbits(32))
    try:
        transport, asking = await loop.create_datagram_endpoint(
            lambda: _Asking(client),
            remote_addr=(address, port),
            local_addr=(own_address, 0) if own_address and (":" in own_address) is (":" in address) else None,
        )
    except OSError as error:
        log.debug("a ping could not be sent", address=address, reason=str(error))
        return False
    try:
        _, request = client.request(loop.time())
        transport.sendto(request)
        timer = client.next_timer()
        assert timer is not None
        async with asyncio.timeout_at(timer[1]):
            return await asking.answered
    except TimeoutError:
        return False
    finally:
        transport.close()
