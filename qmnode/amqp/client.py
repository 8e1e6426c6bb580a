"""A client of an AMQP 1.0 peer: one connection over Proton's engine, with links as coroutines use them."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from proton import SASL, Collector, Connection, Delivery, Endpoint, Event, Link, Terminus, Transport, symbol, ulong
from proton import Described as EngineDescribed

from qmnode.amqp.codec import Described, ULong
from qmnode.amqp.error_conditions import DECODE, SIZE
from qmnode.amqp.peer import MALFORMED
from qmnode.amqp.proton_engine import drop_aborted
from qmnode.amqp.sections import VALUE, AmqpMessage, write
from qmnode.amqp.transactions import ACCEPTED, DECLARED, TRANSACTIONAL
from qmnode.version import program_version

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
class DeliveryOutcome:
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
        """Send a message, in a transaction if one is given; the future has its :class:`DeliveryOutcome`."""
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
        return DeliveryOutcome(True)
    if state == TRANSACTIONAL:
        data = delivery.remote.data
        within = data[1] if isinstance(data, list) and len(data) > 1 else None
        descriptor = getattr(within, "descriptor", None)
        accepted = descriptor in (None, ACCEPTED, "amqp:accepted:list")
        rejected = descriptor in (Delivery.REJECTED, "amqp:rejected:list")
        return DeliveryOutcome(
            accepted, rejected=rejected, reason="" if accepted else f"{getattr(within, 'value', '')!s:.500}"
        )
    if state == Delivery.REJECTED:
        return DeliveryOutcome(False, rejected=True, reason=text_of(delivery.remote.condition))
    if state in _RETURNED:
        failed = state == Delivery.MODIFIED and bool(delivery.remote.failed)
        refused = state == Delivery.MODIFIED and bool(delivery.remote.undeliverable)
        return DeliveryOutcome(False, rejected=refused, failed=failed, reason="the peer returns the message")
    return DeliveryOutcome(False, reason="settled without an outcome") if delivery.settled else None


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


_FRAME: Final = 64 * 1024
_WINDOW: Final = 400 * _FRAME
"""Bytes that a session may bring before they are taken. It counts frames, however small they are."""
_WRITE_BUFFER: Final = 256 * 1024
_CHECK_LOGIN: Final = "Check user and password, or the certificate"
_CLOSING: Final = 2.0
"""Seconds that the peer has to answer a close."""
_DECLARE: Final = 0x31
_DISCHARGE: Final = 0x32
_LOCAL_TRANSACTIONS: Final = "amqp:local-transactions"


_Opened = TypeVar("_Opened", bound=ClientLink)


@dataclass(frozen=True, slots=True)
class Login:
    """How the client proves who it is: with a password, with its certificate, or not at all."""

    mechanism: str
    user: str = ""
    password: str = ""

    def __repr__(self) -> str:
        return f"<Login {self.mechanism} {self.user}>"


class AmqpClient(asyncio.Protocol):
    """A connection to a peer. Every wait ends with PeerError when the connection is lost."""

    def __init__(self, container: str, host: str, login: Login, idle_timeout: float) -> None:
        self.loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[None] = self.loop.create_future()
        self.lost.add_done_callback(lambda future: future.exception())
        self.writable = True
        self._container, self._host, self._login, self._idle = container, host, login, idle_timeout
        self._links: dict[Any, ClientLink] = {}
        self._opened: asyncio.Future[None] = self.loop.create_future()
        self._opened.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._socket: asyncio.Transport | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._flushing = False
        self._number = 0
        self._coordinator: ClientSender | None = None
        self._engine = Transport()
        self._engine.max_frame_size = _FRAME
        self._engine.idle_timeout = idle_timeout
        self._connection = Connection()
        self._collector = Collector()
        self._connection.collect(self._collector)
        self._handlers: dict[Any, Callable[[Any], None]] = {
            Event.CONNECTION_REMOTE_OPEN: self._connection_opened,
            Event.CONNECTION_REMOTE_CLOSE: self._connection_closed,
            Event.SESSION_REMOTE_CLOSE: self._session_closed,
            Event.LINK_REMOTE_OPEN: lambda event: self._of(event.link).attached(),
            Event.LINK_REMOTE_CLOSE: lambda event: self._of(event.link).ended(),
            Event.LINK_REMOTE_DETACH: lambda event: self._of(event.link).ended(),
            Event.LINK_FLOW: lambda event: self._of(event.link).flow(),
            Event.DELIVERY: lambda event: self._of(event.delivery.link).delivery(event.delivery),
            Event.TRANSPORT_ERROR: lambda event: self.fail(_transport_text(event.transport.condition)),
        }

    @classmethod
    async def connect(
        cls, container: str, address: tuple[str, int], tls: ssl.SSLContext | None, login: Login,
        virtual_host: str = "", idle_timeout: float = 60.0,
    ) -> AmqpClient:  # fmt: skip
        """Connect and open. PeerError; the caller bounds the time."""
        loop = asyncio.get_running_loop()
        host, port = address
        client = cls(container, virtual_host or host, login, idle_timeout)
        try:
            await loop.create_connection(lambda: client, host, port, ssl=tls)
            await client.unless_lost(client._opened)
        except BaseException:
            client.abort()
            raise
        return client

    # The socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected: open the connection and a session of AMQP."""
        self._socket = cast("asyncio.Transport", transport)
        self._socket.set_write_buffer_limits(_WRITE_BUFFER)
        sasl = self._engine.sasl()
        sasl.allow_insecure_mechs = True  # the engine does not see TLS; the settings refuse a password in clear
        sasl.allowed_mechs(self._login.mechanism)
        connection = self._connection
        connection.container = self._container
        connection.hostname = self._host
        connection.properties = {symbol("product"): "qmnode", symbol("version"): program_version()}
        if self._login.user:
            connection.user, connection.password = self._login.user, self._login.password
        self._engine.bind(connection)
        connection.open()
        self.session = connection.session()
        self.session.incoming_capacity = _WINDOW
        self.session.open()
        self._pump()

    def data_received(self, data: bytes) -> None:
        """Pass bytes to the engine, and do what its events ask for."""
        view = memoryview(data)
        while len(view) and not self.lost.done():
            capacity = self._engine.capacity()
            if capacity <= 0:
                break
            self._engine.push(bytes(view[:capacity]))
            view = view[capacity:]
            self._dispatch()
        self._pump()

    def pause_writing(self) -> None:
        """The peer does not read as fast as it is sent to."""
        self.writable = False

    def resume_writing(self) -> None:
        """Continue to send, as the peer reads again."""
        self.writable = True
        for link in self._links.values():
            link.flow()
        self._pump()

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is gone."""
        if not self.lost.done() and self._engine.sasl().outcome not in (None, SASL.OK):
            self.fail(f"the peer refuses the login ({self._login.mechanism}). {_CHECK_LOGIN}")
        self.fail(f"the connection is lost: {error or 'the peer closed it'}")
        if self._tick is not None:
            self._tick.cancel()
        self._engine.unbind()
        self._connection.free()

    def fail(self, reason: str) -> None:
        """End everything that waits with this reason."""
        if not self.lost.done():
            self.lost.set_exception(PeerError(reason))

    def flush(self) -> None:
        """Send soon what the engine has for the peer."""
        if not self._flushing:
            self._flushing = True
            self.loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._flushing = False
        if self._socket is None or self._socket.is_closing():
            return
        deadline = float(self._engine.tick(self.loop.time()))
        self._dispatch()
        while self.writable and (pending := self._engine.pending()) > 0:
            data = self._engine.peek(pending) or b""
            self._engine.pop(len(data))
            self._socket.write(bytes(data))
        if self._tick is not None:
            self._tick.cancel()
        self._tick = self.loop.call_at(deadline, self._pump) if deadline else None

    async def unless_lost(self, work: Any) -> Any:
        """Wait for this unless the connection is lost. PeerError."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task, self.lost}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            self.lost.result()
        finally:
            if not task.done() and task is not self._opened:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, PeerError):
                    await task

    async def close(self) -> None:
        """Say goodbye, and close."""
        if not self.lost.done():
            self._connection.close()
            self.flush()
            with contextlib.suppress(PeerError, TimeoutError):
                async with asyncio.timeout(_CLOSING):
                    await asyncio.shield(self.lost)
        self.abort()

    def abort(self) -> None:
        """Close at once, without a goodbye."""
        self.fail("the connection was closed")
        if self._socket is not None:
            self._socket.abort()

    # Events

    def _dispatch(self) -> None:
        while (event := self._collector.peek()) is not None:
            handler = self._handlers.get(event.type)
            if handler is not None and (not self.lost.done() or event.type == Event.CONNECTION_REMOTE_CLOSE):
                try:
                    handler(event)
                except MALFORMED as error:
                    self.fail(f"{DECODE}: the peer sends a value that cannot be read: {error}")
                except KeyError:
                    self.fail("the peer opens a link of its own, which no bridge uses")
            self._collector.pop()

    def _of(self, link: Any) -> ClientLink:
        return self._links[getattr(link, "number", 0)]

    def _connection_opened(self, event: Any) -> None:
        if not self._opened.done():
            self._opened.set_result(None)

    def _connection_closed(self, event: Any) -> None:
        if event.connection.state & Endpoint.LOCAL_ACTIVE:
            event.connection.close()
        self.fail(f"the peer closes the connection: {text_of(event.connection.remote_condition)}")

    def _session_closed(self, event: Any) -> None:
        self.fail(f"the peer closes the session: {text_of(event.session.remote_condition)}")

    # Links

    async def sender(self, address: str) -> ClientSender:
        """A link to an address. PeerError if the peer refuses."""
        link = self.session.sender(self._name(address))
        link.target.address = address
        link.source.address = self._container
        link.snd_settle_mode = Link.SND_UNSETTLED
        return await self._attach(link, ClientSender(self, link))

    async def receiver(self, address: str, limit: int) -> ClientReceiver:
        """A link from an address, without credit; ``limit`` is in bytes of a message. PeerError if the peer refuses."""
        link = self.session.receiver(self._name(address))
        link.source.address = address
        link.target.address = self._container
        link.snd_settle_mode = Link.SND_UNSETTLED
        return await self._attach(link, ClientReceiver(self, link, limit))

    def _name(self, address: str) -> str:
        self._number += 1
        return f"{self._container}:{address}:{self._number}"

    async def _attach(self, link: Any, opened: _Opened) -> _Opened:
        link.number = self._number
        self._links[self._number] = opened
        link.open()
        self.flush()
        await self.unless_lost(opened.opened)
        return opened

    # Transactions

    async def declare(self) -> bytes:
        """Begin a transaction of the peer; its number. PeerError if it has none."""
        if self._coordinator is None:
            link = self.session.sender(self._name("coordinator"))
            link.target.type = Terminus.COORDINATOR
            link.target.capabilities.put_object(symbol(_LOCAL_TRANSACTIONS))
            self._coordinator = await self._attach(link, ClientSender(self, link))
        answer = await self._ask(_DECLARE, [None])
        if not isinstance(answer, bytes):
            raise PeerError(f"the peer begins no transaction: {answer.reason or 'it has none'}")
        return answer

    async def discharge(self, transaction: bytes, *, fail: bool = False) -> DeliveryOutcome:
        """Commit a transaction, or roll it back. PeerError when the connection is lost: it has ended either way."""
        answer = await self._ask(_DISCHARGE, [transaction, fail])
        assert isinstance(answer, DeliveryOutcome)
        return answer

    async def _ask(self, request: int, fields: list[Any]) -> Any:
        assert self._coordinator is not None
        await self._coordinator.credit()
        body = AmqpMessage(body_kind=VALUE, body=Described(ULong(request), fields))
        return await self.unless_lost(self._coordinator.send(write(body)))


def _transport_text(condition: Any) -> str:
    text = text_of(condition)
    return f"{text}. {_CHECK_LOGIN}" if "amqp:unauthorized-access" in text else text
