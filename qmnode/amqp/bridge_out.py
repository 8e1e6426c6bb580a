"""From a queue of the node to a peer, at least once: a message is gone from its queue when the peer has taken it.

A message that may have been sent before says so: its ``delivery-count`` is not 0 (AMQP 1.0, 3.2.1). That is what was
under way when a connection was cut and, after a start of the node, as many of the older messages as can have been.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import structlog

from qmnode.amqp.addresses import opened_name
from qmnode.amqp.client_links import Outcome, PeerError
from qmnode.amqp.codec import CodecError
from qmnode.amqp.mapping import to_amqp
from qmnode.amqp.sections import AmqpMessage, write
from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access
from qmnode.model.open_queue import OpenQueueDescriptor
from qmnode.model.reading import ReadOutcome
from qmnode.structures.error_codes import ErrorCode

if TYPE_CHECKING:
    from qmnode.amqp.bridges import Bridge
    from qmnode.amqp.client import AmqpClient
    from qmnode.model.message import Message

log = structlog.get_logger(__name__)

_AT_ONCE: Final = 64
"""Messages that are read from the queue at a time."""
_PATIENCE: Final = 3.0
"""Seconds that a stop waits for the peer's answers."""
_BYTES: Final = 16 * 1024 * 1024
"""Bytes under way; more are not read from the queue."""


@dataclass(slots=True)
class Uncertain:
    """Messages of which nobody knows whether the peer has taken them."""

    started: float
    """When the bridge began: what arrived later was never sent before that."""
    left: int
    """The number of older messages that can have been under way when the bridge last ended."""
    known: set[int] = field(default_factory=set)
    """Lookup identifiers of those that were under way when a connection was cut."""

    def takes(self, message: Message) -> bool:
        """Whether this message may have been sent before."""
        if message.lookup_identifier in self.known:
            self.known.discard(message.lookup_identifier)
            return True
        if self.left > 0 and message.arrival_time <= self.started:
            self.left -= 1
            return True
        return False


async def open_source(bridge: Bridge) -> OpenQueueDescriptor:
    """The queue of a bridge, for receiving. MessageQueuingError."""
    queue = await bridge.manager.open_queue(opened_name(bridge.settings.queue), Access.RECEIVE)
    if not isinstance(queue, OpenQueueDescriptor):
        await queue.close()
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION,
            f"{bridge.settings.queue} is no queue of this node: put the bridge on the machine that has it",
        )
    return queue


def encoded(bridge: Bridge, message: Message, *, again: bool) -> bytes:
    """The message for the peer. One that cannot be put into AMQP goes as the bytes of its body."""
    try:
        out = to_amqp(message, bridge.settings.address, bridge.place)
        if again:
            out.header["delivery_count"] = max(1, out.header.get("delivery_count", 0))
        return write(out)
    except (CodecError, ValueError):
        return write(AmqpMessage(body=message.body))


def report_rejected(bridge: Bridge, lookup_identifier: int, reason: str) -> None:
    """Note that the peer does not take a message: it is a dead letter."""
    bridge.state.rejected += 1
    log.warning(
        "a peer rejected a message of a bridge: it is a dead letter",
        bridge=bridge.name, lookup_identifier=lookup_identifier, reason=reason,
    )  # fmt: skip


async def carry_out(bridge: Bridge, client: AmqpClient) -> None:
    """Carry messages until the connection is lost. PeerError, MessageQueuingError."""
    queue = await open_source(bridge)
    sending = _Sending(bridge, client, queue)
    try:
        await sending.run()
    finally:
        await sending.close()


class _Sending:
    def __init__(self, bridge: Bridge, client: AmqpClient, queue: OpenQueueDescriptor) -> None:
        self._bridge, self._client, self._queue = bridge, client, queue
        self._under_way: dict[int, int] = {}
        """Bytes of each message that has no outcome, by lookup identifier."""
        self._bytes = 0
        self._room = asyncio.Event()
        self._pause = 0.0
        self._closed = False

    async def run(self) -> None:
        """Send until the connection is lost; a stop waits a little for the answers to what was sent."""
        try:
            await self._send()
        except asyncio.CancelledError:
            with contextlib.suppress(PeerError, TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    while self._under_way:
                        self._room.clear()
                        await self._client.unless_lost(self._room.wait())
            raise

    async def _send(self) -> None:
        settings, client = self._bridge.settings, self._client
        async with asyncio.timeout(settings.connect_timeout):
            sender = await client.sender(settings.address)
        self._bridge.connected()
        while True:
            while len(self._under_way) >= settings.window or self._bytes >= _BYTES:
                self._room.clear()
                await client.unless_lost(self._room.wait())
            if self._pause:
                pause, self._pause = self._pause, 0.0
                await client.unless_lost(asyncio.sleep(pause))
            credit = await sender.credit()
            limit = min(credit, settings.window - len(self._under_way), _AT_ONCE)
            messages: list[Message] = await client.unless_lost(self._queue.receive_begin_many(limit))
            for message in messages:
                again = self._bridge.uncertain.takes(message)
                data = encoded(self._bridge, message, again=again)
                self._under_way[message.lookup_identifier] = len(data)
                self._bridge.state.repeated += again
                self._bytes += len(data)
                answer = sender.send(data)
                answer.add_done_callback(functools.partial(self._answered, message.lookup_identifier))

    def _answered(self, lookup_identifier: int, answer: asyncio.Future[Any]) -> None:
        if self._closed or answer.cancelled():
            return
        outcome: Outcome = answer.result()
        self._bytes -= self._under_way.pop(lookup_identifier)
        self._room.set()
        state = self._bridge.state
        if outcome.accepted:
            self._queue.end_read(lookup_identifier, ReadOutcome.TAKEN)
            self._queue.context.store.durable()
            state.carried += 1
        elif outcome.rejected:
            report_rejected(self._bridge, lookup_identifier, outcome.reason)
            self._queue.end_read(lookup_identifier, ReadOutcome.REJECTED)
        else:  # it has come back whole: nothing of it is left there
            self._pause = self._bridge.settings.retry
            self._queue.end_read(lookup_identifier, ReadOutcome.FAILED if outcome.failed else ReadOutcome.RETURNED)

    async def close(self) -> None:
        """Return messages without an outcome to their places: they may come twice."""
        self._closed = True
        self._bridge.uncertain.known |= self._under_way.keys()
        await self._queue.close()
