"""From a peer to a queue, at least once: a message is accepted when it is in its queue, on disk.

A message that may have come before has the header ``qmnode-redelivered``: the peer says so, or it is one of the first
after a cut or a start, as many as can have been under way.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog
from proton import Condition, Delivery

from qmnode.amqp.addresses import opened_name
from qmnode.amqp.client_links import Arrival, ClientReceiver, to_its_end
from qmnode.amqp.codec import CodecError
from qmnode.amqp.conditions import DECODE, RefusedError, of_message
from qmnode.amqp.links import Sent, send_all
from qmnode.amqp.sections import parse
from qmnode.errors import MessageQueuingError, MessageTooLargeError
from qmnode.model.api import Access, QueueApi
from qmnode.model.open_queue import OpenQueueDescriptor
from qmnode.structures.error_codes import ErrorCode

if TYPE_CHECKING:
    from qmnode.amqp.bridges import Bridge
    from qmnode.amqp.client import AmqpClient

log = structlog.get_logger(__name__)

REDELIVERED: Final = "qmnode-redelivered"
_AT_ONCE: Final = 64
_OF_THE_MESSAGE: Final = frozenset(
    {
        ErrorCode.MQ_ERROR_PROPERTY,
        ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_SIZE,
        ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE,
        ErrorCode.MQ_ERROR_LABEL_TOO_LONG,
        ErrorCode.MQ_ERROR_INVALID_PARAMETER,
        ErrorCode.MQ_ERROR_ILLEGAL_FORMATNAME,
    }
)
"""Errors that the next attempt would meet as well. With any other, the message stays with the peer."""


def is_of_the_message(error: MessageQueuingError) -> bool:
    """Whether no attempt will ever store the message that met this error."""
    return error.code in _OF_THE_MESSAGE or isinstance(error, MessageTooLargeError)


def decoded(bridge: Bridge, arrival: Arrival, queue: QueueApi | None = None) -> tuple[Sent, bool]:
    """The message, as a queue takes it, and whether it may have come before. RefusedError if there is none for it.

    The peer gives again what was stored when its answer was lost; not every peer says so.
    """
    doubtful = bridge.doubtful > 0
    bridge.doubtful -= doubtful
    try:
        found = parse(arrival.data)
        # RabbitMQ counts nothing, and denies that this is the first receiver of the message.
        again = doubtful or bool(found.header.get("delivery_count")) or found.header.get("first_acquirer") is False
        if again:
            found.application_properties[REDELIVERED] = True
        return Sent.read(found, queue, bridge.place), again
    except CodecError as error:
        raise RefusedError(DECODE, str(error)) from None
    except MessageQueuingError as error:
        raise of_message(error) from None


def reject(bridge: Bridge, receiver: ClientReceiver, arrival: Arrival, error: RefusedError) -> None:
    """Let the peer do with a message what it does with those that nobody can use."""
    bridge.state.rejected += 1
    log.warning("a bridge rejects a message of its peer", bridge=bridge.name, reason=str(error))
    receiver.end(arrival, Delivery.REJECTED, Condition(error.condition, error.description))


async def carry_in(bridge: Bridge, client: AmqpClient) -> None:
    """Carry messages until the connection is lost. PeerError, MessageQueuingError."""
    settings = bridge.settings
    bridge.doubtful = settings.window
    queue = await bridge.manager.open_queue(opened_name(settings.queue), Access.SEND)
    try:
        async with asyncio.timeout(settings.connect_timeout):
            receiver = await client.receiver(settings.address, settings.message_size)
        bridge.connected()
        while True:
            receiver.give(settings.window, 0)
            await to_its_end(_store(bridge, receiver, queue, await receiver.messages(_AT_ONCE)))
    finally:
        await queue.close()


async def _store(bridge: Bridge, receiver: ClientReceiver, queue: QueueApi, arrivals: list[Arrival]) -> None:
    taken: list[tuple[Arrival, Sent, bool]] = []
    for arrival in arrivals:
        try:
            taken.append((arrival, *decoded(bridge, arrival, queue)))
        except RefusedError as error:
            reject(bridge, receiver, arrival, error)
    transactional = isinstance(queue, OpenQueueDescriptor) and queue.queue.transactional
    outcomes = await send_all(queue, [message for _, message, _ in taken], "single" if transactional else None)
    failed: MessageQueuingError | None = None
    for (arrival, _, again), refused in zip(taken, outcomes, strict=True):
        if refused is None:
            receiver.accept(arrival)
            bridge.state.carried += 1
            bridge.state.repeated += again
        elif is_of_the_message(refused):
            reject(bridge, receiver, arrival, of_message(refused))
        else:
            receiver.end(arrival, Delivery.RELEASED)
            failed = refused
    if failed is not None:
        raise failed
