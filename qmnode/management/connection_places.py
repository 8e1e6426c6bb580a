"""Places for connections to the management API: how many there are, in all and for each address, and until when.

A connection holds its place from its acceptance on, so a TLS handshake that never ends holds one too. It is *busy*
while a request is answered. When there is no place for a new connection, one that is not busy gives up its own, the
longest silent one of the address that holds most; a connection that is busy never does.

A connection that gave up its place is still open until the event loop has closed it. While as many of these are open as
there are places, no further connection is accepted: it waits in the kernel, where it costs the node no memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final, Protocol

import structlog

from qmnode.unix_sockets import peer_credentials

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
