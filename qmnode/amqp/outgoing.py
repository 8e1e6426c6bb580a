"""A link on which a program receives: a message is locked until its outcome comes, and returned if none does.

A link with a selector gets the messages that it selects, in the queue's order.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Final

import structlog
from proton import Delivery, Described, Link, Sender, ulong

from qmnode.administration.browsing import browse
from qmnode.amqp.codec import CodecError, UInt
from qmnode.amqp.error_conditions import NOT_IMPLEMENTED, RefusedError, of_endpoint
from qmnode.amqp.links import Host, refuse
from qmnode.amqp.mapping import BODY_TYPE, application_properties, to_amqp
from qmnode.amqp.proton_engine import annotations_of, send
from qmnode.amqp.sections import AmqpMessage, write
from qmnode.amqp.selectors import Selector
from qmnode.amqp.transactions import ACCEPTED, TRANSACTIONAL, transaction_of
from qmnode.errors import MessageQueuingError
from qmnode.model.message import Message
from qmnode.model.open_queue import OpenQueueDescriptor
from qmnode.model.reading import ReadOutcome, WaitingMessageReadOperation
from qmnode.structures.error_codes import ErrorCode

_SHARE: Final = 20
"""Looks at the whole queue take one part in so many of the loop's time."""
_SHORTEST: Final = 1.0
_LONGEST_UNCHANGED: Final = 60.0
"""Seconds between looks at the whole queue, if it has changed since, and if its numbers are the same."""


class Selection:
    """A place in a queue, before which it has nothing that the selector selects.

    Messages that return, and those of a higher priority, appear before that place. The link learns of most when they
    come, and finds the rest when it looks at the whole queue again.
    """

    def __init__(self, queue: OpenQueueDescriptor, selects: Callable[[Message], bool]) -> None:
        self._queue = queue
        self._selects = selects
        self._place: int | None = None
        self._numbers: tuple[int, ...] = ()
        """Counts of the queue, from when the last look at all of it began."""
        self._began = self._cost = 0.0
        """The moment of that, and the time of the loop that it took."""

    async def look(self) -> AsyncGenerator[Message, None]:
        """Those that are available now, from the place on."""
        paused = self._queue.queue.paused
        if paused:
            self._place = None
        if self._place is None:
            self._numbers, self._began, self._cost = self._of_now(), time.monotonic(), 0.0
        if paused:
            return
        async with aclosing(browse(self._queue, self._place)) as messages:
            started = time.thread_time()
            async for message in messages:
                self._place = message.lookup_identifier
                if self._selects(message):
                    self._cost += time.thread_time() - started
                    yield message
                    started = time.thread_time()
            self._cost += time.thread_time() - started

    async def change(self) -> None:
        """Wait until there may be more of them."""
        wait = max(_SHORTEST, self._cost * _SHARE)
        if self._numbers == self._of_now():
            wait = max(wait, _LONGEST_UNCHANGED)
        found = await self._next_available(self._began + wait - time.monotonic())
        if found is None:
            self._place = None
        elif self._place is not None:
            self._place = min(self._place, found - 1)

    async def _next_available(self, seconds: float) -> int | None:
        """The lookup identifier of the next message that appears; None after some seconds."""
        if seconds <= 0:
            return None
        try:
            return (await WaitingMessageReadOperation(self._queue, None).wait(seconds))[0]
        except MessageQueuingError as error:
            if error.code == ErrorCode.MQ_ERROR_IO_TIMEOUT:
                return None
            raise

    def _of_now(self) -> tuple[int, ...]:
        queue = self._queue.queue
        return queue.tally.arrived, queue.message_count, len(queue.locked), len(queue.tries)


log = structlog.get_logger(__name__)

_AT_ONCE: Final = 64
"""Messages that are read from the queue at a time."""
_BUFFERED: Final = 1024 * 1024
"""Bytes that wait in a session for its window; more are not read from the queue."""
_LOOK_AGAIN: Final = 0.5
"""Seconds between two looks of a browser that is at the end of the queue."""


_TAKEN: Final = (ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND, ErrorCode.MQ_ERROR_MESSAGE_ALREADY_RECEIVED)
"""Refusals of messages that somebody else has."""


def outcome_of(delivery: Delivery) -> ReadOutcome | None:
    """The end of the message's read for the receiver's outcome (docs/amqp.md); None if it is no outcome yet."""
    match delivery.remote_state:
        case Delivery.ACCEPTED:
            return ReadOutcome.TAKEN
        case Delivery.REJECTED:
            return ReadOutcome.REJECTED
        case Delivery.RELEASED:
            return ReadOutcome.RETURNED
        case Delivery.MODIFIED:
            if delivery.remote.undeliverable:
                return ReadOutcome.REJECTED
            return ReadOutcome.FAILED if delivery.remote.failed else ReadOutcome.RETURNED
    return ReadOutcome.ABANDONED if delivery.settled else None


class OutgoingLink:
    """Messages from a queue to a program."""

    def __init__(
        self, host: Host, link: Sender, number: int, queue: OpenQueueDescriptor, address: str, *, browses: bool,
        tell_drained: Callable[[int], None], selector: Selector | None = None,
    ) -> None:  # fmt: skip
        """``tell_drained``: what tells the receiver that no credit is left after so many messages."""
        self.number = number
        self._host = host
        self._link = link
        self._queue = queue
        self._address = address
        self._browses = browses
        self._selector = selector
        self._selection = Selection(queue, self._selects) if selector is not None else None
        self._presettled = link.remote_snd_settle_mode == Link.SND_SETTLED
        self._held: dict[int, tuple[int, int]] = {}
        """Lookup identifier and bytes of each locked message, by delivery tag."""
        self._in_transactions: dict[int, ReadOutcome | None] = {}
        """Tags of those that are received if a transaction commits; their outcomes if it does not, which the receiver
        may send before the transaction has ended here.
        """
        self._decided = 0
        """Those of them with such an outcome. No message is sent meanwhile, as they may come before it."""
        self._tell_drained = tell_drained
        self._drain_asked = False
        self._drained = 0
        """Credit that was given up: it counts like messages."""
        self._tag = 0
        self._task: asyncio.Task[None] | None = None
        self._waits = False
        """Whether the task does nothing but wait for a message."""
        self._seen: int | None = None
        """Where a browser is."""
        self._ended: list[Delivery] = []
        self._closed = False

    # Events of the peer

    def flow(self) -> None:
        """Credit has come, or is wanted back."""
        self._drain_asked = bool(self._link.drain_mode)
        self._go_on()
        self._answer_drain()

    def _go_on(self) -> None:
        if self._task is None:
            self._pump_soon()
        elif self._waits and (self._link.drain_mode or self._link.credit <= 0):
            self._task.cancel()  # a message that it was about to receive stays in its queue

    def _answer_drain(self) -> None:
        """Tell a receiver that wants its credit back that all of it is used, which it may not know."""
        if self._drain_asked and self._task is None and self._link.credit <= 0 and not self._link.queued:
            self._drain_asked = False
            self._tell_drained(self._tag + self._drained)
            self._host.flush()

    def delivery(self, delivery: Delivery) -> None:
        """A receiver said what becomes of a message."""
        if self._closed or not delivery.updated:
            return
        tag = int(delivery.tag)
        found = self._held.get(tag)
        if found is None:
            if delivery.settled:
                delivery.settle()
            return
        if tag in self._in_transactions:
            outcome = ReadOutcome.FAILED if delivery.remote_state == TRANSACTIONAL else outcome_of(delivery)
            if delivery.settled and outcome is not None and self._in_transactions[tag] is None:
                self._in_transactions[tag] = outcome
                self._decided += 1
                delivery.settle()
        elif delivery.remote_state == TRANSACTIONAL:
            self._receive_in_transaction(delivery, tag, found[0])
        elif (outcome := outcome_of(delivery)) is not None:
            if not self._browses:
                if outcome is ReadOutcome.REJECTED:
                    self._report(delivery, found[0])
                self._remember(delivery, found[0], outcome)
                self._queue.end_read(found[0], outcome)
            self._let_go(delivery, tag)
            if outcome is ReadOutcome.TAKEN:
                self._host.counts.taken += 1

    def _remember(self, delivery: Delivery, lookup_identifier: int, outcome: ReadOutcome) -> None:
        """Keep for the next receiver what this one says about a message that it returns."""
        key = (self._queue.queue.queue_id, lookup_identifier)
        if outcome in (ReadOutcome.RETURNED, ReadOutcome.FAILED, ReadOutcome.ABANDONED):
            modified = delivery.remote_state == Delivery.MODIFIED
            self._host.returned.add(key, annotations_of(delivery) if modified else b"")
        else:
            self._host.returned.discard(key)

    def _receive_in_transaction(self, delivery: Delivery, tag: int, lookup_identifier: int) -> None:
        """The message is received if the transaction commits."""
        state = delivery.remote.data
        identifier = transaction_of(state)
        try:
            if self._browses or not _accepts(state):
                raise RefusedError(NOT_IMPLEMENTED, "in a transaction messages are accepted, or left alone")
            unit = self._host.transactions.find(identifier)
            self._queue.end_read_in(lookup_identifier, unit, hold=not delivery.settled)
        except (RefusedError, MessageQueuingError) as error:
            refused = error if isinstance(error, RefusedError) else of_endpoint(error)
            self._host.transactions.doom(identifier, refused.description)
            refuse(self._link, refused)
            return
        if delivery.settled:
            self._let_go(delivery, tag, settle=False)
            delivery.settle()
            return
        self._in_transactions[tag] = None
        self._host.transactions.at_end(identifier, lambda committed: self._transaction_ended(delivery, tag, committed))
        delivery.local.data = [identifier, Described(ulong(ACCEPTED), [])]
        delivery.update(TRANSACTIONAL)

    def _transaction_ended(self, delivery: Delivery, tag: int, committed: bool) -> None:
        """Settle a message that is received; one whose transaction was rolled back has no outcome again (4.4.2)."""
        if self._closed or self._host.closed:
            return
        outcome = self._in_transactions.pop(tag)
        if outcome is None and not committed:
            return
        if outcome is None:
            delivery.settle()
        else:
            self._decided -= 1
            if not committed:
                self._queue.end_read(self._held[tag][0], outcome)
        self._let_go(delivery, tag, settle=False)
        self._go_on()

    def _let_go(self, delivery: Delivery, tag: int, *, settle: bool = True) -> None:
        _, size = self._held.pop(tag)
        self._host.held_bytes -= size
        if settle:
            self._ended.append(delivery)

    def _report(self, delivery: Delivery, lookup_identifier: int) -> None:
        condition = delivery.remote.condition
        log.info(
            "a receiver rejected a message: it is a dead letter", queue=self._queue.queue.pathname,
            principal=self._host.principal.name, lookup_identifier=lookup_identifier,
            condition=str(condition.name)[:200] if condition is not None else "",
            description=str(condition.description)[:500] if condition is not None else "",
        )  # fmt: skip

    def pass_ended(self) -> None:
        """Settle what was ended in this pass, with one sync."""
        if self._ended:
            ended, self._ended = self._ended, []
            self._host.spawn(self._settle(ended))
        self._go_on()
        self._answer_drain()

    async def _settle(self, ended: list[Delivery]) -> None:
        durable = self._queue.context.store.durable()
        if durable is not None:
            await durable
        for delivery in ended:
            if self._closed or self._host.closed:
                return
            delivery.settle()

    def stop(self) -> None:
        """Take no more messages."""
        if self._task is not None and self._waits:
            self._task.cancel()

    async def close(self) -> None:
        """The link has ended: everything that has no outcome is available again."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        for lookup_identifier, size in self._held.values():
            self._host.held_bytes -= size
            if not self._browses:
                self._host.returned.add((self._queue.queue.queue_id, lookup_identifier))
        self._held.clear()
        await self._queue.close()

    # Messages of the node

    @property
    def _ready(self) -> bool:
        """Whether the receiver wants messages, and there is room for them on their way."""
        host = self._host
        return (
            not (self._closed or host.closed)
            and self._link.credit > 0
            and not self._decided
            and host.writable
            and len(self._held) < host.settings.prefetch
            and (not host.held_bytes or host.held_bytes < host.settings.held_bytes)
            and self._link.session.outgoing_bytes < _BUFFERED
        )

    def _pump_soon(self) -> None:
        if self._task is None and self._ready:
            self._task = self._host.spawn(self._run())

    async def _run(self) -> None:
        try:
            await self._pump()
        except asyncio.CancelledError:
            if self._closed or self._host.closed:
                raise
        except MessageQueuingError as error:
            if not self._closed and not self._host.closed:
                refuse(self._link, of_endpoint(error))
        finally:
            self._task, self._waits = None, False
            if not self._closed and not self._host.closed:
                if self._ready and self._link.drain_mode:
                    self._pump_soon()
                self._answer_drain()

    async def _pump(self) -> None:
        while self._ready:
            drain = self._link.drain_mode
            limit = min(self._link.credit, self._host.settings.prefetch - len(self._held), _AT_ONCE)
            self._waits = not drain
            messages = await self._next(limit, wait=not drain)
            self._waits = False
            if not messages and drain:
                self._drain_asked = False
                self._drained += self._link.drained()
                self._host.flush()
                return
            for message in messages:
                self._deliver(message)
            self._host.flush()
            await asyncio.sleep(0)

    async def _next(self, limit: int, *, wait: bool) -> list[Message]:
        """The next messages; none at the end of the queue if there is no time to wait."""
        if self._browses:
            return await self._browse(limit, wait=wait)
        if self._selection is not None:
            return await self._select(self._selection, limit, wait=wait)
        read = self._queue.receive_many if self._presettled else self._queue.receive_begin_many
        try:
            return await read(limit, None if wait else 0)
        except MessageQueuingError as error:
            if error.code == ErrorCode.MQ_ERROR_IO_TIMEOUT:
                return []
            raise

    async def _browse(self, limit: int, *, wait: bool) -> list[Message]:
        while True:
            found: list[Message] = []
            async with aclosing(browse(self._queue, self._seen)) as messages:
                async for message in messages:
                    self._seen = message.lookup_identifier
                    if self._selects(message):
                        found.append(message)
                    if len(found) >= limit:
                        break
            if found or not wait:
                return found
            await asyncio.sleep(_LOOK_AGAIN)

    def _selects(self, message: Message) -> bool:
        if self._selector is None:
            return True
        try:
            if self._selector.names_headers:
                return self._selector.selects(to_amqp(message, self._address, self._host.place))
            return self._selector.selects(AmqpMessage(application_properties=application_properties(message)))
        except (CodecError, ValueError):  # such a message has no properties in AMQP
            return False

    async def _select(self, selection: Selection, limit: int, *, wait: bool) -> list[Message]:
        """Take selected messages; those that others take meanwhile are left out."""
        found: list[Message] = []
        while True:
            async with aclosing(selection.look()) as selected:
                async for message in selected:
                    self._waits = False  # from here on, the task may not be cancelled: it has messages
                    try:
                        found.append(await self._take(message.lookup_identifier))
                    except MessageQueuingError as error:
                        if error.code not in _TAKEN:
                            raise
                    if len(found) >= limit or (found and self._presettled):  # that one is gone from its queue
                        return found
            if found or not wait or self._link.drain_mode or self._link.credit <= 0:
                return found
            self._waits = True
            await selection.change()

    async def _take(self, lookup_identifier: int) -> Message:
        if self._presettled:
            return await self._queue.receive_by_lookup_id(lookup_identifier)
        return await self._queue.receive_begin_by_lookup_id(lookup_identifier)

    def _deliver(self, message: Message) -> None:
        """Put a message on the link. One that cannot be put into AMQP goes as the bytes of its body."""
        try:
            found = to_amqp(message, self._address, self._host.place)
            key = (self._queue.queue.queue_id, message.lookup_identifier)
            if key in self._host.returned:
                found.annotations |= self._host.returned.annotations(key)
                found.header.pop("first_acquirer", None)
            data = write(found)
        except (CodecError, ValueError):  # headers with half a surrogate pair, say: a bad packet holds nobody up
            data = write(AmqpMessage(body=message.body, annotations={BODY_TYPE: UInt(message.body_type)}))
        self._tag += 1
        send(self._link, str(self._tag), data, settled=self._presettled)
        self._host.counts.delivered += 1
        if not self._presettled:
            self._held[self._tag] = (message.lookup_identifier, len(data))
            self._host.held_bytes += len(data)


def _accepts(state: Any) -> bool:
    """Whether the outcome within a transactional state is that the message is taken."""
    outcome = state[1] if isinstance(state, list) and len(state) > 1 else None
    descriptor = getattr(outcome, "descriptor", None)
    return outcome is None or descriptor == ACCEPTED or descriptor == "amqp:accepted:list"
