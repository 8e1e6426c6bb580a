"""Outgoing TCP connections, from this node's own address (MS-MQQB 3.1.5.2.3)."""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from typing import Final, Self, TypeVar

from qmnode.event_loop import loop_name
from qmnode.structures.hresults import hresult_of_error
from qmnode.structures.queue_attributes import ConnectionStatus

CONNECT_TIMEOUT: Final = 15.0
"""Seconds for a TCP connection."""
_HANDSHAKE_TIMEOUT: Final = 5.0
"""Seconds for a TLS handshake on it. A peer that does not know TLS may wait for the rest of a packet."""

AnyProtocol = TypeVar("AnyProtocol", bound=asyncio.BaseProtocol)


class DialingError(Exception):
    """A transport connection could not be opened. Holds the status for the connection history, and the reason."""

    def __init__(self, status: ConnectionStatus, sentence: str, error: int = 0) -> None:
        super().__init__(sentence)
        self.status = status
        self.error = error
        """HRESULT; 0 if the status says enough."""
        self.in_handshake = False
        """Whether there was a connection, and TLS failed on it."""

    @classmethod
    def certificate(cls, sentence: str, error: int = 0) -> Self:
        """TLS failed on a connection."""
        made = cls(ConnectionStatus.CERTIFICATE_VALIDATION_FAILURE, sentence, error)
        made.in_handshake = True
        return made


class _Probe(asyncio.Protocol):
    """A protocol that only shows that a connection was opened."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close the connection: the address accepts connections."""
        transport.close()


async def is_reachable(
    address: str, port: int, own_address: str, *, tls: ssl.SSLContext | None = None, host_name: str = ""
) -> bool:
    """Whether somebody takes connections there now, over TLS if it is given."""
    try:
        await dial(_Probe, address, port, own_address, tls=tls, host_name=host_name)
    except DialingError:
        return False
    return True


async def dial(
    protocol: Callable[[], AnyProtocol],
    address: str,
    port: int,
    own_address: str,
    *,
    tls: ssl.SSLContext | None = None,
    host_name: str = "",
) -> AnyProtocol:
    """Open a connection to an address, from ``own_address`` if it is of the same family. Raises DialingError.

    Order acknowledgments for direct names go to the address that a connection comes from, so this must be one on which
    the node listens.
    """
    connected = await _connect(address, port, own_address)
    loop = asyncio.get_running_loop()
    try:
        transport, made = await loop.create_connection(
            protocol,
            sock=connected,
            ssl=tls,
            server_hostname=(host_name or address) if tls is not None else None,
            ssl_handshake_timeout=_HANDSHAKE_TIMEOUT if tls is not None else None,
        )
    except BaseException as error:
        connected.close()
        if not isinstance(error, OSError):
            raise
        raise DialingError.certificate(str(error) or type(error).__name__, hresult_of_error(error)) from error
    if transport.is_closing() and loop_name() == "uvloop":
        connected.detach()  # uvloop closes the descriptor, and this would close it again: another's, by then
    return made


def _words(error: OSError) -> str:
    """The system's own words: event loops have others for some errors."""
    return os.strerror(error.errno) if error.errno is not None and error.errno > 0 else error.strerror or str(error)


async def _connect(address: str, port: int, own_address: str) -> socket.socket:
    """A socket that is connected. DialingError."""
    loop = asyncio.get_running_loop()
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        made = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    except OSError as error:
        raise DialingError(
            ConnectionStatus.SOCKET_CONNECT_FAILURE, error.strerror or str(error), hresult_of_error(error)
        ) from error
    status = ConnectionStatus.SOCKET_BIND_FAILURE
    try:
        if own_address and (":" in own_address) is (family == socket.AF_INET6):
            made.bind((own_address, 0))
        status = ConnectionStatus.SOCKET_CONNECT_FAILURE
        async with asyncio.timeout(CONNECT_TIMEOUT):
            await loop.sock_connect(made, (address, port))
    except TimeoutError:
        made.close()
        raise DialingError(status, f"no answer from {address} in {CONNECT_TIMEOUT:.0f} seconds") from None
    except OSError as error:
        made.close()
        raise DialingError(status, _words(error), hresult_of_error(error)) from error
    except BaseException:
        made.close()
        raise
    return made
