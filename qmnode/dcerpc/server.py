"""DCE/RPC over TCP, the server's side: a protocol for each connection and a task for each call, no threads."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, cast

import structlog

from qmnode.dcerpc.acceptor import Acceptor, AcceptorLimits, Called, Event
from qmnode.dcerpc.context_handles import Association, Associations
from qmnode.dcerpc.errors import FaultStatus, NdrError, RangeError, RpcFault
from qmnode.dcerpc.interface import Interface, Method, SyntaxId
from qmnode.dcerpc.ndr import Parameters
from qmnode.dcerpc.protection import AuthenticationLevel, AuthenticationType, SecurityContext
from qmnode.event_loop import write_together
from qmnode.shares import Account, Party, Turns, declared, stranger

log = structlog.get_logger(__name__)

_WRITE_LIMIT: Final = 64 * 1024
"""Bytes of answers that may wait for a slow client before further calls wait."""
_UNWRITTEN_LIMIT: Final = 4 * _WRITE_LIMIT
"""Bytes of answers that may wait for a write before further calls have a task, which waits without an answer."""
_READ: Final = 16 * 1024
"""Bytes of requests that are read at a time."""
_STEP: Final = 1024
"""Bytes of requests that are processed at a time: some dozens of the smallest."""
_FREE: Final = 16 * 1024
"""Bytes of unread answers that a connection holds free of charge; with more its requests are not read."""
_ATTEMPTS: Final = 100
_LINGER: Final = 5.0
"""Seconds that a client has to read the last data of a connection."""
_KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))
"""Keep-alive probes: when a client's machine vanishes, its locked messages are returned within a minute."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """The limits for clients of a server."""

    connections: int = 2000
    connections_per_peer: int = 500
    calls_per_connection: int = 1024
    """Unfinished calls of a connection, including those that wait for a message."""
    context_handles: int = 4096
    """Context handles of an association."""
    bind_timeout: float = 15.0
    """Seconds until a connection must have bound, and until an incomplete PDU must be complete."""
    answer_timeout: float = 60.0
    """Seconds until a client must have read some of the answers that keep its requests from being read."""
    acceptor: AcceptorLimits = field(default_factory=AcceptorLimits)


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a method, and its connection."""

    association: Association
    principal: str
    """Empty for an anonymous client."""
    peer: str
    local_address: str
    local_port: int


Handler = Callable[[Caller, Any], Awaitable[Parameters]]
"""Executes one method: takes the request's parameters, returns the response's. Raises RpcFault for a fault."""


class Answer(NamedTuple):
    """The response of a method that has done its work at once."""

    stub: bytes
    """The encoded parameters of the response."""
    after: asyncio.Future[None] | None
    """The write that must succeed before the response is sent; None for none."""
    failed: Callable[[Exception], Parameters]
    """Makes the response if the write fails."""


AtOnce = Callable[[Caller, Called], Answer | None]
"""Executes a method without waiting for anything; None, with nothing done, if it cannot, as with wrong parameters.
Raises RpcFault for a fault. Unlike a ``Handler`` it needs no task.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Service:
    """An interface with the handlers of its methods, by number."""

    interface: Interface
    handlers: Mapping[int, Handler]
    refused: Mapping[int, int]
    """The fault statuses of the interface's methods that this server does not support."""
    at_once: Mapping[int, AtOnce]
    """Tried first, for methods that mostly need not wait."""


def service(
    interface: Interface,
    handlers: Mapping[Method, Handler],
    refused: Mapping[int, int] | None = None,
    at_once: Mapping[Method, AtOnce] | None = None,
) -> Service:
    return Service(
        interface,
        {method.opnum: handler for method, handler in handlers.items()},
        refused or {},
        {method.opnum: handler for method, handler in (at_once or {}).items()},
    )


class RpcServer:
    """Listens on one port and serves interfaces."""

    def __init__(
        self,
        services: list[Service],
        answers: Account,
        *,
        turns: Turns | None = None,
        limits: ServerLimits | None = None,
        security: Callable[[AuthenticationType, AuthenticationLevel, int], SecurityContext] | None = None,
    ) -> None:
        """``answers`` is charged for the bytes of answers that clients have not read; requests wait for ``turns``."""
        self.answers = answers
        self.turns = turns or Turns()
        self.services: dict[SyntaxId, Service] = {one.interface.syntax: one for one in services}
        self.interfaces = {one.interface.syntax: one.interface for one in services}
        self.limits = limits or ServerLimits()
        self.security = security
        self.associations = Associations(self.limits.context_handles)
        self.connections: set[RpcConnection] = set()
        self.per_peer: dict[str, int] = {}
        self.port = 0
        """The port that it listens on, once started."""
        self._servers: list[asyncio.AbstractServer] = []

    async def start(self, address: str, port: int) -> None:
        """Listen at an address, or at all if it is empty; port 0 chooses a free one. Raises OSError on failure."""
        server = await self._listen(address, port)
        self._servers.append(server)
        self.port = self.port or server.sockets[0].getsockname()[1]
        log.info("listening for remote procedure calls", address=address or "any", port=self.port)

    async def _listen(self, address: str, port: int) -> asyncio.Server:
        """Bind IPv4 and IPv6 to the same port, since clients learn only one."""
        loop = asyncio.get_running_loop()
        for _ in range(_ATTEMPTS):
            server = await loop.create_server(lambda: RpcConnection(self), address or None, port, backlog=256)
            ports = [one.getsockname()[1] for one in server.sockets]
            if len(set(ports)) == 1:
                return server
            server.close()
            await server.wait_closed()
            with contextlib.suppress(OSError):  # another process may have it there
                return await loop.create_server(lambda: RpcConnection(self), address or None, ports[0], backlog=256)
        raise OSError(errno.EADDRINUSE, "no port is free for both IPv4 and IPv6")

    async def stop(self) -> None:
        """Stop listening, end the connections and run down their handles."""
        for server in self._servers:
            server.close()
        for connection in list(self.connections):
            connection.abort("the server stops")
        while self.connections:
            await asyncio.gather(*(connection.gone.wait() for connection in list(self.connections)))
        for server in self._servers:
            await server.wait_closed()
        self._servers = []


class RpcConnection(asyncio.BufferedProtocol):
    """The connection of one client."""

    def __init__(self, server: RpcServer) -> None:
        self.server = server
        self.gone = asyncio.Event()
        self.peer = ""
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._transport: asyncio.Transport
        self._acceptor: Acceptor
        self._local: tuple[str, int] = ("", 0)
        self._callers: dict[str, Caller] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._flushing = False
        self._unsent = 0
        """Bytes of answers that have not been passed to the transport."""
        self._unwritten: dict[asyncio.Future[None], list[tuple[Called, Answer]]] = {}
        """Answers that wait for a write, by the write."""
        self._waiting = [0, 0]
        """Number and bytes of these."""
        self._room = asyncio.Event()
        self._pdus = 0
        self._buffer = bytearray(_READ)
        self._processed = self._filled = 0
        """The bytes of the buffer that were processed, and read."""
        self._is_unread = False
        """Whether the client does not read its answers."""
        self._is_parked = False
        """Whether requests were read, and wait until it does."""
        self._payer: Party | None = None
        self._charged = 0
        """Bytes of unread answers that the payer is charged for."""
        self._stuck: asyncio.TimerHandle | None = None
        """Ends the connection if its client reads nothing for long."""

    # The connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register a new client connection."""
        self._transport = cast("asyncio.Transport", transport)
        server, limits = self.server, self.server.limits
        self.peer = str(transport.get_extra_info("peername")[0])
        self._local = transport.get_extra_info("sockname")[:2]
        self._acceptor = Acceptor(
            server.interfaces,
            server.associations,
            self.peer,
            self._local[1],
            limits=limits.acceptor,
            security=server.security,
        )
        of_peer = server.per_peer.get(self.peer, 0)
        server.connections.add(self)
        server.per_peer[self.peer] = of_peer + 1
        if len(server.connections) > limits.connections or of_peer >= limits.connections_per_peer:
            self.abort("too many connections")
            return
        self._transport.set_write_buffer_limits(high=_FREE)
        connected: socket.socket = transport.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)
        self._timer = self._loop.call_later(limits.bind_timeout, self._too_slow)

    def get_buffer(self, sizehint: int) -> bytearray:
        """The buffer for the next bytes."""
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        """Process the received bytes when it is this connection's turn, and read no more until then."""
        if self._acceptor.closed:
            return
        self._processed, self._filled = 0, count
        self._transport.pause_reading()
        self.server.turns.wait(self._party(), self.peer, self._take_turn)

    def _take_turn(self) -> bool:
        try:
            return self._process_some()
        except Exception:
            log.exception("a connection of remote procedure calls failed", peer=self.peer)
            self.abort("its requests could not be processed")
            return False

    def _process_some(self) -> bool:
        """Process some of the received bytes and start their calls. Return whether there are more."""
        acceptor = self._acceptor
        if acceptor.closed:
            return False
        if self._is_unread:
            self._is_parked = True
            return False
        begin, self._processed = self._processed, min(self._processed + _STEP, self._filled)
        for event in acceptor.receive(bytes(memoryview(self._buffer)[begin : self._processed])):
            self._happened(event)
        if acceptor.closed:
            log.info("closing a connection of remote procedure calls", peer=self.peer, reason=acceptor.reason)
            self._flush()
            self._transport.close()
            self._timer = self._timer or self._loop.call_later(_LINGER, self._transport.abort)
            return False
        self._flush_soon()
        if self._processed < self._filled:
            return True
        self._watch()
        if not self._is_unread:
            self._transport.resume_reading()
        return False

    def _watch(self) -> None:
        """End the connection if a bind, a handshake or a PDU is not completed in time."""
        acceptor = self._acceptor
        bound = acceptor.is_bound
        progress, self._pdus = acceptor.pdus != self._pdus, acceptor.pdus
        if bound and self._timer is not None and (progress or not acceptor.is_partial):
            self._timer.cancel()
            self._timer = None
        if self._timer is None and (acceptor.is_partial or not bound):
            self._timer = self._loop.call_later(self.server.limits.bind_timeout, self._too_slow)

    def _too_slow(self) -> None:
        self._timer = None
        self.abort("a bind or a PDU was not complete in time")

    def abort(self, reason: str) -> None:
        """End the connection at once."""
        log.debug("ending a connection of remote procedure calls", peer=self.peer, reason=reason)
        self._acceptor.closed = True
        self._transport.abort()

    def pause_writing(self) -> None:
        """Process no more requests: the client does not read its answers. It is to read some within a time."""
        self._is_unread = True
        self._transport.pause_reading()
        self._await_reader(self._transport.get_write_buffer_size())

    def _await_reader(self, unread: int) -> None:
        self._stuck = self._loop.call_later(self.server.limits.answer_timeout, self._end_if_stuck, unread)

    def _end_if_stuck(self, before: int) -> None:
        unread = self._transport.get_write_buffer_size()
        if unread < before:
            self._await_reader(unread)
        else:
            log.info("a client of remote procedure calls reads nothing: its connection is closed", peer=self.peer)
            self.abort("its answers are not read")

    def resume_writing(self) -> None:
        """Read requests again: the client reads its answers."""
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None
        self._is_unread = False
        self._charge()
        if self._is_parked:
            self._is_parked = False
            self.server.turns.wait(self._party(), self.peer, self._take_turn)
        elif self._processed == self._filled:
            self._transport.resume_reading()
        self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the calls of a disconnected client, and run down the handles that only it had."""
        self._acceptor.closed = True
        self._charge()
        for timer in (self._timer, self._stuck):
            if timer is not None:
                timer.cancel()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            self._ending = self._loop.create_task(self._end(tasks))
        else:
            self._left()

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        await asyncio.gather(*tasks, return_exceptions=True)
        self._left()

    def _left(self) -> None:
        self._acceptor.lost()
        server = self.server
        server.connections.discard(self)
        left = server.per_peer.get(self.peer, 1) - 1
        if left:
            server.per_peer[self.peer] = left
        else:
            server.per_peer.pop(self.peer, None)
        self.gone.set()

    # Calls

    def _happened(self, event: Event) -> None:
        if isinstance(event, Called):
            self._called(event)
            return
        task = self._tasks.get(event.call_id)
        if task is not None:
            task.add_done_callback(partial(self._was_cancelled, event.call_id))
            task.cancel()

    def _called(self, call: Called) -> None:
        if len(self._tasks) + self._waiting[0] >= self.server.limits.calls_per_connection:
            self._acceptor.fault(call.call_id, FaultStatus.TOO_BUSY)
            return
        method = call.interface.methods.get(call.opnum)
        service = self.server.services[call.interface.syntax]
        handler = service.handlers.get(call.opnum)
        if method is None or handler is None:
            self._acceptor.fault(call.call_id, service.refused.get(call.opnum, FaultStatus.OPNUM_RANGE))
            return
        at_once = service.at_once.get(call.opnum)
        if at_once is not None and not self._is_full() and self._answer_at_once(call, method, at_once):
            return
        try:
            request = method.request.decode(call.stub, call.written)
        except NdrError as error:
            status = FaultStatus.INVALID_BOUND if isinstance(error, RangeError) else FaultStatus.BAD_STUB_DATA
            log.debug("a call with wrong parameters", method=method.name, peer=self.peer, reason=str(error))
            self._acceptor.fault(call.call_id, status)
            return
        self._tasks[call.call_id] = self._loop.create_task(self._perform(call, method, handler, request))

    def _answer_at_once(self, call: Called, method: Method, at_once: AtOnce) -> bool:
        """Execute a call, unless it has to wait for more than a write; return whether it was executed."""
        try:
            answer = at_once(self._who_calls(call.principal), call)
        except Exception as error:
            self._failed(call, method, error)
            return True
        if answer is None:
            return False
        after = answer.after
        if after is None:
            self._respond(call, answer.stub)
            return True
        waiting = self._unwritten.get(after)
        if waiting is None:
            waiting = self._unwritten[after] = []
            after.add_done_callback(self._written)
        waiting.append((call, answer))
        self._waiting[0] += 1
        self._waiting[1] += len(answer.stub)
        return True

    def _written(self, write: asyncio.Future[None]) -> None:
        """Send the answers that waited for a write."""
        error = write.exception()
        answered = self._unwritten.pop(write)
        self._waiting[0] -= len(answered)
        for call, answer in answered:
            self._waiting[1] -= len(answer.stub)
            if error is None:
                self._respond(call, answer.stub)
            else:
                assert isinstance(error, Exception)
                self._respond(call, answer.failed(error).encode(call.representation))
        self._flush_soon()

    def _respond(self, call: Called, stub: bytes) -> None:
        self._acceptor.respond(call.call_id, stub)
        self._unsent += len(stub)

    def _failed(self, call: Called, method: Method, error: Exception) -> None:
        """End a call with a fault."""
        if isinstance(error, RpcFault):
            log.debug("a call ends with a fault", method=method.name, peer=self.peer, reason=str(error))
            self._acceptor.fault(call.call_id, error.status)
            return
        # An internal error must cost the client one call, not the connection.
        log.error("a remote procedure call failed unexpectedly", method=method.name, peer=self.peer, exc_info=error)
        self._acceptor.fault(call.call_id, FaultStatus.UNSPECIFIED, executed=True)

    def _is_full(self) -> bool:
        """Whether the client has to read answers before further ones are made."""
        return (
            self._unsent + self._transport.get_write_buffer_size() > _WRITE_LIMIT or self._waiting[1] > _UNWRITTEN_LIMIT
        )

    def _was_cancelled(self, call_id: int, task: asyncio.Task[None]) -> None:
        """End a call that its client has cancelled before its task began."""
        if task.cancelled():
            self._fault_of_cancel(call_id)
        self._ended(call_id, task)

    def _fault_of_cancel(self, call_id: int) -> None:
        acceptor = self._acceptor
        if call_id in acceptor.calls and not acceptor.closed:
            acceptor.fault(call_id, FaultStatus.CANCEL, executed=True)

    def _ended(self, call_id: int, task: asyncio.Task[Any] | None) -> None:
        if self._tasks.get(call_id) is task:
            del self._tasks[call_id]
        self._flush_soon()

    async def _wait_for_room(self) -> None:
        """Wait while a client does not read its answers, because further ones would all be held in memory."""
        while self._unsent + self._transport.get_write_buffer_size() > _WRITE_LIMIT:
            self._room.clear()
            await self._room.wait()

    async def _perform(self, call: Called, method: Method, handler: Handler, request: Parameters) -> None:
        try:
            if self._unsent + self._transport.get_write_buffer_size() > _WRITE_LIMIT:
                await self._wait_for_room()
            response = await handler(self._who_calls(call.principal), request)
            if self._unsent + self._transport.get_write_buffer_size() > _WRITE_LIMIT:
                await self._wait_for_room()  # one message may satisfy many calls that waited
            stub = response.encode(call.representation)
        except asyncio.CancelledError:
            self._fault_of_cancel(call.call_id)
            raise
        except Exception as error:
            self._failed(call, method, error)
        else:
            self._respond(call, stub)
        finally:
            self._ended(call.call_id, asyncio.current_task())

    def _who_calls(self, principal: str) -> Caller:
        """The caller's identity, shared by all calls of a principal."""
        caller = self._callers.get(principal)
        if caller is None:
            association = self._acceptor.association
            assert association is not None
            caller = self._callers[principal] = Caller(association, principal, self.peer, *self._local)
        return caller

    def _flush_soon(self) -> None:
        """Send answers of the current pass of the loop together."""
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        self._unsent = 0
        out = self._acceptor.data_to_send()
        if out and not self._transport.is_closing():
            write_together(self._transport, out)
            if not self._charge():
                log.warning("clients of remote procedure calls leave too many answers unread", peer=self.peer)
                self.abort("its answers are not read, and those of others neither")
        if self._transport.get_write_buffer_size() <= _WRITE_LIMIT:
            self._room.set()

    def _charge(self) -> bool:
        """Charge the client for the answers that it has not read; return whether it may have so many."""
        account, before = self.server.answers, self._charged
        unread = 0 if self._transport.is_closing() else self._transport.get_write_buffer_size()
        after = unread if unread > _FREE else 0
        if self._payer is None:
            if not after:
                return True
            self._payer = self._party()
        if after < before:
            account.give_back(self._payer, before - after)
        elif after > before and not account.take(self._payer, after - before):
            return False
        self._charged = after
        if not after:
            self._payer = None
        return True

    def _party(self) -> Party:
        """The party that pays: of the caller that has authenticated, or else of the address."""
        names = [name for name in self._callers if name]
        return declared(names[0]) if names else stranger(self.peer)
