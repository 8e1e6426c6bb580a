"""The anonymous relay: a link without an address, on which each message names its queue in ``to``.

The OASIS specification "Using the Anonymous Terminus for Message Routing, version 1.0" has it.
"""

import asyncio
from collections import OrderedDict, deque
from itertools import groupby
from typing import Final

from proton import Delivery, Receiver

from qmnode.amqp.addresses import opened_name
from qmnode.amqp.codec import CodecError
from qmnode.amqp.conditions import DECODE, PRECONDITION_FAILED, RefusedError, of_endpoint, of_message
from qmnode.amqp.incoming import IncomingLink
from qmnode.amqp.links import Host, Sent
from qmnode.amqp.sections import AmqpMessage
from qmnode.amqp.transactions import TRANSACTIONAL
from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access, InTransaction, QueueApi
from qmnode.model.open_queue import OpenQueueDescriptor

ANONYMOUS_RELAY: Final = "ANONYMOUS-RELAY"
"""The capability that connections offer, for which clients look."""
_OPEN: Final = 64
"""Queues that one link keeps open: those that it sent to last."""
_Came = tuple[Delivery, AmqpMessage, int, str]


class RelayLink(IncomingLink):
    """Messages from a program into the queues that they name, in their order."""

    def __init__(self, host: Host, link: Receiver, number: int, *, transactional: bool) -> None:
        """``transactional``: messages for other machines go in transactions of their own."""
        self._remote: InTransaction = "single" if transactional else None
        self._open: OrderedDict[str, QueueApi] = OrderedDict()
        self._waiting: deque[_Came] = deque()
        self._worker: asyncio.Task[None] | None = None
        super().__init__(host, link, number, None, transactional=transactional)

    def _take(self, delivery: Delivery, found: AmqpMessage, size: int) -> None:
        address = found.properties.get("to")
        if not address:
            raise RefusedError(
                PRECONDITION_FAILED, "the link has no address, and the message no `to`: give the name of a queue in one"
            )
        self._under_way += 1
        self._storing += 1
        self._waiting.append((delivery, found, size, address))
        if self._worker is None:
            self._worker = self._host.spawn(self._relay())

    async def _relay(self) -> None:
        try:
            while self._waiting:
                came = list(self._waiting)
                self._waiting.clear()
                for address, messages in groupby(came, lambda one: one[3]):
                    await self._relay_to(address, list(messages))
        finally:
            self._worker = None

    async def _relay_to(self, address: str, came: list[_Came]) -> None:
        """Store messages in a row that name the same queue."""
        try:
            queue = await self._queue_of(address)
        except (MessageQueuingError, RefusedError) as error:
            refused = error if isinstance(error, RefusedError) else of_endpoint(error)
            for delivery, _, _, _ in came:
                self._give_up(delivery, refused)
            return
        batch: list[tuple[Delivery, Sent]] = []
        for delivery, found, size, _ in came:
            try:
                message = Sent.read(found, queue, self._host.place)
            except (CodecError, MessageQueuingError) as error:
                self._give_up(
                    delivery,
                    RefusedError(DECODE, str(error)) if isinstance(error, CodecError) else of_message(error),
                )
                continue
            if delivery.remote_state == TRANSACTIONAL:
                await self._send_in_transaction(delivery, message, size, queue)
            else:
                batch.append((delivery, message))
        if batch:
            is_transactional = isinstance(queue, OpenQueueDescriptor) and queue.queue.transactional
            await self._store(batch, queue, "single" if is_transactional else self._remote)

    def _give_up(self, delivery: Delivery, refused: RefusedError) -> None:
        self._has_stored(1)
        self._under_way -= 1
        self._refuse(delivery, refused)
        self._replenish()

    async def _queue_of(self, address: str) -> QueueApi:
        """The open queue of an address. MessageQueuingError if the client may not send to it."""
        queue = self._open.get(address)
        if queue is None:
            caller = await self._host.principal.caller()
            queue = await self._host.manager.open_queue(opened_name(address), Access.SEND, caller=caller)
            self._open[address] = queue
            if len(self._open) > _OPEN:
                _, oldest = self._open.popitem(last=False)
                await oldest.close()
        self._open.move_to_end(address)
        return queue

    async def _close_queues(self) -> None:
        while self._open:
            await self._open.popitem()[1].close()

    def _room(self) -> int | None:
        """Its queues are not known before the messages come: each refuses what it has no room for."""
        return None if self._store_works() else 0
