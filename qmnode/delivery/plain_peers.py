"""The machines that are declared to speak in clear (``security.tls.plain_peers``), with their addresses."""

import asyncio
import ipaddress
from collections.abc import Iterable
from typing import Final

import structlog

from qmnode.delivery.machine_addresses import MachineAddresses
from qmnode.delivery.next_hops import ResolutionError, addresses_of
from qmnode.delivery.topology import Topology
from qmnode.protocol.connection import NextHop
from qmnode.security.tls import is_named
from qmnode.structures.guid import ZERO_GUID, Guid

log = structlog.get_logger(__name__)

SITE: Final = "site:"
_PATIENCE: Final = 5.0
"""Seconds for the addresses of all."""


class PlainPeers:
    """The machines and addresses behind the entries, as the directory and the name service had them last."""

    def __init__(self, entries: Iterable[str], topology: Topology | None, addresses: MachineAddresses | None) -> None:
        self._entries = sorted(entries, key=str.lower)
        self._topology = topology
        self._machine_addresses = addresses
        self._machines: dict[Guid, str] = {}
        self._addresses = frozenset(one for one in self._entries if _is_address(one))

    def __bool__(self) -> bool:
        return bool(self._entries)

    async def refresh(self) -> None:
        """Find the machines and their addresses; what cannot be found in time stays as it was."""
        self.find_machines()
        found = {one for one in self._entries if _is_address(one)}
        names = [one for one in self._entries if not _is_address(one) and not one.lower().startswith(SITE)]
        try:
            async with asyncio.timeout(_PATIENCE):
                for addresses in await asyncio.gather(*map(self._addresses_of, names), *map(self._of, self._machines)):
                    found |= addresses
        except TimeoutError:
            log.info("the addresses of plain peers were not found in time")
            found |= self._addresses
        self._addresses = frozenset(found)

    def find_machines(self) -> None:
        """The topology may be another."""
        if self._topology is not None:
            self._machines = self._topology.find_machines(
                {one.partition(".")[0].lower() for one in self._entries if not _is_address(one)},
                {one[len(SITE) :].lower() for one in self._entries if one.lower().startswith(SITE)},
            )

    def includes(self, hop: NextHop) -> bool:
        """Whether a next hop is one of them. Where the directory says which machine it is, its address says nothing."""
        if hop.identifier in self._machines or is_named(self._entries, hop.host_name, hop.address):
            return True
        return hop.identifier == ZERO_GUID and hop.address in self._addresses

    def is_at(self, address: str) -> bool:
        """Whether one of them has this address."""
        return address in self._addresses

    def is_one(self, machine: Guid) -> bool:
        """Whether a queue manager is one of them, by the directory."""
        return machine in self._machines

    def names(self) -> tuple[str, ...]:
        """Each machine, and each entry of which the directory has no machine."""
        machines = sorted(self._machines.values(), key=str.lower)
        known = {name.lower() for name in machines}
        rest = [one for one in self._entries if one.partition(".")[0].lower() not in known]
        sites = {} if self._topology is None else self._topology.sites_of(self._machines)
        return (*machines, *(one for one in rest if one.lower().removeprefix(SITE) not in sites))

    async def _of(self, machine: Guid) -> frozenset[str]:
        return frozenset() if self._machine_addresses is None else await self._machine_addresses.of(machine)

    @staticmethod
    async def _addresses_of(name: str) -> frozenset[str]:
        try:
            return frozenset(hop.address for hop in await addresses_of(name))
        except ResolutionError as error:
            log.info("the addresses of a plain peer are not known", peer=name, reason=str(error))
            return frozenset()


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
