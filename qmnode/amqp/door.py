"""The door: listens, lets connections in within limits, and closes them when the node stops.

A connection passes bytes between its socket, the SASL front and the engine, and has their timers.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, cast

import structlog

from qmnode.amqp.addresses import TemporaryQueues
from qmnode.amqp.end_to_end import Arrivals
from qmnode.amqp.error_conditions import FORCED, INTERNAL, RESOURCE_LIMIT, RefusedError
from qmnode.amqp.links import Returned
from qmnode.amqp.mapping import MappingContext
from qmnode.amqp.peer import Peer
from qmnode.amqp.principals import Attempt, Principal, Principals, SaslServer, SaslState, server_context
from qmnode.amqp.transactions import Transactions
from qmnode.errors import ConfigurationError, MessageQueuingError, reason_of
from qmnode.security.tls import load_certificate
from qmnode.settings.node import NodeSettings
from qmnode.shares import (
    AMQP_ATTACHED_BYTES,
    AMQP_PARTIAL_BYTES,
    AMQP_TEMPORARY_QUEUES,
    AMQP_TRANSACTION_BYTES,
    STEP,
    UNKNOWN,
    Kind,
    block_of,
    declared,
    stranger,
)
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.names import QueueNameError, parse_single_format_name
from qmnode.transport.listener import listening_sockets

if TYPE_CHECKING:
    from qmnode.model.queue_manager import QueueManager
    from qmnode.security.principals import Principals as Callers

log = structlog.get_logger(__name__)

_TRANSACTIONS: Final = 64
"""The most transactions of a connection that have not ended."""
_WRITE_BUFFER: Final = 256 * 1024
_LONGEST_ATTACH: Final = 8 * 1024
"""Bytes of the largest frame that attaches a link. The engine needs more memory than that for what is in it."""
_GOODBYE: Final = 2.0
"""Seconds for the last frames to a peer, before the connection is cut."""


class AmqpConnection(asyncio.Protocol):
    """A connection; :class:`qmnode.amqp.links.Host` for its links."""

    principal: Principal

    def __init__(self, door: AmqpDoor) -> None:
        self.door = door
        self.block = ""
        """The address block that it came from."""
        self.manager, self.settings, self.place = door.manager, door.settings, door.place
        self.counts, self.arrivals, self.returned = door.counts, door.arrivals, door.returned
        self.temporary = door.temporary
        self.transactions = Transactions(door.manager, _TRANSACTIONS, self._take_in_transactions)
        self.held_bytes = 0
        self.closed = False
        self.writable = True
        self._transport: asyncio.Transport
        self._sasl: SaslServer | None = None
        self._peer: Peer | None = None
        self._certificate = ""
        self._address = ""
        self._partial = self._attached = 0
        self._turns = door.manager.context.shares.turns
        self._unread = bytearray()
        """Bytes that wait for their turn."""
        self.party = UNKNOWN
        """The party that its memory is charged to."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: set[asyncio.TimerHandle] = set()
        self._tick: asyncio.TimerHandle | None = None
        self._stuck: asyncio.TimerHandle | None = None
        self._flushing = False
        self._ending = False

    # The socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected; with TLS, after its handshake."""
        self._transport = cast("asyncio.Transport", transport)
        self._address = str((transport.get_extra_info("peername") or ("",))[0])
        if not self.door.admit(self, self._address):
            self.closed = True
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(_WRITE_BUFFER)
        self._certificate = self.door.principals.user_of(transport.get_extra_info("ssl_object"))
        self._sasl = SaslServer(self.door.principals.mechanisms(self._certificate))
        self.later(self.settings.handshake_timeout, self._end_if_not_open)

    def data_received(self, data: bytes) -> None:
        """Pass bytes on to the SASL front or to the engine: those of a stranger when it is its turn."""
        if self.closed or self._ending:
            return
        if self._unread:
            self._unread += data
            self._transport.pause_reading()
        elif self.party.kind is not Kind.STRANGER:
            self._turns.heard = asyncio.get_running_loop().time()
            self._take_in(data)
        else:
            self._unread += data
            if self._turns.take(self._address, len(data), self._take_turn, is_urgent=self._peer is None):
                self._transport.pause_reading()

    def _take_turn(self) -> bool:
        if self.closed or self._ending:
            self._unread.clear()
            return False
        size = STEP if self._turns.are_scarce else len(self._unread)
        data = bytes(self._unread[:size])
        del self._unread[:size]
        try:
            self._take_in(data)
        except Exception:
            log.exception("the input of an AMQP connection cannot be handled", address=self._address)
            self.abort()
            return False
        if self._unread:
            return True
        if self._sasl is None or self._sasl.state is not SaslState.DECIDING:
            self._transport.resume_reading()
        return False

    def _take_in(self, data: bytes) -> None:
        if self._peer is not None:
            self._receive(data)
        elif self._sasl is not None:
            attempt = self._sasl.feed(data)
            self._send_sasl()
            if attempt is not None:
                self._transport.pause_reading()
                self.spawn(self._authenticate(attempt))

    def pause_writing(self) -> None:
        """The peer does not read as fast as it is sent to."""
        self.writable = False
        self._stuck = self.later(self.settings.idle_timeout, self._end_if_stuck)

    def resume_writing(self) -> None:
        """Send on: the peer reads again."""
        self.writable = True
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None
        if self._peer is not None and not self.closed:
            self.flush()
            self._peer.dispatch()

    def eof_received(self) -> bool:
        """The peer sends no more: it gets no more either."""
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is gone: what it held is returned."""
        if self.closed:
            return
        self.closed = True
        for timer in self._timers:
            timer.cancel()
        self._stop_tick()
        if self._peer is not None:
            self._peer.stop()
        self.door.leave(self, asyncio.get_running_loop().create_task(self._return_all()))

    async def _return_all(self) -> None:
        async with self.door.returning:
            await self._return_held()

    async def _return_held(self) -> None:
        peer, self._peer = self._peer, None
        if peer is not None:
            await peer.close()
        await self.transactions.abort_all()
        for account, held in ((self.door.partial, self._partial), (self.door.attached, self._attached)):
            if held:
                account.give_back(self.party, held)
        self._partial = self._attached = 0

    # SASL

    def _send_sasl(self) -> None:
        sasl = self._sasl
        assert sasl is not None
        if sasl.out:
            self._transport.write(bytes(sasl.out))
            sasl.out.clear()
        if sasl.state is SaslState.FAILED:
            self.counts.refused_connections += 1
            self._ending = True
            self._transport.close()

    async def _authenticate(self, attempt: Attempt) -> None:
        sasl = self._sasl
        assert sasl is not None
        try:
            principal = await self.door.principals.authenticate(attempt, self._certificate, self.block)
        except MessageQueuingError as error:
            log.warning("an AMQP client cannot be authenticated now", user=attempt.user[:100], reason=str(error))
            principal = None
        if self.closed:
            return
        sasl.decide(principal is not None)
        if principal is None:
            log.warning(
                "an AMQP client is refused", address=self._address, mechanism=attempt.mechanism,
                user=attempt.user[:100],
            )  # fmt: skip
        else:
            self.principal = principal
            self.party = declared(f"AMQP {principal.name}") if principal.name else stranger(self._address)
            self._peer = Peer(self)
        self._send_sasl()
        if self._peer is not None:
            self._sasl = None
            if not self._unread:
                self._transport.resume_reading()
            self._receive(sasl.rest)

    # The engine

    def _receive(self, data: bytes) -> None:
        assert self._peer is not None
        was_open = self._peer.is_open
        self._peer.receive(data)
        self._flush()
        if self._peer.is_open is not was_open:  # now the peer's time-out is known, which may be the shorter one
            self._stop_tick()
        if not self._ending:
            self._arm_tick()

    def flush(self) -> None:
        """Send soon what the engine has for the peer."""
        if not self._flushing and not self.closed:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        peer = self._peer
        if peer is None or self.closed:
            return
        while self.writable and (data := peer.take_output()):
            self._transport.write(data)
        if peer.finished and not self._ending:
            self._ending = True
            self._transport.close()
            asyncio.get_running_loop().call_later(_GOODBYE, self._transport.abort)

    def _arm_tick(self) -> None:
        """The engine wants to know when the peer is silent for too long, and when to send an empty frame."""
        if self._tick is None and self._peer is not None:
            loop = asyncio.get_running_loop()
            deadline = self._peer.tick(loop.time())
            if deadline:
                self._tick = loop.call_at(deadline, self._ticked)

    def _stop_tick(self) -> None:
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None

    def _ticked(self) -> None:
        self._tick = None
        if not self.closed:
            self._arm_tick()
            self._flush()

    def _end_if_not_open(self) -> None:
        if self._peer is None or not self._peer.is_open:
            log.info("an AMQP connection was not opened in time", address=self._address)
            self._transport.abort()

    def _end_if_stuck(self) -> None:
        if not self.writable:
            log.info("an AMQP client reads nothing: its connection is closed", address=self._address)
            self._transport.abort()

    def abort(self) -> None:
        """Close the connection without saying goodbye."""
        self._transport.abort()

    def end(self) -> None:
        """Close the connection because the node stops."""
        if self._peer is None:
            self._transport.abort()
            return
        self._peer.refuse(RefusedError(FORCED, "the node stops: connect again later"))
        self._flush()

    # Host

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start work that waits for the node."""
        task = asyncio.get_running_loop().create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            raise
        except Exception as error:
            log.error(
                "an AMQP connection fails", reason=str(error), exc_info=not isinstance(error, MessageQueuingError)
            )
            if self._peer is not None and not self.closed:
                self._peer.refuse(RefusedError(INTERNAL, "the node could not do this: its log says why"))
        finally:
            self.flush()

    def later(self, seconds: float, work: Callable[[], None]) -> asyncio.TimerHandle:
        """Call back after a time, unless the connection has ended by then."""

        def call() -> None:
            self._timers.discard(timer)
            with contextlib.suppress(RefusedError):
                work()

        timer = asyncio.get_running_loop().call_later(seconds, call)
        self._timers = {one for one in self._timers if not one.cancelled()} if len(self._timers) > 64 else self._timers
        self._timers.add(timer)
        return timer

    def take_partial(self, size: int) -> None:
        """Count bytes of a message that is not whole, or no longer."""
        if size > 0 and not self.door.partial.take(self.party, size):
            raise RefusedError(RESOURCE_LIMIT, "too many messages have begun and are not whole: try again later")
        if size < 0:
            self.door.partial.give_back(self.party, -size)
        self._partial += size

    def _take_in_transactions(self, size: int) -> bool:
        if size > 0:
            return self.door.in_transactions.take(self.party, size)
        self.door.in_transactions.give_back(self.party, -size)
        return True

    def take_attached(self, size: int) -> bool:
        """Count the bytes of a frame that attaches a link, or no longer; False if there are too many."""
        if size > 0 and not (size <= _LONGEST_ATTACH and self.door.attached.take(self.party, size)):
            return False
        if size < 0:
            self.door.attached.give_back(self.party, -size)
        self._attached += size
        return True


_RETURN_AT_ONCE: Final = 8

_STOPPING: Final = 3.0
"""Seconds that clients have to close when the node stops."""
_HANDSHAKE: Final = 10.0


class AmqpDoor:
    """Serves the queues of a queue manager over AMQP 1.0."""

    def __init__(self, manager: QueueManager, settings: NodeSettings, callers: Callers) -> None:
        """``callers`` says who clients are. ConfigurationError if its files cannot be used."""
        self.manager = manager
        self.settings = settings.amqp
        self.principals = Principals(settings, callers)
        self.place = MappingContext(self._is_here, time.time)
        self.counts = manager.amqp
        self.arrivals = Arrivals(manager, self._own_address)
        self.returned = Returned()
        shares = manager.context.shares
        self.partial = shares.open(AMQP_PARTIAL_BYTES, self.settings.partial_bytes)
        self.in_transactions = shares.open(AMQP_TRANSACTION_BYTES, self.settings.transaction_bytes)
        self.attached = shares.open(AMQP_ATTACHED_BYTES, self.settings.attached_bytes)
        self.returning = asyncio.Semaphore(_RETURN_AT_ONCE)
        """Held while a connection that ended returns what it held: when hundreds end at once, the loop goes on."""
        self.temporary = TemporaryQueues(
            manager,
            shares.open(AMQP_TEMPORARY_QUEUES, self.settings.temporary_queues),
            self.settings.temporary_queue_bytes,
        )
        self.port = 0
        self._servers: list[asyncio.Server] = []
        self.connections: set[AmqpConnection] = set()
        self._blocks: Counter[str] = Counter()
        self._empty = asyncio.Event()
        self._leaving: set[asyncio.Task[None]] = set()
        self._tls: ssl.SSLContext | None = None

    def _own_address(self) -> str:
        known = self.manager.local_settings().get("addresses", ())
        return self.manager.settings.transport.address or next(iter(known), "")

    def _is_here(self, name: str) -> bool:
        try:
            return self.manager.names.is_local(parse_single_format_name(name))
        except QueueNameError:
            return False

    async def start(self) -> None:
        """Listen on the port of the settings. MQ_ERROR_SERVICE_NOT_AVAILABLE, or ConfigurationError."""
        settings = self.settings
        if not self.principals.offers_anything:
            raise ConfigurationError(
                "amqp: no client could prove who it is. Set amqp.tokens (or management.tokens) together with "
                "amqp.certificate and amqp.private_key, amqp.authorities, or amqp.anonymous: true"
            )
        if settings.certificate is not None:
            self._tls = self._context()
        port = settings.listening_port
        try:
            sockets = listening_sockets(settings.address, port, socket.SOCK_STREAM)
        except OSError as error:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE,
                f"the AMQP door cannot listen on {settings.address or 'any address'}, port {port}: "
                f"{reason_of(error)}. Change amqp.address or amqp.port",
            ) from error
        await self.temporary.clear()
        loop = asyncio.get_running_loop()
        for one in sockets:
            self.port = one.getsockname()[1]
            address = one.getsockname()[0]
            self._servers.append(
                await loop.create_server(
                    lambda: AmqpConnection(self),
                    sock=one,
                    ssl=self._tls,
                    ssl_handshake_timeout=_HANDSHAKE if self._tls is not None else None,
                )
            )
            self.counts.port = self.port
            log.info("AMQP door", address=address, port=self.port, tls=self._tls is not None)

    def _context(self) -> ssl.SSLContext:
        try:
            return server_context(self.settings)
        except OSError as error:  # ssl.SSLError is one
            raise ConfigurationError(
                f"amqp: {self.settings.certificate}, {self.settings.private_key}, {self.settings.authorities or ''}: "
                f"not a certificate, its key and authorities: {error}"
            ) from error

    def reload(self) -> None:
        """Read the tokens and the certificate again; on a mistake what was there stays."""
        try:
            self.principals.load()
            if self._tls is not None:
                self._context()
                load_certificate(self._tls, self.settings.certificate or "", self.settings.private_key)
        except ConfigurationError as error:
            log.error("a part of the AMQP door was not reloaded", reason=str(error))

    async def stop(self) -> None:
        """Listen no more, close the connections; what was not settled is returned."""
        for server in self._servers:
            server.close()
        for connection in list(self.connections):
            connection.end()
        if self.connections:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STOPPING):
                    await self._empty.wait()
            for connection in list(self.connections):
                connection.abort()
            await self._empty.wait()
        if self._leaving:
            await asyncio.wait(self._leaving)
        await self.arrivals.stop()
        self._servers.clear()
        self.counts.port = 0

    # Connections

    def admit(self, connection: AmqpConnection, address: str) -> bool:
        """Whether there is room for one more connection, and for one more from its address."""
        block = block_of(address)
        if len(self.connections) >= self.settings.connections or (
            self._blocks[block] >= self.settings.connections_per_peer
        ):
            self.counts.refused_connections += 1
            return False
        connection.block = block
        self.connections.add(connection)
        self._empty.clear()
        self._blocks[block] += 1
        self.counts.connections = len(self.connections)
        return True

    def leave(self, connection: AmqpConnection, returning: asyncio.Task[None]) -> None:
        """A connection has ended; ``returning`` gives back what it held."""
        self.connections.discard(connection)
        self._blocks[connection.block] -= 1
        if not self._blocks[connection.block]:
            del self._blocks[connection.block]
        self.counts.connections = len(self.connections)
        if not self.connections:
            self._empty.set()
        self._leaving.add(returning)
        returning.add_done_callback(self._leaving.discard)
