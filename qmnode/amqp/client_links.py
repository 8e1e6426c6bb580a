"""The links of a client of an AMQP 1.0 peer, as coroutines use them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from proton import Delivery, Terminus, ulong
from proton import Described as EngineDescribed

from qmnode.amqp.conditions import SIZE
from qmnode.amqp.engine import drop_aborted
from qmnode.amqp.transactions import ACCEPTED, DECLARED, TRANSACTIONAL

if TYPE_CHECKING:
    from qmnode.amqp.client import AmqpClient

_HELD: Final = 16 * 1024 * 1024
"""Bytes of messages from the peer that are held at a time."""
_PATIENCE: Final = 3.0
"""Seconds that a stop waits for the peer's answers."""
_RETURNED: Final = frozenset({Delivery.RELEASED, Delivery.MODIFIED})


class PeerError(Exception):
    """The peer refuses, is unreachable or gone. The text is for operators."""


async def to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Do a piece of work whose half would be repeated; a stop waits a little for it."""
    task = asyncio.get_running_loop().create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task}, timeout=_PATIENCE)
        if task.done() and not task.cancelled():
            task.exception()
        task.cancel()
        raise


@dataclass(frozen=True, slots=True)
class Outcome:
    """The peer's answer to a message."""

    accepted: bool
    rejected: bool = False
    failed: bool = False
    """Whether the attempt counts as failed (``modified``)."""
    reason: str = ""


def text_of(condition: Any) -> str:
    if condition is None:
        return "no reason given"
    return f"{condition.name}: {condition.description}"[:500] if condition.description else str(condition.name)[:500]


class ClientLink:
    """A link to or from the peer."""

    def __init__(self, client: AmqpClient, link: Any) -> None:
        self.client = client
        self.link = link
        self.opened: asyncio.Future[None] = client.loop.create_future()

    def attached(self) -> None:
        """The peer has answered; one that refuses names no terminus, and closes the link next."""
        theirs = self.link.remote_target if self.link.is_sender else self.link.remote_source
        if theirs.type != Terminus.UNSPECIFIED and not self.opened.done():
            self.opened.set_result(None)

    def ended(self) -> None:
        """The peer has closed the link."""
        where = (self.link.target if self.link.is_sender else self.link.source).address or "its coordinator"
        self.client.fail(f"the peer closes the link to {where}: {text_of(self.link.remote_condition)}")

    def flow(self) -> None:
        """The peer has changed the credit."""

    def delivery(self, delivery: Delivery) -> None:
        """Something has happened to a delivery."""


class ClientSender(ClientLink):
    """A link on which messages go to the peer."""

    def __init__(self, client: AmqpClient, link: Any) -> None:
        super().__init__(client, link)
        self._tag = 0
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self._credit = asyncio.Event()

    def flow(self) -> None:
        """Wake a sender that waits for credit."""
        if self.link.credit > 0:
            self._credit.set()

    async def credit(self) -> int:
        """Wait until the peer takes messages; how many."""
        while self.link.credit <= 0 or not self.client.writable:
            self._credit.clear()
            await self.client.unless_lost(self._credit.wait())
        return int(self.link.credit)

    def send(self, data: bytes, transaction: bytes | None = None) -> asyncio.Future[Any]:
        """Send a message, in a transaction if one is given; the future has its :class:`Outcome`."""
        self._tag += 1
        tag = str(self._tag)
        future: asyncio.Future[Any] = self.client.loop.create_future()
        self._waiting[tag] = future
        delivery = self.link.delivery(tag)
        if transaction is not None:
            delivery.local.data = [transaction]
            delivery.update(TRANSACTIONAL)
        self.link.stream(data)
        self.link.advance()
        self.client.flush()
        return future

    def delivery(self, delivery: Delivery) -> None:
        """The peer's answer to a message."""
        if not delivery.updated and not delivery.settled:
            return
        outcome = _outcome(delivery)
        if outcome is None:
            return
        future = self._waiting.pop(str(delivery.tag), None)
        delivery.settle()
        if future is not None and not future.done():
            future.set_result(outcome)

    def ended(self) -> None:
        """The peer has closed the link: what waits never gets an answer."""
        super().ended()
        self._waiting.clear()


def _outcome(delivery: Delivery) -> Any:
    """The outcome; the number of a transaction for one that was declared; None if there is no outcome yet."""
    state = delivery.remote_state
    if state == DECLARED:
        found = delivery.remote.data
        return bytes(found[0]) if found else b""
    if state == Delivery.ACCEPTED:
        return Outcome(True)
    if state == TRANSACTIONAL:
        data = delivery.remote.data
        within = data[1] if isinstance(data, list) and len(data) > 1 else None
        descriptor = getattr(within, "descriptor", None)
        accepted = descriptor in (None, ACCEPTED, "amqp:accepted:list")
        rejected = descriptor in (Delivery.REJECTED, "amqp:rejected:list")
        return Outcome(accepted, rejected=rejected, reason="" if accepted else f"{getattr(within, 'value', '')!s:.500}")
    if state == Delivery.REJECTED:
        return Outcome(False, rejected=True, reason=text_of(delivery.remote.condition))
    if state in _RETURNED:
        failed = state == Delivery.MODIFIED and bool(delivery.remote.failed)
        refused = state == Delivery.MODIFIED and bool(delivery.remote.undeliverable)
        return Outcome(False, rejected=refused, failed=failed, reason="the peer returns the message")
    return Outcome(False, reason="settled without an outcome") if delivery.settled else None


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message from the peer that has no outcome yet."""

    delivery: Delivery
    data: bytes


class ClientReceiver(ClientLink):
    """A link on which messages come from the peer."""

    def __init__(self, client: AmqpClient, link: Any, limit: int) -> None:
        super().__init__(client, link)
        self._limit = limit
        self._partial = bytearray()
        self._bytes = 0
        """Bytes of the messages without an outcome."""
        self._came: list[Arrival] = []
        self._something = asyncio.Event()

    def give(self, window: int, held: int) -> None:
        """Give credit so that at most ``window`` messages are under way, of which ``held`` have come."""
        more = window - self.link.credit - held - len(self._came)
        if more > 0 and (more * 2 >= window or self.link.credit == 0):
            self.link.flow(more)
            self.client.flush()

    async def messages(self, limit: int) -> list[Arrival]:
        """Wait for messages; up to ``limit`` of them."""
        while not self._came:
            self._something.clear()
            await self.client.unless_lost(self._something.wait())
        taken, self._came = self._came[:limit], self._came[limit:]
        return taken

    async def drained(self, credit: int) -> list[Arrival]:
        """The messages that the peer has now, up to ``credit``; it waits for none."""
        self.link.drain(credit)
        self.client.flush()
        while self.link.credit > 0 and len(self._came) < credit:
            self._something.clear()
            await self.client.unless_lost(self._something.wait())
        taken, self._came = self._came, []
        return taken

    def flow(self) -> None:
        """Drained credit has come back."""
        self._something.set()

    def delivery(self, delivery: Delivery) -> None:
        """Bytes of a message."""
        self._read()

    def _read(self) -> None:
        """Take what has come, unless so much is held that the peer is to wait: its session's window closes then."""
        while self._bytes < _HELD and (delivery := self.link.current) is not None and delivery.readable:
            if drop_aborted(self.link, delivery):
                self._partial.clear()
                self._something.set()
                if not self.link.drain_mode:
                    self.link.flow(1)  # for the one that it has used
                    self.client.flush()
                continue
            if pending := delivery.pending:
                self._partial += self.link.recv(pending) or b""
            if len(self._partial) > self._limit:
                self.client.fail(
                    f"{SIZE}: the peer sends a message of more than {self._limit} bytes: take it out there, or raise "
                    "message_size of the bridge"
                )
                return
            if delivery.partial:
                return
            data = bytes(self._partial)
            self._partial.clear()
            self.link.advance()
            self._bytes += len(data)
            self._came.append(Arrival(delivery, data))
            self._something.set()

    def _ended(self, arrival: Arrival) -> None:
        arrival.delivery.settle()
        self._bytes -= len(arrival.data)
        self._read()
        self.client.flush()

    def accept(self, arrival: Arrival, transaction: bytes | None = None) -> None:
        """Take a message, when the transaction commits if one is given."""
        if transaction is not None:
            arrival.delivery.local.data = [transaction, EngineDescribed(ulong(ACCEPTED), [])]
            arrival.delivery.update(TRANSACTIONAL)
        else:
            arrival.delivery.update(Delivery.ACCEPTED)
        self._ended(arrival)

    def end(self, arrival: Arrival, state: int, condition: Any = None) -> None:
        """Give a message another outcome."""
        if condition is not None:
            arrival.delivery.local.condition = condition
        arrival.delivery.update(state)
        self._ended(arrival)
