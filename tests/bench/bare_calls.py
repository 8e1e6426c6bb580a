"""Small calls to a bare asyncio server in another process than the caller's: what remote reads are compared with."""

from __future__ import annotations

import asyncio
import multiprocessing
from struct import Struct
from time import perf_counter
from typing import Any, Final, cast

ADDRESS: Final = "127.0.0.1"
BODY: Final = bytes(40)
_HEAD: Final = Struct("<II")


class _Frames(asyncio.Protocol):
    """Frames of a size and a number; what is written in a pass of the loop leaves together."""

    def __init__(self) -> None:
        self._buffer = b""
        self._out: list[bytes] = []
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        data, at = self._buffer + data, 0
        while at + _HEAD.size <= len(data):
            size, number = _HEAD.unpack_from(data, at)
            if at + size > len(data):
                break
            self.came(number, data[at + _HEAD.size : at + size])
            at += size
        self._buffer = data[at:]

    def came(self, number: int, body: bytes) -> None:
        raise NotImplementedError

    def write(self, number: int, body: bytes) -> None:
        if not self._out:
            asyncio.get_running_loop().call_soon(self._flush)
        self._out.append(_HEAD.pack(_HEAD.size + len(body), number) + body)

    def _flush(self) -> None:
        out, self._out = self._out, []
        self._transport.writelines(out)


class _Server(_Frames):
    def came(self, number: int, body: bytes) -> None:
        self.write(number, body)


class _Client(_Frames):
    def __init__(self) -> None:
        super().__init__()
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._number = 0

    def came(self, number: int, body: bytes) -> None:
        self._waiting.pop(number).set_result(body)

    async def call(self, body: bytes) -> bytes:
        self._number += 1
        future = self._waiting[self._number] = asyncio.get_running_loop().create_future()
        self.write(self._number, body)
        return await future


def _call(port: int, outstanding: int, calls: int, pipe: Any) -> None:
    async def one(client: _Client) -> None:
        for _ in range(calls // outstanding):
            await client.call(BODY)

    async def run() -> None:
        _, client = await asyncio.get_running_loop().create_connection(_Client, ADDRESS, port)
        begin = perf_counter()
        await asyncio.gather(*(one(client) for _ in range(outstanding)))
        pipe.send((perf_counter() - begin) / calls)

    asyncio.run(run())


async def bare_calls(outstanding: int, calls: int) -> float:
    """Seconds for each call, with so many under way at a time."""
    server = await asyncio.get_running_loop().create_server(_Server, ADDRESS, 0)
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_call, args=(server.sockets[0].getsockname()[1], outstanding, calls, there))
    process.start()
    try:
        return float(await asyncio.to_thread(here.recv))
    finally:
        await asyncio.to_thread(process.join, 30)
        server.close()
