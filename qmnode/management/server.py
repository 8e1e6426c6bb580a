"""Serving the management API in the node's event loop: on a Unix socket, and on TCP with TLS and tokens."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

import structlog
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from qmnode.administration.key_rotation import KeyRotations
from qmnode.administration.operations import Operations
from qmnode.bodies.limits import DEFAULT_LIMITS, Limits
from qmnode.management.app import warmed_app
from qmnode.management.audit import AuditLog, AuditMiddleware
from qmnode.management.authentication import Doorway
from qmnode.management.request_context import Context, KeyReader
from qmnode.management.tokens import Consoles, Tokens
from qmnode.model.administration import ConnectionList
from qmnode.model.queue_manager import QueueManager
from qmnode.security.principals import Principals
from qmnode.security.tls import load_certificate
from qmnode.settings.node import ConfigurationError, ManagementSettings
from qmnode.unix_sockets import bind_unix_socket, peer_credentials, peer_groups

log = structlog.get_logger(__name__)

_NETWORK: Final = 64
"""An IPv6 machine chooses its address freely within a network of this prefix."""


class Served(Protocol):
    """The protocol of a connection after its handshake."""

    @property
    def is_busy(self) -> bool:
        """Whether a request is being answered."""

    def abort(self) -> None:
        """End the connection at once."""


@dataclass(slots=True)
class ConnectionPlace:
    """The place of one connection."""

    address: str
    socket: _Accepted
    deadline: asyncio.TimerHandle
    served: Served | None = None
    """None during a TLS handshake."""

    def end(self) -> None:
        """Close the connection, also one whose handshake has not ended."""
        if self.served is not None:
            self.served.abort()
            return
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


class ConnectionPlaces:
    """The places of one listener."""

    def __init__(self, most: int, most_of_address: int, handshake_time: float) -> None:
        self._most = most
        self._most_of_address = most_of_address
        self._handshake_time = handshake_time
        self._held: dict[int, ConnectionPlace] = {}
        """By file descriptor; the longest silent first."""
        self._counts: Counter[str] = Counter()
        self._open = 0
        """Connections that are not closed yet, with a place or without."""

    @property
    def is_crowded(self) -> bool:
        """Whether a further connection has to wait until others are closed."""
        return self._open >= 2 * self._most

    def opened(self) -> None:
        """Count a connection that was accepted."""
        self._open += 1

    def closed(self, connection: _Accepted) -> None:
        """Count a connection that is being closed, and take its place back."""
        self._open -= 1
        self.release(connection)

    def take(self, connection: _Accepted, address: str) -> bool:
        """Give a new connection a place; False when there is none and it has to go."""
        if self._counts[address] >= self._most_of_address:
            has_room = self._make_room(address)
        else:
            has_room = len(self._held) < self._most or self._make_room(None)
        if not has_room:
            log.warning("no place for a connection to the management API", address=address, connections=len(self._held))
            return False
        number = connection.fileno()
        deadline = asyncio.get_running_loop().call_later(self._handshake_time, self._end_handshake, connection)
        self._held[number] = ConnectionPlace(address, connection, deadline)
        self._counts[address] += 1
        return True

    def serve(self, number: int, served: Served) -> None:
        """Note that the handshake of a connection has ended, or that its answer has."""
        place = self._held.pop(number, None)
        if place is not None:
            place.deadline.cancel()
            place.served = served
            self._held[number] = place

    def release(self, connection: _Accepted) -> None:
        """Take a place back, once."""
        number = connection.fileno()
        place = self._held.get(number)
        if place is None or place.socket is not connection:
            return
        del self._held[number]
        place.deadline.cancel()
        self._counts[place.address] -= 1
        if not self._counts[place.address]:
            del self._counts[place.address]

    def _end_handshake(self, connection: _Accepted) -> None:
        place = self._held.get(connection.fileno())
        if place is not None and place.socket is connection and place.served is None:
            place.end()

    def _make_room(self, address: str | None) -> bool:
        """End a connection that is not busy: of this address, or of the one that holds most."""
        silent = [place for place in self._held.values() if place.served is None or not place.served.is_busy]
        if address is not None:
            silent = [place for place in silent if place.address == address]
        if not silent:
            return False
        # The first of the largest: the places are in the order of their silence.
        given_up = max(silent, key=lambda place: self._counts[place.address])
        self.release(given_up.socket)
        given_up.end()
        return True


class _Accepted(socket.socket):
    """A connection that gives its place back when it is closed."""

    places: ConnectionPlaces | None = None

    def close(self) -> None:
        if self.places is not None and self.fileno() >= 0:
            self.places.closed(self)
        super().close()


class Listener(socket.socket):
    """A listening socket whose connections take places. It takes over a bound one."""

    def __init__(self, bound: socket.socket, places: ConnectionPlaces) -> None:
        super().__init__(fileno=bound.detach())
        self.setblocking(False)
        self._places = places

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection. BlockingIOError: none, or it has to wait. ConnectionAbortedError: there is no place."""
        if self._places.is_crowded:
            raise BlockingIOError
        accepted, peer = super().accept()
        connection = _Accepted(fileno=accepted.detach())
        if not self._places.take(connection, _address(connection, peer)):
            connection.close()
            raise ConnectionAbortedError
        connection.places = self._places
        self._places.opened()
        return connection, peer


def _address(connection: socket.socket, peer: Any) -> str:
    """The owner of the connection: an IPv4 address, a /64 network of IPv6, or a user of this machine."""
    if connection.family == socket.AF_UNIX:
        return f"uid:{peer_credentials(connection)[1]}"
    host = str(peer[0]).partition("%")[0]
    known = ipaddress.ip_address(host)
    if known.version == 4:
        return host
    if known.ipv4_mapped is not None:
        return str(known.ipv4_mapped)
    return str(ipaddress.IPv6Network((known, _NETWORK), strict=False))


_GRACE: Final = 3
"""Seconds that requests have to finish when the node stops."""


class _Config(uvicorn.Config):
    """With the places of the listener's connections, and the seconds until the head of a request is whole."""

    places: ConnectionPlaces
    head_time: float


class _PeerProtocol(H11Protocol):
    """Says of a caller on the Unix socket which user it is, in the place of an address; ends silent connections."""

    config: _Config
    _head_deadline: asyncio.TimerHandle | None = None
    _number = -1

    @property
    def is_busy(self) -> bool:
        """Whether a request is being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def abort(self) -> None:
        """End the connection at once."""
        self.transport.abort()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        peer: socket.socket = transport.get_extra_info("socket")
        if peer.family == socket.AF_UNIX:
            process, user = peer_credentials(peer)
            self.client = (f"uid:{user}", process)
            self.app_state = {**self.app_state, "user": (user, peer_groups(peer))}
        self._number = peer.fileno()
        self._await_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.is_busy:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._head_deadline is not None:
            self._head_deadline.cancel()

    def _await_head(self) -> None:
        """From now on the connection is silent, and has its time for the head of the next request."""
        if self._head_deadline is not None:
            self._head_deadline.cancel()
        if self.transport.is_closing():
            return
        self.config.places.serve(self._number, self)
        self._head_deadline = self.loop.call_later(self.config.head_time, self._end_if_silent)

    def _end_if_silent(self) -> None:
        if not self.is_busy:
            self.abort()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        config.load()
        self.lifespan = config.lifespan_class(config)
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """End ``main_loop``; requests that wait for messages are answered."""
        self.should_exit = True
        self._stopping.set()

    async def main_loop(self) -> None:
        """Once a second, in the place of ten times: an idle node sleeps."""
        seconds = 0
        while not await self.on_tick(10 * seconds):
            seconds += 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._stopping.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the service's."""
        yield


class ManagementServer:
    """The management API of a node. ConfigurationError when its files cannot be used."""

    def __init__(
        self,
        manager: QueueManager,
        settings: ManagementSettings,
        ready: Callable[[], bool],
        connection_list: ConnectionList | None = None,
        key_reader: KeyReader | None = None,
        audit_log: AuditLog | None = None,
        body_limits: Limits = DEFAULT_LIMITS,
        operations: Operations | None = None,
        principals: Principals | None = None,
        beside: Callable[[ASGIApp], ASGIApp] | None = None,
        rotations: KeyRotations | None = None,
    ) -> None:
        """``principals`` says who callers are, else as in a workgroup. ``beside`` adds what TCP has beside the API."""
        self.settings = settings
        self._beside = beside
        self.context = Context(manager, settings, ready, connection_list, key_reader, body_limits, operations)
        self.context.rotations = rotations
        self.context.principals = principals or Principals(manager.settings.security)
        self.audit_log = audit_log or AuditLog(settings.audit_log)
        self.tokens = Tokens(settings.tokens) if settings.listen is not None and settings.tokens is not None else None
        self.consoles = (
            Consoles(settings.consoles, manager.computer_name)
            if settings.listen is not None and settings.consoles is not None
            else None
        )
        self.address: tuple[str, int] | None = None
        """Where TCP is listened on, once it is."""
        self._servers: list[tuple[_Server, asyncio.Task[None]]] = []
        self._tls: ssl.SSLContext | None = None

    async def start(self) -> None:
        """Listen on everything that is configured."""
        app = await asyncio.to_thread(warmed_app, self.context)
        size = self.settings.request_size
        if self.settings.socket is not None:
            bound = bind_unix_socket(self.settings.socket, self.settings.mode)
            await self._serve(Doorway(app, None, size), bound)
            log.info("management API", socket=str(self.settings.socket))
        if self.settings.listen is not None:
            assert self.tokens is not None
            bound = _bind(self.settings.listen)
            try:
                self._tls = self._context()
            except ConfigurationError:
                bound.close()
                raise
            listener = await self._serve(Doorway(app, self.tokens, size, self.consoles), bound, self._tls)
            self.address = listener.getsockname()[:2]
            log.info("management API", listen=self.settings.listen, port=self.address[1])

    async def _serve(self, doorway: Doorway, bound: socket.socket, tls: ssl.SSLContext | None = None) -> Listener:
        limits = self.settings
        app: ASGIApp = AuditMiddleware(doorway, self.audit_log)
        if tls is not None and self._beside is not None:
            app = self._beside(app)
        config = _Config(
            app,
            http=_PeerProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_GRACE,
        )
        config.places = ConnectionPlaces(limits.connections, limits.connections_per_address, limits.head_time)
        config.head_time = limits.head_time
        server = _Server(config)
        config.ssl = tls
        listener = Listener(bound, config.places)
        await server.startup([listener])
        self._servers.append((server, asyncio.create_task(_run(server, listener))))
        return listener

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load_certificate(context)
        return context

    def _load_certificate(self, context: ssl.SSLContext) -> None:
        assert self.settings.certificate is not None
        try:
            load_certificate(context, self.settings.certificate, self.settings.private_key)
        except OSError as error:  # ssl.SSLError is one
            raise ConfigurationError(
                f"{self.settings.certificate}, {self.settings.private_key}: not a certificate and its key: {error}"
            ) from error

    def reload(self) -> None:
        """Read the tokens and the certificate again and reopen the audit log; on a mistake what was there stays."""
        for part in (self.audit_log.reopen, *self._reloaded()):
            try:
                part()
            except ConfigurationError as error:
                log.error("a part of the management API was not reloaded", reason=str(error))

    def _reloaded(self) -> Iterator[Callable[[], None]]:
        if self.tokens is not None:
            yield self.tokens.load
        if self.consoles is not None:
            yield self.consoles.load
        if (context := self._tls) is not None:
            yield lambda: self._load_certificate(context)

    async def stop(self) -> None:
        """Stop listening, let requests finish for a moment, and end those that wait."""
        self.context.stopping.set()
        for server, _ in self._servers:
            server.stop()
        await asyncio.gather(*(task for _, task in self._servers))
        self._servers.clear()
        if self.settings.socket is not None:
            self.settings.socket.unlink(missing_ok=True)
        self.audit_log.close()


async def _run(server: _Server, listener: socket.socket) -> None:
    await server.main_loop()
    await server.shutdown([listener])


def _bind(address: str) -> socket.socket:
    """A socket on ``host:port`` or ``[host]:port``. ConfigurationError."""
    host, _, port = address.rpartition(":")
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICHOST
        )[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"management.listen: {address!r} is not ADDRESS:PORT: {error}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
    except OSError as error:
        listener.close()
        raise ConfigurationError(f"management.listen: {address} cannot be listened on: {error.strerror}") from error
    listener.setblocking(False)
    return listener
