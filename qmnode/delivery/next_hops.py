"""Resolves the name of an outgoing queue to the addresses of its next hops (MS-MQQB 3.1.5.2.1, 3.1.7.4, 3.1.7.5)."""

import asyncio
import ipaddress
import socket
from typing import Final

from qmnode.model.waiting import Cause, WaitReason
from qmnode.protocol.connection import NextHop
from qmnode.structures.guid import ZERO_GUID, Guid
from qmnode.structures.hresults import hresult_of_error
from qmnode.structures.names import DirectFormatName, DirectProtocol, parse_single_format_name
from qmnode.structures.queue_attributes import ConnectionStatus

RESOLUTION_TIMEOUT: Final = 20.0
_EVERYBODY: Final = ipaddress.IPv4Address("255.255.255.255")


class ResolutionError(Exception):
    """There is no next hop now. Holds the status for the connection history, and the cause."""

    def __init__(
        self,
        status: ConnectionStatus,
        sentence: str,
        error: int = 0,
        *,
        reason: WaitReason = WaitReason.NO_NAME,
        machine: str = "",
        step: str = "",
    ) -> None:
        super().__init__(sentence)
        self.cause = Cause(reason, sentence, machine, step)
        self.status = status
        self.error = error
        """HRESULT; 0 if the status says enough."""


class ConnectorHere(Exception):
    """The path ends here: an application takes the messages to the foreign ``site`` from its connector queue."""

    def __init__(self, site: Guid) -> None:
        super().__init__("into the connector queue")
        self.site = site


async def addresses_of(host: str, identifier: Guid = ZERO_GUID) -> list[NextHop]:
    """The addresses of a computer, as the system resolves its name."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(RESOLUTION_TIMEOUT):
            found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except TimeoutError as error:
        sentence = f"no answer about {host}"
        raise ResolutionError(ConnectionStatus.DNS_FAILURE, sentence, hresult_of_error(error), machine=host) from None
    except OSError as error:
        raise ResolutionError(
            ConnectionStatus.DNS_FAILURE, f"{host}: {error}", hresult_of_error(error), machine=host
        ) from error
    addresses = dict.fromkeys(str(entry[4][0]) for entry in found)
    for address in addresses:
        check_address(address)
    return [NextHop(address, host, identifier) for address in addresses]


def check_address(address: str) -> None:
    """Raise ResolutionError for an address that no single machine has: it would reach this node itself, or every
    machine.

    A peer that asks for an acknowledgment chooses the address to which it goes.
    """
    try:
        known = ipaddress.ip_address(address)
    except ValueError:
        return
    known = getattr(known, "ipv4_mapped", None) or known
    if known.is_unspecified or known.is_multicast or known == _EVERYBODY:
        raise ResolutionError(ConnectionStatus.DNS_FAILURE, f"{address} is the address of no machine")


class Resolver:
    """Resolves direct format names. Others need a directory (:class:`qmnode.delivery.routes.DirectoryResolver`)."""

    async def next_hops(self, format_name: str) -> list[NextHop]:
        """The next hops, best first. Raises ResolutionError if there are none."""
        name = parse_single_format_name(format_name)
        if isinstance(name, DirectFormatName):
            if name.protocol is DirectProtocol.TCP:
                check_address(name.path.computer)
                return [NextHop(name.path.computer)]
            return await addresses_of(name.path.computer)
        raise ResolutionError(
            ConnectionStatus.ROUTING_DATA_NOT_AVAILABLE,
            f"{format_name}: this node has no directory; use a direct format name",
            reason=WaitReason.NO_ROUTE,
            step="use a direct format name, or set directory.name in node.yaml",
        )
