"""A client of the management API that costs little: one connection, one request after the other."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.doors.unix import connected_as


@dataclass(frozen=True)
class Answer:
    """The answer to a request."""

    status: int
    body: bytes

    def json(self) -> Any:
        """Its document."""
        return json.loads(self.body)

    @property
    def text(self) -> str:
        """Its text."""
        return self.body.decode()


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Client:
    """One principal's connection, which is made again when the node has closed it."""

    def __init__(self, connect: Callable[[], Awaitable[Streams]], token: str = "") -> None:
        self._connect = connect
        self._streams: Streams | None = None
        self._head = f"Host: node\r\nAuthorization: Bearer {token}\r\n" if token else "Host: node\r\n"

    @classmethod
    def over_tls(cls, port: int, trust: ssl.SSLContext, token: str) -> Client:
        """With a token, over TCP."""
        return cls(lambda: asyncio.open_connection("127.0.0.1", port, ssl=trust), token)

    @classmethod
    def as_user(cls, path: Path, user: int) -> Client:
        """On the Unix socket, as this user."""

        async def connect() -> Streams:
            door = connected_as(path, user, (user,))
            door.setblocking(False)
            return await asyncio.open_unix_connection(sock=door)

        return cls(connect)

    async def ask(self, method: str, path: str, body: object = None) -> Answer:
        """Send a request and read its answer."""
        content = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\n{self._head}Content-Length: {len(content)}\r\n"
        request = f"{head}Content-Type: application/json\r\n\r\n".encode() + content
        async with asyncio.timeout(60):
            try:
                return await self._ask(request)
            except (asyncio.IncompleteReadError, ConnectionError):  # closed while it was idle
                self.close()
                return await self._ask(request)

    async def _ask(self, request: bytes) -> Answer:
        self._streams = self._streams or await self._connect()
        reader, writer = self._streams
        writer.write(request)
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        fields = dict(line.lower().split(": ", 1) for line in lines if ": " in line)
        found = b""
        if fields.get("transfer-encoding") == "chunked":
            while size := int(await reader.readline(), 16):
                found += await reader.readexactly(size)
                await reader.readline()
            await reader.readline()
        elif "content-length" in fields:
            found = await reader.readexactly(int(fields["content-length"]))
        if fields.get("connection") == "close":
            self.close()
        return Answer(int(first.split()[1]), found)

    def close(self) -> None:
        """End the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
