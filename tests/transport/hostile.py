"""A peer that means harm: it can establish a session as anybody, and then sends what it likes."""

from __future__ import annotations

import asyncio
from typing import Self

from qmnode.protocol.session import Session
from qmnode.protocol.states import Role
from qmnode.settings.protocol import SessionSettings
from qmnode.structures.guid import Guid


class HostilePeer:
    """One connection to a node, from an address of its own."""

    def __init__(self, own: str, target: str) -> None:
        self._own, self._target = own, target
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(self._target, 1801, local_addr=(self._own, 0))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def establish(self, identifier: Guid) -> None:
        """A session in the name of a queue manager."""
        now = asyncio.get_running_loop().time()
        session = Session(Role.INITIATOR, identifier, SessionSettings(), now, direct=True)
        session.connected(now)
        async with asyncio.timeout(60):
            while session.room() == 0:
                self._writer.write(b"".join(map(bytes, session.data_to_send())))
                data = await self._reader.read(65536)
                assert data, "the node closed the connection while the session was established"
                session.receive_data(data, now)

    def send(self, data: bytes) -> None:
        """Whatever it is."""
        self._writer.write(data)

    async def flush(self) -> None:
        """Until the node has taken it, or closed."""
        try:
            await self._writer.drain()
        except ConnectionError:
            return

    async def is_closed(self) -> bool:
        """Whether the node closes the connection."""
        try:
            async with asyncio.timeout(60):
                while await self._reader.read(65536):
                    pass
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        return True
