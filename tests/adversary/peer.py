"""A peer that speaks the protocol without our code: as anybody, from an address of its own, and says what it likes."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from tests.adversary import wire
from tests.adversary.wire import Packet

PATIENCE = 60.0
PORT = 1801


class Peer:
    """One side of a connection. What came is in ``packets`` until ``next`` takes it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._rest = b""
        self.packets: deque[Packet] = deque()
        self.received = self.recoverable = 0
        """How many messages came, and how many of them were recoverable."""
        self.sent = 0

    @classmethod
    async def connect(cls, own: str, target: str, tls: ssl.SSLContext | None = None) -> Peer:
        """A connection from the address ``own``."""
        return cls(*await asyncio.open_connection(target, PORT, local_addr=(own, 0), ssl=tls))

    async def establish(self, client: bytes, server: bytes = wire.NOBODY, *, window: int = 1) -> Packet:
        """A session in the name of the queue manager ``client`` (3.1.1.7.1); the acceptor's answer.

        A window of one message has the other side acknowledge each message at once.
        """
        self.send(wire.establish_connection(client, server))
        answer = await self.next(wire.ESTABLISH_CONNECTION)
        if not answer.is_refusal:
            self.send(wire.connection_parameters(window=window))
            await self.next(wire.CONNECTION_PARAMETERS)
        return answer

    async def accept(self, server: bytes) -> Packet:
        """Be the acceptor, as the queue manager ``server``; the initiator's request."""
        request = await self.next(wire.ESTABLISH_CONNECTION)
        stamp = int.from_bytes(request.data[52:56], "little")
        self.send(wire.establish_connection(request.data[20:36], server, stamp=stamp))
        await self.next(wire.CONNECTION_PARAMETERS)
        self.send(wire.connection_parameters())
        return request

    def send(self, *packets: bytes) -> None:
        """Bytes, whatever they are."""
        self._writer.write(b"".join(packets))

    async def say(self, *messages: bytes) -> None:
        """Messages that the session counts, some at a time; returns when the other side acknowledged all of them, so
        that whatever they do has been done."""
        messages_left = deque(messages)
        while messages_left:
            some = [messages_left.popleft() for _ in range(min(16, len(messages_left)))]
            self.send(*some)
            self.sent += len(some)
            await self.settled()

    async def settled(self) -> None:
        """Until the other side has acknowledged all that was sent."""
        while True:
            ack = await self.next(wire.SESSION_ACK)
            if (ack.session[0] - self.sent) & 0xFFFF == 0:
                return

    async def next(self, kind: int | None = None) -> Packet:
        """The next packet, of a kind if one is given (0 is a UserMessage): others before it are dropped."""
        async with asyncio.timeout(PATIENCE):
            while True:
                while self.packets:
                    packet = self.packets.popleft()
                    if kind is None or packet.kind == kind:
                        return packet
                await self._read()

    async def next_that(self, fits: Callable[[Packet], bool]) -> Packet:
        """The next packet that fits."""
        while True:
            packet = await self.next()
            if fits(packet):
                return packet

    def acknowledge(self, *, bits: int | None = None) -> None:
        """A SessionAck for all that came."""
        first = max(1, self.recoverable - 31) if self.recoverable else 0
        count = self.recoverable - first + 1 if first else 0
        self.send(wire.session_ack(self.received, first, (1 << count) - 1 if bits is None else bits, sent=self.sent))

    async def _read(self) -> None:
        data = await self._reader.read(65536)
        if not data:
            raise ConnectionResetError("the other side closed the connection")
        self._rest += data
        while (found := wire.next_packet(self._rest)) is not None:
            packet, self._rest = found
            if packet.kind == 0:
                self.received += 1
                self.recoverable += packet.user_flags >> 5 & 1
            self.packets.append(packet)

    async def is_closed(self) -> bool:
        """Whether the other side closes the connection."""
        with suppress(ConnectionError):
            async with asyncio.timeout(PATIENCE):
                while True:
                    await self._read()
        return True

    async def flush(self) -> None:
        """Until the other side's machine has taken it, or it is gone."""
        with suppress(ConnectionError):
            await self._writer.drain()

    @property
    def port(self) -> int:
        """Of this side."""
        return int(self._writer.get_extra_info("sockname")[1])

    def close(self) -> None:
        """End it."""
        self._writer.close()

    def abort(self) -> None:
        """End it, and drop what the other side has not read."""
        self._writer.transport.abort()


@asynccontextmanager
async def session(own: str, target: str, client: bytes, *, window: int = 1) -> AsyncIterator[Peer]:
    """A session that ``client`` opened from the address ``own``."""
    peer = await Peer.connect(own, target)
    try:
        await peer.establish(client, window=window)
        yield peer
    finally:
        peer.close()


@asynccontextmanager
async def acceptor(own: str, server: bytes) -> AsyncIterator[asyncio.Queue[Peer]]:
    """A queue manager that others connect to at ``own``: its sessions, as they are opened."""
    sessions: asyncio.Queue[Peer] = asyncio.Queue()
    opened: list[Peer] = []

    async def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        opened.append(peer)
        with suppress(ConnectionError):
            await peer.accept(server)
            sessions.put_nowait(peer)

    listening = await asyncio.start_server(begin, own, PORT)
    try:
        yield sessions
    finally:
        for peer in opened:
            peer.close()
        listening.close()
