"""The peers' clients in Python: ``client.py rabbitmq|nats sender|receiver URL QUEUE``.

It prints ``ready``; for every line ``HOW COUNT`` of standard input it sends or receives so many messages and prints its
seconds of processor so far. An empty line asks for the seconds alone. ``client.py nats streams URL QUEUE SOURCE`` makes
the streams of a queue that takes its messages from the same queue of a domain, ``SOURCE``, and ends.
"""

from __future__ import annotations

import asyncio
import random
import sys
from time import process_time
from typing import TYPE_CHECKING, Any, Protocol

import nats
import pika
from nats.js.api import ConsumerConfig, ExternalStream, RetentionPolicy, StorageType, StreamConfig, StreamSource
from pika.adapters.asyncio_connection import AsyncioConnection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

BATCH = 100
OUTSTANDING = {"batches": BATCH, "singly": 64, "pipelined": 10 * BATCH}
"""Messages at most, by how they are sent. A batch is waited for as a whole."""
SIZE = 1024
BODY = random.Random(18).randbytes(2 * SIZE)


def varied(number: int) -> bytes:
    """The body of a message: 512 to 1,535 bytes."""
    return BODY[: SIZE // 2 + number * 7919 % SIZE]


class Peer(Protocol):
    """A connection to a peer."""

    async def send(self, how: str, count: int) -> None:
        """Send durable messages until the peer has all."""

    async def receive(self, how: str, count: int) -> None:
        """Take messages and acknowledge them."""


class RabbitMQ:
    """A channel of RabbitMQ."""

    def __init__(self, channel: Any, queue: str) -> None:
        self._channel, self._queue = channel, queue
        self._sent = 0
        self._unconfirmed: set[int] = set()
        self._left = 0
        self._how = ""
        self._changed = asyncio.Event()

    @classmethod
    async def connect(cls, url: str, queue: str, role: str) -> RabbitMQ:
        """Open a channel that confirms or consumes."""
        opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        AsyncioConnection(
            pika.URLParameters(url),
            on_open_callback=lambda connection: connection.channel(on_open_callback=opened.set_result),
            on_open_error_callback=lambda _, error: opened.set_exception(error),
        )
        self = cls(await opened, queue)
        if role == "sender":
            self._channel.confirm_delivery(self._confirmed)
        else:
            self._channel.basic_qos(prefetch_count=10 * BATCH)
            self._channel.basic_consume(queue, self._came)
        return self

    def _confirmed(self, frame: Any) -> None:
        tag = frame.method.delivery_tag
        if frame.method.NAME != "Basic.Ack":
            raise RuntimeError("a message was refused")
        if frame.method.multiple:
            self._unconfirmed = {one for one in self._unconfirmed if one > tag}
        else:
            self._unconfirmed.discard(tag)
        self._changed.set()

    async def _at_most(self, outstanding: int) -> None:
        while len(self._unconfirmed) > outstanding:
            self._changed.clear()
            await self._changed.wait()

    async def send(self, how: str, count: int) -> None:
        durable = pika.BasicProperties(delivery_mode=2)
        for number in range(1, count + 1):
            self._sent += 1
            self._unconfirmed.add(self._sent)
            self._channel.basic_publish("", self._queue, varied(number), durable)
            if how != "batches":
                await self._at_most(OUTSTANDING[how] - 1)
            elif number % BATCH == 0:
                await self._at_most(0)
        await self._at_most(0)

    def _came(self, channel: Any, method: Any, _: Any, body: bytes) -> None:
        if not body:
            raise RuntimeError("a message came without its content")
        self._left -= 1
        if self._how == "singly":
            channel.basic_ack(method.delivery_tag)
        elif self._left % BATCH == 0:
            channel.basic_ack(method.delivery_tag, multiple=True)
        if not self._left:
            self._changed.set()

    async def receive(self, how: str, count: int) -> None:
        self._how = how
        self._left += count
        while self._left > 0:
            self._changed.clear()
            await self._changed.wait()


class JetStream:
    """A stream of NATS."""

    def __init__(self, stream: Any, queue: str, messages: Any) -> None:
        self._stream, self._queue, self._messages = stream, queue, messages

    @classmethod
    async def connect(cls, url: str, queue: str, role: str) -> JetStream:
        """Connect to a stream that exists."""
        stream = (await nats.connect(url)).jetstream()
        messages = None if role == "sender" else await stream.pull_subscribe_bind(queue, queue)
        return cls(stream, queue, messages)

    async def send(self, how: str, count: int) -> None:
        waiting: list[Any] = []
        for number in range(count):
            waiting.append(await self._stream.publish_async(self._queue, varied(number)))
            if len(waiting) == OUTSTANDING[how]:
                take = BATCH if how == "batches" else 1
                await asyncio.gather(*waiting[:take])
                del waiting[:take]
        await asyncio.gather(*waiting)

    async def receive(self, _: str, count: int) -> None:
        while count:
            taken = await self._messages.fetch(min(BATCH, count), 30)
            for message in taken:
                if not message.data:
                    raise RuntimeError("a message came without its content")
                await message.ack()
            count -= len(taken)


async def streams(url: str, queue: str, source: str) -> None:
    """Make the stream of a queue and its consumer; with a domain as the source, it takes the messages from there."""
    connection = await nats.connect(url)
    stream = connection.jetstream()
    config = StreamConfig(name=queue, storage=StorageType.FILE, retention=RetentionPolicy.LIMITS)
    if source:
        external = ExternalStream(api=f"$JS.{source}.API")
        config.sources = [StreamSource(name=queue, external=external)]
    else:
        config.subjects = [queue]
    await stream.add_stream(config)
    if source:
        await stream.add_consumer(queue, ConsumerConfig(durable_name=queue, max_ack_pending=20 * BATCH))
    await connection.close()


async def answer(do: Callable[[str, int], Awaitable[None]]) -> None:
    """Do what each line asks; then print the seconds of processor so far."""
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    print("ready", flush=True)
    while line := await lines.readline():
        if words := line.decode().split():
            await do(words[0], int(words[1]))
        print(process_time(), flush=True)


async def main(peer: str, role: str, url: str, queue: str, source: str = "") -> None:
    if role == "streams":
        await streams(url, queue, source)
        return
    connected: Peer = await (RabbitMQ if peer == "rabbitmq" else JetStream).connect(url, queue, role)
    await answer(connected.send if role == "sender" else connected.receive)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
