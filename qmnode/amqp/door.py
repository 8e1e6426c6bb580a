"""The door: listens, lets connections in within limits, and closes them when the node stops."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

import structlog

from qmnode.amqp.arrivals import Arrivals
from qmnode.amqp.connection import AmqpConnection
from qmnode.amqp.mapping import Place
from qmnode.amqp.principals import Principals, server_context
from qmnode.amqp.returned import Returned
from qmnode.amqp.temporary import TemporaryQueues
from qmnode.errors import ConfigurationError, MessageQueuingError, reason_of
from qmnode.security.tls import load_certificate
from qmnode.settings.node import NodeSettings
from qmnode.shares.blocks import block_of
from qmnode.shares.resources import (
    AMQP_ATTACHED_BYTES,
    AMQP_PARTIAL_BYTES,
    AMQP_TEMPORARY_QUEUES,
    AMQP_TRANSACTION_BYTES,
)
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.names import QueueNameError, parse_single_format_name
from qmnode.transport.listener import listening_sockets

if TYPE_CHECKING:
    from qmnode.model.queue_manager import QueueManager
    from qmnode.security.principals import Principals as Callers

log = structlog.get_logger(__name__)

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
        self.place = Place(self._is_here, time.time)
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
