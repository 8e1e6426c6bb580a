"""A client of an AMQP 1.0 peer: one connection over Proton's engine, with links as coroutines use them."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from proton import SASL, Collector, Connection, Endpoint, Event, Link, Terminus, Transport, symbol

from qmnode.amqp.client_links import ClientLink, ClientReceiver, ClientSender, Outcome, PeerError, text_of
from qmnode.amqp.codec import Described, ULong
from qmnode.amqp.conditions import DECODE
from qmnode.amqp.peer import MALFORMED
from qmnode.amqp.sections import VALUE, AmqpMessage, write
from qmnode.version import program_version

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

    async def discharge(self, transaction: bytes, *, fail: bool = False) -> Outcome:
        """Commit a transaction, or roll it back. PeerError when the connection is lost: it has ended either way."""
        answer = await self._ask(_DISCHARGE, [transaction, fail])
        assert isinstance(answer, Outcome)
        return answer

    async def _ask(self, request: int, fields: list[Any]) -> Any:
        assert self._coordinator is not None
        await self._coordinator.credit()
        body = AmqpMessage(body_kind=VALUE, body=Described(ULong(request), fields))
        return await self.unless_lost(self._coordinator.send(write(body)))


def _transport_text(condition: Any) -> str:
    text = text_of(condition)
    return f"{text}. {_CHECK_LOGIN}" if "amqp:unauthorized-access" in text else text
