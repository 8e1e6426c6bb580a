"""AMQP 1.0 over Qpid Proton's engine with nothing around it: a client, and a server that only syncs what it is sent.

``python -m tests.bench.amqp_engine FOLDER`` is the server. It prints its port. A pass of its event loop is one synced
batch in RocksDB: messages that came, or those that a client has accepted and that go. It serves one queue of numbers.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from proton import Collector, Connection, Delivery, Event, Message, Transport
from rocksdict import Options, Rdict, WriteBatch, WriteOptions

from qmnode.amqp.principals import SASL_HEADER
from tests.amqp import raw

if TYPE_CHECKING:
    from collections.abc import Iterator

WINDOW: Final = 200
"""Messages under way."""
SIZES: Final = range(512, 1537)
"""Of the bodies that are sent, in an order that mixes them: 1 KiB on average."""


def _messages() -> list[bytes]:
    sizes = random.Random(1024).sample(SIZES, len(SIZES))
    return [bytes(Message(body=bytes(size), durable=True).encode()) for size in sizes]


_KEY: Final = struct.Struct(">Q").pack


class Engine:
    """Bytes in, events and bytes out."""

    def __init__(self, mode: int) -> None:
        self._transport = Transport(mode)
        self.connection = Connection()
        self._collector = Collector()
        self.connection.collect(self._collector)
        self._transport.bind(self.connection)

    def receive(self, data: bytes) -> Iterator[Any]:
        """Take bytes, as many as the engine takes at a time, and give the events."""
        while data:
            taken = data[: self._transport.capacity()]
            if not taken:
                return
            self._transport.push(taken)
            data = data[len(taken) :]
            while (event := self._collector.peek()) is not None:
                yield event
                self._collector.pop()

    def take_output(self) -> bytes:
        """The bytes to be sent."""
        found = []
        while (pending := self._transport.pending()) > 0:
            found.append(bytes(self._transport.peek(pending)))
            self._transport.pop(pending)
        return b"".join(found)


class Client:
    """One connection with one link, over a socket that blocks."""

    def __init__(self, port: int, address: str, *, sends: bool, sasl: bool) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if sasl:
            self._socket.sendall(SASL_HEADER + raw.init("ANONYMOUS"))
            raw.read_until(self._socket, b"\x00\x53\x44")
        self._engine = Engine(Transport.CLIENT)
        self._engine.connection.container = "bench"
        self._engine.connection.hostname = "localhost"
        self._engine.connection.open()
        session = self._engine.connection.session()
        session.incoming_capacity = 4 << 20
        session.open()
        self._link: Any = session.sender("out") if sends else session.receiver("in")
        (self._link.target if sends else self._link.source).address = address
        self._link.open()
        self._number = 0
        self._messages = _messages() if sends else []
        self._under_way = 0

    def _events(self) -> Iterator[Any]:
        if output := self._engine.take_output():
            self._socket.sendall(output)
        data = self._socket.recv(1 << 18)
        assert data, "the connection was closed"
        for event in self._engine.receive(data):
            assert event.type is not Event.LINK_REMOTE_CLOSE, event.link.remote_condition
            yield event

    def send(self, count: int) -> float:
        """Send messages, no more than the window at a time; seconds until all are accepted."""
        began, sent, accepted = perf_counter(), 0, 0
        while accepted < count:
            while self._link.credit > 0 and sent < count and self._under_way < WINDOW:
                self._number += 1
                self._link.delivery(str(self._number))
                self._link.send(self._messages[self._number % len(self._messages)])
                self._link.advance()
                sent += 1
                self._under_way += 1
            for event in self._events():
                if event.type is Event.DELIVERY and event.delivery.updated:
                    assert event.delivery.remote_state == Delivery.ACCEPTED
                    event.delivery.settle()
                    accepted += 1
                    self._under_way -= 1
        return perf_counter() - began

    def receive(self, count: int) -> float:
        """Receive and accept messages; seconds."""
        began, received, asked = perf_counter(), 0, min(WINDOW, count)
        self._link.flow(asked)
        while received < count:
            for event in self._events():
                if event.type is not Event.DELIVERY:
                    continue
                delivery = event.delivery
                if delivery.readable and not delivery.partial:
                    self._link.recv(delivery.pending)
                    self._link.advance()
                    delivery.update(Delivery.ACCEPTED)
                    delivery.settle()
                    received += 1
            if asked < count and asked - received <= WINDOW // 2:
                more = min(WINDOW // 2, count - asked)
                self._link.flow(more)
                asked += more
        self._socket.sendall(self._engine.take_output())
        return perf_counter() - began

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class Server(asyncio.Protocol):
    """Stores what is sent, and gives out what is stored; a sync a pass."""

    transport: asyncio.Transport

    def __init__(self, store: Rdict) -> None:
        self._engine = Engine(Transport.SERVER)
        self._store = store
        self._synced = WriteOptions()
        self._synced.sync = True
        self._batch = WriteBatch(raw_mode=True)
        self._come: list[Any] = []
        self._last = 0
        self._given: dict[str, bytes] = {}
        self._keys: Iterator[tuple[bytes, bytes]] = iter(())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """One batch."""
        for event in self._engine.receive(data):
            if event.type is Event.CONNECTION_REMOTE_OPEN:
                event.connection.open()
            elif event.type is Event.SESSION_REMOTE_OPEN:
                event.session.incoming_capacity = 4 << 20
                event.session.open()
            elif event.type is Event.LINK_REMOTE_OPEN:
                self._opened(event.link)
            elif event.type is Event.LINK_FLOW and event.link.is_sender:
                self._give(event.link)
            elif event.type is Event.DELIVERY:
                self._delivery(event.delivery)
        if len(self._batch):
            self._store.write(self._batch, self._synced)
            self._batch = WriteBatch(raw_mode=True)
            for delivery in self._come:
                delivery.update(Delivery.ACCEPTED)
                delivery.settle()
                delivery.link.flow(1)
            self._come.clear()
        self.transport.write(self._engine.take_output())

    def _opened(self, link: Any) -> None:
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        link.open()
        if link.is_receiver:
            link.flow(1000)
        else:
            self._keys = iter(self._store.items())

    def _give(self, link: Any) -> None:
        while link.credit > 0 and (entry := next(self._keys, None)) is not None:
            tag = str(len(self._given) + 1)
            self._given[tag] = entry[0]
            link.delivery(tag)
            link.send(entry[1])
            link.advance()

    def _delivery(self, delivery: Any) -> None:
        if delivery.readable and not delivery.partial:
            self._last += 1
            self._batch.put(_KEY(self._last), bytes(delivery.link.recv(delivery.pending)))
            delivery.link.advance()
            self._come.append(delivery)
        elif delivery.updated:
            self._batch.delete(self._given[delivery.tag])
            delivery.settle()


async def serve(folder: Path) -> None:
    """Listen until the process is killed."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    store = Rdict(str(folder), options=options)
    server = await asyncio.get_running_loop().create_server(lambda: Server(store), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
