"""Outgoing TCP connections, from this node's own address (MS-MQQB 3.1.5.2.3)."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Final, TypeVar

from qmnode.structures.hresults import hresult_of_error
from qmnode.structures.queue_attributes import ConnectionStatus

CONNECT_TIMEOUT: Final = 15.0
"""Seconds to open a transport connection, TLS handshake included."""

AnyProtocol = TypeVar("AnyProtocol", bound=asyncio.BaseProtocol)


class DialingError(Exception):
    """A transport connection could not be opened. Holds the status for the connection history, and the reason."""

    def __init__(self, status: ConnectionStatus, sentence: str, error: int = 0) -> None:
        super().__init__(sentence)
        self.status = status
        self.error = error
        """HRESULT; 0 if the status says enough."""


class _Probe(asyncio.Protocol):
    """A protocol that only shows that a connection was opened."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close the connection: the address accepts connections."""
        transport.close()


async def is_reachable(address: str, port: int, own_address: str) -> bool:
    """Whether the address accepts connections now."""
    try:
        await dial(_Probe, address, port, own_address)
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
    loop = asyncio.get_running_loop()
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    local = None
    if own_address and (":" in own_address) is (family == socket.AF_INET6):
        local = (own_address, 0)
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            _, made = await loop.create_connection(
                protocol,
                address,
                port,
                family=family,
                local_addr=local,
                ssl=tls,
                server_hostname=(host_name or address) if tls is not None else None,
            )
    except TimeoutError:
        raise DialingError(
            ConnectionStatus.SOCKET_CONNECT_FAILURE, f"no answer from {address} in {CONNECT_TIMEOUT:.0f} seconds"
        ) from None
    except ssl.SSLError as error:
        raise DialingError(
            ConnectionStatus.CERTIFICATE_VALIDATION_FAILURE, str(error), hresult_of_error(error)
        ) from error
    except OSError as error:
        status = ConnectionStatus.SOCKET_CONNECT_FAILURE
        if "error while attempting to bind" in str(error):
            status = ConnectionStatus.SOCKET_BIND_FAILURE
        raise DialingError(status, str(error), hresult_of_error(error)) from error
    return made
