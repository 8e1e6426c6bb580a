"""A link on which a program sends: each message is in its queue, on disk, before it is accepted."""

import asyncio
from collections import OrderedDict, deque
from itertools import groupby
from typing import Final

from proton import Delivery, Described, Receiver, ulong

from qmnode.amqp.addresses import opened_name
from qmnode.amqp.codec import CodecError
from qmnode.amqp.error_conditions import (
    DECODE,
    PRECONDITION_FAILED,
    SIZE,
    TRANSFER_LIMIT,
    RefusedError,
    of_endpoint,
    of_message,
)
from qmnode.amqp.links import Host, Sent, credit_to_give, refuse, reject, send_all
from qmnode.amqp.proton_engine import accept, discard, drop_aborted, receive
from qmnode.amqp.sections import AmqpMessage, parse
from qmnode.amqp.transactions import ACCEPTED, TRANSACTIONAL, transaction_of
from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access, InTransaction, QueueApi
from qmnode.model.delayed_delivery import is_delayed
from qmnode.model.message import INFINITE
from qmnode.model.open_queue import OpenQueueDescriptor

_LOOK_AGAIN: Final = 0.5
"""Seconds between two looks whether a full queue, or a full disk, has room again."""
_TYPICAL: Final = 2048
"""Bytes of a message of which nothing is known yet."""
_HEADERS: Final = 256
"""Bytes of a message's headers in the store, which count for the quota as well."""
_KB: Final = 1024


class Body:
    """The bytes of one delivery after the other, as they come."""

    def __init__(self, host: Host, link: Receiver, limit: int) -> None:
        self._host = host
        self._link = link
        self._limit = limit
        self._partial = bytearray()

    def read(self, delivery: Delivery) -> bytes | None:
        """The whole message, once it is there; None if its sender aborts it. RefusedError if it is too large."""
        if drop_aborted(self._link, delivery):
            self.drop()
            return None
        pending = delivery.pending
        if not self._partial and pending <= self._limit and not delivery.partial:
            return receive(self._link, pending)  # as most come: in one piece
        if pending:
            self._host.take_partial(pending)
            self._partial += self._link.recv(pending) or b""
        if len(self._partial) > self._limit:
            size = len(self._partial)
            self.drop()
            raise RefusedError(SIZE, f"a message of more than {size} bytes: at most {self._limit} are taken")
        if delivery.partial:
            return None
        data = bytes(self._partial)
        self.drop()
        self._link.advance()
        return data

    def drop(self) -> None:
        """Forget what there is of a message."""
        self._host.take_partial(-len(self._partial))
        self._partial.clear()


class IncomingLink:
    """Messages from a program into a queue."""

    def __init__(
        self, host: Host, link: Receiver, number: int, queue: QueueApi | None, *, transactional: bool,
        arrival: int | None = None,
    ) -> None:  # fmt: skip
        """``queue``: None for a subclass that has several. ``transactional``: each message that is in no transaction is
        one of its own. ``arrival``: a message is accepted when it has arrived at the other machine, and rejected if it
        has not after so many seconds.
        """
        self.number = number
        self._host = host
        self._link = link
        self._queue = queue
        self._single: InTransaction = "single" if transactional else None
        self._arrival = arrival
        self._body = Body(host, link, host.settings.message_size)
        self._came: list[tuple[Delivery, Sent]] = []
        self._under_way = 0
        """Messages without an outcome."""
        self._storing = 0
        """Messages that their queue does not have yet."""
        self._stored: asyncio.Future[None] | None = None
        """Set when it has all, for the end of the link."""
        self._average = _TYPICAL
        self._looking = False
        self._broken = False
        self._closed = False
        self._replenish()

    # Events of the peer

    def flow(self) -> None:
        """A sender's flow says what it has; it gets its credit anyway."""

    def delivery(self, delivery: Delivery) -> None:
        """Bytes of a message have come, or its sender has settled it."""
        if self._closed or not delivery.readable:
            if delivery.settled and not delivery.readable:
                delivery.settle()
            return
        if self._broken:
            discard(self._link, delivery)
            return
        try:
            data = self._body.read(delivery)
        except RefusedError as error:
            self._break(error)
            return
        if data is None:
            return
        self._average = (7 * self._average + len(data) + _HEADERS) // 8
        try:
            self._take(delivery, parse(data), len(data))
        except CodecError as error:
            self._refuse(delivery, RefusedError(DECODE, str(error)))
        except RefusedError as error:
            self._refuse(delivery, error)
        except MessageQueuingError as error:
            self._refuse(delivery, of_message(error))

    def _take(self, delivery: Delivery, found: AmqpMessage, size: int) -> None:
        """Begin to store a message. CodecError, RefusedError or MessageQueuingError if it is none for the queue."""
        assert self._queue is not None
        message = Sent.read(found, self._queue, self._host.place)
        self._under_way += 1
        self._storing += 1
        if delivery.remote_state == TRANSACTIONAL:
            self._host.spawn(self._send_in_transaction(delivery, message, size, self._queue))
        elif self._arrival is not None and not is_delayed(message.message):  # that one waits here
            self._host.spawn(self._send_to_the_end(delivery, message, self._arrival))
        else:
            self._came.append((delivery, message))

    def pass_ended(self) -> None:
        """Store what came in this pass with one sync."""
        if not self._came:
            self._replenish()
            return
        self._store_what_came()
        if self._link.credit < 0:
            self._break(RefusedError(TRANSFER_LIMIT, "more messages than there was credit for: wait for credit"))

    def _store_what_came(self) -> None:
        if self._came:
            came, self._came = self._came, []
            assert self._queue is not None
            self._host.spawn(self._store(came, self._queue, self._single))

    def _break(self, error: RefusedError) -> None:
        """End the link for a reason, and take no more messages from it."""
        self._broken = True
        refuse(self._link, error)

    async def close(self) -> None:
        """The link has ended: what came on it is stored, though nobody may wait for the outcome."""
        self._store_what_came()
        self._closed = True
        self._body.drop()
        if self._storing:
            self._stored = asyncio.get_running_loop().create_future()
            await self._stored
        await self._close_queues()

    async def _close_queues(self) -> None:
        if self._queue is not None:
            await self._queue.close()

    def _has_stored(self, count: int) -> None:
        self._storing -= count
        if not self._storing and self._stored is not None:
            self._stored.set_result(None)

    # Answers of the node

    async def _store(self, came: list[tuple[Delivery, Sent]], queue: QueueApi, transaction: InTransaction) -> None:
        try:
            outcomes = await send_all(queue, [message for _, message in came], transaction)
        finally:
            self._has_stored(len(came))
        self._under_way -= len(came)
        for (delivery, _), error in zip(came, outcomes, strict=True):
            self._end(delivery, None if error is None else of_message(error))
        self._replenish()

    async def _send_to_the_end(self, delivery: Delivery, message: Sent, seconds: int) -> None:
        refused = None
        arrivals = self._host.arrivals
        assert self._queue is not None
        try:
            try:
                identifier, arrived = await arrivals.send(self._queue, message.message, self._single, seconds)
            finally:
                self._has_stored(1)
            await arrivals.wait(identifier, arrived, seconds)
        except RefusedError as error:
            refused = error
        except MessageQueuingError as error:
            refused = of_message(error)
        self._under_way -= 1
        self._end(delivery, refused)
        self._replenish()

    async def _send_in_transaction(self, delivery: Delivery, message: Sent, size: int, queue: QueueApi) -> None:
        identifier = transaction_of(delivery.remote.data)
        refused = None
        try:
            await message.into(queue, self._host.transactions.hold(identifier, size))
        except RefusedError as error:
            refused = error
        except MessageQueuingError as error:
            refused = of_message(error)
        finally:
            self._has_stored(1)
        self._under_way -= 1
        if refused is not None:
            self._host.transactions.doom(identifier, refused.description)
        self._end(delivery, refused, identifier)
        self._replenish()

    def _refuse(self, delivery: Delivery, error: RefusedError) -> None:
        """Reject a message before the node has seen it."""
        if delivery.remote_state == TRANSACTIONAL:
            self._host.transactions.doom(transaction_of(delivery.remote.data), error.description)
        self._end(delivery, error)

    def _end(self, delivery: Delivery, refused: RefusedError | None, transaction: bytes | None = None) -> None:
        counts = self._host.counts
        if refused is None:
            counts.accepted += 1
        else:
            counts.rejected += 1
        if self._closed or self._host.closed:
            return
        if not delivery.settled:
            if refused is not None:
                reject(delivery, refused)
            elif transaction is not None:
                delivery.local.data = [transaction, Described(ulong(ACCEPTED), [])]
                delivery.update(TRANSACTIONAL)
            else:
                accept(delivery)
                return
        delivery.settle()

    # Credit

    def _replenish(self) -> None:
        """Give credit, as much as the queue has room for."""
        if self._closed or self._broken or self._host.closed:
            return
        room = self._room()
        more = credit_to_give(self._host.settings.credit, self._link.credit, self._under_way, room)
        if more:
            self._link.flow(more)
            self._host.flush()
        elif room is not None and self._link.credit == 0 and not self._looking:
            self._looking = True
            self._host.later(_LOOK_AGAIN, self._look_again)

    def _look_again(self) -> None:
        self._looking = False
        self._replenish()

    def _store_works(self) -> bool:
        """Whether the disk is neither full nor failing."""
        try:
            self._host.manager.context.store.check()
        except MessageQueuingError:
            return False
        return True

    def _room(self) -> int | None:
        """Messages that the queue has room for; None if nothing limits it."""
        queue = self._queue
        if not self._store_works():
            return 0
        if not isinstance(queue, OpenQueueDescriptor):
            return None
        quotas, model = queue.context.quotas, queue.queue
        left = quotas.limit - quotas.used
        if model.quota != INFINITE:
            left = min(left, model.quota * _KB - model.total_bytes - model.reserved_bytes)
        if left >= self._average * self._host.settings.credit:
            return None
        if not model.message_count and left > 0:
            return max(1, int(left // self._average))  # one that does not even fit an empty queue is rejected
        return max(0, int(left // self._average))


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
