"""What two processes reach that do nothing but move frames: what a node does beside it is what its share of this says.

The frames have the headers of messages, 1 KiB of body each. A pass of the event loop is one batch in RocksDB on each
side, synced unless the messages are express; no more than a window waits for its acknowledgment, which leaves after
the sync. ``python -m tests.bench.bare receive FOLDER ADDRESS`` is the other process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from rocksdict import Options, Rdict, WriteBatch, WriteOptions

from qmnode.security.tls import acceptor_context, initiator_context
from tests.bench.peer import say_processor_time, tls_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from qmnode.settings.security import TlsSettings

PORT: Final = 1802
WINDOW: Final = 64
BODY: Final = os.urandom(1024)
NAME: Final = "TCP:127.100.100.100\\private$\\plain\0".encode("utf-16-le")
HEADERS: Final = struct.Struct(f"<BBHIII 16s16sIIIIHH{len(NAME)}s BBH20sIIIIIIIIIIIII")
"""BaseHeader, UserHeader with the destination's name, MessagePropertiesHeader: MS-MQMQ 2.2.19.1 to 2.2.19.3."""
SIZE: Final = HEADERS.size + len(BODY)
ACKNOWLEDGMENT: Final = struct.Struct("<BBHIII HH HHIHHHH")
"""BaseHeader, InternalHeader, SessionHeader: MS-MQMQ 2.2.20.4."""
_RECOVERABLE: Final = 1
_BUFFER: Final = bytearray(256 * 1024)
_VIEW: Final = memoryview(_BUFFER)
_SOURCE: Final = os.urandom(16)
_KEY: Final = struct.Struct(">IQ").pack


class Store:
    """RocksDB, a batch for a pass."""

    def __init__(self, path: Path) -> None:
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        self._database = Rdict(str(path), options=options)
        self._synced, self._unsynced = WriteOptions(), WriteOptions()
        self._synced.sync = True
        self.batch = WriteBatch(raw_mode=True)

    def write(self, *, sync: bool) -> None:
        """Write the batch, and begin another."""
        batch, self.batch = self.batch, WriteBatch(raw_mode=True)
        self._database.write(batch, self._synced if sync else self._unsynced)

    def close(self) -> None:
        """Nothing more is written."""
        self._database.close()


class Frames(asyncio.BufferedProtocol):
    """Cuts what comes into frames: ``take`` gets a view, and where in it each begins and ends."""

    def __init__(self, take: Callable[[memoryview, list[tuple[int, int]]], None]) -> None:
        self._take = take
        self._kept = b""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def get_buffer(self, sizehint: int) -> memoryview:
        return _VIEW

    def buffer_updated(self, count: int) -> None:
        data = _VIEW[:count]
        if self._kept:
            data = memoryview(self._kept + data)
        places: list[tuple[int, int]] = []
        start = 0
        while start + 16 <= len(data):
            end = start + int.from_bytes(data[start + 8 : start + 12], "little")
            if end > len(data):
                break
            places.append((start, end))
            start = end
        self._kept = bytes(data[start:])
        if places:
            self._take(data, places)


class Receiver:
    """Stores, then acknowledges."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._place = 0
        self.frames = Frames(self.take)

    def take(self, data: memoryview, places: list[tuple[int, int]]) -> None:
        put, read, received, flags = self._store.batch.put, HEADERS.unpack_from, 0, 0
        for start, end in places:
            headers = read(data, start)
            received, flags = headers[10], headers[11]
            self._place += 1
            put(_KEY(64, self._place), bytes(data[start:end]))
        self._store.write(sync=bool(flags & _RECOVERABLE))
        self.frames.transport.write(
            ACKNOWLEDGMENT.pack(
                0x10, 0, 0, 0x524F494C, ACKNOWLEDGMENT.size, 0, 0, 1, received & 0xFFFF, 0, 0, 0, 0, WINDOW, 0
            )
        )


class Sender:
    """Stores a copy, then sends; what is acknowledged is deleted with what is stored next."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sent = self._acknowledged = self._until = self._flags = 0
        self._done: asyncio.Future[None]
        self.frames = Frames(self.take)

    async def transfer(self, total: int, *, recoverable: bool) -> None:
        """So many messages, from the first that is stored to the last acknowledgment."""
        self._until, self._flags = self._sent + total, _RECOVERABLE if recoverable else 0
        self._done = asyncio.get_running_loop().create_future()
        self._send()
        await self._done

    def take(self, data: memoryview, places: list[tuple[int, int]]) -> None:
        delete = self._store.batch.delete
        for start, _ in places:
            count = ACKNOWLEDGMENT.unpack_from(data, start)[8]
            acknowledged = self._acknowledged + (count - self._acknowledged & 0xFFFF)
            for one in range(self._acknowledged + 1, acknowledged + 1):
                delete(_KEY(64, one))
            self._acknowledged = acknowledged
        if self._acknowledged == self._until:
            self._done.set_result(None)
        else:
            self._send()

    def _send(self) -> None:
        count = min(WINDOW - self._sent + self._acknowledged, self._until - self._sent)
        if not count:
            return
        put, pack, flags, out = self._store.batch.put, HEADERS.pack, self._flags, []
        for number in range(self._sent + 1, self._sent + count + 1):
            headers = pack(
                0x10, 0, 3, 0x524F494C, SIZE, 0xFFFFFFFF,
                _SOURCE, bytes(16), 0xFFFFFFFF, 1_700_000_000, number & 0xFFFFFFFF, flags, 7, len(NAME), NAME,
                0, 0, 0, bytes(20), 0, 0, len(BODY), len(BODY), 0, 0, 0, 0, 0, 0, 0, 0, 0,
            )  # fmt: skip
            packet = headers + BODY
            put(_KEY(64, number), packet)
            out.append(packet)
        self._sent += count
        self._store.write(sync=bool(flags))
        self.frames.transport.writelines(out)


@contextlib.asynccontextmanager
async def connect(folder: Path, address: str, tls: TlsSettings | None = None) -> AsyncIterator[Sender]:
    """A sender to the other process."""
    store = Store(folder / "bare-sender")
    sender = Sender(store)
    context = None if tls is None else initiator_context(tls)
    await asyncio.get_running_loop().create_connection(lambda: sender.frames, address, PORT, ssl=context)
    try:
        yield sender
    finally:
        sender.frames.transport.abort()
        store.close()


async def receive(folder: Path, address: str, kind: str = "") -> None:
    """The other process; over TLS if ``kind`` says anything."""
    store = Store(folder / "bare-receiver")
    context = acceptor_context(tls_in(folder, address)) if kind else None
    server = await asyncio.get_running_loop().create_server(lambda: Receiver(store).frames, address, PORT, ssl=context)
    await say_processor_time()
    server.close()
    store.close()


if __name__ == "__main__":
    asyncio.run(receive(Path(sys.argv[2]), *sys.argv[3:]))
